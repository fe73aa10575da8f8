//! Reports of a shard about itself, its tables and their compactions.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schema::Schema;
use stdx::{FixedMap, TableId, Token};

use super::Served;
use crate::histogram::HistogramReport;
use crate::members;
use crate::model::{
    ClusterReport, CompactionReport, CoordinatorReport, EstimateReport, KeyspaceReport,
    LevelsReport, NodeReport, PendingReport, PlannedReport, TableReport,
};

impl Served {
    /// Returns the shard's report, with the schema versions that the epochs stand for.
    pub(super) fn cluster(&self) -> ClusterReport {
        let mut report = self.actions.cluster();
        let me = self.membership.snapshot().local.host_id.to_string();
        if let Some(gossip) = &mut report.gossip {
            for peer in &mut gossip.peers {
                peer.schema_version = match peer.host_id == me {
                    true => Some(self.membership.snapshot().schema.version.to_string()),
                    false => self.versions.at(stdx::Epoch(peer.epoch)),
                };
            }
        }
        report
    }

    pub(super) fn node(&self) -> NodeReport {
        let snapshot = self.membership.snapshot();
        let local = &snapshot.local;
        let gossip = self.cluster().gossip;
        let nodes = members::reports(&snapshot, &self.facts, gossip.as_ref());
        NodeReport {
            cluster_name: local.cluster_name.clone(),
            partitioner: self.facts.partitioner.clone(),
            snitch: self.facts.snitch.clone(),
            release_version: self.facts.release_version.clone(),
            server_version: self.facts.server_version.clone(),
            schema_version: snapshot.schema.version.to_string(),
            epoch: snapshot.epoch.0,
            host_id: local.host_id.to_string(),
            nodes,
            keyspaces: keyspaces(&snapshot.schema),
            uptime_seconds: self.rt.now().0 / 1_000_000_000,
            generation: self.facts.generation,
            native_transport_active: self.actions.native_transport_active(),
            shards: self.rt.shard_count(),
            memory_bytes_max: self.facts.memory_bytes_max,
            // Filled in by the owner of the log, which counts them.
            exceptions: 0,
        }
    }

    pub(super) fn tables(&self) -> Vec<TableReport> {
        let schema = self.membership.snapshot().schema.clone();
        let mut reports = Vec::new();
        let mut asked: FixedMap<TableId, CoordinatorReport> =
            self.actions.table_latencies().into_iter().collect();
        for keyspace in schema.keyspaces.values().filter(|k| !k.is_virtual) {
            for table in keyspace.tables.values() {
                let stats = self.store.table_stats(table.id);
                let asked = asked.remove(&table.id).unwrap_or_default();
                let indexes = self.index_totals(table);
                reports.push(TableReport {
                    keyspace: keyspace.name.to_string(),
                    table: table.name.to_string(),
                    id: table.id.to_hex(),
                    sstables: stats.sstables,
                    disk_bytes: stats.disk_bytes,
                    uncompressed_bytes: stats.uncompressed_bytes,
                    repaired_bytes: stats.repaired_bytes,
                    pending_repair_bytes: stats.pending_repair_bytes,
                    partitions_estimate: stats
                        .partitions_estimate
                        .saturating_add(stats.memtable_partitions),
                    memtable_bytes: stats.memtable_bytes,
                    memtable_mutations: stats.memtable_mutations,
                    flushes: stats.flushes,
                    compactions: stats.compactions,
                    pending_compactions: stats.pending_compactions,
                    reads: stats.reads,
                    writes: stats.writes,
                    metadata_bytes: stats.metadata_bytes,
                    filter_bytes: stats.filter_bytes,
                    filter_file_bytes: stats.filter_file_bytes,
                    summary_bytes: stats.summary_bytes,
                    offsets_bytes: stats.offsets_bytes,
                    compressed_bytes: stats.compressed_bytes,
                    old_sstables: stats.old_sstables,
                    misplaced_sstables: stats.misplaced_sstables,
                    pending_flushes: stats.pending_flushes,
                    unflushable_bytes: stats.unflushable_bytes,
                    filter_misses: stats.filter_misses,
                    sstables_read: stats.sstables_read,
                    droppable_cells: stats.droppable_cells,
                    tombstones_scanned: stats.tombstones_scanned,
                    snapshot_bytes: 0,
                    read_latency: stats.read_latency.into(),
                    write_latency: stats.write_latency.into(),
                    sstables_per_read: stats.sstables_per_read.into(),
                    sstable_bytes_max: stats.sstable_bytes_max,
                    sstable_span_micros_max: stats.sstable_span_micros_max,
                    levels: levels_of(table, stats.levels),
                    time_window: time_window_of(table),
                    scan_latency: stats.scan_latency.into(),
                    rows_per_read: stats.rows_per_read.into(),
                    tombstones_per_read: stats.tombstones_per_read.into(),
                    coordinator_reads: asked.read,
                    coordinator_scans: asked.range,
                    coordinator_writes: asked.write,
                    indexes: indexes.built,
                    index_bytes: indexes.bytes,
                    index_latency: stats.index_latency.into(),
                    index_sstables_searched: stats.index_files_searched,
                    index_candidates: stats.index_candidates,
                    partition_sizes: HistogramReport { buckets: stats.partition_sizes, sum: 0 },
                    cell_counts: HistogramReport { buckets: stats.cell_counts, sum: 0 },
                });
            }
        }
        reports
    }

    /// Returns the plans by keyspace and table; a table with invalid options has none.
    pub(super) fn planned(&self) -> Vec<PlannedReport> {
        let schema = self.membership.snapshot().schema.clone();
        let tables = schema.keyspaces.values().filter(|keyspace| !keyspace.is_virtual);
        let mut all = Vec::new();
        for table in tables.flat_map(|keyspace| keyspace.tables.values()) {
            for plan in self.store.compactor().planned_compactions(table.id).unwrap_or_default() {
                all.push(PlannedReport {
                    keyspace: table.keyspace.to_string(),
                    table: table.name.to_string(),
                    shard: self.rt.shard().0,
                    inputs: plan.inputs.iter().map(|(file, bytes)| (file.0, *bytes)).collect(),
                    expired: plan.expired as u64,
                    level: plan.level,
                    reason: plan.reason,
                });
            }
        }
        all
    }

    pub(super) fn compactions(&self) -> CompactionReport {
        let mut report = self.actions.compactions();
        for table in self.tables() {
            if table.pending_compactions > 0 {
                report.pending.push(PendingReport {
                    keyspace: table.keyspace,
                    table: table.table,
                    tasks: table.pending_compactions,
                });
            }
        }
        report
    }

    /// Tables of keyspaces that other nodes may have too.
    fn replicated_tables(&self) -> Vec<TableId> {
        let schema = self.membership.snapshot().schema.clone();
        let is_local = |class: &String| class.ends_with("LocalStrategy");
        let replicated = schema
            .keyspaces
            .values()
            .filter(|k| !k.is_virtual && !k.params.replication.get("class").is_some_and(is_local));
        replicated.flat_map(|k| k.tables.values()).map(|t| t.id).collect()
    }

    pub(super) fn key_samples(&self) -> Vec<Token> {
        let tables = self.replicated_tables().into_iter();
        tables.flat_map(|t| self.actions.key_samples(t)).collect()
    }

    pub(super) fn cidr_groups(&self, address: Option<IpAddr>) -> BTreeMap<String, Vec<String>> {
        let snapshot = self.membership.snapshot();
        let groups = &snapshot.auth.cidr_groups;
        let wanted = address.map(|address| cluster::cidr::groups_of(groups, address));
        let is_wanted = |name: &str| wanted.as_ref().is_none_or(|names| names.contains(&name));
        let wanted = groups.iter().filter(|(name, _)| is_wanted(name));
        let texts = wanted
            .map(|(name, ranges)| (name.clone(), ranges.iter().map(cluster::cidr::text).collect()));
        texts.collect()
    }

    pub(super) fn estimates(
        &self,
        ranges: &[(Token, Token)],
    ) -> Vec<(TableId, Vec<EstimateReport>)> {
        let tables = self.replicated_tables().into_iter();
        tables.map(|t| (t, self.actions.estimates(t, ranges))).collect()
    }
}

fn keyspaces(schema: &Schema) -> Vec<KeyspaceReport> {
    let stored = schema.keyspaces.values().filter(|k| !k.is_virtual);
    stored
        .map(|k| KeyspaceReport {
            name: k.name.to_string(),
            replication: k.params.replication.clone(),
            tables: k.tables.keys().map(ToString::to_string).collect(),
        })
        .collect()
}

/// Levels that Cassandra counts.
const LEVELS: usize = 9;

/// Returns true if the table's compaction is of this class.
fn has_strategy(table: &schema::Table, class: &str) -> bool {
    table.options.compaction.get("class").is_some_and(|named| named.ends_with(class))
}

fn levels_of(table: &schema::Table, mut levels: Vec<(u64, u64)>) -> Option<LevelsReport> {
    if !has_strategy(table, "LeveledCompactionStrategy") {
        return None;
    }
    levels.resize(levels.len().max(LEVELS), (0, 0));
    let fanout = table.options.compaction.get("fanout_size");
    let fanout = fanout.and_then(|text| text.parse().ok()).unwrap_or(10);
    Some(LevelsReport { fanout, levels })
}

fn time_window_of(table: &schema::Table) -> Option<String> {
    let option = |name: &str, default: &str| {
        table.options.compaction.get(name).map_or_else(|| default.to_owned(), ToString::to_string)
    };
    has_strategy(table, "TimeWindowCompactionStrategy").then(|| {
        let size = option("compaction_window_size", "1");
        format!("{size} {}", option("compaction_window_unit", "DAYS"))
    })
}
