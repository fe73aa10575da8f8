//! Reads of several nodes.
//!
//! Owns: the driver of `request`'s read machines ([`drive`]). Never: chooses replicas, computes differences, decides
//! when a level is met (all three are in `request`); how a replica reads (the crate `replica`).
//!
//! Invariants: INV-reading-2: a sink sees the rows that a single node with all data of the asked replicas would show,
//! each row once, in order. INV-reading-3: dropping a read's future stops all of it, except messages that were sent.
//!
//! Reading order: [`plan`], [`calls`], [`asking`], [`slot`], [`ring_walk`], [`progress`], [`drive`], [`filtered`]. See
//! `docs/internals/reads.md`.

mod asking;
mod calls;
mod drive;
mod filtered;
pub(crate) mod plan;
mod progress;
pub(crate) mod ring_walk;
mod slot;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use cluster::{ClusterSnapshot, Consistency};
use data::command::ReadCommand;
use replica::Env;
use request::{ReplicaError, RequestError};
use stdx::{HostId, TableId};
use store::{ReadStats, RowSink, StoreError};
use telemetry::Counter;

use crate::local::{Local, ShardFilter, Wanted};
use crate::shared::{ReadTrace, ReplicatedRead, Shared, UnsupportedVerb};

/// Sub-ranges of a scan that are read at a time; each may hold a page of every replica it asks.
const RANGES_IN_FLIGHT: u16 = 16;
/// Ranges of the ring to begin a scan with, before anything is known of their rows.
const RANGES_AT_FIRST: u32 = 4;
/// Bytes after which a page of a sub-range ends; pages of one partition end at 1 MiB.
const RANGE_BYTES_MAX: usize = 256 << 10;
/// Limit for a page that its replica filters: the coordinator has only the rows that pass, unless
/// replicas differ.
const FILTERED_BYTES_MAX: usize = 512 << 10;

/// Reads of several nodes, of one shard.
#[derive(Clone)]
pub struct Reads {
    inner: Rc<Inner>,
}

/// Per-shard state of replicated reads.
struct Inner {
    shared: Rc<Shared>,
    /// Nodes that do not know the verb `FilteredRead`.
    not_filtering: UnsupportedVerb,
    reads: Counter,
    mismatches: Counter,
    repairs: Counter,
    speculations: Counter,
    short_reads: Counter,
    /// Pages shown of which a replica sent what passes a filter.
    filtered: Counter,
    filtered_refused: Counter,
    replanned: Counter,
}

impl Inner {
    fn new(shared: Rc<Shared>) -> Inner {
        let telemetry = shared.env().rt.telemetry();
        let counter = |name, help| telemetry.counter(name, help, &[]);
        Inner {
            not_filtering: UnsupportedVerb::default(),
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
            replanned: counter(
                "coordinator_reads_replanned_total",
                "reads planned again, because a replica knew newer metadata",
            ),
            shared,
        }
    }
}

/// Options of a read beside its command.
#[derive(Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// Records the requests and reads; other nodes record their part of the work too.
    pub trace: Option<&'a Rc<ReadTrace>>,
    /// The sink's filter. The sink may still be shown rows that do not match.
    pub filter: Option<&'a ShardFilter>,
}

/// Numbers of read repair, as `nodetool netstats` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadRepairCounts {
    /// Reads of several nodes.
    pub attempted: u64,
    /// Pages on which replicas differed, so that the reader had to wait for a merge.
    pub mismatches: u64,
    /// Mutations sent to replicas.
    pub repairs: u64,
}

impl Reads {
    pub(crate) fn new(shared: Rc<Shared>) -> Reads {
        Reads { inner: Rc::new(Inner::new(shared)) }
    }

    fn env(&self) -> &Env {
        self.inner.shared.env()
    }

    fn local(&self) -> &Local {
        &self.inner.shared.local
    }

    /// Numbers of this shard since its start.
    pub fn read_repair_counts(&self) -> ReadRepairCounts {
        let reading = &self.inner;
        ReadRepairCounts {
            attempted: reading.reads.get(),
            mismatches: reading.mismatches.get(),
            repairs: reading.repairs.get(),
        }
    }

    /// Reads from as many replicas as the level needs into `sink`, as [`Local::read`] reads from
    /// this node: rows are merged and live, partitions of a range arrive in ring order. A read that
    /// was interrupted continues from its resume position, here or on another node.
    ///
    /// Differences between the replicas are repaired before a row is shown, unless the table's
    /// settings disable that. After the future is dropped no further requests are sent.
    ///
    /// # Errors
    /// `Unavailable` before any replica is asked; `ReadTimeout`, `ReadFailure`. Rows may have been
    /// shown before an error.
    pub async fn read_replicated<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &ReplicatedRead,
        sink: &mut S,
    ) -> Result<ReadStats, RequestError> {
        self.read_traced(command, order, ReadOptions::default(), sink).await
    }

    /// Like [`Reads::read_replicated`], with options. A trace records the requests and this node's
    /// reads, and the other nodes record their part. With a filter, rows that this node alone reads
    /// are filtered by its shards; rows of a range on which replicas agree are filtered by one of
    /// them ([`filtered`]); merged rows are shown unfiltered.
    ///
    /// # Errors
    /// Those of [`Reads::read_replicated`].
    pub async fn read_traced<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &ReplicatedRead,
        options: ReadOptions<'_>,
        sink: &mut S,
    ) -> Result<ReadStats, RequestError> {
        let ReadOptions { trace, filter } = options;
        let me = order.snapshot.local.host_id;
        let Some(plan) = self.plan_read(&order.snapshot, command.table, order.consistency) else {
            return Err(failed(order, me, ReplicaError::IncompatibleSchema));
        };
        if plan.is_for_this_node(me, command) {
            let (wanted, local) = (Wanted { rows: order.rows_wanted, filter }, self.local());
            let read = match trace {
                Some(trace) => {
                    Box::pin(local.read_noted(command, wanted, trace.shards(), sink)).await
                }
                None => local.read_filtered(command, wanted, sink).await,
            };
            return read.map_err(|error| failed(order, me, store_failure(self, error)));
        }
        self.inner.reads.inc();
        let filtering = filtered::Filtering::of(filter, command, order);
        let terms = drive::ReadTerms { plan, trace: trace.cloned(), filtering };
        let reader = drive::Reader::new(self, terms, command, order, sink);
        let read = Box::pin(reader.run()).await;
        if let (Some(trace), Err(error)) = (trace, &read) {
            trace.request().note_error(error);
        }
        read
    }

    /// Returns true if this node alone answers a read.
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
        let cluster = self.inner.shared.cluster()?.clone();
        let facts = self.env().facts(snapshot, table)?;
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

/// Converts an error of this node's own store into a replica error: for the read, this node is one
/// replica of several.
#[cold]
fn store_failure(reads: &Reads, error: StoreError) -> ReplicaError {
    reads.env().store.note_failure(&error);
    tracing::warn!(%error, "this node failed as a replica of a read");
    replica::of_store(&error)
}
