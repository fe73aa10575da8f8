//! Files of a table with something large, as far as this run knows.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use schema::Table;
use sstable::{Component, Descriptor};
use stdx::{Generation, WallMicros};

use crate::tables::table_file::TableFile;

/// Limit of files that were written and are in no view yet; more of them are not reported.
const WAITING_MAX: usize = 64;

/// Events that are not delivered yet.
const EVENTS_MAX: usize = 1_024;

/// A partition that is large in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionFacts {
    /// Values of its key, cut at 16 KiB.
    pub partition_key: String,
    /// Bytes in Data, uncompressed.
    pub bytes: u64,
    /// Rows, the static one not among them.
    pub rows: u64,
    /// Range deletions that begin in it.
    pub range_tombstones: u64,
    /// Rows with deletions and nothing live.
    pub dead_rows: u64,
}

/// A row that is large in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFacts {
    /// Values of the key of its partition.
    pub partition_key: String,
    /// Values of its clustering; empty: it is the static row, or the table has no clustering.
    pub clustering_key: String,
    /// Bytes in Data, uncompressed.
    pub bytes: u64,
}

/// A cell, or a collection, that is large in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellFacts {
    /// See [`RowFacts::partition_key`].
    pub partition_key: String,
    /// See [`RowFacts::clustering_key`].
    pub clustering_key: String,
    /// The name of its column.
    pub column: String,
    /// Bytes of values and paths.
    pub bytes: u64,
    /// Elements of a collection that is not frozen; else 0.
    pub elements: u64,
}

/// An SSTable by name: `nb-1-big-Data.db`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SstableName {
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// The name of its Data file.
    pub sstable: String,
}

/// Large data of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeFile {
    /// The file.
    pub name: SstableName,
    /// When it came into use.
    pub at: WallMicros,
    /// At most [`sstable::LARGE_MAX`] of each.
    pub partitions: Vec<PartitionFacts>,
    /// See `partitions`.
    pub rows: Vec<RowFacts>,
    /// See `partitions`.
    pub cells: Vec<CellFacts>,
}

/// A file with something large came into use or went out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LargeEvent {
    /// It is in use from now on.
    Found(LargeFile),
    /// It is in use no more.
    Gone(SstableName),
}

/// Files of a table with something large.
#[derive(Default)]
pub(crate) struct LargeFiles(pub(crate) RefCell<Known>);

#[derive(Default)]
pub(crate) struct Known {
    /// Written, in no view yet.
    pub(crate) waiting: BTreeMap<Generation, LargeFile>,
    /// In the view, with their versions.
    pub(crate) used: BTreeSet<Descriptor>,
    pub(crate) events: Vec<LargeEvent>,
    pub(crate) looked: Looked,
}

impl LargeFiles {
    pub(crate) fn wait(&self, generation: Generation, file: LargeFile) {
        let mut known = self.0.borrow_mut();
        if known.waiting.len() < WAITING_MAX {
            known.waiting.insert(generation, file);
        }
    }

    /// A file is being written no longer: it is in the view, or came to nothing.
    pub(crate) fn forget(&self, generation: Generation) {
        self.0.borrow_mut().waiting.remove(&generation);
    }

    /// The table has another view.
    pub(crate) fn follow(&self, table: &Table, files: &[Rc<TableFile>]) {
        let mut known = self.0.borrow_mut();
        let Known { waiting, used, events, .. } = &mut *known;
        if waiting.is_empty() && used.is_empty() {
            return;
        }
        for file in files {
            if let Some(found) = waiting.remove(&file.generation) {
                used.insert(file.reader.meta().descriptor());
                push(events, LargeEvent::Found(found));
            }
        }
        used.retain(|descriptor| {
            let is_used = files.iter().any(|f| f.generation == descriptor.generation);
            if !is_used {
                push(events, LargeEvent::Gone(name_of(table, *descriptor)));
            }
            is_used
        });
    }

    pub(crate) fn take(&self) -> Vec<LargeEvent> {
        std::mem::take(&mut self.0.borrow_mut().events)
    }
}

/// No receiver may be registered.
pub(crate) fn push(events: &mut Vec<LargeEvent>, event: LargeEvent) {
    if events.len() < EVENTS_MAX {
        events.push(event);
    }
}

pub(crate) fn name_of(table: &Table, descriptor: Descriptor) -> SstableName {
    SstableName {
        keyspace: table.keyspace.to_string(),
        table: table.name.to_string(),
        sstable: descriptor.file_name(Component::Data),
    }
}

/// Files of a table that wait for their scan, and those that were scanned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) waiting: BTreeSet<Generation>,
    /// Files scanned that were not written here.
    pub(crate) done: BTreeSet<Generation>,
}

impl LargeFiles {
    pub(crate) fn next(&self) -> Option<Generation> {
        self.0.borrow().looked.waiting.first().copied()
    }
}
