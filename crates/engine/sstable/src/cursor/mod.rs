//! The cursor over one SSTable: one partition (forward or reversed) or a range of partitions.
//!
//! Bytes come from blocks that the driver feeds after [`Advance::NeedBlock`]. Rows are unpacked into
//! buffers that are reused, so an item costs no allocation. A reversed read unpacks one block of
//! the promoted index (the whole partition when it has none) at a time and hands it out backwards.
//!
//! Only rows inside the slices are shown. A range deletion that is open where a slice begins is
//! opened there, and closed where it ends. In a reversed read the items come in descending order
//! and `Marker::close` and `open` are meant in that direction.

mod ahead;
mod forward;
mod header;
mod reverse;
mod seek;
mod tries;

use std::cmp::Ordering;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use codec::{DecodeError, DecodeErrorKind, KeyHash};
use data::command::{KeyRange, RingBound};
use data::{
    Advance, BlockRequest, BoundRef, Cursor, CursorError, DeletionTime, Item, Marker, RowRef,
    Slices,
};
use sst_format::index::IndexInfo;
use sst_format::row::{decode_head, decode_marker, decode_row};
use sst_format::{Head, HeadKind, RowScratch};
use stdx::{ShardId, ShardMap, TableId, Token};

use crate::block::{Chunk, INDEX_BLOCK, INDEX_PAGE_BYTES, ROWS_BLOCK, TriePages, Window};
use crate::meta::SstableMeta;
use crate::search::{Found, IndexDamage, Promoted};

pub use ahead::{Follows, Lookahead};
use tries::RowTrie;

/// Shows only the partitions of one shard's slice of the ring, for files that span slices.
#[derive(Clone, Copy, Debug)]
pub struct TokenFilter {
    /// The owners of tokens.
    pub map: ShardMap,
    /// The table of the file.
    pub table: TableId,
    /// The shard whose partitions are shown.
    pub shard: ShardId,
}

impl TokenFilter {
    /// Returns true if the partitions of a token are shown.
    #[inline]
    pub fn shows(&self, token: Token) -> bool {
        self.map.shard_of(self.table, token) == self.shard
    }
}

/// Memory of a finished cursor, to be used by the next one.
#[derive(Debug, Default)]
pub struct CursorBuffers {
    scratch: RowScratch,
    key: Vec<u8>,
    data: Vec<u8>,
    index: Vec<u8>,
    arena: Vec<u8>,
    events: Vec<Event>,
    info: IndexInfo,
}

#[derive(Debug)]
enum Target {
    Partition,
    /// Boxed: most cursors are of one partition, and small ones move quickly.
    Range(Box<(KeyRange, Option<TokenFilter>)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was searched yet.
    Start,
    /// Searches the key's entry in the index, up to a position. `fresh`: start of the stretch, if
    /// it has no marks yet.
    FindEntry { end: u64, fresh: Option<u64> },
    /// Looking for the first entry of the range.
    FindStart,
    /// Format BTI: searches the key, or the first position of the range, in the trie.
    FindPlace,
    /// Format BTI: at an entry of Rows, which holds the partition's position.
    RowsEntry,
    /// Data is at a partition's header.
    PartitionHeader,
    /// Behind the header; the static row, if any, is next.
    StaticRow,
    /// Looking for the promoted block where the next slice begins.
    Seek,
    /// Like `Seek`, with the block known: its start and the deletion open there.
    SeekOpen { block: usize, offset: u64 },
    /// Rows, forward.
    Rows,
    /// Looking for the promoted block where the last slice ends.
    ReverseSeek,
    /// Unpacking a block for reversed reading: it ends there (`None` = at the end of partition).
    ReverseLoad { block: usize },
    /// Decoding rows up to a position into the arena.
    ReverseFill { block: usize, end: Option<u64> },
    /// Returning the unpacked rows.
    ReverseRows { block: usize },
    /// All rows of the partition were shown.
    PartitionEnd,
    /// Behind a partition (of a range), not necessarily at its end in the file.
    NextPartition,
    /// Passing over rows to the end of the partition.
    SkipRows,
    /// Nothing more.
    Done,
}

/// The item that [`Cursor::item`] shows.
#[derive(Clone, Debug)]
enum Current {
    None,
    Partition,
    Static,
    Row,
    ArenaRow {
        clustering: Range<usize>,
        row: Range<usize>,
    },
    Marker {
        after: bool,
        close: Option<DeletionTime>,
        open: Option<DeletionTime>,
    },
    ArenaMarker {
        prefix: Range<usize>,
        after: bool,
        close: Option<DeletionTime>,
        open: Option<DeletionTime>,
    },
    /// At a bound of a slice.
    SliceMarker {
        slice: usize,
        at_end: bool,
        close: Option<DeletionTime>,
        open: Option<DeletionTime>,
    },
    PartitionEnd,
}

/// A row or marker in the arena of a reversed read.
#[derive(Clone, Debug)]
struct Event {
    clustering: Range<usize>,
    kind: EventKind,
}

#[derive(Clone, Debug)]
enum EventKind {
    Row(Range<usize>),
    Marker { after: bool, close: Option<DeletionTime>, open: Option<DeletionTime> },
}

/// Where a row or marker lies relative to the current slice, in the direction of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Before,
    Inside,
    After,
}

enum Step {
    Again,
    Item,
    Need(u64),
    End,
}

type Result<T> = std::result::Result<T, CursorError>;

/// See the module.
#[derive(Debug)]
pub struct SstableCursor {
    meta: Rc<SstableMeta>,
    source: u32,
    target: Target,
    slices: Arc<Slices>,
    all: bool,
    reversed: bool,
    state: State,
    current: Current,
    data: Window,
    index: Window,
    scratch: RowScratch,
    key: Vec<u8>,
    token: Token,
    /// Hash of the current key, in a range of a file in the order of Murmur3.
    hash: Option<KeyHash>,
    deletion: DeletionTime,
    partition_start: u64,
    rows_start: u64,
    item_start: u64,
    promoted: Option<Promoted>,
    /// Format BTI: the trie of the partition's rows, and a position in it.
    row_trie: Option<RowTrie>,
    pages: TriePages,
    /// Bytes under which a trie is searched.
    place_key: Vec<u8>,
    info: IndexInfo,
    head: Option<Head>,
    ended: bool,
    slice: usize,
    in_slice: bool,
    open: Option<DeletionTime>,
    arena: Vec<u8>,
    events: Vec<Event>,
    /// A partition of the range was read.
    started: bool,
    /// A promoted block of a reversed read was entered: the open deletion is known.
    entered: bool,
}

impl SstableCursor {
    /// A cursor over one partition. `source` is the number that its block requests carry.
    pub fn partition(
        meta: Rc<SstableMeta>,
        source: u32,
        token: Token,
        key: &[u8],
        slices: Arc<Slices>,
        reversed: bool,
        buffers: CursorBuffers,
    ) -> SstableCursor {
        let mut cursor = SstableCursor::new(meta, source, Target::Partition, slices, buffers);
        cursor.reversed = reversed;
        cursor.token = token;
        cursor.key.clear();
        cursor.key.extend_from_slice(key);
        cursor
    }

    /// A cursor over a range of partitions, in order of (token, key).
    pub fn range(
        meta: Rc<SstableMeta>,
        source: u32,
        range: KeyRange,
        slices: Arc<Slices>,
        filter: Option<TokenFilter>,
    ) -> SstableCursor {
        let target = Target::Range(Box::new((range, filter)));
        SstableCursor::new(meta, source, target, slices, CursorBuffers::default())
    }

    /// A cursor over all that follows a position of Data where a partition begins. No index is
    /// asked.
    pub(crate) fn from_data(meta: Rc<SstableMeta>, position: u64) -> SstableCursor {
        let all = Arc::new(Slices::all());
        let mut cursor = SstableCursor::range(meta, 0, KeyRange::all(), all, None);
        cursor.data.seek(position);
        cursor.state = State::PartitionHeader;
        cursor
    }

    fn new(
        meta: Rc<SstableMeta>,
        source: u32,
        target: Target,
        slices: Arc<Slices>,
        buffers: CursorBuffers,
    ) -> SstableCursor {
        let data = Window::new(0, meta.data_block_bytes(), meta.data_length(), buffers.data);
        let (mark, index_length) = match meta.footer() {
            None => (INDEX_BLOCK, meta.index_length()),
            // The trie is read by nodes; the entries of Rows are read as plain bytes.
            Some(_) => (ROWS_BLOCK, meta.rows_length()),
        };
        let index = Window::new(mark, INDEX_PAGE_BYTES, index_length, buffers.index);
        SstableCursor {
            all: slices.is_all(),
            source,
            target,
            slices,
            reversed: false,
            state: State::Start,
            current: Current::None,
            data,
            index,
            scratch: buffers.scratch,
            key: buffers.key,
            token: Token::MIN,
            hash: None,
            deletion: DeletionTime::LIVE,
            partition_start: 0,
            rows_start: 0,
            item_start: 0,
            promoted: None,
            row_trie: None,
            pages: TriePages::default(),
            place_key: Vec::new(),
            info: buffers.info,
            head: None,
            ended: false,
            slice: 0,
            in_slice: false,
            open: None,
            arena: buffers.arena,
            events: buffers.events,
            started: false,
            entered: false,
            meta,
        }
    }

    /// Takes a block that was asked for. Others are ignored.
    pub fn feed(&mut self, block: u64, chunk: Rc<Chunk>) {
        if block & (INDEX_BLOCK | ROWS_BLOCK) != 0 {
            if self.meta.footer().is_some() {
                self.pages.feed(block, chunk.clone());
            }
            self.index.feed(block, chunk);
        } else {
            self.data.feed(block, chunk);
        }
    }

    /// Gives the memory back for the next cursor.
    pub fn into_buffers(self) -> CursorBuffers {
        CursorBuffers {
            scratch: self.scratch,
            key: self.key,
            data: self.data.into_buffer(),
            index: self.index.into_buffer(),
            arena: self.arena,
            events: self.events,
            info: self.info,
        }
    }

    /// Progress of a scan: uncompressed position in Data.
    pub fn position(&self) -> u64 {
        self.data.position()
    }

    /// Token of the current partition.
    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Hash of the current partition's key, where it is known: in ranges.
    #[inline]
    pub fn key_hash(&self) -> Option<KeyHash> {
        self.hash
    }

    /// Where the current partition begins in Data.
    pub fn partition_start(&self) -> u64 {
        self.partition_start
    }

    /// Where its rows begin, after header and static row (known once the static row was passed).
    pub fn rows_start(&self) -> u64 {
        self.rows_start
    }

    /// Where the current row or marker begins, in a forward read.
    pub fn item_start(&self) -> u64 {
        self.item_start
    }

    fn corrupt_data(&self, offset: u64, what: impl Into<String>) -> CursorError {
        CursorError::Corrupt { file: self.meta.data_file().to_owned(), offset, what: what.into() }
    }

    fn corrupt_index(&self, damage: IndexDamage) -> CursorError {
        let IndexDamage { offset, what } = damage;
        CursorError::Corrupt { file: self.meta.index_file().to_owned(), offset, what }
    }

    /// A decoder ran out of bytes: more are needed, or the file is damaged.
    #[cold]
    fn data_error(&self, base: usize, error: &DecodeError) -> Result<Step> {
        if let (DecodeErrorKind::Truncated { .. }, Some(block)) = (error.kind, self.data.needed()) {
            return Ok(Step::Need(block));
        }
        Err(self.damaged(base, error))
    }

    #[cold]
    fn damaged(&self, base: usize, error: &DecodeError) -> CursorError {
        let offset = base.saturating_add(error.offset) as u64;
        self.corrupt_data(self.data.position().saturating_add(offset), error.to_string())
    }

    fn index_error<T>(&self, error: &DecodeError) -> Result<Found<T>> {
        if let (DecodeErrorKind::Truncated { .. }, Some(block)) = (error.kind, self.index.needed())
        {
            return Ok(Found::Need(block));
        }
        let offset = self.index.position().saturating_add(error.offset as u64);
        Err(self.corrupt_index(IndexDamage { offset, what: error.to_string() }))
    }

    fn step(&mut self) -> Result<Step> {
        match self.state {
            State::Start if self.meta.unreadable.is_some() => {
                Err(self.corrupt_data(0, self.meta.unreadable().unwrap_or_default()))
            }
            State::Start => self.start(),
            State::FindEntry { end, fresh } => self.find_entry(end, fresh),
            State::FindStart => self.find_start(),
            State::FindPlace => self.find_place(),
            State::RowsEntry => self.rows_entry(),
            State::PartitionHeader => self.partition_header(),
            State::StaticRow => self.static_row(),
            State::Seek => self.seek(),
            State::SeekOpen { block, offset } => self.seek_open(block, offset),
            State::Rows => self.rows(),
            State::ReverseSeek => self.reverse_seek(),
            State::ReverseLoad { block } => self.reverse_load(block),
            State::ReverseFill { block, end } => self.reverse_fill(block, end),
            State::ReverseRows { block } => self.reverse_rows(block),
            State::PartitionEnd => {
                self.current = Current::PartitionEnd;
                self.state = State::NextPartition;
                Ok(Step::Item)
            }
            State::NextPartition => {
                self.state = match self.target {
                    Target::Partition => State::Done,
                    Target::Range(_) if self.ended => State::PartitionHeader,
                    Target::Range(_) => State::SkipRows,
                };
                Ok(Step::Again)
            }
            State::SkipRows => self.skip_rows(),
            State::Done => Ok(Step::End),
        }
    }

    fn start(&mut self) -> Result<Step> {
        let meta = self.meta.clone();
        let Some(summary) = meta.summary() else {
            self.start_in_trie();
            return Ok(Step::Again);
        };
        self.state = match &self.target {
            Target::Partition => match summary.find(self.token, &self.key) {
                None => {
                    self.meta.note_miss();
                    State::Done
                }
                Some((from, to)) => {
                    let end = to.unwrap_or(self.meta.index_length());
                    let start = self.meta.search_start(from, self.token);
                    self.index.seek(start.unwrap_or(from));
                    State::FindEntry { end, fresh: start.is_none().then_some(from) }
                }
            },
            Target::Range(target) => {
                let from = match &target.0.start {
                    RingBound::Token { token, .. } | RingBound::Key { token, .. } => *token,
                };
                if from > self.meta.last_token() {
                    State::Done
                } else if from < self.meta.first_token() {
                    State::PartitionHeader
                } else {
                    self.index.seek(summary.find_token(from));
                    State::FindStart
                }
            }
        };
        Ok(Step::Again)
    }

    /// Reads the next head unless it was read already. `body`: its body is wanted too.
    #[inline]
    fn ensure_head(&mut self, body: bool) -> Result<Found<Head>> {
        let head = match self.head {
            Some(head) => head,
            None => {
                let bytes = self.data.bytes();
                match decode_head(self.meta.schema(), bytes, &mut self.scratch) {
                    Ok(head) => head,
                    Err(e) => {
                        return match self.data_error(0, &e)? {
                            Step::Need(block) => Ok(Found::Need(block)),
                            _ => Err(self.damaged(0, &e)),
                        };
                    }
                }
            }
        };
        self.head = Some(head);
        if body && head.end > self.data.bytes().len() {
            return match self.data.needed() {
                Some(block) => Ok(Found::Need(block)),
                None => {
                    let at = self.data.position();
                    Err(self.corrupt_data(at, "a row runs past the end of the file"))
                }
            };
        }
        Ok(Found::Is(head))
    }

    /// Skips the current head and its body.
    #[inline]
    fn consume(&mut self, head: &Head) -> Result<()> {
        self.item_start = self.data.position();
        self.data.skip(head.end);
        self.head = None;
        if self.data.position() > self.meta.data_length() {
            let at = self.data.position();
            return Err(self.corrupt_data(at, "a row runs past the end of the file"));
        }
        Ok(())
    }

    #[inline]
    fn unpack(&mut self, head: &Head) -> Result<bool> {
        let bytes = self.data.bytes();
        let body = bytes.get(head.body..head.end).unwrap_or(&[]);
        match decode_row(self.meta.schema(), head, body, &mut self.scratch) {
            Ok(row) => Ok(!row.is_empty()),
            Err(e) => Err(self.damaged(head.body, &e)),
        }
    }

    fn unpack_marker(
        &mut self,
        head: &Head,
    ) -> Result<(bool, Option<DeletionTime>, Option<DeletionTime>)> {
        let HeadKind::Marker(kind) = head.kind else { return Ok((false, None, None)) };
        let body = self.data.bytes().get(head.body..head.end).unwrap_or(&[]);
        match decode_marker(self.meta.schema(), kind, body) {
            Ok(marker) => Ok((kind.is_after(), marker.close, marker.open)),
            Err(e) => Err(self.damaged(head.body, &e)),
        }
    }

    fn static_row(&mut self) -> Result<Step> {
        let head = match self.ensure_head(true)? {
            Found::Need(block) => return Ok(Step::Need(block)),
            Found::Is(head) => head,
        };
        if head.kind != HeadKind::StaticRow {
            let at = self.data.position();
            return Err(self.corrupt_data(at, "the partition has no static row"));
        }
        let shown = self.unpack(&head)?;
        self.consume(&head)?;
        self.rows_start = self.data.position();
        self.state = self.first_state();
        if !shown {
            return Ok(Step::Again);
        }
        self.current = Current::Static;
        Ok(Step::Item)
    }

    /// The state after header and static row.
    fn first_state(&self) -> State {
        if self.slices.0.is_empty() {
            State::PartitionEnd
        } else if self.reversed {
            if self.has_row_index() { State::ReverseSeek } else { State::ReverseLoad { block: 0 } }
        } else if self.has_row_index() {
            State::Seek
        } else {
            State::Rows
        }
    }

    /// Returns true if blocks of the partition's rows can be looked up.
    fn has_row_index(&self) -> bool {
        self.promoted.is_some() || self.row_trie.is_some()
    }

    /// Index of the current slice in the list: reversed reads run from the last to the first.
    fn slice_index(&self) -> usize {
        if self.reversed {
            self.slices.0.len().saturating_sub(1).saturating_sub(self.slice)
        } else {
            self.slice
        }
    }

    #[inline]
    fn place(&self, is_row: bool, prefix: &[u8], after: bool) -> Place {
        if self.all {
            return Place::Inside;
        }
        let Some(slice) = self.slices.0.get(self.slice_index()) else { return Place::After };
        let comparator = self.meta.comparator();
        let compare = |bound: BoundRef<'_>| {
            let order = if is_row {
                comparator.compare_to_bound(prefix, bound)
            } else {
                comparator.compare_bounds(BoundRef { prefix, after }, bound)
            };
            if self.reversed { order.reverse() } else { order }
        };
        let (enter, leave) =
            if self.reversed { (slice.end(), slice.start()) } else { (slice.start(), slice.end()) };
        if !self.in_slice && compare(enter) != Ordering::Greater {
            return Place::Before;
        }
        let open_end = leave.prefix.is_empty() && leave.after != self.reversed;
        if open_end || compare(leave) == Ordering::Less { Place::Inside } else { Place::After }
    }

    /// Enters the current slice. True: a marker is to be shown there.
    fn enter_slice(&mut self) -> bool {
        self.in_slice = true;
        let Some(open) = self.open else { return false };
        let slice = self.slice_index();
        self.current =
            Current::SliceMarker { slice, at_end: self.reversed, close: None, open: Some(open) };
        true
    }

    /// Leaves the current slice. True: a marker is to be shown at its end.
    fn leave_slice(&mut self) -> bool {
        let slice = self.slice_index();
        self.in_slice = false;
        self.slice = self.slice.saturating_add(1);
        let Some(close) = self.open else { return false };
        self.current =
            Current::SliceMarker { slice, at_end: !self.reversed, close: Some(close), open: None };
        true
    }
}

fn needed(found: Found<()>) -> Step {
    match found {
        Found::Need(block) => Step::Need(block),
        Found::Is(()) => Step::Again,
    }
}

fn append(arena: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let start = arena.len();
    arena.extend_from_slice(bytes);
    start..arena.len()
}

/// Order of a first or last name of a promoted block against a bound.
fn compare_prefix(
    comparator: &data::ClusteringComparator,
    prefix: &sst_format::clustering::Prefix,
    bound: BoundRef<'_>,
) -> Ordering {
    if prefix.kind == sst_format::clustering::PrefixKind::Clustering {
        comparator.compare_to_bound(&prefix.values, bound)
    } else {
        comparator.compare_bounds(prefix.bound(), bound)
    }
}

/// Returns true if a key lies after a position of the ring.
fn is_behind(token: Token, key: &[u8], bound: &RingBound) -> bool {
    match bound {
        RingBound::Token { token: at, after } => {
            if *after {
                token > *at
            } else {
                token >= *at
            }
        }
        RingBound::Key { token: at, key: at_key, after } => {
            match (token, key).cmp(&(*at, at_key.as_slice())) {
                Ordering::Less => false,
                Ordering::Equal => !after,
                Ordering::Greater => true,
            }
        }
    }
}

impl Cursor for SstableCursor {
    fn advance(&mut self) -> Result<Advance> {
        loop {
            let step = match self.state {
                // The usual state of a scan.
                State::Rows => self.rows(),
                _ => self.step(),
            };
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Item) => return Ok(Advance::Item),
                Ok(Step::Need(block)) => {
                    return Ok(Advance::NeedBlock(BlockRequest { source: self.source, block }));
                }
                Ok(Step::End) => {
                    self.current = Current::None;
                    return Ok(Advance::End);
                }
                Err(e) => {
                    self.state = State::Done;
                    self.current = Current::None;
                    return Err(e);
                }
            }
        }
    }

    fn item(&self) -> Item<'_> {
        let arena = |range: &Range<usize>| self.arena.get(range.clone()).unwrap_or(&[]);
        match &self.current {
            Current::Partition => {
                Item::Partition { token: self.token, key: &self.key, deletion: self.deletion }
            }
            Current::Static => Item::Static(RowRef::trusted(&self.scratch.row)),
            Current::Row => Item::Row {
                clustering: &self.scratch.clustering,
                row: RowRef::trusted(&self.scratch.row),
            },
            Current::ArenaRow { clustering, row } => {
                Item::Row { clustering: arena(clustering), row: RowRef::trusted(arena(row)) }
            }
            Current::Marker { after, close, open } => Item::Marker(Marker {
                position: BoundRef { prefix: &self.scratch.clustering, after: *after },
                close: *close,
                open: *open,
            }),
            Current::ArenaMarker { prefix, after, close, open } => Item::Marker(Marker {
                position: BoundRef { prefix: arena(prefix), after: *after },
                close: *close,
                open: *open,
            }),
            Current::SliceMarker { slice, at_end, close, open } => {
                let position = match self.slices.0.get(*slice) {
                    Some(slice) if *at_end => slice.end(),
                    Some(slice) => slice.start(),
                    None => BoundRef::TOP,
                };
                Item::Marker(Marker { position, close: *close, open: *open })
            }
            Current::None | Current::PartitionEnd => Item::PartitionEnd,
        }
    }

    fn skip_partition(&mut self) {
        match self.state {
            State::Start
            | State::FindEntry { .. }
            | State::FindStart
            | State::FindPlace
            | State::RowsEntry
            | State::PartitionHeader
            | State::Done => {}
            State::NextPartition | State::SkipRows => {}
            _ => self.state = State::NextPartition,
        }
    }
}
