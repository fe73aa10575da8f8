//! The full query log: which requests it has, with which fields; what a full queue does.

use super::roles::{login, server_with};
use super::*;
use conf::QueryLogOptions;
use cql_plan::auth::AccessRules;
use cql_wire::request::BatchList;
use cql_wire::{Batch, BatchKind, BatchQuery as SentQuery};
use query_log::format::{QUERY_LOG, next_record};
use query_log::record::{NO_NOW, NO_TIMESTAMP};
use query_log::{BatchQuery, LoggedStatement, LoggedValue, QueryRecord};
use query_logger::{EnableError, QueryLogMesh, QueryLogSettings, QueryLogger, QueryLoggerParts};

const DIRECTORY: &str = "/queries";

fn logger(rt: &Rt, server: &CqlServer) -> Rc<QueryLogger> {
    QueryLogger::new(QueryLoggerParts {
        rt: rt.clone(),
        executor: server.executor().clone(),
        mesh: QueryLogMesh::new(1, 64),
        archiver: None,
    })
}

fn log_settings() -> QueryLogSettings {
    QueryLogSettings { options: QueryLogOptions::default(), directory: DIRECTORY.to_owned() }
}

async fn names(rt: &Rt) -> Vec<String> {
    let entries = rt.fs().read_dir(DIRECTORY).await.unwrap();
    entries.into_iter().map(|entry| entry.name).collect()
}

async fn records(rt: &Rt) -> Vec<QueryRecord> {
    let mut records = Vec::new();
    for name in names(rt).await {
        let bytes = rt.fs().read(&format!("{DIRECTORY}/{name}"), 1 << 20).await.unwrap();
        QUERY_LOG.check_header(&bytes).unwrap();
        let mut at = 16;
        while let Some((record, length)) = next_record(&bytes[at..], at as u64).unwrap() {
            records.push(record);
            at += length;
        }
    }
    records
}

fn text(record: &QueryRecord) -> &str {
    match &record.statement {
        LoggedStatement::Single { query } => query,
        LoggedStatement::Batch { .. } => "batch",
    }
}

fn texts(records: &[QueryRecord]) -> Vec<&str> {
    records.iter().map(text).collect()
}

/// INV-querylogger-1.
#[test]
fn statements_that_succeeded_are_logged_with_what_repeats_them_and_no_other_requests() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        client.with_table().await;
        let logger = logger(&rt, &server);
        client.must("SELECT * FROM ks.t WHERE k = 0").await;
        logger.enable(log_settings()).await.unwrap();
        let millis = rt.wall().0 / 1000;
        client.must("SELECT * FROM ks.t WHERE k = 1").await;
        client.must("USE ks").await;
        let prepared = client.prepare("INSERT INTO t (k, c, v) VALUES (?, 8, ?)").await;
        client.execute(&prepared, &[&int(7), b"x"]).await;
        client.query("SELECT * FROM ks.missing").await.error();
        client.query("SELEC").await.error();
        let mut list = BatchList::new();
        let mut values = value_list(&[&int(9)]);
        values.push(cql_wire::BoundValue::Null).unwrap();
        list.push(SentQuery::Prepared(&prepared.id), values.values()).unwrap();
        let mut unset = value_list(&[&int(10)]);
        unset.push(cql_wire::BoundValue::Unset).unwrap();
        let text = "INSERT INTO ks.t (k, c, v) VALUES (?, 1, ?)";
        list.push(SentQuery::Text(text), unset.values()).unwrap();
        let parameters =
            QueryParameters { timestamp: Some(5), ..QueryParameters::new(Consistency::Quorum) };
        let batch = Batch { kind: BatchKind::Unlogged, statements: list.statements(), parameters };
        let got = client.ask(&Request::Batch(batch)).await;
        assert_eq!(got.body, Body::Void);
        logger.disable().await;
        client.must("SELECT * FROM ks.t WHERE k = 2").await;

        let records = records(&rt).await;
        assert_eq!(
            texts(&records),
            [
                "SELECT * FROM ks.t WHERE k = 1",
                "USE ks",
                "INSERT INTO t (k, c, v) VALUES (?, 8, ?)",
                "batch"
            ]
        );
        let [select, _, insert, batch] = &records[..] else { panic!("{records:?}") };
        assert!((millis..millis + 1000).contains(&select.start_millis));
        assert_eq!((select.protocol_version, select.keyspace.as_deref()), (5, None));
        assert_eq!(select.options[..6], [0, 1, 0, 0, 0, 0], "{:?}", select.options);
        assert_eq!(insert.keyspace.as_deref(), Some("ks"));
        // The values as they were sent.
        let sent = [0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 1, b'x'];
        assert!(insert.options.windows(sent.len()).any(|w| w == sent), "{:?}", insert.options);
        // The generated timestamp is that of the cell.
        let rows = client.must("SELECT writetime(v) FROM ks.t WHERE k = 7").await.rows();
        let written = rows.rows[0][0].as_deref().unwrap().try_into().unwrap();
        assert_eq!(insert.generated_timestamp, i64::from_be_bytes(written));
        assert_eq!(insert.generated_timestamp / 1_000_000, insert.generated_now);
        assert_eq!(batch.generated_timestamp, NO_TIMESTAMP);
        assert_ne!(batch.generated_now, NO_NOW);
        let LoggedStatement::Batch { kind, queries } = &batch.statement else { panic!() };
        assert_eq!(*kind, BatchKind::Unlogged);
        let bytes = |n: i32| LoggedValue::Bytes(int(n).to_vec());
        assert_eq!(
            *queries,
            [
                BatchQuery {
                    query: "INSERT INTO t (k, c, v) VALUES (?, 8, ?)".to_owned(),
                    values: vec![bytes(9), LoggedValue::Null],
                },
                BatchQuery { query: text.to_owned(), values: vec![bytes(10), LoggedValue::Unset] },
            ]
        );
    });
}

#[test]
fn passwords_are_not_logged() {
    run(|rt| async move {
        let access = AccessRules { passwords: true, permissions: true, ..AccessRules::default() };
        let settings = changed(with_password(), |query| query.access = access);
        let server = server_with(&rt, settings).await;
        let logger = logger(&rt, &server);
        logger.enable(log_settings()).await.unwrap();
        let mut root = login(&server, "root", "secret").await;
        root.must("CREATE ROLE r WITH PASSWORD = 'confidential' AND LOGIN = true").await;
        logger.disable().await;
        assert_eq!(
            texts(&records(&rt).await),
            ["CREATE ROLE r WITH PASSWORD = '*******' AND LOGIN = true"]
        );
    });
}

#[test]
fn the_log_is_switched_on_once_and_deletes_its_own_older_files_only() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let logger = logger(&rt, &server);
        assert_eq!(logger.settings(), None);
        logger.enable(log_settings()).await.unwrap();
        assert_eq!(logger.settings().unwrap().directory, DIRECTORY);
        assert_eq!(logger.enable(log_settings()).await, Err(EnableError::IsOn));
        client.must("SELECT * FROM ks.t WHERE k = 1").await;
        logger.disable().await;
        logger.disable().await;
        assert_eq!(records(&rt).await.len(), 1);
        let notes = format!("{DIRECTORY}/notes.txt");
        rt.fs().write_atomic(&notes, b"x".to_vec()).await.unwrap();
        logger.enable(log_settings()).await.unwrap();
        client.must("SELECT * FROM ks.t WHERE k = 2").await;
        logger.disable().await;
        rt.fs().remove_file(&notes).await.unwrap();
        assert_eq!(texts(&records(&rt).await), ["SELECT * FROM ks.t WHERE k = 2"]);
        logger.enable(log_settings()).await.unwrap();
        client.must("SELECT * FROM ks.t WHERE k = 3").await;
        logger.reset(Some("/missing")).await.unwrap();
        assert!(names(&rt).await.is_empty());
        assert_eq!(logger.settings(), None);
        client.must("SELECT * FROM ks.t WHERE k = 4").await;
        logger.close_files().await;
        assert!(names(&rt).await.is_empty());
    });
}

#[test]
fn a_directory_that_is_a_file_and_a_command_that_cannot_run_are_refused_and_the_log_stays_off() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let logger = logger(&rt, &server);
        rt.fs().write_atomic("/file", b"x".to_vec()).await.unwrap();
        let of_file = QueryLogSettings { directory: "/file".to_owned(), ..log_settings() };
        assert_eq!(logger.enable(of_file).await, Err(EnableError::Directory));
        let mut archives = log_settings();
        archives.options.log.archive_command = "x %path".to_owned();
        assert!(matches!(logger.enable(archives).await, Err(EnableError::Failed(_))));
        assert_eq!(logger.settings(), None);
        assert!(!server.executor().observers.is_on());
    });
}

/// Inserts a row; returns true if the answer is a result.
async fn inserts(client: &mut Client, k: i32) -> bool {
    let text = format!("INSERT INTO ks.t (k, c, v) VALUES ({k}, 1, '{}')", "x".repeat(400));
    match client.query(&text).await.body {
        Body::Void => true,
        Body::Error(code, message) => {
            assert_eq!(code, ErrorCode::Overloaded, "{message}");
            assert!(message.contains("cannot keep up"), "{message}");
            false
        }
        other => panic!("{other:?}"),
    }
}

/// A directory in which no file can be created: writes of the log fail until it is gone.
async fn block_writes(rt: &Rt) {
    let cycle = conf::RollCycle::of_name("HOURLY").unwrap();
    let header = QUERY_LOG.header();
    let files = audit::binlog::BinaryFiles { cycle, extension: ".fql", header };
    let name = audit::binlog::Layout::Binary(files).new_name(rt.wall(), &[], 0);
    rt.fs().create_dir_all(&format!("{DIRECTORY}/{name}")).await.unwrap();
}

#[test]
fn a_log_that_cannot_be_written_delays_and_refuses_with_block_and_drops_without() {
    for block in [true, false] {
        run(move |rt| async move {
            let server = node(&rt, settings(), &Meshes::new(1)).await;
            let mut client = Client::ready(&server, V4).await;
            client.with_table().await;
            let logger = logger(&rt, &server);
            let mut of_log = log_settings();
            of_log.options.log.block = block;
            of_log.options.log.max_queue_weight = 2000;
            logger.enable(of_log).await.unwrap();
            block_writes(&rt).await;
            let began = rt.now();
            let mut answered = 0;
            for k in 0..20 {
                answered += usize::from(inserts(&mut client, k).await);
            }
            let waited = rt.now().since(began);
            rt.fs().remove_dir_all(DIRECTORY).await.unwrap();
            logger.disable().await;
            let logged = records(&rt).await.len();
            if block {
                // Each insert is answered with its result only if its record is within the limit.
                assert!(answered < 10 && waited > Duration::from_secs(9), "{answered} {waited:?}");
                assert!(logged >= answered, "{logged} {answered}");
            } else {
                assert!(answered == 20 && waited < Duration::from_secs(1), "{waited:?}");
                assert!((1..10).contains(&logged), "{logged}");
            }
        });
    }
}
