//! Scrubs of a running store: readable data stays, in order and once; losses are reported.

use rt::sim::CrashKind;
use rt::{Buf, OpenOptions};
use sstable::Component;

use crate::compact::scrub::Scrubbed;
use crate::tests::compact::incremental::noise;
use crate::tests::everywhere::*;
use crate::tests::*;
use crate::{OwnedRanges, ScrubOptions, VerifyOptions};

const MANY: i32 = 120;

/// Files with a thousand bytes per partition: several blocks each.
async fn filled(rt: &Rt, files: i32) -> Store {
    let store = open(rt).await;
    for ck in 0..files {
        for pk in 0..MANY {
            write(&store, &insert(pk, ck, &noise(pk, 1_000), 1)).await.unwrap();
        }
        store.flush(None).await.unwrap();
    }
    store
}

fn paths(store: &Store) -> Vec<String> {
    let table = store.rooms.tables.table(TABLE).unwrap();
    let view = table.view();
    view.files.iter().map(|f| f.reader.meta().file(Component::Data).to_string()).collect()
}

/// Flips the bits of one byte in the middle of a file.
async fn damage(rt: &Rt, path: &str) {
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = rt.fs().open(path, options).await.unwrap();
    let at = file.len().await.unwrap() / 2;
    let byte = !file.read_exact_at(at, 1).await.unwrap().as_slice()[0];
    file.write_at(Buf::from(vec![byte]), at).await.1.unwrap();
}

async fn scrub(store: &Store, tag: Option<&str>) -> Vec<Scrubbed> {
    let done = store.compactor().scrub(TABLE, tag, ScrubOptions::default()).await.unwrap();
    done.into_iter().map(|(_, result)| result.unwrap()).collect()
}

async fn repaired(store: &Store) {
    let session = Uuid::from_u128(5);
    let all = OwnedRanges::new(vec![(Token::MIN, Token::MAX)]);
    store.repair().begin_repair(TABLE, session, &all).await.unwrap();
    store.repair().end_repair(TABLE, session, Some(1_000)).await.unwrap();
}

#[test]
fn what_can_be_read_of_a_damaged_file_stays_and_what_is_lost_is_told() {
    run(91, |rt| async move {
        let store = filled(&rt, 2).await;
        repaired(&store).await;
        let before = read_all(&store).await;
        let old = paths(&store);
        damage(&rt, &old[0]).await;
        let done = scrub(&store, Some("pre-scrub-1")).await;
        let lossy = done.iter().find(|d| d.path == old[0]).unwrap();
        let whole = done.iter().find(|d| d.path == old[1]).unwrap();
        assert!(lossy.report.losses > 0 && lossy.report.partitions < MANY as u64);
        let words: Vec<String> = lossy.words().into_iter().map(|(_, text)| text).collect();
        let bad = lossy.report.bad_partitions;
        let recovered = format!("Unable to recover {bad} partitions that were skipped.");
        assert!(words.iter().any(|text| text.starts_with(&recovered)), "{words:?}");
        assert_eq!((whole.report.losses, whole.report.partitions), (0, MANY as u64));
        assert_eq!(whole.words().len(), 1);
        // Every read is answered, with what there was and no more; the old files are gone.
        let after = read_all(&store).await;
        assert!(after.len() < before.len() && after.iter().all(|row| before.contains(row)));
        let lost = MANY as u64 - lossy.report.rows;
        assert_eq!(after.len() as u64, before.len() as u64 - lost);
        assert!(paths(&store).iter().all(|path| !old.contains(path)));
        // A file with a loss counts as not repaired.
        assert_eq!(store.repair().repair_states(TABLE), (1, 0, 1));
        let snapshots = store.lifecycle().snapshots().await.unwrap();
        assert_eq!(snapshots.iter().map(|s| s.tag.as_str()).collect::<Vec<_>>(), ["pre-scrub-1"]);
        let extended = VerifyOptions { extended: true, ..VerifyOptions::default() };
        assert_eq!(store.verifier().verify(TABLE, &extended).await.unwrap(), []);
        store.drain().await.unwrap();
        store.stop().await;
        let store = open(&rt).await;
        assert_eq!(read_all(&store).await, after);
        store.stop().await;
    });
}

/// INV-scrub-2.
#[test]
fn files_of_a_repair_stay_and_a_scrub_is_listed_and_given_up() {
    run(92, |rt| async move {
        let store = filled(&rt, 1).await;
        let before = (read_all(&store).await, paths(&store));
        store.compactor().set_compaction_throughput(10_000);
        let (running, gate) = (store.clone(), rt.gate("test"));
        let ended = std::rc::Rc::new(std::cell::RefCell::new(None));
        let seen = ended.clone();
        let task = async move {
            let result = running.compactor().scrub(TABLE, None, ScrubOptions::default()).await;
            *seen.borrow_mut() = Some(result);
        };
        gate.spawn(&rt, rt::Group::Admin, "scrub", task).unwrap();
        while store.files().slots().compactions().iter().all(|c| c.done_bytes == 0) {
            rt.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(store.files().slots().stop_compactions(|c| c.kind == "Scrub"), 1);
        gate.close().await;
        let error = ended.borrow_mut().take().unwrap().unwrap_err().to_string();
        assert_eq!(error, "Compaction interrupted");
        assert_eq!((read_all(&store).await, paths(&store)), before);
        store.compactor().set_compaction_throughput(0);

        let all = OwnedRanges::new(vec![(Token::MIN, Token::MAX)]);
        store.repair().begin_repair(TABLE, Uuid::from_u128(6), &all).await.unwrap();
        let pending = paths(&store);
        let done = scrub(&store, None).await;
        assert!(done[0].in_repair && done[0].words()[0].1.contains("repair under way"));
        assert_eq!(paths(&store), pending);
        store.stop().await;
    });
}

#[test]
fn a_damaged_file_is_not_repaired_any_more_when_that_is_asked_for() {
    run(93, |rt| async move {
        let store = filled(&rt, 2).await;
        repaired(&store).await;
        damage(&rt, &paths(&store)[0]).await;
        for (forget_repair, expect) in [(false, 2), (true, 1)] {
            let options = VerifyOptions { forget_repair, ..VerifyOptions::default() };
            assert_eq!(store.verifier().verify(TABLE, &options).await.unwrap().len(), 1);
            assert_eq!(store.repair().repair_states(TABLE).0, expect);
        }
        store.stop().await;
    });
}

#[test]
fn tombstones_of_named_partitions_go_at_any_age_and_no_others() {
    run(94, |rt| async move {
        let store = open(&rt).await;
        for pk in [1, 2] {
            write(&store, &insert(pk, 1, "gone", 1)).await.unwrap();
            write(&store, &insert(pk, 2, "stays", 1)).await.unwrap();
            write(&store, &delete_row(pk, 1, 2)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        let rows = read_all(&store).await;
        let tombstones = || {
            let table = store.rooms.tables.table(TABLE).unwrap();
            let view = table.view();
            let stats = |f: &std::rc::Rc<crate::tables::table_file::TableFile>| {
                let stats = f.reader.meta().statistics().stats.clone();
                stats.tombstones.sum(i64::MAX)
            };
            view.files.iter().map(stats).sum::<f64>() as u64
        };
        assert_eq!(tombstones(), 2);
        assert_eq!(store.compactor().compact_ageless(TABLE, &[key(3)]).await.unwrap(), 0);
        assert_eq!(store.compactor().compact_ageless(TABLE, &[key(2)]).await.unwrap(), 1);
        assert_eq!((tombstones(), read_all(&store).await), (1, rows.clone()));
        // Nothing is left of it for the next compaction.
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!((tombstones(), read_all(&store).await), (1, rows));
        store.stop().await;
    });
}

fn all_rows() -> Rows {
    (0..9).map(|pk| ((pk, 0), noise(pk, 1_000))).collect()
}

/// A file of one shard, which two shards then share.
fn prepare(world: &World) {
    run_shards(world, 1, |rt, _| async move {
        let store = open(&rt).await;
        for pk in 0..9 {
            write(&store, &insert(pk, 0, &noise(pk, 1_000), 1)).await.unwrap();
        }
        store.drain().await.unwrap();
        store.stop().await;
    });
}

#[test]
fn a_crash_at_every_io_of_a_scrub_of_a_shared_file_loses_nothing_and_shows_nothing_twice() {
    let main = |rt: Rt, opened: Barrier, barrier: Barrier| async move {
        let store = open(&rt).await;
        opened.wait(&rt).await;
        barrier.arm(&rt).await;
        // One after the other: most crashes find one of them done.
        rt.sleep(Duration::from_millis(u64::from(rt.shard().0) * 30)).await;
        if store.compactor().scrub(TABLE, None, ScrubOptions::default()).await.is_ok() {
            rt.sleep(Duration::from_millis(20)).await;
        }
    };
    for (kind, step) in [(CrashKind::Kill, 1), (CrashKind::PowerCutLosingAll, 1)] {
        let crash = Crash { name: "scrub", kind, shards: 2, step };
        let prepare = |world: &World, _: &Barrier| prepare(world);
        crash_everywhere(crash, prepare, main, |world, _, (n, place)| {
            for shards in [2, [1, 3][(n % 2) as usize]] {
                let place = format!("{place}, then {shards} shards");
                let found = rows_after_restart(world, shards, &schema(), &place);
                assert!(found == all_rows(), "{place}: {:?}", found.keys());
            }
        });
    }
}

#[test]
fn a_scrub_that_has_no_room_refuses_no_writes() {
    let world = world(95);
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        for pk in 0..9 {
            write(&store, &insert(pk, 0, &noise(pk, 10_000), 1)).await.unwrap();
        }
        store.drain().await.unwrap();
        store.stop().await;
    });
    world.disk("n1").set_free_bytes(Some(40_000));
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        let done = store.compactor().scrub(TABLE, None, ScrubOptions::default()).await.unwrap();
        assert!(matches!(&done[..], [(_, Err(StoreError::DiskFull { .. }))]), "{done:?}");
        store.writer().admit_write().unwrap();
        store.stop().await;
    });
}
