//! Logins of clients: which are needed, and who a client is.
//!
//! Owns: the policy, the tokens, the delay of failed logins with tokens and certificates. Passwords and roles are checked
//! on a shard, which runs the hash on a thread of its pool and slows failures down ([`crate::ShardActions::log_in`]). No answer tells whether a role exists (see INV-admin-3 of the crate).

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use admin_access::{AccessScope, Credentials, FailedLogins, Principal, Tokens};
use axum::http::{HeaderMap, header};
use rt::MeshError;
use stdx::ShardId;
use tls::PeerCertificate;
use tokio::time::Instant;

use super::ShardCaller;
use super::api::ApiError;
use crate::actions::ActionLog;
use crate::model::ErrorKind;
use crate::prometheus;
use crate::request::{AdminReply, AdminRequest, ApiLogin, LoginReply};

/// Text for a client without credentials. It begins as Cassandra's, by which scripts find it.
const MISSING: &str = "Required key 'username' is missing; log in with a role's password (-u, -pw) or with a token (--token-file)";
/// Text for malformed credentials and wrong tokens.
const WRONG_TOKEN: &str = "Provided token or credentials are not valid";

/// Time limit for the check of a login. It is above the longest wait of a login that is slowed (10 s) and the patience for
/// a thread that verifies its password (5 s) together.
pub(super) const LOGIN_MAX: Duration = Duration::from_secs(20);

/// Clients that must log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginPolicy {
    /// None.
    Nobody,
    /// Those of other machines.
    Remote,
    /// All.
    Everybody,
}

/// Settings of logins.
#[derive(Clone)]
pub struct AccessParts {
    /// Clients that must log in.
    pub login: LoginPolicy,
    /// Bearer tokens.
    pub tokens: Tokens,
    /// Delays of failed logins with tokens and certificates.
    pub failures: FailedLogins,
    /// Time limit for the check of a login.
    pub login_max: Duration,
    /// Receiver of all requests.
    pub actions: Option<Arc<dyn ActionLog>>,
}

impl AccessParts {
    /// No login is needed.
    pub fn open() -> AccessParts {
        AccessParts {
            login: LoginPolicy::Nobody,
            tokens: Tokens::default(),
            failures: FailedLogins::default(),
            login_max: LOGIN_MAX,
            actions: None,
        }
    }
}

/// Counts of refused requests, for `/metrics`.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    pub(super) failed_logins: AtomicU64,
    pub(super) unauthenticated: AtomicU64,
    pub(super) forbidden: AtomicU64,
}

impl Refusals {
    /// Text for Prometheus.
    pub(super) fn text(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        prometheus::refusals(
            count(&self.failed_logins),
            count(&self.unauthenticated),
            count(&self.forbidden),
        )
    }
}

/// State of logins, shared by all requests.
pub(super) struct Access {
    login: LoginPolicy,
    tokens: RwLock<Arc<Tokens>>,
    failures: Mutex<FailedLogins>,
    login_max: Duration,
    began: Instant,
    pub(super) actions: Option<Arc<dyn ActionLog>>,
    pub(super) refusals: Refusals,
}

/// Delay of the answer to a failed login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slowing {
    /// The answer is delayed here.
    Answer,
    /// The shard has delayed the check, as it does for CQL clients.
    Check,
}

impl Slowing {
    fn of(login: &ApiLogin) -> Slowing {
        match login {
            ApiLogin::Password { .. } => Slowing::Check,
            ApiLogin::Certificate(_) => Slowing::Answer,
        }
    }
}

/// Reason why a login was not checked.
#[derive(Debug)]
pub(super) enum Unchecked {
    /// The shard did not answer in time.
    TimedOut,
    /// The shard refused to check it.
    Refused(ApiError),
}

impl From<Unchecked> for ApiError {
    fn from(unchecked: Unchecked) -> ApiError {
        match unchecked {
            Unchecked::TimedOut => {
                let text = "the node is busy and did not check the login in time, try again";
                ApiError(ErrorKind::Busy, text.to_owned())
            }
            Unchecked::Refused(error) => error,
        }
    }
}

/// A client with the text of its refusal, should it be refused.
pub(super) struct Identified {
    pub(super) principal: Principal,
    /// Name for the record of actions: proven or claimed.
    pub(super) user: String,
    pub(super) refusal: String,
    pub(super) slowing: Slowing,
}

impl Identified {
    fn known(name: String, scope: Option<AccessScope>) -> Identified {
        let refusal = format!(
            "User {name} lacks the permission: reading needs SELECT and commands need EXECUTE on ALL MBEANS, or a \
             token of that scope"
        );
        Identified {
            refusal,
            ..Identified::of(Principal::Known { name: name.clone(), scope }, name)
        }
    }

    fn of(principal: Principal, user: String) -> Identified {
        Identified { principal, user, refusal: String::new(), slowing: Slowing::Answer }
    }

    /// A client without credentials, or one whose credentials the request does not need.
    pub(super) fn anonymous(refusal: String) -> Identified {
        Identified { refusal, ..Identified::of(Principal::Anonymous, String::new()) }
    }

    fn rejected(user: String, refusal: String) -> Identified {
        Identified { refusal, ..Identified::of(Principal::Rejected, user) }
    }
}

impl Access {
    pub(super) fn new(parts: AccessParts) -> Access {
        Access {
            login: parts.login,
            tokens: RwLock::new(Arc::new(parts.tokens)),
            failures: Mutex::new(parts.failures),
            login_max: parts.login_max,
            began: Instant::now(),
            actions: parts.actions,
            refusals: Refusals::default(),
        }
    }

    /// Replaces the tokens.
    pub(super) fn set_tokens(&self, tokens: Tokens) {
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
    }

    fn needs_login(&self, address: IpAddr) -> bool {
        match self.login {
            LoginPolicy::Nobody => false,
            LoginPolicy::Remote => !address.to_canonical().is_loopback(),
            LoginPolicy::Everybody => true,
        }
    }

    /// Returns the name that a client claims; empty: it claims none, or needs no login.
    pub(super) fn claimed(
        &self,
        address: IpAddr,
        headers: &HeaderMap,
        certificate: Option<&PeerCertificate>,
    ) -> String {
        if !self.needs_login(address) {
            return String::new();
        }
        let Some(header) = headers.get(header::AUTHORIZATION) else {
            return certificate.map(|shown| shown.subject.clone()).unwrap_or_default();
        };
        match header.to_str().ok().and_then(Credentials::parse) {
            Some(Credentials::Password { user, .. }) => user,
            Some(Credentials::Token(_)) | None => String::new(),
        }
    }

    /// Finds out who a client is. The credentials of the header count before the certificate.
    ///
    /// # Errors
    /// The shard is busy.
    pub(super) async fn identify(
        &self,
        shards: &ShardCaller,
        address: IpAddr,
        headers: &HeaderMap,
        certificate: Option<&PeerCertificate>,
    ) -> Result<Identified, Unchecked> {
        if !self.needs_login(address) {
            return Ok(Identified::of(Principal::Trusted, String::new()));
        }
        let Some(header) = headers.get(header::AUTHORIZATION) else {
            let Some(certificate) = certificate else {
                return Ok(Identified::anonymous(MISSING.to_owned()));
            };
            let login = ApiLogin::Certificate(Box::new(certificate.clone()));
            return self.log_in(shards, certificate.subject.clone(), login).await;
        };
        match header.to_str().ok().and_then(Credentials::parse) {
            Some(Credentials::Password { user, password }) => {
                let login = ApiLogin::Password { user: user.clone(), password, address };
                self.log_in(shards, user, login).await
            }
            Some(Credentials::Token(token)) => {
                let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone();
                Ok(match tokens.find(&token.0) {
                    Some(token) => {
                        Identified::known(format!("token:{}", token.name), Some(token.scope))
                    }
                    None => Identified::rejected(String::new(), WRONG_TOKEN.to_owned()),
                })
            }
            None => Ok(Identified::rejected(String::new(), WRONG_TOKEN.to_owned())),
        }
    }

    async fn log_in(
        &self,
        shards: &ShardCaller,
        claimed: String,
        login: ApiLogin,
    ) -> Result<Identified, Unchecked> {
        let slowing = Slowing::of(&login);
        let asked = shards.call(ShardId(0), AdminRequest::LogIn(login));
        let Ok(reply) = shards.within(self.login_max, asked).await else {
            self.refusals.failed_logins.fetch_add(1, Ordering::Relaxed);
            return Err(Unchecked::TimedOut);
        };
        match reply.map_err(|error| Unchecked::Refused(error.into()))? {
            AdminReply::Login(LoginReply::Role { name, scope }) => {
                Ok(Identified::known(name, scope))
            }
            AdminReply::Login(LoginReply::Refused(text)) => {
                Ok(Identified { slowing, ..Identified::rejected(claimed, text) })
            }
            AdminReply::Failed(error) => Err(Unchecked::Refused(error.into())),
            _ => Err(Unchecked::Refused(MeshError::Closed.into())),
        }
    }

    /// Waits before the answer to a failed login, the longer the more of the address failed.
    pub(super) async fn slow_down(&self, address: IpAddr, slowing: Slowing) {
        tokio::time::sleep(self.count_failure(address, slowing)).await;
    }

    /// Counts a failed login; returns the delay of its answer. A password is delayed once: by the shard.
    fn count_failure(&self, address: IpAddr, slowing: Slowing) -> Duration {
        self.refusals.failed_logins.fetch_add(1, Ordering::Relaxed);
        match slowing {
            Slowing::Check => Duration::ZERO,
            Slowing::Answer => {
                let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.count(address, self.began.elapsed())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use admin_access::Secret;

    use super::*;

    #[test]
    fn a_wrong_password_is_delayed_by_the_shard_only() {
        let address: IpAddr = [10, 0, 0, 7].into();
        let password = Secret("x".to_owned());
        let of_password =
            Slowing::of(&ApiLogin::Password { user: "ann".to_owned(), password, address });
        let of_certificate = Slowing::of(&ApiLogin::Certificate(Box::default()));
        let first = Duration::from_millis(250);
        let access = Access::new(AccessParts::open());
        for _ in 0..3 {
            assert_eq!(access.count_failure(address, of_password), Duration::ZERO);
        }
        assert_eq!(access.count_failure(address, of_certificate), first);
        assert_eq!(access.count_failure(address, Slowing::Answer), first * 2);
        assert_eq!(access.refusals.failed_logins.load(Ordering::Relaxed), 5);
    }
}
