//! Whom a read may ask: a table's placement with the level's needs, and the table's settings.

use std::rc::Rc;
use std::sync::Arc;

use cluster::{ClusterSnapshot, Consistency, Placements};
use data::TableShape;
use data::command::{Partitions, ReadCommand};
use request::{Need, ReadConfig, ReadPlan, ReadRepair, SpeculativeRetry, Threshold};
use schema::Table;
use stdx::{DeletionSeconds, HostId, Instant, TableId, Token};
use store::Store;

use crate::cluster_parts::ReplicatedRead;
use crate::cluster_state::Cluster;
use crate::topology::{ReplicaList, Topology};

/// What reads need to know of one version of a table.
pub(crate) struct TableFacts {
    pub(crate) table: Arc<Table>,
    pub(crate) shape: Rc<TableShape>,
    /// The keyspace's `durable_writes`.
    pub(crate) durable: bool,
    read_repair: ReadRepair,
    speculate: SpeculativeRetry,
    additional_write: SpeculativeRetry,
}

impl TableFacts {
    pub(crate) fn new(snapshot: &ClusterSnapshot, table: Arc<Table>) -> TableFacts {
        let keyspace = snapshot.schema.keyspace(&table.keyspace);
        let durable = keyspace.is_none_or(|k| k.params.durable_writes);
        // Policies were checked when the table was made.
        let policy = |text: &str| {
            SpeculativeRetry::parse(text).unwrap_or(SpeculativeRetry::Percentile(99.0))
        };
        let is_off = table.options.read_repair.eq_ignore_ascii_case("NONE");
        TableFacts {
            shape: Rc::new(TableShape::for_table(&table)),
            durable,
            read_repair: if is_off { ReadRepair::None } else { ReadRepair::Blocking },
            speculate: policy(&table.options.speculative_retry),
            additional_write: policy(&table.options.additional_write_policy),
            table,
        }
    }

    /// Tombstones made before this need not be shown to a coordinator.
    pub(crate) fn purge_before(&self, store: &Store, now: DeletionSeconds) -> DeletionSeconds {
        store.reader().purge_before(self.table.id, now)
    }
}

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
        // More than a plan can number are left out; what the level needs stays what it is.
        replicas.truncate(request::types::REPLICAS_MAX);
        match ReadPlan::new(self.consistency, self.need.clone(), &replicas) {
            Ok(plan) => plan,
            Err(error) => stdx::invariant::broken(format_args!("plan of a read: {error}")),
        }
    }

    /// Whether this node alone can answer, and is the one to ask.
    pub(crate) fn is_for_this_node(&self, me: HostId, command: &ReadCommand) -> bool {
        if self.block_for() != 1 {
            return false;
        }
        match &command.partitions {
            Partitions::Key(key) => {
                let plan = self.of_token(codec::token_of(key));
                let best = plan.candidates().first().and_then(|t| plan.replicas.get(*t));
                plan.block_for() == 1 && best.is_some_and(|r| r.is_self)
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
            // A sub-range takes as long as it has rows: only silence is waited for.
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

/// The facts of tables that were read, as of their newest version met.
#[derive(Default)]
pub(crate) struct TableCache(std::cell::RefCell<stdx::FixedMap<TableId, Rc<TableFacts>>>);

/// Tables that are remembered; above it all are forgotten.
const TABLES_MAX: usize = 4096;

impl TableCache {
    /// `None`: there is no such table in the snapshot.
    pub(crate) fn get(&self, snapshot: &ClusterSnapshot, id: TableId) -> Option<Rc<TableFacts>> {
        let table = snapshot.schema.table_by_id(id)?;
        let mut known = self.0.borrow_mut();
        if let Some(facts) = known.get(&id)
            && Arc::ptr_eq(&facts.table, table)
        {
            return Some(facts.clone());
        }
        if known.len() >= TABLES_MAX {
            known.clear();
        }
        let facts = Rc::new(TableFacts::new(snapshot, table.clone()));
        known.insert(id, facts.clone());
        Some(facts)
    }
}
