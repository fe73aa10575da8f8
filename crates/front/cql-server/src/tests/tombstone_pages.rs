//! Pages that end after few tombstones: together they hold the same rows as pages without that limit.

use super::cluster_of_shards::{Remote, client};
use super::*;
use rt::NodeSpec;
use rt::sim::SimNode;
use std::cell::RefCell;
use std::net::SocketAddr;

const PORT: u16 = 9042;
const TABLES: [&str; 3] = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE ks.t (k int, c int, e int, s int static, v int, PRIMARY KEY (k, c, e)) \
     WITH CLUSTERING ORDER BY (c ASC, e DESC) AND ID = 11111111-1111-1111-1111-111111111111",
    "CREATE TABLE ks.one (k int PRIMARY KEY, v int) \
     WITH ID = 22222222-2222-2222-2222-222222222222",
];
const SELECTS: [&str; 22] = [
    "SELECT k, c, e, s, v FROM ks.t",
    "SELECT k, c, e, s, v FROM ks.t LIMIT 23",
    "SELECT k, c, e, s, v FROM ks.t PER PARTITION LIMIT 2",
    "SELECT k, c, e, s, v FROM ks.t PER PARTITION LIMIT 3 LIMIT 17",
    "SELECT DISTINCT k FROM ks.t",
    "SELECT DISTINCT k, s FROM ks.t",
    "SELECT s FROM ks.t WHERE k = 3",
    "SELECT k, c, e, s, v FROM ks.t WHERE k = 1",
    "SELECT k, c, e, s, v FROM ks.t WHERE k = 2 ORDER BY c DESC, e ASC",
    "SELECT k, c, e, s FROM ks.t WHERE k = 4 AND c > 1 AND c <= 4 ORDER BY c DESC, e ASC",
    "SELECT k, c, e FROM ks.t WHERE k IN (0, 1, 2, 3, 4, 5)",
    "SELECT k, c, e, s FROM ks.t WHERE k IN (5, 2, 0, 9) PER PARTITION LIMIT 2",
    "SELECT k, c, e, s FROM ks.t WHERE k IN (1, 3, 4) AND c IN (1, 2, 4) LIMIT 9",
    "SELECT k, c, e FROM ks.t WHERE token(k) > -5000000000000000000 AND c > 2 ALLOW FILTERING",
    "SELECT k, c, e, v FROM ks.t WHERE v > 50 ALLOW FILTERING",
    "SELECT k, c, count(*), max(v) FROM ks.t GROUP BY k, c",
    "SELECT k, count(*) FROM ks.t GROUP BY k LIMIT 5",
    "SELECT k, c, count(*) FROM ks.t WHERE k IN (1, 2, 3) GROUP BY k, c",
    "SELECT count(*), sum(v) FROM ks.t",
    "SELECT count(*) FROM ks.t WHERE k = 2",
    "SELECT k, v FROM ks.one",
    "SELECT count(v) FROM ks.one",
];

fn write(r: u64) -> String {
    let (k, c, e) = (r % 6, (r >> 8) % 6, (r >> 16) % 6);
    let v = (r >> 32) % 100;
    match (r >> 24) % 14 {
        0 => format!("INSERT INTO ks.t (k, s) VALUES ({k}, {v})"),
        1 => format!("DELETE FROM ks.t WHERE k = {k} AND c = {c}"),
        2 => format!("DELETE FROM ks.t WHERE k = {k} AND c = {c} AND e > {e}"),
        3 => format!("DELETE FROM ks.t WHERE k = {k} AND c > {c} AND c <= {}", c + 2),
        4 => format!("DELETE FROM ks.t WHERE k = {k} AND c = {c} AND e = {e}"),
        5 => format!("DELETE v FROM ks.t WHERE k = {k} AND c = {c} AND e = {e}"),
        6 if v < 25 => format!("DELETE FROM ks.t WHERE k = {k}"),
        7 => format!("INSERT INTO ks.one (k, v) VALUES ({}, {v})", v + 100 * k),
        8 => format!("DELETE FROM ks.one WHERE k = {}", v + 100 * k),
        _ => format!("INSERT INTO ks.t (k, c, e, v) VALUES ({k}, {c}, {e}, {v})"),
    }
}

fn start(world: &World, shards: u16, settings: ServerSettings) -> SimNode {
    let meshes = Meshes::new(shards);
    let spec = NodeSpec { name: "n1".to_owned(), shards, work_dir: "/n1".to_owned() };
    let address = SocketAddr::new(world.ip("n1"), PORT);
    let settings = Arc::new(settings);
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let (meshes, settings) = (meshes.clone(), settings.clone());
            Box::pin(async move {
                let server = node(&rt, ServerSettings::clone(&settings), &meshes).await;
                if rt.shard() == ShardId(0) {
                    rt.sleep(Duration::from_millis(500)).await;
                    server.load_prepared().await.unwrap();
                    server.listen(address).await.unwrap();
                }
                rt.stop_requested().await;
                server.stop().await;
            })
        }),
    )
}

async fn page(remote: &mut Remote, text: &str, size: Option<i32>, state: Option<&[u8]>) -> Got {
    let parameters = QueryParameters {
        page_size: size,
        paging_state: state,
        ..QueryParameters::new(Consistency::One)
    };
    remote.ask(&Request::Query { query: text, parameters }).await.unwrap()
}

/// Returns the counter of pages that ended after tombstones.
fn cut(node: &SimNode) -> u64 {
    let metric =
        node.telemetry().find("cql_tombstone_pages_total").map(|metric| metric.value.clone());
    match metric {
        Some(telemetry::Value::Counter(pages)) => pages,
        other => panic!("not a counter: {other:?}"),
    }
}

/// The rows of all pages of every statement, in pages of few rows and of many, and how many pages it took.
fn answers(shards: u16, tombstones: u32, seed: u64) -> (Vec<(String, Vec<String>)>, usize, u64) {
    let world = World::new(seed, WorldOptions::default());
    let settings = changed(settings(), |query| query.tombstone_page_limit = tombstones);
    let node = start(&world, shards, settings);
    let address = SocketAddr::new(world.ip("n1"), PORT);
    let found = Rc::new(RefCell::new((Vec::new(), 0)));
    let given = found.clone();
    client(&world, "c1", move |rt| async move {
        let mut remote = Remote::connect(&rt, address).await;
        for text in TABLES {
            remote.query(text).await.unwrap();
        }
        let mut state = seed;
        for _ in 0..400 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let got = remote.query(&write(state ^ (state >> 29))).await.unwrap();
            assert_eq!(got.body, Body::Void);
        }
        for text in SELECTS {
            for size in [1, 3, 1_000] {
                let (mut rows, mut state): (Vec<String>, Option<Vec<u8>>) = (Vec::new(), None);
                loop {
                    let got = page(&mut remote, text, Some(size), state.as_deref()).await.rows();
                    assert!(got.rows.len() <= size as usize, "{text}");
                    rows.extend(show(&got));
                    given.borrow_mut().1 += 1;
                    state = got.paging_state;
                    if state.is_none() {
                        break;
                    }
                    assert!(given.borrow().1 < 50_000, "{text} does not come to an end");
                }
                given.borrow_mut().0.push((format!("{text} by {size}"), rows));
            }
        }
    });
    let (rows, pages) = found.take();
    assert!(rows.iter().map(|(_, rows)| rows.len()).sum::<usize>() > 500);
    (rows, pages, cut(&node))
}

#[test]
fn pages_cut_by_tombstones_give_together_what_others_give() {
    for seed in 1..=6 {
        let (expected, few, none) = answers(1, 0, seed);
        assert_eq!(none, 0);
        for (shards, tombstones) in [(1, 1), (1, 4), (3, 1), (3, 3)] {
            let (found, pages, cut) = answers(shards, tombstones, seed);
            assert!(cut > 0, "no page was counted that ended behind tombstones");
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "seed {seed}, {shards} shards, {tombstones}");
            }
            assert!(pages > few + 100 || tombstones > 1, "{pages} pages instead of {few}");
        }
    }
}

#[test]
fn only_a_read_without_pages_is_refused_tombstones() {
    let world = World::new(9, WorldOptions::default());
    let settings = changed(settings(), |query| {
        query.tombstone_page_limit = 20;
        query.tombstone_warn_threshold = 10;
        query.tombstone_failure_threshold = 50;
    });
    let _node = start(&world, 2, settings);
    let address = SocketAddr::new(world.ip("n1"), PORT);
    client(&world, "c1", move |rt| async move {
        let mut remote = Remote::connect(&rt, address).await;
        for text in TABLES {
            remote.query(text).await.unwrap();
        }
        for e in 0..51 {
            if e == 50 {
                // Exactly as many tombstones as the failure threshold allows.
                for text in ["SELECT e FROM ks.t WHERE k = 1", "SELECT e FROM ks.t"] {
                    let got = page(&mut remote, text, None, None).await;
                    let warning = "Read 0 live rows and 50 tombstone cells for query on ks.t (see \
                                   tombstone_warn_threshold)";
                    assert_eq!(got.warnings, [warning]);
                    assert_eq!(got.rows().rows.len(), 0);
                }
            }
            let text = format!("DELETE FROM ks.t WHERE k = 1 AND c = 1 AND e = {e}");
            remote.query(&text).await.unwrap();
        }
        for text in [
            "SELECT e FROM ks.t WHERE k = 1",
            "SELECT e FROM ks.t",
            "SELECT e FROM ks.t WHERE k IN (1, 2) LIMIT 1",
        ] {
            let (code, _) = page(&mut remote, text, None, None).await.error();
            assert_eq!(code, ErrorCode::ReadFailure, "{text}");
            // The same in pages.
            let first = page(&mut remote, text, Some(10), None).await.rows();
            assert!(first.rows.is_empty() && first.paging_state.is_some(), "{text}");
        }
        // Aggregates have one answer and are read in pages.
        for text in ["SELECT count(*) FROM ks.t", "SELECT count(*) FROM ks.t WHERE k = 1"] {
            let got = page(&mut remote, text, None, None).await.rows();
            assert_eq!(got.rows, [[Some(0_i64.to_be_bytes().to_vec())]], "{text}");
        }
    });
}

#[test]
fn a_conditional_statement_warns_of_the_tombstones_of_its_read() {
    for shards in [1, 2] {
        let world = World::new(11, WorldOptions::default());
        let settings = changed(settings(), |query| query.tombstone_warn_threshold = 10);
        let _node = start(&world, shards, settings);
        let address = SocketAddr::new(world.ip("n1"), PORT);
        client(&world, "c1", move |rt| async move {
            let mut remote = Remote::connect(&rt, address).await;
            remote.query(TABLES[0]).await.unwrap();
            let table = "CREATE TABLE ks.m (k int PRIMARY KEY, m map<int, int>, v int)";
            remote.query(table).await.unwrap();
            let mut warnings = async |text: &str| remote.query(text).await.unwrap().warnings;
            for k in [1, 2, 3, 4] {
                for i in 0..10 {
                    warnings(&format!("DELETE m[{i}] FROM ks.m WHERE k = {k}")).await;
                }
                // Exactly as many tombstones as the warning threshold allows.
                let add = format!("UPDATE ks.m SET v = 1 WHERE k = {k} IF v = null");
                assert_eq!(warnings(&add).await, [""; 0]);
                warnings(&format!("DELETE m[10] FROM ks.m WHERE k = {k}")).await;
                let warning = "Read 1 live rows and 11 tombstone cells for query on ks.m (see \
                               tombstone_warn_threshold)";
                for text in [
                    add,
                    format!("UPDATE ks.m SET v = 2 WHERE k = {k} IF EXISTS"),
                    format!("BEGIN BATCH DELETE v FROM ks.m WHERE k = {k} IF v = 7; APPLY BATCH"),
                ] {
                    assert_eq!(warnings(&text).await, [warning], "{text}");
                }
            }
        });
    }
}
