//! Timers of one shard: an ordered map from (time, number) to the waker to call.

use crate::handle::Rt;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use stdx::Instant;

/// The deadline passed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deadline passed")]
pub struct Elapsed;

#[derive(Default)]
pub(crate) struct Timers {
    waiting: BTreeMap<(Instant, u64), Waker>,
    last: u64,
}

impl Timers {
    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        let entry = self.waiting.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
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
        self.last
    }

    fn cancel(&mut self, at: Instant, number: u64) {
        self.waiting.remove(&(at, number));
    }

    pub(crate) fn clear(&mut self) -> BTreeMap<(Instant, u64), Waker> {
        std::mem::take(&mut self.waiting)
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
