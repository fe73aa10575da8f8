//! Roles that are kept to CIDR groups: over connections from several addresses.

use super::roles::{guarded, server_with};
use super::*;
use cluster::{AuthChange, Transformation, cidr};
use cql_plan::auth::{AccessRules, CidrRules};

fn settings_with(enforce: bool) -> ServerSettings {
    let cidrs = Some(CidrRules { enforce, superusers: false });
    let access = AccessRules { cidrs, ..guarded().query.access };
    changed(guarded(), |query| query.access = access)
}

async fn group(server: &CqlServer, name: &str, ranges: &[&str]) {
    let ranges = ranges.iter().map(|text| cidr::parse(text).unwrap()).collect();
    let change = AuthChange::PutCidrGroup { name: name.to_owned(), ranges };
    let membership = &server.executor().membership;
    let entry = Transformation::Auth(change);
    membership.submit(membership.snapshot().epoch, vec![entry]).await.unwrap();
}

async fn login_from(server: &CqlServer, address: &str, user: &str, password: &str) -> Client {
    let mut client = Client::from(server, V5, address.parse().unwrap());
    client.startup(&[]).await;
    let token = format!("\0{user}\0{password}");
    let got = client.ask(&Request::AuthResponse(Some(token.as_bytes()))).await;
    assert_eq!(got.body, Body::AuthSuccess, "{user}");
    client
}

/// `(group and result, number)` of the checks so far.
fn counted(server: &CqlServer) -> Vec<(String, u64)> {
    let metrics = server.inner().rt.telemetry().snapshot().metrics;
    let found = metrics.into_iter().filter(|m| m.name == "cql_cidr_accesses_total");
    let number = |value| match value {
        telemetry::Value::Counter(number) => number,
        other => panic!("{other:?}"),
    };
    let text = |labels: Vec<(&str, String)>| {
        labels.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join(" ")
    };
    found.map(|m| (text(m.labels), number(m.value))).collect()
}

#[test]
fn a_role_does_nothing_from_where_it_may_not_connect() {
    run(|rt| async move {
        let server = server_with(&rt, settings_with(true)).await;
        group(&server, "office", &["10.1.0.0/16", "2001:db8::/32"]).await;
        group(&server, "ten", &["10.0.0.0/8"]).await;
        let mut root = login_from(&server, "9.9.9.9:1", "root", "secret").await;
        root.with_table().await;
        for text in [
            "CREATE ROLE ann WITH PASSWORD = 'pw' AND LOGIN = true AND ACCESS FROM CIDRS {'office'}",
            "GRANT SELECT ON ks.t TO ann",
        ] {
            root.must(text).await;
        }
        let shown = root.query("SELECT JSON * FROM system_auth.cidr_permissions").await;
        let Body::Rows(shown) = &shown.body else { panic!("{:?}", shown.body) };
        assert_eq!(show(shown), [r#"{"role": "ann", "cidr_groups": ["office"]}"#]);
        let shown = root.query("SELECT JSON * FROM system_auth.cidr_groups").await;
        let Body::Rows(shown) = &shown.body else { panic!("{:?}", shown.body) };
        let mut shown = show(shown);
        shown.sort();
        let office = r#"[["10.1.0.0", 16], ["2001:db8:0:0:0:0:0:0", 32]]"#;
        let office = format!(r#"{{"cidr_group": "office", "cidrs": {office}}}"#);
        let ten = r#"{"cidr_group": "ten", "cidrs": [["10.0.0.0", 8]]}"#;
        assert_eq!(shown, [&office, ten]);

        let mut inside = login_from(&server, "10.1.2.3:1", "ann", "pw").await;
        let mut outside = login_from(&server, "10.2.0.1:1", "ann", "pw").await;
        let mut mapped = login_from(&server, "[::ffff:10.1.0.1]:1", "ann", "pw").await;
        let read = "SELECT c FROM ks.t";
        let prepared = inside.prepare(read).await;
        inside.must(read).await;
        mapped.must(read).await;
        let text = "You do not have access from this IP 10.2.0.1";
        let refused = (ErrorCode::Unauthorized, text.to_owned());
        for statement in [read, "SELECT * FROM system.local", "USE ks", "LIST ROLES"] {
            assert_eq!(outside.query(statement).await.error(), refused, "{statement}");
        }
        // A plan that was allowed from elsewhere is not from here.
        inside.execute(&prepared, &[]).await.rows();
        assert_eq!(outside.execute(&prepared, &[]).await.error(), refused);
        // A change counts from the next statement on.
        group(&server, "office", &["10.2.0.0/16"]).await;
        outside.must(read).await;
        let text = "You do not have access from this IP 10.1.2.3";
        assert_eq!(inside.query(read).await.error(), (ErrorCode::Unauthorized, text.to_owned()));
        root.must("ALTER ROLE ann WITH ACCESS FROM ALL CIDRS").await;
        inside.must(read).await;
        let counted = counted(&server);
        assert!(counted.iter().any(|(what, n)| what == "office accepted" && *n > 3), "{counted:?}");
        assert!(counted.iter().any(|(what, n)| what == "ten rejected" && *n > 3), "{counted:?}");
    });
}

#[test]
fn where_roles_connect_from_is_only_counted_in_mode_monitor() {
    run(|rt| async move {
        let server = server_with(&rt, settings_with(false)).await;
        group(&server, "office", &["10.1.0.0/16"]).await;
        let mut root = login_from(&server, "9.9.9.9:1", "root", "secret").await;
        root.with_table().await;
        root.must(
            "CREATE ROLE ann WITH PASSWORD = 'pw' AND LOGIN = true AND ACCESS FROM CIDRS {'office'}",
        )
        .await;
        root.must("GRANT SELECT ON ks.t TO ann").await;
        let mut outside = login_from(&server, "11.0.0.1:1", "ann", "pw").await;
        outside.must("SELECT c FROM ks.t").await;
        let mut inside = login_from(&server, "10.1.0.1:1", "ann", "pw").await;
        inside.must("SELECT c FROM ks.t").await;
        let counted = counted(&server);
        let names: Vec<&str> = counted.iter().map(|(what, _)| what.as_str()).collect();
        assert_eq!(names, ["Undefined accepted", "office accepted"]);
    });
}
