//! Keeps writes that a replica missed and delivers them when it is back.
//!
//! Owns: the files of the hints directory, the hints in memory that wait to be written to them,
//! deliveries and their pace. Never: decides which replicas missed a write (`request` does),
//! applies a hint that a peer sent (`coordinator` does), or makes a user's write fail or wait.
//!
//! Hints are best effort: refused, dropped and lost hints are counted, and a repair restores their
//! writes.
//!
//! Invariants:
//! INV-hints-1: a hint that [`Hints::flush`] confirmed is delivered at least once, unless it
//! expires, its table is dropped or truncated, its replica leaves, an operator drops it, or the
//! disk loses it.
//! INV-hints-2: the hints that one shard keeps of one partition for one replica are delivered first
//! in the order in which they were stored.
//! INV-hints-3: memory and files are bounded; above a bound hints are refused and counted.
//! INV-hints-4: unreadable bytes are reported in the log and cost no hint but their own.
//!
//! Reading order: [`Hints`], [`policy`] (all decisions), [`format`], [`walk`], then `writer`,
//! `delivery`, `leave`, `sealed`, `key_files`. See `docs/formats/hints.md`.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod catalog;
mod counters;
mod delivery;
mod error;
mod files;
mod flight;
pub mod format;
pub mod fuzz;
mod hints;
mod key_files;
mod leave;
pub mod policy;
mod sealed;
mod settings;
#[cfg(test)]
mod tests;
pub mod walk;
mod writer;

pub use catalog::PendingHints;
pub use error::HintsError;
pub use format::HintSealing;
pub use hints::{Hints, HintsParts, Missed, Redistribute};
pub use settings::HintsSettings;
