//! Which clusterings a file can have, so that reads of others leave it out.
//! Source: `Slice.intersects`, `StatsMetadata.coveredClustering`.

use data::{BoundRef, ClusteringBuf, ClusteringComparator, Slices};
use sst_format::statistics::StatsMetadata;

/// The stretch from the smallest to the largest clustering of the rows and range deletions of one
/// file, in the order of the table. Kept as bounds: asking allocates nothing.
#[derive(Debug)]
pub(crate) struct Covered {
    /// Serialised prefix before which nothing lies; empty = unknown.
    low: Vec<u8>,
    /// Serialised prefix after which no clustering lies; empty = unknown.
    high: Vec<u8>,
    /// The file can have data that every read needs, whatever its clusterings.
    always: bool,
}

impl Covered {
    /// From Statistics.db. Deletions of whole partitions and static rows are needed whatever the
    /// clusterings are; statistics before `oa` do not tell the former from other tombstones.
    pub(crate) fn new(
        stats: &StatsMetadata,
        has_static: bool,
        order: &ClusteringComparator,
    ) -> Covered {
        let prefix = |values: &[Vec<u8>]| {
            let values = values.iter().take(order.len()).map(Vec::as_slice);
            ClusteringBuf::from_components(values).0
        };
        Covered {
            low: prefix(&stats.min_clustering),
            high: prefix(&stats.max_clustering),
            always: stats.has_partition_deletions || has_static || order.is_empty(),
        }
    }

    /// Returns true if a read of these slices needs the file. Both ends count as inside.
    #[inline]
    pub(crate) fn meets(&self, order: &ClusteringComparator, slices: &Slices) -> bool {
        if self.always || slices.is_all() {
            return true;
        }
        let low = BoundRef { prefix: &self.low, after: false };
        let high = BoundRef { prefix: &self.high, after: true };
        slices.0.iter().any(|slice| {
            order.compare_bounds(slice.start(), high).is_lt()
                && order.compare_bounds(slice.end(), low).is_gt()
        })
    }
}
