//! Definition of a global index: what it may index, and the table of its entries.
//!
//! The entry table has the partition key `(v)` and the clustering columns `idx_token`, partition key and clustering
//! columns of the base table, as a materialized view that ScyllaDB keeps for an index. Its one regular column,
//! `idx_expires`, holds the entries that expire ([`crate::entries`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use data::ClusteringComparator;
use schema::{Column, ColumnKind, ColumnMask, Table, TableKind, TableOptions};
use stdx::{ColumnId, TableId};
use types::{Comparator, CqlType};

use crate::canonical::CanonicalForm;
use crate::entry_key::EntryKeys;

/// Reason for which a column cannot have a global index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The table has no such column.
    #[error("column {0} does not exist")]
    NoColumn(Arc<str>),
    /// A column of the primary key.
    #[error("global indexes on primary key column {0} are not supported")]
    KeyColumn(Arc<str>),
    /// A static column.
    #[error("global indexes on static column {0} are not supported")]
    StaticColumn(Arc<str>),
    /// A type that the index cannot hold.
    #[error("global indexes on column {column} of type {ty} are not supported")]
    ColumnType {
        /// The column.
        column: Arc<str>,
        /// Its type.
        ty: String,
    },
    /// A table with counters, made WITH COMPACT STORAGE, or computed on read.
    #[error("global indexes on {0} are not supported")]
    TableKind(&'static str),
}

/// One global index, compiled for one version of its base table.
#[derive(Clone, Debug)]
pub struct GlobalIndex {
    column: ColumnId,
    values: Comparator,
    canonical: CanonicalForm,
    entries: Table,
    keys: EntryKeys,
}

impl GlobalIndex {
    /// Compiles the index `name` of a column. `id` is the id of its entry table.
    ///
    /// # Errors
    /// The column or table cannot have a global index.
    pub fn new(
        base: &Table,
        column: &str,
        name: &str,
        id: TableId,
    ) -> Result<GlobalIndex, Unsupported> {
        match base.kind {
            TableKind::Regular => {}
            TableKind::Virtual => return Err(Unsupported::TableKind("virtual tables")),
            TableKind::Compact(_) => {
                return Err(Unsupported::TableKind("tables made WITH COMPACT STORAGE"));
            }
        }
        if base.is_counter() {
            return Err(Unsupported::TableKind("counter tables"));
        }
        let indexed =
            base.column(column).ok_or_else(|| Unsupported::NoColumn(Arc::from(column)))?;
        match indexed.kind {
            ColumnKind::PartitionKey(_) | ColumnKind::Clustering { .. } => {
                return Err(Unsupported::KeyColumn(indexed.name.clone()));
            }
            ColumnKind::Static => return Err(Unsupported::StaticColumn(indexed.name.clone())),
            ColumnKind::Regular => {}
        }
        let canonical = CanonicalForm::of_type(&indexed.ty).ok_or_else(|| {
            let ty = indexed.ty.to_string();
            Unsupported::ColumnType { column: indexed.name.clone(), ty }
        })?;
        let entries = entry_table(base, indexed, name, id);
        let keys = EntryKeys::new(
            base.partition_key_count,
            base.clustering_count,
            ClusteringComparator::for_table(&entries),
        );
        let values = Comparator::for_type(&indexed.ty);
        Ok(GlobalIndex { column: indexed.id, values, canonical, entries, keys })
    }

    /// Id of the indexed column in the base table.
    pub fn column(&self) -> ColumnId {
        self.column
    }

    /// Order and equality of the indexed values.
    pub fn values(&self) -> &Comparator {
        &self.values
    }

    /// Partition key of the entries of a value.
    pub fn entry_partition(&self, value: &[u8]) -> Vec<u8> {
        self.canonical.apply(value)
    }

    /// The entry table.
    pub fn entry_table(&self) -> &Table {
        &self.entries
    }

    /// Clusterings of the entry table, and the rows of the base table that they name.
    pub fn keys(&self) -> &EntryKeys {
        &self.keys
    }

    /// Id of the column `idx_expires` in the entry table.
    pub fn expires_column(&self) -> ColumnId {
        ColumnId(self.entries.next_column_id.saturating_sub(1))
    }
}

/// The table of the entries: `((v), idx_token, partition key…, clustering…)` and `idx_expires`.
fn entry_table(base: &Table, indexed: &Column, name: &str, id: TableId) -> Table {
    let mut columns: Vec<Column> = Vec::new();
    let mut masks: BTreeMap<ColumnId, ColumnMask> = BTreeMap::new();
    let mut add = |name: Arc<str>, ty: CqlType, kind: ColumnKind, source: Option<&Column>| {
        let id = ColumnId(u16::try_from(columns.len()).unwrap_or(u16::MAX));
        // Values of the base table are masked here as there.
        if let Some(mask) = source.and_then(|source| base.mask_of(source)) {
            masks.insert(id, mask.clone());
        }
        columns.push(Column { id, name, ty, kind });
    };
    add(indexed.name.clone(), indexed.ty.clone(), ColumnKind::PartitionKey(0), Some(indexed));
    let token = free_name(base, "idx_token");
    let first = ColumnKind::Clustering { position: 0, reversed: false };
    add(token, CqlType::Bigint, first, None);
    let key_columns = base.partition_key().iter().chain(base.clustering());
    for (position, column) in (1_u16..).zip(key_columns) {
        let reversed = matches!(column.kind, ColumnKind::Clustering { reversed: true, .. });
        let kind = ColumnKind::Clustering { position, reversed };
        add(column.name.clone(), column.ty.clone(), kind, Some(column));
    }
    add(free_name(base, "idx_expires"), CqlType::Timestamp, ColumnKind::Regular, None);
    let next_column_id = u16::try_from(columns.len()).unwrap_or(u16::MAX);
    Table {
        id,
        keyspace: base.keyspace.clone(),
        name: format!("{name}_index").into(),
        kind: TableKind::Regular,
        columns,
        partition_key_count: 1,
        clustering_count: base.partition_key_count + base.clustering_count + 1,
        static_count: 0,
        options: entry_options(&base.options),
        dropped: BTreeMap::new(),
        masks,
        indexes: Default::default(),
        version: 1,
        next_column_id,
    }
}

/// Options of the entry table: those of the base table, with its encryption and `gc_grace_seconds`. Entries have TTLs of
/// their own, and windows by write time do not fit timestamps that are times of expiry.
fn entry_options(base: &TableOptions) -> TableOptions {
    let mut options = TableOptions { default_time_to_live: 0, cdc: false, ..base.clone() };
    let is_by_time =
        options.compaction.get("class").is_some_and(|class| class.contains("TimeWindow"));
    if is_by_time {
        options.compaction = TableOptions::default().compaction;
    }
    options.comment = String::new();
    options
}

/// A name that no column of the base table has: `name`, `name_1`, `name_2`…
fn free_name(base: &Table, name: &str) -> Arc<str> {
    let numbered = (1_u32..).map(|number| format!("{name}_{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|name| base.column(name).is_none())
        .unwrap_or_default()
        .into()
}
