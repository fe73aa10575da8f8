//! Reads: sources chosen, merged, and shown to a sink.

use std::rc::Rc;
use std::sync::Arc;

use data::command::{KeyRange, Partitions, ReadCommand, ResumePosition, RingBound};
use data::merge_cursor::PASSED_MAX;
use data::{
    Advance, BlockRequest, Cursor, CursorError, DeletionTime, Item, MergeCursor, MergeMode, RowRef,
    Slices, TableShape,
};
use smallvec::SmallVec;
use sstable::SstableCursor;
use stdx::{TimestampMicros, Token};

use crate::error::StoreError;
use crate::memtable::{MemtableScan, PartitionCursor};
use crate::read::replica_pages::Passing;
use crate::read::row_cache::Head;
use crate::read::sources::{FileSource, Source, Sources};
use crate::read::timestamp_order::{Asked, Candidates, Exactness};
use crate::read::{Reader, memtable_fast_path};
use crate::tables::read_stats::ReadStats;
use crate::tables::table::{TableState, TableView, bump};
use crate::tables::table_file::TableFile;

/// Cursor memory kept for the next reads.
const CURSOR_BUFFERS_MAX: usize = 64;
/// Items that a read shows before it checks if other tasks wait for the shard. It is more than a
/// usual slice has, so that those end in one pass, and much less than a turn.
pub(crate) const ITEMS_PER_LOOK: usize = 128;
/// Items that are merged between two checks for plain rows.
const MERGED_IN_ONE_GO: usize = 15;
/// Bytes of a row that count as one item more.
pub(crate) const BYTES_PER_ITEM: usize = 512;

/// Next request of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// Nothing more of this partition; its `partition_end` still follows.
    SkipPartition,
    /// Nothing more at all; nothing else is called.
    Stop,
}

/// A table with the shape that a read sees it in.
#[derive(Clone, Copy)]
pub(crate) struct Shaped<'a> {
    pub(crate) table: &'a TableState,
    pub(crate) shape: &'a Rc<TableShape>,
}

/// A view, below the head of a partition that the row cache has.
#[derive(Clone, Copy)]
pub(crate) struct ViewBelow<'v, 'h> {
    pub(crate) view: &'v TableView,
    pub(crate) head: Option<&'h Head>,
}

/// A partition's key with its hash.
#[derive(Clone, Copy)]
pub(crate) struct HashedKey<'a> {
    pub(crate) hash: &'a codec::KeyHash,
    pub(crate) key: &'a [u8],
}

/// Progress of a read: everything up to this position was scanned, and all results up to it were
/// passed to the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookedAt<'a> {
    /// Token of the partition.
    pub token: Token,
    /// Key of the partition.
    pub key: &'a [u8],
    /// A row of it, itself included, or a position without a row; `None`: all of the partition.
    pub clustering: Option<&'a [u8]>,
    /// Tombstones and expired cells met by this read so far.
    pub tombstones: u32,
    /// The same with data that they hide, and with purgeable tombstones: the cost of the scan.
    pub scanned: u32,
}

/// Reply of a sink to a progress report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Go on.
    Continue,
    /// That is enough; nothing else is called.
    Stop,
    /// It has met more tombstones than it may: the read fails.
    Refuse,
}

/// Receives the results of a read. Views live until the call returns.
pub trait RowSink {
    /// A partition begins: called before its first row, or alone when only a live static row is
    /// there and the command wants it. `static_row` is merged and live, if there is one.
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow;

    /// A row that is live at the command's `now`: merged, deletions applied, expired and deleted
    /// cells removed. A complex column may still show a deletion; it hides none of the cells.
    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow;

    /// The partition that was announced is over.
    fn partition_end(&mut self) -> Flow;

    /// Says from time to time how far a read that finds little has come, also inside of a partition, whether that
    /// was announced or not.
    fn looked_at(&mut self, _upto: LookedAt<'_>) -> Look {
        Look::Continue
    }

    /// Tombstones after which a read reports its progress; `u32::MAX`: any number of them without a
    /// report.
    fn tombstones_per_look(&self) -> u32 {
        u32::MAX
    }
}

/// State of the read in the sink's protocol.
pub(crate) struct Shown {
    /// The partition was announced to the sink.
    pub(crate) announced: bool,
    /// A static row is kept in `static_row`.
    has_static: bool,
    static_row: Vec<u8>,
    token: Token,
    key: SmallVec<[u8; 32]>,
}

/// A read that runs. Boxed: the futures around it stay small, and so do their moves.
struct Run<'s> {
    shape: &'s TableShape,
    reversed: bool,
    merge: MergeCursor<'s, Source>,
    shown: Shown,
    /// A partition is shown for its static row alone.
    static_alone: bool,
    /// Tombstones met before this merge began.
    tombstones_before: u32,
    /// Number of scanned items at which the sink gets the next progress report; it is then raised
    /// by `per_look`.
    next_look: u32,
    per_look: u32,
    /// Those of the only partition.
    slices: Option<Arc<Slices>>,
    /// Items shown since the last check of the clock.
    items: usize,
    /// Items for which it is not looked whether plain rows follow.
    merged: usize,
}

/// Why a run stopped.
enum Pause {
    /// It is over.
    End(Flow),
    /// This block is not in the cache.
    Load(BlockRequest),
    /// Others wait for the shard.
    Yield,
}

impl Reader {
    /// Runs a read command. Completes without suspending when everything is in memory.
    ///
    /// # Errors
    /// `UnknownTable`, `Corrupt`, `Io`, `TombstoneFailure`.
    pub async fn read<S: RowSink>(
        &self,
        command: &ReadCommand,
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        let table = self.files.opened_table(command.table).await?;
        let (shape, view) = (table.shape(), table.view());
        bump(&table.counters.reads, 1);
        let _running = self.env.stages.read.run();
        let mut stats = ReadStats::default();
        let began = self.env.rt.now();
        let result = self
            .read_view(Shaped { table: &table, shape: &shape }, &view, command, sink, &mut stats)
            .await;
        let took = self.env.rt.now().since(began);
        table.counters.note_read(&command.partitions, began, took, &stats);
        result.map(|_| stats)
    }

    async fn read_view<S: RowSink>(
        &self,
        of: Shaped<'_>,
        view: &Rc<TableView>,
        command: &ReadCommand,
        sink: &mut S,
        stats: &mut ReadStats,
    ) -> Result<Flow, StoreError> {
        let shape = of.shape;
        match &command.partitions {
            Partitions::Key(key) => {
                let slices = slices_of(shape, command, true);
                self.read_key(of, view, command, slices, key, sink, stats).await
            }
            Partitions::Range(range) => {
                if command.reversed {
                    return Err(StoreError::Invalid("a scan cannot be reversed".to_owned()));
                }
                let mut range = range.clone();
                // A page that ended inside a partition: its rest is read like a single partition.
                if command.resume.is_some()
                    && let RingBound::Key { key, after, .. } = &mut range.start
                    && !*after
                {
                    *after = true;
                    let slices = slices_of(shape, command, true);
                    let key = key.clone();
                    let read = self.read_key(of, view, command, slices, &key, sink, stats);
                    let flow = read.await?;
                    if flow == Flow::Stop {
                        return Ok(flow);
                    }
                }
                self.read_range(shape, view, command, &range, sink, stats).await
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "parts of one read, split by key and range")]
    pub(crate) async fn read_key<S: RowSink>(
        &self,
        of: Shaped<'_>,
        view: &Rc<TableView>,
        command: &ReadCommand,
        slices: Arc<Slices>,
        key: &[u8],
        sink: &mut S,
        stats: &mut ReadStats,
    ) -> Result<Flow, StoreError> {
        let Shaped { table, shape } = of;
        let mut sources = Sources::new();
        let mut head = None;
        if self.caches_rows(table) && !command.bypass_cache {
            // Boxed: all other reads would carry its memory too.
            head = Box::pin(self.cached_head(table, shape, view, key, stats)).await?;
        }
        let (hash, reversed) = (codec::hash_key(key), command.reversed);
        let below = ViewBelow { view, head: head.as_deref() };
        let hashed = HashedKey { hash: &hash, key };
        let files = self.key_sources(shape, below, &slices, reversed, hashed, &mut sources, stats);
        if !files.is_empty() {
            let asked = Asked {
                table,
                shape,
                view,
                command,
                slices: &slices,
                hash: &hash,
                key,
                exactness: Exactness::Rows,
            };
            Box::pin(self.open_in_order(&asked, files, &mut sources, stats)).await?;
        }
        if sources.is_empty() {
            return Ok(Flow::Continue);
        }
        self.drive(shape, command, sources, sink, stats, Some(slices)).await
    }

    async fn read_range<S: RowSink>(
        &self,
        shape: &Rc<TableShape>,
        view: &Rc<TableView>,
        command: &ReadCommand,
        range: &KeyRange,
        sink: &mut S,
        stats: &mut ReadStats,
    ) -> Result<Flow, StoreError> {
        let slices = slices_of(shape, command, false);
        let mut sources = Sources::new();
        self.range_sources(shape, view, range, &slices, &mut sources, stats);
        self.drive(shape, command, sources, sink, stats, None).await
    }

    /// Everything that may have the partition, with its head from the row cache if there is one. The slices of
    /// scans and resumed pages are not the command's. Several files that may have it are not opened but
    /// returned, as it may be that not all are needed: see [`crate::read::timestamp_order`].
    // Always: a read of one partition is measured in instructions.
    #[expect(clippy::too_many_arguments, reason = "a part of the reads, which have no object")]
    #[inline(always)]
    pub(crate) fn key_sources<'v>(
        &self,
        shape: &Rc<TableShape>,
        below: ViewBelow<'v, '_>,
        slices: &Arc<Slices>,
        reversed: bool,
        hashed: HashedKey<'_>,
        sources: &mut Sources,
        stats: &mut ReadStats,
    ) -> Candidates<'v> {
        let ViewBelow { view, head } = below;
        let HashedKey { hash, key } = hashed;
        // The partition is deleted in memory up to here: files with nothing newer have no part in it.
        let mut deleted = DeletionTime::LIVE.timestamp;
        for memtable in view.memtables() {
            for version in memtable.get(hash.token, key).into_iter().flatten() {
                deleted = deleted.max(version.deletion().timestamp);
                sources.push(Source::Partition(PartitionCursor::new(
                    shape.clone(),
                    slices.clone(),
                    reversed,
                    version,
                )));
            }
        }
        if let Some(head) = head
            && self.head_sources(shape, view, head, slices, reversed, sources, stats)
        {
            return Candidates::new();
        }
        let files = candidates(view, slices, hash, deleted);
        if files.len() > 1 {
            return files;
        }
        self.push_files(&files, slices, reversed, hashed, sources, stats);
        Candidates::new()
    }

    /// Cursors over files that may have a partition.
    #[inline(always)]
    pub(crate) fn push_files(
        &self,
        files: &[&Rc<TableFile>],
        slices: &Arc<Slices>,
        reversed: bool,
        hashed: HashedKey<'_>,
        sources: &mut Sources,
        stats: &mut ReadStats,
    ) {
        let HashedKey { hash, key } = hashed;
        for file in files {
            stats.sstables += 1;
            let buffers = self.cursor_buffers.borrow_mut().pop().unwrap_or_default();
            let (token, slices) = (hash.token, slices.clone());
            let cursor = file.reader.partition_cursor(0, token, key, slices, reversed, buffers);
            sources.push(self.file_source(file, cursor));
        }
    }

    /// Everything that may have partitions of the range.
    pub(crate) fn range_sources(
        &self,
        shape: &Rc<TableShape>,
        view: &TableView,
        range: &KeyRange,
        slices: &Arc<Slices>,
        sources: &mut Sources,
        stats: &mut ReadStats,
    ) {
        for memtable in view.memtables().filter(|m| !m.is_empty()) {
            sources.push(Source::Scan(Box::new(MemtableScan::new(
                memtable.clone(),
                shape.clone(),
                range,
                slices.clone(),
                false,
            ))));
        }
        let (first, last) = (token_of(&range.start), token_of(&range.end));
        for file in &view.files {
            let meta = file.reader.meta();
            if last < meta.first_token() || first > meta.last_token() || !meta.may_intersect(slices)
            {
                continue;
            }
            stats.sstables += 1;
            let cursor = file.reader.range_cursor(0, range.clone(), slices.clone(), file.filter);
            sources.push(self.file_source(file, cursor));
        }
    }

    /// Gives the memory of finished cursors to the next ones.
    #[inline(always)]
    pub(crate) fn keep_buffers(&self, sources: impl Iterator<Item = Source>) {
        for source in sources {
            let cursor = match source {
                Source::File(file) => file.cursor,
                Source::Begun(begun) => begun.inner.cursor,
                Source::Tail(tail) => tail.inner.cursor,
                Source::Partition(_) | Source::Scan(_) => continue,
            };
            let mut pool = self.cursor_buffers.borrow_mut();
            if pool.len() < CURSOR_BUFFERS_MAX {
                pool.push(cursor.into_buffers());
            }
        }
    }

    fn file_source(&self, file: &Rc<TableFile>, cursor: SstableCursor) -> Source {
        Source::File(Box::new(FileSource::new(file.clone(), cursor, self.env.options.shard_map)))
    }

    /// Moves a merge to its next item; `NeedBlock`: the cache does not have that block.
    #[inline(always)]
    pub(crate) fn advance_cached(
        &self,
        merge: &mut MergeCursor<'_, Source>,
    ) -> Result<Advance, CursorError> {
        loop {
            let advance = merge.advance()?;
            let Advance::NeedBlock(request) = advance else { return Ok(advance) };
            let Some(source) = merge.source_mut(request.source).and_then(Source::file_mut) else {
                return Ok(advance);
            };
            let Some(chunk) = self.files.cache.get(source.file.id, request.block) else {
                return Ok(advance);
            };
            source.cursor.feed(request.block, chunk);
        }
    }

    /// Fetches a block that the cache does not have.
    pub(crate) async fn load(
        &self,
        merge: &mut MergeCursor<'_, Source>,
        request: BlockRequest,
        stats: &mut ReadStats,
    ) -> Result<(), StoreError> {
        let Some(source) = merge.source_mut(request.source).and_then(Source::file_mut) else {
            stdx::invariant::broken(format_args!("read: a memtable asked for a block"))
        };
        let (file, block) = (source.file.clone(), request.block);
        let chunk = self.load_of(&file, block, false, stats).await?;
        if let Some(source) = merge.source_mut(request.source) {
            source.feed(block, chunk);
        }
        Ok(())
    }

    /// Runs the merge and shows its output. `slices`: of the only partition. If the partition
    /// continues from an earlier page that showed rows of it, it is not shown for its static row
    /// alone.
    async fn drive<S: RowSink>(
        &self,
        shape: &TableShape,
        command: &ReadCommand,
        sources: Sources,
        sink: &mut S,
        stats: &mut ReadStats,
        slices: Option<Arc<Slices>>,
    ) -> Result<Flow, StoreError> {
        let mode = MergeMode::Live { now: command.now };
        let resume = command.resume.as_ref().filter(|_| slices.is_some());
        let per_look = sink.tombstones_per_look().max(1);
        let mut run = Box::new(Run {
            shape,
            reversed: command.reversed,
            merge: MergeCursor::new(shape, mode, command.reversed, sources),
            shown: Shown {
                announced: false,
                has_static: false,
                static_row: Vec::new(),
                token: Token::MIN,
                key: SmallVec::new(),
            },
            static_alone: command.wants_static && resume.is_none_or(ResumePosition::shows_static),
            tombstones_before: stats.tombstones,
            next_look: per_look,
            per_look,
            slices,
            items: 0,
            merged: 0,
        });
        run.merge.tell_of_passed(per_look.min(PASSED_MAX));
        run.merge.set_scratch(self.read_scratch.take());
        let mut passing = Passing::new();
        let result = loop {
            match self.run(&mut run, sink, stats) {
                Ok(Pause::End(flow)) => break Ok(flow),
                Ok(Pause::Yield) => self.env.rt.yield_if_due().await,
                Ok(Pause::Load(request)) => {
                    let loaded = match command.bypass_cache {
                        false => self.load(&mut run.merge, request, stats).await,
                        // Boxed: all other reads would carry its memory too.
                        true => {
                            let (merge, passing) = (&mut run.merge, &mut passing);
                            Box::pin(self.load_once(merge, command, request, passing, stats)).await
                        }
                    };
                    if let Err(error) = loaded {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        let (scratch, sources) = run.merge.into_parts();
        self.read_scratch.set(scratch);
        self.keep_buffers(sources);
        self.keep_ahead(passing);
        result
    }

    /// Runs the merge as far as its data is in memory.
    fn run<S: RowSink>(
        &self,
        run: &mut Run<'_>,
        sink: &mut S,
        stats: &mut ReadStats,
    ) -> Result<Pause, StoreError> {
        loop {
            let Run {
                merge, shown, static_alone, tombstones_before, items, merged, next_look, ..
            } = run;
            let looks = *merged == 0;
            *merged = merged.saturating_sub(1);
            let plain = match looks {
                true => memtable_fast_path::show(merge, shown, *static_alone, sink, stats),
                false => None,
            };
            let is_plain = plain.is_some();
            let flow = if let Some((flow, count)) = plain {
                *items += count;
                flow
            } else {
                match self.advance_cached(merge)? {
                    Advance::End => return Ok(Pause::End(Flow::Continue)),
                    Advance::NeedBlock(request) => return Ok(Pause::Load(request)),
                    Advance::Item => {}
                }
                let item = merge.item();
                *items += 1;
                *merged = match item {
                    Item::Partition { .. } | Item::PartitionEnd => 0,
                    // Without plain rows now, none will follow soon.
                    Item::Row { .. } | Item::Static(_) | Item::Marker(_) if looks => {
                        MERGED_IN_ONE_GO
                    }
                    Item::Row { .. } | Item::Static(_) | Item::Marker(_) => *merged,
                };
                match item {
                    Item::Row { row, .. } => *items += row.bytes().len() / BYTES_PER_ITEM,
                    // About that many rows were skipped for the marker.
                    Item::Marker(_) => *items += ITEMS_PER_LOOK,
                    Item::Partition { .. } | Item::Static(_) | Item::PartitionEnd => {}
                }
                show(shown, item, sink, *static_alone, stats)
            };
            let scanned = merge.scanned();
            if scanned > 0 {
                stats.tombstones = tombstones_before.saturating_add(merge.tombstones());
                if scanned >= *next_look && flow == Flow::Continue && !is_plain {
                    match run.tell(sink, stats) {
                        Look::Continue if run.items < ITEMS_PER_LOOK => continue,
                        Look::Continue => {
                            run.items = 0;
                            match self.env.rt.is_yield_due() {
                                true => return Ok(Pause::Yield),
                                false => continue,
                            }
                        }
                        Look::Stop => return Ok(Pause::End(Flow::Stop)),
                        Look::Refuse => {
                            return Err(StoreError::TombstoneFailure { scanned: stats.tombstones });
                        }
                    }
                }
            }
            match flow {
                Flow::Continue => {}
                Flow::SkipPartition => {
                    merge.skip_partition();
                    if shown.announced {
                        shown.announced = false;
                        if sink.partition_end() == Flow::Stop {
                            return Ok(Pause::End(Flow::Stop));
                        }
                    }
                }
                Flow::Stop => return Ok(Pause::End(Flow::Stop)),
            }
            if *items >= ITEMS_PER_LOOK {
                *items = 0;
                if self.env.rt.is_yield_due() {
                    return Ok(Pause::Yield);
                }
            }
        }
    }
}

impl Run<'_> {
    /// Reports the progress to the sink, if the current item is such a position.
    #[cold]
    fn tell<S: RowSink>(&mut self, sink: &mut S, stats: &ReadStats) -> Look {
        let merge = &self.merge;
        let clustering = match merge.item() {
            Item::Row { clustering, .. } => Some(clustering),
            Item::Marker(_) => {
                let is_progress = |at: &&[u8]| self.is_progress(at);
                let Some(at) = merge.passed_at().filter(is_progress) else { return Look::Continue };
                Some(at)
            }
            Item::PartitionEnd => None,
            Item::Partition { .. } | Item::Static(_) => return Look::Continue,
        };
        let scanned = merge.scanned();
        self.next_look = scanned.saturating_add(self.per_look);
        let upto = LookedAt {
            token: self.shown.token,
            key: &self.shown.key,
            clustering,
            tombstones: stats.tombstones,
            scanned: self.tombstones_before.saturating_add(scanned),
        };
        sink.looked_at(upto)
    }

    /// Returns true if a position lies after the end of the previous page; positions without a row
    /// may not.
    fn is_progress(&self, at: &[u8]) -> bool {
        let slices = self.slices.as_ref();
        slices.and_then(|slices| floor_of(self.shape, slices, self.reversed)).is_none_or(|floor| {
            let order = self.shape.clustering().compare(at, floor);
            if self.reversed { order.is_lt() } else { order.is_gt() }
        })
    }
}

/// Files that may have the partition and anything newer than `deleted`.
#[inline(always)]
pub(crate) fn candidates<'v>(
    view: &'v TableView,
    slices: &Slices,
    hash: &codec::KeyHash,
    deleted: TimestampMicros,
) -> Candidates<'v> {
    let mut found = Candidates::new();
    for file in &view.files {
        // A file that spans shards is open on each of them; the key belongs to one.
        if file.filter.is_some_and(|f| !f.shows(hash.token)) {
            continue;
        }
        let meta = file.reader.meta();
        if meta.statistics().stats.max_timestamp >= deleted
            && meta.may_contain(hash)
            && meta.may_intersect(slices)
        {
            found.push(file);
        }
    }
    found
}

/// The row after which slices begin, in read order; `None`: they do not.
pub(crate) fn floor_of<'s>(
    shape: &TableShape,
    slices: &'s Slices,
    reversed: bool,
) -> Option<&'s [u8]> {
    let (prefix, is_behind) = match reversed {
        false => slices.0.first().map(|slice| (&slice.start, slice.start_after))?,
        true => slices.0.last().map(|slice| (&slice.end, !slice.end_after))?,
    };
    let is_row = data::clustering::components(prefix).count() == shape.clustering().len();
    (is_behind && is_row).then_some(prefix.as_slice())
}

fn token_of(bound: &RingBound) -> Token {
    match bound {
        RingBound::Token { token, .. } | RingBound::Key { token, .. } => *token,
    }
}

/// Shows one item to the sink.
#[inline]
pub(crate) fn show<S: RowSink>(
    shown: &mut Shown,
    item: Item<'_>,
    sink: &mut S,
    static_alone: bool,
    stats: &mut ReadStats,
) -> Flow {
    match item {
        Item::Partition { token, key, .. } => {
            shown.announced = false;
            shown.has_static = false;
            shown.token = token;
            shown.key.clear();
            shown.key.extend_from_slice(key);
            Flow::Continue
        }
        Item::Static(row) => {
            shown.has_static = true;
            shown.static_row.clear();
            shown.static_row.extend_from_slice(row.bytes());
            Flow::Continue
        }
        Item::Row { clustering, row } => {
            if !shown.announced {
                match announce(shown, sink, stats) {
                    Flow::Continue => {}
                    other => return other,
                }
            }
            stats.rows += 1;
            sink.row(clustering, row)
        }
        Item::Marker(_) => Flow::Continue,
        Item::PartitionEnd => {
            if !shown.announced && shown.has_static && static_alone {
                match announce(shown, sink, stats) {
                    Flow::Stop => return Flow::Stop,
                    Flow::Continue | Flow::SkipPartition => {}
                }
            }
            if !shown.announced {
                return Flow::Continue;
            }
            shown.announced = false;
            sink.partition_end()
        }
    }
}

pub(crate) fn announce<S: RowSink>(shown: &mut Shown, sink: &mut S, stats: &mut ReadStats) -> Flow {
    shown.announced = true;
    stats.partitions += 1;
    let static_row = shown.has_static.then_some(RowRef::trusted(&shown.static_row));
    sink.partition(shown.token, &shown.key, static_row)
}

/// The command's slices; in the partition where a page continues, only the part after the last row
/// returned.
pub(crate) fn slices_of(shape: &TableShape, command: &ReadCommand, resumed: bool) -> Arc<Slices> {
    let last = match &command.resume {
        Some(resume) if resumed => resume.clustering.as_deref(),
        _ => None,
    };
    let Some(last) = last else { return command.slices.clone() };
    let cmp = shape.clustering();
    let mut slices = Slices::clone(&command.slices);
    slices.0.retain_mut(|slice| {
        if command.reversed {
            // Keep the part before the last row.
            if cmp.compare_to_bound(last, slice.end()).is_lt() {
                slice.end = last.to_vec();
                slice.end_after = false;
            }
        } else if cmp.compare_to_bound(last, slice.start()).is_gt() {
            slice.start = last.to_vec();
            slice.start_after = true;
        }
        !slice.is_empty(cmp)
    });
    Arc::new(slices)
}
