//! Roles over the wire: logging in, statements about roles, what a role may do.

use super::*;
use cql_plan::auth::AccessRules;

/// Permissions are checked.
pub(super) fn guarded() -> ServerSettings {
    let access = AccessRules { passwords: true, permissions: true, ..AccessRules::default() };
    changed(with_password(), |query| query.access = access)
}

/// A server whose only superuser is `root` with the password `secret`.
async fn guarded_server(rt: &Rt) -> CqlServer {
    server_with(rt, guarded()).await
}

pub(super) async fn server_with(rt: &Rt, settings: ServerSettings) -> CqlServer {
    let server = node(rt, settings, &Meshes::new(1)).await;
    let membership = &server.executor().membership;
    let salted_hash = bcrypt::hash_with_salt("secret", 4, [7; 16]).unwrap();
    let salted_hash = salted_hash.format_for_version(bcrypt::Version::TwoA);
    let role = Role { is_superuser: true, can_login: true, salted_hash };
    let root = Transformation::PutRole { name: "root".to_owned(), role };
    membership.submit(membership.snapshot().epoch, vec![root]).await.unwrap();
    server
}

pub(super) async fn login(server: &CqlServer, user: &str, password: &str) -> Client {
    let mut client = Client::new(server, V5);
    client.startup(&[]).await;
    let token = format!("\0{user}\0{password}");
    let got = client.ask(&Request::AuthResponse(Some(token.as_bytes()))).await;
    assert_eq!(got.body, Body::AuthSuccess, "{user}");
    client
}

/// INV-access-1.
#[test]
fn a_role_does_what_it_was_granted_from_the_next_statement_on() {
    run(|rt| async move {
        let server = guarded_server(&rt).await;
        let mut root = login(&server, "root", "secret").await;
        root.with_table().await;
        root.must("CREATE ROLE reader WITH PASSWORD = 'pw' AND LOGIN = true").await;
        let mut reader = login(&server, "reader", "pw").await;
        reader.must("SELECT * FROM system.local").await;
        let select = "SELECT k, c, v FROM ks.t";
        let denied = |permission: &str| {
            let message = format!(
                "User reader has no {permission} permission on <table ks.t> or any of its parents"
            );
            (ErrorCode::Unauthorized, message)
        };
        assert_eq!(reader.query(select).await.error(), denied("SELECT"));
        // Prepared by a role with the permission, executed by one without it.
        let prepared = root.prepare(select).await;
        root.execute(&prepared, &[]).await;
        assert_eq!(reader.execute(&prepared, &[]).await.error(), denied("SELECT"));
        root.must("GRANT SELECT ON ks.t TO reader").await;
        assert!(matches!(reader.execute(&prepared, &[]).await.body, Body::Rows(_)));
        assert!(matches!(root.execute(&prepared, &[]).await.body, Body::Rows(_)));
        assert!(matches!(reader.query(select).await.body, Body::Rows(_)));
        let insert = "INSERT INTO ks.t (k, c) VALUES (1, 1)";
        assert_eq!(reader.query(insert).await.error(), denied("MODIFY"));
        let conditional = "INSERT INTO ks.t (k, c) VALUES (1, 1) IF NOT EXISTS";
        assert_eq!(reader.query(conditional).await.error(), denied("MODIFY"));
        let batch = format!("BEGIN BATCH {insert}; APPLY BATCH");
        assert_eq!(reader.query(&batch).await.error(), denied("MODIFY"));
        assert_eq!(reader.query("TRUNCATE ks.t").await.error(), denied("MODIFY"));
        assert_eq!(reader.query("DROP TABLE ks.t").await.error(), denied("DROP"));
        root.must("REVOKE SELECT ON ks.t FROM reader").await;
        assert_eq!(reader.execute(&prepared, &[]).await.error(), denied("SELECT"));
        root.must("DROP ROLE reader").await;
        assert_eq!(reader.query(select).await.error(), denied("SELECT"));
    });
}

#[test]
fn who_creates_a_table_owns_it_until_it_is_dropped() {
    run(|rt| async move {
        let server = guarded_server(&rt).await;
        let mut root = login(&server, "root", "secret").await;
        root.with_table().await;
        root.must("CREATE ROLE maker WITH PASSWORD = 'pw' AND LOGIN = true").await;
        root.must("GRANT CREATE ON KEYSPACE ks TO maker").await;
        let mut maker = login(&server, "maker", "pw").await;
        maker.must("CREATE TABLE ks.own (k int PRIMARY KEY)").await;
        maker.must("INSERT INTO ks.own (k) VALUES (1)").await;
        maker.must("TRUNCATE ks.own").await;
        let listed = "LIST ALL PERMISSIONS ON ks.own OF maker NORECURSIVE";
        let Body::Rows(rows) = maker.query(listed).await.body else { panic!("no rows") };
        assert_eq!(
            show(&rows),
            ["ALTER", "DROP", "SELECT", "MODIFY", "AUTHORIZE", "UNMASK", "SELECT_MASKED"]
                .map(|p| format!("maker maker <table ks.own> {p}"))
        );
        maker.must("DROP TABLE ks.own").await;
        root.must("CREATE TABLE ks.own (k int PRIMARY KEY)").await;
        let (code, _) = maker.query("SELECT * FROM ks.own").await.error();
        assert_eq!(code, ErrorCode::Unauthorized);
    });
}

#[test]
fn passwords_are_hashed_and_changed_and_never_shown() {
    run(|rt| async move {
        let server = guarded_server(&rt).await;
        let mut root = login(&server, "root", "secret").await;
        root.must("CREATE USER anne WITH PASSWORD 'first'").await;
        let mut anne = login(&server, "anne", "first").await;
        anne.must("ALTER ROLE anne WITH PASSWORD = 'second'").await;
        login(&server, "anne", "second").await;
        let roles = "SELECT role, salted_hash FROM system_auth.roles WHERE role = 'anne'";
        let (code, _) = anne.query(roles).await.error();
        assert_eq!(code, ErrorCode::Unauthorized);
        let Body::Rows(rows) = root.query(roles).await.body else { panic!("no rows") };
        let shown = show(&rows);
        assert!(shown.len() == 1 && shown[0].starts_with("anne $2a$10$"), "{shown:?}");
        let mut old = Client::new(&server, V5);
        old.startup(&[]).await;
        let got = old.ask(&Request::AuthResponse(Some(b"\0anne\0first"))).await;
        assert_eq!(got.error().0, ErrorCode::BadCredentials);
    });
}

#[test]
fn nobody_changes_roles_where_nobody_logs_in() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::new(&server, V5);
        client.startup(&[]).await;
        for text in ["CREATE ROLE x", "DROP ROLE me", "GRANT me TO guest", "LIST ROLES"] {
            let (code, message) = client.query(text).await.error();
            assert_eq!(code, ErrorCode::Unauthorized);
            let expected = "You have to be logged in and not anonymous to perform this request";
            assert_eq!(message, expected, "{text}");
        }
        let rows = client.query("SELECT role FROM system_auth.roles").await;
        let Body::Rows(rows) = rows.body else { panic!("no rows") };
        assert_eq!(rows.rows.len(), 2);
    });
}
