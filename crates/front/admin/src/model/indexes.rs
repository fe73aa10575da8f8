//! Reports about secondary indexes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A secondary index of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexReport {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// Name.
    pub index: String,
    /// Indexed column.
    pub column: String,
    /// Rules by which queries use it: `sai` or `legacy_local_table`.
    pub rules: String,
    /// Terms are compared as a whole: text, booleans, frozen values, entries of maps.
    pub is_literal: bool,
    /// The changes to text before it is compared, in Cassandra's words.
    pub analyzer: String,
    /// Its first build has ended on every shard: queries can use it.
    pub is_built: bool,
    /// SSTables that lack it: queries read all their rows until a background task has rewritten them.
    pub sstables_without: u64,
    /// SSTables that have it, by path of the Data component.
    pub sstables: BTreeMap<String, IndexedSstableReport>,
}

/// The index of one SSTable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedSstableReport {
    /// Rows of the SSTable, static and deleted ones included.
    pub rows: u64,
    /// Different terms.
    pub terms: u64,
    /// Pairs of a term and a row.
    pub entries: u64,
    /// Smallest term: text, or hexadecimal digits after `0x`.
    pub min_term: String,
    /// Largest term, likewise.
    pub max_term: String,
    /// Bytes of the index on disk.
    pub bytes: u64,
    /// Bytes of the positions of rows on disk, which all indexes of the SSTable share.
    pub rows_bytes: u64,
    /// Token of the first partition.
    pub start_token: i64,
    /// Token of the last partition.
    pub end_token: i64,
}

impl IndexReport {
    /// Adds another shard's numbers of the same index. An SSTable of several shards counts once.
    pub fn merge(&mut self, other: IndexReport) {
        self.is_built &= other.is_built;
        self.sstables_without += other.sstables_without;
        self.sstables.extend(other.sstables);
    }

    /// Bytes of the components of all SSTables on disk, without those that indexes share.
    pub fn bytes(&self) -> u64 {
        self.sstables.values().map(|sstable| sstable.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(is_built: bool, without: u64, files: &[(&str, u64)]) -> IndexReport {
        let sstable = |bytes| IndexedSstableReport { bytes, ..IndexedSstableReport::default() };
        let sstables = files.iter().map(|(path, bytes)| ((*path).to_owned(), sstable(*bytes)));
        IndexReport {
            is_built,
            sstables_without: without,
            sstables: sstables.collect(),
            ..IndexReport::default()
        }
    }

    #[test]
    fn shards_of_a_node_have_one_report_and_a_shared_sstable_counts_once() {
        let mut all = report(true, 1, &[("a", 10), ("b", 20)]);
        all.merge(report(false, 2, &[("b", 20), ("c", 5)]));
        assert_eq!(all, report(false, 3, &[("a", 10), ("b", 20), ("c", 5)]));
        assert_eq!(all.bytes(), 35);
    }
}
