//! `system_views.gossip_info`: members as gossip shows them here. Source: Cassandra's `GossipInfoTable`.

use std::net::IpAddr;

use admin::model::{ClusterReport, GossipPeerReport, MemberReport, NodeReport};
use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;

use super::{Row, Rows, Sources, int};

pub(super) async fn rows(sources: &Sources, table: &Table) -> Rows {
    let cluster = sources.cluster().await;
    match sources.node().await {
        Some(node) => peer_rows(table, &node, &cluster),
        None => Ok(Vec::new()),
    }
}

pub(super) fn peer_rows(table: &Table, node: &NodeReport, cluster: &ClusterReport) -> Rows {
    let member = |id: &str| node.nodes.iter().find(|m| m.host_id == id);
    let peers = cluster.gossip.iter().flat_map(|g| &g.peers);
    let known = peers.filter_map(|p| Some((member(&p.host_id)?, p)));
    let mut rows = Vec::new();
    for (member, peer) in known {
        rows.extend(gossip(table, member, peer)?);
    }
    if let (None, Some(me)) = (&cluster.gossip, member(&node.host_id)) {
        rows.extend(gossip(table, me, &alone(node, me))?);
    }
    Ok(rows)
}

/// `127.0.0.1:7000`, `[::1]:7000`.
fn endpoint(address: &str, port: u16) -> String {
    let bracketed = address.contains(':');
    if bracketed { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

fn status(member: &MemberReport, peer: &GossipPeerReport) -> String {
    let token = member.tokens.first().map(ToString::to_string).unwrap_or_default();
    match member.state.as_str() {
        _ if peer.shutting_down => "shutdown,true".to_owned(),
        "Joining" => format!("BOOT,{token}"),
        "Leaving" => format!("LEAVING,{token}"),
        "Moving" => format!("MOVING,{token}"),
        _ => format!("NORMAL,{token}"),
    }
}

/// Returns a lone node's report about itself; it has no heartbeat.
fn alone(node: &NodeReport, me: &MemberReport) -> GossipPeerReport {
    GossipPeerReport {
        host_id: node.host_id.clone(),
        generation: u64::try_from(node.generation).unwrap_or(0),
        is_alive: true,
        load_bytes: me.load_bytes.unwrap_or(0),
        cql_ready: node.native_transport_active,
        release_version: node.release_version.clone(),
        schema_version: Some(node.schema_version.clone()),
        ..GossipPeerReport::default()
    }
}

/// Gossip here has one version for all of a node's states, unlike Cassandra's: versions of states
/// are null. A node's attributes come from the metadata log.
fn gossip(table: &Table, member: &MemberReport, peer: &GossipPeerReport) -> Row {
    let Ok(address) = member.address.parse::<IpAddr>() else { return Ok(None) };
    let mut row = VirtualRowBuilder::new(table);
    row.inet("address", address)
        .int("port", member.storage_port.into())
        .int("generation", int(peer.generation))
        .text("dc", &member.datacenter)
        .text("rack", &member.rack)
        .text("host_id", &member.host_id)
        .text("load", &types::number::java_f64(peer.load_bytes as f64))
        .text("release_version", &peer.release_version)
        .text("rpc_ready", if peer.cql_ready { "true" } else { "false" })
        .text("internal_address_and_port", &endpoint(&member.address, member.storage_port))
        .text("status_with_port", &status(member, peer));
    if !peer.disk_usage.is_empty() {
        row.text("disk_usage", &peer.disk_usage);
    }
    if peer.heartbeat > 0 {
        row.int("heartbeat", int(peer.heartbeat));
    }
    if !member.rpc_address.is_empty() {
        row.text("rpc_address", &member.rpc_address)
            .text("native_address_and_port", &endpoint(&member.rpc_address, member.rpc_port));
    }
    if let Some(schema) = peer.schema_version.as_ref().or(member.schema_version.as_ref()) {
        row.text("schema", schema);
    }
    row.finish().map(Some)
}
