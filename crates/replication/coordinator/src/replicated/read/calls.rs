//! Calls of a read: the requests in flight to replicas, and the read's timer. One future holds all
//! of them, so that dropping the read cancels all of it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use request::{PageDigest, ReplicaError, Target};
use rt::Rt;
use stdx::{HostId, Instant};

use super::filtered::Filtered;

/// Answer of a replica.
pub(super) enum Answer {
    /// An encoded page. A page of another node has not been validated yet.
    Page { bytes: Vec<u8>, is_own: bool },
    /// The rows that pass the reader's filter; not validated either.
    Filtered(Box<Filtered>),
    /// Digest of the page that the replica would have sent.
    Digest(PageDigest),
    /// The repair was applied.
    Repaired,
}

/// A request to a replica, and the slot that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) slot: u16,
    /// The use of the slot: an answer to an earlier one is dropped.
    pub(super) number: u32,
    pub(super) target: Target,
    pub(super) what: What,
    pub(super) host: HostId,
    /// When.
    pub(super) at: Instant,
}

/// Kind of request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Page,
    Filtered,
    More,
    Digest,
    Repair,
}

pub(super) type AnswerFuture = Pin<Box<dyn Future<Output = Result<Answer, ReplicaError>>>>;

/// Next event of a read.
pub(super) enum Event {
    Answer(Asked, Result<Answer, ReplicaError>),
    Tick,
}

/// The requests in flight, and the timer.
#[derive(Default)]
pub(super) struct Calls {
    running: Vec<(Asked, AnswerFuture)>,
    timer: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Calls {
    pub(super) fn add(&mut self, asked: Asked, future: AnswerFuture) {
        self.running.push((asked, future));
    }

    /// Drops the requests of a slot; its repairs continue as long as the read does.
    pub(super) fn forget_slot(&mut self, slot: u16) {
        self.running.retain(|(asked, _)| asked.slot != slot || asked.what == What::Repair);
    }

    /// Like [`Calls::forget_slot`], for all slots.
    pub(super) fn forget_questions(&mut self) {
        self.running.retain(|(asked, _)| asked.what == What::Repair);
    }

    /// Returns the requests without an answer yet.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Asked> {
        self.running.iter().map(|(asked, _)| asked)
    }

    /// Replaces the timer.
    pub(super) fn wake_at(&mut self, rt: &Rt, at: Instant) {
        let rt = rt.clone();
        self.timer = Some(Box::pin(async move { rt.sleep_until(at).await }));
    }

    /// Returns the next event. The timer guarantees that there is one until the read is done.
    pub(super) async fn next(&mut self) -> Event {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        for at in 0..self.running.len() {
            let Some((asked, future)) = self.running.get_mut(at) else { break };
            let Poll::Ready(answer) = future.as_mut().poll(cx) else { continue };
            let asked = *asked;
            drop(self.running.remove(at));
            return Poll::Ready(Event::Answer(asked, answer));
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx).map(|()| {
                self.timer = None;
                Event::Tick
            }),
            None => Poll::Pending,
        }
    }
}
