//! `Index+<id>.db` of vectors: segments, each of nodes of a fixed size in blocks, in the order of their rows.
//!
//! A node is its row (u32), then, in a segment of at most [`FLAT_MAX`] vectors, its vector (f32 each); else its quantised
//! vector, the count of its neighbours (u8) and their nodes (u32 each, zeros up to the degree). Nodes fill blocks of about
//! 4 KiB; block n of a segment begins at its first plus n * length of a full one. A writer with little memory makes several
//! segments. Bytes of the summaries: `docs/formats/index.md`.

use std::ops::Range;

use codec::{Reader, Writer};
use index_format::summary::HEADER_BYTES;
use index_format::vectors::{DIMENSIONS_MAX, Similarity};
use index_format::{Block, BlockKind, BlockRef, IndexError};

use crate::quantize::Quantizer;
use crate::space::changed_dimensions;

pub use crate::graph::GraphOptions;

/// Vectors up to which a segment is a list that is searched exactly.
pub const FLAT_MAX: usize = 1_000;
/// Bytes of nodes of a block.
const BLOCK_BYTES: usize = 4091;
/// Bytes after the payload of a block.
const TRAILER: usize = 5;
/// Bytes of an entry of the directory.
const ENTRY_BYTES: usize = 12;

/// The segments of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorDirectory {
    /// Bound of the row ids: rows of the file.
    pub rows: u32,
    /// Summary of each segment, in the order of their rows.
    pub segments: Vec<BlockRef>,
}

impl VectorDirectory {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.rows);
        for at in &self.segments {
            out.put_u64(at.offset);
            out.put_u32(at.length);
        }
        out
    }

    /// Reads the block that [`index_format::Footer::summary`] names.
    ///
    /// # Errors
    /// A defect of the block.
    pub fn read(block: Block) -> Result<VectorDirectory, IndexError> {
        let block = block.expect(BlockKind::Summary)?;
        let mut r = Reader::new(block.payload(), "directory of vectors");
        let rows = r.u32()?;
        let mut segments: Vec<BlockRef> = Vec::with_capacity(r.remaining() / ENTRY_BYTES);
        while r.remaining() > 0 {
            let (offset, length) = (r.u64()?, r.u32()?);
            let at = BlockRef::checked(offset, length as usize, block.at().offset)?;
            if segments.last().is_some_and(|last| last.end() > at.offset) {
                return Err(block.invalid("segments out of order"));
            }
            segments.push(at);
        }
        Ok(VectorDirectory { rows, segments })
    }
}

/// Facts about a segment that a reader keeps in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSummary {
    /// Similarity of the index.
    pub similarity: Similarity,
    /// Dimensions of a vector.
    pub dimensions: usize,
    /// Vectors.
    pub nodes: u32,
    /// Its rows, from the first to after the last.
    pub rows: Range<u32>,
    pub(crate) base: u64,
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
    /// Returns true if its searches give exact scores in their order.
    pub fn is_exact(&self) -> bool {
        self.graph.is_none()
    }

    pub(crate) fn node_bytes(&self) -> usize {
        match &self.graph {
            Some(graph) => 4 + graph.quantizer.steps.len() + 1 + 4 * graph.degree,
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
        let distance = u64::from(number) * u64::from(bytes(per_block));
        NodePlace {
            block: BlockRef { offset: self.base.saturating_add(distance), length: bytes(count) },
            start: (node % per_block) as usize * size,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(self.similarity.code());
        out.put_u16(u16::try_from(self.dimensions).unwrap_or(u16::MAX));
        out.put_u32(self.nodes);
        out.put_u32(self.rows.start);
        out.put_u32(self.rows.end);
        out.put_u64(self.base);
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

    /// Reads the block that a directory names.
    ///
    /// # Errors
    /// A defect of the block.
    pub fn read(block: Block, directory: &VectorDirectory) -> Result<VectorSummary, IndexError> {
        let block = block.expect(BlockKind::VectorSegment)?;
        let invalid = || block.invalid("segment of vectors with impossible values");
        let mut r = Reader::new(block.payload(), "segment of vectors");
        let similarity = Similarity::from_code(r.u8()?).ok_or_else(invalid)?;
        let dimensions = usize::from(r.u16()?);
        let (nodes, first, end) = (r.u32()?, r.u32()?, r.u32()?);
        let (base, norm_max) = (r.u64()?, f32::from_bits(r.u32()?));
        let is_graph = r.bool()?;
        let are_rows = first < end && end <= directory.rows && nodes <= end - first;
        if dimensions == 0
            || dimensions > DIMENSIONS_MAX
            || nodes == 0
            || !are_rows
            || base < HEADER_BYTES as u64
            || !norm_max.is_finite()
        {
            return Err(invalid());
        }
        let rows = first..end;
        let mut summary =
            VectorSummary { similarity, dimensions, nodes, rows, base, norm_max, graph: None };
        if is_graph {
            let (entry, degree) = (r.u32()?, usize::from(r.u8()?));
            let changed = changed_dimensions(similarity, dimensions);
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
        if summary.place(nodes - 1).block.end() > block.at().offset {
            return Err(invalid());
        }
        Ok(summary)
    }
}

/// Where a node is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodePlace {
    pub(crate) block: BlockRef,
    pub(crate) start: usize,
}
