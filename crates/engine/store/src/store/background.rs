//! Background work of a store: flushes for memory, log size and age, compaction, release of the
//! log, watching the disk.

use std::rc::Rc;
use std::time::Duration;

use rt::Group;

use crate::error::StoreError;
use crate::store::Store;
use crate::tables::table::TableState;
use crate::write::table_key;

/// At least this often the loop looks around.
const TICK: Duration = Duration::from_secs(1);

impl Store {
    pub(crate) fn start_background(&self) {
        let store = self.clone();
        let flushes = async move {
            while !store.rooms.env.stopping.get() {
                // Registered before the work, so that a notification during the work is noticed
                // after it.
                let work = store.rooms.env.work.notified();
                store.flush_round().await;
                let deadline = store.rooms.env.rt.now() + TICK;
                // Elapsed: the tick.
                let _ = store.rooms.env.rt.timeout(deadline, work).await;
            }
        };
        let store = self.clone();
        let compactions = async move {
            while !store.rooms.env.stopping.get() {
                let changed = store.rooms.files.slots.changed.notified();
                store.rooms.compactor.look_at_backlog_if_due();
                if !store.rooms.compactor.begin_next_compaction() {
                    let deadline = store.rooms.env.rt.now() + TICK;
                    // Elapsed: the tick.
                    let _ = store.rooms.env.rt.timeout(deadline, changed).await;
                }
            }
        };
        // A closed gate: the store is stopping already.
        let rt = &self.rooms.env.rt;
        let _ = self.rooms.env.gate.spawn(rt, Group::Flush, "store-flush", flushes);
        let _ = self.rooms.env.gate.spawn(rt, Group::Compaction, "store-compaction", compactions);
    }

    async fn flush_round(&self) {
        self.watch_disk().await;
        if self.rooms.env.log.disk_full().is_some() {
            // Tries to write the log's buffered records.
            let _ = self.rooms.writer.commit().await;
        }
        if self.rooms.files.directories.misses_directories() {
            self.rooms.files.withhold_files();
        }
        self.rooms.observer.tell_large_events();
        for table in self.tables_to_flush() {
            // A table that waits for its key gets no further memtable each round: reads would have to merge them all.
            if table_key::has_key(&self.rooms.writer, &table) {
                self.rooms.writer.switch_memtable(&table);
            }
        }
        for table in self.rooms.tables.all_tables() {
            self.rooms.files.retry_orphans(&table).await;
            if !table_key::has_key(&self.rooms.writer, &table) {
                continue;
            }
            // The error is kept by `note_write_result`; the next round tries again. What fails for one table must not
            // keep others in memory and in the log; a full disk fails for all.
            if let Err(StoreError::DiskFull { .. }) = self.rooms.writer.flush_switched(&table).await
            {
                break;
            }
        }
        let released = self.rooms.writer.release_log().await;
        self.rooms.files.note_write_result(&released);
        if self.rooms.env.log.disk_full().is_none() {
            self.rooms.env.full_disk.note_success();
        }
    }

    async fn watch_disk(&self) {
        let reserve = self.rooms.env.options.disk_reserve_bytes;
        let Ok(free) = self.rooms.files.directories.free_bytes().await else { return };
        let full = free < reserve.max(1);
        if full {
            let detail = format!("{free} bytes are free, writes need {reserve}");
            self.rooms.env.full_disk.set(detail);
        } else {
            self.rooms.env.full_disk.clear();
        }
    }

    fn tables_to_flush(&self) -> Vec<Rc<TableState>> {
        let tables = self.rooms.tables.all_tables();
        let mut chosen: Vec<Rc<TableState>> = Vec::new();
        // Memory: the largest active memtable, when the memory not being flushed yet is over a
        // third.
        let active: usize = tables.iter().map(|t| t.flushable_bytes()).sum();
        if active > self.rooms.writer.flushable_bytes().1 / 3 {
            chosen.extend(tables.iter().max_by_key(|t| t.flushable_bytes()).cloned());
        }
        // Log size: tables that keep its oldest segment.
        if let Some(end) = self.rooms.env.log.oldest_over_limit() {
            let keeps = |t: &&Rc<TableState>| t.first_unflushed().is_some_and(|p| p <= end);
            chosen.extend(tables.iter().filter(keeps).cloned());
        }
        // Replayed writes, so that old segments can be removed.
        chosen.extend(tables.iter().filter(|t| t.view().active.is_replayed()).cloned());
        chosen.extend(tables.iter().filter(|t| t.wants_flush.take()).cloned());
        // Age.
        let now = self.rooms.env.rt.now();
        for table in &tables {
            let period = table.version().table.options.memtable_flush_period_in_ms;
            let Ok(period @ 1..) = u64::try_from(period) else { continue };
            let due = table.switched_at.get() + Duration::from_millis(period);
            if due <= now && !table.view().active.is_empty() {
                chosen.push(table.clone());
            }
        }
        chosen
    }
}
