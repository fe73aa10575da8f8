//! From a command of the API to an action on things that exist: ids are looked up, what cannot be is
//! refused in Cassandra's words. Pure: decides on a snapshot and on what gossip knows.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use cluster::cidr::{self, IpNet};
use cluster::replication::replication_of;
use cluster::{ClusterSnapshot, Member, MemberState, Replication, TokenRange};
use codec::murmur::token_of;
use schema::Table;
use stdx::{HostId, TableId, Token, Uuid};

use crate::model::{ClusterCommand, GossipReport};
use crate::operation::Scope;
use crate::shard::ActionError;

/// What a shard can be told to do in its cluster: [`ClusterCommand`] with everything looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterAction {
    /// Give all data to others and leave; told to shard 0. Ends when the node has left.
    Decommission {
        /// Checked already when it is false: enough nodes stay for every keyspace.
        force: bool,
    },
    /// Take a dead node out and copy what it had from the other replicas; told to shard 0. Ends when
    /// it is out.
    RemoveNode {
        /// Which one; not this node, not alive.
        host: HostId,
    },
    /// End a removal without waiting for copies; told to shard 0.
    ForceRemoval,
    /// Give a decommission or a move of this node up; told to shard 0.
    AbortMovement,
    /// Take the order back to remove a dead node; told to shard 0.
    AbortRemoval {
        /// Which one; `None`: the one in progress.
        host: Option<HostId>,
    },
    /// Give up the rebuild of this node; told to shard 0.
    AbortRebuild,
    /// Take a node out that joins; told to shard 0.
    AbortBootstrap {
        /// Which one; it joins.
        host: HostId,
    },
    /// Take another token; told to shard 0. Ends when the node has moved.
    Move {
        /// The token; nobody has it.
        token: Token,
    },
    /// Copy what the node owns; told to shard 0. Ends when it is here.
    Rebuild {
        /// Only from this data centre.
        datacenter: Option<String>,
        /// Only this keyspace.
        keyspace: Option<String>,
        /// Only these ranges; empty: all.
        ranges: Vec<TokenRange>,
        /// Only from these nodes; empty: any.
        sources: Vec<HostId>,
        /// Not from the node's own data centre.
        exclude_local_dc: bool,
    },
    /// Take a dead node out without copying; told to shard 0.
    Assassinate {
        /// Which one; not this node, not alive.
        host: HostId,
    },
    /// Remove data outside the node's ranges; told to every shard.
    Cleanup {
        /// Of these tables.
        tables: Vec<TableId>,
    },
    /// Gossip or not; told to shard 0.
    SetGossip {
        /// Gossip.
        enabled: bool,
    },
    /// Serve CQL clients or not; told to every shard.
    SetNativeTransport {
        /// Serve them.
        enabled: bool,
    },
    /// Store new hints or not; told to every shard.
    SetHintedHandoff {
        /// Store them.
        enabled: bool,
    },
    /// Store new hints for a data centre's nodes or not; told to every shard.
    SetHintsForDatacenter {
        /// The data centre; it has members.
        datacenter: String,
        /// Store them.
        enabled: bool,
    },
    /// Deliver hints or not; told to every shard.
    PauseHints {
        /// Do not.
        paused: bool,
    },
    /// Delete hints; told to every shard.
    TruncateHints {
        /// For this node; `None`: all.
        host: Option<HostId>,
    },
    /// Most that is delivered of hints; told to every shard.
    SetHintThrottle {
        /// KiB per second of the node; 0 is no limit.
        kib_per_second: u64,
    },
    /// How long a node may be down and still gets hints; told to every shard.
    SetHintWindow {
        /// Milliseconds.
        millis: u64,
    },
    /// Most that is streamed; told to every shard.
    SetStreamThroughput {
        /// Bytes per second of the node; 0 is no limit.
        bytes_per_second: u64,
    },
    /// Most that is streamed to other datacenters; told to every shard.
    SetInterDcStreamThroughput {
        /// Bytes per second of the node; 0 is no limit.
        bytes_per_second: u64,
    },
    /// Link new SSTables into `backups` or not; told to every shard.
    SetIncrementalBackups {
        /// Link them.
        enabled: bool,
    },
    /// Most that compactions write; told to every shard.
    SetCompactionThroughput {
        /// Bytes per second of the node; 0 is no limit.
        bytes_per_second: u64,
    },
    /// Memory for cached rows; told to every shard.
    SetRowCacheCapacity {
        /// Of the node.
        bytes: u64,
    },
    /// Forget cached rows; told to every shard.
    InvalidateRowCache,
    /// Memory for cached counts; told to every shard.
    SetCounterCacheCapacity {
        /// Of the node.
        bytes: u64,
    },
    /// Forget cached counts; told to every shard.
    InvalidateCounterCache,
    /// Compactions at a time; told to every shard.
    SetConcurrentCompactors {
        /// Of the node, 1 or more; each shard runs its part, rounded up.
        count: u32,
    },
    /// Share of the processor that compaction gets; told to every shard.
    SetCompactionShare {
        /// 1 to 1000; `None`: it follows the debt.
        share: Option<u32>,
    },
    /// Most that replayed batches write; told to every shard.
    SetBatchlogThrottle {
        /// KiB per second, divided by the number of nodes; 0 is no limit.
        kib_per_second: u64,
    },
    /// Carry out what is in the batch log; told to shard 0.
    ReplayBatchlog,
    /// Write the estimates of tables' sizes anew; told to shard 0.
    RefreshSizeEstimates,
    /// Change a setting until the node stops; told to every shard.
    SetSetting {
        /// Its name in cassandra.yaml.
        name: String,
        /// Numbers of bytes without a unit.
        value: String,
    },
    /// Trace requests that do not ask for it; told to every shard.
    SetTraceProbability {
        /// Of a million so many, a million at most.
        per_million: u32,
    },
    /// Make, replace or drop a CIDR group; told to shard 0.
    PutCidrGroup {
        /// Its name.
        name: String,
        /// Its ranges; none: drop it, it is there.
        ranges: BTreeSet<IpNet>,
    },
    /// Read the seeds from the configuration again; told to shard 0.
    ReloadSeeds,
    /// Stop the node as SIGTERM does; told to shard 0.
    StopDaemon,
    /// Cut the links to these addresses and heal all others; told to every shard.
    CutLinks {
        /// Of their storage ports.
        addresses: BTreeSet<IpAddr>,
    },
    /// How long requests may take; told to every shard.
    SetTimeout {
        /// One of [`TIMEOUTS`].
        kind: String,
        /// Milliseconds.
        millis: u64,
    },
}

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

impl ClusterAction {
    /// For a refusal: what it is.
    pub fn name(&self) -> &'static str {
        match self {
            ClusterAction::Decommission { .. } => "decommission",
            ClusterAction::RemoveNode { .. } | ClusterAction::ForceRemoval => "removenode",
            ClusterAction::AbortMovement => "giving up a movement",
            ClusterAction::AbortBootstrap { .. } => "abortbootstrap",
            ClusterAction::AbortRemoval { .. } => "abortremovenode",
            ClusterAction::AbortRebuild => "abortrebuild",
            ClusterAction::Move { .. } => "move",
            ClusterAction::Rebuild { .. } => "rebuild",
            ClusterAction::Assassinate { .. } => "assassinate",
            ClusterAction::Cleanup { .. } => "cleanup",
            ClusterAction::SetGossip { .. } => "turning gossip on or off",
            ClusterAction::SetNativeTransport { .. } => "turning the native transport on or off",
            ClusterAction::SetHintedHandoff { .. } => "turning hinted handoff on or off",
            ClusterAction::SetHintsForDatacenter { .. } => "turning hints off for a data center",
            ClusterAction::PauseHints { .. } => "pausing hints",
            ClusterAction::TruncateHints { .. } => "truncatehints",
            ClusterAction::SetHintThrottle { .. } => "sethintedhandoffthrottlekb",
            ClusterAction::SetHintWindow { .. } => "setmaxhintwindow",
            ClusterAction::SetStreamThroughput { .. } => "setstreamthroughput",
            ClusterAction::SetInterDcStreamThroughput { .. } => "setinterdcstreamthroughput",
            ClusterAction::SetIncrementalBackups { .. } => "turning backups on or off",
            ClusterAction::SetCompactionThroughput { .. } => "setcompactionthroughput",
            ClusterAction::SetRowCacheCapacity { .. } => "setcachecapacity",
            ClusterAction::InvalidateRowCache => "invalidaterowcache",
            ClusterAction::SetCounterCacheCapacity { .. } => "setcachecapacity",
            ClusterAction::InvalidateCounterCache => "invalidatecountercache",
            ClusterAction::SetConcurrentCompactors { .. } => "setconcurrentcompactors",
            ClusterAction::SetCompactionShare { .. } => "setcompactionshare",
            ClusterAction::SetBatchlogThrottle { .. } => "setbatchlogreplaythrottle",
            ClusterAction::ReplayBatchlog => "replaybatchlog",
            ClusterAction::RefreshSizeEstimates => "refreshsizeestimates",
            ClusterAction::SetSetting { .. } => "changing a setting",
            ClusterAction::SetTraceProbability { .. } => "settraceprobability",
            ClusterAction::PutCidrGroup { .. } => "changing CIDR groups",
            ClusterAction::ReloadSeeds => "reloadseeds",
            ClusterAction::StopDaemon => "stopdaemon",
            ClusterAction::CutLinks { .. } => "cutting links",
            ClusterAction::SetTimeout { .. } => "settimeout",
        }
    }
}

impl ClusterCommand {
    /// Whether shard 0 does it for the node; else every shard does its part.
    pub fn is_for_one_shard(&self) -> bool {
        self.row().scope != Scope::Shard
    }

    /// Whether it waits until the node is a full member; the native transport may be switched off before.
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

/// Looks up what a command names.
///
/// # Errors
/// `Argument` or `Failed`, as Cassandra's nodetool ends with 1 or 2 then, in its words.
pub(crate) fn resolve(
    command: ClusterCommand,
    snapshot: &ClusterSnapshot,
    gossip: Option<&GossipReport>,
) -> Result<ClusterAction, ActionError> {
    let joins = |m: &Member| matches!(m.state, MemberState::Joining | MemberState::JoinHandover);
    if command.needs_a_member() && snapshot.local_member().is_some_and(|m| joins(m)) {
        return Err(failed("Node in JOINING state; wait for status to become normal or restart"));
    }
    Ok(match command {
        ClusterCommand::Decommission { force } => {
            check_decommission(snapshot, force)?;
            ClusterAction::Decommission { force }
        }
        ClusterCommand::RemoveNode { host_id } => {
            ClusterAction::RemoveNode { host: removable(snapshot, gossip, &host_id)? }
        }
        ClusterCommand::ForceRemoval {} => ClusterAction::ForceRemoval,
        ClusterCommand::AbortMovement {} => ClusterAction::AbortMovement,
        ClusterCommand::AbortRemoval { host_id } => {
            ClusterAction::AbortRemoval { host: moving::removed(snapshot, host_id.as_deref())? }
        }
        ClusterCommand::AbortRebuild {} => ClusterAction::AbortRebuild,
        ClusterCommand::AbortBootstrap { node } => {
            ClusterAction::AbortBootstrap { host: moving::joining(snapshot, &node)? }
        }
        ClusterCommand::Move { token } => {
            ClusterAction::Move { token: moving::target(snapshot, &token)? }
        }
        ClusterCommand::Rebuild { datacenter, keyspace, tokens, sources, exclude_local_dc } => {
            let from = moving::From { datacenter, keyspace, tokens, sources, exclude_local_dc };
            moving::rebuild(snapshot, from)?
        }
        ClusterCommand::Assassinate { address } => {
            let member = at_address(snapshot, &address)?;
            if member.host_id == snapshot.local.host_id || is_alive(gossip, member) {
                return Err(failed(format!(
                    "Endpoint still alive: /{} heartbeat changed while trying to assassinate it",
                    member.storage
                )));
            }
            ClusterAction::Assassinate { host: member.host_id }
        }
        ClusterCommand::Cleanup { keyspace, tables } => {
            ClusterAction::Cleanup { tables: to_clean(snapshot, &keyspace, &tables)? }
        }
        ClusterCommand::SetGossip { enabled } => ClusterAction::SetGossip { enabled },
        ClusterCommand::SetNativeTransport { enabled } => {
            ClusterAction::SetNativeTransport { enabled }
        }
        ClusterCommand::SetHintedHandoff { enabled } => ClusterAction::SetHintedHandoff { enabled },
        ClusterCommand::SetHintsForDatacenter { datacenter, enabled } => {
            let mut known: Vec<&str> =
                snapshot.members.values().map(|m| m.datacenter.as_str()).collect();
            known.sort_unstable();
            known.dedup();
            if !known.contains(&datacenter.as_str()) {
                return Err(argument(format!(
                    "There is no data center '{datacenter}', there are: {}",
                    known.join(", ")
                )));
            }
            ClusterAction::SetHintsForDatacenter { datacenter, enabled }
        }
        ClusterCommand::PauseHints { paused } => ClusterAction::PauseHints { paused },
        ClusterCommand::TruncateHints { address } => {
            let host = match address {
                Some(address) => Some(at_address(snapshot, &address)?.host_id),
                None => None,
            };
            ClusterAction::TruncateHints { host }
        }
        ClusterCommand::SetHintThrottle { kib_per_second } => {
            ClusterAction::SetHintThrottle { kib_per_second }
        }
        ClusterCommand::SetHintWindow { millis } => ClusterAction::SetHintWindow { millis },
        ClusterCommand::SetStreamThroughput { bytes_per_second } => {
            ClusterAction::SetStreamThroughput { bytes_per_second }
        }
        ClusterCommand::SetInterDcStreamThroughput { bytes_per_second } => {
            ClusterAction::SetInterDcStreamThroughput { bytes_per_second }
        }
        ClusterCommand::SetIncrementalBackups { enabled } => {
            ClusterAction::SetIncrementalBackups { enabled }
        }
        ClusterCommand::SetCompactionThroughput { bytes_per_second } => {
            ClusterAction::SetCompactionThroughput { bytes_per_second }
        }
        ClusterCommand::SetRowCacheCapacity { bytes } => {
            ClusterAction::SetRowCacheCapacity { bytes }
        }
        ClusterCommand::InvalidateRowCache {} => ClusterAction::InvalidateRowCache,
        ClusterCommand::SetCounterCacheCapacity { bytes } => {
            ClusterAction::SetCounterCacheCapacity { bytes }
        }
        ClusterCommand::InvalidateCounterCache {} => ClusterAction::InvalidateCounterCache,
        ClusterCommand::SetConcurrentCompactors { count } => {
            ClusterAction::SetConcurrentCompactors { count }
        }
        ClusterCommand::SetCompactionShare { share: Some(share) }
            if !(1..=1000).contains(&share) =>
        {
            return Err(argument(format!("the share must be from 1 to 1000, not {share}")));
        }
        ClusterCommand::SetCompactionShare { share } => ClusterAction::SetCompactionShare { share },
        ClusterCommand::SetBatchlogThrottle { kib_per_second } => {
            ClusterAction::SetBatchlogThrottle { kib_per_second }
        }
        ClusterCommand::ReplayBatchlog {} => ClusterAction::ReplayBatchlog,
        ClusterCommand::RefreshSizeEstimates {} => ClusterAction::RefreshSizeEstimates,
        ClusterCommand::SetSetting { name, value } => ClusterAction::SetSetting { name, value },
        ClusterCommand::SetTraceProbability { per_million } => {
            if per_million > 1_000_000 {
                return Err(argument("Trace probability must be between 0 and 1"));
            }
            ClusterAction::SetTraceProbability { per_million }
        }
        ClusterCommand::PutCidrGroup { name, cidrs } => {
            let parsed = |text: &String| cidr::parse(text).map_err(|e| argument(e.to_string()));
            let ranges: BTreeSet<IpNet> = cidrs.iter().map(parsed).collect::<Result<_, _>>()?;
            if name.is_empty() || ranges.is_empty() || ranges.len() > cidr::RANGES_MAX {
                return Err(argument(format!(
                    "updatecidrgroup command requires a cidr group name and atleast one CIDR, and \
                     takes {} at most",
                    cidr::RANGES_MAX
                )));
            }
            ClusterAction::PutCidrGroup { name, ranges }
        }
        ClusterCommand::DropCidrGroup { name } => {
            if !snapshot.auth.cidr_groups.contains_key(&name) {
                return Err(argument(format!("CIDR group '{name}' doesn't exists")));
            }
            ClusterAction::PutCidrGroup { name, ranges: BTreeSet::new() }
        }
        ClusterCommand::ReloadSeeds {} => ClusterAction::ReloadSeeds,
        ClusterCommand::StopDaemon {} => ClusterAction::StopDaemon,
        ClusterCommand::CutLinks { addresses } => {
            let parsed = |text: &String| {
                text.parse().map_err(|_| argument(format!("{text} is not an IP address")))
            };
            ClusterAction::CutLinks {
                addresses: addresses.iter().map(parsed).collect::<Result<_, _>>()?,
            }
        }
        ClusterCommand::SetTimeout { kind, millis } => {
            if !TIMEOUTS.contains(&kind.as_str()) {
                return Err(argument(format!("Timeout type requires one of ({TIMEOUTS_TEXT})")));
            }
            ClusterAction::SetTimeout { kind, millis }
        }
    })
}

/// Whether enough nodes stay when this one leaves.
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
            return refused(format!(
                "Not enough live nodes to maintain replication factor in keyspace {} (RF = \
                 {factor}, N = {nodes}). Perform a forceful decommission to ignore.",
                keyspace.name
            ));
        }
    }
    Ok(())
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

/// Nodes that gossip does not know, or knows to be down, may be dead; without gossip nobody is known
/// to be.
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
        return Err(argument(format!("Keyspace [{keyspace}] does not exist.")));
    };
    if replication_of(found) == Replication::Local {
        return Ok(Vec::new());
    }
    if tables.is_empty() {
        return Ok(found.tables.values().map(|t| t.id).collect());
    }
    let id = |name: &String| match found.tables.get(name.as_str()) {
        Some(table) => Ok(table.id),
        None => Err(argument(format!("Unknown keyspace/cf pair ({keyspace}.{name})"))),
    };
    tables.iter().map(id).collect()
}

/// The natural replicas of a partition whose key is given as nodetool's users write it: components
/// separated by `:`, one in a component as `\:`.
///
/// # Errors
/// `Argument`: no such table, or not a key of it.
pub(crate) fn endpoints(
    snapshot: &ClusterSnapshot,
    keyspace: &str,
    table: &str,
    key: &str,
) -> Result<(Token, Vec<HostId>), ActionError> {
    let Some(found) = snapshot.schema.keyspace(keyspace) else {
        return Err(argument(format!("Unknown keyspace '{keyspace}'")));
    };
    let Some(table) = found.tables.get(table) else {
        return Err(argument(format!("Unknown table '{table}' in keyspace '{keyspace}'")));
    };
    let token = token_of(&key_bytes(table, key)?);
    let placements = snapshot.placements_of_table(table.id);
    let placements = placements.ok_or_else(|| failed("the table was dropped"))?;
    Ok((token, placements.replicas(token).natural().map(|m| m.host_id).collect()))
}

fn key_bytes(table: &Table, key: &str) -> Result<Vec<u8>, ActionError> {
    let columns = table.partition_key();
    let bytes = |column: &schema::Column, text: &str| {
        column.ty.from_string(text).map_err(|error| argument(error.to_string()))
    };
    if let [only] = columns {
        return bytes(only, key);
    }
    let parts = components(key);
    if parts.len() != columns.len() {
        return Err(argument(format!(
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
        let length = u16::try_from(value.len())
            .map_err(|_| argument("a component of a key is longer than 65535 bytes"))?;
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
#[cfg(test)]
mod tests;
pub(crate) mod upkeep;

pub use upkeep::{UpkeepAction, UpkeepReply, UpkeepRequest};
