//! One table of this shard: its shape and its view.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use commitlog::{LogPosition, TableTicket};
use compact_plan::{CompactionOptions, GcPolicy, parse_options};
use data::command::Partitions;
use data::{GcBefore, TableShape};
use index_format::TableIndexes;
use rt::sync::Semaphore;
use schema::{ColumnKind, Table};
use stdx::{DeletionSeconds, Generation, Instant, TableId, TimestampMicros, Token, Uuid};
use telemetry::{EstimatedHistogram, EstimatedSnapshot};

use crate::memtable::Memtable;
use crate::tables::built_indexes::{BuiltIndexes, disuse_others};
use crate::tables::cached_rows::CachedRows;
use crate::tables::damage::{Damage, FailedCopies, VerifiedTimes};
use crate::tables::large_files::LargeFiles;
use crate::tables::read_stats::ReadStats;
use crate::tables::retry_backoff::Failures;
use crate::tables::sampling::Sampling;
use crate::tables::table_file::TableFile;
use crate::tables::truncations::{TruncatedSlices, TruncationPin};

/// Everything a read merges, as of one moment. Replaced as a whole, never changed.
pub(crate) struct TableView {
    /// The memtable that takes writes.
    pub(crate) active: Rc<Memtable>,
    /// Memtables on their way to disk, oldest first.
    pub(crate) flushing: Vec<Rc<Memtable>>,
    /// Complete SSTables.
    pub(crate) files: Vec<Rc<TableFile>>,
    /// Files of views with the same number have the same rows, except for what flushes added to them. Given by
    /// [`TableState::set_view`]; 0 for views that were never a table's.
    pub(crate) contents: u64,
}

impl TableView {
    pub(crate) fn new(
        active: Rc<Memtable>,
        flushing: Vec<Rc<Memtable>>,
        files: Vec<Rc<TableFile>>,
    ) -> TableView {
        TableView { active, flushing, files, contents: 0 }
    }

    pub(crate) fn empty() -> TableView {
        TableView::new(Rc::new(Memtable::new()), Vec::new(), Vec::new())
    }

    pub(crate) fn is_flushing(&self, memtable: &Rc<Memtable>) -> bool {
        self.flushing.iter().any(|m| Rc::ptr_eq(m, memtable))
    }

    pub(crate) fn flushing_without(&self, memtable: &Rc<Memtable>) -> Vec<Rc<Memtable>> {
        self.flushing.iter().filter(|m| !Rc::ptr_eq(m, memtable)).cloned().collect()
    }

    /// Memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Rc<Memtable>> {
        std::iter::once(&self.active).chain(self.flushing.iter().rev())
    }
}

/// Numbers of one table on this shard; as `nodetool tablestats` shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Complete SSTables in use.
    pub sstables: u64,
    /// Bytes of their components on disk.
    pub disk_bytes: u64,
    /// Bytes of the largest of them on disk.
    pub sstable_bytes_max: u64,
    /// Longest time between the first and the last write of one of them, microseconds.
    pub sstable_span_micros_max: u64,
    /// For each level, from 0 on: how many of them, and the bytes of their Data on disk.
    pub levels: Vec<(u64, u64)>,
    /// Uncompressed bytes of their data.
    pub uncompressed_bytes: u64,
    /// Those of them that were repaired.
    pub repaired_bytes: u64,
    /// Those of them in a running repair.
    pub pending_repair_bytes: u64,
    /// Keys in SSTables, counted once per file.
    pub partitions_estimate: u64,
    /// Accounted memory of memtables.
    pub memtable_bytes: u64,
    /// That of partitions that no SSTable can hold.
    pub unflushable_bytes: u64,
    /// Partitions in memtables.
    pub memtable_partitions: u64,
    /// Mutations in memtables.
    pub memtable_mutations: u64,
    /// Memtables flushed since start.
    pub flushes: u64,
    /// Compactions finished since start.
    pub compactions: u64,
    /// Compactions the strategy would start now.
    pub pending_compactions: u64,
    /// Reads since start.
    pub reads: u64,
    /// Writes since start.
    pub writes: u64,
    /// Memory of SSTables' metadata beside their blocks.
    pub metadata_bytes: u64,
    /// That of Bloom filters.
    pub filter_bytes: u64,
    /// Bytes of Filter components.
    pub filter_file_bytes: u64,
    /// Memory of samples of indexes.
    pub summary_bytes: u64,
    /// Memory of offsets of compressed chunks.
    pub offsets_bytes: u64,
    /// Bytes of the Data of compressed SSTables on disk, and uncompressed.
    pub compressed_bytes: (u64, u64),
    /// SSTables of other versions than the one that is written.
    pub old_sstables: u64,
    /// SSTables that lie in another data directory than they should.
    pub misplaced_sstables: u64,
    /// Memtables that are being written to disk, or wait for that.
    pub pending_flushes: u64,
    /// Partitions that were looked for in SSTables, as Bloom filters let them pass, and were not there; since
    /// start.
    pub filter_misses: u64,
    /// SSTables read by reads of partitions since start.
    pub sstables_read: u64,
    /// Cells of SSTables that are tombstones old enough to be purged, as estimated by Statistics,
    /// and all cells.
    pub droppable_cells: (u64, u64),
    /// Tombstones that reads met.
    pub tombstones_scanned: u64,
    /// How long reads of this shard's data took.
    pub read_latency: EstimatedSnapshot,
    /// How long writes took: log buffer and memtable.
    pub write_latency: EstimatedSnapshot,
    /// SSTables read by each read, plus one.
    pub sstables_per_read: EstimatedSnapshot,
    /// How long reads of ranges of this shard's data took.
    pub scan_latency: EstimatedSnapshot,
    /// Live rows that each read met, of partitions and of ranges, plus one.
    pub rows_per_read: EstimatedSnapshot,
    /// Tombstones that each read met, likewise, plus one.
    pub tombstones_per_read: EstimatedSnapshot,
    /// How long searches of its indexes took.
    pub index_latency: EstimatedSnapshot,
    /// SSTables in these searches, once for each restriction.
    pub index_files_searched: u64,
    /// Keys that they gave.
    pub index_candidates: u64,
    /// Bytes of the partitions of all SSTables: counts in Cassandra's 156 buckets, empty ones at the
    /// end left out.
    pub partition_sizes: Vec<u64>,
    /// Cells of these partitions: 119 buckets, likewise.
    pub cell_counts: Vec<u64>,
}

/// Counters of a table.
#[derive(Default)]
pub(crate) struct TableCounters {
    pub(crate) reads: Cell<u64>,
    pub(crate) writes: Cell<u64>,
    pub(crate) flushes: Cell<u64>,
    /// Bytes of the data of flushed files on disk.
    pub(crate) flushed_bytes: Cell<u64>,
    pub(crate) compactions: Cell<u64>,
    pub(crate) tombstones: Cell<u64>,
    pub(crate) read_latency: EstimatedHistogram,
    pub(crate) write_latency: EstimatedHistogram,
    pub(crate) sstables_per_read: EstimatedHistogram,
    /// Reads of partitions, and SSTables that they read.
    pub(crate) partition_reads: Cell<u64>,
    pub(crate) sstables_read: Cell<u64>,
    /// False positives of the Bloom filters of files that are no longer in the view.
    misses_before: Cell<u64>,
    pub(crate) scan_latency: EstimatedHistogram,
    pub(crate) rows_per_read: EstimatedHistogram,
    pub(crate) tombstones_per_read: EstimatedHistogram,
    pub(crate) index_latency: EstimatedHistogram,
    pub(crate) index_files_searched: Cell<u64>,
    pub(crate) index_candidates: Cell<u64>,
    pub(crate) sampling: Sampling,
    /// `reads` and `writes` at the last check.
    seen: Cell<(u64, u64)>,
}

/// Writes for each read at which a table still counts as one that is read.
const WRITES_PER_READ: u64 = 16;

impl TableCounters {
    /// Returns true if the table was read since the last call, relative to its writes. Then flushed
    /// data is wanted in the chunk cache.
    pub(crate) fn is_read(&self) -> bool {
        let now = (self.reads.get(), self.writes.get());
        let before = self.seen.replace(now);
        let (reads, writes) = (now.0.wrapping_sub(before.0), now.1.wrapping_sub(before.1));
        reads > 0 && reads.saturating_mul(WRITES_PER_READ) >= writes
    }

    /// Records a read that ended, with its duration and statistics. Source of the counts:
    /// Cassandra's `ReadCommand.recordLatency`, `updateSSTablesIterated`,
    /// `tombstoneScannedHistogram`.
    #[inline]
    pub(crate) fn note_read(
        &self,
        partitions: &Partitions,
        began: Instant,
        took: Duration,
        stats: &ReadStats,
    ) {
        // Reads of ranges are not among Cassandra's local reads. One more, here and below, so that
        // none has a bucket of its own.
        if matches!(partitions, Partitions::Key(_)) {
            self.read_latency.record_nanos(nanos(took));
            self.sstables_per_read.record(u64::from(stats.sstables).saturating_add(1));
            bump(&self.partition_reads, 1);
            bump(&self.sstables_read, u64::from(stats.sstables));
        } else {
            self.scan_latency.record_nanos(nanos(took));
        }
        self.rows_per_read.record(stats.rows.saturating_add(1));
        self.tombstones_per_read.record(u64::from(stats.tombstones).saturating_add(1));
        bump(&self.tombstones, u64::from(stats.tombstones));
        if self.sampling.is_on() {
            self.sampling.note_read(partitions, began, took, stats);
        }
    }

    /// A search of indexes ended, with so many SSTables and keys.
    pub(crate) fn note_search(&self, took: Duration, files: u64, keys: u64) {
        self.index_latency.record_nanos(nanos(took));
        bump(&self.index_files_searched, files);
        bump(&self.index_candidates, keys);
    }

    /// A write was applied.
    #[inline]
    pub(crate) fn note_write(&self, took: Duration) {
        self.write_latency.record_nanos(nanos(took));
    }
}

#[inline]
fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn bump(cell: &Cell<u64>, by: u64) {
    cell.set(cell.get().wrapping_add(by));
}

/// Settings made in this run that override options of the `compaction` map.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overrides {
    /// `enabled`.
    pub(crate) automatic: Option<bool>,
    /// `min_threshold` and `max_threshold`.
    pub(crate) thresholds: Option<(u32, u32)>,
}

/// A table version, compiled.
pub(crate) struct TableVersion {
    pub(crate) table: Arc<Table>,
    pub(crate) shape: Rc<TableShape>,
    pub(crate) ticket: TableTicket,
    /// Its `compaction` map; a text why it is not understood.
    pub(crate) compaction: Result<CompactionOptions, String>,
    /// `rows_per_partition` of its `caching`.
    pub(crate) cached_rows: CachedRows,
    /// Its indexes; `None`: it has none.
    pub(crate) indexes: Option<Rc<TableIndexes>>,
    /// Consumer of its writes beside the memtable.
    pub(crate) follower: WriteFollower,
}

/// Consumer of the writes of a table beside its memtable. A table of counters has no indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFollower {
    /// Nothing.
    Nothing,
    /// The cache of counters.
    CounterCache,
    /// The indexes of the memtable.
    Indexes,
}

impl TableVersion {
    fn new(table: Arc<Table>, overrides: Overrides) -> Rc<TableVersion> {
        let map = table.options.compaction.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let first = table.clustering().first();
        let cql_type = first.map(|column| column.ty.to_string());
        let first = first.map(|column| column.name.as_ref()).zip(cql_type.as_deref());
        let mut compaction = parse_options(map)
            .and_then(|options| options.for_table(first))
            .map_err(|e| e.to_string());
        if let Ok(options) = &mut compaction {
            let tiered = &mut options.size_tiered;
            let (min, max) =
                overrides.thresholds.unwrap_or((tiered.min_threshold, tiered.max_threshold));
            (tiered.min_threshold, tiered.max_threshold) = (min, max);
            options.enabled = overrides.automatic.unwrap_or(options.enabled);
        }
        let indexes = TableIndexes::of_table(&table).map(Rc::new);
        Rc::new(TableVersion {
            shape: Rc::new(TableShape::for_table(&table)),
            follower: match indexes.is_some() {
                true => WriteFollower::Indexes,
                false if table.is_counter() => WriteFollower::CounterCache,
                false => WriteFollower::Nothing,
            },
            indexes,
            ticket: TableTicket::new(&table),
            compaction,
            cached_rows: CachedRows::parse(
                table.options.caching.get("rows_per_partition").map(String::as_str),
            ),
            table,
        })
    }
}

impl TableVersion {
    /// Returns true if the first clustering column descends.
    pub(crate) fn first_is_reversed(&self) -> bool {
        let first = self.table.clustering().first();
        first.is_some_and(|c| matches!(c.kind, ColumnKind::Clustering { reversed: true, .. }))
    }

    /// Ids and definitions of its indexes.
    fn definitions(&self) -> impl Iterator<Item = (Uuid, u32)> {
        let indexes = self.indexes.iter().flat_map(|indexes| indexes.all());
        indexes.map(|index| (index.id, index.definition))
    }

    /// Ids of its indexes.
    pub(crate) fn index_ids(&self) -> impl Iterator<Item = Uuid> {
        self.indexes.iter().flat_map(|indexes| indexes.all()).map(|index| index.id)
    }
}

/// One table.
pub(crate) struct TableState {
    pub(crate) id: TableId,
    pub(crate) version: RefCell<Rc<TableVersion>>,
    pub(crate) view: RefCell<Rc<TableView>>,
    /// The number of its contents.
    contents: Cell<u64>,
    /// Begins and ends of folds into the row cache: odd while one is under way.
    pub(crate) folds: Cell<u64>,
    pub(crate) counters: TableCounters,
    /// Files with something large.
    pub(crate) large: LargeFiles,
    /// The highest generation seen or given.
    pub(crate) generation: Cell<Generation>,
    /// Files being written.
    writing: RefCell<Vec<Generation>>,
    /// Truncations whose records the log must keep.
    pub(crate) pins: RefCell<Vec<TruncationPin>>,
    /// First positions of memtables that are gone while their log is still needed: see [`Pin`].
    memtable_pins: RefCell<Vec<LogPosition>>,
    /// Truncations carried out here, as far as this run and the replayed log know.
    pub(crate) truncated: RefCell<TruncatedSlices>,
    /// Truncations of earlier runs whose records the old log must keep.
    pub(crate) replayed_truncations: RefCell<Vec<TimestampMicros>>,
    /// A truncation could not be logged: writes that bypass the log would be lost by carrying it out later.
    pub(crate) refuses_unlogged: Cell<bool>,
    /// Truncations of earlier runs whose files are still there.
    pub(crate) replayed_removals: Cell<u32>,
    /// No background compaction before this (after one failed).
    pub(crate) compaction_paused_until: Cell<Instant>,
    /// Consecutive failures of background compactions.
    pub(crate) failed_compactions: Cell<Failures>,
    /// Inputs of compactions that run.
    pub(crate) claimed: RefCell<Vec<Generation>>,
    overrides: Cell<Overrides>,
    /// A task has the table exclusively: no compaction of it begins.
    pub(crate) owned: Cell<bool>,
    /// Number of tasks that have it or wait for it.
    pub(crate) wanted: Cell<u32>,
    /// When the active memtable became active.
    pub(crate) switched_at: Cell<Instant>,
    /// Number of times it was emptied, by TRUNCATE or DROP.
    pub(crate) emptied: Cell<u64>,
    /// Memory of partitions that flushes could not write, see [`crate::write::unflushable`].
    pub(crate) refused_bytes: Cell<usize>,
    /// Its files need a key that is missing: no flush can free any of its memory.
    pub(crate) lacks_key: Cell<bool>,
    /// A flush may free some of it.
    pub(crate) wants_flush: Cell<bool>,
    /// Which of them were reported, and when.
    pub(crate) refused_report: Cell<Option<(i64, Instant)>>,
    /// Not in the schema any more.
    pub(crate) dropped: Cell<bool>,
    /// The directory exists, durably.
    pub(crate) has_directory: Cell<bool>,
    /// Its files are in the view: see [`crate::files::late_tables`].
    pub(crate) is_opened: Cell<bool>,
    /// Held by the task that opens them.
    pub(crate) opening: Semaphore,
    /// Files that were, or may have been, written whole and are in no view, because a later step
    /// failed. A start would open them, so nothing may be purged while they exist: data that a
    /// tombstone hides in one of them would be resurrected.
    pub(crate) orphans: RefCell<Vec<InFlight>>,
    /// Sessions of incremental repairs that were begun in this run, with the data sent to them that
    /// is in no file yet.
    pub(crate) repairs: RefCell<BTreeMap<Uuid, Rc<Memtable>>>,
    /// Tokens of partitions whose tombstones may be purged at any age.
    pub(crate) ageless: RefCell<Vec<Token>>,
    /// Damaged files: in no compaction, see [`crate::damage::quarantine`].
    pub(crate) damaged: RefCell<BTreeMap<Generation, Damage>>,
    /// Those of them that could not be copied.
    pub(crate) failed_copies: RefCell<BTreeMap<Generation, FailedCopies>>,
    /// Those of them that may be removed.
    pub(crate) releasable: RefCell<Vec<Generation>>,
    /// Times of the files' background verification, once they were read.
    pub(crate) verified: RefCell<Option<VerifiedTimes>>,
    /// Policy for the age at which tombstones may be purged.
    pub(crate) gc: RefCell<Rc<GcPolicy>>,
    /// Which of its indexes are built.
    pub(crate) indexes: BuiltIndexes,
}

/// A file being written; ends when dropped.
pub(crate) struct InFlight {
    // Its table may hold it, among its orphans.
    table: Weak<TableState>,
    generation: Generation,
}

impl InFlight {
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.writing.borrow_mut().retain(|g| *g != self.generation);
            table.large.forget(self.generation);
        }
    }
}

/// Keeps the log that a memtable needs, until it is dropped.
pub(crate) struct Pin<'t> {
    table: &'t TableState,
    position: Option<LogPosition>,
    is_replayed: bool,
}

impl<'t> Pin<'t> {
    pub(crate) fn new(table: &'t TableState, memtable: &Memtable) -> Pin<'t> {
        let (position, is_replayed) = (memtable.first_position(), memtable.is_replayed());
        table.memtable_pins.borrow_mut().extend(position);
        let removals = table.replayed_removals.get();
        table.replayed_removals.set(removals.saturating_add(u32::from(is_replayed)));
        Pin { table, position, is_replayed }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut pins = self.table.memtable_pins.borrow_mut();
        if let Some(at) = pins.iter().position(|position| Some(*position) == self.position) {
            pins.swap_remove(at);
        }
        let removals = self.table.replayed_removals.get();
        self.table.replayed_removals.set(removals.saturating_sub(u32::from(self.is_replayed)));
    }
}

impl TableState {
    pub(crate) fn new(table: Arc<Table>) -> TableState {
        TableState {
            id: table.id,
            version: RefCell::new(TableVersion::new(table, Overrides::default())),
            overrides: Cell::default(),
            view: RefCell::new(Rc::new(TableView::empty())),
            contents: Cell::new(0),
            folds: Cell::new(0),
            counters: TableCounters::default(),
            large: LargeFiles::default(),
            generation: Cell::new(Generation(0)),
            writing: RefCell::default(),
            pins: RefCell::default(),
            memtable_pins: RefCell::default(),
            truncated: RefCell::default(),
            replayed_truncations: RefCell::default(),
            refuses_unlogged: Cell::default(),
            replayed_removals: Cell::new(0),
            compaction_paused_until: Cell::new(Instant::ZERO),
            failed_compactions: Cell::default(),
            claimed: RefCell::default(),
            owned: Cell::new(false),
            wanted: Cell::new(0),
            switched_at: Cell::new(Instant::ZERO),
            emptied: Cell::new(0),
            refused_bytes: Cell::new(0),
            lacks_key: Cell::new(false),
            wants_flush: Cell::new(false),
            refused_report: Cell::new(None),
            dropped: Cell::new(false),
            has_directory: Cell::new(false),
            is_opened: Cell::new(false),
            opening: Semaphore::new(1),
            orphans: RefCell::default(),
            repairs: RefCell::default(),
            ageless: RefCell::default(),
            damaged: RefCell::default(),
            failed_copies: RefCell::default(),
            releasable: RefCell::default(),
            verified: RefCell::default(),
            gc: RefCell::default(),
            indexes: BuiltIndexes::default(),
        }
    }

    /// Returns true if all these files are in the view.
    pub(crate) fn has_all(&self, files: &[Rc<TableFile>]) -> bool {
        let view = self.view();
        files.iter().all(|i| view.files.iter().any(|f| f.generation == i.generation))
    }

    /// Returns the time before which tombstones of every partition are old enough to be purged.
    pub(crate) fn gc_before(&self, now: DeletionSeconds) -> DeletionSeconds {
        let grace = self.version.borrow().table.options.gc_grace_seconds;
        self.gc.borrow().least(now, grace)
    }

    /// The same by partition, for a merge that begins now.
    pub(crate) fn gc_rule(&self, now: DeletionSeconds) -> GcBefore {
        let grace = self.version.borrow().table.options.gc_grace_seconds;
        let policy = self.gc.borrow().clone();
        let ageless = self.ageless.borrow().clone();
        GcBefore::Of(Box::new(move |token| match ageless.contains(&token) {
            // Deletions made in this second too.
            true => DeletionSeconds(now.0.saturating_add(1)),
            false => policy.at(token, now, grace),
        }))
    }

    /// Records the false positives of Bloom filters of files that leave the view.
    fn keep_misses(&self, files: &[Rc<TableFile>]) {
        let of = |files: &[Rc<TableFile>]| files.iter().map(|f| f.reader.meta().misses()).sum();
        let (before, after): (u64, u64) = (of(&self.view.borrow().files), of(files));
        bump(&self.counters.misses_before, before.saturating_sub(after));
    }

    /// Number of false positives of Bloom filters since the start.
    pub(crate) fn filter_misses(&self) -> u64 {
        let view = self.view.borrow();
        let now: u64 = view.files.iter().map(|f| f.reader.meta().misses()).sum();
        self.counters.misses_before.get().saturating_add(now)
    }

    /// Gives the table another view, whose files may have other rows than those of the one before.
    pub(crate) fn set_view(&self, view: TableView) {
        self.begin_indexes(&view);
        let contents = self.contents.get() + 1;
        self.contents.set(contents);
        self.large.follow(&self.version.borrow().table, &view.files);
        self.keep_misses(&view.files);
        *self.view.borrow_mut() = Rc::new(TableView { contents, ..view });
    }

    /// The same when files have the rows that files had before: others were written of them, or a memtable's
    /// file came while its [`Fold`] was there.
    ///
    /// [`Fold`]: crate::read::row_cache::Fold
    pub(crate) fn set_equal_view(&self, view: TableView) {
        self.begin_indexes(&view);
        let contents = self.contents.get();
        self.large.follow(&self.version.borrow().table, &view.files);
        self.keep_misses(&view.files);
        *self.view.borrow_mut() = Rc::new(TableView { contents, ..view });
    }

    /// A new active memtable has the indexes of the table from its first row on.
    fn begin_indexes(&self, view: &TableView) {
        if let Some(indexes) = &self.version.borrow().indexes {
            view.active.begin_indexes(indexes);
            disuse_others(indexes, &view.files);
        }
    }

    /// Adds files to the view.
    pub(crate) fn add_files(&self, new: &[Rc<TableFile>]) {
        let view = self.view();
        let mut files = view.files.clone();
        files.extend_from_slice(new);
        let (active, flushing) = (view.active.clone(), view.flushing.clone());
        self.set_view(TableView::new(active, flushing, files));
    }

    /// Registers a file as being written.
    pub(crate) fn in_flight(self: &Rc<Self>, generation: Generation) -> InFlight {
        self.writing.borrow_mut().push(generation);
        InFlight { table: Rc::downgrade(self), generation }
    }

    pub(crate) fn generations_in_flight(&self) -> Vec<Generation> {
        self.writing.borrow().clone()
    }

    /// Returns true if segments of earlier runs are still needed for this table.
    pub(crate) fn holds_old_log(&self) -> bool {
        self.replayed_removals.get() > 0
            || !self.replayed_truncations.borrow().is_empty()
            || self.view.borrow().memtables().any(|m| m.is_replayed())
    }

    pub(crate) fn version(&self) -> Rc<TableVersion> {
        self.version.borrow().clone()
    }

    pub(crate) fn shape(&self) -> Rc<TableShape> {
        self.version.borrow().shape.clone()
    }

    pub(crate) fn view(&self) -> Rc<TableView> {
        self.view.borrow().clone()
    }

    /// Takes a new version of the table over, if it is one.
    pub(crate) fn set_table(&self, table: &Arc<Table>) {
        if !Arc::ptr_eq(&self.version.borrow().table, table) {
            let version = TableVersion::new(table.clone(), self.overrides.get());
            let before = self.version.replace(version.clone());
            let view = self.view();
            view.memtables().for_each(|memtable| memtable.note_altered());
            self.repairs.borrow().values().for_each(|memtable| memtable.note_altered());
            let (mut active, mut flushing) = (view.active.clone(), view.flushing.clone());
            if !before.definitions().eq(version.definitions()) {
                // Its rows are in the indexes of the previous version.
                flushing.push(std::mem::replace(&mut active, Rc::new(Memtable::new())));
            }
            // Cached rows were merged for the previous shape.
            self.set_view(TableView::new(active, flushing, view.files.clone()));
            self.follow_indexes();
        }
    }

    /// Changes the overrides of options, also for later versions of the table.
    pub(crate) fn change_overrides(&self, change: impl FnOnce(&mut Overrides)) {
        let mut overrides = self.overrides.get();
        change(&mut overrides);
        self.overrides.set(overrides);
        let table = self.version.borrow().table.clone();
        *self.version.borrow_mut() = TableVersion::new(table, overrides);
    }

    /// Bytes that a flush of the active memtable frees, as far as is known.
    pub(crate) fn flushable_bytes(&self) -> usize {
        if self.lacks_key.get() {
            return 0;
        }
        let view = self.view.borrow();
        view.active.bytes().saturating_sub(view.active.refused_bytes())
    }

    /// Position in the log of its first mutation that is in no SSTable.
    pub(crate) fn first_unflushed(&self) -> Option<LogPosition> {
        let pin = self.pins.borrow().iter().map(TruncationPin::needed).min();
        let pinned = self.memtable_pins.borrow().iter().copied().min();
        let view = self.view.borrow();
        view.memtables().filter_map(|m| m.first_position()).chain(pin).chain(pinned).min()
    }
}
