//! Truncations of a node with its clients: entries, crashes, files that fail or are of earlier runs.

use super::*;
use ::truncation::{Runs, TruncationState, begin_truncations};
use cluster::Truncation;
use query::Timeout;
use std::cell::RefCell;
use stdx::{IoErrorKind, TableId};

/// The log has one entry more, a truncation.
fn truncated(snapshot: &ClusterSnapshot, table: TableId, at: WallMicros) -> Arc<ClusterSnapshot> {
    let mut after = snapshot.clone();
    after.epoch = Epoch(after.epoch.0 + 1);
    let truncation = Truncation { truncated_at: at, epoch: after.epoch, ..Truncation::default() };
    after.truncations.insert(table, truncation);
    Arc::new(after)
}

/// A node that has started, and a client of it.
async fn started(rt: &Rt) -> (CqlServer, Client) {
    let server = node(rt, settings(), &Meshes::new(1)).await;
    server.truncations().apply("", &server.executor().membership.snapshot()).await.unwrap();
    let client = Client::ready(&server, V4).await;
    (server, client)
}

async fn values(client: &mut Client) -> Vec<String> {
    show(&client.must("SELECT v FROM ks.t").await.rows())
}

async fn insert(client: &mut Client, value: &str) {
    client.must(&format!("INSERT INTO ks.t (k, c, v) VALUES (1, 1, '{value}')")).await;
}

#[test]
fn an_entry_is_carried_out_once() {
    run(|rt| async move {
        let (server, mut client) = started(&rt).await;
        client.with_table().await;
        let inner = server.inner().clone();
        let table = inner.query.schema().table("ks", "t").unwrap().id;
        let snapshot = inner.query.membership.snapshot();
        insert(&mut client, "old").await;
        let at = rt.wall();
        let entry = truncated(&snapshot, table, at);
        assert_eq!(server.truncations().state(table, at), TruncationState::Pending);
        server.truncations().apply("", &entry).await.unwrap();
        assert_eq!(server.truncations().state(table, at), TruncationState::Done);
        assert!(values(&mut client).await.is_empty());
        insert(&mut client, "new").await;
        server.truncations().apply("", &entry).await.unwrap();
        assert_eq!(values(&mut client).await, ["new"]);
        // An older time is not another one.
        let older = truncated(&snapshot, table, WallMicros(at.0 - 1));
        server.truncations().apply("", &older).await.unwrap();
        assert_eq!(values(&mut client).await, ["new"]);
        // The next one is another one.
        rt.sleep(std::time::Duration::from_millis(5)).await;
        server.truncations().apply("", &truncated(&entry, table, rt.wall())).await.unwrap();
        assert!(values(&mut client).await.is_empty());
    });
}

#[test]
fn a_truncation_after_one_of_a_clock_that_was_ahead_is_carried_out() {
    run(|rt| async move {
        let (server, mut client) = started(&rt).await;
        client.with_table().await;
        let inner = server.inner().clone();
        let table = inner.query.schema().table("ks", "t").unwrap().id;
        let snapshot = inner.query.membership.snapshot();
        let ahead = truncated(&snapshot, table, WallMicros(rt.wall().0 + 3_600_000_000));
        server.truncations().apply("", &ahead).await.unwrap();
        insert(&mut client, "old").await;
        // One microsecond later than the one before, as TRUNCATE chooses it.
        let next = WallMicros(ahead.truncations[&table].truncated_at.0 + 1);
        server.truncations().apply("", &truncated(&ahead, table, next)).await.unwrap();
        assert!(values(&mut client).await.is_empty());
    });
}

#[test]
fn an_entry_that_is_decided_after_its_time_takes_no_row() {
    run(|rt| async move {
        let (server, mut client) = started(&rt).await;
        client.with_table().await;
        let inner = server.inner().clone();
        let table = inner.query.schema().table("ks", "t").unwrap().id;
        let snapshot = inner.query.membership.snapshot();
        let within = inner.query.timeouts.get(Timeout::Truncate);
        for (share, takes) in [(7, true), (8, false)] {
            insert(&mut client, "before").await;
            let at = rt.wall();
            // The client got a timeout and wrote this; then a disk had room again.
            rt.sleep(within * share / 10).await;
            insert(&mut client, "after").await;
            let entry = truncated(&snapshot, table, at);
            server.truncations().apply("", &entry).await.unwrap();
            assert_eq!(values(&mut client).await.is_empty(), takes, "{share}");
            let state = server.truncations().state(table, at);
            assert_eq!(state == TruncationState::Done, takes, "{share}: {state:?}");
            // Nor later.
            server.truncations().apply("", &entry).await.unwrap();
            assert_eq!(values(&mut client).await.is_empty(), takes, "{share}");
        }
        // The next one is carried out.
        let at = rt.wall();
        server.truncations().apply("", &truncated(&snapshot, table, at)).await.unwrap();
        assert!(values(&mut client).await.is_empty());
        assert_eq!(server.truncations().state(table, at), TruncationState::Done);
    });
}

#[test]
fn an_entry_that_a_crash_cut_off_is_carried_out_at_the_start() {
    let world = World::new(12, WorldOptions::default());
    run_in(&world, |rt| async move {
        let (_server, mut client) = started(&rt).await;
        client.with_table().await;
        insert(&mut client, "old").await;
    });
    run_in(&world, |rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let inner = server.inner().clone();
        let table = inner.query.schema().table("ks", "t").unwrap().id;
        let entry = truncated(&inner.query.membership.snapshot(), table, rt.wall());
        server.truncations().apply("", &entry).await.unwrap();
        let mut client = Client::ready(&server, V4).await;
        assert!(values(&mut client).await.is_empty());
    });
}

#[test]
fn a_truncation_that_cannot_be_recorded_fails_is_retried_and_takes_no_newer_row() {
    for (is_flushed, is_retried) in [(false, false), (true, false), (true, true)] {
        let world = World::new(13, WorldOptions::default());
        let disk = world.disk("n1");
        run_in(&world, move |rt| async move {
            let (server, mut client) = started(&rt).await;
            client.with_table().await;
            insert(&mut client, "old").await;
            disk.set_failing_below(Some(("metadata/truncated", IoErrorKind::NoSpace)));
            let (code, text) = client.query("TRUNCATE ks.t").await.error();
            assert_eq!(code, ErrorCode::TruncateError);
            assert!(text.contains("cannot be recorded, which is retried"), "{text}");
            assert!(text.contains("metadata/truncated"), "{text}");
            assert!(values(&mut client).await.is_empty());
            insert(&mut client, "new").await;
            if is_retried {
                disk.set_failing_below(None);
                rt.sleep(Duration::from_secs(3)).await;
                let inner = server.inner();
                assert!(server.truncations().failed_count() == 0);
                let table = inner.query.schema().table("ks", "t").unwrap().id;
                let at = inner.query.membership.snapshot().truncations[&table].truncated_at;
                assert_eq!(server.truncations().state(table, at), TruncationState::Done);
            }
            if is_flushed {
                let store = server.executor().coordinator.store();
                // All segments of before would go.
                store.flush(None).await.unwrap();
                rt.sleep(Duration::from_secs(20)).await;
            }
        });
        world.disk("n1").set_failing_below(None);
        for start in 0..2 {
            run_in(&world, move |rt| async move {
                let (_server, mut client) = started(&rt).await;
                assert_eq!(values(&mut client).await, ["new"], "{is_flushed} {is_retried} {start}");
            });
        }
    }
}

#[test]
fn a_failed_write_anywhere_in_a_truncation_takes_no_newer_row_at_the_next_start() {
    let acknowledged: Rc<Cell<u32>> = Rc::default();
    for nth in 1..=12 {
        let world = World::new(14, WorldOptions::default());
        let disk = world.disk("n1");
        let (is_new, count) = (Rc::new(Cell::new(false)), acknowledged.clone());
        let seen = is_new.clone();
        run_in(&world, move |rt| async move {
            let (_server, mut client) = started(&rt).await;
            client.with_table().await;
            insert(&mut client, "old").await;
            disk.fail_nth_change(nth, IoErrorKind::NoSpace);
            let _ = client.query("TRUNCATE ks.t").await;
            disk.clear_faults();
            // A commit log whose sync failed rejects writes until the restart.
            let text = "INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'new')";
            is_new.set(client.query(text).await.body == Body::Void);
            count.set(count.get() + u32::from(is_new.get()));
        });
        run_in(&world, move |rt| async move {
            let (_server, mut client) = started(&rt).await;
            let found = values(&mut client).await;
            assert!(!seen.get() || found == ["new"], "failure {nth}: {found:?}");
        });
    }
    assert!(acknowledged.get() >= 5, "{acknowledged:?}");
}

#[test]
fn a_node_that_lost_the_file_takes_what_it_knows_as_carried_out() {
    let world = World::new(15, WorldOptions::default());
    run_in(&world, |rt| async move {
        let (server, mut client) = started(&rt).await;
        client.with_table().await;
        client.must("TRUNCATE ks.t").await;
        insert(&mut client, "new").await;
        server.executor().coordinator.store().flush(None).await.unwrap();
        rt.sleep(Duration::from_secs(20)).await;
        rt.fs().remove_file("/metadata/truncated").await.unwrap();
    });
    for _ in 0..2 {
        run_in(&world, |rt| async move {
            let (_server, mut client) = started(&rt).await;
            assert_eq!(values(&mut client).await, ["new"]);
        });
    }
}

/// An older copy of the file, as a restore of single files leaves it: truncations newer than it
/// were carried out.
#[test]
fn a_start_with_an_older_file_takes_no_newer_row() {
    let world = World::new(16, WorldOptions::default());
    run_in(&world, |rt| async move {
        let (server, mut client) = started(&rt).await;
        client.with_table().await;
        client.must("TRUNCATE ks.t").await;
        let older = rt.fs().read("/metadata/truncated", 1 << 20).await.unwrap();
        insert(&mut client, "old").await;
        client.must("TRUNCATE ks.t").await;
        insert(&mut client, "new").await;
        client.must("CREATE TABLE ks.later (k int PRIMARY KEY)").await;
        // Nothing is left in the commit log, which would know of the truncation.
        server.executor().coordinator.store().drain().await.unwrap();
        rt.fs().write_atomic("/metadata/truncated", older).await.unwrap();
    });
    for _ in 0..2 {
        run_in(&world, |rt| async move {
            let (_server, mut client) = started(&rt).await;
            assert_eq!(values(&mut client).await, ["new"]);
        });
    }
}

/// Like above, but the truncation is the log's last entry: it looks like one that a crash cut off.
#[test]
fn a_start_with_an_older_file_takes_no_newer_row_when_the_truncation_is_the_last_entry() {
    let world = World::new(17, WorldOptions::default());
    let older: Rc<RefCell<Vec<u8>>> = Rc::default();
    for number in 1..=5_u64 {
        let older = older.clone();
        run_in(&world, move |rt| async move {
            let base = cql_plan::system::system_schema();
            let opened = membership::log::open(&rt, "", &base).await.unwrap();
            if let Some(snapshot) = opened.snapshot {
                let runs = Runs { last: Some(number - 1), this: number };
                begin_truncations(&rt.fs(), "", &snapshot, runs).await.unwrap();
            }
            drop(opened.log);
            let (server, mut client) = started(&rt).await;
            match number {
                1 => {
                    client.with_table().await;
                    insert(&mut client, "old").await;
                }
                2 => {
                    assert_eq!(values(&mut client).await, ["old"]);
                    let file = rt.fs().read("/metadata/truncated", 1 << 20).await.unwrap();
                    *older.borrow_mut() = file;
                }
                3 => {
                    client.must("TRUNCATE ks.t").await;
                    insert(&mut client, "new").await;
                    // Nothing is left in the commit log, which would know of the truncation.
                    server.executor().coordinator.store().drain().await.unwrap();
                    let older = older.borrow().clone();
                    rt.fs().write_atomic("/metadata/truncated", older).await.unwrap();
                }
                _ => assert_eq!(values(&mut client).await, ["new"], "run {number}"),
            }
        });
    }
}
