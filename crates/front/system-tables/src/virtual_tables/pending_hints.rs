//! `system_views.pending_hints`: writes that wait for other nodes. Source: Cassandra's `PendingHintsTable`.

use admin::model::{ClusterReport, MemberReport, NodeReport, PendingHintsReport};
use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;
use stdx::Uuid;

use super::{Row, Rows, Sources, int};

pub(super) async fn rows(sources: &Sources, table: &Table) -> Rows {
    let cluster = sources.cluster().await;
    match sources.node().await {
        Some(node) => host_rows(table, &node, &cluster),
        None => Ok(Vec::new()),
    }
}

pub(super) fn host_rows(table: &Table, node: &NodeReport, cluster: &ClusterReport) -> Rows {
    let mut rows = Vec::new();
    for pending in cluster.hints.iter().flat_map(|h| &h.pending) {
        let member = node.nodes.iter().find(|m| m.host_id == pending.host_id);
        rows.extend(host_row(table, member, pending)?);
    }
    Ok(rows)
}

fn host_row(table: &Table, member: Option<&MemberReport>, pending: &PendingHintsReport) -> Row {
    let Ok(host) = Uuid::parse_str(&pending.host_id) else { return Ok(None) };
    let mut row = VirtualRowBuilder::new(table);
    let status = match member {
        Some(member) if !member.liveness_unknown => {
            if member.up {
                "UP"
            } else {
                "DOWN"
            }
        }
        _ => "Unknown",
    };
    row.uuid("host_id", host)
        .text("dc", member.map_or("Unknown", |m| &m.datacenter))
        .text("rack", member.map_or("Unknown", |m| &m.rack))
        .text("status", status)
        .int("files", int(pending.files))
        .timestamp_millis("newest", pending.newest_millis)
        .timestamp_millis("oldest", pending.oldest_millis);
    if let Some(member) = member {
        if let Ok(address) = member.address.parse() {
            row.inet("address", address);
        }
        row.int("port", member.storage_port.into());
    }
    row.finish().map(Some)
}
