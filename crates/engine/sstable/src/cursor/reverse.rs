//! The part of a cursor that reads a partition backwards: one block of the promoted index at a time
//! is unpacked into the arena and handed out from its end.

use sst_format::HeadKind;

use super::{
    Current, Event, EventKind, Place, Result, SstableCursor, State, Step, append, compare_prefix,
};
use crate::search::Found;

impl SstableCursor {
    /// Goes to the last promoted block that begins before the end of the last slice.
    pub(super) fn reverse_seek(&mut self) -> Result<Step> {
        if self.row_trie.is_some() {
            return self.reverse_seek_in_trie();
        }
        let slices = self.slices.clone();
        let (Some(slice), Some(mut promoted)) = (slices.0.last(), self.promoted.take()) else {
            self.state = State::PartitionEnd;
            return Ok(Step::Again);
        };
        let meta = self.meta.clone();
        let lengths = &meta.schema().clustering;
        let end = slice.end();
        let comparator = meta.comparator();
        let found = promoted.search(lengths, &mut self.index, &mut self.info, |info| {
            compare_prefix(comparator, &info.first, end).is_gt()
        });
        if matches!(found, Ok(Found::Is(_))) {
            promoted.end_search();
        }
        self.promoted = Some(promoted);
        match found {
            Ok(Found::Need(block)) => return Ok(Step::Need(block)),
            Ok(Found::Is(0)) => self.state = State::PartitionEnd,
            Ok(Found::Is(behind)) => {
                self.state = State::ReverseLoad { block: behind.saturating_sub(1) };
            }
            Err(damage) => return Err(self.corrupt_index(damage)),
        }
        Ok(Step::Again)
    }

    pub(super) fn reverse_load(&mut self, block: usize) -> Result<Step> {
        self.arena.clear();
        self.events.clear();
        if self.row_trie.is_some() {
            return self.reverse_load_by_trie();
        }
        let Some(promoted) = &mut self.promoted else {
            self.data.seek(self.rows_start);
            self.head = None;
            self.state = State::ReverseFill { block, end: None };
            return Ok(Step::Again);
        };
        let meta = self.meta.clone();
        let lengths = &meta.schema().clustering;
        match promoted.load(block, lengths, &mut self.index, &mut self.info) {
            Ok(Found::Need(needed)) => return Ok(Step::Need(needed)),
            Ok(Found::Is(())) => {}
            Err(damage) => return Err(self.corrupt_index(damage)),
        }
        if !std::mem::replace(&mut self.entered, true) {
            // Read backwards, the deletion open at the block's end is the one that the read enters.
            self.open = self.info.open;
        }
        let start = self.partition_start.saturating_add(self.info.offset);
        self.data.seek(start);
        self.head = None;
        let end = start.saturating_add(self.info.width);
        self.state = State::ReverseFill { block, end: Some(end) };
        Ok(Step::Again)
    }

    pub(super) fn reverse_fill(&mut self, block: usize, end: Option<u64>) -> Result<Step> {
        loop {
            if end.is_some_and(|end| self.data.position() >= end) {
                break;
            }
            let head = match self.ensure_head(true)? {
                Found::Need(block) => return Ok(Step::Need(block)),
                Found::Is(head) => head,
            };
            let kind = match head.kind {
                // The last block takes in the end of the partition.
                HeadKind::EndOfPartition => {
                    self.consume(&head)?;
                    break;
                }
                HeadKind::StaticRow => {
                    let at = self.data.position();
                    return Err(self.corrupt_data(at, "a static row among the rows"));
                }
                HeadKind::Row => {
                    let shown = self.unpack(&head)?;
                    if !shown {
                        self.consume(&head)?;
                        continue;
                    }
                    EventKind::Row(append(&mut self.arena, &self.scratch.row))
                }
                HeadKind::Marker(_) => {
                    let (after, close, open) = self.unpack_marker(&head)?;
                    EventKind::Marker { after, close: open, open: close }
                }
            };
            let clustering = append(&mut self.arena, &self.scratch.clustering);
            self.events.push(Event { clustering, kind });
            self.consume(&head)?;
        }
        if end.is_some_and(|end| self.data.position() != end) {
            let at = self.data.position();
            return Err(self.corrupt_data(at, "rows do not end where the index says"));
        }
        self.state = State::ReverseRows { block };
        Ok(Step::Again)
    }

    pub(super) fn reverse_rows(&mut self, block: usize) -> Result<Step> {
        loop {
            if self.slice >= self.slices.0.len() {
                self.state = State::PartitionEnd;
                return Ok(Step::Again);
            }
            let Some(event) = self.events.last() else {
                if let Some(trie) = &mut self.row_trie {
                    trie.step_back = true;
                    self.state = State::ReverseLoad { block };
                    return Ok(Step::Again);
                }
                match block.checked_sub(1).filter(|_| self.promoted.is_some()) {
                    Some(before) => self.state = State::ReverseLoad { block: before },
                    None => self.state = State::PartitionEnd,
                }
                return Ok(Step::Again);
            };
            let (is_row, after) = match &event.kind {
                EventKind::Row(_) => (true, false),
                EventKind::Marker { after, .. } => (false, *after),
            };
            let prefix = self.arena.get(event.clustering.clone()).unwrap_or(&[]);
            match self.place(is_row, prefix, after) {
                Place::After if self.in_slice => {
                    if self.leave_slice() {
                        return Ok(Step::Item);
                    }
                }
                place if place != Place::Before && !self.in_slice => {
                    if self.enter_slice() {
                        return Ok(Step::Item);
                    }
                }
                place => {
                    let Some(event) = self.events.pop() else { continue };
                    match event.kind {
                        EventKind::Row(row) if place == Place::Inside => {
                            self.current = Current::ArenaRow { clustering: event.clustering, row };
                            return Ok(Step::Item);
                        }
                        EventKind::Row(_) => {}
                        EventKind::Marker { after, close, open } => {
                            self.open = open;
                            if place == Place::Inside {
                                let prefix = event.clustering;
                                self.current = Current::ArenaMarker { prefix, after, close, open };
                                return Ok(Step::Item);
                            }
                        }
                    }
                }
            }
        }
    }
}
