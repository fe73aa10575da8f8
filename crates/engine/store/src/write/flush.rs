//! Flush: a memtable becomes an SSTable.
//!
//! Order: 1. the view gets a new active memtable, the old one is among the flushing ones; 2. the
//! file set is written, TOC.txt last, everything synced; 3. the view gets the file and loses the
//! memtable in one step; 4. the commit log's segments below every unflushed mutation are deleted. A
//! crash before 2 is done leaves a set marked as unfinished, which the next start removes; the
//! mutations are replayed. Between 3 and 4 they are replayed over the file, which changes nothing.

use std::rc::Rc;
use std::sync::Arc;

use codec::KeyHash;
use data::command::KeyRange;
use data::{Advance, Cursor, DeletionTime, Item, MergeCursor, MergeMode, RowRef, Slices};
use index_format::TableIndexes;
use sst_format::header::EncodingStats;
use sst_format::{PackedRow, RowCopier};
use sstable::{
    CopiedRows, CopyUntil, Indexing, SstableReader, SstableWriter, WriterOptions, Written,
};
use stdx::{Generation, IoErrorKind, TableId, TimestampMicros, Token};

use crate::env::failure::StoreFailure;
use crate::error::StoreError;
use crate::memtable::{ITEMS_PER_LOOK, Memtable, MemtableScan};
use crate::tables::table::{Pin, TableState, TableView, bump};
use crate::tables::table_file::{TableFile, map_error};
use crate::write::Writer;
use crate::write::table_key;
use crate::write::unflushable::{Logging, Refused};

/// Bytes per write request of a flush, and of a compaction that writes one file at a time. A shard has few of them
/// at a time, so that the memory counts little, and each request costs the kernel some 50 us of the processor or
/// more, whatever its size.
pub(crate) const REQUEST_BYTES: usize = 1024 * 1024;

/// Divisor of the memory for chunks: this part is for the indexes of all files that are written at once.
const INDEXING_PART: usize = 16;
/// Least and most bytes in which the indexes of a file are sorted.
const INDEXING_BYTES: (usize, usize) = (1 << 20, 32 << 20);
/// Vectors of a file have this many times the memory of sorting: a search walks each segment that they make.
const VECTORS_PART: usize = 2;
/// Least and most bytes of vectors that become one segment.
const VECTOR_BYTES: (usize, usize) = (4 << 20, 512 << 20);

/// Passes items on to a writer; partitions from which nothing is left are not begun.
pub(crate) struct Sieve {
    pending: Option<DeletionTime>,
    key: Vec<u8>,
    token: Token,
    /// Hash of `key`, where it is known.
    hash: Option<KeyHash>,
}

impl Sieve {
    pub(crate) fn new() -> Sieve {
        Sieve { pending: None, key: Vec::new(), token: Token::MIN, hash: None }
    }

    pub(crate) fn put(
        &mut self,
        item: Item<'_>,
        writer: &mut SstableWriter,
    ) -> sstable::Result<()> {
        match item {
            Item::Partition { token, key, deletion } => {
                self.token = token;
                self.hash = None;
                if deletion.is_live() {
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    self.pending = Some(deletion);
                    return Ok(());
                }
                self.pending = None;
            }
            Item::PartitionEnd => {
                if self.pending.take().is_some() {
                    return Ok(());
                }
            }
            Item::Static(_) | Item::Row { .. } | Item::Marker(_) => {
                self.begin(writer)?;
            }
        }
        writer.put(item)
    }

    /// The hash of the key of the partition that was put last.
    #[inline]
    pub(crate) fn set_hash(&mut self, hash: Option<KeyHash>) {
        self.hash = hash;
    }

    #[inline]
    fn begin(&mut self, writer: &mut SstableWriter) -> sstable::Result<()> {
        match (self.pending.take(), self.hash) {
            (None, _) => Ok(()),
            (Some(deletion), Some(hash)) => writer.partition_of(hash, &self.key, deletion),
            (Some(deletion), None) => writer.partition(&self.key, deletion),
        }
    }

    /// Copies rows of another file: see [`SstableWriter::copy_rows`]. None when the first one is not of the
    /// usual form.
    #[inline]
    pub(crate) fn copy_rows(
        &mut self,
        copier: &RowCopier,
        bytes: &[u8],
        until: CopyUntil<'_>,
        writer: &mut SstableWriter,
    ) -> sstable::Result<CopiedRows> {
        let first = copier.row(bytes).filter(|row| !writer.may_be_large(row.length));
        let first = first.filter(|row| writer.is_before(row, until));
        let Some(first) = first else { return Ok(CopiedRows::default()) };
        self.begin(writer)?;
        writer.copy_rows(copier, first, bytes, until)
    }

    /// Writes rows: see [`SstableWriter::packed_rows`].
    #[inline]
    fn packed_rows<'r>(
        &mut self,
        rows: impl IntoIterator<Item = (&'r [u8], RowRef<'r>)>,
        writer: &mut SstableWriter,
    ) -> sstable::Result<u64> {
        let begin = self.pending.map(|_| self.key.as_slice());
        let count = writer.packed_rows(begin, rows)?;
        if count > 0 {
            self.pending = None;
        }
        Ok(count)
    }
}

/// Writes rows that follow in a memtable, as far as they are of the usual form: how many, at most
/// [`ITEMS_PER_LOOK`]. When they are the last of the partition, it is ended.
#[inline]
fn put_rows(
    merge: &mut MergeCursor<'_, MemtableScan>,
    sieve: &mut Sieve,
    writer: &mut SstableWriter,
) -> sstable::Result<usize> {
    let Some(scan) = merge.source_mut(0) else { return Ok(0) };
    let Some(rows) = scan.next_rows() else { return Ok(0) };
    let count = sieve.packed_rows(rows.take(ITEMS_PER_LOOK), writer)?;
    if count > 0 {
        let ended = scan.pass_rows(count);
        if ended {
            writer.partition_end()?;
        }
        merge.took_rows(ended);
    }
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Writes the next partitions of one row of the usual form of a memtable, as far as the scan has
/// them loaded. Returns how many. They need no merge.
fn put_plain(scan: &mut MemtableScan, writer: &mut SstableWriter) -> sstable::Result<usize> {
    let Some(bytes_max) = writer.whole_max() else { return Ok(0) };
    let schema = writer.schema();
    let mut plains = scan.next_plains();
    let count = writer.whole_partitions(None, || {
        let (key, entry) = plains.next()?;
        let (clustering, row) = entry.parts();
        let row = PackedRow::new(&schema, clustering, row)?;
        let is_small = key.len() + row.length_max() <= bytes_max;
        is_small.then(|| (codec::hash_key(key), key, row))
    })?;
    drop(plains);
    scan.pass_plains(count);
    Ok(count)
}

/// Target of a flush, and its options.
#[derive(Clone, Copy)]
pub(crate) struct FlushTo<'a> {
    pub(crate) directory: &'a str,
    pub(crate) generation: Generation,
    /// Number under which written data is also added to the chunk cache, as long as there is room.
    pub(crate) cached_as: Option<u64>,
    /// See [`WriterOptions::held`].
    pub(crate) held: bool,
}

impl Writer {
    /// Writes memtables to SSTables: of the named tables, or of all.
    ///
    /// # Errors
    /// `DiskFull`, `Io`: unwritten data stays in memory and in the commit log, and is retried in
    /// the background. `Unwritable`: everything was written but partitions that no SSTable can
    /// hold.
    pub async fn flush(&self, tables: Option<&[TableId]>) -> Result<(), StoreError> {
        let states: Vec<Rc<TableState>> = match tables {
            Some(ids) => ids.iter().filter_map(|id| self.tables.table(*id)).collect(),
            None => self.tables.all_tables(),
        };
        for table in &states {
            self.switch_memtable(table);
        }
        let mut unwritable = Ok(());
        for table in &states {
            match self.flush_switched(table).await {
                // Everything else of the table was written, or it lacks its key, which other tables have.
                Err(error @ (StoreError::Unwritable { .. } | StoreError::Invalid(_))) => {
                    unwritable = unwritable.and(Err(error))
                }
                other => other?,
            }
        }
        let _running = self.env.stages.post_flush.run();
        self.release_log().await?;
        unwritable
    }

    /// Step 1.
    pub(crate) fn switch_memtable(&self, table: &TableState) {
        let view = table.view();
        if view.active.is_empty() {
            return;
        }
        let mut flushing = view.flushing.clone();
        flushing.push(view.active.clone());
        table.set_equal_view(TableView::new(
            Rc::new(Memtable::new()),
            flushing,
            view.files.clone(),
        ));
    }

    /// Writes every memtable of a table that is waiting, oldest first.
    pub(crate) async fn flush_switched(&self, table: &Rc<TableState>) -> Result<(), StoreError> {
        let mut unwritable = Ok(());
        loop {
            let Some(memtable) = table.view().flushing.first().cloned() else { return unwritable };
            let result = self.flush_memtable(table, &memtable).await;
            self.files.note_write_result(&result);
            // It left the view, and its unwritten partitions are in the active memtable.
            unwritable = unwritable.and(self.report_refused(table, result?));
            self.drop_in_steps(memtable).await;
        }
    }

    /// Drops a memtable, unless a reader still holds it.
    pub(crate) async fn drop_in_steps(&self, memtable: Rc<Memtable>) {
        let Ok(memtable) = Rc::try_unwrap(memtable) else { return };
        let _running = self.env.stages.reclaim.run();
        let mut leftovers = memtable.into_leftovers();
        while leftovers.drop_some() {
            if self.env.rt.is_yield_due() {
                self.env.rt.yield_if_due().await;
            }
        }
    }

    async fn flush_memtable(
        &self,
        table: &Rc<TableState>,
        memtable: &Rc<Memtable>,
    ) -> Result<Vec<Refused>, StoreError> {
        // Before the slot is taken: other tables do not wait for the provider.
        table_key::await_key(self, table).await?;
        let waiting = self.env.stages.flush.wait();
        let _permit = self.flush_slot.acquire(1).await;
        drop(waiting);
        let _running = self.env.stages.flush.run();
        self.files.make_directory(table).await?;
        if !table.view().is_flushing(memtable) {
            return Ok(Vec::new());
        }
        let version = table.version();
        let directory = self.files.directories.directory_of(&version.table);
        let generation = self.files.next_generation(table);
        let in_flight = table.in_flight(generation);
        let flushed = self.flush_to(table, memtable, &directory, generation).await;
        let (file, mut refused) = match flushed {
            Ok(flushed) => flushed,
            // A file set of another writer has the name.
            Err(StoreError::Io(error)) if error.kind == IoErrorKind::AlreadyExists => {
                return Err(error.into());
            }
            Err(error) => {
                self.files.discard(table, in_flight).await;
                return Err(error);
            }
        };
        let mut fold = None;
        if let Some(file) = &file
            && table.view().is_flushing(memtable)
        {
            self.files.links.back_up(table, file).await;
            fold = Some(self.reader.fold(table, memtable).await);
        }
        let view = table.view();
        if view.is_flushing(memtable) {
            let mut files = view.files.clone();
            let bytes = file.as_ref().map_or(0, |f| f.reader.meta().data_file_length());
            bump(&table.counters.flushed_bytes, bytes);
            files.extend(file);
            let flushing = view.flushing_without(memtable);
            table.set_equal_view(TableView::new(view.active.clone(), flushing, files));
            drop(fold);
            let pin = (!refused.is_empty()).then(|| Pin::new(table, memtable));
            self.put_back(table, memtable, &refused, Logging::Running);
            self.release_memory(memtable.bytes());
            bump(&table.counters.flushes, 1);
            if pin.is_some() {
                self.sync().await?;
            }
            drop(pin);
        } else if let Some(file) = file {
            // Truncated or dropped meanwhile.
            refused.clear();
            self.files.remove_file(&file).await?;
        }
        drop(in_flight);
        self.env.work.notify_one();
        Ok(refused)
    }

    /// Step 2 and the file that came of it; `None` when nothing was left to write.
    async fn flush_to(
        &self,
        table: &TableState,
        memtable: &Rc<Memtable>,
        directory: &str,
        generation: Generation,
    ) -> Result<(Option<Rc<TableFile>>, Vec<Refused>), StoreError> {
        let cached_as = self.files.cache.next_file();
        let file = self.flush_as(table, memtable, directory, generation, cached_as).await;
        if !matches!(file, Ok((Some(_), _))) {
            self.files.cache.forget(cached_as);
        }
        file
    }

    async fn flush_as(
        &self,
        table: &TableState,
        memtable: &Rc<Memtable>,
        directory: &str,
        generation: Generation,
        cached_as: u64,
    ) -> Result<(Option<Rc<TableFile>>, Vec<Refused>), StoreError> {
        let cached_as_read = table.counters.is_read().then_some(cached_as);
        let to = FlushTo { directory, generation, cached_as: cached_as_read, held: false };
        let (written, refused) = self.write_memtable(table, memtable, to).await?;
        let Some(written) = written else { return Ok((None, refused)) };
        self.files.cache.fill(cached_as, written.warm);
        let (fs, version) = (self.env.rt.fs(), table.version());
        let descriptor = written.descriptor;
        let reader = SstableReader::open(&fs, directory, descriptor, Some(&version.table)).await;
        let file =
            self.files.file_cached_as(table.id, cached_as, reader.map_err(map_error)?, Vec::new());
        Ok((file.map(Rc::new), refused))
    }

    pub(crate) fn writer_options(
        &self,
        table: &schema::Table,
        generation: Generation,
        partitions: u64,
        stats: EncodingStats,
    ) -> Result<WriterOptions, StoreError> {
        let (shard, shards) = self.env.shard();
        let mut options = WriterOptions::for_table(table, generation, partitions.max(1), stats)
            .map_err(StoreError::Invalid)?;
        options.version = self.env.options.sstable_version;
        options.host = Some(self.env.options.host.0);
        options.sealing = self.env.options.sealing.of(table);
        options.column_index_size = self.env.live.column_index_bytes.get();
        options.shard = Some(shard);
        options.shard_count = shards;
        let now = self.env.rt.wall().seconds();
        options.large = self.observer.large.limits().of_writer(table, now);
        options.indexing = TableIndexes::of_table(table).map(|indexes| self.indexing(indexes));
        Ok(options)
    }

    /// A file set's share of the memory of compactions is what its indexes are sorted in.
    #[cold]
    fn indexing(&self, indexes: TableIndexes) -> Indexing {
        let together = self.files.slots.concurrent_compactors().max(1);
        let together = usize::try_from(together).unwrap_or(usize::MAX);
        let share = self.env.options.chunk_cache_bytes_max / INDEXING_PART / together;
        Indexing {
            indexes: Rc::new(indexes),
            budget_bytes: share.clamp(INDEXING_BYTES.0, INDEXING_BYTES.1),
            vector_bytes: (share * VECTORS_PART).clamp(VECTOR_BYTES.0, VECTOR_BYTES.1),
            rt: self.env.rt.clone(),
        }
    }

    /// Step 2, into any directory. Partitions that cannot be written are left out and handed back.
    pub(crate) async fn write_memtable(
        &self,
        table: &TableState,
        memtable: &Rc<Memtable>,
        to: FlushTo<'_>,
    ) -> Result<(Option<Written>, Vec<Refused>), StoreError> {
        let FlushTo { directory, generation, cached_as, held } = to;
        let version = table.version();
        let options = self.flush_options(table, memtable, generation, held)?;
        let kept = self.table_to_flush(&version, memtable).await?;
        let fs = self.env.rt.fs();
        let mut refused = Vec::new();
        loop {
            let mut writer = SstableWriter::create(&fs, directory, &kept, options.clone())
                .await
                .map_err(map_error)?;
            let scan = self.write_scan(&version.shape, memtable, &refused, &mut writer, cached_as);
            let error = match scan.await {
                Ok(()) => {
                    let written = writer.finish().await.map_err(map_error)?;
                    self.observer.warn_of_large(&version.table, written.as_ref());
                    return Ok((written, refused));
                }
                Err(error) => error,
            };
            let mut found = Ok(Vec::new());
            if matches!(error, StoreError::Unwritable { .. }) && refused.is_empty() {
                found = self.refused_partitions(&version, memtable, &writer).await;
            }
            writer.abort().await;
            refused = found?;
            if refused.is_empty() {
                return Err(error);
            }
        }
    }

    fn flush_options(
        &self,
        table: &TableState,
        memtable: &Memtable,
        generation: Generation,
        held: bool,
    ) -> Result<WriterOptions, StoreError> {
        let version = table.version();
        let stats = EncodingStats {
            min_timestamp: memtable.min_timestamp().unwrap_or(TimestampMicros(0)),
            ..EncodingStats::NONE
        };
        let partitions = memtable.partition_count() as u64;
        let mut options = self.writer_options(&version.table, generation, partitions, stats)?;
        (options.request_bytes, options.held) = (REQUEST_BYTES, held);
        options.compression = self.env.options.flush_compression.of(options.compression);
        Ok(options)
    }

    pub(crate) async fn write_scan(
        &self,
        shape: &Rc<data::TableShape>,
        memtable: &Rc<Memtable>,
        refused: &[Refused],
        writer: &mut SstableWriter,
        cached_as: Option<u64>,
    ) -> Result<(), StoreError> {
        writer.set_warm(cached_as.is_some());
        let slices = Arc::new(Slices::all());
        let scan =
            MemtableScan::new(memtable.clone(), shape.clone(), &KeyRange::all(), slices, false);
        // A merge of one source: it removes columns that ALTER TABLE dropped.
        let mut merge = MergeCursor::new(shape.stored(), MergeMode::All, false, [scan]);
        let mut sieve = Sieve::new();
        let (mut items, mut is_refused) = (0, false);
        loop {
            let mut rows = 0;
            if crate::write::verbatim_copy::is_on() && refused.is_empty() {
                if let Some(scan) = merge.only_source() {
                    rows = put_plain(scan, writer).map_err(map_error)?;
                } else if merge.untouched().is_some() {
                    rows = put_rows(&mut merge, &mut sieve, writer).map_err(map_error)?;
                }
            }
            if rows == 0 {
                if merge.advance()? != Advance::Item {
                    return Ok(());
                }
                let item = merge.item();
                if let Item::Partition { key, .. } = item {
                    is_refused = refused.iter().any(|partition| partition.key == key);
                }
                if !is_refused {
                    sieve.put(item, writer).map_err(map_error)?;
                }
            }
            let full = writer.is_full();
            if full {
                writer.write_full().await.map_err(map_error)?;
                if let Some(file) = cached_as
                    && !self.files.cache.fill(file, writer.take_warm())
                {
                    writer.set_warm(false);
                }
            }
            items += rows.max(1);
            if full || items >= ITEMS_PER_LOOK {
                items = 0;
                if self.env.rt.is_yield_due() {
                    self.env.rt.yield_if_due().await;
                }
            }
        }
    }

    pub(crate) fn release_memory(&self, bytes: usize) {
        self.memtable_bytes.set(self.memtable_bytes.get().saturating_sub(bytes));
        self.room.notify_waiters();
    }

    /// Step 4.
    pub(crate) async fn release_log(&self) -> Result<(), StoreError> {
        let tables = self.tables.all_tables();
        let old_pinned = tables.iter().any(|t| t.holds_old_log());
        if !old_pinned && !self.old_log_released.get() {
            let done = self.env.log.release_old().await?;
            self.old_log_released.set(done);
        }
        let below = tables.iter().filter_map(|t| t.first_unflushed()).min();
        let below = below.unwrap_or_else(|| self.env.log.position());
        let released = self.env.log.release_below(below).await;
        self.tell_archive_failure();
        Ok(released?)
    }

    pub(crate) fn tell_archive_failure(&self) {
        if let Some(what) = self.env.log.take_archive_failure() {
            self.env.tell_failure(StoreFailure::Archive(what));
        }
    }
}
