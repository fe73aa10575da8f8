//! Tables by name and kind: the tables that a statement may name and those that it may change.

use cql_syntax::ast::QualifiedName;
use schema::{Column, Table};

use crate::error::PlanError;

/// The keyspace a name means.
///
/// # Errors
/// The name has none and the session uses none.
pub fn keyspace_of(name: &QualifiedName, session: Option<&str>) -> Result<String, PlanError> {
    match (&name.keyspace, session) {
        (Some(keyspace), _) => Ok(keyspace.text.clone()),
        (None, Some(keyspace)) => Ok(keyspace.to_owned()),
        (None, None) => Err(no_keyspace()),
    }
}

pub(crate) fn no_keyspace() -> PlanError {
    PlanError::invalid(
        "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
    )
}

/// The column of a name.
pub(crate) fn existing_column<'t>(table: &'t Table, name: &str) -> Result<&'t Column, PlanError> {
    table.visible_column(name).ok_or_else(|| {
        let (name, table) = (types::name::quote_identifier(name), full_name(table));
        PlanError::invalid(format!("Undefined column name {name} in table {table}"))
    })
}

/// Returns true for the table of the node's log records, which is unlike other virtual tables: its
/// newest partitions come first, it can be truncated, and filtering needs ALLOW FILTERING.
///
/// Source: Cassandra's `LogMessagesTable`.
pub fn is_log_table(table: &Table) -> bool {
    table.is_virtual() && &*table.keyspace == "system_views" && &*table.name == "system_logs"
}

/// Returns true for the table of built indexes, `system."IndexInfo"`: the node computes its rows, and stores none. A Cassandra
/// that gets the directory would take an index that is listed there for built.
pub fn is_index_table(table: &Table) -> bool {
    &*table.keyspace == "system" && &*table.name == "IndexInfo"
}

/// Returns true for `system_schema.indexes`: statements read rows that the node computes of its schema. Its stored rows
/// are for a Cassandra that gets the directory, which knows no local indexes.
pub fn is_index_definitions(table: &Table) -> bool {
    &*table.keyspace == "system_schema" && &*table.name == "indexes"
}

/// Returns true if the rows of a table are computed from the roles in the metadata.
pub fn is_computed(table: &Table) -> bool {
    &*table.keyspace == "system_auth"
}

/// Refuses to change the contents of keyspaces that only the node itself writes. Cassandra executes
/// such statements of any user with the permission, and does not start afterwards.
pub(crate) fn check_not_system(table: &Table) -> Result<(), PlanError> {
    if matches!(&*table.keyspace, "system" | "system_schema") {
        return Err(PlanError::invalid(format!(
            "{} keyspace is not user-modifiable.",
            table.keyspace
        )));
    }
    if is_computed(table) {
        return Err(PlanError::invalid(format!(
            "{} is made of the cluster's metadata: change it by CREATE ROLE, GRANT and the like",
            full_name(table)
        )));
    }
    Ok(())
}

/// `keyspace.table` as Cassandra's `TableMetadata.toString` gives it.
pub(crate) fn full_name(table: &Table) -> String {
    format!(
        "{}.{}",
        types::name::quote_identifier(&table.keyspace),
        types::name::quote_identifier(&table.name)
    )
}
