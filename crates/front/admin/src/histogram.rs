//! Histograms as the API sends them, and what Cassandra's tools work out of their buckets.

use serde::{Deserialize, Serialize};
use telemetry::{BOUNDS, EstimatedSnapshot};

/// Counts in buckets that grow by 1.2 (bounds 1, 2, … 8, 10, 12, 14, 17, 20, …).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramReport {
    /// Counts; empty buckets at the end are left out.
    pub buckets: Vec<u64>,
    /// Sum of all values; of latencies in nanoseconds, while their buckets are of microseconds.
    #[serde(default)]
    pub sum: u64,
}

impl From<EstimatedSnapshot> for HistogramReport {
    fn from(snapshot: EstimatedSnapshot) -> HistogramReport {
        HistogramReport { buckets: snapshot.buckets, sum: snapshot.sum }
    }
}

/// The bound of a bucket; histograms of files have more of them than those of latencies.
fn bound(bucket: usize) -> u64 {
    if let Some(bound) = BOUNDS.get(bucket) {
        return *bound;
    }
    let mut last = BOUNDS.last().copied().unwrap_or(1);
    for _ in BOUNDS.len()..=bucket {
        last = u64::try_from((u128::from(last) * 12 + 5) / 10).unwrap_or(u64::MAX);
    }
    last
}

impl HistogramReport {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Upper bounds of its buckets, inclusive: all bounds of latencies, and larger ones as far as
    /// buckets are filled. A single extra bucket beyond the bounds of latencies has the larger
    /// values.
    pub(crate) fn bounds(&self) -> Vec<u64> {
        let count = match self.buckets.len() {
            n if n <= BOUNDS.len() + 1 => BOUNDS.len(),
            n => n,
        };
        (0..count).map(bound).collect()
    }

    /// Adds another one's values.
    pub fn merge(&mut self, other: &HistogramReport) {
        telemetry::add_buckets(&mut self.buckets, &other.buckets);
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Returns the bound below which that share (0..=1) of the values lies; 0 when there are none.
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        if wanted == 0 {
            return 0;
        }
        let mut seen = 0_u64;
        for (bucket, n) in self.buckets.iter().enumerate() {
            seen = seen.saturating_add(*n);
            if seen >= wanted {
                return bound(bucket);
            }
        }
        0
    }

    /// Smallest value that the lowest filled bucket can hold.
    pub fn min(&self) -> u64 {
        match self.buckets.iter().position(|n| *n > 0) {
            None | Some(0) => 0,
            Some(bucket) => bound(bucket.saturating_sub(1)).saturating_add(1),
        }
    }

    /// Bound of the highest filled bucket.
    pub fn max(&self) -> u64 {
        self.buckets.iter().rposition(|n| *n > 0).map_or(0, bound)
    }

    /// Mean of the values, each taken as its bucket's bound, rounded up; 0 when there is none.
    pub fn mean(&self) -> u64 {
        let sum = self.buckets.iter().enumerate().fold(0_u128, |sum, (bucket, n)| {
            sum.saturating_add(u128::from(*n).saturating_mul(u128::from(bound(bucket))))
        });
        match u128::from(self.count()) {
            0 => 0,
            count => u64::try_from(sum.div_ceil(count)).unwrap_or(u64::MAX),
        }
    }

    /// Mean latency in milliseconds; NaN when there is none.
    pub fn mean_ms(&self) -> f64 {
        match self.count() {
            0 => f64::NAN,
            count => self.sum as f64 / count as f64 / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_bounds_of_buckets() {
        let mut report = HistogramReport { buckets: vec![0, 98, 0, 1], sum: 0 };
        report.merge(&HistogramReport { buckets: vec![0, 0, 0, 0, 0, 0, 0, 0, 1], sum: 5_000_000 });
        assert_eq!(report.count(), 100);
        assert_eq!((report.percentile(0.5), report.percentile(0.99)), (2, 4));
        assert_eq!((report.percentile(1.0), report.min(), report.max()), (10, 2, 10));
        assert_eq!((report.mean(), report.mean_ms()), (3, 0.05));
        let none = HistogramReport::default();
        assert_eq!((none.percentile(0.5), none.min(), none.max(), none.mean()), (0, 0, 0, 0));
        assert!(none.mean_ms().is_nan());
    }

    #[test]
    fn bounds_go_on_behind_those_of_latencies() {
        let of_file = sst_bounds(155);
        for (bucket, expected) in of_file.iter().enumerate() {
            assert_eq!(bound(bucket), *expected, "{bucket}");
        }
    }

    /// The same series, worked out the slow way.
    fn sst_bounds(count: usize) -> Vec<u64> {
        let mut all = vec![1_u64];
        while all.len() < count {
            let last = all[all.len() - 1];
            let next = (u128::from(last) * 6 + 2) / 5;
            all.push(u64::try_from(next).unwrap().max(last + 1));
        }
        all
    }
}
