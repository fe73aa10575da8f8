//! Keys of cached partitions, saved in a file and read again after the next start: [`crate::read::saved_keys`].

use std::rc::Rc;

use rt::Group;

use super::HeadKeyRef;
use crate::error::StoreError;
use crate::read::Reader;
use crate::read::driver::Shaped;
use crate::read::saved_keys::{Saved, SavedCache, WARM_AFTER};
use crate::tables::cached_rows::CachedRows;
use crate::tables::read_stats::ReadStats;

/// Its keys are partition keys.
pub(crate) const ROWS: SavedCache =
    SavedCache { name: "rows", kind: "saved-rows", what: "which partitions are in the row cache" };

impl Reader {
    /// Starts reading the saved keys, and saving them periodically.
    pub(crate) fn start_row_cache(self: &Rc<Self>) {
        let period = self.env.options.row_cache_save_period;
        if period.is_zero() {
            return;
        }
        let store = self.clone();
        let task = async move {
            store.env.pause(WARM_AFTER).await;
            store.warm_rows().await;
            while !store.env.stopping.get() {
                store.env.pause(period).await;
                // The stop itself saves.
                if !store.env.stopping.get() {
                    store.save_rows().await;
                }
            }
        };
        // A closed gate: the store is stopping already.
        let _ = self.env.gate.spawn(&self.env.rt, Group::Admin, "store-rows", task);
    }

    /// Saves which partitions are cached, if the options want that.
    pub(crate) async fn save_rows(&self) {
        let options = &self.env.options;
        if options.row_cache_save_period.is_zero() || !self.row_cache.is_on() {
            return;
        }
        let bytes = {
            let heads = self.row_cache.heads.borrow();
            let tables = self.tables.map.borrow();
            let contents = |id| tables.get(&id).map(|t| t.view.borrow().contents);
            let current = heads.iter().filter(|(key, _)| contents(key.table) == Some(key.contents));
            let keys = current.map(|(key, _)| (key.table, &*key.key));
            ROWS.encode(keys.take(self.env.live.row_cache_keys_to_save.get()))
        };
        self.saved_keys.save_cache(ROWS, bytes).await;
    }

    /// Reads partitions that were cached when it was saved, those of this shard, whichever had them then.
    async fn warm_rows(&self) {
        let deadline = self.env.rt.now() + self.env.options.cache_load_max;
        for path in self.saved_keys.saved_files(ROWS).await {
            for saved in self.saved_keys.saved_keys(ROWS, &path).await {
                let ended = self.env.stopping.get() || self.env.rt.now() >= deadline;
                // A failed read is reported to the client that reads the partition.
                if ended || !self.warm_partition(&saved).await.unwrap_or(true) {
                    return;
                }
                self.env.rt.yield_if_due().await;
            }
        }
    }

    /// False: there is no room for more.
    async fn warm_partition(&self, (id, key): &Saved) -> Result<bool, StoreError> {
        let cache = &self.row_cache;
        let token = codec::token_of(key);
        let Some(table) = self.tables.table(*id) else { return Ok(true) };
        let CachedRows::First(rows) = table.cached_rows() else { return Ok(true) };
        if self.env.options.shard_map.shard_of(*id, token) != self.env.rt.shard() {
            return Ok(true);
        }
        let stats = cache.stats();
        if stats.bytes.saturating_add(cache.head_bytes_max() as u64) > stats.capacity {
            return Ok(false);
        }
        let (shape, view) = (table.shape(), table.view());
        let of_view = HeadKeyRef { table: table.id, contents: view.contents, token, key };
        if cache.heads.borrow().peek(&of_view).is_none() {
            let mut stats = ReadStats::default();
            let of = Shaped { table: &table, shape: &shape };
            self.fill_head(of, &view, token, key, rows, &mut stats).await?;
        }
        Ok(true)
    }
}
