//! Answers in JSON.

use at_rest::{Secret, base64};
use cql_functions::json::{self, Json};

use crate::provider::ProviderError;

/// Bytes of a key.
const KEY_BYTES: usize = 32;

/// An answer that is not one of the provider: another program may be in its place for a moment.
pub(crate) fn odd(what: &str) -> ProviderError {
    ProviderError::Unavailable(format!("the answer is not understood: {what}"))
}

pub(crate) fn decode(body: &[u8]) -> Option<Json> {
    json::parse(std::str::from_utf8(body).ok()?).ok()
}

pub(crate) fn field<'j>(json: &'j Json, name: &str) -> Option<&'j Json> {
    let Json::Map(entries) = json else { return None };
    entries.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
}

pub(crate) fn text<'j>(json: &'j Json, name: &str) -> Option<&'j str> {
    match field(json, name)? {
        Json::Text(text) => Some(text),
        _ => None,
    }
}

/// A key of 256 bits in base64.
pub(crate) fn secret(json: &Json, name: &str) -> Result<Secret, ProviderError> {
    let bytes = text(json, name).and_then(base64::decode);
    let key: Option<[u8; KEY_BYTES]> = bytes.and_then(|bytes| bytes.try_into().ok());
    key.map(Secret::new).ok_or_else(|| odd(&format!("{name} is not a key of 256 bits")))
}

/// A text as a string of JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
