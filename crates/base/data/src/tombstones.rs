//! Range tombstones of one partition as disjoint ranges.

use std::cmp::Ordering;

use crate::clustering::{BoundRef, ClusteringComparator};
use crate::deletion::DeletionTime;
use crate::mutation::RangeTombstoneRef;

/// An owned bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundBuf {
    prefix: Box<[u8]>,
    after: bool,
}

impl BoundBuf {
    /// A copy of a bound.
    pub fn new(bound: BoundRef<'_>) -> BoundBuf {
        BoundBuf { prefix: bound.prefix.into(), after: bound.after }
    }

    /// A view.
    pub fn as_bound(&self) -> BoundRef<'_> {
        BoundRef { prefix: &self.prefix, after: self.after }
    }
}

/// One range with its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// Where it starts.
    pub start: BoundBuf,
    /// Where it ends.
    pub end: BoundBuf,
    /// What it deletes.
    pub deletion: DeletionTime,
}

impl RangeTombstone {
    /// A view.
    pub fn as_ref(&self) -> RangeTombstoneRef<'_> {
        RangeTombstoneRef {
            start: self.start.as_bound(),
            end: self.end.as_bound(),
            deletion: self.deletion,
        }
    }

    fn heap_bytes(&self) -> usize {
        self.start.prefix.len() + self.end.prefix.len() + std::mem::size_of::<RangeTombstone>()
    }
}

/// Disjoint ranges in ascending order; of overlapping deletions the winning one is kept per
/// stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeTombstoneList {
    ranges: Vec<RangeTombstone>,
}

impl RangeTombstoneList {
    /// No ranges.
    pub fn new() -> Self {
        RangeTombstoneList::default()
    }

    /// The ranges, ascending and disjoint.
    pub fn ranges(&self) -> &[RangeTombstone] {
        &self.ranges
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes held, for memory accounting.
    pub fn heap_bytes(&self) -> usize {
        self.ranges.iter().map(RangeTombstone::heap_bytes).sum()
    }

    /// Index of the first range that ends after `bound`.
    pub fn first_ending_after(&self, cmp: &ClusteringComparator, bound: BoundRef<'_>) -> usize {
        self.ranges
            .partition_point(|r| cmp.compare_bounds(r.end.as_bound(), bound) != Ordering::Greater)
    }

    /// The deletion that covers a row, or live.
    pub fn covering(&self, cmp: &ClusteringComparator, clustering: &[u8]) -> DeletionTime {
        let index = self
            .ranges
            .partition_point(|r| cmp.compare_to_bound(clustering, r.end.as_bound()).is_gt());
        match self.ranges.get(index) {
            Some(r) if cmp.compare_to_bound(clustering, r.start.as_bound()).is_gt() => r.deletion,
            _ => DeletionTime::LIVE,
        }
    }

    /// Adds a range; ranges that select nothing are ignored. By how many bytes [`RangeTombstoneList::heap_bytes`]
    /// has grown: that looks at all ranges.
    pub fn add(&mut self, cmp: &ClusteringComparator, new: RangeTombstoneRef<'_>) -> isize {
        if new.deletion.is_live() || cmp.compare_bounds(new.start, new.end) != Ordering::Less {
            return 0;
        }
        // Ranges that only touch the new one are looked at too: they may become one with it.
        let first = self
            .ranges
            .partition_point(|r| cmp.compare_bounds(r.end.as_bound(), new.start).is_lt());
        let mut last = first;
        let mut pieces: Vec<RangeTombstone> = Vec::new();
        let mut push = |start: BoundRef<'_>, end: BoundRef<'_>, deletion: DeletionTime| {
            if cmp.compare_bounds(start, end) != Ordering::Less {
                return;
            }
            if let Some(previous) = pieces.last_mut()
                && previous.deletion == deletion
                && cmp.compare_bounds(previous.end.as_bound(), start) == Ordering::Equal
            {
                previous.end = BoundBuf::new(end);
                return;
            }
            pieces.push(RangeTombstone {
                start: BoundBuf::new(start),
                end: BoundBuf::new(end),
                deletion,
            });
        };
        let mut at = new.start;
        while let Some(old) = self.ranges.get(last) {
            let old = old.as_ref();
            if cmp.compare_bounds(old.start, new.end) == Ordering::Greater {
                break;
            }
            last += 1;
            push(old.start, min(cmp, old.end, new.start), old.deletion);
            push(at, min(cmp, old.start, new.end), new.deletion);
            let (from, to) = (max(cmp, old.start, new.start), min(cmp, old.end, new.end));
            push(from, to, old.deletion.max(new.deletion));
            push(new.end, old.end, old.deletion);
            at = to;
        }
        push(at, new.end, new.deletion);
        let added: usize = pieces.iter().map(RangeTombstone::heap_bytes).sum();
        let replaced = self.ranges.splice(first..last, pieces);
        let replaced: usize = replaced.map(|range| range.heap_bytes()).sum();
        isize::try_from(added).unwrap_or(isize::MAX) - isize::try_from(replaced).unwrap_or(0)
    }
}

fn max<'a>(cmp: &ClusteringComparator, a: BoundRef<'a>, b: BoundRef<'a>) -> BoundRef<'a> {
    if cmp.compare_bounds(a, b) == Ordering::Less { b } else { a }
}

fn min<'a>(cmp: &ClusteringComparator, a: BoundRef<'a>, b: BoundRef<'a>) -> BoundRef<'a> {
    if cmp.compare_bounds(a, b) == Ordering::Greater { b } else { a }
}
