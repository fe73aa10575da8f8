//! Connections as protocols use them.
//!
//! Owns: the one place between a socket and a protocol. `Conn` is the socket; what is done to its
//! bytes on their way (TLS) is a variant here, so that neither the native protocol nor the protocol
//! between nodes nor a client knows of it.

use std::net::SocketAddr;

use stdx::IoError;

use crate::handle::Rt;
use crate::net::{Conn, MovedConn};

/// A connection of this shard. Clones share it; it is closed with the last one. One task may read
/// while another writes.
#[derive(Clone)]
pub struct Stream {
    inner: AnyStream,
}

#[derive(Clone)]
enum AnyStream {
    Plain(Conn),
}

/// A stream on its way to another shard of the same node. Dropped unused, it is closed.
pub struct MovedStream {
    inner: AnyMovedStream,
}

enum AnyMovedStream {
    Plain(MovedConn),
}

impl Stream {
    /// In the clear.
    pub fn plain(conn: Conn) -> Stream {
        Stream { inner: AnyStream::Plain(conn) }
    }

    /// Appends at most `max` bytes to `into` and returns their number; `Ok(0)` is the end of the
    /// stream (or `max` was 0).
    ///
    /// # Errors
    /// The connection broke.
    pub async fn read(&self, into: &mut Vec<u8>, max: usize) -> Result<usize, IoError> {
        match &self.inner {
            AnyStream::Plain(conn) => conn.read(into, max).await,
        }
    }

    /// Writes everything; waits only while the socket is full.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn write_all(&self, bytes: &[u8]) -> Result<(), IoError> {
        match &self.inner {
            AnyStream::Plain(conn) => conn.write_all(bytes).await,
        }
    }

    /// Writes what fits now and returns how much; 0 when the socket is full.
    ///
    /// # Errors
    /// The connection broke.
    pub fn try_write(&self, bytes: &[u8]) -> Result<usize, IoError> {
        match &self.inner {
            AnyStream::Plain(conn) => conn.try_write(bytes),
        }
    }

    /// Ends both directions; what was written before is still sent.
    pub fn shutdown(&self) {
        self.conn().shutdown();
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

    /// The other side.
    pub fn peer_addr(&self) -> SocketAddr {
        self.conn().peer_addr()
    }

    /// This side.
    pub fn local_addr(&self) -> SocketAddr {
        self.conn().local_addr()
    }

    /// Takes the stream off this shard. Only the last clone should be moved.
    pub fn into_moved(self) -> MovedStream {
        let inner = match self.inner {
            AnyStream::Plain(conn) => AnyMovedStream::Plain(conn.into_moved()),
        };
        MovedStream { inner }
    }

    /// Puts a moved stream on this shard.
    ///
    /// # Errors
    /// As [`Conn::from_moved`].
    pub fn from_moved(rt: &Rt, moved: MovedStream) -> Result<Stream, IoError> {
        let inner = match moved.inner {
            AnyMovedStream::Plain(moved) => AnyStream::Plain(Conn::from_moved(rt, moved)?),
        };
        Ok(Stream { inner })
    }

    /// The socket below: for what concerns the socket and not its bytes.
    fn conn(&self) -> &Conn {
        match &self.inner {
            AnyStream::Plain(conn) => conn,
        }
    }
}
