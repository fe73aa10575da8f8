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
use query::{Executor, Failure, ObservedFailure, Result, ResultSink, Step, Taken, Ticket, Waiting};
use std::rc::Rc;
use stdx::{Instant, WallMicros};

/// Message of a request whose client disconnected before the answer.
const DISCONNECTED: &str = "the client disconnected before the request was answered";

/// Records a request that arrived at an instant.
///
/// # Errors
/// An observer cannot take another request.
#[inline(never)]
pub(crate) fn begin(
    query: &Rc<Executor>,
    sink: &FrameSink,
    request: &Request<'_>,
    arrived: Instant,
) -> Result<()> {
    let session = &sink.session;
    if let Some(record) = query::observe(query, &session.client, request, arrived)? {
        session.observed.insert(sink.stream, record);
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
    let record = session.observed.remove(*stream);
    sink.failed(out, ticket, &failure);
    if let Some(record) = record {
        session.observed.insert(*stream, record);
    }
}

/// Passes a request whose answer is ready to the observers; `answered` is the time if it is not that of its arrival.
/// Returns what the answer has to wait for.
#[inline(never)]
pub(crate) fn finish(
    query: &Executor,
    session: &Session,
    stream: i16,
    answered: Option<WallMicros>,
) -> Option<Taken> {
    let mut record = session.observed.remove(stream)?;
    if let Some(answered) = answered {
        record.answered = answered;
    }
    query.observers.finish(&session.client, &record)
}

/// A request that ran.
pub(crate) struct About<'r> {
    pub(crate) ticket: &'r Ticket,
    pub(crate) request: &'r Request<'r>,
    /// Offset in the frames of its connection at which its answer begins, if it did not wait.
    pub(crate) answer_at: usize,
}

/// Makes a request reach the observers before its answer, whichever way it ended: INV-observed-1. `frames` holds
/// the answer of a request that did not wait, which is taken out if it has to wait now.
#[inline(never)]
pub(crate) fn observe(
    server: &Rc<Server>,
    sink: &FrameSink,
    about: &About<'_>,
    step: Result<Step<Vec<u8>>>,
    frames: &mut Vec<u8>,
) -> Result<Step<Vec<u8>>> {
    let About { ticket, request, answer_at } = *about;
    let (session, stream) = (&sink.session, sink.stream);
    if server.query.observers.want_details() {
        session.observed.note_generated(stream, &server.query);
    }
    match step {
        // Answered after the commit, see `answer_held`.
        Ok(Step::Held(held)) => Ok(Step::Held(held)),
        Ok(Step::Waits(future)) => Ok(Step::Waits(observe_waiting(server, sink, about, future))),
        Ok(Step::Done) => match finish(&server.query, session, stream, None) {
            None => Ok(Step::Done),
            Some(taken) => {
                let answer = frames.split_off(answer_at.min(frames.len()));
                Ok(Step::Waits(hold_back(server, sink, about, taken, answer)))
            }
        },
        Err(failure) => {
            session.observed.note_planned(stream, &server.query, request);
            session.fail_observed(stream, &failure);
            match finish(&server.query, session, stream, None) {
                None => Err(failure),
                Some(taken) => {
                    let (server, sink, ticket) = (server.clone(), sink.clone(), ticket.clone());
                    Ok(Step::Waits(Box::pin(async move {
                        // The request failed already.
                        let _ = taken.await;
                        let mut out = server.query.buffer();
                        server.query.counters.failed(failure.code());
                        sink.failed(&mut out, &ticket, &failure);
                        out
                    })))
                }
            }
        }
    }
}

/// Returns true for a request that logs a client in.
fn is_login(request: &Request<'_>) -> bool {
    matches!(request, Request::Startup(_) | Request::AuthResponse(_))
}

/// Passes a request to the observers when it has ended.
fn observe_waiting(
    server: &Rc<Server>,
    sink: &FrameSink,
    about: &About<'_>,
    future: Waiting<Vec<u8>>,
) -> Waiting<Vec<u8>> {
    let (server, sink, ticket) = (server.clone(), sink.clone(), about.ticket.clone());
    let is_login = is_login(about.request);
    Box::pin(async move {
        let mut out = future.await;
        let answered = Some(server.rt.wall());
        if let Some(taken) = finish(&server.query, &sink.session, sink.stream, answered) {
            let was_taken = wait(&server, &sink, &ticket, taken, &mut out).await;
            if is_login && !was_taken {
                sink.session.refuse_startup();
            }
        }
        out
    })
}

/// Holds an answer back until the observers have taken its request.
fn hold_back(
    server: &Rc<Server>,
    sink: &FrameSink,
    about: &About<'_>,
    taken: Taken,
    answer: Vec<u8>,
) -> Waiting<Vec<u8>> {
    let (server, sink, ticket) = (server.clone(), sink.clone(), about.ticket.clone());
    let is_login = is_login(about.request);
    Box::pin(async move {
        let mut out = answer;
        let was_taken = wait(&server, &sink, &ticket, taken, &mut out).await;
        if is_login && !was_taken {
            sink.session.refuse_startup();
        }
        out
    })
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
    let now = query.rt.wall();
    for mut record in session.observed.drain() {
        if record.failure.is_none() {
            let (code, message) = (ErrorCode::ServerError, DISCONNECTED.to_owned());
            record.failure = Some(Box::new(ObservedFailure { code, message }));
        }
        record.answered = now;
        // No answer is left that could wait.
        drop(query.observers.finish(&session.client, &record));
    }
}
