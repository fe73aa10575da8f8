//! Estimates the space that a compaction of some files together would free: the compaction's output
//! is only measured. The report is that of Instaclustr's `ic-purge`.

use std::sync::Arc;

use data::command::KeyRange;
use data::{
    Advance, Cursor, DeletionTime, GcBefore, Item, Liveness, MergeCursor, MergeMode, RowBuilder,
    RowRef, Slices, TableShape,
};
use rt::Fs;
use schema::Table;
use sst_format::header::SerializationHeader;
use sst_format::row_write::{
    EncodeScratch, RowKind, encode_marker, encode_partition_end, encode_partition_header,
    encode_row,
};
use sst_format::{Component, Descriptor, EncodingStats, StatsCollector, Version, WriteSchema};
use stdx::TimestampMicros;

use super::analysis::Lanes;
use super::scan::{Detail, ScanClock};
use crate::meta::Purpose;
use crate::{Result, SstableCursor, SstableError, SstableReader};

/// A partition in which a compaction would free something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaimable {
    /// Its key as text.
    pub key: String,
    /// Uncompressed bytes in all files.
    pub size: u64,
    /// Uncompressed bytes that would be left.
    pub left: u64,
    /// Files that have it.
    pub files: u32,
}

impl Reclaimable {
    /// Bytes that would be freed.
    pub fn freed(&self) -> u64 {
        self.size.saturating_sub(self.left)
    }
}

/// Totals of the freed space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeReport {
    /// Partitions.
    pub partitions: u64,
    /// Partitions among these that would disappear.
    pub gone: u64,
    /// Uncompressed bytes of all partitions in all files.
    pub size: u64,
    /// Uncompressed bytes that would be left.
    pub left: u64,
    /// Partitions that would free most.
    pub leaders: Vec<Reclaimable>,
}

/// Merges the files as a compaction of all of them at `clock` would, and measures the result.
/// Ignores other files: with data in other files, memtables or replicas that a tombstone must still
/// hide, a compaction frees less.
///
/// # Errors
/// `Unsupported` when the files are not of one table or not in the same order; `Corrupt`, `Io`.
pub async fn purge_preview(
    fs: &Fs,
    files: &[(String, Descriptor)],
    clock: ScanClock,
    leaders: usize,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<PurgeReport> {
    let mut plain = Vec::new();
    for (directory, set) in files {
        plain.push(SstableReader::open(fs, directory, *set, None).await?);
    }
    let Some(table) = table_of_all(&plain)? else { return Ok(PurgeReport::default()) };
    let mut lanes = Lanes::new(&plain, clock, Detail::Sizes).await?;
    let mut readers = Vec::new();
    let mut bases = EncodingStats::NONE;
    let mut version = Version::Nb;
    for (directory, set) in files {
        let opened =
            SstableReader::open_for(Purpose::Look, fs, directory, *set, Some(&table)).await?;
        bases = bases.merge(opened.meta().statistics().header.stats);
        version = version.max(set.version);
        readers.push(opened);
    }
    let shape = TableShape::for_table(&table);
    let mode = MergeMode::Purge {
        now: clock.now,
        gc_before: GcBefore::At(clock.gc_before),
        timestamp_below: Box::new(|_, _| TimestampMicros(i64::MAX)),
    };
    let slices = Arc::new(Slices::all());
    let sources = readers
        .iter()
        .zip(0u32..)
        .map(|(reader, number)| reader.range_cursor(number, KeyRange::all(), slices.clone(), None));
    let mut merge: MergeCursor<'_, SstableCursor> = MergeCursor::new(&shape, mode, false, sources);
    let mut blocks: Vec<_> = readers.iter().map(SstableReader::sequential).collect();
    let header = SerializationHeader::for_table(&table, bases);
    let mut measure = Measure {
        schema: header.write_schema(&table, version),
        version,
        scratch: EncodeScratch::default(),
        stats: StatsCollector::default(),
        out: Vec::new(),
        left: 0,
        head: 0,
        previous: 0,
        deleted: false,
        wants_static: false,
    };
    let total = plain.iter().map(|r| r.meta().data_length()).sum();
    let mut report = PurgeReport::default();
    loop {
        match merge.advance()? {
            Advance::End => return Ok(report),
            Advance::NeedBlock(request) => {
                let index = usize::try_from(request.source).unwrap_or(usize::MAX);
                let Some(reader) = blocks.get_mut(index) else { return Ok(report) };
                let chunk = reader.load_block(request.block).await?;
                if let Some(cursor) = merge.source_mut(request.source) {
                    cursor.feed(request.block, chunk);
                }
            }
            Advance::Item => {
                let item = merge.item();
                let is_end = matches!(item, Item::PartitionEnd);
                let put = measure.put(item);
                put.map_err(|error| unwritable(&plain, error))?;
                if !is_end {
                    continue;
                }
                // Both walks reach the same partitions in the same order.
                let Some(before) = lanes.next(&mut |_, _| {}).await? else { continue };
                let types = &header.key_types;
                let partition = Reclaimable {
                    key: super::key_text(types, &before.stats.key),
                    size: before.stats.size,
                    left: measure.left,
                    files: before.files,
                };
                report.add(partition, leaders);
                progress(report.size, total);
            }
        }
    }
}

fn unwritable(readers: &[SstableReader], error: sst_format::FormatError) -> SstableError {
    let file = readers.first().map_or(String::new(), |r| r.meta().file(Component::Data));
    SstableError::Unwritable { file, error }
}

impl PurgeReport {
    fn add(&mut self, partition: Reclaimable, leaders: usize) {
        self.partitions += 1;
        self.gone += u64::from(partition.left == 0);
        self.size += partition.size;
        self.left += partition.left;
        let freed = partition.freed();
        let at = self.leaders.partition_point(|p| p.freed() >= freed);
        if freed > 0 && at < leaders {
            self.leaders.insert(at, partition);
            self.leaders.truncate(leaders);
        }
    }
}

/// The bytes that a partition would have.
struct Measure {
    schema: WriteSchema,
    version: Version,
    scratch: EncodeScratch,
    stats: StatsCollector,
    out: Vec<u8>,
    /// Bytes left of the partition, 0 while it is empty.
    left: u64,
    /// Bytes of its header.
    head: u64,
    previous: u64,
    deleted: bool,
    /// A table with static columns has a static row in every partition: it was not met yet.
    wants_static: bool,
}

impl Measure {
    fn put(&mut self, item: Item<'_>) -> sst_format::Result<()> {
        self.out.clear();
        match item {
            Item::Partition { key, deletion, .. } => {
                encode_partition_header(key, &deletion, self.version, &mut self.out)?;
                self.head = self.out.len() as u64;
                self.deleted = deletion != DeletionTime::LIVE;
                self.left = 0;
                // The first row's distance is from the start of the partition.
                self.previous = self.head;
                self.wants_static = self.schema.has_static();
            }
            Item::Static(row) => self.static_row(row)?,
            Item::Row { clustering, row } => {
                self.end_header()?;
                let kind = RowKind::Regular(clustering);
                let previous = self.previous;
                let (scratch, stats) = (&mut self.scratch, &mut self.stats);
                encode_row(&self.schema, kind, row, previous, scratch, stats, &mut self.out)?;
                self.row();
            }
            Item::Marker(marker) => {
                self.end_header()?;
                let previous = self.previous;
                let (scratch, stats) = (&mut self.scratch, &mut self.stats);
                encode_marker(&self.schema, &marker, previous, scratch, stats, &mut self.out)?;
                self.row();
            }
            Item::PartitionEnd => {
                if self.left > 0 || self.deleted {
                    self.end_header()?;
                    encode_partition_end(&mut self.out);
                    self.left += self.head + self.out.len() as u64;
                }
            }
        }
        Ok(())
    }

    fn static_row(&mut self, row: RowRef<'_>) -> sst_format::Result<()> {
        let (scratch, stats) = (&mut self.scratch, &mut self.stats);
        encode_row(&self.schema, RowKind::Static, row, 0, scratch, stats, &mut self.out)?;
        let length = self.out.len() as u64;
        self.out.clear();
        self.left += length;
        self.previous += length;
        self.wants_static = false;
        Ok(())
    }

    fn end_header(&mut self) -> sst_format::Result<()> {
        if !self.wants_static {
            return Ok(());
        }
        let mut empty = Vec::new();
        let base = EncodingStats::NONE.min_timestamp;
        RowBuilder::new(&mut empty, Liveness::NONE, DeletionTime::LIVE, base).finish();
        self.static_row(RowRef::trusted(&empty))
    }

    fn row(&mut self) {
        self.previous = self.out.len() as u64;
        self.left += self.out.len() as u64;
    }
}

/// A table with the columns of all files: of two types of one name that of the file with the latest
/// write.
fn table_of_all(readers: &[SstableReader]) -> Result<Option<Table>> {
    let mut sorted: Vec<&SstableReader> = readers.iter().collect();
    sorted.sort_by_key(|r| std::cmp::Reverse(r.meta().statistics().stats.max_timestamp));
    let Some((first, others)) = sorted.split_first() else { return Ok(None) };
    let mut header = first.meta().statistics().header.clone();
    for other in others {
        let of = &other.meta().statistics().header;
        let keys_differ = of.key_types != header.key_types
            || of.clustering_types.len() != header.clustering_types.len();
        if keys_differ {
            return Err(SstableError::Unsupported {
                file: other.meta().file(Component::Data),
                what: "it is of another table: its keys have other types".to_owned(),
            });
        }
        for (list, theirs) in
            [(&mut header.statics, &of.statics), (&mut header.regulars, &of.regulars)]
        {
            for column in theirs {
                if !list.iter().any(|c| c.name == column.name) {
                    list.push(column.clone());
                }
            }
        }
    }
    Ok(Some(super::table_of_header(&header)))
}
