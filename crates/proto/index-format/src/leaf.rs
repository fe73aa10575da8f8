//! Leaves: sorted terms with shared prefixes, each with its rows.
//!
//! Payload: entries; offsets of every 16th entry, whose term is whole, u32 each; blocks of lists, offset u64 and
//! length u32 each; then count of the offsets u32, of the blocks u16, of the terms u32.
//!
//! An entry: a byte with the shared bytes and the own bytes of the term in four bits each (15: a vint follows with
//! the rest), own bytes, then a vint: its low two bits are the count of rows, 1 to 3, and the others the first
//! row; vints of distances less one follow. Or the low bits are 0, and the others say what follows: 0 the bytes of a
//! list with their length, 1 a list in a block of lists (block, offset, count), 2 a directory (offset, length, count).

use codec::{Reader, Writer};

use crate::block::Output;
use crate::postings::{ListRef, list_count};
use crate::{Block, BlockKind, BlockRef, IndexError};

/// Bytes of entries at which a leaf ends.
const LEAF_BYTES: usize = 4000;
/// Ids outside directories at which a leaf ends, so that collecting those of a few leaves has a bound.
const LEAF_IDS: u64 = 32 << 10;
/// Longest list that stands in an entry, bytes.
const INLINE_BYTES: usize = 48;
/// Bytes of lists at which a block of them ends.
const POSTINGS_BYTES: usize = 4000;
/// Entries from one whole term to the next.
const RESTART: u32 = 16;
const TAIL_BYTES: usize = 10;
const BLOCK_ENTRY: usize = 12;

/// The rows of a term, as a writer stores them.
#[derive(Debug)]
pub(crate) enum TermRows<'a> {
    /// One to three.
    Few(&'a [u32]),
    /// A list and its count.
    Whole(&'a [u8], u64),
    /// A written list and its count.
    Directory(BlockRef, u64),
}

/// Facts about a finished subtree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Terms.
    pub terms: u64,
    /// Pairs of a term and a row.
    pub ids: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Counts) {
        self.terms = self.terms.saturating_add(other.terms);
        self.ids = self.ids.saturating_add(other.ids);
    }
}

#[derive(Debug, Default)]
pub(crate) struct LeafBuilder {
    entries: Vec<u8>,
    restarts: Vec<u32>,
    /// Lists of the block in progress.
    lists: Vec<u8>,
    blocks: Vec<BlockRef>,
    first: Vec<u8>,
    last: Vec<u8>,
    counts: Counts,
    /// Ids that a reader of the leaf would hold.
    loose: u64,
    heavy: usize,
}

/// A leaf that was written.
#[derive(Debug)]
pub(crate) struct FinishedLeaf {
    pub(crate) at: BlockRef,
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
    pub(crate) counts: Counts,
    pub(crate) loose: u64,
    pub(crate) heavy: usize,
}

impl LeafBuilder {
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= LEAF_BYTES || self.loose >= LEAF_IDS
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() + self.lists.capacity() + self.restarts.capacity() * 4
    }

    /// Adds a term above all before.
    pub(crate) fn push(
        &mut self,
        term: &[u8],
        rows: &TermRows<'_>,
        out: &mut Output,
    ) -> Result<(), IndexError> {
        let is_restart = self.counts.terms.is_multiple_of(u64::from(RESTART));
        let shared = if is_restart { 0 } else { shared(&self.last, term) };
        if is_restart {
            self.restarts.push(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        }
        if self.counts.terms == 0 {
            self.first.clear();
            self.first.extend_from_slice(term);
        }
        let own = term.get(shared..).unwrap_or_default();
        let (high, low) = (shared.min(15), own.len().min(15));
        self.entries.push((high << 4 | low).to_le_bytes()[0]);
        for length in [shared, own.len()] {
            if length >= 15 {
                self.entries.put_vint_unsigned(length as u64 - 15);
            }
        }
        self.entries.extend_from_slice(own);
        let count = self.put_rows(rows, out)?;
        self.last.truncate(shared);
        self.last.extend_from_slice(own);
        self.counts.add(Counts { terms: 1, ids: count });
        Ok(())
    }

    fn put_rows(&mut self, rows: &TermRows<'_>, out: &mut Output) -> Result<u64, IndexError> {
        match rows {
            TermRows::Few(ids) => {
                let mut floor = 0;
                for (at, id) in ids.iter().enumerate() {
                    let head = if at == 0 {
                        u64::from(*id) << 2 | ids.len() as u64
                    } else {
                        u64::from(*id) - floor
                    };
                    self.entries.put_vint_unsigned(head);
                    floor = u64::from(*id) + 1;
                }
                self.loose += ids.len() as u64;
                Ok(ids.len() as u64)
            }
            TermRows::Whole(list, count) => {
                self.loose += count;
                if list.len() <= INLINE_BYTES {
                    self.entries.put_vint_unsigned(0);
                    self.entries.put_bytes_vint(list);
                    return Ok(*count);
                }
                self.entries.put_vint_unsigned(1 << 2);
                self.entries.put_vint_unsigned(self.blocks.len() as u64);
                self.entries.put_vint_unsigned(self.lists.len() as u64);
                self.entries.put_vint_unsigned(*count);
                self.lists.extend_from_slice(list);
                if self.lists.len() >= POSTINGS_BYTES {
                    self.write_lists(out)?;
                }
                Ok(*count)
            }
            TermRows::Directory(at, count) => {
                self.heavy += 1;
                self.entries.put_vint_unsigned(2 << 2);
                at.put(&mut self.entries);
                self.entries.put_vint_unsigned(*count);
                Ok(*count)
            }
        }
    }

    fn write_lists(&mut self, out: &mut Output) -> Result<(), IndexError> {
        self.blocks.push(out.put_block(BlockKind::Postings, &self.lists)?);
        self.lists.clear();
        Ok(())
    }

    pub(crate) fn finish(&mut self, out: &mut Output) -> Result<FinishedLeaf, IndexError> {
        if !self.lists.is_empty() {
            self.write_lists(out)?;
        }
        for restart in &self.restarts {
            self.entries.put_u32(*restart);
        }
        for block in &self.blocks {
            self.entries.put_u64(block.offset);
            self.entries.put_u32(block.length);
        }
        let long = |_| IndexError::Input { what: "leaf is too long" };
        self.entries.put_u32(u32::try_from(self.restarts.len()).map_err(long)?);
        self.entries.put_u16(u16::try_from(self.blocks.len()).map_err(long)?);
        self.entries.put_u32(u32::try_from(self.counts.terms).map_err(long)?);
        let at = out.put_block(BlockKind::Leaf, &self.entries)?;
        self.entries.clear();
        self.restarts.clear();
        self.blocks.clear();
        let finished = FinishedLeaf {
            at,
            first: std::mem::take(&mut self.first),
            last: self.last.clone(),
            counts: self.counts,
            loose: self.loose,
            heavy: self.heavy,
        };
        (self.counts, self.loose, self.heavy) = (Counts::default(), 0, 0);
        Ok(finished)
    }
}

/// Bytes that two terms begin with alike.
pub(crate) fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The rows of a term, as a reader finds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundRows {
    /// A list inside the leaf: offset in its payload, count.
    Inline(usize, u64),
    /// One to three rows; the others are 0.
    Few([u32; 3], u8),
    /// A list elsewhere and its count.
    List(ListRef, u64),
}

impl FoundRows {
    pub(crate) fn count(&self) -> u64 {
        match self {
            FoundRows::Few(_, count) => u64::from(*count),
            FoundRows::Inline(_, count) | FoundRows::List(_, count) => *count,
        }
    }
}

/// Reads the entries of a leaf in order.
#[derive(Debug)]
pub(crate) struct LeafReader {
    block: Block,
    /// End of the entries.
    end: usize,
    restarts: usize,
    blocks: usize,
    at: usize,
    term: Vec<u8>,
    /// Terms from `at`, at most.
    left: u32,
}

impl LeafReader {
    pub(crate) fn open(block: Block) -> Result<LeafReader, IndexError> {
        let payload = block.payload();
        let tail = payload.len().checked_sub(TAIL_BYTES);
        let tail = tail.ok_or_else(|| block.invalid("leaf is cut short"))?;
        let mut r = Reader::new(payload, "leaf");
        r.skip(tail)?;
        let (restarts, blocks, terms) = (r.u32()? as usize, usize::from(r.u16()?), r.u32()?);
        let tables = restarts.checked_mul(4).and_then(|n| n.checked_add(blocks * BLOCK_ENTRY));
        let end = tables.and_then(|n| tail.checked_sub(n));
        let end = end.ok_or_else(|| block.invalid("leaf with impossible counts"))?;
        if restarts != terms.div_ceil(RESTART) as usize {
            return Err(block.invalid("leaf with impossible counts"));
        }
        Ok(LeafReader { block, end, restarts, blocks, at: 0, term: Vec::new(), left: terms })
    }

    pub(crate) fn term(&self) -> &[u8] {
        &self.term
    }

    /// The list that stands in the leaf at this offset.
    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    fn restart(&self, at: usize) -> Result<usize, IndexError> {
        let mut r = Reader::new(self.block.payload(), "leaf");
        r.skip(self.end + at * 4)?;
        let offset = r.u32()? as usize;
        if offset < self.end {
            Ok(offset)
        } else {
            Err(self.block.invalid("leaf with a wrong offset"))
        }
    }

    /// Moves before the first term that is not below `term`, or some terms before it.
    pub(crate) fn seek(&mut self, term: &[u8]) -> Result<(), IndexError> {
        let (mut low, mut high) = (0, self.restarts);
        // The whole term at `low` is not above `term`, or `low` is 0.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let mut r = Reader::new(self.block.payload(), "leaf");
            r.skip(self.restart(middle)?)?;
            let (shared, own) = read_lengths(&mut r)?;
            if shared > 0 {
                return Err(self.block.invalid("term of a leaf that is not whole"));
            }
            if r.bytes(own)? <= term {
                low = middle;
            } else {
                high = middle;
            }
        }
        if self.restarts > 0 {
            self.at = self.restart(low)?;
            let skipped = u32::try_from(low).unwrap_or(u32::MAX).saturating_mul(RESTART);
            self.left = self.left.saturating_sub(skipped);
            self.term.clear();
        }
        Ok(())
    }

    /// The next entry; its term is in [`LeafReader::term`].
    pub(crate) fn next(&mut self) -> Result<Option<FoundRows>, IndexError> {
        if self.at >= self.end || self.left == 0 {
            return Ok(None);
        }
        let entries = self.block.payload().get(..self.end).unwrap_or_default();
        let mut r = Reader::new(entries, "leaf");
        r.skip(self.at)?;
        let (shared, own) = read_lengths(&mut r)?;
        if shared > self.term.len() {
            return Err(self.block.invalid("term of a leaf without its prefix"));
        }
        self.term.truncate(shared);
        self.term.extend_from_slice(r.bytes(own)?);
        let rows = self.read_rows(&mut r)?;
        self.at = r.position();
        self.left -= 1;
        Ok(Some(rows))
    }

    fn read_rows(&self, r: &mut Reader<'_>) -> Result<FoundRows, IndexError> {
        let invalid = || self.block.invalid("rows of a term that are impossible");
        let head = r.vint_unsigned()?;
        let (count, rest) = (head & 3, head >> 2);
        if count > 0 {
            let mut ids = [0; 3];
            let mut id = rest;
            for (at, slot) in ids.iter_mut().take(usize::try_from(count).unwrap_or(0)).enumerate() {
                if at > 0 {
                    id = r.vint_unsigned()?.checked_add(id + 1).ok_or_else(invalid)?;
                }
                *slot = u32::try_from(id).map_err(|_| invalid())?;
                id = u64::from(*slot);
            }
            return Ok(FoundRows::Few(ids, count.to_le_bytes()[0]));
        }
        match rest {
            0 => {
                let length = r.vint_len()?;
                let start = r.position();
                let count = list_count(r.bytes(length)?)?;
                Ok(FoundRows::Inline(start, count))
            }
            1 => {
                let (block, start) = (r.vint_len()?, r.vint_len()?);
                let block = self.list_block(block)?;
                Ok(FoundRows::List(ListRef::Part { block, start }, r.vint_unsigned()?))
            }
            2 => {
                let at = BlockRef::read(r, self.block.at().offset)?;
                Ok(FoundRows::List(ListRef::Directory(at), r.vint_unsigned()?))
            }
            _ => Err(invalid()),
        }
    }

    fn list_block(&self, at: usize) -> Result<BlockRef, IndexError> {
        if at >= self.blocks {
            return Err(self.block.invalid("list in a block that the leaf does not have"));
        }
        let mut r = Reader::new(self.block.payload(), "leaf");
        r.skip(self.end + self.restarts * 4 + at * BLOCK_ENTRY)?;
        let (offset, length) = (r.u64()?, r.u32()?);
        BlockRef::checked(offset, length as usize, self.block.at().offset)
    }
}

fn read_lengths(r: &mut Reader<'_>) -> Result<(usize, usize), IndexError> {
    let head = r.u8()?;
    let mut read = |short: u8| {
        let more = if short == 15 { r.vint_len()? } else { 0 };
        Ok::<usize, IndexError>(usize::from(short).saturating_add(more))
    };
    let shared = read(head >> 4)?;
    Ok((shared, read(head & 15)?))
}
