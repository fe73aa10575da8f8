//! Statements that the node executes for itself, with rows in memory.

use super::roles::server_with;
use super::*;
use query::{Executor, Outcome, Rows, execute_for_node, select_for_node};

async fn ask(executor: &Rc<Executor>, text: &str) -> Outcome {
    let parameters = QueryParameters::new(Consistency::One);
    match execute_for_node(executor, text, &parameters).await {
        Ok(result) => result.outcome,
        Err(failure) => panic!("{text}: {failure:?}"),
    }
}

async fn rows(executor: &Rc<Executor>, text: &str) -> Rows {
    match ask(executor, text).await {
        Outcome::Rows(rows) => rows,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn values_come_typed_and_null_where_there_is_none() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let executor = server.executor().clone();
        Client::ready(&server, V4).await.with_table().await;
        ask(&executor, "CREATE TABLE ks.typed (k int PRIMARY KEY, n bigint, v text)").await;
        let written = ask(&executor, "INSERT INTO ks.typed (k, n, v) VALUES (1, -5, 'x')").await;
        assert!(matches!(written, Outcome::Void), "{written:?}");
        ask(&executor, "INSERT INTO ks.typed (k, n) VALUES (2, 7)").await;
        let found = rows(&executor, "SELECT k, n, v FROM ks.typed WHERE k IN (1, 2)").await;
        let shown: Vec<_> =
            found.iter().map(|r| (r.int("k"), r.bigint("n"), r.text("v"))).collect();
        assert_eq!(shown, [(Some(1), Some(-5), Some("x")), (Some(2), Some(7), None)]);
        let first = found.iter().next().unwrap();
        assert_eq!((first.bigint("k"), first.int("n"), first.bytes("none")), (None, None, None));
        // Rows that are made come in the same form.
        let made = rows(&executor, "DESCRIBE KEYSPACES").await;
        assert!(made.iter().any(|row| row.text("keyspace_name") == Some("ks")));
        // Conditions are decided here.
        let refused = rows(&executor, "INSERT INTO ks.typed (k) VALUES (1) IF NOT EXISTS").await;
        let row = refused.iter().next().unwrap();
        assert_eq!((row.bytes("[applied]"), row.bigint("n")), (Some(&[0_u8][..]), Some(-5)));
    });
}

#[test]
fn all_pages_of_a_scan_are_read() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let executor = server.executor().clone();
        Client::ready(&server, V4).await.with_table().await;
        for c in 0..1_001 {
            ask(&executor, &format!("INSERT INTO ks.t (k, c, v) VALUES (1, {c}, 'x')")).await;
        }
        let pages = select_for_node(&executor, "SELECT c FROM ks.t").await.unwrap();
        assert_eq!(pages.iter().map(Rows::len).collect::<Vec<_>>(), [1_000, 1]);
        let all: Vec<i32> =
            pages.iter().flat_map(|page| page.iter().filter_map(|r| r.int("c"))).collect();
        assert_eq!(all, (0..1_001).collect::<Vec<_>>());
        assert!(select_for_node(&executor, "TRUNCATE ks.t").await.is_err());
    });
}

#[test]
fn no_rule_about_users_holds_for_the_node_and_failures_are_values() {
    run(|rt| async move {
        let server = server_with(&rt, roles::guarded()).await;
        let executor = server.executor().clone();
        let found = rows(&executor, "SELECT role FROM system_auth.roles WHERE role = 'me'").await;
        assert_eq!(found.len(), 1);
        let parameters = QueryParameters::new(Consistency::One);
        let missing = execute_for_node(&executor, "SELECT * FROM ks.missing", &parameters).await;
        assert_eq!(missing.unwrap_err().code(), ErrorCode::Invalid);
    });
}
