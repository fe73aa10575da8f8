//! Entry point for fuzzing: any bytes in, no panic, no search without end.

use bytes::Bytes;
use codec::Writer;
use index_format::summary::FOOTER_BYTES;
use index_format::{Block, BlockRef, IndexError};

use crate::component::{VectorDirectory, VectorSummary};
use crate::search::{RowFilter, Search, SearchOptions, SearchStep};

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

fn search(bytes: &Bytes) -> Result<(), IndexError> {
    let start = bytes.len().saturating_sub(FOOTER_BYTES);
    let mut r = codec::Reader::new(bytes.get(start..).unwrap_or_default(), "footer");
    let (offset, length) = (r.u64()?, r.u32()?);
    let at = BlockRef::checked(offset, length as usize, start as u64)?;
    let directory = VectorDirectory::read(block(bytes, at)?)?;
    for at in &directory.segments {
        search_segment(bytes, VectorSummary::read(block(bytes, *at)?, &directory)?)?;
    }
    Ok(())
}

fn search_segment(bytes: &Bytes, summary: VectorSummary) -> Result<(), IndexError> {
    let query = vec![0.5; summary.dimensions];
    let (nodes, mut rows) = (summary.nodes, 0);
    let options = SearchOptions { beam: 3, filter: RowFilter::All };
    let mut search = Search::new(summary.into(), &query, options)?;
    loop {
        match search.advance()? {
            SearchStep::Row { .. } => {
                rows += 1;
                stdx::invariant!(rows <= nodes, "INV-ann-3: more rows than nodes");
            }
            SearchStep::NeedBlock(at) => search.feed(block(bytes, at)?),
            SearchStep::End => return Ok(()),
        }
    }
}

/// An `Index+<id>.db` of vectors, its checksums set right.
pub fn fuzz_index_vectors(data: &[u8]) {
    let _ = search(&Bytes::copy_from_slice(data));
}
