//! A login with a password and its refusal, as shards and other front ends pass them.

use std::net::IpAddr;

/// A login with a password.
#[derive(Clone)]
pub struct LoginAttempt {
    /// Name of the role.
    pub user: String,
    /// Its password, as the client sent it.
    pub password: String,
    /// Address of the client.
    pub address: IpAddr,
}

/// Reason why a login fails; the texts are for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    /// Role or password are wrong, or the role may not log in.
    Denied(String),
    /// The node does not verify passwords now.
    Overloaded(String),
}

/// Refusal of a server that stops.
pub(crate) fn stopping() -> LoginRefusal {
    LoginRefusal::Overloaded("the node is stopping".to_owned())
}

/// Refusal of a server whose threads or waiting places are all taken.
pub(crate) fn busy() -> LoginRefusal {
    LoginRefusal::Overloaded(
        "Server is busy verifying passwords and cannot accept more logins. Try again later."
            .to_owned(),
    )
}
