//! Random operations under every strategy, changed while it runs, agree with a model; several
//! compactions at once never share a file and keep to what there is of space and slots.

use compact_plan::{Strategy, TombstoneOption};

use crate::files::slots::CompactionProgress;
use crate::tests::compact::incremental::{noise, set_fragment_size};
use crate::tests::*;

pub(crate) fn map_of(strategy: Strategy, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let class = [("class", strategy.simple_name())];
    class.iter().chain(more).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// Options that make each strategy act on small files.
fn schema_by(strategy: Strategy) -> Arc<Schema> {
    let more: &[(&str, &str)] = match strategy {
        Strategy::Leveled => &[("sstable_size_in_mb", "1")],
        Strategy::Unified => &[("scaling_parameters", "L2,T3"), ("min_sstable_size", "0B")],
        Strategy::TimeWindow => &[("min_threshold", "2"), ("compaction_window_unit", "MINUTES")],
        Strategy::ClusterKey => &[
            ("min_threshold", "2"),
            ("compaction_window_unit", "ONES"),
            ("compaction_window_size", "2"),
        ],
        Strategy::SizeTiered | Strategy::DateTiered | Strategy::Incremental => {
            &[("min_threshold", "2"), ("max_threshold", "4")]
        }
    };
    let mut compaction = map_of(strategy, more);
    let overlapping = match strategy {
        Strategy::Leveled | Strategy::Unified => "row",
        Strategy::SizeTiered | Strategy::Incremental => "cell",
        Strategy::TimeWindow | Strategy::DateTiered | Strategy::ClusterKey => "none",
    };
    compaction.insert("provide_overlapping_tombstones".to_owned(), overlapping.to_owned());
    schema_of(vec![table(TableOptions {
        gc_grace_seconds: 0,
        compaction,
        ..TableOptions::default()
    })])
}

/// Rows by (pk, ck). Timestamps ascend, so tombstones may be purged at once.
#[derive(Clone, Default)]
struct Model {
    rows: BTreeMap<(i32, i32), String>,
    step: i64,
}

impl Model {
    fn change(&mut self, r: u64) -> Vec<u8> {
        self.step += 1;
        let (pk, ck) = ((r % 40) as i32, ((r >> 8) % 4) as i32);
        match (r >> 16) % 8 {
            0 => {
                self.rows.retain(|(p, _), _| *p != pk);
                delete_partition(pk, self.step)
            }
            1 | 2 => {
                self.rows.remove(&(pk, ck));
                delete_row(pk, ck, self.step)
            }
            3 => {
                self.rows.retain(|(p, c), _| *p != pk || !(ck..ck + 2).contains(c));
                delete_range(pk, ck, ck + 2, self.step)
            }
            _ => {
                let value = format!("{} {}", self.step, "v".repeat((r >> 40) as usize % 200));
                self.rows.insert((pk, ck), value.clone());
                insert(pk, ck, &value, self.step)
            }
        }
    }

    async fn check(&self, store: &Store, what: &str) {
        let found = crate::tests::everywhere::rows_of(&read_all(store).await);
        assert_eq!(found, self.rows, "{what}");
    }
}

#[test]
fn random_operations_under_changing_strategies_agree_with_a_model() {
    let (mut compactions, mut overlapping) = (0, 0);
    for seed in 0..6_u64 {
        let world = world(700 + seed);
        let shared: Arc<Mutex<(Model, u64, u64)>> = Arc::default();
        for life in 0..5 {
            let model = shared.clone();
            run_in(&world, move |rt| {
                let model = model.clone();
                async move {
                    let (mut mine, mut done, mut beside) =
                        std::mem::take(&mut *model.lock().unwrap());
                    let mut strategy =
                        Strategy::ALL[rt.random_u64() as usize % Strategy::ALL.len()];
                    let options = StoreOptions {
                        sync: commitlog::SyncMode::Batch,
                        concurrent_compactors: 1 + (rt.random_u64() % 4) as u32,
                        compaction_bytes_per_second: 20_000,
                        ..options(&rt)
                    };
                    let opened = Store::open(rt.clone(), options, schema_by(strategy)).await;
                    let store = opened.unwrap().0;
                    set_fragment_size(&store, 2_000);
                    mine.check(&store, "after a restart").await;
                    for step in 0..150 {
                        let what = format!("seed {seed}, life {life}, step {step}, {strategy:?}");
                        write(&store, &mine.change(rt.random_u64())).await.unwrap();
                        match rt.random_u64() % 24 {
                            0..6 => store.flush(None).await.unwrap(),
                            6 => store.compactor().compact_major(TABLE).await.unwrap(),
                            14 => {
                                let by = [TombstoneOption::Row, TombstoneOption::Cell][step % 2];
                                store.compactor().garbage_collect(TABLE, by).await.unwrap();
                                mine.check(&store, &what).await;
                            }
                            7 | 8 => {
                                strategy =
                                    Strategy::ALL[rt.random_u64() as usize % Strategy::ALL.len()];
                                store.set_schema(schema_by(strategy));
                                set_fragment_size(&store, 2_000);
                            }
                            9 => store
                                .files()
                                .slots()
                                .set_concurrent_compactors(1 + (rt.random_u64() % 4) as u32),
                            10..14 => {
                                let micros = rt.random_u64() % 3_000_000;
                                rt.sleep(Duration::from_micros(micros)).await;
                                mine.check(&store, &what).await;
                            }
                            _ => {}
                        }
                        beside += u64::from(store.files().slots().compactions().len() > 1);
                    }
                    mine.check(&store, "at the end").await;
                    done += store.table_stats(TABLE).compactions;
                    // Every second life ends as by a kill, in the midst of whatever runs.
                    if life % 2 == 0 {
                        store.stop().await;
                    }
                    *model.lock().unwrap() = (mine, done, beside);
                }
            });
        }
        let (_, done, beside) = &*shared.lock().unwrap();
        compactions += done;
        overlapping += beside;
    }
    assert!(compactions > 200 && overlapping > 5, "{compactions}, {overlapping} at once");
}

/// Expected data when a node ends at any moment.
#[derive(Clone, Default)]
struct Known {
    /// With all that was acknowledged.
    sure: Model,
    /// The same with the write that was under way; `None`: there was none.
    begun: Option<Model>,
    compactions: u64,
}

async fn live_until_a_crash(rt: Rt, known: Arc<Mutex<Known>>, armed: Arc<Mutex<bool>>) {
    let mut strategy = Strategy::ALL[rt.random_u64() as usize % Strategy::ALL.len()];
    let options = StoreOptions {
        sync: commitlog::SyncMode::Batch,
        concurrent_compactors: 1 + (rt.random_u64() % 4) as u32,
        compaction_bytes_per_second: 20_000,
        ..options(&rt)
    };
    let store = Store::open(rt.clone(), options, schema_by(strategy)).await.unwrap().0;
    set_fragment_size(&store, 2_000);
    let Known { sure, begun, .. } = known.lock().unwrap().clone();
    let found = crate::tests::everywhere::rows_of(&read_all(&store).await);
    let is_begun = begun.as_ref().is_some_and(|begun| found == begun.rows);
    let mut mine = if is_begun { begun.unwrap() } else { sure };
    assert_eq!(found, mine.rows, "after a crash, {strategy:?}");
    {
        let mut known = known.lock().unwrap();
        (known.sure, known.begun) = (mine.clone(), None);
    }
    *armed.lock().unwrap() = true;
    loop {
        let mutation = mine.change(rt.random_u64());
        known.lock().unwrap().begun = Some(mine.clone());
        if write(&store, &mutation).await.is_err() {
            return;
        }
        {
            let mut known = known.lock().unwrap();
            (known.sure, known.begun) = (mine.clone(), None);
        }
        match rt.random_u64() % 16 {
            0..5 => drop(store.flush(None).await),
            5 => drop(store.compactor().compact_major(TABLE).await),
            10 => drop(store.compactor().garbage_collect(TABLE, TombstoneOption::Cell).await),
            6 => {
                strategy = Strategy::ALL[rt.random_u64() as usize % Strategy::ALL.len()];
                store.set_schema(schema_by(strategy));
                set_fragment_size(&store, 2_000);
            }
            7..10 => rt.sleep(Duration::from_micros(rt.random_u64() % 2_000_000)).await,
            _ => {}
        }
        known.lock().unwrap().compactions += store.table_stats(TABLE).compactions;
    }
}

#[test]
fn a_crash_at_any_io_under_any_strategy_leaves_what_was_acknowledged() {
    use rt::sim::CrashKind;
    let (mut compactions, mut lives) = (0, 0);
    for seed in 0..8_u64 {
        let world = world(900 + seed);
        let known: Arc<Mutex<Known>> = Arc::default();
        for life in 0..14_u64 {
            let armed: Arc<Mutex<bool>> = Arc::default();
            let (theirs, arm) = (known.clone(), armed.clone());
            let node =
                start(&world, 1, move |rt| live_until_a_crash(rt, theirs.clone(), arm.clone()));
            let limit = Duration::from_secs(3_600);
            world.run_until(|| *armed.lock().unwrap(), limit).unwrap();
            let kind = [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll]
                [(life % 3) as usize];
            world.disk("n1").crash_at_nth_io(1 + (seed * 37 + life * 131) % 900, kind);
            world.run_until(|| !world.is_alive(&node), limit).unwrap();
            world.disk("n1").clear_faults();
            lives += 1;
        }
        compactions += known.lock().unwrap().compactions;
    }
    assert!(compactions > 400 && lives == 112, "{compactions} in {lives}");
}

/// Four small files and four large ones: two merges are due.
async fn two_due(rt: &Rt, rate: u64, compactors: u32) -> Store {
    let compaction =
        map_of(Strategy::SizeTiered, &[("min_sstable_size", "0"), ("enabled", "false")]);
    let schema = |enabled: &str| {
        let mut compaction = compaction.clone();
        compaction.insert("enabled".to_owned(), enabled.to_owned());
        schema_of(vec![table(TableOptions { compaction, ..TableOptions::default() })])
    };
    let options = StoreOptions {
        concurrent_compactors: compactors,
        compaction_bytes_per_second: rate,
        ..options(rt)
    };
    let (store, _) = Store::open(rt.clone(), options, schema("false")).await.unwrap();
    for n in 0..8 {
        let rows = if n % 2 == 0 { 150 } else { 450 };
        for pk in 0..rows {
            let value = noise(pk, 2_000);
            write(&store, &insert(pk, n, &value, 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
    }
    store.set_schema(schema("true"));
    store
}

async fn wait_for(rt: &Rt, store: &Store, what: impl Fn(&[CompactionProgress]) -> bool) {
    for _ in 0..2_000 {
        if what(&store.files().slots().compactions()) {
            return;
        }
        rt.sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {:?}", store.files().slots().compactions());
}

#[test]
fn compactions_of_one_table_run_beside_each_other_as_many_as_may() {
    run(81, |rt| async move {
        let store = two_due(&rt, 1_000_000, 2).await;
        wait_for(&rt, &store, |running| running.len() == 2).await;
        let claimed = store.rooms.tables.table(TABLE).unwrap().claimed.borrow().clone();
        let mut once = claimed.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!((claimed.len(), once.len()), (8, 8));
        // Claimed files are in no plan.
        assert_eq!(store.compactor().planned_compactions(TABLE).unwrap(), []);
        wait_for(&rt, &store, <[_]>::is_empty).await;
        assert!(store.table_stats(TABLE).compactions >= 2);
        assert_eq!(read_all(&store).await.len(), 4 * 600);
        store.stop().await;
    });
    run(82, |rt| async move {
        let store = two_due(&rt, 1_000_000, 1).await;
        assert_eq!(store.files().slots().concurrent_compactors(), 1);
        wait_for(&rt, &store, |running| running.len() == 1).await;
        for _ in 0..100 {
            assert!(store.files().slots().compactions().len() < 2);
            rt.sleep(Duration::from_millis(2)).await;
        }
        // Live, while one runs.
        assert_eq!(store.files().slots().compactions().len(), 1);
        store.files().slots().set_concurrent_compactors(2);
        wait_for(&rt, &store, |running| running.len() == 2).await;
        store.stop().await;
    });
}

#[test]
fn a_major_compaction_waits_for_what_runs_and_keeps_the_background_away() {
    run(83, |rt| async move {
        let store = two_due(&rt, 1_000_000, 3).await;
        wait_for(&rt, &store, |running| running.len() == 2).await;
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(store.table_stats(TABLE).sstables, 1);
        assert_eq!(store.table_stats(TABLE).compactions, 3);
        assert_eq!(read_all(&store).await.len(), 4 * 600);
        store.stop().await;
    });
}

#[test]
fn all_compactions_together_keep_to_the_rate() {
    run(84, |rt| async move {
        let mut took = Vec::new();
        for compactors in [1, 2] {
            let store = two_due(&rt, 1_000_000, compactors).await;
            let begin = rt.now();
            wait_for(&rt, &store, |running| !running.is_empty()).await;
            while store.table_stats(TABLE).compactions < 2 {
                rt.sleep(Duration::from_millis(10)).await;
            }
            took.push(rt.now().since(begin));
            store.lifecycle().truncate(TABLE, TimestampMicros(5_000_000)).await.unwrap();
            store.stop().await;
        }
        // Simulated time: two at once are not faster than one after the other.
        assert!(took[1] > took[0].mul_f64(0.9), "{took:?}");
    });
}

/// INV-slots-2.
#[test]
fn space_is_reserved_beside_that_of_others() {
    let world = world(85);
    world.disk("n1").set_free_bytes(Some(1_000_000));
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        let table = store.rooms.tables.table(TABLE).unwrap();
        let shown = store.rooms.compactor.shown(&table, &[], &compact_plan::Reason::Major);
        let one = store.rooms.files.slots.claim(&table, vec![], shown.clone());
        let two = store.rooms.files.slots.claim(&table, vec![], shown);
        store.rooms.files.slots.reserve(&one.progress, 1_000, 600_000, "one").await.unwrap();
        let refused = store.rooms.files.slots.reserve(&two.progress, 1_000, 600_000, "two").await;
        let Err(StoreError::DiskFull { detail }) = refused else { panic!("{refused:?}") };
        assert!(detail.contains("others may need 600000"), "{detail}");
        // The first needs no space for data that it has read already.
        one.progress.done.set(500);
        store.rooms.files.slots.reserve(&two.progress, 1_000, 600_000, "two").await.unwrap();
        let refused = store.rooms.files.slots.reserve(&one.progress, 1_000, 600_000, "one").await;
        assert!(matches!(refused, Err(StoreError::DiskFull { .. })));
        assert_eq!(store.files().slots().refused_compactions(), 2);
        drop(two);
        store.rooms.files.slots.reserve(&one.progress, 1_000, 600_000, "one").await.unwrap();
        store.stop().await;
    });
}
