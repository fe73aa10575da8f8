use std::sync::Arc;

use admin::histogram::HistogramReport;
use admin::model::{
    ClusterReport, GossipPeerReport, GossipReport, HintsReport, MemberReport, NodeReport,
    PendingHintsReport, SnapshotReport, StageReport, TableReport, TrafficReport,
};
use cql_plan::virtual_row::VirtualRow;
use data::RowRef;
use schema::Table;

use super::{batches, peers, statements, tables};

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
        ..TableReport::default()
    };
    let row = |name: &str| {
        let table = table(name);
        let row = tables::of_table(&table, &report).unwrap();
        row.map(|row| shown(&table, &row))
    };
    assert_eq!(row("disk_usage").as_deref(), Some("mebibytes=2"));
    assert_eq!(row("max_partition_size").as_deref(), Some("mebibytes=1"));
    let expected = "count=10 max_ms=0.012 p50th_ms=0.002 p99th_ms=0.012";
    assert_eq!(row("local_read_latency").as_deref(), Some(expected));
    let expected = "count=0 max_ms=0.0 p50th_ms=0.0 p99th_ms=0.0";
    assert_eq!(row("local_write_latency").as_deref(), Some(expected));
    let expected = "count=1 max_ms=0.001 p50th_ms=0.001 p99th_ms=0.001";
    assert_eq!(row("local_scan_latency").as_deref(), Some(expected));
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
fn what_nobody_counts_is_null() {
    let pools = table("thread_pools");
    let stage = |active| StageReport {
        name: "ReadStage".to_owned(),
        active,
        completed: 7,
        ..StageReport::default()
    };
    let row = |active| shown(&pools, &tables::stage(&pools, &stage(active)).unwrap());
    assert_eq!(row(None), "completed_tasks=7");
    assert_eq!(row(Some(2)), "active_tasks=2 completed_tasks=7");
    let snapshots = table("snapshots");
    let snapshot = SnapshotReport {
        tag: "a".to_owned(),
        keyspace: "ks".to_owned(),
        table: "t".to_owned(),
        true_bytes: 1,
        disk_bytes: 2,
        created_at: "2026-11-21T05:14:49.204Z".to_owned(),
        expires_at: String::new(),
    };
    assert_eq!(
        shown(&snapshots, &tables::snapshot(&snapshots, &snapshot).unwrap()),
        "created_at='2026-11-21T05:14:49.204Z' ephemeral=false size_on_disk=2 true_size=1"
    );
    let expires_at = "2026-11-21T06:14:49.204Z".to_owned();
    let expires = SnapshotReport { expires_at, ..snapshot };
    let text = shown(&snapshots, &tables::snapshot(&snapshots, &expires).unwrap());
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
    let rows = statements(&table, &[shard(3, 5), shard(3, 1)]).unwrap();
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
    let rows = batches(&table, &shards).unwrap();
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
        let rows = peers::rows(&table, &node, cluster).unwrap();
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
        let rows = peers::rows(&table, &node, &cluster).unwrap();
        rows.iter().map(|row| shown(&table, row)).collect::<Vec<_>>()
    };
    assert_eq!(
        all("gossip_info"),
        ["dc='dc1' generation=9 heartbeat=8 host_id='fcd96e1a-a401-4d4a-84de-5c246d9acd87' \
          internal_address_and_port='127.0.0.2:7000' load='100.0' \
          native_address_and_port='127.0.0.2:9042' rack='r1' release_version='5.0.9' \
          rpc_address='127.0.0.2' rpc_ready='true' status_with_port='NORMAL,5'"]
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
