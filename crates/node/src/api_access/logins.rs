//! Passwords and certificates of roles that log in at the API: checked as those of CQL clients are.

use admin::{ActionError, CertificateIdentity, LoginRefusal, PasswordLogin, Work};
use admin_access::RolePermissions;
use conf::{Authenticator, Authorizer, Options};
use cql_server::{Authentication, CertificateLogin, CqlServer, LoginAttempt, RoleOfIdentity};
use tls::{IdentityRule, PeerCertificate};

use crate::parts;

/// Checks the password of a role. Failures are slowed together with those of CQL clients.
pub(crate) fn log_in(
    server: &CqlServer,
    options: &Options,
    login: PasswordLogin,
) -> Work<Result<(), LoginRefusal>> {
    if options.authenticator == Authenticator::AllowAll {
        let text = "this node has no passwords of roles (\"authenticator\")".to_owned();
        return Box::pin(async move { Ok(Err(LoginRefusal(text))) });
    }
    let PasswordLogin { user, password, address } = login;
    let (server, attempt) = (server.clone(), LoginAttempt { user, password: password.0, address });
    Box::pin(async move { outcome(server.log_in(attempt).await) })
}

/// A password that was not verified is no failed login: the client may retry.
fn outcome(
    of_server: Result<(), cql_server::LoginRefusal>,
) -> Result<Result<(), LoginRefusal>, ActionError> {
    match of_server {
        Ok(()) => Ok(Ok(())),
        Err(cql_server::LoginRefusal::Denied(text)) => Ok(Err(LoginRefusal(text))),
        Err(cql_server::LoginRefusal::Overloaded(text)) => Err(ActionError::Busy(text)),
    }
}

/// Returns the identity in a certificate by the rule of the `authenticator`; authenticators without logins by
/// certificate have no rule, so the SPIFFE id counts.
pub(crate) fn identity_of(
    options: &Options,
    certificate: &PeerCertificate,
) -> Option<CertificateIdentity> {
    let login = match parts::authentication(options) {
        Ok(Authentication::Certificate(login) | Authentication::CertificateOrPassword(login)) => {
            login
        }
        Ok(Authentication::AllowAll | Authentication::Password) => {
            CertificateLogin { rule: IdentityRule::Spiffe, roles: RoleOfIdentity::Mapped }
        }
        // Such settings do not start.
        Err(_) => return None,
    };
    let identity = login.rule.identity(certificate).ok()?;
    Some(match login.roles {
        RoleOfIdentity::Mapped => CertificateIdentity::Mapped(identity),
        RoleOfIdentity::Named => CertificateIdentity::Role(identity),
    })
}

/// Returns whether roles have permissions.
pub(crate) fn role_permissions(options: &Options) -> RolePermissions {
    match options.authorizer {
        Authorizer::AllowAll => RolePermissions::SuperusersOnly,
        _ => RolePermissions::Granted,
    }
}

#[cfg(test)]
mod tests {
    use conf::{CertificateValidator, RoleQueries, RoleQuery, RoleQuerySource};

    use super::*;

    #[test]
    fn a_busy_server_refuses_no_login() {
        use cql_server::LoginRefusal::{Denied, Overloaded};
        let text = || "text".to_owned();
        assert_eq!(outcome(Ok(())), Ok(Ok(())));
        assert_eq!(outcome(Err(Denied(text()))), Ok(Err(LoginRefusal(text()))));
        assert_eq!(outcome(Err(Overloaded(text()))), Err(ActionError::Busy(text())));
    }

    #[test]
    fn the_authenticator_decides_what_identifies_a_client() {
        let certificate = PeerCertificate {
            subject_rfc4514: "CN=ann,O=x".to_owned(),
            uris: vec!["spiffe://a".to_owned()],
            ..PeerCertificate::default()
        };
        let query =
            RoleQuery { source: RoleQuerySource::Subject, query: r"CN=([^,\s]+)".to_owned() };
        let of = |authenticator| {
            let options = Options {
                authenticator,
                auth_certificate_role_queries: RoleQueries(vec![query.clone()]),
                mutual_tls_validator: Some(CertificateValidator::Spiffe),
                ..Options::default()
            };
            identity_of(&options, &certificate)
        };
        let mapped = || Some(CertificateIdentity::Mapped("spiffe://a".to_owned()));
        assert_eq!(
            of(Authenticator::Certificate),
            Some(CertificateIdentity::Role("ann".to_owned()))
        );
        assert_eq!(of(Authenticator::MutualTls), mapped());
        assert_eq!(of(Authenticator::MutualTlsOrPassword), mapped());
        assert_eq!(of(Authenticator::Password), mapped());
        assert_eq!(identity_of(&Options::default(), &PeerCertificate::default()), None);
    }

    #[test]
    fn without_permissions_only_superusers_have_a_scope() {
        let of = |authorizer| role_permissions(&Options { authorizer, ..Options::default() });
        assert_eq!(of(Authorizer::AllowAll), RolePermissions::SuperusersOnly);
        assert_eq!(of(Authorizer::Cassandra), RolePermissions::Granted);
    }
}
