//! Shared parts of the crash tests: one loop that crashes a node at each of its file calls, facts
//! about acknowledged writes, and restarts that check all shards.

use rt::sim::CrashKind;

use crate::tests::*;

/// Values by (pk, ck).
type ValuesByKey = BTreeMap<(i32, i32), Vec<String>>;

/// Rows of all shards: (pk, ck) to value.
pub(crate) type Rows = BTreeMap<(i32, i32), String>;

/// Facts that outlive the node.
#[derive(Clone, Default)]
pub(crate) struct Facts {
    /// (pk, ck) to the value acknowledged last.
    acknowledged: Arc<Mutex<Rows>>,
    /// Values whose write was begun and not acknowledged: may be there or not.
    begun: Arc<Mutex<ValuesByKey>>,
}

impl Facts {
    /// Writes a row; `Err` when that was not acknowledged.
    pub(crate) async fn put(
        &self,
        store: &Store,
        (pk, ck): (i32, i32),
        value: &str,
        timestamp: i64,
    ) -> Result<(), StoreError> {
        self.begun.lock().unwrap().entry((pk, ck)).or_default().push(value.to_owned());
        write(store, &insert(pk, ck, value, timestamp)).await?;
        self.acknowledged.lock().unwrap().insert((pk, ck), value.to_owned());
        Ok(())
    }

    pub(crate) fn check_rows(&self, found: &Rows, place: &str) {
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
        for (place_of, value) in found {
            let sent = begun.get(place_of).is_some_and(|b| b.contains(value));
            assert!(sent, "{place}: {place_of:?} = {value} was never written");
        }
    }
}

pub(crate) fn rows_of(found: &[Found]) -> Rows {
    let row = |(pk, ck, _, v): &Found| Some(((*pk, (*ck)?), v.clone().unwrap_or_default()));
    found.iter().filter_map(row).collect()
}

/// Where shards of a node, and the test, wait for each other.
#[derive(Clone, Default)]
pub(crate) struct Barrier {
    arrived: Arc<Mutex<u16>>,
    open: Arc<Mutex<bool>>,
}

impl Barrier {
    /// Waits until every shard of the node is here.
    pub(crate) async fn wait(&self, rt: &Rt) {
        *self.arrived.lock().unwrap() += 1;
        while *self.arrived.lock().unwrap() < rt.shard_count() {
            rt.sleep(Duration::from_micros(100)).await;
        }
    }

    /// Waits until every shard is here and the test has set its crash: from now on calls count.
    pub(crate) async fn arm(&self, rt: &Rt) {
        *self.arrived.lock().unwrap() += 1;
        while !*self.open.lock().unwrap() {
            rt.sleep(Duration::from_micros(100)).await;
        }
    }

    fn is_full(&self, shards: u16) -> bool {
        *self.arrived.lock().unwrap() >= shards
    }
}

/// A node that is crashed.
#[derive(Clone, Copy)]
pub(crate) struct Crash {
    pub(crate) name: &'static str,
    pub(crate) kind: CrashKind,
    pub(crate) shards: u16,
    /// Calls between two crashes, 1 for every call.
    pub(crate) step: u64,
}

/// Runs `main` with a crash at the n-th file call after its [`Barrier::arm`], for every n until it
/// completes; then it is crashed at its end. `prepare` runs before, `check` after each crash with n
/// and the words for a failure.
pub(crate) fn crash_everywhere<T, F>(
    crash: Crash,
    prepare: impl Fn(&World, &T),
    main: impl Fn(Rt, T, Barrier) -> F + Send + Sync + Clone + 'static,
    check: impl Fn(&World, &T, (u64, &str)),
) where
    T: Default + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + 'static,
{
    let Crash { name, kind, shards, step } = crash;
    let mut n = 1;
    loop {
        let place = format!("{name}, {shards} shards, {kind:?} at IO {n}");
        let world = world(1_000 + n);
        let facts = T::default();
        prepare(&world, &facts);
        let (armed, through) = (Barrier::default(), Barrier::default());
        let node = {
            let (facts, armed, through) = (facts.clone(), armed.clone(), through.clone());
            let main = main.clone();
            start(&world, shards, move |rt| {
                let (facts, armed, through) = (facts.clone(), armed.clone(), through.clone());
                let work = main(rt.clone(), facts, armed);
                async move {
                    work.await;
                    // Stays alive, so that the crash at the end finds it.
                    through.arm(&rt).await;
                }
            })
        };
        let limit = Duration::from_secs(600);
        let stuck = |stuck| panic!("{place}: {stuck:?}");
        world.run_until(|| armed.is_full(shards), limit).unwrap_or_else(stuck);
        world.disk("n1").crash_at_nth_io(n, kind);
        *armed.open.lock().unwrap() = true;
        let ended = || through.is_full(shards) || !world.is_alive(&node);
        world.run_until(ended, limit).unwrap_or_else(stuck);
        let came_through = through.is_full(shards);
        world.disk("n1").clear_faults();
        match kind {
            CrashKind::Kill => world.kill(&node),
            CrashKind::PowerCut => world.power_cut(&node),
            CrashKind::PowerCutLosingAll => world.power_cut_losing_all(&node),
        }
        check(&world, &facts, (n, &place));
        if came_through {
            return;
        }
        n += step;
    }
}

/// Runs a node of several shards to the end of all of them.
pub(crate) fn run_shards<F: Future<Output = ()> + 'static>(
    world: &World,
    shards: u16,
    main: impl Fn(Rt, Barrier) -> F + Send + Sync + Clone + 'static,
) {
    let barrier = Barrier::default();
    let node = start(world, shards, move |rt| main(rt, barrier.clone()));
    world.run_until(|| !world.is_alive(&node), Duration::from_secs(3600)).unwrap();
}

/// Opens a table of every shard, reads all of it and stops: the rows of all shards.
pub(crate) fn rows_after_restart(
    world: &World,
    shards: u16,
    schema: &Arc<Schema>,
    place: &str,
) -> Rows {
    let all: Arc<Mutex<Rows>> = Arc::default();
    let (rows, schema, at) = (all.clone(), schema.clone(), place.to_owned());
    run_shards(world, shards, move |rt, barrier| {
        let (rows, schema, at) = (rows.clone(), schema.clone(), at.clone());
        async move {
            let options = StoreOptions { sync: commitlog::SyncMode::Batch, ..options(&rt) };
            let store = match Store::open(rt.clone(), options, schema).await {
                Ok((store, _)) => store,
                Err(error) => panic!("{at}, restart with {shards} shards: {error}"),
            };
            barrier.wait(&rt).await;
            for (key, value) in rows_of(&read_all(&store).await) {
                let before = rows.lock().unwrap().insert(key, value);
                assert_eq!(before, None, "{at}: {key:?} is there on two of {shards} shards");
            }
            store.stop().await;
        }
    });
    std::mem::take(&mut *all.lock().unwrap())
}

/// Restarts twice: the recovery itself must leave everything in place.
pub(crate) fn check_restarts(world: &World, facts: &Facts, shards: u16, place: &str) {
    for round in 0..2 {
        let place = format!("{place}, restart {round}");
        facts.check_rows(&rows_after_restart(world, shards, &schema(), &place), &place);
    }
}
