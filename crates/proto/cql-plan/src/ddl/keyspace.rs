//! CREATE, ALTER and DROP KEYSPACE.

use cql_syntax::ast::{AlterKeyspace, CreateKeyspace, DropKeyspace, Property};
use schema::{KeyspaceParams, SchemaChange};

use super::{
    DdlContext, DdlOutcome, KEYSPACE_CHARS_MAX, On, SchemaEventKind, SchemaEventTarget,
    check_not_replicated_system, is_valid_name,
};
use crate::error::PlanError;
use crate::system_keyspaces::{REPLICATED_SYSTEM, SYSTEM};
use crate::{options, replication};

/// The name of a keyspace, of any statement about a schema.
pub(super) fn check_name(name: &str) -> Result<(), PlanError> {
    if !is_valid_name(name) {
        return Err(PlanError::invalid(format!(
            "Keyspace name must not be empty and must contain alphanumeric or underscore \
             characters only (got \"{name}\")"
        )));
    }
    if name.len() > KEYSPACE_CHARS_MAX {
        return Err(PlanError::invalid(format!(
            "Keyspace name must not be more than {KEYSPACE_CHARS_MAX} characters long (got {} \
             characters for \"{name}\")",
            name.len()
        )));
    }
    Ok(())
}

pub(super) fn create(
    statement: &CreateKeyspace,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    let name = statement.keyspace.text.as_str();
    check_simple_strategy(&statement.properties, cx)?;
    if cx.schema.keyspace(name).is_some() {
        // Names of properties are checked first, their values later, as in Cassandra.
        replication::check_keyspace_properties(&statement.properties)?;
        if statement.if_not_exists {
            return Ok(DdlOutcome::nothing());
        }
        return Err(PlanError::keyspace_exists(name));
    }
    let params = replication::keyspace_params(
        &statement.properties,
        None,
        replication::Cluster { datacenters: cx.datacenters, default_factor: cx.default_factor },
        name,
    )?;
    let warnings = replication_warning(name, &params, cx)?;
    let change = SchemaChange::CreateKeyspace { name: name.into(), params };
    let mut outcome =
        DdlOutcome::one(change, SchemaEventKind::Created, SchemaEventTarget::Keyspace, name, "");
    outcome.warnings = warnings;
    Ok(outcome)
}

pub(super) fn alter(
    statement: &AlterKeyspace,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    let name = statement.keyspace.text.as_str();
    let Some(keyspace) = cx.schema.keyspace(name) else {
        if statement.if_exists {
            return Ok(DdlOutcome::nothing());
        }
        return Err(PlanError::invalid(format!("Keyspace '{name}' doesn't exist")));
    };
    let before = &keyspace.params;
    let params = replication::keyspace_params(
        &statement.properties,
        Some(before),
        replication::Cluster { datacenters: cx.datacenters, default_factor: cx.default_factor },
        name,
    )?;
    check_simple_strategy(&statement.properties, cx)?;
    let mut warnings = replication_warning(name, &params, cx)?;
    if !cx.moving.is_empty() {
        let nodes: Vec<String> = cx.moving.iter().map(|node| format!("/{node}")).collect();
        return Err(PlanError::config(format!(
            "Cannot alter RF while some endpoints are not in normal state (no range movements): \
             [{}]",
            nodes.join(", ")
        )));
    }
    if factor_sum(before) < factor_sum(&params) {
        warnings.push(
            "When increasing replication factor you need to run a full (-full) repair to \
             distribute the data."
                .to_owned(),
        );
    }
    if params == *before {
        return Ok(DdlOutcome { warnings, ..DdlOutcome::nothing() });
    }
    let change = SchemaChange::AlterKeyspace { name: name.into(), params };
    let mut outcome =
        DdlOutcome::one(change, SchemaEventKind::Updated, SchemaEventTarget::Keyspace, name, "");
    outcome.warnings = warnings;
    Ok(outcome)
}

pub(super) fn drop(statement: &DropKeyspace, cx: &DdlContext<'_>) -> Result<DdlOutcome, PlanError> {
    let name = statement.keyspace.text.as_str();
    check_not_replicated_system(name, "DROP", On::Keyspace)?;
    if cx.schema.keyspace(name).is_none() {
        if statement.if_exists {
            return Ok(DdlOutcome::nothing());
        }
        return Err(PlanError::invalid(format!("Keyspace '{name}' doesn't exist")));
    }
    let change = SchemaChange::DropKeyspace { name: name.into() };
    Ok(DdlOutcome::one(change, SchemaEventKind::Dropped, SchemaEventTarget::Keyspace, name, ""))
}

fn factors(params: &KeyspaceParams) -> impl Iterator<Item = (&String, u32)> {
    params
        .replication
        .iter()
        .filter(|(k, _)| *k != "class")
        .map(|(k, v)| (k, v.split('/').next().and_then(|n| n.trim().parse().ok()).unwrap_or(0)))
}

fn factor_sum(params: &KeyspaceParams) -> u32 {
    factors(params).map(|(_, n)| n).sum()
}

/// Source: `CreateKeyspaceStatement.apply`, which knows the strategy by its short name only.
fn check_simple_strategy(properties: &[Property], cx: &DdlContext<'_>) -> Result<(), PlanError> {
    let Some(watch) = cx.watch else { return Ok(()) };
    match options::replication_class(properties)?.as_deref() {
        Some("SimpleStrategy") => watch.simple_strategy(),
        _ => Ok(()),
    }
}

/// The warnings that Cassandra gives when there are fewer nodes than replicas
/// (`maybeWarnOnOptions`).
fn replication_warning(
    name: &str,
    params: &KeyspaceParams,
    cx: &DdlContext<'_>,
) -> Result<Vec<String>, PlanError> {
    if SYSTEM.contains(&name) || REPLICATED_SYSTEM.contains(&name) {
        return Ok(Vec::new());
    }
    let is_simple =
        params.replication.get("class").is_some_and(|class| class.ends_with("SimpleStrategy"));
    let mut warnings = Vec::new();
    for (key, factor) in factors(params) {
        if let Some(watch) = cx.watch {
            watch.replication_factor(name, factor)?;
        }
        let (nodes, place) = if is_simple {
            (cx.datacenters.iter().map(|(_, nodes)| *nodes).sum(), String::new())
        } else {
            let of_key = cx.datacenters.iter().find(|(datacenter, _)| datacenter == key);
            (of_key.map_or(0, |(_, nodes)| *nodes), format!(" for datacenter {key}"))
        };
        // A datacenter without nodes is not spoken of.
        if factor > nodes && nodes > 0 {
            warnings.push(format!(
                "Your replication factor {factor} for keyspace {name} is higher than the number \
                 of nodes {nodes}{place}"
            ));
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests;
