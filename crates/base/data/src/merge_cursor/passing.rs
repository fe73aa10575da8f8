//! Skipping of rows and markers that a reader does not see, and reporting it now and then.

use super::inside::Position;
use super::{Current, MergeCursor};
use crate::clustering::BoundRef;
use crate::cursor::{Cursor, Item};
use crate::passed::place_between;

/// Factor by which more items are skipped when no position between them is found at which a page
/// could end.
const PLACELESS_TIMES: u32 = 4;

/// End of the skipped rows and markers.
#[derive(Clone, Copy)]
pub(super) enum PassedAt {
    /// Up to the row that this lane is at.
    Row(usize),
    /// Up to a place between two markers.
    Place,
    /// It is not known.
    Nowhere,
}

/// The item that was skipped.
#[derive(Clone, Copy)]
pub(super) enum LeftOut {
    Static,
    /// The row that this lane is at.
    Row(usize),
    /// The marker that this lane is at.
    Marker(usize),
}

/// Leaving rows and markers out, and telling of it.
pub(super) struct Passing {
    /// Skipped items between two reports; `u32::MAX`: never reports.
    pub(super) every: u32,
    /// Items skipped since the last report.
    pub(super) count: u32,
    /// Items in the last report.
    pub(super) told: u32,
    /// Items scanned beside the tombstones counted: rows and markers that others delete, deletions
    /// of partitions.
    pub(super) hidden: u32,
    /// The tombstones when the last one was left out.
    pub(super) tombstones: u32,
    /// The item that was skipped last.
    pub(super) last: LeftOut,
    /// A report is due at the next position: after this marker.
    pub(super) due: Option<bool>,
    pub(super) due_prefix: Vec<u8>,
    pub(super) place: Vec<u8>,
}

impl<C: Cursor> MergeCursor<'_, C> {
    /// Makes every mode of merge report skipped items, purging ones too, after `every` of them
    /// instead of [`PASSED_MAX`]. At least 1.
    pub fn tell_of_passed(&mut self, every: u32) {
        self.passing.every = every.max(1);
    }

    /// Position up to which rows and markers were skipped, when the current item reports that: the
    /// clustering of a row, or one that no row has. No item at or before it in read order follows.
    pub fn passed_at(&self) -> Option<&[u8]> {
        let Current::Passed(at) = self.current else { return None };
        match at {
            PassedAt::Place => Some(&self.passing.place),
            PassedAt::Row(lane) => match self.lanes.get(lane)?.cursor.item() {
                Item::Row { clustering, .. } => Some(clustering),
                _ => None,
            },
            PassedAt::Nowhere => None,
        }
    }

    /// Number of skipped rows and markers that the current item reports.
    pub fn passed(&self) -> u32 {
        self.passing.told
    }

    /// Returns true if the current item reports skipped rows and markers.
    #[inline]
    pub fn is_at_passed(&self) -> bool {
        matches!(self.current, Current::Passed(_))
    }

    /// Tombstones met so far, deletions of partitions, and data that they hide: the cost of the
    /// scan for a reader.
    #[inline]
    pub fn scanned(&self) -> u32 {
        self.tombstones.saturating_add(self.passing.hidden)
    }

    /// One more was left out; true when it is time to show that.
    #[inline]
    pub(super) fn tells_of_passed(&mut self) -> bool {
        let passing = &mut self.passing;
        passing.count = passing.count.saturating_add(1);
        if passing.tombstones == self.tombstones {
            passing.hidden = passing.hidden.saturating_add(1);
        }
        passing.tombstones = self.tombstones;
        passing.count >= passing.every && passing.every < u32::MAX && self.tells_of_last()
    }

    /// True when the item skipped last is a position to show.
    pub(super) fn tells_of_last(&mut self) -> bool {
        let passing = &mut self.passing;
        let at = match passing.last {
            LeftOut::Static => return false,
            LeftOut::Row(lane) => PassedAt::Row(lane),
            LeftOut::Marker(lane) => {
                let Some(lane) = self.lanes.get(lane) else { return false };
                let Item::Marker(marker) = lane.cursor.item() else { return false };
                passing.due = Some(marker.position.after);
                passing.due_prefix.clear();
                passing.due_prefix.extend_from_slice(marker.position.prefix);
                if passing.count < passing.every.saturating_mul(PLACELESS_TIMES) {
                    return false;
                }
                PassedAt::Nowhere
            }
        };
        self.tell(at);
        true
    }

    fn tell(&mut self, at: PassedAt) {
        self.passing.told = std::mem::take(&mut self.passing.count);
        self.passing.due = None;
        self.current = Current::Passed(at);
    }

    /// True when a position between the marker that was skipped last and the next item is to be
    /// shown.
    pub(super) fn tells_at_place(&mut self) -> bool {
        let Some(after) = self.passing.due.take() else { return false };
        let lane = match self.next_position() {
            Position::Row { lane, .. } | Position::Marker(lane) => lane,
            Position::Static | Position::End => return false,
        };
        let Some(next) = self.lanes.get(lane).map(|l| l.cursor.item()) else { return false };
        let from = BoundRef { prefix: &self.passing.due_prefix, after };
        let (shape, mut place) = (self.shape, std::mem::take(&mut self.passing.place));
        let is_found = place_between(shape, self.reversed, from, &next, &mut place);
        self.passing.place = place;
        if is_found {
            self.tell(PassedAt::Place);
        }
        is_found
    }
}
