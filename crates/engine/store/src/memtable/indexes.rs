//! Index entries of a memtable, beside its rows: one view has both.
//!
//! A memtable has the indexes that its table had when it became active, and all its rows are in them; a change of the
//! indexes begins another memtable. Entries of overwritten rows stay, as no write reads before.

use std::rc::Rc;
use std::sync::Arc;

use data::MutationRef;
use index_format::{IndexedRow, MemtableIndex, RowKey, Scope, TableIndexes};
use stdx::{Token, Uuid};

/// See the module.
pub(crate) struct MemtableIndexes {
    indexes: Rc<TableIndexes>,
    /// One for each index.
    maps: Vec<MemtableIndex<Arc<RowKey>>>,
    scratch: Vec<u8>,
    bytes: usize,
    /// A row could not be entered: its clustering has no byte-comparable form.
    is_partial: bool,
}

impl MemtableIndexes {
    pub(super) fn new(indexes: Rc<TableIndexes>) -> MemtableIndexes {
        let maps = indexes.all().iter().map(|_| MemtableIndex::default()).collect();
        MemtableIndexes { indexes, maps, scratch: Vec::new(), bytes: 0, is_partial: false }
    }

    /// Accounted memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The index of that id. `None`: rows are missing in it.
    pub(super) fn get(&self, id: Uuid) -> Option<&MemtableIndex<Arc<RowKey>>> {
        let number = self.indexes.all().iter().position(|index| index.id == id)?;
        self.maps.get(number).filter(|_| !self.is_partial)
    }

    /// Enters the rows of a mutation. Returns the bytes by which it grew.
    pub(super) fn insert(&mut self, token: Token, mutation: &MutationRef<'_>) -> usize {
        let key = mutation.key;
        let mut grown = 0;
        let mut partition = None;
        if let Some(row) = mutation.static_row {
            let row = IndexedRow { key, clustering: None, row, is_first: true };
            grown += self.insert_row(token, &row, &mut partition);
        }
        let mut is_first = mutation.static_row.is_none();
        for (clustering, row) in mutation.rows() {
            let row = IndexedRow { key, clustering: Some(clustering), row, is_first };
            grown += self.insert_row(token, &row, &mut partition);
            is_first = false;
        }
        self.bytes += grown;
        grown
    }

    fn insert_row(
        &mut self,
        token: Token,
        row: &IndexedRow<'_>,
        partition: &mut Option<Arc<RowKey>>,
    ) -> usize {
        let MemtableIndexes { indexes, maps, scratch, is_partial, .. } = self;
        let (mut grown, mut own) = (0, None);
        indexes.visit_row(row, scratch, |number, term| {
            let (Some(index), Some(map)) = (indexes.all().get(number), maps.get_mut(number)) else {
                return;
            };
            let (slot, clustering) = match index.part.scope() {
                Scope::Partition => (&mut *partition, None),
                Scope::Row => (&mut own, row.clustering),
            };
            if slot.is_none() {
                *slot = indexes.row_key(token, row.key, clustering).map(Arc::new);
                grown += slot.as_ref().map_or(0, |key| key.memory_bytes());
            }
            match slot {
                Some(key) => grown += map.insert(term, key.clone()),
                None => *is_partial = true,
            }
        });
        grown
    }

    /// Drops some entries; false when there is nothing left.
    pub(super) fn drop_some(&mut self, count: usize) -> bool {
        self.maps.iter_mut().any(|map| map.drop_some(count))
    }
}
