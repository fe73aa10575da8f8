//! The commands of compactions, each declared once: its JSON, the action of a shard, and its permissions.
//!
//! `commands::upkeep` resolves the names of a command, which gives its action.

use serde::{Deserialize, Serialize};
use stdx::{Generation, TableId, Token};

use crate::model::{GarbageGranularity, ScrubRequest, VerifyRequest};
use crate::operation::{Class, CommandRow, Scope, commands};

commands! {
    /// Body of `POST /api/v1/compactions`: what every shard does with its files. Keyspaces and tables that
    /// are empty are all of them.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
    pub enum CompactionCommand;

    /// A [`CompactionCommand`] with ids in the place of names: what every shard does with its files.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum CompactionAction;

    /// Gives running compactions up.
    Stop {
        /// Those of this kind, by Cassandra's name: `COMPACTION`.
        #[serde(default)]
        kind: Option<String>,
        /// The one of this id.
        #[serde(default)]
        id: Option<String>,
    } as {
        /// Kind of compaction, as compactions are listed; `None`: any.
        kind: Option<&'static str>,
        /// With this id.
        id: Option<String>,
    } = CommandRow::new("stop", Scope::Shard, Class::Changes);
    /// Smallest and largest number of files of a compaction, until the node stops.
    SetThresholds {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// At least.
        min: u32,
        /// At most; 0: no compaction begins automatically.
        max: u32,
    } as {
        /// The table.
        table: TableId,
        /// At least.
        min: u32,
        /// At most.
        max: u32,
    } = CommandRow::new("set_thresholds", Scope::Shard, Class::Changes);
    /// Turns automatic compactions on or off, until the node stops.
    SetAutomatic {
        /// Keyspaces.
        keyspaces: Vec<String>,
        /// Tables of the one keyspace.
        tables: Vec<String>,
        /// They do.
        enabled: bool,
    } as {
        /// The tables.
        tables: Vec<TableId>,
        /// They do.
        enabled: bool,
    } = CommandRow::new("set_automatic", Scope::Shard, Class::Changes);
    /// Compacts named files.
    Files {
        /// Paths of Data components, or their names in the table's directory.
        files: Vec<String>,
    } as {
        /// Files by table.
        files: Vec<(TableId, Vec<Generation>)>,
    } = CommandRow::new("files", Scope::Shard, Class::Changes);
    /// Compacts the files that have tokens of a range.
    Range {
        /// Keyspaces.
        keyspaces: Vec<String>,
        /// Tables of the one keyspace.
        tables: Vec<String>,
        /// Start token, exclusive.
        start: i64,
        /// End token, inclusive; at or before the start, the range wraps around the ring.
        end: i64,
    } as {
        /// The tables.
        tables: Vec<TableId>,
        /// Both ends included.
        ranges: Vec<(Token, Token)>,
    } = CommandRow::new("range", Scope::Shard, Class::Changes);
    /// Compacts the files that may have a partition.
    Partition {
        /// Keyspaces.
        keyspaces: Vec<String>,
        /// Tables of the one keyspace.
        tables: Vec<String>,
        /// The key as text, components separated by `:`.
        key: String,
    } as {
        /// The bytes of the key in each table.
        keys: Vec<(TableId, Vec<u8>)>,
    } = CommandRow::new("partition", Scope::Shard, Class::Changes);
    /// Has files lose what deletions in other files hide.
    GarbageCollect {
        /// Keyspaces.
        keyspaces: Vec<String>,
        /// Tables of the one keyspace.
        tables: Vec<String>,
        /// Kinds of deletions that hide data.
        granularity: GarbageGranularity,
    } as {
        /// The tables.
        tables: Vec<TableId>,
        /// Kinds of deletions that hide data.
        granularity: GarbageGranularity,
    } = CommandRow::new("garbage_collect", Scope::Shard, Class::Changes);
    /// Compares files with their checksums; those that failed are named in the error.
    Verify {
        /// Keyspaces.
        keyspaces: Vec<String>,
        /// Tables of the one keyspace.
        tables: Vec<String>,
        /// How.
        #[serde(flatten)]
        how: VerifyRequest,
    } as {
        /// The tables.
        tables: Vec<TableId>,
        /// How.
        how: VerifyRequest,
    } = CommandRow::new("verify", Scope::Shard, Class::Changes);
    /// Rewrites files with what can be read of them.
    Scrub {
        /// Keyspaces.
        keyspaces: Vec<String>,
        /// Tables of the one keyspace.
        tables: Vec<String>,
        /// How.
        #[serde(flatten)]
        how: ScrubRequest,
    } as {
        /// The tables.
        tables: Vec<TableId>,
        /// How.
        how: ScrubRequest,
    } = CommandRow::new("scrub", Scope::Shard, Class::Destroys);
    /// Moves files to the data directory of their tokens. With one data directory nothing is
    /// moved, and the node logs that.
    Relocate {
        /// Keyspaces.
        keyspaces: Vec<String>,
        /// Tables of the one keyspace.
        tables: Vec<String>,
    } as {
        /// The tables.
        tables: Vec<TableId>,
    } = CommandRow::new("relocate", Scope::Shard, Class::Changes);
    /// Rewrites files whose compression differs from what their table specifies now.
    Recompress {
        /// Keyspaces.
        keyspaces: Vec<String>,
        /// Tables of the one keyspace.
        tables: Vec<String>,
    } as {
        /// The tables.
        tables: Vec<TableId>,
    } = CommandRow::new("recompress", Scope::Shard, Class::Changes);
    /// Rewrites the files of a table with all of its indexes, which stay usable meanwhile.
    RebuildIndexes {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// Names of indexes; each must exist.
        indexes: Vec<String>,
    } as {
        /// The table.
        table: TableId,
    } = CommandRow::new("rebuild_indexes", Scope::Shard, Class::Changes);
    /// Compacts the files that may contain partitions; their tombstones are purged at any age.
    Force {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// The keys as text, components separated by `:`.
        keys: Vec<String>,
    } as {
        /// The table.
        table: TableId,
        /// Bytes of the keys.
        keys: Vec<Vec<u8>>,
    } = CommandRow::new("force", Scope::Shard, Class::Changes);
    /// Compacts all files into several, each half of the remaining data, unless the strategy
    /// splits otherwise.
    Split {
        /// Keyspaces.
        keyspaces: Vec<String>,
        /// Tables of the one keyspace.
        tables: Vec<String>,
    } as {
        /// The tables.
        tables: Vec<TableId>,
    } = CommandRow::new("split", Scope::Shard, Class::Changes);
}
