//! One HTTP request per connection.

use std::io::{Error, Read, Write};
use std::time::Duration;

use http_client::{Request, split_answer};

use crate::api::ApiAccess;
use crate::socket::{DialError, Endpoint, Socket};

pub use http_client::{JSON, OCTETS};

/// Longest answer that is taken: 100,000 tables fit.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Error of a request without an answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpFault {
    /// No HTTP server answers there, or the connection broke.
    #[error(transparent)]
    Connect(#[from] Error),
    /// The received bytes are not an answer; the text has the reason.
    #[error("{0}")]
    Strange(String),
}

/// Status and body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status, for example 200.
    pub status: u16,
    /// Body.
    pub body: Vec<u8>,
}

/// Sends a request without a login in the clear and waits for the answer; see [`exchange_as`].
///
/// # Errors
/// See [`HttpFault`]. No status of an answer is an error.
pub fn exchange(
    endpoint: &Endpoint<'_>,
    request: &Request<'_>,
    patience: Option<Duration>,
) -> Result<HttpAnswer, HttpFault> {
    exchange_as(&ApiAccess::default(), endpoint, request, patience)
}

/// Sends a request with the login and the TLS of `access` and waits for the answer; `patience` is for each wait for
/// the network.
///
/// # Errors
/// See [`HttpFault`]. No status of an answer is an error.
pub fn exchange_as(
    access: &ApiAccess,
    endpoint: &Endpoint<'_>,
    request: &Request<'_>,
    patience: Option<Duration>,
) -> Result<HttpAnswer, HttpFault> {
    let (socket, address) = endpoint.dial().map_err(DialError::into_io)?;
    socket.set_write_timeout(patience)?;
    let mut stream = match access.tls() {
        None => Socket::Plain(socket),
        Some(peer) => Socket::with_tls_to(socket, address, endpoint.host, peer.clone())
            .map_err(|error| HttpFault::Connect(error.into_io()))?,
    };
    stream.set_read_timeout(patience)?;
    let request = Request { authorization: access.authorization(), ..*request };
    stream.write_all(request.head(endpoint.host, endpoint.port).as_bytes())?;
    stream.write_all(request.body.map_or(&[], |(_, bytes)| bytes))?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    parsed(&answer)
}

/// Reads an answer. A server of another protocol counts as no connection: no node was reached.
fn parsed(answer: &[u8]) -> Result<HttpAnswer, HttpFault> {
    let (status, body) = split_answer(answer).map_err(|words| {
        match answer.is_empty() || answer.starts_with(b"HTTP/") {
            true => HttpFault::Strange(words),
            false => HttpFault::Connect(Error::other(words)),
        }
    })?;
    Ok(HttpAnswer { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_another_protocol_is_no_connection_and_a_node_that_ended_is_none_either() {
        let answer = parsed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (200, b"ok".as_slice()));
        // The CQL port's answer to an HTTP request.
        let cql = b"\x85\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x0a";
        match parsed(cql) {
            Err(HttpFault::Connect(error)) => assert!(error.to_string().contains("api_port")),
            other => panic!("{other:?}"),
        }
        for broken in [b"".as_slice(), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"] {
            assert!(matches!(parsed(broken), Err(HttpFault::Strange(_))), "{broken:?}");
        }
    }
}
