//! Shared state of one shard's requests to several nodes: the view of the cluster, latencies, metrics.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cluster::ClusterSnapshot;
use replica::{ClusterParts, ClusterView, ReplicaList, Topology};
use request::ReplicaInfo;
use rt::Rt;
use stdx::{Epoch, HostId, Instant, ShardMap, TableId, Token};

use super::latency::Latencies;
use super::metrics::Metrics;

/// See the module.
pub(crate) struct Cluster {
    rt: Rt,
    /// The view of placements.
    pub(crate) view: Rc<ClusterView>,
    /// The parts that the node provided: those of the view.
    pub(crate) parts: Rc<ClusterParts>,
    pub(crate) latencies: Latencies,
    pub(crate) counters: Metrics,
    /// Epoch of the table list that `latencies` has.
    seen: Cell<Epoch>,
}

impl Cluster {
    pub(crate) fn new(rt: &Rt, view: Rc<ClusterView>) -> Cluster {
        let parts = view.parts.clone();
        Cluster {
            rt: rt.clone(),
            latencies: Latencies::new(&parts.settings),
            counters: Metrics::new(&rt.telemetry()),
            seen: Cell::new(Epoch(0)),
            view,
            parts,
        }
    }

    /// A peer as traces name it.
    pub(crate) fn shown(&self, host: HostId) -> String {
        self.view.shown(host)
    }

    /// Returns the placement of a table's partitions. `None`: no such table (or more datacenters
    /// than can be numbered).
    pub(crate) fn topology(
        &self,
        snapshot: &ClusterSnapshot,
        table: TableId,
    ) -> Option<Rc<Topology>> {
        if self.seen.replace(snapshot.epoch) != snapshot.epoch {
            self.latencies.retain_tables(|t| snapshot.schema.table_by_id(t).is_some());
        }
        self.view.topology(snapshot, table)
    }

    /// See [`ClusterView::emptied_at`].
    pub(crate) fn emptied_at(&self, snapshot: &ClusterSnapshot) -> Epoch {
        self.view.emptied_at(snapshot)
    }

    /// Appends the replicas of a token, natural ones first.
    pub(crate) fn replicas(&self, topology: &Topology, token: Token, out: &mut ReplicaList) {
        self.view.replicas(topology, token, out);
    }

    /// Returns the replicas for a read, which leaves no hints.
    pub(crate) fn replicas_to_read(
        &self,
        topology: &Topology,
        token: Token,
        out: &mut ReplicaList,
    ) {
        self.view.replicas_to_read(topology, token, out);
    }

    /// Sets the ranks of replicas by place and by how quickly they answered.
    pub(crate) fn rank(&self, topology: &Topology, replicas: &mut [ReplicaInfo]) {
        let is_local_rack = |host| topology.site(host).is_some_and(|s| s.is_local_rack);
        self.latencies.rank(self.rt.now(), replicas, is_local_rack);
    }

    /// A read of this table took so long, seen from the coordinator.
    pub(crate) fn note_read(&self, table: TableId, took: Duration) {
        self.latencies.note_read(self.rt.now(), table, took);
    }

    /// The latency that a share (0 to 1) of a table's reads keeps to; `None`: too few samples.
    pub(crate) fn percentile(&self, table: TableId, share: f64) -> Option<Duration> {
        self.latencies.percentile(self.rt.now(), table, share)
    }

    /// The time of this shard.
    pub(crate) fn now(&self) -> Instant {
        self.rt.now()
    }

    /// Which shard of a peer owns a token of a table, as far as is known.
    pub(crate) fn shard_map_of(&self, host: HostId) -> ShardMap {
        self.view.shard_map_of(host)
    }
}
