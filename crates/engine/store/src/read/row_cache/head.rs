//! The beginning of a partition, as the files have it.

use std::rc::Rc;

use data::{BoundBuf, BoundRef, DeletionTime, Item, RangeTombstoneRef, Slices, TableShape};
use stdx::{TimestampMicros, Token};

use crate::memtable::PartitionVersion;

/// Accounted for an entry beside its partition: its places in the cache.
const ENTRY_OVERHEAD: usize = 128;

/// Where a head ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// It is the whole partition.
    End,
    /// After its last row; no range deletion is open there.
    LastRow,
    /// The beginning of the partition does not fit within the bounds: reads use the files.
    Nothing,
}

/// The beginning of a partition, as the files have it.
#[derive(Debug)]
pub(crate) struct Head {
    pub(super) version: Rc<PartitionVersion>,
    pub(super) until: Until,
    pub(super) bytes: usize,
}

impl Head {
    pub(super) fn new(version: PartitionVersion, until: Until) -> Head {
        let bytes = version.memory_bytes() + ENTRY_OVERHEAD;
        Head { version: Rc::new(version), until, bytes }
    }
}

/// A head that is being read from files.
pub(super) struct Building {
    version: PartitionVersion,
    rows_left: u32,
    bytes_left: usize,
    /// The range deletion that is open.
    open: Option<(BoundBuf, DeletionTime)>,
    until: Option<Until>,
}

impl Building {
    pub(super) fn new(token: Token, key: &[u8], rows: u32, bytes: usize) -> Building {
        let version = PartitionVersion::new(token, key.into());
        let bytes_left = bytes.saturating_sub(version.memory_bytes() + ENTRY_OVERHEAD);
        Building { version, rows_left: rows, bytes_left, open: None, until: None }
    }

    /// Takes an item; false when the head is complete.
    pub(super) fn put(&mut self, shape: &TableShape, item: &Item<'_>) -> bool {
        let used = match item {
            Item::Partition { deletion, .. } => {
                self.version.deletion = *deletion;
                0
            }
            Item::Static(row) => self.version.put_static(*row),
            Item::Row { clustering, row } => {
                if self.open.is_none() && (self.rows_left == 0 || self.bytes_left == 0) {
                    return self.end();
                }
                if row.columns().next().is_some()
                    || row.liveness().timestamp != TimestampMicros::NONE
                {
                    self.rows_left = self.rows_left.saturating_sub(1);
                }
                self.version.put_row(clustering, *row)
            }
            Item::Marker(marker) => {
                let full = self.rows_left == 0 || self.bytes_left == 0;
                if self.open.is_none() && full {
                    return self.end();
                }
                let before = self.version.tombstones.heap_bytes();
                if let Some((start, deletion)) = self.open.take() {
                    let range = RangeTombstoneRef {
                        start: start.as_bound(),
                        end: marker.position,
                        deletion,
                    };
                    self.version.tombstones.add(shape.clustering(), range);
                }
                self.open = marker.open.map(|deletion| (BoundBuf::new(marker.position), deletion));
                self.version.tombstones.heap_bytes().saturating_sub(before)
            }
            Item::PartitionEnd => {
                self.until = Some(Until::End);
                return false;
            }
        };
        if used > self.bytes_left && self.open.is_some() {
            // A head ends nowhere inside a range deletion, and this one has no end in reach.
            self.until = Some(Until::Nothing);
            return false;
        }
        self.bytes_left = self.bytes_left.saturating_sub(used);
        true
    }

    /// Ends before an item that has no room.
    fn end(&mut self) -> bool {
        self.until = Some(match self.version.rows.last() {
            Some(_) => Until::LastRow,
            None => Until::Nothing,
        });
        false
    }

    pub(super) fn finish(self) -> Head {
        match self.until {
            Some(Until::Nothing) => Head::new(
                PartitionVersion::new(self.version.token, self.version.key),
                Until::Nothing,
            ),
            // Without an end the files have nothing of it.
            until => Head::new(self.version, until.unwrap_or(Until::End)),
        }
    }
}

/// Splits slices into the parts up to a row and after it.
pub(super) fn split(shape: &TableShape, slices: &Slices, last: &[u8]) -> (Slices, Slices) {
    let cmp = shape.clustering();
    let at = BoundRef { prefix: last, after: true };
    let (mut within, mut behind) = (Slices(Vec::new()), Slices(Vec::new()));
    for slice in &slices.0 {
        let mut upper = slice.clone();
        if cmp.compare_bounds(slice.start(), at).is_lt() {
            let mut lower = slice.clone();
            if cmp.compare_bounds(slice.end(), at).is_gt() {
                (lower.end, lower.end_after) = (last.to_vec(), true);
                (upper.start, upper.start_after) = (last.to_vec(), true);
            } else {
                upper.end.clone_from(&upper.start);
                upper.end_after = upper.start_after;
            }
            within.0.push(lower);
        }
        if !upper.is_empty(cmp) {
            behind.0.push(upper);
        }
    }
    (within, behind)
}
