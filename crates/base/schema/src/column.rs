//! Columns of tables.
//!
//! Owns: what a column is. Never: their order (`column_order`), masks and options (`model`).

use std::sync::Arc;

use stdx::ColumnId;
use types::CqlType;

/// Where a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnKind {
    /// Part of the partition key, at this position.
    PartitionKey(u16),
    /// Clustering column, at this position; `reversed` is `CLUSTERING ORDER BY … DESC`.
    Clustering {
        /// Position among the clustering columns.
        position: u16,
        /// Descending order.
        reversed: bool,
    },
    /// One value per partition.
    Static,
    /// One value per row.
    Regular,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Number within the table, never reused.
    pub id: ColumnId,
    /// Name, case kept.
    pub name: Arc<str>,
    /// CQL type; the reversal of a clustering column is in `kind`, not here.
    pub ty: CqlType,
    /// Where it stands.
    pub kind: ColumnKind,
}

impl Column {
    /// Stored as many cells (a collection or user type that is not frozen).
    pub fn is_complex(&self) -> bool {
        matches!(self.kind, ColumnKind::Static | ColumnKind::Regular) && self.ty.is_multi_cell()
    }
}
