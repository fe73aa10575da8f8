//! Reasons for refusing a change of membership, each with its remedy.

use std::net::SocketAddr;

use stdx::{HostId, Token};

use super::{MEMBERS_MAX, MOVEMENTS_MAX, VOTERS_MAX};
use crate::member::{MemberState, NAME_BYTES_MAX, TOKENS_MAX};

/// A change that does not fit the cluster as it is. Nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum MembershipError {
    #[error(
        "node {host} is a member already: a data directory was copied or the node joins twice; \
         start the newcomer with an empty data directory"
    )]
    DuplicateHost { host: HostId },
    #[error("node {host} is not a member of this cluster; nodetool status lists the host ids")]
    Unknown { host: HostId },
    #[error(
        "token {token} belongs to node {by}: take another initial_token, or leave it out to get \
         free ones"
    )]
    TokenTaken { token: Token, by: HostId },
    #[error("node {host} comes with {count} tokens, it must be 1 to {max}: set num_tokens", max = TOKENS_MAX)]
    TokenCount { host: HostId, count: usize },
    #[error(
        "address {address} belongs to node {by}: give the new node another address, or start node \
         {by} so that it tells its new one; if its data is lost, start this one with \
         --replace-address-first-boot {}, or take it out with \"nodetool removenode {by}\" first",
        address.ip()
    )]
    AddressTaken { address: SocketAddr, by: HostId },
    #[error("node {host} has no datacenter or no rack: set both in cassandra-rackdc.properties")]
    NoPlace { host: HostId },
    #[error("the {what} of node {host} is longer than {max} bytes: shorten it", max = NAME_BYTES_MAX)]
    NameTooLong { host: HostId, what: &'static str },
    #[error("the cluster has {max} members, which is the most it can have", max = MEMBERS_MAX)]
    TooManyMembers,
    #[error(
        "the entry about node {host} contradicts itself: the node that sent it is of another release"
    )]
    Malformed { host: HostId },
    #[error("node {host} is {from} and cannot become {to}: finish or give up what it does first")]
    IllegalState { host: HostId, from: MemberState, to: MemberState },
    #[error("node {host} is {state}: wait until that is done, or give it up")]
    Busy { host: HostId, state: MemberState },
    #[error(
        "node {host} is {state} and owns data: decommission it, or remove it with removenode when \
         it is dead"
    )]
    NotLeft { host: HostId, state: MemberState },
    #[error("node {old} is being replaced by node {by}: wait for it, or remove node {by} first")]
    AlreadyReplaced { old: HostId, by: HostId },
    #[error(
        "node {new} does not have the tokens of node {old} that it replaces: leave out initial_token"
    )]
    ReplaceTokens { old: HostId, new: HostId },
    #[error(
        "node {old} stands in datacenter {datacenter:?}, rack {rack:?}: start its replacement \
         there, or remove it and join the new node where it is"
    )]
    ReplacePlace { old: HostId, datacenter: String, rack: String },
    #[error("it is the last node that owns data: there is nobody to leave it to")]
    LastMember,
    #[error("node {host} votes on metadata: choose other voters first")]
    IsVoter { host: HostId },
    #[error("node {host} cannot vote: it is {state}; choose members that own data")]
    VoterState { host: HostId, state: MemberState },
    #[error("{count} voters given, it must be 1 to {max}, each once", max = VOTERS_MAX)]
    VoterCount { count: usize },
    #[error(
        "ranges of node {host} and node {other} would move at the same time: a join waits until node {other} is \
         done; repeat another command then, or abort the movement of node {other}"
    )]
    Overlap { host: HostId, other: HostId },
    #[error(
        "{max} nodes already join, leave or move: start node {host} again when one of them is done",
        max = MOVEMENTS_MAX
    )]
    TooManyMovements { host: HostId },
    #[error(
        "Cannot alter RF while some endpoints are not in normal state (no range movements): [{nodes}]"
    )]
    AlterDuringMovement { nodes: String },
    #[error(
        "keyspace {keyspace} has got other replicas, to which its lightweight transactions are being \
         handed over: try again when that is done"
    )]
    HandingOver { keyspace: String },
    #[error("keyspace {keyspace} is not handed over, or another step of it")]
    NoHandover { keyspace: String },
    #[error(
        "node {host} cannot do features {missing:#x} that the cluster uses or is to use: upgrade it \
         to the release of the others first"
    )]
    MissingFeatures { host: HostId, missing: u64 },
    #[error(
        "the datacenter or rack of a node that is not alone cannot change: its data would be looked \
         for elsewhere; decommission it and join it anew"
    )]
    Relocated,
}
