//! Cluster-key compaction: rows are sorted into windows of the first clustering column, and files of one
//! window are merged by size.
//!
//! Source: the proposal of a cluster-key compaction strategy for Cassandra; no release of it has one, so
//! the names of the options are ours. A file is in one of three states:
//!
//! - *in a window*: its rows and range deletions lie in one window, according to Statistics;
//! - *shared*: its contents belong to no window, or to several: deletions of partitions, static rows, range
//!   deletions over whole windows, rows whose first clustering value is empty. Such a file is written by a
//!   distribution, and has level 1. A file that has deletions of partitions and nothing else is reported as
//!   one of that level, however it was written;
//! - *mixed*: everything else, so most of the files that were flushed, streamed, loaded.
//!
//! When there are [`SizeTieredOptions::min_threshold`] mixed files, they are distributed: merged, and the
//! rows of a window go into a file of that window ([`Cut::AtWindows`]). The oldest one is always among
//! them, so none waits for ever, with those that need no more windows than [`DIRECT_WINDOWS`] together
//! with it. The executor keeps a bounded number of files open. If a file has more windows, those that are
//! met last share files, which are mixed again, of fewer windows. So distributions terminate.
//!
//! The statistics of a file decide if it is in a window, not the way it was written. Windows therefore
//! survive repair, streams, reloads and restarts.

use std::collections::BTreeMap;

use crate::size_tiered::{SizeTieredOptions, buckets, most_interesting, plan};
use crate::strategy::TombstoneOptions;
use crate::time_window::expired_alone;
use crate::windows::{KeyType, WindowRule, Windows};
use crate::{
    CompactionOptions, Cut, OptionsError, Plan, Reason, SstableInfo, Strategy, TableState,
};

/// Windows that get a file of their own in one distribution.
pub const DIRECT_WINDOWS: usize = 16;
/// Level of shared files.
pub const SHARED_LEVEL: u32 = 1;

/// Options of the strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterKeyOptions {
    /// Width of the windows.
    pub rule: WindowRule,
    /// The windows of the table, once its first clustering column is known:
    /// [`CompactionOptions::for_table`].
    pub windows: Option<Windows>,
}

impl Default for ClusterKeyOptions {
    fn default() -> Self {
        ClusterKeyOptions { rule: WindowRule::Static { count: 2 }, windows: None }
    }
}

impl CompactionOptions {
    /// The options for a table with this first clustering column, given as its name and the name of its
    /// type: what depends on it is checked.
    ///
    /// # Errors
    /// Cluster-key compaction of a table without such a column, of a type without windows, or with a unit
    /// that does not fit it.
    pub fn for_table(mut self, first: Option<(&str, &str)>) -> Result<Self, OptionsError> {
        if self.strategy != Strategy::ClusterKey {
            return Ok(self);
        }
        let name = self.strategy.simple_name();
        let types = "tinyint, smallint, int, bigint or timestamp";
        let Some((column, cql_type)) = first else {
            return Err(OptionsError::new(format!(
                "{name} needs a clustering column of type {types}, the table has none"
            )));
        };
        let Some(key) = KeyType::from_cql(cql_type) else {
            return Err(OptionsError::new(format!(
                "{name} needs a first clustering column of type {types}; {column} is of type {cql_type}"
            )));
        };
        self.cluster_key.windows = Some(Windows::new(self.cluster_key.rule, key)?);
        Ok(self)
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Mixed,
    Shared,
    Window(i64),
}

fn place_of(file: &SstableInfo) -> Place {
    match file.windows {
        Some((first, last)) if first == last => Place::Window(first),
        _ if file.level >= SHARED_LEVEL => Place::Shared,
        _ => Place::Mixed,
    }
}

fn places<'a>(
    files: impl IntoIterator<Item = &'a SstableInfo>,
) -> BTreeMap<Place, Vec<&'a SstableInfo>> {
    let mut places: BTreeMap<Place, Vec<&SstableInfo>> = BTreeMap::new();
    for file in files {
        places.entry(place_of(file)).or_default().push(file);
    }
    places
}

/// Windows from the first to the last one, both counted.
fn spanned(first: i64, last: i64) -> u64 {
    last.abs_diff(first).saturating_add(1)
}

/// Selects the mixed files that are distributed together: the oldest one, and others that do not
/// need more windows. Files whose windows are not known go together.
fn together<'a>(mixed: &[&'a SstableInfo], max: usize) -> Vec<&'a SstableInfo> {
    let mut oldest_first = mixed.to_vec();
    oldest_first.sort_by_key(|f| (f.created_at, f.generation));
    let Some(oldest) = oldest_first.first() else { return Vec::new() };
    let mut span = oldest.windows;
    let limit = span.map_or(0, |(first, last)| spanned(first, last)).max(DIRECT_WINDOWS as u64);
    let mut chosen = Vec::new();
    for file in oldest_first {
        let joined = match (span, file.windows) {
            (None, None) => None,
            (Some((a, b)), Some((c, d))) if spanned(a.min(c), b.max(d)) <= limit => {
                Some((a.min(c), b.max(d)))
            }
            _ => continue,
        };
        span = joined;
        chosen.push(file);
        if chosen.len() >= max {
            break;
        }
    }
    chosen
}

/// Plans to sort the rows of the inputs into windows.
fn distribution(
    inputs: &[&SstableInfo],
    state: &TableState<'_>,
    tombstones: &TombstoneOptions,
    reason: Reason,
) -> Plan {
    Plan { level: 0, cut: Cut::AtWindows, ..plan(inputs, state, tombstones, reason) }
}

/// A plan for files of one place.
fn merge(
    place: Place,
    inputs: &[&SstableInfo],
    state: &TableState<'_>,
    tombstones: &TombstoneOptions,
    reason: Reason,
) -> Plan {
    match place {
        Place::Window(_) => Plan { level: 0, ..plan(inputs, state, tombstones, reason) },
        // Files that another strategy left at a level are found to be mixed here.
        Place::Shared | Place::Mixed => distribution(inputs, state, tombstones, reason),
    }
}

fn reason_of(place: Place, files: &[&SstableInfo]) -> Reason {
    match place {
        Place::Window(window) => Reason::KeyWindow { window, files: files.len() },
        Place::Shared | Place::Mixed => Reason::Distribution { files: files.len() },
    }
}

/// Selects files of similar size that should be merged, among the files of one place.
fn due<'a>(files: &[&'a SstableInfo], options: &SizeTieredOptions) -> Option<Vec<&'a SstableInfo>> {
    let owned: Vec<SstableInfo> = files.iter().map(|f| (*f).clone()).collect();
    let bucket = most_interesting(buckets(&owned, options), options)?;
    let chosen = |f: &&&SstableInfo| bucket.iter().any(|b| b.generation == f.generation);
    Some(files.iter().filter(chosen).copied().collect())
}

/// The next background compaction of files of one side (repaired or not); `None` when nothing is due.
pub(crate) fn next_background(
    options: &SizeTieredOptions,
    tombstones: &TombstoneOptions,
    files: &[SstableInfo],
    state: &TableState<'_>,
) -> Option<Plan> {
    if let Some(expired) = expired_alone(tombstones, files, state) {
        return Some(expired);
    }
    let places = places(files);
    let mixed = places.get(&Place::Mixed).map_or(&[][..], Vec::as_slice);
    if mixed.len() >= options.min_threshold as usize {
        let inputs = together(mixed, options.max_threshold as usize);
        let reason = reason_of(Place::Mixed, &inputs);
        return Some(distribution(&inputs, state, tombstones, reason));
    }
    // The newest window first.
    places.iter().rev().filter(|(place, _)| **place != Place::Mixed).find_map(|(place, files)| {
        let inputs = due(files, options)?;
        let reason = reason_of(*place, &inputs);
        Some(merge(*place, &inputs, state, tombstones, reason))
    })
}

/// Compactions that are due, for `compactionstats`.
pub fn estimated_tasks(files: &[SstableInfo], options: &SizeTieredOptions) -> u64 {
    let max = options.max_threshold.max(1) as usize;
    let tasks = |(place, files): (&Place, &Vec<&SstableInfo>)| match place {
        Place::Mixed if files.len() < options.min_threshold as usize => 0,
        Place::Mixed => files.len().div_ceil(max) as u64,
        Place::Shared | Place::Window(_) => {
            let owned: Vec<SstableInfo> = files.iter().map(|f| (*f).clone()).collect();
            crate::size_tiered::estimated_tasks(&owned, options)
        }
    };
    places(files).iter().map(tasks).sum()
}

/// Plans a step before a major compaction: mixed files are distributed, those of the same windows
/// together. The caller repeats the call until nothing is left.
pub(crate) fn sort_out(
    options: &SizeTieredOptions,
    tombstones: &TombstoneOptions,
    side: &[&SstableInfo],
    state: &TableState<'_>,
) -> Option<Plan> {
    let mixed: Vec<&SstableInfo> =
        side.iter().filter(|f| place_of(f) == Place::Mixed).copied().collect();
    let inputs = together(&mixed, options.max_threshold as usize);
    let reason = reason_of(Place::Mixed, &inputs);
    (!inputs.is_empty()).then(|| distribution(&inputs, state, tombstones, reason))
}

/// One plan for each window, the newest first, and one for shared files.
pub(crate) fn major(
    tombstones: &TombstoneOptions,
    side: &[&SstableInfo],
    state: &TableState<'_>,
) -> Vec<Plan> {
    places(side.iter().copied())
        .iter()
        .rev()
        .map(|(place, files)| merge(*place, files, state, tombstones, Reason::Major))
        .collect()
}

#[cfg(test)]
mod tests;
