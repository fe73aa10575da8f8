//! Rows of one partition version, sorted: nothing, one row, or blocks of rows.

use std::cmp::Ordering;

use data::{BoundRef, ClusteringComparator, RowRef};

/// Rows per block; an insert moves at most this many entries.
const BLOCK_ROWS_MAX: usize = 64;

/// One row: length of the clustering, clustering and packed row in one allocation.
#[derive(Clone, Debug)]
pub(crate) struct Entry(Box<[u8]>);

/// Stands for a length of four more bytes.
const LONG: u8 = 0xff;

impl Entry {
    #[inline]
    pub(crate) fn new(clustering: &[u8], row: RowRef<'_>) -> Entry {
        let row = row.bytes();
        let short = u8::try_from(clustering.len()).ok().filter(|length| *length != LONG);
        let head = if short.is_some() { 1 } else { 5 };
        let mut bytes = Vec::with_capacity(head + clustering.len() + row.len());
        bytes.push(short.unwrap_or(LONG));
        if short.is_none() {
            let length = u32::try_from(clustering.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        bytes.extend_from_slice(clustering);
        bytes.extend_from_slice(row);
        Entry(bytes.into_boxed_slice())
    }

    #[inline(always)]
    fn split(&self) -> (&[u8], &[u8]) {
        let (length, rest) = match &*self.0 {
            [LONG, rest @ ..] => match rest.split_first_chunk() {
                Some((length, rest)) => (u32::from_le_bytes(*length) as usize, rest),
                None => (0, rest),
            },
            [length, rest @ ..] => (usize::from(*length), rest),
            [] => (0, &[] as &[u8]),
        };
        rest.split_at_checked(length).unwrap_or((&[], &[]))
    }

    #[inline(always)]
    pub(crate) fn clustering(&self) -> &[u8] {
        self.split().0
    }

    /// Clustering and row.
    #[inline(always)]
    pub(crate) fn parts(&self) -> (&[u8], RowRef<'_>) {
        let (clustering, row) = self.split();
        (clustering, RowRef::trusted(row))
    }

    pub(crate) fn row(&self) -> RowRef<'_> {
        RowRef::trusted(self.split().1)
    }

    /// Memory it accounts for.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.len() + size_of::<Entry>() + 16
    }
}

/// Place of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    block: usize,
    index: usize,
}

impl Place {
    /// Of the first row.
    pub(crate) const FIRST: Place = Place { block: 0, index: 0 };
}

/// Sorted rows.
#[derive(Clone, Debug, Default)]
pub(crate) enum Rows {
    #[default]
    None,
    One(Entry),
    Blocks(Vec<Vec<Entry>>),
}

impl Rows {
    /// Loads the beginning of the first row.
    #[inline]
    pub(crate) fn touch(&self) -> u8 {
        let first = match self {
            Rows::None => None,
            Rows::One(entry) => Some(entry),
            Rows::Blocks(blocks) => blocks.first().and_then(|b| b.first()),
        };
        let bytes = first.map_or(&[] as &[u8], |entry| &entry.0);
        // One byte of each line of a processor's cache.
        bytes.iter().step_by(64).take(8).fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    pub(crate) fn get(&self, place: Place) -> Option<&Entry> {
        match self {
            Rows::None => None,
            Rows::One(entry) => (place == Place { block: 0, index: 0 }).then_some(entry),
            Rows::Blocks(blocks) => blocks.get(place.block)?.get(place.index),
        }
    }

    pub(crate) fn replace(&mut self, place: Place, new: Entry) {
        match self {
            Rows::None => {}
            Rows::One(entry) => *entry = new,
            Rows::Blocks(blocks) => {
                if let Some(entry) =
                    blocks.get_mut(place.block).and_then(|b| b.get_mut(place.index))
                {
                    *entry = new;
                }
            }
        }
    }

    /// First place for which `before` is false (rows for which it holds come first).
    fn partition_point(&self, before: impl Fn(&Entry) -> bool) -> Place {
        match self {
            Rows::None => Place { block: 0, index: 0 },
            Rows::One(entry) => Place { block: 0, index: usize::from(before(entry)) },
            Rows::Blocks(blocks) => {
                let block = blocks.partition_point(|b| b.last().is_some_and(&before));
                let index = blocks.get(block).map_or(0, |b| b.partition_point(&before));
                Place { block, index }
            }
        }
    }

    /// The row of that clustering, or where it belongs.
    pub(crate) fn find(
        &self,
        cmp: &ClusteringComparator,
        clustering: &[u8],
    ) -> Result<Place, Place> {
        // Time series append at the end: look there first.
        if let Rows::Blocks(blocks) = self
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

    /// Inserts at a place that `find` gave.
    pub(crate) fn insert(&mut self, place: Place, entry: Entry) {
        match self {
            Rows::None => *self = Rows::One(entry),
            Rows::One(_) => {
                let Rows::One(old) = std::mem::take(self) else { return };
                let mut block = Vec::with_capacity(4);
                block.push(old);
                block.insert(place.index.min(1), entry);
                *self = Rows::Blocks(vec![block]);
            }
            Rows::Blocks(blocks) => {
                let count = blocks.len();
                // Behind everything: fill the last block.
                let (block, index) = if place.block >= count {
                    (count.saturating_sub(1), usize::MAX)
                } else {
                    (place.block, place.index)
                };
                let Some(rows) = blocks.get_mut(block) else {
                    blocks.push(vec![entry]);
                    return;
                };
                let index = index.min(rows.len());
                if rows.len() < BLOCK_ROWS_MAX {
                    rows.insert(index, entry);
                } else if block + 1 == count && index == rows.len() {
                    blocks.push(vec![entry]);
                } else if block == 0 && index == 0 {
                    blocks.insert(0, vec![entry]);
                } else {
                    let mut upper = rows.split_off(BLOCK_ROWS_MAX / 2);
                    if index <= rows.len() {
                        rows.insert(index, entry);
                    } else {
                        upper.insert(index - rows.len(), entry);
                    }
                    blocks.insert(block + 1, upper);
                }
            }
        }
    }

    /// Puts a row behind all others.
    pub(crate) fn push(&mut self, entry: Entry) {
        let place = match self {
            Rows::None => Place { block: 0, index: 0 },
            Rows::One(_) => Place { block: 0, index: 1 },
            Rows::Blocks(blocks) => Place { block: blocks.len(), index: 0 },
        };
        self.insert(place, entry);
    }

    /// The last row.
    pub(crate) fn last(&self) -> Option<&Entry> {
        match self {
            Rows::None => None,
            Rows::One(entry) => Some(entry),
            Rows::Blocks(blocks) => blocks.last()?.last(),
        }
    }

    /// First row behind a bound.
    pub(crate) fn after_bound(&self, cmp: &ClusteringComparator, bound: BoundRef<'_>) -> Place {
        if bound == BoundRef::BOTTOM {
            return Place { block: 0, index: 0 };
        }
        self.partition_point(|e| cmp.compare_to_bound(e.clustering(), bound) == Ordering::Less)
    }

    /// The row before a place; `None` at the start.
    pub(crate) fn previous(&self, place: Place) -> Option<Place> {
        if let Some(index) = place.index.checked_sub(1) {
            return Some(Place { block: place.block, index });
        }
        let block = place.block.checked_sub(1)?;
        let Rows::Blocks(blocks) = self else { return None };
        Some(Place { block, index: blocks.get(block)?.len().checked_sub(1)? })
    }

    /// The row behind a row.
    pub(crate) fn next(&self, place: Place) -> Place {
        match self {
            Rows::Blocks(blocks)
                if blocks.get(place.block).is_some_and(|b| place.index + 1 >= b.len()) =>
            {
                Place { block: place.block + 1, index: 0 }
            }
            _ => Place { block: place.block, index: place.index + 1 },
        }
    }

    /// The rows of a place's block from there on, and the blocks behind.
    pub(crate) fn from(&self, place: Place) -> (&[Entry], &[Vec<Entry>]) {
        match self {
            Rows::None => (&[], &[]),
            Rows::One(entry) => match place == Place::FIRST {
                true => (std::slice::from_ref(entry), &[]),
                false => (&[], &[]),
            },
            Rows::Blocks(blocks) => {
                let block = blocks.get(place.block).and_then(|b| b.get(place.index..));
                let behind = blocks.get(place.block + 1..).unwrap_or(&[]);
                (block.unwrap_or(&[]), behind)
            }
        }
    }

    /// The row that is so many behind a row; `None`: there are not so many.
    pub(crate) fn behind(&self, place: Place, count: u64) -> Option<Place> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let Rows::Blocks(blocks) = self else {
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

    /// All rows in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let (one, blocks): (Option<&Entry>, &[Vec<Entry>]) = match self {
            Rows::None => (None, &[]),
            Rows::One(entry) => (Some(entry), &[]),
            Rows::Blocks(blocks) => (None, blocks),
        };
        one.into_iter().chain(blocks.iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_clusterings_of_every_length_apart_from_their_rows() {
        for length in (0..600).chain([65_540, 200_000]) {
            let clustering: Vec<u8> = (0..length).map(|i| (i % 253) as u8).collect();
            for row in [&b""[..], b"row", &[LONG; 9]] {
                let entry = Entry::new(&clustering, RowRef::trusted(row));
                assert_eq!((entry.clustering(), entry.row().bytes()), (&clustering[..], row));
                let overhead = if length < 255 { 1 } else { 5 };
                assert_eq!(entry.0.len(), length + row.len() + overhead);
            }
        }
    }
}
