//! Files of all versions that are written, side by side in one table.

use sstable::WriterOptions;

use crate::tests::*;
use crate::{OwnedRanges, UpgradeScope, Version};

/// The table has no automatic compaction.
async fn open_writing(rt: &Rt, version: Version) -> Store {
    let class = ("class".to_owned(), "SizeTieredCompactionStrategy".to_owned());
    let compaction = BTreeMap::from([class, ("min_threshold".to_owned(), "30".to_owned())]);
    let gc_grace_seconds = i32::MAX;
    let of_table = TableOptions { compaction, gc_grace_seconds, ..TableOptions::default() };
    let options = StoreOptions { sstable_version: version, ..options(rt) };
    Store::open(rt.clone(), options, schema_of(vec![table(of_table)])).await.unwrap().0
}

/// Versions of the complete files in the table's directory, by generation.
async fn versions(rt: &Rt, store: &Store) -> Vec<Version> {
    let fs = rt.fs();
    let own = store
        .rooms
        .files
        .directories
        .directory_of(&store.rooms.tables.table(TABLE).unwrap().version().table);
    let mut files = Vec::new();
    for directory in store.rooms.files.directories.everywhere(&fs, &own).await.unwrap() {
        files.extend(sstable::list_sstables(&fs, &directory).await.unwrap());
    }
    files.sort_by_key(|(descriptor, _)| descriptor.generation);
    assert!(files.iter().all(|(_, s)| *s == sstable::SetState::Complete), "{files:?}");
    files.into_iter().map(|(descriptor, _)| descriptor.version).collect()
}

/// Writes a file in each version, each over a part of those before.
async fn mixed(rt: &Rt) -> Store {
    for (n, version) in (0_i32..).zip(WriterOptions::VERSIONS) {
        let store = open_writing(rt, version).await;
        for pk in n..n + 4 {
            write(&store, &insert(pk, 1, "old", 100 + i64::from(n))).await.unwrap();
            write(&store, &insert(pk, n + 2, version.letters(), 100)).await.unwrap();
        }
        write(&store, &insert_static(n, version.letters(), 100)).await.unwrap();
        write(&store, &delete_range(n, 0, 1, 200)).await.unwrap();
        write(&store, &delete_row(n + 1, 1, 300)).await.unwrap();
        store.flush(None).await.unwrap();
        store.drain().await.unwrap();
        store.stop().await;
    }
    open_writing(rt, Version::Nb).await
}

#[test]
fn a_table_has_files_of_all_versions_and_an_upgrade_writes_them_anew_with_all_that_they_have() {
    run(300, |rt| async move {
        let store = mixed(&rt).await;
        let rows = read_all(&store).await;
        assert_eq!(rows.len(), 19);
        assert_eq!(versions(&rt, &store).await, WriterOptions::VERSIONS);
        store.lifecycle().snapshot("mixed", None).await.unwrap();
        store.stop().await;
        for version in WriterOptions::VERSIONS {
            let store = open_writing(&rt, version).await;
            let others =
                store.compactor().upgrade(TABLE, UpgradeScope::OtherVersions).await.unwrap();
            assert!(others == 3 || others == 4, "{others} to {version}");
            assert_eq!(versions(&rt, &store).await, [version; 4]);
            assert_eq!(read_all(&store).await, rows, "{version}");
            assert_eq!(
                store.compactor().upgrade(TABLE, UpgradeScope::OtherVersions).await.unwrap(),
                0
            );
            assert_eq!(store.compactor().upgrade(TABLE, UpgradeScope::All).await.unwrap(), 4);
            assert_eq!(versions(&rt, &store).await, [version; 4]);
            store.stop().await;
            let store = open_writing(&rt, Version::Nb).await;
            assert_eq!(read_all(&store).await, rows, "{version}, restarted");
            store.stop().await;
        }
        // Merged files are of the written version, and no data was resurrected.
        let store = open_writing(&rt, Version::Da).await;
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(versions(&rt, &store).await, [Version::Da]);
        assert_eq!(read_all(&store).await, rows);
    });
}

#[test]
fn an_upgrade_keeps_the_tombstones_that_a_compaction_would_purge() {
    let options = TableOptions { gc_grace_seconds: 0, ..TableOptions::default() };
    let schema = schema_of(vec![table(options)]);
    run(301, move |rt| {
        let schema = schema.clone();
        async move {
            let of =
                |version| StoreOptions { sstable_version: version, ..crate::tests::options(&rt) };
            let (store, _) =
                Store::open(rt.clone(), of(Version::Nb), schema.clone()).await.unwrap();
            write(&store, &delete_partition(1, 100)).await.unwrap();
            store.drain().await.unwrap();
            store.stop().await;
            let (store, _) = Store::open(rt.clone(), of(Version::Oa), schema).await.unwrap();
            assert_eq!(
                store.compactor().upgrade(TABLE, UpgradeScope::OtherVersions).await.unwrap(),
                1
            );
            assert_eq!(versions(&rt, &store).await, [Version::Oa]);
            store.compactor().compact_major(TABLE).await.unwrap();
            assert_eq!(versions(&rt, &store).await, []);
        }
    });
}

/// `me` has no mark for a repair under way: such files are of `nb` until a compaction takes them.
#[test]
fn files_of_a_version_without_marks_take_part_in_an_incremental_repair_as_others() {
    run(302, |rt| async move {
        let store = open_writing(&rt, Version::Me).await;
        for pk in 0..6 {
            write(&store, &insert(pk, 1, "a", 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        assert_eq!(versions(&rt, &store).await, [Version::Me]);
        let rows = read_all(&store).await;
        let all = OwnedRanges::new(vec![(Token::MIN, Token::MAX)]);
        let session = Uuid::from_u128(5);
        let begun = store.repair().begin_repair(TABLE, session, &all).await.unwrap();
        assert_eq!((begun.marked, begun.split), (0, 1));
        assert_eq!(versions(&rt, &store).await, [Version::Nb]);
        assert_eq!(store.compactor().upgrade(TABLE, UpgradeScope::OtherVersions).await.unwrap(), 0);
        assert_eq!(store.repair().end_repair(TABLE, session, Some(7)).await.unwrap(), 1);
        assert_eq!(store.repair().repair_states(TABLE), (1, 0, 0));
        assert_eq!(store.compactor().upgrade(TABLE, UpgradeScope::OtherVersions).await.unwrap(), 1);
        assert_eq!(versions(&rt, &store).await, [Version::Me]);
        assert_eq!(store.repair().repair_states(TABLE), (1, 0, 0));
        assert_eq!(read_all(&store).await, rows);
    });
}

/// An INSERT that expires, and the DELETE of another row, both after 2038.
fn late_writes(pk: i32, expires: i64) -> [Vec<u8>; 2] {
    let (timestamp, ttl) = (TimestampMicros(100), stdx::TtlSeconds(600_000_000));
    let expires_at = DeletionSeconds(expires);
    let cell = CellRef::expiring(timestamp, ttl, expires_at, b"late");
    let liveness = Liveness { timestamp, ttl, expires_at };
    let inserted = packed(liveness, DeletionTime::LIVE, &[(VALUE, cell)]);
    let deletion = DeletionTime { timestamp, local: DeletionSeconds(2_200_000_000) };
    let deleted = packed(Liveness::NONE, deletion, &[]);
    [(1, inserted), (2, deleted)].map(|(ck, row)| {
        let clustering = clustering(ck);
        encode(pk, |m| m.rows([(clustering.as_slice(), RowRef::trusted(&row))].into_iter()))
    })
}

/// Which partitions have a live row at that second.
async fn alive_at(store: &Store, now: i64) -> Vec<i32> {
    let read =
        ReadCommand { now: DeletionSeconds(now), ..read_of(Partitions::Range(KeyRange::all())) };
    crate::tests::read(store, &read).await.into_iter().map(|(pk, ..)| pk).collect()
}

/// INV: what expires after 2038 lives until then, from the memtable, the log, and files that a flush, a
/// compaction and an upgrade wrote; a store whose files cannot say such times does not take such files.
#[test]
fn rows_that_expire_after_2038_live_until_then_and_no_shorter() {
    let expiries = [2_147_483_646, 2_147_483_647, 2_147_483_648, 2_400_000_000, 4_294_967_293];
    run(304, move |rt| async move {
        let check = async |store: &Store, what: &str| {
            for last in expiries {
                let of = |now: i64| (0_i32..).zip(expiries).filter(move |(_, at)| now < *at);
                for now in [last - 1, last] {
                    let expect: Vec<i32> = of(now).map(|(pk, _)| pk).collect();
                    let mut found = alive_at(store, now).await;
                    found.sort_unstable();
                    assert_eq!(found, expect, "{what}, at {now}");
                }
            }
        };
        let store = open_writing(&rt, Version::Oa).await;
        for (pk, at) in (0_i32..).zip(expiries) {
            for mutation in late_writes(pk, at) {
                write(&store, &mutation).await.unwrap();
            }
        }
        check(&store, "memtable").await;
        store.stop().await;
        let store = open_writing(&rt, Version::Oa).await;
        check(&store, "log").await;
        store.flush(None).await.unwrap();
        check(&store, "flushed").await;
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(versions(&rt, &store).await, [Version::Oa]);
        check(&store, "compacted").await;
        store.drain().await.unwrap();
        store.stop().await;
        for version in [Version::Da, Version::Oa] {
            let store = open_writing(&rt, version).await;
            assert_eq!(
                store.compactor().upgrade(TABLE, UpgradeScope::OtherVersions).await.unwrap(),
                1
            );
            assert_eq!(versions(&rt, &store).await, [version]);
            check(&store, version.letters()).await;
            store.stop().await;
        }
        for version in [Version::Me, Version::Nb] {
            let class = ("class".to_owned(), "SizeTieredCompactionStrategy".to_owned());
            let compaction = BTreeMap::from([class]);
            let of_table = TableOptions { compaction, ..TableOptions::default() };
            let options = StoreOptions { sstable_version: version, ..options(&rt) };
            let opened =
                Store::open(rt.clone(), options, schema_of(vec![table(of_table)])).await.err();
            let error = opened.unwrap().to_string();
            assert!(error.contains("after 2038-01-19"), "{version}: {error}");
        }
        check(&open_writing(&rt, Version::Oa).await, "again").await;
    });
}
