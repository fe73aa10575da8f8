//! Requests of peers, as handlers see them.

use super::Inbounds;
use super::connection::Inbound;
use super::serve::AnswerHead;
use crate::dropped_log::DroppedMessage;
use internode::{ErrorReply, FrameKind, Verb};
use std::rc::Rc;
use stdx::{Epoch, HostId, Instant, ShardId, Uuid};

/// Serves requests of peers.
pub trait Handler {
    /// Handles one request or one-way message. It may answer before it returns, which costs no
    /// further turn, or keep the responder. It must not block; it may send.
    fn handle(&self, request: Request<'_>, responder: Responder);
}

/// A received request or one-way message.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The sending node.
    pub from: HostId,
    /// The sender's shard.
    pub from_shard: ShardId,
    /// Verb of the request.
    pub verb: Verb,
    /// The sender's epoch.
    pub epoch: Epoch,
    /// Time at which the sender stops waiting, by this node's clock; the network latency is not
    /// counted.
    pub deadline: Instant,
    /// Trace session that it belongs to.
    pub trace: Option<Uuid>,
    /// Its payload.
    pub payload: &'a [u8],
}

/// The duty to answer one request. Dropped unanswered, the peer gets an internal error.
pub struct Responder {
    pub(super) inbounds: Rc<Inbounds>,
    pub(super) inbound: Rc<Inbound>,
    pub(super) stream: u64,
    pub(super) verb: Verb,
    pub(super) deadline: Instant,
    pub(super) received: Instant,
    pub(super) bytes: usize,
    pub(super) state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// A request that is not answered.
    Open,
    /// A one-way message, or answered.
    Done,
}

impl Responder {
    /// Returns the verb of the request.
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// Returns the time at which the peer stops waiting.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns true if the peer does not wait any more: it cancelled, or its connection ended.
    /// Continuing is harmless.
    pub fn is_cancelled(&self) -> bool {
        self.inbound.outbox.is_closed()
            || self.inbound.waiting.borrow().get(&self.stream).copied().unwrap_or(false)
    }

    /// Returns true if an answer is wanted; one-way messages have none.
    pub fn wants_answer(&self) -> bool {
        self.state == State::Open
    }

    /// Answers. `write` appends the payload and must not send anything itself.
    pub fn respond(mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.send(FrameKind::Response, false, write);
        self.finish();
    }

    /// Sends one of several answers; the request continues.
    pub fn respond_partly(&self, write: impl FnOnce(&mut Vec<u8>)) {
        self.send(FrameKind::Response, true, write);
    }

    /// Answers with an error.
    pub fn fail(mut self, error: &ErrorReply) {
        self.send(FrameKind::Error, false, |out| error.encode(out));
        self.finish();
    }

    fn send(&self, kind: FrameKind, more: bool, write: impl FnOnce(&mut Vec<u8>)) {
        if self.state == State::Done || self.is_cancelled() {
            return;
        }
        let (inbounds, inbound) = (&self.inbounds, &self.inbound);
        let now = inbounds.env.rt.now();
        if now > self.deadline {
            // The peer has stopped waiting: the bytes would be useless.
            inbound.counters.late.inc();
            inbounds.env.dropped(self.verb, DroppedMessage::CrossNode(now.since(self.received)));
            return;
        }
        let (verb, stream, deadline) = (self.verb.number(), self.stream, self.deadline);
        let answer = AnswerHead { kind, verb, stream, more, deadline };
        inbounds.answer(inbound, answer, write);
    }

    fn finish(&mut self) {
        if self.state == State::Open {
            self.inbound.waiting.borrow_mut().remove(&self.stream);
        }
        self.state = State::Done;
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.state == State::Open {
            let error = if self.inbounds.env.draining.get() {
                ErrorReply::Stopping
            } else {
                ErrorReply::Internal("the request was dropped by its handler".to_owned())
            };
            self.send(FrameKind::Error, false, |out| error.encode(out));
            self.finish();
        }
        let (inbounds, inbound) = (&self.inbounds, &self.inbound);
        inbound.serving.set(inbound.serving.get() - 1);
        inbound.serving_bytes.set(inbound.serving_bytes.get() - self.bytes);
        inbounds.env.serving.set(inbounds.env.serving.get() - 1);
        inbounds.env.serving_bytes.set(inbounds.env.serving_bytes.get() - self.bytes);
        if let Some(stage) = inbounds.env.counters.stage(self.verb) {
            stage.end();
        }
        inbounds.env.maybe_quiet();
    }
}
