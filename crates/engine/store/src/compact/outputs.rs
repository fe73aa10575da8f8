//! The outputs of one compaction: one file, or several where its plan cuts them.
//!
//! INV-outputs-1: a generation is taken only while all inputs are in the view, in the same turn. A
//! truncation that comes later knows it; one that came before would not, and rows could come back.
//! INV-outputs-2: the record of the compaction bears the first generation, and a file of a later one is
//! not removed while the record may be there.

use std::rc::Rc;
use std::sync::Arc;

use codec::KeyHash;
use compact_plan::Cut;
use compact_plan::cluster_key::SHARED_LEVEL;
use data::Item;
use schema::Table;
use sst_format::{RawRow, RowCopier};
use sstable::{
    Chunk, CopiedRows, CopyUntil, ROWS_BLOCK, SstableReader, SstableWriter, WriterOptions,
};
use stdx::{Generation, Token};

use crate::compact::Compactor;
use crate::compact::window_outputs::{Slot, Sorted};
use crate::error::StoreError;
use crate::tables::dropped_columns;
use crate::tables::table::{InFlight, TableState, TableVersion};
use crate::tables::table_file::{TableFile, map_error};
use crate::write::flush::Sieve;

/// Files that are being written from the output of a merge.
pub(crate) struct Outputs<'s> {
    store: &'s Compactor,
    table: Rc<TableState>,
    version: Rc<TableVersion>,
    /// The columns that are written.
    kept: Arc<Table>,
    /// Files that the merge reads.
    inputs: &'s [Rc<TableFile>],
    cut: Cut,
    /// Tokens, or sizes, of `cut` that were passed.
    passed: usize,
    options: Option<WriterOptions>,
    writer: Option<SstableWriter>,
    sieve: Sieve,
    /// Instead of `writer`, where each window has a file.
    sorted: Option<Box<Sorted>>,
    flights: Vec<InFlight>,
    files: Vec<Rc<TableFile>>,
    /// Uncompressed bytes of finished files.
    finished: u64,
    /// For `window_outputs`: true if a file was opened.
    is_begun: bool,
    /// Number of `writer`'s file in the chunk cache.
    cached_as: u64,
    is_warm: bool,
    /// Bytes that may still go into the chunk cache.
    warm_left: usize,
    /// Numbers of files with chunks added to the cache.
    warmed: Vec<u64>,
}

/// Files of windows, about, that share the memory for the indexes of one file.
const WINDOWS_TOGETHER: usize = 8;
/// Partitions that the filter of each of many files is made for, at most.
const SORTED_PARTITIONS_MAX: u64 = 1_000_000;

impl<'s> Outputs<'s> {
    /// Takes the first generation. `None` when an input is not in the view any more.
    pub(crate) fn begin(
        store: &'s Compactor,
        table: &Rc<TableState>,
        inputs: &'s [Rc<TableFile>],
        cut: Cut,
    ) -> Option<Outputs<'s>> {
        let version = table.version();
        let mut outputs = Outputs {
            store,
            table: table.clone(),
            kept: dropped_columns::table_to_merge(&version.table, inputs),
            version,
            inputs,
            cut,
            passed: 0,
            options: None,
            writer: None,
            sieve: Sieve::new(),
            sorted: None,
            flights: Vec::new(),
            files: Vec::new(),
            finished: 0,
            is_begun: false,
            cached_as: 0,
            is_warm: false,
            warm_left: 0,
            warmed: Vec::new(),
        };
        outputs.take_generation().then_some(outputs)
    }

    fn take_generation(&mut self) -> bool {
        if !self.table.has_all(self.inputs) {
            return false;
        }
        let generation = self.store.files.next_generation(&self.table);
        self.flights.push(self.table.in_flight(generation));
        true
    }

    /// The generation that names the record.
    pub(crate) fn first(&self) -> Generation {
        self.flights.first().map_or(Generation(0), InFlight::generation)
    }

    /// Creates the first file. The generation in the options does not count.
    ///
    /// # Errors
    /// Those of [`SstableWriter::create`].
    pub(crate) async fn open(&mut self, mut options: WriterOptions) -> Result<(), StoreError> {
        let bytes: u64 = self.inputs.iter().map(|f| f.reader.meta().data_file_length()).sum();
        let files = match &self.cut {
            Cut::Never => 1,
            Cut::AtBytes(max) => bytes / (*max).max(1) + 1,
            Cut::AtTokens(tokens) => tokens.len() as u64 + 1,
            // The first has half of them.
            Cut::AtSizes(_) => 2,
            Cut::AtWindows => {
                // Any file may have all partitions, and the filters of all are kept until the end.
                let most = options.expected_partitions;
                options.expected_partitions = most.min(SORTED_PARTITIONS_MAX);
                options.request_bytes = sstable::writer::WRITE_BYTES;
                if let Some(indexing) = &mut options.indexing {
                    indexing.budget_bytes /= WINDOWS_TOGETHER;
                }
                1
            }
        };
        options.expected_partitions = (options.expected_partitions / files).max(1);
        self.options = Some(options);
        if self.cut == Cut::AtWindows {
            // Windows need a strategy that has some; without it there is one file.
            let options = self.version.compaction.as_ref().ok();
            let windows = options.and_then(|options| options.cluster_key.windows);
            let reversed = self.version.first_is_reversed();
            self.sorted = windows.map(|windows| Box::new(Sorted::new(windows, reversed)));
        }
        if self.sorted.is_some() {
            return Ok(());
        }
        self.writer = self.create(None).await?;
        Ok(())
    }

    async fn create(&mut self, level: Option<u32>) -> Result<Option<SstableWriter>, StoreError> {
        let (Some(options), Some(flight)) = (self.options.clone(), self.flights.last()) else {
            return Ok(None);
        };
        let mut options = WriterOptions { generation: flight.generation(), ..options };
        if let Some(level) = level.and_then(|level| i32::try_from(level).ok()) {
            options.level = level;
        }
        let directory = self.store.files.directories.directory_of(&self.version.table);
        let fs = self.store.env.rt.fs();
        let writer = SstableWriter::create(&fs, &directory, &self.kept, options);
        let mut writer = writer.await.map_err(map_error)?;
        writer.set_warm(self.is_warm);
        self.cached_as = self.store.files.cache.next_file();
        Ok(Some(writer))
    }

    /// Notes that this many bytes of the inputs are in the chunk cache, so that as many of the
    /// outputs may be.
    pub(crate) fn credit_warm(&mut self, bytes: usize) {
        self.warm_left = self.warm_left.saturating_add(bytes);
    }

    /// Sets if the next data is added to the chunk cache.
    #[inline]
    pub(crate) fn set_warm(&mut self, is_warm: bool) {
        let is_warm = is_warm && self.warm_left > 0;
        if is_warm == self.is_warm {
            return;
        }
        self.is_warm = is_warm;
        if let Some(writer) = &mut self.writer {
            writer.set_warm(is_warm);
        }
        if let Some(sorted) = &mut self.sorted {
            sorted.set_warm(is_warm);
        }
    }

    fn warm(&mut self, file: u64, blocks: Vec<(u64, Rc<Chunk>)>) {
        for (block, chunk) in blocks {
            // Pages of the index are few and were few before.
            let bytes = if block < ROWS_BLOCK { chunk.memory_bytes() } else { 0 };
            let Some(left) = self.warm_left.checked_sub(bytes) else { continue };
            self.warm_left = left;
            self.store.files.cache.insert(file, block, chunk);
            if self.warmed.last() != Some(&file) {
                self.warmed.push(file);
            }
        }
    }

    /// Removes the chunks of abandoned files from the cache.
    fn forget_warm(&mut self) {
        for file in std::mem::take(&mut self.warmed) {
            self.store.files.cache.forget(file);
        }
    }

    /// Returns true if the next item belongs into a file that is not open: then call
    /// [`Outputs::turn`]. Called once for each item, in order.
    #[inline]
    pub(crate) fn is_due(&mut self, item: Item<'_>) -> bool {
        if let Some(sorted) = &mut self.sorted {
            return sorted.prepare(item);
        }
        match item {
            Item::Partition { token, .. } => self.is_cut_before(token),
            _ => false,
        }
    }

    fn is_cut_before(&mut self, token: Token) -> bool {
        if !self.is_cut_at(token) {
            return false;
        }
        match &self.cut {
            Cut::AtTokens(tokens) => self.passed = tokens.partition_point(|t| *t < token),
            Cut::AtSizes(_) => self.passed += 1,
            Cut::Never | Cut::AtWindows | Cut::AtBytes(_) => {}
        }
        self.writer.as_ref().is_some_and(|writer| writer.partitions() > 0)
    }

    /// Returns true if the plan cuts before a partition of that token, if something was written.
    #[inline]
    fn is_cut_at(&self, token: Token) -> bool {
        let Some(writer) = &self.writer else { return false };
        match &self.cut {
            Cut::Never | Cut::AtWindows => false,
            Cut::AtBytes(max) => writer.disk_length() >= *max,
            Cut::AtTokens(tokens) => tokens.get(self.passed).is_some_and(|t| *t < token),
            Cut::AtSizes(sizes) => {
                sizes.get(self.passed).is_some_and(|n| writer.disk_length() > *n)
            }
        }
    }

    /// Ends the file and begins the next one, or opens files for windows. False: an input is gone,
    /// and the outputs are useless.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub(crate) async fn turn(&mut self) -> Result<bool, StoreError> {
        while let Some(slot) = self.sorted.as_ref().and_then(|sorted| sorted.next_missing()) {
            // The first file has the generation that the outputs began with.
            if !std::mem::replace(&mut self.is_begun, true) {
                stdx::debug_invariant!(self.flights.len() == 1, "outputs: begun twice");
            } else if !self.take_generation() {
                return Ok(false);
            }
            let level = (slot == Slot::Shared).then_some(SHARED_LEVEL);
            let writer = self.create(level).await?;
            if let (Some(sorted), Some(writer)) = (&mut self.sorted, writer) {
                sorted.add(writer, self.cached_as);
            }
        }
        if self.sorted.is_some() {
            return Ok(true);
        }
        self.end_file().await?;
        if !self.take_generation() {
            return Ok(false);
        }
        self.writer = self.create(None).await?;
        Ok(true)
    }

    async fn end_file(&mut self) -> Result<(), StoreError> {
        match self.writer.take() {
            Some(writer) => self.end(writer, self.cached_as).await,
            None => Ok(()),
        }
    }

    async fn end(&mut self, writer: SstableWriter, cached_as: u64) -> Result<(), StoreError> {
        let Some(mut written) = writer.finish().await.map_err(map_error)? else { return Ok(()) };
        self.warm(cached_as, std::mem::take(&mut written.warm));
        self.finished += written.data_length;
        self.store.observer.warn_of_large(&self.version.table, Some(&written));
        let directory = self.store.files.directories.directory_of(&self.version.table);
        let (fs, table) = (self.store.env.rt.fs(), &self.version.table);
        let reader = SstableReader::open(&fs, &directory, written.descriptor, Some(table)).await;
        let reader = reader.map_err(map_error)?;
        let file = self.store.files.file_cached_as(table.id, cached_as, reader, Vec::new());
        self.files.extend(file.map(Rc::new));
        Ok(())
    }

    /// Takes one item of the merge; true when [`Outputs::write_full`] has something to do.
    ///
    /// # Errors
    /// `Invalid`: what cannot be written.
    pub(crate) fn put(&mut self, item: Item<'_>) -> Result<bool, StoreError> {
        if let Some(sorted) = &mut self.sorted {
            return sorted.put(item).map_err(map_error);
        }
        let Some(writer) = &mut self.writer else { return Ok(false) };
        self.sieve.put(item, writer).map_err(map_error)?;
        Ok(writer.is_full())
    }

    /// The hash of the key of the partition that was put last.
    #[inline]
    pub(crate) fn set_hash(&mut self, hash: Option<KeyHash>) {
        self.sieve.set_hash(hash);
    }

    /// Finds rows of an input that can be copied verbatim; `None`: there are none.
    pub(crate) fn copier(&self, input: &TableFile) -> Option<RowCopier> {
        self.writer.as_ref().and_then(|writer| writer.copier(input.reader.meta()))
    }

    /// Copies the rows at the start of `bytes`, which follow the previous item, up to `until`. None
    /// when the first one cannot be copied.
    ///
    /// # Errors
    /// `Invalid`: what cannot be written.
    #[inline]
    pub(crate) fn copy_rows(
        &mut self,
        copier: &RowCopier,
        bytes: &[u8],
        until: CopyUntil<'_>,
    ) -> Result<CopiedRows, StoreError> {
        let Some(writer) = &mut self.writer else { return Ok(CopiedRows::default()) };
        self.sieve.copy_rows(copier, bytes, until, writer).map_err(map_error)
    }

    /// Largest size of partitions for [`Outputs::whole_partitions`], and the token after which they
    /// belong into another file. `None`: none can be written; the merge continues.
    pub(crate) fn wholes(&self) -> Option<(usize, Token)> {
        let writer = self.writer.as_ref()?;
        let last = match &self.cut {
            Cut::AtTokens(tokens) => tokens.get(self.passed).copied(),
            _ => None,
        };
        Some((writer.whole_max()?, last.unwrap_or(Token::MAX)))
    }

    /// Writes partitions of one row of the inputs, after a complete one, as
    /// [`SstableWriter::whole_partitions`]. Returns how many. None also where the next one may
    /// belong into another file.
    ///
    /// # Errors
    /// `Invalid`: what cannot be written.
    pub(crate) fn whole_partitions<'p>(
        &mut self,
        next: impl FnMut() -> Option<(KeyHash, &'p [u8], RawRow<'p>)>,
    ) -> Result<usize, StoreError> {
        let Some(writer) = &mut self.writer else { return Ok(0) };
        let disk_max = match &self.cut {
            Cut::Never | Cut::AtWindows | Cut::AtTokens(_) => None,
            Cut::AtBytes(max) => Some(*max),
            Cut::AtSizes(sizes) => sizes.get(self.passed).map(|most| most.saturating_add(1)),
        };
        writer.whole_partitions(disk_max, next).map_err(map_error)
    }

    /// Returns true if [`Outputs::write_full`] has a full request to write, where windows have no
    /// files of their own.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.writer.as_ref().is_some_and(SstableWriter::is_full)
    }

    /// Writes all full requests.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) async fn write_full(&mut self) -> Result<(), StoreError> {
        let mut blocks = Vec::new();
        if let Some(sorted) = &mut self.sorted {
            sorted.write_full(&mut blocks).await.map_err(map_error)?;
        }
        if let Some(writer) = &mut self.writer {
            writer.write_full().await.map_err(map_error)?;
            blocks.push((self.cached_as, writer.take_warm()));
        }
        for (file, blocks) in blocks {
            self.warm(file, blocks);
        }
        Ok(())
    }

    /// Uncompressed bytes so far.
    pub(crate) fn data_length(&self) -> u64 {
        let sorted = self.sorted.as_ref().map_or(0, |sorted| sorted.data_length());
        self.finished + sorted + self.writer.as_ref().map_or(0, SstableWriter::data_length)
    }

    /// Ends the last file, or those of all windows; [`Outputs::files`] has all then, complete and in no view.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub(crate) async fn finish(&mut self) -> Result<(), StoreError> {
        while let Some((writer, cached_as)) = self.sorted.as_mut().and_then(|sorted| sorted.take())
        {
            self.end(writer, cached_as).await?;
        }
        self.end_file().await
    }

    /// Writers that are not ended.
    fn take_open(&mut self) -> Option<SstableWriter> {
        let of_sorted = |sorted: &mut Box<Sorted>| sorted.take().map(|(writer, _)| writer);
        self.writer.take().or_else(|| self.sorted.as_mut().and_then(of_sorted))
    }

    /// Complete files.
    pub(crate) fn files(&self) -> &[Rc<TableFile>] {
        &self.files
    }

    /// Removes everything, as the compaction was in vain: an input is gone.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) async fn remove(mut self) -> Result<(), StoreError> {
        self.forget_warm();
        while let Some(writer) = self.take_open() {
            writer.abort().await;
        }
        for file in &self.files {
            self.store.files.remove_file(file).await?;
        }
        Ok(())
    }

    /// Removes everything after a failure; a failed removal is retried later.
    pub(crate) async fn discard(mut self) {
        self.forget_warm();
        while let Some(writer) = self.take_open() {
            writer.abort().await;
        }
        self.store.files.discard_all(&self.table, self.flights).await;
    }
}
