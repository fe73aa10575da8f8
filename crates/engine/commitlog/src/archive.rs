//! Segments outside the commit log: the archive of finished ones, and restoring them.
//!
//! A segment is archived when it is finished and synced, and in any case before it is deleted
//! (INV-log-5). A crash may prevent every later step of the order: 1. it is synced; 2. it is
//! linked into the archive, or copied under another name, synced and renamed; 3. the archive's
//! directory is synced; 4. it may be deleted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use rt::sync::Semaphore;
use rt::{Buf, File, Fs, IoError, OpenOptions, Rt};
use stdx::IoErrorKind;

use crate::error::LogError;
use crate::format::{HEADER_BYTES, LogPosition, SegmentHeader, SegmentId};
use crate::log::CommitLog;
use crate::replay::is_note_of;
use crate::scan::PIECE_BYTES;

/// The archive of one shard's log.
pub(crate) struct Archive {
    fs: Fs,
    directory: String,
    /// Temporary path of an incomplete copy, so that shards do not collide.
    unfinished: String,
    /// This run's segments that are in it.
    done: RefCell<BTreeSet<SegmentId>>,
    busy: Cell<bool>,
    /// One segment at a time: a sync and a release may come to the same one, and both would copy to
    /// the one unfinished file.
    slot: Semaphore,
    /// Why the last segment was not archived, and true once that was reported.
    error: RefCell<Option<(IoError, bool)>>,
    archived_total: telemetry::Counter,
    failures_total: telemetry::Counter,
}

impl Archive {
    pub(crate) async fn open(rt: &Rt, directory: &str) -> Result<Archive, LogError> {
        let fs = rt.fs();
        fs.create_dir_durably(directory).await?;
        let telemetry = rt.telemetry();
        Ok(Archive {
            fs,
            directory: directory.to_owned(),
            unfinished: format!("unfinished-{}", rt.shard().0),
            done: RefCell::default(),
            busy: Cell::new(false),
            slot: Semaphore::new(1),
            error: RefCell::default(),
            archived_total: telemetry.counter(
                "commitlog_archived_segments_total",
                "commit-log segments that were archived",
                &[],
            ),
            failures_total: telemetry.counter(
                "commitlog_archive_failures_total",
                "attempts to archive a commit-log segment that failed",
                &[],
            ),
        })
    }

    /// Steps 2 and 3 for a segment that is synced; false: it failed, for a reason that is kept.
    pub(crate) async fn put(&self, path: &str, id: SegmentId) -> bool {
        let _slot = self.slot.acquire(1).await;
        match self.try_put(path, id).await {
            Ok(()) => {
                self.archived_total.inc();
                *self.error.borrow_mut() = None;
                true
            }
            Err(error) => {
                self.failed(error);
                false
            }
        }
    }

    fn failed(&self, error: IoError) {
        self.failures_total.inc();
        let mut kept = self.error.borrow_mut();
        let is_told = kept.as_ref().is_some_and(|(before, told)| *told && *before == error);
        *kept = Some((error, is_told));
    }

    async fn try_put(&self, path: &str, id: SegmentId) -> Result<(), IoError> {
        let target = format!("{}/{}", self.directory, id.file_name());
        let length = match self.fs.metadata(path).await {
            Ok(metadata) => metadata.len,
            // Deleted while this waited for its slot: a deletion follows the same steps.
            Err(error)
                if error.kind == IoErrorKind::NotFound && self.fs.exists(&target).await? =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match self.fs.metadata(&target).await {
            // A restart, or another shard, has done it; a shorter file is not this one.
            Ok(there) if there.len >= length => return self.fs.sync_dir(&self.directory).await,
            Ok(_) => copy(&self.fs, path, &self.unfinished_path(), &target).await?,
            Err(error) if error.kind == IoErrorKind::NotFound => {
                // Other file systems take no link.
                if self.fs.hard_link(path, &target).await.is_err() {
                    copy(&self.fs, path, &self.unfinished_path(), &target).await?;
                }
            }
            Err(error) => return Err(error),
        }
        self.fs.sync_dir(&self.directory).await
    }

    fn unfinished_path(&self) -> String {
        format!("{}/{}", self.directory, self.unfinished)
    }
}

/// Copies a file so that `to` is whole or not there; durable when its directory is synced.
async fn copy(fs: &Fs, from: &str, unfinished: &str, to: &str) -> Result<(), IoError> {
    let source = fs.open(from, OpenOptions { read: true, ..OpenOptions::default() }).await?;
    let options =
        OpenOptions { write: true, create: true, truncate: true, ..OpenOptions::default() };
    let target = fs.open(unfinished, options).await?;
    let (mut buf, mut offset) = (Buf::new(), 0);
    loop {
        let (filled, result) = source.read_at(buf, offset, PIECE_BYTES).await;
        let count = result?;
        if count == 0 {
            break;
        }
        let (written, result) = target.write_at(filled, offset).await;
        result?;
        buf = written;
        offset += count as u64;
    }
    target.sync_data().await?;
    fs.rename(unfinished, to).await
}

impl CommitLog {
    /// Archives the finished and synced segments; called after every sync.
    pub(crate) async fn archive_finished(&self) {
        let Some(archive) = self.archive() else { return };
        if archive.busy.replace(true) {
            return;
        }
        for id in self.finished_segments() {
            let is_done = archive.done.borrow().contains(&id);
            let is_put = !is_done && archive.put(&self.path_of(id), id).await;
            // It may be released, and forgotten, by now.
            if is_put && self.finished_segments().contains(&id) {
                archive.done.borrow_mut().insert(id);
            }
        }
        archive.busy.set(false);
    }

    /// Makes sure that a finished segment of this run is in the archive, if there is one; false: it
    /// must not be deleted yet.
    pub(crate) async fn is_archived(&self, id: SegmentId) -> Result<bool, LogError> {
        let Some(archive) = self.archive() else { return Ok(true) };
        let is_done = archive.done.borrow().contains(&id);
        if !is_done {
            if !self.is_synced(id) {
                self.sync().await?;
            }
            if !archive.put(&self.path_of(id), id).await {
                return Ok(false);
            }
        }
        // It will be deleted, and no later one has its number.
        archive.done.borrow_mut().remove(&id);
        Ok(true)
    }

    /// The same for a segment of an earlier run, which may never have been synced.
    pub(crate) async fn is_old_archived(&self, id: SegmentId) -> Result<bool, LogError> {
        let Some(archive) = self.archive() else { return Ok(true) };
        let path = self.path_of(id);
        let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
        let file: File = match self.fs().open(&path, options).await {
            Ok(file) => file,
            // Another shard deleted it, after the same steps.
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok(true),
            Err(error) => {
                archive.failed(error);
                return Ok(false);
            }
        };
        if let Err(error) = file.sync_data().await {
            let error = LogError::Failed(error);
            self.fail(error.clone());
            return Err(error);
        }
        Ok(archive.put(&path, id).await)
    }

    /// Returns why segments are not archived, once for each reason.
    pub fn take_archive_failure(&self) -> Option<String> {
        let mut kept = self.archive()?.error.borrow_mut();
        let (error, told) = kept.as_mut()?;
        (!std::mem::replace(told, true)).then(|| error.to_string())
    }
}

/// Result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Segments that were copied into the commit log.
    pub segments: u64,
    /// Segments that were there already.
    pub there: u64,
    /// Files that are no segments.
    pub ignored: Vec<String>,
    /// Names of segments that are neither in the archive nor in the commit log, although the one
    /// before and the one after exist: their writes are lost to the replay.
    pub missing: Vec<String>,
}

/// Copies archived segments back into the commit log, where the next replay finds them. Segments
/// that exist there already are left unchanged. To be called before any shard opens its log. Gaps
/// between segments are reported, but not what an archive lacks before its first segment or after
/// the last one of a run.
///
/// # Errors
/// `Corrupt`: a segment whose header is damaged or names another one; `Foreign`: a segment of
/// Cassandra's; `Io`.
pub async fn restore(
    fs: &Fs,
    directories: &[String],
    log_directory: &str,
) -> Result<Restored, LogError> {
    let mut restored = Restored::default();
    for directory in directories {
        fs.create_dir_durably(directory).await?;
        for entry in fs.read_dir(directory).await? {
            let from = format!("{directory}/{}", entry.name);
            let Some(id) = SegmentId::from_file_name(&entry.name).filter(|_| !entry.is_dir) else {
                if is_foreign(&entry.name) {
                    return Err(LogError::Foreign { file: from });
                }
                restored.ignored.push(from);
                continue;
            };
            let to = format!("{log_directory}/{}", entry.name);
            if fs.exists(&to).await? {
                restored.there += 1;
                continue;
            }
            check_header(fs, &from, id).await?;
            // Notes of a life in which it was deleted would keep shards from replaying it.
            for note in fs.read_dir(log_directory).await? {
                if is_note_of(&note.name, id) {
                    fs.remove_file(&format!("{log_directory}/{}", note.name)).await?;
                }
            }
            copy(fs, &from, &format!("{log_directory}/unfinished-restore"), &to).await?;
            restored.segments += 1;
        }
    }
    fs.sync_dir(log_directory).await?;
    restored.missing = missing(fs, log_directory).await?;
    Ok(restored)
}

/// Names of missing segments: a later one in the directory names them as its predecessor, and an
/// earlier one of that shard exists.
async fn missing(fs: &Fs, log_directory: &str) -> Result<Vec<String>, LogError> {
    let entries = fs.read_dir(log_directory).await?;
    let there: BTreeSet<SegmentId> =
        entries.iter().filter_map(|entry| SegmentId::from_file_name(&entry.name)).collect();
    let mut out = Vec::new();
    for id in &there {
        let path = format!("{log_directory}/{}", id.file_name());
        // A file without a header was never finished; the replay judges it.
        let Ok(Ok(header)) = read_header(fs, &path).await.map(|bytes| decode(&bytes, *id)) else {
            continue;
        };
        let before = header.previous.segment;
        let is_between = |other: &&SegmentId| **other < before && other.shard() == id.shard();
        if header.previous != LogPosition::default()
            && !there.contains(&before)
            && there.iter().any(|other| is_between(&other))
        {
            out.push(before.file_name());
        }
    }
    Ok(out)
}

pub(crate) async fn read_header(fs: &Fs, path: &str) -> Result<Buf, IoError> {
    let file = fs.open(path, OpenOptions { read: true, ..OpenOptions::default() }).await?;
    let (bytes, result) = file.read_at(Buf::new(), 0, HEADER_BYTES).await;
    result.map(|_| bytes)
}

fn decode(bytes: &[u8], id: SegmentId) -> Result<SegmentHeader, &'static str> {
    match SegmentHeader::decode(bytes) {
        Ok(header) if header.id == id => Ok(header),
        Ok(_) => Err("the header names another segment"),
        Err(what) => Err(what),
    }
}

async fn check_header(fs: &Fs, path: &str, id: SegmentId) -> Result<(), LogError> {
    let bytes = read_header(fs, path).await?;
    let decoded = decode(&bytes, id).map(|_| ());
    decoded.map_err(|what| LogError::Corrupt {
        file: path.to_owned(),
        offset: 0,
        what,
        accept: None,
    })
}

/// Returns true if a file has the name of a segment of Cassandra's.
pub fn is_foreign(name: &str) -> bool {
    name.starts_with("CommitLog-") && name.ends_with(".log")
}
