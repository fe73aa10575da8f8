//! Statements and batches with IF, and serial reads, through connections.

use super::cluster_of_shards::Remote;
use super::several_nodes::{Cluster, KEYSPACE, TABLE, at};
use super::*;
use cql_wire::request::BatchList;
use cql_wire::{Batch, BatchKind, BatchQuery};

/// Returns the `[applied]` flag and the columns of the answer.
fn told(got: Body) -> (bool, Vec<String>) {
    let Body::Rows(rows) = got else { panic!("expected rows, got {got:?}") };
    let columns = rows.columns.clone().expect("each answer tells its columns");
    assert_eq!(columns[0], "[applied]");
    let applied = rows.rows[0][0] == Some(vec![1]);
    assert!(applied || rows.rows.iter().all(|row| row[0] == Some(vec![0])));
    let rest =
        Rows { rows: rows.rows.iter().map(|row| row[1..].to_vec()).collect(), ..rows.clone() };
    (applied, [vec![columns[1..].join(",")], show(&rest)].concat())
}

fn yes() -> (bool, Vec<String>) {
    (true, vec![String::new(), String::new()])
}

fn no(columns: &str, rows: &[&str]) -> (bool, Vec<String>) {
    let rows = rows.iter().map(|r| (*r).to_owned());
    (false, std::iter::once(columns.to_owned()).chain(rows).collect())
}

#[test]
fn a_node_alone_decides_conditions() {
    for version in [V3, V4, V5] {
        run(move |rt| async move {
            let server = node(&rt, settings(), &Meshes::new(1)).await;
            let mut client = Client::ready(&server, version).await;
            client.with_table().await;
            let insert = "INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'a') IF NOT EXISTS";
            assert_eq!(told(client.must(insert).await.body), yes());
            assert_eq!(told(client.must(insert).await.body), no("k,c,v", &["1 2 a"]));
            let update = "UPDATE ks.t SET v = 'b' WHERE k = 1 AND c = 2 IF v = 'a'";
            assert_eq!(told(client.must(update).await.body), yes());
            assert_eq!(told(client.must(update).await.body), no("v", &["b"]));
            let delete = "DELETE FROM ks.t WHERE k = 1 AND c = 2 IF EXISTS";
            assert_eq!(told(client.must(delete).await.body), yes());
            assert_eq!(told(client.must(delete).await.body), no("", &[""]));
            assert!(client.must("SELECT * FROM ks.t").await.rows().rows.is_empty());
            // A write of nothing, where the condition holds.
            let prepared =
                client.prepare("UPDATE ks.t SET v = ? WHERE k = ? AND c = ? IF v = ?").await;
            assert_eq!(prepared.markers, ["v", "k", "c", "v"]);
            assert!(prepared.columns.is_empty());
            client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'x')").await;
            for (condition, expect) in
                [("y", no("v", &["x"])), ("x", yes()), ("x", no("v", &["z"]))]
            {
                let values: [&[u8]; 4] = [b"z", &int(1), &int(1), condition.as_bytes()];
                let got = client.execute(&prepared, &values).await;
                if let Body::Rows(rows) = &got.body {
                    assert_eq!(rows.new_id, None, "nothing for the client to keep");
                }
                assert_eq!(told(got.body), expect);
            }
        });
    }
}

#[test]
fn batches_are_decided_as_one() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let text = "BEGIN BATCH INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'a') IF NOT EXISTS; \
                    INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'b'); APPLY BATCH";
        assert_eq!(told(client.must(text).await.body), yes());
        assert_eq!(told(client.must(text).await.body), no("k,c,v", &["1 1 a"]));
        let update = client.prepare("UPDATE ks.t SET v = ? WHERE k = 1 AND c = ? IF v = ?").await;
        for expect in [yes(), no("k,c,v", &["1 1 x", "1 2 y"])] {
            let mut list = BatchList::new();
            let first = value_list(&[b"x", &int(1), b"a"]);
            list.push(BatchQuery::Prepared(&update.id), first.values()).unwrap();
            let second = value_list(&[b"y", &int(2), b"b"]);
            list.push(BatchQuery::Prepared(&update.id), second.values()).unwrap();
            let none = ValueList::new();
            let plain = "INSERT INTO ks.t (k, c, v) VALUES (1, 3, 'z')";
            list.push(BatchQuery::Text(plain), none.values()).unwrap();
            let parameters = QueryParameters::new(Consistency::One);
            let kind = BatchKind::Logged;
            let request = Request::Batch(Batch { kind, statements: list.statements(), parameters });
            assert_eq!(told(client.ask(&request).await.body), expect);
        }
        let rows = client.must("SELECT c, v FROM ks.t WHERE k = 1").await.rows();
        assert_eq!(show(&rows), ["1 x", "2 y", "3 z"]);
    });
}

#[test]
fn levels_of_conditional_writes_are_checked() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let query = "INSERT INTO ks.t (k, c) VALUES (1, 1) IF NOT EXISTS";
        let mut ask = async |commit, serial| {
            let parameters =
                QueryParameters { serial_consistency: serial, ..QueryParameters::new(commit) };
            client.ask(&Request::Query { query, parameters }).await
        };
        let (_, message) = ask(Consistency::One, Some(Consistency::Quorum)).await.error();
        assert_eq!(
            message,
            "Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL"
        );
        let (_, message) = ask(Consistency::Serial, None).await.error();
        assert!(message.starts_with(
            "SERIAL is not supported as conditional update commit consistency. Use ANY"
        ));
        let any = ask(Consistency::Any, Some(Consistency::LocalSerial)).await;
        assert_eq!(told(any.body), yes());
        for level in [Consistency::Serial, Consistency::LocalSerial] {
            let mut read = async |query| {
                let parameters = QueryParameters::new(level);
                client.ask(&Request::Query { query, parameters }).await
            };
            let rows = read("SELECT c FROM ks.t WHERE k = 1").await.rows();
            assert_eq!(show(&rows), ["1"]);
            assert_eq!(read("SELECT c FROM ks.t").await.rows().rows.len(), 1);
            let (_, message) = read("SELECT c FROM ks.t WHERE k IN (1, 2)").await.error();
            assert_eq!(
                message,
                "SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time"
            );
            assert_eq!(read("SELECT key FROM system.local").await.rows().rows.len(), 0);
        }
    });
}

#[test]
fn what_makes_no_sense_is_told_and_writes_nothing() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        client.with_table().await;
        client.must("CREATE TABLE ks.l (k int PRIMARY KEY, l list<int>)").await;
        client.must("INSERT INTO ks.l (k, l) VALUES (1, [1, 2])").await;
        for (query, expect) in [
            (
                "UPDATE ks.l SET l[7] = 1 WHERE k = 1 IF l[0] = 1",
                "List index 7 out of bound, list has size 2",
            ),
            (
                "UPDATE ks.l SET l = [] WHERE k = 1 IF l > null",
                "Invalid comparison with null for operator \">\"",
            ),
            (
                "UPDATE ks.l USING TTL 700000000 SET l = [1] WHERE k = 1 IF EXISTS",
                "ttl is too large. requested (700000000) maximum (630720000)",
            ),
        ] {
            let (code, message) = client.query(query).await.error();
            assert_eq!((code, message.as_str()), (ErrorCode::Invalid, expect));
        }
        let update = "UPDATE ks.l SET l[1] = 9, l = l + [3] WHERE k = 1 IF l CONTAINS 2";
        assert!(told(client.must(update).await.body).0);
        let rows = client.must("SELECT l FROM ks.l WHERE k = 1").await.rows();
        let list: Vec<u8> = [3, 4, 1, 4, 9, 4, 3].iter().flat_map(|n| int(*n)).collect();
        assert_eq!(rows.rows, [[Some(list)]]);
    });
}

/// Adds one to a row until it worked so often; every success counts once.
async fn count_up(remote: &mut Remote, times: i32) {
    let mut done = 0;
    while done < times {
        let read = "SELECT v FROM ks.t WHERE k = 1 AND c = 1";
        let Body::Rows(rows) = at(remote, Consistency::Serial, read).await else {
            continue;
        };
        let current: i32 = show(&rows)[0].parse().unwrap();
        let next = current + 1;
        let write =
            format!("UPDATE ks.t SET v = '{next}' WHERE k = 1 AND c = 1 IF v = '{current}'");
        match at(remote, Consistency::Quorum, &write).await {
            answer @ Body::Rows(_) => done += i32::from(told(answer).0),
            // Contention: tried again, and without effect.
            Body::Error(ErrorCode::WriteTimeout, _) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn writers_at_all_nodes_lose_no_update() {
    let cluster = Cluster::start(31);
    cluster.run("c1", |rt, nodes| async move {
        let mut first = Remote::connect(&rt, nodes[0]).await;
        first.query(KEYSPACE).await.unwrap();
        first.query(TABLE).await.unwrap();
        let insert = "INSERT INTO ks.t (k, c, v) VALUES (1, 1, '0') IF NOT EXISTS";
        assert!(told(at(&mut first, Consistency::Quorum, insert).await).0);
        let writers: Vec<_> = nodes
            .iter()
            .map(|node| {
                let (rt, node) = (rt.clone(), *node);
                async move { count_up(&mut Remote::connect(&rt, node).await, 5).await }
            })
            .collect();
        join_all(writers).await;
        for node in &nodes {
            let mut remote = Remote::connect(&rt, *node).await;
            let read = "SELECT v FROM ks.t WHERE k = 1 AND c = 1";
            for level in [Consistency::Serial, Consistency::Quorum] {
                let Body::Rows(rows) = at(&mut remote, level, read).await else { panic!() };
                assert_eq!(show(&rows), ["15"]);
            }
        }
    });
    cluster.kill(3);
    cluster.run("c2", |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[1]).await;
        let write = "UPDATE ks.t SET v = 'end' WHERE k = 1 AND c = 1 IF v = '15'";
        assert_eq!(told(at(&mut remote, Consistency::Quorum, write).await), yes());
        assert_eq!(told(at(&mut remote, Consistency::Quorum, write).await), no("v", &["end"]));
    });
    cluster.kill(2);
    cluster.run("c3", |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        let write = "UPDATE ks.t SET v = 'x' WHERE k = 1 AND c = 1 IF v = 'end'";
        let text = "Cannot achieve consistency level SERIAL".to_owned();
        let unavailable = Body::Error(ErrorCode::Unavailable, text);
        assert_eq!(at(&mut remote, Consistency::One, write).await, unavailable);
        let read = "SELECT v FROM ks.t WHERE k = 1";
        assert_eq!(at(&mut remote, Consistency::Serial, read).await, unavailable);
    });
}

/// A counter of a node.
fn count_of(cluster: &Cluster, n: u8, name: &str) -> u64 {
    let snapshot = cluster.telemetry(n).snapshot();
    match &snapshot.find(name).unwrap_or_else(|| panic!("no metric {name}")).value {
        telemetry::Value::Counter(count) => *count,
        other => panic!("{name}: {other:?}"),
    }
}

fn count_all(cluster: &Cluster, name: &str) -> u64 {
    (1..=3).map(|n| count_of(cluster, n, name)).sum()
}

/// The table, and one row to compare and set.
fn with_row(cluster: &Cluster) {
    cluster.run("c0", |rt, nodes| async move {
        let mut first = Remote::connect(&rt, nodes[0]).await;
        first.query(KEYSPACE).await.unwrap();
        first.query(TABLE).await.unwrap();
        let insert = "INSERT INTO ks.t (k, c, v) VALUES (1, 1, '0') IF NOT EXISTS";
        assert!(told(at(&mut first, Consistency::Quorum, insert).await).0);
    });
}

/// The node that proposes for k = 1: its token is -4069959284402364209, the nodes' are -2^62, 0 and
/// 2^62, rounded.
const PROPOSES: u8 = 2;

#[test]
fn a_contended_key_is_one_queue_whichever_nodes_are_asked() {
    let cluster = Cluster::start(33);
    with_row(&cluster);
    let rounds = count_all(&cluster, "coordinator_cas_rounds_total");
    cluster.run("c1", |rt, nodes| async move {
        let writers: Vec<_> = (0..24)
            .map(|n| {
                let (rt, node) = (rt.clone(), nodes[n % 3]);
                async move { count_up(&mut Remote::connect(&rt, node).await, 2).await }
            })
            .collect();
        join_all(writers).await;
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        let read = "SELECT v FROM ks.t WHERE k = 1 AND c = 1";
        let Body::Rows(rows) = at(&mut remote, Consistency::Serial, read).await else { panic!() };
        assert_eq!(show(&rows), ["48"]);
    });
    // No write was overtaken and nothing is uncertain. Reads that have their turn together run as tasks of
    // any order here.
    let overtaken = count_all(&cluster, "coordinator_cas_read_contentions_total");
    assert_eq!(count_all(&cluster, "coordinator_cas_contentions_total"), overtaken);
    assert_eq!(count_all(&cluster, "coordinator_cas_unknown_total"), 0);
    let writes = count_all(&cluster, "coordinator_cas_writes_total");
    let reads = count_all(&cluster, "coordinator_cas_reads_total");
    let rounds = count_all(&cluster, "coordinator_cas_rounds_total") - rounds;
    assert!(overtaken * 10 <= reads, "{overtaken} of {reads} reads overtaken");
    let least = writes + reads + overtaken;
    assert!(rounds <= least, "{rounds} rounds for {writes} writes and {reads} reads");
    for n in 1..=3 {
        let began = count_of(&cluster, n, "coordinator_cas_writes_total");
        assert_eq!(began > 0, n == PROPOSES, "node {n} began {began} writes");
        let forwarded = count_of(&cluster, n, "coordinator_cas_forwards_total");
        assert_eq!(forwarded > 0, n != PROPOSES, "node {n} forwarded {forwarded}");
    }
}

#[test]
fn a_forwarded_statement_is_answered_as_by_the_node_that_was_asked() {
    for version in [V3, V4, V5] {
        let cluster = Cluster::start(34);
        with_row(&cluster);
        cluster.run("c1", move |rt, nodes| async move {
            // First the answer of the proposing node, then the one that another node passes on.
            let mut answers = Vec::new();
            for node in [nodes[1], nodes[0]] {
                let mut remote = Remote::connect_as(&rt, node, version).await;
                let mut told_all = Vec::new();
                for (serial, query) in [
                    (None, "UPDATE ks.t SET v = '0' WHERE k = 1 AND c = 1 IF v = '0'"),
                    (None, "UPDATE ks.t SET v = 'x' WHERE k = 1 AND c = 1 IF v = 'y'"),
                    (None, "DELETE FROM ks.t WHERE k = 1 AND c = 7 IF EXISTS"),
                    (Some(Consistency::LocalSerial), "SELECT * FROM ks.t WHERE k = 1"),
                    (Some(Consistency::Serial), "SELECT v FROM ks.t WHERE k = 1 AND c = 2"),
                    // Refused only when the list is looked at.
                    (None, "UPDATE ks.t SET l[7] = 1 WHERE k = 1 AND c = 1 IF v = '0'"),
                ] {
                    told_all
                        .push(at(&mut remote, serial.unwrap_or(Consistency::Quorum), query).await);
                }
                answers.push(told_all);
            }
            assert_eq!(answers[0], answers[1]);
            assert!(matches!(answers[0][5], Body::Error(ErrorCode::Invalid, _)), "{answers:?}");
        });
        assert!(count_of(&cluster, 1, "coordinator_cas_forwards_total") >= 6);
        assert_eq!(count_of(&cluster, 2, "coordinator_cas_forwards_total"), 0);
    }
}

#[test]
fn a_function_in_the_key_is_evaluated_once_by_the_node_that_was_asked() {
    let cluster = Cluster::start(37);
    with_row(&cluster);
    cluster.run("c1", |rt, nodes| async move {
        let mut remote = Remote::connect_as(&rt, nodes[0], V5).await;
        let create = "CREATE TABLE ks.e (k uuid, c timeuuid, o uuid, PRIMARY KEY (k, c))";
        at(&mut remote, Consistency::One, create).await;
        let insert = "INSERT INTO ks.e (k, c, o) VALUES (uuid(), now(), uuid()) IF NOT EXISTS";
        let batch = format!("BEGIN BATCH {insert} APPLY BATCH");
        for _ in 0..8 {
            assert_eq!(told(at(&mut remote, Consistency::Quorum, insert).await), yes());
            assert_eq!(told(at(&mut remote, Consistency::Quorum, &batch).await), yes());
        }
        let prepared = "INSERT INTO ks.e (k, c, o) VALUES (uuid(), now(), ?) IF NOT EXISTS";
        let prepared = remote.prepare(prepared).await;
        for n in 0..8 {
            let values: [&[u8]; 1] = [&[n; 16]];
            let got = remote.execute(&prepared, &values, Consistency::Quorum, None).await;
            assert_eq!(told(got.body), yes());
        }
        let count = "SELECT count(*) FROM ks.e";
        let Body::Rows(rows) = at(&mut remote, Consistency::All, count).await else { panic!() };
        assert_eq!(rows.rows[0][0], Some(24_i64.to_be_bytes().to_vec()));
    });
    // Some were forwarded, with the key that their coordinator was chosen by.
    assert!(count_of(&cluster, 1, "coordinator_cas_forwards_total") > 0);
}

#[test]
fn a_clustering_that_no_file_can_hold_is_refused_before_it_is_proposed() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        client.with_table().await;
        client.must("CREATE TABLE ks.lc (k int, c text, v int, PRIMARY KEY (k, c))").await;
        let long = "x".repeat(65_536);
        for query in [
            format!("INSERT INTO ks.lc (k, c) VALUES (1, '{long}')"),
            format!("INSERT INTO ks.lc (k, c) VALUES (1, '{long}') IF NOT EXISTS"),
            format!("UPDATE ks.lc SET v = 1 WHERE k = 1 AND c = '{long}' IF EXISTS"),
            format!("DELETE FROM ks.lc WHERE k = 1 AND c > '{long}'"),
        ] {
            let Body::Error(code, text) = client.query(&query).await.body else { panic!() };
            let told = "Key length of 65536 is longer than maximum of 65535";
            assert_eq!((code, text.as_str()), (ErrorCode::Invalid, told));
        }
        client.must(&format!("INSERT INTO ks.lc (k, c) VALUES (1, '{}')", &long[1..])).await;
    });
}

#[test]
fn prepared_statements_batches_and_pages_are_forwarded_whole() {
    let cluster = Cluster::start(35);
    with_row(&cluster);
    cluster.run("c1", |rt, nodes| async move {
        let mut remote = Remote::connect_as(&rt, nodes[2], V5).await;
        let insert = "INSERT INTO ks.t (k, c, v) VALUES (?, ?, ?) IF NOT EXISTS";
        let insert = remote.prepare(insert).await;
        for c in 2..=5 {
            let values: [&[u8]; 3] = [&int(1), &int(c), b"w"];
            for expect in [yes(), no("k,c,v,l,s", &[&format!("1 {c} w null null")])] {
                let got = remote.execute(&insert, &values, Consistency::Quorum, None).await;
                let (applied, rows) = told(got.body);
                assert_eq!(applied, expect.0);
                assert_eq!(applied, rows[1].is_empty(), "{rows:?}");
            }
        }
        let select = remote.prepare("SELECT c FROM ks.t WHERE k = ?").await;
        let mut state = None;
        let mut pages = Vec::new();
        loop {
            let values: [&[u8]; 1] = [&int(1)];
            let got = remote.execute(&select, &values, Consistency::Serial, state.as_deref()).await;
            let Body::Rows(rows) = got.body else { panic!("{:?}", got.body) };
            pages.push(show(&rows).join(","));
            state = rows.paging_state.clone();
            if state.is_none() {
                break;
            }
        }
        assert_eq!(pages, ["1,2", "3,4", "5"]);
        // A batch message of a prepared statement and a text without condition.
        let update = remote.prepare("UPDATE ks.t SET v = ? WHERE k = 1 AND c = ? IF v = ?").await;
        for expect in [true, false] {
            let mut list = BatchList::new();
            let first = value_list(&[b"x", &int(2), b"w"]);
            list.push(BatchQuery::Prepared(&update.id), first.values()).unwrap();
            let plain = value_list(&[&int(9)]);
            let text = "INSERT INTO ks.t (k, c, v) VALUES (1, ?, 'z')";
            list.push(BatchQuery::Text(text), plain.values()).unwrap();
            let parameters = QueryParameters::new(Consistency::Quorum);
            let kind = BatchKind::Logged;
            let request = Request::Batch(Batch { kind, statements: list.statements(), parameters });
            assert_eq!(told(remote.ask(&request).await.unwrap().body).0, expect);
        }
        let read = "SELECT c, v FROM ks.t WHERE k = 1 AND c IN (2, 9)";
        let Body::Rows(rows) = at(&mut remote, Consistency::Quorum, read).await else { panic!() };
        assert_eq!(show(&rows), ["2 x", "9 z"]);
    });
    assert!(count_of(&cluster, 3, "coordinator_cas_forwards_total") >= 13);
    assert_eq!(count_of(&cluster, 3, "coordinator_cas_writes_total"), 0);
}

#[test]
fn a_lost_answer_is_unknown_and_an_unreachable_proposer_is_replaced() {
    let cluster = Cluster::start(36);
    with_row(&cluster);
    cluster.partition("n1", "n2");
    cluster.run("c1", |rt, nodes| async move {
        // Older versions have no code for it.
        let mut remote = Remote::connect_as(&rt, nodes[0], V5).await;
        let write = "UPDATE ks.t SET v = '1' WHERE k = 1 AND c = 1 IF v = '0'";
        let Body::Error(code, text) = at(&mut remote, Consistency::Quorum, write).await else {
            panic!("nobody can know")
        };
        let expect = "CAS operation result is unknown - proposal accepted by 0 but not a quorum.";
        assert_eq!((code, text.as_str()), (ErrorCode::CasWriteUnknown, expect));
        let read = "SELECT v FROM ks.t WHERE k = 1 AND c = 1";
        // The silent node is left out: another one is asked, and again once the connection has
        // ended.
        let Body::Rows(_) = at(&mut remote, Consistency::Serial, read).await else {
            panic!("there are others")
        };
        rt.sleep(Duration::from_secs(10)).await;
        let Body::Rows(rows) = at(&mut remote, Consistency::Serial, read).await else { panic!() };
        let v = show(&rows)[0].clone();
        let write = format!("UPDATE ks.t SET v = '2' WHERE k = 1 AND c = 1 IF v = '{v}'");
        assert_eq!(told(at(&mut remote, Consistency::Quorum, &write).await), yes());
    });
    assert_eq!(count_of(&cluster, 1, "coordinator_cas_writes_total"), 0, "node 3 is the next");
    assert!(count_of(&cluster, 3, "coordinator_cas_writes_total") > 0);
}

#[test]
fn prepared_conditional_statements_are_marked_for_clients_that_ask() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut plain = Client::ready(&server, V4).await;
        plain.with_table().await;
        let mut asking = Client::new(&server, V4);
        let mark = (cql_wire::scylla::LWT_ADD_METADATA_MARK, "");
        assert_eq!(asking.startup(&[mark]).await.body, Body::Ready);
        for (text, is_conditional) in [
            ("INSERT INTO ks.t (k, c) VALUES (?, ?)", false),
            ("INSERT INTO ks.t (k, c) VALUES (?, ?) IF NOT EXISTS", true),
            ("BEGIN BATCH DELETE FROM ks.t WHERE k = ? AND c = ? IF EXISTS; APPLY BATCH", true),
        ] {
            assert_eq!(asking.prepare(text).await.is_marked, is_conditional, "{text}");
            assert!(!plain.prepare(text).await.is_marked, "{text}");
        }
    });
}

#[test]
fn clients_with_scyllas_mark_are_told_what_was_there_before() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut plain = Client::ready(&server, V4).await;
        plain.with_table().await;
        let mut client = Client::new(&server, V4);
        let mark = (cql_wire::scylla::LWT_ADD_METADATA_MARK, "");
        assert_eq!(client.startup(&[mark]).await.body, Body::Ready);
        let was = |applied, columns: &str, rows: &[&str]| (applied, no(columns, rows).1);
        let insert = "INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'a') IF NOT EXISTS";
        for (query, expect) in [
            (insert, was(true, "k,c,v", &["null null null"])),
            (insert, was(false, "k,c,v", &["1 2 a"])),
            ("UPDATE ks.t SET v = 'b' WHERE k = 1 AND c = 2 IF v = 'a'", was(true, "v", &["a"])),
            ("UPDATE ks.t SET v = 'c' WHERE k = 1 AND c = 2 IF v = 'a'", was(false, "v", &["b"])),
            (
                "UPDATE ks.t SET v = 'c' WHERE k = 1 AND c = 3 IF v = null",
                was(true, "v", &["null"]),
            ),
            // One row for each statement in their order, of nulls where there is no condition.
            (
                "BEGIN BATCH UPDATE ks.t SET v = 'd' WHERE k = 1 AND c = 3 IF v = 'c'; INSERT \
                 INTO ks.t (k, c, v) VALUES (1, 4, 'x'); UPDATE ks.t SET v = 'e' WHERE k = 1 AND \
                 c = 2 IF v = 'b'; APPLY BATCH",
                was(true, "k,c,v", &["1 3 c", "null null null", "1 2 b"]),
            ),
            (
                "BEGIN BATCH INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'x'); DELETE FROM ks.t WHERE k \
                 = 1 AND c > 7; UPDATE ks.t SET v = 'z' WHERE k = 1 AND c = 2 IF v = 'z'; APPLY \
                 BATCH",
                was(false, "k,c,v", &["null null null", "null null null", "1 2 e"]),
            ),
            (
                "BEGIN BATCH DELETE FROM ks.t WHERE k = 1 AND c = 9 IF EXISTS; UPDATE ks.t SET v \
                 = 'y' WHERE k = 1 AND c = 2 IF v = 'y'; APPLY BATCH",
                was(false, "k,c,v", &["null null null", "1 2 e"]),
            ),
            ("DELETE FROM ks.t WHERE k = 1 AND c = 4 IF EXISTS", was(true, "k,c,v", &["1 4 x"])),
        ] {
            assert_eq!(told(client.must(query).await.body), expect, "{query}");
        }
        // Other clients get the same answers as from Cassandra.
        let update = "UPDATE ks.t SET v = 'f' WHERE k = 1 AND c = 2 IF v = 'e'";
        assert_eq!(told(plain.must(update).await.body), yes());
        assert_eq!(told(plain.must(update).await.body), no("v", &["f"]));
    });
}
