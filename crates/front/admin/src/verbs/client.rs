//! The way of a verb to the API of a node, and to the machine that nodetool runs on.

use std::fmt::{self, Arguments};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{ErrorKind, ErrorReport};
use crate::operation::Method;

/// One request of the API.
#[derive(Clone, Copy, Debug)]
pub struct ApiRequest<'a> {
    /// Name or address of the node.
    pub host: &'a str,
    /// Port of its API.
    pub port: u16,
    /// Method.
    pub method: Method,
    /// Path with its query.
    pub path: &'a str,
    /// JSON; `None`: no body.
    pub body: Option<&'a [u8]>,
}

/// The machine that nodetool runs on: sockets, standard output, the clock, names of hosts.
pub trait Terminal {
    /// Sends a request; status and body of the answer.
    ///
    /// # Errors
    /// `Connect` and `Strange`.
    fn exchange(&self, request: &ApiRequest<'_>) -> Result<(u16, Vec<u8>), HttpError>;
    /// Prints to standard output, before the verb has ended.
    fn print(&self, text: Arguments<'_>);
    /// Flushes the output to its reader, even a pipe.
    fn flush(&self);
    /// Milliseconds since 1970.
    fn now_millis(&self) -> u128;
    /// Waits.
    fn pause(&self, time: Duration);
    /// Lines of an address and its names, of the addresses that have a name.
    ///
    /// # Errors
    /// The reason, as a sentence: names cannot be looked up on this machine.
    fn host_names(&self, addresses: &[&str]) -> Result<String, String>;
}

/// Why there is no answer.
#[derive(Debug)]
pub enum HttpError {
    /// No process listens at the address, or the connection broke.
    Connect(io::Error),
    /// The node refused: kind and reason.
    Refused(ErrorKind, String),
    /// The response is not an answer of the API.
    Strange(String),
}

/// The API of a node, and the terminal that reaches it.
#[derive(Clone)]
pub struct NodeApi {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Where nodetool runs.
    pub terminal: Rc<dyn Terminal>,
}

impl fmt::Debug for NodeApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl NodeApi {
    /// Asks.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, HttpError> {
        parsed(&self.exchange(Method::Get, path, None)?)
    }

    /// Gives a command and waits until it is done.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn command<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Result<(), HttpError> {
        self.exchange(method, path, Some(&json(body)?)).map(|_| ())
    }

    /// Gives a command; the answer.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub(super) fn order<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Result<T, HttpError> {
        parsed(&self.exchange(method, path, Some(&json(body)?))?)
    }

    /// Gives a command without a body; the answer.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, HttpError> {
        parsed(&self.exchange(Method::Post, path, None)?)
    }

    /// Prints to standard output, before the verb has ended.
    pub(super) fn print(&self, text: Arguments<'_>) {
        self.terminal.print(text);
    }

    fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<Vec<u8>, HttpError> {
        let request = ApiRequest { host: &self.host, port: self.port, method, path, body };
        let (status, body) = self.terminal.exchange(&request)?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let of_status = ErrorKind::of_status(status);
        let (kind, words) = match serde_json::from_slice::<ErrorReport>(&body) {
            Ok(report) => (report.kind.unwrap_or(of_status), report.error),
            Err(_) => (of_status, String::from_utf8_lossy(&body).trim().to_owned()),
        };
        Err(HttpError::Refused(kind, words))
    }
}

fn json<B: Serialize>(body: &B) -> Result<Vec<u8>, HttpError> {
    serde_json::to_vec(body).map_err(|e| HttpError::Strange(e.to_string()))
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, HttpError> {
    serde_json::from_slice(body).map_err(|e| HttpError::Strange(e.to_string()))
}
