//! The named keys that a node has in memory: the active one wraps new data keys, the others only open.

use std::fmt;

use ring::aead::{LessSafeKey, NONCE_LEN};

use crate::record::{KeyRecord, NAME_BYTES_MAX, Names};
use crate::secret::{DataKey, KEY_BYTES, Salt, Secret};
use crate::{Result, SealError};

/// Named keys of one ring at most: the active one and old ones that files still use.
pub const KEYS_MAX: usize = 256;

/// A key with an id, which wraps data keys.
pub struct NamedKey {
    id: String,
    secret: Secret,
    cipher: LessSafeKey,
}

impl fmt::Debug for NamedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedKey({})", self.id)
    }
}

impl NamedKey {
    /// A key with that id, which is cut to [`NAME_BYTES_MAX`] characters of ASCII.
    pub fn new(id: &str, secret: &Secret) -> NamedKey {
        let id: String = id.chars().filter(char::is_ascii_graphic).take(NAME_BYTES_MAX).collect();
        let cipher = secret.derive(&[], "helenus data keys 1", &id).cipher();
        NamedKey { id, secret: secret.clone(), cipher }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Derives a key for another purpose.
    pub fn derive(&self, purpose: &str) -> Secret {
        self.secret.derive(&[], purpose, &self.id)
    }
}

/// A source of random bytes.
pub type Random<'r> = &'r mut dyn FnMut(&mut [u8]);

/// See the module.
#[derive(Debug)]
pub struct KeyRing {
    provider: String,
    keys: Vec<NamedKey>,
    is_written_with: bool,
}

impl KeyRing {
    /// A ring of a provider. The first key is the active one, unless keys are for reading only.
    ///
    /// # Errors
    /// Text for the operator: no key, too many, or two with one id.
    pub fn new(
        provider: &str,
        keys: Vec<NamedKey>,
        use_of: KeyUse,
    ) -> std::result::Result<KeyRing, String> {
        if keys.is_empty() || keys.len() > KEYS_MAX {
            return Err(format!("expects 1 to {KEYS_MAX} keys, found {}", keys.len()));
        }
        let mut ids: Vec<&str> = keys.iter().map(NamedKey::id).collect();
        ids.sort_unstable();
        let twice = ids.iter().zip(ids.iter().skip(1)).find(|(one, next)| one == next);
        if let Some((id, _)) = twice {
            return Err(format!("two keys have the id \"{id}\""));
        }
        let is_written_with = use_of == KeyUse::ReadAndWrite;
        Ok(KeyRing { provider: provider.to_owned(), keys, is_written_with })
    }

    /// Name of the provider.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The keys; the active one is the first.
    pub fn keys(&self) -> &[NamedKey] {
        &self.keys
    }

    /// The key that wraps new data keys. `None`: all are for reading only.
    pub fn active(&self) -> Option<&NamedKey> {
        self.keys.first().filter(|_| self.is_written_with)
    }

    /// A new data key and its record. `None`: no key is active.
    pub fn new_data_key(&self, random: Random<'_>) -> Option<(DataKey, KeyRecord)> {
        let mut bytes = [0; KEY_BYTES];
        random(&mut bytes);
        let key = DataKey::new(bytes);
        let record = self.wrap(&key, random)?;
        Some((key, record))
    }

    /// The record of a data key under the active key. `None`: no key is active.
    pub fn wrap(&self, key: &DataKey, random: Random<'_>) -> Option<KeyRecord> {
        let active = self.active()?;
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce);
        let names = Names { provider: &self.provider, key: &active.id, version: 0, envelope: &[] };
        Some(KeyRecord::wrap(&names, &active.cipher, nonce, key))
    }

    /// The data key of a record.
    ///
    /// # Errors
    /// `MissingKey` names the provider and the key; `Record`.
    pub fn open(&self, record: &KeyRecord) -> Result<DataKey> {
        let is_ours =
            record.provider == self.provider && record.version == 0 && record.envelope.is_empty();
        let found = self.keys.iter().find(|key| key.id == record.key).filter(|_| is_ours);
        let missing = || missing_key(record);
        // The record's checksum was right, so its bytes are those that were written.
        let wrong =
            |_| SealError::WrongKey { provider: record.provider.clone(), key: record.key.clone() };
        record.unwrap(&found.ok_or_else(missing)?.cipher).map_err(wrong)
    }

    /// Returns true if a record is wrapped by the active key.
    pub fn is_current(&self, record: &KeyRecord) -> bool {
        let id = self.active().map(NamedKey::id);
        id == Some(record.key.as_str()) && record.provider == self.provider
    }
}

/// The error of a record whose named key is not known.
pub fn missing_key(record: &KeyRecord) -> SealError {
    SealError::MissingKey { provider: record.provider.clone(), key: record.key.clone() }
}

/// Use of the keys of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// The first one wraps, all open.
    ReadAndWrite,
    /// All open only: nothing new is encrypted.
    ReadOnly,
}

/// A random salt.
pub fn new_salt(random: Random<'_>) -> Salt {
    let mut salt = Salt::default();
    random(&mut salt);
    salt
}
