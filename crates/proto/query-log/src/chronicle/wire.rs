//! The binary wire: a field's name, then its value; each begins with a code.
//!
//! Owns: the codes that Cassandra's records and the header of a file have, and those needed to skip other values.

use super::text::decode_text;
use codec::{DecodeError, Reader};

/// Codes that end below the strings; `0x00` to `0x7f` are integers of that value.
mod code {
    pub const BYTES_LENGTH8: u8 = 0x80;
    pub const BYTES_LENGTH16: u8 = 0x81;
    pub const BYTES_LENGTH32: u8 = 0x82;
    pub const U8_ARRAY: u8 = 0x8a;
    pub const I64_ARRAY: u8 = 0x8d;
    pub const PADDING32: u8 = 0x8e;
    pub const PADDING: u8 = 0x8f;
    pub const FLOAT32: u8 = 0x90;
    pub const FLOAT64: u8 = 0x91;
    pub const UUID: u8 = 0xa0;
    pub const UINT8: u8 = 0xa1;
    pub const UINT16: u8 = 0xa2;
    pub const UINT32: u8 = 0xa3;
    pub const INT8: u8 = 0xa4;
    pub const INT16: u8 = 0xa5;
    pub const INT32: u8 = 0xa6;
    pub const INT64: u8 = 0xa7;
    pub const FALSE: u8 = 0xb0;
    pub const TRUE: u8 = 0xb1;
    pub const TIME: u8 = 0xb2;
    pub const ZONED_DATE_TIME: u8 = 0xb5;
    pub const TYPE_PREFIX: u8 = 0xb6;
    pub const FIELD_NAME_ANY: u8 = 0xb7;
    pub const STRING_ANY: u8 = 0xb8;
    pub const EVENT_NAME: u8 = 0xb9;
    pub const NULL: u8 = 0xbb;
    pub const TYPE_LITERAL: u8 = 0xbc;
    pub const COMMENT: u8 = 0xbe;
    pub const FIELD_NAME0: u8 = 0xc0;
    pub const FIELD_NAME31: u8 = 0xdf;
    pub const STRING0: u8 = 0xe0;
}

/// Longest type prefixes in front of a value.
const TYPE_PREFIXES_MAX: usize = 4;

/// A cursor over the fields of an excerpt.
#[derive(Clone, Copy, Debug)]
pub struct WireReader<'a> {
    reader: Reader<'a>,
    what: &'static str,
}

impl<'a> WireReader<'a> {
    /// Returns a reader at the beginning of `bytes`; `what` names them in errors.
    pub fn new(bytes: &'a [u8], what: &'static str) -> WireReader<'a> {
        WireReader { reader: Reader::new(bytes, what), what }
    }

    /// Names what is read from here on in errors.
    pub fn rename(&mut self, what: &'static str) {
        self.reader.rename(what);
        self.what = what;
    }

    /// Returns the error of a value that is of the right kind, and not one of those expected.
    pub fn invalid(&self) -> DecodeError {
        self.reader.invalid(self.reader.peek_u8().map_or(-1, i64::from))
    }

    /// Returns the number of bytes left.
    pub fn remaining(&self) -> usize {
        self.reader.remaining()
    }

    /// Reads the name of the next field or event; `None` at the end.
    ///
    /// # Errors
    /// Another code, a name that is cut off.
    pub fn field(&mut self) -> Result<Option<String>, DecodeError> {
        self.skip_padding()?;
        if self.reader.is_empty() {
            return Ok(None);
        }
        let before = self.reader;
        let code = self.reader.u8()?;
        let length = match code {
            code::FIELD_NAME_ANY | code::EVENT_NAME => self.stop_bit_length()?,
            code::FIELD_NAME0..=code::FIELD_NAME31 => usize::from(code - code::FIELD_NAME0),
            other => return Err(before.invalid(i64::from(other))),
        };
        Ok(Some(self.text_of(length)?))
    }

    /// Reads an integer. Large round numbers are stored as floats.
    ///
    /// # Errors
    /// Another code, a value that is cut off.
    pub fn integer(&mut self) -> Result<i64, DecodeError> {
        self.skip_padding()?;
        let before = self.reader;
        let code = self.reader.u8()?;
        Ok(match code {
            0x00..=0x7f => i64::from(code),
            code::FLOAT32 => {
                let value = f32::from_bits(self.reader.u32_le()?);
                exact(f64::from(value)).ok_or_else(|| before.invalid(i64::from(code)))?
            }
            code::FLOAT64 => {
                let value = f64::from_bits(self.reader.u64_le()?);
                exact(value).ok_or_else(|| before.invalid(i64::from(code)))?
            }
            code::UINT8 => i64::from(self.reader.u8()?),
            code::UINT16 => i64::from(self.reader.u16_le()?),
            code::UINT32 => i64::from(self.reader.u32_le()?),
            code::INT8 => i64::from(self.reader.i8()?),
            code::INT16 => i64::from(self.reader.u16_le()?.cast_signed()),
            code::INT32 => i64::from(self.reader.i32_le()?),
            code::INT64 => self.reader.i64_le()?,
            other => return Err(before.invalid(i64::from(other))),
        })
    }

    /// Reads an integer that is no negative number, and at most `max`.
    ///
    /// # Errors
    /// Those of [`WireReader::integer`]; another kind of number.
    pub fn count(&mut self, max: usize) -> Result<usize, DecodeError> {
        let before = self.reader;
        let value = self.integer()?;
        match usize::try_from(value) {
            Ok(count) if count <= max => Ok(count),
            _ => Err(before.invalid(value)),
        }
    }

    /// Reads text, or null.
    ///
    /// # Errors
    /// Another code, text that is cut off or invalid.
    pub fn text(&mut self) -> Result<Option<String>, DecodeError> {
        self.skip_padding()?;
        let before = self.reader;
        let code = self.reader.u8()?;
        let length = match code {
            code::NULL => return Ok(None),
            code::STRING_ANY => self.stop_bit_length()?,
            code::STRING0.. => usize::from(code - code::STRING0),
            other => return Err(before.invalid(i64::from(other))),
        };
        Ok(Some(self.text_of(length)?))
    }

    /// Reads bytes, or null.
    ///
    /// # Errors
    /// Another code, bytes that are cut off.
    pub fn bytes(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        self.skip_padding()?;
        if self.reader.peek_u8() == Some(code::NULL) {
            self.reader.skip(1)?;
            return Ok(None);
        }
        let mut nested = self.nested()?.reader;
        let before = nested;
        match nested.u8()? {
            code::U8_ARRAY => Ok(Some(nested.rest())),
            other => Err(before.invalid(i64::from(other))),
        }
    }

    /// Reads the name of a type.
    ///
    /// # Errors
    /// Another code, a name that is cut off.
    pub fn type_prefix(&mut self) -> Result<String, DecodeError> {
        self.skip_padding()?;
        let before = self.reader;
        match self.reader.u8()? {
            code::TYPE_PREFIX => {
                let length = self.stop_bit_length()?;
                self.text_of(length)
            }
            other => Err(before.invalid(i64::from(other))),
        }
    }

    /// Reads the length of a nested value and returns a reader of its bytes.
    ///
    /// # Errors
    /// Another code, a value that is cut off.
    pub fn nested(&mut self) -> Result<WireReader<'a>, DecodeError> {
        self.skip_padding()?;
        let before = self.reader;
        let length = match self.reader.u8()? {
            code::BYTES_LENGTH8 => u32::from(self.reader.u8()?),
            code::BYTES_LENGTH16 => u32::from(self.reader.u16_le()?),
            code::BYTES_LENGTH32 => self.reader.u32_le()?,
            other => return Err(before.invalid(i64::from(other))),
        };
        Ok(WireReader { reader: self.reader.sub(length as usize, self.what)?, what: self.what })
    }

    /// Skips a value of any kind.
    ///
    /// # Errors
    /// A code that is not known, a value that is cut off.
    pub fn skip_value(&mut self) -> Result<(), DecodeError> {
        for _ in 0..TYPE_PREFIXES_MAX {
            self.skip_padding()?;
            if self.reader.peek_u8() != Some(code::TYPE_PREFIX) {
                break;
            }
            self.type_prefix()?;
        }
        let before = self.reader;
        let code = self.reader.u8()?;
        let bytes = match code {
            0x00..=0x7f | code::FALSE | code::TRUE | code::NULL => 0,
            code::UINT8 | code::INT8 => 1,
            code::UINT16 | code::INT16 => 2,
            code::FLOAT32 | code::UINT32 | code::INT32 => 4,
            code::FLOAT64 | code::INT64 => 8,
            code::UUID => 16,
            code::BYTES_LENGTH8..=code::BYTES_LENGTH32 => {
                self.reader = before;
                return self.nested().map(drop);
            }
            // Capacity, number of values in use, the values.
            code::I64_ARRAY => {
                let capacity = self.reader.u64_le()?;
                self.reader.skip(8)?;
                usize::try_from(capacity).unwrap_or(usize::MAX).saturating_mul(8)
            }
            code::TIME..=code::ZONED_DATE_TIME | code::STRING_ANY | code::TYPE_LITERAL => {
                self.stop_bit_length()?
            }
            code::STRING0.. => usize::from(code - code::STRING0),
            other => return Err(before.invalid(i64::from(other))),
        };
        self.reader.skip(bytes)
    }

    fn skip_padding(&mut self) -> Result<(), DecodeError> {
        loop {
            match self.reader.peek_u8() {
                Some(code::PADDING) => self.reader.skip(1)?,
                Some(code::PADDING32) => {
                    self.reader.skip(1)?;
                    let bytes = self.reader.u32_le()?;
                    self.reader.skip(bytes as usize)?;
                }
                Some(code::COMMENT) => {
                    self.reader.skip(1)?;
                    let bytes = self.stop_bit_length()?;
                    self.reader.skip(bytes)?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Reads a length: seven bits in each byte, the lowest first; the highest bit is set in all but the last.
    fn stop_bit_length(&mut self) -> Result<usize, DecodeError> {
        let before = self.reader;
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.reader.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                // A last byte of 0 marks a negative number, unless it is the only one.
                if byte == 0 && shift > 0 {
                    break;
                }
                return usize::try_from(value).map_err(|_| before.invalid(-1));
            }
        }
        Err(before.invalid(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    fn text_of(&mut self, length: usize) -> Result<String, DecodeError> {
        let before = self.reader;
        let bytes = self.reader.bytes(length)?;
        decode_text(bytes).ok_or_else(|| before.error(codec::DecodeErrorKind::Utf8))
    }
}

/// Returns the integer that a float stands for.
fn exact(value: f64) -> Option<i64> {
    let is_integer = value.fract() == 0.0 && value >= -(2f64.powi(63)) && value < 2f64.powi(63);
    // In range.
    is_integer.then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(bytes: &[u8]) -> WireReader<'_> {
        WireReader::new(bytes, "test")
    }

    #[test]
    fn integers_have_the_narrowest_code() {
        for (bytes, expect) in [
            (&b"\x05"[..], 5),
            (b"\xa1\xff", 255),
            (b"\xa2\xff\xff", 65_535),
            (b"\xa3\xff\xff\xff\xff", 4_294_967_295),
            (b"\xa4\x80", -128),
            (b"\xa5\x00\x80", -32_768),
            (b"\xa6\x00\x00\x00\x80", i64::from(i32::MIN)),
            (b"\xa7\x01\x00\x00\x00\x00\x00\x00\x80", i64::MIN + 1),
            (b"\x90\x00\x00\x00\xdf", i64::MIN),
            (b"\x91\x00\x00\x00\x00\x00\x00\xe0\xc3", i64::MIN),
            (b"\x8f\x8f\x8e\x02\x00\x00\x00..\xbe\x01c\xa1\x07", 7),
        ] {
            let mut reader = wire(bytes);
            assert_eq!(reader.integer(), Ok(expect), "{bytes:?}");
            assert_eq!(reader.remaining(), 0);
            let mut skipped = wire(bytes);
            assert_eq!(skipped.skip_value(), Ok(()), "{bytes:?}");
            assert_eq!(skipped.remaining(), 0);
            for length in 0..bytes.len() {
                assert!(wire(&bytes[..length]).integer().is_err(), "{bytes:?} {length}");
            }
        }
        // Not a number, half, 2^63, text.
        for bytes in [
            &b"\x90\x00\x00\xc0\x7f"[..],
            b"\x90\x00\x00\x00\x3f",
            b"\x90\x00\x00\x00\x5f",
            b"\xe1a",
        ] {
            assert!(wire(bytes).integer().is_err(), "{bytes:?}");
        }
        assert_eq!(wire(b"\xa1\x09").count(9), Ok(9));
        assert!(wire(b"\xa1\x09").count(8).is_err());
        assert!(wire(b"\xa4\xff").count(8).is_err());
    }

    #[test]
    fn texts_and_bytes_are_read_with_every_length_code() {
        let long = "x".repeat(300);
        let texts = [
            (b"\xe0".to_vec(), ""),
            (b"\xe2ab".to_vec(), "ab"),
            ([&b"\xb8\xac\x02"[..], long.as_bytes()].concat(), long.as_str()),
            (b"\xb8\x06\xed\xa0\xbd\xed\xb8\x80".to_vec(), "😀"),
        ];
        for (bytes, expect) in &texts {
            assert_eq!(wire(bytes).text(), Ok(Some((*expect).to_owned())));
            for length in 0..bytes.len() {
                assert!(wire(&bytes[..length]).text().is_err());
            }
        }
        assert_eq!(wire(b"\xbb").text(), Ok(None));
        assert!(wire(b"\xa1\x01").text().is_err());
        assert!(wire(b"\xe1\xff").text().is_err());
        // Minus one, a length of six bytes.
        assert!(wire(b"\xb8\x80\x00").text().is_err());
        assert!(wire(b"\xb8\xff\xff\xff\xff\xff\x01").text().is_err());
        for bytes in [&b"\x80\x03\x8aab"[..], b"\x81\x03\x00\x8aab", b"\x82\x03\x00\x00\x00\x8aab"]
        {
            assert_eq!(wire(bytes).bytes(), Ok(Some(&b"ab"[..])));
            for length in 0..bytes.len() {
                assert!(wire(&bytes[..length]).bytes().is_err());
            }
        }
        assert_eq!(wire(b"\xbb").bytes(), Ok(None));
        assert_eq!(wire(b"\x80\x01\x8a").bytes(), Ok(Some(&b""[..])));
        assert!(wire(b"\x80\x03\x8dab").bytes().is_err());
        assert!(wire(b"\x80\x00").bytes().is_err());
    }

    #[test]
    fn values_of_other_kinds_are_skipped() {
        let array = [&b"\x8d"[..], &[2, 0, 0, 0, 0, 0, 0, 0], &[0; 8], &[9; 16]].concat();
        let nested = b"\xb6\x03Foo\x82\x02\x00\x00\x00\xc1a".to_vec();
        for bytes in [
            array,
            nested,
            b"\xb1".to_vec(),
            b"\xb2\x0212".to_vec(),
            b"\xb8\x01a".to_vec(),
            b"\xe1a".to_vec(),
            [&b"\xa0"[..], &[1; 16]].concat(),
        ] {
            let mut reader = wire(&bytes);
            assert_eq!(reader.skip_value(), Ok(()), "{bytes:?}");
            assert_eq!(reader.remaining(), 0, "{bytes:?}");
            for length in 0..bytes.len() {
                assert!(wire(&bytes[..length]).skip_value().is_err(), "{bytes:?} {length}");
            }
        }
        assert!(wire(b"\x86").skip_value().is_err());
        assert!(wire(b"\xc1a").skip_value().is_err());
        // A capacity beyond the address space.
        assert!(wire(&[&b"\x8d"[..], &[0xff; 16]].concat()).skip_value().is_err());
    }
}
