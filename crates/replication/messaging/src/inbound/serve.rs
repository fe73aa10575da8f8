//! Requests in, answers out: the tasks of an accepted connection.
//!
//! The main task reads, hands every whole request of a read to the handler in place, and sends the
//! answers of that turn with one write; answers that come later are written by a second task.

use super::Inbounds;
use super::connection::Inbound;
use super::responder::{Request, Responder, State};
use crate::dropped_log::DroppedMessage;
use crate::io::{FRAMES_PER_LOOK, compact, group_of, wanted, write_out};
use crate::outbox::{NEVER, Outbox, Written};
use internode::{
    Agreement, ErrorReply, Features, Frame, FrameDecoder, FrameEncoder, FrameHeader, FrameKind,
    Handshake, Hello, Verb,
};
use rt::Stream;
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use stdx::{Instant, IoError};

/// So many times [`crate::Settings::response_bytes_max`] may wait before the peer is disconnected.
const RESPONSE_OVERRUN: usize = 4;

/// Length of a ping that shows its sender's clock.
const PING_BYTES_WITH_CLOCK: usize = 16;

/// The fields of an answer's frame.
#[derive(Clone, Copy)]
pub(super) struct AnswerHead {
    pub(super) kind: FrameKind,
    pub(super) verb: u16,
    pub(super) stream: u64,
    /// Not the last one.
    pub(super) more: bool,
    pub(super) deadline: Instant,
}

impl Inbounds {
    /// Serves a connection whose handshake is complete.
    pub(crate) fn adopt(
        self: &Rc<Self>,
        conn: Stream,
        hello: Hello,
        agreement: Agreement,
        rest: Vec<u8>,
    ) {
        let lz4 = agreement.features.contains(Features::LZ4);
        let max = self.env.settings.payload_bytes_max;
        let inbound = Rc::new(Inbound {
            id: self.env.next_id(),
            from: hello.from,
            from_shard: hello.source_shard,
            incarnation: hello.incarnation,
            lane: hello.lane,
            joining: hello.joining,
            address: conn.peer_addr(),
            conn,
            outbox: Outbox::new(FrameEncoder::new(lz4, max), self.env.answer_bytes.clone()),
            counters: self.env.counters.peer(hello.from),
            serving: Cell::new(0),
            serving_bytes: Cell::new(0),
            waiting: RefCell::default(),
            in_turn: Cell::new(false),
            last_received: Cell::new(self.env.rt.now()),
        });
        self.replace_older(&inbound);
        self.open.borrow_mut().insert(inbound.id, inbound.clone());
        // The peer is reachable: no need to wait for the end of the backoff.
        self.outbound.reset_backoff(hello.from);
        let (inbounds, of_task) = (self.clone(), inbound.clone());
        let task = async move {
            let decoder = FrameDecoder::new(lz4, max);
            if let Err(error) = inbounds.run_inbound(&of_task, &agreement, decoder, rest).await {
                tracing::debug!(peer = %of_task.address, host = %of_task.from, %error,
                    "connection from a peer lost");
            }
            of_task.close("it ended");
            inbounds.open.borrow_mut().remove(&of_task.id);
            inbounds.env.maybe_quiet();
        };
        let group = group_of(inbound.lane);
        if self.env.gate.spawn(&self.env.rt, group, "internode-inbound", task).is_err() {
            inbound.close("this node is stopping");
            self.open.borrow_mut().remove(&inbound.id);
        }
    }

    /// Closes older connections of the same peer shard, lane and shard: a second one means that the
    /// peer dropped the first. This side may not notice that for long.
    fn replace_older(&self, new: &Inbound) {
        let older: Vec<Rc<Inbound>> = self
            .open
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
        Handshake::Ack(self.env.identity().ack(agreement)).encode(&mut ack);
        inbound.conn.write_all(&ack).await?;
        let (inbounds, of_task) = (self.clone(), inbound.clone());
        let task = async move {
            if let Err(error) = inbounds.write_inbound(&of_task).await {
                tracing::info!(peer = %of_task.address, host = %of_task.from, %error,
                    "connection from a peer closed: its answers cannot be sent");
            }
            of_task.close("it ended");
        };
        if self
            .env
            .gate
            .spawn(&self.env.rt, group_of(inbound.lane), "internode-write", task)
            .is_err()
        {
            return Ok(());
        }
        self.read_inbound(inbound, decoder, rest).await
    }

    /// Writes answers that were delayed or did not fit, and checks for silence.
    async fn write_inbound(&self, inbound: &Inbound) -> Result<(), IoError> {
        let interval = self.env.settings.keepalive_interval;
        let mut tick = pin!(self.env.rt.sleep(interval));
        loop {
            write_out(&self.env, &inbound.outbox, &inbound.conn, &inbound.counters).await?;
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
                // The peer pings at its own interval; allow two more for pings in flight.
                let limit = self.env.settings.keepalive_timeout + 2 * interval;
                if self.env.rt.now().since(inbound.last_received.get()) >= limit {
                    inbound.close("the peer is silent");
                    return Ok(());
                }
                tick.as_mut().set(self.env.rt.sleep(interval));
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
                if frames.is_multiple_of(FRAMES_PER_LOOK) && self.env.rt.is_yield_due() {
                    self.flush(inbound)?;
                    self.env.rt.yield_if_due().await;
                    inbound.in_turn.set(true);
                }
            }
            self.flush(inbound)?;
            if !is_open || inbound.outbox.is_closed() {
                return Ok(());
            }
            // Answers that the peer does not take hold its requests back.
            let max = self.env.settings.response_bytes_max;
            poll_fn(|cx| inbound.outbox.poll_room(cx, max)).await;
            compact(&mut input, &mut used);
            let wanted = wanted(&decoder, &mut input, used);
            let read = inbound.conn.read(&mut input, wanted).await?;
            if read == 0 {
                return Ok(());
            }
            inbound.counters.received_bytes.add(read as u64);
            inbound.last_received.set(self.env.rt.now());
            self.env.rt.yield_if_due().await;
        }
    }

    /// Sends the answers of this turn.
    fn flush(&self, inbound: &Inbound) -> Result<(), IoError> {
        inbound.in_turn.set(false);
        let before = inbound.outbox.handed();
        let written = inbound.outbox.write_some(&inbound.conn, self.env.rt.now())?;
        inbound.counters.sent_bytes.add(inbound.outbox.handed() - before);
        match written {
            Written::All => self.env.maybe_quiet(),
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
        let now = self.env.rt.now();
        let deadline = match header.deadline_micros {
            0 => NEVER,
            left => now + Duration::from_micros(u64::from(left)),
        };
        let Some(verb) = header.known_verb() else {
            return self.turn_down(inbound, header, &ErrorReply::UnknownVerb(header.verb));
        };
        if matches!(verb, Verb::Ping | Verb::Echo) {
            if is_request {
                self.answer_ping(inbound, verb, frame, deadline);
            }
            return Ok(());
        }
        if inbound.joining && !verb.is_for_joining() {
            let text = "a node that is joining may not ask this yet".to_owned();
            return self.turn_down(inbound, header, &ErrorReply::Invalid(text));
        }
        let handler = self.handler.borrow().clone();
        let handler = match handler {
            Some(handler) if !self.env.draining.get() => handler,
            _ => return self.turn_down(inbound, header, &ErrorReply::Stopping),
        };
        let bytes = frame.payload.len();
        if self.is_overloaded(inbound, bytes) {
            return self.turn_down(inbound, header, &ErrorReply::Overloaded);
        }
        self.begin_serving(inbound, verb, bytes);
        if is_request {
            inbound.waiting.borrow_mut().insert(header.stream, false);
        }
        let responder = Responder {
            inbounds: self.clone(),
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

    fn answer_ping(&self, inbound: &Inbound, verb: Verb, frame: &Frame<'_>, deadline: Instant) {
        let (header, payload) = (&frame.header, frame.payload);
        // A peer that measures clocks gets this node's.
        let wall = (verb == Verb::Ping && payload.len() == PING_BYTES_WITH_CLOCK)
            .then(|| self.env.rt.wall().0.to_be_bytes());
        let copy = |out: &mut Vec<u8>| {
            out.extend_from_slice(payload);
            out.extend_from_slice(wall.as_ref().map_or(&[][..], |wall| wall));
        };
        let (kind, verb, stream) = (FrameKind::Response, header.verb, header.stream);
        self.answer(inbound, AnswerHead { kind, verb, stream, more: false, deadline }, copy);
    }

    /// Counts a request until its responder is dropped.
    fn begin_serving(&self, inbound: &Inbound, verb: Verb, bytes: usize) {
        inbound.serving.set(inbound.serving.get() + 1);
        inbound.serving_bytes.set(inbound.serving_bytes.get() + bytes);
        self.env.serving.set(self.env.serving.get() + 1);
        self.env.serving_bytes.set(self.env.serving_bytes.get() + bytes);
        if let Some(stage) = self.env.counters.stage(verb) {
            stage.begin();
        }
    }

    fn is_overloaded(&self, inbound: &Inbound, bytes: usize) -> bool {
        let settings = &self.env.settings;
        // One request always fits, however large.
        let over = |held: usize, max: usize| held > 0 && held.saturating_add(bytes) > max;
        inbound.serving.get() >= settings.serving_max
            || over(inbound.serving_bytes.get(), settings.serving_bytes_max)
            || over(self.env.serving_bytes.get(), settings.serving_bytes_shard_max)
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
            self.env.dropped(verb, DroppedMessage::CrossNode(Duration::ZERO));
        }
        if header.kind == FrameKind::Request {
            let (number, stream) = (header.verb, header.stream);
            let encode = |out: &mut Vec<u8>| error.encode(out);
            let (kind, deadline) = (FrameKind::Error, NEVER);
            let answer = AnswerHead { kind, verb: number, stream, more: false, deadline };
            self.answer(inbound, answer, encode);
        }
        Ok(())
    }

    pub(super) fn answer(
        &self,
        inbound: &Inbound,
        answer: AnswerHead,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let AnswerHead { kind, verb, stream, more, deadline } = answer;
        let header = FrameHeader {
            kind,
            verb,
            stream,
            epoch: self.env.epoch.get(),
            deadline_micros: 0,
            trace: None,
            more,
        };
        let now = self.env.rt.now();
        if let Err(too_long) = inbound.outbox.push(now, &header, deadline, write) {
            let header = FrameHeader { kind: FrameKind::Error, more: false, ..header };
            let error = ErrorReply::Internal(format!("the answer is {too_long}"));
            // Error replies are short.
            let _ = inbound.outbox.push(now, &header, deadline, |out| error.encode(out));
        }
        inbound.counters.sent.inc();
        self.env.counters.sent(verb);
        let limit = self.env.settings.response_bytes_max.saturating_mul(RESPONSE_OVERRUN);
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
