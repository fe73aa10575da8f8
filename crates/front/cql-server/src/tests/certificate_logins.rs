//! Logins by certificate over TLS, and limits of connections per role.

use super::tls::{encrypted_conn, fixture_client, run_client, start_with, world};
use super::*;
use crate::role_connections::Entry;
use crate::tests::cluster_of_shards::Remote;
use crate::{CertificateLimits, CertificateLogin, RoleOfIdentity};
use ::tls::IdentityRule;
use cluster::AuthChange;
use rt::{NodeSpec, Stream};
use std::sync::atomic::{AtomicBool, Ordering};

const OPTIONAL: u16 = 9043;

fn spiffe() -> CertificateLogin {
    CertificateLogin { rule: IdentityRule::Spiffe, roles: RoleOfIdentity::Mapped }
}

/// A node whose identity `spiffe://test.example/client` is the role `me`; `guest` may not log in.
fn start(world: &World, authentication: Authentication, per_role: Option<usize>) -> SocketAddr {
    start_with(world, CertificateLimits::default(), move |settings| {
        settings.authentication = authentication.clone();
        settings.connections_per_role_max = per_role;
        settings.connections_per_ip_max = None;
    });
    SocketAddr::new(world.ip("n1"), OPTIONAL)
}

async fn first_answer(rt: &Rt, address: SocketAddr, with_certificate: bool) -> (Remote, Body) {
    let client = with_certificate.then(fixture_client);
    let stream = encrypted_conn(rt, address, client).await.unwrap();
    Remote::begin(stream, V4).await.unwrap()
}

#[test]
fn a_certificate_with_an_identity_is_answered_ready() {
    let world = world(20);
    let address = start(&world, Authentication::Certificate(spiffe()), None);
    run_client(&world, "c1", move |rt| async move {
        let (mut remote, body) = first_answer(&rt, address, true).await;
        assert_eq!(body, Body::Ready);
        let rows = remote.query("SELECT username FROM system_views.clients").await.unwrap().rows();
        assert_eq!(show(&rows), ["me"]);
        // Without a certificate, encrypted or not.
        let none = Body::Error(
            ErrorCode::BadCredentials,
            "No certificate present on connection".to_owned(),
        );
        assert_eq!(first_answer(&rt, address, false).await.1, none);
        let plain = Stream::plain(rt.connect(address).await.unwrap());
        let (mut remote, body) = Remote::begin(plain, V4).await.unwrap();
        assert_eq!(body, none);
        // It is not logged in, and no password helps.
        let got = statement(&mut remote, "SELECT * FROM system.local").await.unwrap();
        assert_eq!(got.error().0, ErrorCode::ProtocolError);
        let got = remote.ask(&Request::AuthResponse(Some(b"\0root\0secret"))).await.unwrap();
        assert_eq!(got.error().0, ErrorCode::ProtocolError);
    });
}

#[test]
fn a_dropped_identity_and_a_role_without_login_are_refused_from_the_next_connection_on() {
    let world = world(21);
    let address = start(&world, Authentication::CertificateOrPassword(spiffe()), None);
    run_client(&world, "c1", move |rt| async move {
        assert_eq!(first_answer(&rt, address, true).await.1, Body::Ready);
        // A client without a certificate logs in with a password.
        let (mut root, body) = first_answer(&rt, address, false).await;
        let class = "org.apache.cassandra.auth.MutualTlsWithPasswordFallbackAuthenticator";
        assert_eq!(body, Body::Authenticate(class.to_owned()));
        let got = root.ask(&Request::AuthResponse(Some(b"\0root\0secret"))).await.unwrap();
        assert_eq!(got.body, Body::AuthSuccess);
        let refused = |text: &str| Body::Error(ErrorCode::BadCredentials, text.to_owned());
        for (change, expected) in [
            ("ALTER ROLE me WITH LOGIN = false", refused("me is not permitted to log in")),
            ("ALTER ROLE me WITH LOGIN = true", Body::Ready),
            (
                "DROP IDENTITY 'spiffe://test.example/client'",
                refused("Certificate identity 'spiffe://test.example/client' not authorized"),
            ),
            ("ADD IDENTITY 'spiffe://test.example/client' TO ROLE 'me'", Body::Ready),
            (
                "DROP ROLE me",
                refused("Certificate identity 'spiffe://test.example/client' not authorized"),
            ),
        ] {
            root.query(change).await.unwrap();
            assert_eq!(first_answer(&rt, address, true).await.1, expected, "{change}");
        }
    });
}

#[test]
fn connections_of_one_role_are_limited_and_counted_until_they_end() {
    let world = world(22);
    let address = start(&world, Authentication::CertificateOrPassword(spiffe()), Some(2));
    run_client(&world, "c1", move |rt| async move {
        let log_in = async |rt: &Rt| {
            let (mut remote, _) = first_answer(rt, address, false).await;
            let got = remote.ask(&Request::AuthResponse(Some(b"\0root\0secret"))).await.unwrap();
            (remote, got.body)
        };
        let (first, body) = log_in(&rt).await;
        assert_eq!(body, Body::AuthSuccess);
        let (_second, body) = log_in(&rt).await;
        assert_eq!(body, Body::AuthSuccess);
        let too_many =
            Body::Error(ErrorCode::Overloaded, "Too many connections of role root".to_owned());
        assert_eq!(log_in(&rt).await.1, too_many);
        // Other roles have their own limit; by certificate the connection that is too many gets no READY.
        let too_many =
            Body::Error(ErrorCode::Overloaded, "Too many connections of role me".to_owned());
        let (a, body) = first_answer(&rt, address, true).await;
        assert_eq!(body, Body::Ready);
        let (_b, body) = first_answer(&rt, address, true).await;
        assert_eq!(body, Body::Ready);
        let (mut c, body) = first_answer(&rt, address, true).await;
        assert_eq!(body, too_many);
        assert_eq!(statement(&mut c, "SELECT * FROM system.local").await, None, "it is closed");
        drop(a);
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(first_answer(&rt, address, true).await.1, Body::Ready);
        drop(first);
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(log_in(&rt).await.1, Body::AuthSuccess);
    });
}

/// Runs a test on the last shard of a node on which a role may have one connection.
fn on_last_shard<F: Future<Output = ()> + 'static>(shards: u16, test: fn(CqlServer, Rt) -> F) {
    let world = World::new(23, WorldOptions::default());
    let meshes = Meshes::new(shards);
    let settings =
        ServerSettings { connections_per_role_max: Some(1), ..ServerSettings::new(peer()) };
    let spec = NodeSpec { name: "n1".to_owned(), shards, work_dir: "/n1".to_owned() };
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    let _node = world.start_node(
        spec,
        Arc::new(move |rt| {
            let (meshes, settings, seen) = (meshes.clone(), settings.clone(), seen.clone());
            Box::pin(async move {
                let server = node(&rt, settings, &meshes).await;
                if rt.shard().0 + 1 == rt.shard_count() {
                    rt.sleep(Duration::from_millis(500)).await;
                    test(server.clone(), rt.clone()).await;
                    seen.store(true, Ordering::Relaxed);
                }
                rt.stop_requested().await;
                server.stop().await;
            })
        }),
    );
    let is_done = || done.load(Ordering::Relaxed);
    world.run_until(is_done, Duration::from_secs(60)).unwrap();
}

fn peer() -> SocketAddr {
    "10.0.0.9:5000".parse().unwrap()
}

/// Takes and releases the only place of the role.
async fn assert_has_room(server: &CqlServer) {
    let inner = server.inner();
    let session = inner.open_session(peer(), None);
    assert!(inner.count_for_role(&session, "root").await.is_ok());
    inner.close_session(&session);
    inner.uncount_role(&session).await;
}

#[test]
fn a_connection_that_ends_while_it_is_counted_frees_its_place() {
    for shards in [1, 2] {
        on_last_shard(shards, |server, rt| async move {
            assert_has_room(&server).await;
            let inner = server.inner();
            // By password the connection drops the future, by certificate a task goes on.
            for is_dropped in [true, false] {
                let session = inner.open_session(peer(), None);
                let mut counts = Box::pin(inner.count_for_role(&session, "root"));
                let polled = poll_fn(|cx| Poll::Ready(counts.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
                inner.close_session(&session);
                inner.uncount_role(&session).await;
                if is_dropped {
                    drop(counts);
                } else {
                    assert!(counts.await.is_err());
                }
                rt.sleep(Duration::from_millis(100)).await;
                assert_has_room(&server).await;
            }
        });
    }
}

#[test]
fn the_end_of_a_connection_is_counted_though_the_ring_of_shard_0_is_full() {
    on_last_shard(2, |server, rt| async move {
        let inner = server.inner();
        let session = inner.open_session(peer(), None);
        assert!(inner.count_for_role(&session, "root").await.is_ok());
        inner.close_session(&session);
        let to_first =
            || inner.mesh.calls.call(&rt, ShardId(0), crate::mesh::ServerRequest::Clients);
        let calls: Vec<_> = (0..1024).map(|_| to_first()).collect();
        // The ring is full.
        assert!(to_first().await.is_err());
        inner.uncount_role(&session).await;
        drop(calls);
        assert_has_room(&server).await;
    });
}

/// It was reported as too many connections of the role.
#[test]
fn a_login_is_counted_though_the_ring_of_shard_0_is_full() {
    on_last_shard(2, |server, rt| async move {
        let inner = server.inner();
        let session = inner.open_session(peer(), None);
        let to_first =
            || inner.mesh.calls.call(&rt, ShardId(0), crate::mesh::ServerRequest::Clients);
        let calls: Vec<_> = (0..1024).map(|_| to_first()).collect();
        // The ring is full.
        assert!(to_first().await.is_err());
        assert_eq!(inner.enter_role_on_first(&session, "root").await, Entry::Entered);
        drop(calls);
        // The only place of the role is taken.
        assert_eq!(inner.enter_role_on_first(&session, "root").await, Entry::TooMany);
        let refused = inner.count_for_role(&session, "root").await.unwrap_err();
        assert_eq!(refused.message(peer()), "Too many connections of role root");
        inner.close_session(&session);
    });
}

/// A statement that may fail; `None` when the connection ended.
async fn statement(remote: &mut Remote, query: &str) -> Option<Got> {
    let parameters = QueryParameters::new(Consistency::One);
    remote.ask(&Request::Query { query, parameters }).await
}

/// Roles and identities of these tests, on shard 0.
pub(super) async fn with_identities(server: &CqlServer) {
    let membership = &server.executor().membership;
    let salted_hash = secret_hash();
    let role = Role { is_superuser: true, can_login: true, salted_hash };
    let root = Transformation::PutRole { name: "root".to_owned(), role };
    let identity = "spiffe://test.example/client".to_owned();
    let identity =
        Transformation::Auth(AuthChange::AddIdentity { identity, role: "me".to_owned() });
    membership.submit(membership.snapshot().epoch, vec![root, identity]).await.unwrap();
}
