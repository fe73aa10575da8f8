//! How cqlsh prints a value.
//!
//! Owns: the text and the colours of every type, for tables and for CSV. Never: the layout of
//! several values.
//!
//! Source: `formatting.py` of cqlsh 6.2, and how the Python driver shows what it decodes.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use types::wire::{CollectionKind, Elements, Entries, Fields, VectorElements};
use types::{CqlType, Decimal, Duration, number, timeuuid};
use unicode_width::UnicodeWidthStr;

use crate::display::{BLUE, Cell, DARK_MAGENTA, GREEN, RED, RESET, YELLOW};
use crate::time;

/// How values are printed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Style {
    /// Colours are wanted.
    pub(crate) color: bool,
    /// Text for null.
    pub(crate) null: String,
    /// strftime format of timestamps.
    pub(crate) timestamp_format: String,
    /// Zone of timestamps.
    pub(crate) zone: time::Zone,
    /// Digits after the point of floats, and of doubles inside collections.
    pub(crate) float_precision: i32,
    /// Digits after the point of doubles.
    pub(crate) double_precision: i32,
    /// Decimal separator; empty is a point.
    pub(crate) decimal_separator: String,
    /// Separator of groups of three digits; empty is none.
    pub(crate) thousands_separator: String,
    /// Words for true and false.
    pub(crate) booleans: (String, String),
    /// Fractions of timestamps have three digits (CSV), not six.
    pub(crate) milliseconds: bool,
    /// Texts stay as they are (CSV, which has escapes of its own), and cells have no width.
    pub(crate) raw: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style {
            color: false,
            null: "null".to_owned(),
            timestamp_format: time::DEFAULT_FORMAT.to_owned(),
            zone: time::Zone::default(),
            float_precision: 5,
            double_precision: 5,
            decimal_separator: String::new(),
            thousands_separator: String::new(),
            booleans: ("True".to_owned(), "False".to_owned()),
            milliseconds: false,
            raw: false,
        }
    }
}

/// Where a value stands.
#[derive(Clone, Copy)]
struct Place {
    /// Inside of a collection: texts have quotes.
    quote: bool,
    precision: i32,
}

impl Style {
    /// A value of a result.
    pub(crate) fn cell(&self, kind: &CqlType, value: Option<&[u8]>) -> Cell {
        let precision = match kind {
            CqlType::Double => self.double_precision,
            _ => self.float_precision,
        };
        match value {
            None => self.colored(self.null.clone(), RED),
            Some(value) => self.value(kind, value, Place { quote: false, precision }),
        }
    }

    /// The name of a column.
    pub(crate) fn name(&self, name: &str, color: &'static str) -> Cell {
        self.text_cell(name, false, color)
    }

    /// A text that is no value of a column.
    pub(crate) fn text(&self, text: &str) -> Cell {
        self.text_cell(text, false, YELLOW)
    }

    /// A number that is no value of a column.
    pub(crate) fn number(&self, number: i64) -> Cell {
        self.colored(number.to_string(), GREEN)
    }

    fn colored(&self, text: String, color: &str) -> Cell {
        Cell::one_color(text, self.color.then_some(color))
    }

    fn value(&self, kind: &CqlType, value: &[u8], place: Place) -> Cell {
        if value.is_empty() && !matches!(kind, CqlType::Blob | CqlType::Text | CqlType::Ascii) {
            return self.text_cell("", false, YELLOW);
        }
        match self.try_value(kind, value, place) {
            Some(cell) => cell,
            None => self.colored(python_bytes(value), RED),
        }
    }

    fn try_value(&self, kind: &CqlType, value: &[u8], place: Place) -> Option<Cell> {
        let green = |text: String| Some(self.colored(text, GREEN));
        match kind {
            CqlType::Ascii | CqlType::Text => {
                let text = std::str::from_utf8(value).ok()?;
                Some(self.text_cell(text, place.quote, YELLOW))
            }
            CqlType::Blob => Some(self.colored(hex(value), DARK_MAGENTA)),
            CqlType::Tinyint => green(self.integer(i64::from(i8::from_be_bytes(array(value)?)))),
            CqlType::Smallint => green(self.integer(i64::from(i16::from_be_bytes(array(value)?)))),
            CqlType::Int => green(self.integer(i64::from(i32::from_be_bytes(array(value)?)))),
            CqlType::Bigint | CqlType::Counter => {
                green(self.integer(i64::from_be_bytes(array(value)?)))
            }
            CqlType::Varint => {
                let digits = number::varint_from_bytes(value).to_string();
                green(group(&digits, &self.thousands_separator))
            }
            CqlType::Float => {
                let number = f64::from(f32::from_be_bytes(array(value)?));
                green(self.float(number, place.precision))
            }
            CqlType::Double => {
                green(self.float(f64::from_be_bytes(array(value)?), place.precision))
            }
            CqlType::Decimal => green(self.decimal(&Decimal::from_bytes(value)?, place.precision)),
            CqlType::Boolean => {
                let words = &self.booleans;
                let word = if value.first() == Some(&0) { &words.1 } else { &words.0 };
                green(word.clone())
            }
            CqlType::Uuid | CqlType::Timeuuid => green(timeuuid::format_uuid(&array::<16>(value)?)),
            CqlType::Inet => green(quoted_if(place.quote, inet(value)?)),
            CqlType::Timestamp => {
                let text = self.timestamp(i64::from_be_bytes(array(value)?));
                green(quoted_if(place.quote, text))
            }
            CqlType::Date => green(time::date(u32::from_be_bytes(array(value)?))),
            CqlType::Time => green(time::time_of_day(i64::from_be_bytes(array(value)?))),
            CqlType::Duration => green(duration(&Duration::from_bytes(value).ok()?)),
            CqlType::List { element, .. } => self.sequence(element, value, ['[', ']'], place),
            CqlType::Set { element, .. } => self.sequence(element, value, ['{', '}'], place),
            CqlType::Map { key, value: of, .. } => self.map(key, of, value, place),
            CqlType::Tuple(fields) => {
                let inner = Place { quote: true, ..place };
                let mut cells = Vec::new();
                for (field, kind) in Fields::new(value, fields.len()).zip(fields.iter()) {
                    cells.push(match field.ok()? {
                        Some(field) => self.value(kind, field, inner),
                        None => self.missing(kind),
                    });
                }
                Some(self.join(&cells, ['(', ')']))
            }
            CqlType::Udt(udt) => {
                let inner = Place { quote: true, ..place };
                let mut pairs = Vec::new();
                for (field, (name, kind)) in Fields::new(value, udt.fields.len()).zip(&udt.fields) {
                    let cell = match field.ok()? {
                        Some(field) => self.value(kind, field, inner),
                        None => self.colored(self.null.clone(), RED),
                    };
                    pairs.push((self.text_cell(name, false, YELLOW), cell));
                }
                Some(self.join_pairs(&pairs))
            }
            CqlType::Vector { element, dimension } => {
                let inner = Place { quote: true, ..place };
                let mut cells = Vec::new();
                for item in VectorElements::new(value, element, *dimension) {
                    cells.push(self.value(element, item.ok()?, inner));
                }
                Some(self.join(&cells, ['[', ']']))
            }
            CqlType::Empty | CqlType::Custom(_) => {
                Some(self.text_cell(&python_bytes(value), false, YELLOW))
            }
        }
    }

    /// A null inside of a tuple: Python's word where cqlsh prints it.
    fn missing(&self, kind: &CqlType) -> Cell {
        match kind {
            CqlType::Timestamp | CqlType::Inet => self.colored("'None'".to_owned(), GREEN),
            _ => self.colored("None".to_owned(), GREEN),
        }
    }

    fn sequence(
        &self,
        element: &CqlType,
        value: &[u8],
        brackets: [char; 2],
        place: Place,
    ) -> Option<Cell> {
        let is_set = brackets[0] == '{';
        let kind = if is_set { CollectionKind::Set } else { CollectionKind::List };
        let mut items = Vec::new();
        for item in Elements::new(value, kind).ok()? {
            items.push(item.ok()?);
        }
        if is_set {
            python_order(element, &mut items, |item| item.unwrap_or_default());
        }
        let inner = Place { quote: true, ..place };
        let cells: Vec<Cell> = items
            .into_iter()
            .map(|item| match item {
                Some(item) => self.value(element, item, inner),
                None => self.missing(element),
            })
            .collect();
        Some(self.join(&cells, brackets))
    }

    fn map(&self, key: &CqlType, of: &CqlType, value: &[u8], place: Place) -> Option<Cell> {
        let mut entries = Vec::new();
        for entry in Entries::new(value).ok()? {
            entries.push(entry.ok()?);
        }
        python_order(key, &mut entries, |entry| entry.0);
        let inner = Place { quote: true, ..place };
        let pairs: Vec<(Cell, Cell)> = entries
            .into_iter()
            .map(|(name, item)| (self.value(key, name, inner), self.value(of, item, inner)))
            .collect();
        Some(self.join_pairs(&pairs))
    }

    fn join(&self, cells: &[Cell], [open, close]: [char; 2]) -> Cell {
        let texts: Vec<&str> = cells.iter().map(|cell| cell.text.as_str()).collect();
        let mut colored = String::new();
        if self.color {
            let shown: Vec<&str> = cells.iter().map(|cell| cell.colored.as_str()).collect();
            let comma = format!("{BLUE}, {RESET}");
            colored = format!("{BLUE}{open}{RESET}{}{BLUE}{close}{RESET}", shown.join(&comma));
        }
        Cell {
            text: format!("{open}{}{close}", texts.join(", ")),
            colored,
            width: 2 * cells.len() + cells.iter().map(|cell| cell.width).sum::<usize>(),
        }
    }

    fn join_pairs(&self, pairs: &[(Cell, Cell)]) -> Cell {
        let texts: Vec<String> =
            pairs.iter().map(|(name, cell)| format!("{}: {}", name.text, cell.text)).collect();
        let mut colored = String::new();
        if self.color {
            let shown: Vec<String> = pairs
                .iter()
                .map(|(name, cell)| format!("{}{BLUE}: {RESET}{}", name.colored, cell.colored))
                .collect();
            let comma = format!("{BLUE}, {RESET}");
            colored = format!("{BLUE}{{{RESET}{}{BLUE}}}{RESET}", shown.join(&comma));
        }
        Cell {
            text: format!("{{{}}}", texts.join(", ")),
            colored,
            width: 4 * pairs.len()
                + pairs.iter().map(|(name, cell)| name.width + cell.width).sum::<usize>(),
        }
    }

    /// Text with control characters and backslashes escaped. In colour single backslashes are
    /// enough, because escapes have a colour of their own.
    fn text_cell(&self, text: &str, quote: bool, color: &'static str) -> Cell {
        if self.raw {
            let text =
                if quote { format!("'{}'", text.replace('\'', "''")) } else { text.to_owned() };
            return Cell { text, ..Cell::default() };
        }
        let mut escaped = String::with_capacity(text.len() + 2);
        if quote {
            escaped.push('\'');
        }
        for sign in text.chars() {
            match sign {
                '\\' => escaped.push_str("\\\\"),
                '\'' if quote => escaped.push_str("''"),
                '\n' => escaped.push_str("\\n"),
                '\r' => escaped.push_str("\\r"),
                '\t' => escaped.push_str("\\t"),
                sign if is_control(sign) => {
                    let _ = write!(escaped, "\\x{:02x}", u32::from(sign));
                }
                sign => escaped.push(sign),
            }
        }
        if quote {
            escaped.push('\'');
        }
        let mut width = width(&escaped);
        let mut colored = String::new();
        if self.color {
            width = width.saturating_sub(escaped.matches("\\\\").count());
            colored = format!("{color}{}{RESET}", highlight(&escaped, color));
        }
        Cell { text: escaped, colored, width }
    }

    fn integer(&self, number: i64) -> String {
        group(&number.to_string(), &self.thousands_separator)
    }

    fn timestamp(&self, millis: i64) -> String {
        let Some(moment) = time::Moment::of_millis(millis) else { return millis.to_string() };
        let text = moment.format(&self.timestamp_format, &self.zone);
        if self.milliseconds { time::round_fraction(&text) } else { text }
    }

    fn decimal(&self, value: &Decimal, precision: i32) -> String {
        let other_point = !self.decimal_separator.is_empty() && self.decimal_separator != ".";
        if other_point || !self.thousands_separator.is_empty() {
            return self.float(value.to_f64(), precision);
        }
        value.to_string()
    }

    /// Formats a number with at least `precision` digits after its point.
    pub(crate) fn float(&self, value: f64, precision: i32) -> String {
        if value.is_nan() {
            return "NaN".to_owned();
        }
        if value.is_infinite() {
            return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
        }
        let point = if self.decimal_separator.is_empty() { "." } else { &self.decimal_separator };
        if !self.thousands_separator.is_empty() {
            let mut text = group(&format!("{:.0}", value.trunc()), &self.thousands_separator);
            let digits = usize::try_from(precision).unwrap_or(0);
            let fraction = format!("{:.*}", digits, value.fract().abs());
            let fraction = fraction.get(2..).unwrap_or_default().trim_end_matches('0');
            if !fraction.is_empty() {
                text.push_str(point);
                text.push_str(fraction);
            }
            return text;
        }
        let mut significant = precision;
        if value.abs() > f64::EPSILON {
            #[expect(clippy::cast_possible_truncation, reason = "a logarithm of a double is small")]
            let exponent = value.abs().log10().trunc() as i32;
            if (-4..precision).contains(&exponent) {
                significant = precision + exponent + 1;
            }
        }
        let text = general(value, significant);
        if point == "." { text } else { text.replace('.', point) }
    }
}

/// Returns the columns of a text on a terminal, by the tables of cqlsh: one for a soft hyphen, none
/// for separators of lines and paragraphs.
fn width(text: &str) -> usize {
    let count = |sign: char| text.matches(sign).count();
    (text.width() + count('\u{ad}')).saturating_sub(count('\u{2028}') + count('\u{2029}'))
}

/// C's `%.*g`.
pub(crate) fn general(value: f64, precision: i32) -> String {
    let digits = usize::try_from(precision.max(1)).unwrap_or(1);
    short(value, digits).unwrap_or_else(|| rounded(value, digits))
}

/// The shortest text that is read back as this number, when that is what `%.*g` prints: nothing is rounded
/// away, and no digit would follow. Rounding to a given number of digits costs several times as much.
fn short(value: f64, digits: usize) -> Option<String> {
    // Decimals of up to 15 digits are those of their double, rounded to as many.
    const DIGITS_SAFE: usize = 15;
    // Smaller and larger ones are printed with an exponent.
    if !(1e-4..1e15).contains(&value.abs()) {
        return None;
    }
    let text = value.to_string();
    let unsigned = text.trim_start_matches('-');
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let significant = match whole {
        "0" => fraction.trim_start_matches('0').len(),
        _ => whole.len() + fraction.len(),
    };
    if significant > digits {
        return None;
    }
    // With n binary places it is all that there is to print: a double with n decimal places has as many.
    let places = i32::try_from(fraction.len()).ok()?;
    let is_exact = || (value * 2_f64.powi(places)).fract() == 0.0;
    (digits <= DIGITS_SAFE || is_exact()).then_some(text)
}

/// Rounds to that many significant digits.
fn rounded(value: f64, digits: usize) -> String {
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let strip = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let before = usize::try_from(exponent).map(|exponent| exponent.saturating_add(1));
    if exponent < -4 || before.is_ok_and(|before| before > digits) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", strip(mantissa), exponent.abs());
    }
    // The same digits with the point where it belongs.
    let all: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let (whole, fraction) = match before {
        Ok(before) => all.split_at_checked(before).unwrap_or((&all, "")),
        Err(_) => ("0", all.as_str()),
    };
    let zeros = usize::try_from(exponent.saturating_add(1).min(0).unsigned_abs()).unwrap_or(0);
    strip(&format!("{sign}{whole}.{}{fraction}", "0".repeat(zeros)))
}

fn group(digits: &str, separator: &str) -> String {
    if separator.is_empty() {
        return digits.to_owned();
    }
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    let mut out = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push_str(separator);
        }
        out.push(digit);
    }
    out
}

fn array<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.try_into().ok()
}

fn quoted_if(quote: bool, text: String) -> String {
    if quote { format!("'{text}'") } else { text }
}

/// `0x` and the digits.
pub(crate) fn hex(value: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * value.len());
    text.push_str("0x");
    for byte in value {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn inet(value: &[u8]) -> Option<String> {
    match value.len() {
        4 => Some(Ipv4Addr::from(array::<4>(value)?).to_string()),
        16 => Some(Ipv6Addr::from(array::<16>(value)?).to_string()),
        _ => None,
    }
}

fn duration(duration: &Duration) -> String {
    let mut text = String::new();
    if duration.is_negative() {
        text.push('-');
    }
    let months = u64::from(duration.months().unsigned_abs());
    let days = u64::from(duration.days().unsigned_abs());
    let nanos = duration.nanos().unsigned_abs();
    let parts: [(u64, &str); 9] = [
        (months / 12, "y"),
        (months % 12, "mo"),
        (days, "d"),
        (nanos / 3_600_000_000_000, "h"),
        (nanos / 60_000_000_000 % 60, "m"),
        (nanos / 1_000_000_000 % 60, "s"),
        (nanos / 1_000_000 % 1_000, "ms"),
        (nanos / 1_000 % 1_000, "us"),
        (nanos % 1_000, "ns"),
    ];
    for (count, unit) in parts {
        if count > 0 {
            let _ = write!(text, "{count}{unit}");
        }
    }
    text
}

/// Python sorts sets and maps itself: addresses as text, UUIDs as numbers, the rest as the server.
fn python_order<T>(kind: &CqlType, items: &mut [T], bytes: impl Fn(&T) -> &[u8]) {
    match kind {
        CqlType::Uuid | CqlType::Timeuuid => {
            items.sort_by(|a, b| bytes(a).cmp(bytes(b)));
        }
        CqlType::Inet => items.sort_by_cached_key(|item| inet(bytes(item))),
        _ => {}
    }
}

fn is_control(sign: char) -> bool {
    matches!(u32::from(sign), 0..=0x1f | 0x7f..=0xa0)
}

/// Escapes in their own colour, doubled backslashes as one.
fn highlight(escaped: &str, color: &str) -> String {
    let mut out = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(at) = rest.find('\\') {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at..).unwrap_or_default();
        let length = if rest.starts_with("\\x") { 4 } else { 2 };
        let (escape, tail) = rest.split_at_checked(length).unwrap_or((rest, ""));
        if escape == "\\\\" {
            out.push('\\');
        } else {
            let _ = write!(out, "{DARK_MAGENTA}{escape}{color}");
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// A Python bytes literal.
fn python_bytes(value: &[u8]) -> String {
    let mut text = String::from("b'");
    for byte in value {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\'' => text.push_str("\\'"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            0x20..=0x7e => text.push(char::from(*byte)),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
