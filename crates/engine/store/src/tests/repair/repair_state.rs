//! Files set apart for incremental repairs.

use commitlog::SyncMode;
use rt::sim::CrashKind;

use crate::tests::everywhere::*;
use crate::tests::*;
use crate::{GcPolicy, OwnedRanges, ReadScope, RepairedMark};

const SESSION: Uuid = Uuid::from_u128(0x5e55);
const OTHER: Uuid = Uuid::from_u128(0x07e4);

fn ring(many: i32) -> Vec<(Token, i32)> {
    let mut ring: Vec<(Token, i32)> = (0..many).map(|pk| (codec::token_of(&key(pk)), pk)).collect();
    ring.sort();
    ring
}

fn range(from: Token, to: Token) -> OwnedRanges {
    OwnedRanges::new(vec![(from, to)])
}

/// Keys that a repair's read sees.
async fn seen(store: &Store, scope: ReadScope) -> Result<Vec<i32>, StoreError> {
    let command = read_of(Partitions::Range(KeyRange::all()));
    let (limits, keep) = (data::replica_page::PageLimits::default(), DeletionSeconds(i64::MIN));
    let read = store.reader().read_for_repair(&command, limits, keep, scope).await?;
    let shape = data::TableShape::for_table(&table(TableOptions::default()));
    let page = data::replica_page::ReplicaPage::parse(&read.page, &shape, false).unwrap();
    assert!(page.is_exhausted());
    let (chain, stops) =
        (data::page_cursor::PageChain::new(page), data::page_cursor::PageStops::NONE);
    let mut cursor = data::page_cursor::PageCursor::new(&shape, false, &chain, &stops);
    let mut keys = Vec::new();
    while data::Cursor::advance(&mut cursor).unwrap() == data::Advance::Item {
        if let data::Item::Partition { key, .. } = data::Cursor::item(&cursor) {
            keys.push(i32::from_be_bytes(key.try_into().unwrap()));
        }
    }
    keys.sort_unstable();
    Ok(keys)
}

fn sorted(part: &[(Token, i32)]) -> Vec<i32> {
    let mut keys: Vec<i32> = part.iter().map(|(_, pk)| *pk).collect();
    keys.sort_unstable();
    keys
}

/// INV-repairing-1, INV-repairing-3.
#[test]
fn files_in_the_range_get_the_mark_and_others_are_split() {
    run(70, |rt| async move {
        const MANY: i32 = 30;
        let store = open(&rt).await;
        let ring = ring(MANY);
        let ranges = range(ring[9].0, ring[19].0);
        let inside = sorted(&ring[10..20]);
        for pk in 0..MANY {
            write(&store, &insert(pk, 1, "a", 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for (_, pk) in &ring[12..15] {
            write(&store, &delete_row(*pk, 2, 90)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for (_, pk) in &ring[25..] {
            write(&store, &insert(*pk, 3, "c", 100)).await.unwrap();
        }
        let before = read_all(&store).await;
        let refused = seen(&store, ReadScope::Pending(SESSION)).await;
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");

        let begun = store.repair().begin_repair(TABLE, SESSION, &ranges).await.unwrap();
        assert_eq!((begun.marked, begun.split), (1, 1));
        assert!(begun.bytes > 0);
        assert_eq!(store.repair().repair_states(TABLE), (0, 2, 2));
        assert_eq!(read_all(&store).await, before);
        assert_eq!(seen(&store, ReadScope::Pending(SESSION)).await.unwrap(), inside);
        assert_eq!(seen(&store, ReadScope::Repair).await.unwrap().len(), MANY as usize);
        // Again: nothing is left to do. Another session must wait, but not for other ranges.
        let again = store.repair().begin_repair(TABLE, SESSION, &ranges).await.unwrap();
        assert_eq!((again.marked, again.split), (0, 0));
        let busy = store.repair().begin_repair(TABLE, OTHER, &range(ring[0].0, ring[10].0)).await;
        assert!(matches!(busy, Err(StoreError::Invalid(_))), "{busy:?}");
        // Later writes do not take part, and a compaction takes no file of the session.
        write(&store, &insert(ring[11].1, 7, "later", 200)).await.unwrap();
        store.flush(None).await.unwrap();
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(store.repair().repair_states(TABLE), (0, 2, 1));
        assert_eq!(seen(&store, ReadScope::Pending(SESSION)).await.unwrap(), inside);

        // A write that this replica lacked.
        let sent = insert(ring[16].1, 9, "sent", 150);
        let mutation = MutationRef::open(&sent).unwrap();
        assert!(store.repair().apply_to_repair(OTHER, &mutation).await.is_err());
        store.repair().apply_to_repair(SESSION, &mutation).await.unwrap();
        store.repair().flush_repair(TABLE, SESSION).await.unwrap();
        assert_eq!(store.repair().repair_states(TABLE), (0, 3, 1));
        let found = values(&read_partition(&store, ring[16].1).await);
        assert_eq!(found, [(1, "a".to_owned()), (9, "sent".to_owned())]);

        assert_eq!(store.repair().pending_repairs(), [(TABLE, SESSION)]);
        assert_eq!(store.repair().end_repair(TABLE, SESSION, Some(77_000)).await.unwrap(), 3);
        assert_eq!(store.repair().pending_repairs(), []);
        assert_eq!(store.repair().repair_states(TABLE), (3, 0, 1));
        let after = read_all(&store).await;
        // Repaired and other files stay apart, before and after a restart.
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(store.repair().repair_states(TABLE), (1, 0, 1));
        store.drain().await.unwrap();
        store.stop().await;
        let store = open(&rt).await;
        assert_eq!(store.repair().repair_states(TABLE), (1, 0, 1));
        assert_eq!(read_all(&store).await, after);
        // The next one takes what is not repaired, alone.
        store.repair().begin_repair(TABLE, OTHER, &OwnedRanges::everything()).await.unwrap();
        let pending = seen(&store, ReadScope::Pending(OTHER)).await.unwrap();
        let mut expected = sorted(&[&ring[..10], &ring[20..]].concat());
        expected.push(ring[11].1);
        expected.sort_unstable();
        assert_eq!(pending, expected);
        store.stop().await;
        // A session whose run has ended is read no more; given up, its files are ordinary ones.
        let store = open(&rt).await;
        assert_eq!(store.repair().pending_repairs(), [(TABLE, OTHER)]);
        assert!(seen(&store, ReadScope::Pending(OTHER)).await.is_err());
        assert_eq!(store.repair().end_repair(TABLE, OTHER, None).await.unwrap(), 1);
        assert_eq!(store.repair().repair_states(TABLE), (1, 0, 1));
        assert_eq!(read_all(&store).await, after);
        store.stop().await;
    });
}

#[test]
fn a_truncation_ends_what_a_session_has() {
    run(71, |rt| async move {
        let store = open(&rt).await;
        for pk in 0..10 {
            write(&store, &insert(pk, 1, "a", 100)).await.unwrap();
        }
        store.repair().begin_repair(TABLE, SESSION, &OwnedRanges::everything()).await.unwrap();
        let sent = insert(3, 9, "sent", 150);
        store.repair().apply_to_repair(SESSION, &MutationRef::open(&sent).unwrap()).await.unwrap();
        store.lifecycle().truncate(TABLE, TimestampMicros(500)).await.unwrap();
        assert!(
            store
                .repair()
                .apply_to_repair(SESSION, &MutationRef::open(&sent).unwrap())
                .await
                .is_err()
        );
        assert!(store.repair().flush_repair(TABLE, SESSION).await.is_err());
        assert_eq!(store.repair().end_repair(TABLE, SESSION, Some(1)).await, Ok(0));
        assert_eq!(read_all(&store).await, []);
        assert_eq!(store.repair().pending_repairs(), []);
        store.stop().await;
    });
}

async fn write_and_repair(rt: Rt, facts: Facts, options: StoreOptions) {
    let Ok((store, _)) = Store::open(rt.clone(), options, schema()).await else { return };
    let ring = ring(4);
    for i in 0..8 {
        let _ = facts.put(&store, (i % 4, i), &format!("{i}"), i64::from(i) + 1).await;
        if i == 3 && store.flush(None).await.is_err() {
            return;
        }
    }
    // One file has the mark, the rest of both is another one's.
    let ranges = range(ring[0].0, ring[2].0);
    if store.repair().begin_repair(TABLE, SESSION, &ranges).await.is_err() {
        return;
    }
    if store.repair().begin_repair(TABLE, OTHER, &range(ring[2].0, ring[3].0)).await.is_err() {
        return;
    }
    if store.repair().end_repair(TABLE, SESSION, Some(1000)).await.is_err()
        || store.repair().end_repair(TABLE, OTHER, None).await.is_err()
    {
        return;
    }
    let _ = facts.put(&store, (1, 100), "behind", 100).await;
}

/// INV-repairing-2.
#[test]
fn a_crash_at_every_io_of_a_session_loses_nothing_acknowledged_and_leaves_it_to_be_ended() {
    for (kind, sync) in [
        (CrashKind::Kill, SyncMode::Periodic { period: Duration::from_millis(5) }),
        (CrashKind::PowerCut, SyncMode::Batch),
        (CrashKind::PowerCutLosingAll, SyncMode::Batch),
    ] {
        let main = move |rt: Rt, facts: Facts, barrier: Barrier| async move {
            barrier.arm(&rt).await;
            let options = StoreOptions { sync, ..options(&rt) };
            write_and_repair(rt, facts, options).await;
        };
        let crash = Crash { name: "incremental repair", kind, shards: 1, step: 1 };
        let check = |world: &World, facts: &Facts, (_, place): (u64, &str)| {
            check_restarts(world, facts, 1, place);
            // Every file exists with a state, and a session can always be ended.
            run_in(world, |rt| async move {
                let store = open(&rt).await;
                let before = read_all(&store).await;
                for (table, session) in store.repair().pending_repairs() {
                    store.repair().end_repair(table, session, None).await.unwrap();
                }
                assert_eq!(store.repair().pending_repairs(), []);
                store.compactor().compact_major(TABLE).await.unwrap();
                let (repaired, pending, other) = store.repair().repair_states(TABLE);
                assert!(repaired <= 1 && pending == 0 && other <= 1);
                assert_eq!(read_all(&store).await, before);
                store.stop().await;
            });
        };
        crash_everywhere(crash, |_, _| (), main, check);
    }
}

#[test]
fn tombstones_wait_for_the_repair_of_their_range() {
    run(73, |rt| async move {
        let options_of = TableOptions { gc_grace_seconds: 0, ..TableOptions::default() };
        let schema = schema_of(vec![table(options_of)]);
        let store = Store::open(rt.clone(), options(&rt), schema).await.unwrap().0;
        let ring = ring(4);
        let store = &store;
        let tombstones = async || {
            store.flush(None).await.unwrap();
            store.compactor().compact_major(TABLE).await.unwrap();
            let keep = DeletionSeconds(i64::MIN);
            let command = read_of(Partitions::Range(KeyRange::all()));
            let limits = data::replica_page::PageLimits::default();
            store
                .reader()
                .read_replica(&command, limits, true, keep)
                .await
                .unwrap()
                .stats
                .partitions
        };
        store.reader().set_gc_policy(TABLE, GcPolicy::repaired(Vec::new()));
        for pk in 0..4 {
            write(store, &delete_partition(pk, 100)).await.unwrap();
        }
        assert_eq!(tombstones().await, 4);
        assert_eq!(store.reader().purge_before(TABLE, NOW), crate::NEVER);
        // Two of them were repaired after they were made (at 1,000,000), one before.
        let at = |seconds| DeletionSeconds(seconds);
        let half =
            vec![(Token::MIN, ring[1].0, at(1_000_001)), (ring[1].0, Token::MAX, at(1_000_000))];
        store.reader().set_gc_policy(TABLE, GcPolicy::repaired(half));
        assert_eq!(store.reader().purge_before(TABLE, NOW), at(1_000_000));
        assert_eq!(tombstones().await, 2);
        store.reader().set_gc_policy(TABLE, GcPolicy::Disabled);
        assert_eq!(tombstones().await, 2);
        store.reader().set_gc_policy(TABLE, GcPolicy::Timeout);
        assert_eq!(tombstones().await, 0);
        store.stop().await;
    });
}

#[test]
fn reads_for_repairs_pass_by_the_cache() {
    run(74, |rt| async move {
        let store = open(&rt).await;
        for ck in 0..10 {
            write(&store, &delete_row(1, ck, 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for file in &store.rooms.tables.table(TABLE).unwrap().view().files {
            store.rooms.files.cache.forget(file.id);
        }
        let command = read_of(Partitions::Range(KeyRange::all()));
        let limits = data::replica_page::PageLimits::default();
        let keep = DeletionSeconds(i64::MIN);
        let (used, reads) = (store.memory_bytes(), store.table_stats(TABLE).reads);
        assert_eq!(seen(&store, ReadScope::Repair).await.unwrap(), [1]);
        assert_eq!(seen(&store, ReadScope::Unrepaired).await.unwrap(), [1]);
        assert_eq!(seen(&store, ReadScope::Repaired).await.unwrap(), Vec::<i32>::new());
        assert_eq!((store.memory_bytes(), store.table_stats(TABLE).reads), (used, reads));
        assert!(store.reader().read_replica(&command, limits, true, keep).await.is_ok());
        assert_ne!(store.memory_bytes(), used);
        store.stop().await;
    });
}

#[test]
fn marks_of_an_administrator_are_durable_and_leave_sessions_alone() {
    use RepairedMark::{Repaired, Unrepaired};
    run(73, |rt| async move {
        let store = open(&rt).await;
        let ring = ring(20);
        for (part, value) in [(&ring[..10], "a"), (&ring[10..], "b")] {
            for (_, pk) in part {
                write(&store, &insert(*pk, 1, value, 100)).await.unwrap();
            }
            store.flush(None).await.unwrap();
        }
        let before = read_all(&store).await;
        let set =
            async |mark, preview| store.repair().set_repaired(TABLE, mark, preview).await.unwrap();
        let would = set(Repaired, true).await;
        assert_eq!((would.len(), store.repair().repair_states(TABLE)), (2, (0, 0, 2)));
        assert_eq!(set(Repaired, false).await, would);
        assert_eq!(store.repair().repair_states(TABLE), (2, 0, 0));
        // Nothing is left to do.
        assert!(set(Repaired, false).await.is_empty());
        store.drain().await.unwrap();
        store.stop().await;
        let store = open(&rt).await;
        assert_eq!(store.repair().repair_states(TABLE), (2, 0, 0));
        let set =
            async |mark, preview| store.repair().set_repaired(TABLE, mark, preview).await.unwrap();
        assert_eq!(set(Unrepaired, false).await.len(), 2);
        assert_eq!(store.repair().repair_states(TABLE), (0, 0, 2));
        assert_eq!(read_all(&store).await, before);
        // A file of a session keeps its mark.
        let ranges = range(Token::MIN, ring[9].0);
        let begun = store.repair().begin_repair(TABLE, SESSION, &ranges).await.unwrap();
        assert_eq!((begun.marked, begun.split), (1, 0));
        assert_eq!(set(Repaired, false).await.len(), 1);
        assert_eq!(store.repair().repair_states(TABLE), (1, 1, 0));
        let gone = store.repair().set_repaired(stdx::TableId(OTHER), Repaired, false).await;
        assert!(matches!(gone, Err(StoreError::UnknownTable(_))), "{gone:?}");
        store.stop().await;
    });
}

#[test]
fn links_of_a_snapshot_are_created_and_removed_at_their_pace() {
    run(74, |rt| async move {
        let store = open(&rt).await;
        write(&store, &insert(1, 1, "a", 100)).await.unwrap();
        store.flush(None).await.unwrap();
        let took = async |tag: &str| {
            let start = rt.now();
            store.lifecycle().snapshot(tag, None).await.unwrap();
            rt.now().since(start)
        };
        let components = path_count(&store);
        assert!(components >= 5, "{components}");
        assert!(took("fast").await < Duration::from_secs(1));
        store.env().live().set_snapshot_links_per_second(2);
        // The first link waits for nothing.
        let expected = Duration::from_millis(500) * (components - 1);
        let slow = took("slow").await;
        assert!(slow >= expected && slow < expected * 2, "{slow:?} {expected:?}");
        let start = rt.now();
        store.lifecycle().clear_snapshot(Some("slow"), None).await.unwrap();
        assert!(rt.now().since(start) >= expected);
        store.env().live().set_snapshot_links_per_second(0);
        store.lifecycle().clear_snapshot(Some("fast"), None).await.unwrap();
        assert!(store.lifecycle().snapshots().await.unwrap().is_empty());
        store.stop().await;
    });
}

/// Components of all files.
fn path_count(store: &Store) -> u32 {
    let view = store.rooms.tables.table(TABLE).unwrap().view();
    let count: usize = view.files.iter().map(|f| f.reader.meta().components().len()).sum();
    u32::try_from(count).unwrap()
}
