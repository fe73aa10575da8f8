//! The tables of one shard: memtables, SSTables, reads, flush, compaction, truncate, snapshots.
//!
//! Owns: the data of this shard's slice of every table, and the order in which things become
//! durable. Never: decides about schema, replicas or CQL; never shares anything with another shard
//! except files.
//!
//! Invariants:
//! INV-store-1: what `commit` confirmed is in the commit log or in a complete SSTable.
//! INV-store-2: a read sees one table view from begin to end.
//! INV-store-3: a segment of the log is released only when every mutation in it is in complete,
//! synced SSTables (or truncated).
//!
//! Reading order: `options`, `table`, `memtable`, `store`, `sources`, `read`, `by_timestamp`, `row_cache`, `counter_cache`, `saved`, `replica`, `flush`, `hidden`, `unflushable`, `files`, `slots`,
//! `compaction`, `backlog`, `control`, `repairing`, `cleanup`, `upgrade`, `garbage`, `verify`, `scrub`, `quarantine`, `watch`, `out_of_service`, `ingest`, `whole`, `import`, `truncate`, `snapshot`, `again`, `background`.

mod again;
mod ahead;
mod background;
mod backlog;
mod by_timestamp;
mod cache;
mod cleanup;
mod compaction;
mod control;
mod copying;
mod counter_cache;
mod directories;
mod error;
mod estimates;
mod files;
mod flush;
mod found;
mod full_disk;
pub mod fuzz;
mod garbage;
mod hidden;
mod import;
mod ingest;
mod large;
mod link_rate;
mod live_options;
mod memtable;
mod options;
mod out_of_service;
mod outputs;
mod plain_rows;
mod quarantine;
mod read;
mod repaired_set;
mod repairing;
mod replay;
mod replica;
mod routing;
mod row_cache;
mod sampling;
mod saved;
mod scrub;
mod slots;
mod snapshot;
mod sorted;
mod sources;
mod stages;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod truncate;
mod truncation_records;
mod unflushable;
mod upgrade;
mod verify;
mod warm;
mod watch;
mod whole;

pub use backlog::Backlog;
pub use cleanup::{Cleaned, OwnedRanges};
pub use commitlog::{self, SyncMode};
pub use compact_plan::{GcPolicy, NEVER, RepairTimes, TombstoneOption};
pub use compaction::{CompactionProgress, CompactionRecord, PlannedCompaction};
pub use control::CompactionControl;
pub use counter_cache::{CounterRow, CountsOf, OwnCount};
pub use error::StoreError;
pub use estimates::RangeEstimate;
pub use full_disk::DiskSpaceChange;
pub use import::{ImportOptions, Imported};
pub use ingest::{Ingest, Ingested};
pub use large::{
    CellFacts, LargeEvent, LargeFate, LargeFile, LargeThresholds, PartitionFacts,
    PartitionGuardrails, RowFacts, SstableName, Thresholds,
};
pub use options::{FlushCompression, StoreOptions};
pub use quarantine::{DamageEvent, DamagedFile, is_behind_copy};
pub use read::{Filtered, Flow, Look, LookedAt, ReadStats, RowSink};
pub use repaired_set::RepairedMark;
pub use repairing::{BegunRepair, ReadScope};
pub use replay::{PointInTime, ReplayOptions, ReplayReport, max_timestamp};
pub use replica::{ReplicaRead, StreamRead};
pub use sampling::{Sample, Sampled, Sampler};
pub use saved::damaged_saved_caches;
pub use scrub::Scrubbed;
pub use snapshot::{SnapshotInfo, SnapshotOptions};
pub use sstable::offline::ScrubOptions;
pub use sstable::{Component, Descriptor, TokenFilter, Version};
pub use store::{Store, StoreFailure};
pub use table::TableStats;
pub use upgrade::UpgradeScope;
pub use verify::VerifyOptions;
pub use whole::{Held, HeldFile};
