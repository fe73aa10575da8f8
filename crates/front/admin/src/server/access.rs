//! Logins of clients: which are needed, and who a client is.
//!
//! Owns: the policy, the tokens, the delay of failed logins. Passwords and roles are checked on a shard, which runs the
//! hash on a thread of its pool ([`crate::ShardActions::log_in`]). No answer tells whether a role exists (see INV-admin-3 of the crate).

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use admin_access::{AccessScope, Credentials, FailedLogins, Principal, Tokens};
use axum::http::{HeaderMap, header};
use stdx::ShardId;
use tls::PeerCertificate;
use tokio::time::Instant;

use super::ShardCaller;
use super::api::{ANSWER_MAX, ApiError};
use crate::actions::ActionLog;
use crate::model::ErrorKind;
use crate::prometheus;
use crate::request::{AdminReply, AdminRequest, ApiLogin, LoginReply};

/// Text for a client without credentials. It begins as Cassandra's, by which scripts find it.
const MISSING: &str = "Required key 'username' is missing; log in with a role's password (-u, -pw) or with a token (--token-file)";
/// Text for malformed credentials and wrong tokens.
const WRONG_TOKEN: &str = "Provided token or credentials are not valid";

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
    /// Delays of failed logins.
    pub failures: FailedLogins,
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
    began: Instant,
    pub(super) actions: Option<Arc<dyn ActionLog>>,
    pub(super) refusals: Refusals,
}

/// A client with the text of its refusal, should it be refused.
pub(super) struct Identified {
    pub(super) principal: Principal,
    /// Name for the record of actions: proven or claimed.
    pub(super) user: String,
    pub(super) refusal: String,
}

impl Identified {
    fn known(name: String, scope: Option<AccessScope>) -> Identified {
        let refusal = format!(
            "User {name} lacks the permission: reading needs SELECT and commands need EXECUTE on ALL MBEANS, or a \
             token of that scope"
        );
        Identified { user: name.clone(), principal: Principal::Known { name, scope }, refusal }
    }

    fn rejected(user: String, refusal: String) -> Identified {
        Identified { principal: Principal::Rejected, user, refusal }
    }
}

impl Access {
    pub(super) fn new(parts: AccessParts) -> Access {
        Access {
            login: parts.login,
            tokens: RwLock::new(Arc::new(parts.tokens)),
            failures: Mutex::new(parts.failures),
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

    /// Finds out who a client is. The credentials of the header count before the certificate.
    ///
    /// # Errors
    /// A shard is busy.
    pub(super) async fn identify(
        &self,
        shards: &ShardCaller,
        address: IpAddr,
        headers: &HeaderMap,
        certificate: Option<&PeerCertificate>,
    ) -> Result<Identified, ApiError> {
        if !self.needs_login(address) {
            let principal = Principal::Trusted;
            return Ok(Identified { principal, user: String::new(), refusal: String::new() });
        }
        let Some(header) = headers.get(header::AUTHORIZATION) else {
            let Some(certificate) = certificate else {
                let refusal = MISSING.to_owned();
                let principal = Principal::Anonymous;
                return Ok(Identified { principal, user: String::new(), refusal });
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
    ) -> Result<Identified, ApiError> {
        let asked = shards.call(ShardId(0), AdminRequest::LogIn(login));
        let reply = shards.within(ANSWER_MAX, asked).await;
        let busy = || ApiError(ErrorKind::Busy, "the node is busy, try again".to_owned());
        match reply.map_err(|_| busy())?? {
            AdminReply::Login(LoginReply::Role { name, scope }) => {
                Ok(Identified::known(name, scope))
            }
            AdminReply::Login(LoginReply::Refused(text)) => Ok(Identified::rejected(claimed, text)),
            AdminReply::Failed(error) => Err(error.into()),
            _ => Err(busy()),
        }
    }

    /// Waits before the answer to a failed login, the longer the more of the address failed.
    pub(super) async fn slow_down(&self, address: IpAddr) {
        self.refusals.failed_logins.fetch_add(1, Ordering::Relaxed);
        let now = self.began.elapsed();
        let delay = {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.count(address, now)
        };
        tokio::time::sleep(delay).await;
    }
}
