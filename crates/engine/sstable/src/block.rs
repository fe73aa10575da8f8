//! Blocks: the pieces of Data and Index in which files are read, cached and fed to cursors.
//!
//! A block number names a Data chunk (0, 1, …) or, with [`INDEX_BLOCK`] set, a page of the index
//! (Index or Partitions), or, with [`ROWS_BLOCK`] set, a page of Rows.
//! Positions are uncompressed ones.

use std::cell::Cell;
use std::rc::Rc;

pub use sst_format::Chunk;
use sst_format::trie::{Pages, Stop};

/// Set in the number of a block of Index.db or Partitions.db.
pub const INDEX_BLOCK: u64 = 1 << 63;
/// Set in the number of a block of Rows.db.
pub const ROWS_BLOCK: u64 = 1 << 62;
/// Bytes of an index page: as much as one checksum of Checksums.db covers.
pub const INDEX_PAGE_BYTES: u64 = sst_format::checksums::CHECKSUM_BLOCK as u64;

/// Bytes of the next block that are copied after the rest of one: most rows that span blocks end
/// there. If not, the same block is requested again, and more of it copied.
const SPILL_BYTES: usize = 512;

/// The contiguous bytes that a cursor sees of one file, from its position on. They are borrowed
/// from the current block; only data that spans blocks is copied.
#[derive(Debug)]
pub(crate) struct Window {
    mark: u64,
    block_length: u64,
    file_length: u64,
    position: u64,
    chunk: Option<Rc<Chunk>>,
    chunk_start: u64,
    spill: Vec<u8>,
    spill_start: u64,
    spilled: bool,
}

impl Window {
    pub(crate) fn new(
        mark: u64,
        block_length: u64,
        file_length: u64,
        mut spill: Vec<u8>,
    ) -> Window {
        spill.clear();
        Window {
            mark,
            block_length: block_length.max(1),
            file_length,
            position: 0,
            chunk: None,
            chunk_start: 0,
            spill,
            spill_start: 0,
            spilled: false,
        }
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.spill
    }

    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.position >= self.file_length
    }

    fn run(&self) -> (u64, &[u8]) {
        if self.spilled {
            return (self.spill_start, &self.spill);
        }
        match &self.chunk {
            Some(chunk) => (self.chunk_start, chunk.bytes()),
            None => (self.position, &[]),
        }
    }

    /// Returns the bytes in memory from the position on; empty when a block is needed.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let (start, run) = self.run();
        let skip = usize::try_from(self.position.wrapping_sub(start)).unwrap_or(usize::MAX);
        run.get(skip..).unwrap_or(&[])
    }

    /// The block that continues [`Window::bytes`]; `None` at the end of the file.
    pub(crate) fn needed(&self) -> Option<u64> {
        self.block_at(self.position.saturating_add(self.bytes().len() as u64))
    }

    /// The block in which a position lies; `None` at the end of the file.
    pub(crate) fn block_at(&self, position: u64) -> Option<u64> {
        (position < self.file_length).then(|| (position / self.block_length) | self.mark)
    }

    /// Returns the bytes that [`Window::bytes`] will return at this position, which lies after the
    /// current one.
    #[inline]
    pub(crate) fn bytes_from(&self, position: u64) -> &[u8] {
        let (start, run) = match &self.chunk {
            _ if self.spilled && position < self.chunk_start => (self.spill_start, &*self.spill),
            Some(chunk) => (self.chunk_start, chunk.bytes()),
            None => return &[],
        };
        let skip = usize::try_from(position.wrapping_sub(start)).unwrap_or(usize::MAX);
        run.get(skip..).unwrap_or(&[])
    }

    /// The current block, and where it begins.
    pub(crate) fn block(&self) -> (Option<&Rc<Chunk>>, u64) {
        (self.chunk.as_ref(), self.chunk_start)
    }

    /// Returns true if the bytes from `position` up to the current position are still in memory.
    pub(crate) fn holds(&self, position: u64) -> bool {
        let (start, run) = self.run();
        position >= start && position - start < run.len() as u64
    }

    pub(crate) fn seek(&mut self, position: u64) {
        let (start, run) = self.run();
        let inside = position >= start && position - start < run.len() as u64;
        self.position = position;
        if self.spilled && position >= self.chunk_start {
            self.spilled = false;
        }
        if inside {
            return;
        }
        self.spilled = false;
        let in_chunk = self.chunk.as_ref().is_some_and(|c| {
            position >= self.chunk_start && position - self.chunk_start < c.bytes().len() as u64
        });
        if !in_chunk {
            self.chunk = None;
        }
    }

    #[inline]
    pub(crate) fn skip(&mut self, bytes: usize) {
        if !self.spilled
            && let Some(chunk) = &self.chunk
        {
            // The rest of the block begins at the position: the cursor stays within the block.
            let position = self.position.saturating_add(bytes as u64);
            if position.wrapping_sub(self.chunk_start) < chunk.bytes().len() as u64 {
                self.position = position;
                return;
            }
        }
        self.seek(self.position.saturating_add(bytes as u64));
    }

    /// Takes the block that [`Window::needed`] named; others (late ones) are ignored.
    pub(crate) fn feed(&mut self, block: u64, chunk: Rc<Chunk>) {
        if self.needed() != Some(block) {
            return;
        }
        let start = (block & !self.mark).saturating_mul(self.block_length);
        let present = self.bytes().len();
        if present == 0 {
            self.spilled = false;
        } else {
            // Less than the whole block may have been copied before.
            let end = self.position.saturating_add(present as u64);
            let copied = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
            let more = copied.saturating_add(present.max(SPILL_BYTES));
            if !self.spilled {
                let mut spill = std::mem::take(&mut self.spill);
                spill.clear();
                spill.extend_from_slice(self.bytes());
                self.spill = spill;
                self.spill_start = self.position;
                self.spilled = true;
            }
            let bytes = chunk.bytes();
            let next = bytes.get(copied..more).or(bytes.get(copied..)).unwrap_or(&[]);
            self.spill.extend_from_slice(next);
        }
        self.chunk = Some(chunk);
        self.chunk_start = start;
    }
}

/// Pages of tries kept for one walk: a way from the root passes through a few.
const PAGES_MAX: usize = 64;
/// Pages that one walk may ask for; more are damage.
const ASKED_MAX: u32 = 1024;

/// The pages of Partitions and Rows that a walk through a trie has asked for.
#[derive(Debug, Default)]
pub(crate) struct TriePages {
    pages: Vec<(u64, Rc<Chunk>)>,
    asked: Cell<u32>,
}

impl TriePages {
    pub(crate) fn feed(&mut self, block: u64, chunk: Rc<Chunk>) {
        if self.pages.iter().any(|(b, _)| *b == block) {
            return;
        }
        if self.pages.len() >= PAGES_MAX {
            self.pages.remove(0);
        }
        self.pages.push((block, chunk));
    }

    /// Converts the result of a trie walk. `Need` becomes the missing block: `Ok(Err(block))`.
    pub(crate) fn walked<T>(
        &self,
        mark: u64,
        result: Result<T, Stop>,
    ) -> Result<Result<T, u64>, u64> {
        match result {
            Ok(found) => {
                self.asked.set(0);
                Ok(Ok(found))
            }
            Err(Stop::Need(at)) if self.asked.get() < ASKED_MAX => {
                self.asked.set(self.asked.get() + 1);
                Ok(Err((at / INDEX_PAGE_BYTES) | mark))
            }
            Err(Stop::Need(at) | Stop::Damaged(at)) => Err(at),
        }
    }

    /// The pages of one of the two files.
    pub(crate) fn of(&self, mark: u64, length: u64) -> FilePages<'_> {
        FilePages { pages: &self.pages, mark, length }
    }
}

/// See [`TriePages::of`].
pub(crate) struct FilePages<'p> {
    pages: &'p [(u64, Rc<Chunk>)],
    mark: u64,
    length: u64,
}

impl Pages for FilePages<'_> {
    fn at(&self, position: u64) -> Result<&[u8], Stop> {
        if position >= self.length {
            return Err(Stop::Damaged(position));
        }
        let block = (position / INDEX_PAGE_BYTES) | self.mark;
        let page = self.pages.iter().find(|(b, _)| *b == block);
        let (_, chunk) = page.ok_or(Stop::Need(position))?;
        let skip = usize::try_from(position % INDEX_PAGE_BYTES).unwrap_or(usize::MAX);
        chunk.bytes().get(skip..).filter(|b| !b.is_empty()).ok_or(Stop::Damaged(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(bytes: &[u8]) -> Rc<Chunk> {
        Rc::new(Chunk::new(bytes.to_vec()))
    }

    #[test]
    fn bytes_over_several_blocks_are_joined_and_come_from_the_block_again_behind() {
        let mut w = Window::new(INDEX_BLOCK, 4, 10, Vec::new());
        assert_eq!(w.needed(), Some(INDEX_BLOCK));
        w.feed(INDEX_BLOCK, chunk(b"abcd"));
        w.skip(3);
        assert_eq!(w.bytes(), b"d");
        w.feed(INDEX_BLOCK | 1, chunk(b"efgh"));
        assert_eq!(w.bytes(), b"defgh");
        w.feed(INDEX_BLOCK | 2, chunk(b"ij"));
        assert_eq!((w.bytes(), w.needed()), (&b"defghij"[..], None));
        w.skip(6);
        assert_eq!((w.bytes(), w.spilled), (&b"j"[..], false));
        w.skip(1);
        assert!(w.is_at_end() && w.bytes().is_empty() && w.needed().is_none());
    }

    #[test]
    fn only_as_much_as_is_asked_for_is_copied_from_the_next_block() {
        let block: Vec<u8> = (0..4096u32).map(|i| (i % 251) as u8).collect();
        let mut w = Window::new(0, 4096, 3 * 4096, Vec::new());
        w.seek(4000);
        w.feed(0, chunk(&block));
        assert_eq!(w.bytes().len(), 96);
        let mut all = block[4000..].to_vec();
        all.extend_from_slice(&block);
        let mut before = 96;
        while before < all.len() {
            assert_eq!(w.needed(), Some(1));
            w.feed(1, chunk(&block));
            assert!(w.bytes().len() > before && w.bytes() == &all[..w.bytes().len()]);
            before = w.bytes().len();
        }
        assert_eq!(w.needed(), Some(2));
        w.feed(2, chunk(&block));
        all.extend_from_slice(&block);
        assert_eq!(w.bytes(), &all[..w.bytes().len()]);
        // The block itself continues after the copied bytes.
        let mut w = Window::new(0, 4096, 2 * 4096, Vec::new());
        w.seek(4000);
        w.feed(0, chunk(&block));
        w.feed(1, chunk(&block));
        w.skip(96 + 3000);
        assert_eq!((w.bytes(), w.needed()), (&block[3000..], None));
        assert!(!w.spilled);
    }

    #[test]
    fn a_seek_keeps_a_block_that_holds_the_place_and_drops_others() {
        let mut w = Window::new(0, 4, 100, Vec::new());
        w.seek(9);
        assert_eq!(w.needed(), Some(2));
        w.feed(2, chunk(b"ijkl"));
        w.seek(8);
        assert_eq!(w.bytes(), b"ijkl");
        w.seek(12);
        assert_eq!((w.bytes(), w.needed()), (&b""[..], Some(3)));
        w.seek(11);
        assert_eq!((w.bytes(), w.needed()), (&b""[..], Some(2)));
        w.feed(7, chunk(b"late"));
        assert_eq!(w.needed(), Some(2));
    }
}
