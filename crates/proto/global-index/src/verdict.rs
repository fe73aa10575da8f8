//! Check of an entry against the row that it names.

use std::cmp::Ordering;

use data::{CellRef, ColumnRef, DeletionTime, RowRef};
use stdx::{DeletionSeconds, TimestampMicros};

use crate::definition::GlobalIndex;
use crate::ghost::CLOCK_SKEW_MAX_MICROS;
use crate::page::Entry;

/// A row of the base table, merged from the versions of several replicas, tombstones included.
#[derive(Clone, Copy, Debug)]
pub struct BaseRow<'a> {
    /// Deletion of the partition or of a range that covers the row.
    pub covering: DeletionTime,
    /// The row. `None`: no replica has any version of it.
    pub row: Option<RowRef<'a>>,
}

impl BaseRow<'_> {
    /// Nothing of the row exists.
    pub const ABSENT: BaseRow<'static> = BaseRow { covering: DeletionTime::LIVE, row: None };
}

/// Outcome of the check of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The row has the value.
    Matches,
    /// The row does not have the value, and shadows every write that the entry's lasting slot stands for. The slot has
    /// this timestamp.
    ProvenGhost(TimestampMicros),
    /// The row does not have the value, but a write that the entry stands for may still arrive, by a hint or a repair; or
    /// the entry expires without help.
    Unproven,
}

/// Checks an entry of `value` against its row. `now` is the clock of TTLs of the statement.
pub fn judge(
    index: &GlobalIndex,
    value: &[u8],
    entry: &Entry,
    base: &BaseRow<'_>,
    now: DeletionSeconds,
) -> Verdict {
    let row_deletion = base.row.map_or(DeletionTime::LIVE, |row| row.deletion());
    let deletion = base.covering.max(row_deletion);
    let cell = match base.row.and_then(|row| row.column(index.column())) {
        Some(ColumnRef::Simple(cell)) if !deletion.deletes(cell.timestamp) => Some(cell),
        _ => None,
    };
    let has_value = |cell: &CellRef<'_>| {
        cell.is_live(now) && index.values().compare(cell.value, value) == Ordering::Equal
    };
    if cell.as_ref().is_some_and(has_value) {
        return Verdict::Matches;
    }
    match entry.lasting {
        Some(at) if is_deleted(&deletion, at) || cell.is_some_and(|cell| shadows(&cell, at)) => {
            Verdict::ProvenGhost(at)
        }
        _ => Verdict::Unproven,
    }
}

/// Returns true if a deletion shadows every write at or before a timestamp, and stays until those in flight arrived.
fn is_deleted(deletion: &DeletionTime, at: TimestampMicros) -> bool {
    deletion.deletes(at) && outlives(deletion.local, at)
}

/// Returns true if a cell wins over every cell without TTL that was written at or before a timestamp, and stays until
/// those in flight arrived. Of two cells of one timestamp a tombstone or an expiring one wins; between two others the
/// value decides, which proves nothing here.
fn shadows(cell: &CellRef<'_>, at: TimestampMicros) -> bool {
    if cell.is_tombstone() {
        return cell.timestamp >= at && outlives(cell.local, at);
    }
    if cell.is_expiring() {
        // After its expiry it counts as a tombstone of the moment at which it was written.
        let written = cell.local.0.saturating_sub(cell.ttl.0.into());
        return cell.timestamp >= at && outlives(DeletionSeconds(written), at);
    }
    cell.timestamp > at
}

/// Returns true if a tombstone made at `made` is kept longer than any write that had an entry by `at` is in flight. Both
/// live for the `gc_grace_seconds` of the table. A tombstone with a timestamp of the future may be older than the
/// writes that it shadows, and is purged before the last of them arrives.
fn outlives(made: DeletionSeconds, at: TimestampMicros) -> bool {
    made.0 >= at.0.saturating_sub(CLOCK_SKEW_MAX_MICROS).div_euclid(1_000_000)
}
