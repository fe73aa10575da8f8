//! Keys of a cache, saved in files and read again after the next start.
//!
//! `<saved_caches>/<name>.<shard>`, in the envelope of small files (`docs/formats/small-files.md`): for each entry
//! the table's UUID, 16 bytes, the length of the key, 4 bytes big endian, and the key. Contents are not saved, so
//! the file need not agree with anything: a damaged one is reported and ignored. Where files are encrypted the body
//! is sealed ([`at_rest::seal_small`]), in version 3 of the form.

use std::rc::Rc;
use std::time::Duration;

use codec::SmallForm;
use rt::sync::Semaphore;
use rt::{DirEntry, Fs, IoError, SmallContent};
use sstable::Sealing;
use stdx::{TableId, Uuid};

use crate::env::Env;
use crate::env::failure::StoreFailure;
use crate::error::StoreError;

/// Delay of the first read: receivers of failures must be registered, and the work of a start comes
/// first.
pub(crate) const WARM_AFTER: Duration = Duration::from_secs(1);
/// Most bytes of a file; keys that have no room are left out.
const BYTES_MAX: usize = 64 << 20;
/// Most bytes of an encrypted file, with its envelope.
const SEALED_BYTES_MAX: usize = BYTES_MAX + BYTES_MAX / 64;

/// A cached entry: the table, and the cache's own key.
pub(crate) type Saved = (TableId, Vec<u8>);

/// A cache whose keys are saved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedCache {
    /// Name of its files.
    pub(crate) name: &'static str,
    /// Kind in the envelope of its files.
    pub(crate) kind: &'static str,
    /// Description of the entries, for errors.
    pub(crate) what: &'static str,
}

impl SavedCache {
    fn form(self) -> SmallForm {
        SmallForm { kind: self.kind, version: 2 }
    }

    /// The form of an encrypted file.
    fn sealed_form(self) -> SmallForm {
        SmallForm { kind: self.kind, version: 3 }
    }

    /// The shard that wrote a file.
    fn shard_of(self, entry: &DirEntry) -> Option<u16> {
        entry.name.strip_prefix(self.name)?.strip_prefix('.')?.parse().ok()
    }

    /// The body of a file of these keys.
    pub(crate) fn encode<'a>(self, keys: impl Iterator<Item = (TableId, &'a [u8])>) -> Vec<u8> {
        let mut out = Vec::new();
        for (table, key) in keys {
            let Ok(length) = u32::try_from(key.len()) else { continue };
            if out.len().saturating_add(key.len() + 24) > BYTES_MAX {
                break;
            }
            out.extend_from_slice(&table.0.as_u128().to_be_bytes());
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(key);
        }
        out
    }

    fn decode(mut rest: &[u8]) -> Option<Vec<Saved>> {
        let mut all = Vec::new();
        while !rest.is_empty() {
            let (table, behind) = rest.split_first_chunk::<16>()?;
            let (length, behind) = behind.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            let (key, behind) = behind.split_at_checked(length)?;
            all.push((TableId(Uuid::from_u128(u128::from_be_bytes(*table))), key.to_vec()));
            rest = behind;
        }
        Some(all)
    }
}

/// The files of saved keys of a shard.
pub(crate) struct SavedKeys {
    env: Rc<Env>,
    /// One file at a time.
    saving: Semaphore,
}

impl SavedKeys {
    pub(crate) fn new(env: Rc<Env>) -> SavedKeys {
        SavedKeys { env, saving: Semaphore::new(1) }
    }

    /// Writes the file of this shard. A failure is reported, and the next save retries.
    pub(crate) async fn save_cache(&self, cache: SavedCache, bytes: Vec<u8>) {
        let (shard, shards) = self.env.shard();
        let (fs, directory) = (self.env.rt.fs(), &self.env.options.saved_caches_directory);
        let saved = async {
            // The task that saves from time to time may be at it when the store stops: both write under one name.
            let _one = self.saving.acquire(1).await;
            fs.create_dir_durably(directory).await?;
            let path = format!("{directory}/{}.{shard}", cache.name);
            let sealing = self.env.options.sealing.of_saved_caches();
            if sealing.is_sealed() {
                let sealed = sealed_body(&fs, cache, &bytes, sealing).await?;
                fs.write_small(cache.sealed_form(), &path, &sealed).await?;
            } else {
                fs.write_small(cache.form(), &path, &bytes).await?;
            }
            if shard == 0 {
                // Files of a time with more shards.
                for entry in fs.read_dir(directory).await? {
                    if cache.shard_of(&entry).is_some_and(|of| of >= shards) {
                        fs.remove_file(&format!("{directory}/{}", entry.name)).await?;
                    }
                }
            }
            Ok::<(), StoreError>(())
        };
        if let Err(error) = saved.await {
            let what = format!("{}, in {directory}: {error}", cache.what);
            self.env.tell_failure(StoreFailure::SavedCache(what));
        }
    }

    /// Names of the files of all shards.
    pub(crate) async fn saved_files(&self, cache: SavedCache) -> Vec<String> {
        let (fs, directory) = (self.env.rt.fs(), &self.env.options.saved_caches_directory);
        let Ok(entries) = fs.read_dir(directory).await else { return Vec::new() };
        let ours = entries.iter().filter(|entry| cache.shard_of(entry).is_some());
        ours.map(|entry| format!("{directory}/{}", entry.name)).collect()
    }

    /// The keys of one file; none when it cannot be used.
    pub(crate) async fn saved_keys(&self, cache: SavedCache, path: &str) -> Vec<Saved> {
        let keys = read(&self.env.rt.fs(), cache, path).await;
        keys.unwrap_or_else(|why| {
            let what = format!("{path} is ignored and will be rewritten: {why}");
            self.env.tell_failure(StoreFailure::SavedCache(what));
            Vec::new()
        })
    }
}

/// The body of an encrypted file.
async fn sealed_body(
    fs: &Fs,
    cache: SavedCache,
    bytes: &[u8],
    sealing: &Sealing,
) -> Result<Vec<u8>, StoreError> {
    let made = fs.keys().new_data_key(sealing.source()).await;
    let (key, record) = made.map_err(|error| StoreError::Invalid(error.to_string()))?;
    let random = &mut |out: &mut [u8]| fs.random_fill(out);
    at_rest::seal_small(&key, &record, cache.name, bytes, random)
        .ok_or_else(|| StoreError::Invalid("the record of its key is too long".to_owned()))
}

/// The body of a file, decrypted if it is encrypted.
async fn read_body(fs: &Fs, cache: SavedCache, path: &str) -> Result<SmallContent, IoError> {
    let plain = fs.read_small(cache.form(), path, SEALED_BYTES_MAX).await;
    let Err(error) = plain else { return plain };
    let Ok(SmallContent::Body(body)) =
        fs.read_small(cache.sealed_form(), path, SEALED_BYTES_MAX).await
    else {
        return Err(error);
    };
    let opened = async {
        let key = fs.keys().open_data_key(&at_rest::record_of_small(&body)?).await?;
        at_rest::open_small(&key, cache.name, &body)
    };
    opened.await.map(SmallContent::Body).map_err(|error| rt::damaged(path, error))
}

/// The keys of one file; none when another shard has removed it.
async fn read(fs: &Fs, cache: SavedCache, path: &str) -> Result<Vec<Saved>, String> {
    match read_body(fs, cache, path).await {
        Ok(SmallContent::Missing) => Ok(Vec::new()),
        Ok(SmallContent::Body(body)) => SavedCache::decode(&body)
            .ok_or_else(|| "its entries are not what was written".to_owned()),
        Ok(SmallContent::Legacy(_)) => Err("it is damaged or of an earlier release".to_owned()),
        Err(error) => Err(error.detail),
    }
}

/// Damaged files of saved caches below a directory, each with the reason. They are ignored and rewritten, whether
/// the caches are in use or not; a start reports them.
pub async fn damaged_saved_caches(fs: &Fs, directory: &str) -> Vec<(String, String)> {
    let Ok(entries) = fs.read_dir(directory).await else { return Vec::new() };
    let mut damaged = Vec::new();
    for entry in &entries {
        let caches = [
            crate::read::row_cache::saved_keys::ROWS,
            crate::read::counter_cache::saved_keys::COUNTERS,
        ];
        let Some(cache) = caches.into_iter().find(|cache| cache.shard_of(entry).is_some()) else {
            continue;
        };
        let path = format!("{directory}/{}", entry.name);
        if let Err(why) = read(fs, cache, &path).await {
            damaged.push((path, why));
        }
    }
    damaged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back_and_other_bytes_are_not() {
        let table = TableId(Uuid::from_u128(7));
        let keys: [&[u8]; 3] = [b"a", b"", &[0; 300]];
        let cache = SavedCache { name: "rows", kind: "saved-rows", what: "" };
        let bytes = cache.encode(keys.iter().map(|key| (table, *key)));
        let read: Vec<Saved> = keys.iter().map(|key| (table, key.to_vec())).collect();
        assert_eq!(SavedCache::decode(&bytes), Some(read));
        assert_eq!(SavedCache::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(SavedCache::decode(&bytes[..19]), None);
    }
}
