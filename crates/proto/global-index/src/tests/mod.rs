//! Unit cases, and random histories over replicas that miss writes.

mod cases;
mod histories;
mod late_message;
mod replicas;
mod world;

use std::collections::BTreeMap;

use schema::{Column, ColumnKind, Table, TableKind, TableOptions};
use stdx::{ColumnId, TableId, Uuid};
use types::CqlType;

use crate::GlobalIndex;

pub(crate) const V: ColumnId = ColumnId(2);
pub(crate) const W: ColumnId = ColumnId(3);

/// `pk int, ck int, v text, w text`, primary key (pk, ck).
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
            column(2, "v", CqlType::Text, ColumnKind::Regular),
            column(3, "w", CqlType::Text, ColumnKind::Regular),
        ],
        partition_key_count: 1,
        clustering_count: 1,
        static_count: 0,
        options: TableOptions::default(),
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 4,
    }
}

pub(crate) fn index() -> GlobalIndex {
    GlobalIndex::new(&table(), "v", "t_v_idx", TableId(Uuid::from_u128(2))).unwrap()
}
