//! Attached secondary indexes as pure encoders, decoders and cursors: terms, components, sets of rows.
//!
//! Owns: the order of indexed values ([`terms`]), the bytes of `Index+<id>.db` ([`writer`], [`cursor`]) and of
//! `Index+Rows.db` ([`rows`]), analysis of text ([`analysis`], [`sasi`]), patterns ([`like`]), runs of a build ([`runs`]),
//! the index of a memtable ([`memtable`]), unions and intersections of rows ([`sets`]), the definition of indexes of vectors
//! ([`vectors`]), the values of a search ([`search`]). Never: IO, clocks, the choice of an index, the
//! check of a row.
//!
//! A row id is the ordinal of a row in its file, static rows included. Row ids of one file ascend in the order of
//! its primary keys. An index names rows that had a value once; the reader checks each against the merged row.
//!
//! Invariants: INV-index-format-1: no decoder panics on any bytes, and none allocates on the word of a length
//! field. INV-index-format-2: a cursor yields the ids of its ranges in ascending order, each once, exactly those
//! that were written. INV-index-format-3: a block refers to blocks before it only, and a walk
//! visits no block twice, so no bytes make it endless.
//!
//! Reading order: [`block`], [`postings`], `leaf`, `node`, [`writer`], [`range`], `walk`, [`cursor`], [`rows`],
//! [`terms`], [`analysis`], [`like`], [`sasi`], [`distance`], [`vectors`], [`indexed`], [`runs`], [`memtable`], [`sets`],
//! [`search`]. Bytes: `docs/formats/index.md`.

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

pub mod analysis;
mod bits;
pub mod block;
pub mod cursor;
pub mod distance;
mod error;
pub mod fuzz;
mod id_set;
pub mod indexed;
mod leaf;
pub mod like;
pub mod memtable;
mod node;
pub mod postings;
pub mod range;
pub mod rows;
pub mod runs;
pub mod sasi;
pub mod search;
pub mod sets;
pub mod sources;
pub mod summary;
pub mod terms;
#[cfg(test)]
mod tests;
pub mod text;
mod union;
pub mod vectors;
mod visibility;
mod walk;
pub mod writer;

pub use analysis::{Analysis, Tokens};
pub use block::{Block, BlockKind, BlockRef};
pub use cursor::{IndexCursor, Step};
pub use error::IndexError;
pub use indexed::{IndexedPart, IndexedRow, IndexedValues, TableIndex, TableIndexes};
pub use leaf::Counts;
pub use like::{LikeKind, LikePattern, TermFilter};
pub use memtable::{FilteredWalk, MemtableIndex, MemtableRows};
pub use range::TermRange;
pub use rows::{Lookup, RowPlace, RowsReader, RowsSummary, RowsWriter};
pub use search::{
    Frontier, IndexPredicate, IndexSearch, MatchedPartition, MatchedRows, Matches, Matching,
    Neighbour, Neighbours, SearchLimits, VectorSearch,
};
pub use sets::{Intersection, Need, Predicate, SetError, SetStep};
pub use sources::{Candidate, Fed, RowKey, Scope, Source, Wanted};
pub use summary::{Footer, IndexSummary};
pub use vectors::{OptimizeFor, Similarity, VectorDefect, VectorIndex, floats_of};
pub use visibility::Visibility;
pub use writer::IndexWriter;
