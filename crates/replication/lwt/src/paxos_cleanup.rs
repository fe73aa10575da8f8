//! Cleanup of `system.paxos`: rows without information are deleted, so that the table stays bounded.
//!
//! Owns: when a row is deleted, and how a row is settled that no node settles. An acceptor refuses ballots
//! that are some time behind the wall clock ([`crate::ballot_floor`]). A row is deleted when all of it is
//! older than twice that and [`AcceptorState::is_droppable`] allows it. So ballots that a deleted row would
//! have refused are still refused. That also holds when the wall clock is set back by more than the
//! difference, because the floor of the deletions is persisted ([`crate::ballot_floor`]). While the clock
//! jumps no row is deleted: otherwise a clock that is days ahead for a moment would close the node's
//! partitions for days.
//!
//! A write whose condition was false leaves a promise. A read that buried one leaves an empty value. Both keep
//! their row. When they are old, the replica that proposes for the partition commits an empty write, which all
//! replicas then have, prune and drop.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, Consistency, TokenRange};
use data::command::{Partitions, ReadCommand};
use data::{MutationBuilder, RowRef};
use paxos::{AcceptorState, Scope};
use rt::sync::Notify;
use stdx::{TimestampMicros, Token};
use store::{Flow, RowSink, StoreError};

use crate::Lwt;
use crate::ballot_floor::before;
use crate::handover::Reach;
use crate::paxos_row::{Partition, PaxosTable, Payload};
use crate::plan::replicas_of;
use crate::shards::Shards;
use crate::{CasOperation, CasOrder, CasRefused};
use replica::{Origin, ReplicaMutation};

/// So old is all of a row that goes.
const DROP_AGE: Duration = Duration::from_secs(24 * 3600);
/// A wall clock that was set by more than this between two sweeps is not swept by.
const JUMP: Duration = Duration::from_secs(60);
/// Pause between two sweeps.
const PAUSE: Duration = Duration::from_secs(3600);
/// Time for one write of nothing.
const SETTLE_TIME: Duration = Duration::from_secs(5);
/// Maximum empty writes of one sweep; the next sweep continues.
const SETTLES_MAX: u64 = 10_000;

/// Statistics of a sweep of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Rows deleted.
    pub dropped: u64,
    /// Partitions brought to where the next sweep deletes their rows.
    pub settled: u64,
}

/// Ends the sweeps.
#[derive(Default)]
pub(crate) struct Sweeps {
    stopping: Cell<bool>,
    wake: Notify,
}

/// Reads no rows, and always writes a mutation.
#[derive(Default)]
pub(crate) struct Nothing(Vec<u8>);

impl RowSink for Nothing {
    fn partition(&mut self, _: Token, _: &[u8], _: Option<RowRef<'_>>) -> Flow {
        Flow::Stop
    }

    fn row(&mut self, _: &[u8], _: RowRef<'_>) -> Flow {
        Flow::Stop
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Stop
    }
}

impl CasOperation for Nothing {
    fn restart(&mut self) {}

    fn decide(&mut self, _: TimestampMicros) -> Result<Option<Vec<u8>>, CasRefused> {
        Ok(Some(self.0.clone()))
    }
}

impl<N: Shards> Lwt<N> {
    /// Offset of the wall clock from the monotonic clock, in microseconds.
    fn clock_offset(&self) -> i128 {
        let now = i128::from(self.env().rt.now().0) / 1_000;
        i128::from(self.env().rt.wall().0) - now
    }

    /// Sweeps this shard now and then until [`Lwt::stop_cleanup`].
    pub fn start_cleanup(&self) {
        let this = self.clone();
        self.env().spawn_or_drop("paxos-sweep", async move {
            let (rt, sweeps) = (&this.env().rt, &this.inner.sweeps);
            let mut offset = this.clock_offset();
            while !sweeps.stopping.get() {
                let next = rt.now() + PAUSE;
                if rt.timeout(next, sweeps.wake.notified()).await.is_ok() {
                    continue;
                }
                let was = std::mem::replace(&mut offset, this.clock_offset());
                if offset.abs_diff(was) > JUMP.as_micros() {
                    tracing::warn!(
                        "wall clock was set: system.paxos is swept again once the clock has been \
                        steady for an hour"
                    );
                    continue;
                }
                match this.sweep_registers(DROP_AGE).await {
                    Ok(swept) if swept != Swept::default() => {
                        tracing::debug!(?swept, "system.paxos was swept");
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "cannot sweep system.paxos"),
                }
            }
        });
    }

    /// Ends [`Lwt::start_cleanup`].
    pub fn stop_cleanup(&self) {
        self.inner.sweeps.stopping.set(true);
        self.inner.sweeps.wake.notify_waiters();
    }

    /// Deletes this shard's rows of `system.paxos` that carry no information any more and have this
    /// age. Settles those that no other node will settle.
    ///
    /// # Errors
    /// The store's.
    pub async fn sweep_registers(&self, age: Duration) -> Result<Swept, StoreError> {
        let Some(cluster) = self.cluster() else { return Ok(Swept::default()) };
        let mut swept = Swept::default();
        let mut after: Option<Vec<u8>> = None;
        let mut old = Vec::new();
        let floor = before(self.env().rt.wall(), age);
        let kept = self.inner.acceptors.floor().raise(&self.env().rt, floor).await;
        kept.map_err(StoreError::from)?;
        self.inner.acceptors.write_promises().await?;
        loop {
            let snapshot = (cluster.parts.snapshot)();
            let Some(table) = PaxosTable::of(&snapshot.schema) else { return Ok(swept) };
            let page = self.registers(&snapshot, TokenRange::FULL, after.as_deref(), Reach::Shard);
            let (rows, is_last) = page.await?;
            after = rows.last().map(|(partition, _)| partition.key.to_vec());
            let long_ago = before(self.env().rt.wall(), age.saturating_mul(2));
            for (partition, state) in rows {
                let is_new = state.promised.is_newer_than(floor);
                if is_new || self.inner.acceptors.has_acceptor_at_work(&partition, floor) {
                    continue;
                }
                let is_dropped = self.env().facts(&snapshot, partition.table).is_none();
                if is_dropped || state.is_droppable(floor) {
                    self.drop_row(&table, &partition, &state)?;
                    swept.dropped += 1;
                } else if (old.len() as u64) < SETTLES_MAX
                    && (self.proposes(&snapshot, &partition)
                        || !state.promised.is_newer_than(long_ago))
                {
                    // The node that proposes for it may not know of it: eventually any node settles
                    // it.
                    old.push(partition);
                }
            }
            if is_last || after.is_none() {
                break;
            }
        }
        for partition in old {
            let snapshot = (cluster.parts.snapshot)();
            swept.settled += u64::from(self.settle(&snapshot, &partition).await);
        }
        Ok(swept)
    }

    fn drop_row(
        &self,
        table: &PaxosTable,
        partition: &Partition,
        state: &AcceptorState<Payload>,
    ) -> Result<(), StoreError> {
        self.inner.acceptors.forget_acceptor(partition);
        // Newer cells, of a round that ran meanwhile, stay.
        let mutation =
            table.deletion(partition, state.promised.timestamp(), self.env().rt.wall().seconds());
        let mutation = ReplicaMutation::durable(partition.token(), mutation);
        self.env().replica.admit_and_apply(&mutation, Origin::PaxosCleanup)
    }

    /// Returns true if this node is the replica that proposes for a partition.
    fn proposes(&self, snapshot: &ClusterSnapshot, partition: &Partition) -> bool {
        let token = partition.token();
        let is_replica = replicas_of(self.env(), snapshot, partition).is_some_and(|(list, _)| {
            list.iter().any(|replica| replica.is_self && !replica.pending)
        });
        is_replica && self.serial_route(snapshot, partition.table, token, Scope::Global).is_none()
    }

    async fn settle(&self, snapshot: &Arc<ClusterSnapshot>, partition: &Partition) -> bool {
        let Some(facts) = self.env().facts(snapshot, partition.table) else { return false };
        let mut nothing = Vec::new();
        MutationBuilder::new(&mut nothing, partition.table, facts.table.version, &partition.key)
            .finish();
        let order = CasOrder {
            snapshot: snapshot.clone(),
            read: ReadCommand::whole(
                partition.table,
                Partitions::Key(partition.key.to_vec()),
                self.env().rt.wall().seconds(),
            ),
            rows_wanted: 1,
            scope: Scope::Global,
            commit: Consistency::Any,
            durable: facts.durable,
            deadline: self.env().rt.now() + SETTLE_TIME,
            trace: None,
        };
        // Boxed: it is large, and rare.
        Box::pin(self.cas(order, &mut Nothing(nothing))).await.is_ok()
    }
}
