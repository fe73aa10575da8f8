//! The partitions of one file one after the other, with counts for each of them.

use std::sync::Arc;

use data::command::{KeyRange, RingBound};
use data::row::{CellRef, ColumnRef};
use data::{Advance, Cursor, DeletionTime, Item, Liveness, Marker, RowRef, Slices};
use stdx::{DeletionSeconds, Token};

use crate::sequential::SequentialReader;
use crate::{Result, SstableCursor, SstableReader};

/// Counts of one partition in one file, as Cassandra's `sstablepartitions` counts: without the
/// static row, a marker that closes one range tombstone and opens the next counts once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStats {
    /// Place on the ring.
    pub token: Token,
    /// Serialised key.
    pub key: Vec<u8>,
    /// Where the partition begins in (uncompressed) Data.
    pub offset: u64,
    /// Uncompressed bytes in Data.
    pub size: u64,
    /// The partition is not deleted as a whole.
    pub live: bool,
    /// Rows without the static one.
    pub rows: u64,
    /// Cells of these rows, tombstones among them.
    pub cells: u64,
    /// Rows with a deletion.
    pub row_tombstones: u64,
    /// Markers of range tombstones.
    pub range_tombstones: u64,
    /// Deletions of whole collections.
    pub complex_tombstones: u64,
    /// Cells that are tombstones.
    pub cell_tombstones: u64,
    /// Rows whose time to live is over.
    pub rows_expired: u64,
    /// Cells whose time to live is over and is not their row's.
    pub cells_expired: u64,
    /// All tombstones older than the limit, the partition's deletion included.
    pub droppable: u64,
}

impl PartitionStats {
    pub(super) fn new(token: Token, key: &[u8], offset: u64) -> PartitionStats {
        PartitionStats {
            token,
            key: key.to_vec(),
            offset,
            size: 0,
            live: true,
            rows: 0,
            cells: 0,
            row_tombstones: 0,
            range_tombstones: 0,
            complex_tombstones: 0,
            cell_tombstones: 0,
            rows_expired: 0,
            cells_expired: 0,
            droppable: 0,
        }
    }

    /// All tombstones and all that is expired, the partition's own deletion not.
    pub fn tombstones(&self) -> u64 {
        self.row_tombstones
            + self.range_tombstones
            + self.complex_tombstones
            + self.cell_tombstones
            + self.rows_expired
            + self.cells_expired
    }
}

/// The clocks that a scan counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanClock {
    /// When times to live are over.
    pub now: DeletionSeconds,
    /// Tombstones made before this count as droppable.
    pub gc_before: DeletionSeconds,
}

/// How closely a scan looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Keys, positions and sizes: rows are skipped.
    Sizes,
    /// Rows, cells and tombstones are counted.
    Rows,
}

/// A walk over partitions of one file. See the module.
pub struct PartitionScan {
    blocks: SequentialReader,
    cursor: SstableCursor,
    clock: ScanClock,
    detail: Detail,
    /// Met, and its end not known yet.
    current: Option<PartitionStats>,
}

impl PartitionScan {
    /// All partitions in the range.
    pub fn new(
        reader: &SstableReader,
        range: KeyRange,
        clock: ScanClock,
        detail: Detail,
    ) -> PartitionScan {
        PartitionScan {
            blocks: reader.sequential(),
            cursor: reader.range_cursor(0, range, Arc::new(Slices::all()), None),
            clock,
            detail,
            current: None,
        }
    }

    /// The next partition, in order of (token, key).
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub async fn next(&mut self) -> Result<Option<PartitionStats>> {
        loop {
            match self.cursor.advance()? {
                Advance::NeedBlock(request) => {
                    let chunk = self.blocks.load_block(request.block).await?;
                    self.cursor.feed(request.block, chunk);
                }
                Advance::End => {
                    // A scan of a range has also read the next partition's header.
                    let behind = self.cursor.partition_start();
                    let end = self.cursor.position();
                    return Ok(self.current.take().map(|mut done| {
                        let end = if behind > done.offset { behind } else { end };
                        done.size = end.saturating_sub(done.offset);
                        done
                    }));
                }
                Advance::Item => {
                    if let Some(done) = self.item() {
                        return Ok(Some(done));
                    }
                }
            }
        }
    }

    /// Uncompressed bytes passed so far.
    pub fn position(&self) -> u64 {
        self.cursor.position()
    }

    fn item(&mut self) -> Option<PartitionStats> {
        let clock = self.clock;
        match (self.cursor.item(), &mut self.current) {
            (Item::Partition { token, key, deletion }, _) => {
                let start = self.cursor.partition_start();
                let mut stats = PartitionStats::new(token, key, start);
                stats.live = deletion.is_live();
                stats.droppable += clock.droppable(&deletion);
                let before = self.current.replace(stats);
                if self.detail == Detail::Sizes {
                    self.cursor.skip_partition();
                }
                before.map(|mut done| {
                    done.size = start.saturating_sub(done.offset);
                    done
                })
            }
            (Item::Row { row, .. }, Some(stats)) => {
                stats.row(row, clock);
                None
            }
            (Item::Marker(marker), Some(stats)) => {
                stats.marker(&marker, clock);
                None
            }
            (Item::PartitionEnd, _) => {
                let end = self.cursor.position();
                self.current.take().map(|mut done| {
                    done.size = end.saturating_sub(done.offset);
                    done
                })
            }
            _ => None,
        }
    }
}

impl ScanClock {
    fn is_old(self, local: DeletionSeconds) -> u64 {
        u64::from(local < self.gc_before)
    }

    fn droppable(self, deletion: &DeletionTime) -> u64 {
        if deletion.is_live() { 0 } else { self.is_old(deletion.local) }
    }
}

impl PartitionStats {
    /// Adds another file's counts for the same partition.
    pub(super) fn sum(&mut self, other: &PartitionStats) {
        self.size += other.size;
        self.live &= other.live;
        self.rows += other.rows;
        self.cells += other.cells;
        self.row_tombstones += other.row_tombstones;
        self.range_tombstones += other.range_tombstones;
        self.complex_tombstones += other.complex_tombstones;
        self.cell_tombstones += other.cell_tombstones;
        self.rows_expired += other.rows_expired;
        self.cells_expired += other.cells_expired;
        self.droppable += other.droppable;
    }

    fn row(&mut self, row: RowRef<'_>, clock: ScanClock) {
        let (liveness, deletion, columns) = row.parts();
        self.rows += 1;
        self.row_tombstones += u64::from(!deletion.is_live());
        self.droppable += clock.droppable(&deletion);
        if liveness.is_expiring() && liveness.expires_at < clock.now {
            self.rows_expired += 1;
            self.droppable += clock.is_old(liveness.expires_at);
        }
        for (_, column) in columns {
            match column {
                ColumnRef::Simple(cell) => self.cell(&cell, &liveness, clock),
                ColumnRef::Complex(complex) => {
                    self.complex_tombstones += u64::from(!complex.deletion.is_live());
                    self.droppable += clock.droppable(&complex.deletion);
                    for (_, cell) in complex.cells() {
                        self.cell(&cell, &liveness, clock);
                    }
                }
            }
        }
    }

    fn cell(&mut self, cell: &CellRef<'_>, liveness: &Liveness, clock: ScanClock) {
        self.cells += 1;
        if cell.is_tombstone() {
            self.cell_tombstones += 1;
            self.droppable += clock.is_old(cell.local);
        }
        let of_its_own = liveness.is_empty() || cell.ttl != liveness.ttl;
        if cell.is_expiring() && of_its_own && !cell.is_live(clock.now) {
            self.cells_expired += 1;
            self.droppable += clock.is_old(cell.local);
        }
    }

    fn marker(&mut self, marker: &Marker<'_>, clock: ScanClock) {
        self.range_tombstones += 1;
        let deletion = marker.open.or(marker.close);
        self.droppable += deletion.map_or(0, |deletion| clock.droppable(&deletion));
    }
}

/// The range that holds one key only.
pub fn range_of_key(token: Token, key: &[u8]) -> KeyRange {
    KeyRange {
        start: RingBound::Key { token, key: key.to_vec(), after: false },
        end: RingBound::Key { token, key: key.to_vec(), after: true },
    }
}
