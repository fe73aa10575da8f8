//! Options of a store that change while it runs.

use std::cell::Cell;

use crate::env::link_rate::LinkRate;
use crate::options::StoreOptions;

/// Options that can change while the store runs; they begin with those of the start.
pub struct LiveOptions {
    /// Bytes of rows between two entries of the index of a partition.
    pub(crate) column_index_bytes: Cell<u64>,
    /// Keys of the row cache that are saved, and of the counter cache.
    pub(crate) row_cache_keys_to_save: Cell<usize>,
    pub(crate) counter_cache_keys_to_save: Cell<usize>,
    /// Hard links of snapshots.
    pub(crate) links: LinkRate,
}

impl LiveOptions {
    pub(crate) fn new(options: &StoreOptions, shards: u16) -> LiveOptions {
        LiveOptions {
            column_index_bytes: Cell::new(options.column_index_bytes),
            row_cache_keys_to_save: Cell::new(options.row_cache_keys_to_save),
            counter_cache_keys_to_save: Cell::new(options.counter_cache_keys_to_save),
            links: LinkRate::new(shards, options.snapshot_links_per_second),
        }
    }
}

impl LiveOptions {
    /// Bytes of rows between two entries of the index of a partition, in files that are written from now
    /// on.
    pub fn column_index_bytes(&self) -> u64 {
        self.column_index_bytes.get()
    }

    /// Changes [`LiveOptions::column_index_bytes`].
    pub fn set_column_index_bytes(&self, bytes: u64) {
        self.column_index_bytes.set(bytes.max(1));
    }

    /// How many keys of the row cache are saved from now on; 0: none.
    pub fn set_row_cache_keys_to_save(&self, keys: usize) {
        self.row_cache_keys_to_save.set(keys);
    }

    /// How many keys of the counter cache are saved from now on; 0: none.
    pub fn set_counter_cache_keys_to_save(&self, keys: usize) {
        self.counter_cache_keys_to_save.set(keys);
    }

    /// Changes how many hard links the snapshots of the node create or remove per second; 0 is no limit.
    pub fn set_snapshot_links_per_second(&self, per_second: u64) {
        self.links.set(per_second);
    }
}
