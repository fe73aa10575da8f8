//! TRUNCATE: the sequence of steps that empties a table, on this node and on all of them.
//!
//! Owns: the steps of a truncation and `metadata/truncated`, the durable record of the truncations that this node has
//! carried out ([`records`]). Never: how a store empties its slice ([`store::Store::truncate`]), words of clients.
//!
//! A truncation is an entry of the metadata log. Each node empties its shards when it applies the entry
//! ([`Truncations::apply`]). The client is answered when all nodes have applied it and report that no data is left and
//! that this is durable. As in Cassandra all nodes must be alive.
//!
//! A second run would remove rows that were acknowledged after the first one. So:
//!
//! INV-truncation-1: a truncation runs once. A shard that has its record in the commit log skips it
//! ([`store::Store::is_truncated`]), and the log keeps the record until `metadata/truncated` has the truncation.
//! INV-truncation-2: a start carries out a truncation only when its entry is the last one of the log (the process
//! ended between the entry and its application: no client was answered) and `metadata/truncated` was written for this
//! cluster, by the last run, and for an earlier entry. Otherwise newer rows may have been acknowledged. So that a file
//! of an earlier run is recognised, each run writes the file when it begins ([`begin_truncations`]).
//! INV-truncation-3: OK is answered when `metadata/truncated` has the truncation on every node. A failed write fails
//! the statement and is retried.
//! INV-truncation-4: a node that has served clients since a truncation was issued carries it out within the time that
//! TRUNCATE has, or not at all. The coordinator does not report a failure before that time has passed unless the entry
//! cannot be decided any more. So rows written after a reported failure stay.
//!
//! Reading order: `state`, `everywhere` (the statement), `apply` (the entry on each node), `records`.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod apply;
mod everywhere;
pub mod fuzz;
mod records;
mod shards;
mod state;

pub use apply::begin_truncations;
pub use everywhere::{Progress, TruncateError};
pub use records::Runs;
pub use shards::{AskShard, ShardReply, ShardRequest};
pub use state::{TruncationParts, TruncationState, Truncations};
