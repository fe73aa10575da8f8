//! Rows of one partition version, sorted: nothing, one row, or blocks of rows.

use super::entry::{Entry, EntryRef};
use super::view::{Place, RowsView};

/// Rows per block; an insert moves at most this many entries.
const BLOCK_ROWS_MAX: usize = 64;

/// Sorted rows.
#[derive(Clone, Debug, Default)]
pub(crate) enum Rows {
    #[default]
    None,
    One(Entry),
    Blocks(Vec<Vec<Entry>>),
}

impl Rows {
    /// To be read.
    #[inline(always)]
    pub(crate) fn view(&self) -> RowsView<'_> {
        match self {
            Rows::None => RowsView::None,
            Rows::One(entry) => RowsView::One(entry.view()),
            Rows::Blocks(blocks) => RowsView::Blocks(blocks),
        }
    }

    /// The last row.
    pub(crate) fn last(&self) -> Option<EntryRef<'_>> {
        self.view().last()
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

    /// Inserts at a position that `find` returned.
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
                // After all rows: fill the last block.
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

    /// Appends a row after all others.
    pub(crate) fn push(&mut self, entry: Entry) {
        let place = match self {
            Rows::None => Place { block: 0, index: 0 },
            Rows::One(_) => Place { block: 0, index: 1 },
            Rows::Blocks(blocks) => Place { block: blocks.len(), index: 0 },
        };
        self.insert(place, entry);
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
