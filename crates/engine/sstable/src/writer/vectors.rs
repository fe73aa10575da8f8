//! Building the component of an index of vectors while a file set is written.
//!
//! Vectors stay in memory up to a budget; then they become a segment with a graph of its own, which takes much longer than
//! a shard's turn and is built in steps. A search walks each segment, so a large budget makes it cheaper.

use ann::component::GraphOptions;
use ann::{BuildStep, VectorWriter};
use index_format::runs::Fill;
use index_format::{IndexError, TableIndex, VectorIndex};
use rt::Rt;
use sst_format::Component;

use super::indexing::PIECE_BYTES;
use super::{AttachedWriter, SstableWriter};
use crate::Result;
use crate::indexes::{IndexComponent, of_index};

/// Least bytes of vectors of a segment.
const SEGMENT_BYTES_MIN: usize = 1 << 20;

/// The component of one index of vectors.
pub(super) struct VectorBuild {
    index: VectorIndex,
    writer: VectorWriter,
    file: AttachedWriter,
    path: String,
}

impl VectorBuild {
    /// Begins the component.
    pub(super) async fn begin(
        writer: &mut SstableWriter,
        index: &TableIndex,
        vectors: &VectorIndex,
        budget_bytes: usize,
    ) -> Result<VectorBuild> {
        let component = IndexComponent::Entries(index.id);
        let path = writer.file(Component::Attached(component.name()));
        let file = AttachedWriter::begin(writer, component.attached()).await?;
        let writer = VectorWriter::new(
            index.id,
            index.definition,
            vectors.similarity,
            vectors.dimensions,
            GraphOptions::default(),
            budget_bytes.max(SEGMENT_BYTES_MIN),
        );
        let writer = writer.map_err(|error| of_index(&path, 0, &error))?;
        Ok(VectorBuild { index: *vectors, writer, file, path })
    }

    /// Adds the vector of a row. True: [`VectorBuild::build`] should come soon.
    pub(super) fn push(&mut self, value: &[u8], row: u32) -> std::result::Result<bool, IndexError> {
        match self.index.vector_of(value) {
            Some(vector) => Ok(self.writer.push(row, &vector)? == Fill::Full),
            None => Ok(false),
        }
    }

    /// Returns true if the vectors should become a segment now.
    pub(super) fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    /// Writes a segment of the vectors so far.
    pub(super) async fn build(&mut self, rt: &Rt) -> Result<()> {
        loop {
            let step = self.writer.build();
            let step = step.map_err(|error| of_index(&self.path, self.file.length(), &error))?;
            if step == BuildStep::Done || self.writer.buffered_bytes() >= PIECE_BYTES {
                self.file.put(&self.writer.take_output());
                if self.file.is_full() {
                    self.file.write_full().await?;
                }
            }
            if step == BuildStep::Done {
                return Ok(());
            }
            if rt.is_yield_due() {
                rt.yield_if_due().await;
            }
        }
    }

    /// Writes the rest of the component of a file with so many rows.
    pub(super) async fn finish(
        mut self: Box<Self>,
        writer: &mut SstableWriter,
        rows: u32,
        rt: &Rt,
    ) -> Result<()> {
        self.build(rt).await?;
        let finished = self.writer.finish(rows);
        finished.map_err(|error| of_index(&self.path, self.file.length(), &error))?;
        self.file.put(&self.writer.take_output());
        self.file.finish(writer).await
    }
}
