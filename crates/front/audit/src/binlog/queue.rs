//! The queue of records of one destination on one shard: bounds, and what a full queue does.
//!
//! Owns: which records wait to be written, their weight, whether answers wait or records are dropped. Never: writes.
//!
//! INV-audit-1: with [`FullQueue::Wait`] no record is dropped, and a request is answered with its result only while
//! the queue is within its limit. Requests in flight may exceed the limit; none begins above twice the limit.

use std::collections::VecDeque;

/// Record of a log of requests.
pub trait Weighed {
    /// Bytes that it holds, about.
    fn weight(&self) -> u64;
}

/// Behaviour of a full queue (`block`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullQueue {
    /// Answers wait until the queue is within its limit.
    Wait,
    /// New records are dropped and counted.
    Drop,
}

/// Outcome of adding a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The answer may be sent.
    Queued,
    /// The record is in the queue, which is over its limit: the answer waits.
    Over,
    /// The record was dropped.
    Dropped,
}

/// Events of one destination that are not written yet.
#[derive(Debug)]
pub struct RecordQueue<T> {
    records: VecDeque<T>,
    /// Weight of `records` and of the batch that is being written.
    weight: u64,
    /// Weight and number of the records of that batch.
    in_flight: u64,
    taken: usize,
    limit: u64,
    full: FullQueue,
}

impl<T: Weighed> RecordQueue<T> {
    /// Creates a queue for records of this weight in total.
    pub fn new(limit: u64, full: FullQueue) -> RecordQueue<T> {
        RecordQueue { records: VecDeque::new(), weight: 0, in_flight: 0, taken: 0, limit, full }
    }

    /// Adds a record. One that exceeds the limit alone is accepted by an empty queue.
    pub fn push(&mut self, record: T) -> Pushed {
        let weight = record.weight();
        let is_over = self.weight > 0 && self.weight.saturating_add(weight) > self.limit;
        if is_over && self.full == FullQueue::Drop {
            return Pushed::Dropped;
        }
        self.weight = self.weight.saturating_add(weight);
        self.records.push_back(record);
        if is_over { Pushed::Over } else { Pushed::Queued }
    }

    /// Takes the oldest records, at least one if there is any, up to about `bytes`. They count until
    /// [`RecordQueue::written`].
    pub fn take(&mut self, bytes: u64) -> Vec<T> {
        let mut taken = Vec::new();
        while self.in_flight < bytes {
            let Some(record) = self.records.pop_front() else { break };
            self.in_flight = self.in_flight.saturating_add(record.weight());
            taken.push(record);
        }
        self.taken += taken.len();
        taken
    }

    /// Releases the first `count` records that were taken, of this weight together: they are written, or dropped.
    pub fn released(&mut self, count: usize, weight: u64) {
        self.weight = self.weight.saturating_sub(weight);
        self.in_flight = self.in_flight.saturating_sub(weight);
        self.taken = self.taken.saturating_sub(count);
    }

    /// Releases the weight of the records that were taken.
    pub fn written(&mut self) {
        self.weight = self.weight.saturating_sub(self.in_flight);
        (self.in_flight, self.taken) = (0, 0);
    }

    /// Empties the queue. Returns the number of records that it held, with those of the batch that is being written.
    pub fn clear(&mut self) -> usize {
        let count = self.records.len() + self.taken;
        self.records.clear();
        (self.weight, self.in_flight, self.taken) = (0, 0, 0);
        count
    }

    /// Returns true if answers have to wait.
    pub fn is_over(&self) -> bool {
        self.full == FullQueue::Wait && self.weight > self.limit
    }

    /// Returns true if requests may begin.
    pub fn admits(&self) -> bool {
        self.full == FullQueue::Drop || self.weight <= self.limit.saturating_mul(2)
    }

    /// Returns true if nothing is left to write.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.in_flight == 0
    }

    /// Number of records that were not taken.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Bytes of all records that are not written.
    pub fn weight(&self) -> u64 {
        self.weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventRecord, EventType};
    use crate::tests::{event, record};

    fn of_weight(bytes: usize) -> EventRecord {
        let mut one = event(EventType::Update);
        (one.user, one.keyspace, one.scope) = (None, None, None);
        one.operation = "x".repeat(bytes - 200).into();
        let one = record(one);
        assert_eq!(one.weight(), bytes as u64);
        one
    }

    /// INV-audit-1.
    #[test]
    fn a_full_queue_that_waits_drops_nothing_and_releases_answers_once_it_is_within_its_limit() {
        let mut queue = RecordQueue::new(1000, FullQueue::Wait);
        assert_eq!(queue.push(of_weight(600)), Pushed::Queued);
        assert_eq!(queue.push(of_weight(400)), Pushed::Queued);
        assert_eq!(queue.push(of_weight(201)), Pushed::Over);
        assert!(queue.is_over() && queue.admits());
        assert_eq!(queue.push(of_weight(800)), Pushed::Over);
        assert!(!queue.admits());
        // A batch counts until it is written.
        assert_eq!(queue.take(500).len(), 1);
        assert!(queue.is_over());
        queue.written();
        assert!(queue.is_over() && queue.admits());
        assert_eq!(queue.take(1200).len(), 3);
        queue.written();
        assert!(queue.is_empty() && !queue.is_over());
        assert_eq!(queue.weight(), 0);
    }

    #[test]
    fn a_full_queue_that_drops_keeps_its_limit_and_delays_nobody() {
        let mut queue = RecordQueue::new(1000, FullQueue::Drop);
        assert_eq!(queue.push(of_weight(600)), Pushed::Queued);
        assert_eq!(queue.push(of_weight(400)), Pushed::Queued);
        assert_eq!(queue.push(of_weight(201)), Pushed::Dropped);
        assert!(!queue.is_over() && queue.admits());
        assert_eq!((queue.len(), queue.weight()), (2, 1000));
    }

    #[test]
    fn all_texts_of_an_event_count() {
        let one = record(event(EventType::Update));
        let texts = ["alice", "ks", "t", "INSERT INTO t (a) VALUES (1)"];
        assert_eq!(one.weight(), 200 + texts.concat().len() as u64);
    }

    #[test]
    fn an_event_above_the_limit_is_accepted_by_an_empty_queue() {
        for full in [FullQueue::Wait, FullQueue::Drop] {
            let mut queue = RecordQueue::new(300, full);
            assert_eq!(queue.push(of_weight(5000)), Pushed::Queued);
            assert_ne!(queue.push(of_weight(201)), Pushed::Queued);
            assert_eq!(queue.take(1)[0].weight(), 5000);
        }
    }
}
