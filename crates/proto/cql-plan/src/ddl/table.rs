//! CREATE and DROP TABLE, and the checks that ALTER TABLE ([`super::alter_table`]) shares.

use std::collections::{BTreeMap, BTreeSet};

use cql_syntax::ast::{ColumnDefinition, CreateTable, DropTable, Order, PrimaryKey, RawType};
use schema::column_order::{compare_all_in_file, sort_columns};
use schema::{
    Column, ColumnKind, ColumnMask, CompactForm, Keyspace, SchemaChange, Table, TableKind,
};
use stdx::{ColumnId, TableId, WallMicros};
use types::CqlType;

use super::compact;
use super::mask::{MaskContext, Masked};
use super::{
    DdlContext, DdlOutcome, On, SchemaEventKind, SchemaEventTarget, TABLE_CHARS_MAX,
    check_not_replicated_system, find_keyspace, is_valid_name, parse_table_id,
};
use crate::error::PlanError;
use crate::options::{self, TableProperties};
use crate::properties::Properties;
use crate::raw_type;

pub(super) fn updated(table: Table) -> DdlOutcome {
    let (keyspace, name) = (table.keyspace.to_string(), table.name.to_string());
    DdlOutcome::one(
        SchemaChange::AlterTable(table),
        SchemaEventKind::Updated,
        SchemaEventTarget::Table,
        &keyspace,
        &name,
    )
}

pub(super) fn create(
    statement: &CreateTable,
    keyspace: &str,
    cx: &mut DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    check_not_replicated_system(keyspace, "CREATE", On::AllTables)?;
    let name = statement.table.name.text.as_str();
    check_order(statement)?;
    let shown = shown_name(statement);
    check_declared(statement, &shown)?;
    primary_key(statement, &shown)?;
    // Invalid values are reported even if the table already exists.
    let properties = TableProperties::read(&statement.options.properties, cx.default_compaction)?;
    let keyspace = find_keyspace(cx.schema, keyspace)?;
    if keyspace.tables.contains_key(name) {
        if statement.if_not_exists {
            return Ok(DdlOutcome::nothing());
        }
        return Err(PlanError::table_exists(&keyspace.name, name));
    }
    let mut table = definition_at(statement, properties, keyspace, MaskContext::of(cx))?;
    table.id = match Properties::new(&statement.options.properties)?.string("id")? {
        Some(text) => parse_table_id(&text)?,
        None => TableId((cx.new_table_id)()),
    };
    if cx.schema.table_by_id(table.id).is_some() {
        return Err(PlanError::invalid(format!("Table id {} is already in use", table.id)));
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

/// Rejects a table without compression if an ordinary user may not have one.
pub(super) fn check_compression(table: &Table, cx: &DdlContext<'_>) -> Result<(), PlanError> {
    match cx.watch {
        Some(watch) if options::is_uncompressed(&table.options) => watch.uncompressed_table(),
        _ => Ok(()),
    }
}

/// Checks that a table's compaction strategy supports its columns.
pub(super) fn check_compaction(table: &Table) -> Result<(), PlanError> {
    options::check_compaction(&table.options, table.clustering().first())
}

/// The table that a CREATE TABLE describes; its id is left nil.
///
/// # Errors
/// Everything Cassandra refuses, in its words; what Helenus does not have, by name.
pub fn definition(statement: &CreateTable, keyspace: &Keyspace) -> Result<Table, PlanError> {
    let masks = MaskContext { now: WallMicros(0), schema: None, functions: None };
    let properties = TableProperties::read(&statement.options.properties, None)?;
    definition_at(statement, properties, keyspace, masks)
}

pub(super) fn check_name(name: &str, keyspace: &Keyspace) -> Result<(), PlanError> {
    if !is_valid_name(name) {
        return Err(PlanError::config(format!(
            "{}.{name}: Table name must not be empty or not contain non-alphanumeric-underscore \
             characters (got \"{name}\")",
            keyspace.name
        )));
    }
    if name.len() > TABLE_CHARS_MAX {
        return Err(PlanError::config(format!(
            "{}.{name}: Table name must not be more than {TABLE_CHARS_MAX} characters long (got {} \
             characters for \"{name}\")",
            keyspace.name,
            name.len()
        )));
    }
    Ok(())
}

fn definition_at(
    statement: &CreateTable,
    properties: TableProperties<'_>,
    keyspace: &Keyspace,
    masks: MaskContext<'_>,
) -> Result<Table, PlanError> {
    let name = statement.table.name.text.as_str();
    check_name(name, keyspace)?;
    let shown = shown_name(statement);
    check_declared(statement, &shown)?;
    let options = properties.of_new_table()?;
    let (mut types, mut masks_by_name) = column_types(statement, keyspace, &shown, masks)?;
    let key = primary_key(statement, &shown)?;
    let in_key = key_columns(&key, &types, name)?;
    let mut reversed = clustering_order(statement, &key, &shown)?;
    reversed.extend(reversed_classes(statement));
    let has_counters = types.values().any(|(ty, _)| ty.is_counter());
    check_counter_classes(statement, keyspace)?;
    let compact = match statement.options.compact_storage {
        true => Some(compact::form(&types, &in_key, &key)?),
        false => None,
    };
    let has_statics = types.values().any(|(_, is_static)| *is_static);
    if compact.is_none() && key.clustering.is_empty() && has_statics {
        return Err(PlanError::invalid(STATICS_WITHOUT_CLUSTERING));
    }
    if has_counters {
        check_all_counters(&types, &in_key)?;
        check_counter_options(&options)?;
    }
    let hidden = compact.map(|form| compact::hidden(form, &types, &in_key, has_counters));
    let hidden = hidden.unwrap_or_default();
    if compact == Some(CompactForm::Static) {
        for (_, is_static) in types.values_mut() {
            *is_static = true;
        }
    }
    let columns = column_kinds(&types, &key, &reversed);
    let mut columns: Vec<Column> = columns
        .into_iter()
        .filter_map(|(name, kind)| {
            let ty = types.get(name)?.0.clone();
            Some(Column { id: ColumnId(0), name: name.into(), ty, kind })
        })
        .chain(hidden)
        .collect();
    number_columns(&mut columns);
    let masks = columns.iter().filter_map(|c| Some((c.id, masks_by_name.remove(&*c.name)?)));
    let masks = masks.collect();
    Ok(Table {
        id: TableId(stdx::Uuid::nil()),
        keyspace: keyspace.name.clone(),
        name: name.into(),
        kind: compact.map_or(TableKind::Regular, TableKind::Compact),
        partition_key_count: key.partition.len(),
        clustering_count: columns
            .iter()
            .filter(|c| matches!(c.kind, ColumnKind::Clustering { .. }))
            .count(),
        static_count: columns.iter().filter(|c| c.kind == ColumnKind::Static).count(),
        next_column_id: columns.len() as u16,
        columns,
        options,
        dropped: BTreeMap::new(),
        masks,
        indexes: Default::default(),
        version: 1,
    })
}

pub(super) const STATICS_WITHOUT_CLUSTERING: &str = "Static columns are only useful (and thus allowed) if the table has at least one clustering \
     column";

fn check_all_counters(types: &ColumnTypes<'_>, in_key: &[&str]) -> Result<(), PlanError> {
    if types.iter().any(|(n, (ty, _))| !in_key.contains(n) && !ty.is_counter()) {
        return Err(PlanError::invalid(
            "Cannot mix counter and non counter columns in the same table",
        ));
    }
    Ok(())
}

/// The columns of a new table with their kinds: of the key, then the others.
fn column_kinds<'s>(
    types: &'s ColumnTypes<'_>,
    key: &'s PrimaryKey,
    reversed: &[&str],
) -> Vec<(&'s str, ColumnKind)> {
    let mut columns = Vec::with_capacity(types.len());
    for (position, ident) in key.partition.iter().enumerate() {
        columns.push((ident.text.as_str(), ColumnKind::PartitionKey(position as u16)));
    }
    for (position, ident) in key.clustering.iter().enumerate() {
        let reversed = reversed.contains(&ident.text.as_str());
        let kind = ColumnKind::Clustering { position: position as u16, reversed };
        columns.push((ident.text.as_str(), kind));
    }
    let in_key = |name: &str| key.partition.iter().chain(&key.clustering).any(|c| c.text == name);
    for (name, (_, is_static)) in types {
        if !in_key(name) {
            let kind = if *is_static { ColumnKind::Static } else { ColumnKind::Regular };
            columns.push((name, kind));
        }
    }
    columns
}

/// Sorts the columns of a new table and gives them their ids.
fn number_columns(columns: &mut Vec<Column>) {
    sort_columns(columns);
    // Ids in the order of cells in SSTables (single-cell columns first): rows then unpack in one
    // pass. Any other order is correct too, as after ALTER.
    let mut in_file_order: Vec<&mut Column> = columns.iter_mut().collect();
    in_file_order.sort_by(|a, b| compare_all_in_file(a, b));
    for (id, column) in in_file_order.into_iter().enumerate() {
        column.id = ColumnId(id as u16);
    }
}

/// Counters by the name of their class do not make a table one of counters.
fn check_counter_classes(statement: &CreateTable, keyspace: &Keyspace) -> Result<(), PlanError> {
    let is_counter = |column: &&ColumnDefinition| match &column.ty {
        RawType::Custom(class) => {
            matches!(types::parse_marshal(class), Ok((CqlType::Counter, _)))
        }
        _ => false,
    };
    match statement.columns.iter().find(is_counter) {
        None => Ok(()),
        Some(column) => Err(PlanError::config(format!(
            "{}.{}: Cannot have a counter column (\"{}\") in a non counter table",
            keyspace.name, statement.table.name.text, column.name.text
        ))),
    }
}

/// Names of the columns whose class is a `ReversedType`.
fn reversed_classes(statement: &CreateTable) -> impl Iterator<Item = &str> {
    statement.columns.iter().filter_map(|column| {
        let RawType::Custom(class) = &column.ty else { return None };
        let reversed = matches!(types::parse_marshal(class), Ok((_, true)));
        reversed.then_some(column.name.text.as_str())
    })
}

/// Counters do not expire.
pub(super) fn check_counter_options(options: &schema::TableOptions) -> Result<(), PlanError> {
    if options.default_time_to_live > 0 {
        return Err(PlanError::invalid("Cannot set default_time_to_live on a table with counters"));
    }
    Ok(())
}

pub(super) type ColumnTypes<'s> = BTreeMap<&'s str, (CqlType, bool)>;

/// Masks of new columns by their names.
type MasksByName<'s> = BTreeMap<&'s str, ColumnMask>;

fn column_types<'s>(
    statement: &'s CreateTable,
    keyspace: &Keyspace,
    shown: &str,
    with: MaskContext<'_>,
) -> Result<(ColumnTypes<'s>, MasksByName<'s>), PlanError> {
    let mut types = ColumnTypes::new();
    let mut masks = MasksByName::new();
    let table = &statement.table.name.text;
    for column in &statement.columns {
        let ty = raw_type::resolve(&column.ty, &keyspace.name, &keyspace.types)?;
        if let Some(mask) = &column.mask {
            let masked = Masked { keyspace, table, name: &column.name.text, ty: &ty };
            masks.insert(column.name.text.as_str(), masked.mask(mask, with)?);
        }
        types.insert(&column.name.text, (ty, column.is_static));
    }
    if types.len() > usize::from(u16::MAX / 2) {
        return Err(PlanError::invalid(format!("table '{shown}' has too many columns")));
    }
    for (ty, _) in types.values() {
        if let CqlType::Udt(udt) = ty
            && ty.is_multi_cell()
            && udt.fields.iter().any(|(_, f)| f.is_multi_cell())
        {
            return Err(PlanError::invalid(
                "Non-frozen UDTs with nested non-frozen collections are not supported",
            ));
        }
    }
    Ok((types, masks))
}

/// The table as the statement names it.
fn shown_name(statement: &CreateTable) -> String {
    let name = statement.table.name.text.as_str();
    match &statement.table.keyspace {
        Some(keyspace) => format!("{}.{name}", keyspace.text),
        None => name.to_owned(),
    }
}

/// Source: `CreateTableStatement.Raw.addColumn`.
fn check_declared(statement: &CreateTable, shown: &str) -> Result<(), PlanError> {
    let mut names = BTreeSet::new();
    match statement.columns.iter().find(|column| !names.insert(column.name.text.as_str())) {
        None => Ok(()),
        Some(column) => Err(PlanError::invalid(format!(
            "Duplicate column '{}' declaration for table '{shown}'",
            column.name.text
        ))),
    }
}

/// The one primary key, declared inline or as a clause.
fn primary_key(statement: &CreateTable, shown: &str) -> Result<PrimaryKey, PlanError> {
    let inline = statement
        .columns
        .iter()
        .filter(|c| c.primary_key)
        .map(|c| PrimaryKey { partition: vec![c.name.clone()], clustering: Vec::new() });
    let mut keys = inline.chain(statement.primary_keys.iter().cloned());
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok(key),
        (None, _) => Err(PlanError::invalid(format!(
            "No PRIMARY KEY specifed for table '{shown}' (exactly one required)"
        ))),
        (Some(_), Some(_)) => Err(PlanError::invalid(format!(
            "Multiple PRIMARY KEY specified for table '{shown}' (exactly one required)"
        ))),
    }
}

fn key_columns<'k>(
    key: &'k PrimaryKey,
    types: &ColumnTypes<'_>,
    table: &str,
) -> Result<Vec<&'k str>, PlanError> {
    let mut in_key: Vec<&str> = Vec::new();
    for ident in key.partition.iter().chain(&key.clustering) {
        let name = ident.text.as_str();
        let Some((ty, is_static)) = types.get(name) else {
            return Err(PlanError::invalid(format!(
                "Unknown column '{name}' referenced in PRIMARY KEY for table '{table}'"
            )));
        };
        if in_key.contains(&name) {
            return Err(PlanError::invalid(format!(
                "Duplicate column '{name}' in PRIMARY KEY clause for table '{table}'"
            )));
        }
        in_key.push(name);
        if ty.is_multi_cell() {
            let what = if ty.is_collection() { "collection" } else { "user-defined" };
            let ty = match ty {
                CqlType::Udt(udt) => format!("\"{}.{}\"", udt.keyspace, udt.name),
                ty => ty.to_cql_name(),
            };
            return Err(PlanError::invalid(format!(
                "Invalid non-frozen {what} type {ty} for PRIMARY KEY column '{name}'"
            )));
        }
        if ty.is_counter() {
            return Err(PlanError::invalid(format!(
                "counter type is not supported for PRIMARY KEY column '{name}'"
            )));
        }
        if ty.contains_duration() {
            return Err(PlanError::invalid(format!(
                "duration type is not supported for PRIMARY KEY column '{name}'"
            )));
        }
        if *is_static {
            return Err(PlanError::invalid(format!(
                "Static column '{name}' cannot be part of the PRIMARY KEY"
            )));
        }
    }
    Ok(in_key)
}

/// Checks of CLUSTERING ORDER that precede the lookup of the keyspace.
fn check_order(statement: &CreateTable) -> Result<(), PlanError> {
    let order = &statement.options.clustering_order;
    let Some(column) = super::duplicate(order.iter().map(|(c, _)| c)) else { return Ok(()) };
    Err(PlanError::invalid(format!(
        "Duplicate column '{}' in CLUSTERING ORDER BY clause for table '{}'",
        column.text, statement.table
    )))
}

/// Names of the clustering columns in descending order.
fn clustering_order<'s>(
    statement: &'s CreateTable,
    key: &PrimaryKey,
    shown: &str,
) -> Result<Vec<&'s str>, PlanError> {
    let order = &statement.options.clustering_order;
    if let Some(column) = super::duplicate(order.iter().map(|(c, _)| c)) {
        return Err(PlanError::invalid(format!(
            "Duplicate column '{}' in CLUSTERING ORDER BY clause for table '{shown}'",
            column.text
        )));
    }
    let unknown: Vec<&str> = order
        .iter()
        .filter(|(c, _)| !key.clustering.contains(c))
        .map(|(c, _)| c.text.as_str())
        .collect();
    if !unknown.is_empty() {
        return Err(PlanError::invalid(format!(
            "Only clustering key columns can be defined in CLUSTERING ORDER directive: [{}] are \
             not clustering columns",
            unknown.join(", ")
        )));
    }
    for ((column, _), expected) in order.iter().zip(&key.clustering) {
        if column == expected {
            continue;
        }
        return Err(PlanError::invalid(if order.iter().any(|(c, _)| c == expected) {
            format!(
                "The order of columns in the CLUSTERING ORDER directive must match that of the \
                 clustering columns ({} must appear before {})",
                expected.text, column.text
            )
        } else {
            format!("Missing CLUSTERING ORDER for column {}", expected.text)
        }));
    }
    Ok(order.iter().filter(|(_, o)| *o == Order::Desc).map(|(c, _)| c.text.as_str()).collect())
}

pub(super) fn drop(
    statement: &DropTable,
    keyspace_name: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    let name = statement.table.name.text.as_str();
    check_not_replicated_system(keyspace_name, "DROP", On::Table(name))?;
    let found = cx.schema.table(keyspace_name, name);
    let Some(table) = found else {
        if statement.if_exists {
            return Ok(DdlOutcome::nothing());
        }
        return Err(PlanError::invalid(format!("Table '{keyspace_name}.{name}' doesn't exist")));
    };
    let change =
        SchemaChange::DropTable { keyspace: table.keyspace.clone(), table: table.name.clone() };
    Ok(DdlOutcome::one(
        change,
        SchemaEventKind::Dropped,
        SchemaEventTarget::Table,
        keyspace_name,
        name,
    ))
}
