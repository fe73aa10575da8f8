//! Operations: their cost, their errors when replicas are missing, and the state that survives a
//! restart.

use std::cell::RefCell;
use std::rc::Rc;

use cluster::Consistency::{All, Any, LocalSerial, Quorum, Serial};
use paxos::Scope::{Global, Local};
use paxos::acceptor::{Permit, Rejection, Reply, Request};
use paxos::{Accepted, Ballot};
use request::{RequestError, WriteType};

use stdx::Uuid;

use super::super::nodes::{Nodes, Options, Shard, TIMEOUT, millis};
use super::super::table::{TABLE, update};
use super::world::Cas;
use crate::{CasError, CasOutcome, RequestTrace};

/// Paxos messages that the other nodes have served.
fn served(nodes: &Nodes) -> i64 {
    (1..=3).map(|n| nodes.count_of(n, "replica_paxos_total")).sum()
}

fn applied(nodes: &Nodes, by: u8, pk: i32, expect: u64, new: u64) {
    let outcome = nodes.run_on(nodes.any_shard(by), |shard| async move {
        shard.cas(&mut Cas::new(pk, expect, new), Global, Quorum).await
    });
    assert_eq!(outcome.unwrap(), CasOutcome::Applied);
}

#[test]
fn replicas_write_down_their_part_of_a_traced_conditional_write() {
    type Written = Rc<RefCell<Vec<(u8, Vec<String>)>>>;
    let nodes = Nodes::start(&Options::new(1));
    let (written, id): (Written, _) = (Rc::default(), Uuid::from_u128(7));
    for n in 1..=3 {
        for shard in nodes.all_shards(n) {
            let written = written.clone();
            shard.coordinator.on_peer_trace(Rc::new(move |of, events| {
                assert_eq!(of, id);
                let events = events.into_iter().map(|event| event.activity).collect();
                written.borrow_mut().push((n, events));
            }));
        }
    }
    applied(&nodes, 1, 1, 0, 5);
    assert_eq!(written.borrow().len(), 0, "nothing is traced");
    let (outcome, said) = nodes.run_on(nodes.any_shard(1), move |shard| async move {
        let said: Rc<RefCell<Vec<String>>> = Rc::default();
        let own = said.clone();
        let trace = Rc::new(RequestTrace::new(id, move |text| own.borrow_mut().push(text)));
        let outcome = shard.cas_traced(&mut Cas::new(1, 5, 6), Global, Quorum, Some(trace)).await;
        let said = said.borrow().clone();
        (outcome, said)
    });
    assert_eq!(outcome.unwrap(), CasOutcome::Applied);
    // One step follows the other; how many replicas are asked and have answered by then is another matter.
    let mut steps = said.iter();
    for step in [
        "Preparing ",
        "Sending PAXOS_PREPARE_REQ message to /",
        "Processing response from /",
        "CAS precondition is met; proposing client-requested updates for ",
        "Sending PAXOS_PROPOSE_REQ message to /",
        "Processing response from /",
    ] {
        assert!(steps.any(|text| text.starts_with(step)), "{step}: {said:?}");
    }
    let count = |step: &str| said.iter().filter(|text| text.starts_with(step)).count();
    assert_eq!((count("Preparing "), count("CAS precondition ")), (1, 1), "{said:?}");
    assert_eq!(count("Promising ballot "), 1, "this node's own part: {said:?}");
    nodes.run(1_000);
    for n in [2, 3] {
        let of_node = |what: &str| {
            let written = written.borrow();
            let mut all = written.iter().filter(|(by, _)| *by == n).flat_map(|(_, e)| e);
            all.any(|event| event.starts_with(what))
        };
        for what in ["PAXOS_PREPARE_REQ message received from /", "Promising ballot "] {
            assert!(of_node(what), "n{n}: {what}: {written:?}");
        }
        let what = "Accepting and committing proposal ";
        assert!(of_node("PAXOS_PROPOSE_REQ message") && of_node(what), "n{n}: {written:?}");
    }
}

#[test]
fn an_uncontended_write_takes_two_round_trips_and_a_read_one() {
    let nodes = Nodes::start(&Options::new(1));
    for by in 1..=3 {
        nodes.connect(by);
        applied(&nodes, by, i32::from(by), 0, 5);
    }
    nodes.run(1_000);
    for (a, b) in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)] {
        nodes.set_latency(a, b, 20_000..20_001);
    }
    let timed = |what: &dyn Fn()| {
        let (began, before) = (nodes.world.now(), served(&nodes));
        what();
        let took = nodes.world.now().since(began);
        nodes.run(1_000);
        (took, served(&nodes) - before)
    };
    // Simulated time: round trips of 40 ms, and syncs.
    let (took, messages) = timed(&|| applied(&nodes, 1, 1, 5, 6));
    assert!(took >= millis(80) && took < millis(120), "{took:?}");
    assert_eq!(messages, 6, "prepare, conclude, prune, to two nodes each");
    let read = || {
        let seen = nodes.run_on(nodes.any_shard(2), |shard| async move {
            shard.read_serial(1, Global).await.unwrap()
        });
        assert_eq!(seen, [6, 0]);
    };
    let (took, messages) = timed(&read);
    assert!(took >= millis(40) && took < millis(80), "{took:?}");
    assert_eq!(messages, 2);
    let decided = || {
        let outcome = nodes.run_on(nodes.any_shard(1), |shard| async move {
            shard.cas(&mut Cas::new(1, 6, 7), Global, Any).await
        });
        assert_eq!(outcome.unwrap(), CasOutcome::Applied);
    };
    let (took, _) = timed(&decided);
    assert!(took >= millis(80) && took < millis(120), "{took:?}");
    // No read of another level is needed for it to be seen: all replicas have it.
    for n in 1..=3 {
        assert_eq!(nodes.rows(n)[&1], "7");
    }
    assert_eq!(nodes.count_of(1, "coordinator_cas_contentions_total"), 0);
}

#[test]
fn too_few_replicas_are_said_before_anything_is_begun() {
    let nodes = Nodes::start(&Options::new(2));
    nodes.set_down(3, true);
    let cas = |commit| {
        let result = nodes.run_on(nodes.any_shard(1), |shard| async move {
            shard.cas(&mut Cas::new(1, 0, 5), Global, commit).await
        });
        match result {
            Err(CasError::Request(error)) => Err(error),
            other => Ok(other.unwrap()),
        }
    };
    let unavailable = |consistency, required, alive| {
        Err(RequestError::Unavailable { consistency, required, alive })
    };
    assert_eq!(cas(All), unavailable(All, 3, 2));
    assert_eq!(cas(Quorum), Ok(CasOutcome::Applied));
    nodes.run(3_000);
    assert_eq!(nodes.hints().len(), 1, "for the one that is down");
    nodes.set_down(2, true);
    assert_eq!(cas(Quorum), unavailable(Serial, 2, 1));
    let before = served(&nodes);
    let read =
        nodes.run_on(nodes.any_shard(1), |s: Shard| async move { s.read_serial(1, Local).await });
    let Err(CasError::Request(error)) = read else { panic!("{read:?}") };
    assert_eq!(Err(error), unavailable(LocalSerial, 2, 1));
    assert_eq!(served(&nodes), before);
}

#[test]
fn silence_is_a_timeout_without_effect_or_an_unknown_one() {
    let nodes = Nodes::start(&Options::new(3));
    for by in 1..=3 {
        nodes.connect(by);
        applied(&nodes, by, 1, u64::from(by) - 1, u64::from(by));
    }
    // Nothing was proposed: the prepares are lost.
    nodes.cut(1, 2);
    nodes.cut(1, 3);
    let lost = nodes.run_on(nodes.any_shard(1), |shard| async move {
        shard.cas(&mut Cas::new(1, 3, 9), Global, Quorum).await
    });
    let Err(CasError::Request(error)) = lost else { panic!("{lost:?}") };
    let (consistency, write_type) = (Serial, WriteType::Cas);
    let expected =
        RequestError::WriteTimeout { consistency, received: 1, block_for: 2, write_type };
    assert_eq!(error, expected);
    nodes.world.heal_all();
    nodes.run(5_000);
    let seen = nodes.run_on(nodes.any_shard(2), |shard| async move {
        shard.read_serial(1, Global).await.unwrap()
    });
    assert_eq!(seen, [3, 0]);
}

#[test]
fn prunes_of_many_partitions_go_together_and_every_replica_forgets_what_all_have() {
    const WRITES: i32 = 300;
    let nodes = Nodes::start(&Options::new(6));
    for by in 1..=3 {
        nodes.connect(by);
    }
    let received = || nodes.count_of(2, "internode_received_messages_total");
    let (before, served_before) = (received(), served(&nodes));
    let clients: Vec<_> = (0..20)
        .map(|client| {
            nodes.spawn(nodes.shard(1, 0), move |shard| async move {
                for pk in (0..WRITES).filter(|pk| pk % 20 == client) {
                    let outcome = shard.cas(&mut Cas::new(pk, 0, 5), Global, Quorum).await;
                    assert_eq!(outcome.unwrap(), CasOutcome::Applied);
                }
            })
        })
        .collect();
    nodes.run(20_000);
    assert!(clients.iter().all(|client| client.borrow().is_some()));
    let writes = i64::from(WRITES);
    // A prune of each at both other nodes; a write whose proposal came late takes a second round.
    let by_replicas = served(&nodes) - served_before;
    assert!((6 * writes..6 * writes + 12).contains(&by_replicas), "{by_replicas}");
    // Two requests a write, and what is left are prunes.
    let prunes = received() - before - 2 * writes;
    assert!(prunes > 0 && prunes < writes / 4, "{prunes}");
    for pk in [0, 1, WRITES - 1] {
        for n in 1..=3 {
            let promised = nodes.run_on(nodes.any_shard(n), move |shard| async move {
                let now = u64::try_from(shard.rt.wall().0).unwrap();
                let ballot = Ballot::new(now, Global, 1 << 63);
                let request = Request::Prepare { ballot, write: false };
                let (snapshot, key) = (shard.snapshot(), pk.to_be_bytes());
                shard.coordinator.ask_acceptor(&snapshot, (TABLE, &key), request).await
            });
            let Reply::Promise(promise) = promised.unwrap().unwrap() else { panic!("no promise") };
            let committed = promise.committed.expect("a pruned commit keeps its ballot");
            assert_eq!((committed.value, promise.accepted), (None, None), "{pk} at n{n}");
        }
    }
}

#[test]
fn promises_and_accepted_values_outlive_a_power_cut() {
    let nodes = Nodes::start(&Options::new(4));
    let at = |micros: u64| {
        let now = u64::try_from(nodes.shard(2, 0).rt.wall().0).unwrap();
        Ballot::new(now - 1_000_000 + micros, Global, 1 << 63)
    };
    let (old, older, new) = (at(200), at(100), at(300));
    let ask = |request: Request<std::sync::Arc<[u8]>>| {
        nodes.run_on(nodes.any_shard(2), |shard| async move {
            let (snapshot, key) = (shard.snapshot(), 5i32.to_be_bytes());
            let asked = shard.coordinator.ask_acceptor(&snapshot, (TABLE, &key), request).await;
            asked.unwrap().unwrap()
        })
    };
    let value = update(5, super::super::table::VALUE, "55", old.timestamp());
    let promised = ask(Request::Prepare { ballot: old, write: true });
    assert!(matches!(promised, Reply::Promise(p) if p.accepted.is_none()));
    let proposal = Accepted::first(old, Some(value.into()));
    assert_eq!(ask(Request::Propose(proposal.clone())), Reply::Accepted { ballot: old });
    nodes.power_cut_losing_all(2);
    nodes.restart(2);
    let rejected = ask(Request::Prepare { ballot: older, write: true });
    assert_eq!(rejected, Reply::Rejected { ballot: older, why: Rejection::Newer(old) });
    let Reply::Promise(promise) = ask(Request::Prepare { ballot: new, write: true }) else {
        panic!("no promise")
    };
    assert_eq!((promise.permit, promise.accepted), (Permit::Promised, Some(proposal.clone())));
    assert_eq!(promise.promised_write, old);
    let commit = proposal.into_commit();
    let ballot = commit.ballot;
    assert_eq!(ask(Request::Commit(commit)), Reply::Committed { ballot });
    nodes.power_cut_losing_all(2);
    nodes.restart(2);
    // The commit's mutation was in the same append as its record.
    assert_eq!(nodes.rows(2)[&5], "55");
    assert_eq!(nodes.all_shards(2).iter().map(|s| s.coordinator.acceptors()).sum::<usize>(), 0);
}

#[test]
fn two_datacenters_agree_and_local_serial_asks_one() {
    let nodes = Nodes::start(&Options::two_datacenters(5));
    let count = |n: u8| nodes.count_of(n, "replica_paxos_total");
    let outcome = nodes.run_on(nodes.any_shard(1), |shard| async move {
        shard.cas(&mut Cas::new(1, 0, 5), Local, Quorum).await
    });
    assert_eq!(outcome.unwrap(), CasOutcome::Applied);
    nodes.run(1_000);
    let (near, far) = (count(2), count(3));
    assert_eq!((near, far), (3, 2), "the other datacenter gets the commit and the prune");
    for n in 1..=4 {
        assert_eq!(nodes.rows(n)[&1], "5");
    }
    let outcome = nodes.run_on(nodes.any_shard(3), |shard| async move {
        shard.cas(&mut Cas::new(1, 5, 6), Global, All).await
    });
    assert_eq!(outcome.unwrap(), CasOutcome::Applied);
    let seen = nodes.run_on(nodes.any_shard(2), |shard| async move {
        shard.read_serial(1, Global).await.unwrap()
    });
    assert_eq!(seen, [6, 0]);
}

#[test]
fn who_knows_an_older_electorate_plans_again_and_who_is_asked_too_early_catches_up() {
    let options = Options { joining: Some(3), ..Options::new(6) };
    let nodes = Nodes::start(&options);
    // A write while node 3 is pending needs it.
    applied(&nodes, 1, 1, 0, 5);
    nodes.run(1_000);
    assert_eq!(nodes.rows(3)[&1], "5");
    for n in [2, 3] {
        nodes.finish_joining(n, 3);
    }
    // Node 1 hears of it in a moment.
    let late = nodes.spawn(nodes.any_shard(1), |shard| async move {
        shard.cas(&mut Cas::new(1, 5, 6), Global, Quorum).await
    });
    nodes.run(100);
    assert!(late.borrow().is_none(), "the others refuse the old electorate");
    nodes.finish_joining(1, 3);
    nodes.run(1_000);
    assert_eq!(late.take().unwrap().unwrap(), CasOutcome::Applied);
    // Now node 1 is ahead of one of the others, which waits for the epoch before it promises.
    let options = Options { joining: Some(3), ..Options::new(7) };
    let nodes = Nodes::start(&options);
    for n in [1, 3] {
        nodes.finish_joining(n, 3);
    }
    nodes.cut(1, 3);
    let early = nodes.spawn(nodes.any_shard(1), |shard| async move {
        shard.cas(&mut Cas::new(1, 0, 6), Global, Quorum).await
    });
    nodes.run(200);
    assert!(
        early.borrow().is_none(),
        "node 2 does not vote in an electorate that it does not know"
    );
    nodes.finish_joining(2, 3);
    nodes.run(400);
    assert_eq!(early.take().unwrap().unwrap(), CasOutcome::Applied);
}

#[test]
fn an_unfinished_write_is_finished_by_the_next_read_unless_the_table_was_emptied_since() {
    for is_truncated in [false, true] {
        let nodes = Nodes::start(&Options::new(8));
        let wall = nodes.shard(1, 0).rt.wall();
        let ballot = Ballot::new(u64::try_from(wall.0).unwrap() - 1_000, Global, 1 << 63);
        let value = update(5, super::super::table::VALUE, "55", ballot.timestamp());
        let proposal = Accepted::first(ballot, Some(value.into()));
        // Its proposer died after a quorum had accepted.
        for n in [1, 2] {
            for request in
                [Request::Prepare { ballot, write: true }, Request::Propose(proposal.clone())]
            {
                nodes.run_on(nodes.any_shard(n), |shard| async move {
                    let (snapshot, key) = (shard.snapshot(), 5i32.to_be_bytes());
                    shard
                        .coordinator
                        .ask_acceptor(&snapshot, (TABLE, &key), request)
                        .await
                        .unwrap();
                });
            }
        }
        if is_truncated {
            for n in 1..=3 {
                nodes.truncate(n, wall);
            }
        }
        let seen = nodes.run_on(nodes.any_shard(3), |shard| async move {
            shard.read_serial(5, Global).await.unwrap()
        });
        assert_eq!(seen, if is_truncated { [0, 0] } else { [55, 0] });
        applied(&nodes, 2, 5, seen[0], 56);
        nodes.run(1_000);
        for n in 1..=3 {
            assert_eq!(nodes.rows(n)[&5], "56");
        }
    }
}

#[test]
fn of_those_who_are_refused_together_one_is_told_at_once_and_the_others_later() {
    let nodes = Nodes::start(&Options::new(9));
    nodes.connect(1);
    applied(&nodes, 1, 1, 0, 5);
    for (a, b) in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)] {
        nodes.set_latency(a, b, 5_000..5_001);
    }
    // Turns take 20 ms and more: that is measured.
    for _ in 0..20 {
        applied(&nodes, 1, 1, 5, 5);
    }
    let asked = nodes.world.now();
    let waiting: Vec<_> = (0..80)
        .map(|_| {
            nodes.spawn(nodes.shard(1, 0), |shard| async move {
                let result = shard.cas(&mut Cas::new(1, 5, 5), Global, Quorum).await;
                (shard.rt.now(), result)
            })
        })
        .collect();
    nodes.run(6_000);
    let (mut applied, mut at_once, mut later) = (0, 0, 0);
    for answer in waiting {
        let (at, result) = answer.take().unwrap();
        let took = at.since(asked);
        match result {
            Ok(_) => applied += 1,
            Err(CasError::Overloaded(_)) if took < millis(50) => at_once += 1,
            Err(CasError::Overloaded(_)) => {
                assert!(took >= TIMEOUT / 4 && took <= TIMEOUT, "{took:?}");
                later += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(at_once, 1);
    assert!(applied >= 10 && later >= 20, "{applied} applied, {later} refused later");
}
