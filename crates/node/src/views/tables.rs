//! Virtual tables about this node's tables: sizes, latencies, snapshots, and what is done for them.
//!
//! Source: Cassandra's `TableMetricTables`, `SnapshotsTable`, `ThreadPoolsTable`.

use std::collections::BTreeMap;

use admin::histogram::HistogramReport;
use admin::model::{CompactionReport, SnapshotReport, StageReport, TableReport};
use admin::{AdminReply, AdminRequest};
use cql_plan::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};
use schema::Table;
use stdx::ShardId;

use super::{NodeViews, Rows, merged, whole};

impl NodeViews {
    /// The numbers of all tables, shards together, by keyspace and name.
    async fn table_reports(&self) -> Vec<TableReport> {
        let mut all: BTreeMap<(String, String), TableReport> = BTreeMap::new();
        for reply in self.ask(AdminRequest::Tables).await {
            let AdminReply::Tables(reports) = reply else { continue };
            for report in reports {
                let name = (report.keyspace.clone(), report.table.clone());
                match all.get_mut(&name) {
                    Some(mine) => mine.merge(&report),
                    None => {
                        all.insert(name, report);
                    }
                }
            }
        }
        all.into_values().collect()
    }

    /// A row for each table.
    pub(super) async fn of_tables(&self, table: &Table) -> Rows {
        let reports = self.table_reports().await;
        reports.iter().filter_map(|report| of_table(table, report).transpose()).collect()
    }

    pub(super) async fn snapshots(&self, table: &Table) -> Rows {
        match self.admin.call(&self.rt, ShardId(0), AdminRequest::ListSnapshots).await {
            Ok(AdminReply::Snapshots(all)) => all.iter().map(|s| snapshot(table, s)).collect(),
            _ => Ok(Vec::new()),
        }
    }

    pub(super) async fn thread_pools(&self, table: &Table) -> Rows {
        let metrics = merged(&self.metrics().await);
        let mut compactions = CompactionReport::default();
        for reply in self.ask(AdminRequest::Compactions).await {
            if let AdminReply::Compactions(report) = reply {
                compactions.merge(*report);
            }
        }
        let mut stages = admin::stages(&metrics, &compactions);
        stages.extend(self.cluster_report().await.stages);
        stages.iter().map(|s| stage(table, s)).collect()
    }
}

/// What a table of metrics has about one table; `None` for a virtual table that is not one of these.
pub(super) fn of_table(
    table: &Table,
    report: &TableReport,
) -> Result<Option<VirtualRow>, VirtualRowError> {
    let mut row = VirtualRowBuilder::new(table);
    row.text("keyspace_name", &report.keyspace).text("table_name", &report.table);
    match &*table.name {
        "disk_usage" => row.bigint("mebibytes", mebibytes(report.disk_bytes)),
        "max_partition_size" => row.bigint("mebibytes", mebibytes(report.partition_sizes.max())),
        "max_sstable_size" => row.bigint("mebibytes", mebibytes(report.sstable_bytes_max)),
        "max_sstable_duration" => {
            row.bigint("max_sstable_duration", whole(report.sstable_span_micros_max / 1000))
        }
        "local_read_latency" => latency(&mut row, &report.read_latency),
        "local_write_latency" => latency(&mut row, &report.write_latency),
        "local_scan_latency" => latency(&mut row, &report.scan_latency),
        "coordinator_read_latency" => latency(&mut row, &report.coordinator_reads),
        "coordinator_scan_latency" => latency(&mut row, &report.coordinator_scans),
        "coordinator_write_latency" => latency(&mut row, &report.coordinator_writes),
        "rows_per_read" => counts(&mut row, &report.rows_per_read),
        "tombstones_per_read" => counts(&mut row, &report.tombstones_per_read),
        _ => return Ok(None),
    };
    row.finish().map(Some)
}

/// Rounded up.
fn mebibytes(bytes: u64) -> i64 {
    whole(bytes.div_ceil(1 << 20))
}

/// Buckets are of microseconds. There are no rates.
fn latency<'r, 't>(
    row: &'r mut VirtualRowBuilder<'t>,
    of: &HistogramReport,
) -> &'r mut VirtualRowBuilder<'t> {
    let millis = |micros: u64| micros as f64 / 1000.0;
    row.bigint("count", whole(of.count()))
        .double("max_ms", millis(of.max()))
        .double("p50th_ms", millis(of.percentile(0.5)))
        .double("p99th_ms", millis(of.percentile(0.99)))
}

/// Buckets are of numbers plus one, so that none has a bucket of its own.
fn counts<'r, 't>(
    row: &'r mut VirtualRowBuilder<'t>,
    of: &HistogramReport,
) -> &'r mut VirtualRowBuilder<'t> {
    let number = |plus_one: u64| plus_one.saturating_sub(1) as f64;
    row.bigint("count", whole(of.count()))
        .double("max", number(of.max()))
        .double("p50th", number(of.percentile(0.5)))
        .double("p99th", number(of.percentile(0.99)))
}

/// A snapshot of one table.
pub(super) fn snapshot(
    table: &Table,
    snapshot: &SnapshotReport,
) -> Result<VirtualRow, VirtualRowError> {
    let mut row = VirtualRowBuilder::new(table);
    row.text("name", &snapshot.tag)
        .text("keyspace_name", &snapshot.keyspace)
        .text("table_name", &snapshot.table)
        .boolean("ephemeral", snapshot.is_ephemeral)
        .bigint("size_on_disk", whole(snapshot.disk_bytes))
        .bigint("true_size", whole(snapshot.true_bytes));
    if let Ok(millis) = types::temporal::parse_timestamp(&snapshot.created_at, None) {
        row.timestamp_millis("created_at", millis);
    }
    if let Ok(millis) = types::temporal::parse_timestamp(&snapshot.expires_at, None) {
        row.timestamp_millis("expires_at", millis);
    }
    row.finish()
}

pub(super) fn stage(table: &Table, stage: &StageReport) -> Result<VirtualRow, VirtualRowError> {
    let mut row = VirtualRowBuilder::new(table);
    row.text("name", &stage.name).bigint("completed_tasks", whole(stage.completed));
    for (name, value) in [("active_tasks", stage.active), ("pending_tasks", stage.pending)] {
        row.int(name, i32::try_from(value).unwrap_or(i32::MAX));
    }
    row.bigint("blocked_tasks", whole(stage.blocked));
    row.bigint("blocked_tasks_all_time", whole(stage.blocked_total));
    row.finish()
}
