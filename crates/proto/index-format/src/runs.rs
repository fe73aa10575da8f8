//! Sorting the pairs of a build within a budget of memory.
//!
//! [`RunBuilder`] collects pairs in any order. When it is full the driver writes a sorted run to a spill file
//! ([`RunBuilder::spill`]) or, at the end of a build without spills, gives the pairs to the writer
//! ([`RunBuilder::write_to`]). [`RunMerger`] merges runs with what is still in memory.
//!
//! A run is blocks of pairs: shared and own bytes of the term as vints, own bytes, the row as a vint.

use std::cmp::Ordering;

use codec::{Reader, Writer};

use crate::block::{Feed, Output};
use crate::leaf::shared;
use crate::writer::TERM_BYTES_MAX;
use crate::{Block, BlockKind, BlockRef, IndexError, IndexWriter};

/// Bytes of a block of a run: what a merge holds for each run.
const RUN_BLOCK_BYTES: usize = 64 << 10;
/// Bytes of a term that are compared as a number.
const HEAD: usize = 8;

/// A pair; the term is in an arena.
#[derive(Clone, Copy, Debug)]
struct Pair {
    /// First bytes of the term, a shorter one padded with zeros.
    head: u64,
    start: u32,
    length: u32,
    row: u32,
}

/// Returns true when a builder should be spilled or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// There is room.
    Room,
    /// The budget is used up.
    Full,
}

/// A sorted run in a spill file: its blocks in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Blocks in the spill file.
    pub blocks: Vec<BlockRef>,
}

/// Collects pairs of a term and a row.
#[derive(Debug)]
pub struct RunBuilder {
    budget_bytes: usize,
    arena: Vec<u8>,
    pairs: Vec<Pair>,
    is_sorted: bool,
}

impl RunBuilder {
    /// A builder that is full at about this many bytes, 4 GiB at most.
    pub fn new(budget_bytes: usize) -> RunBuilder {
        let budget_bytes = budget_bytes.min(u32::MAX as usize - TERM_BYTES_MAX);
        RunBuilder { budget_bytes, arena: Vec::new(), pairs: Vec::new(), is_sorted: true }
    }

    /// Adds a pair in any order. A full builder accepts more, beyond its budget.
    ///
    /// # Errors
    /// `Input` when the term is too long or the arena at its end.
    pub fn push(&mut self, term: &[u8], row: u32) -> Result<Fill, IndexError> {
        let input = |what| IndexError::Input { what };
        if term.len() > TERM_BYTES_MAX {
            return Err(input("term is too long"));
        }
        let number = |n: usize| u32::try_from(n).map_err(|_| input("run is too long"));
        let (start, length) = (number(self.arena.len())?, number(term.len())?);
        let mut head = [0; HEAD];
        head.iter_mut().zip(term).for_each(|(to, from)| *to = *from);
        let pair = Pair { head: u64::from_be_bytes(head), start, length, row };
        self.arena.extend_from_slice(term);
        if self.is_sorted && self.pairs.last().is_some_and(|last| self.compare(last, &pair).is_gt())
        {
            self.is_sorted = false;
        }
        self.pairs.push(pair);
        Ok(if self.memory_bytes() >= self.budget_bytes { Fill::Full } else { Fill::Room })
    }

    /// Pairs so far.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Returns true without pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Bytes in use.
    pub fn memory_bytes(&self) -> usize {
        self.arena.len() + self.pairs.len() * size_of::<Pair>()
    }

    fn term(&self, pair: &Pair) -> &[u8] {
        let start = pair.start as usize;
        self.arena.get(start..start + pair.length as usize).unwrap_or_default()
    }

    fn compare(&self, a: &Pair, b: &Pair) -> Ordering {
        compare(&self.arena, a, b)
    }

    fn sort(&mut self) {
        if !self.is_sorted {
            let arena = &self.arena;
            self.pairs.sort_unstable_by(|a, b| compare(arena, a, b));
            self.is_sorted = true;
        }
    }

    /// Gives all pairs to a writer, in order, and removes them.
    ///
    /// # Errors
    /// Those of [`IndexWriter::push`].
    pub fn write_to(&mut self, writer: &mut IndexWriter) -> Result<(), IndexError> {
        self.sort();
        for pair in &self.pairs {
            writer.push(self.term(pair), pair.row)?;
        }
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.pairs.clear();
        self.arena.clear();
        self.is_sorted = true;
    }

    /// Appends the pairs as a sorted run to `out`, whose first byte is at `offset` of the spill file, and removes them.
    ///
    /// # Errors
    /// `Input` beyond the limits of a block.
    pub fn spill(&mut self, offset: u64, out: &mut Vec<u8>) -> Result<Run, IndexError> {
        self.sort();
        let mut writer = RunWriter::new(offset + out.len() as u64);
        for pair in &self.pairs {
            writer.push(self.term(pair), pair.row)?;
        }
        let run = writer.finish()?;
        out.append(&mut writer.take_output());
        self.clear();
        Ok(run)
    }
}

/// Writes one sorted run.
#[derive(Debug)]
pub struct RunWriter {
    out: Output,
    run: Run,
    payload: Vec<u8>,
    last: Vec<u8>,
}

impl RunWriter {
    /// A writer whose first byte is at `offset` of the spill file.
    pub fn new(offset: u64) -> RunWriter {
        let out = Output::at(offset);
        RunWriter { out, run: Run::default(), payload: Vec::new(), last: Vec::new() }
    }

    /// Adds a pair, not below the pairs before.
    ///
    /// # Errors
    /// `Input` beyond the limits of a block.
    pub fn push(&mut self, term: &[u8], row: u32) -> Result<(), IndexError> {
        let shared = if self.payload.is_empty() { 0 } else { shared(&self.last, term) };
        let own = term.get(shared..).unwrap_or_default();
        self.payload.put_vint_unsigned(shared as u64);
        self.payload.put_bytes_vint(own);
        self.payload.put_vint_unsigned(u64::from(row));
        self.last.truncate(shared);
        self.last.extend_from_slice(own);
        if self.payload.len() >= RUN_BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> Result<(), IndexError> {
        self.run.blocks.push(self.out.put_block(BlockKind::Run, &self.payload)?);
        self.payload.clear();
        self.last.clear();
        Ok(())
    }

    /// Ends the last block. Returns where the blocks are.
    ///
    /// # Errors
    /// `Input` beyond the limits of a block.
    pub fn finish(&mut self) -> Result<Run, IndexError> {
        if !self.payload.is_empty() {
            self.end_block()?;
        }
        Ok(std::mem::take(&mut self.run))
    }

    /// Takes the bytes written since the last call.
    pub fn take_output(&mut self) -> Vec<u8> {
        self.out.take()
    }

    /// Bytes that [`RunWriter::take_output`] would return.
    pub fn buffered_bytes(&self) -> usize {
        self.out.buffered()
    }
}

fn compare(arena: &[u8], a: &Pair, b: &Pair) -> Ordering {
    let tail = |pair: &Pair| {
        let start = pair.start as usize;
        let tail = (start + HEAD).min(start + pair.length as usize);
        arena.get(tail..start + pair.length as usize).unwrap_or_default()
    };
    let heads = a.head.cmp(&b.head);
    // Equal heads: the shorter of two short terms is first, as its zeros are none.
    let rest = || match (a.length as usize <= HEAD, b.length as usize <= HEAD) {
        (true, true) => a.length.cmp(&b.length),
        _ => tail(a).cmp(tail(b)).then(a.length.cmp(&b.length)),
    };
    heads.then_with(rest).then(a.row.cmp(&b.row))
}

/// Outcome of [`RunMerger::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeStep {
    /// Feed this block of the spill file, then advance again.
    NeedBlock(BlockRef),
    /// [`RunMerger::pair`] is the next pair.
    Pair,
    /// No further pair.
    End,
}

#[derive(Debug)]
struct RunReader {
    /// In reverse order.
    blocks: Vec<BlockRef>,
    block: Option<Block>,
    at: usize,
    term: Vec<u8>,
    row: u32,
}

impl RunReader {
    /// Reads the next pair: None at the end, Some of a block that is missing.
    fn next(&mut self, feed: &Feed) -> Result<MergeStep, IndexError> {
        if self.block.as_ref().is_none_or(|block| self.at >= block.payload().len()) {
            self.block = None;
            let Some(at) = self.blocks.last().copied() else { return Ok(MergeStep::End) };
            let Some(block) = feed.get(at, BlockKind::Run)? else {
                return Ok(MergeStep::NeedBlock(at));
            };
            self.blocks.pop();
            self.at = 0;
            self.term.clear();
            self.block = Some(block);
        }
        let Some(block) = &self.block else { return Ok(MergeStep::End) };
        let mut r = Reader::new(block.payload(), "run of a build");
        r.skip(self.at)?;
        let shared = r.vint_len()?;
        if shared > self.term.len() {
            return Err(block.invalid("term of a run without its prefix"));
        }
        self.term.truncate(shared);
        self.term.extend_from_slice(r.bytes_vint()?);
        let row = u32::try_from(r.vint_unsigned()?);
        self.row = row.map_err(|_| block.invalid("row of a run is too large"))?;
        self.at = r.position();
        Ok(MergeStep::Pair)
    }
}

/// Merges sorted runs.
#[derive(Debug)]
pub struct RunMerger {
    runs: Vec<RunReader>,
    /// Runs with a pair, in descending order of it.
    order: Vec<usize>,
    /// Runs whose next pair is to be read.
    unread: Vec<usize>,
    current: Option<usize>,
    feed: Feed,
}

impl RunMerger {
    /// Merges these runs.
    pub fn new(runs: Vec<Run>) -> RunMerger {
        let reader = |run: Run| {
            let mut blocks = run.blocks;
            blocks.reverse();
            RunReader { blocks, block: None, at: 0, term: Vec::new(), row: 0 }
        };
        let unread = (0..runs.len()).collect();
        let runs = runs.into_iter().map(reader).collect();
        RunMerger { runs, order: Vec::new(), unread, current: None, feed: Feed::default() }
    }

    /// Gives the block that the last step named.
    pub fn feed(&mut self, block: Block) {
        self.feed.put(block);
    }

    /// Moves to the next pair.
    ///
    /// # Errors
    /// A defect of a block.
    pub fn advance(&mut self) -> Result<MergeStep, IndexError> {
        self.unread.extend(self.current.take());
        while let Some(at) = self.unread.last().copied() {
            let Some(run) = self.runs.get_mut(at) else { break };
            match run.next(&self.feed)? {
                need @ MergeStep::NeedBlock(_) => return Ok(need),
                MergeStep::End => {}
                MergeStep::Pair => {
                    let key = |at: &usize| self.runs.get(*at).map(|run| (&run.term, run.row));
                    let new = key(&at);
                    let place = self.order.partition_point(|other| key(other) > new);
                    self.order.insert(place, at);
                }
            }
            self.unread.pop();
        }
        self.current = self.order.pop();
        Ok(if self.current.is_some() { MergeStep::Pair } else { MergeStep::End })
    }

    /// The pair of the last step.
    pub fn pair(&self) -> (&[u8], u32) {
        let run = self.current.and_then(|at| self.runs.get(at));
        run.map_or((&[], 0), |run| (run.term.as_slice(), run.row))
    }
}
