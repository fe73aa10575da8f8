//! Compaction of one table's files: plans come from `compact-plan`, the order of steps from
//! [`crate::files::table_files`], what may run beside each other from [`crate::files::slots`]. In its own scheduling group,
//! throttled.
//!
//! A compaction whose plan may be taken apart runs its parts one after another, each with all of its
//! steps: when one ends its inputs are gone.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use compact_plan::cluster_key::SHARED_LEVEL;
use compact_plan::{
    CompactionOptions, Plan, Reason, SstableInfo, Strategy, TableState as PlanState, Windows,
};
use data::command::KeyRange;
use data::{GcBefore, MergeCursor, MergeMode, Slices};
use rt::Group;
use schema::Table;
use sst_format::header::EncodingStats;
use sstable::SEQUENTIAL_BYTES;
use stdx::{DeletionSeconds, Generation, TableId, TimestampMicros, Uuid, WallMicros};

use crate::compact::cleanup::OwnedRanges;
use crate::compact::garbage_collect::Shadowing;
use crate::compact::outputs::Outputs;
use crate::compact::row_copy::write_merged;
use crate::compact::{Compactor, garbage_collect};
use crate::error::StoreError;
use crate::files::slots::{Claim, CompactionProgress, Progress};
use crate::files::table_files::Transaction;
use crate::memtable::Memtable;
use crate::read::sources::{FileSource, Source};
use crate::tables::estimates::partitions_together;
use crate::tables::retry_backoff::Failures;
use crate::tables::table::{TableState, TableVersion, TableView, bump};
use crate::tables::table_file::TableFile;
use crate::write::flush::REQUEST_BYTES;

/// Pause after a failed background compaction of a table.
const PAUSE: Duration = Duration::from_secs(60);
/// The same after many.
const PAUSE_MAX: Duration = Duration::from_secs(3_600);
/// Limit of rounds before a major compaction: each takes windows out of a file that has many, so
/// this is far more than a table needs.
const BEFORE_MAJOR_MAX: usize = 10_000;

/// Limit of concurrent requests of a compaction for a file, each of 256 KiB. They are submitted to
/// the device together, which shares much of their cost.
const REQUESTS_TOGETHER_MAX: usize = 4;
/// Requests of all files of a compaction, unless there are more files than that: 8 MiB at least.
const BUFFERS_MIN: usize = 32;
/// Divisor of the memory for chunks: this part is for the requests of all compactions that may run
/// at once.
const BUFFERS_PART: usize = 8;

/// A compaction that would begin now, for `nodetool compactionplan`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCompaction {
    /// Its inputs and the bytes of their data on disk, by generation.
    pub inputs: Vec<(Generation, u64)>,
    /// Inputs that are dropped without being read.
    pub expired: usize,
    /// Level of the outputs.
    pub level: u32,
    /// The reason.
    pub reason: String,
}

/// A finished compaction, for `system.compaction_history`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionRecord {
    /// Keyspace name.
    pub keyspace: String,
    /// Table name.
    pub name: String,
    /// When it ended.
    pub at: WallMicros,
    /// Bytes of the inputs' data as they were on disk.
    pub bytes_in: u64,
    /// Bytes of the output's data on disk.
    pub bytes_out: u64,
    /// Number of partitions merged from each number of inputs, ascending.
    pub merged: Vec<(u32, u64)>,
    /// Kind in Cassandra's words: `Compaction`, `Major compaction`, `Tombstone Compaction`,
    /// `Cleanup`, `Remove deleted data`, `Secondary index build`.
    pub kind: &'static str,
}

fn kind_of(reason: &Reason) -> &'static str {
    match reason {
        Reason::Major => "Major compaction",
        Reason::Tombstones { .. } => "Tombstone Compaction",
        Reason::Cleanup => "Cleanup",
        Reason::Upgrade => "Upgrade sstables",
        Reason::IndexBuild => "Secondary index build",
        Reason::Relocation => "Relocate sstables to correct disk",
        Reason::Anticompaction => "Anticompaction after repair",
        Reason::Garbage(_) => "Remove deleted data",
        _ => "Compaction",
    }
}

/// Selection of the data that a merge emits from its sources.
pub(crate) struct MergeShown<'a> {
    pub(crate) mode: MergeMode,
    /// Partitions outside of these are left out.
    pub(crate) owned: Option<&'a OwnedRanges>,
}

/// Progress and counts of a compaction's merge.
pub(crate) struct MergeNotes<'a> {
    pub(crate) progress: &'a Progress,
    pub(crate) counts: &'a mut MergeCounts,
}

/// Partitions by the number of inputs that they were merged from.
#[derive(Debug, Default)]
pub(crate) struct MergeCounts(Vec<u64>);

impl MergeCounts {
    pub(crate) fn add(&mut self, inputs: usize) {
        if self.0.len() <= inputs {
            self.0.resize(inputs + 1, 0);
        }
        if let Some(count) = self.0.get_mut(inputs) {
            *count += 1;
        }
    }

    fn merge(&mut self, other: &MergeCounts) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum += more;
        }
    }

    fn filled(&self) -> Vec<(u32, u64)> {
        (0..).zip(&self.0).filter(|(_, n)| **n > 0).map(|(inputs, n)| (inputs, *n)).collect()
    }
}

pub(crate) fn info_of(file: &TableFile, gc_before: DeletionSeconds) -> SstableInfo {
    let meta = file.reader.meta();
    let stats = &meta.statistics().stats;
    let columns = stats.total_columns_set.max(1) as f64;
    SstableInfo {
        generation: file.generation,
        size_bytes: meta.data_file_length(),
        level: u32::try_from(stats.level).unwrap_or(0),
        min_timestamp: stats.min_timestamp,
        max_timestamp: stats.max_timestamp,
        max_local_deletion_time: stats.max_local_deletion,
        droppable_tombstone_ratio: stats.tombstones.sum(gc_before.0) / columns,
        first_token: meta.first_token(),
        last_token: meta.last_token(),
        repaired_at: stats.repaired_at,
        pending_repair: stats.pending_repair,
        run: meta.run(),
        windows: None,
        created_at: file.written_at,
        hotness: 0.0,
    }
}

/// The first and the last window that a file has rows or range deletions of; `None`: not known.
fn windows_of(file: &TableFile, windows: Windows) -> Option<(i64, i64)> {
    let stats = &file.reader.meta().statistics().stats;
    let window = |bound: &[Vec<u8>]| Some(windows.window_of(windows.value(bound.first()?)?));
    let (low, high) = (window(&stats.min_clustering)?, window(&stats.max_clustering)?);
    // In the order of the table, which may descend.
    Some((low.min(high), low.max(high)))
}

/// Returns true if a file holds no data of any window: of a file with one window, deletions of
/// partitions may be the only remains.
fn is_in_no_window(file: &TableFile) -> bool {
    let stats = &file.reader.meta().statistics().stats;
    stats.total_rows == 0 && stats.min_clustering.is_empty() && stats.max_clustering.is_empty()
}

pub(crate) fn options_of(version: &TableVersion) -> Result<&CompactionOptions, StoreError> {
    version.compaction.as_ref().map_err(|why| StoreError::Invalid(why.clone()))
}

/// Input of the planner.
pub(crate) struct Infos {
    /// Files that may be compacted.
    pub(crate) infos: Vec<SstableInfo>,
    /// Inputs of compactions that run.
    claimed: Vec<SstableInfo>,
    memtable_min_timestamp: Option<TimestampMicros>,
    gc_before: DeletionSeconds,
    now: WallMicros,
    flush_bytes: Option<u64>,
}

impl Infos {
    pub(crate) fn state(&self) -> PlanState<'_> {
        PlanState {
            candidates: &self.infos,
            others: &self.claimed,
            memtable_min_timestamp: self.memtable_min_timestamp,
            gc_before: self.gc_before,
            now: self.now,
            flush_bytes: self.flush_bytes,
        }
    }
}

impl Infos {
    /// Bytes of a file's data on disk.
    pub(crate) fn bytes_of(&self, generation: Generation) -> u64 {
        let info = self.infos.iter().find(|info| info.generation == generation);
        info.map_or(0, |info| info.size_bytes)
    }
}

/// Work of one compaction.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) options: &'a CompactionOptions,
    /// Partitions of other tokens are left out. `None`: all stay.
    pub(crate) owned: Option<&'a OwnedRanges>,
}

/// Statistics of a compaction so far.
#[derive(Default)]
struct Totals {
    bytes_in: u64,
    uncompressed_in: u64,
    bytes_out: u64,
    counts: MergeCounts,
}

/// A compaction that is complete except for the switch of the view.
struct Prepared {
    txn: Transaction,
    counts: MergeCounts,
}

/// The inputs of a part.
struct Part<'a> {
    job: Job<'a>,
    inputs: &'a [Rc<TableFile>],
    /// Run of the outputs.
    run: Option<Uuid>,
}

impl Compactor {
    pub(crate) fn infos(&self, table: &TableState) -> Infos {
        let now = self.env.rt.wall();
        let gc_before = table.gc_before(now.seconds());
        let view = table.view();
        let unflushed = view.memtables().filter(|m| !m.is_empty()).map(|m| least_of(m)).min();
        let counters = &table.counters;
        let claimed = table.claimed.borrow();
        let version = table.version();
        let windows = version.compaction.as_ref().ok().and_then(|o| o.cluster_key.windows);
        let (claimed, infos) = view
            .files
            .iter()
            .map(|f| {
                let mut info = info_of(f, gc_before);
                if let Some(windows) = windows {
                    info.windows = windows_of(f, windows);
                    if is_in_no_window(f) {
                        info.level = info.level.max(SHARED_LEVEL);
                    }
                }
                info
            })
            .partition(|info| {
                claimed.contains(&info.generation) || table.is_damaged(info.generation)
            });
        Infos {
            infos,
            claimed,
            memtable_min_timestamp: unflushed,
            gc_before,
            now,
            flush_bytes: counters.flushed_bytes.get().checked_div(counters.flushes.get()),
        }
    }

    /// Returns the compactions of a table that would begin now, and why. Changes nothing.
    ///
    /// # Errors
    /// `UnknownTable`; `Invalid`: its options are not understood.
    pub fn planned_compactions(&self, id: TableId) -> Result<Vec<PlannedCompaction>, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        let version = table.version();
        let options = options_of(&version)?;
        let infos = self.infos(&table);
        let size_of = |generation: &Generation| (*generation, infos.bytes_of(*generation));
        let planned = |plan: Plan| {
            let mut inputs: Vec<(Generation, u64)> = plan.inputs.iter().map(size_of).collect();
            inputs.sort_unstable();
            PlannedCompaction {
                inputs,
                expired: plan.expired.len(),
                level: plan.level,
                reason: plan.reason.to_string(),
            }
        };
        Ok(compact_plan::preview(options, &infos.state()).into_iter().map(planned).collect())
    }

    /// Compactions that the strategy would run now.
    pub(crate) fn pending_compactions(&self, table: &TableState) -> u64 {
        let version = table.version();
        let Ok(options) = options_of(&version) else { return 0 };
        let infos = self.infos(table);
        compact_plan::estimated_tasks(options, &infos.infos, infos.flush_bytes)
    }

    /// Builds the progress entry of a compaction that begins.
    pub(crate) fn shown(
        &self,
        table: &TableState,
        inputs: &[Rc<TableFile>],
        reason: &Reason,
    ) -> CompactionProgress {
        let version = table.version();
        CompactionProgress {
            id: 0,
            kind: kind_of(reason),
            table: table.id,
            keyspace: version.table.keyspace.to_string(),
            name: version.table.name.to_string(),
            done_bytes: 0,
            total_bytes: inputs.iter().map(|f| f.reader.meta().data_length()).sum(),
            inputs: inputs.len(),
            reason: reason.to_string(),
        }
    }

    /// Compacts all files of a table (repaired and other files apart) into the files that its
    /// strategy plans, one or several, after a flush.
    ///
    /// # Errors
    /// `UnknownTable`, `DiskFull`, `Corrupt`, `Io`, `Stopping`; the old files stay then.
    pub async fn compact_major(&self, id: TableId) -> Result<(), StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        self.writer.flush(Some(&[id])).await?;
        let _own = self.files.slots.own_table(&table).await;
        let version = table.version();
        let options = options_of(&version)?;
        for _ in 0..BEFORE_MAJOR_MAX {
            let plans = compact_plan::before_major(options, &self.infos(&table).state());
            let is_last = plans.is_empty() || options.strategy != Strategy::ClusterKey;
            for plan in plans {
                self.compact(&table, Job { plan: &plan, options, owned: None }).await?;
            }
            if is_last || self.env.stopping.get() {
                break;
            }
        }
        for plan in compact_plan::major(options, &self.infos(&table).state()) {
            self.compact(&table, Job { plan: &plan, options, owned: None }).await?;
        }
        Ok(())
    }

    /// Begins the next background compaction of any table, in a task of its own; false when none is due
    /// or as many run as may.
    pub(crate) fn begin_next_compaction(self: &Rc<Self>) -> bool {
        if !self.files.slots.has_slot() {
            return false;
        }
        let mut tables = self.tables.all_tables();
        // Tables take turns, however much one of them has to do.
        let last = self.compacted_last.get();
        let behind = tables.partition_point(|t| last.is_some_and(|last| t.id <= last));
        tables.rotate_left(behind);
        for table in tables {
            let is_kept = table.wanted.get() > 0;
            if is_kept || table.compaction_paused_until.get() > self.env.rt.now() {
                continue;
            }
            let version = table.version();
            let Ok(options) = options_of(&version) else { continue };
            let infos = self.infos(&table);
            let Some(plan) = compact_plan::next(options, &infos.state()) else { continue };
            let Some(slot) = self.files.slots.try_slot() else { return false };
            self.compacted_last.set(Some(table.id));
            // Claimed in the turn in which it was planned.
            let claim = self.claim_inputs(&table, &plan);
            let store = self.clone();
            let task = async move {
                let _slot = slot;
                let Ok(options) = options_of(&version) else { return };
                let job = Job { plan: &plan, options, owned: None };
                let result = store.compact_claimed(&table, job, claim).await;
                store.pause_compactions(&table, &result);
            };
            let gate = &self.env.gate;
            return gate.spawn(&self.env.rt, Group::Compaction, "compaction", task).is_ok();
        }
        false
    }

    /// Does not spin on a damaged file or a full disk: a compaction that failed is followed by none for a while.
    pub(crate) fn pause_compactions(&self, table: &TableState, result: &Result<(), StoreError>) {
        let Err(error) = result else { return table.failed_compactions.set(Failures::default()) };
        let failed = table.failed_compactions.get().and(error);
        table.failed_compactions.set(failed);
        table.compaction_paused_until.set(self.env.rt.now() + failed.wait(PAUSE, PAUSE_MAX));
    }

    pub(crate) fn claim_inputs(&self, table: &Rc<TableState>, plan: &Plan) -> Claim {
        let inputs = inputs_of(table, plan);
        let shown = self.shown(table, &inputs, &plan.reason);
        self.files.slots.claim(table, inputs.iter().map(|f| f.generation).collect(), shown)
    }

    /// Pre: the caller has the table as a whole.
    pub(crate) async fn compact(
        &self,
        table: &Rc<TableState>,
        job: Job<'_>,
    ) -> Result<(), StoreError> {
        let claim = self.claim_inputs(table, job.plan);
        self.compact_claimed(table, job, claim).await
    }

    pub(crate) async fn compact_claimed(
        &self,
        table: &Rc<TableState>,
        job: Job<'_>,
        claim: Claim,
    ) -> Result<(), StoreError> {
        let inputs = inputs_of(table, job.plan);
        if inputs.is_empty() {
            return Ok(());
        }
        let infos: Vec<SstableInfo> =
            inputs.iter().map(|f| info_of(f, DeletionSeconds(0))).collect();
        let parts: Vec<(Plan, Vec<Rc<TableFile>>)> = compact_plan::parts::parts(job.plan, &infos)
            .into_iter()
            .map(|part| {
                let of_it = |f: &&Rc<TableFile>| part.inputs.contains(&f.generation);
                let files = inputs.iter().filter(of_it).cloned().collect();
                (part, files)
            })
            .collect();
        drop(inputs);
        let run = self.run_of_outputs(job.options, &infos);
        // Bytes that the largest part from each index on may need.
        let mut needed: Vec<u64> = parts.iter().map(|(_, files)| disk_bytes(files)).collect();
        for n in (1..needed.len()).rev() {
            let later = needed.get(n).copied().unwrap_or(0);
            if let Some(bytes) = needed.get_mut(n - 1) {
                *bytes = later.max(*bytes);
            }
        }
        if self.env.options.snapshot_before_compaction {
            let name = table.version().table.name.clone();
            let tag = format!("{}-compact-{name}", self.env.rt.wall().millis());
            self.lifecycle.snapshot_files(table, &tag, &table.view().files.clone(), &[]).await?;
        }
        let mut totals = Totals::default();
        let mut result = Ok(());
        // The files of a part are closed with it: the disk keeps their space as long as they are
        // open.
        for ((plan, inputs), needed) in parts.into_iter().zip(needed) {
            let length = inputs.iter().map(|f| f.reader.meta().data_length()).sum();
            let reserved =
                self.files.slots.reserve(&claim.progress, length, needed, "a compaction").await;
            if let Err(error) = reserved {
                // No write was refused: the disk decides if there is room for these.
                result = Err(error);
                break;
            }
            let part = Part { job: Job { plan: &plan, ..job }, inputs: &inputs, run };
            result = self.compact_inputs(table, part, &claim.progress, &mut totals).await;
            self.files.note_write_result(&result);
            if result.is_err() || self.env.stopping.get() {
                break;
            }
        }
        if totals.bytes_in > 0 {
            bump(&table.counters.compactions, 1);
            bump(&self.finished_compactions, 1);
            self.report_compacted(&table.version().table, job.plan, &totals);
        }
        result
    }

    /// The run that the outputs of these inputs become: that of the inputs, if it is one; else a new one
    /// where the strategy has runs.
    fn run_of_outputs(&self, options: &CompactionOptions, inputs: &[SstableInfo]) -> Option<Uuid> {
        let run = inputs.first().and_then(|info| info.run);
        if run.is_some() && inputs.iter().all(|info| info.run == run) {
            return run;
        }
        (options.strategy == Strategy::Incremental).then(|| {
            let (high, low) = (self.env.rt.random_u64(), self.env.rt.random_u64());
            Uuid::from_u128(u128::from(high) << 64 | u128::from(low))
        })
    }

    async fn compact_inputs(
        &self,
        table: &Rc<TableState>,
        part: Part<'_>,
        done: &Progress,
        totals: &mut Totals,
    ) -> Result<(), StoreError> {
        let Part { job, inputs, .. } = part;
        let version = table.version();
        let directory = self.files.directories.directory_of(&version.table);
        // A truncation from now on names the outputs. One that came after the plan was made does not: a
        // crash between output and removal would bring its rows back.
        let Some(mut outputs) = Outputs::begin(self, table, inputs, job.plan.cut.clone()) else {
            return Ok(());
        };
        // 1. and 2.
        let Prepared { txn, counts } = match self.prepare(table, &part, &mut outputs, done).await {
            Ok(Some(prepared)) => prepared,
            Ok(None) => return outputs.remove().await,
            Err(error) => {
                outputs.discard().await;
                return Err(error);
            }
        };
        // 3. The view. A truncation that came while the record was written wins: the inputs are its own, which
        // links them into a snapshot and removes them.
        if !table.has_all(inputs) {
            outputs.discard().await;
            return Ok(());
        }
        let view = table.view();
        let mut files: Vec<Rc<TableFile>> = view
            .files
            .iter()
            .filter(|f| !inputs.iter().any(|i| i.generation == f.generation))
            .cloned()
            .collect();
        files.extend_from_slice(outputs.files());
        let view = TableView::new(view.active.clone(), view.flushing.clone(), files);
        match job.owned {
            None => table.set_equal_view(view),
            Some(_) => table.set_view(view),
        }
        // 4. and 5. Readers that have the inputs open keep reading them.
        for input in inputs {
            self.files.forget_blocks(input).await;
        }
        self.files.finish_txn(&self.env.rt.fs(), &directory, outputs.first(), &txn).await?;
        totals.add(inputs, outputs.files(), &counts);
        Ok(())
    }

    /// Steps 1 and 2; `None` when the inputs are truncated or dropped meanwhile.
    async fn prepare(
        &self,
        table: &Rc<TableState>,
        part: &Part<'_>,
        outputs: &mut Outputs<'_>,
        done: &Progress,
    ) -> Result<Option<Prepared>, StoreError> {
        let inputs = part.inputs;
        let mut counts = MergeCounts::default();
        // 1. The outputs.
        let notes = MergeNotes { progress: done, counts: &mut counts };
        self.write_compacted(table, part, outputs, notes).await?;
        outputs.finish().await?;
        if !table.has_all(inputs) {
            // Truncated or dropped meanwhile.
            return Ok(None);
        }
        // 2. The record.
        let directory = self.files.directories.directory_of(&table.version().table);
        let txn = self.files.write_txn(&directory, outputs.first(), inputs).await?;
        Ok(Some(Prepared { txn, counts }))
    }

    fn report_compacted(&self, table: &Table, plan: &Plan, done: &Totals) {
        let (so_far, on_disk) = self.compacted_bytes.get();
        let so_far = so_far.saturating_add(done.uncompressed_in);
        self.compacted_bytes.set((so_far, on_disk.saturating_add(done.bytes_in)));
        let hook = self.on_compacted.borrow().clone();
        if let Some(hook) = hook {
            hook(CompactionRecord {
                keyspace: table.keyspace.to_string(),
                name: table.name.to_string(),
                at: self.env.rt.wall(),
                bytes_in: done.bytes_in,
                bytes_out: done.bytes_out,
                merged: done.counts.filled(),
                kind: kind_of(&plan.reason),
            });
        }
    }

    /// Uncompressed bytes that went through compactions of this shard, and the same on disk.
    pub fn compacted_bytes(&self) -> (u64, u64) {
        self.compacted_bytes.get()
    }

    /// Compactions of this shard that finished since the start, also of tables that were dropped since.
    pub fn finished_compactions(&self) -> u64 {
        self.finished_compactions.get()
    }

    async fn write_compacted(
        &self,
        table: &Rc<TableState>,
        part: &Part<'_>,
        outputs: &mut Outputs<'_>,
        notes: MergeNotes<'_>,
    ) -> Result<(), StoreError> {
        let Part { job: Job { plan, options, owned }, inputs, run } = *part;
        let version = table.version();
        let may_purge = table.orphans.borrow().is_empty();
        let is_read = |f: &&Rc<TableFile>| !may_purge || !plan.expired.contains(&f.generation);
        let read: Vec<&Rc<TableFile>> = inputs.iter().filter(is_read).collect();
        if read.is_empty() {
            return Ok(());
        }
        let partitions = partitions_together(read.iter().map(|f| &**f.reader.meta()));
        let mut stats = EncodingStats::NONE;
        let mut repaired_at = i64::MAX;
        let mut pending = None;
        for file in &read {
            let of_file = file.reader.meta().statistics();
            stats = stats.merge(of_file.header.stats);
            repaired_at = repaired_at.min(of_file.stats.repaired_at);
            // Only a cleanup takes such a file, and takes it alone.
            pending = of_file.stats.pending_repair;
        }
        let mut writer_options =
            self.writer.writer_options(&version.table, outputs.first(), partitions, stats)?;
        writer_options.level = i32::try_from(plan.level).unwrap_or(0);
        writer_options.repaired_at = repaired_at;
        writer_options.set_pending_repair(pending);
        writer_options.run = run;
        writer_options.request_bytes = REQUEST_BYTES;
        outputs.open(writer_options).await?;
        let now = self.env.rt.wall();
        let infos: Vec<SstableInfo> =
            inputs.iter().map(|f| info_of(f, DeletionSeconds(0))).collect();
        let never = !options.tombstones.may_purge(&infos);
        let purge = MergeMode::Purge {
            now: now.seconds(),
            gc_before: match never {
                true => GcBefore::At(DeletionSeconds(i64::MIN)),
                false => table.gc_rule(now.seconds()),
            },
            timestamp_below: timestamp_below(table.clone(), plan.inputs.clone()),
        };
        let mode = match plan.reason {
            // A plain rewrite keeps all data.
            Reason::Upgrade | Reason::Relocation | Reason::IndexBuild => MergeMode::All,
            _ => purge,
        };
        let (shown, shape) = (MergeShown { mode, owned }, version.shape.stored());
        let by = match never {
            true => None,
            false => garbage_collect::shadow_by(plan, options),
        };
        let shadows = match by {
            Some(by) => garbage_collect::shadows_of(table, plan, &read, by),
            None => Vec::new(),
        };
        match by {
            Some(by) if !shadows.is_empty() => {
                let files = Shadowing { read: &read, by, shadows: &shadows };
                self.merge_beside(shape, files, shown, outputs, notes).await
            }
            _ => self.merge_into(shape, &read, shown, outputs, notes).await,
        }
    }

    /// Merges files into outputs. Ends early when an input is gone.
    pub(crate) async fn merge_into(
        &self,
        shape: &data::TableShape,
        read: &[&Rc<TableFile>],
        shown: MergeShown<'_>,
        outputs: &mut Outputs<'_>,
        notes: MergeNotes<'_>,
    ) -> Result<(), StoreError> {
        let MergeShown { mode, owned } = shown;
        let together = self.requests_together(read.len());
        let blocks = read.iter().map(|f| f.reader.sequential().in_batches_of(together)).collect();
        let sources = read.iter().map(|file| self.whole_source(file, KeyRange::all()));
        let merge = MergeCursor::new(shape, mode, false, sources);
        write_merged(self, merge, blocks, owned, outputs, notes).await
    }

    /// Number of requests that a compaction of `files` files submits at once for each of them; it
    /// has as many buffers.
    pub(crate) fn requests_together(&self, files: usize) -> usize {
        let all = self.env.options.chunk_cache_bytes_max / BUFFERS_PART / SEQUENTIAL_BYTES;
        let together =
            usize::try_from(self.files.slots.concurrent_compactors()).unwrap_or(usize::MAX);
        let part = all / together.max(1);
        (part.max(BUFFERS_MIN) / files.max(1)).clamp(1, REQUESTS_TOGETHER_MAX)
    }

    /// A file's partitions of a range, in order.
    pub(crate) fn whole_source(&self, file: &Rc<TableFile>, range: KeyRange) -> Source {
        let cursor = file.reader.range_cursor(0, range, Arc::new(Slices::all()), file.filter);
        let map = self.env.options.shard_map;
        Source::File(Box::new(FileSource::new(file.clone(), cursor, map)))
    }
}

/// The files of the view that a plan names.
fn inputs_of(table: &TableState, plan: &Plan) -> Vec<Rc<TableFile>> {
    let view = table.view();
    view.files.iter().filter(|f| plan.inputs.contains(&f.generation)).cloned().collect()
}

fn disk_bytes(files: &[Rc<TableFile>]) -> u64 {
    files.iter().map(|f| f.reader.meta().disk_bytes()).sum()
}

impl Totals {
    fn add(&mut self, inputs: &[Rc<TableFile>], outputs: &[Rc<TableFile>], counts: &MergeCounts) {
        let on_disk = |files: &[Rc<TableFile>]| -> u64 {
            files.iter().map(|f| f.reader.meta().data_file_length()).sum()
        };
        self.bytes_in += on_disk(inputs);
        self.uncompressed_in += inputs.iter().map(|f| f.reader.meta().data_length()).sum::<u64>();
        self.bytes_out += on_disk(outputs);
        self.counts.merge(counts);
    }
}

/// The smallest timestamp that a memtable may have.
fn least_of(memtable: &Memtable) -> TimestampMicros {
    memtable.min_timestamp().unwrap_or(TimestampMicros(i64::MIN))
}

/// Timestamp below which a partition's tombstones may be purged: the smallest one in memtables that
/// have the partition, and in files outside of the compaction that may have it; none at all while a
/// file that no view knows may have it. Source: Cassandra `CompactionController.getPurgeEvaluator`.
fn timestamp_below(
    table: Rc<TableState>,
    inputs: Vec<Generation>,
) -> data::merge_cursor::TimestampBelow {
    Box::new(move |token, key| {
        let view = table.view();
        if !table.orphans.borrow().is_empty() {
            return TimestampMicros(i64::MIN);
        }
        let has_it = |m: &&Rc<Memtable>| m.get(token, key).is_some();
        let unflushed = view.memtables().filter(has_it).map(|m| least_of(m)).min();
        // Most often no other file spans the token: then the key need not be hashed.
        let spans = |f: &&Rc<TableFile>| {
            let meta = f.reader.meta();
            meta.first_token() <= token && token <= meta.last_token()
        };
        let mut hash = None;
        view.files
            .iter()
            .filter(|f| spans(f) && !inputs.contains(&f.generation))
            .filter(|f| f.reader.may_contain(hash.get_or_insert_with(|| codec::hash_key(key))))
            .map(|f| f.reader.meta().statistics().stats.min_timestamp)
            .chain(unflushed)
            .min()
            .unwrap_or(TimestampMicros(i64::MAX))
    })
}

impl Compactor {
    /// Changes the write rate of this shard's compactions from now on, also of running ones: bytes
    /// per second; 0 is no limit.
    pub fn set_compaction_throughput(&self, bytes_per_second: u64) {
        self.compaction_rate.set(bytes_per_second);
    }

    /// Bytes per second that compactions of this shard may write; 0 is no limit.
    pub fn compaction_throughput(&self) -> u64 {
        self.compaction_rate.get()
    }

    /// Calls `hook` after every compaction that was finished.
    pub fn on_compacted(&self, hook: impl Fn(CompactionRecord) + 'static) {
        *self.on_compacted.borrow_mut() = Some(Rc::new(hook));
    }
}
