//! Handshakes of TLS connections, and the first bytes that tell them from plain text.
//!
//! Owns: the messages of a handshake, its deadline, checks of the other side's certificate that rustls leaves out.
//! Never: keys and settings (`tls`), where the steps are computed ([`crate::handshake_pool`]), application data
//! ([`crate::tls_stream`]).
//!
//! INV-rt-8: while a step of a handshake is computed elsewhere, nothing of its connection is read or written: its bytes
//! are processed in the order of their arrival, and its answers leave in the order of the steps.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stdx::{Instant, IoError, IoErrorKind, WallMicros};
use tls::rustls::pki_types::{ServerName, UnixTime};
use tls::rustls::{
    ClientConfig, ClientConnection, Connection, HandshakeKind, ServerConfig, ServerConnection,
};
use tls::{PeerCertificate, TimeProvider};

use crate::handle::Rt;
use crate::handshake_pool::{Handshakes, Step};
use crate::net::Conn;
use crate::service::CallError;
use crate::tls_stream::TlsStream;

/// First byte of every record with which a TLS connection begins.
const HANDSHAKE_RECORD: u8 = 0x16;
/// First byte of a record that refuses a handshake.
const ALERT_RECORD: u8 = 0x15;
/// Most bytes of one read of a handshake.
const READ_BYTES_MAX: usize = 64 << 10;
/// Most bytes that are read to distinguish plain text from TLS.
const FIRST_BYTES_MAX: usize = 4096;

/// Clock for the validity of certificates: the time of the latest handshake of the node.
#[derive(Debug, Default)]
pub struct TlsClock(AtomicU64);

impl TlsClock {
    /// Creates a clock that stands at 1970 until the first handshake.
    pub fn new() -> Arc<TlsClock> {
        Arc::default()
    }

    fn set(&self, wall: WallMicros) {
        let seconds = u64::try_from(wall.0 / 1_000_000).unwrap_or(0);
        self.0.store(seconds, Ordering::Relaxed);
    }
}

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
    }
}

/// Configuration of connections that are accepted with TLS; clones share it.
#[derive(Clone, Debug)]
pub struct TlsServer {
    /// Keys, protocols, trusted certificates; built with `clock`.
    pub config: Arc<ServerConfig>,
    /// The clock of the configuration.
    pub clock: Arc<TlsClock>,
    /// Where the steps of handshakes are computed.
    pub handshakes: Handshakes,
}

/// Configuration of connections that are made with TLS; clones share it.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// Keys, protocols, trusted certificates; built with `clock`.
    pub config: Arc<ClientConfig>,
    /// The clock of the configuration.
    pub clock: Arc<TlsClock>,
}

/// Why no TLS connection was made to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotConnected {
    /// The server answered something else: it does not speak TLS.
    NotSpoken(IoError),
    /// The connection ended before the server answered: it was cut, or the server is overloaded or stops. That
    /// says nothing about whether the server speaks TLS.
    Cut(IoError),
    /// The connection broke, or one side refused the other.
    Failed(IoError),
}

/// Policy for connections that begin without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainText {
    /// The connection is reset.
    Refused,
    /// The connection is served in the clear; the first byte decides.
    Accepted,
}

/// Reads the first bytes of a connection where TLS is enabled: those of a handshake, or in the
/// clear.
///
/// # Errors
/// The connection ended, began in the clear where that is not allowed, or did not begin within
/// `patience`.
pub(crate) async fn first_bytes(
    rt: &Rt,
    conn: &Conn,
    plain: PlainText,
    patience: Duration,
) -> Result<Vec<u8>, IoError> {
    let mut first = Vec::new();
    let read = match plain {
        // A silent client in the clear has no deadline either.
        PlainText::Accepted => conn.read(&mut first, FIRST_BYTES_MAX).await?,
        PlainText::Refused => {
            let read = conn.read(&mut first, FIRST_BYTES_MAX);
            rt.timeout(rt.now() + patience, read).await.map_err(|_| late(conn))??
        }
    };
    if read == 0 {
        return Err(failed(conn, IoErrorKind::Disconnected, "closed before its handshake"));
    }
    if plain == PlainText::Refused && !is_handshake(&first) {
        // Like Cassandra. After a plain close several drivers wait for an answer until their timeout.
        conn.reset();
        return Err(failed(conn, IoErrorKind::Damaged, "not a TLS handshake"));
    }
    Ok(first)
}

/// Returns true if a connection that begins with these bytes uses TLS.
pub fn is_handshake(first: &[u8]) -> bool {
    first.first() == Some(&HANDSHAKE_RECORD)
}

/// Accepts a connection that began with these bytes.
///
/// # Errors
/// The connection ended, too many handshakes wait, or the handshake failed or was not completed by the deadline.
pub(crate) async fn accept(
    rt: &Rt,
    conn: Conn,
    tls: &TlsServer,
    first: Vec<u8>,
    deadline: Instant,
) -> Result<TlsStream, IoError> {
    let session = ServerConnection::new(tls.config.clone())
        .map_err(|e| failed(&conn, IoErrorKind::Damaged, &e.to_string()))?;
    tls.clock.set(rt.wall());
    let handshake = Handshake { rt, conn: &conn, handshakes: &tls.handshakes, deadline };
    let begun = Step::new(Connection::Server(session), first);
    let done = handshake.run(begun, &Cell::new(None)).await?;
    let (session, received) = done.into_parts();
    Ok(TlsStream::new(conn, session, received))
}

/// Begins TLS on a connection to a server of this name.
///
/// # Errors
/// See [`NotConnected`].
pub(crate) async fn connect(
    rt: &Rt,
    conn: Conn,
    tls: &TlsClient,
    name: ServerName<'static>,
    deadline: Instant,
) -> Result<TlsStream, NotConnected> {
    let session = ClientConnection::new(tls.config.clone(), name)
        .map_err(|e| NotConnected::Failed(failed(&conn, IoErrorKind::Damaged, &e.to_string())))?;
    tls.clock.set(rt.wall());
    // A node makes few connections.
    let in_place = Handshakes::default();
    let handshake = Handshake { rt, conn: &conn, handshakes: &in_place, deadline };
    let (begun, answer) = (Step::new(Connection::Client(session), Vec::new()), Cell::new(None));
    match handshake.run(begun, &answer).await {
        Ok(done) => {
            let (session, received) = done.into_parts();
            Ok(TlsStream::new(conn, session, received))
        }
        Err(error) => Err(match answer.get() {
            Some(HANDSHAKE_RECORD | ALERT_RECORD) => NotConnected::Failed(error),
            Some(_) => NotConnected::NotSpoken(error),
            None if error.kind == IoErrorKind::Disconnected => NotConnected::Cut(error),
            None => NotConnected::Failed(error),
        }),
    }
}

fn failed(conn: &Conn, kind: IoErrorKind, detail: &str) -> IoError {
    let path = conn.peer_addr().to_string();
    IoError { kind, operation: "TLS handshake", path, detail: detail.to_owned() }
}

fn late(conn: &Conn) -> IoError {
    failed(conn, IoErrorKind::Disconnected, "not completed in time")
}

/// A handshake that is under way.
struct Handshake<'a> {
    rt: &'a Rt,
    conn: &'a Conn,
    handshakes: &'a Handshakes,
    deadline: Instant,
}

impl Handshake<'_> {
    /// Performs the handshake; a connection whose handshake failed is closed. `answer` becomes the first byte that the
    /// other side sent after this side began.
    async fn run(&self, begun: Step, answer: &Cell<Option<u8>>) -> Result<Step, IoError> {
        let done = self.rt.timeout(self.deadline, self.exchange(begun, answer)).await;
        let done = done.unwrap_or_else(|_| Err(late(self.conn)));
        let done = done.and_then(|done| self.check_peer(done.session()).map(|()| done));
        if done.is_err() {
            self.conn.shutdown();
        }
        done
    }

    /// Sends and reads until both sides have agreed.
    async fn exchange(&self, begun: Step, answer: &Cell<Option<u8>>) -> Result<Step, IoError> {
        let mut step = begun;
        loop {
            if step.has_received() {
                let stepped = self.handshakes.perform(self.rt, step, self.deadline).await;
                step = stepped.map_err(|error| self.not_performed(error))?;
            }
            // An alert reports the cause to the other side.
            let sent = self.send_all(step.session_mut()).await;
            step.outcome().map_err(|detail| failed(self.conn, IoErrorKind::Damaged, detail))?;
            sent?;
            if !step.session().is_handshaking() {
                return Ok(step);
            }
            // In place a step may take a millisecond of CPU time: other tasks run in between.
            self.rt.yield_if_due().await;
            if self.conn.read(step.received_mut(), READ_BYTES_MAX).await? == 0 {
                return Err(failed(self.conn, IoErrorKind::Disconnected, "the peer closed"));
            }
            if answer.get().is_none() {
                answer.set(step.received_mut().first().copied());
            }
        }
    }

    async fn send_all(&self, session: &mut Connection) -> Result<(), IoError> {
        let mut records = Vec::new();
        while session.wants_write() {
            let moved = session.write_tls(&mut records);
            moved.map_err(|e| failed(self.conn, IoErrorKind::Disconnected, &e.to_string()))?;
        }
        match records.is_empty() {
            true => Ok(()),
            false => self.conn.write_all(&records).await,
        }
    }

    fn not_performed(&self, error: CallError) -> IoError {
        match error {
            CallError::Full { .. } => {
                stdx::reached!("rt-handshake-queue-full");
                failed(self.conn, IoErrorKind::Refused, "too many handshakes are under way")
            }
            CallError::Late { .. } => late(self.conn),
            CallError::Closed { .. } => {
                failed(self.conn, IoErrorKind::Stopping, "no thread computes handshakes any more")
            }
        }
    }

    /// Checks what rustls does not: it takes the certificate of a resumed session from the ticket without a look at its
    /// validity, and callers decide by fields that must be readable.
    fn check_peer(&self, session: &Connection) -> Result<(), IoError> {
        let Some(leaf) = session.peer_certificates().and_then(|chain| chain.first()) else {
            return Ok(());
        };
        let Some(certificate) = PeerCertificate::parse(leaf) else {
            let detail = "the certificate of the other side cannot be read";
            return Err(failed(self.conn, IoErrorKind::Damaged, detail));
        };
        let is_resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
        if is_resumed && !certificate.is_valid_at(self.rt.wall().0.div_euclid(1_000_000)) {
            let detail = "the certificate of the resumed session is not valid now";
            return Err(failed(self.conn, IoErrorKind::Damaged, detail));
        }
        Ok(())
    }
}
