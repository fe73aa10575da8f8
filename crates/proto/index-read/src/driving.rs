//! Numbers that estimates decide: the driving predicate, how many ranges are searched at a time, keys of a search.

use index_format::Matches;

/// Ranges of the ring that are searched at first.
const RANGES_AT_FIRST: u32 = 8;
/// Most keys of one search.
pub const KEYS_MAX: u32 = 1024;
/// Fewest keys of one search.
const KEYS_MIN: u32 = 64;
/// A read whose candidates are this share or more of the table's rows is better a scan.
const MANY_PERCENT: u64 = 10;
/// Tables with fewer rows get no advice.
const ROWS_OF_ADVICE: u64 = 1000;

/// Estimates of a statement's predicates, as far as it has searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverEstimates {
    /// Candidates of each predicate.
    pub candidates: Vec<u64>,
    /// Rows of the table.
    pub rows: u64,
}

impl DriverEstimates {
    /// Takes the estimates of an answer, if there are none yet.
    pub fn note(&mut self, matches: &Matches) {
        if self.candidates.is_empty() {
            (self.candidates, self.rows) = (matches.estimates.clone(), matches.rows);
        }
    }

    /// The predicate with the fewest candidates; the first of several.
    pub fn driving(&self) -> usize {
        let smallest = self.candidates.iter().enumerate().min_by_key(|(at, count)| (**count, *at));
        smallest.map_or(0, |(at, _)| at)
    }

    /// Returns the share of the table's rows that are candidates of a predicate, in per cent, if it is so large that a scan
    /// would be faster.
    pub fn too_many(&self, predicate: usize) -> Option<u64> {
        let candidates = *self.candidates.get(predicate)?;
        let is_large = self.rows >= ROWS_OF_ADVICE;
        let percent = candidates.saturating_mul(100).checked_div(self.rows)?.min(100);
        (is_large && percent >= MANY_PERCENT).then_some(percent)
    }
}

/// How many ranges are searched at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeConcurrency {
    /// Most.
    pub max: u32,
    /// Ranges searched so far.
    pub searched: u32,
}

impl RangeConcurrency {
    /// Ranges to search next: as many as should give the rows that are missing. Source:
    /// `RangeCommandIterator.computeConcurrencyFactor`.
    pub fn next(&self, shown: u64, wanted: u64) -> u32 {
        if self.searched == 0 {
            return RANGES_AT_FIRST.min(self.max).max(1);
        }
        if shown == 0 || shown >= wanted || wanted == u64::MAX {
            // No row, or too many of them did not pass the filter.
            return self.max.max(1);
        }
        let missing = wanted.saturating_sub(shown);
        let ranges = missing.saturating_mul(u64::from(self.searched)).saturating_add(shown / 2);
        let ranges = ranges.checked_div(shown).unwrap_or(u64::MAX);
        u32::try_from(ranges).unwrap_or(u32::MAX).clamp(1, self.max.max(1))
    }
}

/// Keys of the next search, when so many rows are missing.
pub fn keys_of_search(missing: u64) -> u32 {
    u32::try_from(missing.saturating_mul(2)).unwrap_or(u32::MAX).clamp(KEYS_MIN, KEYS_MAX)
}
