//! Replicas of each token range as one coordinator sees them: placements with small numbers for
//! datacenters.
//!
//! Owns: [`Topology`], one per placement and membership, and their cache. Never: liveness or
//! latencies (arguments), consistency levels (that is `request::Need`).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cluster::{ClusterSnapshot, Member, Members, PlacementKey, Placements, Replication};
use request::{Factors, ReplicaInfo};
use smallvec::SmallVec;
use stdx::{Epoch, FixedMap, HostId, TableId, Token};

/// The replicas of one token, natural ones first.
pub type ReplicaList = SmallVec<[ReplicaInfo; 8]>;

/// Most datacenters that a topology can number.
const DATACENTERS_MAX: usize = 256;

/// Location of a node relative to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its datacenter.
    pub dc: u8,
    /// Its datacenter is this node's too.
    pub is_local_dc: bool,
    /// Its rack is this node's too.
    pub is_local_rack: bool,
    /// It is this node.
    pub is_self: bool,
}

/// The replicas of every token of the tables that share one placement.
pub struct Topology {
    /// Ranges and their replicas, with the epochs at which they moved.
    pub placements: Placements,
    /// Replication factors.
    pub factors: Factors,
    sites: FixedMap<HostId, Site>,
}

impl Topology {
    /// `None`: more datacenters than can be numbered. `known` is the same one of an earlier time.
    fn new(
        snapshot: &ClusterSnapshot,
        key: &PlacementKey,
        known: Option<&Topology>,
    ) -> Option<Topology> {
        let placements = key.placements(snapshot);
        let placements = placements.dated(&snapshot.places, known.map(|known| &known.placements));
        Topology::with(snapshot, key.replication(), placements)
    }

    /// `replication` is that of the natural replicas.
    fn with(
        snapshot: &ClusterSnapshot,
        replication: &Replication,
        placements: Placements,
    ) -> Option<Topology> {
        let local = &snapshot.local;
        let mut names: Vec<&str> =
            snapshot.members.values().map(|m| m.datacenter.as_str()).collect();
        names.push(&local.datacenter);
        if let Replication::Network(map) = replication {
            names.extend(map.keys().map(String::as_str));
        }
        names.sort_unstable();
        names.dedup();
        if names.len() > DATACENTERS_MAX {
            return None;
        }
        let number = |name: &str| u8::try_from(names.binary_search(&name).ok()?).ok();
        let site = |m: &Member| {
            let is_local_dc = m.datacenter == local.datacenter;
            Some(Site {
                dc: number(&m.datacenter)?,
                is_local_dc,
                is_local_rack: is_local_dc && m.rack == local.rack,
                is_self: m.host_id == local.host_id,
            })
        };
        let sites = snapshot.members.values();
        let sites = sites.map(|m| Some((m.host_id, site(m)?))).collect::<Option<_>>()?;
        let narrow = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let factors = match replication {
            Replication::Local => {
                let names = Arc::default();
                Factors { total: 1, local: 1, datacenters: SmallVec::new(), names }
            }
            Replication::Simple(n) => {
                let (n, names) = (narrow(*n), Arc::default());
                Factors { total: n, local: n, datacenters: SmallVec::new(), names }
            }
            Replication::Network(map) => Factors {
                total: narrow(map.values().fold(0, |sum: u32, n| sum.saturating_add(*n))),
                local: narrow(map.get(&local.datacenter).copied().unwrap_or(0)),
                datacenters: map
                    .iter()
                    .filter(|(_, n)| **n > 0)
                    .map(|(dc, n)| Some((number(dc)?, narrow(*n))))
                    .collect::<Option<_>>()?,
                names: names.iter().map(|name| Arc::from(*name)).collect(),
            },
        };
        Some(Topology { placements, factors, sites })
    }

    /// Returns the location of a member.
    pub fn site(&self, host: HostId) -> Option<Site> {
        self.sites.get(&host).copied()
    }

    /// Appends the replicas of a token: the natural ones, then the pending ones. Their ranks are 0.
    pub fn replicas(
        &self,
        token: Token,
        out: &mut ReplicaList,
        is_alive: impl Fn(HostId) -> bool,
        is_hintable: impl Fn(HostId) -> bool,
    ) {
        let replicas = self.placements.replicas(token);
        let natural = replicas.natural_len();
        for (at, member) in replicas.members().enumerate() {
            let host = member.host_id;
            let Some(site) = self.site(host) else { continue };
            let alive = site.is_self || is_alive(host);
            out.push(ReplicaInfo {
                host,
                dc: site.dc,
                is_local_dc: site.is_local_dc,
                is_self: site.is_self,
                alive,
                pending: at >= natural,
                moves: replicas.moves(at),
                // Called for dead replicas only, which are few: it is expensive.
                hintable: !site.is_self && (alive || is_hintable(host)),
                latency_rank: 0,
            });
        }
    }
}

/// The topologies of one epoch. Those of the epoch before are taken over when nothing moved.
#[derive(Default)]
pub struct TopologyCache {
    epoch: Option<Epoch>,
    members: Members,
    by_key: BTreeMap<PlacementKey, Rc<Topology>>,
    /// Those of the members before.
    earlier: BTreeMap<PlacementKey, Rc<Topology>>,
    /// `None`: the table is not replicated, or there is no such table.
    by_table: FixedMap<TableId, Option<Rc<Topology>>>,
    /// Serial topologies of the tables whose lightweight transactions are handed over.
    by_table_serial: FixedMap<TableId, Option<Rc<Topology>>>,
}

impl TopologyCache {
    /// Returns true if the cache holds the tables of that epoch.
    pub fn is_at(&self, epoch: Epoch) -> bool {
        self.epoch == Some(epoch)
    }

    /// The topology of a table at the snapshot's epoch. `None`: there is no such table.
    pub fn of_table(&mut self, snapshot: &ClusterSnapshot, table: TableId) -> Option<Rc<Topology>> {
        if !self.is_at(snapshot.epoch) {
            self.turn_to(snapshot);
        }
        if let Some(known) = self.by_table.get(&table) {
            return known.clone();
        }
        let topology =
            PlacementKey::of_table(snapshot, table).and_then(|key| self.of(snapshot, key));
        self.by_table.insert(table, topology.clone());
        topology
    }

    /// Like [`TopologyCache::of_table`], for the voters of the table's conditional statements.
    pub fn of_table_serial(
        &mut self,
        snapshot: &ClusterSnapshot,
        table: TableId,
    ) -> Option<Rc<Topology>> {
        let Some(handover) = snapshot.handover_of_table(table) else {
            return self.of_table(snapshot, table);
        };
        if !self.is_at(snapshot.epoch) {
            self.turn_to(snapshot);
        }
        if let Some(known) = self.by_table_serial.get(&table) {
            return known.clone();
        }
        let topology = PlacementKey::of_table(snapshot, table).and_then(|to| {
            let to = to.replication();
            let (placements, natural) = snapshot.voting_placements(handover, to);
            Some(Rc::new(Topology::with(snapshot, natural, placements)?))
        });
        self.by_table_serial.insert(table, topology.clone());
        topology
    }

    fn of(&mut self, snapshot: &ClusterSnapshot, key: PlacementKey) -> Option<Rc<Topology>> {
        if let Some(known) = self.by_key.get(&key) {
            return Some(known.clone());
        }
        let known = self.earlier.get(&key).map(|known| &**known);
        let made = Rc::new(Topology::new(snapshot, &key, known)?);
        self.by_key.insert(key, made.clone());
        Some(made)
    }

    /// Requests under way may have an older snapshot; they hold what they need of it.
    fn turn_to(&mut self, snapshot: &ClusterSnapshot) {
        self.epoch = Some(snapshot.epoch);
        self.by_table.clear();
        self.by_table_serial.clear();
        if self.members != snapshot.members {
            self.members = snapshot.members.clone();
            self.earlier = std::mem::take(&mut self.by_key);
        }
    }
}
