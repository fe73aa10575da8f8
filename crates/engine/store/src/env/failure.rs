//! Failures of the disk that a store reports, and how.

use std::cell::RefCell;
use std::rc::Rc;

/// Callback for an event; `None` if no part of the node subscribed.
pub(crate) type Hook<T> = RefCell<Option<Rc<dyn Fn(T)>>>;

/// Description of a failure of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// The commit log cannot be written or synced; no write is taken any more.
    CommitLog(String),
    /// The file system refused to read or write a data file.
    Disk(String),
    /// A data file differs from the written one.
    Corrupt(String),
    /// A data directory failed, and this shard continues without it and its SSTables.
    OutOfService(String),
    /// A data directory failed that this shard cannot do without.
    NoDirectory(String),
    /// A new file could not be linked into its table's `backups`; it is in use all the same.
    Backup(String),
    /// Partitions in memtables cannot be written to an SSTable; everything else can.
    Unflushable(String),
    /// A commit-log segment could not be archived; it stays in the log until it can.
    Archive(String),
    /// SSTables of a table that came into the schema were found on the disk and are in use; nothing failed.
    Found(String),
    /// The row cache or the counter cache could not be saved or read back; nothing else is wrong.
    SavedCache(String),
    /// A small file in the directory of a table is damaged; it is rebuilt.
    Mark(String),
}
