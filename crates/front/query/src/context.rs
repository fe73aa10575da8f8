//! Context of a request, and how it ends.

use crate::executor::Executor;
use crate::failure::Result;
use crate::internal_queries;
use crate::sink::ResultSink;
use crate::ticket::Ticket;
use cql_plan::plan::{BoundValue, ExecuteOptions};
use cql_wire::{Consistency, QueryParameters, WriteType};
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use stdx::{TimestampMicros, WallMicros};

/// A request that waits; gives its answer.
pub type Waiting<A> = Pin<Box<dyn Future<Output = A>>>;

/// A local write that was applied and waits for a commit; then it is answered without rows.
pub struct HeldWrite {
    /// Ticket of the request.
    pub ticket: Ticket,
    /// The level it was asked for.
    pub consistency: Consistency,
    /// Write type that a failure reports.
    pub write_type: WriteType,
    /// Warnings to the client.
    pub warnings: Vec<String>,
}

/// Progress of a request that ran without waiting.
pub enum Step<A> {
    /// Answered.
    Done,
    /// Applied; the answer waits for the commit.
    Held(HeldWrite),
    /// To be polled.
    Waits(Waiting<A>),
}

/// Context of a request.
pub struct Cx<'a, S: ResultSink> {
    /// The executor of the shard.
    pub executor: &'a Rc<Executor>,
    /// Destination of the result.
    pub sink: &'a S,
    /// The request.
    pub ticket: &'a Ticket,
    /// Receives an answer that is ready at once.
    pub out: &'a mut S::Answer,
}

/// Values of one statement.
pub(crate) type Values<'v> = SmallVec<[BoundValue<'v>; 16]>;

impl<S: ResultSink> Cx<'_, S> {
    /// The execution's terms, from the request and this shard's clock.
    pub(crate) fn options<'o>(&'o self, parameters: &QueryParameters<'o>) -> ExecuteOptions<'o> {
        let executor = self.executor;
        let wall = executor.rt.wall();
        let timestamp = match parameters.timestamp {
            Some(timestamp) => TimestampMicros(timestamp),
            None => executor.next_timestamp(wall),
        };
        let now = match parameters.now_in_seconds {
            Some(seconds) => WallMicros(i64::from(seconds).saturating_mul(1_000_000)),
            None => wall,
        };
        ExecuteOptions {
            now,
            clock: wall,
            default_timestamp: timestamp,
            page_size: parameters.page_size.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
            paging_state: parameters.paging_state,
            protocol_version: self.sink.client().negotiated.get().version.number(),
            uuids: &executor.uuids,
            watch: self.ticket.watch(),
        }
    }
}

/// Ends a request that waited: writes its trace, then its answer or failure.
pub(crate) async fn finish<S: ResultSink>(
    executor: &Rc<Executor>,
    sink: &S,
    ticket: &Ticket,
    result: Result<()>,
    answer: impl FnOnce(&mut S::Answer) -> Result<()>,
) -> S::Answer {
    if let Some(trace) = &ticket.trace {
        if result.is_err() {
            trace.note("Request failed".to_owned());
        }
        internal_queries::write_trace(executor, trace, sink.client().peer.ip()).await;
    }
    let mut out = sink.begin(executor);
    if let Err(failure) = result.and_then(|()| answer(&mut out)) {
        executor.counters.failed(failure.code());
        sink.failed(&mut out, ticket, &failure);
    }
    out
}

/// Like [`finish`], for a request that is answered without rows.
pub(crate) async fn finish_void<S: ResultSink>(
    executor: &Rc<Executor>,
    sink: &S,
    ticket: &Ticket,
    result: Result<()>,
    warnings: &[String],
) -> S::Answer {
    finish(executor, sink, ticket, result, |out| {
        let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
        sink.void(out, ticket, &warnings);
        Ok(())
    })
    .await
}
