//! Batches of a node: which go through the batch log, and what its replay does.

use super::*;
use coordinator::BatchReplay;
use cql_plan::plan::{ExecuteOptions, PlanContext, PlanKind, plan};
use stdx::TimestampMicros;

async fn start(rt: &Rt) -> (CqlServer, Client) {
    let server = node(rt, settings(), &Meshes::new(1)).await;
    let mut client = Client::ready(&server, V4).await;
    client
        .must(
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
        )
        .await;
    for table in ["a", "b"] {
        client.must(&format!("CREATE TABLE ks.{table} (k int PRIMARY KEY, v int)")).await;
    }
    (server, client)
}

async fn count(client: &mut Client, table: &str) -> usize {
    client.must(&format!("SELECT * FROM {table}")).await.rows().rows.len()
}

fn logged(rt: &Rt) -> u64 {
    match rt.telemetry().snapshot().find("batchlog_writes_total").map(|m| &m.value) {
        Some(telemetry::Value::Counter(n)) => *n,
        other => panic!("{other:?}"),
    }
}

/// The mutation of an INSERT.
fn mutation(server: &CqlServer, text: &str) -> Vec<u8> {
    let executor = server.executor();
    let (schema, now) = (executor.schema(), executor.rt.wall());
    let context = PlanContext {
        schema: &schema,
        keyspace: None,
        limits: &executor.plan_limits,
        now,
        functions: None,
    };
    let planned = plan(&cql_syntax::parse(text).unwrap(), &context).unwrap();
    let PlanKind::Modify(plan) = &planned.kind else { panic!("no INSERT") };
    let options = ExecuteOptions {
        now,
        clock: now,
        default_timestamp: TimestampMicros(now.0),
        page_size: None,
        paging_state: None,
        protocol_version: 4,
        uuids: &executor.uuids,
        watch: None,
    };
    let mut out = Vec::new();
    plan.bind(&[], &options, &mut out).unwrap();
    out
}

/// Logs a batch whose coordinator then abandons it.
async fn abandon(server: &CqlServer, mutations: &[&[u8]]) {
    let executor = server.executor();
    let mut next_id = || executor.next_time_uuid();
    let schema = executor.schema();
    drop(
        executor
            .coordinator
            .batches()
            .log()
            .log_batch(&schema, mutations, &mut next_id)
            .await
            .unwrap(),
    );
}

async fn replay(server: &CqlServer) -> BatchReplay {
    let snapshot = server.executor().snapshot().clone();
    server.executor().coordinator.batches().replay_batches(&snapshot).await
}

const BATCH: &str = "INSERT INTO ks.a (k, v) VALUES (1, 1); INSERT INTO ks.b (k, v) VALUES \
                     (1, 1); APPLY BATCH";

#[test]
fn only_logged_batches_of_several_mutations_go_through_the_batch_log() {
    run(|rt| async move {
        let (_server, mut client) = start(&rt).await;
        client.must("INSERT INTO ks.a (k, v) VALUES (0, 0)").await;
        client.must(&format!("BEGIN UNLOGGED BATCH {BATCH}")).await;
        let one = "BEGIN BATCH INSERT INTO ks.a (k, v) VALUES (2, 1); UPDATE ks.a SET v = 2 \
                   WHERE k = 2; APPLY BATCH";
        client.must(one).await;
        assert_eq!(logged(&rt), 0);
        client.must(&format!("BEGIN BATCH {BATCH}")).await;
        assert_eq!(logged(&rt), 1);
        assert_eq!(count(&mut client, "system.batches").await, 0);
        assert_eq!((count(&mut client, "ks.a").await, count(&mut client, "ks.b").await), (3, 1));
    });
}

#[test]
fn an_abandoned_batch_is_replayed_once_and_leaves_the_log() {
    run(|rt| async move {
        let (server, mut client) = start(&rt).await;
        let a = mutation(&server, "INSERT INTO ks.a (k, v) VALUES (1, 1)");
        let b = mutation(&server, "INSERT INTO ks.b (k, v) VALUES (1, 1)");
        abandon(&server, &[&a, &b]).await;
        assert_eq!(count(&mut client, "system.batches").await, 1);
        assert_eq!(count(&mut client, "ks.a").await, 0);
        let done = BatchReplay { batches: 1, mutations: 2, ..BatchReplay::default() };
        assert_eq!(replay(&server).await, done);
        assert_eq!(count(&mut client, "system.batches").await, 0);
        assert_eq!((count(&mut client, "ks.a").await, count(&mut client, "ks.b").await), (1, 1));
        assert!(replay(&server).await.is_empty());
    });
}

#[test]
fn a_replay_leaves_out_what_was_dropped_or_truncated_since_and_what_is_no_mutation() {
    run(|rt| async move {
        let (server, mut client) = start(&rt).await;
        client.must("CREATE TABLE ks.c (k int PRIMARY KEY)").await;
        let a = mutation(&server, "INSERT INTO ks.a (k, v) VALUES (1, 1)");
        let b = mutation(&server, "INSERT INTO ks.b (k, v) VALUES (1, 1)");
        let c = mutation(&server, "INSERT INTO ks.c (k) VALUES (1)");
        abandon(&server, &[&a, &b, &c, &a[..a.len() - 1]]).await;
        client.must("TRUNCATE ks.a").await;
        client.must("DROP TABLE ks.c").await;
        let expect = BatchReplay {
            batches: 1,
            mutations: 1,
            obsolete: 2,
            lost: 1,
            ..BatchReplay::default()
        };
        assert_eq!(replay(&server).await, expect);
        assert_eq!((count(&mut client, "ks.a").await, count(&mut client, "ks.b").await), (0, 1));
        // Written after the truncation: applied.
        abandon(&server, &[&a, &b]).await;
        assert_eq!(replay(&server).await.mutations, 2);
        assert_eq!(count(&mut client, "ks.a").await, 1);
    });
}

#[test]
fn a_batch_older_than_the_grace_of_a_table_is_dropped() {
    run(|rt| async move {
        let (server, mut client) = start(&rt).await;
        let a = mutation(&server, "INSERT INTO ks.a (k, v) VALUES (1, 1)");
        let b = mutation(&server, "INSERT INTO ks.b (k, v) VALUES (1, 1)");
        client.must("ALTER TABLE ks.b WITH gc_grace_seconds = 2").await;
        abandon(&server, &[&a, &b]).await;
        assert_eq!(replay(&server).await.past_grace, 0);
        abandon(&server, &[&a, &b]).await;
        rt.sleep(std::time::Duration::from_secs(3)).await;
        let report = replay(&server).await;
        assert_eq!((report.past_grace, report.batches, report.mutations), (1, 1, 0));
        assert_eq!(count(&mut client, "system.batches").await, 0);
    });
}

#[test]
fn the_background_replay_takes_what_was_left_behind_after_twice_the_timeout() {
    run(|rt| async move {
        let (server, mut client) = start(&rt).await;
        let inner = server.executor().clone();
        let snapshot = inner.snapshot().clone();
        let timeout = std::time::Duration::from_secs(8);
        inner.coordinator.batches().start_batch_replay(timeout, move || snapshot.clone(), |_| ());
        let a = mutation(&server, "INSERT INTO ks.a (k, v) VALUES (1, 1)");
        abandon(&server, &[&a]).await;
        rt.sleep(std::time::Duration::from_secs(15)).await;
        assert_eq!(count(&mut client, "ks.a").await, 0);
        rt.sleep(std::time::Duration::from_secs(10)).await;
        assert_eq!(count(&mut client, "ks.a").await, 1);
        assert_eq!(count(&mut client, "system.batches").await, 0);
        inner.coordinator.stop().await;
    });
}

#[test]
fn a_batch_that_the_log_does_not_take_has_no_effect() {
    run(|rt| async move {
        let (server, mut client) = start(&rt).await;
        server.executor().coordinator.store().drain().await.unwrap();
        let got = client.query(&format!("BEGIN BATCH {BATCH}")).await;
        assert!(matches!(got.body, Body::Error(ErrorCode::Overloaded, _)), "{got:?}");
        assert_eq!(count(&mut client, "ks.a").await, 0);
    });
}
