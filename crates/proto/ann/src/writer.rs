//! Writes a component, segment by segment, in steps that are short beside a shard's turn.

use codec::Writer;
use index_format::block::Output;
use index_format::distance::dot;
use index_format::runs::Fill;
use index_format::summary::{ComponentKind, put_header_of};
use index_format::vectors::{DIMENSIONS_MAX, Similarity};
use index_format::{BlockKind, BlockRef, Footer, IndexError};
use uuid::Uuid;

use crate::component::{FLAT_MAX, GraphOptions, GraphSummary, VectorDirectory, VectorSummary};
use crate::graph::GraphBuilder;
use crate::quantize::{Quantizer, Ranges};
use crate::space::{change_stored, changed_dimensions};

/// Vectors that a step changes or finds the ranges of.
const VECTORS_PER_STEP: usize = 256;
/// Bytes of links and bookkeeping of a node during the construction, at most.
const NODE_BYTES: usize = 320;

/// Outcome of [`VectorWriter::build`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStep {
    /// There is more to do. [`VectorWriter::take_output`] now keeps memory small.
    More,
    /// All vectors so far are in segments.
    Done,
}

/// Writes a component. It holds the vectors of one segment.
#[derive(Debug)]
pub struct VectorWriter {
    similarity: Similarity,
    dimensions: usize,
    options: GraphOptions,
    budget_bytes: usize,
    out: Output,
    segments: Vec<BlockRef>,
    /// Rows up to the last one that was added.
    rows: u32,
    ids: Vec<u32>,
    /// Places of changed vectors, which may have one dimension more.
    vectors: Vec<f32>,
    norm_max: f32,
    segment: Option<Segment>,
}

/// A segment that is built.
#[derive(Debug)]
struct Segment {
    ids: Vec<u32>,
    summary: VectorSummary,
    work: Work,
}

/// Work on a segment that is left.
#[derive(Debug)]
enum Work {
    /// Write the list of vectors from this node on.
    List(Vec<f32>, usize),
    /// Change vectors from this node on.
    Change(Vec<f32>, usize, Ranges),
    Build(GraphBuilder, Quantizer),
    /// Write the graph from this node on.
    Graph(GraphBuilder, usize),
    End,
}

impl VectorWriter {
    /// A writer for the index `id`, of this definition. A segment is complete at `budget_bytes`.
    ///
    /// # Errors
    /// `Input` without dimensions or with too many.
    pub fn new(
        id: Uuid,
        definition: u32,
        similarity: Similarity,
        dimensions: usize,
        options: GraphOptions,
        budget_bytes: usize,
    ) -> Result<VectorWriter, IndexError> {
        if dimensions == 0 || dimensions > DIMENSIONS_MAX {
            return Err(IndexError::Input { what: "impossible number of dimensions" });
        }
        let mut out = Output::default();
        put_header_of(ComponentKind::Vectors, id, definition, &mut out);
        Ok(VectorWriter {
            similarity,
            dimensions,
            options,
            budget_bytes,
            out,
            segments: Vec::new(),
            rows: 0,
            ids: Vec::new(),
            vectors: Vec::new(),
            norm_max: 0.0,
            segment: None,
        })
    }

    /// Adds the vector of a row, whose id is above all before. When it is full, [`VectorWriter::build`] makes room.
    ///
    /// # Errors
    /// `Input` for another number of dimensions, values that are not finite, a zero vector where the similarity is the
    /// cosine, a row that is out of order.
    pub fn push(&mut self, row: u32, vector: &[f32]) -> Result<Fill, IndexError> {
        let input = |what| Err(IndexError::Input { what });
        let norm = dot(vector, vector);
        if row < self.rows || row == u32::MAX {
            return input("row out of order");
        }
        if vector.len() != self.dimensions {
            return input("vector of another number of dimensions");
        }
        if !norm.is_finite() {
            return input("vector with values that are not finite or too large");
        }
        if norm == 0.0 && self.similarity == Similarity::Cosine {
            return input("zero vector");
        }
        self.rows = row + 1;
        self.ids.push(row);
        self.norm_max = self.norm_max.max(norm);
        self.vectors.extend_from_slice(vector);
        if self.similarity == Similarity::DotProduct {
            self.vectors.push(0.0);
        }
        Ok(if self.is_full() { Fill::Full } else { Fill::Room })
    }

    /// Returns true if the vectors should become a segment now.
    pub fn is_full(&self) -> bool {
        self.ids.len() * (4 * self.stride() + NODE_BYTES) >= self.budget_bytes
    }

    fn stride(&self) -> usize {
        changed_dimensions(self.similarity, self.dimensions)
    }

    /// Does a part of the work that makes a segment of the vectors so far.
    ///
    /// # Errors
    /// `Input` beyond the limits of a block.
    pub fn build(&mut self) -> Result<BuildStep, IndexError> {
        let Some(mut segment) = self.segment.take().or_else(|| self.begin()) else {
            return Ok(BuildStep::Done);
        };
        let stride = self.stride();
        let per_block = segment.summary.block_nodes() as usize;
        segment.work = match segment.work {
            Work::List(vectors, from) => {
                let to = from.saturating_add(per_block).min(segment.ids.len());
                let ids = segment.ids.get(from..to).unwrap_or_default();
                let mut nodes = Vec::with_capacity(ids.len() * segment.summary.node_bytes());
                for (row, vector) in ids.iter().zip(vectors.chunks_exact(stride).skip(from)) {
                    nodes.put_u32(*row);
                    vector.iter().take(self.dimensions).for_each(|x| nodes.put_f32(*x));
                }
                self.out.put_block(BlockKind::Vectors, &nodes)?;
                if to == segment.ids.len() { Work::End } else { Work::List(vectors, to) }
            }
            Work::Change(mut vectors, from, mut ranges) => {
                let some = vectors.chunks_exact_mut(stride).skip(from).take(VECTORS_PER_STEP);
                some.for_each(|vector| {
                    change_stored(self.similarity, segment.summary.norm_max, vector);
                    ranges.add(vector);
                });
                let to = from + VECTORS_PER_STEP;
                if to < segment.ids.len() {
                    Work::Change(vectors, to, ranges)
                } else {
                    let graph = GraphBuilder::new(vectors, stride, self.options);
                    Work::Build(graph, ranges.quantizer())
                }
            }
            Work::Build(mut graph, quantizer) => {
                if graph.step() {
                    let degree = graph.neighbours().iter().map(Vec::len).max().unwrap_or(0).max(1);
                    let entry = graph.entry();
                    segment.summary.graph = Some(GraphSummary { entry, degree, quantizer });
                    Work::Graph(graph, 0)
                } else {
                    Work::Build(graph, quantizer)
                }
            }
            Work::Graph(graph, from) => {
                let to = from.saturating_add(per_block).min(segment.ids.len());
                let nodes = nodes_of(&segment.ids, &segment.summary, &graph, from, to);
                self.out.put_block(BlockKind::Vectors, &nodes)?;
                if to == segment.ids.len() { Work::End } else { Work::Graph(graph, to) }
            }
            Work::End => {
                let summary = segment.summary.encode();
                self.segments.push(self.out.put_block(BlockKind::VectorSegment, &summary)?);
                let is_done = self.ids.is_empty();
                return Ok(if is_done { BuildStep::Done } else { BuildStep::More });
            }
        };
        self.segment = Some(segment);
        Ok(BuildStep::More)
    }

    /// The segment of the vectors so far. `None`: there are none.
    fn begin(&mut self) -> Option<Segment> {
        let (first, last) = (*self.ids.first()?, *self.ids.last()?);
        let ids = std::mem::take(&mut self.ids);
        let vectors = std::mem::take(&mut self.vectors);
        let summary = VectorSummary {
            similarity: self.similarity,
            dimensions: self.dimensions,
            nodes: u32::try_from(ids.len()).unwrap_or(u32::MAX),
            rows: first..last + 1,
            base: self.out.offset(),
            norm_max: std::mem::take(&mut self.norm_max),
            graph: None,
        };
        let work = match ids.len() <= FLAT_MAX {
            true => Work::List(vectors, 0),
            false => Work::Change(vectors, 0, Ranges::new(self.stride())),
        };
        Some(Segment { ids, summary, work })
    }

    /// Takes the bytes written since the last call.
    pub fn take_output(&mut self) -> Vec<u8> {
        self.out.take()
    }

    /// Bytes that [`VectorWriter::take_output`] would return.
    pub fn buffered_bytes(&self) -> usize {
        self.out.buffered()
    }

    /// Writes the end of the component of a file with so many rows, after [`VectorWriter::build`] was done.
    /// [`VectorWriter::take_output`] then returns it.
    ///
    /// # Errors
    /// `Input` when vectors are in no segment, beyond the limits of a block, or for a row beyond the rows of the file.
    pub fn finish(&mut self, rows: u32) -> Result<VectorDirectory, IndexError> {
        if !self.ids.is_empty() || self.segment.is_some() {
            return Err(IndexError::Input { what: "vectors without a segment" });
        }
        if rows < self.rows {
            return Err(IndexError::Input { what: "row beyond the rows of the file" });
        }
        let directory = VectorDirectory { rows, segments: std::mem::take(&mut self.segments) };
        let at = self.out.put_block(BlockKind::Summary, &directory.encode())?;
        Footer { summary: at }.put(ComponentKind::Vectors, &mut self.out);
        Ok(directory)
    }
}

/// Nodes of a graph as they are written.
fn nodes_of(
    ids: &[u32],
    summary: &VectorSummary,
    graph: &GraphBuilder,
    from: usize,
    to: usize,
) -> Vec<u8> {
    let mut nodes = Vec::with_capacity((to - from) * summary.node_bytes());
    let Some(GraphSummary { degree, quantizer, .. }) = &summary.graph else { return nodes };
    let stride = quantizer.steps.len();
    let vectors = graph.vectors().chunks_exact(stride.max(1));
    let all = ids.iter().zip(vectors).zip(graph.neighbours());
    for ((row, vector), neighbours) in all.skip(from).take(to - from) {
        nodes.put_u32(*row);
        quantizer.encode(vector, &mut nodes);
        nodes.put_u8(u8::try_from(neighbours.len()).unwrap_or(u8::MAX));
        neighbours.iter().for_each(|node| nodes.put_u32(*node));
        (neighbours.len()..*degree).for_each(|_| nodes.put_u32(0));
    }
    nodes
}
