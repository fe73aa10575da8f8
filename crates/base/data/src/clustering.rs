//! Clusterings, bounds and slices.
//!
//! A clustering (or a prefix of one) is kept serialised: for each component `length + 1` as LEB128
//! (0 = null, which only compact-storage tables have) and the bytes. It is compared by the table's
//! [`ClusteringComparator`], never byte-wise.

use std::cmp::Ordering;

use schema::{ColumnKind, Table};
use types::Comparator;

use crate::raw::{Raw, put_v};

/// Owned serialised clustering or prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusteringBuf(pub Vec<u8>);

impl ClusteringBuf {
    /// The empty prefix: the clustering of static rows and of tables without clustering columns.
    pub fn new() -> Self {
        ClusteringBuf(Vec::new())
    }

    /// Serialises the given components.
    pub fn from_components<'a>(components: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut out = Vec::new();
        for c in components {
            push_component(&mut out, Some(c));
        }
        ClusteringBuf(out)
    }

    /// The serialised bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends one component to a serialised clustering.
#[inline]
pub fn push_component(out: &mut Vec<u8>, component: Option<&[u8]>) {
    match component {
        None => put_v(out, 0),
        Some(bytes) => {
            put_v(out, bytes.len() as u64 + 1);
            out.extend_from_slice(bytes);
        }
    }
}

/// Components of a serialised clustering; `None` inside is a null component.
#[derive(Clone, Copy, Debug)]
pub struct Components<'a> {
    raw: Raw<'a>,
}

/// Iterates the components of serialised bytes that this process made or [`check`] accepted.
#[inline]
pub fn components(bytes: &[u8]) -> Components<'_> {
    Components { raw: Raw::new(bytes) }
}

impl<'a> Components<'a> {
    #[inline]
    fn step(&mut self) -> Option<Option<&'a [u8]>> {
        let n = self.raw.v()?;
        match n.checked_sub(1) {
            None => Some(None),
            Some(n) => Some(Some(self.raw.bytes(usize::try_from(n).ok()?)?)),
        }
    }
}

impl<'a> Iterator for Components<'a> {
    type Item = Option<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.raw.is_empty() {
            return None;
        }
        match self.step() {
            Some(c) => Some(c),
            None => stdx::invariant::broken(format_args!("clustering cut short")),
        }
    }
}

/// Checks that bytes from outside are a serialised clustering of at most `max` components. Returns
/// their count.
pub fn check(bytes: &[u8], max: usize) -> Option<usize> {
    let mut components = Components { raw: Raw::new(bytes) };
    let mut count = 0;
    while !components.raw.is_empty() {
        components.step()?;
        count += 1;
        if count > max {
            return None;
        }
    }
    Some(count)
}

/// A position between clusterings: just before or just after everything that starts with `prefix`.
/// An inclusive start and an exclusive end are "before", the other two are "after"; the empty
/// prefix gives the two ends of the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundRef<'a> {
    /// Serialised prefix, possibly of all components.
    pub prefix: &'a [u8],
    /// After (true) or before (false) everything with that prefix.
    pub after: bool,
}

impl BoundRef<'static> {
    /// Before every row.
    pub const BOTTOM: BoundRef<'static> = BoundRef { prefix: &[], after: false };
    /// After every row.
    pub const TOP: BoundRef<'static> = BoundRef { prefix: &[], after: true };
}

/// Compares clusterings of one table: per component a comparator and its direction.
#[derive(Clone, Debug)]
pub struct ClusteringComparator {
    components: Vec<(Comparator, bool)>,
}

impl ClusteringComparator {
    /// Compiles the comparator of a table.
    pub fn for_table(table: &Table) -> Self {
        let components = table
            .clustering()
            .iter()
            .map(|column| {
                let reversed = matches!(column.kind, ColumnKind::Clustering { reversed: true, .. });
                (Comparator::for_type(&column.ty), reversed)
            })
            .collect();
        ClusteringComparator { components }
    }

    /// Number of clustering columns.
    pub fn len(&self) -> usize {
        self.components.len()
    }

    /// True for tables without clustering columns.
    pub fn is_empty(&self) -> bool {
        self.components.is_empty()
    }

    /// Compares two components by the comparator of that position.
    #[inline]
    pub fn compare_component(
        &self,
        position: usize,
        a: Option<&[u8]>,
        b: Option<&[u8]>,
    ) -> Ordering {
        let Some((comparator, reversed)) = self.components.get(position) else {
            return Ordering::Equal;
        };
        let order = match (a, b) {
            (Some(a), Some(b)) => comparator.compare(a, b),
            (None, None) => Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
        };
        if *reversed { order.reverse() } else { order }
    }

    /// Order of the common prefix, and how many components each has beyond it.
    #[inline]
    fn compare_prefix(&self, a: &[u8], b: &[u8]) -> (Ordering, bool, bool) {
        let (mut a, mut b) = (components(a), components(b));
        let mut position = 0;
        loop {
            match (a.next(), b.next()) {
                (Some(x), Some(y)) => {
                    let order = self.compare_component(position, x, y);
                    if order != Ordering::Equal {
                        return (order, false, false);
                    }
                }
                (x, y) => return (Ordering::Equal, x.is_some(), y.is_some()),
            }
            position += 1;
        }
    }

    /// Order of two full clusterings.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let (order, a_longer, b_longer) = self.compare_prefix(a, b);
        order.then(a_longer.cmp(&b_longer))
    }

    /// Order of a full clustering against a bound; never `Equal`.
    #[inline]
    pub fn compare_to_bound(&self, clustering: &[u8], bound: BoundRef<'_>) -> Ordering {
        let (order, _, bound_longer) = self.compare_prefix(clustering, bound.prefix);
        if order != Ordering::Equal {
            return order;
        }
        // A bound longer than the clustering cannot come from a valid table; order it after.
        if bound_longer || bound.after { Ordering::Less } else { Ordering::Greater }
    }

    /// Order of two bounds.
    pub fn compare_bounds(&self, a: BoundRef<'_>, b: BoundRef<'_>) -> Ordering {
        let (order, a_longer, b_longer) = self.compare_prefix(a.prefix, b.prefix);
        if order != Ordering::Equal {
            return order;
        }
        match (a_longer, b_longer) {
            (false, false) => a.after.cmp(&b.after),
            // `b` is a prefix of `a`: `a` starts with `b`.
            (true, _) => {
                if b.after {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (_, true) => {
                if a.after {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
        }
    }
}

/// A range of clusterings of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Serialised prefix of the start; empty = from the first row.
    pub start: Vec<u8>,
    /// True: starts after everything with that prefix (exclusive).
    pub start_after: bool,
    /// Serialised prefix of the end; empty = to the last row.
    pub end: Vec<u8>,
    /// True: ends after everything with that prefix (inclusive).
    pub end_after: bool,
}

impl Slice {
    /// The whole partition.
    pub fn all() -> Slice {
        Slice { start: Vec::new(), start_after: false, end: Vec::new(), end_after: true }
    }

    /// All clusterings that start with `prefix`.
    pub fn prefix(prefix: Vec<u8>) -> Slice {
        Slice { start: prefix.clone(), start_after: false, end: prefix, end_after: true }
    }

    /// Where it starts.
    pub fn start(&self) -> BoundRef<'_> {
        BoundRef { prefix: &self.start, after: self.start_after }
    }

    /// Where it ends.
    pub fn end(&self) -> BoundRef<'_> {
        BoundRef { prefix: &self.end, after: self.end_after }
    }

    /// Returns true if no clustering can lie in it.
    pub fn is_empty(&self, comparator: &ClusteringComparator) -> bool {
        comparator.compare_bounds(self.start(), self.end()) != Ordering::Less
    }
}

/// Slices of one partition, ascending and disjoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slices(pub Vec<Slice>);

impl Slices {
    /// The whole partition.
    pub fn all() -> Slices {
        Slices(vec![Slice::all()])
    }

    /// True when this selects every row.
    pub fn is_all(&self) -> bool {
        matches!(self.0.as_slice(), [s] if s.start.is_empty() && !s.start_after && s.end.is_empty() && s.end_after)
    }
}
