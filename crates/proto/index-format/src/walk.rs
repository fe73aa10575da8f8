//! Finds what a component holds for ranges of terms: row ids of leaves, and lists of rows elsewhere.

use crate::block::Feed;
use crate::leaf::{Counts, FoundRows, LeafReader};
use crate::node::NodeReader;
use crate::postings::{ListCursor, ListRef, ListStep};
use crate::range::normalise;
use crate::{Block, BlockKind, BlockRef, IndexError, IndexSummary, TermFilter, TermRange};

/// Content of a component in ranges.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Rows found in leaves, unordered.
    pub(crate) ids: Vec<u32>,
    /// Lists in blocks of lists.
    pub(crate) parts: Vec<ListRef>,
    /// Long lists and those of whole subtrees.
    pub(crate) lists: Vec<ListRef>,
    /// Terms and pairs.
    pub(crate) counts: Counts,
}

/// Purpose of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The rows: leaves are read unless a node above has their rows in one list.
    Collect,
    /// The counts alone: leaves are read at the ends of ranges only.
    Count,
}

#[derive(Debug)]
struct Visit {
    node: NodeReader,
    next: usize,
    end: usize,
    /// All terms below the node are below this; None: nothing is known.
    limit: Option<Vec<u8>>,
}

/// A node that is next on the way to the leaf of one term.
#[derive(Clone, Copy, Debug)]
struct Descent {
    at: BlockRef,
    depth: usize,
    /// Level that the node must have; the root may have any.
    level: Option<u8>,
}

#[derive(Debug)]
pub(crate) struct Walk {
    purpose: Purpose,
    /// Test of terms. With one, the lists and counts of subtrees are no use: all leaves in the ranges are read.
    filter: Option<TermFilter>,
    root: Option<BlockRef>,
    /// In reverse order.
    ranges: Vec<TermRange>,
    range: Option<TermRange>,
    stack: Vec<Visit>,
    descent: Option<Descent>,
    /// Nodes read last, by depth: ranges of an IN list share them.
    path: Vec<NodeReader>,
    leaf: Option<Block>,
    /// End of the last child, in the order of the range: children follow each other in the component, so no block is
    /// visited twice, whatever the bytes refer to.
    floor: u64,
    pub(crate) found: Found,
}

impl Walk {
    pub(crate) fn new(
        summary: &IndexSummary,
        ranges: Vec<TermRange>,
        filter: Option<TermFilter>,
        purpose: Purpose,
    ) -> Walk {
        let mut ranges = match summary.root {
            Some(_) => normalise(ranges, &summary.min, &summary.max),
            None => Vec::new(),
        };
        ranges.reverse();
        Walk {
            purpose,
            filter,
            root: summary.root,
            ranges,
            range: None,
            stack: Vec::new(),
            descent: None,
            path: Vec::new(),
            leaf: None,
            floor: 0,
            found: Found::default(),
        }
    }

    /// Continues. Some: feed this block, then call again. None: everything is found.
    pub(crate) fn step(&mut self, feed: &Feed) -> Result<Option<BlockRef>, IndexError> {
        loop {
            let Some(range) = self.range.take().or_else(|| self.ranges.pop()) else {
                return Ok(None);
            };
            let need = match range.point() {
                Some(term) => self.walk_to(term, &range, feed)?,
                None => self.walk_range(&range, feed)?,
            };
            if need.is_some() {
                self.range = Some(range);
                return Ok(need);
            }
        }
    }

    /// The way of an equality: one child a level.
    fn walk_to(
        &mut self,
        term: &[u8],
        range: &TermRange,
        feed: &Feed,
    ) -> Result<Option<BlockRef>, IndexError> {
        let root = self.root.map(|at| Descent { at, depth: 0, level: None });
        let Some(mut descent) = self.descent.take().or(root) else { return Ok(None) };
        loop {
            let Descent { at, depth, level } = descent;
            let Some(node) = self.node(at, depth, feed)? else {
                self.descent = Some(descent);
                return Ok(Some(at));
            };
            if level.is_some_and(|level| level != node.level) {
                return Err(IndexError::Invalid {
                    what: "node of another level",
                    offset: at.offset,
                });
            }
            let child = node.partition_point(|separator| separator <= term)?.saturating_sub(1);
            let child = node.child(child)?.at;
            if node.level == 1 {
                let Some(leaf) = self.leaf(child, feed)? else {
                    self.descent = Some(descent);
                    return Ok(Some(child));
                };
                self.scan(leaf, range)?;
                return Ok(None);
            }
            descent = Descent { at: child, depth: depth + 1, level: Some(node.level - 1) };
        }
    }

    fn walk_range(
        &mut self,
        range: &TermRange,
        feed: &Feed,
    ) -> Result<Option<BlockRef>, IndexError> {
        if self.stack.is_empty() {
            let Some(root) = self.root else { return Ok(None) };
            let Some(node) = self.node(root, 0, feed)? else { return Ok(Some(root)) };
            self.floor = 0;
            self.visit(node, None, range)?;
        }
        while let Some(visit) = self.stack.last() {
            if visit.next >= visit.end {
                self.floor = visit.node.block_at().end();
                self.stack.pop();
                continue;
            }
            let at = visit.next;
            let child = visit.node.child(at)?;
            if child.at.offset < self.floor {
                let what = "child before the one that it follows";
                return Err(IndexError::Invalid { what, offset: child.at.offset });
            }
            let is_last = at + 1 == visit.node.children;
            let limit =
                if is_last { visit.limit.as_deref() } else { Some(visit.node.separator(at + 1)?) };
            let is_covered = self.filter.is_none()
                && range.is_above_lower(visit.node.separator(at)?)
                && range.covers_below(limit);
            let level = visit.node.level;
            if is_covered && (self.purpose == Purpose::Count || child.rows.is_some()) {
                self.found.counts.add(child.counts);
                self.found.lists.extend(child.rows.filter(|_| self.purpose == Purpose::Collect));
            } else if level == 1 {
                let Some(leaf) = self.leaf(child.at, feed)? else { return Ok(Some(child.at)) };
                self.scan(leaf, range)?;
            } else {
                let limit = limit.map(<[u8]>::to_vec);
                let depth = self.stack.len();
                let Some(node) = self.node(child.at, depth, feed)? else {
                    return Ok(Some(child.at));
                };
                if node.level + 1 != level {
                    return Err(IndexError::Invalid {
                        what: "node of another level",
                        offset: child.at.offset,
                    });
                }
                self.stack.last_mut().into_iter().for_each(|visit| visit.next += 1);
                self.visit(node, limit, range)?;
                continue;
            }
            self.floor = child.at.end();
            self.stack.last_mut().into_iter().for_each(|visit| visit.next += 1);
        }
        Ok(None)
    }

    fn visit(
        &mut self,
        node: NodeReader,
        limit: Option<Vec<u8>>,
        range: &TermRange,
    ) -> Result<(), IndexError> {
        let next = match range.lower_term() {
            Some(lower) => node.partition_point(|separator| separator <= lower)?.saturating_sub(1),
            None => 0,
        };
        let end = node.partition_point(|separator| range.is_below_upper(separator))?;
        self.stack.push(Visit { node, next, end, limit });
        Ok(())
    }

    fn node(
        &mut self,
        at: BlockRef,
        depth: usize,
        feed: &Feed,
    ) -> Result<Option<NodeReader>, IndexError> {
        if let Some(node) = self.path.get(depth).filter(|node| node.block_at() == at) {
            return Ok(Some(node.clone()));
        }
        let Some(block) = feed.get(at, BlockKind::Node)? else { return Ok(None) };
        let node = NodeReader::open(block)?;
        self.path.truncate(depth);
        self.path.push(node.clone());
        Ok(Some(node))
    }

    fn leaf(&mut self, at: BlockRef, feed: &Feed) -> Result<Option<LeafReader>, IndexError> {
        if self.leaf.as_ref().is_none_or(|leaf| leaf.at() != at) {
            let Some(block) = feed.get(at, BlockKind::Leaf)? else { return Ok(None) };
            self.leaf = Some(block);
        }
        self.leaf.clone().map(LeafReader::open).transpose()
    }

    fn scan(&mut self, mut leaf: LeafReader, range: &TermRange) -> Result<(), IndexError> {
        if let Some(lower) = range.lower_term() {
            leaf.seek(lower)?;
        }
        while let Some(rows) = leaf.next()? {
            if !range.is_above_lower(leaf.term()) {
                continue;
            }
            if !range.is_below_upper(leaf.term()) {
                return Ok(());
            }
            if self.filter.as_ref().is_some_and(|filter| !filter.accepts(leaf.term())) {
                continue;
            }
            self.found.counts.add(Counts { terms: 1, ids: rows.count() });
            if self.purpose == Purpose::Count {
                continue;
            }
            match rows {
                FoundRows::Few(ids, count) => {
                    self.found.ids.extend(ids.iter().take(usize::from(count)));
                }
                FoundRows::Inline(start, _) => {
                    let list = ListCursor::open(leaf.block().clone(), start)?;
                    collect(list, &mut self.found.ids)?;
                }
                FoundRows::List(list @ ListRef::Part { .. }, _) => self.found.parts.push(list),
                FoundRows::List(list, _) => self.found.lists.push(list),
            }
        }
        Ok(())
    }
}

/// Appends all ids of an open list of one piece.
pub(crate) fn collect(mut list: ListCursor, ids: &mut Vec<u32>) -> Result<(), IndexError> {
    let feed = Feed::default();
    while let ListStep::Id(id) = list.next(0, &feed)? {
        ids.push(id);
    }
    Ok(())
}
