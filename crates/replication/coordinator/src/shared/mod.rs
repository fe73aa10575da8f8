//! State shared by the components for several nodes.
//!
//! Owns: the environment of a request to several nodes ([`Shared`]), latencies, correlation ids, traces of reads, metrics. Never: sends anything.

mod cluster;
pub(crate) mod correlation_ids;
mod latency;
mod metrics;
mod read_trace;
mod unsupported_verb;

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Duration;

use ::cluster::{ClusterSnapshot, Replication};
use replica::{ClusterParts, ClusterView, Env, Joined, Topology};
use stdx::{HostId, TableId, Token};

pub(crate) use self::cluster::Cluster;
pub use read_trace::ReadTrace;
pub(crate) use unsupported_verb::UnsupportedVerb;

use crate::local::Local;
pub(crate) use crate::orders::{ReplicatedError, ReplicatedRead, ReplicatedWrite};

/// Default timeout of writes without a client.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// The environment of requests to several nodes, of one shard.
pub struct Shared {
    pub(crate) local: Local,
    cluster: OnceCell<Rc<Cluster>>,
    /// Timeout of writes without a client.
    write_timeout: Cell<Duration>,
}

impl Shared {
    pub(crate) fn new(local: Local) -> Shared {
        Shared { local, cluster: OnceCell::new(), write_timeout: Cell::new(WRITE_TIMEOUT) }
    }

    pub(crate) fn env(&self) -> &Env {
        self.local.env()
    }

    /// Makes the shard part of a cluster; `None`: it was before.
    pub(crate) fn attach(&self, parts: ClusterParts) -> Option<Rc<Cluster>> {
        self.write_timeout.set(parts.settings.write_request_timeout);
        let view = Rc::new(ClusterView::new(parts));
        if self.env().join(view.clone()) == Joined::Before {
            return None;
        }
        let cluster = Rc::new(Cluster::new(&self.env().rt, view));
        self.cluster.set(cluster.clone()).ok()?;
        Some(cluster)
    }

    /// The state for a cluster; `None` for a node that is alone.
    #[inline]
    pub(crate) fn cluster(&self) -> Option<&Rc<Cluster>> {
        self.cluster.get()
    }

    /// Returns the timeout of writes without a client: replayed batches, hints and mutations that
    /// are forwarded to the current replicas of their range.
    pub(crate) fn write_timeout(&self) -> Duration {
        self.write_timeout.get()
    }

    pub(crate) fn set_write_timeout(&self, timeout: Duration) {
        self.write_timeout.set(timeout);
    }

    /// Returns true if a table's data is replicated on several nodes. Its statements then use
    /// [`crate::Writer`] and [`crate::Reads`]. Cheap on a single-node cluster.
    #[inline]
    pub fn is_replicated(&self, snapshot: &ClusterSnapshot, table: TableId) -> bool {
        snapshot.members.len() > 1 && self.is_replicated_in_cluster(snapshot, table)
    }

    fn is_replicated_in_cluster(&self, snapshot: &ClusterSnapshot, table: TableId) -> bool {
        let Some(cluster) = self.cluster.get() else { return false };
        let topology = cluster.topology(snapshot, table);
        topology.is_some_and(|t| *t.placements.replication() != Replication::Local)
    }

    /// The nodes that a write to a token of a table goes to, live and down, pending ones too.
    pub fn write_replicas(
        &self,
        snapshot: &ClusterSnapshot,
        table: TableId,
        token: Token,
    ) -> Vec<HostId> {
        let alone = || vec![snapshot.local.host_id];
        if snapshot.members.len() < 2 {
            return alone();
        }
        let Some(cluster) = self.cluster.get() else { return alone() };
        let topology = cluster.topology(snapshot, table);
        let members = |topology: Rc<Topology>| {
            topology.placements.replicas(token).members().map(|member| member.host_id).collect()
        };
        topology.map_or_else(Vec::new, members)
    }

    /// Returns true if a node is considered alive; this node always is.
    pub fn is_alive(&self, host: HostId) -> bool {
        let Some(cluster) = self.cluster.get() else { return true };
        let parts = &cluster.parts;
        (parts.is_alive)(host) || (parts.snapshot)().local.host_id == host
    }
}
