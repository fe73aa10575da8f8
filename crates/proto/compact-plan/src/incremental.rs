//! Incremental compaction, as in ScyllaDB: runs of similar size are merged; a run is a series of fragments
//! that do not overlap, each of about `sstable_size_in_mb`. A merge walks the ring and removes the
//! fragments that it has passed, so it needs space for a few fragments and not for whole runs.
//!
//! Fragments end at tokens that halve the ring, halve these halves, and so on, as deep as is needed to
//! make them small enough. So of two fragments of any two runs one lies within the other, or they have no
//! token in common; and where the largest of them ends none lies across: there a merge falls apart into
//! [`crate::parts`]. (A fragment that ended at a size would end somewhere inside a fragment of each other
//! run, which would have to stay until it was read to its end; and a tombstone that hides something in
//! it as well.)
//!
//! With `space_amplification_goal` the two largest tiers are merged when both together are larger than
//! that many times the largest: overwritten data goes sooner, for more writing.
//!
//! Source: ScyllaDB's documentation (CQL reference, compaction). Differences: the ends of fragments,
//! so that they have between a half and the whole of the size (less where the inputs held the same
//! keys); `min_threshold` always holds (in ScyllaDB a setting of the node decides, and two runs are
//! enough by default); sizes are those on disk.
//!
//! Invariants: INV-incremental-1: two outputs of any plans of this strategy have no token in common, or
//! all tokens of one lie between the cuts of the other.

use std::collections::BTreeMap;

use stdx::{Token, Uuid};

use crate::size_tiered::{SizeTieredOptions, buckets, most_interesting, plan};
use crate::strategy::TombstoneOptions;
use crate::{Cut, Plan, Reason, SstableInfo, TableState};

/// Halvings of the ring: 2^-40 of it is never cut.
const DEPTH_MAX: u32 = 40;

/// Options of the strategy.
#[derive(Clone, Debug, PartialEq)]
pub struct IncrementalOptions {
    /// Most bytes of a fragment, on disk, as far as they can be foretold.
    pub fragment_size: u64,
    /// The two largest tiers are merged when their size is above that of the largest times this;
    /// above 1.0.
    pub space_amplification_goal: Option<f64>,
}

impl Default for IncrementalOptions {
    fn default() -> Self {
        IncrementalOptions { fragment_size: 1000 << 20, space_amplification_goal: None }
    }
}

/// Runs as if each were one file, whose generation is the lowest of its fragments, with these.
fn runs(files: &[SstableInfo]) -> (Vec<SstableInfo>, BTreeMap<u64, Vec<&SstableInfo>>) {
    let mut by_run: BTreeMap<(Option<Uuid>, u64), Vec<&SstableInfo>> = BTreeMap::new();
    for file in files {
        let alone = if file.run.is_none() { file.generation.0 } else { 0 };
        by_run.entry((file.run, alone)).or_default().push(file);
    }
    let mut wholes = Vec::with_capacity(by_run.len());
    let mut fragments = BTreeMap::new();
    for files in by_run.into_values() {
        let Some(lowest) = files.iter().copied().min_by_key(|f| f.generation) else { continue };
        wholes.push(SstableInfo { size_bytes: bytes_of(&files), ..lowest.clone() });
        fragments.insert(lowest.generation.0, files);
    }
    (wholes, fragments)
}

fn bytes_of(files: &[&SstableInfo]) -> u64 {
    files.iter().fold(0, |sum, f| sum.saturating_add(f.size_bytes))
}

/// Compactions that are due, for `compactionstats`.
pub fn estimated_tasks(files: &[SstableInfo], size_tiered: &SizeTieredOptions) -> u64 {
    crate::size_tiered::estimated_tasks(&runs(files).0, size_tiered)
}

/// The next background compaction of files of one side (repaired or not); `None` when nothing is due.
pub(crate) fn next_background(
    options: &IncrementalOptions,
    size_tiered: &SizeTieredOptions,
    tombstones: &TombstoneOptions,
    files: &[SstableInfo],
    state: &TableState<'_>,
) -> Option<Plan> {
    let (wholes, fragments) = runs(files);
    let of = |chosen: &[&SstableInfo]| -> Vec<&SstableInfo> {
        let fragments = chosen.iter().filter_map(|run| fragments.get(&run.generation.0));
        fragments.flatten().copied().collect()
    };
    let tiers = buckets(&wholes, size_tiered);
    let (chosen, reason) = match most_interesting(tiers.clone(), size_tiered) {
        Some(chosen) => {
            let reason = Reason::SimilarRuns {
                runs: chosen.len(),
                files: of(&chosen).len(),
                mean_bytes: bytes_of(&chosen) / (chosen.len() as u64).max(1),
            };
            (chosen, reason)
        }
        None => too_much_space(options, tiers)?,
    };
    Some(make(options, tombstones, &of(&chosen), state, reason))
}

/// The runs of the two largest tiers when they are over the goal.
fn too_much_space<'a>(
    options: &IncrementalOptions,
    mut tiers: Vec<Vec<&'a SstableInfo>>,
) -> Option<(Vec<&'a SstableInfo>, Reason)> {
    let goal = options.space_amplification_goal?;
    tiers.sort_by_key(|tier| bytes_of(tier) / (tier.len() as u64).max(1));
    let (largest, mut second) = (tiers.pop()?, tiers.pop()?);
    let ratio = (bytes_of(&largest) + bytes_of(&second)) as f64 / bytes_of(&largest).max(1) as f64;
    if ratio <= goal {
        return None;
    }
    second.extend(largest);
    // Below 2^53 for any sizes that a disk has.
    let reason =
        Reason::SpaceAmplification { runs: second.len(), percent: (ratio * 100.0).round() as u64 };
    Some((second, reason))
}

fn make(
    options: &IncrementalOptions,
    tombstones: &TombstoneOptions,
    inputs: &[&SstableInfo],
    state: &TableState<'_>,
    reason: Reason,
) -> Plan {
    let cut = match cuts(options.fragment_size, inputs) {
        tokens if tokens.is_empty() => Cut::Never,
        tokens => Cut::AtTokens(tokens),
    };
    Plan { cut, apart: true, ..plan(inputs, state, tombstones, reason) }
}

/// A major compaction: all runs of one side become one.
pub(crate) fn major(
    options: &IncrementalOptions,
    tombstones: &TombstoneOptions,
    files: &[&SstableInfo],
    state: &TableState<'_>,
) -> Plan {
    make(options, tombstones, files, state, Reason::Major)
}

/// Plans to merge files that lie across the fragments of others and have little in them, such as
/// those that were just flushed, and to cut them where these end. `None` when that would not help.
pub(crate) fn align(
    options: &IncrementalOptions,
    tombstones: &TombstoneOptions,
    files: &[&SstableInfo],
    state: &TableState<'_>,
) -> Option<Plan> {
    let is_fragment = |file: &SstableInfo| {
        let of_it = |f: &&&SstableInfo| f.run == file.run;
        file.run.is_some() && files.iter().filter(of_it).count() > 1
    };
    let (fragments, others): (Vec<&SstableInfo>, Vec<&SstableInfo>) =
        files.iter().partition(|f| is_fragment(f));
    let mut tokens = cuts(options.fragment_size, files);
    let divides = |t: Token, f: &SstableInfo| f.first_token <= t && t < f.last_token;
    tokens.retain(|t| !fragments.iter().any(|f| divides(*t, f)));
    let is_across = |f: &&SstableInfo| tokens.iter().any(|t| divides(*t, f));
    let across: Vec<&SstableInfo> = others.into_iter().filter(is_across).collect();
    // Where they are most of it they may as well be merged with the rest at once.
    if across.is_empty() || bytes_of(&across) >= bytes_of(files) / 2 {
        return None;
    }
    let reason = Reason::Alignment { files: across.len() };
    let aligned = plan(&across, state, tombstones, reason);
    Some(Plan { cut: Cut::AtTokens(tokens), ..aligned })
}

/// Where an output of these files is cut: the ring is halved until no part of it has more than `size`
/// bytes, if the bytes of each input lie evenly between its ends.
fn cuts(size: u64, inputs: &[&SstableInfo]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let all = (i128::from(i64::MIN), i128::from(i64::MAX));
    halve(size as f64, inputs, all.0, all.1, DEPTH_MAX, &mut tokens);
    tokens
}

fn halve(
    size: f64,
    inputs: &[&SstableInfo],
    from: i128,
    to: i128,
    depth: u32,
    tokens: &mut Vec<Token>,
) {
    let within: Vec<&SstableInfo> = inputs
        .iter()
        .filter(|f| i128::from(f.first_token.0) <= to && from <= i128::from(f.last_token.0))
        .copied()
        .collect();
    let bytes: f64 = within.iter().map(|f| share(f, from, to)).sum();
    if depth == 0 || bytes <= size {
        return;
    }
    // Rounds down: the halves of the whole ring are the negative tokens and the others.
    let end = (from + to).div_euclid(2);
    halve(size, &within, from, end, depth - 1, tokens);
    // Between two i64.
    tokens.push(Token(end as i64));
    halve(size, &within, end + 1, to, depth - 1, tokens);
}

/// Bytes of a file between two tokens, both included.
fn share(file: &SstableInfo, from: i128, to: i128) -> f64 {
    let (first, last) = (i128::from(file.first_token.0), i128::from(file.last_token.0));
    let common = to.min(last) - from.max(first) + 1;
    file.size_bytes as f64 * (common.max(0) as f64 / (last - first + 1).max(1) as f64)
}

#[cfg(test)]
mod tests;
