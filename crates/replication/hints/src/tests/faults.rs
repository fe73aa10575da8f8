//! Two nodes under connection failures and crashes: every confirmed hint arrives.

use std::time::Duration;

use internode::ErrorReply;

use super::harness::*;
use crate::HintsSettings;

/// A long run with random faults; the seed is in every message.
fn run(seed: u64, power_cuts: bool) -> Cluster {
    let settings = HintsSettings {
        in_flight_max: 4,
        progress_bytes: 512,
        throttle_bytes_per_second: if seed.is_multiple_of(3) { 2000 } else { 0 },
        ..settings()
    };
    let mut cluster = Cluster::pair(seed, settings);
    cluster.sender().set_up(host(2));
    for _ in 0..30 {
        let random = cluster.world.random_u64();
        for i in 0..random % 12 {
            cluster.store((i % 4) as u8);
        }
        match random >> 8 & 7 {
            0 => {
                // No node is notified: requests fail.
                cluster.world.partition("n1", "n2");
            }
            1 => cluster.world.clog("n2", "n1"),
            2 => cluster.world.reset_connections("n1", "n2"),
            3 => {
                let node = cluster.nodes[&2].node.clone();
                cluster.world.kill(&node);
                cluster.sender().set_down(host(2), cluster.nodes[&1].rt.now());
                cluster.run(random >> 16 & 0x7ff);
                cluster.start(2);
                cluster.sender().set_up(host(2));
            }
            4 => {
                cluster.flush().unwrap();
                let node = cluster.nodes[&1].node.clone();
                if power_cuts {
                    cluster.world.power_cut(&node);
                } else {
                    cluster.world.kill(&node);
                }
                cluster.start(1);
                cluster.sender().set_up(host(2));
            }
            5 => {
                let mut facts = cluster.facts.borrow_mut();
                facts.refuse = random >> 16 & 7;
                facts.refusal = (random >> 20 & 1 == 0).then_some(ErrorReply::Overloaded);
            }
            6 => cluster.flush().unwrap(),
            _ => cluster.world.heal_all(),
        }
        cluster.run(random >> 32 & 0x7ff);
    }
    cluster.flush().unwrap();
    cluster.world.heal_all();
    cluster.facts.borrow_mut().refuse = 0;
    cluster.until_delivered();
    cluster
}

/// INV-hints-1 and INV-hints-2.
#[test]
fn every_confirmed_hint_arrives_in_the_order_of_its_partition() {
    let mut stored = 0;
    for seed in 0..20 {
        let cluster = run(100 + seed, seed % 2 == 0);
        check(&cluster.facts.borrow()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(cluster.files(), Vec::<String>::new(), "seed {seed}");
        stored += cluster.facts.borrow().stored.len();
    }
    assert!(stored > 1000, "{stored}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(7, true).world.trace_hash(), run(7, true).world.trace_hash());
    assert_ne!(run(7, true).world.trace_hash(), run(8, true).world.trace_hash());
}

#[test]
fn the_check_sees_a_lost_a_disordered_and_an_invented_hint() {
    let good = || {
        let stored = vec![(1, 1), (2, 2), (1, 3)];
        Facts {
            received: vec![(2, 2), (1, 1), (1, 1), (1, 3), (1, 1)],
            confirmed: stored.iter().map(|(_, n)| *n).collect(),
            stored,
            ..Facts::default()
        }
    };
    assert_eq!(check(&good()), Ok(()));
    let mut lost = good();
    lost.received.retain(|(_, n)| *n != 3);
    assert!(check(&lost).is_err());
    let mut disordered = good();
    disordered.received = vec![(1, 3), (1, 1), (2, 2)];
    assert!(check(&disordered).is_err());
    let mut invented = good();
    invented.received.push((1, 9));
    assert!(check(&invented).is_err());
}

#[test]
fn a_replica_that_never_answers_does_not_hold_up_another_one() {
    let mut cluster = Cluster::new(40, &[1, 2, 3], settings());
    cluster.start(1);
    cluster.start(2);
    for i in 0..20 {
        let bytes = mutation(1, 500 + i);
        assert!(cluster.sender().store(host(3), &bytes, cluster.nodes[&1].rt.wall()));
    }
    cluster.store_many(20);
    cluster.sender().set_up(host(3));
    cluster.sender().set_up(host(2));
    cluster.world.run_for(Duration::from_secs(20));
    assert_eq!(cluster.received(), 20);
    assert_eq!(cluster.sender().pending().len(), 1);
}
