//! The record of a data key: the named key that it is wrapped by, and its wrapped form.
//!
//! In the envelope of small files, kind `encryption`. Body, integers little-endian:
//!
//! ```text
//! provider: length u8, UTF-8 · key id: length u8, UTF-8 · key version u32
//! · wrapping key as its provider wrapped it: length u16, bytes (none: the named key itself wraps)
//! · nonce 12 · wrapped data key 32 · tag 16
//! ```
//! The tag also covers everything before the nonce.

use codec::{Reader, SmallForm};
use ring::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};

use crate::secret::{DataKey, KEY_BYTES};
use crate::{Result, SealError};

const FORM: SmallForm = SmallForm { kind: "encryption", version: 1 };
const TAG_BYTES: usize = 16;
/// Longest name of a provider or a key, bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest wrapping key as wrapped by a provider, bytes.
pub const ENVELOPE_BYTES_MAX: usize = 4096;
/// Largest record, bytes.
pub const RECORD_BYTES_MAX: usize = 8192;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Name of the provider of the named key.
    pub provider: String,
    /// Id of the named key.
    pub key: String,
    /// Version of the named key; 0 where its provider has none.
    pub version: u32,
    /// The wrapping key as the provider wrapped it; empty: the named key wraps.
    pub envelope: Vec<u8>,
    nonce: [u8; NONCE_LEN],
    wrapped: [u8; KEY_BYTES + TAG_BYTES],
}

/// The names in a record, before a data key is wrapped.
#[derive(Clone, Debug)]
pub(crate) struct Names<'a> {
    pub(crate) provider: &'a str,
    pub(crate) key: &'a str,
    pub(crate) version: u32,
    pub(crate) envelope: &'a [u8],
}

impl KeyRecord {
    /// Wraps a data key. The nonce is random.
    pub(crate) fn wrap(
        names: &Names<'_>,
        cipher: &LessSafeKey,
        nonce: [u8; NONCE_LEN],
        key: &DataKey,
    ) -> KeyRecord {
        let mut record = KeyRecord {
            provider: names.provider.to_owned(),
            key: names.key.to_owned(),
            version: names.version,
            envelope: names.envelope.to_vec(),
            nonce,
            wrapped: [0; KEY_BYTES + TAG_BYTES],
        };
        let mut sealed = *key.0.bytes();
        let aad = Aad::from(record.head());
        let nonce = Nonce::assume_unique_for_key(nonce);
        match cipher.seal_in_place_separate_tag(nonce, aad, &mut sealed) {
            Ok(tag) => {
                let bytes = sealed.iter().chain(tag.as_ref());
                record.wrapped.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            }
            Err(_) => stdx::invariant::broken(format_args!("a data key is too long to be wrapped")),
        }
        record
    }

    pub(crate) fn unwrap(&self, cipher: &LessSafeKey) -> Result<DataKey> {
        let mut bytes = self.wrapped;
        let nonce = Nonce::assume_unique_for_key(self.nonce);
        let opened = cipher.open_in_place(nonce, Aad::from(self.head()), &mut bytes);
        let key = opened.ok().and_then(|plain| plain.first_chunk::<KEY_BYTES>().copied());
        let what = "its named key does not open it: it was changed, or another key has that id";
        key.map(DataKey::new).ok_or_else(|| SealError::Record(what.to_owned()))
    }

    fn head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for name in [&self.provider, &self.key] {
            out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(name.as_bytes());
        }
        out.extend_from_slice(&self.version.to_le_bytes());
        let length = u16::try_from(self.envelope.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&self.envelope);
        out
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.head();
        body.extend_from_slice(&self.nonce);
        body.extend_from_slice(&self.wrapped);
        FORM.encode(&body)
    }

    /// Reads the bytes of the file.
    ///
    /// # Errors
    /// `Record`.
    pub fn decode(bytes: &[u8]) -> Result<KeyRecord> {
        let body = FORM.decode(bytes).map_err(|defect| SealError::Record(defect.to_string()))?;
        let mut r = Reader::new(body, "encryption record");
        let record = read(&mut r).map_err(|error| SealError::Record(error.to_string()))?;
        if record.envelope.len() > ENVELOPE_BYTES_MAX {
            return Err(SealError::Record("a wrapping key that is too long".to_owned()));
        }
        Ok(record)
    }
}

fn read(r: &mut Reader<'_>) -> std::result::Result<KeyRecord, codec::DecodeError> {
    let mut name = || {
        let length = usize::from(r.u8()?);
        Ok::<_, codec::DecodeError>(r.utf8(length)?.to_owned())
    };
    let (provider, key) = (name()?, name()?);
    let version = u32::from_le_bytes(r.array()?);
    let length = usize::from(u16::from_le_bytes(r.array()?));
    let envelope = r.bytes(length)?.to_vec();
    let record =
        KeyRecord { provider, key, version, envelope, nonce: r.array()?, wrapped: r.array()? };
    r.finish()?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_file::{generated_line, parse_keys};

    #[test]
    fn a_record_comes_back_every_flip_is_seen_and_the_bytes_are_as_documented() {
        let ring = |id, byte| parse_keys(&generated_line(id, [byte; 32]).unwrap()).unwrap().ring;
        let fill = |out: &mut [u8]| out.fill(5);
        let (key, record) = ring("2026-11", 1).new_data_key(&mut { fill }).unwrap();
        let bytes = record.encode();
        let body = FORM.decode(&bytes).unwrap();
        // Provider, key id, version, no wrapping key, nonce.
        assert_eq!(&body[..29], b"\x08key-file\x072026-11\0\0\0\0\0\0\x05\x05\x05\x05\x05\x05");
        assert_eq!(body.len(), 9 + 8 + 4 + 2 + 12 + 48);
        let read = KeyRecord::decode(&bytes).unwrap();
        assert_eq!(read, record);
        assert_eq!(ring("2026-11", 1).open(&read), Ok(key.clone()));
        let other = ring("2026-11", 2).open(&read).unwrap_err();
        assert!(matches!(other, SealError::WrongKey { .. }) && !other.is_damage(), "{other}");
        assert!(!ring("2026-12", 1).open(&read).unwrap_err().is_damage(), "it is not known");
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(KeyRecord::decode(&bad).is_err(), "{at}");
            assert!(KeyRecord::decode(&bytes[..at]).is_err(), "{at}");
        }
        // Without the checksum the tag finds each change.
        for at in 0..body.len() {
            let mut bad = body.to_vec();
            bad[at] ^= 1;
            let decoded = KeyRecord::decode(&FORM.encode(&bad));
            let opened = decoded.and_then(|record| ring("2026-11", 1).open(&record));
            assert!(opened.is_err(), "{at}");
        }
        // Rotation: the same data key under another named key.
        let other = ring("2026-12", 9).wrap(&key, &mut { fill }).unwrap();
        assert_eq!(ring("2026-12", 9).open(&other), Ok(key));
    }
}
