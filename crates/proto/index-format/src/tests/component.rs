//! A component in memory, as a driver would read it.

use bytes::Bytes;

use crate::cursor::{Estimate, EstimateStep};
use crate::leaf::Counts;
use crate::summary::{ComponentKind, FOOTER_BYTES, HEADER_BYTES, read_header};
use crate::*;

pub(super) struct InMemory {
    pub(super) bytes: Bytes,
    pub(super) summary: IndexSummary,
    /// Blocks read.
    pub(super) reads: usize,
}

pub(super) const ID: uuid::Uuid = uuid::Uuid::from_u128(7);

impl InMemory {
    pub(super) fn build<'a>(
        rows: u32,
        pairs: impl IntoIterator<Item = (&'a [u8], u32)>,
    ) -> InMemory {
        let mut writer = IndexWriter::new(ID, rows);
        let mut bytes = Vec::new();
        for (term, row) in pairs {
            writer.push(term, row).unwrap();
            if writer.buffered_bytes() > 10_000 {
                bytes.extend(writer.take_output());
            }
        }
        let summary = writer.finish().unwrap();
        bytes.extend(writer.take_output());
        let read = InMemory::open(bytes.into()).unwrap();
        assert_eq!(read.summary, summary);
        read
    }

    pub(super) fn open(bytes: Bytes) -> Result<InMemory, IndexError> {
        let kind = ComponentKind::Terms;
        let short = IndexError::Input { what: "short" };
        assert_eq!(read_header(kind, bytes.get(..HEADER_BYTES).ok_or(short.clone())?)?.0, ID);
        let tail = bytes.len().checked_sub(FOOTER_BYTES).ok_or(short)?;
        let footer = Footer::read(kind, &bytes[tail..], bytes.len() as u64)?;
        let block = read(&bytes, footer.summary)?;
        Ok(InMemory { summary: IndexSummary::read(block)?, bytes, reads: 0 })
    }

    pub(super) fn block(&mut self, at: BlockRef) -> Result<Block, IndexError> {
        self.reads += 1;
        read(&self.bytes, at)
    }

    pub(super) fn next(&mut self, cursor: &mut IndexCursor) -> Result<Option<u32>, IndexError> {
        let mut last = None;
        loop {
            match cursor.advance()? {
                Step::Row(row) => return Ok(Some(row)),
                Step::End => return Ok(None),
                Step::NeedBlock(at) => {
                    assert_ne!(last.replace(at), Some(at), "the same block twice in a row");
                    cursor.feed(self.block(at)?);
                }
            }
        }
    }

    pub(super) fn rows(&mut self, ranges: Vec<TermRange>) -> Result<Vec<u32>, IndexError> {
        self.filtered(ranges, None)
    }

    pub(super) fn filtered(
        &mut self,
        ranges: Vec<TermRange>,
        filter: Option<TermFilter>,
    ) -> Result<Vec<u32>, IndexError> {
        let mut cursor = IndexCursor::filtered(&self.summary, ranges, filter);
        let mut rows = Vec::new();
        while let Some(row) = self.next(&mut cursor)? {
            rows.push(row);
        }
        Ok(rows)
    }

    pub(super) fn count(&mut self, ranges: Vec<TermRange>) -> Result<Counts, IndexError> {
        let mut estimate = Estimate::new(&self.summary, ranges);
        loop {
            match estimate.advance()? {
                EstimateStep::Counts(counts) => return Ok(counts),
                EstimateStep::NeedBlock(at) => estimate.feed(self.block(at)?),
            }
        }
    }
}

pub(super) fn read(bytes: &Bytes, at: BlockRef) -> Result<Block, IndexError> {
    let start = usize::try_from(at.offset).unwrap_or(usize::MAX).min(bytes.len());
    let end = start.saturating_add(at.length as usize).min(bytes.len());
    Block::open(at, bytes.slice(start..end))
}
