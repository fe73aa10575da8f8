//! Each level reaches the replicas it must, and fails with the right numbers.

use std::cell::Cell;
use std::rc::Rc;

use cluster::Consistency::{self, All, Any, EachQuorum, LocalOne, LocalQuorum, One, Quorum};
use dist_testing::host;
use request::{ReplicaError, RequestError, WindowSettings, WriteType};

use super::nodes::{Nodes, Options, TIMEOUT, millis};
use super::table::insert;
use crate::{ReplicatedError, ReplicationSettings};

fn request(result: Result<(), ReplicatedError>) -> RequestError {
    match result {
        Err(ReplicatedError::Request(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn timeout(consistency: Consistency, received: u32, block_for: u32) -> RequestError {
    let write_type = WriteType::Simple;
    RequestError::WriteTimeout { consistency, received, block_for, write_type }
}

fn unavailable(consistency: Consistency, required: u32, alive: u32) -> RequestError {
    RequestError::Unavailable { consistency, required, alive }
}

#[test]
fn writes_of_every_level_reach_all_replicas_that_are_there() {
    let trace = |seed: u64| {
        let nodes = Nodes::start(&Options::new(seed));
        let levels = [One, Quorum, All, LocalQuorum, EachQuorum, LocalOne, Any];
        for (pk, level) in (0..).zip(levels.iter().cycle().take(35)) {
            let by = 1 + (pk % 3) as u8;
            nodes.write(by, *level, pk, &format!("{level:?}")).unwrap();
        }
        nodes.run(100);
        let expected = nodes.rows(1);
        assert_eq!(expected.len(), 35);
        assert_eq!((nodes.rows(2), nodes.rows(3)), (expected.clone(), expected));
        assert_eq!(nodes.hints(), []);
        for n in 1..=3 {
            assert_eq!(nodes.count_of(n, "coordinator_writes_in_flight"), 0);
            assert_eq!(nodes.count_of(n, "coordinator_write_bytes_in_flight"), 0);
            assert_eq!(nodes.count_of(n, "coordinator_writes_lingering"), 0);
        }
        nodes.world.trace_hash()
    };
    for seed in 0..5 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
}

#[test]
fn nothing_is_sent_when_too_few_replicas_are_alive() {
    let nodes = Nodes::start(&Options::new(1));
    nodes.set_down(2, true);
    nodes.set_down(3, true);
    assert_eq!(request(nodes.write(1, Quorum, 1, "a")), unavailable(Quorum, 2, 1));
    assert_eq!(request(nodes.write(1, All, 1, "a")), unavailable(All, 3, 1));
    assert_eq!(request(nodes.write(1, LocalQuorum, 1, "a")), unavailable(LocalQuorum, 2, 1));
    nodes.run(100);
    for n in 1..=3 {
        assert!(nodes.rows(n).is_empty(), "n{n}");
    }
    assert_eq!(nodes.hints(), []);
    assert_eq!(nodes.count_of(1, "coordinator_write_unavailables_total"), 3);
    nodes.write(1, One, 2, "b").unwrap();
    assert_eq!(nodes.hints(), [host(2), host(3)], "the dead ones get hints at once");
    assert_eq!((nodes.rows(1).len(), nodes.rows(2).len()), (1, 0));
    assert_eq!(nodes.count_of(1, "coordinator_writes_in_flight"), 0);
}

#[test]
fn a_cut_network_is_a_timeout_and_the_silent_get_hints_at_the_deadline() {
    for seed in 0..4 {
        let nodes = Nodes::start(&Options::new(seed));
        nodes.connect(1);
        nodes.cut(1, 2);
        nodes.cut(1, 3);
        let began = nodes.world.now();
        assert_eq!(request(nodes.write(1, Quorum, 1, "a")), timeout(Quorum, 1, 2));
        let took = nodes.world.now().since(began);
        assert!(took >= TIMEOUT && took < TIMEOUT + millis(20), "seed {seed}: {took:?}");
        assert_eq!(nodes.hints(), [host(2), host(3)]);
        nodes.world.heal_all();
        nodes.run(10_000);
        nodes.connect(1);
        nodes.cut(1, 3);
        assert_eq!(request(nodes.write(1, All, 3, "c")), timeout(All, 2, 3));
        assert_eq!(nodes.hints().len(), 3);
        assert_eq!(nodes.count_of(1, "coordinator_write_timeouts_total"), 2);
        nodes.write(1, Quorum, 4, "d").unwrap();
        assert_eq!(nodes.hints().len(), 3, "answered, and not silent for long enough yet");
        assert_eq!(nodes.count_of(1, "coordinator_writes_lingering"), 1);
        nodes.run(600);
        assert_eq!(nodes.hints()[3..], [host(3)]);
        assert_eq!(nodes.count_of(1, "coordinator_writes_lingering"), 0);
    }
}

#[test]
fn a_late_acknowledgement_spares_the_hint() {
    let nodes = Nodes::start(&Options::new(3));
    nodes.connect(1);
    nodes.set_latency(3, 1, 300_000..300_001);
    let began = nodes.world.now();
    nodes.write(1, Quorum, 1, "a").unwrap();
    assert!(nodes.world.now().since(began) < millis(100));
    nodes.run(1000);
    assert_eq!(nodes.hints(), []);
    nodes.set_latency(3, 1, 600_000..600_001);
    nodes.write(1, Quorum, 2, "a").unwrap();
    nodes.run(1000);
    assert_eq!(nodes.hints(), [host(3)], "too late");
}

#[test]
fn killed_replicas_fail_a_write_before_its_deadline() {
    let nodes = Nodes::start(&Options::new(4));
    nodes.connect(1);
    nodes.kill(2);
    nodes.kill(3);
    let began = nodes.world.now();
    let error = request(nodes.write(1, Quorum, 1, "a"));
    let RequestError::WriteFailure { received: 1, block_for: 2, mut failures, .. } = error else {
        panic!("{error:?}")
    };
    failures.sort_by_key(|(host, _)| *host);
    let down = ReplicaError::NodeDown;
    assert_eq!(failures[..], [(host(2), down), (host(3), down)]);
    assert!(nodes.world.now().since(began) < TIMEOUT);
    assert_eq!(nodes.hints().len(), 2);
    nodes.write(1, One, 2, "a").unwrap();
    nodes.restart(2);
    nodes.run(6000);
    nodes.write(1, Quorum, 3, "b").unwrap();
}

#[test]
fn any_is_met_by_a_hint_and_only_where_hints_are_kept() {
    let options = Options { replication: super::table::simple("1"), ..Options::new(5) };
    let nodes = Nodes::start(&options);
    for n in 2..=3 {
        nodes.set_down(n, true);
    }
    let mut hinted = 0;
    for pk in 0..30 {
        let is_own = nodes.write(1, One, pk, "x").is_ok();
        nodes.write(1, Any, pk, "x").unwrap();
        hinted += usize::from(!is_own);
    }
    assert!(hinted > 5 && nodes.hints().len() == hinted, "{hinted}");
    let refused = || (0..30).filter(|pk| nodes.write(1, Any, *pk, "x").is_err()).count();
    nodes.fill_hints();
    assert_eq!((refused(), nodes.hints().len()), (hinted, hinted), "found full when stored");
    nodes.hints_off();
    assert_eq!(refused(), hinted);
}

#[test]
fn one_node_of_another_datacenter_passes_a_write_on() {
    for seed in 0..4 {
        let nodes = Nodes::start(&Options::two_datacenters(seed));
        for (pk, level) in (0..).zip([LocalQuorum, EachQuorum, All, Quorum]) {
            nodes.write(1, level, pk, "x").unwrap();
            nodes.write(3, level, pk + 10, "y").unwrap();
        }
        nodes.run(100);
        for n in 1..=4 {
            assert_eq!(nodes.rows(n).len(), 8, "seed {seed} n{n}");
        }
        let forwards: i64 = (1..=4).map(|n| nodes.count_of(n, "replica_forwards_total")).sum();
        assert_eq!(forwards, 8, "one for each write");
        assert_eq!(nodes.hints(), []);
        nodes.set_down(4, true);
        let (consistency, datacenter) = (EachQuorum, "dc2".into());
        let error = RequestError::UnavailableIn { consistency, datacenter, required: 2, alive: 1 };
        assert_eq!(request(nodes.write(1, EachQuorum, 20, "x")), error);
        assert_eq!(request(nodes.write(3, LocalQuorum, 20, "x")), unavailable(LocalQuorum, 2, 1));
        nodes.write(1, LocalQuorum, 20, "x").unwrap();
        nodes.set_down(4, false);
        nodes.run(100);
        assert_eq!((nodes.rows(3).len(), nodes.rows(4).len()), (9, 8));
        // The forwarding node is dead, which is not known yet: the other one is sent to.
        nodes.kill(3);
        for pk in 30..40 {
            nodes.write(1, Quorum, pk, "z").unwrap();
        }
        nodes.run(1000);
        assert_eq!(nodes.rows(4).len(), 18, "seed {seed}");
    }
}

#[test]
fn what_the_forwarding_nodes_target_misses_is_hinted_by_the_coordinator() {
    let nodes = Nodes::start(&Options::two_datacenters(9));
    nodes.connect(1);
    nodes.connect(3);
    for (a, b) in [(3, 4), (1, 4)] {
        nodes.cut(a, b);
    }
    let mut received = [0; 5];
    for pk in 10..22 {
        match request(nodes.write(1, EachQuorum, pk, "x")) {
            RequestError::WriteTimeout { received: n, block_for: 4, .. } => {
                received[n as usize] += 1;
            }
            error => panic!("{error:?}"),
        }
    }
    assert!(received[2] > 0 && received[3] > 0 && received[2] + received[3] == 12);
    let hints = |n| nodes.hints().iter().filter(|h| **h == host(n)).count();
    assert_eq!((hints(4), hints(3)), (12, received[2]), "silent itself, or it was passed nothing");
}

#[test]
fn a_write_goes_on_when_its_client_has_gone() {
    let nodes = Nodes::start(&Options::new(6));
    nodes.connect(1);
    nodes.cut(1, 3);
    let polled = Rc::new(Cell::new(false));
    let seen = polled.clone();
    nodes.run_on(nodes.shard(1, 0), |shard| async move {
        let order = shard.order(All, vec![insert(1, "a", 1_000)]);
        let write = shard.coordinator.writer().write_replicated(order);
        let soon = shard.rt.now() + millis(20);
        seen.set(shard.rt.timeout(soon, write).await.is_err());
    });
    assert!(polled.get());
    assert_eq!(nodes.count_of(1, "coordinator_writes_abandoned_total"), 1);
    nodes.run(600);
    assert_eq!((nodes.rows(2).contains_key(&1), nodes.hints()), (true, vec![host(3)]));
    assert_eq!(nodes.count_of(1, "coordinator_writes_in_flight"), 0);
}

/// New writes wait for room, but less long than a write may take.
fn quick_stall() -> ReplicationSettings {
    let settings = settings_of(7);
    let replica_window = WindowSettings { stall: millis(100), ..settings.replica_window };
    ReplicationSettings { replica_window, ..settings }
}

#[test]
fn old_answered_writes_make_room_and_unanswered_ones_do_not() {
    let settings = ReplicationSettings { writes_in_flight_max: 3, ..quick_stall() };
    let nodes = Nodes::start(&Options { settings, ..Options::new(7) });
    nodes.connect(1);
    nodes.cut(1, 3);
    for pk in 1..=10 {
        nodes.write(1, Quorum, pk, "a").unwrap();
    }
    assert_eq!(nodes.count_of(1, "coordinator_writes_in_flight"), 3);
    assert_eq!(nodes.hints().len(), 7, "ended early, with hints");
    assert_eq!(nodes.count_of(1, "coordinator_writes_cut_short_total"), 7);
    let waiting: Vec<_> = (0..5)
        .map(|pk| {
            nodes.spawn(nodes.shard(1, 0), |shard| async move {
                let order = shard.order(All, vec![insert(20 + pk, "b", 1_000)]);
                shard.coordinator.writer().write_replicated(order).await
            })
        })
        .collect();
    nodes.run(50);
    let refused = waiting.iter().filter(|w| {
        matches!(&*w.borrow(), Some(Err(ReplicatedError::Overloaded(text))) if text.contains("3"))
    });
    assert_eq!(refused.count(), 2);
    assert_eq!(nodes.count_of(1, "coordinator_writes_shed_total"), 2);
    nodes.run(600);
    assert!(waiting.iter().all(|w| w.borrow().is_some()));
    nodes.write(1, Quorum, 30, "c").unwrap();

    let settings = ReplicationSettings { write_bytes_in_flight_max: 5500, ..quick_stall() };
    let nodes = Nodes::start(&Options { settings, ..Options::new(7) });
    nodes.write(1, All, 0, &"x".repeat(9000)).unwrap();
    nodes.cut(1, 3);
    for pk in 1..=4 {
        nodes.write(1, Quorum, pk, &"x".repeat(1500)).unwrap();
    }
    assert_eq!(nodes.count_of(1, "coordinator_writes_in_flight"), 2, "of 1500 bytes each");
}

#[test]
fn rows_lie_on_the_replicas_of_their_token_and_on_those_that_will_be() {
    for seed in 0..4 {
        let base = Options { replication: super::table::simple("2"), ..Options::new(seed) };
        let nodes = Nodes::start(&Options { joining: Some(3), ..base });
        let mut pending = 0;
        for pk in 0..60 {
            let level = [One, Quorum, All][pk as usize % 3];
            nodes.write(1 + (pk % 2) as u8, level, pk, "x").unwrap();
        }
        nodes.run(100);
        let rows: Vec<_> = (1..=3).map(|n| nodes.rows(n)).collect();
        let snapshot = nodes.shard(1, 0).snapshot();
        let placements = snapshot.placements_of_table(super::table::TABLE).unwrap();
        for pk in 0..60 {
            let replicas = placements.replicas(insert(pk, "", 1).token);
            pending += replicas.pending_len();
            for n in 1..=3 {
                let is_there = rows[usize::from(n) - 1].contains_key(&pk);
                let is_wanted = replicas.position(host(n)).is_some();
                assert_eq!(is_there, is_wanted, "seed {seed} {pk} on n{n}");
            }
        }
        assert!(pending > 0);
        // A quorum of the natural ones is both; the pending one comes on top.
        nodes.connect(1);
        nodes.cut(1, 3);
        let is_pending = |pk: &i32| placements.replicas(insert(*pk, "", 1).token).pending_len() > 0;
        let pk = (60..).find(is_pending).unwrap();
        assert_eq!(request(nodes.write(1, Quorum, pk, "x")), timeout(Quorum, 2, 3));
        let pk = (60..).find(|pk| !is_pending(pk)).unwrap();
        nodes.write(1, Quorum, pk, "x").unwrap();
    }
}

#[test]
fn placements_are_made_anew_when_members_change_and_not_for_every_epoch() {
    // INV-coordinator-3.
    let nodes = Nodes::start(&Options::new(1));
    let topology = |shard: &super::nodes::Shard| {
        let cluster = shard.coordinator.cluster().unwrap();
        cluster.topology(&shard.snapshot(), super::table::TABLE)
    };
    let shard = nodes.shard(1, 0);
    let first = topology(&shard).unwrap();
    nodes.set_schema(1, 6, false);
    assert!(topology(&shard).is_none());
    assert!(!shard.coordinator.is_replicated(&shard.snapshot(), super::table::TABLE));
    nodes.set_schema(1, 7, true);
    assert!(Rc::ptr_eq(&first, &topology(&shard).unwrap()));
    assert!(shard.coordinator.is_replicated(&shard.snapshot(), super::table::TABLE));
    let batches = shard.snapshot().schema.table("system", "batches").unwrap().id;
    assert!(!shard.coordinator.is_replicated(&shard.snapshot(), batches));
    nodes.remove_member(1, 3);
    let after = topology(&shard).unwrap();
    assert!(!Rc::ptr_eq(&first, &after));
    assert_eq!(after.placements.replicas(insert(1, "", 1).token).len(), 2);
    nodes.remove_member(1, 2);
    assert!(!shard.coordinator.is_replicated(&shard.snapshot(), super::table::TABLE));
}

fn settings_of(seed: u64) -> ReplicationSettings {
    Options::new(seed).settings
}

#[test]
fn a_stopping_coordinator_hints_what_is_not_acknowledged_and_takes_no_more() {
    let nodes = Nodes::start(&Options::new(8));
    nodes.connect(1);
    nodes.cut(1, 3);
    nodes.write(1, Quorum, 1, "a").unwrap();
    assert_eq!(nodes.hints(), []);
    nodes.run_on(nodes.shard(1, 0), |shard| async move { shard.coordinator.stop().await });
    assert_eq!(nodes.hints(), [host(3)]);
    let refused = nodes.write(1, Quorum, 2, "b");
    assert!(matches!(refused, Err(ReplicatedError::Store(store::StoreError::Stopping))));
}
