//! `Index+Rows.db`: where the row of an id is, and which ids a token has.
//!
//! Blocks of 1,024 rows with packed columns: partitions (token, offset in the Data file, first row) and rows (offset
//! in the partition). Pages of a directory refer to the blocks, 256 each; the summary refers to the pages. A look-up
//! of an id reads a page and a block; each is read at a fixed place, without decoding what is before.

use std::sync::Arc;

use codec::{Reader, Writer};
use stdx::Token;
use uuid::Uuid;

use crate::bits::{self, packed_len};
use crate::block::{Feed, Output};
use crate::summary::{ComponentKind, put_header};
use crate::{Block, BlockKind, BlockRef, Footer, IndexError};

/// Rows of a block.
const BLOCK_ROWS: u32 = 1024;
/// Blocks of a page of the directory.
const PAGE_BLOCKS: u32 = 256;
/// Bytes of an entry of a page: offset, length, token of the first row, ordinal of its partition.
const PAGE_ENTRY: usize = 24;
/// Bytes of a block before its columns.
const HEAD_BYTES: usize = 32;

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// Token of its partition.
    pub token: Token,
    /// Ordinal of its partition among those of the file that have rows.
    pub partition: u32,
    /// Offset of its partition in the Data file.
    pub partition_offset: u64,
    /// Offset of the row in the Data file.
    pub row_offset: u64,
}

/// Facts about `Index+Rows.db` that a reader keeps in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsSummary {
    /// Rows of the file, static ones included.
    pub rows: u32,
    /// Partitions of the file that have rows.
    pub partitions: u32,
    pages: Vec<Page>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    at: BlockRef,
    first_token: i64,
}

impl RowsSummary {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.rows);
        out.put_u32(self.partitions);
        for page in &self.pages {
            out.put_u64(page.at.offset);
            out.put_u32(page.at.length);
            out.put_i64(page.first_token);
        }
        out
    }

    /// Reads the block that [`Footer::summary`] names.
    ///
    /// # Errors
    /// A defect of the block.
    pub fn read(block: Block) -> Result<RowsSummary, IndexError> {
        let block = block.expect(BlockKind::Summary)?;
        let mut r = Reader::new(block.payload(), "summary of rows");
        let (rows, partitions) = (r.u32()?, r.u32()?);
        let mut pages = Vec::new();
        while !r.is_empty() {
            let (offset, length) = (r.u64()?, r.u32()?);
            let at = BlockRef::checked(offset, length as usize, block.at().offset)?;
            pages.push(Page { at, first_token: r.i64()? });
        }
        if pages.len() != rows.div_ceil(BLOCK_ROWS * PAGE_BLOCKS) as usize || partitions > rows {
            return Err(block.invalid("summary of rows with impossible counts"));
        }
        Ok(RowsSummary { rows, partitions, pages })
    }
}

#[derive(Clone, Copy, Debug)]
struct Partition {
    token: i64,
    offset: u64,
    first_row: u32,
}

/// Writer of one component, in the order of the Data file.
#[derive(Debug)]
pub struct RowsWriter {
    out: Output,
    partition: Option<Partition>,
    /// Partitions and rows of the open block.
    partitions: Vec<Partition>,
    rows: Vec<u64>,
    /// Partitions before the open block, that of its first row not counted.
    partitions_before: u32,
    partitions_all: u32,
    rows_all: u32,
    page: Vec<u8>,
    pages: Vec<Page>,
}

impl RowsWriter {
    /// A writer before the first partition.
    pub fn new() -> RowsWriter {
        let mut out = Output::default();
        put_header(ComponentKind::Rows, Uuid::nil(), &mut out);
        RowsWriter {
            out,
            partition: None,
            partitions: Vec::new(),
            rows: Vec::new(),
            partitions_before: 0,
            partitions_all: 0,
            rows_all: 0,
            page: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// Begins a partition at an offset of the Data file. One without rows has no ids.
    ///
    /// # Errors
    /// `Input` when token or offset are below those of the partition before.
    pub fn partition(&mut self, token: Token, offset: u64) -> Result<(), IndexError> {
        let partition = Partition { token: token.0, offset, first_row: u32::MAX };
        let is_behind = |last: Partition| last.token <= token.0 && last.offset < offset;
        if !self.partition.is_none_or(is_behind) {
            return Err(IndexError::Input { what: "partitions do not ascend" });
        }
        self.partition = Some(partition);
        Ok(())
    }

    /// Adds a row, or the static row, at an offset of the Data file, and returns its id.
    ///
    /// # Errors
    /// `Input` without a partition, before its offset, or beyond 2^32 - 1 rows: begin another file.
    pub fn row(&mut self, offset: u64) -> Result<u32, IndexError> {
        let input = |what| IndexError::Input { what };
        let partition = self.partition.as_mut().ok_or(input("row without a partition"))?;
        let id = self.rows_all;
        let distance =
            offset.checked_sub(partition.offset).ok_or(input("row before its partition"))?;
        self.rows_all = id.checked_add(1).ok_or(input("too many rows"))?;
        let is_new = partition.first_row == u32::MAX;
        if is_new || self.rows.is_empty() {
            self.partitions_all += u32::from(is_new);
            partition.first_row = id % BLOCK_ROWS;
            self.partitions.push(*partition);
            if self.rows.is_empty() {
                self.partitions_before = self.partitions_all - 1;
            }
        }
        self.rows.push(distance);
        if self.rows.len() == BLOCK_ROWS as usize {
            self.end_block()?;
        }
        Ok(id)
    }

    fn end_block(&mut self) -> Result<(), IndexError> {
        let (Some(first), Some(last)) = (self.partitions.first(), self.partitions.last()) else {
            return Ok(());
        };
        let (token_base, offset_base) = (first.token, first.offset);
        let distance = |token: i64| token.wrapping_sub(token_base).cast_unsigned();
        let row_base = self.rows.iter().min().copied().unwrap_or(0);
        let row_max = self.rows.iter().max().copied().unwrap_or(0);
        let token_bits = bits::width(distance(last.token));
        let offset_bits = bits::width(last.offset - offset_base);
        let row_bits = bits::width(row_max - row_base);
        let is_single = self.partitions.len() == self.rows.len();
        let first_bits = if is_single { 0 } else { bits::width(u64::from(BLOCK_ROWS - 1)) };
        let mut block = Vec::new();
        block.put_i64(token_base);
        block.put_u64(offset_base);
        block.put_u64(row_base);
        for count in [self.rows.len(), self.partitions.len()] {
            block.put_u16(u16::try_from(count).unwrap_or(u16::MAX));
        }
        for width in [token_bits, offset_bits, first_bits, row_bits] {
            block.put_u8(width.to_le_bytes()[0]);
        }
        let all = &self.partitions;
        bits::pack(all.iter().map(|p| distance(p.token)), token_bits, &mut block);
        bits::pack(all.iter().map(|p| p.offset - offset_base), offset_bits, &mut block);
        bits::pack(all.iter().map(|p| u64::from(p.first_row)), first_bits, &mut block);
        bits::pack(self.rows.iter().map(|row| row - row_base), row_bits, &mut block);
        let at = self.out.put_block(BlockKind::Rows, &block)?;
        if self.page.is_empty() {
            self.pages.push(Page { at, first_token: token_base });
        }
        self.page.put_u64(at.offset);
        self.page.put_u32(at.length);
        self.page.put_i64(token_base);
        self.page.put_u32(self.partitions_before);
        self.partitions.clear();
        self.rows.clear();
        if self.page.len() == PAGE_BLOCKS as usize * PAGE_ENTRY {
            self.end_page()?;
        }
        Ok(())
    }

    fn end_page(&mut self) -> Result<(), IndexError> {
        let at = self.out.put_block(BlockKind::RowDirectory, &self.page)?;
        self.pages.last_mut().into_iter().for_each(|page| page.at = at);
        self.page.clear();
        Ok(())
    }

    /// Rows so far.
    pub fn rows(&self) -> u32 {
        self.rows_all
    }

    /// Takes the bytes written since the last call.
    pub fn take_output(&mut self) -> Vec<u8> {
        self.out.take()
    }

    /// Bytes that [`RowsWriter::take_output`] would return.
    pub fn buffered_bytes(&self) -> usize {
        self.out.buffered()
    }

    /// Writes the rest, which [`RowsWriter::take_output`] then returns.
    ///
    /// # Errors
    /// `Input` beyond the limits of a block.
    pub fn finish(&mut self) -> Result<RowsSummary, IndexError> {
        self.end_block()?;
        if !self.page.is_empty() {
            self.end_page()?;
        }
        let summary = RowsSummary {
            rows: self.rows_all,
            partitions: self.partitions_all,
            pages: std::mem::take(&mut self.pages),
        };
        let at = self.out.put_block(BlockKind::Summary, &summary.encode())?;
        Footer { summary: at }.put(ComponentKind::Rows, &mut self.out);
        Ok(summary)
    }
}

impl Default for RowsWriter {
    fn default() -> RowsWriter {
        RowsWriter::new()
    }
}

/// A block of rows as it is read.
#[derive(Debug)]
struct RowBlock {
    block: Block,
    number: u32,
    partitions_before: u32,
    token_base: i64,
    offset_base: u64,
    row_base: u64,
    rows: usize,
    partitions: usize,
    widths: [u32; 4],
    /// Offset of each column in the payload.
    starts: [usize; 4],
}

impl RowBlock {
    fn open(block: Block, number: u32, partitions_before: u32) -> Result<RowBlock, IndexError> {
        let mut r = Reader::new(block.payload(), "block of rows");
        let (token_base, offset_base, row_base) = (r.i64()?, r.u64()?, r.u64()?);
        let (rows, partitions) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let widths = r.array::<4>()?.map(u32::from);
        let [token, offset, first, row] = widths;
        let counts = [(partitions, token), (partitions, offset), (partitions, first), (rows, row)];
        let is_possible = widths.iter().all(|width| *width <= 64)
            && (1..=rows).contains(&partitions)
            && rows <= BLOCK_ROWS as usize
            && (first > 0 || partitions == rows || partitions == 1);
        let mut end = HEAD_BYTES;
        let starts = counts.map(|(count, width)| {
            let start = end;
            end += packed_len(count, width);
            start
        });
        if !is_possible || r.remaining() != end - HEAD_BYTES {
            return Err(block.invalid("block of rows with impossible columns"));
        }
        Ok(RowBlock {
            block,
            number,
            partitions_before,
            token_base,
            offset_base,
            row_base,
            rows,
            partitions,
            widths,
            starts,
        })
    }

    /// Value `at` of one of the columns: tokens, offsets, first rows, rows.
    fn value(&self, column: usize, at: usize) -> u64 {
        let (Some(width), Some(start)) = (self.widths.get(column), self.starts.get(column)) else {
            return 0;
        };
        bits::get(self.block.payload().get(*start..).unwrap_or_default(), *width, at)
    }

    fn token(&self, partition: usize) -> i64 {
        self.token_base.wrapping_add(self.value(0, partition).cast_signed())
    }

    /// Index of the first row of a partition.
    fn first_row(&self, partition: usize) -> usize {
        if self.partitions == self.rows {
            return partition;
        }
        usize::try_from(self.value(2, partition)).unwrap_or(usize::MAX)
    }

    fn partition_of(&self, row: usize) -> usize {
        if self.partitions == self.rows {
            return row;
        }
        partition_point(self.partitions, |at| self.first_row(at) <= row).saturating_sub(1)
    }

    fn place(&self, row: usize) -> Result<RowPlace, IndexError> {
        let invalid = || self.block.invalid("row at an impossible offset");
        if row >= self.rows {
            return Err(invalid());
        }
        let partition = self.partition_of(row);
        let offset = self.offset_base.checked_add(self.value(1, partition)).ok_or_else(invalid)?;
        let distance = self.row_base.checked_add(self.value(3, row)).ok_or_else(invalid)?;
        let ordinal = u32::try_from(partition).unwrap_or(u32::MAX);
        Ok(RowPlace {
            token: Token(self.token(partition)),
            partition: self.partitions_before.saturating_add(ordinal),
            partition_offset: offset,
            row_offset: offset.checked_add(distance).ok_or_else(invalid)?,
        })
    }
}

/// The first index of 0..count for which `below` is false.
fn partition_point(count: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if below(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Outcome of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// The answer.
    Found(T),
    /// Feed this block, then ask again.
    NeedBlock(BlockRef),
}

/// Reads `Index+Rows.db`. Keeps the page and the block of the last look-up.
#[derive(Debug)]
pub struct RowsReader {
    summary: Arc<RowsSummary>,
    feed: Feed,
    page: Option<Block>,
    block: Option<RowBlock>,
}

impl RowsReader {
    /// A reader of a component.
    pub fn new(summary: Arc<RowsSummary>) -> RowsReader {
        RowsReader { summary, feed: Feed::default(), page: None, block: None }
    }

    /// Gives the block that the last look-up named.
    pub fn feed(&mut self, block: Block) {
        self.feed.put(block);
    }

    /// Where the row of an id is.
    ///
    /// # Errors
    /// A defect of a block; `Invalid` for an id beyond the rows of the file.
    pub fn place(&mut self, row: u32) -> Result<Lookup<RowPlace>, IndexError> {
        if row >= self.summary.rows {
            return Err(IndexError::Invalid { what: "row beyond the rows of the file", offset: 0 });
        }
        if let Some(at) = self.load(row / BLOCK_ROWS)? {
            return Ok(Lookup::NeedBlock(at));
        }
        match &self.block {
            Some(block) => block.place((row % BLOCK_ROWS) as usize).map(Lookup::Found),
            None => Err(IndexError::Invalid { what: "block of rows is missing", offset: 0 }),
        }
    }

    /// Token of a row, if its block is the one of the last look-up.
    pub(crate) fn loaded_token(&self, row: u32) -> Option<Token> {
        let block = self.block.as_ref().filter(|block| block.number == row / BLOCK_ROWS)?;
        let row = (row % BLOCK_ROWS) as usize;
        (row < block.rows).then(|| Token(block.token(block.partition_of(row))))
    }

    /// The first id whose token is not below `token`; the count of the rows if there is none.
    ///
    /// # Errors
    /// A defect of a block.
    pub fn first_of_token(&mut self, token: Token) -> Result<Lookup<u32>, IndexError> {
        // The last block whose first token is below: later ones begin with the token or above.
        let pages = &self.summary.pages;
        let page = pages.partition_point(|page| page.first_token < token.0);
        let Some(page) = page.checked_sub(1) else { return Ok(Lookup::Found(0)) };
        if let Some(at) = self.load_page(page)? {
            return Ok(Lookup::NeedBlock(at));
        }
        let entries = self.page.as_ref().map_or(&[][..], |page| page.payload());
        let entries = entries.as_chunks::<PAGE_ENTRY>().0;
        let token_of = |entry: &[u8; PAGE_ENTRY]| {
            let mut r = Reader::new(entry, "page of a directory of rows");
            r.skip(12).and_then(|()| r.i64())
        };
        let in_page = entries.partition_point(|e| token_of(e).is_ok_and(|first| first < token.0));
        let in_page = u32::try_from(in_page.saturating_sub(1)).unwrap_or(0);
        let number = u32::try_from(page).unwrap_or(0).saturating_mul(PAGE_BLOCKS) + in_page;
        if let Some(at) = self.load(number)? {
            return Ok(Lookup::NeedBlock(at));
        }
        let Some(block) = &self.block else { return Ok(Lookup::Found(0)) };
        let partition = partition_point(block.partitions, |at| block.token(at) < token.0);
        let row =
            if partition == block.partitions { block.rows } else { block.first_row(partition) };
        let row = number.saturating_mul(BLOCK_ROWS) + u32::try_from(row).unwrap_or(0);
        Ok(Lookup::Found(row.min(self.summary.rows)))
    }

    fn load_page(&mut self, page: usize) -> Result<Option<BlockRef>, IndexError> {
        let beyond = IndexError::Invalid { what: "page beyond the directory", offset: 0 };
        let at = self.summary.pages.get(page).ok_or(beyond)?.at;
        if self.page.as_ref().is_none_or(|page| page.at() != at) {
            self.page = self.feed.get(at, BlockKind::RowDirectory)?;
        }
        Ok(self.page.is_none().then_some(at))
    }

    /// Makes the block current. Some: that block is missing.
    fn load(&mut self, number: u32) -> Result<Option<BlockRef>, IndexError> {
        if self.block.as_ref().is_some_and(|block| block.number == number) {
            return Ok(None);
        }
        let page = (number / PAGE_BLOCKS) as usize;
        if let Some(at) = self.load_page(page)? {
            return Ok(Some(at));
        }
        let Some(page) = &self.page else { return Ok(None) };
        let mut r = Reader::new(page.payload(), "page of a directory of rows");
        r.skip((number % PAGE_BLOCKS) as usize * PAGE_ENTRY)?;
        let (offset, length) = (r.u64()?, r.u32()?);
        r.skip(8)?;
        let before = r.u32()?;
        let at = BlockRef::checked(offset, length as usize, page.at().offset)?;
        let Some(block) = self.feed.get(at, BlockKind::Rows)? else { return Ok(Some(at)) };
        self.block = Some(RowBlock::open(block, number, before)?);
        Ok(None)
    }
}
