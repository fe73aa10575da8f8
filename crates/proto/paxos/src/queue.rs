//! Queues of proposers: one write per partition at a time at the node that proposals are routed to.
//!
//! Owns the order of waiting operations and their refusal at arrival. Never decides anything that safety rests on:
//! two nodes that both propose only cost each other rounds.
//!
//! First come, first served. Serial reads run beside each other, up to a limit, because they do not disturb each
//! other's ballots; a read after a waiting write waits, so neither starves. After a write that left a promise and
//! no value the first read runs alone: it settles that for the others. An operation whose turn would come too late
//! for its deadline, by the number of turns before it and the measured time of a turn, is refused when it arrives:
//! contention makes a queue, not timeouts. When turns have become longer since, the operation is dropped before it
//! starts, while nothing has happened.

use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

use stdx::{FixedMap, Instant};

use crate::proposer::Kind;

/// An operation, named by the driver; unique among those that wait or run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// Limits of the queues of one shard.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Operations that may wait for one partition.
    pub waiting_max_per_partition: usize,
    /// Operations that may wait in all.
    pub waiting_max: usize,
    /// Serial reads of one partition that run at once, at least one.
    pub readers_max: usize,
    /// Length of a turn until one was measured.
    pub turn_first: Duration,
}

/// Answer to an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Start now.
    Run,
    /// Its turn comes through [`PartitionQueues::finished`] or [`PartitionQueues::cancel`].
    Wait {
        /// Turns before it.
        turns: usize,
    },
    /// Answer that the node is overloaded; nothing was started.
    Refuse(Refusal),
}

/// Reason why an operation was refused at arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It would end after its deadline.
    #[error("{turns} operations wait for the partition, about {wait:?}; {left:?} are left")]
    Deadline {
        /// Turns before it.
        turns: usize,
        /// Until it would end.
        wait: Duration,
        /// Until its deadline.
        left: Duration,
    },
    /// The partition's queue is full.
    #[error("{max} operations wait for the partition, which is the limit")]
    PartitionFull {
        /// The limit.
        max: usize,
    },
    /// The shard's queues are full.
    #[error("{max} operations wait for their partitions, which is the limit")]
    ShardFull {
        /// The limit.
        max: usize,
    },
}

/// State that an operation left in the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Whatever was promised is decided: a commit, or a read that was answered.
    Settled,
    /// A promise to a write that nothing follows: the next serial read has to propose the empty
    /// value, and two that do so at once would cost each other rounds.
    Unsettled,
}

/// Operations to start, and operations that waited too long, after one ended.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Turn {
    /// Start these.
    pub start: Vec<OperationId>,
    /// These would end after their deadline, or it has passed: they are not started.
    pub late: Vec<OperationId>,
}

#[derive(Clone, Debug)]
struct Waiting {
    id: OperationId,
    kind: Kind,
    deadline: Instant,
}

#[derive(Clone, Debug)]
struct Queue {
    running: Vec<(OperationId, Kind, Instant)>,
    waiting: VecDeque<Waiting>,
    turn: Duration,
    /// The next read runs alone.
    unsettled: bool,
}

/// The queues of one shard; a partition without operations has none.
#[derive(Clone, Debug)]
pub struct PartitionQueues<K> {
    options: QueueOptions,
    queues: FixedMap<K, Queue>,
    waiting: usize,
    turn: Duration,
}

impl<K: Clone + Eq + Hash> PartitionQueues<K> {
    /// Empty queues.
    pub fn new(options: QueueOptions) -> PartitionQueues<K> {
        let options = QueueOptions { readers_max: options.readers_max.max(1), ..options };
        let turn = options.turn_first;
        PartitionQueues { options, queues: FixedMap::default(), waiting: 0, turn }
    }

    /// Operations that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Partitions with operations.
    pub fn partitions(&self) -> usize {
        self.queues.len()
    }

    /// Measured length of a turn, over all partitions.
    pub fn turn(&self) -> Duration {
        self.turn
    }

    /// A new operation.
    pub fn arrive(
        &mut self,
        now: Instant,
        key: &K,
        id: OperationId,
        kind: Kind,
        deadline: Instant,
    ) -> Arrival {
        let options = self.options;
        let turn = self.turn;
        let queue = self.queues.entry_ref(key).or_insert_with(|| Queue {
            running: Vec::new(),
            waiting: VecDeque::new(),
            turn,
            unsettled: false,
        });
        if queue.waiting.is_empty() && queue.may_run(kind, options.readers_max) {
            queue.running.push((id, kind, now));
            return Arrival::Run;
        }
        if queue.waiting.len() >= options.waiting_max_per_partition {
            let max = options.waiting_max_per_partition;
            return Arrival::Refuse(Refusal::PartitionFull { max });
        }
        if self.waiting >= options.waiting_max {
            return Arrival::Refuse(Refusal::ShardFull { max: options.waiting_max });
        }
        let turns = queue.turns(options.readers_max);
        let turns_after_running = u32::try_from(turns).unwrap_or(u32::MAX);
        let own = queue.turn;
        let wait =
            queue.left(now).saturating_add(queue.turn.saturating_mul(turns_after_running)) + own;
        if now + wait > deadline {
            let left = deadline.since(now);
            return Arrival::Refuse(Refusal::Deadline { turns: turns + 1, wait, left });
        }
        queue.waiting.push_back(Waiting { id, kind, deadline });
        self.waiting += 1;
        Arrival::Wait { turns: turns + 1 }
    }

    /// A running operation has freed its slot; its time is measured.
    pub fn finished(&mut self, now: Instant, key: &K, id: OperationId, left: Left) -> Turn {
        let Some(queue) = self.queues.get_mut(key) else { return Turn::default() };
        if let Some(at) = queue.running.iter().position(|(running, _, _)| *running == id) {
            let (_, kind, started) = queue.running.swap_remove(at);
            match (kind, left) {
                (_, Left::Settled) => queue.unsettled = false,
                (Kind::Write, Left::Unsettled) => queue.unsettled = true,
                (Kind::Read, Left::Unsettled) => {}
            }
            let took = now.since(started);
            queue.turn = averaged(queue.turn, took);
            self.turn = averaged(self.turn, took);
        }
        self.next(now, key)
    }

    /// Removes an aborted operation, waiting or running; its time is not measured.
    pub fn cancel(&mut self, now: Instant, key: &K, id: OperationId) -> Turn {
        let Some(queue) = self.queues.get_mut(key) else { return Turn::default() };
        let is_it = |(running, kind, _): &(OperationId, Kind, Instant)| {
            *running == id && *kind == Kind::Write
        };
        queue.unsettled |= queue.running.iter().any(is_it);
        queue.running.retain(|(running, _, _)| *running != id);
        let before = queue.waiting.len();
        queue.waiting.retain(|w| w.id != id);
        self.waiting -= before - queue.waiting.len();
        self.next(now, key)
    }

    fn next(&mut self, now: Instant, key: &K) -> Turn {
        let mut turn = Turn::default();
        let Some(queue) = self.queues.get_mut(key) else { return turn };
        while let Some(head) = queue.waiting.front() {
            if head.deadline < now + queue.turn {
                turn.late.push(head.id);
            } else if queue.may_run(head.kind, self.options.readers_max) {
                turn.start.push(head.id);
                queue.running.push((head.id, head.kind, now));
            } else {
                break;
            }
            queue.waiting.pop_front();
            self.waiting -= 1;
        }
        if queue.running.is_empty() && queue.waiting.is_empty() {
            self.queues.remove(key);
        }
        turn
    }
}

impl Queue {
    fn may_run(&self, kind: Kind, readers_max: usize) -> bool {
        match kind {
            Kind::Write => self.running.is_empty(),
            Kind::Read if self.unsettled => self.running.is_empty(),
            Kind::Read => {
                self.running.len() < readers_max
                    && self.running.iter().all(|(_, kind, _)| *kind == Kind::Read)
            }
        }
    }

    /// Turns that the waiting ones make: a write each, reads that follow each other together.
    fn turns(&self, readers_max: usize) -> usize {
        let mut turns = 0;
        let mut readers = 0;
        for waiting in &self.waiting {
            let joins = waiting.kind == Kind::Read && readers > 0 && readers < readers_max;
            turns += usize::from(!joins);
            readers = match waiting.kind {
                Kind::Write => 0,
                Kind::Read if joins => readers + 1,
                Kind::Read => 1,
            };
        }
        turns
    }

    /// Until the running ones are likely done.
    fn left(&self, now: Instant) -> Duration {
        let oldest = self.running.iter().map(|(_, _, started)| *started).min().unwrap_or(now);
        self.turn.saturating_sub(now.since(oldest))
    }
}

/// Seven parts of what was, one of what is. One turn that took much longer than usual (a connection
/// was made, a replica failed) must not make all that come be refused: it counts as four.
fn averaged(was: Duration, is: Duration) -> Duration {
    was.saturating_mul(7).saturating_add(is.min(was.saturating_mul(4))) / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn queues() -> PartitionQueues<&'static str> {
        PartitionQueues::new(QueueOptions {
            waiting_max_per_partition: 4,
            waiting_max: 6,
            readers_max: 2,
            turn_first: Duration::from_millis(10),
        })
    }

    fn at(ms: u64) -> Instant {
        Instant(ms * MS)
    }

    fn ids(ids: &[u64]) -> Vec<OperationId> {
        ids.iter().copied().map(OperationId).collect()
    }

    #[test]
    fn writes_run_one_by_one_in_order_of_arrival() {
        let mut q = queues();
        let mut arrive = |id, ms| q.arrive(at(ms), &"a", OperationId(id), Kind::Write, at(1_000));
        assert_eq!(arrive(1, 0), Arrival::Run);
        assert_eq!(arrive(2, 1), Arrival::Wait { turns: 1 });
        assert_eq!(arrive(3, 2), Arrival::Wait { turns: 2 });
        assert_eq!(q.arrive(at(2), &"b", OperationId(9), Kind::Write, at(3)), Arrival::Run);
        assert_eq!(q.finished(at(10), &"a", OperationId(1), Left::Settled).start, ids(&[2]));
        assert_eq!(q.finished(at(20), &"a", OperationId(2), Left::Settled).start, ids(&[3]));
        assert_eq!(q.finished(at(30), &"a", OperationId(3), Left::Settled), Turn::default());
        q.finished(at(30), &"b", OperationId(9), Left::Settled);
        assert_eq!((q.waiting(), q.partitions()), (0, 0));
    }

    #[test]
    fn reads_share_a_turn_and_do_not_pass_a_waiting_write() {
        let mut q = queues();
        let mut arrive = |id, kind| q.arrive(at(0), &"a", OperationId(id), kind, at(1_000));
        assert_eq!(arrive(1, Kind::Read), Arrival::Run);
        assert_eq!(arrive(2, Kind::Read), Arrival::Run);
        assert_eq!(arrive(3, Kind::Read), Arrival::Wait { turns: 1 });
        assert_eq!(arrive(4, Kind::Write), Arrival::Wait { turns: 2 });
        assert_eq!(arrive(5, Kind::Read), Arrival::Wait { turns: 3 });
        assert_eq!(arrive(6, Kind::Read), Arrival::Wait { turns: 4 });
        assert_eq!(q.finished(at(5), &"a", OperationId(2), Left::Settled).start, ids(&[3]));
        assert_eq!(q.finished(at(5), &"a", OperationId(1), Left::Settled).start, ids(&[]));
        assert_eq!(q.finished(at(5), &"a", OperationId(3), Left::Settled).start, ids(&[4]));
        assert_eq!(q.finished(at(5), &"a", OperationId(4), Left::Settled).start, ids(&[5, 6]));
    }

    #[test]
    fn what_cannot_end_in_time_is_refused_at_arrival_and_the_nearest_that_can_waits() {
        let mut q = queues();
        q.arrive(at(0), &"a", OperationId(1), Kind::Write, at(5));
        // 6 ms are left of the running turn of 10, then comes its own.
        let refused = q.arrive(at(4), &"a", OperationId(2), Kind::Write, at(19));
        let (wait, left) = (Duration::from_millis(16), Duration::from_millis(15));
        assert_eq!(refused, Arrival::Refuse(Refusal::Deadline { turns: 1, wait, left }));
        let taken = q.arrive(at(4), &"a", OperationId(2), Kind::Write, at(20));
        assert_eq!(taken, Arrival::Wait { turns: 1 });
        assert_eq!(q.waiting(), 1);
    }

    #[test]
    fn slow_turns_are_measured_and_an_idle_partition_is_never_refused() {
        let mut q = queues();
        for id in 0..40 {
            let now = at(id * 100);
            assert_eq!(q.arrive(now, &"a", OperationId(id), Kind::Write, now), Arrival::Run);
            q.finished(now + Duration::from_millis(90), &"a", OperationId(id), Left::Settled);
        }
        assert!(q.turn() > Duration::from_millis(85));
        q.arrive(at(9_000), &"a", OperationId(100), Kind::Write, at(9_001));
        let second = q.arrive(at(9_000), &"a", OperationId(101), Kind::Write, at(9_150));
        assert!(matches!(second, Arrival::Refuse(Refusal::Deadline { .. })));
    }

    #[test]
    fn behind_a_write_without_effect_one_read_goes_first() {
        let mut q = queues();
        let mut arrive = |id, kind| q.arrive(at(0), &"a", OperationId(id), kind, at(1_000));
        arrive(1, Kind::Write);
        for id in 2..=4 {
            arrive(id, Kind::Read);
        }
        let mut finish = |id, left| q.finished(at(1), &"a", OperationId(id), left).start;
        assert_eq!(finish(1, Left::Unsettled), ids(&[2]));
        assert_eq!(finish(2, Left::Unsettled), ids(&[3]), "it failed");
        assert_eq!(finish(3, Left::Settled), ids(&[4]));
        let mut q = queues();
        let mut arrive = |id, kind| q.arrive(at(0), &"a", OperationId(id), kind, at(1_000));
        arrive(1, Kind::Write);
        arrive(2, Kind::Read);
        arrive(3, Kind::Read);
        assert_eq!(q.cancel(at(1), &"a", OperationId(1)).start, ids(&[2]), "nobody knows");
    }

    #[test]
    fn one_slow_turn_does_not_close_the_queue() {
        let mut q = queues();
        q.arrive(at(0), &"a", OperationId(1), Kind::Write, at(9_000));
        q.finished(at(2_000), &"a", OperationId(1), Left::Settled);
        assert_eq!(q.turn(), Duration::from_micros(13_750));
        q.arrive(at(2_000), &"a", OperationId(2), Kind::Write, at(9_000));
        let next = q.arrive(at(2_000), &"a", OperationId(3), Kind::Write, at(2_030));
        assert_eq!(next, Arrival::Wait { turns: 1 });
    }

    #[test]
    fn who_cannot_end_in_time_any_more_is_not_started_and_the_nearest_that_can_is() {
        let mut q = queues();
        q.arrive(at(0), &"a", OperationId(1), Kind::Write, at(1_000));
        q.arrive(at(0), &"a", OperationId(2), Kind::Write, at(49));
        q.arrive(at(0), &"a", OperationId(3), Kind::Write, at(53));
        // The turn took 40 ms: it counts as (7 * 10 + 40) / 8 from now on.
        let turn = q.finished(at(40), &"a", OperationId(1), Left::Settled);
        assert_eq!(q.turn(), Duration::from_micros(13_750));
        assert_eq!(turn, Turn { start: ids(&[]), late: ids(&[2, 3]) });
        q.arrive(at(100), &"a", OperationId(4), Kind::Write, at(1_000));
        q.arrive(at(100), &"a", OperationId(5), Kind::Write, at(128));
        q.arrive(at(100), &"a", OperationId(6), Kind::Write, at(142));
        // (7 * 13.75 + 20) / 8 is 14.53.
        let turn = q.finished(at(120), &"a", OperationId(4), Left::Settled);
        assert_eq!(turn, Turn { start: ids(&[6]), late: ids(&[5]) });
    }

    #[test]
    fn both_bounds_hold() {
        let mut q = queues();
        let far = at(100_000);
        let mut arrive = |key, id| q.arrive(at(0), &key, OperationId(id), Kind::Write, far);
        for id in 0..5 {
            assert!(!matches!(arrive("a", id), Arrival::Refuse(_)));
        }
        assert_eq!(arrive("a", 5), Arrival::Refuse(Refusal::PartitionFull { max: 4 }));
        for id in 10..13 {
            assert!(!matches!(arrive("b", id), Arrival::Refuse(_)));
        }
        assert_eq!(arrive("b", 13), Arrival::Refuse(Refusal::ShardFull { max: 6 }));
        assert_eq!(arrive("c", 20), Arrival::Run);
    }

    #[test]
    fn the_late_and_the_cancelled_make_room() {
        let mut q = queues();
        q.arrive(at(0), &"a", OperationId(1), Kind::Write, at(50));
        q.arrive(at(0), &"a", OperationId(2), Kind::Write, at(50));
        q.arrive(at(0), &"a", OperationId(3), Kind::Write, at(200));
        q.arrive(at(0), &"a", OperationId(4), Kind::Write, at(200));
        assert_eq!(q.cancel(at(5), &"a", OperationId(3)), Turn::default());
        let turn = q.finished(at(60), &"a", OperationId(1), Left::Settled);
        assert_eq!(turn, Turn { start: ids(&[4]), late: ids(&[2]) });
        assert_eq!(q.cancel(at(61), &"a", OperationId(4)), Turn::default());
        assert_eq!((q.waiting(), q.partitions()), (0, 0));
    }
}
