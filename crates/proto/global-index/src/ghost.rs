//! Deletion of ghosts.
//!
//! Holds INV-global-2 of the crate: a deletion of an entry hides only writes that the base row shadows, and no entry
//! written after it.
//!
//! The deletion has the timestamp of the entry's lasting slot, so it hides writes up to that timestamp. Each of them
//! is shadowed by what the verdict found, and a quorum of replicas holds that: [`GhostPolicy::Delete`] asks for it. An
//! entry written later has at least its coordinator's clock as timestamp, and the entry's timestamp lies before the
//! clock by more than clocks differ ([`CLOCK_SKEW_MAX_MICROS`]). So also a write with an old timestamp that follows the purge of
//! the base row's tombstone keeps its entry.

use data::{DeletionTime, Liveness, MutationBuilder, RowBuilder, RowRef};
use stdx::{TimestampMicros, WallMicros};

use crate::definition::GlobalIndex;
use crate::page::Entry;

/// Largest difference of two coordinators' clocks that keeps entries safe. An entry that is younger is not deleted.
pub const CLOCK_SKEW_MAX_MICROS: i64 = 60_000_000;

/// Permission of a read to delete the ghosts that it proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GhostPolicy {
    /// It read rows from a quorum of all replicas at least, and repaired those that differed before it goes on: what it
    /// read, every later quorum reads.
    Delete,
    /// It read fewer replicas, or repairs none.
    Keep,
}

/// Returns true if an entry whose lasting slot has this timestamp may be deleted now, once it is proven to be a ghost.
pub fn is_deletable(lasting: TimestampMicros, policy: GhostPolicy, now: WallMicros) -> bool {
    policy == GhostPolicy::Delete && lasting.0 < now.0.saturating_sub(CLOCK_SKEW_MAX_MICROS)
}

/// The mutation of the entry table that deletes the lasting slot of an entry of `value`.
pub fn delete_entry(
    index: &GlobalIndex,
    value: &[u8],
    entry: &Entry,
    lasting: TimestampMicros,
    now: WallMicros,
) -> Vec<u8> {
    let deletion = DeletionTime { timestamp: lasting, local: now.seconds() };
    let mut row = Vec::new();
    RowBuilder::new(&mut row, Liveness::NONE, deletion, lasting).finish();
    let mut bytes = Vec::new();
    let (table, key) = (index.entry_table(), index.entry_partition(value));
    let mut builder = MutationBuilder::new(&mut bytes, table.id, table.version, &key);
    builder.rows([(entry.clustering.as_slice(), RowRef::trusted(&row))].into_iter());
    builder.finish();
    bytes
}
