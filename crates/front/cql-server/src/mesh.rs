//! Requests that the CQL servers of one node's shards send each other.

use crate::client_info::{ClientInfo, QueryInfo};
use crate::login_attempt::{LoginAttempt, LoginRefusal};
use crate::port::TlsBeginning;
use crate::request_rates::RequestRates;
use query::{ShardCall, ShardCalls};
use rt::{Mesh, MeshError, MovedStream, Rt};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stdx::ShardId;

/// A request to the CQL server of another shard.
pub(crate) enum ServerRequest {
    /// Serve this connection from now on, after its handshake where TLS is enabled.
    Adopt(MovedStream, Option<TlsBeginning>),
    /// To shard 0: a connection of this address ended.
    Closed(IpAddr),
    /// Prepare a statement, so that any connection can execute it.
    Prepare {
        /// Its text.
        text: String,
        /// The keyspace in use.
        keyspace: Option<String>,
    },
    /// List the connections.
    Clients,
    /// List the running statements.
    Queries,
    /// To shard 0: verify a password.
    LogIn(LoginAttempt),
    /// To shard 0: hash a new password.
    HashPassword(String),
    /// To shard 0: a connection logged in as this role.
    EnterRole(String),
    /// To shard 0: a connection of this role ended.
    LeaveRole(String),
    /// About truncations.
    Truncation(truncation::ShardRequest),
}

/// Answer to a [`ServerRequest`].
pub(crate) enum ServerReply {
    /// To `Adopt`, `Closed`, `Prepare`, `LeaveRole`.
    Done,
    /// To `Adopt`: the connection is over, and its counts must end.
    NotAdopted,
    /// To `Clients`.
    Clients(Vec<ClientInfo>),
    /// To `Queries`.
    Queries(Vec<QueryInfo>),
    /// To `LogIn`.
    LoggedIn(Result<(), LoginRefusal>),
    /// To `HashPassword`.
    Hashed(Result<String, String>),
    /// To `EnterRole`: false if the role has too many connections.
    Entered(bool),
    /// To `Truncation`.
    Truncation(truncation::ShardReply),
}

/// Channels between the CQL servers of one node, and their shared connection counts. Created before
/// the shards start.
pub struct ServerMesh {
    pub(crate) calls: Mesh<ServerRequest, ServerReply>,
    connections: Vec<AtomicUsize>,
    /// Requests within the last second.
    pub(crate) rates: RequestRates,
}

impl ServerMesh {
    /// Creates the mesh of a node with this many shards; at most `capacity` requests wait for each
    /// of them.
    pub fn new(shards: u16, capacity: usize) -> ServerMesh {
        ServerMesh {
            calls: Mesh::new(shards, capacity),
            connections: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
            rates: RequestRates::new(),
        }
    }

    /// Number of connections of the whole node.
    pub fn connection_count(&self) -> usize {
        self.connections.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }

    /// Number of connections of one shard.
    pub fn connections_of(&self, shard: ShardId) -> usize {
        self.connections.get(usize::from(shard.0)).map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// Returns the shard with the fewest connections, the first of several.
    pub(crate) fn least_loaded(&self) -> ShardId {
        let counts = self.connections.iter().map(|c| c.load(Ordering::Relaxed));
        let best = counts.enumerate().min_by_key(|(_, n)| *n).map_or(0, |(i, _)| i);
        ShardId(u16::try_from(best).unwrap_or(0))
    }

    pub(crate) fn opened(&self, shard: ShardId) {
        if let Some(count) = self.connections.get(usize::from(shard.0)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn closed(&self, shard: ShardId) {
        if let Some(count) = self.connections.get(usize::from(shard.0)) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Calls to the executors of the other shards, over the mesh of the servers.
pub(crate) struct MeshCalls {
    pub(crate) rt: Rt,
    pub(crate) mesh: Arc<ServerMesh>,
}

impl ShardCalls for MeshCalls {
    fn prepare(&self, shard: ShardId, text: String, keyspace: Option<String>) -> ShardCall<()> {
        let request = ServerRequest::Prepare { text, keyspace };
        let call = self.mesh.calls.call(&self.rt, shard, request);
        Box::pin(async move { call.await.map(drop) })
    }

    fn hash_password(&self, password: String) -> ShardCall<Result<String, String>> {
        let request = ServerRequest::HashPassword(password);
        let call = self.mesh.calls.call(&self.rt, ShardId(0), request);
        Box::pin(async move {
            match call.await? {
                ServerReply::Hashed(hashed) => Ok(hashed),
                _ => Err(MeshError::Closed),
            }
        })
    }

    fn truncations(
        &self,
        shard: ShardId,
        request: truncation::ShardRequest,
    ) -> ShardCall<truncation::ShardReply> {
        let call = self.mesh.calls.call(&self.rt, shard, ServerRequest::Truncation(request));
        Box::pin(async move {
            match call.await? {
                ServerReply::Truncation(answer) => Ok(answer),
                _ => Err(MeshError::Closed),
            }
        })
    }
}
