//! The phi accrual failure detector of one peer.
//!
//! phi is the time since the last heartbeat over the mean time between heartbeats, scaled so that
//! phi p means "by chance once in 10^p times" for exponential arrivals. Once a peer is known for a
//! while the mean counts as one round when it is longer: a heartbeat is made every round, and the
//! chance by which gossip brings it later is no reason for more patience. So phi 8 is reached 18.4
//! rounds after the last heartbeat at most.
//!
//! Source: `FailureDetector.java` and `ArrivalWindow` of Cassandra 5.0 (CASSANDRA-2597), but for the
//! bound of the mean.

use std::time::Duration;

use stdx::Instant;

/// Intervals kept; Cassandra's `SAMPLE_SIZE`.
pub const SAMPLES_MAX: usize = 1_000;
/// From so many intervals on the mean counts as one round at most; a peer that is new has news of a
/// network that still finds itself.
pub const SAMPLES_KNOWN: usize = 30;
/// `1 / ln 10`: phi to base 10.
const PHI_FACTOR: f64 = std::f64::consts::LOG10_E;

/// Arrival times of one peer's heartbeats.
#[derive(Clone, Debug)]
pub struct Detector {
    round: Duration,
    /// Two rounds: the longest interval counted, so that a long silence does not teach the next one
    /// to be accepted; the first one is taken to be as long.
    interval_max: Duration,
    last: Option<Instant>,
    /// Nanoseconds; a ring once it is full.
    samples: Vec<u64>,
    next: usize,
    sum: u64,
}

impl Detector {
    /// For heartbeats about every `round`.
    pub fn new(round: Duration) -> Detector {
        let interval_max = round.saturating_mul(2);
        Detector { round, interval_max, last: None, samples: Vec::new(), next: 0, sum: 0 }
    }

    /// A heartbeat has arrived.
    pub fn report(&mut self, now: Instant) {
        match self.last {
            None => self.add(self.interval_max),
            Some(last) => {
                let interval = now.since(last);
                if interval <= self.interval_max {
                    self.add(interval);
                }
            }
        }
        self.last = Some(now);
    }

    /// Returns the suspicion level of the silence; 0 before the first heartbeat.
    pub fn phi(&self, now: Instant) -> f64 {
        match (self.last, self.samples.len()) {
            (Some(last), count) if count > 0 && self.sum > 0 => {
                let mean = self.sum as f64 / count as f64;
                let round = self.round.as_nanos() as f64;
                let mean = if count < SAMPLES_KNOWN { mean } else { mean.min(round) };
                now.since(last).as_nanos() as f64 / mean * PHI_FACTOR
            }
            _ => 0.0,
        }
    }

    fn add(&mut self, interval: Duration) {
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(nanos);
        } else if let Some(oldest) = self.samples.get_mut(self.next) {
            self.sum = self.sum.saturating_sub(*oldest);
            *oldest = nanos;
            self.next = (self.next + 1) % SAMPLES_MAX;
        }
        self.sum = self.sum.saturating_add(nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: f64) -> Instant {
        Instant((seconds * SECOND as f64) as u64)
    }

    fn fed(arrivals: impl IntoIterator<Item = f64>) -> Detector {
        let mut d = Detector::new(Duration::from_secs(1));
        arrivals.into_iter().for_each(|t| d.report(at(t)));
        d
    }

    fn assert_phi(d: &Detector, seconds: f64, expect: f64) {
        let phi = d.phi(at(seconds));
        assert!((phi - expect).abs() < 1e-6, "{phi} instead of {expect}");
    }

    #[test]
    fn the_first_heartbeat_assumes_two_rounds() {
        assert_phi(&fed([]), 100.0, 0.0);
        // t / 2 s / ln 10.
        assert_phi(&fed([10.0]), 14.0, 2.0 / std::f64::consts::LN_10);
    }

    #[test]
    fn the_mean_of_a_known_peer_is_at_most_one_round() {
        // Heard of every other round only.
        let slow = |count: u32| fed((0..count).map(|i| f64::from(i) * 2.0));
        assert_phi(&slow(29), 58.0, 1.0 / std::f64::consts::LN_10);
        assert_phi(&slow(30), 60.0, 2.0 / std::f64::consts::LN_10);
    }

    #[test]
    fn phi_is_silence_over_the_mean_and_passes_8_after_18_4_intervals() {
        let d = fed((0..=1_000).map(f64::from));
        assert_phi(&d, 1_001.0, 1.0 / std::f64::consts::LN_10);
        assert!(d.phi(at(1_018.4)) < 8.0);
        assert!(d.phi(at(1_018.5)) > 8.0);
        let faster = fed((0..=2_100).map(|i| f64::from(i) / 2.0));
        assert!(faster.phi(at(1_059.3)) > 8.0);
    }

    #[test]
    fn an_interval_above_two_rounds_is_not_learnt() {
        let regular = fed([0.0, 0.25, 0.5, 0.75]);
        let silent = fed([0.0, 0.25, 0.5, 0.75, 100.0]);
        assert_phi(&silent, 103.0, regular.phi(at(3.75)));
        // The longest that counts: mean of 2, four times a quarter, 2.
        let edge = fed([0.0, 0.25, 0.5, 0.75, 1.0, 3.0]);
        assert_phi(&edge, 4.0, 1.0 / (5.0 / 6.0) / std::f64::consts::LN_10);
        let above = fed([0.0, 0.25, 0.5, 0.75, 1.0, 3.1]);
        assert_phi(&above, 4.1, 1.0 / 0.6 / std::f64::consts::LN_10);
    }

    #[test]
    fn memory_does_not_grow_past_the_window() {
        let d = fed((0..5_000).map(|i| f64::from(i) / 10.0));
        assert_eq!(d.samples.len(), SAMPLES_MAX);
        assert_eq!(d.sum, d.samples.iter().sum::<u64>());
    }
}
