//! Wakes every task that waits for progress of the log.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Tasks waiting for a change. They check their own condition after each wake.
#[derive(Default)]
pub(crate) struct Signal {
    wakers: RefCell<Vec<Waker>>,
}

impl Signal {
    /// Something changed.
    pub(crate) fn notify(&self) {
        for waker in self.wakers.take() {
            waker.wake();
        }
    }

    /// Waits until `done` returns a value.
    pub(crate) async fn wait<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| match done() {
            Some(value) => Poll::Ready(value),
            None => {
                let mut wakers = self.wakers.borrow_mut();
                if !wakers.iter().any(|w| w.will_wake(cx.waker())) {
                    wakers.push(cx.waker().clone());
                }
                Poll::Pending
            }
        })
        .await
    }
}
