//! The bytes of a connection: a socket, or TLS on top of it.
//!
//! Owns: dialling, the TLS handshake, timeouts of reads. Never: frames.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::connection::Target;
use crate::failure::Failure;
use crate::tls;

/// A way to the server.
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<Session>),
}

/// TLS over a socket.
pub(crate) struct Session {
    tls: ClientConnection,
    socket: TcpStream,
}

impl Transport {
    /// Connects to the first address of the target that takes it, and shakes hands.
    ///
    /// # Errors
    /// No address takes the connection, or the two sides do not trust one another.
    pub(crate) fn dial(target: &Target) -> Result<Transport, Failure> {
        let addresses = (target.host.as_str(), target.port)
            .to_socket_addrs()
            .map_err(|error| Failure::connection(format!("{}: {error}", target.name())))?;
        let mut tried = Vec::new();
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, target.connect_timeout) {
                Ok(socket) => {
                    socket.set_nodelay(true).map_err(|e| Failure::connection(e.to_string()))?;
                    return Transport::over(socket, address, target);
                }
                Err(error) => {
                    tried.push(tried_address(address));
                    last = Some(error);
                }
            }
        }
        Err(Failure::unreachable(&tried, last.as_ref()))
    }

    fn over(socket: TcpStream, address: SocketAddr, target: &Target) -> Result<Self, Failure> {
        let Some(settings) = &target.tls else { return Ok(Transport::Plain(socket)) };
        let config = settings.client_config(&target.host).map_err(Failure::connection)?;
        let failed = |error: &Error| Failure::tls(&tried_address(address), &tls::reason(error));
        // The name is neither sent nor checked, and an address always is one.
        let name = ServerName::IpAddress(address.ip().into());
        let tls = ClientConnection::new(Arc::new(config), name)
            .map_err(|error| failed(&Error::other(error)))?;
        let mut session = Session { tls, socket };
        session.handshake(target.connect_timeout).map_err(|error| failed(&error))?;
        Ok(Transport::Tls(Box::new(session)))
    }

    /// Longest wait of one read.
    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> std::io::Result<()> {
        let socket = match self {
            Transport::Plain(socket) => socket,
            Transport::Tls(session) => &session.socket,
        };
        socket.set_read_timeout(Some(timeout))
    }

    /// Some bytes; 0 when the server has closed the connection.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.read(bytes),
            Transport::Tls(session) => session.read(bytes),
        }
    }

    /// Writes all bytes to the socket.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Transport::Plain(socket) => socket.write_all(bytes),
            Transport::Tls(session) => session.write_all(bytes),
        }
    }
}

fn tried_address(address: SocketAddr) -> String {
    format!("('{}', {})", address.ip(), address.port())
}

impl Session {
    fn handshake(&mut self, timeout: Duration) -> std::io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))?;
        while self.tls.is_handshaking() {
            if self.tls.wants_write() {
                self.tls.write_tls(&mut self.socket)?;
                continue;
            }
            if self.tls.read_tls(&mut self.socket)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.process()?;
        }
        self.send()
    }

    /// Takes in what was read. An alert for the other side is sent before the error is told.
    fn process(&mut self) -> std::io::Result<()> {
        match self.tls.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // The error counts; the other side may be gone already.
                let _ = self.tls.write_tls(&mut self.socket);
                Err(Error::new(ErrorKind::InvalidData, error))
            }
        }
    }

    fn send(&mut self) -> std::io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    /// Errors of the socket come through as they are, so that Ctrl-C ends the wait.
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
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

    fn write_all(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.tls.writer().write(bytes)?;
            bytes = bytes.get(taken..).unwrap_or_default();
            self.send()?;
        }
        Ok(())
    }
}
