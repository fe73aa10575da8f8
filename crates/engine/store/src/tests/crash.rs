//! A crash at every IO of one shard; then all acknowledged data must exist. Several shards:
//! `shards`.

use commitlog::SyncMode;
use rt::sim::CrashKind;

use crate::tests::everywhere::*;
use crate::tests::*;

const ALL_KINDS: [CrashKind; 3] =
    [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll];

/// One shard that writes facts.
fn crash_at_every_io<F: Future<Output = ()> + 'static>(
    name: &'static str,
    kind: CrashKind,
    sync: SyncMode,
    work: impl Fn(Rt, Facts, StoreOptions) -> F + Send + Sync + Clone + 'static,
) {
    let main = move |rt: Rt, facts: Facts, barrier: Barrier| {
        let work = work.clone();
        async move {
            barrier.arm(&rt).await;
            let options = StoreOptions { sync, ..options(&rt) };
            work(rt, facts, options).await;
        }
    };
    let crash = Crash { name, kind, shards: 1, step: 1 };
    let check = |world: &World, facts: &Facts, (_, place): (u64, &str)| {
        check_restarts(world, facts, 1, place)
    };
    crash_everywhere(crash, |_, _| (), main, check);
}

/// A write that may fail: the node is being crashed.
async fn put(facts: &Facts, store: &Store, (pk, ck): (i32, i32), value: &str, timestamp: i64) {
    let _ = facts.put(store, (pk, ck), value, timestamp).await;
}

async fn write_some(rt: Rt, facts: Facts, options: StoreOptions) {
    let Ok((store, _)) = Store::open(rt.clone(), options, schema()).await else { return };
    for i in 0..30 {
        let value = format!("{i}-{}", "x".repeat(usize::try_from(i * 200).unwrap_or(0)));
        put(&facts, &store, (i % 3, i), &value, i64::from(i) + 1).await;
    }
}

#[test]
fn a_kill_at_every_io_of_writes_loses_nothing_acknowledged() {
    let sync = SyncMode::Periodic { period: Duration::from_millis(5) };
    crash_at_every_io("write", CrashKind::Kill, sync, write_some);
}

/// INV-store-1.
#[test]
fn a_power_cut_at_every_io_of_batch_writes_loses_nothing_acknowledged() {
    crash_at_every_io("write", CrashKind::PowerCut, SyncMode::Batch, write_some);
    crash_at_every_io("write", CrashKind::PowerCutLosingAll, SyncMode::Batch, write_some);
}

#[test]
fn a_power_cut_at_every_io_of_group_writes_loses_nothing_acknowledged() {
    let sync = SyncMode::Group { window: Duration::from_millis(3) };
    crash_at_every_io("write", CrashKind::PowerCut, sync, write_some);
}

async fn write_and_flush(rt: Rt, facts: Facts, options: StoreOptions) {
    let Ok((store, _)) = Store::open(rt.clone(), options, schema()).await else { return };
    for i in 0..6 {
        put(&facts, &store, (i % 3, i), &format!("{i}"), i64::from(i) + 1).await;
        if i % 3 == 2 && store.flush(None).await.is_err() {
            return;
        }
    }
}

/// INV-store-3.
#[test]
fn a_crash_at_every_io_of_a_flush_loses_nothing_acknowledged() {
    let sync = SyncMode::Periodic { period: Duration::from_millis(5) };
    crash_at_every_io("flush", CrashKind::Kill, sync, write_and_flush);
    crash_at_every_io("flush", CrashKind::PowerCut, SyncMode::Batch, write_and_flush);
    crash_at_every_io("flush", CrashKind::PowerCutLosingAll, SyncMode::Batch, write_and_flush);
}

async fn write_and_compact(rt: Rt, facts: Facts, options: StoreOptions) {
    let Ok((store, _)) = Store::open(rt.clone(), options, schema()).await else { return };
    for i in 0..6 {
        put(&facts, &store, (i % 2, i), &format!("{i}"), i64::from(i) + 1).await;
        if i % 2 == 1 && store.flush(None).await.is_err() {
            return;
        }
    }
    if store.compactor().compact_major(TABLE).await.is_err() {
        return;
    }
    put(&facts, &store, (1, 100), "behind", 100).await;
}

#[test]
fn a_crash_at_every_io_of_a_compaction_loses_nothing_acknowledged() {
    let sync = SyncMode::Periodic { period: Duration::from_millis(5) };
    crash_at_every_io("compaction", CrashKind::Kill, sync, write_and_compact);
    crash_at_every_io("compaction", CrashKind::PowerCut, SyncMode::Batch, write_and_compact);
    let kind = CrashKind::PowerCutLosingAll;
    crash_at_every_io("compaction", kind, SyncMode::Batch, write_and_compact);
}

async fn write_and_snapshot(rt: Rt, facts: Facts, options: StoreOptions) {
    let Ok((store, _)) = Store::open(rt.clone(), options, schema()).await else { return };
    for i in 0..4 {
        put(&facts, &store, (i % 2, i), &format!("{i}"), i64::from(i) + 1).await;
    }
    if store.lifecycle().snapshot("one", None).await.is_err() {
        return;
    }
    put(&facts, &store, (1, 100), "behind", 100).await;
}

#[test]
fn a_crash_at_every_io_of_a_snapshot_loses_nothing_acknowledged() {
    let sync = SyncMode::Periodic { period: Duration::from_millis(5) };
    crash_at_every_io("snapshot", CrashKind::Kill, sync, write_and_snapshot);
    crash_at_every_io("snapshot", CrashKind::PowerCut, SyncMode::Batch, write_and_snapshot);
}

/// gc_grace_seconds = 0: tombstones are purged at the first compaction.
pub(crate) fn purging_schema() -> Arc<Schema> {
    schema_of(vec![table(TableOptions { gc_grace_seconds: 0, ..TableOptions::default() })])
}

pub(crate) async fn open_purging(rt: &Rt) -> Store {
    open_purging_with(rt, purging_schema()).await
}

pub(crate) async fn open_purging_with(rt: &Rt, schema: Arc<Schema>) -> Store {
    let options = StoreOptions { sync: SyncMode::Batch, ..options(rt) };
    Store::open(rt.clone(), options, schema).await.unwrap().0
}

/// Rows after a restart, which two more restarts must not change.
pub(crate) fn rows_left(world: &World, schema: &Arc<Schema>, place: &str) -> usize {
    let left = rows_after_restart(world, 1, schema, place);
    for _ in 0..2 {
        assert_eq!(rows_after_restart(world, 1, schema, place), left, "{place}");
    }
    left.len()
}

/// A deleted row whose tombstone a compaction purges must not come back, whatever remains of the
/// inputs.
#[test]
fn a_crash_at_every_io_of_a_purging_compaction_brings_nothing_back() {
    let main = |rt: Rt, (): (), barrier: Barrier| async move {
        let store = open_purging(&rt).await;
        for pk in 0..3 {
            write(&store, &insert(pk, 1, "gone", 100)).await.unwrap();
            write(&store, &insert(pk, 2, "stays", 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for pk in 0..3 {
            write(&store, &delete_row(pk, 1, 200)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        barrier.arm(&rt).await;
        if store.compactor().compact_major(TABLE).await.is_ok() {
            rt.sleep(Duration::from_millis(50)).await;
        }
    };
    let stays: Rows = (0..3).map(|pk| ((pk, 2), "stays".to_owned())).collect();
    for kind in ALL_KINDS {
        let crash = Crash { name: "purging compaction", kind, shards: 1, step: 1 };
        crash_everywhere(
            crash,
            |_, _| (),
            main,
            |world, (), (_, place)| {
                for _ in 0..2 {
                    assert_eq!(
                        rows_after_restart(world, 1, &purging_schema(), place),
                        stays,
                        "{place}"
                    );
                }
            },
        );
    }
}

/// A truncation that was acknowledged stays; one that was not may or may not have happened, but
/// never by half.
#[test]
fn a_crash_at_every_io_of_a_truncation_leaves_all_or_nothing() {
    let main = |rt: Rt, acknowledged: Arc<Mutex<bool>>, barrier: Barrier| async move {
        let store = open_purging(&rt).await;
        for pk in 0..3 {
            write(&store, &insert(pk, 1, "v", 100)).await.unwrap();
            if pk < 2 {
                store.flush(None).await.unwrap();
            }
        }
        barrier.arm(&rt).await;
        if store.lifecycle().truncate(TABLE, TimestampMicros(5_000_000)).await.is_ok() {
            *acknowledged.lock().unwrap() = true;
            assert_eq!(read_all(&store).await, vec![]);
            rt.sleep(Duration::from_secs(3)).await;
        }
    };
    for kind in ALL_KINDS {
        let crash = Crash { name: "truncation", kind, shards: 1, step: 1 };
        crash_everywhere(
            crash,
            |_, _| (),
            main,
            |world, acknowledged, (_, place)| {
                let acknowledged = *acknowledged.lock().unwrap();
                for round in 0..3 {
                    let at = place.to_owned();
                    run_in(world, move |rt| {
                        let at = at.clone();
                        async move {
                            let store = open_purging(&rt).await;
                            let found = read_all(&store).await.len();
                            let fits = found == 0 || (!acknowledged && found == 3);
                            assert!(fits, "{at}, restart {round}: {found} rows");
                            rt.sleep(Duration::from_secs(2)).await;
                            store.stop().await;
                        }
                    });
                }
            },
        );
    }
}

/// A restart with files and a log to replay, crashed at every IO.
#[test]
fn a_crash_at_every_io_of_a_restart_loses_nothing_acknowledged() {
    let prepare = |world: &World, facts: &Facts| {
        let facts = facts.clone();
        run_in(world, move |rt| {
            let facts = facts.clone();
            async move {
                let options = StoreOptions { sync: SyncMode::Batch, ..options(&rt) };
                let store = Store::open(rt.clone(), options, schema()).await.unwrap().0;
                for i in 0..6 {
                    put(&facts, &store, (i % 2, i), &format!("{i}"), i64::from(i) + 1).await;
                    if i == 1 || i == 3 {
                        store.flush(None).await.unwrap();
                    }
                }
            }
        });
    };
    let main = |rt: Rt, _: Facts, barrier: Barrier| async move {
        barrier.arm(&rt).await;
        let options = StoreOptions { sync: SyncMode::Batch, ..options(&rt) };
        if let Ok((store, _)) = Store::open(rt.clone(), options, schema()).await {
            // The background flush of what was replayed, and the release of the log.
            rt.sleep(Duration::from_millis(100)).await;
            store.stop().await;
        }
    };
    for kind in ALL_KINDS {
        let crash = Crash { name: "restart", kind, shards: 1, step: 1 };
        crash_everywhere(crash, prepare, main, |world, facts, (_, place)| {
            check_restarts(world, facts, 1, place);
        });
    }
}
