//! Connections over TCP: the driver of the client that talks to a real server.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::client::{Client, Stream};
use crate::run::Connected;

/// Longest wait for one answer.
const ANSWER_SECONDS_MAX: u64 = 60;

/// Opens a connection to `HOST:PORT`.
///
/// # Errors
/// There is no such address, or nobody answers there.
pub fn open(target: &str) -> Result<Box<dyn Stream>> {
    let address = target
        .to_socket_addrs()
        .with_context(|| format!("address {target}"))?
        .next()
        .ok_or_else(|| anyhow!("no address for {target}"))?;
    let wait = Duration::from_secs(ANSWER_SECONDS_MAX);
    let stream = TcpStream::connect_timeout(&address, wait)
        .with_context(|| format!("connect to {target}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(wait))?;
    stream.set_write_timeout(Some(wait))?;
    Ok(Box::new(stream))
}

/// Opens a connection and says STARTUP.
///
/// # Errors
/// As [`open`] and [`Client::start_as`].
pub fn connect(target: &str, version: u8, user: Option<(&str, &str)>) -> Result<Connected> {
    Client::start_as(open(target)?, version, user)
}
