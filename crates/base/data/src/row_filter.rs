//! A filter that is sent to where rows are stored.

use std::fmt::Debug;

use crate::row::RowRef;

/// Decides which partitions and rows of a read the caller needs. A source may leave the others out
/// early, or show them all the same: the caller filters again.
///
/// It crosses shards, so it holds nothing of the one that made it.
pub trait RowFilter: Debug + Send + Sync {
    /// Returns true if anything of the partition with this serialised key is wanted. `static_row`
    /// is live.
    fn keeps_partition(&self, key: &[u8], static_row: Option<RowRef<'_>>) -> bool;

    /// Returns true if a live row with this serialised clustering is wanted, in a wanted partition.
    fn keeps_row(&self, clustering: &[u8], row: RowRef<'_>) -> bool;
}
