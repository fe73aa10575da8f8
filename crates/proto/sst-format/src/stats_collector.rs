//! Collects the statistics of rows for Statistics.db as they are written. Source:
//! `io.sstable.metadata.MetadataCollector`.

use std::cmp::Ordering;

use data::row::{CellRef, ColumnRef, RowRef};
use data::{BoundRef, ClusteringComparator, DeletionTime, Liveness};
use stdx::{DeletionSeconds, TimestampMicros};

use crate::clustering::{Prefix, PrefixKind};
use crate::header::EncodingStats;
use crate::histogram::{EstimatedHistogram, TombstoneHistogramBuilder};
use crate::hyperloglog::HyperLogLog;
use crate::statistics::{CommitLogPosition, CoveredSlice, StatsMetadata};

/// An end of the covered clusterings.
#[derive(Debug, Default)]
struct Edge {
    set: bool,
    prefix: Vec<u8>,
    after: bool,
}

/// The collector of one file.
#[derive(Debug)]
pub struct StatsCollector {
    timestamps: Option<(i64, i64)>,
    locals: Option<(i64, i64)>,
    ttls: Option<(i32, i32)>,
    tombstones: TombstoneHistogramBuilder,
    partition_sizes: EstimatedHistogram,
    cells_per_partition: EstimatedHistogram,
    /// The buckets that the last partition was counted in.
    last_counted: (usize, usize),
    cells_in_partition: u64,
    tombstones_in_partition: u64,
    total_columns_set: i64,
    total_rows: i64,
    cardinality: HyperLogLog,
    min: Edge,
    max: Edge,
    has_partition_deletion: bool,
    has_legacy_counter_shards: bool,
}

impl Default for StatsCollector {
    fn default() -> Self {
        StatsCollector {
            timestamps: None,
            locals: None,
            ttls: None,
            tombstones: TombstoneHistogramBuilder::default(),
            partition_sizes: EstimatedHistogram::new(155),
            cells_per_partition: EstimatedHistogram::new(118),
            last_counted: (0, 0),
            cells_in_partition: 0,
            tombstones_in_partition: 0,
            total_columns_set: 0,
            total_rows: 0,
            cardinality: HyperLogLog::default(),
            min: Edge::default(),
            max: Edge::default(),
            has_partition_deletion: false,
            has_legacy_counter_shards: false,
        }
    }
}

/// Facts about a file that do not follow from its rows.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// Commit-log ranges in the file.
    pub commit_log: Vec<(CommitLogPosition, CommitLogPosition)>,
    /// Node that wrote it.
    pub originating_host: Option<stdx::Uuid>,
    /// Level in leveled compaction.
    pub level: i32,
    /// Milliseconds since 1970 of the repair, 0 = not repaired.
    pub repaired_at: i64,
    /// Session of the incremental repair that the file takes part in.
    pub pending_repair: Option<stdx::Uuid>,
    /// Compressed by uncompressed size; -1 when not compressed.
    pub compression_ratio: f64,
    /// First and last partition key.
    pub key_range: Option<(Vec<u8>, Vec<u8>)>,
}

/// How many rows of the usual form, and the smallest and largest of their timestamps.
#[derive(Clone, Copy, Debug)]
pub struct UsualRows {
    count: u64,
    oldest: TimestampMicros,
    newest: TimestampMicros,
}

impl UsualRows {
    /// None yet.
    pub const NONE: UsualRows = UsualRows {
        count: 0,
        oldest: TimestampMicros(i64::MAX),
        newest: TimestampMicros(i64::MIN),
    };

    /// One with that timestamp.
    pub fn one(timestamp: TimestampMicros) -> UsualRows {
        UsualRows { count: 1, oldest: timestamp, newest: timestamp }
    }

    /// One more.
    #[inline]
    pub fn add(&mut self, timestamp: TimestampMicros) {
        self.count = self.count.saturating_add(1);
        self.oldest = self.oldest.min(timestamp);
        self.newest = self.newest.max(timestamp);
    }

    /// Returns the number of rows.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[inline]
fn widen<T: Ord + Copy>(range: &mut Option<(T, T)>, value: T) {
    *range = Some(match *range {
        None => (value, value),
        Some((low, high)) => (low.min(value), high.max(value)),
    });
}

impl StatsCollector {
    fn times(&mut self, timestamp: TimestampMicros, ttl: i32, local: DeletionSeconds) {
        widen(&mut self.timestamps, timestamp.0);
        widen(&mut self.ttls, ttl);
        self.local(local);
    }

    #[inline]
    fn local(&mut self, local: DeletionSeconds) {
        widen(&mut self.locals, local.0);
        if local != DeletionSeconds::NONE {
            self.tombstones.add(local.0);
        }
    }

    /// A row begins.
    pub(crate) fn row(&mut self, liveness: &Liveness, deletion: &DeletionTime) {
        self.total_rows = self.total_rows.saturating_add(1);
        if !liveness.is_empty() {
            self.times(liveness.timestamp, liveness.ttl.0, liveness.expires_at);
        }
        self.deletion(deletion);
    }

    /// A column that has cells.
    pub(crate) fn column(&mut self) {
        self.total_columns_set = self.total_columns_set.saturating_add(1);
    }

    /// A row of counters.
    #[cold]
    pub(crate) fn counters(&mut self, row: RowRef<'_>) {
        self.has_legacy_counter_shards |= row.columns().any(|(_, column)| match column {
            ColumnRef::Simple(cell) => data::counter::has_legacy_shards(cell.value),
            ColumnRef::Complex(_) => false,
        });
    }

    /// A cell.
    #[inline]
    pub(crate) fn cell(&mut self, cell: &CellRef<'_>) {
        self.cells_in_partition = self.cells_in_partition.saturating_add(1);
        // A cell that has yet to expire is no tombstone.
        let is_tombstone = cell.local != DeletionSeconds::NONE && cell.ttl.0 == 0;
        self.tombstones_in_partition =
            self.tombstones_in_partition.saturating_add(u64::from(is_tombstone));
        self.times(cell.timestamp, cell.ttl.0, cell.local);
    }

    /// Counts rows of the usual form ([`crate::row_copy`]) of one partition, each with this many
    /// columns.
    #[inline]
    pub fn usual_rows(&mut self, rows: &UsualRows, columns: u64) {
        if rows.count == 0 {
            return;
        }
        let cells = columns.saturating_mul(rows.count);
        self.cells_in_partition = self.cells_in_partition.saturating_add(cells);
        self.usual_rows_of_file(rows, cells);
    }

    /// Counts partitions of one row of the usual form each, with this many columns: the rows, and
    /// for each partition the [`murmur2_64`] of its key and its bytes in Data.
    ///
    /// [`murmur2_64`]: crate::hyperloglog::murmur2_64
    pub fn usual_partitions(
        &mut self,
        rows: &UsualRows,
        columns: u64,
        partitions: impl Iterator<Item = (u64, u64)>,
    ) {
        if rows.count == 0 {
            return;
        }
        self.usual_rows_of_file(rows, columns.saturating_mul(rows.count));
        for (hash, bytes) in partitions {
            self.cardinality.add_hash(hash);
            self.count(bytes, columns);
        }
    }

    fn usual_rows_of_file(&mut self, rows: &UsualRows, cells: u64) {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.total_rows = self.total_rows.saturating_add(signed(rows.count));
        self.total_columns_set = self.total_columns_set.saturating_add(signed(cells));
        widen(&mut self.timestamps, rows.oldest.0);
        widen(&mut self.timestamps, rows.newest.0);
        widen(&mut self.ttls, 0);
        widen(&mut self.locals, DeletionSeconds::NONE.0);
    }

    /// A deletion of any kind; live ones do not count.
    pub(crate) fn deletion(&mut self, deletion: &DeletionTime) {
        if !deletion.is_live() {
            widen(&mut self.timestamps, deletion.timestamp.0);
            self.tombstones_in_partition = self.tombstones_in_partition.saturating_add(1);
            self.local(deletion.local);
        }
    }

    /// A partition begins.
    pub fn partition(&mut self, key: &[u8], deletion: &DeletionTime) {
        self.cardinality.add(key);
        self.has_partition_deletion |= !deletion.is_live();
        self.deletion(deletion);
    }

    /// A partition ends, with its bytes in Data.
    pub fn partition_end(&mut self, bytes: u64) {
        self.count(bytes, self.cells_in_partition);
        self.cells_in_partition = 0;
        self.tombstones_in_partition = 0;
    }

    #[inline]
    fn count(&mut self, bytes: u64, cells: u64) {
        // Partitions of one table are often all alike.
        let (of_bytes, of_cells) = self.last_counted;
        let of_bytes = self.partition_sizes.bucket_near(bytes, of_bytes);
        let of_cells = self.cells_per_partition.bucket_near(cells, of_cells);
        self.last_counted = (of_bytes, of_cells);
        self.partition_sizes.add_to(of_bytes, 1);
        self.cells_per_partition.add_to(of_cells, 1);
    }

    /// Deletions of the current partition: of it, of rows, columns and cells, ends of ranges.
    pub fn tombstones_in_partition(&self) -> u64 {
        self.tombstones_in_partition
    }

    /// First and last position of a partition's rows and markers; a row's position is both before
    /// and after it. Rows come in order, so two comparisons per partition are enough.
    pub fn covered(
        &mut self,
        order: &ClusteringComparator,
        first: BoundRef<'_>,
        last: BoundRef<'_>,
    ) {
        // Tables without clustering columns: nothing need be compared. (Nor are empty slices compared, which
        // costs some processors hundreds of cycles, as they are read where no memory is.)
        let is_known = |edge: &Edge, at: BoundRef<'_>| {
            edge.set && edge.prefix.is_empty() && at.prefix.is_empty() && edge.after == at.after
        };
        if is_known(&self.min, first) && is_known(&self.max, last) {
            return;
        }
        if !self.min.set || order.compare_bounds(first, bound(&self.min)) == Ordering::Less {
            self.min = Edge { set: true, prefix: first.prefix.to_vec(), after: first.after };
        }
        if !self.max.set || order.compare_bounds(last, bound(&self.max)) == Ordering::Greater {
            self.max = Edge { set: true, prefix: last.prefix.to_vec(), after: last.after };
        }
    }

    /// Bases for a rewrite of the same rows.
    pub fn encoding_stats(&self) -> EncodingStats {
        let none = EncodingStats::NONE;
        EncodingStats {
            min_timestamp: self.timestamps.map_or(none.min_timestamp, |t| TimestampMicros(t.0)),
            min_local_deletion: self
                .locals
                .filter(|l| l.0 != DeletionSeconds::NONE.0)
                .map_or(none.min_local_deletion, |l| DeletionSeconds(l.0)),
            min_ttl: self.ttls.map_or(0, |t| t.0),
        }
    }

    /// The stats part and the serialised cardinality estimator.
    pub fn finish(self, facts: FileFacts) -> (StatsMetadata, Vec<u8>) {
        let none = DeletionSeconds::NONE.0;
        let (min_local, max_local) = self.locals.unwrap_or((none, none));
        let (min_timestamp, max_timestamp) = self.timestamps.unwrap_or((i64::MIN, i64::MAX));
        let (min_ttl, max_ttl) = self.ttls.unwrap_or((0, 0));
        let clustering = |edge: &Edge| {
            // Values up to the first null, as bounds without nulls; empty = no bound.
            data::clustering::components(&edge.prefix)
                .map_while(|c| c.map(<[u8]>::to_vec))
                .collect()
        };
        let stats = StatsMetadata {
            partition_sizes: self.partition_sizes,
            cells_per_partition: self.cells_per_partition,
            commit_log: facts.commit_log,
            min_timestamp: TimestampMicros(min_timestamp),
            max_timestamp: TimestampMicros(max_timestamp),
            min_local_deletion: DeletionSeconds(min_local),
            max_local_deletion: DeletionSeconds(max_local),
            min_ttl,
            max_ttl,
            compression_ratio: facts.compression_ratio,
            tombstones: self.tombstones.finish(),
            level: facts.level,
            repaired_at: facts.repaired_at,
            min_clustering: clustering(&self.min),
            max_clustering: clustering(&self.max),
            has_legacy_counter_shards: self.has_legacy_counter_shards,
            total_columns_set: self.total_columns_set,
            total_rows: self.total_rows,
            pending_repair: facts.pending_repair,
            is_transient: false,
            originating_host: facts.originating_host,
            has_partition_deletions: self.has_partition_deletion,
            covered: Some(CoveredSlice {
                start: Prefix {
                    kind: match self.min {
                        Edge { set: true, after: false, .. } => PrefixKind::InclusiveStart,
                        _ => PrefixKind::ExclusiveStart,
                    },
                    values: self.min.prefix,
                },
                end: Prefix {
                    kind: match self.max {
                        Edge { set: true, after: true, .. } => PrefixKind::InclusiveEnd,
                        _ => PrefixKind::ExclusiveEnd,
                    },
                    values: self.max.prefix,
                },
            }),
            key_range: facts.key_range,
            token_coverage: None,
        };
        (stats, self.cardinality.encode())
    }
}

fn bound(edge: &Edge) -> BoundRef<'_> {
    BoundRef { prefix: &edge.prefix, after: edge.after }
}
