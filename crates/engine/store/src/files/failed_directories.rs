//! Data directories that failed, with `disk_failure_policy: best_effort`: this shard continues without
//! them.
//!
//! 1. A read or write of a file in a data directory fails as only a device fails. Nothing is written there any more.
//! 2. SSTables in it leave the views. Files held by a compaction, or by another operation on the whole table,
//!    leave after that operation, because it would treat missing inputs as truncated ones.
//! 3. Until the store is stopped no tombstone is purged, no leftover removed, and records of TRUNCATE stay in the
//!    commit log: a start may find the directory again.
//!
//! The node cannot work without the directory of the local system keyspaces, nor without the last one left: then
//! it reports that no directory is left. Each shard acts on its own failures, and continues like that until it
//! stops.
//!
//! INV-out-of-service-1: a start that finds the directory again answers as if it had never been gone.
//!
//! Source of the policy: Cassandra's `DefaultFSErrorHandler`, `DisallowedDirectories`. There a write error leaves
//! the files readable, and purging continues.

use std::rc::Rc;

use stdx::{IoError, IoErrorKind, TableId};

use crate::env::failure::StoreFailure;
use crate::error::StoreError;
use crate::files::Files;
use crate::files::directories::is_local;
use crate::tables::table::{TableState, TableView};

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

impl Files {
    /// Classifies an error of a file: `None` when that failure is known already. May take a data
    /// directory out of service.
    pub(crate) fn failure_of(&self, error: &IoError) -> Option<StoreFailure> {
        let all = &self.env.options.data_directories;
        let directory = all.iter().find(|directory| is_below(&error.path, directory));
        let directory = match directory {
            Some(directory)
                if self.env.options.best_effort && error.kind == IoErrorKind::Device =>
            {
                directory
            }
            _ => return Some(StoreFailure::Disk(error.to_string())),
        };
        if self.directories.gone.borrow().contains(directory) {
            self.withhold_files();
            return None;
        }
        if self.directories.data_directories().len() < 2 || self.has_local_files(directory) {
            return Some(StoreFailure::NoDirectory(format!(
                "this shard cannot run without {directory}: {error}"
            )));
        }
        self.directories.gone.borrow_mut().push(directory.clone());
        for table in self.tables.all_tables() {
            table.has_directory.set(false);
            // A start may find files of this table: see `TableState::orphans`.
            let sentinel = table.in_flight(self.next_generation(&table));
            table.orphans.borrow_mut().push(sentinel);
        }
        let files = self.withhold_files();
        Some(StoreFailure::OutOfService(format!(
            "this shard no longer uses {directory}, and {files} SSTables in it are missing until \
            the node is started again: {error}"
        )))
    }

    /// Returns true if data that a node must not lose is in the directory, or would be.
    fn has_local_files(&self, directory: &str) -> bool {
        let holds = |table: &Rc<TableState>| {
            let is_there =
                table.view().files.iter().any(|f| is_below(f.reader.meta().directory(), directory));
            is_there || is_below(&self.directories.directory_of(&table.version().table), directory)
        };
        let tables = self.tables.all_tables();
        tables.iter().any(|table| is_local(&table.version().table.keyspace) && holds(table))
    }

    /// Step 2, as far as it can be done now; how many files left the views.
    pub(crate) fn withhold_files(&self) -> usize {
        let mut left = 0;
        for table in self.tables.all_tables().iter().filter(|table| !table.owned.get()) {
            left += self.withhold_files_of(table);
        }
        left
    }

    fn withhold_files_of(&self, table: &Rc<TableState>) -> usize {
        let gone = self.directories.gone.borrow();
        let view = table.view();
        let (mut stay, mut leave) = (Vec::new(), Vec::new());
        for file in &view.files {
            let directory = file.reader.meta().directory();
            let is_gone = gone.iter().any(|gone| is_below(directory, gone));
            match is_gone && !table.claimed.borrow().contains(&file.generation) {
                true => leave.push(file.generation),
                false => stay.push(file.clone()),
            }
        }
        if leave.is_empty() {
            return 0;
        }
        // A truncation names them too.
        table
            .orphans
            .borrow_mut()
            .extend(leave.iter().map(|generation| table.in_flight(*generation)));
        table.set_view(TableView::new(view.active.clone(), view.flushing.clone(), stay));
        leave.len()
    }
}

impl Files {
    /// Reports this error to the failure policy of the node.
    #[cold]
    pub fn note_failure(&self, error: &StoreError) {
        if let StoreError::Corrupt { file, .. } = error {
            self.env.suspect(file);
        }
        let failure = match error {
            StoreError::LogFailed(what) => StoreFailure::CommitLog(what.clone()),
            StoreError::Corrupt { .. } => StoreFailure::Corrupt(error.to_string()),
            StoreError::Io(what) => match self.failure_of(what) {
                Some(failure) => failure,
                None => return,
            },
            _ => return,
        };
        self.env.tell_failure(failure);
    }

    /// Records the result of a background write for the state of the disk, and reports failures.
    pub(crate) fn note_write_result<T>(&self, result: &Result<T, StoreError>) {
        match result {
            Err(StoreError::DiskFull { detail }) => {
                self.env.full_disk.set(detail.clone());
            }
            Err(error) => self.note_failure(error),
            Ok(_) => {}
        }
    }
}

impl Files {
    /// Where this shard writes the files of a table; `None`: it has no such table.
    pub fn target_directory(&self, id: TableId) -> Option<String> {
        Some(self.directories.directory_of(&self.tables.table(id)?.version().table))
    }
}
