//! A crash at every IO of several shards in the same directories, also while a node starts again
//! with another number of shards.

use commitlog::SyncMode;
use rt::sim::CrashKind;

use crate::tests::crash::purging_schema;
use crate::tests::everywhere::*;
use crate::tests::*;

/// Partitions, on all shards of every node here.
const KEYS: i32 = 9;

const ALL_KINDS: [CrashKind; 3] =
    [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll];

fn owner(pk: i32, shards: u16) -> ShardId {
    shard_of(codec::token_of(&key(pk)), shards)
}

/// The partitions of this shard.
fn mine(rt: &Rt) -> impl Iterator<Item = i32> + use<> {
    let (shard, shards) = (rt.shard(), rt.shard_count());
    (0..KEYS).filter(move |pk| owner(*pk, shards) == shard)
}

fn sync_of(kind: CrashKind) -> SyncMode {
    match kind {
        CrashKind::Kill => SyncMode::Periodic { period: Duration::from_millis(5) },
        CrashKind::PowerCut | CrashKind::PowerCutLosingAll => SyncMode::Batch,
    }
}

/// Like [`purging_schema`], without automatic compactions.
fn manual_schema() -> Arc<Schema> {
    let mut options = TableOptions { gc_grace_seconds: 0, ..TableOptions::default() };
    options.compaction.insert("min_threshold".to_owned(), "32".to_owned());
    schema_of(vec![table(options)])
}

async fn open_with(
    rt: &Rt,
    sync: SyncMode,
    schema: Arc<Schema>,
    barrier: &Barrier,
) -> Option<Store> {
    let options = StoreOptions { sync, ..options(rt) };
    let opened = Store::open(rt.clone(), options, schema).await;
    // Like a node: nothing is served before every shard is open.
    barrier.wait(rt).await;
    opened.ok().map(|(store, _)| store)
}

#[test]
fn every_shard_has_partitions() {
    for shards in 1..=3 {
        let owners: std::collections::BTreeSet<u16> =
            (0..KEYS).map(|pk| owner(pk, shards).0).collect();
        assert_eq!(owners.len(), usize::from(shards));
    }
}

#[derive(Clone, Default)]
struct Shared {
    facts: Facts,
    opened: Barrier,
}

#[test]
fn a_crash_at_every_io_of_three_shards_loses_nothing_acknowledged() {
    for kind in ALL_KINDS {
        let main = move |rt: Rt, shared: Shared, barrier: Barrier| async move {
            barrier.arm(&rt).await;
            let opened = open_with(&rt, sync_of(kind), schema(), &shared.opened).await;
            let Some(store) = opened else { return };
            for round in 0..3 {
                for pk in mine(&rt) {
                    let value = format!("{pk} {round}");
                    let _ = shared.facts.put(&store, (pk, round), &value, 1).await;
                }
                if store.flush(None).await.is_err() {
                    return;
                }
            }
            if store.compactor().compact_major(TABLE).await.is_err() {
                return;
            }
            for pk in mine(&rt) {
                let _ = shared.facts.put(&store, (pk, 100), "behind", 1).await;
            }
            // The release of the log.
            rt.sleep(Duration::from_millis(20)).await;
        };
        let crash = Crash { name: "three shards", kind, shards: 3, step: 1 };
        crash_everywhere(
            crash,
            |_, _| (),
            main,
            |world, shared: &Shared, (_, place)| {
                check_restarts(world, &shared.facts, 3, place);
            },
        );
    }
}

/// Files of two shards, one of deletions, and a log: row 1 of each partition was deleted, row 2
/// stays, both are in files only; row 3 is in the log only.
fn prepare_two_shards(world: &World) {
    run_shards(world, 2, |rt, barrier| async move {
        let opened = open_with(&rt, SyncMode::Batch, manual_schema(), &barrier).await;
        let store = opened.unwrap();
        for pk in mine(&rt) {
            write(&store, &insert(pk, 1, "gone", 100)).await.unwrap();
            write(&store, &insert(pk, 2, "stays", 100)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for pk in mine(&rt) {
            write(&store, &delete_row(pk, 1, 200)).await.unwrap();
        }
        store.drain().await.unwrap();
        store.stop().await;
    });
    assert!(!world.disk("n1").list().iter().any(|f| f.contains("commitlog")), "drained");
    run_shards(world, 2, |rt, barrier| async move {
        let opened = open_with(&rt, SyncMode::Batch, manual_schema(), &barrier).await;
        let store = opened.unwrap();
        for pk in mine(&rt) {
            write(&store, &insert(pk, 3, "logged", 100)).await.unwrap();
        }
    });
}

fn expected(pk: i32) -> Rows {
    Rows::from([((pk, 2), "stays".to_owned()), ((pk, 3), "logged".to_owned())])
}

/// The files of two shards span the slices of three: each shard compacts its part out of them and
/// releases it, the last removes them. A deletion that was purged with its part must not be missed
/// by a file that is still there.
#[test]
fn a_crash_at_every_io_of_a_restart_with_more_shards_loses_nothing_and_brings_nothing_back() {
    let all: Rows = (0..KEYS).flat_map(expected).collect();
    // Two thousand starts are enough: other calls for other kinds.
    for (kind, step) in ALL_KINDS.into_iter().zip([1, 2, 3]) {
        let main = move |rt: Rt, opened: Barrier, barrier: Barrier| async move {
            barrier.arm(&rt).await;
            let store = open_with(&rt, SyncMode::Batch, manual_schema(), &opened).await;
            let Some(store) = store else { return };
            // The background flush of what was replayed, and the release of the log. Then one shard
            // after another, so that most crashes find some with their outputs and others without.
            let turn = u64::from((rt.shard().0 + 1) % 3) + 1;
            rt.sleep(Duration::from_millis(turn * 30)).await;
            if store.compactor().compact_major(TABLE).await.is_ok() {
                rt.sleep(Duration::from_millis(20)).await;
            }
        };
        let crash = Crash { name: "more shards", kind, shards: 3, step };
        let prepare = |world: &World, _: &Barrier| prepare_two_shards(world);
        crash_everywhere(crash, prepare, main, |world, _, (n, place)| {
            for shards in [3, [2, 1][(n % 2) as usize]] {
                let place = format!("{place}, then {shards} shards");
                let found = rows_after_restart(world, shards, &manual_schema(), &place);
                assert_eq!(found, all, "{place}");
            }
        });
    }
}

/// Truncation of files that span slices: a slice whose truncation was acknowledged is gone for
/// ever, of another one all data stays or none.
#[test]
fn a_crash_at_every_io_of_a_truncation_after_a_change_of_shards_cuts_no_slice() {
    #[derive(Clone, Default)]
    struct State {
        opened: Barrier,
        truncated: Arc<Mutex<Vec<u16>>>,
    }
    for kind in ALL_KINDS {
        let main = move |rt: Rt, state: State, barrier: Barrier| async move {
            let store = open_with(&rt, SyncMode::Batch, purging_schema(), &state.opened).await;
            let store = store.unwrap();
            barrier.arm(&rt).await;
            if store.lifecycle().truncate(TABLE, TimestampMicros(5_000_000)).await.is_ok() {
                state.truncated.lock().unwrap().push(rt.shard().0);
                rt.sleep(Duration::from_secs(3)).await;
            }
        };
        let crash = Crash { name: "truncation", kind, shards: 3, step: 1 };
        let prepare = |world: &World, _: &State| prepare_two_shards(world);
        crash_everywhere(crash, prepare, main, |world, state: &State, (_, place)| {
            let truncated = state.truncated.lock().unwrap().clone();
            for (round, shards) in [3, 2, 3].into_iter().enumerate() {
                let place = format!("{place}, restart {round} with {shards} shards");
                let found = rows_after_restart(world, shards, &purging_schema(), &place);
                for slice in 0..3 {
                    let keys = || (0..KEYS).filter(move |pk| owner(*pk, 3).0 == slice);
                    let there: Rows = found
                        .iter()
                        .filter(|((pk, _), _)| keys().any(|k| k == *pk))
                        .map(|(k, v)| (*k, v.clone()))
                        .collect();
                    let whole: Rows = keys().flat_map(expected).collect();
                    let fits = there.is_empty() || (!truncated.contains(&slice) && there == whole);
                    assert!(fits, "{place}, slice {slice} of {truncated:?}: {there:?}");
                }
            }
        });
    }
}
