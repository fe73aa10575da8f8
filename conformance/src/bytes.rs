//! Fields of the native protocol: big-endian numbers, strings and bytes, read and written.

use anyhow::{Result, anyhow};

/// Reads big-endian fields; every read checks the remaining length.
pub struct Cursor<'a> {
    /// Unread bytes.
    pub rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Starts at the front of the bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// Fewer bytes are left.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (head, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| anyhow!("{count} bytes wanted, {} left", self.rest.len()))?;
        self.rest = rest;
        Ok(head)
    }

    /// A `[short]`.
    ///
    /// # Errors
    /// As `take`.
    pub fn u16(&mut self) -> Result<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// An `[int]`.
    ///
    /// # Errors
    /// As `take`.
    pub fn i32(&mut self) -> Result<i32> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A `[string]`.
    ///
    /// # Errors
    /// As `take`, or not UTF-8.
    pub fn string(&mut self) -> Result<String> {
        let length = self.u16()?;
        Ok(String::from_utf8(self.take(usize::from(length))?.to_vec())?)
    }

    /// `[short bytes]`.
    ///
    /// # Errors
    /// As `take`.
    pub fn short_bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// `[bytes]`; a negative length is null.
    ///
    /// # Errors
    /// As `take`.
    pub fn bytes(&mut self) -> Result<Option<&'a [u8]>> {
        match usize::try_from(self.i32()?) {
            Ok(length) => self.take(length).map(Some),
            Err(_) => Ok(None),
        }
    }
}

pub(crate) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    put_u16(out, length);
    out.extend_from_slice(&text.as_bytes()[..usize::from(length)]);
}

pub(crate) fn put_long_string(out: &mut Vec<u8>, text: &str) -> Result<()> {
    put_u32(out, u32::try_from(text.len())?);
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

pub(crate) fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    put_u16(out, u16::try_from(bytes.len())?);
    out.extend_from_slice(bytes);
    Ok(())
}
