//! Encrypted connections: ports of all kinds, their virtual tables, failed handshakes.

use super::cluster_of_shards::Remote;
use super::*;
use crate::accept::hand_over;
use crate::mesh::ServerRequest;
use crate::{CertificateLimits, ClientChecks, Placement, Port, PortEncryption};
use ::tls::config::{HostNames, SessionTickets};
use ::tls::rustls::pki_types::ServerName;
use ::tls::{
    ClientAuth, ClientParts, Identity, KeyMaterial, Offer, ServerParts as TlsParts, Source, Trust,
};
use rt::{Handshakes, NodeSpec, Stream, TlsClient, TlsClock, TlsServer};

const PLAIN: u16 = 9042;
const OPTIONAL: u16 = 9043;
const REQUIRED: u16 = 9142;
const AWARE: u16 = 19_142;

/// Bytes of a fixture of the `tls` crate, valid for a hundred years.
macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../rt/tls/src/fixtures/", $name))
            .as_slice()
    };
}

fn source(bytes: Vec<u8>) -> Source {
    Source { place: "test".to_owned(), bytes }
}

fn identity(parts: [&[u8]; 2]) -> Identity {
    let store = source(parts.concat());
    Identity::read(&KeyMaterial { store, key: None, password: None }).unwrap()
}

fn trust() -> Trust {
    Trust::read(&source(fixture!("ca.pem").to_vec()), None).unwrap()
}

fn server_tls() -> TlsServer {
    server_tls_of([fixture!("node-key.pem"), fixture!("node.pem")])
}

fn server_tls_of(keys: [&[u8]; 2]) -> TlsServer {
    let clock = TlsClock::new();
    let config = ::tls::server_config(TlsParts {
        section: "client_encryption_options",
        identity: identity(keys),
        trust: Some(trust()),
        client_auth: ClientAuth::Optional,
        revoked: Vec::new(),
        offer: Offer::default(),
        tickets: SessionTickets::Issued,
        clock: clock.clone(),
    });
    TlsServer { config: config.unwrap(), clock, handshakes: Handshakes::default() }
}

fn client_tls(identity: Option<Identity>) -> TlsClient {
    let clock = TlsClock::new();
    let config = ::tls::client_config(ClientParts {
        section: "client",
        identity,
        trust: trust(),
        host_names: HostNames::Compared,
        revoked: Vec::new(),
        offer: Offer::default(),
        clock: clock.clone(),
    });
    TlsClient { config: config.unwrap(), clock }
}

/// The certificate of a client, with the identity `spiffe://test.example/client`.
pub(super) fn fixture_client() -> Identity {
    identity([fixture!("client-key.pem"), fixture!("client.pem")])
}

/// A world in 2030, when the fixtures are valid.
pub(super) fn world(seed: u64) -> World {
    let wall_start_micros = 1_900_000_000_000_000;
    World::new(seed, WorldOptions { wall_start_micros, ..WorldOptions::default() })
}

/// A node of two shards with ports of all kinds.
fn start(world: &World, checks: impl Into<ClientChecks>) {
    start_with(world, checks, |_| ());
}

/// The same with other settings.
pub(super) fn start_with(
    world: &World,
    checks: impl Into<ClientChecks>,
    change: impl FnOnce(&mut ServerSettings),
) {
    let checks = checks.into();
    let meshes = Meshes::new(2);
    let mut settings = ServerSettings::new("10.0.0.1:9042".parse().unwrap());
    settings.shard_aware_port_ssl = Some(AWARE);
    settings.connections_per_ip_max = Some(6);
    change(&mut settings);
    let spec = NodeSpec { name: "n1".to_owned(), shards: 2, work_dir: "/n1".to_owned() };
    let ip = world.ip("n1");
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let (meshes, settings) = (meshes.clone(), settings.clone());
            Box::pin(async move {
                let server = node(&rt, settings, &meshes).await;
                if rt.shard() == ShardId(0) {
                    rt.sleep(Duration::from_millis(500)).await;
                    certificate_logins::with_identities(&server).await;
                    for (number, placement, encryption) in [
                        (PLAIN, Placement::Balanced, PortEncryption::Plain),
                        (OPTIONAL, Placement::Balanced, PortEncryption::Optional),
                        (REQUIRED, Placement::Balanced, PortEncryption::Required),
                        (AWARE, Placement::ShardAware, PortEncryption::Required),
                    ] {
                        let address = SocketAddr::new(ip, number);
                        server.listen_on(address, Port { placement, encryption }).await.unwrap();
                    }
                    server.set_tls(server_tls(), checks);
                }
                rt.stop_requested().await;
                server.stop().await;
            })
        }),
    );
    world.run_for(Duration::from_secs(1));
}

/// A client in the clear; `None` when it is not served.
async fn plain(rt: &Rt, address: SocketAddr) -> Option<Remote> {
    Remote::over(Stream::plain(rt.connect(address).await.unwrap()), V4).await
}

async fn encrypted(rt: &Rt, address: SocketAddr, identity: Option<Identity>) -> Option<Remote> {
    Remote::over(encrypted_conn(rt, address, identity).await?, V4).await
}

pub(super) async fn encrypted_conn(
    rt: &Rt,
    address: SocketAddr,
    identity: Option<Identity>,
) -> Option<Stream> {
    let conn = rt.connect(address).await.unwrap();
    let name = ServerName::try_from("node.example").unwrap();
    let deadline = rt.now() + Duration::from_secs(30);
    Stream::connect_tls(rt, conn, &client_tls(identity), name, deadline).await.ok()
}

/// `ssl_enabled`, `ssl_protocol` and `ssl_cipher_suite` of all connections, sorted.
async fn shown(remote: &mut Remote) -> Vec<String> {
    let select = "SELECT ssl_enabled, ssl_protocol, ssl_cipher_suite FROM system_views.clients";
    let rows = remote.query(select).await.unwrap().rows().rows;
    let text = |cell: &Option<Vec<u8>>| match cell.as_deref() {
        None => "null".to_owned(),
        Some([flag]) => (*flag == 1).to_string(),
        Some(text) => String::from_utf8(text.to_vec()).unwrap(),
    };
    let mut rows: Vec<String> =
        rows.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join(" ")).collect();
    rows.sort();
    rows
}

#[test]
fn ports_take_the_connections_of_their_kind_and_the_table_shows_them() {
    let world = world(7);
    start(&world, CertificateLimits::default());
    let ip = world.ip("n1");
    let at = move |port| SocketAddr::new(ip, port);
    run_client(&world, "c1", move |rt| async move {
        let mut clear = plain(&rt, at(PLAIN)).await.unwrap();
        let mut optional = plain(&rt, at(OPTIONAL)).await.unwrap();
        let mut over_tls = encrypted(&rt, at(OPTIONAL), None).await.unwrap();
        let mut required = encrypted(&rt, at(REQUIRED), None).await.unwrap();
        let client = identity([fixture!("client-key.pem"), fixture!("client.pem")]);
        let mut aware = encrypted(&rt, at(AWARE), Some(client)).await.unwrap();
        assert!(plain(&rt, at(REQUIRED)).await.is_none());
        assert!(encrypted(&rt, at(PLAIN), None).await.is_none());
        // Refused connections are not counted for their address: this one is the sixth and last.
        assert!(plain(&rt, at(REQUIRED)).await.is_none());
        let mut last = encrypted(&rt, at(REQUIRED), None).await.unwrap();
        for remote in
            [&mut clear, &mut optional, &mut over_tls, &mut required, &mut aware, &mut last]
        {
            let encrypted = "true TLSv1.3 TLS_AES_256_GCM_SHA384";
            let expected =
                ["false null null", "false null null", encrypted, encrypted, encrypted, encrypted];
            assert_eq!(shown(remote).await, expected);
        }
    });
}

#[test]
fn the_encrypted_port_for_shard_aware_drivers_is_announced() {
    let world = world(8);
    start(&world, CertificateLimits::default());
    let address = SocketAddr::new(world.ip("n1"), REQUIRED);
    run_client(&world, "c1", move |rt| async move {
        let mut remote = encrypted(&rt, address, None).await.unwrap();
        let Body::Supported(options) = remote.ask(&Request::Options).await.unwrap().body else {
            panic!("not SUPPORTED")
        };
        let port = options.iter().find(|(name, _)| name == "SCYLLA_SHARD_AWARE_PORT_SSL").unwrap();
        assert_eq!(port.1, ["19142"]);
        assert!(options.iter().all(|(name, _)| name != "SCYLLA_SHARD_AWARE_PORT"));
    });
}

#[test]
fn handshakes_that_come_to_nothing_disturb_no_other_client() {
    let world = world(9);
    start(&world, CertificateLimits::default());
    let address = SocketAddr::new(world.ip("n1"), REQUIRED);
    let mut silent = Vec::new();
    for n in 0..300 {
        let name = format!("s{n}");
        let open = Rc::new(Cell::new(true));
        silent.push(open.clone());
        world.client(&name, move |rt| async move {
            let conn = rt.connect(address).await.unwrap();
            // Some say nothing, some begin and stop.
            if n % 2 == 0 {
                conn.write_all(&[0x16, 3, 1, 2]).await.unwrap();
            }
            let mut got = Vec::new();
            while conn.read(&mut got, 100).await.is_ok_and(|n| n > 0) {}
            open.set(false);
        });
    }
    world.run_for(Duration::from_secs(1));
    run_client(&world, "c1", move |rt| async move {
        let began = rt.now();
        let mut remote = encrypted(&rt, address, None).await.unwrap();
        assert_eq!(shown(&mut remote).await.len(), 1);
        assert!(rt.now().since(began) < Duration::from_secs(1));
    });
    assert!(silent.iter().all(|open| open.get()));
    // They end after their patience.
    world.run_for(Duration::from_secs(21));
    assert!(silent.iter().all(|open| !open.get()));
}

#[test]
fn a_certificate_that_is_valid_for_too_long_is_refused() {
    for (days, is_served) in [(36_500, true), (36_499, false)] {
        let world = world(10);
        let validity_max = Some(Duration::from_secs(days * 86_400));
        start(&world, CertificateLimits { validity_max, warn_before: None });
        let address = SocketAddr::new(world.ip("n1"), REQUIRED);
        run_client(&world, "c1", move |rt| async move {
            let client = identity([fixture!("client-key.pem"), fixture!("client.pem")]);
            let remote = encrypted(&rt, address, Some(client)).await;
            assert_eq!(remote.is_some(), is_served, "{days} days");
        });
    }
}

/// The fixture's certificate names the address 127.0.0.1 only.
#[test]
fn a_certificate_is_compared_with_the_address_of_its_client_where_that_is_asked_for() {
    for (addresses, has_certificate, is_served) in [
        (HostNames::Ignored, true, true),
        (HostNames::Compared, true, false),
        (HostNames::Compared, false, true),
    ] {
        let world = world(12);
        start(&world, ClientChecks { limits: CertificateLimits::default(), addresses });
        let address = SocketAddr::new(world.ip("n1"), REQUIRED);
        run_client(&world, "c1", move |rt| async move {
            let remote = encrypted(&rt, address, has_certificate.then(fixture_client)).await;
            assert_eq!(remote.is_some(), is_served, "{addresses:?} {has_certificate}");
        });
    }
    let certificate = fixture_client().certificates().next().unwrap();
    let compared = ClientChecks {
        addresses: HostNames::Compared,
        ..ClientChecks::from(CertificateLimits::default())
    };
    assert_eq!(compared.refuses(&certificate, "127.0.0.1".parse().unwrap()), None);
    let refused = compared.refuses(&certificate, "127.0.0.2".parse().unwrap()).unwrap();
    assert!(refused.contains("does not name the address 127.0.0.2"), "{refused}");
}

/// Handshakes beyond those that may be under way and wait are refused at once, and counted.
#[test]
fn a_handshake_beyond_those_that_may_wait_is_refused_at_once() {
    let world = world(13);
    let address = SocketAddr::new(world.ip("n1"), 9144);
    let shed = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let seen = shed.clone();
    let meshes = Meshes::new(1);
    let settings = ServerSettings::new("10.0.0.1:9042".parse().unwrap());
    let spec = NodeSpec { name: "n1".to_owned(), shards: 1, work_dir: "/n1".to_owned() };
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let (meshes, settings, seen) = (meshes.clone(), settings.clone(), seen.clone());
            Box::pin(async move {
                let server = node(&rt, settings, &meshes).await;
                let encryption = PortEncryption::Required;
                let port = Port { placement: Placement::Balanced, encryption };
                server.listen_on(address, port).await.unwrap();
                server.set_tls(server_tls(), CertificateLimits::default().into());
                let slots = &server.inner().handshakes;
                let _all = slots.acquire(slots.available()).await;
                // The waiting places are taken by others.
                let mut waiting: Vec<_> = (0..crate::port::HANDSHAKES_WAITING_MAX)
                    .map(|_| Box::pin(slots.acquire(1)))
                    .collect();
                for place in &mut waiting {
                    let _ = rt.timeout(rt.now(), place.as_mut()).await;
                }
                assert_eq!(slots.waiting(), waiting.len());
                rt.sleep(Duration::from_secs(5)).await;
                let counted = server.inner().counters.shed_handshakes.get();
                seen.store(counted, std::sync::atomic::Ordering::Relaxed);
                rt.stop_requested().await;
                server.stop().await;
            })
        }),
    );
    world.run_for(Duration::from_secs(1));
    run_client(&world, "c1", move |rt| async move {
        let began = rt.now();
        assert!(encrypted(&rt, address, None).await.is_none());
        assert!(rt.now().since(began) < Duration::from_secs(1));
        rt.sleep(Duration::from_secs(6)).await;
    });
    assert_eq!(shed.load(std::sync::atomic::Ordering::Relaxed), 1);
}

/// The TLS session of the moved stream is in use elsewhere.
#[test]
fn a_connection_that_its_shard_does_not_adopt_is_counted_no_more() {
    let world = world(14);
    let address = SocketAddr::new(world.ip("n1"), 9144);
    let meshes = Meshes::new(2);
    let mut settings = ServerSettings::new("10.0.0.1:9042".parse().unwrap());
    settings.connections_per_ip_max = Some(6);
    let spec = NodeSpec { name: "n1".to_owned(), shards: 2, work_dir: "/n1".to_owned() };
    let is_done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let done = is_done.clone();
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let (meshes, settings, done) = (meshes.clone(), settings.clone(), done.clone());
            Box::pin(async move {
                let server = node(&rt, settings, &meshes).await;
                if rt.shard() == ShardId(0) {
                    rt.sleep(Duration::from_millis(500)).await;
                    let encryption = PortEncryption::Required;
                    let port = Port { placement: Placement::Balanced, encryption };
                    server.listen_on(address, port).await.unwrap();
                    server.set_tls(server_tls(), CertificateLimits::default().into());
                    let shared = encrypted_conn(&rt, address, None).await.unwrap();
                    let (inner, peer) = (server.inner(), "10.9.9.9".parse().unwrap());
                    inner.by_ip.borrow_mut().insert(peer, 1);
                    inner.mesh.opened(ShardId(1));
                    let before = inner.mesh.connections_of(ShardId(1));
                    let adopt = ServerRequest::Adopt(shared.clone().into_moved(), None);
                    hand_over(inner, ShardId(1), adopt, peer);
                    rt.sleep(Duration::from_secs(1)).await;
                    assert_eq!(inner.by_ip.borrow().get(&peer), None);
                    assert_eq!(inner.mesh.connections_of(ShardId(1)), before - 1);
                    done.store(true, std::sync::atomic::Ordering::Relaxed);
                }
                rt.stop_requested().await;
                server.stop().await;
            })
        }),
    );
    let seen = is_done.clone();
    let ended = || seen.load(std::sync::atomic::Ordering::Relaxed);
    world.run_until(ended, Duration::from_secs(60)).unwrap();
}

/// A handshake whose step is computed while the keys change goes on with those that it began with.
#[test]
fn keys_that_change_during_a_handshake_are_those_of_later_connections() {
    let wall_start_micros = 1_900_000_000_000_000;
    // A step takes a second.
    let service_micros = 1_000_000..1_000_001;
    let options = WorldOptions { wall_start_micros, service_micros, ..WorldOptions::default() };
    let world = World::new(15, options);
    let address = SocketAddr::new(world.ip("n1"), 9144);
    let meshes = Meshes::new(1);
    let settings = ServerSettings::new("10.0.0.1:9042".parse().unwrap());
    let spec = NodeSpec { name: "n1".to_owned(), shards: 1, work_dir: "/n1".to_owned() };
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let (meshes, settings) = (meshes.clone(), settings.clone());
            Box::pin(async move {
                let server = node(&rt, settings, &meshes).await;
                let encryption = PortEncryption::Required;
                let port = Port { placement: Placement::Balanced, encryption };
                server.listen_on(address, port).await.unwrap();
                let pool = rt::HandshakePool::start(&rt, "tls-test", 10).unwrap();
                let tls = |keys: TlsServer| TlsServer { handshakes: pool.handshakes(), ..keys };
                server.set_tls(tls(server_tls()), CertificateLimits::default().into());
                // The client's first step is under way.
                rt.sleep(Duration::from_millis(2500)).await;
                let rsa = [fixture!("rsa-pkcs1.pem"), fixture!("rsa.pem")];
                server.set_tls(tls(server_tls_of(rsa)), CertificateLimits::default().into());
                rt.stop_requested().await;
                server.stop().await;
            })
        }),
    );
    world.run_for(Duration::from_secs(2));
    run_client(&world, "c1", move |rt| async move {
        let began = rt.now();
        let mut first = encrypted(&rt, address, None).await.unwrap();
        assert!(rt.now().since(began) > Duration::from_secs(1));
        assert_eq!(shown(&mut first).await.len(), 1);
        // Its certificate is of another authority.
        assert!(encrypted(&rt, address, None).await.is_none());
        assert_eq!(shown(&mut first).await.len(), 1);
    });
}

/// Runs a client to its end.
pub(super) fn run_client<F: Future<Output = ()> + 'static>(
    world: &World,
    name: &str,
    main: impl FnOnce(Rt) -> F + 'static,
) {
    let done = Rc::new(Cell::new(false));
    let seen = done.clone();
    world.client(name, move |rt| async move {
        main(rt).await;
        seen.set(true);
    });
    world.run_until(|| done.get(), Duration::from_secs(60)).unwrap();
}
