//! What a leader reads, and what it makes of an increment.

use std::cmp::Ordering;

use data::command::{Partitions, ReadCommand};
use data::counter::{self, CounterId};
use data::{
    CellRef, ClusteringComparator, ColumnRef, MutationBuilder, MutationRef, RowBuilder, RowRef,
    Slice, Slices,
};
use stdx::{TimestampMicros, Token, WallMicros};
use store::{Flow, RowSink, Store, StoreError};

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

/// As whom a leader writes, when, and what it must not count on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leading {
    pub(super) id: CounterId,
    pub(super) now_micros: i64,
    /// When the table was emptied last: cells that are not newer are gone, or will be in a moment.
    pub(super) emptied_at: Option<WallMicros>,
}

/// Reads the rows that the increments are for; nothing when there are only deletions.
pub(super) async fn read(
    store: &Store,
    increments: &MutationRef<'_>,
    comparator: &ClusteringComparator,
    now: WallMicros,
) -> Result<Current, StoreError> {
    let mut current = Current::default();
    let wants_static = increments.static_row.is_some_and(has_increments);
    let rows = increments.rows().filter(|(_, row)| has_increments(*row));
    let mut slices: Vec<Slice> = match comparator.is_empty() {
        true => rows.map(|_| Slice::all()).collect(),
        false => rows.map(|(clustering, _)| Slice::prefix(clustering.to_vec())).collect(),
    };
    if slices.is_empty() && !wants_static {
        return Ok(current);
    }
    if slices.is_empty() {
        // No row at all: one that ends where it begins.
        slices.push(Slice { end_after: false, ..Slice::all() });
    }
    let command = ReadCommand {
        table: increments.table,
        partitions: Partitions::Key(increments.key.to_vec()),
        slices: Slices(slices),
        reversed: false,
        columns: None,
        now: now.seconds(),
        wants_static,
        resume: None,
    };
    store.read(&command, &mut current).await?;
    Ok(current)
}

/// The mutation with counts in place of increments, to be written to all replicas as it is.
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
    let Leading { id, now_micros, emptied_at } = leading;
    let stays = |at: TimestampMicros| emptied_at.is_none_or(|emptied| at.0 > emptied.0);
    let (liveness, deletion, columns) = row.parts();
    let mut built = RowBuilder::new(out, liveness, deletion, row.base_timestamp());
    for (column, cell) in columns {
        // There are no columns of many cells beside counters.
        let ColumnRef::Simple(cell) = cell else { continue };
        if cell.is_tombstone() {
            built.cell(column, &cell);
            continue;
        }
        let found = match current.and_then(|row| row.column(column)) {
            Some(ColumnRef::Simple(found)) if !found.is_tombstone() && stays(found.timestamp) => {
                found.value
            }
            _ => &[],
        };
        let count = counter::led(found, id, cell.value, now_micros);
        built.cell(column, &CellRef::live(cell.timestamp, &count));
    }
    built.finish();
}
