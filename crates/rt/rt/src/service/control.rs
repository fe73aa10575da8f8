//! State that a service and its owner share besides requests: the order to stop, the end, counts of refusals.

use super::ServiceFailure;
use rt_native::cross::lock;
use rt_native::service::Ended;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

/// The owner's order; it never decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    #[default]
    Serve,
    /// Serve accepted requests, accept no more.
    Drain,
    /// Drop everything.
    Abort,
}

/// Events that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    RequestRefused,
    RequestLate,
    CallRefused,
    CallLate,
}

impl Count {
    const ALL: [Count; 4] =
        [Count::RequestRefused, Count::RequestLate, Count::CallRefused, Count::CallLate];

    /// Name and help of its counter.
    pub(super) fn metric(self) -> (&'static str, &'static str) {
        match self {
            Count::RequestRefused => (
                "service_requests_refused_total",
                "requests that found the queue of a service full",
            ),
            Count::RequestLate => {
                ("service_requests_late_total", "requests that a service did not answer in time")
            }
            Count::CallRefused => {
                ("service_calls_refused_total", "calls of a service that found a shard's ring full")
            }
            Count::CallLate => {
                ("service_calls_late_total", "calls of a service that no shard answered in time")
            }
        }
    }
}

pub(super) struct Control {
    pub(super) name: &'static str,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    order: Order,
    /// Threads that have not ended.
    threads: u16,
    failure: Option<ServiceFailure>,
    /// The owner waits no longer for threads.
    is_left: bool,
    /// By [`Count`], since they were taken last.
    counts: [u64; 4],
    /// Wakers of the service: they wait for an order or, by `Queue`, for requests.
    workers: Vec<Waker>,
    /// Wakers of the owner: they wait for the end or for counts.
    owners: Vec<Waker>,
}

fn register(wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
        wakers.push(cx.waker().clone());
    }
}

fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

impl Control {
    pub(super) fn new(name: &'static str, threads: u16) -> Control {
        Control { name, state: Mutex::new(State { threads, ..State::default() }) }
    }

    pub(super) fn give(&self, order: Order) {
        let wakers = {
            let mut state = lock(&self.state);
            state.order = state.order.max(order);
            std::mem::take(&mut state.workers)
        };
        wake(wakers);
    }

    pub(super) fn order(&self) -> Order {
        lock(&self.state).order
    }

    /// Has the task or thread woken by the next order or request.
    pub(super) fn register_worker(&self, cx: &Context<'_>) {
        register(&mut lock(&self.state).workers, cx);
    }

    /// There is a request.
    pub(super) fn wake_workers(&self) {
        let wakers = std::mem::take(&mut lock(&self.state).workers);
        wake(wakers);
    }

    /// Waits until the order is `order` or a later one.
    pub(super) async fn ordered(&self, order: Order) {
        poll_fn(|cx| {
            // Register first: an order that arrives in between wakes.
            self.register_worker(cx);
            if self.order() >= order { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Runs `f` until it is done or the order is to abort, then drops it.
    pub(super) async fn unless_aborted<T>(&self, f: impl Future<Output = T>) -> Option<T> {
        let mut f = pin!(f);
        let mut aborted = pin!(self.ordered(Order::Abort));
        poll_fn(|cx| {
            if aborted.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            f.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// A thread has ended: with the last one, or with the first that was not asked to, the service has.
    pub(super) fn ended(&self, end: Ended) {
        let wakers = {
            let mut state = lock(&self.state);
            state.threads = state.threads.saturating_sub(1);
            let failure = match end {
                Ended::Panicked(detail) => {
                    Some(ServiceFailure::Panicked { service: self.name, detail })
                }
                Ended::Returned if state.order == Order::Serve => {
                    Some(ServiceFailure::Returned { service: self.name })
                }
                Ended::Returned => None,
            };
            if let Some(failure) = failure {
                state.failure.get_or_insert(failure);
                // Stop its other threads too: a service is alive as a whole or not at all.
                state.order = Order::Abort;
            }
            let mut wakers = std::mem::take(&mut state.workers);
            wakers.append(&mut state.owners);
            wakers
        };
        wake(wakers);
    }

    /// The owner stops waiting.
    pub(super) fn leave(&self) {
        let wakers = {
            let mut state = lock(&self.state);
            state.is_left = true;
            std::mem::take(&mut state.owners)
        };
        wake(wakers);
    }

    fn poll_owner<T>(
        &self,
        cx: &Context<'_>,
        look: impl FnOnce(&mut State) -> Option<T>,
    ) -> Poll<T> {
        let mut state = lock(&self.state);
        match look(&mut state) {
            Some(found) => Poll::Ready(found),
            None => {
                register(&mut state.owners, cx);
                Poll::Pending
            }
        }
    }

    /// Waits until all threads have ended.
    pub(super) async fn end(&self) {
        poll_fn(|cx| self.poll_owner(cx, |state| (state.threads == 0).then_some(()))).await;
    }

    /// Waits until the service has failed or has ended as it was asked to.
    pub(super) async fn failure(&self) -> Option<ServiceFailure> {
        poll_fn(|cx| {
            self.poll_owner(cx, |state| {
                let is_over = state.threads == 0 || state.is_left || state.failure.is_some();
                is_over.then(|| state.failure.clone())
            })
        })
        .await
    }

    pub(super) fn count(&self, what: Count) {
        let wakers = {
            let mut state = lock(&self.state);
            if let Some(count) = state.counts.get_mut(what as usize) {
                *count += 1;
            }
            std::mem::take(&mut state.owners)
        };
        wake(wakers);
    }

    /// Waits for counts and takes them; `None`: the service has ended.
    pub(super) async fn next_counts(&self) -> Option<impl Iterator<Item = (Count, u64)> + use<>> {
        let counts = poll_fn(|cx| {
            self.poll_owner(cx, |state| {
                if state.counts.iter().any(|count| *count > 0) {
                    return Some(Some(std::mem::take(&mut state.counts)));
                }
                (state.threads == 0 || state.is_left).then_some(None)
            })
        })
        .await?;
        Some(Count::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0))
    }
}
