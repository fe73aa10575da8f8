//! The cluster as one shard sees it: parts, placements of tables, truncations.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cluster::{ClusterSnapshot, Truncation};
use stdx::{Epoch, HostId, Instant, ShardMap, TableId, Token};

use crate::cluster_parts::ClusterParts;
use crate::placements::{ReplicaList, Topology, TopologyCache};

/// See the module.
pub struct ClusterView {
    /// The services that the node provides.
    pub parts: Rc<ClusterParts>,
    topologies: RefCell<TopologyCache>,
    truncations: RefCell<Truncations>,
}

/// Truncations that requests with older metadata do not know of, as far as this run can tell.
struct Truncations {
    known: BTreeMap<TableId, Truncation>,
    /// Epoch of the last snapshot that was compared.
    seen: Epoch,
    /// Epoch after which no table was truncated.
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

impl ClusterView {
    /// Creates the view of a shard from the node's services.
    pub fn new(parts: ClusterParts) -> ClusterView {
        let snapshot = (parts.snapshot)();
        ClusterView {
            parts: Rc::new(parts),
            topologies: RefCell::default(),
            truncations: RefCell::new(Truncations::of(&snapshot)),
        }
    }

    /// The metadata in use.
    pub fn snapshot(&self) -> Arc<ClusterSnapshot> {
        (self.parts.snapshot)()
    }

    /// Waits until this node has applied an epoch, at most until an instant.
    pub async fn wait_for(&self, epoch: Epoch, until: Instant) {
        if let Some(wait) = self.parts.epoch_wait.clone() {
            wait(epoch, until).await;
        }
    }

    /// A peer as traces name it.
    pub fn shown(&self, host: HostId) -> String {
        let known = self.parts.messaging.peer(host).map(|peer| peer.address);
        // This node is no peer of itself.
        let known = known.or_else(|| {
            let snapshot = (self.parts.snapshot)();
            snapshot.members.get(&host).map(|member| member.storage)
        });
        known.map_or_else(|| host.to_string(), |address| format!("/{address}"))
    }

    /// Returns the distribution of a table's partitions. `None`: no such table (or more datacenters
    /// than can be numbered).
    pub fn topology(&self, snapshot: &ClusterSnapshot, table: TableId) -> Option<Rc<Topology>> {
        self.topologies.borrow_mut().of_table(snapshot, table)
    }

    /// Like [`ClusterView::topology`], for the voters of the table's conditional statements. They
    /// differ from its replicas during a handover.
    pub fn serial_topology(
        &self,
        snapshot: &ClusterSnapshot,
        table: TableId,
    ) -> Option<Rc<Topology>> {
        if snapshot.handovers.is_empty() {
            return self.topology(snapshot, table);
        }
        self.topologies.borrow_mut().of_table_serial(snapshot, table)
    }

    /// Returns the epoch since which no table was truncated. Data that a coordinator at an older
    /// epoch has read may be gone.
    pub fn emptied_at(&self, snapshot: &ClusterSnapshot) -> Epoch {
        let mut truncations = self.truncations.borrow_mut();
        if truncations.seen < snapshot.epoch {
            truncations.follow(snapshot);
        }
        truncations.last
    }

    /// Appends the replicas of a token, natural ones first.
    pub fn replicas(&self, topology: &Topology, token: Token, out: &mut ReplicaList) {
        let (is_alive, hints) = (&self.parts.is_alive, &self.parts.hints);
        topology.replicas(token, out, |host| is_alive(host), |host| hints.may_hint(host));
    }

    /// The same for a read, which leaves no hints.
    pub fn replicas_to_read(&self, topology: &Topology, token: Token, out: &mut ReplicaList) {
        let is_alive = &self.parts.is_alive;
        topology.replicas(token, out, |host| is_alive(host), |_| false);
    }

    /// Returns the map of a peer's shards to tokens, as far as it is known.
    pub fn shard_map_of(&self, host: HostId) -> ShardMap {
        let shards = self.parts.messaging.peer(host).map_or(1, |p| p.shard_count);
        ShardMap::ByTokenHash { shards: shards.max(1) }
    }
}
