//! The tasks of a connection that this node opened.
//!
//! The main task connects, then reads answers; a second one writes what the turn's sends left, sends
//! pings and notices when the peer falls silent.

use super::{Failure, Outbound, Route};
use crate::completions::{Answer, Batch};
use crate::cut::Held;
use crate::dropped_log::DroppedMessage;
use crate::error::{MessagingError, OpenError};
use crate::hooks::LinkFailure;
use crate::io::{FRAMES_PER_LOOK, compact, first_of, group_of, wanted, write_out, write_whole};
use crate::link::Link;
use crate::outbox::NEVER;
use internode::{
    ErrorReply, Features, FrameDecoder, FrameEncoder, FrameKind, HelloAck, Ping, Verb,
};
use rt::Stream;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use stdx::{HostId, Instant, IoError, IoErrorKind, WallMicros};

/// A connection that lived for less counts as a failed attempt.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// Stream id of pings; requests never have it.
const PING_STREAM: u64 = 0;

impl Outbound {
    pub(crate) async fn run_link(self: Rc<Self>, link: Rc<Link>) {
        if link.outbox.is_closed() {
            // Before this task first ran.
            return self.end_link(&link, None);
        }
        let hello = self.hello(Some(link.host()), link.key.1, link.key.2, link.address);
        let connecting = self.open(link.address, hello);
        let opened = first_of(connecting, link.abort.notified()).await;
        let error = match opened {
            None => None,
            Some(Err(error)) => Some(error),
            // Closed in the very turn in which the connection was made.
            Some(Ok(_)) if link.outbox.is_closed() => None,
            Some(Ok((conn, ack, rest))) => {
                self.use_link(&link, conn, &ack, rest).await;
                None
            }
        };
        self.end_link(&link, error.as_ref());
    }

    async fn use_link(
        self: &Rc<Self>,
        link: &Rc<Link>,
        conn: Stream,
        ack: &HelloAck,
        rest: Vec<u8>,
    ) {
        let now = self.env.rt.now();
        link.opened_at.set(Some(now));
        link.last_received.set(now);
        link.counters.connects.inc();
        *link.conn.borrow_mut() = Some(conn.clone());
        if let Some(peer) = self.env.peers.borrow_mut().get_mut(&link.host()) {
            peer.shard_count = ack.shard_count;
        }
        let lz4 = ack.features.contains(Features::LZ4);
        let max = self.env.settings.payload_bytes_max;
        link.outbox.set_encoder(FrameEncoder::new(lz4, max));
        let (outbound, of_task, writes) = (self.clone(), link.clone(), conn.clone());
        let task = async move {
            if let Err(error) = outbound.write_link(&of_task, &writes).await {
                tracing::debug!(peer = %of_task.address, host = %of_task.host(), %error,
                    "connection to a peer lost");
            }
            of_task.outbox.close();
            of_task.changed.notify_waiters();
            writes.shutdown();
        };
        let spawned =
            self.env.gate.spawn(&self.env.rt, group_of(link.key.2), "internode-write", task);
        if spawned.is_err() {
            return;
        }
        let decoder = FrameDecoder::new(lz4, max);
        if let Err(error) = self.read_link(link, &conn, decoder, rest).await {
            tracing::debug!(peer = %link.address, host = %link.host(), %error,
                "connection to a peer lost");
        }
        conn.shutdown();
    }

    /// Writes what waits, pings, and looks for silence, until the connection ends.
    async fn write_link(&self, link: &Link, conn: &Stream) -> Result<(), IoError> {
        let interval = self.env.settings.keepalive_interval;
        let mut next = self.env.rt.now() + interval;
        let mut tick = pin!(self.env.rt.sleep_until(next));
        let mut held = Held::default();
        loop {
            if link.is_cut.get() {
                held.take(&link.outbox, self.env.rt.now());
            } else {
                if !held.is_empty() {
                    write_whole(&self.env, conn, &held.release()).await?;
                }
                write_out(&self.env, &link.outbox, conn, &link.counters).await?;
            }
            let is_tick = poll_fn(|cx| {
                let work = match link.is_cut.get() {
                    false => link.outbox.poll_work(cx),
                    true => held.poll_work(&link.outbox, cx),
                };
                if work.is_ready() || (!link.is_cut.get() && !held.is_empty()) {
                    return Poll::Ready(false);
                }
                tick.as_mut().poll(cx).map(|()| true)
            })
            .await;
            if link.outbox.is_closed() {
                return Ok(());
            }
            let now = self.env.rt.now();
            if is_tick || now >= next {
                if let Some(why) = self.check_link(link, now) {
                    link.close(why);
                    return Ok(());
                }
                next = now + interval;
                tick.as_mut().set(self.env.rt.sleep_until(next));
            }
        }
    }

    /// Sends a ping, or returns the reason why the connection must end.
    fn check_link(&self, link: &Link, now: Instant) -> Option<&'static str> {
        let settings = &self.env.settings;
        if now.since(link.last_received.get()) >= settings.keepalive_timeout {
            stdx::reached!("messaging-silent-peer");
            tracing::info!(peer = %link.address, host = %link.host(),
                "connection to a peer closed: it does not answer");
            return Some("the peer does not answer");
        }
        let idle = now.since(link.last_request.get()) >= settings.idle_timeout
            || stdx::chaos!("messaging-idle-link-closed");
        if idle && link.in_flight.get() == 0 {
            return Some("not used");
        }
        self.ping(link, now);
        None
    }

    /// Asks whether the peer answers, and what its clock shows.
    fn ping(&self, link: &Link, now: Instant) {
        let header = self.env.header(FrameKind::Request, Verb::Ping, PING_STREAM);
        let ping = Ping { sent: now.0, wall: Some(self.env.rt.wall()), answered: None };
        // A ping never exceeds a limit.
        let _ = link.outbox.push(now, &header, NEVER, |out| ping.encode(out));
    }

    /// Reads answers until the connection ends.
    async fn read_link(
        self: &Rc<Self>,
        link: &Link,
        conn: &Stream,
        mut decoder: FrameDecoder,
        mut input: Vec<u8>,
    ) -> Result<(), IoError> {
        let mut used = 0;
        loop {
            let mut batch = Batch::default();
            let mut frames = 0usize;
            let mut is_open = true;
            while is_open {
                let rest = input.get(used..).unwrap_or_default();
                let position = used;
                match decoder.next(rest) {
                    Ok(Some((frame, length))) => {
                        used += length;
                        frames += 1;
                        is_open = match self.take_answer(link, &frame, &mut batch) {
                            Ok(()) => !link.outbox.is_closed(),
                            Err(what) => {
                                self.close_bad(link, &what, position);
                                false
                            }
                        };
                    }
                    Ok(None) => break,
                    Err(error) => {
                        self.close_bad(link, &error, position);
                        is_open = false;
                    }
                }
                if frames.is_multiple_of(FRAMES_PER_LOOK) && self.env.rt.is_yield_due() {
                    self.clients.finish(&self.env, &mut batch);
                    self.env.rt.yield_if_due().await;
                }
            }
            self.clients.finish(&self.env, &mut batch);
            if !is_open || link.outbox.is_closed() {
                return Ok(());
            }
            compact(&mut input, &mut used);
            let max = wanted(&decoder, &mut input, used);
            let read = conn.read(&mut input, max).await?;
            if link.is_cut.get() {
                link.whole().await;
            }
            if read == 0 {
                return Ok(());
            }
            link.counters.received_bytes.add(read as u64);
            link.last_received.set(self.env.rt.now());
            self.env.rt.yield_if_due().await;
        }
    }

    /// A peer's clock showed `wall` when it answered what took `round_trip`.
    fn note_clock(&self, host: HostId, wall: WallMicros, round_trip: Duration) {
        let is_measured = self.clocks.note(&self.env, host, wall, round_trip);
        if let Some(hook) = self.hooks.clock_measured().filter(|_| is_measured) {
            hook();
        }
    }

    fn close_bad(&self, link: &Link, error: &dyn std::fmt::Display, position: usize) {
        link.counters.protocol_errors.inc();
        tracing::warn!(peer = %link.address, host = %link.host(), %error, position,
            "connection to a peer closed: its answers cannot be read");
    }

    fn take_answer(
        self: &Rc<Self>,
        link: &Link,
        frame: &internode::Frame<'_>,
        batch: &mut Batch,
    ) -> Result<(), String> {
        let header = &frame.header;
        link.counters.received.inc();
        match header.kind {
            FrameKind::Response if header.stream == PING_STREAM => {
                let ping = Ping::decode(frame.payload).map_err(|e| e.to_string())?;
                let round_trip = self.env.rt.now().since(Instant(ping.sent));
                link.counters.record_rtt(round_trip);
                if let Some(wall) = ping.answered {
                    self.note_clock(link.host(), wall, round_trip);
                }
                return Ok(());
            }
            FrameKind::Response | FrameKind::Error => {}
            FrameKind::Request | FrameKind::OneWay | FrameKind::Cancel => {
                return Err(format!("a {:?} where only answers belong", header.kind));
            }
        }
        let found = {
            let mut pending = self.env.pending.borrow_mut();
            let copied = pending.find(header.stream).filter(|w| w.link == link.id).copied();
            if copied.is_some() && !header.more {
                pending.take(header.stream);
            }
            copied
        };
        let Some(waiting) = found else {
            stdx::reached!("messaging-late-answer");
            // The request has timed out or was cancelled meanwhile.
            link.counters.late.inc();
            return Ok(());
        };
        if waiting.verb.number() != header.verb {
            let error = MessagingError::Malformed;
            if header.more {
                self.env.pending.borrow_mut().take(header.stream);
            }
            link.left();
            self.clients.complete(&self.env, &waiting, Err(error), batch);
            return Err(format!(
                "an answer to {:#06x} where {:?} was asked",
                header.verb, waiting.verb
            ));
        }
        if !header.more {
            link.left();
        }
        if header.epoch > self.env.epoch.get() {
            let hook = self.hooks.newer_epoch();
            if let Some(hook) = hook {
                hook(link.host(), header.epoch);
            }
        }
        let result = match header.kind {
            FrameKind::Error => Err(match ErrorReply::decode(frame.payload) {
                Ok(error) => MessagingError::Remote(error),
                Err(_) => MessagingError::Malformed,
            }),
            _ => Ok(Answer { epoch: header.epoch, payload: frame.payload, more: header.more }),
        };
        self.env.counters.answered();
        self.clients.complete(&self.env, &waiting, result, batch);
        Ok(())
    }

    /// Completes what waits for a connection that ended, and decides when to try again.
    fn end_link(self: &Rc<Self>, link: &Rc<Link>, error: Option<&OpenError>) {
        let now = self.env.rt.now();
        link.outbox.close();
        *link.conn.borrow_mut() = None;
        self.links.borrow_mut().remove(&link.id);
        let failure = error.map(Failure::of);
        let lived = link.opened_at.get().map(|at| now.since(at));
        let was_wanted = link.closing.borrow().is_some();
        let mut retry_in = Duration::ZERO;
        {
            let mut routes = self.routes.borrow_mut();
            let route = routes.get_mut(&link.key);
            // A newer link of the same route keeps what it has.
            let is_current = |r: &&mut Route| r.link.as_ref().is_some_and(|l| l.id == link.id);
            if let Some(route) = route.filter(is_current) {
                route.link = None;
                if lived.is_some_and(|lived| lived >= SHORT_LIFE) || was_wanted {
                    route.failures = 0;
                    route.retry_at = now;
                } else {
                    let reason = failure.clone().unwrap_or_else(|| {
                        Failure::Cause("the connection was lost as soon as it was made".into())
                    });
                    self.postpone(link, route, reason, now);
                    retry_in = route.retry_at.since(now);
                }
            }
        }
        let mut lost = Vec::new();
        self.env.pending.borrow_mut().take_link(link.id, &mut lost);
        let mut batch = Batch::default();
        for waiting in lost {
            link.counters.lost.inc();
            let waited = now.since(waiting.sent_at);
            self.env.dropped(waiting.verb, DroppedMessage::Internal(waited));
            let error = match &failure {
                Some(failure) => failure.as_error(link.host(), retry_in),
                None => {
                    let maybe_delivered = link.outbox.is_handed(waiting.begin);
                    if maybe_delivered {
                        stdx::reached!("messaging-lost-maybe-delivered");
                    } else {
                        stdx::reached!("messaging-lost-unsent");
                    }
                    MessagingError::Lost { maybe_delivered }
                }
            };
            self.clients.complete(&self.env, &waiting, Err(error), &mut batch);
        }
        self.clients.finish(&self.env, &mut batch);
        if self.env.ended.get() {
            self.timer.notify_one();
        }
        let failed = match error {
            Some(OpenError::Io(error)) if error.kind == IoErrorKind::Refused => {
                Some(LinkFailure::Refused)
            }
            None if lived.is_some() && !was_wanted => Some(LinkFailure::Lost),
            _ => None,
        };
        let hook = self.hooks.link_failed();
        if let (Some(failure), Some(hook)) = (failed, hook) {
            hook(link.host(), failure);
        }
    }
}
