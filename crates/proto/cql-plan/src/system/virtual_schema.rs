//! Rows of `system_virtual_schema`: the virtual keyspaces, tables and columns of a schema.
//!
//! Owns: those rows, in read order. Never: stores them; they are computed for each read.
//!
//! Source: Cassandra 5.0 `VirtualSchemaKeyspace`.

use data::ClusteringComparator;
use schema::{Keyspace, Schema, Table};

use crate::system::rows::{by_name, column_values};
use crate::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};

/// All rows of one table of `system_virtual_schema`, by token, key and clustering; none for a
/// table of another keyspace.
///
/// # Errors
/// `table` is not defined as Cassandra 5.0 defines it.
pub fn rows(schema: &Schema, table: &Table) -> Result<Vec<VirtualRow>, VirtualRowError> {
    if &*table.keyspace != "system_virtual_schema" {
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for keyspace in schema.keyspaces.values().filter(|k| k.is_virtual) {
        keyspace_rows(table, keyspace, &mut rows)?;
    }
    sort(table, &mut rows);
    Ok(rows)
}

fn keyspace_rows(
    table: &Table,
    keyspace: &Keyspace,
    out: &mut Vec<VirtualRow>,
) -> Result<(), VirtualRowError> {
    match &*table.name {
        "keyspaces" => {
            let mut row = VirtualRowBuilder::new(table);
            out.push(row.text("keyspace_name", &keyspace.name).finish()?);
        }
        "tables" => {
            for described in keyspace.tables.values() {
                let row = VirtualRowBuilder::new(table)
                    .text("keyspace_name", &keyspace.name)
                    .text("table_name", &described.name)
                    .text("comment", &described.options.comment)
                    .finish()?;
                out.push(row);
            }
        }
        "columns" => {
            for described in keyspace.tables.values() {
                for column in by_name(described) {
                    let mut row = VirtualRowBuilder::new(table);
                    column_values(&mut row, described, column);
                    out.push(row.finish()?);
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Sorts rows of a computed table as reads return them: by token, key and clustering.
pub fn sort(table: &Table, rows: &mut [VirtualRow]) {
    let clustering = ClusteringComparator::for_table(table);
    rows.sort_by(|a, b| {
        let by_token = codec::token_of(&a.key).cmp(&codec::token_of(&b.key));
        let by_key = by_token.then_with(|| a.key.cmp(&b.key));
        by_key.then_with(|| clustering.compare(&a.clustering, &b.clustering))
    });
}
