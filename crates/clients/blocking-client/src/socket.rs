//! The bytes of a connection: a socket, or TLS on top of it.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};

/// Operations that a driver needs of a byte stream.
pub trait Transport: Read + Write {
    /// Longest wait of one read from now on. Streams without a clock of their own ignore it.
    ///
    /// # Errors
    /// The socket refuses.
    fn set_read_wait(&mut self, _wait: Duration) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for TcpStream {
    fn set_read_wait(&mut self, wait: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(wait))
    }
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn set_read_wait(&mut self, wait: Duration) -> io::Result<()> {
        (**self).set_read_wait(wait)
    }
}

/// Where to connect to.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    /// Host name or address.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// How long each address may take; `None`: as long as the system waits.
    pub timeout: Option<Duration>,
}

/// Error of a connection attempt.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error(transparent)]
    Name(Error),
    /// No address accepts the connection: the addresses that were tried, and the error of the last
    /// one.
    #[error("{}", .last.as_ref().map_or_else(|| "no address".to_owned(), Error::to_string))]
    Unreachable {
        /// Addresses in the order tried.
        tried: Vec<SocketAddr>,
        /// Error of the last one; `None` when the name has no address.
        last: Option<Error>,
    },
    /// The socket does not take an option.
    #[error(transparent)]
    Option(Error),
    /// The two sides do not trust one another, or one does not speak TLS.
    #[error("{1}")]
    Tls(SocketAddr, Error),
}

impl DialError {
    /// The error of the system.
    pub fn into_io(self) -> Error {
        match self {
            DialError::Name(error) | DialError::Option(error) | DialError::Tls(_, error) => error,
            DialError::Unreachable { last, .. } => {
                last.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into())
            }
        }
    }
}

impl Endpoint<'_> {
    /// Connects to the first address that accepts the connection.
    ///
    /// # Errors
    /// No address accepts, or none is given.
    pub fn dial(&self) -> Result<(TcpStream, SocketAddr), DialError> {
        let addresses = (self.host, self.port).to_socket_addrs().map_err(DialError::Name)?;
        let (mut tried, mut last) = (Vec::new(), None);
        for address in addresses {
            let socket = match self.timeout {
                Some(timeout) => TcpStream::connect_timeout(&address, timeout),
                None => TcpStream::connect(address),
            };
            match socket {
                Ok(socket) => {
                    socket.set_nodelay(true).map_err(DialError::Option)?;
                    return Ok((socket, address));
                }
                Err(error) => {
                    tried.push(address);
                    last = Some(error);
                }
            }
        }
        Err(DialError::Unreachable { tried, last })
    }
}

/// TLS settings for a server.
#[derive(Clone)]
pub struct TlsPeer {
    /// Trusted authorities and the client's certificate.
    pub config: Arc<ClientConfig>,
    /// Limit of each read of the handshake.
    pub timeout: Duration,
}

/// A way to a server.
pub enum Socket {
    /// In the clear.
    Plain(TcpStream),
    /// TLS over a socket.
    Tls(Box<TlsSession>),
}

/// A handshake of which the client's first message was sent, so that many can be under way at once.
pub struct BegunHandshake {
    session: TlsSession,
    address: SocketAddr,
    timeout: Duration,
}

impl BegunHandshake {
    /// Sends the first message over a socket to `address`, the address of a host.
    ///
    /// # Errors
    /// `Tls`.
    pub fn new(
        socket: TcpStream,
        address: SocketAddr,
        host: &str,
        peer: TlsPeer,
    ) -> Result<BegunHandshake, DialError> {
        let failed = |error| DialError::Tls(address, error);
        let name = ServerName::try_from(host.to_owned());
        let name = name.unwrap_or_else(|_| ServerName::IpAddress(address.ip().into()));
        let tls = ClientConnection::new(peer.config, name).map_err(Error::other).map_err(failed)?;
        let mut session = TlsSession { tls, socket };
        session.send().map_err(failed)?;
        Ok(BegunHandshake { session, address, timeout: peer.timeout })
    }

    /// Waits until both sides have agreed.
    ///
    /// # Errors
    /// `Tls`.
    pub fn finish(mut self) -> Result<Socket, DialError> {
        let finished = self.session.handshake(self.timeout);
        finished.map_err(|error| DialError::Tls(self.address, error))?;
        Ok(Socket::Tls(Box::new(self.session)))
    }
}

/// TLS over a socket.
pub struct TlsSession {
    tls: ClientConnection,
    socket: TcpStream,
}

impl Socket {
    /// Shakes hands over a socket to `address`.
    ///
    /// # Errors
    /// `Tls`.
    pub fn with_tls(
        socket: TcpStream,
        address: SocketAddr,
        peer: TlsPeer,
    ) -> Result<Socket, DialError> {
        // The verifiers of cqlsh ignore the name, and an address is always a valid one.
        Socket::with_tls_to(socket, address, "", peer)
    }

    /// Shakes hands over a socket to `address`, the address of a host. The configuration decides whether the
    /// certificate must be of that host.
    ///
    /// # Errors
    /// `Tls`.
    pub fn with_tls_to(
        socket: TcpStream,
        address: SocketAddr,
        host: &str,
        peer: TlsPeer,
    ) -> Result<Socket, DialError> {
        BegunHandshake::new(socket, address, host, peer)?.finish()
    }

    /// Returns true if the TLS session is that of an earlier connection.
    pub fn is_resumed(&self) -> bool {
        match self {
            Socket::Plain(_) => false,
            Socket::Tls(session) => session.tls.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    /// Longest wait of each read; `None`: no limit.
    ///
    /// # Errors
    /// The socket refuses.
    pub fn set_read_timeout(&self, wait: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Plain(socket) => socket.set_read_timeout(wait),
            Socket::Tls(session) => session.socket.set_read_timeout(wait),
        }
    }
}

impl Transport for Socket {
    fn set_read_wait(&mut self, wait: Duration) -> io::Result<()> {
        match self {
            Socket::Plain(socket) => socket.set_read_wait(wait),
            Socket::Tls(session) => session.socket.set_read_wait(wait),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(socket) => socket.read(bytes),
            Socket::Tls(session) => session.read(bytes),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(socket) => socket.write(bytes),
            Socket::Tls(session) => session.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Plain(socket) => socket.flush(),
            Socket::Tls(session) => session.send(),
        }
    }
}

impl TlsSession {
    fn handshake(&mut self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))?;
        while self.tls.is_handshaking() {
            if self.tls.wants_write() {
                self.send()?;
                continue;
            }
            if retried(|| self.tls.read_tls(&mut self.socket))? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.process()?;
        }
        self.send()
    }

    /// Processes the bytes that were read. An alert for the other side is sent before the error is
    /// returned.
    fn process(&mut self) -> io::Result<()> {
        match self.tls.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // The error counts; the other side may have closed already.
                let _ = self.tls.write_tls(&mut self.socket);
                Err(Error::new(ErrorKind::InvalidData, error))
            }
        }
    }

    /// Sends what TLS has to send. A signal does not end it: the session has taken the caller's bytes already, and a
    /// caller that retries after `Interrupted` would send them twice.
    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            retried(|| self.tls.write_tls(&mut self.socket))?;
        }
        Ok(())
    }

    /// Errors of the socket come through as they are, so that Ctrl-C ends the wait.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            if self.tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            self.process()?;
            self.send()?;
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.tls.writer().write(bytes)?;
        self.send()?;
        Ok(taken)
    }
}

/// The outcome of `call`, which is repeated when a signal interrupts it.
fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_repeats_the_call_and_another_error_ends_it() {
        let mut outcomes = vec![Err(ErrorKind::BrokenPipe), Ok(7), Err(ErrorKind::Interrupted)];
        let mut next = || outcomes.pop().unwrap().map_err(Error::from);
        assert_eq!(retried(&mut next).unwrap(), 7);
        assert_eq!(retried(&mut next).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
