//! The part of a cursor that looks things up in the tries of format BTI: a partition in Partitions,
//! and in Rows the block of rows where a slice begins or ends.
//!
//! A walk that lacks a page requests it and restarts once the page is in memory.

use data::BoundRef;
use data::command::RingBound;
use sst_format::byte_order::{self, Place};
use sst_format::partitions::{RowBlock, RowsEntry, partition_payload, row_payload};
use sst_format::trie::{Node, Path, Stop, follow};

use super::{Result, SstableCursor, State, Step, Target};
use crate::block::{FilePages, INDEX_BLOCK, ROWS_BLOCK};
use crate::search::IndexDamage;

/// The trie of a partition's rows.
#[derive(Debug)]
pub(super) struct RowTrie {
    root: u64,
    /// Reversed reading: the current block.
    path: Path,
    /// Reversed reading: the block before the current one is next.
    pub(super) step_back: bool,
}

impl SstableCursor {
    /// Prepares the lookup of the target.
    pub(super) fn start_in_trie(&mut self) {
        self.place_key.clear();
        self.state = match &self.target {
            Target::Partition => {
                byte_order::partition_key(self.token, &self.key, &mut self.place_key);
                State::FindPlace
            }
            Target::Range(target) => {
                let from = match &target.0.start {
                    RingBound::Token { token, .. } | RingBound::Key { token, .. } => *token,
                };
                match &target.0.start {
                    RingBound::Token { token, after } => {
                        byte_order::token_bound(*token, *after, &mut self.place_key);
                    }
                    RingBound::Key { token, key, .. } => {
                        byte_order::partition_key(*token, key, &mut self.place_key);
                    }
                }
                if from > self.meta.last_token() {
                    State::Done
                } else if from < self.meta.first_token() {
                    State::PartitionHeader
                } else {
                    State::FindPlace
                }
            }
        };
    }

    pub(super) fn find_place(&mut self) -> Result<Step> {
        let meta = self.meta.clone();
        let Some(footer) = meta.footer() else {
            self.state = State::Done;
            return Ok(Step::Again);
        };
        let pages = self.pages.of(INDEX_BLOCK, meta.index_length());
        let is_range = matches!(self.target, Target::Range(_));
        let found = if is_range {
            Path::ceiling(&pages, footer.root, &self.place_key).and_then(|path| match path.node() {
                None => Ok(None),
                Some(at) => partition_payload(&Node::read(&pages, at)?, at),
            })
        } else {
            follow(&pages, footer.root, &self.place_key).and_then(|node| match node {
                None => Ok(None),
                Some(node) => partition_payload(&node, footer.root),
            })
        };
        let found = match self.pages.walked(INDEX_BLOCK, found) {
            Ok(Ok(found)) => found,
            Ok(Err(block)) => return Ok(Step::Need(block)),
            Err(at) => return Err(self.damaged_trie(at)),
        };
        // One byte of the key's hash: false positives of the Bloom filter are mostly detected here.
        let found = found.filter(|(hash, _)| {
            let own = codec::hash_key(&self.key).bloom.base.to_be_bytes()[7];
            is_range || hash.is_none_or(|hash| hash == own)
        });
        self.row_trie = None;
        self.state = match found {
            None => {
                if !is_range {
                    self.meta.note_miss();
                }
                State::Done
            }
            Some((_, sst_format::partitions::Target::Data(position))) => {
                self.data.seek(position);
                State::PartitionHeader
            }
            Some((_, sst_format::partitions::Target::Rows(position))) => {
                self.index.seek(position);
                State::RowsEntry
            }
        };
        Ok(Step::Again)
    }

    pub(super) fn rows_entry(&mut self) -> Result<Step> {
        let at = self.index.position();
        let entry = match RowsEntry::decode(self.index.bytes(), at, self.meta.version()) {
            Ok(entry) => entry,
            Err(e) => return self.rows_error(&e),
        };
        let is_range = matches!(self.target, Target::Range(_));
        if !is_range && entry.key != self.key {
            self.meta.note_miss();
            self.state = State::Done;
            return Ok(Step::Again);
        }
        let wanted = !is_range && (self.reversed || !self.all);
        self.row_trie =
            wanted.then(|| RowTrie { root: entry.root, path: Path::default(), step_back: false });
        let position = entry.position;
        self.data.seek(position);
        self.state = State::PartitionHeader;
        Ok(Step::Again)
    }

    fn rows_error(&self, error: &codec::DecodeError) -> Result<Step> {
        let needed = self.index.needed();
        if let (codec::DecodeErrorKind::Truncated { .. }, Some(block)) = (error.kind, needed) {
            return Ok(Step::Need(block));
        }
        let offset = self.index.position().saturating_add(error.offset as u64);
        Err(self.damaged_rows(offset, error.to_string()))
    }

    fn damaged_trie(&self, offset: u64) -> data::CursorError {
        self.corrupt_index(IndexDamage { offset, what: "not a node of a trie".to_owned() })
    }

    fn damaged_rows(&self, offset: u64, what: String) -> data::CursorError {
        let file = self.meta.rows_file().to_owned();
        data::CursorError::Corrupt { file, offset, what }
    }

    /// Converts the result of a walk in Rows: `Err(step)` when it lacks a page.
    fn walked<T>(
        &self,
        result: std::result::Result<T, Stop>,
    ) -> Result<std::result::Result<T, Step>> {
        match self.pages.walked(ROWS_BLOCK, result) {
            Ok(Ok(found)) => Ok(Ok(found)),
            Ok(Err(block)) => Ok(Err(Step::Need(block))),
            Err(at) => Err(self.damaged_rows(at, "not a node of a trie".to_owned())),
        }
    }

    /// Puts the form of a bound into `place_key`. False: the clustering's types have none.
    fn encode_bound(&mut self, bound: BoundRef<'_>) -> bool {
        self.place_key.clear();
        let place = if bound.after { Place::After } else { Place::Before };
        let types = &self.meta.statistics().header.clustering_types;
        byte_order::clustering(bound.prefix, types, place, &mut self.place_key).is_some()
    }

    /// Goes to the block of rows where the current slice begins.
    pub(super) fn seek_in_trie(&mut self) -> Result<Step> {
        let slices = self.slices.clone();
        let (Some(slice), Some(trie)) = (slices.0.get(self.slice), &self.row_trie) else {
            self.state = State::PartitionEnd;
            return Ok(Step::Again);
        };
        let root = trie.root;
        if !self.encode_bound(slice.start()) {
            self.state = State::Rows;
            return Ok(Step::Again);
        }
        let version = self.meta.version();
        let pages = self.pages.of(ROWS_BLOCK, self.meta.rows_length());
        let found = Path::floor(&pages, root, &self.place_key)
            .and_then(|path| block_at(&pages, &path, version));
        let found = match self.walked(found)? {
            Ok(found) => found,
            Err(step) => return Ok(step),
        };
        self.state = State::Rows;
        if let Some(block) = found {
            let target = self.partition_start.saturating_add(block.offset);
            if target > self.data.position() {
                self.open = block.open;
                self.head = None;
                self.data.seek(target);
            }
        }
        Ok(Step::Again)
    }

    /// Goes to the last block of rows that begins before the end of the last slice.
    pub(super) fn reverse_seek_in_trie(&mut self) -> Result<Step> {
        let slices = self.slices.clone();
        let (Some(slice), Some(trie)) = (slices.0.last(), &self.row_trie) else {
            self.state = State::PartitionEnd;
            return Ok(Step::Again);
        };
        let root = trie.root;
        if !self.encode_bound(slice.end()) {
            // All rows at once, as in a partition without an index.
            self.row_trie = None;
            self.state = State::ReverseLoad { block: 0 };
            return Ok(Step::Again);
        }
        let pages = self.pages.of(ROWS_BLOCK, self.meta.rows_length());
        let path = match self.walked(Path::floor(&pages, root, &self.place_key))? {
            Ok(path) => path,
            Err(step) => return Ok(step),
        };
        if let Some(trie) = &mut self.row_trie {
            trie.path = path;
        }
        self.state = State::ReverseLoad { block: 0 };
        Ok(Step::Again)
    }

    /// Begins to unpack the current block, or the one before it.
    pub(super) fn reverse_load_by_trie(&mut self) -> Result<Step> {
        let Some(trie) = &self.row_trie else {
            self.state = State::PartitionEnd;
            return Ok(Step::Again);
        };
        let version = self.meta.version();
        let pages = self.pages.of(ROWS_BLOCK, self.meta.rows_length());
        let mut path = trie.path.clone();
        let step_back = trie.step_back;
        let walked = (|| {
            if step_back {
                path.previous(&pages)?;
            }
            let block = block_at(&pages, &path, version)?;
            let mut next = path.clone();
            next.next(&pages)?;
            Ok((block, block_at(&pages, &next, version)?))
        })();
        let (block, next) = match self.walked(walked)? {
            Ok(found) => found,
            Err(step) => return Ok(step),
        };
        if let Some(trie) = &mut self.row_trie {
            trie.path = path;
            trie.step_back = false;
        }
        let Some(block) = block else {
            self.state = State::PartitionEnd;
            return Ok(Step::Again);
        };
        if !std::mem::replace(&mut self.entered, true) {
            // Read backwards, the deletion open where the next block begins is the one that the
            // read enters.
            self.open = next.and_then(|next| next.open);
        }
        if next.is_some_and(|next| next.offset < block.offset) {
            let at = self.partition_start;
            return Err(self.damaged_rows(at, "blocks of rows do not ascend".to_owned()));
        }
        self.data.seek(self.partition_start.saturating_add(block.offset));
        self.head = None;
        let end = next.map(|next| self.partition_start.saturating_add(next.offset));
        self.state = State::ReverseFill { block: 0, end };
        Ok(Step::Again)
    }
}

/// The block of rows at a place; `None`: there is none.
fn block_at(
    pages: &FilePages<'_>,
    path: &Path,
    version: sst_format::Version,
) -> std::result::Result<Option<RowBlock>, Stop> {
    match path.node() {
        None => Ok(None),
        Some(at) => row_payload(&Node::read(pages, at)?, at, version),
    }
}
