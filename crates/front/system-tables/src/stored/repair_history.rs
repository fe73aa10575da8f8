//! Rows of `system_distributed.parent_repair_history` and `repair_history`, and of `system_traces` for
//! traced repairs, as Cassandra writes them.
//!
//! Owns: their columns and values, and that they are written. Never: when (`repair::RepairRecords`).
//! A row that cannot be written is missing, as in Cassandra: nothing depends on it. Differs: each range has
//! a row of its own, where Cassandra shows the last range of a session; no Java stack traces.
//!
//! Source: `SystemDistributedKeyspace` of Cassandra 5.0.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cluster::Consistency;
use coordinator::{Origin, ReplicaMutation, ReplicatedWrite};
use cql_plan::plan::UuidSource;
use data::clustering::push_component;
use query::{Content, RowWrite, encode_row};
use repair::{RepairRecord, RepairRecords};
use request::WriteType;
use rt::Group;
use stdx::{TimestampMicros, TtlSeconds, Uuid, WallMicros};

use super::own_rows::RowWriter;

/// `default_time_to_live` of both tables of histories.
const TTL: TtlSeconds = TtlSeconds(2_592_000);
/// Keyspace of traces.
const TRACES: &str = "system_traces";
/// Keyspace of histories.
const HISTORIES: &str = "system_distributed";
/// For one row.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes the rows of one node's repairs.
pub struct RepairRows {
    writer: RowWriter,
    uuids: UuidSource,
    /// Timestamp of the last row: the end of an operation overrides its beginning in the same
    /// microsecond.
    last: Cell<i64>,
    /// Time to live of traces.
    trace_ttl: TtlSeconds,
}

impl RepairRows {
    /// Builds the writer; traces expire after `trace_ttl`.
    pub fn new(writer: RowWriter, trace_ttl: TtlSeconds) -> RepairRows {
        let uuids = UuidSource::new(writer.rt.random_u64());
        RepairRows { writer, uuids, last: Cell::new(0), trace_ttl }
    }
}

impl RepairRecords for RepairRows {
    fn time_uuid(&self) -> Uuid {
        Uuid::from_bytes(self.uuids.time_uuid(self.writer.rt.wall()))
    }

    fn record(&self, record: RepairRecord) {
        let snapshot = self.writer.membership.snapshot();
        let coordinator = snapshot.local_member().map(|member| member.storage);
        let (keyspace, name, row) = row_of(&record, coordinator);
        let ttl = if keyspace == TRACES { self.trace_ttl } else { TTL };
        let Some(table) = snapshot.schema.table(keyspace, name) else { return };
        let at = self.writer.rt.wall().0.max(self.last.get().saturating_add(1));
        self.last.set(at);
        let bytes = encode_row(table, &row, TimestampMicros(at), ttl);
        let mutation = ReplicaMutation::durable(codec::token_of(&row.key), bytes);
        let id = table.id;
        let (data, deadline) = (self.writer.coordinator.clone(), self.writer.rt.now() + PATIENCE);
        let task = async move {
            let written = if data.is_replicated(&snapshot, id) {
                let write = ReplicatedWrite {
                    snapshot,
                    consistency: Consistency::Any,
                    write_type: WriteType::Simple,
                    mutations: vec![mutation],
                    logged: false,
                    batch_id: Uuid::nil(),
                    deadline,
                };
                data.writer().write_replicated(write).await.map_err(|error| error.to_string())
            } else {
                data.apply(mutation, Origin::System).await.map_err(|error| error.to_string())
            };
            if let Err(error) = written {
                tracing::debug!(error, "a row of the history of repairs is missing");
            }
        };
        // A closed gate: the node stops.
        let _ = self.writer.gate.spawn(&self.writer.rt, Group::Admin, "repair-history", task);
    }
}

type Column = (&'static str, Content);

fn text(name: &'static str, value: &str) -> Column {
    (name, Content::Value(value.as_bytes().to_vec()))
}

fn time(name: &'static str, at: WallMicros) -> Column {
    (name, Content::Value(at.millis().to_be_bytes().to_vec()))
}

/// A set of many cells.
fn set(name: &'static str, values: impl IntoIterator<Item = Vec<u8>>) -> Column {
    let mut values: Vec<Vec<u8>> = values.into_iter().collect();
    values.sort_unstable();
    values.dedup();
    (name, Content::Entries(values.into_iter().map(|value| (value, Vec::new())).collect()))
}

fn texts(name: &'static str, values: &[String]) -> Column {
    set(name, values.iter().map(|value| value.as_bytes().to_vec()))
}

fn bytes_of(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The key of a row of `repair_history`.
fn key_of(keyspace: &str, table: &str) -> Vec<u8> {
    let mut key = Vec::new();
    for part in [keyspace, table] {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        key.extend_from_slice(&length.to_be_bytes());
        key.extend_from_slice(part.as_bytes());
        key.push(0);
    }
    key
}

fn clustering_of(id: Uuid) -> Vec<u8> {
    let mut clustering = Vec::new();
    push_component(&mut clustering, Some(id.as_bytes()));
    clustering
}

fn status_of(error: Option<&String>) -> &'static str {
    if error.is_some() { "FAILED" } else { "SUCCESS" }
}

/// A duration in microseconds, as an `int`.
fn micros(name: &'static str, time: Duration) -> Column {
    let micros = i32::try_from(time.as_micros()).unwrap_or(i32::MAX);
    (name, Content::Value(micros.to_be_bytes().to_vec()))
}

/// Two columns of an address.
fn address(names: [&'static str; 2], address: Option<SocketAddr>) -> Vec<Column> {
    let Some(address) = address else { return Vec::new() };
    let port = i32::from(address.port()).to_be_bytes().to_vec();
    let [ip, of_port] = names;
    vec![(ip, Content::Value(bytes_of(address.ip()))), (of_port, Content::Value(port))]
}

type Placed = (&'static str, &'static str, RowWrite);

/// Columns of this node as the one that coordinates.
fn coordinated_by(coordinator: Option<SocketAddr>) -> Vec<Column> {
    address(["coordinator", "coordinator_port"], coordinator)
}

fn parent_row(id: Uuid, columns: Vec<Column>) -> Placed {
    let (key, clustering) = (id.as_bytes().to_vec(), Vec::new());
    (HISTORIES, "parent_repair_history", RowWrite { key, clustering, columns })
}

fn range_row(keyspace: &str, table: &str, id: Uuid, columns: Vec<Column>) -> Placed {
    let (key, clustering) = (key_of(keyspace, table), clustering_of(id));
    (HISTORIES, "repair_history", RowWrite { key, clustering, columns })
}

fn trace_row(id: Uuid, columns: Vec<Column>) -> Placed {
    let (key, clustering) = (id.as_bytes().to_vec(), Vec::new());
    (TRACES, "sessions", RowWrite { key, clustering, columns })
}

/// The keyspace, the table and the row.
fn row_of(record: &RepairRecord, coordinator: Option<SocketAddr>) -> Placed {
    match record {
        RepairRecord::Started { parent, keyspace, tables, options, ranges, at } => {
            let options: Vec<(String, String)> =
                options.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            let columns = vec![
                text("keyspace_name", keyspace),
                texts("columnfamily_names", tables),
                texts("requested_ranges", ranges),
                ("options", Content::Texts(options)),
                time("started_at", *at),
            ];
            parent_row(*parent, columns)
        }
        RepairRecord::Ended { parent, ranges, error, at } => {
            let mut columns = vec![time("finished_at", *at)];
            match error {
                Some(error) => columns.push(text("exception_message", error)),
                None => columns.push(texts("successful_ranges", ranges)),
            }
            parent_row(*parent, columns)
        }
        RepairRecord::RangeStarted { id, parent, keyspace, table, range, participants, at } => {
            let mut columns = vec![
                ("parent_id", Content::Value(parent.as_bytes().to_vec())),
                text("range_begin", &range.start.0.to_string()),
                text("range_end", &range.end.0.to_string()),
                set("participants", participants.iter().map(|a| bytes_of(a.ip()))),
                set("participants_v2", participants.iter().map(|a| a.to_string().into_bytes())),
                text("status", "STARTED"),
                time("started_at", *at),
            ];
            columns.extend(coordinated_by(coordinator));
            range_row(keyspace, table, *id, columns)
        }
        RepairRecord::RangeEnded { id, keyspace, table, error, at } => {
            let mut columns =
                vec![text("status", status_of(error.as_ref())), time("finished_at", *at)];
            if let Some(error) = error {
                columns.push(text("exception_message", error));
            }
            range_row(keyspace, table, *id, columns)
        }
        RepairRecord::TraceStarted { trace, keyspace, tables, at } => {
            let mut columns = session_columns(keyspace, tables);
            columns.push(time("started_at", *at));
            columns.extend(coordinated_by(coordinator));
            trace_row(*trace, columns)
        }
        RepairRecord::Traced { trace, id, activity, elapsed } => {
            let mut columns = vec![
                text("activity", activity),
                text("thread", "repair"),
                micros("source_elapsed", *elapsed),
            ];
            columns.extend(address(["source", "source_port"], coordinator));
            let (key, clustering) = (trace.as_bytes().to_vec(), clustering_of(*id));
            (TRACES, "events", RowWrite { key, clustering, columns })
        }
        RepairRecord::TraceEnded { trace, took } => {
            trace_row(*trace, vec![micros("duration", *took)])
        }
    }
}

/// Columns about the subject of a traced repair.
fn session_columns(keyspace: &str, tables: &[String]) -> Vec<Column> {
    let tables: Vec<String> = tables.iter().map(|t| format!("{keyspace}.{t}")).collect();
    let parameters = vec![
        ("columnFamilies".to_owned(), tables.join(", ")),
        ("keyspace".to_owned(), keyspace.to_owned()),
    ];
    vec![
        text("command", "REPAIR"),
        text("request", "repair"),
        ("parameters", Content::Texts(parameters)),
    ]
}
