//! Ends of requests: how callers receive them.

use crate::env::Env;
use crate::error::MessagingError;
use crate::pending::Waiting;
use internode::Verb;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use stdx::{Epoch, HostId, ShardId};

/// A sent request, for [`crate::Client::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendId(pub(crate) u64);

/// Receives the ends of requests. Calls come from the messaging's own tasks, never from within a
/// call to [`crate::Client::send`]; the handler may send and cancel.
pub trait Completions {
    /// Called when a request ended, or when one of its answers arrived.
    fn complete(&self, completion: Completion<'_>);

    /// All completions of this turn were delivered.
    fn batch_done(&self) {}
}

/// The end of a request, or one of several answers.
#[derive(Debug)]
pub struct Completion<'a> {
    /// The sender's name for it.
    pub token: u64,
    /// The peer that it was sent to.
    pub host: HostId,
    /// Verb of the request.
    pub verb: Verb,
    /// The peer's shard that was asked.
    pub shard: ShardId,
    /// Bytes of the request's payload.
    pub payload_bytes: usize,
    /// Since it was sent.
    pub elapsed: Duration,
    /// The answer.
    pub result: Result<Answer<'a>, MessagingError>,
}

/// A peer's answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The peer's epoch.
    pub epoch: Epoch,
    /// The payload.
    pub payload: &'a [u8],
    /// True if the request continues: this is not its last answer.
    pub more: bool,
}

/// The clients that were called in this turn.
#[derive(Default)]
pub(crate) struct Batch {
    touched: Vec<usize>,
}

/// The handlers of a shard's clients, by number.
#[derive(Default)]
pub(crate) struct Clients(RefCell<Vec<Rc<dyn Completions>>>);

impl Clients {
    /// Adds a handler; its number.
    pub(crate) fn add(&self, handler: Rc<dyn Completions>) -> usize {
        let mut clients = self.0.borrow_mut();
        clients.push(handler);
        clients.len() - 1
    }

    /// Releases all of them: they hold what holds messaging.
    pub(crate) fn release(&self) {
        drop(self.0.take());
    }

    /// Calls the client; no borrow of this is held meanwhile.
    pub(crate) fn complete(
        &self,
        env: &Env,
        waiting: &Waiting,
        result: Result<Answer<'_>, MessagingError>,
        batch: &mut Batch,
    ) {
        let client = self.0.borrow().get(waiting.client).cloned();
        let Some(client) = client else { return };
        if !batch.touched.contains(&waiting.client) {
            batch.touched.push(waiting.client);
        }
        client.complete(Completion {
            token: waiting.token,
            host: waiting.host,
            verb: waiting.verb,
            shard: waiting.shard,
            payload_bytes: waiting.payload_bytes,
            elapsed: env.rt.now().since(waiting.sent_at),
            result,
        });
    }

    pub(crate) fn finish(&self, env: &Env, batch: &mut Batch) {
        for index in batch.touched.drain(..) {
            let client = self.0.borrow().get(index).cloned();
            if let Some(client) = client {
                client.batch_done();
            }
        }
        env.maybe_quiet();
    }
}
