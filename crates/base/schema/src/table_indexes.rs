//! Secondary indexes of tables and keyspaces: look-ups, and the lists of a changed table.

use std::sync::Arc;

use stdx::Uuid;

use crate::column::Column;
use crate::index::IndexMetadata;
use crate::model::{Keyspace, Table};

impl Table {
    /// Returns true if it has an index.
    pub fn has_indexes(&self) -> bool {
        !self.indexes.is_empty()
    }

    /// The index of that exact name.
    pub fn index(&self, name: &str) -> Option<&Arc<IndexMetadata>> {
        self.indexes.iter().find(|index| &*index.name == name)
    }

    /// The index of that id.
    pub fn index_by_id(&self, id: Uuid) -> Option<&Arc<IndexMetadata>> {
        self.indexes.iter().find(|index| index.id == id)
    }

    /// Indexes of a column, by name.
    pub fn indexes_of<'t>(
        &'t self,
        column: &'t Column,
    ) -> impl Iterator<Item = &'t Arc<IndexMetadata>> {
        self.indexes.iter().filter(|index| index.target.column == column.name)
    }

    /// Its indexes with `index`, which takes the place of one with its name.
    pub fn indexes_with(&self, index: IndexMetadata) -> Arc<[Arc<IndexMetadata>]> {
        let others = self.indexes.iter().filter(|other| other.name != index.name).cloned();
        let mut indexes: Vec<_> = others.collect();
        let at = indexes.partition_point(|other| other.name < index.name);
        indexes.insert(at, Arc::new(index));
        indexes.into()
    }

    /// Its indexes without the one of that name.
    pub fn indexes_without(&self, name: &str) -> Arc<[Arc<IndexMetadata>]> {
        self.indexes.iter().filter(|index| &*index.name != name).cloned().collect()
    }

    /// INV-schema-6, as far as it concerns one table: the indexes are ordered by name, each is of a column that exists.
    pub(crate) fn has_valid_indexes(&self) -> bool {
        self.indexes.is_sorted_by(|a, b| a.name < b.name)
            && self.indexes.iter().all(|index| self.column(&index.target.column).is_some())
    }
}

impl Keyspace {
    /// The index of that exact name, with its table.
    pub fn index(&self, name: &str) -> Option<(&Arc<Table>, &Arc<IndexMetadata>)> {
        self.tables.values().find_map(|table| Some((table, table.index(name)?)))
    }
}
