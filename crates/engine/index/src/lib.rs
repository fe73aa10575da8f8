//! Searches of attached indexes on one shard, as machines: keys of candidates in table order, up to a frontier.
//!
//! Owns: which keys a search gives, where it ends, how far its answer is complete ([`search`]); the keys of a source
//! without index ([`key_walk`]); the nearest rows of a search by a vector ([`nearest`]). Never: files, caches, waits (crate `store`), bytes of components (crate
//! `index-format`), the check of a row, other shards.
//!
//! A candidate had a value of the predicate in some file or memtable. The caller reads the merged row and filters.
//!
//! INV-index-1: a search sees each live row of its view that matches as a candidate: through a component, through the
//! index of the memtable, or through a source without index, which gives all keys.
//! INV-index-2: keys ascend, each is given once, and the frontier lies after the start of the search.
//!
//! Reading order: [`position`], [`search`], `found`, [`key_walk`], [`nearest`].

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

mod found;
pub mod key_walk;
pub mod nearest;
pub mod position;
pub mod search;
#[cfg(test)]
mod tests;

pub use key_walk::{KeyWalk, WalkStep};
pub use nearest::Nearest;
pub use position::SearchRange;
pub use search::{Search, SearchNeed, SearchPredicate, SearchStep};
