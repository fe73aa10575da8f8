//! A file set written anew in another version of the format.

use std::rc::Rc;

use data::command::KeyRange;
use data::{Advance, Cursor, Slices};
use rt::Fs;
use sst_format::Version;

use crate::writer::{SstableWriter, WriteCompression, WriterOptions, Written};
use crate::{Result, SstableError, SstableReader};

/// Writes all that a file set holds to `directory`, which must exist, under the same generation:
/// every partition and row, tombstones included, with the compression, level and state of repair of
/// the original. The result spans slices of the ring. Before `oa` local deletion times end in 2038:
/// later ones become that.
///
/// # Errors
/// `Unsupported` for a version that is not written and for names with a UUID (there is no number to
/// take), `Corrupt`, `Io`, `AlreadyExists` among them. What was written is removed then.
pub async fn upgrade(
    fs: &Fs,
    reader: &SstableReader,
    version: Version,
    directory: &str,
    generation: Option<stdx::Generation>,
) -> Result<Option<Written>> {
    let meta = reader.meta();
    let unsupported = |what: String| SstableError::Unsupported {
        file: meta.file(sst_format::Component::Data),
        what,
    };
    let own = meta.descriptor();
    let named_by_number = own.generation.0 & sst_format::Descriptor::UUID_GENERATION == 0;
    let generation = generation.or(named_by_number.then_some(own.generation));
    let Some(generation) = generation else {
        return Err(unsupported("its name is a UUID: say a number for the new one".to_owned()));
    };
    let statistics = meta.statistics();
    if statistics.partitioner != sst_format::Partitioner::Murmur3 {
        let class = statistics.partitioner.class_name();
        return Err(unsupported(format!("its partitions are in the order of {class}")));
    }
    let table = super::table_of_header(&statistics.header);
    let bases = statistics.header.stats;
    let partitions = meta.estimated_partitions();
    let mut options =
        WriterOptions::for_table(&table, generation, partitions, bases).map_err(unsupported)?;
    let stats = &statistics.stats;
    options.version = version;
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
    options.host = stats.originating_host;
    options.level = stats.level;
    options.repaired_at = stats.repaired_at;
    options.pending_repair = stats.pending_repair;
    let mut writer = SstableWriter::create(fs, directory, &table, options).await?;
    match copy(reader, &mut writer).await {
        Ok(()) => writer.finish().await,
        Err(error) => {
            writer.abort().await;
            Err(error)
        }
    }
}

async fn copy(reader: &SstableReader, writer: &mut SstableWriter) -> Result<()> {
    let mut blocks = reader.sequential();
    let mut cursor = reader.range_cursor(0, KeyRange::all(), Rc::new(Slices::all()), None);
    loop {
        match cursor.advance()? {
            Advance::NeedBlock(request) => {
                let chunk = blocks.load_block(request.block).await?;
                cursor.feed(request.block, chunk);
            }
            Advance::Item => {
                writer.put(cursor.item())?;
                if writer.is_full() {
                    writer.write_full().await?;
                }
            }
            Advance::End => return Ok(()),
        }
    }
}
