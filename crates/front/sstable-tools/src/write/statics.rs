//! Lines that name no clustering column: a partition's static columns only, which `INSERT JSON`
//! does not accept.
//!
//! They are planned as rows of a table that has the static columns as its regular ones; the
//! resulting row becomes the static row of the partition.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::row::{ColumnRef, RowBuilder};
use data::{DeletionTime, Liveness, MutationBuilder, MutationRef, RowRef};
use schema::{ColumnKind, Schema, Table};
use serde::de::IgnoredAny;

/// The schema in which the table has its partition key and its static columns only; `None`: it has no
/// clustering columns, or none that are static.
pub(super) fn schema_of_statics(schema: &Schema, table: &Table) -> Option<Schema> {
    if table.clustering().is_empty() || table.statics().is_empty() {
        return None;
    }
    let mut of_statics = table.clone();
    of_statics
        .columns
        .retain(|column| matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Static));
    for column in &mut of_statics.columns {
        if column.kind == ColumnKind::Static {
            column.kind = ColumnKind::Regular;
        }
    }
    (of_statics.clustering_count, of_statics.static_count) = (0, 0);
    of_statics.masks.clear();
    of_statics.dropped.clear();
    let of_statics = Arc::new(of_statics);
    let mut only = schema.clone();
    only.tables_by_id.insert(table.id, of_statics.clone());
    let keyspace = only.keyspaces.get_mut(&table.keyspace)?;
    Arc::make_mut(keyspace).tables.insert(table.name.clone(), of_statics);
    Some(only)
}

/// Returns true if a line is of static columns only.
///
/// # Errors
/// It names no clustering column, but one that belongs to a row.
pub(super) fn is_of_statics(table: &Table, json: &str) -> Result<bool, String> {
    // A line that is no object is refused where it is planned.
    let Ok(named) = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(json) else {
        return Ok(false);
    };
    let column = |name: &String| table.column(&plain_name(name));
    let kinds = || named.keys().filter_map(column);
    if kinds().any(|column| matches!(column.kind, ColumnKind::Clustering { .. })) {
        return Ok(false);
    }
    match kinds().find(|column| column.kind == ColumnKind::Regular) {
        Some(column) => {
            let name = &column.name;
            Err(format!("column {name} belongs to a row, and no clustering column is given"))
        }
        None => Ok(true),
    }
}

/// The name that a key of JSON means: in quotes as it is, else in lower case.
fn plain_name(key: &str) -> String {
    match key.strip_prefix('"').and_then(|key| key.strip_suffix('"')) {
        Some(name) => name.to_owned(),
        None => key.to_lowercase(),
    }
}

/// The mutation of the real table. Nothing is left of the row's own marker: static rows have none.
pub(super) fn static_mutation(planned: &MutationRef<'_>) -> Vec<u8> {
    let (mut row, mut out) = (Vec::new(), Vec::new());
    if let Some((_, planned)) = planned.rows().next() {
        let base = planned.base_timestamp();
        let mut builder = RowBuilder::new(&mut row, Liveness::NONE, DeletionTime::LIVE, base);
        for (id, column) in planned.columns() {
            match column {
                ColumnRef::Simple(cell) => builder.cell(id, &cell),
                ColumnRef::Complex(complex) => {
                    builder.begin_complex(id, complex.deletion);
                    for (path, cell) in complex.cells() {
                        builder.complex_cell(path, &cell);
                    }
                    builder.end_complex();
                }
            }
        }
        builder.finish();
    }
    let mut builder =
        MutationBuilder::new(&mut out, planned.table, planned.schema_version, planned.key);
    if !row.is_empty() {
        builder.static_row(RowRef::trusted(&row));
    }
    builder.finish();
    out
}
