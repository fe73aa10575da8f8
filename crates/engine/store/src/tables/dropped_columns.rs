//! Hidden columns: dropped by ALTER TABLE and not added again. Their cells that are newer than the drop are kept, since
//! ADD shows them again, as in Cassandra.
//!
//! A file has a hidden column in its header only where it has cells of it: a drop is mostly newer than all cells, and
//! every row of a file pays for a column that it does not have.
//!
//! INV-hidden-1: a file that is written from others or from a memtable has each hidden column whose cells they have.

use std::rc::Rc;
use std::sync::Arc;

use schema::{ColumnKind, DroppedColumn, Table};

use crate::tables::table_file::TableFile;

/// The table with the hidden columns whose cells files may have.
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
