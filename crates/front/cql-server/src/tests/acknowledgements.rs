//! Requests that arrive in pieces are acknowledged before their rest, writes after their commit.

use super::cluster_of_shards::{Remote, client};
use super::memory::{PORT, number, start};
use super::*;

#[test]
fn only_an_incomplete_request_is_acknowledged_early() {
    let world = World::new(5, WorldOptions::default());
    let node = start(&world, 1, settings());
    let address = SocketAddr::new(world.ip("n1"), PORT);
    world.run_for(Duration::from_secs(1));
    let count = || number(&node, "cql_early_acknowledgements_total");
    for version in [V4, V5] {
        let before = count();
        let pieces = Rc::new(Cell::new(0));
        let seen = pieces.clone();
        client(&world, "c1", move |rt| async move {
            let mut remote = Remote::connect_as(&rt, address, version).await;
            for _ in 0..10 {
                remote.query("SELECT key FROM system.local").await.unwrap().rows();
            }
            // In one segment, and in three.
            for length in [10_000, 300_000] {
                let text = format!("SELECT key FROM system.local -- {}", "x".repeat(length));
                let bytes = remote.encode(&text);
                for piece in bytes.chunks(bytes.len() / 5 + 1) {
                    remote.write(piece).await;
                    rt.sleep(Duration::from_millis(100)).await;
                    seen.set(seen.get() + 1);
                }
                remote.receive().await.unwrap().rows();
                remote.query("SELECT key FROM system.local").await.unwrap().rows();
            }
        });
        assert_eq!(pieces.get(), 10);
        assert_eq!(count() - before, 8, "{version}: after each piece but the last of each request");
    }
}

/// INV-connection-1: in batch mode the commit waits for the disk, and so does the answer.
#[test]
fn a_write_is_answered_after_its_commit_only() {
    run(|rt| async move {
        let batch = |options: &mut StoreOptions| options.sync = store::SyncMode::Batch;
        let server = node_with(&rt, settings(), &Meshes::new(1), batch).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let query = "INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'x')";
        let parameters = QueryParameters::new(Consistency::One);
        client.send(1, &Request::Query { query, parameters });
        poll_fn(|cx| {
            client.connection.turn(cx);
            Poll::Ready(())
        })
        .await;
        let mut other = Client::ready(&server, V4).await;
        let read = other.must("SELECT v FROM ks.t WHERE k = 1").await.rows();
        assert_eq!(read.rows, [[Some(b"x".to_vec())]], "it was applied in its first turn");
        assert!(client.connection.output().is_empty(), "answered before the disk has it");
        assert_eq!(client.receive().await.body, Body::Void);
    });
}
