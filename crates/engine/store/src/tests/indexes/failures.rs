//! Failing calls and crashes during flushes, compactions and builds of indexed tables.

use commitlog::SyncMode;
use rt::sim::CrashKind;
use stdx::IoErrorKind;

use super::building::wait_built;
use super::*;
use crate::tests::everywhere::*;

fn batch(rt: &Rt) -> StoreOptions {
    StoreOptions { sync: SyncMode::Batch, ..options(rt) }
}

/// Files without an index.
async fn prepare(rt: Rt, facts: Facts) {
    let store = Store::open(rt.clone(), batch(&rt), indexed_schema(&[])).await.unwrap().0;
    for i in 0..4 {
        facts.put(&store, (i % 2, i), "before", 1).await.unwrap();
        if i % 2 == 1 {
            store.flush(None).await.unwrap();
        }
    }
    store.stop().await;
}

/// A flush, a compaction and the builds in the background; any of it may fail.
async fn work(rt: Rt, facts: Facts) {
    let opened = Store::open(rt.clone(), batch(&rt), indexed_schema(&ALL)).await;
    let Ok((store, _)) = opened else { return };
    for i in 10..13 {
        let _ = facts.put(&store, (i % 2, i), &format!("{i}"), 1).await;
    }
    let _ = store.flush(None).await;
    rt.sleep(Duration::from_secs(2)).await;
    let _ = facts.put(&store, (0, 20), "20", 1).await;
    let _ = store.compactor().compact_major(TABLE).await;
    store.stop().await;
}

/// After the failure all acknowledged rows are there, all files get their indexes, and these are right.
fn check(world: &World, facts: &Facts, place: &str) {
    let (facts, place) = (facts.clone(), place.to_owned());
    run_in(world, move |rt| {
        let (facts, place) = (facts.clone(), place.clone());
        async move {
            let opened = Store::open(rt.clone(), batch(&rt), indexed_schema(&ALL)).await;
            let store = match opened {
                Ok((store, _)) => store,
                Err(error) => panic!("{place}: {error}"),
            };
            facts.check_rows(&rows_of(&read_all(&store).await), &place);
            store.flush(None).await.unwrap();
            wait_built(&rt, &store).await;
            check_files(&store).await;
            facts.check_rows(&rows_of(&read_all(&store).await), &place);
            store.stop().await;
        }
    });
    let spills = world.disk("n1").list().into_iter().filter(|path| path.contains(".spill"));
    assert_eq!(spills.count(), 0);
}

#[test]
fn an_io_error_at_every_call_of_an_indexed_table_loses_no_row_and_no_entry() {
    let mut n = 1;
    loop {
        let place = format!("error at call {n}");
        let world = world(81_000 + n);
        let facts = Facts::default();
        let first = facts.clone();
        run_in(&world, move |rt| prepare(rt, first.clone()));
        let disk = world.disk("n1");
        disk.fail_nth(n, IoErrorKind::Device);
        let second = facts.clone();
        run_in(&world, move |rt| work(rt, second.clone()));
        let came_through = disk.pending_failures() > 0;
        disk.clear_faults();
        check(&world, &facts, &place);
        if came_through {
            break;
        }
        n += 1;
    }
    assert!(n > 100, "{n} calls");
}

#[test]
fn a_crash_at_every_io_of_an_indexed_table_loses_no_row_and_no_entry() {
    for kind in [CrashKind::Kill, CrashKind::PowerCut] {
        let crash = Crash { name: "index", kind, shards: 1, step: 3 };
        let before = |world: &World, facts: &Facts| {
            let facts = facts.clone();
            run_in(world, move |rt| prepare(rt, facts.clone()));
        };
        let main = |rt: Rt, facts: Facts, barrier: Barrier| async move {
            barrier.arm(&rt).await;
            work(rt, facts).await;
        };
        crash_everywhere(crash, before, main, |world, facts, (_, place)| {
            check(world, facts, place)
        });
    }
}
