//! Garbage collection: removes from files the data that other files of their table hide, and
//! tombstones that are not needed any more.
//!
//! Each file is compacted alone, beside its shadow: the files that overlap it, which are read and never
//! written. The order of steps, and the state after a crash between them, is that of any compaction.
//!
//! INV-garbage-1: only data in a file of the view hides anything, never data in a memtable; and it is
//! not purged while a file with its hidden data is in the view.
//! Source: Cassandra `CompactionManager.performGarbageCollection`, `CompactionController.shadowSources`.

use std::cmp::Reverse;
use std::rc::Rc;

use codec::KeyHash;
use compact_plan::{CompactionOptions, Cut, Plan, Reason, Strategy, TombstoneOption};
use data::command::{KeyRange, RingBound};
use data::{BlockRequest, MergeCursor, MergeMode, Shadow, ShadowBy, ShadowCursor, TableShape};
use sstable::{Chunk, SequentialReader};
use stdx::{Generation, TableId};

use crate::compact::Compactor;
use crate::compact::compaction::{Job, MergeNotes, MergeShown, options_of};
use crate::compact::outputs::Outputs;
use crate::compact::row_copy::write_merged;
use crate::error::StoreError;
use crate::read::merging::Merging;
use crate::read::sources::{FileSource, Source};
use crate::tables::table::TableState;
use crate::tables::table_file::TableFile;

/// Most files that are read beside a compaction, each with a buffer of 256 KiB: those with the newest
/// data. What others hide stays.
pub(crate) const SHADOWS_MAX: usize = 64;

/// The hidden data, and the files that hide it.
pub(crate) struct Shadowing<'f> {
    /// The files that are merged.
    pub(crate) read: &'f [&'f Rc<TableFile>],
    pub(crate) by: ShadowBy,
    /// The files that hide some of it.
    pub(crate) shadows: &'f [Rc<TableFile>],
}

type Shadowed<'s> = ShadowCursor<'s, MergeCursor<'s, Source>, MergeCursor<'s, Source>>;

impl Merging for Shadowed<'_> {
    fn feed(&mut self, request: BlockRequest, chunk: Rc<Chunk>) {
        let inputs = u32::try_from(self.data().sources().count()).unwrap_or(u32::MAX);
        match request.source.checked_sub(inputs) {
            None => self.data_mut().feed(request, chunk),
            Some(source) => self.shadow_mut().feed(BlockRequest { source, ..request }, chunk),
        }
    }

    fn inputs(&self) -> impl Iterator<Item = &Source> {
        self.data().sources()
    }

    fn members(&self) -> impl Iterator<Item = bool> {
        self.data().members()
    }

    fn key_hash(&self) -> Option<KeyHash> {
        self.data().key_hash()
    }

    fn untouched(&mut self) -> Option<(usize, &mut Source)> {
        // Each row must be checked against the shadow.
        None
    }

    fn run(&self) -> Option<(usize, Option<&[u8]>)> {
        None
    }

    fn took_rows(&mut self, _ended: bool) {}

    fn has_one_row(&self) -> bool {
        false
    }

    fn is_between(&self) -> bool {
        // The same.
        false
    }

    fn move_input(&mut self, _number: usize, _place: impl FnOnce(&mut FileSource) -> bool) {}

    fn input(&self, number: usize) -> Option<&Source> {
        self.data().source(number)
    }

    fn input_mut(&mut self, number: usize) -> Option<&mut Source> {
        self.data_mut().input_mut(number)
    }

    fn took_partition(&mut self) {}
}

/// Returns the data of other files that a compaction uses; `None`: nothing.
pub(crate) fn shadow_by(plan: &Plan, options: &CompactionOptions) -> Option<ShadowBy> {
    let option = match &plan.reason {
        Reason::Garbage(option) => *option,
        // These take something else out, or nothing.
        Reason::Upgrade
        | Reason::Relocation
        | Reason::IndexBuild
        | Reason::Cleanup
        | Reason::Anticompaction => TombstoneOption::None,
        // A window alone would keep data that deletions in the shared file hide.
        Reason::Major if options.strategy == Strategy::ClusterKey && plan.cut == Cut::Never => {
            match options.tombstones.provide_overlapping {
                TombstoneOption::None => TombstoneOption::Row,
                given => given,
            }
        }
        _ => options.tombstones.provide_overlapping,
    };
    match option {
        TombstoneOption::None => None,
        TombstoneOption::Row => Some(ShadowBy::Rows),
        TombstoneOption::Cell => Some(ShadowBy::Cells),
    }
}

/// The files outside of a compaction that may hide something of these inputs.
pub(crate) fn shadows_of(
    table: &TableState,
    plan: &Plan,
    read: &[&Rc<TableFile>],
    by: ShadowBy,
) -> Vec<Rc<TableFile>> {
    let stats = |f: &Rc<TableFile>| f.reader.meta().statistics().stats.max_timestamp;
    let oldest = read.iter().map(|f| f.reader.meta().statistics().stats.min_timestamp).min();
    let may_hide = |f: &&Rc<TableFile>| {
        let meta = f.reader.meta();
        let overlaps = |input: &&Rc<TableFile>| {
            let input = input.reader.meta();
            input.first_token() <= meta.last_token() && meta.first_token() <= input.last_token()
        };
        !plan.inputs.contains(&f.generation)
            && oldest.is_some_and(|oldest| oldest <= stats(f))
            && (by == ShadowBy::Cells || meta.statistics().stats.may_have_tombstones())
            && read.iter().any(overlaps)
    };
    let view = table.view();
    let mut shadows: Vec<Rc<TableFile>> = view.files.iter().filter(may_hide).cloned().collect();
    shadows.sort_by_key(|f| (Reverse(stats(f)), f.generation));
    shadows.truncate(SHADOWS_MAX);
    shadows
}

/// From the first token of the files to the last.
fn span(read: &[&Rc<TableFile>]) -> KeyRange {
    let first = read.iter().map(|f| f.reader.meta().first_token()).min();
    let last = read.iter().map(|f| f.reader.meta().last_token()).max();
    match (first, last) {
        (Some(first), Some(last)) => KeyRange {
            start: RingBound::Token { token: first, after: false },
            end: RingBound::Token { token: last, after: true },
        },
        _ => KeyRange::all(),
    }
}

impl Compactor {
    /// Removes hidden data and unneeded tombstones from this shard's files of a table. Data is
    /// hidden by deletions in other files of the table, and with `Cell` also by newer cells in
    /// another file. The oldest files come first, so that the data is gone before the files with
    /// its tombstones are processed. Memtables are not flushed, as in Cassandra: data hidden by
    /// them stays. Skips files in a repair under way, and with `only_purge_repaired_tombstones`
    /// files that were not repaired. Returns how many files were rewritten or removed.
    ///
    /// # Errors
    /// `UnknownTable`, `DiskFull`, `Corrupt`, `Io`, `Stopping`, `Invalid` (given up); files that were not
    /// reached stay as they are.
    pub async fn garbage_collect(
        &self,
        id: TableId,
        by: TombstoneOption,
    ) -> Result<u64, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        let _own = self.files.slots.own_table(&table).await;
        let version = table.version();
        let options = options_of(&version)?;
        let repaired_only = options.tombstones.only_purge_repaired;
        let mut plans = Vec::new();
        for file in &table.view().files {
            let stats = &file.reader.meta().statistics().stats;
            let is_whole = !table.is_damaged(file.generation);
            if is_whole
                && stats.pending_repair.is_none()
                && (stats.repaired_at > 0 || !repaired_only)
            {
                let level = u32::try_from(stats.level).unwrap_or(0);
                plans.push((stats.max_timestamp, plan(file.generation, level, by)));
            }
        }
        plans.sort_by_key(|(newest, plan)| (*newest, plan.inputs.first().copied()));
        let collected = plans.len() as u64;
        for (_, plan) in plans {
            if self.env.stopping.get() {
                return Err(StoreError::Stopping);
            }
            self.compact(&table, Job { plan: &plan, options, owned: None }).await?;
        }
        Ok(collected)
    }

    /// Like [`Compactor::merge_into`], without the data that the shadows hide.
    pub(crate) async fn merge_beside(
        &self,
        shape: &TableShape,
        files: Shadowing<'_>,
        shown: MergeShown<'_>,
        outputs: &mut Outputs<'_>,
        notes: MergeNotes<'_>,
    ) -> Result<(), StoreError> {
        let Shadowing { read, by, shadows } = files;
        let MergeShown { mode, owned } = shown;
        let range = span(read);
        let together = self.requests_together(read.len() + shadows.len());
        let all = read.iter().copied().chain(shadows);
        let blocks: Vec<SequentialReader> =
            all.map(|f| f.reader.sequential().in_batches_of(together)).collect();
        let sources = read.iter().map(|file| self.whole_source(file, KeyRange::all()));
        let data = MergeCursor::new(shape, mode, false, sources);
        let beside = shadows.iter().map(|file| self.whole_source(file, range.clone()));
        let shadow = MergeCursor::new(shape, MergeMode::All, false, beside);
        let first = u32::try_from(read.len()).unwrap_or(u32::MAX);
        let merge = ShadowCursor::new(shape, by, data, Shadow { cursor: shadow, first });
        write_merged(self, merge, blocks, owned, outputs, notes).await
    }
}

fn plan(generation: Generation, level: u32, by: TombstoneOption) -> Plan {
    Plan {
        inputs: vec![generation],
        expired: Vec::new(),
        level,
        cut: Cut::Never,
        apart: false,
        reason: Reason::Garbage(by),
    }
}
