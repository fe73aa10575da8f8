//! Entry points for fuzzing: any bytes in, no panic, no walk without end.

use bytes::Bytes;
use codec::Writer;

use crate::cursor::{Estimate, EstimateStep};
use crate::runs::{MergeStep, Run, RunMerger};
use crate::summary::{ComponentKind, FOOTER_BYTES, read_header};
use crate::{
    Block, BlockRef, Footer, IndexCursor, IndexError, IndexSummary, Lookup, RowsReader,
    RowsSummary, Step, TermFilter, TermRange,
};

/// Reads of one input at most; a component of a few blocks needs fewer.
const READS_MAX: usize = 100_000;
/// Rows of one input at most: hostile lists may name 2^32.
const ROWS_MAX: usize = 100_000;

/// The block at `at`, its checksum set right, so that mutated payloads reach the decoders.
fn block(bytes: &Bytes, at: BlockRef) -> Result<Block, IndexError> {
    let start = usize::try_from(at.offset).unwrap_or(usize::MAX).min(bytes.len());
    let end = start.saturating_add(at.length as usize).min(bytes.len());
    let mut sealed = bytes.get(start..end).unwrap_or_default().to_vec();
    if let Some(body) = sealed.len().checked_sub(4) {
        sealed.truncate(body);
        let mut covered = sealed.clone();
        covered.put_u64(at.offset);
        sealed.put_u32(codec::crc32(&covered));
    }
    Block::open(at, sealed)
}

fn footer(kind: ComponentKind, bytes: &Bytes) -> Result<BlockRef, IndexError> {
    // Errors of the ends are one outcome; a mutated middle is the interesting one.
    let _ = read_header(kind, bytes);
    let start = bytes.len().saturating_sub(FOOTER_BYTES);
    let tail = bytes.get(start..).unwrap_or_default();
    match Footer::read(kind, tail, bytes.len() as u64) {
        Ok(footer) => Ok(footer.summary),
        // The length as written, for inputs that became longer or shorter.
        Err(_) => {
            let mut r = codec::Reader::new(tail, "footer");
            let (offset, length) = (r.u64()?, r.u32()?);
            BlockRef::checked(offset, length as usize, start as u64)
        }
    }
}

fn read_terms(bytes: &Bytes) -> Result<(), IndexError> {
    let at = footer(ComponentKind::Terms, bytes)?;
    let summary = IndexSummary::read(block(bytes, at)?)?;
    let first = bytes.first().copied().unwrap_or(0);
    let filter = TermFilter::Contains(vec![first]);
    let searches = [
        (vec![TermRange::all()], None),
        (vec![TermRange::equal(b"b")], None),
        (vec![TermRange::prefix(&[first])], None),
        (vec![TermRange::all()], Some(filter)),
    ];
    for (ranges, filter) in searches {
        let mut reads = 0;
        let mut estimate = Estimate::new(&summary, ranges.clone());
        while let EstimateStep::NeedBlock(at) = estimate.advance()? {
            estimate.feed(block(bytes, at)?);
            reads += 1;
            stdx::invariant!(reads < READS_MAX, "INV-index-format-3: an estimate without end");
        }
        let mut cursor = IndexCursor::filtered(&summary, ranges, filter);
        let (mut rows, mut last) = (0, None);
        loop {
            match cursor.advance()? {
                Step::Row(row) => {
                    stdx::invariant!(last < Some(row), "INV-index-format-2: rows ascend");
                    last = Some(row);
                    rows += 1;
                    if rows % 7 == 0 {
                        cursor.seek(row.saturating_add(rows));
                    }
                }
                Step::NeedBlock(at) => {
                    cursor.feed(block(bytes, at)?);
                    reads += 1;
                }
                Step::End => break,
            }
            stdx::invariant!(reads < READS_MAX, "INV-index-format-3: a cursor without end");
            if rows as usize > ROWS_MAX {
                break;
            }
        }
    }
    Ok(())
}

fn read_rows(bytes: &Bytes) -> Result<(), IndexError> {
    let at = footer(ComponentKind::Rows, bytes)?;
    let summary = RowsSummary::read(block(bytes, at)?)?;
    let mut reader = RowsReader::new(summary.clone().into());
    for row in (0..summary.rows).step_by(97).take(50) {
        for token in [None, Some(stdx::Token(i64::from(row)))] {
            loop {
                let need = match token {
                    None => match reader.place(row)? {
                        Lookup::Found(_) => None,
                        Lookup::NeedBlock(at) => Some(at),
                    },
                    Some(token) => match reader.first_of_token(token)? {
                        Lookup::Found(_) => None,
                        Lookup::NeedBlock(at) => Some(at),
                    },
                };
                let Some(at) = need else { break };
                reader.feed(block(bytes, at)?);
            }
        }
    }
    Ok(())
}

/// An `Index+<id>.db`, its checksums set right.
pub fn fuzz_index_terms(data: &[u8]) {
    let _ = read_terms(&Bytes::copy_from_slice(data));
}

/// A `Index+Rows.db`, its checksums set right.
pub fn fuzz_index_rows(data: &[u8]) {
    let _ = read_rows(&Bytes::copy_from_slice(data));
}

/// A block of a run.
pub fn fuzz_index_run(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let at = BlockRef { offset: 0, length: u32::try_from(data.len()).unwrap_or(0) };
    let mut merger = RunMerger::new(vec![Run { blocks: vec![at] }]);
    loop {
        match merger.advance() {
            Ok(MergeStep::NeedBlock(at)) => match block(&bytes, at) {
                Ok(block) => merger.feed(block),
                Err(_) => return,
            },
            Ok(MergeStep::Pair) => {}
            Ok(MergeStep::End) | Err(_) => return,
        }
    }
}
