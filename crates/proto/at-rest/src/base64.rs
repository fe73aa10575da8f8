//! Base64 as key files and providers write keys: standard alphabet, padded.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digits = [bits >> 18, bits >> 12 & 63, bits >> 6 & 63, bits & 63];
        for (number, digit) in digits.into_iter().enumerate() {
            let index = usize::try_from(digit).unwrap_or(usize::MAX);
            let letter = ALPHABET.get(index).copied().unwrap_or(b'=');
            out.push(if number > group.len() { '=' } else { char::from(letter) });
        }
    }
    out
}

/// The bytes of a text. `None`: it is not base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (groups, rest) = text.as_bytes().as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    let mut out = Vec::new();
    for (number, group) in (1..).zip(groups) {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || padding > 0 && number < groups.len() {
            return None;
        }
        let mut bits = 0_u32;
        for byte in group {
            let digit = ALPHABET.iter().position(|letter| letter == byte);
            let digit = if *byte == b'=' { Some(0) } else { digit };
            bits = bits << 6 | u32::try_from(digit?).ok()?;
        }
        let [_, bytes @ ..] = bits.to_be_bytes();
        if group.get(..4_usize.saturating_sub(padding))?.contains(&b'=') {
            return None;
        }
        let length = 3_usize.saturating_sub(padding);
        // One spelling for each key.
        if bytes.get(length..)?.iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend_from_slice(bytes.get(..length)?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_others_are_refused() {
        let known = [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v")];
        for (bytes, text) in known {
            assert_eq!((encode(bytes), decode(text)), (text.to_owned(), Some(bytes.to_vec())));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        for bad in ["Zg=", "Zg", "Z===", "Zh==", "Zg==Zg==", "Z=g=", "Zm9?", "Zm 9"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
