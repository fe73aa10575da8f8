//! Numbers of the indexes of a table.

use sstable::{Component, IndexComponent};
use stdx::{TableId, Token, Uuid};

use crate::store::Store;
use crate::tables::built_indexes::IndexState;
use crate::tables::table_file::TableFile;

/// One index of a table on this shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexStats {
    /// Its id.
    pub index: Uuid,
    /// Its state.
    pub state: IndexState,
    /// SSTables that lack it: a search reads all their rows.
    pub files_without: u64,
    /// SSTables that have it.
    pub files: Vec<IndexedFile>,
}

/// The index of one SSTable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedFile {
    /// Path of its Data component.
    pub path: String,
    /// Rows of the SSTable, static and deleted ones included.
    pub rows: u64,
    /// Different terms, or vectors.
    pub terms: u64,
    /// Pairs of a term and a row, or vectors.
    pub entries: u64,
    /// Smallest and largest term; empty for vectors.
    pub bounds: (Vec<u8>, Vec<u8>),
    /// Bytes of the component of terms.
    pub bytes: u64,
    /// Bytes of the component of positions of rows, which all indexes share.
    pub rows_bytes: u64,
    /// Tokens of the first and the last partition.
    pub tokens: (Token, Token),
}

impl Store {
    /// Numbers of all indexes of a table, in the order of the schema; empty for unknown tables.
    pub fn index_stats(&self, id: TableId) -> Vec<IndexStats> {
        let tables = &self.rooms.tables;
        let Some(table) = tables.table(id) else { return Vec::new() };
        let view = table.view();
        let of_index = |index: Uuid| {
            let state = tables.index_state(id, index)?;
            let files: Vec<IndexedFile> =
                view.files.iter().filter_map(|file| indexed_file(file, index)).collect();
            let files_without = (view.files.len() - files.len()) as u64;
            Some(IndexStats { index, state, files_without, files })
        };
        table.version().index_ids().filter_map(of_index).collect()
    }
}

fn indexed_file(file: &TableFile, index: Uuid) -> Option<IndexedFile> {
    let open = file.reader.index(index)?;
    let meta = file.reader.meta();
    let (terms, entries) = open.counts();
    let bounds = open.terms().map(|terms| (terms.min.clone(), terms.max.clone()));
    Some(IndexedFile {
        path: meta.file(Component::Data),
        rows: u64::from(open.rows.rows),
        terms,
        entries,
        bounds: bounds.unwrap_or_default(),
        bytes: file.reader.index_bytes(IndexComponent::Entries(index)),
        rows_bytes: file.reader.index_bytes(IndexComponent::Rows),
        tokens: (meta.first_token(), meta.last_token()),
    })
}
