//! Keys that providers made and unwrapped for this process: a bounded cache, and the key in use of each source.
//!
//! Invariant: INV-at-rest-3: the key in use of a source stays in use until another one takes its place, or nothing names
//! the source any more. Then it is in the cache.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ring::aead::{LessSafeKey, NONCE_LEN};
use stdx::Instant;

use crate::key_ring::Random;
use crate::record::{KeyRecord, Names};
use crate::secret::{DataKey, KEY_BYTES, Secret};
use crate::{Result, SealError};

/// Unwrapped keys in memory at most, beside those in use.
pub const PROVIDED_MAX: usize = 256;

/// A named key of a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeySource {
    /// Kind and host: `vault:prod`, `kms:aws`.
    pub provider: String,
    /// Name of the key there.
    pub key: String,
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key \"{}\" of {}", self.key, self.provider)
    }
}

/// A request to a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyAsk {
    /// A key to wrap with.
    New(KeySource),
    /// The key that this wrapped one is.
    Open {
        /// The named key that wraps it.
        source: KeySource,
        /// Version of the named key.
        version: u32,
        /// The key wrapped by the provider.
        envelope: Vec<u8>,
    },
}

impl KeyAsk {
    /// The named key.
    pub fn source(&self) -> &KeySource {
        match self {
            KeyAsk::New(source) | KeyAsk::Open { source, .. } => source,
        }
    }
}

/// A key that a provider made, and its form that only the provider opens.
pub struct WrappingKey {
    source: KeySource,
    version: u32,
    envelope: Vec<u8>,
    cipher: LessSafeKey,
}

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrappingKey({}, version {})", self.source, self.version)
    }
}

impl WrappingKey {
    /// The key of that secret.
    pub fn new(source: KeySource, version: u32, envelope: Vec<u8>, secret: &Secret) -> WrappingKey {
        let cipher = secret.derive(&[], "helenus data keys 1", &source.key).cipher();
        WrappingKey { source, version, envelope, cipher }
    }

    /// The named key that wraps it.
    pub fn source(&self) -> &KeySource {
        &self.source
    }

    /// Version of the named key; 0 where its provider has none.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Its form that the provider opens.
    pub fn envelope(&self) -> &[u8] {
        &self.envelope
    }

    /// Returns true if it wrapped the data key of a record.
    pub fn is_of(&self, record: &KeyRecord) -> bool {
        self.envelope == record.envelope
            && self.source.provider == record.provider
            && self.source.key == record.key
    }

    /// A new data key and its record.
    pub fn new_data_key(&self, random: Random<'_>) -> (DataKey, KeyRecord) {
        let mut bytes = [0; KEY_BYTES];
        random(&mut bytes);
        let key = DataKey::new(bytes);
        let record = self.wrap(&key, random);
        (key, record)
    }

    /// The record of a data key under this key.
    pub fn wrap(&self, key: &DataKey, random: Random<'_>) -> KeyRecord {
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce);
        let names = Names {
            provider: &self.source.provider,
            key: &self.source.key,
            version: self.version,
            envelope: &self.envelope,
        };
        KeyRecord::wrap(&names, &self.cipher, nonce, key)
    }

    /// The data key of a record that this key wrapped.
    ///
    /// # Errors
    /// `Provider`: the record is whole by its checksum, so that the provider may have given another key. It is no damage:
    /// the file must not be replaced.
    pub fn open(&self, record: &KeyRecord) -> Result<DataKey> {
        let KeySource { provider, key } = self.source.clone();
        let what = "the key that the provider unwrapped does not open it: the provider gave another key, or the \
                    record was changed";
        let failed = |_| SealError::Provider { provider, key, what: what.to_owned() };
        record.unwrap(&self.cipher).map_err(failed)
    }
}

impl KeyRecord {
    /// The named key that wraps, of a provider other than a key file. `None`: it is in a key file.
    pub fn source(&self) -> Option<KeySource> {
        let source = || KeySource { provider: self.provider.clone(), key: self.key.clone() };
        (!self.envelope.is_empty()).then(source)
    }
}

#[derive(Debug)]
struct Cached {
    key: Arc<WrappingKey>,
    used_at: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub struct ProvidedKeys {
    cached: Vec<Cached>,
    active: BTreeMap<KeySource, Arc<WrappingKey>>,
}

impl ProvidedKeys {
    /// The unwrapped key of a record.
    pub fn find(&mut self, now: Instant, record: &KeyRecord) -> Option<Arc<WrappingKey>> {
        if let Some(key) = self.active.values().find(|key| key.is_of(record)) {
            return Some(Arc::clone(key));
        }
        let cached = self.cached.iter_mut().find(|cached| cached.key.is_of(record))?;
        cached.used_at = now;
        Some(Arc::clone(&cached.key))
    }

    /// The key in use of a source.
    pub fn active(&self, source: &KeySource) -> Option<&Arc<WrappingKey>> {
        self.active.get(source)
    }

    /// Adds an unwrapped key. Above [`PROVIDED_MAX`] the one that was not used for longest is forgotten.
    pub fn insert(&mut self, now: Instant, key: Arc<WrappingKey>) {
        if self.cached.len() >= PROVIDED_MAX {
            let oldest = (0..).zip(&self.cached).min_by_key(|(_, cached)| cached.used_at);
            if let Some((at, _)) = oldest {
                self.cached.swap_remove(at);
            }
        }
        self.cached.push(Cached { key, used_at: now });
    }

    /// Forgets the key of a record that it does not open, unless it is in use.
    pub fn forget(&mut self, record: &KeyRecord) {
        self.cached.retain(|cached| !cached.key.is_of(record));
    }

    /// Puts a key into use; the one before stays in the cache.
    pub fn activate(&mut self, now: Instant, key: Arc<WrappingKey>) {
        if let Some(before) = self.active.insert(key.source.clone(), key) {
            self.insert(now, before);
        }
    }

    /// Takes the key of a source out of use: nothing names it any more. It stays in the cache.
    pub fn retire(&mut self, now: Instant, source: &KeySource) {
        if let Some(key) = self.active.remove(source) {
            self.insert(now, key);
        }
    }

    /// Forgets keys of a provider that were not used for that long, and are not in use.
    pub fn expire(&mut self, now: Instant, provider: &str, after: Duration) {
        let is_fresh = |cached: &Cached| {
            cached.key.source.provider != provider || now.since(cached.used_at) < after
        };
        self.cached.retain(is_fresh);
    }

    /// Unwrapped keys in the cache, without those in use.
    pub fn cached(&self) -> usize {
        self.cached.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, byte: u8) -> Arc<WrappingKey> {
        let source = KeySource { provider: "vault:a".to_owned(), key: name.to_owned() };
        Arc::new(WrappingKey::new(source, 3, vec![byte; 40], &Secret::new([byte; 32])))
    }

    fn record(key: &WrappingKey) -> (DataKey, KeyRecord) {
        key.new_data_key(&mut |out| out.fill(7))
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_record_of_a_provider_opens_with_its_wrapping_key_only() {
        let one = key("k", 1);
        let (data, record) = record(&one);
        let read = KeyRecord::decode(&record.encode()).unwrap();
        assert_eq!((read.version, read.envelope.len()), (3, 40));
        assert_eq!(read.source(), Some(one.source().clone()));
        assert_eq!(one.open(&read), Ok(data));
        assert!(!key("k", 2).open(&read).unwrap_err().is_damage(), "the provider may be wrong");
        let mut moved = read.clone();
        moved.envelope[0] ^= 1;
        assert!(one.open(&moved).is_err(), "the envelope is bound by the tag");
        assert!(!format!("{one:?}").contains("1, 1"), "INV-at-rest-2");
    }

    #[test]
    fn the_cache_is_bounded_forgets_what_is_unused_and_never_the_key_in_use() {
        let mut keys = ProvidedKeys::default();
        let (first, second) = (key("k", 1), key("k", 2));
        keys.activate(at(0), first.clone());
        keys.expire(at(9_000), "vault:a", Duration::from_secs(600));
        assert!(keys.find(at(9_000), &record(&first).1).is_some(), "INV-at-rest-3");
        keys.activate(at(9_000), second.clone());
        assert!(keys.find(at(9_100), &record(&first).1).is_some(), "the one before opens still");
        keys.expire(at(9_600), "vault:a", Duration::from_secs(600));
        assert!(keys.find(at(9_600), &record(&first).1).is_some(), "it was used at 9100");
        keys.expire(at(10_200), "vault:b", Duration::from_secs(600));
        assert_eq!(keys.cached(), 1, "another provider");
        keys.expire(at(10_200), "vault:a", Duration::from_secs(600));
        assert_eq!(keys.find(at(10_200), &record(&first).1).map(|_| ()), None);
        assert_eq!(keys.active(second.source()).map(|key| key.version()), Some(3));
        keys.retire(at(10_200), second.source());
        assert!(keys.active(second.source()).is_none(), "INV-at-rest-3");
        assert!(keys.find(at(10_200), &record(&second).1).is_some(), "it opens still");
        for number in 0..2 * PROVIDED_MAX {
            keys.insert(at(number as u64), key(&number.to_string(), 9));
        }
        assert_eq!(keys.cached(), PROVIDED_MAX);
        let last = key(&(2 * PROVIDED_MAX - 1).to_string(), 9);
        assert!(keys.find(at(0), &record(&last).1).is_some());
        assert!(keys.find(at(0), &record(&key("0", 9)).1).is_none());
    }
}
