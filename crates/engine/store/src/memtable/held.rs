//! Parts of a partition that a reader of a memtable holds.

use std::rc::Rc;

use data::{ClusteringComparator, DeletionTime, RangeTombstone, RangeTombstoneList, RowRef};
use smallvec::SmallVec;
use stdx::Token;

use super::partition::PartitionVersion;
use super::plain::Plain;
use super::view::RowsView;

/// Content of a partition, immutable as long as a reader holds it (INV-memtable-1).
#[derive(Clone, Debug)]
pub(crate) enum Partition {
    Plain(Token, Plain),
    Version(Rc<PartitionVersion>),
}

/// Versions of one partition, oldest first; usually one.
pub(crate) type Held = SmallVec<[Partition; 1]>;

impl Partition {
    #[inline]
    pub(crate) fn token(&self) -> Token {
        match self {
            Partition::Plain(token, _) => *token,
            Partition::Version(version) => version.token,
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Partition::Plain(_, plain) => plain.key(),
            Partition::Version(version) => &version.key,
        }
    }

    #[inline]
    pub(crate) fn deletion(&self) -> DeletionTime {
        match self {
            Partition::Plain(..) => DeletionTime::LIVE,
            Partition::Version(version) => version.deletion,
        }
    }

    #[inline]
    pub(crate) fn static_row(&self) -> Option<RowRef<'_>> {
        match self {
            Partition::Plain(..) => None,
            Partition::Version(version) => version.static_row(),
        }
    }

    #[inline(always)]
    pub(crate) fn rows(&self) -> RowsView<'_> {
        match self {
            Partition::Plain(_, plain) => RowsView::One(plain.entry()),
            Partition::Version(version) => version.rows.view(),
        }
    }

    /// Its range tombstones, if it may have any.
    #[inline]
    pub(super) fn tombstones(&self) -> Option<&RangeTombstoneList> {
        match self {
            Partition::Plain(..) => None,
            Partition::Version(version) => Some(&version.tombstones),
        }
    }

    /// Its range tombstone of a place.
    #[inline]
    pub(super) fn range(&self, place: usize) -> Option<&RangeTombstone> {
        self.tombstones()?.get(place)
    }

    /// Returns true if it has range tombstones.
    #[inline]
    pub(super) fn has_ranges(&self) -> bool {
        self.tombstones().is_some_and(|list| !list.is_empty())
    }

    /// The deletion by ranges of one clustering.
    pub(crate) fn covering(&self, order: &ClusteringComparator, clustering: &[u8]) -> DeletionTime {
        let tombstones = self.tombstones();
        tombstones.map_or(DeletionTime::LIVE, |t| t.covering(order, clustering))
    }

    /// Prefetches the data that a scan reads first: the key and the first row.
    #[inline]
    pub(super) fn prefetch(&self) {
        match self {
            Partition::Plain(_, plain) => plain.prefetch(),
            Partition::Version(version) => {
                std::hint::black_box(version.touch());
            }
        }
    }
}

impl From<Rc<PartitionVersion>> for Partition {
    fn from(version: Rc<PartitionVersion>) -> Partition {
        Partition::Version(version)
    }
}
