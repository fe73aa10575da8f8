//! Connections with TLS: which are encrypted, who is refused, and that nothing goes in the clear where that is not
//! allowed.

use super::harness::*;
use super::ledger::SharedLedger;
use crate::outbox::{Outbox, Written};
use crate::peer_log::Event;
use crate::*;
use internode::{FrameDecoder, FrameEncoder, FrameHeader, FrameKind, RefusalCode, Verb};
use rt::sim::{World, WorldOptions};
use rt::{Group, Handshakes, ListenOptions, PlainText, Stream, TlsClient, TlsClock, TlsServer};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use stdx::{Epoch, Instant};
use tls::config::{HostNames, SessionTickets};
use tls::{
    CertificateLimits, ClientAuth, ClientParts, Identity, KeyMaterial, Offer, ServerParts, Source,
    Trust,
};

/// An authority of certificates. Signatures of Ed25519 have one length: runs of one seed are the same although keys
/// are random.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

fn source(text: String) -> Source {
    Source { place: "test".to_owned(), bytes: text.into_bytes() }
}

impl Authority {
    fn new() -> Authority {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: rcgen::Issuer::new(params, key), pem }
    }

    fn trust(&self) -> Trust {
        Trust::read(&source(self.pem.clone()), None).unwrap()
    }

    /// The key and certificate of node `n`, with its address and a SPIFFE identity.
    fn identity(&self, world: &World, n: u8) -> Identity {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let uri = format!("spiffe://test/{}", name(n));
        params.subject_alt_names = vec![
            rcgen::SanType::IpAddress(world.ip(&name(n))),
            rcgen::SanType::URI(uri.try_into().unwrap()),
        ];
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        let store = source(key.serialize_pem() + &leaf.pem());
        Identity::read(&KeyMaterial { store, key: None, password: None }).unwrap()
    }

    /// Configuration of node `n`: certificates are required of everyone.
    fn keys(&self, world: &World, n: u8, scope: Scope, strictness: Strictness) -> Encryption {
        let policy = Policy { scope, strictness };
        let checks = PeerChecks::default();
        self.keys_with(self.identity(world, n), policy, checks)
    }

    fn keys_with(&self, identity: Identity, policy: Policy, checks: PeerChecks) -> Encryption {
        let (server, client) = self.both(identity, checks.endpoints);
        Encryption { policy, server: Some(server), client: Some(client), checks }
    }

    fn both(&self, identity: Identity, endpoints: Endpoints) -> (TlsServer, TlsClient) {
        let clock = TlsClock::new();
        let server = ServerParts {
            section: "server_encryption_options",
            identity: identity.clone(),
            trust: Some(self.trust()),
            client_auth: ClientAuth::Required,
            revoked: Vec::new(),
            offer: Offer::default(),
            tickets: SessionTickets::Issued,
            clock: clock.clone(),
        };
        let client = ClientParts {
            section: "server_encryption_options",
            identity: Some(identity),
            trust: self.trust(),
            host_names: match endpoints {
                Endpoints::Ignored => HostNames::Ignored,
                Endpoints::Compared => HostNames::Compared,
            },
            revoked: Vec::new(),
            offer: Offer::default(),
            clock: clock.clone(),
        };
        (
            TlsServer {
                config: tls::server_config(server).unwrap(),
                clock: clock.clone(),
                handshakes: Handshakes::default(),
            },
            TlsClient { config: tls::client_config(client).unwrap(), clock },
        )
    }
}

/// How a connection began, as an eavesdropper sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    Tls,
    Plain,
}

struct Nothing;

impl Completions for Nothing {
    fn complete(&self, _: Completion<'_>) {}
}

/// Two echoing nodes with these keys, and what was seen on the wire.
struct Two {
    world: World,
    one: TestNode,
    two: TestNode,
    seen: Rc<RefCell<Vec<Begin>>>,
}

fn two(seed: u64, keys: impl FnOnce(&World) -> (Option<Encryption>, Option<Encryption>)) -> Two {
    two_with(seed, settings(), keys)
}

fn two_with(
    seed: u64,
    settings: Settings,
    keys: impl FnOnce(&World) -> (Option<Encryption>, Option<Encryption>),
) -> Two {
    let world = world(seed);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let sees = seen.clone();
    world.on_begin(move |_, _, first| {
        sees.borrow_mut().push(if first.first() == Some(&0x16) {
            Begin::Tls
        } else {
            Begin::Plain
        });
    });
    let keys = keys(&world);
    let (one, two, _) = pair(&world, settings);
    for (node, keys) in [(&one, keys.0), (&two, keys.1)] {
        if let Some(keys) = keys {
            node.messaging.set_encryption(keys);
        }
    }
    Two { world, one, two, seen }
}

impl Two {
    /// One request from the first to the second; its answer or why there was none.
    fn ask(&self) -> Result<usize, MessagingError> {
        self.one.run(&self.world, |rt, messaging| async move {
            let to = outgoing(&rt, 2, Verb::Read, 3000);
            let big = payload(5, NOW, 300_000);
            let write = |out: &mut Vec<u8>| out.extend_from_slice(&big);
            messaging.request(&to, write).await.map(|response| response.payload.len())
        })
    }

    /// Returns true if all connections of the first to the second are encrypted, and there is one.
    fn is_encrypted(&self) -> bool {
        let client = self.one.messaging.client(Rc::new(Nothing));
        let links = client.outbound.links();
        let encrypted = links
            .iter()
            .filter(|link| link.conn.borrow().as_ref().is_some_and(|conn| conn.tls().is_some()));
        let encrypted = encrypted.count();
        encrypted > 0 && encrypted == links.len()
    }

    fn seen(&self) -> Vec<Begin> {
        self.seen.borrow().clone()
    }
}

use Begin::{Plain, Tls};
use Scope::{All, BetweenDatacenters};
use Strictness::{Optional, Strict};

#[test]
fn requests_go_over_tls_where_it_is_required() {
    for seed in 0..5 {
        let ca = Authority::new();
        let both =
            two(seed, |w| (Some(ca.keys(w, 1, All, Strict)), Some(ca.keys(w, 2, All, Strict))));
        assert_eq!(both.ask(), Ok(300_009));
        assert_eq!(both.seen(), [Tls]);
        assert!(both.is_encrypted());
        assert_eq!(both.two.counter("internode_tls_handshakes_total"), 1);
        let found = both.two.run(&both.world, |_, messaging| async move {
            let address = messaging.peer(host(1)).unwrap().address;
            messaging.discover(address).await.unwrap().host_id
        });
        assert_eq!((found, both.seen()), (host(1), vec![Tls, Tls]));
    }
}

#[test]
fn a_peer_in_the_clear_is_refused_with_the_reason() {
    let ca = Authority::new();
    let both = two(1, |w| (None, Some(ca.keys(w, 2, All, Strict))));
    let refused = both.ask().unwrap_err();
    let MessagingError::Refused { code, message, .. } = &refused else { panic!("{refused}") };
    assert_eq!(*code, RefusalCode::EncryptionRequired);
    assert!(message.contains("server_encryption_options of your node"), "{message}");
    assert_eq!(both.two.counter("internode_encryption_refusals_total"), 1);
    assert_eq!(both.two.counter("internode_received_messages_total"), 0);
}

#[test]
fn a_peer_without_keys_is_never_asked_in_the_clear_unless_that_is_allowed() {
    let ca = Authority::new();
    let both = two(1, |w| (Some(ca.keys(w, 1, All, Strict)), None));
    let error = both.ask().unwrap_err().to_string();
    assert!(error.contains("the peer does not speak TLS: set keystore"), "{error}");
    assert_eq!(both.seen(), [Tls]);
    assert_eq!(both.two.counter("internode_encryption_refusals_total"), 1);

    let both = two(2, |w| (Some(ca.keys(w, 1, All, Optional)), None));
    assert_eq!(both.ask(), Ok(300_009));
    assert_eq!(both.seen(), [Tls, Plain]);
    assert_eq!(both.one.counter("internode_clear_fallbacks_total"), 1);
    assert!(!both.is_encrypted());
}

/// A node that has too many handshakes under way closes connections without an answer, as one does that is killed.
#[test]
fn a_closed_connection_is_no_reason_to_go_on_in_the_clear() {
    let ca = Authority::new();
    for (seed, handshakes_max) in [(1, 0), (2, 1)] {
        let settings = Settings { handshakes_max, ..settings() };
        let both = two_with(seed, settings, |w| {
            (Some(ca.keys(w, 1, All, Optional)), Some(ca.keys(w, 2, All, Optional)))
        });
        match (handshakes_max, both.ask()) {
            (0, Err(MessagingError::Unreachable { cause, .. })) => {
                assert!(cause.contains("TLS handshake"), "{cause}");
            }
            (1, Ok(300_009)) => {}
            (_, other) => panic!("{handshakes_max} handshakes: {other:?}"),
        }
        assert!(both.seen().iter().all(|seen| *seen == Tls), "{:?}", both.seen());
    }
}

#[test]
fn nodes_that_are_changed_over_use_tls_and_accept_both() {
    let ca = Authority::new();
    for (seed, first, second, seen) in [
        (1, Some(Optional), Some(Optional), Tls),
        (2, Some(Optional), Some(Strict), Tls),
        (3, Some(Strict), Some(Optional), Tls),
        (4, None, Some(Optional), Plain),
    ] {
        let both = two(seed, |w| {
            let keys = |n, strictness: Option<_>| strictness.map(|s| ca.keys(w, n, All, s));
            (keys(1, first), keys(2, second))
        });
        assert_eq!((both.ask(), both.seen()), (Ok(300_009), vec![seen]), "{first:?} {second:?}");
    }
}

#[test]
fn another_authority_is_a_reason_to_refuse_and_never_to_fall_back() {
    let (ca, other) = (Authority::new(), Authority::new());
    for (seed, strictness) in [(1, Strict), (2, Optional)] {
        let both = two(seed, |w| {
            (Some(other.keys(w, 1, All, strictness)), Some(ca.keys(w, 2, All, Strict)))
        });
        let error = both.ask().unwrap_err().to_string();
        assert!(error.contains("no encrypted connection: TLS handshake"), "{error}");
        assert!(both.seen().iter().all(|seen| *seen == Tls), "{:?}", both.seen());
        // The alert arrives.
        both.world.run_for(millis(100));
        assert!(both.two.counter("internode_encryption_refusals_total") > 0);
        assert_eq!(both.two.counter("internode_received_messages_total"), 0);
        // Others are served meanwhile, and the same node once it has the right keys.
        let keys = ca.keys(&both.world, 1, All, strictness);
        both.one.messaging.set_encryption(keys);
        both.world.run_for(Duration::from_secs(2));
        assert_eq!(both.ask(), Ok(300_009));
    }
}

#[test]
fn certificates_are_checked_beside_their_chains() {
    let ca = Authority::new();
    let policy = Policy { scope: All, strictness: Strict };
    let limits =
        CertificateLimits { validity_max: Some(Duration::from_secs(86_400)), ..Default::default() };
    let short = PeerChecks { limits, ..PeerChecks::default() };
    let of = |names: &[&str]| {
        let identities: BTreeSet<String> = names.iter().map(|n| (*n).to_owned()).collect();
        PeerChecks { identities: Some(identities), ..PeerChecks::default() }
    };
    let compared = PeerChecks { endpoints: Endpoints::Compared, ..PeerChecks::default() };
    for (shown, checks, expected) in [
        (1, short, Some("more than max_certificate_validity_period")),
        (1, of(&["spiffe://test/n1", "spiffe://test/n2"]), None),
        (1, of(&["spiffe://test/n2"]), Some("Unable to authenticate user spiffe://test/n1")),
        (1, compared.clone(), None),
        (3, compared, Some("does not name the address")),
    ] {
        let both = two(1, |w| {
            let first = ca.keys_with(ca.identity(w, shown), policy, PeerChecks::default());
            (Some(first), Some(ca.keys_with(ca.identity(w, 2), policy, checks.clone())))
        });
        match (both.ask(), expected) {
            (Ok(300_009), None) => {}
            (
                Err(MessagingError::Refused { code: RefusalCode::Certificate, message, .. }),
                Some(text),
            ) => {
                assert!(message.contains(text), "{message}");
            }
            other => panic!("{checks:?}: {other:?}"),
        }
    }
}

#[test]
fn the_certificate_of_an_accepting_node_must_name_its_address_where_that_is_verified() {
    let ca = Authority::new();
    let policy = Policy { scope: All, strictness: Strict };
    let compared = PeerChecks { endpoints: Endpoints::Compared, ..PeerChecks::default() };
    for (shown, is_fine) in [(2, true), (3, false)] {
        let both = two(1, |w| {
            let first = ca.keys_with(ca.identity(w, 1), policy, compared.clone());
            let second = ca.keys_with(ca.identity(w, shown), policy, PeerChecks::default());
            (Some(first), Some(second))
        });
        assert_eq!(both.ask().is_ok(), is_fine, "{shown}");
    }
}

#[test]
fn only_links_to_other_data_centers_are_encrypted_where_the_setting_says_so() {
    let ca = Authority::new();
    for (place, seen) in [(Nearness::SameDatacenter, Plain), (Nearness::Elsewhere, Tls)] {
        let both = two(1, |w| {
            let keys = |n| Some(ca.keys(w, n, BetweenDatacenters, Strict));
            (keys(1), keys(2))
        });
        for node in [&both.one, &both.two] {
            node.messaging.hooks().place_peers(Rc::new(move |_| place));
        }
        assert_eq!((both.ask(), both.seen()), (Ok(300_009), vec![seen]));
    }
    // To the second, the first is from elsewhere: in the clear it is refused.
    let both = two(2, |w| (None, Some(ca.keys(w, 2, BetweenDatacenters, Strict))));
    both.two.messaging.hooks().place_peers(Rc::new(|_| Nearness::Elsewhere));
    assert!(matches!(both.ask(), Err(MessagingError::Refused { .. })));
}

#[test]
fn the_port_for_tls_takes_nothing_else() {
    let ca = Authority::new();
    let both = two(1, |w| {
        (Some(ca.keys(w, 1, Scope::None, Optional)), Some(ca.keys(w, 2, Scope::None, Optional)))
    });
    let port = both.two.run(&both.world, |_, messaging| async move {
        let any = std::net::SocketAddr::from(([0, 0, 0, 0], 7001));
        messaging.listen_encrypted(any).await.unwrap().port()
    });
    let answer = both.one.run(&both.world, move |_, messaging| async move {
        let mut address = messaging.peer(host(2)).unwrap().address;
        address.set_port(port);
        messaging.discover(address).await
    });
    let Err(OpenError::Refused { code, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(code, RefusalCode::EncryptionRequired);
    both.one.messaging.set_encryption(ca.keys(&both.world, 1, All, Strict));
    let answer = both.one.run(&both.world, move |_, messaging| async move {
        let mut address = messaging.peer(host(2)).unwrap().address;
        address.set_port(port);
        messaging.discover(address).await
    });
    assert_eq!(answer.unwrap().host_id, host(2));
}

#[test]
fn a_refused_peer_fills_no_log() {
    let ca = Authority::new();
    let both = two(1, |w| (None, Some(ca.keys(w, 2, All, Strict))));
    for _ in 0..5 {
        assert!(both.ask().is_err());
        both.world.run_for(Duration::from_secs(2));
    }
    assert!(both.two.counter("internode_encryption_refusals_total") >= 5);
    // The next line is due a minute after the first, with the number of refusals since.
    let env = &both.two.messaging.env;
    let later = env.rt.now() + Duration::from_secs(60);
    let times = env.peer_log.note(later, both.world.ip(&name(1)), Event::Plain);
    assert!(times.is_some_and(|times| times >= 5), "{times:?}");
}

/// Frames of these lengths, with the header's 36 bytes.
fn push(outbox: &Outbox, now: Instant, stream: u64, length: usize, deadline: Instant) {
    let header = FrameHeader {
        kind: FrameKind::Request,
        verb: Verb::Read.number(),
        stream,
        epoch: Epoch(0),
        deadline_micros: 1_000_000,
        trace: None,
        more: false,
    };
    let payload = vec![7; length - 36];
    outbox.push(now, &header, deadline, |out| out.extend_from_slice(&payload)).unwrap();
}

#[test]
fn a_frame_whose_first_byte_alone_was_encrypted_is_not_dropped() {
    let options = WorldOptions { socket_bytes_max: 20_000, ..WorldOptions::default() };
    let world = World::new(1, options);
    let ca = Authority::new();
    let (server, client) = ca.both(ca.identity(&world, 1), Endpoints::Ignored);
    let (done, streams) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(Vec::new())));
    let (finished, got) = (done.clone(), streams.clone());
    world.client(&name(1), move |rt| async move {
        let any = "127.0.0.1:7000".parse().unwrap();
        let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
        let (reader, gate) = (rt.clone(), rt.gate("reader"));
        let task = async move {
            let conn = Stream::plain(listener.accept().await.unwrap());
            let patience = Duration::from_secs(5);
            let first = conn.first_bytes(&reader, PlainText::Refused, patience).await.unwrap();
            let deadline = reader.now() + patience;
            let conn = conn.accept_tls(&reader, &server, first, deadline).await.unwrap().stream;
            // Meanwhile the socket of the writer is full.
            reader.sleep(millis(500)).await;
            let (mut decoder, mut bytes) = (FrameDecoder::new(false, 1 << 20), Vec::new());
            loop {
                while let Some((frame, length)) = decoder.next(&bytes).unwrap() {
                    got.borrow_mut().push(frame.header.stream);
                    bytes.drain(..length);
                }
                if conn.read(&mut bytes, 100_000).await.unwrap_or(0) == 0 {
                    return;
                }
            }
        };
        gate.spawn(&rt, Group::Statement, "reader", task).unwrap();
        let name = "n1".try_into().unwrap();
        let conn = rt.connect(any).await.unwrap();
        let deadline = rt.now() + Duration::from_secs(5);
        let conn = Stream::connect_tls(&rt, conn, &client, name, deadline).await.unwrap();
        let outbox = Outbox::new(FrameEncoder::new(false, 1 << 20), Rc::default());
        let now = rt.now();
        // The second frame begins with the last byte of the first piece that is encrypted: 64 KiB.
        push(&outbox, now, 1, (64 << 10) - 1, crate::outbox::NEVER);
        push(&outbox, now, 2, 1000, now + millis(100));
        push(&outbox, now, 3, 1000, crate::outbox::NEVER);
        assert_eq!(outbox.write_some(&conn, now), Ok(Written::Part));
        assert_eq!((conn.held_back(), outbox.len()), (1, 2000));
        rt.sleep(millis(200)).await;
        while outbox.write_some(&conn, rt.now()).unwrap() == Written::Part {
            let piece = outbox.take_piece(rt.now());
            conn.write_all(&piece).await.unwrap();
            outbox.piece_done();
        }
        conn.shutdown();
        gate.close().await;
        finished.set(true);
    });
    world.run_until(|| done.get(), Duration::from_secs(600)).unwrap();
    assert_eq!(*streams.borrow(), [1, 2, 3]);
}

/// INV-rt-7, INV-messaging-2: a request that was done is never reported as undelivered. No cut makes a
/// node go on in the clear, where that is allowed too.
#[test]
fn requests_survive_cuts_delays_and_resets_of_encrypted_connections() {
    let ca = Authority::new();
    for seed in 0..10 {
        let options = WorldOptions { resets_per_million: 10_000, ..WorldOptions::default() };
        let w = World::new(seed, options);
        let ledger = SharedLedger::default();
        let node = |n: u8, known: u8| {
            let settings = Settings { compression: false, ..settings() };
            let node = start(&w, identity(n), &[known], settings, |rt| Echo::new(rt, &ledger));
            let strictness = if seed % 2 == 0 { Strict } else { Optional };
            node.messaging.set_encryption(ca.keys(&w, n, All, strictness));
            node
        };
        let (one, _two) = (node(1, 2), node(2, 1));
        let plain = Rc::new(Cell::new(0));
        let counts = plain.clone();
        w.on_begin(move |_, _, first| {
            if first.first() != Some(&0x16) {
                counts.set(counts.get() + 1);
            }
        });
        let (_, client) = recorder(&one, &ledger);
        let sends = ledger.clone();
        one.run(&w, move |rt, _| async move {
            for token in 0..300 {
                let size = usize::try_from(rt.random_u64() % 200_000).unwrap();
                let to = outgoing(&rt, 2, Verb::Read, 20 + rt.random_u64() % 400);
                let how = if token % 3 == 0 { LATER } else { NOW };
                send(&client, &sends, token, &to, &payload(token, how, size));
                rt.sleep(Duration::from_micros(rt.random_u64() % 5_000)).await;
            }
            rt.sleep(Duration::from_secs(3)).await;
        });
        ledger.borrow().check().unwrap();
        let answered =
            ledger.borrow().count(|e| matches!(e, super::ledger::End::Answer { right: true }));
        assert!(answered > 10, "seed {seed}: {answered} answers");
        assert!(one.counter("internode_tls_handshakes_total") > 1, "seed {seed}: no reset");
        assert_eq!(plain.get(), 0, "seed {seed}");
    }
}
