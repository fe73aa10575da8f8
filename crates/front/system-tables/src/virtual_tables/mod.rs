//! Virtual tables of `system_views` that describe this node, all shards together: one row of [`TABLES`] each.
//!
//! A number that is not counted is null; a table without any number is [`empty`]. Where a table's
//! rows come from one report, its module has a pure function from the report to the rows, beside
//! the one that asks for it.
//!
//! `system_views.clients` and `queries` are about connections: `cql-server` has them.

mod caches;
mod cidr_filtering;
mod course;
mod credentials;
mod gossip;
mod indexes;
mod internode;
mod participations;
mod pending_hints;
mod repairs;
mod settings;
mod snapshots;
mod sources;
mod sstable_tasks;
mod statements;
mod streaming;
mod system_logs;
mod table_metrics;
#[cfg(test)]
mod tests;
mod thread_pools;

use std::pin::Pin;

use admin::model::TableReport;
use cql_plan::virtual_row::{VirtualRowBuilder, VirtualRowError};
use query::{VirtualRow, VirtualRows, VirtualSource};
use schema::Table;

pub use sources::Sources;
pub use system_logs::{LogRecord, NodeLog};

/// Rows of a table, in any order.
type Rows = Result<Vec<VirtualRow>, VirtualRowError>;

/// One row, or none of what has gone meanwhile.
type Row = Result<Option<VirtualRow>, VirtualRowError>;

/// A future of rows.
type RowsFuture<'a> = Pin<Box<dyn Future<Output = Rows> + 'a>>;

/// Source of the rows of a virtual table.
enum Content {
    /// A function builds all of them.
    Rows(for<'a> fn(&'a Sources, &'a Table) -> RowsFuture<'a>),
    /// One for each table of the node: a function sets the columns outside of the key.
    PerTable(fn(&mut VirtualRowBuilder<'_>, &TableReport)),
    /// Always empty: its subject does not exist here.
    Empty,
}

/// A virtual table of `system_views`.
struct VirtualTable {
    name: &'static str,
    content: Content,
}

/// A table whose rows an `async fn(&Sources, &Table) -> Rows` builds.
macro_rules! rows {
    ($name:literal, $rows:path) => {
        VirtualTable {
            name: $name,
            content: Content::Rows(|sources, table| Box::pin($rows(sources, table))),
        }
    };
}

/// A table with a row for each table of the node.
const fn per_table(
    name: &'static str,
    columns: fn(&mut VirtualRowBuilder<'_>, &TableReport),
) -> VirtualTable {
    VirtualTable { name, content: Content::PerTable(columns) }
}

/// A table of something that does not exist here.
const fn empty(name: &'static str) -> VirtualTable {
    VirtualTable { name, content: Content::Empty }
}

/// All virtual tables of `system_views` but those about connections, by name.
static TABLES: &[VirtualTable] = &[
    rows!("batch_metrics", statements::batches),
    rows!("caches", caches::rows),
    rows!("cidr_filtering_metrics_counts", cidr_filtering::counts),
    rows!("cidr_filtering_metrics_latencies", cidr_filtering::latencies),
    per_table("coordinator_read_latency", table_metrics::coordinator_reads),
    per_table("coordinator_scan_latency", table_metrics::coordinator_scans),
    per_table("coordinator_write_latency", table_metrics::coordinator_writes),
    rows!("cql_metrics", statements::statements),
    rows!("credentials_cache_keys", credentials::rows),
    per_table("disk_usage", table_metrics::disk_usage),
    rows!("gossip_info", gossip::rows),
    rows!("internode_inbound", internode::inbound),
    rows!("internode_outbound", internode::outbound),
    // There is no JMX.
    empty("jmx_permissions_cache_keys"),
    per_table("local_read_latency", table_metrics::local_reads),
    per_table("local_scan_latency", table_metrics::local_scans),
    per_table("local_write_latency", table_metrics::local_writes),
    per_table("max_partition_size", table_metrics::max_partition_size),
    per_table("max_sstable_duration", table_metrics::max_sstable_duration),
    per_table("max_sstable_size", table_metrics::max_sstable_size),
    // Roles and permissions are in memory, none in a cache.
    empty("network_permissions_cache_keys"),
    rows!("pending_hints", pending_hints::rows),
    empty("permissions_cache_keys"),
    rows!("repair_jobs", repairs::jobs),
    rows!("repair_participates", participations::participations),
    rows!("repair_sessions", repairs::sessions),
    rows!("repair_validations", participations::validations),
    rows!("repairs", repairs::repairs),
    empty("roles_cache_keys"),
    per_table("rows_per_read", table_metrics::rows_per_read),
    rows!("sai_column_indexes", indexes::columns),
    rows!("sai_sstable_index_segments", indexes::segments),
    rows!("sai_sstable_indexes", indexes::sstables),
    rows!("settings", settings::rows),
    rows!("snapshots", snapshots::rows),
    rows!("sstable_tasks", sstable_tasks::rows),
    rows!("streaming", streaming::rows),
    rows!("system_logs", system_logs::rows),
    // Those of a Java machine.
    empty("system_properties"),
    rows!("thread_pools", thread_pools::rows),
    per_table("tombstones_per_read", table_metrics::tombstones_per_read),
];

fn find(table: &Table) -> Option<&'static VirtualTable> {
    let is_ours = &*table.keyspace == "system_views";
    TABLES.iter().find(|known| is_ours && known.name == &*table.name)
}

/// The virtual tables of a shard's node.
pub struct NodeTables {
    sources: Sources,
}

impl NodeTables {
    /// Tables with rows from there.
    pub fn new(sources: Sources) -> NodeTables {
        NodeTables { sources }
    }

    async fn computed(&self, table: &Table) -> Vec<VirtualRow> {
        let rows = match find(table).map(|known| &known.content) {
            Some(Content::Rows(rows)) => rows(&self.sources, table).await,
            Some(Content::PerTable(columns)) => {
                let reports = self.sources.tables().await;
                reports.iter().map(|report| table_metrics::row(table, report, *columns)).collect()
            }
            None if cql_plan::system::is_index_table(table) => {
                indexes::built(&self.sources, table).await
            }
            Some(Content::Empty) | None => Ok(Vec::new()),
        };
        rows.unwrap_or_else(|error| {
            // A column is missing in the built-in definition: the program is at fault.
            tracing::error!(%error, table = &*table.name, "virtual table cannot be computed");
            Vec::new()
        })
    }
}

impl VirtualSource for NodeTables {
    fn rows<'a>(&'a self, table: &'a Table) -> VirtualRows<'a> {
        Box::pin(self.computed(table))
    }

    fn truncate(&self, table: &Table) -> bool {
        let is_log = cql_plan::system::is_log_table(table);
        if let (true, Some(log)) = (is_log, &self.sources.log) {
            log.clear();
        }
        is_log
    }
}

/// A count as CQL has it.
fn whole(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A count in a column that is an `int`.
fn int(n: u64) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
