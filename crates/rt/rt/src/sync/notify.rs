//! Wake-ups without a value.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes tasks that wait for "something changed". Clones are the same notify.
#[derive(Clone, Default)]
pub struct Notify {
    state: Rc<RefCell<State>>,
}

#[derive(Default)]
struct State {
    permit: bool,
    /// Raised by `notify_waiters`: completes all waiters that registered before.
    round: u64,
    last: u64,
    waiting: VecDeque<Waiting>,
    /// Waiters that `notify_one` chose and that were not polled yet.
    chosen: Vec<u64>,
}

struct Waiting {
    number: u64,
    waker: Waker,
}

impl Notify {
    /// Creates one without waiters or permit.
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Wakes the longest waiter; without one, the next `notified` resolves at once (at most one
    /// permit is stored).
    pub fn notify_one(&self) {
        let waker = {
            let mut state = self.state.borrow_mut();
            match state.waiting.pop_front() {
                Some(waiting) => {
                    state.chosen.push(waiting.number);
                    Some(waiting.waker)
                }
                None => {
                    state.permit = true;
                    None
                }
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes all present waiters; stores no permit.
    pub fn notify_waiters(&self) {
        let waiting = {
            let mut state = self.state.borrow_mut();
            state.round += 1;
            std::mem::take(&mut state.waiting)
        };
        for one in waiting {
            one.waker.wake();
        }
    }

    /// Waits for a notification after this call.
    pub fn notified(&self) -> Notified {
        let round = self.state.borrow().round;
        Notified { notify: self.clone(), round, number: None }
    }
}

/// See [`Notify::notified`].
pub struct Notified {
    notify: Notify,
    round: u64,
    number: Option<u64>,
}

impl Future for Notified {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let notify = self.notify.clone();
        let mut state = notify.state.borrow_mut();
        if state.round != self.round {
            self.number = None;
            return Poll::Ready(());
        }
        match self.number {
            None => {
                if std::mem::take(&mut state.permit) {
                    return Poll::Ready(());
                }
                state.last += 1;
                let number = state.last;
                state.waiting.push_back(Waiting { number, waker: cx.waker().clone() });
                self.number = Some(number);
                Poll::Pending
            }
            Some(number) => {
                if let Some(i) = state.chosen.iter().position(|n| *n == number) {
                    state.chosen.swap_remove(i);
                    self.number = None;
                    return Poll::Ready(());
                }
                if let Some(mine) = state.waiting.iter_mut().find(|w| w.number == number) {
                    mine.waker.clone_from(cx.waker());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let pass_on = {
            let mut state = self.notify.state.borrow_mut();
            state.waiting.retain(|w| w.number != number);
            match state.chosen.iter().position(|n| *n == number) {
                Some(i) => {
                    state.chosen.swap_remove(i);
                    true
                }
                None => false,
            }
        };
        if pass_on {
            // Chosen, but dropped before it was polled: the wake-up belongs to the next one.
            self.notify.notify_one();
        }
    }
}
