//! Partitions that are not owned any more leave the files, and no others.

use crate::tests::*;
use crate::{Cleaned, OwnedRanges};

/// The partitions of the test with their tokens, in ring order.
fn ring(many: i32) -> Vec<(Token, i32)> {
    let mut ring: Vec<(Token, i32)> = (0..many).map(|pk| (codec::token_of(&key(pk)), pk)).collect();
    ring.sort();
    ring
}

fn owned(from: Token, to: Token) -> OwnedRanges {
    OwnedRanges::new(vec![(from, to)])
}

async fn found(store: &Store, many: i32) -> Vec<i32> {
    let mut found = Vec::new();
    for pk in 0..many {
        if !read_partition(store, pk).await.is_empty() {
            found.push(pk);
        }
    }
    found
}

fn sorted(part: &[(Token, i32)]) -> Vec<i32> {
    let mut keys: Vec<i32> = part.iter().map(|(_, pk)| *pk).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn files_lose_what_is_not_owned_and_keep_the_rest_after_a_restart_too() {
    run(60, |rt| async move {
        const MANY: i32 = 40;
        let store = open(&rt).await;
        let ring = ring(MANY);
        let (begin, end) = (9, 29);
        let range = owned(ring[begin].0, ring[end].0);
        let inside = sorted(&ring[begin + 1..=end]);
        // One file of both, one of each side alone, and a memtable.
        for pk in 0..MANY {
            write(&store, &insert(pk, 1, "a", 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for (_, pk) in &ring[..begin] {
            write(&store, &insert(*pk, 2, "b", 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for (_, pk) in &ring[begin + 1..end] {
            write(&store, &insert(*pk, 2, "c", 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        write(&store, &insert(ring[0].1, 3, "d", 100)).await.unwrap();
        let whole = read_partition(&store, ring[begin + 1].1).await;

        let cleaned = store.compactor().cleanup(TABLE, || Some(range.clone())).await.unwrap();
        assert_eq!(cleaned, Cleaned { kept: 1, rewritten: 1, removed: 2 });
        assert_eq!(found(&store, MANY).await, inside);
        assert_eq!(read_partition(&store, ring[begin + 1].1).await, whole);
        assert_eq!(store.table_stats(TABLE).sstables, 2);
        // Nothing is left to do: both lie in the range.
        let again = store.compactor().cleanup(TABLE, || Some(range)).await.unwrap();
        assert_eq!(again, Cleaned { kept: 2, ..Cleaned::default() });
        store.drain().await.unwrap();
        store.stop().await;
        let store = open(&rt).await;
        assert_eq!(found(&store, MANY).await, inside);
        store.stop().await;
    });
}

/// A write that arrives when the ranges are reported is not cleaned: they may be owned again. INV-cleanup-1.
#[test]
fn what_is_written_after_the_ranges_were_reported_stays() {
    run(62, |rt| async move {
        let store = open(&rt).await;
        for pk in 0..10 {
            write(&store, &insert(pk, 1, "a", 100)).await.unwrap();
        }
        let beside = store.clone();
        let report = move || {
            let bytes = insert(3, 2, "later", 200);
            let mutation = MutationRef::open(&bytes).unwrap();
            beside.apply(&mutation, true).unwrap();
            Some(OwnedRanges::new(Vec::new()))
        };
        store.compactor().cleanup(TABLE, report).await.unwrap();
        assert_eq!(found(&store, 10).await, [3]);
        assert_eq!(read_partition(&store, 3).await.len(), 1);
        store.flush(None).await.unwrap();
        assert_eq!(found(&store, 10).await, [3]);
        store.stop().await;
    });
}

#[test]
fn a_cleanup_that_is_given_up_changes_nothing_and_one_that_owns_nothing_empties() {
    run(61, |rt| async move {
        let store = open(&rt).await;
        for pk in 0..10 {
            write(&store, &insert(pk, 1, "a", 100)).await.unwrap();
        }
        assert_eq!(store.compactor().cleanup(TABLE, || None).await.unwrap(), Cleaned::default());
        assert_eq!(found(&store, 10).await.len(), 10);
        let nothing = OwnedRanges::new(Vec::new());
        let cleaned = store.compactor().cleanup(TABLE, || Some(nothing)).await.unwrap();
        assert_eq!(cleaned, Cleaned { removed: 1, ..Cleaned::default() });
        assert_eq!(found(&store, 10).await, Vec::<i32>::new());
        let unknown = TableId(Uuid::from_u128(0x999));
        let refused = store.compactor().cleanup(unknown, || None).await;
        assert!(matches!(refused, Err(StoreError::UnknownTable(_))), "{refused:?}");
        store.stop().await;
    });
}
