//! Leveled compaction: in every level above 0 files do not overlap, and level n + 1 may hold
//! `fanout_size` times what level n may.
//!
//! New files are in level 0 and may overlap. Together with the files that they overlap in level 1
//! they are rewritten as files of `sstable_size_in_mb`. A level with too much gives a file to the
//! next one, which is merged with the files that it overlaps there. A read checks at most one file of
//! each level, and those of level 0.
//!
//! Source: Cassandra 5.0 LeveledManifest, LeveledCompactionStrategy, LeveledGenerations. Differences:
//! which file a level gives is decided by how much it overlaps in the next level for its size (least
//! first), where Cassandra goes round the ring; so nothing must be remembered between two plans. Files
//! of one level that overlap (after a restart with another shard count, or a crash) count as files of
//! level 0 here and now; Cassandra rewrites their level at the start. A level that gets no compaction
//! for long is not drained ("starved" levels there).
//!
//! Invariants: INV-leveled-1: the output of a plan for level n, n > 0, overlaps no file of level n that
//! is not an input.

use core::cmp::Reverse;

use stdx::Token;

use crate::size_tiered::{SizeTieredOptions, buckets, most_interesting, plan};
use crate::strategy::TombstoneOptions;
use crate::{Cut, Plan, Reason, SstableInfo, TableState};

/// Highest level.
pub const LEVEL_MAX: u32 = 8;

/// Files in level 0 above which they are merged with each other first.
const LEVEL_0_FILES_MAX: usize = 32;

/// Options of the strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeveledOptions {
    /// Bytes of a file, on disk.
    pub sstable_size: u64,
    /// Factor between the sizes of a level and the one below.
    pub fanout: u64,
    /// True if a single file that overlaps nothing in the next level is moved there by rewriting it
    /// alone (`single_sstable_uplevel`).
    pub single_uplevel: bool,
}

impl Default for LeveledOptions {
    fn default() -> Self {
        LeveledOptions { sstable_size: 160 << 20, fanout: 10, single_uplevel: false }
    }
}

impl LeveledOptions {
    /// Bytes that a level may hold.
    pub fn level_bytes_max(&self, level: u32) -> u64 {
        match level {
            0 => self.sstable_size.saturating_mul(4),
            _ => self.sstable_size.saturating_mul(self.fanout.saturating_pow(level)),
        }
    }

    /// The lowest level above 0 that may hold this many bytes.
    pub fn level_for(&self, bytes: u64) -> u32 {
        (1..LEVEL_MAX).find(|level| self.level_bytes_max(*level) >= bytes).unwrap_or(LEVEL_MAX)
    }
}

fn bytes_of<'a>(files: impl IntoIterator<Item = &'a SstableInfo>) -> u64 {
    files.into_iter().fold(0, |sum, f| sum.saturating_add(f.size_bytes))
}

/// Files by level; within a level above 0 ascending and without overlaps.
pub fn levels(files: &[SstableInfo]) -> Vec<Vec<&SstableInfo>> {
    let mut levels: Vec<Vec<&SstableInfo>> = vec![Vec::new(); LEVEL_MAX as usize + 1];
    let mut sorted: Vec<&SstableInfo> = files.iter().collect();
    sorted.sort_by_key(|f| (f.first_token, f.generation));
    let mut into = |level: usize, file| match levels.get_mut(level) {
        Some(files) => files.push(file),
        None => stdx::invariant!(false, "leveled: a file of level {level} would be left out"),
    };
    let mut ends: Vec<Option<Token>> = vec![None; LEVEL_MAX as usize + 1];
    for file in sorted {
        let level = file.level.min(LEVEL_MAX) as usize;
        match ends.get_mut(level) {
            Some(end) if level > 0 && end.is_none_or(|end| end < file.first_token) => {
                *end = Some(file.last_token);
                into(level, file);
            }
            _ => into(0, file),
        }
    }
    levels
}

/// Files that overlap the range from the first token of `inputs` to their last.
fn overlapping<'a>(inputs: &[&SstableInfo], others: &[&'a SstableInfo]) -> Vec<&'a SstableInfo> {
    let first = inputs.iter().map(|f| f.first_token).min().unwrap_or(Token::MAX);
    let last = inputs.iter().map(|f| f.last_token).max().unwrap_or(Token::MIN);
    others.iter().filter(|f| f.first_token <= last && first <= f.last_token).copied().collect()
}

/// Compactions that are due, for `compactionstats`: files by which levels are too full.
pub fn estimated_tasks(files: &[SstableInfo], options: &LeveledOptions) -> u64 {
    levels(files)
        .iter()
        .zip(0_u32..)
        .map(|(files, level)| {
            let bytes = bytes_of(files.iter().copied());
            bytes.saturating_sub(options.level_bytes_max(level))
        })
        .map(|excess| excess.div_ceil(options.sstable_size.max(1)))
        .sum()
}

/// The next background compaction of files of one side (repaired or not); `None` when nothing is due.
pub(crate) fn next_background(
    options: &LeveledOptions,
    size_tiered: &SizeTieredOptions,
    tombstones: &TombstoneOptions,
    files: &[SstableInfo],
    state: &TableState<'_>,
) -> Option<Plan> {
    let levels = levels(files);
    let level = |n: u32| levels.get(n as usize).map_or(&[][..], Vec::as_slice);
    let make = |inputs: &[&SstableInfo], from: u32, to: u32, cut: Cut| {
        let reason = Reason::Level { from, to, files: inputs.len() };
        Plan { level: to, cut, ..plan(inputs, state, tombstones, reason) }
    };
    let behind = || {
        if level(0).len() <= LEVEL_0_FILES_MAX {
            return None;
        }
        let few: Vec<SstableInfo> = level(0).iter().map(|f| (*f).clone()).collect();
        let bucket = most_interesting(buckets(&few, size_tiered), size_tiered)?;
        Some(make(&bucket, 0, 0, Cut::Never))
    };
    for n in (1..LEVEL_MAX).rev() {
        let bytes = bytes_of(level(n).iter().copied());
        // Cassandra's tolerance: a level is as full as its files are large.
        if bytes as f64 <= options.level_bytes_max(n) as f64 * 1.001 {
            continue;
        }
        if let Some(plan) = behind() {
            return Some(plan);
        }
        if let Some(inputs) = least_overlapping(level(n), level(n + 1)) {
            return Some(make(&inputs, n, n + 1, Cut::AtBytes(options.sstable_size)));
        }
    }
    if level(0).is_empty() {
        return None;
    }
    let max_files = size_tiered.max_threshold as usize;
    match from_level_0(options, max_files, level(0), level(1)) {
        Some((inputs, to)) => Some(make(&inputs, 0, to, Cut::AtBytes(options.sstable_size))),
        None => behind(),
    }
}

/// The file of a level that costs least to move up, and the files that it overlaps there.
fn least_overlapping<'a>(
    level: &[&'a SstableInfo],
    next: &[&'a SstableInfo],
) -> Option<Vec<&'a SstableInfo>> {
    let cost = |file: &&&SstableInfo| {
        let overlaps = overlapping(&[file], next);
        let ratio = bytes_of(overlaps).saturating_mul(1000) / file.size_bytes.max(1);
        (ratio, Reverse(file.size_bytes), file.generation)
    };
    let file = level.iter().min_by_key(cost)?;
    let mut inputs = vec![*file];
    inputs.extend(overlapping(&[file], next));
    Some(inputs)
}

/// The oldest files of level 0 with the files that they overlap, and the target level.
fn from_level_0<'a>(
    options: &LeveledOptions,
    max_files: usize,
    level_0: &[&'a SstableInfo],
    level_1: &[&'a SstableInfo],
) -> Option<(Vec<&'a SstableInfo>, u32)> {
    let mut by_age = level_0.to_vec();
    by_age.sort_by_key(|f| (f.max_timestamp, f.generation));
    let mut inputs: Vec<&SstableInfo> = Vec::new();
    for file in &by_age {
        if inputs.iter().any(|i| i.generation == file.generation) {
            continue;
        }
        let overlap = by_age.iter().filter(|f| f.overlaps(file)).copied();
        for found in overlap {
            if !inputs.iter().any(|i| i.generation == found.generation) {
                inputs.push(found);
            }
        }
        if inputs.len() > max_files {
            inputs.sort_by_key(|f| (f.max_timestamp, f.generation));
            inputs.truncate(max_files);
            break;
        }
    }
    // Less than a file's worth stays in level 0.
    let to = u32::from(bytes_of(inputs.iter().copied()) > options.sstable_size);
    if to == 1 {
        let below = overlapping(&inputs, level_1);
        let alone = below.is_empty() && inputs.len() == 1;
        if alone && !options.single_uplevel {
            // Like Cassandra: a single file is not rewritten only to be called level 1.
            return None;
        }
        inputs.extend(below);
    }
    (inputs.len() > 1 || to == 1).then_some((inputs, to))
}

/// A major compaction: everything of one side into the lowest level that may hold it.
pub(crate) fn major(
    options: &LeveledOptions,
    tombstones: &TombstoneOptions,
    files: &[&SstableInfo],
    state: &TableState<'_>,
) -> Plan {
    let level = options.level_for(bytes_of(files.iter().copied()));
    Plan {
        level,
        cut: Cut::AtBytes(options.sstable_size),
        ..plan(files, state, tombstones, Reason::Major)
    }
}

#[cfg(test)]
mod tests;
