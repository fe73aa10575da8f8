//! Results in memory: typed rows for the node itself, which reads its own tables without a frame.

use crate::client::ClientState;
use crate::description::{Described, Description};
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::prepared::{Prepared, PreparedId};
use crate::sink::{Describe, MadeRows, PageEnd, ResultPage, ResultSink};
use crate::ticket::Ticket;
use cql_plan::SchemaEvent;
use std::rc::Rc;
use std::sync::Arc;
use stdx::Uuid;
use types::CqlType;
use types::wire::Entries;

/// Takes the result of a request as a [`MemoryResult`].
#[derive(Clone)]
pub struct RowsSink {
    client: Rc<ClientState>,
}

/// The result of one request.
#[derive(Debug, Default)]
pub struct MemoryResult {
    /// The outcome.
    pub outcome: Outcome,
    /// Warnings to the client.
    pub warnings: Vec<String>,
}

/// Outcome of a request.
#[derive(Debug, Default)]
pub enum Outcome {
    /// Done, without rows.
    #[default]
    Void,
    /// A page of rows.
    Rows(Rows),
    /// USE of this keyspace.
    KeyspaceUsed(String),
    /// The schema was changed.
    SchemaChanged(SchemaEvent),
    /// A statement was prepared.
    Prepared(PreparedId),
    /// It failed.
    Failed(Failure),
}

/// A page of rows.
#[derive(Debug)]
pub struct Rows {
    columns: Arc<Vec<Described>>,
    count: u32,
    /// For each value its length as an `i32`, -1 for null, and its bytes.
    body: Vec<u8>,
    /// Start of the next page; `None` on the last one.
    pub paging_state: Option<Vec<u8>>,
}

/// One row, its values in the order of the columns.
#[derive(Debug)]
pub struct Row<'r> {
    columns: &'r [Described],
    values: Vec<Option<&'r [u8]>>,
}

impl RowsSink {
    /// Creates a sink for requests on behalf of this client.
    pub fn new(client: Rc<ClientState>) -> RowsSink {
        RowsSink { client }
    }
}

impl Rows {
    /// Its columns.
    pub fn columns(&self) -> &[Described] {
        &self.columns
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns true if the page has no row; later pages may have more.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The rows in their order.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        let mut rest = self.body.as_slice();
        (0..self.count).map(move |_| {
            let values = self.columns.iter().map(|_| next_value(&mut rest)).collect();
            Row { columns: &self.columns, values }
        })
    }
}

/// Takes the next value off the encoded rows. They were encoded in this process.
fn next_value<'r>(rest: &mut &'r [u8]) -> Option<&'r [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(i32::from_be_bytes(*length));
    let (value, after) = match length {
        Ok(length) => after.split_at_checked(length).map(|(value, after)| (Some(value), after))?,
        Err(_) => (None, after),
    };
    *rest = after;
    value
}

impl<'r> Row<'r> {
    /// The serialised value of a column; `None`: it is null, or there is no such column.
    pub fn bytes(&self, column: &str) -> Option<&'r [u8]> {
        let at = self.columns.iter().position(|c| &*c.name == column)?;
        self.values.get(at).copied().flatten()
    }

    fn fixed<const N: usize>(&self, column: &str, ty: &CqlType) -> Option<[u8; N]> {
        let is_of_type = self.columns.iter().any(|c| &*c.name == column && c.ty == *ty);
        self.bytes(column).filter(|_| is_of_type)?.try_into().ok()
    }

    /// A `text`; `None` as of [`Row::bytes`].
    pub fn text(&self, column: &str) -> Option<&'r str> {
        std::str::from_utf8(self.bytes(column)?).ok()
    }

    /// An `int`; `None` where it is of another type too.
    pub fn int(&self, column: &str) -> Option<i32> {
        self.fixed(column, &CqlType::Int).map(i32::from_be_bytes)
    }

    /// A `bigint`; `None` where it is of another type too.
    pub fn bigint(&self, column: &str) -> Option<i64> {
        self.fixed(column, &CqlType::Bigint).map(i64::from_be_bytes)
    }

    /// A `timestamp` in milliseconds since 1970; `None` where it is of another type too.
    pub fn timestamp_millis(&self, column: &str) -> Option<i64> {
        self.fixed(column, &CqlType::Timestamp).map(i64::from_be_bytes)
    }

    /// A `timeuuid`; `None` where it is of another type too.
    pub fn timeuuid(&self, column: &str) -> Option<Uuid> {
        self.fixed(column, &CqlType::Timeuuid).map(Uuid::from_bytes)
    }

    /// Serialised keys and values of a map; none where the value is no map.
    pub fn entries(&self, column: &str) -> Vec<(&'r [u8], &'r [u8])> {
        let entries = self.bytes(column).and_then(|bytes| Entries::new(bytes).ok());
        let entries = entries.map(|entries| entries.collect::<std::result::Result<Vec<_>, _>>());
        entries.and_then(std::result::Result::ok).unwrap_or_default()
    }
}

/// A page of rows under construction.
pub struct MemoryPage<'a> {
    answer: &'a mut MemoryResult,
    ticket: &'a Ticket,
    columns: Arc<Vec<Described>>,
    body: Vec<u8>,
}

impl ResultPage for MemoryPage<'_> {
    fn body(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }

    fn finish(self, end: PageEnd<'_>) -> Result<()> {
        self.answer.warnings = self.ticket.warnings();
        self.answer.warnings.extend_from_slice(end.warnings);
        self.answer.outcome = Outcome::Rows(Rows {
            columns: self.columns,
            count: end.rows,
            body: self.body,
            paging_state: end.paging_state.map(<[u8]>::to_vec),
        });
        Ok(())
    }
}

impl MemoryResult {
    fn set(&mut self, ticket: &Ticket, warnings: &[&str], outcome: Outcome) {
        self.warnings = ticket.warnings();
        self.warnings.extend(warnings.iter().map(|warning| (*warning).to_owned()));
        self.outcome = outcome;
    }
}

impl ResultSink for RowsSink {
    type Answer = MemoryResult;
    type Page<'a> = MemoryPage<'a>;

    // The frame of another node has no types of ours.
    const TAKES_FORWARDED: bool = false;

    fn client(&self) -> &ClientState {
        &self.client
    }

    fn begin(&self, _: &Executor) -> MemoryResult {
        MemoryResult::default()
    }

    fn bytes(answer: &MemoryResult) -> usize {
        match &answer.outcome {
            Outcome::Rows(rows) => rows.body.len(),
            _ => 0,
        }
    }

    fn page<'a>(
        &'a self,
        answer: &'a mut MemoryResult,
        ticket: &'a Ticket,
        columns: &Description,
        _: Describe,
    ) -> Result<MemoryPage<'a>> {
        let columns = columns.shared_columns().clone();
        Ok(MemoryPage { answer, ticket, columns, body: Vec::new() })
    }

    fn rows<'r, R>(
        &self,
        answer: &mut MemoryResult,
        ticket: &Ticket,
        made: MadeRows<'r, R>,
    ) -> Result<()>
    where
        R: Iterator,
        R::Item: IntoIterator<Item = Option<&'r [u8]>>,
    {
        let (mut body, mut count) = (Vec::new(), 0_u32);
        for row in made.rows {
            for value in row {
                let length = value.map_or(Ok(-1), |value| i32::try_from(value.len()));
                let length = length.map_err(|_| Failure::invalid("a value is too long"))?;
                body.extend_from_slice(&length.to_be_bytes());
                body.extend_from_slice(value.unwrap_or_default());
            }
            count = count.saturating_add(1);
        }
        let columns = made.columns.shared_columns().clone();
        let paging_state = made.paging_state.map(<[u8]>::to_vec);
        let rows = Rows { columns, count, body, paging_state };
        answer.set(ticket, made.warnings, Outcome::Rows(rows));
        Ok(())
    }

    fn void(&self, answer: &mut MemoryResult, ticket: &Ticket, warnings: &[&str]) {
        answer.set(ticket, warnings, Outcome::Void);
    }

    fn keyspace_used(
        &self,
        answer: &mut MemoryResult,
        ticket: &Ticket,
        keyspace: &str,
    ) -> Result<()> {
        answer.set(ticket, &[], Outcome::KeyspaceUsed(keyspace.to_owned()));
        Ok(())
    }

    fn schema_changed(
        &self,
        answer: &mut MemoryResult,
        ticket: &Ticket,
        event: &SchemaEvent,
        warnings: &[&str],
    ) -> Result<()> {
        answer.set(ticket, warnings, Outcome::SchemaChanged(event.clone()));
        Ok(())
    }

    fn prepared(
        &self,
        answer: &mut MemoryResult,
        ticket: &Ticket,
        prepared: &Prepared,
        warning: Option<&str>,
    ) -> Result<()> {
        answer.set(ticket, warning.as_slice(), Outcome::Prepared(prepared.id));
        Ok(())
    }

    fn forwarded(&self, _: &mut MemoryResult, _: &Ticket, _: &[u8]) -> bool {
        false
    }

    fn failed(&self, answer: &mut MemoryResult, ticket: &Ticket, failure: &Failure) {
        answer.set(ticket, &[], Outcome::Failed(failure.clone()));
    }
}
