//! [`Fetcher`]: one operation, which is all ranges of all tables, by all shards.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use rt::{Group, MeshError};
use stdx::{HostId, ShardId, Uuid};

use crate::env::Env;
use crate::error::{FailedRange, StreamError};
use crate::orders::{Order, ShardOutcome, StreamMesh, TableOrder};
use crate::plan::FetchRange;
use crate::pull::Puller;
use crate::report::{FetchProgress, FetchReport};

/// Called with ranges that have been received, durably.
pub type Keep<'a> = dyn Fn(Vec<FetchRange>) -> Pin<Box<dyn Future<Output = ()> + 'a>> + 'a;

/// Identity of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// For `nodetool netstats`: `Bootstrap`, `Rebuild` and so on.
    pub name: &'a str,
    /// Id from [`crate::Streaming::new_plan`]; the operation can be aborted by it.
    pub plan: Uuid,
}

/// Fetches for this node, and does this shard's part in what others fetch for it.
pub(crate) struct Fetcher {
    env: Rc<Env>,
    mesh: Arc<StreamMesh>,
    puller: Puller,
    /// Operations that this shard has begun.
    running: RefCell<BTreeSet<Uuid>>,
}

impl Fetcher {
    pub(crate) fn new(env: Rc<Env>, mesh: Arc<StreamMesh>) -> Fetcher {
        let puller = Puller::new(env.clone());
        Fetcher { env, mesh, puller, running: RefCell::default() }
    }

    /// Carries out the orders of other shards.
    pub(crate) fn serve(self: &Rc<Self>) {
        // Weak: the port lives as long as the shard.
        let weak = Rc::downgrade(self);
        self.mesh.0.serve(&self.env.rt, move |order, reply| {
            // A dropped reply means that this shard is gone.
            let Some(fetcher) = weak.upgrade() else { return };
            let env = fetcher.env.clone();
            let task = async move { reply.send(fetcher.obey(order).await) };
            let _ = env.gate.spawn(&env.rt, Group::Stream, "stream-fetch", task);
        });
    }

    /// Ends an operation of this shard on all shards; false: none of that name runs.
    pub(crate) fn abort(&self, plan: Uuid) -> bool {
        let env = &self.env;
        if !self.running.borrow().contains(&plan) {
            return false;
        }
        env.give_up(plan);
        for shard in (0..env.rt.shard_count()).filter(|n| *n != env.rt.shard().0) {
            // Sent now; a shard that cannot take it ends with the table that it fetches.
            drop(self.mesh.0.call(&env.rt, ShardId(shard), Order::Abort(plan)));
        }
        true
    }

    pub(crate) async fn fetch(
        &self,
        operation: Operation<'_>,
        plan: Vec<FetchRange>,
        progress: &dyn Fn(&FetchProgress),
        keep: &Keep<'_>,
    ) -> Result<FetchReport, StreamError> {
        self.running.borrow_mut().insert(operation.plan);
        let fetched = self.fetch_tables(operation, plan, progress, keep).await;
        // From here on no abort is sent, so none arrives after the order to forget.
        self.running.borrow_mut().remove(&operation.plan);
        for shard in 0..self.env.rt.shard_count() {
            // A shard that is gone has forgotten it.
            let forget = Order::Forget(operation.plan);
            let _ = self.mesh.0.call(&self.env.rt, ShardId(shard), forget).await;
        }
        fetched
    }

    async fn fetch_tables(
        &self,
        operation: Operation<'_>,
        mut plan: Vec<FetchRange>,
        progress: &dyn Fn(&FetchProgress),
        keep: &Keep<'_>,
    ) -> Result<FetchReport, StreamError> {
        plan.sort_by_key(|f| f.table);
        let mut told = FetchProgress { ranges: plan.len() as u64, ..FetchProgress::default() };
        let mut failed: Vec<FailedRange> = Vec::new();
        let id = operation.plan;
        let operation: Arc<str> = operation.name.into();
        for ranges in plan.chunk_by(|a, b| a.table == b.table) {
            let Some(table) = ranges.first().map(|f| f.table) else { continue };
            if self.env.aborted.borrow().contains(&id) {
                return Err(StreamError::Aborted);
            }
            let operation = operation.clone();
            let order = TableOrder { plan: id, operation, table, ranges: ranges.into() };
            let mut bad: Vec<Option<(Option<HostId>, String)>> = vec![None; ranges.len()];
            for outcome in self.order_all(&order).await? {
                let ShardOutcome { report, failed } = outcome;
                told.done.bytes += report.bytes;
                told.done.partitions += report.partitions;
                told.done.files += report.files;
                told.done.disk_bytes += report.disk_bytes;
                told.done.whole_files += report.whole_files;
                for (index, source, error) in failed {
                    match bad.get_mut(index) {
                        Some(slot) => *slot = Some((source, error)),
                        None => stdx::invariant!(
                            false,
                            "INV-stream-1: range {index} of {}, which failed, would be reported as done",
                            ranges.len()
                        ),
                    }
                }
            }
            let mut here = Vec::new();
            for (range, bad) in ranges.iter().zip(bad) {
                match bad {
                    None => here.push(range.clone()),
                    Some((source, error)) => {
                        failed.push(FailedRange { range: range.clone(), source, error });
                    }
                }
            }
            told.done.ranges += here.len() as u64;
            keep(here).await;
            told.failed = failed.len() as u64;
            progress(&told);
        }
        match failed.is_empty() {
            true => Ok(told.done),
            false => Err(StreamError::Incomplete { report: told.done, failed }),
        }
    }

    /// Has every shard fetch its slice.
    async fn order_all(&self, order: &TableOrder) -> Result<Vec<ShardOutcome>, StreamError> {
        let calls: Vec<_> = (0..self.env.rt.shard_count())
            .map(|n| self.mesh.0.call(&self.env.rt, ShardId(n), Order::Fetch(order.clone())))
            .collect();
        let mut outcomes = Vec::with_capacity(calls.len());
        let mut error = None;
        for call in calls {
            match call.await {
                Ok(Ok(outcome)) => outcomes.push(outcome),
                Ok(Err(e)) => error = error.or(Some(e)),
                Err(MeshError::Closed) => error = error.or(Some(StreamError::Stopping)),
                Err(MeshError::Full) => {
                    error = error.or(Some(StreamError::Store(store::StoreError::QueueFull)));
                }
            }
        }
        match error {
            None => Ok(outcomes),
            Some(error) => Err(error),
        }
    }

    /// A shard's part.
    async fn obey(&self, order: Order) -> Result<ShardOutcome, StreamError> {
        match order {
            Order::Fetch(order) => self.puller.pull_table(&order).await,
            Order::Abort(plan) => {
                self.env.give_up(plan);
                Ok(ShardOutcome::default())
            }
            Order::Forget(plan) => {
                self.env.counts.forget(plan);
                self.env.aborted.borrow_mut().remove(&plan);
                Ok(ShardOutcome::default())
            }
        }
    }
}
