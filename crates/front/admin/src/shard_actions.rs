//! [`ShardActions`]: what administration can have a shard do. Crate `node` binds it to the parts of the shard.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use admin_access::{RolePermissions, Secret};
use stdx::{TableId, Token};
use tls::PeerCertificate;

use crate::cluster_command::ClusterAction;
use crate::commands::{UpkeepAction, UpkeepReply};
use crate::model::{
    AutoRepairReport, ClearRequest, ClientReport, ClusterReport, CompactionReport,
    CoordinatorReport, EstimateReport, GuardrailReport, GuardrailRequest, HistoryReport,
    ParticipationReport, RepairCommand, RepairReport, RepairSummary, RepairSummaryQuery,
    SnapshotReport,
};
use crate::request::ActionError;

/// A command in progress on one shard.
pub type Work<T> = Pin<Box<dyn Future<Output = Result<T, ActionError>>>>;

/// Actions of a shard. Crate `node` binds it to the shard's store and server.
pub trait ShardActions {
    /// Writes the memtables of these tables to disk.
    fn flush(&self, tables: Vec<TableId>) -> Work<()>;
    /// Merges all SSTables of each of these tables.
    fn compact(&self, tables: Vec<TableId>) -> Work<()>;
    /// Rewrites SSTables of these tables: those of other versions than the one written now, or all
    /// of them. `written_by` (milliseconds since 1970) limits it to files that were written by
    /// then.
    fn upgrade(&self, tables: Vec<TableId>, all: bool, written_by: Option<i64>) -> Work<()>;
    /// Latencies of client requests that this shard coordinated, by table.
    fn table_latencies(&self) -> Vec<(TableId, CoordinatorReport)> {
        Vec::new()
    }
    /// Imports files, runs and stops compactions.
    fn upkeep(&self, _: UpkeepAction) -> Work<UpkeepReply> {
        Box::pin(async move { Err(ActionError::Unsupported("upkeep of files")) })
    }
    /// Stops serving clients, flushes everything; the shard still answers administration.
    fn drain(&self) -> Work<()>;
    /// Takes a snapshot of these tables, which expires after that many seconds if given.
    fn take_snapshot(
        &self,
        tag: (String, Option<u32>),
        tables: Vec<TableId>,
        skip_flush: bool,
    ) -> Work<()>;
    /// Removes the snapshot of that name of these tables; sent to shard 0.
    fn abandon_snapshot(&self, tag: String, tables: Vec<TableId>) -> Work<()>;
    /// Finished compactions of the whole node, newest first.
    fn compaction_history(&self) -> Work<Vec<HistoryReport>>;
    /// Returns estimates over this shard's SSTables of a table, one per range.
    fn estimates(&self, table: TableId, ranges: &[(Token, Token)]) -> Vec<EstimateReport>;
    /// Tokens of some keys of this shard's SSTables of a table, within the ranges that the node has
    /// first.
    fn key_samples(&self, _: TableId) -> Vec<Token> {
        Vec::new()
    }
    /// Snapshots of the node's tables; asked of shard 0.
    fn list_snapshots(&self) -> Work<Vec<SnapshotReport>>;
    /// Removes snapshots; sent to shard 0.
    fn clear_snapshots(&self, which: ClearRequest) -> Work<()>;
    /// Returns running and finished compactions of this shard; pending ones are among the tables'
    /// numbers.
    fn compactions(&self) -> CompactionReport;
    /// Returns true if CQL clients are served.
    fn native_transport_active(&self) -> bool;
    /// Connections of this shard's clients.
    fn clients(&self) -> Vec<ClientReport> {
        Vec::new()
    }
    /// Returns the roles whose passwords this shard verified recently.
    fn cached_credentials(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }
    /// Removes cached verifications of one role or of all. Returns true if there were any.
    fn forget_credentials(&self, _role: Option<&str>) -> bool {
        false
    }
    /// Checks the password of a role that logs in at the API. The hash runs on a thread of its own.
    ///
    /// # Errors
    /// `Unsupported`: this node has no passwords; `Busy`: too many logins are being checked.
    fn log_in(&self, _login: PasswordLogin) -> Work<Result<(), LoginRefusal>> {
        Box::pin(async move { Err(ActionError::Unsupported("a login with a password")) })
    }
    /// Returns the identity in a certificate, by the rule of the node; `None`: it has none.
    fn identity_of(&self, certificate: &PeerCertificate) -> Option<CertificateIdentity> {
        certificate.spiffe_id().map(|id| CertificateIdentity::Mapped(id.to_owned()))
    }
    /// Returns whether roles have permissions.
    fn role_permissions(&self) -> RolePermissions {
        RolePermissions::SuperusersOnly
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
    /// Returns this shard's part in the cluster; a subsystem that the node lacks stays `None` or
    /// empty.
    fn cluster(&self) -> ClusterReport {
        ClusterReport::default()
    }
    /// Carries out an action in the cluster; its targets exist.
    fn cluster_command(&self, action: ClusterAction) -> Work<()> {
        let name = action.name();
        Box::pin(async move { Err(ActionError::Unsupported(name)) })
    }
    /// Begins, lists and ends repairs.
    ///
    /// # Errors
    /// `Argument`: the request is invalid; `Failed`: not now.
    fn repair(&self, _: RepairCommand) -> Result<Vec<RepairReport>, ActionError> {
        Err(ActionError::Unsupported("repair"))
    }
    /// The node's parts in repairs, the oldest first. Shard 0.
    fn participations(&self) -> Vec<ParticipationReport> {
        Vec::new()
    }
    /// Switches automatic repairs on or off if a value is given, and returns their state.
    ///
    /// # Errors
    /// `Unsupported`, `Failed`.
    fn auto_repair(&self, _: Option<bool>) -> Result<AutoRepairReport, ActionError> {
        Err(ActionError::Unsupported("auto_repair"))
    }

    /// Returns what this shard knows of repairs of tables.
    ///
    /// # Errors
    /// `Unsupported`; `Argument`: there is no such keyspace or table.
    fn repair_summary(&self, _: &RepairSummaryQuery) -> Result<Vec<RepairSummary>, ActionError> {
        Err(ActionError::Unsupported("repair_summary"))
    }
}

/// Identity in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateIdentity {
    /// `ADD IDENTITY` gives it a role.
    Mapped(String),
    /// It is the name of a role.
    Role(String),
}

/// A password to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordLogin {
    /// The role.
    pub user: String,
    /// Its password.
    pub password: Secret,
    /// Address of the client.
    pub address: IpAddr,
}

/// Reason of a refused login, in Cassandra's words: the same for a wrong password and a role that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginRefusal(pub String);

/// Facts about a node that do not change while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// IP address that is announced to other nodes.
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
