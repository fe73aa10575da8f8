//! Statements that change the schema, and what clients are told about changes.

use crate::failure::{Failure, Result};
use crate::prepared::Compiled;
use crate::server::Server;
use crate::session::Session;
use crate::settings::Timeout;
use cluster::{AuthChange, ClusterSnapshot, MemberState, Transformation};
use cql_plan::auth::{Resource, created};
use cql_plan::ddl::DdlContext;
use cql_plan::guardrails::Watch;
use cql_plan::plan::PlanKind;
use cql_plan::{DdlPlan, SchemaEvent, SchemaEventKind, SchemaEventTarget};
use cql_wire::{SchemaChange, SchemaChangeKind, SchemaTarget};
use membership::SubmitError;
use schema::Schema;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use stdx::{Instant, Uuid};

/// What a schema change came to.
pub(crate) struct Changed {
    /// `None`: IF [NOT] EXISTS made it a no-op.
    pub(crate) event: Option<SchemaEvent>,
    pub(crate) warnings: Vec<String>,
}

/// Plans a schema change on the current snapshot and submits it, again when another was faster.
/// Runs in a task of its own: a client that goes away must not stop the metadata log in the middle
/// of a write.
pub(crate) async fn execute(
    server: &Rc<Server>,
    compiled: &Rc<Compiled>,
    session: &Session,
    watch: Option<Rc<Watch>>,
) -> Result<Changed> {
    let (this, compiled) = (server.clone(), compiled.clone());
    let user = session.user.borrow().clone();
    let work = async move {
        let PlanKind::Ddl(plan) = &compiled.plan.kind else {
            return Err(this.internal_failure("a plan of another kind"));
        };
        change(&this, plan, user.as_deref(), watch.as_deref()).await
    };
    server.to_its_end("schema-change", work).await
}

async fn change(
    server: &Server,
    plan: &DdlPlan,
    user: Option<&str>,
    watch: Option<&Watch>,
) -> Result<Changed> {
    let warned = watch.map_or(0, Watch::count);
    let deadline = server.rt.now() + server.timeouts.get(Timeout::Request);
    loop {
        if let Some(watch) = watch {
            watch.forget(warned);
        }
        let snapshot = server.membership.snapshot();
        let outcome = {
            let datacenters = datacenters(&snapshot);
            let moving: Vec<SocketAddr> = moving(&snapshot).collect();
            let mut new_table_id = || Uuid::from_bytes(server.next_time_uuid());
            let mut cx = DdlContext {
                schema: &snapshot.schema,
                datacenters: &datacenters,
                moving: &moving,
                new_table_id: &mut new_table_id,
                now: server.rt.wall(),
                watch,
                default_factor: server.settings.default_keyspace_rf,
            };
            plan.outcome(&mut cx)?
        };
        let warnings = outcome.warnings;
        if outcome.changes.is_empty() {
            return Ok(Changed { event: outcome.event, warnings });
        }
        let changes = outcome.changes.into_iter();
        let mut entries: Vec<Transformation> =
            changes.map(|c| Transformation::Schema(Box::new(c))).collect();
        entries.extend(grants(server, plan, user));
        match server.membership.submit(snapshot.epoch, entries).await {
            Ok(_) => return Ok(Changed { event: outcome.event, warnings }),
            Err(error) => await_next_attempt(server, error, "schema change", deadline).await?,
        }
    }
}

/// The creator of a thing gets all permissions on it, in the same entry.
fn grants(server: &Server, plan: &DdlPlan, user: Option<&str>) -> Vec<Transformation> {
    let Some(user) = user.filter(|_| server.settings.access.permissions) else {
        return Vec::new();
    };
    let grant = |resource: Resource| {
        Transformation::Auth(AuthChange::Grant {
            role: user.to_owned(),
            permissions: resource.applicable(),
            resource: resource.name(),
        })
    };
    created(plan).into_iter().map(grant).collect()
}

/// After a submission that another was faster than: waits until this shard has the other one.
///
/// # Errors
/// The submission failed otherwise, or there is no time left.
pub(crate) async fn await_next_attempt(
    server: &Server,
    error: SubmitError,
    what: &'static str,
    deadline: Instant,
) -> Result<()> {
    if let SubmitError::Conflict(epoch) = &error
        && server.rt.now() < deadline
        && server.membership.wait_for(*epoch, deadline).await
    {
        return Ok(());
    }
    let id = Uuid::from_bytes(server.uuids.random_uuid());
    tracing::error!(%id, %error, "{what} failed");
    Err(Failure::submit(&error, id))
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

/// Addresses of nodes whose data is on its way.
pub(crate) fn moving(snapshot: &ClusterSnapshot) -> impl Iterator<Item = SocketAddr> {
    let members = snapshot.members.values();
    members.filter(|m| m.state != MemberState::Normal).map(|m| m.storage)
}

/// A schema event in the protocol's words.
pub(crate) fn as_wire(event: &SchemaEvent) -> SchemaChange<'_> {
    SchemaChange {
        kind: match event.kind {
            SchemaEventKind::Created => SchemaChangeKind::Created,
            SchemaEventKind::Updated => SchemaChangeKind::Updated,
            SchemaEventKind::Dropped => SchemaChangeKind::Dropped,
        },
        keyspace: &event.keyspace,
        target: match event.target {
            SchemaEventTarget::Keyspace => SchemaTarget::Keyspace,
            SchemaEventTarget::Table => SchemaTarget::Table(&event.name),
            SchemaEventTarget::Type => SchemaTarget::Type(&event.name),
        },
    }
}

/// One difference between two schemas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    kind: SchemaChangeKind,
    keyspace: Arc<str>,
    /// Whether it is a table, and its name.
    target: Option<(bool, Arc<str>)>,
}

impl Difference {
    pub(crate) fn as_wire(&self) -> SchemaChange<'_> {
        let target = match &self.target {
            None => SchemaTarget::Keyspace,
            Some((true, name)) => SchemaTarget::Table(name),
            Some((false, name)) => SchemaTarget::Type(name),
        };
        SchemaChange { kind: self.kind, keyspace: &self.keyspace, target }
    }
}

/// What clients are told when `before` becomes `after`: everything created, then altered, then
/// dropped; tables and types of a dropped keyspace before it, as Cassandra does.
pub(crate) fn events(before: &Schema, after: &Schema) -> Vec<Difference> {
    let (mut created, mut updated, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    let difference = |kind, keyspace: &Arc<str>, target: Option<(bool, &Arc<str>)>| Difference {
        kind,
        keyspace: keyspace.clone(),
        target: target.map(|(is_table, name)| (is_table, name.clone())),
    };
    for (name, new) in &after.keyspaces {
        let old = before.keyspaces.get(name);
        match old {
            Some(old) if Arc::ptr_eq(old, new) => continue,
            None => created.push(difference(SchemaChangeKind::Created, name, None)),
            Some(old) if old.params != new.params => {
                updated.push(difference(SchemaChangeKind::Updated, name, None));
            }
            Some(_) => {}
        }
        for (t, udt) in &new.types {
            match old.and_then(|o| o.types.get(t)) {
                None => created.push(difference(SchemaChangeKind::Created, name, Some((false, t)))),
                Some(o) if o != udt => {
                    updated.push(difference(SchemaChangeKind::Updated, name, Some((false, t))))
                }
                Some(_) => {}
            }
        }
        for (t, table) in &new.tables {
            match old.and_then(|o| o.tables.get(t)) {
                Some(o) if o.id != table.id => {
                    dropped.push(difference(SchemaChangeKind::Dropped, name, Some((true, t))));
                    created.push(difference(SchemaChangeKind::Created, name, Some((true, t))));
                }
                None => {
                    created.push(difference(SchemaChangeKind::Created, name, Some((true, t))));
                }
                Some(o) if o != table => {
                    updated.push(difference(SchemaChangeKind::Updated, name, Some((true, t))));
                }
                Some(_) => {}
            }
        }
    }
    for (name, old) in &before.keyspaces {
        let new = after.keyspaces.get(name);
        for t in old.tables.keys().filter(|t| new.is_none_or(|n| !n.tables.contains_key(*t))) {
            dropped.push(difference(SchemaChangeKind::Dropped, name, Some((true, t))));
        }
        for t in old.types.keys().filter(|t| new.is_none_or(|n| !n.types.contains_key(*t))) {
            dropped.push(difference(SchemaChangeKind::Dropped, name, Some((false, t))));
        }
        if new.is_none() {
            dropped.push(difference(SchemaChangeKind::Dropped, name, None));
        }
    }
    created.into_iter().chain(updated).chain(dropped).collect()
}
