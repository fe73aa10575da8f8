//! Resolution of the API's commands to actions: names become ids; commands whose names do not
//! resolve are refused in Cassandra's words. Pure: decides on a snapshot and on gossip's state.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use cluster::cidr::{self, IpNet};
use cluster::replication::replication_of;
use cluster::{ClusterSnapshot, Member, MemberState, Replication};
use codec::murmur::token_of;
use schema::Table;
use stdx::{HostId, TableId, Uuid};

use crate::cluster_command::{ClusterAction, ClusterCommand, Unresolved};
use crate::model::{EndpointsReport, GossipReport};
use crate::operation::Scope;
use crate::request::ActionError;

/// Kinds of timeouts that `gettimeout` and `settimeout` know.
pub const TIMEOUTS: [&str; 10] = [
    "read",
    "range",
    "write",
    "counterwrite",
    "cascontention",
    "truncate",
    "internodeconnect",
    "internodeuser",
    "internodestreaminguser",
    "misc",
];

/// [`TIMEOUTS`] as Cassandra lists them.
pub const TIMEOUTS_TEXT: &str = "read, range, write, counterwrite, cascontention, truncate, \
                                 internodeconnect, internodeuser, internodestreaminguser, misc \
                                 (general rpc_timeout_in_ms)";

impl ClusterCommand {
    /// Returns true if shard 0 does it for the node; else every shard does its part.
    pub fn is_for_one_shard(&self) -> bool {
        self.row().scope != Scope::Shard
    }

    /// Returns true if it waits until the node is a full member. Switching the native transport off
    /// does not wait.
    fn needs_a_member(&self) -> bool {
        self.row().members_only || *self == ClusterCommand::SetNativeTransport { enabled: true }
    }
}

fn argument(text: impl Into<String>) -> ActionError {
    ActionError::Argument(text.into())
}

fn failed(text: impl Into<String>) -> ActionError {
    ActionError::Failed(text.into())
}

/// Resolves the names of a command.
///
/// # Errors
/// `Argument` or `Failed`, for which Cassandra's nodetool ends with 1 or 2, in its words.
pub(crate) fn resolve(
    command: ClusterCommand,
    snapshot: &ClusterSnapshot,
    gossip: Option<&GossipReport>,
) -> Result<ClusterAction, ActionError> {
    let joins = |m: &Member| matches!(m.state, MemberState::Joining | MemberState::JoinHandover);
    if command.needs_a_member() && snapshot.local_member().is_some_and(|m| joins(m)) {
        return Err(failed("Node in JOINING state; wait for status to become normal or restart"));
    }
    command.into_action().or_else(|unresolved| look_up(unresolved, snapshot, gossip))
}

fn look_up(
    command: Unresolved,
    snapshot: &ClusterSnapshot,
    gossip: Option<&GossipReport>,
) -> Result<ClusterAction, ActionError> {
    Ok(match command {
        Unresolved::Decommission { force } => {
            check_decommission(snapshot, force)?;
            ClusterAction::Decommission { force }
        }
        Unresolved::RemoveNode { host_id } => {
            ClusterAction::RemoveNode { host: removable(snapshot, gossip, &host_id)? }
        }
        Unresolved::AbortRemoval { host_id } => {
            ClusterAction::AbortRemoval { host: moving::removed(snapshot, host_id.as_deref())? }
        }
        Unresolved::AbortBootstrap { node } => {
            ClusterAction::AbortBootstrap { host: moving::joining(snapshot, &node)? }
        }
        Unresolved::Move { token } => {
            ClusterAction::Move { token: moving::target(snapshot, &token)? }
        }
        Unresolved::Rebuild { datacenter, keyspace, tokens, sources, exclude_local_dc } => {
            let from = moving::From { datacenter, keyspace, tokens, sources, exclude_local_dc };
            moving::rebuild(snapshot, from)?
        }
        Unresolved::Assassinate { address } => {
            ClusterAction::Assassinate { host: dead_at(snapshot, gossip, &address)? }
        }
        Unresolved::Cleanup { keyspace, tables } => {
            ClusterAction::Cleanup { tables: to_clean(snapshot, &keyspace, &tables)? }
        }
        Unresolved::SetHintsForDatacenter { datacenter, enabled } => {
            check_datacenter(snapshot, &datacenter)?;
            ClusterAction::SetHintsForDatacenter { datacenter, enabled }
        }
        Unresolved::TruncateHints { address } => {
            let member = address.map(|address| at_address(snapshot, &address)).transpose()?;
            ClusterAction::TruncateHints { host: member.map(|member| member.host_id) }
        }
        Unresolved::SetCompactionShare { share } => {
            ClusterAction::SetCompactionShare { share: share.map(checked_share).transpose()? }
        }
        Unresolved::SetTraceProbability { per_million } => {
            if per_million > 1_000_000 {
                return Err(argument("Trace probability must be between 0 and 1"));
            }
            ClusterAction::SetTraceProbability { per_million }
        }
        Unresolved::PutCidrGroup { name, cidrs } => {
            let ranges = cidr_ranges(&name, &cidrs)?;
            ClusterAction::PutCidrGroup { name, ranges }
        }
        Unresolved::DropCidrGroup { name } => {
            if !snapshot.auth.cidr_groups.contains_key(&name) {
                return Err(argument(format!("CIDR group '{name}' doesn't exists")));
            }
            ClusterAction::PutCidrGroup { name, ranges: BTreeSet::new() }
        }
        Unresolved::CutLinks { addresses } => {
            ClusterAction::CutLinks { addresses: ip_addresses(&addresses)? }
        }
        Unresolved::SetTimeout { kind, millis } => {
            if !TIMEOUTS.contains(&kind.as_str()) {
                return Err(argument(format!("Timeout type requires one of ({TIMEOUTS_TEXT})")));
            }
            ClusterAction::SetTimeout { kind, millis }
        }
    })
}

fn check_datacenter(snapshot: &ClusterSnapshot, name: &str) -> Result<(), ActionError> {
    let mut known: Vec<&str> = snapshot.members.values().map(|m| m.datacenter.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    if known.contains(&name) {
        return Ok(());
    }
    let known = known.join(", ");
    Err(argument(format!("There is no data center '{name}', there are: {known}")))
}

fn checked_share(share: u32) -> Result<u32, ActionError> {
    match share {
        1..=1000 => Ok(share),
        _ => Err(argument(format!("the share must be from 1 to 1000, not {share}"))),
    }
}

fn cidr_ranges(name: &str, cidrs: &[String]) -> Result<BTreeSet<IpNet>, ActionError> {
    let parsed = |text: &String| cidr::parse(text).map_err(|e| argument(e.to_string()));
    let ranges: BTreeSet<IpNet> = cidrs.iter().map(parsed).collect::<Result<_, _>>()?;
    if name.is_empty() || ranges.is_empty() || ranges.len() > cidr::RANGES_MAX {
        return Err(argument(format!(
            "updatecidrgroup command requires a cidr group name and atleast one CIDR, and takes {} \
             at most",
            cidr::RANGES_MAX
        )));
    }
    Ok(ranges)
}

fn ip_addresses(texts: &[String]) -> Result<BTreeSet<IpAddr>, ActionError> {
    let parsed =
        |text: &String| text.parse().map_err(|_| argument(format!("{text} is not an IP address")));
    texts.iter().map(parsed).collect()
}

/// The dead member at an address.
fn dead_at(
    snapshot: &ClusterSnapshot,
    gossip: Option<&GossipReport>,
    address: &str,
) -> Result<HostId, ActionError> {
    let member = at_address(snapshot, address)?;
    if member.host_id == snapshot.local.host_id || is_alive(gossip, member) {
        return Err(failed(format!(
            "Endpoint still alive: /{} heartbeat changed while trying to assassinate it",
            member.storage
        )));
    }
    Ok(member.host_id)
}

/// Checks that enough nodes stay when this one leaves.
fn check_decommission(snapshot: &ClusterSnapshot, force: bool) -> Result<(), ActionError> {
    let refused = |text: String| Err(argument(format!("Unsupported operation: {text}")));
    let Some(me) = snapshot.local_member() else {
        return refused("local node is not a member of the token ring yet".to_owned());
    };
    let is_leaving =
        |m: &Member| matches!(m.state, MemberState::Leaving | MemberState::LeaveHandover);
    let staying: Vec<&Arc<Member>> =
        snapshot.members.values().filter(|m| !is_leaving(m) || m.host_id == me.host_id).collect();
    if staying.len() < 2 {
        return refused(
            "no other normal nodes in the ring; decommission would be pointless".to_owned(),
        );
    }
    if force || is_leaving(me) {
        return Ok(());
    }
    if me.state != MemberState::Normal {
        let mode = me.state.word().to_uppercase();
        return refused(format!(
            "Node in {mode} state; wait for status to become normal or restart"
        ));
    }
    let lacking = lacking_keyspaces(snapshot, me, &staying);
    if !lacking.is_empty() {
        return refused(format!(
            "Not enough live nodes to maintain replication factor in keyspace {}. Perform a forceful decommission to \
             ignore.",
            lacking.join(", ")
        ));
    }
    Ok(())
}

/// Keyspaces that would have fewer nodes than replicas without this one, in Cassandra's words; it names
/// the first only.
fn lacking_keyspaces(
    snapshot: &ClusterSnapshot,
    me: &Member,
    staying: &[&Arc<Member>],
) -> Vec<String> {
    let mut lacking = Vec::new();
    for keyspace in snapshot.schema.keyspaces.values().filter(|k| !k.is_virtual) {
        let (factor, nodes) = match replication_of(keyspace) {
            Replication::Local => continue,
            Replication::Simple(n) => (n as usize, staying.len()),
            Replication::Network(map) => {
                let here = staying.iter().filter(|m| m.datacenter == me.datacenter).count();
                (map.get(&me.datacenter).copied().unwrap_or(0) as usize, here)
            }
        };
        if nodes <= factor {
            lacking.push(format!("{} (RF = {factor}, N = {nodes})", keyspace.name));
        }
    }
    lacking
}

/// The dead member of that id.
fn removable(
    snapshot: &ClusterSnapshot,
    gossip: Option<&GossipReport>,
    text: &str,
) -> Result<HostId, ActionError> {
    let id = Uuid::parse_str(text).map_err(|_| argument(format!("Invalid UUID string: {text}")))?;
    let host = HostId(id);
    let Some(member) = snapshot.members.get(&host) else {
        return Err(failed("Host ID not found."));
    };
    if host == snapshot.local.host_id {
        return Err(failed("Cannot remove self"));
    }
    if is_alive(gossip, member) {
        return Err(failed(format!(
            "Node /{} is alive and owns this ID. Use decommission command to remove it from the \
             ring",
            member.storage
        )));
    }
    Ok(host)
}

/// Returns false for nodes that gossip does not know, or knows to be down: they may be dead.
/// Without gossip no node is known to be dead.
fn is_alive(gossip: Option<&GossipReport>, member: &Member) -> bool {
    match gossip {
        Some(gossip) => gossip.peer(&member.host_id.to_string()).is_some_and(|p| p.is_alive),
        None => true,
    }
}

/// The member at an address for other nodes.
fn at_address<'a>(
    snapshot: &'a ClusterSnapshot,
    text: &str,
) -> Result<&'a Arc<Member>, ActionError> {
    let (ip, port) = match (text.parse::<IpAddr>(), text.parse::<SocketAddr>()) {
        (Ok(ip), _) => (ip, None),
        (_, Ok(address)) => (address.ip(), Some(address.port())),
        _ => return Err(argument(format!("{text} is not an IP address"))),
    };
    let mut found = snapshot
        .members
        .values()
        .filter(|m| m.storage.ip() == ip && port.is_none_or(|p| m.storage.port() == p));
    match (found.next(), found.next()) {
        (Some(member), None) => Ok(member),
        (Some(_), Some(_)) => {
            Err(argument(format!("several nodes have the address {ip}: name the port too")))
        }
        (None, _) => Err(argument(format!("no node of the cluster has the address {text}"))),
    }
}

/// The tables that a cleanup is for: those of replicated keyspaces.
fn to_clean(
    snapshot: &ClusterSnapshot,
    keyspace: &str,
    tables: &[String],
) -> Result<Vec<TableId>, ActionError> {
    let found = snapshot.schema.keyspace(keyspace).filter(|k| !k.is_virtual);
    let Some(found) = found else {
        let text = format!("Keyspace [{keyspace}] does not exist.");
        return Err(ActionError::UnknownKeyspace(text));
    };
    if replication_of(found) == Replication::Local {
        return Ok(Vec::new());
    }
    if tables.is_empty() {
        return Ok(found.tables.values().map(|t| t.id).collect());
    }
    let id = |name: &String| match found.tables.get(name.as_str()) {
        Some(table) => Ok(table.id),
        None => {
            let text = format!("Unknown keyspace/cf pair ({keyspace}.{name})");
            Err(ActionError::UnknownTable(text))
        }
    };
    tables.iter().map(id).collect()
}

/// Returns the natural replicas of a partition. Its key is written as for nodetool: components
/// separated by `:`, a colon in a component as `\:`.
///
/// # Errors
/// `UnknownKeyspace`, `UnknownTable`, `InvalidKey`.
pub(crate) fn endpoints(
    snapshot: &ClusterSnapshot,
    keyspace: &str,
    table: &str,
    key: &str,
) -> Result<EndpointsReport, ActionError> {
    let Some(found) = snapshot.schema.keyspace(keyspace) else {
        return Err(ActionError::UnknownKeyspace(format!("Unknown keyspace '{keyspace}'")));
    };
    let Some(table) = found.tables.get(table) else {
        let text = format!("Unknown table '{table}' in keyspace '{keyspace}'");
        return Err(ActionError::UnknownTable(text));
    };
    let token = token_of(&key_bytes(table, key)?);
    let placements = snapshot.placements_of_table(table.id);
    let placements = placements.ok_or_else(|| failed("the table was dropped"))?;
    let natural = placements.replicas(token).natural().map(|m| m.host_id.to_string()).collect();
    Ok(EndpointsReport { token: token.0, host_ids: natural })
}

fn key_bytes(table: &Table, key: &str) -> Result<Vec<u8>, ActionError> {
    let columns = table.partition_key();
    let bytes = |column: &schema::Column, text: &str| {
        column.ty.from_string(text).map_err(|error| ActionError::InvalidKey(error.to_string()))
    };
    if let [only] = columns {
        return bytes(only, key);
    }
    let parts = components(key);
    if parts.len() != columns.len() {
        return Err(ActionError::InvalidKey(format!(
            "the partition key of {}.{} has {} components separated by ':', not {}",
            table.keyspace,
            table.name,
            columns.len(),
            parts.len()
        )));
    }
    let mut composite = Vec::new();
    for (column, part) in columns.iter().zip(&parts) {
        let value = bytes(column, part)?;
        let length = u16::try_from(value.len()).map_err(|_| {
            let text = "a component of a key is longer than 65535 bytes";
            ActionError::InvalidKey(text.to_owned())
        })?;
        composite.extend_from_slice(&length.to_be_bytes());
        composite.extend_from_slice(&value);
        composite.push(0);
    }
    Ok(composite)
}

/// Splits at each `:` that no backslash stands before.
fn components(key: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut rest = key.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' if rest.next_if_eq(&':').is_some() => push(&mut parts, ':'),
            ':' => parts.push(String::new()),
            other => push(&mut parts, other),
        }
    }
    parts
}

fn push(parts: &mut [String], c: char) {
    if let Some(last) = parts.last_mut() {
        last.push(c);
    }
}

mod moving;
pub(crate) mod selection;
#[cfg(test)]
mod tests;
pub(crate) mod upkeep;

pub use upkeep::{UpkeepAction, UpkeepReply, UpkeepRequest};
