use super::*;
use crate::tests::{Client, Meshes, V4, node, run, settings, show};
use std::sync::Arc;

fn truncated(snapshot: &ClusterSnapshot, table: TableId, at: WallMicros) -> Arc<ClusterSnapshot> {
    let mut after = snapshot.clone();
    let truncation = Truncation { truncated_at: at, ..Truncation::default() };
    after.truncations.insert(table, truncation);
    Arc::new(after)
}

#[test]
fn the_file_reads_back_and_anything_else_is_refused() {
    let known: Known = [(TableId(Uuid::from_u128(1)), WallMicros(5))].into();
    let bytes = encode(&known);
    assert_eq!(decode(&bytes), Some(known));
    assert_eq!(decode(b""), Some(Known::new()));
    for bad in ["x 5\n", "00000000-0000-0000-0000-000000000001\n", "\u{fffd}"] {
        assert_eq!(decode(bad.as_bytes()), None, "{bad}");
    }
    for cut in 1..bytes.len() - 2 {
        assert_eq!(decode(&bytes[..cut]), None, "{cut}");
    }
}

#[test]
fn an_entry_is_carried_out_once_over_restarts() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let inner = server.inner().clone();
        let table = inner.schema().table("ks", "t").unwrap().id;
        let snapshot = inner.membership.snapshot();
        server.apply_truncations("", &snapshot).await.unwrap();
        client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'old')").await;
        let at = rt.wall();
        let entry = truncated(&snapshot, table, at);
        assert!(!inner.truncations.is_done(table, at));
        server.apply_truncations("", &entry).await.unwrap();
        assert!(inner.truncations.is_done(table, at));
        assert!(client.must("SELECT * FROM ks.t").await.rows().rows.is_empty());
        client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'new')").await;
        server.apply_truncations("", &entry).await.unwrap();
        // As after a restart.
        *inner.truncations.recorded.borrow_mut() = None;
        inner.truncations.emptied.borrow_mut().clear();
        server.apply_truncations("", &entry).await.unwrap();
        let rows = client.must("SELECT v FROM ks.t").await.rows();
        assert_eq!(show(&rows), ["new"]);
        // The next one is another one.
        rt.sleep(std::time::Duration::from_millis(5)).await;
        server.apply_truncations("", &truncated(&entry, table, rt.wall())).await.unwrap();
        assert!(client.must("SELECT * FROM ks.t").await.rows().rows.is_empty());
    });
}

#[test]
fn a_truncation_after_one_of_a_clock_that_was_ahead_is_carried_out() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let inner = server.inner().clone();
        let table = inner.schema().table("ks", "t").unwrap().id;
        let snapshot = inner.membership.snapshot();
        assert_eq!(time_of(&snapshot, table, WallMicros(7)), WallMicros(7));
        let ahead = truncated(&snapshot, table, WallMicros(rt.wall().0 + 3_600_000_000));
        server.apply_truncations("", &ahead).await.unwrap();
        client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'old')").await;
        let next = time_of(&ahead, table, rt.wall());
        server.apply_truncations("", &truncated(&ahead, table, next)).await.unwrap();
        assert!(client.must("SELECT * FROM ks.t").await.rows().rows.is_empty());
    });
}

#[test]
fn what_was_decided_before_a_crash_is_carried_out_at_the_start() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let inner = server.inner().clone();
        let table = inner.schema().table("ks", "t").unwrap().id;
        let snapshot = inner.membership.snapshot();
        server.apply_truncations("", &snapshot).await.unwrap();
        client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'old')").await;
        *inner.truncations.recorded.borrow_mut() = None;
        server.apply_truncations("", &truncated(&snapshot, table, rt.wall())).await.unwrap();
        assert!(client.must("SELECT * FROM ks.t").await.rows().rows.is_empty());
    });
}

#[test]
fn a_node_without_the_file_takes_what_it_knows_as_carried_out() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        client.must("TRUNCATE ks.t").await;
        client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'new')").await;
        let inner = server.inner().clone();
        inner.truncations.emptied.borrow_mut().clear();
        server.apply_truncations("", &inner.membership.snapshot()).await.unwrap();
        assert_eq!(client.must("SELECT * FROM ks.t").await.rows().rows.len(), 1);
        // Its own truncations are not carried out a second time.
        client.must("TRUNCATE ks.t").await;
        client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'newer')").await;
        server.apply_truncations("", &inner.membership.snapshot()).await.unwrap();
        assert_eq!(client.must("SELECT * FROM ks.t").await.rows().rows.len(), 1);
    });
}
