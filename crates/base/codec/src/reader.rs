//! The one cursor through which bytes from outside are decoded.
//!
//! Owns bounds and overflow checks and the error that names the item and its offset. Never allocates.

use std::fmt;

/// Why bytes could not be decoded: what was read, at which byte of it, and how it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The thing being decoded, as named at [`Reader::new`] or [`Reader::rename`].
    pub what: &'static str,
    /// Byte position within it (readers made by [`Reader::sub`] count from the start of their parent).
    pub offset: usize,
    /// How it failed.
    pub kind: DecodeErrorKind,
}

/// The ways decoding fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeErrorKind {
    /// Fewer bytes left than the next value takes.
    Truncated {
        /// Bytes the value takes.
        needed: usize,
        /// Bytes left.
        available: usize,
    },
    /// Bytes left over where the end was expected.
    Trailing {
        /// How many.
        count: usize,
    },
    /// A number outside the range its place allows (an unknown tag, a negative length, a vint too wide).
    Invalid {
        /// The number, as far as it fits.
        value: i64,
    },
    /// A length above its limit.
    TooLong {
        /// The length found.
        length: u64,
        /// The limit.
        max: u64,
    },
    /// Text that is not UTF-8.
    Utf8,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DecodeError { what, offset, kind } = self;
        match kind {
            DecodeErrorKind::Truncated { needed, available } => {
                write!(
                    f,
                    "{what} is cut short at byte {offset}: {needed} bytes needed, {available} left"
                )
            }
            DecodeErrorKind::Trailing { count } => {
                write!(f, "{what} has {count} bytes too many at byte {offset}")
            }
            DecodeErrorKind::Invalid { value } => {
                write!(f, "{what} has the invalid value {value} at byte {offset}")
            }
            DecodeErrorKind::TooLong { length, max } => {
                write!(f, "{what} has the length {length} at byte {offset}, the limit is {max}")
            }
            DecodeErrorKind::Utf8 => {
                write!(f, "{what} has text at byte {offset} that is not UTF-8")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// Result of decoding.
pub type Result<T> = std::result::Result<T, DecodeError>;

/// A checked cursor over borrowed bytes. After an error the position is unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    offset: usize,
    what: &'static str,
}

macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident, $type:ty, $from:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// `Truncated`.
        #[inline]
        pub fn $name(&mut self) -> Result<$type> {
            Ok(<$type>::$from(self.array()?))
        }
    )*};
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`; `what` names them in errors.
    #[inline]
    pub fn new(bytes: &'a [u8], what: &'static str) -> Reader<'a> {
        Reader { rest: bytes, offset: 0, what }
    }

    /// The same reader with another name for errors from here on.
    #[inline]
    pub fn rename(&mut self, what: &'static str) {
        self.what = what;
    }

    /// Byte position of the next value.
    #[inline]
    pub fn position(&self) -> usize {
        self.offset
    }

    /// Bytes left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Returns true if no bytes are left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes left, without taking them.
    #[inline]
    pub fn peek_rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next byte, without taking it.
    #[inline]
    pub fn peek_u8(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Takes all bytes left.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        let taken = self.rest;
        self.offset = self.offset.saturating_add(taken.len());
        self.rest = &[];
        taken
    }

    /// Takes `n` bytes.
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(n) {
            Some((taken, rest)) => {
                self.rest = rest;
                self.offset = self.offset.saturating_add(n);
                Ok(taken)
            }
            None => Err(self.truncated(n)),
        }
    }

    /// Takes a fixed number of bytes.
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                self.offset = self.offset.saturating_add(N);
                Ok(*taken)
            }
            None => Err(self.truncated(N)),
        }
    }

    /// Skips `n` bytes.
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn skip(&mut self, n: usize) -> Result<()> {
        self.bytes(n).map(|_| ())
    }

    /// Returns a reader over the next `n` bytes and skips them here. Offsets in its errors continue
    /// from here.
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn sub(&mut self, n: usize, what: &'static str) -> Result<Reader<'a>> {
        let offset = self.offset;
        Ok(Reader { rest: self.bytes(n)?, offset, what })
    }

    fixed! {
        /// One byte.
        u8, u8, from_be_bytes;
        /// One signed byte.
        i8, i8, from_be_bytes;
        /// Two bytes, big endian.
        u16, u16, from_be_bytes;
        /// Two bytes, signed, big endian.
        i16, i16, from_be_bytes;
        /// Four bytes, big endian.
        u32, u32, from_be_bytes;
        /// Four bytes, signed, big endian.
        i32, i32, from_be_bytes;
        /// Eight bytes, big endian.
        u64, u64, from_be_bytes;
        /// Eight bytes, signed, big endian.
        i64, i64, from_be_bytes;
        /// Sixteen bytes, big endian.
        u128, u128, from_be_bytes;
        /// IEEE 754 single, big endian.
        f32, f32, from_be_bytes;
        /// IEEE 754 double, big endian.
        f64, f64, from_be_bytes;
        /// Two bytes, little endian.
        u16_le, u16, from_le_bytes;
        /// Four bytes, little endian.
        u32_le, u32, from_le_bytes;
        /// Four bytes, signed, little endian.
        i32_le, i32, from_le_bytes;
        /// Eight bytes, little endian.
        u64_le, u64, from_le_bytes;
        /// Eight bytes, signed, little endian.
        i64_le, i64, from_le_bytes;
    }

    /// A Java boolean: one byte, anything but 0 is true.
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }

    /// A length of four bytes that must not be negative (big endian).
    ///
    /// # Errors
    /// `Truncated`, `Invalid` when negative. The bytes it announces are not checked yet.
    #[inline]
    pub fn len_i32(&mut self) -> Result<usize> {
        let mut ahead = *self;
        let value = ahead.i32()?;
        match usize::try_from(value) {
            Ok(length) => {
                *self = ahead;
                Ok(length)
            }
            Err(_) => Err(self.invalid(i64::from(value))),
        }
    }

    /// `n` bytes as UTF-8 text.
    ///
    /// # Errors
    /// `Truncated`, `Utf8`.
    #[inline]
    pub fn utf8(&mut self, n: usize) -> Result<&'a str> {
        let mut ahead = *self;
        let bytes = ahead.bytes(n)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                *self = ahead;
                Ok(text)
            }
            Err(_) => Err(self.error(DecodeErrorKind::Utf8)),
        }
    }

    /// Text as `DataOutput.writeUTF` or a `[string]` of the native protocol has it: two bytes of length, then UTF-8
    /// (Java's modified UTF-8 of NUL and of characters beyond the base plane is refused).
    ///
    /// # Errors
    /// `Truncated`, `Utf8`.
    #[inline]
    pub fn utf8_u16(&mut self) -> Result<&'a str> {
        let mut ahead = *self;
        let n = usize::from(ahead.u16()?);
        let text = ahead.utf8(n)?;
        *self = ahead;
        Ok(text)
    }

    /// Bytes after a length of two bytes (`ByteBufferUtil.writeWithShortLength`, `[short bytes]`).
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn bytes_u16(&mut self) -> Result<&'a [u8]> {
        let mut ahead = *self;
        let n = usize::from(ahead.u16()?);
        let bytes = ahead.bytes(n)?;
        *self = ahead;
        Ok(bytes)
    }

    /// Bytes after a length of four bytes (`ByteBufferUtil.writeWithLength`); a negative length is an error.
    ///
    /// # Errors
    /// `Truncated`, `Invalid`.
    #[inline]
    pub fn bytes_i32(&mut self) -> Result<&'a [u8]> {
        let mut ahead = *self;
        let n = ahead.len_i32()?;
        let bytes = ahead.bytes(n)?;
        *self = ahead;
        Ok(bytes)
    }

    /// Bytes after an unsigned vint length (`ByteBufferUtil.writeWithVIntLength`).
    ///
    /// # Errors
    /// `Truncated`, `Invalid`.
    #[inline]
    pub fn bytes_vint(&mut self) -> Result<&'a [u8]> {
        let mut ahead = *self;
        let n = ahead.vint_len()?;
        let bytes = ahead.bytes(n)?;
        *self = ahead;
        Ok(bytes)
    }

    /// Checks that an announced count of elements, each at least `size_min` bytes, can be there at all. To be called
    /// before reserving memory for them; with a `size_min` of 0 it counts as 1.
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn check_count(&self, count: usize, size_min: usize) -> Result<usize> {
        let needed = count.saturating_mul(size_min.max(1));
        if needed > self.rest.len() { Err(self.truncated(needed)) } else { Ok(count) }
    }

    /// That all bytes were taken.
    ///
    /// # Errors
    /// `Trailing`.
    #[inline]
    pub fn finish(&self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.error(DecodeErrorKind::Trailing { count: self.rest.len() }))
        }
    }

    /// An error of this kind at the present position.
    #[cold]
    pub fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError { what: self.what, offset: self.offset, kind }
    }

    /// `Invalid` with this value at the present position.
    #[cold]
    pub fn invalid(&self, value: i64) -> DecodeError {
        self.error(DecodeErrorKind::Invalid { value })
    }

    #[cold]
    fn truncated(&self, needed: usize) -> DecodeError {
        self.error(DecodeErrorKind::Truncated { needed, available: self.rest.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_fixed_width_in_both_byte_orders() {
        let bytes: Vec<u8> = (1..=60).collect();
        let mut r = Reader::new(&bytes, "test");
        assert_eq!(r.u8(), Ok(1));
        assert_eq!(r.i8(), Ok(2));
        assert_eq!(r.u16(), Ok(0x0304));
        assert_eq!(r.u32(), Ok(0x0506_0708));
        assert_eq!(r.u64(), Ok(0x090a_0b0c_0d0e_0f10));
        assert_eq!(r.u16_le(), Ok(0x1211));
        assert_eq!(r.u32_le(), Ok(0x1615_1413));
        assert_eq!(r.u64_le(), Ok(0x1e1d_1c1b_1a19_1817));
        assert_eq!(r.position(), 30);
        assert_eq!(r.remaining(), 30);
        assert_eq!(r.u128(), Ok(0x1f20_2122_2324_2526_2728_292a_2b2c_2d2e));
        assert_eq!(r.rest().len(), 14);
        assert_eq!(r.finish(), Ok(()));
        let mut r = Reader::new(&[0xff, 0xff, 0xff, 0xfe, 0x3f, 0x80, 0, 0], "test");
        assert_eq!(r.i32(), Ok(-2));
        assert_eq!(r.f32(), Ok(1.0));
    }

    #[test]
    fn a_short_read_names_thing_place_and_need_and_moves_nothing() {
        let mut r = Reader::new(&[1, 2, 3, 4, 5], "frame header");
        r.skip(2).unwrap();
        let error = r.u32().unwrap_err();
        assert_eq!(error.kind, DecodeErrorKind::Truncated { needed: 4, available: 3 });
        assert_eq!(
            error.to_string(),
            "frame header is cut short at byte 2: 4 bytes needed, 3 left"
        );
        assert_eq!(r.bytes(3), Ok(&[3u8, 4, 5][..]));
        assert!(r.bytes(1).is_err());
        assert!(r.bytes(usize::MAX).is_err());
    }

    #[test]
    fn a_sub_reader_keeps_the_outer_offset_and_cannot_read_past_its_end() {
        let mut r = Reader::new(&[9, 1, 2, 7], "outer");
        r.skip(1).unwrap();
        let mut inner = r.sub(2, "inner").unwrap();
        assert_eq!(inner.u16(), Ok(0x0102));
        let error = inner.u8().unwrap_err();
        assert_eq!((error.what, error.offset), ("inner", 3));
        assert_eq!(r.u8(), Ok(7));
    }

    #[test]
    fn prefixed_bytes_leave_the_position_alone_when_cut() {
        let mut r = Reader::new(&[0, 3, b'a', b'b'], "text");
        assert!(r.utf8_u16().is_err());
        assert_eq!(r.position(), 0);
        let mut r = Reader::new(&[0, 2, 0xc3, 0xa9, 0xff], "text");
        assert_eq!(r.utf8_u16(), Ok("é"));
        assert_eq!(
            Reader::new(&[0, 1, 0xff], "text").utf8_u16().unwrap_err().kind,
            DecodeErrorKind::Utf8
        );
        assert_eq!(
            Reader::new(&[0xff; 4], "n").bytes_i32().unwrap_err().kind,
            DecodeErrorKind::Invalid { value: -1 }
        );
    }

    #[test]
    fn a_count_that_cannot_fit_is_refused_and_the_nearest_that_can_is_not() {
        let r = Reader::new(&[0; 8], "list");
        assert_eq!(r.check_count(2, 4), Ok(2));
        assert!(r.check_count(3, 4).is_err());
        assert!(r.check_count(usize::MAX, usize::MAX).is_err());
        assert_eq!(r.finish().unwrap_err().kind, DecodeErrorKind::Trailing { count: 8 });
    }
}
