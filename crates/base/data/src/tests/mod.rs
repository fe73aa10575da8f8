//! Property tests of the mutation model: laws of merging, cursors against a naive model.

mod cases;
mod counters;
mod cursors;
mod laws;
mod many_sources;
mod shadow;
mod tombstones;

use std::collections::BTreeMap;

use schema::{Column, ColumnKind, DroppedColumn, Table, TableKind, TableOptions};
use stdx::{ColumnId, DeletionSeconds, TableId, TimestampMicros, TtlSeconds, Uuid};
use types::CqlType;

use crate::{
    CellRef, ClusteringBuf, DeletionTime, Keep, Liveness, Merged, RowBuilder, RowRef, TableShape,
    merge_rows,
};

pub(crate) const A: ColumnId = ColumnId(2);
pub(crate) const B: ColumnId = ColumnId(3);
pub(crate) const SET: ColumnId = ColumnId(4);

/// pk int, ck int, a text, b text, s set<int>.
pub(crate) fn table() -> Table {
    let column =
        |id, name: &str, ty, kind| Column { id: ColumnId(id), name: name.into(), ty, kind };
    Table {
        id: TableId(Uuid::from_u128(1)),
        keyspace: "ks".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(0, "pk", CqlType::Int, ColumnKind::PartitionKey(0)),
            column(1, "ck", CqlType::Int, ColumnKind::Clustering { position: 0, reversed: false }),
            column(2, "a", CqlType::Text, ColumnKind::Regular),
            column(3, "b", CqlType::Text, ColumnKind::Regular),
            column(4, "s", CqlType::set(CqlType::Int, false), ColumnKind::Regular),
        ],
        partition_key_count: 1,
        clustering_count: 1,
        static_count: 0,
        options: TableOptions::default(),
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 5,
    }
}

pub(crate) fn shape() -> TableShape {
    TableShape::for_table(&table())
}

/// Like `table`, with "b" dropped at 50.
pub(crate) fn shape_without_b() -> TableShape {
    let mut table = table();
    let at = table.columns.iter().position(|c| c.id == B).unwrap();
    let column = table.columns.remove(at);
    table
        .dropped
        .insert(column.name.clone(), DroppedColumn { column, dropped_at: TimestampMicros(50) });
    TableShape::for_table(&table)
}

pub(crate) fn ck(n: i32) -> Vec<u8> {
    ClusteringBuf::from_components([n.to_be_bytes().as_slice()]).0
}

pub(crate) fn deletion(timestamp: i64) -> DeletionTime {
    DeletionTime { timestamp: TimestampMicros(timestamp), local: DeletionSeconds(timestamp / 2) }
}

/// A cell as a value, for models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedCell {
    pub(crate) timestamp: i64,
    /// 0 live, 1 tombstone, 2 expiring.
    pub(crate) kind: u8,
    pub(crate) value: Vec<u8>,
}

impl OwnedCell {
    pub(crate) fn cell(&self) -> CellRef<'_> {
        let timestamp = TimestampMicros(self.timestamp);
        match self.kind {
            0 => CellRef::live(timestamp, &self.value),
            1 => CellRef::tombstone(timestamp, DeletionSeconds(self.timestamp / 2)),
            _ => CellRef::expiring(
                timestamp,
                TtlSeconds(10),
                DeletionSeconds(self.timestamp / 2 + 10),
                &self.value,
            ),
        }
    }
}

/// A row as values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnedRow {
    pub(crate) liveness: Option<i64>,
    pub(crate) deletion: Option<i64>,
    pub(crate) a: Option<OwnedCell>,
    pub(crate) b: Option<OwnedCell>,
    pub(crate) set_deletion: Option<i64>,
    pub(crate) set: BTreeMap<i32, OwnedCell>,
}

impl OwnedRow {
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let liveness = self.liveness.map_or(Liveness::NONE, |t| Liveness::new(TimestampMicros(t)));
        let row_deletion = self.deletion.map_or(DeletionTime::LIVE, deletion);
        let mut row = RowBuilder::new(&mut out, liveness, row_deletion, TimestampMicros(3));
        for (id, cell) in [(A, &self.a), (B, &self.b)] {
            if let Some(cell) = cell {
                row.cell(id, &cell.cell());
            }
        }
        if self.set_deletion.is_some() || !self.set.is_empty() {
            row.begin_complex(SET, self.set_deletion.map_or(DeletionTime::LIVE, deletion));
            for (path, cell) in &self.set {
                row.complex_cell(&path.to_be_bytes(), &cell.cell());
            }
            row.end_complex();
        }
        row.finish();
        out
    }
}

/// Merges packed rows; empty when nothing is left.
pub(crate) fn merge(
    shape: &TableShape,
    rows: &[&[u8]],
    active: DeletionTime,
    keep: Keep,
) -> Vec<u8> {
    let refs: Vec<RowRef<'_>> = rows.iter().map(|r| RowRef::trusted(r)).collect();
    let mut out = Vec::new();
    match merge_rows(shape, &refs, active, keep, &mut out).row {
        Merged::Nothing => Vec::new(),
        Merged::Built => out,
        Merged::Source(i) => rows[i].to_vec(),
    }
}

/// Everything in a packed row as text, whatever the packing: cells with their times. Checks their order (INV-data-1,
/// INV-row-1).
pub(crate) fn describe(row: &[u8]) -> String {
    if row.is_empty() {
        return String::new();
    }
    let row = RowRef::parse(row).expect("a valid row");
    let mut text = format!("{:?} {:?}", row.liveness(), row.deletion());
    let mut last = None;
    for (id, column) in row.columns() {
        assert!(last.replace(id).is_none_or(|last| last < id), "INV-data-1: column {id:?}");
        match column {
            crate::ColumnRef::Simple(cell) => text.push_str(&format!(" {id:?}={cell:?}")),
            crate::ColumnRef::Complex(complex) => {
                text.push_str(&format!(" {id:?}: {:?}", complex.deletion));
                let mut last = None;
                for (path, cell) in complex.cells() {
                    let number = i32::from_be_bytes(path.try_into().unwrap());
                    assert!(last.is_none_or(|last| last < number), "INV-data-1: path {number}");
                    last = Some(number);
                    text.push_str(&format!(" [{path:?}]={cell:?}"));
                }
            }
        }
    }
    text
}
