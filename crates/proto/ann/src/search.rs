//! Searches a segment for the vectors nearest to a query, as a cursor.
//!
//! A beam of the best nodes found is kept; the nearest node that was not expanded is expanded until none could enter
//! the beam. Then the rows of the beam come out, nearest first by the quantised distance. The caller scores each by
//! the row's own vector; when it asks for more, the search goes on with twice the beam. A segment of few vectors is
//! read whole and its scores are exact. A search holds one block at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use codec::Reader;
use index_format::distance::dot;
use index_format::vectors::Similarity;
use index_format::{Block, BlockKind, BlockRef, IndexError};
use stdx::FixedSet;

use crate::component::{NodePlace, VectorSummary};
use crate::graph::Near;
use crate::space::changed_query;

/// Rows that a search may yield. The walk passes through the others.
#[derive(Clone, Debug)]
pub enum RowFilter {
    /// All rows.
    All,
    /// Those from the first to before the last.
    Range(Range<u32>),
    /// Rows whose bit is set, lowest bit first.
    Bits(Vec<u64>),
}

impl RowFilter {
    fn allows(&self, row: u32) -> bool {
        match self {
            RowFilter::All => true,
            RowFilter::Range(rows) => rows.contains(&row),
            RowFilter::Bits(words) => {
                words.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
            }
        }
    }
}

/// Breadth of a search.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Nodes of the beam.
    pub beam: usize,
    /// Rows that are wanted.
    pub filter: RowFilter,
}

/// Outcome of [`Search::advance`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchStep {
    /// The next row and its approximate score; exact in a segment of few vectors.
    Row {
        /// Row id.
        row: u32,
        /// Score by the quantised vector.
        score: f32,
        /// The score that the vector itself may have at most, hardly ever more.
        most: f32,
    },
    /// Feed this block, then advance again.
    NeedBlock(BlockRef),
    /// No further row.
    End,
}

/// A search of one segment.
#[derive(Debug)]
pub struct Search {
    summary: Arc<VectorSummary>,
    filter: RowFilter,
    query: Vec<f32>,
    /// Sum of squares of the query.
    query_norm: f32,
    /// Distance that quantised vectors may be off.
    error: f32,
    beam: usize,
    /// The block that was fed last.
    block: Option<Block>,
    seen: FixedSet<u32>,
    /// Nodes to be scored, from the end.
    unscored: Vec<u32>,
    /// Scored nodes that were not expanded.
    open: BinaryHeap<Reverse<Near>>,
    /// The best allowed nodes; the worst is first.
    best: BinaryHeap<Near>,
    /// Allowed nodes, and whether they came out.
    scored: Vec<Scored>,
    /// Indexes in `scored` of those to come out, nearest last.
    ready: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Scored {
    near: Near,
    row: u32,
    is_out: bool,
}

impl Search {
    /// A search for the vectors nearest to `query`.
    ///
    /// # Errors
    /// `Input` for another number of dimensions or values that are not finite.
    pub fn new(
        summary: Arc<VectorSummary>,
        query: &[f32],
        options: SearchOptions,
    ) -> Result<Search, IndexError> {
        let query_norm = dot(query, query);
        if query.len() != summary.dimensions || !query_norm.is_finite() {
            return Err(IndexError::Input { what: "impossible query vector" });
        }
        let mut changed = query.to_vec();
        let mut unscored = Vec::new();
        let mut seen = FixedSet::default();
        let (mut error, mut beam) = (0.0, options.beam.max(1));
        match &summary.graph {
            Some(graph) => {
                changed = changed_query(summary.similarity, query);
                graph.quantizer.shift(&mut changed);
                error = graph.quantizer.error();
                unscored.push(graph.entry);
                seen.insert(graph.entry);
            }
            None => {
                unscored.extend((0..summary.nodes).rev());
                beam = beam.max(unscored.len());
            }
        }
        Ok(Search {
            summary,
            filter: options.filter,
            query: changed,
            query_norm,
            error,
            beam,
            block: None,
            seen,
            unscored,
            open: BinaryHeap::new(),
            best: BinaryHeap::new(),
            scored: Vec::new(),
            ready: Vec::new(),
        })
    }

    /// Gives the block that the last step named.
    pub fn feed(&mut self, block: Block) {
        self.block = Some(block);
    }

    fn block_at(&self, place: NodePlace) -> Option<&Block> {
        self.block.as_ref().filter(|block| block.at() == place.block)
    }

    /// Nodes that were seen: scored, or about to be.
    pub fn nodes_seen(&self) -> usize {
        self.seen.len().max(self.scored.len())
    }

    /// Moves to the next row.
    ///
    /// # Errors
    /// A defect of a block; the search must not be used again.
    pub fn advance(&mut self) -> Result<SearchStep, IndexError> {
        loop {
            if let Some(found) = self.ready.pop().and_then(|at| self.scored.get_mut(at)) {
                found.is_out = true;
                let (row, distance) = (found.row, found.near.distance);
                let nearest = (distance.max(0.0).sqrt() - self.error).max(0.0);
                let most = if self.error > 0.0 { nearest * nearest } else { distance };
                let (score, most) = (self.score(distance), self.score(most));
                return Ok(SearchStep::Row { row, score, most });
            }
            if let Some(at) = self.converge()? {
                return Ok(SearchStep::NeedBlock(at));
            }
            let mut beam: Vec<usize> = (0..self.scored.len()).collect();
            beam.sort_unstable_by_key(|at| self.scored.get(*at).map(|found| found.near));
            beam.truncate(self.beam);
            beam.retain(|at| self.scored.get(*at).is_some_and(|found| !found.is_out));
            beam.reverse();
            self.ready = beam;
            if self.ready.is_empty() {
                if self.open.is_empty() && self.scored.iter().all(|found| found.is_out) {
                    return Ok(SearchStep::End);
                }
                self.beam = self.beam.saturating_mul(2);
                self.best = self.scored.iter().map(|found| found.near).collect();
                while self.best.len() > self.beam {
                    self.best.pop();
                }
            }
        }
    }

    /// Expands nodes until none could enter the beam. Some: a block is missing.
    fn converge(&mut self) -> Result<Option<BlockRef>, IndexError> {
        loop {
            while let Some(node) = self.unscored.last().copied() {
                if let Some(at) = self.score_node(node)? {
                    return Ok(Some(at));
                }
                self.unscored.pop();
            }
            let is_full = self.best.len() >= self.beam;
            let nearest = self.open.peek().map(|Reverse(near)| *near);
            let Some(near) = nearest else { return Ok(None) };
            if is_full && self.best.peek().is_some_and(|worst| near > *worst) {
                return Ok(None);
            }
            let summary = self.summary.clone();
            let Some(graph) = &summary.graph else { return Ok(None) };
            let place = summary.place(near.node);
            let Some(block) = self.block_at(place).cloned() else { return Ok(Some(place.block)) };
            self.open.pop();
            let links = links(&block, place, graph.quantizer.steps.len())?;
            for link in links.as_chunks::<4>().0 {
                let node = u32::from_be_bytes(*link);
                if node >= summary.nodes {
                    let what = "neighbour beyond the nodes";
                    return Err(IndexError::Invalid { what, offset: place.block.offset });
                }
                if self.seen.insert(node) {
                    self.unscored.push(node);
                }
            }
        }
    }

    /// Scores a node. Some: its block is missing.
    fn score_node(&mut self, node: u32) -> Result<Option<BlockRef>, IndexError> {
        let place = self.summary.place(node);
        let Some(block) = self.block_at(place) else { return Ok(Some(place.block)) };
        if block.kind() != BlockKind::Vectors {
            return Err(block.invalid("block of another kind"));
        }
        let mut r = Reader::new(block.payload(), "node of vectors");
        r.skip(place.start)?;
        let row = r.u32()?;
        if !self.summary.rows.contains(&row) {
            return Err(block.invalid("row beyond the rows of the segment"));
        }
        let distance = match &self.summary.graph {
            Some(graph) => {
                let codes = r.bytes(graph.quantizer.steps.len())?;
                graph.quantizer.distance(&self.query, codes)
            }
            None => {
                let bytes = r.bytes(4 * self.summary.dimensions)?;
                let vector = bytes.as_chunks::<4>().0.iter().map(|x| f32::from_be_bytes(*x));
                let vector: Vec<f32> = vector.collect();
                -self.summary.similarity.score(&self.query, &vector)
            }
        };
        let near = Near { distance, node };
        if self.summary.graph.is_some() {
            self.open.push(Reverse(near));
        }
        if self.filter.allows(row) {
            self.scored.push(Scored { near, row, is_out: false });
            self.best.push(near);
            if self.best.len() > self.beam {
                self.best.pop();
            }
        }
        Ok(None)
    }

    /// The score that belongs to a distance of changed vectors; in a flat list the distance is the score, negated.
    fn score(&self, distance: f32) -> f32 {
        if self.summary.graph.is_none() {
            return -distance;
        }
        match self.summary.similarity {
            Similarity::Cosine => 1.0 - distance / 4.0,
            Similarity::DotProduct => {
                (1.0 + (self.query_norm + self.summary.norm_max - distance) / 2.0) / 2.0
            }
            Similarity::Euclidean => 1.0 / (1.0 + distance),
        }
    }
}

/// The links of a node whose codes take `codes` bytes.
fn links(block: &Block, place: NodePlace, codes: usize) -> Result<&[u8], IndexError> {
    let mut r = Reader::new(block.payload(), "node of vectors");
    r.skip(place.start)?;
    r.skip(4)?;
    r.skip(codes)?;
    let count = usize::from(r.u8()?);
    Ok(r.bytes(count * 4)?)
}
