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
    /// The deletion of the range.
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

/// Ranges of one chunk at most. Up to as many are one run; of more each chunk is a run of its own,
/// so that inserting a range between others moves only those of its chunk.
const CHUNK_MAX: usize = 128;

/// Disjoint ranges in ascending order; of overlapping deletions the winning one is kept per
/// stretch. A range has a *place*, a number that grows from range to range and is good until the list changes.
#[derive(Clone, Debug)]
pub struct RangeTombstoneList {
    ranges: Ranges,
}

#[derive(Clone, Debug)]
enum Ranges {
    Few(Vec<RangeTombstone>),
    Many(Box<Chunks>),
}

/// None of them is empty or holds more than [`CHUNK_MAX`]. A place is the number of the chunk times that, and
/// the place in it.
#[derive(Clone, Debug)]
struct Chunks(Vec<Vec<RangeTombstone>>);

impl Default for RangeTombstoneList {
    fn default() -> Self {
        RangeTombstoneList { ranges: Ranges::Few(Vec::new()) }
    }
}

impl PartialEq for RangeTombstoneList {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for RangeTombstoneList {}

impl RangeTombstoneList {
    /// No ranges.
    pub fn new() -> Self {
        RangeTombstoneList::default()
    }

    /// The ranges, ascending and disjoint.
    pub fn iter(&self) -> impl Iterator<Item = &RangeTombstone> {
        let (few, many) = match &self.ranges {
            Ranges::Few(few) => (few.as_slice(), [].as_slice()),
            Ranges::Many(chunks) => ([].as_slice(), chunks.0.as_slice()),
        };
        few.iter().chain(many.iter().flatten())
    }

    /// True when there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        match &self.ranges {
            Ranges::Few(few) => few.is_empty(),
            Ranges::Many(_) => false,
        }
    }

    /// Bytes held, for memory accounting.
    pub fn heap_bytes(&self) -> usize {
        self.iter().map(RangeTombstone::heap_bytes).sum()
    }

    /// The range of a place.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&RangeTombstone> {
        match &self.ranges {
            Ranges::Few(few) => few.get(place),
            Ranges::Many(chunks) => chunks.0.get(place / CHUNK_MAX)?.get(place % CHUNK_MAX),
        }
    }

    /// The place behind that of a range; behind the last one there is nothing.
    #[inline]
    pub fn next(&self, place: usize) -> usize {
        match &self.ranges {
            Ranges::Few(_) => place + 1,
            Ranges::Many(chunks) => {
                let length = chunks.0.get(place / CHUNK_MAX).map_or(0, Vec::len);
                if place % CHUNK_MAX + 1 < length {
                    place + 1
                } else {
                    (place / CHUNK_MAX + 1) * CHUNK_MAX
                }
            }
        }
    }

    /// The place before that of a range.
    #[inline]
    pub fn previous(&self, place: usize) -> Option<usize> {
        match &self.ranges {
            Ranges::Few(_) => place.checked_sub(1),
            Ranges::Many(_) if !place.is_multiple_of(CHUNK_MAX) => Some(place - 1),
            Ranges::Many(chunks) => {
                let before = (place / CHUNK_MAX).checked_sub(1)?;
                let length = chunks.0.get(before)?.len();
                Some(before * CHUNK_MAX + length.checked_sub(1)?)
            }
        }
    }

    /// Place of the first range for which `is_before` does not hold, which holds for those before it only.
    #[inline]
    fn first_not(&self, is_before: impl Fn(&RangeTombstone) -> bool) -> usize {
        match &self.ranges {
            Ranges::Few(few) => few.partition_point(is_before),
            Ranges::Many(chunks) => {
                let is_whole = |chunk: &Vec<RangeTombstone>| chunk.last().is_some_and(&is_before);
                let chunk = chunks.0.partition_point(is_whole);
                let inside = chunks.0.get(chunk).map_or(0, |c| c.partition_point(is_before));
                chunk * CHUNK_MAX + inside
            }
        }
    }

    /// Place of the first range that ends after `bound`.
    pub fn first_ending_after(&self, cmp: &ClusteringComparator, bound: BoundRef<'_>) -> usize {
        self.first_not(|r| cmp.compare_bounds(r.end.as_bound(), bound) != Ordering::Greater)
    }

    /// Place of the last range that starts before `bound`.
    pub fn last_starting_before(
        &self,
        cmp: &ClusteringComparator,
        bound: BoundRef<'_>,
    ) -> Option<usize> {
        let is_before = |r: &RangeTombstone| cmp.compare_bounds(r.start.as_bound(), bound).is_lt();
        self.previous(self.first_not(is_before))
    }

    /// The deletion that covers a row, or live.
    pub fn covering(&self, cmp: &ClusteringComparator, clustering: &[u8]) -> DeletionTime {
        let place = self.first_not(|r| cmp.compare_to_bound(clustering, r.end.as_bound()).is_gt());
        match self.get(place) {
            Some(r) if cmp.compare_to_bound(clustering, r.start.as_bound()).is_gt() => r.deletion,
            _ => DeletionTime::LIVE,
        }
    }

    /// Adds a range; ranges that select nothing are ignored. Returns by how many bytes
    /// [`RangeTombstoneList::heap_bytes`] has grown: that one scans all ranges.
    pub fn add(&mut self, cmp: &ClusteringComparator, new: RangeTombstoneRef<'_>) -> isize {
        if new.deletion.is_live() || cmp.compare_bounds(new.start, new.end) != Ordering::Less {
            return 0;
        }
        // Ranges that only touch the new one are compared too: they may become one with it.
        let first = self.first_not(|r| cmp.compare_bounds(r.end.as_bound(), new.start).is_lt());
        let (mut place, mut count) = (first, 0);
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
        while let Some(old) = self.get(place) {
            let old = old.as_ref();
            if cmp.compare_bounds(old.start, new.end) == Ordering::Greater {
                break;
            }
            (place, count) = (self.next(place), count + 1);
            push(old.start, min(cmp, old.end, new.start), old.deletion);
            push(at, min(cmp, old.start, new.end), new.deletion);
            let (from, to) = (max(cmp, old.start, new.start), min(cmp, old.end, new.end));
            push(from, to, old.deletion.max(new.deletion));
            push(new.end, old.end, old.deletion);
            at = to;
        }
        push(at, new.end, new.deletion);
        let added: usize = pieces.iter().map(RangeTombstone::heap_bytes).sum();
        let replaced = self.replace(first, count, pieces);
        isize::try_from(added).unwrap_or(isize::MAX) - isize::try_from(replaced).unwrap_or(0)
    }

    /// Replaces `count` ranges with `pieces`; returns how many bytes those had.
    fn replace(&mut self, first: usize, count: usize, pieces: Vec<RangeTombstone>) -> usize {
        match &mut self.ranges {
            Ranges::Few(few) => {
                let end = first.saturating_add(count).min(few.len());
                let gone = few.splice(first.min(end)..end, pieces);
                let bytes = gone.map(|range| range.heap_bytes()).sum();
                if few.len() > CHUNK_MAX {
                    let mut chunks = Chunks(vec![std::mem::take(few)]);
                    chunks.split(0);
                    self.ranges = Ranges::Many(Box::new(chunks));
                }
                bytes
            }
            Ranges::Many(chunks) => chunks.replace(first, count, pieces),
        }
    }
}

impl Chunks {
    fn replace(&mut self, first: usize, mut count: usize, pieces: Vec<RangeTombstone>) -> usize {
        // Behind the last chunk is at its end.
        let at = (first / CHUNK_MAX).min(self.0.len().saturating_sub(1));
        let is_behind = at < first / CHUNK_MAX;
        let Some(chunk) = self.0.get_mut(at) else { return 0 };
        let inside = if is_behind { chunk.len() } else { (first % CHUNK_MAX).min(chunk.len()) };
        let here = count.min(chunk.len() - inside);
        let gone = chunk.splice(inside..inside + here, pieces);
        let mut bytes: usize = gone.map(|range| range.heap_bytes()).sum();
        count -= here;
        // The remaining tombstones to replace stand at the start of the next chunks.
        let is_whole = |chunk: &&Vec<RangeTombstone>| {
            let fits = chunk.len() <= count;
            count -= if fits { chunk.len() } else { 0 };
            fits
        };
        let whole = self.0.iter().skip(at + 1).take_while(is_whole).count();
        let gone = self.0.drain(at + 1..at + 1 + whole);
        bytes += gone.flatten().map(|range| range.heap_bytes()).sum::<usize>();
        if count > 0
            && let Some(next) = self.0.get_mut(at + 1)
        {
            let gone = next.drain(..count.min(next.len()));
            bytes += gone.map(|range| range.heap_bytes()).sum::<usize>();
        }
        self.split(at);
        bytes
    }

    /// Makes several of a chunk that has too many ranges.
    fn split(&mut self, at: usize) {
        let is_last = at + 1 == self.0.len();
        let Some(chunk) = self.0.get_mut(at).filter(|chunk| chunk.len() > CHUNK_MAX) else {
            return;
        };
        // Behind the last chunk more will come in order: it stays full. Others have room left.
        let size = if is_last { CHUNK_MAX } else { CHUNK_MAX / 2 };
        let mut rest = std::mem::take(chunk).into_iter();
        let parts = std::iter::from_fn(|| {
            let part: Vec<RangeTombstone> = rest.by_ref().take(size).collect();
            (!part.is_empty()).then_some(part)
        });
        let parts: Vec<Vec<RangeTombstone>> = parts.collect();
        self.0.splice(at..=at, parts);
    }
}

fn max<'a>(cmp: &ClusteringComparator, a: BoundRef<'a>, b: BoundRef<'a>) -> BoundRef<'a> {
    if cmp.compare_bounds(a, b) == Ordering::Less { b } else { a }
}

fn min<'a>(cmp: &ClusteringComparator, a: BoundRef<'a>, b: BoundRef<'a>) -> BoundRef<'a> {
    if cmp.compare_bounds(a, b) == Ordering::Greater { b } else { a }
}
