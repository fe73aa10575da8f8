//! Passwords of roles that log in at the API: verified as those of CQL clients are.

use admin::{ActionError, LoginRefusal, PasswordLogin, Work};
use admin_access::RolePermissions;
use conf::{Authenticator, Authorizer, Options};
use cql_server::{CqlServer, LoginAttempt};

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
    Box::pin(async move {
        let outcome = server.log_in(attempt).await;
        Ok::<_, ActionError>(outcome.map_err(|refusal| match refusal {
            cql_server::LoginRefusal::Denied(text) | cql_server::LoginRefusal::Overloaded(text) => {
                LoginRefusal(text)
            }
        }))
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
    use super::*;

    #[test]
    fn without_permissions_only_superusers_have_a_scope() {
        let of = |authorizer| role_permissions(&Options { authorizer, ..Options::default() });
        assert_eq!(of(Authorizer::AllowAll), RolePermissions::SuperusersOnly);
        assert_eq!(of(Authorizer::Cassandra), RolePermissions::Granted);
    }
}
