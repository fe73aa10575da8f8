//! Reads: sources, merges, pages for clients and for replicas, and the caches in front of files.
//!
//! Owns: which memtables and files a read asks, in which order, and what is cached. Never: changes a table's view.

pub(crate) mod cache_handover;
pub(crate) mod counter_cache;
pub(crate) mod driver;
pub(crate) mod memtable_fast_path;
pub(crate) mod merging;
pub(crate) mod replica_pages;
pub(crate) mod row_cache;
pub(crate) mod saved_keys;
pub(crate) mod sources;
pub(crate) mod timestamp_order;
