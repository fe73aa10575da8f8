//! Waiting requests of one connection, in a slab without a task each.
//!
//! Every slot has its own waker, created once, that marks the slot and wakes the connection's task:
//! a turn polls only requests that can continue.

use query::{Timing, Waiting};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A waiting request.
pub(crate) struct Entry {
    /// Its stream; `None` for a commit on behalf of several requests.
    pub(crate) stream: Option<i16>,
    /// Number of requests that it answers.
    pub(crate) count: usize,
    /// Bytes of the request, counted against the limits.
    pub(crate) bytes: usize,
    /// Expected bytes of the answer.
    pub(crate) expects: usize,
    /// For the latency metric; `None` if the request is not measured.
    pub(crate) timing: Option<Timing>,
    /// Returns its finished answer frames.
    pub(crate) future: Waiting<Vec<u8>>,
}

/// Share of the limits that an ended request releases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub(crate) bytes: usize,
    pub(crate) count: usize,
}

struct Slot {
    entry: Option<Entry>,
    ready: Arc<Ready>,
    waker: Waker,
}

struct Ready {
    is_ready: AtomicBool,
    task: Waker,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_ready.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

/// The slab of waiting requests.
#[derive(Default)]
pub(crate) struct Pending {
    slots: Vec<Slot>,
    free: Vec<usize>,
    len: usize,
    bytes: usize,
    expects: usize,
}

impl Pending {
    /// Number of waiting requests.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of these requests.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Expected bytes of their answers.
    pub(crate) fn expects(&self) -> usize {
        self.expects
    }

    /// Polls a new request in place; stores it if it has to wait.
    pub(crate) fn start(&mut self, mut entry: Entry, cx: &Context<'_>) -> Poll<Vec<u8>> {
        let index = self.free.pop().unwrap_or(self.slots.len());
        let fresh = match self.slots.get(index) {
            Some(slot) => !slot.ready.task.will_wake(cx.waker()),
            None => true,
        };
        if fresh {
            let slot = Slot::new(cx.waker());
            match self.slots.get_mut(index) {
                Some(old) => *old = slot,
                None => self.slots.push(slot),
            }
        }
        let Some(slot) = self.slots.get_mut(index) else {
            stdx::invariant::broken(format_args!("slab of requests has no slot {index}"))
        };
        slot.ready.is_ready.store(false, Ordering::Relaxed);
        let polled = entry.future.as_mut().poll(&mut Context::from_waker(&slot.waker));
        match polled {
            Poll::Ready(frames) => {
                self.free.push(index);
                Poll::Ready(frames)
            }
            Poll::Pending => {
                self.len += entry.count;
                self.bytes += entry.bytes;
                self.expects += entry.expects;
                slot.entry = Some(entry);
                Poll::Pending
            }
        }
    }

    /// Polls every woken request. Calls `done` for each one that completed, with its share of the
    /// limits, its stream and timing, and its answer.
    pub(crate) fn poll_woken(
        &mut self,
        cx: &Context<'_>,
        mut done: impl FnMut(Freed, (Option<i16>, Option<Timing>), Vec<u8>),
    ) {
        if self.len == 0 {
            return;
        }
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(entry) = &mut slot.entry else { continue };
            if !slot.ready.task.will_wake(cx.waker()) {
                // The connection moved to another task: pass its new waker to the request.
                let (ready, waker) = Slot::waker_of(cx.waker());
                (slot.ready, slot.waker) = (ready, waker);
                slot.ready.is_ready.store(true, Ordering::Relaxed);
            }
            if !slot.ready.is_ready.swap(false, Ordering::Acquire) {
                continue;
            }
            let polled = entry.future.as_mut().poll(&mut Context::from_waker(&slot.waker));
            if let Poll::Ready(frames) = polled {
                let (bytes, count) = (entry.bytes, entry.count);
                self.expects -= entry.expects;
                let of = (entry.stream, entry.timing);
                slot.entry = None;
                self.free.push(index);
                self.len -= count;
                self.bytes -= bytes;
                done(Freed { bytes, count }, of, frames);
            }
        }
    }
}

impl Slot {
    fn new(task: &Waker) -> Slot {
        let (ready, waker) = Slot::waker_of(task);
        Slot { entry: None, ready, waker }
    }

    fn waker_of(task: &Waker) -> (Arc<Ready>, Waker) {
        let ready = Arc::new(Ready { is_ready: AtomicBool::new(false), task: task.clone() });
        (ready.clone(), Waker::from(ready))
    }
}
