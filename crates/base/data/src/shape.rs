//! Properties of a table that merging needs, compiled once per table version.

use std::cmp::Ordering;

use schema::{Column, Table};
use stdx::{ColumnId, TableId, TimestampMicros};
use types::{Comparator, CqlType};

use crate::clustering::ClusteringComparator;

/// One column as merging sees it.
#[derive(Clone, Debug)]
struct ShapeColumn {
    /// False: dropped, or of a version this node has not seen; its cells are invisible.
    known: bool,
    /// Cells written at or before this are invisible (an older column of that name was dropped).
    dropped_at: TimestampMicros,
    /// Order of the paths of a complex column.
    path: Option<Comparator>,
}

/// The compiled shape of one table version: comparators and dropped columns.
#[derive(Clone, Debug)]
pub struct TableShape {
    table: TableId,
    version: u64,
    clustering: ClusteringComparator,
    /// By column id. Ids are small and dense, so this is a plain vector.
    columns: Vec<ShapeColumn>,
    /// Some column id was dropped or has a drop time: rows must be filtered.
    filters: bool,
    /// Its cells are counters, all of them.
    counters: bool,
    /// The shape with which cells of hidden columns are kept; `None`: no column is hidden.
    stored: Option<Box<TableShape>>,
}

/// The order of cell paths of a multi-cell type. Source: Cassandra `CollectionType.nameComparator`,
/// `UserType.nameComparator` (field position as a short).
fn path_comparator(column: &Column) -> Option<Comparator> {
    if !column.is_complex() {
        return None;
    }
    match &column.ty {
        CqlType::Set { element, .. } => Some(Comparator::for_type(element)),
        CqlType::Map { key, .. } => Some(Comparator::for_type(key)),
        CqlType::Udt(_) => Some(Comparator::for_type(&CqlType::Smallint)),
        _ => Some(Comparator::for_type(&CqlType::Timeuuid)),
    }
}

impl TableShape {
    /// Compiles a table version.
    pub fn for_table(table: &Table) -> TableShape {
        let stored = table.with_hidden(|_| true);
        let stored = stored.map(|stored| Box::new(TableShape::compile(&stored)));
        TableShape { stored, ..TableShape::compile(table) }
    }

    fn compile(table: &Table) -> TableShape {
        let unknown = ShapeColumn { known: false, dropped_at: TimestampMicros::NONE, path: None };
        let mut columns = vec![unknown; usize::from(table.next_column_id)];
        let mut filters = !table.dropped.is_empty();
        for column in &table.columns {
            let index = usize::from(column.id.0);
            if index >= columns.len() {
                columns.resize(
                    index + 1,
                    ShapeColumn { known: false, dropped_at: TimestampMicros::NONE, path: None },
                );
            }
            let dropped_at =
                table.dropped.get(&column.name).map_or(TimestampMicros::NONE, |d| d.dropped_at);
            if dropped_at != TimestampMicros::NONE {
                filters = true;
            }
            match columns.get_mut(index) {
                Some(slot) => {
                    *slot = ShapeColumn { known: true, dropped_at, path: path_comparator(column) };
                }
                None => stdx::invariant!(false, "shape: column {index} would be unknown"),
            }
        }
        TableShape {
            table: table.id,
            version: table.version,
            clustering: ClusteringComparator::for_table(table),
            columns,
            filters,
            counters: table.is_counter(),
            stored: None,
        }
    }

    /// The shape for stored data: memtables, files and data for other replicas keep cells of
    /// dropped columns that are newer than the drop, as the column may be added again. The shape
    /// itself is for data shown to clients.
    #[inline]
    pub fn stored(&self) -> &TableShape {
        self.stored.as_deref().unwrap_or(self)
    }

    /// Returns true if a column is hidden: it was dropped and not added again.
    #[inline]
    pub fn hides(&self) -> bool {
        self.stored.is_some()
    }

    /// Returns true if a cell of this column is stored, but not visible.
    pub fn is_hidden(&self, id: ColumnId, timestamp: TimestampMicros) -> bool {
        let stored = self.stored.as_deref();
        self.visible_after(id).is_none() && stored.is_some_and(|s| s.is_visible(id, timestamp))
    }

    /// The table.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// The table's schema version this was compiled from.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Order of rows within a partition.
    #[inline]
    pub fn clustering(&self) -> &ClusteringComparator {
        &self.clustering
    }

    /// Returns true if its cells are counters: they are merged, and no cells of other kinds stand
    /// beside them.
    #[inline]
    pub fn has_counters(&self) -> bool {
        self.counters
    }

    /// True when cells of some column id may have to be hidden.
    #[inline]
    pub(crate) fn has_filters(&self) -> bool {
        self.filters
    }

    /// Cells of this column at or before the returned timestamp are invisible; `None` = all are.
    pub(crate) fn visible_after(&self, id: ColumnId) -> Option<TimestampMicros> {
        match self.columns.get(usize::from(id.0)) {
            Some(c) if c.known => Some(c.dropped_at),
            _ => None,
        }
    }

    /// Returns true if a cell of this column written at `timestamp` is visible.
    pub fn is_visible(&self, id: ColumnId, timestamp: TimestampMicros) -> bool {
        match self.visible_after(id) {
            Some(after) => after == TimestampMicros::NONE || timestamp > after,
            None => false,
        }
    }

    /// Order of two paths of a complex column.
    pub fn compare_paths(&self, id: ColumnId, a: &[u8], b: &[u8]) -> Ordering {
        match self.columns.get(usize::from(id.0)) {
            Some(ShapeColumn { path: Some(comparator), .. }) => comparator.compare(a, b),
            _ => a.cmp(b),
        }
    }
}
