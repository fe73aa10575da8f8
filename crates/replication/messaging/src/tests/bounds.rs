//! Every limit is hit, and the nearest value below it passes.

use super::harness::*;
use super::ledger::{End, SharedLedger};
use crate::*;
use internode::{ErrorReply, Verb};

fn count(ledger: &SharedLedger, error: MessagingError) -> usize {
    ledger.borrow().count(|e| *e == End::Error(error.clone()))
}

fn answers(ledger: &SharedLedger) -> usize {
    ledger.borrow().count(|e| *e == End::Answer { right: true })
}

#[test]
fn more_requests_than_may_wait_are_refused_at_once() {
    let w = world(1);
    let (one, _two, ledger) = pair(&w, Settings { in_flight_max: 10, ..settings() });
    let (_, client) = recorder(&one, &ledger);
    let to = outgoing(&one.rt, 2, Verb::Read, 500);
    for token in 0..15 {
        send(&client, &ledger, token, &to, &payload(token, LATER, 0));
    }
    assert_eq!(count(&ledger, MessagingError::Overloaded(Bound::InFlight)), 5);
    w.run_for(millis(200));
    assert_eq!(answers(&ledger), 10);
    // Their places are free again.
    for token in 20..30 {
        send(&client, &ledger, token, &to, &payload(token, NOW, 0));
    }
    w.run_for(millis(200));
    assert_eq!(answers(&ledger), 20);
    assert_eq!(one.dropped("overloaded"), 5);
}

#[test]
fn bytes_that_wait_are_bounded_per_connection_and_per_shard() {
    let w = world(2);
    let bounded = Settings {
        queue_bytes_max: 100_000,
        queue_bytes_shard_max: 150_000,
        compression: false,
        ..settings()
    };
    let ledger = SharedLedger::default();
    let one = start(&w, identity(1), &[2, 3], bounded, |rt| Echo::new(rt, &ledger));
    let echo = |n| start(&w, identity(n), &[1], settings(), |rt| Echo::new(rt, &ledger));
    let _others = (echo(2), echo(3));
    w.run_for(millis(10));
    let (_, client) = recorder(&one, &ledger);
    // Nothing leaves before the connection is open.
    let size = 30_000 - 36 - 9;
    for token in 0..6 {
        let to = outgoing(&one.rt, 2, Verb::Read, 500);
        send(&client, &ledger, token, &to, &payload(token, NOW, size));
    }
    assert_eq!(count(&ledger, MessagingError::Overloaded(Bound::QueueBytes)), 2);
    assert_eq!(one.messaging.env.queued_bytes.get(), 120_000, "one may stick out");
    for token in 6..9 {
        let to = outgoing(&one.rt, 3, Verb::Read, 500);
        send(&client, &ledger, token, &to, &payload(token, NOW, size));
    }
    assert_eq!(count(&ledger, MessagingError::Overloaded(Bound::QueueBytesOfShard)), 2);
    w.run_for(millis(200));
    assert_eq!((answers(&ledger), one.messaging.env.queued_bytes.get()), (5, 0));
}

#[test]
fn the_largest_message_passes_and_one_byte_more_is_refused_before_it_is_sent() {
    let w = world(3);
    let small = Settings { payload_bytes_max: 10_000, compression: false, ..settings() };
    let (one, _two, ledger) = pair(&w, small);
    let (_, client) = recorder(&one, &ledger);
    let to = outgoing(&one.rt, 2, Verb::Read, 500);
    send(&client, &ledger, 1, &to, &payload(1, NOW, 10_000 - 9));
    send(&client, &ledger, 2, &to, &payload(2, NOW, 10_001 - 9));
    assert_eq!(count(&ledger, MessagingError::TooLarge { length: 10_001, max: 10_000 }), 1);
    w.run_for(millis(200));
    assert_eq!((answers(&ledger), one.messaging.pending()), (1, 0));
}

#[test]
fn an_answer_above_the_limit_becomes_an_error() {
    struct Large;
    impl Handler for Large {
        fn handle(&self, _: Request<'_>, responder: Responder) {
            responder.respond(|out| out.resize(out.len() + 10_001, 0));
        }
    }
    let w = world(3);
    let small = Settings { payload_bytes_max: 10_000, compression: false, ..settings() };
    let one = start(&w, identity(1), &[2], small.clone(), |_| std::rc::Rc::new(Large));
    let _two = start(&w, identity(2), &[1], small, |_| std::rc::Rc::new(Large));
    let answer = one.run(&w, |rt, messaging| async move {
        messaging.request(&outgoing(&rt, 2, Verb::Read, 500), |_| {}).await
    });
    let error = answer.unwrap_err();
    assert!(matches!(error, MessagingError::Remote(ErrorReply::Internal(_))), "{error:?}");
}

#[test]
fn a_receiver_answers_overloaded_above_its_counts_and_bytes() {
    let check = |settings: Settings, length: usize, expected: usize| {
        let w = world(4);
        let (one, two, ledger) = pair(&w, settings);
        let (_, client) = recorder(&one, &ledger);
        let to = outgoing(&one.rt, 2, Verb::Read, 500);
        for token in 0..20 {
            send(&client, &ledger, token, &to, &payload(token, LATER, length - 9));
        }
        w.run_for(millis(300));
        let overloaded = MessagingError::Remote(ErrorReply::Overloaded);
        assert_eq!((answers(&ledger), count(&ledger, overloaded)), (expected, 20 - expected));
        ledger.borrow().check().unwrap();
        assert_eq!(two.dropped("shed-by-receiver"), 20 - expected as u64);
        assert_eq!((two.messaging.serving(), two.messaging.env.serving_bytes.get()), (0, 0));
    };
    check(Settings { serving_max: 8, ..settings() }, 10, 8);
    check(Settings { serving_bytes_max: 5000, ..settings() }, 1000, 5);
    check(Settings { serving_bytes_shard_max: 3999, ..settings() }, 1000, 3);
    // A message of any size fits when no other is being served.
    check(Settings { serving_bytes_max: 10, ..settings() }, 1000, 1);
    check(settings(), 1000, 20);
}
