//! The store: opening, writes, schema, budgets.

mod background;
pub(crate) mod index_stats;
mod schema;
mod table_stats;

use std::rc::Rc;
use std::sync::Arc;

use ::schema::Schema;
use commitlog::CommitLog;
use data::MutationRef;
use data::command::ReadCommand;
use rt::Rt;
use stdx::TableId;

use crate::compact::Compactor;
use crate::damage::Verifier;
use crate::env::Env;
use crate::error::StoreError;
use crate::files::Files;
use crate::files::chunk_cache::ChunkCache;
use crate::lifecycle::Lifecycle;
use crate::observe::Observer;
use crate::options::StoreOptions;
use crate::read::Reader;
use crate::read::counter_cache::{CounterCache, Counters};
use crate::read::driver::RowSink;
use crate::read::row_cache::RowCache;
use crate::repair::Repair;
use crate::replay::{Replay, ReplayReport};
use crate::tables::read_stats::ReadStats;
use crate::tables::registry::Tables;
use crate::transfer::Transfer;
use crate::write::Writer;

/// The rooms of a store, lower ones first.
pub(crate) struct Rooms {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) files: Rc<Files>,
    pub(crate) observer: Rc<Observer>,
    pub(crate) reader: Rc<Reader>,
    pub(crate) counters: Rc<Counters>,
    pub(crate) writer: Rc<Writer>,
    pub(crate) lifecycle: Rc<Lifecycle>,
    pub(crate) compactor: Rc<Compactor>,
    pub(crate) repair: Rc<Repair>,
    pub(crate) transfer: Rc<Transfer>,
    pub(crate) verifier: Rc<Verifier>,
}

/// Bytes of the caches of a shard.
struct CacheSizes {
    chunks: usize,
    rows: u64,
    counters: u64,
}

impl CacheSizes {
    /// Divides the options' budget among the caches.
    fn of(options: &StoreOptions) -> Result<CacheSizes, StoreError> {
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
        Ok(CacheSizes { chunks: both.saturating_sub(others), rows, counters })
    }
}

impl Rooms {
    /// Builds the rooms from the bottom up.
    fn build(rt: Rt, options: StoreOptions, log: CommitLog, sizes: &CacheSizes) -> Rooms {
        let telemetry = rt.telemetry();
        let cache = ChunkCache::new(sizes.chunks, &telemetry);
        let row_cache = RowCache::new(sizes.rows, &telemetry);
        let counter_cache = CounterCache::new(sizes.counters, &telemetry);
        let env = Rc::new(Env::new(rt, options, log));
        let tables = Rc::new(Tables::default());
        let files = Rc::new(Files::new(env.clone(), tables.clone(), cache));
        let observer = Rc::new(Observer::new(env.clone(), tables.clone(), files.clone()));
        let (e, t, f) = (env.clone(), tables.clone(), files.clone());
        let reader = Rc::new(Reader::new(e, t, f, row_cache, Rc::new(counter_cache)));
        let counters = Rc::new(Counters::new(env.clone(), tables.clone(), reader.clone()));
        let (e, t, f) = (env.clone(), tables.clone(), files.clone());
        let writer = Rc::new(Writer::new(e, t, f, observer.clone(), reader.clone()));
        let lifecycle = Rc::new(Lifecycle::new(writer.clone()));
        let compactor = Rc::new(Compactor::new(lifecycle.clone()));
        let repair = Rc::new(Repair::new(compactor.clone()));
        Rooms {
            transfer: Rc::new(Transfer::new(writer.clone())),
            verifier: Rc::new(Verifier::new(repair.clone())),
            repair,
            env,
            tables,
            files,
            observer,
            reader,
            counters,
            writer,
            lifecycle,
            compactor,
        }
    }
}

/// The tables of one shard. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) rooms: Rc<Rooms>,
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
        let sizes = CacheSizes::of(&options)?;
        let store = Store { rooms: Rc::new(Rooms::build(rt, options, log, &sizes)) };
        if store.rooms.env.shard().0 == 0 {
            *store.rooms.tables.strangers.borrow_mut() =
                store.rooms.lifecycle.finish_drops(&schema).await?;
        }
        let opened = store.open_tables(&schema).await?;
        let mut report = Replay::new(store.rooms.lifecycle.clone()).replay().await?;
        report.removed_files = opened.removed;
        report.rebuilt_tocs = opened.rebuilt;
        report.moved_files = opened.moved;
        report.damaged_marks = opened.bad_marks;
        store.start_background();
        store.rooms.verifier.start_watch();
        store.rooms.reader.start_row_cache();
        store.rooms.counters.start_counter_cache();
        let ending = store.clone();
        store.rooms.env.rt.at_end(move || {
            // Breaks the reference cycles: callbacks hold the store.
            ending.rooms.env.release_hooks();
            ending.rooms.compactor.release_hooks();
            ending.rooms.observer.large.end();
            ending.rooms.files.release_hooks();
        });
        Ok((store, report))
    }

    /// Makes the list of this run's commit-log segments, when the start is accepted and
    /// [`commitlog::LogDirectory::claim`] was called, before the first write.
    ///
    /// # Errors
    /// `Io`: the list cannot be written.
    pub async fn begin_log(&self) -> Result<(), StoreError> {
        Ok(self.rooms.env.log.begin().await?)
    }

    /// Refuses new writes from now on and flushes everything, so that the next start replays
    /// nothing and Cassandra can open the files. Reads continue.
    ///
    /// # Errors
    /// Those of [`Store::flush`]; unwritten data stays in the commit log.
    pub async fn drain(&self) -> Result<(), StoreError> {
        self.rooms.env.drained.set(true);
        let flushed = self.rooms.writer.flush(None).await;
        if !matches!(flushed, Err(StoreError::Unwritable { .. })) {
            flushed.clone()?;
        }
        self.rooms.env.log.sync().await?;
        let unflushed =
            self.rooms.tables.all_tables().iter().any(|t| t.first_unflushed().is_some());
        if !unflushed && self.rooms.writer.old_log_released.get() {
            self.rooms.env.log.release_all().await?;
            self.rooms.writer.tell_archive_failure();
        }
        flushed
    }

    /// Refuses new writes, ends background work and syncs the log. Does not flush.
    pub async fn stop(&self) {
        self.rooms.env.begin_stop();
        self.rooms.observer.large.waits.notify_waiters();
        self.rooms.files.slots.changed.notify_waiters();
        self.rooms.writer.room.notify_waiters();
        self.rooms.reader.save_rows().await;
        self.rooms.counters.save_counters().await;
        self.rooms.env.gate.close().await;
        // A failure was reported to every commit that it concerned.
        let _ = self.rooms.env.log.close().await;
    }

    /// Accounted bytes of memtables and of the chunk cache.
    pub fn memory_bytes(&self) -> (usize, u64) {
        (self.rooms.writer.memtable_bytes.get(), self.rooms.files.cache.bytes())
    }
}

impl Store {
    /// Returns the runtime, settings that change, failure callbacks.
    #[inline]
    pub fn env(&self) -> &Rc<Env> {
        &self.rooms.env
    }

    /// Returns the tables by id.
    #[inline]
    pub fn tables(&self) -> &Rc<Tables> {
        &self.rooms.tables
    }

    /// Returns the SSTables: directories, slots of compaction, links.
    #[inline]
    pub fn files(&self) -> &Rc<Files> {
        &self.rooms.files
    }

    /// Returns the reports: samples, large partitions.
    #[inline]
    pub fn observer(&self) -> &Rc<Observer> {
        &self.rooms.observer
    }

    /// Returns the reads of replicas and the row cache.
    #[inline]
    pub fn reader(&self) -> &Rc<Reader> {
        &self.rooms.reader
    }

    /// Returns the counters of this node.
    #[inline]
    pub fn counters(&self) -> &Rc<Counters> {
        &self.rooms.counters
    }

    /// Returns the admission of writes.
    #[inline]
    pub fn writer(&self) -> &Rc<Writer> {
        &self.rooms.writer
    }

    /// Returns snapshots, truncations and drops.
    #[inline]
    pub fn lifecycle(&self) -> &Rc<Lifecycle> {
        &self.rooms.lifecycle
    }

    /// Returns the compactions.
    #[inline]
    pub fn compactor(&self) -> &Rc<Compactor> {
        &self.rooms.compactor
    }

    /// Returns the repair state of files.
    #[inline]
    pub fn repair(&self) -> &Rc<Repair> {
        &self.rooms.repair
    }

    /// Returns the room that receives and sends files.
    #[inline]
    pub fn transfer(&self) -> &Rc<Transfer> {
        &self.rooms.transfer
    }

    /// Returns verification and damaged files.
    #[inline]
    pub fn verifier(&self) -> &Rc<Verifier> {
        &self.rooms.verifier
    }

    /// Appends a mutation to the commit log's buffer (`durable`; false for keyspaces without
    /// durable writes) and applies it to the memtable. Answer the client after
    /// [`Store::commit`] only. The mutation must be one this process encoded, or a parsed one.
    ///
    /// # Errors
    /// `UnknownTable`, `MutationTooLarge`, `Unwritable`, `Unflushable`, `LogFailed`, `Stopping`; nothing was applied
    /// then.
    #[inline]
    pub fn apply(&self, mutation: &MutationRef<'_>, durable: bool) -> Result<(), StoreError> {
        self.rooms.writer.apply(mutation, durable)
    }

    /// Checks a mutation before it is applied, or sent to replicas.
    ///
    /// # Errors
    /// `Unwritable`.
    #[inline]
    pub fn check(&self, mutation: &MutationRef<'_>) -> Result<(), StoreError> {
        self.rooms.writer.check(mutation)
    }

    /// Hands everything applied so far to the kernel: see [`Writer::commit`].
    ///
    /// # Errors
    /// Those of [`Writer::commit`].
    #[inline]
    pub fn commit(&self) -> impl Future<Output = Result<(), StoreError>> {
        self.rooms.writer.commit()
    }

    /// Makes everything applied so far durable, whatever `commitlog_sync` is.
    ///
    /// # Errors
    /// Those of [`Writer::commit`].
    #[inline]
    pub fn sync(&self) -> impl Future<Output = Result<(), StoreError>> {
        self.rooms.writer.sync()
    }

    /// Reads partitions into a sink: see [`Reader::read`].
    ///
    /// # Errors
    /// Those of [`Reader::read`].
    #[inline]
    pub fn read<S: RowSink>(
        &self,
        command: &ReadCommand,
        sink: &mut S,
    ) -> impl Future<Output = Result<ReadStats, StoreError>> {
        self.rooms.reader.read(command, sink)
    }

    /// Writes memtables to SSTables: see [`Writer::flush`].
    ///
    /// # Errors
    /// Those of [`Writer::flush`].
    pub async fn flush(&self, tables: Option<&[TableId]>) -> Result<(), StoreError> {
        self.rooms.writer.flush(tables).await
    }

    /// Reports a disk error to the failure policy of the node.
    #[cold]
    pub fn note_failure(&self, error: &StoreError) {
        self.rooms.files.note_failure(error);
    }
}
