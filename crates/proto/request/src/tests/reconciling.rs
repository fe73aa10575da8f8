//! The laws of reconciliation.

use data::replica_page::{PageLimits, ReplicaPage};
use proptest::prelude::*;

use super::world::{
    From, NOW, Replica, RowSpec, Seen, Write, chain, ck, describe, encode, seen, shape, spread,
};
use crate::digest::digest_of;
use crate::reconcile::{ReconcileCommand, Reconciled, reconcile};
use crate::types::Target;

const REPLICAS: u32 = 3;

fn command(reversed: bool, rows_per_partition: u32) -> ReconcileCommand {
    ReconcileCommand { reversed, now: NOW, rows_per_partition, counts_static: true }
}

/// Replicas with their writes, and one that has all.
fn replicas(writes: &[(Vec<u8>, u32)]) -> (Vec<Replica>, Replica) {
    let mut all = Replica::default();
    let mut list = vec![Replica::default(); REPLICAS as usize];
    for (mutation, at) in writes {
        all.mutations.push(mutation.clone());
        for (n, replica) in list.iter_mut().enumerate() {
            if at & (1 << n) != 0 {
                replica.mutations.push(mutation.clone());
            }
        }
    }
    (list, all)
}

fn merge(pages: &[Vec<Vec<u8>>], command: &ReconcileCommand) -> Reconciled {
    let shape = shape();
    let sources: Vec<_> =
        (0..).map(Target).zip(pages.iter().map(|p| chain(p, &shape, command.reversed))).collect();
    reconcile(&shape, command, &sources).unwrap()
}

fn whole_pages(replicas: &[Replica], reversed: bool) -> Vec<Vec<Vec<u8>>> {
    replicas.iter().map(|r| vec![r.whole(reversed)]).collect()
}

fn apply(replicas: &mut [Replica], merged: &Reconciled) {
    for (target, mutations) in &merged.repairs {
        replicas[usize::from(target.0)].mutations.extend(mutations.iter().cloned());
    }
}

/// Limits a reader to `rows_per_partition` rows of each partition.
fn limited(mut seen: Seen, rows_per_partition: u32) -> Seen {
    for (_, _, rows) in &mut seen {
        rows.truncate(rows_per_partition as usize);
    }
    seen
}

/// Concatenates the pages of one read; a partition may continue in the next page.
fn append(all: &mut Seen, page: Seen) {
    for (key, static_row, rows) in page {
        match all.last_mut() {
            Some(last) if last.0 == key => last.2.extend(rows),
            _ => all.push((key, static_row, rows)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// INV-reconcile-2.
    #[test]
    fn the_merge_does_not_depend_on_the_spread(writes in spread(REPLICAS), reversed: bool) {
        let (replicas, all) = replicas(&writes);
        let merged = merge(&whole_pages(&replicas, reversed), &command(reversed, u32::MAX));
        let expected = all.whole(reversed);
        prop_assert_eq!(describe(&merged.page, reversed), describe(&expected, reversed));
        prop_assert_eq!(merged.page, expected);
    }

    /// INV-reconcile-1.
    #[test]
    fn a_repaired_replica_has_exactly_the_merged_page(writes in spread(REPLICAS), reversed: bool) {
        let (mut replicas, _) = replicas(&writes);
        let before = whole_pages(&replicas, reversed);
        let merged = merge(&before, &command(reversed, u32::MAX));
        apply(&mut replicas, &merged);
        for (n, replica) in replicas.iter().enumerate() {
            let page = replica.whole(reversed);
            let (is, should) = (describe(&page, reversed), describe(&merged.page, reversed));
            prop_assert_eq!(is, should, "replica {}", n);
            prop_assert_eq!(&page, &merged.page);
            // A replica that had everything gets nothing.
            let target = Target(u8::try_from(n).unwrap());
            let repaired = merged.repairs.iter().any(|(t, _)| *t == target);
            prop_assert_eq!(repaired, before[n][0] != merged.page);
        }
        let again = merge(&whole_pages(&replicas, reversed), &command(reversed, u32::MAX));
        prop_assert!(again.repairs.is_empty());
    }

    #[test]
    fn digests_are_equal_when_the_content_is(writes in spread(2), turn in 0..14_usize) {
        let (mut list, _) = replicas(&writes);
        let described = |r: &Replica| describe(&r.whole(false), false);
        let digest = |r: &Replica| digest_of(&r.whole(false));
        let (a, b) = (&list[0], &list[1]);
        prop_assert_eq!(described(a) == described(b), digest(a) == digest(b));
        // The order of writes, and writing twice, do not show.
        let mut turned = list[0].clone();
        let len = turned.mutations.len();
        if len > 0 {
            turned.mutations.rotate_left(turn % len);
            turned.mutations.push(list[0].mutations[turn % len].clone());
        }
        prop_assert_eq!(digest(&turned), digest(&list[0]));
        list.clear();
    }

    /// Pages of any size, with short reads: every live row comes once, and the rows that were read
    /// are on all replicas that were read.
    #[test]
    fn paging_shows_each_live_row_once(
        writes in spread(REPLICAS),
        reversed: bool,
        rows in 1..5_u32,
        small_bytes: bool,
        few_tombstones: bool,
        limit_partition: bool,
        extend: bool,
    ) {
        let bytes = if small_bytes { 90 } else { 1 << 20 };
        let rows_per_partition = if limit_partition { 2 } else { u32::MAX };
        let tombstones = if few_tombstones { 2 } else { u32::MAX };
        let limits = PageLimits { rows, rows_per_partition, bytes, tombstones };
        let (mut replicas, all) = replicas(&writes);
        let command = command(reversed, rows_per_partition);
        let shape = shape();
        let mut shown: Seen = Vec::new();
        let mut from = From::Start;
        for page in 0.. {
            prop_assert!(page < 200, "a read does not come to its end");
            let mut pages: Vec<Vec<Vec<u8>>> =
                replicas.iter().map(|r| vec![r.read(reversed, &from, limits)]).collect();
            let mut merged = merge(&pages, &command);
            if extend && merged.live_rows < rows && !merged.exhausted {
                for target in merged.short.iter() {
                    let n = usize::from(target.0);
                    let next = From::end_of(pages[n].last().unwrap()).unwrap();
                    pages[n].push(replicas[n].read(reversed, &next, limits));
                }
                merged = merge(&pages, &command);
            }
            prop_assert!(ReplicaPage::parse(&merged.page, &shape, reversed).is_ok());
            apply(&mut replicas, &merged);
            append(&mut shown, seen(&merged.page, reversed));
            match From::end_of(&merged.page) {
                None => {
                    prop_assert!(merged.exhausted);
                    break;
                }
                Some(next) => {
                    prop_assert!(next != from, "a page must come further");
                    from = next;
                }
            }
        }
        let expected = seen(&all.whole(reversed), reversed);
        let (shown, expected) =
            (limited(shown, rows_per_partition), limited(expected, rows_per_partition));
        prop_assert_eq!(shown, expected);
        if !limit_partition {
            for replica in &replicas {
                let (is, should) = (replica.whole(reversed), all.whole(reversed));
                prop_assert_eq!(describe(&is, reversed), describe(&should, reversed));
            }
        }
    }
}

/// A partition that one replica cut by its limit ends the merged page there when another replica
/// deleted the rows before the cut, also when a third one's page ends later in that partition.
#[test]
fn rows_behind_a_cut_partition_are_not_lost() {
    let row = |n, t| encode(1, &Write::Row(n, RowSpec::inserted(t)));
    let gone = Write::Range { from: 0, from_after: false, to: 2, to_after: true, timestamp: 9 };
    let mut list = vec![Replica::default(); 3];
    list[0].mutations = vec![encode(1, &gone), row(5, 10)];
    list[1].mutations = (0..6).map(|n| row(n, 5)).collect();
    list[2].mutations = (0..6).map(|n| row(n, 5)).collect();
    let limits =
        |rows, rows_per_partition| PageLimits { rows, rows_per_partition, ..PageLimits::default() };
    // The second replica cuts the partition after row 1, the third its page after row 3.
    let settings = [limits(9, 2), limits(9, 2), limits(4, 9)];
    let pages: Vec<_> =
        list.iter().zip(settings).map(|(r, l)| vec![r.read(false, &From::Start, l)]).collect();
    let merged = merge(&pages, &command(false, 2));
    let key = 1_i32.to_be_bytes().to_vec();
    assert_eq!(From::end_of(&merged.page), Some(From::Inside(key, ck(1))));
    assert_eq!((merged.live_rows, merged.exhausted), (0, false));
}

/// The laws above are seen to fail: a repair that is left out shows, and a write that is left out
/// of what all have together.
#[test]
fn a_repair_or_write_that_is_left_out_is_seen() {
    let gone = Write::Range { from: 1, from_after: false, to: 3, to_after: false, timestamp: 9 };
    let writes = [
        (encode(0, &Write::Row(1, RowSpec::inserted(5))), 0b001),
        (encode(1, &Write::Row(2, RowSpec::inserted(5))), 0b010),
        (encode(2, &Write::Partition(7)), 0b011),
        (encode(1, &gone), 0b101),
    ];
    let (list, all) = replicas(&writes);
    let merged = merge(&whole_pages(&list, false), &command(false, u32::MAX));
    let per_replica: Vec<usize> = merged.repairs.iter().map(|(_, m)| m.len()).collect();
    // The first misses only deletions, the others a row and a deletion each.
    assert_eq!(per_replica, [2, 2]);
    for (target, mutations) in &merged.repairs {
        for left_out in 0..mutations.len() {
            let mut replica = list[usize::from(target.0)].clone();
            let others = mutations.iter().enumerate().filter(|(n, _)| *n != left_out);
            replica.mutations.extend(others.map(|(_, m)| m.clone()));
            assert_ne!(replica.whole(false), merged.page);
        }
    }
    for left_out in [0, 2, 3] {
        let mut fewer = all.clone();
        fewer.mutations.remove(left_out);
        assert_ne!(fewer.whole(false), merged.page);
    }
}
