//! The metadata log's file: `metadata/log` below the work directory.
//!
//! Order of an append, each step after the one before: 1. write the entries at the end; 2. sync;
//! 3. write the marker (not synced: it needs no durability of its own); 4. answer. A crash after 1
//! leaves an entry that nobody was told of; it may be kept or dropped. A crash after 2 keeps it.

use cluster::{ClusterSnapshot, MetaLogError, metalog};
use rt::{Buf, File, Fs, OpenOptions, Rt};
use schema::Schema;
use stdx::{Epoch, IoError, IoErrorKind};

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
    /// What it holds is not what was written.
    #[error("{path}: {error}")]
    Log {
        /// The file.
        path: String,
        /// What is wrong with it.
        error: MetaLogError,
    },
}

/// The open log; appends only.
pub struct LogFile {
    file: File,
    length: u64,
}

/// An opened log and what it holds.
pub struct Opened {
    /// For appending.
    pub log: LogFile,
    /// The fold; `None` for a new node.
    pub snapshot: Option<ClusterSnapshot>,
    /// Bytes of an incomplete last entry that were dropped.
    pub dropped_bytes: u64,
}

/// Opens or creates the log below `work_dir` and folds it onto `base`.
///
/// # Errors
/// `Io`; `Log` when it is damaged: the start is refused and the place named.
pub async fn open(rt: &Rt, work_dir: &str, base: &Schema) -> Result<Opened, OpenError> {
    let fs: Fs = rt.fs();
    let directory = format!("{work_dir}/{DIRECTORY}");
    let path = format!("{directory}/log");
    fs.create_dir_all(&directory).await?;
    let bytes = match fs.read(&path, LOG_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == IoErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let loaded = metalog::load(&bytes, base)
        .map_err(|error| OpenError::Log { path: path.clone(), error })?;
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
    let log = LogFile { file, length };
    Ok(Opened { log, snapshot: loaded.snapshot, dropped_bytes: loaded.dropped_bytes })
}

/// Writes the first entries of a new log, all or none of them, and opens it. `framed` is what
/// [`cluster::Transformation::encode_entry`] made of entries 1 to `epoch`.
///
/// # Errors
/// As [`open`].
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
    /// Appends framed entries that end with `epoch` and makes them durable.
    ///
    /// # Errors
    /// `Io`; whether the entries are there after a restart is then unknown, so the log must not be
    /// used any more.
    pub async fn append(&mut self, framed: Vec<u8>, epoch: Epoch) -> Result<(), IoError> {
        let start = self.length;
        let (buf, written) = self.file.write_at(Buf::from_slice(&framed), start).await;
        written?;
        self.file.sync_data().await?;
        let mut marker = Vec::new();
        metalog::encode_marker(epoch, &mut marker);
        let end = start.saturating_add(buf.len() as u64);
        self.length = end.saturating_add(marker.len() as u64);
        let (_, written) = self.file.write_at(Buf::from_slice(&marker), end).await;
        written
    }
}
