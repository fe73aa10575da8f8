//! The n-th file call fails, for every n: nothing acknowledged is lost, the error names file and
//! operation. The store continues when the disk works again, or after a restart when the commit log
//! failed.

use commitlog::SyncMode;
use stdx::IoErrorKind;

use crate::tests::everywhere::*;
use crate::tests::*;

/// Which calls fail.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Any call, with EIO.
    AnyIo,
    /// A call that puts something on the disk, with ENOSPC.
    FullDisk,
}

/// Observations of a run with a fault.
#[derive(Clone, Default)]
struct Seen {
    facts: Facts,
    errors: Arc<Mutex<Vec<StoreError>>>,
    /// It could not be opened, or its log failed.
    needs_restart: Arc<Mutex<bool>>,
}

impl Seen {
    fn note<T>(&self, result: Result<T, StoreError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if matches!(error, StoreError::LogFailed(_)) {
                    *self.needs_restart.lock().unwrap() = true;
                }
                self.errors.lock().unwrap().push(error);
                None
            }
        }
    }
}

async fn prepare(rt: Rt, seen: Seen) {
    let store = open(&rt).await;
    for i in 0..4 {
        seen.facts.put(&store, (i % 2, i), "before", 1).await.unwrap();
        if i % 2 == 1 {
            store.flush(None).await.unwrap();
        }
    }
    seen.facts.put(&store, (0, 9), "in the log", 1).await.unwrap();
}

/// Replay, append, flush, compaction, snapshot, with a call that fails in one of them.
async fn work(rt: Rt, seen: Seen, sync: SyncMode) {
    let options = StoreOptions { sync, ..options(&rt) };
    let opened = seen.note(Store::open(rt.clone(), options, schema()).await);
    let Some((store, _)) = opened else {
        *seen.needs_restart.lock().unwrap() = true;
        return;
    };
    for i in 10..14 {
        let long = format!("{i} {}", "x".repeat(9_000));
        let _ = seen.note(seen.facts.put(&store, (i % 2, i), &long, 1).await);
        if i % 2 == 1 {
            let _ = seen.note(store.flush(None).await);
        }
    }
    let _ = seen.note(store.compactor().compact_major(TABLE).await);
    let _ = seen.note(seen.facts.put(&store, (1, 20), "to be snapshotted", 1).await);
    let _ = seen.note(store.lifecycle().snapshot("tag", None).await);
    // The disk is well again: writes and flushes succeed, at most after a round in the background.
    let mut attempts = 0;
    while !*seen.needs_restart.lock().unwrap() {
        let written = seen.note(seen.facts.put(&store, (0, 30), "afterwards", 1).await);
        if written.is_some() && seen.note(store.flush(None).await).is_some() {
            break;
        }
        attempts += 1;
        assert!(attempts < 20, "no recovery: {:?}", seen.errors.lock().unwrap());
        rt.sleep(Duration::from_millis(500)).await;
    }
    let mut found = Collect::default();
    let all = read_of(Partitions::Range(KeyRange::all()));
    if seen.note(store.read(&all, &mut found).await).is_some() {
        seen.facts.check_rows(&rows_of(&found.rows), "the same run");
    }
    store.stop().await;
}

/// An error of the disk names the call and its file.
fn names_its_place(error: &StoreError) -> bool {
    let text = error.to_string();
    let operations = ["open", "mkdir", "readdir", "rename", "unlink", "rmdir", "link", "fsync"];
    let more = ["stat", "statvfs", "lock", "read", "write", "truncate"];
    operations.iter().chain(&more).any(|operation| {
        let Some((_, rest)) = text.split_once(&format!("{operation} of ")) else { return false };
        rest.split_once(" failed").is_some_and(|(path, _)| !path.is_empty())
    })
}

fn fail_everywhere(fault: Fault, sync: SyncMode) {
    let (mut n, mut recovered, mut restarted) = (1, 0, 0);
    loop {
        let place = format!("{fault:?} at call {n}, {sync:?}");
        let world = world(40_000 + n);
        let seen = Seen::default();
        let first = seen.clone();
        run_in(&world, move |rt| prepare(rt, first.clone()));
        let disk = world.disk("n1");
        match fault {
            Fault::AnyIo => disk.fail_nth(n, IoErrorKind::Device),
            Fault::FullDisk => disk.fail_nth_change(n, IoErrorKind::NoSpace),
        }
        let second = seen.clone();
        run_in(&world, move |rt| work(rt, second.clone(), sync));
        let came_through = disk.pending_failures() > 0;
        disk.clear_faults();
        for error in seen.errors.lock().unwrap().iter() {
            assert!(names_its_place(error), "{place}: {error}");
        }
        if *seen.needs_restart.lock().unwrap() {
            restarted += 1;
        } else if !came_through {
            recovered += 1;
        }
        check_restarts(&world, &seen.facts, 1, &place);
        if came_through {
            assert!(seen.errors.lock().unwrap().is_empty(), "{place}");
            break;
        }
        n += 1;
    }
    // A fault that nothing notices would make this test worthless.
    assert!(n > 100 && recovered > 50, "{n} calls, {recovered} recovered, {restarted} restarted");
}

#[test]
fn an_io_error_at_every_call_loses_nothing_acknowledged() {
    fail_everywhere(Fault::AnyIo, SyncMode::Batch);
    fail_everywhere(Fault::AnyIo, SyncMode::Periodic { period: Duration::from_millis(5) });
}

#[test]
fn a_full_disk_at_every_call_loses_nothing_acknowledged() {
    fail_everywhere(Fault::FullDisk, SyncMode::Batch);
    fail_everywhere(Fault::FullDisk, SyncMode::Periodic { period: Duration::from_millis(5) });
}
