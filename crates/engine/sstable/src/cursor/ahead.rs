//! Lookahead: scans the following partitions before they are read. It finds those of one row of the usual form
//! ([`sst_format::row_copy`]), all that are in memory at once, while their bytes are in the processor's nearest cache.
//! A merge of many files then knows the next partitions of all of them without each cursor's steps.

use std::rc::Rc;

use codec::KeyHash;
use sst_format::row::{decode_partition_header, is_partition_end};
use sst_format::{RawRow, RowCopier, RowPlace};
use stdx::Token;

use super::{Current, SstableCursor, State, Target, is_behind};
use crate::block::Chunk;

/// Limit of partitions scanned in one pass, so that the notes about them stay small.
const AHEAD_MAX: usize = 256;
/// A partition with this many bytes in memory, and not of the usual form, is not treated as one
/// that the end of a block cuts off.
const CUT_OFF_BYTES: usize = 4096;

/// The data that follows the partitions that were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follows {
    /// Unknown: ask the cursor.
    #[default]
    Unknown,
    /// Data in that block, or a partition that continues there.
    Block(u64),
    /// A partition of another form, with that token.
    Other(Token),
    /// More partitions, which are in memory.
    More,
    /// Nothing.
    End,
}

/// A partition of one row.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: KeyHash,
    row: RowPlace,
    /// From the start of the bytes in which it lies.
    at: u32,
    /// Bytes of its key, and of its header.
    key: u16,
    header: u16,
}

impl Place {
    /// Bytes with the mark of its end.
    fn length(&self) -> usize {
        usize::from(self.header) + self.row.length() + 1
    }
}

/// Partitions of one row that follow in a file, as [`SstableCursor::look_ahead`] finds them. Keeps their bytes.
#[derive(Debug, Default)]
pub struct Lookahead {
    places: Vec<Place>,
    /// Behind the last one.
    follows: Follows,
    /// Where the first one begins in Data.
    start: u64,
    /// The first ones may lie in several blocks: their bytes, and how many they are.
    joined: Vec<u8>,
    joined_count: usize,
    /// The others lie here, and where it begins in Data.
    chunk: Option<Rc<Chunk>>,
    chunk_start: u64,
}

impl Lookahead {
    fn clear(&mut self) {
        self.places.clear();
        self.joined.clear();
        self.joined_count = 0;
        self.chunk = None;
        self.follows = Follows::Unknown;
    }

    /// How many were found.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// None was found.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the kind of data that follows the last one.
    pub fn follows(&self) -> Follows {
        self.follows
    }

    /// Token of the last one.
    pub fn last_token(&self) -> Option<Token> {
        self.places.last().map(|place| place.hash.token)
    }

    /// Tokens from one of them on.
    #[inline]
    pub fn tokens_from(&self, index: usize) -> impl Iterator<Item = Token> {
        self.places.get(index..).unwrap_or(&[]).iter().map(|place| place.hash.token)
    }

    /// The row of one of them, as far as that is known without its bytes.
    #[inline]
    pub fn row_place(&self, index: usize) -> Option<&RowPlace> {
        self.places.get(index).map(|place| &place.row)
    }

    #[inline]
    fn bytes_of(&self, index: usize) -> Option<(&Place, &[u8])> {
        let place = self.places.get(index)?;
        let run = match &self.chunk {
            Some(chunk) if index >= self.joined_count => chunk.bytes(),
            _ => &self.joined,
        };
        Some((place, run.get(place.at as usize..)?))
    }

    /// Asks the processor to load the bytes of one of them.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if let Some((place, bytes)) = self.bytes_of(index) {
            rt::prefetch(bytes.get(..place.length()).unwrap_or(&[]));
        }
    }

    /// Hash and bytes of a key.
    #[inline]
    pub fn key(&self, index: usize) -> Option<(KeyHash, &[u8])> {
        let (place, bytes) = self.bytes_of(index)?;
        Some((place.hash, bytes.get(2..2 + usize::from(place.key))?))
    }

    /// The same with the row. `copier` is the one with which it was found.
    #[inline]
    pub fn partition<'a>(
        &'a self,
        index: usize,
        copier: &'a RowCopier,
    ) -> Option<(KeyHash, &'a [u8], RawRow<'a>)> {
        let (place, bytes) = self.bytes_of(index)?;
        let (header, rows) = bytes.split_at_checked(usize::from(place.header))?;
        let key = header.get(2..2 + usize::from(place.key))?;
        Some((place.hash, key, copier.row_at(rows, &place.row)?))
    }

    /// Offset in Data at which one of them begins, or the data after the last one.
    fn position(&self, index: usize) -> u64 {
        if let Some(place) = self.places.get(index) {
            let start = if index < self.joined_count { self.start } else { self.chunk_start };
            return start + u64::from(place.at);
        }
        let last = index.checked_sub(1).and_then(|last| Some((last, self.places.get(last)?)));
        last.map_or(self.start, |(last, place)| self.position(last) + place.length() as u64)
    }
}

/// The data at a position.
enum Found {
    Place(Place),
    Other(Token),
    CutOff,
    /// Damage, or data that the lookahead does not handle.
    Unclear,
}

impl SstableCursor {
    /// Scans the following partitions, as far as they are in memory, up to one that is not of one
    /// row that `copier` copies. The cursor, one over a range that stands between two partitions,
    /// does not move. Without a copier it finds no partitions, but reports what follows.
    pub fn look_ahead(&mut self, copier: Option<&RowCopier>, ahead: &mut Lookahead) {
        ahead.clear();
        match self.state {
            State::PartitionHeader => {}
            State::NextPartition if self.ended => self.state = State::PartitionHeader,
            State::Done => {
                ahead.follows = Follows::End;
                return;
            }
            // It stands at the start of one.
            _ if self.is_at_partition() => {
                ahead.follows = Follows::Other(self.token);
                return;
            }
            _ => return,
        }
        let Target::Range(_) = &self.target else { return };
        let copier = copier.filter(|_| self.all && !self.meta.schema().has_static());
        let mut position = self.data.position();
        let (chunk, chunk_start) = self.data.block();
        (ahead.start, ahead.chunk, ahead.chunk_start) = (position, chunk.cloned(), chunk_start);
        let mut before = self.started.then_some((self.token, self.key.as_slice()));
        loop {
            if ahead.places.len() == AHEAD_MAX {
                ahead.follows = Follows::More;
                return;
            }
            let bytes = self.data.bytes_from(position);
            let end = position + bytes.len() as u64;
            if bytes.is_empty() {
                ahead.follows = self.data.block_at(end).map_or(Follows::End, Follows::Block);
                return;
            }
            let mut place = match self.found(copier, bytes, &mut before) {
                Found::Place(place) => place,
                Found::Other(token) => {
                    ahead.follows = Follows::Other(token);
                    return;
                }
                Found::CutOff => {
                    ahead.follows =
                        self.data.block_at(end).map_or(Follows::Unknown, Follows::Block);
                    return;
                }
                Found::Unclear => return,
            };
            let length = place.length();
            let from = match position.checked_sub(chunk_start) {
                Some(in_chunk) => in_chunk,
                None => {
                    ahead.joined.extend_from_slice(bytes.get(..length).unwrap_or(&[]));
                    ahead.joined_count += 1;
                    position - ahead.start
                }
            };
            let Ok(at) = u32::try_from(from) else { return };
            place.at = at;
            ahead.places.push(place);
            position += length as u64;
        }
    }

    /// The partition at the start of `bytes`, which follows the one before.
    #[inline]
    fn found<'b>(
        &self,
        copier: Option<&RowCopier>,
        bytes: &'b [u8],
        before: &mut Option<(Token, &'b [u8])>,
    ) -> Found {
        let cut_off = || if bytes.len() < CUT_OFF_BYTES { Found::CutOff } else { Found::Unclear };
        let Ok((key, deletion, header)) = decode_partition_header(bytes, self.meta.version())
        else {
            return cut_off();
        };
        let Some(hash) = self.meta.hash_of(key) else { return Found::Unclear };
        // The cursor reports damage.
        if before.is_some_and(|before| before >= (hash.token, key)) {
            return Found::Unclear;
        }
        *before = Some((hash.token, key));
        let other = Found::Other(hash.token);
        let (Some(copier), Target::Range(target)) = (copier, &self.target) else { return other };
        let (range, filter) = &**target;
        let is_owned = filter.as_ref().is_none_or(|f| f.shows(hash.token));
        if !is_owned
            || !deletion.is_live()
            || is_behind(hash.token, key, &range.end)
            || !is_behind(hash.token, key, &range.start)
        {
            return other;
        }
        let rows = bytes.get(header..).unwrap_or(&[]);
        let Some(row) = copier.row_inline(rows) else {
            return if bytes.len() < CUT_OFF_BYTES { Found::CutOff } else { other };
        };
        match rows.get(row.length..) {
            None | Some([]) => return Found::CutOff,
            Some(behind) if is_partition_end(behind) => {}
            Some(_) => return other,
        }
        let (key, header) = (u16::try_from(key.len()), u16::try_from(header));
        let (Ok(key), Ok(header), Some(row)) = (key, header, row.place()) else { return other };
        Found::Place(Place { hash, row, at: 0, key, header })
    }

    /// It stands at the start of a partition, whose header it has read.
    fn is_at_partition(&self) -> bool {
        matches!(self.current, Current::Partition) && self.data.position() == self.rows_start
    }

    /// Goes back to before the header of the partition that it stands at the start of. False: that is not in memory any
    /// more, and nothing has changed.
    pub fn step_back(&mut self) -> bool {
        if !self.is_at_partition() || !self.data.holds(self.partition_start) {
            return false;
        }
        self.data.seek(self.partition_start);
        self.current = Current::None;
        self.state = State::PartitionHeader;
        // The key was compared with the one before when it was read, and will be read again.
        self.started = false;
        true
    }

    /// Returns true if the cursor is at the start of that partition, or directly after its header.
    pub fn is_at(&self, ahead: &Lookahead, index: usize) -> bool {
        let at = match self.is_at_partition() {
            true => self.partition_start,
            false => self.data.position(),
        };
        at == ahead.position(index)
    }

    /// Skips the partitions before `index`.
    pub fn pass_ahead(&mut self, ahead: &Lookahead, index: usize) {
        let Some((hash, key)) = index.checked_sub(1).and_then(|last| ahead.key(last)) else {
            return;
        };
        (self.token, self.hash, self.started) = (hash.token, Some(hash), true);
        self.key.clear();
        self.key.extend_from_slice(key);
        self.head = None;
        self.ended = true;
        self.current = Current::PartitionEnd;
        self.state = State::PartitionHeader;
        self.data.seek(ahead.position(index));
    }
}
