//! Connections as protocols use them.
//!
//! Owns: the only layer between a socket and a protocol. `Conn` is the socket; a transformation of
//! its bytes on their way (TLS) is a variant here. So neither the native protocol nor the protocol
//! between nodes nor a client knows of it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use stdx::{Instant, IoError};
use tls::rustls::pki_types::ServerName;

use crate::handle::Rt;
use crate::net::{Conn, MovedConn};
use crate::tls_handshake::{self, NotConnected, PlainText, TlsClient, TlsServer, is_handshake};
use crate::tls_stream::{MovedTls, TlsInfo, TlsStream};

/// A connection of this shard. Clones share it; it is closed with the last one. One task may read
/// while another writes.
#[derive(Clone)]
pub struct Stream {
    inner: AnyStream,
}

#[derive(Clone)]
enum AnyStream {
    Plain(Conn),
    Tls(Rc<TlsStream>),
}

/// A stream on its way to another shard of the same node. Dropped unused, it is closed.
pub struct MovedStream {
    inner: AnyMovedStream,
}

enum AnyMovedStream {
    Plain(MovedConn),
    Tls(Box<MovedTls>),
    /// Other clones of the stream exist: it cannot be moved.
    Shared(SocketAddr),
}

/// A connection that was accepted where TLS is enabled.
pub struct Accepted {
    /// The connection, after its handshake or in the clear.
    pub stream: Stream,
    /// Bytes already read from a connection in the clear; else empty.
    pub received: Vec<u8>,
}

impl Stream {
    /// Creates a stream in the clear.
    pub fn plain(conn: Conn) -> Stream {
        Stream { inner: AnyStream::Plain(conn) }
    }

    /// Reads the first bytes of an accepted connection where TLS is enabled, for
    /// [`Stream::accept_tls`].
    ///
    /// # Errors
    /// The connection ended, began in the clear where that is not allowed, or did not begin within
    /// `patience`.
    pub async fn first_bytes(
        &self,
        rt: &Rt,
        plain: PlainText,
        patience: Duration,
    ) -> Result<Vec<u8>, IoError> {
        tls_handshake::first_bytes(rt, self.conn(), plain, patience).await
    }

    /// Performs the handshake with a client that began with these bytes, unless they are in the
    /// clear.
    ///
    /// # Errors
    /// The connection ended, or the handshake failed or was not completed by the deadline. It is closed.
    pub async fn accept_tls(
        self,
        rt: &Rt,
        tls: &TlsServer,
        first: Vec<u8>,
        deadline: Instant,
    ) -> Result<Accepted, IoError> {
        match self.inner {
            AnyStream::Plain(conn) if is_handshake(&first) => {
                let stream = tls_handshake::accept(rt, conn, tls, first, deadline).await?;
                let stream = Stream { inner: AnyStream::Tls(Rc::new(stream)) };
                Ok(Accepted { stream, received: Vec::new() })
            }
            inner => Ok(Accepted { stream: Stream { inner }, received: first }),
        }
    }

    /// Begins TLS on a connection to a server of this name.
    ///
    /// # Errors
    /// The connection ended, or the handshake failed or was not completed by the deadline. It is closed.
    /// Tells apart a server that does not speak TLS.
    pub async fn connect_tls(
        rt: &Rt,
        conn: Conn,
        tls: &TlsClient,
        name: ServerName<'static>,
        deadline: Instant,
    ) -> Result<Stream, NotConnected> {
        let stream = tls_handshake::connect(rt, conn, tls, name, deadline).await?;
        Ok(Stream { inner: AnyStream::Tls(Rc::new(stream)) })
    }

    /// Returns the result of the handshake; `None` in the clear.
    pub fn tls(&self) -> Option<TlsInfo> {
        match &self.inner {
            AnyStream::Plain(_) => None,
            AnyStream::Tls(stream) => Some(stream.info()),
        }
    }

    /// Appends at most `max` bytes to `into` and returns their number; `Ok(0)` is the end of the
    /// stream (or `max` was 0).
    ///
    /// # Errors
    /// The connection broke.
    pub async fn read(&self, into: &mut Vec<u8>, max: usize) -> Result<usize, IoError> {
        match &self.inner {
            AnyStream::Plain(conn) => conn.read(into, max).await,
            AnyStream::Tls(stream) => stream.read(into, max).await,
        }
    }

    /// Writes everything; waits only while the socket is full.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn write_all(&self, bytes: &[u8]) -> Result<(), IoError> {
        match &self.inner {
            AnyStream::Plain(conn) => conn.write_all(bytes).await,
            AnyStream::Tls(stream) => stream.write_all(bytes).await,
        }
    }

    /// Writes what fits now and returns how much; 0 when the socket is full.
    ///
    /// # Errors
    /// The connection broke.
    pub fn try_write(&self, bytes: &[u8]) -> Result<usize, IoError> {
        match &self.inner {
            AnyStream::Plain(conn) => conn.try_write(bytes),
            AnyStream::Tls(stream) => stream.try_write(bytes),
        }
    }

    /// Bytes at the front of the next write that [`Stream::try_write`] did not report although they
    /// may have left: the caller must write these bytes next. Always 0 in the clear.
    pub fn held_back(&self) -> usize {
        match &self.inner {
            AnyStream::Plain(_) => 0,
            AnyStream::Tls(stream) => stream.held_back(),
        }
    }

    /// Ends both directions; earlier writes are still sent.
    pub fn shutdown(&self) {
        match &self.inner {
            AnyStream::Plain(conn) => conn.shutdown(),
            AnyStream::Tls(stream) => stream.shutdown(),
        }
    }

    /// Ends the connection by a reset; see [`Conn::reset`].
    pub fn reset(&self) {
        self.conn().reset();
    }

    /// Lets the machine check now and then whether a silent peer still exists; see
    /// [`Conn::set_keepalive`].
    pub fn set_keepalive(&self) {
        self.conn().set_keepalive();
    }

    /// Sends the acknowledgement of received bytes now; see [`Conn::acknowledge`].
    pub fn acknowledge(&self) {
        self.conn().acknowledge();
    }

    /// Returns the address of the other side.
    pub fn peer_addr(&self) -> SocketAddr {
        self.conn().peer_addr()
    }

    /// Returns the address of this side.
    pub fn local_addr(&self) -> SocketAddr {
        self.conn().local_addr()
    }

    /// Detaches the stream from this shard. Only the last clone should be moved.
    pub fn into_moved(self) -> MovedStream {
        let inner = match self.inner {
            AnyStream::Plain(conn) => AnyMovedStream::Plain(conn.into_moved()),
            AnyStream::Tls(stream) => match Rc::try_unwrap(stream) {
                Ok(stream) => AnyMovedStream::Tls(Box::new(stream.into_moved())),
                Err(shared) => AnyMovedStream::Shared(shared.conn().peer_addr()),
            },
        };
        MovedStream { inner }
    }

    /// Attaches a moved stream to this shard.
    ///
    /// # Errors
    /// Like [`Conn::from_moved`]; or another clone of a TLS stream still exists.
    pub fn from_moved(rt: &Rt, moved: MovedStream) -> Result<Stream, IoError> {
        let inner = match moved.inner {
            AnyMovedStream::Plain(moved) => AnyStream::Plain(Conn::from_moved(rt, moved)?),
            AnyMovedStream::Tls(moved) => {
                AnyStream::Tls(Rc::new(TlsStream::from_moved(rt, *moved)?))
            }
            AnyMovedStream::Shared(peer) => {
                return Err(IoError {
                    kind: stdx::IoErrorKind::Device,
                    operation: "move",
                    path: peer.to_string(),
                    detail: "the TLS session is in use on its shard".to_owned(),
                });
            }
        };
        Ok(Stream { inner })
    }

    /// Returns the socket, for operations on it that do not concern its bytes.
    fn conn(&self) -> &Conn {
        match &self.inner {
            AnyStream::Plain(conn) => conn,
            AnyStream::Tls(stream) => stream.conn(),
        }
    }
}
