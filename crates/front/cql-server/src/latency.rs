//! How long clients' requests take on this shard: from the turn in which they arrived to their answer.
//!
//! One clock read begins a turn and one ends it, whatever the number of its requests; a request that
//! waits is measured for itself when it ends.

use std::cell::Cell;
use std::time::Duration;

use stdx::Instant;
use telemetry::EstimatedHistogram;

/// Kinds of requests that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reads of partitions.
    Read,
    /// Reads of token ranges.
    Range,
    /// Writes and batches.
    Write,
    /// Reads at a serial level.
    CasRead,
    /// Conditional writes and batches.
    CasWrite,
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) kind: Kind,
    pub(crate) began: Instant,
}

/// Requests of one turn that ended in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    reads: u64,
    ranges: u64,
    writes: u64,
    cas_reads: u64,
    cas_writes: u64,
}

impl Ended {
    pub(crate) fn add(&mut self, kind: Kind, count: u64) {
        let counted = match kind {
            Kind::Read => &mut self.reads,
            Kind::Range => &mut self.ranges,
            Kind::Write => &mut self.writes,
            Kind::CasRead => &mut self.cas_reads,
            Kind::CasWrite => &mut self.cas_writes,
        };
        *counted += count;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads + self.ranges + self.writes + self.cas_reads + self.cas_writes == 0
    }
}

/// The histograms of one shard.
pub(crate) struct Latencies {
    read: EstimatedHistogram,
    range: EstimatedHistogram,
    write: EstimatedHistogram,
    cas_read: EstimatedHistogram,
    cas_write: EstimatedHistogram,
    /// What the request that is being begun is.
    running: Cell<Option<Kind>>,
}

impl Latencies {
    pub(crate) fn new(shard: &telemetry::Shard) -> Latencies {
        let latency = |name, help| shard.latency(name, help, &[]);
        Latencies {
            read: latency("coordinator_read_latency_micros", "microseconds of reads by key"),
            range: latency("coordinator_range_latency_micros", "microseconds of reads of ranges"),
            write: latency("coordinator_write_latency_micros", "microseconds of writes"),
            cas_read: latency(
                "coordinator_cas_read_latency_micros",
                "microseconds of serial reads",
            ),
            cas_write: latency(
                "coordinator_cas_write_latency_micros",
                "microseconds of conditional writes",
            ),
            running: Cell::new(None),
        }
    }

    /// Says what the request that is being begun is; the last word counts.
    #[inline]
    pub(crate) fn note_kind(&self, kind: Kind) {
        self.running.set(Some(kind));
    }

    /// What the request that was just begun is; `None` for those that are not measured.
    #[inline]
    pub(crate) fn take_kind(&self) -> Option<Kind> {
        self.running.take()
    }

    /// Requests ended that took so long.
    pub(crate) fn record(&self, kind: Kind, took: Duration, times: u64) {
        let histogram = match kind {
            Kind::Read => &self.read,
            Kind::Range => &self.range,
            Kind::Write => &self.write,
            Kind::CasRead => &self.cas_read,
            Kind::CasWrite => &self.cas_write,
        };
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        histogram.record_nanos_times(nanos, times);
    }

    /// Requests of one turn ended.
    pub(crate) fn record_turn(&self, ended: Ended, took: Duration) {
        let Ended { reads, ranges, writes, cas_reads, cas_writes } = ended;
        for (kind, times) in [
            (Kind::Read, reads),
            (Kind::Range, ranges),
            (Kind::Write, writes),
            (Kind::CasRead, cas_reads),
            (Kind::CasWrite, cas_writes),
        ] {
            if times > 0 {
                self.record(kind, took, times);
            }
        }
    }
}
