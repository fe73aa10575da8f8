//! The store: opening, writes, schema, budgets.

mod background;

use crate::env::failure::Hook;
use crate::env::failure::StoreFailure;
use crate::files::damage_marks::DamageEvent;
use crate::tables::composite_keys::composite_parts;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use std::time::Duration;

use commitlog::{CommitLog, LogError, LogPosition};
use data::MutationRef;
use data::writable::{Unwritable, WriteLimits};
use rt::sync::{Notify, Semaphore};
use rt::{Gate, Group, Rt};
use schema::{Schema, Table, TableKind};
use sstable::CursorBuffers;
use stdx::{FixedMap, Instant, TableId, Token};

use crate::compact::backlog::Control;
use crate::compact::compaction::CompactionRecord;
use crate::env::full_disk::{DiskSpaceChange, FullDisk};
use crate::env::live_options::LiveOptions;
use crate::env::stages::Stages;
use crate::error::StoreError;
use crate::files::chunk_cache::ChunkCache;
use crate::files::slots::Slots;
use crate::files::table_files::OpenedSets;
use crate::observe::large_partitions::Large;
use crate::options::StoreOptions;
use crate::read::counter_cache::CounterCache;
use crate::read::replica_pages::ReadAheads;
use crate::read::row_cache::RowCache;
use crate::replay::ReplayReport;
use crate::tables::table::{TableState, TableStats, TableView, bump};
use crate::tables::table_file::TableFile;
use crate::write::unflushable::place_of;

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) options: StoreOptions,
    pub(crate) log: CommitLog,
    pub(crate) gate: Gate,
    pub(crate) tables: RefCell<FixedMap<TableId, Rc<TableState>>>,
    /// Accounted bytes of all memtables, flushing ones included.
    pub(crate) memtable_bytes: Cell<usize>,
    /// What of it no flush can free, and of how many tables it is, see [`crate::write::unflushable`].
    pub(crate) refused: Cell<(usize, usize)>,
    pub(crate) refused_gauge: telemetry::Gauge,
    /// Merge buffers of writes.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Merge buffers of reads, taken and given back.
    pub(crate) read_scratch: Cell<Vec<u8>>,
    /// Memory of finished SSTable cursors.
    pub(crate) cursor_buffers: RefCell<Vec<CursorBuffers>>,
    /// What pages for streams and repairs have read of files behind their ends.
    pub(crate) read_aheads: RefCell<ReadAheads>,
    pub(crate) cache: ChunkCache,
    pub(crate) row_cache: RowCache,
    pub(crate) counter_cache: CounterCache,
    pub(crate) stages: Stages,
    pub(crate) live: LiveOptions,
    /// One file of saved keys at a time.
    pub(crate) saving: Semaphore,
    pub(crate) stopping: Cell<bool>,
    /// Drained: no more writes.
    pub(crate) drained: Cell<bool>,
    /// Memtables became smaller.
    pub(crate) room: Notify,
    /// There may be something to flush or release.
    pub(crate) work: Notify,
    /// The store is stopping.
    pub(crate) stop: Notify,
    /// One flush at a time.
    pub(crate) flush_slot: Semaphore,
    pub(crate) slots: Slots,
    /// Where the search for the next background compaction begins: behind this table.
    pub(crate) compacted_last: Cell<Option<TableId>>,
    /// How far compaction is behind.
    pub(crate) control: Control,
    /// Bytes per second of compactions; 0 is no limit.
    pub(crate) compaction_rate: Cell<u64>,
    /// What is told of as large.
    pub(crate) large: Large,
    /// Flushed files are linked into `backups`.
    pub(crate) backups: Cell<bool>,
    /// Why writes are refused for lack of space.
    pub(crate) full_disk: FullDisk,
    /// Data directories that are out of service.
    pub(crate) gone_directories: RefCell<Vec<String>>,
    /// Segments of earlier runs are gone.
    pub(crate) old_log_released: Cell<bool>,
    /// Directories with SSTables of tables that were not in the schema at open.
    pub(crate) strangers: RefCell<Vec<String>>,
    /// Tables whose DROP is being carried out, once for each DROP.
    pub(crate) dropping: RefCell<Vec<TableId>>,
    /// Told of failures of the disk.
    on_failure: Hook<StoreFailure>,
    /// Told of finished compactions.
    pub(crate) on_compacted: Hook<CompactionRecord>,
    /// Told of damaged files.
    pub(crate) on_damage: Hook<DamageEvent>,
    /// Components that somebody found corrupt.
    pub(crate) suspects: RefCell<Vec<String>>,
    /// There are suspects, or something to do for damaged files.
    pub(crate) suspected: Notify,
    /// Uncompressed bytes of inputs of finished compactions, and the same as they were on disk.
    pub(crate) compacted_bytes: Cell<(u64, u64)>,
    /// How many are linking files into snapshots, see [`crate::lifecycle::snapshot`].
    pub(crate) linking: Cell<u32>,
    /// One of them has done it.
    pub(crate) linked: Notify,
    /// Finished compactions, also of tables that were dropped since.
    pub(crate) finished_compactions: Cell<u64>,
}

/// The tables of one shard. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Rc<Inner>,
}

/// Bytes of memtables beyond the budget that only tables of the node's metadata may use, per shard.
const METADATA_RESERVE_BYTES: usize = 4 << 20;

/// Whether the node shows its metadata in this table. Clients cannot write it.
fn shows_metadata(table: &Table) -> bool {
    &*table.keyspace == "system_schema"
        || (&*table.keyspace == "system" && matches!(&*table.name, "local" | "peers" | "peers_v2"))
}

impl Store {
    /// Opens this shard's slice of all tables and replays the commit log.
    ///
    /// # Errors
    /// `Corrupt` when a file or segment is damaged where it must not be; `Io`.
    pub async fn open(
        rt: Rt,
        options: StoreOptions,
        schema: Arc<Schema>,
    ) -> Result<(Store, ReplayReport), StoreError> {
        let log = CommitLog::open(&rt, options.log_options()).await?;
        let (both, rows) = (options.chunk_cache_bytes_max, options.row_cache_bytes_max);
        if rows > both as u64 / 2 {
            return Err(StoreError::Invalid(format!(
                "row_cache_size: {rows} bytes on each shard are more than half of the {both} that caches have \
                 there; make it smaller or \"memory\" larger"
            )));
        }
        let counters = options.counter_cache_bytes_max.unwrap_or(both as u64 / 16);
        if counters > both as u64 / 4 {
            return Err(StoreError::Invalid(format!(
                "counter_cache_size: {counters} bytes on each shard are more than a quarter of the {both} that \
                 caches have there; make it smaller or \"memory\" larger"
            )));
        }
        let others = usize::try_from(rows.saturating_add(counters)).unwrap_or(both);
        let chunks = both.saturating_sub(others);
        let cache = ChunkCache::new(chunks, &rt.telemetry());
        let row_cache = RowCache::new(rows, &rt.telemetry());
        let counter_cache = CounterCache::new(counters, &rt.telemetry());
        let inner = Inner {
            compaction_rate: Cell::new(options.compaction_bytes_per_second),
            control: Control::default(),
            large: Large::new(&rt.telemetry()),
            backups: Cell::new(options.incremental_backups),
            gate: rt.gate("store"),
            log,
            tables: RefCell::default(),
            memtable_bytes: Cell::new(0),
            refused: Cell::default(),
            refused_gauge: rt.telemetry().gauge(
                "memtable_unflushable_bytes",
                "memory of partitions that no SSTable can hold",
                &[],
            ),
            scratch: RefCell::default(),
            read_scratch: Cell::default(),
            stopping: Cell::new(false),
            drained: Cell::new(false),
            cursor_buffers: RefCell::default(),
            read_aheads: RefCell::default(),
            cache,
            row_cache,
            counter_cache,
            stages: Stages::new(&rt.telemetry()),
            live: LiveOptions::new(&options, rt.shard_count()),
            saving: Semaphore::new(1),
            room: Notify::new(),
            work: Notify::new(),
            stop: Notify::new(),
            flush_slot: Semaphore::new(1),
            slots: Slots::new(options.concurrent_compactors),
            compacted_last: Cell::default(),
            full_disk: FullDisk::default(),
            gone_directories: RefCell::default(),
            old_log_released: Cell::new(false),
            strangers: RefCell::default(),
            dropping: RefCell::default(),
            on_failure: RefCell::default(),
            on_compacted: RefCell::default(),
            on_damage: RefCell::default(),
            suspects: RefCell::default(),
            suspected: Notify::new(),
            compacted_bytes: Cell::default(),
            linking: Cell::default(),
            linked: Notify::new(),
            finished_compactions: Cell::default(),
            rt,
            options,
        };
        let store = Store { inner: Rc::new(inner) };
        if store.shard().0 == 0 {
            *store.inner.strangers.borrow_mut() = store.finish_drops(&schema).await?;
        }
        let opened = store.open_tables(&schema).await?;
        let mut report = store.replay().await?;
        report.removed_files = opened.removed;
        report.rebuilt_tocs = opened.rebuilt;
        report.moved_files = opened.moved;
        store.start_background();
        store.start_watch();
        store.start_row_cache();
        store.start_counter_cache();
        let ending = store.clone();
        store.inner.rt.at_end(move || {
            // They hold what holds this.
            drop(ending.inner.on_failure.take());
            drop(ending.inner.on_compacted.take());
            ending.inner.large.end();
            drop(ending.inner.on_damage.take());
            drop(ending.inner.full_disk.on_change.take());
        });
        Ok((store, report))
    }

    async fn open_tables(&self, schema: &Schema) -> Result<OpenedSets, StoreError> {
        self.make_data_directories().await?;
        let mut done = OpenedSets::default();
        for id in table_ids(schema) {
            let Some(table) = schema.table_by_id(id) else { continue };
            let (files, highest) = self.open_files(table, &mut done).await?;
            let state = Rc::new(TableState::new(table.clone()));
            state.generation.set(highest);
            state.has_directory.set(true);
            state.is_opened.set(true);
            state.set_view(TableView { files, ..TableView::empty() });
            self.open_marks(&state).await?;
            self.inner.tables.borrow_mut().insert(id, state);
        }
        Ok(done)
    }

    /// Takes a new schema over: new tables appear empty, changed ones get their new shape, dropped
    /// ones are closed and their files removed in the background (after a snapshot, if wanted).
    pub fn set_schema(&self, schema: Arc<Schema>) {
        let mut added = Vec::new();
        for id in table_ids(&schema) {
            let Some(table) = schema.table_by_id(id) else { continue };
            match self.table(id) {
                Some(state) => state.set_table(table),
                None => {
                    let state = Rc::new(TableState::new(table.clone()));
                    self.inner.tables.borrow_mut().insert(id, state.clone());
                    added.push(state);
                }
            }
        }
        for state in self.all_tables() {
            if schema.table_by_id(state.id).is_none() {
                self.inner.tables.borrow_mut().remove(&state.id);
                self.drop_table(state.clone());
                self.tell_large_events_of(&state);
            }
        }
        if added.is_empty() {
            return;
        }
        // The directories are made in the background; a flush that comes first makes its own.
        let store = self.clone();
        let task = async move {
            for state in added {
                let made = store.make_directory(&state).await;
                store.note_write_result(&made);
                if let Err(error) = made {
                    store.note_failure(&error);
                }
            }
        };
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "make-directories", task);
    }

    /// Makes a table's directory, durably, unless that was done before, and opens what it has.
    pub(crate) async fn make_directory(&self, table: &TableState) -> Result<(), StoreError> {
        self.open_found(table).await?;
        if table.has_directory.get() || table.dropped.get() {
            return Ok(());
        }
        let directory = self.directory_of(&table.version().table);
        self.inner.rt.fs().create_dir_durably(&directory).await?;
        table.has_directory.set(true);
        Ok(())
    }

    /// All tables, in order of id.
    pub(crate) fn all_tables(&self) -> Vec<Rc<TableState>> {
        let tables = self.inner.tables.borrow();
        let mut all: Vec<Rc<TableState>> = tables.values().cloned().collect();
        all.sort_unstable_by_key(|t| t.id);
        all
    }

    /// Changes what compactions of this shard may write from now on, also those that run: bytes per
    /// second; 0 is no limit.
    pub fn set_compaction_throughput(&self, bytes_per_second: u64) {
        self.inner.compaction_rate.set(bytes_per_second);
    }

    /// Bytes per second that compactions of this shard may write; 0 is no limit.
    pub fn compaction_throughput(&self) -> u64 {
        self.inner.compaction_rate.get()
    }

    /// Directories that hold SSTables of tables which are not in the schema and were not dropped by
    /// it. Found when the first shard was opened, and left alone; empty on the other shards.
    pub fn directories_of_unknown_tables(&self) -> Vec<String> {
        self.inner.strangers.borrow().clone()
    }

    /// Sleeps, but not beyond the stop of the store, nor when it stops already.
    pub(crate) async fn pause(&self, duration: Duration) {
        self.pause_until(self.inner.rt.now() + duration).await;
    }

    /// The same until then.
    pub(crate) async fn pause_until(&self, due: Instant) {
        // Nobody waits for a stop that has begun: its notification is gone.
        if !self.inner.stopping.get() {
            // Elapsed: the pause is over.
            let _ = self.inner.rt.timeout(due, self.inner.stop.notified()).await;
        }
    }

    pub(crate) fn table(&self, id: TableId) -> Option<Rc<TableState>> {
        self.inner.tables.borrow().get(&id).cloned()
    }

    /// Appends a mutation to the commit log's buffer (`durable`; false for keyspaces without
    /// durable writes) and applies it to the memtable. Answer the client after
    /// [`Store::commit`] only. The mutation must be one this process encoded, or a parsed one.
    ///
    /// # Errors
    /// `UnknownTable`, `MutationTooLarge`, `Unwritable`, `Unflushable`, `LogFailed`, `Stopping`; nothing was applied
    /// then.
    pub fn apply(&self, mutation: &MutationRef<'_>, durable: bool) -> Result<(), StoreError> {
        if self.inner.stopping.get() || self.inner.drained.get() {
            return Err(StoreError::Stopping);
        }
        let began = self.inner.rt.now();
        let Some(table) = self.table(mutation.table) else {
            return Err(StoreError::UnknownTable(mutation.table));
        };
        let (bytes, max) = (mutation.bytes().len(), self.inner.options.mutation_bytes_max);
        if bytes > max {
            return Err(too_large(&table.version().table, mutation.key, bytes, max));
        }
        self.check_writable(&table, mutation)?;
        if table.refused_bytes.get() > 0 {
            self.admit_to_refused(&table, mutation)?;
        }
        let position = if durable {
            let version = table.version.borrow();
            match self.inner.log.append(&version.ticket, mutation.bytes()) {
                Ok(position) => Some(position),
                Err(LogError::TooLarge { bytes, max }) => {
                    return Err(too_large(&version.table, mutation.key, bytes, max));
                }
                Err(error) => return Err(error.into()),
            }
        } else {
            if table.refuses_unlogged.get() {
                return Err(StoreError::LogFailed("a truncation could not be logged".to_owned()));
            }
            None
        };
        let token = codec::token_of(mutation.key);
        self.apply_to_memtable(&table, mutation, token, position);
        bump(&table.counters.writes, 1);
        self.inner.stages.mutation.completed();
        let now = self.inner.rt.now();
        table.counters.note_write(now.since(began));
        if table.counters.sampling.is_on() {
            table.counters.sampling.note_write(now, mutation.key, bytes);
        }
        Ok(())
    }

    /// Limits of this node's SSTable formats, beyond those of the column types.
    pub fn write_limits(&self) -> WriteLimits {
        // The sign bit marks what is not deleted.
        WriteLimits { negative_deletions: !self.inner.options.sstable_version.has_uint_times() }
    }

    /// Checks a mutation before it is applied, or sent to replicas.
    ///
    /// # Errors
    /// `Unwritable`.
    #[inline]
    pub fn check(&self, mutation: &MutationRef<'_>) -> Result<(), StoreError> {
        match data::writable::check(mutation, self.write_limits()) {
            Ok(()) => Ok(()),
            Err(error) => {
                let table = self.table(mutation.table);
                let table = table.map(|table| table.version().table.clone());
                Err(unwritable(&error, table.as_deref(), mutation))
            }
        }
    }

    #[inline]
    pub(crate) fn check_writable(
        &self,
        table: &TableState,
        mutation: &MutationRef<'_>,
    ) -> Result<(), StoreError> {
        data::writable::check(mutation, self.write_limits())
            .map_err(|error| unwritable(&error, Some(&table.version().table), mutation))
    }

    pub(crate) fn apply_to_memtable(
        &self,
        table: &TableState,
        mutation: &MutationRef<'_>,
        token: Token,
        position: Option<LogPosition>,
    ) {
        let mut scratch = self.inner.scratch.borrow_mut();
        let version = table.version.borrow();
        if version.shape.has_counters() {
            self.inner.counter_cache.note(table, token, mutation);
        }
        let view = table.view.borrow();
        let delta = view.active.apply(&version.shape, token, mutation, position, &mut scratch);
        let bytes = self.inner.memtable_bytes.get().saturating_add_signed(delta);
        self.inner.memtable_bytes.set(bytes);
        if self.wants_flush() {
            self.inner.work.notify_one();
        }
    }

    /// Everything applied so far is handed to the kernel by one write, in batch and group mode also
    /// synced. Does not suspend in periodic mode.
    ///
    /// # Errors
    /// `DiskFull`: the writes are in memory and in the log's buffer, which is written when space
    /// returns; the client is told that its write failed. `LogFailed`.
    pub async fn commit(&self) -> Result<(), StoreError> {
        let _waiting = self.inner.stages.mutation.hold();
        match self.inner.log.commit().await {
            Ok(()) => Ok(()),
            Err(error) => {
                let error = StoreError::from(error);
                self.inner.full_disk.note_refusal(&error);
                self.note_failure(&error);
                Err(error)
            }
        }
    }

    /// Everything applied so far is on the disk afterwards, whatever `commitlog_sync` says. For what
    /// other nodes rely on, such as Paxos promises.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub async fn sync(&self) -> Result<(), StoreError> {
        match self.inner.log.sync().await {
            Ok(()) => Ok(()),
            Err(error) => {
                let error = StoreError::from(error);
                self.inner.full_disk.note_refusal(&error);
                self.note_failure(&error);
                Err(error)
            }
        }
    }

    /// Says that this error was met, to whoever decides what becomes of the node.
    #[cold]
    pub fn note_failure(&self, error: &StoreError) {
        if let StoreError::Corrupt { file, .. } = error {
            self.suspect(file);
        }
        let failure = match error {
            StoreError::LogFailed(what) => StoreFailure::CommitLog(what.clone()),
            StoreError::Corrupt { .. } => StoreFailure::Corrupt(error.to_string()),
            StoreError::Io(what) => match self.failure_of(what) {
                Some(failure) => failure,
                None => return,
            },
            _ => return,
        };
        self.tell_failure(failure);
    }

    pub(crate) fn tell_failure(&self, failure: StoreFailure) {
        let hook = self.inner.on_failure.borrow().clone();
        if let Some(hook) = hook {
            hook(failure);
        }
    }

    /// Calls `hook` whenever the commit log fails or a data file cannot be used.
    pub fn on_failure(&self, hook: impl Fn(StoreFailure) + 'static) {
        *self.inner.on_failure.borrow_mut() = Some(Rc::new(hook));
    }

    /// Calls `hook` when writes begin to be refused for lack of space, and when they are accepted again.
    pub fn on_disk_space(&self, hook: impl Fn(DiskSpaceChange) + 'static) {
        *self.inner.full_disk.on_change.borrow_mut() = Some(Rc::new(hook));
    }

    /// Calls `hook` after every compaction that was finished.
    pub fn on_compacted(&self, hook: impl Fn(CompactionRecord) + 'static) {
        *self.inner.on_compacted.borrow_mut() = Some(Rc::new(hook));
    }

    /// To be asked before a write is begun.
    ///
    /// # Errors
    /// `Overloaded`: over the memtable budget, [`Store::wait_for_room`] may help. `DiskFull`,
    /// `LogFailed`, `Stopping`.
    pub fn admit_write(&self) -> Result<(), StoreError> {
        if self.inner.stopping.get() || self.inner.drained.get() {
            return Err(StoreError::Stopping);
        }
        if let Some(error) = self.inner.log.failure() {
            return Err(error.into());
        }
        let space = match self.inner.log.disk_full() {
            Some(error) => Err(error.into()),
            None => self.inner.full_disk.check(),
        };
        if let Err(error) = space {
            self.inner.full_disk.note_refusal(&error);
            return Err(error);
        }
        let (used, limit) = self.flushable_bytes();
        if used > limit {
            return Err(StoreError::Overloaded { used, limit });
        }
        Ok(())
    }

    /// As [`Store::admit_write`], of a write of one table. The tables in which the node shows its metadata have a
    /// reserve beyond the memtables' budget, and are written in memory while the disk is full: what the metadata
    /// log has decided is shown whatever clients write.
    ///
    /// # Errors
    /// As [`Store::admit_write`].
    pub fn admit_write_of(&self, id: TableId) -> Result<(), StoreError> {
        let refused = match self.admit_write() {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let shows_metadata =
            || self.table(id).is_some_and(|table| shows_metadata(&table.version().table));
        match refused {
            StoreError::Overloaded { used, limit }
                if used <= limit.saturating_add(METADATA_RESERVE_BYTES) && shows_metadata() =>
            {
                Ok(())
            }
            StoreError::DiskFull { .. } if shows_metadata() => Ok(()),
            refused => Err(refused),
        }
    }

    /// Waits until memtables are within their budget, at most `room_wait_max`.
    ///
    /// # Errors
    /// As [`Store::admit_write`].
    pub async fn wait_for_room(&self) -> Result<(), StoreError> {
        let deadline = self.inner.rt.now() + self.inner.options.room_wait_max;
        let mut blocked = None;
        loop {
            match self.admit_write() {
                Err(StoreError::Overloaded { used, limit }) => {
                    blocked.get_or_insert_with(|| self.inner.stages.mutation.block());
                    let freed = self.inner.room.notified();
                    if self.inner.rt.timeout(deadline, freed).await.is_err() {
                        return Err(StoreError::Overloaded { used, limit });
                    }
                }
                other => return other,
            }
        }
    }

    /// Refuses new writes from now on and flushes everything, so that the next start replays nothing
    /// and Cassandra can open the files. Reads go on.
    ///
    /// # Errors
    /// As [`Store::flush`]; what was not written stays in the commit log.
    pub async fn drain(&self) -> Result<(), StoreError> {
        self.inner.drained.set(true);
        let flushed = self.flush(None).await;
        if !matches!(flushed, Err(StoreError::Unwritable { .. })) {
            flushed.clone()?;
        }
        self.inner.log.sync().await?;
        let unflushed = self.all_tables().iter().any(|t| t.first_unflushed().is_some());
        if !unflushed && self.inner.old_log_released.get() {
            self.inner.log.release_all().await?;
            self.tell_archive_failure();
        }
        flushed
    }

    /// Refuses new writes, ends background work and syncs the log. Does not flush.
    pub async fn stop(&self) {
        self.inner.stopping.set(true);
        self.inner.work.notify_waiters();
        self.inner.stop.notify_waiters();
        self.inner.suspected.notify_waiters();
        self.inner.large.waits.notify_waiters();
        self.inner.slots.changed.notify_waiters();
        self.inner.room.notify_waiters();
        self.save_rows().await;
        self.save_counters().await;
        self.inner.gate.close().await;
        // A failure was reported to every commit that it concerned.
        let _ = self.inner.log.close().await;
    }

    /// Numbers of a table; zeros for unknown ones.
    pub fn table_stats(&self, id: TableId) -> TableStats {
        let Some(table) = self.table(id) else { return TableStats::default() };
        let view = table.view();
        let counters = &table.counters;
        let of_files = |of: fn(&TableFile) -> u64| view.files.iter().map(|f| of(f)).sum::<u64>();
        let (mut partition_sizes, mut cell_counts) = (Vec::new(), Vec::new());
        let mut levels: Vec<(u64, u64)> = Vec::new();
        for file in &view.files {
            let stats = &file.reader.meta().statistics().stats;
            let level = usize::try_from(stats.level).unwrap_or(0);
            if levels.len() <= level {
                levels.resize(level + 1, (0, 0));
            }
            if let Some((files, bytes)) = levels.get_mut(level) {
                *files += 1;
                *bytes = bytes.saturating_add(file.reader.meta().data_file_length());
            }
            add_filled(&mut partition_sizes, &stats.partition_sizes.buckets);
            add_filled(&mut cell_counts, &stats.cells_per_partition.buckets);
        }
        let spans = view.files.iter().map(|file| {
            let stats = &file.reader.meta().statistics().stats;
            let span = stats.max_timestamp.0.saturating_sub(stats.min_timestamp.0);
            u64::try_from(span).unwrap_or(0)
        });
        let own = self.directory_of(&table.version().table);
        let metas = || view.files.iter().map(|f| f.reader.meta());
        let compressed = metas().filter(|meta| meta.compression().is_some());
        let compressed_bytes = compressed.fold((0, 0), |(disk, length): (u64, u64), meta| {
            (disk + meta.data_file_length(), length + meta.data_length())
        });
        let gc_before = table.gc_before(self.inner.rt.wall().seconds());
        let droppable: f64 =
            metas().map(|meta| meta.statistics().stats.tombstones.sum(gc_before.0)).sum();
        let cells = metas().map(|meta| u64::try_from(meta.statistics().stats.total_columns_set));
        TableStats {
            filter_bytes: of_files(|f| f.reader.meta().filter_bytes() as u64),
            filter_file_bytes: of_files(|f| f.reader.meta().filter_file_length() as u64),
            summary_bytes: of_files(|f| f.reader.meta().summary_bytes() as u64),
            offsets_bytes: of_files(|f| f.reader.meta().offsets_bytes() as u64),
            compressed_bytes,
            old_sstables: metas()
                .filter(|meta| meta.version() != self.inner.options.sstable_version)
                .count() as u64,
            misplaced_sstables: view.files.iter().filter(|f| !self.is_placed(&own, f)).count()
                as u64,
            pending_flushes: view.flushing.len() as u64,
            filter_misses: table.filter_misses(),
            sstables_read: counters.sstables_read.get(),
            // Not negative, and no more than there are cells.
            droppable_cells: (droppable as u64, cells.map(|n| n.unwrap_or(0)).sum()),
            sstable_bytes_max: view
                .files
                .iter()
                .map(|f| f.reader.meta().disk_bytes())
                .max()
                .unwrap_or(0),
            sstable_span_micros_max: spans.max().unwrap_or(0),
            levels,
            read_latency: counters.read_latency.snapshot(),
            write_latency: counters.write_latency.snapshot(),
            sstables_per_read: counters.sstables_per_read.snapshot(),
            scan_latency: counters.scan_latency.snapshot(),
            rows_per_read: counters.rows_per_read.snapshot(),
            tombstones_per_read: counters.tombstones_per_read.snapshot(),
            partition_sizes,
            cell_counts,
            memtable_bytes: view.memtables().map(|m| m.bytes() as u64).sum(),
            unflushable_bytes: table.refused_bytes.get() as u64,
            memtable_partitions: view.memtables().map(|m| m.partition_count() as u64).sum(),
            memtable_mutations: view.memtables().map(|m| m.mutation_count()).sum(),
            flushes: counters.flushes.get(),
            compactions: counters.compactions.get(),
            reads: counters.reads.get(),
            writes: counters.writes.get(),
            tombstones_scanned: counters.tombstones.get(),
            pending_compactions: self.pending_compactions(&table),
            sstables: view.files.len() as u64,
            disk_bytes: of_files(|f| f.reader.meta().disk_bytes()),
            uncompressed_bytes: of_files(|f| f.reader.meta().data_length()),
            repaired_bytes: of_files(|f| crate::tables::repair_views::repaired_bytes(f).0),
            pending_repair_bytes: of_files(|f| crate::tables::repair_views::repaired_bytes(f).1),
            partitions_estimate: of_files(|f| f.reader.meta().estimated_partitions()),
            metadata_bytes: of_files(|f| f.reader.meta().memory_bytes() as u64),
        }
    }

    /// Accounted bytes of memtables and of the chunk cache.
    pub fn memory_bytes(&self) -> (usize, u64) {
        (self.inner.memtable_bytes.get(), self.inner.cache.bytes())
    }
}

#[cold]
fn unwritable(error: &Unwritable, table: Option<&Table>, mutation: &MutationRef<'_>) -> StoreError {
    let long = |prefix: &&[u8]| data::writable::check_prefix(prefix).is_err();
    let rows = mutation.rows().map(|(clustering, _)| clustering);
    let bounds = mutation.range_tombstones().flat_map(|t| [t.start.prefix, t.end.prefix]);
    let clustering = rows.chain(bounds).find(long);
    let place = match table {
        Some(table) => place_of(table, mutation.key, clustering),
        None => mutation.table.to_string(),
    };
    StoreError::Unwritable { what: error.to_string(), place }
}

#[cold]
fn too_large(table: &Table, key: &[u8], bytes: usize, max: usize) -> StoreError {
    let types = table.columns.iter().take(table.partition_key_count).map(|c| &c.ty);
    let parts: Vec<&[u8]> = match table.partition_key_count {
        1 => vec![key],
        _ => composite_parts(key),
    };
    let texts: Vec<String> = types.zip(parts).map(|(ty, part)| ty.format_plain(part)).collect();
    StoreError::MutationTooLarge {
        bytes,
        max,
        keyspace: table.keyspace.to_string(),
        table: table.name.to_string(),
        key: texts.join(":"),
    }
}

/// Adds the buckets of a histogram up to its last one that is not empty.
fn add_filled(all: &mut Vec<u64>, buckets: &[u64]) {
    let used = buckets.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
    telemetry::add_buckets(all, buckets.get(..used).unwrap_or_default());
}

/// Stored tables, in order of id.
fn table_ids(schema: &Schema) -> Vec<TableId> {
    let stored = schema.tables_by_id.iter().filter(|(_, t)| t.kind != TableKind::Virtual);
    let mut ids: Vec<TableId> = stored.map(|(id, _)| *id).collect();
    ids.sort_unstable();
    ids
}
