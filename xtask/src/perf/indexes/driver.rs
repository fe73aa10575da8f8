//! Executions of one prepared statement, several in flight on each of a few connections.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use blocking_client::{CqlConnection, ReadWait};
use cql_wire::request::RequestOptions;
use cql_wire::{BoundValue, Consistency, QueryParameters, Request, ResponseBody, ValueList};

use super::super::cql::{Client, Page};

/// Connections of a run, each with its own thread.
const CONNECTIONS: u64 = 2;
/// Requests in flight on each connection.
const IN_FLIGHT: i16 = 16;
/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Page size of SELECT: every answer here has one page.
const PAGE_ROWS: i32 = 5_000;
/// How often writes may be refused in one run, when flushes do not keep up, and the pause after each refusal.
const REFUSALS_MAX: u32 = 2_000;
const REFUSAL_PAUSE: Duration = Duration::from_millis(20);

/// Values that an execution is bound to, by its number.
pub type Values<'a> = dyn Fn(u64) -> Vec<Vec<u8>> + Sync + 'a;
/// Compares an answer with the expected one, by the number of the execution.
pub type Check<'a> = dyn Fn(u64, &Page<'_>) -> Result<()> + Sync + 'a;

/// One statement and its executions.
pub struct Work<'a> {
    /// Text of the statement.
    pub statement: &'a str,
    /// Values of each execution.
    pub values: &'a Values<'a>,
    /// Check of each answer; `None` for a write, which is repeated when it is refused.
    pub check: Option<&'a Check<'a>>,
}

/// Executes the statement once for each number, at consistency ONE.
///
/// # Errors
/// The server refuses the statement, an answer is wrong or none arrives in time.
pub fn run(address: &str, work: &Work<'_>, numbers: Range<u64>) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|of| {
                let own = numbers.clone().skip(of as usize).step_by(CONNECTIONS as usize);
                scope.spawn(move || Lane::open(address, work)?.run(own))
            })
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(result) => result.with_context(|| work.statement.to_owned())?,
                Err(_) => bail!("a thread of the client ended"),
            }
        }
        Ok(())
    })
}

/// One connection with its requests in flight.
struct Lane<'a> {
    connection: CqlConnection<TcpStream>,
    id: Vec<u8>,
    work: &'a Work<'a>,
    /// Number of the execution of each stream.
    flying: Vec<u64>,
    /// Refused writes, to be sent again.
    refused: VecDeque<u64>,
    refusals: u32,
}

impl<'a> Lane<'a> {
    fn open(address: &str, work: &'a Work<'a>) -> Result<Lane<'a>> {
        let mut client = Client::connect(address, ANSWER_MAX)?;
        let id = client.prepare(work.statement)?;
        Ok(Lane {
            connection: client.into_connection(),
            id,
            work,
            flying: vec![0; IN_FLIGHT as usize],
            refused: VecDeque::new(),
            refusals: 0,
        })
    }

    fn run(&mut self, mut numbers: impl Iterator<Item = u64>) -> Result<()> {
        let mut free: Vec<i16> = (0..IN_FLIGHT).collect();
        loop {
            while let Some(stream) = free.pop() {
                let Some(number) = self.refused.pop_front().or_else(|| numbers.next()) else {
                    free.push(stream);
                    break;
                };
                self.send(stream, number)?;
            }
            if free.len() == self.flying.len() {
                return Ok(());
            }
            self.connection.flush()?;
            self.connection.fill(ReadWait::Stream)?;
            self.receive(&mut free)?;
        }
    }

    fn send(&mut self, stream: i16, number: u64) -> Result<()> {
        let bound = (self.work.values)(number);
        let mut values = ValueList::new();
        for value in &bound {
            values.push(BoundValue::Bytes(value))?;
        }
        let is_read = self.work.check.is_some();
        let parameters = QueryParameters {
            values: values.values(),
            skip_metadata: is_read,
            page_size: is_read.then_some(PAGE_ROWS),
            ..QueryParameters::new(Consistency::One)
        };
        let request = Request::Execute { id: &self.id, result_metadata_id: None, parameters };
        self.connection.send(&request, &RequestOptions { stream, ..RequestOptions::default() })?;
        if let Some(flying) = self.flying.get_mut(usize::try_from(stream)?) {
            *flying = number;
        }
        Ok(())
    }

    /// Takes the answers that have arrived.
    fn receive(&mut self, free: &mut Vec<i16>) -> Result<()> {
        let Lane { connection, work, flying, refused, refusals, .. } = self;
        let (before, mut failed) = (*refusals, None);
        connection.drain(|received| {
            free.push(received.stream);
            let at = usize::try_from(received.stream).ok();
            let Some(number) = at.and_then(|at| flying.get(at)).copied() else { return };
            let answer = match (received.response.body, work.check) {
                (ResponseBody::Rows(rows), Some(check)) => check(number, &Page::new(&rows)),
                (ResponseBody::Void, None) => Ok(()),
                (ResponseBody::Error { .. }, None) if *refusals < REFUSALS_MAX => {
                    *refusals += 1;
                    refused.push_back(number);
                    Ok(())
                }
                (ResponseBody::Error { message, .. }, _) => Err(anyhow::anyhow!("{message}")),
                _ => Err(anyhow::anyhow!("an answer of another kind")),
            };
            if let Err(error) = answer {
                failed.get_or_insert(error.context(format!("execution {number}")));
            }
        })?;
        if *refusals > before {
            std::thread::sleep(REFUSAL_PAUSE);
        }
        failed.map_or(Ok(()), Err)
    }
}
