//! Reports and request bodies of the API, as JSON. Names are stable: fields are added, never
//! renamed.

mod caches;
mod cluster;
mod error_kind;
mod indexes;
mod load;
mod ownership;
mod repair;
mod sampling;
mod upkeep;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::cluster_command::ClusterCommand;
pub use crate::compaction_command::CompactionCommand;
pub use caches::CacheReport;
pub use cluster::{
    CidrFilteringReport, ClientReport, ClusterReport, CopyReport, EndpointsReport,
    ForgetCredentials, GossipPeerReport, GossipReport, HintsReport, LogLevelReport, MessageCounts,
    MessagesReport, PendingHintsReport, ReadRepairReport, RemovalReport, SettingsReport,
    StageReport, StreamFileReport, StreamProgress, StreamReport, StreamingReport, TrafficReport,
};
pub use error_kind::ErrorKind;
pub use indexes::{IndexReport, IndexedSstableReport};
pub use load::{LOAD_BYTES_MAX, LOAD_MUTATIONS_MAX, LoadTarget};
pub use ownership::{Ownership, RangeReport};
pub use repair::{
    AutoRepairConfig, AutoRepairReport, AutoRepairTable, CourseReport, ParticipationReport,
    RepairCommand, RepairDetails, RepairJobReport, RepairLineReport, RepairOrder, RepairReport,
    RepairSessionReport, RepairSummary, RepairSummaryQuery, ValidationReport,
};
pub use sampling::{SampleJob, SampleReport, SampleRequest, SamplerReport};
pub use upkeep::{
    CompactionSettings, DamagedReport, GarbageGranularity, ImportReport, ImportRequest,
    RefreshRequest, RepairedRequest, ScrubRequest, SstableReport, VerifyRequest,
};

use crate::histogram::HistogramReport;

/// `GET /api/v1/node`: the cluster as this node sees it, and this node itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Full Java class name, as Cassandra's tools print it.
    pub partitioner: String,
    /// Full Java class name.
    pub snitch: String,
    /// Version of Cassandra that is announced to drivers.
    pub release_version: String,
    /// Version of this server.
    pub server_version: String,
    /// UUID of the schema.
    pub schema_version: String,
    /// Epoch of the metadata that the schema is of.
    #[serde(default)]
    pub epoch: u64,
    /// UUID of this node.
    pub host_id: String,
    /// Members, this node included.
    pub nodes: Vec<MemberReport>,
    /// Keyspaces that are stored, by name.
    pub keyspaces: Vec<KeyspaceReport>,
    /// Seconds since this node started.
    pub uptime_seconds: u64,
    /// When this run began, seconds since 1970.
    pub generation: i64,
    /// True if CQL clients are served.
    pub native_transport_active: bool,
    /// Shards of this node.
    pub shards: u16,
    /// Memory budget, bytes.
    pub memory_bytes_max: u64,
    /// Errors in the log since the start; 0 where they are not counted.
    #[serde(default)]
    pub exceptions: u64,
}

/// One member of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberReport {
    /// IP address that is announced to other nodes.
    pub address: String,
    /// Port for other nodes.
    pub storage_port: u16,
    /// UUID.
    pub host_id: String,
    /// Data centre.
    pub datacenter: String,
    /// Rack.
    pub rack: String,
    /// Port for CQL clients; 0 when it is not known.
    #[serde(default)]
    pub rpc_port: u16,
    /// IP address for CQL clients; empty when it is not known.
    #[serde(default)]
    pub rpc_address: String,
    /// True if the node is alive.
    pub up: bool,
    /// Liveness is unknown: this node does not listen to gossip.
    #[serde(default)]
    pub liveness_unknown: bool,
    /// `Normal`, `Joining`, `Leaving`, `Moving`.
    pub state: String,
    /// True if the node votes on changes of schema, roles and members.
    #[serde(default)]
    pub is_voter: bool,
    /// Version of its schema; `None` when it is not known, or the node does not answer.
    #[serde(default)]
    pub schema_version: Option<String>,
    /// Bytes of its SSTables; `None` when it is not known.
    pub load_bytes: Option<u64>,
    /// Uncompressed bytes of its SSTables; `None` when it is not known.
    pub uncompressed_bytes: Option<u64>,
    /// Its tokens, ascending.
    pub tokens: Vec<i64>,
    /// Version of Cassandra that it announces.
    pub release_version: String,
}

/// One keyspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyspaceReport {
    /// Name.
    pub name: String,
    /// The replication map; `class` is a full Java class name.
    pub replication: BTreeMap<String, String>,
    /// Names of its tables.
    pub tables: Vec<String>,
}

/// `GET /api/v1/tables`: numbers of one table, all shards together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableReport {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// UUID without dashes.
    pub id: String,
    /// SSTables in use.
    pub sstables: u64,
    /// Bytes of their components.
    pub disk_bytes: u64,
    /// Uncompressed bytes of their data.
    pub uncompressed_bytes: u64,
    /// Those of them that were repaired.
    #[serde(default)]
    pub repaired_bytes: u64,
    /// Those of them that take part in a repair.
    #[serde(default)]
    pub pending_repair_bytes: u64,
    /// Partitions, counted once per SSTable and memtable.
    pub partitions_estimate: u64,
    /// Memory of memtables.
    pub memtable_bytes: u64,
    /// Mutations in memtables.
    pub memtable_mutations: u64,
    /// Memtables flushed since start.
    pub flushes: u64,
    /// Compactions finished since start.
    pub compactions: u64,
    /// Compactions that wait.
    pub pending_compactions: u64,
    /// Reads since start.
    pub reads: u64,
    /// Writes since start.
    pub writes: u64,
    /// Memory for metadata of SSTables, without their blocks.
    pub metadata_bytes: u64,
    /// That of Bloom filters.
    #[serde(default)]
    pub filter_bytes: u64,
    /// Bytes of Filter components.
    #[serde(default)]
    pub filter_file_bytes: u64,
    /// Memory of samples of indexes.
    #[serde(default)]
    pub summary_bytes: u64,
    /// Memory of offsets of compressed chunks.
    #[serde(default)]
    pub offsets_bytes: u64,
    /// Bytes of the Data of compressed SSTables on disk, and uncompressed.
    #[serde(default)]
    pub compressed_bytes: (u64, u64),
    /// SSTables of other versions than the one that is written.
    #[serde(default)]
    pub old_sstables: u64,
    /// SSTables in another data directory than the one of their tokens.
    #[serde(default)]
    pub misplaced_sstables: u64,
    /// Memtables that are being written to disk, or wait for that.
    #[serde(default)]
    pub pending_flushes: u64,
    /// Memory of partitions that no SSTable can hold.
    #[serde(default)]
    pub unflushable_bytes: u64,
    /// Partitions that Bloom filters let pass in vain since start.
    #[serde(default)]
    pub filter_misses: u64,
    /// SSTables that reads of partitions accessed since start.
    #[serde(default)]
    pub sstables_read: u64,
    /// Cells of SSTables that are tombstones old enough to go, by an estimate, and all cells.
    #[serde(default)]
    pub droppable_cells: (u64, u64),
    /// Tombstones that reads met since start.
    pub tombstones_scanned: u64,
    /// Bytes that only snapshots hold.
    pub snapshot_bytes: u64,
    /// How long reads of single partitions took on their shard.
    #[serde(default)]
    pub read_latency: HistogramReport,
    /// How long writes took on their shard.
    #[serde(default)]
    pub write_latency: HistogramReport,
    /// SSTables that each of these reads accessed, plus one.
    #[serde(default)]
    pub sstables_per_read: HistogramReport,
    /// Bytes of the largest SSTable on disk.
    #[serde(default)]
    pub sstable_bytes_max: u64,
    /// Longest time between the first and the last write of an SSTable, microseconds.
    #[serde(default)]
    pub sstable_span_micros_max: u64,
    /// Levels of a leveled table.
    #[serde(default)]
    pub levels: Option<LevelsReport>,
    /// Size and unit of the windows of a table of time windows, such as `1 DAYS`.
    #[serde(default)]
    pub time_window: Option<String>,
    /// How long reads of ranges took.
    #[serde(default)]
    pub scan_latency: HistogramReport,
    /// Live rows that each read met, plus one.
    #[serde(default)]
    pub rows_per_read: HistogramReport,
    /// Tombstones that each read met, plus one.
    #[serde(default)]
    pub tombstones_per_read: HistogramReport,
    /// Latencies of reads of partitions that this node coordinated.
    #[serde(default)]
    pub coordinator_reads: HistogramReport,
    /// Latencies of reads of ranges that this node coordinated.
    #[serde(default)]
    pub coordinator_scans: HistogramReport,
    /// Latencies of writes that this node coordinated.
    #[serde(default)]
    pub coordinator_writes: HistogramReport,
    /// Secondary indexes by name: true if queries can use them.
    #[serde(default)]
    pub indexes: BTreeMap<String, bool>,
    /// Bytes of these indexes on disk.
    #[serde(default)]
    pub index_bytes: u64,
    /// How long searches of these indexes took on their shard.
    #[serde(default)]
    pub index_latency: HistogramReport,
    /// SSTables in these searches, once for each restriction, since start.
    #[serde(default)]
    pub index_sstables_searched: u64,
    /// Rows that these searches named, which were read and filtered, since start.
    #[serde(default)]
    pub index_candidates: u64,
    /// Bytes of the partitions in SSTables.
    #[serde(default)]
    pub partition_sizes: HistogramReport,
    /// Cells of these partitions.
    #[serde(default)]
    pub cell_counts: HistogramReport,
}

/// 0 to 1; 0 of nothing.
fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { (part as f64 / of as f64).min(1.0) }
}

impl TableReport {
    /// Memory of Bloom filters, samples of indexes and offsets of chunks: what Cassandra has off its heap.
    pub(crate) fn off_heap_bytes(&self) -> u64 {
        self.filter_bytes.saturating_add(self.summary_bytes).saturating_add(self.offsets_bytes)
    }

    /// Returns the share of the SSTables accessed by reads that did not have the partition.
    pub(crate) fn filter_false_ratio(&self) -> f64 {
        share(self.filter_misses, self.sstables_read)
    }

    /// Share of cells that are tombstones old enough to go.
    pub(crate) fn droppable_ratio(&self) -> f64 {
        share(self.droppable_cells.0, self.droppable_cells.1)
    }

    /// Bytes that were never repaired.
    pub(crate) fn unrepaired_bytes(&self) -> u64 {
        self.uncompressed_bytes.saturating_sub(self.repaired_bytes + self.pending_repair_bytes)
    }

    /// Adds another shard's numbers of the same table.
    pub fn merge(&mut self, other: &TableReport) {
        self.sstables += other.sstables;
        self.disk_bytes += other.disk_bytes;
        self.uncompressed_bytes += other.uncompressed_bytes;
        self.repaired_bytes += other.repaired_bytes;
        self.pending_repair_bytes += other.pending_repair_bytes;
        self.partitions_estimate += other.partitions_estimate;
        self.memtable_bytes += other.memtable_bytes;
        self.memtable_mutations += other.memtable_mutations;
        self.unflushable_bytes += other.unflushable_bytes;
        self.flushes += other.flushes;
        self.compactions += other.compactions;
        self.pending_compactions += other.pending_compactions;
        self.reads += other.reads;
        self.writes += other.writes;
        self.metadata_bytes += other.metadata_bytes;
        self.filter_bytes += other.filter_bytes;
        self.filter_file_bytes += other.filter_file_bytes;
        self.summary_bytes += other.summary_bytes;
        self.offsets_bytes += other.offsets_bytes;
        self.compressed_bytes.0 += other.compressed_bytes.0;
        self.compressed_bytes.1 += other.compressed_bytes.1;
        self.old_sstables += other.old_sstables;
        self.misplaced_sstables += other.misplaced_sstables;
        self.pending_flushes += other.pending_flushes;
        self.filter_misses += other.filter_misses;
        self.sstables_read += other.sstables_read;
        self.droppable_cells.0 += other.droppable_cells.0;
        self.droppable_cells.1 += other.droppable_cells.1;
        self.tombstones_scanned += other.tombstones_scanned;
        self.snapshot_bytes += other.snapshot_bytes;
        self.read_latency.merge(&other.read_latency);
        self.write_latency.merge(&other.write_latency);
        self.sstables_per_read.merge(&other.sstables_per_read);
        self.sstable_bytes_max = self.sstable_bytes_max.max(other.sstable_bytes_max);
        self.sstable_span_micros_max =
            self.sstable_span_micros_max.max(other.sstable_span_micros_max);
        if let (Some(levels), Some(others)) = (&mut self.levels, &other.levels) {
            levels.merge(others);
        }
        self.scan_latency.merge(&other.scan_latency);
        self.rows_per_read.merge(&other.rows_per_read);
        self.tombstones_per_read.merge(&other.tombstones_per_read);
        self.coordinator_reads.merge(&other.coordinator_reads);
        self.coordinator_scans.merge(&other.coordinator_scans);
        self.coordinator_writes.merge(&other.coordinator_writes);
        for (index, is_built) in &other.indexes {
            *self.indexes.entry(index.clone()).or_insert(true) &= is_built;
        }
        self.index_bytes += other.index_bytes;
        self.index_latency.merge(&other.index_latency);
        self.index_sstables_searched += other.index_sstables_searched;
        self.index_candidates += other.index_candidates;
        self.partition_sizes.merge(&other.partition_sizes);
        self.cell_counts.merge(&other.cell_counts);
    }
}

/// SSTables on the levels of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelsReport {
    /// How many times larger a level is than the one before it.
    pub fanout: u64,
    /// SSTables and bytes of their Data on disk, from level 0 on.
    pub levels: Vec<(u64, u64)>,
}

impl LevelsReport {
    fn merge(&mut self, other: &LevelsReport) {
        if self.levels.len() < other.levels.len() {
            self.levels.resize(other.levels.len(), (0, 0));
        }
        for ((files, bytes), (more, of_more)) in self.levels.iter_mut().zip(&other.levels) {
            *files += more;
            *bytes += of_more;
        }
    }
}

/// `GET /api/v1/latencies`: how long clients' requests took on this node, from their arrival to
/// their answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoordinatorReport {
    /// Reads of partitions.
    pub read: HistogramReport,
    /// Writes and batches.
    pub write: HistogramReport,
    /// Reads of token ranges.
    pub range: HistogramReport,
}

/// `GET /api/v1/compactions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompactionReport {
    /// Compactions that may run at the same time.
    pub concurrent: u32,
    /// Compactions that wait, by keyspace and table; only those that are not 0.
    pub pending: Vec<PendingReport>,
    /// Finished since start, also of tables that were dropped since.
    pub completed: u64,
    /// Not begun or not gone on with for want of disk space, since start.
    pub aborted: u64,
    /// Uncompressed bytes that went through compactions since start.
    pub bytes_compacted: u64,
    /// The same as they are on disk.
    pub compressed_bytes_compacted: u64,
    /// Finished per second: weighted average of the last 15 minutes, and since the API is served; of the
    /// node, so that a shard's has `None`.
    pub rate_15_minutes: Option<f64>,
    /// See `rate_15_minutes`.
    pub rate_mean: Option<f64>,
    /// Bytes per second that compactions may write; 0 is no limit.
    pub bytes_per_second_max: u64,
    /// Bytes of inputs still to be read by pending and running compactions.
    pub backlog_bytes: u64,
    /// Bytes of inputs that were read per second while compactions ran; 0: none has run.
    pub backlog_bytes_per_second: u64,
    /// Share of the processor that compaction gets on the shard that gives it most; statements have 1000.
    pub share: u32,
    /// Running ones.
    pub running: Vec<RunningReport>,
}

impl CompactionReport {
    /// Adds another shard's; rates stay as they are.
    pub fn merge(&mut self, other: CompactionReport) {
        self.concurrent += other.concurrent;
        for pending in other.pending {
            let same =
                |p: &&mut PendingReport| p.keyspace == pending.keyspace && p.table == pending.table;
            match self.pending.iter_mut().find(same) {
                Some(mine) => mine.tasks += pending.tasks,
                None => self.pending.push(pending),
            }
        }
        self.completed += other.completed;
        self.aborted += other.aborted;
        self.bytes_compacted += other.bytes_compacted;
        self.compressed_bytes_compacted += other.compressed_bytes_compacted;
        self.bytes_per_second_max += other.bytes_per_second_max;
        self.backlog_bytes += other.backlog_bytes;
        self.backlog_bytes_per_second += other.backlog_bytes_per_second;
        self.share = self.share.max(other.share);
        self.running.extend(other.running);
    }
}

/// `GET /api/v1/compactions/plan`: a compaction that would begin now on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedReport {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// Shard.
    pub shard: u16,
    /// Generations of the files that it would merge, and the bytes of their data on disk.
    pub inputs: Vec<(u64, u64)>,
    /// How many of these would be dropped without being read.
    pub expired: u64,
    /// Level of its output.
    pub level: u32,
    /// Why.
    pub reason: String,
}

/// Compactions of one table that wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PendingReport {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// How many.
    pub tasks: u64,
}

/// A compaction that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunningReport {
    /// UUID or other unique word.
    pub id: String,
    /// Kind, as nodetool prints it: `Compaction`, `Major compaction`, ….
    pub kind: String,
    /// Inputs.
    #[serde(default)]
    pub sstables: u64,
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// Bytes done.
    pub completed: u64,
    /// Bytes to do.
    pub total: u64,
    /// Where its outputs go; empty: it has none.
    #[serde(default)]
    pub target_directory: String,
}

/// `GET /api/v1/compactions/history`: a finished compaction of the last week, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryReport {
    /// Time UUID.
    pub id: String,
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// When it ended, milliseconds since 1970.
    pub compacted_at: i64,
    /// Bytes of the inputs' data on disk.
    pub bytes_in: i64,
    /// Bytes of the output's data on disk.
    pub bytes_out: i64,
    /// Number of partitions by the number of inputs that they were merged from.
    pub rows_merged: Vec<(i32, i64)>,
    /// Such as `compaction_type`.
    pub properties: Vec<(String, String)>,
}

/// Partitions and bytes of SSTables in a range of the ring, for `system.size_estimates`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EstimateReport {
    /// Partitions in the range.
    pub partitions: u64,
    /// Bytes of all partitions of the SSTables that reach into it, and their number.
    pub bytes: u64,
    /// See `bytes`.
    pub counted: u64,
}

impl EstimateReport {
    /// Adds another shard's.
    pub fn merge(&mut self, other: &EstimateReport) {
        self.partitions = self.partitions.saturating_add(other.partitions);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.counted = self.counted.saturating_add(other.counted);
    }

    /// Mean size of a partition; 0 where there is none.
    pub fn mean_bytes(&self) -> u64 {
        self.bytes.checked_div(self.counted).unwrap_or(0)
    }
}

/// `GET /api/v1/snapshots`: one table's part of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SnapshotReport {
    /// Name of the snapshot.
    pub tag: String,
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// Bytes that only the snapshot holds.
    pub true_bytes: u64,
    /// Bytes of its files.
    pub disk_bytes: u64,
    /// `2026-11-21T05:14:49.204Z`; empty when it is not known.
    pub created_at: String,
    /// Expiry, when it is removed automatically; empty: never.
    #[serde(default)]
    pub expires_at: String,
    /// A Cassandra has made it for a repair.
    #[serde(default)]
    pub is_ephemeral: bool,
}

/// Body of `POST /api/v1/flush` and `/api/v1/compact`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TablesRequest {
    /// Keyspaces; empty is all.
    #[serde(default)]
    pub keyspaces: Vec<String>,
    /// Tables of the one keyspace; empty is all of them.
    #[serde(default)]
    pub tables: Vec<String>,
}

/// A limit on statements, in `GET /api/v1/guardrails`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuardrailReport {
    /// Name, as `PUT` accepts it.
    pub name: String,
    /// Settings and their values; of a threshold the failing one first.
    pub settings: Vec<(String, String)>,
}

/// Body of `PUT /api/v1/guardrails`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuardrailRequest {
    /// Which one.
    pub name: String,
    /// Values, as `nodetool setguardrailsconfig` accepts them.
    pub values: Vec<String>,
}

/// Body of `POST /api/v1/upgradesstables`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// Keyspaces; empty is all.
    #[serde(default)]
    pub keyspaces: Vec<String>,
    /// Tables of the one keyspace; empty is all of them.
    #[serde(default)]
    pub tables: Vec<String>,
    /// Files of the version that is written now too.
    #[serde(default)]
    pub all: bool,
    /// Only files that were written by then, milliseconds since 1970.
    #[serde(default)]
    pub written_by: Option<i64>,
}

/// Body of `POST /api/v1/snapshots`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRequest {
    /// Name of the snapshot.
    pub tag: String,
    /// Keyspaces to snapshot.
    #[serde(default)]
    pub keyspaces: Vec<String>,
    /// Tables of the one keyspace; empty is all of them.
    #[serde(default)]
    pub tables: Vec<String>,
    /// Memtables are not flushed first.
    #[serde(default)]
    pub skip_flush: bool,
    /// Seconds after which it is removed automatically, 60 at least; `None`: never.
    #[serde(default)]
    pub ttl_seconds: Option<u32>,
}

/// Body of `DELETE /api/v1/snapshots`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearRequest {
    /// Name of the snapshot; `None` is every snapshot.
    #[serde(default)]
    pub tag: Option<String>,
    /// Keyspaces; empty is all.
    #[serde(default)]
    pub keyspaces: Vec<String>,
    /// Only those that are older, by the node's clock.
    #[serde(default)]
    pub older_than_seconds: Option<u64>,
    /// Only those that were made before, milliseconds since 1970.
    #[serde(default)]
    pub older_than_millis: Option<i64>,
}

/// Body of `POST /api/v1/drain`: an empty object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {}

/// Body of every answer that is not 2xx.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// In words.
    pub error: String,
    /// The same for programs; a node of an older version sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ErrorKind>,
}

impl KeyspaceReport {
    /// Short name of the replication class.
    pub fn strategy(&self) -> &str {
        let class = self.replication.get("class").map_or("", String::as_str);
        class.rsplit('.').next().unwrap_or(class)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn keyspace(name: &str, pairs: &[(&str, &str)]) -> KeyspaceReport {
        KeyspaceReport {
            name: name.to_owned(),
            replication: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            tables: Vec::new(),
        }
    }

    pub(crate) const SIMPLE: &str = "org.apache.cassandra.locator.SimpleStrategy";
    pub(crate) const NETWORK: &str = "org.apache.cassandra.locator.NetworkTopologyStrategy";
    const LOCAL: &str = "org.apache.cassandra.locator.LocalStrategy";

    /// One node with Cassandra's keyspaces and one user's.
    pub(crate) fn one_node() -> NodeReport {
        NodeReport {
            cluster_name: "peer".to_owned(),
            partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
            snitch: "org.apache.cassandra.locator.SimpleSnitch".to_owned(),
            release_version: "5.0.9".to_owned(),
            schema_version: "fb799392-e8c6-337c-a9df-c7810a620ca5".to_owned(),
            epoch: 7,
            host_id: "fcd96e1a-a401-4d4a-84de-5c246d9acd87".to_owned(),
            nodes: vec![MemberReport {
                address: "127.0.0.1".to_owned(),
                storage_port: 7000,
                host_id: "fcd96e1a-a401-4d4a-84de-5c246d9acd87".to_owned(),
                datacenter: "datacenter1".to_owned(),
                rack: "rack1".to_owned(),
                rpc_address: "127.0.0.1".to_owned(),
                rpc_port: 9042,
                up: true,
                liveness_unknown: false,
                state: "Normal".to_owned(),
                is_voter: true,
                schema_version: Some("fb799392-e8c6-337c-a9df-c7810a620ca5".to_owned()),
                load_bytes: Some(481_137),
                uncompressed_bytes: Some(1_363_149),
                tokens: vec![-8_378_705_484_723_146_421, 9_050_187_184_243_978_179],
                release_version: "5.0.9".to_owned(),
            }],
            keyspaces: vec![
                keyspace("adm_h", &[("class", SIMPLE), ("replication_factor", "1")]),
                keyspace("system", &[("class", LOCAL)]),
                keyspace("system_traces", &[("class", SIMPLE), ("replication_factor", "2")]),
            ],
            uptime_seconds: 2949,
            generation: 1_795_234_238,
            native_transport_active: true,
            shards: 2,
            memory_bytes_max: 1 << 30,
            ..NodeReport::default()
        }
    }

    /// Three nodes of one datacenter, a token each: at a quarter, a half and the end of the ring.
    pub(crate) fn three_nodes() -> NodeReport {
        let mut node = one_node();
        let tokens = [i64::MIN / 2, 0, i64::MAX];
        let first = node.nodes.remove(0);
        for (i, token) in tokens.into_iter().enumerate() {
            node.nodes.push(MemberReport {
                address: format!("127.0.0.{}", i + 1),
                rpc_address: format!("127.0.0.{}", i + 1),
                host_id: format!("{:08x}-0000-4000-8000-000000000000", i + 1),
                datacenter: "dc1".to_owned(),
                rack: format!("r{}", i + 1),
                tokens: vec![token],
                ..first.clone()
            });
        }
        node.host_id.clone_from(&node.nodes[0].host_id);
        node
    }

    #[test]
    fn one_node_owns_everything_that_is_replicated_to_it() {
        let mut node = one_node();
        assert_eq!(node.ownership(None).unwrap().effective, Some(vec![1.0]));
        node.keyspaces.push(keyspace("far", &[("class", NETWORK), ("elsewhere", "3")]));
        assert_eq!(node.ownership(Some("far")).unwrap().effective, Some(vec![0.0]));
        node.keyspaces.push(keyspace("near", &[("class", NETWORK), ("datacenter1", "3")]));
        assert_eq!(node.ownership(Some("near")).unwrap().effective, Some(vec![1.0]));
    }

    #[test]
    fn ownership_that_means_nothing_says_why() {
        let mut node = one_node();
        let local = node.ownership(Some("system")).unwrap();
        assert_eq!(local.effective, None);
        assert!(local.note.unwrap().contains("LocalStrategy"));
        assert_eq!(node.ownership(Some("none")).unwrap_err(), "The keyspace none, does not exist");
        node.keyspaces.push(keyspace("b", &[("class", SIMPLE), ("replication_factor", "3")]));
        let mixed = node.ownership(None).unwrap();
        assert!(mixed.note.unwrap().starts_with("Non-system keyspaces don't have the same"));
    }

    #[test]
    fn numbers_of_shards_are_added_and_tables_kept_apart() {
        let mut all = CompactionReport::default();
        for (table, tasks) in [("a", 1), ("b", 2), ("a", 4)] {
            let pending =
                vec![PendingReport { keyspace: "k".to_owned(), table: table.to_owned(), tasks }];
            all.merge(CompactionReport {
                concurrent: 1,
                pending,
                completed: 10,
                ..CompactionReport::default()
            });
        }
        let pending: Vec<_> = all.pending.iter().map(|p| (p.table.as_str(), p.tasks)).collect();
        assert_eq!(pending, [("a", 5), ("b", 2)]);
        assert_eq!((all.concurrent, all.completed), (3, 30));
    }
}
