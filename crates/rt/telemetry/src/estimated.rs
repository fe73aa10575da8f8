//! Histogram with Cassandra's bounds: buckets that grow by 1.2, fixed for ever, so that histograms of
//! shards, nodes and files add up bucket by bucket and nodetool shows the numbers its users know.
//!
//! Source of the bounds: Cassandra's `utils.EstimatedHistogram`.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

/// Bounds of a latency histogram: 1 to 25,109,160 (in microseconds, 25 s).
pub const ESTIMATED_BOUNDS: usize = 90;
/// Number of buckets: one for each bound and one for larger values.
const BUCKETS: usize = ESTIMATED_BOUNDS + 1;

/// Upper bounds, inclusive, of the buckets.
pub const BOUNDS: [u64; ESTIMATED_BOUNDS] = bounds();

/// First bucket that can hold a value of this many bits: where the search begins.
const FIRST_OF_BITS: [u8; 65] = first_of_bits();

const fn next_bound(last: u64) -> u64 {
    // Math.round(last * 1.2) in integers; at least one more.
    let next = (last * 12 + 5) / 10;
    if next == last { last + 1 } else { next }
}

const fn bounds() -> [u64; ESTIMATED_BOUNDS] {
    let mut all = [0; ESTIMATED_BOUNDS];
    let (mut i, mut last) = (0, 1);
    while i < ESTIMATED_BOUNDS {
        all[i] = last;
        last = next_bound(last);
        i += 1;
    }
    all
}

const fn first_of_bits() -> [u8; 65] {
    let mut first = [0; 65];
    let mut bits = 1;
    while bits <= 64 {
        let smallest = 1_u64 << (bits - 1);
        let mut i = 0;
        while i < ESTIMATED_BOUNDS && BOUNDS[i] < smallest {
            i += 1;
        }
        first[bits] = i as u8;
        bits += 1;
    }
    first
}

fn bucket_of(value: u64) -> usize {
    let bits = 64 - value.leading_zeros() as usize;
    let mut bucket = FIRST_OF_BITS.get(bits).map_or(0, |b| usize::from(*b));
    // At most four steps: a power of two has no more bounds.
    while BOUNDS.get(bucket).is_some_and(|bound| *bound < value) {
        bucket += 1;
    }
    bucket
}

/// Distribution of values on one shard. Recording needs neither allocation nor locks.
#[derive(Clone)]
pub struct EstimatedHistogram(Rc<Inner>);

struct Inner {
    buckets: [Cell<u64>; BUCKETS],
    sum: Cell<u64>,
}

impl Default for EstimatedHistogram {
    fn default() -> Self {
        let buckets = std::array::from_fn(|_| Cell::new(0));
        EstimatedHistogram(Rc::new(Inner { buckets, sum: Cell::new(0) }))
    }
}

impl EstimatedHistogram {
    /// Counts one value.
    #[inline]
    pub fn record(&self, value: u64) {
        self.add(value, value, 1);
    }

    /// Counts one latency given in nanoseconds. Buckets have whole microseconds, the sum stays in
    /// nanoseconds, so the mean of latencies below a microsecond is right.
    #[inline]
    pub fn record_nanos(&self, nanos: u64) {
        self.add(nanos / 1000, nanos, 1);
    }

    /// Counts the same latency that many times.
    #[inline]
    pub fn record_nanos_times(&self, nanos: u64, times: u64) {
        self.add(nanos / 1000, nanos, times);
    }

    #[inline]
    fn add(&self, value: u64, amount: u64, times: u64) {
        if let Some(bucket) = self.0.buckets.get(bucket_of(value)) {
            bucket.set(bucket.get().wrapping_add(times));
        }
        self.0.sum.set(self.0.sum.get().wrapping_add(amount.wrapping_mul(times)));
    }

    /// The values so far as plain data.
    pub fn snapshot(&self) -> EstimatedSnapshot {
        let mut buckets: Vec<u64> = self.0.buckets.iter().map(Cell::get).collect();
        let used = buckets.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
        buckets.truncate(used);
        EstimatedSnapshot { buckets, sum: self.0.sum.get() }
    }
}

impl fmt::Debug for EstimatedHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// Content of an [`EstimatedHistogram`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EstimatedSnapshot {
    /// One count for each of [`BOUNDS`], then one for larger values; empty ones at the end are left
    /// out.
    pub buckets: Vec<u64>,
    /// Sum of all values, wrapping; of latencies in nanoseconds.
    pub sum: u64,
}

impl EstimatedSnapshot {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Adds the values of another one.
    pub fn merge(&mut self, other: &EstimatedSnapshot) {
        add_buckets(&mut self.buckets, &other.buckets);
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// Adds counts bucket by bucket, also of histograms with more bounds than [`BOUNDS`].
pub fn add_buckets(mine: &mut Vec<u64>, other: &[u64]) {
    if mine.len() < other.len() {
        mine.resize(other.len(), 0);
    }
    for (mine, n) in mine.iter_mut().zip(other) {
        *mine = mine.saturating_add(*n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_cassandras() {
        assert_eq!(BOUNDS[..13], [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20]);
        assert_eq!(BOUNDS[ESTIMATED_BOUNDS - 1], 25_109_160);
    }

    #[test]
    fn every_value_lies_in_the_first_bucket_whose_bound_is_not_below_it() {
        let around = BOUNDS.iter().flat_map(|b| [b - 1, *b, b + 1]);
        let powers = (0..64).flat_map(|s| [1_u64 << s, (1_u64 << s) - 1]);
        for value in around.chain(powers).chain([u64::MAX]) {
            let expected = BOUNDS.partition_point(|b| *b < value);
            assert_eq!(bucket_of(value), expected, "{value}");
        }
    }

    #[test]
    fn latencies_below_a_microsecond_count_in_the_mean() {
        let histogram = EstimatedHistogram::default();
        histogram.record_nanos(400);
        histogram.record_nanos(2_600);
        histogram.record(u64::MAX);
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.buckets[..2], [1, 1]);
        assert_eq!((snapshot.count(), snapshot.buckets[ESTIMATED_BOUNDS]), (3, 1));
        assert_eq!(snapshot.sum, 3_000_u64.wrapping_add(u64::MAX));
    }

    #[test]
    fn merged_snapshots_count_both() {
        let (a, b) = (EstimatedHistogram::default(), EstimatedHistogram::default());
        a.record(1);
        b.record(1);
        b.record(9);
        b.record_nanos_times(2_000, 3);
        let mut all = a.snapshot();
        all.merge(&b.snapshot());
        assert_eq!((all.buckets.as_slice(), all.sum), (&[2, 3, 0, 0, 0, 0, 0, 0, 1][..], 6_011));
        assert_eq!(EstimatedHistogram::default().snapshot(), EstimatedSnapshot::default());
    }
}
