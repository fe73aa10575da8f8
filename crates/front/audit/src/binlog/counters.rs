//! Metrics of a log of requests.

use telemetry::{Counter, Gauge};

/// Metrics of one shard's part of a log.
pub struct LogCounters {
    /// Records that were queued.
    pub records: Counter,
    /// Records that were not written.
    pub dropped: Counter,
    /// Attempts to write that failed.
    pub failures: Counter,
    /// Answers that waited for a full queue.
    pub waits: Counter,
    /// Times at which requests were refused because of a full queue.
    pub refused: Counter,
    /// Bytes of queued records.
    pub queue_bytes: Gauge,
}
