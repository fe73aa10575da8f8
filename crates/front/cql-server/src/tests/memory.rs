//! Memory limits of requests: answers that are not read, results without paging, plans.

use super::cluster_of_shards::{Remote, client};
use super::*;
use rt::sim::SimNode;
use rt::{Conn, NodeSpec};
use std::collections::BTreeSet;

pub(super) const PORT: u16 = 9042;

pub(super) fn start(world: &World, shards: u16, settings: ServerSettings) -> SimNode {
    let meshes = Meshes::new(shards);
    let spec = NodeSpec { name: "n1".to_owned(), shards, work_dir: "/n1".to_owned() };
    let address = SocketAddr::new(world.ip("n1"), PORT);
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let (meshes, settings) = (meshes.clone(), settings.clone());
            Box::pin(async move {
                let server = node(&rt, settings, &meshes).await;
                if rt.shard() == ShardId(0) {
                    rt.sleep(Duration::from_millis(500)).await;
                    server.listen(address).await.unwrap();
                }
                rt.stop_requested().await;
                server.stop().await;
            })
        }),
    )
}

pub(super) fn number(node: &SimNode, name: &str) -> i64 {
    match node.telemetry().find(name).map(|metric| metric.value.clone()) {
        Some(telemetry::Value::Gauge(n)) => n,
        Some(telemetry::Value::Counter(n)) => i64::try_from(n).unwrap(),
        other => panic!("{name}: {other:?}"),
    }
}

/// Sends many reads and reads no answer.
async fn pipeline(rt: &Rt, address: SocketAddr, count: i16) -> Conn {
    let conn = rt.connect(address).await.unwrap();
    let mut out = Vec::new();
    let mut map = Vec::new();
    StringMap::encode(&mut map, &[("CQL_VERSION", "3.0.0")]).unwrap();
    let map = StringMap::decode(&mut codec::Reader::new(&map, "test")).unwrap();
    let negotiated = Negotiated::plain(V4);
    let mut encode = |stream, request: &Request<'_>| {
        let options = RequestOptions { stream, ..RequestOptions::default() };
        encode_request(request, negotiated, &options, &mut out).unwrap();
    };
    encode(0, &Request::Startup(map));
    for stream in 0..count {
        let query = format!("SELECT v FROM ks.t WHERE k = {}", stream % 10);
        let parameters = QueryParameters::new(Consistency::One);
        encode(stream, &Request::Query { query: &query, parameters });
    }
    conn.write_all(&out).await.unwrap();
    conn
}

#[test]
fn a_client_that_does_not_read_is_paused_and_then_closed() {
    let world = World::new(3, WorldOptions::default());
    let node = start(&world, 2, settings());
    let address = SocketAddr::new(world.ip("n1"), PORT);
    client(&world, "c1", move |rt| async move {
        let mut remote = Remote::connect(&rt, address).await;
        for text in [
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
            "CREATE TABLE ks.t (k int, c int, v text, PRIMARY KEY (k, c))",
        ] {
            remote.query(text).await.unwrap();
        }
        // Ten partitions of 100 kB on two shards.
        let text = "x".repeat(10_000);
        for row in 0..100 {
            let (k, c) = (row % 10, row / 10);
            let insert = format!("INSERT INTO ks.t (k, c, v) VALUES ({k}, {c}, '{text}')");
            assert_eq!(remote.query(&insert).await.unwrap().body, Body::Void);
        }
    });
    let (done, most) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let seen = done.clone();
    world.client("hostile", move |rt| async move {
        // 60 MB of answers.
        let conn = pipeline(&rt, address, 600).await;
        rt.sleep(Duration::from_secs(50)).await;
        let mut remote = Remote::connect(&rt, address).await;
        let answer = remote.query("SELECT c FROM ks.t WHERE k = 1").await.unwrap();
        assert_eq!(answer.rows().rows.len(), 10, "others are served");
        rt.sleep(Duration::from_secs(30)).await;
        seen.set(true);
        drop(conn);
    });
    let until = done.clone();
    let largest = most.clone();
    let sampled = node.clone();
    world
        .run_until(
            move || {
                largest.set(largest.get().max(number(&sampled, "cql_request_memory_bytes")));
                until.get()
            },
            Duration::from_secs(600),
        )
        .unwrap();
    assert!(most.get() > 500_000 && most.get() < 5_000_000, "{} bytes at most", most.get());
    assert_eq!(number(&node, "cql_connections_stalled_total"), 1);
}

/// A server whose requests have 400 kB, and 60 rows of 10 kB.
async fn small(rt: &Rt) -> (CqlServer, Client) {
    let settings = changed(settings(), |query| query.request_bytes_max = 400 << 10);
    let server = node(rt, settings, &Meshes::new(1)).await;
    let mut client = Client::ready(&server, V4).await;
    client.with_table().await;
    let text = "x".repeat(10 << 10);
    for c in 0..60 {
        client.must(&format!("INSERT INTO ks.t (k, c, v) VALUES (1, {c}, '{text}')")).await;
    }
    (server, client)
}

#[test]
fn a_result_without_paging_that_is_too_large_fails_and_pages_do_not() {
    run(|rt| async move {
        let (server, mut client) = small(&rt).await;
        for query in [
            "SELECT v FROM ks.t WHERE k = 1",
            "SELECT v FROM ks.t",
            "SELECT v FROM ks.t WHERE k IN (0, 1) ORDER BY c DESC",
        ] {
            let (code, message) = client.query(query).await.error();
            assert_eq!(code, ErrorCode::ReadFailure, "{query}");
            assert!(message.contains("READ_SIZE"), "{message}");
        }
        let most = "SELECT v FROM ks.t WHERE k = 1 LIMIT 19";
        assert_eq!(client.must(most).await.rows().rows.len(), 19);
        let parameters =
            QueryParameters { page_size: Some(10), ..QueryParameters::new(Consistency::One) };
        let query = "SELECT v FROM ks.t WHERE k = 1";
        let got = client.ask(&Request::Query { query, parameters }).await;
        assert_eq!(got.rows().rows.len(), 10);
        drop(client);
        assert_eq!(server.executor().account.used(), 0);
    });
}

#[test]
fn a_page_ends_early_where_its_rows_are_large() {
    run(|rt| async move {
        let (_server, mut client) = small(&rt).await;
        for k in 2..6 {
            let text = "y".repeat(90 << 10);
            client.must(&format!("INSERT INTO ks.t (k, c, v) VALUES ({k}, 1, '{text}')")).await;
        }
        for (query, rows) in [
            ("SELECT k, c, v FROM ks.t WHERE k = 1", 60),
            ("SELECT k, c, v FROM ks.t WHERE k = 1 ORDER BY c DESC", 60),
            ("SELECT k, c, v FROM ks.t", 64),
            ("SELECT k, c, v FROM ks.t WHERE k IN (0, 1, 2, 3, 4, 5)", 64),
            ("SELECT k, c, v FROM ks.t WHERE c < 50 ALLOW FILTERING", 54),
            ("SELECT k, c, v FROM ks.t WHERE k = 1 LIMIT 45", 45),
            ("SELECT k, c, v FROM ks.t PER PARTITION LIMIT 40", 44),
        ] {
            let (mut state, mut seen, mut pages) = (None, BTreeSet::new(), 0);
            loop {
                let parameters = QueryParameters {
                    page_size: Some(5000),
                    paging_state: state.as_deref(),
                    ..QueryParameters::new(Consistency::One)
                };
                let got = client.ask(&Request::Query { query, parameters }).await.rows();
                pages += 1;
                let bytes: usize = got.rows.iter().flatten().flatten().map(Vec::len).sum();
                assert!(bytes <= 200 << 10, "{query}: {bytes} bytes in a page");
                for row in got.rows {
                    assert!(seen.insert(row[..2].to_vec()), "{query}: a row comes twice");
                }
                state = got.paging_state;
                if state.is_none() {
                    break;
                }
            }
            assert_eq!(seen.len(), rows, "{query}");
            assert!(pages > 3, "{query}: {pages} pages");
        }
        // One row that has no room, with paging or without.
        let text = "z".repeat(250 << 10);
        client.must(&format!("INSERT INTO ks.t (k, c, v) VALUES (9, 1, '{text}')")).await;
        let parameters =
            QueryParameters { page_size: Some(10), ..QueryParameters::new(Consistency::One) };
        let query = "SELECT v FROM ks.t WHERE k = 9";
        let (code, message) = client.ask(&Request::Query { query, parameters }).await.error();
        assert_eq!(code, ErrorCode::ReadFailure);
        assert!(message.contains("READ_SIZE"), "{message}");
    });
}

#[test]
fn a_read_that_finds_no_room_is_refused_and_small_requests_are_served() {
    run(|rt| async move {
        let (server, mut client) = small(&rt).await;
        let most = "SELECT v FROM ks.t WHERE k = 1 LIMIT 15";
        client.must(most).await;
        let others = query::Charge::new(&server.executor().account);
        others.set(250 << 10);
        let (code, message) = client.query(most).await.error();
        assert_eq!(code, ErrorCode::Overloaded, "{message}");
        others.set(310 << 10);
        // Refused before anything is read: large answers are expected.
        assert_eq!(client.query("SELECT c FROM ks.t WHERE k = 1").await.error().0, code);
        let mut other = Client::ready(&server, V4).await;
        assert_eq!(other.must("SELECT c FROM ks.t WHERE k = 1").await.rows().rows.len(), 60);
        others.set(0);
        client.must(most).await;
    });
}

#[test]
fn a_statement_whose_plan_has_no_room_is_refused_before_it_is_planned() {
    run(|rt| async move {
        let settings =
            changed(ServerSettings { frame_bytes_max: 1 << 20, ..settings() }, |query| {
                query.request_bytes_max = 1 << 20;
                query.prepared_bytes_max = 1 << 20;
            });
        let server = node(&rt, settings, &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let list = |n: usize| vec!["1"; n].join(",");
        let select = |n: usize| format!("SELECT c FROM ks.t WHERE k IN ({})", list(n));
        client.must(&select(1000)).await;
        let (code, message) = client.query(&select(20_000)).await.error();
        assert_eq!(code, ErrorCode::Invalid);
        assert!(
            message.starts_with("Request has too many terms: its plan would take"),
            "{message}"
        );
        // A text has commas, but is one value.
        let text = list(20_000);
        client.must(&format!("INSERT INTO ks.t (k, c, v) VALUES (1, 1, '{text}')")).await;
        let markers = |n: usize| select(n).replace('1', "?");
        client.prepare(&markers(1000)).await;
        let text = markers(6000);
        let got = client.ask(&Request::Prepare { query: &text, keyspace: None }).await;
        let (code, message) = got.error();
        assert_eq!(code, ErrorCode::Invalid);
        let is_as_in_cassandra = message.starts_with("Prepared statement of size ")
            && message
                .contains(" bytes is larger than allowed maximum of 1 MB: SELECT c FROM ks.t");
        assert!(is_as_in_cassandra, "{message}");
    });
}

#[test]
fn prepared_statements_take_no_more_than_they_may() {
    run(|rt| async move {
        let settings = changed(settings(), |query| query.prepared_bytes_max = 2 << 20);
        let server = node(&rt, settings, &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        for number in 0..20 {
            let markers = vec!["?"; 1000 + number].join(",");
            client.prepare(&format!("SELECT c FROM ks.t WHERE k IN ({markers})")).await;
        }
        // Each takes about 770 kB.
        assert_eq!(server.executor().prepared.len(), 2);
    });
}

#[test]
fn numbers_of_too_many_digits_and_products_of_too_many_rows_are_refused() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        client.must("CREATE TABLE ks.n (k int PRIMARY KEY, v varint, d decimal)").await;
        let (most, more) = ("7".repeat(39_456), "7".repeat(39_457));
        client
            .must(&format!("INSERT INTO ks.n (k, v, d) VALUES (1, {most}, 0.{})", &most[1..]))
            .await;
        let digits = "a number of 39457 digits is longer than the maximum of 39456";
        for text in [
            format!("INSERT INTO ks.n (k, v) VALUES (1, {more})"),
            format!("INSERT INTO ks.n (k, d) VALUES (1, {more})"),
            format!("INSERT INTO ks.n (k, d) VALUES (1, 7.{})", &more[1..]),
            format!("INSERT INTO ks.n JSON '{{\"k\": 1, \"v\": {more}}}'"),
            format!("INSERT INTO ks.n JSON '{{\"k\": 1, \"d\": \"{more}\"}}'"),
        ] {
            let (code, message) = client.query(&text).await.error();
            assert_eq!(code, ErrorCode::Invalid, "{message}");
            assert!(message.contains(digits), "{message}");
        }
        // Stored and read as it is, shown by its bytes.
        let hex = "7".repeat(40_000);
        client.must(&format!("INSERT INTO ks.n (k, v) VALUES (2, blobasvarint(0x{hex}))")).await;
        assert_eq!(client.must("SELECT v FROM ks.n WHERE k = 2").await.rows().rows.len(), 1);
        for function in ["cast(v AS text)", "v + 1", "v * v", "-v + v"] {
            let got = client.query(&format!("SELECT {function} FROM ks.n WHERE k = 2")).await;
            let (_, message) = got.error();
            assert!(message.contains("longer than the maximum of 16384"), "{function}: {message}");
        }
        let json = client.must("SELECT JSON v FROM ks.n WHERE k = 2").await.rows();
        assert!(show(&json)[0].len() > 40_000);
        let list = |n: i32| (0..n).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
        let product =
            format!("DELETE FROM ks.t WHERE k IN ({}) AND c IN ({})", list(4000), list(1000));
        let (code, message) = client.query(&product).await.error();
        assert_eq!(code, ErrorCode::Invalid);
        let is_as_in_cassandra = message.starts_with("Mutation of ")
            && message.ends_with(" bytes is too large for the maximum size of 16777216");
        assert!(is_as_in_cassandra, "{message}");
    });
}
