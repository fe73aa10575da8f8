//! Assignment of ranges to nodes for COPY TO.
//!
//! Owns: queued ranges, the number of unfinished ones, nodes that do not answer. Never:
//! connections.
//!
//! A node takes only ranges that it is a replica of. A range that failed is continued after its
//! last received page, with the next node that has it. When all its replicas are down, the first of
//! them counts the attempts.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::copy::export::Range;

/// A range in work.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) range: Range,
    /// The nodes that have it.
    pub(super) replicas: Vec<usize>,
    pub(super) attempts: u32,
    pub(super) rows: u64,
    /// Where its next page begins.
    pub(super) paging_state: Option<Vec<u8>>,
}

struct State {
    waiting: VecDeque<Work>,
    /// Ranges that wait or are in work.
    open: usize,
    down: Vec<usize>,
}

/// All ranges.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    /// All ranges with their replicas.
    pub(super) fn new(ranges: impl Iterator<Item = (Range, Vec<usize>)>) -> Queue {
        let waiting: VecDeque<Work> = ranges
            .map(|(range, replicas)| Work {
                range,
                replicas,
                attempts: 0,
                rows: 0,
                paging_state: None,
            })
            .collect();
        let open = waiting.len();
        Queue {
            state: Mutex::new(State { waiting, open, down: Vec::new() }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A range that waits for this node; counts the attempt.
    pub(super) fn take(&self, node: usize) -> Option<Work> {
        let mut state = self.lock();
        let at = state.waiting.iter().position(|work| work.replicas.contains(&node))?;
        let mut work = state.waiting.remove(at)?;
        work.attempts += 1;
        Some(work)
    }

    /// The ranges that this node has to answer for, as all of their replicas are down; counts the
    /// attempt.
    pub(super) fn take_without_replicas(&self, node: usize) -> Vec<Work> {
        let State { waiting, down, .. } = &mut *self.lock();
        let (lost, left): (VecDeque<Work>, VecDeque<Work>) =
            std::mem::take(waiting).into_iter().partition(|work| {
                work.replicas.first() == Some(&node)
                    && work.replicas.iter().all(|replica| down.contains(replica))
            });
        *waiting = left;
        let count = |work: Work| Work { attempts: work.attempts + 1, ..work };
        lost.into_iter().map(count).collect()
    }

    /// Enqueues a failed range again, after the others.
    pub(super) fn put_back(&self, work: Work) {
        self.lock().waiting.push_back(work);
        self.changed.notify_all();
    }

    /// Marks a range as done or abandoned.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.open = state.open.saturating_sub(1);
        self.changed.notify_all();
    }

    /// Returns true if ranges are queued or in progress.
    pub(super) fn is_open(&self) -> bool {
        self.lock().open > 0
    }

    /// Waits until something changes, not much longer than `most`.
    pub(super) fn wait(&self, most: Duration) {
        let state = self.lock();
        if state.open > 0 {
            // Neither a poisoned lock nor the time that is left matters to a wait.
            drop(self.changed.wait_timeout(state, most));
        }
    }

    /// A node does not answer, or does again.
    pub(super) fn set_down(&self, node: usize, down: bool) {
        let mut state = self.lock();
        state.down.retain(|known| *known != node);
        if down {
            state.down.push(node);
        }
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(to: i64) -> Range {
        Range { from: None, to: Some(to) }
    }

    fn queue() -> Queue {
        Queue::new([(range(1), vec![0, 1]), (range(2), vec![1])].into_iter())
    }

    #[test]
    fn a_node_takes_only_what_it_has() {
        let queue = queue();
        assert_eq!(queue.take(2), None);
        assert_eq!(queue.take(0).unwrap().range, range(1));
        assert_eq!(queue.take(0), None);
        let work = queue.take(1).unwrap();
        assert_eq!((work.range, work.attempts), (range(2), 1));
        queue.put_back(work);
        assert_eq!(queue.take(1).unwrap().attempts, 2);
    }

    #[test]
    fn the_first_replica_answers_for_a_range_when_all_are_down() {
        let queue = queue();
        queue.set_down(0, true);
        assert_eq!(queue.take_without_replicas(0), [], "node 1 has it too");
        queue.set_down(1, true);
        let lost = queue.take_without_replicas(0);
        assert_eq!(lost.iter().map(|work| work.range).collect::<Vec<_>>(), [range(1)]);
        queue.set_down(1, false);
        assert_eq!(queue.take_without_replicas(1), []);
    }

    #[test]
    fn the_queue_is_open_until_all_ranges_are_closed() {
        let queue = queue();
        let (one, two) = (queue.take(0), queue.take(1));
        assert!(one.is_some() && two.is_some() && queue.is_open());
        queue.close();
        queue.close();
        assert!(!queue.is_open());
    }
}
