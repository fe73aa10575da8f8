//! Rows of a partition as a reader sees them, whatever they lie in.

use std::cmp::Ordering;

use data::{BoundRef, ClusteringComparator, RowRef};

use super::entry::{Entry, EntryRef};

/// Place of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) block: usize,
    pub(super) index: usize,
}

impl Place {
    /// Position of the first row.
    pub(crate) const FIRST: Place = Place { block: 0, index: 0 };
}

/// Sorted rows.
#[derive(Clone, Copy)]
pub(crate) enum RowsView<'v> {
    None,
    One(EntryRef<'v>),
    Blocks(&'v [Vec<Entry>]),
}

impl<'v> RowsView<'v> {
    /// Loads the beginning of the first row.
    #[inline]
    pub(super) fn touch(self) -> u8 {
        self.get(Place::FIRST).map_or(0, EntryRef::touch)
    }

    #[inline(always)]
    pub(crate) fn get(self, place: Place) -> Option<EntryRef<'v>> {
        match self {
            RowsView::None => None,
            RowsView::One(entry) => (place == Place::FIRST).then_some(entry),
            RowsView::Blocks(blocks) => blocks.get(place.block)?.get(place.index).map(Entry::view),
        }
    }

    /// First position for which `before` is false (rows for which it holds are first).
    fn partition_point(self, before: impl Fn(EntryRef<'_>) -> bool) -> Place {
        match self {
            RowsView::None => Place::FIRST,
            RowsView::One(entry) => Place { block: 0, index: usize::from(before(entry)) },
            RowsView::Blocks(blocks) => {
                let before = |e: &Entry| before(e.view());
                let block = blocks.partition_point(|b| b.last().is_some_and(&before));
                let index = blocks.get(block).map_or(0, |b| b.partition_point(&before));
                Place { block, index }
            }
        }
    }

    /// The row of that clustering, or where it belongs.
    pub(crate) fn find(
        self,
        cmp: &ClusteringComparator,
        clustering: &[u8],
    ) -> Result<Place, Place> {
        // Time series append at the end: look there first.
        if let RowsView::Blocks(blocks) = self
            && let Some(last) = blocks.last().and_then(|b| b.last())
            && cmp.compare(last.clustering(), clustering) == Ordering::Less
        {
            return Err(Place { block: blocks.len(), index: 0 });
        }
        let place =
            self.partition_point(|e| cmp.compare(e.clustering(), clustering) == Ordering::Less);
        match self.get(place) {
            Some(e) if cmp.compare(e.clustering(), clustering) == Ordering::Equal => Ok(place),
            _ => Err(place),
        }
    }

    /// The last row.
    pub(crate) fn last(self) -> Option<EntryRef<'v>> {
        match self {
            RowsView::None => None,
            RowsView::One(entry) => Some(entry),
            RowsView::Blocks(blocks) => blocks.last()?.last().map(Entry::view),
        }
    }

    /// First row after a bound.
    pub(crate) fn after_bound(self, cmp: &ClusteringComparator, bound: BoundRef<'_>) -> Place {
        if bound == BoundRef::BOTTOM {
            return Place::FIRST;
        }
        self.partition_point(|e| cmp.compare_to_bound(e.clustering(), bound) == Ordering::Less)
    }

    /// The row before a position; `None` at the start.
    pub(crate) fn previous(self, place: Place) -> Option<Place> {
        if let Some(index) = place.index.checked_sub(1) {
            return Some(Place { block: place.block, index });
        }
        let block = place.block.checked_sub(1)?;
        let RowsView::Blocks(blocks) = self else { return None };
        Some(Place { block, index: blocks.get(block)?.len().checked_sub(1)? })
    }

    /// The row after a row.
    #[inline(always)]
    pub(crate) fn next(self, place: Place) -> Place {
        match self {
            RowsView::Blocks(blocks)
                if blocks.get(place.block).is_some_and(|b| place.index + 1 >= b.len()) =>
            {
                Place { block: place.block + 1, index: 0 }
            }
            _ => Place { block: place.block, index: place.index + 1 },
        }
    }

    /// Returns the row at a position and all rows after it.
    pub(crate) fn from(self, place: Place) -> RowsFrom<'v> {
        let (one, block, behind): (_, &[Entry], &[Vec<Entry>]) = match self {
            RowsView::None => (None, &[], &[]),
            RowsView::One(entry) => ((place == Place::FIRST).then_some(entry), &[], &[]),
            RowsView::Blocks(blocks) => {
                let block = blocks.get(place.block).and_then(|b| b.get(place.index..));
                let behind = blocks.get(place.block + 1..).unwrap_or(&[]);
                (None, block.unwrap_or(&[]), behind)
            }
        };
        RowsFrom { one, block: block.iter(), behind: behind.iter() }
    }

    /// The row `count` rows after a row; `None`: there are fewer.
    pub(crate) fn behind(self, place: Place, count: u64) -> Option<Place> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let RowsView::Blocks(blocks) = self else {
            return (count == 0).then_some(place).filter(|place| self.get(*place).is_some());
        };
        let (mut block, mut index) = (place.block, place.index.saturating_add(count));
        loop {
            let rows = blocks.get(block)?.len();
            if index < rows {
                return Some(Place { block, index });
            }
            index -= rows;
            block += 1;
        }
    }
}

/// Rows of a partition that follow, in order.
pub(crate) struct RowsFrom<'v> {
    one: Option<EntryRef<'v>>,
    block: std::slice::Iter<'v, Entry>,
    behind: std::slice::Iter<'v, Vec<Entry>>,
}

impl<'v> Iterator for RowsFrom<'v> {
    type Item = (&'v [u8], RowRef<'v>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.block.next() {
                return Some(entry.parts());
            }
            let Some(block) = self.behind.next() else {
                return self.one.take().map(EntryRef::parts);
            };
            self.block = block.iter();
        }
    }
}
