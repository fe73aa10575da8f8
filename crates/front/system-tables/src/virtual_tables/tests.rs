use std::sync::Arc;

use admin::histogram::HistogramReport;
use admin::model::{
    ClusterReport, CourseReport, GossipPeerReport, GossipReport, HintsReport, IndexReport,
    IndexedSstableReport, MemberReport, NodeReport, ParticipationReport, PendingHintsReport,
    RepairDetails, RepairJobReport, RepairOrder, RepairReport, RepairSessionReport, SnapshotReport,
    StageReport, StreamProgress, StreamReport, TableReport, TrafficReport, ValidationReport,
};
use cql_plan::virtual_row::VirtualRow;
use data::RowRef;
use schema::Table;

use super::statements::{batch_rows, statement_rows};
use super::{
    Content, LogRecord, TABLES, find, gossip, indexes, internode, participations, pending_hints,
    repairs, snapshots, streaming, system_logs, table_metrics, thread_pools,
};

fn table(name: &str) -> Arc<Table> {
    cql_plan::system::system_schema().table("system_views", name).unwrap().clone()
}

/// The columns outside the key that are not null, `name=value`.
fn shown(table: &Table, row: &VirtualRow) -> String {
    let row = RowRef::trusted(&row.row);
    let cell = |column: &schema::Column| match row.column(column.id)? {
        data::ColumnRef::Simple(cell) => {
            Some(format!("{}={}", column.name, column.ty.format_cql_literal(cell.value)))
        }
        data::ColumnRef::Complex(_) => None,
    };
    table.regulars().iter().filter_map(cell).collect::<Vec<_>>().join(" ")
}

/// Tables about connections: `cql-server` has their rows.
const OF_CONNECTIONS: [&str; 2] = ["clients", "queries"];

#[test]
fn every_virtual_table_has_a_definition_and_one_row_of_the_registry() {
    let schema = cql_plan::system::system_schema();
    let defined = schema.keyspaces.get("system_views").unwrap().tables.keys();
    let mut defined: Vec<&str> = defined.map(|name| &**name).collect();
    defined.retain(|name| !OF_CONNECTIONS.contains(name));
    let listed: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
    assert_eq!(listed, defined);
    let stored = schema.table("system", "local").unwrap();
    assert!(find(stored).is_none());
}

#[test]
fn numbers_of_tables_are_in_cassandras_units() {
    let micros = |counts: &[(usize, u64)]| {
        let mut buckets = vec![0; 20];
        for (bucket, n) in counts {
            buckets[*bucket] = *n;
        }
        HistogramReport { buckets, sum: 0 }
    };
    let report = TableReport {
        keyspace: "ks".to_owned(),
        table: "t".to_owned(),
        disk_bytes: (1 << 20) + 1,
        // Bounds 1, 2, 3, … 8, 10, 12.
        read_latency: micros(&[(1, 6), (9, 4)]),
        partition_sizes: micros(&[(2, 1)]),
        sstable_bytes_max: 1 << 20,
        sstable_span_micros_max: 2_999,
        scan_latency: micros(&[(0, 1)]),
        rows_per_read: micros(&[(0, 2), (9, 1)]),
        coordinator_scans: micros(&[(1, 3)]),
        ..TableReport::default()
    };
    let row = |name: &str| {
        let table = table(name);
        let Content::PerTable(columns) = find(&table).unwrap().content else { return None };
        Some(shown(&table, &table_metrics::row(&table, &report, columns).unwrap()))
    };
    assert_eq!(row("disk_usage").as_deref(), Some("mebibytes=2"));
    assert_eq!(row("max_partition_size").as_deref(), Some("mebibytes=1"));
    let expected = "count=10 max_ms=0.012 p50th_ms=0.002 p99th_ms=0.012";
    assert_eq!(row("local_read_latency").as_deref(), Some(expected));
    let expected = "count=0 max_ms=0.0 p50th_ms=0.0 p99th_ms=0.0";
    assert_eq!(row("local_write_latency").as_deref(), Some(expected));
    let expected = "count=1 max_ms=0.001 p50th_ms=0.001 p99th_ms=0.001";
    assert_eq!(row("local_scan_latency").as_deref(), Some(expected));
    let expected = "count=3 max_ms=0.002 p50th_ms=0.002 p99th_ms=0.002";
    assert_eq!(row("coordinator_scan_latency").as_deref(), Some(expected));
    // Buckets are of the number plus one.
    let expected = "count=3 max=11.0 p50th=0.0 p99th=11.0";
    assert_eq!(row("rows_per_read").as_deref(), Some(expected));
    let expected = "count=0 max=0.0 p50th=0.0 p99th=0.0";
    assert_eq!(row("tombstones_per_read").as_deref(), Some(expected));
    assert_eq!(row("max_sstable_size").as_deref(), Some("mebibytes=1"));
    assert_eq!(row("max_sstable_duration").as_deref(), Some("max_sstable_duration=2"));
    assert_eq!(row("settings"), None);
}

#[test]
fn records_of_one_millisecond_are_numbered_from_the_newest() {
    let record = |at_millis, message: &str| {
        let message = message.to_owned();
        Arc::new(LogRecord { at_millis, level: "INFO", logger: "store::flush", message })
    };
    let table = table("system_logs");
    // The clock was set back once.
    let records = [(5, "a"), (5, "b"), (6, "c"), (5, "d")].map(|(at, message)| record(at, message));
    let rows = system_logs::record_rows(&table, records.to_vec()).unwrap();
    let shown = rows.iter().map(|row| {
        let at = i64::from_be_bytes(row.key.as_slice().try_into().unwrap());
        let mut expected = Vec::new();
        let order = (0_i32..3)
            .find(|order| {
                expected.clear();
                data::clustering::push_component(&mut expected, Some(&order.to_be_bytes()));
                expected == row.clustering
            })
            .unwrap();
        format!("{at} {order} {}", self::shown(&table, row))
    });
    let text = |at, order, message| {
        format!("{at} {order} level='INFO' logger='store::flush' message='{message}'")
    };
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [text(6, 0, "c"), text(5, 0, "d"), text(5, 1, "b"), text(5, 2, "a")]
    );
}

#[test]
fn what_nobody_counts_is_null() {
    let pools = table("thread_pools");
    let stage = |active| StageReport {
        name: "ReadStage".to_owned(),
        active,
        completed: 7,
        ..StageReport::default()
    };
    let row = |active| shown(&pools, &thread_pools::stage(&pools, &stage(active)).unwrap());
    assert_eq!(
        row(2),
        "active_tasks=2 blocked_tasks=0 blocked_tasks_all_time=0 completed_tasks=7 pending_tasks=0"
    );
    let snapshots = table("snapshots");
    let snapshot = SnapshotReport {
        tag: "a".to_owned(),
        keyspace: "ks".to_owned(),
        table: "t".to_owned(),
        true_bytes: 1,
        disk_bytes: 2,
        created_at: "2026-11-21T05:14:49.204Z".to_owned(),
        expires_at: String::new(),
        is_ephemeral: false,
    };
    assert_eq!(
        shown(&snapshots, &snapshots::snapshot(&snapshots, &snapshot).unwrap()),
        "created_at='2026-11-21T05:14:49.204Z' ephemeral=false size_on_disk=2 true_size=1"
    );
    let expires_at = "2026-11-21T06:14:49.204Z".to_owned();
    let expires = SnapshotReport { expires_at, ..snapshot };
    let text = shown(&snapshots, &snapshots::snapshot(&snapshots, &expires).unwrap());
    assert!(text.contains(" expires_at='2026-11-21T06:14:49.204Z' "), "{text}");
}

#[test]
fn statements_are_kept_by_every_shard_and_executed_on_one() {
    let shard = |kept: i64, executed: u64| {
        let shard = telemetry::Shard::new();
        shard.gauge("cql_prepared_statements", "x", &[]).set(kept);
        shard.counter("cql_prepared_executions_total", "x", &[]).add(executed);
        shard.counter("cql_regular_executions_total", "x", &[]).add(1);
        shard.snapshot()
    };
    let table = table("cql_metrics");
    let rows = statement_rows(&table, &[shard(3, 5), shard(3, 1)]).unwrap();
    let values: Vec<String> = rows.iter().map(|row| shown(&table, row)).collect();
    assert_eq!(values, ["value=3.0", "value=0.0", "value=6.0", "value=0.75", "value=2.0"]);
}

#[test]
fn batches_of_all_shards_are_counted_by_kind() {
    let shard = |kind: &str, partitions: u64| {
        let shard = telemetry::Shard::new();
        shard.histogram("cql_batch_partitions", "x", &[("kind", kind)]).record(partitions);
        shard.snapshot()
    };
    let table = table("batch_metrics");
    let shards = [shard("logged", 2), shard("logged", 9), shard("counter", 1)];
    let rows = batch_rows(&table, &shards).unwrap();
    let values: Vec<String> = rows.iter().map(|row| shown(&table, row)).collect();
    assert_eq!(
        values,
        [
            "max=9 p50th=2.0 p999th=9.0 p99th=9.0",
            "max=0 p50th=0.0 p999th=0.0 p99th=0.0",
            "max=1 p50th=1.0 p999th=1.0 p99th=1.0",
        ]
    );
}

#[test]
fn a_node_that_is_alone_shows_itself_without_a_heartbeat() {
    let me = MemberReport {
        address: "127.0.0.1".to_owned(),
        storage_port: 7000,
        host_id: "me".to_owned(),
        datacenter: "dc1".to_owned(),
        rack: "r1".to_owned(),
        load_bytes: Some(5),
        state: "Normal".to_owned(),
        tokens: vec![7],
        ..MemberReport::default()
    };
    let node = NodeReport {
        host_id: "me".to_owned(),
        nodes: vec![me],
        generation: 9,
        release_version: "5.0.9".to_owned(),
        schema_version: "s".to_owned(),
        native_transport_active: true,
        ..NodeReport::default()
    };
    let table = table("gossip_info");
    let of = |cluster: &ClusterReport| {
        let rows = gossip::peer_rows(&table, &node, cluster).unwrap();
        rows.iter().map(|row| shown(&table, row)).collect::<Vec<_>>()
    };
    assert_eq!(
        of(&ClusterReport::default()),
        ["dc='dc1' generation=9 host_id='me' internal_address_and_port='127.0.0.1:7000' \
          load='5.0' rack='r1' release_version='5.0.9' rpc_ready='true' schema='s' \
          status_with_port='NORMAL,7'"]
    );
    // With gossip it is one of its peers.
    let gossip = Some(GossipReport { active: true, peers: Vec::new() });
    assert!(of(&ClusterReport { gossip, ..ClusterReport::default() }).is_empty());
}

#[test]
fn other_nodes_are_shown_with_what_is_known_of_them() {
    let host_id = "fcd96e1a-a401-4d4a-84de-5c246d9acd87".to_owned();
    let member = MemberReport {
        address: "127.0.0.2".to_owned(),
        storage_port: 7000,
        host_id: host_id.clone(),
        datacenter: "dc1".to_owned(),
        rack: "r1".to_owned(),
        rpc_address: "127.0.0.2".to_owned(),
        rpc_port: 9042,
        up: true,
        state: "Normal".to_owned(),
        tokens: vec![5],
        ..MemberReport::default()
    };
    let node = NodeReport { nodes: vec![member], ..NodeReport::default() };
    let peer = GossipPeerReport {
        host_id: host_id.clone(),
        generation: 9,
        heartbeat: 8,
        load_bytes: 100,
        disk_usage: "FULL".to_owned(),
        release_version: "5.0.9".to_owned(),
        cql_ready: true,
        ..GossipPeerReport::default()
    };
    let pending = |host_id: &str| PendingHintsReport {
        host_id: host_id.to_owned(),
        files: 2,
        bytes: 9,
        oldest_millis: 0,
        newest_millis: 1000,
    };
    let unknown = "00000000-0000-4000-8000-000000000001";
    let cluster = ClusterReport {
        gossip: Some(GossipReport { active: true, peers: vec![peer] }),
        hints: Some(HintsReport {
            pending: vec![pending(&host_id), pending(unknown)],
            ..HintsReport::default()
        }),
        traffic: vec![TrafficReport {
            host_id,
            links: 1,
            sent: 7,
            received: 6,
            ..Default::default()
        }],
        ..ClusterReport::default()
    };
    let all = |name: &str| {
        let table = table(name);
        let rows = match name {
            "gossip_info" => gossip::peer_rows(&table, &node, &cluster),
            "pending_hints" => pending_hints::host_rows(&table, &node, &cluster),
            "internode_inbound" => {
                internode::peer_rows(&table, &node, &cluster, internode::put_inbound)
            }
            _ => internode::peer_rows(&table, &node, &cluster, internode::put_outbound),
        };
        let rows = rows.unwrap();
        rows.iter().map(|row| shown(&table, row)).collect::<Vec<_>>()
    };
    assert_eq!(
        all("gossip_info"),
        [
            "dc='dc1' disk_usage='FULL' generation=9 heartbeat=8 host_id='fcd96e1a-a401-4d4a-84de-5c246d9acd87' \
          internal_address_and_port='127.0.0.2:7000' load='100.0' \
          native_address_and_port='127.0.0.2:9042' rack='r1' release_version='5.0.9' \
          rpc_address='127.0.0.2' rpc_ready='true' status_with_port='NORMAL,5'"
        ]
    );
    let times = "newest='1970-01-01T00:00:01.000Z' oldest='1970-01-01T00:00:00.000Z'";
    assert_eq!(
        all("pending_hints"),
        [
            format!("address='127.0.0.2' dc='dc1' files=2 {times} port=7000 rack='r1' status='UP'"),
            format!("dc='Unknown' files=2 {times} rack='Unknown' status='Unknown'"),
        ]
    );
    assert_eq!(all("internode_inbound"), ["received_bytes=0 received_count=6"]);
    assert_eq!(
        all("internode_outbound"),
        ["active_connections=1 pending_bytes=0 sent_bytes=0 sent_count=7 using_bytes=0"]
    );
}

const REPAIR: &str = "18d3a4b0-e000-11f0-8000-000000000001";
const SESSION: &str = "18d3a4b0-e000-11f0-8000-000000000002";
const JOB: &str = "18d3a4b0-e000-81f0-8000-000000000003";

#[test]
fn repairs_are_shown_with_their_phases_and_sessions() {
    let session = |ended_at, error: Option<&str>| RepairSessionReport {
        id: SESSION.to_owned(),
        ranges: vec!["(1,2]".to_owned(), "(5,9]".to_owned()],
        participants: vec!["/127.0.0.2:7000".to_owned()],
        planned_at: 2_000_000,
        started_at: Some(3_000_000),
        ended_at,
        error: error.map(str::to_owned),
        jobs: vec![RepairJobReport {
            id: JOB.to_owned(),
            table: "t".to_owned(),
            started_at: 3_000_000,
            compared_from: Some(4_000_000),
            sent_from: None,
            compared_upto: ended_at,
            ended_at,
            error: error.map(str::to_owned),
        }],
    };
    let report = |state: &str, details| RepairReport {
        id: 4,
        session: REPAIR.to_owned(),
        keyspace: "ks".to_owned(),
        state: state.to_owned(),
        started_at: 1_000_000,
        details: Some(Box::new(details)),
        ..RepairReport::default()
    };
    let all = |name: &str, report: &RepairReport| {
        let table = table(name);
        let all = std::slice::from_ref(report);
        let rows = match name {
            "repairs" => repairs::repair_rows(&table, all, 9_500),
            _ => repairs::session_rows(&table, all, 9_500),
        };
        let rows = rows.unwrap();
        rows.iter().map(|row| shown(&table, row)).collect::<Vec<_>>()
    };
    let at = |seconds: i64| format!("'1970-01-01T00:00:0{seconds}.000Z'");

    // Nothing is known but what was asked for.
    let order = RepairOrder {
        tables: vec!["b".to_owned(), "a".to_owned()],
        datacenter_parallel: true,
        ranges: vec![(1, 2)],
        job_threads: 2,
        ..RepairOrder::default()
    };
    let kind = "preview repaired".to_owned();
    let begun = report("RUNNING", RepairDetails { order, kind, ..RepairDetails::default() });
    assert_eq!(
        all("repairs", &begun),
        [format!(
            "command_id=4 completed=false duration_millis=8500 keyspace_name='ks' \
             last_updated_at={one} options_column_families={{'a', 'b'}} options_data_centers={{}} \
             options_force_repair=false options_hosts={{}} \
             options_ignore_unreplicated_keyspaces=false options_incremental=false \
             options_job_threads=2 options_optimise_streams=false \
             options_parallelism='DATACENTER_AWARE' options_preview_kind='REPAIRED' \
             options_primary_range=false options_pull_repair=false options_subrange_repair=true \
             options_trace=false state_init_timestamp={one} state_setup_timestamp={one} \
             status='setup' type='preview repaired'",
            one = at(1)
        )]
    );
    assert!(all("repair_sessions", &begun).is_empty());

    let details = RepairDetails {
        kind: "incremental".to_owned(),
        tables: vec!["t".to_owned()],
        unfiltered_ranges: vec![vec!["(1,2]".to_owned()], vec!["(5,9]".to_owned()]],
        sessions: vec![session(None, None)],
        planned_at: Some(2_000_000),
        compared_from: Some(3_000_000),
        ..RepairDetails::default()
    };
    let running = all("repairs", &report("RUNNING", details.clone()));
    for part in [
        "duration_millis=8500 ",
        "last_updated_at='1970-01-01T00:00:03.000Z' ",
        " options_incremental=true ",
        " options_ranges={'(1,2]', '(5,9]'} ",
        " participants=['/127.0.0.2:7000'] ranges=[['(1,2]', '(5,9]']] ",
        &format!(" sessions={{{SESSION}}} "),
        " status='repair_start' table_names=['t'] type='incremental' ",
        " unfiltered_ranges=[['(1,2]'], ['(5,9]']]",
    ] {
        assert!(running[0].contains(part), "{part}: {running:?}");
    }
    let (three, six) = (at(3), at(6));
    assert_eq!(
        all("repair_sessions", &report("RUNNING", details.clone())),
        [format!(
            "completed=false duration_millis=7500 jobs={{{JOB}}} keyspace_name='ks' \
             last_updated_at={three} participants=['/127.0.0.2:7000'] ranges=['(1,2]', '(5,9]'] repair_id={REPAIR} \
             state_init_timestamp={two} state_jobs_start_timestamp={three} \
             state_start_timestamp={three} status='jobs_start' table_names=['t']",
            two = at(2)
        )]
    );

    // A finished repair does not get older.
    let ended = RepairDetails {
        sessions: vec![session(Some(6_000_000), Some("x"))],
        ended_at: Some(6_000_000),
        message: Some("why".to_owned()),
        ..details
    };
    for (state, word, column) in
        [("FAILED", "failure", "failure_cause"), ("SUCCESSFUL", "success", "success_message")]
    {
        let rows = all("repairs", &report(state, ended.clone()));
        for part in [
            "completed=true duration_millis=5000 ".to_owned(),
            format!("{column}='why' "),
            format!(" last_updated_at={six} "),
            format!(" state_{word}_timestamp={six}"),
            format!(" status='{word}' "),
        ] {
            assert!(rows[0].contains(&part), "{part}: {rows:?}");
        }
    }
    let rows = all("repair_sessions", &report("FAILED", ended));
    let expected = format!(
        "completed=true duration_millis=4000 failure_cause='x' jobs={{{JOB}}} keyspace_name='ks' \
         last_updated_at={six} "
    );
    assert!(rows[0].starts_with(&expected), "{rows:?}");
}

#[test]
fn jobs_of_a_repair_are_shown_with_what_has_been_compared_and_sent() {
    let table = table("repair_jobs");
    let rows = |sent_from, compared_upto, ended_at, error: Option<&str>| {
        let job = RepairJobReport {
            id: JOB.to_owned(),
            table: "t".to_owned(),
            started_at: 1_000_000,
            compared_from: Some(2_000_000),
            sent_from,
            compared_upto,
            ended_at,
            error: error.map(str::to_owned),
        };
        let session = RepairSessionReport {
            id: SESSION.to_owned(),
            ranges: vec!["(1,2]".to_owned()],
            participants: vec!["/127.0.0.2:7000".to_owned()],
            jobs: vec![job],
            ..RepairSessionReport::default()
        };
        let details = RepairDetails { sessions: vec![session], ..RepairDetails::default() };
        let report = RepairReport {
            session: REPAIR.to_owned(),
            keyspace: "ks".to_owned(),
            details: Some(Box::new(details)),
            ..RepairReport::default()
        };
        let rows = repairs::job_rows(&table, &[report], 9_500).unwrap();
        rows.iter().map(|row| shown(&table, row)).collect::<Vec<_>>()
    };
    let at = |seconds: i64| format!("'1970-01-01T00:00:0{seconds}.000Z'");
    let (one, two, three, four) = (at(1), at(2), at(3), at(4));
    assert_eq!(
        rows(Some(3_000_000), None, None, None),
        [format!(
            "completed=false duration_millis=8500 keyspace_name='ks' last_updated_at={three} \
             participants=['/127.0.0.2:7000'] ranges=['(1,2]'] repair_id={REPAIR} \
             session_id={SESSION} state_init_timestamp={one} state_start_timestamp={one} \
             state_stream_start_timestamp={three} state_validation_start_timestamp={two} \
             status='stream_start' table_name='t'"
        )]
    );
    let ended = rows(None, Some(3_000_000), Some(4_000_000), Some("why"));
    for part in [
        "completed=true duration_millis=3000 failure_cause='why' ".to_owned(),
        format!(" state_failure_timestamp={four} "),
        format!(" state_validation_complete_timestamp={three} "),
        " status='failure' ".to_owned(),
    ] {
        assert!(ended[0].contains(&part), "{part}: {ended:?}");
    }
}

#[test]
fn parts_in_repairs_are_shown_with_what_was_read_for_them() {
    let validation = ValidationReport {
        id: JOB.to_owned(),
        session: SESSION.to_owned(),
        table: Some(("ks".to_owned(), "t".to_owned())),
        ranges: vec!["(1,2]".to_owned()],
        partitions_estimate: 8,
        bytes_estimate: 800,
        partitions: 3,
        bytes_read: 300,
        started_at: Some(2_000_000),
        sent_at: Some(3_000_000),
        course: CourseReport { began_at: 1_000_000, updated_at: 4_000_000, ..Default::default() },
    };
    let dropped = ValidationReport { table: None, ..validation.clone() };
    let running = ParticipationReport {
        id: REPAIR.to_owned(),
        initiator: "/127.0.0.1:7000".to_owned(),
        tables: vec!["ks.u".to_owned(), "ks.t".to_owned()],
        ranges: vec!["(1,2]".to_owned(), "(5,9]".to_owned()],
        incremental: true,
        global: true,
        preview: "NONE".to_owned(),
        repaired_at: 0,
        course: CourseReport { began_at: 1_000_000, updated_at: 4_000_000, ..Default::default() },
        validations: vec![validation, dropped],
    };
    let all = |name: &str, one: &ParticipationReport| {
        let table = table(name);
        let all = std::slice::from_ref(one);
        let rows = match name {
            "repair_participates" => participations::participation_rows(&table, all, 9_500),
            _ => participations::validation_rows(&table, all, 9_500),
        };
        let rows = rows.unwrap();
        rows.iter().map(|row| shown(&table, row)).collect::<Vec<_>>()
    };
    let at = |seconds: i64| format!("'1970-01-01T00:00:0{seconds}.000Z'");
    let (one, two, three, four) = (at(1), at(2), at(3), at(4));
    assert_eq!(
        all("repair_participates", &running),
        [format!(
            "completed=false duration_millis=8500 global=true incremental=true \
             initiator='/127.0.0.1:7000' last_updated_at={four} preview_kind='NONE' \
             ranges=['(1,2]', '(5,9]'] state_init_timestamp={one} tables={{'ks.t', 'ks.u'}} \
             validations={{{JOB}}}"
        )]
    );
    assert_eq!(
        all("repair_validations", &running),
        [format!(
            "bytes_read=300 completed=false duration_millis=8500 estimated_partitions=8 \
             estimated_total_bytes=800 initiator='/127.0.0.1:7000' keyspace_name='ks' \
             last_updated_at={four} partitions_processed=3 progress_percentage=37.5 \
             ranges=['(1,2]'] repair_id={REPAIR} session_id={SESSION} \
             state_accept_timestamp={one} state_init_timestamp={one} \
             state_sending_trees_timestamp={three} state_start_timestamp={two} \
             status='sending_trees' table_name='t'"
        )]
    );
    // More than was thought is not all, and what has ended is.
    let mut more = running.clone();
    more.validations[0].partitions = 80;
    assert!(all("repair_validations", &more)[0].contains(" progress_percentage=99.0 "));
    let course = CourseReport { ended_at: Some(4_000_000), ..more.course.clone() };
    (more.course, more.repaired_at) = (course.clone(), 4_000);
    more.validations[0].course = CourseReport { error: Some("why".to_owned()), ..course };
    let row = &all("repair_validations", &more)[0];
    assert!(row.contains(" progress_percentage=100.0 ") && row.contains("failure_cause='why'"));
    let row = &all("repair_participates", &more)[0];
    assert!(row.starts_with("completed=true duration_millis=3000 "), "{row}");
    assert!(row.contains(&format!(" repaired_at={four} ")), "{row}");
    assert!(row.contains(&format!(" state_success_timestamp={four} ")), "{row}");
}

#[test]
fn streams_are_shown_while_they_are_under_way() {
    let member = |n: u16| MemberReport {
        address: if n == 3 { "::1".to_owned() } else { format!("127.0.0.{n}") },
        storage_port: 7000,
        host_id: n.to_string(),
        ..MemberReport::default()
    };
    let node = NodeReport { nodes: vec![member(2), member(3)], ..NodeReport::default() };
    let progress = StreamProgress { files: 4, files_done: 1, bytes: 300, bytes_done: 100 };
    let from = StreamReport {
        operation: "Bootstrap".to_owned(),
        plan_id: SESSION.to_owned(),
        host_id: "2".to_owned(),
        receiving: Some(progress),
        is_active: true,
        started_at_millis: 1000,
        updated_at_millis: 2000,
        ..StreamReport::default()
    };
    let other = StreamReport {
        host_id: "3".to_owned(),
        started_at_millis: 3000,
        updated_at_millis: 4000,
        ..from.clone()
    };
    let done = StreamProgress { files_done: 4, bytes_done: 300, ..progress };
    let to = StreamReport {
        plan_id: REPAIR.to_owned(),
        receiving: None,
        sending: Some(done),
        ..from.clone()
    };
    let over = StreamReport { is_active: false, ..to.clone() };
    let table = table("streaming");
    let all = |sessions: &[StreamReport]| {
        let rows = streaming::stream_rows(&table, &node, sessions, 6000).unwrap();
        rows.iter().map(|row| shown(&table, row)).collect::<Vec<_>>()
    };
    let times = |since: &str| {
        format!("status='start' status_init_timestamp={since} status_start_timestamp={since}")
    };
    assert_eq!(
        all(&[from, other]),
        [format!(
            "bytes_received=200 bytes_sent=0 bytes_to_receive=600 bytes_to_send=0 \
             duration_millis=5000 files_received=2 files_sent=0 files_to_receive=8 files_to_send=0 \
             follower=false last_updated_at='1970-01-01T00:00:04.000Z' operation='Bootstrap' \
             peers=['/127.0.0.2:7000', '/[::1]:7000'] progress_percentage=33.0 {}",
            times("'1970-01-01T00:00:01.000Z'")
        )]
    );
    let rows = all(&[to]);
    assert!(rows[0].contains(" follower=true "), "{rows:?}");
    assert!(rows[0].contains(" progress_percentage=99.0 "), "{rows:?}");
    assert!(all(&[over]).is_empty());
}

#[test]
fn indexes_are_shown_with_their_state_and_the_sstables_that_have_them() {
    let sstable = IndexedSstableReport {
        rows: 15,
        terms: 3,
        entries: 12,
        min_term: "a".to_owned(),
        max_term: "c".to_owned(),
        bytes: 505,
        rows_bytes: 733,
        start_token: -40,
        end_token: -32,
    };
    let index = |name: &str, is_built, sstables_without| IndexReport {
        keyspace: "ks".to_owned(),
        table: "t".to_owned(),
        index: name.to_owned(),
        column: "v".to_owned(),
        is_literal: true,
        analyzer: "NoOpAnalyzer".to_owned(),
        is_built,
        sstables_without,
        sstables: [("/d/nb-1-big-Data.db".to_owned(), sstable.clone())].into(),
        ..IndexReport::default()
    };
    let all = [index("built", true, 0), index("building", false, 1), index("stray", true, 1)];
    let view = table("sai_column_indexes");
    let rows = indexes::column_rows(&all, &view).unwrap();
    let states: Vec<String> = rows.iter().map(|row| shown(&view, row)).collect();
    let expected = |is_building, is_queryable| {
        format!(
            "analyzer='NoOpAnalyzer' column_name='v' is_building={is_building} \
             is_queryable={is_queryable} is_string=true table_name='t'"
        )
    };
    assert_eq!(states, [expected(false, true), expected(true, false), expected(true, true)]);
    assert_eq!(rows[0].key, b"ks");

    let view = table("sai_sstable_indexes");
    let rows = indexes::sstable_rows(&all[..1], &view).unwrap();
    assert_eq!(
        shown(&view, &rows[0]),
        "cell_count=12 column_name='v' end_token='-32' format_version='hl1' max_row_id=14 \
         min_row_id=0 per_column_disk_size=505 per_table_disk_size=733 start_token='-40' \
         table_name='t'"
    );
    let view = table("sai_sstable_index_segments");
    let rows = indexes::segment_rows(&all[..1], &view).unwrap();
    assert_eq!(
        shown(&view, &rows[0]),
        "cell_count=12 column_name='v' component_metadata={'ROWS': {'Length': '733', 'num_rows': \
         '15'}, 'TERMS': {'Length': '505', 'num_terms': '3', 'num_values': '12'}} \
         end_token='-32' max_sstable_row_id=14 max_term='c' min_sstable_row_id=0 min_term='a' \
         start_token='-40' table_name='t'"
    );
    let schema = cql_plan::system::system_schema();
    let info = schema.table("system", "IndexInfo").unwrap();
    let built = indexes::built_rows(&all, info).unwrap();
    let names: Vec<&[u8]> = built
        .iter()
        .map(|row| data::clustering::components(&row.clustering).next().flatten().unwrap())
        .collect();
    assert_eq!(names, [b"built".as_slice(), b"stray"], "an index whose build runs is not listed");
}
