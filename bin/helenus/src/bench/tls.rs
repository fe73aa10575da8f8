//! TLS of a load: its options, and connections that are opened with it.

use std::time::Duration;

use blocking_client::load_tls::{LoadTls, Reconnects, ServerCheck};
use blocking_client::{BegunHandshake, DialError, Endpoint, Socket, TlsPeer};
use clap::Args;

use super::client::Failure;

/// The command line's part about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsFlags {
    /// Speak TLS; needs --tls-ca or --tls-insecure
    #[arg(long)]
    tls: bool,
    /// Authority of the server's certificate, which must name the host: PEM, JKS or PKCS12
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_ca: Option<String>,
    /// Accept any certificate of the server: the server is not authenticated
    #[arg(long, requires = "tls", conflicts_with = "tls_ca")]
    tls_insecure: bool,
    /// Own certificate
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_cert: Option<String>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<String>,
    /// Accept only this protocol: TLSv1.2 or TLSv1.3
    #[arg(long, value_name = "NAME", requires = "tls")]
    tls_protocol: Option<String>,
    /// Resume no session: every handshake is a full one
    #[arg(long, requires = "tls")]
    tls_no_resumption: bool,
}

impl TlsFlags {
    /// Returns true if the load speaks TLS.
    pub(crate) fn is_on(&self) -> bool {
        self.tls
    }

    /// Reads the files that the options name; `None`: in the clear.
    ///
    /// # Errors
    /// A file cannot be used, or nothing says how the server is verified.
    fn open(&self) -> Result<Option<TlsPeer>, Failure> {
        if !self.tls {
            return Ok(None);
        }
        let check = match (&self.tls_ca, self.tls_insecure) {
            (Some(path), _) => ServerCheck::Authority(path.clone()),
            (None, true) => ServerCheck::Nothing,
            (None, false) => {
                let text = "--tls needs the authority of the server's certificate (--tls-ca), or \
                            --tls-insecure, which accepts any certificate";
                return Err(Failure::Text(text.to_owned()));
            }
        };
        let load = LoadTls {
            check,
            certificate: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            reconnects: match self.tls_no_resumption {
                true => Reconnects::StartOver,
                false => Reconnects::Resume,
            },
            protocols: self.tls_protocol.clone().into_iter().collect(),
        };
        load.open().map(Some).map_err(Failure::Text)
    }
}

/// A server and the way to it.
#[derive(Clone)]
pub(crate) struct Server {
    host: String,
    port: u16,
    tls: Option<TlsPeer>,
}

impl Server {
    /// Reads the files of TLS.
    pub(crate) fn new(host: &str, port: u16, flags: &TlsFlags) -> Result<Server, Failure> {
        Ok(Server { host: host.to_owned(), port, tls: flags.open()? })
    }

    /// A server that is spoken to in the clear.
    #[cfg(test)]
    pub(crate) fn plain(host: &str, port: u16) -> Server {
        Server { host: host.to_owned(), port, tls: None }
    }

    /// Connects, and begins the handshake.
    pub(crate) fn begin(&self) -> Result<Begun, Failure> {
        let endpoint = Endpoint { host: &self.host, port: self.port, timeout: None };
        let (socket, address) = endpoint.dial().map_err(|error| self.failed(error))?;
        let Some(peer) = &self.tls else { return Ok(Begun::Plain(Socket::Plain(socket))) };
        let begun = BegunHandshake::new(socket, address, &self.host, peer.clone());
        Ok(Begun::Tls(Box::new(begun.map_err(|error| self.failed(error))?)))
    }

    /// Completes the handshake.
    pub(crate) fn finish(&self, begun: Begun) -> Result<Socket, Failure> {
        let socket = match begun {
            Begun::Plain(socket) => socket,
            Begun::Tls(handshake) => handshake.finish().map_err(|error| self.failed(error))?,
        };
        // The wait of the handshake must not be that of the first answer.
        socket.set_read_timeout(None::<Duration>).map_err(super::client::lost)?;
        Ok(socket)
    }

    /// Connects.
    pub(crate) fn dial(&self) -> Result<Socket, Failure> {
        self.finish(self.begin()?)
    }

    fn failed(&self, error: DialError) -> Failure {
        match error {
            DialError::Option(error) => super::client::lost(error),
            DialError::Tls(address, error) => {
                Failure::Io(format!("no TLS connection to {address}"), error)
            }
            error => {
                let what = format!("cannot connect to {}:{}", self.host, self.port);
                Failure::Io(what, error.into_io())
            }
        }
    }
}

/// A connection whose handshake may be under way.
pub(crate) enum Begun {
    Plain(Socket),
    Tls(Box<BegunHandshake>),
}
