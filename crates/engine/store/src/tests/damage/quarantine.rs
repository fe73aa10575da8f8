//! Damaged files: found, kept for their good parts, never answered without, released when other files
//! replace them.

use rt::sim::CrashKind;
use rt::{Buf, OpenOptions};
use sstable::Component;
use stdx::IoErrorKind;

use crate::files::damage_marks::DamageEvent;
use crate::tables::retry_backoff::Failures;
use crate::tests::compact::incremental::noise;
use crate::tests::everywhere::*;
use crate::tests::files::failed_directories::run_failing;
use crate::tests::*;
use crate::{OwnedRanges, ReadScope, StoreFailure};

const MANY: i32 = 60;

fn value(pk: i32) -> String {
    noise(pk, 1_000)
}

/// One file of several blocks.
pub(crate) async fn fill(rt: &Rt) {
    let store = open(rt).await;
    for pk in 0..MANY {
        write(&store, &insert(pk, 1, &value(pk), 1)).await.unwrap();
    }
    store.drain().await.unwrap();
    store.stop().await;
}

pub(crate) async fn path(store: &Store, component: Component) -> String {
    let table = store.rooms.tables.table(TABLE).unwrap();
    let view = table.view();
    view.files[0].reader.meta().file(component).to_string()
}

pub(crate) async fn damage(rt: &Rt, path: &str) {
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = rt.fs().open(path, options).await.unwrap();
    let at = file.len().await.unwrap() / 2;
    let byte = !file.read_exact_at(at, 1).await.unwrap().as_slice()[0];
    file.write_at(Buf::from(vec![byte]), at).await.1.unwrap();
    file.sync_data().await.unwrap();
}

/// A partition as a client gets it.
async fn get(store: &Store, pk: i32) -> Result<Vec<Found>, StoreError> {
    let mut sink = Collect::default();
    store.read(&read_of(Partitions::Key(key(pk))), &mut sink).await.map(|_| sink.rows)
}

/// The partitions that cannot be read; all others have their values.
pub(crate) async fn unreadable(store: &Store) -> Vec<i32> {
    let mut bad = Vec::new();
    for pk in 0..MANY {
        match get(store, pk).await {
            Ok(found) => assert_eq!(values(&found), [(1, value(pk))], "{pk}"),
            Err(StoreError::Corrupt { .. }) => bad.push(pk),
            Err(other) => panic!("{pk}: {other}"),
        }
    }
    bad
}

/// Events of a store from now on.
fn events(store: &Store) -> std::rc::Rc<std::cell::RefCell<Vec<DamageEvent>>> {
    let all = std::rc::Rc::<std::cell::RefCell<Vec<DamageEvent>>>::default();
    let seen = all.clone();
    store.files().on_damage(move |event| seen.borrow_mut().push(event));
    all
}

pub(crate) async fn until(rt: &Rt, what: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if what() {
            return;
        }
        rt.sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come");
}

pub(crate) fn is_salvaged(store: &Store) -> bool {
    store.verifier().damaged_files().iter().any(|file| file.is_salvaged())
}

pub(crate) fn later(rt: &Rt) -> i64 {
    rt.wall().seconds().0 + 100
}

/// INV-quarantine-1, INV-quarantine-2.
#[test]
fn a_damaged_file_answers_with_its_good_parts_until_a_repair_has_its_place() {
    run(101, |rt| async move {
        fill(&rt).await;
        let store = open(&rt).await;
        let seen = events(&store);
        let data = path(&store, Component::Data).await;
        damage(&rt, &data).await;
        let bad = unreadable(&store).await;
        assert!(!bad.is_empty() && bad.len() < MANY as usize, "{bad:?}");
        until(&rt, || is_salvaged(&store)).await;
        let found = store.verifier().damaged_files();
        assert_eq!((found.len(), &found[0].path, found[0].table.as_str()), (1, &data, "t"));
        assert!(found[0].reason.contains(&data), "{found:?}");
        assert!(matches!(
            seen.borrow().as_slice(),
            [DamageEvent::Found { .. }, DamageEvent::Salvaged { losses: 1.., .. }]
        ));
        // In no compaction, whatever merges the copies; nor is anything answered without it.
        for pk in bad.iter().take(1) {
            write(&store, &insert(1_000 + pk, 1, "other", 1)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(store.table_stats(TABLE).sstables, 2);
        assert_eq!(unreadable(&store).await, bad);
        // Repairs read what is left.
        let mut command = read_of(Partitions::Range(KeyRange::all()));
        command.wants_static = true;
        let (limits, purge) =
            (data::replica_page::PageLimits::default(), DeletionSeconds(i64::MIN));
        let page = |scope| store.reader().read_for_repair(&command, limits, purge, scope);
        assert!(page(ReadScope::All).await.is_err());
        assert!(page(ReadScope::Repair).await.is_ok());
        let all = OwnedRanges::new(vec![(Token::MIN, Token::MAX)]);
        let refused =
            store.repair().begin_repair(TABLE, Uuid::from_u128(3), &all).await.unwrap_err();
        assert!(refused.to_string().contains("nodetool repair -full"), "{refused}");
        store.drain().await.unwrap();
        store.stop().await;

        let store = open(&rt).await;
        assert!(is_salvaged(&store), "the mark is there after a restart");
        assert_eq!(unreadable(&store).await, bad);
        for pk in &bad {
            write(&store, &insert(*pk, 1, &value(*pk), 1)).await.unwrap();
        }
        // A repair that began too early, and one of a part.
        store.verifier().release_repaired(TABLE, |_, _| Some(rt.wall().seconds().0 - 1_000));
        store.verifier().release_repaired(TABLE, |_, _| None);
        rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(unreadable(&store).await, bad);
        let seen = events(&store);
        store.verifier().release_repaired(TABLE, |_, _| Some(later(&rt)));
        until(&rt, || store.verifier().damaged_files().is_empty()).await;
        assert_eq!(unreadable(&store).await, [0; 0]);
        until(&rt, || !seen.borrow().is_empty()).await;
        assert_eq!(*seen.borrow(), [DamageEvent::Released { path: data }]);
        store.stop().await;
        let store = open(&rt).await;
        assert_eq!(unreadable(&store).await, [0; 0]);
        assert!(store.verifier().damaged_files().is_empty());
        store.stop().await;
    });
}

#[test]
fn a_file_of_which_nothing_is_lost_is_made_anew_by_itself_and_a_scrub_lets_any_go() {
    for component in [Component::Filter, Component::Data] {
        run_in(&world(102), move |rt| async move {
            fill(&rt).await;
            let store = open(&rt).await;
            let damaged = path(&store, component).await;
            damage(&rt, &damaged).await;
            let seen = events(&store);
            let options = crate::VerifyOptions::default();
            assert_eq!(store.verifier().verify(TABLE, &options).await.unwrap().len(), 1);
            let count = || seen.borrow().len();
            if component == Component::Data {
                until(&rt, || is_salvaged(&store)).await;
                let bad = unreadable(&store).await;
                let done = store.compactor().scrub(TABLE, None, Default::default()).await.unwrap();
                assert!(done.iter().all(|(_, result)| result.is_ok()));
                let left = MANY as usize - bad.len();
                assert_eq!(read_all(&store).await.len(), left);
            } else {
                until(&rt, || count() == 3).await;
                assert_eq!(unreadable(&store).await, [0; 0]);
            }
            assert!(store.verifier().damaged_files().is_empty());
            assert_eq!(store.verifier().verify(TABLE, &options).await.unwrap(), []);
            store.stop().await;
        });
    }
}

/// A store that starts with files that cannot be opened.
async fn open_anyway(rt: &Rt, version: crate::Version) -> Result<Store, StoreError> {
    let mut options = options(rt);
    options.starts_with_damaged_files = true;
    options.sstable_version = version;
    Store::open(rt.clone(), options, schema()).await.map(|(store, _)| store)
}

/// Files that a start cannot open, of every version, by each component. With the policy for it the
/// start continues, rebuilds the components without loss, and never answers without the lost data.
#[test]
fn files_that_cannot_be_opened_are_quarantined_at_the_start() {
    let all = [Token::MIN, Token(-(1 << 62)), Token(0), Token(1 << 62), Token::MAX];
    let (mut mended, mut kept) = (0, 0);
    for version in sstable::WriterOptions::VERSIONS {
        for component in Component::ALL {
            for is_lost in [false, true] {
                // It is written again: `file_sets`.
                if component == Component::Toc && is_lost {
                    continue;
                }
                let outcome = Arc::new(Mutex::new(None));
                let said = outcome.clone();
                let world = world(106);
                run_in(&world, move |rt| {
                    let said = said.clone();
                    async move {
                        let store = open_anyway(&rt, version).await.unwrap();
                        for pk in 0..MANY {
                            write(&store, &insert(pk, 1, &value(pk), 1)).await.unwrap();
                        }
                        store.drain().await.unwrap();
                        let path = path(&store, component).await;
                        store.stop().await;
                        let length = rt.fs().read(&path, 1 << 24).await.map(|bytes| bytes.len());
                        // There is none in this version, or there are no wide partitions.
                        if length.is_err() || (length == Ok(0) && !is_lost) {
                            return;
                        }
                        match is_lost {
                            true => rt.fs().remove_file(&path).await.unwrap(),
                            false => damage(&rt, &path).await,
                        }
                        let usual = options(&rt);
                        let opened = Store::open(rt.clone(), usual, schema()).await;
                        let store = open_anyway(&rt, version).await.unwrap();
                        let seen = events(&store);
                        let what = format!("{version} {component} {is_lost}");
                        let opened = match opened {
                            // Damage of components that are read in blocks is found by reads.
                            Ok((usual, _)) => {
                                usual.stop().await;
                                store.stop().await;
                                assert!(
                                    component.is_large() && !is_lost
                                        || version < crate::Version::Nb
                                            && component == Component::Statistics,
                                    "{what}"
                                );
                                return;
                            }
                            Err(error) => error.to_string(),
                        };
                        let found = store.verifier().damaged_files();
                        assert_eq!(found.len(), 1, "{what}");
                        assert!(
                            opened.contains(found[0].path.split("-Data").next().unwrap()),
                            "{what}"
                        );
                        // Before anything was made of it: no part of the ring is answered for.
                        let ranges = all.windows(2).map(|pair| KeyRange {
                            start: data::command::RingBound::Token { token: pair[0], after: false },
                            end: data::command::RingBound::Token { token: pair[1], after: true },
                        });
                        for range in ranges {
                            let mut sink = Collect::default();
                            let command = read_of(Partitions::Range(range));
                            let read = store.read(&command, &mut sink).await;
                            assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{what}");
                        }
                        let outcome = || {
                            let seen = seen.borrow();
                            seen.iter().find_map(|event| match event {
                                DamageEvent::Salvaged { losses, .. } => Some(*losses),
                                _ => None,
                            })
                        };
                        until(&rt, || outcome().is_some()).await;
                        let losses = outcome().unwrap();
                        let lost = unreadable(&store).await;
                        match losses {
                            0 => assert!(
                                lost.is_empty() && store.verifier().damaged_files().is_empty(),
                                "{what}"
                            ),
                            _ => assert_eq!(lost.len(), MANY as usize, "{what}"),
                        }
                        store.stop().await;
                        let store = open_anyway(&rt, version).await.unwrap();
                        assert_eq!(unreadable(&store).await, lost, "{what}, restarted");
                        assert_eq!(
                            store.verifier().damaged_files().len(),
                            usize::from(losses > 0),
                            "{what}"
                        );
                        if losses > 0 {
                            for pk in &lost {
                                write(&store, &insert(*pk, 1, &value(*pk), 1)).await.unwrap();
                            }
                            store.verifier().release_repaired(TABLE, |_, _| Some(later(&rt)));
                            until(&rt, || store.verifier().damaged_files().is_empty()).await;
                        }
                        assert_eq!(unreadable(&store).await, [0; 0], "{what}");
                        assert_eq!(read_all(&store).await.len(), MANY as usize, "{what}");
                        store.stop().await;
                        // Now it opens for everybody.
                        let store = open(&rt).await;
                        assert_eq!(unreadable(&store).await, [0; 0], "{what}, at last");
                        store.stop().await;
                        *said.lock().unwrap() = Some(losses);
                    }
                });
                match *outcome.lock().unwrap() {
                    Some(0) => mended += 1,
                    Some(_) => kept += 1,
                    None => {}
                }
            }
        }
    }
    assert!(mended > 20 && kept > 10, "{mended} mended, {kept} kept");
}

/// A world with one file of that version; whether it cannot be opened depends on the disk alone.
fn world_with_a_file(seed: u64, version: crate::Version) -> World {
    let world = world(seed);
    run_in(&world, move |rt| async move {
        let store = open_anyway(&rt, version).await.unwrap();
        for pk in 0..MANY {
            write(&store, &insert(pk, 1, &value(pk), 1)).await.unwrap();
        }
        store.drain().await.unwrap();
        store.stop().await;
    });
    world
}

/// Starts while calls of the disk fail; whether it started, and if so whether a file was damaged; whether a
/// failure is left that has not happened.
fn start_failing(world: &World, version: crate::Version) -> (Result<bool, StoreError>, bool) {
    let (disk, opened) = (world.disk("n1"), Arc::new(Mutex::new(None)));
    let said = opened.clone();
    let node = start(world, 1, move |rt| {
        let said = said.clone();
        async move {
            let store = match open_anyway(&rt, version).await {
                Ok(store) => store,
                Err(error) => {
                    *said.lock().unwrap() = Some(Err(error));
                    return;
                }
            };
            *said.lock().unwrap() = Some(Ok(!store.verifier().damaged_files().is_empty()));
            rt.sleep(Duration::from_secs(2)).await;
            until(&rt, || store.verifier().damaged_files().iter().all(|file| file.is_salvaged()))
                .await;
            // All of it, or errors.
            unreadable(&store).await;
            store.stop().await;
        }
    });
    let long = Duration::from_secs(3_600);
    world.run_until(|| opened.lock().unwrap().is_some(), long).unwrap();
    let is_left = disk.pending_failures() > 0;
    // Copies are tried meanwhile.
    world.run_for(Duration::from_secs(1));
    disk.clear_faults();
    world.run_until(|| !world.is_alive(&node), long).unwrap();
    run_in(world, |rt| async move {
        let store = open(&rt).await;
        assert_eq!(unreadable(&store).await, [0; 0], "all is given back again");
        store.stop().await;
    });
    (opened.lock().unwrap().take().unwrap(), is_left)
}

/// Returns true if an IO call on a component of a file was the cause.
fn is_of_a_component(error: &StoreError) -> bool {
    match error {
        StoreError::Io(error) => error.path.contains("-big-") || error.path.contains("-bti-"),
        _ => true,
    }
}

/// The device fails once at a start, in each of its calls. With the policy for it the start
/// continues without the component, and its file is treated as damaged.
#[test]
fn a_start_goes_on_when_a_component_cannot_be_read() {
    for version in [crate::Version::Nb, crate::Version::Da] {
        let mut damaged = 0;
        for n in 1.. {
            let world = world_with_a_file(107, version);
            world.disk("n1").fail_nth(n, IoErrorKind::Device);
            let (started, is_left) = start_failing(&world, version);
            match started {
                Ok(is_damaged) => damaged += u64::from(is_damaged),
                Err(error) => assert!(!is_of_a_component(&error), "{version} {n}: {error}"),
            }
            if is_left {
                break;
            }
        }
        assert!(damaged > 10, "{version}: {damaged}");
    }
}

/// Calls fail repeatedly, also while the file is verified and copied.
#[test]
fn a_start_goes_on_when_many_components_cannot_be_read() {
    let mut damaged = 0;
    for seed in 0..40 {
        let version = sstable::WriterOptions::VERSIONS[seed as usize % 4];
        let world = world_with_a_file(200 + seed, version);
        world.disk("n1").set_failing_reads(Some((2 + seed % 5, IoErrorKind::Device)));
        match start_failing(&world, version).0 {
            Ok(is_damaged) => damaged += u64::from(is_damaged),
            Err(error) => assert!(!is_of_a_component(&error), "{version} {seed}: {error}"),
        }
    }
    assert!(damaged > 10, "{damaged}");
}

/// Like [`run`], for a day.
fn run_long<F: Future<Output = ()> + 'static>(
    seed: u64,
    main: impl Fn(Rt) -> F + Send + Sync + 'static,
) {
    let world = world(seed);
    let node = start(&world, 1, main);
    world.run_until(|| !world.is_alive(&node), Duration::from_secs(86_400)).unwrap();
}

/// A store that verifies its files within an hour.
async fn watching(rt: &Rt) -> Store {
    let mut options = options(rt);
    options.verification_bytes_per_second = 10_000;
    options.verification_interval = Duration::from_secs(7_200);
    Store::open(rt.clone(), options, schema()).await.unwrap().0
}

#[test]
fn cold_files_are_verified_slowly_in_turn_and_again_after_a_while() {
    // A start may write to another data directory than the one before.
    for seed in 103..113 {
        run_long(seed, watched);
    }
}

async fn watched(rt: Rt) {
    fill(&rt).await;
    let store = watching(&rt).await;
    rt.sleep(Duration::from_secs(3_000)).await;
    assert_eq!(store.verifier().verified_files(TABLE), []);
    let mut shown = None;
    for _ in 0..2_000 {
        shown = shown.or(store.files().slots().compactions().first().cloned());
        rt.sleep(Duration::from_secs(1)).await;
    }
    // More than 60 kB at 10 kB per second are visible to a check every second.
    let shown = shown.unwrap();
    assert_eq!((shown.kind, shown.reason.as_str()), ("Verify", "background verification"));
    let first = store.verifier().verified_files(TABLE);
    assert_eq!(first.len(), 1);
    store.stop().await;

    let store = watching(&rt).await;
    damage(&rt, &path(&store, Component::Data).await).await;
    rt.sleep(Duration::from_secs(4_000)).await;
    assert_eq!(store.verifier().verified_files(TABLE), first, "it was verified not long ago");
    assert!(store.verifier().damaged_files().is_empty());
    rt.sleep(Duration::from_secs(4_000)).await;
    assert!(is_salvaged(&store), "found though nobody has read it");
    store.stop().await;
}

/// Where a file of this name is, in any of the data directories.
async fn found(rt: &Rt, store: &Store, name: &str) -> Vec<String> {
    let table = store.rooms.tables.table(TABLE).unwrap().version().table.clone();
    let mut found = Vec::new();
    for directory in store.rooms.files.directories.directories_of(&table) {
        let path = format!("{directory}/{name}");
        if rt.fs().exists(&path).await.unwrap() {
            found.push(path);
        }
    }
    found
}

async fn is_whole(rt: &Rt, kind: &'static str, path: &str) -> bool {
    let bytes = rt.fs().read(path, 1 << 20).await.unwrap();
    codec::SmallForm { kind, version: 2 }.decode(&bytes).is_ok()
}

#[test]
fn damaged_times_of_verification_are_named_and_rebuilt() {
    for seed in 114..120 {
        run_long(seed, times_damaged);
    }
}

async fn times_damaged(rt: Rt) {
    fill(&rt).await;
    let store = watching(&rt).await;
    rt.sleep(Duration::from_secs(5_000)).await;
    let first = store.verifier().verified_files(TABLE);
    assert_eq!(first.len(), 1);
    let paths = found(&rt, &store, "helenus-verified.0").await;
    let [path] = paths.as_slice() else { panic!("{paths:?}") };
    store.stop().await;
    let mut bytes = rt.fs().read(path, 1 << 20).await.unwrap();
    assert!(bytes.starts_with(b"helenus-file verified 2\n"));
    bytes[30] ^= 1;
    rt.fs().write_atomic(path, bytes).await.unwrap();

    let store = watching(&rt).await;
    let told = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let of = told.clone();
    store.env().on_failure(move |failure| of.borrow_mut().push(failure));
    rt.sleep(Duration::from_secs(5_000)).await;
    let told = told.take();
    let [StoreFailure::Mark(what)] = told.as_slice() else { panic!("{told:?}") };
    assert!(what.starts_with(path) && what.ends_with("checksum mismatch"), "{what}");
    let again = store.verifier().verified_files(TABLE);
    assert!(again.len() == 1 && again[0].1 > first[0].1, "it was verified again: {again:?}");
    for path in found(&rt, &store, "helenus-verified.0").await {
        assert!(is_whole(&rt, "verified", &path).await, "{path}");
    }
    store.stop().await;
}

#[test]
fn damaged_marks_are_named_by_a_start_and_rebuilt() {
    // A start may write to another data directory than the one before.
    for seed in 115..125 {
        run(seed, marks_damaged);
    }
}

async fn marks_damaged(rt: Rt) {
    fill(&rt).await;
    let store = watching(&rt).await;
    let table = store.rooms.tables.table(TABLE).unwrap();
    let directory = store.rooms.files.directories.directory_of(&table.version().table);
    let generation = table.view().files[0].generation;
    drop(table);
    store.stop().await;
    let looked = format!("{directory}/helenus-looked.0");
    let mark = format!("{directory}/helenus-damaged-{}.0", generation.0);
    for path in [&looked, &mark] {
        rt.fs().write_atomic(path, b"helenus-file".to_vec()).await.unwrap();
    }
    for is_first in [true, false] {
        let opened = Store::open(rt.clone(), options(&rt), schema()).await.unwrap();
        let (store, mut report) = opened;
        report.damaged_marks.sort();
        let named: Vec<&str> =
            report.damaged_marks.iter().filter_map(|what| what.split(' ').next()).collect();
        // The mark is rewritten at once, the list when a file was scanned.
        let expect = if is_first { vec![mark.as_str(), &looked] } else { vec![&*looked] };
        assert_eq!(named, expect, "{:?}", report.damaged_marks);
        assert_eq!(store.verifier().damaged_files().len(), 1, "it stays in quarantine");
        let all = found(&rt, &store, mark.rsplit('/').next().unwrap()).await;
        assert_eq!(all, [mark.as_str()], "it is written where it was");
        store.stop().await;
    }
    assert!(is_whole(&rt, "damaged", &mark).await);
}

/// Whenever the stop happens, the tasks notice it: none waits out its round.
#[test]
fn a_store_stops_at_once_whatever_its_watch_does() {
    // Times of files are read at once; copies take some milliseconds.
    let waits = (0..300).step_by(5).chain((300..6_000).step_by(100));
    for wait in waits {
        run_in(&world(104), move |rt| async move {
            fill(&rt).await;
            let store = watching(&rt).await;
            let data = path(&store, Component::Data).await;
            damage(&rt, &data).await;
            store.rooms.env.suspect(&data);
            rt.sleep(Duration::from_micros(wait)).await;
            let began = rt.now();
            store.stop().await;
            let took = rt.now().since(began);
            assert!(took < Duration::from_secs(5), "{wait}: {took:?}");
        });
    }
}

/// Writes the lost data, as a repair does, and releases the damaged file.
async fn heal(rt: &Rt, store: &Store, bad: &[i32]) -> Result<(), StoreError> {
    for pk in bad {
        write(store, &insert(*pk, 1, &value(*pk), 1)).await?;
    }
    store.sync().await?;
    store.verifier().release_repaired(TABLE, |_, _| Some(later(rt)));
    Ok(())
}

#[test]
fn a_crash_at_every_io_of_it_leaves_answers_that_are_whole_or_errors() {
    let prepare = |world: &World, _: &()| {
        run_shards(world, 1, |rt, _| async move {
            fill(&rt).await;
            let store = open(&rt).await;
            damage(&rt, &path(&store, Component::Data).await).await;
            store.stop().await;
        });
    };
    let main = |rt: Rt, (): (), barrier: Barrier| async move {
        let mut options = options(&rt);
        options.sync = commitlog::SyncMode::Batch;
        let store = Store::open(rt.clone(), options, schema()).await.unwrap().0;
        barrier.arm(&rt).await;
        let mut bad = Vec::new();
        for pk in 0..MANY {
            match get(&store, pk).await {
                Err(StoreError::Corrupt { .. }) => bad.push(pk),
                Err(_) => return,
                Ok(_) => {}
            }
        }
        while !is_salvaged(&store) {
            rt.sleep(Duration::from_millis(10)).await;
        }
        if heal(&rt, &store, &bad).await.is_ok() {
            while !store.verifier().damaged_files().is_empty() {
                rt.sleep(Duration::from_millis(10)).await;
            }
        }
    };
    for kind in [CrashKind::Kill, CrashKind::PowerCutLosingAll] {
        let crash = Crash { name: "quarantine", kind, shards: 1, step: 2 };
        crash_everywhere(crash, prepare, main, |world, (), (n, place)| {
            let is_last = n;
            let place = place.to_owned();
            run_shards(world, 1, move |rt, _| {
                let place = place.clone();
                async move {
                    let store = open(&rt).await;
                    let bad = unreadable(&store).await;
                    // Every second time it is brought to its end.
                    if is_last % 4 == 1 && !bad.is_empty() {
                        until(&rt, || is_salvaged(&store)).await;
                        heal(&rt, &store, &bad).await.unwrap();
                        until(&rt, || store.verifier().damaged_files().is_empty()).await;
                        assert_eq!(unreadable(&store).await, [0; 0], "{place}");
                    }
                    store.stop().await;
                }
            });
        });
    }
}

/// A bug once tried it again every minute, and said so each time.
#[test]
fn a_copy_that_fails_is_tried_less_and_less_often_and_told_of_once() {
    let world = world(118);
    run_in(&world, |rt| async move { fill(&rt).await });
    let outputs_fail: fn(&rt::sim::DiskControl) =
        |disk| disk.set_failing_below(Some(("-Data.db", IoErrorKind::Device)));
    let all_is_well: fn(&rt::sim::DiskControl) = |disk| disk.clear_faults();
    run_failing(&world, &[outputs_fail, all_is_well], |rt, asked| async move {
        let store = open(&rt).await;
        let seen = events(&store);
        let data = path(&store, Component::Data).await;
        asked.fault(&rt).await;
        let (table, what) = (store.rooms.tables.table(TABLE).unwrap(), "met".to_owned());
        let file = table.view().files[0].clone();
        let error = StoreError::Corrupt { file: data.clone(), what };
        store.rooms.files.quarantine(&table, &file, &error).await.unwrap();
        let state = || store.verifier().damaged_files()[0].copy_failure.clone().unwrap_or_default();
        until(&rt, || !state().is_empty()).await;
        let first = "1 attempts to copy it failed, the next is in 1 minutes: ";
        assert!(state().starts_with(first) && state().contains("-Data.db failed"), "{}", state());
        rt.sleep(Duration::from_secs(3_600)).await;
        assert!(
            state().starts_with("6 attempts to copy it failed, the next is in "),
            "{}",
            state()
        );
        rt.sleep(Duration::from_secs(48 * 3_600)).await;
        // Never later than six hours.
        let attempts: u32 = state().split(' ').next().unwrap().parse().unwrap();
        assert!((15..20).contains(&attempts), "{}", state());
        // Each is of another file.
        let told = seen.borrow().iter().filter(|e| matches!(e, DamageEvent::Failed { .. })).count();
        assert_eq!(told, 1, "{:?}", seen.borrow());
        asked.fault(&rt).await;
        rt.sleep(Duration::from_secs(7 * 3_600)).await;
        // Nothing was lost: the copies have its place.
        assert_eq!(store.verifier().damaged_files(), []);
        assert_eq!(unreadable(&store).await, [0; 0]);
        store.stop().await;
    });
}

/// The same for read errors of the device during compactions.
#[test]
fn a_compaction_that_fails_is_tried_less_and_less_often() {
    let world = world(119);
    let reads_fail: fn(&rt::sim::DiskControl) =
        |disk| disk.set_failing_reads(Some((1, IoErrorKind::Device)));
    let all_is_well: fn(&rt::sim::DiskControl) = |disk| disk.clear_faults();
    run_failing(&world, &[reads_fail, all_is_well], |rt, asked| async move {
        let store = open(&rt).await;
        let failures = std::rc::Rc::<std::cell::Cell<u32>>::default();
        let count = failures.clone();
        store.env().on_failure(move |_| count.set(count.get() + 1));
        let table = store.rooms.tables.table(TABLE).unwrap();
        table.change_overrides(|overrides| overrides.automatic = Some(false));
        for ck in 0..4 {
            write(&store, &insert(1, ck, &value(ck), 1)).await.unwrap();
            store.flush(None).await.unwrap();
        }
        asked.fault(&rt).await;
        table.change_overrides(|overrides| overrides.automatic = None);
        rt.sleep(Duration::from_secs(10 * 3_600)).await;
        // After 1, 3, 7, 15, 31 and 63 minutes, then every hour.
        assert!((12..20).contains(&failures.get()), "{}", failures.get());
        asked.fault(&rt).await;
        rt.sleep(Duration::from_secs(2 * 3_600)).await;
        assert_eq!(store.table_stats(TABLE).sstables, 1);
        assert_eq!(table.failed_compactions.get(), Failures::default());
        store.stop().await;
    });
}
