//! Logins at the API: the role of a password or a certificate, and its scope.

use admin_access::scope_of_role;
use cluster::Auth;

use super::Served;
use crate::request::{ActionError, ApiLogin, LoginReply};
use crate::shard_actions::{CertificateIdentity, LoginRefusal, PasswordLogin};

impl Served {
    /// Checks a login. The texts do not tell whether a role exists (INV-admin-3).
    pub(super) async fn log_in(&self, login: ApiLogin) -> Result<LoginReply, ActionError> {
        let name = match login {
            ApiLogin::Password { user, password, address } => {
                let login = PasswordLogin { user: user.clone(), password, address };
                if let Err(LoginRefusal(text)) = self.actions.log_in(login).await? {
                    return Ok(LoginReply::Refused(text));
                }
                user
            }
            ApiLogin::Certificate(certificate) => {
                let now = self.rt.wall().0 / 1_000_000;
                // A connection may stay open, and a session be resumed, after the end of its certificate.
                let identity = match certificate.is_valid_at(now) {
                    true => self.actions.identity_of(&certificate).ok_or(NO_IDENTITY),
                    false => Err(NOT_VALID),
                };
                let auth = &self.membership.snapshot().auth;
                match identity.map_err(str::to_owned).and_then(|id| role_of(id, auth)) {
                    Ok(role) => role,
                    Err(text) => return Ok(LoginReply::Refused(text)),
                }
            }
        };
        let auth = &self.membership.snapshot().auth;
        let scope = scope_of_role(auth, &name, self.actions.role_permissions());
        Ok(LoginReply::Role { name, scope })
    }
}

/// Cassandra's text for a certificate that is not valid now.
const NOT_VALID: &str = "Invalid or not supported certificate";
/// Cassandra's text for a certificate without an identity.
const NO_IDENTITY: &str = "Unable to extract client identity from certificate for authentication";

/// Returns the role of an identity, if it may log in.
fn role_of(identity: CertificateIdentity, auth: &Auth) -> Result<String, String> {
    let (role, identity) = match &identity {
        CertificateIdentity::Mapped(identity) => (auth.identities.get(identity), identity),
        CertificateIdentity::Role(role) => (Some(role), role),
    };
    let can_login = |role: &&String| auth.roles.get(*role).is_some_and(|found| found.can_login);
    role.filter(can_login)
        .cloned()
        .ok_or_else(|| format!("Certificate identity '{identity}' not authorized"))
}

#[cfg(test)]
mod tests {
    use cluster::Role;

    use super::*;

    #[test]
    fn an_identity_is_a_role_or_has_one_and_the_role_may_log_in() {
        let mut auth = Auth::default();
        for (name, can_login) in [("ann", true), ("group", false)] {
            let role = Role { is_superuser: false, can_login, salted_hash: String::new() };
            auth.roles.insert(name.to_owned(), role);
        }
        for (identity, role) in [("spiffe://a", "ann"), ("spiffe://g", "group"), ("bob", "ann")] {
            auth.identities.insert(identity.to_owned(), role.to_owned());
        }
        let mapped = |id: &str| role_of(CertificateIdentity::Mapped(id.to_owned()), &auth);
        let named = |id: &str| role_of(CertificateIdentity::Role(id.to_owned()), &auth);
        let refused = |id: &str| Err(format!("Certificate identity '{id}' not authorized"));
        assert_eq!((mapped("spiffe://a"), named("ann")), (Ok("ann".to_owned()), named("ann")));
        assert_eq!(named("ann"), Ok("ann".to_owned()));
        // A mapping gives nothing to the name of a role, nor a name to an identity.
        for id in ["bob", "group", "nosuch"] {
            assert_eq!(named(id), refused(id));
        }
        for id in ["ann", "spiffe://g", "spiffe://nosuch"] {
            assert_eq!(mapped(id), refused(id));
        }
    }
}
