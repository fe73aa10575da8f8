//! Handshakes whose steps a pool computes: the order of bytes, cuts, bounds, the end of the pool.

use super::tls::{PATIENCE, accept, accept_one, connect, echo, name, pair, pattern, read_exactly};
use super::{World, WorldOptions, in_world, on_both_with};
use crate::sim::LinkOptions;
use crate::{
    Group, HandshakePool, ListenOptions, NodeSpec, PlainText, Rt, Stream, TlsClient, TlsServer,
};
use ::tls::ClientAuth;
use ::tls::rustls::ClientConnection;
use std::cell::RefCell;
use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::IoErrorKind;

const NAME: &str = "tls-test";

fn with_pool(rt: &Rt, tls: &TlsServer, waiting_max: usize) -> (TlsServer, HandshakePool) {
    let pool = HandshakePool::start(rt, NAME, waiting_max).unwrap();
    (TlsServer { handshakes: pool.handshakes(), ..tls.clone() }, pool)
}

/// Steps that the pools of this shard performed.
fn steps(rt: &Rt) -> u64 {
    match rt.telemetry().snapshot().find("service_request_micros").map(|metric| &metric.value) {
        None => 0,
        Some(telemetry::Value::Histogram(histogram)) => histogram.count(),
        Some(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_pool_performs_the_steps_of_accepted_connections_alone() {
    on_both_with(
        1,
        || pair(ClientAuth::Required),
        |rt, (server, client)| {
            Box::pin(async move {
                let (server, _pool) = with_pool(&rt, &server, 10);
                let (at, gate) = accept_one(&rt, &server, PlainText::Refused, |accepted| async {
                    echo(accepted.unwrap().stream).await;
                })
                .await;
                let stream = connect(&rt, at, &client).await;
                stream.write_all(&pattern(50_000)).await.unwrap();
                assert_eq!(read_exactly(&stream, 50_000).await, pattern(50_000));
                // The hello of the client, and its certificate.
                assert!(steps(&rt) >= 2, "{}", steps(&rt));
                stream.shutdown();
                gate.close().await;
            })
        },
    );
}

/// INV-rt-8: a client that does not wait for the end of the handshake, and bytes that arrive one by one.
#[test]
fn bytes_that_follow_a_handshake_arrive_in_their_order() {
    for piece in [1, 7, 100, 100_000] {
        on_both_with(
            1,
            move || (pair(ClientAuth::Required), piece),
            |rt, ((server, client), piece)| {
                Box::pin(async move {
                    let (server, _pool) = with_pool(&rt, &server, 10);
                    let both = PlainText::Refused;
                    let (at, gate) = accept_one(&rt, &server, both, |accepted| async {
                        let stream = accepted.unwrap().stream;
                        let got = read_exactly(&stream, 30_000).await;
                        assert!(got == pattern(30_000));
                        stream.write_all(b"all").await.unwrap();
                        assert_eq!(stream.read(&mut Vec::new(), 10).await.unwrap_or(0), 0);
                    })
                    .await;
                    send_with_handshake(&rt, at, &client, piece).await;
                    gate.close().await;
                })
            },
        );
    }
}

/// Performs a handshake with messages cut into pieces; its last one is sent together with application data.
async fn send_with_handshake(rt: &Rt, at: SocketAddr, tls: &TlsClient, piece: usize) {
    let conn = rt.connect(at).await.unwrap();
    let mut session = ClientConnection::new(tls.config.clone(), name()).unwrap();
    let mut has_written = false;
    loop {
        if !session.is_handshaking() && !has_written {
            for part in pattern(30_000).chunks(1000) {
                session.writer().write_all(part).unwrap();
            }
            has_written = true;
        }
        let mut records = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut records).unwrap();
        }
        // Only the begin of each flight is cut finely.
        let (fine, rest) = records.split_at(records.len().min(40 * piece));
        for part in fine.chunks(piece).chain([rest].into_iter().filter(|rest| !rest.is_empty())) {
            conn.write_all(part).await.unwrap();
            rt.yield_if_due().await;
        }
        if has_written {
            break;
        }
        let mut received = Vec::new();
        assert!(conn.read(&mut received, 100_000).await.unwrap() > 0);
        let mut rest = &received[..];
        while !rest.is_empty() {
            session.read_tls(&mut rest).unwrap();
            session.process_new_packets().unwrap();
        }
    }
    let mut answer = Vec::new();
    assert!(conn.read(&mut answer, 100_000).await.unwrap() > 0);
    conn.shutdown();
}

/// INV-rt-9
#[test]
fn a_full_pool_refuses_a_handshake_at_once_and_counts_it() {
    on_both_with(
        1,
        || pair(ClientAuth::NotRequired),
        |rt, (server, client)| {
            Box::pin(async move {
                let (server, _pool) = with_pool(&rt, &server, 0);
                let both = PlainText::Accepted;
                let (at, gate) = accept_one(&rt, &server, both, |accepted| async {
                    assert_eq!(accepted.err(), Some(IoErrorKind::Refused));
                })
                .await;
                let conn = rt.connect(at).await.unwrap();
                let deadline = rt.now() + PATIENCE;
                assert!(Stream::connect_tls(&rt, conn, &client, name(), deadline).await.is_err());
                gate.close().await;
                // The count is added by a task of the pool.
                let refused = || {
                    let snapshot = rt.telemetry().snapshot();
                    let found = snapshot.find("service_requests_refused_total");
                    found.map(|metric| metric.value.clone())
                };
                while refused().is_none() {
                    rt.sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(refused(), Some(telemetry::Value::Counter(1)));
                // One in the clear needs no pool.
                let (at, gate) = accept_one(&rt, &server, both, |accepted| async {
                    assert!(accepted.unwrap().stream.tls().is_none());
                })
                .await;
                rt.connect(at).await.unwrap().write_all(b"\x04").await.unwrap();
                gate.close().await;
            })
        },
    );
}

/// A world whose pools take a second for each step.
fn slow_pools(seed: u64) -> World {
    let service_micros = 1_000_000..1_000_001;
    World::new(seed, WorldOptions { service_micros, ..WorldOptions::default() })
}

type Outcomes = Arc<std::sync::Mutex<Vec<Result<(), IoErrorKind>>>>;

/// A server that notes how handshakes end; `ended` after a time, if one is given, its pool ends.
fn start_server(w: &World, tls: TlsServer, ended: Option<Duration>) -> (SocketAddr, Outcomes) {
    let outcomes = Outcomes::default();
    let noted = Arc::clone(&outcomes);
    let main: super::Main = Arc::new(move |rt| {
        let (tls, noted) = (tls.clone(), Arc::clone(&noted));
        Box::pin(async move {
            let (tls, pool) = with_pool(&rt, &tls, 100);
            let pool = Rc::new(RefCell::new(Some(pool)));
            let any = "0.0.0.0:9142".parse().unwrap();
            let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
            let gate = rt.gate("conns");
            if let Some(after) = ended {
                let (mine, pool) = (rt.clone(), Rc::clone(&pool));
                let end = async move {
                    mine.sleep(after).await;
                    drop(pool.take());
                };
                gate.spawn(&rt, Group::Admin, "end", end).unwrap();
            }
            while let Ok(conn) = listener.accept().await {
                let (mine, tls, noted) = (rt.clone(), tls.clone(), Arc::clone(&noted));
                let task = async move {
                    let accepted = accept(&mine, conn, &tls, PlainText::Refused).await;
                    let outcome = accepted.as_ref().map(|_| ()).map_err(|error| error.kind);
                    noted.lock().unwrap().push(outcome);
                    if let Ok(accepted) = accepted {
                        echo(accepted.stream).await;
                    }
                };
                gate.spawn(&rt, Group::Statement, "conn", task).unwrap();
            }
        })
    });
    let spec = NodeSpec { name: "n1".to_string(), shards: 1, work_dir: "/data".to_string() };
    w.start_node(spec, main);
    w.run_for(Duration::from_millis(1));
    (SocketAddr::new(w.ip("n1"), 9142), outcomes)
}

fn outcomes_of(noted: &Outcomes) -> Vec<Result<(), IoErrorKind>> {
    noted.lock().unwrap().clone()
}

/// The client is gone while a step is computed: with an end, and with a reset.
#[test]
fn a_connection_that_is_cut_during_a_step_harms_no_other() {
    for (seed, is_cut) in [(1, false), (2, true)] {
        let w = slow_pools(seed);
        let (server, client) = pair(ClientAuth::Required);
        let (at, outcomes) = start_server(&w, server, None);
        let world = w.clone();
        in_world(&w, "c", move |rt| async move {
            let gone = rt.connect(at).await.unwrap();
            let mut session = ClientConnection::new(client.config.clone(), name()).unwrap();
            let mut hello = Vec::new();
            session.write_tls(&mut hello).unwrap();
            gone.write_all(&hello).await.unwrap();
            rt.sleep(Duration::from_millis(300)).await;
            if is_cut {
                let resets_per_million = Some(1_000_000);
                let resets = LinkOptions { resets_per_million, ..LinkOptions::default() };
                world.set_link("c", "n1", resets);
                let _ = gone.write_all(b"x").await;
                rt.sleep(Duration::from_millis(100)).await;
                world.set_link("c", "n1", LinkOptions::default());
            } else {
                gone.shutdown();
            }
            let began = rt.now();
            let stream = connect(&rt, at, &client).await;
            assert!(rt.now().since(began) >= Duration::from_secs(1), "the pool is not slow");
            stream.write_all(b"hello").await.unwrap();
            assert_eq!(read_exactly(&stream, 5).await, b"hello");
        });
        w.run_for(PATIENCE * 2);
        let ended = outcomes_of(&outcomes);
        assert_eq!(ended.iter().filter(|end| end.is_ok()).count(), 1, "{ended:?}");
        assert_eq!(ended.len(), 2, "{ended:?}");
    }
}

#[test]
fn handshakes_fail_at_once_when_their_pool_ends_and_at_their_deadline_when_it_is_slow() {
    let ended = Some(Duration::from_millis(1500));
    for (ended, step, expected) in [
        (ended, 1_000_000, Err(IoErrorKind::Stopping)),
        (None, 1_000_000, Ok(())),
        (None, 30_000_000, Err(IoErrorKind::Disconnected)),
    ] {
        let options = WorldOptions { service_micros: step..step + 1, ..WorldOptions::default() };
        let w = World::new(3, options);
        let (server, client) = pair(ClientAuth::Required);
        let (at, outcomes) = start_server(&w, server, ended);
        in_world(&w, "c", move |rt| async move {
            let began = rt.now();
            let conn = rt.connect(at).await.unwrap();
            let deadline = rt.now() + PATIENCE * 2;
            let connected = Stream::connect_tls(&rt, conn, &client, name(), deadline).await;
            // With TLS 1.3 a client is done before the server.
            if let Ok(stream) = connected {
                let written = stream.write_all(b"hello").await;
                let read = stream.read(&mut Vec::new(), 10).await.unwrap_or(0);
                assert_eq!(written.is_ok() && read > 0, expected.is_ok());
            }
            let took = rt.now().since(began);
            match expected {
                Err(IoErrorKind::Disconnected) => assert!(took >= PATIENCE, "{took:?}"),
                _ => assert!(took < Duration::from_secs(4), "{took:?}"),
            }
        });
        assert_eq!(outcomes_of(&outcomes), [expected]);
    }
}
