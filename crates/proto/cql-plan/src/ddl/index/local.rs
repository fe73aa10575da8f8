//! ScyllaDB's local index, `((partition key), column)`: the brackets of the statement, and the target as JSON.
//!
//! Here it is a legacy index in all but its definition: every index is beside the rows of their partition.
//!
//! Source: ScyllaDB's documentation ("Local Secondary Indexes", "Secondary indexes in Scylla"). Its texts are not
//! documented; those here are ours.

use cql_syntax::ast::Ident;
use schema::{ColumnKind, IndexTarget, Table};
use types::format::push_json_string;

use crate::error::PlanError;

/// Checks the columns of the inner brackets: the partition key, in its order.
pub(super) fn check_partition_key(columns: &[Ident], table: &Table) -> Result<(), PlanError> {
    let key: Vec<&str> = table.partition_key().iter().map(|column| &*column.name).collect();
    let mut seen: Vec<&str> = Vec::new();
    for column in columns {
        let name = column.text.as_str();
        if table.visible_column(name).is_none() {
            return Err(super::undefined(name, table));
        }
        if !key.contains(&name) || seen.contains(&name) {
            return Err(PlanError::invalid(format!(
                "Local index definition must contain full partition key only. Redundant column: \
                 {name}"
            )));
        }
        seen.push(name);
    }
    if seen != key {
        return Err(PlanError::invalid(format!(
            "Local index definition must contain full partition key, in its order: ({})",
            table.partition_key_names()
        )));
    }
    Ok(())
}

/// Checks the indexed column.
pub(super) fn check_target(target: &IndexTarget, table: &Table) -> Result<(), PlanError> {
    let column = table.column(&target.column);
    if column.is_some_and(|column| matches!(column.kind, ColumnKind::PartitionKey(_))) {
        return Err(PlanError::invalid(format!(
            "Cannot create local index on partition key column {}: all rows of a partition have the \
             same value",
            target.column
        )));
    }
    Ok(())
}

/// The target as `system_schema.indexes` has it: `{"pk":["p"],"ck":["keys(m)"]}`. Names are not quoted as in CQL.
pub(super) fn json(table: &Table, targets: &[IndexTarget]) -> String {
    let key = table.partition_key().iter().map(|column| string(&column.name));
    let targets = targets.iter().map(|target| match target.part.function() {
        None => string(&target.column),
        Some(function) => string(&format!("{function}({})", target.column)),
    });
    let list = |names: Vec<String>| names.join(",");
    format!("{{\"pk\":[{}],\"ck\":[{}]}}", list(key.collect()), list(targets.collect()))
}

/// A JSON string.
fn string(text: &str) -> String {
    let mut out = String::new();
    push_json_string(&mut out, text);
    out
}
