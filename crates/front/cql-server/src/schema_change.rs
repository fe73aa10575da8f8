//! Statements that change the schema or empty a table, and what clients are told about changes.

use crate::failure::{Failure, Result};
use crate::mesh::{ServerReply, ServerRequest};
use crate::server::Server;
use cluster::{Transformation, Truncation};
use cql_plan::ddl::DdlContext;
use cql_plan::{DdlPlan, SchemaEvent, SchemaEventKind, SchemaEventTarget};
use cql_wire::{ErrorCode, SchemaChange, SchemaChangeKind, SchemaTarget};
use membership::SubmitError;
use schema::{Schema, Table};
use std::rc::Rc;
use std::sync::Arc;
use stdx::{ShardId, Uuid};

/// Attempts before the client is told that the schema changes too often.
const ATTEMPTS_MAX: usize = 32;

/// What a schema change came to.
pub(crate) struct Changed {
    /// `None`: IF [NOT] EXISTS made it a no-op.
    pub(crate) event: Option<SchemaEvent>,
    pub(crate) warnings: Vec<String>,
}

/// Plans a schema change on the current snapshot and submits it, again when another was faster.
pub(crate) async fn execute(server: &Rc<Server>, plan: &DdlPlan) -> Result<Changed> {
    for _ in 0..ATTEMPTS_MAX {
        let snapshot = server.membership.snapshot();
        let outcome = {
            let datacenters = [snapshot.local.datacenter.as_str()];
            let mut new_table_id = || Uuid::from_bytes(server.next_time_uuid());
            let mut cx = DdlContext {
                schema: &snapshot.schema,
                datacenters: &datacenters,
                node_count: 1,
                new_table_id: &mut new_table_id,
                now: server.rt.wall(),
            };
            plan.outcome(&mut cx)?
        };
        let warnings = outcome.warnings;
        if outcome.changes.is_empty() {
            return Ok(Changed { event: outcome.event, warnings });
        }
        let entries =
            outcome.changes.into_iter().map(|c| Transformation::Schema(Box::new(c))).collect();
        match server.membership.submit(snapshot.epoch, entries).await {
            Ok(_) => return Ok(Changed { event: outcome.event, warnings }),
            Err(SubmitError::Conflict(_)) => {}
            Err(error) => {
                let id = Uuid::from_bytes(server.uuids.random_uuid());
                tracing::error!(%id, %error, "schema change failed");
                return Err(Failure::submit(&error, id));
            }
        }
    }
    Err(Failure::overloaded("the schema changes too often at the moment"))
}

/// Empties a table on all shards and records it.
pub(crate) async fn truncate(server: &Rc<Server>, table: &Table) -> Result<()> {
    let at = server.rt.wall();
    let failed = |what: &str| {
        Failure::Plain(ErrorCode::TruncateError, format!("Error during truncate: {what}"))
    };
    let mut emptied = 0;
    let mut calls = Vec::new();
    for shard in (0..server.rt.shard_count()).map(ShardId) {
        if shard != server.rt.shard() {
            let request = ServerRequest::Truncate { table: table.id, at };
            calls.push(server.mesh.calls.call(&server.rt, shard, request));
        }
    }
    let deadline = server.rt.now() + server.settings.truncate_timeout;
    let work = async {
        emptied += usize::from(server.truncate_here(table.id, at).await);
        for call in calls {
            if let Ok(ServerReply::Truncated(true)) = call.await {
                emptied += 1;
            }
        }
    };
    let ended = server.rt.timeout(deadline, work).await;
    if ended.is_err() {
        return Err(failed("Operation timed out - received only 0 responses."));
    }
    if emptied != usize::from(server.rt.shard_count()) {
        return Err(failed("the data of a shard could not be removed"));
    }
    // The stores have their own durable record; this one is for `system.local` and tools.
    let truncation =
        Truncation { truncated_at: at, positions: Vec::new(), generations: Vec::new() };
    for _ in 0..ATTEMPTS_MAX {
        let snapshot = server.membership.snapshot();
        if snapshot.schema.table_by_id(table.id).is_none() {
            return Ok(());
        }
        let entry = Transformation::Truncate { table: table.id, truncation: truncation.clone() };
        match server.membership.submit(snapshot.epoch, vec![entry]).await {
            Ok(_) => return Ok(()),
            Err(SubmitError::Conflict(_)) => {}
            Err(error) => {
                let id = Uuid::from_bytes(server.uuids.random_uuid());
                tracing::error!(%id, %error, "truncation could not be recorded");
                return Err(Failure::submit(&error, id));
            }
        }
    }
    Err(Failure::overloaded("the schema changes too often at the moment"))
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
