//! The one time that system tables are read back: a first start on a directory that Cassandra
//! wrote (or that lost its metadata log).
//!
//! Owns: the node's identity and schema from such a directory, and all checks that refuse one.
//! Never: opens a store, changes a file before the takeover is durable in the metadata log. After it
//! [`StaleIndexFiles`] removes the files of another program's indexes.
//!
//! Order: 1. the commit log must hold nothing that is not in SSTables ([`commit_log`]); 2. the
//! tables of `system` and `system_schema` are read from their SSTables ([`rows`]); 3. their rows
//! become definitions ([`definitions`]); 4. the files of every table must be ones that can be read.
//! Whatever fails, the directory is as it was: Cassandra can still start on it.

mod commit_log;
mod definitions;
pub mod fuzz;
mod index_files;
mod indexes;
mod left_out;
mod newer;
mod roles;
mod rows;
#[cfg(test)]
mod tests;

pub use commit_log::check as check_commit_log;
pub use index_files::StaleIndexFiles;
pub use left_out::LeftOut;
pub use newer::Adopted;

use cluster::{LocalNode, Transformation};
use conf::Options;
use cql_plan::ddl::IndexSettings;
use cql_plan::system_rows::PARTITIONER;
use rt::{Fs, Rt};
use schema::{Schema, SchemaChange, Table};
use sstable::{SstableError, Version};
use stdx::{HostId, IoError, IoErrorKind, TimestampMicros, Token, WallMicros};

use left_out::Choice;
use rows::{Row, TableRows};

/// Description of the node from a directory of Cassandra's.
#[derive(Debug)]
pub struct Imported {
    /// Identity and place, as Cassandra knew them; `created_at` is after every timestamp in the
    /// system tables, so that later writes to them are newer.
    pub local: LocalNode,
    /// Keyspaces, types and tables, in an order in which they can be applied to the built-in schema.
    pub changes: Vec<SchemaChange>,
    /// Roles with their password hashes, memberships and permissions.
    pub auth: Vec<Transformation>,
    /// Definitions that the operator chose to leave out; the caller writes them to a file first.
    pub left_out: Vec<LeftOut>,
}

/// Why a directory cannot be taken over. Nothing was changed in it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TakeoverError {
    /// Writes are in the commit log only.
    #[error(
        "the commit log of Cassandra holds writes that are in no SSTable ({file}: {detail}); drain \
         it first: start Cassandra (or ScyllaDB) on the directory, run `nodetool drain`, stop it"
    )]
    DirtyCommitLog {
        /// The first segment that is not empty.
        file: String,
        /// Description of the writes in it.
        detail: String,
    },
    /// An SSTable of another format.
    #[error(
        "{file} of table {table} has a format that Helenus does not read (it reads versions ma to oa \
         of format BIG and da of BTI, as Cassandra 3.0 to 5.0 write them); run `nodetool \
         upgradesstables -a` with such a version of Cassandra, then `nodetool drain`"
    )]
    Format {
        /// Keyspace and table.
        table: String,
        /// The Data file.
        file: String,
    },
    /// An SSTable with columns of other types than the table's of the same names.
    #[error(
        "{file} is not of table {table}, in whose directory it is: {what}; move the file set away, or \
         to the table that it is of"
    )]
    OtherTypes {
        /// Keyspace and table.
        table: String,
        /// The Data file.
        file: String,
        /// The column and both types.
        what: String,
    },
    /// A file set without TOC.txt, or a transaction that Cassandra did not finish.
    #[error(
        "{file} of table {table} is the rest of an unfinished operation; start Cassandra on the \
         directory, which cleans up, run `nodetool drain`, stop it"
    )]
    Unfinished {
        /// Keyspace and table.
        table: String,
        /// The file.
        file: String,
    },
    /// The schema has unsupported definitions.
    #[error(
        "the schema has what Helenus does not have: {}; drop it in Cassandra (or copy the data to a \
         table without it), run `nodetool drain`, stop it{}", items.join("; "), without(kinds)
    )]
    Unsupported {
        /// Each by kind and name.
        items: Vec<String>,
        /// Kinds among them that the directory can be taken over without.
        kinds: Vec<&'static str>,
    },
    /// The directory is one of several members' and has only its part of the data.
    #[error(
        "the directory belongs to a node of a cluster with other members ({}); Helenus runs as one \
         node: decommission the others, so that this one holds all data, and drain it", peers.join(", ")
    )]
    Peers {
        /// Their addresses.
        peers: Vec<String>,
    },
    /// A Cassandra ran on the directory of one of several members.
    #[error(
        "a Cassandra has run on this directory since Helenus ({file}), and this node is one of several \
         members: what that Cassandra changed cannot be told to the others. Move the directory away, \
         start this node with an empty one and replace_address_first_boot set to its own address, and \
         bring back what was written in between with `helenus sstable load` from the directory that was \
         moved"
    )]
    OtherMembers {
        /// The SSTable that shows it.
        file: String,
    },
    /// The schema in the system tables does not fit together, or not to the one of the metadata log.
    #[error("the schema of the directory cannot be taken over: {0}")]
    Schema(String),
    /// Logged batches that were not carried out yet.
    #[error(
        "{count} logged batches wait for their replay; start Cassandra on the directory, wait a \
         minute, run `nodetool drain`, stop it"
    )]
    PendingBatches {
        /// How many.
        count: usize,
    },
    /// Another cluster's. Refused before anything is noted, so that the directory stays Cassandra's.
    #[error(
        "it belongs to cluster \"{found}\", the configuration says \"{configured}\"; set \
         cluster_name to \"{found}\" or choose another --workdir"
    )]
    ClusterName {
        /// In `system.local`.
        found: String,
        /// In the configuration.
        configured: String,
    },
    /// Another way of placing keys.
    #[error("the data is placed by {found}; only {PARTITIONER} is there")]
    Partitioner {
        /// Its class.
        found: String,
    },
    /// SSTables, but nothing that describes them.
    #[error(
        "{directory} holds SSTables, but neither a metadata log nor the table {table}; restore the \
         missing part, or choose another --workdir"
    )]
    NoSystemTables {
        /// The data directory.
        directory: String,
        /// The missing table.
        table: String,
    },
    /// A system table has an invalid row.
    #[error("the row of {table} for {row} cannot be understood: {what}")]
    Row {
        /// Keyspace and table.
        table: String,
        /// The key of the row.
        row: String,
        /// Description of the error.
        what: String,
    },
    /// An SSTable cannot be read.
    #[error(transparent)]
    Sstable(#[from] SstableError),
    /// The machine refused an operation.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// The end of a message.
fn without(kinds: &[&str]) -> String {
    if kinds.is_empty() {
        return String::new();
    }
    format!(
        ". Or start with --without {} to take the rows over without them: their definitions are kept in \
         {LEFT_OUT_FILE} in the data directory",
        kinds.join(",")
    )
}

/// The file in the first data directory that keeps the definitions that were left out.
const LEFT_OUT_FILE: &str = "left-out.cql";

/// Keeps the definitions that are left out, durably. A file of an earlier takeover stays; more of the
/// same get a number.
///
/// # Errors
/// `Io`.
pub async fn keep_left_out(
    fs: &Fs,
    options: &Options,
    all: &[LeftOut],
) -> Result<(), TakeoverError> {
    let data = options.data_directories();
    let (Some(data), false) = (data.first(), all.is_empty()) else { return Ok(()) };
    let text = left_out::file_text(all);
    let (stem, _) = LEFT_OUT_FILE.split_once('.').unwrap_or((LEFT_OUT_FILE, ""));
    for number in 1..=LEFT_OUT_FILES_MAX {
        let name = match number {
            1 => LEFT_OUT_FILE.to_owned(),
            _ => format!("{stem}-{number}.cql"),
        };
        let path = format!("{}/{name}", data.trim_end_matches('/'));
        match fs.read(&path, LEFT_OUT_BYTES_MAX).await {
            Ok(bytes) if bytes == text.as_bytes() => return Ok(()),
            Ok(_) => continue,
            Err(error) if error.kind == IoErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        fs.write_atomic(&path, text.into_bytes()).await?;
        let what: Vec<&str> = all.iter().map(|one| one.what.as_str()).collect();
        tracing::warn!(
            path,
            what = what.join(", "),
            "taken over without these; the file keeps them"
        );
        return Ok(());
    }
    let what = format!("there are {LEFT_OUT_FILES_MAX} files {LEFT_OUT_FILE} already");
    Err(TakeoverError::Schema(what))
}

/// Files of definitions in one data directory.
const LEFT_OUT_FILES_MAX: u32 = 100;
/// Largest of them that is compared.
const LEFT_OUT_BYTES_MAX: usize = 64 << 20;

/// A data directory that another program may have written.
#[derive(Clone, Copy)]
pub struct ForeignDirectory<'a> {
    /// The only door to its files.
    pub rt: &'a Rt,
    /// The directories, and the definitions that the operator chose to leave out.
    pub options: &'a Options,
    /// The built-in schema.
    pub base: &'a Schema,
    /// The version of the SSTables that this node writes.
    pub written: Version,
}

impl ForeignDirectory<'_> {
    /// Reads the data that a first start on a directory of Cassandra's needs. `None`: the directory
    /// is empty.
    /// Call it before the store is opened. `known`: the schema of the metadata log, if one exists.
    ///
    /// # Errors
    /// See [`TakeoverError`].
    pub async fn read(&self, known: Option<&Schema>) -> Result<Option<Imported>, TakeoverError> {
        read(*self, known).await
    }
}

async fn read(
    directory: ForeignDirectory<'_>,
    known: Option<&Schema>,
) -> Result<Option<Imported>, TakeoverError> {
    let ForeignDirectory { rt, options, base, written } = directory;
    let fs = rt.fs();
    let data = options.data_directories();
    commit_log::check(&fs, &options.commitlog_directory()).await?;
    let Some(local_table) = base.table("system", "local") else { return Ok(None) };
    let local = rows::read_table(rt, &data, local_table).await?;
    let Some(row) = local.rows.first() else {
        for directory in data {
            if holds_sstables(&fs, &directory).await? {
                let table = "system.local".to_owned();
                return Err(TakeoverError::NoSystemTables { directory, table });
            }
        }
        return Ok(None);
    };
    let mut newest = local.newest;
    let mut node = local_node(row)?;
    if node.cluster_name != options.cluster_name {
        let configured = options.cluster_name.clone();
        return Err(TakeoverError::ClusterName { found: node.cluster_name, configured });
    }
    let mut system = Tables { rt, data: &data, base, newest: &mut newest };
    // Cassandra 3 and ScyllaDB have the second only.
    for table in ["peers_v2", "peers"] {
        let peers = system.rows("system", table).await?;
        if !peers.is_empty() {
            let peers = peers.iter().map(|p| p.shown("peer")).collect();
            return Err(TakeoverError::Peers { peers });
        }
    }
    let batches = system.rows("system", "batches").await?;
    if !batches.is_empty() {
        return Err(TakeoverError::PendingBatches { count: batches.len() });
    }
    let mut rows = definitions::SchemaRows::default();
    for (name, place) in rows.tables_mut() {
        *place = system.rows("system_schema", name).await?;
    }
    if rows.keyspaces.is_empty() {
        let table = "system_schema.keyspaces".to_owned();
        return Err(TakeoverError::NoSystemTables { directory: data.join(", "), table });
    }
    let mut auth = roles::AuthRows::default();
    for (name, place) in auth.tables_mut() {
        *place = system.rows("system_auth", name).await?;
    }
    let auth = auth.entries()?;
    let indexes = IndexSettings { sasi: true, ..IndexSettings::default() };
    let without = options.takeover_without.as_slice();
    let mut choice = Choice { without, known, indexes, left_out: Vec::new() };
    let changes = definitions::changes(base, &rows, &mut choice)?;

    for table in base.tables_by_id.values() {
        rows::check_sstables(&fs, &data, table, written).await?;
    }
    for change in &changes {
        if let SchemaChange::CreateTable(table) = change {
            rows::check_user_sstables(&fs, &data, table, written).await?;
        }
    }
    node.created_at = created_at(rt.wall(), newest);
    Ok(Some(Imported { local: node, changes, auth, left_out: choice.left_out }))
}

/// The system tables of a directory.
struct Tables<'a> {
    rt: &'a Rt,
    data: &'a [String],
    base: &'a Schema,
    /// Largest timestamp of all that was read.
    newest: &'a mut TimestampMicros,
}

impl Tables<'_> {
    async fn rows(&mut self, keyspace: &str, name: &str) -> Result<Vec<Row>, TakeoverError> {
        let Some(table) = self.base.table(keyspace, name) else { return Ok(Vec::new()) };
        let TableRows { rows, newest } = rows::read_table(self.rt, self.data, table).await?;
        *self.newest = (*self.newest).max(newest);
        Ok(rows)
    }
}

/// The wall clock, or a later time after Cassandra's rows when its clock was ahead.
fn created_at(wall: WallMicros, newest: TimestampMicros) -> WallMicros {
    WallMicros(wall.0.max(newest.0.saturating_add(1)))
}

fn local_node(row: &Row) -> Result<LocalNode, TakeoverError> {
    let partitioner = row.required_text("partitioner")?;
    if partitioner != PARTITIONER {
        return Err(TakeoverError::Partitioner { found: partitioner });
    }
    let mut tokens = Vec::new();
    for path in row.paths("tokens") {
        let token = std::str::from_utf8(path).ok().and_then(|text| text.parse().ok());
        tokens.push(Token(token.ok_or_else(|| row.wrong("tokens", "not a token"))?));
    }
    if tokens.is_empty() {
        return Err(row.wrong("tokens", "the node never finished its first start"));
    }
    tokens.sort();
    Ok(LocalNode {
        host_id: HostId(row.required_uuid("host_id")?),
        cluster_name: row.required_text("cluster_name")?,
        datacenter: row.required_text("data_center")?,
        rack: row.required_text("rack")?,
        tokens,
        created_at: WallMicros(0),
    })
}

/// Returns true if any table below the data directory has an SSTable.
async fn holds_sstables(fs: &Fs, data: &str) -> Result<bool, TakeoverError> {
    for keyspace in list(fs, data).await?.into_iter().filter(|e| e.is_dir) {
        let keyspace = format!("{data}/{}", keyspace.name);
        for table in list(fs, &keyspace).await?.into_iter().filter(|e| e.is_dir) {
            let files = list(fs, &format!("{keyspace}/{}", table.name)).await?;
            if files.iter().any(|f| f.name.ends_with("-Data.db")) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The entries of a directory; none when it does not exist.
async fn list(fs: &Fs, path: &str) -> Result<Vec<rt::DirEntry>, TakeoverError> {
    match fs.read_dir(path).await {
        Ok(entries) => Ok(entries),
        Err(error) if error.kind == IoErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Keyspace and table as messages show them.
fn name_of(table: &Table) -> String {
    format!("{}.{}", table.keyspace, table.name)
}
