//! Laws of row merging and range-tombstone lists; encodings.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::merge::Purge;
use crate::tombstones::RangeTombstoneList;
use crate::{BoundRef, MutationBuilder, MutationRef, RangeTombstoneRef, fuzz};

fn cell() -> impl Strategy<Value = OwnedCell> {
    (0..12_i64, 0..3_u8, 0..3_u8).prop_map(|(timestamp, kind, value)| OwnedCell {
        timestamp,
        kind,
        value: vec![value],
    })
}

pub(super) fn row() -> impl Strategy<Value = OwnedRow> {
    (
        option::of(0..12_i64),
        option::of(0..12_i64),
        option::of(cell()),
        option::of(cell()),
        option::of(0..12_i64),
        btree_map(0..4_i32, cell(), 0..3),
    )
        .prop_map(|(liveness, deletion, a, b, set_deletion, set)| OwnedRow {
            liveness,
            deletion,
            a,
            b,
            set_deletion,
            set,
        })
}

pub(super) fn active() -> impl Strategy<Value = DeletionTime> {
    option::of(0..12_i64).prop_map(|d| d.map_or(DeletionTime::LIVE, deletion))
}

fn not_empty(rows: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    rows.into_iter().filter(|r| !r.is_empty()).collect()
}

fn merge_all(shape: &TableShape, rows: Vec<Vec<u8>>) -> Vec<u8> {
    let rows = not_empty(rows);
    let refs: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    if refs.is_empty() {
        return Vec::new();
    }
    merge(shape, &refs, DeletionTime::LIVE, Keep::All)
}

/// Liveness of few different values, so that ties of every kind come up.
fn liveness() -> impl Strategy<Value = Liveness> {
    (0..3_i64, 0..4_usize, 0..2_i64).prop_map(|(timestamp, ttl, expires)| {
        let timestamp = TimestampMicros(timestamp);
        match [0, 10, 20, i32::MAX][ttl] {
            0 => Liveness::new(timestamp),
            ttl => Liveness {
                timestamp,
                ttl: TtlSeconds(ttl),
                expires_at: DeletionSeconds(50 + expires),
            },
        }
    })
}

fn with_liveness(liveness: Liveness) -> Vec<u8> {
    let mut out = Vec::new();
    RowBuilder::new(&mut out, liveness, DeletionTime::LIVE, TimestampMicros(0)).finish();
    out
}

#[test]
fn of_two_livenesses_the_one_that_cassandra_keeps_wins() {
    let expiring = |ttl, expires| Liveness {
        ttl: TtlSeconds(ttl),
        expires_at: DeletionSeconds(expires),
        ..Liveness::new(TimestampMicros(5))
    };
    let ascending = [
        Liveness::NONE,
        Liveness::new(TimestampMicros(4)),
        Liveness::new(TimestampMicros(5)),
        expiring(10, 50),
        // Equal but for the TTL: Cassandra keeps the first that it meets.
        expiring(20, 50),
        expiring(10, 51),
        // `LivenessInfo.EXPIRED_LIVENESS_TTL`
        expiring(i32::MAX, 7),
        Liveness::new(TimestampMicros(6)),
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(a.supersedes(b), i > j, "{a:?} {b:?}");
        }
    }
}

proptest! {
    #[test]
    fn liveness_merges_in_any_order_to_the_same(x in liveness(), y in liveness(), z in liveness()) {
        let shape = shape();
        let merged = |order: [Liveness; 3]| {
            let [a, b, c] = order.map(with_liveness);
            let together = merge_all(&shape, vec![a.clone(), b.clone(), c.clone()]);
            let ab = merge_all(&shape, vec![a, b]);
            assert_eq!(merge_all(&shape, vec![ab, c]), together);
            RowRef::trusted(&together).liveness()
        };
        let expected = merged([x, y, z]);
        for order in [[x, z, y], [y, x, z], [y, z, x], [z, x, y], [z, y, x]] {
            prop_assert_eq!(merged(order), expected);
        }
    }

    /// The newest one of several wholly live versions is taken unmodified.
    #[test]
    fn usual_versions_merge_as_those_of_any_form(
        times in vec(1..6_i64, 2..4),
        columns in vec((any::<bool>(), any::<bool>(), 0..3_u8), 2..4),
        d in active(),
    ) {
        let shape = shape();
        let rows: Vec<Vec<u8>> = times.iter().zip(&columns).map(|(t, (a, b, other))| {
            let cell = |timestamp| OwnedCell { timestamp, kind: 0, value: vec![*t as u8; 3] };
            // Some with a cell of another time.
            let of_b = if *other == 0 { *t + 1 } else { *t };
            OwnedRow {
                liveness: Some(*t),
                a: a.then(|| cell(*t)),
                b: b.then(|| cell(of_b)),
                ..OwnedRow::default()
            }.pack()
        }).collect();
        let all = merge_all(&shape, rows.clone());
        // One after the other beside a deletion so old that it hides nothing: never as they are.
        let refs: Vec<RowRef<'_>> = rows.iter().map(|r| RowRef::trusted(r)).collect();
        let mut out = Vec::new();
        let old = DeletionTime { timestamp: TimestampMicros(-1), local: DeletionSeconds(0) };
        let outcome = merge_rows(&shape, &refs, old, Keep::All, &mut out);
        prop_assert_eq!(outcome.row, Merged::Built);
        prop_assert_eq!(describe(&all), describe(&out));
        let hidden: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        let hidden = merge(&shape, &hidden, d, Keep::All);
        let expect = not_empty(vec![all]);
        let expect: Vec<&[u8]> = expect.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(describe(&hidden), describe(&merge(&shape, &expect, d, Keep::All)));
    }

    #[test]
    fn merging_is_commutative(x in row(), y in row()) {
        let shape = shape();
        let (x, y) = (x.pack(), y.pack());
        let xy = merge(&shape, &[&x, &y], DeletionTime::LIVE, Keep::All);
        let yx = merge(&shape, &[&y, &x], DeletionTime::LIVE, Keep::All);
        prop_assert_eq!(describe(&xy), describe(&yx), "INV-data-3");
    }

    #[test]
    fn merging_is_associative(x in row(), y in row(), z in row()) {
        let shape = shape();
        let (x, y, z) = (x.pack(), y.pack(), z.pack());
        let all = merge_all(&shape, vec![x.clone(), y.clone(), z.clone()]);
        let xy = merge_all(&shape, vec![x.clone(), y.clone()]);
        let left = merge_all(&shape, vec![xy, z.clone()]);
        let yz = merge_all(&shape, vec![y, z]);
        let right = merge_all(&shape, vec![x, yz]);
        prop_assert_eq!(describe(&all), describe(&left), "INV-data-3");
        prop_assert_eq!(describe(&all), describe(&right), "INV-data-3");
    }

    #[test]
    fn merging_is_idempotent(x in row(), y in row()) {
        let shape = shape();
        let once = merge_all(&shape, vec![x.pack(), y.pack()]);
        let twice = merge_all(&shape, vec![once.clone(), once.clone()]);
        prop_assert_eq!(describe(&once), describe(&twice), "INV-data-3");
        let again = merge_all(&shape, vec![once.clone(), x.pack()]);
        prop_assert_eq!(describe(&once), describe(&again), "INV-data-3");
    }

    /// A deletion from outside may be applied before or after merging.
    #[test]
    fn a_covering_deletion_distributes_over_merging(x in row(), y in row(), d in active()) {
        let shape = shape();
        let (x, y) = (x.pack(), y.pack());
        let together = merge(&shape, &[&x, &y], d, Keep::All);
        let x = merge(&shape, &[&x], d, Keep::All);
        let y = merge(&shape, &[&y], d, Keep::All);
        let apart = merge_all(&shape, vec![x, y]);
        prop_assert_eq!(describe(&together), describe(&apart));
    }

    /// A reader sees the same whether it reads the sources or their merge.
    #[test]
    fn the_live_view_of_a_merge_is_the_live_merge(x in row(), y in row(), d in active(), now in 0..30_i64) {
        let shape = shape();
        let keep = Keep::Live { now: DeletionSeconds(now) };
        let (x, y) = (x.pack(), y.pack());
        let direct = merge(&shape, &[&x, &y], d, keep);
        let merged = merge(&shape, &[&x, &y], d, Keep::All);
        let later = if merged.is_empty() {
            merged
        } else {
            merge(&shape, &[&merged], DeletionTime::LIVE, keep)
        };
        let live = |row: &[u8]| describe_live(row, DeletionSeconds(now));
        prop_assert_eq!(live(&direct), live(&later));
        if !direct.is_empty() {
            prop_assert!(RowRef::trusted(&direct).has_live_data(DeletionSeconds(now)));
        }
    }

    /// Purging never changes the result of a reader at or after the time of the purge.
    #[test]
    fn purging_hides_nothing_and_shows_nothing(x in row(), y in row(), now in 0..30_i64, grace in 0..10_i64) {
        let shape = shape();
        let purge = Purge {
            now: DeletionSeconds(now),
            gc_before: DeletionSeconds(now - grace),
            timestamp_below: TimestampMicros(i64::MAX),
        };
        let keep = Keep::Live { now: DeletionSeconds(now) };
        let (x, y) = (x.pack(), y.pack());
        let direct = merge(&shape, &[&x, &y], DeletionTime::LIVE, keep);
        let purged = merge(&shape, &[&x, &y], DeletionTime::LIVE, Keep::Purge(purge));
        let later = if purged.is_empty() {
            purged
        } else {
            merge(&shape, &[&purged], DeletionTime::LIVE, keep)
        };
        prop_assert_eq!(
            describe_live(&direct, DeletionSeconds(now)),
            describe_live(&later, DeletionSeconds(now))
        );
    }

    #[test]
    fn a_dropped_column_is_invisible(x in row(), y in row()) {
        let (x, y) = (x.pack(), y.pack());
        let merged = merge(&shape_without_b(), &[&x, &y], DeletionTime::LIVE, Keep::All);
        if !merged.is_empty() {
            prop_assert!(RowRef::parse(&merged).unwrap().column(B).is_none());
        }
        let lone = merge(&shape_without_b(), &[&x], DeletionTime::LIVE, Keep::All);
        if !lone.is_empty() {
            prop_assert!(RowRef::trusted(&lone).column(B).is_none());
        }
    }

    #[test]
    fn packed_rows_are_accepted_by_the_parser(x in row()) {
        let packed = x.pack();
        prop_assert!(RowRef::parse(&packed).is_some());
        for cut in 1..packed.len() {
            // A prefix may be a shorter row, but never one that makes a reader fail.
            fuzz::fuzz_row(&packed[..cut]);
        }
    }

    #[test]
    fn the_smallest_timestamp_of_a_row_is_that_of_all_it_has(x in row()) {
        let all = |cells: Vec<&Option<OwnedCell>>| -> Vec<i64> {
            cells.into_iter().flatten().map(|cell| cell.timestamp).collect()
        };
        let mut times = all(vec![&x.a, &x.b]);
        times.extend(x.set.values().map(|cell| cell.timestamp));
        times.extend([x.liveness, x.deletion, x.set_deletion].into_iter().flatten());
        let found = RowRef::trusted(&x.pack()).min_timestamp();
        prop_assert_eq!(found, times.into_iter().min().map(TimestampMicros));
    }

    /// Each clustering is covered by the newest of the ranges that contain it; ranges stay
    /// disjoint and ascending.
    #[test]
    fn a_list_of_range_tombstones_covers_what_was_added(
        ranges in proptest::collection::vec((0..10_i32, 0..10_i32, any::<bool>(), any::<bool>(), 1..9_i64), 0..8)
    ) {
        let shape = shape();
        let cmp = shape.clustering();
        let mut list = RangeTombstoneList::new();
        for (from, to, after_from, after_to, timestamp) in &ranges {
            let (from, to) = (ck(*from), ck(*to));
            list.add(cmp, RangeTombstoneRef {
                start: BoundRef { prefix: &from, after: *after_from },
                end: BoundRef { prefix: &to, after: *after_to },
                deletion: deletion(*timestamp),
            });
        }
        for n in 0..10 {
            let expected = ranges.iter().filter(|(from, to, after_from, after_to, _)| {
                (n > *from || (n == *from && !after_from)) && (n < *to || (n == *to && *after_to))
            }).map(|r| r.4).max();
            let found = list.covering(cmp, &ck(n));
            prop_assert_eq!(found, expected.map_or(DeletionTime::LIVE, deletion), "row {}", n);
        }
        let all: Vec<_> = list.iter().collect();
        for pair in all.windows(2) {
            let order = cmp.compare_bounds(pair[0].end.as_bound(), pair[1].start.as_bound());
            prop_assert!(order.is_le());
            prop_assert!(order.is_lt() || pair[0].deletion != pair[1].deletion);
        }
        for range in list.iter() {
            prop_assert!(cmp.compare_bounds(range.start.as_bound(), range.end.as_bound()).is_lt());
        }
    }
}

/// Only what a reader sees: without deletions.
fn describe_live(row: &[u8], now: DeletionSeconds) -> String {
    if row.is_empty() {
        return String::new();
    }
    let row = RowRef::parse(row).unwrap();
    let mut text = format!("{:?}", row.liveness());
    for (id, column) in row.columns() {
        match column {
            crate::ColumnRef::Simple(cell) => {
                assert!(cell.is_live(now));
                text.push_str(&format!(" {id:?}={cell:?}"));
            }
            crate::ColumnRef::Complex(complex) => {
                for (path, cell) in complex.cells() {
                    assert!(cell.is_live(now));
                    text.push_str(&format!(" {id:?}[{path:?}]={cell:?}"));
                }
            }
        }
    }
    text
}

#[test]
fn a_lone_live_row_is_returned_as_it_is() {
    let row = OwnedRow {
        liveness: Some(5),
        a: Some(OwnedCell { timestamp: 5, kind: 0, value: vec![1] }),
        ..OwnedRow::default()
    };
    let packed = row.pack();
    let mut out = Vec::new();
    let keep = Keep::Live { now: DeletionSeconds(100) };
    let source = [RowRef::trusted(&packed)];
    let outcome = merge_rows(&shape(), &source, deletion(4), keep, &mut out);
    assert_eq!((outcome.row, out.len()), (Merged::Source(0), 0));
    let outcome = merge_rows(&shape(), &source, deletion(5), keep, &mut out);
    assert_eq!(outcome.row, Merged::Nothing);
}

/// CQL: a row whose cells are all deleted exists when it was INSERTed and not when it was UPDATEd.
#[test]
fn a_row_exists_while_its_liveness_or_a_cell_lives() {
    let keep = Keep::Live { now: DeletionSeconds(100) };
    let tombstone = OwnedCell { timestamp: 6, kind: 1, value: vec![] };
    let updated = OwnedRow { a: Some(tombstone.clone()), ..OwnedRow::default() };
    assert!(merge(&shape(), &[&updated.pack()], DeletionTime::LIVE, keep).is_empty());
    let inserted = OwnedRow { liveness: Some(5), a: Some(tombstone), ..OwnedRow::default() };
    let row = merge(&shape(), &[&inserted.pack()], DeletionTime::LIVE, keep);
    assert_eq!(RowRef::trusted(&row).columns().count(), 0);
    assert!(RowRef::trusted(&row).has_live_data(DeletionSeconds(100)));
}

fn sample_mutation() -> Vec<u8> {
    let row = OwnedRow {
        liveness: Some(7),
        a: Some(OwnedCell { timestamp: 7, kind: 0, value: b"hi".to_vec() }),
        set_deletion: Some(6),
        set: BTreeMap::from([(1, OwnedCell { timestamp: 7, kind: 2, value: vec![] })]),
        ..OwnedRow::default()
    }
    .pack();
    let (one, two) = (ck(1), ck(2));
    let mut out = Vec::new();
    let mut m = MutationBuilder::new(&mut out, table().id, 300, b"key");
    m.deletion(deletion(4));
    m.static_row(RowRef::trusted(&row));
    m.rows([(one.as_slice(), RowRef::trusted(&row))].into_iter());
    m.range_tombstones(
        [RangeTombstoneRef {
            start: BoundRef { prefix: &one, after: true },
            end: BoundRef { prefix: &two, after: false },
            deletion: deletion(8),
        }]
        .into_iter(),
    );
    m.finish();
    out
}

#[test]
fn a_mutation_is_read_as_it_was_written() {
    let bytes = sample_mutation();
    let m = MutationRef::parse(&bytes, 1).unwrap();
    assert_eq!((m.table, m.schema_version, m.key), (table().id, 300, b"key".as_slice()));
    assert_eq!(m.deletion, deletion(4));
    let rows: Vec<_> = m.rows().collect();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].0, ck(1));
    assert_eq!(rows[0].1.column(A).is_some(), m.static_row.is_some());
    let mut iter = m.rows();
    iter.by_ref().for_each(drop);
    assert!(iter.has_range_tombstones());
    assert_eq!(m.range_tombstones().count(), 1);
    assert!(MutationRef::parse(&bytes, 2).is_none(), "clusterings have one component");
    for cut in 0..bytes.len() {
        assert!(MutationRef::parse(&bytes[..cut], 1).is_none(), "cut at {cut}");
    }
}

/// The bytes of docs/formats/mutation.md: a change here is a new version of the encoding.
#[test]
fn the_encoding_is_the_documented_one() {
    let hex: String = sample_mutation().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden_mutation_v1.hex"));
}

#[test]
fn fuzz_targets_take_anything() {
    let mut mutation = vec![1];
    mutation.extend(sample_mutation());
    let row = OwnedRow { liveness: Some(7), deletion: Some(3), ..OwnedRow::default() }.pack();
    let corpus = [Vec::new(), mutation, row];
    let mut seed = 7_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize
    };
    for round in 0..10_000 {
        let mut data = corpus[round % corpus.len()].clone();
        for _ in 0..random() % 4 {
            if data.is_empty() {
                data.push(random() as u8);
            }
            let at = random() % data.len();
            match random() % 3 {
                0 => data.truncate(at),
                1 => data.insert(at, random() as u8),
                _ => data[at] = random() as u8,
            }
        }
        fuzz::fuzz_row(&data);
        fuzz::fuzz_mutation(&data);
    }
}
