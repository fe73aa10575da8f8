//! Metrics of the audit log.

use telemetry::{Counter, Gauge, Shard};

/// Metrics of one shard.
pub(crate) struct Counters {
    pub(crate) events: Counter,
    pub(crate) dropped: Counter,
    pub(crate) failures: Counter,
    pub(crate) waits: Counter,
    pub(crate) refused: Counter,
    pub(crate) queue_bytes: Gauge,
}

impl Counters {
    pub(crate) fn new(shard: &Shard) -> Counters {
        let counter = |name, help| shard.counter(name, help, &[]);
        Counters {
            events: counter("audit_events_total", "audit events that were queued"),
            dropped: counter("audit_events_dropped_total", "audit events that were not written"),
            failures: counter(
                "audit_write_failures_total",
                "attempts to write audit events that failed",
            ),
            waits: counter(
                "audit_waits_total",
                "answers that waited because the queue of audit events was full",
            ),
            refused: counter(
                "audit_requests_refused_total",
                "times at which requests were refused because the queue of audit events was full",
            ),
            queue_bytes: shard.gauge(
                "audit_queue_bytes",
                "bytes of audit events that are not written",
                &[],
            ),
        }
    }
}
