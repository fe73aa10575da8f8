//! Fields of CSV to values.
//!
//! Owns: the text of each type as COPY FROM accepts it: separators of numbers, words for booleans,
//! formats of times, collections in brackets. Never: rows.
//!
//! Source: `ImportConversion` of cqlsh 6.2 (`copyutil.py`).

use types::wire::{encode_collection, encode_map, encode_tuple, encode_vector};
use types::{CqlType, Decimal, number, temporal};

use crate::copy::options::CopyOptions;
use crate::failure::python_repr;
use crate::time;

/// How texts become values.
#[derive(Clone, Debug)]
pub(crate) struct Conversion {
    /// The text that is null.
    pub(crate) null: String,
    pub(crate) decimal_separator: String,
    pub(crate) thousands_separator: String,
    /// The word for true, in lower case; any other is false.
    pub(crate) true_word: String,
    /// strptime format of timestamps that is tried first.
    pub(crate) timestamp_format: String,
}

impl Conversion {
    /// Builds it from a command's options.
    pub(crate) fn of(options: &CopyOptions) -> Conversion {
        Conversion {
            null: options.null.clone(),
            decimal_separator: options.decimal_separator.clone(),
            thousands_separator: options.thousands_separator.clone(),
            true_word: options.booleans.0.to_lowercase(),
            timestamp_format: options.timestamp_format.clone(),
        }
    }

    /// Appends the value of a field of a record. False is null.
    ///
    /// # Errors
    /// The text that COPY prints for it.
    pub(crate) fn field(
        &self,
        kind: &CqlType,
        text: &str,
        out: &mut Vec<u8>,
    ) -> Result<bool, String> {
        if text == self.null {
            return Ok(false);
        }
        // The types of most columns, without a buffer for each value.
        let done = match kind {
            CqlType::Ascii | CqlType::Text => {
                out.extend_from_slice(text.as_bytes());
                Ok(())
            }
            CqlType::Int => self.integer::<i32>(text).map(|n| out.extend(n.to_be_bytes())),
            CqlType::Bigint => self.integer::<i64>(text).map(|n| out.extend(n.to_be_bytes())),
            _ => self.value(kind, text).map(|value| out.extend_from_slice(&value)),
        };
        match done {
            Ok(()) => Ok(true),
            // An empty text where NULL is another marker, for a type without an empty value.
            Err(_) if text.is_empty() => Ok(false),
            Err(error) => Err(format!("Failed to parse {text} : {error}")),
        }
    }

    /// Appends a field as a literal of a statement, which the server reads: in quotes where its type
    /// needs them, else as it is. False is null.
    pub(crate) fn literal(&self, kind: &CqlType, text: &str, out: &mut Vec<u8>) -> bool {
        let needs_quotes = matches!(
            kind,
            CqlType::Ascii
                | CqlType::Text
                | CqlType::Timestamp
                | CqlType::Date
                | CqlType::Time
                | CqlType::Inet
        );
        // An empty text where NULL is another marker, for a type without an empty literal.
        if text == self.null || text.is_empty() && !needs_quotes {
            return false;
        }
        match needs_quotes {
            true => {
                out.push(b'\'');
                for byte in text.bytes() {
                    if byte == b'\'' {
                        out.push(b'\'');
                    }
                    out.push(byte);
                }
                out.push(b'\'');
            }
            false => out.extend_from_slice(text.as_bytes()),
        }
        true
    }

    fn value(&self, kind: &CqlType, text: &str) -> Result<Vec<u8>, String> {
        Ok(match kind {
            CqlType::Ascii | CqlType::Text => text.as_bytes().to_vec(),
            CqlType::Tinyint => self.integer::<i8>(text)?.to_be_bytes().to_vec(),
            CqlType::Smallint => self.integer::<i16>(text)?.to_be_bytes().to_vec(),
            CqlType::Int => self.integer::<i32>(text)?.to_be_bytes().to_vec(),
            CqlType::Bigint | CqlType::Counter => self.integer::<i64>(text)?.to_be_bytes().to_vec(),
            CqlType::Varint => {
                let digits = self.digits(text);
                let parsed = number::parse_varint(digits.trim()).ok_or_else(|| no_integer(text))?;
                number::varint_to_bytes(&parsed)
            }
            CqlType::Float => {
                let number: f32 = self.decimal(text).trim().parse().map_err(|_| no_float(text))?;
                number.to_be_bytes().to_vec()
            }
            CqlType::Double => {
                let number: f64 = self.decimal(text).trim().parse().map_err(|_| no_float(text))?;
                number.to_be_bytes().to_vec()
            }
            CqlType::Decimal => Decimal::parse(self.decimal(text).trim())
                .ok_or_else(|| "[<class 'decimal.ConversionSyntax'>]".to_owned())?
                .to_bytes(),
            CqlType::Boolean => vec![u8::from(text.to_lowercase() == self.true_word)],
            CqlType::Blob => blob(text)?,
            CqlType::Uuid | CqlType::Timeuuid => types::timeuuid::parse_uuid(text)
                .ok_or_else(|| "badly formed hexadecimal UUID string".to_owned())?
                .to_vec(),
            CqlType::Timestamp => self.timestamp(text)?.to_be_bytes().to_vec(),
            CqlType::Inet | CqlType::Date | CqlType::Time | CqlType::Duration => {
                kind.from_string(text.trim()).map_err(|error| error.to_string())?
            }
            CqlType::List { element, .. } => {
                encode_collection(self.elements(element, text)?).map_err(|e| e.to_string())?
            }
            CqlType::Set { element, .. } => {
                let mut values = self.elements(element, text)?;
                values.sort_by(|a, b| element.compare(a, b));
                values.dedup();
                encode_collection(values).map_err(|error| error.to_string())?
            }
            CqlType::Map { key, value, .. } => {
                let mut entries = Vec::new();
                for entry in split(text, ',')? {
                    let entry = format!("{{{entry}}}");
                    let pair = split(&entry, ':')?;
                    let [name, item] = pair.as_slice() else {
                        return Err(format!("Invalid map entry: {entry}"));
                    };
                    entries.push((self.inner(key, name)?, self.inner(value, item)?));
                }
                entries.sort_by(|(a, _), (b, _)| key.compare(a, b));
                entries.dedup_by(|(a, _), (b, _)| a == b);
                encode_map(entries).map_err(|error| error.to_string())?
            }
            CqlType::Tuple(kinds) => {
                let parts = split(text, ',')?;
                if parts.len() > kinds.len() {
                    return Err(format!("{} fields for a tuple of {}", parts.len(), kinds.len()));
                }
                let fields: Vec<Option<Vec<u8>>> = parts
                    .iter()
                    .zip(kinds.iter())
                    .map(|(part, kind)| self.optional(kind, part))
                    .collect::<Result<_, _>>()?;
                encode_tuple(fields).map_err(|error| error.to_string())?
            }
            CqlType::Udt(udt) => {
                let mut fields: Vec<Option<Vec<u8>>> = vec![None; udt.fields.len()];
                for entry in split(text, ',')? {
                    let entry = format!("{{{entry}}}");
                    let pair = split(&entry, ':')?;
                    let [name, item] = pair.as_slice() else {
                        return Err(format!("Invalid field: {entry}"));
                    };
                    let name = dequote(name);
                    let position = udt.field_position(&name);
                    let slot = position.and_then(|at| fields.get_mut(at).zip(udt.fields.get(at)));
                    let Some((slot, (_, kind))) = slot else {
                        return Err(format!("Unknown field {name}"));
                    };
                    *slot = self.optional(kind, item)?;
                }
                encode_tuple(fields).map_err(|error| error.to_string())?
            }
            CqlType::Vector { element, dimension } => {
                let values = self.elements(element, text)?;
                if usize::try_from(*dimension) != Ok(values.len()) {
                    return Err(format!(
                        "The length of given vector value '{}' is not equal to the vector size \
                         from the type definition '{dimension}'",
                        values.len()
                    ));
                }
                encode_vector(element, *dimension, values).map_err(|error| error.to_string())?
            }
            CqlType::Empty | CqlType::Custom(_) => blob(text)?,
        })
    }

    fn elements(&self, element: &CqlType, text: &str) -> Result<Vec<Vec<u8>>, String> {
        split(text, ',')?.iter().map(|part| self.inner(element, part)).collect()
    }

    /// An element of a collection, which is never null.
    fn inner(&self, kind: &CqlType, text: &str) -> Result<Vec<u8>, String> {
        let text = dequote(text);
        if text == self.null && !matches!(kind, CqlType::Text | CqlType::Ascii) {
            return Err("Empty values are not allowed".to_owned());
        }
        self.value(kind, &text)
    }

    /// A field of a tuple or user type.
    fn optional(&self, kind: &CqlType, text: &str) -> Result<Option<Vec<u8>>, String> {
        let text = dequote(text);
        if text == self.null || text == "None" || text == "null" {
            return Ok(None);
        }
        self.value(kind, &text).map(Some)
    }

    fn digits<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        match self.thousands_separator.is_empty() {
            true => text.into(),
            false => text.replace(&self.thousands_separator, "").into(),
        }
    }

    fn decimal<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        match self.decimal_separator.as_str() {
            "" | "." => self.digits(text),
            separator => self.digits(text).replace(separator, ".").into(),
        }
    }

    fn integer<T: TryFrom<i64>>(&self, text: &str) -> Result<T, String> {
        let number: i64 = self.digits(text).trim().parse().map_err(|_| no_integer(text))?;
        T::try_from(number).map_err(|_| format!("{number} is out of the range of the type"))
    }

    fn timestamp(&self, text: &str) -> Result<i64, String> {
        time::parse(text, &self.timestamp_format)
            .or_else(|| temporal::parse_timestamp(text.trim(), None).ok())
            .ok_or_else(|| {
                format!(
                    "can't interpret {} as a date with format {} or as int",
                    python_repr(text),
                    self.timestamp_format
                )
            })
    }
}

fn no_integer(text: &str) -> String {
    format!("invalid literal for int() with base 10: {}", python_repr(text))
}

fn no_float(text: &str) -> String {
    format!("could not convert string to float: {}", python_repr(text))
}

fn blob(text: &str) -> Result<Vec<u8>, String> {
    let no_hex = || "non-hexadecimal number found in a blob".to_owned();
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).ok_or_else(no_hex)?;
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => {
                let digit =
                    |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
                Some(digit(*high)? << 4 | digit(*low)?)
            }
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(no_hex)
}

fn dequote(text: &str) -> String {
    let text = text.trim();
    match text.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\'')) {
        Some(inner) => inner.replace("''", "'"),
        None => text.to_owned(),
    }
}

/// The parts between the outermost brackets, cut at separators outside of inner brackets and quotes.
fn split(text: &str, separator: char) -> Result<Vec<&str>, String> {
    let text = text.trim();
    let inner = [('{', '}'), ('[', ']'), ('(', ')')]
        .iter()
        .find_map(|(open, close)| text.strip_prefix(*open)?.strip_suffix(*close))
        .ok_or_else(|| {
            format!(
                "Invalid composite string, it should start and end with matching parentheses: \
                 {text}"
            )
        })?;
    let mut parts = Vec::new();
    let (mut last, mut level, mut quoted) = (0, 0_i32, false);
    for (at, sign) in inner.char_indices() {
        match sign {
            '\'' => quoted = !quoted,
            _ if quoted => {}
            '{' | '[' | '(' => level += 1,
            '}' | ']' | ')' => level -= 1,
            sign if sign == separator && level == 0 => {
                parts.push(inner.get(last..at).unwrap_or_default());
                last = at + 1;
            }
            _ => {}
        }
    }
    if last < inner.len() {
        parts.push(inner.get(last..).unwrap_or_default());
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Style;

    fn conversion() -> Conversion {
        Conversion {
            null: String::new(),
            decimal_separator: ".".to_owned(),
            thousands_separator: String::new(),
            true_word: "true".to_owned(),
            timestamp_format: time::DEFAULT_FORMAT.to_owned(),
        }
    }

    fn field(
        conversion: &Conversion,
        kind: &CqlType,
        text: &str,
    ) -> Result<Option<Vec<u8>>, String> {
        let mut out = b"before".to_vec();
        let is_there = conversion.field(kind, text, &mut out)?;
        Ok(is_there.then(|| out.split_off(6)))
    }

    fn check(kind: &CqlType, text: &str, expect: &str) {
        let value = field(&conversion(), kind, text).unwrap();
        let style = Style { raw: true, double_precision: 12, ..Style::default() };
        assert_eq!(style.cell(kind, value.as_deref()).text, expect, "{kind:?}");
    }

    #[test]
    fn values_are_read_as_they_are_printed() {
        check(&CqlType::Int, "-7", "-7");
        check(&CqlType::Varint, "123456789012345678901", "123456789012345678901");
        check(&CqlType::Double, "1.5e3", "1500");
        check(&CqlType::Decimal, "1.50", "1.50");
        check(&CqlType::Boolean, "TRUE", "True");
        check(&CqlType::Boolean, "other", "False");
        check(&CqlType::Blob, "0xCAfe", "0xcafe");
        check(&CqlType::Date, "2024-02-29", "2024-02-29");
        check(&CqlType::Time, "01:02:03.000000004", "01:02:03.000000004");
        check(&CqlType::Inet, "::1", "::1");
        check(&CqlType::Duration, "1mo2h", "1mo2h");
        check(&CqlType::Text, "a\\n'b'", "a\\n'b'");
        check(&CqlType::Int, "", "null");
        let time = "2024-01-02 03:04:05.678000+0000";
        for text in
            [time, "2024-01-02 03:04:05.678+0000", "1704164645678", "2024-01-02 04:04:05.678+01:00"]
        {
            check(&CqlType::Timestamp, text, time);
        }
    }

    #[test]
    fn collections_are_read_as_they_are_printed() {
        let texts = CqlType::list(CqlType::Text, false);
        check(&texts, "['it''s', 'a,b', '[c']", "['it''s', 'a,b', '[c']");
        check(&texts, "[]", "[]");
        check(&CqlType::set(CqlType::Int, false), "{3, 1, 3}", "{1, 3}");
        let map = CqlType::map(CqlType::Text, texts.clone(), false);
        check(&map, "{'k:1': ['a', 'b'], 'j': []}", "{'j': [], 'k:1': ['a', 'b']}");
        check(&CqlType::tuple([CqlType::Int, CqlType::Text]), "(1, 'x')", "(1, 'x')");
        check(&CqlType::vector(CqlType::Float, 2), "[1, 2.5]", "[1, 2.5]");
    }

    #[test]
    fn literals_are_the_fields_with_quotes_where_cql_needs_them() {
        let literal = |kind: &CqlType, text: &str| {
            let mut out = Vec::new();
            conversion().literal(kind, text, &mut out).then(|| String::from_utf8(out).unwrap())
        };
        for (kind, text, expect) in [
            (CqlType::Text, "it's", Some("'it''s'")),
            (CqlType::Timestamp, "2024-01-02", Some("'2024-01-02'")),
            (CqlType::Inet, "::1", Some("'::1'")),
            (CqlType::Int, "x", Some("x")),
            (CqlType::list(CqlType::Text, false), "['a']", Some("['a']")),
            (CqlType::Int, "", None),
            (CqlType::Text, "", None),
        ] {
            assert_eq!(literal(&kind, text).as_deref(), expect, "{kind:?}");
        }
        let marked = Conversion { null: "N".to_owned(), ..conversion() };
        let mut out = Vec::new();
        assert!(marked.literal(&CqlType::Text, "", &mut out) && out == b"''");
        assert!(!marked.literal(&CqlType::Int, "", &mut out));
        assert!(!marked.literal(&CqlType::Text, "N", &mut out));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = |kind: &CqlType, text: &str| field(&conversion(), kind, text).unwrap_err();
        assert_eq!(
            error(&CqlType::Int, "x"),
            "Failed to parse x : invalid literal for int() with base 10: 'x'"
        );
        assert!(error(&CqlType::Tinyint, "300").contains("out of the range"));
        assert!(error(&CqlType::Uuid, "1").contains("badly formed"));
        assert!(error(&CqlType::list(CqlType::Int, false), "1").contains("matching parentheses"));
        assert!(error(&CqlType::list(CqlType::Int, false), "[1,,2]").contains("Empty values"));
        assert!(error(&CqlType::vector(CqlType::Float, 2), "[1]").contains("'1' is not equal"));
        assert!(error(&CqlType::Timestamp, "soon").contains("can't interpret 'soon'"));
    }

    #[test]
    fn separators_of_numbers_are_taken_out() {
        let conversion = Conversion {
            decimal_separator: ",".to_owned(),
            thousands_separator: ".".to_owned(),
            ..conversion()
        };
        let value = field(&conversion, &CqlType::Double, "1.234.567,5").unwrap().unwrap();
        assert_eq!(value, 1_234_567.5_f64.to_be_bytes());
        let value = field(&conversion, &CqlType::Int, "1.234").unwrap().unwrap();
        assert_eq!(value, 1_234_i32.to_be_bytes());
    }
}
