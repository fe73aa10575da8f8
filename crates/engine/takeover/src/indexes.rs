//! Secondary indexes in a directory of Cassandra's: their definitions are taken over, their files are not. This node
//! builds its own components.
//!
//! Owns: which definitions can be taken over, which is decided by planning the statement that creates them.

use std::collections::BTreeSet;

use cql_plan::ddl::{DdlContext, DdlPlan, IndexSettings};
use schema::{Schema, SchemaChange};
use stdx::{Uuid, WallMicros};

use super::TakeoverError;
use super::left_out::{self, Choice};
use super::rows::Row;

/// Indexes of a directory that this node can have.
#[derive(Debug, Default)]
pub(super) struct TakenIndexes {
    /// Keyspace and name of each.
    names: BTreeSet<(String, String)>,
    /// The tables with them, after the changes that create the tables.
    pub(super) changes: Vec<SchemaChange>,
}

impl TakenIndexes {
    /// Returns true if the index of a row is taken over.
    pub(super) fn has(&self, row: &Row) -> Result<bool, TakeoverError> {
        let name = row.text("index_name")?.unwrap_or_default();
        Ok(self.names.contains(&(row.required_text("keyspace_name")?, name)))
    }

    /// Plans the statements of all rows, in their order, on the schema that `tables` make of `base`. Those that
    /// the operator leaves out are none of them.
    pub(super) fn of_rows(
        base: &Schema,
        tables: &[SchemaChange],
        rows: &[Row],
        choice: &Choice<'_>,
    ) -> Result<TakenIndexes, TakeoverError> {
        let mut taken = TakenIndexes::default();
        let settings = &choice.indexes;
        if rows.is_empty() || !settings.available {
            return Ok(taken);
        }
        let mut schema = base.clone();
        for change in tables {
            match schema.apply(change) {
                Ok(next) => schema = next,
                Err(error) => return Err(TakeoverError::Schema(error.to_string())),
            }
        }
        for row in rows {
            let keyspace = row.required_text("keyspace_name")?;
            if base.keyspace(&keyspace).is_some() || choice.omits_index(row)? {
                continue;
            }
            let table = schema.table(&keyspace, &row.required_text("table_name")?);
            let key = match table {
                Some(table) if choice.is_local_index(row)? => Some(table.partition_key_names()),
                _ => None,
            };
            let statement = left_out::index(row, key.as_deref())?;
            let Some(changes) = planned(&schema, &statement, settings) else { continue };
            for change in changes {
                let Ok(next) = schema.apply(&change) else { continue };
                schema = next;
                taken.changes.push(change);
            }
            taken.names.insert((keyspace, row.required_text("index_name")?));
        }
        Ok(taken)
    }
}

/// The changes of a statement; `None` when it is refused.
fn planned(
    schema: &Schema,
    statement: &str,
    settings: &IndexSettings,
) -> Option<Vec<SchemaChange>> {
    let statement = cql_syntax::parse(statement).ok()?;
    let plan = DdlPlan::new(&statement.kind, None)?.ok()?;
    let outcome = plan.outcome(&mut DdlContext {
        schema,
        datacenters: &[],
        moving: &[],
        new_table_id: &mut Uuid::nil,
        now: WallMicros(0),
        watch: None,
        default_factor: 1,
        default_compaction: None,
        drop_compact_storage: false,
        functions: None,
        indexes: settings,
    });
    Some(outcome.ok()?.changes)
}
