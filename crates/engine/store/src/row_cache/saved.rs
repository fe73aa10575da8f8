//! Which partitions are cached, kept in a file and read again behind the next start.
//!
//! `<saved_caches>/rows.<shard>`: `helenus-rows-1` and a line feed; for each partition the table's UUID, 16 bytes,
//! the length of the key, 4 bytes big endian, and the key; the CRC-32 of all that, 4 bytes big endian. Contents are
//! not kept, so the file need not agree with anything: a damaged one is told of and is as none.

use std::time::Duration;

use rt::{DirEntry, Group};
use stdx::{IoErrorKind, TableId, Uuid};

use super::{CachedRows, HeadKeyRef};
use crate::error::StoreError;
use crate::read::ReadStats;
use crate::store::{Store, StoreFailure};

/// Nothing is read before that: whoever is told of failures, and what a start has to do, come first.
const WARM_AFTER: Duration = Duration::from_secs(1);
const HEAD: &[u8] = b"helenus-rows-1\n";
/// Most bytes of a file; keys that have no room are left out.
const BYTES_MAX: usize = 64 << 20;

/// A cached partition: its table and its key.
type Saved = (TableId, Vec<u8>);

fn encode<'a>(partitions: impl Iterator<Item = (TableId, &'a [u8])>) -> Vec<u8> {
    let mut out = HEAD.to_vec();
    for (table, key) in partitions {
        let Ok(length) = u32::try_from(key.len()) else { continue };
        if out.len().saturating_add(key.len() + 24) > BYTES_MAX {
            break;
        }
        out.extend_from_slice(&table.0.as_u128().to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(key);
    }
    let crc = codec::crc32(&out);
    out.extend_from_slice(&crc.to_be_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<Vec<Saved>> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if codec::crc32(body) != u32::from_be_bytes(*crc) {
        return None;
    }
    let mut rest = body.strip_prefix(HEAD)?;
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

/// The shard that wrote a file.
fn shard_of(entry: &DirEntry) -> Option<u16> {
    entry.name.strip_prefix("rows.")?.parse().ok()
}

impl Store {
    /// Begins to read what was saved, and saves from time to time.
    pub(crate) fn start_row_cache(&self) {
        let period = self.inner.options.row_cache_save_period;
        if period.is_zero() {
            return;
        }
        let store = self.clone();
        let task = async move {
            store.pause(WARM_AFTER).await;
            store.warm_rows().await;
            while !store.inner.stopping.get() {
                store.pause(period).await;
                store.save_rows().await;
            }
        };
        // A closed gate: the store is stopping already.
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "store-rows", task);
    }

    /// Saves which partitions are cached, if the options want that. What cannot be written is written the next
    /// time.
    pub(crate) async fn save_rows(&self) {
        let options = &self.inner.options;
        if options.row_cache_save_period.is_zero() || !self.inner.row_cache.is_on() {
            return;
        }
        let bytes = {
            let heads = self.inner.row_cache.heads.borrow();
            let tables = self.inner.tables.borrow();
            let contents = |id| tables.get(&id).map(|t| t.view.borrow().contents);
            let current = heads.iter().filter(|(key, _)| contents(key.table) == Some(key.contents));
            let keys = current.map(|(key, _)| (key.table, &*key.key));
            encode(keys.take(options.row_cache_keys_to_save))
        };
        let (shard, shards) = self.shard();
        let (fs, directory) = (self.inner.rt.fs(), &options.saved_caches_directory);
        let saved = async {
            fs.create_dir_durably(directory).await?;
            fs.write_atomic(&format!("{directory}/rows.{shard}"), bytes).await?;
            if shard == 0 {
                // Of a time with more shards.
                for entry in fs.read_dir(directory).await? {
                    if shard_of(&entry).is_some_and(|of| of >= shards) {
                        fs.remove_file(&format!("{directory}/{}", entry.name)).await?;
                    }
                }
            }
            Ok::<(), StoreError>(())
        };
        if let Err(error) = saved.await {
            let what = format!("which partitions are in the row cache, in {directory}: {error}");
            self.tell_failure(StoreFailure::SavedCache(what));
        }
    }

    /// Reads partitions that were cached when it was saved, those of this shard, whichever had them then.
    async fn warm_rows(&self) {
        let options = &self.inner.options;
        let deadline = self.inner.rt.now() + options.cache_load_max;
        let (fs, directory) = (self.inner.rt.fs(), &options.saved_caches_directory);
        let Ok(entries) = fs.read_dir(directory).await else { return };
        for entry in entries.iter().filter(|entry| shard_of(entry).is_some()) {
            let path = format!("{directory}/{}", entry.name);
            let partitions = match fs.read(&path, BYTES_MAX).await {
                Ok(bytes) => decode(&bytes).ok_or_else(|| "it is damaged".to_owned()),
                // Another shard has saved anew, and removed what was of more shards.
                Err(error) if error.kind == IoErrorKind::NotFound => continue,
                Err(error) => Err(error.to_string()),
            };
            let partitions = partitions.unwrap_or_else(|why| {
                let what = format!("{path} cannot be used, and is written anew in time: {why}");
                self.tell_failure(StoreFailure::SavedCache(what));
                Vec::new()
            });
            for saved in partitions {
                let ended = self.inner.stopping.get() || self.inner.rt.now() >= deadline;
                // What cannot be read here says so to whoever reads it.
                if ended || !self.warm_partition(&saved).await.unwrap_or(true) {
                    return;
                }
                self.inner.rt.yield_if_due().await;
            }
        }
    }

    /// False: there is no room for more.
    async fn warm_partition(&self, (id, key): &Saved) -> Result<bool, StoreError> {
        let cache = &self.inner.row_cache;
        let token = codec::token_of(key);
        let (shard, shards) = self.shard();
        let Some(table) = self.table(*id) else { return Ok(true) };
        let CachedRows::First(rows) = table.cached_rows() else { return Ok(true) };
        if (self.inner.options.shard_of)(token, shards).0 != shard {
            return Ok(true);
        }
        let stats = cache.stats();
        if stats.bytes.saturating_add(cache.head_bytes_max() as u64) > stats.capacity {
            return Ok(false);
        }
        let (shape, view) = (table.shape(), table.view());
        let of_view = HeadKeyRef { table: table.id, contents: view.contents, token, key };
        if cache.heads.borrow().peek(&of_view).is_none() {
            let mut stats = ReadStats::default();
            self.fill_head((&table, &shape), &view, (token, key), rows, &mut stats).await?;
        }
        Ok(true)
    }
}

/// Used when the options say nothing else, as in Cassandra.
pub(crate) const LOAD_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back_and_damaged_files_are_as_none() {
        let table = TableId(Uuid::from_u128(7));
        let keys: [&[u8]; 3] = [b"a", b"", &[0; 300]];
        let bytes = encode(keys.iter().map(|key| (table, *key)));
        let read: Vec<Saved> = keys.iter().map(|key| (table, key.to_vec())).collect();
        assert_eq!(decode(&bytes), Some(read));
        for at in 0..bytes.len() {
            assert_eq!(decode(&bytes[..at]), None, "{at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert_eq!(decode(&flipped), None, "{at}");
        }
    }
}
