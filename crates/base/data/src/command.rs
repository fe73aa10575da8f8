//! Read commands: the request to a replica, independent of CQL.

use std::sync::Arc;

use stdx::{ColumnId, DeletionSeconds, TableId, Token};

use crate::clustering::Slices;

/// Which partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partitions {
    /// One, by serialised key.
    Key(Vec<u8>),
    /// Those between two positions of the ring, in (token, key) order.
    Range(KeyRange),
}

/// A position on the ring relative to keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingBound {
    /// Before every key of this token (`after` false) or after every key of it.
    Token {
        /// The token.
        token: Token,
        /// After all of its keys.
        after: bool,
    },
    /// Just before (`after` false) or just after one key: used by paging.
    Key {
        /// The key's token.
        token: Token,
        /// Serialised key.
        key: Vec<u8>,
        /// After it.
        after: bool,
    },
}

/// A range of partitions; never wraps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Where it starts.
    pub start: RingBound,
    /// Where it ends.
    pub end: RingBound,
}

impl KeyRange {
    /// The whole ring.
    pub fn all() -> KeyRange {
        KeyRange {
            start: RingBound::Token { token: Token::MIN, after: false },
            end: RingBound::Token { token: Token::MAX, after: true },
        }
    }
}

/// Position inside its first partition where a paged read continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePosition {
    /// Serialised clustering of the last row looked at; the next row is after it in read order. It may be one that no
    /// row has.
    /// `None`: only the static row was returned so far.
    pub clustering: Option<Vec<u8>>,
    /// Rows of this partition returned so far (PER PARTITION LIMIT continues counting).
    pub rows_in_partition: u32,
}

impl ResumePosition {
    /// Returns true if the partition may still be shown for its static row alone: nothing of it has
    /// been returned. (Pages end between tombstones too.)
    pub fn shows_static(&self) -> bool {
        self.rows_in_partition == 0 && self.clustering.is_some()
    }
}

/// One read of one table.
#[derive(Clone, Debug)]
pub struct ReadCommand {
    /// The table.
    pub table: TableId,
    /// Which partitions.
    pub partitions: Partitions,
    /// Which rows of each.
    pub slices: Arc<Slices>,
    /// Rows in descending clustering order.
    pub reversed: bool,
    /// Columns that the reader needs (regular and static); `None` = all. Values shown of others may
    /// be outdated or missing; the set of rows does not depend on it.
    pub columns: Option<Arc<[ColumnId]>>,
    /// Clock of TTLs and tombstone counting.
    pub now: DeletionSeconds,
    /// The static row is wanted even when no row matches.
    pub wants_static: bool,
    /// Position where a paged read continues in the first partition.
    pub resume: Option<ResumePosition>,
    /// The read fills no caches, and does not search rows in any (`BYPASS CACHE`).
    pub bypass_cache: bool,
}

impl ReadCommand {
    /// All rows and columns of the partitions, in clustering order; a static row only where rows are.
    pub fn whole(table: TableId, partitions: Partitions, now: DeletionSeconds) -> ReadCommand {
        ReadCommand {
            table,
            partitions,
            slices: Arc::new(Slices::all()),
            reversed: false,
            columns: None,
            now,
            wants_static: false,
            resume: None,
            bypass_cache: false,
        }
    }
}
