//! Merging of cursors: rows and range deletions of many sources as one sorted stream.
//!
//! Owns the state of a merge over N sources of one table. Never waits: a missing block is passed
//! on as [`Advance::NeedBlock`] with the source's number.
//!
//! INV-merge-1: emitted markers alternate: each closes exactly what the one before opened.
//! Source of the range rules: Cassandra `RangeTombstoneMarker.Merger`.

mod inside;
mod passing;
mod runs;

use std::cmp::Ordering;

use smallvec::SmallVec;
use stdx::{DeletionSeconds, TimestampMicros, Token};

use crate::clustering::BoundRef;
use crate::cursor::{Advance, BlockRequest, Cursor, CursorError, Item, Marker};
use crate::deletion::DeletionTime;
use crate::merge::{Keep, Merged, Purge, merge_rows};
use crate::row::RowRef;
use crate::shape::TableShape;
use passing::{LeftOut, PassedAt, Passing};

/// Number of rows and markers that a reader's merge skips in one batch.
pub const PASSED_MAX: u32 = 128;
/// Returns the timestamp below which tombstones of a partition (token, key) may be purged.
pub type TimestampBelow = Box<dyn Fn(Token, &[u8]) -> TimestampMicros>;

/// The time before which tombstones are old enough to be purged.
pub enum GcBefore {
    /// The same for all partitions.
    At(DeletionSeconds),
    /// By the partition's token; asked once per partition.
    Of(Box<dyn Fn(Token) -> DeletionSeconds>),
}

/// Treatment of tombstones by a merge.
pub enum MergeMode {
    /// Keeps everything.
    All,
    /// Shows what a reader at `now` sees: live rows only; deletions of partitions appear as live;
    /// no range markers. After every [`PASSED_MAX`] skipped rows and markers it shows one marker
    /// that neither closes nor opens anything. There the reader can yield, and may end its page
    /// ([`MergeCursor::passed_at`]). A partition without live rows still shows its start and end.
    Live {
        /// The reader's clock.
        now: DeletionSeconds,
    },
    /// Compaction. A partition from which nothing is left still shows its start and end.
    Purge {
        /// The clock of TTLs.
        now: DeletionSeconds,
        /// Tombstones made before this may be purged.
        gc_before: GcBefore,
        /// The timestamp below which a partition's tombstones may be purged (see
        /// [`Purge::timestamp_below`]); computed at most once per partition, before anything of it
        /// is merged.
        timestamp_below: TimestampBelow,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneState {
    /// `advance` must be called before its item is read.
    Stale,
    /// Its item is the next of it.
    Ready,
    /// At its end.
    Done,
}

struct Lane<C> {
    cursor: C,
    state: LaneState,
    /// Has the current partition.
    member: bool,
    /// The range deletion that is open in it.
    open: DeletionTime,
    /// Token of the partition at whose start the lane is.
    token: Token,
}

impl<C: Cursor> Lane<C> {
    /// It stands on its next item, which is the start of a partition where the merge is between two.
    #[inline]
    fn stands(&mut self) {
        self.state = LaneState::Ready;
        if let Item::Partition { token, .. } = self.cursor.item() {
            self.token = token;
        }
    }

    /// Key and deletion of the partition that it is at the start of.
    fn partition(&self) -> Option<(&[u8], DeletionTime)> {
        if self.state != LaneState::Ready {
            return None;
        }
        match self.cursor.item() {
            Item::Partition { key, deletion, .. } => Some((key, deletion)),
            _ => None,
        }
    }
}

/// The first partition that lanes stand at.
struct FirstPartition<'a> {
    token: Token,
    key: &'a [u8],
    /// The first lane that has it.
    lane: usize,
    /// Others have it too.
    several: bool,
    /// The newest deletion of it.
    deletion: DeletionTime,
}

/// Finds the first partition, and marks the lanes that have it.
#[inline]
fn first_of<'a, C: Cursor>(
    lanes: &'a [Lane<C>],
    members: &mut [bool],
) -> Option<FirstPartition<'a>> {
    let mut first: Option<(Token, &[u8])> = None;
    let mut first_lane = 0;
    let mut several = false;
    let mut deletion = DeletionTime::LIVE;
    for (index, lane) in lanes.iter().enumerate() {
        // Most lanes are after the first one by their tokens.
        if first.is_some_and(|(token, _)| lane.token > token) {
            continue;
        }
        let Some((key, lane_deletion)) = lane.partition() else { continue };
        let order = match first {
            None => Ordering::Less,
            Some(f) => (lane.token, key).cmp(&f),
        };
        match order {
            Ordering::Less => {
                if first.is_some() {
                    members.iter_mut().for_each(|m| *m = false);
                }
                first = Some((lane.token, key));
                first_lane = index;
                several = false;
                deletion = lane_deletion;
            }
            Ordering::Equal => {
                several = true;
                deletion = deletion.max(lane_deletion);
            }
            Ordering::Greater => continue,
        }
        match members.get_mut(index) {
            Some(member) => *member = true,
            None => stdx::invariant!(false, "merge: lane {index} would be left out"),
        }
    }
    first.map(|(token, key)| FirstPartition { token, key, lane: first_lane, several, deletion })
}

#[derive(Clone, Copy)]
enum Current {
    None,
    Partition {
        lane: usize,
        deletion: DeletionTime,
    },
    StaticOf(usize),
    StaticBuilt,
    RowOf(usize),
    /// A row with the clustering of another lane, which is equal, but may be written otherwise.
    RowFrom {
        name: usize,
        lane: usize,
    },
    RowBuilt(usize),
    Marker {
        lane: usize,
        close: Option<DeletionTime>,
        open: Option<DeletionTime>,
    },
    /// Rows and markers were left out.
    Passed(PassedAt),
    PartitionEnd,
}

/// N cursors as one. `C` is the concrete cursor, or an enum of those.
pub struct MergeCursor<'s, C> {
    shape: &'s TableShape,
    mode: MergeMode,
    reversed: bool,
    lanes: SmallVec<[Lane<C>; 4]>,
    in_partition: bool,
    /// The only lane that has the current partition; `None` when several have it.
    sole: Option<usize>,
    keep: Keep,
    /// For [`MergeMode::Purge`]: the purge limit of the current partition was not requested yet.
    /// Most partitions hold nothing to purge.
    asks_purge: bool,
    /// Token of the current partition, valid while `asks_purge` is true.
    token: Token,
    key: Vec<u8>,
    /// Deletion of the current partition, unpurged.
    partition_deletion: DeletionTime,
    /// The range deletion open in the merged stream, unpurged; live when the partition's deletion
    /// covers it.
    open: DeletionTime,
    /// The same as the emitted markers show it (purged ones are not shown).
    shown_open: DeletionTime,
    scratch: Vec<u8>,
    current: Current,
    tombstones: u32,
    passing: Passing,
    /// The lane that alone had the last rows of the partition, and how many.
    winner: usize,
    wins: u32,
}

impl<'s, C: Cursor> MergeCursor<'s, C> {
    /// Merges these sources. All of them must be in the same clustering order; `reversed` says
    /// that it is descending.
    pub fn new(
        shape: &'s TableShape,
        mode: MergeMode,
        reversed: bool,
        sources: impl IntoIterator<Item = C>,
    ) -> Self {
        let lanes = sources
            .into_iter()
            .map(|cursor| Lane {
                cursor,
                state: LaneState::Stale,
                member: false,
                open: DeletionTime::LIVE,
                token: Token::MIN,
            })
            .collect();
        let (keep, every) = match &mode {
            MergeMode::Live { now } => (Keep::Live { now: *now }, PASSED_MAX),
            MergeMode::All | MergeMode::Purge { .. } => (Keep::All, u32::MAX),
        };
        MergeCursor {
            shape,
            mode,
            reversed,
            lanes,
            in_partition: false,
            sole: None,
            keep,
            asks_purge: false,
            token: Token::MIN,
            key: Vec::new(),
            partition_deletion: DeletionTime::LIVE,
            open: DeletionTime::LIVE,
            shown_open: DeletionTime::LIVE,
            scratch: Vec::new(),
            current: Current::None,
            tombstones: 0,
            passing: Passing {
                every,
                count: 0,
                told: 0,
                hidden: 0,
                tombstones: 0,
                last: LeftOut::Static,
                due: None,
                due_prefix: Vec::new(),
                place: Vec::new(),
            },
            winner: 0,
            wins: 0,
        }
    }

    /// The source of that number, to feed it a block.
    pub fn source_mut(&mut self, number: u32) -> Option<&mut C> {
        self.lanes.get_mut(usize::try_from(number).ok()?).map(|l| &mut l.cursor)
    }

    /// The source of that number.
    #[inline]
    pub fn source(&self, number: usize) -> Option<&C> {
        self.lanes.get(number).map(|l| &l.cursor)
    }

    /// The sources, in the order they were given.
    pub fn sources(&self) -> impl Iterator<Item = &C> {
        self.lanes.iter().map(|l| &l.cursor)
    }

    /// Returns for each source if it has the current partition.
    pub fn members(&self) -> impl Iterator<Item = bool> {
        self.lanes.iter().map(|l| l.member)
    }

    /// A source that stands on the same partition as the merge does.
    #[inline]
    pub fn at_partition(&self) -> Option<&C> {
        match self.current {
            Current::Partition { lane, .. } => self.lanes.get(lane).map(|l| &l.cursor),
            _ => None,
        }
    }

    /// Tombstones and expired cells met so far, after merging.
    pub fn tombstones(&self) -> u32 {
        self.tombstones
    }

    /// Takes the scratch buffer back, to be used for the next merge.
    pub fn set_scratch(&mut self, mut scratch: Vec<u8>) {
        scratch.clear();
        self.scratch = scratch;
    }

    /// Ends the merge and returns the scratch buffer and the sources.
    pub fn into_parts(self) -> (Vec<u8>, impl Iterator<Item = C>) {
        (self.scratch, self.lanes.into_iter().map(|l| l.cursor))
    }

    /// Begins the first partition of all lanes; false at the end.
    fn begin_partition(&mut self) -> bool {
        if let ([lane], MergeMode::Live { .. }) = (self.lanes.as_mut_slice(), &self.mode) {
            let Some((_, deletion)) = lane.partition() else { return false };
            (lane.member, lane.open, lane.state) = (true, DeletionTime::LIVE, LaneState::Stale);
            (self.partition_deletion, self.sole) = (deletion, Some(0));
            self.passing.hidden =
                self.passing.hidden.saturating_add(u32::from(!deletion.is_live()));
            (self.open, self.shown_open) = (DeletionTime::LIVE, DeletionTime::LIVE);
            self.in_partition = true;
            self.current = Current::Partition { lane: 0, deletion: DeletionTime::LIVE };
            return true;
        }
        if let [lane] = self.lanes.as_mut_slice() {
            let Some((key, deletion)) = lane.partition() else { return false };
            if deletion.is_live() {
                if let MergeMode::Purge { .. } = &self.mode {
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    (self.token, self.asks_purge) = (lane.token, true);
                }
                (lane.member, lane.open, lane.state) = (true, DeletionTime::LIVE, LaneState::Stale);
                (self.partition_deletion, self.sole, self.wins) = (deletion, Some(0), 0);
                (self.open, self.shown_open) = (DeletionTime::LIVE, DeletionTime::LIVE);
                self.in_partition = true;
                self.current = Current::Partition { lane: 0, deletion };
                return true;
            }
        }
        self.begin_first_of_lanes()
    }

    /// The same where several lanes may have it, or it is deleted.
    #[inline]
    fn begin_first_of_lanes(&mut self) -> bool {
        let mut members: SmallVec<[bool; 8]> = SmallVec::from_elem(false, self.lanes.len());
        let Some(first) = first_of(&self.lanes, &mut members) else { return false };
        let FirstPartition { token, key, lane: first_lane, several, deletion } = first;
        let mut shown = deletion;
        match &self.mode {
            MergeMode::All => {}
            MergeMode::Live { .. } => shown = DeletionTime::LIVE,
            MergeMode::Purge { .. } => {
                self.token = token;
                self.key.clear();
                self.key.extend_from_slice(key);
                self.asks_purge = true;
            }
        }
        if !deletion.is_live() {
            self.passing.hidden = self.passing.hidden.saturating_add(1);
            self.ask_purge();
            if let Keep::Purge(purge) = &self.keep
                && purge.drops_deletion(&deletion)
            {
                shown = DeletionTime::LIVE;
            }
        }
        self.partition_deletion = deletion;
        self.sole = (!several).then_some(first_lane);
        self.wins = 0;
        for (lane, member) in self.lanes.iter_mut().zip(members) {
            lane.member = member;
            lane.open = DeletionTime::LIVE;
            if member {
                lane.state = LaneState::Stale;
            }
        }
        self.open = DeletionTime::LIVE;
        self.shown_open = DeletionTime::LIVE;
        self.in_partition = true;
        self.current = Current::Partition { lane: first_lane, deletion: shown };
        true
    }

    /// Determines the purge limit of the current partition, unless it is known.
    #[inline]
    fn ask_purge(&mut self) {
        if !std::mem::take(&mut self.asks_purge) {
            return;
        }
        if let MergeMode::Purge { now, gc_before, timestamp_below } = &self.mode {
            let timestamp_below = timestamp_below(self.token, &self.key);
            let gc_before = match gc_before {
                GcBefore::At(before) => *before,
                GcBefore::Of(of) => of(self.token),
            };
            self.keep = Keep::Purge(Purge { now: *now, gc_before, timestamp_below });
        }
    }

    /// The next item of a partition that only one lane has: its rows need no comparing.
    fn advance_sole(&mut self, index: usize) -> Result<Advance, CursorError> {
        while let Some(lane) = self.lanes.get_mut(index) {
            if lane.state == LaneState::Stale {
                match lane.cursor.advance()? {
                    Advance::Item => {}
                    Advance::End => break,
                    Advance::NeedBlock(request) => return Ok(needed(index, request)),
                }
            }
            lane.state = LaneState::Ready;
            if self.passing.due.is_some() && matches!(lane.cursor.item(), Item::Row { .. }) {
                if self.tells_at_place() {
                    return Ok(Advance::Item);
                }
                // The same row, before which nothing is due any more.
                continue;
            }
            let row = match lane.cursor.item() {
                Item::Row { row, .. } => row,
                Item::PartitionEnd => {
                    lane.member = false;
                    lane.state = LaneState::Stale;
                    self.passing.due = None;
                    self.in_partition = false;
                    self.current = Current::PartitionEnd;
                    return Ok(Advance::Item);
                }
                Item::Partition { .. } | Item::Static(_) | Item::Marker(_) => {
                    if self.step() || self.tells_of_passed() {
                        return Ok(Advance::Item);
                    }
                    continue;
                }
            };
            let active = if self.open.is_live() { self.partition_deletion } else { self.open };
            self.scratch.clear();
            let outcome = merge_rows(self.shape, &[row], active, self.keep, &mut self.scratch);
            lane.state = LaneState::Stale;
            self.tombstones = self.tombstones.saturating_add(outcome.tombstones);
            match outcome.row {
                Merged::Nothing => {
                    self.passing.last = LeftOut::Row(index);
                    if self.tells_of_passed() {
                        return Ok(Advance::Item);
                    }
                    continue;
                }
                Merged::Source(_) => self.current = Current::RowOf(index),
                Merged::Built => self.current = Current::RowBuilt(index),
            }
            return Ok(Advance::Item);
        }
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.state = LaneState::Done;
        }
        self.step();
        Ok(Advance::Item)
    }
}

/// Turns a source's request for a block into the merge's request.
fn needed(index: usize, request: BlockRequest) -> Advance {
    let source = u32::try_from(index).unwrap_or(u32::MAX);
    Advance::NeedBlock(BlockRequest { source, ..request })
}

impl<C: Cursor> Cursor for MergeCursor<'_, C> {
    fn advance(&mut self) -> Result<Advance, CursorError> {
        if self.in_partition {
            self.ask_purge();
            if let Some(index) = self.sole {
                return self.advance_sole(index);
            }
        }
        loop {
            for (index, lane) in self.lanes.iter_mut().enumerate() {
                if lane.state != LaneState::Stale || (self.in_partition && !lane.member) {
                    continue;
                }
                match lane.cursor.advance()? {
                    Advance::Item if self.in_partition => lane.state = LaneState::Ready,
                    Advance::Item => lane.stands(),
                    Advance::End => lane.state = LaneState::Done,
                    Advance::NeedBlock(request) => return Ok(needed(index, request)),
                }
            }
            if self.in_partition {
                if self.step() || self.tells_of_passed() {
                    return Ok(Advance::Item);
                }
            } else if self.begin_partition() {
                return Ok(Advance::Item);
            } else {
                return Ok(Advance::End);
            }
        }
    }

    #[inline]
    fn item(&self) -> Item<'_> {
        match self.current {
            Current::StaticOf(lane) | Current::RowOf(lane) => {
                if let Some(lane) = self.lanes.get(lane) {
                    return lane.cursor.item();
                }
            }
            Current::PartitionEnd => return Item::PartitionEnd,
            Current::Passed(_) => {
                let position = BoundRef::BOTTOM;
                return Item::Marker(Marker { position, close: None, open: None });
            }
            Current::Partition { lane, deletion } => {
                if let Some(lane) = self.lanes.get(lane)
                    && let Item::Partition { token, key, .. } = lane.cursor.item()
                {
                    return Item::Partition { token, key, deletion };
                }
            }
            Current::StaticBuilt => return Item::Static(RowRef::trusted(&self.scratch)),
            Current::RowFrom { name, lane } => {
                if let (Some(name), Some(lane)) = (self.lanes.get(name), self.lanes.get(lane))
                    && let Item::Row { clustering, .. } = name.cursor.item()
                    && let Item::Row { row, .. } = lane.cursor.item()
                {
                    return Item::Row { clustering, row };
                }
            }
            Current::RowBuilt(lane) => {
                if let Some(lane) = self.lanes.get(lane)
                    && let Item::Row { clustering, .. } = lane.cursor.item()
                {
                    return Item::Row { clustering, row: RowRef::trusted(&self.scratch) };
                }
            }
            Current::Marker { lane, close, open } => {
                if let Some(lane) = self.lanes.get(lane)
                    && let Item::Marker(marker) = lane.cursor.item()
                {
                    return Item::Marker(Marker { position: marker.position, close, open });
                }
            }
            Current::None => {}
        }
        stdx::invariant::broken(format_args!("merge: item asked for before advance"))
    }

    fn skip_partition(&mut self) {
        if !self.in_partition {
            return;
        }
        for lane in self.lanes.iter_mut().filter(|l| l.member) {
            lane.member = false;
            let at_end =
                lane.state == LaneState::Ready && matches!(lane.cursor.item(), Item::PartitionEnd);
            if lane.state != LaneState::Done {
                if !at_end {
                    lane.cursor.skip_partition();
                }
                lane.state = LaneState::Stale;
            }
        }
        self.passing.due = None;
        self.in_partition = false;
        self.current = Current::None;
    }
}

/// The bound of a slice or tombstone where iteration in read order enters it, and where it leaves.
pub fn in_read_order<'a>(
    start: BoundRef<'a>,
    end: BoundRef<'a>,
    reversed: bool,
) -> (BoundRef<'a>, BoundRef<'a>) {
    if reversed { (end, start) } else { (start, end) }
}
