//! Passwords of roles that log in at the API.

use admin::{ActionError, LoginRefusal, PasswordLogin, Work};
use admin_access::RolePermissions;
use conf::{Authenticator, Authorizer, Options};
use membership::Membership;
use rt::Rt;

/// A hash that no password has, of the same cost as those of roles: it is verified for a role that does not exist, so
/// that the time does not tell.
const NO_ROLE: &str = "$2a$10$CwTycUXWue0Thq9StjUM0u//////////////////////////////.";

/// Checks the password of a role; the hash runs on a thread of the pool.
pub(crate) fn log_in(
    rt: &Rt,
    membership: &Membership,
    options: &Options,
    login: PasswordLogin,
) -> Work<Result<(), LoginRefusal>> {
    let PasswordLogin { user, password, .. } = login;
    if options.authenticator == Authenticator::AllowAll {
        let text = "this node has no passwords of roles (\"authenticator\")".to_owned();
        return Box::pin(async move { Ok(Err(LoginRefusal(text))) });
    }
    let role = membership.snapshot().auth.roles.get(&user).cloned();
    let hash = role.as_ref().map(|role| role.salted_hash.clone()).filter(|hash| !hash.is_empty());
    let (rt, can_login) = (rt.clone(), role.is_some_and(|role| role.can_login));
    Box::pin(async move {
        let has_hash = hash.is_some();
        let hash = hash.unwrap_or_else(|| NO_ROLE.to_owned());
        let verify = move || bcrypt::verify(password.0, &hash).unwrap_or(false);
        let is_right = rt.offload("bcrypt", verify).await && has_hash;
        let refused = |text: String| Ok::<_, ActionError>(Err(LoginRefusal(text)));
        match (is_right, can_login) {
            (true, true) => Ok(Ok(())),
            (true, false) => refused(format!("{user} is not permitted to log in")),
            (false, _) => {
                refused(format!("Provided username {user} and/or password are incorrect"))
            }
        }
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

    /// A hash of another form would be refused before it costs anything, and the time would tell.
    #[test]
    fn the_hash_of_no_role_costs_what_those_of_roles_cost() {
        assert_eq!(NO_ROLE.len(), 60);
        assert_eq!(bcrypt::verify("secret", NO_ROLE).ok(), Some(false));
        let hash: bcrypt::HashParts = NO_ROLE.parse().unwrap();
        assert_eq!(hash.get_cost(), 10);
    }

    #[test]
    fn without_permissions_only_superusers_have_a_scope() {
        let of = |authorizer| role_permissions(&Options { authorizer, ..Options::default() });
        assert_eq!(of(Authorizer::AllowAll), RolePermissions::SuperusersOnly);
        assert_eq!(of(Authorizer::Cassandra), RolePermissions::Granted);
    }
}
