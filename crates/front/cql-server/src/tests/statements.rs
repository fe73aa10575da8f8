//! Statements through a connection.

use super::*;
use cql_wire::request::BatchList;
use cql_wire::{Batch, BatchKind, BatchQuery, EventKind, EventKinds};

#[test]
fn a_row_written_by_text_is_read_by_text() {
    for version in [V3, V4, V5] {
        run(move |rt| async move {
            let server = node(&rt, settings(), &Meshes::new(1)).await;
            let mut client = Client::ready(&server, version).await;
            client.with_table().await;
            let got = client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'three')").await;
            assert_eq!(got.body, Body::Void);
            let rows = client.must("SELECT k, c, v FROM ks.t WHERE k = 1").await.rows();
            assert_eq!(show(&rows), ["1 2 three"]);
            assert_eq!(rows.columns, Some(vec!["k".into(), "c".into(), "v".into()]));
            let rows = client.must("SELECT v FROM ks.t WHERE k = 7").await.rows();
            assert!(rows.rows.is_empty());
        });
    }
}

#[test]
fn a_prepared_statement_is_executed_with_values() {
    for version in [V3, V4, V5] {
        run(move |rt| async move {
            let server = node(&rt, settings(), &Meshes::new(1)).await;
            let mut client = Client::ready(&server, version).await;
            client.with_table().await;
            let insert = client.prepare("INSERT INTO ks.t (k, c, v) VALUES (?, ?, ?)").await;
            assert_eq!(insert.markers, ["k", "c", "v"]);
            if version > V3 {
                assert_eq!(insert.pk, [0]);
            }
            for c in 0..5 {
                let text = format!("row {c}");
                let got = client.execute(&insert, &[&int(1), &int(c), text.as_bytes()]).await;
                assert_eq!(got.body, Body::Void);
            }
            let select = client.prepare("SELECT c, v FROM ks.t WHERE k = ? AND c >= ?").await;
            assert_eq!(select.columns, ["c", "v"]);
            assert_eq!(select.metadata_id.is_some(), version == V5);
            let rows = client.execute(&select, &[&int(1), &int(3)]).await.rows();
            assert_eq!(show(&rows), ["3 row 3", "4 row 4"]);
        });
    }
}

/// INV-prepared-1.
#[test]
fn the_id_of_a_prepared_statement_is_cassandras() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let text = "SELECT v FROM ks.t WHERE k = 1 AND c = 1";
        let qualified = client.prepare(text).await;
        assert_eq!(qualified.id, query::id_of(text, None));
        assert_eq!(client.must("USE ks").await.body, Body::SetKeyspace("ks".to_owned()));
        assert_eq!(client.prepare(text).await.id, qualified.id);
        let text = "SELECT v FROM t WHERE k = 1 AND c = 1";
        let got = client.ask(&Request::Prepare { query: text, keyspace: None }).await;
        assert_eq!(got.warnings.len(), 1, "advice about USE");
        assert_eq!(got.prepared().id, query::id_of(text, Some("ks")));
        let got = client.ask(&Request::Prepare { query: text, keyspace: None }).await;
        assert!(got.warnings.is_empty(), "given once");
    });
}

#[test]
fn an_unknown_prepared_id_is_told_with_the_id() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        let unknown = PreparedGot {
            id: vec![1; 16],
            metadata_id: None,
            markers: Vec::new(),
            pk: Vec::new(),
            columns: Vec::new(),
            is_marked: false,
        };
        let (code, message) = client.execute(&unknown, &[]).await.error();
        assert_eq!(code, ErrorCode::Unprepared);
        assert!(message.starts_with(
            "Prepared query with ID 01010101010101010101010101010101 not found (either the query"
        ));
    });
}

/// INV-prepared-2.
#[test]
fn prepared_select_star_follows_alter_table() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut old = Client::ready(&server, V4).await;
        old.with_table().await;
        old.must("INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'x')").await;
        let mut new = Client::ready(&server, V5).await;
        let mut ids = Client::new(&server, V4);
        assert_eq!(ids.startup(&[(cql_wire::scylla::USE_METADATA_ID, "")]).await.body, Body::Ready);
        let text = "SELECT * FROM ks.t WHERE k = 1";
        for altered in [false, true] {
            let by_old = old.prepare(text).await;
            let by_new = new.prepare(text).await;
            let by_ids = ids.prepare(text).await;
            assert!(by_ids.metadata_id.is_some());
            if altered {
                break;
            }
            old.must("ALTER TABLE ks.t ADD w int").await;
            let rows = execute_skipping(&mut old, &by_old).await;
            assert_eq!(rows.columns.as_ref().map(Vec::len), Some(4), "told in full");
            for (client, prepared) in [(&mut new, &by_new), (&mut ids, &by_ids)] {
                let rows = execute_skipping(client, prepared).await;
                assert_eq!(rows.columns.as_ref().map(Vec::len), Some(4));
                let id = rows.new_id.unwrap();
                assert_ne!(Some(&id), prepared.metadata_id.as_ref());
                let known = PreparedGot { metadata_id: Some(id), ..prepared.clone() };
                let rows = execute_skipping(client, &known).await;
                assert_eq!((rows.columns, rows.new_id), (None, None), "known by now");
            }
        }
    });
}

async fn execute_skipping(client: &mut Client, prepared: &PreparedGot) -> Rows {
    let parameters =
        QueryParameters { skip_metadata: true, ..QueryParameters::new(Consistency::One) };
    let request = Request::Execute {
        id: &prepared.id,
        result_metadata_id: prepared.metadata_id.as_deref(),
        parameters,
    };
    client.ask(&request).await.rows()
}

#[test]
fn a_statement_of_a_dropped_table_becomes_unprepared() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let select = client.prepare("SELECT v FROM ks.t WHERE k = 1 AND c = 1").await;
        assert!(client.execute(&select, &[]).await.rows().rows.is_empty());
        client.must("DROP TABLE ks.t").await;
        assert_eq!(client.execute(&select, &[]).await.error().0, ErrorCode::Unprepared);
    });
}

#[test]
fn the_number_of_values_must_be_that_of_the_markers() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let text = "SELECT v FROM ks.t WHERE k = ? AND c = ?";
        let select = client.prepare(text).await;
        let (code, message) = client.execute(&select, &[&int(1)]).await.error();
        assert_eq!(code, ErrorCode::Invalid);
        assert_eq!(message, "there were 2 markers(?) in CQL but 1 bound variables");
        let (_, message) = client.query(text).await.error();
        assert_eq!(message, "Invalid amount of bind variables");
    });
}

#[test]
fn named_values_go_to_their_markers() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let mut list = ValueList::new();
        for (name, value) in [("text", &b"x"[..]), ("row", &int(2)), ("key", &int(1))] {
            list.push_named(name, cql_wire::BoundValue::Bytes(value)).unwrap();
        }
        let query = "INSERT INTO ks.t (k, c, v) VALUES (:key, :row, :text)";
        let parameters =
            QueryParameters { values: list.values(), ..QueryParameters::new(Consistency::One) };
        let got = client.ask(&Request::Query { query, parameters }).await;
        assert_eq!(got.body, Body::Void);
        let rows = client.must("SELECT * FROM ks.t").await.rows();
        assert_eq!(show(&rows), ["1 2 x"]);
    });
}

#[test]
fn pages_put_together_are_the_whole() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        for i in 0..25 {
            client
                .must(&format!("INSERT INTO ks.t (k, c, v) VALUES ({}, {i}, 'v{i}')", i % 3))
                .await;
        }
        let whole = show(&client.must("SELECT * FROM ks.t").await.rows());
        assert_eq!(whole.len(), 25);
        for page_size in [1, 7, 24, 25, 26] {
            let mut rows = Vec::new();
            let mut state: Option<Vec<u8>> = None;
            loop {
                let parameters = QueryParameters {
                    page_size: Some(page_size),
                    paging_state: state.as_deref(),
                    ..QueryParameters::new(Consistency::One)
                };
                let query = "SELECT * FROM ks.t";
                let page = client.ask(&Request::Query { query, parameters }).await.rows();
                assert!(page.rows.len() <= page_size as usize);
                rows.extend(show(&page));
                match page.paging_state {
                    Some(next) => state = Some(next),
                    None => break,
                }
            }
            assert_eq!(rows, whole, "pages of {page_size}");
        }
        let parameters = QueryParameters {
            page_size: Some(3),
            paging_state: Some(b"nonsense"),
            ..QueryParameters::new(Consistency::One)
        };
        let query = "SELECT * FROM ks.t";
        let (code, message) = client.ask(&Request::Query { query, parameters }).await.error();
        assert_eq!(code, ErrorCode::ProtocolError);
        assert_eq!(message, "Invalid value for the paging state");
        let parameters =
            QueryParameters { page_size: Some(0), ..QueryParameters::new(Consistency::One) };
        let (_, message) = client.ask(&Request::Query { query, parameters }).await.error();
        assert_eq!(message, "The page size cannot be 0");
    });
}

#[test]
fn a_batch_of_texts_and_prepared_statements_is_applied() {
    for kind in [BatchKind::Logged, BatchKind::Unlogged] {
        run(move |rt| async move {
            let server = node(&rt, settings(), &Meshes::new(1)).await;
            let mut client = Client::ready(&server, V4).await;
            client.with_table().await;
            let insert = client.prepare("INSERT INTO ks.t (k, c, v) VALUES (?, ?, ?)").await;
            let mut list = BatchList::new();
            let values = value_list(&[&int(1), &int(1), b"one"]);
            list.push(BatchQuery::Prepared(&insert.id), values.values()).unwrap();
            let text = "INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'two')";
            let none = ValueList::new();
            list.push(BatchQuery::Text(text), none.values()).unwrap();
            let text = "INSERT INTO ks.t (k, c, v) VALUES (2, 1, 'three')";
            list.push(BatchQuery::Text(text), none.values()).unwrap();
            let parameters = QueryParameters::new(Consistency::One);
            let request = Request::Batch(Batch { kind, statements: list.statements(), parameters });
            assert_eq!(client.ask(&request).await.body, Body::Void);
            let rows = client.must("SELECT c, v FROM ks.t WHERE k IN (1, 2)").await.rows();
            assert_eq!(show(&rows), ["1 one", "2 two", "1 three"]);

            let mut list = BatchList::new();
            list.push(BatchQuery::Text("SELECT * FROM ks.t"), none.values()).unwrap();
            let request = Request::Batch(Batch { kind, statements: list.statements(), parameters });
            let (code, message) = client.ask(&request).await.error();
            assert_eq!(code, ErrorCode::Invalid);
            assert_eq!(
                message,
                "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed."
            );
            let mut list = BatchList::new();
            list.push(BatchQuery::Prepared(&insert.id), none.values()).unwrap();
            let request = Request::Batch(Batch { kind, statements: list.statements(), parameters });
            assert_eq!(
                client.ask(&request).await.error().1,
                "There were 3 markers(?) in CQL but 0 bound variables"
            );
        });
    }
}

#[test]
fn list_elements_are_written_by_index_and_by_value() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        client
            .must(
                "CREATE TABLE ks.lists (k int, c int, l list<int>, s list<int> STATIC, \
                 PRIMARY KEY (k, c))",
            )
            .await;
        client.must("INSERT INTO ks.lists (k, c, l, s) VALUES (1, 1, [1, 2, 3], [4, 5])").await;
        client.must("UPDATE ks.lists SET l[1] = 20, s[0] = 40 WHERE k = 1 AND c = 1").await;
        client.must("UPDATE ks.lists SET l = l - [1] WHERE k = 1 AND c = 1").await;
        let mut list = BatchList::new();
        let none = ValueList::new();
        for text in [
            "DELETE l[0] FROM ks.lists WHERE k = 1 AND c = 1",
            "DELETE s[1] FROM ks.lists WHERE k = 1",
        ] {
            list.push(BatchQuery::Text(text), none.values()).unwrap();
        }
        let parameters = QueryParameters::new(Consistency::One);
        let kind = BatchKind::Logged;
        let request = Request::Batch(Batch { kind, statements: list.statements(), parameters });
        assert_eq!(client.ask(&request).await.body, Body::Void);
        let list_of = |n: i32| [int(1), int(4), int(n)].concat();
        for (column, expected) in [("l", 3), ("s", 40)] {
            let rows = client.must(&format!("SELECT {column} FROM ks.lists WHERE k = 1")).await;
            assert_eq!(rows.rows().rows, [[Some(list_of(expected))]], "{column}");
        }
        let query = "UPDATE ks.lists SET l[1] = 0 WHERE k = 1 AND c = 1";
        let (code, message) = client.query(query).await.error();
        assert_eq!(code, ErrorCode::Invalid);
        assert_eq!(message, "List index 1 out of bound, list has size 1");
        let parameters = QueryParameters::new(Consistency::Any);
        let (_, message) = client.ask(&Request::Query { query, parameters }).await.error();
        assert_eq!(
            message,
            "Write operation require a read but consistency ANY is not supported on reads"
        );
    });
}

#[test]
fn nobody_writes_to_the_nodes_own_keyspaces() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        for query in [
            "TRUNCATE system.local",
            "UPDATE system.local SET cluster_name = 'x' WHERE key = 'local'",
            "DELETE FROM system.local WHERE key = 'local'",
        ] {
            let (code, message) = client.query(query).await.error();
            assert_eq!(code, ErrorCode::Invalid, "{query}");
            assert_eq!(message, "system keyspace is not user-modifiable.", "{query}");
        }
    });
}

#[test]
fn errors_carry_cassandras_codes_and_texts() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let (code, message) = client.query("SELEC * FROM ks.t").await.error();
        assert_eq!(code, ErrorCode::SyntaxError);
        assert!(message.starts_with("line 1:0"), "{message}");
        assert_eq!(client.query("SELECT * FROM ks.nope").await.error().0, ErrorCode::Invalid);
        let (code, message) = client.query("CREATE TABLE ks.t (k int PRIMARY KEY)").await.error();
        assert_eq!(code, ErrorCode::AlreadyExists);
        assert_eq!(message, "Cannot add already existing table \"t\" to keyspace \"ks\"");
        let (code, _) = client.query("USE nowhere").await.error();
        assert_eq!(code, ErrorCode::Invalid);
        client
            .must(
                "CREATE KEYSPACE three WITH replication = {'class': 'SimpleStrategy', \
                 'replication_factor': 3}",
            )
            .await;
        client.must("CREATE TABLE three.t (k int PRIMARY KEY)").await;
        let query = "SELECT * FROM three.t";
        let parameters = QueryParameters::new(Consistency::Quorum);
        let (code, message) = client.ask(&Request::Query { query, parameters }).await.error();
        assert_eq!(code, ErrorCode::Unavailable);
        assert_eq!(message, "Cannot achieve consistency level QUORUM");
        let parameters = QueryParameters::new(Consistency::Any);
        let (code, message) = client.ask(&Request::Query { query, parameters }).await.error();
        assert_eq!(code, ErrorCode::Invalid);
        assert_eq!(message, "ANY ConsistencyLevel is only supported for writes");
        let query = "INSERT INTO three.t (k) VALUES (1)";
        let parameters = QueryParameters::new(Consistency::Serial);
        let (_, message) = client.ask(&Request::Query { query, parameters }).await.error();
        assert_eq!(message, "You must use conditional updates for serializable writes");
        assert_eq!(
            client
                .ask(&Request::Query { query, parameters: QueryParameters::new(Consistency::Any) })
                .await
                .body,
            Body::Void
        );
    });
}

#[test]
fn schema_changes_are_answered_and_announced_to_who_registered() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        let mut listener = Client::ready(&server, V5).await;
        let kinds = EventKinds::NONE.with(EventKind::SchemaChange);
        assert_eq!(listener.ask(&Request::Register(kinds)).await.body, Body::Ready);
        let create = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
                      'replication_factor': 1}";
        let Body::SchemaChange(change) = client.must(create).await.body else { panic!() };
        assert!(change.contains("Created") && change.contains("Keyspace"), "{change}");
        let event = listener.receive().await;
        assert_eq!(event.stream, -1);
        assert_eq!(event.body, Body::Event(format!("SchemaChange({change})")));
        let Body::SchemaChange(change) =
            client.must("CREATE TABLE ks.t (k int PRIMARY KEY)").await.body
        else {
            panic!()
        };
        assert!(change.contains("Table(\"t\")"), "{change}");
        assert_eq!(listener.receive().await.body, Body::Event(format!("SchemaChange({change})")));
        let no_op = client.must("CREATE TABLE IF NOT EXISTS ks.t (k int PRIMARY KEY)").await;
        assert_eq!(no_op.body, Body::Void);
        client.must("DROP KEYSPACE ks").await;
        let mut dropped = Vec::new();
        for _ in 0..2 {
            dropped.push(format!("{:?}", listener.receive().await.body));
        }
        assert!(dropped[0].contains("Table") && dropped[1].contains("Keyspace"), "{dropped:?}");
    });
}

#[test]
fn truncate_leaves_nothing_and_later_rows_stay() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'old')").await;
        assert_eq!(client.must("TRUNCATE ks.t").await.body, Body::Void);
        assert!(client.must("SELECT * FROM ks.t").await.rows().rows.is_empty());
        client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'new')").await;
        let rows = client.must("SELECT v FROM ks.t").await.rows();
        assert_eq!(show(&rows), ["new"]);
        let snapshot = server.executor().membership.snapshot();
        assert_eq!(snapshot.truncations.len(), 1);
    });
}

/// INV-trace-1.
#[test]
fn a_traced_request_returns_an_id_whose_session_and_events_can_be_read() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        for text in
            ["INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'x')", "SELECT * FROM ks.t WHERE k = 1"]
        {
            let parameters = QueryParameters::new(Consistency::One);
            let request = Request::Query { query: text, parameters };
            let options = RequestOptions { stream: 9, tracing: true, ..Default::default() };
            let bytes = client.encode(&options, &request);
            client.connection.feed(&bytes);
            let got = client.receive().await;
            let id = got.tracing.unwrap();
            assert!(!matches!(got.body, Body::Error(..)), "{got:?}");
            let session = client
                .must(&format!(
                    "SELECT request, command, parameters FROM system_traces.sessions WHERE \
                     session_id = {id}"
                ))
                .await
                .rows();
            assert_eq!(session.rows.len(), 1);
            assert_eq!(session.rows[0][0].as_deref(), Some(&b"Execute CQL3 query"[..]));
            assert_eq!(session.rows[0][1].as_deref(), Some(&b"QUERY"[..]));
            let parameters = String::from_utf8_lossy(session.rows[0][2].as_deref().unwrap());
            assert!(parameters.contains(text), "{parameters}");
            let events = client
                .must(&format!("SELECT activity FROM system_traces.events WHERE session_id = {id}"))
                .await
                .rows();
            assert!(events.rows.len() >= 2, "{events:?}");
        }
    });
}

#[test]
fn a_trace_says_what_a_filter_has_read_and_dropped() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        for k in 0..5 {
            for c in 0..4 {
                let v = if c == 0 { "found" } else { "other" };
                client.must(&format!("INSERT INTO ks.t (k, c, v) VALUES ({k}, {c}, '{v}')")).await;
            }
        }
        client.must("DELETE FROM ks.t WHERE k = 4").await;
        let mut traced = async |text: &str| {
            let parameters = QueryParameters::new(Consistency::One);
            let request = Request::Query { query: text, parameters };
            let options = RequestOptions { stream: 9, tracing: true, ..Default::default() };
            let bytes = client.encode(&options, &request);
            client.connection.feed(&bytes);
            let id = client.receive().await.tracing.unwrap();
            let events =
                format!("SELECT activity FROM system_traces.events WHERE session_id = {id}");
            show(&client.must(&events).await.rows())
        };
        // 16 rows of 4 partitions are left: 4 are found.
        let events = traced("SELECT v FROM ks.t WHERE v = 'found' ALLOW FILTERING").await;
        let of_filter: Vec<&String> =
            events.iter().filter(|e| e.starts_with("Filtering on ")).collect();
        let [cost] = of_filter.as_slice() else { panic!("{events:?}") };
        let begin = "Filtering on v looked at 16 rows of 4 partitions in ";
        let end = " bytes, dropped 12 rows and 0 whole partitions, and kept 4 rows; 0 bytes came in \
                   pages of up to 0 in memory, the result has 36 bytes";
        assert!(cost.starts_with(begin) && cost.ends_with(end), "{cost}");
        let bytes = cost[begin.len()..].split(' ').next().unwrap();
        assert!(bytes.parse::<u32>().unwrap() > 16 * 5, "{cost}");
        let shard =
            "Shard 0 read 16 live rows in 4 partitions, 0 tombstone cells, from memtables only";
        assert!(events.iter().any(|e| e == shard), "{events:?}");
        assert!(
            events.iter().any(|e| e == "Read 16 live rows and 0 tombstone cells"),
            "{events:?}"
        );
        // Columns of the key too; partitions that they leave out are not read.
        let events =
            traced("SELECT v FROM ks.t WHERE c >= 2 AND v = 'other' ALLOW FILTERING").await;
        assert!(events.iter().any(|e| e.starts_with("Filtering on ")), "{events:?}");
        // Without a filter nothing is said of one.
        let events = traced("SELECT v FROM ks.t WHERE k = 1").await;
        assert!(events.iter().all(|e| !e.starts_with("Filtering on ")), "{events:?}");
        assert!(events.iter().any(|e| e == "Merged data from memtables and 0 sstables"));
    });
}

#[test]
fn a_client_timestamp_decides_and_the_servers_never_goes_back() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let write = |text: &'static str, timestamp| Request::Query {
            query: text,
            parameters: QueryParameters { timestamp, ..QueryParameters::new(Consistency::One) },
        };
        let late = "INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'late')";
        let early = "INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'early')";
        client.ask(&write(late, Some(2_000))).await;
        client.ask(&write(early, Some(1_000))).await;
        let rows = client.must("SELECT v FROM ks.t").await.rows();
        assert_eq!(show(&rows), ["late"]);
        // Many in one turn of a simulated clock that stands still.
        for i in 0..20 {
            client.must(&format!("INSERT INTO ks.t (k, c, v) VALUES (2, 1, 'v{i}')")).await;
        }
        let rows = client.must("SELECT v FROM ks.t WHERE k = 2").await.rows();
        assert_eq!(show(&rows), ["v19"]);
    });
}

#[test]
fn connections_are_listed_in_system_views() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::new(&server, V5);
        client.startup(&[("DRIVER_NAME", "test driver"), ("DRIVER_VERSION", "1.2")]).await;
        let rows = client
            .must("SELECT driver_name, connection_stage, username FROM system_views.clients")
            .await
            .rows();
        assert_eq!(show(&rows), ["test driver ready anonymous"]);
        let rows = client
            .must(
                "SELECT driver_version FROM system_views.clients WHERE address = '127.0.0.1' AND \
                 port = 50000",
            )
            .await
            .rows();
        assert_eq!(show(&rows), ["1.2"]);
        let rows = client
            .must(
                "SELECT driver_version FROM system_views.clients WHERE address = '127.0.0.1' AND \
                 port = 50001",
            )
            .await
            .rows();
        assert!(rows.rows.is_empty());
    });
}

#[test]
fn describe_shows_a_table_and_pages() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        client.with_table().await;
        let rows = client.must("DESCRIBE TABLE ks.t").await.rows();
        assert_eq!(rows.rows.len(), 1);
        let text = String::from_utf8(rows.rows[0][3].clone().unwrap()).unwrap();
        assert!(text.starts_with("CREATE TABLE ks.t (\n    k int,\n    c int,"), "{text}");
        let parameters =
            QueryParameters { page_size: Some(2), ..QueryParameters::new(Consistency::One) };
        let query = "DESCRIBE KEYSPACES";
        let page = client.ask(&Request::Query { query, parameters }).await.rows();
        assert_eq!(page.rows.len(), 2);
        assert!(page.paging_state.is_some());
        let (code, _) = client.query("DESCRIBE TABLE ks.nope").await.error();
        assert_eq!(code, ErrorCode::Invalid);
    });
}

#[test]
fn virtual_schema_is_read_like_a_table() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        let all = client.must("SELECT * FROM system_virtual_schema.keyspaces").await.rows();
        assert_eq!(all.rows.len(), 2);
        let text = "SELECT table_name FROM system_virtual_schema.tables WHERE keyspace_name = \
                    'system_virtual_schema' AND table_name > 'columns' ORDER BY table_name DESC";
        assert_eq!(show(&client.must(text).await.rows()), ["tables", "keyspaces"]);
    });
}

#[test]
fn a_session_keyspace_is_used_and_a_request_keyspace_comes_first() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        client.with_table().await;
        let (_, message) = client.query("SELECT * FROM t").await.error();
        assert!(message.starts_with("No keyspace has been specified."), "{message}");
        client.must("USE system").await;
        let parameters =
            QueryParameters { keyspace: Some("ks"), ..QueryParameters::new(Consistency::One) };
        let query = "SELECT * FROM t";
        assert!(client.ask(&Request::Query { query, parameters }).await.rows().rows.is_empty());
        client.must("USE ks").await;
        assert!(client.must("SELECT * FROM t").await.rows().rows.is_empty());
    });
}

#[test]
fn a_guardrail_refuses_drop_and_truncate_of_tables() {
    run(|rt| async move {
        let guardrails =
            query::Guardrails { drop_truncate_table_enabled: false, ..Default::default() };
        let settings = changed(settings(), |query| query.guardrails = guardrails);
        let server = node(&rt, settings, &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        for text in ["DROP TABLE ks.t", "TRUNCATE ks.t"] {
            let (code, message) = client.query(text).await.error();
            assert_eq!(code, ErrorCode::Invalid);
            assert!(message.starts_with("Guardrail drop_truncate_table_enabled violated"));
        }
    });
}

#[test]
fn prepared_statements_above_the_budget_push_out_the_oldest() {
    run(|rt| async move {
        let settings = changed(settings(), |query| query.prepared_bytes_max = 20_000);
        let server = node(&rt, settings, &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let mut prepared = Vec::new();
        for i in 0..40 {
            let text = format!("SELECT v FROM ks.t WHERE k = {i} AND c = 1");
            prepared.push(client.prepare(&text).await);
        }
        let kept = server.executor().prepared.len();
        assert!((5..20).contains(&kept), "{kept}");
        let first = client.execute(&prepared[0], &[]).await.error();
        assert_eq!(first.0, ErrorCode::Unprepared);
        assert!(client.execute(&prepared[39], &[]).await.rows().rows.is_empty());
        // Evicted statements are not loaded at the next start either.
        rt.sleep(Duration::from_secs(1)).await;
        let stored = client.must("SELECT prepared_id FROM system.prepared_statements").await.rows();
        assert_eq!(stored.rows.len(), kept);
    });
}

#[test]
fn requests_are_measured_by_their_kind() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let count = |name: &str| match rt.telemetry().snapshot().find(name).map(|m| m.value.clone())
        {
            Some(telemetry::Value::Latency(latency)) => latency.count(),
            other => panic!("{name}: {other:?}"),
        };
        let counts = || {
            (count("coordinator_read_latency_micros"), count("coordinator_write_latency_micros"))
        };
        // Schema changes are neither.
        assert_eq!(counts(), (0, 0));
        client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'three')").await;
        client.must("UPDATE ks.t SET v = 'four' WHERE k = 1 AND c = 2").await;
        assert_eq!(counts(), (0, 2));
        client.must("SELECT * FROM ks.t WHERE k = 1").await;
        client.query("SELECT * FROM ks.nosuch WHERE k = 1").await.error();
        assert_eq!(counts(), (1, 2));
    });
}

/// Latencies are counted like `coordinator_…_latency` of Cassandra's tables: serial reads are
/// reads, conditional writes count nowhere, a batch counts once for each of its tables.
#[test]
fn requests_are_measured_by_table() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        client.must("CREATE TABLE ks.u (k int PRIMARY KEY, v int)").await;
        let id = |name: &str| server.executor().snapshot().schema.table("ks", name).unwrap().id;
        let (t, u) = (id("t"), id("u"));
        let of = |id| {
            let all = server.table_latencies();
            let of = all.into_iter().find(|(of, _)| *of == id).map(|(_, latencies)| latencies);
            of.map(|l| (l.reads.count(), l.scans.count(), l.writes.count()))
        };
        assert_eq!((of(t), of(u)), (None, None));
        client.must("INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'three')").await;
        client.must("UPDATE ks.u SET v = 4 WHERE k = 1").await;
        client.must("UPDATE ks.u SET v = 5 WHERE k = 1").await;
        assert_eq!((of(t), of(u)), (Some((0, 0, 1)), Some((0, 0, 2))));
        client
            .must(
                "BEGIN BATCH INSERT INTO ks.u (k, v) VALUES (2, 1); INSERT INTO ks.t (k, c, v) VALUES \
                 (2, 2, 'x'); INSERT INTO ks.u (k, v) VALUES (3, 1); APPLY BATCH",
            )
            .await;
        assert_eq!((of(t), of(u)), (Some((0, 0, 2)), Some((0, 0, 3))));
        client.must("SELECT * FROM ks.t WHERE k = 1").await;
        client.must("SELECT * FROM ks.u").await;
        client.must("UPDATE ks.u SET v = 6 WHERE k = 1 IF v = 5").await;
        client.query("SELECT * FROM ks.t WHERE k = 'x'").await.error();
        client.query("SELECT * FROM ks.u WHERE k = 1 AND v = 3").await.error();
        client.must("SELECT * FROM system_views.settings").await;
        assert_eq!((of(t), of(u)), (Some((1, 0, 2)), Some((0, 1, 3))));
    });
}

#[test]
fn token_restrictions_of_virtual_tables_hold_on_every_page() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        let all: Vec<(i64, &str)> =
            SETTINGS.iter().map(|name| (codec::token_of(name.as_bytes()).0, *name)).collect();
        // Partitions come by name, so every bound cuts some out of the middle.
        for (bound, _) in &all {
            let query = format!(
                "SELECT name FROM system_views.settings WHERE token(name) > {bound} AND \
                 token(name) <= {}",
                bound.saturating_add(i64::MAX)
            );
            let inside = |token: i64| token > *bound && token <= bound.saturating_add(i64::MAX);
            let expected: Vec<&str> =
                all.iter().filter(|(token, _)| inside(*token)).map(|(_, name)| *name).collect();
            for page_size in [1, 3, 100] {
                let mut found = Vec::new();
                let mut state: Option<Vec<u8>> = None;
                loop {
                    let parameters = QueryParameters {
                        page_size: Some(page_size),
                        paging_state: state.as_deref(),
                        ..QueryParameters::new(Consistency::One)
                    };
                    let request = Request::Query { query: &query, parameters };
                    let page = client.ask(&request).await.rows();
                    found.extend(show(&page));
                    match page.paging_state {
                        Some(next) => state = Some(next),
                        None => break,
                    }
                }
                assert_eq!(found, expected, "{query} in pages of {page_size}");
            }
        }
    });
}

#[test]
fn a_client_that_goes_away_does_not_stop_the_schema_change_it_asked_for() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut gone = Client::ready(&server, V4).await;
        let query = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
                     'replication_factor': 1}";
        gone.send(1, &Request::Query { query, parameters: QueryParameters::new(Consistency::One) });
        poll_fn(|cx| {
            gone.connection.turn(cx);
            Poll::Ready(())
        })
        .await;
        assert_eq!(gone.connection.in_flight(), 1);
        drop(gone);
        rt.sleep(Duration::from_secs(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.must("CREATE TABLE ks.t (k int PRIMARY KEY)").await;
    });
}
