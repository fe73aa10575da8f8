//! Statistics.db: four parts behind a table of contents, each with a CRC32 behind it.
//!
//! Layout: part count i32, CRC32 of that, (part number i32, offset i32) each, CRC32 of everything so
//! far without the first CRC, then the parts: 0 validation, 1 compaction, 2 stats, 3 header.
//! Source: `io.sstable.metadata.MetadataSerializer` and its neighbours.

use codec::checksum::Crc32;
use codec::{Reader, Writer, crc32};
use stdx::{DeletionSeconds, TimestampMicros, Uuid};

use crate::header::SerializationHeader;
use crate::histogram::{EstimatedHistogram, TombstoneHistogram};
use crate::{FormatError, Result, deletion_from_i32, deletion_i32};

/// The only partitioner supported.
pub const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// A place in the commit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitLogPosition {
    /// Segment id.
    pub segment: i64,
    /// Byte offset.
    pub position: i32,
}

impl CommitLogPosition {
    /// "None" (`CommitLogPosition.NONE`).
    pub const NONE: CommitLogPosition = CommitLogPosition { segment: -1, position: 0 };

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_i64(self.segment);
        out.put_i32(self.position);
    }

    fn decode(r: &mut Reader<'_>) -> Result<CommitLogPosition> {
        Ok(CommitLogPosition { segment: r.i64()?, position: r.i32()? })
    }
}

/// The stats part.
#[derive(Clone, Debug, PartialEq)]
pub struct StatsMetadata {
    /// Bytes of partitions in Data (uncompressed).
    pub partition_sizes: EstimatedHistogram,
    /// Cells of partitions.
    pub cells_per_partition: EstimatedHistogram,
    /// Commit-log stretches whose mutations are in this file.
    pub commit_log: Vec<(CommitLogPosition, CommitLogPosition)>,
    /// Smallest timestamp in the file.
    pub min_timestamp: TimestampMicros,
    /// Largest.
    pub max_timestamp: TimestampMicros,
    /// Smallest local deletion or expiry time; [`DeletionSeconds::NONE`]: there is neither.
    pub min_local_deletion: DeletionSeconds,
    /// Largest; [`DeletionSeconds::NONE`] when some cell lives for ever.
    pub max_local_deletion: DeletionSeconds,
    /// Smallest TTL, seconds; 0 = some cell has none.
    pub min_ttl: i32,
    /// Largest TTL, seconds.
    pub max_ttl: i32,
    /// Compressed by uncompressed size; -1 when not compressed.
    pub compression_ratio: f64,
    /// Tombstones and expiries over time.
    pub tombstones: TombstoneHistogram,
    /// Level in leveled compaction.
    pub level: i32,
    /// Milliseconds since 1970 of the repair, 0 = not repaired.
    pub repaired_at: i64,
    /// Leading components of the smallest clustering; empty = no bound.
    pub min_clustering: Vec<Vec<u8>>,
    /// Of the largest.
    pub max_clustering: Vec<Vec<u8>>,
    /// Counter shards from before 2.1.
    pub has_legacy_counter_shards: bool,
    /// Columns set, summed over rows.
    pub total_columns_set: i64,
    /// Rows, static ones included.
    pub total_rows: i64,
    /// Session of an incremental repair under way.
    pub pending_repair: Option<Uuid>,
    /// Transient replica.
    pub is_transient: bool,
    /// Node whose commit log `commit_log` refers to.
    pub originating_host: Option<Uuid>,
}

impl StatsMetadata {
    /// Whether the file can hold tombstones or expiring cells.
    pub fn may_have_tombstones(&self) -> bool {
        self.min_local_deletion != DeletionSeconds::NONE
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        let none = CommitLogPosition::NONE;
        self.partition_sizes.encode(out);
        self.cells_per_partition.encode(out);
        self.commit_log.last().map_or(none, |(_, end)| *end).encode(out);
        out.put_i64(self.min_timestamp.0);
        out.put_i64(self.max_timestamp.0);
        out.put_i32(deletion_i32(self.min_local_deletion));
        out.put_i32(deletion_i32(self.max_local_deletion));
        out.put_i32(self.min_ttl);
        out.put_i32(self.max_ttl);
        out.put_f64(self.compression_ratio);
        self.tombstones.encode(out);
        out.put_i32(self.level);
        out.put_i64(self.repaired_at);
        for clustering in [&self.min_clustering, &self.max_clustering] {
            let count = i32::try_from(clustering.len())
                .map_err(|_| FormatError::TooLarge { what: "clustering" })?;
            out.put_i32(count);
            for value in clustering {
                out.put_bytes_u16(value, "clustering value")
                    .map_err(|_| FormatError::TooLarge { what: "clustering value" })?;
            }
        }
        out.put_bool(self.has_legacy_counter_shards);
        out.put_i64(self.total_columns_set);
        out.put_i64(self.total_rows);
        self.commit_log.first().map_or(none, |(start, _)| *start).encode(out);
        out.put_i32(i32::try_from(self.commit_log.len()).unwrap_or(i32::MAX));
        for (start, end) in &self.commit_log {
            start.encode(out);
            end.encode(out);
        }
        put_uuid(out, self.pending_repair);
        out.put_bool(self.is_transient);
        put_uuid(out, self.originating_host);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<StatsMetadata> {
        let mut r = Reader::new(bytes, "stats metadata");
        let partition_sizes = EstimatedHistogram::decode(&mut r)?;
        let cells_per_partition = EstimatedHistogram::decode(&mut r)?;
        CommitLogPosition::decode(&mut r)?;
        let min_timestamp = TimestampMicros(r.i64()?);
        let max_timestamp = TimestampMicros(r.i64()?);
        let min_local_deletion = deletion_from_i32(r.i32()?);
        let max_local_deletion = deletion_from_i32(r.i32()?);
        let (min_ttl, max_ttl) = (r.i32()?, r.i32()?);
        let compression_ratio = r.f64()?;
        let tombstones = TombstoneHistogram::decode(&mut r)?;
        let level = r.i32()?;
        let repaired_at = r.i64()?;
        let mut clusterings = [Vec::new(), Vec::new()];
        for clustering in &mut clusterings {
            let count = r.len_i32()?;
            let count = r.check_count(count, 2)?;
            for _ in 0..count {
                clustering.push(r.bytes_u16()?.to_vec());
            }
        }
        let has_legacy_counter_shards = r.bool()?;
        let (total_columns_set, total_rows) = (r.i64()?, r.i64()?);
        CommitLogPosition::decode(&mut r)?;
        let count = r.len_i32()?;
        let count = r.check_count(count, 24)?;
        let mut commit_log = Vec::with_capacity(count);
        for _ in 0..count {
            commit_log
                .push((CommitLogPosition::decode(&mut r)?, CommitLogPosition::decode(&mut r)?));
        }
        let pending_repair = read_uuid(&mut r)?;
        let is_transient = r.bool()?;
        let originating_host = read_uuid(&mut r)?;
        r.finish()?;
        let [min_clustering, max_clustering] = clusterings;
        Ok(StatsMetadata {
            partition_sizes,
            cells_per_partition,
            commit_log,
            min_timestamp,
            max_timestamp,
            min_local_deletion,
            max_local_deletion,
            min_ttl,
            max_ttl,
            compression_ratio,
            tombstones,
            level,
            repaired_at,
            min_clustering,
            max_clustering,
            has_legacy_counter_shards,
            total_columns_set,
            total_rows,
            pending_repair,
            is_transient,
            originating_host,
        })
    }
}

fn put_uuid(out: &mut Vec<u8>, id: Option<Uuid>) {
    out.put_bool(id.is_some());
    if let Some(id) = id {
        out.put_bytes(id.as_bytes());
    }
}

fn read_uuid(r: &mut Reader<'_>) -> Result<Option<Uuid>> {
    Ok(if r.bool()? { Some(Uuid::from_u128(r.u128()?)) } else { None })
}

/// The whole component.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Rate the Bloom filter was made for.
    pub bloom_fp_chance: f64,
    /// Serialised cardinality estimator of the partition keys.
    pub cardinality: Vec<u8>,
    /// The stats part.
    pub stats: StatsMetadata,
    /// The header part.
    pub header: SerializationHeader,
}

const PARTS: usize = 4;
const PARTS_I32: i32 = 4;

impl Statistics {
    /// The bytes of the file.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let too_large = |_| FormatError::TooLarge { what: "statistics" };
        let mut parts: [Vec<u8>; PARTS] = Default::default();
        let [validation, compaction, stats, header] = &mut parts;
        validation
            .put_bytes_u16(PARTITIONER.as_bytes(), "partitioner")
            .map_err(|_| FormatError::TooLarge { what: "partitioner" })?;
        validation.put_f64(self.bloom_fp_chance);
        compaction.put_i32(i32::try_from(self.cardinality.len()).map_err(too_large)?);
        compaction.put_bytes(&self.cardinality);
        self.stats.encode(stats)?;
        self.header.encode(header);

        let mut out = Vec::new();
        let mut crc = Crc32::new();
        out.put_i32(PARTS_I32);
        crc.update_i32(PARTS_I32);
        out.put_u32(crc.value());
        let mut offset = 4usize + 8 * PARTS + 8;
        for (number, part) in (0i32..).zip(&parts) {
            let at = i32::try_from(offset).map_err(too_large)?;
            out.put_i32(number);
            out.put_i32(at);
            crc.update_i32(number);
            crc.update_i32(at);
            offset = offset.saturating_add(part.len()).saturating_add(4);
        }
        out.put_u32(crc.value());
        for part in &parts {
            out.put_bytes(part);
            out.put_u32(crc32(part));
        }
        Ok(out)
    }

    /// Reads the file and checks its checksums; together they cover every byte.
    ///
    /// # Errors
    /// `Checksum`, `Decode`, `Invalid`, `Unsupported` partitioner.
    pub fn decode(bytes: &[u8]) -> Result<Statistics> {
        let mut r = Reader::new(bytes, "statistics");
        let mut crc = Crc32::new();
        let count = r.i32()?;
        crc.update_i32(count);
        check(&crc, r.u32()?, 0)?;
        if count != PARTS_I32 {
            return Err(FormatError::Invalid { what: "not four parts of statistics", offset: 0 });
        }
        let mut starts = [0usize; PARTS];
        for (number, start) in (0i32..).zip(&mut starts) {
            let (found, offset) = (r.i32()?, r.i32()?);
            crc.update_i32(found);
            crc.update_i32(offset);
            if found != number {
                return Err(FormatError::Invalid {
                    what: "parts of statistics out of order",
                    offset: 8,
                });
            }
            *start = usize::try_from(offset).unwrap_or(usize::MAX);
        }
        check(&crc, r.u32()?, 0)?;
        let mut parts: [&[u8]; PARTS] = [&[]; PARTS];
        let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
        let mut at = r.position();
        for ((part, start), end) in parts.iter_mut().zip(starts).zip(ends) {
            if start != at {
                return Err(FormatError::Invalid {
                    what: "part of statistics out of place",
                    offset: 8,
                });
            }
            let body = bytes.get(start..end).and_then(|b| b.split_last_chunk::<4>());
            let Some((body, stored)) = body else {
                return Err(FormatError::Invalid {
                    what: "part of statistics cut short",
                    offset: 8,
                });
            };
            let (expected, found) = (u32::from_be_bytes(*stored), crc32(body));
            if expected != found {
                let offset = start as u64;
                return Err(FormatError::Checksum { what: "part", offset, expected, found });
            }
            *part = body;
            at = end;
        }
        let [validation, compaction, stats, header] = parts;
        let mut r = Reader::new(validation, "validation metadata");
        let partitioner = r.utf8_u16()?;
        if partitioner != PARTITIONER {
            let value = partitioner.to_owned();
            return Err(FormatError::Unsupported { what: "partitioner", value });
        }
        let bloom_fp_chance = r.f64()?;
        r.finish()?;
        let mut r = Reader::new(compaction, "compaction metadata");
        let cardinality = r.bytes_i32()?.to_vec();
        r.finish()?;
        Ok(Statistics {
            bloom_fp_chance,
            cardinality,
            stats: StatsMetadata::decode(stats)?,
            header: SerializationHeader::decode(header)?,
        })
    }
}

fn check(crc: &Crc32, expected: u32, offset: u64) -> Result<()> {
    let found = crc.value();
    if found == expected {
        return Ok(());
    }
    Err(FormatError::Checksum { what: "table of contents", offset, expected, found })
}
