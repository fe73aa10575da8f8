//! Connections over TCP: the driver of the client that talks to a real server.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use blocking_client::{Endpoint, http};
use http_client::Request;

use crate::client::{Client, Stream};
use crate::run::Connected;

/// Longest wait for one answer.
pub const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Opens a connection to `HOST:PORT`.
///
/// # Errors
/// There is no such address, or no server answers there.
pub fn open(target: &str) -> Result<Box<dyn Stream>> {
    open_for(target, ANSWER_MAX)
}

/// The same with another longest wait for one answer.
///
/// # Errors
/// As [`open`].
pub fn open_for(target: &str, wait: Duration) -> Result<Box<dyn Stream>> {
    let address = target
        .to_socket_addrs()
        .with_context(|| format!("address {target}"))?
        .next()
        .ok_or_else(|| anyhow!("no address for {target}"))?;
    let stream = TcpStream::connect_timeout(&address, wait)
        .with_context(|| format!("connect to {target}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(wait))?;
    stream.set_write_timeout(Some(wait))?;
    Ok(Box::new(stream))
}

/// Opens a connection and performs STARTUP.
///
/// # Errors
/// As [`open`] and [`Client::start_as`].
pub fn connect(target: &str, version: u8, user: Option<(&str, &str)>) -> Result<Connected> {
    Client::start_as(open(target)?, version, user)
}

/// Asks the administrative API at `HOST:PORT` to flush or compact a keyspace: posts to
/// `/storage_service/WHAT/KEYSPACE`.
///
/// # Errors
/// No server answers there, or the answer is not 200.
pub fn order(admin: &str, what: &str, keyspace: &str, wait: Duration) -> Result<()> {
    let (host, port) = admin.rsplit_once(':').with_context(|| format!("address {admin}"))?;
    let endpoint = Endpoint {
        host: host.trim_matches(['[', ']']),
        port: port.parse().with_context(|| format!("address {admin}"))?,
        timeout: None,
    };
    let path = format!("/storage_service/{what}/{keyspace}");
    let request =
        Request { method: "POST", path: &path, authorization: None, body: Some((http::JSON, &[])) };
    let answer = http::exchange(&endpoint, &request, Some(wait))
        .with_context(|| format!("{what} at {admin}"))?;
    match answer.status {
        200 => Ok(()),
        status => bail!("{what}: {status} {}", String::from_utf8_lossy(&answer.body)),
    }
}
