//! Scrub: rewrites files with all data that can be read from them.
//!
//! Each file is rewritten alone and unchanged: nothing is purged, its level and state of repair stay. A
//! file with a loss loses the state of repair, so that the next repair compares the rest with the
//! replicas. The steps, and the state after a crash between them, are those of any compaction
//! ([`crate::files::table_files`]).
//!
//! INV-scrub-1: a number for an output is taken only while the file is in the view, in the same turn, as
//! for any output.
//! INV-scrub-2: files of a repair under way are left alone: data that a session has compared stays as it
//! was.
//! Source: Cassandra `CompactionManager.performScrub`, `SortedTableScrubber`.

use std::rc::Rc;

use sstable::offline::{Loss, ScrubHost, ScrubOptions, ScrubReport, scrub_open};
use sstable::{Component, SstableReader};
use stdx::{Generation, TableId, Token};

use crate::compact::Compactor;
use crate::error::StoreError;
use crate::files::slots::{Claim, CompactionProgress, Progress};
use crate::tables::dropped_columns;
use crate::tables::table::{InFlight, TableState};
use crate::tables::table_file::{TableFile, map_error};

/// Losses of a file that are named; the others are counted.
const NAMED_MAX: usize = 100;

/// Result of scrubbing one file.
#[derive(Clone, Debug, Default)]
pub struct Scrubbed {
    /// Its Data component.
    pub path: String,
    /// Counts and losses of the scrub.
    pub report: ScrubReport,
    /// Descriptions of the first hundred losses.
    pub losses: Vec<String>,
    /// It is in a repair, and was not changed.
    pub in_repair: bool,
}

impl Scrubbed {
    /// Messages for the log, in Cassandra's words; `true`: as a warning.
    pub fn words(&self) -> Vec<(bool, String)> {
        let (path, report) = (&self.path, &self.report);
        if self.in_repair {
            let text = format!("{path} takes part in a repair under way, and is not scrubbed");
            return vec![(true, text)];
        }
        let mut said: Vec<(bool, String)> = Vec::new();
        said.extend(self.losses.iter().map(|loss| (true, format!("{path}: {loss}"))));
        let more = report.losses.saturating_sub(self.losses.len() as u64);
        if more > 0 {
            said.push((true, format!("{path}: {more} more losses")));
        }
        if report.out_of_order + report.rows_out_of_order > 0 {
            said.push((
                true,
                format!(
                    "{} out of order partition and {} rows out of order found while scrubbing \
                     {path}; Those have been written (in order) to new sstables",
                    report.out_of_order, report.rows_out_of_order
                ),
            ));
        }
        if report.written.is_empty() {
            if report.bad_partitions > 0 {
                said.push((
                    true,
                    format!(
                        "No valid partitions found while scrubbing {path}; it is marked for \
                         deletion now. If you want to attempt manual recovery, you can find a copy \
                         in the pre-scrub snapshot"
                    ),
                ));
            }
            return said;
        }
        said.push((
            false,
            format!(
                "Scrub of {path} complete: {} partitions in new sstable and 0 empty (tombstoned) \
                 partitions dropped",
                report.partitions
            ),
        ));
        if report.fixed_rows > 0 {
            let rows = report.fixed_rows;
            said.push((false, format!("Fixed {rows} rows with overflowed local deletion time.")));
        }
        if report.bad_partitions > 0 {
            said.push((
                true,
                format!(
                    "Unable to recover {} partitions that were skipped.  You can attempt manual \
                     recovery from the pre-scrub snapshot.  You can also run nodetool repair to \
                     transfer the data from a healthy replica, if any",
                    report.bad_partitions
                ),
            ));
        }
        said
    }
}

/// A shard's part of a file, as it is scrubbed.
struct Host<'s> {
    store: &'s Compactor,
    table: &'s Rc<TableState>,
    file: &'s Rc<TableFile>,
    progress: &'s Progress,
    flights: Vec<InFlight>,
    losses: Vec<String>,
    /// Bytes of the current output at the last update.
    written: u64,
}

impl ScrubHost for Host<'_> {
    fn next_generation(&mut self) -> Option<Generation> {
        if !self.table.has_all(std::slice::from_ref(self.file)) {
            return None;
        }
        let generation = self.store.files.next_generation(self.table);
        self.flights.push(self.table.in_flight(generation));
        Some(generation)
    }

    fn is_wanted(&self, token: Token) -> bool {
        let map = self.store.env.options.shard_map;
        let owner = || map.shard_of(self.table.id, token);
        let is_own = !self.file.spanning || owner() == self.store.env.rt.shard();
        is_own && self.file.shows(map, token)
    }

    fn tell(&mut self, loss: &Loss) {
        if self.losses.len() < NAMED_MAX {
            self.losses.push(loss.to_string());
        }
    }

    async fn goes_on(&mut self, position: u64, written: u64) -> bool {
        let inner = self.store;
        let done = &self.progress.done;
        done.set(done.get().max(position));
        let more = written.saturating_sub(self.written);
        self.written = written;
        let due = inner.files.slots.pace(inner.env.rt.now(), more, inner.compaction_rate.get());
        if due > inner.env.rt.now() {
            inner.env.rt.sleep_until(due).await;
        }
        inner.env.rt.yield_if_due().await;
        !inner.env.stopping.get() && !self.progress.stopped.get()
    }
}

impl Compactor {
    /// Rewrites this shard's files of a table with all data that can be read from them. With a name
    /// for a snapshot, it is taken of all files first. Memtables are not flushed, as in Cassandra.
    /// Returns the result of each file. A file that failed is unchanged, and the others were
    /// scrubbed too.
    ///
    /// # Errors
    /// `UnknownTable`, `Stopping`; `Invalid`: given up, or a name that cannot be that of a snapshot;
    /// `DiskFull`, `Io`: of the snapshot.
    pub async fn scrub(
        &self,
        id: TableId,
        snapshot: Option<&str>,
        how: ScrubOptions,
    ) -> Result<Vec<(String, Result<Scrubbed, StoreError>)>, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        let _own = self.files.slots.own_table(&table).await;
        let files = table.view().files.clone();
        if let Some(tag) = snapshot {
            crate::lifecycle::snapshot::check_tag(tag)?;
            self.lifecycle.snapshot_files(&table, tag, &files, &[]).await?;
        }
        let mut done = Vec::new();
        for file in &files {
            let meta = file.reader.meta();
            let path = meta.file(Component::Data).to_string();
            if meta.statistics().stats.pending_repair.is_some() {
                let left = Scrubbed { path: path.clone(), in_repair: true, ..Scrubbed::default() };
                done.push((path, Ok(left)));
                continue;
            }
            let claim = self.files.slots.claim(
                &table,
                vec![file.generation],
                self.scrub_shown(&table, file),
            );
            let result = self.scrub_file(&table, file, how, &claim, false).await;
            match &result {
                Err(StoreError::Stopping) => return Err(StoreError::Stopping),
                Err(_) if claim.progress.stopped.get() => {
                    return Err(StoreError::Invalid("Compaction interrupted".to_owned()));
                }
                // No write was refused but this one, which needs more than most; the disk is
                // checked every second.
                Err(StoreError::DiskFull { .. }) => {}
                _ => self.files.note_write_result(&result),
            }
            done.push((path, result));
        }
        Ok(done)
    }

    pub(crate) fn scrub_shown(&self, table: &TableState, file: &TableFile) -> CompactionProgress {
        let version = table.version();
        CompactionProgress {
            id: 0,
            table: table.id,
            keyspace: version.table.keyspace.to_string(),
            name: version.table.name.to_string(),
            done_bytes: 0,
            total_bytes: file.reader.meta().data_length(),
            inputs: 1,
            reason: "scrub".to_owned(),
            kind: "Scrub",
        }
    }

    /// Pre: the caller has the table as a whole. `beside`: of one with losses the new files come beside it.
    pub(crate) async fn scrub_file(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
        how: ScrubOptions,
        claim: &Claim,
        beside: bool,
    ) -> Result<Scrubbed, StoreError> {
        let meta = file.reader.meta();
        self.files
            .slots
            .reserve(&claim.progress, meta.data_length(), meta.disk_bytes(), "a scrub")
            .await?;
        let mut host = Host {
            store: self,
            table,
            file,
            progress: &claim.progress,
            flights: Vec::new(),
            losses: Vec::new(),
            written: 0,
        };
        let done = self.scrub_into(table, file, how, &mut host).await;
        let Host { flights, losses, .. } = host;
        let report = match done {
            Ok(report) => report,
            Err(error) => {
                self.files.discard_all(table, flights).await;
                return Err(error);
            }
        };
        let first = flights.first().map_or(Generation(0), InFlight::generation);
        let new = match self.scrubbed_files(table, meta.directory(), &report).await {
            Ok(new) => new,
            Err(error) => {
                self.files.discard_all(table, flights).await;
                return Err(error);
            }
        };
        let directory = meta.directory().to_owned();
        if !table.has_all(std::slice::from_ref(file)) {
            // Truncated or dropped meanwhile.
            self.files.discard_all(table, flights).await;
            return Err(StoreError::UnknownTable(table.id));
        }
        let path = meta.file(Component::Data).to_string();
        if beside && report.losses > 0 {
            table.add_files(&new);
            return Ok(Scrubbed { path, report, losses, in_repair: false });
        }
        let txn = match self.files.write_txn(&directory, first, std::slice::from_ref(file)).await {
            Ok(txn) => txn,
            Err(error) => {
                self.files.discard_all(table, flights).await;
                return Err(error);
            }
        };
        let replaced = table.replace_file(file, &new);
        if !replaced {
            // The file now belongs to the operation that emptied the table, and the record must not
            // remove it.
            self.files.discard_all(table, flights).await;
            return Err(StoreError::UnknownTable(table.id));
        }
        self.files.cache.forget(file.id);
        self.files.finish_txn(&self.env.rt.fs(), &directory, first, &txn).await?;
        self.files.forget_damage(table, file).await?;
        Ok(Scrubbed { path, report, losses, in_repair: false })
    }

    /// Writes the new files, complete and in no view.
    async fn scrub_into(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
        how: ScrubOptions,
        host: &mut Host<'_>,
    ) -> Result<ScrubReport, StoreError> {
        let version = table.version();
        let meta = file.reader.meta();
        let stats = &meta.statistics().stats;
        let (bases, partitions) = (meta.statistics().header.stats, meta.estimated_partitions());
        let mut options =
            self.writer.writer_options(&version.table, Generation(0), partitions, bases)?;
        options.level = stats.level;
        options.repaired_at = stats.repaired_at;
        options.run = meta.run();
        let fs = self.env.rt.fs();
        let kept = dropped_columns::table_to_merge(&version.table, std::slice::from_ref(file));
        let report = scrub_open(&fs, &file.reader, &kept, options, how, host);
        let report = report.await.map_err(map_error)?;
        match report.given_up {
            true if self.env.stopping.get() => Err(StoreError::Stopping),
            true => Err(StoreError::Invalid("Compaction interrupted".to_owned())),
            false => Ok(report),
        }
    }

    async fn scrubbed_files(
        &self,
        table: &TableState,
        directory: &str,
        report: &ScrubReport,
    ) -> Result<Vec<Rc<TableFile>>, StoreError> {
        let (fs, version) = (self.env.rt.fs(), table.version());
        let mut new = Vec::new();
        for written in &report.written {
            self.observer.warn_of_large(&version.table, Some(written));
            let reader =
                SstableReader::open(&fs, directory, written.descriptor, Some(&version.table)).await;
            let file = self.files.file_of(table.id, reader.map_err(map_error)?, Vec::new());
            new.extend(file.map(Rc::new));
        }
        Ok(new)
    }
}
