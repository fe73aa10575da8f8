//! The executor's own writes: traces, and the table of prepared statements.
//!
//! Rows are packed without CQL ([`crate::row_write`]).

use crate::executor::Executor;
use crate::prepared::PreparedId;
use crate::row_write::{Content, RowWrite, encode_deletion, encode_row};
use crate::settings::Timeout;
use crate::trace::{EventRow, Trace};
use cluster::ClusterSnapshot;
use coordinator::ReplicatedWrite;
use coordinator::{Origin, ReplicaMutation};
use schema::Table;
use std::rc::Rc;
use std::sync::Arc;
use stdx::{TtlSeconds, Uuid};
use store::StoreError;

async fn write(
    executor: &Rc<Executor>,
    keyspace: &str,
    table: &str,
    rows: &[RowWrite],
    ttl: TtlSeconds,
) -> Result<(), StoreError> {
    let schema = executor.schema();
    let Some(table) = schema.table(keyspace, table) else { return Ok(()) };
    for row in rows {
        let at = executor.next_timestamp(executor.rt.wall());
        let token = codec::token_of(&row.key);
        executor
            .coordinator
            .apply(ReplicaMutation::durable(token, encode_row(table, row, at, ttl)), Origin::System)
            .await?;
    }
    Ok(())
}

/// Writes a finished trace. A failure costs the trace only.
pub async fn write_trace(executor: &Rc<Executor>, trace: &Trace, client: std::net::IpAddr) {
    trace.set_written();
    let node = executor.settings.broadcast_address;
    let thread = format!("shard-{}", executor.rt.shard().0);
    let events = trace.event_rows(node, &thread, |at| executor.uuids.time_uuid(at));
    if trace.is_of_peer() {
        return write_trace_rows(executor, &[("events", events.as_slice())]).await;
    }
    let session = [trace.session_row(client, node)];
    write_trace_rows(executor, &[("events", events.as_slice()), ("sessions", &session)]).await;
}

/// Writes what this node did for a request that another one coordinates and traces.
pub async fn write_peer_trace(
    executor: &Rc<Executor>,
    session: Uuid,
    events: Vec<coordinator::TracedEvent>,
) {
    let node = executor.settings.broadcast_address;
    let thread = format!("shard-{}", executor.rt.shard().0);
    let rows: Vec<RowWrite> = events
        .into_iter()
        .map(|event| {
            let row = EventRow {
                session: session.as_bytes(),
                id: executor.uuids.time_uuid(event.at),
                activity: &event.activity,
                elapsed: event.elapsed,
                node,
                thread: &thread,
            };
            row.content()
        })
        .collect();
    write_trace_rows(executor, &[("events", rows.as_slice())]).await;
}

async fn write_trace_rows(executor: &Rc<Executor>, tables: &[(&str, &[RowWrite])]) {
    let ttl = TtlSeconds(executor.settings.trace_ttl_seconds);
    for &(table, rows) in tables {
        let lost = match replicated_table(executor, TRACES, table) {
            Some((snapshot, table)) => {
                Box::pin(write_replicas(executor, &snapshot, &table, rows)).await.err()
            }
            None => {
                let written = write(executor, TRACES, table, rows, ttl).await;
                written.err().map(|error| error.to_string())
            }
        };
        if let Some(error) = lost {
            tracing::debug!(%error, "trace lost");
            return;
        }
    }
}

/// A table that other nodes have a part of, and the metadata that says so.
fn replicated_table(
    executor: &Executor,
    keyspace: &str,
    table: &str,
) -> Option<(Arc<ClusterSnapshot>, Arc<Table>)> {
    let snapshot = executor.snapshot().clone();
    let table = snapshot.schema.table(keyspace, table)?.clone();
    let replicated =
        snapshot.members.len() > 1 && executor.coordinator.is_replicated(&snapshot, table.id);
    replicated.then_some((snapshot, table))
}

/// Writes rows of a trace to their replicas, as Cassandra does at ANY.
async fn write_replicas(
    executor: &Rc<Executor>,
    snapshot: &Arc<ClusterSnapshot>,
    table: &Table,
    rows: &[RowWrite],
) -> Result<(), String> {
    let ttl = TtlSeconds(executor.settings.trace_ttl_seconds);
    let mutations = rows.iter().map(|row| {
        let at = executor.next_timestamp(executor.rt.wall());
        ReplicaMutation::durable(codec::token_of(&row.key), encode_row(table, row, at, ttl))
    });
    let write = ReplicatedWrite {
        snapshot: snapshot.clone(),
        consistency: cluster::Consistency::Any,
        write_type: request::WriteType::UnloggedBatch,
        mutations: mutations.collect(),
        logged: false,
        batch_id: Uuid::from_bytes(executor.next_time_uuid()),
        deadline: executor.rt.now() + executor.timeouts.get(Timeout::Write),
    };
    executor.coordinator.writer().write_replicated(write).await.map_err(|error| error.to_string())
}

/// The keyspace of traces.
const TRACES: &str = "system_traces";

/// Keeps a prepared statement over restarts.
pub(crate) async fn store_prepared(
    executor: &Rc<Executor>,
    id: &PreparedId,
    keyspace: Option<&str>,
    text: &str,
) -> Result<(), StoreError> {
    let mut columns = vec![("query_string", Content::Value(text.as_bytes().to_vec()))];
    columns.extend(keyspace.map(|k| ("logged_keyspace", Content::Value(k.as_bytes().to_vec()))));
    let row = RowWrite { key: id.to_vec(), clustering: Vec::new(), columns };
    write(executor, "system", "prepared_statements", &[row], TtlSeconds::NONE).await
}

/// Forgets evicted statements.
pub(crate) fn forget_prepared(executor: &Rc<Executor>, evicted: Vec<PreparedId>) {
    if evicted.is_empty() {
        return;
    }
    let this = executor.clone();
    let task = async move {
        let schema = this.schema();
        let Some(table) = schema.table("system", "prepared_statements") else { return };
        for id in evicted {
            let at = this.next_timestamp(this.rt.wall());
            let deletion = encode_deletion(table, &id, at);
            let applied = this
                .coordinator
                .apply(ReplicaMutation::durable(codec::token_of(&id), deletion), Origin::System)
                .await;
            if let Err(error) = applied {
                tracing::debug!(%error, "an evicted statement stays stored");
                return;
            }
        }
    };
    // A closed gate: the node stops, the statement is prepared again at the next start.
    let _ = executor.gate.spawn(&executor.rt, rt::Group::Admin, "forget-prepared", task);
}
