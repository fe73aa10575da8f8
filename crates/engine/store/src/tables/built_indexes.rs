//! Which indexes of a table are built on this shard.
//!
//! An index is built once every file of the shard had it, and stays built: a file that comes later without it (an
//! import, a stream, a lost component) is read as if no index existed until it is rewritten. The list survives a
//! restart ([`crate::files::index_marks`]), so that a stray file never makes a built index unavailable.
//!
//! A search sees each live row of a view as a candidate (INV-index-1): through a component, the index of a memtable, or
//! because all rows of a source without the index are candidates. So no state here can lose a row.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use index_format::TableIndexes;
use sstable::{Component, IndexComponent, OpenIndex, SstableError};
use stdx::{Generation, TableId, Uuid};

use crate::tables::registry::Tables;
use crate::tables::table::{TableState, TableVersion, TableView};
use crate::tables::table_file::TableFile;

/// State of an index on this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// Its first build is not finished.
    Building {
        /// Files that have it.
        done: u64,
        /// All files.
        total: u64,
    },
    /// It can be used.
    Built,
}

/// The built indexes of one table.
#[derive(Default)]
pub(crate) struct BuiltIndexes {
    built: RefCell<BTreeSet<Uuid>>,
    is_changed: Cell<bool>,
    /// Built since the last report.
    unreported: RefCell<Vec<Uuid>>,
}

impl BuiltIndexes {
    /// Takes the list of an earlier run.
    pub(crate) fn open(&self, built: BTreeSet<Uuid>) {
        self.built.borrow_mut().extend(built);
    }

    pub(crate) fn is_built(&self, id: Uuid) -> bool {
        self.built.borrow().contains(&id)
    }

    /// The list, if it changed since the last call.
    pub(crate) fn take_changed(&self) -> Option<BTreeSet<Uuid>> {
        self.is_changed.take().then(|| self.built.borrow().clone())
    }

    /// Indexes that were built since the last call.
    pub(crate) fn take_unreported(&self) -> Vec<Uuid> {
        self.unreported.take()
    }

    /// The list could not be written.
    pub(crate) fn put_back(&self) {
        self.is_changed.set(true);
    }

    /// Adds indexes that all files have, and forgets those that do not exist any more.
    pub(crate) fn follow(
        &self,
        version: &TableVersion,
        view: &TableView,
        is_damaged: impl Fn(Generation) -> bool,
    ) {
        let mut built = self.built.borrow_mut();
        let before = built.clone();
        built.retain(|id| version.index_ids().any(|existing| existing == *id));
        for id in version.index_ids() {
            let mut whole = view.files.iter().filter(|file| !is_damaged(file.generation));
            if whole.all(|file| file.reader.index(id).is_some()) && built.insert(id) {
                self.unreported.borrow_mut().push(id);
            }
        }
        if *built != before {
            self.is_changed.set(true);
        }
    }
}

/// Stops using components that were written for another definition of an index.
pub(crate) fn disuse_others(indexes: &TableIndexes, files: &[Rc<TableFile>]) {
    for (index, file) in indexes.all().iter().flat_map(|i| files.iter().map(move |f| (i, f))) {
        let is_other = |open: OpenIndex| open.definition != index.definition;
        if file.reader.index(index.id).is_some_and(is_other) {
            let component = IndexComponent::Entries(index.id);
            let file_name = file.reader.meta().file(Component::Attached(component.name()));
            let what = format!("it is of another index than \"{}\" is now", index.name);
            let error = SstableError::Unsupported { file: file_name, what };
            file.reader.mark_index_damaged(component, &error);
        }
    }
}

impl TableState {
    /// Notes which indexes are built by now.
    pub(crate) fn follow_indexes(&self) {
        // Before that the view may lack files.
        if self.is_opened.get() {
            let (version, view) = (self.version(), self.view());
            self.indexes.follow(&version, &view, |generation| self.is_damaged(generation));
        }
    }

    /// The first file that lacks an index of the table, that no task rewrites and whose rows can be read.
    pub(crate) fn file_without_index(&self) -> Option<Rc<TableFile>> {
        let (version, view) = (self.version(), self.view());
        let claimed = self.claimed.borrow();
        let is_free = |file: &&Rc<TableFile>| {
            !claimed.contains(&file.generation) && !self.is_damaged(file.generation)
        };
        let lacks =
            |file: &&Rc<TableFile>| version.index_ids().any(|id| file.reader.index(id).is_none());
        view.files.iter().filter(is_free).find(lacks).cloned()
    }
}

impl Tables {
    /// State of an index on this shard. `None`: this shard does not have the table or the index.
    pub fn index_state(&self, table: TableId, index: Uuid) -> Option<IndexState> {
        let table = self.table(table)?;
        let version = table.version();
        if !version.index_ids().any(|id| id == index) {
            return None;
        }
        if table.indexes.is_built(index) {
            return Some(IndexState::Built);
        }
        let view = table.view();
        let with = view.files.iter().filter(|file| file.reader.index(index).is_some());
        Some(IndexState::Building { done: with.count() as u64, total: view.files.len() as u64 })
    }
}
