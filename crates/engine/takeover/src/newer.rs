//! A directory with a metadata log on which a Cassandra has run since: its changes.
//!
//! A Cassandra knows nothing of the metadata log, so that its schema and roles are in the system
//! tables only, and there they are newer than the log. Its changes are adopted as further entries
//! of the log: ids of columns stay, and with them the meaning of the commit log's content.
//!
//! Owns: noticing it ([`ForeignDirectory::written_since`]), the entries ([`ForeignDirectory::adopt`]). Never: writes anything.
//!
//! INV-newer-1: no table is dropped that has an SSTable, nor any while this node's own commit log
//! holds something: the Cassandra may never have seen it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::{Auth, AuthChange, ClusterSnapshot, Transformation};
use conf::Options;
use cql_plan::system_rows;
use rt::Fs;
use schema::{Column, ColumnKind, IndexMetadata, Keyspace, Schema, SchemaChange, Table};
use sstable::{Component, SetState, SstableReader};
use stdx::{ColumnId, DeletionSeconds, TimestampMicros};

use crate::left_out::LeftOut;
use crate::{ForeignDirectory, Imported, TakeoverError, list, name_of, rows};

impl ForeignDirectory<'_> {
    /// The first SSTable of `system.local` that another program wrote after this node's last start:
    /// without checksums of ours, and newer than anything that was written here. A Cassandra writes that
    /// table at each start. `newest_own`: the largest timestamp this node can have given it.
    ///
    /// # Errors
    /// The files cannot be read.
    pub async fn written_since(
        &self,
        newest_own: TimestampMicros,
    ) -> Result<Option<String>, TakeoverError> {
        written_since(*self, newest_own).await
    }

    /// The entries that adopt the changes of a Cassandra. `file`: the file that proves that it ran.
    ///
    /// # Errors
    /// Those of [`ForeignDirectory::read`]; `OtherMembers`.
    pub async fn adopt(
        &self,
        snapshot: &ClusterSnapshot,
        file: String,
    ) -> Result<Adopted, TakeoverError> {
        adopt(*self, snapshot, file).await
    }
}

async fn written_since(
    directory: ForeignDirectory<'_>,
    newest_own: TimestampMicros,
) -> Result<Option<String>, TakeoverError> {
    let ForeignDirectory { rt, options, base, .. } = directory;
    let Some(local) = base.table("system", "local") else { return Ok(None) };
    let fs = rt.fs();
    for data in options.data_directories() {
        let data = data.trim_end_matches('/');
        let directory = format!("{data}/{}/{}", local.keyspace, local.directory_name());
        if list(&fs, &directory).await?.is_empty() {
            continue;
        }
        for (descriptor, state) in sstable::list_sstables(&fs, &directory).await? {
            let checksums = format!("{directory}/{}", descriptor.file_name(Component::Checksums));
            if state != SetState::Complete || fs.exists(&checksums).await? {
                continue;
            }
            let reader = SstableReader::open(&fs, &directory, descriptor, Some(local)).await?;
            let newest = reader.meta().statistics().stats.max_timestamp;
            if newest.0 != i64::MAX && newest > newest_own {
                return Ok(Some(format!("{directory}/{}", descriptor.file_name(Component::Data))));
            }
        }
    }
    Ok(None)
}

/// Changes to the metadata log after another Cassandra ran on the directory.
#[derive(Debug)]
pub struct Adopted {
    /// To be appended in this order.
    pub entries: Vec<Transformation>,
    /// Every timestamp from now on must be larger.
    pub newest: TimestampMicros,
    /// Definitions that were left out, like those of an import.
    pub left_out: Vec<LeftOut>,
}

async fn adopt(
    directory: ForeignDirectory<'_>,
    snapshot: &ClusterSnapshot,
    file: String,
) -> Result<Adopted, TakeoverError> {
    let ForeignDirectory { rt, options, base, .. } = directory;
    if snapshot.members.len() > 1 {
        return Err(TakeoverError::OtherMembers { file });
    }
    let Some(imported) = directory.read(Some(&snapshot.schema)).await? else {
        let newest = TimestampMicros::NONE;
        return Ok(Adopted { entries: Vec::new(), newest, left_out: Vec::new() });
    };
    let is_drained = is_drained(&rt.fs(), &options.commitlog_directory()).await?;
    let newest = TimestampMicros(imported.local.created_at.0);
    let mut target = base.clone();
    for change in &imported.changes {
        target = target.apply(change).map_err(|error| TakeoverError::Schema(error.to_string()))?;
    }
    let mut keeps = BTreeSet::new();
    for table in snapshot.schema.tables_by_id.values().filter(|table| is_users(&table.keyspace)) {
        let gone = target.table_by_id(table.id).is_none();
        if gone && (!is_drained || has_sstables(&rt.fs(), options, table).await?) {
            tracing::warn!(
                table = name_of(table),
                "keeping a table that the Cassandra that ran on this directory does not have, \
                because it may hold rows; drop it if it was dropped there"
            );
            keeps.insert(table.id);
        }
    }
    let keeps = |table: &Table| keeps.contains(&table.id);
    let changes = schema_changes(&snapshot.schema, &target, &keeps)
        .map_err(|error| TakeoverError::Schema(error.to_string()))?;
    let drops = |change: &SchemaChange| matches!(change, SchemaChange::DropTable { .. });
    stdx::invariant!(
        is_drained || !changes.iter().any(drops),
        "INV-newer-1: tables are dropped while this node's commit log holds writes"
    );
    let auth = auth_changes(&snapshot.auth, &imported, snapshot)?;
    let mut entries: Vec<_> =
        changes.into_iter().map(|change| Transformation::Schema(Box::new(change))).collect();
    if !auth.is_empty() && !is_drained {
        tracing::warn!(
            "the Cassandra that ran on this directory has other roles or permissions; those of this \
             node are kept, because it was not drained before"
        );
    } else {
        entries.extend(auth);
    }
    tracing::warn!(
        file,
        changes = entries.len(),
        "a Cassandra has run on this directory: its schema and roles are taken over"
    );
    Ok(Adopted { entries, newest, left_out: imported.left_out })
}

fn is_users(keyspace: &str) -> bool {
    !keyspace.starts_with("system")
        || !cql_plan::system::system_schema().keyspaces.contains_key(keyspace)
}

/// Returns true if this node's last run left nothing in its commit log.
async fn is_drained(fs: &Fs, directory: &str) -> Result<bool, TakeoverError> {
    let files = list(fs, directory).await?;
    Ok(!files.iter().any(|file| file.name.starts_with("helenus-commitlog")))
}

async fn has_sstables(fs: &Fs, options: &Options, table: &Table) -> Result<bool, TakeoverError> {
    Ok(!rows::sstables(fs, &options.data_directories(), table).await?.is_empty())
}

/// The changes that make `now` of `before`, but for tables that are to be kept.
fn schema_changes(
    before: &Schema,
    now: &Schema,
    keeps: &dyn Fn(&Table) -> bool,
) -> Result<Vec<SchemaChange>, schema::SchemaError> {
    let mut steps = Steps { schema: before.clone(), changes: Vec::new() };
    for (name, keyspace) in now.keyspaces.iter().filter(|(_, keyspace)| !keyspace.is_virtual) {
        match steps.schema.keyspaces.get(name).cloned() {
            Some(old) => {
                if old.params != keyspace.params {
                    let (name, params) = (name.clone(), keyspace.params.clone());
                    steps.take(SchemaChange::AlterKeyspace { name, params })?;
                }
            }
            None => {
                let (name, params) = (name.clone(), keyspace.params.clone());
                steps.take(SchemaChange::CreateKeyspace { name, params })?;
            }
        }
        if is_users(name) {
            steps.keyspace(keyspace, keeps)?;
        }
    }
    for (name, keyspace) in &before.keyspaces {
        let is_gone = !keyspace.is_virtual && !now.keyspaces.contains_key(name);
        if is_gone && !keyspace.tables.values().any(|table| keeps(table)) {
            steps.take(SchemaChange::DropKeyspace { name: name.clone() })?;
        }
    }
    Ok(steps.changes)
}

/// Changes, and the schema that they lead to.
struct Steps {
    schema: Schema,
    changes: Vec<SchemaChange>,
}

impl Steps {
    fn take(&mut self, change: SchemaChange) -> Result<(), schema::SchemaError> {
        self.schema = self.schema.apply(&change)?;
        self.changes.push(change);
        Ok(())
    }

    /// Types and tables of a keyspace that exists.
    fn keyspace(
        &mut self,
        now: &Keyspace,
        keeps: &dyn Fn(&Table) -> bool,
    ) -> Result<(), schema::SchemaError> {
        let Some(old) = self.schema.keyspaces.get(&now.name).cloned() else { return Ok(()) };
        // Tables first: then no table uses a dropped type.
        for table in old.tables.values() {
            let same = now.tables.get(&table.name).is_some_and(|is| is.id == table.id);
            if !same && !keeps(table) {
                let (keyspace, table) = (table.keyspace.clone(), table.name.clone());
                self.take(SchemaChange::DropTable { keyspace, table })?;
            }
        }
        for udt in in_order_of_use(now) {
            match old.types.get(&udt.name) {
                None => self.take(SchemaChange::CreateType(udt))?,
                Some(was) if was.fields != udt.fields => self.take(SchemaChange::AlterType(udt))?,
                Some(_) => {}
            }
        }
        for table in now.tables.values() {
            let existing = self.schema.table(&table.keyspace, &table.name).cloned();
            match existing {
                Some(was) if was.id == table.id => {
                    let new = with_ids_of(&was, table);
                    if !looks_the_same(&self.schema, &was, &new) {
                        self.take(SchemaChange::AlterTable(new))?;
                    }
                }
                // A kept table of the same name takes precedence: its rows are promised.
                Some(_) => {
                    tracing::warn!(
                        table = name_of(table),
                        id = %table.id,
                        "leaving out a table that Cassandra created under the name of a table \
                        that is kept"
                    );
                }
                None => self.take(SchemaChange::CreateTable(Table::clone(table)))?,
            }
        }
        let used_here = |name: &str| {
            let keyspace = self.schema.keyspaces.get(&now.name);
            keyspace.is_some_and(|k| k.tables.values().any(|t| keeps(t) && uses(t, name)))
        };
        let gone: Vec<Arc<str>> = old
            .types
            .keys()
            .filter(|name| !now.types.contains_key(*name) && !used_here(name))
            .cloned()
            .collect();
        for name in gone {
            self.take(SchemaChange::DropType { keyspace: now.name.clone(), name })?;
        }
        Ok(())
    }
}

fn uses(table: &Table, udt: &str) -> bool {
    table.columns.iter().any(|column| column.ty.to_string().contains(udt))
}

/// The types of a keyspace, those that others use before them.
fn in_order_of_use(keyspace: &Keyspace) -> Vec<types::UdtType> {
    let mut waiting: Vec<_> = keyspace.types.values().collect();
    let mut out: Vec<types::UdtType> = Vec::new();
    while !waiting.is_empty() {
        let before = waiting.len();
        let names: Vec<Arc<str>> = waiting.iter().map(|udt| udt.name.clone()).collect();
        waiting.retain(|udt| {
            let waits = udt.fields.iter().any(|(_, ty)| {
                let text = ty.to_string();
                names.iter().any(|name| *name != udt.name && text.contains(&**name))
            });
            if !waits {
                out.push(types::UdtType::clone(udt));
            }
            waits
        });
        if waiting.len() == before {
            // Names that contain each other: any order is as good.
            out.extend(waiting.drain(..).map(|udt| types::UdtType::clone(udt)));
        }
    }
    out
}

/// The new definition of a table with the ids that its columns have already. A column that was
/// dropped and added again since is a new one.
fn with_ids_of(was: &Table, is: &Table) -> Table {
    let mut new = is.clone();
    let mut next = was.next_column_id;
    let mut fresh = || {
        let id = ColumnId(next);
        next = next.saturating_add(1);
        id
    };
    let key_kind = |column: &Column| {
        matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering { .. })
    };
    let dropped_since = |name: &str| {
        let at = |table: &Table| table.dropped.get(name).map(|dropped| dropped.dropped_at);
        at(is) > at(was)
    };
    let mut moved = BTreeMap::new();
    for (place, column) in new.columns.iter_mut().enumerate() {
        let old = if key_kind(column) {
            // By position: columns of the key can be renamed.
            was.columns.get(place).filter(|old| key_kind(old))
        } else {
            let same = |old: &&Column| old.name == column.name && !key_kind(old);
            was.columns.iter().find(same).filter(|_| !dropped_since(&column.name))
        };
        let id = old.map_or_else(&mut fresh, |old| old.id);
        moved.insert(column.id, id);
        column.id = id;
    }
    for (name, dropped) in &mut new.dropped {
        let known = match (was.dropped.get(name), was.columns.iter().find(|c| c.name == *name)) {
            (_, Some(live)) if dropped_since(name) => Some(live.id),
            (Some(before), _) => Some(before.column.id),
            (None, _) => None,
        };
        dropped.column.id = known.unwrap_or_else(&mut fresh);
    }
    new.masks =
        is.masks.iter().map(|(id, mask)| (*moved.get(id).unwrap_or(id), mask.clone())).collect();
    new.version = was.version.saturating_add(1);
    new.next_column_id = next;
    new.indexes = is.indexes.iter().map(|index| with_id_of(was, index, &new)).collect();
    new
}

/// The index with the id that it has already, if its definition and its column are the same: then the components of
/// this node's files are those of this index, whatever happened to it since. A local index is a plain one there.
fn with_id_of(was: &Table, index: &Arc<IndexMetadata>, new: &Table) -> Arc<IndexMetadata> {
    let same = |old: &&Arc<IndexMetadata>| {
        let column = |of: &Table| of.column(&index.target.column).map(|c| (c.id, c.ty.clone()));
        let options = old.cassandra_options() == index.cassandra_options();
        old.kind == index.kind && options && column(was) == column(new)
    };
    match was.index(&index.name).filter(same) {
        Some(old) => Arc::new(IndexMetadata { id: old.id, ..IndexMetadata::clone(index) }),
        None => {
            let id = schema::index_id(was.id, &index.name, new.version);
            Arc::new(IndexMetadata { id, ..IndexMetadata::clone(index) })
        }
    }
}

/// Returns true if both look the same in `system_schema`: no Cassandra changed anything that it
/// does not show.
fn looks_the_same(schema: &Schema, one: &Table, other: &Table) -> bool {
    let rows = |table: &Table| {
        let Some(keyspace) = schema.keyspaces.get(&table.keyspace) else { return Vec::new() };
        let mut keyspace = Keyspace::clone(keyspace);
        let mut table = table.clone();
        if table.options.bloom_filter_fp_chance.is_none() {
            let leveled = table.options.compaction.get("class");
            let leveled = leveled.is_some_and(|c| c.ends_with("LeveledCompactionStrategy"));
            table.options.bloom_filter_fp_chance = Some(if leveled { 0.1 } else { 0.01 });
        }
        keyspace.tables = [(table.name.clone(), Arc::new(table))].into();
        let (at, now) = (TimestampMicros(1), DeletionSeconds(1));
        system_rows::keyspace_mutations(schema, &keyspace, at, now)
    };
    rows(one) == rows(other)
}

/// The entries that replace all roles and the entries that refer to them; none when they are the
/// same.
fn auth_changes(
    before: &Auth,
    imported: &Imported,
    snapshot: &ClusterSnapshot,
) -> Result<Vec<Transformation>, TakeoverError> {
    let mut entries: Vec<Transformation> = Vec::new();
    for name in before.roles.keys() {
        entries.push(Transformation::Auth(AuthChange::DropRole { name: name.clone() }));
    }
    for name in before.cidr_groups.keys() {
        let (name, ranges) = (name.clone(), BTreeSet::new());
        entries.push(Transformation::Auth(AuthChange::PutCidrGroup { name, ranges }));
    }
    entries.extend(imported.auth.iter().cloned());
    let mut after = snapshot.clone();
    for entry in after.with_features(entries.clone()) {
        after = after.apply(&entry).map_err(|error| TakeoverError::Schema(error.to_string()))?;
    }
    let mut same = Auth::clone(&after.auth);
    same.changed_at = before.changed_at;
    Ok(if same == *before { Vec::new() } else { entries })
}

#[cfg(test)]
mod tests;
