//! The truncations of a table that its shard knows of.

use std::collections::BTreeMap;

use commitlog::LogPosition;
use stdx::TimestampMicros;

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

    /// Returns true if the truncation of that time, or a later one, removed all data of `own`.
    pub(crate) fn covers(&self, own: (u16, u16), at: TimestampMicros) -> bool {
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
