//! A small file that is sealed together with the record of its own data key.
//!
//! ```text
//! length of the record u32, little-endian · record · sealed file
//! ```

use crate::block::{open_whole, seal_whole};
use crate::key_ring::{KeyRing, Random, new_salt};
use crate::record::KeyRecord;
use crate::{Result, SealError};

/// Seals bytes under a name. `None`: no key is active.
pub fn seal_small(ring: &KeyRing, name: &str, bytes: &[u8], random: Random<'_>) -> Option<Vec<u8>> {
    let (key, record) = ring.new_data_key(random)?;
    let record = record.encode();
    let mut out = u32::try_from(record.len()).ok()?.to_le_bytes().to_vec();
    out.extend_from_slice(&record);
    out.extend_from_slice(&seal_whole(&key, name, new_salt(random), bytes));
    Some(out)
}

/// Opens what [`seal_small`] sealed under that name.
///
/// # Errors
/// `Damaged`, `Record`, `MissingKey`; without keys `MissingKey` too.
pub fn open_small(ring: Option<&KeyRing>, name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let cut = || SealError::Damaged { what: "the file is cut", offset: 0 };
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(cut)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| cut())?;
    let (record, sealed) = rest.split_at_checked(length).ok_or_else(cut)?;
    let record = KeyRecord::decode(record)?;
    let ring = ring.ok_or_else(|| crate::key_ring::missing_key(&record))?;
    open_whole(&ring.open(&record)?, name, sealed.to_vec())
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
        let sealed = seal_small(&ring(1), "rows", b"content", &mut fill).unwrap();
        assert_eq!(open_small(Some(&ring(1)), "rows", &sealed), Ok(b"content".to_vec()));
        assert!(open_small(Some(&ring(1)), "counters", &sealed).is_err());
        assert!(open_small(Some(&ring(2)), "rows", &sealed).is_err());
        let missing = open_small(None, "rows", &sealed).unwrap_err();
        assert!(missing.to_string().contains("key \"a\" of key-file"), "{missing}");
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert!(open_small(Some(&ring(1)), "rows", &bad).is_err(), "{at}");
            assert!(open_small(Some(&ring(1)), "rows", &sealed[..at]).is_err(), "{at}");
        }
    }
}
