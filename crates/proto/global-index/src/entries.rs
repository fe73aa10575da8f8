//! Entries of a base mutation, from the mutation alone.
//!
//! An entry row has two slots, which never hide each other. The *lasting* slot is the row's liveness: it stands for all
//! writes of the value without a TTL. Its timestamp is that of the write or the coordinator's clock, whichever is later.
//! The *expiring* slot is the cell `idx_expires`: it stands for all writes with a TTL. Its timestamp is the
//! moment of expiry, so of several writes the one that expires last wins, whatever their order.
//!
//! Holds INV-global-1 of the crate: a slot that a quorum acknowledged is live while any write that it stands for may be
//! visible.
//! A lasting slot has no expiry, so a later one hides it with the same effect. An expiring slot is replaced only by one
//! that expires later. With one slot for both, a short TTL would hide an older write without TTL, also
//! if the base write with the TTL was never sent.

use std::collections::BTreeMap;

use data::{
    CellRef, ColumnRef, DeletionTime, Liveness, MutationBuilder, MutationRef, RowBuilder, RowRef,
};
use stdx::{DeletionSeconds, TimestampMicros, Token, WallMicros};

use crate::definition::GlobalIndex;

/// Largest value that an index holds: it is a partition key.
pub const VALUE_BYTES_MAX: usize = data::mutation::KEY_BYTES_MAX;

/// Entries of one value, to be acknowledged before the base mutation is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryMutation {
    /// Token of the value.
    pub token: Token,
    /// The mutation of the entry table.
    pub bytes: Vec<u8>,
}

/// A value above [`VALUE_BYTES_MAX`]: the write must be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot index a value of {bytes} bytes (maximum {VALUE_BYTES_MAX})")]
pub struct ValueTooLong {
    /// Its size.
    pub bytes: usize,
}

/// One row of the entry table.
struct Entry {
    clustering: Vec<u8>,
    row: Vec<u8>,
}

/// The entries of a base mutation, one mutation for each value, ascending by value. `now` is the coordinator's clock.
///
/// # Errors
/// A value is too long to be indexed.
pub fn entries_of(
    index: &GlobalIndex,
    mutation: &MutationRef<'_>,
    now: WallMicros,
) -> Result<Vec<EntryMutation>, ValueTooLong> {
    let mut by_value: BTreeMap<Vec<u8>, Vec<Entry>> = BTreeMap::new();
    let token = codec::token_of(mutation.key);
    for (clustering, row) in mutation.rows() {
        let Some(ColumnRef::Simple(cell)) = row.column(index.column()) else { continue };
        if cell.is_tombstone() {
            continue;
        }
        if cell.value.len() > VALUE_BYTES_MAX {
            return Err(ValueTooLong { bytes: cell.value.len() });
        }
        let Some(clustering) = index.keys().entry_of(token, mutation.key, clustering) else {
            stdx::invariant::broken(format_args!("global index: key of another table"))
        };
        // Rows ascend by clustering, so the entries of one value do too.
        let entries = by_value.entry(index.entry_partition(cell.value)).or_default();
        entries.push(Entry { clustering, row: entry_row(index, &cell, now) });
    }
    let encode = |(value, entries): (Vec<u8>, Vec<Entry>)| {
        let mut bytes = Vec::new();
        let table = index.entry_table();
        let mut builder = MutationBuilder::new(&mut bytes, table.id, table.version, &value);
        builder.rows(entries.iter().map(|e| (e.clustering.as_slice(), RowRef::trusted(&e.row))));
        builder.finish();
        EntryMutation { token: codec::token_of(&value), bytes }
    };
    Ok(by_value.into_iter().map(encode).collect())
}

/// The row of an entry for one write of the value.
fn entry_row(index: &GlobalIndex, cell: &CellRef<'_>, now: WallMicros) -> Vec<u8> {
    let mut out = Vec::new();
    if !cell.is_expiring() {
        let liveness = Liveness::new(TimestampMicros(cell.timestamp.0.max(now.0)));
        RowBuilder::new(&mut out, liveness, DeletionTime::LIVE, liveness.timestamp).finish();
        return out;
    }
    let expiry = expiry_timestamp(cell.local);
    let millis = cell.local.0.saturating_mul(1_000).to_be_bytes();
    let mut row = RowBuilder::new(&mut out, Liveness::NONE, DeletionTime::LIVE, expiry);
    row.cell(index.expires_column(), &CellRef::expiring(expiry, cell.ttl, cell.local, &millis));
    row.finish();
    out
}

/// Timestamp of the expiring slot of a write that expires then.
pub(crate) fn expiry_timestamp(expires_at: DeletionSeconds) -> TimestampMicros {
    TimestampMicros(expires_at.0.saturating_mul(1_000_000))
}
