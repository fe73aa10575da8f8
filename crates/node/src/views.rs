//! Rows of the virtual tables that describe this node, all shards together: settings, caches,
//! compactions.

use std::sync::Arc;

use admin::{AdminMesh, AdminReply, AdminRequest};
use conf::Options;
use cql_plan::virtual_row::{VirtualRowBuilder, VirtualRowError};
use cql_server::{VirtualRow, VirtualRows, VirtualSource};
use rt::Rt;
use schema::Table;
use stdx::{ShardId, Uuid};

/// What a shard knows about the node.
pub(crate) struct NodeViews {
    /// The shard.
    pub(crate) rt: Rt,
    /// The node's settings.
    pub(crate) options: Arc<Options>,
    /// The way to the numbers of all shards.
    pub(crate) admin: Arc<AdminMesh>,
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
        let names = conf::options::NAMES.iter();
        names
            .filter_map(|(name, _)| Some((name, self.options.render(name)?)))
            .map(|(name, value)| {
                VirtualRowBuilder::new(table).text("name", name).text("value", &value).finish()
            })
            .collect()
    }

    async fn caches(&self, table: &Table) -> Rows {
        let mut metrics = telemetry::Snapshot::default();
        for reply in self.ask(AdminRequest::Metrics).await {
            if let AdminReply::Metrics(snapshot) = reply {
                metrics.merge(snapshot);
            }
        }
        let count = |name: &str| match metrics.find(name).map(|m| &m.value) {
            Some(telemetry::Value::Counter(n)) => i64::try_from(*n).unwrap_or(i64::MAX),
            Some(telemetry::Value::Gauge(n)) => *n,
            _ => 0,
        };
        let hits = count("chunk_cache_hits_total");
        let misses = count("chunk_cache_misses_total");
        let requests = hits.saturating_add(misses);
        let ratio = if requests == 0 { f64::NAN } else { hits as f64 / requests as f64 };
        let capacity = crate::parts::memory(&self.options) / 100 * 40;
        let row = VirtualRowBuilder::new(table)
            .text("name", "chunks")
            .bigint("capacity_bytes", i64::try_from(capacity).unwrap_or(i64::MAX))
            .bigint("hit_count", hits)
            .double("hit_ratio", ratio)
            .bigint("request_count", requests)
            .bigint("size_bytes", count("chunk_cache_bytes"))
            .finish()?;
        Ok(vec![row])
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
}
