//! Statements that change the schema, and what clients are told about changes.

use crate::failure::{Failure, Result};
use crate::prepared::Compiled;
use crate::server::Server;
use crate::session::Session;
use crate::settings::Timeout;
use cluster::{AuthChange, ClusterSnapshot, MemberState, Transformation};
use cql_plan::auth::Resource;
use cql_plan::ddl::DdlContext;
use cql_plan::guardrails::Watch;
use cql_plan::plan::PlanKind;
use cql_plan::{DdlPlan, SchemaEvent, SchemaEventKind, SchemaEventTarget, created};
use cql_wire::{SchemaChange, SchemaChangeKind, SchemaTarget};
use membership::SubmitError;
use schema::{Keyspace, Schema, UserAggregate, UserFunction};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use stdx::{Instant, Uuid};
use types::CqlType;

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
                default_factor: server.default_keyspace_rf.get(),
                default_compaction: server.settings.default_compaction.as_ref(),
                drop_compact_storage: server.settings.drop_compact_storage_enabled,
                functions: Some(&server.plan_limits.functions),
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
        entries.extend(grants(server, plan, user, &snapshot.schema));
        match server.membership.submit(snapshot.epoch, entries).await {
            Ok(_) => return Ok(Changed { event: outcome.event, warnings }),
            Err(error) => await_next_attempt(server, error, "schema change", deadline).await?,
        }
    }
}

/// The creator of a thing gets all permissions on it, in the same entry.
fn grants(
    server: &Server,
    plan: &DdlPlan,
    user: Option<&str>,
    schema: &Schema,
) -> Vec<Transformation> {
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
    created(plan, schema).into_iter().map(grant).collect()
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
        target: match &event.target {
            SchemaEventTarget::Keyspace => SchemaTarget::Keyspace,
            SchemaEventTarget::Table => SchemaTarget::Table(&event.name),
            SchemaEventTarget::Type => SchemaTarget::Type(&event.name),
            SchemaEventTarget::Function(args) => {
                SchemaTarget::Function(&event.name, args.iter().map(String::as_str).collect())
            }
            SchemaEventTarget::Aggregate(args) => {
                SchemaTarget::Aggregate(&event.name, args.iter().map(String::as_str).collect())
            }
        },
    }
}

/// One difference between two schemas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    kind: SchemaChangeKind,
    keyspace: Arc<str>,
    target: Target,
}

/// What of a keyspace is different.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Keyspace,
    Table(Arc<str>),
    Type(Arc<str>),
    Function(Arc<str>, Vec<String>),
    Aggregate(Arc<str>, Vec<String>),
}

impl Target {
    fn function(function: &UserFunction) -> Target {
        Target::Function(function.name.clone(), types_of(&function.args))
    }

    fn aggregate(aggregate: &UserAggregate) -> Target {
        Target::Aggregate(aggregate.name.clone(), types_of(&aggregate.args))
    }
}

fn types_of(args: &[CqlType]) -> Vec<String> {
    args.iter().map(CqlType::to_cql_name).collect()
}

impl Difference {
    pub(crate) fn as_wire(&self) -> SchemaChange<'_> {
        let texts = |args| Vec::from_iter(<[String]>::iter(args).map(String::as_str));
        let target = match &self.target {
            Target::Keyspace => SchemaTarget::Keyspace,
            Target::Table(name) => SchemaTarget::Table(name),
            Target::Type(name) => SchemaTarget::Type(name),
            Target::Function(name, args) => SchemaTarget::Function(name, texts(args)),
            Target::Aggregate(name, args) => SchemaTarget::Aggregate(name, texts(args)),
        };
        SchemaChange { kind: self.kind, keyspace: &self.keyspace, target }
    }
}

/// What clients are told when `before` becomes `after`: everything created, then altered, then
/// dropped; tables and types of a dropped keyspace before it, as Cassandra does.
pub(crate) fn events(before: &Schema, after: &Schema) -> Vec<Difference> {
    let (mut created, mut updated, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    let difference = |kind, keyspace: &Arc<str>, target: Target| Difference {
        kind,
        keyspace: keyspace.clone(),
        target,
    };
    for (name, new) in &after.keyspaces {
        let old = before.keyspaces.get(name);
        match old {
            Some(old) if Arc::ptr_eq(old, new) => continue,
            None => created.push(difference(SchemaChangeKind::Created, name, Target::Keyspace)),
            Some(old) if old.params != new.params => {
                updated.push(difference(SchemaChangeKind::Updated, name, Target::Keyspace));
            }
            Some(_) => {}
        }
        for (t, udt) in &new.types {
            match old.and_then(|o| o.types.get(t)) {
                None => created.push(difference(
                    SchemaChangeKind::Created,
                    name,
                    Target::Type(t.clone()),
                )),
                Some(o) if o != udt => updated.push(difference(
                    SchemaChangeKind::Updated,
                    name,
                    Target::Type(t.clone()),
                )),
                Some(_) => {}
            }
        }
        for (t, table) in &new.tables {
            match old.and_then(|o| o.tables.get(t)) {
                Some(o) if o.id != table.id => {
                    dropped.push(difference(
                        SchemaChangeKind::Dropped,
                        name,
                        Target::Table(t.clone()),
                    ));
                    created.push(difference(
                        SchemaChangeKind::Created,
                        name,
                        Target::Table(t.clone()),
                    ));
                }
                None => {
                    created.push(difference(
                        SchemaChangeKind::Created,
                        name,
                        Target::Table(t.clone()),
                    ));
                }
                Some(o) if o != table => {
                    updated.push(difference(
                        SchemaChangeKind::Updated,
                        name,
                        Target::Table(t.clone()),
                    ));
                }
                Some(_) => {}
            }
        }
        for (kind, target) in new_routines(old.map(|old| &**old), new) {
            let into = match kind {
                SchemaChangeKind::Created => &mut created,
                _ => &mut updated,
            };
            into.push(difference(kind, name, target));
        }
    }
    for (name, old) in &before.keyspaces {
        let new = after.keyspaces.get(name);
        let gone = |target| difference(SchemaChangeKind::Dropped, name, target);
        let functions = old
            .functions
            .iter()
            .filter(|f| new.is_none_or(|n| n.function(&f.name, &f.args).is_none()));
        dropped.extend(functions.map(|f| gone(Target::function(f))));
        let aggregates = old
            .aggregates
            .iter()
            .filter(|a| new.is_none_or(|n| n.aggregate(&a.name, &a.args).is_none()));
        dropped.extend(aggregates.map(|a| gone(Target::aggregate(a))));
        for t in old.tables.keys().filter(|t| new.is_none_or(|n| !n.tables.contains_key(*t))) {
            dropped.push(difference(SchemaChangeKind::Dropped, name, Target::Table(t.clone())));
        }
        for t in old.types.keys().filter(|t| new.is_none_or(|n| !n.types.contains_key(*t))) {
            dropped.push(difference(SchemaChangeKind::Dropped, name, Target::Type(t.clone())));
        }
        if new.is_none() {
            dropped.push(difference(SchemaChangeKind::Dropped, name, Target::Keyspace));
        }
    }
    created.into_iter().chain(updated).chain(dropped).collect()
}

/// Functions and aggregates that are new or were replaced.
fn new_routines(old: Option<&Keyspace>, new: &Keyspace) -> Vec<(SchemaChangeKind, Target)> {
    let kind = |is_there: bool, is_same: bool| match (is_there, is_same) {
        (_, true) => None,
        (true, false) => Some(SchemaChangeKind::Updated),
        (false, false) => Some(SchemaChangeKind::Created),
    };
    let mut found = Vec::new();
    for function in &new.functions {
        let before = old.and_then(|old| old.function(&function.name, &function.args));
        let kind = kind(before.is_some(), before == Some(function));
        found.extend(kind.map(|kind| (kind, Target::function(function))));
    }
    for aggregate in &new.aggregates {
        let before = old.and_then(|old| old.aggregate(&aggregate.name, &aggregate.args));
        let kind = kind(before.is_some(), before == Some(aggregate));
        found.extend(kind.map(|kind| (kind, Target::aggregate(aggregate))));
    }
    found
}
