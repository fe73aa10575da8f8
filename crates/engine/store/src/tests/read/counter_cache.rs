//! The counter cache: what it knows, and that a read would find the same.

use data::counter::{self, CounterId};
use rt::Group;

use crate::tests::*;
use crate::{CountsOf, OwnCount};

pub(crate) const OWN: CounterId = CounterId([7; 16]);
const OTHER: CounterId = CounterId([9; 16]);
const SECOND: ColumnId = ColumnId(4);

pub(crate) fn counter_schema() -> Arc<Schema> {
    let options = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    let mut table = table(options);
    for column in table.columns.iter_mut().skip(2) {
        column.ty = CqlType::Counter;
    }
    schema_of(vec![table])
}

async fn open_counters(rt: &Rt, bytes: u64) -> Store {
    let options = StoreOptions { counter_cache_bytes_max: Some(bytes), ..options(rt) };
    let store = Store::open(rt.clone(), options, counter_schema()).await.unwrap().0;
    store.counters().count_as(OWN);
    store
}

/// A counter: partition, clustering or the static row, column.
pub(crate) type Place = (i32, Option<i32>, ColumnId);

/// A cell of one counter.
fn cell_of(place: Place, cell: CellRef<'_>) -> Vec<u8> {
    let (pk, ck, column) = place;
    let row = packed(Liveness::NONE, DeletionTime::LIVE, &[(column, cell)]);
    encode(pk, |m| match ck.map(clustering) {
        Some(clustering) => m.rows([(clustering.as_slice(), RowRef::trusted(&row))].into_iter()),
        None => m.static_row(RowRef::trusted(&row)),
    })
}

pub(crate) fn count_of(
    place: Place,
    (id, clock, count): (CounterId, i64, i64),
    timestamp: i64,
) -> Vec<u8> {
    let context = counter::global(id, clock, count);
    cell_of(place, CellRef::live(TimestampMicros(timestamp), &context))
}

/// Timestamp and context of the one requested counter.
#[derive(Default)]
struct Context {
    place: Option<Place>,
    found: Option<(TimestampMicros, Vec<u8>)>,
}

impl Context {
    fn take(&mut self, row: RowRef<'_>) {
        let column = self.place.unwrap().2;
        if let Some(ColumnRef::Simple(cell)) = row.column(column)
            && !cell.is_tombstone()
        {
            self.found = Some((cell.timestamp, cell.value.to_vec()));
        }
    }
}

impl RowSink for Context {
    fn partition(&mut self, _: Token, _: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        if let (Some(row), Some((_, None, _))) = (static_row, self.place) {
            self.take(row);
        }
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        if let Some((_, Some(_), _)) = self.place {
            self.take(row);
        }
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// Returns a counter's context as a read finds it.
pub(crate) async fn context(store: &Store, place: Place) -> Option<(TimestampMicros, Vec<u8>)> {
    let (pk, ck, _) = place;
    let slices = slice(ck.unwrap_or(0), ck.unwrap_or(0) + 1);
    let command = ReadCommand { slices: slices.into(), ..read_of(Partitions::Key(key(pk))) };
    let mut sink = Context { place: Some(place), found: None };
    store.read(&command, &mut sink).await.unwrap();
    sink.found
}

fn cached(store: &Store, of: &CountsOf, (pk, ck, column): Place) -> Option<OwnCount> {
    let clustering = ck.map(clustering);
    store.counters().cached_count(of, (&key(pk), clustering.as_deref()), column)
}

fn look(store: &Store, place: Place) -> Option<OwnCount> {
    let of = store.counters().counts_of(TABLE, &key(place.0)).unwrap();
    cached(store, &of, place)
}

/// Plays the leader of an increment; true when it needed no read.
async fn lead(store: &Store, place: Place, by: i64, timestamp: i64, id: CounterId) -> bool {
    let of = store.counters().counts_of(TABLE, &key(place.0));
    let known = of.as_ref().and_then(|of| cached(store, of, place));
    let before = match known {
        Some(own) => Some((own.timestamp, counter::global(id, own.clock, own.count).to_vec())),
        None => context(store, place).await,
    };
    let value = before.as_ref().map_or(&[][..], |before| &before.1);
    let count = counter::led(value, id, &counter::update(by), timestamp);
    let of = of.filter(|of| store.counters().are_counts_current(of));
    let at = TimestampMicros(timestamp);
    let mutation = cell_of(place, CellRef::live(at, &count));
    store.apply(&MutationRef::open(&mutation).unwrap(), true).unwrap();
    if let (Some(of), Some(before)) = (of, before)
        && at >= before.0
    {
        let own = OwnCount::of(at, &count, id);
        let clustering = place.1.map(clustering);
        store.counters().keep_count(&of, (&key(place.0), clustering.as_deref()), place.2, own);
    }
    store.commit().await.unwrap();
    known.is_some()
}

#[test]
fn counters_are_read_twice_and_then_known_over_flushes_and_compactions() {
    run(800, |rt| async move {
        let store = open_counters(&rt, 1 << 20).await;
        for place in [(1, Some(1), VALUE), (1, None, STATIC), (1, Some(2), SECOND)] {
            let mut known = Vec::new();
            for step in 0..8 {
                known.push(lead(&store, place, 5, 100 + step, OWN).await);
                match step {
                    3 => store.flush(None).await.unwrap(),
                    5 => store.compactor().compact_major(TABLE).await.unwrap(),
                    // Another shard's count is no affair of this cache.
                    6 => write(&store, &count_of(place, (OTHER, 1, 3), 90)).await.unwrap(),
                    _ => {}
                }
            }
            assert_eq!(known, [false, false, true, true, true, true, true, true], "{place:?}");
            let (_, value) = context(&store, place).await.unwrap();
            assert_eq!(counter::total(&value), 43, "{place:?}");
        }
        let (hits, misses, entries) = store.rooms.reader.counter_cache.numbers_for_tests();
        assert_eq!((hits, misses, entries), (18, 6, 3));
        store.counters().invalidate_counter_cache();
        assert_eq!(look(&store, (1, Some(1), VALUE)), None);
    });
}

#[test]
fn whatever_changes_a_counter_otherwise_makes_the_cache_forget_it() {
    run(801, |rt| async move {
        let store = open_counters(&rt, 1 << 20).await;
        let place = (1, Some(1), VALUE);
        let tombstone = CellRef::tombstone(TimestampMicros(150), DeletionSeconds(1_000_000));
        let own = count_of(place, (OWN, i64::MAX / 2, 77), 50);
        let mutations = [
            ("row", delete_row(1, 1, 1)),
            ("range", delete_range(1, 0, 5, 1)),
            ("partition", delete_partition(1, 1)),
            ("own", own),
            ("cell", cell_of(place, tombstone)),
        ];
        for (what, mutation) in mutations {
            lead(&store, place, 1, 100, OWN).await;
            lead(&store, place, 1, 100, OWN).await;
            assert!(look(&store, place).is_some(), "{what}");
            // Counts that a leader has begun to read before are discarded too.
            let of = store.counters().counts_of(TABLE, &key(1)).unwrap();
            write(&store, &mutation).await.unwrap();
            assert_eq!(look(&store, place), None, "{what}");
            assert!(!store.counters().are_counts_current(&of), "{what}");
        }
        // Another place, for the cell above stays deleted.
        let place = (2, Some(1), VALUE);
        let fill = async || {
            lead(&store, place, 1, 200, OWN).await;
            lead(&store, place, 1, 200, OWN).await;
            assert!(look(&store, place).is_some());
        };
        fill().await;
        store.lifecycle().truncate(TABLE, TimestampMicros(1_000_000)).await.unwrap();
        assert_eq!(look(&store, place), None, "truncated");
        fill().await;
        let none = crate::OwnedRanges::new(Vec::new());
        store.flush(None).await.unwrap();
        store.compactor().cleanup(TABLE, || Some(none)).await.unwrap();
        assert_eq!(look(&store, place), None, "not owned any more");
        fill().await;
        store.set_schema(counter_schema());
        assert_eq!(look(&store, place), None, "another version of the table");
        fill().await;
        store.counters().count_as(OTHER);
        assert_eq!(look(&store, place), None, "another writer");
        store.counters().count_as(OWN);
        fill().await;
        let of = store.counters().counts_of(TABLE, &key(2)).unwrap();
        store.counters().set_counter_cache_capacity(0).unwrap();
        assert!(store.counters().counts_of(TABLE, &key(2)).is_none(), "there is no cache");
        store.counters().set_counter_cache_capacity(1 << 20).unwrap();
        assert_eq!(look(&store, place), None);
        assert!(!store.counters().are_counts_current(&of));
        let refused = store.counters().set_counter_cache_capacity(1 << 40);
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
    });
}

/// An increment that a deletion hides is not counted on.
#[test]
fn a_count_behind_a_deletion_is_not_kept() {
    run(802, |rt| async move {
        let store = open_counters(&rt, 1 << 20).await;
        let place = (1, Some(1), VALUE);
        write(&store, &delete_row(1, 1, 500)).await.unwrap();
        for _ in 0..3 {
            assert!(!lead(&store, place, 1, 400, OWN).await);
            assert_eq!(look(&store, place), None);
        }
        lead(&store, place, 1, 600, OWN).await;
        lead(&store, place, 1, 600, OWN).await;
        assert!(look(&store, place).is_some());
        // Older than what it adds to: which of the two a deletion between them would hide is not asked.
        lead(&store, place, 1, 599, OWN).await;
        assert_eq!(look(&store, place), None);
    });
}

#[test]
fn counts_never_take_more_than_the_budget() {
    run(803, |rt| async move {
        let store = open_counters(&rt, 16 << 10).await;
        for pk in 0..300 {
            lead(&store, (pk, Some(1), VALUE), 1, 100, OWN).await;
            lead(&store, (pk, Some(1), VALUE), 1, 100, OWN).await;
        }
        let (_, _, entries) = store.rooms.reader.counter_cache.numbers_for_tests();
        assert!(entries > 30 && entries < 100, "{entries}");
    });
}

/// Cached counters are loaded again after a restart, also with other shards.
#[test]
fn counters_that_were_cached_are_cached_again_after_a_restart() {
    let world = world(804);
    let saving = |rt: &Rt| StoreOptions {
        counter_cache_bytes_max: Some(1 << 20),
        counter_cache_save_period: Duration::from_secs(3_600),
        ..options(rt)
    };
    run_in(&world, move |rt| async move {
        let (store, _) = Store::open(rt.clone(), saving(&rt), counter_schema()).await.unwrap();
        store.counters().count_as(OWN);
        for pk in 0..20 {
            for place in [(pk, Some(1), VALUE), (pk, None, STATIC)] {
                lead(&store, place, 1, 100, OWN).await;
                lead(&store, place, 1, 101, OWN).await;
            }
        }
        store.stop().await;
    });
    for shards in [2, 3, 1] {
        let entries: Arc<Mutex<u64>> = Arc::default();
        let all = entries.clone();
        everywhere::run_shards(&world, shards, move |rt, barrier| {
            let all = all.clone();
            async move {
                let (store, _) =
                    Store::open(rt.clone(), saving(&rt), counter_schema()).await.unwrap();
                store.counters().count_as(OWN);
                rt.sleep(Duration::from_secs(5)).await;
                let (_, _, entries) = store.rooms.reader.counter_cache.numbers_for_tests();
                *all.lock().unwrap() += entries;
                for pk in 0..20 {
                    let of = store.counters().counts_of(TABLE, &key(pk)).unwrap();
                    for place in [(pk, Some(1), VALUE), (pk, None, STATIC)] {
                        if let Some(own) = cached(&store, &of, place) {
                            assert_eq!((own.timestamp.0, own.count), (101, 2));
                        }
                    }
                }
                // No shard saves before every shard has read.
                barrier.wait(&rt).await;
                store.stop().await;
            }
        });
        assert_eq!(*entries.lock().unwrap(), 40, "{shards} shards");
    }
}

fn random_place(rt: &Rt) -> Place {
    let random = rt.random_u64();
    let pk = (random % 2) as i32;
    match random >> 8 & 3 {
        0 => (pk, None, STATIC),
        1 => (pk, Some(0), SECOND),
        ck => (pk, Some(ck as i32 - 2), VALUE),
    }
}

/// A write that is no increment of this node.
fn random_write(rt: &Rt, place: Place, step: i64) -> Vec<u8> {
    let random = rt.random_u64();
    let at = 1_000 + step - (random >> 8 & 31) as i64 + 10;
    let (pk, ck, _) = place;
    match random % 16 {
        0..8 => count_of(place, (OTHER, step, step), at),
        // A hint or a read repair brings an earlier write of this node, or one under its id.
        8..12 => count_of(place, (OWN, at - 5, step), at),
        12 => delete_row(pk, ck.unwrap_or(0), at),
        13 => delete_range(pk, 0, 1 + (random >> 16 & 1) as i32, at),
        14 => delete_partition(pk, at),
        _ => insert_older(place, at),
    }
}

fn insert_older(place: Place, at: i64) -> Vec<u8> {
    count_of(place, (OWN, 1, 1), at - 900)
}

/// Cached counts equal the counts that a read finds, while other writes, deletions, flushes,
/// compactions and TRUNCATE run beside leaders.
/// INV-counter-cache-1.
#[test]
fn cached_counts_are_what_reads_find() {
    let mut hits = 0;
    for seed in 0..32_u64 {
        let found: Arc<Mutex<u64>> = Arc::default();
        let told = found.clone();
        run(810 + seed, move |rt| {
            let told = told.clone();
            async move {
                let bytes = [1 << 10, 1 << 20][seed as usize % 2];
                let store = open_counters(&rt, bytes).await;
                let gate = rt.gate("beside");
                for step in 0..500_i64 {
                    let what = rt.random_u64() % 160;
                    let place = random_place(&rt);
                    let other = random_write(&rt, random_place(&rt), step);
                    let (beside, of_task) = (store.clone(), rt.clone());
                    let task = async move {
                        match what {
                            0..20 => beside.flush(None).await.unwrap(),
                            20..25 => beside.compactor().compact_major(TABLE).await.unwrap(),
                            25 => beside
                                .lifecycle()
                                .truncate(TABLE, TimestampMicros(1))
                                .await
                                .unwrap(),
                            26..60 => {
                                of_task
                                    .sleep(Duration::from_micros(of_task.random_u64() % 300))
                                    .await;
                                write(&beside, &other).await.unwrap();
                            }
                            _ => {}
                        }
                    };
                    let _ = gate.spawn(&rt, Group::Admin, "beside", task);
                    if what == 60 {
                        store.counters().invalidate_counter_cache();
                    }
                    if rt.random_u64().is_multiple_of(3) {
                        for file in &store.rooms.tables.table(TABLE).unwrap().view().files {
                            store.rooms.files.cache.forget(file.id);
                        }
                    }
                    let at = 1_000 + step - (rt.random_u64() & 7) as i64 / 6;
                    lead(&store, place, 1 + (what % 5) as i64, at, OWN).await;
                    let longest = [200, 3_000, 30_000][(rt.random_u64() % 3) as usize];
                    rt.sleep(Duration::from_micros(rt.random_u64() % longest)).await;
                    compare(&rt, &store, &format!("seed {seed}, step {step}")).await;
                }
                gate.close().await;
                *told.lock().unwrap() = store.rooms.reader.counter_cache.numbers_for_tests().0;
                store.stop().await;
            }
        });
        hits += *found.lock().unwrap();
    }
    assert!(hits > 3_000, "{hits}");
}

async fn compare(rt: &Rt, store: &Store, place: &str) {
    for _ in 0..2 {
        let at = random_place(rt);
        let of = store.counters().counts_of(TABLE, &key(at.0)).unwrap();
        let Some(own) = cached(store, &of, at) else { continue };
        let read = context(store, at).await;
        if !store.counters().are_counts_current(&of) {
            continue;
        }
        let Some((timestamp, value)) = read else {
            panic!("{place}: {at:?} has {own:?} in the cache, and is not there")
        };
        let found = counter::clock_and_count(&value, OWN);
        assert_eq!(found, (own.clock, own.count), "{place}: {at:?}");
        assert!(timestamp >= own.timestamp, "{place}: {at:?}");
    }
}

/// A bug once had the stop and the task that saves from time to time write one file at a time, under one name.
#[test]
fn a_stop_beside_a_save_of_the_cache_saves_it_and_fails_at_nothing() {
    for after in 0..40_u64 {
        run(870 + after, move |rt| async move {
            let period = Duration::from_millis(10);
            let options = StoreOptions {
                counter_cache_bytes_max: Some(1 << 20),
                counter_cache_save_period: period,
                ..options(&rt)
            };
            let store = Store::open(rt.clone(), options, counter_schema()).await.unwrap().0;
            store.counters().count_as(OWN);
            for at in 0..2 {
                lead(&store, (1, Some(1), VALUE), 1, 1_000 + at, OWN).await;
            }
            let failures = std::rc::Rc::<std::cell::RefCell<Vec<crate::StoreFailure>>>::default();
            let told = failures.clone();
            store.env().on_failure(move |failure| told.borrow_mut().push(failure));
            rt.sleep(
                crate::read::saved_keys::WARM_AFTER + period + Duration::from_micros(after * 50),
            )
            .await;
            store.stop().await;
            assert_eq!(*failures.borrow(), [], "after {after}");
            assert!(rt.fs().exists("saved_caches/counters.0").await.unwrap(), "after {after}");
        });
    }
}
