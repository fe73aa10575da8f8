//! Repair: the replicas of a range are compared, and each is sent what it lacks.
//!
//! Owns: [`Repair`] (the driver, started by an administrator on the node that is to be repaired,
//! and the side that answers peers), what is compared ([`stretch`], [`walk`], [`cut`]) and where
//! ([`scope`]). Never: merges rows itself (`request::reconcile`), reads files (`coordinator`,
//! `store`).
//!
//! Invariants:
//! INV-repair-1: replicas are compared over the same stretch, whatever each of them has in it, and
//! taken for equal only when the hashes of all of it are equal.
//! INV-repair-2: only what a replica lacks of the merged content is sent, with the timestamps that
//! it has; a stretch is left behind only when every replica that lacked something has acknowledged
//! it.
//! INV-repair-3: a repair that fails or is cancelled has changed nothing but what a merge of the
//! replicas says; doing it again completes it.
//! INV-repair-4: memory is bounded by pages: of one stretch for each replica and table under way.
//! INV-repair-5: that a range was repaired is noted only when all its replicas took part, all got
//! what they lacked, and all have it on the disk; tombstones go for it, so nothing else may be noted.
//!
//! Reading order: [`stretch`], [`wire`], [`scope`], [`walk`], [`cut`], `job`, `details`, `tell`, `participation`, `repair`, `drive`,
//! `exchange`, `serve`, `mesh`, `incremental`, `sessions`, [`history`], [`schedule`], [`auto`],
//! [`damaged`], `auto_damaged`. See `docs/internals/repair.md`.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod auto;
mod auto_damaged;
pub mod cut;
pub mod damaged;
mod details;
mod drive;
mod error;
mod exchange;
pub mod history;
mod incremental;
mod job;
mod mesh;
mod participation;
mod records;
mod repair;
pub mod schedule;
pub mod scope;
mod serve;
mod sessions;
pub mod stretch;
mod tell;
#[cfg(test)]
mod tests;
pub mod walk;
pub mod wire;

pub use auto::{AutoSettings, AutoStatus, AutoTable};
pub use details::{JobDetails, RepairDetails, SessionDetails};
pub use error::RepairError;
pub use history::RepairHistory;
pub use job::{RepairCounts, RepairLine, RepairState, RepairStatus};
pub use mesh::{RepairMesh, new_mesh};
pub use participation::{Course, ParticipationDetails, ValidationDetails};
pub use records::{RepairRecord, RepairRecords};
pub use repair::{Repair, RepairParts, RepairSettings};
pub use scope::{Kind, RepairOptions};
pub use sessions::SessionStatus;
pub use tell::Preview;
