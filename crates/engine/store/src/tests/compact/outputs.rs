//! Compactions whose output is cut into several files.

use rt::Group;
use rt::sim::CrashKind;

use crate::tests::crash::{open_purging_with, rows_left};
use crate::tests::everywhere::*;
use crate::tests::*;

/// Unified compaction cuts the ring in four however little data exists; tombstones are purged at
/// once.
fn cut_schema() -> Arc<Schema> {
    let map = [
        ("class", "org.apache.cassandra.db.compaction.UnifiedCompactionStrategy"),
        ("min_sstable_size", "0B"),
        ("enabled", "false"),
    ];
    let compaction = map.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let options = TableOptions { gc_grace_seconds: 0, compaction, ..TableOptions::default() };
    schema_of(vec![table(options)])
}

const KEYS: i32 = 8;

/// Row 1 of every partition was deleted, row 2 stays, both are in files.
async fn fill(store: &Store) {
    for pk in 0..KEYS {
        write(store, &insert(pk, 1, "gone", 100)).await.unwrap();
        write(store, &insert(pk, 2, "stays", 100)).await.unwrap();
    }
    store.flush(None).await.unwrap();
    for pk in 0..KEYS {
        write(store, &delete_row(pk, 1, 200)).await.unwrap();
    }
    store.flush(None).await.unwrap();
}

#[test]
fn the_output_is_cut_at_tokens_and_holds_every_row_once() {
    run(31, |rt| async move {
        let store = open_purging_with(&rt, cut_schema()).await;
        fill(&store).await;
        let before = read_all(&store).await;
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(read_all(&store).await, before);
        let table = store.rooms.tables.table(TABLE).unwrap();
        let files = table.view().files.clone();
        assert!(files.len() > 2, "{} files", files.len());
        let mut ranges: Vec<_> = files
            .iter()
            .map(|f| (f.reader.meta().first_token(), f.reader.meta().last_token()))
            .collect();
        ranges.sort();
        assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0), "{ranges:?}");
        store.stop().await;
    });
}

/// INV-outputs-2.
#[test]
fn a_crash_at_every_io_of_a_cut_compaction_brings_nothing_back_and_loses_nothing() {
    let main = |rt: Rt, (): (), barrier: Barrier| async move {
        let store = open_purging_with(&rt, cut_schema()).await;
        fill(&store).await;
        barrier.arm(&rt).await;
        if store.compactor().compact_major(TABLE).await.is_ok() {
            rt.sleep(Duration::from_millis(50)).await;
        }
    };
    let stays: Rows = (0..KEYS).map(|pk| ((pk, 2), "stays".to_owned())).collect();
    for kind in [CrashKind::Kill, CrashKind::PowerCutLosingAll] {
        let crash = Crash { name: "cut compaction", kind, shards: 1, step: 1 };
        crash_everywhere(
            crash,
            |_, _| (),
            main,
            |world, (), (_, place)| {
                for _ in 0..2 {
                    let found = rows_after_restart(world, 1, &cut_schema(), place);
                    assert_eq!(found, stays, "{place}");
                }
            },
        );
    }
}

#[test]
fn a_truncation_during_a_cut_compaction_is_not_undone_by_a_crash() {
    let main = |rt: Rt, acknowledged: Arc<Mutex<bool>>, barrier: Barrier| async move {
        let store = open_purging_with(&rt, cut_schema()).await;
        fill(&store).await;
        barrier.arm(&rt).await;
        let (gate, compacting) = (rt.gate("compaction of the test"), store.clone());
        let compact = async move { drop(compacting.compactor().compact_major(TABLE).await) };
        gate.spawn(&rt, Group::Compaction, "compaction", compact).unwrap();
        // Between two outputs of the compaction.
        rt.sleep(Duration::from_millis(2)).await;
        if store.lifecycle().truncate(TABLE, TimestampMicros(5_000_000)).await.is_ok() {
            *acknowledged.lock().unwrap() = true;
            rt.sleep(Duration::from_secs(3)).await;
        }
    };
    for kind in [CrashKind::Kill, CrashKind::PowerCutLosingAll] {
        let crash = Crash { name: "truncation of a cut compaction", kind, shards: 1, step: 3 };
        crash_everywhere(
            crash,
            |_, _| (),
            main,
            |world, acknowledged: &Arc<Mutex<bool>>, (_, place)| {
                let acknowledged = *acknowledged.lock().unwrap();
                let left = rows_left(world, &cut_schema(), place);
                let fits = left == 0 || (!acknowledged && left == KEYS as usize);
                assert!(fits, "{place}: {left} rows");
            },
        );
    }
}
