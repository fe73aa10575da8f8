//! Hidden columns: dropped by ALTER TABLE and not added again. Their cells that are newer than the drop are kept, since
//! ADD shows them again, as in Cassandra.
//!
//! A file has a hidden column in its header only where it has cells of it: a drop is mostly newer than all cells, and
//! every row of a file pays for a column that it does not have.
//!
//! INV-hidden-1: a file that is written from others or from a memtable has each hidden column of which they have cells.

use std::rc::Rc;
use std::sync::Arc;

use data::command::KeyRange;
use data::{Advance, ColumnRef, Cursor, Item, MergeCursor, MergeMode, RowRef, Slices, TableShape};
use schema::{ColumnKind, DroppedColumn, Table};
use stdx::ColumnId;

use crate::error::StoreError;
use crate::files::table_files::TableFile;
use crate::memtable::{Memtable, MemtableScan};
use crate::store::Store;
use crate::tables::table::TableVersion;
use crate::write::flush::ITEMS_PER_LOOK;

/// Columns of a row that have hidden cells.
pub(crate) fn cells<'r>(
    shape: &'r TableShape,
    row: RowRef<'r>,
) -> impl Iterator<Item = ColumnId> + use<'r> {
    let is_hidden = move |(id, column): &(ColumnId, ColumnRef<'_>)| match column {
        ColumnRef::Simple(cell) => shape.is_hidden(*id, cell.timestamp),
        ColumnRef::Complex(complex) => {
            let deletion = complex.deletion;
            (!deletion.is_live() && shape.is_hidden(*id, deletion.timestamp))
                || complex.cells().any(|(_, cell)| shape.is_hidden(*id, cell.timestamp))
        }
    };
    row.columns().filter(is_hidden).map(|(id, _)| id)
}

/// The table with the hidden columns of which files may have cells.
pub(crate) fn table_to_merge(table: &Arc<Table>, files: &[Rc<TableFile>]) -> Arc<Table> {
    let has_some = |dropped: &DroppedColumn, file: &TableFile| {
        let statistics = file.reader.meta().statistics();
        let columns = match dropped.column.kind {
            ColumnKind::Static => &statistics.header.statics,
            _ => &statistics.header.regulars,
        };
        statistics.stats.max_timestamp > dropped.dropped_at
            && columns.iter().any(|column| *column.name == *dropped.column.name)
    };
    let kept = table.with_hidden(|dropped| files.iter().any(|file| has_some(dropped, file)));
    kept.map_or_else(|| table.clone(), Arc::new)
}

/// The table with all hidden columns.
pub(crate) fn table_with_all(table: &Arc<Table>) -> Arc<Table> {
    table.with_hidden(|_| true).map_or_else(|| table.clone(), Arc::new)
}

impl Store {
    /// The table with the hidden columns of which a memtable has cells.
    pub(crate) async fn table_to_flush(
        &self,
        version: &TableVersion,
        memtable: &Rc<Memtable>,
    ) -> Result<Arc<Table>, StoreError> {
        let (table, shape) = (&version.table, &version.shape);
        if !shape.hides() || !memtable.may_hide() {
            return Ok(table.clone());
        }
        let slices = Arc::new(Slices::all());
        let scan =
            MemtableScan::new(memtable.clone(), shape.clone(), &KeyRange::all(), slices, false);
        let mut merge = MergeCursor::new(shape.stored(), MergeMode::All, false, [scan]);
        let mut found: Vec<ColumnId> = Vec::new();
        let mut items = 0;
        while merge.advance()? == Advance::Item {
            if let Item::Static(row) | Item::Row { row, .. } = merge.item() {
                found.extend(cells(shape, row));
                found.sort_unstable();
                found.dedup();
            }
            items += 1;
            if items % ITEMS_PER_LOOK == 0 && self.inner.rt.is_yield_due() {
                self.inner.rt.yield_if_due().await;
            }
        }
        let kept = table.with_hidden(|dropped| found.contains(&dropped.column.id));
        Ok(kept.map_or_else(|| table.clone(), Arc::new))
    }
}
