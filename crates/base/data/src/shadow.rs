//! A cursor over a source that leaves out the data hidden by other sources.
//!
//! Owns the state of one walk over data, with the shadow of it beside. Never shows anything of the
//! shadow; never waits: a missing block is passed on as [`Advance::NeedBlock`], those of the shadow with
//! numbers from [`Shadow::first`] on.
//!
//! INV-shadow-1: data merged with its shadow is the same before and after.
//! INV-shadow-2: of two deletions or cells that are equal neither hides the other, so that two sources
//! may have each other for a shadow at the same time.
//! INV-shadow-3: emitted markers alternate, as of a merge.
//! One item of each side is in memory. Source of the rules: Cassandra
//! `CompactionIterator.GarbageSkippingUnfilteredRowIterator`, `Rows.removeShadowedCells`. Counters differ:
//! only deletions hide their cells, as these are not chosen but merged.

use std::cmp::Ordering;

use stdx::{ColumnId, Token};

use crate::cursor::{Advance, BlockRequest, Cursor, CursorError, Item, Marker};
use crate::deletion::{DeletionTime, Liveness};
use crate::row::{CellRef, ColumnRef, ComplexRef, RowBuilder, RowRef};
use crate::shape::TableShape;

/// Kinds of data that hide other data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowBy {
    /// Deletions of partitions, ranges and rows.
    Rows,
    /// Deletions of cells and collections too, and cells that are newer.
    Cells,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `advance` must be called before its item is read.
    Stale,
    Ready,
    Done,
}

#[derive(Clone, Copy)]
enum Shown {
    None,
    /// The item of the data as it is.
    Data,
    Partition(DeletionTime),
    /// The row of the data, without its hidden parts.
    Row,
    /// At the data's marker, or at the shadow's.
    Marker {
        of_shadow: bool,
        close: DeletionTime,
        open: DeletionTime,
    },
}

/// The data that hides, and the numbering of its requests for blocks.
pub struct Shadow<S> {
    /// The deletions and newer cells.
    pub cursor: S,
    /// Its requests for blocks carry its number of the source plus this, which is above all numbers
    /// of the data.
    pub first: u32,
}

/// A cursor over `D` without the data that `S` hides. Both are in ascending order of clusterings.
pub struct ShadowCursor<'s, D, S> {
    shape: &'s TableShape,
    by: ShadowBy,
    first: u32,
    data: D,
    shadow: S,
    data_state: State,
    shadow_state: State,
    in_partition: bool,
    /// The shadow has the partition, and stands in it.
    is_member: bool,
    /// The shadow's deletion of the partition.
    partition_deletion: DeletionTime,
    /// Range deletions that are open: of the data, of the shadow, and as emitted.
    data_open: DeletionTime,
    shadow_open: DeletionTime,
    shown_open: DeletionTime,
    scratch: Vec<u8>,
    shown: Shown,
}

impl<'s, D: Cursor, S: Cursor> ShadowCursor<'s, D, S> {
    /// Creates a cursor over `data` without the data that `shadow` hides.
    pub fn new(shape: &'s TableShape, by: ShadowBy, data: D, shadow: Shadow<S>) -> Self {
        ShadowCursor {
            shape,
            by,
            first: shadow.first,
            data,
            shadow: shadow.cursor,
            data_state: State::Stale,
            shadow_state: State::Stale,
            in_partition: false,
            is_member: false,
            partition_deletion: DeletionTime::LIVE,
            data_open: DeletionTime::LIVE,
            shadow_open: DeletionTime::LIVE,
            shown_open: DeletionTime::LIVE,
            scratch: Vec::new(),
            shown: Shown::None,
        }
    }

    /// Returns the cursor of the data shown.
    pub fn data(&self) -> &D {
        &self.data
    }

    /// The same, to feed it a block.
    pub fn data_mut(&mut self) -> &mut D {
        &mut self.data
    }

    /// Returns the cursor of the hiding data, to feed it a block.
    pub fn shadow_mut(&mut self) -> &mut S {
        &mut self.shadow
    }

    /// Moves the data when it must move. `Some`: the caller has to pass this on.
    fn move_data(&mut self) -> Result<Option<Advance>, CursorError> {
        if self.data_state != State::Stale {
            return Ok(None);
        }
        match self.data.advance()? {
            Advance::Item => self.data_state = State::Ready,
            Advance::End => self.data_state = State::Done,
            request @ Advance::NeedBlock(_) => return Ok(Some(request)),
        }
        Ok(None)
    }

    /// The same of the shadow.
    fn move_shadow(&mut self) -> Result<Option<Advance>, CursorError> {
        if self.shadow_state != State::Stale {
            return Ok(None);
        }
        match self.shadow.advance()? {
            Advance::Item => self.shadow_state = State::Ready,
            Advance::End => self.shadow_state = State::Done,
            Advance::NeedBlock(request) => {
                let source = request.source.saturating_add(self.first);
                return Ok(Some(Advance::NeedBlock(BlockRequest { source, ..request })));
            }
        }
        Ok(None)
    }

    /// The deletion by which the shadow covers the position from outside the row.
    fn active(&self) -> DeletionTime {
        self.partition_deletion.max(self.shadow_open)
    }

    /// Shows a change of the open deletion, if there is one.
    fn show_open(&mut self, of_shadow: bool) -> bool {
        let open = unless_hidden(self.data_open, &self.active());
        if open == self.shown_open {
            return false;
        }
        stdx::debug_invariant!(self.in_partition, "INV-shadow-3: a marker outside of a partition");
        self.shown = Shown::Marker { of_shadow, close: self.shown_open, open };
        self.shown_open = open;
        true
    }

    fn next_partition(&mut self) -> Result<Advance, CursorError> {
        if let Some(request) = self.move_data()? {
            return Ok(request);
        }
        let Some((token, key, deletion)) = partition_of(&self.data, self.data_state) else {
            return Ok(Advance::End);
        };
        let (mut is_member, mut hidden_by) = (false, DeletionTime::LIVE);
        loop {
            if self.shadow_state == State::Stale {
                match self.shadow.advance()? {
                    Advance::Item => self.shadow_state = State::Ready,
                    Advance::End => self.shadow_state = State::Done,
                    Advance::NeedBlock(request) => {
                        let source = request.source.saturating_add(self.first);
                        return Ok(Advance::NeedBlock(BlockRequest { source, ..request }));
                    }
                }
            }
            let Some((t, k, d)) = partition_of(&self.shadow, self.shadow_state) else { break };
            match (t, k).cmp(&(token, key)) {
                Ordering::Less => {
                    self.shadow.skip_partition();
                    self.shadow_state = State::Stale;
                    continue;
                }
                Ordering::Equal => (is_member, hidden_by) = (true, d),
                Ordering::Greater => {}
            }
            break;
        }
        if is_member {
            self.shadow_state = State::Stale;
        }
        (self.is_member, self.partition_deletion) = (is_member, hidden_by);
        self.data_state = State::Stale;
        self.in_partition = true;
        self.data_open = DeletionTime::LIVE;
        self.shadow_open = DeletionTime::LIVE;
        self.shown_open = DeletionTime::LIVE;
        self.shown = Shown::Partition(unless_hidden(deletion, &hidden_by));
        Ok(Advance::Item)
    }

    /// Ends the partition on the side of the shadow.
    fn leave_partition(&mut self) {
        if self.is_member {
            let at_end = self.shadow_state == State::Ready
                && matches!(self.shadow.item(), Item::PartitionEnd);
            if self.shadow_state != State::Done {
                if !at_end {
                    self.shadow.skip_partition();
                }
                self.shadow_state = State::Stale;
            }
        }
        self.is_member = false;
        self.in_partition = false;
    }

    /// Where the shadow's item lies for the data's; `Greater` when it has none.
    fn order(&self) -> Ordering {
        if !self.is_member || self.shadow_state != State::Ready {
            return Ordering::Greater;
        }
        let cmp = self.shape.clustering();
        match (self.shadow.item(), self.data.item()) {
            (Item::PartitionEnd | Item::Partition { .. }, _) => Ordering::Greater,
            (Item::Static(_), Item::Static(_)) => Ordering::Equal,
            (Item::Static(_), _) => Ordering::Less,
            (_, Item::Static(_)) => Ordering::Greater,
            (Item::Row { clustering: a, .. }, Item::Row { clustering: b, .. }) => cmp.compare(a, b),
            (Item::Row { clustering, .. }, Item::Marker(m)) => {
                cmp.compare_to_bound(clustering, m.position)
            }
            (Item::Marker(m), Item::Row { clustering, .. }) => {
                cmp.compare_to_bound(clustering, m.position).reverse()
            }
            (Item::Marker(a), Item::Marker(b)) => cmp.compare_bounds(a.position, b.position),
            // Behind the end of the data nothing is hidden.
            (_, Item::PartitionEnd | Item::Partition { .. }) => Ordering::Greater,
        }
    }

    /// Looks at the item of the data beside that of the shadow; true when there is something to show.
    fn step(&mut self) -> bool {
        let order = self.order();
        if order == Ordering::Less {
            self.shadow_state = State::Stale;
            if let Item::Marker(marker) = self.shadow.item() {
                self.shadow_open = marker.open.unwrap_or(DeletionTime::LIVE);
                return self.show_open(true);
            }
            return false;
        }
        let beside = match order {
            Ordering::Equal => Some(self.shadow.item()),
            _ => None,
        };
        let active = self.active();
        self.data_state = State::Stale;
        match self.data.item() {
            Item::Marker(marker) => {
                if let Some(Item::Marker(other)) = beside {
                    self.shadow_open = other.open.unwrap_or(DeletionTime::LIVE);
                    self.shadow_state = State::Stale;
                }
                self.data_open = marker.open.unwrap_or(DeletionTime::LIVE);
                self.show_open(false)
            }
            Item::Static(row) | Item::Row { row, .. } => {
                let other = match beside {
                    Some(Item::Static(other) | Item::Row { row: other, .. }) => Some(other),
                    _ => None,
                };
                self.scratch.clear();
                let left =
                    left_of(self.shape, row, Beside { other, active }, self.by, &mut self.scratch);
                self.shown = match left {
                    Left::Nothing => return false,
                    Left::All => Shown::Data,
                    Left::Some => Shown::Row,
                };
                true
            }
            Item::PartitionEnd | Item::Partition { .. } => {
                self.leave_partition();
                self.shown = Shown::Data;
                true
            }
        }
    }
}

fn partition_of<C: Cursor>(cursor: &C, state: State) -> Option<(Token, &[u8], DeletionTime)> {
    if state != State::Ready {
        return None;
    }
    match cursor.item() {
        Item::Partition { token, key, deletion } => Some((token, key, deletion)),
        _ => None,
    }
}

/// A deletion, or live when another one hides it.
fn unless_hidden(deletion: DeletionTime, by: &DeletionTime) -> DeletionTime {
    if by.supersedes(&deletion) { DeletionTime::LIVE } else { deletion }
}

impl<D: Cursor, S: Cursor> Cursor for ShadowCursor<'_, D, S> {
    fn advance(&mut self) -> Result<Advance, CursorError> {
        if !self.in_partition {
            return self.next_partition();
        }
        loop {
            if let Some(request) = self.move_data()? {
                return Ok(request);
            }
            if self.data_state == State::Done {
                self.leave_partition();
                return Ok(Advance::End);
            }
            if self.is_member
                && let Some(request) = self.move_shadow()?
            {
                return Ok(request);
            }
            if self.step() {
                return Ok(Advance::Item);
            }
        }
    }

    fn item(&self) -> Item<'_> {
        let data = || self.data.item();
        match self.shown {
            Shown::None => {
                stdx::invariant::broken(format_args!("shadow: item asked for before advance"))
            }
            Shown::Data => data(),
            Shown::Partition(deletion) => match data() {
                Item::Partition { token, key, .. } => Item::Partition { token, key, deletion },
                other => other,
            },
            Shown::Row => match data() {
                Item::Row { clustering, .. } => {
                    Item::Row { clustering, row: RowRef::trusted(&self.scratch) }
                }
                _ => Item::Static(RowRef::trusted(&self.scratch)),
            },
            Shown::Marker { of_shadow, close, open } => {
                let some = |d: DeletionTime| (!d.is_live()).then_some(d);
                let at = if of_shadow { self.shadow.item() } else { data() };
                match at {
                    Item::Marker(Marker { position, .. }) => {
                        Item::Marker(Marker { position, close: some(close), open: some(open) })
                    }
                    other => other,
                }
            }
        }
    }

    fn skip_partition(&mut self) {
        if !self.in_partition {
            return;
        }
        if self.data_state == State::Stale {
            self.data.skip_partition();
        } else if self.data_state == State::Ready {
            if !matches!(self.data.item(), Item::PartitionEnd) {
                self.data.skip_partition();
            }
            self.data_state = State::Stale;
        }
        self.leave_partition();
        self.shown = Shown::None;
    }
}

/// Result of removing hidden parts from a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// All of it; nothing was written.
    All,
    /// It was appended to the output buffer.
    Some,
}

/// The data that may hide cells of a row.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a> {
    /// Another version of the row.
    pub(crate) other: Option<RowRef<'a>>,
    /// The deletion that covers the row from outside.
    pub(crate) active: DeletionTime,
}

/// Removes from a row the cells that `beside` hides.
pub(crate) fn left_of(
    shape: &TableShape,
    row: RowRef<'_>,
    beside: Beside<'_>,
    by: ShadowBy,
    out: &mut Vec<u8>,
) -> Left {
    let Beside { other, active } = beside;
    let active = active.max(other.map_or(DeletionTime::LIVE, |other| other.deletion()));
    let by_cells = by == ShadowBy::Cells && !shape.has_counters();
    let other = other.filter(|_| by_cells);
    if active.is_live() && other.is_none() {
        return Left::All;
    }
    let (liveness, deletion, columns) = row.parts();
    let newer = other.map_or(Liveness::NONE, |other| other.liveness());
    let is_hidden = active.deletes(liveness.timestamp) || newer.supersedes(&liveness);
    let kept = if is_hidden { Liveness::NONE } else { liveness };
    let kept_deletion = unless_hidden(deletion, &active);
    let mut filter =
        CellFilter { shape, active, is_changed: kept != liveness || kept_deletion != deletion };
    let start = out.len();
    let mut builder = RowBuilder::new(out, kept, kept_deletion, row.base_timestamp());
    let mut others = other.map(|other| other.columns()).into_iter().flatten().peekable();
    for (id, column) in columns {
        while others.next_if(|(theirs, _)| *theirs < id).is_some() {}
        let theirs = others.next_if(|(theirs, _)| *theirs == id).map(|(_, column)| column);
        match column {
            ColumnRef::Simple(cell) => {
                let theirs = match &theirs {
                    Some(ColumnRef::Simple(theirs)) => Some(theirs),
                    _ => None,
                };
                if filter.keeps(id, &cell, theirs) {
                    builder.cell(id, &cell);
                }
            }
            ColumnRef::Complex(complex) => {
                let theirs = match theirs {
                    Some(ColumnRef::Complex(theirs)) => Some(theirs),
                    _ => None,
                };
                filter.complex(id, complex, theirs, &mut builder);
            }
        }
    }
    let is_empty = builder.is_empty();
    builder.finish();
    match (filter.is_changed, is_empty) {
        (true, false) => Left::Some,
        (is_changed, _) => {
            out.truncate(start);
            if is_changed { Left::Nothing } else { Left::All }
        }
    }
}

struct CellFilter<'a> {
    shape: &'a TableShape,
    active: DeletionTime,
    /// Something was left out.
    is_changed: bool,
}

impl CellFilter<'_> {
    /// Returns true if a cell stays. A cell of a dropped column hides nothing: all data that it
    /// would hide is at least as old, so that data is not shown either.
    fn keeps(&mut self, id: ColumnId, cell: &CellRef<'_>, theirs: Option<&CellRef<'_>>) -> bool {
        let shape = self.shape;
        let is_seen = |t: &&CellRef<'_>| !shape.has_filters() || shape.is_visible(id, t.timestamp);
        let is_newer = |t: &CellRef<'_>| t.reconcile(cell) == Ordering::Greater;
        let is_hidden =
            self.active.deletes(cell.timestamp) || theirs.filter(is_seen).is_some_and(is_newer);
        self.is_changed |= is_hidden;
        !is_hidden
    }

    fn complex(
        &mut self,
        id: ColumnId,
        complex: ComplexRef<'_>,
        theirs: Option<ComplexRef<'_>>,
        builder: &mut RowBuilder<'_>,
    ) {
        let outside = self.active;
        if let Some(theirs) = &theirs
            && (!self.shape.has_filters() || self.shape.is_visible(id, theirs.deletion.timestamp))
        {
            self.active = self.active.max(theirs.deletion);
        }
        let deletion = unless_hidden(complex.deletion, &self.active);
        self.is_changed |= deletion != complex.deletion;
        builder.begin_complex(id, deletion);
        let mut others = theirs.map(|theirs| theirs.cells()).into_iter().flatten().peekable();
        let mut count = 0_usize;
        for (path, cell) in complex.cells() {
            let shape = self.shape;
            let against = |theirs: &[u8]| shape.compare_paths(id, theirs, path);
            while others.next_if(|(theirs, _)| against(theirs) == Ordering::Less).is_some() {}
            let beside = others.next_if(|(theirs, _)| against(theirs) == Ordering::Equal);
            if self.keeps(id, &cell, beside.as_ref().map(|(_, cell)| cell)) {
                builder.complex_cell(path, &cell);
                count += 1;
            }
        }
        match count == 0 && deletion.is_live() {
            true => builder.cancel_complex(),
            false => builder.end_complex(),
        }
        self.active = outside;
    }
}
