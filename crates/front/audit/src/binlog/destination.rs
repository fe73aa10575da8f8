//! One destination of a shard's records: its queue, and the task that writes.
//!
//! INV-audit-2: a record leaves the queue when it is written, or when its destination is abandoned, which counts it as
//! dropped. A record that is written is not written again.

use super::counters::LogCounters;
use super::queue::{Pushed, RecordQueue, Weighed};
use rt::Rt;
use rt::sync::Notify;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use stdx::Instant;

/// Weight of the records that are written at once.
const BATCH_BYTES: u64 = 256 << 10;
/// How long a batch collects records.
const COLLECT: Duration = Duration::from_millis(5);
/// How long a failed write waits before the next attempt.
const RETRY: Duration = Duration::from_secs(1);
/// How often a lasting failure is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Failure of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// Number of records, from the first of the batch on, that are written all the same.
    pub written: usize,
    /// In words.
    pub error: String,
}

impl From<String> for WriteFailure {
    /// Nothing is written.
    fn from(error: String) -> WriteFailure {
        WriteFailure { written: 0, error }
    }
}

/// Writer of a batch, which is written again from the first record on that was not written.
pub type Write<T> = Box<dyn Fn(&[T]) -> Pin<Box<dyn Future<Output = Result<(), WriteFailure>>>>>;

/// Writer of a destination, and the metrics that it counts in.
pub struct Writer<T> {
    /// Name of the log in messages.
    pub log: &'static str,
    /// Writes a batch.
    pub write: Write<T>,
    /// Metrics of the shard's part of the log.
    pub counters: Rc<LogCounters>,
}

/// One destination of a shard's records.
pub struct Destination<T> {
    name: &'static str,
    writer: Writer<T>,
    queue: RefCell<RecordQueue<T>>,
    /// The task has something to write, or the destination is closed.
    wake: Notify,
    /// The destination is closed. Ends the pause after a failed write, which new records must not end.
    closing: Notify,
    changed: Notify,
    progress: Cell<Progress>,
    last_logged: Cell<Option<Instant>>,
    /// When a record that was dropped without waiting was logged.
    last_refused: Cell<Option<Instant>>,
    /// Records that were dropped because the destination was closed.
    abandoned: Cell<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Open,
    /// The task writes the queued records, and ends.
    Closing,
    /// The task drops the queued records, and ends.
    Abandoned,
    Ended,
}

impl<T: Weighed> Destination<T> {
    /// Creates a destination; [`Destination::run`] writes.
    pub fn new(name: &'static str, queue: RecordQueue<T>, writer: Writer<T>) -> Rc<Destination<T>> {
        Rc::new(Destination {
            name,
            writer,
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

    /// Queues a record, or drops it, and counts it.
    pub fn push(&self, record: T) -> Pushed {
        let pushed = self.change_queue(|queue| queue.push(record));
        match pushed {
            Pushed::Dropped => self.writer.counters.dropped.inc(),
            Pushed::Queued | Pushed::Over => {
                self.writer.counters.records.inc();
                self.wake.notify_one();
            }
        }
        pushed
    }

    /// Queues a record whose cause cannot wait: it is dropped and counted where a request would be refused. Returns
    /// true if it was dropped and no such record was logged lately: the caller logs it.
    pub fn is_lost_unlogged(&self, now: Instant, record: T) -> bool {
        if self.admits() {
            self.push(record);
            return false;
        }
        self.writer.counters.dropped.inc();
        let is_due = self.last_refused.get().is_none_or(|at| now.since(at) >= LOG_EVERY);
        if is_due {
            self.last_refused.set(Some(now));
        }
        is_due
    }

    /// Name of the destination in messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Changes the queue, and the metric of all queues with it.
    fn change_queue<R>(&self, change: impl FnOnce(&mut RecordQueue<T>) -> R) -> R {
        let mut queue = self.queue.borrow_mut();
        let before = queue.weight();
        let result = change(&mut queue);
        let signed = |weight| i64::try_from(weight).unwrap_or(i64::MAX);
        self.writer.counters.queue_bytes.add(signed(queue.weight()).saturating_sub(signed(before)));
        result
    }

    /// Returns true if requests may begin.
    pub fn admits(&self) -> bool {
        self.queue.borrow().admits()
    }

    /// Waits until answers may be sent. Returns false at the deadline.
    pub async fn wait(&self, rt: &Rt, deadline: Instant) -> bool {
        while self.queue.borrow().is_over() && self.progress.get() != Progress::Ended {
            if rt.timeout(deadline, self.changed.notified()).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Writes the queued records until the deadline, and drops the rest: counted and logged.
    pub async fn close(&self, rt: &Rt, deadline: Instant) {
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
        self.drop_records(self.change_queue(RecordQueue::clear));
        self.changed.notify_waiters();
        let dropped = self.abandoned.take();
        if dropped > 0 {
            tracing::error!(
                destination = self.name,
                dropped,
                "records of the {} dropped: they could not be written before the destination was closed",
                self.writer.log
            );
        }
    }

    fn drop_records(&self, count: usize) {
        self.writer.counters.dropped.add(count as u64);
        self.abandoned.set(self.abandoned.get() + count as u64);
    }

    /// Writes queued records until the destination is closed.
    pub async fn run(self: Rc<Self>, rt: Rt) {
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
                self.change_queue(RecordQueue::written);
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
    async fn write_batch(&self, rt: &Rt, batch: Vec<T>) -> bool {
        let mut rest = batch.as_slice();
        while !self.is_left() {
            let Err(failure) = (self.writer.write)(rest).await else { return true };
            let (written, after) = rest.split_at(failure.written.min(rest.len()));
            self.release(written);
            rest = after;
            self.note_failure(rt.now(), &failure.error);
            // A destination that is closed is tried immediately, until its deadline.
            let _ = rt.timeout(rt.now() + RETRY, self.closing.notified()).await;
        }
        false
    }

    /// Releases the records at the beginning of a batch that failed.
    fn release(&self, written: &[T]) {
        if written.is_empty() {
            return;
        }
        stdx::reached!("log-batch-written-in-part");
        let weight = written.iter().map(Weighed::weight).sum();
        self.change_queue(|queue| queue.released(written.len(), weight));
        self.changed.notify_waiters();
    }

    fn note_failure(&self, now: Instant, error: &str) {
        self.writer.counters.failures.inc();
        if self.last_logged.get().is_none_or(|at| now.since(at) >= LOG_EVERY) {
            self.last_logged.set(Some(now));
            tracing::error!(
                destination = self.name,
                error,
                "cannot write the {}; its records stay queued and are written again",
                self.writer.log
            );
        }
    }
}

/// Waits until no destination is over its limit, or until `limit` has passed: false then. The time runs from the call,
/// not from the first poll: answers of one connection wait one after the other.
pub fn wait_for<T: Weighed + 'static>(
    rt: &Rt,
    over: Vec<Rc<Destination<T>>>,
    limit: Duration,
) -> impl Future<Output = bool> + use<T> {
    let rt = rt.clone();
    let deadline = rt.now() + limit;
    async move {
        for destination in over {
            if !destination.wait(&rt, deadline).await {
                return false;
            }
        }
        true
    }
}
