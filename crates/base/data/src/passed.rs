//! Positions after range deletions, where a page can end although no row exists.
//!
//! A page ends after a row. Between two neighbours of a partition (a marker, and the next item) this module
//! finds a clustering that no row has and that lies between them. A reader that resumes after it skips
//! nothing and sees nothing twice. Clusterings of fewer components are filled up with nulls.

use std::cmp::Ordering;

use crate::clustering::{BoundRef, components, push_component};
use crate::cursor::Item;
use crate::replica_page::{behind, in_order};
use crate::shape::TableShape;

/// Writes to `out` a clustering that lies after the bound `from` and at or before the item `next`,
/// in read order. False when none is known: then the caller asks again, for the position after
/// `next`.
pub(crate) fn place_between(
    shape: &TableShape,
    reversed: bool,
    from: BoundRef<'_>,
    next: &Item<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let prefixes = match next {
        Item::Marker(marker) => [Some(from.prefix), Some(marker.position.prefix)],
        _ => [Some(from.prefix), None],
    };
    prefixes.into_iter().flatten().any(|prefix| {
        fill(shape, prefix, out);
        let place = behind(out, reversed);
        is_at_or_behind(shape, reversed, place, from) && is_before(shape, reversed, place, next)
    })
}

fn fill(shape: &TableShape, prefix: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(prefix);
    let missing = shape.clustering().len().saturating_sub(components(prefix).count());
    (0..missing).for_each(|_| push_component(out, None));
}

fn is_at_or_behind(
    shape: &TableShape,
    reversed: bool,
    place: BoundRef<'_>,
    from: BoundRef<'_>,
) -> bool {
    let order = shape.clustering().compare_bounds(place, from);
    in_order(order, reversed) != Ordering::Less
}

/// A marker may lie at the place itself.
fn is_before(shape: &TableShape, reversed: bool, place: BoundRef<'_>, next: &Item<'_>) -> bool {
    let cmp = shape.clustering();
    match next {
        Item::Row { clustering, .. } => {
            in_order(cmp.compare_to_bound(clustering, place), reversed) == Ordering::Greater
        }
        Item::Marker(marker) => {
            let order = cmp.compare_bounds(place, marker.position);
            in_order(order, reversed) != Ordering::Greater
        }
        Item::Partition { .. } | Item::Static(_) | Item::PartitionEnd => false,
    }
}
