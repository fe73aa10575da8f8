//! The crate's error.

use stdx::{IoError, IoErrorKind};

/// Why the log refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The disk is full. What was appended is kept and written when space returns.
    #[error("the commit log's disk is full: {0}")]
    DiskFull(IoError),
    /// A write or fsync failed: nothing can be promised any more. Restart the node.
    #[error("the commit log failed and takes no more writes: {0}")]
    Failed(IoError),
    /// The directory or an old segment cannot be read.
    #[error("the commit log cannot be read: {0}")]
    Io(#[from] IoError),
    /// A segment is damaged where it had been synced.
    #[error(
        "commit-log segment {file} is corrupt at offset {offset}: {what}; restore the file, or move it and the files helenus-segments-* beside it away to lose its writes"
    )]
    Corrupt {
        /// The segment's file.
        file: String,
        /// Where the damage is.
        offset: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// A segment is missing, or shorter than its synced length.
    #[error(
        "commit-log segment {file} {}, but {expected} bytes were synced to it: writes that are in no SSTable are \
         missing; restore the file, or remove {inventory} to start without them, then repair this node",
        match found {
            None => "is missing".to_owned(),
            Some(found) => format!("has {found} bytes"),
        }
    )]
    Lost {
        /// The segment's file.
        file: String,
        /// Bytes that it had at least.
        expected: u64,
        /// Bytes that it has.
        found: Option<u64>,
        /// The list that names it.
        inventory: String,
    },
    /// A segment is encrypted and cannot be read.
    #[error("commit-log segment {file}: {what}")]
    Sealed {
        /// The segment's file.
        file: String,
        /// The remedy.
        what: &'static str,
    },
    /// A segment of Cassandra's, whose format is not read.
    #[error(
        "{file} is a commit-log segment of Cassandra's, which is not read here; run \"nodetool drain\" on that node first, its SSTables then hold everything"
    )]
    Foreign {
        /// The segment's file.
        file: String,
    },
    /// One record must fit into half a segment.
    #[error("mutation of {bytes} bytes is too large for the maximum size of {max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The compressor could not be set up.
    #[error("there is no memory for the commit log's compressor")]
    NoMemory,
    /// The log was closed.
    #[error("the commit log is closed")]
    Closed,
}

impl LogError {
    /// The error of a failed append or sync.
    pub(crate) fn of_write(error: IoError) -> LogError {
        match error.kind {
            IoErrorKind::NoSpace => LogError::DiskFull(error),
            _ => LogError::Failed(error),
        }
    }
}
