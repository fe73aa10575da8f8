//! Whole nodes in the simulator, looked at from their first shard.
#![allow(clippy::disallowed_types, reason = "facts are shared with the world's main function")]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conf::{CommitFailurePolicy, DiskFailurePolicy, Options};
use cql_server::CqlServer;
use data::command::{KeyRange, Partitions, ReadCommand};
use data::{ColumnRef, RowRef};
use rt::Rt;
use rt::sim::{World, WorldOptions};
use schema::Table;
use stdx::{IoError, IoErrorKind, Token};
use store::{Flow, RowSink, Store, StoreError};

use crate::{Node, Outcome, ReadyHook, StartError, TopologyError};

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Runs `look` on the first shard of a node that is ready; the node's outcome.
fn with_node(
    seed: u64,
    options: Options,
    look: impl Fn(Rt, CqlServer, Store) -> Work + Send + Sync + 'static,
) -> Arc<Outcome> {
    let world = World::new(seed, WorldOptions::default());
    let outcome = Arc::new(Outcome::default());
    let done = Arc::new(Mutex::new(false));
    let flag = done.clone();
    let hook: ReadyHook = Arc::new(move |rt, server, store| {
        let (work, flag) = (look(rt, server, store), flag.clone());
        Box::pin(async move {
            work.await;
            *flag.lock().unwrap() = true;
        })
    });
    let options = Options { workdir: "/n1".to_owned(), ..options };
    let (spec, main) = Node::prepare_with("n1", options, outcome.clone(), Some(hook));
    world.start_node(spec, main);
    world.run_until(|| *done.lock().unwrap(), Duration::from_secs(3600)).unwrap();
    outcome
}

/// Texts and numbers of a table's rows, one line each: the columns of these names.
struct Lines<'t> {
    table: &'t Table,
    names: &'t [&'t str],
    key: String,
    found: Vec<String>,
}

impl RowSink for Lines<'_> {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.key = String::from_utf8_lossy(key).into_owned();
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        let cell = |name: &&str| {
            let column = self.table.column(name)?;
            match row.column(column.id)? {
                ColumnRef::Simple(cell) => Some(column.ty.format_plain(cell.value)),
                ColumnRef::Complex(cells) => Some(cells.cells().count().to_string()),
            }
        };
        let mut line = vec![self.key.clone()];
        line.extend(self.names.iter().map(|name| cell(name).unwrap_or_default()));
        self.found.push(line.join(" "));
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

async fn lines(
    rt: &Rt,
    store: &Store,
    (keyspace, name): (&str, &str),
    names: &[&str],
) -> Vec<String> {
    let schema = cql_plan::system::system_schema();
    let table = schema.table(keyspace, name).unwrap();
    let command =
        ReadCommand::whole(table.id, Partitions::Range(KeyRange::all()), rt.wall().seconds());
    let mut sink = Lines { table, names, key: String::new(), found: Vec::new() };
    store.read(&command, &mut sink).await.unwrap();
    sink.found
}

#[test]
fn a_node_writes_estimates_at_start_and_a_row_for_each_compaction() {
    let options = Options { num_tokens: 4, ..Options::default() };
    with_node(1, options, |rt, _, store| {
        Box::pin(async move {
            rt.sleep(Duration::from_secs(5)).await;
            let estimates = ["partitions_count", "mean_partition_size"];
            let rows = lines(&rt, &store, ("system", "size_estimates"), &estimates).await;
            // Four tokens make five ranges; local keyspaces have no estimates.
            let traces: Vec<&String> =
                rows.iter().filter(|r| r.starts_with("system_traces ")).collect();
            assert_eq!(traces.len(), 2 * 5, "{rows:?}");
            assert!(traces.iter().all(|r| *r == "system_traces 0 0"), "{rows:?}");
            assert!(!rows.iter().any(|r| r.starts_with("system ")), "{rows:?}");
            let both = lines(&rt, &store, ("system", "table_estimates"), &estimates).await;
            assert_eq!(both.len(), 2 * rows.len());

            let schema = cql_plan::system::system_schema();
            let tables = schema.table("system_schema", "tables").unwrap();
            store.flush(None).await.unwrap();
            store.compactor().compact_major(tables.id).await.unwrap();
            rt.sleep(Duration::from_secs(1)).await;
            let columns = ["keyspace_name", "columnfamily_name", "rows_merged"];
            let history = lines(&rt, &store, ("system", "compaction_history"), &columns).await;
            let [row] = history.as_slice() else { panic!("{history:?}") };
            assert!(row.ends_with(" system_schema tables 1"), "{row}");
            let telemetry = rt.telemetry().snapshot();
            let finished = telemetry.find("compactions_finished_total").map(|m| &m.value);
            assert_eq!(finished, Some(&telemetry::Value::Counter(1)));
        })
    });
}

#[test]
fn estimates_follow_what_was_flushed_five_minutes_later() {
    let options = Options { num_tokens: 1, ..Options::default() };
    with_node(2, options, |rt, server, store| {
        Box::pin(async move {
            // A table in a keyspace that is not local: sessions of traces.
            let schema = cql_plan::system::system_schema();
            let table = schema.table("system_traces", "sessions").unwrap();
            for n in 0..50_u8 {
                let row = query::RowWrite {
                    key: [n; 16].to_vec(),
                    clustering: Vec::new(),
                    columns: vec![("command", query::Content::Value(vec![n; 100]))],
                };
                let at = stdx::TimestampMicros(rt.wall().0);
                let bytes = query::encode_row(table, &row, at, stdx::TtlSeconds::NONE);
                let mutation = data::MutationRef::open(&bytes).unwrap();
                store.apply(&mutation, true).unwrap();
            }
            store.flush(Some(&[table.id])).await.unwrap();
            rt.sleep(Duration::from_secs(310)).await;
            let columns = ["partitions_count", "mean_partition_size"];
            let rows = lines(&rt, &store, ("system", "size_estimates"), &columns).await;
            let numbers: Vec<(u64, u64)> = rows
                .iter()
                .filter_map(|row| {
                    let mut words = row.split(' ').skip(1).map(|w| w.parse().unwrap_or(0));
                    Some((words.next()?, words.next()?)).filter(|(count, _)| *count > 0)
                })
                .collect();
            // Evenly spread keys: their number comes out, rounded down in each range.
            let partitions: u64 = numbers.iter().map(|(count, _)| count).sum();
            assert!((48..=50).contains(&partitions), "{rows:?}");
            assert!(numbers.iter().all(|(_, mean)| (100..300).contains(mean)), "{rows:?}");
            assert!(server.connection_count() == 0);
        })
    });
}

#[test]
fn what_is_large_in_an_sstable_is_in_tables_as_long_as_the_sstable_is() {
    let options = Options {
        num_tokens: 1,
        compaction_large_row_warning_threshold: conf::DataSize(4_000),
        compaction_large_cell_warning_threshold: conf::DataSize(3_000),
        partition_size_warn_threshold: Some(conf::DataSize(5_000)),
        ..Options::default()
    };
    with_node(4, options, |rt, _, store| {
        Box::pin(async move {
            let schema = cql_plan::system::system_schema();
            let table = schema.table("system_traces", "sessions").unwrap();
            let put = |n: u8, bytes: usize| {
                let row = query::RowWrite {
                    key: [n; 16].to_vec(),
                    clustering: Vec::new(),
                    columns: vec![("command", query::Content::Value(vec![b'x'; bytes]))],
                };
                let at = stdx::TimestampMicros(rt.wall().0);
                let bytes = query::encode_row(table, &row, at, stdx::TtlSeconds::NONE);
                store.apply(&data::MutationRef::open(&bytes).unwrap(), true).unwrap();
            };
            let all = async || {
                rt.sleep(Duration::from_secs(3)).await;
                let of = async |name, columns: &[&str]| {
                    lines(&rt, &store, ("system", name), columns).await
                };
                let partitions = of("large_partitions", &["rows", "dead_rows"]).await;
                let rows = of("large_rows", &["compaction_time"]).await;
                let cells = of("large_cells", &["collection_elements"]).await;
                (partitions, rows.len(), cells)
            };
            assert_eq!(all().await, (Vec::new(), 0, Vec::new()));
            put(1, 2_900);
            put(2, 3_500);
            put(3, 4_500);
            put(4, 5_500);
            store.flush(Some(&[table.id])).await.unwrap();
            let key = "\0\rsystem_traces\0\0\u{8}sessions\0";
            let found = all().await;
            assert_eq!(found.0, [format!("{key} 1 0")]);
            assert_eq!((found.1, found.2), (2, vec![format!("{key} 0"); 3]));
            // Two of them get smaller, and the old file goes.
            put(3, 10);
            put(4, 10);
            store.flush(Some(&[table.id])).await.unwrap();
            store.compactor().compact_major(table.id).await.unwrap();
            assert_eq!(all().await, (Vec::new(), 0, vec![format!("{key} 0")]));
            store.lifecycle().truncate(table.id, stdx::TimestampMicros(rt.wall().0)).await.unwrap();
            assert_eq!(all().await, (Vec::new(), 0, Vec::new()));
        })
    });
}

#[test]
fn a_failed_commit_log_ends_the_node_or_its_service_as_the_policy_says() {
    let run = |policy| {
        let options = Options { commit_failure_policy: policy, ..Options::default() };
        let stopped = Arc::new(Mutex::new(false));
        let shared = stopped.clone();
        let outcome = with_node(3, options, move |rt, server, store| {
            let stopped = shared.clone();
            Box::pin(async move {
                store.note_failure(&StoreError::LogFailed("sync failed".to_owned()));
                rt.sleep(Duration::from_secs(1)).await;
                *stopped.lock().unwrap() = server.is_stopped();
            })
        });
        let failure = outcome.failure.get().cloned();
        let stopped = *stopped.lock().unwrap();
        (stopped, failure)
    };
    let (stopped, failure) = run(CommitFailurePolicy::Stop);
    assert!(stopped && failure.is_none(), "{failure:?}");
    let (stopped, failure) = run(CommitFailurePolicy::StopCommit);
    assert!(!stopped && failure.is_none(), "{failure:?}");
    let (_, failure) = run(CommitFailurePolicy::Die);
    let expected = "ended because commit_failure_policy is die: sync failed";
    assert_eq!(failure.map(|e: StartError| e.to_string()).as_deref(), Some(expected));
}

#[test]
fn a_damaged_file_stops_service_only_where_the_policy_is_paranoid() {
    for (policy, expected) in
        [(DiskFailurePolicy::Stop, false), (DiskFailurePolicy::StopParanoid, true)]
    {
        let options = Options { disk_failure_policy: policy, smp: Some(2), ..Options::default() };
        with_node(4, options, move |rt, server, store| {
            Box::pin(async move {
                let corrupt = StoreError::Corrupt { file: "f".to_owned(), what: "w".to_owned() };
                store.note_failure(&corrupt);
                rt.sleep(Duration::from_secs(1)).await;
                assert_eq!(server.is_stopped(), expected, "{policy:?}");
            })
        });
    }
}

#[test]
fn a_failed_data_directory_stops_service_only_where_it_cannot_be_done_without() {
    // Local keyspaces lie in the first one.
    for (directory, expected) in [("/second", false), ("/first", true)] {
        let options = Options {
            disk_failure_policy: DiskFailurePolicy::BestEffort,
            data_file_directories: vec!["/first".to_owned(), "/second".to_owned()],
            ..Options::default()
        };
        with_node(5, options, move |rt, server, store| {
            Box::pin(async move {
                let error = IoError {
                    kind: IoErrorKind::Device,
                    operation: "read",
                    path: format!("{directory}/ks/t/nb-1-big-Data.db"),
                    detail: "injected failure".to_owned(),
                };
                store.note_failure(&StoreError::Io(error));
                rt.sleep(Duration::from_secs(1)).await;
                assert_eq!(server.is_stopped(), expected, "{directory}");
            })
        });
    }
}

#[test]
fn why_a_start_failed_is_told_also_when_another_shard_gives_up_first() {
    let outcome = Outcome::default();
    outcome.fail(StartError::Abandoned);
    assert!(matches!(outcome.failure(), Some(StartError::Abandoned)));
    outcome.fail(StartError::Io(rt::damaged("metadata/paxos-horizon/1", "checksum mismatch")));
    outcome.fail(StartError::Topology(TopologyError::Stopped));
    let error = outcome.failure().unwrap().to_string();
    assert!(error.contains("metadata/paxos-horizon/1"), "{error}");
}
