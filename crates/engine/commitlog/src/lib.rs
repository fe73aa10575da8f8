//! The commit log of one shard: append, one buffered write per turn, sync, replay.
//!
//! Owns: segment files below the commit-log directory and in the archive, their format, compression,
//! encryption, sync modes and markers. Never: decodes mutations, decides what is flushed, or replays into tables; the store
//! does, and says with [`CommitLog::release_below`] which segments are needed no longer.
//!
//! Invariants:
//! INV-log-1: writes that `commit` confirmed are with the kernel, in batch and group mode also on
//! the disk.
//! INV-log-2: a failed fsync is final: every later `commit` fails, the node must be restarted.
//! INV-log-3: a marker is appended only after the attested bytes were synced; damage before an
//! attested position is corruption, damage after it is the tail of a crash.
//! INV-log-4: segments of one writer are deleted oldest first, so the log is always a suffix of
//! the history; replaying a suffix over flushed data changes nothing.
//! INV-log-5: with an archive, a segment is deleted only when it is in there, whole and durable.
//! INV-log-6: listed segments were synced and are needed: a start without one is refused.
//! INV-log-7: a list of a run exists only while the directory's mark has that run's number or a later one.
//!
//! Reading order: [`format`], [`blocks`], `keys`, `log`, [`inventory`], [`directory`], [`scan`], `replay`, [`archive`]. See
//! `docs/formats/commitlog.md`.

pub mod archive;
pub mod blocks;
pub mod directory;
pub mod error;
pub mod format;
pub mod fuzz;
pub mod inventory;
mod keys;
mod log;
mod replay;
pub mod scan;
mod signal;
#[cfg(test)]
mod tests;

pub use directory::LogDirectory;
pub use error::LogError;
pub use format::{LogPosition, Record, SegmentHeader, SegmentId, TruncationRef};
pub use keys::Keys;
pub use log::{CommitLog, LogOptions, SyncMode, TableTicket};
pub use replay::{ReplaySummary, Visitor, walk_segment};
pub use scan::Next;
