//! Vectors of the rows of a memtable, in the order of their writes. A search compares all of them.
//!
//! A row that is overwritten keeps its old vector here too; the check of the row finds it out.

use std::sync::Arc;

use index_format::RowKey;

/// Vectors that are allocated together, so that none is moved when the list grows.
const PER_PART: usize = 1024;

/// A vector that a row was written with.
pub(crate) struct VectorEntry {
    pub(crate) row: Arc<RowKey>,
    pub(crate) vector: Box<[f32]>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct MemtableVectors {
    parts: Vec<Vec<VectorEntry>>,
    count: usize,
}

impl MemtableVectors {
    /// Adds a vector. Returns the bytes by which the list grew, those of the row's key not counted.
    pub(super) fn insert(&mut self, vector: Vec<f32>, row: Arc<RowKey>) -> usize {
        let bytes = size_of::<VectorEntry>() + size_of_val(vector.as_slice());
        let entry = VectorEntry { row, vector: vector.into() };
        match self.parts.last_mut() {
            Some(part) if part.len() < PER_PART => part.push(entry),
            _ => {
                let mut part = Vec::with_capacity(PER_PART);
                part.push(entry);
                self.parts.push(part);
            }
        }
        self.count += 1;
        bytes
    }

    /// Vectors.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The vectors of positions from `from` on that lie together. Empty: there is none.
    pub(crate) fn part(&self, from: usize) -> &[VectorEntry] {
        let part = self.parts.get(from / PER_PART).map_or(&[][..], Vec::as_slice);
        part.get(from % PER_PART..).unwrap_or_default()
    }

    /// Drops some vectors; false when there is nothing left.
    pub(super) fn drop_some(&mut self, count: usize) -> bool {
        let Some(last) = self.parts.last_mut() else { return false };
        last.truncate(last.len().saturating_sub(count));
        if last.is_empty() {
            self.parts.pop();
        }
        true
    }
}
