//! The part of a cursor that reads rows forward, in the slices or past them.

use sst_format::HeadKind;
use sst_format::row::{decode_usual, skip_rows_before};

use super::{Current, Place, Result, SstableCursor, State, Step, Target};
use crate::search::Found;

impl SstableCursor {
    /// Skips rows before the current slice in the loaded bytes.
    fn skip_before_slice(&mut self) {
        let Some(slice) = self.slices.0.get(self.slice) else { return };
        let (schema, comparator) = (self.meta.schema(), self.meta.comparator());
        let passed = skip_rows_before(schema, comparator, slice.start(), self.data.bytes());
        self.data.skip(passed);
    }

    /// Reads the next row if it is of the usual form, in the window and in the slice. False: nothing
    /// has changed.
    #[inline]
    fn usual_row(&mut self) -> bool {
        if !self.in_slice || self.head.is_some() {
            return false;
        }
        let bytes = self.data.bytes();
        let Some(end) = decode_usual(self.meta.schema(), bytes, &mut self.scratch) else {
            return false;
        };
        if self.place(true, &self.scratch.clustering, false) != Place::Inside {
            return false;
        }
        self.item_start = self.data.position();
        self.data.skip(end);
        self.current = Current::Row;
        true
    }

    /// Bytes that begin with the next row of the partition at hand, as far as they are in memory. `None`:
    /// it is not where rows follow, or not all of them are wanted.
    #[inline]
    pub fn raw_rows(&self) -> Option<&[u8]> {
        let are_all = self.state == State::Rows && self.all && self.in_slice && !self.ended;
        (are_all && self.open.is_none()).then(|| self.data.bytes())
    }

    /// Skips rows of [`SstableCursor::raw_rows`]; `ended`: and the end of the partition after them.
    #[inline]
    pub fn pass_rows(&mut self, bytes: usize, ended: bool) {
        self.data.skip(bytes);
        self.head = None;
        if ended {
            self.ended = true;
            self.current = Current::PartitionEnd;
            self.state = match self.target {
                Target::Range(_) => State::PartitionHeader,
                Target::Partition => State::NextPartition,
            };
        }
    }

    pub(super) fn rows(&mut self) -> Result<Step> {
        if self.usual_row() {
            return Ok(Step::Item);
        }
        loop {
            if self.slice >= self.slices.0.len() {
                self.state = State::PartitionEnd;
                return Ok(Step::Again);
            }
            let head = match self.ensure_head(false)? {
                Found::Need(block) => return Ok(Step::Need(block)),
                Found::Is(head) => head,
            };
            let is_row = match head.kind {
                HeadKind::EndOfPartition => {
                    self.consume(&head)?;
                    self.ended = true;
                    self.current = Current::PartitionEnd;
                    self.state = State::NextPartition;
                    return Ok(Step::Item);
                }
                HeadKind::StaticRow => {
                    let at = self.data.position();
                    return Err(self.corrupt_data(at, "a static row among the rows"));
                }
                HeadKind::Row => true,
                HeadKind::Marker(_) => false,
            };
            let after = matches!(head.kind, HeadKind::Marker(kind) if kind.is_after());
            match self.place(is_row, &self.scratch.clustering, after) {
                Place::Before if is_row => {
                    self.consume(&head)?;
                    self.skip_before_slice();
                }
                Place::After if self.in_slice => {
                    let shown = self.leave_slice();
                    if self.has_row_index() && self.slice < self.slices.0.len() {
                        self.state = State::Seek;
                    }
                    if shown {
                        return Ok(Step::Item);
                    }
                    if self.state == State::Seek {
                        return Ok(Step::Again);
                    }
                }
                place if place != Place::Before && !self.in_slice => {
                    if self.enter_slice() {
                        return Ok(Step::Item);
                    }
                }
                place => {
                    if let Found::Need(block) = self.ensure_head(true)? {
                        return Ok(Step::Need(block));
                    }
                    if is_row {
                        let shown = self.unpack(&head)?;
                        self.consume(&head)?;
                        if !shown {
                            continue;
                        }
                        self.current = Current::Row;
                        return Ok(Step::Item);
                    }
                    let (after, close, open) = self.unpack_marker(&head)?;
                    self.consume(&head)?;
                    self.open = open;
                    if place == Place::Inside {
                        self.current = Current::Marker { after, close, open };
                        return Ok(Step::Item);
                    }
                }
            }
        }
    }

    /// Skips the rest of a partition by the sizes of its rows.
    pub(super) fn skip_rows(&mut self) -> Result<Step> {
        loop {
            let head = match self.ensure_head(false)? {
                Found::Need(block) => return Ok(Step::Need(block)),
                Found::Is(head) => head,
            };
            self.consume(&head)?;
            if head.kind == HeadKind::EndOfPartition {
                self.ended = true;
                self.state = State::PartitionHeader;
                return Ok(Step::Again);
            }
        }
    }
}
