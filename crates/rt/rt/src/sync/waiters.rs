//! A set of wakers to call together; each registered task stands in it once.

use std::cell::RefCell;
use std::task::Waker;

#[derive(Default)]
pub(crate) struct Waiters {
    wakers: RefCell<Vec<Waker>>,
}

impl Waiters {
    pub(crate) fn register(&self, waker: &Waker) {
        let mut wakers = self.wakers.borrow_mut();
        if !wakers.iter().any(|w| w.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    pub(crate) fn wake_all(&self) {
        // Taken out first: a waker may end in code that registers again.
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        for waker in wakers {
            waker.wake();
        }
    }
}
