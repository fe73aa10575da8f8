//! Promises without records: what they save, and that no crash, eviction, stop or newcomer forgets one.

use std::time::Duration;

use dist_testing::host;
use paxos::Ballot;
use paxos::Scope::Global;
use paxos::acceptor::{Permit, Promise, Rejection, Reply, Request};

use super::super::nodes::{Nodes, Options, Shard};
use super::super::table::{TABLE, simple};

/// Number of promises with records that a test needs before others have none.
const FIRST: i32 = 8;

fn now(nodes: &Nodes, n: u8) -> u64 {
    u64::try_from(nodes.shard(n, 0).rt.wall().0).unwrap()
}

fn prepare(nodes: &Nodes, n: u8, pk: i32, micros: u64) -> Reply<std::sync::Arc<[u8]>> {
    let ballot = Ballot::new(micros, Global, 1 << 63);
    nodes.run_on(nodes.any_shard(n), move |shard: Shard| async move {
        let (snapshot, key) = (shard.snapshot(), pk.to_be_bytes());
        let prepare = Request::Prepare { ballot, write: true };
        let asked = shard.coordinator.ask_acceptor(&snapshot, (TABLE, &key), prepare).await;
        asked.unwrap().unwrap()
    })
}

fn promised(reply: Reply<std::sync::Arc<[u8]>>) -> Promise<std::sync::Arc<[u8]>> {
    match reply {
        Reply::Promise(promise) if promise.permit == Permit::Promised => promise,
        other => panic!("no promise: {other:?}"),
    }
}

fn newer(reply: &Reply<std::sync::Arc<[u8]>>) -> Ballot {
    match reply {
        Reply::Rejected { why: Rejection::Newer(newer), .. } => *newer,
        other => panic!("not rejected: {other:?}"),
    }
}

/// A node of one shard among three, which promises without records now.
fn ready(seed: u64) -> Nodes {
    let nodes = Nodes::start(&Options { nodes: vec![(1, "dc1"); 3], ..Options::new(seed) });
    warm(&nodes, 2, -1_000..0);
    nodes
}

fn warm(nodes: &Nodes, n: u8, keys: std::ops::Range<i32>) {
    for shard in 0..nodes.all_shards(n).len() {
        let own = |pk: &i32| {
            let owner = {
                let token = codec::token_of(&pk.to_be_bytes());
                nodes.shard(n, 0).coordinator.shard_map().shard_of(TABLE, token)
            };
            usize::from(owner.0) == shard
        };
        for pk in keys.clone().filter(own).take(usize::try_from(FIRST).unwrap()) {
            promised(prepare(nodes, n, pk, now(nodes, n)));
        }
    }
    nodes.run(100);
}

#[test]
fn promises_wait_for_no_sync_and_a_power_cut_forgets_none() {
    let nodes = ready(21);
    let logged = nodes.count_of(2, "commitlog_syncs_total");
    for pk in 0..20 {
        promised(prepare(&nodes, 2, pk, now(&nodes, 2)));
    }
    assert_eq!(nodes.count_of(2, "commitlog_syncs_total"), logged);
    let at = now(&nodes, 2);
    nodes.power_cut_losing_all(2);
    nodes.restart(2);
    // Everything up to the horizon counts as promised, also where nothing was.
    let known = newer(&prepare(&nodes, 2, 7, at - 1));
    assert!(known.micros() >= at && known.micros() < at + 2_000_000, "{known:?}");
    assert_eq!(newer(&prepare(&nodes, 2, 500, at - 1)), known);
    let promise = promised(prepare(&nodes, 2, 7, known.micros() + 1));
    assert_eq!(promise.promised_write, known, "a read has to look whether a write is on its way");
    // A later start knows it from the file, also when nothing was promised since.
    nodes.power_cut_losing_all(2);
    nodes.restart(2);
    assert!(newer(&prepare(&nodes, 2, 501, at)) >= known);
}

#[test]
fn a_clean_stop_leaves_promises_in_rows_and_closes_no_other_partition() {
    let nodes = ready(22);
    let at = now(&nodes, 2);
    for pk in 0..20 {
        promised(prepare(&nodes, 2, pk, at));
    }
    nodes.run_on(nodes.shard(2, 0), |shard| async move { shard.coordinator.stop().await });
    nodes.power_cut_losing_all(2);
    nodes.restart(2);
    for pk in 0..20 {
        assert_eq!(newer(&prepare(&nodes, 2, pk, at - 1)).micros(), at, "{pk}");
    }
    let other = promised(prepare(&nodes, 2, 500, at - 1));
    assert!(other.promised_write.is_zero());
}

#[test]
fn what_is_dropped_from_memory_is_in_its_row() {
    let nodes = ready(23);
    let at = now(&nodes, 2);
    let many = i32::try_from(4 * crate::ACCEPTORS_OF_TESTS).unwrap();
    for pk in 0..many {
        promised(prepare(&nodes, 2, pk, at));
    }
    assert!(nodes.shard(2, 0).coordinator.acceptors() < 3 * crate::ACCEPTORS_OF_TESTS);
    for pk in 0..many {
        assert_eq!(newer(&prepare(&nodes, 2, pk, at - 1)).micros(), at, "{pk}");
    }
}

#[test]
fn a_clock_that_was_set_back_takes_the_horizon_with_it() {
    let nodes = ready(24);
    let at = now(&nodes, 2);
    promised(prepare(&nodes, 2, 1, at));
    nodes.set_clock_skew(2, -30_000_000);
    // Its promises have records until the horizon is where the clock is.
    warm(&nodes, 2, 1_000..2_000);
    let logged = nodes.count_of(2, "commitlog_syncs_total");
    promised(prepare(&nodes, 2, 2, now(&nodes, 2)));
    assert_eq!(nodes.count_of(2, "commitlog_syncs_total"), logged);
    nodes.power_cut_losing_all(2);
    nodes.restart(2);
    // The old promise is in its row; others are not closed for half a minute.
    assert_eq!(newer(&prepare(&nodes, 2, 1, at - 1)).micros(), at);
    promised(prepare(&nodes, 2, 3, now(&nodes, 2) + 2_000_000));
}

#[test]
fn a_newcomer_takes_over_what_was_promised_without_records() {
    for forgets in [false, true] {
        let options = Options { replication: simple("1"), joining: Some(2), ..Options::new(25) };
        let nodes = Nodes::start(&options);
        for n in [1, 3] {
            warm(&nodes, n, -1_000..0);
        }
        let at = now(&nodes, 1);
        for pk in 0..60 {
            for n in [1, 3] {
                promised(prepare(&nodes, n, pk, at));
            }
        }
        if forgets {
            for n in [1, 3] {
                nodes.power_cut_losing_all(n);
                nodes.restart(n);
            }
        }
        nodes.run_on(nodes.shard(2, 0), |shard| async move {
            let patience = Duration::from_secs(5);
            shard
                .coordinator
                .lwt()
                .take_over_registers(host(2), None, false, patience)
                .await
                .unwrap()
        });
        nodes.power_cut_losing_all(2);
        nodes.restart(2);
        let refused =
            (0..60).filter(|pk| matches!(prepare(&nodes, 2, *pk, at - 1), Reply::Rejected { .. }));
        let refused = refused.count();
        // Forgotten promises are in no row, so the promise applies to all partitions.
        assert!(refused > 1 && (refused == 60) == forgets, "{refused}");
    }
}
