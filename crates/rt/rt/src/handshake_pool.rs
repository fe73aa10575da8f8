//! Threads that compute the steps of TLS handshakes: a signature would stall a shard.
//!
//! Owns: the threads, their bounded queue, one step of a handshake. Never: sockets and deadlines of handshakes
//! ([`crate::tls_handshake`]), keys (`tls`).
//!
//! Every step of an accepted connection's handshake is computed here, whatever the key: only the processed message tells
//! which step signs. Measured on one machine, the first step takes 490 µs with a key of RSA 2048, 76 µs
//! with one of P-256 and 68 µs in a resumed session; the second takes 12 µs, or 55 µs with a client's certificate. The
//! threads have a low priority, so that a shard that has work goes first on its processor.
//!
//! INV-rt-9: a full queue refuses a handshake at once; those that were accepted are performed in the order of arrival.

use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

use stdx::Instant;
use tls::rustls::Connection;

use crate::handle::Rt;
use crate::service::{CallError, Client, Priority, Service, ServiceFailure, ServiceSpec};

/// Longest wait for the threads at the end: a step cannot be interrupted.
const ABORT_MAX: Duration = Duration::from_secs(5);

/// The threads, owned by the shard that started them. Dropped, they end after the step that each computes; handshakes
/// that wait fail.
pub struct HandshakePool {
    service: Service<Step, Step>,
}

impl HandshakePool {
    /// Starts the threads: one for four shards, at least one. `waiting_max` steps wait for each at most.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn start(rt: &Rt, name: &'static str, waiting_max: usize) -> io::Result<HandshakePool> {
        let threads = (rt.shard_count() / 4).clamp(1, 16);
        let spec = ServiceSpec {
            name,
            requests_max: waiting_max.saturating_mul(usize::from(threads)),
            drain_max: Duration::ZERO,
            abort_max: ABORT_MAX,
            priority: Priority::Low,
        };
        Ok(HandshakePool { service: Service::start_workers(rt, spec, threads, Step::performed)? })
    }

    /// Returns a caller for any shard.
    pub fn handshakes(&self) -> Handshakes {
        Handshakes { pool: Some(self.service.client()) }
    }

    /// Waits until the pool ends; `None` when it was dropped.
    pub fn failure(&self) -> impl Future<Output = Option<ServiceFailure>> + use<> {
        self.service.failure()
    }
}

/// Where the steps of handshakes are computed: by a pool, or in place on the shard of the connection (the default).
#[derive(Clone, Default)]
pub struct Handshakes {
    pool: Option<Client<Step, Step>>,
}

impl Handshakes {
    /// Performs a step.
    ///
    /// # Errors
    /// Too many steps wait, or none was computed by the deadline. The session is lost.
    pub(crate) async fn perform(
        &self,
        rt: &Rt,
        step: Step,
        deadline: Instant,
    ) -> Result<Step, CallError> {
        match &self.pool {
            None => Ok(step.performed()),
            Some(pool) => pool.call(rt, step, deadline).await,
        }
    }
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.pool.is_some() { "Pool" } else { "InPlace" })
    }
}

/// A session in the middle of its handshake, with the bytes that it has to process next.
pub(crate) struct Step {
    session: Box<Connection>,
    received: Vec<u8>,
    outcome: Result<(), String>,
}

impl Step {
    pub(crate) fn new(session: Connection, received: Vec<u8>) -> Step {
        Step { session: Box::new(session), received, outcome: Ok(()) }
    }

    /// Processes the bytes as far as the handshake goes: what follows it is application data.
    fn performed(mut self) -> Step {
        let mut used = 0;
        while let Some(mut rest) = self.received.get(used..).filter(|rest| !rest.is_empty()) {
            let before = rest.len();
            let read = self.session.read_tls(&mut rest).map_err(|error| error.to_string());
            used += before - rest.len();
            let processed = read.and_then(|read| match self.session.process_new_packets() {
                Ok(state) => Ok(read == 0 || state.peer_has_closed()),
                Err(error) => Err(error.to_string()),
            });
            let is_over = processed.unwrap_or_else(|detail| {
                self.outcome = Err(detail);
                true
            });
            if is_over || !self.session.is_handshaking() {
                break;
            }
        }
        self.received.drain(..used);
        self
    }

    pub(crate) fn has_received(&self) -> bool {
        !self.received.is_empty()
    }

    pub(crate) fn received_mut(&mut self) -> &mut Vec<u8> {
        &mut self.received
    }

    pub(crate) fn session(&self) -> &Connection {
        &self.session
    }

    pub(crate) fn session_mut(&mut self) -> &mut Connection {
        &mut self.session
    }

    /// Returns how the last step went.
    pub(crate) fn outcome(&self) -> Result<(), &str> {
        self.outcome.as_ref().copied().map_err(String::as_str)
    }

    /// Returns the session and the bytes that follow its handshake.
    pub(crate) fn into_parts(self) -> (Connection, Vec<u8>) {
        (*self.session, self.received)
    }
}
