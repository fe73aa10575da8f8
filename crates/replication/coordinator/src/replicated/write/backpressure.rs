//! Back-pressure of replicas: a write waits while one of its replicas has as much in flight as it can
//! handle, and with the write its client waits. Reads never wait here.
//!
//! A [`Backlog`] counts what this shard has in flight to one shard of one node, and holds the writes
//! that wait for room. [`request::ReplicaWindow`] limits how much may be in flight. Waiting writes are
//! served in turn by the connection that they come from. A write waits for its replicas one after the
//! other. It reserves nothing at replicas where its turn has come, so that a slow replica does not keep
//! room of others unused. The excess that this causes is limited by the windows of the others.
//!
//! No write waits for a replica that makes no progress: if the level does not need the replica, its
//! mutation becomes a hint (`plans`).
//!
//! INV-backpressure-1: each message that is counted when it is sent is subtracted once, when it ends.
//! INV-backpressure-2: while a write waits and there is room, a waiter is woken.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use internode::ErrorReply;
use messaging::{Completion, MessagingError};
use request::{ReplicaWindow, Room, WindowSettings};
use rt::Rt;
use rt::sync::oneshot::{self, Sender};
use smallvec::SmallVec;
use stdx::{FixedMap, HostId, Instant, ShardId};
use telemetry::{Counter, Gauge, Shard};

use super::fair_queue::FairQueue;

/// A shard of a node.
pub(crate) type Place = (HostId, ShardId);

/// The shards that get a write.
pub(crate) type Places = SmallVec<[Place; 4]>;

/// Limits of what is in flight to all replicas together.
pub(crate) struct AllWrites {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// A write that waits for room.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    /// Waiters of different sources get their turns alternately.
    pub(crate) source: u64,
    pub(crate) deadline: Instant,
}

/// Entries above which those of nodes that are unknown by now are dropped.
const PLACES_MANY: usize = 1024;

struct BacklogCounters {
    waiting: Gauge,
    waited: Counter,
    stalls: Counter,
}

/// Messages in flight to one shard of one node.
pub(crate) struct Backlog {
    /// `None`: to all of them together.
    place: Option<Place>,
    window: RefCell<ReplicaWindow>,
    waiting: RefCell<FairQueue<Sender<Turn>>>,
    /// Turns that were given and are not used yet.
    given: Cell<u32>,
    is_stalled: Cell<bool>,
    /// Number of stalled backlogs, shared by all of them.
    stalled: Rc<Cell<usize>>,
    counters: Rc<BacklogCounters>,
}

/// The right to send next. Dropped, the next one is woken if there is room.
pub(crate) struct Turn(Rc<Backlog>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.given.set(self.0.given.get().saturating_sub(1));
        self.0.wake();
    }
}

impl Backlog {
    /// Returns the room for a write that is not in the queue.
    fn room(&self, now: Instant) -> Room {
        let room = self.window.borrow_mut().room(now);
        self.note_stalled();
        let taken = || {
            let window = self.window.borrow();
            let is_taken = window.count() > 0 && self.given.get() >= window.free();
            !window.is_stalled() && (is_taken || self.waiting.borrow().len() > 0)
        };
        match room {
            // Waiting writes go first.
            Room::Free if taken() => Room::Full(now + LOOK_AGAIN),
            room => room,
        }
    }

    /// One was sent.
    pub(crate) fn sent(&self, now: Instant, bytes: usize) {
        self.window.borrow_mut().sent(now, bytes);
    }

    /// One was answered, whatever the answer.
    pub(crate) fn answered(self: &Rc<Self>, now: Instant, elapsed: Duration, bytes: usize) {
        self.window.borrow_mut().answered(now, elapsed, bytes);
        self.note_stalled();
        self.wake();
    }

    /// One ended without all answers.
    pub(crate) fn lost(self: &Rc<Self>, bytes: usize) {
        self.window.borrow_mut().lost(bytes);
        self.wake();
    }

    fn ended(self: &Rc<Self>, now: Instant, completion: &Completion<'_>) {
        let bytes = completion.payload_bytes;
        let mut window = self.window.borrow_mut();
        match &completion.result {
            Ok(_) => window.answered(now, completion.elapsed, bytes),
            Err(MessagingError::Remote(ErrorReply::Overloaded)) => window.refused(now, bytes),
            Err(MessagingError::Remote(_)) => window.answered(now, completion.elapsed, bytes),
            Err(_) => window.lost(bytes),
        }
        drop(window);
        self.note_stalled();
        self.wake();
    }

    /// Gives turns to those that wait, as far as there is room.
    fn wake(self: &Rc<Self>) {
        loop {
            let free = self.window.borrow().free();
            // With nothing in flight, no completion would wake the waiters.
            let has_room = free > self.given.get()
                || (self.window.borrow().count() == 0 && self.given.get() == 0);
            if !has_room {
                return;
            }
            let next = self.waiting.borrow_mut().pop();
            let Some(next) = next else { return };
            if next.is_closed() {
                continue;
            }
            self.given.set(self.given.get() + 1);
            // If the receiver is gone, the turn is dropped and passed on.
            let _ = next.send(Turn(self.clone()));
        }
    }

    /// Waits for a turn. `None`: the write continues without one, because the replica makes no
    /// progress or the deadline has passed.
    async fn turn(self: &Rc<Self>, rt: &Rt, source: u64, deadline: Instant) -> Option<Turn> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().push(source, sender);
        let mut receiver = std::pin::pin!(receiver);
        self.counters.waited.inc();
        let _counted = Waits::new(&self.counters.waiting);
        // All waiters before it may have been cancelled.
        self.wake();
        loop {
            let now = rt.now();
            let room = self.window.borrow_mut().room(now);
            self.note_stalled();
            let until = match room {
                Room::Full(until) => until,
                Room::Free if !self.is_stalled.get() => now + LOOK_AGAIN,
                Room::Free | Room::Stalled => return None,
            };
            if now >= deadline {
                return None;
            }
            match rt.timeout(until.min(deadline), receiver.as_mut()).await {
                Ok(turn) => return turn.ok(),
                Err(_) => self.wake(),
            }
        }
    }

    /// Logs once that a replica makes no progress, and once that it does again.
    fn note_stalled(&self) {
        let is = self.window.borrow().is_stalled();
        let was = self.is_stalled.replace(is);
        if is == was {
            return;
        }
        let stalled = self.stalled.get();
        self.stalled.set(if is { stalled + 1 } else { stalled.saturating_sub(1) });
        let Some((host, shard)) = self.place else { return };
        let under_way = self.window.borrow().count();
        if is {
            self.counters.stalls.inc();
            tracing::warn!(
                %host,
                shard = shard.0,
                under_way,
                "replica makes no progress: its writes are stored as hints where their level \
                allows it"
            );
        } else {
            tracing::info!(%host, shard = shard.0, "replica makes progress again");
        }
    }
}

/// Longest sleep of a write that waits although there may be room.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

struct Waits(Gauge);

impl Waits {
    fn new(gauge: &Gauge) -> Waits {
        gauge.add(1);
        Waits(gauge.clone())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

/// The backlogs of one shard.
pub(crate) struct Backlogs {
    by_place: RefCell<FixedMap<Place, Rc<Backlog>>>,
    /// The backlog of all unfinished writes together.
    all: Rc<Backlog>,
    settings: WindowSettings,
    stalled: Rc<Cell<usize>>,
    counters: Rc<BacklogCounters>,
}

impl Backlogs {
    /// `all`: limits of the unfinished writes and their bytes, above which new ones wait.
    pub(crate) fn new(
        telemetry: &Shard,
        settings: WindowSettings,
        AllWrites { count, bytes }: AllWrites,
    ) -> Backlogs {
        let counters = Rc::new(BacklogCounters {
            waiting: telemetry.gauge(
                "coordinator_writes_waiting",
                "writes that wait until their replicas have room",
                &[],
            ),
            waited: telemetry.counter(
                "coordinator_writes_waited_total",
                "waits of writes until a replica had room",
                &[],
            ),
            stalls: telemetry.counter(
                "coordinator_replica_stalls_total",
                "times that a replica with a full window made no progress",
                &[],
            ),
        });
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let of_all = WindowSettings {
            count_min: count,
            count_max: count,
            bytes_max: bytes,
            queue_time: Duration::MAX,
            ..settings
        };
        let stalled = Rc::new(Cell::new(0));
        let all = Backlogs::make(None, of_all, &stalled, &counters);
        let by_place = RefCell::default();
        Backlogs { by_place, all, settings, stalled, counters }
    }

    fn make(
        place: Option<Place>,
        settings: WindowSettings,
        stalled: &Rc<Cell<usize>>,
        counters: &Rc<BacklogCounters>,
    ) -> Rc<Backlog> {
        Rc::new(Backlog {
            place,
            window: RefCell::new(ReplicaWindow::new(settings)),
            waiting: RefCell::default(),
            given: Cell::new(0),
            is_stalled: Cell::new(false),
            stalled: stalled.clone(),
            counters: counters.clone(),
        })
    }

    /// Returns the backlog of a shard of a node. `is_known` returns true if a node may still be
    /// needed.
    pub(crate) fn of(&self, place: Place, is_known: impl Fn(HostId) -> bool) -> Rc<Backlog> {
        let mut by_place = self.by_place.borrow_mut();
        if let Some(backlog) = by_place.get(&place) {
            return backlog.clone();
        }
        if by_place.len() >= PLACES_MANY {
            by_place.retain(|(host, _), backlog| {
                is_known(*host)
                    || Rc::strong_count(backlog) > 1
                    || backlog.window.borrow().count() > 0
            });
        }
        let made = Backlogs::make(Some(place), self.settings, &self.stalled, &self.counters);
        by_place.insert(place, made.clone());
        made
    }

    fn find(&self, place: Place) -> Option<Rc<Backlog>> {
        self.by_place.borrow().get(&place).cloned()
    }

    /// Returns the backlog of all writes together.
    pub(crate) fn all(&self) -> &Rc<Backlog> {
        &self.all
    }

    /// A message to a replica ended.
    pub(crate) fn ended(&self, now: Instant, completion: &Completion<'_>) {
        if let Some(backlog) = self.find((completion.host, completion.shard)) {
            backlog.ended(now, completion);
        }
    }

    /// Returns true if a replica makes no progress.
    pub(crate) fn has_stalled(&self) -> bool {
        self.stalled.get() > 0
    }

    /// Returns true if a write to a shard of a node should become a hint instead.
    pub(crate) fn is_stalled(&self, place: Place, now: Instant) -> bool {
        let backlog = self.find(place);
        backlog.is_some_and(|backlog| backlog.room(now) == Room::Stalled)
    }

    /// The first place that has no room.
    fn first_full(
        &self,
        places: &[Place],
        from: usize,
        now: Instant,
    ) -> Option<(usize, Rc<Backlog>)> {
        let rest = places.iter().enumerate().skip(from);
        let full = |(at, place): (usize, &Place)| {
            let backlog = self.find(*place)?;
            matches!(backlog.room(now), Room::Full(_)).then_some((at, backlog))
        };
        rest.into_iter().find_map(full)
    }

    /// Returns true if a write to these places may start at once.
    pub(crate) fn has_room(&self, places: &[Place], now: Instant) -> bool {
        !matches!(self.all.room(now), Room::Full(_)) && self.first_full(places, 0, now).is_none()
    }

    /// Waits until every place has had room or makes no progress, or until the deadline. The write
    /// must begin before the returned value is dropped.
    pub(crate) async fn room_at(
        &self,
        rt: &Rt,
        places: &[Place],
        Waiter { source, deadline }: Waiter,
    ) -> Option<Turn> {
        let mut turn = None;
        if matches!(self.all.room(rt.now()), Room::Full(_)) {
            turn = self.all.turn(rt, source, deadline).await;
        }
        let mut from = 0;
        while let Some((at, backlog)) = self.first_full(places, from, rt.now()) {
            // Lets the next write waiting at the previous target go.
            drop(turn.take());
            turn = backlog.turn(rt, source, deadline).await;
            from = at + 1;
        }
        turn
    }
}
