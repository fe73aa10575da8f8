//! The part of DER that the readers of JKS and of EC keys need.

/// Tag of a SEQUENCE.
pub(crate) const SEQUENCE: u8 = 0x30;
/// Tag of an INTEGER.
pub(crate) const INTEGER: u8 = 0x02;
/// Tag of a BIT STRING.
pub(crate) const BIT_STRING: u8 = 0x03;
/// Tag of an OCTET STRING.
pub(crate) const OCTET_STRING: u8 = 0x04;
/// Tag of an OBJECT IDENTIFIER.
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
/// Tag of a constructed element that its context names 0.
pub(crate) const CONTEXT_0: u8 = 0xa0;
/// Tag of a constructed element that its context names 1.
pub(crate) const CONTEXT_1: u8 = 0xa1;

/// Returns the content of the first element, which must have this tag, and the bytes after it.
pub(crate) fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long => {
            let count = usize::from(long & 0x7f);
            if count == 0 || count > 4 {
                return None;
            }
            let (digits, rest) = rest.split_at_checked(count)?;
            let length = digits.iter().fold(0_usize, |sum, digit| sum << 8 | usize::from(*digit));
            (length, rest)
        }
    };
    rest.split_at_checked(length)
}

/// Returns an element whose content is these parts, one after the other.
pub(crate) fn encode(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut element = vec![tag];
    let digits = content.len().to_be_bytes();
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    let digits = digits.get(zeros..).unwrap_or_default();
    if content.len() >= 0x80 {
        // At most 8 digits.
        element.push(0x80 | digits.len() as u8);
    }
    match content.is_empty() {
        true => element.push(0),
        false => element.extend_from_slice(digits),
    }
    element.extend(content);
    element
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_taken_whole_or_not_at_all() {
        assert_eq!(element(&[4, 2, 7, 8, 9], OCTET_STRING), Some((&[7, 8][..], &[9][..])));
        assert_eq!(element(&[4, 0x81, 1, 7], OCTET_STRING), Some((&[7][..], &[][..])));
        assert_eq!(element(&[4, 3, 7, 8], OCTET_STRING), None);
        assert_eq!(element(&[4, 2, 7, 8], SEQUENCE), None);
        assert_eq!(element(&[4, 0x80, 0, 0], OCTET_STRING), None);
        assert_eq!(element(&[4, 0x85, 0, 0, 0, 0, 1, 7], OCTET_STRING), None);
    }

    #[test]
    fn an_element_comes_back_from_its_bytes() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x1_0000] {
            let content = vec![7; length];
            let (head, tail) = content.split_at(length / 2);
            let bytes = [encode(OCTET_STRING, &[head, tail]), vec![9]].concat();
            assert_eq!(element(&bytes, OCTET_STRING), Some((content.as_slice(), &[9][..])));
        }
        assert_eq!(encode(INTEGER, &[&[1]]), [2, 1, 1]);
        assert_eq!(encode(SEQUENCE, &[]), [0x30, 0]);
    }
}
