//! Metrics of hints.

use telemetry::{Counter, EstimatedHistogram, Gauge, Shard, Stage};

use crate::policy::{Dropped, Refusal};

pub(crate) struct Counters {
    pub(crate) stored: Counter,
    refused: Vec<(Refusal, Counter)>,
    pub(crate) delivered: Counter,
    pub(crate) failed: Counter,
    pub(crate) handed_on: Counter,
    dropped: Vec<(Dropped, Counter)>,
    pub(crate) dropped_file_bytes: Counter,
    pub(crate) write_errors: Counter,
    pub(crate) read_errors: Counter,
    pub(crate) damaged_ranges: Counter,
    pub(crate) crash_tails: Counter,
    pub(crate) bytes: Gauge,
    pub(crate) buffered_bytes: Gauge,
    pub(crate) files: Gauge,
    pub(crate) age: EstimatedHistogram,
    /// Files that are being delivered.
    pub(crate) stage: Stage,
}

impl Counters {
    pub(crate) fn new(shard: &Shard) -> Counters {
        let refused = |r: &Refusal| {
            let help = "hints that were not kept, by reason";
            (*r, shard.counter("hints_refused_total", help, &[("reason", r.name())]))
        };
        let dropped = |d: &Dropped| {
            let help = "hints that were kept and will not be delivered, by reason";
            (*d, shard.counter("hints_dropped_total", help, &[("reason", d.name())]))
        };
        let counter = |name, help| shard.counter(name, help, &[]);
        let gauge = |name, help| shard.gauge(name, help, &[]);
        Counters {
            stage: shard.stage("HintsDispatcher"),
            stored: counter("hints_stored_total", "hints taken into memory to be kept"),
            refused: Refusal::ALL.iter().map(refused).collect(),
            delivered: counter("hints_delivered_total", "hints that their replica has applied"),
            failed: counter(
                "hints_delivery_failed_total",
                "attempts to deliver a hint that failed and are repeated",
            ),
            handed_on: counter(
                "hints_handed_on_total",
                "hints of replicas that left, given to the present owners",
            ),
            dropped: Dropped::ALL.iter().map(dropped).collect(),
            dropped_file_bytes: counter(
                "hints_dropped_file_bytes_total",
                "bytes of hint files that were dropped unread: replica gone, or truncated",
            ),
            write_errors: counter("hints_write_errors_total", "failed writes of hint files"),
            read_errors: counter("hints_read_errors_total", "failed reads of hint files"),
            damaged_ranges: counter(
                "hints_damaged_ranges_total",
                "unreadable places of hint files that had been synced",
            ),
            crash_tails: counter(
                "hints_crash_tails_total",
                "unreadable places of hint files that a crash left of unsynced writes",
            ),
            bytes: gauge("hints_bytes", "bytes of hint files"),
            buffered_bytes: gauge("hints_buffered_bytes", "bytes of hints not yet synced"),
            files: gauge("hints_files", "hint files"),
            age: shard.latency(
                "hints_delivery_age_micros",
                "from the write to the delivery of its hint",
                &[],
            ),
        }
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        if let Some((_, counter)) = self.refused.iter().find(|(r, _)| *r == refusal) {
            counter.inc();
        }
    }

    pub(crate) fn dropped(&self, why: Dropped, hints: u64) {
        if let Some((_, counter)) = self.dropped.iter().find(|(d, _)| *d == why) {
            counter.add(hints);
        }
    }
}
