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

/// One destination of a shard's events.
pub(crate) struct Destination {
    pub(crate) name: &'static str,
    pub(crate) filter: Filter,
    pub(crate) write: Write,
    queue: RefCell<EventQueue>,
    wake: Notify,
    changed: Notify,
    progress: Cell<Progress>,
    last_logged: Cell<Option<Instant>>,
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
        write: Write,
    ) -> Rc<Destination> {
        Rc::new(Destination {
            name,
            filter,
            write,
            queue: RefCell::new(queue),
            wake: Notify::new(),
            changed: Notify::new(),
            progress: Cell::new(Progress::Open),
            last_logged: Cell::new(None),
        })
    }

    pub(crate) fn push(&self, event: Rc<Event>) -> Pushed {
        let pushed = self.queue.borrow_mut().push(event);
        if pushed != Pushed::Dropped {
            self.wake.notify_one();
        }
        pushed
    }

    pub(crate) fn admits(&self) -> bool {
        self.queue.borrow().admits()
    }

    pub(crate) fn weight(&self) -> u64 {
        self.queue.borrow().weight()
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

    /// Writes the queued events until the deadline, and drops the rest.
    pub(crate) async fn close(&self, rt: &Rt, deadline: Instant) {
        if self.progress.get() == Progress::Open {
            self.progress.set(Progress::Closing);
        }
        self.wake.notify_one();
        while self.progress.get() != Progress::Ended {
            if rt.timeout(deadline, self.changed.notified()).await.is_err() {
                self.progress.set(Progress::Abandoned);
                self.wake.notify_one();
                // The task ends without waiting again, unless the destination hangs.
                let last = rt.now() + RETRY;
                if rt.timeout(last, self.changed.notified()).await.is_err() {
                    self.progress.set(Progress::Ended);
                }
            }
        }
        self.changed.notify_waiters();
    }

    /// Writes queued events until the destination is closed.
    pub(crate) async fn run(self: Rc<Self>, rt: Rt, counters: Rc<Counters>) {
        while self.progress.get() != Progress::Ended {
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
            self.write_batch(&rt, &counters, batch).await;
            self.queue.borrow_mut().written();
            self.changed.notify_waiters();
        }
        self.progress.set(Progress::Ended);
        self.changed.notify_waiters();
    }

    /// Writes a batch, and tries again until it is written or abandoned.
    async fn write_batch(&self, rt: &Rt, counters: &Counters, batch: Vec<Rc<Event>>) {
        loop {
            let left = matches!(self.progress.get(), Progress::Abandoned | Progress::Ended);
            if left {
                counters.dropped.add(batch.len() as u64);
                return;
            }
            let Err(error) = (self.write)(batch.clone()).await else { return };
            counters.failures.inc();
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
            let _ = rt.timeout(rt.now() + RETRY, self.wake.notified()).await;
        }
    }
}
