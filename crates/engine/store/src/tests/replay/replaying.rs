//! Mutations that a replay skips, and the use of the commit log's archive.

use commitlog::{SyncMode, archive};
use rt::sim::CrashKind;

use crate::tests::everywhere::*;
use crate::tests::*;
use crate::{PointInTime, ReplayOptions, ReplayReport};

const OTHER: TableId = TableId(Uuid::from_u128(0x12));

/// The tables `ks.t` and `ks.other`.
fn two_tables() -> Arc<Schema> {
    let mut other = table(TableOptions::default());
    other.id = OTHER;
    other.name = "other".into();
    schema_of(vec![table(TableOptions::default()), other])
}

/// The same mutation of the other table.
fn of_other(mutation: &[u8]) -> Vec<u8> {
    let mut bytes = mutation.to_vec();
    bytes[1..17].copy_from_slice(OTHER.0.as_bytes());
    assert_eq!(MutationRef::open(&bytes).unwrap().table, OTHER);
    bytes
}

/// Replays with these options; the report and the rows of `ks.t`.
fn replay_with(world: &World, replay: ReplayOptions) -> (ReplayReport, Rows) {
    let out: Arc<Mutex<(ReplayReport, Rows)>> = Arc::default();
    let slot = out.clone();
    run_in(world, move |rt| {
        let (slot, replay) = (slot.clone(), replay.clone());
        async move {
            let options = StoreOptions { replay, ..options(&rt) };
            let (store, report) = Store::open(rt, options, two_tables()).await.unwrap();
            *slot.lock().unwrap() = (report, rows_of(&read_all(&store).await));
        }
    });
    std::mem::take(&mut *out.lock().unwrap())
}

fn listed(tables: &[&str]) -> ReplayOptions {
    ReplayOptions { tables: tables.iter().map(|t| (*t).to_owned()).collect(), until: None }
}

fn write_two_tables(world: &World) {
    run_in(world, |rt| async move {
        let options = StoreOptions { sync: SyncMode::Batch, ..options(&rt) };
        let (store, _) = Store::open(rt, options, two_tables()).await.unwrap();
        for ck in 0..3 {
            write(&store, &insert(1, ck, "v", 100)).await.unwrap();
        }
        write(&store, &of_other(&insert(1, 1, "v", 100))).await.unwrap();
    });
}

#[test]
fn a_replay_counts_by_table_and_takes_listed_tables_only() {
    let counts = |pairs: &[(&str, u64)]| -> Vec<(String, u64)> {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    let both = [("ks.other", 1), ("ks.t", 3)];
    for (tables, applied, left_out) in [
        (&[][..], &both[..], 0),
        (&["ks"], &both, 0),
        (&["ks.t", "ks.other"], &both, 0),
        (&["ks.t"], &both[1..], 1),
        (&[" ks.other "], &both[..1], 3),
    ] {
        let world = world(71);
        write_two_tables(&world);
        let (report, rows) = replay_with(&world, listed(tables));
        assert_eq!(report.tables, counts(applied), "{tables:?}");
        assert_eq!((report.mutations, report.not_listed), (4, left_out), "{tables:?}");
        assert_eq!(rows.len(), if left_out == 3 { 0 } else { 3 }, "{tables:?}");
    }
}

#[test]
fn a_list_with_what_is_not_there_is_refused_in_cassandras_words() {
    let check = |tables: &[&str]| listed(tables).check(&two_tables());
    assert_eq!(check(&["ks", "ks.t"]), Ok(()));
    for (item, message) in [
        ("", "Invalid pair: ''"),
        ("ks.", "Invalid pair: 'ks.'"),
        ("nothing", "Unknown keyspace nothing"),
        ("ks.nothing", "Unknown table ks.nothing"),
        (
            "ks.t.x",
            "commitlog_replay_list property contains an item which is not in format 'keyspace' or \
             'keyspace.table' but it is 'ks.t.x'",
        ),
    ] {
        assert_eq!(check(&["ks", item]), Err(message.to_owned()));
    }
}

#[test]
fn a_point_in_time_keeps_what_was_written_up_to_it_and_drops_the_rest() {
    let until = |micros| ReplayOptions {
        tables: Vec::new(),
        until: Some(PointInTime { micros, unit_micros: 1 }),
    };
    // Each is later than the point by one of its parts.
    let late = [
        insert(1, 9, "late", 201),
        insert_static(1, "late", 201),
        delete_row(1, 1, 201),
        delete_range(1, 0, 5, 201),
        delete_partition(1, 201),
    ];
    for mutation in late {
        let world = world(72);
        let of_life = mutation.clone();
        run_in(&world, move |rt| {
            let mutation = of_life.clone();
            async move {
                let (store, _) = Store::open(rt.clone(), options(&rt), two_tables()).await.unwrap();
                write(&store, &insert(1, 1, "kept", 200)).await.unwrap();
                write(&store, &mutation).await.unwrap();
                // Like Cassandra, later mutations are checked too.
                write(&store, &insert(1, 2, "kept", 100)).await.unwrap();
            }
        });
        let (report, rows) = replay_with(&world, until(200));
        assert_eq!((report.applied, report.too_late), (2, 1), "{mutation:?}");
        assert_eq!(rows.len(), 2, "{mutation:?}");
        let (report, _) = replay_with(&world, until(201));
        assert_eq!((report.applied, report.too_late), (3, 0), "{mutation:?}");
        // Timestamps of clients that count milliseconds.
        let millis = PointInTime { micros: 200_000, unit_micros: 1000 };
        let (report, _) =
            replay_with(&world, ReplayOptions { tables: Vec::new(), until: Some(millis) });
        assert_eq!((report.applied, report.too_late), (2, 1), "{mutation:?}");
    }
}

#[test]
fn a_table_is_restored_to_a_point_before_it_was_truncated() {
    let until = |micros| ReplayOptions {
        tables: Vec::new(),
        until: Some(PointInTime { micros, unit_micros: 1 }),
    };
    let world = world(73);
    run_in(&world, |rt| async move {
        let (store, _) = Store::open(rt.clone(), options(&rt), two_tables()).await.unwrap();
        write(&store, &insert(1, 1, "v", 100)).await.unwrap();
        store.lifecycle().truncate(TABLE, TimestampMicros(300)).await.unwrap();
    });
    assert_eq!(replay_with(&world, until(299)).1.len(), 1);
    assert_eq!(replay_with(&world, until(300)).1.len(), 0);
    assert_eq!(replay_with(&world, ReplayOptions::default()).1.len(), 0);
}

/// A bug once kept the log for ever: nothing was flushed, so no flush released it.
#[test]
fn a_table_that_was_written_and_truncated_does_not_keep_the_old_log() {
    let world = world(75);
    run_in(&world, |rt| async move {
        let (store, _) = Store::open(rt.clone(), options(&rt), two_tables()).await.unwrap();
        write(&store, &insert(1, 1, "v", 100)).await.unwrap();
        store.lifecycle().truncate(TABLE, TimestampMicros(300)).await.unwrap();
    });
    run_in(&world, |rt| async move {
        let (store, _) = Store::open(rt.clone(), options(&rt), two_tables()).await.unwrap();
        rt.sleep(Duration::from_secs(1)).await;
        store.drain().await.unwrap();
    });
    let files = world.disk("n1").list();
    let left: Vec<&String> = files.iter().filter(|p| p.contains("/commitlog/")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Small segments, flushed often, so that segments are archived and deleted.
async fn write_with_archive(rt: Rt, facts: Facts, barrier: Barrier) {
    barrier.arm(&rt).await;
    let options = StoreOptions {
        sync: SyncMode::Batch,
        segment_bytes: 64 << 10,
        commitlog_archive_directory: Some("archive".to_owned()),
        ..options(&rt)
    };
    let Ok((store, _)) = Store::open(rt, options, schema()).await else { return };
    for i in 0..12 {
        let value = format!("{i}-{}", "x".repeat(20_000));
        let _ = facts.put(&store, (i % 3, i), &value, i64::from(i) + 1).await;
        if i % 4 == 3 {
            let _ = store.flush(None).await;
        }
    }
    let _ = store.drain().await;
}

/// INV-log-5: whatever is lost but the log and its archive, all acknowledged writes are there.
fn archive_survives(kind: CrashKind) {
    let check = |world: &World, facts: &Facts, (_, place): (u64, &str)| {
        for path in world.disk("n1").list() {
            if path.contains("/data/") {
                world.disk("n1").remove(&path);
            }
        }
        run_in(world, |rt| async move {
            let fs = rt.fs();
            fs.create_dir_durably("commitlog").await.unwrap();
            let from = ["archive".to_owned()];
            archive::restore(&fs, &from, "commitlog").await.unwrap();
            // All segments exist now: no copy is repeated.
            let again = archive::restore(&fs, &from, "commitlog").await.unwrap();
            assert_eq!(again.segments, 0);
        });
        check_restarts(world, facts, 1, place);
    };
    let crash = Crash { name: "archive", kind, shards: 1, step: 1 };
    crash_everywhere(crash, |_, _| (), write_with_archive, check);
}

#[test]
fn a_crash_at_every_io_leaves_all_that_was_acknowledged_in_the_log_and_its_archive() {
    archive_survives(CrashKind::Kill);
    archive_survives(CrashKind::PowerCutLosingAll);
}

#[test]
fn segments_stay_while_they_cannot_be_archived() {
    let world = world(74);
    let count = |world: &World, part: &str| {
        let files = world.disk("n1").list();
        files.iter().filter(|p| p.contains(part) && p.ends_with(".log")).count()
    };
    let kept: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = kept.clone();
    run_in(&world, move |rt| {
        let told = told.clone();
        async move {
            let options = StoreOptions {
                commitlog_archive_directory: Some("archive".to_owned()),
                ..options(&rt)
            };
            let (store, _) = Store::open(rt.clone(), options, schema()).await.unwrap();
            let told = told.clone();
            store
                .env()
                .on_failure(move |failure| told.lock().unwrap().push(format!("{failure:?}")));
            rt.fs().remove_dir_all("archive").await.unwrap();
            write(&store, &insert(1, 1, "v", 1)).await.unwrap();
            store.drain().await.unwrap();
        }
    });
    assert_eq!((count(&world, "/commitlog/"), count(&world, "/archive/")), (1, 0));
    let told = kept.lock().unwrap().clone();
    assert!(told.iter().any(|f| f.starts_with("Archive(")), "{told:?}");
    // The next start archives it, then it is removed.
    run_in(&world, |rt| async move {
        let options = StoreOptions {
            commitlog_archive_directory: Some("archive".to_owned()),
            ..options(&rt)
        };
        let (store, _) = Store::open(rt.clone(), options, schema()).await.unwrap();
        store.drain().await.unwrap();
    });
    assert_eq!((count(&world, "/commitlog/"), count(&world, "/archive/")), (0, 1));
}
