//! Text of the wire: UTF-8, with characters beyond the base plane as two surrogates of three bytes each.

/// Decodes text. Java's strings have no other characters than these; a lone surrogate is refused.
pub fn decode_text(bytes: &[u8]) -> Option<String> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Some(text.to_owned());
    }
    let mut out = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        if let Some((character, after)) = surrogates(rest) {
            out.push(character);
            rest = after;
            continue;
        }
        // The longest run of UTF-8: surrogates are invalid in it.
        let valid = match std::str::from_utf8(rest) {
            Ok(text) => text,
            Err(error) => {
                let (valid, _) = rest.split_at_checked(error.valid_up_to())?;
                std::str::from_utf8(valid).ok()?
            }
        };
        if valid.is_empty() {
            return None;
        }
        out.push_str(valid);
        rest = rest.get(valid.len()..)?;
    }
    Some(out)
}

/// Reads a pair of surrogates at the beginning.
fn surrogates(bytes: &[u8]) -> Option<(char, &[u8])> {
    let (&[a, b, c, d, e, f], rest) = bytes.split_first_chunk::<6>()?;
    let is_tail = |byte: u8| byte & 0xc0 == 0x80;
    let is_pair =
        a == 0xed && b & 0xf0 == 0xa0 && is_tail(c) && d == 0xed && e & 0xf0 == 0xb0 && is_tail(f);
    if !is_pair {
        return None;
    }
    let high = u32::from(b & 0x0f) << 6 | u32::from(c & 0x3f);
    let low = u32::from(e & 0x0f) << 6 | u32::from(f & 0x3f);
    Some((char::from_u32(0x1_0000 + (high << 10 | low))?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surrogates_are_joined_and_lone_ones_refused() {
        let emoji: &[u8] = b"\xed\xa0\xbd\xed\xb8\x80";
        let read = |parts: &[&[u8]]| decode_text(&parts.concat());
        assert_eq!(read(&["aä€".as_bytes()]), Some("aä€".to_owned()));
        assert_eq!(read(&["ä".as_bytes(), emoji, emoji, b"z"]), Some("ä😀😀z".to_owned()));
        assert_eq!(read(&["😀".as_bytes(), emoji]), Some("😀😀".to_owned()));
        assert_eq!(read(&[b"\xed\xaf\xbf\xed\xbf\xbf"]), Some("\u{10ffff}".to_owned()));
        assert_eq!(read(&[b"\xed\xa0\x80\xed\xb0\x80"]), Some("\u{10000}".to_owned()));
        let (high, low) = emoji.split_at(3);
        for parts in [&[high][..], &[low], &[low, high], &[high, b"a"], &[b"\xc0\x80"], &[b"a\xff"]]
        {
            assert_eq!(read(parts), None, "{parts:?}");
        }
        assert_eq!(read(&[]), Some(String::new()));
    }
}
