//! Which connections between nodes are encrypted, and which peers are trusted: decisions only.
//!
//! Source: Cassandra 5.0 `ServerEncryptionOptions`, `InboundConnectionInitiator`, `MutualTlsInternodeAuthenticator`.

use rt::{TlsClient, TlsServer};
use std::collections::BTreeSet;
use std::net::IpAddr;
use tls::{CertificateLimits, IdentityRule, PeerCertificate};

/// Position of a peer relative to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearness {
    /// The same rack of the same data center.
    SameRack,
    /// Another rack of the same data center.
    SameDatacenter,
    /// Another data center.
    Elsewhere,
    /// Not a known member: a seed that was not asked yet, or a node that is joining.
    Unknown,
}

/// Connections that must be encrypted (`internode_encryption`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// None.
    #[default]
    None,
    /// Those to other racks and data centers.
    BetweenRacks,
    /// Those to other data centers.
    BetweenDatacenters,
    /// All.
    All,
}

/// Treatment of a connection in the clear where it must be encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// It is refused.
    #[default]
    Strict,
    /// It is accepted, and made when the peer does not speak TLS: `optional`, while a cluster is
    /// being changed over.
    Optional,
}

/// How a connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// In the clear.
    Plain,
    /// With TLS, or not at all.
    Encrypted,
    /// With TLS, or in the clear when the peer does not speak TLS.
    EncryptedIfSpoken,
}

/// How a peer's connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// In the clear.
    Plain,
    /// With TLS.
    Encrypted,
}

/// Policy of a node for connections between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Connections that must be encrypted.
    pub scope: Scope,
    /// Treatment of others.
    pub strictness: Strictness,
}

impl Policy {
    /// Returns true if connections with such a peer must be encrypted. A peer whose place is not
    /// known counts as one from elsewhere.
    fn covers(self, peer: Nearness) -> bool {
        match self.scope {
            Scope::None => false,
            Scope::BetweenRacks => peer != Nearness::SameRack,
            Scope::BetweenDatacenters => {
                matches!(peer, Nearness::Elsewhere | Nearness::Unknown)
            }
            Scope::All => true,
        }
    }

    /// Decides how a connection to a peer is made.
    pub fn outgoing(self, peer: Nearness) -> Making {
        match (self.covers(peer), self.strictness) {
            (false, _) => Making::Plain,
            (true, Strictness::Strict) => Making::Encrypted,
            (true, Strictness::Optional) => Making::EncryptedIfSpoken,
        }
    }

    /// Returns true if a peer's connection that begins like this is accepted. One with TLS always
    /// is: it is at least as well protected as the policy asks for.
    pub fn accepts(self, wire: Wire, peer: Nearness) -> bool {
        wire == Wire::Encrypted || !self.covers(peer) || self.strictness == Strictness::Optional
    }
}

/// Comparison of a peer's certificate with its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endpoints {
    /// Any certificate of a trusted authority will do.
    #[default]
    Ignored,
    /// The certificate must name the address (`require_endpoint_verification`).
    Compared,
}

/// Checks of the certificates of connecting peers, beside those of their chains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerChecks {
    /// Bounds of their validity.
    pub limits: CertificateLimits,
    /// Comparison with the peer's address.
    pub endpoints: Endpoints,
    /// `MutualTlsInternodeAuthenticator`: SPIFFE identities that may connect. `None`: all.
    pub identities: Option<BTreeSet<String>>,
}

impl PeerChecks {
    /// Decides about a peer that connected from `address` and showed this certificate.
    ///
    /// # Errors
    /// The reason to refuse it.
    pub fn judge(&self, shown: Option<&PeerCertificate>, address: IpAddr) -> Result<(), String> {
        let Some(certificate) = shown else {
            // Where certificates are required, TLS itself refuses peers without one.
            return match &self.identities {
                None => Ok(()),
                Some(_) => Err("No certificate present on connection".to_owned()),
            };
        };
        if let Some(refused) = self.limits.refuses(certificate) {
            return Err(refused);
        }
        if self.endpoints == Endpoints::Compared && !certificate.names_address(address) {
            return Err(format!(
                "the certificate of {} does not name the address {address} that it came from",
                certificate.subject
            ));
        }
        let Some(trusted) = &self.identities else { return Ok(()) };
        match IdentityRule::Spiffe.identity(certificate) {
            Err(error) => Err(error.to_string()),
            Ok(identity) if trusted.contains(&identity) => Ok(()),
            Ok(identity) => Err(format!("Unable to authenticate user {identity}")),
        }
    }
}

/// Keys and rules for encrypted connections between nodes; the same on all shards.
#[derive(Clone, Debug, Default)]
pub struct Encryption {
    /// Which connections are encrypted.
    pub policy: Policy,
    /// Configuration of accepted connections; `None`: TLS is not spoken.
    pub server: Option<TlsServer>,
    /// Configuration of own connections; `None`: they are made in the clear.
    pub client: Option<TlsClient>,
    /// Checks of connecting peers.
    pub checks: PeerChecks,
}

impl Encryption {
    /// Returns true if a peer's connection in the clear is accepted. An authenticator by
    /// certificates accepts none: nothing shows who the peer is.
    pub fn accepts_plain(&self, peer: Nearness) -> bool {
        self.checks.identities.is_none() && self.policy.accepts(Wire::Plain, peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NEAR: [Nearness; 4] =
        [Nearness::SameRack, Nearness::SameDatacenter, Nearness::Elsewhere, Nearness::Unknown];

    /// One letter per nearness: how connections are made and which in the clear are accepted.
    fn row(scope: Scope, strictness: Strictness) -> String {
        let policy = Policy { scope, strictness };
        let made = NEAR.map(|peer| match policy.outgoing(peer) {
            Making::Plain => 'p',
            Making::Encrypted => 'T',
            Making::EncryptedIfSpoken => 't',
        });
        let taken = NEAR.map(|peer| {
            assert!(policy.accepts(Wire::Encrypted, peer));
            if policy.accepts(Wire::Plain, peer) { 'p' } else { '-' }
        });
        format!("{} {}", made.iter().collect::<String>(), taken.iter().collect::<String>())
    }

    #[test]
    fn encryption_follows_the_setting_and_the_place_of_the_peer() {
        use Scope::{All, BetweenDatacenters, BetweenRacks, None};
        use Strictness::{Optional, Strict};
        // Columns: same rack, same data center, elsewhere, unknown.
        for (scope, strictness, expected) in [
            (None, Strict, "pppp pppp"),
            (None, Optional, "pppp pppp"),
            (BetweenRacks, Strict, "pTTT p---"),
            (BetweenRacks, Optional, "pttt pppp"),
            (BetweenDatacenters, Strict, "ppTT pp--"),
            (BetweenDatacenters, Optional, "pptt pppp"),
            (All, Strict, "TTTT ----"),
            (All, Optional, "tttt pppp"),
        ] {
            assert_eq!(row(scope, strictness), expected, "{scope:?} {strictness:?}");
        }
    }

    #[test]
    fn a_pair_of_the_same_policy_always_finds_a_way() {
        for scope in [Scope::None, Scope::BetweenRacks, Scope::BetweenDatacenters, Scope::All] {
            for strictness in [Strictness::Strict, Strictness::Optional] {
                let policy = Policy { scope, strictness };
                for peer in NEAR {
                    let wire = match policy.outgoing(peer) {
                        Making::Plain => Wire::Plain,
                        Making::Encrypted | Making::EncryptedIfSpoken => Wire::Encrypted,
                    };
                    assert!(policy.accepts(wire, peer), "{policy:?} {peer:?}");
                }
            }
        }
    }

    fn certificate(uri: &str, days: i64) -> PeerCertificate {
        PeerCertificate {
            subject: "CN=n1".to_owned(),
            uris: vec![uri.to_owned()],
            alternative_names: vec!["IP=10.0.0.1".to_owned()],
            not_after: days * 86_400,
            ..PeerCertificate::default()
        }
    }

    #[test]
    fn peers_are_judged_by_validity_address_and_identity() {
        let (here, there) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let shown = certificate("spiffe://c/n1", 100);
        let none = PeerChecks::default();
        assert_eq!(none.judge(None, there), Ok(()));
        assert_eq!(none.judge(Some(&shown), there), Ok(()));

        let limits = CertificateLimits {
            validity_max: Some(Duration::from_secs(99 * 86_400)),
            ..CertificateLimits::default()
        };
        let short = PeerChecks { limits, ..PeerChecks::default() };
        let refused = short.judge(Some(&shown), here).unwrap_err();
        assert!(refused.contains("valid for 100 days"), "{refused}");
        assert_eq!(short.judge(Some(&certificate("a", 99)), here), Ok(()));

        let endpoints = PeerChecks { endpoints: Endpoints::Compared, ..PeerChecks::default() };
        assert_eq!(endpoints.judge(Some(&shown), here), Ok(()));
        let refused = endpoints.judge(Some(&shown), there).unwrap_err();
        assert!(refused.contains("does not name the address 10.0.0.2"), "{refused}");
        // Certificates are not asked for: only those of accepting peers are compared, by TLS.
        assert_eq!(endpoints.judge(None, there), Ok(()));

        let identities = Some(BTreeSet::from(["spiffe://c/n1".to_owned()]));
        let known = PeerChecks { identities, ..PeerChecks::default() };
        assert_eq!(known.judge(Some(&shown), there), Ok(()));
        for (shown, reason) in [
            (Some(certificate("spiffe://c/n2", 1)), "Unable to authenticate user spiffe://c/n2"),
            (Some(certificate("http://c/n1", 1)), "Unable to extract Spiffe from the certificate"),
            (None, "No certificate present on connection"),
        ] {
            assert_eq!(known.judge(shown.as_ref(), here), Err(reason.to_owned()));
        }
        let encryption = Encryption { checks: known, ..Encryption::default() };
        assert!(!encryption.accepts_plain(Nearness::SameRack));
        assert!(Encryption::default().accepts_plain(Nearness::Unknown));
    }
}
