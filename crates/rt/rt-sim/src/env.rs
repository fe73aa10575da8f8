//! [`Env`]: what the world gives to one shard of one process.

use crate::state::{Core, Event, EventKey, ProcessId, State};
use rand_core::Rng;
use std::cell::RefMut;
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use stdx::{Instant, IoError, IoErrorKind, WallMicros};

/// One shard's door to the world. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    pub(crate) core: Rc<Core>,
    pub(crate) process: ProcessId,
    pub(crate) name: Rc<str>,
    pub(crate) work_dir: Rc<str>,
    /// Its disk, by [`crate::disk::Disks::number`].
    pub(crate) disk: usize,
    pub(crate) shard: u16,
}

impl Env {
    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.core.state.borrow().now
    }

    /// Virtual wall clock, with this node's skew.
    pub fn wall(&self) -> WallMicros {
        let state = self.core.state.borrow();
        let passed = i64::try_from(state.now.0 / 1000).unwrap_or(i64::MAX);
        let skew = state.skews.get(&*self.name).map_or(0, |skew| skew.at(state.now));
        WallMicros(state.options.wall_start_micros.saturating_add(passed).saturating_add(skew))
    }

    /// From the world's seed.
    pub fn random_u64(&self) -> u64 {
        self.core.state.borrow_mut().random()
    }

    /// From the world's seed.
    pub fn random_fill(&self, out: &mut [u8]) {
        self.core.state.borrow_mut().rng.fill_bytes(out);
    }

    /// By the seed: one call in some.
    pub fn is_yield_due(&self) -> bool {
        let mut state = self.core.state.borrow_mut();
        match state.options.yield_one_in {
            0 => false,
            n => state.random().is_multiple_of(n),
        }
    }

    /// The virtual duration of offloaded work.
    pub async fn offload(&self, name: &'static str) {
        let duration = {
            let Some(mut state) = self.alive() else { return pending().await };
            state.note(name, self.process.0 as u64, u64::from(self.shard));
            let range = state.options.offload_micros.clone();
            state.random_micros(&range)
        };
        self.delay(duration).await;
    }

    /// The virtual duration of a request to a service; false when it is to stay unanswered.
    pub async fn service(&self, name: &'static str) -> bool {
        let (duration, is_answered) = {
            let Some(mut state) = self.alive() else { return pending().await };
            let failures = state.options.service_failures_per_million;
            let is_answered = failures == 0 || state.random() % 1_000_000 >= failures;
            state.note(name, self.process.0 as u64, u64::from(is_answered));
            let range = state.options.service_micros.clone();
            (state.random_micros(&range), is_answered)
        };
        self.delay(duration).await;
        is_answered
    }

    /// The state, if this process lives.
    pub(crate) fn alive(&self) -> Option<RefMut<'_, State>> {
        let state = self.core.state.borrow_mut();
        state.is_alive(self.process).then_some(state)
    }

    pub(crate) fn delay(&self, duration: Duration) -> Delay {
        Delay { core: Rc::clone(&self.core), at: self.now() + duration, key: None }
    }

    pub(crate) fn error(
        &self,
        kind: IoErrorKind,
        operation: &'static str,
        path: &str,
        detail: &str,
    ) -> IoError {
        IoError { kind, operation, path: path.to_string(), detail: detail.to_string() }
    }
}

/// Resolves at a virtual time.
pub(crate) struct Delay {
    core: Rc<Core>,
    at: Instant,
    key: Option<EventKey>,
}

impl Future for Delay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let core = Rc::clone(&self.core);
        let mut state = core.state.borrow_mut();
        if state.now >= self.at {
            return Poll::Ready(());
        }
        if let Some(key) = self.key
            && let Some(Event::Wake(waker)) = state.has_event(key)
        {
            waker.clone_from(cx.waker());
            return Poll::Pending;
        }
        self.key = Some(state.schedule(self.at, Event::Wake(cx.waker().clone())));
        Poll::Pending
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let event = self.core.state.borrow_mut().cancel(key);
            drop(event);
        }
    }
}
