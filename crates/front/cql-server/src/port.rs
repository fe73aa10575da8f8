//! Attributes of a port for clients: placement of its connections on shards, encryption, limits on client
//! certificates.

use std::time::Duration;

use rt::{PlainText, TlsServer};
use stdx::WallMicros;
use tls::PeerCertificate;

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

/// Limits on the certificates that clients show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateLimits {
    /// Longest validity; a certificate that is valid for longer is refused.
    pub validity_max: Option<Duration>,
    /// A certificate that ends within this time is logged in a warning. Unset: 30 days.
    pub warn_before: Option<Duration>,
}

/// Default of [`CertificateLimits::warn_before`].
const WARN_BEFORE: Duration = Duration::from_secs(30 * 86_400);
/// A shard logs at most one such warning in this time.
pub(crate) const WARN_PAUSE: Duration = Duration::from_secs(60);

impl CertificateLimits {
    /// Returns why a certificate is rejected, or `None`.
    pub(crate) fn refuses(&self, certificate: &PeerCertificate) -> Option<String> {
        let validity = certificate.not_after.saturating_sub(certificate.not_before);
        let max = self.validity_max.map(|max| i64::try_from(max.as_secs()).unwrap_or(i64::MAX));
        let max = max.filter(|max| validity > *max)?;
        Some(format!(
            "the certificate of {} is valid for {} days, more than max_certificate_validity_period of {}",
            certificate.subject,
            validity / 86_400,
            max / 86_400
        ))
    }

    /// Returns true if the certificate ends soon enough to be logged.
    pub(crate) fn ends_soon(&self, certificate: &PeerCertificate, now: WallMicros) -> bool {
        let before = self.warn_before.unwrap_or(WARN_BEFORE).as_secs();
        let left = certificate.not_after.saturating_sub(now.0 / 1_000_000);
        left <= i64::try_from(before).unwrap_or(i64::MAX)
    }
}
