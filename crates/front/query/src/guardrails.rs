//! Guardrails: the users that limits apply to, and the checks; timestamps far in the future or the
//! past.
//!
//! Limits on ordinary users are [`cql_plan::guardrails`]'s; a request of one carries a [`Watch`] in
//! its ticket, and every answer the warnings that it gathers. Limits on timestamps, and on dropping
//! tables, apply to all users.
//!
//! A value with a timestamp of next year cannot be overwritten or deleted until then, so such
//! timestamps are refused by default. Source of names and texts: Cassandra's `Guardrails`
//! (`maximumAllowableTimestamp`, `minimumAllowableTimestamp`, `userTimestampsEnabled`) and
//! `ModificationStatement.validateTimestamp`. Cassandra checks `USING TIMESTAMP` only, here the
//! timestamp of the request counts too. Writes from peers are not checked: their clients were, and
//! refusing data that one replica has would keep replicas from becoming equal.

use std::rc::Rc;

use cluster::{PlacementKey, Replication};
use cql_plan::guardrails::Watch;
use cql_plan::select::{BoundSelect, SelectPlan};
use cql_wire::Consistency;
use schema::TableKind;

use crate::access;
use crate::client::ClientState;
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::guardrail_limits::TimestampViolation;
use crate::modification::{Modification, Statements, WithValues};
use crate::select::ReadRequest;

/// Returns the limits for a request of this client; `None` for superusers, as in Cassandra
/// (`ClientState.isOrdinaryUser`). Callers skip it when authentication is off.
pub fn watch(executor: &Executor, client: &ClientState) -> Option<Rc<Watch>> {
    if access::is_superuser(executor, client) {
        return None;
    }
    Some(Rc::new(Watch::new(executor.guardrails.borrow().planned.clone())))
}

/// Checks before a SELECT is bound.
///
/// # Errors
/// A limit rejects the statement.
pub(crate) fn check_select(
    watch: &Watch,
    plan: &SelectPlan,
    consistency: Consistency,
) -> Result<()> {
    if plan.is_plain() {
        return Ok(watch.read_consistency(consistency.name())?);
    }
    if plan.groups() {
        watch.group_by()?;
    }
    let keyspace = &*plan.table().keyspace;
    let is_system = keyspace == "system" || keyspace.starts_with("system_");
    if plan.allows_filtering() && !is_system {
        watch.allow_filtering()?;
    }
    watch.read_consistency(consistency.name())?;
    // Cassandra spares `system` and `system_schema` only, whose tables have no indexes.
    if plan.scans_by_index() {
        watch.non_partition_restricted_index_query()?;
    }
    Ok(())
}

/// Checks of a bound SELECT.
pub(crate) fn check_bound_select(
    executor: &Executor,
    watch: &Watch,
    bound: &BoundSelect,
    read: &ReadRequest<'_>,
) -> Result<()> {
    let (plan, consistency) = (&*read.statement.plan.select, read.parameters.consistency);
    let table = plan.table();
    // The answer of one replica needs no reconciliation with others.
    let is_of_one = matches!(consistency, Consistency::One | Consistency::LocalOne);
    if plan.intersects() && table.kind != TableKind::Virtual && !is_of_one {
        let key = PlacementKey::of_table(&executor.snapshot(), table.id);
        let replicas = match key.as_ref().map(PlacementKey::replication) {
            Some(Replication::Simple(factor)) => *factor,
            Some(Replication::Network(factors)) => factors.values().sum(),
            Some(Replication::Local) | None => 1,
        };
        if replicas > 1 {
            watch.intersect_filtering_query()?;
        }
    }
    let page_rows = read.parameters.page_size;
    if let Some(rows) = page_rows.and_then(|rows| u32::try_from(rows).ok()).filter(|n| *n > 0)
        && bound.exceeds(rows)
    {
        watch.page_size(&table.name, rows)?;
    }
    Ok(())
}

/// The levels of a write.
pub(crate) fn check_write_levels(
    watch: &Watch,
    consistency: Consistency,
    serial: Option<Consistency>,
) -> Result<()> {
    let mut levels = [consistency, serial.unwrap_or(Consistency::Serial)];
    levels.sort_by_key(|level| level.number());
    match levels {
        [a, b] if a == b => watch.write_consistency(&[a.name()])?,
        [a, b] => watch.write_consistency(&[a.name(), b.name()])?,
    }
    Ok(())
}

/// Checks the timestamps of a modification; returns the warnings.
///
/// # Errors
/// `Invalid`: one is refused, or cannot be read.
pub(crate) fn check_timestamps(
    executor: &Executor,
    request: &Modification<'_>,
) -> Result<Vec<String>> {
    let has_own = request.statements.has_timestamp();
    if !has_own && !request.has_timestamp {
        return Ok(Vec::new());
    }
    check_given(executor, request, has_own)
}

#[inline(never)]
fn check_given(
    executor: &Executor,
    request: &Modification<'_>,
    has_own: bool,
) -> Result<Vec<String>> {
    let guardrails = executor.guardrails.borrow().timestamps;
    if has_own && !guardrails.user_timestamps_enabled {
        return Err(Failure::invalid(
            "Guardrail user_timestamps violated: User provided timestamps (USING TIMESTAMP) is not \
             allowed",
        ));
    }
    let mut warnings = Vec::new();
    if guardrails.is_idle() {
        return Ok(warnings);
    }
    let now = executor.rt.wall();
    let mut check = |timestamp, table: &str| -> Result<()> {
        let refused = |violation: TimestampViolation<'_>| Failure::invalid(violation.to_string());
        let warning = guardrails.check(now, timestamp, table).map_err(refused)?;
        if let Some(warning) = warning.map(|violation| violation.to_string())
            && !warnings.contains(&warning)
        {
            warnings.push(warning);
        }
        Ok(())
    };
    let options = &request.options;
    let of_request = request.has_timestamp.then_some(options.default_timestamp);
    if let Statements::TextBatch(WithValues { statement, values }) = request.statements {
        let of_batch = statement.plan.timestamp(values, options)?.or(of_request);
        for plan in statement.plan.statements() {
            if let Some(timestamp) = plan.timestamp(values, options)?.or(of_batch) {
                check(timestamp, &plan.table().name)?;
            }
        }
    } else {
        for (plan, values) in request.statements.modifications() {
            let own = if has_own { plan.timestamp(values, options)? } else { None };
            if let Some(timestamp) = own.or(of_request) {
                check(timestamp, &plan.table().name)?;
            }
        }
    }
    Ok(warnings)
}
