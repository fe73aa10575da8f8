//! Partition keys in memory.

use std::fmt;
use std::ops::Deref;

/// Bytes of a key that has no allocation of its own: with a length and a mark they make 24.
const SHORT_MAX: usize = 22;

/// A partition key. Short keys, which most are, are stored inline, so that a scan of partitions
/// waits for memory once less.
#[derive(Clone)]
pub(crate) struct Key(Form);

#[derive(Clone)]
enum Form {
    Short { length: u8, bytes: [u8; SHORT_MAX] },
    Long(Box<[u8]>),
}

const _: () = assert!(size_of::<Key>() == 24);

impl From<&[u8]> for Key {
    #[inline]
    fn from(key: &[u8]) -> Key {
        let mut bytes = [0; SHORT_MAX];
        match (u8::try_from(key.len()), bytes.get_mut(..key.len())) {
            (Ok(length), Some(room)) => {
                room.copy_from_slice(key);
                Key(Form::Short { length, bytes })
            }
            _ => Key(Form::Long(key.into())),
        }
    }
}

impl Deref for Key {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or(bytes),
            Form::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_are_what_they_were() {
        for length in (0..300).chain([65_535]) {
            let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8 + 1).collect();
            let key = Key::from(bytes.as_slice());
            assert_eq!(*key, *bytes);
            assert_eq!(*key.clone(), *bytes);
            assert_eq!(matches!(key.0, Form::Short { .. }), length <= SHORT_MAX);
        }
    }
}
