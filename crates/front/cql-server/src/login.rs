//! Logins of clients: at STARTUP by certificate, after it by password.
//!
//! Owns: the order of checks of a login. Never: computes a hash (`logins::PasswordPool`), decides who waits
//! (`logins::Slowdown`), counts connections of a role (`role_connections`).
//!
//! A password is verified on the node's shard 0, so that failures count for the whole node:
//! 1. a password that was verified recently on the connection's shard is accepted (the cache of [`crate::auth`]);
//! 2. the slow-down decides how long the login waits, or refuses it;
//! 3. it waits for one of a few turns, then looks into the cache of shard 0: of many connections that log in with one
//!    password at the same time a few hash, the others find the result;
//! 4. a thread of the pool hashes. A role that does not exist costs the same as one that does.
//!
//! A task of the gate does this, not the connection: a client that closes its connection neither frees the turn while a
//! thread still hashes nor escapes the count of its failure. Roles that have logged in from their address before have
//! waiting places and turns of their own.
//!
//! INV-login-1: waits are bounded ([`logins::slowdown::ADDRESS_WAIT_MAX`], [`PATIENCE`]) and their number is
//! ([`crate::login_desk::WAITING_MAX`]); beyond that a login is refused with OVERLOADED.

use crate::auth::{self, Credentials};
use crate::first_of::first_of;
use crate::frame_sink::FrameSink;
use crate::login_attempt::{LoginAttempt, LoginRefusal, busy, stopping};
use crate::login_desk::{Admitted, Desk, Waits};
use crate::login_queues::Queued;
use crate::mesh::{ServerReply, ServerRequest};
use crate::server::{CqlServer, Server};
use crate::session::{Answering, Session, Stage};
use crate::settings::Authentication;
use cql_wire::{ErrorCode, Opcode, response};
use logins::pool::Verification;
use logins::slowdown::{self, ADDRESS_WAIT_MAX};
use logins::{Admission, Verdict, password};
use query::{Failure, Result, ResultSink, Step, Ticket, Waiting};
use rt::Group;
use rt::service::ServiceFailure;
use rt::sync::oneshot;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use stdx::ShardId;

/// Time that a login waits for a thread.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that a client waits for the end of its login: the slow-down, a thread, the hash.
const LOGIN_PATIENCE: Duration = Duration::from_secs(20);
/// Time that a turn is held for a hash whose client waits no longer. A stored hash may have a very high cost.
const HASH_MAX: Duration = Duration::from_secs(3600);
/// Decision about the login of a connection that sent STARTUP.
enum Early {
    /// READY; this server has no logins.
    Anonymous,
    /// READY; logged in as this role.
    LoggedIn(String),
    /// AUTHENTICATE with this class name.
    Ask(&'static str),
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
            self.verify_on_first(attempt).await?;
        }
        // A login may wait for seconds: the role may have changed.
        let can_login = can_login
            && self.query.snapshot().auth.roles.get(&credentials.user).is_some_and(|r| r.can_login);
        if !can_login {
            let text = format!("{} is not permitted to log in", credentials.user);
            return Err(LoginRefusal::Denied(text));
        }
        if let Some(hash) = stored {
            self.credentials.remember(&credentials, &hash, self.rt.now());
        }
        Ok(())
    }

    /// Has a task of shard 0 verify a password. The task goes on when the connection ends.
    async fn verify_on_first(
        self: &Rc<Self>,
        attempt: LoginAttempt,
    ) -> std::result::Result<(), LoginRefusal> {
        let deadline = self.rt.now() + LOGIN_PATIENCE;
        let outcome = if self.rt.shard() == ShardId(0) {
            let (sender, receiver) = oneshot::channel();
            let server = self.clone();
            let verify = async move {
                // The connection may have ended.
                let _ = sender.send(server.verify(attempt).await);
            };
            if self.gate.spawn(&self.rt, Group::Admin, "login", verify).is_err() {
                return Err(stopping());
            }
            self.rt.timeout(deadline, receiver).await.ok().and_then(std::result::Result::ok)
        } else {
            let call = self.mesh.calls.call(&self.rt, ShardId(0), ServerRequest::LogIn(attempt));
            match self.rt.timeout(deadline, call).await {
                Ok(Ok(ServerReply::LoggedIn(outcome))) => Some(outcome),
                _ => None,
            }
        };
        outcome.unwrap_or_else(|| Err(busy()))
    }

    /// Verifies a password on shard 0: steps 2 to 4 of the module's description. To be called in a task that the
    /// client cannot end.
    pub(crate) async fn verify(
        self: &Rc<Self>,
        attempt: LoginAttempt,
    ) -> std::result::Result<(), LoginRefusal> {
        let Some(desk) = self.desk.borrow().clone() else { return Err(busy()) };
        if self.is_stopping.get() {
            return Err(stopping());
        }
        let LoginAttempt { user, password, address } = attempt;
        let is_known = desk.slowdown.borrow().is_known(address, &user);
        let Some(_waits) = Waits::begin(&desk, is_known) else {
            self.counters.logins_shed.inc();
            return Err(busy());
        };
        let credentials = Credentials { user, password };
        let Some(mut admitted) = self.admit(&desk, address, &credentials).await? else {
            return Ok(());
        };
        if self.verify_in_turn(&desk, &credentials, admitted.is_known()).await? {
            admitted.end(Verdict::Right);
            return Ok(());
        }
        admitted.end(Verdict::Wrong);
        desk.log.failed(self.rt.now(), address, &credentials.user);
        Err(LoginRefusal::Denied(auth::incorrect(&credentials.user)))
    }

    /// Waits until the slow-down admits a login; `None` if its password was verified meanwhile.
    async fn admit<'a>(
        &'a self,
        desk: &'a Desk,
        address: IpAddr,
        credentials: &Credentials,
    ) -> std::result::Result<Option<Admitted<'a>>, LoginRefusal> {
        let role = slowdown::role_key(&credentials.user);
        let deadline = self.rt.now() + ADDRESS_WAIT_MAX;
        let mut woken: Option<Queued<'_>> = None;
        loop {
            if self.knows(credentials) {
                return Ok(None);
            }
            let now = self.rt.now();
            let admission = desk.slowdown.borrow_mut().admit(now, address, &credentials.user);
            match admission {
                Admission::After(wait, login) => {
                    // The next of the queue does not wait for the pause of this one.
                    drop(woken.take());
                    let admitted = Admitted { rt: &self.rt, desk, login: Some(login) };
                    if !wait.is_zero() {
                        self.counters.logins_delayed.inc();
                        self.pause(wait).await?;
                    }
                    return Ok(Some(admitted));
                }
                Admission::Queued(queue) if now < deadline => {
                    let queued = desk.queues.join(queue, role, woken.take());
                    let ended = self.rt.timeout(deadline, queued.woken.notified());
                    let ended = first_of(ended, self.drained.notified()).await;
                    woken = Some(queued);
                    if ended.is_none() || self.is_stopping.get() {
                        return Err(stopping());
                    }
                }
                Admission::Queued(_) => {
                    self.counters.logins_shed.inc();
                    return Err(busy());
                }
                Admission::Refused => {
                    self.counters.logins_refused.inc();
                    return Err(LoginRefusal::Overloaded(
                        "Too many failed logins from this address. Try again later.".to_owned(),
                    ));
                }
            }
        }
    }

    /// Returns true if this shard has verified the credentials recently.
    fn knows(&self, credentials: &Credentials) -> bool {
        let snapshot = self.query.snapshot();
        let stored = snapshot.auth.roles.get(&credentials.user).map(|role| &role.salted_hash);
        stored
            .filter(|hash| !hash.is_empty())
            .is_some_and(|hash| self.credentials.knows(credentials, hash, self.rt.now()))
    }

    /// Waits; ends with an error when the server stops.
    async fn pause(&self, wait: Duration) -> std::result::Result<(), LoginRefusal> {
        let drained = self.drained.notified();
        match first_of(self.rt.sleep(wait), drained).await {
            Some(()) if !self.is_stopping.get() => Ok(()),
            _ => Err(stopping()),
        }
    }

    async fn verify_in_turn(
        &self,
        desk: &Desk,
        credentials: &Credentials,
        is_known: bool,
    ) -> std::result::Result<bool, LoginRefusal> {
        let deadline = self.rt.now() + PATIENCE;
        let shed = || {
            self.counters.logins_shed.inc();
            busy()
        };
        let turns = if is_known { &desk.turns_of_known } else { &desk.turns };
        let turn = self.rt.timeout(deadline, turns.acquire(1));
        // A server that stops waits for no turn.
        let turn = first_of(turn, self.drained.notified()).await;
        let Some(Ok(_turn)) = turn else { return Err(shed()) };
        if self.is_stopping.get() {
            return Err(stopping());
        }
        if self.knows(credentials) {
            return Ok(true);
        }
        let (stored, cost_otherwise) = {
            let snapshot = self.query.snapshot();
            let roles = &snapshot.auth.roles;
            let stored = roles.get(&credentials.user).map(|role| role.salted_hash.clone());
            let hashes = roles.values().map(|role| role.salted_hash.as_str());
            (stored.filter(|hash| !hash.is_empty()), password::usual_cost(hashes))
        };
        let password = credentials.password.clone();
        let work = Verification { password, stored: stored.clone(), cost_otherwise };
        // The turn is held until the thread is free, however long the client waits.
        let hash = desk.passwords.verify(&self.rt, work, self.rt.now() + HASH_MAX);
        let hashed = first_of(hash, self.drained.notified()).await.ok_or_else(stopping)?;
        let is_right = hashed.map_err(|error| {
            tracing::debug!(%error, "a password was not verified");
            shed()
        })?;
        if let (true, Some(hash)) = (is_right, stored) {
            self.credentials.remember(credentials, &hash, self.rt.now());
        }
        Ok(is_right)
    }
}

/// Answers STARTUP. Where connections of a role are limited, the answer of a login by certificate waits for the count.
///
/// # Errors
/// The connection's certificate stands for no role that may log in.
pub(crate) fn startup(
    server: &Rc<Server>,
    sink: &FrameSink,
    ticket: &Ticket,
    out: &mut Vec<u8>,
) -> Result<Step<Vec<u8>>> {
    let session = &sink.session;
    match early(server, session)? {
        Early::Ask(class) => {
            let about = Answering::new(sink.stream, ticket);
            session.respond(out, &about, Opcode::Authenticate, |body| {
                response::put_authenticate(body, class)
            })?;
            session.stage.set(Stage::Authenticating);
        }
        Early::Anonymous => ready(sink, ticket, None, out)?,
        Early::LoggedIn(role) if server.settings.connections_per_role_max.is_none() => {
            ready(sink, ticket, Some(&role), out)?;
        }
        Early::LoggedIn(role) => return Ok(Step::Waits(counted(server, sink, ticket, role))),
    }
    Ok(Step::Done)
}

/// Answers STARTUP of a connection that is logged in, as a role where the server has logins.
fn ready(sink: &FrameSink, ticket: &Ticket, role: Option<&str>, out: &mut Vec<u8>) -> Result<()> {
    let session = &sink.session;
    session.respond(out, &Answering::new(sink.stream, ticket), Opcode::Ready, |_| Ok(()))?;
    if let Some(role) = role {
        session.client.log_in(role);
    }
    session.stage.set(Stage::Ready);
    Ok(())
}

/// Answers STARTUP once the connection is counted for its role; refuses a connection too many and ends it.
fn counted(
    server: &Rc<Server>,
    sink: &FrameSink,
    ticket: &Ticket,
    role: String,
) -> Waiting<Vec<u8>> {
    let (server, sink, ticket) = (server.clone(), sink.clone(), ticket.clone());
    Box::pin(async move {
        let mut out = server.query.buffer();
        let counted = server.count_for_role(&sink.session, &role).await;
        let answer = counted.and_then(|()| ready(&sink, &ticket, Some(&role), &mut out));
        if let Err(failure) = answer {
            let error = failure.message(server.settings.query.storage_address);
            tracing::warn!(peer = %sink.session.client.peer, role, error, "connection refused");
            server.query.counters.failed(failure.code());
            sink.session.refuse_startup();
            sink.failed(&mut out, &ticket, &failure);
        }
        out
    })
}

/// Decides about the login of a connection that sent STARTUP.
///
/// # Errors
/// The connection's certificate stands for no role that may log in.
fn early(server: &Rc<Server>, session: &Rc<Session>) -> Result<Early> {
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
    session: &Rc<Session>,
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
    server.count_for_role(session, &user).await?;
    Ok(user)
}
