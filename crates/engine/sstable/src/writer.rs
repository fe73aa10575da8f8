//! Writing one SSTable.
//!
//! Partitions, rows and markers come in order and are encoded at once; chunks are compressed when
//! they are full and go to disk in sequential requests of 256 KiB or more. First comes the mark of an
//! unfinished write ([`crate::file_set`]), durably, then the record of the key of an encrypted file set. Order at the end (each step leaves either a marked
//! file set or the whole one):
//!
//! 1. rest of Data and Index (format BTI: Partitions and Rows), synced, as attached components are already;
//! 2. CompressionInfo or CRC, Digest, Filter, Statistics, Summary (BIG), Checksums, each synced;
//! 3. the directory synced, so that every name is durable;
//! 4. TOC.txt written under the name of the mark, synced and renamed, so that it is never there in part;
//! 5. the directory synced again: the file set is complete.

mod attached;
mod check;
mod finish;
mod indexing;
mod large;
mod options;
mod output;
mod sealed_output;
mod tries;
mod usual;
mod vectors;
mod warm;
mod whole;

use std::rc::Rc;

use codec::checksum::{Crc32, crc32};
use codec::{Compressor, KeyHash, Writer, hash_key};
use data::{BoundRef, ClusteringComparator, DeletionTime, Item, Marker, RowBuilder, RowRef};
use rt::Fs;
use schema::Table;
use sst_format::checksums::CHECKSUM_BLOCK;
use sst_format::clustering::{Prefix, PrefixKind};
use sst_format::header::SerializationHeader;
use sst_format::index::{IndexInfo, PromotedBuilder};
use sst_format::row_write::{
    EncodeScratch, RowKind, encode_marker, encode_partition_end, encode_partition_header,
    encode_row,
};
use sst_format::summary::SummaryBuilder;
use sst_format::{
    BloomFilter, Component, Descriptor, EncodingStats, FilterBuilder, FormatError, StatsCollector,
    Version, WriteSchema,
};
use stdx::{IoError, IoErrorKind, Token, Uuid};

use crate::block::{Chunk, INDEX_BLOCK, ROWS_BLOCK};
use crate::file_set::mark_unfinished;
use crate::meta::{index_component, table_of_directory};
use crate::set_files::SetFiles;
use crate::{Result, SstableError};

pub use attached::AttachedWriter;
use attached::Attachments;
pub use indexing::Indexing;
use indexing::{IndexBuild, PlacedRow};
pub use large::{LARGE_MAX, LargeCell, LargeData, LargeLimits, LargePartition, LargeRow};
pub use options::{WriteCompression, WriterOptions};
use output::Output;
use tries::{PartitionFacts, TrieIndex};
pub use usual::{CopiedRows, CopyUntil};
use warm::WarmChunks;
use whole::Unsettled;
pub use whole::WHOLE_MAX;

/// Bytes per write request, unless [`WriterOptions::request_bytes`] says another number.
pub const WRITE_BYTES: usize = 256 * 1024;

/// A finished file set.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its generation.
    pub descriptor: Descriptor,
    /// Components and their bytes.
    pub components: Vec<(Component, u64)>,
    /// Partitions.
    pub partitions: u64,
    /// Uncompressed bytes of Data.
    pub data_length: u64,
    /// Token of the first partition.
    pub first: Token,
    /// Token of the last partition.
    pub last: Token,
    /// Data above the limits of [`WriterOptions::large`].
    pub large: LargeData,
    /// The last blocks of [`SstableWriter::take_warm`].
    pub warm: Vec<(u64, Rc<Chunk>)>,
}

impl Written {
    /// Bytes of all components.
    pub fn disk_bytes(&self) -> u64 {
        self.components.iter().map(|(_, n)| n).sum()
    }
}

/// The partition being written.
#[derive(Default)]
struct Partition {
    key: Vec<u8>,
    hash: Option<KeyHash>,
    deletion: Option<DeletionTime>,
    start: u64,
    header_length: Option<u64>,
    previous: u64,
    rows: u64,
    markers: u64,
    range_tombstones: u64,
    dead_rows: u64,
    block: IndexInfo,
    in_block: bool,
    first: Prefix,
    last: Prefix,
    open: Option<DeletionTime>,
}

/// See the module. Call order per partition: `partition`, at most one `static_row`, `row` and
/// `marker` in order, `partition_end`; [`SstableWriter::put`] takes the items of a cursor instead.
/// After each, [`SstableWriter::write_full`] when [`SstableWriter::is_full`].
pub struct SstableWriter {
    files: SetFiles,
    directory: String,
    options: WriterOptions,
    descriptor: Descriptor,
    table: Uuid,
    header: SerializationHeader,
    schema: Rc<WriteSchema>,
    comparator: ClusteringComparator,
    stats: StatsCollector,
    filter: FilterBuilder,
    summary: SummaryBuilder,
    promoted: PromotedBuilder,
    scratch: EncodeScratch,
    empty_row: Vec<u8>,
    /// Clustering of the current row, where it is compared; reused.
    clustering: Vec<u8>,
    data: Output,
    index: Output,
    /// Format BTI: written instead of Index.
    tries: Option<Box<TrieIndex>>,
    compressor: Option<Compressor>,
    chunk: Vec<u8>,
    chunk_length: usize,
    data_length: u64,
    offsets: Vec<u64>,
    chunk_crcs: Vec<u32>,
    digest: Crc32,
    warm: WarmChunks,
    partition: Partition,
    in_partition: bool,
    unsettled: Unsettled,
    large: LargeData,
    attached: Attachments,
    /// Rows of more bytes are noted: checked for large data, and indexed. 0: all rows, so that none is copied verbatim.
    large_row: u64,
}

impl SstableWriter {
    /// Creates the mark, Data and Index in `directory`, which must exist.
    ///
    /// # Errors
    /// `Unsupported` version; `Io`, `AlreadyExists` among them when the generation is taken.
    pub async fn create(
        fs: &Fs,
        directory: &str,
        table: &Table,
        mut options: WriterOptions,
    ) -> Result<SstableWriter> {
        let version = options.version;
        let descriptor = Descriptor::new(version, options.generation);
        let path = |c: Component| format!("{directory}/{}", descriptor.file_name(c));
        check_new(fs, &path(Component::Data), version).await?;
        mark_unfinished(fs, directory, descriptor).await?;
        let files = SetFiles::create(fs, directory, descriptor, &options.sealing).await?;
        let data = Output::create(&files, Component::Data, options.direct).await?;
        let data = data.in_requests_of(options.request_bytes);
        let index = Output::create(&files, index_component(version), false).await?;
        let header = SerializationHeader::for_table(table, options.encoding_stats);
        if let (Some(compression), true) = (&mut options.compression, version < Version::Na) {
            // No chunk is stored plain there.
            compression.max_compressed_length = i32::MAX;
        }
        let tries = match version.is_bti() {
            false => None,
            true => {
                let rows = Output::create(&files, Component::Rows, false).await?;
                let types = header.clustering_types.clone();
                Some(Box::new(TrieIndex::new(rows, version, types)))
            }
        };
        let compressor = match &options.compression {
            None => None,
            Some(c) => Some(c.compressor().map_err(|e| SstableError::Unsupported {
                file: path(Component::Data),
                what: e.to_string(),
            })?),
        };
        let chunk_length = options
            .compression
            .as_ref()
            .map_or(CHECKSUM_BLOCK, |c| usize::try_from(c.chunk_length).unwrap_or(CHECKSUM_BLOCK));
        let mut empty_row = Vec::new();
        RowBuilder::new(
            &mut empty_row,
            data::Liveness::NONE,
            DeletionTime::LIVE,
            EncodingStats::NONE.min_timestamp,
        )
        .finish();
        let mut writer = SstableWriter {
            files,
            directory: directory.to_owned(),
            descriptor,
            table: match table.id.0 {
                // A table that was made up from a file's header.
                id if id.is_nil() => table_of_directory(directory),
                id => id,
            },
            schema: Rc::new(header.write_schema(table, version)),
            header,
            comparator: ClusteringComparator::for_table(table),
            stats: StatsCollector::default(),
            filter: FilterBuilder::new(BloomFilter::with_capacity(
                options.expected_partitions,
                options.bloom_fp_chance,
            )),
            summary: SummaryBuilder::new(options.min_index_interval),
            promoted: PromotedBuilder::default(),
            scratch: EncodeScratch::default(),
            empty_row,
            clustering: Vec::new(),
            data,
            index,
            tries,
            compressor,
            chunk: Vec::with_capacity(2 * chunk_length),
            chunk_length,
            data_length: 0,
            offsets: Vec::new(),
            chunk_crcs: Vec::new(),
            digest: Crc32::new(),
            warm: WarmChunks::default(),
            partition: Partition::default(),
            in_partition: false,
            unsettled: Unsettled::default(),
            large: LargeData::default(),
            attached: Attachments::default(),
            large_row: options.large.row_least(),
            options,
        };
        if let Some(indexing) = writer.options.indexing.clone() {
            let build = IndexBuild::begin(&mut writer, &indexing).await?;
            writer.attached.indexes = Some(Box::new(build));
            writer.large_row = 0;
        }
        Ok(writer)
    }

    fn file(&self, component: Component) -> String {
        format!("{}/{}", self.directory, self.descriptor.file_name(component))
    }

    fn unwritable(&self, error: FormatError) -> SstableError {
        SstableError::Unwritable { file: self.file(Component::Data), error }
    }

    /// Version and generation.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// Uncompressed bytes so far.
    pub fn data_length(&self) -> u64 {
        self.data_length + self.chunk.len() as u64
    }

    /// Bytes on disk so far (Data and Index), for size limits of compaction outputs.
    pub fn disk_length(&self) -> u64 {
        let rows = self.tries.as_ref().map_or(0, |tries| tries.rows.length());
        self.data.length() + self.index.length() + rows
    }

    /// Partitions so far.
    pub fn partitions(&self) -> u64 {
        self.summary.key_count()
    }

    /// Returns true if [`SstableWriter::write_full`] has a full request to write.
    pub fn is_full(&self) -> bool {
        let rows = self.tries.as_ref().is_some_and(|tries| tries.rows.is_full());
        self.data.is_full() || self.index.is_full() || rows
    }

    /// Writes all full requests.
    ///
    /// # Errors
    /// `Io`; the writer should then be aborted.
    pub async fn write_full(&mut self) -> Result<()> {
        self.data.write_full().await?;
        if let Some(tries) = &mut self.tries {
            tries.rows.write_full().await?;
        }
        if let Some(indexes) = &mut self.attached.indexes {
            indexes.write_full(&self.files).await?;
        }
        self.index.write_full().await
    }

    /// Sets if blocks are kept for [`SstableWriter::take_warm`] from now on: chunks with data
    /// written while it is on, and pages of the index with its partitions. At first it is off.
    #[inline]
    pub fn set_warm(&mut self, is_on: bool) {
        self.warm.set(is_on);
    }

    /// Blocks that were kept since the last call, as a reader of the finished file loads them. The caller
    /// takes them after each [`SstableWriter::write_full`], or they pile up.
    pub fn take_warm(&mut self) -> Vec<(u64, Rc<Chunk>)> {
        let mut blocks = self.warm.take();
        let marked = |mark| move |(page, chunk)| (page | mark, chunk);
        blocks.extend(self.index.take_warm().into_iter().map(marked(INDEX_BLOCK)));
        if let Some(tries) = &mut self.tries {
            blocks.extend(tries.rows.take_warm().into_iter().map(marked(ROWS_BLOCK)));
        }
        blocks
    }

    /// Takes one item of a cursor.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn put(&mut self, item: Item<'_>) -> Result<()> {
        match item {
            Item::Partition { key, deletion, .. } => self.partition(key, deletion),
            Item::Static(row) => self.static_row(row),
            Item::Row { clustering, row } => self.row(clustering, row),
            Item::Marker(marker) => self.marker(&marker),
            Item::PartitionEnd => self.partition_end(),
        }
    }

    /// Begins a partition. Keys ascend by (token, bytes).
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn partition(&mut self, key: &[u8], deletion: DeletionTime) -> Result<()> {
        self.partition_of(hash_key(key), key, deletion)
    }

    /// Like [`SstableWriter::partition`], with the key's hash, which is known already.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn partition_of(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        deletion: DeletionTime,
    ) -> Result<()> {
        stdx::invariant!(!self.in_partition, "sstable writer: a partition is open");
        stdx::debug_invariant!(hash == hash_key(key), "sstable writer: another key's hash");
        self.in_partition = true;
        stdx::debug_invariant!(
            self.summary.key_count() == 0
                || (codec::token_of(&self.partition.key), self.partition.key.as_slice())
                    < (hash.token, key),
            "sstable writer: keys do not ascend"
        );
        let p = &mut self.partition;
        p.key.clear();
        p.key.extend_from_slice(key);
        p.hash = Some(hash);
        p.deletion = Some(deletion);
        p.start = self.data_length + self.chunk.len() as u64;
        p.header_length = None;
        p.previous = 0;
        (p.rows, p.markers, p.range_tombstones, p.dead_rows) = (0, 0, 0, 0);
        p.in_block = false;
        p.open = None;
        self.promoted.clear();
        self.filter.add(hash.bloom);
        self.stats.partition(key, &deletion);
        let version = self.options.version;
        encode_partition_header(key, &deletion, version, &mut self.chunk)
            .map_err(|e| self.unwritable(e))?;
        self.cut_chunks()
    }

    /// The static row of the partition.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn static_row(&mut self, row: RowRef<'_>) -> Result<()> {
        stdx::invariant!(
            self.in_partition && self.partition.header_length.is_none(),
            "sstable writer: a static row out of place"
        );
        if self.schema.has_static() {
            let at = self.offset();
            self.encode_row(RowKind::Static, row, 0)?;
            self.note_row(None, row, at);
            self.cut_chunks()?;
        }
        self.partition.header_length = Some(self.offset());
        Ok(())
    }

    /// Bytes of the partition so far.
    fn offset(&self) -> u64 {
        self.data_length() - self.partition.start
    }

    fn encode_row(&mut self, kind: RowKind<'_>, row: RowRef<'_>, previous: u64) -> Result<()> {
        encode_row(
            &self.schema,
            kind,
            row,
            previous,
            &mut self.scratch,
            &mut self.stats,
            &mut self.chunk,
        )
        .map_err(|e| self.unwritable(e))
    }

    /// Ends the header: a table with static columns has a static row in every partition.
    fn end_header(&mut self) -> Result<()> {
        if self.partition.header_length.is_none() {
            let empty = std::mem::take(&mut self.empty_row);
            let result = self.static_row(RowRef::trusted(&empty));
            self.empty_row = empty;
            result?;
        }
        Ok(())
    }

    /// A row; clusterings ascend.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Result<()> {
        self.end_header()?;
        let at = self.offset();
        let tombstones = self.stats.tombstones_in_partition();
        self.encode_row(RowKind::Regular(clustering), row, at - self.partition.previous)?;
        self.note_row(Some(clustering), row, at);
        if self.stats.tombstones_in_partition() != tombstones
            && !row.has_live_data(self.options.large.now)
        {
            self.partition.dead_rows += 1;
        }
        self.placed(PrefixKind::Clustering, clustering, at)
    }

    /// Finds large data in a row that was encoded from a position on, and indexes it.
    #[inline]
    fn note_row(&mut self, clustering: Option<&[u8]>, row: RowRef<'_>, at: u64) {
        let bytes = self.offset() - at;
        if bytes > self.large_row {
            self.note_large_row(clustering, row, at, bytes);
        }
    }

    #[cold]
    fn note_large_row(&mut self, clustering: Option<&[u8]>, row: RowRef<'_>, at: u64, bytes: u64) {
        let p = &self.partition;
        let key = p.key.as_slice();
        if bytes > self.options.large.row_least() {
            self.large.row(&self.options.large, key, clustering, row, bytes);
        }
        let Some(indexes) = &mut self.attached.indexes else { return };
        let token = p.hash.map_or_else(|| codec::token_of(key), |hash| hash.token);
        let offset = p.start + at;
        let placed = PlacedRow { token, partition: p.start, offset, key, clustering, row };
        let is_full = indexes.row(&placed);
        self.data.urge_if(is_full);
    }

    /// A range-tombstone marker.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn marker(&mut self, marker: &Marker<'_>) -> Result<()> {
        self.end_header()?;
        let at = self.offset();
        let kind = encode_marker(
            &self.schema,
            marker,
            at - self.partition.previous,
            &mut self.scratch,
            &mut self.stats,
            &mut self.chunk,
        )
        .map_err(|e| self.unwritable(e))?;
        self.partition.open = marker.open;
        self.partition.markers += 1;
        self.partition.range_tombstones += u64::from(marker.open.is_some());
        self.placed(kind, marker.position.prefix, at)
    }

    /// Notes where a row or marker lies, for the promoted index and the covered clusterings.
    fn placed(&mut self, kind: PrefixKind, prefix: &[u8], at: u64) -> Result<()> {
        fn set(target: &mut Prefix, kind: PrefixKind, prefix: &[u8]) {
            target.kind = kind;
            target.values.clear();
            target.values.extend_from_slice(prefix);
        }
        let end = self.offset();
        let p = &mut self.partition;
        if p.rows == 0 {
            set(&mut p.first, kind, prefix);
        }
        if !p.in_block {
            set(&mut p.block.first, kind, prefix);
            p.block.offset = at;
            p.in_block = true;
        }
        set(&mut p.last, kind, prefix);
        p.rows += 1;
        p.previous = at;
        if end - p.block.offset >= self.options.column_index_size {
            self.end_block()?;
        }
        self.cut_chunks()
    }

    fn end_block(&mut self) -> Result<()> {
        let end = self.offset();
        let p = &mut self.partition;
        p.block.last.kind = p.last.kind;
        p.block.last.values.clone_from(&p.last.values);
        p.block.width = end - p.block.offset;
        p.block.open = p.open;
        p.in_block = false;
        if let Some(tries) = &mut self.tries {
            let done = tries.block(&p.block);
            return done.map_err(|e| self.unwritable(e));
        }
        self.promoted
            .push(&self.partition.block, &self.schema.clustering, self.options.version)
            .map_err(|e| self.unwritable(e))
    }

    /// Ends the partition.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn partition_end(&mut self) -> Result<()> {
        stdx::invariant!(self.in_partition, "sstable writer: no partition is open");
        self.end_header()?;
        let rows_end = self.offset();
        match &self.tries {
            Some(tries) if self.partition.in_block && tries.has_block() => self.end_block()?,
            // A partition of one block has no trie of its own.
            Some(_) => self.partition.in_block = false,
            None => {}
        }
        encode_partition_end(&mut self.chunk);
        // Like Cassandra, includes the end of the partition in the last block of format BIG.
        if self.partition.in_block {
            self.end_block()?;
        }
        let bytes = self.offset();
        let p = &self.partition;
        let index_at = self.index.length();
        let rows_at = self.tries.as_ref().map_or(0, |tries| tries.rows.length());
        let encoded = match &mut self.tries {
            Some(tries) => {
                let facts = PartitionFacts {
                    key: &p.key,
                    hash: p.hash.unwrap_or_else(|| hash_key(&p.key)),
                    start: p.start,
                    deletion: p.deletion.unwrap_or(DeletionTime::LIVE),
                    rows_end,
                };
                tries.partition(&facts, &mut self.index)
            }
            None => self.promoted.encode_entry(
                &p.key,
                p.start,
                p.header_length.unwrap_or(0),
                &p.deletion.unwrap_or(DeletionTime::LIVE),
                self.options.version,
                &mut self.index.pending,
            ),
        };
        if self.warm.partition_end() {
            self.index.keep_from(index_at);
            if let Some(tries) = &mut self.tries {
                tries.rows.keep_from(rows_at);
            }
        }
        self.summary.add(&p.key, index_at);
        let (tombstones, limits) = (self.stats.tombstones_in_partition(), self.options.large);
        let rows = p.rows - p.markers;
        if bytes > limits.bytes || tombstones > limits.tombstones || rows > limits.rows {
            self.large.partition(LargePartition {
                key: p.key.clone(),
                bytes,
                tombstones,
                rows,
                range_tombstones: p.range_tombstones,
                dead_rows: p.dead_rows,
            });
        }
        self.stats.partition_end(bytes);
        if p.rows > 0 {
            let first = BoundRef { prefix: &p.first.values, after: p.first.kind.is_after() };
            let row_last = p.last.kind == PrefixKind::Clustering;
            let last =
                BoundRef { prefix: &p.last.values, after: row_last || p.last.kind.is_after() };
            self.stats.covered(&self.comparator, first, last);
        }
        self.in_partition = false;
        encoded.map_err(|e| self.unwritable(e))?;
        self.cut_chunks()
    }

    /// Moves full chunks to the output.
    fn cut_chunks(&mut self) -> Result<()> {
        if self.chunk.len() < self.chunk_length {
            return Ok(());
        }
        let mut done = 0;
        while self.chunk.len() - done >= self.chunk_length {
            self.cut(done, self.chunk_length)?;
            done += self.chunk_length;
        }
        self.chunk.drain(..done);
        Ok(())
    }

    /// Moves one chunk, which stays in `self.chunk` until the caller drains it.
    fn cut(&mut self, from: usize, length: usize) -> Result<()> {
        let plain = self.chunk.get(from..from + length).unwrap_or(&[]);
        let (at, offset) = (self.data.pending.len(), self.data.length());
        let out = &mut self.data.pending;
        match (&mut self.compressor, &self.options.compression) {
            (Some(compressor), Some(options)) => {
                self.offsets.push(offset);
                let size =
                    compressor.compress(plain, out).map_err(|e| SstableError::Unsupported {
                        file: self.data.file.path().to_owned(),
                        what: e.to_string(),
                    })?;
                let limit = usize::try_from(options.max_compressed_length).unwrap_or(usize::MAX);
                if size >= limit {
                    out.truncate(at);
                    out.extend_from_slice(plain);
                    // A short last chunk is padded so that its length marks it as plain.
                    out.resize(at + length.max(limit.min(self.chunk_length)), 0);
                }
                let crc = crc32(out.get(at..).unwrap_or(&[]));
                out.put_u32(crc);
            }
            _ => {
                out.extend_from_slice(plain);
                self.chunk_crcs.push(crc32(plain));
            }
        }
        self.digest.update(out.get(at..).unwrap_or(&[]));
        self.data.sum_up();
        self.warm.cut(self.data_length / self.chunk_length as u64, plain);
        self.data_length += length as u64;
        Ok(())
    }
}

/// Refuses a version that is not written, and a generation that is taken: it must not get the mark of an unfinished
/// set.
async fn check_new(fs: &Fs, data: &str, version: Version) -> Result<()> {
    if !WriterOptions::VERSIONS.contains(&version) {
        return Err(SstableError::Unsupported {
            file: data.to_owned(),
            what: format!("version {version} is read, not written"),
        });
    }
    if fs.exists(data).await? {
        let error = IoError {
            kind: IoErrorKind::AlreadyExists,
            operation: "open",
            path: data.to_owned(),
            detail: "a file set of this generation exists".to_owned(),
        };
        return Err(error.into());
    }
    Ok(())
}
