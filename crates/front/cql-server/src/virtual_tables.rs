//! Tables that are computed when they are read: their rows through the same gate as stored ones.
//!
//! Owns: choosing of what a read command asks for among computed rows, and the rows of
//! `system_views.clients`. Rows that need other parts of the node come from a [`VirtualSource`].

use crate::mesh::{ClientInfo, ServerReply, ServerRequest};
use crate::server::Server;
use crate::trace::inet;
use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use data::{
    CellRef, ClusteringBuf, ClusteringComparator, DeletionTime, Liveness, RowBuilder, RowRef,
};
use schema::Table;
use std::cmp::Ordering;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use stdx::{ShardId, TimestampMicros, Token};
use store::{Flow, ReadStats, RowSink};

pub use cql_plan::virtual_row::VirtualRow;

/// A future of virtual rows.
pub type VirtualRows<'a> = Pin<Box<dyn Future<Output = Vec<VirtualRow>> + 'a>>;

/// Computes rows of virtual tables: settings, caches, tasks and whatever else the node knows.
pub trait VirtualSource {
    /// All rows of a virtual table of this node, in any order; none for tables it does not know.
    fn rows<'a>(&'a self, table: &'a Table) -> VirtualRows<'a>;
}

/// A source that knows no table.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoVirtualSource;

impl VirtualSource for NoVirtualSource {
    fn rows<'a>(&'a self, _table: &'a Table) -> VirtualRows<'a> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

/// All rows of a virtual table.
pub(crate) async fn rows(server: &Rc<Server>, table: &Table) -> Vec<VirtualRow> {
    match (&*table.keyspace, &*table.name) {
        ("system_virtual_schema", _) => {
            let schema = server.schema();
            match cql_plan::virtual_schema::rows(&schema, table) {
                Ok(rows) => rows,
                Err(error) => {
                    tracing::error!(%error, table = &*table.name, "virtual table has no rows");
                    Vec::new()
                }
            }
        }
        ("system_views", "clients") => {
            let mut clients = server.clients();
            for shard in (0..server.rt.shard_count()).map(ShardId) {
                if shard == server.rt.shard() {
                    continue;
                }
                let call = server.mesh.calls.call(&server.rt, shard, ServerRequest::Clients);
                if let Ok(ServerReply::Clients(others)) = call.await {
                    clients.extend(others);
                }
            }
            clients.iter().map(|c| client_row(table, c)).collect()
        }
        _ => server.virtual_source.rows(table).await,
    }
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
        ("ssl_enabled", Some(vec![0])),
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

/// Shows the rows that a command asks for to a sink, in read order.
pub(crate) fn read<S: RowSink>(
    table: &Table,
    rows: &[VirtualRow],
    command: &ReadCommand,
    sink: &mut S,
) -> ReadStats {
    let comparator = ClusteringComparator::for_table(table);
    let mut keyed: Vec<(Token, &VirtualRow)> =
        rows.iter().map(|row| (codec::token_of(&row.key), row)).collect();
    keyed.retain(|(token, row)| match &command.partitions {
        Partitions::Key(key) => row.key == *key,
        Partitions::Range(range) => contains(range, *token, &row.key),
    });
    keyed.retain(|(_, row)| in_slices(&comparator, command, &row.clustering));
    keyed.sort_by(|(t1, a), (t2, b)| {
        let by_clustering = comparator.compare(&a.clustering, &b.clustering);
        let by_clustering = if command.reversed { by_clustering.reverse() } else { by_clustering };
        t1.cmp(t2).then_with(|| a.key.cmp(&b.key)).then(by_clustering)
    });
    let first_key = match &command.partitions {
        Partitions::Key(key) => Some(key.clone()),
        Partitions::Range(range) => match &range.start {
            RingBound::Key { key, after: false, .. } => Some(key.clone()),
            RingBound::Key { .. } | RingBound::Token { .. } => None,
        },
    };
    if let (Some(resume), Some(key)) = (&command.resume, first_key)
        && let Some(last) = &resume.clustering
    {
        keyed.retain(|(_, row)| {
            let order = comparator.compare(&row.clustering, last);
            let wanted = if command.reversed { Ordering::Less } else { Ordering::Greater };
            row.key != key || order == wanted
        });
    }
    show(&keyed, sink)
}

fn show<S: RowSink>(rows: &[(Token, &VirtualRow)], sink: &mut S) -> ReadStats {
    let mut stats = ReadStats::default();
    for partition in rows.chunk_by(|(_, a), (_, b)| a.key == b.key) {
        let Some((token, first)) = partition.first() else { continue };
        stats.partitions += 1;
        let mut flow = sink.partition(*token, &first.key, None);
        for (_, row) in partition {
            if flow != Flow::Continue {
                break;
            }
            stats.rows += 1;
            flow = sink.row(&row.clustering, RowRef::trusted(&row.row));
        }
        if flow == Flow::Stop || sink.partition_end() == Flow::Stop {
            break;
        }
    }
    stats
}

fn contains(range: &KeyRange, token: Token, key: &[u8]) -> bool {
    let behind = |bound: &RingBound| match bound {
        RingBound::Token { token: t, after: true } => token > *t,
        RingBound::Token { token: t, after: false } => token >= *t,
        RingBound::Key { token: t, key: k, after } => match (token, key).cmp(&(*t, k.as_slice())) {
            Ordering::Less => false,
            Ordering::Equal => !after,
            Ordering::Greater => true,
        },
    };
    behind(&range.start) && !behind(&range.end)
}

fn in_slices(comparator: &ClusteringComparator, command: &ReadCommand, clustering: &[u8]) -> bool {
    command.slices.is_all()
        || command.slices.0.iter().any(|slice| {
            comparator.compare_to_bound(clustering, slice.start()) == Ordering::Greater
                && comparator.compare_to_bound(clustering, slice.end()) == Ordering::Less
        })
}
