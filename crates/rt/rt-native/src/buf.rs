//! [`Buf`]: the owned, aligned byte buffer of every file operation.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Alignment of a [`Buf`]'s first byte, and the unit of direct IO.
pub const ALIGN: usize = 4096;

/// Owned byte buffer whose first byte lies on a 4096-byte boundary, so that it can be used for
/// direct IO, unless it was built [from a vector](Buf::from_vec_at).
///
/// All bytes up to the capacity are initialised, so reading into it never needs unsafe code.
pub struct Buf {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buf {
    /// An empty buffer without memory.
    pub const fn new() -> Buf {
        Buf { raw: Vec::new(), start: 0, len: 0 }
    }

    /// An empty buffer with room for `capacity` bytes, rounded up to 4096.
    pub fn with_capacity(capacity: usize) -> Buf {
        if capacity == 0 {
            return Buf::new();
        }
        let room = capacity.next_multiple_of(ALIGN);
        let raw = vec![0u8; room + ALIGN];
        let start = raw.as_ptr().align_offset(ALIGN);
        // `align_offset` may refuse in const evaluation only; then the buffer is merely unaligned.
        let start = if start <= ALIGN { start } else { 0 };
        Buf { raw, start, len: 0 }
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Buf {
        let mut buf = Buf::with_capacity(bytes.len());
        buf.extend_from_slice(bytes);
        buf
    }

    /// Uses the content of a vector from `start` on, in its memory. Where that position is not
    /// aligned, it is written through the page cache.
    pub fn from_vec_at(raw: Vec<u8>, start: usize) -> Buf {
        let start = start.min(raw.len());
        let len = raw.len() - start;
        Buf { raw, start, len }
    }

    /// Returns true if the first byte has the alignment that direct IO needs.
    pub(crate) fn is_aligned(&self) -> bool {
        self.as_ptr().align_offset(ALIGN) == 0
    }

    /// Its memory, without bytes.
    pub fn into_empty_vec(self) -> Vec<u8> {
        let mut raw = self.raw;
        raw.clear();
        raw
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that fit without moving.
    pub fn capacity(&self) -> usize {
        self.raw.len().saturating_sub(self.start)
    }

    /// Makes room for `more` bytes after the present ones.
    pub fn reserve(&mut self, more: usize) {
        let wanted = self.len + more;
        if wanted > self.capacity() {
            let mut grown = Buf::with_capacity(wanted.max(self.capacity() * 2));
            let (start, len) = (grown.start, self.len);
            grown.raw[start..start + len].copy_from_slice(self);
            grown.len = len;
            *self = grown;
        }
    }

    /// Changes the length; new bytes are zero.
    pub fn resize(&mut self, len: usize) {
        let old = self.len;
        self.resize_keeping(len);
        if len > old {
            self[old..].fill(0);
        }
    }

    /// Changes the length; new bytes hold whatever the buffer held before. For reading into.
    pub fn resize_keeping(&mut self, len: usize) {
        if len > self.len {
            self.reserve(len - self.len);
        }
        stdx::debug_invariant!(
            len <= self.capacity(),
            "buffer of {} cannot hold {len}",
            self.capacity()
        );
        self.len = len;
    }

    /// Appends `bytes`.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let old = self.len;
        self.resize_keeping(old + bytes.len());
        self[old..].copy_from_slice(bytes);
    }

    /// Removes all bytes, keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self
    }

    /// The bytes, to change.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.raw[self.start..self.start + self.len]
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Buf {
    fn from(bytes: &[u8]) -> Buf {
        Buf::from_slice(bytes)
    }
}

impl From<Vec<u8>> for Buf {
    fn from(bytes: Vec<u8>) -> Buf {
        Buf::from_slice(&bytes)
    }
}

impl Default for Buf {
    fn default() -> Buf {
        Buf::new()
    }
}

impl Clone for Buf {
    fn clone(&self) -> Buf {
        Buf::from_slice(self)
    }
}

impl PartialEq for Buf {
    fn eq(&self, other: &Buf) -> bool {
        **self == **other
    }
}

impl Eq for Buf {}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_byte_is_aligned_after_every_growth() {
        let mut buf = Buf::new();
        let mut expect = Vec::new();
        for i in 0..2000u32 {
            buf.extend_from_slice(&i.to_le_bytes());
            expect.extend_from_slice(&i.to_le_bytes());
            assert_eq!(buf.as_ptr().align_offset(ALIGN), 0);
        }
        assert_eq!(&buf[..], &expect[..]);
    }

    #[test]
    fn a_vector_becomes_a_buffer_without_a_copy() {
        let mut raw = vec![0u8; 3 * ALIGN];
        let start = raw.as_ptr().align_offset(ALIGN);
        raw.truncate(start + 5);
        raw[start..].copy_from_slice(b"bytes");
        let at = raw.as_ptr().addr() + start;
        let mut buf = Buf::from_vec_at(raw, start);
        assert_eq!((&buf[..], buf.as_ptr().addr()), (&b"bytes"[..], at));
        assert!(buf.is_aligned());
        // It has no room behind its bytes.
        buf.extend_from_slice(b" and more");
        assert_eq!(&buf[..], b"bytes and more");
        assert!(buf.is_aligned());
        let raw = buf.into_empty_vec();
        assert!(raw.is_empty() && raw.capacity() >= ALIGN);

        let raw = vec![7; 3 * ALIGN];
        let off = raw.as_ptr().align_offset(ALIGN) + 1;
        let buf = Buf::from_vec_at(raw, off);
        assert_eq!((buf.len(), buf.is_aligned()), (3 * ALIGN - off, false));
        assert!(Buf::from_vec_at(vec![1, 2], 3).is_empty());
    }

    #[test]
    fn resize_zeroes_bytes_that_were_used_before() {
        let mut buf = Buf::from_slice(&[7; 10]);
        buf.resize(3);
        buf.resize(6);
        assert_eq!(&buf[..], [7, 7, 7, 0, 0, 0]);
        buf.clear();
        assert!(buf.is_empty());
    }
}
