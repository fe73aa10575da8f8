//! Garbage collection, and compactions that use tombstones of other files.

use compact_plan::TombstoneOption::{self, Cell, Row};

use crate::files::slots::CompactionProgress;
use crate::tests::*;

fn schema_with(gc_grace_seconds: i32, overlapping: &str) -> Arc<Schema> {
    let map = [
        ("class", "SizeTieredCompactionStrategy"),
        ("enabled", "false"),
        ("provide_overlapping_tombstones", overlapping),
    ];
    let compaction = map.map(|(k, v)| (k.to_owned(), v.to_owned())).into_iter().collect();
    schema_of(vec![table(TableOptions { gc_grace_seconds, compaction, ..TableOptions::default() })])
}

async fn open_with(rt: &Rt, gc_grace_seconds: i32, overlapping: &str) -> Store {
    let schema = schema_with(gc_grace_seconds, overlapping);
    Store::open(rt.clone(), options(rt), schema).await.unwrap().0
}

/// One file with these mutations.
async fn file_of(store: &Store, mutations: &[Vec<u8>]) {
    for mutation in mutations {
        write(store, mutation).await.unwrap();
    }
    store.flush(None).await.unwrap();
}

fn bytes(store: &Store) -> u64 {
    store.table_stats(TABLE).uncompressed_bytes
}

/// Anything, of any time: what is older may come later.
fn change(r: u64) -> Vec<u8> {
    let (pk, ck, timestamp) = ((r % 12) as i32, ((r >> 8) % 6) as i32, 1 + ((r >> 16) % 20) as i64);
    match (r >> 24) % 10 {
        0 => delete_partition(pk, timestamp),
        1 | 2 => delete_row(pk, ck, timestamp),
        3 | 4 => delete_range(pk, ck, ck + 1 + ((r >> 32) % 4) as i32, timestamp),
        5 => insert_static(pk, &format!("{timestamp}"), timestamp),
        _ => insert(pk, ck, &format!("{timestamp} {}", (r >> 40) % 3), timestamp),
    }
}

#[test]
fn reads_are_the_same_before_and_behind_and_space_goes() {
    let (sizes, world) = (Arc::new(Mutex::new((0, 0))), world(310));
    let sum = sizes.clone();
    run_in(&world, move |rt| {
        let sum = sum.clone();
        async move {
            for round in 0..40 {
                let grace = if round % 2 == 0 { 0 } else { i32::MAX };
                let store = open_with(&rt, grace, "none").await;
                for _ in 0..2 + rt.random_u64() % 5 {
                    let changes: Vec<Vec<u8>> = (0..40).map(|_| change(rt.random_u64())).collect();
                    file_of(&store, &changes).await;
                }
                if rt.random_u64() % 3 == 0 {
                    write(&store, &change(rt.random_u64())).await.unwrap();
                }
                let by = if rt.random_u64() % 2 == 0 { Row } else { Cell };
                let (rows, before) = (read_all(&store).await, bytes(&store));
                store.compactor().garbage_collect(TABLE, by).await.unwrap();
                assert_eq!(read_all(&store).await, rows, "round {round}, {by:?}");
                {
                    let mut sum = sum.lock().unwrap();
                    *sum = (sum.0 + before, sum.1 + bytes(&store));
                }
                // Neither does anything come back when the rest is merged.
                store.compactor().compact_major(TABLE).await.unwrap();
                assert_eq!(read_all(&store).await, rows, "round {round}, {by:?}, merged");
                store.lifecycle().truncate(TABLE, TimestampMicros(1_000)).await.unwrap();
                store.stop().await;
            }
        }
    });
    let (before, after) = *sizes.lock().unwrap();
    assert!(after * 10 < before * 9, "{before} {after}");
}

async fn check(rt: &Rt, grace: i32, files: &[&[Vec<u8>]], by: TombstoneOption, left: u64) {
    let store = open_with(rt, grace, "none").await;
    for file in files {
        file_of(&store, file).await;
    }
    let rows = read_all(&store).await;
    assert_eq!(store.compactor().garbage_collect(TABLE, by).await, Ok(files.len() as u64));
    assert_eq!(store.table_stats(TABLE).sstables, left, "{by:?}, grace {grace}");
    assert_eq!(read_all(&store).await, rows);
    store.lifecycle().truncate(TABLE, TimestampMicros(1_000)).await.unwrap();
    store.stop().await;
}

#[test]
fn what_a_file_hides_goes_from_others_and_its_deletions_when_they_may() {
    run(311, |rt| async move {
        let rows: Vec<Vec<u8>> = (0..6).map(|ck| insert(1, ck, "v", 10)).collect();
        let deleted = [
            vec![delete_partition(1, 11)],
            vec![delete_range(1, 0, 9, 11)],
            (0..6).map(|ck| delete_row(1, ck, 11)).collect(),
        ];
        for deletions in &deleted {
            for by in [Row, Cell] {
                // The deletion stays as long as gc_grace says; later it is purged, after the data
                // that it hid.
                check(&rt, i32::MAX, &[&rows, deletions], by, 1).await;
                check(&rt, i32::MAX, &[deletions, &rows], by, 1).await;
                check(&rt, 0, &[&rows, deletions], by, 0).await;
            }
        }
        // A deletion that is too old hides nothing.
        check(&rt, i32::MAX, &[&rows, &[delete_partition(1, 9)]], Cell, 2).await;
        // The same deletion twice: one of them stays.
        let twice = [delete_partition(1, 11)];
        check(&rt, i32::MAX, &[&twice, &twice], Cell, 2).await;
        check(&rt, i32::MAX, &[&twice, &[delete_partition(1, 12)]], Row, 1).await;
    });
}

#[test]
fn overwritten_cells_go_only_by_cell() {
    run(312, |rt| async move {
        let old = [insert(1, 1, "old", 10), insert(2, 1, "old", 10)];
        let new = [insert(1, 1, "new", 11), insert(2, 1, "new", 11)];
        check(&rt, i32::MAX, &[&old, &new], Row, 2).await;
        check(&rt, i32::MAX, &[&old, &new], Cell, 1).await;
        // The newer file is not removed.
        check(&rt, i32::MAX, &[&new, &old], Cell, 1).await;
    });
}

/// INV-garbage-1.
#[test]
fn what_is_in_a_memtable_hides_nothing_and_keeps_tombstones() {
    run(313, |rt| async move {
        let store = open_with(&rt, 0, "none").await;
        file_of(&store, &[insert(1, 1, "v", 10), insert(2, 1, "v", 10)]).await;
        file_of(&store, &[delete_partition(2, 11)]).await;
        write(&store, &delete_partition(1, 11)).await.unwrap();
        write(&store, &insert(2, 1, "late", 5)).await.unwrap();
        store.compactor().garbage_collect(TABLE, Cell).await.unwrap();
        // The first file keeps the row that the memtable deletes, the second keeps its tombstone.
        assert_eq!(store.table_stats(TABLE).sstables, 2);
        assert_eq!(read_all(&store).await, []);
        store.flush(None).await.unwrap();
        assert_eq!(read_all(&store).await, []);
        // The tombstone stays beside the late row, which is removed first; then the tombstone is
        // purged too.
        for left in [1, 0] {
            store.compactor().garbage_collect(TABLE, Cell).await.unwrap();
            assert_eq!((store.table_stats(TABLE).sstables, read_all(&store).await), (left, vec![]));
        }
        store.stop().await;
    });
}

#[test]
fn a_collection_is_listed_and_given_up() {
    run(314, |rt| async move {
        let store = open_with(&rt, i32::MAX, "none").await;
        let many = |ck| {
            (0..900)
                .map(|pk| insert(pk, ck, &crate::tests::compact::incremental::noise(pk, 1_000), 10))
                .collect::<Vec<_>>()
        };
        for ck in 0..2 {
            file_of(&store, &many(ck)).await;
        }
        let rows = read_all(&store).await;
        store.compactor().set_compaction_throughput(100_000);
        let other = store.clone();
        let ended = std::rc::Rc::new(std::cell::RefCell::new(None));
        let seen = ended.clone();
        let gate = rt.gate("test");
        let task = async move {
            let result = other.compactor().garbage_collect(TABLE, Row).await;
            *seen.borrow_mut() = Some(result);
        };
        gate.spawn(&rt, rt::Group::Admin, "collection", task).unwrap();
        let is_meant = |c: &CompactionProgress| c.kind == "Remove deleted data";
        for _ in 0..2_000 {
            if store.files().slots().compactions().iter().any(|c| c.done_bytes > 0) {
                break;
            }
            rt.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(store.files().slots().stop_compactions(is_meant), 1);
        gate.close().await;
        let interrupted = Err(StoreError::Invalid("Compaction interrupted".to_owned()));
        assert_eq!(ended.borrow_mut().take(), Some(interrupted));
        assert_eq!((store.files().slots().compactions(), read_all(&store).await), (vec![], rows));
        store.stop().await;
    });
}

#[test]
fn compactions_look_at_tombstones_of_others_when_the_table_says_so() {
    run(315, |rt| async move {
        for (overlapping, left) in [("none", 3), ("row", 2), ("cell", 1)] {
            let store = open_with(&rt, i32::MAX, overlapping).await;
            file_of(&store, &[insert(1, 1, "old", 10)]).await;
            file_of(&store, &[insert(2, 1, "old", 10)]).await;
            file_of(&store, &[insert(1, 1, "new", 11), delete_partition(2, 11)]).await;
            let rows = read_all(&store).await;
            // The first, and what was the second then.
            for _ in 0..2 {
                let mut names: Vec<_> = store
                    .rooms
                    .tables
                    .table(TABLE)
                    .unwrap()
                    .view()
                    .files
                    .iter()
                    .map(|f| f.generation)
                    .collect();
                names.sort_unstable();
                store.compactor().compact_files(TABLE, &names[..1]).await.unwrap();
            }
            assert_eq!(store.table_stats(TABLE).sstables, left, "{overlapping}");
            assert_eq!(read_all(&store).await, rows);
            store.lifecycle().truncate(TABLE, TimestampMicros(1_000)).await.unwrap();
            store.stop().await;
        }
    });
}

/// Rows of this many partitions in one file, and a file with the deletion of each.
async fn many_deletions(store: &Store, partitions: i32) {
    let rows: Vec<Vec<u8>> = (0..partitions).map(|pk| insert(pk, 1, "v", 10)).collect();
    file_of(store, &rows).await;
    for pk in 0..partitions {
        file_of(store, &[delete_partition(pk, 11 + i64::from(pk))]).await;
    }
}

/// The number of the file with the rows, and how many it has.
fn file_with_rows(store: &Store) -> Option<(stdx::Generation, u64)> {
    let view = store.rooms.tables.table(TABLE).unwrap().view();
    view.files.iter().find_map(|file| {
        let rows = file.reader.meta().statistics().stats.total_rows;
        (rows > 0).then_some((file.generation, u64::try_from(rows).unwrap()))
    })
}

#[test]
fn no_more_than_the_newest_files_up_to_the_bound_hide_something() {
    const MOST: i32 = crate::compact::garbage_collect::SHADOWS_MAX as i32;
    run(316, |rt| async move {
        for (partitions, left) in [(MOST, None), (MOST + 7, Some(7))] {
            let store = open_with(&rt, i32::MAX, "row").await;
            many_deletions(&store, partitions).await;
            let (file, rows) = file_with_rows(&store).unwrap();
            assert_eq!(rows, u64::try_from(partitions).unwrap());
            store.compactor().compact_files(TABLE, &[file]).await.unwrap();
            assert_eq!(file_with_rows(&store).map(|(_, rows)| rows), left);
            assert_eq!(read_all(&store).await, []);
            store.lifecycle().truncate(TABLE, TimestampMicros(1_000)).await.unwrap();
            store.stop().await;

            let store = open_with(&rt, i32::MAX, "none").await;
            many_deletions(&store, partitions).await;
            store.compactor().garbage_collect(TABLE, Row).await.unwrap();
            assert_eq!(file_with_rows(&store).map(|(_, rows)| rows), left);
            assert_eq!(read_all(&store).await, []);
            store.lifecycle().truncate(TABLE, TimestampMicros(1_000)).await.unwrap();
            store.stop().await;
        }
    });
}
