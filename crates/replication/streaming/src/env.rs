//! [`Env`]: the environment that all parts of a shard's streaming share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use cluster::ClusterSnapshot;
use messaging::Messaging;
use rt::sync::Notify;
use rt::{Gate, Rt};
use stdx::{ShardId, TableId, Uuid};
use store::Store;

use crate::error::StreamError;
use crate::settings::StreamSettings;
use crate::stats::Counts;

/// This shard among those of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnShard {
    pub(crate) shard: ShardId,
    /// Shards of the node.
    pub(crate) count: u16,
}

/// The shard, the ways to data and to peers, and how its work ends.
pub(crate) struct Env {
    pub(crate) rt: Rt,
    pub(crate) store: Store,
    pub(crate) messaging: Messaging,
    pub(crate) snapshot: Rc<dyn Fn() -> Arc<ClusterSnapshot>>,
    pub(crate) settings: StreamSettings,
    pub(crate) gate: Gate,
    pub(crate) counts: Counts,
    pub(crate) stopping: Cell<bool>,
    /// Aborted operations, until they end.
    pub(crate) aborted: RefCell<BTreeSet<Uuid>>,
    pub(crate) stop: Notify,
    pub(crate) abort: Notify,
}

impl Env {
    pub(crate) fn own_shard(&self) -> OwnShard {
        OwnShard { shard: self.rt.shard(), count: self.rt.shard_count() }
    }

    /// Aborts this shard's work for an operation.
    pub(crate) fn give_up(&self, plan: Uuid) {
        self.aborted.borrow_mut().insert(plan);
        self.abort.notify_waiters();
    }

    /// Returns the outcome of `work` for an operation, unless the operation is aborted or streaming
    /// stops first.
    pub(crate) async fn unless_aborted<T>(
        &self,
        plan: Uuid,
        work: impl Future<Output = T>,
    ) -> Result<T, StreamError> {
        let aborted = async {
            loop {
                let next = self.abort.notified();
                if self.aborted.borrow().contains(&plan) {
                    return;
                }
                next.await;
            }
        };
        let (mut work, mut aborted) = (pin!(self.unless_stopped(work)), pin!(aborted));
        poll_fn(|cx| {
            if aborted.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(StreamError::Aborted));
            }
            work.as_mut().poll(cx)
        })
        .await
    }

    /// The outcome of `work`, unless streaming stops first.
    pub(crate) async fn unless_stopped<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, StreamError> {
        let stop = self.stop.notified();
        if self.stopping.get() {
            return Err(StreamError::Stopping);
        }
        let (mut work, mut stop) = (pin!(work), pin!(stop));
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            stop.as_mut().poll(cx).map(|_| Err(StreamError::Stopping))
        })
        .await
    }

    /// Keyspace and name of a table.
    pub(crate) fn table_name(&self, table: TableId) -> String {
        let snapshot = (self.snapshot)();
        let table = snapshot.schema.table_by_id(table);
        table.map(|t| format!("{}/{}", t.keyspace, t.name)).unwrap_or_default()
    }
}
