//! TCP handles of both worlds.

use crate::env::Env;
use crate::handle::Rt;
use std::net::SocketAddr;
use stdx::{IoError, IoErrorKind};

/// How to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that the kernel completes before they are accepted.
    pub backlog: u32,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { backlog: 1024 }
    }
}

/// A listening socket. There is one per address; connections are handed to other shards with
/// [`Conn::into_moved`].
pub struct Listener {
    inner: AnyListener,
}

enum AnyListener {
    Native(rt_native::Listener),
    Sim(rt_sim::Listener),
}

impl Listener {
    pub(crate) async fn bind(
        env: &Env,
        addr: SocketAddr,
        options: ListenOptions,
    ) -> Result<Listener, IoError> {
        let inner = match env {
            Env::Native(_) => {
                AnyListener::Native(rt_native::Listener::bind(addr, options.backlog)?)
            }
            Env::Sim(env) => AnyListener::Sim(env.listen(addr, options.backlog).await?),
        };
        Ok(Listener { inner })
    }

    /// The next connection, with `TCP_NODELAY` set.
    pub async fn accept(&self) -> Result<Conn, IoError> {
        let inner = match &self.inner {
            AnyListener::Native(l) => AnyConn::Native(l.accept().await?),
            AnyListener::Sim(l) => AnyConn::Sim(l.accept().await?),
        };
        Ok(Conn { inner })
    }

    /// Returns the local address, with the chosen port if 0 was requested.
    pub fn local_addr(&self) -> SocketAddr {
        match &self.inner {
            AnyListener::Native(l) => l.local_addr(),
            AnyListener::Sim(l) => l.local_addr(),
        }
    }
}

/// The addresses of a host, at most four. A simulated world has no names.
///
/// # Errors
/// The name is not known, or cannot be looked up.
pub async fn resolve(rt: &Rt, name: &str, port: u16) -> Result<Vec<SocketAddr>, IoError> {
    match &rt.inner.env {
        Env::Sim(_) => Err(IoError {
            kind: IoErrorKind::NotFound,
            operation: "resolve",
            path: name.to_owned(),
            detail: "a simulated world has no names".to_owned(),
        }),
        Env::Native(_) => {
            let name = name.to_owned();
            rt.offload("resolve", move || rt_native::net::resolve(&name, port)).await
        }
    }
}

impl Rt {
    /// Listens on `addr` (port 0: any free one) with `SO_REUSEADDR`.
    pub async fn listen(
        &self,
        addr: SocketAddr,
        options: ListenOptions,
    ) -> Result<Listener, IoError> {
        Listener::bind(&self.inner.env, addr, options).await
    }

    /// Connects to `addr`.
    pub async fn connect(&self, addr: SocketAddr) -> Result<Conn, IoError> {
        Conn::connect(&self.inner.env, addr).await
    }
}

/// A TCP connection of this shard. Clones share it; it is closed with the last one. One task may
/// read while another writes.
#[derive(Clone)]
pub struct Conn {
    inner: AnyConn,
}

#[derive(Clone)]
enum AnyConn {
    Native(rt_native::Conn),
    Sim(rt_sim::Conn),
}

/// A connection on its way to another shard of the same node. Dropped unused, it is closed.
pub struct MovedConn {
    inner: AnyMoved,
}

enum AnyMoved {
    Native(rt_native::MovedConn),
    Sim(rt_sim::MovedConn),
}

impl Conn {
    pub(crate) async fn connect(env: &Env, addr: SocketAddr) -> Result<Conn, IoError> {
        let inner = match env {
            Env::Native(_) => AnyConn::Native(rt_native::Conn::connect(addr).await?),
            Env::Sim(env) => AnyConn::Sim(env.connect(addr).await?),
        };
        Ok(Conn { inner })
    }

    /// Appends at most `max` bytes to `into` and returns their number; `Ok(0)` is the end of the
    /// stream (or `max` was 0).
    pub async fn read(&self, into: &mut Vec<u8>, max: usize) -> Result<usize, IoError> {
        match &self.inner {
            AnyConn::Native(c) => c.read(into, max).await,
            AnyConn::Sim(c) => c.read(into, max).await,
        }
    }

    /// Writes everything; waits only while the socket is full.
    pub async fn write_all(&self, bytes: &[u8]) -> Result<(), IoError> {
        match &self.inner {
            AnyConn::Native(c) => c.write_all(bytes).await,
            AnyConn::Sim(c) => c.write_all(bytes).await,
        }
    }

    /// Writes what fits now and returns how much; 0 when the socket is full.
    pub fn try_write(&self, bytes: &[u8]) -> Result<usize, IoError> {
        match &self.inner {
            AnyConn::Native(c) => c.try_write(bytes),
            AnyConn::Sim(c) => c.try_write(bytes),
        }
    }

    /// Ends both directions; bytes written before are still sent.
    pub fn shutdown(&self) {
        match &self.inner {
            AnyConn::Native(c) => c.shutdown(),
            AnyConn::Sim(c) => c.shutdown(),
        }
    }

    /// Ends the connection by a reset, at the latest when its last clone is dropped: unsent bytes are lost, and the other
    /// side gets an error where [`Conn::shutdown`] lets it read an end.
    pub fn reset(&self) {
        match &self.inner {
            AnyConn::Native(c) => c.reset(),
            AnyConn::Sim(c) => c.reset(),
        }
    }

    /// Lets the machine probe a silent peer now and then. Connections of a simulated machine learn
    /// of their end in other ways.
    pub fn set_keepalive(&self) {
        if let AnyConn::Native(c) = &self.inner {
            c.set_keepalive();
        }
    }

    /// Sends the acknowledgement of received bytes now instead of up to 40 ms later. Until then a
    /// peer with Nagle's algorithm holds the rest of a request back. One system call; it covers the
    /// bytes received so far. A simulated network acknowledges at once.
    pub fn acknowledge(&self) {
        if let AnyConn::Native(c) = &self.inner {
            c.acknowledge();
        }
    }

    /// The other side.
    pub fn peer_addr(&self) -> SocketAddr {
        match &self.inner {
            AnyConn::Native(c) => c.peer_addr(),
            AnyConn::Sim(c) => c.peer_addr(),
        }
    }

    /// This side.
    pub fn local_addr(&self) -> SocketAddr {
        match &self.inner {
            AnyConn::Native(c) => c.local_addr(),
            AnyConn::Sim(c) => c.local_addr(),
        }
    }

    /// Detaches the connection from this shard. Only the last clone should be moved.
    pub fn into_moved(self) -> MovedConn {
        let inner = match self.inner {
            AnyConn::Native(c) => AnyMoved::Native(c.into_moved()),
            AnyConn::Sim(c) => AnyMoved::Sim(c.into_moved()),
        };
        MovedConn { inner }
    }

    /// Puts a moved connection on this shard.
    pub fn from_moved(rt: &Rt, moved: MovedConn) -> Result<Conn, IoError> {
        let inner = match (moved.inner, &rt.inner.env) {
            (AnyMoved::Native(m), Env::Native(_)) => {
                AnyConn::Native(rt_native::Conn::from_moved(m)?)
            }
            (AnyMoved::Sim(m), Env::Sim(env)) => AnyConn::Sim(env.from_moved(m)?),
            (AnyMoved::Native(_), Env::Sim(_)) | (AnyMoved::Sim(_), Env::Native(_)) => {
                return Err(IoError {
                    kind: IoErrorKind::Device,
                    operation: "move",
                    path: String::new(),
                    detail: "the connection belongs to the other world".to_string(),
                });
            }
        };
        Ok(Conn { inner })
    }
}
