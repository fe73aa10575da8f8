//! TLS over sockets of both worlds: handshakes, the first byte, slow readers, cut handshakes, streams that move.

use super::{Main, NodeSpec, World, WorldOptions, in_world, on_both_with};
use crate::Group;
use crate::Rt;
use crate::sim::LinkOptions;
use crate::{
    Accepted, Handshakes, ListenOptions, Mesh, MovedStream, NotConnected, PlainText, Stream,
    TlsClient, TlsClock, TlsServer,
};
use ::tls::config::{HostNames, SessionTickets};
use ::tls::rustls::pki_types::ServerName;
use ::tls::{ClientAuth, ClientParts, Identity, KeyMaterial, Offer, ServerParts, Source, Trust};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stdx::{IoErrorKind, ShardId};

pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A server and a client that trust the same authority. Signatures of Ed25519 have one length: simulated runs of one
/// seed are the same although keys are random.
pub(super) fn pair(client_auth: ClientAuth) -> (TlsServer, TlsClient) {
    pair_until(client_auth, 4000)
}

/// The client's certificate ends with the first day of the year.
fn pair_until(client_auth: ClientAuth, year: i32) -> (TlsServer, TlsClient) {
    let authority_key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let source = |text: String| Source { place: "test".to_owned(), bytes: text.into_bytes() };
    let identity = |name: &str| {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        if name == "client" {
            params.not_after = rcgen::date_time_ymd(year, 1, 2);
        }
        let leaf = params.signed_by(&key, &issuer).unwrap();
        let store = source(key.serialize_pem() + &leaf.pem());
        Identity::read(&KeyMaterial { store, key: None, password: None }).unwrap()
    };
    let trust = Trust::read(&source(certificate), None).unwrap();
    let clock = TlsClock::new();
    let server = ServerParts {
        section: "client_encryption_options",
        identity: identity("node"),
        trust: Some(trust.clone()),
        client_auth,
        revoked: Vec::new(),
        offer: Offer::default(),
        tickets: SessionTickets::Issued,
        clock: clock.clone(),
    };
    let client = ClientParts {
        section: "client",
        identity: Some(identity("client")),
        trust,
        host_names: HostNames::Compared,
        revoked: Vec::new(),
        offer: Offer::default(),
        clock: clock.clone(),
    };
    (
        TlsServer {
            config: ::tls::server_config(server).unwrap(),
            clock: clock.clone(),
            handshakes: Handshakes::default(),
        },
        TlsClient { config: ::tls::client_config(client).unwrap(), clock },
    )
}

pub(super) fn name() -> ServerName<'static> {
    ServerName::try_from("node").unwrap()
}

pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 256) as u8).collect()
}

pub(super) async fn connect(rt: &Rt, to: SocketAddr, tls: &TlsClient) -> Stream {
    let conn = rt.connect(to).await.unwrap();
    Stream::connect_tls(rt, conn, tls, name(), rt.now() + PATIENCE).await.unwrap()
}

pub(super) async fn accept(
    rt: &Rt,
    conn: crate::Conn,
    tls: &TlsServer,
    plain: PlainText,
) -> Result<Accepted, stdx::IoError> {
    let stream = Stream::plain(conn);
    let first = stream.first_bytes(rt, plain, PATIENCE).await?;
    stream.accept_tls(rt, tls, first, rt.now() + PATIENCE).await
}

/// Accepts one connection at a port of its own, in a task.
pub(super) async fn accept_one<F: Future<Output = ()> + 'static>(
    rt: &Rt,
    tls: &TlsServer,
    plain: PlainText,
    then: impl FnOnce(Result<Accepted, IoErrorKind>) -> F + 'static,
) -> (SocketAddr, crate::Gate) {
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
    let at = listener.local_addr();
    let (gate, mine, tls) = (rt.gate("accept"), rt.clone(), tls.clone());
    let task = async move {
        let conn = listener.accept().await.unwrap();
        let accepted = accept(&mine, conn, &tls, plain).await;
        then(accepted.map_err(|e| e.kind)).await;
    };
    gate.spawn(rt, Group::Statement, "accept", task).unwrap();
    (at, gate)
}

/// Sends back what comes until the end.
pub(super) async fn echo(stream: Stream) {
    let mut buf = Vec::new();
    while stream.read(&mut buf, 10_000).await.is_ok_and(|n| n > 0) {
        if stream.write_all(&buf).await.is_err() {
            return;
        }
        buf.clear();
    }
}

pub(super) async fn read_exactly(stream: &Stream, length: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < length {
        let max = (length - got.len()).min(5000);
        assert!(stream.read(&mut got, max).await.unwrap() > 0);
    }
    got
}

#[test]
fn bytes_of_any_length_come_back_over_tls() {
    on_both_with(
        1,
        || pair(ClientAuth::Required),
        |rt, (server, client)| {
            Box::pin(async move {
                let (at, gate) = accept_one(&rt, &server, PlainText::Refused, |accepted| async {
                    let accepted = accepted.unwrap();
                    assert!(accepted.received.is_empty());
                    let info = accepted.stream.tls().unwrap();
                    assert_eq!(info.protocol, "TLSv1.3");
                    assert_eq!(info.cipher_suite, "TLS_AES_256_GCM_SHA384");
                    assert_eq!(info.peer.unwrap().dns_names, ["client"]);
                    echo(accepted.stream).await;
                })
                .await;
                let stream = connect(&rt, at, &client).await;
                for length in [0, 1, 100, 16_384, 16_385, 50_000] {
                    stream.write_all(&pattern(length)).await.unwrap();
                    assert_eq!(read_exactly(&stream, length).await, pattern(length));
                }
                // INV-rt-5: clones are the same stream; one writes while the other reads.
                let writer = stream.clone();
                let write = async move { writer.write_all(&pattern(3_000_000)).await.unwrap() };
                gate.spawn(&rt, Group::Statement, "write", write).unwrap();
                assert_eq!(read_exactly(&stream, 3_000_000).await, pattern(3_000_000));
                stream.shutdown();
                gate.close().await;
            })
        },
    );
}

/// INV-rt-6: a caller that counts the bytes `try_write` took and writes until all are taken leaves
/// no ciphertext behind.
#[test]
fn a_full_socket_leaves_nothing_behind_that_was_counted_as_written() {
    on_both_with(
        1,
        || pair(ClientAuth::NotRequired),
        |rt, (server, client)| {
            Box::pin(async move {
                const LENGTH: usize = 9_000_000;
                let (at, gate) = accept_one(&rt, &server, PlainText::Refused, |accepted| async {
                    let stream = accepted.unwrap().stream;
                    let all = pattern(LENGTH);
                    let mut written = stream.try_write(&all).unwrap();
                    // More than the socket has room for: the reader has not begun.
                    assert!(written < LENGTH);
                    while written < LENGTH {
                        let piece = &all[written..LENGTH.min(written + 70_000)];
                        let (all_of, some_of) = piece.split_at(piece.len().div_ceil(2));
                        stream.write_all(all_of).await.unwrap();
                        written += all_of.len();
                        written += stream.try_write(some_of).unwrap();
                    }
                    // Nothing is written any more, and it is not closed: what is missing now never comes.
                    let mut end = Vec::new();
                    assert_eq!(stream.read(&mut end, 10).await.unwrap_or(0), 0);
                })
                .await;
                let stream = connect(&rt, at, &client).await;
                rt.sleep(Duration::from_millis(50)).await;
                let mut got = Vec::new();
                while got.len() < LENGTH {
                    // Reads that are dropped lose nothing.
                    let until = rt.now() + Duration::from_millis(200);
                    let read = rt.timeout(until, stream.read(&mut got, 1 << 20)).await;
                    assert!(read.unwrap().unwrap() > 0);
                    let _ = rt.timeout(rt.now(), stream.read(&mut got, 3)).await;
                }
                assert!(got == pattern(LENGTH));
                stream.shutdown();
                gate.close().await;
            })
        },
    );
}

#[test]
fn the_first_byte_tells_plain_text_from_tls() {
    on_both_with(
        1,
        || pair(ClientAuth::NotRequired),
        |rt, (server, client)| {
            Box::pin(async move {
                let both = PlainText::Accepted;
                let (at, plain) = accept_one(&rt, &server, both, |accepted| async {
                    let accepted = accepted.unwrap();
                    assert!(accepted.stream.tls().is_none());
                    assert_eq!(accepted.received, b"\x04 plain");
                    accepted.stream.write_all(b"ok").await.unwrap();
                })
                .await;
                let conn = Stream::plain(rt.connect(at).await.unwrap());
                // Silence is no handshake that takes too long.
                rt.sleep(Duration::from_millis(1)).await;
                conn.write_all(b"\x04 plain").await.unwrap();
                assert_eq!(read_exactly(&conn, 2).await, b"ok");
                plain.close().await;
                let (at, encrypted) = accept_one(&rt, &server, both, |accepted| async {
                    let stream = accepted.unwrap().stream;
                    assert!(stream.tls().unwrap().peer.is_none());
                    echo(stream).await;
                })
                .await;
                let stream = connect(&rt, at, &client).await;
                stream.write_all(b"hello").await.unwrap();
                assert_eq!(read_exactly(&stream, 5).await, b"hello");
                stream.shutdown();
                encrypted.close().await;
                let (at, refused) =
                    accept_one(&rt, &server, PlainText::Refused, |accepted| async {
                        assert_eq!(accepted.err(), Some(IoErrorKind::Damaged));
                    })
                    .await;
                let conn = rt.connect(at).await.unwrap();
                conn.write_all(b"\x04 plain").await.unwrap();
                refused.close().await;
                // A reset: drivers would wait for an answer after an end.
                let read = conn.read(&mut Vec::new(), 10).await;
                assert_eq!(read.map_err(|error| error.kind), Err(IoErrorKind::Disconnected));
            })
        },
    );
}

#[test]
fn an_established_stream_moves_to_another_shard() {
    on_both_with(
        2,
        || (Mesh::<MovedStream, usize>::new(2, 10), pair(ClientAuth::NotRequired)),
        |rt, (mesh, (server, client))| {
            Box::pin(async move {
                if rt.shard() == ShardId(1) {
                    let (mine, gate) = (rt.clone(), rt.gate("moved"));
                    mesh.serve(&rt.clone(), move |moved, reply| {
                        let conn = Stream::from_moved(&mine, moved).unwrap();
                        let task = async move {
                            let got = read_exactly(&conn, 12).await;
                            conn.write_all(b"seen").await.unwrap();
                            reply.send(got.len());
                            while conn.read(&mut Vec::new(), 10).await.is_ok_and(|n| n > 0) {}
                        };
                        gate.spawn(&mine, Group::Statement, "moved", task).unwrap();
                    });
                    return;
                }
                let mine = rt.clone();
                let (at, gate) =
                    accept_one(&rt, &server, PlainText::Refused, |accepted| async move {
                        let stream = accepted.unwrap().stream;
                        // A part is read here and a part there.
                        mine.sleep(Duration::from_millis(1)).await;
                        let moved = mesh.call(&mine, ShardId(1), stream.into_moved()).await;
                        assert_eq!(moved, Ok(12));
                    })
                    .await;
                let stream = connect(&rt, at, &client).await;
                stream.write_all(b"before").await.unwrap();
                stream.write_all(b" after").await.unwrap();
                assert_eq!(read_exactly(&stream, 4).await, b"seen");
                stream.shutdown();
                gate.close().await;
            })
        },
    );
}

/// A server that counts how handshakes end, on a simulated machine.
fn start_server(w: &World, tls: TlsServer) -> SocketAddr {
    let main: Main = Arc::new(move |rt| {
        let tls = tls.clone();
        Box::pin(async move {
            let any = "0.0.0.0:9142".parse().unwrap();
            let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
            let gate = rt.gate("conns");
            while let Ok(conn) = listener.accept().await {
                let (mine, tls) = (rt.clone(), tls.clone());
                let task = async move {
                    let plain = PlainText::Refused;
                    let accepted = accept(&mine, conn, &tls, plain).await;
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
    SocketAddr::new(w.ip("n1"), 9142)
}

/// rustls takes the certificate of a resumed session from the ticket.
#[test]
fn a_session_is_not_resumed_with_a_certificate_that_has_expired() {
    for (minutes, is_served) in [(1, true), (5, false)] {
        // Three minutes before the certificate ends.
        let wall_start_micros = (1_767_225_600 + 24 * 3600 - 180) * 1_000_000;
        let w = World::new(7, WorldOptions { wall_start_micros, ..WorldOptions::default() });
        let (server, client) = pair_until(ClientAuth::Required, 2026);
        let at = start_server(&w, server);
        in_world(&w, "client", move |rt| async move {
            let first = connect(&rt, at, &client).await;
            // The tickets come with the answer.
            first.write_all(b"first").await.unwrap();
            assert_eq!(read_exactly(&first, 5).await, b"first");
            first.shutdown();
            rt.sleep(Duration::from_secs(minutes * 60)).await;
            let again = connect(&rt, at, &client).await;
            assert!(again.tls().unwrap().is_resumed, "after {minutes} minutes");
            again.write_all(b"again").await.unwrap();
            let mut got = Vec::new();
            let read = again.read(&mut got, 5).await.unwrap_or(0);
            assert_eq!(read > 0, is_served, "after {minutes} minutes");
        });
    }
}

#[test]
fn only_an_answer_in_the_clear_shows_that_a_server_does_not_speak_tls() {
    on_both_with(
        1,
        || pair(ClientAuth::NotRequired),
        |rt, (_, client)| {
            Box::pin(async move {
                // Bytes that the server sends before it closes the connection.
                for (answer, expected) in [
                    (&b""[..], "cut"),
                    (b"HTTP/1.1 400", "not spoken"),
                    // A record of a handshake, and an alert, cut in the middle or not.
                    (&[0x16, 3, 3], "failed"),
                    (&[0x15, 3, 3, 0, 2, 2], "failed"),
                    (&[0x15, 3, 3, 0, 2, 2, 40], "failed"),
                ] {
                    assert_eq!(outcome(&rt, &client, answer).await, expected, "{answer:?}");
                }
            })
        },
    );
}

/// Outcome of a connection to a server that sends these bytes and closes it.
async fn outcome(rt: &Rt, client: &TlsClient, answer: &'static [u8]) -> &'static str {
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
    let (at, gate) = (listener.local_addr(), rt.gate("server"));
    let server = async move {
        let conn = listener.accept().await.unwrap();
        // All of the first message, so that the end is one and no reset.
        conn.read(&mut Vec::new(), 10_000).await.unwrap();
        conn.write_all(answer).await.unwrap();
        conn.shutdown();
    };
    gate.spawn(rt, Group::Statement, "server", server).unwrap();
    let conn = rt.connect(at).await.unwrap();
    let deadline = rt.now() + PATIENCE;
    let found = match Stream::connect_tls(rt, conn, client, name(), deadline).await {
        Ok(_) => "connected",
        Err(NotConnected::NotSpoken(_)) => "not spoken",
        Err(NotConnected::Cut(_)) => "cut",
        Err(NotConnected::Failed(_)) => "failed",
    };
    gate.close().await;
    found
}

#[test]
fn a_handshake_that_stops_in_the_middle_ends_after_its_patience() {
    for cut in [0, 1, 5, 100] {
        let w = World::new(cut as u64, WorldOptions::default());
        let (server, _) = pair(ClientAuth::NotRequired);
        let at = start_server(&w, server);
        in_world(&w, "c", move |rt| async move {
            let conn = rt.connect(at).await.unwrap();
            // The begin of a ClientHello of 300 bytes.
            let mut hello = vec![0x16, 3, 1, 1, 44, 1, 0, 1, 40, 3, 3];
            hello.resize(300, 0);
            conn.write_all(&hello[..cut]).await.unwrap();
            let began = rt.now();
            let ended = conn.read(&mut Vec::new(), 100).await;
            assert_eq!(ended.unwrap_or(0), 0);
            let waited = rt.now().since(began);
            assert!(waited >= PATIENCE && waited < PATIENCE * 2, "{waited:?}");
        });
    }
}

#[test]
fn a_slow_network_and_bytes_of_anything_do_no_harm() {
    for seed in 0..20 {
        let w = World::new(seed, WorldOptions::default());
        let (server, client) = pair(ClientAuth::Required);
        let at = start_server(&w, server);
        let slow = LinkOptions { latency_micros: Some(20_000..60_000), ..LinkOptions::default() };
        w.set_link("c", "n1", slow);
        in_world(&w, "c", move |rt| async move {
            let garbage = rt.connect(at).await.unwrap();
            let mut bytes = [0_u8; 400];
            rt.random_fill(&mut bytes);
            bytes[0] = 0x16;
            garbage.write_all(&bytes).await.unwrap();
            let mut answer = Vec::new();
            while garbage.read(&mut answer, 1000).await.is_ok_and(|n| n > 0) {}
            let stream = connect(&rt, at, &client).await;
            stream.write_all(&pattern(100_000)).await.unwrap();
            assert_eq!(read_exactly(&stream, 100_000).await, pattern(100_000));
        });
    }
}
