//! The text of a key file: one key a line, the active one first.
//!
//! ```text
//! # of 2026
//! 2026-11:AES-256-GCM:<base64 of 32 bytes>
//! AES/CBC/PKCS5Padding:128:<base64 of 16 bytes>
//! 0123…ef
//! ```
//! The first form is ours. The second is that of ScyllaDB's `local-file-key-generator`: its secret is key material, its
//! cipher is not used (files are always encrypted with AES-256-GCM). The third, 64 hexadecimal digits, is that of
//! `commitlog_encryption_key_file`. Keys of the last two forms have an id made of their SHA-256. `none` on the first
//! line: all keys are for reading only.

use ring::digest::{SHA256, digest};

use crate::base64;
use crate::key_ring::{KeyRing, KeyUse, NamedKey};
use crate::secret::{self, DataKey, KEY_BYTES, Secret};

/// Name of the provider whose keys are in a file.
pub const PROVIDER: &str = "key-file";
const CIPHER: &str = "AES-256-GCM";
/// Least bytes of key material: shorter keys can be guessed.
const MATERIAL_BYTES_MIN: usize = 16;
const MATERIAL_BYTES_MAX: usize = 512;
/// Longest id of a key, bytes.
const ID_BYTES_MAX: usize = 64;

/// Why a text is no key file. Contains no part of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct KeyFileError {
    /// Number of the line, from 1; 0: the file.
    pub line: usize,
    /// The defect.
    pub what: String,
}

/// A key file that was read.
#[derive(Debug)]
pub struct KeyFile {
    /// Its keys.
    pub ring: KeyRing,
    /// Ciphers that lines of ScyllaDB's form name, and that are not used.
    pub other_ciphers: Vec<String>,
}

/// Reads a key file.
///
/// # Errors
/// The line that is no key.
pub fn parse_keys(text: &str) -> Result<KeyFile, KeyFileError> {
    let mut keys = Vec::new();
    let mut other_ciphers = Vec::new();
    let mut use_of = KeyUse::ReadAndWrite;
    for (line, words) in (1..).zip(text.lines()) {
        let words = words.trim();
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        if words == "none" && keys.is_empty() {
            use_of = KeyUse::ReadOnly;
            continue;
        }
        let key = key_of(words, &mut other_ciphers);
        keys.push(key.map_err(|what| KeyFileError { line, what: what.to_owned() })?);
    }
    let ring = KeyRing::new(PROVIDER, keys, use_of);
    let ring = ring.map_err(|what| KeyFileError { line: 0, what })?;
    Ok(KeyFile { ring, other_ciphers })
}

fn key_of(line: &str, other_ciphers: &mut Vec<String>) -> Result<NamedKey, &'static str> {
    let parts: Vec<&str> = line.split(':').collect();
    match *parts {
        [id, CIPHER, text] => {
            let bytes = base64::decode(text).ok_or("the key is not valid base64")?;
            let bytes: [u8; KEY_BYTES] =
                bytes.try_into().map_err(|_| "a key of AES-256-GCM has 32 bytes")?;
            check_id(id)?;
            Ok(NamedKey::new(id, &Secret::new(bytes)))
        }
        [cipher, bits, text] if bits.bytes().all(|b| b.is_ascii_digit()) => {
            let bytes = base64::decode(text).ok_or("the key is not valid base64")?;
            let is_length = bits.parse().ok() == bytes.len().checked_mul(8);
            if !is_length {
                return Err("the key does not have the number of bits that the line says");
            }
            if !(MATERIAL_BYTES_MIN..=MATERIAL_BYTES_MAX).contains(&bytes.len()) {
                return Err("a key of fewer than 128 bits is not taken; generate another one");
            }
            other_ciphers.push(cipher.to_owned());
            let secret = secret::derive(&bytes, &[], "helenus key material 1", "");
            Ok(NamedKey::new(&id_of(&bytes), &secret))
        }
        [digits] => {
            let bytes = hexadecimal(digits).ok_or(EXPECTED)?;
            Ok(NamedKey::new(&id_of(&bytes), &Secret::new(bytes)))
        }
        _ => Err(EXPECTED),
    }
}

const EXPECTED: &str = "expects <id>:AES-256-GCM:<base64 of 32 bytes>, ScyllaDB's <cipher>:<bits>:<base64>, or 64 \
     hexadecimal digits";

fn check_id(id: &str) -> Result<(), &'static str> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match !id.is_empty() && id.len() <= ID_BYTES_MAX && id.bytes().all(is_plain) {
        true => Ok(()),
        false => Err("the id of a key has 1 to 64 letters, digits, '-', '_' and '.'"),
    }
}

fn id_of(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    let first = digest.as_ref().iter().take(8);
    first.map(|byte| format!("{byte:02x}")).collect()
}

fn hexadecimal(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != KEY_BYTES || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(*high)?.checked_mul(16)?.checked_add(digit(*low)?)?).ok()?;
    }
    Some(bytes)
}

/// A line of a key file with a new key of random bytes.
///
/// # Errors
/// The id cannot be one.
pub fn generated_line(id: &str, random: [u8; KEY_BYTES]) -> Result<String, &'static str> {
    check_id(id)?;
    Ok(format!("{id}:{CIPHER}:{}", base64::encode(&random)))
}

/// The line of a key file of the commit log with a key derived from a data key, which a provider's key wraps.
pub fn commit_log_line(key: &DataKey) -> String {
    hexadecimal_of(&key.0.derive(&[], "helenus commit log 1", "data key"))
}

fn hexadecimal_of(secret: &Secret) -> String {
    secret.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The lines of a key file of the commit log (`commitlog_encryption_key_file`) with keys derived from those of a ring.
pub fn commit_log_lines(ring: &KeyRing) -> String {
    let mut out = String::new();
    if ring.active().is_none() {
        out.push_str("none\n");
    }
    for key in ring.keys() {
        let secret = key.derive("helenus commit log 1");
        secret.bytes().iter().for_each(|byte| out.push_str(&format!("{byte:02x}")));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_has_keys_of_three_forms_and_nothing_else() {
        let ours = generated_line("2026-11", [7; 32]).unwrap();
        let scylla = format!("AES/CBC/PKCS5Padding:128:{}", base64::encode(&[1; 16]));
        let hex = "0F".repeat(32);
        let text = format!("# of 2026\n\n {ours} \n{scylla}\n{hex}\n");
        let file = parse_keys(&text).unwrap();
        let ids: Vec<&str> = file.ring.keys().iter().map(NamedKey::id).collect();
        assert_eq!(ids.len(), 3);
        assert_eq!(file.ring.active().map(NamedKey::id), Some("2026-11"));
        assert_eq!(file.other_ciphers, ["AES/CBC/PKCS5Padding"]);
        assert!(parse_keys(&format!("none\n{text}")).unwrap().ring.active().is_none());
        assert_eq!(commit_log_lines(&file.ring).lines().count(), 3);
        for (bad, why) in [
            (String::new(), "line 0: expects 1 to 256 keys, found 0"),
            (format!("{ours}\nnone"), "line 2: expects"),
            (format!("{ours}\n{ours}"), "two keys have the id \"2026-11\""),
            (format!("a b:AES-256-GCM:{}", base64::encode(&[1; 32])), "the id of a key"),
            (format!("a:AES-256-GCM:{}", base64::encode(&[1; 31])), "has 32 bytes"),
            ("a:AES-256-GCM:?".to_owned(), "not valid base64"),
            (format!("DES/CBC:56:{}", base64::encode(&[1; 7])), "fewer than 128 bits"),
            (format!("AES/CBC:256:{}", base64::encode(&[1; 16])), "the number of bits"),
            ("12".to_owned(), "expects <id>"),
        ] {
            let error = parse_keys(&bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn no_output_contains_a_key() {
        let ring = parse_keys(&generated_line("a", [0xAB; 32]).unwrap()).unwrap().ring;
        let fill = |out: &mut [u8]| out.fill(if out.len() == KEY_BYTES { 0xCD } else { 1 });
        let text = format!("{ring:?} {:?}", ring.new_data_key(&mut { fill }).map(|(key, _)| key));
        assert!(!text.contains("171") && !text.contains("205"), "INV-at-rest-2: {text}");
    }
}
