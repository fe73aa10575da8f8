//! Rows of `system.peers` and `system.peers_v2`: the other members, for drivers.
//!
//! Owns: their content. Never: when they are written ([`super::writer`]). Source: Cassandra's
//! `SystemKeyspace.updatePeerInfo`; a member is in them from `Normal` until it is out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use cluster::{ADDRESS_UNKNOWN, ClusterSnapshot, Member, MemberState};
use coordinator::Coordinator;
use cql_plan::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};
use schema::{Schema, Table};
use stdx::{TimestampMicros, Token};
use store::StoreError;

use super::row_sync::{self, Moment, RowKey, Rows};

const TABLES: [&str; 2] = ["peers", "peers_v2"];

/// Returns the members that drivers may see, by address.
fn shown(snapshot: &ClusterSnapshot) -> BTreeMap<SocketAddr, Arc<Member>> {
    let members = snapshot.members.values().filter(|member| {
        let is_in = !matches!(member.state, MemberState::Joining | MemberState::JoinHandover);
        let is_other = member.host_id != snapshot.local.host_id;
        is_in && is_other && member.storage != ADDRESS_UNKNOWN && member.rpc != ADDRESS_UNKNOWN
    });
    members.map(|member| (member.storage, member.clone())).collect()
}

/// The mutations that turn the rows of one epoch into those of another.
pub(super) fn difference(
    before: &ClusterSnapshot,
    after: &ClusterSnapshot,
    moment: Moment,
) -> Vec<(Token, Vec<u8>)> {
    let (was, is) = (shown(before), shown(after));
    if was == is && before.schema.version == after.schema.version {
        return Vec::new();
    }
    let mut out = Vec::new();
    for name in TABLES {
        let Some(table) = after.schema.table("system", name) else { continue };
        let old = was.keys().filter_map(|address| place_of(table, *address)).collect();
        out.extend(rewrite(table, old, &is, after, moment));
    }
    out
}

/// Returns the mutations that turn the rows into those of `snapshot`, whatever an earlier run left.
///
/// # Errors
/// The tables cannot be read.
pub(super) async fn all(
    coordinator: &Coordinator,
    snapshot: &ClusterSnapshot,
    moment: Moment,
) -> Result<Vec<(Token, Vec<u8>)>, StoreError> {
    let is = shown(snapshot);
    let mut out = Vec::new();
    for name in TABLES {
        let Some(table) = snapshot.schema.table("system", name) else { continue };
        let old = row_sync::present(coordinator, table, moment.now).await?;
        out.extend(rewrite(table, old, &is, snapshot, moment));
    }
    Ok(out)
}

/// Deletes the rows at `old` that are no longer wanted and writes those that are.
fn rewrite(
    table: &Table,
    old: BTreeSet<RowKey>,
    members: &BTreeMap<SocketAddr, Arc<Member>>,
    snapshot: &ClusterSnapshot,
    moment: Moment,
) -> Vec<(Token, Vec<u8>)> {
    let mut rows = Rows::new();
    for (address, member) in members {
        match row(table, *address, member, &snapshot.schema, moment.at) {
            Ok(row) => {
                rows.insert((row.key, row.clustering), row.row);
            }
            Err(error) => {
                // A column is missing in the built-in definition: the program is at fault.
                tracing::error!(%error, table = &*table.name, "a peer's row cannot be made");
            }
        }
    }
    row_sync::rewrite(table, old, rows, moment)
}

fn place_of(table: &Table, address: SocketAddr) -> Option<RowKey> {
    let mut builder = VirtualRowBuilder::new(table);
    builder.inet("peer", address.ip());
    if &*table.name == "peers_v2" {
        builder.int("peer_port", i32::from(address.port()));
    }
    let row = builder.finish().ok()?;
    Some((row.key, row.clustering))
}

fn row(
    table: &Table,
    address: SocketAddr,
    member: &Member,
    schema: &Schema,
    at: TimestampMicros,
) -> Result<VirtualRow, VirtualRowError> {
    let tokens: Vec<String> = member.tokens.iter().map(Token::to_string).collect();
    let mut row = VirtualRowBuilder::at(table, at);
    row.inet("peer", address.ip())
        .text("data_center", &member.datacenter)
        .uuid("host_id", member.host_id.0)
        .text("rack", &member.rack)
        .text("release_version", &member.release)
        .uuid("schema_version", schema.version)
        .text_set("tokens", tokens.iter().map(String::as_str));
    if &*table.name == "peers_v2" {
        row.int("peer_port", i32::from(address.port()))
            .inet("native_address", member.rpc.ip())
            .int("native_port", i32::from(member.rpc.port()));
    } else {
        row.inet("rpc_address", member.rpc.ip());
    }
    row.finish()
}
