//! Logins of clients: at STARTUP by certificate, after it by password.
//!
//! Owns: the order of checks of a login, the desk of shard 0 that verifies passwords for all shards, connections per
//! role. Never: computes a hash (`logins::PasswordPool`), decides who waits (`logins::Slowdown`).
//!
//! A password is verified on the node's shard 0, so that failures count for the whole node:
//! 1. a password that was verified recently on the connection's shard is accepted (the cache of [`crate::auth`]);
//! 2. the slow-down decides how long the login waits, or refuses it;
//! 3. it waits for one of a few turns, then looks into the cache of shard 0: of many connections that log in with one
//!    password at the same time a few hash, the others find the result;
//! 4. a thread of the pool hashes. A role that does not exist costs the same as one that does.
//!
//! INV-login-1: waits are bounded ([`logins::slowdown::ADDRESS_WAIT_MAX`], [`PATIENCE`]) and their number is
//! ([`WAITING_MAX`]); beyond that a login is refused with OVERLOADED.

use crate::accept::first_of;
use crate::auth::{self, Credentials};
use crate::frame_sink::FrameSink;
use crate::mesh::{ServerReply, ServerRequest};
use crate::server::{CqlServer, Server};
use crate::session::{Answering, Session, Stage};
use crate::settings::Authentication;
use cql_wire::{ErrorCode, Opcode, response};
use logins::pool::Verification;
use logins::{Admission, PasswordPool, Passwords, Slowdown, password};
use query::{Failure, Result, ResultSink, Step, Ticket};
use rt::Group;
use rt::service::ServiceFailure;
use rt::sync::Semaphore;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use stdx::{FixedMap, ShardId};

/// Time that a login waits for a thread and for its hash.
const PATIENCE: Duration = Duration::from_secs(5);
/// Logins that wait on a node; more are refused.
pub(crate) const WAITING_MAX: usize = 2048;

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

/// Answer to STARTUP.
pub(crate) enum Early {
    /// READY; this server has no logins.
    Anonymous,
    /// READY; logged in as this role.
    LoggedIn(String),
    /// AUTHENTICATE with this class name.
    Ask(&'static str),
}

/// Verifies passwords for all shards of the node; on shard 0.
pub(crate) struct Desk {
    pool: RefCell<Option<PasswordPool>>,
    passwords: Passwords,
    slowdown: RefCell<Slowdown>,
    /// One for each thread of the pool, and one that is ready when it is.
    turns: Semaphore,
    waiting: Cell<usize>,
}

impl Desk {
    /// Starts the pool.
    ///
    /// # Errors
    /// The system refused a thread.
    pub(crate) fn start(rt: &rt::Rt) -> std::io::Result<Desk> {
        // A quarter of the processors: requests go on while all threads hash.
        let threads = (rt.shard_count() / 4).clamp(1, 16);
        let pool = PasswordPool::start(rt, threads)?;
        Ok(Desk {
            passwords: pool.passwords(),
            pool: RefCell::new(Some(pool)),
            slowdown: RefCell::default(),
            turns: Semaphore::new(2 * usize::from(threads)),
            waiting: Cell::new(0),
        })
    }

    pub(crate) fn passwords(&self) -> Passwords {
        self.passwords.clone()
    }

    pub(crate) fn failure(&self) -> impl Future<Output = Option<ServiceFailure>> + use<> {
        let failure = self.pool.borrow().as_ref().map(PasswordPool::failure);
        async move {
            match failure {
                Some(failure) => failure.await,
                None => None,
            }
        }
    }

    pub(crate) async fn stop(&self) {
        let pool = self.pool.borrow_mut().take();
        if let Some(pool) = pool {
            pool.stop().await;
        }
    }
}

/// Counts a login that waits.
struct Waits<'a>(&'a Cell<usize>);

impl<'a> Waits<'a> {
    fn begin(waiting: &'a Cell<usize>) -> Option<Waits<'a>> {
        let now = waiting.get();
        (now < WAITING_MAX).then(|| {
            waiting.set(now + 1);
            Waits(waiting)
        })
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

fn busy() -> LoginRefusal {
    LoginRefusal::Overloaded(
        "Server is busy verifying passwords and cannot accept more logins. Try again later."
            .to_owned(),
    )
}

impl CqlServer {
    /// Starts the threads that verify passwords. To be called on shard 0, before the node listens;
    /// without it no password is right.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn start_logins(
        &self,
    ) -> std::io::Result<impl Future<Output = Option<ServiceFailure>> + use<>> {
        let desk = Rc::new(Desk::start(&self.inner.rt)?);
        let failure = desk.failure();
        self.inner.query.set_passwords(desk.passwords());
        *self.inner.desk.borrow_mut() = Some(desk);
        Ok(failure)
    }

    /// Verifies the password of a role, on any shard: of clients of every protocol.
    ///
    /// # Errors
    /// The login is not accepted.
    pub async fn log_in(&self, attempt: LoginAttempt) -> std::result::Result<(), LoginRefusal> {
        self.inner.log_in(attempt).await
    }
}

impl CqlServer {
    /// Returns true if a stored hash is of this password, which the node asks for itself: nothing is
    /// slowed down. On shard 0; false if no thread could verify it.
    pub async fn is_password(&self, password: &str, hash: String) -> bool {
        let Some(desk) = self.inner.desk.borrow().clone() else { return false };
        let (password, stored) = (password.to_owned(), Some(hash));
        let work = Verification { password, stored, cost_otherwise: password::COST };
        let deadline = self.inner.rt.now() + PATIENCE;
        desk.passwords.verify(&self.inner.rt, work, deadline).await.unwrap_or(false)
    }
}

impl Server {
    /// See [`CqlServer::log_in`].
    async fn log_in(
        self: &Rc<Self>,
        attempt: LoginAttempt,
    ) -> std::result::Result<(), LoginRefusal> {
        let credentials =
            Credentials { user: attempt.user.clone(), password: attempt.password.clone() };
        let (stored, can_login) = {
            let snapshot = self.query.snapshot();
            let role = snapshot.auth.roles.get(&attempt.user);
            let stored = role.map(|role| role.salted_hash.clone()).filter(|hash| !hash.is_empty());
            (stored, role.is_some_and(|role| role.can_login))
        };
        let known = stored
            .as_ref()
            .is_some_and(|hash| self.credentials.knows(&credentials, hash, self.rt.now()));
        if !known {
            if self.rt.shard() == ShardId(0) {
                self.verify(attempt).await?;
            } else {
                let call =
                    self.mesh.calls.call(&self.rt, ShardId(0), ServerRequest::LogIn(attempt));
                match call.await {
                    Ok(ServerReply::LoggedIn(outcome)) => outcome?,
                    _ => return Err(busy()),
                }
            }
        }
        if !can_login {
            let text = format!("{} is not permitted to log in", credentials.user);
            return Err(LoginRefusal::Denied(text));
        }
        if let Some(hash) = stored {
            self.credentials.remember(&credentials, &hash, self.rt.now());
        }
        Ok(())
    }

    /// Verifies a password on shard 0: steps 2 to 4 of the module's description.
    pub(crate) async fn verify(
        self: &Rc<Self>,
        attempt: LoginAttempt,
    ) -> std::result::Result<(), LoginRefusal> {
        let Some(desk) = self.desk.borrow().clone() else { return Err(busy()) };
        let LoginAttempt { user, password, address } = attempt;
        let Some(_waits) = Waits::begin(&desk.waiting) else {
            self.counters.logins_shed.inc();
            return Err(busy());
        };
        let now = self.rt.now();
        let admission = desk.slowdown.borrow_mut().admit(now, address, &user);
        match admission {
            Admission::After(Duration::ZERO) => {}
            Admission::After(wait) => {
                self.counters.logins_delayed.inc();
                self.pause(wait).await?;
            }
            Admission::Refused => {
                self.counters.logins_refused.inc();
                return Err(LoginRefusal::Overloaded(
                    "Too many failed logins from this address. Try again later.".to_owned(),
                ));
            }
        }
        let credentials = Credentials { user, password };
        let is_right = self.verify_in_turn(&desk, &credentials).await?;
        let mut slowdown = desk.slowdown.borrow_mut();
        if is_right {
            slowdown.succeeded(address, &credentials.user);
            return Ok(());
        }
        slowdown.failed(self.rt.now(), address, &credentials.user);
        Err(LoginRefusal::Denied(auth::incorrect(&credentials.user)))
    }

    /// Waits; ends with an error when the server stops.
    async fn pause(&self, wait: Duration) -> std::result::Result<(), LoginRefusal> {
        let stopping = self.drained.notified();
        match first_of(self.rt.sleep(wait), stopping).await {
            Some(()) if !self.is_draining() => Ok(()),
            _ => Err(LoginRefusal::Overloaded("the node is stopping".to_owned())),
        }
    }

    async fn verify_in_turn(
        &self,
        desk: &Desk,
        credentials: &Credentials,
    ) -> std::result::Result<bool, LoginRefusal> {
        let deadline = self.rt.now() + PATIENCE;
        let shed = || {
            self.counters.logins_shed.inc();
            busy()
        };
        let turn = self.rt.timeout(deadline, desk.turns.acquire(1));
        // A server that stops waits for no turn.
        let turn = first_of(turn, self.drained.notified()).await;
        let Some(Ok(_turn)) = turn else { return Err(shed()) };
        let (stored, cost_otherwise) = {
            let snapshot = self.query.snapshot();
            let roles = &snapshot.auth.roles;
            let stored = roles.get(&credentials.user).map(|role| role.salted_hash.clone());
            let hashes = roles.values().map(|role| role.salted_hash.as_str());
            (stored.filter(|hash| !hash.is_empty()), password::usual_cost(hashes))
        };
        if let Some(hash) = &stored
            && self.credentials.knows(credentials, hash, self.rt.now())
        {
            return Ok(true);
        }
        let password = credentials.password.clone();
        let work = Verification { password, stored: stored.clone(), cost_otherwise };
        let is_right = desk.passwords.verify(&self.rt, work, deadline).await.map_err(|error| {
            tracing::debug!(%error, "a password was not verified");
            shed()
        })?;
        if let (true, Some(hash)) = (is_right, stored) {
            self.credentials.remember(credentials, &hash, self.rt.now());
        }
        Ok(is_right)
    }

    /// Counts a connection that logged in as a role; false if the role has too many. On shard 0.
    pub(crate) fn enter_role(&self, role: &str) -> bool {
        let Some(max) = self.settings.connections_per_role_max else { return true };
        let mut by_role = self.by_role.borrow_mut();
        let count = by_role.get(role).copied().unwrap_or(0);
        if count >= max {
            self.counters.refused_connections.inc();
            return false;
        }
        by_role.insert(role.to_owned(), count + 1);
        true
    }

    /// Ends the count of a connection of a role. On shard 0.
    pub(crate) fn leave_role(&self, role: &str) {
        let mut by_role: std::cell::RefMut<'_, FixedMap<String, usize>> = self.by_role.borrow_mut();
        if let Some(count) = by_role.get_mut(role) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                by_role.remove(role);
            }
        }
    }

    /// Counts a connection for its role, where connections of a role are limited.
    async fn count_for_role(&self, session: &Session, role: &str) -> bool {
        if self.settings.connections_per_role_max.is_none() {
            return true;
        }
        let has_room = if self.rt.shard() == ShardId(0) {
            self.enter_role(role)
        } else {
            let request = ServerRequest::EnterRole(role.to_owned());
            matches!(
                self.mesh.calls.call(&self.rt, ShardId(0), request).await,
                Ok(ServerReply::Entered(true))
            )
        };
        if has_room {
            *session.counted_role.borrow_mut() = Some(role.into());
        }
        has_room
    }

    /// Ends the count of a connection that ended.
    pub(crate) async fn uncount_role(&self, session: &Session) {
        let Some(role) = session.counted_role.borrow_mut().take() else { return };
        if self.rt.shard() == ShardId(0) {
            return self.leave_role(&role);
        }
        let request = ServerRequest::LeaveRole(role.to_string());
        if self.mesh.calls.call(&self.rt, ShardId(0), request).await.is_err() {
            tracing::debug!(%role, "the end of a connection could not be counted");
        }
    }
}

fn too_many_connections(role: &str) -> String {
    format!("Too many connections of role {role}")
}

/// Decides about the login of a connection that sent STARTUP.
///
/// # Errors
/// The connection's certificate stands for no role that may log in.
pub(crate) fn early(server: &Rc<Server>, session: &Rc<Session>) -> Result<Early> {
    let certificate = session.tls.as_ref().and_then(|tls| tls.peer.as_ref());
    let login = match &server.settings.authentication {
        Authentication::AllowAll => return Ok(Early::Anonymous),
        Authentication::Password => return Ok(Early::Ask(auth::AUTHENTICATOR)),
        Authentication::CertificateOrPassword(_) if certificate.is_none() => {
            return Ok(Early::Ask(auth::FALLBACK_AUTHENTICATOR));
        }
        Authentication::Certificate(login) | Authentication::CertificateOrPassword(login) => login,
    };
    let seconds = server.rt.wall().0 / 1_000_000;
    let role = login.role(certificate, &server.query.snapshot().auth, seconds);
    let role = role.map_err(|message| {
        server.counters.auth_failures.inc();
        tracing::debug!(peer = %session.client.peer, message, "login by certificate refused");
        Failure::Plain(ErrorCode::BadCredentials, message)
    })?;
    if server.settings.connections_per_role_max.is_some() {
        // STARTUP is answered at once; a connection too many is closed after it.
        let (server, session, role) = (server.clone(), session.clone(), role.clone());
        let (own, rt) = (server.clone(), server.rt.clone());
        let count = async move {
            if !own.count_for_role(&session, &role).await {
                tracing::warn!(peer = %session.client.peer, "{}", too_many_connections(&role));
                session.overrun.set(true);
                session.wake();
            }
        };
        // The gate is closed: the connection ends, too.
        let _ = server.gate.spawn(&rt, Group::Admin, "role-connections", count);
    }
    Ok(Early::LoggedIn(role))
}

/// Answers AUTH_RESPONSE.
///
/// # Errors
/// No credentials are expected, or they cannot be decoded.
pub(crate) fn auth_response(
    server: &Rc<Server>,
    sink: &FrameSink,
    token: &[u8],
    ticket: &Ticket,
) -> Result<Step<Vec<u8>>> {
    let session = &sink.session;
    let asks = matches!(
        server.settings.authentication,
        Authentication::Password | Authentication::CertificateOrPassword(_)
    );
    if session.stage.get() != Stage::Authenticating || !asks || session.is_logging_in.get() {
        return Err(Failure::protocol("no credentials are expected"));
    }
    let credentials = auth::decode_plain(token).map_err(|message| {
        server.counters.auth_failures.inc();
        Failure::Plain(ErrorCode::BadCredentials, message)
    })?;
    // One at a time: a connection does not multiply its guesses.
    session.is_logging_in.set(true);
    let (server, sink, ticket) = (server.clone(), sink.clone(), ticket.clone());
    Ok(Step::Waits(Box::pin(async move {
        let _running = server.counters.auth_stage.run();
        let mut out = server.query.buffer();
        let session = &sink.session;
        let outcome = log_in_session(&server, session, credentials).await;
        session.is_logging_in.set(false);
        let answer = outcome.and_then(|user| {
            let about = Answering::new(sink.stream, &ticket);
            session.respond(&mut out, &about, Opcode::AuthSuccess, |body| {
                response::put_auth_token(body, None)
            })?;
            session.client.log_in(&user);
            session.stage.set(Stage::Ready);
            Ok(())
        });
        if let Err(failure) = answer {
            sink.failed(&mut out, &ticket, &failure);
        }
        out
    })))
}

/// Logs a session in; returns its role.
async fn log_in_session(
    server: &Rc<Server>,
    session: &Session,
    credentials: Credentials,
) -> Result<String> {
    let Credentials { user, password } = credentials;
    let address = session.client.peer.ip();
    let attempt = LoginAttempt { user: user.clone(), password, address };
    match server.log_in(attempt).await {
        Ok(()) => {}
        Err(LoginRefusal::Denied(message)) => {
            server.counters.auth_failures.inc();
            return Err(Failure::Plain(ErrorCode::BadCredentials, message));
        }
        Err(LoginRefusal::Overloaded(message)) => return Err(Failure::overloaded(message)),
    }
    if !server.count_for_role(session, &user).await {
        return Err(Failure::overloaded(too_many_connections(&user)));
    }
    Ok(user)
}
