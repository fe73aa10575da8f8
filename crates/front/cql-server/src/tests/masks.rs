//! Masks of columns over the wire: the values that each role sees. A shared plan must not cache the
//! decision.

use super::roles::{guarded, login, server_with};
use super::*;

fn masking() -> ServerSettings {
    changed(guarded(), |query| query.dynamic_data_masking_enabled = true)
}

/// `ks.m` with a row, and the roles `reader`, `asker` and `seer`.
async fn with_masks(server: &CqlServer) -> Client {
    let mut root = login(server, "root", "secret").await;
    root.with_table().await;
    for text in [
        "CREATE TABLE ks.m (k int PRIMARY KEY, b text MASKED WITH mask_inner(1, 1), p text)",
        "INSERT INTO ks.m (k, b, p) VALUES (1, 'hidden', 'plain')",
        "CREATE ROLE reader WITH PASSWORD = 'pw' AND LOGIN = true",
        "CREATE ROLE asker WITH PASSWORD = 'pw' AND LOGIN = true",
        "CREATE ROLE seer WITH PASSWORD = 'pw' AND LOGIN = true",
        "GRANT SELECT ON ks.m TO reader",
        "GRANT MODIFY ON ks.m TO reader",
        "GRANT SELECT ON ks.m TO asker",
        "GRANT SELECT_MASKED ON KEYSPACE ks TO asker",
        "GRANT SELECT ON ks.m TO seer",
        "GRANT UNMASK ON ALL KEYSPACES TO seer",
    ] {
        root.must(text).await;
    }
    root
}

fn rows(got: &Got) -> Vec<String> {
    match &got.body {
        Body::Rows(rows) => show(rows),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_role_sees_what_it_may_also_through_a_statement_that_another_prepared() {
    run(|rt| async move {
        let server = server_with(&rt, masking()).await;
        let mut root = with_masks(&server).await;
        let prepared = root.prepare("SELECT b, p FROM ks.m WHERE k = 1").await;
        let asked = root.prepare("SELECT p FROM ks.m WHERE b = 'hidden' ALLOW FILTERING").await;
        let mut clients = Vec::new();
        for user in ["reader", "asker", "seer"] {
            clients.push(login(&server, user, "pw").await);
        }
        let [reader, asker, seer] = clients.as_mut_slice() else { panic!("three") };
        // Alternately: the user that asked before must not matter.
        for _ in 0..2 {
            assert_eq!(rows(&root.execute(&prepared, &[]).await), ["hidden plain"]);
            assert_eq!(rows(&reader.execute(&prepared, &[]).await), ["h****n plain"]);
            assert_eq!(rows(&seer.execute(&prepared, &[]).await), ["hidden plain"]);
            assert_eq!(rows(&asker.execute(&prepared, &[]).await), ["h****n plain"]);
            assert_eq!(rows(&asker.execute(&asked, &[]).await), ["plain"]);
            assert_eq!(rows(&seer.execute(&asked, &[]).await), ["plain"]);
            let (code, message) = reader.execute(&asked, &[]).await.error();
            assert_eq!(code, ErrorCode::Unauthorized);
            assert_eq!(
                message,
                "User reader has no UNMASK nor SELECT_MASKED permission on table ks.m, cannot \
                 query masked columns [b]"
            );
        }
        let serial = QueryParameters::new(Consistency::Serial);
        let query = "SELECT b FROM ks.m WHERE k = 1";
        let got = reader.ask(&Request::Query { query, parameters: serial }).await;
        assert_eq!(rows(&got), ["h****n"]);
        // From the next statement on.
        root.must("GRANT UNMASK ON ks.m TO reader").await;
        assert_eq!(rows(&reader.execute(&prepared, &[]).await), ["hidden plain"]);
        root.must("REVOKE UNMASK ON ks.m FROM reader").await;
        assert_eq!(rows(&reader.execute(&prepared, &[]).await), ["h****n plain"]);
        root.must("ALTER TABLE ks.m ALTER b MASKED WITH DEFAULT").await;
        assert_eq!(rows(&reader.execute(&prepared, &[]).await), ["**** plain"]);
        root.must("ALTER TABLE ks.m ALTER b DROP MASKED").await;
        assert_eq!(rows(&reader.execute(&prepared, &[]).await), ["hidden plain"]);
    });
}

#[test]
fn a_wrong_argument_of_a_mask_is_found_at_execution_behind_permissions() {
    run(|rt| async move {
        let server = server_with(&rt, masking()).await;
        let mut root = with_masks(&server).await;
        root.must("ALTER TABLE ks.m ALTER b MASKED WITH mask_inner(1, 1, 'two')").await;
        let wrong = "The padding argument for function system.mask_inner should be \
                     single-character, but 'two' has 3 characters.";
        // PREPARE does not compute it.
        let prepared = root.prepare("SELECT b FROM ks.m WHERE k = 1").await;
        let mut reader = login(&server, "reader", "pw").await;
        for client in [&mut root, &mut reader] {
            let (code, message) = client.execute(&prepared, &[]).await.error();
            assert_eq!((code, message.as_str()), (ErrorCode::Invalid, wrong));
        }
        assert_eq!(rows(&reader.must("SELECT p FROM ks.m WHERE k = 1").await), ["plain"]);
        root.must("REVOKE SELECT ON ks.m FROM reader").await;
        let (code, _) = reader.execute(&prepared, &[]).await.error();
        assert_eq!(code, ErrorCode::Unauthorized);
    });
}

#[test]
fn masks_are_refused_and_have_no_effect_while_masking_is_off() {
    run(|rt| async move {
        let server = server_with(&rt, guarded()).await;
        let mut root = login(&server, "root", "secret").await;
        root.with_table().await;
        for text in [
            "CREATE TABLE ks.m (k int PRIMARY KEY, b text MASKED WITH DEFAULT)",
            "CREATE TABLE IF NOT EXISTS ks.t (k int PRIMARY KEY, b text MASKED WITH nothing())",
            "ALTER TABLE ks.t ALTER v MASKED WITH DEFAULT",
        ] {
            let (code, message) = root.query(text).await.error();
            assert_eq!(code, ErrorCode::Invalid, "{text}");
            let expected = "Cannot mask columns because dynamic data masking is not enabled. You \
                            can enable it with the dynamic_data_masking_enabled property on \
                            cassandra.yaml";
            assert_eq!(message, expected, "{text}");
        }
        root.must("ALTER TABLE ks.t ALTER v DROP MASKED").await;
        // Cassandra does not look at the setting here.
        root.must("ALTER TABLE ks.t ADD w text MASKED WITH DEFAULT").await;
        root.must("INSERT INTO ks.t (k, c, w) VALUES (1, 1, 'shown')").await;
        root.must("CREATE ROLE reader WITH PASSWORD = 'pw' AND LOGIN = true").await;
        root.must("GRANT SELECT ON ks.t TO reader").await;
        let mut reader = login(&server, "reader", "pw").await;
        assert_eq!(rows(&reader.must("SELECT w FROM ks.t").await), ["shown"]);
    });
}
