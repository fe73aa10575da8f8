//! [`Throttle`]: how fast the repairs of a shard read.

use std::cell::Cell;
use std::time::Duration;

use stdx::Instant;

use crate::job::Job;

/// The rate that all repairs of a shard share.
pub(crate) struct Throttle {
    /// Bytes per second; 0 = no limit.
    rate: Cell<u64>,
    /// When everything read so far has been read at the rate allowed.
    free_at: Cell<Instant>,
}

impl Throttle {
    pub(crate) fn new(bytes_per_second: u64) -> Throttle {
        Throttle { rate: Cell::new(bytes_per_second), free_at: Cell::new(Instant::ZERO) }
    }

    pub(crate) fn set_rate(&self, bytes_per_second: u64) {
        self.rate.set(bytes_per_second);
    }

    /// The lower of two rates: the shard's and `own`; 0 = no limit.
    pub(crate) fn rate_below(&self, own: u64) -> u64 {
        match (own, self.rate.get()) {
            (0, rate) | (rate, 0) => rate,
            (own, all) => own.min(all),
        }
    }

    /// Bytes per second that a repair may read; 0 = no limit.
    pub(crate) fn rate_of(&self, job: &Job) -> u64 {
        self.rate_below(job.options.bytes_per_second)
    }

    /// Counts bytes that a repair has read; until when it must wait before it reads more.
    pub(crate) fn spend(&self, now: Instant, job: &Job, bytes: usize) -> Instant {
        let mut start = now;
        // A repair with a low rate of its own does not delay others.
        let rates = [(self.rate.get(), &self.free_at), (self.rate_of(job), &job.free_at)];
        for (rate, free_at) in rates {
            let begin = free_at.get().max(now);
            let micros = (bytes as u64).saturating_mul(1_000_000).checked_div(rate).unwrap_or(0);
            free_at.set(begin + Duration::from_micros(micros));
            start = start.max(begin);
        }
        start
    }
}
