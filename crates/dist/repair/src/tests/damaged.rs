//! A replica with a damaged file: repairs bring back what is lost of it, and let it go.

use std::time::Duration;

use dist_testing::Replicas;
use dist_testing::table::{TABLE, insert};
use rt::{Buf, OpenOptions};
use stdx::Token;
use store::VerifyOptions;

use super::nodes::{Nodes, Options, full};
use crate::{RepairOptions, RepairState};

const KEYS: i32 = 40;

/// Flips the bits of one byte in the middle of a file.
async fn damage(rt: &rt::Rt, path: &str) {
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = rt.fs().open(path, options).await.unwrap();
    let at = file.len().await.unwrap() / 2;
    let byte = !file.read_exact_at(at, 1).await.unwrap().as_slice()[0];
    file.write_at(Buf::from(vec![byte]), at).await.1.unwrap();
}

/// Damages the file of the first node, and waits until what can be read of it is in others.
fn damaged() -> Nodes {
    let nodes = Nodes::start(&Options { shards: vec![1, 1, 1], ..Options::new(71) });
    let rows =
        (0..KEYS).map(|pk| (insert(pk, 1, &format!("{pk} ").repeat(400), 10), vec![1, 2, 3]));
    nodes.write_all(&rows.collect::<Vec<_>>());
    (1..=3).for_each(|n| nodes.flush(n));
    nodes.run_on(nodes.node(1, 0), |node| async move {
        let store = node.coordinator.store().clone();
        let files = store.files_of_partition(TABLE, &1_i32.to_be_bytes()).await.unwrap();
        damage(&node.rt, &files[0].0).await;
        let found = store.verify(TABLE, &VerifyOptions::default()).await.unwrap();
        assert_eq!(found.len(), 1);
        while !store.damaged_files().iter().all(|file| file.is_salvaged) {
            node.rt.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(store.damaged_files().len(), 1);
    });
    nodes
}

fn is_damaged(nodes: &Nodes) -> bool {
    !nodes.replica(1, 0).1.damaged_files().is_empty()
}

fn wait(nodes: &Nodes, seconds: u64) {
    nodes.run_on(nodes.node(1, 0), move |node| async move {
        node.rt.sleep(Duration::from_secs(seconds)).await;
    });
}

#[test]
fn a_repair_brings_back_what_a_damaged_file_has_lost_and_lets_it_go() {
    let nodes = damaged();
    assert!(nodes.check_equal().is_err(), "something is lost");
    // Clocks differ: this one may have begun before.
    let status = nodes.repair(2, full());
    assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
    nodes.check_equal().unwrap();
    wait(&nodes, 20);
    assert!(is_damaged(&nodes));
    // Of a part of the ring.
    let part = RepairOptions { ranges: vec![(Token(0), Token::MAX)], ..full() };
    let status = nodes.repair(1, part);
    assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
    wait(&nodes, 20);
    assert!(is_damaged(&nodes));
    let status = nodes.repair(3, full());
    assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
    nodes.world.run_until(|| !is_damaged(&nodes), Duration::from_secs(60)).unwrap();
    nodes.check_equal().unwrap();
    let (_, store) = nodes.replica(1, 0);
    nodes.run_on(nodes.node(1, 0), move |_| async move {
        let options = VerifyOptions { extended: true, ..VerifyOptions::default() };
        assert_eq!(store.verify(TABLE, &options).await.unwrap(), []);
    });
}
