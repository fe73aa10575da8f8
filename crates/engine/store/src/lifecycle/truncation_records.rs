//! Which truncations are carried out on this shard, and which of their log records are still needed.
//!
//! A truncation removes what was written before it, so it must never run twice: the second run would remove
//! rows that were acknowledged after the first. The record in the commit log orders it with the writes of its
//! shard. The log keeps the record until the removal is complete and the node has recorded the truncation
//! elsewhere.
//!
//! INV-truncate-1: a truncation for which [`Store::is_truncated`] answers false has no acknowledged write of
//! its table after it on this shard.

use std::collections::BTreeMap;
use std::rc::Rc;

use commitlog::LogPosition;
use stdx::{TableId, TimestampMicros};

use crate::error::StoreError;
use crate::store::Store;
use crate::tables::table::TableState;

/// The log record of a truncation of this run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TruncationPin {
    pub(crate) at: TimestampMicros,
    pub(crate) position: LogPosition,
    /// First position the log keeps while the record is not durable.
    pub(crate) kept: LogPosition,
    pub(crate) is_durable: bool,
    /// The files are gone.
    pub(crate) is_removed: bool,
    /// The node has recorded the truncation.
    pub(crate) is_recorded: bool,
}

impl TruncationPin {
    /// First position that the log must keep.
    pub(crate) fn needed(&self) -> LogPosition {
        if self.is_durable { self.position } else { self.kept.min(self.position) }
    }

    fn is_needed(&self) -> bool {
        !(self.is_durable && self.is_removed && self.is_recorded)
    }
}

/// The newest truncation by slice (shard, number of shards); a run with other shards has other slices.
#[derive(Debug, Default)]
pub(crate) struct TruncatedSlices(BTreeMap<(u16, u16), TimestampMicros>);

impl TruncatedSlices {
    fn note(&mut self, slice: (u16, u16), at: TimestampMicros) {
        let newest = self.0.entry(slice).or_insert(at);
        *newest = at.max(*newest);
    }

    /// Whether all data of `own` was removed by the truncation of that time, or a later one.
    fn covers(&self, own: (u16, u16), at: TimestampMicros) -> bool {
        let has = |slice| self.0.get(&slice).is_some_and(|newest| *newest >= at);
        if has(own) {
            return true;
        }
        let mut layouts = self.0.keys().map(|(_, shards)| *shards);
        layouts.any(|shards| (0..shards).all(|shard| has((shard, shards))))
    }
}

impl TableState {
    pub(crate) fn note_truncation(&self, slice: (u16, u16), at: TimestampMicros) {
        self.truncated.borrow_mut().note(slice, at);
    }

    /// Changes pins and drops those that are not needed any more.
    pub(crate) fn change_pins(&self, change: impl FnMut(&mut TruncationPin)) {
        let mut pins = self.pins.borrow_mut();
        pins.iter_mut().for_each(change);
        pins.retain(TruncationPin::is_needed);
    }
}

impl Store {
    /// Whether this shard's slice of a table was emptied by the truncation of that time, or a later one, as far
    /// as this run and the replayed log know. False for a table that does not exist here.
    pub fn is_truncated(&self, id: TableId, at: TimestampMicros) -> bool {
        let own = self.shard();
        self.table(id).is_some_and(|table| table.truncated.borrow().covers(own, at))
    }

    /// Makes the records of truncations in [`Store::is_truncated`] durable.
    ///
    /// # Errors
    /// `UnknownTable`; as [`Store::sync`].
    pub async fn sync_truncation(&self, id: TableId) -> Result<(), StoreError> {
        let Some(table) = self.table(id) else { return Err(StoreError::UnknownTable(id)) };
        self.sync_truncations(&table).await
    }

    pub(crate) async fn sync_truncations(&self, table: &Rc<TableState>) -> Result<(), StoreError> {
        let before: Vec<LogPosition> =
            table.pins.borrow().iter().filter(|p| !p.is_durable).map(|p| p.position).collect();
        self.inner.log.sync().await?;
        table.change_pins(|pin| {
            if before.contains(&pin.position) && !pin.is_durable {
                pin.is_durable = true;
                table.replayed_removals.set(table.replayed_removals.get().saturating_sub(1));
            }
        });
        Ok(())
    }

    /// The node has recorded, durably, that the truncation of that time and earlier ones are carried out: the
    /// log need not know it any more.
    pub fn truncation_recorded(&self, id: TableId, at: TimestampMicros) {
        let Some(table) = self.table(id) else { return };
        table.change_pins(|pin| pin.is_recorded |= pin.at <= at);
        let mut replayed = table.replayed_truncations.borrow_mut();
        let before = replayed.len();
        replayed.retain(|of| *of > at);
        if replayed.len() < before {
            self.inner.work.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncation_covers_its_own_slice_and_all_slices_together_cover_any() {
        let mut known = TruncatedSlices::default();
        let at = TimestampMicros;
        known.note((0, 2), at(5));
        assert!(known.covers((0, 2), at(5)) && known.covers((0, 2), at(4)));
        assert!(!known.covers((0, 2), at(6)) && !known.covers((1, 2), at(5)));
        assert!(!known.covers((0, 3), at(5)), "another slice was not emptied");
        known.note((1, 2), at(7));
        known.note((1, 2), at(3));
        assert!(known.covers((2, 3), at(5)) && !known.covers((2, 3), at(6)));
    }
}
