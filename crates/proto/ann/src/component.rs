//! `Index+<id>.db` of vectors: nodes of a fixed size in blocks, in the order of their rows.
//!
//! A node is its row (u32), then, below [`FLAT_MAX`] vectors, its vector (f32 each); else its quantised vector, the
//! count of its neighbours (u8) and their nodes (u32 each, zeros up to the degree). Nodes fill blocks of about 4 KiB;
//! block n begins at 32 + n * length of a full block. Bytes of the summary: `docs/formats/index.md`.

use codec::{Reader, Writer};
use index_format::block::Output;
use index_format::summary::{ComponentKind, HEADER_BYTES, put_header};
use index_format::{Block, BlockKind, BlockRef, Footer, IndexError};
use uuid::Uuid;

use crate::distance::dot;
use crate::graph::{Graph, build};
use crate::quantize::Quantizer;
use crate::space::Similarity;

pub use crate::graph::GraphOptions;

/// Vectors up to which a component is a list that is searched exactly.
pub const FLAT_MAX: usize = 1_000;
/// Dimensions at most: those of Cassandra's `vector` type that an index takes.
pub const DIMENSIONS_MAX: usize = 8192;
/// Bytes of nodes of a block.
const BLOCK_BYTES: usize = 4091;
/// Bytes after the payload of a block.
const TRAILER: usize = 5;

/// Facts about a component of vectors that a reader keeps in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSummary {
    /// Similarity of the index.
    pub similarity: Similarity,
    /// Dimensions of a vector.
    pub dimensions: usize,
    /// Bound of the row ids: rows of the file.
    pub rows: u32,
    /// Vectors.
    pub nodes: u32,
    pub(crate) norm_max: f32,
    /// None: a flat list.
    pub(crate) graph: Option<GraphSummary>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GraphSummary {
    pub(crate) entry: u32,
    pub(crate) degree: usize,
    pub(crate) quantizer: Quantizer,
}

impl VectorSummary {
    fn node_bytes(&self) -> usize {
        let dimensions = self.similarity.dimensions(self.dimensions);
        match &self.graph {
            Some(graph) => 4 + dimensions + 1 + 4 * graph.degree,
            None => 4 + 4 * self.dimensions,
        }
    }

    pub(crate) fn block_nodes(&self) -> u32 {
        u32::try_from((BLOCK_BYTES / self.node_bytes()).max(1)).unwrap_or(1)
    }

    /// The block of a node, and the node's place in its payload.
    pub(crate) fn place(&self, node: u32) -> NodePlace {
        let per_block = self.block_nodes();
        let number = node / per_block;
        let count = per_block.min(self.nodes.saturating_sub(number.saturating_mul(per_block)));
        let size = self.node_bytes();
        let bytes = |nodes: u32| u32::try_from(nodes as usize * size + TRAILER).unwrap_or(u32::MAX);
        let offset = HEADER_BYTES as u64 + u64::from(number) * u64::from(bytes(per_block));
        NodePlace {
            block: BlockRef { offset, length: bytes(count) },
            number,
            start: (node % per_block) as usize * size,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(self.similarity.code());
        out.put_u16(u16::try_from(self.dimensions).unwrap_or(u16::MAX));
        out.put_u32(self.rows);
        out.put_u32(self.nodes);
        out.put_f32(self.norm_max);
        out.put_u8(u8::from(self.graph.is_some()));
        if let Some(graph) = &self.graph {
            out.put_u32(graph.entry);
            out.put_u8(u8::try_from(graph.degree).unwrap_or(u8::MAX));
            graph.quantizer.least.iter().for_each(|x| out.put_f32(*x));
            graph.quantizer.steps.iter().for_each(|x| out.put_f32(*x));
        }
        out
    }

    /// Reads the block that [`Footer::summary`] names.
    ///
    /// # Errors
    /// A defect of the block.
    pub fn read(block: Block) -> Result<VectorSummary, IndexError> {
        let block = block.expect(BlockKind::Summary)?;
        let invalid = || block.invalid("summary of vectors with impossible values");
        let mut r = Reader::new(block.payload(), "summary of vectors");
        let similarity = Similarity::from_code(r.u8()?).ok_or_else(invalid)?;
        let dimensions = usize::from(r.u16()?);
        let (rows, nodes, norm_max) = (r.u32()?, r.u32()?, f32::from_bits(r.u32()?));
        let is_graph = r.bool()?;
        if dimensions == 0 || dimensions > DIMENSIONS_MAX || nodes > rows || !norm_max.is_finite() {
            return Err(invalid());
        }
        let mut summary =
            VectorSummary { similarity, dimensions, rows, nodes, norm_max, graph: None };
        if is_graph {
            let (entry, degree) = (r.u32()?, usize::from(r.u8()?));
            let changed = similarity.dimensions(dimensions);
            let mut floats = || (0..changed).map(|_| r.u32().map(f32::from_bits)).collect();
            let least: Result<Vec<f32>, _> = floats();
            let steps: Result<Vec<f32>, _> = floats();
            let quantizer = Quantizer { least: least?, steps: steps? };
            let is_finite = quantizer.least.iter().chain(&quantizer.steps).all(|x| x.is_finite());
            if entry >= nodes || degree == 0 || !is_finite {
                return Err(invalid());
            }
            summary.graph = Some(GraphSummary { entry, degree, quantizer });
        }
        r.finish()?;
        let last = summary.place(nodes.saturating_sub(1)).block;
        if nodes > 0 && last.end() > block.at().offset {
            return Err(invalid());
        }
        Ok(summary)
    }
}

/// Where a node is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodePlace {
    pub(crate) block: BlockRef,
    pub(crate) number: u32,
    pub(crate) start: usize,
}

/// Writes a component. Holds all vectors: the driver reserves [`VectorWriter::memory_bytes`].
#[derive(Debug)]
pub struct VectorWriter {
    id: Uuid,
    similarity: Similarity,
    dimensions: usize,
    rows: u32,
    options: GraphOptions,
    ids: Vec<u32>,
    vectors: Vec<f32>,
}

impl VectorWriter {
    /// A writer for the index `id` of a file with `rows` rows.
    ///
    /// # Errors
    /// `Input` without dimensions or with too many.
    pub fn new(
        id: Uuid,
        rows: u32,
        similarity: Similarity,
        dimensions: usize,
        options: GraphOptions,
    ) -> Result<VectorWriter, IndexError> {
        if dimensions == 0 || dimensions > DIMENSIONS_MAX {
            return Err(IndexError::Input { what: "impossible number of dimensions" });
        }
        let (ids, vectors) = (Vec::new(), Vec::new());
        Ok(VectorWriter { id, similarity, dimensions, rows, options, ids, vectors })
    }

    /// Adds the vector of a row, whose id is above all before.
    ///
    /// # Errors
    /// `Input` for another number of dimensions, values that are not finite, a zero vector where the similarity is the
    /// cosine, a row that is out of order or not one of the file.
    pub fn push(&mut self, row: u32, vector: &[f32]) -> Result<(), IndexError> {
        let input = |what| Err(IndexError::Input { what });
        let norm = dot(vector, vector);
        if row >= self.rows || self.ids.last().is_some_and(|last| *last >= row) {
            return input("row out of order or beyond the rows of the file");
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
        self.ids.push(row);
        self.vectors.extend_from_slice(vector);
        Ok(())
    }

    /// Bytes that the vectors and the graph take at most.
    pub fn memory_bytes(&self) -> usize {
        let changed = self.similarity.dimensions(self.dimensions);
        let links = (self.options.degree + self.options.degree / 3 + 1) * 4 + 24;
        self.ids.len() * (4 + 4 * (self.dimensions + changed) + links)
    }

    /// Builds and returns the component with its summary.
    ///
    /// # Errors
    /// `Input` beyond the limits of a block.
    pub fn finish(self) -> Result<Finished, IndexError> {
        let vectors = || self.vectors.chunks_exact(self.dimensions);
        let norm_max = vectors().map(|v| dot(v, v)).fold(0f32, f32::max);
        let mut summary = VectorSummary {
            similarity: self.similarity,
            dimensions: self.dimensions,
            rows: self.rows,
            nodes: u32::try_from(self.ids.len()).unwrap_or(u32::MAX),
            norm_max,
            graph: None,
        };
        let mut nodes = Vec::new();
        if self.ids.len() <= FLAT_MAX {
            for (row, vector) in self.ids.iter().zip(vectors()) {
                nodes.put_u32(*row);
                vector.iter().for_each(|x| nodes.put_f32(*x));
            }
        } else {
            let changed = self.similarity.dimensions(self.dimensions);
            let mut stored = Vec::with_capacity(self.ids.len() * changed);
            vectors().for_each(|v| self.similarity.push_stored(v, norm_max, &mut stored));
            let quantizer = Quantizer::train(&stored, changed);
            let Graph { neighbours, entry } = build(&stored, changed, self.options);
            let degree = neighbours.iter().map(Vec::len).max().unwrap_or(0).max(1);
            let all = self.ids.iter().zip(stored.chunks_exact(changed)).zip(&neighbours);
            for ((row, vector), neighbours) in all {
                nodes.put_u32(*row);
                quantizer.encode(vector, &mut nodes);
                nodes.put_u8(u8::try_from(neighbours.len()).unwrap_or(u8::MAX));
                neighbours.iter().for_each(|node| nodes.put_u32(*node));
                (neighbours.len()..degree).for_each(|_| nodes.put_u32(0));
            }
            summary.graph = Some(GraphSummary { entry, degree, quantizer });
        }
        let mut out = Output::default();
        put_header(ComponentKind::Vectors, self.id, &mut out);
        let per_block = summary.block_nodes() as usize * summary.node_bytes();
        for block in nodes.chunks(per_block) {
            out.put_block(BlockKind::Vectors, block)?;
        }
        let at = out.put_block(BlockKind::Summary, &summary.encode())?;
        Footer { summary: at }.put(ComponentKind::Vectors, &mut out);
        Ok(Finished { bytes: out.take(), summary })
    }
}

/// A finished component.
#[derive(Debug)]
pub struct Finished {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its summary.
    pub summary: VectorSummary,
}
