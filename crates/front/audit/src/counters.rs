//! Metrics of the audit log.

use crate::binlog::LogCounters;
use telemetry::Shard;

/// Creates the metrics of one shard.
pub(crate) fn counters(shard: &Shard) -> LogCounters {
    let counter = |name, help| shard.counter(name, help, &[]);
    LogCounters {
        records: counter("audit_events_total", "audit events that were queued"),
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
