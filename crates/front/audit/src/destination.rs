//! One destination of a shard's events: its filter, its queue, and the task that writes.
//!
//! INV-audit-2: a batch of events leaves the queue when it is written, or when its destination is abandoned, which
//! counts its events as dropped.

use crate::counters::Counters;
use crate::event::Event;
use crate::filter::Filter;
use crate::queue::{EventQueue, Pushed};
use rt::Rt;
use rt::sync::Notify;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use stdx::Instant;

/// Weight of the events that are written at once.
const BATCH_BYTES: u64 = 256 << 10;
/// How long a batch collects events.
const COLLECT: Duration = Duration::from_millis(5);
/// How long a failed write waits before the next attempt.
const RETRY: Duration = Duration::from_secs(1);
/// How often a lasting failure is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Writer of a batch.
pub(crate) type Write =
    Box<dyn Fn(Vec<Rc<Event>>) -> Pin<Box<dyn Future<Output = Result<(), String>>>>>;

/// Writer of a destination, and the metrics that it counts in.
pub(crate) struct Writer {
    pub(crate) write: Write,
    pub(crate) counters: Rc<Counters>,
}

/// One destination of a shard's events.
pub(crate) struct Destination {
    pub(crate) name: &'static str,
    pub(crate) filter: Filter,
    pub(crate) write: Write,
    counters: Rc<Counters>,
    queue: RefCell<EventQueue>,
    /// The task has something to write, or the destination is closed.
    wake: Notify,
    /// The destination is closed. Ends the pause after a failed write, which new events must not end.
    closing: Notify,
    changed: Notify,
    progress: Cell<Progress>,
    last_logged: Cell<Option<Instant>>,
    /// When a dropped administrative action was logged.
    last_refused: Cell<Option<Instant>>,
    /// Events that were dropped because the destination was closed.
    abandoned: Cell<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Open,
    /// The task writes the queued events, and ends.
    Closing,
    /// The task drops the queued events, and ends.
    Abandoned,
    Ended,
}

impl Destination {
    pub(crate) fn new(
        name: &'static str,
        filter: Filter,
        queue: EventQueue,
        writer: Writer,
    ) -> Rc<Destination> {
        Rc::new(Destination {
            name,
            filter,
            write: writer.write,
            counters: writer.counters,
            queue: RefCell::new(queue),
            wake: Notify::new(),
            closing: Notify::new(),
            changed: Notify::new(),
            progress: Cell::new(Progress::Open),
            last_logged: Cell::new(None),
            last_refused: Cell::new(None),
            abandoned: Cell::new(0),
        })
    }

    /// Queues an event, or drops it, and counts it.
    pub(crate) fn push(&self, event: Rc<Event>) -> Pushed {
        let pushed = self.change_queue(|queue| queue.push(event));
        match pushed {
            Pushed::Dropped => self.counters.dropped.inc(),
            Pushed::Queued | Pushed::Over => {
                self.counters.events.inc();
                self.wake.notify_one();
            }
        }
        pushed
    }

    /// Queues an event whose cause cannot wait: it is dropped, counted and logged where a request would be refused.
    pub(crate) fn push_unless_full(&self, now: Instant, event: Rc<Event>) {
        if self.admits() {
            self.push(event);
            return;
        }
        self.counters.dropped.inc();
        if self.last_refused.get().is_none_or(|at| now.since(at) >= LOG_EVERY) {
            self.last_refused.set(Some(now));
            tracing::error!(
                destination = self.name,
                operation = &*event.operation,
                "audit event of an administrative action dropped: the queue is full"
            );
        }
    }

    /// Changes the queue, and the metric of all queues with it.
    fn change_queue<T>(&self, change: impl FnOnce(&mut EventQueue) -> T) -> T {
        let mut queue = self.queue.borrow_mut();
        let before = queue.weight();
        let result = change(&mut queue);
        let signed = |weight| i64::try_from(weight).unwrap_or(i64::MAX);
        self.counters.queue_bytes.add(signed(queue.weight()).saturating_sub(signed(before)));
        result
    }

    pub(crate) fn admits(&self) -> bool {
        self.queue.borrow().admits()
    }

    /// Waits until answers may be sent. Returns false at the deadline.
    pub(crate) async fn wait(&self, rt: &Rt, deadline: Instant) -> bool {
        while self.queue.borrow().is_over() && self.progress.get() != Progress::Ended {
            if rt.timeout(deadline, self.changed.notified()).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Writes the queued events until the deadline, and drops the rest: counted and logged.
    pub(crate) async fn close(&self, rt: &Rt, deadline: Instant) {
        if self.progress.get() == Progress::Open {
            self.progress.set(Progress::Closing);
        }
        self.wake.notify_one();
        self.closing.notify_one();
        while self.progress.get() != Progress::Ended {
            if rt.timeout(deadline, self.changed.notified()).await.is_err() {
                self.progress.set(Progress::Abandoned);
                self.wake.notify_one();
                self.closing.notify_one();
                // The task ends without waiting again, unless the destination hangs.
                let last = rt.now() + RETRY;
                while self.progress.get() != Progress::Ended {
                    if rt.timeout(last, self.changed.notified()).await.is_err() {
                        break;
                    }
                }
                break;
            }
        }
        // Also the batch of a write that hangs, which may still be written.
        self.progress.set(Progress::Ended);
        self.drop_events(self.change_queue(EventQueue::clear));
        self.changed.notify_waiters();
        let dropped = self.abandoned.take();
        if dropped > 0 {
            tracing::error!(
                destination = self.name,
                dropped,
                "audit events dropped: they could not be written before the destination was closed"
            );
        }
    }

    fn drop_events(&self, count: usize) {
        self.counters.dropped.add(count as u64);
        self.abandoned.set(self.abandoned.get() + count as u64);
    }

    /// Writes queued events until the destination is closed.
    pub(crate) async fn run(self: Rc<Self>, rt: Rt) {
        while !self.is_left() {
            let is_open = self.progress.get() == Progress::Open;
            let weight = self.queue.borrow().weight();
            if weight == 0 {
                if !is_open {
                    break;
                }
                self.wake.notified().await;
                continue;
            }
            if is_open && weight < BATCH_BYTES && !self.queue.borrow().is_over() {
                rt.sleep(COLLECT).await;
            }
            let batch = self.queue.borrow_mut().take(BATCH_BYTES);
            if self.write_batch(&rt, batch).await {
                self.change_queue(EventQueue::written);
                self.changed.notify_waiters();
            }
        }
        self.progress.set(Progress::Ended);
        self.changed.notify_waiters();
    }

    /// Returns true if the rest of the queue is dropped by [`Destination::close`].
    fn is_left(&self) -> bool {
        matches!(self.progress.get(), Progress::Abandoned | Progress::Ended)
    }

    /// Writes a batch, and tries again until it is written or abandoned. Returns true if it is written.
    async fn write_batch(&self, rt: &Rt, batch: Vec<Rc<Event>>) -> bool {
        while !self.is_left() {
            let Err(error) = (self.write)(batch.clone()).await else { return true };
            self.counters.failures.inc();
            let now = rt.now();
            let is_due = self.last_logged.get().is_none_or(|at| now.since(at) >= LOG_EVERY);
            if is_due {
                self.last_logged.set(Some(now));
                tracing::error!(
                    destination = self.name,
                    error,
                    "cannot write the audit log; its events stay queued and are written again"
                );
            }
            // A destination that is closed is tried immediately, until its deadline.
            let _ = rt.timeout(rt.now() + RETRY, self.closing.notified()).await;
        }
        false
    }
}
