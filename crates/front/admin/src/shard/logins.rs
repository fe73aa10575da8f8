//! Logins at the API: the role of a password or a certificate, and its scope.

use admin_access::scope_of_role;

use super::Served;
use crate::request::{ActionError, ApiLogin, LoginReply};
use crate::shard_actions::{LoginRefusal, PasswordLogin};

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
                let Some(identity) = self.actions.identity_of(&certificate) else {
                    let text =
                        "Unable to extract client identity from certificate for authentication";
                    return Ok(LoginReply::Refused(text.to_owned()));
                };
                let auth = &self.membership.snapshot().auth;
                let role = auth.identities.get(&identity);
                let can_login = |role: &&String| auth.roles.get(*role).is_some_and(|r| r.can_login);
                match role.filter(can_login) {
                    Some(role) => role.clone(),
                    None => {
                        let text = format!("Certificate identity '{identity}' not authorized");
                        return Ok(LoginReply::Refused(text));
                    }
                }
            }
        };
        let auth = &self.membership.snapshot().auth;
        let scope = scope_of_role(auth, &name, self.actions.role_permissions());
        Ok(LoginReply::Role { name, scope })
    }
}
