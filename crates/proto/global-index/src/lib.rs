//! Global secondary indexes: decisions of their writes and reads, without IO.
//!
//! A global index keeps its entries in a table of their own, partitioned by the indexed value ([`definition`]). A write
//! of the base table inserts entries before it is sent to any replica ([`entries`]); it reads nothing and deletes
//! nothing. A read takes the entries of a value, reads the rows that they name, and checks each ([`scan`],
//! [`verdict`]). An entry whose row does not have the value is a *ghost*. It is deleted only when the row proves that
//! no write below the entry's timestamp can become visible again ([`ghost`]).
//!
//! Owns: the definition of the entry table, entries of a mutation, the order of entries, the steps of a read, the proof of
//! a ghost. Never: IO, clocks, the choice of replicas and consistency levels, permissions.
//!
//! Invariants. INV-global-1: an acknowledged entry is live while any write that it stands for may be visible, and no
//! later entry hides it ([`entries`]). INV-global-2: a deletion of an entry hides only writes that the base row shadows,
//! and no entry that is written after it ([`ghost`]). INV-global-3: a scan asks for each entry once, in order, and names a
//! row only if the row has the value ([`scan`]). Together: a read at a level that meets the writes' levels returns
//! exactly the rows that a filter over the base table returns.
//!
//! Reading order: [`definition`], [`canonical`], [`entry_key`], [`entries`], [`page`], [`verdict`], [`ghost`], [`scan`].
//! Why: `docs/dev/decisions/0067-global-indexes.md`.

#![deny(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

pub mod canonical;
pub mod definition;
pub mod entries;
pub mod entry_key;
pub mod ghost;
pub mod page;
pub mod scan;
#[cfg(test)]
mod tests;
pub mod verdict;

pub use canonical::CanonicalForm;
pub use definition::{GlobalIndex, Unsupported};
pub use entries::{EntryMutation, ValueTooLong, entries_of};
pub use entry_key::EntryKeys;
pub use ghost::{GhostPolicy, delete_entry, is_deletable};
pub use page::{Entry, EntryPage, PageDefect};
pub use scan::{Checked, FoundRow, GlobalScan, ScanBounds, ScanStep};
pub use verdict::{BaseRow, Verdict, judge};
