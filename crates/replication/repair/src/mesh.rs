//! What the shard that drives a repair has all shards of its node do.

use std::rc::Rc;
use std::sync::Arc;

use data::MutationRef;
use rt::{Group, Mesh};
use stdx::{HostId, ShardId, TableId, Token, Uuid};
use store::{OwnedRanges, StoreError};

use crate::auto_damaged::{self, FileRepairs};
use crate::damaged::Damaged;
use crate::participation::ReadCount;
use crate::repair::{Inner, Repair};

/// Work for a shard.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Set apart what takes part in a session.
    Begin { table: TableId, session: Uuid, ranges: Vec<(Token, Token)> },
    /// Take in what the session lacked here.
    Apply { session: Uuid, mutation: Vec<u8> },
    /// Make durable what the session was sent.
    Flush { table: TableId, session: Uuid },
    /// End it.
    End { table: TableId, session: Uuid, repaired_at: Option<i64> },
    /// Ranges were repaired at so many seconds.
    Noted { table: TableId, ranges: Vec<(Token, Token)>, seconds: i64 },
    /// Have everything on the disk that was written to a table so far.
    Sync { table: TableId },
    /// Say which sessions have files.
    Sessions,
    /// Say how much the files of a table have in ranges.
    Estimate { table: TableId, ranges: Vec<(Token, Token)> },
    /// Of a table something was read for a repair of another node; to shard 0.
    Count { from: HostId, table: TableId, token: Token, read: ReadCount },
    /// Say which files are damaged.
    Damaged,
    /// How it stands with the repairs for damaged files.
    FileRepairs(Arc<FileRepairs>),
}

/// What was asked for; empty after most orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// For [`Order::Sessions`].
    pub(crate) sessions: Vec<(TableId, Uuid)>,
    /// For [`Order::Estimate`], as for `bytes`.
    pub(crate) partitions: u64,
    pub(crate) bytes: u64,
    /// For [`Order::Damaged`].
    pub(crate) damaged: Vec<Damaged>,
}

impl Found {
    fn add(&mut self, more: Found) {
        self.sessions.extend(more.sessions);
        self.damaged.extend(more.damaged);
        self.partitions = self.partitions.saturating_add(more.partitions);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// What came of it.
pub(crate) type Outcome = Result<Found, StoreError>;

/// Orders to the shards of a node.
pub struct RepairMesh(pub(crate) Mesh<Order, Outcome>);

/// The mesh of a node of so many shards; made before they start.
pub fn new_mesh(shards: u16) -> RepairMesh {
    RepairMesh(Mesh::new(shards, 1024))
}

impl Repair {
    pub(crate) fn serve_mesh(&self) {
        // The port lives as long as the shard: it must not keep this alive.
        let weak = Rc::downgrade(&self.inner);
        self.inner.mesh.0.serve(&self.inner.rt, move |order, reply| {
            // Dropped, the reply says that this shard is gone.
            let Some(inner) = weak.upgrade() else { return };
            let of_task = inner.clone();
            let task = async move { reply.send(of_task.obey(order).await) };
            let _ = inner.gate.spawn(&inner.rt, Group::Stream, "repair-order", task);
        });
    }
}

impl Inner {
    async fn obey(&self, order: Order) -> Outcome {
        let store = self.coordinator.store();
        match order {
            Order::Begin { table, session, ranges } => {
                store.repair().begin_repair(table, session, &OwnedRanges::new(ranges)).await?;
            }
            Order::Apply { session, mutation } => match MutationRef::open(&mutation) {
                Some(mutation) => store.repair().apply_to_repair(session, &mutation).await?,
                None => return Err(StoreError::Invalid("no mutation".to_owned())),
            },
            Order::Flush { table, session } => store.repair().flush_repair(table, session).await?,
            Order::End { table, session, repaired_at } => {
                store.repair().end_repair(table, session, repaired_at).await?;
            }
            Order::Noted { table, ranges, seconds } => {
                self.history.borrow_mut().note(table, &ranges, seconds);
                self.apply_policies();
            }
            Order::Sync { table } => {
                let snapshot = (self.snapshot)();
                let of = snapshot.schema.table_by_id(table);
                let keyspace = of.and_then(|t| snapshot.schema.keyspace(&t.keyspace));
                match keyspace.is_none_or(|k| k.params.durable_writes) {
                    true => store.sync().await?,
                    // Not in the commit log.
                    false => store.flush(Some(&[table])).await?,
                }
            }
            Order::Sessions => {
                return Ok(Found {
                    sessions: store.repair().pending_repairs(),
                    ..Found::default()
                });
            }
            Order::Estimate { table, ranges } => {
                let mut found = Found::default();
                for range in store.tables().range_estimates(table, &ranges) {
                    let bytes = u128::from(range.bytes) * u128::from(range.partitions);
                    let bytes = bytes.checked_div(u128::from(range.counted)).unwrap_or(0);
                    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                    found.add(Found { partitions: range.partitions, bytes, ..Found::default() });
                }
                return Ok(found);
            }
            Order::Count { from, table, token, read } => self.count_read(from, table, token, read),
            Order::Damaged => {
                return Ok(Found { damaged: auto_damaged::files_of(store), ..Found::default() });
            }
            Order::FileRepairs(repairs) => self.damaged.set_known(repairs),
        }
        Ok(Found::default())
    }

    /// Has one shard do it.
    pub(crate) async fn on_shard(&self, shard: ShardId, order: Order) -> Outcome {
        if shard == self.rt.shard() {
            return Box::pin(self.obey(order)).await;
        }
        match self.mesh.0.call(&self.rt, shard, order).await {
            Ok(outcome) => outcome,
            Err(rt::MeshError::Full) => Err(StoreError::QueueFull),
            Err(rt::MeshError::Closed) => Err(StoreError::Stopping),
        }
    }

    /// Has every shard do it, all at the same time; the first error when there is one.
    pub(crate) async fn on_all_shards(&self, order: &Order) -> Outcome {
        let own = self.rt.shard();
        let shards = (0..self.rt.shard_count().max(1)).map(ShardId);
        let others: Vec<_> = shards
            .filter(|shard| *shard != own)
            .map(|shard| self.mesh.0.call(&self.rt, shard, order.clone()))
            .collect();
        let mut all = Box::pin(self.obey(order.clone())).await;
        for other in others {
            let outcome = match other.await {
                Ok(outcome) => outcome,
                Err(rt::MeshError::Full) => Err(StoreError::QueueFull),
                Err(rt::MeshError::Closed) => Err(StoreError::Stopping),
            };
            match (&mut all, outcome) {
                (Ok(all), Ok(more)) => all.add(more),
                (Ok(_), Err(error)) => all = Err(error),
                (Err(_), _) => {}
            }
        }
        all
    }
}
