//! Building the components of attached indexes while a file set is written.
//!
//! Rows pass [`IndexBuild::row`] with their offsets; the file set's end writes the components
//! ([`IndexBuild::finish`]). Pairs of a term and a row are sorted in small runs, at most [`SORTED_BYTES`] at once, as a
//! shard must not be held up. Runs stay in memory up to a budget; then they are merged into one run of a spill file,
//! which belongs to the file set: it is encrypted as its components are, and removed with an unfinished set. Vectors
//! ([`super::vectors`]) stay in memory up to a budget of their own.

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use index_format::runs::{Fill, MergeStep, Run, RunBuilder, RunMerger, RunWriter};
use index_format::{
    Block, BlockRef, IndexError, IndexWriter, IndexedRow, IndexedValues, RowsWriter, TableIndex,
    TableIndexes,
};
use rt::Rt;
use sst_format::{AttachedName, Component};
use stdx::{Token, Uuid};

use super::output::Output;
use super::vectors::VectorBuild;
use super::{AttachedWriter, SstableWriter};
use crate::indexes::{IndexComponent, of_index, read_block};
use crate::set_files::{ComponentFile, SetFiles};
use crate::{Result, SstableError};

/// Bytes of pairs that are sorted without a pause.
const SORTED_BYTES: usize = 128 << 10;
/// Bytes that are collected for a component before its writer gets them.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Pairs that are merged between two checks of the clock.
const PAIRS_PER_LOOK: usize = 64;

/// Indexes that a writer builds: see [`super::WriterOptions::indexing`].
#[derive(Clone)]
pub struct Indexing {
    /// The indexes.
    pub indexes: Rc<TableIndexes>,
    /// Bytes of sorted runs that stay in memory, for all indexes together.
    pub budget_bytes: usize,
    /// Bytes of vectors that are made one segment of an index, for all indexes of vectors together.
    pub vector_bytes: usize,
    /// The shard, whose other tasks get their turns during a merge.
    pub rt: Rt,
}

impl fmt::Debug for Indexing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Indexing { indexes, budget_bytes, vector_bytes, rt: _ } = self;
        f.debug_struct("Indexing")
            .field("indexes", indexes)
            .field("budget_bytes", budget_bytes)
            .field("vector_bytes", vector_bytes)
            .finish_non_exhaustive()
    }
}

/// A row that was written, and its place.
pub(super) struct PlacedRow<'a> {
    pub(super) token: Token,
    /// Offset of its partition in Data.
    pub(super) partition: u64,
    /// Offset of the row in Data.
    pub(super) offset: u64,
    pub(super) key: &'a [u8],
    pub(super) clustering: Option<&'a [u8]>,
    pub(super) row: data::RowRef<'a>,
}

/// See the module.
pub(super) struct IndexBuild {
    rt: Rt,
    indexes: Rc<TableIndexes>,
    rows: RowsWriter,
    rows_file: AttachedWriter,
    /// Offset of the partition of the last row.
    partition: Option<u64>,
    /// One for each index.
    parts: Vec<Part>,
    scratch: Vec<u8>,
    /// A row that could not be entered: rows return no error of their own, which each would pay for.
    failed: Option<IndexError>,
}

/// The build of one index.
enum Part {
    Terms(Box<Sorter>),
    Vectors(Box<VectorBuild>),
}

impl Part {
    fn push(&mut self, entry: &[u8], row: u32) -> std::result::Result<bool, IndexError> {
        match self {
            Part::Terms(sorter) => sorter.push(entry, row),
            Part::Vectors(vectors) => vectors.push(entry, row),
        }
    }
}

impl IndexBuild {
    /// Begins `Index+Rows.db`, and the components of vectors.
    pub(super) async fn begin(
        writer: &mut SstableWriter,
        indexing: &Indexing,
    ) -> Result<IndexBuild> {
        let Indexing { indexes, budget_bytes, vector_bytes, rt } = indexing;
        let rows_file = AttachedWriter::begin(writer, IndexComponent::Rows.attached()).await?;
        let budget = budget_bytes / indexes.all().len().max(1);
        let of_vectors = indexes.all().iter().filter(|index| index.vectors().is_some()).count();
        let mut parts = Vec::with_capacity(indexes.all().len());
        for index in indexes.all() {
            parts.push(match &index.values {
                IndexedValues::Terms(_) => Part::Terms(Box::new(Sorter::new(index, budget))),
                IndexedValues::Vectors(vectors) => {
                    let budget = vector_bytes / of_vectors.max(1);
                    let build = VectorBuild::begin(writer, index, vectors, budget).await?;
                    Part::Vectors(Box::new(build))
                }
            });
        }
        Ok(IndexBuild {
            rt: rt.clone(),
            rows: RowsWriter::new(),
            rows_file,
            partition: None,
            parts,
            indexes: indexes.clone(),
            scratch: Vec::new(),
            failed: None,
        })
    }

    /// Adds a row. True: [`IndexBuild::write_full`] should come soon. It returns the error of a row.
    pub(super) fn row(&mut self, placed: &PlacedRow<'_>) -> bool {
        if self.failed.is_some() {
            return true;
        }
        match self.add(placed) {
            Ok(is_full) => is_full,
            Err(error) => {
                self.failed = Some(error);
                true
            }
        }
    }

    fn add(&mut self, placed: &PlacedRow<'_>) -> std::result::Result<bool, IndexError> {
        let is_first = self.partition != Some(placed.partition);
        if is_first {
            self.rows.partition(placed.token, placed.partition)?;
            self.partition = Some(placed.partition);
        }
        let id = self.rows.row(placed.offset)?;
        if self.rows.buffered_bytes() >= PIECE_BYTES {
            self.rows_file.put(&self.rows.take_output());
        }
        let row = IndexedRow {
            key: placed.key,
            clustering: placed.clustering,
            row: placed.row,
            is_first,
        };
        let parts = &mut self.parts;
        let (mut result, mut is_full) = (Ok(()), self.rows_file.is_full());
        self.indexes.visit_row(&row, &mut self.scratch, |number, term| {
            let Some(part) = parts.get_mut(number) else { return };
            match part.push(term, id) {
                Ok(full) => is_full |= full,
                Err(error) => result = Err(error),
            }
        });
        result.map(|()| is_full)
    }

    /// Writes full requests, spills runs and makes segments of vectors beyond the budget.
    pub(super) async fn write_full(&mut self, files: &SetFiles) -> Result<()> {
        self.check(files)?;
        if self.rows_file.is_full() {
            self.rows_file.write_full().await?;
        }
        for part in &mut self.parts {
            match part {
                Part::Terms(sorter) if sorter.is_full() => sorter.spill(files, &self.rt).await?,
                Part::Vectors(vectors) if vectors.is_full() => vectors.build(&self.rt).await?,
                Part::Terms(_) | Part::Vectors(_) => {}
            }
        }
        Ok(())
    }

    fn check(&self, files: &SetFiles) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(error) => Err(SstableError::Unsupported {
                file: files.path(Component::Data),
                what: error.to_string(),
            }),
        }
    }

    /// Writes the rest of all components.
    pub(super) async fn finish(mut self, writer: &mut SstableWriter) -> Result<()> {
        self.check(&writer.files)?;
        let rows_path = writer.file(Component::Attached(self.rows_file.kind().name));
        let summary = self.rows.finish().map_err(|error| of_index(&rows_path, 0, &error))?;
        self.rows_file.put(&self.rows.take_output());
        self.rows_file.finish(writer).await?;
        for part in std::mem::take(&mut self.parts) {
            match part {
                Part::Terms(sorter) => sorter.finish(writer, summary.rows, &self.rt).await?,
                Part::Vectors(vectors) => vectors.finish(writer, summary.rows, &self.rt).await?,
            }
        }
        Ok(())
    }
}

/// Pairs of one index. Offsets of blocks count on from the spill file into memory.
struct Sorter {
    id: Uuid,
    definition: u32,
    budget_bytes: usize,
    builder: RunBuilder,
    /// Blocks of small runs, the first at offset `spilled_bytes`.
    memory: Vec<u8>,
    small: Vec<Run>,
    spill: Option<Output>,
    spilled_bytes: u64,
    spilled: Vec<Run>,
}

impl Sorter {
    fn new(index: &TableIndex, budget_bytes: usize) -> Sorter {
        Sorter {
            id: index.id,
            definition: index.definition,
            budget_bytes: budget_bytes.max(SORTED_BYTES),
            builder: RunBuilder::new(SORTED_BYTES),
            memory: Vec::new(),
            small: Vec::new(),
            spill: None,
            spilled_bytes: 0,
            spilled: Vec::new(),
        }
    }

    fn push(&mut self, term: &[u8], row: u32) -> std::result::Result<bool, IndexError> {
        if self.builder.push(term, row)? == Fill::Full {
            self.end_run()?;
        }
        Ok(self.is_full())
    }

    fn is_full(&self) -> bool {
        self.memory.len() >= self.budget_bytes
    }

    fn end_run(&mut self) -> std::result::Result<(), IndexError> {
        if !self.builder.is_empty() {
            let run = self.builder.spill(self.spilled_bytes, &mut self.memory)?;
            self.small.push(run);
        }
        Ok(())
    }

    fn component(&self) -> Component {
        let name = format!("Index+{}.spill", self.id.simple());
        match AttachedName::parse(&name) {
            Some(name) => Component::Attached(name),
            None => stdx::invariant::broken(format_args!("name of a spill file")),
        }
    }

    /// The block of a run in memory. `None`: it is in the spill file.
    fn block_in_memory(&self, at: BlockRef) -> Option<std::result::Result<Block, IndexError>> {
        let start = usize::try_from(at.offset.checked_sub(self.spilled_bytes)?).ok()?;
        let bytes = self.memory.get(start..start.saturating_add(at.length as usize));
        Some(Block::open(at, Bytes::copy_from_slice(bytes.unwrap_or_default())))
    }

    /// Merges the runs in memory into one of the spill file.
    async fn spill(&mut self, files: &SetFiles, rt: &Rt) -> Result<()> {
        stdx::reached!("index-build-spill");
        let component = self.component();
        let path = files.path(component);
        let of = |error: IndexError| of_index(&path, 0, &error);
        let mut output = match self.spill.take() {
            Some(output) => output,
            None => Output::create(files, component, false).await?,
        };
        let mut merger = RunMerger::new(std::mem::take(&mut self.small));
        let mut out = RunWriter::new(self.spilled_bytes);
        let mut pairs = 0;
        loop {
            match merger.advance().map_err(of)? {
                MergeStep::End => break,
                MergeStep::NeedBlock(at) => match self.block_in_memory(at) {
                    Some(block) => merger.feed(block.map_err(of)?),
                    None => return Err(of(IndexError::Input { what: "run outside of memory" })),
                },
                MergeStep::Pair => {
                    let (term, row) = merger.pair();
                    out.push(term, row).map_err(of)?;
                }
            }
            pairs += 1;
            if pairs % PAIRS_PER_LOOK == 0 {
                if out.buffered_bytes() >= PIECE_BYTES {
                    output.pending.extend_from_slice(&out.take_output());
                    output.write_full().await?;
                }
                if rt.is_yield_due() {
                    rt.yield_if_due().await;
                }
            }
        }
        let run = out.finish().map_err(of)?;
        output.pending.extend_from_slice(&out.take_output());
        output.write_full().await?;
        self.spilled_bytes = output.length();
        self.spilled.push(run);
        self.memory.clear();
        self.spill = Some(output);
        Ok(())
    }

    /// Writes the component, and removes the spill file.
    async fn finish(
        mut self: Box<Self>,
        writer: &mut SstableWriter,
        rows: u32,
        rt: &Rt,
    ) -> Result<()> {
        let component = IndexComponent::Entries(self.id);
        let mut file = AttachedWriter::begin(writer, component.attached()).await?;
        let path = writer.file(Component::Attached(component.name()));
        let of = |error: IndexError| of_index(&path, 0, &error);
        let mut out = IndexWriter::of_definition(self.id, self.definition, rows);
        if self.small.is_empty() && self.spilled.is_empty() {
            self.builder.write_to(&mut out).map_err(of)?;
        } else {
            self.end_run().map_err(of)?;
            let spill = self.open_spill(writer).await?;
            self.merge(&mut out, &mut file, spill.as_ref(), rt, &path).await?;
            if spill.is_some() {
                let files = &writer.files;
                files.fs().remove_file(&files.path(self.component())).await?;
            }
        }
        out.finish().map_err(of)?;
        file.put(&out.take_output());
        file.finish(writer).await
    }

    async fn open_spill(&mut self, writer: &SstableWriter) -> Result<Option<ComponentFile>> {
        let Some(mut output) = self.spill.take() else { return Ok(None) };
        let component = self.component();
        output.finish(component).await?;
        writer.files.open_file(component, false).await.map(Some)
    }

    /// Merges all runs into the component.
    async fn merge(
        &mut self,
        out: &mut IndexWriter,
        file: &mut AttachedWriter,
        spill: Option<&ComponentFile>,
        rt: &Rt,
        path: &str,
    ) -> Result<()> {
        let of = |error: IndexError| of_index(path, 0, &error);
        let mut runs = std::mem::take(&mut self.spilled);
        runs.append(&mut self.small);
        let mut merger = RunMerger::new(runs);
        let mut pairs = 0;
        loop {
            match merger.advance().map_err(of)? {
                MergeStep::End => return Ok(()),
                MergeStep::NeedBlock(at) => {
                    let block = match (self.block_in_memory(at), spill) {
                        (Some(block), _) => block.map_err(of)?,
                        (None, Some(spill)) => read_block(spill, path, at).await?,
                        (None, None) => {
                            let what = "run without its spill file";
                            return Err(of(IndexError::Input { what }));
                        }
                    };
                    merger.feed(block);
                }
                MergeStep::Pair => {
                    let (term, row) = merger.pair();
                    out.push(term, row).map_err(of)?;
                }
            }
            pairs += 1;
            if pairs % PAIRS_PER_LOOK == 0 {
                if out.buffered_bytes() >= PIECE_BYTES {
                    file.put(&out.take_output());
                    if file.is_full() {
                        file.write_full().await?;
                    }
                }
                if rt.is_yield_due() {
                    rt.yield_if_due().await;
                }
            }
        }
    }
}
