//! Appending numbers and length-prefixed bytes to a `Vec<u8>`.
//!
//! Owns the byte order of each method's name (big endian unless it says `_le`) and the patching of lengths that are
//! known only later. Growth is the vector's; nothing else is allocated.

use crate::vint;
use stdx::invariant;

/// A length that does not fit the width of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} has the length {length}, the limit is {max}")]
pub struct LengthError {
    /// The item that was being written.
    pub what: &'static str,
    /// Its length.
    pub length: usize,
    /// The widest length that the prefix can say.
    pub max: usize,
}

/// Appends to a byte vector.
pub trait Writer {
    /// One byte.
    fn put_u8(&mut self, value: u8);
    /// Two bytes, big endian.
    fn put_u16(&mut self, value: u16);
    /// Four bytes, big endian.
    fn put_u32(&mut self, value: u32);
    /// Eight bytes, big endian.
    fn put_u64(&mut self, value: u64);
    /// Sixteen bytes, big endian.
    fn put_u128(&mut self, value: u128);
    /// One signed byte.
    fn put_i8(&mut self, value: i8);
    /// Two bytes, signed, big endian.
    fn put_i16(&mut self, value: i16);
    /// Four bytes, signed, big endian.
    fn put_i32(&mut self, value: i32);
    /// Eight bytes, signed, big endian.
    fn put_i64(&mut self, value: i64);
    /// IEEE 754 single, big endian.
    fn put_f32(&mut self, value: f32);
    /// IEEE 754 double, big endian.
    fn put_f64(&mut self, value: f64);
    /// Two bytes, little endian.
    fn put_u16_le(&mut self, value: u16);
    /// Four bytes, little endian.
    fn put_u32_le(&mut self, value: u32);
    /// Eight bytes, little endian.
    fn put_u64_le(&mut self, value: u64);
    /// A Java boolean: 1 or 0.
    fn put_bool(&mut self, value: bool);
    /// The bytes as they are.
    fn put_bytes(&mut self, bytes: &[u8]);
    /// Appends the first `count` of the bytes, or all. Few of many are copied without a loop.
    fn put_first(&mut self, bytes: &[u8], count: usize);
    /// Cassandra's unsigned vint.
    fn put_vint_unsigned(&mut self, value: u64);
    /// Cassandra's zigzagged vint.
    fn put_vint_signed(&mut self, value: i64);
    /// Two bytes of length, then the bytes.
    ///
    /// # Errors
    /// Longer than 65,535 bytes: nothing is written.
    fn put_bytes_u16(&mut self, bytes: &[u8], what: &'static str) -> Result<(), LengthError>;
    /// Four bytes of length, then the bytes.
    ///
    /// # Errors
    /// Longer than `i32::MAX` bytes: nothing is written.
    fn put_bytes_i32(&mut self, bytes: &[u8], what: &'static str) -> Result<(), LengthError>;
    /// A vint of the length, then the bytes.
    fn put_bytes_vint(&mut self, bytes: &[u8]);
    /// Overwrites four bytes at `at` with a big endian value. `at` comes from a reserved place of the same vector; a
    /// place outside it is a broken invariant.
    fn patch_u32(&mut self, at: usize, value: u32);
    /// Overwrites two bytes, as [`Writer::patch_u32`].
    fn patch_u16(&mut self, at: usize, value: u16);
    /// Overwrites eight bytes, as [`Writer::patch_u32`].
    fn patch_u64(&mut self, at: usize, value: u64);
}

macro_rules! puts {
    ($($name:ident, $type:ty, $to:ident;)*) => {$(
        #[inline]
        fn $name(&mut self, value: $type) {
            self.extend_from_slice(&value.$to());
        }
    )*};
}

/// Bytes that [`Writer::put_first`] copies at once.
const FEW: usize = 32;

impl Writer for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    puts! {
        put_u16, u16, to_be_bytes;
        put_u32, u32, to_be_bytes;
        put_u64, u64, to_be_bytes;
        put_u128, u128, to_be_bytes;
        put_i8, i8, to_be_bytes;
        put_i16, i16, to_be_bytes;
        put_i32, i32, to_be_bytes;
        put_i64, i64, to_be_bytes;
        put_f32, f32, to_be_bytes;
        put_f64, f64, to_be_bytes;
        put_u16_le, u16, to_le_bytes;
        put_u32_le, u32, to_le_bytes;
        put_u64_le, u64, to_le_bytes;
    }

    #[inline]
    fn put_bool(&mut self, value: bool) {
        self.push(u8::from(value));
    }

    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_first(&mut self, bytes: &[u8], count: usize) {
        match bytes.first_chunk::<FEW>() {
            Some(few) if count <= FEW => {
                let end = self.len().saturating_add(count);
                self.extend_from_slice(few);
                self.truncate(end);
            }
            _ => self.extend_from_slice(bytes.get(..count).unwrap_or(bytes)),
        }
    }

    #[inline]
    fn put_vint_unsigned(&mut self, value: u64) {
        if value < 0x80 {
            #[expect(clippy::cast_possible_truncation, reason = "below 128")]
            self.push(value as u8);
            return;
        }
        // All of them, and those too many taken back: no copy of a length that is not known.
        let (bytes, len) = vint::encode(value);
        let end = self.len().saturating_add(len);
        self.extend_from_slice(&bytes);
        self.truncate(end);
    }

    #[inline]
    fn put_vint_signed(&mut self, value: i64) {
        self.put_vint_unsigned(vint::zigzag(value));
    }

    #[inline]
    fn put_bytes_u16(&mut self, bytes: &[u8], what: &'static str) -> Result<(), LengthError> {
        let max = usize::from(u16::MAX);
        let length = u16::try_from(bytes.len()).map_err(|_| LengthError {
            what,
            length: bytes.len(),
            max,
        })?;
        self.put_u16(length);
        self.extend_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn put_bytes_i32(&mut self, bytes: &[u8], what: &'static str) -> Result<(), LengthError> {
        let max = i32::MAX as usize;
        let length = i32::try_from(bytes.len()).map_err(|_| LengthError {
            what,
            length: bytes.len(),
            max,
        })?;
        self.put_i32(length);
        self.extend_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn put_bytes_vint(&mut self, bytes: &[u8]) {
        self.put_vint_unsigned(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn patch_u32(&mut self, at: usize, value: u32) {
        patch(self, at, value.to_be_bytes());
    }

    #[inline]
    fn patch_u16(&mut self, at: usize, value: u16) {
        patch(self, at, value.to_be_bytes());
    }

    #[inline]
    fn patch_u64(&mut self, at: usize, value: u64) {
        patch(self, at, value.to_be_bytes());
    }
}

#[inline]
fn patch<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    match out.get_mut(at..).and_then(|tail| tail.first_chunk_mut::<N>()) {
        Some(place) => *place = bytes,
        None => invariant!(false, "a patched length lies outside the buffer, at {at}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_big_endian_unless_the_name_says_otherwise() {
        let mut out = Vec::new();
        out.put_u8(1);
        out.put_u16(0x0203);
        out.put_u32(0x0405_0607);
        out.put_u32_le(0x0b0a_0908);
        out.put_i16(-1);
        out.put_bool(true);
        assert_eq!(out, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0xff, 0xff, 1]);
        out.patch_u32(3, 0xdead_beef);
        assert_eq!(out[3..7], [0xde, 0xad, 0xbe, 0xef]);
    }

    #[test]
    fn the_first_bytes_are_those_asked_for_and_no_others() {
        let all: Vec<u8> = (0..100).collect();
        for length in 0..=100 {
            for count in 0..=100 {
                let mut out = vec![7];
                out.put_first(&all[..length], count);
                assert_eq!(out, [&[7], &all[..count.min(length)]].concat(), "{count} of {length}");
            }
        }
    }

    #[test]
    fn a_short_length_takes_65535_bytes_and_refuses_65536() {
        let mut out = Vec::new();
        assert_eq!(out.put_bytes_u16(&[0; 65_535], "key"), Ok(()));
        assert_eq!(out.len(), 65_537);
        let error = out.put_bytes_u16(&[0; 65_536], "key").unwrap_err();
        assert_eq!(error.to_string(), "key has the length 65536, the limit is 65535");
        assert_eq!(out.len(), 65_537);
    }
}
