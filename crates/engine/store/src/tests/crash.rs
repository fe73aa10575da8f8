//! A crash at every IO, then all acknowledged data is there.

use rt::sim::CrashKind;

use commitlog::SyncMode;

use super::*;

/// Facts that outlive the node.
/// Values by (pk, ck).
type ValuesByKey = BTreeMap<(i32, i32), Vec<String>>;

#[derive(Clone, Default)]
pub(crate) struct Facts {
    /// (pk, ck) to the value acknowledged last.
    acknowledged: Arc<Mutex<BTreeMap<(i32, i32), String>>>,
    /// Values whose write was begun and not acknowledged: may be there or not.
    begun: Arc<Mutex<ValuesByKey>>,
    finished: Arc<Mutex<bool>>,
}

impl Facts {
    pub(crate) async fn put(&self, store: &Store, pk: i32, ck: i32, value: &str, timestamp: i64) {
        self.begun.lock().unwrap().entry((pk, ck)).or_default().push(value.to_owned());
        if write(store, &insert(pk, ck, value, timestamp)).await.is_ok() {
            self.acknowledged.lock().unwrap().insert((pk, ck), value.to_owned());
        }
    }

    pub(crate) async fn check(&self, store: &Store, place: &str) {
        let found = read_all(store).await;
        let found: BTreeMap<(i32, i32), String> = found
            .into_iter()
            .filter_map(|(pk, ck, _, v)| Some(((pk, ck?), v.unwrap_or_default())))
            .collect();
        let acknowledged = self.acknowledged.lock().unwrap().clone();
        let begun = self.begun.lock().unwrap().clone();
        for (place_of, value) in &acknowledged {
            let got = found.get(place_of);
            // A later write that was never acknowledged may have won.
            let later: &[String] = begun.get(place_of).map_or(&[], |b| {
                let at = b.iter().position(|v| v == value).unwrap_or(0);
                &b[at..]
            });
            assert!(
                got.is_some_and(|g| later.contains(g)),
                "{place}: acknowledged {place_of:?} = {value}, found {got:?}"
            );
        }
        for (place_of, value) in &found {
            let sent = begun.get(place_of).is_some_and(|b| b.contains(value));
            assert!(sent, "{place}: {place_of:?} = {value} was never written");
        }
    }
}

/// Runs `work` with a crash at the n-th IO for every n until it comes through, restarting and
/// checking after each crash.
pub(crate) fn crash_at_every_io<F: Future<Output = ()> + 'static>(
    name: &str,
    kind: CrashKind,
    sync: SyncMode,
    step: u64,
    prepare: impl Fn(Rt, Facts, StoreOptions) -> F + Send + Sync + Clone + 'static,
) {
    let mut n = 1;
    loop {
        let place = format!("{name}, {kind:?} at IO {n}");
        let world = world(1_000 + n);
        let facts = Facts::default();
        let node = {
            let (facts, prepare) = (facts.clone(), prepare.clone());
            start(&world, 1, move |rt| {
                let (facts, prepare) = (facts.clone(), prepare.clone());
                async move {
                    let options = StoreOptions { sync, ..options(&rt) };
                    prepare(rt, facts.clone(), options).await;
                    *facts.finished.lock().unwrap() = true;
                }
            })
        };
        world.disk("n1").crash_at_nth_io(n, kind);
        let through = || *facts.finished.lock().unwrap();
        world
            .run_until(|| through() || !world.is_alive(&node), Duration::from_secs(600))
            .unwrap_or_else(|stuck| panic!("{place}: {stuck:?}"));
        let came_through = through();
        world.disk("n1").clear_faults();
        if came_through {
            match kind {
                CrashKind::Kill => world.kill(&node),
                CrashKind::PowerCut => world.power_cut(&node),
                CrashKind::PowerCutLosingAll => world.power_cut_losing_all(&node),
            }
        }
        // Twice: the recovery itself must leave everything in place.
        for round in 0..2 {
            let (facts, place) = (facts.clone(), format!("{place}, restart {round}"));
            run_in(&world, move |rt| {
                let (facts, place) = (facts.clone(), place.clone());
                async move {
                    let options = StoreOptions { sync, ..options(&rt) };
                    let opened = Store::open(rt.clone(), options, schema()).await;
                    let store = match opened {
                        Ok((store, _)) => store,
                        Err(error) => panic!("{place}: {error}"),
                    };
                    facts.check(&store, &place).await;
                    store.stop().await;
                }
            });
        }
        if came_through {
            return;
        }
        n += step;
    }
}

async fn write_some(rt: Rt, facts: Facts, options: StoreOptions) {
    let Ok((store, _)) = Store::open(rt.clone(), options, schema()).await else { return };
    for i in 0..30 {
        let value = format!("{i}-{}", "x".repeat(usize::try_from(i * 200).unwrap_or(0)));
        facts.put(&store, i % 3, i, &value, i64::from(i) + 1).await;
    }
}

#[test]
fn a_kill_at_every_io_of_writes_loses_nothing_acknowledged() {
    let sync = SyncMode::Periodic { period: Duration::from_millis(5) };
    crash_at_every_io("write", CrashKind::Kill, sync, 1, write_some);
}

#[test]
fn a_power_cut_at_every_io_of_batch_writes_loses_nothing_acknowledged() {
    crash_at_every_io("write", CrashKind::PowerCut, SyncMode::Batch, 1, write_some);
    crash_at_every_io("write", CrashKind::PowerCutLosingAll, SyncMode::Batch, 1, write_some);
}

#[test]
fn a_power_cut_at_every_io_of_group_writes_loses_nothing_acknowledged() {
    let sync = SyncMode::Group { window: Duration::from_millis(3) };
    crash_at_every_io("write", CrashKind::PowerCut, sync, 1, write_some);
}

async fn write_and_flush(rt: Rt, facts: Facts, options: StoreOptions) {
    let Ok((store, _)) = Store::open(rt.clone(), options, schema()).await else { return };
    for i in 0..6 {
        facts.put(&store, i % 3, i, &format!("{i}"), i64::from(i) + 1).await;
        if i % 3 == 2 && store.flush(None).await.is_err() {
            return;
        }
    }
}

#[test]
fn a_crash_at_every_io_of_a_flush_loses_nothing_acknowledged() {
    let sync = SyncMode::Periodic { period: Duration::from_millis(5) };
    crash_at_every_io("flush", CrashKind::Kill, sync, 1, write_and_flush);
    crash_at_every_io("flush", CrashKind::PowerCut, SyncMode::Batch, 1, write_and_flush);
    crash_at_every_io("flush", CrashKind::PowerCutLosingAll, SyncMode::Batch, 1, write_and_flush);
}

async fn write_and_compact(rt: Rt, facts: Facts, options: StoreOptions) {
    let Ok((store, _)) = Store::open(rt.clone(), options, schema()).await else { return };
    for i in 0..6 {
        facts.put(&store, i % 2, i, &format!("{i}"), i64::from(i) + 1).await;
        if i % 2 == 1 && store.flush(None).await.is_err() {
            return;
        }
    }
    if store.compact_major(TABLE).await.is_err() {
        return;
    }
    facts.put(&store, 1, 100, "behind", 100).await;
}

#[test]
fn a_crash_at_every_io_of_a_compaction_loses_nothing_acknowledged() {
    let sync = SyncMode::Periodic { period: Duration::from_millis(5) };
    crash_at_every_io("compaction", CrashKind::Kill, sync, 1, write_and_compact);
    crash_at_every_io("compaction", CrashKind::PowerCut, SyncMode::Batch, 1, write_and_compact);
    let kind = CrashKind::PowerCutLosingAll;
    crash_at_every_io("compaction", kind, SyncMode::Batch, 1, write_and_compact);
}

async fn write_and_snapshot(rt: Rt, facts: Facts, options: StoreOptions) {
    let Ok((store, _)) = Store::open(rt.clone(), options, schema()).await else { return };
    for i in 0..4 {
        facts.put(&store, i % 2, i, &format!("{i}"), i64::from(i) + 1).await;
    }
    if store.snapshot("one", None).await.is_err() {
        return;
    }
    facts.put(&store, 1, 100, "behind", 100).await;
}

#[test]
fn a_crash_at_every_io_of_a_snapshot_loses_nothing_acknowledged() {
    let sync = SyncMode::Periodic { period: Duration::from_millis(5) };
    crash_at_every_io("snapshot", CrashKind::Kill, sync, 1, write_and_snapshot);
    crash_at_every_io("snapshot", CrashKind::PowerCut, SyncMode::Batch, 1, write_and_snapshot);
}

/// A deleted row whose tombstone a compaction purges must not come back, whatever remains of the
/// inputs.
#[test]
fn a_crash_at_every_io_of_a_purging_compaction_brings_nothing_back() {
    for kind in [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll] {
        let mut n = 1;
        loop {
            let world = world(5_000 + n);
            let done: Arc<Mutex<(bool, bool)>> = Arc::default();
            let flags = done.clone();
            let node = start(&world, 1, move |rt| {
                let flags = flags.clone();
                async move {
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
                    flags.lock().unwrap().0 = true;
                    rt.sleep(Duration::from_millis(5)).await;
                    if store.compact_major(TABLE).await.is_ok() {
                        rt.sleep(Duration::from_millis(50)).await;
                        flags.lock().unwrap().1 = true;
                    }
                }
            });
            world.run_until(|| done.lock().unwrap().0, Duration::from_secs(60)).unwrap();
            world.disk("n1").crash_at_nth_io(n, kind);
            let through = || done.lock().unwrap().1;
            world
                .run_until(|| through() || !world.is_alive(&node), Duration::from_secs(600))
                .unwrap();
            world.disk("n1").clear_faults();
            if through() {
                world.kill(&node);
            }
            for round in 0..2 {
                run_in(&world, move |rt| async move {
                    let store = open_purging(&rt).await;
                    for pk in 0..3 {
                        let found = values(&read_partition(&store, pk).await);
                        let place = format!("{kind:?} at IO {n}, restart {round}");
                        assert_eq!(found, vec![(2, "stays".to_owned())], "{place}");
                    }
                    store.stop().await;
                });
            }
            if through() {
                break;
            }
            n += 1;
        }
    }
}

/// gc_grace_seconds = 0: tombstones go at the first compaction.
async fn open_purging(rt: &Rt) -> Store {
    let table = table(TableOptions { gc_grace_seconds: 0, ..TableOptions::default() });
    let options = StoreOptions { sync: SyncMode::Batch, ..options(rt) };
    Store::open(rt.clone(), options, schema_of(vec![table])).await.unwrap().0
}

/// A truncation that was acknowledged stays; one that was not may or may not have happened, but
/// never by half.
#[test]
fn a_crash_at_every_io_of_a_truncation_leaves_all_or_nothing() {
    for kind in [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll] {
        let mut n = 1;
        loop {
            let world = world(9_000 + n);
            // Prepared, truncation acknowledged, through.
            let done: Arc<Mutex<(bool, bool, bool)>> = Arc::default();
            let flags = done.clone();
            let node = start(&world, 1, move |rt| {
                let flags = flags.clone();
                async move {
                    let store = open_purging(&rt).await;
                    for pk in 0..3 {
                        write(&store, &insert(pk, 1, "v", 100)).await.unwrap();
                        if pk < 2 {
                            store.flush(None).await.unwrap();
                        }
                    }
                    flags.lock().unwrap().0 = true;
                    rt.sleep(Duration::from_millis(5)).await;
                    let at = TimestampMicros(5_000_000);
                    if store.truncate(TABLE, at).await.is_ok() {
                        flags.lock().unwrap().1 = true;
                        assert_eq!(read_all(&store).await, vec![]);
                        rt.sleep(Duration::from_secs(3)).await;
                        flags.lock().unwrap().2 = true;
                    }
                }
            });
            world.run_until(|| done.lock().unwrap().0, Duration::from_secs(60)).unwrap();
            world.disk("n1").crash_at_nth_io(n, kind);
            let through = || done.lock().unwrap().2;
            world
                .run_until(|| through() || !world.is_alive(&node), Duration::from_secs(600))
                .unwrap();
            world.disk("n1").clear_faults();
            if through() {
                world.kill(&node);
            }
            let acknowledged = done.lock().unwrap().1;
            for round in 0..3 {
                run_in(&world, move |rt| async move {
                    let store = open_purging(&rt).await;
                    let found = read_all(&store).await.len();
                    let place = format!("{kind:?} at IO {n}, restart {round}: {found} rows");
                    assert!(found == 0 || (!acknowledged && found == 3), "{place}");
                    rt.sleep(Duration::from_secs(2)).await;
                    store.stop().await;
                });
            }
            if through() {
                break;
            }
            n += 1;
        }
    }
}

/// A restart with files and a log to replay, crashed at every IO.
#[test]
fn a_crash_at_every_io_of_a_restart_loses_nothing_acknowledged() {
    for kind in [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll] {
        let mut n = 1;
        loop {
            let place = format!("restart, {kind:?} at IO {n}");
            let world = world(20_000 + n);
            let facts = Facts::default();
            let first = facts.clone();
            run_in(&world, move |rt| {
                let facts = first.clone();
                async move {
                    let options = StoreOptions { sync: SyncMode::Batch, ..options(&rt) };
                    let opened = Store::open(rt.clone(), options, schema()).await;
                    let store = opened.unwrap().0;
                    for i in 0..6 {
                        facts.put(&store, i % 2, i, &format!("{i}"), i64::from(i) + 1).await;
                        if i == 1 || i == 3 {
                            store.flush(None).await.unwrap();
                        }
                    }
                }
            });
            let through: Arc<Mutex<bool>> = Arc::default();
            let flag = through.clone();
            let node = start(&world, 1, move |rt| {
                let flag = flag.clone();
                async move {
                    let options = StoreOptions { sync: SyncMode::Batch, ..options(&rt) };
                    if let Ok((store, _)) = Store::open(rt.clone(), options, schema()).await {
                        // The background flush of what was replayed, and the release of the log.
                        rt.sleep(Duration::from_millis(100)).await;
                        store.stop().await;
                    }
                    *flag.lock().unwrap() = true;
                }
            });
            world.disk("n1").crash_at_nth_io(n, kind);
            let done = || *through.lock().unwrap();
            world
                .run_until(|| done() || !world.is_alive(&node), Duration::from_secs(600))
                .unwrap_or_else(|stuck| panic!("{place}: {stuck:?}"));
            world.disk("n1").clear_faults();
            for round in 0..2 {
                let (facts, place) = (facts.clone(), format!("{place}, start {round}"));
                run_in(&world, move |rt| {
                    let (facts, place) = (facts.clone(), place.clone());
                    async move {
                        let store = open(&rt).await;
                        facts.check(&store, &place).await;
                        store.stop().await;
                    }
                });
            }
            if done() {
                break;
            }
            n += 1;
        }
    }
}
