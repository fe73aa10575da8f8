//! Only hidden data is removed: data without its shadow, merged with the shadow, is what it was.

use proptest::prelude::*;

use super::cursors::{
    ListCursor, Source, clustering_number, cursor, events_of, run_cursors, sources,
};
use super::laws::{active, row};
use super::*;
use crate::shadow::{Beside, Left, left_of};
use crate::{Advance, Cursor, MergeCursor, MergeMode, Shadow, ShadowBy, ShadowCursor};

fn by() -> impl Strategy<Value = ShadowBy> {
    prop_oneof![Just(ShadowBy::Rows), Just(ShadowBy::Cells)]
}

/// The remainder of a row, as its own bytes; empty: nothing.
fn left(
    shape: &TableShape,
    row: &[u8],
    hiding: (Option<&[u8]>, DeletionTime),
    by: ShadowBy,
) -> Vec<u8> {
    let mut out = vec![7];
    let other = hiding.0.map(RowRef::trusted);
    match left_of(shape, RowRef::trusted(row), Beside { other, active: hiding.1 }, by, &mut out) {
        Left::Nothing => Vec::new(),
        Left::All => {
            assert_eq!(out, [7], "nothing is written");
            row.to_vec()
        }
        Left::Some => out.split_off(1),
    }
}

/// One source of several without what the others hide.
fn without(sources: &[Source], index: usize, by: ShadowBy) -> ListCursor {
    let shape = shape();
    let data = MergeCursor::new(&shape, MergeMode::All, false, [cursor(&sources[index], false)]);
    let others = sources.iter().enumerate().filter(|(i, _)| *i != index);
    let shadow =
        MergeCursor::new(&shape, MergeMode::All, false, others.map(|(_, s)| cursor(s, false)));
    let mut merge = ShadowCursor::new(&shape, by, data, Shadow { cursor: shadow, first: 1 });
    let mut events = Vec::new();
    loop {
        match merge.advance().unwrap() {
            Advance::End => break,
            Advance::NeedBlock(request) => assert!((request.source as usize) < sources.len()),
            Advance::Item => events_of(merge.item(), &mut events),
        }
    }
    ListCursor::new(events)
}

proptest! {
    #[test]
    fn a_row_without_what_another_hides_merges_to_the_same(
        x in row(), y in row(), outside in active(), by in by(), dropped in any::<bool>(),
    ) {
        let shape = if dropped { shape_without_b() } else { shape() };
        let (x, y) = (x.pack(), y.pack());
        let merged = |rows: &[&[u8]]| {
            let rows: Vec<&[u8]> = rows.iter().copied().filter(|r| !r.is_empty()).collect();
            match rows.is_empty() {
                true => String::new(),
                false => describe(&merge(&shape, &rows, outside, Keep::All)),
            }
        };
        let before = merged(&[&x, &y]);
        let x_left = left(&shape, &x, (Some(&y), outside), by);
        let y_left = left(&shape, &y, (Some(&x), outside), by);
        prop_assert_eq!(&merged(&[&x_left, &y]), &before, "INV-shadow-1");
        // Both at a time.
        prop_assert_eq!(&merged(&[&x_left, &y_left]), &before, "INV-shadow-2");
        prop_assert!(x_left.is_empty() || RowRef::parse(&x_left).is_some());
    }

    #[test]
    fn what_is_left_of_sources_merges_to_the_same_rows_and_deletions(
        sources in sources(), by in by(),
    ) {
        let whole = run_cursors(sources.iter().map(|s| cursor(s, false)).collect(), MergeMode::All, false);
        // One of them, and all of them at a time.
        let one = std::iter::once(without(&sources, 0, by))
            .chain(sources.iter().skip(1).map(|s| cursor(s, false)))
            .collect();
        let all = (0..sources.len()).map(|i| without(&sources, i, by)).collect();
        for seen in [run_cursors(one, MergeMode::All, false), run_cursors(all, MergeMode::All, false)] {
            prop_assert_eq!(&seen.rows, &whole.rows);
            prop_assert_eq!(&seen.covered, &whole.covered);
            prop_assert_eq!(seen.digest, whole.digest);
        }
    }

    #[test]
    fn nothing_is_left_that_a_deletion_elsewhere_hides(sources in sources()) {
        let mut left = without(&sources, 0, ShadowBy::Rows);
        let (mut partition, mut open) = (0, None);
        while let advance @ (Advance::Item | Advance::NeedBlock(_)) = left.advance().unwrap() {
            if advance != Advance::Item {
                continue;
            }
            match left.item() {
                crate::Item::Partition { key, .. } => {
                    partition = i32::from_be_bytes(key.try_into().unwrap());
                }
                crate::Item::Row { clustering, row } => {
                    let n = clustering_number(clustering);
                    let crate::ColumnRef::Simple(cell) = row.column(A).unwrap() else { panic!() };
                    let hides = |part: &super::cursors::Part| part.hides(n, cell.timestamp.0);
                    let others = sources.iter().skip(1).filter_map(|s| s.get(&partition));
                    prop_assert!(!others.into_iter().any(hides));
                }
                crate::Item::Marker(marker) => {
                    prop_assert_eq!(marker.close, open, "INV-shadow-3");
                    prop_assert_ne!(marker.close, marker.open, "INV-shadow-3");
                    open = marker.open;
                }
                crate::Item::PartitionEnd => prop_assert_eq!(open, None, "INV-shadow-3"),
                crate::Item::Static(_) => {}
            }
        }
    }
}

#[test]
fn cells_hide_cells_only_when_that_is_asked_for_and_are_newer() {
    let shape = shape();
    let of = |timestamp, kind, value: u8| OwnedRow {
        a: Some(OwnedCell { timestamp, kind, value: vec![value] }),
        ..OwnedRow::default()
    };
    let check = |old: &OwnedRow, new: &OwnedRow, by, stays: bool| {
        let (old, new) = (old.pack(), new.pack());
        let left = left(&shape, &old, (Some(&new), DeletionTime::LIVE), by);
        assert_eq!(!left.is_empty(), stays, "{} {} {by:?}", describe(&old), describe(&new));
    };
    for (new, stays) in [
        (of(5, 0, 1), true),
        (of(5, 0, 2), false),
        (of(6, 0, 0), false),
        (of(4, 0, 9), true),
        (of(5, 1, 0), false),
    ] {
        check(&of(5, 0, 1), &new, ShadowBy::Cells, stays);
        check(&of(5, 0, 1), &new, ShadowBy::Rows, true);
    }
    // Two equal deletions both stay.
    let deleted = |timestamp| OwnedRow { deletion: Some(timestamp), ..OwnedRow::default() };
    check(&deleted(5), &deleted(5), ShadowBy::Rows, true);
    check(&deleted(5), &deleted(6), ShadowBy::Rows, false);
}
