//! `system_views.internode_inbound` and `internode_outbound`: messages from and to other nodes.
//!
//! One connection carries everything here, so there is one count of each. Source: Cassandra's
//! `InternodeInboundTable`, `InternodeOutboundTable`.

use std::net::IpAddr;

use admin::model::{ClusterReport, NodeReport, TrafficReport};
use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;

use super::{Rows, Sources, whole};

pub(super) async fn inbound(sources: &Sources, table: &Table) -> Rows {
    let cluster = sources.cluster().await;
    match sources.node().await {
        Some(node) => peer_rows(table, &node, &cluster, put_inbound),
        None => Ok(Vec::new()),
    }
}

pub(super) async fn outbound(sources: &Sources, table: &Table) -> Rows {
    let cluster = sources.cluster().await;
    match sources.node().await {
        Some(node) => peer_rows(table, &node, &cluster, put_outbound),
        None => Ok(Vec::new()),
    }
}

/// A row for each member that messages went to or came from, with the counts that `put` sets.
pub(super) fn peer_rows(
    table: &Table,
    node: &NodeReport,
    cluster: &ClusterReport,
    put: fn(&mut VirtualRowBuilder<'_>, &TrafficReport),
) -> Rows {
    let mut rows = Vec::new();
    for traffic in &cluster.traffic {
        let member = node.nodes.iter().find(|m| m.host_id == traffic.host_id);
        let Some(member) = member else { continue };
        let Ok(address) = member.address.parse::<IpAddr>() else { continue };
        let mut row = VirtualRowBuilder::new(table);
        row.inet("address", address)
            .int("port", member.storage_port.into())
            .text("dc", &member.datacenter)
            .text("rack", &member.rack);
        put(&mut row, traffic);
        rows.push(row.finish()?);
    }
    Ok(rows)
}

pub(super) fn put_inbound(row: &mut VirtualRowBuilder<'_>, traffic: &TrafficReport) {
    row.bigint("received_bytes", whole(traffic.received_bytes))
        .bigint("received_count", whole(traffic.received));
}

pub(super) fn put_outbound(row: &mut VirtualRowBuilder<'_>, traffic: &TrafficReport) {
    row.bigint("active_connections", whole(traffic.links))
        .bigint("pending_bytes", whole(traffic.queued_bytes))
        .bigint("using_bytes", whole(traffic.queued_bytes))
        .bigint("sent_bytes", whole(traffic.sent_bytes))
        .bigint("sent_count", whole(traffic.sent));
}
