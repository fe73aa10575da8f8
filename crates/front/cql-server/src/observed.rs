//! Requests of a connection while observers are installed: records from arrival to answer.
//!
//! Owns: when a request is recorded (`observed_requests` has the records), when an answer waits for the observers. Never:
//! what an observer does with a request. Without an observer nothing is recorded; requests that arrived before the
//! first one was installed are not observed.
//!
//! INV-observed-1: each recorded request reaches the observers once: before its answer, or when its connection ends.
//! A request on the stream of a recorded one is refused, because it would replace the record.

use crate::frame_sink::FrameSink;
use crate::server::Server;
use crate::session::Session;
use cql_wire::{ErrorCode, Request};
use query::{
    Executor, Failure, ObservedFailure, RequestRecord, Result, ResultSink, Step, Taken, Ticket,
};
use std::rc::Rc;

/// Message of a request whose client disconnected before the answer.
const DISCONNECTED: &str = "the client disconnected before the request was answered";

/// Records a request that arrived.
///
/// # Errors
/// An observer cannot take another request.
#[cold]
pub(crate) fn begin(query: &Rc<Executor>, sink: &FrameSink, request: &Request<'_>) -> Result<()> {
    let session = &sink.session;
    if let Some(record) = query::observe(query, &session.client, request)? {
        session.observed.by_stream.borrow_mut().insert(sink.stream, record);
    }
    Ok(())
}

/// Refuses a request on a stream that is in use: the client could not distinguish the two answers.
#[cold]
pub(crate) fn refuse_stream(sink: &FrameSink, ticket: &Ticket, out: &mut Vec<u8>) {
    let FrameSink { session, stream } = sink;
    let failure = Failure::protocol(format!(
        "stream {stream} is in use by a request that was not answered yet"
    ));
    // The failure is not that of the recorded request.
    let record = session.observed.by_stream.borrow_mut().remove(stream);
    sink.failed(out, ticket, &failure);
    if let Some(record) = record {
        session.observed.by_stream.borrow_mut().insert(*stream, record);
    }
}

/// Passes a request whose answer is ready to the observers. Returns what the answer has to wait for.
#[cold]
pub(crate) fn finish(query: &Executor, session: &Session, stream: i16) -> Option<Taken> {
    let record = session.observed.by_stream.borrow_mut().remove(&stream)?;
    query.observers.finish(&session.client, &record)
}

/// A request that ran.
pub(crate) struct About<'r> {
    pub(crate) ticket: &'r Ticket,
    pub(crate) request: &'r Request<'r>,
}

/// Makes a request reach the observers before its answer, whichever way it ended: INV-observed-1. `at_once` holds
/// the answer of a request that did not wait; it is left empty if the answer has to wait now.
#[cold]
pub(crate) fn observe(
    server: &Rc<Server>,
    sink: &FrameSink,
    about: &About<'_>,
    step: Result<Step<Vec<u8>>>,
    at_once: &mut Vec<u8>,
) -> Result<Step<Vec<u8>>> {
    let About { ticket, request } = *about;
    // Both log a client in.
    let is_login = matches!(request, Request::Startup(_) | Request::AuthResponse(_));
    let (session, stream) = (&sink.session, sink.stream);
    if let Some(record) = session.observed.by_stream.borrow_mut().get_mut(&stream) {
        query::note_generated(record, &server.query);
    }
    let (server, sink, ticket) = (server.clone(), sink.clone(), ticket.clone());
    match step {
        // Answered after the commit, see `answer_held`.
        Ok(Step::Held(held)) => Ok(Step::Held(held)),
        Ok(Step::Waits(future)) => Ok(Step::Waits(Box::pin(async move {
            let mut out = future.await;
            if let Some(taken) = finish(&server.query, &sink.session, sink.stream) {
                let was_taken = wait(&server, &sink, &ticket, taken, &mut out).await;
                if is_login && !was_taken {
                    sink.session.refuse_startup();
                }
            }
            out
        }))),
        Ok(Step::Done) => match finish(&server.query, session, stream) {
            None => Ok(Step::Done),
            Some(taken) => {
                let mut out = std::mem::take(at_once);
                Ok(Step::Waits(Box::pin(async move {
                    let was_taken = wait(&server, &sink, &ticket, taken, &mut out).await;
                    if is_login && !was_taken {
                        sink.session.refuse_startup();
                    }
                    out
                })))
            }
        },
        Err(failure) => {
            session.observed.note_planned(stream, &server.query, request);
            session.fail_observed(stream, &failure);
            match finish(&server.query, session, stream) {
                None => Err(failure),
                Some(taken) => Ok(Step::Waits(Box::pin(async move {
                    // The request failed already.
                    let _ = taken.await;
                    let mut out = server.query.buffer();
                    server.query.counters.failed(failure.code());
                    sink.failed(&mut out, &ticket, &failure);
                    out
                }))),
            }
        }
    }
}

/// Waits for the observers; answers their failure instead of the result. Returns false for their failure.
pub(crate) async fn wait(
    server: &Server,
    sink: &FrameSink,
    ticket: &Ticket,
    taken: Taken,
    out: &mut Vec<u8>,
) -> bool {
    let Err(failure) = taken.await else { return true };
    out.clear();
    server.query.counters.failed(failure.code());
    sink.failed(out, ticket, &failure);
    false
}

/// A committed write whose answer waits for the observers.
pub(crate) struct WaitingAnswer {
    pub(crate) sink: FrameSink,
    pub(crate) ticket: Ticket,
    pub(crate) taken: Taken,
    pub(crate) answer: Vec<u8>,
}

/// Passes the unanswered requests of a connection that ends.
#[cold]
pub(crate) fn abandon(query: &Executor, session: &Session) {
    let left = std::mem::take(&mut *session.observed.by_stream.borrow_mut());
    let mut left: Vec<(i16, RequestRecord)> = left.into_iter().collect();
    left.sort_by_key(|(stream, _)| *stream);
    for (_, mut record) in left {
        if record.failure.is_none() {
            let (code, message) = (ErrorCode::ServerError, DISCONNECTED.to_owned());
            record.failure = Some(ObservedFailure { code, message });
        }
        // No answer is left that could wait.
        drop(query.observers.finish(&session.client, &record));
    }
}
