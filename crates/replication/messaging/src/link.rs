//! Who asks: one outgoing connection, from the first request that needs it to its end.
//!
//! Its main task connects, then reads answers; a second one writes what the turn's sends left, sends
//! pings and notices when the peer falls silent.

use crate::client::{Answer, Batch};
use crate::connect::{Failure, Route, RouteKey, first_of};
use crate::counters::PeerCounters;
use crate::cut::Held;
use crate::dropped_log::DroppedMessage;
use crate::error::{MessagingError, OpenError};
use crate::messaging::{Inner, LinkFailure};
use crate::outbox::{NEVER, Outbox, Written};
use internode::{
    ErrorReply, Features, FrameDecoder, FrameEncoder, FrameKind, HelloAck, Lane, Ping, Verb,
};
use rt::sync::Notify;
use rt::{Group, Stream};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use stdx::{HostId, Instant, IoError, IoErrorKind};

/// Most bytes of one read.
pub(crate) const READ_BYTES_MAX: usize = 64 << 10;
/// A buffer above this is given back when it is empty. The largest usual frames, a chunk of a file and
/// a page, fit.
const KEEP_BYTES_MAX: usize = 1536 << 10;
/// Frames that are handled between two looks at the clock.
pub(crate) const FRAMES_PER_LOOK: usize = 16;
/// A connection that lived for less counts as a failed attempt.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// Stream id of pings; requests never have it.
const PING_STREAM: u64 = 0;

/// One outgoing connection.
pub(crate) struct Link {
    pub(crate) id: u64,
    pub(crate) key: RouteKey,
    pub(crate) address: SocketAddr,
    pub(crate) outbox: Outbox,
    pub(crate) counters: Rc<PeerCounters>,
    pub(crate) in_flight: Cell<usize>,
    pub(crate) opened_at: Cell<Option<Instant>>,
    pub(crate) last_request: Cell<Instant>,
    pub(crate) last_received: Cell<Instant>,
    pub(crate) conn: RefCell<Option<Stream>>,
    /// Ends an attempt to connect.
    pub(crate) abort: Notify,
    /// A test cut it: see `cut`.
    pub(crate) is_cut: Cell<bool>,
    /// Told when that changes and when the connection ends.
    pub(crate) changed: Notify,
    pub(crate) closing: RefCell<Option<&'static str>>,
}

impl Link {
    pub(crate) fn host(&self) -> HostId {
        self.key.0
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opened_at.get().is_some() && !self.outbox.is_closed()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Ends the connection; its task completes what waits.
    pub(crate) fn close(&self, why: &'static str) {
        self.closing.borrow_mut().get_or_insert(why);
        let conn = self.conn.borrow().clone();
        if let Some(conn) = conn {
            conn.shutdown();
        }
        self.outbox.close();
        self.abort.notify_waiters();
        self.changed.notify_waiters();
    }

    pub(crate) fn left(&self) {
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
    }
}

impl Inner {
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
        let now = self.rt.now();
        link.opened_at.set(Some(now));
        link.last_received.set(now);
        link.counters.connects.inc();
        *link.conn.borrow_mut() = Some(conn.clone());
        if let Some(peer) = self.peers.borrow_mut().get_mut(&link.host()) {
            peer.shard_count = ack.shard_count;
        }
        let lz4 = ack.features.contains(Features::LZ4);
        let max = self.settings.payload_bytes_max;
        link.outbox.set_encoder(FrameEncoder::new(lz4, max));
        let (inner, of_task, writes) = (self.clone(), link.clone(), conn.clone());
        let task = async move {
            if let Err(error) = inner.write_link(&of_task, &writes).await {
                tracing::debug!(peer = %of_task.address, host = %of_task.host(), %error,
                    "connection to a peer lost");
            }
            of_task.outbox.close();
            of_task.changed.notify_waiters();
            writes.shutdown();
        };
        let spawned = self.gate.spawn(&self.rt, group_of(link.key.2), "internode-write", task);
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
        let interval = self.settings.keepalive_interval;
        let mut next = self.rt.now() + interval;
        let mut tick = pin!(self.rt.sleep_until(next));
        let mut held = Held::default();
        loop {
            if link.is_cut.get() {
                held.take(&link.outbox, self.rt.now());
            } else {
                if !held.is_empty() {
                    self.write_whole(conn, &held.release()).await?;
                }
                self.write_out(&link.outbox, conn, &link.counters).await?;
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
            let now = self.rt.now();
            if is_tick || now >= next {
                if let Some(why) = self.check_link(link, now) {
                    link.close(why);
                    return Ok(());
                }
                next = now + interval;
                tick.as_mut().set(self.rt.sleep_until(next));
            }
        }
    }

    /// Sends a ping; says why the connection must end.
    fn check_link(&self, link: &Link, now: Instant) -> Option<&'static str> {
        let settings = &self.settings;
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
        let header = self.header(FrameKind::Request, Verb::Ping, PING_STREAM);
        let ping = Ping { sent: now.0, wall: Some(self.rt.wall()), answered: None };
        // It never exceeds a limit.
        let _ = link.outbox.push(now, &header, NEVER, |out| ping.encode(out));
    }

    /// Writes until nothing waits.
    ///
    /// # Errors
    /// The connection broke, or the peer takes nothing.
    pub(crate) async fn write_out(
        &self,
        outbox: &Outbox,
        conn: &Stream,
        counters: &PeerCounters,
    ) -> Result<(), IoError> {
        let before = outbox.handed();
        while outbox.write_some(conn, self.rt.now())? == Written::Part {
            let piece = outbox.take_piece(self.rt.now());
            let written = self.write_whole(conn, &piece).await;
            outbox.piece_done();
            written?;
        }
        counters.sent_bytes.add(outbox.handed() - before);
        counters.expired.add(outbox.take_dropped());
        self.maybe_quiet();
        Ok(())
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// As [`Inner::write_out`].
    async fn write_whole(&self, conn: &Stream, bytes: &[u8]) -> Result<(), IoError> {
        let stall = self.rt.now() + self.settings.write_stall;
        let written = self.rt.timeout(stall, conn.write_all(bytes)).await;
        written.unwrap_or_else(|_| {
            Err(IoError {
                kind: IoErrorKind::Disconnected,
                operation: "write",
                path: conn.peer_addr().to_string(),
                detail: "the peer reads nothing".to_owned(),
            })
        })
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
                if frames.is_multiple_of(FRAMES_PER_LOOK) && self.rt.is_yield_due() {
                    self.finish(&mut batch);
                    self.rt.yield_if_due().await;
                }
            }
            self.finish(&mut batch);
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
            link.last_received.set(self.rt.now());
            self.rt.yield_if_due().await;
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
                let round_trip = self.rt.now().since(Instant(ping.sent));
                link.counters.record_rtt(round_trip);
                if let Some(wall) = ping.answered {
                    self.clock_seen(link.host(), wall, round_trip);
                }
                return Ok(());
            }
            FrameKind::Response | FrameKind::Error => {}
            FrameKind::Request | FrameKind::OneWay | FrameKind::Cancel => {
                return Err(format!("a {:?} where only answers belong", header.kind));
            }
        }
        let found = {
            let mut pending = self.pending.borrow_mut();
            let copied = pending.find(header.stream).filter(|w| w.link == link.id).copied();
            if copied.is_some() && !header.more {
                pending.take(header.stream);
            }
            copied
        };
        let Some(waiting) = found else {
            stdx::reached!("messaging-late-answer");
            // Timed out or cancelled meanwhile.
            link.counters.late.inc();
            return Ok(());
        };
        if waiting.verb.number() != header.verb {
            let error = MessagingError::Malformed;
            if header.more {
                self.pending.borrow_mut().take(header.stream);
            }
            link.left();
            self.complete(&waiting, Err(error), batch);
            return Err(format!(
                "an answer to {:#06x} where {:?} was asked",
                header.verb, waiting.verb
            ));
        }
        if !header.more {
            link.left();
        }
        if header.epoch > self.epoch.get() {
            let hook = self.newer.borrow().clone();
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
        self.counters.answered();
        self.complete(&waiting, result, batch);
        Ok(())
    }

    /// Completes what waits for a connection that ended, and decides when to try again.
    fn end_link(self: &Rc<Self>, link: &Rc<Link>, error: Option<&OpenError>) {
        let now = self.rt.now();
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
        self.pending.borrow_mut().take_link(link.id, &mut lost);
        let mut batch = Batch::default();
        for waiting in lost {
            link.counters.lost.inc();
            let waited = now.since(waiting.sent_at);
            self.dropped(waiting.verb, DroppedMessage::Internal(waited));
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
            self.complete(&waiting, Err(error), &mut batch);
        }
        self.finish(&mut batch);
        if self.ended.get() {
            self.timer.notify_one();
        }
        let failed = match error {
            Some(OpenError::Io(error)) if error.kind == IoErrorKind::Refused => {
                Some(LinkFailure::Refused)
            }
            None if lived.is_some() && !was_wanted => Some(LinkFailure::Lost),
            _ => None,
        };
        let hook = self.link_failed.borrow().clone();
        if let (Some(failure), Some(hook)) = (failed, hook) {
            hook(link.host(), failure);
        }
    }
}

/// The scheduling group of a lane's tasks.
pub(crate) fn group_of(lane: Lane) -> Group {
    match lane {
        Lane::Requests | Lane::Probe => Group::Statement,
        Lane::Bulk => Group::Stream,
    }
}

/// Drops used bytes when that is cheap.
pub(crate) fn compact(input: &mut Vec<u8>, used: &mut usize) {
    if *used >= input.len() {
        input.clear();
        if input.capacity() > KEEP_BYTES_MAX {
            *input = Vec::new();
        }
        *used = 0;
    } else if *used > input.len() / 2 {
        input.drain(..*used);
        *used = 0;
    }
}

/// How much to read at once: the rest of a large frame that has begun, within reason, for which room
/// is made.
pub(crate) fn wanted(decoder: &FrameDecoder, input: &mut Vec<u8>, used: usize) -> usize {
    let rest = input.get(used..).unwrap_or_default();
    let missing = match decoder.needed(rest) {
        Ok(Some(whole)) => whole.saturating_sub(rest.len()),
        _ => 0,
    };
    let wanted = missing.clamp(READ_BYTES_MAX, 1 << 20);
    if missing > READ_BYTES_MAX {
        // All at once: growing bit by bit would copy what is there again and again.
        input.reserve(wanted);
    }
    wanted
}
