//! Answers of local writes whose commit has to wait.

use crate::frame_sink::FrameSink;
use crate::held::{self, FailedCommit, Held};
use crate::observed::{self, WaitingAnswer};
use crate::server::Server;
use crate::session::Session;
use query::{RequestKind, Timeout};
use std::rc::Rc;
use stdx::Instant;

/// Writes of one turn of a connection that wait for one commit.
pub(crate) struct Commit {
    pub(crate) session: Rc<Session>,
    pub(crate) held: Vec<Held>,
    /// When the turn began.
    pub(crate) began: Instant,
}

/// Waits for the commit; returns the answers of its writes.
pub(crate) async fn answer(server: Rc<Server>, commit: Commit) -> Vec<u8> {
    let Commit { session, held, began } = commit;
    let query = &server.query;
    let deadline = server.rt.now() + query.timeouts.get(Timeout::Write);
    let mut out = query.buffer();
    let committed = server.rt.timeout(deadline, query.coordinator.commit()).await;
    let took = server.rt.now().since(began);
    for write in &held {
        query.latencies.record(RequestKind::Write, write.touched, took);
    }
    let failed = match committed {
        Ok(result) => held::failed_commit(query, result),
        Err(_) => Some(FailedCommit::Timeout),
    };
    let mut waiting = Vec::new();
    let answered = (!session.observed.is_empty()).then(|| server.rt.wall());
    for one in held {
        let (stream, ticket) = (one.stream, one.write.ticket.clone());
        let begins = out.len();
        held::answer_one(query, &session, one, failed.as_ref(), &mut out);
        let taken = match session.observed.is_empty() {
            true => None,
            false => observed::finish(query, &session, stream, answered),
        };
        let Some(taken) = taken else {
            server.end_running(&session, stream);
            continue;
        };
        let sink = FrameSink { session: session.clone(), stream };
        let answer = out.split_off(begins);
        waiting.push(WaitingAnswer { sink, ticket, taken, answer });
    }
    // All began to wait before the first await: together they wait as long as one.
    for one in waiting {
        let WaitingAnswer { sink, ticket, taken, mut answer } = one;
        observed::wait(&server, &sink, &ticket, taken, &mut answer).await;
        server.end_running(&session, sink.stream);
        out.append(&mut answer);
    }
    out
}
