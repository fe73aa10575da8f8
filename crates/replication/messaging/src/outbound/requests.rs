//! Requests out: sending, cancelling, deadlines.

use super::Outbound;
use crate::completions::{Batch, SendId};
use crate::dropped_log::DroppedMessage;
use crate::error::{Bound, MessagingError};
use crate::link::Link;
use crate::outbox::{NEVER, micros_left};
use crate::peer::Outgoing;
use crate::pending::Waiting;
use internode::{FrameHeader, FrameKind, Verb};
use std::rc::Rc;
use std::time::Duration;
use stdx::Instant;

/// Sends requests whose completions go to one handler. Clones are the same client.
#[derive(Clone)]
pub struct Client {
    pub(crate) outbound: Rc<Outbound>,
    pub(crate) index: usize,
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
        self.outbound.send_request(self.index, token, to, write)
    }

    /// Cancels a request: no completion follows, and the peer is notified. A request that has ended
    /// is left alone.
    pub fn cancel(&self, id: SendId) {
        self.outbound.cancel_request(id);
    }
}

impl Outbound {
    pub(crate) fn send_request(
        self: &Rc<Self>,
        client: usize,
        token: u64,
        to: &Outgoing,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<SendId, MessagingError> {
        let now = self.env.rt.now();
        if to.deadline <= now {
            return Err(MessagingError::Timeout { maybe_delivered: false });
        }
        let link = self.link_for(to, now)?;
        if link.in_flight.get() >= self.env.settings.in_flight_max {
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
        let Some(stream) = self.env.pending.borrow_mut().insert(now, waiting) else {
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
                self.env.pending.borrow_mut().set_place(stream, begin, payload_bytes);
                link.in_flight.set(link.in_flight.get() + 1);
                self.arm();
                Ok(SendId(stream))
            }
            Err(error) => {
                self.env.pending.borrow_mut().take(stream);
                Err(error)
            }
        }
    }

    pub(crate) fn send_one_way(
        self: &Rc<Self>,
        to: &Outgoing,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), MessagingError> {
        let now = self.env.rt.now();
        if to.deadline <= now {
            return Err(MessagingError::Timeout { maybe_delivered: false });
        }
        let link = self.link_for(to, now)?;
        self.push(&link, to, FrameKind::OneWay, 0, now, write)?;
        Ok(())
    }

    pub(crate) fn cancel_request(self: &Rc<Self>, id: SendId) {
        let Some(waiting) = self.env.pending.borrow_mut().take(id.0) else { return };
        let link = self.links.borrow().get(&waiting.link).cloned();
        if let Some(link) = link {
            link.left();
            let header = self.env.header(FrameKind::Cancel, waiting.verb, id.0);
            let deadline = waiting.deadline;
            let pushed = link.outbox.push(self.env.rt.now(), &header, deadline, |_| {});
            if pushed.is_ok() {
                link.outbox.wake_writer();
            }
        }
        self.env.maybe_quiet();
    }

    #[cold]
    fn overloaded(&self, link: &Link, verb: Verb, bound: Bound) -> MessagingError {
        link.counters.overloaded.inc();
        self.env.dropped(verb, DroppedMessage::Internal(Duration::ZERO));
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
        if link.outbox.len() >= self.env.settings.queue_bytes_max {
            return Err(self.overloaded(link, to.verb, Bound::QueueBytes));
        }
        if self.env.queued_bytes.get() >= self.env.settings.queue_bytes_shard_max {
            return Err(self.overloaded(link, to.verb, Bound::QueueBytesOfShard));
        }
        let header = FrameHeader {
            deadline_micros: micros_left(now, to.deadline),
            trace: to.trace,
            ..self.env.header(kind, to.verb, stream)
        };
        let begin = link
            .outbox
            .push(now, &header, to.deadline, write)
            .map_err(|e| MessagingError::TooLarge { length: e.length, max: e.max })?;
        link.counters.sent.inc();
        self.env.counters.sent(to.verb.number());
        link.last_request.set(now);
        link.outbox.wake_writer();
        Ok(begin)
    }

    /// Completes what is due, until the end.
    pub(crate) async fn run_timer(self: Rc<Self>) {
        let mut due = Vec::new();
        while !(self.env.ended.get() && self.links.borrow().is_empty()) {
            let next = self.env.pending.borrow().next_expiry().unwrap_or(NEVER);
            self.armed.set(next);
            let woken = self.timer.notified();
            if next == NEVER {
                woken.await;
            } else if self.env.rt.now() < next {
                // Either may come first, then the loop looks again.
                let _ = self.env.rt.timeout(next, woken).await;
            }
            self.env.pending.borrow_mut().expire(self.env.rt.now(), &mut due);
            let mut batch = Batch::default();
            for waiting in due.drain(..) {
                let link = self.links.borrow().get(&waiting.link).cloned();
                let mut maybe_delivered = true;
                if let Some(link) = link {
                    maybe_delivered = link.outbox.is_handed(waiting.begin);
                    link.left();
                    link.counters.timed_out.inc();
                }
                let waited = self.env.rt.now().since(waiting.sent_at);
                self.env.dropped(waiting.verb, DroppedMessage::Internal(waited));
                let error = MessagingError::Timeout { maybe_delivered };
                self.clients.complete(&self.env, &waiting, Err(error), &mut batch);
            }
            self.clients.finish(&self.env, &mut batch);
        }
    }

    /// Wakes the timer task when it would sleep too long.
    fn arm(&self) {
        let next = self.env.pending.borrow().next_expiry();
        if let Some(next) = next
            && next < self.armed.get()
        {
            self.armed.set(next);
            self.timer.notify_one();
        }
    }
}
