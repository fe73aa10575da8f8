//! Index entries of a memtable, beside its rows: one view has both.
//!
//! A memtable has the indexes that its table had when it became active, and all its rows are in them; a change of the
//! indexes begins another memtable. Entries of overwritten rows stay, as no write reads before.

use std::rc::Rc;
use std::sync::Arc;

use data::MutationRef;
use index_format::{
    IndexedRow, IndexedValues, MemtableIndex, RowKey, Scope, TableIndex, TableIndexes,
};
use stdx::{Token, Uuid};

use super::vectors::MemtableVectors;

/// Entries of one index.
enum Entries {
    Terms(MemtableIndex<Arc<RowKey>>),
    Vectors(MemtableVectors),
}

impl Entries {
    fn of(index: &TableIndex) -> Entries {
        match index.values {
            IndexedValues::Terms(_) => Entries::Terms(MemtableIndex::default()),
            IndexedValues::Vectors(_) => Entries::Vectors(MemtableVectors::default()),
        }
    }

    /// Returns the bytes by which they grew, those of the row's key not counted.
    fn insert(&mut self, index: &TableIndex, entry: &[u8], row: Arc<RowKey>) -> usize {
        match (self, &index.values) {
            (Entries::Terms(terms), _) => terms.insert(entry, row),
            (Entries::Vectors(vectors), IndexedValues::Vectors(definition)) => {
                let vector = definition.vector_of(entry);
                vector.map_or(0, |vector| vectors.insert(vector, row))
            }
            (Entries::Vectors(_), IndexedValues::Terms(_)) => 0,
        }
    }

    fn drop_some(&mut self, count: usize) -> bool {
        match self {
            Entries::Terms(terms) => terms.drop_some(count),
            Entries::Vectors(vectors) => vectors.drop_some(count),
        }
    }
}

/// See the module.
pub(crate) struct MemtableIndexes {
    indexes: Rc<TableIndexes>,
    /// One for each index.
    maps: Vec<Entries>,
    scratch: Vec<u8>,
    bytes: usize,
    /// A row could not be entered: its clustering has no byte-comparable form.
    is_partial: bool,
}

impl MemtableIndexes {
    pub(super) fn new(indexes: Rc<TableIndexes>) -> MemtableIndexes {
        let maps = indexes.all().iter().map(Entries::of).collect();
        MemtableIndexes { indexes, maps, scratch: Vec::new(), bytes: 0, is_partial: false }
    }

    /// Accounted memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Terms of the index of that id. `None`: rows are missing in it, or it is one of vectors.
    pub(super) fn terms(&self, id: Uuid) -> Option<&MemtableIndex<Arc<RowKey>>> {
        match self.get(id)? {
            Entries::Terms(terms) => Some(terms),
            Entries::Vectors(_) => None,
        }
    }

    /// Vectors of the index of that id. `None`: rows are missing in it, or it is one of terms.
    pub(super) fn vectors(&self, id: Uuid) -> Option<&MemtableVectors> {
        match self.get(id)? {
            Entries::Terms(_) => None,
            Entries::Vectors(vectors) => Some(vectors),
        }
    }

    fn get(&self, id: Uuid) -> Option<&Entries> {
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
                Some(key) => grown += map.insert(index, term, key.clone()),
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
