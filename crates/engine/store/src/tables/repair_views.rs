//! Views of a table for reads of repairs: its files by repair state.

use std::rc::Rc;

use sstable::repair_state::RepairState;
use stdx::Uuid;

use crate::error::StoreError;
use crate::memtable::Memtable;
use crate::tables::table::{TableState, TableView};
use crate::tables::table_file::TableFile;

/// Scope of a replica's read of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadScope {
    /// Everything, for a client: through the cache, with a limit on tombstones.
    #[default]
    All,
    /// Everything, for a repair: past the cache and without that limit.
    Repair,
    /// Data in this session of an incremental repair, likewise.
    Pending(Uuid),
    /// Data that no repair has covered, likewise.
    Unrepaired,
    /// Data that a repair has covered, likewise.
    Repaired,
}

pub(crate) fn state_of(file: &TableFile) -> RepairState {
    RepairState::of(file.reader.meta())
}

pub(crate) fn unknown(session: Uuid) -> StoreError {
    StoreError::Invalid(format!("the repair session {session} is not under way here"))
}

impl TableState {
    /// Returns the view for a repair's read.
    pub(crate) fn view_for(&self, scope: ReadScope) -> Result<Rc<TableView>, StoreError> {
        let view = self.view();
        // Other files have all its readable data.
        let is_read = |f: &&Rc<TableFile>| !self.is_salvaged(f.generation);
        let of = |repaired: bool| {
            let is_it = |f: &&Rc<TableFile>| (state_of(f).repaired_at != 0) == repaired;
            view.files.iter().filter(is_it).filter(is_read).cloned().collect::<Vec<_>>()
        };
        Ok(match scope {
            ReadScope::All => view,
            ReadScope::Repair if self.damaged.borrow().is_empty() => view,
            ReadScope::Repair => {
                let (active, flushing) = (view.active.clone(), view.flushing.clone());
                let files = view.files.iter().filter(is_read).cloned().collect();
                Rc::new(TableView::new(active, flushing, files))
            }
            ReadScope::Pending(session) => self.pending_view(session)?,
            ReadScope::Unrepaired => {
                let (active, flushing) = (view.active.clone(), view.flushing.clone());
                Rc::new(TableView::new(active, flushing, of(false)))
            }
            ReadScope::Repaired => {
                let (active, flushing) = (Rc::new(Memtable::new()), Vec::new());
                Rc::new(TableView::new(active, flushing, of(true)))
            }
        })
    }

    /// The files of a session, alone.
    pub(crate) fn pending_view(&self, session: Uuid) -> Result<Rc<TableView>, StoreError> {
        if !self.repairs.borrow().contains_key(&session) {
            return Err(unknown(session));
        }
        let is_of_it = |f: &&Rc<TableFile>| state_of(f).pending == Some(session);
        let files = self.view().files.iter().filter(is_of_it).cloned().collect();
        let (active, flushing) = (Rc::new(Memtable::new()), Vec::new());
        Ok(Rc::new(TableView::new(active, flushing, files)))
    }

    /// Replaces one file by others; false when it is not in the view any more.
    pub(crate) fn replace_file(&self, old: &TableFile, new: &[Rc<TableFile>]) -> bool {
        let view = self.view();
        if !view.files.iter().any(|f| f.generation == old.generation) {
            return false;
        }
        let mut files: Vec<Rc<TableFile>> = Vec::with_capacity(view.files.len() + 1);
        for file in &view.files {
            match file.generation == old.generation {
                true => files.extend_from_slice(new),
                false => files.push(file.clone()),
            }
        }
        let (active, flushing) = (view.active.clone(), view.flushing.clone());
        self.set_view(TableView::new(active, flushing, files));
        true
    }
}

/// Uncompressed bytes of a file that were repaired, and those in a running repair.
pub(crate) fn repaired_bytes(file: &TableFile) -> (u64, u64) {
    let (state, bytes) = (state_of(file), file.reader.meta().data_length());
    match (state.pending, state.repaired_at) {
        (Some(_), _) => (0, bytes),
        (None, 0) => (0, 0),
        (None, _) => (bytes, 0),
    }
}
