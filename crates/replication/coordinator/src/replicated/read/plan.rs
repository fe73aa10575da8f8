//! Candidate replicas of a read: a table's placement with the level's needs, and the table's
//! settings.

use std::rc::Rc;

use cluster::{Consistency, Placements};
use data::command::{Partitions, ReadCommand};
use replica::{ReplicaList, TableFacts, Topology};
use request::{Need, ReadConfig, ReadPlan, SpeculativeRetry, Target, Threshold};
use stdx::{HostId, Instant, Token};

use crate::shared::{Cluster, ReplicatedRead};

/// Everything of a read that does not change while it runs.
pub(crate) struct Plan {
    pub(crate) cluster: Rc<Cluster>,
    pub(crate) table: Rc<TableFacts>,
    topology: Rc<Topology>,
    consistency: Consistency,
    need: Need,
}

impl Plan {
    pub(crate) fn new(
        cluster: Rc<Cluster>,
        table: Rc<TableFacts>,
        topology: Rc<Topology>,
        consistency: Consistency,
    ) -> Plan {
        let need = Need::of(consistency, &topology.factors);
        Plan { cluster, table, topology, consistency, need }
    }

    pub(crate) fn placements(&self) -> &Placements {
        &self.topology.placements
    }

    /// Ranges of the ring.
    pub(crate) fn ranges(&self) -> u32 {
        u32::try_from(self.placements().ranges().len()).unwrap_or(u32::MAX).max(1)
    }

    /// Replicas of each token, as the keyspace asks for.
    pub(crate) fn replicas_of_each(&self) -> u16 {
        self.topology.factors.total
    }

    /// Natural replicas that the level needs.
    pub(crate) fn block_for(&self) -> usize {
        self.need.sum()
    }

    /// The plan for the replicas of a token.
    pub(crate) fn of_token(&self, token: Token) -> ReadPlan {
        let mut replicas = ReplicaList::new();
        self.cluster.replicas_to_read(&self.topology, token, &mut replicas);
        self.cluster.rank(&self.topology, &mut replicas);
        // Replicas beyond a plan's maximum are left out; the needs of the level do not change.
        replicas.truncate(request::types::REPLICAS_MAX);
        match ReadPlan::new(self.consistency, self.need.clone(), &replicas) {
            Ok(plan) => plan,
            Err(error) => stdx::invariant::broken(format_args!("plan of a read: {error}")),
        }
    }

    /// Returns true if this node alone can answer and is the best replica.
    pub(crate) fn is_for_this_node(&self, me: HostId, command: &ReadCommand) -> bool {
        if self.block_for() != 1 {
            return false;
        }
        match &command.partitions {
            Partitions::Key(key) => {
                let plan = self.of_token(codec::token_of(key));
                let best = plan.candidates().first().copied();
                let is_self = |to: Target| plan.replicas.get(to).is_some_and(|r| r.is_self);
                plan.block_for() == 1
                    && best.is_some_and(|to| is_self(to) && plan.is_met_by_one(to))
            }
            Partitions::Range(_) => {
                let mut ranges = self.placements().ranges();
                let is_mine = |r: cluster::Replicas<'_>| r.is_natural(me) && !r.is_moving();
                ranges.len() > 0 && ranges.all(|(_, replicas)| is_mine(replicas))
            }
        }
    }

    /// Shards of a node, as far as is known; at least 1.
    pub(crate) fn shards_of(&self, host: HostId) -> u16 {
        self.cluster.parts.messaging.peer(host).map_or(1, |peer| peer.shard_count.max(1))
    }

    /// The settings of a page.
    pub(crate) fn config(
        &self,
        now: Instant,
        order: &ReplicatedRead,
        rows: u32,
        is_scan: bool,
    ) -> ReadConfig {
        let deadline = order.deadline_of(now);
        let half = deadline.since(now) / 2;
        let table = self.table.table.id;
        let percentile = |share| self.cluster.percentile(table, share);
        // Without samples as Cassandra: half of the timeout.
        let threshold =
            |policy: &SpeculativeRetry| policy.threshold(percentile, Threshold::After(half));
        let speculate = match threshold(&self.table.speculate) {
            Threshold::Never => Threshold::Never,
            // The time of a sub-range depends on its rows: speculate only on silence.
            _ if is_scan => Threshold::After(half),
            threshold => threshold,
        };
        ReadConfig {
            deadline,
            speculate,
            read_repair: self.table.read_repair,
            additional_write: threshold(&self.table.additional_write),
            rows,
            filtered: false,
        }
    }
}
