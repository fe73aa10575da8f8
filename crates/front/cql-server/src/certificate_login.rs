//! Logins by certificate: the role of the certificate that a connection showed in its TLS handshake.
//!
//! Owns: which role a certificate stands for, with Cassandra's error texts. Never: whether a certificate is trusted
//! (the handshake has decided), what the role may do.
//! Source: Cassandra 5.0 `MutualTlsAuthenticator`.

use cluster::Auth;
use tls::{IdentityRule, PeerCertificate};

/// How certificates name roles.
#[derive(Clone, Debug)]
pub struct CertificateLogin {
    /// Where the identity is in a certificate.
    pub rule: IdentityRule,
    /// How an identity names a role.
    pub roles: RoleOfIdentity,
}

/// How an identity names a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleOfIdentity {
    /// By `system_auth.identity_to_role`: `ADD IDENTITY`.
    Mapped,
    /// The identity is the name of the role.
    Named,
}

impl CertificateLogin {
    /// Returns the role that a certificate stands for; the role may log in.
    ///
    /// # Errors
    /// Cassandra's message, to be sent as bad credentials.
    pub(crate) fn role(
        &self,
        certificate: Option<&PeerCertificate>,
        auth: &Auth,
        unix_seconds: i64,
    ) -> Result<String, String> {
        let Some(certificate) = certificate else {
            return Err("No certificate present on connection".to_owned());
        };
        // A resumed session was verified when it began; its certificate may have ended since.
        if !certificate.is_valid_at(unix_seconds) {
            return Err("Invalid or not supported certificate".to_owned());
        }
        let identity = self.rule.identity(certificate).map_err(|error| error.to_string())?;
        let role = match self.roles {
            RoleOfIdentity::Named => identity,
            RoleOfIdentity::Mapped => match auth.identities.get(&identity) {
                Some(role) => role.clone(),
                None => return Err(format!("Certificate identity '{identity}' not authorized")),
            },
        };
        if auth.roles.get(&role).is_some_and(|found| found.can_login) {
            Ok(role)
        } else {
            Err(format!("{role} is not permitted to log in"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::Role;
    use tls::{IdentityQuery, IdentitySource};

    fn auth() -> Auth {
        let mut auth = Auth::default();
        for (name, can_login) in [("ann", true), ("group", false)] {
            let role = Role { is_superuser: false, can_login, salted_hash: String::new() };
            auth.roles.insert(name.to_owned(), role);
        }
        for (identity, role) in [("spiffe://a", "ann"), ("spiffe://g", "group")] {
            auth.identities.insert(identity.to_owned(), role.to_owned());
        }
        auth
    }

    fn certificate(uri: &str, common_name: &str) -> PeerCertificate {
        PeerCertificate {
            subject_rfc4514: format!("CN={common_name},O=x"),
            uris: vec![uri.to_owned()],
            not_before: 100,
            not_after: 200,
            ..PeerCertificate::default()
        }
    }

    fn spiffe() -> CertificateLogin {
        CertificateLogin { rule: IdentityRule::Spiffe, roles: RoleOfIdentity::Mapped }
    }

    #[test]
    fn an_identity_logs_in_as_its_role_or_cassandras_error_says_why_not() {
        let of = |uri: &str| spiffe().role(Some(&certificate(uri, "x")), &auth(), 150);
        assert_eq!(of("spiffe://a"), Ok("ann".to_owned()));
        let error = |text: &str| Err(text.to_owned());
        assert_eq!(of("spiffe://b"), error("Certificate identity 'spiffe://b' not authorized"));
        assert_eq!(of("spiffe://g"), error("group is not permitted to log in"));
        assert_eq!(of("https://a"), error("Unable to extract Spiffe from the certificate"));
        let none = spiffe().role(None, &auth(), 150);
        assert_eq!(none, error("No certificate present on connection"));
    }

    #[test]
    fn a_certificate_that_ended_since_the_session_began_logs_nobody_in() {
        let at = |seconds| spiffe().role(Some(&certificate("spiffe://a", "x")), &auth(), seconds);
        assert!(at(100).is_ok() && at(200).is_ok());
        for seconds in [99, 201] {
            assert_eq!(at(seconds), Err("Invalid or not supported certificate".to_owned()));
        }
    }

    #[test]
    fn a_pattern_names_the_role_itself() {
        let query = IdentityQuery::new(IdentitySource::Subject, r"CN=([^,\s]+)").unwrap();
        let login = CertificateLogin {
            rule: IdentityRule::Queries(vec![query]),
            roles: RoleOfIdentity::Named,
        };
        let of = |name: &str| login.role(Some(&certificate("", name)), &auth(), 150);
        assert_eq!(of("ann"), Ok("ann".to_owned()));
        assert_eq!(of("bob"), Err("bob is not permitted to log in".to_owned()));
        assert_eq!(of("group"), Err("group is not permitted to log in".to_owned()));
    }
}
