//! Cluster-key compaction: windows of the first clustering column.

use compact_plan::Windows;
use compact_plan::cluster_key::SHARED_LEVEL;
use compact_plan::windows::{KeyType, WindowRule, WindowUnit};

use crate::Version;
use crate::tests::everywhere::rows_of;
use crate::tests::*;

/// Values of `ck` are from 0 to below this.
const DOMAIN: i32 = 120;

/// Windows of five values of `ck`; no static column; tombstones are purged at once.
fn windowed(reversed: bool, threshold: &str) -> Arc<Schema> {
    let map = [
        ("class", "ClusterKeyCompactionStrategy"),
        ("compaction_window_unit", "ONES"),
        ("compaction_window_size", "5"),
        ("min_threshold", threshold),
    ];
    let compaction = map.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let options = TableOptions { gc_grace_seconds: 0, compaction, ..TableOptions::default() };
    let mut table = table(options);
    table.columns.remove(2);
    table.static_count = 0;
    table.columns[1].kind = ColumnKind::Clustering { position: 0, reversed };
    schema_of(vec![table])
}

fn windows() -> Windows {
    let rule = WindowRule::Moving { unit: WindowUnit::Numbers(1), size: 5 };
    Windows::new(rule, KeyType::Int).unwrap()
}

async fn open_with(rt: &Rt, schema: Arc<Schema>) -> Store {
    let options = StoreOptions { sstable_version: Version::Oa, ..options(rt) };
    Store::open(rt.clone(), options, schema).await.unwrap().0
}

/// The windows of files that lie in one; files of several windows; shared files. A file of one window may have
/// deletions of partitions, and these alone are left when a compaction of the window removes the rest.
fn states(store: &Store) -> (Vec<i64>, usize, usize) {
    let (mut in_one, mut mixed, mut shared) = (Vec::new(), 0, 0);
    for file in &store.rooms.tables.table(TABLE).unwrap().view().files {
        let stats = &file.reader.meta().statistics().stats;
        let window =
            |bound: &[Vec<u8>]| Some(windows().window_of(windows().value(bound.first()?)?));
        match (window(&stats.min_clustering), window(&stats.max_clustering)) {
            // The deletion of a whole window may be all that it has.
            _ if u32::try_from(stats.level).unwrap() == SHARED_LEVEL => shared += 1,
            (None, None) if stats.total_rows == 0 && stats.has_partition_deletions => shared += 1,
            (Some(first), Some(last)) if first == last => in_one.push(first),
            _ => mixed += 1,
        }
    }
    in_one.sort_unstable();
    (in_one, mixed, shared)
}

/// DELETE of the rows `from <= ck < to` where `ck` descends.
fn delete_range_descending(pk: i32, from: i32, to: i32, timestamp: i64) -> Vec<u8> {
    let (from, to) = (clustering(from), clustering(to));
    let tombstone = RangeTombstoneRef {
        start: data::BoundRef { prefix: &to, after: true },
        end: data::BoundRef { prefix: &from, after: true },
        deletion: deletion(timestamp),
    };
    encode(pk, |m| m.range_tombstones([tombstone].into_iter()))
}

/// DELETE of the rows up to `to`, without a lower bound; `ck` ascends.
fn delete_up_to(pk: i32, to: i32, timestamp: i64) -> Vec<u8> {
    let to = clustering(to);
    let tombstone = RangeTombstoneRef {
        start: data::BoundRef { prefix: &[], after: false },
        end: data::BoundRef { prefix: &to, after: true },
        deletion: deletion(timestamp),
    };
    encode(pk, |m| m.range_tombstones([tombstone].into_iter()))
}

async fn at_rest(rt: &Rt, store: &Store) {
    for _ in 0..3_000 {
        rt.sleep(Duration::from_millis(10)).await;
        let is_planned = !store.compactor().planned_compactions(TABLE).unwrap().is_empty();
        if store.files().slots().compactions().is_empty() && !is_planned {
            return;
        }
    }
    panic!("compactions do not come to rest: {:?}", store.compactor().planned_compactions(TABLE));
}

#[test]
fn what_is_flushed_goes_into_windows_and_a_read_of_one_looks_into_its_file() {
    for reversed in [false, true] {
        run(820, move |rt| async move {
            let store = open_with(&rt, windowed(reversed, "4")).await;
            let mut expected = BTreeMap::new();
            for flush in 0..5 {
                // The fifth is too late for windows that were sorted already.
                for (pk, ck) in (0..8).flat_map(|pk| (0..25).map(move |ck| (pk, ck))) {
                    if (ck + flush) % 3 == 0 {
                        let value = format!("{flush}");
                        let at = i64::from(flush);
                        write(&store, &insert(pk, ck, &value, at)).await.unwrap();
                        expected.insert((pk, ck), value);
                    }
                }
                store.flush(None).await.unwrap();
                at_rest(&rt, &store).await;
                let (in_one, mixed, shared) = states(&store);
                match flush {
                    0..3 => assert_eq!((in_one.len(), mixed), (0, flush as usize + 1)),
                    3 => assert_eq!((in_one, mixed, shared), (vec![0, 1, 2, 3, 4], 0, 0)),
                    _ => assert_eq!((in_one, mixed, shared), (vec![0, 1, 2, 3, 4], 1, 0)),
                }
            }
            assert_eq!(rows_of(&read_all(&store).await), expected);
            store.compactor().compact_major(TABLE).await.unwrap();
            assert_eq!(states(&store), (vec![0, 1, 2, 3, 4], 0, 0));
            assert_eq!(rows_of(&read_all(&store).await), expected);
            let mut bounds = (clustering(10), clustering(15));
            if reversed {
                bounds = (bounds.1, bounds.0);
            }
            let slices = Slices(vec![Slice {
                start: bounds.0,
                start_after: reversed,
                end: bounds.1,
                end_after: reversed,
            }]);
            let command = ReadCommand {
                slices: slices.into(),
                ..ReadCommand::whole(TABLE, Partitions::Key(key(3)), NOW)
            };
            let mut sink = Collect::default();
            let stats = store.read(&command, &mut sink).await.unwrap();
            assert_eq!((sink.rows.len(), stats.sstables), (5, 1));
            store.stop().await;
        });
    }
}

#[test]
fn a_major_compaction_removes_what_deletions_over_all_windows_hide() {
    run(821, |rt| async move {
        let store = open_with(&rt, windowed(false, "30")).await;
        for (pk, ck) in (0..4).flat_map(|pk| (0..60).map(move |ck| (pk, ck))) {
            write(&store, &insert(pk, ck, "old", 100)).await.unwrap();
        }
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(states(&store), ((0..12).collect(), 0, 0));
        write(&store, &delete_partition(0, 200)).await.unwrap();
        write(&store, &delete_partition(1, 200)).await.unwrap();
        write(&store, &delete_up_to(2, 57, 200)).await.unwrap();
        write(&store, &delete_range(3, 3, 58, 200)).await.unwrap();
        store.compactor().compact_major(TABLE).await.unwrap();
        let rows = rows_of(&read_all(&store).await);
        let left = [(2, 58), (2, 59), (3, 0), (3, 1), (3, 2), (3, 58), (3, 59)];
        assert_eq!(rows.into_keys().collect::<Vec<_>>(), left);
        // Nothing is left of the windows between. What deleted them stays while other files have something
        // older of these partitions.
        assert_eq!(states(&store), (vec![0, 11], 0, 1));
        write(&store, &delete_partition(2, 300)).await.unwrap();
        write(&store, &delete_partition(3, 300)).await.unwrap();
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(states(&store), (vec![], 0, 0));
        store.stop().await;
    });
}

#[test]
fn what_is_left_of_a_window_without_its_rows_is_shared() {
    run(822, |rt| async move {
        let store = open_with(&rt, windowed(false, "2")).await;
        let flush = async |mutations: &[Vec<u8>]| {
            for mutation in mutations {
                write(&store, mutation).await.unwrap();
            }
            store.flush(None).await.unwrap();
            at_rest(&rt, &store).await;
        };
        // The second partition has older data elsewhere, so that its deletion stays.
        flush(&[insert(2, 0, "older", 50)]).await;
        flush(&[insert(1, 20, "gone", 100), delete_partition(2, 100)]).await;
        assert_eq!(states(&store).0, [0, 4]);
        flush(&[delete_row(1, 20, 200)]).await;
        assert_eq!(states(&store), (vec![0], 0, 1));
        let table = store.rooms.tables.table(TABLE).unwrap();
        let infos = || store.rooms.compactor.infos(&table).infos;
        let left: Vec<_> = infos().into_iter().filter(|file| file.windows.is_none()).collect();
        assert_eq!(left.iter().map(|file| file.level).collect::<Vec<_>>(), [SHARED_LEVEL]);
        // One mixed file is not distributed: there is no other.
        flush(&[insert(3, 1, "a", 300), insert(3, 119, "b", 300)]).await;
        assert_eq!(states(&store), (vec![0], 1, 1));
        let rows = rows_of(&read_all(&store).await);
        assert_eq!(rows.into_keys().collect::<Vec<_>>(), [(3, 1), (3, 119)]);
        store.stop().await;
    });
}

#[test]
fn random_operations_agree_with_a_model_and_windows_stay_what_they_are() {
    // In that of the last a window has deletions of partitions only at the end.
    for seed in [0_u64, 1, 2, 3, 51] {
        run(830 + seed, move |rt| async move {
            let reversed = seed % 2 == 1;
            let mut store = open_with(&rt, windowed(reversed, "3")).await;
            let mut rows: BTreeMap<(i32, i32), String> = BTreeMap::new();
            let mut most = 0;
            for step in 1..700_i64 {
                let r = rt.random_u64();
                let pk = (r % 5) as i32;
                // Now and then a stretch of all windows, most often few of them.
                let ck = (r >> 8) as i32 & 0x7FFF_FFFF;
                let ck = if (r >> 40) % 3 == 0 { ck % DOMAIN } else { ck % 12 + 20 };
                let mutation = match (r >> 48) % 12 {
                    0 => {
                        rows.retain(|(p, _), _| *p != pk);
                        delete_partition(pk, step)
                    }
                    1 | 2 => {
                        let to = ck + 1 + (r >> 52) as i32 % 60;
                        rows.retain(|(p, c), _| *p != pk || !(ck..to).contains(c));
                        match reversed {
                            true => delete_range_descending(pk, ck, to, step),
                            false => delete_range(pk, ck, to, step),
                        }
                    }
                    3 if !reversed => {
                        rows.retain(|(p, c), _| *p != pk || *c > ck);
                        delete_up_to(pk, ck, step)
                    }
                    4 => {
                        rows.remove(&(pk, ck));
                        delete_row(pk, ck, step)
                    }
                    _ => {
                        rows.insert((pk, ck), step.to_string());
                        insert(pk, ck, &step.to_string(), step)
                    }
                };
                write(&store, &mutation).await.unwrap();
                match rt.random_u64() % 40 {
                    0..4 => store.flush(None).await.unwrap(),
                    4 => store.compactor().compact_major(TABLE).await.unwrap(),
                    5..8 => {
                        at_rest(&rt, &store).await;
                        assert_eq!(rows_of(&read_all(&store).await), rows, "step {step}");
                        let (in_one, mixed, _) = states(&store);
                        assert!(mixed < 3, "{mixed} at step {step}");
                        most = most.max(in_one.len());
                    }
                    8 => {
                        store.stop().await;
                        store = open_with(&rt, windowed(reversed, "3")).await;
                        assert_eq!(rows_of(&read_all(&store).await), rows, "restart at {step}");
                    }
                    _ => {}
                }
            }
            store.compactor().compact_major(TABLE).await.unwrap();
            assert_eq!(rows_of(&read_all(&store).await), rows);
            let (in_one, mixed, _) = states(&store);
            let mut once = in_one.clone();
            once.dedup();
            assert_eq!((in_one.len(), mixed), (once.len(), 0), "one file a window: {in_one:?}");
            // More than get a file of their own in one distribution.
            assert!(most > compact_plan::cluster_key::DIRECT_WINDOWS, "{most} windows");
            store.stop().await;
        });
    }
}
