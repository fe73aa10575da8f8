//! Log-linear histogram: eight cells per power of two, so a quantile is off by at most 12.5 %.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

/// Cells per power of two, as a power of two.
const SUB_BITS: u32 = 3;
const SUB: usize = 1 << SUB_BITS;
/// Values 0..8 have a cell each, then eight cells for each of the 61 higher powers of two.
const CELLS: usize = SUB + (64 - SUB_BITS as usize) * SUB;

/// Distribution of `u64` values of one unit. 4 KiB, allocated when registered.
#[derive(Clone)]
pub struct Histogram(Rc<Inner>);

struct Inner {
    cells: RefCell<Box<[u64]>>,
    sum: Cell<u64>,
    max: Cell<u64>,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram(Rc::new(Inner {
            cells: RefCell::new(vec![0; CELLS].into_boxed_slice()),
            sum: Cell::new(0),
            max: Cell::new(0),
        }))
    }

    /// Counts one value.
    pub fn record(&self, value: u64) {
        if let Some(cell) = self.0.cells.borrow_mut().get_mut(cell_of(value)) {
            *cell += 1;
        }
        self.0.sum.set(self.0.sum.get().wrapping_add(value));
        self.0.max.set(self.0.max.get().max(value));
    }

    /// The values so far as plain data.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let cells = self.0.cells.borrow();
        let filled: Vec<(u16, u64)> = (0u16..)
            .zip(cells.iter())
            .filter(|(_, count)| **count > 0)
            .map(|(i, count)| (i, *count))
            .collect();
        HistogramSnapshot { filled, sum: self.0.sum.get(), max: self.0.max.get() }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// Content of a [`Histogram`]: only the cells that are not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// (cell number, count), ascending by cell.
    filled: Vec<(u16, u64)>,
    /// Sum of all values, wrapping.
    pub sum: u64,
    /// Largest value, exact; 0 when there is none.
    pub max: u64,
}

impl HistogramSnapshot {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.filled.iter().map(|(_, count)| count).sum()
    }

    /// Smallest upper bound that covers `quantile` (0.0..=1.0) of the values, at most `max`;
    /// 0 when there is no value.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let count = self.count();
        // Rounded up, so that quantile(1.0) is the last value and quantile(0.0) the first.
        let wanted = ((count as f64) * quantile.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (cell, n) in &self.filled {
            seen += n;
            if seen >= wanted {
                return upper_bound(usize::from(*cell)).min(self.max);
            }
        }
        self.max
    }

    /// (upper bound inclusive, count in the cell), ascending; for exporters with cumulative
    /// buckets.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.filled.iter().map(|(cell, n)| (upper_bound(usize::from(*cell)), *n))
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &HistogramSnapshot) {
        for (cell, n) in &other.filled {
            match self.filled.binary_search_by_key(cell, |(c, _)| *c) {
                Ok(i) => {
                    if let Some(mine) = self.filled.get_mut(i) {
                        mine.1 += n;
                    }
                }
                Err(i) => self.filled.insert(i, (*cell, *n)),
            }
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

fn cell_of(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let magnitude = 63 - value.leading_zeros();
    let sub = (value >> (magnitude - SUB_BITS)) as usize & (SUB - 1);
    SUB + (magnitude - SUB_BITS) as usize * SUB + sub
}

fn upper_bound(cell: usize) -> u64 {
    if cell < SUB {
        return cell as u64;
    }
    let shift = (cell - SUB) / SUB;
    let sub = (cell - SUB) % SUB;
    let first = ((SUB + sub) as u64) << shift;
    first + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_a_cell_whose_bound_is_at_most_an_eighth_above() {
        let mut values: Vec<u64> = (0..64).flat_map(|s| [1u64 << s, (1u64 << s) - 1]).collect();
        values.extend([u64::MAX, 1000, 12345, 999_999_999]);
        for v in values {
            let cell = cell_of(v);
            assert!(cell < CELLS, "{v}");
            let bound = upper_bound(cell);
            assert!(bound >= v && bound - v <= v / 8, "{v} in cell up to {bound}");
            if cell > 0 {
                assert!(upper_bound(cell - 1) < v, "{v}");
            }
        }
    }

    #[test]
    fn quantiles_are_ordered_and_capped_by_the_largest_value() {
        let h = Histogram::new();
        assert_eq!(h.snapshot().quantile(0.5), 0);
        for v in 1..=1000 {
            h.record(v);
        }
        let s = h.snapshot();
        assert_eq!((s.count(), s.sum, s.max), (1000, 500_500, 1000));
        assert_eq!(s.quantile(1.0), 1000);
        assert_eq!(s.quantile(0.0), 1);
        let (p50, p99) = (s.quantile(0.5), s.quantile(0.99));
        assert!((500..=563).contains(&p50), "{p50}");
        assert!((990..=1000).contains(&p99), "{p99}");
    }

    #[test]
    fn merged_histogram_counts_both() {
        let (a, b) = (Histogram::new(), Histogram::new());
        a.record(1);
        b.record(1);
        b.record(70);
        let mut s = a.snapshot();
        s.merge(&b.snapshot());
        assert_eq!((s.count(), s.sum, s.max), (3, 72, 70));
        assert_eq!(s.buckets().map(|(_, n)| n).collect::<Vec<_>>(), [2, 1]);
    }
}
