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
const RESULT: u8 = 8;
const PREPARE: u8 = 9;
const EXECUTE: u8 = 10;
/// In the header: warnings come before the answer.
const WARNINGS: u8 = 8;
/// Longest answer that is taken: a page ends with the row that makes it 1 MiB.
const BODY_BYTES_MAX: usize = 2 << 20;

/// Consistency level.
#[derive(Clone, Copy, Debug)]
pub enum Level {
    /// One replica.
    One = 1,
    /// A majority.
    Quorum = 4,
    /// All replicas.
    All = 5,
}

/// How a conditional write was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// The condition held.
    Applied,
    /// It did not.
    NotApplied,
    /// An error, by its code.
    Error(u32),
}

/// Whether STARTUP is answered by READY or AUTHENTICATE.
pub fn answers(address: &str) -> bool {
    Client::connect(address, Duration::from_secs(2)).is_ok()
}

/// Rows of one answer.
pub struct Page<'a> {
    columns: usize,
    count: u32,
    cells: &'a [u8],
}

impl Page<'_> {
    /// Calls `each` with the cells of every row; null is an empty one.
    ///
    /// # Errors
    /// The page is shorter than it says, or what `each` returns.
    pub fn each_row(&self, mut each: impl FnMut(&[&[u8]]) -> Result<()>) -> Result<()> {
        let (mut at, mut row) = (0, Vec::with_capacity(self.columns));
        for _ in 0..self.count {
            row.clear();
            for _ in 0..self.columns {
                // A negative number is null.
                let length = match number(self.cells, at)? {
                    negative if negative > i32::MAX as u32 => 0,
                    length => length as usize,
                };
                row.push(self.cells.get(at + 4..at + 4 + length).context("a short answer")?);
                at += 4 + length;
            }
            each(&row)?;
        }
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize) -> Result<u32> {
    let bytes = bytes.get(at..at + 4).context("a short answer")?;
    Ok(u32::from_be_bytes(bytes.try_into()?))
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
        self.query_at(statement, Level::One)
    }

    /// Runs a write that may be refused for a while, as more than a flush keeps up with is.
    pub fn write_patiently(&mut self, statement: &str) -> Result<()> {
        self.write_patiently_at(statement, Level::One)
    }

    /// The same at any level.
    pub fn write_patiently_at(&mut self, statement: &str, level: Level) -> Result<()> {
        let mut tries = 0;
        while let Err(error) = self.query_at(statement, level) {
            tries += 1;
            if tries > 600 {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Runs a statement without values.
    pub fn query_at(&mut self, statement: &str, level: Level) -> Result<()> {
        let mut body = u32::try_from(statement.len())?.to_be_bytes().to_vec();
        body.extend_from_slice(statement.as_bytes());
        body.extend_from_slice(&[0, level as u8, 0]);
        match self.ask(QUERY, &body).with_context(|| statement.to_owned())? {
            (ERROR, body) => {
                let text = String::from_utf8_lossy(body.get(6..).unwrap_or_default()).into_owned();
                bail!("{statement}: {text}")
            }
            _ => Ok(()),
        }
    }

    /// Prepares a statement; its id.
    pub fn prepare(&mut self, statement: &str) -> Result<Vec<u8>> {
        let mut body = u32::try_from(statement.len())?.to_be_bytes().to_vec();
        body.extend_from_slice(statement.as_bytes());
        let (opcode, body) = self.ask(PREPARE, &body)?;
        // Kind "prepared", then the id behind its length.
        match (opcode, body.as_slice()) {
            (RESULT, [0, 0, 0, 4, high, low, rest @ ..]) => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                Ok(rest.get(..length).context("a short id")?.to_vec())
            }
            _ => bail!("{statement}: not prepared"),
        }
    }

    /// Executes a prepared conditional statement with one blob at consistency QUORUM and SERIAL.
    pub fn execute_conditional(&mut self, id: &[u8], value: &[u8]) -> Result<Conditional> {
        let mut body = u16::try_from(id.len())?.to_be_bytes().to_vec();
        body.extend_from_slice(id);
        // QUORUM; one value.
        body.extend_from_slice(&[0, Level::Quorum as u8, 1, 0, 1]);
        body.extend_from_slice(&u32::try_from(value.len())?.to_be_bytes());
        body.extend_from_slice(value);
        let (opcode, body) = self.ask(EXECUTE, &body)?;
        Ok(match (opcode, body.as_slice()) {
            (ERROR, [a, b, c, d, ..]) => Conditional::Error(u32::from_be_bytes([*a, *b, *c, *d])),
            // The first cell of the row is [applied], one byte; nothing else when it is true.
            (RESULT, [.., 0, 0, 0, 1, 1]) => Conditional::Applied,
            (RESULT, _) => Conditional::NotApplied,
            (opcode, _) => bail!("an answer of opcode {opcode}"),
        })
    }

    /// Executes a prepared SELECT without values at consistency ONE through all its pages; `each` is
    /// called after every page. How many rows came.
    pub fn rows_with(
        &mut self,
        id: &[u8],
        page: u32,
        mut each: impl FnMut() -> Result<()>,
    ) -> Result<u64> {
        self.pages(id, Level::One, page, |_| each())
    }

    /// The same at any level; `each` is given the cells of every page.
    pub fn pages(
        &mut self,
        id: &[u8],
        level: Level,
        page: u32,
        mut each: impl FnMut(Page<'_>) -> Result<()>,
    ) -> Result<u64> {
        const SKIP_METADATA: u8 = 2;
        const PAGE_SIZE: u8 = 4;
        const PAGING_STATE: u8 = 8;
        const MORE_PAGES: u32 = 2;
        const NO_METADATA: u32 = 4;
        let (mut state, mut rows) = (Vec::new(), 0);
        loop {
            let mut body = u16::try_from(id.len())?.to_be_bytes().to_vec();
            body.extend_from_slice(id);
            let has_state = if state.is_empty() { 0 } else { PAGING_STATE };
            body.extend_from_slice(&[0, level as u8, SKIP_METADATA | PAGE_SIZE | has_state]);
            body.extend_from_slice(&page.to_be_bytes());
            if !state.is_empty() {
                body.extend_from_slice(&u32::try_from(state.len())?.to_be_bytes());
                body.extend_from_slice(&state);
            }
            let (opcode, body) = self.ask(EXECUTE, &body)?;
            if opcode == ERROR {
                bail!("{}", String::from_utf8_lossy(body.get(6..).unwrap_or_default()));
            }
            // Kind "rows", flags, number of columns, the state, number of rows, the cells.
            let flags = number(&body, 4)?;
            if opcode != RESULT || number(&body, 0)? != 2 || flags & NO_METADATA == 0 {
                bail!("an answer that is not rows without metadata");
            }
            let columns = number(&body, 8)? as usize;
            let mut at = 12;
            let next = if flags & MORE_PAGES == 0 {
                None
            } else {
                let length = number(&body, at)? as usize;
                at += 4 + length;
                Some(body.get(at - length..at).context("a short answer")?.to_vec())
            };
            let count = number(&body, at)?;
            each(Page { columns, count, cells: body.get(at + 4..).unwrap_or_default() })?;
            rows += u64::from(count);
            match next {
                None => return Ok(rows),
                Some(next) => state = next,
            }
        }
    }

    fn ask(&mut self, opcode: u8, body: &[u8]) -> Result<(u8, Vec<u8>)> {
        let mut frame = vec![4, 0, 0, 0, opcode];
        frame.extend_from_slice(&u32::try_from(body.len())?.to_be_bytes());
        frame.extend_from_slice(body);
        self.stream.write_all(&frame)?;
        let mut header = [0_u8; 9];
        self.stream.read_exact(&mut header)?;
        let [_, flags, _, _, opcode, length @ ..] = header;
        let length = u32::from_be_bytes(length) as usize;
        if length > BODY_BYTES_MAX {
            bail!("an answer of {length} bytes");
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        if flags & WARNINGS != 0 {
            // Texts behind their lengths, behind their number.
            let number = |at: usize| match body.get(at..at + 2) {
                Some([high, low]) => Ok(usize::from(u16::from_be_bytes([*high, *low]))),
                _ => bail!("a short answer"),
            };
            let mut end = 2;
            for _ in 0..number(0)? {
                end += 2 + number(end)?;
            }
            body = body.get(end..).context("a short answer")?.to_vec();
        }
        Ok((opcode, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_page_are_cut_into_cells_and_a_short_page_is_refused() {
        let bytes = [0, 0, 0, 1, 7, 0, 0, 0, 2, 8, 9, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        let rows = |cells: &[u8]| {
            let mut rows = Vec::new();
            Page { columns: 2, count: 2, cells }.each_row(|row| {
                rows.push(row.iter().map(|cell| cell.to_vec()).collect::<Vec<_>>());
                Ok(())
            })?;
            Ok::<_, anyhow::Error>(rows)
        };
        assert_eq!(rows(&bytes).unwrap(), [[vec![7], vec![8, 9]], [vec![], vec![]]]);
        assert!(rows(&bytes[..bytes.len() - 1]).is_err());
    }
}
