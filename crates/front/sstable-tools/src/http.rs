//! A client for the admin API: one HTTP/1.1 request per connection.

use std::io;
use std::time::Duration;

use admin::model::ErrorReport;
use blocking_client::Endpoint;
use blocking_client::api::ApiAccess;
use blocking_client::http::{self, HttpFault, OCTETS};
use http_client::Request;
use serde::de::DeserializeOwned;

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum HttpError {
    /// No server listens there, or the connection broke.
    Connect(io::Error),
    /// The node refused, with a status and its words.
    Refused(u16, String),
    /// The response is not an answer of the API.
    Strange(String),
}

/// Where the API is, and the login there.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    /// Name or address.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
    /// Login and TLS.
    pub(crate) access: ApiAccess,
}

impl Api {
    /// Asks.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, HttpError> {
        let body = self.exchange("GET", path, None, None)?;
        serde_json::from_slice(&body).map_err(|e| HttpError::Strange(e.to_string()))
    }

    /// Posts bytes that are not JSON; waits at most so long for the network.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub(crate) fn post_bytes(
        &self,
        path: &str,
        body: &[u8],
        patience: Duration,
    ) -> Result<(), HttpError> {
        self.exchange("POST", path, Some((OCTETS, body)), Some(patience)).map(|_| ())
    }

    fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &[u8])>,
        patience: Option<Duration>,
    ) -> Result<Vec<u8>, HttpError> {
        let endpoint = Endpoint { host: &self.host, port: self.port, timeout: Some(CONNECT_MAX) };
        let request = Request { method, path, authorization: None, body };
        let answer = http::exchange_as(&self.access, &endpoint, &request, patience);
        let http::HttpAnswer { status, body } = answer.map_err(|fault| match fault {
            HttpFault::Connect(error) => HttpError::Connect(error),
            HttpFault::Strange(words) => HttpError::Strange(words),
        })?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let words = match serde_json::from_slice::<ErrorReport>(&body) {
            Ok(report) => report.error,
            Err(_) => String::from_utf8_lossy(&body).trim().to_owned(),
        };
        Err(HttpError::Refused(status, words))
    }
}
