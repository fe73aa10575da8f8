//! Maps that are checked once at decoding and then read in place.

use crate::error::Result;
use crate::primitive::{bytes, put_bytes, put_count, put_string, string};
use codec::Reader;

/// `[string map]` of STARTUP, borrowed from its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StringMap<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> StringMap<'a> {
    /// Checks every entry and takes the map from the reader.
    ///
    /// # Errors
    /// Cut short, not UTF-8.
    pub fn decode(r: &mut Reader<'a>) -> Result<StringMap<'a>> {
        let count = r.u16()?;
        let start = r.peek_rest();
        let from = r.position();
        for _ in 0..count {
            string(r)?;
            string(r)?;
        }
        let length = r.position().saturating_sub(from);
        Ok(StringMap { count, bytes: start.get(..length).unwrap_or_default() })
    }

    /// Key and value of every entry, in the order sent.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut r = Reader::new(self.bytes, "string map");
        (0..self.count).map_while(move |_| Some((string(&mut r).ok()?, string(&mut r).ok()?)))
    }

    /// The value of the last entry whose key is this one, in any case, as Cassandra treats the options of STARTUP.
    pub fn get_ignoring_case(&self, key: &str) -> Option<&'a str> {
        self.iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(key))
            .last()
            .map(|(_, value)| value)
    }

    /// Encodes entries as a `[string map]`.
    ///
    /// # Errors
    /// `TooLong`.
    pub fn encode(out: &mut Vec<u8>, entries: &[(&str, &str)]) -> Result<()> {
        put_count(out, entries.len(), "string map")?;
        entries.iter().try_for_each(|(key, value)| {
            put_string(out, key)?;
            put_string(out, value)
        })
    }

    pub(crate) fn raw(&self) -> (u16, &'a [u8]) {
        (self.count, self.bytes)
    }
}

/// `[bytes map]` of a custom payload, borrowed from its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BytesMap<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> BytesMap<'a> {
    /// Checks every entry and takes the map from the reader.
    ///
    /// # Errors
    /// Cut short, not UTF-8.
    pub fn decode(r: &mut Reader<'a>) -> Result<BytesMap<'a>> {
        let count = r.u16()?;
        let start = r.peek_rest();
        let from = r.position();
        for _ in 0..count {
            string(r)?;
            bytes(r)?;
        }
        let length = r.position().saturating_sub(from);
        Ok(BytesMap { count, bytes: start.get(..length).unwrap_or_default() })
    }

    /// Key and value of every entry, in the order sent.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + use<'a> {
        let mut r = Reader::new(self.bytes, "bytes map");
        (0..self.count).map_while(move |_| Some((string(&mut r).ok()?, bytes(&mut r).ok()?)))
    }

    /// Encodes entries as a `[bytes map]`.
    ///
    /// # Errors
    /// `TooLong`.
    pub fn encode(out: &mut Vec<u8>, entries: &[(&str, &[u8])]) -> Result<()> {
        put_count(out, entries.len(), "bytes map")?;
        entries.iter().try_for_each(|(key, value)| {
            put_string(out, key)?;
            put_bytes(out, Some(value))
        })
    }
}
