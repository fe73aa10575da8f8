//! Offline tools over SSTables: dump as JSON, metadata as text, verification, another version,
//! pieces, salvage of a damaged file, content of partitions, levels.
//!
//! Layouts are those of Cassandra's `sstabledump` and `sstablemetadata`, byte for byte.

mod analysis;
mod directory;
mod dump;
mod expired;
mod internal;
mod json;
mod keys;
mod levels;
mod metadata;
mod purge;
mod salvage;
mod scan;
mod scrub;
mod starts;
mod unkeyed;
mod upgrade;
mod verify;

pub use analysis::{
    Distribution, FileTotals, PartitionTotals, TableAnalysis, TableSummary, analyse, check_order,
    gc_before, summarise,
};
pub use directory::{
    Unfit, check_fit, lock_files, next_generation, snapshot, take_lock, unknown_components,
};
pub use dump::{DumpForm, DumpOptions, DumpTo, dump_json, dump_with, micros_text};
pub use expired::{Expiry, expired_blockers};
pub use keys::{key_of_text, key_text};
pub use levels::relevel;
pub use metadata::{
    MetadataOptions, MetadataStyle, ScannedOverview, TimestampUnit, droppable_ratio, metadata_text,
    scan_overview,
};
pub use purge::{PurgeReport, Reclaimable, purge_preview};
pub use scan::{Detail, PartitionScan, PartitionStats, ScanClock, range_of_key};
pub use scrub::{Loss, ScrubHost, ScrubOptions, ScrubReport, Told, scrub, scrub_open};
pub use unkeyed::verify_unkeyed;
pub use upgrade::{Rewrite, split, upgrade};
pub use verify::{
    VerifyReport, add_checksums, verify, verify_checksums, verify_checksums_with, verify_with,
};

pub use crate::header_table::table_of_header;
pub use data::command::KeyRange;
