//! Cursors over memtables.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use data::command::{KeyRange, RingBound};
use data::{
    Advance, BoundRef, Cursor, CursorError, DeletionTime, Item, Marker, Slice, Slices, TableShape,
};

use super::Memtable;
use super::entry::EntryRef;
use super::held::Partition;
use super::view::{Place, RowsFrom};

#[derive(Clone, Copy)]
enum Stage {
    Start,
    Partition,
    Static,
    AtRow(Place),
    /// At a marker: an end of the tombstone range of that index, inside the current slice.
    AtMarker {
        position: Edge,
        close: Option<DeletionTime>,
        open: Option<DeletionTime>,
    },
    End,
    Done,
}

/// Names a bound without borrowing it.
#[derive(Clone, Copy, PartialEq)]
enum Edge {
    RangeStart(usize),
    RangeEnd(usize),
    SliceStart(usize),
    SliceEnd(usize),
}

/// Items of one partition version within slices.
pub(crate) struct PartitionCursor {
    shape: Rc<TableShape>,
    slices: Arc<Slices>,
    reversed: bool,
    version: Partition,
    stage: Stage,
    /// Slices entered so far, in read order.
    slices_entered: usize,
    /// Inside a slice: the next row, if it is in the slice.
    row: Option<Place>,
    /// Inside a slice: the next tombstone range to open or close; `None` = no more.
    range: Option<usize>,
    /// The range at `range` is open.
    open: bool,
}

impl PartitionCursor {
    pub(crate) fn new(
        shape: Rc<TableShape>,
        slices: Arc<Slices>,
        reversed: bool,
        version: Partition,
    ) -> PartitionCursor {
        PartitionCursor {
            shape,
            slices,
            reversed,
            version,
            stage: Stage::Start,
            slices_entered: 0,
            row: None,
            range: None,
            open: false,
        }
    }

    /// Begins another partition.
    fn turn_to(&mut self, version: Partition) {
        self.version = version;
        self.stage = Stage::Start;
        self.slices_entered = 0;
        self.row = None;
        self.range = None;
        self.open = false;
    }

    fn slice_index(&self) -> usize {
        let entered = self.slices_entered.saturating_sub(1);
        if self.reversed { self.slices.0.len().saturating_sub(1 + entered) } else { entered }
    }

    fn slice(&self) -> Option<&Slice> {
        self.slices.0.get(self.slice_index())
    }

    fn bound(&self, edge: Edge) -> BoundRef<'_> {
        let slices = &self.slices.0;
        let bound = match edge {
            Edge::RangeStart(place) => self.version.range(place).map(|r| r.start.as_bound()),
            Edge::RangeEnd(place) => self.version.range(place).map(|r| r.end.as_bound()),
            Edge::SliceStart(i) => slices.get(i).map(Slice::start),
            Edge::SliceEnd(i) => slices.get(i).map(Slice::end),
        };
        bound.unwrap_or(BoundRef::TOP)
    }

    /// Enters the next slice; false when there is none.
    fn enter_slice(&mut self) -> bool {
        if self.slices_entered >= self.slices.0.len() {
            return false;
        }
        self.slices_entered += 1;
        self.open = false;
        let cmp = self.shape.clustering();
        let Some(slice) = self.slice() else { return false };
        let rows = self.version.rows();
        let row = if self.reversed {
            rows.previous(rows.after_bound(cmp, slice.end()))
        } else {
            Some(rows.after_bound(cmp, slice.start()))
        };
        let tombstones = self.version.tombstones();
        let first = tombstones.map_or(0, |t| t.first_ending_after(cmp, slice.start()));
        let range = if self.reversed {
            // The last range that starts before the slice's end.
            let last = tombstones.and_then(|t| t.last_starting_before(cmp, slice.end()));
            last.filter(|last| *last >= first)
        } else {
            Some(first)
        };
        let (row, range) = (self.row_in_slice(row, slice), self.range_in_slice(range, slice));
        self.row = row;
        self.range = range;
        true
    }

    fn row_in_slice(&self, place: Option<Place>, slice: &Slice) -> Option<Place> {
        let place = place?;
        let entry = self.version.rows().get(place)?;
        let cmp = self.shape.clustering();
        let inside = if self.reversed {
            slice.start() == BoundRef::BOTTOM
                || cmp.compare_to_bound(entry.clustering(), slice.start()) == Ordering::Greater
        } else {
            slice.end() == BoundRef::TOP
                || cmp.compare_to_bound(entry.clustering(), slice.end()) == Ordering::Less
        };
        inside.then_some(place)
    }

    fn range_in_slice(&self, index: Option<usize>, slice: &Slice) -> Option<usize> {
        let range = self.version.range(index?)?;
        let cmp = self.shape.clustering();
        let inside = if self.reversed {
            cmp.compare_bounds(range.end.as_bound(), slice.start()) == Ordering::Greater
        } else {
            cmp.compare_bounds(range.start.as_bound(), slice.end()) == Ordering::Less
        };
        if inside { index } else { None }
    }

    fn next_row(&mut self, place: Place) {
        let next = if self.reversed {
            self.version.rows().previous(place)
        } else {
            Some(self.version.rows().next(place))
        };
        self.row = self.slice().and_then(|slice| self.row_in_slice(next, slice));
    }

    fn next_range(&mut self, index: usize) {
        let list = self.version.tombstones();
        let next = match self.reversed {
            true => list.and_then(|list| list.previous(index)),
            false => list.map(|list| list.next(index)),
        };
        self.range = self.slice().and_then(|slice| self.range_in_slice(next, slice));
        self.open = false;
    }

    /// Where the deletion of a range begins (or ends) in read order, clipped to the slice.
    fn edge(&self, index: usize, end: bool) -> Edge {
        let cmp = self.shape.clustering();
        let slice = self.slice_index();
        // In ascending order: is it the upper edge that is wanted?
        let upper = end != self.reversed;
        let (range, bound) = if upper {
            (Edge::RangeEnd(index), Edge::SliceEnd(slice))
        } else {
            (Edge::RangeStart(index), Edge::SliceStart(slice))
        };
        let outside = if upper { Ordering::Greater } else { Ordering::Less };
        if cmp.compare_bounds(self.bound(range), self.bound(bound)) == outside {
            bound
        } else {
            range
        }
    }

    fn deletion(&self, index: usize) -> Option<DeletionTime> {
        self.version.range(index).map(|r| r.deletion)
    }

    /// The next item of the slice.
    fn step(&mut self) -> Option<Stage> {
        let Some(index) = self.range else {
            return self.row.map(|place| {
                self.next_row(place);
                Stage::AtRow(place)
            });
        };
        let edge = self.edge(index, self.open);
        if let Some(place) = self.row
            && let Some(entry) = self.version.rows().get(place)
        {
            let order =
                self.shape.clustering().compare_to_bound(entry.clustering(), self.bound(edge));
            let row_first = if self.reversed { order.is_gt() } else { order.is_lt() };
            if row_first {
                self.next_row(place);
                return Some(Stage::AtRow(place));
            }
        }
        let deletion = self.deletion(index);
        if !self.open {
            self.open = true;
            return Some(Stage::AtMarker { position: edge, close: None, open: deletion });
        }
        self.next_range(index);
        // A range that begins where this one ends makes one marker of two.
        let mut open = None;
        if let Some(next) = self.range {
            let start = self.edge(next, false);
            let cmp = self.shape.clustering();
            if cmp.compare_bounds(self.bound(start), self.bound(edge)) == Ordering::Equal {
                open = self.deletion(next);
                self.open = true;
            }
        }
        Some(Stage::AtMarker { position: edge, close: deletion, open })
    }
}

impl PartitionCursor {
    /// The rows that follow, when the partition has nothing but rows, and from there on all of them are wanted.
    pub(crate) fn next_rows(&self) -> Option<RowsFrom<'_>> {
        let version = &self.version;
        let has_rows_only =
            version.static_row().is_none() && version.deletion().is_live() && !version.has_ranges();
        let place = match self.stage {
            Stage::Partition if self.slices.is_all() => Place::FIRST,
            Stage::AtRow(_) if self.is_in_rest() => self.row?,
            _ => return None,
        };
        (has_rows_only && !self.reversed).then(|| self.version.rows().from(place))
    }

    /// Returns true if the current slice is the last one and extends to the end.
    fn is_in_rest(&self) -> bool {
        let slices = &self.slices.0;
        self.slices_entered == slices.len()
            && slices.last().is_some_and(|slice| slice.end() == BoundRef::TOP)
    }

    /// Returns true if its end was shown, or passed.
    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::End | Stage::Done)
    }

    /// Skips `count` rows of [`PartitionCursor::next_rows`]; true when it is over then.
    pub(crate) fn pass_rows(&mut self, count: u64) -> bool {
        if let Stage::Partition = self.stage {
            // The only slice, which has everything.
            self.slices_entered = 1;
            self.row = self.version.rows().get(Place::FIRST).map(|_| Place::FIRST);
        }
        if let Some(place) = self.row {
            self.stage = Stage::AtRow(place);
            self.row = self.version.rows().behind(place, count);
        }
        if self.row.is_none() {
            self.stage = Stage::End;
        }
        self.row.is_none()
    }
}

impl Cursor for PartitionCursor {
    fn advance(&mut self) -> Result<Advance, CursorError> {
        self.stage = match self.stage {
            Stage::Start => Stage::Partition,
            Stage::Partition if self.version.static_row().is_some() => Stage::Static,
            Stage::Partition | Stage::Static | Stage::AtRow(_) | Stage::AtMarker { .. } => loop {
                if let Some(stage) = self.step() {
                    break stage;
                }
                if !self.enter_slice() {
                    break Stage::End;
                }
            },
            Stage::End | Stage::Done => {
                self.stage = Stage::Done;
                return Ok(Advance::End);
            }
        };
        Ok(Advance::Item)
    }

    fn item(&self) -> Item<'_> {
        match self.stage {
            Stage::Partition => Item::Partition {
                token: self.version.token(),
                key: self.version.key(),
                deletion: self.version.deletion(),
            },
            Stage::Static if let Some(row) = self.version.static_row() => Item::Static(row),
            Stage::AtRow(place) if let Some(entry) = self.version.rows().get(place) => {
                let (clustering, row) = entry.parts();
                Item::Row { clustering, row }
            }
            Stage::AtMarker { position, close, open } => {
                Item::Marker(Marker { position: self.bound(position), close, open })
            }
            _ => Item::PartitionEnd,
        }
    }

    fn skip_partition(&mut self) {
        self.stage = Stage::Done;
    }
}

/// Partitions that a scan takes from the memtable at once: enough that their waits for memory
/// overlap, and few to hold while a write wants them.
const AHEAD_MAX: usize = 32;
/// Distance, in partitions, at which a scan prefetches a partition.
const PREFETCHED: usize = 16;

/// Partitions of a memtable within a range.
pub(crate) struct MemtableScan {
    memtable: Rc<Memtable>,
    shape: Rc<TableShape>,
    slices: Arc<Slices>,
    reversed: bool,
    /// Where the search for the next partition begins.
    from: RingBound,
    end: RingBound,
    current: Option<PartitionCursor>,
    /// Partitions after the current one, in order, down to `from`.
    ahead: VecDeque<Partition>,
    /// Number of partitions taken next time. It doubles each time, as many scans end soon.
    batch: usize,
    at_end: bool,
}

impl MemtableScan {
    pub(crate) fn new(
        memtable: Rc<Memtable>,
        shape: Rc<TableShape>,
        range: &KeyRange,
        slices: Arc<Slices>,
        reversed: bool,
    ) -> MemtableScan {
        MemtableScan {
            memtable,
            shape,
            slices,
            reversed,
            from: range.start.clone(),
            end: range.end.clone(),
            current: None,
            ahead: VecDeque::new(),
            batch: 1,
            at_end: false,
        }
    }

    /// The next partition, whether inside or not.
    fn next_partition(&mut self) -> Option<Partition> {
        self.look_ahead()?;
        self.prefetch(PREFETCHED);
        self.ahead.pop_front()
    }

    /// Prefetches the partition at that distance from the next one.
    #[inline]
    fn prefetch(&self, behind: usize) {
        if let Some(partition) = self.ahead.get(behind) {
            partition.prefetch();
        }
    }

    /// Takes the next partitions from the memtable when those before are used up; `None`: there are no more.
    fn look_ahead(&mut self) -> Option<()> {
        if self.ahead.is_empty() {
            self.memtable.next_after(&self.shape, &self.from, self.batch, &mut self.ahead);
            self.batch = (self.batch * 2).min(AHEAD_MAX);
            let last = self.ahead.back()?;
            self.from =
                RingBound::Key { token: last.token(), key: last.key().to_vec(), after: true };
            if self.ahead.len() > 1 {
                // They lie all over the memory. The ones after these are prefetched as these are
                // taken.
                self.ahead.iter().take(PREFETCHED).for_each(Partition::prefetch);
            }
        }
        Some(())
    }

    /// Key and row of the next partition, when the current one is over and the next one has one row
    /// and nothing else; [`MemtableScan::pass_plain`] skips it. Not for scans of a part of the
    /// rows.
    #[inline]
    pub(crate) fn next_plain(&mut self) -> Option<(&[u8], EntryRef<'_>)> {
        self.current.as_ref()?;
        self.next_plains().next()
    }

    /// The same for all partitions available at once; [`MemtableScan::pass_plains`] skips them. At
    /// first none is current.
    #[inline]
    pub(crate) fn next_plains(&mut self) -> impl Iterator<Item = (&[u8], EntryRef<'_>)> {
        stdx::debug_invariant!(self.slices.is_all(), "a memtable scan: not of all rows");
        let is_over = !self.at_end && self.current.as_ref().is_none_or(PartitionCursor::is_over);
        let is_there = is_over && self.look_ahead().is_some();
        let scan = &*self;
        let ahead = scan.ahead.iter().zip(PREFETCHED..);
        let inside = ahead.take_while(move |(next, _)| is_there && scan.is_inside(next));
        inside.map_while(|(next, behind)| {
            scan.prefetch(behind);
            match next {
                Partition::Plain(_, plain) => Some((plain.key(), plain.entry())),
                Partition::Version(_) => None,
            }
        })
    }

    /// Returns true if it shows all rows of its partitions.
    pub(crate) fn is_of_all_rows(&self) -> bool {
        self.slices.is_all()
    }

    /// See [`MemtableScan::next_plain`].
    #[inline]
    pub(crate) fn pass_plain(&mut self) {
        self.ahead.pop_front();
    }

    /// See [`MemtableScan::next_plains`].
    #[inline]
    pub(crate) fn pass_plains(&mut self, count: usize) {
        self.ahead.drain(..count.min(self.ahead.len()));
    }

    /// The next rows of the current partition, when it has nothing but rows, all of which are
    /// wanted.
    #[inline]
    pub(crate) fn next_rows(&self) -> Option<RowsFrom<'_>> {
        self.current.as_ref()?.next_rows()
    }

    /// Skips `count` rows of [`MemtableScan::next_rows`]; true when the partition is over then,
    /// which is not shown any more.
    pub(crate) fn pass_rows(&mut self, count: u64) -> bool {
        self.current.as_mut().is_some_and(|current| current.pass_rows(count))
    }

    fn is_inside(&self, version: &Partition) -> bool {
        match &self.end {
            RingBound::Token { token, after } => {
                version.token() < *token || (*after && version.token() == *token)
            }
            RingBound::Key { token, key, after } => {
                match (version.token(), version.key()).cmp(&(*token, key.as_slice())) {
                    Ordering::Less => true,
                    Ordering::Equal => *after,
                    Ordering::Greater => false,
                }
            }
        }
    }
}

impl Cursor for MemtableScan {
    fn advance(&mut self) -> Result<Advance, CursorError> {
        if let Some(current) = &mut self.current
            && current.advance()? == Advance::Item
        {
            return Ok(Advance::Item);
        }
        if self.at_end {
            self.current = None;
            return Ok(Advance::End);
        }
        let next = self.next_partition();
        let Some(version) = next.filter(|v| self.is_inside(v)) else {
            self.at_end = true;
            self.current = None;
            self.ahead.clear();
            return Ok(Advance::End);
        };
        let cursor = match &mut self.current {
            Some(cursor) => {
                cursor.turn_to(version);
                cursor
            }
            none => none.insert(PartitionCursor::new(
                self.shape.clone(),
                self.slices.clone(),
                self.reversed,
                version,
            )),
        };
        cursor.advance()?;
        Ok(Advance::Item)
    }

    fn item(&self) -> Item<'_> {
        match &self.current {
            Some(current) => current.item(),
            None => Item::PartitionEnd,
        }
    }

    fn skip_partition(&mut self) {
        if let Some(current) = &mut self.current {
            current.skip_partition();
        }
    }
}
