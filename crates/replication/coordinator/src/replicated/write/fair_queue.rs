//! A queue that serves its sources in turn, so that one with much to do does not hold back the others.

use std::collections::{BTreeMap, VecDeque};

/// Waiting items by source; each source is served in the order of its items.
pub(super) struct FairQueue<T> {
    by_source: BTreeMap<u64, VecDeque<T>>,
    /// Sources that have items, the next one first.
    order: VecDeque<u64>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { by_source: BTreeMap::new(), order: VecDeque::new(), len: 0 }
    }
}

impl<T> FairQueue<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item after those of its source.
    pub(super) fn push(&mut self, source: u64, item: T) {
        let items = self.by_source.entry(source).or_default();
        if items.is_empty() {
            self.order.push_back(source);
        }
        items.push_back(item);
        self.len += 1;
    }

    /// Takes the first item of the source whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let source = self.order.pop_front()?;
        let items = self.by_source.get_mut(&source)?;
        let item = items.pop_front();
        if items.is_empty() {
            self.by_source.remove(&source);
        } else {
            self.order.push_back(source);
        }
        self.len = self.len.saturating_sub(1);
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_served_in_turn_and_each_in_its_order() {
        let mut queue = FairQueue::default();
        for n in 0..5 {
            queue.push(7, n);
        }
        queue.push(1, 10);
        queue.push(2, 20);
        queue.push(2, 21);
        assert_eq!(queue.len(), 8);
        let mut taken = vec![queue.pop().unwrap(), queue.pop().unwrap()];
        queue.push(1, 11);
        taken.extend(std::iter::from_fn(|| queue.pop()));
        assert_eq!(taken, [0, 10, 20, 1, 11, 21, 2, 3, 4]);
        assert_eq!(queue.len(), 0);
    }
}
