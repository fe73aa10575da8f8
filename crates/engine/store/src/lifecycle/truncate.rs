//! TRUNCATE and DROP.
//!
//! Order of TRUNCATE: 1. a record in the commit log names the table, the slice and every file that exists or
//! is being written; 2. the view is emptied, in the same turn; 3. the log is synced: now the answer may be
//! sent; 4. in the background a snapshot, if wanted, then the files are removed; 5. the record's segment may
//! be released, once the caller has recorded that the truncation is carried out
//! ([`Lifecycle::truncation_recorded`]). A start that replays the record empties the slice again, but only of
//! data written before the record, and knows that the truncation is carried out
//! ([`Lifecycle::is_truncated`]).
//!
//! Order of DROP: 1. the view is emptied; 2. in the background the table's directory gets a file
//! `helenus-dropped` that names the snapshot (in the envelope of small files; a damaged one ends the start): the shard that is first writes it, so all shards link
//! into one; 3. the snapshot; 4. the files are removed. A start that finds the file in a directory
//! of a table missing in the schema continues with step 3. A process that ends before step 2 leaves a
//! directory like that of any table missing in the schema: a caller that knows of the drop
//! ([`Lifecycle::finish_drops_of`]) continues with step 2. The mark is removed once nothing is left
//! ([`Lifecycle::settle_drops`]): files created there later are not those of the drop.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use codec::SmallForm;
use commitlog::TruncationRef;
use rt::{Fs, Group, SmallContent, damaged};
use schema::{Schema, Table};
use sstable::{Descriptor, SetState, list_sstables, remove_sstable};
use stdx::{FixedSet, Generation, IoErrorKind, TableId, TimestampMicros, Token};

use crate::error::StoreError;
use crate::files::directories::{FoundDirectory, entries};
use crate::files::late_tables::{DROPPED, is_marked_dropped};
use crate::files::links::link;
use crate::files::table_files::remove_if_there;
use crate::lifecycle::Lifecycle;
use crate::lifecycle::snapshot::{check_tag, write_manifest};
use crate::memtable::Memtable;
use crate::tables::table::{TableState, TableView, bump};
use crate::tables::table_file::{TableFile, map_error};
use crate::tables::truncations::TruncationPin;

const DROPPED_FORM: SmallForm = SmallForm { kind: "dropped", version: 2 };

/// Between attempts of background removals that failed (a full disk).
const RETRY: Duration = Duration::from_secs(5);

/// Data of a truncated or dropped table.
struct Remains {
    table: Rc<TableState>,
    memtables: Vec<Rc<Memtable>>,
    files: Vec<Rc<TableFile>>,
    /// Files being written at that moment; their writers remove them.
    in_flight: Vec<Generation>,
    /// The tag of the snapshot to take first.
    snapshot: Option<String>,
}

impl Lifecycle {
    /// Removes everything of this shard's slice of a table. When it returns the removal is durable
    /// and reads find nothing; snapshot and removal of files follow in the background.
    ///
    /// # Errors
    /// `UnknownTable`; `DiskFull`, `LogFailed`: the data may or may not be gone after a restart.
    pub async fn truncate(
        self: &Rc<Self>,
        id: TableId,
        truncated_at: TimestampMicros,
    ) -> Result<(), StoreError> {
        let table = self.files.opened_table(id).await?;
        let view = table.view();
        let in_flight = table.generations_in_flight();
        let mut generations: Vec<u64> = view.files.iter().map(|f| f.generation.0).collect();
        generations.extend(in_flight.iter().map(|g| g.0));
        // 1. and 2.
        let appended = self.env.log.append_truncation(id, truncated_at, &generations);
        let position = match appended {
            Ok(position) => position,
            Err(error) => {
                // Nothing was removed; a later attempt must not remove writes acknowledged until
                // then.
                table.refuses_unlogged.set(true);
                return Err(error.into());
            }
        };
        table.refuses_unlogged.set(false);
        table.note_truncation(self.env.shard(), truncated_at);
        // Until the record is durable the log keeps the removed writes: a crash before must leave
        // all of them.
        let kept = table.first_unflushed().map_or(position, |first| first.min(position));
        table.pins.borrow_mut().push(TruncationPin {
            at: truncated_at,
            position,
            kept,
            is_durable: false,
            is_removed: false,
            is_recorded: !self.env.options.keeps_truncations,
        });
        table.replayed_removals.set(table.replayed_removals.get() + 1);
        let millis = truncated_at.0.div_euclid(1000);
        let remains = self.empty_view(&table, in_flight, format!("truncated-{millis}"));
        // 3.
        let synced = self.sync_truncations(&table).await;
        // 4. and 5.
        let store = self.clone();
        let task = async move {
            if store.remove_remains(remains).await {
                table.change_pins(|pin| pin.is_removed |= pin.position == position);
            }
            store.env.work.notify_one();
        };
        // A closed gate: the node is stopping, the record is replayed at the next start.
        let _ = self.env.gate.spawn(&self.env.rt, Group::Admin, "truncate", task);
        synced
    }

    /// Empties the view of a table and returns its content.
    fn empty_view(
        &self,
        table: &Rc<TableState>,
        in_flight: Vec<Generation>,
        tag: String,
    ) -> Remains {
        let view = table.view();
        let memtables: Vec<Rc<Memtable>> =
            view.memtables().filter(|m| !m.is_empty()).cloned().collect();
        self.writer.release_memory(view.memtables().map(|m| m.bytes()).sum());
        table.set_view(TableView::empty());
        self.writer.count_refused(table);
        // Data received by repair sessions is dropped with the rest.
        table.repairs.borrow_mut().clear();
        bump(&table.emptied, 1);
        let version = table.version();
        let wanted = self.env.options.auto_snapshot
            && version.table.options.allow_auto_snapshot
            && !(memtables.is_empty() && view.files.is_empty());
        Remains {
            memtables,
            files: view.files.clone(),
            in_flight,
            snapshot: wanted.then(|| format!("{tag}-{}", version.table.name)),
            table: table.clone(),
        }
    }

    /// Takes the snapshot and removes the files; tries again until it is done or the store stops.
    async fn remove_remains(&self, mut remains: Remains) -> bool {
        loop {
            if self.try_remove_remains(&mut remains).await.is_ok() {
                return true;
            }
            if self.env.stopping.get() {
                return false;
            }
            self.env.pause(RETRY).await;
        }
    }

    async fn try_remove_remains(&self, remains: &mut Remains) -> Result<(), StoreError> {
        let table = remains.table.clone();
        let fs = self.env.rt.fs();
        let meeting = self.files.directories.meeting_directory_of(&table.version().table);
        if table.dropped.get()
            && let Some(tag) = &mut remains.snapshot
        {
            *tag = self.drop_tag(&meeting, tag).await?;
        }
        if let Some(tag) = &remains.snapshot {
            self.snapshot_files(&table, tag, &remains.files, &remains.memtables).await?;
            remains.snapshot = None;
        }
        remains.memtables.clear();
        if table.dropped.get() && !remains.files.is_empty() {
            // Also where no snapshot was wanted: without it a crash would leave the files for ever.
            let tag = self.drop_tag(&meeting, "").await?;
            let mut others: Vec<&str> =
                remains.files.iter().map(|file| file.reader.meta().directory()).collect();
            others.sort_unstable();
            others.dedup();
            for directory in others.into_iter().filter(|directory| *directory != meeting) {
                self.drop_tag(directory, &tag).await?;
            }
        }
        while let Some(file) = remains.files.last().cloned() {
            self.files.remove_file(&file).await?;
            remains.files.pop();
        }
        for directory in self.files.directories.directories_of(&table.version().table) {
            match fs.sync_dir(&directory).await {
                // A table that was dropped before it had one.
                Err(error) if error.kind == IoErrorKind::NotFound => {}
                result => result?,
            }
        }
        while remains.in_flight.iter().any(|g| table.generations_in_flight().contains(g)) {
            if self.env.stopping.get() {
                return Err(StoreError::Stopping);
            }
            self.env.pause(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// A truncation met in the replay.
    pub(crate) fn replay_truncation(self: &Rc<Self>, truncation: &TruncationRef<'_>) {
        let (shard, shards) = self.env.shard();
        if truncation.shards == shards && truncation.shard != shard {
            return;
        }
        let Some(table) = self.tables.table(truncation.table) else { return };
        let slice = (truncation.shard, truncation.shards);
        table.note_truncation(slice, truncation.truncated_at);
        if self.env.options.keeps_truncations {
            table.replayed_truncations.borrow_mut().push(truncation.truncated_at);
        }
        let map = self.env.options.shard_map.over(slice.1);
        let view = table.view();
        let before = view.active.bytes();
        view.active.remove_where(|token: Token| map.shard_of(truncation.table, token).0 == slice.0);
        self.writer.release_memory(before.saturating_sub(view.active.bytes()));
        self.writer.count_refused(&table);
        let named: Vec<u64> = truncation.generations().collect();
        let (gone, mut files): (Vec<_>, Vec<_>) =
            view.files.iter().cloned().partition(|f| named.contains(&f.generation.0));
        if gone.is_empty() {
            return;
        }
        // Files of the truncated slice are removed; of files that span slices only the slice.
        let mut removed = Vec::new();
        for file in gone {
            let group = file.reader.meta().group().and_then(|g| Some((g.shard?, g.shard_count)));
            if slice == (shard, shards) || group == Some(slice) {
                removed.push(file);
            } else {
                let mut hidden = file.hidden.to_vec();
                hidden.push(slice);
                files.push(Rc::new(file.hiding(hidden)));
                removed.push(file);
            }
        }
        table.set_view(TableView::new(view.active.clone(), view.flushing.clone(), files));
        table.replayed_removals.set(table.replayed_removals.get() + 1);
        let wanted =
            self.env.options.auto_snapshot && table.version().table.options.allow_auto_snapshot;
        let millis = truncation.truncated_at.0.div_euclid(1000);
        let tag = wanted.then(|| format!("truncated-{millis}-{}", table.version().table.name));
        let store = self.clone();
        let task = async move {
            while !store.remove_replayed(&table, &removed, slice, tag.as_deref()).await {
                if store.env.stopping.get() {
                    return;
                }
                store.env.pause(RETRY).await;
            }
            table.replayed_removals.set(table.replayed_removals.get() - 1);
            store.env.work.notify_one();
        };
        let _ = self.env.gate.spawn(&self.env.rt, Group::Admin, "truncate-replay", task);
    }

    async fn remove_replayed(
        &self,
        table: &Rc<TableState>,
        files: &[Rc<TableFile>],
        slice: (u16, u16),
        tag: Option<&str>,
    ) -> bool {
        let fs = self.env.rt.fs();
        if let Some(tag) = tag
            && self.snapshot_files(table, tag, files, &[]).await.is_err()
        {
            return false;
        }
        for file in files {
            let group = file.reader.meta().group().and_then(|g| Some((g.shard?, g.shard_count)));
            let result = if slice == self.env.shard() || group == Some(slice) {
                self.files.remove_file(file).await
            } else {
                self.files
                    .release_spanning(&fs, file.reader.meta().directory(), file.generation, slice)
                    .await
            };
            if result.is_err() {
                return false;
            }
        }
        true
    }

    /// A table that is in the schema no longer: its view is emptied, its files are removed.
    pub(crate) fn drop_table(self: &Rc<Self>, table: Rc<TableState>) {
        table.dropped.set(true);
        self.tables.dropping.borrow_mut().push(table.id);
        let id = table.id;
        let millis = self.env.rt.wall().millis();
        let in_flight = table.generations_in_flight();
        let remains = self.empty_view(&table, in_flight, format!("dropped-{millis}"));
        let store = self.clone();
        let task = async move {
            if store.remove_remains(remains).await {
                let mut dropping = store.tables.dropping.borrow_mut();
                if let Some(at) = dropping.iter().position(|dropping| *dropping == id) {
                    dropping.swap_remove(at);
                }
            }
        };
        let _ = self.env.gate.spawn(&self.env.rt, Group::Admin, "drop-table", task);
    }

    /// The snapshot of a dropped table: `own`, or the one that another shard chose before.
    async fn drop_tag(&self, directory: &str, own: &str) -> Result<String, StoreError> {
        let fs = self.env.rt.fs();
        fs.create_dir_durably(directory).await?;
        let path = format!("{directory}/{DROPPED}");
        let mine = format!("{path}.{}", self.env.rt.shard().0);
        fs.write_small(DROPPED_FORM, &mine, format!("{own}\n").as_bytes()).await?;
        // The link is created or exists: one of the shards wins, whatever happens in between.
        link(&fs, &mine, &path).await?;
        fs.sync_dir(directory).await?;
        remove_if_there(&fs, &mine).await?;
        Ok(read_drop_tag(&fs, &path).await?.unwrap_or_default())
    }

    /// Goes on with drops that the end of the process interrupted. Returns directories that hold
    /// SSTables of tables that the schema does not have and that were not dropped here: they are
    /// left alone. On one shard.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) async fn finish_drops(&self, schema: &Schema) -> Result<Vec<String>, StoreError> {
        let fs = self.env.rt.fs();
        let known: FixedSet<String> = schema
            .tables_by_id
            .values()
            .map(|table| format!("{}/{}", table.keyspace, table.directory_name()))
            .collect();
        let mut strangers = Vec::new();
        for FoundDirectory { keyspace, name, path } in
            self.files.directories.found_directories().await?
        {
            let below = format!("{keyspace}/{name}");
            if known.contains(&below)
                || list_sstables(&fs, &path).await.map_err(map_error)?.is_empty()
            {
                continue;
            }
            let mut tag = read_drop_tag(&fs, &format!("{path}/{DROPPED}")).await?;
            // It was to be marked next.
            for other in &self.env.options.data_directories {
                if tag.is_none() {
                    tag = read_drop_tag(&fs, &format!("{other}/{below}/{DROPPED}")).await?;
                }
            }
            match tag {
                Some(tag) => self.finish_drop(&fs, &path, &tag).await?,
                None => strangers.push(path),
            }
        }
        strangers.sort();
        Ok(strangers)
    }

    /// Drops the remaining data of tables that were dropped when the process ended before the disk
    /// recorded it. Data that was not flushed then is missing in the snapshot. Call it on the shard
    /// that has [`crate::Tables::directories_of_unknown_tables`]; the directories leave that list.
    /// Returns how many directories these were.
    ///
    /// # Errors
    /// `Io`, `Invalid`; may be repeated.
    pub async fn finish_drops_of(&self, tables: &[Arc<Table>]) -> Result<usize, StoreError> {
        let fs = self.env.rt.fs();
        let mut count = 0;
        for table in tables {
            let below = format!("/{}/{}", table.keyspace, table.directory_name());
            let of_it: Vec<String> = {
                let strangers = self.tables.strangers.borrow();
                strangers.iter().filter(|path| path.ends_with(&below)).cloned().collect()
            };
            let wanted = self.env.options.auto_snapshot && table.options.allow_auto_snapshot;
            let mut tag = String::new();
            if wanted {
                tag = format!("dropped-{}-{}", self.env.rt.wall().millis(), table.name);
            }
            // All are marked before one has gone: a crash in between leaves one tag for all.
            for path in &of_it {
                if self.tables.table(table.id).is_none() {
                    tag = self.drop_tag(path, &tag).await?;
                }
            }
            for path in &of_it {
                // Made again meanwhile, under the same id.
                if self.tables.table(table.id).is_some() {
                    break;
                }
                self.finish_drop(&fs, path, &tag).await?;
                self.tables.strangers.borrow_mut().retain(|stranger| stranger != path);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Returns true if nothing is left of tables missing in the schema, except directories of
    /// unknown tables. Removes the marks of completed drops, so that files created there later are
    /// not treated as remains of one. Call it on the shard that has
    /// [`crate::Tables::directories_of_unknown_tables`].
    ///
    /// # Errors
    /// `Io`.
    pub async fn settle_drops(&self) -> Result<bool, StoreError> {
        let fs = self.env.rt.fs();
        let known: FixedSet<String> = self
            .tables
            .all_tables()
            .iter()
            .map(|table| {
                let table = table.version().table.clone();
                format!("{}/{}", table.keyspace, table.directory_name())
            })
            .collect();
        let mut is_settled = self.tables.dropping.borrow().is_empty();
        for FoundDirectory { keyspace, name, path } in
            self.files.directories.found_directories().await?
        {
            let is_stranger = self.tables.strangers.borrow().contains(&path);
            if known.contains(&format!("{keyspace}/{name}")) || is_stranger {
                continue;
            }
            if !list_sstables(&fs, &path).await.map_err(map_error)?.is_empty() {
                is_settled = false;
            } else if is_marked_dropped(&fs, &path).await? {
                remove_if_there(&fs, &format!("{path}/{DROPPED}")).await?;
                fs.sync_dir(&path).await?;
            }
        }
        Ok(is_settled)
    }

    async fn finish_drop(&self, fs: &Fs, directory: &str, tag: &str) -> Result<(), StoreError> {
        let files = list_sstables(fs, directory).await.map_err(map_error)?;
        if !tag.is_empty() {
            let names = entries(fs, directory).await?;
            let target = format!("{directory}/snapshots/{tag}");
            fs.create_dir_durably(&target).await?;
            for (descriptor, _) in files.iter().filter(|(_, s)| *s != SetState::Unfinished) {
                let of_it = |name: &str| {
                    Descriptor::parse_any(name).is_some_and(|(found, _)| found == *descriptor)
                };
                for name in names.iter().map(|e| &e.name).filter(|n| of_it(n)) {
                    link(fs, &format!("{directory}/{name}"), &format!("{target}/{name}")).await?;
                }
            }
            write_manifest(fs, self.env.rt.shard(), &target, self.env.rt.wall()).await?;
        }
        for (descriptor, _) in &files {
            remove_sstable(fs, directory, *descriptor).await.map_err(map_error)?;
        }
        fs.sync_dir(directory).await?;
        remove_if_there(fs, &format!("{directory}/{DROPPED}")).await
    }
}

/// The tag in the mark of a drop, which may be empty; `None` when there is no mark.
async fn read_drop_tag(fs: &Fs, path: &str) -> Result<Option<String>, StoreError> {
    let bytes = match fs.read_small(DROPPED_FORM, path, 1024).await? {
        SmallContent::Missing => return Ok(None),
        SmallContent::Body(bytes) | SmallContent::Legacy(bytes) => bytes,
    };
    // Without the line feed it was cut: no tag would mean that no snapshot is wanted.
    let text = std::str::from_utf8(&bytes).ok().and_then(|text| text.strip_suffix('\n'));
    let tag = text.ok_or_else(|| damaged(path, "it does not name a snapshot"))?;
    if !tag.is_empty() {
        check_tag(tag)?;
    }
    Ok(Some(tag.to_owned()))
}
