//! Statements about objects that do not exist here: views, triggers.
//!
//! Owns: what Cassandra refuses of them anyway, in its words. Never: makes one.

use cql_syntax::ast::{CreateTrigger, CreateView};

use super::{DdlContext, DdlOutcome, find_keyspace, keyspace_of};
use crate::error::PlanError;

/// Checks the table that a view is to follow.
pub(super) fn create_view(
    statement: &CreateView,
    keyspace: &str,
    cx: &DdlContext<'_>,
) -> Result<(), PlanError> {
    if keyspace_of(&statement.base, Some(keyspace))? != keyspace {
        return Err(PlanError::invalid(
            "Cannot create a materialized view on a table in a different keyspace",
        ));
    }
    let keyspace = find_keyspace(cx.schema, keyspace)?;
    let name = &statement.base.name.text;
    if !keyspace.tables.contains_key(name.as_str()) {
        return Err(PlanError::invalid(format!("Base table '{name}' doesn't exist")));
    }
    Ok(())
}

/// A trigger is a Java class; no such class exists here, as it may not exist in Cassandra.
pub(super) fn create_trigger(
    statement: &CreateTrigger,
    keyspace: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    let keyspace = find_keyspace(cx.schema, keyspace)?;
    let name = &statement.table.name.text;
    Err(PlanError::invalid(match keyspace.tables.contains_key(name.as_str()) {
        false => format!("Table '{name}' doesn't exist"),
        true => format!("Trigger class '{}' couldn't be loaded", statement.class),
    }))
}
