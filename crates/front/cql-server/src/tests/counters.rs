//! Tables with counters: on one node, over restarts.

use super::*;
use cql_wire::request::BatchList;
use cql_wire::{Batch, BatchKind, BatchQuery};

const TABLE: &str = "CREATE TABLE ks.n (k int, c int, s counter static, a counter, b counter, \
                     PRIMARY KEY (k, c))";

async fn with_counters(client: &mut Client) {
    client.with_table().await;
    client.must(TABLE).await;
}

/// Rows whose cells are counters and ints.
fn counts(rows: &Rows) -> Vec<String> {
    let show = |cell: &Option<Vec<u8>>| match cell.as_deref() {
        None => "null".to_owned(),
        Some(bytes) => match (<[u8; 8]>::try_from(bytes), <[u8; 4]>::try_from(bytes)) {
            (Ok(long), _) => i64::from_be_bytes(long).to_string(),
            (_, Ok(int)) => i32::from_be_bytes(int).to_string(),
            _ => String::from_utf8_lossy(bytes).into_owned(),
        },
    };
    rows.rows.iter().map(|r| r.iter().map(show).collect::<Vec<_>>().join(" ")).collect()
}

async fn check(client: &mut Client, text: &str, expect: &[&str]) {
    let rows = client.must(text).await.rows();
    assert_eq!(counts(&rows), expect, "{text}");
}

#[test]
fn increments_add_up_on_one_node() {
    for version in [V3, V5] {
        run(move |rt| async move {
            let server = node(&rt, settings(), &Meshes::new(1)).await;
            let mut client = Client::ready(&server, version).await;
            with_counters(&mut client).await;
            client.must("UPDATE ks.n SET a = a + 5 WHERE k = 1 AND c = 1").await;
            client.must("UPDATE ks.n SET a = a - 2, b = b + 1 WHERE k = 1 AND c = 1").await;
            client.must("UPDATE ks.n SET a = a + 7, a = a - 3 WHERE k = 1 AND c = 2").await;
            client.must("UPDATE ks.n SET s = s + 10 WHERE k = 1").await;
            client.must("UPDATE ks.n SET s += 1, b -= 4 WHERE k = 1 AND c = 2").await;
            check(&mut client, "SELECT * FROM ks.n WHERE k = 1", &["1 1 11 3 1", "1 2 11 4 -4"])
                .await;
            let add = client.prepare("UPDATE ks.n SET a = a + ? WHERE k = ? AND c = ?").await;
            for n in 0..20_i64 {
                let got = client.execute(&add, &[&n.to_be_bytes(), &int(2), &int(0)]).await;
                assert_eq!(got.body, Body::Void);
            }
            check(&mut client, "SELECT a FROM ks.n WHERE k = 2 AND c = 0", &["190"]).await;
            let sums = "SELECT sum(a), max(a), min(b), count(b), avg(a) FROM ks.n WHERE k = 1";
            check(&mut client, sums, &["7 4 -4 2 3"]).await;
            let text = "SELECT JSON c, a FROM ks.n WHERE k = 1";
            check(&mut client, text, &["{\"c\": 1, \"a\": 3}", "{\"c\": 2, \"a\": 4}"]).await;
            let text = "SELECT c FROM ks.n WHERE a = 4 ALLOW FILTERING";
            check(&mut client, text, &["2"]).await;
            let text = "SELECT c FROM ks.n WHERE k = 1 AND s > 10 AND b < 0 ALLOW FILTERING";
            check(&mut client, text, &["2"]).await;
        });
    }
}

#[test]
fn a_traced_increment_says_what_is_read_and_written() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        with_counters(&mut client).await;
        let parameters = QueryParameters::new(Consistency::One);
        let query = "UPDATE ks.n SET a = a + 5, s = s + 1 WHERE k = 1 AND c = 1";
        let request = Request::Query { query, parameters };
        let options = RequestOptions { stream: 9, tracing: true, ..Default::default() };
        let bytes = client.encode(&options, &request);
        client.connection.feed(&bytes);
        let id = client.receive().await.tracing.unwrap();
        let events = format!("SELECT activity FROM system_traces.events WHERE session_id = {id}");
        let events = show(&client.must(&events).await.rows());
        let mut found = events.iter();
        for step in [
            "Determining replicas for mutation",
            "Acquiring counter locks",
            "Reading 2 counter values from the CF",
            "Executing single-partition query on n",
            "Merged data from memtables and 0 sstables",
            "Appending to commitlog",
            "Adding to n memtable",
        ] {
            assert!(found.any(|event| event == step), "{step}: {events:?}");
        }
    });
}

#[test]
fn batches_of_counters_are_one_update_per_partition() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        with_counters(&mut client).await;
        let updates = "UPDATE ks.n SET a = a + 1 WHERE k = 1 AND c = 1; UPDATE ks.n SET a = a + 2, \
                       s = s + 5 WHERE k = 1 AND c = 1; UPDATE ks.n SET a = a - 4 WHERE k = 2 AND \
                       c = 1; APPLY BATCH";
        client.must(&format!("BEGIN COUNTER BATCH {updates}")).await;
        client.must(&format!("BEGIN UNLOGGED BATCH {updates}")).await;
        check(&mut client, "SELECT k, s, a FROM ks.n", &["1 10 6", "2 null -8"]).await;
        let add = client.prepare("UPDATE ks.n SET a = a + ? WHERE k = ? AND c = 1").await;
        for kind in [BatchKind::Counter, BatchKind::Unlogged] {
            let mut list = BatchList::new();
            for k in [1, 1, 2] {
                let values = value_list(&[&100_i64.to_be_bytes(), &int(k)]);
                list.push(BatchQuery::Prepared(&add.id), values.values()).unwrap();
            }
            let parameters = QueryParameters::new(Consistency::One);
            let batch = Batch { kind, statements: list.statements(), parameters };
            assert_eq!(client.ask(&Request::Batch(batch)).await.body, Body::Void);
        }
        check(&mut client, "SELECT k, a FROM ks.n", &["1 406", "2 192"]).await;
        for (kind, text) in [
            ("BEGIN BATCH", "Cannot include a counter statement in a logged batch"),
            (
                "BEGIN COUNTER BATCH USING TIMESTAMP 5",
                "Cannot provide custom timestamp for counter BATCH",
            ),
            (
                "BEGIN UNLOGGED BATCH USING TIMESTAMP 5",
                "Cannot provide custom timestamp for a BATCH containing counters",
            ),
            (
                "BEGIN UNLOGGED BATCH INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'x');",
                "Counter and non-counter mutations cannot exist in the same batch",
            ),
            (
                "BEGIN COUNTER BATCH INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'x');",
                "Cannot include non-counter statement in a counter batch",
            ),
        ] {
            let got = client.query(&format!("{kind} {updates}")).await.error();
            assert_eq!(got, (ErrorCode::Invalid, text.to_owned()));
        }
        check(&mut client, "SELECT k, a FROM ks.n", &["1 406", "2 192"]).await;
    });
}

#[test]
fn a_deleted_counter_is_gone() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        with_counters(&mut client).await;
        for c in 1..=4 {
            let text = format!("UPDATE ks.n SET a = a + 5, b = b + 7 WHERE k = 1 AND c = {c}");
            client.must(&text).await;
        }
        client.must("UPDATE ks.n SET s = s + 3 WHERE k = 1").await;
        client.must("DELETE a FROM ks.n WHERE k = 1 AND c = 1").await;
        client.must("DELETE FROM ks.n WHERE k = 1 AND c = 2").await;
        client.must("DELETE FROM ks.n WHERE k = 1 AND c > 3").await;
        client.must("DELETE s FROM ks.n WHERE k = 1").await;
        check(&mut client, "SELECT c, s, a, b FROM ks.n", &["1 null null 7", "3 null 5 7"]).await;
        // Like in Cassandra, a deleted cell stays deleted, and a deleted row begins at 0.
        client.must("UPDATE ks.n SET a = a + 1 WHERE k = 1 AND c = 1").await;
        client.must("UPDATE ks.n SET a = a + 1 WHERE k = 1 AND c = 2").await;
        check(&mut client, "SELECT c, a FROM ks.n", &["1 null", "2 1", "3 5"]).await;
        client.must("DELETE FROM ks.n WHERE k = 1").await;
        check(&mut client, "SELECT c, a FROM ks.n", &[]).await;
        client.must("UPDATE ks.n SET a = a + 9 WHERE k = 1 AND c = 7").await;
        check(&mut client, "SELECT c, a FROM ks.n", &["7 9"]).await;
        client.must("TRUNCATE ks.n").await;
        client.must("UPDATE ks.n SET a = a + 2 WHERE k = 1 AND c = 7").await;
        check(&mut client, "SELECT c, a FROM ks.n", &["7 2"]).await;
    });
}

#[test]
fn counts_survive_flushes_compaction_and_restarts() {
    run(|rt| async move {
        let meshes = Meshes::new(1);
        let server = node(&rt, settings(), &meshes).await;
        let mut client = Client::ready(&server, V5).await;
        with_counters(&mut client).await;
        let mut expected = 0;
        for round in 1..=6 {
            for n in 1..=5 {
                let text = format!("UPDATE ks.n SET a = a + {n}, s = s - 1 WHERE k = 1 AND c = 1");
                client.must(&text).await;
                expected += n;
            }
            let shown = format!("{expected} {}", -5 * round);
            check(&mut client, "SELECT a, s FROM ks.n WHERE k = 1", &[shown.as_str()]).await;
            let store = server.executor().coordinator.store().clone();
            if round != 4 {
                store.flush(None).await.unwrap();
            }
            check(&mut client, "SELECT a, s FROM ks.n WHERE k = 1", &[shown.as_str()]).await;
        }
        let inner = server.inner().clone();
        inner.query.coordinator.stop().await;
        inner.query.coordinator.store().stop().await;
        drop((client, server, inner));
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        client.must("UPDATE ks.n SET a = a + 1000 WHERE k = 1 AND c = 1").await;
        let shown = format!("{} -30", expected + 1000);
        check(&mut client, "SELECT a, s FROM ks.n WHERE k = 1", &[shown.as_str()]).await;
    });
}

#[test]
fn many_clients_may_add_to_one_counter_at_once() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        with_counters(&mut client).await;
        server.executor().coordinator.store().flush(None).await.unwrap();
        let gate = rt.gate("clients");
        for n in 0..20_i64 {
            let server = server.clone();
            let task = async move {
                let mut client = Client::ready(&server, V5).await;
                for _ in 0..10 {
                    let text = format!("UPDATE ks.n SET a = a + {n} WHERE k = 1 AND c = 1");
                    client.must(&text).await;
                }
                if n == 7 {
                    server.executor().coordinator.store().flush(None).await.unwrap();
                }
            };
            gate.spawn(&rt, rt::Group::Statement, "client", task).unwrap();
        }
        gate.close().await;
        check(&mut client, "SELECT a FROM ks.n WHERE k = 1", &["1900"]).await;
    });
}

#[test]
fn what_counters_cannot_do_is_refused_in_cassandras_words() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        with_counters(&mut client).await;
        for (text, message) in [
            (
                "INSERT INTO ks.n (k, c, a) VALUES (1, 1, 1)",
                "INSERT statements are not allowed on counter tables, use UPDATE instead",
            ),
            (
                "INSERT INTO ks.n JSON '{\"k\": 1, \"c\": 1, \"a\": 1}'",
                "INSERT statements are not allowed on counter tables, use UPDATE instead",
            ),
            (
                "UPDATE ks.n SET a = 5 WHERE k = 1 AND c = 1",
                "Cannot set the value of counter column a (counters can only be \
                 incremented/decremented, not set)",
            ),
            (
                "UPDATE ks.n SET a = null WHERE k = 1 AND c = 1",
                "Invalid null value for counter increment/decrement",
            ),
            (
                "UPDATE ks.n USING TIMESTAMP 5 SET a = a + 1 WHERE k = 1 AND c = 1",
                "Cannot provide custom timestamp for counter updates",
            ),
            (
                "UPDATE ks.n USING TTL 5 SET a = a + 1 WHERE k = 1 AND c = 1",
                "Cannot provide custom TTL for counter updates",
            ),
            (
                "DELETE FROM ks.n USING TIMESTAMP 5 WHERE k = 1",
                "Cannot provide custom timestamp for counter updates",
            ),
            (
                "UPDATE ks.n SET a = a + 1 WHERE k = 1 AND c = 1 IF a = 1",
                "Conditions on counters are not supported",
            ),
            (
                "UPDATE ks.n SET a = a + 1 WHERE k = 1 AND c = 1 IF EXISTS",
                "Conditional updates are not supported on counter tables",
            ),
            (
                "UPDATE ks.n SET a = a - -9223372036854775808 WHERE k = 1 AND c = 1",
                "The negation of -9223372036854775808 overflows supported counter precision \
                 (signed 8 bytes integer)",
            ),
            (
                "CREATE TABLE ks.x (k int PRIMARY KEY, a counter, b int)",
                "Cannot mix counter and non counter columns in the same table",
            ),
            (
                "CREATE TABLE ks.x (k int PRIMARY KEY, a counter) WITH default_time_to_live = 5",
                "Cannot set default_time_to_live on a table with counters",
            ),
            (
                "ALTER TABLE ks.n WITH default_time_to_live = 5",
                "Cannot set default_time_to_live on a table with counters",
            ),
        ] {
            let got = client.query(text).await.error();
            assert_eq!(got, (ErrorCode::Invalid, message.to_owned()), "{text}");
        }
        let mut at = async |consistency, text: &str| {
            let parameters = QueryParameters::new(consistency);
            client.ask(&Request::Query { query: text, parameters }).await.error().1
        };
        let update = "UPDATE ks.n SET a = a + 1 WHERE k = 1 AND c = 1";
        assert_eq!(
            at(Consistency::Any, update).await,
            "Consistency level ANY is not yet supported for counter table n"
        );
        assert_eq!(
            at(Consistency::Serial, update).await,
            "Counter operations are inherently non-serializable"
        );
        client.must("ALTER TABLE ks.n ADD d counter").await;
        client.must("UPDATE ks.n SET d = d + 1 WHERE k = 1 AND c = 1").await;
        client.must("ALTER TABLE ks.n DROP d").await;
        let got = client.query("ALTER TABLE ks.n ADD d counter").await.error();
        assert_eq!(got.1, "Cannot re-add previously dropped counter column d");
        check(&mut client, "SELECT * FROM ks.n", &[]).await;
    });
}
