//! Reports of runs, and the reach probes: counters that show whether rare paths were reached.

use std::collections::BTreeMap;
use std::fmt;

/// Report of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Hash over every step of the world.
    pub trace: u64,
    /// The hash at every 1,000th step.
    pub checkpoints: Vec<u64>,
    /// Requests that were sent.
    pub operations: usize,
    /// Requests that were acknowledged.
    pub acknowledged: usize,
    /// Faults by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Rare paths that were reached.
    pub probes: Probes,
}

/// A rare path: its name, the counter that is bumped there, and a label value if only the series
/// with it count.
type Probe = (&'static str, &'static str, Option<&'static str>);

/// The rare paths of a cluster. Counters that nodes do not have count as never hit.
const PROBES: &[Probe] = &[
    ("write to several nodes", "coordinator_writes_total", None),
    ("write timed out", "coordinator_write_timeouts_total", None),
    ("write failed", "coordinator_write_failures_total", None),
    ("write unavailable", "coordinator_write_unavailables_total", None),
    ("mutation for another coordinator", "replica_mutations_total", None),
    (
        "message to a peer expired before it was sent",
        "internode_dropped_messages_total",
        Some("expired-before-sent"),
    ),
    ("answer of a peer came too late", "internode_dropped_messages_total", Some("late-answer")),
    ("write waited for a replica", "coordinator_writes_waited_total", None),
    ("replica made no progress", "coordinator_replica_stalls_total", None),
    ("write rerouted to a hint", "coordinator_writes_rerouted_total", None),
    ("hint given to the store", "coordinator_hints_total", None),
    ("hint refused", "hints_refused_total", None),
    ("hint stored", "hints_stored_total", None),
    ("hint delivered", "hints_delivered_total", None),
    ("hint delivery repeated", "hints_delivery_failed_total", None),
    ("hint file cut by a crash", "hints_crash_tails_total", None),
    ("hint applied", "replica_hints_total", None),
    ("batch logged", "batchlog_writes_total", None),
    ("batch replayed", "batchlog_replays_total", None),
    ("read of several nodes", "coordinator_reads_total", None),
    ("aggregation made by shards", "coordinator_folded_pages_total", None),
    ("scan scattered to shards of several nodes", "coordinator_scattered_reads_total", None),
    ("page of a scan made for another coordinator", "replica_scans_total", None),
    ("scan that a node would not do", "coordinator_scattered_reads_refused_total", None),
    ("part of a scan went on elsewhere", "coordinator_scattered_reads_moved_total", None),
    ("page of several replicas filtered by one", "coordinator_filtered_pages_total", None),
    ("digest mismatch", "coordinator_read_mismatches_total", None),
    ("read repair", "coordinator_read_repairs_total", None),
    ("speculative read", "coordinator_read_speculations_total", None),
    ("short read", "coordinator_short_reads_total", None),
    ("read came too late", "replica_reads_late_total", None),
    ("peer went down", "gossip_changes_total", Some("down")),
    ("peer came back", "gossip_changes_total", Some("up")),
    ("member found at another address", "internode_members_found_total", None),
    ("connect to a peer failed", "internode_connect_failures_total", None),
    (
        "message to a peer lost with its connection",
        "internode_dropped_messages_total",
        Some("connection-lost"),
    ),
    ("message to a peer given up", "internode_dropped_messages_total", None),
    ("partition streamed", "stream_received_partitions_total", None),
    ("file streamed", "stream_received_files_total", None),
    ("scheduled repair", "auto_repair_done_total", None),
    ("scheduled repair failed", "auto_repair_failed_total", None),
    ("repair for a damaged file", "auto_repair_damaged_done_total", None),
    ("repair for a damaged file failed", "auto_repair_damaged_failed_total", None),
    ("repair sent what was missing", "repair_mutations_total", None),
    ("statement planned again", "cql_statements_replanned_total", None),
    ("Paxos message served", "replica_paxos_total", None),
    ("Paxos round lost to another proposer", "coordinator_cas_contentions_total", None),
    ("promise without a record", "replica_paxos_prepares_unlogged_total", None),
    ("promise assumed behind a crash", "replica_paxos_promises_assumed_total", None),
    ("conditional write left in doubt", "coordinator_cas_unknown_total", None),
    ("conditional statement forwarded", "coordinator_cas_forwards_total", None),
    ("counter update sent to a leader", "coordinator_counters_sent_total", None),
    ("counter update sent to one more leader", "coordinator_counters_resent_total", None),
    ("read planned again with newer metadata", "coordinator_reads_replanned_total", None),
    ("read refused as of older metadata", "replica_reads_outdated_total", None),
    ("write of older metadata sent on", "replica_mutations_outdated_total", None),
    ("hint too old or of an emptied table", "replica_hints_obsolete_total", None),
    ("stream began again", "stream_retries_total", None),
];

/// How often each rare path was reached.
#[derive(Clone, Debug, Default)]
pub struct Probes(BTreeMap<&'static str, u64>);

impl Probes {
    /// Adds what one node's run has counted.
    pub fn add_node(&mut self, snapshot: &telemetry::Snapshot) {
        for (name, metric, label) in PROBES {
            let of_probe = snapshot.metrics.iter().filter(|m| m.name == *metric);
            let values = of_probe
                .filter(|m| label.is_none_or(|l| m.labels.iter().any(|(_, value)| value == l)))
                .map(|m| match m.value {
                    telemetry::Value::Counter(n) => n,
                    telemetry::Value::Gauge(_)
                    | telemetry::Value::Histogram(_)
                    | telemetry::Value::Latency(_) => 0,
                });
            *self.0.entry(name).or_default() += values.sum::<u64>();
        }
    }

    /// Counts something that the driver of the run saw itself.
    pub fn bump(&mut self, name: &'static str, by: u64) {
        *self.0.entry(name).or_default() += by;
    }

    /// How often each was reached.
    pub fn all(&self) -> impl Iterator<Item = (&&'static str, &u64)> {
        self.0.iter()
    }

    /// Rare paths that were not reached.
    #[cfg(test)]
    fn never_hit(&self) -> Vec<&'static str> {
        self.0.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect()
    }
}

impl fmt::Display for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hit = self.0.iter().filter(|(_, count)| **count > 0).peekable();
        while let Some((name, count)) = hit.next() {
            let comma = if hit.peek().is_some() { ", " } else { "" };
            write!(f, "{name} {count}{comma}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_sum_over_nodes_and_name_what_was_never_reached() {
        let shard = telemetry::Shard::new();
        shard.counter("hints_stored_total", "", &[("a", "x")]).add(2);
        shard.counter("hints_stored_total", "", &[("a", "y")]).add(3);
        let mut probes = Probes::default();
        probes.add_node(&shard.snapshot());
        probes.add_node(&shard.snapshot());
        assert_eq!(probes.to_string(), "hint stored 10");
        assert!(probes.never_hit().contains(&"read repair"));
        assert!(!probes.never_hit().contains(&"hint stored"));
        probes.bump("read repair", 1);
        assert!(!probes.never_hit().contains(&"read repair"));
    }
}
