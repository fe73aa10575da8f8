//! Inventory of a writer's segments: which exist and how many bytes of each were synced, so that a
//! segment that is deleted, emptied or cut while the node is down is noticed at the next start.
//!
//! One file per run and shard, `helenus-segments-<run>-<shard>`. Order:
//!
//! 1. A segment is listed after its bytes and its name were synced, at most once a second, and when the
//!    log is closed.
//! 2. It is taken off the list, durably, before its file is unlinked.
//! 3. Lists of earlier runs are removed before the first of their segments is: all of these are flushed
//!    then.
//!
//! So every listed segment was durable and is needed, at every moment; after a crash a list may lag
//! behind the segments, never be ahead of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use rt::sync::Semaphore;
use stdx::{Instant, IoError, IoErrorKind};

use crate::error::LogError;
use crate::format::SegmentId;
use crate::log::CommitLog;

/// Begins the names of all inventories.
pub const PREFIX: &str = "helenus-segments-";
const HEAD: &str = "helenus-segments 1\n";
/// Largest inventory, bytes: some 300,000 segments.
const BYTES_MAX: usize = 16 << 20;
/// Between two updates that only have other lengths.
const INTERVAL: Duration = Duration::from_secs(1);

/// One shard's knowledge of its own list.
pub(crate) struct Inventory {
    /// One update at a time.
    writing: Semaphore,
    written: RefCell<BTreeMap<SegmentId, u64>>,
    written_at: Cell<Instant>,
}

impl Inventory {
    pub(crate) fn new() -> Inventory {
        Inventory {
            writing: Semaphore::new(1),
            written: RefCell::default(),
            written_at: Cell::new(Instant::ZERO),
        }
    }
}

fn encode(segments: &BTreeMap<SegmentId, u64>) -> Vec<u8> {
    let mut text = HEAD.to_owned();
    for (id, bytes) in segments {
        text.push_str(&format!("segment {:016x} {bytes}\n", id.0));
    }
    let crc = codec::crc32(text.as_bytes());
    text.push_str(&format!("crc32 {crc:08x}\n"));
    text.into_bytes()
}

/// Segments and their synced bytes on the disk; `None` when these are not the bytes of an inventory.
pub fn decode(bytes: &[u8]) -> Option<BTreeMap<SegmentId, u64>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (body, crc) = text.split_at_checked(text.rfind("crc32 ")?)?;
    let crc = crc.strip_prefix("crc32 ")?.strip_suffix('\n')?;
    if u32::from_str_radix(crc, 16).ok()? != codec::crc32(body.as_bytes()) {
        return None;
    }
    let line = |line: &str| {
        let (id, bytes) = line.strip_prefix("segment ")?.split_once(' ')?;
        Some((SegmentId(u64::from_str_radix(id, 16).ok()?), bytes.parse().ok()?))
    };
    body.strip_prefix(HEAD)?.lines().map(line).collect()
}

impl CommitLog {
    fn inventory_path(&self) -> String {
        let (shard, run) = (self.shard().0.0, self.options().run);
        format!("{}/{PREFIX}{run}-{shard}", self.options().directory)
    }

    /// Steps 1 and 2: writes the list when it differs from the one on the disk; when only lengths do, at
    /// most once an interval, unless `is_last`.
    pub(crate) async fn write_inventory(&self, is_last: bool) -> Result<(), IoError> {
        let inventory = self.inventory();
        let _one = inventory.writing.acquire(1).await;
        let now = self.now();
        let listed = self.synced_segments();
        {
            let written = inventory.written.borrow();
            let is_due = is_last || now.since(inventory.written_at.get()) >= INTERVAL;
            let has_same_names = written.keys().eq(listed.keys());
            if *written == listed || (has_same_names && !is_due) {
                return Ok(());
            }
        }
        let path = self.inventory_path();
        if listed.is_empty() {
            remove(self.fs(), &path).await?;
            self.fs().sync_dir(&self.options().directory).await?;
        } else {
            let bytes = encode(&listed);
            stdx::invariant!(
                decode(&bytes).as_ref() == Some(&listed),
                "INV-log-6: an inventory of {} segments would not be read back",
                listed.len()
            );
            self.fs().write_atomic(&path, bytes).await?;
        }
        *inventory.written.borrow_mut() = listed;
        inventory.written_at.set(now);
        Ok(())
    }

    /// Paths of the lists of earlier runs.
    async fn old_inventories(&self) -> Result<Vec<String>, IoError> {
        let own = format!("{PREFIX}{}-", self.options().run);
        let entries = self.fs().read_dir(&self.options().directory).await?;
        let names = entries.into_iter().map(|entry| entry.name);
        let old = names.filter(|name| name.starts_with(PREFIX) && !name.starts_with(&own));
        Ok(old.map(|name| format!("{}/{name}", self.options().directory)).collect())
    }

    /// Compares the segments of earlier runs with their lists. Paths of lists that cannot be read.
    ///
    /// # Errors
    /// `Lost`: a segment is missing or shorter than it was; `Io`.
    pub(crate) async fn check_inventories(&self) -> Result<Vec<String>, LogError> {
        let mut damaged = Vec::new();
        for inventory in self.old_inventories().await? {
            let listed = match self.fs().read(&inventory, BYTES_MAX).await {
                Ok(bytes) => decode(&bytes),
                Err(error) if error.kind == IoErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            // A half-written file that was to be renamed proves nothing.
            let Some(listed) = listed else {
                stdx::reached!("commitlog-inventory-damaged");
                if !inventory.ends_with(".tmp") {
                    damaged.push(inventory);
                }
                continue;
            };
            let mut found = BTreeMap::new();
            for entry in self.fs().read_dir(&self.options().directory).await? {
                found.extend(SegmentId::from_file_name(&entry.name).map(|id| (id, entry.len)));
            }
            for (id, expected) in listed {
                let length = found.get(&id).copied();
                if length.is_some_and(|length| length >= expected) {
                    continue;
                }
                // Another shard removes the list before the segments.
                if inventory.ends_with(".tmp") || !self.fs().exists(&inventory).await? {
                    break;
                }
                let file = self.path_of(id);
                return Err(LogError::Lost { file, expected, found: length, inventory });
            }
        }
        Ok(damaged)
    }

    /// Step 3.
    pub(crate) async fn remove_old_inventories(&self) -> Result<(), LogError> {
        let old = self.old_inventories().await?;
        for path in &old {
            remove(self.fs(), path).await?;
        }
        if !old.is_empty() {
            self.fs().sync_dir(&self.options().directory).await?;
        }
        Ok(())
    }
}

async fn remove(fs: &rt::Fs, path: &str) -> Result<(), IoError> {
    match fs.remove_file(path).await {
        Err(error) if error.kind != IoErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_back_and_no_flip_or_cut_of_it_is() {
        let segments = BTreeMap::from([(SegmentId(0x1001), 4_096), (SegmentId(0x2001), 64)]);
        let bytes = encode(&segments);
        let head =
            b"helenus-segments 1\nsegment 0000000000001001 4096\nsegment 0000000000002001 64\n";
        assert!(bytes.starts_with(head), "{}", String::from_utf8_lossy(&bytes));
        assert_eq!(decode(&bytes).as_ref(), Some(&segments));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(decode(&bad).is_none_or(|read| read == segments), "{at}");
            assert_eq!(decode(&bytes[..at]), None, "{at}");
        }
    }
}
