//! Keys that blocks of a segment are encrypted with.
//!
//! Owns: the text of a key file, what a sealed block consists of, AES-256-GCM over it. Never: where
//! keys come from. A key is never printed.
//!
//! ```text
//! sealed: key id 4 · nonce 12 · encrypted bytes · tag 16
//! ```
//! The key id is the beginning of the key's SHA-256. The tag also covers the segment id, the block's
//! place in the file and the fields of its header, so no block is taken for another one.

use std::fmt;
use std::sync::Arc;

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use sha2::{Digest, Sha256};

const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 4;
/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
/// Bytes that a sealed block needs beside its content.
pub(crate) const SEALED_BYTES: usize = ID_BYTES + NONCE_BYTES + TAG_BYTES;
/// Keys in one file: the one in use and older ones of segments that are still there.
const KEYS_MAX: usize = 64;

/// Why a sealed block was not opened.
pub(crate) const NO_KEY: &str = "it is encrypted, and its key is not known; name the file that has it in \
     commitlog_encryption_key_file";
/// Message for an encrypted block that does not pass its check.
pub(crate) const FORGED: &str = "an encrypted block was changed after it was written; restore the file, or move \
     it away to lose its writes";

struct Key {
    id: [u8; ID_BYTES],
    cipher: Aes256Gcm,
}

/// The keys of a file; the first one encrypts, unless `none` stands before it. Cheap to clone.
#[derive(Clone)]
pub struct Keys {
    keys: Arc<Vec<Key>>,
    is_written_with: bool,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.keys.len())
    }
}

impl Keys {
    /// Reads a key file with a key of 64 hexadecimal digits on each line; the first key is for
    /// writing. After `none` on the first line all keys are for reading only. Empty lines and lines
    /// that begin with `#` are ignored.
    ///
    /// # Errors
    /// Which line is no key, none, or too many.
    pub fn parse(text: &str) -> Result<Keys, String> {
        let mut keys = Vec::new();
        let mut is_written_with = true;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line == "none" && keys.is_empty() {
                is_written_with = false;
                continue;
            }
            let bytes = key_bytes(line)
                .ok_or_else(|| format!("line {number} is no key: expects 64 hexadecimal digits"))?;
            if keys.len() == KEYS_MAX {
                return Err(format!("line {number}: there are more than {KEYS_MAX} keys"));
            }
            let digest = Sha256::digest(bytes);
            let id = digest.first_chunk::<ID_BYTES>().copied().unwrap_or_default();
            let cipher = Aes256Gcm::new(&bytes.into());
            keys.push(Key { id, cipher });
        }
        if keys.is_empty() {
            return Err("there is no key: expects a line of 64 hexadecimal digits".to_owned());
        }
        Ok(Keys { keys: Arc::new(keys), is_written_with })
    }

    /// These keys, and those of `others` for reading only.
    #[must_use]
    pub fn also_reading(&self, others: &Keys) -> Keys {
        let ids = self.keys.iter().chain(others.keys.iter());
        let keys = ids.map(|key| Key { id: key.id, cipher: key.cipher.clone() }).collect();
        Keys { keys: Arc::new(keys), is_written_with: self.is_written_with }
    }

    /// Returns true if new blocks are encrypted.
    pub fn is_written_with(&self) -> bool {
        self.is_written_with
    }

    /// Appends `content`, sealed with the first key. The nonce must never have been used before.
    pub(crate) fn seal(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        content: &[u8],
        out: &mut Vec<u8>,
    ) {
        let Some(key) = self.keys.first() else {
            stdx::invariant::broken(format_args!(
                "no key to encrypt a block with, its content would be lost"
            ))
        };
        out.extend_from_slice(&key.id);
        out.extend_from_slice(&nonce);
        let from = out.len();
        out.extend_from_slice(content);
        let sealed = out.get_mut(from..).unwrap_or_default();
        let tag = key.cipher.encrypt_inout_detached(&Nonce::from(nonce), associated, sealed.into());
        match tag {
            Ok(tag) => out.extend_from_slice(&tag),
            // Only content above 64 GiB is refused.
            Err(_) => stdx::invariant::broken(format_args!("a block is too long to be encrypted")),
        }
    }

    /// Replaces `out` with the content of sealed bytes.
    ///
    /// # Errors
    /// [`NO_KEY`], [`FORGED`].
    pub(crate) fn open(
        &self,
        associated: &[u8],
        sealed: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        let (id, rest) = sealed.split_first_chunk::<ID_BYTES>().ok_or(FORGED)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(FORGED)?;
        let (content, tag) = rest.split_last_chunk::<TAG_BYTES>().ok_or(FORGED)?;
        let key = self.keys.iter().find(|key| key.id == *id).ok_or(NO_KEY)?;
        out.clear();
        out.extend_from_slice(content);
        let (nonce, tag) = (Nonce::from(*nonce), Tag::from(*tag));
        key.cipher
            .decrypt_inout_detached(&nonce, associated, out.as_mut_slice().into(), &tag)
            .map_err(|_| FORGED)
    }
}

fn key_bytes(line: &str) -> Option<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    let (pairs, rest) = line.as_bytes().as_chunks::<2>();
    if pairs.len() != KEY_BYTES || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(lines: &[char]) -> Keys {
        let line = |c: &char| c.to_string().repeat(64);
        Keys::parse(&lines.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap()
    }

    #[test]
    fn what_was_sealed_opens_with_its_key_and_place_only() {
        let written = keys(&['a']);
        let mut sealed = Vec::new();
        written.seal([7; NONCE_BYTES], b"place", b"content", &mut sealed);
        assert_eq!(sealed.len(), b"content".len() + SEALED_BYTES);
        assert!(!sealed.windows(4).any(|w| w == b"cont"));
        let open = |keys: &Keys, place: &[u8], sealed: &[u8]| {
            let mut out = vec![1];
            keys.open(place, sealed, &mut out).map(|()| out)
        };
        // Another key is in use by now.
        assert_eq!(open(&keys(&['b', 'a']), b"place", &sealed), Ok(b"content".to_vec()));
        assert_eq!(open(&keys(&['b']), b"place", &sealed), Err(NO_KEY));
        assert_eq!(open(&written, b"elsewhere", &sealed), Err(FORGED));
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert!(open(&written, b"place", &bad).is_err(), "{at}");
            assert!(open(&written, b"place", &sealed[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn keys_for_reading_only_open_and_do_not_seal() {
        let (own, others) = (keys(&['a']), keys(&['b', 'c']));
        let both = own.also_reading(&others);
        assert!(both.is_written_with());
        let none = Keys::parse(&format!("none\n{}", "a".repeat(64))).unwrap();
        assert!(!none.also_reading(&others).is_written_with());
        let sealed_by = |keys: &Keys| {
            let mut sealed = Vec::new();
            keys.seal([7; NONCE_BYTES], b"place", b"content", &mut sealed);
            sealed
        };
        assert_eq!(sealed_by(&both), sealed_by(&own));
        for sealed in [sealed_by(&own), sealed_by(&others), sealed_by(&keys(&['c']))] {
            assert_eq!(both.open(b"place", &sealed, &mut Vec::new()), Ok(()));
        }
    }

    #[test]
    fn a_key_file_has_keys_and_nothing_else() {
        let good = format!("# of 2026\n\n  {}  \n{}\n", "0F".repeat(32), "1".repeat(64));
        assert_eq!(format!("{:?}", Keys::parse(&good).unwrap()), "2 keys");
        assert!(Keys::parse(&good).unwrap().is_written_with());
        assert!(!Keys::parse(&format!("none\n{good}")).unwrap().is_written_with());
        for bad in [
            "",
            "# none\n",
            "none",
            &format!("{good}none\n"),
            "12",
            &"g".repeat(64),
            &"1".repeat(65),
            &"é".repeat(32),
        ] {
            assert!(Keys::parse(bad).is_err(), "{bad}");
        }
        assert!(Keys::parse(&format!("{}\nx", "1".repeat(64))).unwrap_err().contains("line 2"));
        assert!(Keys::parse(&format!("{}\n", "1".repeat(64)).repeat(KEYS_MAX + 1)).is_err());
    }
}
