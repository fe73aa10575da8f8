//! ALTER TABLE: columns that are added, dropped and renamed, options, DROP COMPACT STORAGE.

use std::sync::Arc;

use cql_syntax::ast::{AlterTable, AlterTableChange, ColumnDefinition, Ident};
use schema::column_order::sort_columns;
use schema::{Column, ColumnKind, DroppedColumn, Keyspace, Table, TableKind};
use stdx::{ColumnId, TimestampMicros};
use types::CqlType;

use super::index;
use super::mask::{MaskContext, Masked};
use super::table::{
    STATICS_WITHOUT_CLUSTERING, check_compaction, check_compression, check_counter_options, updated,
};
use super::{DdlContext, DdlOutcome, On, check_not_replicated_system};
use crate::error::PlanError;
use crate::options::TableProperties;
use crate::raw_type;

pub(super) fn alter(
    statement: &AlterTable,
    keyspace_name: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    let name = statement.table.name.text.as_str();
    check_not_replicated_system(keyspace_name, "ALTER", On::Table(name))?;
    let properties = match &statement.change {
        AlterTableChange::With(properties) => {
            Some(TableProperties::read(properties, cx.default_compaction)?)
        }
        _ => None,
    };
    let found = cx.schema.keyspace(keyspace_name).and_then(|k| Some((k, k.tables.get(name)?)));
    let Some((keyspace, before)) = found else {
        if statement.if_exists {
            return Ok(DdlOutcome::nothing());
        }
        return Err(PlanError::invalid(format!("Table '{keyspace_name}.{name}' doesn't exist")));
    };
    let mut table = Table::clone(before);
    check_change_allowed(&statement.change, cx)?;
    if let Some(properties) = properties {
        table.options = properties.on_top_of(&before.options)?;
    }
    match &statement.change {
        AlterTableChange::ColumnType { .. } => {
            return Err(PlanError::invalid("Altering column types is no longer supported"));
        }
        AlterTableChange::ColumnMask { if_exists, column, mask } => {
            let name = column.text.as_str();
            let Some(found) = before.column(name) else {
                if *if_exists {
                    return Ok(DdlOutcome::nothing());
                }
                return Err(no_column(name, &table));
            };
            let masked = Masked { keyspace, table: &table.name, name, ty: &found.ty };
            let made =
                mask.as_ref().map(|mask| masked.mask(mask, MaskContext::of(cx))).transpose()?;
            match made {
                Some(mask) => table.masks.insert(found.id, mask),
                None => table.masks.remove(&found.id),
            };
        }
        AlterTableChange::DropCompactStorage => drop_compact_storage(&mut table, cx)?,
        AlterTableChange::Add { if_not_exists, columns } => {
            for column in columns {
                add_column(&mut table, column, *if_not_exists, keyspace, MaskContext::of(cx))?;
            }
            if let Some(watch) = cx.watch {
                watch.columns_per_table(name, table.columns.len())?;
            }
        }
        AlterTableChange::Drop { if_exists, columns, timestamp } => {
            let at = TimestampMicros(timestamp.unwrap_or(cx.now.0));
            for column in columns {
                drop_column(&mut table, column, *if_exists, at)?;
            }
        }
        AlterTableChange::Rename { if_exists, columns } => {
            for (from, to) in columns {
                rename_column(&mut table, before, from, to, *if_exists)?;
            }
        }
        AlterTableChange::With(_) => check_options(&table, cx)?,
    }
    Ok(outcome(table, before))
}

fn no_column(name: &str, table: &Table) -> PlanError {
    let table = &table.name;
    PlanError::invalid(format!("Column with name '{name}' doesn't exist on table '{table}'"))
}

/// The checks of a table whose options were changed.
fn check_options(table: &Table, cx: &DdlContext<'_>) -> Result<(), PlanError> {
    if table.is_counter() {
        check_counter_options(&table.options)?;
    }
    check_compression(table, cx)?;
    check_compaction(table)
}

/// The outcome of ALTER TABLE. IF [NOT] EXISTS may leave everything as it was.
fn outcome(mut table: Table, before: &Table) -> DdlOutcome {
    sort_columns(&mut table.columns);
    table.static_count = table.columns.iter().filter(|c| c.kind == ColumnKind::Static).count();
    table.version = before.version;
    if table == *before {
        return DdlOutcome::nothing();
    }
    table.version = before.version.saturating_add(1);
    updated(table)
}

/// The guardrail on changes of columns.
fn check_change_allowed(change: &AlterTableChange, cx: &DdlContext<'_>) -> Result<(), PlanError> {
    let changes_columns = matches!(
        change,
        AlterTableChange::Add { .. }
            | AlterTableChange::Drop { .. }
            | AlterTableChange::Rename { .. }
    );
    match cx.watch {
        Some(watch) if changes_columns => watch.alter_table(),
        _ => Ok(()),
    }
}

fn drop_compact_storage(table: &mut Table, cx: &DdlContext<'_>) -> Result<(), PlanError> {
    if !cx.drop_compact_storage {
        return Err(PlanError::invalid(
            "DROP COMPACT STORAGE is disabled. Enable in cassandra.yaml to use.",
        ));
    }
    if table.compact_form().is_none() {
        return Err(PlanError::invalid(
            "Cannot DROP COMPACT STORAGE on table without COMPACT STORAGE",
        ));
    }
    table.kind = TableKind::Regular;
    Ok(())
}

fn kind_name(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::PartitionKey(_) => "PARTITION_KEY",
        ColumnKind::Clustering { .. } => "CLUSTERING",
        ColumnKind::Static => "STATIC",
        ColumnKind::Regular => "REGULAR",
    }
}

fn add_column(
    table: &mut Table,
    definition: &ColumnDefinition,
    if_not_exists: bool,
    keyspace: &Keyspace,
    with: MaskContext<'_>,
) -> Result<(), PlanError> {
    let name = definition.name.text.as_str();
    let ty = raw_type::resolve(&definition.ty, &keyspace.name, &keyspace.types)?;
    let masked = Masked { keyspace, table: &table.name, name, ty: &ty };
    let mask = definition.mask.as_ref().map(|mask| masked.mask(mask, with)).transpose()?;
    if table.column(name).is_some() {
        if if_not_exists {
            return Ok(());
        }
        return Err(PlanError::invalid(format!("Column with name '{name}' already exists")));
    }
    if table.compact_form().is_some() {
        return Err(PlanError::invalid("Cannot add new column to a COMPACT STORAGE table"));
    }
    if definition.is_static && table.clustering_count == 0 {
        return Err(PlanError::invalid(STATICS_WITHOUT_CLUSTERING));
    }
    if let CqlType::Udt(udt) = &ty
        && ty.is_multi_cell()
        && udt.fields.iter().any(|(_, f)| f.is_multi_cell())
    {
        return Err(PlanError::invalid(format!(
            "Non-frozen UDTs with nested non-frozen collections are not supported for column \
                 {name}"
        )));
    }
    let kind = if definition.is_static { ColumnKind::Static } else { ColumnKind::Regular };
    check_redefined(table, name, &ty, kind)?;
    if ty.is_counter() != table.is_counter() {
        let (column, of) = if ty.is_counter() { ("", "non ") } else { ("non ", "") };
        return Err(PlanError::config(format!(
            "{}.{}: Cannot have a {column}counter column (\"{name}\") in a {of}counter table",
            table.keyspace, table.name
        )));
    }
    // The same column again: its cells in memtables and in the commit log that are newer than the drop are
    // shown, as those in SSTables are, which are found by name.
    let id = match table.dropped.get(name) {
        Some(dropped) => dropped.column.id,
        None => {
            let id = ColumnId(table.next_column_id);
            table.next_column_id = table.next_column_id.checked_add(1).ok_or_else(|| {
                PlanError::invalid("the table has used up its 65,535 column ids; make a new table")
            })?;
            id
        }
    };
    table.columns.push(Column { id, name: name.into(), ty, kind });
    if let Some(mask) = mask {
        table.masks.insert(id, mask);
    }
    Ok(())
}

/// A column of the name of a dropped one: cells of that one may still be on disk under this name.
fn check_redefined(
    table: &Table,
    name: &str,
    ty: &CqlType,
    kind: ColumnKind,
) -> Result<(), PlanError> {
    let Some(dropped) = table.dropped.get(name) else { return Ok(()) };
    if !is_serialization_compatible(ty, &dropped.column.ty) {
        return Err(PlanError::invalid(format!(
            "Cannot add a column '{name}' of type {}, incompatible with previously dropped column \
             '{name}' of type {}",
            ty.to_cql_name(),
            dropped.column.ty.to_cql_name()
        )));
    }
    if dropped.column.kind != kind {
        return Err(PlanError::invalid(format!(
            "Cannot re-add previously dropped column '{name}' of kind {}, incompatible with \
             previous kind {}",
            kind_name(kind),
            kind_name(dropped.column.kind)
        )));
    }
    // Its shards may come back from anywhere, with clocks that new ones do not beat.
    if table.is_counter() {
        return Err(PlanError::invalid(format!(
            "Cannot re-add previously dropped counter column {name}"
        )));
    }
    Ok(())
}

/// Returns true if values written as `old` can be read as `new` (`isSerializationCompatibleWith`).
fn is_serialization_compatible(new: &CqlType, old: &CqlType) -> bool {
    // Elements of multi-cell collections are cells of their own: their paths must keep their order.
    match (new, old) {
        (
            CqlType::Map { key, value, frozen: false },
            CqlType::Map { key: old_key, value: old_value, frozen: false },
        ) => {
            return is_path_compatible(key, old_key)
                && is_serialization_compatible(value, old_value);
        }
        (
            CqlType::List { element, frozen: false },
            CqlType::List { element: old_element, frozen: false },
        ) => return is_serialization_compatible(element, old_element),
        (
            CqlType::Set { element, frozen: false },
            CqlType::Set { element: old_element, frozen: false },
        ) => return is_path_compatible(element, old_element),
        _ => {}
    }
    new == old
        || (!new.is_multi_cell()
            && !old.is_multi_cell()
            && new.fixed_len() == old.fixed_len()
            && matches!(
                (new, old),
                (CqlType::Blob, _)
                    | (CqlType::Text, CqlType::Ascii)
                    | (CqlType::Uuid, CqlType::Timeuuid)
            ))
        || (new.is_composite() && new.is_compatible_with(old))
}

/// Returns true if elements or keys written as `old` have the same order as `new`
/// (`isCompatibleWith`).
fn is_path_compatible(new: &CqlType, old: &CqlType) -> bool {
    new == old
        || matches!(
            (new, old),
            (CqlType::Blob, CqlType::Text | CqlType::Ascii) | (CqlType::Text, CqlType::Ascii)
        )
}

fn drop_column(
    table: &mut Table,
    column: &Ident,
    if_exists: bool,
    dropped_at: TimestampMicros,
) -> Result<(), PlanError> {
    let name = column.text.as_str();
    let Some(position) = table.columns.iter().position(|c| &*c.name == name) else {
        if if_exists {
            return Ok(());
        }
        return Err(PlanError::invalid(format!(
            "Column {name} was not found in table '{}.{}'",
            table.keyspace, table.name
        )));
    };
    let column = table.columns.remove(position);
    if matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering { .. }) {
        return Err(PlanError::invalid(format!("Cannot drop PRIMARY KEY column {name}")));
    }
    if column.ty.is_udt() && column.ty.is_multi_cell() {
        return Err(PlanError::invalid(format!(
            "Cannot drop non-frozen column {name} of user type {}",
            column.ty.to_cql_name()
        )));
    }
    if let Some(indexes) = index::dependent(table, name) {
        return Err(PlanError::invalid(format!(
            "Cannot drop column {name} because it has dependent secondary indexes ({indexes})"
        )));
    }
    // Cassandra ends in an assertion here: a compact table without its value cannot be.
    if table.compact_form().is_some() && column.kind == ColumnKind::Regular {
        return Err(PlanError::invalid(format!(
            "Cannot drop {name}: it is the one regular column of a COMPACT STORAGE table"
        )));
    }
    table.masks.remove(&column.id);
    // Cells that an earlier drop removed stay removed: Cassandra purges them in the flush of ALTER TABLE.
    let before = table.dropped.get(&column.name).map(|before| before.dropped_at);
    let dropped_at = before.map_or(dropped_at, |before| before.max(dropped_at));
    table.dropped.insert(column.name.clone(), DroppedColumn { column, dropped_at });
    Ok(())
}

fn rename_column(
    table: &mut Table,
    before: &Arc<Table>,
    from: &Ident,
    to: &Ident,
    if_exists: bool,
) -> Result<(), PlanError> {
    let shown = format!("{}.{}", table.keyspace, table.name);
    let (from, to) = (from.text.as_str(), to.text.as_str());
    let found = before.columns.iter().position(|c| &*c.name == from);
    let is_hidden =
        found.and_then(|at| before.columns.get(at)).is_some_and(|column| before.is_hidden(column));
    let Some(position) = found.filter(|_| !is_hidden) else {
        if if_exists && !is_hidden {
            return Ok(());
        }
        return Err(PlanError::invalid(format!("Undefined column name {from} in table {shown}")));
    };
    let in_key = before
        .columns
        .get(position)
        .is_some_and(|c| !matches!(c.kind, ColumnKind::Static | ColumnKind::Regular));
    if !in_key {
        return Err(PlanError::invalid(format!("Cannot rename non PRIMARY KEY column {from}")));
    }
    if before.column(to).is_some() {
        return Err(PlanError::invalid(format!(
            "Cannot rename column {from} to {to} in table '{shown}'; another column with that \
             name already exists"
        )));
    }
    if let Some(indexes) = index::dependent(before, from) {
        return Err(PlanError::invalid(format!(
            "Can't rename column {from} because it has dependent secondary indexes ({indexes})"
        )));
    }
    if let Some(column) = table.columns.get_mut(position) {
        column.name = to.into();
    }
    Ok(())
}
