//! Decisions of an indexed read: how the matches of shards and replicas become one list, what of it is read by name, and
//! where the next search begins.
//!
//! An indexed SELECT is a scan that skips. Replicas give the keys that match one predicate; the coordinator unites the
//! keys up to the smallest frontier, reads these rows by name at the statement's level, and filters what it reads.
//!
//! Owns: positions of searches ([`position`]), the union ([`unite`](union)), checks of answers of other nodes ([`check`]),
//! reads by name ([`named_read`]), the choice of the driving predicate and of the number of searches at a time
//! ([`driving`]). Never: IO, clocks, the choice of replicas (`request::search`), how a shard searches.
//!
//! Invariants: INV-index-read-2 ([`union`]), INV-index-read-3 ([`named_read`]).
//!
//! Reading order: [`position`], [`union`], [`check`], [`named_read`], [`driving`].

pub mod check;
pub mod driving;
pub mod named_read;
pub mod position;
#[cfg(test)]
mod tests;
pub mod union;

pub use check::check;
pub use driving::{DriverEstimates, RangeConcurrency};
pub use named_read::{NamedRead, NamedReads, Remainder};
pub use position::{Continued, advance};
pub use union::unite;
