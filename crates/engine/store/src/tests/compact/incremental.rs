//! Incremental compaction: runs of fragments, merged in parts.

use std::rc::Rc;

use rt::Group;
use rt::sim::CrashKind;

use crate::tables::table::TableVersion;
use crate::tests::crash::open_purging_with;
use crate::tests::everywhere::*;
use crate::tests::*;

const KEYS: i32 = 48;

/// Tombstones are purged at once; no automatic compaction.
pub(crate) fn incremental_schema() -> Arc<Schema> {
    let map = [
        ("class", "org.apache.cassandra.db.compaction.IncrementalCompactionStrategy"),
        ("enabled", "false"),
    ];
    let compaction = map.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let options = TableOptions { gc_grace_seconds: 0, compaction, ..TableOptions::default() };
    schema_of(vec![table(options)])
}

/// Makes fragments smaller than a user can ask for.
pub(crate) fn set_fragment_size(store: &Store, bytes: u64) {
    let table = store.rooms.tables.table(TABLE).unwrap();
    let version = table.version();
    let mut compaction = version.compaction.clone().unwrap();
    compaction.incremental.fragment_size = bytes;
    *table.version.borrow_mut() = Rc::new(TableVersion {
        table: version.table.clone(),
        shape: version.shape.clone(),
        ticket: commitlog::TableTicket::new(&version.table),
        compaction: Ok(compaction),
        indexes: None,
        follower: crate::tables::table::WriteFollower::Nothing,
        cached_rows: version.cached_rows,
    });
}

/// A value that no compressor makes smaller.
pub(crate) fn noise(seed: i32, bytes: usize) -> String {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ (u64::from(seed.unsigned_abs()) << 7);
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b' ' + (state % 95) as u8)
    };
    (0..bytes).map(|_| next()).collect()
}

async fn open_incremental(rt: &Rt) -> Store {
    let store = open_purging_with(rt, incremental_schema()).await;
    set_fragment_size(&store, 1_500);
    store
}

/// One run of several fragments, with row 1 of every partition to be deleted, and a file with the
/// deletions.
async fn fill(store: &Store, bytes: usize) {
    for pk in 0..KEYS {
        write(store, &insert(pk, 1, "gone", 100)).await.unwrap();
        write(store, &insert(pk, 2, &noise(pk, bytes), 100)).await.unwrap();
    }
    store.flush(None).await.unwrap();
    store.compactor().compact_major(TABLE).await.unwrap();
    for pk in 0..KEYS {
        write(store, &delete_row(pk, 1, 200)).await.unwrap();
    }
    store.flush(None).await.unwrap();
}

fn stays(bytes: usize) -> Rows {
    (0..KEYS).map(|pk| ((pk, 2), noise(pk, bytes))).collect()
}

/// Runs and files of the table; no two fragments of a run have a token in common.
fn runs(store: &Store) -> (usize, usize) {
    let files = store.rooms.tables.table(TABLE).unwrap().view().files.clone();
    let mut of_run: BTreeMap<Option<Uuid>, Vec<(Token, Token)>> = BTreeMap::new();
    for file in &files {
        let meta = file.reader.meta();
        of_run.entry(meta.run()).or_default().push((meta.first_token(), meta.last_token()));
    }
    for ranges in of_run.values_mut() {
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0), "{ranges:?}");
    }
    (of_run.len(), files.len())
}

#[test]
fn a_run_is_merged_in_parts_purges_and_survives_a_restart() {
    let world = world(61);
    run_in(&world, |rt| async move {
        let store = open_incremental(&rt).await;
        fill(&store, 100).await;
        let (before, files) = runs(&store);
        assert!(before == 2 && files > 4, "{before} runs, {files} files");
        store.compactor().compact_major(TABLE).await.unwrap();
        let (after, files) = runs(&store);
        assert!(after == 1 && files > 3, "{after} runs, {files} files");
        assert_eq!(rows_of(&read_all(&store).await), stays(100));
        // Purged data is gone from the files: reads meet no tombstone.
        let files = store.rooms.tables.table(TABLE).unwrap().view().files.clone();
        let rows: i64 = files.iter().map(|f| f.reader.meta().statistics().stats.total_rows).sum();
        assert_eq!(rows, i64::from(KEYS));
        store.stop().await;
    });
    run_in(&world, |rt| async move {
        let store = open_incremental(&rt).await;
        assert_eq!(runs(&store).0, 1);
        assert_eq!(rows_of(&read_all(&store).await), stays(100));
        store.stop().await;
    });
}

/// Most bytes that a major compaction of the same data had on the disk beside what was there before.
fn space_of_a_major_compaction(fragment: u64) -> (u64, u64) {
    let world = world(62);
    let peak: Arc<Mutex<(u64, u64)>> = Arc::default();
    let (found, disk) = (peak.clone(), world.disk("n1"));
    disk.set_free_bytes(Some(100 << 20));
    run_in(&world, move |rt| {
        let found = found.clone();
        async move {
            let store = open_incremental(&rt).await;
            set_fragment_size(&store, fragment);
            fill(&store, 20_000).await;
            let table = store.rooms.tables.table(TABLE).unwrap();
            let bytes = table.view().files.iter().map(|f| f.reader.meta().disk_bytes()).sum();
            let fs = rt.fs();
            let begin = fs.free_bytes("data").await.unwrap();
            let least = Rc::new(std::cell::Cell::new(begin));
            let (watch, ended) = (least.clone(), Rc::new(std::cell::Cell::new(false)));
            let (gate, over, rt2) = (rt.gate("watch"), ended.clone(), rt.clone());
            let task = async move {
                while !over.get() {
                    watch.set(watch.get().min(rt2.fs().free_bytes("data").await.unwrap()));
                }
            };
            gate.spawn(&rt, Group::Admin, "watch", task).unwrap();
            store.compactor().compact_major(TABLE).await.unwrap();
            ended.set(true);
            *found.lock().unwrap() = (bytes, begin - least.get());
            store.stop().await;
        }
    });
    *peak.lock().unwrap()
}

#[test]
fn a_merge_of_runs_needs_space_for_its_largest_part_only() {
    let (bytes, whole) = space_of_a_major_compaction(1 << 30);
    assert!(whole > bytes / 2, "{whole} of {bytes}");
    let (bytes, parts) = space_of_a_major_compaction(60_000);
    assert!(parts > 0 && parts < bytes / 3, "{parts} of {bytes}");
}

#[test]
fn a_crash_at_every_io_of_a_merge_in_parts_brings_nothing_back_and_loses_nothing() {
    let main = |rt: Rt, (): (), barrier: Barrier| async move {
        let store = open_incremental(&rt).await;
        fill(&store, 100).await;
        barrier.arm(&rt).await;
        if store.compactor().compact_major(TABLE).await.is_ok() {
            rt.sleep(Duration::from_millis(50)).await;
        }
    };
    for kind in [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll] {
        let crash = Crash { name: "merge in parts", kind, shards: 1, step: 3 };
        crash_everywhere(
            crash,
            |_, _| (),
            main,
            |world, (), (_, place)| {
                for _ in 0..2 {
                    let found = rows_after_restart(world, 1, &incremental_schema(), place);
                    assert_eq!(found, stays(100), "{place}");
                }
            },
        );
    }
}

#[test]
fn a_disk_with_room_for_a_part_is_enough_for_a_merge_in_parts() {
    let world = world(63);
    run_in(&world, |rt| async move {
        let store = open_incremental(&rt).await;
        set_fragment_size(&store, 60_000);
        fill(&store, 20_000).await;
        store.stop().await;
    });
    // The files have about 1,000,000 bytes.
    world.disk("n1").set_free_bytes(Some(500_000));
    run_in(&world, |rt| async move {
        let store = open_incremental(&rt).await;
        let table = store.rooms.tables.table(TABLE).unwrap();
        let bytes: u64 = table.view().files.iter().map(|f| f.reader.meta().disk_bytes()).sum();
        assert!(bytes > 700_000, "{bytes}");
        set_fragment_size(&store, 1 << 30);
        let plan = compact_plan::Plan { apart: false, ..major_plan(&store) };
        let version = table.version();
        let options = crate::compact::compaction::options_of(&version).unwrap();
        let whole = crate::compact::compaction::Job { plan: &plan, options, owned: None };
        let refused = store.rooms.compactor.compact(&table, whole).await;
        assert!(matches!(refused, Err(StoreError::DiskFull { .. })), "{refused:?}");
        set_fragment_size(&store, 60_000);
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(rows_of(&read_all(&store).await), stays(20_000));
        store.stop().await;
    });
}

/// All files.
fn major_plan(store: &Store) -> compact_plan::Plan {
    let files = store.rooms.tables.table(TABLE).unwrap().view().files.clone();
    compact_plan::Plan {
        inputs: files.iter().map(|f| f.generation).collect(),
        expired: Vec::new(),
        level: 0,
        cut: compact_plan::Cut::Never,
        apart: true,
        reason: compact_plan::Reason::Major,
    }
}
