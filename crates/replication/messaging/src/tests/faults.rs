//! Faults: lost connections, one-way partitions, crashes, restarts; and all of them at random.

use super::harness::*;
use super::ledger::{End, SharedLedger};
use crate::*;
use internode::Verb;
use rt::sim::{World, WorldOptions};
use std::time::Duration;

fn ends(ledger: &SharedLedger, token: u64) -> Vec<End> {
    ledger.borrow().0[&token].ends.iter().map(|(_, end)| end.clone()).collect()
}

fn warm(w: &World, node: &TestNode, ledger: &SharedLedger, client: &Client, to: u8) {
    let to = outgoing(&node.rt, to, Verb::Read, 900);
    send(client, ledger, 1_000_000, &to, &payload(1_000_000, NOW, 0));
    w.run_for(millis(50));
    assert_eq!(ends(ledger, 1_000_000), [End::Answer { right: true }]);
}

#[test]
fn a_lost_connection_ends_its_requests_at_once_and_the_next_one_opens_another() {
    for seed in 0..10 {
        let w = world(seed);
        let (one, _two, ledger) = pair(&w, settings());
        let (_, client) = recorder(&one, &ledger);
        warm(&w, &one, &ledger, &client, 2);
        let to = outgoing(&one.rt, 2, Verb::Mutation, 5000);
        send(&client, &ledger, 1, &to, &payload(1, NEVER, 0));
        w.run_for(millis(20));
        w.reset_connections(&name(1), &name(2));
        w.run_for(millis(20));
        let lost = End::Error(MessagingError::Lost { maybe_delivered: true });
        assert_eq!(ends(&ledger, 1), [lost], "seed {seed}");
        w.run_for(millis(200));
        send(&client, &ledger, 2, &to, &payload(2, NOW, 0));
        w.run_for(millis(100));
        assert_eq!(ends(&ledger, 2), [End::Answer { right: true }], "seed {seed}");
        assert_eq!(one.dropped("connection-lost"), 1);
    }
}

#[test]
fn a_one_way_partition_either_way_times_requests_out_and_heals() {
    for seed in 0..10 {
        for back in [false, true] {
            let w = world(seed);
            let (one, two, ledger) = pair(&w, settings());
            let (_, client) = recorder(&one, &ledger);
            warm(&w, &one, &ledger, &client, 2);
            match back {
                true => w.clog(&name(2), &name(1)),
                false => w.clog(&name(1), &name(2)),
            }
            let to = outgoing(&one.rt, 2, Verb::Mutation, 300);
            send(&client, &ledger, 1, &to, &payload(1, NOW, 0));
            w.run_for(millis(400));
            let timeout = End::Error(MessagingError::Timeout { maybe_delivered: true });
            assert_eq!(ends(&ledger, 1), [timeout]);
            assert_eq!(ledger.borrow().0[&1].executed, u32::from(back), "seed {seed}");
            // The connection is closed when no ping is answered.
            w.run_for(millis(2000));
            assert_eq!(one.messaging.peer_stats()[0].links, 0, "seed {seed}");
            w.heal_all();
            w.run_for(millis(1000));
            let to = outgoing(&one.rt, 2, Verb::Mutation, 900);
            send(&client, &ledger, 2, &to, &payload(2, NOW, 0));
            w.run_for(millis(1000));
            assert_eq!(ends(&ledger, 2), [End::Answer { right: true }], "seed {seed}");
            assert_eq!(two.messaging.serving(), 0);
            ledger.borrow().check().unwrap();
        }
    }
}

#[test]
fn a_silent_machine_is_found_by_its_missing_pongs() {
    let options =
        WorldOptions { silent_peer_timeout: Duration::from_secs(3600), ..WorldOptions::default() };
    let w = World::new(3, options);
    let (one, two, ledger) = pair(&w, settings());
    let (_, client) = recorder(&one, &ledger);
    warm(&w, &one, &ledger, &client, 2);
    // Cut off too, or the simulated network would answer for the dead machine.
    w.partition(&name(1), &name(2));
    w.power_cut(&two.node);
    let to = outgoing(&one.rt, 2, Verb::Mutation, 60_000);
    send(&client, &ledger, 1, &to, &payload(1, NOW, 0));
    w.run_for(millis(1400));
    assert_eq!(ends(&ledger, 1), []);
    w.run_for(millis(1200));
    let lost = End::Error(MessagingError::Lost { maybe_delivered: true });
    assert_eq!(ends(&ledger, 1), [lost]);
}

#[test]
fn a_silent_sender_is_forgotten_too() {
    let options =
        WorldOptions { silent_peer_timeout: Duration::from_secs(3600), ..WorldOptions::default() };
    let w = World::new(3, options);
    let (one, two, ledger) = pair(&w, settings());
    let (_, client) = recorder(&one, &ledger);
    warm(&w, &one, &ledger, &client, 2);
    w.run_for(millis(10_000));
    assert_eq!(two.messaging.peer_stats()[0].inbounds, 1, "pings keep it");
    w.power_cut(&one.node);
    w.run_for(millis(5000));
    assert_eq!(two.messaging.peer_stats()[0].inbounds, 0);
}

#[test]
fn a_dead_peer_is_tried_ever_less_often_and_requests_fail_at_once() {
    let w = world(4);
    let (one, two, ledger) = pair(&w, settings());
    let (_, client) = recorder(&one, &ledger);
    w.kill(&two.node);
    let mut token = 0;
    for _ in 0..1000 {
        let to = outgoing(&one.rt, 2, Verb::Mutation, 900);
        send(&client, &ledger, token, &to, &payload(token, NOW, 0));
        token += 1;
        w.run_for(millis(10));
    }
    // Ten seconds: 50, 100, 200, 400, 800, then 1000 ms each, halved at most by jitter.
    let attempts = one.counter("internode_connect_failures_total");
    assert!((8..=22).contains(&attempts), "{attempts} attempts");
    let unreachable = |e: &End| matches!(e, End::Error(MessagingError::Unreachable { .. }));
    assert_eq!(ledger.borrow().count(unreachable), 1000);
    ledger.borrow().check().unwrap();
    let _two = start(&w, identity(2), &[1], settings(), |rt| Echo::new(rt, &ledger));
    // Notified by the membership, it does not wait for the end of the pause.
    w.run_for(millis(10));
    one.messaging.peer_is_up(host(2));
    let to = outgoing(&one.rt, 2, Verb::Mutation, 900);
    send(&client, &ledger, token, &to, &payload(token, NOW, 0));
    w.run_for(millis(50));
    assert_eq!(ends(&ledger, token), [End::Answer { right: true }]);
}

#[test]
fn a_peer_that_connects_ends_the_pause_before_connecting_to_it() {
    let w = world(5);
    let ledger = SharedLedger::default();
    let slow = Settings {
        backoff_min: Duration::from_secs(100),
        backoff_max: Duration::from_secs(100),
        ..settings()
    };
    let one = start(&w, identity(1), &[2], slow, |rt| Echo::new(rt, &ledger));
    let (_, client) = recorder(&one, &ledger);
    let to = outgoing(&one.rt, 2, Verb::Mutation, 60_000);
    send(&client, &ledger, 1, &to, &payload(1, NOW, 0));
    w.run_for(millis(1000));
    let two = start(&w, identity(2), &[1], settings(), |rt| Echo::new(rt, &ledger));
    w.run_for(millis(100));
    send(&client, &ledger, 2, &to, &payload(2, NOW, 0));
    let paused = End::Error(MessagingError::Unreachable {
        host: host(2),
        retry_in: Duration::ZERO,
        cause: "".into(),
    });
    let same_kind = |e: &End| match (e, &paused) {
        (End::Error(a), End::Error(b)) => std::mem::discriminant(a) == std::mem::discriminant(b),
        _ => false,
    };
    assert!(same_kind(&ends(&ledger, 2)[0]), "still paused");
    let (_, back) = recorder(&two, &ledger);
    let to_one = outgoing(&two.rt, 1, Verb::Mutation, 900);
    send(&back, &ledger, 3, &to_one, &payload(3, NOW, 0));
    w.run_for(millis(50));
    send(&client, &ledger, 4, &to, &payload(4, NOW, 0));
    w.run_for(millis(50));
    assert_eq!(ends(&ledger, 4), [End::Answer { right: true }]);
}

/// Outcomes of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reached {
    answers: usize,
    timeouts: usize,
    undelivered: usize,
    lost: usize,
    unreachable: usize,
    overloaded: usize,
    remote: usize,
    late: u64,
}

impl Reached {
    fn add(&mut self, other: &Reached) {
        self.answers += other.answers;
        self.timeouts += other.timeouts;
        self.undelivered += other.undelivered;
        self.lost += other.lost;
        self.unreachable += other.unreachable;
        self.overloaded += other.overloaded;
        self.remote += other.remote;
        self.late += other.late;
    }
}

/// Three nodes, two of them asking, 12 seconds of faults, then quiet.
fn chaos(seed: u64) -> (World, Reached) {
    let options = WorldOptions {
        resets_per_million: 300,
        socket_bytes_max: 64 << 10,
        silent_peer_timeout: Duration::from_secs(4),
        ..WorldOptions::default()
    };
    let w = World::new(seed, options);
    let ledger = SharedLedger::default();
    let tight =
        Settings { in_flight_max: 64, serving_max: 48, queue_bytes_max: 1 << 20, ..settings() };
    let node = |n: u8, run: u64| {
        let known: Vec<u8> = (1..=3).filter(|k| *k != n).collect();
        let identity = internode::Identity { incarnation: run, ..identity(n) };
        start(&w, identity, &known, tight.clone(), |rt| Echo::new(rt, &ledger))
    };
    let one = node(1, 1);
    let mut others = [node(2, 1), node(3, 1)];
    let mut alive = [true; 2];
    let (_, client) = recorder(&one, &ledger);
    let sends = ledger.clone();
    let workload = one.begin(move |rt, _| async move {
        for token in 0..3000u64 {
            let r = rt.random_u64();
            let how = [NOW, NOW, NOW, LATER, LATER, NEVER, DROP, FAIL][(r % 8) as usize];
            let length = if r % 97 == 0 { 200_000 } else { (r >> 8) as usize % 2000 };
            let to = outgoing(&rt, 2 + (r >> 20) as u8 % 2, Verb::Mutation, 5 + (r >> 24) % 1500);
            let id = send(&client, &sends, token, &to, &payload(token, how, length));
            if let Some(id) = id.filter(|_| r % 53 == 0) {
                rt.sleep(Duration::from_micros((r >> 30) % 3000)).await;
                let open = sends.borrow().0[&token].ends.is_empty();
                client.cancel(id);
                sends.borrow_mut().0.get_mut(&token).unwrap().cancelled = open;
            }
            if r % 5 == 0 {
                rt.sleep(Duration::from_micros((r >> 32) % 40_000)).await;
            }
        }
    });
    for run in 2..42 {
        w.run_for(Duration::from_micros(w.random_u64() % 500_000));
        let victim = (w.random_u64() % 2) as usize;
        let (a, b) = (name(1), name(2 + victim as u8));
        match w.random_u64() % 9 {
            0 => w.partition(&a, &b),
            1 => w.clog(&a, &b),
            2 => w.clog(&b, &a),
            3 => w.reset_connections(&a, &b),
            4 if alive[victim] => {
                let cut = w.random_u64().is_multiple_of(2);
                let dying = &others[victim].node;
                if cut {
                    w.power_cut(dying)
                } else {
                    w.kill(dying)
                }
                alive[victim] = false;
            }
            5 => {
                if !alive[victim] {
                    others[victim] = node(2 + victim as u8, run);
                    alive[victim] = true;
                }
            }
            6 => w.set_latency(&a, &b, 10_000..120_000),
            7 => w.set_latency(&a, &b, 200..1500),
            _ => w.heal_all(),
        }
    }
    w.heal_all();
    w.run_until(|| workload.borrow().is_some(), Duration::from_secs(120)).unwrap();
    w.run_for(millis(3000));
    let reached = {
        let ledger = ledger.borrow();
        ledger.check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let error = |is: fn(&MessagingError) -> bool| {
            ledger.count(|e| matches!(e, End::Error(error) if is(error)))
        };
        Reached {
            answers: ledger.count(|e| *e == End::Answer { right: true }),
            timeouts: error(|e| matches!(e, MessagingError::Timeout { maybe_delivered: true })),
            undelivered: error(|e| {
                matches!(
                    e,
                    MessagingError::Timeout { maybe_delivered: false }
                        | MessagingError::Lost { maybe_delivered: false }
                )
            }),
            lost: error(|e| matches!(e, MessagingError::Lost { .. })),
            unreachable: error(|e| matches!(e, MessagingError::Unreachable { .. })),
            overloaded: error(|e| matches!(e, MessagingError::Overloaded(_))),
            remote: error(|e| matches!(e, MessagingError::Remote(_))),
            late: one.dropped("late-answer"),
        }
    };
    // After the faults everything works again.
    for n in 0..2 {
        if !alive[n] {
            others[n] = node(2 + n as u8, 100);
        }
    }
    w.run_for(millis(3000));
    let (_, again) = recorder(&one, &ledger);
    for (token, to) in [(1_000_001, 2), (1_000_002, 3)] {
        let to = outgoing(&one.rt, to, Verb::Mutation, 2000);
        send(&again, &ledger, token, &to, &payload(token, NOW, 0));
    }
    w.run_for(millis(2500));
    for token in [1_000_001, 1_000_002] {
        assert_eq!(ends(&ledger, token), [End::Answer { right: true }], "seed {seed}");
    }
    // Queued and held bytes are given back.
    assert_eq!(one.messaging.pending(), 0, "seed {seed}");
    assert_eq!(one.messaging.env.queued_bytes.get(), 0, "seed {seed}");
    for other in &others {
        assert_eq!((other.messaging.serving(), other.messaging.env.serving_bytes.get()), (0, 0));
        assert_eq!(other.messaging.env.answer_bytes.get(), 0, "seed {seed}");
    }
    (w, reached)
}

#[test]
fn under_random_faults_every_request_completes_once_in_time_and_truly() {
    let mut all = Reached::default();
    for seed in 0..12 {
        all.add(&chaos(seed).1);
    }
    // The rare paths were reached.
    assert!(all.answers > 5000, "{all:?}");
    for n in [
        all.timeouts,
        all.undelivered,
        all.lost,
        all.unreachable,
        all.overloaded,
        all.remote,
        all.late as usize,
    ] {
        assert!(n > 10, "{all:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_one_does_not() {
    let ((a, reached), (b, again)) = (chaos(77), chaos(77));
    assert_eq!(a.trace_checkpoints(), b.trace_checkpoints());
    assert_eq!((a.trace_hash(), reached), (b.trace_hash(), again));
    assert_ne!(chaos(78).0.trace_hash(), a.trace_hash());
}
