//! Descriptions of connections and running statements, as the virtual tables of a node show them.

use std::net::IpAddr;
use std::time::Duration;

/// A running statement, as `system_views.queries` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueryInfo {
    /// Cassandra's stage, then shard, connection number, stream.
    pub(crate) thread_id: String,
    /// Time between the arrival of its bytes and the turn that ran it.
    pub(crate) queued: Duration,
    /// Time since that turn began.
    pub(crate) running: Duration,
    /// Description of the request.
    pub(crate) task: String,
}

/// One connection, as `system_views.clients` shows it.
#[derive(Clone, Debug)]
pub struct ClientInfo {
    /// Address of the client.
    pub address: IpAddr,
    /// Port of the client.
    pub port: u16,
    /// Options of its STARTUP.
    pub options: Vec<(String, String)>,
    /// `established`, `authenticating`, `ready`.
    pub stage: &'static str,
    /// Driver name, as the driver sent it.
    pub driver_name: Option<String>,
    /// Driver version, as the driver sent it.
    pub driver_version: Option<String>,
    /// Keyspace of its last USE.
    pub keyspace: Option<String>,
    /// Version of the native protocol.
    pub protocol_version: u8,
    /// Number of requests since it connected.
    pub requests: u64,
    /// Role that it is logged in as.
    pub user: Option<String>,
    /// Protocol and cipher suite; `None` in the clear.
    pub tls: Option<(&'static str, &'static str)>,
}
