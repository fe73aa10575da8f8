//! One blocking connection to a server, in the words of cqlsh.
//!
//! Owns: the versions to try, the handshake, failures as cqlsh names them. Never: sockets, frames
//! (see `blocking-client`), retries, the meaning of an answer to a person.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blocking_client::{CqlConnection, CqlError, DialError, Endpoint, ReadWait, Socket, TlsPeer};
use cql_client::{Login, LoginError, MessageFault, Received, ServerError};
use cql_wire::request::RequestOptions;
use cql_wire::{ErrorBody, ProtocolVersion, Request, WireError};

pub(crate) use cql_client::{Answer, Page, Prepared, Reply};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::tls::{self, Tls};

/// Largest frame that is taken from a server.
const FRAME_BYTES_MAX: usize = 512 << 20;
/// A server that is well answers OPTIONS at once.
const OPTIONS_TIMEOUT: Duration = Duration::from_secs(2);

/// How to reach and enter a server.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Host name or address.
    pub(crate) host: String,
    /// Port of the native protocol.
    pub(crate) port: u16,
    /// The only protocol version to use; otherwise the newest that the server supports.
    pub(crate) version: Option<ProtocolVersion>,
    /// Name and password, for servers that ask.
    pub(crate) user: Option<(String, String)>,
    /// CQL version to ask for.
    pub(crate) cql_version: Option<String>,
    /// For the socket and each step of the handshake.
    pub(crate) connect_timeout: Duration,
    /// Stops waiting for answers once it is set.
    pub(crate) interrupt: Interrupt,
    /// `None`: in the clear.
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Target {
    /// `host:port`, as errors name it.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Connects to the first address that accepts, and performs the handshake.
    fn dial(&self) -> Result<Socket, Failure> {
        let timeout = Some(self.connect_timeout);
        let endpoint = Endpoint { host: &self.host, port: self.port, timeout };
        let (socket, address) = endpoint.dial().map_err(|error| self.not_dialled(&error))?;
        let Some(settings) = &self.tls else { return Ok(Socket::Plain(socket)) };
        let config = settings.client_config(&self.host).map_err(Failure::connection)?;
        let peer = TlsPeer { config: Arc::new(config), timeout: self.connect_timeout };
        Socket::with_tls(socket, address, peer).map_err(|error| self.not_dialled(&error))
    }

    fn not_dialled(&self, error: &DialError) -> Failure {
        let shown = |address: &SocketAddr| format!("('{}', {})", address.ip(), address.port());
        match error {
            DialError::Name(error) => Failure::connection(format!("{}: {error}", self.name())),
            DialError::Option(error) => Failure::connection(error.to_string()),
            DialError::Tls(address, error) => Failure::tls(&shown(address), &tls::reason(error)),
            DialError::Unreachable { tried, last } => {
                let tried: Vec<String> = tried.iter().map(shown).collect();
                Failure::unreachable(&tried, last.as_ref())
            }
        }
    }
}

/// A connection that is ready for requests.
pub(crate) struct Connection {
    link: CqlConnection<Socket>,
    name: String,
}

impl Connection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// No address accepts the connection, no version suits both sides, or the password is wrong.
    pub(crate) fn open(target: &Target) -> Result<Connection, Failure> {
        let versions: &[ProtocolVersion] =
            &[ProtocolVersion::V5, ProtocolVersion::V4, ProtocolVersion::V3];
        let mut last = None;
        for version in versions.iter().copied() {
            if target.version.is_some_and(|wanted| wanted != version) {
                continue;
            }
            match Connection::open_version(target, version) {
                Ok(connection) => return Ok(connection),
                Err(failure) if failure.is_other_version() && target.version.is_none() => {
                    last = Some(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(last.unwrap_or_else(|| Failure::connection("no protocol version is left to try")))
    }

    fn open_version(target: &Target, version: ProtocolVersion) -> Result<Connection, Failure> {
        let mut link = CqlConnection::new(target.dial()?, version, FRAME_BYTES_MAX);
        link.set_cancel(target.interrupt.flag());
        let mut connection = Connection { link, name: target.name() };
        connection.enter(target)?;
        Ok(connection)
    }

    fn enter(&mut self, target: &Target) -> Result<(), Failure> {
        let timeout = target.connect_timeout;
        if let Some(wanted) = &target.cql_version {
            let reply = self.request(&Request::Options, false, timeout)?;
            if let Answer::Supported(options) = reply.answer {
                let known = options.into_iter().find(|(name, _)| name == "CQL_VERSION");
                let known = known.map(|(_, versions)| versions).unwrap_or_default();
                if !known.contains(wanted) {
                    return Err(Failure::cql_version(wanted, &known));
                }
            }
        }
        let cql_version = target.cql_version.as_deref().unwrap_or("3.0.0").to_owned();
        let login =
            Login { options: vec![("CQL_VERSION", cql_version)], user: target.user.clone() }
                .with("DRIVER_NAME", "helenus cqlsh")
                .with("DRIVER_VERSION", env!("CARGO_PKG_VERSION"));
        self.link.login(login, Some(timeout)).map_err(|error| self.failed(error))
    }

    /// The version in use.
    pub(crate) fn version(&self) -> ProtocolVersion {
        self.link.version()
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// What the server refuses, a dead connection, or the deadline.
    pub(crate) fn request(
        &mut self,
        request: &Request<'_>,
        tracing: bool,
        timeout: Duration,
    ) -> Result<Reply, Failure> {
        let options = RequestOptions { tracing, ..RequestOptions::default() };
        let reply = self.link.request(request, &options, Some(timeout), own);
        reply.map_err(|error| self.failed(error))?
    }

    /// Queues a request until [`Connection::flush`].
    ///
    /// # Errors
    /// The protocol version cannot express it.
    pub(crate) fn send(
        &mut self,
        request: &Request<'_>,
        stream: i16,
        tracing: bool,
    ) -> Result<(), Failure> {
        let options = RequestOptions { stream, tracing, ..RequestOptions::default() };
        Ok(self.link.send(request, &options)?)
    }

    /// Bytes that wait for [`Connection::flush`].
    pub(crate) fn waiting(&self) -> usize {
        self.link.waiting()
    }

    /// Writes queued requests.
    ///
    /// # Errors
    /// The connection is dead.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.link.flush().map_err(|error| self.failed(error.into()))
    }

    /// The next answer of any stream. The outer error is the connection's, the inner one the
    /// server's.
    ///
    /// # Errors
    /// The connection is dead, the answer cannot be read, or the deadline is over.
    pub(crate) fn receive(
        &mut self,
        deadline: Instant,
    ) -> Result<(i16, Result<Reply, Failure>), Failure> {
        let answer = |received: Received<'_>| (received.stream, own(received));
        let answer = self.link.receive(ReadWait::Until(deadline), answer);
        answer.map_err(|error| self.failed(error))
    }

    /// First value of an option that the server offers; `None` when it does not, or does not answer.
    pub(crate) fn supported(&mut self, option: &str) -> Option<String> {
        let reply = self.request(&Request::Options, false, OPTIONS_TIMEOUT).ok()?;
        let Answer::Supported(options) = reply.answer else { return None };
        let (_, values) = options.into_iter().find(|(name, _)| name == option)?;
        values.into_iter().next()
    }

    fn failed(&self, error: CqlError) -> Failure {
        match error {
            CqlError::Closed => Failure::shutdown(&self.name, "Connection closed by the server"),
            CqlError::Io(error) => Failure::shutdown(&self.name, &error.to_string()),
            CqlError::TimedOut => Failure::timed_out(&self.name),
            CqlError::Cancelled => Failure::interrupted(),
            CqlError::Request(error) => error.into(),
            CqlError::Message(fault) | CqlError::Login(LoginError::Message(fault)) => match fault {
                MessageFault::Frame(fault) => no_frame(&fault.error),
                MessageFault::Body(error) => error.into(),
            },
            CqlError::Login(LoginError::NoCredentials(_)) => {
                Failure::authentication("Remote end requires authentication")
            }
            CqlError::Login(LoginError::Refused(error)) => refused(&error),
            CqlError::Login(LoginError::WrongCredentials(error)) => {
                refused(&error).of_login(&self.name)
            }
            CqlError::Login(error) => Failure::authentication(error.to_string()),
        }
    }
}

/// The answer is no frame of CQL. The first byte of an answer of HTTP stands where a frame has its version.
fn no_frame(error: &WireError) -> Failure {
    match error {
        WireError::UnsupportedVersion { version: b'H' } => Failure::connection(
            "the server speaks HTTP: name the port for CQL clients (native_transport_port, 9042 by default)",
        ),
        error => Failure::connection(error.to_string()),
    }
}

/// The answer to a login has no error with fields.
fn refused(error: &ServerError) -> Failure {
    let body = ErrorBody::without_fields(error.code).unwrap_or(ErrorBody::ServerError);
    Failure::server(&body, &error.message)
}

fn own(received: Received<'_>) -> Result<Reply, Failure> {
    match Reply::of(received) {
        Ok(Reply { answer: Answer::AuthChallenge, .. }) => {
            Err(Failure::authentication("the server wants more than name and password"))
        }
        Ok(reply) => Ok(reply),
        Err(refusal) => Err(Failure::server(&refusal.error, refusal.message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_http_names_the_port_that_is_needed() {
        let of = |version| no_frame(&WireError::UnsupportedVersion { version });
        assert!(of(b'H').text.contains("native_transport_port"), "{}", of(b'H').text);
        // No other version is tried then.
        assert!(!of(b'H').is_other_version());
        assert!(of(2).is_other_version());
    }
}
