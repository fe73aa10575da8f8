//! Slices of a partition from comparisons of clustering columns.
//!
//! Source: `MultiColumnRestriction`.

use std::cmp::Ordering;

use data::clustering::push_component;
use data::{BoundRef, ClusteringComparator, Slice, Slices};

/// A value, or null.
type Value = Option<Vec<u8>>;

/// The rows below `prefix` whose next components are greater (or less) than `row` by value, as
/// slices. One slice when all columns go in one direction, else one per component: equal up to it
/// and greater there.
pub(crate) fn half_space(
    prefix: &[u8],
    row: &[Value],
    reversed: &[bool],
    greater: bool,
    inclusive: bool,
) -> Vec<Slice> {
    let one_way = reversed.windows(2).all(|w| matches!(w, [a, b] if a == b));
    let mut pieces = Vec::new();
    let mut equal = prefix.to_vec();
    let last = row.len().saturating_sub(1);
    for (index, (value, reversed)) in row.iter().zip(reversed).enumerate() {
        let outer = if one_way { prefix.to_vec() } else { equal.clone() };
        push_component(&mut equal, value.as_deref());
        if one_way && index != last {
            continue;
        }
        let inclusive = inclusive && index == last;
        // Greater values come later, unless the column is descending.
        pieces.push(if greater != *reversed {
            Slice { start: equal.clone(), start_after: !inclusive, end: outer, end_after: true }
        } else {
            Slice { start: outer, start_after: false, end: equal.clone(), end_after: inclusive }
        });
    }
    pieces
}

pub(crate) fn intersect(a: &Slice, b: &Slice, comparator: &ClusteringComparator) -> Slice {
    let less = |x: BoundRef<'_>, y: BoundRef<'_>| comparator.compare_bounds(x, y) == Ordering::Less;
    let start = if less(a.start(), b.start()) { b } else { a };
    let end = if less(a.end(), b.end()) { a } else { b };
    Slice {
        start: start.start.clone(),
        start_after: start.start_after,
        end: end.end.clone(),
        end_after: end.end_after,
    }
}

/// Ascending, without empty ones. Pieces of one restriction never overlap.
pub(crate) fn ordered(mut slices: Vec<Slice>, comparator: &ClusteringComparator) -> Slices {
    slices.retain(|s| !s.is_empty(comparator));
    slices.sort_by(|a, b| comparator.compare_bounds(a.start(), b.start()));
    Slices(slices)
}
