//! Latencies of a target: a histogram with buckets 3 % wide.

use std::time::Duration;

/// Buckets of each doubling.
const PER_DOUBLING: u64 = 32;
/// Buckets up to about 19 hours.
const BUCKETS: usize = 32 * 32;

/// Latencies in microseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: vec![0; BUCKETS], count: 0, max: 0 }
    }
}

impl Latencies {
    /// Adds one.
    pub fn add(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(micros)) {
            *count += 1;
        }
        self.count += 1;
        self.max = self.max.max(micros);
    }

    /// Number of latencies.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the latency that this part of 1000 does not exceed, in microseconds.
    pub fn per_mille(&self, part: u64) -> u64 {
        let wanted = (self.count * part).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper(index).min(self.max);
            }
        }
        self.max
    }

    /// One line: count and percentiles in milliseconds.
    pub fn line(&self) -> String {
        let millis = |part| {
            let micros = self.per_mille(part);
            format!("{}.{:03} ms", micros / 1000, micros % 1000)
        };
        if self.is_empty() {
            return "no queries".to_owned();
        }
        format!(
            "{} queries, p50 {}, p95 {}, p99 {}, p99.9 {}, max {}",
            self.count,
            millis(500),
            millis(950),
            millis(990),
            millis(999),
            millis(1000)
        )
    }
}

fn bucket(micros: u64) -> usize {
    let doublings = u64::from((micros / PER_DOUBLING).checked_ilog2().map_or(0, |log| log + 1));
    let of_doubling = match doublings {
        0 => micros,
        // Between 32 and 63 after the shift.
        doublings => (micros >> (doublings - 1)) - PER_DOUBLING,
    };
    usize::try_from(doublings * PER_DOUBLING + of_doubling).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// Highest latency of a bucket.
fn upper(index: usize) -> u64 {
    let (doublings, of_doubling) = (index as u64 / PER_DOUBLING, index as u64 % PER_DOUBLING);
    match doublings {
        0 => of_doubling,
        doublings => ((of_doubling + PER_DOUBLING + 1) << (doublings - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_in_the_bucket_whose_upper_bound_is_at_most_3_percent_above() {
        for micros in (0..100_000).chain([1 << 20, (1 << 30) + 12_345, 60_000_000_000]) {
            let upper = upper(bucket(micros));
            assert!(upper >= micros && upper - micros <= micros / 32, "{micros} {upper}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_latencies() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.line(), "no queries");
        (1..=1000).for_each(|n| latencies.add(Duration::from_micros(n * 10)));
        for (part, micros) in [(500, 5000), (990, 9900), (1000, 10_000)] {
            let found = latencies.per_mille(part);
            assert!(found >= micros && found <= micros + micros / 32, "{part}: {found}");
        }
        assert!(latencies.line().starts_with("1000 queries, p50 5."));
        assert!(latencies.line().ends_with("max 10.000 ms"));
    }
}
