//! Counters and gauges of repairs.

use rt::Rt;
use telemetry::{Counter, Gauge};

/// Metrics of a shard's repairs; those of the schedule are shard 0's.
pub(crate) struct Counts {
    pub(crate) bytes_read: Counter,
    pub(crate) segments: Counter,
    pub(crate) differing: Counter,
    pub(crate) mutations: Counter,
    pub(crate) served: Counter,
    /// Pages that are read and hashed for repairs.
    pub(crate) validation: telemetry::Stage,
    pub(crate) auto_done: Counter,
    pub(crate) auto_failed: Counter,
    pub(crate) auto_oldest: Gauge,
    pub(crate) auto_pace: Gauge,
    pub(crate) auto_needed: Gauge,
    pub(crate) auto_behind: Gauge,
}

impl Counts {
    pub(crate) fn new(rt: &Rt) -> Counts {
        let telemetry = rt.telemetry();
        let counter = |name, help| telemetry.counter(name, help, &[]);
        Counts {
            bytes_read: counter("repair_read_bytes_total", "bytes of this node that were compared"),
            segments: counter("repair_stretches_total", "stretches compared between replicas"),
            differing: counter("repair_mismatches_total", "stretches of which replicas differed"),
            mutations: counter("repair_mutations_total", "mutations that replicas lacked"),
            validation: telemetry.stage("ValidationExecutor"),
            served: counter("repair_served_total", "stretches read for repairs of other nodes"),
            auto_done: counter(
                "auto_repair_done_total",
                "repairs begun by the schedule, ended well",
            ),
            auto_failed: counter(
                "auto_repair_failed_total",
                "repairs begun by the schedule, failed",
            ),
            auto_pace: telemetry.gauge(
                "auto_repair_pace_bytes_per_second",
                "how fast the schedule repairs",
                &[],
            ),
            auto_needed: telemetry.gauge(
                "auto_repair_needed_bytes_per_second",
                "how fast it would have to, whatever its bounds",
                &[],
            ),
            auto_behind: telemetry.gauge(
                "auto_repair_behind",
                "1: a window is over, or more is needed than auto_repair_throughput allows",
                &[],
            ),
            auto_oldest: telemetry.gauge(
                "auto_repair_oldest_seconds",
                "since the least recently repaired primary range of this node was repaired",
                &[],
            ),
        }
    }
}
