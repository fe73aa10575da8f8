//! One thing each: answers, deadlines, losses, stops.

use super::harness::*;
use super::ledger::{End, SharedLedger};
use crate::*;
use internode::{ErrorReply, Verb};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use stdx::{Epoch, Uuid};

#[test]
fn a_request_is_answered_and_carries_its_epoch_and_trace() {
    struct Checks(Rc<Cell<bool>>);
    impl Handler for Checks {
        fn handle(&self, request: Request<'_>, responder: Responder) {
            assert_eq!(
                (request.from, request.verb, request.epoch),
                (host(1), Verb::Read, Epoch(9))
            );
            assert_eq!(request.trace, Some(Uuid::from_bytes([3; 16])));
            assert!(responder.wants_answer());
            self.0.set(true);
            responder.respond(|out| out.extend_from_slice(b"answer"));
        }
    }
    for seed in 0..5 {
        let w = world(seed);
        let seen = Rc::new(Cell::new(false));
        let one = start(&w, identity(1), &[2], settings(), |_| Rc::new(Checks(seen.clone())));
        let two = start(&w, identity(2), &[1], settings(), |_| Rc::new(Checks(seen.clone())));
        one.messaging.set_epoch(Epoch(9));
        two.messaging.set_epoch(Epoch(7));
        let response = one.run(&w, |rt, messaging| async move {
            let trace = Some(Uuid::from_bytes([3; 16]));
            let to = Outgoing { trace, ..outgoing(&rt, 2, Verb::Read, 1000) };
            messaging.request(&to, |out| out.extend_from_slice(b"question")).await.unwrap()
        });
        assert_eq!((&response.payload[..], response.epoch), (&b"answer"[..], Epoch(7)));
        assert!(seen.get() && response.elapsed > Duration::ZERO);
        let stats = one.messaging.peer_stats();
        assert_eq!((stats.len(), stats[0].host, stats[0].links), (1, host(2), 1));
        assert_eq!((stats[0].sent, stats[0].received, stats[0].pending), (1, 1, 0));
        let sum = |of: &TestNode| {
            let stats = of.messaging.peer_stats();
            (stats[0].sent_bytes, stats[0].received_bytes)
        };
        w.run_for(millis(100));
        assert_eq!(sum(&one).0, sum(&two).1, "frames are counted alike on both sides");
        assert_eq!(sum(&one).1, sum(&two).0);
    }
}

#[test]
fn requests_of_a_turn_go_out_together_and_their_answers_come_in_batches() {
    let w = world(1);
    let (one, _two, ledger) = pair(&w, settings());
    let (recorder, client) = recorder(&one, &ledger);
    let sends = ledger.clone();
    one.run(&w, move |rt, _| async move {
        let to = outgoing(&rt, 2, Verb::Read, 1000);
        send(&client, &sends, 0, &to, &payload(0, NOW, 0));
        rt.sleep(millis(50)).await;
        for token in 1..=200 {
            send(&client, &sends, token, &to, &payload(token, NOW, 10));
        }
        rt.sleep(millis(50)).await;
    });
    ledger.borrow().check().unwrap();
    assert_eq!(ledger.borrow().count(|e| *e == End::Answer { right: true }), 201);
    assert!(recorder.batches.get() < 100, "{} batches", recorder.batches.get());
    assert_eq!(one.counter("internode_connects_total"), 1);
}

#[test]
fn compressed_and_traced_payloads_arrive_as_they_were() {
    let w = world(2);
    let (one, two, _) = pair(&w, settings());
    let answer = one.run(&w, |rt, messaging| async move {
        let to = outgoing(&rt, 2, Verb::Read, 5000);
        // A request that waits for the handshake is not compressed: nothing is agreed on yet.
        let first = |out: &mut Vec<u8>| out.extend_from_slice(&payload(4, NOW, 0));
        messaging.request(&to, first).await.unwrap();
        let big = payload(5, NOW, 300_000);
        let write = |out: &mut Vec<u8>| out.extend_from_slice(&big);
        (messaging.request(&to, write).await.unwrap().payload, big)
    });
    assert_eq!(answer.0, answer.1);
    let received = two.counter("internode_received_bytes_total");
    assert!(received < 10_000, "compressed to {received}");
}

#[test]
fn an_answer_after_the_deadline_is_dropped_and_counted_on_the_side_that_is_late() {
    let w = world(3);
    let (one, two, ledger) = pair(&w, settings());
    let (_, client) = recorder(&one, &ledger);
    // The way back takes longer than the deadline: the answer is sent in time and comes too late.
    w.set_latency(&name(2), &name(1), 80_000..80_001);
    let sends = ledger.clone();
    one.run(&w, move |rt, messaging| async move {
        send(&client, &sends, 1, &outgoing(&rt, 2, Verb::Read, 1000), &payload(1, NOW, 0));
        rt.sleep(millis(500)).await;
        send(&client, &sends, 2, &outgoing(&rt, 2, Verb::Read, 50), &payload(2, NOW, 0));
        send(&client, &sends, 3, &outgoing(&rt, 2, Verb::Read, 50), &payload(3, NEVER, 0));
        rt.sleep(millis(500)).await;
        assert_eq!(messaging.pending(), 0);
    });
    let ledger = ledger.borrow();
    ledger.check().unwrap();
    let timeout = End::Error(MessagingError::Timeout { maybe_delivered: true });
    assert_eq!(ledger.0[&2].ends[0].1, timeout);
    assert_eq!(ledger.0[&3].ends[0].1, timeout);
    assert_eq!((one.dropped("late-answer"), one.dropped("timeout")), (1, 2));
    assert_eq!(two.dropped("late-answer"), 1, "answered after the deadline, not sent");
}

#[test]
fn what_could_not_be_sent_before_its_deadline_is_never_done() {
    for seed in 0..10 {
        let w = world(seed);
        let (one, two, ledger) = pair(&w, Settings { compression: false, ..settings() });
        let (_, client) = recorder(&one, &ledger);
        let sends = ledger.clone();
        let sent = one.begin(move |rt, _| async move {
            let to = outgoing(&rt, 2, Verb::Mutation, 1000);
            send(&client, &sends, 0, &to, &payload(0, NOW, 0));
            rt.sleep(millis(100)).await;
            // Nothing is read any more: the socket takes its part, the rest waits here.
            for token in 1..=40 {
                let left = if token % 4 == 0 { 2000 } else { 300 };
                let to = outgoing(&rt, 2, Verb::Mutation, left);
                send(&client, &sends, token, &to, &payload(token, NOW, 20_000));
            }
        });
        w.run_until(|| sent.borrow().is_some(), millis(500)).unwrap();
        w.clog(&name(1), &name(2));
        w.run_for(millis(700));
        w.heal_all();
        w.run_for(millis(3000));
        let ledger = ledger.borrow();
        ledger.check().unwrap();
        let undelivered = End::Error(MessagingError::Timeout { maybe_delivered: false });
        assert!(ledger.count(|e| *e == undelivered) > 5, "seed {seed}");
        assert!(one.dropped("expired-before-sent") > 5, "seed {seed}");
        let answered = ledger.count(|e| *e == End::Answer { right: true });
        assert!(answered >= 10, "seed {seed}: those with time left went on, {answered}");
        drop(two);
    }
}

#[test]
fn a_request_that_timed_out_while_connecting_is_not_sent_after_all() {
    for seed in 0..10 {
        let w = world(seed);
        let (one, two, ledger) = pair(&w, settings());
        let (_, client) = recorder(&one, &ledger);
        // Four ways make a connection: after 6.4 ms, soon after the deadline.
        for (a, b) in [(1, 2), (2, 1)] {
            w.set_latency(&name(a), &name(b), 1_600..1_601);
        }
        let to = outgoing(&one.rt, 2, Verb::Mutation, 1);
        send(&client, &ledger, 1, &to, &payload(1, NOW, 0));
        let to = outgoing(&one.rt, 2, Verb::Mutation, 900);
        send(&client, &ledger, 2, &to, &payload(2, NOW, 0));
        w.run_for(millis(100));
        let ledger = ledger.borrow();
        ledger.check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let undelivered = End::Error(MessagingError::Timeout { maybe_delivered: false });
        assert_eq!(ledger.0[&1].ends[0].1, undelivered);
        assert_eq!(ledger.0[&2].ends[0].1, End::Answer { right: true });
        drop(two);
    }
}

#[test]
fn a_one_way_message_is_handled_once_and_not_answered() {
    struct Counts(Rc<Cell<u32>>);
    impl Handler for Counts {
        fn handle(&self, request: Request<'_>, responder: Responder) {
            assert_eq!(request.payload, b"hint");
            assert!(!responder.wants_answer());
            self.0.set(self.0.get() + 1);
            responder.respond(|_| unreachable!("nobody wants it"));
        }
    }
    let w = world(4);
    let seen = Rc::new(Cell::new(0));
    let one = start(&w, identity(1), &[2], settings(), |_| Rc::new(Counts(Rc::default())));
    let two = start(&w, identity(2), &[1], settings(), |_| Rc::new(Counts(seen.clone())));
    one.run(&w, |rt, messaging| async move {
        let to = outgoing(&rt, 2, Verb::Hint, 1000);
        messaging.send_one_way(&to, |out| out.extend_from_slice(b"hint")).unwrap();
        rt.sleep(millis(100)).await;
    });
    assert_eq!(seen.get(), 1);
    assert_eq!((two.counter("internode_sent_messages_total"), one.messaging.pending()), (0, 0));
}

#[test]
fn errors_and_dropped_responders_are_answered() {
    let w = world(5);
    let (one, _two, ledger) = pair(&w, settings());
    let (_, client) = recorder(&one, &ledger);
    let sends = ledger.clone();
    one.run(&w, move |rt, _| async move {
        let to = outgoing(&rt, 2, Verb::Read, 1000);
        send(&client, &sends, 1, &to, &payload(1, FAIL, 0));
        send(&client, &sends, 2, &to, &payload(2, DROP, 0));
        rt.sleep(millis(100)).await;
    });
    let ledger = ledger.borrow();
    ledger.check().unwrap();
    let remote = |token: u64| match &ledger.0[&token].ends[0].1 {
        End::Error(MessagingError::Remote(reply)) => reply.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(remote(1), ErrorReply::DiskFull);
    assert!(matches!(remote(2), ErrorReply::Internal(_)));
}

#[test]
fn several_answers_to_one_request_come_in_order() {
    struct Forwards(Rc<RefCell<Vec<Responder>>>);
    impl Handler for Forwards {
        fn handle(&self, _: Request<'_>, responder: Responder) {
            responder.respond_partly(|out| out.push(1));
            self.0.borrow_mut().push(responder);
        }
    }
    let w = world(6);
    let held = Rc::new(RefCell::new(Vec::new()));
    let one = start(&w, identity(1), &[2], settings(), |_| Rc::new(Forwards(held.clone())));
    let _two = start(&w, identity(2), &[1], settings(), |_| Rc::new(Forwards(held.clone())));
    let answer = one.begin(|rt, messaging| async move {
        let to = outgoing(&rt, 2, Verb::MutationForward, 1000);
        messaging.request(&to, |_| {}).await
    });
    w.run_for(millis(50));
    assert!(answer.borrow().is_none());
    let responder: Responder = held.borrow_mut().pop().unwrap();
    responder.respond_partly(|out| out.push(2));
    responder.respond(|out| out.push(3));
    w.run_for(millis(50));
    let response = answer.take().unwrap().unwrap();
    assert_eq!((response.earlier, response.payload), (vec![vec![1], vec![2]], vec![3]));
}

#[test]
fn a_cancelled_request_does_not_complete_and_its_handler_can_see_it() {
    struct Holds(Rc<RefCell<Vec<Responder>>>);
    impl Handler for Holds {
        fn handle(&self, _: Request<'_>, responder: Responder) {
            assert!(!responder.is_cancelled());
            self.0.borrow_mut().push(responder);
        }
    }
    let w = world(7);
    let held = Rc::new(RefCell::new(Vec::new()));
    let ledger = SharedLedger::default();
    let one = start(&w, identity(1), &[2], settings(), |rt| Echo::new(rt, &ledger));
    let two = start(&w, identity(2), &[1], settings(), |_| Rc::new(Holds(held.clone())));
    let (_, client) = recorder(&one, &ledger);
    let sends = ledger.clone();
    one.run(&w, move |rt, messaging| async move {
        let to = outgoing(&rt, 2, Verb::Read, 1000);
        let id = send(&client, &sends, 1, &to, &payload(1, NOW, 0)).unwrap();
        let future = messaging.request(&to, |_| {});
        rt.sleep(millis(20)).await;
        client.cancel(id);
        client.cancel(id);
        sends.borrow_mut().0.get_mut(&1).unwrap().cancelled = true;
        drop(future);
        assert_eq!(messaging.pending(), 0);
        rt.sleep(millis(20)).await;
    });
    let responders = held.take();
    assert_eq!(responders.len(), 2);
    for responder in responders {
        assert!(responder.is_cancelled());
        responder.respond(|_| unreachable!("nobody wants it"));
    }
    w.run_for(millis(2000));
    ledger.borrow().check().unwrap();
    assert_eq!((two.messaging.serving(), one.dropped("late-answer")), (0, 0));
}

#[test]
fn unknown_hosts_and_passed_deadlines_are_told_at_once() {
    let w = world(8);
    let (one, _two, _) = pair(&w, settings());
    one.run(&w, |rt, messaging| async move {
        let to = outgoing(&rt, 9, Verb::Read, 1000);
        let now = rt.now();
        let error = messaging.request(&to, |_| {}).await.unwrap_err();
        assert_eq!(error, MessagingError::UnknownHost(host(9)));
        let passed = Outgoing { deadline: now, ..outgoing(&rt, 2, Verb::Read, 1) };
        let error = messaging.request(&passed, |_| {}).await.unwrap_err();
        assert_eq!(error, MessagingError::Timeout { maybe_delivered: false });
        messaging.set_peer(host(1), messaging.peer(host(2)).unwrap());
        assert_eq!(messaging.peer(host(1)), None, "a node is not its own peer");
    });
}

#[test]
fn an_idle_connection_is_closed_and_opened_again_when_needed() {
    let w = world(9);
    let (one, two, _) = pair(&w, Settings { idle_timeout: millis(2000), ..settings() });
    let ask = |rt: rt::Rt, messaging: Messaging| async move {
        let to = outgoing(&rt, 2, Verb::Read, 1000);
        let write = |out: &mut Vec<u8>| out.extend_from_slice(&payload(1, NOW, 0));
        messaging.request(&to, write).await.unwrap();
    };
    one.run(&w, ask);
    w.run_for(millis(1500));
    assert_eq!(one.messaging.peer_stats()[0].links, 1);
    w.run_for(millis(1500));
    assert_eq!(
        (one.messaging.peer_stats()[0].links, two.messaging.peer_stats()[0].inbounds),
        (0, 0)
    );
    one.run(&w, ask);
    assert_eq!(one.counter("internode_connects_total"), 2);
    assert_eq!(one.counter("internode_connect_failures_total"), 0);
}

#[test]
fn pings_measure_the_way_and_keep_a_quiet_connection() {
    let w = world(10);
    let (one, _two, ledger) = pair(&w, settings());
    w.set_latency(&name(1), &name(2), 10_000..10_001);
    w.set_latency(&name(2), &name(1), 30_000..30_001);
    let (_, client) = recorder(&one, &ledger);
    send(&client, &ledger, 1, &outgoing(&one.rt, 2, Verb::Read, 900), &payload(1, NOW, 0));
    w.run_for(millis(20_000));
    let rtt = one.messaging.peer_stats()[0].rtt.unwrap();
    assert!(rtt >= millis(40) && rtt < millis(45), "{rtt:?}");
    assert_eq!(one.counter("internode_connects_total"), 1);
}

#[test]
fn a_stop_with_requests_under_way_completes_each_of_them_once() {
    for seed in 0..20 {
        let w = world(seed);
        let (one, two, ledger) = pair(&w, settings());
        let (_, client) = recorder(&one, &ledger);
        let (_, other) = recorder(&two, &ledger);
        let sends = ledger.clone();
        let begin = |client: Client, rt: rt::Rt, to: u8, base: u64| {
            for n in 0..40 {
                let how = [NOW, LATER, NEVER][(n % 3) as usize];
                let out = outgoing(&rt, to, Verb::Read, 100 + n * 50);
                send(&client, &sends, base + n, &out, &payload(base + n, how, 100));
            }
        };
        begin(client.clone(), one.rt.clone(), 2, 0);
        begin(other, two.rt.clone(), 1, 100);
        w.run_for(Duration::from_micros(seed * 700));
        let (stopping, grace) = (if seed % 2 == 0 { &one } else { &two }, millis(seed * 40));
        let stopped = stopping.begin(move |_, messaging| async move {
            messaging.stop(grace).await;
        });
        w.run_until(|| stopped.borrow().is_some(), Duration::from_secs(5)).unwrap();
        assert_eq!(stopping.messaging.pending(), 0, "seed {seed}: nothing is left behind");
        let refused = outgoing(&stopping.rt, 1 + (seed % 2) as u8, Verb::Read, 10);
        let error = stopping.messaging.send_one_way(&refused, |_| {}).unwrap_err();
        assert!(matches!(error, MessagingError::Stopping), "{error:?}");
        w.run_for(millis(3000));
        ledger.borrow().check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn a_stopping_node_finishes_what_it_began_and_refuses_the_rest() {
    let w = world(11);
    let (one, two, ledger) = pair(&w, settings());
    let (_, client) = recorder(&one, &ledger);
    let to = |rt: &rt::Rt| outgoing(rt, 2, Verb::Read, 900);
    for token in 0..10 {
        send(&client, &ledger, token, &to(&one.rt), &payload(token, LATER, 10));
    }
    w.run_until(|| two.messaging.serving() == 10, millis(100)).unwrap();
    let stopped = two.begin(|_, messaging| async move { messaging.stop(millis(1000)).await });
    w.run_for(millis(2));
    for token in 10..15 {
        send(&client, &ledger, token, &to(&one.rt), &payload(token, NOW, 10));
    }
    w.run_for(millis(200));
    assert!(stopped.borrow().is_some(), "it did not wait for the whole grace");
    let ledger = ledger.borrow();
    ledger.check().unwrap();
    assert_eq!(ledger.count(|e| *e == End::Answer { right: true }), 10);
    let stopping = End::Error(MessagingError::Remote(ErrorReply::Stopping));
    assert_eq!(ledger.count(|e| *e == stopping), 5);
}

#[test]
fn only_chosen_peers_get_compressed_payloads() {
    for (chosen, compressed) in [(2, true), (3, false)] {
        let w = world(30);
        let (one, two, _) = pair(&w, settings());
        one.messaging.hooks().compress_only(Rc::new(move |to| to == host(chosen)));
        one.run(&w, |rt, messaging| async move {
            let to = outgoing(&rt, 2, Verb::Read, 5000);
            let first = |out: &mut Vec<u8>| out.extend_from_slice(&payload(4, NOW, 0));
            messaging.request(&to, first).await.unwrap();
            let big = |out: &mut Vec<u8>| out.extend_from_slice(&payload(5, NOW, 300_000));
            messaging.request(&to, big).await.unwrap();
        });
        let received = two.counter("internode_received_bytes_total");
        assert_eq!(received < 10_000, compressed, "{received}");
    }
}

#[test]
fn an_answer_of_a_peer_with_a_newer_epoch_is_told() {
    let w = world(31);
    let (one, two, _) = pair(&w, settings());
    let told: Rc<RefCell<Vec<_>>> = Rc::default();
    let out = told.clone();
    one.messaging
        .hooks()
        .on_newer_epoch(Rc::new(move |host, epoch| out.borrow_mut().push((host, epoch))));
    one.messaging.set_epoch(Epoch(5));
    for epoch in [4, 5, 6] {
        two.messaging.set_epoch(Epoch(epoch));
        one.run(&w, |rt, messaging| async move {
            let to = outgoing(&rt, 2, Verb::Read, 1000);
            let write = |out: &mut Vec<u8>| out.extend_from_slice(&payload(1, NOW, 0));
            messaging.request(&to, write).await.unwrap();
        });
    }
    assert_eq!(*told.borrow(), [(host(2), Epoch(6))]);
}
