//! JSON of values: `to_json`, `from_json`, and the document of INSERT JSON.
//!
//! Source: `ToJsonFct`, `FromJsonFct`, `cql3.Json`, `AbstractType.fromJSONObject`; the words for
//! kinds of values are those of Java's classes, because Cassandra's messages have them.

use std::fmt;

use types::custom::CustomKind;
use types::number::java_f64;
use types::wire::{encode_collection, encode_map, encode_tuple, encode_vector};
use types::{Comparator, CqlType, UdtType};

use crate::call::{Call, one_type, wrong_argument, wrong_count};
use crate::env::EvalEnv;
use crate::error::{PlanError, PlanErrorKind};
use crate::java_hash;
use crate::native::{Args, NativeFunction};

/// Deepest nesting of a document.
const DEPTH_MAX: u32 = 64;

/// A parsed JSON value. Numbers keep their text.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number without point and exponent.
    Integer(String),
    /// Another number.
    Double(f64),
    /// A string, unescaped.
    Text(String),
    /// `[…]`.
    List(Vec<Json>),
    /// `{…}`; of equal keys the last one.
    Map(Vec<(String, Json)>),
}

impl Json {
    /// The simple name of the class that Cassandra's JSON library makes.
    fn class(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "Boolean",
            Json::Integer(text) if text.parse::<i32>().is_ok() => "Integer",
            Json::Integer(text) if text.parse::<i64>().is_ok() => "Long",
            Json::Integer(_) => "BigInteger",
            Json::Double(_) => "Double",
            Json::Text(_) => "String",
            Json::List(_) => "ArrayList",
            Json::Map(_) => "LinkedHashMap",
        }
    }
}

/// Formats like Java's `toString`: `{a=1, b=[x, y]}`.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(value) => value.fmt(f),
            Json::Integer(text) | Json::Text(text) => f.write_str(text),
            Json::Double(value) => f.write_str(&java_f64(*value)),
            Json::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{item}")?;
                }
                f.write_str("]")
            }
            Json::Map(entries) => {
                f.write_str("{")?;
                for (i, (key, value)) in entries.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{key}={value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

type Parsed<T> = Result<T, String>;

/// Parses one JSON value.
///
/// # Errors
/// A description of the syntax error.
pub fn parse(text: &str) -> Result<Json, String> {
    let mut parser = Parser { rest: text };
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.rest.is_empty() { Ok(value) } else { Err("text after the end of the value".into()) }
}

impl<'a> Parser<'a> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: u32) -> Parsed<Json> {
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} levels"));
        }
        self.skip_space();
        match self.rest.bytes().next() {
            None => Err("the text ends early".into()),
            Some(b'{') => self.map(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) if self.eat("null") => Ok(Json::Null),
            Some(_) if self.eat("true") => Ok(Json::Bool(true)),
            Some(_) if self.eat("false") => Ok(Json::Bool(false)),
            Some(_) => {
                let word: String = self.rest.chars().take(20).collect();
                Err(format!("unexpected text at '{word}'"))
            }
        }
    }

    fn map(&mut self, depth: u32) -> Parsed<Json> {
        let mut entries: Vec<(String, Json)> = Vec::new();
        self.eat("{");
        if self.eat("}") {
            return Ok(Json::Map(entries));
        }
        loop {
            self.skip_space();
            let key = self.string()?;
            if !self.eat(":") {
                return Err("':' is missing after a key".into());
            }
            let value = self.value(depth + 1)?;
            entries.push((key, value));
            if self.eat("}") {
                break;
            }
            if !self.eat(",") {
                return Err("',' or '}' is missing".into());
            }
        }
        Ok(Json::Map(last_of_each(entries)))
    }

    fn list(&mut self, depth: u32) -> Parsed<Json> {
        let mut items = Vec::new();
        self.eat("[");
        if self.eat("]") {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.eat("]") {
                return Ok(Json::List(items));
            }
            if !self.eat(",") {
                return Err("',' or ']' is missing".into());
            }
        }
    }

    fn string(&mut self) -> Parsed<String> {
        let mut chars = self.rest.char_indices();
        if chars.next().map(|(_, c)| c) != Some('"') {
            return Err("a string is missing".into());
        }
        let mut out = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = self.rest.get(at + 1..).unwrap_or("");
                    return Ok(out);
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some('b') => out.push('\u{8}'),
                    Some('f') => out.push('\u{c}'),
                    Some('u') => out.push(Self::unicode(&mut chars)?),
                    Some(c @ ('"' | '\\' | '/')) => out.push(c),
                    _ => return Err("a wrong escape in a string".into()),
                },
                c if u32::from(c) < 0x20 => {
                    return Err("a control character in a string".into());
                }
                c => out.push(c),
            }
        }
        Err("a string does not end".into())
    }

    fn unicode(chars: &mut std::str::CharIndices<'_>) -> Parsed<char> {
        let wrong = || "a wrong \\u escape in a string".to_owned();
        let mut unit = || {
            let mut unit = 0u32;
            for _ in 0..4 {
                let digit = chars.next().and_then(|(_, c)| c.to_digit(16)).ok_or_else(wrong)?;
                unit = unit * 16 + digit;
            }
            Ok::<u32, String>(unit)
        };
        let high = unit()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high).ok_or_else(wrong);
        }
        if chars.next().map(|(_, c)| c) != Some('\\') || chars.next().map(|(_, c)| c) != Some('u') {
            return Err(wrong());
        }
        let mut low = 0u32;
        for _ in 0..4 {
            low = low * 16 + chars.next().and_then(|(_, c)| c.to_digit(16)).ok_or_else(wrong)?;
        }
        if !(0xdc00..0xe000).contains(&low) {
            return Err(wrong());
        }
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).ok_or_else(wrong)
    }

    fn number(&mut self) -> Parsed<Json> {
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let len = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, ""));
        self.rest = rest;
        let digits = text.strip_prefix('-').unwrap_or(text);
        let leading_zero = digits.len() > 1
            && digits.starts_with('0')
            && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        if leading_zero || !digits.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("'{text}' is not a number"));
        }
        if digits.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(Json::Integer(text.to_owned()));
        }
        if digits.ends_with('.') || digits.contains(".e") || digits.contains(".E") {
            return Err(format!("'{text}' is not a number"));
        }
        text.parse().map(Json::Double).map_err(|_| format!("'{text}' is not a number"))
    }
}

/// Keeps the last value of equal keys, at the position of the first.
fn last_of_each(entries: Vec<(String, Json)>) -> Vec<(String, Json)> {
    let mut seen = stdx::FixedMap::default();
    let mut out: Vec<(String, Json)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        match seen.get(&key).and_then(|at: &usize| out.get_mut(*at)) {
            Some(slot) => slot.1 = value,
            None => {
                seen.insert(key.clone(), out.len());
                out.push((key, value));
            }
        }
    }
    out
}

/// Names of columns or fields as JSON keys: `"Name"` in quotes keeps its case, others are lower
/// case. Source: `JsonUtils.handleCaseSensitivity`.
fn fold_keys(entries: &[(String, Json)]) -> Vec<(String, &Json)> {
    let fold = |key: &str| match key.strip_prefix('"').and_then(|k| k.strip_suffix('"')) {
        Some(quoted) => quoted.to_owned(),
        None => key.to_lowercase(),
    };
    entries.iter().map(|(key, value)| (fold(key), value)).collect()
}

fn refused<T>(text: String) -> Result<T, PlanError> {
    Err(PlanError::invalid(text))
}

fn unexpected<T>(what: &str, json: &Json) -> Result<T, PlanError> {
    refused(format!("Expected {what}, but got a {}: {json}", json.class()))
}

/// The bytes of a value of type `ty` from JSON; `None` is null.
///
/// # Errors
/// The JSON is not a value of the type, in Cassandra's words.
pub fn from_json(ty: &CqlType, json: &Json, now_millis: i64) -> Result<Vec<u8>, PlanError> {
    let text = |source: &str| ty.from_string_at(source, now_millis).map_err(PlanError::from);
    let only_text = |what: &str| match json {
        Json::Text(source) => text(source),
        _ => unexpected(what, json),
    };
    match ty {
        CqlType::Ascii => only_text("an ascii string"),
        CqlType::Text => only_text("a UTF-8 string"),
        CqlType::Uuid => only_text("a string representation of a uuid"),
        CqlType::Timeuuid => only_text("a string representation of a timeuuid"),
        CqlType::Inet => only_text("a string representation of an inet value"),
        CqlType::Date => only_text("a string representation of a date value"),
        CqlType::Time => only_text("a string representation of a time value"),
        CqlType::Duration => only_text("a string representation of a duration"),
        CqlType::Tinyint
        | CqlType::Smallint
        | CqlType::Int
        | CqlType::Bigint
        | CqlType::Counter
        | CqlType::Varint
        | CqlType::Decimal
        | CqlType::Float
        | CqlType::Double => number(ty, json, &text),
        CqlType::Boolean => match json {
            Json::Text(source) => text(source),
            Json::Bool(value) => Ok(vec![u8::from(*value)]),
            _ => unexpected("a boolean value", json),
        },
        CqlType::Timestamp => match (json, json.class()) {
            (Json::Integer(source), "Long") => text(source),
            (Json::Text(source), _) => text(source),
            _ => unexpected("a long or a datestring representation of a timestamp value", json),
        },
        CqlType::Empty => match json {
            Json::Text(source) => text(source),
            _ => refused(format!("Expected an empty string, but got: {json}")),
        },
        CqlType::Custom(custom) if matches!(custom.kind(), CustomKind::LexicalUuid) => {
            only_text("a string representation of a uuid")
        }
        CqlType::Blob | CqlType::Custom(_) => blob(ty, json),
        _ => composite(ty, json, now_millis),
    }
}

/// A number; `text` gives the bytes of its text.
fn number(
    ty: &CqlType,
    json: &Json,
    text: &dyn Fn(&str) -> Result<Vec<u8>, PlanError>,
) -> Result<Vec<u8>, PlanError> {
    if let (CqlType::Varint | CqlType::Decimal, Json::Text(source) | Json::Integer(source)) =
        (ty, json)
        && let Some(error) = types::number::too_many_digits(source)
    {
        return Err(PlanError::from(error));
    }
    match ty {
        CqlType::Int => match (json, json.class()) {
            (Json::Text(source), _) => text(source),
            (Json::Integer(source), "Integer") => text(source),
            _ => unexpected("an int value", json),
        },
        CqlType::Bigint | CqlType::Counter => match (json, json.class()) {
            (Json::Text(source), _) | (Json::Integer(source), "Integer" | "Long") => {
                CqlType::Bigint.from_string(source).map_err(PlanError::from)
            }
            _ => unexpected("a bigint value", json),
        },
        CqlType::Smallint | CqlType::Tinyint => match json {
            Json::Text(_) | Json::Integer(_) | Json::Double(_) => text(&json.to_string()),
            _ if *ty == CqlType::Smallint => unexpected("a short value", json),
            _ => unexpected("a byte value", json),
        },
        CqlType::Varint => {
            let of_text = match json.to_string() {
                empty if empty.is_empty() => refused(empty),
                other => text(&other),
            };
            of_text.or_else(|_| {
                refused(format!("Value '{json}' is not a valid representation of a varint value"))
            })
        }
        CqlType::Decimal => text(&json.to_string()).or_else(|_| {
            refused(format!("Value '{json}' is not a valid representation of a decimal value"))
        }),
        CqlType::Double | CqlType::Float => match json {
            Json::Text(source) | Json::Integer(source) => text(source),
            Json::Double(value) => text(&java_f64(*value)),
            _ if *ty == CqlType::Double => unexpected("a double value", json),
            _ => unexpected("a float value", json),
        },
        _ => unexpected("a number", json),
    }
}

/// A blob, or a value of a class: its bytes in hex.
fn blob(ty: &CqlType, json: &Json) -> Result<Vec<u8>, PlanError> {
    let check = |bytes: Vec<u8>| match ty.validate(&bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(PlanError::from(error)),
    };
    let wrong =
        |why: String| refused(format!("Value '{json}' is not a valid blob representation: {why}"));
    match json {
        Json::Text(source) => match source.strip_prefix("0x") {
            None => wrong(format!("String representation of blob is missing 0x prefix: {source}")),
            Some(digits) => match CqlType::Blob.from_string(digits) {
                Ok(bytes) => check(bytes),
                Err(error) => wrong(error.to_string()),
            },
        },
        _ => wrong(format!("a {} is not a string", json.class())),
    }
}

/// Collections, tuples, user types and vectors; a string is decoded as JSON once more.
fn composite(ty: &CqlType, json: &Json, now: i64) -> Result<Vec<u8>, PlanError> {
    let decoded;
    let json = match json {
        Json::Text(source) => {
            decoded = parse(source)
                .map_err(|why| PlanError::invalid(format!("Error decoding JSON string: {why}")))?;
            &decoded
        }
        other => other,
    };
    let elements = |ty: &CqlType, items: &[Json], what: &str| {
        let mut elements = Vec::new();
        for item in items {
            if *item == Json::Null {
                return refused(format!("Invalid null element in {what}"));
            }
            elements.push(from_json(ty, item, now)?);
        }
        Ok(elements)
    };
    let bytes = match (ty, json) {
        (CqlType::List { element, .. }, Json::List(items)) => {
            encode_collection(elements(element, items, "list")?)
        }
        (CqlType::List { .. }, _) => return unexpected("a list", json),
        (CqlType::Set { element, .. }, Json::List(items)) => {
            let order = Comparator::for_type(element);
            let mut elements = elements(element, items, "set")?;
            elements.sort_by(|a, b| order.compare(a, b));
            elements.dedup_by(|a, b| order.compare(a, b).is_eq());
            encode_collection(elements)
        }
        (CqlType::Set { .. }, _) => return unexpected("a list (representing a set)", json),
        (CqlType::Map { key, value, .. }, Json::Map(items)) => {
            let mut entries = map_entries(key, value, items, now)?;
            crate::collections::sort_entries(&mut entries, &Comparator::for_type(key));
            encode_map(entries)
        }
        (CqlType::Map { .. }, _) => return unexpected("a map", json),
        (CqlType::Tuple(types), Json::List(items)) => {
            if items.len() != types.len() {
                let what = if items.len() > types.len() {
                    "contains extra items"
                } else {
                    "is missing items"
                };
                return refused(format!("Tuple {what} (expected {}): {json}", types.len()));
            }
            let fields = types.iter().zip(items).map(|(ty, item)| field(ty, Some(item), now));
            encode_tuple(fields.collect::<Result<Vec<_>, _>>()?)
        }
        (CqlType::Tuple(_), _) => return unexpected("a list representation of a tuple", json),
        (CqlType::Udt(udt), Json::Map(items)) => encode_tuple(udt_fields(udt, items, now)?),
        (CqlType::Udt(_), _) => return unexpected("a map", json),
        (CqlType::Vector { element, dimension }, Json::List(items)) => {
            if u32::try_from(items.len()) != Ok(*dimension) {
                return refused(format!(
                    "List had incorrect size: expected {dimension} but given {}; {json}",
                    items.len()
                ));
            }
            encode_vector(element, *dimension, elements(element, items, "list")?)
        }
        _ => return unexpected("a list", json),
    };
    bytes.map_err(PlanError::from)
}

/// Keys and values of a map.
type MapEntries = Vec<(Vec<u8>, Vec<u8>)>;

fn map_entries(
    key: &CqlType,
    value: &CqlType,
    items: &[(String, Json)],
    now: i64,
) -> Result<MapEntries, PlanError> {
    let mut entries = Vec::with_capacity(items.len());
    for (k, v) in items {
        if *v == Json::Null {
            return refused("Invalid null value in map".to_owned());
        }
        let k = from_json(key, &Json::Text(k.clone()), now)?;
        entries.push((k, from_json(value, v, now)?));
    }
    Ok(entries)
}

/// A field of a tuple or user type; a missing one is null.
fn field(ty: &CqlType, item: Option<&Json>, now: i64) -> Result<Option<Vec<u8>>, PlanError> {
    match item {
        None | Some(Json::Null) => Ok(None),
        Some(item) => from_json(ty, item, now).map(Some),
    }
}

fn udt_fields(
    udt: &UdtType,
    items: &[(String, Json)],
    now: i64,
) -> Result<Vec<Option<Vec<u8>>>, PlanError> {
    let items = fold_keys(items);
    let mut fields = Vec::with_capacity(udt.fields.len());
    for (name, ty) in &udt.fields {
        let item = items.iter().rfind(|(key, _)| key == name).map(|(_, item)| *item);
        fields.push(field(ty, item, now)?);
    }
    match items.iter().find(|(key, _)| udt.field_position(key).is_none()) {
        None => Ok(fields),
        Some((unknown, _)) => {
            refused(format!("Unknown field '{unknown}' in value of user defined type {}", udt.name))
        }
    }
}

/// A column in an INSERT JSON document.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonColumn {
    /// The document does not name it.
    Missing,
    /// Null.
    Null,
    /// A value.
    Value(Vec<u8>),
}

/// The values of the columns in a document of INSERT JSON. Source: `Json.parseJson`.
///
/// # Errors
/// Not a JSON map, an unknown column, a value of another type: of several the one whose column comes first in
/// Cassandra's hash map of all columns.
pub fn columns_of<'c>(
    text: &str,
    columns: impl ExactSizeIterator<Item = (&'c str, &'c CqlType)>,
    now_millis: i64,
) -> Result<Vec<JsonColumn>, PlanError> {
    let not_map = |why: &str| {
        PlanError::invalid(format!(
            "Could not decode JSON string as a map: {why}. (String was: {text})"
        ))
    };
    let document = match parse(text) {
        Ok(Json::Map(entries)) => entries,
        Ok(Json::Null) => return refused("Got null for INSERT JSON values".to_owned()),
        Ok(other) => return Err(not_map(&format!("it is a {}", other.class()))),
        Err(why) => return Err(not_map(&why)),
    };
    let entries = fold_keys(&document);
    let mut used = vec![false; entries.len()];
    let mut found = Vec::new();
    let mut wrong: Option<(u32, PlanError)> = None;
    let slots = java_hash::slots_of(columns.len());
    for (name, ty) in columns {
        for ((key, _), used) in entries.iter().zip(&mut used) {
            *used |= key == name;
        }
        found.push(match entries.iter().rfind(|(key, _)| key == name) {
            None => JsonColumn::Missing,
            Some((_, Json::Null)) => JsonColumn::Null,
            Some((_, json)) => match from_json(ty, json, now_millis) {
                Ok(value) => JsonColumn::Value(value),
                Err(PlanError { kind, message, .. }) => {
                    let place = java_hash::slot(java_hash::hash(name.as_bytes()), slots);
                    if wrong.as_ref().is_none_or(|(first, _)| place < *first) {
                        let error =
                            PlanError::invalid(match kind == PlanErrorKind::DurationFormat {
                                true => message,
                                false => format!("Error decoding JSON value for {name}: {message}"),
                            });
                        wrong = Some((place, error));
                    }
                    JsonColumn::Missing
                }
            },
        });
    }
    if let Some((_, error)) = wrong {
        return Err(error);
    }
    match entries.iter().zip(&used).find(|(_, used)| !**used) {
        None => Ok(found),
        Some(((unknown, _), _)) => {
            refused(format!("JSON values map contains unrecognized column: {unknown}"))
        }
    }
}

/// `to_json` and `from_json`.
pub(crate) fn make(call: &Call<'_>) -> Result<Option<NativeFunction>, PlanError> {
    match call.name {
        "to_json" | "tojson" => {
            let ty = one_type(call, "any")?;
            Ok(Some(NativeFunction::made(call.name, &[ty], CqlType::Text, to_json)))
        }
        "from_json" | "fromjson" => {
            let Some(returns) = call.receiver else {
                return refused(format!(
                    "{}() cannot be used in the selection clause of a SELECT statement",
                    call.name
                ));
            };
            let [arg] = call.args else { return Err(wrong_count(call, "text")) };
            if let Some(ty) = arg.compatible_type()
                && !ty.test_assignment(&CqlType::Text).is_assignable()
            {
                return Err(wrong_argument(call, "an argument of type text", *arg, &ty));
            }
            let args = [CqlType::Text];
            Ok(Some(NativeFunction::made(call.name, &args, returns.clone(), eval_from_json)))
        }
        _ => Ok(None),
    }
}

fn to_json(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    Ok(Some(match (f.args.first(), f.arg(args, 0)) {
        (Some(ty), Some(bytes)) => ty.to_json(bytes).into_bytes(),
        _ => b"null".to_vec(),
    }))
}

fn eval_from_json(
    f: &NativeFunction,
    args: &Args<'_>,
    env: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let Some(bytes) = args.first().copied().flatten() else { return Ok(None) };
    let text = String::from_utf8_lossy(bytes);
    let json = parse(&text).map_err(|why| {
        let full = f.full_name();
        let why = format!(
            "execution of '{full}[text]' failed: Could not decode JSON string '{text}': {why}"
        );
        PlanError::function_failure(&f.name, &["text"], why)
    })?;
    if json == Json::Null {
        return Ok(None);
    }
    from_json(&f.returns, &json, env.clock.millis()).map(Some).map_err(|error| {
        // `Duration.from` throws what Cassandra does not catch here.
        if error.kind == PlanErrorKind::DurationFormat {
            return error;
        }
        PlanError::function_failure(
            &f.name,
            &["text"],
            format!("org.apache.cassandra.serializers.MarshalException: {}", error.message),
        )
    })
}

/// Any bytes as a JSON document of columns of many types.
pub fn fuzz_json(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let types = [
        ("a", CqlType::map(CqlType::Int, CqlType::list(CqlType::Decimal, true), true)),
        ("b", CqlType::vector(CqlType::Float, 2)),
        ("c", CqlType::tuple([CqlType::Timestamp, CqlType::Inet, CqlType::Varint])),
        ("d", CqlType::set(CqlType::Duration, false)),
        ("e", CqlType::Double),
    ];
    let columns = types.iter().map(|(name, ty)| (*name, ty));
    for ((_, ty), column) in types.iter().zip(columns_of(&text, columns, 0).unwrap_or_default()) {
        if let JsonColumn::Value(bytes) = column {
            stdx::invariant!(ty.validate(&bytes).is_ok(), "json: a value that is not of its type");
        }
    }
}
