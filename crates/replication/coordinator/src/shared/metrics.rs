//! Metrics of requests to several nodes.

use telemetry::{Counter, Gauge, Shard};

/// Counters of one shard's coordinator.
pub(crate) struct Metrics {
    /// Replicated writes that were begun.
    pub(crate) writes: Counter,
    pub(crate) write_timeouts: Counter,
    pub(crate) write_failures: Counter,
    pub(crate) write_unavailables: Counter,
    /// Writes refused because too many were in flight.
    pub(crate) writes_shed: Counter,
    /// Writes whose caller was gone before the answer.
    pub(crate) writes_abandoned: Counter,
    /// Writes that are not finished, answered or not.
    pub(crate) writes_in_flight: Gauge,
    /// Bytes of their mutations.
    pub(crate) write_bytes_in_flight: Gauge,
    /// Writes in flight that are answered already.
    pub(crate) writes_lingering: Gauge,
    /// Ended before all replicas had answered, because room was needed or the node stops.
    pub(crate) writes_cut_short: Counter,
    /// Hints stored at once, because their replica made no progress.
    pub(crate) writes_rerouted: Counter,
    pub(crate) hints: Counter,
    /// Mutations applied for other coordinators.
    pub(crate) replica_mutations: Counter,
    /// Mutations not applied because the coordinator had stopped waiting.
    pub(crate) replica_mutations_late: Counter,
    /// Mutations passed on for a coordinator of another datacenter.
    pub(crate) forwards: Counter,
    /// Mutations of coordinators with older metadata, written to the current replicas of their
    /// range.
    pub(crate) outdated_mutations: Counter,
    pub(crate) hints_applied: Counter,
    /// Not applied: too old, or their table was emptied since.
    pub(crate) hints_obsolete: Counter,
}

impl Metrics {
    pub(crate) fn new(telemetry: &Shard) -> Metrics {
        let counter = |name, help| telemetry.counter(name, help, &[]);
        let gauge = |name, help| telemetry.gauge(name, help, &[]);
        Metrics {
            writes: counter("coordinator_writes_total", "writes to several nodes"),
            write_timeouts: counter(
                "coordinator_write_timeouts_total",
                "writes that too few replicas acknowledged in time",
            ),
            write_failures: counter(
                "coordinator_write_failures_total",
                "writes that too many replicas refused",
            ),
            write_unavailables: counter(
                "coordinator_write_unavailables_total",
                "writes not begun, because too few replicas were alive",
            ),
            writes_shed: counter(
                "coordinator_writes_shed_total",
                "writes refused, because too many were under way",
            ),
            writes_abandoned: counter(
                "coordinator_writes_abandoned_total",
                "writes whose caller had stopped waiting before they were answered",
            ),
            writes_in_flight: gauge(
                "coordinator_writes_in_flight",
                "writes that some replica has not answered",
            ),
            write_bytes_in_flight: gauge(
                "coordinator_write_bytes_in_flight",
                "bytes of mutations that some replica has not answered",
            ),
            writes_lingering: gauge(
                "coordinator_writes_lingering",
                "answered writes that some replica has not answered",
            ),
            writes_cut_short: counter(
                "coordinator_writes_cut_short_total",
                "answered writes ended before all replicas had answered",
            ),
            writes_rerouted: counter(
                "coordinator_writes_rerouted_total",
                "writes kept as hints at once, because their live replica made no progress",
            ),
            hints: counter("coordinator_hints_total", "writes kept as hints"),
            replica_mutations: counter(
                "replica_mutations_total",
                "mutations applied for other coordinators",
            ),
            replica_mutations_late: counter(
                "replica_mutations_late_total",
                "mutations not applied, because their coordinator had given up",
            ),
            forwards: counter(
                "replica_forwards_total",
                "mutations passed on for coordinators of other datacenters",
            ),
            outdated_mutations: counter(
                "replica_mutations_outdated_total",
                "mutations of coordinators that did not know who has their range now, sent on",
            ),
            hints_applied: counter("replica_hints_total", "hints applied for other nodes"),
            hints_obsolete: counter(
                "replica_hints_obsolete_total",
                "hints not applied, because they were too old or their table was emptied",
            ),
        }
    }
}
