use compact_plan::windows::{KeyType, WindowRule, WindowUnit};
use data::ClusteringComparator;
use stdx::{DeletionSeconds, TimestampMicros};

use super::*;

fn windows() -> Windows {
    let rule = WindowRule::Moving { unit: WindowUnit::Numbers(1), size: 5 };
    Windows::new(rule, KeyType::Int).unwrap()
}

fn prefix(parts: &[i32]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        push_component(&mut out, Some(&part.to_be_bytes()));
    }
    out
}

fn deletion(at: i64) -> DeletionTime {
    DeletionTime { timestamp: TimestampMicros(at), local: DeletionSeconds(1) }
}

/// A table with clusterings (int, int), the first one descending or not.
fn order(reversed: bool) -> ClusteringComparator {
    use schema::{Column, ColumnKind, TableOptions};
    use stdx::ColumnId;
    let mut table = crate::tests::table(TableOptions::default());
    let first = Column {
        id: ColumnId(9),
        name: "first".into(),
        ty: types::CqlType::Int,
        kind: ColumnKind::Clustering { position: 0, reversed },
    };
    let second = ColumnKind::Clustering { position: 1, reversed: false };
    table.columns[1].kind = second;
    table.columns.insert(1, first);
    table.clustering_count = 2;
    ClusteringComparator::for_table(&table)
}

/// One item of a partition.
#[derive(Clone, Debug)]
enum Step {
    Row(Vec<u8>),
    Marker(Vec<u8>, bool, Option<DeletionTime>, Option<DeletionTime>),
}

/// INV-routing-1.
#[test]
fn pieces_delete_what_the_whole_did_and_nothing_of_another_window() {
    let mut drawn = 7_u64;
    let mut random = move |below: u64| {
        drawn =
            drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (drawn >> 33) % below
    };
    for reversed in [false, true] {
        let order = order(reversed);
        for _ in 0..2_000 {
            // Positions with one component, two, or none, in order.
            let mut at: Vec<(Vec<u8>, bool)> = (0..2 + random(5))
                .map(|_| {
                    let (a, b) = (random(41) as i32 - 20, random(3) as i32);
                    let parts: &[i32] = match random(10) {
                        0 => &[],
                        1..7 => &[a],
                        _ => &[a, b],
                    };
                    (prefix(parts), random(2) == 0)
                })
                .collect();
            fn bound((prefix, after): &(Vec<u8>, bool)) -> BoundRef<'_> {
                BoundRef { prefix, after: *after }
            }
            at.sort_by(|x, y| order.compare_bounds(bound(x), bound(y)));
            at.dedup_by(|x, y| order.compare_bounds(bound(x), bound(y)).is_eq());
            let mut steps: Vec<Step> = Vec::new();
            let mut open: Option<DeletionTime> = None;
            for (n, (prefix, after)) in at.iter().enumerate() {
                let is_last = n + 1 == at.len();
                let next = (!is_last && random(3) > 0).then(|| deletion(n as i64));
                if open.is_some() || next.is_some() {
                    steps.push(Step::Marker(prefix.clone(), *after, open, next));
                }
                open = next;
            }
            // Some rows, each where it belongs.
            for _ in 0..random(6) {
                let row = prefix(&[random(41) as i32 - 20, random(3) as i32]);
                let is_before = |step: &Step| match step {
                    Step::Row(other) => order.compare(other, &row).is_lt(),
                    Step::Marker(p, after, ..) => {
                        let at = BoundRef { prefix: p, after: *after };
                        order.compare_to_bound(&row, at).is_gt()
                    }
                };
                let place = steps.partition_point(is_before);
                let is_there =
                    steps.get(place).is_some_and(|s| matches!(s, Step::Row(r) if *r == row));
                if !is_there {
                    steps.insert(place, Step::Row(row));
                }
            }
            check(&order, reversed, &steps);
        }
    }
}

fn check(order: &ClusteringComparator, reversed: bool, steps: &[Step]) {
    let mut router = Router::new(windows(), reversed);
    router.partition();
    let mut pieces: Vec<Piece> = Vec::new();
    // Positions of the pieces and rows of every place, to check that they ascend.
    for step in steps {
        let from = pieces.len();
        match step {
            Step::Row(clustering) => {
                let place = router.row(clustering, &mut pieces);
                let value = windows().value(components(clustering).next().unwrap().unwrap());
                assert_eq!(place, Place::Window(windows().window_of(value.unwrap())));
                // The pieces of its place are open exactly where the row lies in a range.
                let before = BoundRef { prefix: clustering, after: false };
                for piece in pieces[from..].iter().filter(|p| p.place == place) {
                    let at = piece.marker().position;
                    assert!(order.compare_bounds(at, before).is_le(), "{steps:?} {piece:?}");
                }
            }
            Step::Marker(prefix, after, close, open) => {
                let position = BoundRef { prefix, after: *after };
                router.marker(&Marker { position, close: *close, open: *open }, &mut pieces);
            }
        }
    }
    router.partition();
    let mut places: Vec<Place> = pieces.iter().map(|p| p.place).collect();
    places.sort_unstable();
    places.dedup();
    for place in &places {
        let mut open: Option<DeletionTime> = None;
        let mut last: Option<BoundRef<'_>> = None;
        for piece in pieces.iter().filter(|p| p.place == *place) {
            let marker = piece.marker();
            assert_eq!(marker.close, open, "{steps:?} {pieces:?}");
            open = marker.open;
            let ascends = |last| order.compare_bounds(last, marker.position).is_lt();
            assert!(last.is_none_or(ascends), "{steps:?} {pieces:?}");
            last = Some(marker.position);
            if let Place::Window(window) = place {
                let value = windows().value(components(&piece.prefix).next().unwrap().unwrap());
                assert_eq!(windows().window_of(value.unwrap()), *window, "{steps:?} {pieces:?}");
            }
        }
        assert_eq!(open, None, "{steps:?} {pieces:?}");
    }
    // Sorted once more, what is shared stays so.
    let mut again = Vec::new();
    let mut router = Router::new(windows(), reversed);
    for piece in pieces.iter().filter(|p| p.place == Place::Shared) {
        router.marker(&piece.marker(), &mut again);
    }
    assert!(again.iter().all(|p| p.place == Place::Shared), "{steps:?} {pieces:?} {again:?}");
    // Every place between two values, and every row.
    for a in -22..=22 {
        for b in -1..=3 {
            let row = prefix(&[a, b]);
            let covers =
                |markers: &mut dyn Iterator<Item = (BoundRef<'_>, Option<DeletionTime>)>| {
                    let mut by = None;
                    for (at, open) in markers {
                        if order.compare_to_bound(&row, at).is_gt() {
                            by = open;
                        }
                    }
                    by
                };
            let whole = covers(&mut steps.iter().filter_map(|step| match step {
                Step::Marker(prefix, after, _, open) => {
                    Some((BoundRef { prefix, after: *after }, *open))
                }
                Step::Row(_) => None,
            }));
            let parts: Vec<DeletionTime> = places
                .iter()
                .filter_map(|place| {
                    let of_it = pieces.iter().filter(|p| p.place == *place);
                    covers(&mut of_it.map(|p| (p.marker().position, p.open)))
                })
                .collect();
            let expected: Vec<DeletionTime> = whole.into_iter().collect();
            assert_eq!(parts, expected, "({a}, {b}) of {steps:?} in {pieces:?}");
        }
    }
}

#[test]
fn what_has_no_first_value_is_shared() {
    let mut router = Router::new(windows(), false);
    let mut pieces = Vec::new();
    let mut empty = Vec::new();
    push_component(&mut empty, Some(&[]));
    push_component(&mut empty, Some(&[0, 0, 0, 1]));
    assert_eq!(router.row(&empty, &mut pieces), Place::Shared);
    let mut null = Vec::new();
    push_component(&mut null, None);
    assert_eq!(router.row(&null, &mut pieces), Place::Shared);
    assert_eq!(pieces, []);
}
