//! A crash at every file call, and every single call that fails.

use std::time::Duration;

use rt::sim::CrashKind;
use stdx::IoErrorKind;

use super::harness::*;

const LIMIT: Duration = Duration::from_secs(600);

/// Work of n1 until it crashes: it stores and confirms hints, delivers some, fails some, continues.
fn begin_work(cluster: &Cluster) {
    let node = &cluster.nodes[&1];
    let (facts, hints, rt) = (cluster.facts.clone(), node.hints(), node.rt.clone());
    let gate = rt.gate("test");
    let of_task = rt.clone();
    let task = async move {
        let mut number = 0;
        for round in 0..4 {
            for _ in 0..7 {
                number += 1;
                let partition = (number % 3) as u8;
                let bytes = mutation(partition, number);
                if hints.store(host(2), &bytes, of_task.wall()) {
                    facts.borrow_mut().stored.push((partition, number));
                }
            }
            let stored: Vec<u64> = facts.borrow().stored.iter().map(|(_, n)| *n).collect();
            if hints.flush().await.is_ok() {
                facts.borrow_mut().confirmed.extend(stored);
            }
            if round == 1 {
                // Three arrive, then the delivery fails and notes how far it came.
                facts.borrow_mut().refuse = 0;
                hints.set_up(host(2));
                of_task.sleep(Duration::from_millis(3)).await;
                facts.borrow_mut().refuse = 5;
                of_task.sleep(Duration::from_millis(700)).await;
                facts.borrow_mut().refuse = 0;
                hints.set_down(host(2), of_task.now());
            }
        }
        hints.set_up(host(2));
    };
    gate.spawn(&rt, rt::Group::Admin, "work", task).unwrap();
}

fn crash_at_every_io(kind: CrashKind) {
    let mut came_through = false;
    let mut n = 0;
    let mut crashes_in_delivery = 0;
    while !came_through {
        n += 1;
        let mut cluster = Cluster::new(
            1000 + n,
            &[1, 2],
            crate::HintsSettings { in_flight_max: 2, progress_bytes: 256, ..settings() },
        );
        cluster.start(2);
        cluster.world.disk("n1").crash_at_nth_io(n, kind);
        cluster.begin(1);
        let node = cluster.nodes[&1].node.clone();
        let open = cluster.nodes[&1].hints.clone();
        let alive = || cluster.world.is_alive(&node);
        let ready = || open.borrow().is_some() || !alive();
        cluster.world.run_until(ready, LIMIT).unwrap();
        if alive() {
            begin_work(&cluster);
            let ended = || {
                let facts = cluster.facts.borrow();
                let all = facts.stored.len() == 28 && facts.received.len() >= 28;
                !alive() || (all && cluster.sender().pending().is_empty())
            };
            cluster.world.run_until(ended, LIMIT).unwrap();
        }
        came_through = alive();
        crashes_in_delivery += usize::from(!came_through && cluster.received() > 0);
        cluster.world.disk("n1").clear_faults();
        match kind {
            CrashKind::Kill => cluster.world.kill(&node),
            CrashKind::PowerCut => cluster.world.power_cut(&node),
            CrashKind::PowerCutLosingAll => cluster.world.power_cut_losing_all(&node),
        }
        cluster.facts.borrow_mut().refuse = 0;
        cluster.start(1);
        cluster.sender().set_up(host(2));
        cluster.until_delivered();
        let checked = check(&cluster.facts.borrow());
        checked.unwrap_or_else(|e| panic!("{kind:?} at IO {n}: {e}"));
        assert_eq!(cluster.files(), Vec::<String>::new(), "{kind:?} at IO {n}");
        assert_eq!(cluster.counter("hints_damaged_ranges_total", ""), 0, "{kind:?} at IO {n}");
    }
    assert!(n > 40 && crashes_in_delivery > 10, "{n} calls, {crashes_in_delivery} in delivery");
}

#[test]
fn a_kill_at_every_io_loses_no_confirmed_hint() {
    crash_at_every_io(CrashKind::Kill);
}

#[test]
fn a_power_cut_at_every_io_loses_no_confirmed_hint() {
    crash_at_every_io(CrashKind::PowerCut);
}

#[test]
fn a_power_cut_that_keeps_nothing_unsynced_loses_no_confirmed_hint() {
    crash_at_every_io(CrashKind::PowerCutLosingAll);
}

/// After one failed call everything that was taken arrives, without a restart.
fn every_failing_call(kind: IoErrorKind) {
    let mut n = 0;
    let mut failures = 0;
    loop {
        n += 1;
        let mut cluster = Cluster::new(2000 + n, &[1, 2], settings());
        cluster.start(2);
        cluster.world.disk("n1").fail_nth(n, kind);
        cluster.start(1);
        begin_work(&cluster);
        let hints = cluster.sender();
        let refused = || {
            let reasons = crate::policy::Refusal::ALL;
            let of = |r: &crate::policy::Refusal| cluster.counter("hints_refused_total", r.name());
            reasons.iter().map(of).sum::<u64>()
        };
        let ended = || {
            let done = cluster.facts.borrow().stored.len() as u64 + refused() >= 28;
            done && hints.pending().is_empty()
        };
        cluster.world.run_until(ended, LIMIT).unwrap_or_else(|e| panic!("call {n}: {e:?}"));
        let mut facts = cluster.facts.borrow_mut();
        facts.confirmed = facts.stored.iter().map(|(_, n)| *n).collect();
        check(&facts).unwrap_or_else(|e| panic!("{kind:?} in call {n}: {e}"));
        failures += cluster.counter("hints_write_errors_total", "");
        if cluster.world.disk("n1").pending_failures() > 0 {
            break;
        }
    }
    assert!(n > 40 && failures > 20, "{n} calls, {failures} failures");
}

#[test]
fn every_call_that_fails_once_delays_hints_and_loses_none() {
    every_failing_call(IoErrorKind::Device);
}

#[test]
fn every_call_that_finds_the_disk_full_once_delays_hints_and_loses_none() {
    every_failing_call(IoErrorKind::NoSpace);
}

#[test]
fn a_power_cut_during_a_crash_loop_loses_no_confirmed_hint() {
    for seed in 0..10 {
        let mut cluster = Cluster::pair(3000 + seed, settings());
        for _ in 0..6 {
            for i in 0..6 {
                cluster.store(i % 3);
            }
            cluster.flush().unwrap();
            for i in 0..3 {
                // Not confirmed.
                cluster.store(i % 3);
            }
            cluster.run(cluster.world.random_u64() % 1500);
            let node = cluster.nodes[&1].node.clone();
            cluster.world.power_cut(&node);
            cluster.start(1);
        }
        cluster.sender().set_up(host(2));
        cluster.until_delivered();
        check(&cluster.facts.borrow()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}
