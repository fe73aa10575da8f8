//! The part of a DER parser that the JKS reader needs.

/// Tag of a SEQUENCE.
pub(crate) const SEQUENCE: u8 = 0x30;
/// Tag of an OCTET STRING.
pub(crate) const OCTET_STRING: u8 = 0x04;
/// Tag of an OBJECT IDENTIFIER.
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;

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
}
