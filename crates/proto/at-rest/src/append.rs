//! Encryption of a file that grows by records, such as hints: each record is sealed on its own.
//!
//! The key is derived from the data key and the name of the file. The nonce is the offset of the record in the file,
//! so no two records of a file may ever be written at one offset.

use ring::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};

use crate::secret::DataKey;
use crate::{Result, SealError};

/// Bytes that a sealed record has beside its content.
pub const RECORD_OVERHEAD_BYTES: usize = 16;

/// Seals and opens the records of one file.
pub struct RecordCipher {
    cipher: LessSafeKey,
}

fn nonce(offset: u64) -> Nonce {
    let [a, b, c, d, e, f, g, h] = offset.to_le_bytes();
    let bytes: [u8; NONCE_LEN] = [2, 0, 0, 0, a, b, c, d, e, f, g, h];
    Nonce::assume_unique_for_key(bytes)
}

impl RecordCipher {
    /// The cipher of the file with that name; the data key is of this file only.
    pub fn new(key: &DataKey, name: &str) -> RecordCipher {
        RecordCipher { cipher: key.0.derive(&[], "helenus sealed records 1", name).cipher() }
    }

    /// Seals a record in place; `associated` must be the same when it is opened.
    pub fn seal(&self, offset: u64, associated: &[u8], record: &mut Vec<u8>) {
        let sealed =
            self.cipher.seal_in_place_append_tag(nonce(offset), Aad::from(associated), record);
        stdx::invariant!(sealed.is_ok(), "a record is too long to be encrypted");
    }

    /// Opens a record in place.
    ///
    /// # Errors
    /// `Damaged`: it was not sealed for this offset of this file.
    pub fn open(&self, offset: u64, associated: &[u8], record: &mut Vec<u8>) -> Result<()> {
        let opened = self.cipher.open_in_place(nonce(offset), Aad::from(associated), record);
        let what = "a record was changed, moved, or encrypted with another key";
        let length = opened.map_err(|_| SealError::Damaged { what, offset })?.len();
        record.truncate(length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_opens_at_its_offset_of_its_file_only_and_every_flip_is_seen() {
        let cipher = |key: u8, name: &str| RecordCipher::new(&DataKey::new([key; 32]), name);
        let mut sealed = b"mutation".to_vec();
        cipher(1, "a").seal(64, b"fields", &mut sealed);
        assert_eq!(sealed.len(), 8 + RECORD_OVERHEAD_BYTES);
        let open = |cipher: RecordCipher, offset, associated: &[u8], record: &[u8]| {
            let mut record = record.to_vec();
            cipher.open(offset, associated, &mut record).map(|()| record)
        };
        assert_eq!(open(cipher(1, "a"), 64, b"fields", &sealed), Ok(b"mutation".to_vec()));
        for (other, offset, associated) in [
            (cipher(2, "a"), 64, b"fields"),
            (cipher(1, "b"), 64, b"fields"),
            (cipher(1, "a"), 65, b"fields"),
            (cipher(1, "a"), 64, b"fieldz"),
        ] {
            assert!(open(other, offset, associated, &sealed).is_err());
        }
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert!(open(cipher(1, "a"), 64, b"fields", &bad).is_err(), "{at}");
            assert!(open(cipher(1, "a"), 64, b"fields", &sealed[..at]).is_err(), "{at}");
        }
    }
}
