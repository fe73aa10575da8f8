//! The index of a memtable: terms to rows, in order, in memory.
//!
//! A row that is overwritten stays under its old term (no read before a write); the check of the row finds it out.
//! Every insertion returns the bytes that it takes, for the budget of the memtable.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use smallvec::SmallVec;

use crate::leaf::Counts;
use crate::range::normalise;
use crate::{TermFilter, TermRange};

/// Bytes of a term that are compared as a number and need no allocation.
const HEAD: usize = 8;
/// Bytes that an entry of the map takes besides term and rows: its share of a node of the tree.
const ENTRY_BYTES: usize = 16;

/// A term whose order is that of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    head: u64,
    /// Bytes after the head.
    tail: Box<[u8]>,
    length: u32,
}

impl Term {
    fn new(term: &[u8]) -> Term {
        let mut head = [0; HEAD];
        head.iter_mut().zip(term).for_each(|(to, from)| *to = *from);
        let tail = term.get(HEAD..).unwrap_or_default().into();
        let length = u32::try_from(term.len()).unwrap_or(u32::MAX);
        Term { head: u64::from_be_bytes(head), tail, length }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length as usize);
        self.copy_to(&mut bytes);
        bytes
    }

    fn copy_to(&self, out: &mut Vec<u8>) {
        let length = HEAD.min(self.length as usize);
        out.extend_from_slice(self.head.to_be_bytes().get(..length).unwrap_or_default());
        out.extend_from_slice(&self.tail);
    }
}

impl Ord for Term {
    fn cmp(&self, other: &Term) -> Ordering {
        let heads = self.head.cmp(&other.head);
        heads.then_with(|| self.tail.cmp(&other.tail)).then(self.length.cmp(&other.length))
    }
}

impl PartialOrd for Term {
    fn partial_cmp(&self, other: &Term) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Terms of one index and the rows that had them. `K` is a row's key in the order of the table.
#[derive(Clone, Debug)]
pub struct MemtableIndex<K> {
    terms: BTreeMap<Term, SmallVec<[K; 1]>>,
    bytes: usize,
    counts: Counts,
}

impl<K> Default for MemtableIndex<K> {
    fn default() -> MemtableIndex<K> {
        MemtableIndex { terms: BTreeMap::new(), bytes: 0, counts: Counts::default() }
    }
}

impl<K: Ord + Clone> MemtableIndex<K> {
    /// Adds a row under a term. Returns the bytes by which the index grew, those that `row` refers to not counted.
    pub fn insert(&mut self, term: &[u8], row: K) -> usize {
        let mut grown = 0;
        let counts = &mut self.counts;
        let rows = self.terms.entry(Term::new(term)).or_insert_with(|| {
            let tail = term.len().saturating_sub(HEAD);
            grown += size_of::<Term>() + size_of::<SmallVec<[K; 1]>>() + ENTRY_BYTES + tail;
            counts.terms += 1;
            SmallVec::new()
        });
        // The same row written twice in a row is the usual repetition; others cost their space.
        if rows.last() == Some(&row) {
            return 0;
        }
        let before = if rows.spilled() { rows.capacity() } else { 0 };
        rows.push(row);
        let after = if rows.spilled() { rows.capacity() } else { 0 };
        grown += (after - before) * size_of::<K>();
        self.counts.ids += 1;
        self.bytes += grown;
        grown
    }

    /// Drops some terms; false when there is none left. Dropping all of a large index at once takes long.
    pub fn drop_some(&mut self, count: usize) -> bool {
        (0..count).all(|_| self.terms.pop_first().is_some()) || !self.terms.is_empty()
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Terms and pairs, repeated ones included.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn visit(&self, ranges: Vec<TermRange>, mut each: impl FnMut(&[K])) {
        let Some((last, _)) = self.terms.last_key_value() else { return };
        for range in normalise(ranges, &[], &last.bytes()) {
            let bound = |bound: Bound<Vec<u8>>| bound.map(|term| Term::new(&term));
            let found = self.terms.range((bound(range.lower), bound(range.upper)));
            found.for_each(|(_, rows)| each(rows));
        }
    }

    /// Terms and pairs in ranges, at most; a pair that was added twice may count twice.
    pub fn estimate(&self, ranges: Vec<TermRange>) -> Counts {
        let mut counts = Counts::default();
        self.visit(ranges, |rows| {
            counts.terms += 1;
            counts.ids += rows.len() as u64;
        });
        counts
    }

    /// The rows of ranges, ascending, as they are now.
    pub fn rows(&self, ranges: Vec<TermRange>) -> MemtableRows<K> {
        let mut rows: Vec<K> = Vec::new();
        self.visit(ranges, |found| rows.extend_from_slice(found));
        MemtableRows::of(rows)
    }

    /// Continues a walk over up to `count` terms. Returns true at its end.
    pub fn walk(&self, walk: &mut FilteredWalk<K>, count: usize) -> bool {
        let mut left = count;
        while let Some(range) = walk.ranges.last() {
            let bound = |bound: &Bound<Vec<u8>>| match bound {
                Bound::Included(term) => Bound::Included(Term::new(term)),
                Bound::Excluded(term) => Bound::Excluded(Term::new(term)),
                Bound::Unbounded => Bound::Unbounded,
            };
            let lower = match walk.after.take() {
                Some(after) => Bound::Excluded(after),
                None => bound(&range.lower),
            };
            let mut last = None;
            for (term, rows) in self.terms.range((lower, bound(&range.upper))).take(left) {
                left -= 1;
                last = Some(term);
                walk.scratch.clear();
                term.copy_to(&mut walk.scratch);
                if walk.filter.accepts(&walk.scratch) {
                    walk.rows.extend_from_slice(rows);
                }
            }
            if left == 0 {
                walk.after = last.cloned();
                return false;
            }
            walk.ranges.pop();
        }
        true
    }
}

/// Rows of the terms of a memtable that pass a filter, found in parts: each distinct term is tested. Terms that are
/// added meanwhile may be left out.
#[derive(Clone, Debug)]
pub struct FilteredWalk<K> {
    /// In reverse order, none empty.
    ranges: Vec<TermRange>,
    filter: TermFilter,
    /// Term of the last range after which the walk continues; `None`: at its start.
    after: Option<Term>,
    rows: Vec<K>,
    scratch: Vec<u8>,
}

impl<K: Ord> FilteredWalk<K> {
    /// A walk before the first term.
    pub fn new(ranges: Vec<TermRange>, filter: TermFilter) -> FilteredWalk<K> {
        let mut ranges = ranges;
        ranges.retain(|range| !range.is_empty());
        ranges.reverse();
        FilteredWalk { ranges, filter, after: None, rows: Vec::new(), scratch: Vec::new() }
    }

    /// The rows that were found, ascending.
    pub fn finish(self) -> MemtableRows<K> {
        MemtableRows::of(self.rows)
    }
}

/// Rows of a memtable, ascending, each once.
#[derive(Clone, Debug)]
pub struct MemtableRows<K> {
    rows: Vec<K>,
    at: usize,
}

impl<K: Ord> MemtableRows<K> {
    fn of(mut rows: Vec<K>) -> MemtableRows<K> {
        rows.sort_unstable();
        rows.dedup();
        MemtableRows { rows, at: 0 }
    }

    /// Skips rows for which `is_before` is true, which those of the first rows are.
    pub fn skip_while(&mut self, is_before: impl Fn(&K) -> bool) {
        let ahead = self.rows.get(self.at..).unwrap_or_default();
        self.at += ahead.partition_point(is_before);
    }

    /// The current row. None: no further row.
    pub fn current(&self) -> Option<&K> {
        self.rows.get(self.at)
    }

    /// Moves past the current row.
    pub fn advance(&mut self) {
        self.at += 1;
    }

    /// Rows from the current one on.
    pub fn left(&self) -> usize {
        self.rows.len().saturating_sub(self.at)
    }
}
