//! Statistics of a table's partitions over all its files: sizes, rows, tombstones, and the leaders
//! in each. The reports are those of Instaclustr's tools for Cassandra (`ic-cfstats`, `ic-pstats`).
//!
//! Rows and tombstones are counted per file: a row that two files have counts twice.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use data::command::KeyRange;
use sst_format::Component;
use sst_format::histogram::EstimatedHistogram;
use stdx::{DeletionSeconds, Token};

use super::scan::{Detail, PartitionScan, PartitionStats, ScanClock};
use super::verify::IndexWalk;
use crate::{Result, SstableError, SstableReader};

/// Buckets of a distribution: up to 3.5 TB.
const BUCKETS: usize = 155;

/// Numbers of one kind.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// How many there are.
    pub count: u64,
    /// Their sum.
    pub total: u64,
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
    squares: f64,
    histogram: EstimatedHistogram,
}

impl Default for Distribution {
    fn default() -> Self {
        let mut histogram = EstimatedHistogram::new(BUCKETS);
        histogram.offsets.insert(0, 0);
        histogram.buckets.push(0);
        Distribution { count: 0, total: 0, min: 0, max: 0, squares: 0.0, histogram }
    }
}

impl Distribution {
    /// Counts a number.
    pub fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.total = self.total.saturating_add(value);
        self.squares += value as f64 * value as f64;
        self.histogram.add(value);
    }

    /// The mean, rounded; 0 without numbers.
    pub fn mean(&self) -> u64 {
        (self.total + self.count / 2).checked_div(self.count).unwrap_or(0)
    }

    /// The standard deviation.
    pub fn deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = self.total as f64 / self.count as f64;
        (self.squares / self.count as f64 - mean * mean).max(0.0).sqrt()
    }

    /// About the number below which that share lies: the bound of a bucket, at most 20 percent too
    /// high, and never above the largest.
    pub fn percentile(&self, share: f64) -> u64 {
        self.histogram.percentile(share).min(self.max)
    }

    /// Like [`Distribution::percentile`]; the bound itself, even above the largest number.
    pub fn bucket_percentile(&self, share: f64) -> u64 {
        self.histogram.percentile(share)
    }

    /// Filled buckets: their upper bound and how many numbers are in them.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let bounds = self.histogram.offsets.iter().copied().chain([u64::MAX]);
        let filled = bounds.zip(self.histogram.buckets.iter().copied());
        filled.filter(|(_, count)| *count > 0).collect()
    }
}

/// One partition over all files.
#[derive(Clone, Debug)]
pub struct PartitionTotals {
    /// Sums of the files' data for it; `live`: no file deletes it.
    pub stats: PartitionStats,
    /// Files that have it.
    pub files: u32,
}

/// One file.
#[derive(Clone, Debug)]
pub struct FileTotals {
    /// Path of Data.
    pub file: String,
    /// Bytes of all components.
    pub disk_bytes: u64,
    /// Uncompressed bytes of Data.
    pub data_bytes: u64,
    /// Smallest and largest write timestamp, microseconds.
    pub timestamps: (i64, i64),
    /// Level.
    pub level: i32,
    /// Milliseconds since 1970 of the repair, 0 = none.
    pub repaired_at: i64,
    /// Share of tombstones that are droppable, estimated from Statistics.db.
    pub droppable_ratio: f64,
    /// Sizes of its partitions.
    pub partitions: Distribution,
    /// Partitions deleted as a whole.
    pub deleted_partitions: u64,
    /// Rows.
    pub rows: u64,
    /// Rows with a deletion.
    pub row_deletions: u64,
    /// Cells.
    pub cells: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Droppable tombstones among them.
    pub droppable: u64,
}

/// All of a table.
#[derive(Clone, Debug, Default)]
pub struct TableAnalysis {
    /// Files, by their largest timestamp, latest first.
    pub files: Vec<FileTotals>,
    /// Bytes of partitions.
    pub sizes: Distribution,
    /// Rows of partitions.
    pub rows: Distribution,
    /// Files of partitions.
    pub spread: Distribution,
    /// Partitions that are deleted as a whole in some file.
    pub deleted_partitions: u64,
    /// Rows with a deletion.
    pub row_deletions: u64,
    /// Cells.
    pub cells: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Droppable tombstones among them.
    pub droppable: u64,
    /// Partitions with most bytes.
    pub largest: Vec<PartitionTotals>,
    /// With most rows.
    pub widest: Vec<PartitionTotals>,
    /// With most deletions of rows.
    pub most_deleted: Vec<PartitionTotals>,
    /// With most tombstones.
    pub tombstone_leaders: Vec<PartitionTotals>,
    /// In most files.
    pub file_leaders: Vec<PartitionTotals>,
}

/// Looks at all partitions of some files of one table. `leaders`: how many are named of each kind.
/// [`Detail::Sizes`] reads indexes only where they have all keys (BIG). `progress` gets bytes done
/// and bytes in all, now and then.
///
/// # Errors
/// `Unsupported` when the files are not in the same order; `Corrupt`, `Io`.
pub async fn analyse(
    readers: &[SstableReader],
    clock: ScanClock,
    detail: Detail,
    leaders: usize,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<TableAnalysis> {
    let mut lanes = Lanes::new(readers, clock, detail).await?;
    let mut all = TableAnalysis {
        files: readers.iter().map(|reader| file_totals(reader, clock)).collect(),
        ..TableAnalysis::default()
    };
    let total = readers.iter().map(|r| r.meta().data_length()).sum();
    let mut done = 0u64;
    while let Some(partition) = lanes.next(&mut |lane, stats| all.of_file(lane, stats)).await? {
        done += partition.stats.size;
        progress(done, total);
        all.partition(&partition, leaders);
    }
    all.files.sort_by_key(|file| Reverse(file.timestamps.1));
    Ok(all)
}

fn file_totals(reader: &SstableReader, clock: ScanClock) -> FileTotals {
    let meta = reader.meta();
    let stats = &meta.statistics().stats;
    FileTotals {
        file: meta.file(Component::Data),
        disk_bytes: meta.disk_bytes(),
        data_bytes: meta.data_length(),
        timestamps: (stats.min_timestamp.0, stats.max_timestamp.0),
        level: stats.level,
        repaired_at: stats.repaired_at,
        droppable_ratio: super::metadata::droppable_ratio(stats, clock.gc_before.0),
        partitions: Distribution::default(),
        deleted_partitions: 0,
        rows: 0,
        row_deletions: 0,
        cells: 0,
        tombstones: 0,
        droppable: 0,
    }
}

impl TableAnalysis {
    fn of_file(&mut self, lane: usize, stats: &PartitionStats) {
        let Some(file) = self.files.get_mut(lane) else { return };
        file.partitions.add(stats.size);
        file.deleted_partitions += u64::from(!stats.live);
        file.rows += stats.rows;
        file.row_deletions += stats.row_tombstones;
        file.cells += stats.cells;
        file.tombstones += stats.tombstones();
        file.droppable += stats.droppable;
    }

    fn partition(&mut self, partition: &PartitionTotals, leaders: usize) {
        let PartitionTotals { stats, files } = partition;
        self.sizes.add(stats.size);
        self.rows.add(stats.rows);
        self.spread.add(u64::from(*files));
        self.deleted_partitions += u64::from(!stats.live);
        self.row_deletions += stats.row_tombstones;
        self.cells += stats.cells;
        self.tombstones += stats.tombstones();
        self.droppable += stats.droppable;
        let size = |p: &PartitionTotals| p.stats.size;
        lead(&mut self.largest, partition, leaders, size);
        lead(&mut self.widest, partition, leaders, |p| p.stats.rows);
        lead(&mut self.most_deleted, partition, leaders, |p| p.stats.row_tombstones);
        lead(&mut self.tombstone_leaders, partition, leaders, |p| p.stats.tombstones());
        lead(&mut self.file_leaders, partition, leaders, |p| u64::from(p.files));
    }
}

/// Keeps a partition among the first `count` by some number; none with 0.
fn lead(
    list: &mut Vec<PartitionTotals>,
    partition: &PartitionTotals,
    count: usize,
    number: impl Fn(&PartitionTotals) -> u64,
) {
    let own = number(partition);
    let at = list.partition_point(|p| number(p) >= own);
    if own > 0 && at < count {
        list.insert(at, partition.clone());
        list.truncate(count);
    }
}

/// The partitions of several files merged by key.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    heads: BinaryHeap<Reverse<Head>>,
}

enum Lane {
    Scan(Box<PartitionScan>),
    Index(Box<IndexSizes>),
}

struct Head {
    lane: usize,
    stats: PartitionStats,
}

impl Head {
    fn key(&self) -> (Token, &[u8], usize) {
        (self.stats.token, &self.stats.key, self.lane)
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Head {}
impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Lanes {
    pub(super) async fn new(
        readers: &[SstableReader],
        clock: ScanClock,
        detail: Detail,
    ) -> Result<Lanes> {
        check_order(readers)?;
        let mut lanes = Lanes { lanes: Vec::new(), heads: BinaryHeap::new() };
        for (i, reader) in readers.iter().enumerate() {
            let by_index = detail == Detail::Sizes && !reader.meta().version().is_bti();
            lanes.lanes.push(match by_index {
                true => Lane::Index(Box::new(IndexSizes::new(reader))),
                false => {
                    let scan = PartitionScan::new(reader, KeyRange::all(), clock, detail);
                    Lane::Scan(Box::new(scan))
                }
            });
            lanes.refill(i).await?;
        }
        Ok(lanes)
    }

    async fn refill(&mut self, number: usize) -> Result<()> {
        let stats = match self.lanes.get_mut(number) {
            Some(Lane::Scan(scan)) => scan.next().await?,
            Some(Lane::Index(index)) => index.next().await?,
            None => None,
        };
        if let Some(stats) = stats {
            self.heads.push(Reverse(Head { lane: number, stats }));
        }
        Ok(())
    }

    /// Reads the next partition; `each` receives the data of every file for it.
    pub(super) async fn next(
        &mut self,
        each: &mut dyn FnMut(usize, &PartitionStats),
    ) -> Result<Option<PartitionTotals>> {
        let mut totals: Option<PartitionTotals> = None;
        while let Some(Reverse(head)) = self.heads.peek() {
            if totals.as_ref().is_some_and(|t| t.stats.key != head.stats.key) {
                break;
            }
            let Some(Reverse(Head { lane, stats })) = self.heads.pop() else { break };
            each(lane, &stats);
            match &mut totals {
                None => totals = Some(PartitionTotals { stats, files: 1 }),
                Some(totals) => {
                    totals.files += 1;
                    totals.stats.sum(&stats);
                }
            }
            self.refill(lane).await?;
        }
        Ok(totals)
    }
}

/// Files can be merged only when all are in the same order.
///
/// # Errors
/// `Unsupported`: they are of several partitioners.
pub fn check_order(readers: &[SstableReader]) -> Result<()> {
    let first = readers.first().map(|r| r.meta().statistics().partitioner);
    match readers.iter().find(|r| Some(r.meta().statistics().partitioner) != first) {
        None => Ok(()),
        Some(other) => Err(SstableError::Unsupported {
            file: other.meta().file(Component::Data),
            what: format!(
                "its partitions are in the order of {}, those of other files are not",
                other.meta().statistics().partitioner.class_name()
            ),
        }),
    }
}

/// Keys and sizes from Index.db.
struct IndexSizes {
    walk: IndexWalk,
    reader: SstableReader,
    current: Option<(Vec<u8>, u64)>,
}

impl IndexSizes {
    fn new(reader: &SstableReader) -> IndexSizes {
        IndexSizes { walk: IndexWalk::verified(reader), reader: reader.clone(), current: None }
    }

    async fn next(&mut self) -> Result<Option<PartitionStats>> {
        loop {
            let next = self.walk.next().await?.map(|(key, at)| (key.to_vec(), at));
            let end = next.as_ref().map_or(self.reader.meta().data_length(), |(_, at)| *at);
            let is_first = self.current.is_none() && next.is_some();
            let Some((key, at)) = std::mem::replace(&mut self.current, next) else {
                if is_first {
                    continue;
                }
                return Ok(None);
            };
            let mut stats = PartitionStats::new(self.reader.meta().token_of(&key), &key, at);
            stats.size = end.saturating_sub(at);
            return Ok(Some(stats));
        }
    }
}

/// One line of `summary`.
#[derive(Clone, Debug)]
pub struct TableSummary {
    /// Files.
    pub files: u64,
    /// Bytes of all components.
    pub disk_bytes: u64,
    /// Uncompressed bytes of Data.
    pub data_bytes: u64,
    /// Smallest write timestamp, microseconds.
    pub min_timestamp: i64,
    /// Largest.
    pub max_timestamp: i64,
    /// Milliseconds since 1970 of the latest repair, 0 = none.
    pub last_repaired: i64,
    /// Bytes of files that are repaired.
    pub repaired_bytes: u64,
    /// Estimated partitions, summed over files.
    pub partitions: u64,
}

/// Sums the statistics of files; no row is read. `None` without files.
pub fn summarise(readers: &[SstableReader]) -> Option<TableSummary> {
    let mut all: Option<TableSummary> = None;
    for reader in readers {
        let meta = reader.meta();
        let stats = &meta.statistics().stats;
        let all = all.get_or_insert(TableSummary {
            files: 0,
            disk_bytes: 0,
            data_bytes: 0,
            min_timestamp: i64::MAX,
            max_timestamp: i64::MIN,
            last_repaired: 0,
            repaired_bytes: 0,
            partitions: 0,
        });
        all.files += 1;
        all.disk_bytes += meta.disk_bytes();
        all.data_bytes += meta.data_length();
        all.min_timestamp = all.min_timestamp.min(stats.min_timestamp.0);
        all.max_timestamp = all.max_timestamp.max(stats.max_timestamp.0);
        all.last_repaired = all.last_repaired.max(stats.repaired_at);
        if stats.repaired_at != 0 {
            all.repaired_bytes += meta.disk_bytes();
        }
        all.partitions += meta.estimated_partitions();
    }
    all
}

/// Tombstones made before this are droppable at `now`.
pub fn gc_before(now: DeletionSeconds, gc_grace_seconds: u32) -> DeletionSeconds {
    DeletionSeconds(now.0.saturating_sub(i64::from(gc_grace_seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_counts_zeros_and_its_percentiles_are_not_above_the_largest() {
        let mut all = Distribution::default();
        for value in [0, 0, 10, 100] {
            all.add(value);
        }
        assert_eq!((all.count, all.total, all.min, all.max), (4, 110, 0, 100));
        assert_eq!(all.mean(), 28);
        assert_eq!(all.deviation().round(), 42.0);
        assert_eq!((all.percentile(0.5), all.percentile(0.75), all.percentile(1.0)), (0, 10, 100));
        assert_eq!(all.buckets(), [(0, 2), (10, 1), (103, 1)]);
        assert_eq!(Distribution::default().percentile(0.5), 0);
    }

    #[test]
    fn leaders_are_the_first_by_number_and_earlier_partitions_win_ties() {
        let of = |key: u8, size: u64| {
            let mut stats = PartitionStats::new(Token(0), &[key], 0);
            stats.size = size;
            PartitionTotals { stats, files: 1 }
        };
        let mut list = Vec::new();
        for (key, size) in [(1, 5), (2, 9), (3, 5), (4, 0), (5, 7)] {
            lead(&mut list, &of(key, size), 3, |p| p.stats.size);
        }
        let keys: Vec<u8> = list.iter().map(|p| p.stats.key[0]).collect();
        assert_eq!(keys, [2, 5, 1]);
    }
}
