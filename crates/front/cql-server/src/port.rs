//! What a port of clients is for: which shard gets its connections, whether they are encrypted, which certificates of
//! clients are accepted.

use std::time::Duration;

use rt::{PlainText, TlsServer};
use stdx::WallMicros;
use tls::PeerCertificate;

/// Handshakes of a shard under way at the same time; others wait for their turn.
pub(crate) const HANDSHAKES_MAX: usize = 1024;

/// Which shard gets a connection of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The one with fewest connections.
    Balanced,
    /// The one that the client's source port picks.
    ShardAware,
}

/// Whether the connections of a port are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEncryption {
    /// None is.
    Plain,
    /// Each as its first byte says.
    Optional,
    /// All are.
    Required,
}

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Which shard gets a connection.
    pub placement: Placement,
    /// Whether connections are encrypted.
    pub encryption: PortEncryption,
}

/// How a connection begins where TLS is spoken.
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
    /// A certificate that ends within this time is named in a warning. Unset: 30 days.
    pub warn_before: Option<Duration>,
}

/// What is said of clients' certificates that end soon, unless a setting says otherwise.
const WARN_BEFORE: Duration = Duration::from_secs(30 * 86_400);
/// At most one such warning of a shard in this time.
pub(crate) const WARN_PAUSE: Duration = Duration::from_secs(60);

impl CertificateLimits {
    /// Why a certificate is refused.
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

    /// Whether the end of a certificate is near enough to be named.
    pub(crate) fn ends_soon(&self, certificate: &PeerCertificate, now: WallMicros) -> bool {
        let before = self.warn_before.unwrap_or(WARN_BEFORE).as_secs();
        let left = certificate.not_after.saturating_sub(now.0 / 1_000_000);
        left <= i64::try_from(before).unwrap_or(i64::MAX)
    }
}
