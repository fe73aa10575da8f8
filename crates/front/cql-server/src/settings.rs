//! Settings of the server at start.

use std::net::SocketAddr;
use std::time::Duration;

use query::QuerySettings;

use crate::certificate_login::CertificateLogin;
use crate::request_rates::RateLimits;

/// Authentication of clients.
#[derive(Clone, Debug)]
pub enum Authentication {
    /// `AllowAllAuthenticator`: clients send no credentials.
    AllowAll,
    /// `PasswordAuthenticator`: SASL PLAIN against the roles of the cluster snapshot.
    Password,
    /// `MutualTlsAuthenticator`, ScyllaDB's `CertificateAuthenticator`: by the client's certificate.
    Certificate(CertificateLogin),
    /// `MutualTlsWithPasswordFallbackAuthenticator`: by certificate where the client shows one,
    /// else by password.
    CertificateOrPassword(CertificateLogin),
}

/// Settings of the CQL server; the same on all shards of a node.
///
/// Byte budgets are of the whole node unless the name says otherwise; every shard takes its share.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Settings of execution.
    pub query: QuerySettings,
    /// Port on which the client's source port picks the shard; announced when set.
    pub shard_aware_port: Option<u16>,
    /// The same port with TLS.
    pub shard_aware_port_ssl: Option<u16>,
    /// Largest frame with its header (`native_transport_max_frame_size`).
    pub frame_bytes_max: usize,
    /// Most waiting requests of one connection; more get OVERLOADED.
    pub requests_per_connection_max: usize,
    /// Most waiting requests of one shard; more get OVERLOADED.
    pub requests_per_shard_max: usize,
    /// Most bytes of waiting requests of one connection; more get OVERLOADED.
    pub request_bytes_per_connection_max: usize,
    /// Bytes of answers after which a connection is written to before its next frame is run.
    pub output_bytes_max: usize,
    /// Most connections of the node; more are closed at once. `None`: no limit.
    pub connections_max: Option<usize>,
    /// Most connections of one client address. `None`: no limit.
    pub connections_per_ip_max: Option<usize>,
    /// Most connections that are logged in as one role. `None`: no limit.
    pub connections_per_role_max: Option<usize>,
    /// Limits of requests per second.
    pub rate_limits: RateLimits,
    /// Authentication of clients.
    pub authentication: Authentication,
    /// How long a verified password is accepted without hashing it again.
    pub credentials_validity: Duration,
    /// How many verified passwords a shard caches.
    pub credentials_cache_max_entries: usize,
    /// Connections that are silent for longer are closed. `None`: never.
    pub idle_timeout: Option<Duration>,
    /// True if protocol versions before the newest are accepted.
    pub allow_older_protocols: bool,
    /// True if the kernel probes silent clients (TCP keepalive).
    pub keepalive: bool,
}

impl ServerSettings {
    /// Cassandra's defaults.
    pub fn new(broadcast_address: SocketAddr) -> ServerSettings {
        ServerSettings {
            query: QuerySettings::new(broadcast_address),
            shard_aware_port: None,
            shard_aware_port_ssl: None,
            frame_bytes_max: 16 << 20,
            requests_per_connection_max: 8192,
            requests_per_shard_max: 32_768,
            request_bytes_per_connection_max: 64 << 20,
            output_bytes_max: 1 << 20,
            connections_max: None,
            connections_per_ip_max: None,
            connections_per_role_max: None,
            rate_limits: RateLimits::default(),
            authentication: Authentication::AllowAll,
            credentials_validity: Duration::from_secs(2),
            credentials_cache_max_entries: 1000,
            idle_timeout: None,
            allow_older_protocols: true,
            keepalive: true,
        }
    }
}
