//! Requests to a shard about the files of its tables: imports, and compactions that are started,
//! stopped or configured by request.

use schema::{Schema, Table};
use stdx::{Generation, TableId, Token};
use store::Descriptor;

use super::argument;
use crate::commands::selection::selected;
use crate::compaction_command::CompactionAction;
use crate::model::{
    CompactionCommand, CompactionSettings, DamagedReport, ImportRequest, RepairedRequest,
    SstableReport, VerifyRequest,
};
use crate::request::{ActionError, Selection};

/// The question, with tables by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpkeepRequest {
    /// Take files in; to shard 0. Answered with [`UpkeepReply::Imported`].
    Import(ImportRequest),
    /// Name files in a table's directory that the node does not know. Answered with
    /// [`UpkeepReply::Imported`].
    NewFiles {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
    },
    /// Take these in; to shard 0. Answered with [`UpkeepReply::Imported`].
    Refresh {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// Files that the shards named.
        files: Vec<Descriptor>,
    },
    /// Show the imported files; to every shard.
    Adopt {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// Files that shard 0 imported.
        files: Vec<Descriptor>,
    },
    /// Name the files that have a partition; to every shard. Answered with
    /// [`UpkeepReply::Files`].
    FilesOfPartition {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// Key, in the form of `getendpoints`.
        key: String,
        /// The key is the bytes of the partition key in hexadecimal digits.
        is_hex: bool,
    },
    /// Describe a table for a loader of files. Any shard can answer, with [`UpkeepReply::Table`].
    LoadTarget {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
    },
    /// Write these mutations to the replicas; to any one shard.
    Load {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// Name of the consistency level.
        consistency: String,
        /// Mutations, each preceded by its length, u32 little-endian.
        mutations: Vec<u8>,
    },
    /// Mark files as repaired or not; to every shard. Answered with [`UpkeepReply::Marked`].
    SetRepaired(RepairedRequest),
    /// To every shard.
    Compaction(CompactionCommand),
    /// Any shard can answer, with [`UpkeepReply::Settings`].
    Settings,
    /// Name damaged files; to every shard. Answered with [`UpkeepReply::Damaged`].
    Damaged,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpkeepReply {
    /// It is done.
    Done,
    /// Files that were taken in or named, and directories that were refused. Answer to
    /// [`UpkeepRequest::NewFiles`]: also file sets that cannot be taken in and that this shard does not know.
    Imported {
        /// Files.
        files: Vec<Descriptor>,
        /// Directories, or file sets.
        failed: Vec<String>,
    },
    /// How tables are compacted.
    Settings(Vec<CompactionSettings>),
    /// A table as in the metadata log.
    Table(Vec<u8>),
    /// Files and their levels.
    Files(Vec<SstableReport>),
    /// Damaged files.
    Damaged(Vec<DamagedReport>),
    /// Prefixes of the names of files whose repair status was changed, or would be.
    Marked(Vec<String>),
}

/// Resolved form of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpkeepAction {
    /// See [`UpkeepRequest::Import`].
    Import {
        /// Into which table.
        table: TableId,
        /// From where, and how.
        request: ImportRequest,
    },
    /// See [`UpkeepRequest::NewFiles`].
    NewFiles(TableId),
    /// See [`UpkeepRequest::Refresh`].
    Refresh(TableId, Vec<Descriptor>),
    /// See [`UpkeepRequest::Adopt`].
    Adopt(TableId, Vec<Descriptor>),
    /// See [`UpkeepRequest::FilesOfPartition`].
    FilesOfPartition {
        /// Which table.
        table: TableId,
        /// Bytes of the partition key.
        key: Vec<u8>,
        /// Levels mean something.
        is_leveled: bool,
    },
    /// See [`UpkeepRequest::LoadTarget`].
    LoadTarget(TableId),
    /// See [`UpkeepRequest::Load`].
    Load {
        /// Into which table.
        table: TableId,
        /// Name of the consistency level.
        consistency: String,
        /// Mutations, each preceded by its length, u32 little-endian.
        mutations: Vec<u8>,
    },
    /// See [`UpkeepRequest::Compaction`].
    Compaction(CompactionAction),
    /// See [`UpkeepRequest::SetRepaired`].
    SetRepaired {
        /// The tables.
        tables: Vec<TableId>,
        /// They are, or are not.
        repaired: bool,
        /// Files are only named.
        preview: bool,
    },
    /// See [`UpkeepRequest::Damaged`].
    Damaged,
    /// See [`UpkeepRequest::Settings`].
    Settings(Vec<(TableId, CompactionSettings)>),
}

/// Cassandra's names of kinds of compaction, and the kind in lists here. Empty: this node has no
/// such compactions, so there are none to stop. Source: OperationType.
const KINDS: [(&str, &str); 22] = [
    ("P0", ""),
    ("CLEANUP", "Cleanup"),
    ("SCRUB", "Scrub"),
    ("UPGRADE_SSTABLES", "Upgrade sstables"),
    ("VERIFY", "Verify"),
    ("MAJOR_COMPACTION", "Major compaction"),
    ("RELOCATE", "Relocate sstables to correct disk"),
    ("GARBAGE_COLLECT", "Remove deleted data"),
    ("FLUSH", ""),
    ("WRITE", ""),
    ("ANTICOMPACTION", "Anticompaction after repair"),
    ("VALIDATION", ""),
    ("INDEX_BUILD", "Secondary index build"),
    ("VIEW_BUILD", ""),
    ("COMPACTION", "Compaction"),
    ("TOMBSTONE_COMPACTION", "Tombstone Compaction"),
    ("UNKNOWN", ""),
    ("STREAM", ""),
    ("KEY_CACHE_SAVE", ""),
    ("ROW_CACHE_SAVE", ""),
    ("COUNTER_CACHE_SAVE", ""),
    ("INDEX_SUMMARY", ""),
];

/// Resolves the names of a request.
///
/// # Errors
/// `Argument`, in Cassandra's words where it has them.
pub(crate) fn resolve(
    request: UpkeepRequest,
    schema: &Schema,
) -> Result<UpkeepAction, ActionError> {
    Ok(match request {
        UpkeepRequest::Import(request) => {
            let table = table_of(schema, &request.keyspace, &request.table)?.id;
            UpkeepAction::Import { table, request }
        }
        UpkeepRequest::NewFiles { keyspace, table } => {
            UpkeepAction::NewFiles(table_of(schema, &keyspace, &table)?.id)
        }
        UpkeepRequest::Refresh { keyspace, table, files } => {
            UpkeepAction::Refresh(table_of(schema, &keyspace, &table)?.id, files)
        }
        UpkeepRequest::Adopt { keyspace, table, files } => {
            UpkeepAction::Adopt(table_of(schema, &keyspace, &table)?.id, files)
        }
        UpkeepRequest::FilesOfPartition { keyspace, table, key, is_hex } => {
            let table = table_of(schema, &keyspace, &table)?;
            let key = match is_hex {
                true => hex_bytes(&key).ok_or_else(|| {
                    argument(match key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                        true => {
                            "An hex string representing bytes must have an even length".to_owned()
                        }
                        false => format!("Non-hex characters in {key}"),
                    })
                })?,
                false => super::key_bytes(table, &key)?,
            };
            let class = table.options.compaction.get("class");
            let is_leveled = class.is_some_and(|c| c.ends_with("LeveledCompactionStrategy"));
            UpkeepAction::FilesOfPartition { table: table.id, key, is_leveled }
        }
        UpkeepRequest::LoadTarget { keyspace, table } => {
            UpkeepAction::LoadTarget(loaded(schema, &keyspace, &table)?)
        }
        UpkeepRequest::Load { keyspace, table, consistency, mutations } => {
            let table = loaded(schema, &keyspace, &table)?;
            UpkeepAction::Load { table, consistency, mutations }
        }
        UpkeepRequest::Compaction(command) => {
            UpkeepAction::Compaction(compaction(command, schema)?)
        }
        UpkeepRequest::SetRepaired(request) => {
            let RepairedRequest { keyspaces, tables, repaired, preview } = request;
            let tables = selected(schema, &Selection { keyspaces, tables })?;
            UpkeepAction::SetRepaired { tables, repaired, preview }
        }
        UpkeepRequest::Damaged => UpkeepAction::Damaged,
        UpkeepRequest::Settings => UpkeepAction::Settings(
            stored(schema)
                .map(|table| {
                    let keyspace = table.keyspace.to_string();
                    let of_table = CompactionSettings {
                        keyspace,
                        table: table.name.to_string(),
                        ..CompactionSettings::default()
                    };
                    (table.id, of_table)
                })
                .collect(),
        ),
    })
}

fn compaction(
    command: CompactionCommand,
    schema: &Schema,
) -> Result<CompactionAction, ActionError> {
    let ids = |keyspaces, tables| selected(schema, &Selection { keyspaces, tables });
    Ok(match command {
        CompactionCommand::Stop { kind, id } => {
            CompactionAction::Stop { kind: kind.as_deref().map(kind_of).transpose()?, id }
        }
        CompactionCommand::SetThresholds { keyspace, table, min, max } => {
            let table = table_of(schema, &keyspace, &table)?.id;
            CompactionAction::SetThresholds { table, min, max }
        }
        CompactionCommand::SetAutomatic { keyspaces, tables, enabled } => {
            CompactionAction::SetAutomatic { tables: ids(keyspaces, tables)?, enabled }
        }
        CompactionCommand::Files { files } => {
            CompactionAction::Files { files: files_of(schema, &files)? }
        }
        CompactionCommand::Range { keyspaces, tables, start, end } => {
            let tables = ids(keyspaces, tables)?;
            CompactionAction::Range { tables, ranges: ranges_of(start, end) }
        }
        CompactionCommand::Partition { keyspaces, tables, key } => {
            let mut named = Vec::new();
            for id in ids(keyspaces, tables)? {
                let Some(table) = stored(schema).find(|t| t.id == id) else { continue };
                let parsed = super::key_bytes(table, &key).map_err(|error| {
                    argument(format!(
                        "Unable to parse partition key '{key}' for table {}.{}; {error}",
                        table.keyspace, table.name
                    ))
                });
                named.push((id, parsed?));
            }
            CompactionAction::Partition { keys: named }
        }
        CompactionCommand::Split { keyspaces, tables } => {
            CompactionAction::Split { tables: ids(keyspaces, tables)? }
        }
        CompactionCommand::Verify { keyspaces, tables, how } => {
            check_verify(&how)?;
            CompactionAction::Verify { tables: ids(keyspaces, tables)?, how }
        }
        CompactionCommand::GarbageCollect { keyspaces, tables, granularity } => {
            CompactionAction::GarbageCollect { tables: ids(keyspaces, tables)?, granularity }
        }
        CompactionCommand::Scrub { keyspaces, tables, how } => {
            if let Some(tag) = &how.snapshot {
                crate::commands::selection::check_tag(tag)?;
            }
            CompactionAction::Scrub { tables: ids(keyspaces, tables)?, how }
        }
        CompactionCommand::Relocate { keyspaces, tables } => {
            CompactionAction::Relocate { tables: ids(keyspaces, tables)? }
        }
        CompactionCommand::Recompress { keyspaces, tables } => {
            CompactionAction::Recompress { tables: ids(keyspaces, tables)? }
        }
        CompactionCommand::RebuildIndexes { keyspace, table, indexes } => {
            let table = table_named(schema, keyspace, table)?;
            check_indexes(table, &indexes)?;
            CompactionAction::RebuildIndexes { table: table.id }
        }
        CompactionCommand::Force { keyspace, table, keys } => {
            let table = table_named(schema, keyspace, table)?;
            let parsed = keys.iter().map(|key| super::key_bytes(table, key));
            CompactionAction::Force { table: table.id, keys: parsed.collect::<Result<_, _>>()? }
        }
    })
}

fn check_verify(how: &VerifyRequest) -> Result<(), ActionError> {
    match how.check_tokens && !how.extended {
        true => Err(argument("Token verification requires --extended-verify".to_owned())),
        false => Ok(()),
    }
}

/// The table of a command about one.
fn table_named(schema: &Schema, keyspace: String, table: String) -> Result<&Table, ActionError> {
    let selection = Selection { keyspaces: vec![keyspace], tables: vec![table] };
    let found = selected(schema, &selection)?;
    let table = stored(schema).find(|t| found.first() == Some(&t.id));
    table.ok_or_else(|| argument("there is no such table"))
}

/// Refuses names of indexes that the table does not have. Cassandra logs these words and rebuilds the others.
fn check_indexes(table: &Table, names: &[String]) -> Result<(), ActionError> {
    let is_missing = |name: &&String| !table.indexes.iter().any(|index| *index.name == ***name);
    let missing: Vec<&str> = names.iter().filter(is_missing).map(String::as_str).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => {
            let text = format!("No defined indexes with the supplied names: {}", missing.join(","));
            Err(argument(text))
        }
    }
}

fn kind_of(name: &str) -> Result<&'static str, ActionError> {
    if name == "VALIDATION" {
        return Err(argument("a repair is given up with \"nodetool repair_admin cancel\""));
    }
    let found = KINDS.iter().find(|(kind, _)| *kind == name).map(|(_, listed)| *listed);
    found.ok_or_else(|| {
        argument(format!("compaction_type: can not convert \"{name}\" to a OperationType"))
    })
}

/// `[start, end]`, or over the end of the ring.
fn ranges_of(start: i64, end: i64) -> Vec<(Token, Token)> {
    match start < end {
        true => vec![(Token(start), Token(end))],
        false => vec![(Token(start), Token::MAX), (Token::MIN, Token(end))],
    }
}

/// Files by table. Like Cassandra, skips files of tables that do not exist.
fn files_of(
    schema: &Schema,
    files: &[String],
) -> Result<Vec<(TableId, Vec<Generation>)>, ActionError> {
    let mut found: Vec<(TableId, Vec<Generation>)> = Vec::new();
    for file in files {
        let mut parts = file.trim().rsplit('/');
        let name = parts.next().unwrap_or_default();
        let Some((descriptor, _)) = Descriptor::parse(name) else {
            return Err(argument(format!(
                "Invalid sstable file {name}: the name doesn't look like a supported sstable file \
                 name"
            )));
        };
        let (directory, keyspace) = (parts.next().unwrap_or_default(), parts.next());
        let is_of = |t: &&Table| t.directory_name() == directory && keyspace == Some(&*t.keyspace);
        let Some(table) = stored(schema).find(is_of) else { continue };
        match found.iter_mut().find(|(id, _)| *id == table.id) {
            Some((_, of_it)) => of_it.push(descriptor.generation),
            None => found.push((table.id, vec![descriptor.generation])),
        }
    }
    Ok(found)
}

/// All tables but virtual ones, by name.
fn stored(schema: &Schema) -> impl Iterator<Item = &Table> {
    let keyspaces = schema.keyspaces.values().filter(|k| !k.is_virtual);
    keyspaces.flat_map(|k| k.tables.values()).map(|table| &**table)
}

fn table_of<'a>(schema: &'a Schema, keyspace: &str, table: &str) -> Result<&'a Table, ActionError> {
    let found = schema.keyspace(keyspace).filter(|k| !k.is_virtual);
    let found = found.and_then(|k| k.tables.get(table));
    let missing = || {
        ActionError::UnknownTable(format!("ColumnFamilyStore for {keyspace}/{table} not found."))
    };
    found.map(|table| &**table).ok_or_else(missing)
}

/// Bytes of pairs of hexadecimal digits; `None`: they are none.
fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let pairs = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(pairs.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// A table that files are loaded into: a user's.
fn loaded(schema: &Schema, keyspace: &str, table: &str) -> Result<TableId, ActionError> {
    if keyspace == "system" || keyspace.starts_with("system_") {
        return Err(argument(format!(
            "{keyspace} is a system keyspace: nothing is loaded into it"
        )));
    }
    Ok(table_of(schema, keyspace, table)?.id)
}
