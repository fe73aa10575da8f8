//! Shared parts of logs of requests, as Cassandra's `BinLog`: queues of each shard, the task that writes, files that roll,
//! the archive command. The audit log and the full query log use it.
//!
//! Owns: bounds and what a full queue does ([`queue`]), when a batch is written and written again ([`destination`]),
//! names of files ([`rolling`]), the files ([`files`]), finished files ([`file_writer`]). Never: what a record is, formats.
//!
//! Reading order: `queue`, `destination`, `rolling`, `files`, `file_writer`.

pub mod counters;
pub mod destination;
pub mod file_writer;
pub mod files;
pub mod queue;
pub mod rolling;

pub use counters::LogCounters;
pub use destination::{Destination, Write, WriteFailure, Writer, wait_for};
pub use file_writer::{Archiver, FileSettings, FileWriter, check_directory};
pub use queue::{FullQueue, Pushed, RecordQueue, Weighed};
pub use rolling::{BinaryFiles, Layout};

use std::time::Duration;

/// How long an answer waits for a full queue. Source: Cassandra's `request_timeout`.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a log that is switched off may write its queues.
pub const CLOSE_MAX: Duration = Duration::from_secs(5);
