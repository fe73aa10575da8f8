//! Destinations of the results of a statement: frames of a connection, rows in memory.
//!
//! Owns: the seam between execution and the fronts. A front implements [`ResultSink`]; execution is generic over
//! it, so that a row of a prepared read is encoded straight into the front's buffer.

use crate::client::ClientState;
use crate::description::Description;
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::prepared::Prepared;
use crate::ticket::Ticket;
use cql_plan::SchemaEvent;

/// Description of a result for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Describe {
    /// All columns.
    Full,
    /// None: the client knows them.
    Skip,
    /// All columns and their new id.
    Changed,
}

/// Takes the result of one request, in the form of a front. Clones are the same.
pub trait ResultSink: Clone + 'static {
    /// The answer, while it is built and when it is complete.
    type Answer: 'static;
    /// A page of rows under construction.
    type Page<'a>: ResultPage;

    /// True if the sink accepts answers of other nodes ([`ResultSink::forwarded`]); otherwise
    /// statements are executed here.
    const TAKES_FORWARDED: bool = true;

    /// Returns the client that the request is executed for.
    fn client(&self) -> &ClientState;

    /// An empty answer.
    fn begin(&self, executor: &Executor) -> Self::Answer;

    /// Memory of an answer, in bytes.
    fn bytes(answer: &Self::Answer) -> usize;

    /// Begins a page of rows of a read.
    ///
    /// # Errors
    /// Columns that cannot be described.
    fn page<'a>(
        &'a self,
        answer: &'a mut Self::Answer,
        ticket: &'a Ticket,
        columns: &Description,
        describe: Describe,
    ) -> Result<Self::Page<'a>>;

    /// Takes rows that were made, not read.
    ///
    /// # Errors
    /// A value that is too long.
    fn rows<'r, R>(
        &self,
        answer: &mut Self::Answer,
        ticket: &Ticket,
        made: MadeRows<'r, R>,
    ) -> Result<()>
    where
        R: Iterator,
        R::Item: IntoIterator<Item = Option<&'r [u8]>>;

    /// Done, without rows.
    fn void(&self, answer: &mut Self::Answer, ticket: &Ticket, warnings: &[&str]);

    /// USE was executed.
    ///
    /// # Errors
    /// A name that is too long.
    fn keyspace_used(
        &self,
        answer: &mut Self::Answer,
        ticket: &Ticket,
        keyspace: &str,
    ) -> Result<()>;

    /// The schema was changed.
    ///
    /// # Errors
    /// A name that is too long.
    fn schema_changed(
        &self,
        answer: &mut Self::Answer,
        ticket: &Ticket,
        event: &SchemaEvent,
        warnings: &[&str],
    ) -> Result<()>;

    /// A statement was prepared.
    ///
    /// # Errors
    /// A name that is too long.
    fn prepared(
        &self,
        answer: &mut Self::Answer,
        ticket: &Ticket,
        prepared: &Prepared,
        warning: Option<&str>,
    ) -> Result<()>;

    /// Takes the answer that another node built for this client: a whole frame of its protocol
    /// version, neither compressed nor traced. Returns false for any other bytes.
    fn forwarded(&self, answer: &mut Self::Answer, ticket: &Ticket, frame: &[u8]) -> bool;

    /// The request failed. What was added to the answer for it is as it was.
    fn failed(&self, answer: &mut Self::Answer, ticket: &Ticket, failure: &Failure);
}

/// A page of rows under construction. Dropped unfinished, the answer is as it was before.
pub trait ResultPage {
    /// Where rows are appended: for each value its length as an `i32`, -1 for null, and its bytes.
    fn body(&mut self) -> &mut Vec<u8>;

    /// The page is complete.
    ///
    /// # Errors
    /// It is too large.
    fn finish(self, end: PageEnd<'_>) -> Result<()>;
}

/// State of a page at its end.
#[derive(Clone, Copy, Debug)]
pub struct PageEnd<'r> {
    /// Number of rows in the body.
    pub rows: u32,
    /// Start of the next page.
    pub paging_state: Option<&'r [u8]>,
    /// Warnings to the client beside those of the ticket.
    pub warnings: &'r [String],
}

/// A page of rows that were made, not read.
pub struct MadeRows<'r, R> {
    /// Its columns.
    pub columns: &'r Description,
    /// Form of the description.
    pub describe: Describe,
    /// Values in the order of the columns.
    pub rows: R,
    /// Start of the next page.
    pub paging_state: Option<&'r [u8]>,
    /// Warnings to the client.
    pub warnings: &'r [&'r str],
}
