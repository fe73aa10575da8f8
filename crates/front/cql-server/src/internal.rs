//! What the server writes for itself: traces, and the table of prepared statements.
//!
//! Rows are packed here without CQL, because clients may not write `system` tables and the server
//! must not depend on its own statement texts being accepted.

use crate::prepared::PreparedId;
use crate::server::Server;
use crate::settings::Timeout;
use crate::trace::{self, Trace};
use cluster::ClusterSnapshot;
use coordinator::ReplicatedWrite;
use coordinator::{Origin, ReplicaMutation};
use data::command::{KeyRange, Partitions, ReadCommand};
use data::{CellRef, ColumnRef, DeletionTime, Liveness, MutationBuilder, RowBuilder, RowRef};
use schema::Table;
use std::rc::Rc;
use std::sync::Arc;
use stdx::{ColumnId, DeletionSeconds, TimestampMicros, Token, TtlSeconds, Uuid};
use store::{Flow, RowSink, StoreError};

/// The content of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A serialised value.
    Value(Vec<u8>),
    /// A map of many cells: serialised keys and values, sorted by key.
    Entries(Vec<(Vec<u8>, Vec<u8>)>),
    /// A `map<text, text>` of many cells, sorted by key.
    Texts(Vec<(String, String)>),
}

/// One row to write: of one table, with its columns by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowWrite {
    /// Serialised partition key.
    pub key: Vec<u8>,
    /// Serialised clustering.
    pub clustering: Vec<u8>,
    /// Columns by name.
    pub columns: Vec<(&'static str, Content)>,
}

/// Encodes a row as a mutation; columns that the table does not have are left out.
pub fn encode_row(
    table: &Table,
    write: &RowWrite,
    at: TimestampMicros,
    ttl: TtlSeconds,
) -> Vec<u8> {
    let expires_at = match ttl {
        TtlSeconds::NONE => DeletionSeconds::NONE,
        TtlSeconds(ttl) => {
            DeletionSeconds(at.0.div_euclid(1_000_000).saturating_add(i64::from(ttl)))
        }
    };
    let mut columns: Vec<_> = write
        .columns
        .iter()
        .filter_map(|(name, content)| Some((table.column(name)?.id, content)))
        .collect();
    columns.sort_by_key(|(id, _)| *id);
    let liveness = Liveness { timestamp: at, ttl, expires_at };
    let cell = |value| CellRef { timestamp: at, ttl, local: expires_at, value };
    let mut row = Vec::new();
    let mut builder = RowBuilder::new(&mut row, liveness, DeletionTime::LIVE, at);
    for (id, content) in columns {
        match content {
            Content::Value(value) => builder.cell(id, &cell(value)),
            Content::Entries(entries) => {
                builder.begin_complex(id, DeletionTime::LIVE);
                for (key, value) in entries {
                    builder.complex_cell(key, &cell(value));
                }
                builder.end_complex();
            }
            Content::Texts(texts) => {
                builder.begin_complex(id, DeletionTime::LIVE);
                for (key, value) in texts {
                    builder.complex_cell(key.as_bytes(), &cell(value.as_bytes()));
                }
                builder.end_complex();
            }
        }
    }
    builder.finish();
    let mut out = Vec::new();
    let mut mutation = MutationBuilder::new(&mut out, table.id, table.version, &write.key);
    mutation.rows([(write.clustering.as_slice(), RowRef::trusted(&row))].into_iter());
    mutation.finish();
    out
}

/// Encodes the deletion of a partition.
fn encode_deletion(table: &Table, key: &[u8], at: TimestampMicros) -> Vec<u8> {
    let mut out = Vec::new();
    let mut mutation = MutationBuilder::new(&mut out, table.id, table.version, key);
    let local = DeletionSeconds(at.0.div_euclid(1_000_000));
    mutation.deletion(DeletionTime { timestamp: at, local });
    mutation.finish();
    out
}

async fn write(
    server: &Rc<Server>,
    (keyspace, table): (&str, &str),
    rows: &[RowWrite],
    ttl: TtlSeconds,
) -> Result<(), StoreError> {
    let schema = server.schema();
    let Some(table) = schema.table(keyspace, table) else { return Ok(()) };
    for row in rows {
        let at = server.next_timestamp(server.rt.wall());
        let token = codec::token_of(&row.key);
        server
            .coordinator
            .apply(ReplicaMutation::durable(token, encode_row(table, row, at, ttl)), Origin::System)
            .await?;
    }
    Ok(())
}

/// Writes a finished trace. A failure costs the trace only.
pub(crate) async fn write_trace(server: &Rc<Server>, trace: &Trace, client: std::net::IpAddr) {
    trace.set_written();
    let node = server.settings.broadcast_address;
    let thread = format!("shard-{}", server.rt.shard().0);
    let events = trace.event_rows(node, &thread, |at| server.uuids.time_uuid(at));
    if trace.is_of_peer() {
        return write_trace_rows(server, &[("events", events.as_slice())]).await;
    }
    let session = [trace.session_row(client, node)];
    write_trace_rows(server, &[("events", events.as_slice()), ("sessions", &session)]).await;
}

/// Writes what this node did for a request that another one coordinates and traces.
pub(crate) async fn write_peer_trace(
    server: &Rc<Server>,
    session: Uuid,
    events: Vec<coordinator::TracedEvent>,
) {
    let node = server.settings.broadcast_address;
    let thread = format!("shard-{}", server.rt.shard().0);
    let rows: Vec<RowWrite> = events
        .into_iter()
        .map(|event| {
            let id = server.uuids.time_uuid(event.at);
            trace::event_row(
                session.as_bytes(),
                id,
                (&event.activity, event.elapsed),
                (node, &thread),
            )
        })
        .collect();
    write_trace_rows(server, &[("events", rows.as_slice())]).await;
}

async fn write_trace_rows(server: &Rc<Server>, tables: &[(&str, &[RowWrite])]) {
    let ttl = TtlSeconds(server.settings.trace_ttl_seconds);
    for &(table, rows) in tables {
        let lost = match replicated_table(server, ("system_traces", table)) {
            Some((snapshot, table)) => {
                Box::pin(write_replicas(server, &snapshot, &table, rows)).await.err()
            }
            None => {
                let name = ("system_traces", table);
                let written = write(server, name, rows, ttl).await;
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
    server: &Server,
    (keyspace, table): (&str, &str),
) -> Option<(Arc<ClusterSnapshot>, Arc<Table>)> {
    let snapshot = server.snapshot().clone();
    let table = snapshot.schema.table(keyspace, table)?.clone();
    let replicated =
        snapshot.members.len() > 1 && server.coordinator.is_replicated(&snapshot, table.id);
    replicated.then_some((snapshot, table))
}

/// Writes rows of a trace to their replicas, as Cassandra does at ANY.
async fn write_replicas(
    server: &Rc<Server>,
    snapshot: &Arc<ClusterSnapshot>,
    table: &Table,
    rows: &[RowWrite],
) -> Result<(), String> {
    let ttl = TtlSeconds(server.settings.trace_ttl_seconds);
    let mutations = rows.iter().map(|row| {
        let at = server.next_timestamp(server.rt.wall());
        ReplicaMutation::durable(codec::token_of(&row.key), encode_row(table, row, at, ttl))
    });
    let write = ReplicatedWrite {
        snapshot: snapshot.clone(),
        consistency: cluster::Consistency::Any,
        write_type: request::WriteType::UnloggedBatch,
        mutations: mutations.collect(),
        logged: false,
        batch_id: Uuid::from_bytes(server.next_time_uuid()),
        deadline: server.rt.now() + server.timeouts.get(Timeout::Write),
    };
    server.coordinator.write_replicated(write).await.map_err(|error| error.to_string())
}

const PREPARED_STATEMENTS: (&str, &str) = ("system", "prepared_statements");

/// Keeps a prepared statement over restarts.
pub(crate) async fn store_prepared(
    server: &Rc<Server>,
    id: &PreparedId,
    keyspace: Option<&str>,
    text: &str,
) -> Result<(), StoreError> {
    let mut columns = vec![("query_string", Content::Value(text.as_bytes().to_vec()))];
    columns.extend(keyspace.map(|k| ("logged_keyspace", Content::Value(k.as_bytes().to_vec()))));
    let row = RowWrite { key: id.to_vec(), clustering: Vec::new(), columns };
    write(server, PREPARED_STATEMENTS, &[row], TtlSeconds::NONE).await
}

/// Forgets evicted statements.
pub(crate) fn forget_prepared(server: &Rc<Server>, evicted: Vec<PreparedId>) {
    if evicted.is_empty() {
        return;
    }
    let this = server.clone();
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
    let _ = server.gate.spawn(&server.rt, rt::Group::Admin, "forget-prepared", task);
}

/// Collects the rows of `system.prepared_statements`.
struct Stored {
    keyspace: Option<ColumnId>,
    text: Option<ColumnId>,
    found: Vec<(Option<String>, String)>,
}

impl Stored {
    fn text_of(row: RowRef<'_>, id: Option<ColumnId>) -> Option<String> {
        match row.column(id?)? {
            ColumnRef::Simple(cell) => String::from_utf8(cell.value.to_vec()).ok(),
            ColumnRef::Complex(_) => None,
        }
    }
}

impl RowSink for Stored {
    fn partition(&mut self, _: Token, _: &[u8], _: Option<RowRef<'_>>) -> Flow {
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        if let Some(text) = Stored::text_of(row, self.text) {
            self.found.push((Stored::text_of(row, self.keyspace), text));
        }
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// Prepares what was prepared before the last stop, on all shards. Returns how many statements.
pub(crate) async fn load_prepared(server: &Rc<Server>) -> Result<usize, StoreError> {
    let schema = server.schema();
    let Some(table) = schema.table("system", "prepared_statements") else { return Ok(0) };
    let id_of = |name| table.column(name).map(|c| c.id);
    let mut stored = Stored {
        keyspace: id_of("logged_keyspace"),
        text: id_of("query_string"),
        found: Vec::new(),
    };
    let command = ReadCommand::whole(
        table.id,
        Partitions::Range(KeyRange::all()),
        server.rt.wall().seconds(),
    );
    server.coordinator.read(&command, usize::MAX, &mut stored).await?;
    let mut count = 0;
    for (keyspace, text) in &stored.found {
        // A statement whose table is gone stays unprepared: its client is told so at EXECUTE.
        if let Ok((prepared, _)) = crate::execute::prepare_here(server, text, keyspace.as_deref())
            && crate::execute::spread(server, &prepared, keyspace.clone(), false).await.is_ok()
        {
            count += 1;
        }
    }
    Ok(count)
}
