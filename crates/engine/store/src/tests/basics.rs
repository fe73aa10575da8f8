//! Writes and reads without crashes.

use std::collections::BTreeMap;

use data::command::{Partitions, ResumePosition, RingBound};

use crate::tests::*;

#[test]
fn a_written_row_is_read_by_key_and_by_scan() {
    run(1, |rt| async move {
        let store = open(&rt).await;
        write(&store, &insert(1, 10, "a", 100)).await.unwrap();
        write(&store, &insert(1, 5, "b", 100)).await.unwrap();
        write(&store, &insert(2, 1, "c", 100)).await.unwrap();
        write(&store, &insert_static(1, "s", 100)).await.unwrap();
        let s = || Some("s".to_owned());
        let rows = vec![(1, Some(5), s(), Some("b".into())), (1, Some(10), s(), Some("a".into()))];
        assert_eq!(read_partition(&store, 1).await, rows);
        assert_eq!(read_partition(&store, 3).await, vec![]);
        let mut all = read_all(&store).await;
        all.sort();
        assert_eq!(all.len(), 3);
        assert_eq!(all.first(), rows.first());
    });
}

#[test]
fn a_table_is_flushed_before_its_directory_was_made_in_the_background() {
    for seed in 0..20 {
        run(seed, |rt| async move {
            let (store, _) =
                Store::open(rt.clone(), options(&rt), schema_of(vec![])).await.unwrap();
            store.set_schema(schema());
            let mutation = insert(1, 1, "a", 100);
            store.apply(&MutationRef::open(&mutation).unwrap(), true).unwrap();
            store.flush(None).await.unwrap();
            assert_eq!(store.table_stats(TABLE).sstables, 1);
            assert_eq!(values(&read_partition(&store, 1).await), vec![(1, "a".into())]);
        });
    }
}

#[test]
fn a_partition_with_only_a_static_row_is_shown_when_wanted() {
    run(2, |rt| async move {
        let store = open(&rt).await;
        write(&store, &insert_static(1, "s", 100)).await.unwrap();
        assert_eq!(read_partition(&store, 1).await, vec![(1, None, Some("s".into()), None)]);
        let mut command = read_of(Partitions::Key(key(1)));
        command.wants_static = false;
        assert_eq!(read(&store, &command).await, vec![]);
    });
}

#[test]
fn deletions_hide_older_data_only() {
    run(3, |rt| async move {
        let store = open(&rt).await;
        for ck in 0..10 {
            write(&store, &insert(1, ck, "v", 100)).await.unwrap();
        }
        write(&store, &delete_row(1, 3, 200)).await.unwrap();
        write(&store, &delete_row(1, 4, 50)).await.unwrap();
        write(&store, &delete_range(1, 6, 8, 150)).await.unwrap();
        write(&store, &insert(1, 7, "new", 160)).await.unwrap();
        let cks: Vec<i32> = values(&read_partition(&store, 1).await).iter().map(|v| v.0).collect();
        assert_eq!(cks, vec![0, 1, 2, 4, 5, 7, 8, 9]);
        let mut command = read_of(Partitions::Key(key(1)));
        command.reversed = true;
        let cks: Vec<i32> = values(&read(&store, &command).await).iter().map(|v| v.0).collect();
        assert_eq!(cks, vec![9, 8, 7, 5, 4, 2, 1, 0]);
        write(&store, &delete_partition(1, 155)).await.unwrap();
        assert_eq!(values(&read_partition(&store, 1).await), vec![(7, "new".into())]);
    });
}

/// Pages of every size show each row once, in both directions, by key and by scan.
#[test]
fn pages_give_each_row_once() {
    run(4, |rt| async move {
        let store = open(&rt).await;
        for pk in 0..5 {
            for ck in 0..20 {
                write(&store, &insert(pk, ck, "v", 100)).await.unwrap();
            }
            write(&store, &delete_range(pk, 5, 9, 150)).await.unwrap();
            write(&store, &insert_static(pk, "s", 100)).await.unwrap();
        }
        for reversed in [false, true] {
            for by_key in [false, true] {
                if reversed && !by_key {
                    continue;
                }
                for page in 1..7 {
                    check_pages(&store, reversed, by_key, page).await;
                }
            }
        }
    });
}

async fn check_pages(store: &Store, reversed: bool, by_key: bool, page: usize) {
    let partitions =
        if by_key { Partitions::Key(key(2)) } else { Partitions::Range(KeyRange::all()) };
    let mut command = read_of(partitions);
    command.reversed = reversed;
    let whole = read(store, &command).await;
    assert_eq!(whole.len(), if by_key { 16 } else { 80 });
    let mut paged = Vec::new();
    loop {
        let mut sink = Collect { stop_after: Some(page), ..Collect::default() };
        store.read(&command, &mut sink).await.unwrap();
        let Some(last) = sink.rows.last().cloned() else { break };
        paged.extend(sink.rows);
        command.resume =
            Some(ResumePosition { clustering: last.1.map(clustering), rows_in_partition: 1 });
        if let Partitions::Range(range) = &mut command.partitions {
            let key = key(last.0);
            range.start = RingBound::Key { token: codec::token_of(&key), key, after: false };
        }
    }
    assert_eq!(paged, whole, "reversed {reversed}, by key {by_key}, page {page}");
}

/// Random mutations against a model that applies them row by row.
#[test]
fn random_mutations_agree_with_a_model() {
    for seed in 0..8_u64 {
        run(100 + seed, move |rt| async move {
            let store = open(&rt).await;
            let mut model = Model::default();
            for step in 0..400_i64 {
                let (mutation, timestamp) = model.random_mutation(&rt, step);
                write(&store, &mutation).await.unwrap();
                assert!(timestamp > 0);
                if step % 40 == 39 {
                    model.check(&store).await;
                }
            }
        });
    }
}

/// The same with flushes, major compactions and restarts in between.
#[test]
fn random_mutations_agree_with_a_model_over_flushes_compactions_and_restarts() {
    for seed in 0..6_u64 {
        let world = world(200 + seed);
        let model: Arc<Mutex<Model>> = Arc::default();
        for _life in 0..3 {
            let model = model.clone();
            run_in(&world, move |rt| {
                let model = model.clone();
                async move {
                    let mut mine = std::mem::take(&mut *model.lock().unwrap());
                    let store = open(&rt).await;
                    mine.check(&store).await;
                    for step in 0..150_i64 {
                        let (mutation, _) = mine.random_mutation(&rt, step);
                        write(&store, &mutation).await.unwrap();
                        match rt.random_u64() % 25 {
                            0 | 1 => store.flush(None).await.unwrap(),
                            2 => store.compactor().compact_major(TABLE).await.unwrap(),
                            3 => mine.check(&store).await,
                            _ => {}
                        }
                    }
                    mine.check(&store).await;
                    store.stop().await;
                    *model.lock().unwrap() = mine;
                }
            });
        }
    }
}

#[test]
fn a_drained_store_replays_nothing_and_refuses_writes() {
    let world = world(31);
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        write(&store, &insert(1, 1, "a", 100)).await.unwrap();
        store.drain().await.unwrap();
        let refused = write(&store, &insert(1, 2, "b", 100)).await;
        assert_eq!(refused, Err(StoreError::Stopping));
        assert_eq!(values(&read_partition(&store, 1).await), vec![(1, "a".into())]);
        store.stop().await;
    });
    run_in(&world, |rt| async move {
        let (store, report) = Store::open(rt.clone(), options(&rt), schema()).await.unwrap();
        assert_eq!(report.applied, 0);
        assert_eq!(values(&read_partition(&store, 1).await), vec![(1, "a".into())]);
        assert_eq!(store.table_stats(TABLE).sstables, 1);
    });
}

#[test]
fn background_compaction_keeps_the_number_of_files_small_and_the_log_is_released() {
    run(32, |rt| async move {
        let store = open(&rt).await;
        for i in 0..40 {
            let value = "x".repeat(4000);
            write(&store, &insert(i, i, &value, 100)).await.unwrap();
            store.flush(None).await.unwrap();
            rt.sleep(Duration::from_millis(300)).await;
        }
        rt.sleep(Duration::from_secs(20)).await;
        let stats = store.table_stats(TABLE);
        assert!(stats.sstables < 10 && stats.compactions > 5, "{stats:?}");
        assert_eq!(read_all(&store).await.len(), 40);
        assert!(store.rooms.env.log.total_bytes() < 3 * 64 * 1024);
        store.stop().await;
    });
}

#[test]
fn memory_over_the_budget_is_flushed_and_writes_wait_for_it() {
    run(33, |rt| async move {
        let mut options = options(&rt);
        options.memtable_bytes_max = 60_000;
        let (store, _) = Store::open(rt.clone(), options, schema()).await.unwrap();
        let mut waited = 0;
        for i in 0..400 {
            let mutation = insert(i % 7, i, &"y".repeat(1000), 100);
            if matches!(store.writer().admit_write(), Err(StoreError::Overloaded { .. })) {
                waited += 1;
                store.writer().wait_for_room().await.unwrap();
            }
            write(&store, &mutation).await.unwrap();
            assert!(store.memory_bytes().0 < 64_000);
        }
        assert!(waited > 0 && store.table_stats(TABLE).flushes > 3);
        assert_eq!(read_all(&store).await.len(), 400);
        store.stop().await;
    });
}

#[test]
fn a_table_that_cannot_be_flushed_does_not_keep_others_in_memory() {
    const OTHER: TableId = TableId(Uuid::from_u128(0x12));
    for broken in [TABLE, OTHER] {
        run(98, move |rt| async move {
            let every_second =
                TableOptions { memtable_flush_period_in_ms: 1_000, ..TableOptions::default() };
            let (first, mut second) = (table(every_second.clone()), table(every_second));
            (second.id, second.name) = (OTHER, "u".into());
            let schema = schema_of(vec![first.clone(), second.clone()]);
            let store = Store::open(rt.clone(), options(&rt), schema).await.unwrap().0;
            // A file is where its directory should be.
            let name = store.rooms.files.directories.directory_of(if broken == TABLE {
                &first
            } else {
                &second
            });
            rt.fs().remove_dir_all(&name).await.unwrap();
            rt.fs().write_atomic(&name, b"no directory".to_vec()).await.unwrap();
            for id in [TABLE, OTHER] {
                let row = packed(Liveness::new(TimestampMicros(9)), DeletionTime::LIVE, &[]);
                let mut mutation = Vec::new();
                let mut builder = MutationBuilder::new(&mut mutation, id, 1, &key(1));
                let name = clustering(1);
                builder.rows([(name.as_slice(), RowRef::trusted(&row))].into_iter());
                builder.finish();
                write(&store, &mutation).await.unwrap();
            }
            rt.sleep(Duration::from_secs(10)).await;
            for id in [TABLE, OTHER] {
                let expected = u64::from(id != broken);
                assert_eq!(store.table_stats(id).flushes, expected, "{id:?}, {broken:?}");
            }
            store.stop().await;
        });
    }
}

#[test]
fn a_log_of_more_than_memtables_may_hold_leaves_room_for_writes() {
    let world = world(97);
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        for i in 0..100 {
            write(&store, &insert(i % 7, i, &"z".repeat(1000), 100)).await.unwrap();
        }
        assert_eq!(store.table_stats(TABLE).flushes, 0);
    });
    run_in(&world, |rt| async move {
        let mut options = options(&rt);
        options.memtable_bytes_max = 60_000;
        let (store, report) = Store::open(rt.clone(), options, schema()).await.unwrap();
        assert!(report.mutations >= 100, "{report:?}");
        store.writer().admit_write().unwrap();
        assert_eq!(read_all(&store).await.len(), 100);
        store.stop().await;
    });
}

#[test]
fn a_truncated_table_is_empty_at_once_and_after_a_restart() {
    let world = world(34);
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        write(&store, &insert(1, 1, "old", 100)).await.unwrap();
        store.flush(None).await.unwrap();
        write(&store, &insert(2, 1, "old", 100)).await.unwrap();
        store.lifecycle().truncate(TABLE, TimestampMicros(1_000_000)).await.unwrap();
        assert_eq!(read_all(&store).await, vec![]);
        // Older than the truncation, but written after it: it stays.
        write(&store, &insert(3, 1, "new", 50)).await.unwrap();
    });
    for _ in 0..2 {
        run_in(&world, |rt| async move {
            let store = open(&rt).await;
            let found = read_all(&store).await;
            assert_eq!(found, vec![(3, Some(1), None, Some("new".into()))]);
            rt.sleep(Duration::from_secs(30)).await;
            store.stop().await;
        });
    }
    let files = world.disk("n1").list();
    let snapshot: Vec<&String> =
        files.iter().filter(|f| f.contains("/snapshots/truncated-1000-t/")).collect();
    let data = snapshot.iter().filter(|f| f.ends_with("-Data.db")).count();
    assert!(data >= 1, "{files:?}");
    assert!(snapshot.iter().any(|f| f.ends_with("manifest.json")));
    assert!(snapshot.iter().any(|f| f.ends_with("schema.cql")));
}

#[test]
fn a_snapshot_is_listed_keeps_its_files_and_is_cleared() {
    let world = world(35);
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        write(&store, &insert(1, 1, "a", 100)).await.unwrap();
        store.lifecycle().snapshot("before", None).await.unwrap();
        for bad in ["", "..", "a/b"] {
            let refused = store.lifecycle().snapshot(bad, None).await;
            assert!(matches!(refused, Err(StoreError::Invalid(_))), "{bad}");
        }
        let listed = store.lifecycle().snapshots().await.unwrap();
        assert_eq!(listed.len(), 1);
        let first = listed.first().unwrap();
        assert_eq!((first.tag.as_str(), first.name.as_str()), ("before", "t"));
        assert!(first.created_at.ends_with('Z') && first.disk_bytes > first.true_bytes);
        write(&store, &insert(1, 2, "b", 100)).await.unwrap();
        store.compactor().compact_major(TABLE).await.unwrap();
        let after = store.lifecycle().snapshots().await.unwrap();
        assert!(after.first().unwrap().true_bytes > first.true_bytes);
        store.lifecycle().clear_snapshot(Some("before"), None).await.unwrap();
        assert_eq!(store.lifecycle().snapshots().await.unwrap(), vec![]);
        assert_eq!(read_all(&store).await.len(), 2);
        store.stop().await;
    });
}

#[test]
fn a_dropped_table_leaves_a_snapshot_only() {
    let world = world(36);
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        write(&store, &insert(1, 1, "a", 100)).await.unwrap();
        store.flush(None).await.unwrap();
        store.set_schema(schema_of(vec![]));
        let refused = write(&store, &insert(1, 1, "a", 100)).await;
        assert_eq!(refused, Err(StoreError::UnknownTable(TABLE)));
        rt.sleep(Duration::from_secs(1)).await;
        store.stop().await;
    });
    let files = world.disk("n1").list();
    let data: Vec<&String> = files.iter().filter(|f| f.ends_with("-Data.db")).collect();
    assert!(!data.is_empty() && data.iter().all(|f| f.contains("/snapshots/dropped-")), "{data:?}");
}

#[test]
fn a_full_disk_refuses_writes_keeps_reads_and_recovers() {
    let world = world(37);
    let stage: Arc<Mutex<u32>> = Arc::default();
    let shared = stage.clone();
    start(&world, 1, move |rt| {
        let stage = shared.clone();
        async move {
            let mut options = options(&rt);
            options.disk_reserve_bytes = 10_000;
            let (store, _) = Store::open(rt.clone(), options, schema()).await.unwrap();
            write(&store, &insert(1, 1, "a", 100)).await.unwrap();
            *stage.lock().unwrap() = 1;
            let mut refused = 0;
            for i in 2..2000 {
                match write(&store, &insert(1, i, "b", 100)).await {
                    Ok(()) if *stage.lock().unwrap() == 3 => break,
                    Ok(()) => {}
                    Err(StoreError::DiskFull { .. }) => {
                        refused += 1;
                        assert_eq!(store.rooms.env.full_disk.reported(), Some(refused));
                        let found = values(&read_partition(&store, 1).await);
                        assert_eq!(found.first(), Some(&(1, "a".to_owned())));
                        if refused == 20 {
                            *stage.lock().unwrap() = 2;
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
                rt.sleep(Duration::from_millis(100)).await;
            }
            assert!(refused >= 20);
            store.flush(None).await.unwrap();
            rt.sleep(Duration::from_secs(3)).await;
            assert_eq!(store.rooms.env.full_disk.reported(), None, "its end was logged");
            store.stop().await;
            *stage.lock().unwrap() = 4;
        }
    });
    let until = |n: u32| world.run_until(|| *stage.lock().unwrap() >= n, Duration::from_secs(900));
    until(1).unwrap();
    world.disk("n1").set_free_bytes(Some(9_000));
    until(2).unwrap();
    world.disk("n1").set_free_bytes(None);
    *stage.lock().unwrap() = 3;
    until(4).unwrap();
}

/// Data written by one shard is found by two, and the other way round.
#[test]
fn another_number_of_shards_finds_everything() {
    let world = world(38);
    for (round, shards) in [1_u16, 2, 3, 1, 2].into_iter().enumerate() {
        let found: Arc<Mutex<Vec<Found>>> = Arc::default();
        let done: Arc<Mutex<u16>> = Arc::default();
        let (sink, count) = (found.clone(), done.clone());
        start(&world, shards, move |rt| {
            let (sink, count) = (sink.clone(), count.clone());
            async move {
                let mut options = options(&rt);
                // The same on all shards.
                options.run = 1_000_000 + round as u64;
                let (store, _) = Store::open(rt.clone(), options, schema()).await.unwrap();
                let all = read_all(&store).await;
                sink.lock().unwrap().extend(all);
                for pk in 0..40 {
                    let token = codec::token_of(&key(pk));
                    if shard_of(token, rt.shard_count()) == rt.shard() {
                        let value = format!("{round}");
                        let mutation = insert(pk, round as i32, &value, 100);
                        write(&store, &mutation).await.unwrap();
                        if round == 2 && pk == 20 {
                            store.flush(None).await.unwrap();
                        }
                    }
                }
                if round == 0 || round == 3 {
                    store.flush(None).await.unwrap();
                }
                if round == 2 {
                    store.compactor().compact_major(TABLE).await.unwrap();
                }
                rt.sleep(Duration::from_secs(5)).await;
                store.stop().await;
                *count.lock().unwrap() += 1;
            }
        });
        world.run_until(|| *done.lock().unwrap() == shards, Duration::from_secs(600)).unwrap();
        assert_eq!(found.lock().unwrap().len(), 40 * round, "round {round}");
    }
}

/// Last write wins, the slow way: every write is stored and compared at each read.
#[derive(Default)]
pub(crate) struct Model {
    /// (pk, ck) to (timestamp, value), newest by (timestamp, value).
    rows: BTreeMap<(i32, i32), (i64, String)>,
    /// (pk, from, to, timestamp), `from <= ck < to`.
    deletions: Vec<(i32, i32, i32, i64)>,
}

impl Model {
    pub(crate) fn random_mutation(&mut self, rt: &Rt, step: i64) -> (Vec<u8>, i64) {
        let r = rt.random_u64();
        let pk = (r % 3) as i32;
        let ck = ((r >> 8) % 12) as i32;
        let timestamp = 1 + ((r >> 16) % 500) as i64;
        let kind = (r >> 32) % 10;
        let mutation = match kind {
            0 => {
                let to = ck + 1 + ((r >> 40) % 4) as i32;
                self.deletions.push((pk, ck, to, timestamp));
                delete_range(pk, ck, to, timestamp)
            }
            1 => {
                self.deletions.push((pk, ck, ck + 1, timestamp));
                delete_row(pk, ck, timestamp)
            }
            2 if (r >> 50).is_multiple_of(4) => {
                self.deletions.push((pk, i32::MIN, i32::MAX, timestamp));
                delete_partition(pk, timestamp)
            }
            _ => {
                let value = format!("{step}");
                let mutation = insert(pk, ck, &value, timestamp);
                let new = (timestamp, value);
                let slot = self.rows.entry((pk, ck)).or_default();
                if new > *slot {
                    *slot = new;
                }
                mutation
            }
        };
        (mutation, timestamp)
    }

    pub(crate) fn expected(&self, pk: i32) -> Vec<(i32, String)> {
        self.rows
            .iter()
            .filter(|((p, ck), (timestamp, _))| {
                *p == pk
                    && !self.deletions.iter().any(|(dp, from, to, dt)| {
                        *dp == pk && from <= ck && ck < to && timestamp <= dt
                    })
            })
            .map(|((_, ck), (_, value))| (*ck, value.clone()))
            .collect()
    }

    pub(crate) async fn check(&self, store: &Store) {
        let all = read_all(store).await;
        for pk in 0..3 {
            let expected = self.expected(pk);
            assert_eq!(values(&read_partition(store, pk).await), expected, "partition {pk}");
            let scanned: Vec<Found> = all.iter().filter(|f| f.0 == pk).cloned().collect();
            assert_eq!(values(&scanned), expected, "scan of {pk}");
            let mut command = read_of(Partitions::Key(key(pk)));
            command.reversed = true;
            let mut reversed = values(&read(store, &command).await);
            reversed.reverse();
            assert_eq!(reversed, expected, "reversed {pk}");
            command.slices = slice(3, 7).into();
            let mut sliced = values(&read(store, &command).await);
            sliced.reverse();
            let inside: Vec<_> =
                expected.iter().filter(|(ck, _)| (3..7).contains(ck)).cloned().collect();
            assert_eq!(sliced, inside, "reversed slice of {pk}");
            command.reversed = false;
            assert_eq!(values(&read(store, &command).await), inside, "slice of {pk}");
        }
    }
}

#[test]
fn a_logged_record_that_is_no_mutation_refuses_the_start() {
    run(90, |rt| async move {
        let store = open(&rt).await;
        write(&store, &insert(1, 1, "a", 100)).await.unwrap();
        let state = store.rooms.tables.table(TABLE).unwrap();
        let version = state.version();
        store.rooms.env.log.append(&version.ticket, b"no mutation").unwrap();
        store.commit().await.unwrap();
        store.stop().await;
        rt.sleep(std::time::Duration::from_secs(1)).await;
        let mut again = options(&rt);
        again.run += 1;
        let error = Store::open(rt.clone(), again, schema()).await.err().unwrap().to_string();
        assert!(error.contains("no mutation of this version"), "{error}");
        assert!(error.contains("commitlog/") && error.contains("offset"), "{error}");
    });
}

#[test]
fn nothing_is_purged_while_a_file_that_no_view_knows_may_be_there() {
    run(91, |rt| async move {
        let options = options(&rt);
        let purgeable = TableOptions { gc_grace_seconds: 0, ..TableOptions::default() };
        let schema = schema_of(vec![table(purgeable)]);
        let (store, _) = Store::open(rt.clone(), options, schema).await.unwrap();
        write(&store, &insert(1, 1, "a", 100)).await.unwrap();
        write(&store, &delete_row(1, 1, 200)).await.unwrap();
        store.flush(None).await.unwrap();
        // The background has looked; its next look is a second away.
        rt.sleep(std::time::Duration::from_millis(10)).await;
        let state = store.rooms.tables.table(TABLE).unwrap();
        let orphan = store.rooms.files.next_generation(&state);
        state.orphans.borrow_mut().push(state.in_flight(orphan));
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(store.table_stats(TABLE).sstables, 1, "the tombstone was purged");
        // The background finds that nothing of it is left; now the tombstone may be purged.
        rt.sleep(std::time::Duration::from_secs(3)).await;
        assert!(state.orphans.borrow().is_empty());
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(store.table_stats(TABLE).sstables, 0);
    });
}
