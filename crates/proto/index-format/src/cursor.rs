//! Reads `Index+<id>.db`: the rows of ranges of terms, in ascending order, and how many there are.
//!
//! A cursor does no IO: [`Step::NeedBlock`] names a block; the driver reads and verifies it ([`Block::open`], once
//! for all cursors if it caches blocks), feeds it, and advances again.

use crate::block::Feed;
use crate::leaf::Counts;
use crate::postings::{ListCursor, ListRef, ListStep};
use crate::union::Union;
use crate::walk::{Purpose, Walk, collect};
use crate::{Block, BlockKind, BlockRef, IndexError, IndexSummary, TermFilter, TermRange};

/// Lists in blocks of lists that stay lists; more are decoded at once, as each open list costs 600 bytes.
const PARTS_OPEN_MAX: usize = 16;

/// Outcome of [`IndexCursor::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next row.
    Row(u32),
    /// Feed this block, then advance again.
    NeedBlock(BlockRef),
    /// No further row.
    End,
}

#[derive(Debug)]
enum State {
    Walking(Box<Walk>),
    /// Lists that are decoded, from the end; ids and lists so far.
    Loading(Vec<ListRef>, Vec<u32>, Vec<ListRef>, Option<Block>),
    Reading(Union),
}

/// Rows of ranges of terms.
#[derive(Debug)]
pub struct IndexCursor {
    state: State,
    feed: Feed,
    bound: u32,
    rows: u32,
    /// Known once the walk has ended.
    counts: Counts,
}

impl IndexCursor {
    /// A cursor before the first row.
    pub fn new(summary: &IndexSummary, ranges: Vec<TermRange>) -> IndexCursor {
        IndexCursor::filtered(summary, ranges, None)
    }

    /// The same of the terms that pass a filter.
    pub fn filtered(
        summary: &IndexSummary,
        ranges: Vec<TermRange>,
        filter: Option<TermFilter>,
    ) -> IndexCursor {
        let walk = Box::new(Walk::new(summary, ranges, filter, Purpose::Collect));
        let state = State::Walking(walk);
        let counts = Counts::default();
        IndexCursor { state, feed: Feed::default(), bound: 0, rows: summary.rows, counts }
    }

    /// Finds the rows of the ranges, as [`IndexCursor::advance`] does first. Some: feed this block, then call again.
    ///
    /// # Errors
    /// A defect of a block; the cursor must not be used again.
    pub fn prepare(&mut self) -> Result<Option<BlockRef>, IndexError> {
        let State::Walking(walk) = &mut self.state else { return Ok(None) };
        if let Some(at) = walk.step(&self.feed)? {
            return Ok(Some(at));
        }
        let found = std::mem::take(&mut walk.found);
        let (mut parts, mut lists) = (found.parts, found.lists);
        if parts.len() <= PARTS_OPEN_MAX {
            lists.append(&mut parts);
        }
        parts.reverse();
        self.counts = found.counts;
        self.state = State::Loading(parts, found.ids, lists, None);
        Ok(None)
    }

    /// Terms and pairs in the ranges, exactly, once it is prepared; before, none.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Gives the block that the last step named.
    pub fn feed(&mut self, block: Block) {
        self.feed.put(block);
    }

    /// Skips rows below `row`. Rows that were passed do not come back.
    pub fn seek(&mut self, row: u32) {
        self.bound = self.bound.max(row);
    }

    /// Moves to the next row.
    ///
    /// # Errors
    /// A defect of a block; the cursor must not be used again.
    pub fn advance(&mut self) -> Result<Step, IndexError> {
        loop {
            match &mut self.state {
                State::Walking(_) => {
                    if let Some(at) = self.prepare()? {
                        return Ok(Step::NeedBlock(at));
                    }
                }
                State::Loading(parts, ids, lists, block) => {
                    if let Some(at) = load(parts, ids, block, &self.feed)? {
                        return Ok(Step::NeedBlock(at));
                    }
                    let mut cursors: Vec<ListCursor> =
                        lists.iter().map(|list| ListCursor::of(*list)).collect();
                    if !ids.is_empty() {
                        ids.sort_unstable();
                        ids.dedup();
                        cursors.push(ListCursor::of_ids(std::mem::take(ids)));
                    }
                    self.state = State::Reading(Union::of(cursors));
                }
                State::Reading(union) => {
                    return match union.next(self.bound, &self.feed)? {
                        ListStep::Id(row) if row < self.rows => {
                            self.bound = row + 1;
                            Ok(Step::Row(row))
                        }
                        ListStep::Id(_) => {
                            let what = "row beyond the rows of the file";
                            Err(IndexError::Invalid { what, offset: 0 })
                        }
                        ListStep::Need(at) => Ok(Step::NeedBlock(at)),
                        ListStep::End => Ok(Step::End),
                    };
                }
            }
        }
    }
}

/// Decodes lists. Some: a block is missing.
fn load(
    parts: &mut Vec<ListRef>,
    ids: &mut Vec<u32>,
    block: &mut Option<Block>,
    feed: &Feed,
) -> Result<Option<BlockRef>, IndexError> {
    while let Some(ListRef::Part { block: at, start }) = parts.last().copied() {
        if block.as_ref().is_none_or(|block| block.at() != at) {
            *block = feed.get(at, BlockKind::Postings)?;
        }
        let Some(block) = block.as_ref() else { return Ok(Some(at)) };
        collect(ListCursor::open(block.clone(), start)?, ids)?;
        parts.pop();
    }
    Ok(None)
}

/// Outcome of [`Estimate::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EstimateStep {
    /// Terms and pairs in the ranges, exactly.
    Counts(Counts),
    /// Feed this block, then advance again.
    NeedBlock(BlockRef),
}

/// Counts what ranges hold. Reads a path of nodes and a leaf for each end of a range.
#[derive(Debug)]
pub struct Estimate {
    walk: Walk,
    feed: Feed,
}

impl Estimate {
    /// An estimate of ranges.
    pub fn new(summary: &IndexSummary, ranges: Vec<TermRange>) -> Estimate {
        Estimate { walk: Walk::new(summary, ranges, None, Purpose::Count), feed: Feed::default() }
    }

    /// Gives the block that the last step named.
    pub fn feed(&mut self, block: Block) {
        self.feed.put(block);
    }

    /// Continues.
    ///
    /// # Errors
    /// A defect of a block.
    pub fn advance(&mut self) -> Result<EstimateStep, IndexError> {
        Ok(match self.walk.step(&self.feed)? {
            Some(at) => EstimateStep::NeedBlock(at),
            None => EstimateStep::Counts(self.walk.found.counts),
        })
    }
}
