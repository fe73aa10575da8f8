//! Work of a store beside reads and writes: latencies, records of compactions, backups, drops.

use std::cell::RefCell;
use std::rc::Rc;

use crate::tests::*;
use crate::{CompactionRecord, SnapshotOptions, StoreFailure};

async fn open_with(rt: &Rt, change: impl FnOnce(&mut StoreOptions)) -> Store {
    let mut options = options(rt);
    change(&mut options);
    Store::open(rt.clone(), options, schema()).await.unwrap().0
}

/// Names of files below the table's directory.
fn files(world: &World) -> Vec<String> {
    let all = world.disk("n1").list();
    all.iter().filter_map(|f| Some(f.split_once("/ks/t-")?.1.to_owned())).collect()
}

fn count(files: &[String], folder: &str) -> usize {
    let is_in = |f: &&String| f.contains(folder) && f.ends_with("-Data.db");
    files.iter().filter(is_in).count()
}

#[test]
fn writes_are_measured_and_sizes_of_partitions_known_once_they_are_flushed() {
    run(41, |rt| async move {
        let store = open(&rt).await;
        for i in 0..3 {
            write(&store, &insert(i, 1, "a", 100)).await.unwrap();
        }
        let stats = store.table_stats(TABLE);
        assert_eq!((stats.write_latency.count(), stats.read_latency.count()), (3, 0));
        assert_eq!((stats.partition_sizes, stats.cell_counts), (Vec::new(), Vec::new()));
        store.flush(None).await.unwrap();
        let stats = store.table_stats(TABLE);
        assert_eq!(stats.partition_sizes.iter().sum::<u64>(), 3);
        assert_eq!(stats.cell_counts.iter().sum::<u64>(), 3);
        assert_ne!(stats.cell_counts.last(), Some(&0));
        store.stop().await;
    });
}

#[test]
fn reads_of_partitions_and_scans_are_measured_apart_and_what_they_meet_together() {
    run(45, |rt| async move {
        let store = open(&rt).await;
        for i in 0..3 {
            write(&store, &insert(1, i, "a", 100)).await.unwrap();
        }
        assert_eq!(read_partition(&store, 1).await.len(), 3);
        assert_eq!(read_partition(&store, 2).await.len(), 0);
        let stats = store.table_stats(TABLE);
        assert_eq!((stats.read_latency.count(), stats.scan_latency.count()), (2, 0));
        assert_eq!(read_all(&store).await.len(), 3);
        let stats = store.table_stats(TABLE);
        assert_eq!((stats.read_latency.count(), stats.scan_latency.count()), (2, 1));
        // Numbers plus one: none is in the bucket of 1, three rows are in that of 4.
        let buckets = &stats.rows_per_read.buckets;
        assert_eq!((buckets.first(), buckets.get(3)), (Some(&1), Some(&2)));
        assert_eq!(stats.tombstones_per_read.buckets.first(), Some(&3));
        assert_eq!((stats.sstable_bytes_max, stats.sstable_span_micros_max), (0, 0));
        write(&store, &insert(2, 1, "a", 150)).await.unwrap();
        store.flush(None).await.unwrap();
        let stats = store.table_stats(TABLE);
        assert_eq!(stats.sstable_bytes_max, stats.disk_bytes);
        assert_eq!(stats.sstable_span_micros_max, 50);
        store.stop().await;
    });
}

#[test]
fn a_mutation_above_the_limit_is_refused_and_one_at_it_is_not() {
    run(42, |rt| async move {
        let fits = insert(1, 1, &"x".repeat(500), 100);
        let max = fits.len();
        let store = open_with(&rt, |o| o.mutation_bytes_max = max).await;
        write(&store, &fits).await.unwrap();
        let larger = insert(1, 2, &"x".repeat(501), 100);
        let refused = write(&store, &larger).await.unwrap_err().to_string();
        let expected = format!(
            "Rejected an oversized mutation ({}/{max}) for keyspace: ks. Top keys are: t.1",
            max + 1
        );
        assert_eq!(refused, expected);
        assert_eq!(read_partition(&store, 1).await.len(), 1);
        store.stop().await;
    });
}

#[test]
fn a_smaller_column_index_size_gives_partitions_more_index_entries() {
    let index_bytes = |column_index_bytes: u64| {
        let found = Arc::new(Mutex::new(0));
        let shared = found.clone();
        run(43, move |rt| {
            let shared = shared.clone();
            async move {
                let store = open_with(&rt, |o| {
                    o.column_index_bytes = column_index_bytes;
                    o.sstable_version = crate::Version::Nb;
                })
                .await;
                for ck in 0..400 {
                    write(&store, &insert(1, ck, &"y".repeat(50), 100)).await.unwrap();
                }
                store.flush(None).await.unwrap();
                let directory =
                    store.rooms.files.directories.directory_of(&schema().tables_by_id[&TABLE]);
                let entries = rt.fs().read_dir(&directory).await.unwrap();
                let index = entries.iter().find(|e| e.name.ends_with("-Index.db")).unwrap();
                *shared.lock().unwrap() = index.len;
                store.stop().await;
            }
        });
        *found.lock().unwrap()
    };
    let (coarse, fine) = (index_bytes(64 << 10), index_bytes(1 << 10));
    assert!(fine > coarse + 200, "{coarse} {fine}");
}

#[test]
fn a_compaction_tells_what_it_merged() {
    run(44, |rt| async move {
        let store = open(&rt).await;
        let records: Rc<RefCell<Vec<CompactionRecord>>> = Rc::default();
        let told = records.clone();
        store.compactor().on_compacted(move |record| told.borrow_mut().push(record));
        for i in 0..5 {
            write(&store, &insert(i, 1, "a", 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for i in 3..7 {
            write(&store, &insert(i, 2, "b", 100)).await.unwrap();
        }
        store.compactor().compact_major(TABLE).await.unwrap();
        let records = records.take();
        let [record] = records.as_slice() else { panic!("{records:?}") };
        assert_eq!((record.keyspace.as_str(), record.name.as_str()), ("ks", "t"));
        assert_eq!(
            (record.kind, record.merged.as_slice()),
            ("Major compaction", &[(1, 5), (2, 2)][..])
        );
        assert!(record.bytes_in > 0 && record.bytes_out > 0);
        assert_eq!(store.compactor().compacted_bytes().1, record.bytes_in);
        // Counts stay when the table is dropped.
        store.set_schema(schema_of(Vec::new()));
        assert_eq!(store.compactor().finished_compactions(), 1);
        store.stop().await;
    });
}

#[test]
fn flushed_files_are_linked_into_backups_and_compacted_ones_are_not() {
    let world = world(45);
    run_in(&world, |rt| async move {
        let store = open_with(&rt, |o| {
            o.incremental_backups = true;
            o.snapshot_before_compaction = true;
        })
        .await;
        for i in 0..2 {
            write(&store, &insert(i, 1, "a", 100)).await.unwrap();
            store.flush(None).await.unwrap();
        }
        store.compactor().compact_major(TABLE).await.unwrap();
        let snapshots = store.lifecycle().snapshots().await.unwrap();
        let tags: Vec<&str> = snapshots.iter().map(|s| s.tag.as_str()).collect();
        assert!(matches!(tags.as_slice(), [one] if one.ends_with("-compact-t")), "{tags:?}");
        // The table's own option disables it.
        let options = TableOptions { incremental_backups: false, ..TableOptions::default() };
        store.set_schema(schema_of(vec![table(options)]));
        write(&store, &insert(3, 1, "a", 100)).await.unwrap();
        store.flush(None).await.unwrap();
        // Nor is anything linked while an administrator does not want it.
        store.set_schema(schema_of(vec![table(TableOptions::default())]));
        for (i, wanted) in [(4, false), (5, true)] {
            store.files().links().set_incremental_backups(wanted);
            assert_eq!(store.files().links().incremental_backups(), wanted);
            write(&store, &insert(i, 1, "a", 100)).await.unwrap();
            store.flush(None).await.unwrap();
        }
        store.stop().await;
    });
    let files = files(&world);
    assert_eq!(count(&files, "/backups/"), 3, "{files:?}");
    assert_eq!(count(&files, "-compact-t/"), 2, "{files:?}");
}

#[test]
fn all_shards_of_a_node_snapshot_a_dropped_table_under_one_name() {
    for seed in 0..10 {
        let world = world(460 + seed);
        let done = Arc::new(Mutex::new(0_u16));
        let shared = done.clone();
        start(&world, 3, move |rt| {
            let done = shared.clone();
            async move {
                let store = open(&rt).await;
                for pk in 0..60 {
                    if shard_of(codec::token_of(&key(pk)), 3) == rt.shard() {
                        write(&store, &insert(pk, 1, "a", 100)).await.unwrap();
                    }
                }
                store.flush(None).await.unwrap();
                // The shards hear of it at different times.
                rt.sleep(Duration::from_millis(u64::from(rt.shard().0) * 700)).await;
                store.set_schema(schema_of(vec![]));
                rt.sleep(Duration::from_secs(10)).await;
                store.stop().await;
                *done.lock().unwrap() += 1;
            }
        });
        world.run_until(|| *done.lock().unwrap() == 3, Duration::from_secs(600)).unwrap();
        let files = files(&world);
        let of_snapshots: Vec<&str> = files
            .iter()
            .filter(|f| f.ends_with("-Data.db"))
            .map(|f| f.split('/').nth(2).unwrap_or(f))
            .collect();
        let first = of_snapshots.first().unwrap();
        assert!(first.starts_with("dropped-") && first.ends_with("-t"), "{files:?}");
        assert!(of_snapshots.len() == 3 && of_snapshots.iter().all(|t| t == first), "{files:?}");
    }
}

#[test]
fn a_drop_that_was_interrupted_is_finished_and_directories_of_strangers_are_left_alone() {
    let world = world(47);
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        write(&store, &insert(1, 1, "a", 100)).await.unwrap();
        store.flush(None).await.unwrap();
        let directory = store.rooms.files.directories.directory_of(&schema().tables_by_id[&TABLE]);
        store.stop().await;
        // It was not dropped on this node: it is Cassandra's, or was copied here.
        let reopen = || Store::open(rt.clone(), options(&rt), schema_of(vec![]));
        let (store, _) = reopen().await.unwrap();
        assert_eq!(
            store.tables().directories_of_unknown_tables(),
            std::slice::from_ref(&directory)
        );
        store.stop().await;
        // The process ended after step 2 of a drop.
        let mark = format!("{directory}/helenus-dropped");
        rt.fs().write_atomic(&mark, b"dropped-5-t\n".to_vec()).await.unwrap();
        let (store, _) = reopen().await.unwrap();
        assert_eq!(store.tables().directories_of_unknown_tables(), Vec::<String>::new());
        store.stop().await;
    });
    let files = files(&world);
    let data: Vec<&String> = files.iter().filter(|f| f.ends_with("-Data.db")).collect();
    assert!(
        matches!(data.as_slice(), [one] if one.contains("/snapshots/dropped-5-t/")),
        "{data:?}"
    );
    assert!(files.iter().any(|f| f.ends_with("/dropped-5-t/manifest.json")), "{files:?}");
    // Its snapshot can be listed and removed, although the schema does not know the table.
    run_in(&world, |rt| async move {
        let (store, _) = Store::open(rt.clone(), options(&rt), schema_of(vec![])).await.unwrap();
        let listed = store.lifecycle().snapshots().await.unwrap();
        assert!(matches!(listed.as_slice(), [s] if s.tag == "dropped-5-t" && s.name == "t"));
        store.lifecycle().clear_snapshot(None, Some(&[listed[0].table])).await.unwrap();
        assert_eq!(store.lifecycle().snapshots().await.unwrap(), []);
        store.stop().await;
    });
}

#[test]
fn a_drop_that_was_cut_off_before_its_mark_is_finished_by_who_knows_of_it() {
    for allowed in [true, false] {
        let world = world(49);
        let table_of = move || {
            let mut options =
                TableOptions { allow_auto_snapshot: allowed, ..TableOptions::default() };
            // Files stay in the directory where they were written.
            options.compaction.insert("enabled".to_owned(), "false".to_owned());
            table(options)
        };
        run_in(&world, move |rt| async move {
            let schema = schema_of(vec![table_of()]);
            let mut directories = Vec::new();
            // A start may take another of the two data directories for new files.
            for _ in 0..8 {
                let opened = Store::open(rt.clone(), options(&rt), schema.clone()).await;
                let (store, _) = opened.unwrap();
                write(&store, &insert(1, 1, "a", 100)).await.unwrap();
                store.flush(None).await.unwrap();
                directories
                    .push(store.rooms.files.directories.directory_of(&schema.tables_by_id[&TABLE]));
                store.stop().await;
            }
            directories.sort();
            directories.dedup();
            assert_eq!(directories.len(), 2);
            let none = schema_of(vec![]);
            let (store, _) = Store::open(rt.clone(), options(&rt), none.clone()).await.unwrap();
            let found = store.tables().directories_of_unknown_tables();
            assert_eq!(found, directories);
            // Another table of that name.
            let mut other = table_of();
            other.id = TableId(Uuid::from_u128(99));
            assert_eq!(store.lifecycle().finish_drops_of(&[Arc::new(other)]).await, Ok(0));
            assert_eq!(store.tables().directories_of_unknown_tables(), directories);
            assert_eq!(store.lifecycle().finish_drops_of(&[Arc::new(table_of())]).await, Ok(2));
            assert_eq!(store.tables().directories_of_unknown_tables(), Vec::<String>::new());
            assert_eq!(store.lifecycle().finish_drops_of(&[Arc::new(table_of())]).await, Ok(0));
            store.stop().await;
            let (store, _) = Store::open(rt.clone(), options(&rt), none).await.unwrap();
            assert_eq!(store.tables().directories_of_unknown_tables(), Vec::<String>::new());
            let tags: Vec<String> =
                store.lifecycle().snapshots().await.unwrap().into_iter().map(|s| s.tag).collect();
            assert_eq!(tags.len(), usize::from(allowed), "{tags:?}");
            store.stop().await;
        });
        let files = files(&world);
        let data: Vec<&String> = files.iter().filter(|f| f.ends_with("-Data.db")).collect();
        assert!(data.iter().all(|f| f.contains("/snapshots/dropped-")), "{data:?}");
        assert!(if allowed { data.len() > 1 } else { data.is_empty() }, "{data:?}");
    }
}

#[test]
fn only_failures_of_the_disk_are_told() {
    run(48, |rt| async move {
        let store = open(&rt).await;
        let failures: Rc<RefCell<Vec<StoreFailure>>> = Rc::default();
        let told = failures.clone();
        store.env().on_failure(move |failure| told.borrow_mut().push(failure));
        store.note_failure(&StoreError::Overloaded { used: 2, limit: 1 });
        store.note_failure(&StoreError::DiskFull { detail: "full".to_owned() });
        store.note_failure(&StoreError::Stopping);
        assert_eq!(*failures.borrow(), []);
        store.note_failure(&StoreError::LogFailed("sync".to_owned()));
        let corrupt = StoreError::Corrupt { file: "f".to_owned(), what: "w".to_owned() };
        store.note_failure(&corrupt);
        let expected = [
            StoreFailure::CommitLog("sync".into()),
            StoreFailure::Corrupt("f is corrupt: w".into()),
        ];
        assert_eq!(*failures.borrow(), expected);
        store.stop().await;
    });
}

#[test]
fn a_plan_names_the_files_that_would_be_merged_and_changes_nothing() {
    run(46, |rt| async move {
        let minor = |threshold: &str| {
            let class = ("class".to_owned(), "SizeTieredCompactionStrategy".to_owned());
            let threshold = ("min_threshold".to_owned(), threshold.to_owned());
            let compaction = BTreeMap::from([class, threshold]);
            let gc_grace_seconds = i32::MAX;
            schema_of(vec![table(TableOptions {
                compaction,
                gc_grace_seconds,
                ..TableOptions::default()
            })])
        };
        let (store, _) = Store::open(rt.clone(), options(&rt), minor("30")).await.unwrap();
        for pk in 0..5 {
            write(&store, &insert(pk, 1, "a", 100)).await.unwrap();
            store.flush(None).await.unwrap();
        }
        assert_eq!(store.compactor().planned_compactions(TABLE).unwrap(), []);
        store.set_schema(minor("4"));
        let planned = store.compactor().planned_compactions(TABLE).unwrap();
        let [plan] = planned.as_slice() else { panic!("{planned:?}") };
        let generations: Vec<u64> = plan.inputs.iter().map(|(g, _)| g.0).collect();
        assert_eq!(generations, [1, 2, 3, 4, 5]);
        assert!(plan.inputs.iter().all(|(_, bytes)| *bytes > 0));
        assert!(plan.reason.starts_with("5 files of about"), "{}", plan.reason);
        assert_eq!(store.compactor().planned_compactions(TABLE).unwrap(), planned);
        let unknown = store.compactor().planned_compactions(TableId(Uuid::from_u128(0x999)));
        assert!(matches!(unknown, Err(StoreError::UnknownTable(_))));
        store.stop().await;
    });
}

#[test]
fn a_snapshot_without_a_flush_lacks_what_is_in_memory_and_old_ones_are_cleared_by_their_age() {
    let world = world(47);
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        write(&store, &insert(1, 1, "a", 100)).await.unwrap();
        store.flush(None).await.unwrap();
        write(&store, &insert(2, 1, "a", 100)).await.unwrap();
        let without = SnapshotOptions { skip_flush: true, ..SnapshotOptions::default() };
        store.lifecycle().snapshot_with("without", None, without).await.unwrap();
        assert_eq!(store.table_stats(TABLE).memtable_partitions, 1);
        rt.sleep(Duration::from_secs(10)).await;
        store.lifecycle().snapshot("with", None).await.unwrap();
        let tags = async || -> Vec<String> {
            store.lifecycle().snapshots().await.unwrap().into_iter().map(|s| s.tag).collect()
        };
        let before = |seconds: i64| Some(stdx::WallMicros(rt.wall().0 - seconds * 1_000_000));
        store.lifecycle().clear_snapshot_made_before(None, None, before(11)).await.unwrap();
        assert_eq!(tags().await, ["with", "without"]);
        store.lifecycle().clear_snapshot_made_before(Some("with"), None, before(5)).await.unwrap();
        assert_eq!(tags().await, ["with", "without"]);
        rt.sleep(Duration::from_secs(1)).await;
        store.stop().await;
    });
    assert_eq!((count(&files(&world), "/without/"), count(&files(&world), "/with/")), (1, 2));
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        let before = stdx::WallMicros(rt.wall().0 - 5_000_000);
        store.lifecycle().clear_snapshot_made_before(None, None, Some(before)).await.unwrap();
        store.stop().await;
    });
    assert_eq!((count(&files(&world), "/without/"), count(&files(&world), "/with/")), (0, 2));
}

#[test]
fn files_are_as_old_after_a_restart_as_they_were_before() {
    let world = world(48);
    let at = |store: &Store| {
        let table = store.rooms.tables.table(TABLE).unwrap();
        let view = table.view();
        view.files[0].written_at.0
    };
    let first: Arc<Mutex<i64>> = Arc::default();
    let told = first.clone();
    run_in(&world, move |rt| {
        let told = told.clone();
        async move {
            let store = open(&rt).await;
            write(&store, &insert(1, 1, "a", 100)).await.unwrap();
            store.flush(None).await.unwrap();
            *told.lock().unwrap() = at(&store);
            rt.sleep(Duration::from_secs(600)).await;
            store.stop().await;
        }
    });
    run_in(&world, move |rt| {
        let before = *first.lock().unwrap();
        async move {
            let store = open(&rt).await;
            // The clock of the file system is the node's; opening is a moment later than writing.
            let differs = before - at(&store);
            assert!((0..1_000_000).contains(&differs), "{differs} us");
            let early = stdx::WallMicros(before - 1_000_000);
            let scope = crate::UpgradeScope::All;
            assert_eq!(store.compactor().upgrade_written_by(TABLE, scope, early).await.unwrap(), 0);
            let late = stdx::WallMicros(before);
            assert_eq!(store.compactor().upgrade_written_by(TABLE, scope, late).await.unwrap(), 1);
            store.stop().await;
        }
    });
}

#[test]
fn what_filters_let_pass_in_vain_is_counted_over_compactions_and_their_memory_is_known() {
    run(49, |rt| async move {
        let store = open_with(&rt, |o| o.sstable_version = crate::Version::Nb).await;
        // A filter that lets much pass.
        let options = TableOptions {
            bloom_filter_fp_chance: Some(0.5),
            gc_grace_seconds: i32::MAX,
            ..TableOptions::default()
        };
        store.set_schema(schema_of(vec![table(options)]));
        for i in 0..100 {
            write(&store, &insert(i * 2, 1, "a", 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        let stats = store.table_stats(TABLE);
        assert_eq!((stats.filter_misses, stats.sstables_read, stats.old_sstables), (0, 0, 0));
        assert!(stats.filter_bytes > 0 && stats.summary_bytes > 0 && stats.offsets_bytes > 0);
        assert_eq!(stats.filter_file_bytes, stats.filter_bytes + 8);
        for i in 0..200 {
            read_partition(&store, i).await;
        }
        let stats = store.table_stats(TABLE);
        assert!(stats.filter_misses > 10, "{stats:?}");
        assert_eq!(stats.sstables_read, 100 + stats.filter_misses);
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(store.table_stats(TABLE).filter_misses, stats.filter_misses);
        store.stop().await;
    });
}
