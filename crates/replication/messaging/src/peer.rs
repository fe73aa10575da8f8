//! Peers and messages for them, as callers name them.

use internode::Verb;
use std::net::SocketAddr;
use stdx::{HostId, Instant, ShardId, Uuid};

/// Address and shards of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address and storage port.
    pub address: SocketAddr,
    /// Its number of shards, as far as is known; corrected by the peer's HELLO when a connection
    /// opens.
    pub shard_count: u16,
}

/// Destination of a message, and its terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The peer.
    pub host: HostId,
    /// Its shard.
    pub shard: ShardId,
    /// Verb of the message.
    pub verb: Verb,
    /// Time at which the sender stops waiting.
    pub deadline: Instant,
    /// Trace session that it belongs to.
    pub trace: Option<Uuid>,
}
