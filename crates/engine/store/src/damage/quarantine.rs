//! Damaged files: known by name, kept for reads that need only their good parts, in no compaction, until
//! a copy of their readable data and a repair, or a scrub, replace them.
//!
//! 1. When a read, a compaction or a verification reports a file as corrupt, the whole file is verified
//!    ([`crate::damage::background_verify`]). If it is corrupt, a mark (`helenus-damaged-<generation>.<shard>`) records
//!    that.
//! 2. Its readable data is written to new files, as by a scrub. With nothing lost they replace it. When that fails (a
//!    device cannot read it back) it is retried, after twice the time each time.
//! 3. Otherwise they are beside it in the view: repairs see them and not the file, clients both. A read of a client
//!    that needs a damaged part fails as before: it is not answered without the lost data.
//! 4. When every owned range of it was repaired with the other replicas, by a repair that began after step 3, it is
//!    removed with the record of a compaction ([`crate::files::table_files`]); the mark is removed after it. A scrub
//!    does the same at once.
//!
//! A file that cannot be opened at a start is damaged too, where the node starts with such files: a
//! substitute for it ([`sstable::unreadable`]) is in the view, and step 2 reads the remaining data of it.
//!
//! A crash between any two leaves a marked file, and perhaps copies of some of its rows, which change no
//! answer: they have the timestamps of the rows.
//!
//! INV-quarantine-1: a damaged file is in the view until 4., so that no tombstone of its data is purged.
//! INV-quarantine-2: an incremental repair of its tokens is refused: it would count lost data as repaired.

use std::mem::discriminant;
use std::rc::Rc;
use std::time::Duration;

use sstable::SstableReader;
use stdx::{Generation, TableId, Token};

use crate::compact::scrub::Scrubbed;
use crate::damage::Verifier;
use crate::error::StoreError;
use crate::files::damage_marks::{DamageEvent, cut, path_of};
use crate::files::slots::CompactionProgress;
use crate::tables::damage::FailedCopies;
use crate::tables::repair_views::state_of;
use crate::tables::retry_backoff::Failures;
use crate::tables::table::TableState;
use crate::tables::table_file::{TableFile, map_error};

/// Minimum time between the copy and the begin of a later repair, as clocks of nodes differ.
const CLOCKS_DIFFER_SECONDS: i64 = 10;
/// A copy that failed is tried again so much later, and twice as late each time.
const COPY_AGAIN: Duration = Duration::from_secs(60);
/// But not later than that.
const COPY_AGAIN_MAX: Duration = Duration::from_secs(6 * 3_600);

/// A damaged file, as reports show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// Its table.
    pub id: TableId,
    /// Keyspace name.
    pub keyspace: String,
    /// Table name.
    pub table: String,
    /// Its Data component.
    pub path: String,
    /// Tokens of its first and its last partition.
    pub tokens: (Token, Token),
    /// The damage that was found.
    pub reason: String,
    /// When that was found, seconds since 1970.
    pub found: i64,
    /// Time since when all its readable data is in other files too, seconds since 1970. A later
    /// repair of its ranges releases it. `None`: it is not.
    pub salvaged: Option<i64>,
    /// Error of the attempts to copy it.
    pub copy_failure: Option<String>,
}

impl DamagedFile {
    /// Returns true if all its readable data is in other files too.
    pub fn is_salvaged(&self) -> bool {
        self.salvaged.is_some()
    }
}

/// Returns true if a repair that began at `repaired` counts for a file copied at `salvaged`;
/// seconds since 1970.
pub fn is_behind_copy(repaired: i64, salvaged: i64) -> bool {
    repaired > salvaged.saturating_add(CLOCKS_DIFFER_SECONDS)
}

impl Verifier {
    /// The damaged files of this shard, by table and number. One that shards share is named by each that
    /// has found it.
    pub fn damaged_files(&self) -> Vec<DamagedFile> {
        let mut all = Vec::new();
        for table in self.tables.all_tables() {
            let version = table.version();
            for (generation, damage) in &*table.damaged.borrow() {
                let Some(file) = table.file(*generation) else { continue };
                let meta = file.reader.meta();
                all.push(DamagedFile {
                    id: table.id,
                    keyspace: version.table.keyspace.to_string(),
                    table: version.table.name.to_string(),
                    path: path_of(&file),
                    tokens: (meta.first_token(), meta.last_token()),
                    reason: damage.reason.clone(),
                    found: damage.found,
                    salvaged: damage.salvaged,
                    copy_failure: self.copy_failure(&table, *generation),
                });
            }
        }
        all
    }

    /// Step 2 of every damaged file for which it was not done; those that cannot be now are tried again.
    pub(crate) async fn salvage_all(&self) {
        for table in self.tables.all_tables() {
            let waiting: Vec<Generation> = {
                let damaged = table.damaged.borrow();
                let waits = damaged.iter().filter(|(_, damage)| damage.salvaged.is_none());
                waits.map(|(generation, _)| *generation).collect()
            };
            for generation in waiting {
                let Some(file) = table.file(generation) else {
                    table.damaged.borrow_mut().remove(&generation);
                    table.failed_copies.borrow_mut().remove(&generation);
                    continue;
                };
                if self.env.stopping.get() {
                    return;
                }
                let failed = table.failed_copies.borrow().get(&generation).map(|f| f.due);
                if failed.is_some_and(|due| self.env.rt.now() < due) {
                    continue;
                }
                // Its session has compared it: its treatment waits for the session's end.
                if state_of(&file).pending.is_some() {
                    continue;
                }
                match self.salvage(&table, &file).await {
                    Ok(()) => drop(table.failed_copies.borrow_mut().remove(&generation)),
                    Err(_) if self.env.stopping.get() => {}
                    Err(error) => self.note_failed_copy(&table, &file, &error),
                }
            }
        }
    }

    fn note_failed_copy(&self, table: &TableState, file: &TableFile, error: &StoreError) {
        let (text, kind) = (cut(error.to_string()), discriminant(error));
        let mut failed = table.failed_copies.borrow_mut();
        let before = failed.get(&file.generation);
        let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
        let is_known = before.is_some_and(|before| before.kind == kind);
        let failures = before.map_or(Failures::default(), |before| before.failures).and(error);
        let due = self.env.rt.now() + failures.wait(COPY_AGAIN, COPY_AGAIN_MAX);
        failed.insert(
            file.generation,
            FailedCopies { attempts, failures, error: text.clone(), kind, due },
        );
        drop(failed);
        if !is_known {
            self.files.tell_damage(DamageEvent::Failed { path: path_of(file), error: text });
        }
    }

    fn copy_failure(&self, table: &TableState, generation: Generation) -> Option<String> {
        let failed = table.failed_copies.borrow();
        let failed = failed.get(&generation)?;
        let minutes = failed.due.since(self.env.rt.now()).as_secs().div_ceil(60);
        Some(format!(
            "{} attempts to copy it failed, the next is in {minutes} minutes: {}",
            failed.attempts, failed.error
        ))
    }

    async fn salvage(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
    ) -> Result<(), StoreError> {
        let _own = self.files.slots.own_table(table).await;
        if !table.has_all(std::slice::from_ref(file)) || table.is_salvaged(file.generation) {
            return Ok(());
        }
        let claim =
            self.files.slots.claim(table, vec![file.generation], self.salvage_shown(table, file));
        // Lost data stays lost, also of counters: no read is answered from the copies alone.
        let how = sstable::offline::ScrubOptions {
            skip_corrupted: true,
            validate: false,
            reinsert_overflowed_ttl: false,
        };
        let Scrubbed { report, path, .. } =
            self.compactor.scrub_file(table, file, how, &claim, true).await?;
        self.files.tell_damage(DamageEvent::Salvaged { path, losses: report.losses });
        if report.losses == 0 {
            return Ok(());
        }
        let now = self.env.rt.wall().seconds().0;
        if let Some(damage) = table.damaged.borrow_mut().get_mut(&file.generation) {
            damage.salvaged = Some(now);
        }
        self.files.write_mark(table, file.generation).await
    }

    fn salvage_shown(&self, table: &TableState, file: &TableFile) -> CompactionProgress {
        CompactionProgress {
            reason: "salvage".to_owned(),
            ..self.compactor.scrub_shown(table, file)
        }
    }

    /// Releases the damaged files of a table whose tokens were all repaired after their readable
    /// data was copied to other files. `repaired` returns for a file's first and last token when
    /// the owned ranges between them were last repaired with other replicas, the earliest of these
    /// times, in seconds since 1970; `None`: not all were. The files are removed in the background.
    pub fn release_repaired(&self, id: TableId, repaired: impl Fn(Token, Token) -> Option<i64>) {
        let Some(table) = self.tables.table(id) else { return };
        let mut released = false;
        for (generation, damage) in &*table.damaged.borrow() {
            let Some(salvaged) = damage.salvaged else { continue };
            let Some(file) = table.file(*generation) else { continue };
            let meta = file.reader.meta();
            let since = repaired(meta.first_token(), meta.last_token());
            if since.is_some_and(|at| is_behind_copy(at, salvaged)) {
                table.releasable.borrow_mut().push(*generation);
                released = true;
            }
        }
        if released {
            self.env.suspects.changed.notify_one();
        }
    }

    /// Step 4 of those that [`Verifier::release_repaired`] named.
    pub(crate) async fn release_all(&self) {
        for table in self.tables.all_tables() {
            let releasable = std::mem::take(&mut *table.releasable.borrow_mut());
            for generation in releasable {
                let Some(file) = table.file(generation) else { continue };
                if let Err(error) = self.release(&table, &file).await {
                    let (path, error) = (path_of(&file), error.to_string());
                    self.files.tell_damage(DamageEvent::Failed { path, error });
                }
            }
        }
    }

    async fn release(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
    ) -> Result<(), StoreError> {
        let _own = self.files.slots.own_table(table).await;
        if !table.has_all(std::slice::from_ref(file)) || !table.is_salvaged(file.generation) {
            return Ok(());
        }
        // Data sent by the repair is in the memtable and in the log of this node, or in files.
        let directory = self.files.directories.directory_of(&table.version().table);
        let flight = table.in_flight(self.files.next_generation(table));
        let first = flight.generation();
        let written = self.files.write_txn(&directory, first, std::slice::from_ref(file)).await;
        let txn = match written {
            Ok(txn) => txn,
            Err(error) => {
                self.files.discard_all(table, vec![flight]).await;
                return Err(error);
            }
        };
        if !table.replace_file(file, &[]) {
            // The file now belongs to the operation that emptied the table, and the record must not
            // remove it.
            self.files.discard_all(table, vec![flight]).await;
            return Ok(());
        }
        self.files.cache.forget(file.id);
        self.files.finish_txn(&self.env.rt.fs(), &directory, first, &txn).await?;
        self.files.forget_damage(table, file).await
    }

    /// Reopens a file, as the disk has it now.
    pub(crate) async fn as_on_disk(
        &self,
        table: &TableState,
        file: &TableFile,
    ) -> Result<SstableReader, StoreError> {
        let (fs, version) = (self.env.rt.fs(), table.version());
        let (directory, descriptor) =
            (file.reader.meta().directory(), file.reader.meta().descriptor());
        let reader = SstableReader::open(&fs, directory, descriptor, Some(&version.table)).await;
        reader.map_err(map_error)
    }
}
