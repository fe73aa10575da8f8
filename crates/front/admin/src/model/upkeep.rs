//! Requests about the files of tables, and reports of how tables are compacted.

use serde::{Deserialize, Serialize};

/// Body of `POST /api/v1/import`: SSTables of directories of the node's machine become files of a
/// table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImportRequest {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// Directories, as the node sees them.
    pub directories: Vec<String>,
    /// The level in the files stays; else it becomes 0.
    pub keep_level: bool,
    /// The files keep their repair status; else they become unrepaired.
    pub keep_repaired: bool,
    /// Checksums and rows are not verified.
    pub no_verify: bool,
    /// Partitions may be of any token.
    pub no_tokens: bool,
    /// The directories keep their files; else they are moved.
    pub copy: bool,
}

/// Answer to `POST /api/v1/import`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImportReport {
    /// How many files came.
    pub files: u64,
    /// Directories that were refused; the node's log has the reasons.
    pub failed: Vec<String>,
}

/// Body of `POST /api/v1/repaired`: which files count as repaired. Keyspaces and tables that are empty are all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RepairedRequest {
    /// Keyspaces.
    pub keyspaces: Vec<String>,
    /// Tables of the one keyspace.
    pub tables: Vec<String>,
    /// The files become repaired; else unrepaired.
    pub repaired: bool,
    /// Files are only named.
    pub preview: bool,
}

/// A file of `GET /api/v1/sstables`: those of this node that have a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SstableReport {
    /// Path of its Data component.
    pub path: String,
    /// `None`: the table is not leveled.
    pub level: Option<u32>,
}

/// Body of `POST /api/v1/refresh`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefreshRequest {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
}

/// Options of the verification of files: see [`crate::model::CompactionCommand::Verify`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VerifyRequest {
    /// Every partition, row, index entry and key of the filter, not the checksums only.
    pub extended: bool,
    /// Files of older versions fail.
    pub check_version: bool,
    /// A corrupt file is reported to the disk failure policy.
    pub failure_policy: bool,
    /// Every partition must belong to the node; with `extended` only.
    pub check_tokens: bool,
    /// The small components only.
    pub quick: bool,
    /// A corrupt file becomes unrepaired.
    pub repair_status: bool,
}

/// How files are scrubbed: see [`crate::model::CompactionCommand::Scrub`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubRequest {
    /// Name of a snapshot that is taken first; none: there is none.
    pub snapshot: Option<String>,
    /// Continues after lost data in a table of counters too.
    pub skip_corrupted: bool,
    /// Values are not checked against the types of their columns.
    pub no_validate: bool,
    /// Rows whose time to live overflowed 2038 win over their deletions.
    pub reinsert_overflowed_ttl: bool,
}

/// Data that is searched for in other files: see [`crate::model::CompactionCommand::GarbageCollect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum GarbageGranularity {
    /// Deletions of partitions, ranges and rows.
    Row,
    /// Deletions of cells too, and cells that are newer.
    Cell,
}

/// `GET /api/v1/damaged`: one file that was found damaged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DamagedReport {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// Its Data component.
    pub path: String,
    /// Error that was found.
    pub reason: String,
    /// When it was found, seconds since 1970.
    pub found: i64,
    /// Its readable data was copied to other files: a full repair of its ranges releases it.
    pub salvaged: bool,
    /// Why it is not, when that was tried.
    #[serde(default)]
    pub copy_failure: Option<String>,
    /// State of that repair on this node, and what it waits for.
    #[serde(default)]
    pub repair: Option<String>,
}

/// `GET /api/v1/compactions/settings`: how one table is compacted now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionSettings {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// True if compactions begin automatically.
    pub automatic: bool,
    /// Files of a compaction at least.
    pub min_threshold: u32,
    /// Files of a compaction at most.
    pub max_threshold: u32,
}
