//! Replay of a log that has more than memtables may hold.
//!
//! While memtables are over their budget the replay pauses between two records and writes the largest of them.
//! Order: 1. each file set is written and synced, its TOC.txt under the name `TOC.txt.tmp`; 2. when the log is at
//! its end, without errors, the TOC files get their names; 3. the views get the files. The log stays until the rest
//! of the memtables is flushed, too.
//!
//! A crash before 2 leaves sets marked as unfinished, which the next start removes, and all of the log, which it
//! replays from its beginning. One in the midst of 2 leaves files that have nothing which the log would not give
//! again: merged twice it is the same, counters included.
//!
//! So nothing is seen of data that a TRUNCATE further on in the log removes. Its record removes all data held of
//! this shard's slice. A record of a run with another number of shards removes a part of it, so all of those are
//! searched before the first file is held; data that they will remove is not replayed at all.
//!
//! INV-replay-1: memtables have their budget and one mutation at most.
//! INV-replay-2: no file that was held is one before the whole log was found sound.

use std::rc::Rc;

use commitlog::{LogPosition, Record, SegmentHeader};
use sstable::{Descriptor, SstableReader};
use stdx::{TableId, Token};

use crate::error::StoreError;
use crate::files::table_files::toc_path;
use crate::replay::{Replay, Replaying};
use crate::tables::table::{InFlight, TableState, TableView, bump};
use crate::tables::table_file::map_error;
use crate::write::flush::FlushTo;
use crate::write::unflushable::Logging;

/// A file that waits for the end of the log.
pub(super) struct HeldFile {
    pub(super) table: Rc<TableState>,
    in_flight: InFlight,
    directory: String,
    descriptor: Descriptor,
}

/// A truncation of a slice of another number of shards, which the replay has not reached.
pub(super) struct Ahead {
    table: TableId,
    slice: (u16, u16),
    at: LogPosition,
}

impl Replaying<'_> {
    /// Counts the memory of memtables. Returns true if the replay should pause after this record.
    pub(super) fn wants_room(&mut self) -> bool {
        let inner = self.store;
        let (bytes, most) =
            (inner.writer.memtable_bytes.get(), inner.env.options.memtable_bytes_max);
        self.report.memtable_bytes_peak = self.report.memtable_bytes_peak.max(bytes);
        bytes > most || !self.truncated.is_empty()
    }

    /// Removes truncated data, and when memtables are over their budget, writes the largest.
    pub(super) async fn make_room(&mut self) -> Result<(), StoreError> {
        self.discard_truncated().await;
        let inner = self.store;
        if inner.writer.memtable_bytes.get() <= inner.env.options.memtable_bytes_max {
            return Ok(());
        }
        if self.ahead.is_none() {
            self.look_ahead().await?;
        }
        self.hold_some().await
    }

    async fn discard_truncated(&mut self) {
        for file in self.truncated.drain(..) {
            self.store.files.discard(&file.table, file.in_flight).await;
        }
    }

    /// Step 1, of the largest memtables until half of the budget is free.
    async fn hold_some(&mut self) -> Result<(), StoreError> {
        let store = self.store;
        while store.writer.memtable_bytes.get() > store.env.options.memtable_bytes_max / 2 {
            let tables = store.tables.all_tables();
            let largest = tables.iter().max_by_key(|table| table.flushable_bytes());
            let Some(table) = largest.filter(|table| table.flushable_bytes() > 0) else {
                return Ok(());
            };
            let held = store.flush_held(table).await;
            store.files.note_write_result(&held);
            match held {
                Ok(file) => self.held.extend(file),
                Err(StoreError::DiskFull { detail }) => {
                    return Err(StoreError::DiskFull {
                        detail: format!(
                            "the commit log has more than memtables may hold, and there is no room to write it \
                             as SSTables: {detail}"
                        ),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Steps 2 and 3.
    pub(super) async fn end(&mut self) -> Result<(), StoreError> {
        let store = self.store;
        self.discard_truncated().await;
        // The node's own first writes happen before the rest is flushed.
        if store.writer.memtable_bytes.get() > store.env.options.memtable_bytes_max / 3 * 2 {
            self.hold_some().await?;
        }
        self.report.files = self.held.len() as u64;
        let fs = store.env.rt.fs();
        for file in &self.held {
            let toc = toc_path(&file.directory, file.descriptor);
            fs.rename(&format!("{toc}.tmp"), &toc).await?;
        }
        let mut directories: Vec<&String> = self.held.iter().map(|f| &f.directory).collect();
        directories.dedup();
        for directory in directories {
            fs.sync_dir(directory).await?;
        }
        for HeldFile { table, in_flight, directory, descriptor } in self.held.drain(..) {
            let version = table.version();
            let reader = SstableReader::open(&fs, &directory, descriptor, Some(&version.table));
            let reader = reader.await.map_err(map_error)?;
            let Some(file) = store.files.file_of(table.id, reader, Vec::new()) else { continue };
            let file = Rc::new(file);
            store.files.links.back_up(&table, &file).await;
            bump(&table.counters.flushes, 1);
            bump(&table.counters.flushed_bytes, file.reader.meta().data_file_length());
            let view = table.view();
            let mut files = view.files.clone();
            files.push(file);
            table.set_view(TableView::new(view.active.clone(), view.flushing.clone(), files));
            drop(in_flight);
        }
        Ok(())
    }

    /// Finds the later truncations that remove a part of this shard's slice, and applies them to
    /// memtables.
    async fn look_ahead(&mut self) -> Result<(), StoreError> {
        let mut ahead = Vec::new();
        let (_, shards) = self.store.env.shard();
        let headers = self.store.env.log.old_headers().await?;
        if headers.iter().any(|header| header.shards != shards) {
            let mut found = Truncations { store: self.store, behind: self.at, ahead };
            self.store.env.log.replay(&mut found).await?;
            ahead = found.ahead;
        }
        let map = self.store.env.options.shard_map;
        for Ahead { table: id, slice: (shard, shards), .. } in &ahead {
            let Some(table) = self.store.tables.table(*id) else { continue };
            let map = map.over(*shards);
            let active = table.view().active.clone();
            let before = active.bytes();
            active.remove_where(|token| map.shard_of(*id, token).0 == *shard);
            self.store.writer.release_memory(before.saturating_sub(active.bytes()));
        }
        self.ahead = Some(ahead);
        Ok(())
    }

    /// Returns true if a truncation found ahead removes this mutation.
    pub(super) fn is_taken_away(&self, table: TableId, token: Token) -> bool {
        let map = self.store.env.options.shard_map;
        self.ahead.iter().flatten().any(|ahead| {
            let (shard, shards) = ahead.slice;
            ahead.table == table
                && self.at < ahead.at
                && map.over(shards).shard_of(table, token).0 == shard
        })
    }
}

/// Looks for truncations only.
struct Truncations<'s> {
    store: &'s Replay,
    behind: LogPosition,
    ahead: Vec<Ahead>,
}

impl commitlog::Visitor for Truncations<'_> {
    type Error = StoreError;

    fn record(
        &mut self,
        _: &SegmentHeader,
        at: LogPosition,
        record: Record<'_>,
    ) -> Result<commitlog::Next, &'static str> {
        if let Record::Truncation(truncation) = record
            && at > self.behind
            && truncation.shards != self.store.env.shard().1
            && !self.store.is_too_late(&truncation)
        {
            let slice = (truncation.shard, truncation.shards);
            self.ahead.push(Ahead { table: truncation.table, slice, at });
        }
        Ok(commitlog::Next::GoOn)
    }

    async fn pause(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Replay {
    /// Step 1 for the memtable of a table, which is empty then; `None` when nothing was left to write.
    async fn flush_held(&self, table: &Rc<TableState>) -> Result<Option<HeldFile>, StoreError> {
        self.writer.switch_memtable(table);
        let Some(memtable) = table.view().flushing.first().cloned() else { return Ok(None) };
        self.files.make_directory(table).await?;
        let directory = self.files.directories.directory_of(&table.version().table);
        let in_flight = table.in_flight(self.files.next_generation(table));
        let generation = in_flight.generation();
        let to = FlushTo { directory: &directory, generation, cached_as: None, held: true };
        let (written, refused) = match self.writer.write_memtable(table, &memtable, to).await {
            Ok(written) => written,
            Err(error) => {
                self.files.discard(table, in_flight).await;
                return Err(error);
            }
        };
        let view = table.view();
        table.set_view(TableView::new(
            view.active.clone(),
            view.flushing_without(&memtable),
            view.files.clone(),
        ));
        drop(view);
        self.writer.release_memory(memtable.bytes());
        self.writer.put_back(table, &memtable, &refused, Logging::Replaying);
        self.writer.drop_in_steps(memtable).await;
        Ok(written.map(|written| HeldFile {
            table: table.clone(),
            in_flight,
            directory,
            descriptor: written.descriptor,
        }))
    }
}
