//! Rows of the virtual tables that describe this node, all shards together: settings, caches,
//! compactions, statements; of its tables (`tables`), of other nodes (`peers`),
//! of repairs and streams (`moving`), of its log (`logs`).
//!
//! What nobody counts is null, and a table without anything that is counted is not there.

mod logs;
mod moving;
mod peers;
mod tables;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use admin::model::CacheReport;
use admin::{AdminMesh, AdminReply, AdminRequest};
use conf::Options;
use cql_plan::virtual_row::{VirtualRowBuilder, VirtualRowError};
use query::{VirtualRow, VirtualRows, VirtualSource};
use rt::Rt;
use schema::Table;
use stdx::{ShardId, Uuid};

pub use logs::{LogRecord, NodeLog};

/// What a shard knows about the node.
pub(crate) struct NodeViews {
    /// The shard.
    pub(crate) rt: Rt,
    /// The settings in force on this shard.
    pub(crate) live: Rc<RefCell<Options>>,
    /// The way to the numbers of all shards.
    pub(crate) admin: Arc<AdminMesh>,
    /// The log, if the program keeps one.
    pub(crate) log: Option<Arc<dyn NodeLog>>,
}

/// The metrics of all shards together.
fn merged(shards: &[telemetry::Snapshot]) -> telemetry::Snapshot {
    let mut all = telemetry::Snapshot::default();
    for shard in shards {
        all.merge(shard.clone());
    }
    all
}

/// A counter or gauge; 0 when there is none of that name.
fn number(metrics: &telemetry::Snapshot, name: &str) -> i64 {
    match metrics.find(name).map(|m| &m.value) {
        Some(telemetry::Value::Counter(n)) => whole(*n),
        Some(telemetry::Value::Gauge(n)) => *n,
        _ => 0,
    }
}

/// A count as CQL has it.
fn whole(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Every shard keeps the prepared statements; each execution is counted on one of them.
fn statements(table: &Table, shards: &[telemetry::Snapshot]) -> Rows {
    let kept = shards.iter().map(|m| number(m, "cql_prepared_statements")).max();
    let all = merged(shards);
    let prepared = number(&all, "cql_prepared_executions_total");
    let regular = number(&all, "cql_regular_executions_total");
    let executed = prepared.saturating_add(regular);
    let ratio = if executed == 0 { 0.0 } else { prepared as f64 / executed as f64 };
    [
        ("prepared_statements_count", kept.unwrap_or(0) as f64),
        ("prepared_statements_evicted", number(&all, "cql_prepared_evicted_total") as f64),
        ("prepared_statements_executed", prepared as f64),
        ("prepared_statements_ratio", ratio),
        ("regular_statements_executed", regular as f64),
    ]
    .into_iter()
    .map(|(name, value)| {
        VirtualRowBuilder::new(table).text("name", name).double("value", value).finish()
    })
    .collect()
}

/// How many partitions batches of each kind wrote to.
fn batches(table: &Table, shards: &[telemetry::Snapshot]) -> Rows {
    let all = merged(shards);
    ["logged", "unlogged", "counter"]
        .into_iter()
        .map(|kind| {
            let found = all.metrics.iter().find(|metric| {
                metric.name == "cql_batch_partitions"
                    && metric.labels.iter().any(|(name, value)| *name == "kind" && value == kind)
            });
            let partitions = match found.map(|metric| &metric.value) {
                Some(telemetry::Value::Histogram(partitions)) => partitions.clone(),
                _ => telemetry::HistogramSnapshot::default(),
            };
            VirtualRowBuilder::new(table)
                .text("name", &format!("partitions_per_{kind}_batch"))
                .bigint("max", whole(partitions.max))
                .double("p50th", partitions.quantile(0.5) as f64)
                .double("p999th", partitions.quantile(0.999) as f64)
                .double("p99th", partitions.quantile(0.99) as f64)
                .finish()
        })
        .collect()
}

/// How often clients' addresses were checked.
fn cidr_counts(table: &Table, shards: &[telemetry::Snapshot]) -> Rows {
    let counts = admin::cidr_filtering(&merged(shards)).counts.into_iter();
    let row = |(name, value): (String, u64)| {
        VirtualRowBuilder::new(table).text("name", &name).bigint("value", whole(value)).finish()
    };
    counts.map(row).collect()
}

/// How long that took.
fn cidr_latencies(table: &Table, shards: &[telemetry::Snapshot]) -> Rows {
    let latencies = admin::cidr_filtering(&merged(shards)).latencies.into_iter();
    let row = |(name, values): (String, Option<[f64; 5]>)| {
        let mut row = VirtualRowBuilder::new(table);
        row.text("name", &name);
        let columns = ["p50th", "p95th", "p99th", "p999th", "max"];
        for (column, value) in columns.into_iter().zip(values.into_iter().flatten()) {
            row.double(column, value);
        }
        row.finish()
    };
    latencies.map(row).collect()
}

type Rows = Result<Vec<cql_plan::virtual_row::VirtualRow>, VirtualRowError>;

impl NodeViews {
    /// Asks every shard; one that does not answer because the node stops is left out.
    async fn ask(&self, request: AdminRequest) -> Vec<AdminReply> {
        let mut replies = Vec::new();
        for shard in (0..self.rt.shard_count()).map(ShardId) {
            replies.extend(self.admin.call(&self.rt, shard, request.clone()).await);
        }
        replies
    }

    fn settings(&self, table: &Table) -> Rows {
        let live = self.live.borrow();
        let names = conf::options::NAMES.iter();
        names
            .filter_map(|(name, _)| Some((name, live.render(name)?)))
            .map(|(name, value)| {
                VirtualRowBuilder::new(table).text("name", name).text("value", &value).finish()
            })
            .collect()
    }

    /// The metrics of each shard.
    async fn metrics(&self) -> Vec<telemetry::Snapshot> {
        let replies = self.ask(AdminRequest::Metrics).await;
        let metrics = replies.into_iter().filter_map(|reply| match reply {
            AdminReply::Metrics(snapshot) => Some(snapshot),
            _ => None,
        });
        metrics.collect()
    }

    async fn cql_metrics(&self, table: &Table) -> Rows {
        statements(table, &self.metrics().await)
    }

    async fn caches(&self, table: &Table) -> Rows {
        let caches = CacheReport::of_metrics(&merged(&self.metrics().await));
        let row = |cache: &CacheReport| {
            VirtualRowBuilder::new(table)
                .text("name", &cache.name)
                .bigint("capacity_bytes", whole(cache.capacity_bytes))
                .int("entry_count", i32::try_from(cache.entries).unwrap_or(i32::MAX))
                .bigint("hit_count", whole(cache.hits))
                .double("hit_ratio", cache.hit_ratio())
                .bigint("request_count", whole(cache.requests))
                .bigint("size_bytes", whole(cache.size_bytes))
                .finish()
        };
        caches.iter().map(row).collect()
    }

    async fn credentials(&self, table: &Table) -> Rows {
        let mut roles = BTreeSet::new();
        for reply in self.ask(AdminRequest::CachedCredentials).await {
            if let AdminReply::Credentials(of_shard) = reply {
                roles.extend(of_shard);
            }
        }
        let row = |role: &String| VirtualRowBuilder::new(table).text("role", role).finish();
        roles.iter().map(row).collect()
    }

    async fn sstable_tasks(&self, table: &Table) -> Rows {
        let mut rows = Vec::new();
        for reply in self.ask(AdminRequest::Compactions).await {
            let AdminReply::Compactions(report) = reply else { continue };
            for c in report.running {
                let total = i64::try_from(c.total).unwrap_or(i64::MAX);
                let done = i64::try_from(c.completed).unwrap_or(i64::MAX);
                let id = Uuid::parse_str(&c.id).unwrap_or(Uuid::nil());
                let row = VirtualRowBuilder::new(table)
                    .text("keyspace_name", &c.keyspace)
                    .text("table_name", &c.table)
                    .uuid("task_id", id)
                    .double("completion_ratio", done as f64 / total.max(1) as f64)
                    .text("kind", &c.kind.to_lowercase())
                    .bigint("progress", done)
                    .int("sstables", i32::try_from(c.sstables).unwrap_or(i32::MAX))
                    .bigint("total", total)
                    .text("unit", "bytes")
                    .finish()?;
                rows.push(row);
            }
        }
        Ok(rows)
    }

    async fn computed(&self, table: &Table) -> Vec<VirtualRow> {
        let rows = match (&*table.keyspace, &*table.name) {
            ("system_views", "settings") => self.settings(table),
            ("system_views", "caches") => self.caches(table).await,
            ("system_views", "sstable_tasks") => self.sstable_tasks(table).await,
            ("system_views", "batch_metrics") => batches(table, &self.metrics().await),
            ("system_views", "cql_metrics") => self.cql_metrics(table).await,
            ("system_views", "cidr_filtering_metrics_counts") => {
                cidr_counts(table, &self.metrics().await)
            }
            ("system_views", "cidr_filtering_metrics_latencies") => {
                cidr_latencies(table, &self.metrics().await)
            }
            ("system_views", "credentials_cache_keys") => self.credentials(table).await,
            ("system_views", "system_logs") => self.logs(table),
            ("system_views", "snapshots") => self.snapshots(table).await,
            ("system_views", "thread_pools") => self.thread_pools(table).await,
            (
                "system_views",
                "gossip_info" | "pending_hints" | "internode_inbound" | "internode_outbound",
            ) => self.of_peers(table).await,
            ("system_views", "repairs" | "repair_sessions" | "repair_jobs") => {
                self.repairs(table).await
            }
            ("system_views", "repair_participates" | "repair_validations") => {
                self.participations(table).await
            }
            ("system_views", "streaming") => self.streams(table).await,
            ("system_views", _) => self.of_tables(table).await,
            _ => Ok(Vec::new()),
        };
        match rows {
            Ok(rows) => rows
                .into_iter()
                .map(|r| VirtualRow { key: r.key, clustering: r.clustering, row: r.row })
                .collect(),
            Err(error) => {
                // A column is missing in the built-in definition: the program is at fault.
                tracing::error!(%error, table = &*table.name, "virtual table cannot be computed");
                Vec::new()
            }
        }
    }
}

impl VirtualSource for NodeViews {
    fn rows<'a>(&'a self, table: &'a Table) -> VirtualRows<'a> {
        Box::pin(self.computed(table))
    }

    fn truncate(&self, table: &Table) -> bool {
        let is_log = cql_plan::system::is_log_table(table);
        if let (true, Some(log)) = (is_log, &self.log) {
            log.clear();
        }
        is_log
    }
}
