//! Rows that need no merge: the reader may take them from the one source that has them.

use std::cmp::Ordering;

use super::{Current, LaneState, MergeCursor, MergeMode};
use crate::cursor::{Cursor, Item};

/// Consecutive rows of one lane after which the merge searches for more that need no merge. Where
/// lanes alternate, searching would cost more than it saves.
const WINS_MIN: u32 = 2;

impl<C: Cursor> MergeCursor<'_, C> {
    /// The number of the source whose rows follow, when no other one has the partition and nothing
    /// deletes them from outside. Then rows that are live without a TTL, and whose cells are, come
    /// out unmodified. A reader that takes them from the source calls [`MergeCursor::took_rows`].
    /// `None` also where rows must be filtered, and where it is unknown.
    #[inline]
    pub fn untouched(&self) -> Option<usize> {
        let index = self.sole.filter(|_| self.in_partition)?;
        let lane = self.lanes.get(index)?;
        let is_untouched = lane.state == LaneState::Stale
            && self.partition_deletion.is_live()
            && self.open.is_live()
            && self.shown_open.is_live()
            && !self.shape.has_filters()
            && !self.shape.has_counters()
            && !matches!(self.mode, MergeMode::Live { .. });
        is_untouched.then_some(index)
    }

    /// Like [`MergeCursor::untouched`], for a partition in several sources. Returns the number of
    /// the source that alone had the last rows, and the next row of the others, if they have one.
    /// Rows of that source before it are returned unmodified. A reader that takes some of them,
    /// without the end of the partition, need not report it.
    pub fn run(&self) -> Option<(usize, Option<&[u8]>)> {
        let is_run = self.wins >= WINS_MIN
            && self.in_partition
            && self.partition_deletion.is_live()
            && self.open.is_live()
            && self.shown_open.is_live()
            && !self.shape.has_filters()
            && !self.shape.has_counters()
            && !self.reversed
            && !matches!(self.mode, MergeMode::Live { .. });
        let mut next: Option<&[u8]> = None;
        for (index, lane) in self.lanes.iter().enumerate().filter(|_| is_run) {
            if !lane.member {
                continue;
            }
            match (index == self.winner, lane.state) {
                (true, LaneState::Stale) => continue,
                (false, LaneState::Ready) => {}
                _ => return None,
            }
            match lane.cursor.item() {
                Item::Row { clustering, .. } => {
                    let order = |next| self.shape.clustering().compare(clustering, next);
                    if next.is_none_or(|next| order(next) == Ordering::Less) {
                        next = Some(clustering);
                    }
                }
                Item::PartitionEnd => {}
                Item::Partition { .. } | Item::Static(_) | Item::Marker(_) => return None,
            }
        }
        let is_member = self.lanes.get(self.winner).is_some_and(|lane| lane.member);
        (is_run && is_member).then_some((self.winner, next))
    }

    /// Returns the source, when there is only one and the merge stands between two partitions.
    /// Partitions that hold only rows as in [`MergeCursor::untouched`] come out unmodified. A
    /// reader that takes some need not report it.
    #[inline]
    pub fn only_source(&mut self) -> Option<&mut C> {
        let is_untouched = !self.in_partition
            && !self.shape.has_filters()
            && !self.shape.has_counters()
            && !matches!(self.mode, MergeMode::Live { .. });
        match self.lanes.as_mut_slice() {
            [lane] if is_untouched && lane.state == LaneState::Stale => Some(&mut lane.cursor),
            _ => None,
        }
    }

    /// Like [`MergeCursor::untouched`], for a reader. Returns the number of the source whose plain
    /// rows ([`RowRef::is_plain`]) are returned unmodified.
    #[inline]
    pub fn untouched_live(&self) -> Option<usize> {
        let index = self.sole.filter(|_| self.in_partition)?;
        let is_untouched = self.lanes.get(index)?.state == LaneState::Stale
            && self.partition_deletion.is_live()
            && self.open.is_live()
            && !self.shape.has_filters()
            && matches!(self.mode, MergeMode::Live { .. });
        is_untouched.then_some(index)
    }

    /// Returns true if the current partition has several sources and nothing deletes it from
    /// outside, in a table whose partitions have one row. Among versions as in
    /// [`MergeCursor::untouched`] that all have the same columns, the newest one is returned. A
    /// reader that takes it moves all of [`MergeCursor::members`] past the partition and calls
    /// [`MergeCursor::took_partition`].
    #[inline]
    pub fn has_one_row(&self) -> bool {
        self.in_partition
            && self.sole.is_none()
            && self.partition_deletion.is_live()
            && self.shape.clustering().is_empty()
            && !self.shape.has_filters()
            && !self.shape.has_counters()
            && !matches!(self.mode, MergeMode::Live { .. })
            && self.lanes.iter().all(|l| !l.member || l.state == LaneState::Stale)
    }

    /// Notes that all sources with the current partition were moved past it.
    #[inline]
    pub fn took_partition(&mut self) {
        self.passing.due = None;
        self.lanes.iter_mut().for_each(|l| l.member = false);
        self.in_partition = false;
        self.current = Current::PartitionEnd;
    }

    /// Returns true if the merge stands between two partitions of a table whose rows as in
    /// [`MergeCursor::untouched`] come out unmodified. These are the rows of a partition that one
    /// source has alone and does not delete. In partitions of one row it is the newest version, as
    /// in [`MergeCursor::has_one_row`]. A caller that knows more about the sources may take the
    /// following partitions from them directly: see [`MergeCursor::move_source`].
    #[inline]
    pub fn is_between(&self) -> bool {
        !self.in_partition
            && !self.shape.has_filters()
            && !self.shape.has_counters()
            && !matches!(self.mode, MergeMode::Live { .. })
    }

    /// Between two partitions: has `place` move a source, so that it stands behind a partition, or before its first one.
    /// False from it: it has not moved it.
    #[inline]
    pub fn move_source(&mut self, number: usize, place: impl FnOnce(&mut C) -> bool) {
        if let Some(lane) = self.lanes.get_mut(number)
            && !self.in_partition
            && lane.state != LaneState::Done
            && place(&mut lane.cursor)
        {
            lane.state = LaneState::Stale;
        }
    }

    /// Rows were taken from the source that [`MergeCursor::untouched`] or [`MergeCursor::untouched_live`]
    /// named; `ended`: with the end of the partition.
    #[inline]
    pub fn took_rows(&mut self, ended: bool) {
        self.passing.due = None;
        if let Some(lane) = self.sole.and_then(|index| self.lanes.get_mut(index))
            && ended
        {
            lane.member = false;
            self.in_partition = false;
            self.current = Current::PartitionEnd;
        }
    }
}
