//! Queues of partitions: one counter write per partition is led at a time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Weak;

use rt::sync::oneshot;
use stdx::{FixedMap, TableId};

use super::Inner;

/// Table and serialised key.
type Partition = (TableId, Vec<u8>);

/// Maximum number of waiting increments of one partition; a turn that reads from memory takes
/// microseconds.
const WAITING_MAX_PER_PARTITION: usize = 4096;
/// Maximum number of waiting increments of a shard.
const WAITING_MAX: usize = 65_536;

/// Too many wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} counter updates are queued, which is the limit")]
pub(crate) struct Full(usize);

/// The node stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

/// The queues of a shard. A partition is in the map as long as a request holds its turn.
#[derive(Default)]
pub(crate) struct Queues {
    waiting: RefCell<FixedMap<Partition, VecDeque<oneshot::Sender<Turn>>>>,
    count: Cell<usize>,
}

/// The turn of a partition; when it is dropped, the next in the queue gets it.
pub(crate) struct Turn {
    inner: Weak<Inner>,
    partition: Partition,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            let partition = std::mem::take(&mut self.partition.1);
            inner.queues.go_on(&self.inner, (self.partition.0, partition));
        }
    }
}

impl Queues {
    /// Joins the queue of a partition. The future resolves with the turn, in order of arrival. An
    /// entry whose future was dropped is skipped.
    ///
    /// # Errors
    /// Too many wait already.
    pub(super) fn enter(
        &self,
        inner: Weak<Inner>,
        partition: Partition,
    ) -> Result<impl Future<Output = Result<Turn, Stopped>> + use<>, Full> {
        let mut waiting = self.waiting.borrow_mut();
        let (sender, receiver) = oneshot::channel();
        if let Some(queue) = waiting.get_mut(&partition) {
            if queue.len() >= WAITING_MAX_PER_PARTITION {
                return Err(Full(queue.len()));
            }
            if self.count.get() >= WAITING_MAX {
                return Err(Full(self.count.get()));
            }
            self.count.set(self.count.get() + 1);
            queue.push_back(sender);
        } else {
            waiting.insert(partition.clone(), VecDeque::new());
            drop(waiting);
            drop(sender.send(Turn { inner, partition }));
        }
        Ok(async move { receiver.await.map_err(|_| Stopped) })
    }

    fn go_on(&self, inner: &Weak<Inner>, partition: Partition) {
        loop {
            let next = {
                let mut waiting = self.waiting.borrow_mut();
                let Some(queue) = waiting.get_mut(&partition) else { return };
                let next = queue.pop_front();
                if next.is_none() {
                    waiting.remove(&partition);
                }
                next
            };
            let Some(next) = next else { return };
            self.count.set(self.count.get().saturating_sub(1));
            if next.is_closed() {
                continue;
            }
            // If the receiver is gone, the turn is dropped and passed on.
            drop(next.send(Turn { inner: inner.clone(), partition }));
            return;
        }
    }
}
