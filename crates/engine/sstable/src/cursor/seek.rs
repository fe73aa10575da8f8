//! The part of a cursor that looks things up: a partition in the index, and by the promoted index
//! the place where a slice begins.

use sst_format::index::{IndexEntry, skip_other_keys};

use super::{Result, SstableCursor, State, Step, Target, compare_prefix, is_behind, needed};
use crate::search::{Found, Promoted};

impl SstableCursor {
    /// Entries are compared for equality only: between two samples there are few.
    pub(super) fn find_entry(&mut self, end: u64, fresh: Option<u64>) -> Result<Step> {
        let left = usize::try_from(end.saturating_sub(self.index.position())).unwrap_or(usize::MAX);
        let bytes = self.index.bytes();
        let stretch = bytes.get(..left);
        if let (Some(from), Some(entries)) = (fresh, stretch)
            && from == self.index.position()
        {
            self.meta.mark_stretch(from, entries);
        }
        let passed = skip_other_keys(stretch.unwrap_or(bytes), &self.key);
        self.index.skip(passed);
        while self.index.position() < end {
            let entry = match IndexEntry::decode(self.index.bytes()) {
                Ok(entry) => entry,
                Err(e) => return self.index_error::<()>(&e).map(needed),
            };
            if entry.key == self.key {
                let position = entry.position;
                let at = self.index.position().saturating_add(entry.promoted_at as u64);
                let wanted = entry.promoted_length > 0 && (self.reversed || !self.all);
                let version = self.meta.version();
                self.promoted =
                    wanted.then(|| Promoted::new(at, entry.promoted_length as u64, version));
                self.data.seek(position);
                self.state = State::PartitionHeader;
                return Ok(Step::Again);
            }
            let length = entry.end();
            self.index.skip(length);
        }
        self.meta.note_miss();
        self.state = State::Done;
        Ok(Step::Again)
    }

    pub(super) fn find_start(&mut self) -> Result<Step> {
        while !self.index.is_at_end() {
            let entry = match IndexEntry::decode(self.index.bytes()) {
                Ok(entry) => entry,
                Err(e) => return self.index_error::<()>(&e).map(needed),
            };
            let Target::Range(target) = &self.target else { break };
            if is_behind(self.meta.token_of(entry.key), entry.key, &target.0.start) {
                let position = entry.position;
                self.data.seek(position);
                self.state = State::PartitionHeader;
                return Ok(Step::Again);
            }
            let length = entry.end();
            self.index.skip(length);
        }
        self.state = State::Done;
        Ok(Step::Again)
    }

    /// Goes to the promoted block where the current slice begins.
    pub(super) fn seek(&mut self) -> Result<Step> {
        if self.row_trie.is_some() {
            return self.seek_in_trie();
        }
        let slices = self.slices.clone();
        let (Some(slice), Some(mut promoted)) = (slices.0.get(self.slice), self.promoted.take())
        else {
            self.state = State::PartitionEnd;
            return Ok(Step::Again);
        };
        let meta = self.meta.clone();
        let lengths = &meta.schema().clustering;
        let start = slice.start();
        let comparator = meta.comparator();
        let found = promoted.search(lengths, &mut self.index, &mut self.info, |info| {
            compare_prefix(comparator, &info.last, start).is_ge()
        });
        let outcome = match found {
            Ok(Found::Need(block)) => Ok(Step::Need(block)),
            Ok(Found::Is(block)) => match promoted.blocks(&mut self.index) {
                Ok(Found::Is(blocks)) if block >= blocks => {
                    // No row at or after the slice's start, nor in the slices that follow.
                    promoted.end_search();
                    self.state = State::PartitionEnd;
                    Ok(Step::Again)
                }
                _ => match promoted.load(block, lengths, &mut self.index, &mut self.info) {
                    Ok(Found::Need(needed)) => Ok(Step::Need(needed)),
                    Ok(Found::Is(())) => {
                        promoted.end_search();
                        self.state = State::SeekOpen { block, offset: self.info.offset };
                        Ok(Step::Again)
                    }
                    Err(damage) => Err(self.corrupt_index(damage)),
                },
            },
            Err(damage) => Err(self.corrupt_index(damage)),
        };
        self.promoted = Some(promoted);
        outcome
    }

    pub(super) fn seek_open(&mut self, block: usize, offset: u64) -> Result<Step> {
        let target = self.partition_start.saturating_add(offset);
        if target <= self.data.position() {
            self.state = State::Rows;
            return Ok(Step::Again);
        }
        let Some(before) = block.checked_sub(1) else {
            self.state = State::Rows;
            return Ok(Step::Again);
        };
        let meta = self.meta.clone();
        let lengths = &meta.schema().clustering;
        let loaded = match &mut self.promoted {
            Some(p) => p.load(before, lengths, &mut self.index, &mut self.info),
            None => Ok(Found::Is(())),
        };
        match loaded {
            Ok(Found::Need(needed)) => return Ok(Step::Need(needed)),
            Ok(Found::Is(())) => {}
            Err(damage) => return Err(self.corrupt_index(damage)),
        }
        self.open = self.info.open;
        self.head = None;
        self.data.seek(target);
        self.state = State::Rows;
        Ok(Step::Again)
    }
}
