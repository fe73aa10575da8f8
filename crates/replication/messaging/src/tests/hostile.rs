//! Peers that send garbage or do not read: only their own connection suffers.

use super::harness::*;
use super::ledger::{End, SharedLedger};
use crate::*;
use internode::hello::Handshake;
use internode::{Features, FrameEncoder, FrameHeader, FrameKind, Hello, Lane, Verb, VersionRange};
use rt::sim::World;
use rt::{Conn, Rt};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use stdx::{Epoch, ShardId, Uuid};

fn hello(from: u8) -> Hello {
    Hello {
        versions: VersionRange::THIS,
        features: Features::NONE,
        lane: Lane::Requests,
        joining: false,
        cluster_id: Some(Uuid::from_bytes([0xcc; 16])),
        cluster_name: "Test Cluster".to_owned(),
        from: host(from),
        to: Some(host(2)),
        incarnation: 1,
        source_shard: ShardId(0),
        shard_count: 1,
        destination_shard: ShardId(0),
    }
}

fn frame(kind: FrameKind, verb: Verb, stream: u64, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        kind,
        verb: verb.number(),
        stream,
        epoch: Epoch(1),
        deadline_micros: 60_000_000,
        trace: None,
        more: false,
    };
    let mut out = Vec::new();
    let mut encoder = FrameEncoder::new(false, 1 << 20);
    encoder.encode(&mut out, &header, |o| o.extend_from_slice(payload)).unwrap();
    out
}

/// Runs a raw client named `n3`, which node 2 knows as host 3.
fn raw<T: 'static, F: Future<Output = T> + 'static>(
    w: &World,
    body: impl FnOnce(Rt, Conn) -> F + 'static,
) -> Rc<RefCell<Option<T>>> {
    let result = Rc::new(RefCell::new(None));
    let (out, to) = (result.clone(), address(w, 2));
    w.client(&name(3), move |rt| async move {
        let conn = rt.connect(to).await.unwrap();
        *out.borrow_mut() = Some(body(rt, conn).await);
    });
    result
}

/// After the handshake.
async fn shake(conn: &Conn) {
    let mut bytes = Vec::new();
    Handshake::Hello(hello(3)).encode(&mut bytes);
    conn.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    while Handshake::decode(&answer).unwrap().is_none() {
        assert!(conn.read(&mut answer, 1000).await.unwrap() > 0);
    }
    let (message, _) = Handshake::decode(&answer).unwrap().unwrap();
    assert!(matches!(message, Handshake::Ack(_)), "{message:?}");
}

/// Reads until the other side closes; what came.
async fn until_closed(conn: &Conn) -> Vec<u8> {
    let mut all = Vec::new();
    while conn.read(&mut all, 1 << 16).await.is_ok_and(|n| n > 0) {}
    all
}

fn nodes(w: &World) -> (TestNode, TestNode, SharedLedger) {
    let (one, two, ledger) = pair(w, settings());
    let peer = Peer { address: address(w, 3), shard_count: 1 };
    two.messaging.set_peer(host(3), peer);
    (one, two, ledger)
}

/// Checks that requests of the well-behaved node continue meanwhile.
fn still_works(w: &World, one: &TestNode, ledger: &SharedLedger, token: u64) {
    let (_, client) = recorder(one, ledger);
    let to = outgoing(&one.rt, 2, Verb::Read, 900);
    send(&client, ledger, token, &to, &payload(token, NOW, 100));
    w.run_for(millis(200));
    let ends: Vec<_> = ledger.borrow().0[&token].ends.iter().map(|(_, e)| e.clone()).collect();
    assert_eq!(ends, [End::Answer { right: true }]);
}

#[test]
fn strangers_are_closed_and_nobody_else_notices() {
    let mut no_encryption = Vec::new();
    internode::Refusal::NoEncryption.message().encode(&mut no_encryption);
    for (seed, (bytes, expected)) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], Vec::new()),
        (&[0xca, 0x55, 0x2d, 0xfa, 0, 0, 0, 0], Vec::new()),
        // The begin of TLS may be a peer's.
        (&[0x16, 3, 1, 2, 0, 1, 0, 1], no_encryption),
        (&[0; 100_000], Vec::new()),
    ]
    .into_iter()
    .enumerate()
    {
        let w = world(seed as u64);
        let (one, two, ledger) = nodes(&w);
        still_works(&w, &one, &ledger, 1);
        let answer = raw(&w, move |_, conn| async move {
            let _ = conn.write_all(bytes).await;
            until_closed(&conn).await
        });
        w.run_for(millis(100));
        assert_eq!(answer.take(), Some(expected), "{bytes:?}");
        assert_eq!(two.counter("internode_refused_connections_total"), 1);
        still_works(&w, &one, &ledger, 2);
        assert_eq!(one.counter("internode_connects_total"), 1);
    }
}

#[test]
fn a_damaged_hello_is_answered_with_the_reason() {
    let w = world(1);
    let (_one, _two, _) = nodes(&w);
    let answer = raw(&w, |_, conn| async move {
        let mut bytes = Vec::new();
        Handshake::Hello(hello(3)).encode(&mut bytes);
        bytes[20] ^= 1;
        conn.write_all(&bytes).await.unwrap();
        until_closed(&conn).await
    });
    w.run_for(millis(100));
    let (message, _) = Handshake::decode(&answer.take().unwrap()).unwrap().unwrap();
    match message {
        Handshake::Refused(refused) => assert!(refused.message.contains("checksum"), "{refused:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_says_nothing_is_closed_and_silent_handshakes_are_bounded() {
    let w = world(2);
    let (one, two, ledger) = pair(&w, Settings { handshakes_max: 4, ..settings() });
    let to = address(&w, 2);
    let closed = Rc::new(RefCell::new(Vec::new()));
    for n in 0..6 {
        let out = closed.clone();
        w.client(&format!("silent{n}"), move |rt| async move {
            let conn = rt.connect(to).await.unwrap();
            assert!(until_closed(&conn).await.is_empty());
            out.borrow_mut().push(rt.now());
        });
    }
    w.run_for(millis(100));
    assert_eq!(closed.borrow().len(), 2, "above the limit");
    w.run_for(millis(1000));
    assert_eq!(closed.borrow().len(), 6, "no HELLO in time");
    assert_eq!(two.counter("internode_refused_connections_total"), 6);
    still_works(&w, &one, &ledger, 1);
}

/// INV-messaging-3.
#[test]
fn garbage_after_the_handshake_closes_its_own_connection_with_a_count() {
    let cases: [(&str, Vec<u8>); 5] = [
        ("noise", vec![0x55; 500]),
        ("a response where requests belong", frame(FrameKind::Response, Verb::Read, 1, b"")),
        ("a frame above the limit", {
            // A length of 2 GiB with a checksum that fits.
            let mut bytes = frame(FrameKind::Request, Verb::Read, 1, b"");
            bytes[0] = 0x7f;
            let checksum = codec::crc32(&bytes[..32]);
            bytes[32..36].copy_from_slice(&checksum.to_be_bytes());
            bytes
        }),
        ("a damaged payload", {
            let mut bytes = frame(FrameKind::Request, Verb::Read, 1, b"payload");
            *bytes.last_mut().unwrap() ^= 1;
            bytes
        }),
        ("a stream that is in use", {
            let one = frame(FrameKind::Request, Verb::Read, 1, &payload(77, NEVER, 0));
            [one.clone(), one].concat()
        }),
    ];
    for (seed, (what, bytes)) in cases.into_iter().enumerate() {
        let w = world(seed as u64);
        let (one, two, ledger) = nodes(&w);
        still_works(&w, &one, &ledger, 1);
        let closed = raw(&w, |_, conn| async move {
            shake(&conn).await;
            conn.write_all(&bytes).await.unwrap();
            until_closed(&conn).await
        });
        w.run_for(millis(100));
        assert!(closed.borrow().is_some(), "{what}");
        assert_eq!(two.counter("internode_protocol_errors_total"), 1, "{what}");
        still_works(&w, &one, &ledger, 2);
        assert_eq!(one.counter("internode_connects_total"), 1, "{what}");
    }
}

#[test]
fn good_frames_of_a_raw_client_are_answered_so_the_cases_above_fail_for_their_own_reason() {
    let w = world(3);
    let (_one, two, _) = nodes(&w);
    let answer = raw(&w, |rt, conn| async move {
        shake(&conn).await;
        let mut bytes = frame(FrameKind::Request, Verb::Read, 1, &payload(77, NOW, 0));
        // A verb of a later version is answered, not punished.
        let mut unknown = frame(FrameKind::Request, Verb::Read, 2, b"");
        unknown[6..8].copy_from_slice(&0x7f01u16.to_be_bytes());
        let checksum = codec::crc32(&unknown[..32]);
        unknown[32..36].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend_from_slice(&unknown);
        conn.write_all(&bytes).await.unwrap();
        rt.sleep(millis(50)).await;
        let mut answers = Vec::new();
        conn.read(&mut answers, 1000).await.unwrap();
        answers
    });
    w.run_for(millis(100));
    let answers = answer.take().unwrap();
    let mut decoder = internode::FrameDecoder::new(false, 1000);
    let (frame, length) = decoder.next(&answers).unwrap().unwrap();
    assert_eq!((frame.header.kind, frame.header.stream), (FrameKind::Response, 1));
    let (frame, _) = decoder.next(&answers[length..]).unwrap().unwrap();
    assert_eq!((frame.header.kind, frame.header.stream), (FrameKind::Error, 2));
    let error = internode::ErrorReply::decode(frame.payload).unwrap();
    assert_eq!(error, internode::ErrorReply::UnknownVerb(0x7f01));
    assert_eq!(two.counter("internode_protocol_errors_total"), 0);
}

#[test]
fn a_peer_that_does_not_read_its_answers_is_held_back_and_then_disconnected() {
    let w = world(4);
    let (one, two, ledger) = {
        let small = Settings { response_bytes_max: 200_000, ..settings() };
        let (one, two, ledger) = pair(&w, small);
        two.messaging.set_peer(host(3), Peer { address: address(&w, 3), shard_count: 1 });
        (one, two, ledger)
    };
    still_works(&w, &one, &ledger, 1);
    let gone = raw(&w, |rt, conn| async move {
        shake(&conn).await;
        let mut written = 0u64;
        for stream in 1.. {
            let bytes =
                frame(FrameKind::Request, Verb::Read, stream, &payload(stream, NOW, 10_000));
            if conn.write_all(&bytes).await.is_err() {
                break;
            }
            written += bytes.len() as u64;
        }
        (rt.now(), written)
    });
    let begin = w.now();
    let mut most = 0;
    while gone.borrow().is_none() {
        w.run_for(millis(20));
        most = most.max(two.messaging.env.answer_bytes.get());
        assert!(w.now().since(begin) < Duration::from_secs(10), "it is never disconnected");
    }
    // Two sockets' worth of requests and answers, and the bound here.
    assert!(most <= 200_000 + 300_000, "{most} bytes waited");
    let (_, written) = gone.take().unwrap();
    assert!(written < 2_000_000, "it could send {written}");
    w.run_for(millis(100));
    assert_eq!(two.messaging.env.answer_bytes.get(), 0);
    still_works(&w, &one, &ledger, 2);
}

#[test]
fn answers_that_pile_up_without_new_requests_are_bounded_too() {
    struct Multiplies;
    impl Handler for Multiplies {
        fn handle(&self, _: Request<'_>, responder: Responder) {
            for _ in 0..100 {
                responder.respond_partly(|out| out.resize(out.len() + 10_000, 1));
            }
            responder.respond(|_| {});
        }
    }
    let w = world(5);
    let small = Settings { response_bytes_max: 100_000, ..settings() };
    let two = start(&w, identity(2), &[3], small, |_| Rc::new(Multiplies));
    let gone = raw(&w, |_, conn| async move {
        shake(&conn).await;
        let bytes = frame(FrameKind::Request, Verb::Read, 1, b"");
        conn.write_all(&bytes).await.unwrap();
        std::future::pending::<()>().await;
    });
    w.run_for(millis(100));
    assert!(gone.borrow().is_none());
    assert_eq!(two.messaging.peer_stats()[0].inbounds, 0, "disconnected in the same turn");
    assert_eq!((two.messaging.env.answer_bytes.get(), two.messaging.serving()), (0, 0));
}

#[test]
fn a_server_that_answers_garbage_loses_the_connection_not_the_node() {
    let w = world(6);
    let ledger = SharedLedger::default();
    let one = start(&w, identity(1), &[2], settings(), |rt| Echo::new(rt, &ledger));
    let cases = [vec![0x11; 200], frame(FrameKind::Request, Verb::Read, 1, b"")];
    w.client(&name(2), move |rt| async move {
        let any = std::net::SocketAddr::from(([0, 0, 0, 0], PORT));
        let listener = rt.listen(any, rt::ListenOptions::default()).await.unwrap();
        for bytes in cases {
            let conn = listener.accept().await.unwrap();
            let mut got = Vec::new();
            while Handshake::decode(&got).unwrap().is_none() {
                conn.read(&mut got, 1000).await.unwrap();
            }
            let accepting = identity(2);
            let Some((Handshake::Hello(hello), _)) = Handshake::decode(&got).unwrap() else {
                panic!("no HELLO")
            };
            let agreement = internode::judge(&accepting, &hello, true).unwrap();
            let mut answer = Vec::new();
            Handshake::Ack(accepting.ack(&agreement)).encode(&mut answer);
            answer.extend_from_slice(&bytes);
            conn.write_all(&answer).await.unwrap();
            until_closed(&conn).await;
        }
    });
    let (_, client) = recorder(&one, &ledger);
    for token in 0..2 {
        let to = outgoing(&one.rt, 2, Verb::Read, 900);
        send(&client, &ledger, token, &to, &payload(token, NOW, 0));
        w.run_for(millis(300));
    }
    assert_eq!(one.counter("internode_protocol_errors_total"), 2);
    ledger.borrow().check().unwrap();
    assert_eq!(ledger.borrow().count(|e| matches!(e, End::Error(MessagingError::Lost { .. }))), 2);
}
