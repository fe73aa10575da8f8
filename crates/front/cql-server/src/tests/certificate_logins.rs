//! Logins by certificate over TLS, and limits of connections per role.

use super::tls::{encrypted_conn, fixture_client, run_client, start_with, world};
use super::*;
use crate::tests::cluster_of_shards::Remote;
use crate::{CertificateLimits, CertificateLogin, RoleOfIdentity};
use ::tls::IdentityRule;
use cluster::AuthChange;
use rt::Stream;

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
        // Other roles have their own limit; by certificate the connection that is too many ends.
        let (_a, _) = first_answer(&rt, address, true).await;
        let (_b, _) = first_answer(&rt, address, true).await;
        let (mut c, body) = first_answer(&rt, address, true).await;
        assert_eq!(body, Body::Ready);
        while statement(&mut c, "SELECT * FROM system.local").await.is_some() {
            rt.sleep(Duration::from_millis(10)).await;
        }
        drop(first);
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(log_in(&rt).await.1, Body::AuthSuccess);
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
