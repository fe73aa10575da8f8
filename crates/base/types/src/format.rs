//! Bytes of a value to text: CQL literals and JSON.
//!
//! Both never fail: bytes that are not a value of the type are shown as hex, so that tools can print
//! damaged data.

use crate::custom::CustomKind;
use crate::duration::Duration;
use crate::name::quote_identifier;
use crate::number::{Decimal, check_length, java_f32, java_f64, varint_from_bytes};
use crate::validate::DEPTH_MAX;
use crate::wire::{CollectionKind, Elements, Fields, VectorElements};
use crate::{CqlType, inet, marshal, temporal, timeuuid};

impl CqlType {
    /// The value as CQL text that reads back (`toCQLString`): `'it''s'`, `0xcafe`, `[1, 2]`,
    /// `{a: 1, b: null}`. The empty value of a type other than text and blob is `null`.
    pub fn format_cql_literal(&self, bytes: &[u8]) -> String {
        let mut out = String::new();
        self.write_literal(bytes, &mut out, 0);
        out
    }

    /// The value as text without quotes around strings (`toCQLLiteralNoQuote`): `CAST(x AS text)`.
    /// Quotes inside text stay doubled, as in Cassandra.
    pub fn format_unquoted(&self, bytes: &[u8]) -> String {
        match self.simple_text(bytes) {
            Some(text) if self.is_text() => text.replace('\'', "''"),
            Some(text) => text,
            None => self.format_cql_literal(bytes),
        }
    }

    /// The value as plain text (`AbstractType.getString`), as file tools print keys: hex for
    /// blobs, collections and vectors, fields joined with `:` for tuples.
    pub fn format_plain(&self, bytes: &[u8]) -> String {
        self.plain(bytes, 0)
    }

    /// The value as JSON (`toJSONString`), as SELECT JSON, `toJson` and sstabledump have it.
    pub fn to_json(&self, bytes: &[u8]) -> String {
        let mut out = String::new();
        self.write_json(bytes, &mut out, JsonAt { form: JsonForm::Shown, depth: 0 });
        out
    }

    /// The value as JSON from which `INSERT JSON` makes the same value again. Where
    /// [`CqlType::to_json`] says less than there is, at any depth, this has a string that is read
    /// back: decimals (a JSON number goes through a double), `NaN` and infinities (`null` there),
    /// timestamps outside the years 1 to 9999 (milliseconds), the duration of nothing (`0s`).
    pub fn to_exact_json(&self, bytes: &[u8]) -> String {
        let mut out = String::new();
        self.write_json(bytes, &mut out, JsonAt { form: JsonForm::Exact, depth: 0 });
        out
    }

    fn is_text(&self) -> bool {
        matches!(self, CqlType::Text | CqlType::Ascii)
    }

    /// Text of a non-empty value of a simple type, without quotes. `None`: not a simple type, or not
    /// a value.
    fn simple_text(&self, bytes: &[u8]) -> Option<String> {
        let signed8 = || bytes.try_into().ok().map(i64::from_be_bytes);
        Some(match self {
            CqlType::Ascii | CqlType::Text => String::from_utf8_lossy(bytes).into_owned(),
            CqlType::Blob => {
                let mut out = "0x".to_owned();
                marshal::push_hex(&mut out, bytes);
                out
            }
            CqlType::Boolean => match bytes {
                [0] => "false".to_owned(),
                [_] => "true".to_owned(),
                _ => return None,
            },
            CqlType::Tinyint => i8::from_be_bytes(bytes.try_into().ok()?).to_string(),
            CqlType::Smallint => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
            CqlType::Int => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
            CqlType::Bigint | CqlType::Counter => signed8()?.to_string(),
            CqlType::Varint if bytes.is_empty() => return None,
            // Shown by its bytes: the digits of a number of megabytes take minutes.
            CqlType::Varint | CqlType::Decimal if check_length(self, bytes).is_err() => {
                return None;
            }
            CqlType::Varint => varint_from_bytes(bytes).to_string(),
            CqlType::Decimal => Decimal::from_bytes(bytes)?.to_string(),
            CqlType::Float => java_f32(f32::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Double => java_f64(f64::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Date => temporal::format_date(u32::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Time => temporal::format_time(signed8()?),
            CqlType::Timestamp => temporal::format_timestamp(signed8()?),
            CqlType::Duration => Duration::from_bytes(bytes).ok()?.to_string(),
            CqlType::Inet => inet::format_inet(bytes)?,
            CqlType::Uuid | CqlType::Timeuuid => timeuuid::format_uuid(bytes.try_into().ok()?),
            CqlType::Empty
            | CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Tuple(_)
            | CqlType::Udt(_)
            | CqlType::Vector { .. } => return None,
            CqlType::Custom(custom) => match custom.kind() {
                CustomKind::LexicalUuid => timeuuid::format_uuid(bytes.try_into().ok()?),
                _ => return None,
            },
        })
    }

    fn is_quoted(&self) -> bool {
        matches!(
            self,
            CqlType::Ascii
                | CqlType::Text
                | CqlType::Inet
                | CqlType::Date
                | CqlType::Time
                | CqlType::Timestamp
        )
    }

    fn write_literal(&self, bytes: &[u8], out: &mut String, depth: u32) {
        let start = out.len();
        if depth > DEPTH_MAX || self.try_write_literal(bytes, out, depth).is_none() {
            out.truncate(start);
            out.push_str("0x");
            marshal::push_hex(out, bytes);
        }
    }

    /// `None`: the bytes are not a value.
    fn try_write_literal(&self, bytes: &[u8], out: &mut String, depth: u32) -> Option<()> {
        let depth = depth.saturating_add(1);
        if let Some(text) = self.simple_text(bytes) {
            if self.is_quoted() {
                out.push('\'');
                out.push_str(&text.replace('\'', "''"));
                out.push('\'');
            } else {
                out.push_str(&text);
            }
            return Some(());
        }
        match self {
            CqlType::List { element, .. } => write_elements(bytes, out, OF_LIST, |item, out| {
                element.write_literal(item, out, depth);
            }),
            CqlType::Set { element, .. } => write_elements(bytes, out, OF_SET, |item, out| {
                element.write_literal(item, out, depth);
            }),
            CqlType::Map { key, value, .. } => {
                let mut items = Elements::new(bytes, CollectionKind::Map).ok()?;
                out.push('{');
                let mut first = true;
                while let Some(item) = items.next() {
                    let (k, v) = (item.ok()??, items.next()?.ok()??);
                    separate(out, &mut first);
                    key.write_literal(k, out, depth);
                    out.push_str(": ");
                    value.write_literal(v, out, depth);
                }
                out.push('}');
                Some(())
            }
            CqlType::Tuple(types) => {
                out.push('(');
                let types = types.iter().map(|ty| (ty, None));
                write_fields(bytes, out, types, |ty, _, field, out| {
                    ty.write_literal(field, out, depth);
                })?;
                out.push(')');
                Some(())
            }
            CqlType::Udt(udt) => {
                out.push('{');
                let types = udt.fields.iter().map(|(name, ty)| (ty, Some(quote_identifier(name))));
                write_fields(bytes, out, types, |ty, _, field, out| {
                    ty.write_literal(field, out, depth);
                })?;
                out.push('}');
                Some(())
            }
            CqlType::Vector { element, dimension } => {
                write_vector(bytes, out, element, *dimension, |item, out| {
                    element.write_literal(item, out, depth);
                })
            }
            CqlType::Custom(custom) if !matches!(custom.kind(), CustomKind::LexicalUuid) => None,
            // The empty value of any other type.
            _ if bytes.is_empty() => {
                out.push_str("null");
                Some(())
            }
            _ => None,
        }
    }

    fn plain(&self, bytes: &[u8], depth: u32) -> String {
        let hex = || {
            let mut out = String::new();
            marshal::push_hex(&mut out, bytes);
            out
        };
        let types: Vec<&CqlType> = match self {
            CqlType::Blob | CqlType::Counter => return hex(),
            CqlType::Tuple(types) => types.iter().collect(),
            CqlType::Udt(udt) => udt.fields.iter().map(|(_, t)| t).collect(),
            _ if bytes.is_empty() => return String::new(),
            CqlType::Custom(custom) if custom.is_composite() && depth <= DEPTH_MAX => {
                let inner = depth.saturating_add(1);
                let text = custom.plain(bytes, |ty, value| ty.plain(value, inner));
                return text.unwrap_or_else(hex);
            }
            _ => return self.simple_text(bytes).unwrap_or_else(hex),
        };
        if depth > DEPTH_MAX {
            return hex();
        }
        let mut out = String::new();
        let mut fields = Fields::new(bytes, types.len());
        for (i, ty) in types.into_iter().enumerate() {
            if fields.rest().is_empty() {
                break;
            }
            if i > 0 {
                out.push(':');
            }
            match fields.next() {
                Some(Ok(Some(field))) => {
                    let text = ty.plain(field, depth.saturating_add(1));
                    out.push_str(&text.replace(':', "\\:").replace('@', "\\@"));
                }
                Some(Ok(None)) => out.push('@'),
                Some(Err(_)) | None => return hex(),
            }
        }
        out
    }

    fn write_json(&self, bytes: &[u8], out: &mut String, at: JsonAt) {
        let start = out.len();
        if at.depth > DEPTH_MAX || self.try_write_json(bytes, out, at).is_none() {
            out.truncate(start);
            out.push_str("\"0x");
            marshal::push_hex(out, bytes);
            out.push('"');
        }
    }

    fn try_write_json(&self, bytes: &[u8], out: &mut String, at: JsonAt) -> Option<()> {
        let inner = JsonAt { depth: at.depth.saturating_add(1), ..at };
        if let Some(text) = (at.form == JsonForm::Exact).then(|| self.exact_text(bytes)).flatten() {
            push_json_string(out, &text);
            return Some(());
        }
        match self {
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                write_elements(bytes, out, OF_LIST, |item, out| {
                    element.write_json(item, out, inner);
                })
            }
            CqlType::Map { key, value, .. } => {
                let mut items = Elements::new(bytes, CollectionKind::Map).ok()?;
                out.push('{');
                let mut first = true;
                while let Some(item) = items.next() {
                    let (k, v) = (item.ok()??, items.next()?.ok()??);
                    separate(out, &mut first);
                    // A JSON name is a string: other forms are put into one.
                    let mut name = String::new();
                    key.write_json(k, &mut name, inner);
                    if name.starts_with('"') {
                        out.push_str(&name);
                    } else {
                        push_json_string(out, &name);
                    }
                    out.push_str(": ");
                    value.write_json(v, out, inner);
                }
                out.push('}');
                Some(())
            }
            CqlType::Tuple(types) => {
                out.push('[');
                write_json_fields(bytes, out, types.iter().map(|ty| (ty, None)), inner)?;
                out.push(']');
                Some(())
            }
            CqlType::Udt(udt) => {
                out.push('{');
                let types = udt.fields.iter().map(|(name, ty)| (ty, Some(name.as_str())));
                write_json_fields(bytes, out, types, inner)?;
                out.push('}');
                Some(())
            }
            CqlType::Vector { element, dimension } => {
                write_vector(bytes, out, element, *dimension, |item, out| {
                    element.write_json(item, out, inner);
                })
            }
            CqlType::Custom(custom) if !matches!(custom.kind(), CustomKind::LexicalUuid) => None,
            // Java has no UUID for it.
            CqlType::Custom(_) if bytes.is_empty() => {
                out.push_str("null");
                Some(())
            }
            CqlType::Empty => bytes.is_empty().then(|| out.push_str("\"\"")),
            _ if bytes.is_empty() && !matches!(self, CqlType::Blob) => {
                out.push_str("\"\"");
                Some(())
            }
            CqlType::Float | CqlType::Double => {
                let text = self.simple_text(bytes)?;
                // JSON has no NaN and no infinities.
                let finite = !text.ends_with("NaN") && !text.ends_with("Infinity");
                out.push_str(if finite { &text } else { "null" });
                Some(())
            }
            CqlType::Timestamp => {
                let millis = i64::from_be_bytes(bytes.try_into().ok()?);
                push_json_string(out, &temporal::format_timestamp_json(millis));
                Some(())
            }
            CqlType::Boolean
            | CqlType::Tinyint
            | CqlType::Smallint
            | CqlType::Int
            | CqlType::Bigint
            | CqlType::Counter
            | CqlType::Varint
            | CqlType::Decimal => {
                out.push_str(&self.simple_text(bytes)?);
                Some(())
            }
            _ => {
                push_json_string(out, &self.simple_text(bytes)?);
                Some(())
            }
        }
    }

    /// Returns the text that only [`JsonForm::Exact`] writes as a string, or writes differently.
    /// `None`: the value is written as it is shown.
    fn exact_text(&self, bytes: &[u8]) -> Option<String> {
        match self {
            CqlType::Decimal => self.simple_text(bytes),
            CqlType::Float | CqlType::Double => {
                let text = self.simple_text(bytes)?;
                (text.ends_with("NaN") || text.ends_with("Infinity")).then_some(text)
            }
            CqlType::Timestamp => {
                let millis = i64::from_be_bytes(bytes.try_into().ok()?);
                (!temporal::is_four_digit_year(millis)).then(|| millis.to_string())
            }
            CqlType::Duration => {
                let text = self.simple_text(bytes)?;
                text.is_empty().then(|| "0s".to_owned())
            }
            _ => None,
        }
    }
}

/// Consumer of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonForm {
    /// A client: the form that Cassandra shows.
    Shown,
    /// To be read back.
    Exact,
}

/// Where a value of JSON stands.
#[derive(Clone, Copy)]
struct JsonAt {
    form: JsonForm,
    /// Values around it.
    depth: u32,
}

/// Brackets around elements.
#[derive(Clone, Copy)]
struct Brackets {
    open: char,
    close: char,
}

const OF_LIST: Brackets = Brackets { open: '[', close: ']' };
const OF_SET: Brackets = Brackets { open: '{', close: '}' };

fn separate(out: &mut String, first: &mut bool) {
    if !std::mem::take(first) {
        out.push_str(", ");
    }
}

fn write_elements(
    bytes: &[u8],
    out: &mut String,
    brackets: Brackets,
    mut write: impl FnMut(&[u8], &mut String),
) -> Option<()> {
    out.push(brackets.open);
    let mut first = true;
    for item in Elements::new(bytes, CollectionKind::List).ok()? {
        let item = item.ok()?;
        separate(out, &mut first);
        match item {
            Some(item) => write(item, out),
            None => out.push_str("null"),
        }
    }
    out.push(brackets.close);
    Some(())
}

fn write_vector(
    bytes: &[u8],
    out: &mut String,
    element: &CqlType,
    dimension: u32,
    mut write: impl FnMut(&[u8], &mut String),
) -> Option<()> {
    if bytes.is_empty() {
        out.push_str("null");
        return Some(());
    }
    if element.fixed_len() == Some(0) {
        return None;
    }
    let mut items = VectorElements::new(bytes, element, dimension);
    out.push('[');
    let mut first = true;
    for item in &mut items {
        separate(out, &mut first);
        write(item.ok()?, out);
    }
    out.push(']');
    items.rest().is_empty().then_some(())
}

/// Fields up to the end of the bytes; those missing are left out, as in CQL literals.
fn write_fields<'t>(
    bytes: &[u8],
    out: &mut String,
    types: impl ExactSizeIterator<Item = (&'t CqlType, Option<String>)>,
    mut write: impl FnMut(&CqlType, usize, &[u8], &mut String),
) -> Option<()> {
    let mut fields = Fields::new(bytes, types.len());
    let mut first = true;
    for (i, (ty, name)) in types.enumerate() {
        if fields.rest().is_empty() {
            break;
        }
        let field = fields.next()?.ok()?;
        separate(out, &mut first);
        if let Some(name) = name {
            out.push_str(&name);
            out.push_str(": ");
        }
        match field {
            Some(field) => write(ty, i, field, out),
            None => out.push_str("null"),
        }
    }
    fields.rest().is_empty().then_some(())
}

/// All fields; those missing are null, as in JSON.
fn write_json_fields<'t>(
    bytes: &[u8],
    out: &mut String,
    types: impl ExactSizeIterator<Item = (&'t CqlType, Option<&'t str>)>,
    at: JsonAt,
) -> Option<()> {
    let mut fields = Fields::new(bytes, types.len());
    let mut first = true;
    for (ty, name) in types {
        let field = fields.next()?.ok()?;
        separate(out, &mut first);
        if let Some(name) = name {
            // A name with upper case letters keeps its CQL quotes inside the JSON name.
            if name.chars().any(char::is_uppercase) {
                push_json_string(out, &format!("\"{name}\""));
            } else {
                push_json_string(out, name);
            }
            out.push_str(": ");
        }
        match field {
            Some(field) => ty.write_json(field, out, at),
            None => out.push_str("null"),
        }
    }
    fields.rest().is_empty().then_some(())
}

/// Appends a JSON string: quotes, backslash and control characters escaped as Jackson does.
pub fn push_json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UdtType;
    use crate::wire::{encode_collection, encode_map, encode_tuple, encode_vector};
    use std::sync::Arc;

    #[test]
    fn simple_values_have_cassandras_literal_and_json() {
        let check = |ty: CqlType, text: &str, literal: &str, json: &str| {
            let bytes = ty.from_string(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(ty.format_cql_literal(&bytes), literal);
            assert_eq!(ty.to_json(&bytes), json);
        };
        check(
            CqlType::Text,
            "it's \"x\"\n\u{1}é",
            "'it''s \"x\"\n\u{1}é'",
            "\"it's \\\"x\\\"\\n\\u0001é\"",
        );
        check(CqlType::Text, "", "''", "\"\"");
        check(CqlType::Blob, "cafe", "0xcafe", "\"0xcafe\"");
        check(CqlType::Blob, "", "0x", "\"0x\"");
        check(CqlType::Int, "-5", "-5", "-5");
        check(CqlType::Int, "", "null", "\"\"");
        check(CqlType::Boolean, "true", "true", "true");
        check(CqlType::Double, "1e10", "1.0E10", "1.0E10");
        check(CqlType::Double, "NaN", "NaN", "null");
        check(CqlType::Float, "-Infinity", "-Infinity", "null");
        check(CqlType::Decimal, "1.50", "1.50", "1.50");
        check(CqlType::Varint, "-129", "-129", "-129");
        check(CqlType::Date, "2024-02-29", "'2024-02-29'", "\"2024-02-29\"");
        check(CqlType::Time, "1:2:3", "'01:02:03.000000000'", "\"01:02:03.000000000\"");
        check(
            CqlType::Timestamp,
            "0",
            "'1970-01-01T00:00:00.000Z'",
            "\"1970-01-01 00:00:00.000Z\"",
        );
        check(CqlType::Duration, "1y3ms", "1y3ms", "\"1y3ms\"");
        check(CqlType::Inet, "::1", "'0:0:0:0:0:0:0:1'", "\"0:0:0:0:0:0:0:1\"");
        let id = "c4fb3e00-2f4a-11e0-8080-808080808080";
        check(CqlType::Timeuuid, id, id, &format!("\"{id}\""));
    }

    #[test]
    fn exact_json_says_what_the_shown_one_leaves_out_at_any_depth() {
        let check = |ty: CqlType, text: &str, json: &str| {
            let bytes = ty.from_string(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(ty.to_exact_json(&bytes), json);
            // Twice inside others: as the key of a map, and in a tuple.
            let tuple = CqlType::tuple([ty.clone(), CqlType::Int]);
            let inner = encode_tuple([Some(bytes.as_slice()), None]).expect("small");
            assert_eq!(tuple.to_exact_json(&inner), format!("[{json}, null]"));
            let map = CqlType::map(ty.clone(), tuple, true);
            let bytes = encode_map([(bytes.as_slice(), inner.as_slice())]).expect("small");
            let name = if json.starts_with('"') { json.to_owned() } else { format!("\"{json}\"") };
            assert_eq!(map.to_exact_json(&bytes), format!("{{{name}: [{json}, null]}}"));
        };
        check(CqlType::Decimal, "1.50", "\"1.50\"");
        check(CqlType::Decimal, "1E+400", "\"1E+400\"");
        check(CqlType::Decimal, "", "\"\"");
        check(CqlType::Double, "NaN", "\"NaN\"");
        check(CqlType::Float, "-Infinity", "\"-Infinity\"");
        check(CqlType::Double, "1.5", "1.5");
        check(CqlType::Duration, "0s", "\"0s\"");
        check(CqlType::Duration, "1d", "\"1d\"");
        check(CqlType::Int, "-5", "-5");
        // The last millisecond of the year 9999 and the first of the year 1, and those beyond.
        let last = "9999-12-31 23:59:59.999Z";
        check(CqlType::Timestamp, "253402300799999", &format!("\"{last}\""));
        check(CqlType::Timestamp, "253402300800000", "\"253402300800000\"");
        check(CqlType::Timestamp, "-62135596800000", "\"0001-01-01 00:00:00.000Z\"");
        check(CqlType::Timestamp, "-62135596800001", "\"-62135596800001\"");
        let vector = CqlType::vector(CqlType::Float, 2);
        let bytes = encode_vector(&CqlType::Float, 2, [f32::NAN, 1.0].map(f32::to_be_bytes));
        assert_eq!(vector.to_exact_json(&bytes.expect("small")), "[\"NaN\", 1.0]");
    }

    #[test]
    fn nested_values_have_cassandras_literal_and_json() {
        let udt = CqlType::Udt(Arc::new(UdtType {
            keyspace: "k".into(),
            name: "t".into(),
            fields: vec![
                ("a".to_owned(), CqlType::Int),
                ("Zip".to_owned(), CqlType::Text),
                ("c".to_owned(), CqlType::Int),
            ],
            frozen: true,
        }));
        let one = 1i32.to_be_bytes();
        let check =
            |ty: &CqlType, bytes: Result<Vec<u8>, crate::TypeError>, literal: &str, json: &str| {
                let bytes = bytes.expect("small");
                assert_eq!(ty.validate(&bytes), Ok(()));
                assert_eq!(ty.format_cql_literal(&bytes), literal);
                assert_eq!(ty.to_json(&bytes), json);
            };
        check(
            &udt,
            encode_tuple([Some(one.as_slice()), Some(b"x")]),
            "{a: 1, \"Zip\": 'x'}",
            "{\"a\": 1, \"\\\"Zip\\\"\": \"x\", \"c\": null}",
        );
        check(
            &CqlType::tuple([CqlType::Int, CqlType::Text]),
            encode_tuple([None, Some(b"x")]),
            "(null, 'x')",
            "[null, \"x\"]",
        );
        check(
            &CqlType::list(CqlType::Text, true),
            encode_collection(["a", "b"]),
            "['a', 'b']",
            "[\"a\", \"b\"]",
        );
        check(&CqlType::set(CqlType::Int, true), encode_collection([one]), "{1}", "[1]");
        check(
            &CqlType::map(CqlType::Int, CqlType::Text, true),
            encode_map([(one, "x")]),
            "{1: 'x'}",
            "{\"1\": \"x\"}",
        );
        check(
            &CqlType::vector(CqlType::Float, 2),
            encode_vector(&CqlType::Float, 2, [1f32.to_be_bytes(), 2.5f32.to_be_bytes()]),
            "[1.0, 2.5]",
            "[1.0, 2.5]",
        );
    }

    #[test]
    fn bytes_that_are_not_a_value_print_as_hex() {
        assert_eq!(CqlType::Int.format_cql_literal(&[1]), "0x01");
        assert_eq!(CqlType::Int.to_json(&[1]), "\"0x01\"");
        assert_eq!(
            CqlType::list(CqlType::Int, true).format_cql_literal(&[0, 0, 0, 9]),
            "0x00000009"
        );
    }

    #[test]
    fn plain_text_of_tuples_reads_back() {
        let tuple = CqlType::tuple([CqlType::Text, CqlType::Int, CqlType::Text]);
        let bytes = encode_tuple([Some("a:b"), None, Some("@")]).expect("small");
        assert_eq!(tuple.format_plain(&bytes), "a\\:b:@:\\@");
        assert_eq!(tuple.from_string(&tuple.format_plain(&bytes)), Ok(bytes));
    }
}
