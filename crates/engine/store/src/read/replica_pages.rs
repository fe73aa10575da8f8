//! Reads for coordinators and for streams: this shard's data, deletions included, as pages
//! (`docs/formats/replica-page.md`).
//!
//! Owns: [`Reader::read_replica`], [`Reader::read_stream`]. The sources are those of [`Store::read`];
//! `data::PageWriter` alone decides where a page ends, so that replicas with equal content send equal
//! bytes whatever their files and memtables look like.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use compact_plan::{GcPolicy, NEVER};
use data::command::{KeyRange, Partitions, ReadCommand, ResumePosition, RingBound};
use data::merge_cursor::PASSED_MAX;
use data::replica_page::{FilteredPage, PageEnd, PageFlow, PageLimits, PageWriter};
use data::{
    Advance, BlockRequest, Cursor, GcBefore, Item, MergeCursor, MergeMode, RowFilter, TableShape,
};
use sstable::{ReadAhead, SequentialReader, TokenFilter};
use stdx::{DeletionSeconds, TableId, TimestampMicros};

use crate::error::StoreError;
use crate::files::held_files::Held;
use crate::read::driver::{
    BYTES_PER_ITEM, HashedKey, ITEMS_PER_LOOK, ViewBelow, floor_of, slices_of,
};
use crate::read::sources::{Source, Sources};
use crate::read::timestamp_order::{Asked, Exactness};
use crate::read::{Reader, memtable_fast_path};
use crate::tables::read_stats::ReadStats;
use crate::tables::repair_views::ReadScope;
use crate::tables::table::{TableState, TableView, bump};
use crate::tables::table_file::map_error;

/// Items after which a page of a stream ends although it has room left. Partitions of other slices
/// are skipped and fill nothing, and the peer needs an answer before its deadline.
const STREAM_ITEMS_MAX: usize = 200_000;
/// Tombstones after which a page for a repair ends although it has room left: those that are old enough to be left
/// out fill nothing.
const REPAIR_TOMBSTONES_MAX: u32 = 200_000;

/// One page of a replica's data.
#[derive(Clone, Debug)]
pub struct ReplicaRead {
    /// The encoded page; [`data::replica_page::ReplicaPage::open`] reads it.
    pub page: Vec<u8>,
    /// The part of the page that passes the requested filter.
    pub filtered: Option<FilteredPage>,
    /// Cost of the read. `partitions` counts those scanned.
    pub stats: ReadStats,
}

/// Request of a stream to one shard.
#[derive(Clone, Debug)]
pub struct StreamRead {
    /// The table.
    pub table: TableId,
    /// Which partitions: ranges that ascend and do not overlap. When a page ended inside a partition,
    /// the first one starts just before its key.
    pub ranges: Vec<KeyRange>,
    /// Serialised clustering of the row that the page before ended at, when it ended inside.
    pub behind: Option<Vec<u8>>,
    /// Only partitions of this slice of the ring.
    pub slice: Option<TokenFilter>,
    /// Bytes after which the page ends.
    pub bytes: usize,
}

/// Readers of files whose blocks pass by the cache, by source, with the file's number.
pub(crate) type Passing = BTreeMap<u32, (u64, SequentialReader)>;

/// Parameters of a page.
struct Job<'a> {
    table: &'a TableState,
    command: &'a ReadCommand,
    limits: PageLimits,
    /// Deletions made before this are left out; `None`: everything stays as it is, expired cells
    /// too.
    purge_before: Option<DeletionSeconds>,
    slice: Option<TokenFilter>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// For a coordinator: blocks are read through the cache.
    Read,
    /// For another node's files: passes by the cache.
    Stream,
    /// For a repair: passes by the cache too, and ends where the page is full.
    Repair,
}

/// Why a run stopped.
enum Pause {
    /// The sources are at their end.
    End,
    /// The page is full.
    Full,
    /// A block is missing.
    Load(BlockRequest),
    /// Others wait for the shard.
    Yield,
}

/// A page being filled, and its cost.
struct Filling<'s> {
    writer: PageWriter<'s>,
    stats: ReadStats,
    /// Items since the last check of the clock.
    items: usize,
    /// Items of the whole page.
    all_items: usize,
    /// The partition that the last item belonged to.
    last: Option<Vec<u8>>,
    /// The page ends after `last` although it is not full.
    ended_early: bool,
}

/// Options for the content of a replica's page.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaShown {
    /// The reader shows a partition for its static row alone.
    pub counts_static: bool,
    /// Deletions made before it are left out, and expired cells become the tombstones that they are; with
    /// `DeletionSeconds(i64::MIN)` everything is shown as it was written.
    pub purge_before: DeletionSeconds,
}

impl Reader {
    /// One page of this shard's data for a read, deletions included: the answer of a replica. All
    /// columns of a row are in it, whatever `command.columns` says; `command.resume` and the start
    /// of its range continue an earlier page at its end.
    ///
    /// `counts_static`: the reader shows a partition for its static row alone. `purge_before`:
    /// deletions made before it are left out, and expired cells become the tombstones that they
    /// are; with `DeletionSeconds(i64::MIN)` everything is shown as it was written. Any number of
    /// tombstones is allowed: the page ends, and the reader of the next page decides
    /// ([`crate::RowSink::looked_at`]).
    ///
    /// # Errors
    /// Those of [`Store::read`], except `TombstoneFailure`.
    pub async fn read_replica(
        &self,
        command: &ReadCommand,
        limits: PageLimits,
        counts_static: bool,
        purge_before: DeletionSeconds,
    ) -> Result<ReplicaRead, StoreError> {
        let shown = ReplicaShown { counts_static, purge_before };
        self.read_replica_filtered(command, limits, shown, None).await
    }

    /// Like [`Reader::read_replica`]; also collects the part of the page that passes a filter. The
    /// limits must have none for the rows of a partition then.
    ///
    /// # Errors
    /// Those of [`Reader::read_replica`].
    pub async fn read_replica_filtered(
        &self,
        command: &ReadCommand,
        limits: PageLimits,
        shown: ReplicaShown,
        filter: Option<&dyn RowFilter>,
    ) -> Result<ReplicaRead, StoreError> {
        let ReplicaShown { counts_static, purge_before } = shown;
        let table = self.files.opened_table(command.table).await?;
        bump(&table.counters.reads, 1);
        let _running = self.env.stages.read.run();
        let began = self.env.rt.now();
        let job = Job {
            table: &table,
            command,
            limits,
            purge_before: (purge_before.0 != i64::MIN).then_some(purge_before),
            slice: None,
            kind: Kind::Read,
        };
        let (shape, view) = (table.shape(), table.view());
        let mut filling = Filling::new(&shape, command, limits, counts_static);
        if let Some(filter) = filter {
            filling.writer.filter(filter);
        }
        let result = self.fill(&shape, &view, &job, &mut filling).await;
        let read = filling.finish();
        let took = self.env.rt.now().since(began);
        table.counters.note_read(&command.partitions, began, took, &read.stats);
        result.map(|_| read)
    }

    /// Like [`Reader::read_replica`], for a repair: it is no read of a client, so it is not counted
    /// as one, and passes by the cache.
    ///
    /// # Errors
    /// Those of [`Store::read`]; `Invalid`: the session of the scope is not under way here.
    pub async fn read_for_repair(
        &self,
        command: &ReadCommand,
        limits: PageLimits,
        purge_before: DeletionSeconds,
        scope: ReadScope,
    ) -> Result<ReplicaRead, StoreError> {
        let table = self.files.opened_table(command.table).await?;
        let tombstones = limits.tombstones.min(REPAIR_TOMBSTONES_MAX);
        let limits = PageLimits { tombstones, ..limits };
        let job = &Job {
            table: &table,
            command,
            limits,
            purge_before: (purge_before.0 != i64::MIN).then_some(purge_before),
            slice: None,
            kind: Kind::Repair,
        };
        let shape = table.shape();
        let view = table.view_for(scope)?;
        let mut filling = Filling::new(shape.stored(), command, limits, true);
        self.fill(&shape, &view, job, &mut filling).await?;
        Ok(filling.finish())
    }

    /// Tombstones of a table that were made before it need not be shown to a coordinator, as every
    /// replica of their ranges has them. An unknown table has none to purge.
    pub fn purge_before(&self, id: TableId, now: DeletionSeconds) -> DeletionSeconds {
        self.tables.table(id).map_or(NEVER, |table| table.gc_before(now))
    }

    /// Sets when tombstones of a table are old enough to be purged, from now on; unknown tables are
    /// ignored.
    pub fn set_gc_policy(&self, id: TableId, policy: GcPolicy) {
        if let Some(table) = self.tables.table(id)
            && **table.gc.borrow() != policy
        {
            *table.gc.borrow_mut() = Rc::new(policy);
        }
    }

    /// One page of ranges of a table for another node, with everything as it was written. It
    /// continues from range to range; an empty page that is not exhausted is possible.
    ///
    /// # Errors
    /// `UnknownTable`, `Corrupt`, `Io`, `Stopping`.
    pub async fn read_stream(&self, stream: StreamRead) -> Result<ReplicaRead, StoreError> {
        let Some(table) = self.tables.table(stream.table) else {
            return Err(StoreError::UnknownTable(stream.table));
        };
        let view = table.view();
        self.stream_of(&table, view, stream).await
    }

    /// The same for held data that is not sent as whole files.
    ///
    /// # Errors
    /// Those of [`Reader::read_stream`]; `Invalid` when `held` is of another table.
    pub async fn read_held(
        &self,
        held: &Held,
        stream: StreamRead,
    ) -> Result<ReplicaRead, StoreError> {
        let Some(table) = self.tables.table(stream.table) else {
            return Err(StoreError::UnknownTable(stream.table));
        };
        if held.table() != stream.table {
            return Err(StoreError::Invalid("another table is held".to_owned()));
        }
        self.stream_of(&table, held.rest().clone(), stream).await
    }

    async fn stream_of(
        &self,
        table: &TableState,
        view: Rc<TableView>,
        stream: StreamRead,
    ) -> Result<ReplicaRead, StoreError> {
        let resume = stream.behind.map(|clustering| ResumePosition {
            clustering: Some(clustering),
            rows_in_partition: 0,
        });
        let mut command = ReadCommand {
            wants_static: true,
            resume,
            ..ReadCommand::whole(
                stream.table,
                Partitions::Range(KeyRange::all()),
                self.env.rt.wall().seconds(),
            )
        };
        let limits = PageLimits { bytes: stream.bytes, ..PageLimits::default() };
        let shape = table.shape();
        let mut filling = Filling::new(shape.stored(), &command, limits, true);
        for range in stream.ranges {
            command.partitions = Partitions::Range(range);
            let job = Job {
                table,
                command: &command,
                limits,
                purge_before: None,
                slice: stream.slice,
                kind: Kind::Stream,
            };
            if self.fill(&shape, &view, &job, &mut filling).await? {
                break;
            }
            command.resume = None;
        }
        Ok(filling.finish())
    }

    /// True when the page is full.
    async fn fill(
        &self,
        shape: &Rc<TableShape>,
        view: &Rc<TableView>,
        job: &Job<'_>,
        filling: &mut Filling<'_>,
    ) -> Result<bool, StoreError> {
        let command = job.command;
        if let Some(resume) = &command.resume {
            filling.writer.go_on_behind(resume.rows_in_partition);
        }
        let full_already = command
            .resume
            .as_ref()
            .is_some_and(|r| r.rows_in_partition >= job.limits.rows_per_partition);
        let mut range = match &command.partitions {
            Partitions::Key(key) => {
                if full_already {
                    return Ok(false);
                }
                return self.fill_key(shape, view, job, key, filling).await;
            }
            Partitions::Range(_) if command.reversed => {
                return Err(StoreError::Invalid("a scan cannot be reversed".to_owned()));
            }
            Partitions::Range(range) => range.clone(),
        };
        // A page that ended inside a partition: its rest is read like a single partition.
        if command.resume.is_some()
            && let RingBound::Key { key, after, .. } = &mut range.start
            && !*after
        {
            *after = true;
            let key = key.clone();
            if !full_already && self.fill_key(shape, view, job, &key, filling).await? {
                return Ok(true);
            }
            filling.writer.go_on_behind(0);
            filling.writer.set_floor(None);
        }
        let slices = slices_of(shape, command, false);
        let mut sources = Sources::new();
        let stats = &mut filling.stats;
        self.range_sources(shape, view, &range, &slices, &mut sources, stats);
        self.fill_from(shape, job, sources, filling).await
    }

    /// True when the page is full.
    async fn fill_key(
        &self,
        shape: &Rc<TableShape>,
        view: &Rc<TableView>,
        job: &Job<'_>,
        key: &[u8],
        filling: &mut Filling<'_>,
    ) -> Result<bool, StoreError> {
        let slices = slices_of(shape, job.command, true);
        let mut sources = Sources::new();
        let reversed = job.command.reversed;
        filling.writer.set_floor(floor_of(shape, &slices, reversed));
        let stats = &mut filling.stats;
        let mut head = None;
        let caches = job.kind == Kind::Read && !job.command.bypass_cache;
        if caches && self.caches_rows(job.table) {
            head = Box::pin(self.cached_head(job.table, shape, view, key, stats)).await?;
        }
        let hash = codec::hash_key(key);
        let below = ViewBelow { view, head: head.as_deref() };
        let hashed = HashedKey { hash: &hash, key };
        let files = self.key_sources(shape, below, &slices, reversed, hashed, &mut sources, stats);
        match job.kind {
            _ if files.is_empty() => {}
            Kind::Read => {
                let asked = Asked {
                    table: job.table,
                    shape,
                    view,
                    command: job.command,
                    slices: &slices,
                    hash: &hash,
                    key,
                    exactness: Exactness::All,
                };
                Box::pin(self.open_in_order(&asked, files, &mut sources, stats)).await?;
            }
            Kind::Stream | Kind::Repair => {
                self.push_files(&files, &slices, reversed, hashed, &mut sources, stats);
            }
        }
        self.fill_from(shape, job, sources, filling).await
    }

    /// Merges the sources into the page; true when it is full.
    async fn fill_from(
        &self,
        shape: &Rc<TableShape>,
        job: &Job<'_>,
        sources: Sources,
        filling: &mut Filling<'_>,
    ) -> Result<bool, StoreError> {
        if sources.is_empty() {
            return Ok(false);
        }
        let mode = match job.purge_before {
            None => MergeMode::All,
            Some(gc_before) => MergeMode::Purge {
                now: job.command.now,
                gc_before: GcBefore::At(gc_before),
                timestamp_below: Box::new(|_, _| TimestampMicros(i64::MAX)),
            },
        };
        // Other replicas get cells of hidden columns too.
        let seen = match job.kind {
            Kind::Read => shape,
            Kind::Stream | Kind::Repair => shape.stored(),
        };
        let mut merge = Box::new(MergeCursor::new(seen, mode, job.command.reversed, sources));
        if job.purge_before.is_some() {
            merge.tell_of_passed(PASSED_MAX.min(job.limits.tombstones));
        }
        let mut passing = Passing::new();
        let is_key = matches!(job.command.partitions, Partitions::Key(_));
        let result = loop {
            match self.advance(&mut merge, job, filling) {
                Ok(Pause::End) => break Ok(false),
                Ok(Pause::Full) => break Ok(true),
                Ok(Pause::Yield) => self.env.rt.yield_if_due().await,
                Ok(Pause::Load(request)) => {
                    let stats = &mut filling.stats;
                    let loaded = match job.kind {
                        Kind::Read if job.command.bypass_cache => {
                            let command = job.command;
                            self.load_once(&mut merge, command, request, &mut passing, stats).await
                        }
                        Kind::Read => self.load(&mut merge, request, stats).await,
                        _ if self.env.stopping.get() => Err(StoreError::Stopping),
                        Kind::Repair if is_key => load_one(&mut merge, request).await,
                        Kind::Stream | Kind::Repair => {
                            let loaded = self.load_passing(&mut merge, request, &mut passing).await;
                            loaded.map(|bytes| stats.block_bytes += bytes)
                        }
                    };
                    if let Err(error) = loaded {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        let (_, sources) = merge.into_parts();
        self.keep_buffers(sources);
        if result.is_ok() {
            self.keep_ahead(passing);
        }
        result
    }

    /// Stores the read-ahead of readers for the next page.
    pub(crate) fn keep_ahead(&self, passing: Passing) {
        let mut aheads = self.read_aheads.borrow_mut();
        for (file, reader) in passing.into_values() {
            aheads.keep(file, reader.into_ahead());
        }
    }

    /// Loads a block for a client's read that passes by the cache: of a partition alone, of scans in long
    /// requests.
    pub(crate) async fn load_once(
        &self,
        merge: &mut MergeCursor<'_, Source>,
        command: &ReadCommand,
        request: BlockRequest,
        passing: &mut Passing,
        stats: &mut ReadStats,
    ) -> Result<(), StoreError> {
        if let Partitions::Range(_) = &command.partitions {
            stats.blocks_read += 1;
            stats.block_bytes += self.load_passing(merge, request, passing).await?;
            return Ok(());
        }
        let Some(source) = merge.source_mut(request.source).and_then(Source::file_mut) else {
            stdx::invariant::broken(format_args!("read: a memtable asked for a block"))
        };
        let file = source.file.clone();
        let chunk = self.load_of(&file, request.block, true, stats).await?;
        if let Some(source) = merge.source_mut(request.source) {
            source.feed(request.block, chunk);
        }
        Ok(())
    }

    /// Loads a block without the cache: streamed data is read once. Returns its bytes, unpacked.
    async fn load_passing(
        &self,
        merge: &mut MergeCursor<'_, Source>,
        request: BlockRequest,
        readers: &mut Passing,
    ) -> Result<u64, StoreError> {
        let Some(source) = merge.source_mut(request.source).and_then(Source::file_mut) else {
            stdx::invariant::broken(format_args!("stream: a memtable asked for a block"))
        };
        let (_, reader) = readers.entry(request.source).or_insert_with(|| {
            let ahead = self.read_aheads.borrow_mut().take(source.file.id);
            (source.file.id, source.file.reader.sequential_from(ahead))
        });
        let chunk =
            reader.load_block(request.block).await.map_err(|e| self.env.met(map_error(e)))?;
        let bytes = chunk.bytes().len() as u64;
        source.feed(request.block, chunk);
        Ok(bytes)
    }

    /// Fills the page as far as its data is in memory.
    fn advance(
        &self,
        merge: &mut MergeCursor<'_, Source>,
        job: &Job<'_>,
        filling: &mut Filling<'_>,
    ) -> Result<Pause, StoreError> {
        loop {
            let flow =
                if let Some((flow, items)) = memtable_fast_path::put(merge, &mut filling.writer) {
                    filling.items += items;
                    match flow {
                        PageFlow::Continue if job.kind == Kind::Read => filling.take_plain(merge),
                        flow => flow,
                    }
                } else {
                    match self.advance_cached(merge)? {
                        Advance::End => return Ok(Pause::End),
                        Advance::NeedBlock(request) => return Ok(Pause::Load(request)),
                        Advance::Item => {}
                    }
                    match merge.is_at_passed() {
                        false => filling.take(merge.item(), job),
                        true => filling.pass(merge),
                    }
                };
            match flow {
                PageFlow::Continue => {}
                PageFlow::SkipPartition => merge.skip_partition(),
                PageFlow::Full => return Ok(Pause::Full),
            }
            if filling.items >= ITEMS_PER_LOOK {
                filling.all_items = filling.all_items.saturating_add(filling.items);
                filling.items = 0;
                if self.env.rt.is_yield_due() {
                    return Ok(Pause::Yield);
                }
            }
        }
    }
}

impl<'s> Filling<'s> {
    fn new(
        shape: &'s TableShape,
        command: &ReadCommand,
        limits: PageLimits,
        counts_static: bool,
    ) -> Filling<'s> {
        let (reversed, now) = (command.reversed, command.now);
        Filling {
            writer: PageWriter::new(shape, reversed, now, counts_static, limits),
            stats: ReadStats::default(),
            items: 0,
            all_items: 0,
            last: None,
            ended_early: false,
        }
    }

    fn take(&mut self, item: Item<'_>, job: &Job<'_>) -> PageFlow {
        self.items += 1;
        match item {
            Item::Partition { token, key, .. } => {
                self.stats.partitions += 1;
                if job.kind == Kind::Stream {
                    // Between two partitions: nothing of this one was taken yet.
                    if self.all_items >= STREAM_ITEMS_MAX && self.last.is_some() {
                        self.ended_early = true;
                        return PageFlow::Full;
                    }
                    let last = self.last.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(key);
                }
                if job.slice.is_some_and(|f| !f.shows(token)) {
                    return PageFlow::SkipPartition;
                }
            }
            Item::Row { row, .. } => self.items += row.bytes().len() / BYTES_PER_ITEM,
            Item::Static(_) | Item::Marker(_) | Item::PartitionEnd => {}
        }
        self.writer.item(&item)
    }

    /// Takes the following partitions of one row that no other source has.
    fn take_plain(&mut self, merge: &mut MergeCursor<'_, Source>) -> PageFlow {
        let (flow, count, items) = memtable_fast_path::put_partitions(merge, &mut self.writer);
        self.stats.partitions += count;
        self.items += items;
        flow
    }

    /// Tombstones were left out.
    fn pass<C: Cursor>(&mut self, merge: &MergeCursor<'_, C>) -> PageFlow {
        let passed = merge.passed();
        self.items = self.items.saturating_add(passed as usize);
        self.writer.passed(passed, merge.passed_at())
    }

    fn finish(mut self) -> ReplicaRead {
        self.stats.rows = u64::from(self.writer.live_rows());
        self.stats.tombstones = self.writer.tombstones();
        let (page, filtered) = match (&self.last, self.ended_early) {
            (Some(key), true) => {
                let token = codec::token_of(key);
                (self.writer.finish_at(PageEnd::After { token, key }), None)
            }
            _ => self.writer.finish_filtered(PageEnd::Exhausted),
        };
        ReplicaRead { page, filtered, stats: self.stats }
    }
}

/// Files whose read-ahead is kept: 256 KiB each.
const READ_AHEADS_MAX: usize = 16;

/// Blocks that pages without the cache have read of files after their ends. The next page begins
/// there; without this every page of 2 MiB would read a sixth more than it has.
#[derive(Default)]
pub(crate) struct ReadAheads {
    /// By the number of the file; the last ones that were kept at the end.
    of_files: VecDeque<(u64, ReadAhead)>,
}

impl ReadAheads {
    fn take(&mut self, file: u64) -> ReadAhead {
        let found = self.of_files.iter().position(|(of, _)| *of == file);
        let taken = found.and_then(|at| self.of_files.remove(at));
        taken.map(|(_, ahead)| ahead).unwrap_or_default()
    }

    fn keep(&mut self, file: u64, ahead: ReadAhead) {
        if self.of_files.len() >= READ_AHEADS_MAX {
            self.of_files.pop_front();
        }
        self.of_files.push_back((file, ahead));
    }
}

/// Loads a block of a partition without the cache, and no block after it.
async fn load_one(
    merge: &mut MergeCursor<'_, Source>,
    request: BlockRequest,
) -> Result<(), StoreError> {
    let Some(source) = merge.source_mut(request.source).and_then(Source::file_mut) else {
        stdx::invariant::broken(format_args!("repair: a memtable asked for a block"))
    };
    let chunk = source.file.reader.load_block(request.block).await.map_err(map_error)?;
    source.feed(request.block, chunk);
    Ok(())
}
