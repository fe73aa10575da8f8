//! The table that export and write are about: from statements in a file, such as the `schema.cql` of
//! a snapshot.

use std::path::Path;
use std::sync::Arc;

use cql_plan::ddl::{DdlContext, DdlPlan};
use cql_syntax::ast::StatementKind;
use schema::{Schema, Table};
use stdx::{Uuid, WallMicros};

/// Largest file of statements, bytes.
const BYTES_MAX: u64 = 16 << 20;

/// The schema that the statements of a file make. Keyspaces need not be created in it.
///
/// # Errors
/// A text that names the statement.
pub(super) fn read(path: &str) -> Result<Arc<Schema>, String> {
    let length = std::fs::metadata(path).map_err(|e| format!("{path}: {e}"))?.len();
    if length > BYTES_MAX {
        return Err(format!("{path} is longer than {BYTES_MAX} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    of_text(&text).map_err(|e| format!("{path}: {e}"))
}

/// As [`read`], of a text.
///
/// # Errors
/// A text that names the statement.
pub(super) fn of_text(text: &str) -> Result<Arc<Schema>, String> {
    let mut schema = Schema::default();
    let mut last = 0_u128;
    for statement in cql_syntax::split_statements(text) {
        let parsed = cql_syntax::parse(statement).map_err(|e| format!("{e} in {statement}"))?;
        if let Some(keyspace) = keyspace_of(&parsed.kind)
            && schema.keyspace(&keyspace).is_none()
        {
            let quoted = types::name::quote_identifier(&keyspace);
            let create = format!(
                "CREATE KEYSPACE {quoted} WITH replication = \
                 {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
            );
            apply(&mut schema, &create, &mut last)?;
        }
        apply(&mut schema, statement, &mut last)?;
    }
    Ok(Arc::new(schema))
}

/// The keyspace that a statement needs.
fn keyspace_of(kind: &StatementKind) -> Option<String> {
    match kind {
        StatementKind::CreateTable(create) => create.table.keyspace.as_ref(),
        StatementKind::CreateType(create) => create.name.keyspace.as_ref(),
        _ => None,
    }
    .map(|keyspace| keyspace.text.clone())
}

fn apply(schema: &mut Schema, statement: &str, last: &mut u128) -> Result<(), String> {
    let parsed = cql_syntax::parse(statement).map_err(|e| format!("{e} in {statement}"))?;
    let Some(plan) = DdlPlan::new(&parsed.kind, None) else {
        return Err(format!("not a statement about the schema: {statement}"));
    };
    let mut context = DdlContext {
        schema,
        datacenters: &[("datacenter1", 1)],
        moving: &[],
        // Only tables whose statement says no id get one of these.
        new_table_id: &mut || {
            *last += 1;
            Uuid::from_u128(*last)
        },
        now: WallMicros(0),
        watch: None,
        default_factor: 1,
        drop_compact_storage: true,
        functions: None,
    };
    let wrong = |e: &dyn std::fmt::Display| format!("{e} in {statement}");
    let outcome = plan.and_then(|plan| plan.outcome(&mut context)).map_err(|e| wrong(&e))?;
    for change in &outcome.changes {
        *schema = schema.apply(change).map_err(|e| wrong(&e))?;
    }
    Ok(())
}

/// The table of that name (`keyspace.table`); without one, the only table there is.
///
/// # Errors
/// Which tables there are.
pub(super) fn table(schema: &Schema, name: Option<&str>) -> Result<Arc<Table>, String> {
    let mut tables: Vec<&Arc<Table>> = schema.tables_by_id.values().collect();
    tables.sort_by_key(|table| name_of(table));
    let found: Vec<&&Arc<Table>> =
        tables.iter().filter(|table| name.is_none_or(|name| name_of(table) == name)).collect();
    match found.as_slice() {
        [table] => Ok(Arc::clone(table)),
        _ => {
            let names: Vec<String> = tables.iter().map(|table| name_of(table)).collect();
            Err(format!("say with --table which table is meant; there are: {}", names.join(", ")))
        }
    }
}

/// Keyspace and table.
pub(super) fn name_of(table: &Table) -> String {
    format!("{}.{}", table.keyspace, table.name)
}

/// The name as CQL takes it.
pub(super) fn quoted_name(table: &Table) -> String {
    let quote = types::name::quote_identifier;
    format!("{}.{}", quote(&table.keyspace), quote(&table.name))
}

/// `schema.cql` beside the files, as snapshots have it.
pub(super) fn beside(directory: &str) -> Option<String> {
    let path = Path::new(directory).join("schema.cql");
    path.is_file().then(|| path.to_string_lossy().into_owned())
}
