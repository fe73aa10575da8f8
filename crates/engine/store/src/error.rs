//! The crate's error.

use commitlog::LogError;
use data::CursorError;
use stdx::{IoError, IoErrorKind, TableId, Uuid};

/// Why the store refused, by what the caller can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No such table here: the schema changed.
    #[error("unknown table {0}")]
    UnknownTable(TableId),
    /// Memtables are over their budget and flushes do not keep up: try later.
    #[error("overloaded: memtables hold {used} of {limit} bytes")]
    Overloaded {
        /// Accounted bytes.
        used: usize,
        /// The budget.
        limit: usize,
    },
    /// The shard that owns the data has too many requests waiting: try later.
    #[error("overloaded: the owning shard's request queue is full")]
    QueueFull,
    /// The disk is full: writes are refused until space returns, reads continue.
    #[error("disk full: {detail}")]
    DiskFull {
        /// The data that could not be written, or the remaining free space.
        detail: String,
    },
    /// Bytes on disk differ from those written.
    #[error("{file} is corrupt: {what}")]
    Corrupt {
        /// The file.
        file: String,
        /// Description and position of the damage.
        what: String,
    },
    /// A mutation is larger than the settings or the commit log allow. In Cassandra's words
    /// (`MutationExceededMaxSizeException`).
    #[error(
        "Rejected an oversized mutation ({bytes}/{max}) for keyspace: {keyspace}. Top keys are: \
         {table}.{key}"
    )]
    MutationTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
        /// The table's keyspace.
        keyspace: String,
        /// The table.
        table: String,
        /// The partition key as text.
        key: String,
    },
    /// A read met more tombstones than allowed.
    #[error("scanned over {scanned} tombstones")]
    TombstoneFailure {
        /// Number met before the read was aborted.
        scanned: u32,
    },
    /// A mutation, or data of a memtable, that no SSTable can hold.
    #[error("{what} ({place})")]
    Unwritable {
        /// Why, in Cassandra's words where it has them.
        what: String,
        /// Table, partition key and clustering, shortened.
        place: String,
    },
    /// Partitions of the table that cannot be flushed hold all the memory that they may.
    #[error(
        "{table} takes no more writes: {bytes} of its {share} bytes of memtables cannot be flushed; {why}"
    )]
    Unflushable {
        /// The table, with its keyspace.
        table: String,
        /// Memory of these partitions.
        bytes: usize,
        /// Bytes that they may hold.
        share: usize,
        /// Reason and remedy.
        why: String,
    },
    /// The commit log failed: the node must be restarted.
    #[error("commit log failed: {0}")]
    LogFailed(String),
    /// A file operation failed.
    #[error("{0}")]
    Io(IoError),
    /// An index is unknown here, or its first build is not finished.
    #[error("index {index} is not available on this node yet")]
    IndexNotAvailable {
        /// Its id.
        index: Uuid,
    },
    /// The store is stopping or drained.
    #[error("the store is stopping")]
    Stopping,
    /// A file that this build, with the keys that it has, cannot read, though it need not be damaged.
    #[error("{0}")]
    Unsupported(String),
    /// A name that cannot be used (snapshot tags with path separators …).
    #[error("{0}")]
    Invalid(String),
}

impl From<IoError> for StoreError {
    fn from(error: IoError) -> StoreError {
        match error.kind {
            IoErrorKind::NoSpace => StoreError::DiskFull { detail: error.to_string() },
            IoErrorKind::Stopping => StoreError::Stopping,
            IoErrorKind::Damaged => StoreError::Corrupt { file: error.path, what: error.detail },
            _ => StoreError::Io(error),
        }
    }
}

impl From<CursorError> for StoreError {
    fn from(error: CursorError) -> StoreError {
        let CursorError::Corrupt { file, offset, what } = error;
        StoreError::Corrupt { file, what: format!("{what} at offset {offset}") }
    }
}

impl From<LogError> for StoreError {
    fn from(error: LogError) -> StoreError {
        match error {
            LogError::DiskFull(e) => StoreError::DiskFull { detail: e.to_string() },
            LogError::TooLarge { bytes, max } => StoreError::MutationTooLarge {
                bytes,
                max,
                keyspace: String::new(),
                table: String::new(),
                key: String::new(),
            },
            LogError::Closed => StoreError::Stopping,
            LogError::NoMemory | LogError::Foreign { .. } | LogError::Sealed { .. } => {
                StoreError::LogFailed(error.to_string())
            }
            LogError::Io(e) => e.into(),
            LogError::Failed(e) if e.kind == IoErrorKind::Stopping => StoreError::Stopping,
            LogError::Failed(e) => StoreError::LogFailed(e.to_string()),
            LogError::Lost { file, expected, found, inventory, accept } => {
                let what = commitlog::error::loss(found, expected, &inventory, accept);
                StoreError::Corrupt { file, what }
            }
            LogError::Corrupt { file, offset, what, accept } => {
                let remedy = commitlog::error::damage_remedy(accept);
                StoreError::Corrupt { file, what: format!("{what} at offset {offset}; {remedy}") }
            }
            LogError::Directory { .. } | LogError::OtherNode { .. } => {
                StoreError::Invalid(error.to_string())
            }
        }
    }
}
