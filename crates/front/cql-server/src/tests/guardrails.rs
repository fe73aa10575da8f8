//! Timestamps that clients may not give.

use super::roles::{login, server_with};
use super::*;
use crate::frame_sink::FrameSink;
use crate::session::Session;
use cql_plan::auth::AccessRules;
use cql_plan::guardrails::{Feature, Guardrails as Planned, Threshold, Values, Watch};
use cql_wire::request::BatchList;
use cql_wire::{Batch, BatchKind, BatchQuery, FrameExtras, Opcode, ResponseFrame};
use query::{Guardrails, ResultSink, Ticket, TimestampGuardrails};

const DAY: i64 = 86_400_000_000;

fn guarded(timestamps: TimestampGuardrails) -> ServerSettings {
    let guardrails = Guardrails { timestamps, ..Guardrails::default() };
    changed(settings(), |query| query.guardrails = guardrails)
}

fn days(n: u64) -> Duration {
    Duration::from_secs(n * 86_400)
}

async fn start(rt: &Rt, settings: ServerSettings) -> (CqlServer, Client) {
    let server = node(rt, settings, &Meshes::new(1)).await;
    let mut client = Client::ready(&server, V4).await;
    client.with_table().await;
    client.must("CREATE TABLE ks.lists (k int PRIMARY KEY, l list<int>)").await;
    (server, client)
}

/// The text of a refusal with code Invalid.
fn refusal(got: &Got) -> &str {
    match &got.body {
        Body::Error(ErrorCode::Invalid, text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_timestamp_more_than_three_days_ahead_is_refused_by_default() {
    run(|rt| async move {
        let (_server, mut client) = start(&rt, settings()).await;
        let now = rt.wall().0;
        let insert =
            |at: i64| format!("INSERT INTO ks.t (k, c) VALUES (1, 1) USING TIMESTAMP {at}");
        // Above what any clock may gain while the statement is on its way.
        let far = now + 3 * DAY + 60_000_000;
        let got = client.query(&insert(far)).await;
        let begin = format!(
            "Guardrail maximum_timestamp violated: The modification to table t has a timestamp \
             {far} after the maximum allowable failure threshold "
        );
        let end = ". Timestamps too far in the future can lead to data that can't be easily \
                   overwritten";
        let text = refusal(&got);
        assert!(text.starts_with(&begin) && text.ends_with(end), "{text}");
        assert_eq!(client.query(&insert(now + 2 * DAY)).await.body, Body::Void);
        for text in [
            format!("UPDATE ks.t USING TIMESTAMP {far} SET v = 'x' WHERE k = 1 AND c = 1"),
            format!("DELETE FROM ks.t USING TIMESTAMP {far} WHERE k = 1 AND c = 1"),
            format!(
                "BEGIN BATCH USING TIMESTAMP {far} INSERT INTO ks.t (k, c) VALUES (1, 2); APPLY \
                 BATCH"
            ),
            format!("BEGIN BATCH {}; APPLY BATCH", insert(far)),
            // Its list would be read first.
            format!("UPDATE ks.lists USING TIMESTAMP {far} SET l[0] = 1 WHERE k = 1"),
        ] {
            assert!(refusal(&client.query(&text).await).contains("maximum_timestamp"), "{text}");
        }
        let bound = "INSERT INTO ks.t (k, c) VALUES (?, ?) USING TIMESTAMP ?";
        let bound = client.prepare(bound).await;
        let got = client.execute(&bound, &[&int(1), &int(5), &far.to_be_bytes()]).await;
        assert!(refusal(&got).contains("maximum_timestamp"));
        let rows = client.must("SELECT c FROM ks.t WHERE k = 1").await.rows();
        assert_eq!(show(&rows), ["1"], "nothing else was written");
    });
}

#[test]
fn the_timestamp_of_a_request_counts_as_one_of_using_does() {
    run(|rt| async move {
        let (_server, mut client) = start(&rt, settings()).await;
        let far = rt.wall().0 + 4 * DAY;
        let text = "INSERT INTO ks.t (k, c) VALUES (1, 1)";
        let at = |timestamp| QueryParameters {
            timestamp: Some(timestamp),
            ..QueryParameters::new(Consistency::One)
        };
        let got = client.ask(&Request::Query { query: text, parameters: at(far) }).await;
        assert!(refusal(&got).contains("maximum_timestamp"));
        let mut list = BatchList::new();
        list.push(BatchQuery::Text(text), ValueList::new().values()).unwrap();
        let (kind, statements) = (BatchKind::Unlogged, list.statements());
        let batch = Batch { kind, statements, parameters: at(far) };
        assert!(refusal(&client.ask(&Request::Batch(batch)).await).contains("maximum_timestamp"));
        // A statement's own goes before it.
        let own = format!("{text} USING TIMESTAMP 5");
        let got = client.ask(&Request::Query { query: &own, parameters: at(far) }).await;
        assert_eq!(got.body, Body::Void);
        let got = client.ask(&Request::Query { query: text, parameters: at(7) }).await;
        assert_eq!(got.body, Body::Void);
    });
}

#[test]
fn thresholds_warn_refuse_and_are_off_as_they_are_set() {
    run(|rt| async move {
        let set = TimestampGuardrails {
            maximum_warn: days(1),
            maximum_fail: Duration::ZERO,
            minimum_warn: days(1),
            minimum_fail: days(2),
            ..TimestampGuardrails::default()
        };
        let (_server, mut client) = start(&rt, guarded(set)).await;
        let now = rt.wall().0;
        let insert =
            |at: i64| format!("INSERT INTO ks.t (k, c) VALUES (1, 1) USING TIMESTAMP {at}");
        let got = client.must(&insert(i64::MAX)).await;
        assert!(got.warnings[0].contains("after the maximum allowable warning threshold"));
        let got = client.must(&insert(now - DAY - 60_000_000)).await;
        assert!(got.warnings[0].contains("before the minimum allowable warning threshold"));
        let got = client.query(&insert(now - 2 * DAY - 60_000_000)).await;
        assert!(refusal(&got).contains("minimum_timestamp violated"));
        assert!(client.must(&insert(now)).await.warnings.is_empty());
    });
    run(|rt| async move {
        let set = TimestampGuardrails {
            user_timestamps_enabled: false,
            ..TimestampGuardrails::default()
        };
        let (_server, mut client) = start(&rt, guarded(set)).await;
        let got = client.query("INSERT INTO ks.t (k, c) VALUES (1, 1) USING TIMESTAMP 1").await;
        let text = "Guardrail user_timestamps violated: User provided timestamps (USING \
                    TIMESTAMP) is not allowed";
        assert_eq!(refusal(&got), text);
        assert_eq!(client.must("INSERT INTO ks.t (k, c) VALUES (1, 1)").await.body, Body::Void);
    });
}

fn set(server: &CqlServer, planned: Planned) {
    let planned = std::sync::Arc::new(planned);
    server.set_guardrails(Guardrails { planned, ..Guardrails::default() });
}

fn two(warn: i64, fail: i64) -> Threshold {
    Threshold { warn, fail }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

/// Guardrails, a statement, and the end of its warning, or of its refusal when it begins with `!`.
fn cases() -> Vec<(Planned, &'static str, &'static str)> {
    let none = Planned::default;
    vec![
        (
            Planned { keyspaces: two(1, -1), ..none() },
            "CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
            "Creating keyspace k2, current number of keyspaces 2 exceeds warning threshold of 1.",
        ),
        (
            Planned { keyspaces: two(1, 2), ..none() },
            "CREATE KEYSPACE k3 WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
            "!Cannot have more than 2 keyspaces, aborting the creation of keyspace k3",
        ),
        (
            Planned { simplestrategy: Feature::of(false), ..none() },
            "ALTER KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
            "!Guardrail simplestrategy violated: SimpleStrategy is not allowed",
        ),
        (
            Planned { maximum_replication_factor: two(-1, 2), ..none() },
            "ALTER KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 3}",
            "!The keyspace ks has a replication factor of 3, above the failure threshold of 2.",
        ),
        (
            Planned { drop_keyspace: Feature::of(false), ..none() },
            "DROP KEYSPACE ks",
            "!Guardrail drop_keyspace_enabled violated: DROP KEYSPACE functionality is not allowed",
        ),
        (
            Planned { tables: two(1, 2), ..none() },
            "CREATE TABLE ks.more (k int PRIMARY KEY)",
            "!Cannot have more than 2 tables, aborting the creation of table more",
        ),
        (
            Planned { columns_per_table: two(1, 2), ..none() },
            "CREATE TABLE ks.more (k int PRIMARY KEY, a int, b int)",
            "!Tables cannot have more than 2 columns, but 3 provided for table more",
        ),
        (
            Planned { columns_per_table: two(3, -1), ..none() },
            "ALTER TABLE ks.t ADD added int",
            "The table t has 4 columns, this exceeds the warning threshold of 3.",
        ),
        (
            Planned { alter_table: Feature::of(false), ..none() },
            "ALTER TABLE ks.t DROP added",
            "!Guardrail alter_table violated: ALTER TABLE changing columns is not allowed",
        ),
        (
            Planned { uncompressed_tables: Feature::of(false), ..none() },
            "ALTER TABLE ks.t WITH compression = {'enabled': 'false'}",
            "!Uncompressed table is not allowed",
        ),
        (
            Planned {
                table_properties: Values { ignored: names(&["comment"]), ..Values::default() },
                ..none()
            },
            "ALTER TABLE ks.t WITH comment = 'x'",
            "Ignoring provided values [comment] as they are not supported for Table Properties \
             (ignored values are: [comment])",
        ),
        (
            none(),
            "ALTER TABLE ks.t WITH compaction = {'class': 'TimeWindowCompactionStrategy'}",
            "Please set TTL for your INSERT or UPDATE statements if you expect data to be expired \
             as table settings will not do it. ",
        ),
        (
            Planned { compact_tables: Feature::of(false), ..none() },
            "CREATE TABLE ks.more (k int PRIMARY KEY, v int) WITH COMPACT STORAGE",
            "!Creation of new COMPACT STORAGE tables is not allowed",
        ),
        (
            Planned { vector_dimensions: two(-1, 2), ..none() },
            "CREATE TABLE ks.more (k int PRIMARY KEY, v map<int, frozen<vector<float, 3>>>)",
            "!Column v has a vector of 3 dimensions, this exceeds the failure threshold of 2.",
        ),
        (
            Planned { vector_type: Feature::of(false), ..none() },
            "CREATE TYPE ks.u (v vector<float, 3>)",
            "!Guardrail vector_type_enabled violated: Field v is not allowed",
        ),
        (
            Planned { fields_per_udt: two(1, -1), ..none() },
            "CREATE TYPE ks.u (a int, b int)",
            "The user type u has 2 columns, this exceeds the warning threshold of 1.",
        ),
        (
            Planned { fields_per_udt: two(1, 2), ..none() },
            "ALTER TYPE ks.u ADD c int",
            "!User types cannot have more than 2 columns, but 3 provided for user type u.",
        ),
        (
            Planned { allow_filtering: Feature::of(false), ..none() },
            "SELECT * FROM ks.t WHERE v = 'x' ALLOW FILTERING",
            "!unpredictable performance.",
        ),
        (
            Planned { group_by: Feature::of(false), ..none() },
            "SELECT k FROM ks.t GROUP BY k",
            "!Guardrail group_by violated: GROUP BY functionality is not allowed",
        ),
        (
            Planned { partition_keys_in_select: two(1, -1), ..none() },
            "SELECT * FROM ks.t WHERE k IN (1, 2)",
            "Query with partition keys in IN clause on table t, with number of partition keys 2 \
             exceeds warning threshold of 1.",
        ),
        (
            Planned { in_select_cartesian_product: two(1, 3), ..none() },
            "SELECT * FROM ks.t WHERE k = 1 AND c IN (1, 2, 3, 4)",
            "!Aborting query because the cartesian product of the IN restrictions on clustering \
             key produces 4 values, this exceeds fail threshold of 3.",
        ),
        (
            Planned { page_size: two(-1, 99), ..none() },
            "SELECT * FROM ks.t",
            "!Aborting query for table t, page size 100 exceeds fail threshold of 99.",
        ),
        (Planned { page_size: two(-1, 99), ..none() }, "SELECT * FROM ks.t LIMIT 100", ""),
        (
            Planned {
                read_consistency_levels: Values {
                    warned: names(&["ONE", "TWO"]),
                    ..Values::default()
                },
                ..none()
            },
            "SELECT * FROM ks.t",
            "Provided values [ONE] are not recommended for read consistency levels (warned values \
             are: [ONE, TWO])",
        ),
        (
            Planned {
                write_consistency_levels: Values {
                    disallowed: names(&["SERIAL"]),
                    ..Values::default()
                },
                ..none()
            },
            "INSERT INTO ks.t (k, c) VALUES (1, 1)",
            "!Provided values [SERIAL] are not allowed for write consistency levels (disallowed \
             values are: [SERIAL])",
        ),
        (
            Planned { column_value_size: two(2, 3), ..none() },
            "INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'abc')",
            "Value of column 'v' has size 3, this exceeds the warning threshold of 2.",
        ),
        (
            Planned { column_value_size: two(2, 3), ..none() },
            "INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'abcd') IF NOT EXISTS",
            "!Value of column 'v' has size 4, this exceeds the failure threshold of 3.",
        ),
        (
            Planned { items_per_collection: two(1, -1), ..none() },
            "UPDATE ks.lists SET l = l + [1, 2] WHERE k = 1",
            "Detected collection l with 2 items, this exceeds the warning threshold of 1.",
        ),
        (
            // Each element has 20 bytes beside its path of 16 and its value of 4.
            Planned { collection_size: two(-1, 79), ..none() },
            "UPDATE ks.lists SET l = l + [1, 2] WHERE k = 1",
            "!Detected collection l of size 80, this exceeds the failure threshold of 79.",
        ),
        (
            Planned { read_before_write_list_operations: Feature::of(false), ..none() },
            "UPDATE ks.lists SET l[0] = 5 WHERE k = 1",
            "!Setting of list items by index requiring read before write is not allowed",
        ),
    ]
}

#[test]
fn ordinary_users_are_held_to_limits_from_the_next_statement_on_and_superusers_are_not() {
    run(|rt| async move {
        let access = AccessRules { passwords: true, ..AccessRules::default() };
        let server =
            server_with(&rt, changed(with_password(), |query| query.access = access)).await;
        let mut root = login(&server, "root", "secret").await;
        root.with_table().await;
        root.must("CREATE TABLE ks.lists (k int PRIMARY KEY, l list<int>)").await;
        root.must("CREATE ROLE anne WITH PASSWORD = 'pw' AND LOGIN = true").await;
        let mut anne = login(&server, "anne", "pw").await;
        for (planned, text, expected) in cases() {
            set(&server, planned);
            let parameters =
                QueryParameters { page_size: Some(100), ..QueryParameters::new(Consistency::One) };
            let got = anne.ask(&Request::Query { query: text, parameters }).await;
            let last = got.warnings.last().cloned().unwrap_or_default();
            match expected.strip_prefix('!') {
                Some(expected) => {
                    let refused = refusal(&got);
                    assert!(refused.ends_with(expected), "{text}: {refused}");
                    assert_eq!(refused, last, "{text}: a refusal is a warning too");
                }
                None => {
                    assert!(!matches!(got.body, Body::Error(..)), "{text}: {:?}", got.body);
                    assert_eq!(last.is_empty(), expected.is_empty(), "{text}: {last}");
                    assert!(last.ends_with(expected), "{text}: {last}");
                }
            }
        }
        let schema = server.executor().schema();
        assert_eq!(schema.table("ks", "t").unwrap().options.comment, "", "it was left out");
        // The last ones still hold, but not for a superuser.
        let text = "UPDATE ks.lists SET l[0] = 5 WHERE k = 1";
        assert!(refusal(&anne.query(text).await).contains("is not allowed"));
        assert!(root.must(text).await.warnings.is_empty());
        set(&server, Planned::default());
        assert!(anne.must(text).await.warnings.is_empty());
    });
}

#[test]
fn an_answer_of_another_node_comes_with_what_both_warn_of() {
    let node = SocketAddr::from(([127, 0, 0, 1], 9042));
    let session = Session::new(1, node, node, None);
    session.client.negotiated.set(Negotiated::plain(V4));
    let mut rails = Planned::default();
    rails.write_consistency_levels.warned.push("TWO".to_owned());
    let watch = Watch::new(Arc::new(rails));
    watch.write_consistency(&["TWO"]).unwrap();
    let ticket = Ticket { connection: 0, trace: None, watch: Some(Rc::new(watch)) };
    let mut made = Vec::new();
    let extras = FrameExtras { warnings: &["of the other"], ..FrameExtras::default() };
    let mut frame = ResponseFrame::begin(&mut made, V4, 0, Opcode::Result, &extras).unwrap();
    cql_wire::response::put_void(frame.body());
    frame.finish().unwrap();
    let mut out = Vec::new();
    let sink = FrameSink { session: Rc::new(session), stream: 7 };
    assert!(sink.forwarded(&mut out, &ticket, &made));
    let mut decoder = FrameDecoder::new(Side::Client, 1 << 20);
    let mut input = out.as_slice();
    let frame = decoder.next(&mut input).unwrap().unwrap();
    assert_eq!(frame.header.stream, 7);
    let response = Response::decode(&frame, Negotiated::plain(V4)).unwrap();
    let [own, other] = response.warnings.as_slice() else { panic!("{:?}", response.warnings) };
    assert!(own.contains("write consistency levels") && *other == "of the other", "{own}");
}

#[test]
fn where_nobody_logs_in_nobody_is_held_to_limits() {
    run(|rt| async move {
        let (server, mut client) = start(&rt, settings()).await;
        set(&server, Planned { alter_table: Feature::of(false), ..Planned::default() });
        assert!(client.must("ALTER TABLE ks.t ADD added int").await.warnings.is_empty());
    });
}

#[test]
fn drop_compact_storage_is_refused_unless_it_is_enabled() {
    for enabled in [false, true] {
        run(move |rt| async move {
            let settings =
                changed(settings(), |query| query.drop_compact_storage_enabled = enabled);
            let server = node(&rt, settings, &Meshes::new(1)).await;
            let mut client = Client::ready(&server, V4).await;
            client.with_table().await;
            client
                .must("CREATE TABLE ks.old (k int PRIMARY KEY, v int) WITH COMPACT STORAGE")
                .await;
            let text = |table: &str| format!("ALTER TABLE {table} DROP COMPACT STORAGE");
            let missing = client.query(&text("ks.nothing")).await;
            assert_eq!(refusal(&missing), "Table 'ks.nothing' doesn't exist");
            let old = client.query(&text("ks.old")).await;
            let new = client.query(&text("ks.t")).await;
            if enabled {
                assert!(!matches!(old.body, Body::Error(..)), "{:?}", old.body);
                let not_compact = "Cannot DROP COMPACT STORAGE on table without COMPACT STORAGE";
                assert_eq!(refusal(&new), not_compact);
            } else {
                let off = "DROP COMPACT STORAGE is disabled. Enable in cassandra.yaml to use.";
                assert_eq!((refusal(&old), refusal(&new)), (off, off));
            }
        });
    }
}
