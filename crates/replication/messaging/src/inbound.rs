//! Who answers: requests in, answers out.
//!
//! An [`Inbound`] is one accepted connection. Its main task reads, hands every whole request of a
//! read to the handler in place, and sends the answers of that turn with one write; answers that
//! come later are written by its second task.

use crate::counters::PeerCounters;
use crate::dropped_log::DroppedMessage;
use crate::link::{FRAMES_PER_LOOK, compact, group_of, wanted};
use crate::messaging::Inner;
use crate::outbox::{NEVER, Outbox, Written};
use internode::{
    Agreement, ErrorReply, Features, Frame, FrameDecoder, FrameEncoder, FrameHeader, FrameKind,
    Handshake, Hello, Lane, Verb,
};
use rt::Stream;
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use stdx::{Epoch, FixedMap, HostId, Instant, IoError, ShardId, Uuid};

/// So many times [`crate::Settings::response_bytes_max`] may wait before the peer is disconnected.
const RESPONSE_OVERRUN: usize = 4;

/// Length of a ping that shows its sender's clock.
const PING_BYTES_WITH_CLOCK: usize = 16;

/// Serves requests of peers.
pub trait Handler {
    /// Handles one request or one-way message. It may answer before it returns, which costs no
    /// further turn, or keep the responder. It must not block; it may send.
    fn handle(&self, request: Request<'_>, responder: Responder);
}

/// A received request or one-way message.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Who sent it.
    pub from: HostId,
    /// The sender's shard.
    pub from_shard: ShardId,
    /// What is asked.
    pub verb: Verb,
    /// The sender's epoch.
    pub epoch: Epoch,
    /// When the sender gives up, by this node's clock; the time on the way is not counted.
    pub deadline: Instant,
    /// Trace session that it belongs to.
    pub trace: Option<Uuid>,
    /// Its payload.
    pub payload: &'a [u8],
}

/// The duty to answer one request. Dropped unanswered, the peer gets an internal error.
pub struct Responder {
    inner: Rc<Inner>,
    inbound: Rc<Inbound>,
    stream: u64,
    verb: Verb,
    deadline: Instant,
    received: Instant,
    bytes: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// A request that is not answered.
    Open,
    /// A one-way message, or answered.
    Done,
}

/// One accepted connection.
pub(crate) struct Inbound {
    id: u64,
    from: HostId,
    from_shard: ShardId,
    /// Number of the peer's start.
    incarnation: u64,
    lane: Lane,
    joining: bool,
    address: SocketAddr,
    conn: Stream,
    pub(crate) outbox: Outbox,
    counters: Rc<PeerCounters>,
    serving: Cell<usize>,
    serving_bytes: Cell<usize>,
    /// Requests that wait, and whether they were cancelled. Those answered in place are never here.
    waiting: RefCell<FixedMap<u64, bool>>,
    /// The reading task is in the middle of a turn and will write its answers itself.
    in_turn: Cell<bool>,
    last_received: Cell<Instant>,
}

impl Inbound {
    pub(crate) fn from(&self) -> HostId {
        self.from
    }

    /// Whether it comes from the host `from` in another start than `incarnation`, and something was
    /// received on it since `since`.
    pub(crate) fn is_other_process(&self, from: HostId, incarnation: u64, since: Instant) -> bool {
        self.from == from
            && self.incarnation != incarnation
            && !self.outbox.is_closed()
            && self.last_received.get() >= since
    }

    /// Ends the connection. What the kernel has already is still sent.
    pub(crate) fn close(&self, why: &'static str) {
        if !self.outbox.is_closed() {
            tracing::debug!(peer = %self.address, host = %self.from, why,
                "connection from a peer closed");
        }
        self.outbox.close();
        self.conn.shutdown();
    }
}

impl Responder {
    /// What is answered.
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// When the peer gives up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the peer does not wait any more: it cancelled, or its connection ended. Going on is
    /// harmless.
    pub fn is_cancelled(&self) -> bool {
        self.inbound.outbox.is_closed()
            || self.inbound.waiting.borrow().get(&self.stream).copied().unwrap_or(false)
    }

    /// Whether an answer is wanted at all: not for one-way messages.
    pub fn wants_answer(&self) -> bool {
        self.state == State::Open
    }

    /// Answers. `write` appends the payload and must not send anything itself.
    pub fn respond(mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.send(FrameKind::Response, false, write);
        self.finish();
    }

    /// Sends one of several answers; the request goes on.
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
        let (inner, inbound) = (&self.inner, &self.inbound);
        let now = inner.rt.now();
        if now > self.deadline {
            // The peer has given up: the bytes would be for nothing.
            inbound.counters.late.inc();
            inner.dropped(self.verb, DroppedMessage::CrossNode(now.since(self.received)));
            return;
        }
        inner.answer(inbound, kind, self.verb.number(), self.stream, more, self.deadline, write);
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
            let error = if self.inner.draining.get() {
                ErrorReply::Stopping
            } else {
                ErrorReply::Internal("the request was dropped by its handler".to_owned())
            };
            self.send(FrameKind::Error, false, |out| error.encode(out));
            self.finish();
        }
        let (inner, inbound) = (&self.inner, &self.inbound);
        inbound.serving.set(inbound.serving.get() - 1);
        inbound.serving_bytes.set(inbound.serving_bytes.get() - self.bytes);
        inner.serving.set(inner.serving.get() - 1);
        inner.serving_bytes.set(inner.serving_bytes.get() - self.bytes);
        if let Some(stage) = inner.counters.stage(self.verb) {
            stage.end();
        }
        inner.maybe_quiet();
    }
}

impl Inner {
    /// Serves a connection whose handshake is decided.
    pub(crate) fn adopt(
        self: &Rc<Self>,
        conn: Stream,
        hello: Hello,
        agreement: Agreement,
        rest: Vec<u8>,
    ) {
        let lz4 = agreement.features.contains(Features::LZ4);
        let max = self.settings.payload_bytes_max;
        let inbound = Rc::new(Inbound {
            id: self.next_id(),
            from: hello.from,
            from_shard: hello.source_shard,
            incarnation: hello.incarnation,
            lane: hello.lane,
            joining: hello.joining,
            address: conn.peer_addr(),
            conn,
            outbox: Outbox::new(FrameEncoder::new(lz4, max), self.answer_bytes.clone()),
            counters: self.counters.peer(hello.from),
            serving: Cell::new(0),
            serving_bytes: Cell::new(0),
            waiting: RefCell::default(),
            in_turn: Cell::new(false),
            last_received: Cell::new(self.rt.now()),
        });
        self.replace_older(&inbound);
        self.inbounds.borrow_mut().insert(inbound.id, inbound.clone());
        // It can be reached: no need to wait for the end of a pause.
        self.reset_backoff(hello.from);
        let (inner, of_task) = (self.clone(), inbound.clone());
        let task = async move {
            let decoder = FrameDecoder::new(lz4, max);
            if let Err(error) = inner.run_inbound(&of_task, &agreement, decoder, rest).await {
                tracing::debug!(peer = %of_task.address, host = %of_task.from, %error,
                    "connection from a peer lost");
            }
            of_task.close("it ended");
            inner.inbounds.borrow_mut().remove(&of_task.id);
            inner.maybe_quiet();
        };
        let group = group_of(inbound.lane);
        if self.gate.spawn(&self.rt, group, "internode-inbound", task).is_err() {
            inbound.close("this node is stopping");
            self.inbounds.borrow_mut().remove(&inbound.id);
        }
    }

    /// A peer's shard has one connection per lane and shard: a second one means that it gave up the
    /// first, of which this side may not know for long.
    fn replace_older(&self, new: &Inbound) {
        let older: Vec<Rc<Inbound>> = self
            .inbounds
            .borrow()
            .values()
            .filter(|i| (i.from, i.from_shard, i.lane) == (new.from, new.from_shard, new.lane))
            .cloned()
            .collect();
        for inbound in older {
            inbound.close("the peer opened another");
        }
    }

    async fn run_inbound(
        self: &Rc<Self>,
        inbound: &Rc<Inbound>,
        agreement: &Agreement,
        decoder: FrameDecoder,
        rest: Vec<u8>,
    ) -> Result<(), IoError> {
        let mut ack = Vec::new();
        Handshake::Ack(self.identity().ack(agreement)).encode(&mut ack);
        inbound.conn.write_all(&ack).await?;
        let (inner, of_task) = (self.clone(), inbound.clone());
        let task = async move {
            if let Err(error) = inner.write_inbound(&of_task).await {
                tracing::info!(peer = %of_task.address, host = %of_task.from, %error,
                    "connection from a peer closed: its answers cannot be sent");
            }
            of_task.close("it ended");
        };
        if self.gate.spawn(&self.rt, group_of(inbound.lane), "internode-write", task).is_err() {
            return Ok(());
        }
        self.read_inbound(inbound, decoder, rest).await
    }

    /// Writes answers that came later or did not fit, and looks for silence.
    async fn write_inbound(&self, inbound: &Inbound) -> Result<(), IoError> {
        let interval = self.settings.keepalive_interval;
        let mut tick = pin!(self.rt.sleep(interval));
        loop {
            self.write_out(&inbound.outbox, &inbound.conn, &inbound.counters).await?;
            let is_tick = poll_fn(|cx| {
                if inbound.outbox.poll_work(cx).is_ready() {
                    return Poll::Ready(false);
                }
                tick.as_mut().poll(cx).map(|()| true)
            })
            .await;
            if inbound.outbox.is_closed() {
                return Ok(());
            }
            if is_tick {
                // The peer pings each interval of its own; two more for those on the way.
                let limit = self.settings.keepalive_timeout + 2 * interval;
                if self.rt.now().since(inbound.last_received.get()) >= limit {
                    inbound.close("the peer is silent");
                    return Ok(());
                }
                tick.as_mut().set(self.rt.sleep(interval));
            }
        }
    }

    async fn read_inbound(
        self: &Rc<Self>,
        inbound: &Rc<Inbound>,
        mut decoder: FrameDecoder,
        mut input: Vec<u8>,
    ) -> Result<(), IoError> {
        let mut used = 0;
        loop {
            let mut frames = 0usize;
            let mut is_open = true;
            inbound.in_turn.set(true);
            while is_open {
                let position = used;
                match decoder.next(input.get(used..).unwrap_or_default()) {
                    Ok(None) => break,
                    Ok(Some((frame, length))) => {
                        used += length;
                        frames += 1;
                        is_open = match self.take_request(inbound, &frame) {
                            Ok(()) => !inbound.outbox.is_closed(),
                            Err(what) => self.close_bad_peer(inbound, &what, position),
                        };
                    }
                    Err(error) => is_open = self.close_bad_peer(inbound, &error, position),
                }
                if frames.is_multiple_of(FRAMES_PER_LOOK) && self.rt.is_yield_due() {
                    self.flush(inbound)?;
                    self.rt.yield_if_due().await;
                    inbound.in_turn.set(true);
                }
            }
            self.flush(inbound)?;
            if !is_open || inbound.outbox.is_closed() {
                return Ok(());
            }
            // Answers that the peer does not take hold its requests back.
            let max = self.settings.response_bytes_max;
            poll_fn(|cx| inbound.outbox.poll_room(cx, max)).await;
            compact(&mut input, &mut used);
            let wanted = wanted(&decoder, &mut input, used);
            let read = inbound.conn.read(&mut input, wanted).await?;
            if read == 0 {
                return Ok(());
            }
            inbound.counters.received_bytes.add(read as u64);
            inbound.last_received.set(self.rt.now());
            self.rt.yield_if_due().await;
        }
    }

    /// Sends the answers of this turn.
    fn flush(&self, inbound: &Inbound) -> Result<(), IoError> {
        inbound.in_turn.set(false);
        let before = inbound.outbox.handed();
        let written = inbound.outbox.write_some(&inbound.conn, self.rt.now())?;
        inbound.counters.sent_bytes.add(inbound.outbox.handed() - before);
        match written {
            Written::All => self.maybe_quiet(),
            Written::Part => inbound.outbox.wake_writer(),
        }
        Ok(())
    }

    /// Garbage ends its own connection; the answer is that reading is over.
    fn close_bad_peer(&self, inbound: &Inbound, error: &dyn Display, position: usize) -> bool {
        inbound.counters.protocol_errors.inc();
        tracing::warn!(peer = %inbound.address, host = %inbound.from, %error, position,
            "connection from a peer closed: what it sent cannot be read");
        false
    }

    fn take_request(
        self: &Rc<Self>,
        inbound: &Rc<Inbound>,
        frame: &Frame<'_>,
    ) -> Result<(), String> {
        let header = &frame.header;
        match header.kind {
            FrameKind::Request | FrameKind::OneWay => {}
            FrameKind::Cancel => {
                if let Some(cancelled) = inbound.waiting.borrow_mut().get_mut(&header.stream) {
                    *cancelled = true;
                }
                return Ok(());
            }
            FrameKind::Response | FrameKind::Error => {
                return Err(format!("a {:?} where only requests belong", header.kind));
            }
        }
        inbound.counters.received.inc();
        let is_request = header.kind == FrameKind::Request;
        if is_request && inbound.waiting.borrow().contains_key(&header.stream) {
            return Err(format!("the stream {} is in use", header.stream));
        }
        let now = self.rt.now();
        let deadline = match header.deadline_micros {
            0 => NEVER,
            left => now + Duration::from_micros(u64::from(left)),
        };
        let Some(verb) = header.known_verb() else {
            return self.turn_down(inbound, header, &ErrorReply::UnknownVerb(header.verb));
        };
        if matches!(verb, Verb::Ping | Verb::Echo) {
            if is_request {
                let (number, payload) = (header.verb, frame.payload);
                let kind = FrameKind::Response;
                // What a peer asks that measures clocks gets this one's.
                let wall = (verb == Verb::Ping && payload.len() == PING_BYTES_WITH_CLOCK)
                    .then(|| self.rt.wall().0.to_be_bytes());
                let copy = |out: &mut Vec<u8>| {
                    out.extend_from_slice(payload);
                    out.extend_from_slice(wall.as_ref().map_or(&[][..], |wall| wall));
                };
                self.answer(inbound, kind, number, header.stream, false, deadline, copy);
            }
            return Ok(());
        }
        if inbound.joining && !verb.is_for_joining() {
            let text = "a node that is joining may not ask this yet".to_owned();
            return self.turn_down(inbound, header, &ErrorReply::Invalid(text));
        }
        let handler = self.handler.borrow().clone();
        let handler = match handler {
            Some(handler) if !self.draining.get() => handler,
            _ => return self.turn_down(inbound, header, &ErrorReply::Stopping),
        };
        let bytes = frame.payload.len();
        if self.is_overloaded(inbound, bytes) {
            return self.turn_down(inbound, header, &ErrorReply::Overloaded);
        }
        inbound.serving.set(inbound.serving.get() + 1);
        inbound.serving_bytes.set(inbound.serving_bytes.get() + bytes);
        self.serving.set(self.serving.get() + 1);
        self.serving_bytes.set(self.serving_bytes.get() + bytes);
        if let Some(stage) = self.counters.stage(verb) {
            stage.begin();
        }
        if is_request {
            inbound.waiting.borrow_mut().insert(header.stream, false);
        }
        let responder = Responder {
            inner: self.clone(),
            inbound: inbound.clone(),
            stream: header.stream,
            verb,
            deadline,
            received: now,
            bytes,
            state: if is_request { State::Open } else { State::Done },
        };
        let request = Request {
            from: inbound.from,
            from_shard: inbound.from_shard,
            verb,
            epoch: header.epoch,
            deadline,
            trace: header.trace,
            payload: frame.payload,
        };
        handler.handle(request, responder);
        Ok(())
    }

    fn is_overloaded(&self, inbound: &Inbound, bytes: usize) -> bool {
        let settings = &self.settings;
        // One request always fits, however large.
        let over = |held: usize, max: usize| held > 0 && held.saturating_add(bytes) > max;
        inbound.serving.get() >= settings.serving_max
            || over(inbound.serving_bytes.get(), settings.serving_bytes_max)
            || over(self.serving_bytes.get(), settings.serving_bytes_shard_max)
    }

    /// Answers an error without asking the handler.
    #[cold]
    fn turn_down(
        &self,
        inbound: &Inbound,
        header: &FrameHeader,
        error: &ErrorReply,
    ) -> Result<(), String> {
        inbound.counters.shed.inc();
        if let Some(verb) = header.known_verb() {
            self.dropped(verb, DroppedMessage::CrossNode(Duration::ZERO));
        }
        if header.kind == FrameKind::Request {
            let (number, stream) = (header.verb, header.stream);
            let encode = |out: &mut Vec<u8>| error.encode(out);
            self.answer(inbound, FrameKind::Error, number, stream, false, NEVER, encode);
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one frame")]
    fn answer(
        &self,
        inbound: &Inbound,
        kind: FrameKind,
        verb: u16,
        stream: u64,
        more: bool,
        deadline: Instant,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let header = FrameHeader {
            kind,
            verb,
            stream,
            epoch: self.epoch.get(),
            deadline_micros: 0,
            trace: None,
            more,
        };
        let now = self.rt.now();
        if let Err(too_long) = inbound.outbox.push(now, &header, deadline, write) {
            let header = FrameHeader { kind: FrameKind::Error, more: false, ..header };
            let error = ErrorReply::Internal(format!("the answer is {too_long}"));
            // It is short.
            let _ = inbound.outbox.push(now, &header, deadline, |out| error.encode(out));
        }
        inbound.counters.sent.inc();
        self.counters.sent(verb);
        let limit = self.settings.response_bytes_max.saturating_mul(RESPONSE_OVERRUN);
        if inbound.outbox.len() > limit {
            tracing::warn!(peer = %inbound.address, host = %inbound.from,
                bytes = inbound.outbox.len(),
                "connection from a peer closed: it does not read its answers");
            inbound.close("its answers pile up");
        } else if !inbound.in_turn.get() {
            inbound.outbox.wake_writer();
        }
    }
}
