//! The environment of a shard: everything its replication code works with.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::rc::Rc;

use cluster::ClusterSnapshot;
use rt::{Gate, Group, Rt};
use stdx::{ShardId, ShardMap, TableId};
use store::{Store, StoreError};
use telemetry::Counter;

use crate::apply::{Replica, ReplicaMutation};
use crate::cluster_view::ClusterView;
use crate::packed_page::TOMBSTONES_OF_A_PAGE;
use crate::peer_traces::TraceSink;
use crate::tables::{TableCache, TableFacts};

/// The environment of one shard: its machine, its store and the door to it, its view of the cluster.
pub struct Env {
    /// The machine.
    pub rt: Rt,
    /// This shard's store.
    pub store: Store,
    /// The door to this shard's data.
    pub replica: Replica,
    /// Owns the tasks of requests.
    pub gate: Gate,
    /// Set once, when the node is part of a cluster.
    cluster: OnceCell<Rc<ClusterView>>,
    tables: TableCache,
    /// Destination of the traces of peers' requests.
    pub(crate) peer_traces: RefCell<Option<TraceSink>>,
    /// Number of tombstones after which pages of replicas end.
    replica_tombstones: Cell<u32>,
    pub(crate) folded: Counter,
}

impl Env {
    /// Creates the environment of a shard that is not part of a cluster yet.
    pub fn new(rt: Rt, store: Store) -> Env {
        let folded = rt.telemetry().counter(
            "coordinator_folded_pages_total",
            "pages of aggregations that this shard made of its rows",
            &[],
        );
        Env {
            gate: rt.gate("shard-requests"),
            replica: Replica::new(store.clone()),
            rt,
            store,
            cluster: OnceCell::new(),
            tables: TableCache::default(),
            peer_traces: RefCell::default(),
            replica_tombstones: Cell::new(TOMBSTONES_OF_A_PAGE),
            folded,
        }
    }

    /// Makes the shard part of a cluster; a second call changes nothing. Returns whether this was
    /// the first one.
    #[must_use]
    pub fn join(&self, cluster: Rc<ClusterView>) -> Joined {
        match self.cluster.set(cluster) {
            Ok(()) => Joined::Now,
            Err(_) => Joined::Before,
        }
    }

    /// The view of the cluster; `None` for a node that is alone.
    #[inline]
    pub fn cluster(&self) -> Option<&Rc<ClusterView>> {
        self.cluster.get()
    }

    /// Returns the facts of a table that reads and writes need. `None`: the snapshot has no such
    /// table.
    pub fn facts(&self, snapshot: &ClusterSnapshot, table: TableId) -> Option<Rc<TableFacts>> {
        self.tables.get(snapshot, table)
    }

    /// Returns the map of this node's shards to tokens.
    #[inline]
    pub fn shard_map(&self) -> ShardMap {
        ShardMap::ByTokenHash { shards: self.rt.shard_count() }
    }

    /// Returns true if this shard owns the partition of a mutation.
    #[inline]
    pub fn owns<B: AsRef<[u8]>>(&self, mutation: &ReplicaMutation<B>) -> bool {
        self.rt.shard_count() == 1 || mutation.owner(self.shard_map()) == self.rt.shard()
    }

    /// This shard.
    pub fn shard(&self) -> ShardId {
        self.rt.shard()
    }

    /// Returns the number of tombstones after which this node ends the pages that it builds as a
    /// replica.
    pub fn tombstones_of_pages(&self) -> u32 {
        self.replica_tombstones.get()
    }

    /// Sets [`Env::tombstones_of_pages`], at least 1. The same on all nodes, or their pages differ.
    pub fn limit_replica_pages(&self, tombstones: u32) {
        self.replica_tombstones.set(tombstones.max(1));
    }

    /// Returns the reason why no replica would apply a mutation; `None` when they would.
    pub fn refusal_of(&self, mutation: &[u8]) -> Option<String> {
        match self.store.check(&data::MutationRef::open(mutation)?) {
            Err(StoreError::Unwritable { what, .. }) => Some(what),
            _ => None,
        }
    }

    /// Starts a task of a request. A closed gate means that the node stops: dropping the task notifies the caller,
    /// or is silent as a stopped node is.
    pub fn spawn_or_drop(&self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        let _ = self.gate.spawn(&self.rt, Group::Statement, name, task);
    }

    /// Releases what may hold this environment.
    pub fn let_go(&self) {
        drop(self.peer_traces.take());
    }
}

/// Outcome of an attempt to make a shard part of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It did.
    Now,
    /// It was part of one before.
    Before,
}
