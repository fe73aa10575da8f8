//! As much of the protocol (v4) as the comparison needs itself: is there an answer, and how long
//! does one statement take.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

const ERROR: u8 = 0;
const STARTUP: u8 = 1;
const READY: u8 = 2;
const AUTHENTICATE: u8 = 3;
const QUERY: u8 = 7;
/// Longest answer that is taken.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Whether STARTUP is answered by READY or AUTHENTICATE.
pub fn answers(address: &str) -> bool {
    Client::connect(address, Duration::from_secs(2)).is_ok()
}

/// One connection, one request at a time.
pub struct Client {
    stream: TcpStream,
}

impl Client {
    /// Connects and sends STARTUP.
    pub fn connect(address: &str, wait_max: Duration) -> Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(wait_max))?;
        let mut client = Client { stream };
        let mut body = vec![0, 1, 0, 11];
        body.extend_from_slice(b"CQL_VERSION");
        body.extend_from_slice(&[0, 5]);
        body.extend_from_slice(b"3.0.0");
        match client.ask(STARTUP, &body)? {
            (READY | AUTHENTICATE, _) => Ok(client),
            (opcode, _) => bail!("STARTUP was answered by opcode {opcode}"),
        }
    }

    /// Runs a statement without values at consistency ONE.
    pub fn query(&mut self, statement: &str) -> Result<()> {
        let mut body = u32::try_from(statement.len())?.to_be_bytes().to_vec();
        body.extend_from_slice(statement.as_bytes());
        body.extend_from_slice(&[0, 1, 0]);
        match self.ask(QUERY, &body).with_context(|| statement.to_owned())? {
            (ERROR, body) => {
                let text = String::from_utf8_lossy(body.get(6..).unwrap_or_default()).into_owned();
                bail!("{statement}: {text}")
            }
            _ => Ok(()),
        }
    }

    fn ask(&mut self, opcode: u8, body: &[u8]) -> Result<(u8, Vec<u8>)> {
        let mut frame = vec![4, 0, 0, 0, opcode];
        frame.extend_from_slice(&u32::try_from(body.len())?.to_be_bytes());
        frame.extend_from_slice(body);
        self.stream.write_all(&frame)?;
        let mut header = [0_u8; 9];
        self.stream.read_exact(&mut header)?;
        let [_, _, _, _, opcode, length @ ..] = header;
        let length = u32::from_be_bytes(length) as usize;
        if length > BODY_BYTES_MAX {
            bail!("an answer of {length} bytes");
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((opcode, body))
    }
}
