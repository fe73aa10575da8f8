//! Directories of tables that are not in the schema: drops that were interrupted by the end of the
//! process, which the metadata log knows, and directories added by hand, such as a restore of a
//! dropped table.
//!
//! A drop is carried out once. `metadata/drops` names the entry of the metadata log up to which all
//! drops are carried out. Files in the directory of such a table were added later; they are left
//! alone and reported.
//!
//! Owns: which tables were dropped, and up to where drops are carried out. Never: the effect of a
//! drop ([`Store::finish_drops_of`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::Transformation;
use codec::SmallForm;
use membership::Membership;
use membership::log::{DIRECTORY, LogReader};
use rt::{Fs, Gate, Group, Rt, SmallContent};
use schema::{SchemaChange, Table};
use stdx::{Epoch, IoError, TableId, Uuid};
use store::Store;

/// Between two checks whether drops are carried out.
const PERIOD: Duration = Duration::from_secs(10);
/// Name of the file below [`DIRECTORY`].
const NAME: &str = "drops";
const FORM: SmallForm = SmallForm { kind: "drops", version: 1 };
/// Largest such file, bytes.
const BYTES_MAX: usize = 4_096;
/// File with a table's schema in its snapshot, and the limit of the bytes that are read of it.
const SCHEMA_FILE: &str = "schema.cql";
const SCHEMA_FILE_BYTES_MAX: usize = 1 << 20;

/// Returns `None` when this is not the body of such a file.
pub(crate) fn decode(body: &[u8]) -> Option<Epoch> {
    let text = std::str::from_utf8(body).ok()?;
    text.strip_prefix("epoch ")?.strip_suffix('\n')?.parse().ok().map(Epoch)
}

/// The file of a work directory.
#[derive(Clone)]
pub(crate) struct CarriedOut {
    fs: Fs,
    path: String,
}

impl CarriedOut {
    pub(crate) fn new(rt: &Rt, work_dir: &str) -> CarriedOut {
        let work_dir = work_dir.trim_end_matches('/');
        CarriedOut { fs: rt.fs(), path: format!("{work_dir}/{DIRECTORY}/{NAME}") }
    }

    /// Returns the entry up to which drops are carried out; 0 when there is no file. A corrupt file
    /// counts as if all were: files of a dropped table are left alone rather than removed.
    async fn read(&self) -> Epoch {
        let read = self.fs.read_small(FORM, &self.path, BYTES_MAX).await;
        let epoch = match &read {
            Ok(SmallContent::Missing) => Some(Epoch(0)),
            Ok(SmallContent::Body(body)) => decode(body),
            Ok(SmallContent::Legacy(_)) | Err(_) => None,
        };
        epoch.unwrap_or_else(|| {
            let error = read.err().map(|error| error.to_string());
            tracing::warn!(
                path = self.path,
                error,
                "cannot read which drops were carried out; this start leaves directories of dropped tables \
                 alone, and the file is rewritten"
            );
            Epoch(u64::MAX)
        })
    }

    async fn write(&self, epoch: Epoch) -> Result<(), IoError> {
        let body = format!("epoch {}\n", epoch.0);
        self.fs.write_small(FORM, &self.path, body.as_bytes()).await
    }

    /// Notes that all drops of the snapshot are carried out, if they are. Returns whether it did.
    pub(crate) async fn note(&self, epoch: Epoch, store: &Store) -> bool {
        let noted = async {
            let settled = store.lifecycle().settle_drops().await?;
            if settled {
                self.write(epoch).await?;
            }
            Ok::<bool, store::StoreError>(settled)
        };
        noted.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot record which drops were carried out");
            false
        })
    }

    /// Does so in the background whenever the schema has changed. On shard 0.
    pub(crate) fn watch(self, rt: &Rt, gate: &Gate, membership: &Membership, store: &Store) {
        let (own, membership, store) = (rt.clone(), membership.clone(), store.clone());
        let task = async move {
            let mut noted = Epoch(0);
            loop {
                let next = own.now() + PERIOD;
                if own.timeout(next, own.stop_requested()).await.is_ok() {
                    return;
                }
                let epoch = membership.snapshot().epoch;
                if epoch > noted && self.note(epoch, &store).await {
                    noted = epoch;
                }
            }
        };
        // A closed gate: the node stops.
        let _ = gate.spawn(rt, Group::Admin, "note-drops", task);
    }
}

/// Carries out interrupted drops. Other directories of tables that are not in the schema stay, and
/// are reported. On shard 0, when it has the log, after the last step that may refuse the start.
/// Failures are logged, and retried at the next start.
pub(crate) async fn finish(
    log: &LogReader,
    membership: &Membership,
    store: &Store,
    carried_out: &CarriedOut,
) {
    // Before anything else, so that a damaged file is reported at each start.
    let done = carried_out.read().await;
    if store.tables().directories_of_unknown_tables().is_empty() {
        return;
    }
    let known = match tables_of(log).await {
        Ok(known) => {
            // By now: a table that clients or other nodes have made again is none of them.
            let schema = membership.snapshot().schema.clone();
            let is_due = |known: &Known| {
                known.dropped.is_some_and(|dropped| dropped > done)
                    && schema.table_by_id(known.table.id).is_none()
            };
            let tables: Vec<Arc<Table>> =
                known.values().filter(|known| is_due(known)).map(|k| k.table.clone()).collect();
            carry_out(&tables, store).await;
            known
        }
        Err(error) => {
            tracing::warn!(%error, "cannot read which tables were dropped");
            BTreeMap::new()
        }
    };
    let schema = membership.snapshot().schema.clone();
    for directory in store.tables().directories_of_unknown_tables() {
        let unused = Unused::of(&directory);
        let of_log = unused.id.and_then(|id| known.get(&TableId(id)));
        let statement = match of_log {
            Some(known) => Some(cql_plan::describe::schema_text(&known.table)),
            None => statement_beside(&carried_out.fs, &directory).await,
        };
        let has_keyspace = schema.keyspaces.contains_key(unused.keyspace);
        tracing::warn!("{}", unused.remedy(statement.as_deref(), has_keyspace));
    }
}

/// The `schema.cql` that was restored with a directory, or that of its last snapshot.
async fn statement_beside(fs: &Fs, directory: &str) -> Option<String> {
    let mut paths = vec![format!("{directory}/{SCHEMA_FILE}")];
    let snapshots = format!("{directory}/snapshots");
    let mut tags = fs.read_dir(&snapshots).await.unwrap_or_default();
    tags.sort_by(|a, b| b.name.cmp(&a.name));
    paths.extend(tags.iter().map(|tag| format!("{snapshots}/{}/{SCHEMA_FILE}", tag.name)));
    for path in paths {
        if let Ok(bytes) = fs.read(&path, SCHEMA_FILE_BYTES_MAX).await
            && let Ok(text) = String::from_utf8(bytes)
        {
            return Some(text);
        }
    }
    None
}

/// A directory with SSTables of a table that the schema does not have.
struct Unused<'d> {
    directory: &'d str,
    keyspace: &'d str,
    name: &'d str,
    id: Option<Uuid>,
}

impl Unused<'_> {
    fn of(directory: &str) -> Unused<'_> {
        let mut parts = directory.rsplit('/');
        let (last, keyspace) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let (name, id) = last.rsplit_once('-').unwrap_or((last, ""));
        Unused { directory, keyspace, name, id: Uuid::parse_str(id).ok() }
    }

    /// Returns the error and the statements that bring the table back.
    fn remedy(&self, statement: Option<&str>, has_keyspace: bool) -> String {
        let Unused { directory, keyspace, name, id } = self;
        let id = id.map_or_else(|| "its id".to_owned(), |id| id.to_string());
        let statement = match statement {
            Some(text) => text.lines().map(str::trim).collect::<Vec<_>>().join(" "),
            None => format!("CREATE TABLE {keyspace}.{name} (its columns) WITH ID = {id};"),
        };
        let first = match has_keyspace {
            true => String::new(),
            false => format!(" create the keyspace {keyspace}, then"),
        };
        format!(
            "SSTables of {keyspace}.{name} in {directory} are not in use: the schema has no such table. To bring \
             them back,{first} create the table again under its id: {statement} Or create it under another id and \
             run: nodetool import {keyspace} {name} {directory}. Else remove the directory."
        )
    }
}

async fn carry_out(tables: &[Arc<Table>], store: &Store) {
    match store.lifecycle().finish_drops_of(tables).await {
        Ok(0) => {}
        Ok(directories) => tracing::warn!(
            directories,
            "removed leftovers of tables whose DROP was interrupted, after a snapshot if \
            auto_snapshot is on"
        ),
        Err(error) => {
            tracing::warn!(%error, "cannot remove leftovers of a dropped table");
        }
    }
}

/// A table that the log once had, as it was last.
struct Known {
    table: Arc<Table>,
    /// The entry that dropped it.
    dropped: Option<Epoch>,
}

async fn tables_of(
    log: &LogReader,
) -> Result<BTreeMap<TableId, Known>, membership::log::OpenError> {
    let mut known: BTreeMap<TableId, Known> = BTreeMap::new();
    log.read(Epoch(1), |framed| {
        // An entry that cannot be decoded has stopped the start.
        if let Ok(entry) = Transformation::decode(framed.payload) {
            note(entry, framed.epoch, &mut known);
        }
        true
    })
    .await?;
    Ok(known)
}

/// The ids of all tables that the log ever had.
pub(crate) async fn ids_of(
    log: &LogReader,
) -> Result<BTreeSet<TableId>, membership::log::OpenError> {
    Ok(tables_of(log).await?.into_keys().collect())
}

fn note(entry: Transformation, epoch: Epoch, known: &mut BTreeMap<TableId, Known>) {
    let mut drop_where = |is_it: &dyn Fn(&Table) -> bool| {
        for known in known.values_mut().filter(|k| k.dropped.is_none() && is_it(&k.table)) {
            known.dropped = Some(epoch);
        }
    };
    match entry {
        Transformation::Group(parts) => {
            parts.into_iter().for_each(|part| note(part, epoch, known));
        }
        Transformation::Schema(change) => match *change {
            SchemaChange::CreateTable(table) | SchemaChange::AlterTable(table) => {
                known.insert(table.id, Known { table: Arc::new(table), dropped: None });
            }
            SchemaChange::DropTable { keyspace, table: name } => {
                drop_where(&|table| table.keyspace == keyspace && table.name == name);
            }
            SchemaChange::DropKeyspace { name } => drop_where(&|table| table.keyspace == name),
            _ => {}
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_back_and_a_directory_names_its_table() {
        assert_eq!(decode(b"epoch 12\n"), Some(Epoch(12)));
        for bad in [&b"epoch 12"[..], b"epoch\n", b"12\n", b"", b"epoch 12\n\n"] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_unused_directory_is_named_with_the_statements_that_bring_it_back() {
        let directory = "/d/data/ks/events-00000000000000000000000000000011";
        let unused = Unused::of(directory);
        let text = unused.remedy(Some("CREATE TABLE ks.events (\n    k int\n);\nALTER x;"), true);
        assert!(
            text.contains(&format!("SSTables of ks.events in {directory} are not in use")),
            "{text}"
        );
        assert!(text.contains("back, create the table"), "{text}");
        assert!(
            text.contains("under its id: CREATE TABLE ks.events ( k int ); ALTER x; Or"),
            "{text}"
        );
        assert!(text.contains(&format!("nodetool import ks events {directory}.")), "{text}");
        let text = unused.remedy(None, false);
        assert!(text.contains("create the keyspace ks, then create the table"), "{text}");
        assert!(text.contains("WITH ID = 00000000-0000-0000-0000-000000000011;"), "{text}");
        assert!(Unused::of("ks/x").remedy(None, true).contains("WITH ID = its id;"));
    }
}
