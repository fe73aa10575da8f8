//! Requests out, ends in: what callers see of connections.

use crate::dropped_log::DroppedMessage;
use crate::error::{Bound, MessagingError};
use crate::link::Link;
use crate::messaging::{Inner, Messaging, Outgoing};
use crate::outbox::{NEVER, micros_left};
use crate::pending::Waiting;
use internode::{FrameHeader, FrameKind, Verb};
use std::rc::Rc;
use std::time::Duration;
use stdx::{Epoch, HostId, Instant, ShardId};

/// Sends requests whose completions go to one handler. Clones are the same client.
#[derive(Clone)]
pub struct Client {
    pub(crate) messaging: Messaging,
    pub(crate) index: usize,
}

/// A sent request, for [`Client::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendId(pub(crate) u64);

/// Receives the ends of requests. Calls come from the messaging's own tasks, never from within a
/// call to [`Client::send`]; the handler may send and cancel.
pub trait Completions {
    /// A request ended, or one of its answers came.
    fn complete(&self, completion: Completion<'_>);

    /// All completions of this turn were delivered.
    fn batch_done(&self) {}
}

/// The end of a request, or one of several answers.
#[derive(Debug)]
pub struct Completion<'a> {
    /// The sender's name for it.
    pub token: u64,
    /// Whom it was sent to.
    pub host: HostId,
    /// What was asked.
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
    /// What it says.
    pub payload: &'a [u8],
    /// Not the last one: the request goes on.
    pub more: bool,
}

impl Client {
    /// Sends a request. After `Ok` exactly one completion that is not `more` follows with `token`,
    /// unless the request is cancelled. `write` appends the payload and must not send anything
    /// itself.
    ///
    /// # Errors
    /// Nothing was sent, no completion follows.
    pub fn send(
        &self,
        to: &Outgoing,
        token: u64,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<SendId, MessagingError> {
        self.messaging.inner.send_request(self.index, token, to, write)
    }

    /// Gives a request up: no completion follows, the peer is told. One that ended already is left
    /// alone.
    pub fn cancel(&self, id: SendId) {
        self.messaging.inner.cancel_request(id);
    }
}

/// The clients that were called in this turn.
#[derive(Default)]
pub(crate) struct Batch {
    touched: Vec<usize>,
}

impl Inner {
    pub(crate) fn send_request(
        self: &Rc<Self>,
        client: usize,
        token: u64,
        to: &Outgoing,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<SendId, MessagingError> {
        let now = self.rt.now();
        if to.deadline <= now {
            return Err(MessagingError::Timeout { maybe_delivered: false });
        }
        let link = self.link_for(to, now)?;
        if link.in_flight.get() >= self.settings.in_flight_max {
            return Err(self.overloaded(&link, to.verb, Bound::InFlight));
        }
        let waiting = Waiting {
            link: link.id,
            client,
            token,
            host: to.host,
            verb: to.verb,
            deadline: to.deadline,
            sent_at: now,
            begin: u64::MAX,
            shard: to.shard,
            payload_bytes: 0,
        };
        let Some(stream) = self.pending.borrow_mut().insert(now, waiting) else {
            return Err(self.overloaded(&link, to.verb, Bound::Streams));
        };
        let mut payload_bytes = 0;
        let measured = |out: &mut Vec<u8>| {
            let before = out.len();
            write(out);
            payload_bytes = out.len().saturating_sub(before);
        };
        match self.push(&link, to, FrameKind::Request, stream, now, measured) {
            Ok(begin) => {
                self.pending.borrow_mut().set_place(stream, begin, payload_bytes);
                link.in_flight.set(link.in_flight.get() + 1);
                self.arm();
                Ok(SendId(stream))
            }
            Err(error) => {
                self.pending.borrow_mut().take(stream);
                Err(error)
            }
        }
    }

    pub(crate) fn send_one_way(
        self: &Rc<Self>,
        to: &Outgoing,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), MessagingError> {
        let now = self.rt.now();
        if to.deadline <= now {
            return Err(MessagingError::Timeout { maybe_delivered: false });
        }
        let link = self.link_for(to, now)?;
        self.push(&link, to, FrameKind::OneWay, 0, now, write)?;
        Ok(())
    }

    pub(crate) fn cancel_request(self: &Rc<Self>, id: SendId) {
        let Some(waiting) = self.pending.borrow_mut().take(id.0) else { return };
        let link = self.links.borrow().get(&waiting.link).cloned();
        if let Some(link) = link {
            link.left();
            let header = self.header(FrameKind::Cancel, waiting.verb, id.0);
            let deadline = waiting.deadline;
            let pushed = link.outbox.push(self.rt.now(), &header, deadline, |_| {});
            if pushed.is_ok() {
                link.outbox.wake_writer();
            }
        }
        self.maybe_quiet();
    }

    pub(crate) fn header(&self, kind: FrameKind, verb: Verb, stream: u64) -> FrameHeader {
        FrameHeader {
            kind,
            verb: verb.number(),
            stream,
            epoch: self.epoch.get(),
            deadline_micros: 0,
            trace: None,
            more: false,
        }
    }

    #[cold]
    fn overloaded(&self, link: &Link, verb: Verb, bound: Bound) -> MessagingError {
        link.counters.overloaded.inc();
        self.dropped(verb, DroppedMessage::Internal(Duration::ZERO));
        MessagingError::Overloaded(bound)
    }

    fn push(
        &self,
        link: &Link,
        to: &Outgoing,
        kind: FrameKind,
        stream: u64,
        now: Instant,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u64, MessagingError> {
        if link.outbox.len() >= self.settings.queue_bytes_max {
            return Err(self.overloaded(link, to.verb, Bound::QueueBytes));
        }
        if self.queued_bytes.get() >= self.settings.queue_bytes_shard_max {
            return Err(self.overloaded(link, to.verb, Bound::QueueBytesOfShard));
        }
        let header = FrameHeader {
            deadline_micros: micros_left(now, to.deadline),
            trace: to.trace,
            ..self.header(kind, to.verb, stream)
        };
        let begin = link
            .outbox
            .push(now, &header, to.deadline, write)
            .map_err(|e| MessagingError::TooLarge { length: e.length, max: e.max })?;
        link.counters.sent.inc();
        self.counters.sent(to.verb.number());
        link.last_request.set(now);
        link.outbox.wake_writer();
        Ok(begin)
    }

    /// Tells the client; no borrow of this is held meanwhile.
    pub(crate) fn complete(
        &self,
        waiting: &Waiting,
        result: Result<Answer<'_>, MessagingError>,
        batch: &mut Batch,
    ) {
        let client = self.clients.borrow().get(waiting.client).cloned();
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
            elapsed: self.rt.now().since(waiting.sent_at),
            result,
        });
    }

    pub(crate) fn finish(&self, batch: &mut Batch) {
        for index in batch.touched.drain(..) {
            let client = self.clients.borrow().get(index).cloned();
            if let Some(client) = client {
                client.batch_done();
            }
        }
        self.maybe_quiet();
    }

    /// Completes what is due, until the end.
    pub(crate) async fn run_timer(self: Rc<Self>) {
        let mut due = Vec::new();
        while !(self.ended.get() && self.links.borrow().is_empty()) {
            let next = self.pending.borrow().next_expiry().unwrap_or(NEVER);
            self.armed.set(next);
            let woken = self.timer.notified();
            if next == NEVER {
                woken.await;
            } else if self.rt.now() < next {
                // Either may come first, then the loop looks again.
                let _ = self.rt.timeout(next, woken).await;
            }
            self.pending.borrow_mut().expire(self.rt.now(), &mut due);
            let mut batch = Batch::default();
            for waiting in due.drain(..) {
                let link = self.links.borrow().get(&waiting.link).cloned();
                let mut maybe_delivered = true;
                if let Some(link) = link {
                    maybe_delivered = link.outbox.is_handed(waiting.begin);
                    link.left();
                    link.counters.timed_out.inc();
                }
                let waited = self.rt.now().since(waiting.sent_at);
                self.dropped(waiting.verb, DroppedMessage::Internal(waited));
                let error = MessagingError::Timeout { maybe_delivered };
                self.complete(&waiting, Err(error), &mut batch);
            }
            self.finish(&mut batch);
        }
    }

    /// Wakes the timer task when it would sleep too long.
    fn arm(&self) {
        let next = self.pending.borrow().next_expiry();
        if let Some(next) = next
            && next < self.armed.get()
        {
            self.armed.set(next);
            self.timer.notify_one();
        }
    }
}
