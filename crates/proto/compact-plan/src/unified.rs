//! Unified compaction: levels by density, overlaps instead of counts, outputs cut at fixed tokens.
//!
//! The density of a file is its size for the share of the ring that it spans. A level holds files whose
//! densities lie within a factor, its fan-out. When as many files of a level as its threshold overlap at
//! some token, they and what is chained to them by overlaps are merged. The scaling parameter W of a
//! level makes it leveled (W < 0: fan-out 2 - W, threshold 2), tiered (W > 0: both 2 + W) or both (0).
//! Outputs end at the boundaries of shards, of which there are more the denser the output is. A file of which
//! everything has expired goes whole, whatever overlaps it.
//!
//! Source: Cassandra 5.0 UnifiedCompactionStrategy.md, UnifiedCompactionStrategy, unified/Controller,
//! Overlaps. Differences: the ring is cut evenly, whatever part of it the node owns; among equal buckets
//! the first on the ring is picked, not a random one; a file that spans almost nothing counts as if it
//! spanned everything; each round checks for expired files, whatever the value of
//! `expired_sstable_check_frequency_seconds`.

use stdx::Token;

use crate::size_tiered::plan;
use crate::strategy::TombstoneOptions;
use crate::time_window::expired_alone;
use crate::{Cut, Plan, Reason, SstableInfo, TableState};

/// Number of levels.
const LEVELS_MAX: u32 = 32;
/// Binary logarithm of the factor between the base shard count and the most shards.
const SHARD_SHIFT_MAX: f64 = 20.0;
/// Spans below this (2^-48 of the ring) are too small for a density.
const SPAN_MIN: f64 = 1.0 / (1_u64 << 48) as f64;

/// Overlapping files that a compaction includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapInclusion {
    /// Those that overlap at one token.
    None,
    /// Those and the ones that overlap them.
    Single,
    /// All that are connected by overlaps.
    Transitive,
}

/// Options of the strategy.
#[derive(Clone, Debug, PartialEq)]
pub struct UnifiedOptions {
    /// Scaling parameter of each level; the last one goes for all higher levels. Not empty.
    pub scaling: Vec<i32>,
    /// Shards of outputs that are neither small nor dense.
    pub base_shard_count: u32,
    /// Size that files should have, bytes.
    pub target_sstable_size: u64,
    /// Below it outputs are cut into fewer shards, bytes; 0 = not at all.
    pub min_sstable_size: u64,
    /// How much of a growing density makes files larger (1.0) and not more (0.0).
    pub growth: f64,
    /// Size of flushed files that levels are reckoned from, bytes; 0 = as seen.
    pub flush_size: u64,
    /// Most files that are merged at once.
    pub max_sstables: usize,
    /// Overlapping files that a compaction includes.
    pub overlap: OverlapInclusion,
}

impl Default for UnifiedOptions {
    fn default() -> Self {
        UnifiedOptions {
            scaling: vec![2],
            base_shard_count: 4,
            target_sstable_size: 1 << 30,
            min_sstable_size: 100 << 20,
            growth: 0.333,
            flush_size: 0,
            max_sstables: usize::MAX,
            overlap: OverlapInclusion::Transitive,
        }
    }
}

impl UnifiedOptions {
    fn scaling_of(&self, level: u32) -> i32 {
        let last = self.scaling.last().copied().unwrap_or(2);
        self.scaling.get(level as usize).copied().unwrap_or(last)
    }

    /// How many times denser the densest file of a level may be than the sparsest one.
    pub fn fanout(&self, level: u32) -> u32 {
        self.scaling_of(level).unsigned_abs().saturating_add(2)
    }

    /// Files that overlap when a level is compacted.
    pub fn threshold(&self, level: u32) -> usize {
        match self.scaling_of(level) {
            tiered @ 1.. => tiered.unsigned_abs().saturating_add(2) as usize,
            _ => 2,
        }
    }

    /// Into how many equal parts of the ring an output of this density is cut, at most.
    pub fn shards(&self, density: f64) -> u32 {
        let base = self.base_shard_count.max(1);
        if self.min_sstable_size > 0 {
            let count = density / self.min_sstable_size as f64;
            if count < f64::from(base) {
                // Powers of two that divide the base count, so that boundaries are those of denser levels.
                let divisor = base & base.wrapping_neg();
                return (1_u32 << (count as u32 | 1).ilog2()).min(divisor);
            }
        }
        let count = density / (self.target_sstable_size.max(1) as f64 * f64::from(base));
        let power = (count.log2() * (1.0 - self.growth) + 0.5).clamp(0.0, SHARD_SHIFT_MAX);
        // Within 0..=20 by the clamp; 0 when the density is not a number.
        base.saturating_mul(1 << power as u32)
    }
}

/// Last tokens of equal parts of the ring, without that of the last part.
fn boundaries(parts: u32) -> Vec<Token> {
    let width = (1_u128 << 64) / u128::from(parts.max(1));
    (1..u128::from(parts))
        // Within i64 as parts * width <= 2^64.
        .map(|n| Token((i128::from(i64::MIN) + (n * width) as i128) as i64))
        .collect()
}

fn span(first: Token, last: Token) -> f64 {
    let width = (i128::from(last.0) - i128::from(first.0)) as f64 / (1_u128 << 64) as f64;
    if width < SPAN_MIN { 1.0 } else { width }
}

fn density(file: &SstableInfo) -> f64 {
    file.size_bytes as f64 / span(file.first_token, file.last_token)
}

/// Files by level, each ascending by its first token.
fn levels<'a>(
    files: &'a [SstableInfo],
    options: &UnifiedOptions,
    flush_bytes: Option<u64>,
) -> Vec<Vec<&'a SstableInfo>> {
    let mut sorted: Vec<(f64, &SstableInfo)> = files.iter().map(|f| (density(f), f)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.generation.cmp(&b.1.generation)));
    let smallest = files.iter().map(|f| f.size_bytes).min().unwrap_or(0);
    let flushed = match options.flush_size {
        0 => flush_bytes.unwrap_or(smallest),
        size => size,
    };
    let base = flushed.max(1 << 20) as f64 * (1.0 - 0.9 / f64::from(options.fanout(0)));
    let mut levels: Vec<Vec<&SstableInfo>> = vec![Vec::new()];
    let mut max = (base * f64::from(options.fanout(0))).floor();
    for (density, file) in sorted {
        while density >= max && levels.len() < LEVELS_MAX as usize {
            let level = u32::try_from(levels.len()).unwrap_or(LEVELS_MAX);
            max = (max * f64::from(options.fanout(level))).floor();
            levels.push(Vec::new());
        }
        if let Some(level) = levels.last_mut() {
            level.push(file);
        }
    }
    for level in &mut levels {
        level.sort_by_key(|f| (f.first_token, f.generation));
    }
    levels
}

/// Files that are connected by overlaps.
struct Bucket<'a> {
    files: Vec<&'a SstableInfo>,
    /// Most files that overlap at one token, and such a token.
    overlap: usize,
    at: Token,
}

/// Pre: ascending by first token.
fn connected<'a>(level: &[&'a SstableInfo]) -> Vec<Bucket<'a>> {
    let mut buckets: Vec<Bucket<'_>> = Vec::new();
    let mut open: Vec<Token> = Vec::new();
    for file in level {
        open.retain(|last| *last >= file.first_token);
        let is_apart = open.is_empty();
        open.push(file.last_token);
        match buckets.last_mut() {
            Some(bucket) if !is_apart => {
                bucket.files.push(file);
                if open.len() > bucket.overlap {
                    bucket.overlap = open.len();
                    bucket.at = file.first_token;
                }
            }
            _ => buckets.push(Bucket { files: vec![file], overlap: 1, at: file.first_token }),
        }
    }
    buckets
}

impl<'a> Bucket<'a> {
    /// Returns the inputs of a compaction of the bucket.
    fn inputs(self, options: &UnifiedOptions) -> Vec<&'a SstableInfo> {
        let deepest = |f: &&SstableInfo| f.first_token <= self.at && self.at <= f.last_token;
        let mut inputs: Vec<&SstableInfo> = match options.overlap {
            OverlapInclusion::Transitive => self.files,
            OverlapInclusion::None => self.files.into_iter().filter(deepest).collect(),
            OverlapInclusion::Single => {
                let core: Vec<_> = self.files.iter().copied().filter(deepest).collect();
                let touches = |f: &&SstableInfo| core.iter().any(|c| c.overlaps(f));
                self.files.into_iter().filter(touches).collect()
            }
        };
        if inputs.len() > options.max_sstables {
            inputs.sort_by_key(|f| (f.max_timestamp, f.generation));
            inputs.truncate(options.max_sstables.max(2));
        }
        inputs
    }
}

/// Compactions that are due, for `compactionstats`.
pub fn estimated_tasks(
    files: &[SstableInfo],
    options: &UnifiedOptions,
    flush_bytes: Option<u64>,
) -> u64 {
    let levels = levels(files, options, flush_bytes);
    levels
        .iter()
        .zip(0_u32..)
        .map(|(level, n)| {
            let threshold = options.threshold(n).max(1);
            connected(level).iter().map(|b| (b.overlap / threshold) as u64).sum::<u64>()
        })
        .sum()
}

/// Returns the rule by which an output of these files is cut.
fn cut(options: &UnifiedOptions, inputs: &[&SstableInfo]) -> Cut {
    let first = inputs.iter().map(|f| f.first_token).min().unwrap_or(Token::MIN);
    let last = inputs.iter().map(|f| f.last_token).max().unwrap_or(Token::MAX);
    let bytes: f64 = inputs.iter().map(|f| f.size_bytes as f64).sum();
    let parts = options.shards(bytes / span(first, last));
    let inside = |t: &Token| first <= *t && *t < last;
    let tokens: Vec<Token> = boundaries(parts).into_iter().filter(inside).collect();
    match tokens.is_empty() {
        true => Cut::Never,
        false => Cut::AtTokens(tokens),
    }
}

/// The next background compaction of files of one side (repaired or not); `None` when nothing is due.
pub(crate) fn next_background(
    options: &UnifiedOptions,
    tombstones: &TombstoneOptions,
    files: &[SstableInfo],
    state: &TableState<'_>,
) -> Option<Plan> {
    if let Some(expired) = expired_alone(tombstones, files, state) {
        return Some(expired);
    }
    let levels = levels(files, options, state.flush_bytes);
    let mut best: Option<(u32, Bucket<'_>)> = None;
    for (level, n) in levels.iter().zip(0_u32..) {
        for bucket in connected(level) {
            let is_due = bucket.overlap >= options.threshold(n);
            if is_due && best.as_ref().is_none_or(|(_, b)| bucket.overlap > b.overlap) {
                best = Some((n, bucket));
            }
        }
    }
    let (level, bucket) = best?;
    let reason = Reason::Overlap { level, overlap: bucket.overlap, files: bucket.files.len() };
    let inputs = bucket.inputs(options);
    Some(Plan { cut: cut(options, &inputs), ..plan(&inputs, state, tombstones, reason) })
}

/// A major compaction of everything of one side, cut into shards.
pub(crate) fn major(
    options: &UnifiedOptions,
    tombstones: &TombstoneOptions,
    files: &[&SstableInfo],
    state: &TableState<'_>,
) -> Plan {
    // Like Cassandra: files without a common token are compacted apart.
    Plan { cut: cut(options, files), apart: true, ..plan(files, state, tombstones, Reason::Major) }
}

#[cfg(test)]
mod tests;
