//! Nodes: separators and references to leaves (level 1) or nodes of the level below.
//!
//! Payload: level u8, count u16, offset of each entry u32, then the entries: a separator with its length, which is
//! not above the first term of the child and above all terms before it; the child; its count of terms and of
//! pairs; above level 1 the list of all its rows: 1 and a block of lists, or 2 and a directory.

use codec::{Reader, Writer};

use crate::block::Output;
use crate::leaf::Counts;
use crate::postings::ListRef;
use crate::{Block, BlockKind, BlockRef, IndexError};

/// Children of a node at most.
pub(crate) const CHILDREN_MAX: usize = 64;
/// Bytes of entries at which a node ends.
const NODE_BYTES: usize = 16 << 10;
/// Levels at most: 64^8 leaves.
pub(crate) const LEVELS_MAX: u8 = 8;

#[derive(Debug, Default)]
pub(crate) struct NodeBuilder {
    offsets: Vec<u32>,
    entries: Vec<u8>,
    first: Vec<u8>,
    counts: Counts,
}

/// A child, as a writer stores it.
#[derive(Debug)]
pub(crate) struct NewChild<'a> {
    pub(crate) separator: &'a [u8],
    pub(crate) at: BlockRef,
    pub(crate) counts: Counts,
    pub(crate) rows: Option<ListRef>,
}

/// A node that was written.
#[derive(Debug)]
pub(crate) struct FinishedNode {
    pub(crate) at: BlockRef,
    pub(crate) first: Vec<u8>,
    pub(crate) counts: Counts,
}

impl NodeBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.offsets.len() >= CHILDREN_MAX || self.entries.len() >= NODE_BYTES
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() + self.offsets.capacity() * 4
    }

    pub(crate) fn push(&mut self, child: &NewChild<'_>) {
        if self.offsets.is_empty() {
            self.first = child.separator.to_vec();
        }
        self.offsets.push(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        self.entries.put_bytes_vint(child.separator);
        child.at.put(&mut self.entries);
        self.entries.put_vint_unsigned(child.counts.terms);
        self.entries.put_vint_unsigned(child.counts.ids);
        match child.rows {
            None => {}
            Some(ListRef::Part { block, .. }) => {
                self.entries.put_u8(1);
                block.put(&mut self.entries);
            }
            Some(ListRef::Directory(at)) => {
                self.entries.put_u8(2);
                at.put(&mut self.entries);
            }
        }
        self.counts.add(child.counts);
    }

    pub(crate) fn finish(
        &mut self,
        level: u8,
        out: &mut Output,
    ) -> Result<FinishedNode, IndexError> {
        let mut payload = Vec::with_capacity(self.entries.len() + self.offsets.len() * 4 + 3);
        payload.put_u8(level);
        payload.put_u16(u16::try_from(self.offsets.len()).unwrap_or(u16::MAX));
        self.offsets.iter().for_each(|offset| payload.put_u32(*offset));
        payload.extend_from_slice(&self.entries);
        let at = out.put_block(BlockKind::Node, &payload)?;
        let node = std::mem::take(self);
        Ok(FinishedNode { at, first: node.first, counts: node.counts })
    }
}

/// A node as it is read.
#[derive(Clone, Debug)]
pub(crate) struct NodeReader {
    block: Block,
    pub(crate) level: u8,
    pub(crate) children: usize,
    entries: usize,
}

/// A child as it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    pub(crate) at: BlockRef,
    pub(crate) counts: Counts,
    /// None at level 1.
    pub(crate) rows: Option<ListRef>,
}

impl NodeReader {
    pub(crate) fn open(block: Block) -> Result<NodeReader, IndexError> {
        let mut r = Reader::new(block.payload(), "node");
        let (level, children) = (r.u8()?, usize::from(r.u16()?));
        r.skip(children * 4)?;
        let entries = r.position();
        if level == 0 || level > LEVELS_MAX || children == 0 || children > CHILDREN_MAX {
            return Err(block.invalid("node with an impossible level or count"));
        }
        Ok(NodeReader { block, level, children, entries })
    }

    pub(crate) fn block_at(&self) -> BlockRef {
        self.block.at()
    }

    fn entry(&self, at: usize) -> Result<Reader<'_>, IndexError> {
        let mut r = Reader::new(self.block.payload(), "node");
        r.skip(3 + at * 4)?;
        let offset = self.entries.saturating_add(r.u32()? as usize);
        let mut r = Reader::new(self.block.payload(), "node");
        r.skip(offset)?;
        Ok(r)
    }

    pub(crate) fn separator(&self, at: usize) -> Result<&[u8], IndexError> {
        Ok(self.entry(at)?.bytes_vint()?)
    }

    pub(crate) fn child(&self, at: usize) -> Result<Child, IndexError> {
        let owner = self.block.at().offset;
        let mut r = self.entry(at)?;
        r.bytes_vint()?;
        let child = BlockRef::read(&mut r, owner)?;
        let counts = Counts { terms: r.vint_unsigned()?, ids: r.vint_unsigned()? };
        let rows = if self.level == 1 {
            None
        } else {
            let kind = r.u8()?;
            let list = BlockRef::read(&mut r, owner)?;
            Some(match kind {
                1 => ListRef::Part { block: list, start: 0 },
                2 => ListRef::Directory(list),
                _ => return Err(self.block.invalid("rows of a child of an unknown kind")),
            })
        };
        Ok(Child { at: child, counts, rows })
    }

    /// Children whose separators satisfy `below`, which those of the first children do.
    pub(crate) fn partition_point(
        &self,
        below: impl Fn(&[u8]) -> bool,
    ) -> Result<usize, IndexError> {
        let (mut low, mut high) = (0, self.children);
        while low < high {
            let middle = low + (high - low) / 2;
            if below(self.separator(middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Feed;
    use crate::walk::{Purpose, Walk};
    use crate::{IndexSummary, TermRange};

    /// Eight levels of nodes whose 64 children are all the same node: 64^8 paths.
    #[test]
    fn a_node_that_is_its_sibling_too_is_refused() {
        let mut out = Output::at(100);
        let mut below = BlockRef { offset: 10, length: 20 };
        let list = BlockRef { offset: 40, length: 20 };
        let mut blocks = Vec::new();
        for level in 1..=LEVELS_MAX {
            let mut node = NodeBuilder::default();
            for at in 0..64u8 {
                let rows = (level > 1).then_some(ListRef::Directory(list));
                let counts = Counts { terms: 1, ids: 1 };
                node.push(&NewChild { separator: &[at, 1], at: below, counts, rows });
            }
            let start = out.buffered();
            below = node.finish(level, &mut out).unwrap().at;
            blocks.push((below, start));
        }
        let bytes = bytes::Bytes::from(out.take());
        let summary = IndexSummary {
            rows: 10,
            counts: Counts { terms: 9, ids: 9 },
            root: Some(below),
            min: vec![],
            max: vec![255],
        };
        let range = TermRange { upper: std::ops::Bound::Excluded(vec![64]), ..TermRange::all() };
        let mut walk = Walk::new(&summary, vec![range], None, Purpose::Count);
        let mut feed = Feed::default();
        let error = loop {
            match walk.step(&feed) {
                Ok(Some(at)) => {
                    let (_, start) = blocks.iter().find(|(block, _)| *block == at).unwrap();
                    let bytes = bytes.slice(*start..*start + at.length as usize);
                    feed.put(Block::open(at, bytes).unwrap());
                }
                Ok(None) => panic!("counted"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, IndexError::Invalid { .. }), "{error}");
    }
}
