//! Limits of requests per second, as clients see them.

use super::*;
use crate::RateLimits;

async fn code(client: &mut Client) -> Option<(ErrorCode, String)> {
    match client.query("SELECT key FROM system.local").await.body {
        Body::Rows(_) => None,
        Body::Error(code, message) => Some((code, message)),
        other => panic!("{other:?}"),
    }
}

fn breached(limit: &str) -> Option<(ErrorCode, String)> {
    let message = format!(
        "Request breached {limit}. Server is currently in an overloaded state and cannot accept more requests."
    );
    Some((ErrorCode::Overloaded, message))
}

async fn from(server: &CqlServer, address: &str) -> Client {
    let mut client = Client::from(server, V4, address.parse().unwrap());
    assert_eq!(client.startup(&[]).await.body, Body::Ready);
    client
}

#[test]
fn a_request_above_a_rate_is_refused_until_time_has_passed() {
    run(|rt| async move {
        let rate_limits = RateLimits { of_all: Some(4), of_address: Some(3), of_role: None };
        let server = node(&rt, ServerSettings { rate_limits, ..settings() }, &Meshes::new(1)).await;
        let mut one = from(&server, "10.0.0.7:5000").await;
        let mut again = from(&server, "10.0.0.7:5001").await;
        let mut other = from(&server, "10.0.0.8:5000").await;
        rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(code(&mut one).await, None);
        assert_eq!(code(&mut one).await, None);
        assert_eq!(code(&mut again).await, None);
        let of_address = breached("limit of 3 requests/second of address 10.0.0.7");
        assert_eq!(code(&mut one).await, of_address);
        assert_eq!(code(&mut again).await, of_address);
        assert_eq!(code(&mut other).await, None);
        assert_eq!(code(&mut other).await, breached("global limit of 4 requests/second"));
        // OPTIONS is no statement: it is answered.
        assert!(matches!(one.ask(&Request::Options).await.body, Body::Supported(_)));
        rt.sleep(Duration::from_millis(400)).await;
        assert_eq!(code(&mut one).await, None);
        assert_eq!(code(&mut one).await, of_address);
        server.set_rate_limits(RateLimits::default());
        for _ in 0..20 {
            assert_eq!(code(&mut one).await, None);
        }
        let metrics = rt.telemetry().snapshot().metrics;
        let refused = metrics.iter().filter(|m| m.name == "cql_requests_above_rate_total");
        assert_eq!(refused.count(), 3, "one for each limit");
    });
}

#[test]
fn the_rate_of_a_role_counts_its_connections_together() {
    run(|rt| async move {
        let server = super::roles::server_with(&rt, super::roles::guarded()).await;
        let mut root = super::roles::login(&server, "root", "secret").await;
        root.must("CREATE ROLE app WITH PASSWORD = 'secret' AND LOGIN = true").await;
        let mut first = super::roles::login(&server, "app", "secret").await;
        let mut second = super::roles::login(&server, "app", "secret").await;
        server.set_rate_limits(RateLimits { of_role: Some(2), ..RateLimits::default() });
        assert_eq!(code(&mut first).await, None);
        assert_eq!(code(&mut second).await, None);
        let of_role = breached("limit of 2 requests/second of role app");
        assert_eq!(code(&mut first).await, of_role);
        assert_eq!(code(&mut second).await, of_role);
        assert_eq!(code(&mut root).await, None);
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(code(&mut second).await, None);
    });
}
