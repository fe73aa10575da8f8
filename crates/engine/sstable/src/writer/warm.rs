//! Blocks of a file being written that are handed out as they are written. Data that was cached of the
//! replaced files is wanted of this one at once, and need not be read for that.

use std::rc::Rc;

use crate::block::{Chunk, INDEX_PAGE_BYTES};

/// Which chunks of Data are kept, and those that were not taken yet.
#[derive(Default)]
pub(super) struct WarmChunks {
    /// True if the data written now is wanted.
    is_on: bool,
    /// Something in the current chunk is.
    is_chunk: bool,
    /// Something in the current partition is.
    is_partition: bool,
    /// Something in the file was.
    has_been: bool,
    kept: Vec<(u64, Rc<Chunk>)>,
}

impl WarmChunks {
    pub(super) fn set(&mut self, is_on: bool) {
        self.is_on = is_on;
        self.is_chunk |= is_on;
        self.is_partition |= is_on;
        self.has_been |= is_on;
    }

    /// Returns true if data of the next partition is wanted.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_on || self.is_partition
    }

    /// Ends a partition. Returns true if its index is wanted.
    pub(super) fn partition_end(&mut self) -> bool {
        std::mem::replace(&mut self.is_partition, self.is_on)
    }

    pub(super) fn has_been(&self) -> bool {
        self.has_been
    }

    /// Ends a chunk with its number and its uncompressed bytes. Its last item may continue in the
    /// next one.
    pub(super) fn cut(&mut self, number: u64, plain: &[u8]) {
        if self.is_chunk {
            self.is_chunk = self.is_on;
            self.kept.push((number, Rc::new(Chunk::new(plain.to_vec()))));
        }
    }

    pub(super) fn take(&mut self) -> Vec<(u64, Rc<Chunk>)> {
        std::mem::take(&mut self.kept)
    }
}

/// The same for pages of an index, which are written long after they are requested.
#[derive(Default)]
pub(super) struct WarmPages {
    /// Ascending.
    marked: Vec<u64>,
    kept: Vec<(u64, Rc<Chunk>)>,
}

impl WarmPages {
    /// Pre: `start` does not descend.
    pub(super) fn mark(&mut self, start: u64, end: u64) {
        for page in start / INDEX_PAGE_BYTES..=end / INDEX_PAGE_BYTES {
            if self.marked.last().is_none_or(|last| *last < page) {
                self.marked.push(page);
            }
        }
    }

    /// Bytes are written to the disk: whole pages, except for the last one of the file.
    pub(super) fn written(&mut self, start: u64, bytes: &[u8]) {
        if self.marked.is_empty() {
            return;
        }
        let pages = bytes.chunks(INDEX_PAGE_BYTES as usize);
        let mut behind = start / INDEX_PAGE_BYTES;
        for page in pages {
            if self.marked.binary_search(&behind).is_ok() {
                self.kept.push((behind, Rc::new(Chunk::new(page.to_vec()))));
            }
            behind += 1;
        }
        self.marked.retain(|page| *page >= behind);
    }

    pub(super) fn take(&mut self) -> Vec<(u64, Rc<Chunk>)> {
        std::mem::take(&mut self.kept)
    }
}
