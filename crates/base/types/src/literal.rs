//! Text of a value to bytes: `AbstractType.fromString` of each type.

use crate::custom::CustomKind;
use crate::duration::Duration;
use crate::number::{Decimal, java_float_text, parse_varint, too_many_digits, varint_to_bytes};
use crate::validate::DEPTH_MAX;
use crate::wire::encode_tuple;
use crate::{CqlType, TypeError, inet, marshal, temporal, timeuuid};

impl CqlType {
    /// Bytes of a value from its text without CQL quotes, as Cassandra's `fromString` parses string
    /// constants and input of tools. Collections, vectors and counters take hex, tuples and user
    /// types fields separated by `:` (`\:` for a colon, `@` for null).
    ///
    /// Empty text is the empty value for most types, `false` for boolean.
    ///
    /// # Errors
    /// `Marshal` with Cassandra's text. The timestamp `now` is refused: see
    /// [`CqlType::from_string_at`].
    pub fn from_string(&self, source: &str) -> Result<Vec<u8>, TypeError> {
        self.parse_text(source, None, 0)
    }

    /// Like [`CqlType::from_string`], with the time that the timestamp `now` means.
    ///
    /// # Errors
    /// `Marshal` with Cassandra's text.
    pub fn from_string_at(&self, source: &str, now_millis: i64) -> Result<Vec<u8>, TypeError> {
        self.parse_text(source, Some(now_millis), 0)
    }

    fn parse_text(&self, source: &str, now: Option<i64>, depth: u32) -> Result<Vec<u8>, TypeError> {
        let refused =
            |what: &str| TypeError::Marshal(format!("Unable to make {what} from '{source}'"));
        let not_hex = || TypeError::Marshal(format!("cannot parse '{source}' as hex bytes"));
        if source.is_empty() && self.empty_text_is_empty_value() {
            return Ok(Vec::new());
        }
        Ok(match self {
            CqlType::Ascii => {
                if let Some(bad) = source.chars().find(|c| !c.is_ascii()) {
                    return Err(TypeError::Marshal(format!(
                        "Invalid ASCII character in string literal: \
                         java.nio.charset.UnmappableCharacterException: Input length = {}",
                        bad.len_utf16()
                    )));
                }
                source.as_bytes().to_vec()
            }
            CqlType::Text => source.as_bytes().to_vec(),
            CqlType::Tinyint => {
                source.parse::<i8>().map_err(|_| refused("byte"))?.to_be_bytes().to_vec()
            }
            CqlType::Smallint => {
                source.parse::<i16>().map_err(|_| refused("short"))?.to_be_bytes().to_vec()
            }
            CqlType::Int => {
                source.parse::<i32>().map_err(|_| refused("int"))?.to_be_bytes().to_vec()
            }
            CqlType::Bigint => {
                source.parse::<i64>().map_err(|_| refused("long"))?.to_be_bytes().to_vec()
            }
            CqlType::Varint => varint_to_bytes(&parse_varint(source).ok_or_else(|| {
                too_many_digits(source).unwrap_or_else(|| {
                    TypeError::Marshal(format!("unable to make int from '{source}'"))
                })
            })?),
            CqlType::Decimal => Decimal::parse(source)
                .ok_or_else(|| {
                    too_many_digits(source).unwrap_or_else(|| {
                        TypeError::Marshal(format!("unable to make BigDecimal from '{source}'"))
                    })
                })?
                .to_bytes(),
            CqlType::Float => java_float_text(source)
                .and_then(|text| text.parse::<f32>().ok())
                .ok_or_else(|| refused("float"))?
                .to_be_bytes()
                .to_vec(),
            CqlType::Double => java_float_text(source)
                .and_then(|text| text.parse::<f64>().ok())
                .ok_or_else(|| refused("double"))?
                .to_be_bytes()
                .to_vec(),
            CqlType::Boolean => {
                if source.is_empty() || source.eq_ignore_ascii_case("false") {
                    vec![0]
                } else if source.eq_ignore_ascii_case("true") {
                    vec![1]
                } else {
                    return Err(refused("boolean"));
                }
            }
            CqlType::Date => temporal::parse_date(source)?.to_be_bytes().to_vec(),
            CqlType::Time => temporal::parse_time(source)?.to_be_bytes().to_vec(),
            CqlType::Timestamp => temporal::parse_timestamp(source, now)?.to_be_bytes().to_vec(),
            CqlType::Duration => Duration::parse(source)?.to_bytes(),
            CqlType::Inet => inet::parse_inet(source)?,
            CqlType::Uuid => timeuuid::parse_uuid(source).ok_or_else(|| refused("UUID"))?.to_vec(),
            CqlType::Timeuuid => {
                let id = timeuuid::parse_uuid(source).ok_or_else(|| {
                    TypeError::Marshal(format!("Unknown timeuuid representation: {source}"))
                })?;
                if !timeuuid::is_timeuuid(&id) {
                    return Err(TypeError::marshal("TimeUUID supports only version 1 UUIDs"));
                }
                id.to_vec()
            }
            CqlType::Empty => return Err(TypeError::Marshal(format!("'{source}' is not empty"))),
            CqlType::Blob
            | CqlType::Counter
            | CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Vector { .. } => marshal::parse_hex(source).ok_or_else(not_hex)?,
            CqlType::Custom(custom) => match custom.kind() {
                CustomKind::Unknown => marshal::parse_hex(source).ok_or_else(not_hex)?,
                CustomKind::LexicalUuid => timeuuid::parse_java_uuid(source)
                    .ok_or_else(|| {
                        TypeError::Marshal(format!("unable to make UUID from '{source}'"))
                    })?
                    .to_vec(),
                _ if depth > DEPTH_MAX => {
                    return Err(TypeError::marshal("value is nested too deep"));
                }
                _ => custom.parse_text(source, |ty, text| {
                    ty.parse_text(text, now, depth.saturating_add(1))
                })?,
            },
            CqlType::Tuple(types) => {
                self.parse_fields(types.iter(), types.len(), source, now, depth)?
            }
            CqlType::Udt(udt) => {
                let types = udt.fields.iter().map(|(_, t)| t);
                self.parse_fields(types, udt.fields.len(), source, now, depth)?
            }
        })
    }

    fn empty_text_is_empty_value(&self) -> bool {
        !matches!(
            self,
            CqlType::Boolean | CqlType::Date | CqlType::Time | CqlType::Tuple(_) | CqlType::Udt(_)
        )
    }

    fn parse_fields<'a>(
        &self,
        types: impl Iterator<Item = &'a CqlType>,
        count: usize,
        source: &str,
        now: Option<i64>,
        depth: u32,
    ) -> Result<Vec<u8>, TypeError> {
        if depth > DEPTH_MAX {
            return Err(TypeError::marshal("value is nested too deep"));
        }
        let parts = split_unescaped(source);
        if parts.len() > count {
            return Err(TypeError::Marshal(format!(
                "Invalid tuple literal: too many elements. Type {self} expects {count} but got {}",
                parts.len()
            )));
        }
        let fields: Result<Vec<Option<Vec<u8>>>, TypeError> = types
            .zip(parts)
            .map(|(ty, part)| {
                if part == "@" {
                    return Ok(None);
                }
                let text = part.replace("\\:", ":").replace("\\@", "@");
                ty.parse_text(&text, now, depth.saturating_add(1)).map(Some)
            })
            .collect();
        encode_tuple(fields?)
    }
}

/// Parts between colons that have no backslash before them.
pub(crate) fn split_unescaped(source: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut previous) = (0, 0);
    for (at, byte) in source.bytes().enumerate() {
        if byte == b':' && previous != b'\\' {
            parts.push(source.get(start..at).unwrap_or(""));
            start = at.saturating_add(1);
        }
        previous = byte;
    }
    parts.push(source.get(start..).unwrap_or(""));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_simple_types_become_their_bytes() {
        let check = |ty: CqlType, text: &str, bytes: &[u8]| {
            assert_eq!(ty.from_string(text).as_deref(), Ok(bytes), "{ty} {text}");
            assert_eq!(ty.validate(bytes), Ok(()));
        };
        check(CqlType::Int, "-2", &[0xff, 0xff, 0xff, 0xfe]);
        check(CqlType::Int, "", &[]);
        check(CqlType::Tinyint, "+5", &[5]);
        check(CqlType::Bigint, "1", &[0, 0, 0, 0, 0, 0, 0, 1]);
        check(CqlType::Varint, "-129", &[0xff, 0x7f]);
        check(CqlType::Decimal, "1.25", &[0, 0, 0, 2, 0x7d]);
        check(CqlType::Boolean, "TRUE", &[1]);
        check(CqlType::Boolean, "", &[0]);
        check(CqlType::Blob, "0aFF", &[10, 255]);
        check(CqlType::Float, "1.5f", &[0x3f, 0xc0, 0, 0]);
        check(CqlType::Date, "1970-01-02", &[0x80, 0, 0, 1]);
        check(CqlType::Time, "00:00:01", &1_000_000_000i64.to_be_bytes());
        check(CqlType::Timestamp, "1970-01-01", &[0; 8]);
        check(CqlType::Duration, "1mo2d3ns", &[2, 4, 6]);
        check(CqlType::Inet, "1.2.3.4", &[1, 2, 3, 4]);
    }

    #[test]
    fn wrong_literals_are_refused_with_cassandras_texts() {
        let check = |ty: CqlType, text: &str, expect: &str| {
            assert_eq!(ty.from_string(text), Err(TypeError::marshal(expect)));
        };
        check(CqlType::Int, "x", "Unable to make int from 'x'");
        check(CqlType::Int, "2147483648", "Unable to make int from '2147483648'");
        check(CqlType::Bigint, "1.0", "Unable to make long from '1.0'");
        check(CqlType::Smallint, "40000", "Unable to make short from '40000'");
        check(CqlType::Tinyint, "128", "Unable to make byte from '128'");
        check(CqlType::Varint, "1_0", "unable to make int from '1_0'");
        check(CqlType::Decimal, "a", "unable to make BigDecimal from 'a'");
        check(CqlType::Double, "inf", "Unable to make double from 'inf'");
        check(CqlType::Boolean, "yes", "Unable to make boolean from 'yes'");
        check(CqlType::Blob, "abc", "cannot parse 'abc' as hex bytes");
        check(CqlType::Uuid, "x", "Unable to make UUID from 'x'");
        check(CqlType::Timeuuid, "x", "Unknown timeuuid representation: x");
        check(
            CqlType::Timeuuid,
            "00000000-0000-4000-8000-000000000000",
            "TimeUUID supports only version 1 UUIDs",
        );
        check(CqlType::Empty, "x", "'x' is not empty");
    }

    #[test]
    fn tuple_text_escapes_colons_and_nulls() {
        let tuple = CqlType::tuple([CqlType::Text, CqlType::Int, CqlType::Text]);
        assert_eq!(tuple.from_string("a\\:b:@:\\@"), encode_tuple([Some("a:b"), None, Some("@")]));
        assert!(tuple.from_string("a:1:b:c").is_err());
    }
}
