//! Guardrails of collections that are not frozen, where a file merges the writes of several statements.
//!
//! Source: Cassandra's `SortedTableWriter.guardCollectionSize`. Only live elements count; nothing is refused.

use schema::{Column, Table};
use sstable::{LargeCell, LargeData};
use types::CqlType;

use super::{PartitionGuardrails, Severity, cut};
use crate::options::is_of_system;
use crate::tables::composite_keys::composite_parts;

fn is_guarded(column: &Column) -> bool {
    column.ty.is_collection() && column.ty.is_multi_cell()
}

/// Returns true if the guardrails apply to a table.
pub(super) fn are_guarded(table: &Table) -> bool {
    table.columns.iter().any(is_guarded) && !is_of_system(table)
}

/// Messages for the collections of a file, in Cassandra's words.
pub(super) fn words(
    table: &Table,
    guardrails: &PartitionGuardrails,
    data: &LargeData,
) -> Vec<(Severity, String)> {
    let mut said = Vec::new();
    for found in &data.collections {
        let column = table.column_by_id(found.column).filter(|column| is_guarded(column));
        if let Some(column) = column {
            said.extend(messages(guardrails, &place_of(table, column, found), found));
        }
    }
    said
}

/// Column, primary key as a literal, table.
fn place_of(table: &Table, column: &Column, found: &LargeCell) -> String {
    let parts = match table.partition_key_count {
        1 => vec![found.key.as_slice()],
        _ => composite_parts(&found.key),
    };
    let values = parts.into_iter().map(Some);
    let values =
        values.chain(data::clustering::components(found.clustering.as_deref().unwrap_or(&[])));
    let types = table.partition_key().iter().chain(table.clustering()).map(|column| &column.ty);
    let literal = |(ty, value): (&CqlType, Option<&[u8]>)| match value {
        Some(value) => ty.format_cql_literal(value),
        None => "null".to_owned(),
    };
    let mut literals: Vec<String> = types.zip(values).map(literal).collect();
    let key = match literals.len() {
        1 => literals.pop().unwrap_or_default(),
        _ => format!("({})", literals.join(", ")),
    };
    let quoted = types::name::quote_identifier;
    let (keyspace, name) = (quoted(&table.keyspace), quoted(&table.name));
    format!("{} in row {} in table {keyspace}.{name}", column.name, cut(key))
}

fn messages(
    guardrails: &PartitionGuardrails,
    what: &str,
    found: &LargeCell,
) -> Vec<(Severity, String)> {
    let mut said = Vec::new();
    if let Some((severity, limit)) = guardrails.collection_size.crossed(found.bytes) {
        said.push((
            severity,
            format!(
                "Guardrail collection_size violated: Detected collection {what} of size {}, this exceeds the {} \
                 threshold of {limit}.",
                found.bytes,
                severity.name()
            ),
        ));
    }
    if let Some((severity, limit)) = guardrails.collection_items.crossed(found.elements) {
        said.push((
            severity,
            format!(
                "Guardrail items_per_collection violated: Detected collection {what} with {} items, this exceeds \
                 the {} threshold of {limit}.",
                found.elements,
                severity.name()
            ),
        ));
    }
    said
}
