//! The mutation model: the law book of last-write-wins.
//!
//! Owns: packed rows ([`row`]), clusterings and bounds ([`clustering`]), mutations ([`mutation`]),
//! cursors over sorted partitions and their merge ([`cursor`], [`merge`]), read commands
//! ([`command`]), counters ([`counter`]). Never: IO, clocks (`now` is an argument), schema decisions.
//!
//! Invariants:
//! INV-data-1: cells of a packed row are ordered by column id, each id at most once; nested cells
//! by path in the collection's path order, each path at most once.
//! INV-data-2: rows of a partition are ordered by clustering and unique.
//! INV-data-3: merging is commutative, associative and idempotent; of counters as far as they are not
//! deleted ([`counter`]).
//!
//! Reading order: [`deletion`], [`row`], [`clustering`], [`mutation`], [`cursor`], [`merge`],
//! [`tombstones`], [`merge_cursor`], [`shadow`].

pub mod clustering;
pub mod command;
pub mod counter;
pub mod cursor;
pub mod deletion;
pub mod digest;
pub mod fuzz;
pub mod merge;
pub mod merge_cursor;
pub mod mutation;
mod page_check;
pub mod page_cursor;
pub mod page_fuzz;
#[cfg(test)]
mod page_tests;
mod passed;
mod raw;
pub mod replica_page;
pub mod row;
pub mod row_filter;
pub mod row_fold;
pub mod shadow;
pub mod shape;
#[cfg(test)]
mod tests;
pub mod tombstones;
pub mod writable;

pub use clustering::{BoundRef, ClusteringBuf, ClusteringComparator, Slice, Slices};
pub use cursor::{Advance, BlockRequest, ClusteredRow, Cursor, CursorError, Item, Marker};
pub use deletion::{DeletionTime, Liveness};
pub use digest::Digest;
pub use merge::{Keep, Merged, Outcome, Purge, merge_rows};
pub use merge_cursor::{GcBefore, MergeCursor, MergeMode};
pub use mutation::{MutationBuilder, MutationRef, RangeTombstoneRef};
pub use row::{CellRef, ColumnRef, ComplexRef, RowBuilder, RowRef, UsualCells};
pub use row_filter::RowFilter;
pub use row_fold::{FoldEnd, FoldFlow, FoldResult, FoldState, Folding, RowFold, ShardFold};
pub use shadow::{Shadow, ShadowBy, ShadowCursor};
pub use shape::TableShape;
pub use tombstones::{BoundBuf, RangeTombstone, RangeTombstoneList};
