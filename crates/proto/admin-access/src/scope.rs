//! Scopes of logins, and which request needs which.

use std::fmt;

use cluster::{Auth, Permission, PermissionSet};

/// Name of the resource `ALL MBEANS`, which stands for the API.
const API_RESOURCE: &str = "mbean";

/// Scope of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessScope {
    /// Requests that change nothing.
    ReadOnly,
    /// All requests.
    Operator,
}

impl AccessScope {
    /// Returns the word in the token file and on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            AccessScope::ReadOnly => "read-only",
            AccessScope::Operator => "operator",
        }
    }

    /// Returns the scope of a word.
    pub fn from_word(word: &str) -> Option<AccessScope> {
        [AccessScope::ReadOnly, AccessScope::Operator].into_iter().find(|s| s.word() == word)
    }
}

impl fmt::Display for AccessScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Scope that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Nothing, not even a login: the answer says only that the node answers.
    Nothing,
    /// A login with one of the scopes.
    Read,
    /// A login with the operator's scope.
    Operate,
}

/// A client after the check of its login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// No login is needed of this client.
    Trusted,
    /// The client has sent no credentials.
    Anonymous,
    /// Its credentials are wrong.
    Rejected,
    /// It has logged in.
    Known {
        /// Role, or name of the token.
        name: String,
        /// `None`: the role lacks permissions for the API.
        scope: Option<AccessScope>,
    },
}

/// Outcome for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is carried out.
    Allow,
    /// A login is needed, or it failed.
    Unauthenticated,
    /// The login lacks the scope.
    Forbidden,
}

/// Decides about a request.
pub fn decide(need: Need, principal: &Principal) -> Decision {
    let scope = match (need, principal) {
        (Need::Nothing, _) | (_, Principal::Trusted) => return Decision::Allow,
        (_, Principal::Anonymous | Principal::Rejected) => return Decision::Unauthenticated,
        (_, Principal::Known { scope, .. }) => *scope,
    };
    match (need, scope) {
        (_, Some(AccessScope::Operator)) | (Need::Read, Some(AccessScope::ReadOnly)) => {
            Decision::Allow
        }
        _ => Decision::Forbidden,
    }
}

/// Source of the scopes of roles, by the node's `authorizer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolePermissions {
    /// Permissions are granted.
    Granted,
    /// There are none (`AllowAllAuthorizer`): only superusers may use the API.
    SuperusersOnly,
}

/// Returns the scope of a role by its permissions on `ALL MBEANS`, its own and those of roles granted to it: MODIFY or
/// EXECUTE is the operator's scope, SELECT or DESCRIBE the read-only one. Superusers are operators.
pub fn scope_of_role(auth: &Auth, role: &str, permissions: RolePermissions) -> Option<AccessScope> {
    if auth.is_superuser(role) {
        return Some(AccessScope::Operator);
    }
    if permissions == RolePermissions::SuperusersOnly {
        return None;
    }
    let of_role = |name: &&str| auth.permissions.get(*name)?.get(API_RESOURCE).copied();
    let granted = auth.roles_of(role);
    let all = granted.iter().filter_map(of_role).fold(PermissionSet::NONE, PermissionSet::union);
    let has = |any: [Permission; 2]| any.into_iter().any(|one| all.contains(one));
    if has([Permission::Modify, Permission::Execute]) {
        Some(AccessScope::Operator)
    } else if has([Permission::Select, Permission::Describe]) {
        Some(AccessScope::ReadOnly)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::Role;

    fn known(scope: Option<AccessScope>) -> Principal {
        Principal::Known { name: "ann".to_owned(), scope }
    }

    #[test]
    fn every_need_meets_every_principal() {
        use Decision::{Allow, Forbidden, Unauthenticated};
        let principals = [
            Principal::Trusted,
            Principal::Anonymous,
            Principal::Rejected,
            known(None),
            known(Some(AccessScope::ReadOnly)),
            known(Some(AccessScope::Operator)),
        ];
        let of = |need| principals.clone().map(|principal| decide(need, &principal));
        assert_eq!(of(Need::Nothing), [Allow; 6]);
        assert_eq!(
            of(Need::Read),
            [Allow, Unauthenticated, Unauthenticated, Forbidden, Allow, Allow]
        );
        assert_eq!(
            of(Need::Operate),
            [Allow, Unauthenticated, Unauthenticated, Forbidden, Forbidden, Allow]
        );
    }

    /// `ops` has its permission through `team`; `root` is a superuser, and `heir` has that role.
    fn roles() -> Auth {
        let mut auth = Auth::default();
        for name in ["reader", "describer", "modifier", "team", "ops", "root", "heir", "app", "one"]
        {
            let role =
                Role { is_superuser: name == "root", can_login: true, salted_hash: String::new() };
            auth.roles.insert(name.to_owned(), role);
        }
        let mut grant = |role: &str, resource: &str, permission| {
            let of_role = auth.permissions.entry(role.to_owned()).or_default();
            of_role.insert(resource.to_owned(), PermissionSet::of(&[permission]));
        };
        grant("reader", "mbean", Permission::Select);
        grant("describer", "mbean", Permission::Describe);
        grant("modifier", "mbean", Permission::Modify);
        grant("team", "mbean", Permission::Execute);
        grant("app", "data", Permission::Modify);
        grant("one", "mbean/org.apache.cassandra.db:type=StorageService", Permission::Execute);
        auth.member_of.entry("ops".to_owned()).or_default().insert("team".to_owned());
        auth.member_of.entry("heir".to_owned()).or_default().insert("root".to_owned());
        auth
    }

    #[test]
    fn permissions_on_all_mbeans_are_scopes_of_the_api() {
        let auth = roles();
        let of = |role| scope_of_role(&auth, role, RolePermissions::Granted);
        assert_eq!(of("reader"), Some(AccessScope::ReadOnly));
        assert_eq!(of("describer"), Some(AccessScope::ReadOnly));
        assert_eq!(of("modifier"), Some(AccessScope::Operator));
        assert_eq!(of("team"), Some(AccessScope::Operator));
        assert_eq!(of("ops"), Some(AccessScope::Operator));
        assert_eq!((of("root"), of("heir")), (of("ops"), of("ops")));
        // Permissions on data, on a single MBean, and roles that do not exist give nothing.
        assert_eq!([of("app"), of("one"), of("nosuch")], [None; 3]);
    }

    #[test]
    fn without_permissions_only_superusers_have_a_scope() {
        let auth = roles();
        let of = |role| scope_of_role(&auth, role, RolePermissions::SuperusersOnly);
        assert_eq!(of("heir"), Some(AccessScope::Operator));
        assert_eq!([of("ops"), of("reader"), of("app")], [None; 3]);
    }
}
