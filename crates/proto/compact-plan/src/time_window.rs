//! Time-window compaction: files of one window of write time are merged into one and then left alone.
//!
//! A file belongs to the window of its largest timestamp. In the newest window files are merged by
//! size; in every older one two files are enough, at most `max_threshold` of them, smallest first. A
//! file is dropped whole when everything in it has expired.
//!
//! Source: Cassandra 5.0 TimeWindowCompactionStrategy. Differences: the newest window is that of the
//! current files, not of all that ever existed; each round checks for expired files (it costs no
//! reads), whatever the value of `expired_sstable_check_frequency_seconds`.

use std::collections::BTreeMap;

use stdx::WallMicros;

use crate::purge::{FullyExpired, fully_expired};
use crate::size_tiered::{SizeTieredOptions, buckets, most_interesting, plan};
use crate::strategy::TombstoneOptions;
use crate::{Plan, Reason, SstableInfo, TableState};

/// Options of the strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeWindowOptions {
    /// Length of a window, seconds, 1 or more.
    pub window_seconds: i64,
    /// Units of a second that write timestamps count (`timestamp_resolution`).
    pub ticks_per_second: i64,
    /// Files whose newest write is older are merged no more; `None`: there is no such age.
    pub age_seconds_max: Option<i64>,
}

impl Default for TimeWindowOptions {
    fn default() -> Self {
        TimeWindowOptions {
            window_seconds: 86_400,
            ticks_per_second: 1_000_000,
            age_seconds_max: None,
        }
    }
}

impl TimeWindowOptions {
    /// Returns the start of the window of a timestamp, seconds since 1970.
    pub fn window_of(&self, timestamp: i64) -> i64 {
        // Java's division and remainder: towards zero.
        let seconds = timestamp / self.ticks_per_second.max(1);
        seconds - seconds % self.window_seconds.max(1)
    }

    /// Returns true if a file is too old to be merged.
    fn is_too_old(&self, file: &SstableInfo, now: WallMicros) -> bool {
        let seconds = file.max_timestamp.0 / self.ticks_per_second.max(1);
        self.age_seconds_max.is_some_and(|age| seconds < now.seconds().0.saturating_sub(age))
    }
}

fn windows<'a>(
    files: impl Iterator<Item = &'a SstableInfo>,
    options: &TimeWindowOptions,
) -> BTreeMap<i64, Vec<&'a SstableInfo>> {
    let mut windows: BTreeMap<i64, Vec<&SstableInfo>> = BTreeMap::new();
    for file in files {
        windows.entry(options.window_of(file.max_timestamp.0)).or_default().push(file);
    }
    windows
}

/// Files of one window that should be merged; `is_newest`: the window still grows.
fn due<'a>(
    window: &[&'a SstableInfo],
    is_newest: bool,
    size_tiered: &SizeTieredOptions,
) -> Option<Vec<&'a SstableInfo>> {
    if is_newest {
        if window.len() < size_tiered.min_threshold as usize {
            return None;
        }
        let files: Vec<SstableInfo> = window.iter().map(|f| (*f).clone()).collect();
        let bucket = most_interesting(buckets(&files, size_tiered), size_tiered)?;
        let chosen = |f: &&&SstableInfo| bucket.iter().any(|b| b.generation == f.generation);
        return Some(window.iter().filter(chosen).copied().collect());
    }
    if window.len() < 2 {
        return None;
    }
    let mut files = window.to_vec();
    files.sort_by_key(|f| (f.size_bytes, f.generation));
    files.truncate(size_tiered.max_threshold as usize);
    Some(files)
}

/// Compactions that are due, for `compactionstats`.
pub fn estimated_tasks(
    files: &[SstableInfo],
    options: &TimeWindowOptions,
    size_tiered: &SizeTieredOptions,
) -> u64 {
    let windows = windows(files.iter(), options);
    let newest = windows.keys().next_back().copied();
    let tasks = |(start, window): (&i64, &Vec<&SstableInfo>)| {
        let Some(_) = due(window, Some(*start) == newest, size_tiered) else { return 0 };
        let (count, max) = (window.len() as u64, u64::from(size_tiered.max_threshold.max(1)));
        let rest = count.saturating_sub(max);
        match rest > u64::from(size_tiered.min_threshold) {
            true => 1 + rest.div_ceil(max),
            false => 1,
        }
    };
    windows.iter().map(tasks).sum()
}

/// Plans to drop the fully expired files of one side alone: nothing of them is read, so they need
/// not wait for a merge.
pub(crate) fn expired_alone(
    tombstones: &TombstoneOptions,
    files: &[SstableInfo],
    state: &TableState<'_>,
) -> Option<Plan> {
    let others: Vec<SstableInfo> = state
        .candidates
        .iter()
        .chain(state.others)
        .filter(|o| !files.iter().any(|f| f.generation == o.generation))
        .cloned()
        .collect();
    let expired = fully_expired(&FullyExpired {
        compacting: files,
        overlapping: &others,
        memtable_min_timestamp: state.memtable_min_timestamp,
        gc_before: state.gc_before,
        only_purge_repaired: tombstones.only_purge_repaired,
        ignore_overlaps: false,
    });
    if expired.is_empty() {
        return None;
    }
    let gone: Vec<&SstableInfo> =
        files.iter().filter(|f| expired.contains(&f.generation)).collect();
    let reason = Reason::Expired { files: gone.len() };
    Some(Plan { expired, ..plan(&gone, state, tombstones, reason) })
}

/// The next background compaction of files of one side (repaired or not); `None` when nothing is due.
pub(crate) fn next_background(
    options: &TimeWindowOptions,
    size_tiered: &SizeTieredOptions,
    tombstones: &TombstoneOptions,
    files: &[SstableInfo],
    state: &TableState<'_>,
) -> Option<Plan> {
    if let Some(expired) = expired_alone(tombstones, files, state) {
        return Some(expired);
    }
    let young = files.iter().filter(|f| !options.is_too_old(f, state.now));
    let windows = windows(young, options);
    let newest = windows.keys().next_back().copied();
    windows.iter().rev().find_map(|(start, window)| {
        let inputs = due(window, Some(*start) == newest, size_tiered)?;
        let reason = Reason::Window { start: *start, files: inputs.len() };
        Some(plan(&inputs, state, tombstones, reason))
    })
}

#[cfg(test)]
mod tests;
