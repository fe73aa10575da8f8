//! Links that a test cuts.

use super::harness::*;
use super::ledger::{End, SharedLedger};
use crate::*;
use internode::Verb;
use rt::sim::World;
use std::collections::BTreeSet;
use std::time::Duration;

const ANSWERED: [End; 1] = [End::Answer { right: true }];

fn ends(ledger: &SharedLedger, token: u64) -> Vec<End> {
    ledger.borrow().0[&token].ends.iter().map(|(_, end)| end.clone()).collect()
}

fn cut(w: &World, node: &TestNode, others: &[u8]) {
    let ips: BTreeSet<_> = others.iter().map(|n| w.ip(&name(*n))).collect();
    node.messaging.cut_links(ips);
}

fn ask(node: &TestNode, ledger: &SharedLedger, client: &Client, token: u64, in_millis: u64) {
    let to = outgoing(&node.rt, 2, Verb::Mutation, in_millis);
    send(client, ledger, token, &to, &payload(token, NOW, 2000));
}

#[test]
fn a_short_cut_delays_and_loses_nothing() {
    for seed in 0..10 {
        let w = world(seed);
        let (one, _two, ledger) = pair(&w, settings());
        let (_, client) = recorder(&one, &ledger);
        ask(&one, &ledger, &client, 0, 900);
        w.run_for(millis(50));
        assert_eq!(ends(&ledger, 0), ANSWERED);
        // One is answered while the link is cut, the others are sent then.
        ask(&one, &ledger, &client, 1, 5000);
        cut(&w, &one, &[2]);
        for token in 2..1000 {
            ask(&one, &ledger, &client, token, 5000);
        }
        w.run_for(millis(1000));
        assert!((1..1000).all(|token| ends(&ledger, token).is_empty()), "seed {seed}");
        cut(&w, &one, &[]);
        w.run_for(millis(200));
        assert!((1..1000).all(|token| ends(&ledger, token) == ANSWERED), "seed {seed}");
        assert_eq!(one.messaging.peer_stats()[0].links, 1, "the connection stays");
        ledger.borrow().check().unwrap();
    }
}

#[test]
fn messages_are_counted_by_kind() {
    let w = world(11);
    let (one, two, ledger) = pair(&w, settings());
    let (_, client) = recorder(&one, &ledger);
    let ask = |token, verb, when| {
        let to = outgoing(&one.rt, 2, verb, 500);
        send(&client, &ledger, token, &to, &payload(token, when, 2000));
    };
    ask(1, Verb::Mutation, NOW);
    ask(2, Verb::StreamOpen, NOW);
    ask(3, Verb::StreamFile, NEVER);
    ask(4, Verb::GossipSyn, NOW);
    ask(5, Verb::Read, NOW);
    w.run_for(millis(100));
    let counts = |kind: KindStats| (kind.pending, kind.sent, kind.dropped);
    let kinds = one.messaging.kinds_stats();
    assert_eq!(
        [kinds.large, kinds.small, kinds.gossip].map(counts),
        [(1, 2, 0), (0, 2, 0), (0, 1, 0)]
    );
    // The other's are the answers.
    let kinds = two.messaging.kinds_stats();
    assert_eq!(
        [kinds.large, kinds.small, kinds.gossip].map(counts),
        [(0, 1, 0), (0, 2, 0), (0, 1, 0)]
    );
    w.run_for(millis(1000));
    let kinds = one.messaging.kinds_stats();
    assert_eq!([kinds.large, kinds.small].map(counts), [(0, 2, 1), (0, 2, 0)]);
}

#[test]
fn a_long_cut_ends_connections_and_keeps_new_ones_from_being_made() {
    for seed in 0..10 {
        let w = world(seed);
        let (one, two, ledger) = pair(&w, settings());
        let (_, client) = recorder(&one, &ledger);
        ask(&one, &ledger, &client, 0, 900);
        w.run_for(millis(50));
        cut(&w, &one, &[2]);
        ask(&one, &ledger, &client, 1, 300);
        w.run_for(millis(400));
        // It may have been sent, as far as the sender can know.
        let timeout = End::Error(MessagingError::Timeout { maybe_delivered: true });
        assert_eq!(ends(&ledger, 1), [timeout], "seed {seed}");
        w.run_for(millis(2500));
        assert_eq!(one.messaging.peer_stats()[0].links, 0, "seed {seed}");
        for token in 2..40 {
            ask(&one, &ledger, &client, token, 900);
            w.run_for(millis(100));
        }
        w.run_for(millis(1000));
        let unreachable = |e: &End| matches!(e, End::Error(MessagingError::Unreachable { .. }));
        assert_eq!(ledger.borrow().count(unreachable), 38, "seed {seed}");
        assert_eq!(two.messaging.serving(), 0);
        // The other direction is not cut: each end is configured separately.
        let (_, back) = recorder(&two, &ledger);
        let to = Outgoing { host: host(1), ..outgoing(&two.rt, 1, Verb::Mutation, 900) };
        send(&back, &ledger, 100, &to, &payload(100, NOW, 0));
        w.run_for(millis(50));
        assert_eq!(ends(&ledger, 100), ANSWERED, "seed {seed}");
        cut(&w, &one, &[]);
        w.run_for(millis(2000));
        ask(&one, &ledger, &client, 101, 900);
        w.run_for(millis(200));
        assert_eq!(ends(&ledger, 101), ANSWERED, "seed {seed}");
        ledger.borrow().check().unwrap();
    }
}

#[test]
fn a_cut_from_the_start_holds_and_a_node_stops_behind_a_cut() {
    let w = world(3);
    let (one, _two, ledger) = pair(&w, settings());
    let (_, client) = recorder(&one, &ledger);
    cut(&w, &one, &[2]);
    ask(&one, &ledger, &client, 0, 900);
    w.run_for(millis(1000));
    assert!(!ends(&ledger, 0).is_empty());
    let address = address(&w, 2);
    let found = one.begin(|_, messaging| async move { messaging.discover(address).await });
    w.run_for(millis(600));
    assert!(matches!(found.take(), Some(Err(OpenError::Timeout))));
    cut(&w, &one, &[]);
    w.run_for(millis(2000));
    ask(&one, &ledger, &client, 1, 900);
    w.run_for(millis(100));
    assert_eq!(ends(&ledger, 1), ANSWERED);
    ask(&one, &ledger, &client, 2, 60_000);
    cut(&w, &one, &[2]);
    w.run_for(millis(100));
    one.run(&w, |_, messaging| async move { messaging.stop(Duration::from_millis(100)).await });
    assert_eq!(ends(&ledger, 2).len(), 1);
}
