//! Approximate nearest neighbours of vectors: the vector kind of an attached index.
//!
//! Owns: quantised vectors, the graph and its construction, the bytes of the component, searches as cursors.
//! Similarities are those of `index_format::vectors`. Never: IO, clocks, randomness (seeds are arguments), the exact
//! score of a row, which the reader of the row computes from the row's own vector.
//!
//! Invariants: INV-ann-1: equal vectors, options and seed give equal bytes. INV-ann-2: a search whose beam is the number
//! of rows yields every row once. INV-ann-3: no bytes panic or make a search endless.
//!
//! Reading order: `space`, `quantize`, `graph`, [`component`], `writer`, [`search`].

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

pub mod component;
mod distance;
pub mod fuzz;
mod graph;
mod quantize;
pub mod search;
mod space;
#[cfg(test)]
mod tests;
mod writer;

pub use component::{VectorDirectory, VectorSummary};
pub use index_format::vectors::Similarity;
pub use search::{RowFilter, Search, SearchOptions, SearchStep};
pub use writer::{BuildStep, VectorWriter};
