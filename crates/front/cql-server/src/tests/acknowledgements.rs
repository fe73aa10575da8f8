//! Requests that arrive in pieces are acknowledged before their rest.

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
