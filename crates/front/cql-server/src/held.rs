//! Local writes that were applied and wait for the commit of their turn: their answers.

use crate::session::{Answering, Session};
use query::{Executor, Failure, HeldWrite, Touched};
use stdx::Uuid;

/// A local write that was applied and waits for the turn's commit.
pub(crate) struct Held {
    pub(crate) stream: i16,
    /// Tables that it writes, for its latency.
    pub(crate) touched: Touched,
    pub(crate) write: HeldWrite,
}

/// Cause of a commit's failure, for all of its writes.
pub(crate) enum FailedCommit {
    /// The log failed; the id names the one log line.
    Store(store::StoreError, Uuid),
    /// It did not end in time.
    Timeout,
}

/// Logs the failure of a commit, once for all its writes.
pub(crate) fn failed_commit(
    query: &Executor,
    result: std::result::Result<(), store::StoreError>,
) -> Option<FailedCommit> {
    let error = result.err()?;
    let id = query.log_failure("write", &error);
    Some(FailedCommit::Store(error, id))
}

/// Answers writes after their commit.
pub(crate) fn answer_all(
    query: &Executor,
    session: &Session,
    held: &mut Vec<Held>,
    result: std::result::Result<(), store::StoreError>,
    out: &mut Vec<u8>,
) {
    let failed = failed_commit(query, result);
    for one in held.drain(..) {
        answer_one(query, session, one, failed.as_ref(), out);
    }
}

/// Answers one write after its commit.
#[inline]
pub(crate) fn answer_one(
    query: &Executor,
    session: &Session,
    held: Held,
    failed: Option<&FailedCommit>,
    out: &mut Vec<u8>,
) {
    let Held { stream, write, .. } = held;
    let Some(failed) = failed else {
        let about = Answering::new(stream, &write.ticket);
        if write.warnings.is_empty() {
            session.respond_void(out, &about);
        } else {
            let warnings: Vec<&str> = write.warnings.iter().map(String::as_str).collect();
            session.respond_void(out, &Answering { warnings: &warnings, ..about });
        }
        return;
    };
    let HeldWrite { ticket, consistency, write_type, .. } = write;
    let failure = match failed {
        FailedCommit::Store(error, id) => Failure::write(error, consistency, write_type, *id),
        FailedCommit::Timeout => Failure::WriteTimeout { consistency, write_type },
    };
    query.counters.failed(failure.code());
    session.respond_failure(out, stream, &ticket, &failure);
}
