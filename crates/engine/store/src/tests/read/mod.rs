//! Tests of `read`.

pub(super) mod cache_handover;
pub(super) mod counter_cache;
pub(super) mod index_search;
pub(super) mod memtable_fast_path;
pub(super) mod replica_pages;
pub(super) mod row_cache;
pub(super) mod timestamp_order;
pub(super) mod tombstone_pages;
pub(super) mod tombstones;
pub(super) mod vector_search;
