//! The leader's side of a counter write: reading the current counts and turning increments into
//! counter cells.

use std::cmp::Ordering;

use data::command::{Partitions, ReadCommand};
use data::counter::{self, CounterId};
use data::{
    CellRef, ClusteringComparator, ColumnRef, DeletionTime, Liveness, MutationBuilder, MutationRef,
    RowBuilder, RowRef, Slice, Slices,
};
use stdx::{ColumnId, ShardId, TimestampMicros, Token, WallMicros};
use store::{CounterRow, CountsOf, Flow, OwnCount, ReadStats, RowSink, Store, StoreError};

use replica::RequestTrace;
use replica::ShardReads;

/// The rows that increments are for, as this node has them.
#[derive(Default)]
pub(super) struct Current {
    static_row: Option<Vec<u8>>,
    /// Clustering and row, ascending.
    rows: Vec<(Vec<u8>, Vec<u8>)>,
}

impl RowSink for Current {
    fn partition(&mut self, _: Token, _: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        self.static_row = static_row.map(|row| row.bytes().to_vec());
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        self.rows.push((clustering.to_vec(), row.bytes().to_vec()));
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

fn has_increments(row: RowRef<'_>) -> bool {
    row.columns().any(|(_, column)| matches!(column, ColumnRef::Simple(c) if !c.is_tombstone()))
}

/// Context of a leader's write: its counter id, the time, and the last truncation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leading {
    pub(super) id: CounterId,
    pub(super) now_micros: i64,
    /// When the table was emptied last: cells that are not newer are gone, or will be in a moment.
    pub(super) emptied_at: Option<WallMicros>,
}

/// Returns the cached counts for a row of increments; `None`: a counter that it adds to is not
/// cached.
fn cached(
    store: &Store,
    counts: &CountsOf,
    at: CounterRow<'_>,
    row: RowRef<'_>,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (none, live) = (Liveness::NONE, DeletionTime::LIVE);
    let mut built = RowBuilder::new(&mut out, none, live, row.base_timestamp());
    for (column, cell) in row.columns() {
        if !matches!(cell, ColumnRef::Simple(cell) if !cell.is_tombstone()) {
            continue;
        }
        let own = store.counters().cached_count(counts, at, column)?;
        let context = counter::global(counts.writer(), own.clock, own.count);
        built.cell(column, &CellRef::live(own.timestamp, &context));
    }
    built.finish();
    Some(out)
}

/// Records in a trace what is read. Texts are Cassandra's.
pub(super) struct Noting<'a> {
    pub(super) trace: &'a RequestTrace,
    /// Name of the table.
    pub(super) table: &'a str,
    pub(super) shard: ShardId,
}

impl Noting<'_> {
    /// Records the lookups of counters in the cache (`None`: there is no cache) and the reads of
    /// the `missing` ones.
    #[cold]
    fn looks(&self, cached: Option<usize>, missing: usize) {
        if let Some(asked) = cached {
            self.trace.note(|| format!("Fetching {asked} counter values from cache"));
        }
        if missing > 0 {
            self.trace.note(|| format!("Reading {missing} counter values from the CF"));
            self.trace.note(|| format!("Executing single-partition query on {}", self.table));
        }
    }

    #[cold]
    fn has_read(&self, stats: &ReadStats) {
        let sstables = stats.sstables;
        self.trace.note(|| format!("Merged data from memtables and {sstables} sstables"));
        let reads = ShardReads::default();
        reads.add(self.shard, stats, None);
        reads.lines().into_iter().for_each(|line| self.trace.note(|| line));
    }
}

/// A leader's sources besides the store.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    /// The counter cache; `None`: disabled.
    pub(super) counts: Option<&'a CountsOf>,
    pub(super) noting: Option<&'a Noting<'a>>,
}

/// Counts the counters that a row of increments adds to.
fn counters_of(row: RowRef<'_>) -> usize {
    let is_counter = |column| matches!(column, ColumnRef::Simple(cell) if !cell.is_tombstone());
    row.columns().filter(|(_, column)| is_counter(*column)).count()
}

/// Reads the rows that the increments are for, those that are not cached; nothing when there are only deletions.
/// What is cached has this node's part of counters alone.
pub(super) async fn read(
    store: &Store,
    Known { counts, noting }: Known<'_>,
    increments: &MutationRef<'_>,
    comparator: &ClusteringComparator,
    now: WallMicros,
) -> Result<Current, StoreError> {
    let mut current = Current::default();
    let known = |at, row| counts.and_then(|counts| cached(store, counts, at, row));
    let key = increments.key;
    let static_row = increments.static_row.filter(|row| has_increments(*row));
    let static_cached = static_row.and_then(|row| known((key, None), row));
    let wants_static = static_row.is_some() && static_cached.is_none();
    let (mut found, mut slices) = (Vec::new(), Vec::new());
    let counted = |row| if noting.is_some() { counters_of(row) } else { 0 };
    let mut missing = static_row.filter(|_| wants_static).map_or(0, counted);
    for (clustering, row) in increments.rows().filter(|(_, row)| has_increments(*row)) {
        if let Some(row) = known((key, Some(clustering)), row) {
            found.push((clustering.to_vec(), row));
            continue;
        }
        missing += counted(row);
        slices.push(match comparator.is_empty() {
            true => Slice::all(),
            false => Slice::prefix(clustering.to_vec()),
        });
    }
    if let Some(noting) = noting {
        let rows = increments.rows().map(|(_, row)| row).chain(increments.static_row);
        noting.looks(counts.map(|_| rows.map(counters_of).sum()), missing);
    }
    if slices.is_empty() && !wants_static {
        return Ok(Current { static_row: static_cached, rows: found });
    }
    if slices.is_empty() {
        // No row at all: one that ends where it begins.
        slices.push(Slice { end_after: false, ..Slice::all() });
    }
    let command = ReadCommand {
        table: increments.table,
        partitions: Partitions::Key(increments.key.to_vec()),
        slices: Slices(slices).into(),
        reversed: false,
        columns: None,
        now: now.seconds(),
        wants_static,
        resume: None,
        bypass_cache: false,
    };
    let stats = store.read(&command, &mut current).await?;
    if let Some(noting) = noting {
        noting.has_read(&stats);
    }
    if static_cached.is_some() {
        current.static_row = static_cached;
    }
    if !found.is_empty() {
        current.rows.append(&mut found);
        current.rows.sort_by(|a, b| comparator.compare(&a.0, &b.0));
    }
    Ok(current)
}

/// Keeps what was applied in the counter cache, of counters that a visible cell was read of which is not newer.
/// The counts must have been current right before it was applied; `None`: they were not.
pub(super) fn keep(
    store: &Store,
    applied: Option<(&CountsOf, &[u8])>,
    current: &Current,
    comparator: &ClusteringComparator,
    leading: Leading,
) {
    let Some((counts, result)) = applied else { return };
    let Some(result) = MutationRef::open(result) else { return };
    let keep_row = |at: CounterRow<'_>, row: RowRef<'_>, current: Option<&Vec<u8>>| {
        let Some(current) = current else { return };
        let current = RowRef::trusted(current);
        for (column, cell) in row.columns() {
            if let ColumnRef::Simple(cell) = cell
                && let Some(before) = leading.counted_on(current, column)
                && !cell.is_tombstone()
                && cell.timestamp >= before.timestamp
            {
                let count = OwnCount::of(cell.timestamp, cell.value, leading.id);
                store.counters().keep_count(counts, at, column, count);
            }
        }
    };
    let key = result.key;
    if let Some(row) = result.static_row {
        keep_row((key, None), row, current.static_row.as_ref());
    }
    for (clustering, row) in result.rows() {
        let here = current.rows.binary_search_by(|at| comparator.compare(&at.0, clustering));
        let here = here.ok().and_then(|at| current.rows.get(at));
        keep_row((key, Some(clustering)), row, here.map(|at| &at.1));
    }
}

impl Leading {
    /// The cell that an increment of a column adds to, if there is one that stays.
    fn counted_on<'a>(&self, current: RowRef<'a>, column: ColumnId) -> Option<CellRef<'a>> {
        let stays = |at: TimestampMicros| self.emptied_at.is_none_or(|emptied| at.0 > emptied.0);
        match current.column(column) {
            Some(ColumnRef::Simple(cell)) if !cell.is_tombstone() && stays(cell.timestamp) => {
                Some(cell)
            }
            _ => None,
        }
    }
}

/// Builds the mutation with counts instead of increments; it is written to all replicas unmodified.
pub(super) fn result(
    increments: &MutationRef<'_>,
    current: &Current,
    comparator: &ClusteringComparator,
    leading: Leading,
) -> Vec<u8> {
    let lead = |row: RowRef<'_>, current: Option<&Vec<u8>>| {
        let mut out = Vec::new();
        lead_row(row, current.map(|c| RowRef::trusted(c)), leading, &mut out);
        out
    };
    let static_row = increments.static_row.map(|row| lead(row, current.static_row.as_ref()));
    let mut found = current.rows.iter().peekable();
    let mut rows: Vec<(&[u8], Vec<u8>)> = Vec::new();
    for (clustering, row) in increments.rows() {
        let is_before = |at: &&(Vec<u8>, Vec<u8>)| comparator.compare(&at.0, clustering).is_lt();
        while found.next_if(is_before).is_some() {}
        let here =
            found.peek().filter(|at| comparator.compare(&at.0, clustering) == Ordering::Equal);
        rows.push((clustering, lead(row, here.map(|at| &at.1))));
    }
    let mut out = Vec::with_capacity(increments.bytes().len() + 64);
    let (table, version) = (increments.table, increments.schema_version);
    let mut mutation = MutationBuilder::new(&mut out, table, version, increments.key);
    if !increments.deletion.is_live() {
        mutation.deletion(increments.deletion);
    }
    if let Some(row) = &static_row {
        mutation.static_row(RowRef::trusted(row));
    }
    mutation.rows(rows.iter().map(|(clustering, row)| (*clustering, RowRef::trusted(row))));
    let tombstones: Vec<_> = increments.range_tombstones().collect();
    mutation.range_tombstones(tombstones.into_iter());
    mutation.finish();
    out
}

fn lead_row(row: RowRef<'_>, current: Option<RowRef<'_>>, leading: Leading, out: &mut Vec<u8>) {
    let Leading { id, now_micros, .. } = leading;
    let (liveness, deletion, columns) = row.parts();
    let mut built = RowBuilder::new(out, liveness, deletion, row.base_timestamp());
    for (column, cell) in columns {
        // There are no columns of many cells beside counters.
        let ColumnRef::Simple(cell) = cell else { continue };
        if cell.is_tombstone() {
            built.cell(column, &cell);
            continue;
        }
        let found = current.and_then(|row| leading.counted_on(row, column));
        let found = found.map_or(&[][..], |found| found.value);
        let count = counter::led(found, id, cell.value, now_micros);
        built.cell(column, &CellRef::live(cell.timestamp, &count));
    }
    built.finish();
}
