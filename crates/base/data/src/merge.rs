//! Merging of rows: last write wins, deletions shadow, dropped columns vanish.
//!
//! Source of the rules: Cassandra `Row.Merger`, `ComplexColumnData`, `Cells.resolveRegular`,
//! `BTreeRow.purge`. One difference without effect on readers: a single row is normalised too (its
//! own deletion removes its own older cells), so that merging is idempotent. Counters are the exception:
//! their cells are merged, not chosen ([`crate::counter`]).

use std::cmp::Ordering;

use smallvec::SmallVec;
use stdx::{ColumnId, DeletionSeconds, TimestampMicros};

use crate::counter;
use crate::deletion::{DeletionTime, Liveness};
use crate::row::{CellRef, ColumnRef, Columns, ComplexCells, ComplexRef, RowBuilder, RowRef};
use crate::shape::TableShape;

/// Policy of a merge for tombstones and expired data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Everything, tombstones and expired cells included.
    All,
    /// Data visible to a reader at `now`: live liveness and live cells.
    Live {
        /// The reader's clock.
        now: DeletionSeconds,
    },
    /// Compaction: tombstones that hide nothing any more are purged, expired cells become
    /// tombstones.
    Purge(Purge),
}

/// Condition under which compaction may purge a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The clock of TTLs.
    pub now: DeletionSeconds,
    /// Only tombstones made before this (now minus gc_grace_seconds).
    pub gc_before: DeletionSeconds,
    /// Only tombstones below this timestamp: the smallest one in sources that are not part of the
    /// compaction and may have the partition. `TimestampMicros(i64::MAX)` = there are none.
    pub timestamp_below: TimestampMicros,
}

impl Purge {
    /// Returns true if a tombstone may be purged.
    pub fn drops(&self, timestamp: TimestampMicros, local: DeletionSeconds) -> bool {
        local < self.gc_before && timestamp < self.timestamp_below
    }

    /// Returns true if a deletion may be purged; false for "not deleted".
    pub fn drops_deletion(&self, deletion: &DeletionTime) -> bool {
        !deletion.is_live() && self.drops(deletion.timestamp, deletion.local)
    }
}

/// Where the merged row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Nothing is left of it.
    Nothing,
    /// The source of that index, unchanged. With [`Keep::Live`] it may still show deletions of
    /// complex columns, which have been found to hide none of its cells.
    Source(usize),
    /// It was appended to the output buffer.
    Built,
}

/// Result of [`merge_rows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Where the merged row is.
    pub row: Merged,
    /// Tombstones and expired cells met (after merging), for the tombstone limits.
    pub tombstones: u32,
}

/// Applies `keep` to one cell; `None`: the cell is dropped.
fn keep_cell<'a>(cell: CellRef<'a>, keep: &Keep, tombstones: &mut u32) -> Option<CellRef<'a>> {
    match keep {
        Keep::All => Some(cell),
        Keep::Live { now } => {
            if cell.is_live(*now) {
                return Some(cell);
            }
            *tombstones = tombstones.saturating_add(1);
            None
        }
        Keep::Purge(purge) => {
            if cell.is_live(purge.now) {
                return Some(cell);
            }
            if purge.drops(cell.timestamp, cell.local) {
                return None;
            }
            if !cell.is_expiring() {
                return Some(cell);
            }
            // An expired cell is a tombstone made when it was written; Cassandra computes its
            // deletion time back from the expiry (`AbstractCell.purge`).
            let made = DeletionSeconds(cell.local.0.saturating_sub(i64::from(cell.ttl.0)));
            if purge.drops(cell.timestamp, made) {
                return None;
            }
            Some(CellRef::tombstone(cell.timestamp, made))
        }
    }
}

/// True when a lone row needs no change under these rules.
fn is_untouched(shape: &TableShape, row: RowRef<'_>, active: &DeletionTime, keep: &Keep) -> bool {
    let (liveness, deletion, columns) = row.parts();
    if !deletion.is_live() {
        return false;
    }
    if !liveness.is_empty() {
        if active.deletes(liveness.timestamp) {
            return false;
        }
        match keep {
            Keep::All => {}
            Keep::Live { now } | Keep::Purge(Purge { now, .. }) => {
                if !liveness.is_live(*now) {
                    return false;
                }
            }
        }
    }
    let (filters, active_live) = (shape.has_filters(), active.is_live());
    let cell_stays = |id: ColumnId, cell: &CellRef<'_>| {
        (active_live || !active.deletes(cell.timestamp))
            && match keep {
                Keep::All => true,
                Keep::Live { now } | Keep::Purge(Purge { now, .. }) => cell.is_live(*now),
            }
            && (!filters || shape.is_visible(id, cell.timestamp))
    };
    let mut any = !liveness.is_empty();
    for (id, column) in columns {
        match column {
            ColumnRef::Simple(cell) => {
                any = true;
                if !cell_stays(id, &cell) {
                    return false;
                }
            }
            ColumnRef::Complex(complex) => {
                if !complex.deletion.is_live() {
                    let stays = match keep {
                        Keep::All => {
                            any = true;
                            complex.deletion.supersedes(active)
                                && (!filters || shape.is_visible(id, complex.deletion.timestamp))
                        }
                        Keep::Live { .. } => true,
                        Keep::Purge(_) => false,
                    };
                    if !stays {
                        return false;
                    }
                }
                let mut count = 0_usize;
                for (_, cell) in complex.cells() {
                    count += 1;
                    if complex.deletion.deletes(cell.timestamp) || !cell_stays(id, &cell) {
                        return false;
                    }
                }
                any |= count > 0;
            }
        }
    }
    any
}

struct Lane<'a> {
    columns: Columns<'a>,
    head: Option<(ColumnId, ColumnRef<'a>)>,
}

struct PathLane<'a> {
    cells: ComplexCells<'a>,
    head: Option<(&'a [u8], CellRef<'a>)>,
}

/// Merges versions of one row.
///
/// `active` is the deletion that covers the row from outside (partition or range). When the result
/// is one of the sources unchanged, nothing is written and its index returned; else the row is
/// appended to `out`. For a static row the same function serves.
#[inline]
pub fn merge_rows(
    shape: &TableShape,
    sources: &[RowRef<'_>],
    active: DeletionTime,
    keep: Keep,
    out: &mut Vec<u8>,
) -> Outcome {
    if let [row] = sources
        && ((active.is_live() && !shape.has_filters() && row.is_plain())
            || is_untouched(shape, *row, &active, &keep))
    {
        return Outcome { row: Merged::Source(0), tombstones: 0 };
    }
    if active.is_live()
        && sources.len() > 1
        && let Some(newest) = newest_of_usual(shape, sources)
    {
        return Outcome { row: Merged::Source(newest), tombstones: 0 };
    }
    merge_versions(shape, sources, active, keep, out)
}

/// Finds the newest of several versions if it hides the others whole. For that each version must be
/// live without a TTL and have the same columns, each with one live cell of the version's own
/// timestamp. `None`: they do not.
fn newest_of_usual(shape: &TableShape, sources: &[RowRef<'_>]) -> Option<usize> {
    if shape.has_filters() || shape.has_counters() {
        return None;
    }
    let mut newest = 0;
    let (mut timestamp, mut cells) = sources.first()?.usual_cells()?;
    for (index, row) in sources.iter().enumerate().skip(1) {
        let (of_row, cells_of_row) = row.usual_cells()?;
        if of_row == timestamp || !cells.clone().has_columns_of(cells_of_row.clone()) {
            return None;
        }
        if of_row > timestamp {
            (newest, timestamp, cells) = (index, of_row, cells_of_row);
        }
    }
    Some(newest)
}

fn merge_versions(
    shape: &TableShape,
    sources: &[RowRef<'_>],
    active: DeletionTime,
    keep: Keep,
    out: &mut Vec<u8>,
) -> Outcome {
    let mut tombstones = 0_u32;
    let mut liveness = Liveness::NONE;
    let mut deletion = DeletionTime::LIVE;
    let mut base = TimestampMicros(0);
    let mut lanes: SmallVec<[Lane<'_>; 4]> = SmallVec::new();
    for row in sources {
        let (row_liveness, row_deletion, mut columns) = row.parts();
        base = row.base_timestamp();
        if row_liveness.supersedes(&liveness) {
            liveness = row_liveness;
        }
        deletion = deletion.max(row_deletion);
        let head = columns.next();
        lanes.push(Lane { columns, head });
    }
    let mut active = active;
    if deletion.supersedes(&active) {
        active = deletion;
    } else {
        deletion = DeletionTime::LIVE;
    }
    if active.deletes(liveness.timestamp) {
        liveness = Liveness::NONE;
    }
    let row_was_deleted = !deletion.is_live();
    let liveness_was_dead = keep_times(&keep, &mut liveness, &mut deletion);
    let start = out.len();
    let mut builder = RowBuilder::new(out, liveness, deletion, base);
    if shape.has_counters() {
        merge_counters(shape, &mut lanes, &active, &keep, &mut builder, &mut tombstones);
    } else {
        merge_columns(shape, &mut lanes, &active, &keep, &mut builder, &mut tombstones);
    }
    let empty = builder.is_empty();
    builder.finish();
    if empty {
        out.truncate(start);
        // Cassandra counts a row that is only a deletion once.
        if row_was_deleted && liveness_was_dead && tombstones == 0 {
            tombstones = 1;
        }
        return Outcome { row: Merged::Nothing, tombstones };
    }
    Outcome { row: Merged::Built, tombstones }
}

/// Applies `keep` to the liveness and the deletion of a row. Returns true if a reader finds the
/// liveness dead.
#[inline]
fn keep_times(keep: &Keep, liveness: &mut Liveness, deletion: &mut DeletionTime) -> bool {
    match keep {
        Keep::All => false,
        Keep::Live { now } => {
            *deletion = DeletionTime::LIVE;
            let dead = !liveness.is_live(*now);
            if dead {
                *liveness = Liveness::NONE;
            }
            dead
        }
        Keep::Purge(purge) => {
            if purge.drops_deletion(deletion) {
                *deletion = DeletionTime::LIVE;
            }
            if !liveness.is_live(purge.now) && purge.drops(liveness.timestamp, liveness.expires_at)
            {
                *liveness = Liveness::NONE;
            }
            false
        }
    }
}

fn merge_columns(
    shape: &TableShape,
    lanes: &mut [Lane<'_>],
    active: &DeletionTime,
    keep: &Keep,
    builder: &mut RowBuilder<'_>,
    tombstones: &mut u32,
) {
    while let Some(id) = lanes.iter().filter_map(|l| l.head.as_ref().map(|h| h.0)).min() {
        let mut winner: Option<CellRef<'_>> = None;
        let mut complexes: SmallVec<[ComplexRef<'_>; 4]> = SmallVec::new();
        for lane in lanes.iter_mut() {
            let Some((lane_id, column)) = lane.head else { continue };
            if lane_id != id {
                continue;
            }
            lane.head = lane.columns.next();
            match column {
                ColumnRef::Simple(cell) => {
                    if active.deletes(cell.timestamp)
                        || (shape.has_filters() && !shape.is_visible(id, cell.timestamp))
                    {
                        continue;
                    }
                    winner = match winner {
                        Some(w) if cell.reconcile(&w) != Ordering::Greater => Some(w),
                        _ => Some(cell),
                    };
                }
                ColumnRef::Complex(complex) => complexes.push(complex),
            }
        }
        if let Some(cell) = winner.and_then(|cell| keep_cell(cell, keep, tombstones)) {
            builder.cell(id, &cell);
        } else if !complexes.is_empty() {
            merge_complex(shape, id, &complexes, active, keep, builder, tombstones);
        }
    }
}

/// Like [`merge_columns`], for a table with counters, which has columns of one cell only. Deleted
/// versions are dropped before the others are merged (Cassandra's `Row.Merger`).
#[cold]
fn merge_counters(
    shape: &TableShape,
    lanes: &mut [Lane<'_>],
    active: &DeletionTime,
    keep: &Keep,
    builder: &mut RowBuilder<'_>,
    tombstones: &mut u32,
) {
    while let Some(id) = lanes.iter().filter_map(|l| l.head.as_ref().map(|h| h.0)).min() {
        let mut cells: SmallVec<[CellRef<'_>; 4]> = SmallVec::new();
        for lane in lanes.iter_mut() {
            let Some((lane_id, column)) = lane.head else { continue };
            if lane_id != id {
                continue;
            }
            lane.head = lane.columns.next();
            if let ColumnRef::Simple(cell) = column
                && !active.deletes(cell.timestamp)
                && (!shape.has_filters() || shape.is_visible(id, cell.timestamp))
            {
                cells.push(cell);
            }
        }
        let mut scratch = Vec::new();
        let merged = counter::merge_cells(&cells, &mut scratch);
        if let Some(cell) = merged.and_then(|cell| keep_cell(cell, keep, tombstones)) {
            builder.cell(id, &cell);
        }
    }
}

/// The first path that a lane stands at.
#[inline]
fn first_path<'a>(shape: &TableShape, id: ColumnId, lanes: &[PathLane<'a>]) -> Option<&'a [u8]> {
    let mut first: Option<&[u8]> = None;
    for lane in lanes {
        if let Some((path, _)) = lane.head
            && first.is_none_or(|f| shape.compare_paths(id, path, f) == Ordering::Less)
        {
            first = Some(path);
        }
    }
    first
}

fn merge_complex(
    shape: &TableShape,
    id: ColumnId,
    complexes: &[ComplexRef<'_>],
    active: &DeletionTime,
    keep: &Keep,
    builder: &mut RowBuilder<'_>,
    tombstones: &mut u32,
) {
    let filters = shape.has_filters();
    let mut deletion = DeletionTime::LIVE;
    let mut lanes: SmallVec<[PathLane<'_>; 4]> = SmallVec::new();
    for complex in complexes {
        if !filters || shape.is_visible(id, complex.deletion.timestamp) {
            deletion = deletion.max(complex.deletion);
        }
        let mut cells = complex.cells();
        let head = cells.next();
        lanes.push(PathLane { cells, head });
    }
    let mut active = *active;
    if deletion.supersedes(&active) {
        active = deletion;
    } else {
        deletion = DeletionTime::LIVE;
    }
    match keep {
        Keep::All => {}
        Keep::Live { .. } => deletion = DeletionTime::LIVE,
        Keep::Purge(purge) => {
            if purge.drops_deletion(&deletion) {
                deletion = DeletionTime::LIVE;
            }
        }
    }
    builder.begin_complex(id, deletion);
    let mut count = 0_usize;
    while let Some(path) = first_path(shape, id, &lanes) {
        let mut winner: Option<CellRef<'_>> = None;
        for lane in &mut lanes {
            let Some((lane_path, cell)) = lane.head else { continue };
            if shape.compare_paths(id, lane_path, path) != Ordering::Equal {
                continue;
            }
            lane.head = lane.cells.next();
            if active.deletes(cell.timestamp) || (filters && !shape.is_visible(id, cell.timestamp))
            {
                continue;
            }
            winner = match winner {
                Some(w) if cell.reconcile(&w) != Ordering::Greater => Some(w),
                _ => Some(cell),
            };
        }
        if let Some(cell) = winner.and_then(|cell| keep_cell(cell, keep, tombstones)) {
            builder.complex_cell(path, &cell);
            count += 1;
        }
    }
    if count == 0 && deletion.is_live() {
        builder.cancel_complex();
    } else {
        builder.end_complex();
    }
}
