//! One operation: all ranges of all tables, by all shards.

use std::pin::Pin;
use std::sync::Arc;

use rt::MeshError;
use stdx::{HostId, ShardId, TableId, Uuid};

use crate::error::{FailedRange, StreamError};
use crate::plan::FetchRange;
use crate::streaming::Streaming;

/// What an operation has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchReport {
    /// Ranges that are here, of all tables.
    pub ranges: u64,
    /// Bytes of pages.
    pub bytes: u64,
    /// Partitions, those that go on in another page counted again.
    pub partitions: u64,
    /// SSTables that were made.
    pub files: u64,
    /// Their bytes on disk.
    pub disk_bytes: u64,
    /// Those of them that came as they are.
    pub whole_files: u64,
}

/// How far an operation is. Told after each table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchProgress {
    /// Ranges to be fetched, of all tables.
    pub ranges: u64,
    /// Ranges that could not be fetched.
    pub failed: u64,
    /// What is here.
    pub done: FetchReport,
}

/// Told of ranges that are here, durably.
pub type Keep<'a> = dyn Fn(Vec<FetchRange>) -> Pin<Box<dyn Future<Output = ()> + 'a>> + 'a;

/// One table's ranges, for every shard.
#[derive(Clone)]
pub(crate) struct TableOrder {
    pub(crate) plan: Uuid,
    pub(crate) operation: Arc<str>,
    pub(crate) table: TableId,
    pub(crate) ranges: Arc<[FetchRange]>,
}

/// What a shard is told.
pub(crate) enum Order {
    /// Fetch what of these ranges is yours.
    Fetch(TableOrder),
    /// What of the operation still runs is to end.
    Abort(Uuid),
    /// The operation is over.
    Forget(Uuid),
}

/// What one shard fetched of a table.
#[derive(Debug, Default)]
pub(crate) struct ShardOutcome {
    pub(crate) report: FetchReport,
    /// Index of a range, the last source and why it failed.
    pub(crate) failed: Vec<(usize, Option<HostId>, String)>,
}

impl Streaming {
    /// Fetches ranges into SSTables of this node, on all of its shards, table after table. The data
    /// is seen as its parts become durable. Tables that are dropped meanwhile count as fetched.
    /// `operation` names it for `nodetool netstats`: `Bootstrap`, `Rebuild` and so on.
    ///
    /// A movement's writes must reach this node before it is called: every coordinator has applied
    /// the entry that made it a pending replica, and writes that began before are over.
    ///
    /// # Errors
    /// `Incomplete`: everything else was fetched; `Store`, `Stopping`.
    pub async fn fetch(
        &self,
        operation: &str,
        plan: Vec<FetchRange>,
        progress: &dyn Fn(&FetchProgress),
    ) -> Result<FetchReport, StreamError> {
        let keep: &Keep<'_> = &|_| Box::pin(std::future::ready(()));
        self.fetch_keeping((operation, self.new_plan()), plan, progress, keep).await
    }

    /// The same under a name of [`Streaming::new_plan`], by which it can be given up; after each table `keep` is given its ranges that are here now, as they were asked
    /// for, and is waited for. What it makes durable need not be fetched again after a crash.
    ///
    /// # Errors
    /// As [`Streaming::fetch`]; `Aborted`.
    pub async fn fetch_keeping(
        &self,
        (operation, id): (&str, Uuid),
        plan: Vec<FetchRange>,
        progress: &dyn Fn(&FetchProgress),
        keep: &Keep<'_>,
    ) -> Result<FetchReport, StreamError> {
        self.inner.running.borrow_mut().insert(id);
        let fetched = self.fetch_tables(id, operation, plan, (progress, keep)).await;
        // From here on no abort is sent: none comes behind the order to forget.
        self.inner.running.borrow_mut().remove(&id);
        for shard in 0..self.inner.rt.shard_count() {
            // A shard that is gone has forgotten it.
            let _ = self.inner.mesh.0.call(&self.inner.rt, ShardId(shard), Order::Forget(id)).await;
        }
        fetched
    }

    async fn fetch_tables(
        &self,
        id: Uuid,
        operation: &str,
        mut plan: Vec<FetchRange>,
        (progress, keep): (&dyn Fn(&FetchProgress), &Keep<'_>),
    ) -> Result<FetchReport, StreamError> {
        plan.sort_by_key(|f| f.table);
        let mut told = FetchProgress { ranges: plan.len() as u64, ..FetchProgress::default() };
        let mut failed: Vec<FailedRange> = Vec::new();
        let operation: Arc<str> = operation.into();
        for ranges in plan.chunk_by(|a, b| a.table == b.table) {
            let Some(table) = ranges.first().map(|f| f.table) else { continue };
            if self.inner.aborted.borrow().contains(&id) {
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
        let inner = &self.inner;
        let calls: Vec<_> = (0..inner.rt.shard_count())
            .map(|n| inner.mesh.0.call(&inner.rt, ShardId(n), Order::Fetch(order.clone())))
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
    pub(crate) async fn obey(&self, order: Order) -> Result<ShardOutcome, StreamError> {
        match order {
            Order::Fetch(order) => self.pull_table(&order).await,
            Order::Abort(plan) => {
                self.inner.give_up(plan);
                Ok(ShardOutcome::default())
            }
            Order::Forget(plan) => {
                self.inner.counts.forget(plan);
                self.inner.aborted.borrow_mut().remove(&plan);
                Ok(ShardOutcome::default())
            }
        }
    }
}
