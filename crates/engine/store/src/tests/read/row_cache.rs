//! The row cache: what it answers, and that it changes no answer.

use data::replica_page::PageLimits;
use rt::Group;

use crate::tests::*;
use crate::{ReadScope, ReadStats};

/// A table whose partitions are cached: `ALL`, or a number of rows.
fn cached_schema(rows: &str) -> Arc<Schema> {
    let mut options = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    options.caching.insert("rows_per_partition".to_owned(), rows.to_owned());
    schema_of(vec![table(options)])
}

async fn open_cached(rt: &Rt, rows: &str, bytes: u64) -> Store {
    let options = StoreOptions { row_cache_bytes_max: bytes, ..options(rt) };
    Store::open(rt.clone(), options, cached_schema(rows)).await.unwrap().0
}

async fn read_counted(store: &Store, command: &ReadCommand) -> (Vec<Found>, ReadStats) {
    let mut sink = Collect::default();
    let stats = store.read(command, &mut sink).await.unwrap();
    (sink.rows, stats)
}

/// Values of a partition, and how many files were read for them.
async fn read_files(store: &Store, pk: i32) -> (Vec<(i32, String)>, u32) {
    let (rows, stats) = read_counted(store, &read_of(Partitions::Key(key(pk)))).await;
    (values(&rows), stats.sstables)
}

fn row(ck: i32, value: &str) -> (i32, String) {
    (ck, value.to_owned())
}

#[test]
fn partitions_stay_cached_over_writes_flushes_and_compactions() {
    run(700, |rt| async move {
        let store = open_cached(&rt, "ALL", 1 << 20).await;
        write(&store, &insert(1, 1, "a", 100)).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(read_files(&store, 1).await, (vec![row(1, "a")], 1));
        assert_eq!(read_files(&store, 1).await, (vec![row(1, "a")], 0));

        write(&store, &insert(1, 2, "b", 100)).await.unwrap();
        assert_eq!(read_files(&store, 1).await, (vec![row(1, "a"), row(2, "b")], 0));
        write(&store, &delete_row(1, 1, 200)).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(read_files(&store, 1).await, (vec![row(2, "b")], 0), "flushed");
        write(&store, &insert(1, 1, "older than its deletion", 150)).await.unwrap();
        assert_eq!(read_files(&store, 1).await, (vec![row(2, "b")], 0));
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(read_files(&store, 1).await, (vec![row(2, "b")], 0), "compacted");

        let stats = store.rooms.reader.row_cache.stats();
        assert_eq!((stats.requests, stats.hits, stats.entries), (6, 5, 1), "{stats:?}");
        assert!(stats.bytes > 0 && stats.bytes < stats.capacity, "{stats:?}");

        store.reader().invalidate_row_cache();
        assert_eq!(read_files(&store, 1).await.1, 1);
        store.reader().set_row_cache_capacity(0).unwrap();
        assert_eq!(store.rooms.reader.row_cache.stats().entries, 0);
        for _ in 0..2 {
            assert_eq!(read_files(&store, 1).await, (vec![row(2, "b")], 1), "there is no cache");
        }
        store.reader().set_row_cache_capacity(1 << 20).unwrap();
        let refused = store.reader().set_row_cache_capacity(1 << 40);
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
        assert_eq!(read_files(&store, 1).await.1, 1);
        assert_eq!(read_files(&store, 1).await.1, 0);
    });
}

#[test]
fn what_else_changes_files_is_seen_at_once() {
    run(701, |rt| async move {
        let store = open_cached(&rt, "ALL", 1 << 20).await;
        let fill = async || {
            write(&store, &insert(1, 1, "a", 100)).await.unwrap();
            store.flush(None).await.unwrap();
            read_files(&store, 1).await;
            assert_eq!(read_files(&store, 1).await, (vec![row(1, "a")], 0));
        };
        fill().await;
        store.lifecycle().truncate(TABLE, TimestampMicros(1_000_000)).await.unwrap();
        assert_eq!(read_files(&store, 1).await, (vec![], 0));

        fill().await;
        let none = crate::OwnedRanges::new(Vec::new());
        store.compactor().cleanup(TABLE, || Some(none)).await.unwrap();
        assert_eq!(read_files(&store, 1).await, (vec![], 0), "not owned any more");

        fill().await;
        store.set_schema(cached_schema("NONE"));
        for _ in 0..2 {
            assert_eq!(read_files(&store, 1).await, (vec![row(1, "a")], 1), "not cached any more");
        }
    });
}

/// A number of rows: reads that end within them read no file, others continue in the files where
/// the head ends.
#[test]
fn the_first_rows_of_a_partition_are_read_without_its_files() {
    run(702, |rt| async move {
        let store = open_cached(&rt, "4", 1 << 20).await;
        for ck in 0..20 {
            write(&store, &insert(1, ck, "v", 100)).await.unwrap();
        }
        write(&store, &insert_static(1, "s", 100)).await.unwrap();
        store.flush(None).await.unwrap();
        // A deletion over the end of the head makes that longer.
        write(&store, &delete_range(1, 2, 7, 200)).await.unwrap();
        store.flush(None).await.unwrap();
        let expect: Vec<i32> = vec![0, 1, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19];
        let cks = |rows: &[Found]| values(rows).iter().map(|r| r.0).collect::<Vec<i32>>();
        let all = read_of(Partitions::Key(key(1)));
        for _ in 0..2 {
            let (rows, _) = read_counted(&store, &all).await;
            assert_eq!(cks(&rows), expect);
            assert!(rows.iter().all(|r| r.2.as_deref() == Some("s")), "{rows:?}");
        }
        let (rows, stats) =
            read_counted(&store, &ReadCommand { slices: slice(0, 8).into(), ..all.clone() }).await;
        assert_eq!((cks(&rows), stats.sstables), (vec![0, 1, 7], 0));
        // A read that ends within the head stops before the files.
        let before = store.rooms.files.cache.bytes();
        store.rooms.files.cache.forget(store.rooms.tables.table(TABLE).unwrap().view().files[0].id);
        assert!(store.rooms.files.cache.bytes() < before);
        let mut first = Collect { stop_after: Some(3), ..Collect::default() };
        let stats = store.read(&all, &mut first).await.unwrap();
        assert_eq!((cks(&first.rows), stats.blocks_read), (vec![0, 1, 7], 0));
        let (rows, stats) = read_counted(&store, &all).await;
        assert_eq!(cks(&rows), expect);
        assert!(stats.blocks_read > 0);
        let (mut rows, _) = read_counted(&store, &ReadCommand { reversed: true, ..all }).await;
        rows.reverse();
        assert_eq!(cks(&rows), expect);
        assert_eq!(store.rooms.reader.row_cache.stats().entries, 1);
    });
}

#[test]
fn a_cache_is_never_larger_than_its_budget_and_no_partition_takes_much_of_it() {
    run(703, |rt| async move {
        let store = open_cached(&rt, "ALL", 64 << 10).await;
        let text = "x".repeat(500);
        for pk in 0..300 {
            for ck in 0..if pk == 7 { 100 } else { 2 } {
                write(&store, &insert(pk, ck, &text, 100)).await.unwrap();
            }
        }
        // Nothing can be kept of a partition that begins inside a deletion without end.
        for ck in 0..100 {
            write(&store, &delete_range(8, ck, 1_000, 50 - i64::from(ck % 50))).await.unwrap();
            write(&store, &insert(8, ck, &text, 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for round in 0..2 {
            for pk in 0..300 {
                let rows = if pk == 7 || pk == 8 { 100 } else { 2 };
                assert_eq!(read_partition(&store, pk).await.len(), rows, "{pk}, round {round}");
            }
        }
        let stats = store.rooms.reader.row_cache.stats();
        assert!(stats.entries > 10 && stats.entries < 60, "{stats:?}");
        assert!(stats.bytes > 32 << 10 && stats.bytes <= 64 << 10, "{stats:?}");
    });
}

/// Cached partitions are loaded again after a restart, also with other shards.
#[test]
fn partitions_that_were_cached_are_cached_again_after_a_restart() {
    let world = world(704);
    let saving = |rt: &Rt| StoreOptions {
        row_cache_bytes_max: 1 << 20,
        row_cache_save_period: Duration::from_secs(3_600),
        ..options(rt)
    };
    run_in(&world, move |rt| async move {
        let (store, _) = Store::open(rt.clone(), saving(&rt), cached_schema("ALL")).await.unwrap();
        for pk in 0..50 {
            write(&store, &insert(pk, 1, "a", 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for pk in 0..20 {
            read_partition(&store, pk).await;
        }
        assert_eq!(store.rooms.reader.row_cache.stats().entries, 20);
        store.stop().await;
    });
    for shards in [2, 3, 1] {
        let entries: Arc<Mutex<u64>> = Arc::default();
        let all = entries.clone();
        everywhere::run_shards(&world, shards, move |rt, barrier| {
            let all = all.clone();
            async move {
                let (store, _) =
                    Store::open(rt.clone(), saving(&rt), cached_schema("ALL")).await.unwrap();
                rt.sleep(Duration::from_secs(5)).await;
                let stats = store.rooms.reader.row_cache.stats();
                assert_eq!((stats.requests, stats.hits), (0, 0));
                *all.lock().unwrap() += stats.entries;
                // No shard saves before every shard has read.
                barrier.wait(&rt).await;
                store.stop().await;
            }
        });
        assert_eq!(*entries.lock().unwrap(), 20, "{shards} shards");
    }
    let names = world.disk("n1").list();
    let saved: Vec<&String> = names.iter().filter(|name| name.contains("saved_caches/")).collect();
    assert!(
        matches!(saved.as_slice(), [only] if only.ends_with("saved_caches/rows.0")),
        "{saved:?}"
    );
}

fn random_slices(rt: &Rt) -> Slices {
    let random = rt.random_u64();
    let part = |at: u32, of: u64| (random >> at) % of;
    if part(0, 4) == 0 {
        return Slices::all();
    }
    let (from, middle) = (part(8, 12) as i32, part(16, 8) as i32);
    let ends = [from, from + middle / 3, from + middle, from + middle + part(24, 5) as i32];
    let slice = |from: i32, to: i32, bits: u64| Slice {
        start: clustering(from),
        start_after: bits & 1 == 1,
        end: clustering(to),
        end_after: bits & 2 == 2,
    };
    let (one, two) =
        (slice(ends[0], ends[1], part(32, 4)), slice(ends[2] + 1, ends[3] + 1, part(40, 4)));
    let shape = data::TableShape::for_table(&table(TableOptions::default()));
    let slices = [one, two].into_iter().filter(|s| !s.is_empty(shape.clustering()));
    Slices(slices.collect())
}

/// Reads through the cache find the same as scans and repairs, which bypass it, while memtables are
/// written, files compacted and tables emptied beside them. INV-row-cache-1.
#[test]
fn cached_reads_find_what_others_do() {
    let mut hits = 0;
    for seed in 0..24_u64 {
        let found: Arc<Mutex<u64>> = Arc::default();
        let told = found.clone();
        run(710 + seed, move |rt| {
            let told = told.clone();
            async move {
                let rows = ["ALL", "1", "3", "8"][seed as usize % 4];
                let bytes = [16 << 10, 1 << 20][seed as usize / 4 % 2];
                let store = open_cached(&rt, rows, bytes).await;
                let gate = rt.gate("beside");
                let mut model = basics::Model::default();
                for step in 0..400_i64 {
                    let (mutation, _) = model.random_mutation(&rt, step);
                    write(&store, &mutation).await.unwrap();
                    let beside = store.clone();
                    let what = rt.random_u64() % 120;
                    let task = async move {
                        match what {
                            0..20 => beside.flush(None).await.unwrap(),
                            20..24 => beside.compactor().compact_major(TABLE).await.unwrap(),
                            24 => beside
                                .lifecycle()
                                .truncate(TABLE, TimestampMicros(1))
                                .await
                                .unwrap(),
                            _ => {}
                        }
                    };
                    let _ = gate.spawn(&rt, Group::Admin, "beside", task);
                    if rt.random_u64().is_multiple_of(2) {
                        // Heads are read from the disk, while flushes end beside.
                        forget_blocks(&store);
                    }
                    if what == 25 {
                        store.reader().invalidate_row_cache();
                    }
                    // Pauses of every length between the steps of concurrent work.
                    let longest = [200, 3_000, 30_000][(rt.random_u64() % 3) as usize];
                    rt.sleep(Duration::from_micros(rt.random_u64() % longest)).await;
                    compare(&rt, &store, &format!("seed {seed}, step {step}")).await;
                }
                gate.close().await;
                *told.lock().unwrap() = store.rooms.reader.row_cache.stats().hits;
                store.stop().await;
            }
        });
        hits += *found.lock().unwrap();
    }
    assert!(hits > 3_000, "{hits}");
}

fn forget_blocks(store: &Store) {
    for file in &store.rooms.tables.table(TABLE).unwrap().view().files {
        store.rooms.files.cache.forget(file.id);
    }
}

/// Truncation may come between two reads, so they are repeated until two agree that lie around the third.
async fn compare(rt: &Rt, store: &Store, place: &str) {
    let pk = (rt.random_u64() % 3) as i32;
    let reversed = rt.random_u64().is_multiple_of(4);
    let slices = random_slices(rt);
    let by_key = ReadCommand {
        slices: slices.clone().into(),
        reversed,
        ..read_of(Partitions::Key(key(pk)))
    };
    let scan = ReadCommand { slices: slices.into(), ..read_of(Partitions::Range(KeyRange::all())) };
    let scanned = async || {
        let mut rows = read(store, &scan).await;
        rows.retain(|r| r.0 == pk);
        if reversed {
            rows.reverse();
        }
        rows
    };
    let limits = PageLimits::default();
    loop {
        let before = scanned().await;
        let through = read(store, &by_key).await;
        let page =
            store.reader().read_replica(&by_key, limits, true, DeletionSeconds(i64::MIN)).await;
        let plain = store
            .reader()
            .read_for_repair(&by_key, limits, DeletionSeconds(i64::MIN), ReadScope::Repair)
            .await;
        if before != scanned().await {
            continue;
        }
        assert_eq!(through, before, "{place}: pk {pk}, {by_key:?}");
        assert_eq!(page.unwrap().page, plain.unwrap().page, "{place}: pk {pk}, {by_key:?}");
        return;
    }
}
