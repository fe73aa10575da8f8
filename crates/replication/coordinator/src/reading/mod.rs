//! Reads of several nodes, and the answers to reads of other coordinators.
//!
//! Owns: the driver of `request`'s read machines ([`drive`]), a node's own page out of those of its
//! shards ([`shards`]), what pages look like to a sink ([`show`]), the verbs `Read` and `RangeRead`
//! ([`serve`]). Never: decides whom to ask, what differs, or when a level is met: that is
//! `request`'s.
//!
//! Invariants: INV-reading-1 (digests of nodes with different numbers of shards can be compared):
//! see [`shards`]. INV-reading-2: a sink sees what it would see of one node that has everything that
//! the replicas asked have together, each row once, in order. INV-reading-3: nothing of a read goes
//! on when its future is dropped, except what was sent.
//!
//! Reading order: [`plan`], [`calls`], [`asking`], [`slot`], [`ring_walk`], [`drive`], [`filtered`], [`show`],
//! [`shards`], [`serve`], [`repairing`]. See `docs/internals/reads.md`.

mod asking;
mod calls;
mod drive;
mod filtered;
pub(crate) mod outdated;
pub(crate) mod plan;
mod repairing;
pub(crate) mod ring_walk;
pub(crate) mod serve;
mod shards;
mod show;
mod slot;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use cluster::{ClusterSnapshot, Consistency};
use data::command::ReadCommand;
use request::{ReplicaError, RequestError};
use stdx::{HostId, TableId};
use store::{ReadStats, RowSink, StoreError};
use telemetry::Counter;

pub(crate) use plan::TableFacts;
pub(crate) use ring_walk::tokens_of;
pub use shards::ReplicaQuery;
pub(crate) use show::{Show, Shown};
pub(crate) use slot::{go_on, resumed};

use crate::cluster_parts::ReplicatedRead;
use crate::{Coordinator, ReadTrace, ShardFilter, failing};

/// Sub-ranges of a scan that are read at a time; each may hold a page of every replica it asks.
const RANGES_IN_FLIGHT: u16 = 16;
/// Ranges of the ring to begin a scan with, before anything is known of their rows.
const RANGES_AT_FIRST: u32 = 4;
/// Bytes after which a page of a sub-range ends; pages of one partition end at 1 MiB.
const RANGE_BYTES_MAX: usize = 256 << 10;
/// The same of a page that its replica filters: the coordinator has only what passes, unless replicas differ.
const FILTERED_BYTES_MAX: usize = 512 << 10;

/// What one shard keeps for reads of several nodes.
pub struct Reading {
    tables: plan::TableCache,
    reads: Counter,
    mismatches: Counter,
    repairs: Counter,
    speculations: Counter,
    short_reads: Counter,
    /// Pages shown of which a replica sent what passes a filter.
    filtered: Counter,
    filtered_refused: Counter,
    served: Counter,
    served_filtered: Counter,
    pub(crate) served_late: Counter,
    pub(crate) outdated: Counter,
    /// Of other shards, whose caller was gone.
    pub(crate) abandoned: Counter,
    replanned: Counter,
    /// Of results, made for any shard.
    pub(crate) folded: Counter,
    /// What other nodes may ask shards to do with rows.
    pub(crate) scans: crate::scan_serve::Scans,
    pub(crate) scattered: Counter,
    pub(crate) scattered_refused: Counter,
    pub(crate) scattered_moved: Counter,
    pub(crate) scans_served: Counter,
}

impl Reading {
    /// What reads need to know of a table. `None`: there is no such table in the snapshot.
    pub(crate) fn facts(
        &self,
        snapshot: &ClusterSnapshot,
        table: TableId,
    ) -> Option<Rc<TableFacts>> {
        self.tables.get(snapshot, table)
    }

    /// Nothing is read yet.
    pub fn new(telemetry: &telemetry::Shard) -> Reading {
        let counter = |name, help| telemetry.counter(name, help, &[]);
        Reading {
            tables: plan::TableCache::default(),
            reads: counter("coordinator_reads_total", "reads of several nodes"),
            mismatches: counter(
                "coordinator_read_mismatches_total",
                "pages of replicas that were merged because their digests differed",
            ),
            repairs: counter(
                "coordinator_read_repairs_total",
                "mutations sent to replicas that missed what a read showed",
            ),
            speculations: counter(
                "coordinator_read_speculations_total",
                "replicas asked in addition, because others did not answer soon",
            ),
            short_reads: counter(
                "coordinator_short_reads_total",
                "replicas asked for more rows, because too few were left after merging",
            ),
            filtered: counter(
                "coordinator_filtered_pages_total",
                "pages of several replicas of which only what passes a filter was sent and shown",
            ),
            filtered_refused: counter(
                "coordinator_filtered_pages_refused_total",
                "pages that a node would not filter, so that all of it was sent",
            ),
            served: counter("replica_reads_total", "pages and digests read for other coordinators"),
            served_filtered: counter(
                "replica_filtered_pages_total",
                "pages of which what passes a filter was sent to other coordinators",
            ),
            served_late: counter(
                "replica_reads_late_total",
                "reads not served, because their coordinator had given up",
            ),
            outdated: counter(
                "replica_reads_outdated_total",
                "reads not served, because their coordinator did not know who has their range now",
            ),
            abandoned: counter(
                "coordinator_shard_reads_abandoned_total",
                "reads for another shard not begun, because nobody waited for them any more",
            ),
            folded: counter(
                "coordinator_folded_pages_total",
                "pages of aggregations that this shard made of its rows",
            ),
            scans: crate::scan_serve::Scans::default(),
            scattered: counter(
                "coordinator_scattered_reads_total",
                "scans that shards of several nodes filtered or aggregated",
            ),
            scattered_refused: counter(
                "coordinator_scattered_reads_refused_total",
                "such scans that a node would not do, so that rows were read",
            ),
            scattered_moved: counter(
                "coordinator_scattered_reads_moved_total",
                "parts of such scans that went on at another replica",
            ),
            scans_served: counter(
                "replica_scans_total",
                "pages that this shard filtered or aggregated for other coordinators",
            ),
            replanned: counter(
                "coordinator_reads_replanned_total",
                "reads planned again, because a replica knew newer metadata",
            ),
        }
    }
}

/// Numbers of read repair, as `nodetool netstats` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadRepairCounts {
    /// Reads of several nodes.
    pub attempted: u64,
    /// Pages whose replicas differed, so that the reader had to wait for a merge.
    pub mismatches: u64,
    /// Mutations sent to replicas.
    pub repairs: u64,
}

impl Coordinator {
    /// Numbers of this shard since its start.
    pub fn read_repair_counts(&self) -> ReadRepairCounts {
        let reading = &self.inner.reading;
        ReadRepairCounts {
            attempted: reading.reads.get(),
            mismatches: reading.mismatches.get(),
            repairs: reading.repairs.get(),
        }
    }

    /// Reads from as many replicas as the level needs into `sink`, as [`Coordinator::read`] reads
    /// from this node: rows are merged and live, partitions of a range come in ring order, a read
    /// that was cut goes on from its resume position, here or on another node.
    ///
    /// What differs between the replicas that were asked is written to those that miss it before it
    /// is shown, unless the table says otherwise. Dropped early, nothing is asked any more.
    ///
    /// # Errors
    /// `Unavailable` before anything is asked; `ReadTimeout`, `ReadFailure`. Rows may have been shown
    /// before an error.
    pub async fn read_replicated<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &ReplicatedRead,
        sink: &mut S,
    ) -> Result<ReadStats, RequestError> {
        self.read_traced(command, order, (None, None), sink).await
    }

    /// As [`Coordinator::read_replicated`]. Of a request that is traced what is asked and what this node reads is
    /// noted, and the other nodes write down what they do for it. With a filter what this node alone reads is
    /// filtered by its shards, and of a range what replicas agree on by one of them ([`filtered`]); what is merged is
    /// shown as it is.
    ///
    /// # Errors
    /// As [`Coordinator::read_replicated`].
    pub async fn read_traced<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &ReplicatedRead,
        (trace, filter): (Option<&Rc<ReadTrace>>, Option<&ShardFilter>),
        sink: &mut S,
    ) -> Result<ReadStats, RequestError> {
        let me = order.snapshot.local.host_id;
        let Some(plan) = self.plan_read(&order.snapshot, command.table, order.consistency) else {
            return Err(failed(order, me, ReplicaError::IncompatibleSchema));
        };
        if plan.is_for_this_node(me, command) {
            let wanted = (order.rows_wanted, filter);
            let read = match trace {
                Some(trace) => Box::pin(self.read_noted(command, (wanted, trace), sink)).await,
                None => self.read_filtered(command, wanted, sink).await,
            };
            return read.map_err(|error| failed(order, me, store_failure(self, error)));
        }
        self.inner.reading.reads.inc();
        let filtering = filtered::Filtering::of(filter, command, order);
        let with = (trace.cloned(), filtering);
        let reader = drive::Reader::new(self, (plan, with), command, order, sink);
        let read = Box::pin(reader.run()).await;
        if let (Some(trace), Err(error)) = (trace, &read) {
            trace.request().note_error(error);
        }
        read
    }

    /// Whether this node alone answers a read.
    pub(crate) fn answers_alone(&self, command: &ReadCommand, order: &ReplicatedRead) -> bool {
        let me = order.snapshot.local.host_id;
        let plan = self.plan_read(&order.snapshot, command.table, order.consistency);
        plan.is_some_and(|plan| plan.is_for_this_node(me, command))
    }

    /// This node, which alone answers a read, failed.
    pub(crate) fn failed_alone(&self, order: &ReplicatedRead, error: StoreError) -> RequestError {
        failed(order, order.snapshot.local.host_id, store_failure(self, error))
    }

    /// `None`: there is no such table, or this node is part of no cluster.
    pub(crate) fn plan_read(
        &self,
        snapshot: &ClusterSnapshot,
        table: TableId,
        consistency: Consistency,
    ) -> Option<plan::Plan> {
        let cluster = self.cluster()?;
        let facts = self.inner.reading.tables.get(snapshot, table)?;
        let topology = cluster.topology(snapshot, table)?;
        Some(plan::Plan::new(cluster, facts, topology, consistency))
    }
}

/// The only replica failed, and it is this node.
#[cold]
pub(crate) fn failed(order: &ReplicatedRead, me: HostId, reason: ReplicaError) -> RequestError {
    let failures = std::iter::once((me, reason)).collect();
    let (consistency, data_present) = (order.consistency, false);
    RequestError::ReadFailure { consistency, received: 0, block_for: 1, failures, data_present }
}

/// What an error of this node's own store means to a read, for which it is one replica of several.
#[cold]
fn store_failure(coordinator: &Coordinator, error: StoreError) -> ReplicaError {
    coordinator.inner.store.note_failure(&error);
    tracing::warn!(%error, "this node failed as a replica of a read");
    failing::of_store(&error)
}
