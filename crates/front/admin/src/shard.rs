//! What each shard answers, on its own thread, through the mesh.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use membership::Membership;
use rt::{ForeignCaller, Gate, Group, Mesh, Reply, Rt};
use schema::Schema;
use stdx::{FixedMap, ShardId, TableId, Token};
use store::{Sampler, Store, StoreError};

use crate::commands::{self, ClusterAction, UpkeepAction, UpkeepReply, UpkeepRequest};
use crate::histogram::HistogramReport;
use crate::members::{self, SchemaVersions};
use crate::model::{
    AutoRepairReport, ClearRequest, ClientReport, ClusterCommand, ClusterReport, CompactionReport,
    CoordinatorReport, EndpointsReport, EstimateReport, GuardrailReport, GuardrailRequest,
    HistoryReport, KeyspaceReport, LevelsReport, NodeReport, ParticipationReport, PendingReport,
    PlannedReport, RepairCommand, RepairReport, RepairSummary, RepairSummaryQuery, SampleReport,
    SampleRequest, SamplerReport, SnapshotReport, TableReport,
};

/// The way of administration into the shards.
pub type AdminMesh = Mesh<AdminRequest, AdminReply>;
/// The caller that [`crate::AdminParts`] hands to the server.
pub type AdminCaller = ForeignCaller<AdminRequest, AdminReply>;

/// Which tables a command is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Keyspaces; empty is all that are stored.
    pub keyspaces: Vec<String>,
    /// Tables of the one keyspace; empty is all of them.
    pub tables: Vec<String>,
}

/// What a shard is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminRequest {
    /// The cluster and this node; any shard can answer.
    Node,
    /// Numbers of all tables on this shard.
    Tables,
    /// Compactions of this shard.
    Compactions,
    /// All metrics of this shard.
    Metrics,
    /// Write memtables to disk.
    Flush(Selection),
    /// Merge all SSTables of each table into one.
    Compact(Selection),
    /// What compactions would begin now, and why.
    CompactionPlan,
    /// Write SSTables of other versions anew in the version that is written, or all of them.
    Upgrade {
        /// Of which tables.
        selection: Selection,
        /// Those of that version too.
        all: bool,
        /// Only those that were written by then, milliseconds since 1970.
        written_by: Option<i64>,
    },
    /// About the files of tables and how they are compacted: see [`UpkeepRequest`].
    Upkeep(UpkeepRequest),
    /// Take no more requests and write everything to disk.
    Drain,
    /// Keep the files as they are now under a name.
    TakeSnapshot {
        /// The name.
        tag: String,
        /// Of which tables.
        selection: Selection,
        /// Memtables are not flushed first.
        skip_flush: bool,
        /// Seconds after which it is removed; `None`: never.
        ttl_seconds: Option<u32>,
    },
    /// Remove what there is of a snapshot that could not be taken; to one shard.
    AbandonSnapshot {
        /// The name.
        tag: String,
        /// Of which tables.
        selection: Selection,
    },
    /// Finished compactions of the last week; any shard can answer for all.
    CompactionHistory,
    /// What the SSTables of this shard have in these ranges: behind the first token, up to the
    /// second (`Token::MIN`: the end of the ring). Of tables in keyspaces that are replicated.
    Estimates(Vec<(Token, Token)>),
    /// Tokens of some of the keys that the SSTables of this shard have, within the ranges that this
    /// node has first. Of tables in keyspaces that are replicated.
    KeySamples,
    /// This shard's part in the cluster.
    Cluster,
    /// Do something in the cluster: to shard 0 or to all, see [`ClusterCommand::is_for_one_shard`].
    Command(ClusterCommand),
    /// About repairs: to shard 0.
    Repair(RepairCommand),
    /// Tell of the node's parts in repairs, its own and those of others. To shard 0.
    Participations,
    /// Switch the repairs that begin by themselves, or none (`None`), and tell how they stand.
    AutoRepair(Option<bool>),
    /// What is known of repairs of tables: to all shards, when ranges were repaired is shard 0's.
    RepairSummary(RepairSummaryQuery),
    /// Who has a partition; any shard can answer.
    Endpoints {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// The key as text, components separated by `:`.
        key: String,
    },
    /// What is read and written most.
    Sample(SampleCommand),
    /// Connections of this shard's clients.
    Clients,
    /// Limits on statements; any shard can answer.
    Guardrails,
    /// Change one of them; to all shards.
    SetGuardrail(GuardrailRequest),
    /// Roles whose passwords this shard verified lately.
    CachedCredentials,
    /// Has this shard verify the password of a role (`None`: of all) at its next login.
    ForgetCredentials(Option<String>),
    /// CIDR groups with their ranges, all or those of an address; any shard can answer.
    CidrGroups(Option<IpAddr>),
    /// What snapshots there are; any shard can answer.
    ListSnapshots,
    /// Forget snapshots; to one shard.
    ClearSnapshots(ClearRequest),
}

/// About samples of a shard's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleCommand {
    /// Whether it could begin: what it names is there.
    Check(SampleRequest),
    /// Begin; it ends by itself, but keeps what it has.
    Begin(SampleRequest),
    /// End it and tell.
    End(SampleRequest),
}

/// What a shard answers.
#[derive(Clone, Debug, PartialEq)]
pub enum AdminReply {
    /// To `Node`.
    Node(Box<NodeReport>),
    /// To `Tables`.
    Tables(Vec<TableReport>),
    /// To `Compactions`.
    Compactions(Box<CompactionReport>),
    /// To `Metrics`.
    Metrics(telemetry::Snapshot),
    /// To `CompactionPlan`.
    Planned(Vec<PlannedReport>),
    /// To `CompactionHistory`.
    History(Vec<HistoryReport>),
    /// To `Estimates`: of each table, one for each range.
    Estimates(Vec<(TableId, Vec<EstimateReport>)>),
    /// To `KeySamples`: in no order.
    KeySamples(Vec<Token>),
    /// To `Cluster`.
    Cluster(Box<ClusterReport>),
    /// To `Repair`: the one begun or asked for, or all; none when there is none of that number.
    Repairs(Vec<RepairReport>),
    /// To `Participations`.
    Participations(Vec<ParticipationReport>),
    /// To `AutoRepair`.
    AutoRepair(AutoRepairReport),
    /// To `RepairSummary`.
    RepairSummary(Vec<RepairSummary>),
    /// To `Endpoints`.
    Endpoints(EndpointsReport),
    /// To `Guardrails`.
    Guardrails(Vec<GuardrailReport>),
    /// To `Clients`.
    Clients(Vec<ClientReport>),
    /// To `ListSnapshots`.
    Snapshots(Vec<SnapshotReport>),
    /// To `Sample`.
    Samples(Vec<SamplerReport>),
    /// To `CachedCredentials`: all of them; to `ForgetCredentials`: the roles that were forgotten, or
    /// an empty name for all.
    Credentials(BTreeSet<String>),
    /// To `CidrGroups`.
    CidrGroups(BTreeMap<String, Vec<String>>),
    /// To `Upkeep`.
    Upkeep(UpkeepReply),
    /// The command was carried out.
    Done,
    /// It was not.
    Failed(ActionError),
}

/// Why a command was not carried out, by what the caller can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// The arguments name something that is not there, or cannot be used.
    #[error("{0}")]
    Argument(String),
    /// It is there already (a snapshot of that name).
    #[error("{0}")]
    Exists(String),
    /// This build cannot do it.
    #[error("{0} is not supported yet")]
    Unsupported(&'static str),
    /// It failed on this node: see its log.
    #[error("{0}")]
    Failed(String),
}

/// A command in progress on one shard.
pub type Work<T> = Pin<Box<dyn Future<Output = Result<T, ActionError>>>>;

/// What a shard can be told to do. Crate `node` binds it to the shard's store and server.
pub trait ShardActions {
    /// Writes the memtables of these tables to disk.
    fn flush(&self, tables: Vec<TableId>) -> Work<()>;
    /// Merges all SSTables of each of these tables.
    fn compact(&self, tables: Vec<TableId>) -> Work<()>;
    /// Writes SSTables of these tables anew that are of other versions than the one written now, or
    /// all of them; of those that were written by then, milliseconds since 1970, if that is given.
    fn upgrade(&self, tables: Vec<TableId>, all: bool, written_by: Option<i64>) -> Work<()>;
    /// What requests of clients took that this shard was asked for, by table.
    fn table_latencies(&self) -> Vec<(TableId, CoordinatorReport)> {
        Vec::new()
    }
    /// Takes files in, compacts what is named, gives compactions up.
    fn upkeep(&self, _: UpkeepAction) -> Work<UpkeepReply> {
        Box::pin(async move { Err(ActionError::Unsupported("upkeep of files")) })
    }
    /// Stops serving clients, flushes everything; the shard goes on answering administration.
    fn drain(&self) -> Work<()>;
    /// Keeps the files of these tables as they are now, for so many seconds if any are given.
    fn take_snapshot(
        &self,
        tag: (String, Option<u32>),
        tables: Vec<TableId>,
        skip_flush: bool,
    ) -> Work<()>;
    /// Removes the snapshot of that name of these tables; told to shard 0.
    fn abandon_snapshot(&self, tag: String, tables: Vec<TableId>) -> Work<()>;
    /// Finished compactions of the whole node, newest first.
    fn compaction_history(&self) -> Work<Vec<HistoryReport>>;
    /// What this shard's SSTables of a table have in these ranges.
    fn estimates(&self, table: TableId, ranges: &[(Token, Token)]) -> Vec<EstimateReport>;
    /// Tokens of some keys of this shard's SSTables of a table, within the ranges that the node has
    /// first.
    fn key_samples(&self, _: TableId) -> Vec<Token> {
        Vec::new()
    }
    /// Snapshots of the node's tables; asked of shard 0.
    fn list_snapshots(&self) -> Work<Vec<SnapshotReport>>;
    /// Removes snapshots; told to shard 0.
    fn clear_snapshots(&self, which: ClearRequest) -> Work<()>;
    /// Running and finished compactions of this shard; pending ones come from the tables' numbers.
    fn compactions(&self) -> CompactionReport;
    /// Whether CQL clients are served.
    fn native_transport_active(&self) -> bool;
    /// Connections of this shard's clients.
    fn clients(&self) -> Vec<ClientReport> {
        Vec::new()
    }
    /// Roles whose passwords this shard verified lately.
    fn cached_credentials(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }
    /// Forgets that it did, of one role or of all; whether there was anything.
    fn forget_credentials(&self, _role: Option<&str>) -> bool {
        false
    }
    /// Limits on statements.
    fn guardrails(&self) -> Vec<GuardrailReport> {
        Vec::new()
    }
    /// Changes one of them.
    ///
    /// # Errors
    /// `Argument`: there is none of that name, or it does not take these values.
    fn set_guardrail(&self, _: GuardrailRequest) -> Work<()> {
        Box::pin(async move { Err(ActionError::Unsupported("setting a guardrail")) })
    }
    /// This shard's part in the cluster; what is not there stays `None` or empty.
    fn cluster(&self) -> ClusterReport {
        ClusterReport::default()
    }
    /// Does something in the cluster; what it names exists.
    fn cluster_command(&self, action: ClusterAction) -> Work<()> {
        let name = action.name();
        Box::pin(async move { Err(ActionError::Unsupported(name)) })
    }
    /// Begins, lists and ends repairs.
    ///
    /// # Errors
    /// `Argument`: what is asked for cannot be; `Failed`: not now.
    fn repair(&self, _: RepairCommand) -> Result<Vec<RepairReport>, ActionError> {
        Err(ActionError::Unsupported("repair"))
    }
    /// The node's parts in repairs, the oldest first. Shard 0.
    fn participations(&self) -> Vec<ParticipationReport> {
        Vec::new()
    }
    /// Switches the repairs that begin by themselves, when told how, and tells how they stand.
    ///
    /// # Errors
    /// `Unsupported`, `Failed`.
    fn auto_repair(&self, _: Option<bool>) -> Result<AutoRepairReport, ActionError> {
        Err(ActionError::Unsupported("auto_repair"))
    }

    /// What this shard knows of repairs of tables.
    ///
    /// # Errors
    /// `Unsupported`; `Argument`: there is no such keyspace or table.
    fn repair_summary(&self, _: &RepairSummaryQuery) -> Result<Vec<RepairSummary>, ActionError> {
        Err(ActionError::Unsupported("repair_summary"))
    }
}

/// What does not change while a node runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// IP address that other nodes are told.
    pub address: String,
    /// Port for other nodes.
    pub storage_port: u16,
    /// Full Java class name of the snitch.
    pub snitch: String,
    /// Full Java class name of the partitioner.
    pub partitioner: String,
    /// Version of Cassandra that is announced, `5.0.9`.
    pub release_version: String,
    /// Version of this server.
    pub server_version: String,
    /// When this run began, seconds since 1970.
    pub generation: i64,
    /// Memory budget of the node, bytes.
    pub memory_bytes_max: u64,
}

/// The parts of a shard that administration looks at.
pub struct ShardParts {
    /// The shard.
    pub rt: Rt,
    /// Its tables.
    pub store: Store,
    /// The schema and who is there.
    pub membership: Membership,
    /// What it can be told to do.
    pub actions: Rc<dyn ShardActions>,
    /// The node.
    pub facts: Arc<NodeFacts>,
    /// Owner of commands in progress: closing it waits for them.
    pub gate: Gate,
}

/// Serves `mesh` on this shard from now on.
pub fn serve_shard(mesh: &AdminMesh, parts: ShardParts) {
    let rt = parts.rt.clone();
    let versions = SchemaVersions::follow(&parts.membership);
    let parts = Rc::new(Served { parts, versions });
    mesh.serve(&rt, move |request, reply| serve(&parts, request, reply));
}

/// A shard's parts and what is remembered of its schema.
struct Served {
    parts: ShardParts,
    versions: SchemaVersions,
}

impl std::ops::Deref for Served {
    type Target = ShardParts;

    fn deref(&self) -> &ShardParts {
        &self.parts
    }
}

fn serve(parts: &Rc<Served>, request: AdminRequest, reply: Reply<AdminReply>) {
    match request {
        AdminRequest::Node => reply.send(AdminReply::Node(Box::new(parts.node()))),
        AdminRequest::Tables => reply.send(AdminReply::Tables(parts.tables())),
        AdminRequest::Compactions => {
            reply.send(AdminReply::Compactions(Box::new(parts.compactions())));
        }
        AdminRequest::CompactionPlan => {
            reply.send(AdminReply::Planned(parts.planned()));
        }
        AdminRequest::Metrics => {
            reply.send(AdminReply::Metrics(parts.rt.telemetry().snapshot()));
        }
        AdminRequest::Sample(command) => reply.send(match parts.sample(&command) {
            Ok(reports) => AdminReply::Samples(reports),
            Err(error) => AdminReply::Failed(error),
        }),
        AdminRequest::Clients => reply.send(AdminReply::Clients(parts.actions.clients())),
        AdminRequest::CachedCredentials => {
            reply.send(AdminReply::Credentials(parts.actions.cached_credentials()));
        }
        AdminRequest::ForgetCredentials(role) => {
            let found = parts.actions.forget_credentials(role.as_deref());
            let forgotten = found.then(|| role.unwrap_or_default());
            reply.send(AdminReply::Credentials(forgotten.into_iter().collect()));
        }
        AdminRequest::CidrGroups(address) => {
            let snapshot = parts.membership.snapshot();
            let groups = &snapshot.auth.cidr_groups;
            let wanted = address.map(|address| cluster::cidr::groups_of(groups, address));
            let is_wanted = |name: &str| wanted.as_ref().is_none_or(|names| names.contains(&name));
            let wanted = groups.iter().filter(|(name, _)| is_wanted(name));
            let texts = wanted.map(|(name, ranges)| {
                (name.clone(), ranges.iter().map(cluster::cidr::text).collect())
            });
            reply.send(AdminReply::CidrGroups(texts.collect()));
        }
        AdminRequest::Guardrails => {
            reply.send(AdminReply::Guardrails(parts.actions.guardrails()));
        }
        AdminRequest::Participations => {
            reply.send(AdminReply::Participations(parts.actions.participations()));
        }
        AdminRequest::AutoRepair(enabled) => reply.send(match parts.actions.auto_repair(enabled) {
            Ok(report) => AdminReply::AutoRepair(report),
            Err(error) => AdminReply::Failed(error),
        }),
        AdminRequest::RepairSummary(query) => {
            reply.send(match parts.actions.repair_summary(&query) {
                Ok(summaries) => AdminReply::RepairSummary(summaries),
                Err(error) => AdminReply::Failed(error),
            });
        }
        AdminRequest::Repair(command) => reply.send(match parts.actions.repair(command) {
            Ok(reports) => AdminReply::Repairs(reports),
            Err(error) => AdminReply::Failed(error),
        }),
        AdminRequest::Cluster => reply.send(AdminReply::Cluster(Box::new(parts.cluster()))),
        AdminRequest::Endpoints { keyspace, table, key } => {
            let snapshot = parts.membership.snapshot();
            let found = commands::endpoints(&snapshot, &keyspace, &table, &key);
            reply.send(match found {
                Ok((token, hosts)) => {
                    let host_ids = hosts.iter().map(ToString::to_string).collect();
                    AdminReply::Endpoints(EndpointsReport { token: token.0, host_ids })
                }
                Err(error) => AdminReply::Failed(error),
            });
        }
        AdminRequest::KeySamples => {
            let tables = parts.replicated_tables().into_iter();
            let samples = tables.flat_map(|t| parts.actions.key_samples(t)).collect();
            reply.send(AdminReply::KeySamples(samples));
        }
        AdminRequest::Estimates(ranges) => {
            reply.send(AdminReply::Estimates(parts.estimates(&ranges)));
        }
        command => {
            let of_task = parts.clone();
            let task = async move {
                let answer = of_task.carry_out(command).await;
                reply.send(answer.unwrap_or_else(AdminReply::Failed));
            };
            // A closed gate means that the node stops: the dropped reply tells the caller.
            let _ = parts.gate.spawn(&parts.rt, Group::Admin, "admin-command", task);
        }
    }
}

impl Served {
    /// What the shard says, with the versions of the schema that the epochs mean.
    fn cluster(&self) -> ClusterReport {
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

    fn node(&self) -> NodeReport {
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
            // Whoever has the log counts them.
            exceptions: 0,
        }
    }

    fn tables(&self) -> Vec<TableReport> {
        let schema = self.membership.snapshot().schema.clone();
        let mut reports = Vec::new();
        let mut asked: FixedMap<TableId, CoordinatorReport> =
            self.actions.table_latencies().into_iter().collect();
        for keyspace in schema.keyspaces.values().filter(|k| !k.is_virtual) {
            for table in keyspace.tables.values() {
                let stats = self.store.table_stats(table.id);
                let asked = asked.remove(&table.id).unwrap_or_default();
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
                    partition_sizes: HistogramReport { buckets: stats.partition_sizes, sum: 0 },
                    cell_counts: HistogramReport { buckets: stats.cell_counts, sum: 0 },
                });
            }
        }
        reports
    }

    fn sample(&self, command: &SampleCommand) -> Result<Vec<SamplerReport>, ActionError> {
        let (SampleCommand::Check(request)
        | SampleCommand::Begin(request)
        | SampleCommand::End(request)) = command;
        let selection = Selection {
            keyspaces: request.keyspace.clone().into_iter().collect(),
            tables: request.table.clone().into_iter().collect(),
        };
        let schema = self.membership.snapshot().schema.clone();
        let tables = match selected(&schema, &selection) {
            Ok(tables) => tables,
            // Dropped meanwhile: it has no samples.
            Err(_) if matches!(command, SampleCommand::End(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        let of_name = |name: &String| {
            let sampler = Sampler::of_name(name);
            let known = || Sampler::ALL.map(Sampler::name).join(", ");
            sampler.ok_or_else(|| {
                ActionError::Argument(format!(
                    "'{name}' sampler is not available from: [{}]",
                    known()
                ))
            })
        };
        let samplers: Vec<Sampler> =
            request.samplers.iter().map(of_name).collect::<Result<_, _>>()?;
        let duration = Duration::from_millis(request.duration);
        match command {
            SampleCommand::Check(_) => Ok(Vec::new()),
            SampleCommand::Begin(_) => {
                let failed = |error: StoreError| ActionError::Failed(error.to_string());
                for table in tables {
                    let how = (request.capacity, duration);
                    self.store.observer().begin_sampling(table, &samplers, how).map_err(failed)?;
                }
                Ok(Vec::new())
            }
            SampleCommand::End(_) => {
                Ok(self.end_samples(&schema, &tables, &samplers, request.count))
            }
        }
    }

    fn end_samples(
        &self,
        schema: &Schema,
        tables: &[TableId],
        samplers: &[Sampler],
        count: usize,
    ) -> Vec<SamplerReport> {
        let mut all: Vec<SamplerReport> = Vec::new();
        for sampler in samplers {
            all.push(SamplerReport { sampler: sampler.name().to_owned(), samples: Vec::new() });
        }
        for table in tables.iter().filter_map(|id| schema.tables_by_id.get(id)) {
            let name = format!("{}.{}", table.keyspace, table.name);
            let found = self.store.observer().finish_sampling(table.id, samplers, count);
            for (report, (sampler, samples)) in all.iter_mut().zip(found) {
                report.samples.extend(samples.into_iter().map(|sample| SampleReport {
                    table: name.clone(),
                    value: sample.what.text(table, sampler),
                    count: sample.count,
                    error: sample.error,
                }));
            }
        }
        all
    }

    /// By keyspace and table; a table whose options are not understood has none.
    fn planned(&self) -> Vec<PlannedReport> {
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

    fn compactions(&self) -> CompactionReport {
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

    fn estimates(&self, ranges: &[(Token, Token)]) -> Vec<(TableId, Vec<EstimateReport>)> {
        let tables = self.replicated_tables().into_iter();
        tables.map(|t| (t, self.actions.estimates(t, ranges))).collect()
    }

    async fn carry_out(&self, command: AdminRequest) -> Result<AdminReply, ActionError> {
        let schema = self.membership.snapshot().schema.clone();
        match command {
            AdminRequest::Flush(selection) => {
                self.actions.flush(selected(&schema, &selection)?).await?;
            }
            AdminRequest::Compact(selection) => {
                self.actions.compact(selected(&schema, &selection)?).await?;
            }
            AdminRequest::Upgrade { selection, all, written_by } => {
                let tables = selected(&schema, &selection)?;
                self.actions.upgrade(tables, all, written_by).await?;
            }
            AdminRequest::Upkeep(request) => {
                let action = commands::upkeep::resolve(request, &schema)?;
                return Ok(AdminReply::Upkeep(self.actions.upkeep(action).await?));
            }
            AdminRequest::Drain => self.actions.drain().await?,
            AdminRequest::SetGuardrail(change) => self.actions.set_guardrail(change).await?,
            AdminRequest::TakeSnapshot { tag, selection, skip_flush, ttl_seconds } => {
                check_tag(&tag)?;
                let tables = selected(&schema, &selection)?;
                self.actions.take_snapshot((tag, ttl_seconds), tables, skip_flush).await?;
            }
            AdminRequest::ClearSnapshots(which) => {
                if let Some(tag) = &which.tag {
                    check_tag(tag)?;
                }
                self.actions.clear_snapshots(which).await?;
            }
            AdminRequest::AbandonSnapshot { tag, selection } => {
                check_tag(&tag)?;
                self.actions.abandon_snapshot(tag, selected(&schema, &selection)?).await?;
            }
            AdminRequest::CompactionHistory => {
                return Ok(AdminReply::History(self.actions.compaction_history().await?));
            }
            AdminRequest::Command(command) => {
                let gossip = self.cluster().gossip;
                let snapshot = self.membership.snapshot();
                let action = commands::resolve(command, &snapshot, gossip.as_ref())?;
                self.actions.cluster_command(action).await?;
            }
            AdminRequest::ListSnapshots => {
                return Ok(AdminReply::Snapshots(self.actions.list_snapshots().await?));
            }
            AdminRequest::Node
            | AdminRequest::Tables
            | AdminRequest::Compactions
            | AdminRequest::CompactionPlan
            | AdminRequest::Cluster
            | AdminRequest::Clients
            | AdminRequest::Sample(_)
            | AdminRequest::Guardrails
            | AdminRequest::CachedCredentials
            | AdminRequest::ForgetCredentials(_)
            | AdminRequest::CidrGroups(_)
            | AdminRequest::Repair(_)
            | AdminRequest::Participations
            | AdminRequest::AutoRepair(_)
            | AdminRequest::RepairSummary(_)
            | AdminRequest::Endpoints { .. }
            | AdminRequest::Estimates(_)
            | AdminRequest::KeySamples
            | AdminRequest::Metrics => {
                stdx::invariant::broken(format_args!("admin: a question was taken for a command"))
            }
        }
        Ok(AdminReply::Done)
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

/// A tag becomes a directory: it must not lead anywhere else.
pub(crate) fn check_tag(tag: &str) -> Result<(), ActionError> {
    if tag.is_empty() || tag == "." || tag == ".." || tag.len() > 200 {
        return Err(ActionError::Argument("You must supply a snapshot name.".to_owned()));
    }
    if tag.contains('/') || tag.contains('\0') {
        return Err(ActionError::Argument("Snapshot name cannot contain /".to_owned()));
    }
    Ok(())
}

/// The tables of a selection, in Cassandra's words when there is none.
pub(crate) fn selected(
    schema: &Schema,
    selection: &Selection,
) -> Result<Vec<TableId>, ActionError> {
    if !selection.tables.is_empty() && selection.keyspaces.len() != 1 {
        let text = "When specifying the table for a snapshot, you must specify one and only one \
                    keyspace";
        return Err(ActionError::Argument(text.to_owned()));
    }
    let mut ids = Vec::new();
    let stored = |name: &str| schema.keyspace(name).filter(|k| !k.is_virtual);
    if selection.keyspaces.is_empty() {
        for keyspace in schema.keyspaces.values().filter(|k| !k.is_virtual) {
            ids.extend(keyspace.tables.values().map(|t| t.id));
        }
    }
    for name in &selection.keyspaces {
        let Some(keyspace) = stored(name) else {
            return Err(ActionError::Argument(format!("Keyspace {name} does not exist")));
        };
        if selection.tables.is_empty() {
            ids.extend(keyspace.tables.values().map(|t| t.id));
        }
        for table in &selection.tables {
            let Some(table) = keyspace.tables.get(table.as_str()) else {
                let text = format!("Unknown keyspace/cf pair ({name}.{table})");
                return Err(ActionError::Argument(text));
            };
            ids.push(table.id);
        }
    }
    Ok(ids)
}

/// Which shards there are.
pub(crate) fn shard_ids(shards: u16) -> impl Iterator<Item = ShardId> {
    (0..shards).map(ShardId)
}

/// Levels that Cassandra counts.
const LEVELS: usize = 9;

/// Whether the table's compaction is of this class.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_plain_name() {
        assert_eq!(check_tag("before-upgrade"), Ok(()));
        for tag in ["", ".", "..", "a/b", "../x", "a\0b"] {
            assert!(check_tag(tag).is_err(), "{tag:?}");
        }
        assert!(check_tag(&"x".repeat(200)).is_ok());
        assert!(check_tag(&"x".repeat(201)).is_err());
    }
}
