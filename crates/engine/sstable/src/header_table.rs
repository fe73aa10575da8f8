//! A table as described by the header of a file, for readers without a schema.

use schema::{Column, ColumnKind, Table, TableKind, TableOptions};
use sst_format::header::SerializationHeader;
use stdx::{ColumnId, TableId, Uuid};

/// Builds a table from a file's own description, for tools that have no schema: key columns have
/// made-up names, ids are positions.
pub fn table_of_header(header: &SerializationHeader) -> Table {
    let mut columns = Vec::new();
    let mut push = |name: String, ty: &types::CqlType, kind: ColumnKind| {
        let id = ColumnId(u16::try_from(columns.len()).unwrap_or(u16::MAX));
        columns.push(Column { id, name: name.into(), ty: ty.clone(), kind });
    };
    for (i, ty) in (0u16..).zip(&header.key_types) {
        // Not a name that CQL could give: no clash with columns of the file.
        push(format!("\0partition key {i}"), ty, ColumnKind::PartitionKey(i));
    }
    for (i, (ty, reversed)) in (0u16..).zip(&header.clustering_types) {
        let kind = ColumnKind::Clustering { position: i, reversed: *reversed };
        push(format!("\0clustering {i}"), ty, kind);
    }
    for (list, kind) in
        [(&header.statics, ColumnKind::Static), (&header.regulars, ColumnKind::Regular)]
    {
        for column in list {
            push(column.name.clone(), &column.ty, kind);
        }
    }
    Table {
        id: TableId(Uuid::nil()),
        keyspace: "keyspace".into(),
        name: "table".into(),
        kind: TableKind::Regular,
        next_column_id: u16::try_from(columns.len()).unwrap_or(u16::MAX),
        columns,
        partition_key_count: header.key_types.len(),
        clustering_count: header.clustering_types.len(),
        static_count: header.statics.len(),
        options: TableOptions::default(),
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Default::default(),
        version: 1,
    }
}
