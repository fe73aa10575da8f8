//! Partitions, rows and cells that have much, noted while a file is written.
//!
//! Sizes are those in Data, uncompressed. What is kept is bounded: the largest [`LARGE_MAX`] of each kind, and
//! [`KEPT_BYTES_MAX`] of their keys; all are counted.

use data::{ColumnRef, RowRef};
use stdx::{ColumnId, DeletionSeconds};

/// Limit of reported items per kind and file.
pub const LARGE_MAX: usize = 100;
/// Bytes of keys that are kept of one kind.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// An element takes at least its flags and the length of its path.
const ELEMENT_BYTES_MIN: u64 = 2;
/// Overhead that Cassandra counts for a collection beside its elements: the times of its deletion,
/// even without one.
const COLLECTION_BYTES: u64 = 12;
/// Overhead that Cassandra counts for an element beside path and value: timestamp, TTL, expiry.
const ELEMENT_BYTES: u64 = 20;

/// Limits above which partitions, rows and cells of a file are reported; `u64::MAX`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeLimits {
    /// Bytes of a partition.
    pub bytes: u64,
    /// Tombstones of a partition.
    pub tombstones: u64,
    /// Rows of a partition, the static one not among them.
    pub rows: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Bytes of a cell, or of all cells of a collection.
    pub cell_bytes: u64,
    /// Elements of a collection.
    pub elements: u64,
    /// Bytes of the live elements of a collection, as Cassandra counts them (`ComplexColumnData.dataSize`).
    pub collection_bytes: u64,
    /// Live elements of a collection.
    pub collection_items: u64,
    /// When cells count as expired, for the count of dead rows and for live elements.
    pub now: DeletionSeconds,
}

impl Default for LargeLimits {
    fn default() -> LargeLimits {
        LargeLimits {
            bytes: u64::MAX,
            tombstones: u64::MAX,
            rows: u64::MAX,
            row_bytes: u64::MAX,
            cell_bytes: u64::MAX,
            elements: u64::MAX,
            collection_bytes: u64::MAX,
            collection_items: u64::MAX,
            now: DeletionSeconds(0),
        }
    }
}

impl LargeLimits {
    /// Returns the largest size of a row that is certain to have nothing to report.
    pub(super) fn row_least(&self) -> u64 {
        let elements = self.elements.min(self.collection_items);
        let elements = elements.saturating_mul(ELEMENT_BYTES_MIN);
        // An element counts at most its bytes plus ELEMENT_BYTES, and it has some bytes.
        let most = 1 + ELEMENT_BYTES / ELEMENT_BYTES_MIN;
        let collection = match self.collection_bytes {
            u64::MAX => u64::MAX,
            bytes => bytes.saturating_sub(COLLECTION_BYTES) / most,
        };
        self.row_bytes.min(self.cell_bytes).min(elements).min(collection)
    }

    fn has_of_collections(&self) -> bool {
        self.collection_bytes.min(self.collection_items) < u64::MAX
    }
}

/// A partition with much in one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargePartition {
    /// Its key.
    pub key: Vec<u8>,
    /// Its bytes.
    pub bytes: u64,
    /// Its tombstones.
    pub tombstones: u64,
    /// Its rows, the static one not among them.
    pub rows: u64,
    /// Range deletions that begin in it.
    pub range_tombstones: u64,
    /// Rows with deletions and nothing live.
    pub dead_rows: u64,
}

/// A row with much in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeRow {
    /// The key of its partition.
    pub key: Vec<u8>,
    /// Its serialised clustering; `None`: it is the static row.
    pub clustering: Option<Vec<u8>>,
    /// Its bytes.
    pub bytes: u64,
}

/// A cell, or a collection, with much in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeCell {
    /// Where it is, as in [`LargeRow`].
    pub key: Vec<u8>,
    /// See [`LargeRow::clustering`].
    pub clustering: Option<Vec<u8>>,
    /// Its column.
    pub column: ColumnId,
    /// Bytes of values and paths.
    pub bytes: u64,
    /// Elements of a collection that is not frozen; else 0.
    pub elements: u64,
}

/// Large partitions, rows, cells and collections of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargeData {
    /// Partitions above a limit.
    pub partitions: Vec<LargePartition>,
    /// All of them.
    pub partition_count: u64,
    /// Rows above the limit.
    pub rows: Vec<LargeRow>,
    /// All of them.
    pub row_count: u64,
    /// Cells and collections above a limit.
    pub cells: Vec<LargeCell>,
    /// All of them.
    pub cell_count: u64,
    /// Those of them that have more bytes than the limit.
    pub cells_by_bytes: u64,
    /// Those of them that have more elements than the limit.
    pub cells_by_elements: u64,
    /// Collections, and values of user types, whose live elements are above a limit of their own; bytes and
    /// elements are those of the live ones.
    pub collections: Vec<LargeCell>,
    /// All of them.
    pub collection_count: u64,
}

impl LargeData {
    /// Returns true if no item exceeds a limit.
    pub fn is_empty(&self) -> bool {
        let below = self.row_count == 0 && self.cell_count == 0 && self.collection_count == 0;
        below && self.partition_count == 0
    }

    /// Counts a partition that is above a limit, and keeps it when it is one of the largest.
    pub fn partition(&mut self, partition: LargePartition) {
        self.partition_count = self.partition_count.saturating_add(1);
        keep(&mut self.partitions, partition, |p| p.bytes, |p| p.key.len());
    }

    /// Checks a row that is long enough to have something above a limit.
    #[cold]
    pub fn row(
        &mut self,
        limits: &LargeLimits,
        key: &[u8],
        clustering: Option<&[u8]>,
        row: RowRef<'_>,
        bytes: u64,
    ) {
        let place = || (key.to_vec(), clustering.map(<[u8]>::to_vec));
        let length = |c: &Option<Vec<u8>>| c.as_ref().map_or(0, Vec::len);
        if bytes > limits.row_bytes {
            let (key, clustering) = place();
            self.row_count = self.row_count.saturating_add(1);
            let row = LargeRow { key, clustering, bytes };
            keep(&mut self.rows, row, |r| r.bytes, |r| r.key.len() + length(&r.clustering));
        }
        for (column, content) in row.columns() {
            if limits.has_of_collections()
                && let ColumnRef::Complex(complex) = content
            {
                let live = complex.cells().filter(|(_, cell)| cell.is_live(limits.now));
                let (bytes, elements) = live.fold((0, 0), |(bytes, count), (path, cell)| {
                    (bytes + ELEMENT_BYTES + (path.len() + cell.value.len()) as u64, count + 1)
                });
                // One without live elements is none.
                let bytes = if elements == 0 { 0 } else { bytes + COLLECTION_BYTES };
                if bytes > limits.collection_bytes || elements > limits.collection_items {
                    let (key, clustering) = place();
                    self.collection_count = self.collection_count.saturating_add(1);
                    let found = LargeCell { key, clustering, column, bytes, elements };
                    let memory = |c: &LargeCell| c.key.len() + length(&c.clustering);
                    keep(&mut self.collections, found, |c| c.bytes, memory);
                }
            }
            let (bytes, elements) = match content {
                ColumnRef::Simple(cell) => (cell.value.len() as u64, 0),
                ColumnRef::Complex(complex) => {
                    complex.cells().fold((0, 0), |(bytes, elements), (path, cell)| {
                        (bytes + (path.len() + cell.value.len()) as u64, elements + 1)
                    })
                }
            };
            if bytes > limits.cell_bytes || elements > limits.elements {
                let (key, clustering) = place();
                self.cell_count = self.cell_count.saturating_add(1);
                self.cells_by_bytes += u64::from(bytes > limits.cell_bytes);
                self.cells_by_elements += u64::from(elements > limits.elements);
                let cell = LargeCell { key, clustering, column, bytes, elements };
                keep(&mut self.cells, cell, |c| c.bytes, |c| c.key.len() + length(&c.clustering));
            }
        }
    }
}

/// Keeps the largest. One that finds no room takes that of a smaller one.
fn keep<T>(kept: &mut Vec<T>, new: T, size: impl Fn(&T) -> u64, memory: impl Fn(&T) -> usize) {
    let used: usize = kept.iter().map(&memory).sum();
    if kept.len() < LARGE_MAX && used + memory(&new) <= KEPT_BYTES_MAX {
        kept.push(new);
        return;
    }
    let Some((at, least)) = kept.iter().enumerate().min_by_key(|(_, t)| size(t)) else { return };
    let fits = used - memory(least) + memory(&new) <= KEPT_BYTES_MAX;
    if size(&new) > size(least) && fits {
        kept.remove(at);
        kept.push(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_and_all_are_counted() {
        let mut data = LargeData::default();
        for n in 0..500_u64 {
            // In an order that is none of their sizes.
            let bytes = 1_000 + n * 7 % 500;
            data.partition(LargePartition { bytes, key: vec![0; 8], ..LargePartition::default() });
        }
        assert_eq!((data.partition_count, data.partitions.len()), (500, LARGE_MAX));
        assert!(data.partitions.iter().all(|p| p.bytes >= 1_400), "the largest hundred");

        let mut data = LargeData::default();
        for bytes in 0..100 {
            data.partition(LargePartition { bytes, key: vec![0; 60_000], ..<_>::default() });
        }
        assert_eq!((data.partition_count, data.partitions.len()), (100, 17));
        assert!(data.partitions.iter().all(|p| p.bytes >= 83), "within a mebibyte of keys");
    }

    #[test]
    fn rows_below_what_any_limit_needs_are_not_looked_at() {
        assert_eq!(LargeLimits::default().row_least(), u64::MAX);
        let limits = LargeLimits { row_bytes: 900, elements: 10, ..LargeLimits::default() };
        assert_eq!(limits.row_least(), 20);
        let limits = LargeLimits { cell_bytes: 5, ..limits };
        assert_eq!(limits.row_least(), 5);
        let limits = LargeLimits { collection_items: 3, ..LargeLimits::default() };
        assert_eq!(limits.row_least(), 6);
        // A collection with as many elements as possible, each with the least bytes.
        for bytes in [12, 13, 100, 10_000] {
            let limits = LargeLimits { collection_bytes: bytes, ..LargeLimits::default() };
            let elements = limits.row_least() / ELEMENT_BYTES_MIN;
            assert!(
                COLLECTION_BYTES + elements * (ELEMENT_BYTES + ELEMENT_BYTES_MIN) <= bytes.max(12)
            );
        }
    }
}
