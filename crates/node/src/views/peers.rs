//! Virtual tables about other nodes as this one sees them: gossip, messages, hints.
//!
//! Source: Cassandra's `GossipInfoTable`, `InternodeInboundTable`, `InternodeOutboundTable`,
//! `PendingHintsTable`.

use std::net::IpAddr;

use admin::model::{
    ClusterReport, GossipPeerReport, MemberReport, NodeReport, PendingHintsReport, TrafficReport,
};
use admin::{AdminReply, AdminRequest};
use cql_plan::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};
use schema::Table;
use stdx::{ShardId, Uuid};

use super::{NodeViews, Rows, whole};

impl NodeViews {
    /// The part of this node in the cluster, shards together.
    pub(super) async fn cluster_report(&self) -> ClusterReport {
        let mut all = ClusterReport::default();
        for reply in self.ask(AdminRequest::Cluster).await {
            if let AdminReply::Cluster(report) = reply {
                all.merge(*report);
            }
        }
        all
    }

    pub(super) async fn of_peers(&self, table: &Table) -> Rows {
        let cluster = self.cluster_report().await;
        let node = match self.admin.call(&self.rt, ShardId(0), AdminRequest::Node).await {
            Ok(AdminReply::Node(node)) => *node,
            _ => return Ok(Vec::new()),
        };
        rows(table, &node, &cluster)
    }
}

/// The rows of one of these tables.
pub(super) fn rows(table: &Table, node: &NodeReport, cluster: &ClusterReport) -> Rows {
    let member = |id: &str| node.nodes.iter().find(|m| m.host_id == id);
    let rows: Vec<Option<VirtualRow>> = match &*table.name {
        "gossip_info" => {
            let peers = cluster.gossip.iter().flat_map(|g| &g.peers);
            let known = peers.filter_map(|p| Some((member(&p.host_id)?, p)));
            let mut rows =
                known.map(|(m, p)| gossip(table, m, p)).collect::<Result<Vec<_>, _>>()?;
            if let (None, Some(me)) = (&cluster.gossip, member(&node.host_id)) {
                rows.push(gossip(table, me, &alone(node, me))?);
            }
            rows
        }
        "pending_hints" => {
            let pending = cluster.hints.iter().flat_map(|h| &h.pending);
            pending.map(|p| hints(table, member(&p.host_id), p)).collect::<Result<_, _>>()?
        }
        _ => {
            let traffic = cluster.traffic.iter();
            let known = traffic.filter_map(|t| Some((member(&t.host_id)?, t)));
            known.map(|(m, t)| messages(table, m, t)).collect::<Result<_, _>>()?
        }
    };
    Ok(rows.into_iter().flatten().collect())
}

type Row = Result<Option<VirtualRow>, VirtualRowError>;

fn int(n: u64) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
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

/// What a node that is alone would say of itself; it has no heartbeat.
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

/// Gossip here has one version for all of a node's states, which is not Cassandra's: versions of
/// states are null. What a node is comes from the metadata log.
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

fn hints(table: &Table, member: Option<&MemberReport>, pending: &PendingHintsReport) -> Row {
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

/// One connection carries everything here, so there is one count of each.
fn messages(table: &Table, member: &MemberReport, traffic: &TrafficReport) -> Row {
    let Ok(address) = member.address.parse::<IpAddr>() else { return Ok(None) };
    let mut row = VirtualRowBuilder::new(table);
    row.inet("address", address)
        .int("port", member.storage_port.into())
        .text("dc", &member.datacenter)
        .text("rack", &member.rack);
    if &*table.name == "internode_inbound" {
        row.bigint("received_bytes", whole(traffic.received_bytes))
            .bigint("received_count", whole(traffic.received));
    } else {
        row.bigint("active_connections", whole(traffic.links))
            .bigint("pending_bytes", whole(traffic.queued_bytes))
            .bigint("using_bytes", whole(traffic.queued_bytes))
            .bigint("sent_bytes", whole(traffic.sent_bytes))
            .bigint("sent_count", whole(traffic.sent));
    }
    row.finish().map(Some)
}
