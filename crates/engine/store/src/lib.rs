//! The tables of one shard: memtables, SSTables, reads, flush, compaction, truncate, snapshots.
//!
//! Owns: the data of this shard's slice of every table, and the order in which things become
//! durable. Never: decides about schema, replicas or CQL; never shares anything with another shard
//! except files.
//!
//! Invariants:
//! INV-store-1: writes that `commit` confirmed are in the commit log or in a complete SSTable.
//! INV-store-2: a read sees one table view from begin to end.
//! INV-store-3: a segment of the log is released only when every mutation in it is in complete,
//! synced SSTables (or truncated).
//!
//! The crate is a stack of rooms, each a struct that knows only lower ones; imports point down, without exception:
//!
//! - `options`, `error`: values. [`Env`]: runtime, options, log, stop, refusals, the queue of suspect files. Knows no table.
//! - `memtable`: partitions in memory. Never asks for a file. Imports nothing of the rooms.
//! - [`Tables`]: a table's shape, its view of memtables and files, everything known of it. Never merges rows. Imports
//!   `memtable`.
//! - [`Files`]: which SSTables exist, where, in which state; transactions, directories, claims, links, chunk cache. Never
//!   merges rows. Imports `tables`.
//! - [`Observer`]: samples and reports of large partitions. Never changes data. Imports `files`.
//! - [`Reader`], [`Counters`]: sources, merges, pages, the caches of rows and counters. Never change a view. Import `files`.
//! - [`Writer`]: admission, log, memtable, flush. Never rewrites SSTables. Imports `read` (its caches follow writes).
//! - [`Lifecycle`]: snapshots, TRUNCATE, DROP. Never rewrites SSTables. Imports `write`.
//! - [`Compactor`]: queue, backlog, execution, outputs. Never chooses a strategy. Imports `lifecycle`, `write`, `read`.
//! - [`Repair`]: repair state of files. Never compares replicas. Imports `compact`.
//! - [`Transfer`]: rows and files from elsewhere and for elsewhere. Never talks to a node. Imports `write`.
//! - [`Verifier`]: verification, damaged files. Never decides what becomes of the node. Imports `repair`, `transfer`.
//! - `replay`: the old commit log. Imports `lifecycle`.
//! - [`Store`]: opens the rooms, starts their tasks, takes schemas, serves requests. Owns no state.
//!
//! A lower room that has to reach a higher one owns a value for it, which the higher one waits for or registers with:
//! `Env::work`, `Env::stop`, `Env::suspects`, `Slots::changed`, the hooks.
//!
//! Reading order: `options`, `tables`, `memtable`, `store`, `read` (`sources`, `driver`, `timestamp_order`, `row_cache`,
//! `replica_pages`), `write` (`apply`, `flush`), `files` (`table_files`, `slots`), `compact` (`compaction`), `replay`.

mod compact;
mod damage;
mod env;
mod error;
mod files;
pub mod fuzz;
mod lifecycle;
mod memtable;
mod observe;
mod options;
mod read;
mod repair;
mod replay;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod transfer;
mod write;

pub use commitlog::{self, SyncMode};
pub use compact::Compactor;
pub use compact::backlog::Backlog;
pub use compact::cleanup::{Cleaned, OwnedRanges};
pub use compact::compaction::{CompactionRecord, PlannedCompaction};
pub use compact::index_build::BuiltIndex;
pub use compact::requests::CompactionControl;
pub use compact::scrub::Scrubbed;
pub use compact::upgrade::UpgradeScope;
pub use compact_plan::{GcPolicy, NEVER, RepairTimes, TombstoneOption};
pub use damage::Verifier;
pub use damage::quarantine::{DamagedFile, is_behind_copy};
pub use damage::verify::VerifyOptions;
pub use env::Env;
pub use env::failure::StoreFailure;
pub use env::full_disk::DiskSpaceChange;
pub use env::live_options::LiveOptions;
pub use error::StoreError;
pub use files::Files;
pub use files::damage_marks::DamageEvent;
pub use files::held_files::{AttachedTaken, Held, HeldFile, TakenForms};
pub use files::links::Links;
pub use files::slots::CompactionProgress;
pub use files::slots::Slots;
pub use lifecycle::Lifecycle;
pub use lifecycle::snapshot::{SnapshotInfo, SnapshotOptions};
pub use observe::Observer;
pub use observe::large_partitions::{LargeFate, LargeThresholds, PartitionGuardrails, Thresholds};
pub use options::sealing::SealingPolicy;
pub use options::{FlushCompression, PointInTime, ReplayOptions, StoreOptions, max_timestamp};
pub use read::Reader;
pub use read::counter_cache::Counters;
pub use read::counter_cache::{CounterRow, CountsOf, OwnCount};
pub use read::driver::{Flow, Look, LookedAt, RowSink};
pub use read::replica_pages::{ReplicaRead, ReplicaShown, StreamRead};
pub use read::saved_keys::damaged_saved_caches;
pub use repair::Repair;
pub use repair::repair_state::BegunRepair;
pub use repair::repaired_set::RepairedMark;
pub use replay::ReplayReport;
pub use sst_format::attached::ATTACHED_MAX;
pub use sstable::offline::ScrubOptions;
pub use sstable::{AttachedName, Component, Descriptor, TokenFilter, Version};
pub use store::Store;
pub use store::index_stats::{IndexStats, IndexedFile};
pub use tables::built_indexes::IndexState;
pub use tables::estimates::RangeEstimate;
pub use tables::large_files::{
    CellFacts, LargeEvent, LargeFile, PartitionFacts, RowFacts, SstableName,
};
pub use tables::read_stats::{Filtered, ReadStats};
pub use tables::registry::Tables;
pub use tables::repair_views::ReadScope;
pub use tables::sampling::{Sample, Sampled, Sampler};
pub use tables::table::TableStats;
pub use transfer::Transfer;
pub use transfer::import::{ImportOptions, Imported};
pub use transfer::row_ingest::{Ingest, Ingested};
pub use write::Writer;
