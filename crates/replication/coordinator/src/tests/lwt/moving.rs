//! Rounds and registers when the replicas of a partition change, and when clocks disagree.

use std::time::Duration;

use cluster::Consistency::Quorum;
use cluster::TokenRange;
use dist_testing::host;
use paxos::Accepted;
use paxos::Ballot;
use paxos::Scope::Global;
use paxos::acceptor::{Rejection, Reply, Request};

use super::super::nodes::{Nodes, Options, Shard};
use super::super::table::{TABLE, VALUE, insert, simple, update};
use super::world::Cas;
use crate::CasOutcome;
use lwt::{Finished, Swept};

const PATIENCE: Duration = Duration::from_secs(5);

/// Has a node's acceptor accept a value, as a coordinator does that dies before it says so to anybody.
fn accept(nodes: &Nodes, n: u8, pk: i32, value: u64) {
    let now = u64::try_from(nodes.shard(n, 0).rt.wall().0).unwrap();
    let ballot = Ballot::new(now, Global, 1 << 63);
    let mutation = update(pk, VALUE, &value.to_string(), ballot.timestamp());
    let proposal = Accepted::first(ballot, Some(mutation.into()));
    let reply = nodes.run_on(nodes.any_shard(n), move |shard: Shard| async move {
        let (snapshot, key) = (shard.snapshot(), pk.to_be_bytes());
        let prepare = Request::Prepare { ballot, write: true };
        for request in [prepare, Request::Propose(proposal)] {
            let reply = shard.coordinator.ask_acceptor(&snapshot, (TABLE, &key), request).await;
            if let Some(Reply::Accepted { ballot }) = reply.unwrap() {
                return Some(ballot);
            }
        }
        None
    });
    assert_eq!(reply, Some(ballot));
}

fn read(nodes: &Nodes, by: u8, pk: i32) -> [u64; 2] {
    nodes.run_on(nodes.any_shard(by), move |shard: Shard| async move {
        shard.read_serial(pk, Global).await.unwrap()
    })
}

/// Partitions whose only replica is node 3 until node 2 has joined.
fn moving(nodes: &Nodes) -> Vec<i32> {
    let snapshot = nodes.shard(1, 0).snapshot();
    let placements = snapshot.placements_of_table(TABLE).unwrap();
    let is_moving = |pk: &i32| {
        let replicas = placements.replicas(insert(*pk, "x", 1).token);
        replicas.pending_len() > 0 && replicas.natural().all(|m| m.host_id == host(3))
    };
    (0..60).filter(is_moving).collect()
}

#[test]
fn a_value_that_the_old_replicas_accepted_outlives_their_going() {
    // INV-serial-5.
    for takes_over in [true, false] {
        let options = Options { replication: simple("1"), joining: Some(2), ..Options::new(7) };
        let nodes = Nodes::start(&options);
        let moving = moving(&nodes);
        assert!(moving.len() > 1, "{moving:?}");
        for pk in &moving {
            accept(&nodes, 3, *pk, 7);
        }
        if takes_over {
            for _ in 0..2 {
                let taken = nodes.run_on(nodes.shard(2, 0), |shard| async move {
                    shard
                        .coordinator
                        .lwt()
                        .take_over_registers(host(2), None, false, PATIENCE)
                        .await
                        .unwrap()
                });
                assert_eq!(taken, moving.len() as u64, "again is harmless");
            }
            // They are on the disk.
            nodes.power_cut_losing_all(2);
            nodes.restart(2);
        }
        for n in 1..=3 {
            nodes.finish_joining(n, 2);
        }
        // Without the registers the value is lost, which is what they are taken over for.
        let expect = if takes_over { [7, 0] } else { [0, 0] };
        for pk in &moving {
            assert_eq!(read(&nodes, 1, *pk), expect, "{pk}");
        }
    }
}

#[test]
fn a_newcomer_cannot_take_over_from_silent_replicas_and_says_so() {
    let options = Options { replication: simple("1"), joining: Some(2), ..Options::new(8) };
    let nodes = Nodes::start(&options);
    let take_over = |dead: Option<u8>, as_many_as_live| {
        nodes.run_on(nodes.shard(2, 0), move |shard: Shard| async move {
            let dead = dead.map(host);
            shard
                .coordinator
                .lwt()
                .take_over_registers(host(2), dead, as_many_as_live, PATIENCE)
                .await
        })
    };
    let refused = |dead| {
        let error = take_over(dead, false).unwrap_err();
        assert!(matches!(error, crate::HandoverError::TooFewReplicas { .. }), "{error}");
    };
    // One that others know to be dead is not asked, even when it looks alive from here.
    refused(Some(3));
    for n in [1, 3] {
        nodes.set_down(n, true);
    }
    refused(None);
    assert_eq!(take_over(None, true).unwrap(), 0);
}

#[test]
fn unfinished_rounds_of_a_range_are_finished_by_who_knows_of_them() {
    let nodes = Nodes::start(&Options::new(9));
    for n in 1..=3 {
        nodes.connect(n);
    }
    // One that a quorum has accepted, one that may have been chosen, one that is finished.
    for (n, pk) in [(1, 1), (2, 1), (1, 2)] {
        accept(&nodes, n, pk, 5);
    }
    let outcome = nodes.run_on(nodes.any_shard(1), |shard| async move {
        shard.cas(&mut Cas::new(3, 0, 6), Global, Quorum).await
    });
    assert_eq!(outcome.unwrap(), CasOutcome::Applied);
    nodes.run(1_000);
    let finish = |at: u8, range| {
        nodes.run_on(nodes.shard(3, 0), move |shard: Shard| async move {
            shard.coordinator.lwt().finish_rounds_at(host(at), range, PATIENCE).await.unwrap()
        })
    };
    let other = insert(9, "x", 1).token;
    let nothing = TokenRange { start: stdx::Token(other.0 - 1), end: other };
    assert_eq!(finish(1, nothing), Finished::default());
    let both = Finished { found: 2, failed: 0 };
    assert_eq!(finish(1, TokenRange::FULL), both);
    nodes.run(3_000);
    for n in 1..=3 {
        assert_eq!(finish(n, TokenRange::FULL), Finished::default(), "node {n}");
        let rows = nodes.rows(n);
        assert_eq!((rows[&1].as_str(), rows[&2].as_str(), rows[&3].as_str()), ("5", "5", "6"));
    }
}

#[test]
fn a_clock_that_is_ahead_or_behind_loses_no_acknowledged_write() {
    for micros in [30_000_000, -30_000_000] {
        let nodes = Nodes::start(&Options::new(10));
        for n in 1..=3 {
            nodes.connect(n);
        }
        nodes.set_clock_skew(1, micros);
        // Each is made by another clock than the one before.
        for (step, by) in [1_u8, 2, 1, 3, 2, 1].into_iter().enumerate() {
            let expect = step as u64;
            let outcome = nodes.run_on(nodes.any_shard(by), move |shard| async move {
                shard.cas(&mut Cas::new(1, expect, expect + 1), Global, Quorum).await
            });
            assert_eq!(outcome.unwrap(), CasOutcome::Applied, "step {step}");
        }
        nodes.run(3_000);
        for n in 1..=3 {
            assert_eq!(nodes.rows(n)[&1], "6", "what a plain read of node {n} sees");
        }
    }
}

#[test]
fn old_registers_that_say_nothing_are_deleted_and_all_get_there() {
    // INV-serial-6.
    let nodes = Nodes::start(&Options::new(11));
    for n in 1..=3 {
        nodes.connect(n);
    }
    let cas = |pk, expect, new| {
        let outcome = nodes.run_on(nodes.any_shard(1), move |shard: Shard| async move {
            shard.cas(&mut Cas::new(pk, expect, new), Global, Quorum).await
        });
        outcome.unwrap()
    };
    assert_eq!(cas(1, 0, 5), CasOutcome::Applied);
    // Leaves a promise and nothing else.
    assert_eq!(cas(2, 7, 5), CasOutcome::NotApplied);
    // One that a single replica has accepted.
    accept(&nodes, 2, 3, 9);
    nodes.run(3_000);
    let sweep = |age: Duration| {
        let mut all = Swept::default();
        for n in 1..=3 {
            for shard in nodes.all_shards(n) {
                let swept = nodes.run_on(shard, move |shard: Shard| async move {
                    shard.coordinator.lwt().sweep_registers(age).await.unwrap()
                });
                all.dropped += swept.dropped;
                all.settled += swept.settled;
            }
        }
        nodes.run(3_000);
        all
    };
    let second = Duration::from_secs(1);
    assert_eq!(sweep(Duration::from_secs(3_600)), Swept::default(), "they are too new");
    let Swept { dropped, settled } = sweep(second);
    assert_eq!(dropped, 3, "partition 1, on each replica");
    assert!(settled >= 2, "the other two partitions");
    // By now it is decided whether the value was chosen; later reads agree.
    let seen = read(&nodes, 1, 3);
    assert!(seen == [9, 0] || seen == [0, 0], "{seen:?}");
    nodes.run(3_000);
    let mut rows = dropped;
    for _ in 0..3 {
        rows += sweep(second).dropped;
    }
    assert!(rows >= 9, "{rows} rows of three partitions on three replicas");
    assert_eq!(sweep(second), Swept::default(), "nothing is left");
    // The data stays, and a ballot from before the floor is refused.
    assert_eq!(cas(1, 5, 6), CasOutcome::Applied);
    let now = u64::try_from(nodes.shard(1, 0).rt.wall().0).unwrap();
    // No newer than the clock when it is set back below.
    let ballot = Ballot::new(now - 21 * 3_600_000_000, Global, 1 << 63);
    let is_refused = || {
        let reply = nodes.run_on(nodes.any_shard(1), move |shard: Shard| async move {
            let (snapshot, key) = (shard.snapshot(), 8_i32.to_be_bytes());
            let prepare = Request::Prepare { ballot, write: true };
            shard.coordinator.ask_acceptor(&snapshot, (TABLE, &key), prepare).await.unwrap()
        });
        assert!(
            matches!(&reply, Some(Reply::Rejected { why: Rejection::Newer(_), .. })),
            "{reply:?}"
        );
    };
    is_refused();
    // Also by a clock that was set back, and by the next run.
    nodes.set_clock_skew(1, -20 * 3_600_000_000);
    is_refused();
    nodes.power_cut_losing_all(1);
    nodes.restart(1);
    is_refused();
}
