//! Incremental repair in one shard: files are set apart for a session, the session's reads see them
//! alone, and they become repaired files or ordinary ones again.
//!
//! Begin, for each file that no repair has covered yet: 1. a file that lies in the session's ranges as a whole gets the
//! mark (`sstable::repair_state`); 2. a file that lies in them in part, or is of a version without a mark, is rewritten
//! as two. The order of steps is that of a compaction ([`crate::files::table_files`]), with both outputs complete
//! before the record. End: the marks are changed, file by file. A crash anywhere leaves files of which each is marked
//! or not; the driver of sessions ends them after a start ([`Repair::pending_repairs`]).
//!
//! INV-repairing-1: nothing is purged, and no row changes its bytes, when a file is split.
//! INV-repairing-2: data sent to a session is in marked files before [`Repair::flush_repair`] returns.
//! INV-repairing-3: a session that was not begun in this run of the node is neither read nor written
//! to: data sent to it before may be lost.

use std::rc::Rc;

use compact_plan::{Cut, Reason};
use data::{MergeMode, MutationRef};
use sst_format::header::EncodingStats;
use sstable::repair_state::{RepairState, write_repair_state};
use sstable::{SstableReader, SstableWriter, Written};
use stdx::{TableId, TimestampMicros, Token, Uuid};

use crate::compact::cleanup::OwnedRanges;
use crate::compact::compaction::{MergeCounts, MergeNotes, MergeShown};
use crate::compact::outputs::Outputs;
use crate::error::StoreError;
use crate::files::slots::Progress;
use crate::memtable::Memtable;
use crate::repair::Repair;
use crate::tables::repair_views::{state_of, unknown};
use crate::tables::table::{TableState, TableView, bump};
use crate::tables::table_file::{TableFile, has_partition, lies_in, map_error};

/// Memory of the data sent to a session, above which it is written.
const MEMTABLE_BYTES: usize = 4 << 20;

/// Result of a session's begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BegunRepair {
    /// Files that only got the mark.
    pub marked: u64,
    /// Files that were rewritten as two.
    pub split: u64,
    /// Bytes of Data on disk that the session will read.
    pub bytes: u64,
}

/// A file that is split into one of a session's ranges and one of the rest.
struct Parts<'a, 'o> {
    inside: &'a mut Outputs<'o>,
    ranges: &'a OwnedRanges,
    /// State of the part inside.
    state: RepairState,
    outside: &'a mut Outputs<'o>,
    progress: &'a Progress,
}

/// One part of it.
#[derive(Clone, Copy)]
struct PartOf<'a> {
    ranges: &'a OwnedRanges,
    state: RepairState,
    progress: &'a Progress,
}

impl Repair {
    /// The sessions of incremental repairs that files of this shard take part in, with the files'
    /// bytes on disk: each file that has tokens of one of the ranges, after the first token and up
    /// to the second.
    pub fn pending_files(&self, table: TableId, ranges: &[(Token, Token)]) -> Vec<(Uuid, u64)> {
        let Some(table) = self.tables.table(table) else { return Vec::new() };
        let view = table.view();
        let files = view.files.iter().filter(|file| {
            let meta = file.reader.meta();
            let (first, last) = (meta.first_token(), meta.last_token());
            ranges.iter().any(|(start, end)| last > *start && first <= *end)
        });
        files.filter_map(|f| Some((state_of(f).pending?, f.reader.meta().disk_bytes()))).collect()
    }

    /// Sets apart this shard's data of the ranges that was never repaired, for a session. May be
    /// repeated. Later writes do not take part.
    ///
    /// # Errors
    /// `Invalid`: another session has some of it; `UnknownTable`, `DiskFull`, `Corrupt`, `Io`,
    /// `Stopping`: files that were reached stay as they are until the session is ended.
    pub async fn begin_repair(
        &self,
        id: TableId,
        session: Uuid,
        ranges: &OwnedRanges,
    ) -> Result<BegunRepair, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        check_free(&table, session, ranges)?;
        self.writer.flush(Some(&[id])).await?;
        let _own = self.files.slots.own_table(&table).await;
        check_free(&table, session, ranges)?;
        table.repairs.borrow_mut().entry(session).or_insert_with(|| Rc::new(Memtable::new()));
        let pending = RepairState { repaired_at: 0, pending: Some(session) };
        let mut begun = BegunRepair::default();
        for file in table.view().files.clone() {
            if self.env.stopping.get() {
                return Err(StoreError::Stopping);
            }
            let state = state_of(&file);
            if state.repaired_at != 0 || state.pending.is_some() || ranges.misses(&file) {
                continue;
            }
            // By its partitions, not by the first and the last alone: most files span many ranges.
            let has_mark = file.reader.meta().version().has_pending_repair();
            if has_mark && !file.spanning && lies_in(&file, ranges.as_slice()).await? {
                self.restate(&table, &file, pending).await?;
                begun.marked += 1;
            } else if has_some(&file, ranges.as_slice()).await? {
                self.split(&table, &file, ranges, pending).await?;
                begun.split += 1;
            }
        }
        let view = table.pending_view(session)?;
        begun.bytes = view.files.iter().map(|f| f.reader.meta().data_file_length()).sum();
        Ok(begun)
    }

    /// Adds session data that this replica lacked. It is visible and durable after
    /// [`Repair::flush_repair`].
    ///
    /// # Errors
    /// `Invalid`: no such session was begun; `UnknownTable`, `Unwritable`, `DiskFull`, `Io`, `Stopping`.
    pub async fn apply_to_repair(
        &self,
        session: Uuid,
        mutation: &MutationRef<'_>,
    ) -> Result<(), StoreError> {
        if self.env.stopping.get() || self.env.drained.get() {
            return Err(StoreError::Stopping);
        }
        let id = mutation.table;
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        self.writer.check_writable(&table, mutation)?;
        let memtable = table.repairs.borrow().get(&session).cloned();
        let memtable = memtable.ok_or_else(|| unknown(session))?;
        {
            let mut scratch = self.writer.scratch.borrow_mut();
            let (shape, token) = (table.shape(), codec::token_of(mutation.key));
            // Its memory is bounded here, not with the memtables of clients.
            memtable.apply(&shape, token, mutation, None, &mut scratch);
        }
        if memtable.bytes() >= MEMTABLE_BYTES {
            self.flush_repair(id, session).await?;
        }
        Ok(())
    }

    /// Everything that a session was sent so far is in complete files afterwards.
    ///
    /// # Errors
    /// Those of [`Repair::apply_to_repair`].
    pub async fn flush_repair(&self, id: TableId, session: Uuid) -> Result<(), StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        let _permit = self.writer.flush_slot.acquire(1).await;
        let memtable = match table.repairs.borrow_mut().get_mut(&session) {
            Some(slot) if slot.is_empty() => return Ok(()),
            Some(slot) => std::mem::replace(slot, Rc::new(Memtable::new())),
            None => return Err(unknown(session)),
        };
        let result = self.write_sent(&table, session, &memtable).await;
        if result.is_err() {
            // The received data is lost: the session can no longer succeed.
            table.repairs.borrow_mut().remove(&session);
        }
        self.files.note_write_result(&result);
        result
    }

    async fn write_sent(
        &self,
        table: &Rc<TableState>,
        session: Uuid,
        memtable: &Rc<Memtable>,
    ) -> Result<(), StoreError> {
        self.files.make_directory(table).await?;
        let emptied = table.emptied.get();
        let version = table.version();
        let directory = self.files.directories.directory_of(&version.table);
        let generation = self.files.next_generation(table);
        let in_flight = table.in_flight(generation);
        let stats = EncodingStats {
            min_timestamp: memtable.min_timestamp().unwrap_or(TimestampMicros(0)),
            ..EncodingStats::NONE
        };
        let partitions = memtable.partition_count() as u64;
        let mut options =
            self.writer.writer_options(&version.table, generation, partitions, stats)?;
        options.set_pending_repair(Some(session));
        let fs = self.env.rt.fs();
        let write = async {
            let kept = self.writer.table_to_flush(&version, memtable).await?;
            let mut writer =
                SstableWriter::create(&fs, &directory, &kept, options).await.map_err(map_error)?;
            match self.writer.write_scan(&version.shape, memtable, &[], &mut writer, None).await {
                Ok(()) => {}
                Err(error) => {
                    writer.abort().await;
                    return Err(error);
                }
            }
            let written = writer.finish().await.map_err(map_error)?;
            self.observer.warn_of_large(&version.table, written.as_ref());
            self.open_written(table, written).await
        };
        let file = match write.await {
            Ok(file) => file,
            Err(error) => {
                self.files.discard(table, in_flight).await;
                return Err(error);
            }
        };
        let Some(file) = file else { return Ok(()) };
        if table.emptied.get() != emptied || table.dropped.get() {
            self.files.remove_file(&file).await?;
            return Err(unknown(session));
        }
        let view = table.view();
        let mut files = view.files.clone();
        files.push(file);
        let (active, flushing) = (view.active.clone(), view.flushing.clone());
        table.set_view(TableView::new(active, flushing, files));
        bump(&table.counters.flushes, 1);
        Ok(())
    }

    /// Ends a session: its files count as repaired at that time in milliseconds (`Some`), or as if
    /// there had been none (`None`); data sent to it and not flushed is discarded then. May be
    /// repeated, and needs no begin in this run. Returns how many files changed.
    ///
    /// # Errors
    /// `UnknownTable`, `Corrupt`, `DiskFull`, `Io`, `Stopping`: some files may have changed.
    pub async fn end_repair(
        &self,
        id: TableId,
        session: Uuid,
        repaired_at: Option<i64>,
    ) -> Result<u64, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        if repaired_at.is_some() && table.repairs.borrow().contains_key(&session) {
            self.flush_repair(id, session).await?;
        }
        table.repairs.borrow_mut().remove(&session);
        let _own = self.files.slots.own_table(&table).await;
        let state = RepairState { repaired_at: repaired_at.unwrap_or(0), pending: None };
        let mut changed = 0;
        for file in table.view().files.clone() {
            if state_of(&file).pending != Some(session) {
                continue;
            }
            if self.env.stopping.get() {
                return Err(StoreError::Stopping);
            }
            if file.spanning {
                // Other shards use it and would write the same component.
                let all = OwnedRanges::everything();
                self.split(&table, &file, &all, state).await?;
            } else {
                self.restate(&table, &file, state).await?;
            }
            changed += 1;
        }
        Ok(changed)
    }

    /// Sessions that have files of this shard, in order.
    pub fn pending_repairs(&self) -> Vec<(TableId, Uuid)> {
        let mut all: Vec<(TableId, Uuid)> = Vec::new();
        for table in self.tables.all_tables() {
            let view = table.view();
            let of_files = view.files.iter().filter_map(|f| state_of(f).pending);
            all.extend(of_files.map(|session| (table.id, session)));
            all.extend(table.repairs.borrow().keys().map(|session| (table.id, *session)));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns how many files of a table are repaired, how many are in a repair, and how many are
    /// neither.
    pub fn repair_states(&self, id: TableId) -> (u64, u64, u64) {
        let Some(table) = self.tables.table(id) else { return (0, 0, 0) };
        table.view().files.iter().map(|f| state_of(f)).fold((0, 0, 0), |(r, p, u), state| {
            match (state.pending, state.repaired_at) {
                (Some(_), _) => (r, p + 1, u),
                (None, 0) => (r, p, u + 1),
                (None, _) => (r + 1, p, u),
            }
        })
    }

    /// Writes a file's state where it is. Pre: the caller has the table as a whole.
    pub(crate) async fn restate(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
        state: RepairState,
    ) -> Result<(), StoreError> {
        let (fs, meta) = (self.env.rt.fs(), file.reader.meta());
        let still_there = || table.view().files.iter().any(|f| f.generation == file.generation);
        let work = async {
            write_repair_state(&fs, meta, state).await?;
            let version = table.version();
            let (directory, descriptor) = (meta.directory(), meta.descriptor());
            SstableReader::open(&fs, directory, descriptor, Some(&version.table)).await
        };
        match work.await {
            Ok(reader) => {
                table.replace_file(file, &[Rc::new(file.with_reader(reader))]);
                Ok(())
            }
            // Truncated or dropped meanwhile.
            Err(_) if !still_there() => Ok(()),
            Err(error) => {
                let result = Err(map_error(error));
                self.files.note_write_result(&result);
                result
            }
        }
    }

    /// Rewrites a file as two: the part in the ranges, with a new state, and the rest unchanged.
    /// Pre: the caller has the table as a whole.
    pub(crate) async fn split(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
        ranges: &OwnedRanges,
        state: RepairState,
    ) -> Result<(), StoreError> {
        let meta = file.reader.meta();
        let claim = self.files.slots.claim(
            table,
            vec![file.generation],
            self.compactor.shown(table, std::slice::from_ref(file), &Reason::Anticompaction),
        );
        // All of it until the end: how far it is is not counted.
        self.files
            .slots
            .reserve(&claim.progress, 1, meta.disk_bytes(), "an anticompaction")
            .await?;
        // A truncation from now on names the outputs.
        let begin =
            || Outputs::begin(&self.compactor, table, std::slice::from_ref(file), Cut::Never);
        let (Some(mut inside), Some(mut outside)) = (begin(), begin()) else { return Ok(()) };
        let parts = Parts {
            inside: &mut inside,
            ranges,
            state,
            outside: &mut outside,
            progress: &claim.progress,
        };
        let result = self.split_into(table, file, parts).await;
        self.files.note_write_result(&result);
        if let Err(error) = result {
            inside.discard().await;
            outside.discard().await;
            return Err(error);
        }
        self.switch_split(table, file, inside, outside).await
    }

    async fn switch_split(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
        inside: Outputs<'_>,
        outside: Outputs<'_>,
    ) -> Result<(), StoreError> {
        let directory = self.files.directories.directory_of(&table.version().table);
        if !table.has_all(std::slice::from_ref(file)) {
            inside.remove().await?;
            return outside.remove().await;
        }
        let first = inside.first();
        let txn = match self.files.write_txn(&directory, first, std::slice::from_ref(file)).await {
            Ok(txn) => txn,
            Err(error) => {
                inside.discard().await;
                outside.discard().await;
                return Err(error);
            }
        };
        let outputs: Vec<_> = inside.files().iter().chain(outside.files()).cloned().collect();
        let replaced = table.replace_file(file, &outputs);
        if !replaced {
            // The file now belongs to the operation that emptied the table, and the record, which
            // the first ones name, must not remove it.
            inside.discard().await;
            outside.discard().await;
            return Ok(());
        }
        self.files.cache.forget(file.id);
        self.files.finish_txn(&self.env.rt.fs(), &directory, first, &txn).await
    }

    async fn split_into(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
        parts: Parts<'_, '_>,
    ) -> Result<(), StoreError> {
        let Parts { inside, ranges, state, outside, progress } = parts;
        let part = PartOf { ranges, state, progress };
        self.write_part(table, file, inside, part).await?;
        let (rest, state) = (ranges.complement(), state_of(file));
        self.write_part(table, file, outside, PartOf { ranges: &rest, state, progress }).await
    }

    async fn write_part(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
        outputs: &mut Outputs<'_>,
        part: PartOf<'_>,
    ) -> Result<(), StoreError> {
        let PartOf { ranges, state, progress } = part;
        let version = table.version();
        let meta = file.reader.meta();
        let stats = meta.statistics().header.stats;
        let partitions = meta.estimated_partitions();
        let mut options =
            self.writer.writer_options(&version.table, outputs.first(), partitions, stats)?;
        options.level = meta.statistics().stats.level;
        options.repaired_at = state.repaired_at;
        options.set_pending_repair(state.pending);
        options.run = meta.run();
        outputs.open(options).await?;
        let shown = MergeShown { mode: MergeMode::All, owned: Some(ranges) };
        let notes = MergeNotes { progress, counts: &mut MergeCounts::default() };
        self.compactor.merge_into(version.shape.stored(), &[file], shown, outputs, notes).await?;
        outputs.finish().await
    }

    async fn open_written(
        &self,
        table: &TableState,
        written: Option<Written>,
    ) -> Result<Option<Rc<TableFile>>, StoreError> {
        let Some(written) = written else { return Ok(None) };
        let (fs, version) = (self.env.rt.fs(), table.version());
        let directory = self.files.directories.directory_of(&version.table);
        let reader =
            SstableReader::open(&fs, &directory, written.descriptor, Some(&version.table)).await;
        Ok(self.files.file_of(table.id, reader.map_err(map_error)?, Vec::new()).map(Rc::new))
    }
}

/// Returns true if a file has a partition in one of the ranges.
async fn has_some(file: &TableFile, ranges: &[(Token, Token)]) -> Result<bool, StoreError> {
    let meta = file.reader.meta();
    let (first, last) = (meta.first_token(), meta.last_token());
    for (start, end) in ranges {
        // The smallest token belongs to the range that begins with it.
        let is_edge = *start == Token::MIN && first == Token::MIN;
        let overlaps = *end >= first && *start < last;
        if is_edge || (overlaps && has_partition(file, *start, *end).await?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks that no other session has files in the ranges, and none of these is damaged.
fn check_free(table: &TableState, session: Uuid, ranges: &OwnedRanges) -> Result<(), StoreError> {
    for file in &table.view().files {
        if table.is_damaged(file.generation) && !ranges.misses(file) {
            let text = format!(
                "{} is damaged: run a full repair (nodetool repair -full); an incremental one \
                does not restore its data",
                file.reader.meta().file(sstable::Component::Data)
            );
            return Err(StoreError::Invalid(text));
        }
        if let Some(other) = state_of(file).pending
            && other != session
            && !ranges.misses(file)
        {
            let text = format!("the repair session {other} has a part of the range");
            return Err(StoreError::Invalid(text));
        }
    }
    Ok(())
}
