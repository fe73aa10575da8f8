//! Cells of dropped columns that are newer than the drop.

use data::{ColumnRef, RowRef, TableShape};
use stdx::ColumnId;

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
