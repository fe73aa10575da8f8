//! Requests of the HTTP server, the program and virtual tables to shards, and the replies.
//!
//! Owns: [`AdminRequest`] and [`AdminReply`], which no client sees. Never: JSON. Parameters of
//! requests are types of this module or of [`crate::model`], whose version 1 is the only one. A
//! second version of the API would convert its types into these requests at its routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use admin_access::{AccessScope, Secret};
use rt::{ForeignCaller, Mesh};
use stdx::{ShardId, TableId, Token};
use tls::PeerCertificate;

use crate::cluster_command::ClusterCommand;
use crate::commands::{UpkeepReply, UpkeepRequest};
use crate::model::{
    AutoRepairReport, ClearRequest, ClientReport, ClusterReport, CompactionReport, EndpointsReport,
    ErrorKind, EstimateReport, GuardrailReport, GuardrailRequest, HistoryReport, IndexReport,
    NodeReport, ParticipationReport, PlannedReport, RepairCommand, RepairReport, RepairSummary,
    RepairSummaryQuery, SampleRequest, SamplerReport, SnapshotReport, TableReport,
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

/// Request to a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminRequest {
    /// The cluster and this node; any shard can answer.
    Node,
    /// Numbers of all tables on this shard.
    Tables,
    /// Secondary indexes of all tables on this shard.
    Indexes,
    /// Compactions of this shard.
    Compactions,
    /// All metrics of this shard.
    Metrics,
    /// Write memtables to disk.
    Flush(Selection),
    /// Merge all SSTables of each table into one.
    Compact(Selection),
    /// List the compactions that would begin now, and why.
    CompactionPlan,
    /// Rewrite SSTables of other versions in the version that is written, or all of them.
    Upgrade {
        /// Tables to upgrade.
        selection: Selection,
        /// Those of that version too.
        all: bool,
        /// Only those that were written by then, milliseconds since 1970.
        written_by: Option<i64>,
    },
    /// About the files of tables and how they are compacted: see [`UpkeepRequest`].
    Upkeep(UpkeepRequest),
    /// Accept no more requests and flush everything to disk.
    Drain,
    /// Take a snapshot: keep the present files under a name.
    TakeSnapshot {
        /// The name.
        tag: String,
        /// Tables of the snapshot.
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
        /// Tables of the snapshot.
        selection: Selection,
    },
    /// Finished compactions of the last week; any shard can answer for all.
    CompactionHistory,
    /// Estimates over this shard's SSTables for these ranges: first token exclusive, second
    /// inclusive (`Token::MIN`: the end of the ring). Covers tables in replicated keyspaces.
    Estimates(Vec<(Token, Token)>),
    /// Tokens of some of the keys that the SSTables of this shard have, within the primary ranges
    /// of this node. Covers tables in replicated keyspaces.
    KeySamples,
    /// This shard's part in the cluster.
    Cluster,
    /// Do something in the cluster: to shard 0 or to all, see [`ClusterCommand::is_for_one_shard`].
    Command(ClusterCommand),
    /// About repairs: to shard 0.
    Repair(RepairCommand),
    /// Report the node's parts in repairs, its own and those of others. To shard 0.
    Participations,
    /// Switch automatic repairs on or off, or neither (`None`), and report their state.
    AutoRepair(Option<bool>),
    /// Summarise repairs of tables. Sent to all shards; only shard 0 knows when ranges were
    /// repaired.
    RepairSummary(RepairSummaryQuery),
    /// Name the replicas of a partition; any shard can answer.
    Endpoints {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// The key as text, components separated by `:`.
        key: String,
    },
    /// Sample the partitions that are read and written most.
    Sample(SampleCommand),
    /// Connections of this shard's clients.
    Clients,
    /// Limits on statements; any shard can answer.
    Guardrails,
    /// Change one of them; to all shards.
    SetGuardrail(GuardrailRequest),
    /// Roles whose passwords this shard verified recently.
    CachedCredentials,
    /// Check a login at the API; any shard can answer, with [`AdminReply::Login`].
    LogIn(ApiLogin),
    /// Makes this shard verify the password of a role (`None`: of all) again at its next login.
    ForgetCredentials(Option<String>),
    /// CIDR groups with their ranges, all or those of an address; any shard can answer.
    CidrGroups(Option<IpAddr>),
    /// List the snapshots; any shard can answer.
    ListSnapshots,
    /// Forget snapshots; to one shard.
    ClearSnapshots(ClearRequest),
}

/// A login at the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiLogin {
    /// A role with its password.
    Password {
        /// The role.
        user: String,
        /// The password.
        password: Secret,
        /// Address of the client.
        address: IpAddr,
    },
    /// A trusted certificate, whose identity stands for a role.
    Certificate(Box<PeerCertificate>),
}

/// Outcome of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginReply {
    /// The client is this role.
    Role {
        /// Its name.
        name: String,
        /// Its scope; `None`: it may do nothing.
        scope: Option<AccessScope>,
    },
    /// It is not, in Cassandra's words.
    Refused(String),
}

/// About samples of a shard's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleCommand {
    /// Check that it could begin: the tables that it names exist.
    Check(SampleRequest),
    /// Begin sampling; it ends automatically, but its results are retained.
    Begin(SampleRequest),
    /// End it and tell.
    End(SampleRequest),
}

/// Answer of a shard.
#[derive(Clone, Debug, PartialEq)]
pub enum AdminReply {
    /// To `Node`.
    Node(Box<NodeReport>),
    /// To `Tables`.
    Tables(Vec<TableReport>),
    /// To `Indexes`.
    Indexes(Vec<IndexReport>),
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
    /// To `Repair`: the started or requested one, or all; empty when there is none of that number.
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
    /// To `LogIn`.
    Login(LoginReply),
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
    /// The arguments name something that is missing or cannot be used.
    #[error("{0}")]
    Argument(String),
    /// The arguments name a keyspace that does not exist.
    #[error("{0}")]
    UnknownKeyspace(String),
    /// The arguments name a table that does not exist.
    #[error("{0}")]
    UnknownTable(String),
    /// An argument is no partition key of its table.
    #[error("{0}")]
    InvalidKey(String),
    /// It exists already (a snapshot of that name).
    #[error("{0}")]
    Exists(String),
    /// This build cannot do it.
    #[error("{0} is not supported yet")]
    Unsupported(&'static str),
    /// The node is busy or stopping; it may work later.
    #[error("{0}")]
    Busy(String),
    /// It failed on this node: see its log.
    #[error("{0}")]
    Failed(String),
}

impl ActionError {
    /// Returns the kind of the answer of the API.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            ActionError::Argument(_) => ErrorKind::Argument,
            ActionError::UnknownKeyspace(_) => ErrorKind::UnknownKeyspace,
            ActionError::UnknownTable(_) => ErrorKind::UnknownTable,
            ActionError::InvalidKey(_) => ErrorKind::InvalidKey,
            ActionError::Exists(_) => ErrorKind::Exists,
            ActionError::Unsupported(_) => ErrorKind::Unsupported,
            ActionError::Busy(_) => ErrorKind::Busy,
            ActionError::Failed(_) => ErrorKind::Failed,
        }
    }
}

/// The shards of a node.
pub(crate) fn shard_ids(shards: u16) -> impl Iterator<Item = ShardId> {
    (0..shards).map(ShardId)
}
