//! Aggregations that shards make of their rows: answers are those of a node with one shard, which makes them of all
//! rows in order, byte by byte, with their pages, warnings and errors.

use super::cluster_of_shards::{Remote, client};
use super::*;
use coordinator::PageLimit;
use rt::NodeSpec;
use rt::sim::SimNode;
use std::cell::RefCell;
use std::net::SocketAddr;

const PORT: u16 = 9042;
const FOLDED: &str = "coordinator_folded_pages_total";

/// Random numbers of a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn any<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A node whose pages between shards end after this many bytes that a filter left out.
fn start(world: &World, shards: u16, left_out: usize) -> SimNode {
    let meshes = Meshes::new(shards);
    let spec = NodeSpec { name: "n1".to_owned(), shards, work_dir: "/n1".to_owned() };
    let address = SocketAddr::new(world.ip("n1"), PORT);
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let meshes = meshes.clone();
            Box::pin(async move {
                let server = node(&rt, settings(), &meshes).await;
                let limit = PageLimit { bytes: 150, left_out, ..PageLimit::default() };
                server.executor().coordinator.local().limit_pages(limit);
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

pub(super) const TABLES: [&str; 3] = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE ks.t (k int, c timestamp, e int, st int static, ti tinyint, i int, b bigint, \
     vi varint, d decimal, f float, x double, s text, l list<int>, PRIMARY KEY (k, c, e)) \
     WITH ID = 11111111-1111-1111-1111-111111111111",
    "CREATE TABLE ks.one (k int PRIMARY KEY, i int, d decimal, s text) \
     WITH ID = 22222222-2222-2222-2222-222222222222",
];

/// Equal decimals in several spellings, sums that overflow and sums that are rounded.
fn write(random: &mut Random) -> String {
    let k = random.below(30);
    let (c, e) = (random.below(5) * 1000, random.below(4));
    let i = random.any(&["1", "2", "-7", "2147483647", "null"]);
    let d = random.any(&["1", "1.0", "1.00", "-2.5", "3.25", "7E+3", "null"]);
    let s = random.any(&["'a'", "'b'", "''", "null"]);
    match random.below(12) {
        0 => format!("INSERT INTO ks.t (k, st) VALUES ({k}, {})", random.below(4)),
        1 => format!("DELETE FROM ks.t WHERE k = {k} AND c = {c}"),
        2 => format!("DELETE FROM ks.t WHERE k = {k}"),
        3 => format!("INSERT INTO ks.one (k, i, d, s) VALUES ({k}, {i}, {d}, {s})"),
        _ => {
            let ti = random.any(&["100", "-100", "3", "null"]);
            let b = random.any(&["9223372036854775807", "5", "-1", "null"]);
            let x = random.any(&["0.1", "1e16", "-1e16", "-0.0", "0.0", "NaN", "null"]);
            let f = random.any(&["0.1", "3.3", "-1e7", "null"]);
            format!(
                "INSERT INTO ks.t (k, c, e, ti, i, b, vi, d, f, x, s, l) VALUES ({k}, {c}, {e}, {ti}, \
                 {i}, {b}, {b}, {d}, {f}, {x}, {s}, [{e}])"
            )
        }
    }
}

fn statement(random: &mut Random) -> String {
    let of_one = random.one_in(6);
    let table = if of_one { "ks.one" } else { "ks.t" };
    let any = |random: &mut Random| match of_one {
        true => random.any(&[
            "count(*)", "min(d)", "max(d)", "sum(i)", "sum(d)", "count(s)", "k", "s", "max(s)",
            "avg(d)",
        ]),
        false => random.any(&[
            "count(*)",
            "count(i)",
            "count(1)",
            "min(d)",
            "max(d)",
            "min(x)",
            "max(x)",
            "min(s)",
            "max(s)",
            "max(l)",
            "min(st)",
            "count(st)",
            "sum(ti)",
            "sum(i)",
            "sum(b)",
            "sum(vi)",
            "sum(d)",
            "avg(ti)",
            "avg(b)",
            "avg(vi)",
            "sum(x)",
            "avg(x)",
            "sum(f)",
            "avg(d)",
            "k",
            "st",
            "e",
            "s",
            "sum(i + ti)",
            "max(writetime(i))",
            "max(token(k))",
            "i + 1",
            "to_json(s)",
            "max(c)",
        ]),
    };
    let count = 1 + random.below(3);
    let items: Vec<_> = (0..count).map(|_| any(random)).collect();
    let mut items = items.join(", ");
    let mut wheres = Vec::new();
    for _ in 0..random.below(3) {
        wheres.push(match (of_one, random.below(6)) {
            (_, 0) => format!("token(k) > {}", random.below(1 << 62) as i64 - (1 << 61)),
            (_, 1) => "i = 2147483647".to_owned(),
            (_, 2) => format!("s = {}", random.any(&["'a'", "'b'", "'none'"])),
            (false, 3) => format!("st = {}", random.below(4)),
            (false, 4) => format!("e >= {}", random.below(4)),
            (false, _) => format!("c <= {}", random.below(5) * 1000),
            (true, _) => format!("d < {}", random.below(4)),
        });
    }
    wheres.sort();
    wheres.dedup_by(|a, b| a.split(' ').next() == b.split(' ').next());
    let group = match (of_one, random.below(7)) {
        (_, 0 | 1) => "",
        (true, _) | (_, 2) => "GROUP BY k",
        (_, 3) => "GROUP BY k, c",
        (_, 4) => "GROUP BY k, c, e",
        (_, 5) => "GROUP BY k, floor(c, 2s)",
        (_, _) => "GROUP BY k, c, e",
    };
    let mut what = "SELECT";
    if group.is_empty() && !items.contains('(') {
        items = format!("count(*), {items}");
    }
    if group == "GROUP BY k"
        && random.one_in(4)
        && !of_one
        && !wheres.iter().any(|w| !w.starts_with("st "))
    {
        (what, items) = ("SELECT DISTINCT", "k, max(st), st".to_owned());
    } else if random.one_in(6) {
        what = "SELECT JSON";
    }
    let mut text = format!("{what} {items} FROM {table}");
    if !wheres.is_empty() {
        text += &format!(" WHERE {}", wheres.join(" AND "));
    }
    text += &format!(" {group}");
    if !group.is_empty() && !what.contains("DISTINCT") && random.one_in(3) {
        text += &format!(" PER PARTITION LIMIT {}", 1 + random.below(3));
    }
    if random.one_in(3) {
        text += &format!(" LIMIT {}", 1 + random.below(20));
    }
    text + " ALLOW FILTERING"
}

/// Returns every page of every statement, in order.
pub(super) async fn answers(remote: &mut Remote, seed: u64) -> Vec<(String, Got)> {
    answers_at(remote, seed, (1, Consistency::One)).await
}

/// The same for this replication factor, with all writes and reads at a level.
pub(super) async fn answers_at(
    remote: &mut Remote,
    seed: u64,
    (factor, level): (u8, Consistency),
) -> Vec<(String, Got)> {
    let mut random = Random(seed);
    for text in TABLES {
        let factor = format!("'replication_factor': {factor}");
        remote.query(&text.replace("'replication_factor': 1", &factor)).await.unwrap();
    }
    for at in 1..=400 {
        let text = write(&mut random);
        let text = match text.starts_with("DELETE") {
            true => text.replace("WHERE", &format!("USING TIMESTAMP {at} WHERE")),
            false => format!("{text} USING TIMESTAMP {at}"),
        };
        let parameters = QueryParameters::new(level);
        remote.ask(&Request::Query { query: &text, parameters }).await.unwrap();
    }
    let mut answers = Vec::new();
    for _ in 0..150 {
        let query = statement(&mut random);
        let sizes = [None, Some(1), Some(3), Some(17), Some(5000)];
        let page_size = sizes[random.below(5) as usize];
        let mut state: Option<Vec<u8>> = None;
        loop {
            let parameters = QueryParameters {
                page_size,
                paging_state: state.as_deref(),
                ..QueryParameters::new(level)
            };
            let got = remote.ask(&Request::Query { query: &query, parameters }).await.unwrap();
            state = match &got.body {
                Body::Rows(rows) => rows.paging_state.clone(),
                _ => None,
            };
            answers.push((format!("{query} by {page_size:?}"), got));
            if state.is_none() {
                break;
            }
        }
    }
    answers
}

/// Returns the answers of a node with this many shards, and the number of pages that its shards
/// folded.
pub(super) fn run_with(shards: u16, seed: u64) -> (Vec<(String, Got)>, u64) {
    let world = World::new(seed, WorldOptions::default());
    let node = start(&world, shards, 300);
    let address = SocketAddr::new(world.ip("n1"), PORT);
    let found = Rc::new(RefCell::new(Vec::new()));
    let into = found.clone();
    client(&world, "c1", move |rt| async move {
        let mut remote = Remote::connect(&rt, address).await;
        *into.borrow_mut() = answers(&mut remote, seed).await;
    });
    (found.take(), folded(&node))
}

fn folded(node: &SimNode) -> u64 {
    match node.telemetry().find(FOLDED).map(|metric| metric.value.clone()) {
        Some(telemetry::Value::Counter(count)) => count,
        other => panic!("{FOLDED}: {other:?}"),
    }
}

#[test]
fn shards_that_aggregate_their_rows_answer_what_one_shard_answers_with_all_rows() {
    let (mut rows, mut errors) = (0, 0);
    for seed in 1..=6 {
        let (expected, of_one) = run_with(1, seed);
        assert_eq!(of_one, 0, "one shard has nobody to share the work with");
        let shards = 2 + seed as u16 % 3;
        let (found, folded) = run_with(shards, seed);
        assert!(folded > 1_000, "seed {seed}: {folded} pages");
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(found, expected, "seed {seed}, {shards} shards");
            match &found.1.body {
                Body::Rows(got) => rows += got.rows.len(),
                _ => errors += 1,
            }
        }
        assert_eq!(found.len(), expected.len());
    }
    assert!(rows > 3_000 && errors < 100, "{rows} rows, {errors} errors");
}

#[test]
fn an_aggregation_of_a_client_that_has_gone_ends_soon() {
    let world = World::new(3, WorldOptions::default());
    let node = start(&world, 3, 1);
    let address = SocketAddr::new(world.ip("n1"), PORT);
    client(&world, "c1", move |rt| async move {
        let mut remote = Remote::connect(&rt, address).await;
        for text in TABLES {
            remote.query(text).await.unwrap();
        }
        for k in 0..8000 {
            let text = format!("INSERT INTO ks.one (k, i) VALUES ({k}, {k})");
            remote.query(&text).await.unwrap();
        }
        let query = "SELECT count(*) FROM ks.one";
        let before = folded(&node);
        let all = remote.query(query).await.unwrap().rows();
        assert_eq!(all.rows, [[Some(8000_i64.to_be_bytes().to_vec())]]);
        let whole = folded(&node) - before;
        assert!(whole > 8000, "{whole} pages");
        // The shards fold the first pages, then the client disconnects.
        let before = folded(&node);
        remote.send(query).await;
        while folded(&node) == before {
            rt.sleep(Duration::from_micros(200)).await;
        }
        drop(remote);
        rt.sleep(Duration::from_secs(60)).await;
        let made = folded(&node) - before;
        assert!(made > 0 && made < whole / 4, "{made} of {whole} pages");
    });
}
