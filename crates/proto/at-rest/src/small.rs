//! A small file that is sealed together with the record of its own data key.
//!
//! ```text
//! length of the record u32, little-endian · record · sealed file
//! ```

use crate::block::{open_whole, seal_whole};
use crate::key_ring::{Random, new_salt};
use crate::record::KeyRecord;
use crate::secret::DataKey;
use crate::{Result, SealError};

/// Seals bytes under a name with a data key that no other file has, and its record. `None`: the record is too long.
pub fn seal_small(
    key: &DataKey,
    record: &KeyRecord,
    name: &str,
    bytes: &[u8],
    random: Random<'_>,
) -> Option<Vec<u8>> {
    let record = record.encode();
    let mut out = u32::try_from(record.len()).ok()?.to_le_bytes().to_vec();
    out.extend_from_slice(&record);
    out.extend_from_slice(&seal_whole(key, name, new_salt(random), bytes));
    Some(out)
}

fn split(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let cut = || SealError::Damaged { what: "the file is cut", offset: 0 };
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(cut)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| cut())?;
    rest.split_at_checked(length).ok_or_else(cut)
}

/// The record of what [`seal_small`] sealed.
///
/// # Errors
/// `Damaged`, `Record`.
pub fn record_of_small(bytes: &[u8]) -> Result<KeyRecord> {
    KeyRecord::decode(split(bytes)?.0)
}

/// Opens what [`seal_small`] sealed under that name, with the data key of its record.
///
/// # Errors
/// `Damaged`.
pub fn open_small(key: &DataKey, name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    open_whole(key, name, split(bytes)?.1.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_file::{generated_line, parse_keys};

    #[test]
    fn a_small_file_opens_with_its_key_and_name_only_and_every_flip_is_seen() {
        let ring = |byte| parse_keys(&generated_line("a", [byte; 32]).unwrap()).unwrap().ring;
        let mut random = testkit::Random::new(1);
        let mut fill = |out: &mut [u8]| out.iter_mut().for_each(|byte| *byte = random.byte());
        let (key, record) = ring(1).new_data_key(&mut fill).unwrap();
        let sealed = seal_small(&key, &record, "rows", b"content", &mut fill).unwrap();
        let open = |byte, name: &str, bytes: &[u8]| {
            open_small(&ring(byte).open(&record_of_small(bytes)?)?, name, bytes)
        };
        assert_eq!(open(1, "rows", &sealed), Ok(b"content".to_vec()));
        assert!(open(1, "counters", &sealed).is_err());
        assert!(open(2, "rows", &sealed).is_err());
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert!(open(1, "rows", &bad).is_err(), "{at}");
            assert!(open(1, "rows", &sealed[..at]).is_err(), "{at}");
        }
    }
}
