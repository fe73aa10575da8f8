//! Repair: the replicas of a range are compared, and each is sent the data that it lacks.
//!
//! Owns: [`Repair`] (the driver, started by an administrator on the node that is to be repaired, and the
//! side that answers peers), the content that is compared ([`segment`], [`plan`], [`split`]) and its
//! ranges ([`scope`]). Never: merges rows itself (`request::reconcile`), reads files (`coordinator`,
//! `store`).
//!
//! Invariants:
//! INV-repair-1: replicas are compared over the same segment, whatever each of them has in it. They count
//! as equal only when the hashes of all of it are equal.
//! INV-repair-2: a replica is sent only the part of the merged content that it lacks, with the original
//! timestamps. A segment is complete only when every replica that lacked something has acknowledged it.
//! INV-repair-3: a repair that fails or is cancelled has written nothing but the merge of the replicas;
//! repeating it completes it.
//! INV-repair-4: memory is bounded by pages: of one segment for each replica and table under way.
//! INV-repair-5: a range is recorded as repaired only when all its replicas took part, all got the data
//! that they lacked, and all have it on the disk. The record allows tombstones to be purged, so it must
//! never be wrong.
//!
//! Modules, each of which depends only on those before it: pure: [`segment`], [`split`], [`wire`],
//! [`plan`], [`scope`], `announcement`, [`history`], [`schedule`], [`corrupt_files`]; one repair:
//! `details`, `job`; the shard: `throttle`, `env`, `recording`, `history_file`, `participation`, `shards`;
//! peers: `exchange`, `announce`, `sessions`, `serve`; work: `drive`, `jobs`, `corrupt_files_driver`,
//! `auto`; the façade: `repair`. See `docs/internals/repair.md`.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod announce;
mod announcement;
mod auto;
mod clock;
pub mod corrupt_files;
mod corrupt_files_driver;
mod details;
mod drive;
mod env;
mod error;
mod exchange;
pub mod fuzz;
pub mod history;
mod history_file;
mod job;
mod jobs;
mod metrics;
mod participation;
pub mod plan;
mod ranges;
mod recording;
mod records;
mod repair;
pub mod schedule;
pub mod scope;
pub mod segment;
mod serve;
mod sessions;
mod settings;
mod shards;
pub mod split;
#[cfg(test)]
mod tests;
mod throttle;
pub mod wire;

pub use auto::{AutoStatus, AutoTable, Automatic};
pub use details::{JobDetails, RepairDetails, SessionDetails};
pub use error::RepairError;
pub use history::RepairHistory;
pub use job::{RepairCounts, RepairLine, RepairState, RepairStatus};
pub use participation::{Course, ParticipationDetails, ValidationDetails};
pub use ranges::TokenSpan;
pub use records::{RepairRecord, RepairRecords};
pub use repair::{Repair, RepairParts};
pub use scope::{Kind, Preview, RepairOptions};
pub use sessions::SessionStatus;
pub use settings::{AutoSettings, RepairSettings};
pub use shards::{RepairMesh, new_mesh};
