//! Decisions of an indexed read: how the matches of shards and replicas become one list, what of it is read by name, and
//! where the next search begins.
//!
//! An indexed SELECT is a scan that skips. Replicas give the keys that match one predicate; the coordinator unites the
//! keys up to the smallest frontier, reads these rows by name at the statement's level, and filters what it reads.
//!
//! Owns: positions of searches ([`position`]), the union ([`unite`](union)), checks of answers of other nodes ([`check`]),
//! reads by name ([`named_read`]), the choice of the driving predicate and of the number of searches at a time
//! ([`driving`]), the rounds of a read of the nearest rows ([`nearest`]). Never: IO, clocks, the choice of replicas (`request::search`), how a shard searches.
//!
//! Invariants: INV-index-read-2 ([`union`]), INV-index-read-3 ([`named_read`]), INV-index-read-5 ([`nearest`]).
//!
//! Reading order: [`position`], [`union`], [`check`], [`named_read`], [`driving`], [`nearest`].

pub mod check;
pub mod driving;
pub mod named_read;
pub mod nearest;
#[cfg(test)]
mod nearest_tests;
pub mod position;
#[cfg(test)]
mod tests;
pub mod union;

pub use check::{check, check_neighbours};
pub use driving::{DriverEstimates, RangeConcurrency};
pub use named_read::{NamedRead, NamedReads, Remainder};
pub use nearest::{NearestRounds, Round, compare_neighbours, compare_places};
pub use position::{Continued, advance};
pub use union::unite;
