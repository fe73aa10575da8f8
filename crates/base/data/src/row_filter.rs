//! A filter that goes to where rows lie.

use std::fmt::Debug;

use crate::row::RowRef;

/// Which partitions and rows of a read somebody has a use for. Whoever reads may leave the others out early, or
/// show them all the same: the reader looks again.
///
/// It crosses shards, so it holds nothing of the one that made it.
pub trait RowFilter: Debug + Send + Sync {
    /// Whether anything of the partition with this serialised key is wanted. `static_row` is live.
    fn keeps_partition(&self, key: &[u8], static_row: Option<RowRef<'_>>) -> bool;

    /// Whether a live row with this serialised clustering is wanted, of a partition that is.
    fn keeps_row(&self, clustering: &[u8], row: RowRef<'_>) -> bool;
}
