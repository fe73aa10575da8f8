//! Inventory of a writer's segments: which exist and how many bytes of each were synced, so that a
//! segment that is deleted, emptied or cut while the node is down is noticed at the next start.
//!
//! One file per run and shard, `<run>-<shard>` in a directory of the node's metadata, so that it does not
//! vanish with the segments. Order:
//!
//! 1. The list exists before the first append of its run ([`CommitLog::begin`]), after the directory's mark
//!    has the number of the run ([`crate::directory`]). No list of the run exists before: replayed rows may be
//!    appended again while they are flushed, and the mark is still that of an earlier run.
//! 2. A segment is listed after its bytes and its name were synced, at most once a second, and when the
//!    log is closed.
//! 3. It is taken off the list, durably, before its file is unlinked. The list is removed when the log is
//!    closed and empty.
//! 4. Lists of earlier runs are removed before the first of their segments is: all of these are flushed
//!    then.
//!
//! So every listed segment was durable and is needed, at every moment; after a crash a list may be
//! older than the segments, never newer. Where a list exists the log may hold writes.
//!
//! Losses that the operator accepted are in the file [`ACCEPTED`] beside the lists, in the form of a list: damaged
//! segments and how far they were intact, 0 for a missing one. A crash before the log of earlier runs is released does
//! not make the next start refuse them again. The file is removed when that log is.
//!
//! Earlier releases had lists `helenus-segments-<run>-<shard>` beside the segments; they are read and removed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use codec::SmallForm;
use rt::sync::Semaphore;
use rt::{Fs, SmallContent};
use stdx::{Instant, IoError, IoErrorKind};

use crate::error::{self, LogError};
use crate::format::SegmentId;
use crate::log::CommitLog;

/// Begins the names of lists of earlier releases.
pub const FORMER_PREFIX: &str = "helenus-segments-";
const FORMER_HEAD: &str = "helenus-segments 1\n";
/// Kind and version of a list.
pub const FORM: SmallForm = SmallForm { kind: "segments", version: 2 };
/// Name of the file of accepted losses, beside the lists.
const ACCEPTED: &str = "accepted";
/// Largest inventory, bytes: some 300,000 segments.
const BYTES_MAX: usize = 16 << 20;
/// Between two updates that only have other lengths.
const INTERVAL: Duration = Duration::from_secs(1);

/// One shard's knowledge of its own list.
pub(crate) struct Inventory {
    /// One update at a time.
    writing: Semaphore,
    /// Segments of the list on the disk; `None`: it does not exist.
    written: RefCell<Option<BTreeMap<SegmentId, u64>>>,
    written_at: Cell<Instant>,
    /// The list exists until the log is closed and empty.
    begun: Cell<bool>,
}

/// When a list is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Update {
    /// At most once an interval when only lengths differ.
    Routine,
    /// In any case.
    Now,
}

impl Inventory {
    pub(crate) fn new() -> Inventory {
        Inventory {
            writing: Semaphore::new(1),
            written: RefCell::default(),
            written_at: Cell::new(Instant::ZERO),
            begun: Cell::new(false),
        }
    }
}

fn encode(segments: &BTreeMap<SegmentId, u64>) -> Vec<u8> {
    let line = |(id, bytes): (&SegmentId, &u64)| format!("segment {:016x} {bytes}\n", id.0);
    segments.iter().map(line).collect::<String>().into_bytes()
}

/// Segments and their synced bytes on the disk; `None`: this is not the body of a list.
pub fn decode(body: &[u8]) -> Option<BTreeMap<SegmentId, u64>> {
    let text = std::str::from_utf8(body).ok()?;
    let line = |line: &str| {
        let (id, bytes) = line.strip_prefix("segment ")?.split_once(' ')?;
        Some((SegmentId(u64::from_str_radix(id, 16).ok()?), bytes.parse().ok()?))
    };
    text.lines().map(line).collect()
}

/// The same for the whole file of a list of an earlier release.
pub fn decode_former(bytes: &[u8]) -> Option<BTreeMap<SegmentId, u64>> {
    decode(codec::open_text(bytes, FORMER_HEAD)?.as_bytes())
}

/// A list, as its name says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListFile {
    pub(crate) run: u64,
    pub(crate) path: String,
    /// An earlier release wrote it.
    is_former: bool,
    /// It was to be renamed: it proves nothing.
    is_unfinished: bool,
}

impl ListFile {
    /// `former`: the name is that of an earlier release.
    fn parse(directory: &str, file_name: &str, is_former: bool) -> Option<ListFile> {
        let name = if is_former { file_name.strip_prefix(FORMER_PREFIX)? } else { file_name };
        let (name, is_unfinished) = match name.strip_suffix(".tmp") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (run, shard) = name.split_once('-')?;
        let _: u16 = shard.parse().ok()?;
        let path = format!("{directory}/{file_name}");
        Some(ListFile { run: run.parse().ok()?, path, is_former, is_unfinished })
    }
}

/// Lists of all runs and shards.
#[derive(Clone, Copy)]
pub(crate) struct Lists<'a> {
    pub(crate) fs: &'a Fs,
    /// Where they are.
    pub(crate) directory: &'a str,
    /// Where earlier releases had theirs.
    pub(crate) log_directory: &'a str,
}

impl Lists<'_> {
    pub(crate) async fn all(&self) -> Result<Vec<ListFile>, IoError> {
        let mut out = Vec::new();
        for (directory, is_former) in [(self.directory, false), (self.log_directory, true)] {
            let entries = match self.fs.read_dir(directory).await {
                Ok(entries) => entries,
                Err(error) if error.kind == IoErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let parse = |name: &str| ListFile::parse(directory, name, is_former);
            out.extend(entries.iter().filter_map(|entry| parse(&entry.name)));
        }
        Ok(out)
    }

    /// The newest run of the present form whose log may hold writes.
    pub(crate) async fn last_run(&self) -> Result<Option<u64>, IoError> {
        let all = self.all().await?;
        let counts = |list: &&ListFile| !list.is_former && !list.is_unfinished;
        Ok(all.iter().filter(counts).map(|list| list.run).max())
    }

    /// `None`: it does not exist any more. `Some(None)`: it is damaged.
    async fn read(&self, list: &ListFile) -> Result<Option<Option<Segments>>, IoError> {
        if list.is_former {
            return match self.fs.read(&list.path, BYTES_MAX).await {
                Ok(bytes) => Ok(Some(decode_former(&bytes))),
                Err(error) if error.kind == IoErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            };
        }
        match self.fs.read_small(FORM, &list.path, BYTES_MAX).await {
            Ok(SmallContent::Missing) => Ok(None),
            Ok(SmallContent::Legacy(_)) => Ok(Some(None)),
            Ok(SmallContent::Body(body)) => Ok(Some(decode(&body))),
            Err(error) if error.kind == IoErrorKind::Damaged => Ok(Some(None)),
            Err(error) => Err(error),
        }
    }
}

pub(crate) type Segments = BTreeMap<SegmentId, u64>;

/// Result of comparing segments with their lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Lists that cannot be read.
    pub(crate) damaged: Vec<String>,
    /// Descriptions of lost segments, which the operator accepted.
    pub(crate) lost: Vec<String>,
    /// These segments, and how far each is intact.
    pub(crate) accepted: Segments,
}

impl CommitLog {
    fn inventory_path(&self) -> String {
        let (shard, run) = (self.shard().0.0, self.options().run);
        format!("{}/{run}-{shard}", self.options().inventories)
    }

    fn lists(&self) -> Lists<'_> {
        Lists {
            fs: self.fs(),
            directory: &self.options().inventories,
            log_directory: &self.options().directory,
        }
    }

    /// Step 1, and step 4 if no segment of an earlier run is left. To be called after the replay and
    /// [`LogDirectory::claim`](crate::LogDirectory::claim), before the first append.
    ///
    /// # Errors
    /// `Io`: the list could not be written.
    pub async fn begin(&self) -> Result<(), LogError> {
        self.inventory().begun.set(true);
        self.write_inventory(Update::Now).await?;
        if self.old_segments().is_empty() {
            self.remove_old_inventories().await?;
            self.forget_accepted().await?;
        }
        Ok(())
    }

    /// Steps 2 and 3: writes the list when it differs from the one on the disk.
    pub(crate) async fn write_inventory(&self, update: Update) -> Result<(), IoError> {
        let inventory = self.inventory();
        let _one = inventory.writing.acquire(1).await;
        // The directory's mark may be that of an earlier run: with a list of this one the directory would count as
        // an older copy (INV-log-7).
        if !inventory.begun.get() {
            return Ok(());
        }
        let now = self.now();
        let listed = self.synced_segments();
        let exists = !listed.is_empty() || !self.is_released();
        let wanted = exists.then_some(listed);
        {
            let written = inventory.written.borrow();
            let is_due = update == Update::Now || now.since(inventory.written_at.get()) >= INTERVAL;
            let has_same_names = match (&*written, &wanted) {
                (Some(written), Some(wanted)) => written.keys().eq(wanted.keys()),
                _ => false,
            };
            if *written == wanted || (has_same_names && !is_due) {
                return Ok(());
            }
        }
        let path = self.inventory_path();
        match &wanted {
            None => {
                remove(self.fs(), &path).await?;
                self.fs().sync_dir(&self.options().inventories).await?;
            }
            Some(listed) => {
                let body = encode(listed);
                stdx::invariant!(
                    decode(&body).as_ref() == Some(listed),
                    "INV-log-6: an inventory of {} segments would not be read back",
                    listed.len()
                );
                self.fs().write_small(FORM, &path, &body).await?;
            }
        }
        *inventory.written.borrow_mut() = wanted;
        inventory.written_at.set(now);
        Ok(())
    }

    /// Lists of earlier runs.
    async fn old_inventories(&self) -> Result<Vec<ListFile>, IoError> {
        let mut all = self.lists().all().await?;
        all.retain(|list| list.run != self.options().run);
        Ok(all)
    }

    /// Value of the setting that accepts losses of this log: the newest earlier run; 0 when no list exists.
    pub(crate) async fn accept_value(&self) -> Result<u64, IoError> {
        let old = self.old_inventories().await?;
        Ok(old.iter().filter(|l| !l.is_unfinished).map(|l| l.run).max().unwrap_or(0))
    }

    /// Losses that the operator accepted at an earlier start.
    pub(crate) async fn accepted_losses(&self) -> Result<Segments, IoError> {
        match self.fs().read_small(FORM, &self.accepted_path(), BYTES_MAX).await {
            Ok(SmallContent::Body(body)) => Ok(decode(&body).unwrap_or_default()),
            Ok(SmallContent::Missing | SmallContent::Legacy(_)) => Ok(Segments::new()),
            // The losses are refused again.
            Err(error) if error.kind == IoErrorKind::Damaged => Ok(Segments::new()),
            Err(error) => Err(error),
        }
    }

    /// Persists the losses that a completed replay accepted. On one shard: each finds the same.
    pub(crate) async fn remember_accepted(&self, losses: &Segments) -> Result<(), IoError> {
        if losses.is_empty() || self.shard().0.0 != 0 || self.accepted_losses().await? == *losses {
            return Ok(());
        }
        self.fs().create_dir_durably(&self.options().inventories).await?;
        self.fs().write_small(FORM, &self.accepted_path(), &encode(losses)).await
    }

    /// To be called when no segment of an earlier run is left.
    pub(crate) async fn forget_accepted(&self) -> Result<(), IoError> {
        let path = self.accepted_path();
        if self.fs().exists(&path).await? {
            remove(self.fs(), &path).await?;
            self.fs().sync_dir(&self.options().inventories).await?;
        }
        Ok(())
    }

    fn accepted_path(&self) -> String {
        format!("{}/{ACCEPTED}", self.options().inventories)
    }

    /// Compares the segments of earlier runs with their lists. `accept`: the value that accepts losses; `known`:
    /// those that were accepted already.
    ///
    /// # Errors
    /// `Lost`: a segment is missing or shorter than it was, and that is not accepted; `Io`.
    pub(crate) async fn check_inventories(
        &self,
        accept: u64,
        known: &Segments,
    ) -> Result<Compared, LogError> {
        let mut compared = Compared::default();
        for list in self.old_inventories().await?.into_iter().filter(|list| !list.is_unfinished) {
            let Some(listed) = self.lists().read(&list).await? else { continue };
            let Some(listed) = listed else {
                stdx::reached!("commitlog-inventory-damaged");
                compared.damaged.push(list.path);
                continue;
            };
            let mut present = BTreeMap::new();
            for entry in self.fs().read_dir(&self.options().directory).await? {
                present.extend(SegmentId::from_file_name(&entry.name).map(|id| (id, entry.len)));
            }
            for (id, expected) in listed {
                let found = present.get(&id).copied();
                if found.is_some_and(|length| length >= expected) {
                    continue;
                }
                // Another shard removes the list before the segments.
                if !self.fs().exists(&list.path).await? {
                    break;
                }
                let (file, inventory) = (self.path_of(id), list.path.clone());
                let intact = found.unwrap_or(0);
                let is_known = known.get(&id).is_some_and(|length| intact >= *length);
                if !is_known && self.options().accept_loss != Some(accept) {
                    return Err(LogError::Lost { file, expected, found, inventory, accept });
                }
                let what = error::loss(found, expected, &inventory, accept);
                compared.lost.push(format!("{file} {what}"));
                compared.accepted.insert(id, intact);
            }
        }
        Ok(compared)
    }

    /// Step 4.
    pub(crate) async fn remove_old_inventories(&self) -> Result<(), LogError> {
        let old = self.old_inventories().await?;
        for list in &old {
            remove(self.fs(), &list.path).await?;
        }
        if old.iter().any(|list| !list.is_former) {
            self.fs().sync_dir(&self.options().inventories).await?;
        }
        if old.iter().any(|list| list.is_former) {
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
        let body = encode(&segments);
        let text = "segment 0000000000001001 4096\nsegment 0000000000002001 64\n";
        assert_eq!(body, text.as_bytes());
        assert_eq!(decode(&body).as_ref(), Some(&segments));
        // The golden bytes of the present form, and of that of earlier releases.
        let file = FORM.encode(&body);
        assert_eq!(file, format!("helenus-file segments 2\n{text}crc32 e27b3ad7\n").as_bytes());
        let former = codec::seal_text(format!("{FORMER_HEAD}{text}"));
        assert!(former.ends_with(b"crc32 2953aac0\n"), "{}", String::from_utf8_lossy(&former));
        assert_eq!(decode_former(&former).as_ref(), Some(&segments));
        for at in 0..former.len() {
            let mut bad = former.clone();
            bad[at] ^= 1;
            assert!(decode_former(&bad).is_none_or(|read| read == segments), "{at}");
            assert_eq!(decode_former(&former[..at]), None, "{at}");
        }
        assert_eq!(decode(b"segment 1 x\n"), None);
        assert_eq!(decode(b"run 1\n"), None);
    }

    #[test]
    fn only_names_of_lists_are_lists() {
        let list = |name: &str, is_former| ListFile::parse("d", name, is_former);
        assert_eq!(list("17-0", false).map(|list| list.run), Some(17));
        assert!(list("17-3.tmp", false).is_some_and(|list| list.is_unfinished));
        assert_eq!(list("helenus-segments-17-0", true).map(|list| list.run), Some(17));
        for name in ["directory", "17", "17-x", "x-0", "17-0-1", "17-0.bak", ""] {
            assert_eq!(list(name, false), None, "{name}");
        }
        assert_eq!(list("17-0", true), None);
    }
}
