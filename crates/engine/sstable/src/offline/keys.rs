//! Partition keys as text. Source: `CompositeType.getString`, `fromString`.

use sst_format::header::SerializationHeader;
use types::{CqlType, TypeError};

/// A partition key as Cassandra's tools show it: the values of a composite one with colons between
/// them.
pub fn key_text(key_types: &[CqlType], key: &[u8]) -> String {
    if let [one] = key_types {
        return one.format_plain(key);
    }
    let mut r = codec::Reader::new(key, "composite key");
    let mut parts = Vec::new();
    for ty in key_types {
        let Ok(value) = r.bytes_u16() else { break };
        parts.push(escape(&ty.format_plain(value)));
        if r.u8().is_err() {
            break;
        }
    }
    parts.join(":")
}

/// The serialised key of such a text.
///
/// # Errors
/// The text is not one of the type, or has another number of values.
pub fn key_of_text(header: &SerializationHeader, text: &str) -> Result<Vec<u8>, TypeError> {
    if let [one] = header.key_types.as_slice() {
        return one.from_string(text);
    }
    let parts = split(text);
    if parts.len() != header.key_types.len() {
        return Err(TypeError::Marshal(format!(
            "'{text}' has {} values instead of {}",
            parts.len(),
            header.key_types.len()
        )));
    }
    let mut key = Vec::new();
    for (ty, part) in header.key_types.iter().zip(&parts) {
        let value = ty.from_string(part)?;
        let length = u16::try_from(value.len());
        let length =
            length.map_err(|_| TypeError::Marshal(format!("'{part}' is longer than a key")))?;
        key.extend_from_slice(&length.to_be_bytes());
        key.extend_from_slice(&value);
        key.push(0);
    }
    Ok(key)
}

fn escape(part: &str) -> String {
    let mut out = part.replace(':', "\\:");
    // Otherwise the end would escape the colon that follows.
    if out.ends_with(['\\', '!']) {
        out.push('!');
    }
    out
}

/// The values between colons that no backslash stands before.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, parts.last_mut()) {
            ('\\', Some(part)) if chars.peek() == Some(&':') => {
                part.push(':');
                chars.next();
            }
            (':', _) => parts.push(String::new()),
            (c, Some(part)) => part.push(c),
            (_, None) => {}
        }
    }
    for part in &mut parts {
        if part.ends_with("\\!") || part.ends_with("!!") {
            part.pop();
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use sst_format::EncodingStats;

    use super::*;

    fn header(key_types: Vec<CqlType>) -> SerializationHeader {
        SerializationHeader {
            stats: EncodingStats::NONE,
            key_types,
            clustering_types: Vec::new(),
            statics: Vec::new(),
            regulars: Vec::new(),
        }
    }

    #[test]
    fn keys_come_back_from_their_text() {
        let composite = header(vec![CqlType::Text, CqlType::Int]);
        for (text, parts) in
            [("a:1", ("a", 1)), ("a\\:b:-7", ("a:b", -7)), ("x!!:2", ("x!", 2)), (":3", ("", 3))]
        {
            let key = key_of_text(&composite, text).unwrap();
            let length = u8::try_from(parts.0.len()).unwrap();
            let mut expected = vec![0, length];
            expected.extend_from_slice(parts.0.as_bytes());
            expected.extend_from_slice(&[0, 0, 4]);
            expected.extend_from_slice(&i32::to_be_bytes(parts.1));
            expected.push(0);
            assert_eq!(key, expected, "{text}");
            assert_eq!(key_text(&composite.key_types, &key), text);
        }
        let single = header(vec![CqlType::Text]);
        assert_eq!(key_of_text(&single, "a:b").unwrap(), b"a:b");
        for wrong in ["a", "a:b:1", "a:x"] {
            assert!(key_of_text(&composite, wrong).is_err(), "{wrong}");
        }
    }
}
