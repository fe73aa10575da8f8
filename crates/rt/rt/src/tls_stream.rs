//! TLS between a socket and a protocol.
//!
//! Owns: the sessions below [`crate::Stream`] after their handshakes. Never: handshakes ([`crate::tls_handshake`]),
//! keys, certificates and settings (`tls`). A read may be dropped and restarted at any time. A write that is dropped in
//! the middle ends the connection, as its record would be cut.
//!
//! Invariants:
//! - INV-rt-5: bytes of a record leave in order and whole: while a write waits for the socket, nothing else is sent.
//! - INV-rt-6: a caller whose bytes are all reported as written leaves no ciphertext unsent. While
//!   some is unsent, one byte is held back from the count, so that the caller writes again.
//! - INV-rt-7: bytes of which the other side may have all are reported as written, though the socket failed in the
//!   same write; the next write has the error. A caller may take bytes that were not reported for undelivered.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, Write};

use stdx::{IoError, IoErrorKind};
use tls::rustls::{Connection, HandshakeKind};
use tls::{PeerCertificate, offer};

use crate::handle::Rt;
use crate::net::{Conn, MovedConn};

/// Most ciphertext of one read.
const READ_BYTES_MAX: usize = 64 << 10;
/// Most plaintext that is encrypted before the socket is polled again: four records.
const PIECE_BYTES: usize = 64 << 10;

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

impl TlsStream {
    /// Creates the stream of a completed handshake, after which these bytes were received.
    pub(crate) fn new(conn: Conn, tls: Connection, received: Vec<u8>) -> TlsStream {
        let session = Session { tls, ahead: 0, failed: None, gathered: Vec::new() };
        TlsStream {
            conn,
            session: RefCell::new(session),
            received: RefCell::new(received),
            writing: Cell::new(Writing::Idle),
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
            if rest.is_empty() || is_over || taken == max {
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
                    outcome = Err(self.damaged(detail));
                    break;
                }
            }
        }
        received.drain(..used);
        // Ciphertext that cannot be sent now is sent with the next write.
        let sent = self.flush(&mut session);
        outcome?;
        sent?;
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

    fn damaged(&self, detail: String) -> IoError {
        let (kind, path) = (IoErrorKind::Damaged, self.conn.peer_addr().to_string());
        IoError { kind, operation: "TLS read", path, detail }
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
