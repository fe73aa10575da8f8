//! Repairs, as they are ordered and reported.

use serde::{Deserialize, Serialize};

/// Request for a repair; names are those of Cassandra's options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairOrder {
    /// Keyspace.
    pub keyspace: String,
    /// Its tables; empty: all.
    pub tables: Vec<String>,
    /// Only ranges whose first replica is this node.
    pub primary_range: bool,
    /// Only these tokens, the first of each exclusive; empty: all of this node.
    pub ranges: Vec<(i64, i64)>,
    /// Only replicas of these datacenters; empty: all.
    pub datacenters: Vec<String>,
    /// Only replicas of these addresses; empty: all.
    pub hosts: Vec<String>,
    /// Count what differs and change nothing.
    pub preview: bool,
    /// Ask replicas one after the other.
    pub sequential: bool,
    /// Tables at a time.
    pub job_threads: u8,
    /// The repair is incremental.
    pub incremental: bool,
    /// Ranges without other replicas are no error.
    pub ignore_unreplicated: bool,
    /// A preview of repaired data.
    pub validate: bool,
    /// Ask one replica of each datacenter at a time.
    pub datacenter_parallel: bool,
    /// Leave replicas out that are not alive.
    pub force: bool,
    /// Only this node receives missing data.
    pub pull: bool,
    /// Only lightweight transactions are brought to their ends.
    pub paxos_only: bool,
    /// They are not, which is done first otherwise.
    #[serde(default)]
    pub skip_paxos: bool,
    /// Its steps are written to `system_traces`.
    #[serde(default)]
    pub trace: bool,
}

/// `GET /api/v1/auto_repair`: automatic repairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoRepairReport {
    /// True if automatic repairs are enabled.
    pub enabled: bool,
    /// Bytes per second that they read at most; 0 = no limit of its own.
    pub bytes_per_second: u64,
    /// Bytes per second that they read now: enough for every window, less while there is time.
    #[serde(default)]
    pub pace_bytes_per_second: u64,
    /// Bytes per second that would be needed, regardless of the limits.
    #[serde(default)]
    pub needed_bytes_per_second: u64,
    /// Parts of tables that were not repaired within their window.
    #[serde(default)]
    pub late_parts: u64,
    /// A window is over, or more is needed than is allowed.
    #[serde(default)]
    pub is_behind: bool,
    /// Why the last one failed that did.
    pub last_error: Option<String>,
    /// Tables for which this node has primary ranges.
    pub tables: Vec<AutoRepairTable>,
    /// Configured schedule; `None`: the only node of its cluster has nothing to repair.
    #[serde(default)]
    pub config: Option<AutoRepairConfig>,
}

/// Settings of the repairs that begin automatically, beside those that [`AutoRepairReport`] has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoRepairConfig {
    /// `auto_repair_window`; 0: by `gc_grace_seconds` of each table.
    pub window_seconds: u64,
    /// `auto_repair_initial_delay`.
    pub initial_delay_seconds: u64,
    /// `auto_repair_turn`.
    pub turn_seconds: u64,
}

/// A table of the schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoRepairTable {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// When the least recently repaired of this node's primary ranges was, seconds since 1970.
    pub repaired_at: Option<i64>,
    /// Seconds within which they are to be.
    pub window_seconds: i64,
    /// `RUNNING`, `LATE`, `DUE` or `DONE`.
    pub state: String,
}

/// Request to a shard about repairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairCommand {
    /// Begin one.
    Start(RepairOrder),
    /// How one stands, with its lines from that number on.
    Status {
        /// Its number.
        id: u32,
        /// The first line that is wanted.
        from: u64,
    },
    /// All of this run of the node, without lines.
    List,
    /// The same with their sessions.
    Details,
    /// End one, or all.
    Abort {
        /// Its number.
        id: Option<u32>,
    },
}

/// `GET /api/v1/repairs` (without lines) and `GET /api/v1/repairs/{id}?from=<line>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairReport {
    /// Its number; 0: there was nothing to repair, because no other node has replicas.
    pub id: u32,
    /// UUID of its session.
    pub session: String,
    /// Keyspace.
    pub keyspace: String,
    /// `RUNNING`, `SUCCESSFUL` or `FAILED`.
    pub state: String,
    /// Percent compared, 0 to 100.
    pub percent: u8,
    /// When it began, microseconds since 1970.
    pub started_at: i64,
    /// Bytes of this node that were compared.
    pub bytes_read: u64,
    /// Stretches compared.
    pub stretches: u64,
    /// Stretches that differed between replicas.
    pub differing: u64,
    /// Mutations sent to replicas that lacked them; of a preview: that would be.
    pub mutations: u64,
    /// Their bytes.
    pub mutation_bytes: u64,
    /// Its output.
    pub lines: Vec<RepairLineReport>,
    /// Sessions and parameters of the repair; only when the request asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<RepairDetails>>,
}

/// Parameters and sessions of a repair. Times are microseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairDetails {
    /// The request.
    pub order: RepairOrder,
    /// `full`, `incremental`, `preview full`, `preview unrepaired` or `preview repaired`.
    pub kind: String,
    /// Its tables; empty until it is planned.
    pub tables: Vec<String>,
    /// Ranges that the same nodes hold, before dead replicas were left out.
    pub unfiltered_ranges: Vec<Vec<String>>,
    /// Its sessions, in order.
    pub sessions: Vec<RepairSessionReport>,
    /// When it was planned.
    pub planned_at: Option<i64>,
    /// When replicas began to be compared.
    pub compared_from: Option<i64>,
    /// When all of them had been.
    pub compared_upto: Option<i64>,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// Its final message.
    pub message: Option<String>,
}

/// Ranges that the same nodes hold, compared in one session. Times are microseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairSessionReport {
    /// UUID.
    pub id: String,
    /// Token ranges, such as `(1,2]`.
    pub ranges: Vec<String>,
    /// The other replicas, as `/127.0.0.2:7000`.
    pub participants: Vec<String>,
    /// When it was known.
    pub planned_at: i64,
    /// When it began.
    pub started_at: Option<i64>,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// Why it failed.
    pub error: Option<String>,
    /// Its tables as far as they were begun.
    #[serde(default)]
    pub jobs: Vec<RepairJobReport>,
}

/// The ranges of a session in one table. Times are microseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairJobReport {
    /// UUID.
    pub id: String,
    /// Name of the table.
    pub table: String,
    /// When it began.
    pub started_at: i64,
    /// When replicas began to be compared.
    pub compared_from: Option<i64>,
    /// When the first row was sent that one of them lacked.
    pub sent_from: Option<i64>,
    /// When all of it had been compared, and sent where it was missing.
    pub compared_upto: Option<i64>,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// Why it failed.
    pub error: Option<String>,
}

/// A node's part in a repair, its own or another one's. Times are microseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParticipationReport {
    /// UUID of the repair.
    pub id: String,
    /// Coordinator, as `/127.0.0.2:7000`.
    pub initiator: String,
    /// Tables, such as `ks.t`.
    pub tables: Vec<String>,
    /// Token ranges, such as `(1,2]`.
    pub ranges: Vec<String>,
    /// Compares unrepaired data only.
    pub incremental: bool,
    /// All replicas take part.
    pub global: bool,
    /// `NONE`, `ALL`, `UNREPAIRED` or `REPAIRED`.
    pub preview: String,
    /// When its data was called repaired, milliseconds since 1970; 0: it was not.
    pub repaired_at: i64,
    /// When.
    pub course: CourseReport,
    /// Validations that this node ran for the session.
    pub validations: Vec<ValidationReport>,
}

/// When something began, changed and ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CourseReport {
    /// When this node heard of it.
    pub began_at: i64,
    /// When something happened last.
    pub updated_at: i64,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// Why it failed.
    pub error: Option<String>,
}

/// The ranges of a table that a node compared for one session of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidationReport {
    /// UUID.
    pub id: String,
    /// UUID of the session.
    pub session: String,
    /// Keyspace and name of the table; `None`: it is dropped.
    pub table: Option<(String, String)>,
    /// Token ranges, such as `(1,2]`.
    pub ranges: Vec<String>,
    /// Partitions that the files of the node have in the ranges; 0: not known.
    pub partitions_estimate: u64,
    /// Their bytes.
    pub bytes_estimate: u64,
    /// Partitions read so far.
    pub partitions: u64,
    /// Bytes read so far.
    pub bytes_read: u64,
    /// When it was known how much there is to read.
    pub started_at: Option<i64>,
    /// When the first digest was sent to the coordinator.
    pub sent_at: Option<i64>,
    /// When.
    pub course: CourseReport,
}

/// One line of a repair's output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairLineReport {
    /// Its number, from 0.
    pub number: u64,
    /// When, microseconds since 1970.
    pub at: i64,
    /// The line.
    pub text: String,
}

/// Scope of a summary of repairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairSummaryQuery {
    /// Keyspace; `None`: all that are replicated.
    pub keyspace: Option<String>,
    /// Its tables; empty: all.
    pub tables: Vec<String>,
    /// Only these tokens, the first exclusive; `None`: all that the node has.
    pub range: Option<(i64, i64)>,
}

/// `GET /api/v1/repair_summary`: state of a table's repairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairSummary {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// Bytes on disk of files that take part in a session.
    pub pending_bytes: u64,
    /// How many these are.
    pub pending_files: u64,
    /// The sessions.
    pub pending_sessions: Vec<String>,
    /// Ranges (start token exclusive, end token inclusive) and when they were repaired,
    /// milliseconds since 1970, in order; 0: never.
    pub repaired: Vec<(i64, i64, i64)>,
}

impl RepairSummary {
    /// Adds what another shard has of the table.
    pub fn merge(&mut self, other: RepairSummary) {
        self.pending_bytes = self.pending_bytes.saturating_add(other.pending_bytes);
        self.pending_files = self.pending_files.saturating_add(other.pending_files);
        self.pending_sessions.extend(other.pending_sessions);
        self.pending_sessions.sort_unstable();
        self.pending_sessions.dedup();
        self.repaired.extend(other.repaired);
    }
}
