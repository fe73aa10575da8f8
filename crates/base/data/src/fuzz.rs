//! Fuzz targets of the decoders: plain functions over bytes that must never panic.

use crate::mutation::MutationRef;
use crate::row::{ColumnRef, RowRef};
use stdx::DeletionSeconds;

fn walk_row(row: RowRef<'_>) {
    let _ = row.has_live_data(DeletionSeconds(0));
    for (_, column) in row.columns() {
        if let ColumnRef::Complex(complex) = column {
            let _ = complex.cells().count();
        }
    }
}

/// A packed row from outside.
pub fn fuzz_row(data: &[u8]) {
    if let Some(row) = RowRef::parse(data) {
        walk_row(row);
    }
}

/// A mutation from outside; the first byte says how many clustering columns the table has.
pub fn fuzz_mutation(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    if let Some(mutation) = MutationRef::parse(data, usize::from(first % 4)) {
        if let Some(row) = mutation.static_row {
            walk_row(row);
        }
        let mut rows = 0;
        for (clustering, row) in mutation.rows() {
            let _ = crate::clustering::components(clustering).count();
            walk_row(row);
            rows += 1;
        }
        stdx::invariant!(rows == mutation.row_count(), "mutation: {rows} rows walked");
        let _ = mutation.range_tombstones().count();
    }
}
