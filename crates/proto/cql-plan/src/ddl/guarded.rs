//! Guardrails on statements that change the schema, as far as they are checked before anything
//! else. Those that depend on the outcome are checked with it.
//!
//! Source: `validate` of Cassandra's `CreateTableStatement` and its like,
//! `AlterSchemaStatement.validateDefaultTimeToLive`.

use cql_syntax::ast::{AlterTableChange, AlterTypeChange, Property, StatementKind};

use super::DdlContext;
use crate::error::PlanError;
use crate::guardrails::Watch;
use crate::options::TableProperties;
use crate::system_keyspaces::{REPLICATED_SYSTEM, SYSTEM};

/// Returns true for a keyspace of users.
fn is_users(name: &str) -> bool {
    !SYSTEM.contains(&name) && !REPLICATED_SYSTEM.contains(&name)
}

/// Checks a statement; returns the statement without the properties that must be ignored, if there
/// are any.
pub(super) fn check(
    statement: &StatementKind,
    cx: &DdlContext<'_>,
    watch: &Watch,
) -> Result<Option<StatementKind>, PlanError> {
    let users = || cx.schema.keyspaces.values().filter(|k| !k.is_virtual && is_users(&k.name));
    match statement {
        StatementKind::CreateKeyspace(s) => {
            watch.keyspaces(&s.keyspace.text, users().count() + 1)?;
        }
        StatementKind::CreateTable(s) => {
            let ignored = properties(watch, &s.options.properties)?;
            let name = &s.table.name.text;
            watch.columns_per_table(name, s.columns.len())?;
            watch.tables(name, users().map(|k| k.tables.len()).sum::<usize>() + 1)?;
            if s.options.compact_storage {
                watch.compact_table()?;
            }
            let mut left = s.clone();
            left.options.properties.retain(|p| !ignored.contains(&p.name.text));
            default_ttl(watch, &left.options.properties, cx)?;
            for column in &s.columns {
                watch.raw_type(&format!("Column {}", column.name.text), &column.ty)?;
            }
            return Ok((!ignored.is_empty()).then_some(StatementKind::CreateTable(left)));
        }
        StatementKind::CopyTable(s) => {
            let ignored = properties(watch, &s.properties)?;
            let tables = users().map(|k| k.tables.len()).sum::<usize>();
            watch.tables(&s.table.name.text, tables.saturating_add(1))?;
            let mut left = s.clone();
            left.properties.retain(|p| !ignored.contains(&p.name.text));
            return Ok((!ignored.is_empty()).then_some(StatementKind::CopyTable(left)));
        }
        StatementKind::AlterTable(s) => match &s.change {
            AlterTableChange::Add { columns, .. } => {
                for column in columns {
                    watch.raw_type(&format!("Column {}", column.name.text), &column.ty)?;
                }
            }
            AlterTableChange::With(given) => {
                let ignored = properties(watch, given)?;
                let mut left = given.clone();
                left.retain(|p| !ignored.contains(&p.name.text));
                default_ttl(watch, &left, cx)?;
                let mut statement = s.clone();
                statement.change = AlterTableChange::With(left);
                return Ok((!ignored.is_empty()).then_some(StatementKind::AlterTable(statement)));
            }
            _ => {}
        },
        StatementKind::CreateType(s) => {
            watch.fields_per_udt(&s.name.name.text, s.fields.len())?;
            for (field, ty) in &s.fields {
                watch.raw_type(&format!("Field {}", field.text), ty)?;
            }
        }
        StatementKind::DropKeyspace(_) => watch.drop_keyspace()?,
        StatementKind::AlterType(s) => {
            // Checked when the field is added; no earlier check depends on it.
            if let AlterTypeChange::Add { field, ty, .. } = &s.change {
                watch.raw_type(&format!("Field {}", field.text), ty)?;
            }
        }
        _ => {}
    }
    Ok(None)
}

/// Names of the properties to be left out.
fn properties(watch: &Watch, given: &[Property]) -> Result<Vec<String>, PlanError> {
    let names: Vec<&str> = given.iter().map(|p| p.name.text.as_str()).collect();
    Ok(watch.table_properties(&names)?.into_iter().map(str::to_owned).collect())
}

/// Checks the default time to live. Like Cassandra, uses the default of a property that ALTER TABLE
/// does not name.
fn default_ttl(watch: &Watch, given: &[Property], cx: &DdlContext<'_>) -> Result<(), PlanError> {
    let Ok(read) = TableProperties::read(given, cx.default_compaction) else {
        // Invalid properties are refused later.
        return Ok(());
    };
    let options = read.options();
    let class = options.compaction.get("class").map_or("", String::as_str);
    if options.default_time_to_live == 0 && class.ends_with("TimeWindowCompactionStrategy") {
        watch.zero_ttl_on_twcs()?;
    }
    Ok(())
}
