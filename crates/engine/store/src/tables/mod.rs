//! The tables of a shard: their shape, their view of memtables and files, their lifecycle.
//!
//! Owns: what a table is on this shard, TRUNCATE and DROP, snapshots, estimates. Never: merges rows.

pub(crate) mod dropped_columns;
pub(crate) mod estimates;
pub(crate) mod retry_backoff;
pub(crate) mod table;
