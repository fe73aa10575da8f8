//! Rewrites a file set: in another version, or in pieces.

use std::sync::Arc;

use data::command::KeyRange;
use data::{Advance, Cursor, Item, Slices};
use rt::Fs;
use schema::Table;
use sst_format::Version;
use stdx::Generation;

use crate::writer::{SstableWriter, WriteCompression, WriterOptions, Written};
use crate::{Result, SstableError, SstableReader};

/// Target of a rewrite, and its progress callback.
pub struct Rewrite<'r> {
    /// The files.
    pub fs: &'r Fs,
    /// Called repeatedly with the (uncompressed) bytes of Data done and their total.
    pub at: &'r mut dyn FnMut(u64, u64),
}

/// Writes all that a file set holds to `directory`, which must exist, under the same generation:
/// every partition and row, tombstones included, with the compression, level and state of repair of
/// the original. The result spans slices of the ring. Before `oa` local deletion times end in 2038:
/// later ones become that.
///
/// # Errors
/// `Unsupported` for a version that is not written and for names with a UUID (there is no number to
/// take), `Corrupt`, `Io`, `AlreadyExists` among them. What was written is removed then.
pub async fn upgrade(
    to: Rewrite<'_>,
    reader: &SstableReader,
    version: Version,
    directory: &str,
    generation: Option<Generation>,
) -> Result<Option<Written>> {
    let own = reader.meta().descriptor();
    let named_by_number = own.generation.0 & sst_format::Descriptor::UUID_GENERATION == 0;
    let generation = generation.or(named_by_number.then_some(own.generation));
    let Some(generation) = generation else {
        let what = "its name is a UUID: give a number for the new file".to_owned();
        return Err(unsupported(reader, what));
    };
    let table = super::table_of_header(&reader.meta().statistics().header);
    let mut options = options_like(reader, &table, generation)?;
    options.version = version;
    let Rewrite { fs, at } = to;
    let mut pieces = Pieces { fs, directory, table, options, limit: u64::MAX, at };
    let mut written = Vec::new();
    match pieces.write_all(reader, &mut written).await {
        Ok(()) => Ok(written.pop()),
        Err(error) => Err(error),
    }
}

/// Cuts a file set into pieces of about `limit` bytes (Data and indexes) in the same directory,
/// with the numbers from `first` on. All partitions are in exactly one piece; a partition is never
/// cut. The original stays.
///
/// # Errors
/// `Unsupported`, `Corrupt`, `Io`. What was written is removed then.
pub async fn split(
    to: Rewrite<'_>,
    reader: &SstableReader,
    limit: u64,
    first: Generation,
) -> Result<Vec<Written>> {
    let table = super::table_of_header(&reader.meta().statistics().header);
    let mut options = options_like(reader, &table, first)?;
    options.version = written_version(reader.meta().version());
    let directory = reader.meta().directory().to_owned();
    let Rewrite { fs, at } = to;
    let mut pieces = Pieces { fs, directory: &directory, table, options, limit, at };
    let mut written = Vec::new();
    match pieces.write_all(reader, &mut written).await {
        Ok(()) => Ok(written),
        Err(error) => {
            for piece in written {
                drop(crate::remove_sstable(fs, &directory, piece.descriptor).await);
            }
            Err(error)
        }
    }
}

/// Returns the version in which a file of the given version is rewritten: its own, or `nb` for
/// older ones.
pub(crate) fn written_version(version: Version) -> Version {
    if WriterOptions::VERSIONS.contains(&version) { version } else { Version::Nb }
}

fn unsupported(reader: &SstableReader, what: String) -> SstableError {
    SstableError::Unsupported { file: reader.meta().file(sst_format::Component::Data), what }
}

/// Returns options that write the content of a file unchanged.
pub(crate) fn options_like(
    reader: &SstableReader,
    table: &Table,
    generation: Generation,
) -> Result<WriterOptions> {
    let meta = reader.meta();
    let statistics = meta.statistics();
    if statistics.partitioner != sst_format::Partitioner::Murmur3 {
        let class = statistics.partitioner.class_name();
        return Err(unsupported(reader, format!("its partitions are in the order of {class}")));
    }
    let bases = statistics.header.stats;
    let partitions = meta.estimated_partitions();
    let mut options = WriterOptions::for_table(table, generation, partitions, bases)
        .map_err(|what| unsupported(reader, what))?;
    let stats = &statistics.stats;
    options.bloom_fp_chance = statistics.bloom_fp_chance;
    options.compression = meta.compression().and_then(|info| {
        Some(WriteCompression {
            algorithm: info.algorithm?,
            chunk_length: info.chunk_length,
            max_compressed_length: info.max_compressed_length,
            options: info.options.clone(),
        })
    });
    options.commit_log.clone_from(&stats.commit_log);
    options.sealing = meta.sealing();
    options.host = stats.originating_host;
    options.level = stats.level;
    options.repaired_at = stats.repaired_at;
    options.pending_repair = stats.pending_repair;
    Ok(options)
}

/// File sets with consecutive numbers.
struct Pieces<'p> {
    fs: &'p Fs,
    directory: &'p str,
    table: Table,
    /// Those of the next one.
    options: WriterOptions,
    /// Bytes after which the next partition begins another file set.
    limit: u64,
    at: &'p mut dyn FnMut(u64, u64),
}

impl Pieces<'_> {
    async fn next_writer(&mut self) -> Result<SstableWriter> {
        let options = self.options.clone();
        self.options.generation = Generation(options.generation.0.saturating_add(1));
        SstableWriter::create(self.fs, self.directory, &self.table, options).await
    }

    async fn write_all(
        &mut self,
        reader: &SstableReader,
        written: &mut Vec<Written>,
    ) -> Result<()> {
        let mut writer = Some(self.next_writer().await?);
        let result = self.copy(reader, &mut writer, written).await;
        if let (Err(_), Some(writer)) = (&result, writer) {
            writer.abort().await;
        }
        result
    }

    async fn copy(
        &mut self,
        reader: &SstableReader,
        slot: &mut Option<SstableWriter>,
        written: &mut Vec<Written>,
    ) -> Result<()> {
        let mut blocks = reader.sequential();
        let mut cursor = reader.range_cursor(0, KeyRange::all(), Arc::new(Slices::all()), None);
        loop {
            match cursor.advance()? {
                Advance::NeedBlock(request) => {
                    let chunk = blocks.load_block(request.block).await?;
                    cursor.feed(request.block, chunk);
                    (self.at)(cursor.position(), reader.meta().data_length());
                }
                Advance::Item => {
                    let begins = matches!(cursor.item(), Item::Partition { .. });
                    let is_full =
                        |w: &mut SstableWriter| w.partitions() > 0 && w.disk_length() >= self.limit;
                    if begins && let Some(full) = slot.take_if(is_full) {
                        written.extend(full.finish().await?);
                        *slot = Some(self.next_writer().await?);
                    }
                    let Some(writer) = slot else { return Ok(()) };
                    writer.put(cursor.item())?;
                    if writer.is_full() {
                        writer.write_full().await?;
                    }
                }
                Advance::End => {
                    if let Some(last) = slot.take() {
                        written.extend(last.finish().await?);
                    }
                    return Ok(());
                }
            }
        }
    }
}
