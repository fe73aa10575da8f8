//! Rows of the virtual tables that describe this node: settings, caches, compactions.

use std::sync::Arc;

use conf::Options;
use cql_plan::virtual_row::{VirtualRowBuilder, VirtualRowError};
use cql_server::{VirtualRow, VirtualRows, VirtualSource};
use rt::Rt;
use schema::Table;
use store::Store;

/// What a shard knows about the node.
pub(crate) struct NodeViews {
    /// The shard.
    pub(crate) rt: Rt,
    /// The node's settings.
    pub(crate) options: Arc<Options>,
    /// The shard's tables: caches and compactions are this shard's, as a client sees those of the
    /// shard it is connected to.
    pub(crate) store: Store,
}

type Rows = Result<Vec<cql_plan::virtual_row::VirtualRow>, VirtualRowError>;

impl NodeViews {
    fn settings(&self, table: &Table) -> Rows {
        let names = conf::options::NAMES.iter();
        names
            .filter_map(|(name, _)| Some((name, self.options.render(name)?)))
            .map(|(name, value)| {
                VirtualRowBuilder::new(table).text("name", name).text("value", &value).finish()
            })
            .collect()
    }

    fn caches(&self, table: &Table) -> Rows {
        let metrics = self.rt.telemetry().snapshot();
        let count = |name: &str| match metrics.find(name).map(|m| &m.value) {
            Some(telemetry::Value::Counter(n)) => i64::try_from(*n).unwrap_or(i64::MAX),
            _ => 0,
        };
        let hits = count("chunk_cache_hits_total");
        let misses = count("chunk_cache_misses_total");
        let requests = hits.saturating_add(misses);
        let ratio = if requests == 0 { f64::NAN } else { hits as f64 / requests as f64 };
        let (_, used) = self.store.memory_bytes();
        let capacity = crate::parts::memory(&self.options) / 100 * 40;
        let shard = u64::from(self.rt.shard_count().max(1));
        let row = VirtualRowBuilder::new(table)
            .text("name", "chunks")
            .bigint("capacity_bytes", i64::try_from(capacity / shard).unwrap_or(i64::MAX))
            .bigint("hit_count", hits)
            .double("hit_ratio", ratio)
            .bigint("request_count", requests)
            .bigint("size_bytes", i64::try_from(used).unwrap_or(i64::MAX))
            .finish()?;
        Ok(vec![row])
    }

    fn sstable_tasks(&self, table: &Table) -> Rows {
        let running = self.store.compactions();
        running
            .into_iter()
            .enumerate()
            .map(|(i, c)| {
                let total = i64::try_from(c.total_bytes).unwrap_or(i64::MAX);
                let done = i64::try_from(c.done_bytes).unwrap_or(i64::MAX);
                // A time UUID of the table's id and the place in the list: stable while it runs.
                let mut id = *c.table.0.as_bytes();
                id[15] = id[15].wrapping_add(u8::try_from(i).unwrap_or(0));
                id[6] = (id[6] & 0x0f) | 0x10;
                VirtualRowBuilder::new(table)
                    .text("keyspace_name", &c.keyspace)
                    .text("table_name", &c.name)
                    .uuid("task_id", stdx::Uuid::from_bytes(id))
                    .double("completion_ratio", done as f64 / total.max(1) as f64)
                    .text("kind", "compaction")
                    .bigint("progress", done)
                    .int("sstables", i32::try_from(c.inputs).unwrap_or(i32::MAX))
                    .bigint("total", total)
                    .text("unit", "bytes")
                    .finish()
            })
            .collect()
    }
}

impl VirtualSource for NodeViews {
    fn rows<'a>(&'a self, table: &'a Table) -> VirtualRows<'a> {
        let rows = match (&*table.keyspace, &*table.name) {
            ("system_views", "settings") => self.settings(table),
            ("system_views", "caches") => self.caches(table),
            ("system_views", "sstable_tasks") => self.sstable_tasks(table),
            _ => Ok(Vec::new()),
        };
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                // A column is missing in the built-in definition: the program is at fault.
                tracing::error!(%error, table = &*table.name, "virtual table cannot be computed");
                Vec::new()
            }
        };
        let rows = rows
            .into_iter()
            .map(|r| VirtualRow { key: r.key, clustering: r.clustering, row: r.row })
            .collect();
        Box::pin(std::future::ready(rows))
    }
}
