//! Cassandra's variable-length integers (`org.apache.cassandra.utils.vint.VIntCoding`).
//!
//! The count of leading one-bits of the first byte is the number of bytes that follow; the value bits are big endian.
//! A signed value is zigzagged first. Longest form: 0xFF and eight bytes.

use crate::reader::{DecodeError, DecodeErrorKind, Reader};

/// Bytes of the longest vint.
pub const VINT_LEN_MAX: usize = 9;

/// Bytes that [`crate::Writer::put_vint_unsigned`] takes for `value`, 1..=9.
#[inline]
pub const fn vint_unsigned_len(value: u64) -> usize {
    // 7 value bits per byte up to 8 bytes, all 64 in the ninth form: (639 - 9 * leading zeros) / 64.
    #[expect(clippy::arithmetic_side_effects, reason = "leading_zeros is 0..=63")]
    let len = ((639 - (value | 1).leading_zeros() * 9) >> 6) as usize;
    len
}

/// Bytes that [`crate::Writer::put_vint_signed`] takes for `value`, 1..=9.
#[inline]
pub const fn vint_signed_len(value: i64) -> usize {
    vint_unsigned_len(zigzag(value))
}

/// 0, -1, 1, -2, … to 0, 1, 2, 3, …
#[inline]
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// Inverse of [`zigzag`].
#[inline]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ (value & 1).cast_signed().wrapping_neg()
}

/// The encoded bytes (the first `len` of the array) of an unsigned vint.
#[inline]
pub(crate) fn encode(value: u64) -> ([u8; VINT_LEN_MAX], usize) {
    let len = vint_unsigned_len(value);
    let mut out = [0xffu8; VINT_LEN_MAX];
    if len == VINT_LEN_MAX {
        let [_, tail @ ..] = &mut out;
        *tail = value.to_be_bytes();
    } else {
        // len 1..=8: extra = len - 1 leading one-bits, then a zero bit, then the value in the low 7 * len bits.
        #[expect(clippy::arithmetic_side_effects, reason = "len is 1..=8 here")]
        let register = {
            let mask = !(u64::MAX >> (len - 1));
            (value << (8 * (8 - len))) | mask
        };
        let [head @ .., _] = &mut out;
        *head = register.to_be_bytes();
    }
    (out, len)
}

impl Reader<'_> {
    /// An unsigned vint. Overlong forms are read as Cassandra reads them.
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn vint_unsigned(&mut self) -> Result<u64, DecodeError> {
        let mut ahead = *self;
        let first = ahead.u8()?;
        if first < 0x80 {
            *self = ahead;
            return Ok(u64::from(first));
        }
        let extra = first.leading_ones() as usize;
        let value = if extra == 8 {
            ahead.u64()?
        } else {
            let mut value = u64::from(first & (0xffu8 >> extra));
            for byte in
                ahead.bytes(extra).map_err(|e| DecodeError { offset: self.position(), ..e })?
            {
                value = (value << 8) | u64::from(*byte);
            }
            value
        };
        *self = ahead;
        Ok(value)
    }

    /// A zigzagged signed vint.
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn vint_signed(&mut self) -> Result<i64, DecodeError> {
        self.vint_unsigned().map(unzigzag)
    }

    /// `readUnsignedVInt32`: the unsigned form whose 64 bits, taken as signed, fit in 32 (a negative int written by
    /// Cassandra's `writeUnsignedVInt32` comes back negative).
    ///
    /// # Errors
    /// `Truncated`, `Invalid`.
    #[inline]
    pub fn vint_unsigned_i32(&mut self) -> Result<i32, DecodeError> {
        let mut ahead = *self;
        let value = ahead.vint_unsigned()?.cast_signed();
        let narrow = i32::try_from(value).map_err(|_| self.invalid(value))?;
        *self = ahead;
        Ok(narrow)
    }

    /// `readVInt32`: the signed form that must fit in 32 bits.
    ///
    /// # Errors
    /// `Truncated`, `Invalid`.
    #[inline]
    pub fn vint_signed_i32(&mut self) -> Result<i32, DecodeError> {
        let mut ahead = *self;
        let value = ahead.vint_signed()?;
        let narrow = i32::try_from(value).map_err(|_| self.invalid(value))?;
        *self = ahead;
        Ok(narrow)
    }

    /// A length or count as an unsigned vint: 0..=`i32::MAX`, Cassandra's widest.
    ///
    /// # Errors
    /// `Truncated`, `TooLong`.
    #[inline]
    pub fn vint_len(&mut self) -> Result<usize, DecodeError> {
        const MAX: u64 = i32::MAX as u64;
        let mut ahead = *self;
        let value = ahead.vint_unsigned()?;
        match usize::try_from(value) {
            Ok(length) if value <= MAX => {
                *self = ahead;
                Ok(length)
            }
            _ => Err(self.error(DecodeErrorKind::TooLong { length: value, max: MAX })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;
    use proptest::prelude::*;

    fn check_unsigned(value: u64, bytes: &[u8]) {
        let mut out = Vec::new();
        out.put_vint_unsigned(value);
        assert_eq!(out, bytes, "encoding of {value}");
        assert_eq!(vint_unsigned_len(value), bytes.len());
        let mut r = Reader::new(&out, "vint");
        assert_eq!(r.vint_unsigned(), Ok(value));
        assert!(r.is_empty());
        for cut in 0..out.len() {
            let mut r = Reader::new(&out[..cut], "vint");
            assert!(r.vint_unsigned().is_err());
            assert_eq!(r.position(), 0);
        }
    }

    #[test]
    fn unsigned_vints_have_cassandras_bytes() {
        check_unsigned(0, &[0]);
        check_unsigned(127, &[0x7f]);
        check_unsigned(128, &[0x80, 0x80]);
        check_unsigned(16_383, &[0xbf, 0xff]);
        check_unsigned(16_384, &[0xc0, 0x40, 0x00]);
        check_unsigned((1 << 21) - 1, &[0xdf, 0xff, 0xff]);
        check_unsigned(1 << 21, &[0xe0, 0x20, 0, 0]);
        check_unsigned((1 << 49) - 1, &[0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        check_unsigned(1 << 49, &[0xfe, 0x02, 0, 0, 0, 0, 0, 0]);
        check_unsigned((1 << 56) - 1, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        check_unsigned(1 << 56, &[0xff, 0x01, 0, 0, 0, 0, 0, 0, 0]);
        check_unsigned(u64::MAX, &[0xff; 9]);
    }

    #[test]
    fn signed_vints_zigzag() {
        for (value, bytes) in
            [(0i64, &[0u8][..]), (-1, &[1]), (1, &[2]), (-64, &[0x7f]), (64, &[0x80, 0x80])]
        {
            let mut out = Vec::new();
            out.put_vint_signed(value);
            assert_eq!(out, bytes);
            assert_eq!(Reader::new(&out, "vint").vint_signed(), Ok(value));
        }
        assert_eq!(vint_signed_len(i64::MIN), 9);
    }

    #[test]
    fn narrow_reads_refuse_the_first_value_out_of_range() {
        let read = |value: i64| {
            let mut out = Vec::new();
            out.put_vint_unsigned(value.cast_unsigned());
            Reader::new(&out, "vint").vint_unsigned_i32()
        };
        assert_eq!(read(i64::from(i32::MAX)), Ok(i32::MAX));
        assert!(read(i64::from(i32::MAX) + 1).is_err());
        assert_eq!(read(-1), Ok(-1));
        let signed = |value: i64| {
            let mut out = Vec::new();
            out.put_vint_signed(value);
            Reader::new(&out, "vint").vint_signed_i32()
        };
        assert_eq!(signed(i64::from(i32::MIN)), Ok(i32::MIN));
        assert!(signed(i64::from(i32::MIN) - 1).is_err());
        let len = |value: u64| {
            let mut out = Vec::new();
            out.put_vint_unsigned(value);
            Reader::new(&out, "vint").vint_len()
        };
        assert_eq!(len(i32::MAX as u64), Ok(i32::MAX as usize));
        assert!(len(i32::MAX as u64 + 1).is_err());
    }

    proptest! {
        #[test]
        fn every_value_comes_back(raw: u64, shift in 0u32..64) {
            let value = raw >> shift;
            let mut out = Vec::new();
            out.put_vint_unsigned(value);
            out.put_vint_signed(value.cast_signed());
            prop_assert_eq!(out.len(), vint_unsigned_len(value) + vint_signed_len(value.cast_signed()));
            let mut r = Reader::new(&out, "vint");
            prop_assert_eq!(r.vint_unsigned(), Ok(value));
            prop_assert_eq!(r.vint_signed(), Ok(value.cast_signed()));
            prop_assert_eq!(unzigzag(zigzag(value.cast_signed())), value.cast_signed());
        }
    }
}
