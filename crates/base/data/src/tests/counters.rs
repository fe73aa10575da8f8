//! Counter contexts: bytes as Cassandra writes them, and the laws of their merge against a model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stdx::{DeletionSeconds, TimestampMicros};
use types::CqlType;

use super::{A, deletion, merge, table};
use crate::counter::{
    CounterId, Shard, ShardKind, clock_and_count, global, has_legacy_shards, has_local_shards, led,
    merge as merge_contexts, shards, total, update, without_local,
};
use crate::{CellRef, ColumnRef, DeletionTime, Keep, Liveness, RowBuilder, RowRef, TableShape};

fn id(n: u8) -> CounterId {
    CounterId([n; 16])
}

fn merged(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    merge_contexts(a, b, &mut out);
    out
}

fn all(contexts: &[Vec<u8>]) -> Vec<u8> {
    let mut contexts = contexts.iter();
    let first = contexts.next().cloned().unwrap_or_default();
    contexts.fold(first, |a, b| merged(&a, b))
}

fn context(shards: &[(u8, i64, i64)]) -> Vec<u8> {
    all(&shards
        .iter()
        .map(|(n, clock, count)| global(id(*n), *clock, *count).to_vec())
        .collect::<Vec<_>>())
}

/// Layout of `CounterContext`: elements, index with the highest bit, id, clock, count.
#[test]
fn a_context_has_the_bytes_that_cassandra_writes() {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(
        hex(&global(id(0xab), 5, -2)),
        "00018000abababababababababababababababab0000000000000005fffffffffffffffe"
    );
    assert_eq!(
        hex(&update(3)),
        "00010000000000000000000000000000000000000000000000000001\
         0000000000000003"
    );
    let two = context(&[(1, 7, 10), (2, 8, 20)]);
    assert_eq!(&two[..6], &[0, 2, 0x80, 0, 0x80, 1]);
    assert_eq!((two.len(), total(&two)), (6 + 64, 30));
}

#[test]
fn increments_of_one_statement_add_up() {
    let sum = merged(&update(3), &update(-5));
    assert_eq!(total(&sum), -2);
    assert!(has_local_shards(&sum) && has_legacy_shards(&sum));
}

#[test]
fn a_leader_adds_to_its_own_shard_and_its_clock_ascends() {
    let current = context(&[(1, 100, 10), (2, 5, 7)]);
    let next = led(&current, id(1), &update(4), 50);
    assert_eq!(clock_and_count(&next, id(1)), (101, 14));
    assert_eq!(total(&merged(&current, &next)), 21);
    // A leader that has written nothing yet begins with the clock of the wall.
    assert_eq!(clock_and_count(&led(&current, id(3), &update(4), 50), id(3)), (50, 4));
    assert_eq!(clock_and_count(&led(&[], id(3), &update(4), 50), id(3)), (50, 4));
}

#[test]
fn kinds_of_shards_beat_each_other_as_in_cassandra() {
    use ShardKind::{Global, Local, Remote};
    let one = |kind, clock, count| {
        // Built by hand: only tests have such shards.
        let mut bytes = match kind {
            Global => vec![0, 1, 0x80, 0],
            Local => vec![0, 1, 0, 0],
            Remote => vec![0, 0],
        };
        bytes.extend_from_slice(&[1; 16]);
        bytes.extend_from_slice(&i64::to_be_bytes(clock));
        bytes.extend_from_slice(&i64::to_be_bytes(count));
        bytes
    };
    let check = |a: (ShardKind, i64, i64), b: (ShardKind, i64, i64), expect| {
        for (a, b) in [(a, b), (b, a)] {
            let sum = merged(&one(a.0, a.1, a.2), &one(b.0, b.1, b.2));
            let found: Vec<Shard> = shards(&sum).unwrap().collect();
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].kind, found[0].clock, found[0].count), expect, "{a:?} {b:?}");
        }
    };
    check((Global, 1, 5), (Global, 2, 3), (Global, 2, 3));
    check((Global, 2, 5), (Global, 2, 3), (Global, 2, 5));
    check((Global, 1, 5), (Local, 9, 3), (Global, 1, 5));
    check((Global, 1, 5), (Remote, 9, 3), (Global, 1, 5));
    check((Local, 1, 5), (Local, 2, 3), (Local, 3, 8));
    check((Local, 1, 5), (Remote, 9, 3), (Local, 1, 5));
    check((Remote, 1, 5), (Remote, 2, 3), (Remote, 2, 3));
    check((Remote, 2, 5), (Remote, 2, 3), (Remote, 2, 5));
    check((Remote, -2, 5), (Remote, 1, 3), (Remote, -2, 5));
    let mut sent = Vec::new();
    without_local(&one(Local, 4, 5), &mut sent);
    assert_eq!(sent, one(Remote, 4, 5));
    // A negative number of elements marks that no local shards belong to this node.
    let mut marked = one(Local, 4, 5);
    marked[..2].copy_from_slice(&(-1_i16).to_be_bytes());
    assert!(!has_local_shards(&marked) && total(&marked) == 5);
}

#[test]
fn what_is_no_context_loses_and_harms_nobody() {
    let good = context(&[(1, 7, 10)]);
    for cut in 0..good.len() {
        let bad = &good[..cut];
        let both = [merged(bad, &good), merged(&good, bad)];
        assert_eq!(both[0], both[1]);
        assert!(total(bad) == 0 && clock_and_count(bad, id(1)) == (0, 0));
    }
    assert_eq!(merged(&good[..3], &good), good);
}

fn counter_shape() -> TableShape {
    let mut table = table();
    table.columns.truncate(3);
    table.columns[2].ty = CqlType::Counter;
    assert!(table.is_counter());
    TableShape::for_table(&table)
}

fn row(cell: CellRef<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut row = RowBuilder::new(&mut out, Liveness::NONE, DeletionTime::LIVE, TimestampMicros(1));
    row.cell(A, &cell);
    row.finish();
    out
}

fn seen(packed: &[u8]) -> Option<(i64, i64)> {
    if packed.is_empty() {
        return None;
    }
    match RowRef::parse(packed).unwrap().column(A) {
        Some(ColumnRef::Simple(cell)) => Some((cell.timestamp.0, total(cell.value))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn counter_cells_are_merged_not_chosen() {
    let shape = counter_shape();
    let a = row(CellRef::live(TimestampMicros(10), &context(&[(1, 7, 10)])));
    let b = row(CellRef::live(TimestampMicros(9), &context(&[(2, 3, 5)])));
    let both = merge(&shape, &[&a, &b], DeletionTime::LIVE, Keep::All);
    assert_eq!(seen(&both), Some((10, 15)));
    // Each version is deleted separately.
    assert_eq!(seen(&merge(&shape, &[&a, &b], deletion(9), Keep::All)), Some((10, 10)));
    assert_eq!(seen(&merge(&shape, &[&a, &b], deletion(10), Keep::All)), None);
}

/// CASSANDRA-7346.
#[test]
fn a_deleted_counter_stays_deleted_whatever_the_timestamps() {
    let shape = counter_shape();
    let keep = Keep::Live { now: DeletionSeconds(100) };
    let live = row(CellRef::live(TimestampMicros(10), &context(&[(1, 7, 10)])));
    let dead = row(CellRef::tombstone(TimestampMicros(4), DeletionSeconds(2)));
    for sources in [[&live[..], &dead[..]], [&dead[..], &live[..]]] {
        assert_eq!(seen(&merge(&shape, &sources, DeletionTime::LIVE, keep)), None);
        let kept = merge(&shape, &sources, DeletionTime::LIVE, Keep::All);
        assert_eq!(seen(&kept), Some((4, 0)));
    }
}

/// A writer's history: its counts by clock, so that equal clocks have equal counts.
fn history() -> impl Strategy<Value = Vec<(u8, i64)>> {
    proptest::collection::vec((0..4_u8, 1..6_i64), 1..6)
}

fn count_at(writer: u8, clock: i64) -> i64 {
    clock * 10 + i64::from(writer)
}

fn of_history(points: &[(u8, i64)]) -> Vec<u8> {
    context(&points.iter().map(|(w, clock)| (*w, *clock, count_at(*w, *clock))).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn merging_contexts_keeps_each_writers_newest(x in history(), y in history(), z in history()) {
        let (a, b, c) = (of_history(&x), of_history(&y), of_history(&z));
        let mut newest: BTreeMap<u8, i64> = BTreeMap::new();
        for (writer, clock) in x.iter().chain(&y).chain(&z) {
            let at = newest.entry(*writer).or_default();
            *at = (*at).max(*clock);
        }
        let expected: Vec<(u8, i64)> = newest.into_iter().collect();
        let together = all(&[a.clone(), b.clone(), c.clone()]);
        prop_assert_eq!(&together, &of_history(&expected));
        prop_assert_eq!(&merged(&a, &b), &merged(&b, &a), "INV-counter-1");
        prop_assert_eq!(&merged(&a, &merged(&b, &c)), &together, "INV-counter-1");
        prop_assert_eq!(&merged(&together, &together), &together, "INV-counter-1");
        prop_assert_eq!(&merged(&together, &b), &together);
        let sum: i64 = expected.iter().map(|(w, clock)| count_at(*w, *clock)).sum();
        prop_assert_eq!(total(&together), sum);
        // Encoded and read back.
        let read: Vec<(u8, i64)> = shards(&together).unwrap().map(|s| (s.id.0[0], s.clock)).collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn any_bytes_are_taken(a in proptest::collection::vec(any::<u8>(), 0..120), b in proptest::collection::vec(any::<u8>(), 0..120)) {
        let sum = merged(&a, &b);
        total(&sum);
        without_local(&a, &mut Vec::new());
        led(&a, id(1), &b, 5);
    }
}
