//! A client for the admin API: one HTTP/1.1 request per connection.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use admin::model::ErrorReport;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest answer that is taken: 100,000 tables fit.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
const JSON: &str = "application/json";
const OCTETS: &str = "application/octet-stream";
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug)]
pub enum HttpError {
    /// Nobody listens there, or the connection broke.
    Connect(io::Error),
    /// The node refused, with a status and its words.
    Refused(u16, String),
    /// What came is not an answer of the API.
    Strange(String),
}

/// Where the API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Api {
    /// Asks.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, HttpError> {
        parsed(&self.call("GET", path, None)?)
    }

    /// Commands, and waits until it is done.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn command<B: Serialize>(
        &self,
        method: &str,
        path: &str,
        body: &B,
    ) -> Result<(), HttpError> {
        let body = serde_json::to_vec(body).map_err(|e| HttpError::Strange(e.to_string()))?;
        self.call(method, path, Some(&body)).map(|_| ())
    }

    /// Commands; the answer.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn order<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, HttpError> {
        self.order_by("POST", path, body)
    }

    /// The same with another method.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn order_by<B: Serialize, T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &B,
    ) -> Result<T, HttpError> {
        let body = serde_json::to_vec(body).map_err(|e| HttpError::Strange(e.to_string()))?;
        parsed(&self.call(method, path, Some(&body))?)
    }

    /// Commands without a body; the answer.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, HttpError> {
        parsed(&self.call("POST", path, None)?)
    }

    /// Posts bytes that are not JSON; waits at most so long for the network.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn post_bytes(&self, path: &str, body: &[u8], patience: Duration) -> Result<(), HttpError> {
        self.exchange("POST", path, Some((OCTETS, body)), Some(patience)).map(|_| ())
    }

    fn call(&self, method: &str, path: &str, body: Option<&[u8]>) -> Result<Vec<u8>, HttpError> {
        self.exchange(method, path, body.map(|body| (JSON, body)), None)
    }

    fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &[u8])>,
        patience: Option<Duration>,
    ) -> Result<Vec<u8>, HttpError> {
        let mut stream = self.connect().map_err(HttpError::Connect)?;
        stream.set_read_timeout(patience).map_err(HttpError::Connect)?;
        stream.set_write_timeout(patience).map_err(HttpError::Connect)?;
        let head = self.head(method, path, body);
        let body = body.map(|(_, bytes)| bytes);
        let mut answer = Vec::new();
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body.unwrap_or(&[])))
            .and_then(|()| stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer))
            .map_err(HttpError::Connect)?;
        let (status, body) = split_answer(&answer).map_err(HttpError::Strange)?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let words = match serde_json::from_slice::<ErrorReport>(&body) {
            Ok(report) => report.error,
            Err(_) => String::from_utf8_lossy(&body).trim().to_owned(),
        };
        Err(HttpError::Refused(status, words))
    }

    fn head(&self, method: &str, path: &str, body: Option<(&str, &[u8])>) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let about_body = match body {
            Some((kind, body)) => {
                format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len())
            }
            None => String::new(),
        };
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}:{}\r\nConnection: close\r\n{about_body}\r\n",
            self.port
        )
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_MAX) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, HttpError> {
    serde_json::from_slice(body).map_err(|e| HttpError::Strange(e.to_string()))
}

/// Status and body of a whole answer, chunks put together.
fn split_answer(answer: &[u8]) -> Result<(u16, Vec<u8>), String> {
    if answer.is_empty() {
        return Err("the node ended before it answered; its log says why".to_owned());
    }
    let end = answer
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .ok_or_else(|| "the answer is not HTTP or was cut off".to_owned())?;
    let (head, body) = answer.split_at(end);
    let body = body.get(4..).unwrap_or(&[]);
    let head = std::str::from_utf8(head).map_err(|e| e.to_string())?;
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .filter(|line| line.starts_with("HTTP/1."))
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| "the answer is not HTTP".to_owned())?;
    let (mut chunked, mut length) = (false, None);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("content-length") {
            length = value.parse::<usize>().ok();
        }
    }
    if chunked {
        return Ok((status, joined_chunks(body)?));
    }
    let body = match length {
        Some(length) => body.get(..length).ok_or_else(|| "the answer was cut off".to_owned())?,
        None => body,
    };
    Ok((status, body.to_vec()))
}

fn joined_chunks(mut rest: &[u8]) -> Result<Vec<u8>, String> {
    let cut_off = || "the answer was cut off".to_owned();
    let mut out = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n").ok_or_else(cut_off)?;
        let (line, after) = rest.split_at(end);
        let digits = line.split(|b| *b == b';').next().unwrap_or(line);
        let text = std::str::from_utf8(digits).map_err(|e| e.to_string())?;
        let length = usize::from_str_radix(text.trim(), 16).map_err(|e| e.to_string())?;
        let after = after.get(2..).ok_or_else(cut_off)?;
        if length == 0 {
            return Ok(out);
        }
        out.extend_from_slice(after.get(..length).ok_or_else(cut_off)?);
        rest = after.get(length.saturating_add(2)..).ok_or_else(cut_off)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_found_with_a_length_in_chunks_and_up_to_the_end() {
        let cases: [&[u8]; 3] = [
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
            b"HTTP/1.0 200 OK\r\n\r\nhello",
        ];
        for answer in cases {
            assert_eq!(split_answer(answer), Ok((200, b"hello".to_vec())));
        }
        let empty: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(split_answer(empty), Ok((404, Vec::new())));
    }

    #[test]
    fn an_answer_that_is_cut_off_is_an_error_at_every_length() {
        let whole: &[u8] =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n";
        assert!(split_answer(whole).is_ok());
        for length in 0..whole.len() - 1 {
            assert!(split_answer(&whole[..length]).is_err(), "{length}");
        }
        let huge: &[u8] =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nx";
        assert!(split_answer(huge).is_err());
        assert!(split_answer(b"SSH-2.0-x\r\n\r\n").is_err());
    }

    #[test]
    fn ipv6_hosts_stand_in_brackets() {
        let api = Api { host: "::1".to_owned(), port: 10_000 };
        let head = api.head("POST", "/x", Some((JSON, b"{}")));
        assert!(head.contains("\r\nHost: [::1]:10000\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Length: 2\r\n") && head.ends_with("\r\n\r\n"));
    }
}
