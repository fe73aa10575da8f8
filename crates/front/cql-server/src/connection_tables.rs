//! Virtual tables about connections: `system_views.clients` and `system_views.queries`, collected from all shards.

use crate::client_info::{ClientInfo, QueryInfo};
use crate::mesh::{ServerReply, ServerRequest};
use crate::server::Server;
use cql_plan::virtual_row::{VirtualRowBuilder, VirtualRowError};
use data::{CellRef, ClusteringBuf, DeletionTime, Liveness, RowBuilder};
use query::{Result, VirtualRow, VirtualRows, VirtualSource, inet};
use schema::Table;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;
use stdx::{ShardId, TimestampMicros};

/// Rows about connections, and the rows of the node's other virtual tables.
pub(crate) struct ConnectionTables {
    server: RefCell<Weak<Server>>,
    others: Rc<dyn VirtualSource>,
}

impl ConnectionTables {
    pub(crate) fn new(others: Rc<dyn VirtualSource>) -> ConnectionTables {
        ConnectionTables { server: RefCell::default(), others }
    }

    /// Shows the connections of this server from now on.
    pub(crate) fn show_connections_of(&self, server: &Rc<Server>) {
        *self.server.borrow_mut() = Rc::downgrade(server);
    }
}

impl VirtualSource for ConnectionTables {
    fn rows<'a>(&'a self, table: &'a Table) -> VirtualRows<'a> {
        let server = self.server.borrow().upgrade();
        match (&*table.keyspace, &*table.name, server) {
            ("system_views", "clients", Some(server)) => Box::pin(client_rows(server, table)),
            ("system_views", "queries", Some(server)) => Box::pin(query_rows(server, table)),
            _ => self.others.rows(table),
        }
    }

    fn truncate(&self, table: &Table) -> bool {
        self.others.truncate(table)
    }
}

async fn client_rows(server: Rc<Server>, table: &Table) -> Vec<VirtualRow> {
    let mut clients = server.clients();
    for shard in other_shards(&server) {
        let call = server.mesh.calls.call(&server.rt, shard, ServerRequest::Clients);
        if let Ok(ServerReply::Clients(others)) = call.await {
            clients.extend(others);
        }
    }
    clients.iter().map(|c| client_row(table, c)).collect()
}

async fn query_rows(server: Rc<Server>, table: &Table) -> Vec<VirtualRow> {
    // As in Cassandra, the result includes the statement that reads the table: it waits for a task.
    let asked = running_queries(server.clone());
    let queries = server.query.to_its_end("queries", asked).await.unwrap_or_default();
    let rows: std::result::Result<Vec<_>, _> =
        queries.iter().map(|q| query_row(table, q)).collect();
    rows.unwrap_or_else(|error| {
        // A row that cannot be built is a mistake in the built-in definition.
        tracing::error!(%error, table = &*table.name, "virtual table has no rows");
        Vec::new()
    })
}

fn other_shards(server: &Server) -> impl Iterator<Item = ShardId> + use<> {
    let own = server.rt.shard();
    (0..server.rt.shard_count()).map(ShardId).filter(move |shard| *shard != own)
}

/// Lists the running statements of all shards.
async fn running_queries(server: Rc<Server>) -> Result<Vec<QueryInfo>> {
    let mut queries = server.queries();
    for shard in other_shards(&server) {
        let call = server.mesh.calls.call(&server.rt, shard, ServerRequest::Queries);
        if let Ok(ServerReply::Queries(others)) = call.await {
            queries.extend(others);
        }
    }
    Ok(queries)
}

fn query_row(table: &Table, query: &QueryInfo) -> std::result::Result<VirtualRow, VirtualRowError> {
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    VirtualRowBuilder::new(table)
        .text("thread_id", &query.thread_id)
        .bigint("queued_micros", micros(query.queued))
        .bigint("running_micros", micros(query.running))
        .text("task", &query.task)
        .finish()
}

fn client_row(table: &Table, client: &ClientInfo) -> VirtualRow {
    let text = |s: &str| Some(s.as_bytes().to_vec());
    let mut options = Vec::new();
    let mut sorted = client.options.clone();
    sorted.sort();
    let be = |n: usize| i32::try_from(n).unwrap_or(i32::MAX).to_be_bytes();
    options.extend_from_slice(&be(sorted.len()));
    for part in sorted.iter().flat_map(|(k, v)| [k, v]) {
        options.extend_from_slice(&be(part.len()));
        options.extend_from_slice(part.as_bytes());
    }
    let requests = i64::try_from(client.requests).unwrap_or(i64::MAX);
    let cells: Vec<(&str, Option<Vec<u8>>)> = vec![
        ("client_options", Some(options)),
        ("connection_stage", text(client.stage)),
        ("driver_name", client.driver_name.as_deref().and_then(text)),
        ("driver_version", client.driver_version.as_deref().and_then(text)),
        ("hostname", text(&client.address.to_string())),
        ("keyspace_name", client.keyspace.as_deref().and_then(text)),
        ("protocol_version", Some(i32::from(client.protocol_version).to_be_bytes().to_vec())),
        ("request_count", Some(requests.to_be_bytes().to_vec())),
        ("ssl_cipher_suite", client.tls.and_then(|(_, suite)| text(suite))),
        ("ssl_enabled", Some(vec![u8::from(client.tls.is_some())])),
        ("ssl_protocol", client.tls.and_then(|(protocol, _)| text(protocol))),
        ("username", text(client.user.as_deref().unwrap_or("anonymous"))),
    ];
    let port = i32::from(client.port).to_be_bytes();
    VirtualRow {
        key: inet(client.address),
        clustering: ClusteringBuf::from_components([port.as_slice()]).0,
        row: packed_row(table, &cells),
    }
}

/// Packs cells given by column name; unknown names and nulls are left out.
pub(crate) fn packed_row(table: &Table, cells: &[(&str, Option<Vec<u8>>)]) -> Vec<u8> {
    let mut by_id: Vec<_> = cells
        .iter()
        .filter_map(|(name, value)| Some((table.column(name)?.id, value.as_deref()?)))
        .collect();
    by_id.sort_by_key(|(id, _)| *id);
    let timestamp = TimestampMicros(0);
    let mut row = Vec::new();
    let liveness = Liveness::new(timestamp);
    let mut builder = RowBuilder::new(&mut row, liveness, DeletionTime::LIVE, timestamp);
    for (id, value) in by_id {
        builder.cell(id, &CellRef::live(timestamp, value));
    }
    builder.finish();
    row
}
