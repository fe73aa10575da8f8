//! Timestamps that clients may not give.

use super::*;
use crate::TimestampGuardrails;
use cql_wire::request::BatchList;
use cql_wire::{Batch, BatchKind, BatchQuery};

const DAY: i64 = 86_400_000_000;

fn guarded(timestamps: TimestampGuardrails) -> ServerSettings {
    ServerSettings { timestamps, ..settings() }
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
