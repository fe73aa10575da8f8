//! The tables of a shard: their shape, their view of memtables and files, all state known of them.
//!
//! Owns: a table's state on this shard, its truncations, damaged files, samples and estimates. Never:
//! merges rows; carries out TRUNCATE, DROP or snapshots (`lifecycle` does).

pub(crate) mod built_indexes;
pub(crate) mod cached_rows;
pub(crate) mod composite_keys;
pub(crate) mod damage;
pub(crate) mod dropped_columns;
pub(crate) mod estimates;
pub(crate) mod large_files;
pub(crate) mod read_stats;
pub(crate) mod registry;
pub(crate) mod repair_views;
pub(crate) mod retry_backoff;
pub(crate) mod sampling;
pub(crate) mod table;
pub(crate) mod table_file;
pub(crate) mod truncations;
