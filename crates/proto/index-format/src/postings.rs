//! Lists of row ids: groups of up to 128 ids, packed gaps.
//!
//! A list is a vint of its count, then groups. A group is a vint of its first id over the smallest that may follow,
//! then, if it has more ids, a vint of how much its span exceeds that of consecutive ids, then, if that is not 0,
//! the width of a gap and the packed gaps, each one less than the distance. A reader skips a group by its head.
//!
//! A list of up to 4 KiB is stored as one piece; a longer one as blocks of about that size and a directory.

use codec::{Reader, Writer};

use crate::bits::{self, GROUP};
use crate::block::{Feed, Output};
use crate::{Block, BlockKind, BlockRef, IndexError};

/// Bytes of groups at which a list gets its next block.
pub(crate) const CHUNK_BYTES: usize = 4096;
/// Bytes of an entry of a directory: last id, offset, length.
const DIRECTORY_ENTRY: usize = 16;

/// Position of a list outside of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListRef {
    /// A part of a block of lists.
    Part {
        /// The block.
        block: BlockRef,
        /// Offset of the list in its payload.
        start: usize,
    },
    /// Its directory.
    Directory(BlockRef),
}

/// Outcome of [`ListEncoder::finish`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Encoded {
    /// The list as one piece; the caller stores it.
    Whole(Vec<u8>),
    /// The list is written; this is its directory.
    Directory(BlockRef),
}

/// Encodes one list at a time.
#[derive(Debug, Default)]
pub(crate) struct ListEncoder {
    pending: Vec<u32>,
    groups: Vec<u8>,
    /// Ids in `groups`.
    grouped: u64,
    /// Smallest id that may follow those in `groups`.
    floor: u64,
    last: u32,
    directory: Vec<u8>,
    count: u64,
}

impl ListEncoder {
    /// Ids of the list so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The ids, while none is packed.
    pub(crate) fn few(&self) -> Option<&[u32]> {
        (self.count == self.pending.len() as u64).then_some(&self.pending)
    }

    /// Adds an id above all before.
    pub(crate) fn push(&mut self, id: u32, out: &mut Output) -> Result<(), IndexError> {
        self.count += 1;
        self.pending.push(id);
        if self.pending.len() == GROUP {
            self.pack_pending();
            if self.groups.len() >= CHUNK_BYTES {
                self.write_chunk(out)?;
            }
        }
        Ok(())
    }

    /// Forgets a list that the caller stored by [`ListEncoder::few`].
    pub(crate) fn reset(&mut self) {
        self.pending.clear();
        self.count = 0;
    }

    fn pack_pending(&mut self) {
        let (Some(first), Some(last)) = (self.pending.first(), self.pending.last()) else { return };
        self.groups.put_vint_unsigned(u64::from(*first) - self.floor);
        let gaps = self.pending.len() as u64 - 1;
        if gaps > 0 {
            let excess = u64::from(last - first) - gaps;
            self.groups.put_vint_unsigned(excess);
            if excess > 0 {
                let gaps = || self.pending.iter().zip(self.pending.iter().skip(1));
                let gaps = || gaps().map(|(a, b)| u64::from(b - a) - 1);
                let width = bits::width(gaps().fold(0, |all, gap| all | gap));
                self.groups.push(width.to_le_bytes()[0]);
                bits::pack(gaps(), width, &mut self.groups);
            }
        }
        self.grouped += self.pending.len() as u64;
        self.floor = u64::from(*last) + 1;
        self.last = *last;
        self.pending.clear();
    }

    fn take_list(&mut self) -> Vec<u8> {
        let mut list = Vec::with_capacity(self.groups.len() + 5);
        list.put_vint_unsigned(self.grouped);
        list.append(&mut self.groups);
        self.grouped = 0;
        self.floor = 0;
        list
    }

    fn write_chunk(&mut self, out: &mut Output) -> Result<(), IndexError> {
        let list = self.take_list();
        let at = out.put_block(BlockKind::Postings, &list)?;
        self.directory.put_u32(self.last);
        self.directory.put_u64(at.offset);
        self.directory.put_u32(at.length);
        Ok(())
    }

    /// Ends the list.
    pub(crate) fn finish(&mut self, out: &mut Output) -> Result<Encoded, IndexError> {
        self.pack_pending();
        self.count = 0;
        if self.directory.is_empty() {
            return Ok(Encoded::Whole(self.take_list()));
        }
        if self.grouped > 0 {
            self.write_chunk(out)?;
        }
        let directory = out.put_block(BlockKind::Directory, &self.directory)?;
        self.directory.clear();
        Ok(Encoded::Directory(directory))
    }
}

/// Reads a list in a block.
#[derive(Debug)]
struct GroupReader {
    block: Block,
    /// Offset of the next group.
    next: usize,
    /// Ids in the groups from `next`.
    left: u64,
    floor: u64,
    ids: [u32; GROUP],
    at: usize,
    len: usize,
}

impl GroupReader {
    fn open(block: Block, start: usize) -> Result<GroupReader, IndexError> {
        let mut r = Reader::new(block.payload(), "list of rows");
        r.skip(start)?;
        let left = r.vint_unsigned()?;
        let next = r.position();
        Ok(GroupReader { block, next, left, floor: 0, ids: [0; GROUP], at: 0, len: 0 })
    }

    /// The next id of at least `bound`.
    fn next(&mut self, bound: u32) -> Result<Option<u32>, IndexError> {
        loop {
            while let Some(id) = self.ids.get(self.at..self.len).and_then(<[u32]>::first) {
                self.at += 1;
                if *id >= bound {
                    return Ok(Some(*id));
                }
            }
            if self.left == 0 {
                return Ok(None);
            }
            self.load_group(bound)?;
        }
    }

    /// Decodes the next group, or skips it when all of its ids are below `bound`.
    fn load_group(&mut self, bound: u32) -> Result<(), IndexError> {
        let mut r = Reader::new(self.block.payload(), "list of rows");
        r.skip(self.next)?;
        let invalid = || self.block.invalid("list of rows whose ids do not ascend");
        let count = usize::try_from(self.left).unwrap_or(GROUP).min(GROUP);
        let gaps = count - 1;
        let first = self.floor.checked_add(r.vint_unsigned()?).ok_or_else(invalid)?;
        let excess = if gaps > 0 { r.vint_unsigned()? } else { 0 };
        let last = first.checked_add(excess).and_then(|id| id.checked_add(gaps as u64));
        let last = last.and_then(|id| u32::try_from(id).ok()).ok_or_else(invalid)?;
        let first = u32::try_from(first).map_err(|_| invalid())?;
        let width = if excess > 0 { u32::from(r.u8()?) } else { 0 };
        if width > 32 {
            return Err(invalid());
        }
        let packed = r.bytes(bits::packed_len(gaps, width))?;
        if last < bound {
            self.len = 0;
        } else {
            let [head, tail @ ..] = &mut self.ids;
            *head = first;
            let tail = tail.get_mut(..gaps).unwrap_or_default();
            bits::unpack(packed, width, tail);
            let mut id = first;
            for slot in tail {
                id = id.wrapping_add(*slot).wrapping_add(1);
                *slot = id;
            }
            // Gaps that wrap around cannot sum up to the last id without an id that is out of order.
            let ids = self.ids.get(..count).unwrap_or_default();
            if id != last || (width >= 25 && !ids.is_sorted_by(|a, b| a < b)) {
                return Err(invalid());
            }
            self.len = count;
        }
        self.at = 0;
        self.left -= count as u64;
        self.floor = u64::from(last) + 1;
        self.next = r.position();
        Ok(())
    }
}

/// Outcome of [`ListCursor::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListStep {
    Id(u32),
    Need(BlockRef),
    End,
}

#[derive(Debug)]
enum Rest {
    /// Ids in memory, from this index.
    Ids(Vec<u32>, usize),
    /// A list that is not open yet.
    Part(BlockRef, usize),
    /// A directory that is not open yet.
    Unopened(BlockRef),
    /// The next entry of a directory.
    Directory(Block, usize),
    None,
}

/// Ids of one list, ascending.
#[derive(Debug)]
pub(crate) struct ListCursor {
    rest: Rest,
    reader: Option<Box<GroupReader>>,
}

impl ListCursor {
    pub(crate) fn of_ids(ids: Vec<u32>) -> ListCursor {
        ListCursor { rest: Rest::Ids(ids, 0), reader: None }
    }

    pub(crate) fn of(list: ListRef) -> ListCursor {
        let rest = match list {
            ListRef::Part { block, start } => Rest::Part(block, start),
            ListRef::Directory(at) => Rest::Unopened(at),
        };
        ListCursor { rest, reader: None }
    }

    pub(crate) fn open(block: Block, start: usize) -> Result<ListCursor, IndexError> {
        let reader = Some(Box::new(GroupReader::open(block, start)?));
        Ok(ListCursor { rest: Rest::None, reader })
    }

    /// The next id of at least `bound`.
    pub(crate) fn next(&mut self, bound: u32, feed: &Feed) -> Result<ListStep, IndexError> {
        loop {
            if let Some(reader) = &mut self.reader {
                if let Some(id) = reader.next(bound)? {
                    return Ok(ListStep::Id(id));
                }
                self.reader = None;
            }
            match &mut self.rest {
                Rest::Ids(ids, at) => {
                    let ahead = ids.get(*at..).unwrap_or_default();
                    *at += if ahead.first().is_some_and(|id| *id < bound) {
                        ahead.partition_point(|id| *id < bound)
                    } else {
                        0
                    };
                    let Some(id) = ids.get(*at) else { return Ok(ListStep::End) };
                    *at += 1;
                    return Ok(ListStep::Id(*id));
                }
                Rest::Part(at, start) => {
                    let Some(block) = feed.get(*at, BlockKind::Postings)? else {
                        return Ok(ListStep::Need(*at));
                    };
                    self.reader = Some(Box::new(GroupReader::open(block, *start)?));
                    self.rest = Rest::None;
                }
                Rest::Unopened(at) => {
                    let Some(block) = feed.get(*at, BlockKind::Directory)? else {
                        return Ok(ListStep::Need(*at));
                    };
                    self.rest = Rest::Directory(block, 0);
                }
                Rest::Directory(block, next) => {
                    let entries = block.payload().as_chunks::<DIRECTORY_ENTRY>().0;
                    let ahead = entries.get(*next..).unwrap_or_default();
                    let skipped = ahead.partition_point(|entry| last_id(entry) < bound);
                    let Some(entry) = ahead.get(skipped) else { return Ok(ListStep::End) };
                    *next += skipped;
                    let at = chunk_of(entry, block)?;
                    let Some(chunk) = feed.get(at, BlockKind::Postings)? else {
                        return Ok(ListStep::Need(at));
                    };
                    *next += 1;
                    self.reader = Some(Box::new(GroupReader::open(chunk, 0)?));
                }
                Rest::None => return Ok(ListStep::End),
            }
        }
    }
}

fn last_id(entry: &[u8; DIRECTORY_ENTRY]) -> u32 {
    u32::from_be_bytes(entry.first_chunk().copied().unwrap_or_default())
}

fn chunk_of(entry: &[u8; DIRECTORY_ENTRY], directory: &Block) -> Result<BlockRef, IndexError> {
    let mut r = Reader::new(entry, "directory of a list");
    r.skip(4)?;
    let (offset, length) = (r.u64()?, r.u32()?);
    BlockRef::checked(offset, length as usize, directory.at().offset)
}

/// Reads the count of a list.
pub(crate) fn list_count(list: &[u8]) -> Result<u64, IndexError> {
    Ok(Reader::new(list, "list of rows").vint_unsigned()?)
}
