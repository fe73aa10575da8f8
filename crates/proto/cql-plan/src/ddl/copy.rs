//! CREATE TABLE … LIKE: a new, empty table with the columns and options of another.
//!
//! Copied are keys, columns with their types and masks, and options; not dropped columns, nor
//! permissions. Cassandra 5.0 has no such statement; later ones do (CEP-43), and the texts here are
//! ours.

use std::collections::BTreeMap;

use cql_syntax::ast::CopyTable;
use schema::{Keyspace, SchemaChange, Table, TableKind};
use stdx::TableId;
use types::CqlType;

use super::table::{check_compaction, check_compression, check_counter_options, check_name};
use super::{
    DdlContext, DdlOutcome, On, SchemaEventKind, SchemaEventTarget, check_not_replicated_system,
    find_keyspace,
};
use crate::error::PlanError;
use crate::options::TableProperties;

pub(super) fn create(
    statement: &CopyTable,
    keyspace: &str,
    cx: &mut DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    check_not_replicated_system(keyspace, "CREATE", On::AllTables)?;
    let source_keyspace = statement.source.keyspace.as_ref().map_or(keyspace, |k| &k.text);
    let source_name = statement.source.name.text.as_str();
    let source = cx.schema.keyspace(source_keyspace).and_then(|k| k.tables.get(source_name));
    let keyspace = find_keyspace(cx.schema, keyspace)?;
    let name = statement.table.name.text.as_str();
    if keyspace.tables.contains_key(name) {
        if statement.if_not_exists {
            return Ok(DdlOutcome::nothing());
        }
        return Err(PlanError::table_exists(&keyspace.name, name));
    }
    let Some(source) = source else {
        return Err(PlanError::invalid(format!(
            "Table '{source_keyspace}.{source_name}' doesn't exist"
        )));
    };
    check_name(name, keyspace)?;
    if source.kind == TableKind::Virtual {
        return Err(PlanError::invalid(format!(
            "Cannot use CREATE TABLE LIKE on the virtual table {source_keyspace}.{source_name}"
        )));
    }
    check_types(source, keyspace)?;
    check_masks(source, keyspace)?;
    if statement.properties.iter().any(|p| p.name.text.eq_ignore_ascii_case("id")) {
        return Err(PlanError::config("Cannot set the id of a table in CREATE TABLE LIKE"));
    }
    let options = TableProperties::read(&statement.properties, cx.default_compaction)?
        .on_top_of(&source.options)?;
    if source.is_counter() {
        check_counter_options(&options)?;
    }
    let table = Table {
        id: TableId((cx.new_table_id)()),
        keyspace: keyspace.name.clone(),
        name: name.into(),
        options,
        dropped: BTreeMap::new(),
        indexes: Default::default(),
        version: 1,
        ..Table::clone(source)
    };
    if let Some(watch) = cx.watch {
        watch.columns_per_table(name, table.columns.len())?;
        if table.compact_form().is_some() {
            watch.compact_table()?;
        }
    }
    check_compression(&table, cx)?;
    check_compaction(&table)?;
    Ok(DdlOutcome::one(
        SchemaChange::CreateTable(table),
        SchemaEventKind::Created,
        SchemaEventTarget::Table,
        &keyspace.name,
        name,
    ))
}

/// User types are of one keyspace.
fn check_types(source: &Table, keyspace: &Keyspace) -> Result<(), PlanError> {
    let of_types = |ty: &CqlType| ty.contains_udt();
    match source.columns.iter().find(|column| of_types(&column.ty)) {
        Some(column) if source.keyspace != keyspace.name => Err(PlanError::invalid(format!(
            "Cannot use CREATE TABLE LIKE in another keyspace: column '{}' has a user type of \
             keyspace '{}'",
            column.name, source.keyspace
        ))),
        _ => Ok(()),
    }
}

/// A function of a user's masks tables of its own keyspace.
fn check_masks(source: &Table, keyspace: &Keyspace) -> Result<(), PlanError> {
    match source.masks.values().find(|mask| mask.users.is_some()) {
        Some(mask) if source.keyspace != keyspace.name => Err(PlanError::invalid(format!(
            "Cannot use CREATE TABLE LIKE in another keyspace: function '{}.{}' is the mask of a \
             column",
            source.keyspace, mask.function
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
