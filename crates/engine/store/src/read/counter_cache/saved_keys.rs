//! Keys of cached counters, saved in a file and read again after the next start: [`crate::read::saved_keys`].

use std::rc::Rc;

use data::command::{Partitions, ReadCommand};
use data::{ColumnRef, RowRef, Slice, Slices};
use rt::Group;
use stdx::Token;

use super::{CounterRow, ENTRY_OVERHEAD, OwnCount, row_of};
use crate::error::StoreError;
use crate::read::counter_cache::Counters;
use crate::read::driver::{Flow, RowSink};
use crate::read::saved_keys::{Saved, SavedCache, WARM_AFTER};

/// Its keys are places of rows: their counters are warmed together.
pub(crate) const COUNTERS: SavedCache = SavedCache {
    name: "counters",
    kind: "saved-counters",
    what: "which counters are in the counter cache",
};

/// One row, or a static one.
#[derive(Default)]
struct OneRow {
    wants_static: bool,
    row: Option<Vec<u8>>,
}

impl RowSink for OneRow {
    fn partition(&mut self, _: Token, _: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        if self.wants_static {
            self.row = static_row.map(|row| row.bytes().to_vec());
            return Flow::Stop;
        }
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        self.row = Some(row.bytes().to_vec());
        Flow::Stop
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

impl Counters {
    /// Starts reading the saved keys, and saving them periodically.
    pub(crate) fn start_counter_cache(self: &Rc<Self>) {
        let period = self.env.options.counter_cache_save_period;
        if period.is_zero() {
            return;
        }
        let store = self.clone();
        let task = async move {
            store.env.pause(WARM_AFTER).await;
            store.warm_counters().await;
            while !store.env.stopping.get() {
                store.env.pause(period).await;
                // The stop itself saves.
                if !store.env.stopping.get() {
                    store.save_counters().await;
                }
            }
        };
        // A closed gate: the store is stopping already.
        let _ = self.env.gate.spawn(&self.env.rt, Group::Admin, "store-counters", task);
    }

    /// Saves which counters are cached, if the options want that.
    pub(crate) async fn save_counters(&self) {
        let options = &self.env.options;
        let cache = &self.counter_cache;
        if options.counter_cache_save_period.is_zero() || !cache.is_on() {
            return;
        }
        let bytes = {
            // Most nodes count nothing, and need no such file.
            if cache.counts.borrow().is_empty() {
                return;
            }
            let counts = cache.counts.borrow();
            let tables = self.tables.map.borrow();
            let is_current = |numbers: &super::Numbers| {
                let table = tables.get(&numbers.table);
                table.is_some_and(|table| cache.numbers(table, numbers.token) == *numbers)
            };
            let current = counts.iter().filter(|(key, _)| is_current(&key.numbers));
            let keys = current.map(|(key, _)| (key.numbers.table, &*key.place));
            COUNTERS.encode(keys.take(self.env.live.counter_cache_keys_to_save.get()))
        };
        self.reader.saved_keys.save_cache(COUNTERS, bytes).await;
    }

    /// Reads counters that were cached when it was saved, those of this shard, whichever had them then.
    async fn warm_counters(&self) {
        let deadline = self.env.rt.now() + self.env.options.cache_load_max;
        for path in self.reader.saved_keys.saved_files(COUNTERS).await {
            for saved in self.reader.saved_keys.saved_keys(COUNTERS, &path).await {
                let ended = self.env.stopping.get() || self.env.rt.now() >= deadline;
                // A failed read is reported to the client that reads the counter.
                if ended || !self.warm_counter(&saved).await.unwrap_or(true) {
                    return;
                }
                self.env.rt.yield_if_due().await;
            }
        }
    }

    /// False: there is no room for more.
    async fn warm_counter(&self, (id, place): &Saved) -> Result<bool, StoreError> {
        let cache = &self.counter_cache;
        let Some((key, clustering)) = row_of(place) else { return Ok(true) };
        let token = codec::token_of(key);
        if self.env.options.shard_map.shard_of(*id, token) != self.env.rt.shard() {
            return Ok(true);
        }
        let Some(of) = self.counts_of(*id, key) else { return Ok(true) };
        if !of.table.shape().has_counters() {
            return Ok(true);
        }
        let weight = cache.counts.borrow().weight();
        if weight.saturating_add((place.len() + ENTRY_OVERHEAD) as u64) > cache.capacity() {
            return Ok(false);
        }
        let mut found = OneRow { wants_static: clustering.is_none(), row: None };
        let slice = match clustering {
            Some(clustering) if !clustering.is_empty() => Slice::prefix(clustering.to_vec()),
            Some(_) => Slice::all(),
            None => Slice { end_after: false, ..Slice::all() },
        };
        let command = ReadCommand {
            table: *id,
            partitions: Partitions::Key(key.to_vec()),
            slices: Slices(vec![slice]).into(),
            reversed: false,
            columns: None,
            now: self.env.rt.wall().seconds(),
            wants_static: clustering.is_none(),
            resume: None,
            bypass_cache: false,
        };
        self.reader.read(&command, &mut found).await?;
        if self.are_counts_current(&of)
            && let Some(row) = &found.row
        {
            self.keep_row(&of, (key, clustering), RowRef::trusted(row));
        }
        Ok(true)
    }

    /// Caches the counts of a row that was read.
    fn keep_row(&self, of: &super::CountsOf, at: CounterRow<'_>, row: RowRef<'_>) {
        for (column, cell) in row.columns() {
            if let ColumnRef::Simple(cell) = cell
                && !cell.is_tombstone()
            {
                let count = OwnCount::of(cell.timestamp, cell.value, of.writer);
                self.keep_count(of, at, column, count);
            }
        }
    }
}
