//! CQL (v4) requests of the comparison itself: does the server answer, and how long does one
//! statement take.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use blocking_client::{CqlConnection, CqlError};
use cql_client::{Login, LoginError};
use cql_wire::request::RequestOptions;
use cql_wire::{
    BoundValue, Consistency, ProtocolVersion, QueryParameters, Request, Response, ResponseBody,
    Rows, ValueList,
};

/// Longest answer that is taken: a page ends with the row that makes it 1 MiB.
const FRAME_BYTES_MAX: usize = 2 << 20;

/// Consistency level.
#[derive(Clone, Copy, Debug)]
pub enum Level {
    /// One replica.
    One,
    /// A majority.
    Quorum,
    /// All replicas.
    All,
}

impl Level {
    fn parameters<'a>(self) -> QueryParameters<'a> {
        QueryParameters::new(match self {
            Level::One => Consistency::One,
            Level::Quorum => Consistency::Quorum,
            Level::All => Consistency::All,
        })
    }
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

/// Returns true if STARTUP is answered by READY or AUTHENTICATE.
pub fn answers(address: &str) -> bool {
    Client::connect(address, Duration::from_secs(2)).is_ok()
}

/// Rows of one answer.
pub struct Page<'a> {
    rows: &'a Rows<'a>,
}

impl<'a> Page<'a> {
    /// The rows of an answer.
    pub fn new(rows: &'a Rows<'a>) -> Page<'a> {
        Page { rows }
    }

    /// Calls `each` with the cells of every row; null is an empty one.
    ///
    /// # Errors
    /// What `each` returns.
    pub fn each_row(&self, mut each: impl FnMut(&[&[u8]]) -> Result<()>) -> Result<()> {
        let columns = self.rows.metadata.column_count as usize;
        let mut row = Vec::with_capacity(columns);
        for value in self.rows.values() {
            row.push(value.unwrap_or_default());
            if row.len() == columns {
                each(&row)?;
                row.clear();
            }
        }
        Ok(())
    }
}

/// One connection, one request at a time.
pub struct Client {
    connection: CqlConnection<TcpStream>,
}

impl Client {
    /// Connects and sends STARTUP. A server that asks for a password is one that answers.
    pub fn connect(address: &str, wait_max: Duration) -> Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(wait_max))?;
        let mut connection = CqlConnection::new(stream, ProtocolVersion::V4, FRAME_BYTES_MAX);
        match connection.login(Login::plain(), None) {
            Ok(()) | Err(CqlError::Login(LoginError::NoCredentials(_))) => {
                Ok(Client { connection })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The connection, for callers that keep several requests in flight.
    pub fn into_connection(self) -> CqlConnection<TcpStream> {
        self.connection
    }

    /// Runs a statement without values at consistency ONE.
    pub fn query(&mut self, statement: &str) -> Result<()> {
        self.query_at(statement, Level::One)
    }

    /// Runs a write that may be refused for a while, when flushes do not keep up.
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
    pub fn query_at(&mut self, query: &str, level: Level) -> Result<()> {
        let request = Request::Query { query, parameters: level.parameters() };
        let refused = self.ask(&request, |response| match response.body {
            ResponseBody::Error { message, .. } => Some(message.to_owned()),
            _ => None,
        });
        match refused.with_context(|| query.to_owned())? {
            Some(text) => bail!("{query}: {text}"),
            None => Ok(()),
        }
    }

    /// Prepares a statement; its id.
    pub fn prepare(&mut self, query: &str) -> Result<Vec<u8>> {
        let id =
            self.ask(&Request::Prepare { query, keyspace: None }, |response| {
                match response.body {
                    ResponseBody::Prepared(prepared) => Some(prepared.id.to_vec()),
                    _ => None,
                }
            })?;
        id.with_context(|| format!("{query}: not prepared"))
    }

    /// Executes a prepared conditional statement with one blob at consistency QUORUM and SERIAL.
    pub fn execute_conditional(&mut self, id: &[u8], value: &[u8]) -> Result<Conditional> {
        let mut values = ValueList::new();
        values.push(BoundValue::Bytes(value))?;
        let parameters = QueryParameters { values: values.values(), ..Level::Quorum.parameters() };
        self.ask(&execute(id, parameters), |response| match response.body {
            ResponseBody::Error { error, .. } => {
                Ok(Conditional::Error(error.code().number().unsigned_abs()))
            }
            // The first cell of the row is [applied].
            ResponseBody::Rows(rows) => Ok(match rows.values().next() {
                Some(Some([1])) => Conditional::Applied,
                _ => Conditional::NotApplied,
            }),
            other => bail!("an answer that is not rows: {other:?}"),
        })?
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
        let page_size = Some(i32::try_from(page)?);
        let (mut state, mut count): (Option<Vec<u8>>, u64) = (None, 0);
        loop {
            let parameters = QueryParameters {
                skip_metadata: true,
                page_size,
                paging_state: state.as_deref(),
                ..level.parameters()
            };
            let next = self.ask(&execute(id, parameters), |response| {
                let rows = match response.body {
                    ResponseBody::Rows(rows) if rows.metadata.columns.is_none() => rows,
                    ResponseBody::Error { message, .. } => bail!("{message}"),
                    _ => bail!("an answer that is not rows without metadata"),
                };
                each(Page::new(&rows))?;
                count += u64::from(rows.row_count());
                Ok(rows.metadata.paging_state.map(<[u8]>::to_vec))
            })??;
            match next {
                None => return Ok(count),
                next => state = next,
            }
        }
    }

    fn ask<A>(
        &mut self,
        request: &Request<'_>,
        convert: impl FnOnce(Response<'_>) -> A,
    ) -> Result<A> {
        let options = RequestOptions::default();
        Ok(self.connection.request(request, &options, None, |got| convert(got.response))?)
    }
}

fn execute<'a>(id: &'a [u8], parameters: QueryParameters<'a>) -> Request<'a> {
    Request::Execute { id, result_metadata_id: None, parameters }
}
