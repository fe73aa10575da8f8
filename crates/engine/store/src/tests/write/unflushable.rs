//! Rows that no SSTable can hold, as an earlier release may have left them in the commit log.

use std::cell::RefCell;
use std::rc::Rc;

use commitlog::SyncMode;

use crate::env::failure::StoreFailure;
use crate::tests::*;
use crate::{TableStats, Version};

const OTHER: TableId = TableId(Uuid::from_u128(0x22));
const BUDGET: usize = 64 << 10;

/// Two tables; a value of `v` in the first has four bytes, or none.
fn two_tables() -> Arc<Schema> {
    let options = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    let mut strict = table(options.clone());
    strict.columns[3].ty = CqlType::Int;
    let other = Table { id: OTHER, name: "other".into(), ..table(options) };
    schema_of(vec![strict, other])
}

fn small(rt: &Rt) -> StoreOptions {
    StoreOptions {
        memtable_bytes_max: BUDGET,
        sync: SyncMode::Batch,
        room_wait_max: Duration::from_secs(3),
        commitlog_compression: None,
        commitlog_keys: None,
        ..options(rt)
    }
}

async fn open_small(rt: &Rt) -> Store {
    Store::open(rt.clone(), small(rt), two_tables()).await.unwrap().0
}

/// A row whose value has another length than its type.
fn poison(pk: i32, ck: i32, length: usize, timestamp: i64) -> Vec<u8> {
    insert(pk, ck, &"p".repeat(length), timestamp)
}

fn good(pk: i32, ck: i32, timestamp: i64) -> Vec<u8> {
    insert(pk, ck, "good", timestamp)
}

/// A row of the other table.
fn in_other(pk: i32, ck: i32, value: &str, timestamp: i64) -> Vec<u8> {
    let mut bytes = insert(pk, ck, value, timestamp);
    // The table id follows the version.
    bytes[1..17].copy_from_slice(OTHER.0.as_bytes());
    bytes
}

/// Partition, clustering and length of the value of each row.
async fn lengths(store: &Store) -> Vec<(i32, i32, usize)> {
    let rows = read_all(store).await;
    rows.into_iter().map(|(pk, ck, _, v)| (pk, ck.unwrap(), v.unwrap_or_default().len())).collect()
}

fn stats(store: &Store) -> TableStats {
    store.table_stats(TABLE)
}

fn log_segments(world: &World) -> usize {
    world.disk("n1").list().iter().filter(|path| path.contains("/commitlog/")).count()
}

fn is_unwritable(error: &StoreError, place: &str) -> bool {
    matches!(error, StoreError::Unwritable { place: at, .. } if at.contains(place))
}

#[test]
fn a_flush_writes_everything_but_the_partition_that_cannot_be_written_and_names_it() {
    run(7_100, |rt| async move {
        let store = open_small(&rt).await;
        let reports: Rc<RefCell<Vec<String>>> = Rc::default();
        let sink = reports.clone();
        store.env().on_failure(move |failure| match failure {
            StoreFailure::Unflushable(what) => sink.borrow_mut().push(what),
            other => panic!("{other:?}"),
        });
        for pk in 0..20 {
            write(&store, &good(pk, 1, 10)).await.unwrap();
        }
        write(&store, &poison(5, 2, 3, 10)).await.unwrap();
        write(&store, &insert_static(5, "static", 10)).await.unwrap();
        write(&store, &delete_range(5, 7, 9, 10)).await.unwrap();
        let before = lengths(&store).await;
        let error = store.flush(None).await.unwrap_err();
        let place = "ks.t, partition key 0x00000005, clustering (0x00000002)";
        assert!(is_unwritable(&error, place), "{error}");
        assert_eq!(reports.borrow().len(), 1);
        assert!(reports.borrow()[0].contains(place), "{reports:?}");
        let now = stats(&store);
        assert_eq!((now.sstables, now.memtable_partitions, now.pending_flushes), (1, 1, 0));
        assert!(now.unflushable_bytes > 0);
        assert_eq!(lengths(&store).await, before);
        // A second flush has nothing else to write, and reports nothing new.
        assert!(store.flush(None).await.is_err());
        assert_eq!((stats(&store).sstables, reports.borrow().len()), (1, 1));
        assert_eq!(lengths(&store).await, before);
        // The deletion of the partition frees it.
        write(&store, &delete_partition(5, 20)).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(stats(&store).unflushable_bytes, 0);
        let rest: Vec<_> = before.into_iter().filter(|(pk, ..)| *pk != 5).collect();
        assert_eq!(lengths(&store).await, rest);
    });
}

/// INV-unflushable-1.
#[test]
fn the_log_of_other_rows_is_released_and_a_start_replays_the_row_and_goes_on() {
    let world = world(7_101);
    run_in(&world, |rt| async move {
        let store = open_small(&rt).await;
        write(&store, &poison(5, 2, 3, 10)).await.unwrap();
        for i in 0..600 {
            write(&store, &in_other(i % 7, i, &"x".repeat(1_000), 10)).await.unwrap();
            if i % 40 == 0 {
                // Names the row each time.
                assert!(store.flush(None).await.is_err());
            }
        }
        // A kill follows.
    });
    // 600 kB were written, at ten segments and more.
    let left = log_segments(&world);
    assert!(left <= 3, "{left} segments are left");
    run_in(&world, |rt| async move {
        let (store, report) = Store::open(rt.clone(), small(&rt), two_tables()).await.unwrap();
        assert!(report.applied > 0);
        assert_eq!(lengths(&store).await, [(5, 2, 3)]);
        let drained = store.drain().await.unwrap_err();
        assert!(is_unwritable(&drained, "ks.t"), "{drained}");
        store.stop().await;
    });
    run_in(&world, |rt| async move {
        let store = open_small(&rt).await;
        assert_eq!(lengths(&store).await, [(5, 2, 3)], "after a drain and another start");
        store.lifecycle().truncate(TABLE, TimestampMicros(50)).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(stats(&store).unflushable_bytes, 0);
        store.drain().await.unwrap();
    });
}

#[test]
fn a_replay_beyond_the_budget_goes_on_with_a_row_larger_than_it() {
    let world = world(7_102);
    run_in(&world, |rt| async move {
        let options = StoreOptions { memtable_bytes_max: 64 << 20, ..small(&rt) };
        let (store, _) = Store::open(rt.clone(), options, two_tables()).await.unwrap();
        for ck in 0..10 {
            write(&store, &poison(5, ck, 15_000, 10)).await.unwrap();
        }
        for i in 0..200 {
            write(&store, &in_other(i % 7, i, &"x".repeat(1_000), 10)).await.unwrap();
        }
    });
    run_in(&world, |rt| async move {
        let store = open_small(&rt).await;
        assert_eq!(lengths(&store).await.len(), 10);
        // Other tables have half of the budget.
        for i in 0..200 {
            store.writer().wait_for_room().await.unwrap();
            write(&store, &in_other(i % 7, 1_000 + i, &"x".repeat(1_000), 10)).await.unwrap();
        }
        assert_eq!(lengths(&store).await.len(), 10);
    });
}

/// INV-unflushable-2.
#[test]
fn a_table_takes_no_more_writes_when_its_share_is_full_and_others_go_on() {
    run(7_104, |rt| async move {
        let store = open_small(&rt).await;
        let mut taken = 0;
        let refused = loop {
            store.writer().wait_for_room().await.unwrap();
            match write(&store, &poison(5, taken, 1_000, 10)).await {
                Ok(()) => taken += 1,
                Err(error) => break error,
            }
            assert!(taken < 1_000, "no share is kept");
            assert!(store.flush(None).await.is_err());
        };
        let StoreError::Unflushable { table, bytes, share, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!((table.as_str(), share), ("ks.t", BUDGET / 4));
        assert!(bytes > share && bytes < share + 4_000, "{bytes}");
        // Also an ordinary row of the table is refused.
        assert!(write(&store, &good(1, 1, 10)).await.is_err());
        for i in 0..300 {
            store.writer().wait_for_room().await.unwrap();
            write(&store, &in_other(i % 7, i, &"x".repeat(1_000), 10)).await.unwrap();
        }
        assert_eq!(lengths(&store).await.len(), usize::try_from(taken).unwrap());
        // The remedy is taken, and has effect without a command.
        write(&store, &delete_partition(5, 20)).await.unwrap();
        while stats(&store).unflushable_bytes > 0 {
            rt.sleep(Duration::from_millis(100)).await;
        }
        write(&store, &good(1, 1, 10)).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(lengths(&store).await, [(1, 1, 4)]);
    });
}

#[test]
fn a_crash_at_every_io_of_a_flush_beside_such_a_row_loses_nothing() {
    for kind in [rt::sim::CrashKind::Kill, rt::sim::CrashKind::PowerCutLosingAll] {
        let mut n = 0;
        loop {
            let world = world(7_104);
            run_in(&world, |rt| async move {
                let store = open_small(&rt).await;
                write(&store, &poison(5, 2, 3, 10)).await.unwrap();
                write(&store, &good(6, 1, 10)).await.unwrap();
            });
            let finished: Arc<Mutex<bool>> = Arc::default();
            let done = finished.clone();
            world.disk("n1").crash_at_nth_io(n, kind);
            let node = start(&world, 1, move |rt| {
                let done = done.clone();
                async move {
                    let Ok((store, _)) = Store::open(rt.clone(), small(&rt), two_tables()).await
                    else {
                        return;
                    };
                    for i in 0..3 {
                        let _ = write(&store, &in_other(1, i, &"x".repeat(20_000), 10)).await;
                        let _ = store.flush(None).await;
                    }
                    *done.lock().unwrap() = true;
                }
            });
            world.run_until(|| !world.is_alive(&node), Duration::from_secs(600)).unwrap();
            world.disk("n1").clear_faults();
            run_in(&world, move |rt| async move {
                let store = open_small(&rt).await;
                assert_eq!(lengths(&store).await, [(5, 2, 3), (6, 1, 4)], "{kind:?} at {n}");
            });
            if *finished.lock().unwrap() {
                break;
            }
            n += 3;
        }
        assert!(n > 30, "{n}");
    }
}

#[test]
fn a_mutation_that_no_file_can_hold_is_refused_and_its_neighbour_is_written() {
    run(7_105, |rt| async move {
        for version in sstable::WriterOptions::VERSIONS {
            let name = format!("v{version}");
            let mut options = small(&rt);
            options.data_directories = vec![format!("{name}/data")];
            options.commitlog_directory = format!("{name}/log");
            options.sstable_version = version;
            options.segment_bytes = 1 << 20;
            options.memtable_bytes_max = 4 << 20;
            let schema = long_clusterings();
            let (store, _) = Store::open(rt.clone(), options, schema).await.unwrap();
            let of = |lengths: &[usize]| {
                let values: Vec<Vec<u8>> = lengths.iter().map(|n| vec![b'c'; *n]).collect();
                ClusteringBuf::from_components(values.iter().map(Vec::as_slice)).0
            };
            for lengths in [[65_535, 1], [65_536, 0], [32_768, 32_768], [0, 70_000]] {
                let long = of(&lengths);
                let error = write(&store, &insert_at(1, &long, "v", 10)).await.unwrap_err();
                let bytes = lengths[0] + lengths[1];
                let told = format!("Key length of {bytes} is longer than maximum of 65535");
                assert!(error.to_string().starts_with(&told), "{error}");
                assert!(error.to_string().len() < 500, "{error}");
                let range = encode(1, |m| {
                    let tombstone = RangeTombstoneRef {
                        start: data::BoundRef { prefix: &long, after: false },
                        end: data::BoundRef::TOP,
                        deletion: deletion(1),
                    };
                    m.range_tombstones([tombstone].into_iter());
                });
                assert!(write(&store, &range).await.is_err());
            }
            let negative = write(&store, &delete_partition(9, -5)).await;
            assert_eq!(negative.is_err(), version.has_uint_times(), "{version}");
            for (pk, lengths) in [(1, [65_535, 0]), (2, [32_767, 32_768]), (3, [0, 65_535])] {
                write(&store, &insert_at(pk, &of(&lengths), "v", 10)).await.unwrap();
            }
            let before = store_rows(&store).await;
            assert_eq!(before.len(), 3);
            store.flush(None).await.unwrap();
            assert!(store_rows(&store).await == before, "{version}");
            store.compactor().compact_major(TABLE).await.unwrap();
            assert!(store_rows(&store).await == before, "{version}");
            store.stop().await;
        }
    });
}

#[test]
fn rows_of_an_earlier_release_with_a_long_clustering_are_flushed_compacted_and_found() {
    run(7_106, |rt| async move {
        for version in sstable::WriterOptions::VERSIONS {
            let name = format!("v{version}");
            let mut options = small(&rt);
            options.data_directories = vec![format!("{name}/data")];
            options.commitlog_directory = format!("{name}/log");
            options.sstable_version = version;
            options.segment_bytes = 1 << 20;
            options.memtable_bytes_max = 4 << 20;
            let schema = long_clusterings();
            let (store, _) = Store::open(rt.clone(), options, schema).await.unwrap();
            let table = store.rooms.tables.table(TABLE).unwrap();
            let mut expected = Vec::new();
            for (pk, first, second) in [(1, 70_000, 1), (1, 3, 70_000), (2, 66_000, 66_000)] {
                let values = [vec![b'c'; first], vec![b'd'; second]];
                let long = ClusteringBuf::from_components(values.iter().map(Vec::as_slice)).0;
                let bytes = insert_at(pk, &long, "v", 10);
                let mutation = MutationRef::open(&bytes).unwrap();
                // Like the replay, which refuses nothing that was acknowledged.
                let token = codec::token_of(mutation.key);
                store.rooms.writer.apply_to_memtable(&table, &mutation, token, None);
                expected.push((pk, long));
            }
            let before = store_rows(&store).await;
            assert_eq!(before.len(), 3);
            store.flush(None).await.unwrap();
            assert_eq!(stats(&store).unflushable_bytes, 0, "{version}");
            for round in 0..2 {
                assert!(store_rows(&store).await == before, "{version}");
                // By their clusterings, which the file must not be left out for.
                for (pk, clustering) in &expected {
                    let slices =
                        std::sync::Arc::new(Slices(vec![Slice::prefix(clustering.clone())]));
                    let command = ReadCommand { slices, ..read_of(Partitions::Key(key(*pk))) };
                    let mut sink = Keys::default();
                    store.read(&command, &mut sink).await.unwrap();
                    assert!(sink.0 == [(*pk, clustering.clone())], "{version}, round {round}");
                }
                store.compactor().compact_major(TABLE).await.unwrap();
            }
            store.stop().await;
        }
    });
}

/// `(pk int, c1 blob, c2 blob)`.
fn long_clusterings() -> Arc<Schema> {
    let options = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    let mut table = table(options);
    table.columns[1].ty = CqlType::Blob;
    table.columns[2].ty = CqlType::Blob;
    table.columns[2].kind = ColumnKind::Clustering { position: 1, reversed: false };
    (table.clustering_count, table.static_count) = (2, 0);
    schema_of(vec![table])
}

#[derive(Default)]
struct Keys(Vec<(i32, Vec<u8>)>, i32);

impl Keys {
    fn push(&mut self, clustering: &[u8]) {
        self.0.push((self.1, clustering.to_vec()));
    }
}

impl RowSink for Keys {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.1 = i32::from_be_bytes(key.try_into().unwrap());
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], _: RowRef<'_>) -> Flow {
        self.push(clustering);
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

async fn store_rows(store: &Store) -> Vec<(i32, Vec<u8>)> {
    let mut sink = Keys::default();
    let all = Partitions::Range(data::command::KeyRange::all());
    store.read(&read_of(all), &mut sink).await.unwrap();
    sink.0
}

#[test]
fn a_negative_deletion_of_an_earlier_release_stays_in_memory_where_files_cannot_hold_it() {
    run(7_107, |rt| async move {
        for version in [Version::Oa, Version::Da] {
            let mut options = small(&rt);
            options.data_directories = vec![format!("{version}/data")];
            options.commitlog_directory = format!("{version}/log");
            options.sstable_version = version;
            let (store, _) = Store::open(rt.clone(), options, two_tables()).await.unwrap();
            let table = store.rooms.tables.table(TABLE).unwrap();
            let bytes = delete_partition(4, -7);
            let mutation = MutationRef::open(&bytes).unwrap();
            store.rooms.writer.apply_to_memtable(&table, &mutation, codec::token_of(&key(4)), None);
            write(&store, &good(1, 1, 10)).await.unwrap();
            assert!(is_unwritable(&store.flush(None).await.unwrap_err(), "0x00000004"));
            assert_eq!(lengths(&store).await, [(1, 1, 4)]);
            assert_eq!(stats(&store).sstables, 1);
            store.stop().await;
        }
    });
}
