//! Reads of a coordinator that has missed a movement.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::Consistency::Quorum;
use cluster::{ClusterSnapshot, MemberState};
use data::command::{Partitions, ReadCommand};
use dist_testing::host;
use request::RequestError;
use stdx::Epoch;

use super::nodes::{Nodes, Options, millis};
use super::table::{Collect, TABLE, read_all, simple};
use crate::{ReplicatedRead, SelectLimits};

type Read = Rc<RefCell<Option<Result<BTreeMap<Vec<u8>, String>, RequestError>>>>;

fn learn(nodes: &Nodes, n: u8, snapshot: &ClusterSnapshot) {
    for shard in nodes.all_shards(n) {
        shard.learn(snapshot.with_local(host(n)).unwrap());
    }
}

/// n1 is a replica of everything with n2 and n3, as far as it knows. Meanwhile n4 has taken its part
/// of the ranges; what was acknowledged since then is not on n3. Gives what n1 has to learn.
fn moved(seed: u64) -> (Nodes, ClusterSnapshot, Vec<i32>) {
    let nodes = Nodes::start(&Options {
        nodes: vec![(1, "dc1"), (2, "dc1"), (3, "dc1"), (2, "dc1")],
        joining: Some(4),
        ..Options::new(seed)
    });
    let mut now = (*nodes.shard(1, 0).snapshot()).clone();
    let mut old = now.clone();
    old.epoch = Epoch(4);
    old.members.remove(&host(4));
    learn(&nodes, 1, &old);
    for (epoch, state) in [(6, MemberState::JoinHandover), (7, MemberState::Normal)] {
        now.epoch = Epoch(epoch);
        Arc::make_mut(now.members.get_mut(&host(4)).unwrap()).state = state;
        for n in 2..=4 {
            learn(&nodes, n, &now);
            // Each checks its metadata between two entries.
            nodes.write(n, cluster::Consistency::Any, 1000, "looked").unwrap();
        }
    }
    for n in [2, 4] {
        nodes.cut(3, n);
    }
    let acknowledged: Vec<i32> =
        (0..40).filter(|pk| nodes.write(2, Quorum, *pk, "x").is_ok()).collect();
    nodes.world.heal_all();
    // So that n1 asks n3, and itself.
    nodes.set_down(2, true);
    (nodes, now, acknowledged)
}

fn read(nodes: &Nodes, pk: i32) -> Read {
    nodes.spawn(nodes.shard(1, 0), move |shard| async move {
        let command = ReadCommand {
            partitions: Partitions::Key(pk.to_be_bytes().to_vec()),
            ..read_all(TABLE)
        };
        let order = ReplicatedRead {
            snapshot: shard.snapshot(),
            consistency: Quorum,
            deadline: shard.rt.now() + Duration::from_secs(2),
            page_timeout: None,
            rows_wanted: 10,
            limits: SelectLimits { rows_per_partition: u32::MAX },
        };
        let mut found = Collect::default();
        let result = shard.coordinator.reads().read_replicated(&command, &order, &mut found).await;
        result.map(|_| found.rows)
    })
}

#[test]
fn a_coordinator_that_missed_a_movement_learns_of_it_before_it_shows_anything() {
    let (nodes, now, acknowledged) = moved(11);
    assert!(acknowledged.len() > 10, "{acknowledged:?}");
    let reads: Vec<(i32, Read)> = acknowledged.iter().map(|pk| (*pk, read(&nodes, *pk))).collect();
    nodes.run(20);
    for (pk, read) in &reads {
        // It waits, or it shows the row; a read repair that is refused is no reason to fail.
        let read = read.borrow();
        let shown = read.as_ref().map(|rows| rows.as_ref().map(BTreeMap::len));
        assert!(matches!(shown, None | Some(Ok(1))), "{pk} is acknowledged: {shown:?}");
    }
    learn(&nodes, 1, &now);
    nodes.run(500);
    for (pk, read) in &reads {
        let rows = read.borrow().clone().expect("it is answered").unwrap();
        assert_eq!(rows.len(), 1, "{pk}");
    }
    let refused: i64 = (2..=4).map(|n| nodes.count_of(n, "replica_reads_outdated_total")).sum();
    assert!(refused > 0);
    assert!(nodes.count_of(1, "coordinator_reads_replanned_total") > 0);
}

#[test]
fn a_coordinator_that_cannot_learn_of_a_movement_fails_its_reads() {
    let (nodes, _, acknowledged) = moved(12);
    let reads: Vec<(i32, Read)> = acknowledged.iter().map(|pk| (*pk, read(&nodes, *pk))).collect();
    nodes.run(u64::try_from(millis(2_500).as_millis()).unwrap());
    let mut failed = 0;
    for (pk, read) in &reads {
        match read.borrow().clone().expect("it is answered") {
            Ok(rows) => assert_eq!(rows.len(), 1, "{pk}"),
            Err(RequestError::ReadTimeout { received: 0, block_for: 2, .. }) => failed += 1,
            Err(other) => panic!("{pk}: {other:?}"),
        }
    }
    assert!(failed > 0);
}

#[test]
fn a_coordinator_that_has_not_heard_that_a_range_moves_learns_of_it_first() {
    let nodes = Nodes::start(&Options {
        nodes: vec![(1, "dc1"), (2, "dc1"), (3, "dc1"), (2, "dc1")],
        joining: Some(4),
        ..Options::new(13)
    });
    let now = (*nodes.shard(1, 0).snapshot()).clone();
    let (mut old, mut joining) = (now.clone(), now);
    old.epoch = Epoch(4);
    old.members.remove(&host(4));
    learn(&nodes, 1, &old);
    joining.epoch = Epoch(5);
    for n in 2..=4 {
        learn(&nodes, n, &joining);
    }
    // n1 would ask itself and one other, of which one may give the range away.
    let reads: Vec<Read> = (0..40).map(|pk| read(&nodes, pk)).collect();
    nodes.run(20);
    let answered = |reads: &[Read]| reads.iter().filter(|r| r.borrow().is_some()).count();
    let refused = |n| nodes.count_of(n, "replica_reads_outdated_total");
    let before = answered(&reads);
    // With a factor of 3 the fourth node takes a part of the ring, not all of it.
    assert!(before > 0 && before < 40, "{before}");
    assert!((2..=4).map(refused).sum::<i64>() > 0);
    learn(&nodes, 1, &joining);
    nodes.run(500);
    assert_eq!(answered(&reads), 40);
    assert!(reads.iter().all(|r| r.borrow().as_ref().is_some_and(Result::is_ok)));
}

#[test]
fn a_coordinator_that_missed_steps_elsewhere_reads_what_did_not_move() {
    let nodes = Nodes::start(&Options {
        nodes: vec![(1, "dc1"), (2, "dc1"), (2, "dc1"), (3, "dc1")],
        replication: simple("1"),
        joining: Some(3),
        ..Options::new(14)
    });
    let mut now = (*nodes.shard(1, 0).snapshot()).clone();
    let placements = now.placements_of_table(TABLE).unwrap();
    let mut old = now.clone();
    old.epoch = Epoch(4);
    old.members.remove(&host(3));
    learn(&nodes, 1, &old);
    for (epoch, state) in [(6, MemberState::JoinHandover), (7, MemberState::Normal)] {
        now.epoch = Epoch(epoch);
        Arc::make_mut(now.members.get_mut(&host(3)).unwrap()).state = state;
        (2..=4).for_each(|n| learn(&nodes, n, &now));
    }
    let moves = |pk: &i32| placements.replicas(codec::token_of(&pk.to_be_bytes())).is_moving();
    let (moved, stayed): (Vec<i32>, Vec<i32>) = (0..60).partition(moves);
    assert!(moved.len() > 5 && stayed.len() > 20, "{moved:?}");
    let refused =
        || (2..=4).map(|n| nodes.count_of(n, "replica_reads_outdated_total")).sum::<i64>();
    let start = |keys: &[i32]| keys.iter().map(|pk| read(&nodes, *pk)).collect::<Vec<Read>>();
    let answered = |reads: &[Read]| reads.iter().filter(|r| r.borrow().is_some()).count();
    // It lacks three steps, none of them of these ranges.
    let reads = start(&stayed);
    nodes.run(50);
    assert_eq!((answered(&reads), refused()), (stayed.len(), 0));
    assert!(reads.iter().all(|r| r.borrow().as_ref().is_some_and(Result::is_ok)));
    // Reads of the moved partitions wait until the node has learnt of the move.
    let reads = start(&moved);
    nodes.run(50);
    assert_eq!(answered(&reads), 0);
    assert!(refused() > 0);
    learn(&nodes, 1, &now);
    nodes.run(500);
    assert!(reads.iter().all(|r| r.borrow().as_ref().is_some_and(Result::is_ok)));
}
