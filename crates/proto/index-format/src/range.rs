//! Ranges of terms.

use std::cmp::Ordering;
use std::ops::Bound;

/// Terms between two bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermRange {
    /// Lower bound.
    pub lower: Bound<Vec<u8>>,
    /// Upper bound.
    pub upper: Bound<Vec<u8>>,
}

impl TermRange {
    /// All terms.
    pub fn all() -> TermRange {
        TermRange { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// One term.
    pub fn equal(term: &[u8]) -> TermRange {
        TermRange { lower: Bound::Included(term.to_vec()), upper: Bound::Included(term.to_vec()) }
    }

    /// The terms that begin with these bytes.
    pub fn prefix(prefix: &[u8]) -> TermRange {
        let mut next = prefix.to_vec();
        while let Some(last) = next.pop() {
            if let Some(above) = last.checked_add(1) {
                next.push(above);
                return TermRange {
                    lower: Bound::Included(prefix.to_vec()),
                    upper: Bound::Excluded(next),
                };
            }
        }
        TermRange { lower: Bound::Included(prefix.to_vec()), upper: Bound::Unbounded }
    }

    /// Returns true if the term is in the range.
    pub fn contains(&self, term: &[u8]) -> bool {
        self.is_above_lower(term) && self.is_below_upper(term)
    }

    pub(crate) fn is_above_lower(&self, term: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) => term >= lower.as_slice(),
            Bound::Excluded(lower) => term > lower.as_slice(),
            Bound::Unbounded => true,
        }
    }

    pub(crate) fn is_below_upper(&self, term: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => term <= upper.as_slice(),
            Bound::Excluded(upper) => term < upper.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// Returns true if all terms below `end`, which no term of a subtree reaches, are below the upper bound.
    pub(crate) fn covers_below(&self, end: Option<&[u8]>) -> bool {
        match (&self.upper, end) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(upper) | Bound::Excluded(upper), Some(end)) => end <= upper.as_slice(),
            (_, None) => false,
        }
    }

    /// The term of an equality.
    pub(crate) fn point(&self) -> Option<&[u8]> {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) if lower == upper => Some(lower),
            _ => None,
        }
    }

    pub(crate) fn lower_term(&self) -> Option<&[u8]> {
        match &self.lower {
            Bound::Included(term) | Bound::Excluded(term) => Some(term),
            Bound::Unbounded => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
                a >= b
            }
            _ => false,
        }
    }

    /// Opens the bounds that no term between `min` and `max` is beyond. None: no such term is in the range.
    fn clamp(mut self, min: &[u8], max: &[u8]) -> Option<TermRange> {
        let starts_after = match &self.lower {
            Bound::Included(lower) => lower.as_slice() > max,
            Bound::Excluded(lower) => lower.as_slice() >= max,
            Bound::Unbounded => false,
        };
        let ends_before = match &self.upper {
            Bound::Included(upper) => upper.as_slice() < min,
            Bound::Excluded(upper) => upper.as_slice() <= min,
            Bound::Unbounded => false,
        };
        if starts_after || ends_before || self.is_empty() {
            return None;
        }
        if self.is_above_lower(min) {
            self.lower = Bound::Unbounded;
        }
        if self.is_below_upper(max) {
            self.upper = Bound::Unbounded;
        }
        Some(self)
    }
}

fn compare_lower(a: &Bound<Vec<u8>>, b: &Bound<Vec<u8>>) -> Ordering {
    // An excluded lower bound begins after an included one.
    let key = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Unbounded => None,
        Bound::Included(term) => Some((term.clone(), false)),
        Bound::Excluded(term) => Some((term.clone(), true)),
    };
    key(a).cmp(&key(b))
}

fn max_upper(a: Bound<Vec<u8>>, b: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    let order = match (&a, &b) {
        (Bound::Unbounded, _) => Ordering::Greater,
        (_, Bound::Unbounded) => Ordering::Less,
        (Bound::Included(a), Bound::Included(b)) | (Bound::Excluded(a), Bound::Excluded(b)) => {
            a.cmp(b)
        }
        (Bound::Included(a), Bound::Excluded(b)) => a.cmp(b).then(Ordering::Greater),
        (Bound::Excluded(a), Bound::Included(b)) => a.cmp(b).then(Ordering::Less),
    };
    if order == Ordering::Less { b } else { a }
}

/// Returns true if no term can be between the end of the first and the begin of the second.
fn touch(upper: &Bound<Vec<u8>>, lower: &Bound<Vec<u8>>) -> bool {
    match (upper, lower) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Excluded(a), Bound::Excluded(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            a >= b
        }
    }
}

/// Ascending ranges without overlap with the terms of `ranges` that are between `min` and `max`.
pub(crate) fn normalise(ranges: Vec<TermRange>, min: &[u8], max: &[u8]) -> Vec<TermRange> {
    let mut clamped: Vec<TermRange> =
        ranges.into_iter().filter_map(|range| range.clamp(min, max)).collect();
    clamped.sort_by(|a, b| compare_lower(&a.lower, &b.lower));
    let mut merged: Vec<TermRange> = Vec::with_capacity(clamped.len());
    for range in clamped {
        match merged.last_mut() {
            Some(last) if touch(&last.upper, &range.lower) => {
                let upper = std::mem::replace(&mut last.upper, Bound::Unbounded);
                last.upper = max_upper(upper, range.upper);
            }
            _ => merged.push(range),
        }
    }
    merged
}
