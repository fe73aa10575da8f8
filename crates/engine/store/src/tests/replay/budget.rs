//! Replay of a log that has many times what memtables may hold.

use commitlog::SyncMode;
use rt::sim::CrashKind;

use crate::ReplayReport;
use crate::tests::everywhere::*;
use crate::tests::read::counter_cache::{OWN, Place, context, count_of, counter_schema};
use crate::tests::*;

const BUDGET: usize = 16 << 10;
/// More memory than any mutation here needs in the memtable.
const MUTATION: usize = 4 << 10;

const ALL_KINDS: [CrashKind; 3] =
    [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll];

fn small(rt: &Rt) -> StoreOptions {
    StoreOptions { memtable_bytes_max: BUDGET, sync: SyncMode::Batch, ..options(rt) }
}

fn long(i: i32) -> String {
    format!("{i} {}", "x".repeat(1_500))
}

/// Writes rows that stay in the log.
fn fill_log(world: &World, facts: &Facts, rows: std::ops::Range<i32>) {
    let facts = facts.clone();
    run_in(world, move |rt| {
        let (facts, rows) = (facts.clone(), rows.clone());
        async move {
            let options = StoreOptions { sync: SyncMode::Batch, ..options(&rt) };
            let (store, _) = Store::open(rt.clone(), options, schema()).await.unwrap();
            for i in rows {
                // Some are overwritten.
                let place = (i % 3, i % 20);
                facts.put(&store, place, &long(i), i64::from(i) + 1).await.unwrap();
            }
        }
    });
}

/// Opens with a small budget and reads all.
fn replay_small(world: &World, schema: &Arc<Schema>, shards: u16) -> (Vec<ReplayReport>, Rows) {
    let out: Arc<Mutex<(Vec<ReplayReport>, Rows)>> = Arc::default();
    let (slot, schema) = (out.clone(), schema.clone());
    run_shards(world, shards, move |rt, barrier| {
        let (slot, schema) = (slot.clone(), schema.clone());
        async move {
            let (store, report) = Store::open(rt.clone(), small(&rt), schema).await.unwrap();
            // Room for the first writes.
            assert!(store.memory_bytes().0 <= BUDGET / 3 * 2);
            barrier.wait(&rt).await;
            let rows = rows_of(&read_all(&store).await);
            let mut out = slot.lock().unwrap();
            out.0.push(report);
            out.1.extend(rows);
        }
    });
    std::mem::take(&mut *out.lock().unwrap())
}

/// INV-replay-1.
#[test]
fn a_log_of_many_times_the_budget_is_replayed_within_it() {
    let (world, facts) = (world(3_100), Facts::default());
    fill_log(&world, &facts, 0..200);
    let (reports, rows) = replay_small(&world, &schema(), 1);
    let report = &reports[0];
    assert_eq!(report.applied, 200);
    assert!(report.files >= 10, "{report:?}");
    let peak = report.memtable_bytes_peak;
    assert!(peak > BUDGET && peak <= BUDGET + MUTATION, "{peak}");
    facts.check_rows(&rows, "at once");
    // The log is removed when the rest is flushed.
    run_in(&world, |rt| async move {
        let (store, _) = Store::open(rt.clone(), small(&rt), schema()).await.unwrap();
        store.drain().await.unwrap();
    });
    let left: Vec<String> =
        world.disk("n1").list().into_iter().filter(|p| p.contains("/commitlog/")).collect();
    assert!(left.is_empty(), "{left:?}");
    let (reports, rows) = replay_small(&world, &schema(), 1);
    assert_eq!(reports[0].applied, 0);
    facts.check_rows(&rows, "without the log");
}

#[test]
fn a_small_log_is_replayed_without_a_file_when_it_leaves_room() {
    for (count, files) in [(4, 0), (6, 1)] {
        let (world, facts) = (world(3_101), Facts::default());
        fill_log(&world, &facts, 0..count);
        let (reports, rows) = replay_small(&world, &schema(), 1);
        let report = &reports[0];
        assert_eq!((report.files, report.applied), (files, u64::try_from(count).unwrap()));
        assert!(report.memtable_bytes_peak < BUDGET);
        facts.check_rows(&rows, "all of it");
    }
}

/// Opens with a small budget, and is crashed at some call.
async fn reopen(rt: Rt, _: Facts, barrier: Barrier) {
    barrier.arm(&rt).await;
    if let Ok((store, report)) = Store::open(rt.clone(), small(&rt), schema()).await {
        assert!(report.files > 1);
        // The flush of the rest, and the release of the log.
        rt.sleep(Duration::from_millis(100)).await;
        store.stop().await;
    }
}

#[test]
fn a_crash_at_every_io_of_a_replay_beyond_the_budget_loses_nothing_acknowledged() {
    for (kind, step) in ALL_KINDS.into_iter().zip([1, 2, 2]) {
        let crash = Crash { name: "replay beyond the budget", kind, shards: 1, step };
        let prepare = |world: &World, facts: &Facts| fill_log(world, facts, 0..36);
        crash_everywhere(crash, prepare, reopen, |world, facts, (n, place)| {
            // Some are crashed again, and continue with a small budget.
            if n % 3 == 0 {
                world.disk("n1").crash_at_nth_io(n / 2, kind);
                let node = start(world, 1, |rt| async move {
                    drop(Store::open(rt.clone(), small(&rt), schema()).await);
                });
                world.run_until(|| !world.is_alive(&node), Duration::from_secs(600)).unwrap();
                world.disk("n1").clear_faults();
            }
            if n % 2 == 0 {
                let (_, rows) = replay_small(world, &schema(), 1);
                facts.check_rows(&rows, place);
            }
            check_restarts(world, facts, 1, place);
        });
    }
}

/// Increments as their leader writes them: what it has counted so far, with a clock.
fn count_some(world: &World) {
    run_in(world, |rt| async move {
        let options = StoreOptions { sync: SyncMode::Batch, ..options(&rt) };
        let (store, _) = Store::open(rt.clone(), options, counter_schema()).await.unwrap();
        for i in 1..=150_i64 {
            let counted = count_of(counter(i), (OWN, i, i * 10), i);
            write(&store, &counted).await.unwrap();
        }
    });
}

fn counter(i: i64) -> Place {
    (i32::try_from(i % 3).unwrap(), Some(1), VALUE)
}

#[test]
fn counters_are_counted_once_by_a_replay_that_was_crashed() {
    let few = 600;
    let crash = Crash { name: "counters", kind: CrashKind::Kill, shards: 1, step: 5 };
    let main = move |rt: Rt, (): (), barrier: Barrier| async move {
        barrier.arm(&rt).await;
        let options = StoreOptions { memtable_bytes_max: few, ..options(&rt) };
        if let Ok((store, report)) = Store::open(rt.clone(), options, counter_schema()).await {
            assert!(report.files > 0);
            rt.sleep(Duration::from_millis(100)).await;
            store.stop().await;
        }
    };
    let prepare = |world: &World, (): &()| count_some(world);
    crash_everywhere(crash, prepare, main, |world, (), (_, place)| {
        let place = place.to_owned();
        run_in(world, move |rt| {
            let place = place.clone();
            async move {
                let options = StoreOptions { memtable_bytes_max: few, ..options(&rt) };
                let (store, _) = Store::open(rt.clone(), options, counter_schema()).await.unwrap();
                for last in 148..=150_i64 {
                    let (_, found) = context(&store, counter(last)).await.unwrap();
                    let wanted = data::counter::global(OWN, last, last * 10).to_vec();
                    assert_eq!(found, wanted, "{place}");
                }
                store.stop().await;
            }
        });
    });
}

fn never_compacted() -> Arc<Schema> {
    let mut options = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    options.compaction.insert("enabled".to_owned(), "false".to_owned());
    schema_of(vec![table(options)])
}

/// Rows, a TRUNCATE by its first shard, rows after it: all in the logs of `shards` shards.
fn truncate_within(world: &World, shards: u16, keys: i32) {
    run_shards(world, shards, move |rt, barrier| async move {
        let options = StoreOptions { sync: SyncMode::Batch, ..options(&rt) };
        let (store, _) = Store::open(rt.clone(), options, never_compacted()).await.unwrap();
        let mine = |pk: i32| shard_of(codec::token_of(&key(pk)), shards) == rt.shard();
        for pk in (0..keys).filter(|pk| mine(*pk)) {
            write(&store, &insert(pk, 1, &long(pk), 10)).await.unwrap();
        }
        barrier.wait(&rt).await;
        if rt.shard().0 == 0 {
            store.lifecycle().truncate(TABLE, TimestampMicros(20)).await.unwrap();
        }
        for pk in (0..keys).filter(|pk| mine(*pk)) {
            write(&store, &insert(pk, 2, &long(pk), 30)).await.unwrap();
        }
    });
}

/// The rows that are left of [`truncate_within`].
fn left_of(shards: u16, keys: i32) -> Vec<(i32, i32)> {
    let truncated = |pk: i32| shard_of(codec::token_of(&key(pk)), shards).0 == 0;
    let rows =
        |pk: i32| (1..=2).filter(move |ck| *ck == 2 || !truncated(pk)).map(move |ck| (pk, ck));
    (0..keys).flat_map(rows).collect()
}

/// INV-replay-2.
#[test]
fn what_was_truncated_is_not_brought_back_by_files_of_the_replay() {
    for before in 1..=3 {
        for after in 1..=3 {
            let place = format!("{before} shards, then {after}");
            let world = world(3_110);
            // A slice has more rows than memtables hold twice.
            let keys = 90;
            truncate_within(&world, before, keys);
            for round in 0..3 {
                let (reports, rows) = replay_small(&world, &never_compacted(), after);
                if round == 0 {
                    assert!(reports.iter().any(|r| r.files > 0), "{place}");
                }
                let places: Vec<(i32, i32)> = rows.into_keys().collect();
                assert_eq!(places, left_of(before, keys), "{place}, round {round}");
            }
        }
    }
}

#[test]
fn a_crash_at_every_io_of_a_replay_beyond_the_budget_brings_nothing_back_that_was_truncated() {
    for (before, after, step) in [(1, 1, 2), (2, 1, 3), (1, 2, 5)] {
        let crash = Crash { name: "truncated", kind: CrashKind::PowerCut, shards: after, step };
        let prepare = |world: &World, (): &()| truncate_within(world, before, 18);
        let main = |rt: Rt, (): (), barrier: Barrier| async move {
            barrier.arm(&rt).await;
            if let Ok((store, _)) = Store::open(rt.clone(), small(&rt), never_compacted()).await {
                rt.sleep(Duration::from_millis(100)).await;
                store.stop().await;
            }
        };
        crash_everywhere(crash, prepare, main, |world, (), (_, place)| {
            let (_, rows) = replay_small(world, &never_compacted(), after);
            let places: Vec<(i32, i32)> = rows.into_keys().collect();
            assert_eq!(places, left_of(before, 18), "{place}");
        });
    }
}

#[test]
fn a_disk_without_room_for_the_log_ends_the_start_and_costs_nothing() {
    let mut told = 0;
    for n in 1..26 {
        let (world, facts) = (world(3_120 + n), Facts::default());
        fill_log(&world, &facts, 0..30);
        let said: Arc<Mutex<Option<String>>> = Arc::default();
        let slot = said.clone();
        world.disk("n1").fail_nth_change(n, stdx::IoErrorKind::NoSpace);
        run_in(&world, move |rt| {
            let slot = slot.clone();
            async move {
                let opened = Store::open(rt.clone(), small(&rt), schema()).await;
                *slot.lock().unwrap() = opened.err().map(|e| e.to_string());
            }
        });
        world.disk("n1").clear_faults();
        let words = "disk full: the commit log has more than memtables may hold, and there is no room to \
                     write it as SSTables: ";
        let said = said.lock().unwrap().clone();
        told += usize::from(said.is_some_and(|said| said.starts_with(words)));
        check_restarts(&world, &facts, 1, &format!("failed at change {n}"));
    }
    assert!(told > 3, "{told}");
}
