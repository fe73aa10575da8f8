//! Components of composite partition keys.

/// Components of a composite key: each its length in two bytes, itself, a zero byte.
pub(crate) fn composite_parts(mut key: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some((length, rest)) = key.split_first_chunk::<2>() {
        let Some((part, rest)) = rest.split_at_checked(u16::from_be_bytes(*length).into()) else {
            break;
        };
        parts.push(part);
        key = rest.get(1..).unwrap_or_default();
    }
    parts
}
