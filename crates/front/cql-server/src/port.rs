//! Attributes of a port for clients: placement of its connections on shards, encryption.

use rt::{PlainText, TlsServer};
pub use tls::CertificateLimits;
pub(crate) use tls::limits::WARN_PAUSE;

/// Concurrent handshakes of a shard; others wait.
pub(crate) const HANDSHAKES_MAX: usize = 1024;

/// Choice of the shard for a connection of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The shard with the fewest connections.
    Balanced,
    /// The shard that the client's source port picks.
    ShardAware,
}

/// Encryption of a port's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEncryption {
    /// No connection is encrypted.
    Plain,
    /// The first byte of each connection decides.
    Optional,
    /// All connections are encrypted.
    Required,
}

/// Configuration of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Choice of the shard for its connections.
    pub placement: Placement,
    /// Encryption of its connections.
    pub encryption: PortEncryption,
}

/// Beginning of a connection where TLS is enabled.
#[derive(Clone, Debug)]
pub(crate) struct TlsBeginning {
    pub(crate) tls: TlsServer,
    pub(crate) limits: CertificateLimits,
    pub(crate) plain: PlainText,
}
