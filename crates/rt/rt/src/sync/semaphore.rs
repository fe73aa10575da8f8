//! Counted permits, first come first served.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Counted permits. A large request is never overtaken by a later small one. Clones are the same
/// semaphore.
#[derive(Clone)]
pub struct Semaphore {
    state: Rc<RefCell<State>>,
}

struct State {
    free: usize,
    last: u64,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    number: u64,
    wants: usize,
    granted: bool,
    waker: Waker,
}

/// Permits, given back when dropped.
pub struct Permit {
    semaphore: Semaphore,
    count: usize,
}

impl Semaphore {
    /// With `permits` free ones.
    pub fn new(permits: usize) -> Semaphore {
        let state = State { free: permits, last: 0, waiting: VecDeque::new() };
        Semaphore { state: Rc::new(RefCell::new(state)) }
    }

    /// Waits for `n` permits. More than there are in all is waited for until
    /// [`Semaphore::add_permits`] adds them.
    pub fn acquire(&self, n: usize) -> Acquire {
        Acquire { semaphore: self.clone(), wants: n, number: None }
    }

    /// Takes `n` permits if they are free and no request waits.
    pub fn try_acquire(&self, n: usize) -> Option<Permit> {
        let mut state = self.state.borrow_mut();
        if !state.waiting.is_empty() || state.free < n {
            return None;
        }
        state.free -= n;
        Some(Permit { semaphore: self.clone(), count: n })
    }

    /// Free permits.
    pub fn available(&self) -> usize {
        self.state.borrow().free
    }

    /// Tasks that wait.
    pub fn waiting(&self) -> usize {
        self.state.borrow().waiting.iter().filter(|w| !w.granted).count()
    }

    /// Adds `n` permits for good.
    pub fn add_permits(&self, n: usize) {
        self.give(n);
    }

    fn give(&self, n: usize) {
        let mut wakers = Vec::new();
        {
            let mut guard = self.state.borrow_mut();
            let state = &mut *guard;
            state.free += n;
            for waiting in state.waiting.iter_mut().filter(|w| !w.granted) {
                if state.free < waiting.wants {
                    break;
                }
                state.free -= waiting.wants;
                waiting.granted = true;
                wakers.push(waiting.waker.clone());
            }
        }
        for waker in wakers {
            waker.wake();
        }
    }
}

impl Permit {
    /// Number of permits held.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Gives back `n` of them early (all, when it holds fewer).
    pub fn release(&mut self, n: usize) {
        let n = n.min(self.count);
        self.count -= n;
        self.semaphore.give(n);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.count > 0 {
            self.semaphore.give(self.count);
        }
    }
}

/// See [`Semaphore::acquire`].
pub struct Acquire {
    semaphore: Semaphore,
    wants: usize,
    number: Option<u64>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let semaphore = self.semaphore.clone();
        let Some(number) = self.number else {
            if let Some(permit) = semaphore.try_acquire(self.wants) {
                return Poll::Ready(permit);
            }
            let mut state = semaphore.state.borrow_mut();
            state.last += 1;
            let number = state.last;
            let (wants, waker) = (self.wants, cx.waker().clone());
            state.waiting.push_back(Waiting { number, wants, granted: false, waker });
            self.number = Some(number);
            return Poll::Pending;
        };
        let mut state = semaphore.state.borrow_mut();
        let at = state.waiting.iter().position(|w| w.number == number);
        match at.and_then(|i| state.waiting.get_mut(i).map(|w| (i, w))) {
            Some((_, w)) if !w.granted => {
                w.waker.clone_from(cx.waker());
                Poll::Pending
            }
            Some((i, _)) => {
                state.waiting.remove(i);
                drop(state);
                self.number = None;
                Poll::Ready(Permit { semaphore, count: self.wants })
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let back = {
            let mut state = self.semaphore.state.borrow_mut();
            let at = state.waiting.iter().position(|w| w.number == number);
            let gone = at.and_then(|i| state.waiting.remove(i));
            gone.filter(|w| w.granted).map_or(0, |w| w.wants)
        };
        // Also without permits to return: later waiters may fit now.
        self.semaphore.give(back);
    }
}
