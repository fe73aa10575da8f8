//! Types of the protocol, and values as CQL literals in both directions.
//!
//! Owns rendering of received bytes (one text per byte string of a type, so that comparing texts
//! compares bytes) and encoding of the literals in `@bind` and `execute` lines.
//! Never depends on the server's own type code.

use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::{Context, Result, anyhow, bail};

use crate::bytes::Cursor;
use crate::client::Bound;

/// A column of a result or of the bound values.
#[derive(Clone, Debug)]
pub struct Column {
    /// Keyspace of the table.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// Name as the server gives it.
    pub name: String,
    /// Type.
    pub kind: Kind,
}

/// A type as the protocol shows it (frozen is not visible there).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are named after the CQL types")]
pub enum Kind {
    Ascii,
    Bigint,
    Blob,
    Boolean,
    Counter,
    Date,
    Decimal,
    Double,
    Duration,
    Empty,
    Float,
    Inet,
    Int,
    Smallint,
    Text,
    Time,
    Timestamp,
    Timeuuid,
    Tinyint,
    Uuid,
    Varint,
    Custom(String),
    List(Box<Kind>),
    Set(Box<Kind>),
    Map(Box<Kind>, Box<Kind>),
    Tuple(Vec<Kind>),
    Udt(String, Vec<(String, Kind)>),
    Vector(Box<Kind>, usize),
}

const SIMPLE: [(&str, &str, Kind); 21] = [
    ("ascii", "AsciiType", Kind::Ascii),
    ("bigint", "LongType", Kind::Bigint),
    ("blob", "BytesType", Kind::Blob),
    ("boolean", "BooleanType", Kind::Boolean),
    ("counter", "CounterColumnType", Kind::Counter),
    ("date", "SimpleDateType", Kind::Date),
    ("decimal", "DecimalType", Kind::Decimal),
    ("double", "DoubleType", Kind::Double),
    ("duration", "DurationType", Kind::Duration),
    ("empty", "EmptyType", Kind::Empty),
    ("float", "FloatType", Kind::Float),
    ("inet", "InetAddressType", Kind::Inet),
    ("int", "Int32Type", Kind::Int),
    ("smallint", "ShortType", Kind::Smallint),
    ("text", "UTF8Type", Kind::Text),
    ("time", "TimeType", Kind::Time),
    ("timestamp", "TimestampType", Kind::Timestamp),
    ("timeuuid", "TimeUUIDType", Kind::Timeuuid),
    ("tinyint", "ByteType", Kind::Tinyint),
    ("uuid", "UUIDType", Kind::Uuid),
    ("varint", "IntegerType", Kind::Varint),
];

impl std::fmt::Display for Kind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((name, _, _)) = SIMPLE.iter().find(|(_, _, kind)| kind == self) {
            return out.write_str(name);
        }
        match self {
            Self::List(item) => write!(out, "list<{item}>"),
            Self::Set(item) => write!(out, "set<{item}>"),
            Self::Map(key, value) => write!(out, "map<{key}, {value}>"),
            Self::Vector(item, length) => write!(out, "vector<{item}, {length}>"),
            Self::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
                write!(out, "tuple<{}>", parts.join(", "))
            }
            Self::Udt(name, fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(field, kind)| format!("{field} {kind}")).collect();
                write!(out, "udt {name}({})", fields.join(", "))
            }
            Self::Custom(class) => write!(out, "'{class}'"),
            _ => out.write_str("unknown"),
        }
    }
}

/// The type that a Java class name of option 0x0000 stands for.
///
/// # Errors
/// The parameters of a vector do not parse.
pub fn parse_marshal_class(class: &str) -> Result<Kind> {
    let short = class.trim().trim_start_matches("org.apache.cassandra.db.marshal.");
    if let Some((_, _, kind)) = SIMPLE.iter().find(|(_, java, _)| *java == short) {
        return Ok(kind.clone());
    }
    if let Some(inner) = short.strip_prefix("VectorType(").and_then(|s| s.strip_suffix(')')) {
        let (item, length) = inner.rsplit_once(',').context("a vector without a length")?;
        return Ok(Kind::Vector(Box::new(parse_marshal_class(item)?), length.trim().parse()?));
    }
    for (prefix, make) in [
        ("ListType(", (|k| Kind::List(Box::new(k))) as fn(Kind) -> Kind),
        ("SetType(", |k| Kind::Set(Box::new(k))),
        ("FrozenType(", |k| k),
    ] {
        if let Some(inner) = short.strip_prefix(prefix).and_then(|s| s.strip_suffix(')')) {
            return Ok(make(parse_marshal_class(inner)?));
        }
    }
    Ok(Kind::Custom(class.to_owned()))
}

/// Serialised length of a type inside a vector, where it is fixed.
fn fixed_length(kind: &Kind) -> Option<usize> {
    match kind {
        Kind::Boolean => Some(1),
        Kind::Int | Kind::Float => Some(4),
        Kind::Bigint | Kind::Double | Kind::Timestamp => Some(8),
        Kind::Uuid | Kind::Timeuuid => Some(16),
        Kind::Vector(item, length) => fixed_length(item).and_then(|n| n.checked_mul(*length)),
        _ => None,
    }
}

/// A value as a literal; null is `null`, and bytes that do not fit the type are shown as such.
#[must_use]
pub fn render(kind: &Kind, bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else { return "null".to_owned() };
    match render_bytes(kind, bytes) {
        Ok(text) => text,
        Err(_) => format!("raw({})", hex(bytes)),
    }
}

fn render_bytes(kind: &Kind, bytes: &[u8]) -> Result<String> {
    let empty_is_text = matches!(kind, Kind::Ascii | Kind::Text | Kind::Blob);
    if bytes.is_empty() && !empty_is_text {
        return Ok("empty".to_owned());
    }
    Ok(match kind {
        Kind::Ascii | Kind::Text => quote(std::str::from_utf8(bytes)?),
        Kind::Blob | Kind::Custom(_) | Kind::Empty => hex(bytes),
        Kind::Boolean => match bytes {
            [0] => "false".to_owned(),
            [1] => "true".to_owned(),
            _ => bail!("not a boolean"),
        },
        Kind::Bigint | Kind::Counter => i64::from_be_bytes(bytes.try_into()?).to_string(),
        Kind::Int => i32::from_be_bytes(bytes.try_into()?).to_string(),
        Kind::Smallint => i16::from_be_bytes(bytes.try_into()?).to_string(),
        Kind::Tinyint => i8::from_be_bytes(bytes.try_into()?).to_string(),
        Kind::Double => format!("{:?}", f64::from_be_bytes(bytes.try_into()?)),
        Kind::Float => format!("{:?}", f32::from_be_bytes(bytes.try_into()?)),
        Kind::Varint => big_to_decimal(bytes),
        Kind::Decimal => {
            let mut cursor = Cursor::new(bytes);
            let scale = cursor.i32()?;
            decimal_text(&big_to_decimal(cursor.rest), scale)
        }
        Kind::Timestamp => timestamp_text(i64::from_be_bytes(bytes.try_into()?)),
        Kind::Date => date_text(i64::from(u32::from_be_bytes(bytes.try_into()?)) - (1 << 31)),
        Kind::Time => time_text(i64::from_be_bytes(bytes.try_into()?)),
        Kind::Duration => duration_text(bytes)?,
        Kind::Uuid | Kind::Timeuuid => uuid_text(bytes)?,
        Kind::Inet => match bytes.len() {
            4 => format!("'{}'", IpAddr::from(<[u8; 4]>::try_from(bytes)?)),
            _ => format!("'{}'", IpAddr::from(<[u8; 16]>::try_from(bytes)?)),
        },
        Kind::List(item) => format!("[{}]", render_items(item, bytes)?.join(", ")),
        Kind::Set(item) => format!("{{{}}}", render_items(item, bytes)?.join(", ")),
        Kind::Map(key, value) => {
            let mut cursor = Cursor::new(bytes);
            let mut parts = Vec::new();
            for _ in 0..cursor.i32()? {
                let key = render(key, cursor.bytes()?);
                parts.push(format!("{key}: {}", render(value, cursor.bytes()?)));
            }
            at_end(&cursor)?;
            format!("{{{}}}", parts.join(", "))
        }
        Kind::Tuple(kinds) => {
            let mut cursor = Cursor::new(bytes);
            let mut parts = Vec::new();
            for kind in kinds {
                if cursor.rest.is_empty() {
                    break;
                }
                parts.push(render(kind, cursor.bytes()?));
            }
            at_end(&cursor)?;
            format!("({})", parts.join(", "))
        }
        Kind::Udt(_, fields) => {
            let mut cursor = Cursor::new(bytes);
            let mut parts = Vec::new();
            for (name, kind) in fields {
                if cursor.rest.is_empty() {
                    break;
                }
                parts.push(format!("{name}: {}", render(kind, cursor.bytes()?)));
            }
            at_end(&cursor)?;
            format!("{{{}}}", parts.join(", "))
        }
        Kind::Vector(item, length) => {
            let mut cursor = Cursor::new(bytes);
            let mut parts = Vec::new();
            for _ in 0..*length {
                let size = match fixed_length(item) {
                    Some(size) => size,
                    None => usize::try_from(read_unsigned_vint(&mut cursor)?)?,
                };
                parts.push(render(item, Some(cursor.take(size)?)));
            }
            at_end(&cursor)?;
            format!("[{}]", parts.join(", "))
        }
    })
}

fn render_items(kind: &Kind, bytes: &[u8]) -> Result<Vec<String>> {
    let mut cursor = Cursor::new(bytes);
    let mut parts = Vec::new();
    for _ in 0..cursor.i32()? {
        parts.push(render(kind, cursor.bytes()?));
    }
    at_end(&cursor)?;
    Ok(parts)
}

fn at_end(cursor: &Cursor<'_>) -> Result<()> {
    if cursor.rest.is_empty() { Ok(()) } else { bail!("bytes after the value") }
}

/// A text literal; control characters and backslashes are escaped and then marked with `E`.
#[must_use]
pub fn quote(text: &str) -> String {
    let plain = text.replace('\'', "''");
    if text.chars().any(|c| c.is_control() || c == '\\') {
        return format!("E'{}'", plain.escape_debug().to_string().replace("\\'", "'"));
    }
    format!("'{plain}'")
}

/// Bytes as a blob literal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::from("0x");
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

fn big_to_decimal(bytes: &[u8]) -> String {
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let mut magnitude: Vec<u8> = bytes.to_vec();
    if negative {
        let mut carry = true;
        for byte in magnitude.iter_mut().rev() {
            let (value, over) = (!*byte).overflowing_add(u8::from(carry));
            *byte = value;
            carry = over;
        }
    }
    let mut digits = Vec::new();
    while magnitude.iter().any(|byte| *byte != 0) {
        let mut rest = 0_u32;
        for byte in &mut magnitude {
            let value = rest * 256 + u32::from(*byte);
            *byte = u8::try_from(value / 10).unwrap_or(0);
            rest = value % 10;
        }
        digits.push(char::from_digit(rest, 10).unwrap_or('0'));
    }
    if digits.is_empty() {
        digits.push('0');
    }
    if negative {
        digits.push('-');
    }
    digits.iter().rev().collect()
}

fn decimal_text(unscaled: &str, scale: i32) -> String {
    if !(0..=60).contains(&scale) {
        return format!("{unscaled}E{}", i64::from(scale).saturating_neg());
    }
    let (sign, digits) = match unscaled.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", unscaled),
    };
    let scale = usize::try_from(scale).unwrap_or(0);
    let width = scale.saturating_add(1);
    let digits = format!("{digits:0>width$}");
    let (whole, part) = digits.split_at(digits.len().saturating_sub(scale));
    if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

/// Year, month and day of a day number since 1970 (proleptic Gregorian calendar).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn date_text(days: i64) -> String {
    let (year, month, day) = civil(days);
    format!("'{year:04}-{month:02}-{day:02}'")
}

fn timestamp_text(millis: i64) -> String {
    let (year, month, day) = civil(millis.div_euclid(86_400_000));
    let rest = millis.rem_euclid(86_400_000);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1000 % 60, rest % 1000);
    format!("'{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milli:03}+0000'")
}

fn time_text(nanos: i64) -> String {
    let seconds = nanos.div_euclid(1_000_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("'{hour:02}:{minute:02}:{second:02}.{:09}'", nanos.rem_euclid(1_000_000_000))
}

fn read_unsigned_vint(cursor: &mut Cursor<'_>) -> Result<u64> {
    let first = cursor.take(1)?[0];
    let extra = usize::try_from(first.leading_ones())?;
    let mut value = if extra >= 8 { 0 } else { u64::from(first) & (0xff >> extra) };
    for byte in cursor.take(extra)? {
        value = (value << 8) | u64::from(*byte);
    }
    Ok(value)
}

fn duration_text(bytes: &[u8]) -> Result<String> {
    let mut cursor = Cursor::new(bytes);
    let mut parts = Vec::new();
    for unit in ["mo", "d", "ns"] {
        let raw = read_unsigned_vint(&mut cursor)?;
        let value = (raw >> 1) as i64 ^ -((raw & 1) as i64);
        parts.push(format!("{value}{unit}"));
    }
    at_end(&cursor)?;
    Ok(parts.join(" "))
}

fn uuid_text(bytes: &[u8]) -> Result<String> {
    let bytes: [u8; 16] = bytes.try_into()?;
    let digits = hex(&bytes);
    let digits = digits.trim_start_matches("0x");
    let at = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    Ok([at(0, 8), at(8, 12), at(12, 16), at(16, 20), at(20, 32)].join("-"))
}

// ------------------------------------------------------------------ encoding

/// Splits `1, 'a', [1, 2], unset` and encodes each literal for its bound column.
///
/// # Errors
/// The text is not a list of literals, their count is not that of the columns, or a literal does
/// not fit its type. `raw(0x…)` fits every type; `null` and `unset` too. Of these there may be more or fewer
/// than columns.
pub fn encode_all(columns: &[Column], text: &str) -> Result<Vec<Bound>> {
    let parts = split(text)?;
    let is_raw = |part: &String| part.starts_with("raw(") || part == "null" || part == "unset";
    if parts.len() != columns.len() && !parts.iter().all(is_raw) {
        bail!("{} values for {} bound columns", parts.len(), columns.len());
    }
    let mut values = Vec::new();
    for (index, part) in parts.into_iter().enumerate() {
        let kind = columns.get(index).map_or(&Kind::Blob, |column| &column.kind);
        values.push(match part.as_str() {
            "null" => Bound::Null,
            "unset" => Bound::Unset,
            literal => {
                Bound::Bytes(encode(kind, literal).with_context(|| format!("value {literal}"))?)
            }
        });
    }
    Ok(values)
}

/// Splits at the commas that stand outside quotes and brackets.
fn split(text: &str) -> Result<Vec<String>> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut depth = 0_usize;
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '\'' => quoted = !quoted,
            '[' | '{' | '(' if !quoted => depth += 1,
            ']' | '}' | ')' if !quoted => {
                depth = depth.checked_sub(1).context("a bracket too many")?;
            }
            ',' if !quoted && depth == 0 => {
                parts.push(part.trim().to_owned());
                part.clear();
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    if quoted || depth != 0 {
        bail!("an open quote or bracket in {text}");
    }
    if !part.trim().is_empty() {
        parts.push(part.trim().to_owned());
    }
    Ok(parts)
}

fn inside(literal: &str, open: char, close: char) -> Result<&str> {
    literal
        .strip_prefix(open)
        .and_then(|rest| rest.strip_suffix(close))
        .ok_or_else(|| anyhow!("{literal} is not in {open}{close}"))
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let digits = text.strip_prefix("0x").context("0x is missing")?;
    let mut out = Vec::new();
    for pair in digits.as_bytes().chunks(2) {
        out.push(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    }
    Ok(out)
}

fn minimal(value: i128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let mut start = 0;
    while start < 15 {
        let next_negative = bytes[start + 1] & 0x80 != 0;
        if (bytes[start] == 0 && !next_negative) || (bytes[start] == 0xff && next_negative) {
            start += 1;
        } else {
            break;
        }
    }
    bytes[start..].to_vec()
}

fn put_value(out: &mut Vec<u8>, kind: &Kind, literal: &str) -> Result<()> {
    if literal == "null" {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
    } else {
        let bytes = encode(kind, literal)?;
        out.extend_from_slice(&i32::try_from(bytes.len())?.to_be_bytes());
        out.extend_from_slice(&bytes);
    }
    Ok(())
}

fn encode(kind: &Kind, literal: &str) -> Result<Vec<u8>> {
    if let Some(raw) = literal.strip_prefix("raw(").and_then(|rest| rest.strip_suffix(')')) {
        return unhex(raw);
    }
    let mut out = Vec::new();
    match kind {
        Kind::Ascii | Kind::Text => {
            out.extend_from_slice(inside(literal, '\'', '\'')?.replace("''", "'").as_bytes());
        }
        Kind::Blob | Kind::Custom(_) => out = unhex(literal)?,
        Kind::Boolean => out.push(u8::from(literal.parse::<bool>()?)),
        Kind::Bigint | Kind::Counter | Kind::Timestamp | Kind::Time => {
            out.extend_from_slice(&literal.parse::<i64>()?.to_be_bytes());
        }
        Kind::Int => out.extend_from_slice(&literal.parse::<i32>()?.to_be_bytes()),
        Kind::Smallint => out.extend_from_slice(&literal.parse::<i16>()?.to_be_bytes()),
        Kind::Tinyint => out.extend_from_slice(&literal.parse::<i8>()?.to_be_bytes()),
        Kind::Date => {
            let days = literal.parse::<i64>()? + (1 << 31);
            out.extend_from_slice(&u32::try_from(days)?.to_be_bytes());
        }
        Kind::Double => out.extend_from_slice(&literal.parse::<f64>()?.to_be_bytes()),
        Kind::Float => out.extend_from_slice(&literal.parse::<f32>()?.to_be_bytes()),
        Kind::Varint => out = minimal(literal.parse()?),
        Kind::Decimal => {
            let (whole, part) = literal.split_once('.').unwrap_or((literal, ""));
            out.extend_from_slice(&i32::try_from(part.len())?.to_be_bytes());
            out.extend_from_slice(&minimal(format!("{whole}{part}").parse()?));
        }
        Kind::Uuid | Kind::Timeuuid => {
            out = unhex(&format!("0x{}", literal.replace('-', "")))?;
        }
        Kind::Inet => match inside(literal, '\'', '\'')?.parse::<IpAddr>()? {
            IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
        },
        Kind::Empty => {}
        Kind::Duration => bail!("write a duration as raw(0x…)"),
        Kind::List(item) | Kind::Set(item) => {
            let (open, close) = if matches!(kind, Kind::List(_)) { ('[', ']') } else { ('{', '}') };
            let parts = split(inside(literal, open, close)?)?;
            out.extend_from_slice(&i32::try_from(parts.len())?.to_be_bytes());
            for part in parts {
                put_value(&mut out, item, &part)?;
            }
        }
        Kind::Map(key, value) => {
            let parts = split(inside(literal, '{', '}')?)?;
            out.extend_from_slice(&i32::try_from(parts.len())?.to_be_bytes());
            for part in parts {
                let (k, v) = part.split_once(':').context("a map entry without a colon")?;
                put_value(&mut out, key, k.trim())?;
                put_value(&mut out, value, v.trim())?;
            }
        }
        Kind::Tuple(kinds) => {
            for (kind, part) in kinds.iter().zip(split(inside(literal, '(', ')')?)?) {
                put_value(&mut out, kind, &part)?;
            }
        }
        Kind::Udt(_, fields) => {
            let parts = split(inside(literal, '{', '}')?)?;
            for (name, kind) in fields {
                let prefix = format!("{name}:");
                let literal = parts.iter().find_map(|part| part.strip_prefix(&prefix));
                put_value(&mut out, kind, literal.map_or("null", str::trim))?;
            }
        }
        Kind::Vector(item, _) => {
            for part in split(inside(literal, '[', ']')?)? {
                let bytes = encode(item, &part)?;
                if fixed_length(item).is_none() {
                    out.push(
                        u8::try_from(bytes.len()).ok().filter(|n| *n < 128).context("too long")?,
                    );
                }
                out.extend_from_slice(&bytes);
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(kind: &Kind, literal: &str) {
        let bytes = encode(kind, literal).expect("encodes");
        assert_eq!(render(kind, Some(&bytes)), literal);
    }

    #[test]
    fn literals_round_trip_through_their_bytes() {
        round_trip(&Kind::Int, "-5");
        round_trip(&Kind::Text, "'it''s'");
        round_trip(&Kind::Varint, "-170141183460469231731687303715884105728");
        round_trip(&Kind::Varint, "128");
        round_trip(&Kind::Decimal, "-0.05");
        round_trip(&Kind::Decimal, "12");
        round_trip(&Kind::Double, "1.5");
        round_trip(&Kind::Uuid, "f79326be-2d7b-4996-b881-f9f0d571ffe0");
        round_trip(&Kind::Inet, "'2001:db8::1'");
        round_trip(&Kind::List(Box::new(Kind::Int)), "[1, null, 3]");
        round_trip(&Kind::Map(Box::new(Kind::Text), Box::new(Kind::Int)), "{'a': 1, 'b': 2}");
        round_trip(&Kind::Tuple(vec![Kind::Int, Kind::Text]), "(1, 'a, b')");
        round_trip(&Kind::Vector(Box::new(Kind::Float), 2), "[1.0, -2.5]");
        round_trip(&Kind::Vector(Box::new(Kind::Text), 2), "['a', 'bc']");
    }

    #[test]
    fn calendar_texts_are_those_of_known_moments() {
        assert_eq!(timestamp_text(0), "'1970-01-01 00:00:00.000+0000'");
        assert_eq!(timestamp_text(-1), "'1969-12-31 23:59:59.999+0000'");
        assert_eq!(timestamp_text(1_709_210_096_789), "'2024-02-29 12:34:56.789+0000'");
        assert_eq!(date_text(-719_528), "'0000-01-01'");
        assert_eq!(time_text(86_399_999_999_999), "'23:59:59.999999999'");
    }

    #[test]
    fn bytes_that_do_not_fit_the_type_are_shown_raw() {
        assert_eq!(render(&Kind::Int, Some(&[1, 2])), "raw(0x0102)");
        assert_eq!(render(&Kind::Int, Some(&[])), "empty");
        assert_eq!(render(&Kind::Int, None), "null");
        assert_eq!(
            render(&Kind::List(Box::new(Kind::Int)), Some(&[0, 0, 0, 9])),
            "raw(0x00000009)"
        );
    }

    #[test]
    fn vector_class_names_are_understood() {
        let class = "org.apache.cassandra.db.marshal.VectorType(\
                     org.apache.cassandra.db.marshal.FloatType , 3)";
        let kind = parse_marshal_class(class).expect("parses");
        assert_eq!(kind.to_string(), "vector<float, 3>");
    }
}
