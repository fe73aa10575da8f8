//! TLS between a socket and a protocol.
//!
//! Owns: the sessions below [`crate::Stream`], their handshakes. Never: keys, certificates and settings (`tls`). A
//! read may be dropped and restarted at any time. A write that is dropped in the middle ends the connection, as its
//! record would be cut.
//!
//! Invariants:
//! - INV-rt-5: bytes of a record leave in order and whole: while a write waits for the socket, nothing else is sent.
//! - INV-rt-6: a caller whose bytes are all reported as written leaves no ciphertext unsent. While
//!   some is unsent, one byte is held back from the count, so that the caller writes again.
//! - INV-rt-7: bytes of which the other side may have all are reported as written, though the socket failed in the
//!   same write; the next write has the error. A caller may take bytes that were not reported for undelivered.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stdx::{Instant, IoError, IoErrorKind, WallMicros};
use tls::rustls::pki_types::{ServerName, UnixTime};
use tls::rustls::{
    ClientConfig, ClientConnection, Connection, HandshakeKind, ServerConfig, ServerConnection,
};
use tls::{PeerCertificate, TimeProvider, offer};

use crate::handle::Rt;
use crate::net::{Conn, MovedConn};

/// First byte of every record with which a TLS connection begins.
const HANDSHAKE_RECORD: u8 = 0x16;
/// First byte of a record that refuses a handshake.
const ALERT_RECORD: u8 = 0x15;
/// Most ciphertext of one read.
const READ_BYTES_MAX: usize = 64 << 10;
/// Most bytes that are read to distinguish plain text from TLS.
const FIRST_BYTES_MAX: usize = 4096;
/// Most plaintext that is encrypted before the socket is polled again: four records.
const PIECE_BYTES: usize = 64 << 10;

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
    /// The connection is closed.
    Refused,
    /// The connection is served in the clear; the first byte decides.
    Accepted,
}

/// Result of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// Java's name, such as `TLSv1.3`.
    pub protocol: &'static str,
    /// Java's name, such as `TLS_AES_256_GCM_SHA384`.
    pub cipher_suite: &'static str,
    /// The certificate that the other side showed.
    pub peer: Option<PeerCertificate>,
    /// True if an earlier session was resumed.
    pub is_resumed: bool,
}

/// A TLS connection of this shard.
pub struct TlsStream {
    conn: Conn,
    session: RefCell<Session>,
    /// Ciphertext that was read and not yet processed; the buffer is reused.
    received: RefCell<Vec<u8>>,
    writing: Cell<Writing>,
    /// The first byte that the other side sent after this side began the handshake.
    answer: Cell<Option<u8>>,
}

/// A TLS connection on its way to another shard.
pub struct MovedTls {
    conn: MovedConn,
    session: Session,
    received: Vec<u8>,
}

struct Session {
    tls: Connection,
    /// Plaintext at the front of the next write that is encrypted already.
    ahead: usize,
    /// The error of the socket that the next write returns.
    failed: Option<IoError>,
    /// Scratch buffer in which records are assembled.
    gathered: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    Idle,
    /// A write waits for the socket in the middle of a record.
    Waiting,
    /// A waiting write was dropped in the middle of a record.
    Cut,
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
/// The connection ended, or the handshake failed or was not completed by the deadline.
pub(crate) async fn accept(
    rt: &Rt,
    conn: Conn,
    tls: &TlsServer,
    first: Vec<u8>,
    deadline: Instant,
) -> Result<TlsStream, IoError> {
    let session = ServerConnection::new(tls.config.clone())
        .map_err(|e| failed(&conn, IoErrorKind::Damaged, &e.to_string()))?;
    let stream = TlsStream::new(conn, Connection::Server(session), first);
    tls.clock.set(rt.wall());
    stream.shake_hands(rt, deadline).await?;
    Ok(stream)
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
    let stream = TlsStream::new(conn, Connection::Client(session), Vec::new());
    tls.clock.set(rt.wall());
    match stream.shake_hands(rt, deadline).await {
        Ok(()) => Ok(stream),
        Err(error) => Err(match stream.answer.get() {
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

impl TlsStream {
    fn new(conn: Conn, tls: Connection, received: Vec<u8>) -> TlsStream {
        let session = Session { tls, ahead: 0, failed: None, gathered: Vec::new() };
        TlsStream {
            conn,
            session: RefCell::new(session),
            received: RefCell::new(received),
            writing: Cell::new(Writing::Idle),
            answer: Cell::new(None),
        }
    }

    async fn shake_hands(&self, rt: &Rt, deadline: Instant) -> Result<(), IoError> {
        let done = rt.timeout(deadline, self.exchange(rt)).await;
        let done =
            done.unwrap_or_else(|_| Err(late(&self.conn))).and_then(|()| self.check_peer(rt));
        if done.is_err() {
            self.conn.shutdown();
        }
        done
    }

    /// Checks what rustls does not: it takes the certificate of a resumed session from the ticket without a look at its
    /// validity, and callers decide by fields that must be readable.
    fn check_peer(&self, rt: &Rt) -> Result<(), IoError> {
        let session = self.session.borrow();
        let Some(leaf) = session.tls.peer_certificates().and_then(|chain| chain.first()) else {
            return Ok(());
        };
        let Some(certificate) = PeerCertificate::parse(leaf) else {
            let detail = "the certificate of the other side cannot be read";
            return Err(failed(&self.conn, IoErrorKind::Damaged, detail));
        };
        let is_resumed = session.tls.handshake_kind() == Some(HandshakeKind::Resumed);
        if is_resumed && !certificate.is_valid_at(rt.wall().0.div_euclid(1_000_000)) {
            let detail = "the certificate of the resumed session is not valid now";
            return Err(failed(&self.conn, IoErrorKind::Damaged, detail));
        }
        Ok(())
    }

    /// Sends and reads until both sides have agreed. Each step may take a millisecond of CPU time:
    /// other tasks run in between.
    async fn exchange(&self, rt: &Rt) -> Result<(), IoError> {
        loop {
            let processed = self.process(&mut Room::take(&self.received).bytes, &mut Vec::new(), 0);
            // An alert reports the cause to the other side.
            self.send_all().await?;
            processed?;
            if !self.session.borrow().tls.is_handshaking() {
                return Ok(());
            }
            rt.yield_if_due().await;
            let mut room = Room::take(&self.received);
            if self.conn.read(&mut room.bytes, READ_BYTES_MAX).await? == 0 {
                return Err(failed(&self.conn, IoErrorKind::Disconnected, "the peer closed"));
            }
            if self.answer.get().is_none() {
                self.answer.set(room.bytes.first().copied());
            }
        }
    }

    /// See [`crate::Stream::read`].
    pub(crate) async fn read(&self, into: &mut Vec<u8>, max: usize) -> Result<usize, IoError> {
        if max == 0 {
            return Ok(0);
        }
        let mut room = Room::take(&self.received);
        loop {
            if let Some(read) = self.process(&mut room.bytes, into, max)? {
                return Ok(read);
            }
            if self.conn.read(&mut room.bytes, READ_BYTES_MAX).await? == 0 {
                return Ok(0);
            }
        }
    }

    /// Decrypts received bytes and appends at most `max` bytes of plain text. Returns `None` if
    /// more must be read first, 0 at the end.
    fn process(
        &self,
        received: &mut Vec<u8>,
        into: &mut Vec<u8>,
        max: usize,
    ) -> Result<Option<usize>, IoError> {
        let mut session = self.session.borrow_mut();
        let (mut used, mut taken, mut is_over) = (0, 0, false);
        let mut outcome = Ok(());
        loop {
            taken += take_plain(&mut session.tls, into, max - taken);
            let mut rest = received.get(used..).unwrap_or_default();
            if rest.is_empty() || is_over || (max > 0 && taken == max) {
                break;
            }
            let before = rest.len();
            let step = session.tls.read_tls(&mut rest).map_err(|e| e.to_string());
            used += before - rest.len();
            let step = step.and_then(|read| match session.tls.process_new_packets() {
                Ok(state) => Ok(read == 0 || state.peer_has_closed()),
                Err(error) => Err(error.to_string()),
            });
            match step {
                Ok(ended) => is_over = ended,
                Err(detail) => {
                    outcome = Err(failed(&self.conn, IoErrorKind::Damaged, &detail));
                    break;
                }
            }
            // After the handshake its connection continues with application data.
            if max == 0 && !session.tls.is_handshaking() {
                break;
            }
        }
        received.drain(..used);
        if max > 0 || outcome.is_err() {
            // Ciphertext that cannot be sent now is sent with the next write.
            let sent = self.flush(&mut session);
            outcome?;
            sent?;
        }
        Ok((taken > 0 || is_over).then_some(taken))
    }

    /// See [`crate::Stream::write_all`].
    pub(crate) async fn write_all(&self, bytes: &[u8]) -> Result<(), IoError> {
        let mut rest = bytes;
        loop {
            let taken = self.try_write(rest)?;
            rest = rest.get(taken..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
            self.send_all().await?;
        }
    }

    /// See [`crate::Stream::try_write`].
    pub(crate) fn try_write(&self, bytes: &[u8]) -> Result<usize, IoError> {
        let session = &mut *self.session.borrow_mut();
        if let Some(error) = session.failed.take() {
            return Err(error);
        }
        if !self.flush(session)? {
            return Ok(0);
        }
        let mut done = session.ahead.min(bytes.len());
        session.ahead -= done;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let piece = rest.get(..PIECE_BYTES).unwrap_or(rest);
            let taken = session.tls.writer().write(piece);
            done += taken.map_err(|e| self.error("write", &e.to_string()))?;
            let flushed = self.flush(session);
            if flushed != Ok(true) {
                // INV-rt-6, INV-rt-7
                session.ahead = 1;
                session.failed = flushed.err();
                return Ok(done - 1);
            }
        }
        Ok(done)
    }

    /// See [`crate::Stream::held_back`].
    pub(crate) fn held_back(&self) -> usize {
        self.session.borrow().ahead
    }

    /// Sends as much ciphertext as the socket accepts; returns true if none is left.
    fn flush(&self, session: &mut Session) -> Result<bool, IoError> {
        match self.writing.get() {
            Writing::Idle => {}
            // INV-rt-5
            Writing::Waiting => return Ok(false),
            Writing::Cut => return Err(self.error("write", "an earlier write was cut off")),
        }
        let Session { tls, gathered, .. } = session;
        while tls.wants_write() {
            let mut socket = Socket { conn: &self.conn, gathered, error: None };
            match tls.write_tls(&mut socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => {
                    let error = error.to_string();
                    return Err(socket.error.unwrap_or_else(|| self.error("write", &error)));
                }
            }
        }
        Ok(true)
    }

    /// Sends all ciphertext; waits while the socket is full.
    async fn send_all(&self) -> Result<(), IoError> {
        let mut pending = Vec::new();
        {
            let mut session = self.session.borrow_mut();
            if self.flush(&mut session)? {
                return Ok(());
            }
            if self.writing.get() != Writing::Idle {
                return Err(self.error("write", "another write waits"));
            }
            while session.tls.wants_write() {
                let moved = session.tls.write_tls(&mut pending);
                moved.map_err(|e| self.error("write", &e.to_string()))?;
            }
        }
        let waiting = WaitingWrite::begin(&self.writing);
        self.conn.write_all(&pending).await?;
        waiting.end();
        Ok(())
    }

    fn error(&self, operation: &'static str, detail: &str) -> IoError {
        let path = self.conn.peer_addr().to_string();
        let kind = IoErrorKind::Disconnected;
        IoError { kind, operation, path, detail: detail.to_owned() }
    }

    /// Like [`crate::Stream::shutdown`]; sends `close_notify` first, if the socket accepts it.
    pub(crate) fn shutdown(&self) {
        if let Ok(mut session) = self.session.try_borrow_mut() {
            session.tls.send_close_notify();
            // The connection ends in any case.
            let _ = self.flush(&mut session);
        }
        self.conn.shutdown();
    }

    /// Returns the socket.
    pub(crate) fn conn(&self) -> &Conn {
        &self.conn
    }

    /// Returns the result of the handshake.
    pub(crate) fn info(&self) -> TlsInfo {
        let session = self.session.borrow();
        let tls = &session.tls;
        let suite = tls.negotiated_cipher_suite();
        let leaf = tls.peer_certificates().and_then(|chain| chain.first());
        TlsInfo {
            protocol: tls.protocol_version().and_then(offer::protocol_name).unwrap_or_default(),
            cipher_suite: suite.and_then(|s| offer::suite_name(s.suite())).unwrap_or_default(),
            peer: leaf.and_then(|leaf| PeerCertificate::parse(leaf)),
            is_resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    /// Detaches the connection from this shard.
    pub(crate) fn into_moved(self) -> MovedTls {
        MovedTls {
            conn: self.conn.into_moved(),
            session: self.session.into_inner(),
            received: self.received.into_inner(),
        }
    }

    /// Attaches a moved connection to this shard.
    pub(crate) fn from_moved(rt: &Rt, moved: MovedTls) -> Result<TlsStream, IoError> {
        Ok(TlsStream {
            conn: Conn::from_moved(rt, moved.conn)?,
            session: RefCell::new(moved.session),
            received: RefCell::new(moved.received),
            writing: Cell::new(Writing::Idle),
            answer: Cell::new(None),
        })
    }
}

/// Appends at most `max` decrypted bytes.
fn take_plain(tls: &mut Connection, into: &mut Vec<u8>, max: usize) -> usize {
    let mut taken = 0;
    while taken < max {
        let mut reader = tls.reader();
        // No bytes now, or the end: `process` distinguishes them.
        let Ok(chunk) = reader.fill_buf() else { break };
        let Some(part) = chunk.get(..chunk.len().min(max - taken)).filter(|p| !p.is_empty()) else {
            break;
        };
        into.extend_from_slice(part);
        let length = part.len();
        taken += length;
        reader.consume(length);
    }
    taken
}

/// Buffer for ciphertext while a read uses it; returned when the read ends or is dropped.
struct Room<'a> {
    home: &'a RefCell<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Room<'_> {
    fn take(home: &RefCell<Vec<u8>>) -> Room<'_> {
        Room { home, bytes: home.take() }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.home.replace(std::mem::take(&mut self.bytes));
    }
}

/// A waiting write; if it is dropped before its end, it has cut a record.
struct WaitingWrite<'a>(&'a Cell<Writing>);

impl WaitingWrite<'_> {
    fn begin(writing: &Cell<Writing>) -> WaitingWrite<'_> {
        writing.set(Writing::Waiting);
        WaitingWrite(writing)
    }

    fn end(self) {
        self.0.set(Writing::Idle);
    }
}

impl Drop for WaitingWrite<'_> {
    fn drop(&mut self) {
        if self.0.get() == Writing::Waiting {
            self.0.set(Writing::Cut);
        }
    }
}

/// The socket as the session's writer: several records with one call.
struct Socket<'a> {
    conn: &'a Conn,
    gathered: &'a mut Vec<u8>,
    error: Option<IoError>,
}

impl Socket<'_> {
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.conn.try_write(bytes) {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(written) => Ok(written),
            Err(error) => {
                self.error = Some(error);
                Err(io::ErrorKind::Other.into())
            }
        }
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }

    fn write_vectored(&mut self, records: &[io::IoSlice<'_>]) -> io::Result<usize> {
        if let [record] = records {
            return self.send(record);
        }
        let mut gathered = std::mem::take(self.gathered);
        gathered.clear();
        for record in records {
            gathered.extend_from_slice(record);
        }
        let sent = self.send(&gathered);
        *self.gathered = gathered;
        sent
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
