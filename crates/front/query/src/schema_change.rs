//! Statements that change the schema.

use crate::context::{Cx, Waiting, finish};
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::settings::Timeout;
use crate::sink::ResultSink;
use cluster::{AuthChange, ClusterSnapshot, MemberState, Transformation};
use cql_plan::auth::Resource;
use cql_plan::created;
use cql_plan::ddl::DdlContext;
use cql_plan::guardrails::Watch;
use cql_plan::{DdlPlan, SchemaEvent};
use cql_wire::ErrorCode;
use membership::SubmitError;
use schema::{Schema, SchemaChange, Table, TableKeys};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use stdx::{Instant, Uuid};

/// Outcome of a schema change.
struct Changed {
    /// `None`: IF [NOT] EXISTS made it a no-op.
    event: Option<SchemaEvent>,
    warnings: Vec<String>,
}

/// Runs a statement that changes the schema.
pub(crate) fn run<S: ResultSink>(plan: DdlPlan, cx: &Cx<'_, S>) -> Waiting<S::Answer> {
    let (executor, sink) = (cx.executor.clone(), cx.sink.clone());
    let ticket = cx.ticket.clone();
    Box::pin(async move {
        let (watch, user) = (ticket.watch.clone(), sink.client().user());
        let (result, changed) = match execute(&executor, plan, user, watch).await {
            Ok(changed) => (Ok(()), Some(changed)),
            Err(failure) => (Err(failure), None),
        };
        finish(&executor, &sink, &ticket, result, |out| {
            let warnings: Vec<&str> =
                changed.iter().flat_map(|c| &c.warnings).map(String::as_str).collect();
            match changed.as_ref().and_then(|c| c.event.as_ref()) {
                Some(event) => sink.schema_changed(out, &ticket, event, &warnings),
                None => {
                    sink.void(out, &ticket, &warnings);
                    Ok(())
                }
            }
        })
        .await
    })
}

/// Plans a schema change on the current snapshot and submits it; retries when another change was
/// faster. Runs in its own task: a client that disconnects must not stop the metadata log in the
/// middle of a write.
async fn execute(
    executor: &Rc<Executor>,
    plan: DdlPlan,
    user: Option<Rc<str>>,
    watch: Option<Rc<Watch>>,
) -> Result<Changed> {
    let this = executor.clone();
    let work = async move { change(&this, &plan, user.as_deref(), watch.as_deref()).await };
    executor.to_its_end("schema-change", work).await
}

async fn change(
    executor: &Executor,
    plan: &DdlPlan,
    user: Option<&str>,
    watch: Option<&Watch>,
) -> Result<Changed> {
    let warned = watch.map_or(0, Watch::count);
    let deadline = executor.rt.now() + executor.timeouts.get(Timeout::Request);
    loop {
        if let Some(watch) = watch {
            watch.forget(warned);
        }
        let snapshot = executor.membership.snapshot();
        let outcome = {
            let datacenters = datacenters(&snapshot);
            let moving: Vec<SocketAddr> = moving(&snapshot).collect();
            let mut new_table_id = || Uuid::from_bytes(executor.next_time_uuid());
            let mut cx = DdlContext {
                schema: &snapshot.schema,
                datacenters: &datacenters,
                moving: &moving,
                new_table_id: &mut new_table_id,
                now: executor.rt.wall(),
                watch,
                default_factor: executor.default_keyspace_rf.get(),
                default_compaction: executor.settings.default_compaction.as_ref(),
                drop_compact_storage: executor.settings.drop_compact_storage_enabled,
                functions: Some(&executor.plan_limits.functions),
                indexes: &executor.settings.indexes,
            };
            plan.outcome(&mut cx)?
        };
        for change in &outcome.changes {
            if let Some(table) = newly_encrypted(change, &snapshot.schema) {
                has_keys(executor, table)?;
                await_key(executor, table, deadline).await?;
            }
        }
        let warnings = outcome.warnings;
        if outcome.changes.is_empty() {
            return Ok(Changed { event: outcome.event, warnings });
        }
        let changes = outcome.changes.into_iter();
        let mut entries: Vec<Transformation> =
            changes.map(|c| Transformation::Schema(Box::new(c))).collect();
        entries.extend(grants(executor, plan, user, &snapshot.schema));
        match executor.membership.submit(snapshot.epoch, entries).await {
            Ok(_) => return Ok(Changed { event: outcome.event, warnings }),
            Err(error) => await_next_attempt(executor, error, "schema change", deadline).await?,
        }
    }
}

/// Returns the table of a change that gives it another encryption option.
fn newly_encrypted<'c>(change: &'c SchemaChange, before: &Schema) -> Option<&'c Table> {
    let (SchemaChange::CreateTable(table) | SchemaChange::AlterTable(table)) = change else {
        return None;
    };
    let option = table.options.encryption()?;
    let earlier = before.tables_by_id.get(&table.id).and_then(|table| table.options.encryption());
    (earlier.as_ref() != Some(&option)).then_some(table)
}

/// Refuses a table whose files this node could not write: no file is written in the clear instead.
fn has_keys(executor: &Executor, table: &Table) -> Result<()> {
    let Some(option) = table.options.encryption() else { return Ok(()) };
    let known = &executor.settings.key_sources;
    let what = match &option.keys {
        TableKeys::None => return Ok(()),
        TableKeys::File if known.contains("key-file") => return Ok(()),
        TableKeys::File => "this node has no key file: set user_info_encryption".to_owned(),
        TableKeys::Host { kind, host, .. } if known.contains(&format!("{kind}:{host}")) => {
            return Ok(());
        }
        TableKeys::Host { kind, host, .. } => {
            format!("{kind}_hosts of this node's settings has no host \"{host}\"")
        }
    };
    Err(no_key(&what))
}

/// Refuses a table whose key the provider does not give, as a misspelt name: its rows could never be flushed.
async fn await_key(executor: &Executor, table: &Table, deadline: Instant) -> Result<()> {
    let sealing = executor.settings.sealing.of(table);
    if !sealing.is_sealed() {
        return Ok(());
    }
    let fs = executor.rt.fs();
    let given = executor.rt.timeout(deadline, fs.keys().await_active(sealing.source())).await;
    match given {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(no_key(&error)),
        Err(_) => Err(no_key(&"its key was not given in time")),
    }
}

fn no_key(what: &dyn std::fmt::Display) -> Failure {
    let (code, option) = (ErrorCode::ConfigError, schema::TABLE_ENCRYPTION);
    Failure::Plain(code, format!("{option} cannot be used: {what}"))
}

/// The creator of a thing gets all permissions on it, in the same entry.
fn grants(
    executor: &Executor,
    plan: &DdlPlan,
    user: Option<&str>,
    schema: &Schema,
) -> Vec<Transformation> {
    let Some(user) = user.filter(|_| executor.settings.access.permissions) else {
        return Vec::new();
    };
    let grant = |resource: Resource| {
        Transformation::Auth(AuthChange::Grant {
            role: user.to_owned(),
            permissions: resource.applicable(),
            resource: resource.name(),
        })
    };
    created(plan, schema).into_iter().map(grant).collect()
}

/// After a submission that another was faster than: waits until this shard has the other one.
///
/// # Errors
/// The submission failed otherwise, or there is no time left.
pub(crate) async fn await_next_attempt(
    executor: &Executor,
    error: SubmitError,
    what: &'static str,
    deadline: Instant,
) -> Result<()> {
    if let SubmitError::Conflict(epoch) = &error
        && executor.rt.now() < deadline
        && executor.membership.wait_for(*epoch, deadline).await
    {
        return Ok(());
    }
    let id = Uuid::from_bytes(executor.uuids.random_uuid());
    match is_refusal(&error) {
        true => tracing::info!(%error, "{what} refused"),
        false => tracing::error!(%id, %error, "{what} failed"),
    }
    Err(Failure::submit(&error, id))
}

/// Returns true if the change does not fit the cluster as it is: the client gets the reason, and nothing
/// has failed.
fn is_refusal(error: &SubmitError) -> bool {
    matches!(
        error,
        SubmitError::Rejected(_) | SubmitError::Refused(_) | SubmitError::TooLarge { .. }
    )
}

/// The datacenters and how many nodes each has, those that join too.
fn datacenters(snapshot: &ClusterSnapshot) -> Vec<(&str, u32)> {
    let mut found: BTreeMap<&str, u32> = BTreeMap::new();
    for member in snapshot.members.values() {
        *found.entry(&member.datacenter).or_default() += 1;
    }
    found.entry(&snapshot.local.datacenter).or_insert(1);
    found.into_iter().collect()
}

/// Addresses of nodes whose data is being moved.
pub(crate) fn moving(snapshot: &ClusterSnapshot) -> impl Iterator<Item = SocketAddr> {
    let members = snapshot.members.values();
    members.filter(|m| m.state != MemberState::Normal).map(|m| m.storage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_does_not_fit_is_a_refusal_and_a_log_that_cannot_be_written_is_not() {
        assert!(is_refusal(&SubmitError::Refused("try again when that is done".to_owned())));
        assert!(is_refusal(&SubmitError::TooLarge { bytes: 2, max: 1 }));
        assert!(!is_refusal(&SubmitError::Unavailable));
        assert!(!is_refusal(&SubmitError::VoterCannot("no majority".to_owned())));
    }
}
