//! Timers of one shard: an ordered map from (time, number) to the waker to call.

use crate::handle::Rt;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stdx::Instant;

/// The deadline passed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deadline passed")]
pub struct Elapsed;

#[derive(Default)]
pub(crate) struct Timers {
    waiting: BTreeMap<(Instant, u64), Waker>,
    /// When the first of them is due: asked far more often than it changes.
    next: Option<Instant>,
    last: u64,
}

impl Timers {
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        if self.next? > now {
            return None;
        }
        let (_, waker) = self.waiting.pop_first()?;
        self.look();
        Some(waker)
    }

    fn look(&mut self) {
        self.next = self.waiting.first_key_value().map(|((at, _), _)| *at);
    }

    fn set(&mut self, at: Instant, number: Option<u64>, waker: &Waker) -> u64 {
        if let Some(number) = number
            && let Some(mine) = self.waiting.get_mut(&(at, number))
        {
            mine.clone_from(waker);
            return number;
        }
        self.last += 1;
        self.waiting.insert((at, self.last), waker.clone());
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
        self.last
    }

    fn cancel(&mut self, at: Instant, number: u64) {
        let removed = self.waiting.remove(&(at, number));
        if removed.is_some() && self.next == Some(at) {
            self.look();
        }
    }

    pub(crate) fn clear(&mut self) -> BTreeMap<(Instant, u64), Waker> {
        self.next = None;
        std::mem::take(&mut self.waiting)
    }
}

impl Rt {
    /// Waits for `d`.
    pub async fn sleep(&self, d: Duration) {
        Sleep::new(self.clone(), self.now() + d).await;
    }

    /// Waits until `at`.
    pub async fn sleep_until(&self, at: Instant) {
        Sleep::new(self.clone(), at).await;
    }

    /// Waits for `f` until `deadline`; then drops it.
    ///
    /// # Errors
    /// [`Elapsed`] when the deadline came first. A future that is ready at once always wins.
    pub async fn timeout<F: Future>(&self, deadline: Instant, f: F) -> Result<F::Output, Elapsed> {
        let mut f = pin!(f);
        let mut sleep = pin!(Sleep::new(self.clone(), deadline));
        poll_fn(|cx| {
            if let Poll::Ready(output) = f.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            sleep.as_mut().poll(cx).map(|()| Err(Elapsed))
        })
        .await
    }
}

/// Resolves at a point in time.
pub(crate) struct Sleep {
    rt: Rt,
    at: Instant,
    number: Option<u64>,
}

impl Sleep {
    pub(crate) fn new(rt: Rt, at: Instant) -> Sleep {
        Sleep { rt, at, number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.rt.now() >= self.at {
            return Poll::Ready(());
        }
        let number = self.rt.inner.timers.borrow_mut().set(self.at, self.number, cx.waker());
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.rt.inner.timers.borrow_mut().cancel(self.at, number);
        }
    }
}
