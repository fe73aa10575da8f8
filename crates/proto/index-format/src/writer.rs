//! Writes `Index+<id>.db` from pairs of a term and a row in ascending order.
//!
//! Output is appended to a buffer that the driver takes and writes; memory is that of a leaf, of a node per level,
//! and of the row ids below the open node of each level (a bit per row of the file at most).

use uuid::Uuid;

use crate::block::Output;
use crate::id_set::IdSet;
use crate::leaf::{Counts, FinishedLeaf, LeafBuilder, TermRows, shared};
use crate::node::{FinishedNode, LEVELS_MAX, NewChild, NodeBuilder};
use crate::postings::{Encoded, ListEncoder, ListRef};
use crate::summary::{ComponentKind, put_header_of};
use crate::{BlockKind, BlockRef, Footer, IndexError, IndexSummary};

/// Longest term, bytes. Longer ones are cut ([`crate::terms`]); the check of the row makes up for it.
pub const TERM_BYTES_MAX: usize = 16 << 10;
/// Ids in leaves below one node of level 1, at which it ends: what a reader of a range collects per end.
const LOOSE_IDS: u64 = 256 << 10;
/// Long lists below one node of level 1, at which it ends.
const HEAVY_LISTS: usize = 64;

#[derive(Debug)]
struct Level {
    node: NodeBuilder,
    rows: IdSet,
    loose: u64,
    heavy: usize,
}

/// Writer of one component.
#[derive(Debug)]
pub struct IndexWriter {
    out: Output,
    rows: u32,
    term: Vec<u8>,
    last_row: u32,
    list: ListEncoder,
    leaf: LeafBuilder,
    /// Last term of the finished leaf before.
    before: Vec<u8>,
    levels: Vec<Level>,
    counts: Counts,
    min: Vec<u8>,
}

impl IndexWriter {
    /// A writer for the index `id` of a file with `rows` rows.
    pub fn new(id: Uuid, rows: u32) -> IndexWriter {
        IndexWriter::of_definition(id, 0, rows)
    }

    /// The same for an index of this definition: [`crate::TableIndex::definition`].
    pub fn of_definition(id: Uuid, definition: u32, rows: u32) -> IndexWriter {
        let mut out = Output::default();
        put_header_of(ComponentKind::Terms, id, definition, &mut out);
        IndexWriter {
            out,
            rows,
            term: Vec::new(),
            last_row: 0,
            list: ListEncoder::default(),
            leaf: LeafBuilder::default(),
            before: Vec::new(),
            levels: Vec::new(),
            counts: Counts::default(),
            min: Vec::new(),
        }
    }

    /// Adds a pair above all before. A pair equal to the one before is ignored.
    ///
    /// # Errors
    /// `Input` when the order is broken, the term too long or the row not one of the file.
    pub fn push(&mut self, term: &[u8], row: u32) -> Result<(), IndexError> {
        if row >= self.rows {
            return Err(IndexError::Input { what: "row id beyond the rows of the file" });
        }
        if self.list.count() > 0 && term == self.term {
            if row <= self.last_row {
                let is_same = row == self.last_row;
                let broken = IndexError::Input { what: "rows of a term do not ascend" };
                return if is_same { Ok(()) } else { Err(broken) };
            }
        } else {
            self.begin_term(term)?;
        }
        self.last_row = row;
        self.levels.iter_mut().take(1).for_each(|level| level.rows.insert(row));
        self.list.push(row, &mut self.out)
    }

    fn begin_term(&mut self, term: &[u8]) -> Result<(), IndexError> {
        if term.len() > TERM_BYTES_MAX {
            return Err(IndexError::Input { what: "term is too long" });
        }
        if self.list.count() == 0 {
            self.min = term.to_vec();
            self.add_level();
        } else {
            if term <= self.term.as_slice() {
                return Err(IndexError::Input { what: "terms do not ascend" });
            }
            self.end_term()?;
            if self.leaf.is_full() {
                self.end_leaf()?;
            }
        }
        self.term.clear();
        self.term.extend_from_slice(term);
        Ok(())
    }

    fn add_level(&mut self) {
        let rows = IdSet::new(self.rows);
        self.levels.push(Level { node: NodeBuilder::default(), rows, loose: 0, heavy: 0 });
    }

    fn end_term(&mut self) -> Result<(), IndexError> {
        let count = self.list.count();
        self.counts.add(Counts { terms: 1, ids: count });
        if let Some(few) = self.list.few().filter(|few| few.len() <= 3) {
            self.leaf.push(&self.term, &TermRows::Few(few), &mut self.out)?;
            self.list.reset();
            return Ok(());
        }
        let encoded = self.list.finish(&mut self.out)?;
        let rows = match &encoded {
            Encoded::Whole(list) => TermRows::Whole(list, count),
            Encoded::Directory(at) => TermRows::Directory(*at, count),
        };
        self.leaf.push(&self.term, &rows, &mut self.out)
    }

    fn end_leaf(&mut self) -> Result<(), IndexError> {
        let leaf = self.leaf.finish(&mut self.out)?;
        let FinishedLeaf { at, first, last, counts, loose, heavy } = leaf;
        // The shortest bytes above all terms before.
        let length = shared(&self.before, &first) + 1;
        let separator = first.get(..length).unwrap_or(&first);
        let Some(level) = self.levels.first_mut() else { return Ok(()) };
        level.node.push(&NewChild { separator, at, counts, rows: None });
        level.loose += loose;
        level.heavy += heavy;
        let is_full =
            level.node.is_full() || level.loose >= LOOSE_IDS || level.heavy >= HEAVY_LISTS;
        self.before = last;
        if is_full {
            self.end_node(0)?;
        }
        Ok(())
    }

    /// Ends the open node of a level and adds it to the level above.
    fn end_node(&mut self, mut at: usize) -> Result<(), IndexError> {
        loop {
            if at + 2 > usize::from(LEVELS_MAX) {
                return Err(IndexError::Input { what: "too many levels" });
            }
            if self.levels.len() == at + 1 {
                self.add_level();
            }
            let Some([level, above, ..]) = self.levels.get_mut(at..) else { return Ok(()) };
            let mut list = ListEncoder::default();
            let out = &mut self.out;
            level.rows.drain(|id| {
                above.rows.insert(id);
                list.push(id, out)
            })?;
            let rows = match list.finish(out)? {
                Encoded::Whole(list) => {
                    let block = out.put_block(BlockKind::Postings, &list)?;
                    ListRef::Part { block, start: 0 }
                }
                Encoded::Directory(at) => ListRef::Directory(at),
            };
            (level.loose, level.heavy) = (0, 0);
            let number = u8::try_from(at + 1).unwrap_or(u8::MAX);
            let FinishedNode { at: node, first, counts } = level.node.finish(number, out)?;
            above.node.push(&NewChild { separator: &first, at: node, counts, rows: Some(rows) });
            if !above.node.is_full() {
                return Ok(());
            }
            at += 1;
        }
    }

    /// Takes the bytes written since the last call.
    pub fn take_output(&mut self) -> Vec<u8> {
        self.out.take()
    }

    /// Bytes that [`IndexWriter::take_output`] would return.
    pub fn buffered_bytes(&self) -> usize {
        self.out.buffered()
    }

    /// Bytes that the writer holds besides its output.
    pub fn memory_bytes(&self) -> usize {
        let levels = self.levels.iter().map(|l| l.node.memory_bytes() + l.rows.memory_bytes());
        self.leaf.memory_bytes() + levels.sum::<usize>()
    }

    /// Writes the rest, which [`IndexWriter::take_output`] then returns.
    ///
    /// # Errors
    /// `Input` beyond the limits of a block.
    pub fn finish(&mut self) -> Result<IndexSummary, IndexError> {
        let mut root = None;
        if self.list.count() > 0 {
            self.end_term()?;
            self.end_leaf()?;
            root = Some(self.end_root()?);
        }
        let summary = IndexSummary {
            rows: self.rows,
            counts: self.counts,
            root,
            min: std::mem::take(&mut self.min),
            max: if root.is_some() { std::mem::take(&mut self.term) } else { Vec::new() },
        };
        let at = self.out.put_block(BlockKind::Summary, &summary.encode())?;
        Footer { summary: at }.put(ComponentKind::Terms, &mut self.out);
        Ok(summary)
    }

    /// Ends every level. The highest with one node only is the root.
    fn end_root(&mut self) -> Result<BlockRef, IndexError> {
        let mut at = 0;
        while at + 1 < self.levels.len() {
            if self.levels.get(at).is_some_and(|level| !level.node.is_empty()) {
                self.end_node(at)?;
            }
            at += 1;
        }
        let number = u8::try_from(at + 1).unwrap_or(u8::MAX);
        let impossible = IndexError::Input { what: "no root" };
        let top = self.levels.get_mut(at).ok_or(impossible)?;
        Ok(top.node.finish(number, &mut self.out)?.at)
    }
}
