//! The metadata log's file: `metadata/log` below the work directory.
//!
//! Order of an append, each step after the previous one:
//!
//! 1. Write the entries at the end.
//! 2. Sync.
//! 3. Write the marker (not synced: it needs no durability of its own).
//! 4. Replace the high-water mark ([`crate::log_end`]), synced.
//! 5. Answer.
//!
//! A crash after step 1 leaves an entry that was not acknowledged; it may be kept or dropped. A crash
//! after step 2 keeps it.

use cluster::metalog::Framed;
use cluster::{ClusterSnapshot, MetaLogError, metalog};
use codec::SmallForm;
use paxos::AcceptorState;
use rt::{Buf, File, Fs, OpenOptions, Rt, SmallContent};
use schema::Schema;
use stdx::{Epoch, IoError, IoErrorKind};

use crate::log_end::{self, LogEnd};
use crate::wire::{self, Value};

/// Directory of the log below the work directory.
pub const DIRECTORY: &str = "metadata";
/// Largest log that is read at start; above it the log needs a snapshot, which comes with the
/// cluster.
pub const LOG_BYTES_MAX: usize = 1 << 30;

/// Why the log cannot be opened.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OpenError {
    /// Reading or writing it failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The tail of the log is missing.
    #[error(
        "{path} ends with entry {}, but entries up to {} were written to it: its tail is \
         missing; restore the file from a backup of this node, or copy it from another member of the \
         cluster (all members have the same entries)",
        found.0,
        expected.0
    )]
    Cut {
        /// The file.
        path: String,
        /// Its last entry.
        found: Epoch,
        /// The last entry by the high-water mark.
        expected: Epoch,
    },
    /// The content differs from what was written.
    #[error("{path}: {error}")]
    Log {
        /// The file.
        path: String,
        /// Description of the problem.
        error: MetaLogError,
    },
}

/// The open log; appends, and reads entries back for nodes that lack them.
pub struct LogFile {
    file: File,
    fs: Fs,
    directory: String,
    length: u64,
    /// Offset and length of every entry's frame, from epoch 1 on.
    places: Vec<(u64, u32)>,
    path: String,
    /// This node's promise and acceptance for the next entry, as stored.
    pub(crate) registers: Option<(Epoch, AcceptorState<Value>)>,
}

/// An opened log and what it holds.
pub struct Opened {
    /// For appending.
    pub log: LogFile,
    /// The fold; `None` for a new node.
    pub snapshot: Option<ClusterSnapshot>,
    /// Bytes of an incomplete last entry that were dropped.
    pub dropped_bytes: u64,
    /// The high-water mark could not be read and was written again.
    pub is_end_rebuilt: bool,
}

/// Opens or creates the log below `work_dir` and folds it onto `base`.
///
/// # Errors
/// `Io`; `Log` when it is damaged, `Cut` when its tail is missing: the start is refused and the place named.
pub async fn open(rt: &Rt, work_dir: &str, base: &Schema) -> Result<Opened, OpenError> {
    let fs: Fs = rt.fs();
    let directory = format!("{work_dir}/{DIRECTORY}");
    let path = format!("{directory}/log");
    fs.create_dir_durably(&directory).await?;
    let bytes = match fs.read(&path, LOG_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == IoErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let loaded = metalog::load(&bytes, base)
        .map_err(|error| OpenError::Log { path: path.clone(), error })?;
    let found = Epoch(loaded.places.len() as u64);
    let end = log_end::read(&fs, &directory).await?;
    if let LogEnd::At(expected) = end
        && expected > found
    {
        return Err(OpenError::Cut { path, found, expected });
    }
    let options = OpenOptions { read: true, write: true, create: true, ..OpenOptions::default() };
    let file = fs.open(&path, options).await?;
    let mut length = loaded.valid_bytes;
    if loaded.dropped_bytes > 0 {
        file.set_len(length).await?;
    }
    if length == 0 {
        let (_, written) = file.write_at(Buf::from_slice(metalog::MAGIC), 0).await;
        written?;
        length = metalog::MAGIC.len() as u64;
    }
    // The file's bytes before its name, and the directory's name in the work directory.
    file.sync_data().await?;
    fs.sync_dir(&directory).await?;
    fs.sync_dir(work_dir).await?;
    if end != LogEnd::At(found) && (found.0 > 0 || end == LogEnd::Damaged) {
        log_end::write(&fs, &directory, found).await?;
    }
    let registers = read_registers(&fs, &directory).await?;
    let log = LogFile { file, fs, directory, length, places: loaded.places, path, registers };
    Ok(Opened {
        log,
        snapshot: loaded.snapshot,
        dropped_bytes: loaded.dropped_bytes,
        is_end_rebuilt: end == LogEnd::Damaged,
    })
}

/// Name of the file with what this node promised and accepted, below [`DIRECTORY`].
pub const REGISTERS: &str = "promises";
/// Format of the file; the body is empty until a promise is made.
const REGISTERS_FORM: SmallForm = SmallForm { kind: "promises", version: 2 };

async fn read_registers(
    fs: &Fs,
    directory: &str,
) -> Result<Option<(Epoch, AcceptorState<Value>)>, OpenError> {
    let path = format!("{directory}/{REGISTERS}");
    let bytes = match fs.read_small(REGISTERS_FORM, &path, 2 * metalog::ENTRY_BYTES_MAX).await {
        Ok(SmallContent::Missing) => return Ok(None),
        Ok(SmallContent::Body(body)) if body.is_empty() => return Ok(None),
        Ok(SmallContent::Body(bytes) | SmallContent::Legacy(bytes)) => bytes,
        Err(error) if error.kind == IoErrorKind::Damaged => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    match wire::decode_registers(&bytes) {
        Some(registers) => Ok(Some(registers)),
        // Forgotten promises could decide one entry twice.
        None => {
            let what = "the promises to other voters cannot be read".to_owned();
            Err(OpenError::Log { path, error: MetaLogError::Corrupt { offset: 0, what } })
        }
    }
}

/// Creates the file of promises of a node that has promised nothing, unless there is one.
///
/// # Errors
/// `Io`.
pub async fn create_promises(fs: &Fs, work_dir: &str) -> Result<(), IoError> {
    let path = format!("{work_dir}/{DIRECTORY}/{REGISTERS}");
    match fs.exists(&path).await? {
        true => Ok(()),
        false => fs.write_small(REGISTERS_FORM, &path, &[]).await,
    }
}

/// Replaces the stored promises, durably.
pub(crate) async fn write_registers(
    fs: &Fs,
    work_dir: &str,
    entry: Epoch,
    state: &AcceptorState<Value>,
) -> Result<(), IoError> {
    let content = wire::encode_registers(entry, state);
    fs.write_small(REGISTERS_FORM, &format!("{work_dir}/{DIRECTORY}/{REGISTERS}"), &content).await
}

/// Writes the first entries of a new log, all or none of them, and opens it. `framed` is the output
/// of [`cluster::Transformation::encode_entry`] for entries 1 to `epoch`.
///
/// # Errors
/// Those of [`open`].
pub async fn create(
    rt: &Rt,
    work_dir: &str,
    base: &Schema,
    framed: &[u8],
    epoch: Epoch,
) -> Result<Opened, OpenError> {
    let mut content = metalog::MAGIC.to_vec();
    content.extend_from_slice(framed);
    metalog::encode_marker(epoch, &mut content);
    rt.fs().write_atomic(&format!("{work_dir}/{DIRECTORY}/log"), content).await?;
    open(rt, work_dir, base).await
}

impl LogFile {
    /// Appends one framed entry and makes it durable. An entry that could not be written is
    /// truncated away: a start must not find and apply an entry whose failure was reported to
    /// clients.
    ///
    /// # Errors
    /// `Io`. If the entry could not be truncated away either, it may or may not exist after a
    /// restart. The log must not be used any more.
    pub async fn append(&mut self, framed: Vec<u8>, epoch: Epoch) -> Result<(), IoError> {
        stdx::invariant!(
            epoch.0 == self.places.len() as u64 + 1,
            "entry {} is appended behind {}",
            epoch.0,
            self.places.len()
        );
        let start = self.length;
        let place = (start, u32::try_from(framed.len()).unwrap_or(u32::MAX));
        let ends =
            self.places.last().map_or(0, |(at, length)| at.saturating_add(u64::from(*length)));
        stdx::invariant!(
            start >= ends && place.1 != u32::MAX && !framed.is_empty(),
            "INV-membership-3: {} bytes of entry {} are appended at {start}, the one before ends at {ends}",
            framed.len(),
            epoch.0
        );
        if let Err(error) = self.write_durably(&framed, start).await {
            stdx::reached!("membership-entry-cut-off");
            let cut = async {
                self.file.set_len(start).await?;
                self.file.sync_data().await
            };
            if let Err(of_cut) = cut.await {
                tracing::error!(
                    epoch = epoch.0,
                    error = %of_cut,
                    "cannot cut a failed entry off the metadata log; it may take effect at the next start"
                );
            }
            return Err(error);
        }
        let mut marker = Vec::new();
        metalog::encode_marker(epoch, &mut marker);
        let end = start.saturating_add(framed.len() as u64);
        self.places.push(place);
        let (_, written) = self.file.write_at(Buf::from_slice(&marker), end).await;
        // The entry is durable and counts; the next one overwrites what there is of the marker.
        self.length = match written {
            Ok(()) => end.saturating_add(marker.len() as u64),
            Err(_) => end,
        };
        stdx::invariant!(
            self.length >= end && self.places.len() as u64 == epoch.0,
            "INV-membership-3: behind entry {} the log has {} entries and {} bytes",
            epoch.0,
            self.places.len(),
            self.length
        );
        // Too low a mark only makes a lost tail harder to notice until the next entry.
        if let Err(error) = log_end::write(&self.fs, &self.directory, epoch).await {
            tracing::warn!(
                epoch = epoch.0,
                %error,
                "cannot write the high-water mark of the metadata log; the next entry writes it again"
            );
        }
        Ok(())
    }

    async fn write_durably(&self, framed: &[u8], at: u64) -> Result<(), IoError> {
        let (_, written) = self.file.write_at(Buf::from_slice(framed), at).await;
        written?;
        self.file.sync_data().await
    }

    /// Number of entries.
    pub fn end(&self) -> Epoch {
        Epoch(self.places.len() as u64)
    }

    /// Returns a reader of entries that works without holding the log.
    pub fn reader(&self) -> LogReader {
        LogReader { file: self.file.clone(), places: self.places.clone(), path: self.path.clone() }
    }
}

/// Reads entries that are durable.
pub struct LogReader {
    file: File,
    places: Vec<(u64, u32)>,
    path: String,
}

impl LogReader {
    /// Hands the entries from `from` on to `visit` until it returns false.
    ///
    /// # Errors
    /// `Io`; `Log` when what is read back is not what was written.
    pub async fn read(
        &self,
        from: Epoch,
        mut visit: impl FnMut(Framed<'_>) -> bool,
    ) -> Result<(), OpenError> {
        let first = usize::try_from(from.0.saturating_sub(1)).unwrap_or(usize::MAX);
        for (offset, length) in self.places.iter().skip(first) {
            let buf = Buf::with_capacity(*length as usize);
            let (buf, read) = self.file.read_at(buf, *offset, *length as usize).await;
            read?;
            let framed = metalog::decode_frame(&buf).map_err(|what| OpenError::Log {
                path: self.path.clone(),
                error: MetaLogError::Corrupt { offset: *offset, what: what.to_owned() },
            })?;
            if !visit(framed) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
