//! TCP on the shard's reactor. Every connection has `TCP_NODELAY` set.

use crate::error::io_error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use stdx::IoError;
use tokio::net::{TcpListener, TcpStream};

/// Addresses of one name that are used.
const ADDRESSES_MAX: usize = 4;

/// The addresses of a host, by the resolver of the system. Blocks.
///
/// # Errors
/// The name is not known, or cannot be looked up.
pub fn resolve(name: &str, port: u16) -> Result<Vec<SocketAddr>, IoError> {
    let found =
        (name, port).to_socket_addrs().map_err(|error| io_error("resolve", name, &error))?;
    Ok(found.take(ADDRESSES_MAX).collect())
}

/// Smallest spare room offered to one read.
const READ_ROOM_MIN: usize = 4096;

/// A listening socket.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds with `SO_REUSEADDR` and listens.
    pub fn bind(address: SocketAddr, backlog: u32) -> Result<Listener, IoError> {
        let bind = || -> std::io::Result<TcpListener> {
            let domain = socket2::Domain::for_address(address);
            let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
            TcpListener::from_std(socket.into())
        };
        let socket = bind().map_err(|e| io_error("listen", &address.to_string(), &e))?;
        let address = socket.local_addr().unwrap_or(address);
        Ok(Listener { socket, address })
    }

    /// The next connection.
    pub async fn accept(&self) -> Result<Conn, IoError> {
        let (stream, _) = self
            .socket
            .accept()
            .await
            .map_err(|e| io_error("accept", &self.address.to_string(), &e))?;
        Conn::new(stream).map_err(|e| io_error("accept", &self.address.to_string(), &e))
    }

    /// Returns the local address, with the port that the system chose if 0 was requested.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

/// A connection of this shard. Clones share the socket, which is closed with the last one.
#[derive(Clone)]
pub struct Conn {
    stream: Rc<TcpStream>,
    peer: SocketAddr,
    local: SocketAddr,
}

/// A connection on its way to another shard.
pub struct MovedConn {
    stream: std::io::Result<std::net::TcpStream>,
    peer: SocketAddr,
}

impl Conn {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Result<Conn, IoError> {
        let connected = match TcpStream::connect(address).await {
            Ok(stream) => Conn::new(stream),
            Err(e) => Err(e),
        };
        connected.map_err(|e| io_error("connect", &address.to_string(), &e))
    }

    fn new(stream: TcpStream) -> std::io::Result<Conn> {
        stream.set_nodelay(true)?;
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        Ok(Conn { stream: Rc::new(stream), peer, local })
    }

    /// Appends at most `max` bytes to `into`; 0 is the end of the stream.
    pub async fn read(&self, into: &mut Vec<u8>, max: usize) -> Result<usize, IoError> {
        use bytes::BufMut;
        if into.capacity() - into.len() < max.min(READ_ROOM_MIN) {
            into.reserve(max.min(READ_ROOM_MIN));
        }
        loop {
            let mut room = (&mut *into).limit(max);
            match self.stream.try_read_buf(&mut room) {
                Ok(n) => return Ok(n),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.error("read", &e)),
            }
            self.stream.readable().await.map_err(|e| self.error("read", &e))?;
        }
    }

    /// Writes everything; waits only while the socket is full.
    pub async fn write_all(&self, mut bytes: &[u8]) -> Result<(), IoError> {
        loop {
            let n = self.try_write(bytes)?;
            let Some(rest) = bytes.get(n..) else {
                stdx::invariant::broken(format_args!("socket took {n} of {} bytes", bytes.len()))
            };
            bytes = rest;
            if bytes.is_empty() {
                return Ok(());
            }
            self.stream.writable().await.map_err(|e| self.error("write", &e))?;
        }
    }

    /// Writes what fits now; 0 when the socket is full.
    pub fn try_write(&self, bytes: &[u8]) -> Result<usize, IoError> {
        let mut done = 0;
        while done < bytes.len() {
            match self.stream.try_write(&bytes[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // Bytes that the kernel took may arrive: they are reported, and the next write has the error.
                Err(_) if done > 0 => break,
                Err(e) => return Err(self.error("write", &e)),
            }
        }
        Ok(done)
    }

    /// Ends both directions; bytes written before are still sent.
    pub fn shutdown(&self) {
        // Fails only when the peer ended it first.
        let _ = socket2::SockRef::from(&*self.stream).shutdown(std::net::Shutdown::Both);
    }

    /// Has the socket reset when its last clone is dropped (`SO_LINGER` of 0): unsent bytes are lost.
    pub fn reset(&self) {
        // Fails only when the connection is over.
        let _ = socket2::SockRef::from(&*self.stream).set_linger(Some(std::time::Duration::ZERO));
    }

    /// Lets the kernel ask now and then whether a silent peer is still there (`SO_KEEPALIVE`).
    pub fn set_keepalive(&self) {
        // Fails only when the connection is over.
        let _ = socket2::SockRef::from(&*self.stream).set_keepalive(true);
    }

    /// Sends the acknowledgement of received bytes now instead of up to 40 ms later
    /// (`TCP_QUICKACK`).
    pub fn acknowledge(&self) {
        // Fails only when the connection is over.
        let _ = self.stream.set_quickack(true);
    }

    /// The other side.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// This side.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Deregisters it from this shard's reactor. Other clones stay usable here.
    pub fn into_moved(self) -> MovedConn {
        let stream = match Rc::try_unwrap(self.stream) {
            Ok(stream) => stream.into_std(),
            Err(shared) => rustix::io::fcntl_dupfd_cloexec(&*shared, 0)
                .map(std::net::TcpStream::from)
                .map_err(std::io::Error::from),
        };
        MovedConn { stream, peer: self.peer }
    }

    /// Puts it on this shard's reactor.
    pub fn from_moved(moved: MovedConn) -> Result<Conn, IoError> {
        moved
            .stream
            .and_then(TcpStream::from_std)
            .and_then(Conn::new)
            .map_err(|e| io_error("move", &moved.peer.to_string(), &e))
    }

    fn error(&self, operation: &'static str, e: &std::io::Error) -> IoError {
        io_error(operation, &self.peer.to_string(), e)
    }
}
