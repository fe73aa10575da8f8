//! Logins under attack: hashing off the shard, failures that are slowed, limits, answers that reveal no role.

use super::roles::{guarded, login, server_with};
use super::*;
use crate::login_desk::{WAITING_MAX, WAITING_RESERVED};
use std::net::{IpAddr, Ipv4Addr};

fn address(n: usize) -> SocketAddr {
    let ip = Ipv4Addr::from(0x0A01_0000 + u32::try_from(n).unwrap());
    SocketAddr::new(IpAddr::V4(ip), 5000)
}

/// A client that was asked for its credentials.
async fn asked(server: &CqlServer, from: SocketAddr) -> Client {
    let mut client = Client::from(server, V5, from);
    assert!(matches!(client.startup(&[]).await.body, Body::Authenticate(_)));
    client
}

fn send(client: &mut Client, user: &str, password: &str) {
    let token = format!("\0{user}\0{password}");
    client.send(1, &Request::AuthResponse(Some(token.as_bytes())));
}

async fn answer(client: &mut Client, user: &str, password: &str) -> Body {
    send(client, user, password);
    client.receive().await.body
}

/// Lets a connection take its turn.
async fn turn(client: &mut Client) {
    poll_fn(|cx| {
        client.connection.turn(cx);
        Poll::Ready(())
    })
    .await;
}

fn denied(user: &str) -> Body {
    let text = format!("Provided username {user} and/or password are incorrect");
    Body::Error(ErrorCode::BadCredentials, text)
}

/// Hashes that the pool computed.
fn hashes(rt: &Rt) -> u64 {
    let labels = [("service", "passwords")];
    rt.telemetry().histogram("service_request_micros", "", &labels).snapshot().count()
}

/// INV-logins-1.
#[test]
fn other_requests_go_on_while_two_hundred_logins_hash() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let mut root = login(&server, "root", "secret").await;
        let mut clients = Vec::new();
        for n in 0..200 {
            let mut client = asked(&server, address(n)).await;
            send(&mut client, "root", &format!("wrong {n}"));
            clients.push(client);
        }
        for client in &mut clients {
            turn(client).await;
        }
        let before = rt.now();
        root.must("SELECT * FROM system.local").await;
        assert_eq!(rt.now(), before);
        assert!(clients.iter().all(|client| client.connection.output().is_empty()));
        let ends = clients.into_iter().map(|mut client| async move {
            assert_eq!(client.receive().await.body, denied("root"));
        });
        join_all(ends.collect()).await;
        assert_eq!(hashes(&rt), 201);
    });
}

#[test]
fn many_connections_with_one_password_hash_it_a_few_times() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let mut clients = Vec::new();
        for n in 0..100 {
            let mut client = asked(&server, address(n)).await;
            send(&mut client, "root", "secret");
            clients.push(client);
        }
        let ends = clients.into_iter().map(|mut client| async move {
            assert_eq!(client.receive().await.body, Body::AuthSuccess);
        });
        join_all(ends.collect()).await;
        // One thread, and the login that is ready when it is.
        assert_eq!(hashes(&rt), 2);
    });
}

#[test]
fn a_role_that_does_not_exist_costs_and_says_the_same_as_a_wrong_password() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        // "me" exists without a password.
        for (n, user) in ["root", "nobody", "me"].into_iter().enumerate() {
            let mut client = asked(&server, address(n)).await;
            let before = hashes(&rt);
            assert_eq!(answer(&mut client, user, "wrong").await, denied(user));
            assert_eq!(hashes(&rt), before + 1, "{user}");
        }
    });
}

#[test]
fn an_address_that_keeps_failing_waits_and_is_refused_at_last() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let mut client = asked(&server, address(1)).await;
        let mut waits = Vec::new();
        for n in 0..8 {
            let began = rt.now();
            let user = format!("user {n}");
            assert_eq!(answer(&mut client, &user, "x").await, denied(&user));
            waits.push(rt.now().since(began));
        }
        // 100, 200 ms; a hash takes at most 20 ms of a simulated world.
        let hash = Duration::from_millis(20);
        assert!(waits[..6].iter().all(|wait| *wait <= hash), "{waits:?}");
        for (wait, least) in waits[6..].iter().zip([100, 200]) {
            let least = Duration::from_millis(least);
            assert!(*wait >= least && *wait <= least + hash, "{waits:?}");
        }
        // Many at the same time: those that would wait for long are refused, the others are answered.
        let mut clients = Vec::new();
        for _ in 0..40 {
            let mut client = asked(&server, address(1)).await;
            send(&mut client, "root", "wrong");
            clients.push(client);
        }
        let refused = Rc::new(Cell::new(0));
        let ends = clients.into_iter().map(|mut client| {
            let refused = refused.clone();
            async move {
                match client.receive().await.body {
                    Body::Error(ErrorCode::Overloaded, text) => {
                        assert!(text.starts_with("Too many failed logins from this address"));
                        refused.set(refused.get() + 1);
                    }
                    other => assert_eq!(other, denied("root")),
                }
            }
        });
        join_all(ends.collect()).await;
        assert!(refused.get() > 0 && refused.get() < 40, "{}", refused.get());
        // Another address is served at once.
        let began = rt.now();
        let mut other = asked(&server, address(2)).await;
        assert_eq!(answer(&mut other, "user 1", "x").await, denied("user 1"));
        assert!(rt.now().since(began) <= hash);
    });
}

/// INV-logins-2.
#[test]
fn an_attack_on_a_role_does_not_lock_it_out() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let known = address(1);
        assert_eq!(
            answer(&mut asked(&server, known).await, "root", "secret").await,
            Body::AuthSuccess
        );
        for n in 100..140 {
            let mut stranger = asked(&server, address(n)).await;
            assert_eq!(answer(&mut stranger, "root", "wrong").await, denied("root"));
        }
        // The password that is in the cache would tell nothing here.
        server.forget_credentials(None);
        let began = rt.now();
        assert_eq!(
            answer(&mut asked(&server, known).await, "root", "secret").await,
            Body::AuthSuccess
        );
        assert!(rt.now().since(began) <= Duration::from_millis(20));
        server.forget_credentials(None);
        let began = rt.now();
        let mut elsewhere = asked(&server, address(2)).await;
        assert_eq!(answer(&mut elsewhere, "root", "secret").await, Body::AuthSuccess);
        let waited = rt.now().since(began);
        assert!(
            waited >= Duration::from_secs(1) && waited < Duration::from_millis(1100),
            "{waited:?}"
        );
    });
}

/// On shard 0, where the connection is served by the shard that verifies.
#[test]
fn a_client_that_closes_its_connection_is_slowed_like_one_that_waits() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        for n in 0..7 {
            let mut client = asked(&server, address(1)).await;
            send(&mut client, "root", &format!("wrong {n}"));
            turn(&mut client).await;
            drop(client);
            rt.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(hashes(&rt), 7);
        let began = rt.now();
        let mut client = asked(&server, address(1)).await;
        assert_eq!(answer(&mut client, "root", "wrong").await, denied("root"));
        assert!(rt.now().since(began) >= Duration::from_millis(200));
        // The passwords of closed connections are verified to the end, and hold their turns until then.
        for n in 0..100 {
            let mut client = asked(&server, address(100 + n)).await;
            send(&mut client, &format!("nobody {n}"), "wrong");
            turn(&mut client).await;
        }
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(hashes(&rt), 108);
    });
}

/// INV-logins-2.
#[test]
fn guesses_of_a_fresh_address_in_parallel_are_slowed() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let mut clients = Vec::new();
        for n in 0..40 {
            let mut client = asked(&server, address(1)).await;
            send(&mut client, "root", &format!("wrong {n}"));
            clients.push(client);
        }
        let refused = Rc::new(Cell::new(0));
        let ends = clients.into_iter().map(|mut client| {
            let refused = refused.clone();
            async move {
                match client.receive().await.body {
                    Body::Error(ErrorCode::Overloaded, _) => refused.set(refused.get() + 1),
                    other => assert_eq!(other, denied("root")),
                }
            }
        });
        join_all(ends.collect()).await;
        // Six are free, six wait for 100 ms to 6.3 s.
        assert_eq!((refused.get(), hashes(&rt)), (28, 12));
    });
}

#[test]
fn an_application_may_open_many_connections_at_once_from_a_fresh_address() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let mut root = login(&server, "root", "secret").await;
        for n in 0..20 {
            root.must(&format!("CREATE ROLE r{n} WITH PASSWORD = 'pw' AND LOGIN = true")).await;
        }
        server.forget_credentials(None);
        let began = rt.now();
        let mut clients = Vec::new();
        for n in 0..200 {
            let mut client = asked(&server, address(1)).await;
            send(&mut client, &format!("r{}", n % 20), "pw");
            clients.push(client);
        }
        let ends = clients.into_iter().map(|mut client| async move {
            assert_eq!(client.receive().await.body, Body::AuthSuccess);
        });
        join_all(ends.collect()).await;
        assert!(rt.now().since(began) < Duration::from_secs(2));
    });
}

/// INV-logins-2.
#[test]
fn strangers_do_not_take_the_waiting_places_and_turns_of_known_roles() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let known = address(WAITING_MAX + 1);
        let mut first = asked(&server, known).await;
        assert_eq!(answer(&mut first, "root", "secret").await, Body::AuthSuccess);
        server.forget_credentials(None);
        let mut clients = Vec::new();
        for n in 0..WAITING_MAX {
            let mut client = asked(&server, address(n)).await;
            send(&mut client, &format!("nobody {n}"), "wrong");
            turn(&mut client).await;
            clients.push(client);
        }
        // Their tasks run.
        rt.sleep(Duration::from_millis(50)).await;
        let began = rt.now();
        let mut again = asked(&server, known).await;
        assert_eq!(answer(&mut again, "root", "secret").await, Body::AuthSuccess);
        assert!(rt.now().since(began) <= Duration::from_millis(100));
    });
}

/// INV-login-1.
#[test]
fn more_logins_than_may_wait_are_refused_at_once() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let mut clients = Vec::new();
        for n in 0..WAITING_MAX - WAITING_RESERVED + 200 {
            let mut client = asked(&server, address(n)).await;
            send(&mut client, "root", "wrong");
            turn(&mut client).await;
            clients.push(client);
        }
        let before = rt.now();
        let at_once = Rc::new(Cell::new(0));
        // The others are verified, or refused when they have waited for long.
        let ends = clients.into_iter().map(|mut client| {
            let (rt, at_once) = (rt.clone(), at_once.clone());
            async move {
                match client.receive().await.body {
                    Body::Error(ErrorCode::Overloaded, text) => {
                        assert!(text.starts_with("Server is busy verifying passwords"), "{text}");
                        if rt.now().since(before) < Duration::from_millis(200) {
                            at_once.set(at_once.get() + 1);
                        }
                    }
                    other => assert_eq!(other, denied("root")),
                }
            }
        });
        join_all(ends.collect()).await;
        // A few places are free again before the last logins ask for one.
        assert!((150..=200).contains(&at_once.get()), "{}", at_once.get());
        assert!(rt.now().since(before) <= Duration::from_secs(7));
    });
}

#[test]
fn a_connection_verifies_one_password_at_a_time() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let mut client = asked(&server, address(1)).await;
        send(&mut client, "root", "wrong");
        turn(&mut client).await;
        let token = b"\0root\0secret";
        client.send(2, &Request::AuthResponse(Some(token)));
        let got = client.receive().await;
        assert_eq!((got.stream, got.error().0), (2, ErrorCode::ProtocolError));
        assert_eq!(client.receive().await.body, denied("root"));
        assert_eq!(answer(&mut client, "root", "secret").await, Body::AuthSuccess);
    });
}

#[test]
fn a_stopping_server_waits_for_no_slowed_login() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let mut client = asked(&server, address(1)).await;
        for _ in 0..11 {
            answer(&mut client, "nobody", "x").await;
        }
        send(&mut client, "nobody", "x");
        turn(&mut client).await;
        let before = rt.now();
        server.begin_to_stop();
        let answer = client.receive().await.body;
        assert!(matches!(answer, Body::Error(ErrorCode::Overloaded, _)), "{answer:?}");
        assert!(rt.now().since(before) < Duration::from_millis(50));
    });
}

/// `nodetool disablebinary` closes the port; its counterpart may need a login of the API.
#[test]
fn logins_of_the_api_go_on_while_the_port_is_closed() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let attempt = |password: &str| crate::LoginAttempt {
            user: "root".to_owned(),
            password: password.to_owned(),
            address: address(1).ip(),
        };
        server.pause().await;
        assert_eq!(server.log_in(attempt("secret")).await, Ok(()));
        assert!(server.log_in(attempt("wrong")).await.is_err());
        server.resume();
        assert_eq!(server.log_in(attempt("secret")).await, Ok(()));
    });
}
