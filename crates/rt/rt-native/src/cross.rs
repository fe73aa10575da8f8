//! One value from one thread to a future on another: the answer slot of offloaded work and of
//! cross-shard calls. Allocates once per pair; the lock is held for a move only.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
    closed: bool,
}

/// The writing side; dropping it unsent notifies the receiver that no value will arrive.
pub struct SlotSender<T>(Arc<Mutex<Slot<T>>>);

/// The reading side: a future of the value, `None` when the sender was dropped unsent.
pub struct SlotReceiver<T>(Arc<Mutex<Slot<T>>>);

/// Makes a pair.
pub fn slot<T>() -> (SlotSender<T>, SlotReceiver<T>) {
    let shared = Arc::new(Mutex::new(Slot { value: None, waker: None, closed: false }));
    (SlotSender(Arc::clone(&shared)), SlotReceiver(shared))
}

/// Locks, ignoring poison: no invariant spans a panic in these one-move critical sections.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> SlotSender<T> {
    /// Returns true if the receiver still exists.
    pub fn is_wanted(&self) -> bool {
        // One of the two holders is this one.
        Arc::strong_count(&self.0) > 1
    }

    /// Hands the value over and wakes the receiver.
    pub fn send(self, value: T) {
        lock(&self.0).value = Some(value);
        // Drop closes and wakes.
    }
}

impl<T> Drop for SlotSender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = lock(&self.0);
            slot.closed = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for SlotReceiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = lock(&self.0);
        if slot.closed {
            return Poll::Ready(slot.value.take());
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}
