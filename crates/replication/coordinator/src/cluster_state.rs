//! What one shard's coordinator keeps for a cluster: parts, topologies, latencies, writes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use cluster::{ClusterSnapshot, Replication, Truncation};
use messaging::{Client, Completion, Completions};
use request::ReplicaInfo;
use rt::Rt;
use stdx::{Epoch, HostId, Instant, ShardMap, TableId, Token};

use crate::cluster_parts::{ClusterParts, ReplicationSettings};
use crate::counters::Counters;
use crate::forwarding::Forwards;
use crate::latency::Latencies;
use crate::tokens::Sent;
use crate::topology::{ReplicaList, Topology, TopologyCache};
use crate::writing::Writes;
use crate::writing::backpressure::{Backlog, Backlogs, Place};
use crate::{Coordinator, Inner};

/// See the module.
pub(crate) struct Cluster {
    rt: Rt,
    pub(crate) parts: Rc<ClusterParts>,
    pub(crate) latencies: Latencies,
    pub(crate) counters: Counters,
    pub(crate) writes: Writes,
    /// Mutations in flight to each replica.
    pub(crate) backlogs: Backlogs,
    pub(crate) forwards: Forwards,
    /// Sends what `writes` and `forwards` send.
    pub(crate) client: Client,
    topologies: RefCell<TopologyCache>,
    truncations: RefCell<Truncations>,
}

/// Which truncations requests of older metadata do not know of, as far as this run can tell.
struct Truncations {
    known: BTreeMap<TableId, Truncation>,
    /// The epoch that was looked at last.
    seen: Epoch,
    /// Since then no table was truncated.
    last: Epoch,
}

impl Truncations {
    fn of(snapshot: &ClusterSnapshot) -> Truncations {
        let (known, seen) = (snapshot.truncations.clone(), snapshot.epoch);
        Truncations { known, seen, last: seen }
    }

    fn follow(&mut self, snapshot: &ClusterSnapshot) {
        self.seen = snapshot.epoch;
        if self.known != snapshot.truncations {
            self.known = snapshot.truncations.clone();
            // Between two looks it may have been earlier: too late an epoch does no harm.
            self.last = snapshot.epoch;
        }
    }
}

impl Cluster {
    /// A peer as traces name it.
    pub(crate) fn shown(&self, host: HostId) -> String {
        let known = self.parts.messaging.peer(host).map(|peer| peer.address);
        // This node is no peer of itself.
        let known = known.or_else(|| {
            let snapshot = (self.parts.snapshot)();
            snapshot.members.get(&host).map(|member| member.storage)
        });
        known.map_or_else(|| host.to_string(), |address| format!("/{address}"))
    }

    /// How a table's partitions are spread. `None`: no such table (or more datacenters than can be
    /// numbered).
    pub(crate) fn topology(
        &self,
        snapshot: &ClusterSnapshot,
        table: TableId,
    ) -> Option<Rc<Topology>> {
        let mut topologies = self.topologies.borrow_mut();
        if !topologies.is_at(snapshot.epoch) {
            self.latencies.retain_tables(|t| snapshot.schema.table_by_id(t).is_some());
        }
        topologies.of_table(snapshot, table)
    }

    /// As [`Cluster::topology`], of those that vote on the table's conditional statements: others than
    /// its replicas while these are handed over.
    pub(crate) fn serial_topology(
        &self,
        snapshot: &ClusterSnapshot,
        table: TableId,
    ) -> Option<Rc<Topology>> {
        if snapshot.handovers.is_empty() {
            return self.topology(snapshot, table);
        }
        self.topologies.borrow_mut().of_table_serial(snapshot, table)
    }

    /// Since which epoch no table was truncated: what a coordinator that is not so far has read may
    /// be gone.
    pub(crate) fn emptied_at(&self, snapshot: &ClusterSnapshot) -> Epoch {
        let mut truncations = self.truncations.borrow_mut();
        if truncations.seen < snapshot.epoch {
            truncations.follow(snapshot);
        }
        truncations.last
    }

    /// Appends the replicas of a token, natural ones first.
    pub(crate) fn replicas(&self, topology: &Topology, token: Token, out: &mut ReplicaList) {
        let (is_alive, hints) = (&self.parts.is_alive, &self.parts.hints);
        topology.replicas(token, out, |host| is_alive(host), |host| hints.may_hint(host));
    }

    /// The same for a read, which leaves no hints.
    pub(crate) fn replicas_to_read(
        &self,
        topology: &Topology,
        token: Token,
        out: &mut ReplicaList,
    ) {
        let is_alive = &self.parts.is_alive;
        topology.replicas(token, out, |host| is_alive(host), |_| false);
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

    /// What is under way to a shard of a node.
    pub(crate) fn backlog(&self, place: Place) -> Rc<Backlog> {
        let is_known = |host| self.parts.messaging.peer(host).is_some();
        self.backlogs.of(place, is_known)
    }

    /// Which shard of a peer owns a token of a table, as far as is known.
    pub(crate) fn shard_map_of(&self, host: HostId) -> ShardMap {
        let shards = self.parts.messaging.peer(host).map_or(1, |p| p.shard_count);
        ShardMap::ByTokenHash { shards: shards.max(1) }
    }
}

/// New writes wait when half of what may be under way is.
fn backlogs_of(rt: &Rt, settings: &ReplicationSettings) -> Backlogs {
    let all = (settings.writes_in_flight_max / 2, settings.write_bytes_in_flight_max / 2);
    Backlogs::new(&rt.telemetry(), settings.replica_window, all)
}

/// Receives the ends of what writes and forwards sent.
struct Ends(Weak<Inner>);

impl Completions for Ends {
    fn complete(&self, completion: Completion<'_>) {
        let Some(inner) = self.0.upgrade() else { return };
        let coordinator = Coordinator { inner };
        match Sent::of(completion.token) {
            Sent::Forward => coordinator.forward_completed(completion),
            sent => coordinator.write_completed(sent, completion),
        }
    }
}

impl Coordinator {
    /// Makes this coordinator part of a cluster. Once, before peers and clients are served; a second
    /// call changes nothing.
    pub fn attach(&self, mut parts: ClusterParts) {
        if let Some(window) = self.inner.replica_window.get() {
            parts.settings.replica_window = window;
        }
        self.set_write_timeout(parts.settings.write_request_timeout);
        self.counts_since(&(parts.snapshot)());
        let client = parts.messaging.client(Rc::new(Ends(Rc::downgrade(&self.inner))));
        let cluster = Cluster {
            rt: self.inner.rt.clone(),
            latencies: Latencies::new(&parts.settings),
            counters: Counters::new(&self.inner.rt.telemetry()),
            writes: Writes::new(&parts.settings),
            backlogs: backlogs_of(&self.inner.rt, &parts.settings),
            forwards: Forwards::default(),
            client,
            topologies: RefCell::default(),
            truncations: RefCell::new(Truncations::of(&(parts.snapshot)())),
            parts: Rc::new(parts),
        };
        if self.inner.cluster.set(Rc::new(cluster)).is_ok() {
            self.start_write_timer();
            self.start_sweeps();
        }
    }

    /// Whether a table's data lies on several nodes: then its statements take
    /// [`Coordinator::write_replicated`] and [`Coordinator::read_replicated`]. Cheap for a node that
    /// is alone.
    #[inline]
    pub fn is_replicated(&self, snapshot: &ClusterSnapshot, table: TableId) -> bool {
        snapshot.members.len() > 1 && self.is_replicated_in_cluster(snapshot, table)
    }

    fn is_replicated_in_cluster(&self, snapshot: &ClusterSnapshot, table: TableId) -> bool {
        let Some(cluster) = self.inner.cluster.get() else { return false };
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
        let Some(cluster) = self.inner.cluster.get() else { return alone() };
        let topology = cluster.topology(snapshot, table);
        let members = |topology: Rc<Topology>| {
            topology.placements.replicas(token).members().map(|member| member.host_id).collect()
        };
        topology.map_or_else(Vec::new, members)
    }

    /// Whether a node is held for alive; this one always is.
    pub fn is_alive(&self, host: HostId) -> bool {
        let Some(cluster) = self.inner.cluster.get() else { return true };
        let parts = &cluster.parts;
        (parts.is_alive)(host) || (parts.snapshot)().local.host_id == host
    }

    /// The state for a cluster; `None` for a node that is alone.
    pub(crate) fn cluster(&self) -> Option<Rc<Cluster>> {
        self.inner.cluster.get().cloned()
    }
}
