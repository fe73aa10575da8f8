//! The rows and markers inside of a partition: which one follows, and the merged content of the sources
//! for it.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::passing::LeftOut;
use super::{Current, LaneState, MergeCursor};
use crate::cursor::{Cursor, Item};
use crate::deletion::DeletionTime;
use crate::merge::{Keep, Merged, merge_rows};
use crate::row::RowRef;

/// The next item of the merge.
pub(super) enum Position {
    Static,
    /// The first lane with the row; `alone`: the only one.
    Row {
        lane: usize,
        alone: bool,
    },
    Marker(usize),
    End,
}

impl<C: Cursor> MergeCursor<'_, C> {
    /// One step inside a partition; true when there is something to show.
    pub(super) fn step(&mut self) -> bool {
        if self.passing.due.is_some() && self.tells_at_place() {
            return true;
        }
        match self.next_position() {
            Position::Static => self.merge_static(),
            Position::Row { lane, alone } => self.merge_row(lane, alone),
            Position::Marker(lane) => self.merge_marker(lane),
            Position::End => {
                for lane in self.lanes.iter_mut().filter(|l| l.member) {
                    lane.member = false;
                    lane.state = match lane.state {
                        LaneState::Done => LaneState::Done,
                        LaneState::Ready | LaneState::Stale => LaneState::Stale,
                    };
                }
                self.passing.due = None;
                self.in_partition = false;
                self.current = Current::PartitionEnd;
                true
            }
        }
    }

    pub(super) fn next_position(&self) -> Position {
        let mut best = Position::End;
        let mut best_item = Item::PartitionEnd;
        for (index, lane) in self.lanes.iter().enumerate() {
            if !lane.member || lane.state != LaneState::Ready {
                continue;
            }
            let item = lane.cursor.item();
            match item {
                Item::Static(_) => return Position::Static,
                Item::Row { .. } | Item::Marker(_) => {}
                Item::Partition { .. } | Item::PartitionEnd => continue,
            }
            let order = match best {
                Position::End | Position::Static => Ordering::Less,
                Position::Row { .. } | Position::Marker(_) => self.compare(&item, &best_item),
            };
            match order {
                Ordering::Less => {
                    best_item = item;
                    best = match item {
                        Item::Row { .. } => Position::Row { lane: index, alone: true },
                        _ => Position::Marker(index),
                    };
                }
                Ordering::Equal => {
                    if let Position::Row { alone, .. } = &mut best {
                        *alone = false;
                    }
                }
                Ordering::Greater => {}
            }
        }
        best
    }

    /// Read order of two rows or markers.
    fn compare(&self, a: &Item<'_>, b: &Item<'_>) -> Ordering {
        let cmp = self.shape.clustering();
        let order = match (a, b) {
            (Item::Row { clustering: a, .. }, Item::Row { clustering: b, .. }) => cmp.compare(a, b),
            (Item::Row { clustering, .. }, Item::Marker(m)) => {
                cmp.compare_to_bound(clustering, m.position)
            }
            (Item::Marker(m), Item::Row { clustering, .. }) => {
                cmp.compare_to_bound(clustering, m.position).reverse()
            }
            (Item::Marker(a), Item::Marker(b)) => cmp.compare_bounds(a.position, b.position),
            _ => Ordering::Equal,
        };
        if self.reversed { order.reverse() } else { order }
    }

    fn merge_static(&mut self) -> bool {
        let mut rows: SmallVec<[RowRef<'_>; 4]> = SmallVec::new();
        let mut from: SmallVec<[usize; 4]> = SmallVec::new();
        for (index, lane) in self.lanes.iter().enumerate() {
            if lane.member
                && lane.state == LaneState::Ready
                && let Item::Static(row) = lane.cursor.item()
            {
                rows.push(row);
                from.push(index);
            }
        }
        self.scratch.clear();
        let outcome =
            merge_rows(self.shape, &rows, self.partition_deletion, self.keep, &mut self.scratch);
        drop(rows);
        self.tombstones = self.tombstones.saturating_add(outcome.tombstones);
        self.stale(&from);
        match outcome.row {
            Merged::Nothing => {
                self.passing.last = LeftOut::Static;
                return false;
            }
            Merged::Built => self.current = Current::StaticBuilt,
            Merged::Source(i) => {
                self.current = Current::StaticOf(from.get(i).copied().unwrap_or(0));
            }
        }
        true
    }

    fn stale(&mut self, lanes: &[usize]) {
        for &index in lanes {
            if let Some(lane) = self.lanes.get_mut(index) {
                lane.state = LaneState::Stale;
            }
        }
    }

    /// The deletion that covers the position from outside the row.
    fn active(&self) -> DeletionTime {
        if self.open.is_live() { self.partition_deletion } else { self.open }
    }

    fn merge_row(&mut self, first: usize, alone: bool) -> bool {
        let mut rows: SmallVec<[RowRef<'_>; 4]> = SmallVec::new();
        let mut from: SmallVec<[usize; 4]> = SmallVec::new();
        let Some(first_item) = self.lanes.get(first).map(|l| l.cursor.item()) else {
            return false;
        };
        for (index, lane) in self.lanes.iter().enumerate() {
            let is_out = alone && index != first;
            if is_out || !lane.member || lane.state != LaneState::Ready {
                continue;
            }
            let item = lane.cursor.item();
            if let Item::Row { row, .. } = item
                && (index == first || self.compare(&item, &first_item) == Ordering::Equal)
            {
                rows.push(row);
                from.push(index);
            }
        }
        match from.as_slice() {
            [only] if *only == self.winner => self.wins = self.wins.saturating_add(1),
            _ => (self.winner, self.wins) = (first, u32::from(from.len() == 1)),
        }
        let active = self.active();
        self.scratch.clear();
        let outcome = merge_rows(self.shape, &rows, active, self.keep, &mut self.scratch);
        drop(rows);
        self.tombstones = self.tombstones.saturating_add(outcome.tombstones);
        self.stale(&from);
        match outcome.row {
            Merged::Nothing => {
                self.passing.last = LeftOut::Row(first);
                return false;
            }
            Merged::Built => self.current = Current::RowBuilt(first),
            Merged::Source(i) => match from.get(i).copied().unwrap_or(0) {
                lane if lane == first => self.current = Current::RowOf(first),
                lane => self.current = Current::RowFrom { name: first, lane },
            },
        }
        true
    }

    fn merge_marker(&mut self, first: usize) -> bool {
        let mut from: SmallVec<[(usize, DeletionTime); 4]> = SmallVec::new();
        let Some(first_item) = self.lanes.get(first).map(|l| l.cursor.item()) else {
            return false;
        };
        for (index, lane) in self.lanes.iter().enumerate() {
            if !lane.member || lane.state != LaneState::Ready {
                continue;
            }
            let item = lane.cursor.item();
            if let Item::Marker(marker) = item
                && (index == first || self.compare(&item, &first_item) == Ordering::Equal)
            {
                from.push((index, marker.open.unwrap_or(DeletionTime::LIVE)));
            }
        }
        for (index, open) in from {
            if let Some(lane) = self.lanes.get_mut(index) {
                lane.state = LaneState::Stale;
                lane.open = open;
            }
        }
        let mut open = DeletionTime::LIVE;
        for lane in self.lanes.iter().filter(|l| l.member) {
            open = open.max(lane.open);
        }
        if !open.supersedes(&self.partition_deletion) {
            open = DeletionTime::LIVE;
        }
        self.passing.last = LeftOut::Marker(first);
        if open == self.open {
            return false;
        }
        self.open = open;
        let shown = match &self.keep {
            Keep::Live { .. } => {
                self.tombstones = self.tombstones.saturating_add(1);
                return false;
            }
            Keep::All => open,
            Keep::Purge(purge) if purge.drops_deletion(&open) => DeletionTime::LIVE,
            Keep::Purge(_) => open,
        };
        if shown == self.shown_open {
            return false;
        }
        let some = |d: DeletionTime| (!d.is_live()).then_some(d);
        self.current =
            Current::Marker { lane: first, close: some(self.shown_open), open: some(shown) };
        self.shown_open = shown;
        true
    }
}
