//! Attributes of a port for clients: placement of its connections on shards, encryption.

use rt::{PlainText, TlsServer};
use std::net::IpAddr;
pub use tls::CertificateLimits;
use tls::PeerCertificate;
use tls::config::HostNames;
pub(crate) use tls::limits::WARN_PAUSE;

/// Concurrent handshakes of a shard; others wait.
pub(crate) const HANDSHAKES_MAX: usize = 1024;
/// Handshakes of a shard that wait; further ones are refused at once.
pub(crate) const HANDSHAKES_WAITING_MAX: usize = 4096;

/// Checks of clients' certificates, beside those of their chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientChecks {
    /// Bounds of their validity.
    pub limits: CertificateLimits,
    /// Comparison with the client's address (`require_endpoint_verification`).
    pub addresses: HostNames,
}

impl From<CertificateLimits> for ClientChecks {
    fn from(limits: CertificateLimits) -> ClientChecks {
        ClientChecks { limits, addresses: HostNames::Ignored }
    }
}

impl ClientChecks {
    /// Returns why a client that connected from `address` and showed this certificate is refused, or `None`.
    pub fn refuses(&self, certificate: &PeerCertificate, address: IpAddr) -> Option<String> {
        let is_elsewhere =
            self.addresses == HostNames::Compared && !certificate.names_address(address);
        self.limits.refuses(certificate).or_else(|| {
            is_elsewhere.then(|| {
                format!(
                    "the certificate of {} does not name the address {address} that it came from",
                    certificate.subject
                )
            })
        })
    }
}

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
    pub(crate) checks: ClientChecks,
    pub(crate) plain: PlainText,
}
