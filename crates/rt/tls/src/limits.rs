//! Bounds on the validity of the certificates that the other side of a connection shows.

use core::time::Duration;

use stdx::WallMicros;

use crate::certificate::PeerCertificate;

/// Limits on the certificates of the other side.
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
pub const WARN_PAUSE: Duration = Duration::from_secs(60);

impl CertificateLimits {
    /// Returns why a certificate is rejected, or `None`.
    pub fn refuses(&self, certificate: &PeerCertificate) -> Option<String> {
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
    pub fn ends_soon(&self, certificate: &PeerCertificate, now: WallMicros) -> bool {
        let before = self.warn_before.unwrap_or(WARN_BEFORE).as_secs();
        let left = certificate.not_after.saturating_sub(now.0 / 1_000_000);
        left <= i64::try_from(before).unwrap_or(i64::MAX)
    }
}
