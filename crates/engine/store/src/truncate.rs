//! TRUNCATE and DROP.
//!
//! Order of TRUNCATE: 1. a record in the commit log names the table, the slice and every file that
//! is there or being written; 2. the view is emptied, in the same turn; 3. the log is synced: now
//! the answer may go; 4. in the background a snapshot, if wanted, then the files are removed; 5. the
//! record's segment may go. A start that replays the record empties the slice again.

use std::rc::Rc;
use std::time::Duration;

use commitlog::TruncationRef;
use rt::Group;
use stdx::{Generation, TableId, TimestampMicros, Token};

use crate::error::StoreError;
use crate::files::TableFile;
use crate::memtable::Memtable;
use crate::store::Store;
use crate::table::{TableState, TableView};

/// Between attempts of background removals that failed (a full disk).
const RETRY: Duration = Duration::from_secs(5);

/// What a truncated or dropped table held.
struct Remains {
    table: Rc<TableState>,
    memtables: Vec<Rc<Memtable>>,
    files: Vec<Rc<TableFile>>,
    /// Files being written at that moment; their writers remove them.
    in_flight: Vec<Generation>,
    /// The tag of the snapshot to take first.
    snapshot: Option<String>,
}

impl Store {
    /// Removes everything of this shard's slice of a table. When it returns the removal is durable
    /// and reads find nothing; snapshot and removal of files follow in the background.
    ///
    /// # Errors
    /// `UnknownTable`; `DiskFull`, `LogFailed`: the data may or may not be gone after a restart.
    pub async fn truncate(
        &self,
        id: TableId,
        truncated_at: TimestampMicros,
    ) -> Result<(), StoreError> {
        let Some(table) = self.table(id) else { return Err(StoreError::UnknownTable(id)) };
        let view = table.view();
        let in_flight = table.generations_in_flight();
        let mut generations: Vec<u64> = view.files.iter().map(|f| f.generation.0).collect();
        generations.extend(in_flight.iter().map(|g| g.0));
        // 1. and 2.
        let position = self.inner.log.append_truncation(id, truncated_at, &generations)?;
        table.pins.borrow_mut().push(position);
        let millis = truncated_at.0.div_euclid(1000);
        let remains = self.empty_view(&table, in_flight, format!("truncated-{millis}"));
        // 3.
        let synced = self.inner.log.sync().await;
        // 4. and 5.
        let store = self.clone();
        let task = async move {
            if store.remove_remains(remains).await {
                let mut pins = table.pins.borrow_mut();
                pins.retain(|p| *p != position);
            }
            store.inner.work.notify_one();
        };
        // A closed gate: the node is stopping, the record is replayed at the next start.
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "truncate", task);
        Ok(synced?)
    }

    /// Empties the view of a table and hands out what was in it.
    fn empty_view(
        &self,
        table: &Rc<TableState>,
        in_flight: Vec<Generation>,
        tag: String,
    ) -> Remains {
        let view = table.view();
        let memtables: Vec<Rc<Memtable>> =
            view.memtables().filter(|m| !m.is_empty()).cloned().collect();
        self.release_memory(view.memtables().map(|m| m.bytes()).sum());
        table.set_view(TableView::empty());
        let version = table.version();
        let wanted = self.inner.options.auto_snapshot
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
            if self.inner.stopping.get() {
                return false;
            }
            self.pause(RETRY).await;
        }
    }

    async fn try_remove_remains(&self, remains: &mut Remains) -> Result<(), StoreError> {
        let table = remains.table.clone();
        let directory = self.directory_of(&table.version().table);
        if let Some(tag) = &remains.snapshot {
            self.snapshot_files(&table, tag, &remains.files, &remains.memtables).await?;
            remains.snapshot = None;
        }
        remains.memtables.clear();
        while let Some(file) = remains.files.last().cloned() {
            self.remove_file(&directory, &file).await?;
            remains.files.pop();
        }
        self.inner.rt.fs().sync_dir(&directory).await?;
        while remains.in_flight.iter().any(|g| table.generations_in_flight().contains(g)) {
            if self.inner.stopping.get() {
                return Err(StoreError::Stopping);
            }
            self.pause(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// A truncation met in the replay.
    pub(crate) fn replay_truncation(&self, truncation: &TruncationRef<'_>) {
        let (shard, shards) = self.shard();
        if truncation.shards == shards && truncation.shard != shard {
            return;
        }
        let Some(table) = self.table(truncation.table) else { return };
        let slice = (truncation.shard, truncation.shards);
        let shard_of = self.inner.options.shard_of;
        let view = table.view();
        let before = view.active.bytes();
        view.active.remove_where(|token: Token| shard_of(token, slice.1).0 == slice.0);
        self.release_memory(before.saturating_sub(view.active.bytes()));
        let named: Vec<u64> = truncation.generations().collect();
        let (gone, mut files): (Vec<_>, Vec<_>) =
            view.files.iter().cloned().partition(|f| named.contains(&f.generation.0));
        if gone.is_empty() {
            return;
        }
        // Files of the truncated slice go; of files that span slices only the slice.
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
        table.set_view(TableView {
            active: view.active.clone(),
            flushing: view.flushing.clone(),
            files,
        });
        table.replayed_removals.set(table.replayed_removals.get() + 1);
        let wanted =
            self.inner.options.auto_snapshot && table.version().table.options.allow_auto_snapshot;
        let millis = truncation.truncated_at.0.div_euclid(1000);
        let tag = wanted.then(|| format!("truncated-{millis}-{}", table.version().table.name));
        let store = self.clone();
        let task = async move {
            while !store.remove_replayed(&table, &removed, slice, tag.as_deref()).await {
                if store.inner.stopping.get() {
                    return;
                }
                store.pause(RETRY).await;
            }
            table.replayed_removals.set(table.replayed_removals.get() - 1);
            store.inner.work.notify_one();
        };
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "truncate-replay", task);
    }

    async fn remove_replayed(
        &self,
        table: &Rc<TableState>,
        files: &[Rc<TableFile>],
        slice: (u16, u16),
        tag: Option<&str>,
    ) -> bool {
        let fs = self.inner.rt.fs();
        let directory = &self.directory_of(&table.version().table);
        if let Some(tag) = tag
            && self.snapshot_files(table, tag, files, &[]).await.is_err()
        {
            return false;
        }
        for file in files {
            let group = file.reader.meta().group().and_then(|g| Some((g.shard?, g.shard_count)));
            let result = if slice == self.shard() || group == Some(slice) {
                self.remove_file(directory, file).await
            } else {
                self.release_spanning(&fs, directory, file.generation, slice).await
            };
            if result.is_err() {
                return false;
            }
        }
        true
    }

    /// A table that is in the schema no longer: its view is emptied, its files are removed.
    pub(crate) fn drop_table(&self, table: Rc<TableState>) {
        table.dropped.set(true);
        let millis = self.inner.rt.wall().millis();
        let in_flight = table.generations_in_flight();
        let remains = self.empty_view(&table, in_flight, format!("dropped-{millis}"));
        let store = self.clone();
        let task = async move {
            store.remove_remains(remains).await;
        };
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "drop-table", task);
    }
}
