//! Clusterings of entries: the token and primary key of a row of the base table.
//!
//! Entries of a value are in the order of the base table: token, then partition key, then clustering. Only keys that share
//! a token may differ: entries compare their columns by type, the table compares the serialised key.

use std::cmp::Ordering;

use data::ClusteringComparator;
use data::clustering::{self, push_component};
use stdx::Token;

/// Names rows of one base table by clusterings of its entry table, and back.
#[derive(Clone, Debug)]
pub struct EntryKeys {
    partition_columns: usize,
    clustering_columns: usize,
    order: ClusteringComparator,
}

/// A row of the base table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowName {
    /// Token of the key.
    pub token: Token,
    /// Serialised partition key.
    pub key: Vec<u8>,
    /// Serialised clustering; empty in tables without clustering columns.
    pub clustering: Vec<u8>,
}

impl EntryKeys {
    pub(crate) fn new(
        partition_columns: usize,
        clustering_columns: usize,
        order: ClusteringComparator,
    ) -> EntryKeys {
        EntryKeys { partition_columns, clustering_columns, order }
    }

    /// Order of entries of one value.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.order.compare(a, b)
    }

    /// Number of clustering columns of the base table.
    pub fn base_clustering(&self) -> usize {
        self.clustering_columns
    }

    /// Clustering of the entry of a row. `None`: the key is not one of the base table.
    pub fn entry_of(&self, token: Token, key: &[u8], row: &[u8]) -> Option<Vec<u8>> {
        let mut entry = Vec::with_capacity(key.len().saturating_add(row.len()).saturating_add(16));
        push_component(&mut entry, Some(&token.0.to_be_bytes()));
        if self.partition_columns == 1 {
            push_component(&mut entry, Some(key));
        } else {
            let mut rest = key;
            for _ in 0..self.partition_columns {
                let (length, tail) = rest.split_first_chunk::<2>()?;
                let (part, tail) = tail.split_at_checked(u16::from_be_bytes(*length).into())?;
                push_component(&mut entry, Some(part));
                rest = tail.strip_prefix(&[0])?;
            }
            if !rest.is_empty() {
                return None;
            }
        }
        entry.extend_from_slice(row);
        Some(entry)
    }

    /// The row that an entry names. `None`: no writer of entries made this clustering.
    pub fn row_of(&self, entry: &[u8]) -> Option<RowName> {
        let columns = self.order.len();
        if clustering::check(entry, columns) != Some(columns) {
            return None;
        }
        let mut components = clustering::components(entry);
        let token = <[u8; 8]>::try_from(components.next()??).ok()?;
        let token = Token(i64::from_be_bytes(token));
        let mut key = Vec::new();
        for _ in 0..self.partition_columns {
            let part = components.next()??;
            if self.partition_columns == 1 {
                key = part.to_vec();
                continue;
            }
            key.extend_from_slice(&u16::try_from(part.len()).ok()?.to_be_bytes());
            key.extend_from_slice(part);
            key.push(0);
        }
        if codec::token_of(&key) != token {
            return None;
        }
        let mut row = Vec::new();
        for component in components {
            push_component(&mut row, Some(component?));
        }
        Some(RowName { token, key, clustering: row })
    }
}
