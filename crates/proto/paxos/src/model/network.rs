//! Events in order of time, and the messages among them that get lost, doubled and delayed.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use stdx::Epoch;

use super::Rng;
use super::node::{Data, Payload};
use crate::acceptor::{Record, Reply, Request, Token};
use crate::ballot::Ballot;
use crate::plan::Target;

#[derive(Clone, Debug)]
pub(super) enum Event {
    ToNode { node: usize, operation: u64, generation: u64, epoch: Epoch, request: Request<Payload> },
    ToClient { operation: u64, generation: u64, from: Target, answer: Answer },
    Synced { node: usize, incarnation: u64, token: Token, record: Record<Payload> },
    Wake { operation: u64, at: u64 },
    Next { client: usize },
    ClientCrash { client: usize },
    Crash { node: usize },
    Restart { node: usize },
    Sweep { node: usize },
    Evict { node: usize },
    Horizon { node: usize, incarnation: u64, to: Ballot },
    Epoch { to: Epoch },
    TakeOver,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are replies")]
pub(super) enum Answer {
    Reply(Reply<Payload>, Option<Data>),
    WrongEpoch(Ballot, Epoch),
}

#[derive(Clone, Debug)]
struct Timed {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Timed {
    fn eq(&self, o: &Timed) -> bool {
        (self.at, self.number) == (o.at, o.number)
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, o: &Timed) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Timed {
    fn cmp(&self, o: &Timed) -> Ordering {
        // The heap gives the largest; we want the earliest.
        (o.at, o.number).cmp(&(self.at, self.number))
    }
}

#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Timed>,
    number: u64,
}

impl Events {
    pub(super) fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.heap.push(Timed { at, number: self.number, event });
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|t| (t.at, t.event))
    }
}

/// How bad the network is, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) slow: u64,
}

impl Faults {
    /// Arrival times of one message: none, one or two.
    pub(super) fn arrivals(self, now: u64, rng: &mut Rng) -> Vec<u64> {
        if rng.percent(self.lost) {
            return Vec::new();
        }
        let copies = if rng.percent(self.doubled) { 2 } else { 1 };
        let delay = |rng: &mut Rng| {
            if rng.percent(self.slow) { rng.range(200, 3_000) } else { rng.range(10, 60) }
        };
        (0..copies).map(|_| now + delay(rng)).collect()
    }
}
