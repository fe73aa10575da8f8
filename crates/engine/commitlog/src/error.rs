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
    /// The directory does not hold the log of the last run.
    #[error(
        "commitlog_directory {directory} {what}, and the last run's commit log was not empty: writes that are in no \
         SSTable are missing. {}; or start once with commitlog_accept_loss: {accept} (or --commitlog-accept-loss {accept}) to lose them, then repair this \
         node",
        match last {
            Some(last) if last != directory => format!(
                "The log was in {last}: set commitlog_directory to it, mount its disk, or move all its files to {directory}"
            ),
            _ => "Mount its disk, or put its files back".to_owned(),
        }
    )]
    Directory {
        /// The setting's value.
        directory: String,
        /// Description of what it holds.
        what: String,
        /// Where the last run had its log, if that is known.
        last: Option<String>,
        /// Value of the setting that accepts the loss.
        accept: u64,
    },
    /// The directory holds segments of another node.
    #[error(
        "commitlog_directory {directory} holds the commit log of node {host}, and this node is {own}; set \
         commitlog_directory to the directory of this node. If that node does not exist any more, move the files \
         of the directory away"
    )]
    OtherNode {
        /// The setting's value.
        directory: String,
        /// The node that its mark names.
        host: String,
        /// This node.
        own: String,
    },
    /// A segment is damaged where it had been synced.
    #[error(
        "commit-log segment {file} is corrupt at offset {offset}: {what}; {}",
        damage_remedy(*accept)
    )]
    Corrupt {
        /// The segment's file.
        file: String,
        /// Where the damage is.
        offset: u64,
        /// Description of the damage.
        what: &'static str,
        /// Value of the setting that accepts the loss; `None`: no setting does.
        accept: Option<u64>,
    },
    /// A segment is missing, or shorter than its synced length.
    #[error("commit-log segment {file} {}", loss(*found, *expected, inventory, *accept))]
    Lost {
        /// The segment's file.
        file: String,
        /// Bytes that it had at least.
        expected: u64,
        /// Bytes that it has.
        found: Option<u64>,
        /// The list that names it.
        inventory: String,
        /// Value of the setting that accepts the loss.
        accept: u64,
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

/// The remedy for a damaged segment. `accept`: value of the setting that accepts the loss.
pub fn damage_remedy(accept: Option<u64>) -> String {
    let restore = "restore the file from the archive or a copy";
    match accept {
        None => restore.to_owned(),
        Some(run) => format!(
            "{restore}; or start once with commitlog_accept_loss: {run} (or --commitlog-accept-loss {run}), which replays all records that are intact, \
             also those after the damage, then repair this node"
        ),
    }
}

/// Describes a lost segment, with the remedy.
pub fn loss(found: Option<u64>, expected: u64, inventory: &str, accept: u64) -> String {
    let found = match found {
        None => "is missing".to_owned(),
        Some(found) => format!("has {found} bytes"),
    };
    format!(
        "{found}, but {inventory} says that {expected} bytes were synced to it: writes that are in no SSTable are \
         missing; restore the file, or start once with commitlog_accept_loss: {accept} (or --commitlog-accept-loss {accept}) to lose them, then repair \
         this node"
    )
}
