//! The tables of a shard by id.

use std::cell::RefCell;
use std::rc::Rc;

use stdx::{FixedMap, TableId};

use crate::tables::table::TableState;

/// The tables of one shard.
#[derive(Default)]
pub struct Tables {
    pub(crate) map: RefCell<FixedMap<TableId, Rc<TableState>>>,
    /// Directories with SSTables of tables that were not in the schema at open.
    pub(crate) strangers: RefCell<Vec<String>>,
    /// Tables whose DROP is being carried out, once for each DROP.
    pub(crate) dropping: RefCell<Vec<TableId>>,
}

impl Tables {
    /// Adds a table.
    pub(crate) fn insert(&self, state: Rc<TableState>) {
        self.map.borrow_mut().insert(state.id, state);
    }

    /// Takes a table out.
    pub(crate) fn remove(&self, id: TableId) {
        self.map.borrow_mut().remove(&id);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.map.borrow().len()
    }

    /// All tables, in order of id.
    pub(crate) fn all_tables(&self) -> Vec<Rc<TableState>> {
        let tables = self.map.borrow();
        let mut all: Vec<Rc<TableState>> = tables.values().cloned().collect();
        all.sort_unstable_by_key(|t| t.id);
        all
    }

    pub(crate) fn table(&self, id: TableId) -> Option<Rc<TableState>> {
        self.map.borrow().get(&id).cloned()
    }

    /// Directories that hold SSTables of tables which are not in the schema and were not dropped by
    /// it. Found when the first shard was opened, and left alone; empty on the other shards.
    pub fn directories_of_unknown_tables(&self) -> Vec<String> {
        self.strangers.borrow().clone()
    }
}
