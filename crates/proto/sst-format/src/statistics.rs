//! Statistics.db: four parts after a table of contents, each followed by a CRC32 since `na`.
//!
//! Layout: part count i32, CRC32 of that, (part number i32, offset i32) each, CRC32 of everything so
//! far without the first CRC, then the parts: 0 validation, 1 compaction, 2 stats, 3 header. Before
//! `na` there are no checksums.
//! Source: `io.sstable.metadata.MetadataSerializer` and its neighbours.

use std::ops::Range;

use codec::checksum::Crc32;
use codec::{Reader, Writer, crc32};
use stdx::{DeletionSeconds, TimestampMicros, Token, Uuid};

use crate::clustering::{Prefix, PrefixKind};
use crate::header::{SerializationHeader, read_type};
use crate::histogram::{EstimatedHistogram, TombstoneHistogram};
use crate::{
    FormatError, Result, Version, deletion_from_i32, deletion_from_u32, deletion_i32, deletion_u32,
};

/// How keys are placed on the ring, and so the order of partitions in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitioner {
    /// By the Murmur3 hash of the key: the only one with which data is served.
    Murmur3,
    /// Orders by the bytes of the key: such files are read by offline tools.
    ByteOrdered,
}

impl Partitioner {
    /// Its class, as files name it.
    pub fn class_name(self) -> &'static str {
        match self {
            Partitioner::Murmur3 => "org.apache.cassandra.dht.Murmur3Partitioner",
            Partitioner::ByteOrdered => "org.apache.cassandra.dht.ByteOrderedPartitioner",
        }
    }

    fn from_class_name(name: &str) -> Option<Partitioner> {
        [Partitioner::Murmur3, Partitioner::ByteOrdered]
            .into_iter()
            .find(|p| p.class_name() == name)
    }

    /// A token by which, and then by their bytes, keys have the file's order.
    #[inline]
    pub fn token_of(self, key: &[u8]) -> Token {
        match self {
            Partitioner::Murmur3 => codec::token_of(key),
            Partitioner::ByteOrdered => Token(0),
        }
    }
}

/// Zero bytes that Cassandra leaves after the statistics for each null in the least and the
/// greatest clustering of a compact table: it counts the length of a value that it then does not
/// write.
const NULL_PADDING: usize = 2;
/// Nulls in two clusterings at most, far more than a primary key has.
const NULLS_MAX: usize = 256;

/// Bytes left at the end of the stats part for each point of the tombstone histogram, since `oa`.
const POINT_PADDING: usize = 4;

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
    /// Commit-log ranges whose mutations are in this file.
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
    /// Leading components of the largest clustering; empty = no bound.
    pub max_clustering: Vec<Vec<u8>>,
    /// Counter shards from before 2.1.
    pub has_legacy_counter_shards: bool,
    /// Columns set, summed over rows.
    pub total_columns_set: i64,
    /// Rows, static ones included.
    pub total_rows: i64,
    /// Session of a running incremental repair.
    pub pending_repair: Option<Uuid>,
    /// Transient replica.
    pub is_transient: bool,
    /// Node whose commit log `commit_log` refers to.
    pub originating_host: Option<Uuid>,
    /// True if some partition is deleted as a whole. Before `oa`: true if the file has any
    /// tombstone.
    pub has_partition_deletions: bool,
    /// Since `oa`: all rows and range deletions lie in it.
    pub covered: Option<CoveredSlice>,
    /// Since `oa`: first and last partition key.
    pub key_range: Option<(Vec<u8>, Vec<u8>)>,
    /// Since `oa`: share of the ring that the file spans, where its writer knew.
    pub token_coverage: Option<f64>,
}

/// The slice of clusterings that a file covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoveredSlice {
    /// Its start.
    pub start: Prefix,
    /// Its end.
    pub end: Prefix,
}

impl CoveredSlice {
    /// Leading values of a bound, up to the first null.
    fn values(prefix: &Prefix) -> Vec<Vec<u8>> {
        data::clustering::components(&prefix.values)
            .map_while(|value| value.map(<[u8]>::to_vec))
            .collect()
    }
}

/// The values before the first one that is too long for two bytes of length. Rows with longer
/// values are refused, but earlier releases accepted them. A bound of fewer values covers more, so
/// no read skips the file wrongly, and the file can be written. A row that cannot be flushed would
/// occupy the commit log and memory for ever.
fn with_short_lengths(values: &[Vec<u8>]) -> &[Vec<u8>] {
    let long = values.iter().position(|value| value.len() > usize::from(u16::MAX));
    values.get(..long.unwrap_or(values.len())).unwrap_or_default()
}

impl StatsMetadata {
    /// Returns true if the file can hold tombstones or expiring cells.
    pub fn may_have_tombstones(&self) -> bool {
        self.min_local_deletion != DeletionSeconds::NONE
    }

    fn encode(
        &self,
        version: Version,
        header: &SerializationHeader,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let none = CommitLogPosition::NONE;
        self.partition_sizes.encode(out);
        self.cells_per_partition.encode(out);
        self.commit_log.last().map_or(none, |(_, end)| *end).encode(out);
        out.put_i64(self.min_timestamp.0);
        out.put_i64(self.max_timestamp.0);
        for local in [self.min_local_deletion, self.max_local_deletion] {
            if version.has_uint_times() {
                out.put_u32(deletion_u32(local));
            } else {
                out.put_i32(deletion_i32(local));
            }
        }
        out.put_i32(self.min_ttl);
        out.put_i32(self.max_ttl);
        out.put_f64(self.compression_ratio);
        self.tombstones.encode(out, version);
        out.put_i32(self.level);
        out.put_i64(self.repaired_at);
        if version.has_covered_slice() {
            self.encode_covered(header, out)?;
        } else {
            for clustering in [&self.min_clustering, &self.max_clustering] {
                let clustering = with_short_lengths(clustering);
                let count = i32::try_from(clustering.len())
                    .map_err(|_| FormatError::TooLarge { what: "clustering" })?;
                out.put_i32(count);
                for value in clustering {
                    out.put_bytes_u16(value, "clustering value")
                        .map_err(|_| FormatError::TooLarge { what: "clustering value" })?;
                }
            }
        }
        out.put_bool(self.has_legacy_counter_shards);
        out.put_i64(self.total_columns_set);
        out.put_i64(self.total_rows);
        if version.has_commit_log_lower_bound() {
            self.commit_log.first().map_or(none, |(start, _)| *start).encode(out);
        }
        if version.has_commit_log_intervals() {
            out.put_i32(i32::try_from(self.commit_log.len()).unwrap_or(i32::MAX));
            for (start, end) in &self.commit_log {
                start.encode(out);
                end.encode(out);
            }
        }
        if version.has_pending_repair() {
            put_uuid(out, self.pending_repair);
            out.put_bool(self.is_transient);
        } else if self.pending_repair.is_some() || self.is_transient {
            let value = version.to_string();
            return Err(FormatError::Unsupported { what: "incremental repair of version", value });
        }
        if version.has_originating_host() {
            put_uuid(out, self.originating_host);
        }
        if version.has_covered_slice() {
            out.put_bool(self.has_partition_deletions);
            let (first, last) = match &self.key_range {
                Some((first, last)) => (first.as_slice(), last.as_slice()),
                None => (&[][..], &[][..]),
            };
            out.put_bytes_vint(first);
            out.put_bytes_vint(last);
            out.put_f64(self.token_coverage.unwrap_or(f64::NAN));
            // Cassandra takes 16 bytes for a point of the histogram, writes 12, and leaves the rest at
            // the end.
            let rest = self.tombstones.points.len().saturating_mul(POINT_PADDING);
            out.resize(out.len().saturating_add(rest), 0);
        }
        Ok(())
    }

    fn encode_covered(&self, header: &SerializationHeader, out: &mut Vec<u8>) -> Result<()> {
        out.put_vint_unsigned(header.clustering_types.len() as u64);
        for (ty, reversed) in &header.clustering_types {
            let name = if *reversed { ty.to_marshal_name_reversed() } else { ty.to_marshal_name() };
            out.put_bytes_vint(name.as_bytes());
        }
        let lengths = header.clustering_lengths();
        let all = CoveredSlice {
            start: Prefix { kind: PrefixKind::InclusiveStart, values: Vec::new() },
            end: Prefix { kind: PrefixKind::InclusiveEnd, values: Vec::new() },
        };
        let covered = self.covered.as_ref().unwrap_or(&all);
        covered.start.encode(&lengths, out)?;
        covered.end.encode(&lengths, out)
    }

    fn decode(bytes: &[u8], version: Version) -> Result<StatsMetadata> {
        StatsMetadata::decode_with_places(bytes, version).map(|(stats, _)| stats)
    }

    /// The same, and where in the bytes the fields are that are rewritten in place.
    fn decode_with_places(bytes: &[u8], version: Version) -> Result<(StatsMetadata, Changing)> {
        let mut r = Reader::new(bytes, "stats metadata");
        let partition_sizes = EstimatedHistogram::decode(&mut r)?;
        let cells_per_partition = EstimatedHistogram::decode(&mut r)?;
        let upper = CommitLogPosition::decode(&mut r)?;
        let min_timestamp = TimestampMicros(r.i64()?);
        let max_timestamp = TimestampMicros(r.i64()?);
        let local = |r: &mut Reader<'_>| -> Result<DeletionSeconds> {
            Ok(if version.has_uint_times() {
                deletion_from_u32(r.u32()?)
            } else {
                deletion_from_i32(r.i32()?)
            })
        };
        let (min_local_deletion, max_local_deletion) = (local(&mut r)?, local(&mut r)?);
        let (min_ttl, max_ttl) = (r.i32()?, r.i32()?);
        let compression_ratio = r.f64()?;
        let tombstones = TombstoneHistogram::decode(&mut r, version)?;
        let level_at = r.position();
        let level = r.i32()?;
        let repaired_at = r.i64()?;
        let level_end = r.position();
        let mut clusterings = [Vec::new(), Vec::new()];
        let mut covered = None;
        if version.has_covered_slice() {
            let slice = decode_covered(&mut r)?;
            clusterings = [CoveredSlice::values(&slice.start), CoveredSlice::values(&slice.end)];
            covered = Some(slice);
        } else {
            for clustering in &mut clusterings {
                let count = r.len_i32()?;
                let count = r.check_count(count, 2)?;
                for _ in 0..count {
                    clustering.push(r.bytes_u16()?.to_vec());
                }
            }
            if !version.has_accurate_clusterings() {
                clusterings = Default::default();
            }
        }
        let has_legacy_counter_shards = r.bool()?;
        let (total_columns_set, total_rows) = (r.i64()?, r.i64()?);
        let mut lower = CommitLogPosition::NONE;
        if version.has_commit_log_lower_bound() {
            lower = CommitLogPosition::decode(&mut r)?;
        }
        let mut commit_log = Vec::new();
        if version.has_commit_log_intervals() {
            let count = r.len_i32()?;
            let count = r.check_count(count, 24)?;
            commit_log.reserve(count);
            for _ in 0..count {
                commit_log
                    .push((CommitLogPosition::decode(&mut r)?, CommitLogPosition::decode(&mut r)?));
            }
        } else if upper != CommitLogPosition::NONE {
            commit_log.push((lower, upper));
        }
        let pending_at = r.position();
        let (mut pending_repair, mut is_transient) = (None, false);
        if version.has_pending_repair() {
            pending_repair = read_uuid(&mut r)?;
            // Versions of `na` from before the release end here.
            is_transient = !(version == Version::Na && r.is_empty()) && r.bool()?;
        }
        let pending_end = r.position();
        let originating_host =
            if version.has_originating_host() { read_uuid(&mut r)? } else { None };
        let mut has_partition_deletions = min_local_deletion != DeletionSeconds::NONE;
        let (mut key_range, mut token_coverage) = (None, None);
        if version.has_covered_slice() {
            has_partition_deletions = r.bool()?;
            let (first, last) = (r.bytes_vint()?.to_vec(), r.bytes_vint()?.to_vec());
            key_range = (!first.is_empty() || !last.is_empty()).then_some((first, last));
            token_coverage = Some(r.f64()?).filter(|share| !share.is_nan());
        }
        let end = r.position();
        if version.has_covered_slice() {
            let padding = r.peek_rest();
            let padding_max = tombstones.points.len().saturating_mul(POINT_PADDING);
            if padding.len() <= padding_max && padding.iter().all(|b| *b == 0) {
                r.skip(padding.len())?;
            }
        } else {
            let padding = r.peek_rest();
            let is_even = padding.len().is_multiple_of(NULL_PADDING);
            if is_even
                && padding.len() <= NULLS_MAX * NULL_PADDING
                && padding.iter().all(|b| *b == 0)
            {
                r.skip(padding.len())?;
            }
        }
        r.finish()?;
        let [min_clustering, max_clustering] = clusterings;
        let changing =
            Changing { level: level_at..level_end, repair: pending_at..pending_end, end };
        let stats = StatsMetadata {
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
            has_partition_deletions,
            covered,
            key_range,
            token_coverage,
        };
        Ok((stats, changing))
    }
}

/// Where the stats part has fields that are rewritten in place, and where its padding begins.
struct Changing {
    level: Range<usize>,
    repair: Range<usize>,
    end: usize,
}

fn decode_covered(r: &mut Reader<'_>) -> Result<CoveredSlice> {
    let count = r.vint_len()?;
    let count = r.check_count(count, 1)?;
    let mut lengths = Vec::with_capacity(count);
    for _ in 0..count {
        lengths.push(read_type(r)?.0.fixed_len());
    }
    let mut slice = CoveredSlice { start: Prefix::default(), end: Prefix::default() };
    for bound in [&mut slice.start, &mut slice.end] {
        Prefix::decode(r, &lengths, bound)?;
        if bound.kind == PrefixKind::Clustering {
            return Err(r.invalid(i64::from(bound.kind as u8)).into());
        }
    }
    Ok(slice)
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
    /// Version of the format.
    pub version: Version,
    /// The order of partitions.
    pub partitioner: Partitioner,
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
            .put_bytes_u16(self.partitioner.class_name().as_bytes(), "partitioner")
            .map_err(|_| FormatError::TooLarge { what: "partitioner" })?;
        validation.put_f64(self.bloom_fp_chance);
        compaction.put_i32(i32::try_from(self.cardinality.len()).map_err(too_large)?);
        compaction.put_bytes(&self.cardinality);
        self.stats.encode(self.version, &self.header, stats)?;
        self.header.encode(header);

        let mut out = Vec::new();
        let mut crc = Crc32::new();
        out.put_i32(PARTS_I32);
        crc.update_i32(PARTS_I32);
        let checksums = self.version.has_statistics_checksums();
        let crc_bytes = if checksums { 4usize } else { 0 };
        if checksums {
            out.put_u32(crc.value());
        }
        let mut offset = (4usize + 8 * PARTS).saturating_add(crc_bytes).saturating_add(crc_bytes);
        for (number, part) in (0i32..).zip(&parts) {
            let at = i32::try_from(offset).map_err(too_large)?;
            out.put_i32(number);
            out.put_i32(at);
            crc.update_i32(number);
            crc.update_i32(at);
            offset = offset.saturating_add(part.len()).saturating_add(crc_bytes);
        }
        if checksums {
            out.put_u32(crc.value());
        }
        for part in &parts {
            out.put_bytes(part);
            if checksums {
                out.put_u32(crc32(part));
            }
        }
        Ok(out)
    }

    /// Reads the file and checks its checksums; together they cover every byte, since `na`.
    ///
    /// # Errors
    /// `Checksum`, `Decode`, `Invalid`, `Unsupported` partitioner.
    pub fn decode(bytes: &[u8], version: Version) -> Result<Statistics> {
        let [validation, compaction, stats, header] = Statistics::parts(bytes, version)?;
        let mut r = Reader::new(validation, "validation metadata");
        let name = r.utf8_u16()?;
        let Some(partitioner) = Partitioner::from_class_name(name) else {
            let value = name.to_owned();
            return Err(FormatError::Unsupported { what: "partitioner", value });
        };
        let bloom_fp_chance = r.f64()?;
        r.finish()?;
        let mut r = Reader::new(compaction, "compaction metadata");
        let cardinality = r.bytes_i32()?.to_vec();
        r.finish()?;
        Ok(Statistics {
            version,
            partitioner,
            bloom_fp_chance,
            cardinality,
            stats: StatsMetadata::decode(stats, version)?,
            header: SerializationHeader::decode(header)?,
        })
    }

    /// CRC32 of what stays the same for as long as the file set exists: validation, stats without
    /// level and repair state, header. The estimator of the number of keys is left out, as another
    /// program that rewrites the level may serialise it in another form.
    ///
    /// # Errors
    /// Those of [`Statistics::decode`].
    pub fn identity(bytes: &[u8], version: Version) -> Result<u32> {
        let [validation, _, stats, header] = Statistics::parts(bytes, version)?;
        let (_, Changing { level, repair, end }) =
            StatsMetadata::decode_with_places(stats, version)?;
        let kept = [0..level.start, level.end..repair.start, repair.end..end];
        let mut crc = Crc32::new();
        crc.update(validation);
        for range in kept {
            crc.update(stats.get(range).unwrap_or(&[]));
        }
        crc.update(header);
        Ok(crc.value())
    }

    /// The four parts, each without its checksum, which is right.
    fn parts(bytes: &[u8], version: Version) -> Result<[&[u8]; PARTS]> {
        let checksums = version.has_statistics_checksums();
        let mut r = Reader::new(bytes, "statistics");
        let mut crc = Crc32::new();
        let count = r.i32()?;
        crc.update_i32(count);
        if checksums {
            check(&crc, r.u32()?, 0)?;
        }
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
        if checksums {
            check(&crc, r.u32()?, 0)?;
        }
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
            let cut = FormatError::Invalid { what: "part of statistics cut short", offset: 8 };
            let Some(mut body) = bytes.get(start..end) else { return Err(cut) };
            if checksums {
                let Some((covered, stored)) = body.split_last_chunk::<4>() else {
                    return Err(cut);
                };
                let (expected, found) = (u32::from_be_bytes(*stored), crc32(covered));
                if expected != found {
                    let offset = start as u64;
                    return Err(FormatError::Checksum { what: "part", offset, expected, found });
                }
                body = covered;
            }
            *part = body;
            at = end;
        }
        Ok(parts)
    }
}

fn check(crc: &Crc32, expected: u32, offset: u64) -> Result<()> {
    let found = crc.value();
    if found == expected {
        return Ok(());
    }
    Err(FormatError::Checksum { what: "table of contents", offset, expected, found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats_collector::{FileFacts, StatsCollector};

    /// Statistics of an empty file.
    fn empty(version: Version) -> Statistics {
        let facts = FileFacts {
            commit_log: Vec::new(),
            originating_host: Some(Uuid::from_u128(9)),
            level: 0,
            repaired_at: 0,
            pending_repair: None,
            compression_ratio: -1.0,
            key_range: None,
        };
        let (mut stats, cardinality) = StatsCollector::default().finish(facts);
        if version.has_covered_slice() {
            let bound = |kind| Prefix { kind, values: Vec::new() };
            let (start, end) = (PrefixKind::InclusiveStart, PrefixKind::InclusiveEnd);
            stats.covered = Some(CoveredSlice { start: bound(start), end: bound(end) });
        }
        Statistics {
            version,
            partitioner: Partitioner::Murmur3,
            bloom_fp_chance: 0.01,
            cardinality,
            stats,
            header: SerializationHeader {
                stats: crate::header::EncodingStats::NONE,
                key_types: Vec::new(),
                clustering_types: Vec::new(),
                statics: Vec::new(),
                regulars: Vec::new(),
            },
        }
    }

    #[test]
    fn the_identity_stays_when_level_and_repairs_change_and_with_nothing_else() {
        for version in Version::ALL {
            let identity = |of: &dyn Fn(&mut Statistics)| {
                let mut statistics = empty(version);
                of(&mut statistics);
                Statistics::identity(&statistics.encode().unwrap(), version).unwrap()
            };
            let own = identity(&|_| {});
            assert_eq!(identity(&|s| s.stats.level = 3), own, "{version}");
            assert_eq!(identity(&|s| s.stats.repaired_at = 1 << 40), own, "{version}");
            if version.has_pending_repair() {
                let pending = Some(Uuid::from_u128(5));
                assert_eq!(identity(&|s| s.stats.pending_repair = pending), own, "{version}");
            }
            assert_ne!(identity(&|s| s.stats.min_timestamp.0 = 1), own, "{version}");
            assert_ne!(identity(&|s| s.stats.total_rows += 1), own, "{version}");
            assert_ne!(identity(&|s| s.bloom_fp_chance = 0.1), own, "{version}");
            assert_ne!(identity(&|s| s.header.stats.min_timestamp.0 = 1), own, "{version}");
            if version.has_originating_host() {
                assert_ne!(identity(&|s| s.stats.originating_host = None), own, "{version}");
            }
        }
    }

    #[test]
    fn lengths_of_nulls_that_were_not_written_are_passed_over() {
        let Statistics { mut stats, header, .. } = empty(Version::Nb);
        stats.originating_host = None;
        let mut bytes = Vec::new();
        stats.encode(Version::Nb, &header, &mut bytes).unwrap();
        let with = |padding: &[u8]| {
            StatsMetadata::decode(&[bytes.as_slice(), padding].concat(), Version::Nb)
        };
        let whole = with(&[]).unwrap();
        assert_eq!(with(&[0, 0]).unwrap(), whole);
        assert_eq!(with(&[0; 2 * NULLS_MAX]).unwrap(), whole);
        for wrong in [&[0][..], &[0, 1], &[1, 0], &[0; 2 * NULLS_MAX + 2]] {
            assert!(with(wrong).is_err(), "{} bytes", wrong.len());
        }
    }

    #[test]
    fn values_that_two_bytes_cannot_measure_end_a_covered_clustering() {
        let value = |length: usize| vec![b'c'; length];
        let lengths = |values: &[Vec<u8>]| -> Vec<usize> {
            with_short_lengths(values).iter().map(Vec::len).collect()
        };
        assert_eq!(lengths(&[value(65_535), value(1)]), [65_535, 1]);
        assert_eq!(lengths(&[value(1), value(65_536), value(2)]), [1]);
        assert_eq!(lengths(&[value(70_000), value(1)]), []);
        assert_eq!(lengths(&[]), []);
    }
}
