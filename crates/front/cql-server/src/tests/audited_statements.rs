//! The audit log of prepared statements that clients execute again, as it is written.

use super::*;
use audit::{AuditMesh, AuditSettings, Auditor, AuditorParts};
use conf::{AuditLogger, AuditOptions, Options};

fn audit_settings(excluded_keyspaces: &str) -> AuditSettings {
    let audit_logging_options = AuditOptions {
        enabled: true,
        logger: AuditLogger::File,
        audit_logs_dir: Some("/audit".to_owned()),
        excluded_keyspaces: excluded_keyspaces.to_owned(),
        ..AuditOptions::default()
    };
    let options = Options { audit_logging_options, ..Options::default() };
    AuditSettings::new(&options, "127.0.0.1:7000".parse().unwrap())
}

/// The lines so far, from the user on, without times; each has a time of the test.
async fn lines(rt: &Rt, began_millis: i64) -> Vec<String> {
    rt.sleep(Duration::from_secs(1)).await;
    let bytes = rt.fs().read("/audit/audit.log", 1 << 20).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let one = |line: &str| {
        let (_, fields) = line.split_once("FileAuditLogger.java:51 - ").unwrap();
        let (before, rest) = fields.split_once("|timestamp:").unwrap();
        let (millis, after) = rest.split_once('|').unwrap();
        let millis: i64 = millis.parse().unwrap();
        assert!((began_millis..=rt.wall().0 / 1000).contains(&millis), "{line}");
        format!("{before}|{after}")
    };
    text.lines().map(one).collect()
}

#[test]
fn each_execution_of_a_prepared_statement_has_the_line_of_its_client_and_keyspace() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut one = Client::ready(&server, V5).await;
        one.with_table().await;
        let mut other = Client::from(&server, V5, "10.0.0.9:4711".parse().unwrap());
        other.startup(&[]).await;
        let select = one.prepare("SELECT v FROM ks.t WHERE k = ? AND c = 1").await;
        let batch = "BEGIN BATCH INSERT INTO ks.t (k, c) VALUES (?, 1) APPLY BATCH";
        let batch = one.prepare(batch).await;
        let auditor = Auditor::new(AuditorParts {
            rt: rt.clone(),
            executor: server.executor().clone(),
            mesh: AuditMesh::new(1, 64),
            helper: None,
            settings: audit_settings("system"),
        });
        auditor.change(audit_settings("system")).await.unwrap();
        let began = rt.wall().0 / 1000;
        for client in [&mut one, &mut other] {
            for k in 0..3 {
                client.execute(&select, &[&int(k)]).await;
            }
        }
        // A batch has the keyspace of the last USE. That of the system is excluded.
        one.execute(&batch, &[&int(1)]).await;
        one.must("USE ks").await;
        one.execute(&batch, &[&int(1)]).await;
        one.execute(&batch, &[&int(1)]).await;
        one.must("USE system").await;
        one.execute(&batch, &[&int(1)]).await;
        // One that fails.
        one.execute(&select, &[b"no int"]).await;
        let written = lines(&rt, began).await;
        let of = |source: &str, rest: &str| {
            format!("user:anonymous|host:/127.0.0.1:7000|source:/{source}|{rest}")
        };
        let (own, far) = ("127.0.0.1|port:50000", "10.0.0.9|port:4711");
        let select_text = "operation:SELECT v FROM ks.t WHERE k = ? AND c = 1";
        let read = format!("type:SELECT|category:QUERY|ks:ks|scope:t|{select_text}");
        let text = "operation:BEGIN BATCH INSERT INTO ks.t (k, c) VALUES (?, 1) APPLY BATCH";
        let plain = format!("type:BATCH|category:DML|{text}");
        let used = format!("type:BATCH|category:DML|ks:ks|{text}");
        let use_ks = "type:USE_KEYSPACE|category:OTHER|ks:ks|operation:USE ks";
        let mut expected = vec![of(own, &read); 3];
        expected.extend(vec![of(far, &read); 3]);
        expected.extend([of(own, &plain), of(own, use_ks), of(own, &used), of(own, &used)]);
        let (last, others) = written.split_last().unwrap();
        assert_eq!(others, expected);
        assert!(last.contains("|type:REQUEST_FAILURE|category:ERROR|"), "{last}");
        assert!(last.contains("|operation:SELECT v FROM ks.t WHERE k = ? AND c = 1; "), "{last}");
        // Other settings discard the known events.
        auditor.change(audit_settings("ks")).await.unwrap();
        let before = lines(&rt, began).await.len();
        other.execute(&select, &[&int(1)]).await;
        assert_eq!(lines(&rt, began).await.len(), before);
        other.execute(&batch, &[&int(1)]).await;
        let written = lines(&rt, began).await;
        assert_eq!(written[before..], [of(far, &plain)]);
        auditor.stop().await;
        auditor.close_files().await;
    });
}
