//! Batches over several nodes: all or nothing, whichever node dies.

use std::collections::BTreeMap;

use cluster::Consistency::{self, All, One, Quorum};
use cluster::MemberState;
use dist_testing::host;
use request::{RequestError, WriteType};

use super::nodes::{Nodes, Options, TIMEOUT};
use super::table::insert;
use crate::{ReplicatedError, ReplicatedWrite};

/// Rows of one batch.
const ROWS: i32 = 5;

fn batch(
    nodes: &Nodes,
    number: i32,
    consistency: Consistency,
) -> impl FnOnce(super::nodes::Shard) -> ReplicatedWrite + use<> {
    let (batch_id, value) = (nodes.batch_id(), format!("batch {number}"));
    move |shard| {
        let rows = (0..ROWS).map(|i| insert(number * ROWS + i, &value, 1_000));
        let order = shard.order(consistency, rows.collect());
        ReplicatedWrite { write_type: WriteType::Batch, logged: true, batch_id, ..order }
    }
}

fn write(nodes: &Nodes, by: u8, number: i32, level: Consistency) -> Result<(), ReplicatedError> {
    let order = batch(nodes, number, level);
    nodes.run_on(nodes.any_shard(by), |shard| async move {
        let order = order(shard.clone());
        shard.coordinator.writer().write_replicated(order).await
    })
}

/// How many whole batches there are, or which one is not whole.
fn check_atomic(rows: &BTreeMap<i32, String>) -> Result<usize, String> {
    let mut found: BTreeMap<i32, i32> = BTreeMap::new();
    for pk in rows.keys() {
        *found.entry(pk / ROWS).or_default() += 1;
    }
    match found.iter().find(|(_, n)| **n != ROWS) {
        Some((number, n)) => Err(format!("{n} of {ROWS} rows of batch {number}")),
        None => Ok(found.len()),
    }
}

#[test]
fn a_logged_batch_is_everywhere_and_its_log_is_empty_afterwards() {
    for seed in 0..4 {
        let nodes = Nodes::start(&Options::new(seed));
        for number in 0..6 {
            write(&nodes, 1 + (number % 3) as u8, number, Quorum).unwrap();
        }
        nodes.run(100);
        for n in 1..=3 {
            assert_eq!(check_atomic(&nodes.rows(n)), Ok(6), "seed {seed} n{n}");
            assert_eq!(nodes.logged(n), 0, "seed {seed} n{n}");
        }
        let logged: i64 = (1..=3).map(|n| nodes.count_of(n, "batchlog_writes_total")).sum();
        assert_eq!(logged, 12, "on two nodes each");
        nodes.run(30_000);
        let replays: i64 = (1..=3).map(|n| nodes.count_of(n, "batchlog_replays_total")).sum();
        assert_eq!(replays, 0);
    }
}

#[test]
fn an_unlogged_batch_has_no_log_and_one_answer() {
    let nodes = Nodes::start(&Options::new(3));
    let result = nodes.run_on(nodes.any_shard(2), |shard| async move {
        let rows = (0..20).map(|pk| insert(pk, "x", 1_000)).collect();
        let order = shard.order(All, rows);
        let order = ReplicatedWrite { write_type: WriteType::UnloggedBatch, ..order };
        shard.coordinator.writer().write_replicated(order).await
    });
    assert!(result.is_ok());
    for n in 1..=3 {
        assert_eq!(nodes.rows(n).len(), 20);
        assert_eq!(nodes.count_of(n, "batchlog_writes_total"), 0);
        assert_eq!(nodes.count_of(n, "coordinator_writes_in_flight"), 0);
    }
}

#[test]
fn a_batch_that_cannot_be_logged_is_not_written() {
    // INV-batch-1.
    let nodes = Nodes::start(&Options::new(4));
    nodes.connect(1);
    for number in 0..8 {
        write(&nodes, 1, number, All).unwrap();
    }
    nodes.cut(1, 2);
    nodes.cut(1, 3);
    let result = write(&nodes, 1, 11, One);
    let Err(ReplicatedError::Request(error)) = result else { panic!("{result:?}") };
    let (received, block_for, write_type) = (0, 2, WriteType::BatchLog);
    let consistency = Consistency::Two;
    let expected = RequestError::WriteTimeout { consistency, received, block_for, write_type };
    assert_eq!(error, expected);
    nodes.world.heal_all();
    nodes.set_down(2, true);
    nodes.set_down(3, true);
    let result = write(&nodes, 1, 12, One);
    let Err(ReplicatedError::Request(error)) = result else { panic!("{result:?}") };
    let (required, alive) = (2, 0);
    assert_eq!(error, RequestError::Unavailable { consistency, required, alive });
    nodes.run(100);
    assert_eq!(check_atomic(&nodes.rows(1)), Ok(8), "nothing of the two batches");
    nodes.set_down(2, false);
    nodes.run(8000);
    write(&nodes, 1, 13, Quorum).unwrap();
    assert_eq!(check_atomic(&nodes.rows(1)), Ok(9), "one other node is enough for the log");
}

/// Batches under way when their coordinator dies; gives how many replicas had a part only then.
fn coordinator_dies(seed: u64) -> (usize, u64) {
    let nodes = Nodes::start(&Options::new(seed));
    write(&nodes, 1, 0, All).unwrap();
    for n in 2..=3 {
        // Shards of a node have connections of their own, which now differ.
        nodes.set_latency(1, n, 100..20_000);
    }
    let waiting: Vec<_> = (1..=20)
        .map(|number| {
            let order = batch(&nodes, number, Quorum);
            nodes.spawn(nodes.shard(1, 0), |shard| async move {
                shard.rt.sleep(std::time::Duration::from_millis(number as u64)).await;
                let order = order(shard.clone());
                shard.coordinator.writer().write_replicated(order).await
            })
        })
        .collect();
    nodes.run(10 + nodes.world.random_u64() % 40);
    nodes.kill(1);
    if seed.is_multiple_of(3) {
        nodes.kill(2);
        nodes.restart(2);
    }
    nodes.run(5);
    let partial = (2..=3).filter(|n| check_atomic(&nodes.rows(*n)).is_err()).count();
    nodes.run(100);
    nodes.restart(1);
    nodes.run(60_000);
    // A replay is done when a replica has its part, or a hint for it.
    nodes.deliver_hints();
    let acknowledged = waiting.iter().filter(|w| matches!(&*w.borrow(), Some(Ok(())))).count();
    // A batch that a quorum had is out of its log; what its coordinator had not sent to the third
    // died with it. So any two nodes have all of it.
    let of_pair = |a: u8, b: u8| {
        let mut rows = nodes.rows(a);
        rows.extend(nodes.rows(b));
        check_atomic(&rows)
    };
    let expected = of_pair(2, 3).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert!(expected > acknowledged.max(1) - 1, "seed {seed}: {expected} of {acknowledged}");
    for (n, other) in [(1, 2), (2, 3), (3, 1)] {
        assert_eq!(of_pair(n, other), Ok(expected), "seed {seed} n{n} and n{other}");
        assert_eq!(nodes.logged(n), 0, "seed {seed} n{n}");
    }
    (partial, nodes.world.trace_hash())
}

#[test]
fn a_logged_batch_is_whole_or_nowhere_when_its_coordinator_dies() {
    let mut partial = 0;
    for seed in 0..16 {
        let first = coordinator_dies(seed);
        partial += first.0;
        if seed < 3 {
            assert_eq!(first, coordinator_dies(seed), "seed {seed}");
        }
    }
    assert!(partial > 3, "batches were cut in the middle {partial} times");
}

#[test]
fn a_batch_whose_replica_was_away_is_replayed_with_a_hint() {
    let nodes = Nodes::start(&Options::new(5));
    nodes.connect(1);
    for number in 10..18 {
        write(&nodes, 1, number, All).unwrap();
    }
    // Its coordinator sees the log stored and dies before anybody else has a row.
    for n in 2..=3 {
        nodes.set_latency(n, 1, 50_000..50_001);
    }
    let order = batch(&nodes, 1, All);
    nodes.spawn(nodes.shard(1, 0), |shard| async move {
        let order = order(shard.clone());
        shard.coordinator.writer().write_replicated(order).await
    });
    nodes.run(30);
    nodes.kill(1);
    assert_eq!((nodes.logged(2), nodes.logged(3)), (1, 1));
    assert_eq!(check_atomic(&nodes.rows(2)), Ok(8));
    nodes.set_down(1, true);
    nodes.fail_first_flush();
    nodes.run(12_000 + TIMEOUT.as_millis() as u64 * 4);
    assert_eq!(nodes.logged(2) + nodes.logged(3), 1, "one hint was not durable");
    nodes.run(12_000);
    assert!(nodes.hints_flushed() >= 3);
    for n in 2..=3 {
        assert_eq!((check_atomic(&nodes.rows(n)), nodes.logged(n)), (Ok(9), 0), "n{n}");
    }
    let hints = nodes.hints().len();
    assert_eq!(hints, 15, "each row for the dead one, by both, and once more");
}

#[test]
fn a_batch_is_kept_while_a_replica_has_neither_its_rows_nor_hints() {
    // INV-batch-2.
    let nodes = Nodes::start(&Options::new(6));
    nodes.connect(1);
    for number in 10..18 {
        write(&nodes, 1, number, All).unwrap();
    }
    for n in 2..=3 {
        nodes.set_latency(n, 1, 50_000..50_001);
    }
    let order = batch(&nodes, 1, All);
    nodes.spawn(nodes.shard(1, 0), |shard| async move {
        let order = order(shard.clone());
        shard.coordinator.writer().write_replicated(order).await
    });
    nodes.run(30);
    nodes.kill(1);
    nodes.set_down(1, true);
    nodes.fill_hints();
    nodes.run(40_000);
    assert_eq!((nodes.logged(2), nodes.logged(3)), (1, 1), "nobody could keep it for n1");
    assert_eq!(nodes.hints().len(), 0);
    nodes.empty_hints();
    nodes.run(20_000);
    assert_eq!((nodes.logged(2), nodes.logged(3)), (0, 0));
    assert_eq!(nodes.hints().len(), 10);
}

#[test]
fn the_checker_sees_a_batch_that_is_not_whole() {
    let mut rows: BTreeMap<i32, String> = (0..ROWS * 3).map(|pk| (pk, String::new())).collect();
    assert_eq!(check_atomic(&rows), Ok(3));
    rows.remove(&7);
    assert_eq!(check_atomic(&rows), Err("4 of 5 rows of batch 1".to_owned()));
}

/// Begins batches at n1, which dies when their logs are stored and no node has a row.
fn leave_behind(nodes: &Nodes, count: i32) {
    nodes.connect(1);
    for number in 20..28 {
        write(nodes, 1, number, All).unwrap();
    }
    for n in 2..=3 {
        nodes.set_latency(n, 1, 50_000..50_001);
    }
    for number in 1..=count {
        let order = batch(nodes, number, All);
        nodes.spawn(nodes.shard(1, 0), |shard| async move {
            let order = order(shard.clone());
            shard.coordinator.writer().write_replicated(order).await
        });
    }
    nodes.run(30);
    nodes.kill(1);
    assert_eq!((nodes.logged(2), nodes.logged(3)), (count as usize, count as usize));
}

/// Runs until one of the entries of n2 is gone.
fn until_one_is_replayed(nodes: &Nodes, count: usize) {
    let began = nodes.shard(2, 0).rt.now();
    while nodes.logged(2) == count {
        nodes.run(50);
        assert!(nodes.shard(2, 0).rt.now().since(began) < TIMEOUT * 60, "none is replayed");
    }
}

#[test]
fn batches_with_a_silent_replica_are_replayed_several_at_a_time() {
    let nodes = Nodes::start(&Options::new(8));
    leave_behind(&nodes, 12);
    // No failure detector reports n1 as dead: each batch waits for it as long as a write may.
    until_one_is_replayed(&nodes, 12);
    nodes.run(TIMEOUT.as_millis() as u64 * 3);
    assert_eq!(nodes.logged(2), 0);
    assert_eq!(check_atomic(&nodes.rows(2)), Ok(20));
}

#[test]
fn replays_keep_to_their_throttle() {
    let left_after_a_second = |bytes_per_second| {
        let nodes = Nodes::start(&Options::new(9));
        leave_behind(&nodes, 12);
        nodes.set_down(1, true);
        for shard in nodes.all_shards(2) {
            shard.coordinator.batches().set_batch_replay_throttle(bytes_per_second);
        }
        until_one_is_replayed(&nodes, 12);
        nodes.run(1_000);
        let left = nodes.logged(2);
        nodes.run(60_000);
        assert_eq!(nodes.logged(2), 0, "in the end");
        left
    };
    assert_eq!(left_after_a_second(0), 0);
    // Three nodes of which n2 has two shards: some hundred bytes per second and shard.
    assert!(left_after_a_second(3 * 2 * 200) > 0);
}

#[test]
fn a_replay_by_command_takes_what_was_left_behind_and_waits_for_it() {
    let nodes = Nodes::start(&Options::new(11));
    leave_behind(&nodes, 12);
    nodes.set_down(1, true);
    let replay = |nodes: &Nodes| {
        nodes.run_on(nodes.shard(2, 0), |shard| async move {
            let snapshot = shard.snapshot();
            shard.coordinator.batches().replay_abandoned(&snapshot).await
        })
    };
    // A coordinator may still be at work on them.
    assert_eq!(replay(&nodes).batches, 0);
    assert_eq!(nodes.logged(2), 12);
    // Just when they count as abandoned, before the background task looks again.
    nodes.run(TIMEOUT.as_millis() as u64 * 2);
    let logged = nodes.logged(2) as u64;
    let done = replay(&nodes);
    assert_eq!((done.batches, done.left, nodes.logged(2)), (logged, 0, 0));
    assert!(logged > 0, "the background task was faster");
}

/// n2 hands its log over, as the node that leaves does.
fn hand_over(nodes: &Nodes, takers: &[u8]) -> Result<u64, String> {
    let takers: Vec<_> = takers.iter().map(|n| host(*n)).collect();
    nodes.run_on(nodes.shard(2, 0), |shard| async move {
        let snapshot = shard.snapshot();
        shard.coordinator.batches().hand_over_batches(&snapshot, &takers).await
    })
}

#[test]
fn a_node_that_leaves_hands_its_batches_to_others() {
    let nodes = Nodes::start(&Options::new(10));
    leave_behind(&nodes, 12);
    for n in 2..=3 {
        nodes.set_state(n, 2, MemberState::LeaveHandover);
        nodes.set_down(1, true);
    }
    nodes.kill(3);
    let error = hand_over(&nodes, &[1, 3]).unwrap_err();
    assert!(error.contains("cannot hand a logged batch"), "{error}");
    assert_eq!(nodes.logged(2), 12, "what nobody takes stays");
    nodes.run(40_000);
    assert_eq!(nodes.logged(2), 12, "it replays nothing any more: nobody would listen soon");
    nodes.restart(3);
    nodes.set_state(3, 2, MemberState::LeaveHandover);
    nodes.run(2_000);
    assert_eq!(hand_over(&nodes, &[1, 3]), Ok(12));
    assert_eq!(nodes.logged(2), 0);
    nodes.kill(2);
    nodes.remove_member(3, 2);
    nodes.run(60_000);
    assert_eq!((check_atomic(&nodes.rows(3)), nodes.logged(3)), (Ok(20), 0), "n3 replayed them");
}

#[test]
fn a_node_that_is_about_to_go_keeps_no_batches() {
    let nodes = Nodes::start(&Options::new(11));
    nodes.connect(1);
    nodes.set_state(2, 2, MemberState::LeaveHandover);
    let result = write(&nodes, 1, 1, Quorum);
    let Err(ReplicatedError::Request(error)) = result else { panic!("{result:?}") };
    assert!(matches!(error, RequestError::WriteFailure { .. }), "{error:?}");
    assert_eq!(nodes.logged(2), 0);
    nodes.set_state(1, 2, MemberState::LeaveHandover);
    write(&nodes, 1, 2, Quorum).unwrap();
    assert_eq!(nodes.count_of(2, "batchlog_writes_total"), 0);
}
