//! [`Shards`]: orders of the shard that drives a repair, or takes part in one, to all shards of its node.

use std::rc::Rc;
use std::sync::Arc;

use data::MutationRef;
use internode::ErrorReply;
use rt::{Group, Mesh};
use stdx::{HostId, ShardId, TableId, Token, Uuid};
use store::{OwnedRanges, Store, StoreError};

use crate::corrupt_files::{CorruptFile, FileRepairs, KnownRepairs};
use crate::env::Env;
use crate::history_file::HistoryFile;
use crate::participation::{Estimate, Participations, ReadCount};
use crate::ranges::TokenSpan;

/// Work for a shard.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Set apart the data of a session.
    Begin { table: TableId, session: Uuid, ranges: Vec<(Token, Token)> },
    /// Take in what the session lacked here.
    Apply { session: Uuid, mutation: Vec<u8> },
    /// Make durable what the session was sent.
    Flush { table: TableId, session: Uuid },
    /// End it.
    End { table: TableId, session: Uuid, repaired_at: Option<i64> },
    /// Record a repair of the ranges at so many seconds.
    Noted { table: TableId, ranges: Vec<(Token, Token)>, seconds: i64 },
    /// Have everything on the disk that was written to a table so far.
    Sync { table: TableId },
    /// Say which sessions have files.
    Sessions,
    /// Say how much the files of a table have in ranges.
    Estimate { table: TableId, ranges: Vec<(Token, Token)> },
    /// Reports to shard 0 a read of a table for a repair of another node.
    Count { from: HostId, table: TableId, token: Token, read: ReadCount },
    /// Say which files are corrupt.
    CorruptFiles,
    /// The states of the repairs for corrupt files.
    FileRepairs(Arc<FileRepairs>),
}

/// Result of an order; empty for most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// For [`Order::Sessions`].
    pub(crate) sessions: Vec<(TableId, Uuid)>,
    /// For [`Order::Estimate`].
    pub(crate) estimate: Estimate,
    /// For [`Order::CorruptFiles`].
    pub(crate) corrupt_files: Vec<CorruptFile>,
}

impl Found {
    fn add(&mut self, more: Found) {
        self.sessions.extend(more.sessions);
        self.corrupt_files.extend(more.corrupt_files);
        self.estimate.add(more.estimate);
    }
}

/// Outcome of an order.
pub(crate) type Outcome = Result<Found, StoreError>;

/// Orders to the shards of a node.
pub struct RepairMesh(pub(crate) Mesh<Order, Outcome>);

/// Creates the mesh of a node with so many shards; call it before they start.
pub fn new_mesh(shards: u16) -> RepairMesh {
    RepairMesh(Mesh::new(shards, 1024))
}

/// The damaged files of a shard.
fn corrupt_files_of(store: &Store) -> Vec<CorruptFile> {
    let of = |file: store::DamagedFile| CorruptFile {
        table: file.id,
        path: file.path,
        tokens: TokenSpan { first: file.tokens.0, last: file.tokens.1 },
        copied: file.salvaged,
    };
    store.verifier().damaged_files().into_iter().map(of).collect()
}

/// The shards of this node, seen from one of them, and what this one does for the others.
pub(crate) struct Shards {
    env: Rc<Env>,
    mesh: Arc<RepairMesh>,
    history: Rc<HistoryFile>,
    participations: Rc<Participations>,
    corrupt_files: Rc<KnownRepairs>,
}

impl Shards {
    pub(crate) fn new(
        env: Rc<Env>,
        mesh: Arc<RepairMesh>,
        history: Rc<HistoryFile>,
        participations: Rc<Participations>,
        corrupt_files: Rc<KnownRepairs>,
    ) -> Shards {
        Shards { env, mesh, history, participations, corrupt_files }
    }

    /// Carries out the orders of other shards.
    pub(crate) fn serve(self: &Rc<Shards>) {
        // Weak: the port lives as long as the shard.
        let weak = Rc::downgrade(self);
        self.mesh.0.serve(&self.env.rt, move |order, reply| {
            // A dropped reply means that this shard is gone.
            let Some(shards) = weak.upgrade() else { return };
            let of_task = shards.clone();
            let task = async move { reply.send(of_task.obey(order).await) };
            let env = &shards.env;
            let _ = env.gate.spawn(&env.rt, Group::Stream, "repair-order", task);
        });
    }

    async fn obey(&self, order: Order) -> Outcome {
        let store = self.env.coordinator.store();
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
                self.history.note(table, &ranges, seconds);
            }
            Order::Sync { table } => {
                let snapshot = (self.env.snapshot)();
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
                    found.estimate.add(Estimate { partitions: range.partitions, bytes });
                }
                return Ok(found);
            }
            Order::Count { from, table, token, read } => {
                self.participations.count(from, table, token, read, self.env.rt.wall());
            }
            Order::CorruptFiles => {
                return Ok(Found { corrupt_files: corrupt_files_of(store), ..Found::default() });
            }
            Order::FileRepairs(repairs) => self.corrupt_files.set(repairs),
        }
        Ok(Found::default())
    }

    /// Has one shard do it.
    pub(crate) async fn on_one(&self, shard: ShardId, order: Order) -> Outcome {
        if shard == self.env.rt.shard() {
            return Box::pin(self.obey(order)).await;
        }
        match self.mesh.0.call(&self.env.rt, shard, order).await {
            Ok(outcome) => outcome,
            Err(rt::MeshError::Full) => Err(StoreError::QueueFull),
            Err(rt::MeshError::Closed) => Err(StoreError::Stopping),
        }
    }

    /// Has every shard do it, all at the same time; the first error when there is one.
    pub(crate) async fn on_all(&self, order: &Order) -> Outcome {
        let own = self.env.rt.shard();
        let shards = (0..self.env.rt.shard_count().max(1)).map(ShardId);
        let others: Vec<_> = shards
            .filter(|shard| *shard != own)
            .map(|shard| self.mesh.0.call(&self.env.rt, shard, order.clone()))
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

    /// Persists that ranges were repaired, and lets their tombstones be purged. Shard 0.
    pub(crate) async fn note_repaired(
        &self,
        table: TableId,
        ranges: &[(Token, Token)],
        seconds: i64,
    ) -> Result<(), ErrorReply> {
        let ranges = ranges.to_vec();
        let internal = |error: String| ErrorReply::Internal(error);
        // First to the disk: tombstones are purged for the record, so it must not be lost.
        self.history.write(table, &ranges, seconds).await.map_err(|e| internal(e.to_string()))?;
        let noted = Order::Noted { table, ranges, seconds };
        self.on_all(&noted).await.map_err(|e| internal(e.to_string()))?;
        Ok(())
    }
}
