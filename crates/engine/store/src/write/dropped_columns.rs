//! Dropped columns whose cells a memtable has.

use std::rc::Rc;
use std::sync::Arc;

use data::command::KeyRange;
use data::{Advance, Cursor, Item, MergeCursor, MergeMode, Slices};
use schema::Table;
use stdx::ColumnId;

use crate::error::StoreError;
use crate::memtable::hidden_cells::cells;
use crate::memtable::{ITEMS_PER_LOOK, Memtable, MemtableScan};
use crate::tables::table::TableVersion;
use crate::write::Writer;

impl Writer {
    /// The table with the hidden columns whose cells a memtable has.
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
            if items % ITEMS_PER_LOOK == 0 && self.env.rt.is_yield_due() {
                self.env.rt.yield_if_due().await;
            }
        }
        let kept = table.with_hidden(|dropped| found.contains(&dropped.column.id));
        Ok(kept.map_or_else(|| table.clone(), Arc::new))
    }
}
