//! The indexes of format BTI, written along with Data: Partitions and Rows.

use codec::KeyHash;
use data::DeletionTime;
use sst_format::byte_order::{self, Place};
use sst_format::clustering::{Prefix, PrefixKind};
use sst_format::partitions::{Footer, RowBlock, RowsEntry, Target, encode_block, encode_target};
use sst_format::trie_write::{Payload, TrieWriter, shared};
use sst_format::{FormatError, IndexInfo, Version};
use stdx::Token;
use types::CqlType;

use super::output::Output;

/// State of the tries while partitions are written.
pub(super) struct TrieIndex {
    pub(super) rows: Output,
    version: Version,
    types: Vec<(CqlType, bool)>,
    row_trie: TrieWriter,
    blocks: u64,
    /// Payload of the first block, which is added to the trie when there is a second one.
    first_block: Option<Payload>,
    /// Deletion open where the current block begins.
    open: Option<DeletionTime>,
    /// Form of the last clustering of the block before, and its separator.
    last: Vec<u8>,
    separator: Vec<u8>,
    partitions: TrieWriter,
    /// The last key, which waits for the next one to know how much of it is needed: its payload,
    /// the key, and its form, at least the token's part.
    waiting: Option<Payload>,
    waiting_key: Vec<u8>,
    waiting_token: Token,
    waiting_form: Vec<u8>,
    needed: usize,
    /// Form of the current key; reused.
    form: Vec<u8>,
}

/// A partition that was written to Data.
pub(super) struct PartitionFacts<'p> {
    pub(super) key: &'p [u8],
    pub(super) hash: KeyHash,
    pub(super) start: u64,
    pub(super) deletion: DeletionTime,
    /// From its start to the end of its rows.
    pub(super) rows_end: u64,
}

impl TrieIndex {
    pub(super) fn new(rows: Output, version: Version, types: Vec<(CqlType, bool)>) -> TrieIndex {
        TrieIndex {
            rows,
            version,
            types,
            row_trie: TrieWriter::default(),
            blocks: 0,
            first_block: None,
            open: None,
            last: Vec::new(),
            separator: Vec::new(),
            partitions: TrieWriter::default(),
            waiting: None,
            waiting_key: Vec::new(),
            waiting_token: Token::MIN,
            waiting_form: Vec::new(),
            needed: 0,
            form: Vec::new(),
        }
    }

    fn form(&self, prefix: &Prefix, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let place = match prefix.kind {
            PrefixKind::Clustering => Place::Row,
            kind if kind.is_after() => Place::After,
            _ => Place::Before,
        };
        out.clear();
        byte_order::clustering(&prefix.values, &self.types, place, out).ok_or_else(|| {
            let names: Vec<String> =
                self.types.iter().map(|(ty, _)| ty.to_marshal_name()).collect();
            FormatError::Unsupported {
                what: "clustering in format BTI of",
                value: names.join(", "),
            }
        })
    }

    /// Returns true if the current partition has a block already.
    #[inline]
    pub(super) fn has_block(&self) -> bool {
        self.blocks > 0
    }

    /// A block of rows, with the deletion that is open at its end.
    pub(super) fn block(&mut self, info: &IndexInfo) -> Result<(), FormatError> {
        let block = RowBlock { offset: info.offset, open: self.open };
        let payload = encode_block(&block, self.version);
        let mut separator = std::mem::take(&mut self.separator);
        separator.clear();
        if self.blocks == 0 {
            self.first_block = Some(payload);
        } else {
            let (at, out) = (self.rows.written, &mut self.rows.pending);
            if let Some(first) = self.first_block.take() {
                self.row_trie.add(&[], first, at, out);
            }
            // After all clusterings of earlier blocks, and not after the first of this block.
            self.form(&info.first, &mut separator)?;
            separator.truncate(shared(&self.last, &separator));
            let next = self.last.get(separator.len()).copied().unwrap_or(0);
            separator.push(next.saturating_add(1));
            self.row_trie.add(&separator, payload, at, &mut self.rows.pending);
        }
        self.separator = separator;
        let mut last = std::mem::take(&mut self.last);
        let formed = self.form(&info.last, &mut last);
        self.last = last;
        self.open = info.open;
        self.blocks += 1;
        formed
    }

    /// Ends a partition.
    pub(super) fn partition(
        &mut self,
        facts: &PartitionFacts<'_>,
        index: &mut Output,
    ) -> Result<(), FormatError> {
        let mut target = Target::Data(facts.start);
        if self.blocks > 1 {
            // Positions after all rows are found to be there quickly.
            let mut end = self.last.clone();
            let mut at = shared(&self.last, &self.separator);
            while self.last.get(at) == Some(&0xff) {
                at += 1;
            }
            end.truncate(at + 1);
            if let Some(byte) = end.last_mut() {
                *byte = byte.saturating_add(1);
            }
            let block = RowBlock { offset: facts.rows_end, open: None };
            let payload = encode_block(&block, self.version);
            let written = self.rows.written;
            self.row_trie.add(&end, payload, written, &mut self.rows.pending);
            if let Some(root) = self.row_trie.finish(written, &mut self.rows.pending) {
                let at = self.rows.length();
                let entry = RowsEntry {
                    key: facts.key,
                    position: facts.start,
                    root,
                    blocks: self.blocks,
                    deletion: facts.deletion,
                };
                entry.encode(at, self.version, &mut self.rows.pending)?;
                target = Target::Rows(at);
            }
        }
        self.row_trie.clear();
        self.first_block = None;
        self.blocks = 0;
        self.open = None;
        let hash = facts.hash;
        self.form.clear();
        // The part of the previous key that differs from its neighbours: hardly ever more than of
        // the token.
        let mut differs = 0;
        if self.waiting.is_some() && self.waiting_token == hash.token {
            byte_order::partition_key(hash.token, facts.key, &mut self.form);
            self.waiting_form.clear();
            byte_order::partition_key(hash.token, &self.waiting_key, &mut self.waiting_form);
            differs = shared(&self.waiting_form, &self.form) + 1;
        } else {
            byte_order::partition_token(hash.token, &mut self.form);
            if self.waiting.is_some() {
                differs = byte_order::shared_of_tokens(self.waiting_token, hash.token) + 1;
            }
        }
        self.waiting_for(hash, target, differs, index);
        self.waiting_key.clear();
        self.waiting_key.extend_from_slice(facts.key);
        Ok(())
    }

    /// A partition of that token was the last one.
    #[inline]
    pub(super) fn is_of_last(&self, token: Token) -> bool {
        self.waiting.is_some() && self.waiting_token == token
    }

    /// Ends a partition of one block whose token neither the one before nor the next one has: its key is not needed.
    #[inline]
    pub(super) fn partition_of_token(&mut self, hash: KeyHash, start: u64, index: &mut Output) {
        stdx::debug_invariant!(!self.is_of_last(hash.token), "trie of partitions: a key is needed");
        let mut differs = 0;
        if self.waiting.is_some() {
            differs = byte_order::shared_of_tokens(self.waiting_token, hash.token) + 1;
        }
        self.form.clear();
        byte_order::partition_token(hash.token, &mut self.form);
        self.waiting_for(hash, Target::Data(start), differs, index);
    }

    /// The current partition, with its form, waits for the next one; the previous one is written.
    #[inline]
    fn waiting_for(&mut self, hash: KeyHash, target: Target, differs: usize, index: &mut Output) {
        self.add_waiting(differs, index);
        self.needed = differs;
        let [.., low] = hash.bloom.base.to_be_bytes();
        self.waiting = Some(encode_target(low, target));
        self.waiting_token = hash.token;
        std::mem::swap(&mut self.waiting_form, &mut self.form);
    }

    fn add_waiting(&mut self, differs: usize, index: &mut Output) {
        if let Some(payload) = self.waiting.take() {
            let key = self.waiting_form.get(..differs.max(self.needed));
            let key = key.unwrap_or(&self.waiting_form);
            self.partitions.add(key, payload, index.written, &mut index.pending);
        }
    }

    /// Ends the partition index.
    pub(super) fn finish(
        &mut self,
        first: &[u8],
        last: &[u8],
        index: &mut Output,
    ) -> Result<(), FormatError> {
        self.add_waiting(0, index);
        let count = self.partitions.len();
        if let Some(root) = self.partitions.finish(index.written, &mut index.pending) {
            let footer = Footer { first: first.to_vec(), last: last.to_vec(), count, root };
            footer.encode(index.length(), &mut index.pending)?;
        }
        Ok(())
    }
}
