//! Size-tiered compaction: files of similar size are merged.
//!
//! Source: Cassandra 5.0 SizeTieredCompactionStrategy, `worthDroppingTombstones` of
//! AbstractCompactionStrategy. Two differences, both where Cassandra's result depends on chance:
//! buckets with equal mean size are kept apart (its hash map loses one of them), and among equally
//! hot buckets the one of smallest files is picked, as its comment claims and its code does not. A
//! third where the check is expensive: when a file with droppable tombstones overlaps others, it is
//! compacted alone only if it is fully expired (Cassandra also estimates the keys outside the
//! overlap).

use core::cmp::Ordering;

use stdx::Generation;

use crate::purge::{FullyExpired, fully_expired};
use crate::strategy::TombstoneOptions;
use crate::{Cut, Plan, Reason, SstableInfo, TableState};

/// Options of the strategy.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeTieredOptions {
    /// Fewest files that are merged, 2 or more.
    pub min_threshold: u32,
    /// Most files that are merged at once.
    pub max_threshold: u32,
    /// Files smaller than this share one bucket, bytes.
    pub min_sstable_size: u64,
    /// A file belongs to a bucket when its size is above the mean size times this …
    pub bucket_low: f64,
    /// … and below the mean size times this.
    pub bucket_high: f64,
}

impl Default for SizeTieredOptions {
    fn default() -> Self {
        SizeTieredOptions {
            min_threshold: 4,
            max_threshold: 32,
            min_sstable_size: 50 << 20,
            bucket_low: 0.5,
            bucket_high: 1.5,
        }
    }
}

/// Groups files by size, smallest first; within a bucket smallest first.
pub fn buckets<'a>(
    files: &'a [SstableInfo],
    options: &SizeTieredOptions,
) -> Vec<Vec<&'a SstableInfo>> {
    let mut sorted: Vec<&SstableInfo> = files.iter().collect();
    sorted.sort_by_key(|f| (f.size_bytes, f.generation));
    let mut buckets: Vec<(u64, Vec<&SstableInfo>)> = Vec::new();
    for file in sorted {
        let size = file.size_bytes;
        let similar = buckets.iter_mut().find(|(mean, _)| {
            let close = size as f64 > *mean as f64 * options.bucket_low
                && (size as f64) < *mean as f64 * options.bucket_high;
            let both_small = size < options.min_sstable_size && *mean < options.min_sstable_size;
            close || both_small
        });
        match similar {
            Some((mean, bucket)) => {
                // The mean is kept as Cassandra keeps it: from the rounded mean before.
                let count = bucket.len() as u64;
                *mean = mean.saturating_mul(count).saturating_add(size) / (count + 1);
                bucket.push(file);
            }
            None => buckets.push((size, vec![file])),
        }
    }
    buckets.into_iter().map(|(_, bucket)| bucket).collect()
}

/// Compactions that are due, for `compactionstats`.
pub fn estimated_tasks(files: &[SstableInfo], options: &SizeTieredOptions) -> u64 {
    let max = u64::from(options.max_threshold.max(1));
    buckets(files, options)
        .iter()
        .map(|bucket| bucket.len() as u64)
        .filter(|count| *count >= u64::from(options.min_threshold))
        .map(|count| count.div_ceil(max))
        .sum()
}

/// The next background compaction of files of one side (repaired or not); `None` when nothing is due.
pub(crate) fn next_background(
    options: &SizeTieredOptions,
    tombstones: &TombstoneOptions,
    files: &[SstableInfo],
    state: &TableState<'_>,
) -> Option<Plan> {
    let bucket = most_interesting(buckets(files, options), options)?;
    let bytes: u64 = bucket.iter().fold(0, |sum, f| sum.saturating_add(f.size_bytes));
    let reason = Reason::SimilarSize {
        files: bucket.len(),
        mean_bytes: bytes / (bucket.len() as u64).max(1),
    };
    Some(plan(&bucket, state, tombstones, reason))
}

/// The hottest bucket that has enough files, its hottest files if it has too many; among equally
/// hot ones the bucket of smallest files.
pub(crate) fn most_interesting<'a>(
    buckets: Vec<Vec<&'a SstableInfo>>,
    options: &SizeTieredOptions,
) -> Option<Vec<&'a SstableInfo>> {
    let mut best: Option<(f64, Vec<&SstableInfo>)> = None;
    for mut bucket in buckets {
        // A stable sort: among equally hot files the smallest stay in front.
        bucket.sort_by(|a, b| b.hotness.total_cmp(&a.hotness));
        bucket.truncate(options.max_threshold as usize);
        if bucket.len() < options.min_threshold as usize || bucket.is_empty() {
            continue;
        }
        let hotness: f64 = bucket.iter().map(|f| f.hotness).sum();
        let hotter = match &best {
            Some((most, _)) => hotness.total_cmp(most) == Ordering::Greater,
            None => true,
        };
        if hotter {
            best = Some((hotness, bucket));
        }
    }
    best.map(|(_, bucket)| bucket)
}

/// The largest file whose tombstones are worth a compaction of their own.
pub(crate) fn single_tombstone_compaction(
    tombstones: &TombstoneOptions,
    state: &TableState<'_>,
) -> Option<Plan> {
    if !tombstones.alone {
        return None;
    }
    let worth = |file: &&SstableInfo| worth_dropping_tombstones(file, tombstones, state);
    let file = state
        .candidates
        .iter()
        .filter(worth)
        .max_by_key(|f| (f.size_bytes, core::cmp::Reverse(f.generation)))?;
    let ratio = (file.droppable_tombstone_ratio.clamp(0.0, 1.0) * 1000.0).round();
    // In 0..=1000 by the clamp.
    let reason = Reason::Tombstones { ratio_permille: ratio as u32 };
    Some(plan(&[file], state, tombstones, reason))
}

/// Returns true if compacting this file alone is likely to drop tombstones.
pub fn worth_dropping_tombstones(
    file: &SstableInfo,
    tombstones: &TombstoneOptions,
    state: &TableState<'_>,
) -> bool {
    if file.is_pending() || tombstones.only_purge_repaired && !file.is_repaired() {
        return false;
    }
    // The ratio is an estimate: without a pause the same file would be rewritten for ever.
    let interval_micros = tombstones.compaction_interval_seconds.saturating_mul(1_000_000);
    if state.now.0 < file.created_at.0.saturating_add(interval_micros) {
        return false;
    }
    if file.droppable_tombstone_ratio <= f64::from(tombstones.threshold) {
        return false;
    }
    if tombstones.unchecked {
        return true;
    }
    let overlapping: Vec<SstableInfo> = state
        .candidates
        .iter()
        .chain(state.others)
        .filter(|o| o.generation != file.generation && o.overlaps(file))
        .cloned()
        .collect();
    if overlapping.is_empty() {
        return true;
    }
    let expired = fully_expired(&FullyExpired {
        compacting: core::slice::from_ref(file),
        overlapping: &overlapping,
        memtable_min_timestamp: state.memtable_min_timestamp,
        gc_before: state.gc_before,
        only_purge_repaired: tombstones.only_purge_repaired,
        ignore_overlaps: false,
    });
    !expired.is_empty()
}

/// Names the inputs and those that need not be read.
pub(crate) fn plan(
    inputs: &[&SstableInfo],
    state: &TableState<'_>,
    tombstones: &TombstoneOptions,
    reason: Reason,
) -> Plan {
    let compacting: Vec<SstableInfo> = inputs.iter().map(|f| (*f).clone()).collect();
    let is_input = |file: &SstableInfo| compacting.iter().any(|c| c.generation == file.generation);
    let overlapping: Vec<SstableInfo> = state
        .candidates
        .iter()
        .chain(state.others)
        .filter(|o| !is_input(o) && compacting.iter().any(|c| c.overlaps(o)))
        .cloned()
        .collect();
    let expired = fully_expired(&FullyExpired {
        compacting: &compacting,
        overlapping: &overlapping,
        memtable_min_timestamp: state.memtable_min_timestamp,
        gc_before: state.gc_before,
        only_purge_repaired: tombstones.only_purge_repaired,
        ignore_overlaps: false,
    });
    let generations: Vec<Generation> = compacting.iter().map(|c| c.generation).collect();
    let level = compacting.iter().map(|c| c.level).min().unwrap_or(0);
    Plan { inputs: generations, expired, level, cut: Cut::Never, apart: false, reason }
}

#[cfg(test)]
mod tests;
