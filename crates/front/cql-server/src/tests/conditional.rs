//! Statements and batches with IF, and serial reads, through connections.

use super::cluster_of_shards::Remote;
use super::several_nodes::{Cluster, KEYSPACE, TABLE, at};
use super::*;
use cql_wire::request::BatchList;
use cql_wire::{Batch, BatchKind, BatchQuery};

/// Whether it was applied, and the columns told.
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
        crate::execute::join_all(writers).await;
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
