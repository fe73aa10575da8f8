//! Truncation requests between the shards of one node.

use crate::everywhere::Progress;
use crate::state::{POLL, Truncations};
use rt::{Group, MeshError};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use stdx::{Epoch, ShardId, TableId, TimestampMicros, WallMicros};

/// A question to the truncations of another shard.
pub enum ShardRequest {
    /// Empty this shard's part of a table.
    Empty {
        /// The table.
        table: TableId,
        /// Writes at or before this timestamp are removed.
        at: WallMicros,
    },
    /// These truncations are recorded, durably: see [`store::Store::truncation_recorded`].
    Recorded(Arc<BTreeMap<TableId, WallMicros>>),
    /// To shard 0: the progress of a truncation on all nodes.
    Progress {
        /// The table.
        table: TableId,
        /// The same timestamp as in `Empty`.
        at: WallMicros,
        /// Epoch of the entry of the metadata log.
        epoch: Epoch,
    },
}

/// Answer to a [`ShardRequest`].
pub enum ShardReply {
    /// To `Recorded`.
    Done,
    /// To `Empty`: success means that the shard's part is empty, durably.
    Emptied(Result<(), String>),
    /// To `Progress`.
    Progress(Progress),
}

/// Asks another shard.
pub type AskShard = Rc<
    dyn Fn(ShardId, ShardRequest) -> Pin<Box<dyn Future<Output = Result<ShardReply, MeshError>>>>,
>;

impl Truncations {
    /// Answers requests of other shards. A dropped `reply` notifies the caller that the node stops.
    pub fn serve(&self, request: ShardRequest, reply: impl FnOnce(ShardReply) + 'static) {
        let this = self.clone();
        let (rt, gate) = (&self.inner.rt, &self.inner.gate);
        // A closed gate means that the node stops: the dropped reply tells the caller.
        let _ = match request {
            ShardRequest::Recorded(known) => {
                self.recorded_here(&known);
                reply(ShardReply::Done);
                return;
            }
            ShardRequest::Progress { table, at, epoch } => {
                let task = async move {
                    reply(ShardReply::Progress(this.progress(table, at, epoch).await));
                };
                gate.spawn(rt, Group::Admin, "truncated", task)
            }
            ShardRequest::Empty { table, at } => {
                let task = async move {
                    reply(ShardReply::Emptied(this.empty_here(table, at).await));
                };
                gate.spawn(rt, Group::Admin, "truncate", task)
            }
        };
    }

    /// The other shards of this node.
    pub(crate) fn other_shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        let own = self.inner.rt.shard();
        (0..self.inner.rt.shard_count()).map(ShardId).filter(move |shard| *shard != own)
    }

    /// Empties this shard's part of a table, durably, unless its log records that this was done.
    ///
    /// # Errors
    /// The reason of the failure.
    pub(crate) async fn empty_here(&self, table: TableId, at: WallMicros) -> Result<(), String> {
        let coordinator = &self.inner.coordinator;
        let store = coordinator.store();
        let result = if store.lifecycle().is_truncated(table, TimestampMicros(at.0)) {
            store.lifecycle().sync_truncation(table).await
        } else {
            coordinator.counters().truncate(table, at).await
        };
        result.map_err(|error| {
            (self.inner.on_failure)(&error);
            error.to_string()
        })
    }

    /// Asks another shard until it answers: a later attempt would remove rows that were
    /// acknowledged meanwhile.
    pub(crate) async fn empty_on(
        &self,
        shard: ShardId,
        table: TableId,
        at: WallMicros,
    ) -> Result<(), String> {
        loop {
            match (self.inner.ask)(shard, ShardRequest::Empty { table, at }).await {
                Ok(ShardReply::Emptied(result)) => return result,
                _ if self.inner.is_stopping.get() => return Err("the node stops".to_owned()),
                _ => self.inner.rt.sleep(POLL).await,
            }
        }
    }

    /// These truncations are recorded durably.
    pub(crate) fn recorded_here(&self, known: &BTreeMap<TableId, WallMicros>) {
        let store = self.inner.coordinator.store();
        for (table, at) in known {
            store.lifecycle().truncation_recorded(*table, TimestampMicros(at.0));
        }
    }
}

/// Runs all at the same time to their ends.
pub(crate) async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|f| (Some(Box::pin(f)), None)).collect();
    poll_fn(|cx| {
        let mut waits = false;
        for (future, output) in &mut running {
            match future.as_mut().map(|f| f.as_mut().poll(cx)) {
                Some(Poll::Ready(value)) => {
                    *output = Some(value);
                    *future = None;
                }
                Some(Poll::Pending) => waits = true,
                None => {}
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}
