//! Compaction pickers: pure functions from table state to candidates.
//!
//! Owns: the options of the `compaction` map with Cassandra's checks and texts ([`options`]), the
//! pickers of the strategies ([`size_tiered`], [`leveled`], [`time_window`], [`unified`],
//! [`incremental`], [`cluster_key`] with its [`windows`]), which files may be dropped whole and which tombstones may be purged ([`purge`], [`repaired`]), the inputs
//! of major and user-defined compactions ([`manual`]), how much of the processor compaction gets ([`share`]). Never: reads files, asks the clock, remembers
//! what runs or what ran: files that are being compacted are not passed in.
//!
//! Invariants: INV-compact-plan-1: a [`Plan`] never names a file that was not passed in, nor one
//! twice. INV-compact-plan-2: repaired files and others are never in one plan, and files that take part
//! in an incremental repair are in none (but those of a cleanup, which takes files one by one).
//!
//! Reading order: this file, [`size_tiered`], [`purge`], [`time_window`], [`leveled`], [`unified`],
//! [`incremental`], [`cluster_key`], [`parts`], [`options`].

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod cluster_key;
pub mod fuzz;
pub mod incremental;
pub mod leveled;
pub mod manual;
mod number;
pub mod options;
pub mod parts;
pub mod purge;
pub mod repaired;
pub mod share;
pub mod simulated;
pub mod size_tiered;
pub mod strategy;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod text_cases;
pub mod time_window;
pub mod unified;
mod validate;
pub mod windows;

pub use cluster_key::ClusterKeyOptions;
pub use incremental::IncrementalOptions;
pub use leveled::LeveledOptions;
pub use manual::{before_major, major, major_split, user_defined};
pub use options::{CompactionOptions, parse_options};
pub use purge::{FullyExpired, fully_expired, gc_before};
pub use repaired::{GcPolicy, NEVER, RepairTimes};
pub use size_tiered::{SizeTieredOptions, buckets};
pub use strategy::{OptionsError, Strategy, TombstoneOption, TombstoneOptions};
pub use time_window::TimeWindowOptions;
pub use unified::UnifiedOptions;
pub use windows::Windows;

use stdx::{DeletionSeconds, Generation, TimestampMicros, Token, Uuid, WallMicros};

/// A picker's view of one SSTable.
#[derive(Clone, Debug, PartialEq)]
pub struct SstableInfo {
    /// Its generation; no two are equal.
    pub generation: Generation,
    /// Bytes of its data component on disk.
    pub size_bytes: u64,
    /// Level as in Statistics; 0 for every size-tiered file.
    pub level: u32,
    /// Smallest write timestamp inside.
    pub min_timestamp: TimestampMicros,
    /// Largest write timestamp inside.
    pub max_timestamp: TimestampMicros,
    /// Latest deletion or expiry inside; [`DeletionSeconds::NONE`] when anything lives for ever.
    pub max_local_deletion_time: DeletionSeconds,
    /// Share of cells that are tombstones older than `gc_before`, 0.0 to 1.0, as estimated by
    /// Statistics.
    pub droppable_tombstone_ratio: f64,
    /// Token of the first partition.
    pub first_token: Token,
    /// Token of the last partition, at or after the first.
    pub last_token: Token,
    /// Milliseconds at which it was repaired; 0 when it was not.
    pub repaired_at: i64,
    /// The incremental repair that it takes part in; it is then compacted with no other file.
    pub pending_repair: Option<Uuid>,
    /// The run that it is a fragment of; a file without one is a run of its own.
    pub run: Option<Uuid>,
    /// Numbers of the first and the last window of the first clustering column that it has rows or range
    /// deletions of; `None`: not known, or the table has no windows.
    pub windows: Option<(i64, i64)>,
    /// Time at which the file was written.
    pub created_at: WallMicros,
    /// Reads per second per key; 0.0 when not measured.
    pub hotness: f64,
}

impl SstableInfo {
    /// Returns true if its data took part in a repair that succeeded.
    pub fn is_repaired(&self) -> bool {
        self.repaired_at != 0
    }

    /// Returns true if a running repair depends on the file as it is.
    pub fn is_pending(&self) -> bool {
        self.pending_repair.is_some()
    }

    /// Returns true if the token ranges, both ends included, have a token in common.
    pub fn overlaps(&self, other: &SstableInfo) -> bool {
        self.first_token <= other.last_token && other.first_token <= self.last_token
    }
}

/// Where the output of a compaction ends and another begins; a partition is not cut but by [`Cut::AtWindows`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// One output.
    Never,
    /// When it has this many bytes on disk.
    AtBytes(u64),
    /// Behind each of these tokens, which ascend.
    AtTokens(Vec<Token>),
    /// When the first has this many bytes on disk, then the next; the rest after the last is not
    /// cut.
    AtSizes(Vec<u64>),
    /// A file for each window of the first clustering column, and one at level
    /// [`cluster_key::SHARED_LEVEL`] for rows in no window. Only this cuts partitions.
    AtWindows,
}

/// One compaction to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Files to merge; at least one.
    pub inputs: Vec<Generation>,
    /// Those of `inputs` that need not be read: everything in them has expired.
    pub expired: Vec<Generation>,
    /// Level of the output.
    pub level: u32,
    /// Rule by which the output is cut into several files.
    pub cut: Cut,
    /// True if disjoint sets of inputs are compacted one after another. Each set is replaced by its
    /// outputs and removed before the next begins: see [`parts`].
    pub apart: bool,
    /// The reason, for the log and for `compactionstats`.
    pub reason: Reason,
}

/// Reason of a planned compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Files of similar size.
    SimilarSize {
        /// Number of files.
        files: usize,
        /// Their mean size, bytes.
        mean_bytes: u64,
    },
    /// A level has too much, or level 0 files to move up.
    Level {
        /// From which level.
        from: u32,
        /// To which one.
        to: u32,
        /// Number of files of both.
        files: usize,
    },
    /// Files of one window of time.
    Window {
        /// Its start, seconds since 1970.
        start: i64,
        /// Number of files.
        files: usize,
    },
    /// Files of one level of density that overlap.
    Overlap {
        /// The level.
        level: u32,
        /// Most that overlap at one token.
        overlap: usize,
        /// Number of files that overlaps connect.
        files: usize,
    },
    /// Runs of similar size.
    SimilarRuns {
        /// Number of runs.
        runs: usize,
        /// Their files.
        files: usize,
        /// Their mean size, bytes.
        mean_bytes: u64,
    },
    /// The second largest tier is too large for the largest one.
    SpaceAmplification {
        /// Runs of both.
        runs: usize,
        /// Size of both for that of the largest, in hundredths.
        percent: u64,
    },
    /// Files of one window of the first clustering column.
    KeyWindow {
        /// Its number.
        window: i64,
        /// Number of files.
        files: usize,
    },
    /// Files are sorted into windows of the first clustering column.
    Distribution {
        /// Number of files.
        files: usize,
    },
    /// Small files are cut as a major compaction needs them, before it.
    Alignment {
        /// Number of files.
        files: usize,
    },
    /// One file with many droppable tombstones.
    Tombstones {
        /// Its ratio in thousandths.
        ratio_permille: u32,
    },
    /// Files that hold nothing alive.
    Expired {
        /// Number of files.
        files: usize,
    },
    /// All files, on request.
    Major,
    /// Files named in a request.
    UserDefined,
    /// A file with partitions that the node does not own any more.
    Cleanup,
    /// A file that is rewritten unchanged, in the current version of the format.
    Upgrade,
    /// A file that lacks an index, rewritten with it.
    IndexBuild,
    /// A file that is rewritten unchanged, into the data directory where it belongs.
    Relocation,
    /// A file that is partly in an incremental repair.
    Anticompaction,
    /// A file that loses what others of its table hide.
    Garbage(TombstoneOption),
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Reason::SimilarSize { files, mean_bytes } => {
                write!(f, "{files} files of about {mean_bytes} bytes")
            }
            Reason::Level { from, to, files } => {
                write!(f, "{files} files from level {from} to {to}")
            }
            Reason::Window { start, files } => {
                write!(f, "{files} files of the window that begins at {start} s")
            }
            Reason::Overlap { level, overlap, files } => {
                write!(f, "{files} files of level {level}, {overlap} over one token")
            }
            Reason::SimilarRuns { runs, files, mean_bytes } => {
                write!(f, "{runs} runs of {files} files, about {mean_bytes} bytes each")
            }
            Reason::SpaceAmplification { runs, percent } => {
                write!(f, "{runs} runs of the largest tiers, {percent} % of the largest one")
            }
            Reason::KeyWindow { window, files } => {
                write!(f, "{files} files of window {window} of the first clustering column")
            }
            Reason::Distribution { files } => {
                write!(f, "{files} files are sorted into windows of the first clustering column")
            }
            Reason::Alignment { files } => {
                write!(f, "{files} small files, before a major compaction")
            }
            Reason::Tombstones { ratio_permille } => {
                write!(f, "{}.{} % droppable tombstones", ratio_permille / 10, ratio_permille % 10)
            }
            Reason::Expired { files } => write!(f, "{files} fully expired files"),
            Reason::Major => f.write_str("major compaction"),
            Reason::UserDefined => f.write_str("user-defined compaction"),
            Reason::Cleanup => f.write_str("cleanup"),
            Reason::Upgrade => f.write_str("upgrade"),
            Reason::IndexBuild => f.write_str("index build"),
            Reason::Relocation => f.write_str("relocation"),
            Reason::Anticompaction => f.write_str("anticompaction"),
            Reason::Garbage(_) => f.write_str("garbage collection"),
        }
    }
}

/// Input of a picker besides the options.
#[derive(Clone, Copy, Debug)]
pub struct TableState<'a> {
    /// Files that may be compacted: live, not suspect, not in a running compaction.
    pub candidates: &'a [SstableInfo],
    /// All other live files of the table (they may overlap the candidates).
    pub others: &'a [SstableInfo],
    /// Smallest timestamp in any memtable; `None` when all are empty.
    pub memtable_min_timestamp: Option<TimestampMicros>,
    /// Tombstones older than this may go; see [`gc_before`].
    pub gc_before: DeletionSeconds,
    /// The time.
    pub now: WallMicros,
    /// Mean size of flushed files, bytes; `None` when none was flushed yet.
    pub flush_bytes: Option<u64>,
}

/// The next background compaction of a table by its options; `None` when nothing is due.
///
/// Repaired and other files are planned apart; the repaired ones first when both are due. Files
/// that take part in an incremental repair wait for its end. Where the strategy has nothing to do, the
/// largest file is compacted whose tombstones are worth it.
pub fn next(options: &CompactionOptions, state: &TableState<'_>) -> Option<Plan> {
    if !options.enabled {
        return None;
    }
    let (tiered, tombstones) = (&options.size_tiered, &options.tombstones);
    let side = |files: &[SstableInfo]| match options.strategy {
        Strategy::SizeTiered => size_tiered::next_background(tiered, tombstones, files, state),
        Strategy::Leveled => {
            leveled::next_background(&options.leveled, tiered, tombstones, files, state)
        }
        Strategy::TimeWindow | Strategy::DateTiered => {
            time_window::next_background(&options.time_window, tiered, tombstones, files, state)
        }
        Strategy::Unified => unified::next_background(&options.unified, tombstones, files, state),
        Strategy::Incremental => {
            incremental::next_background(&options.incremental, tiered, tombstones, files, state)
        }
        Strategy::ClusterKey => cluster_key::next_background(tiered, tombstones, files, state),
    };
    let (repaired, unrepaired) = sides(state.candidates);
    let plan = side(&repaired)
        .or_else(|| side(&unrepaired))
        .or_else(|| size_tiered::single_tombstone_compaction(tombstones, state));
    plan.inspect(|plan| check_plan(plan, state))
}

/// Ends the process on a plan with forbidden inputs.
pub(crate) fn check_plan(plan: &Plan, state: &TableState<'_>) {
    let mut inputs = plan.inputs.clone();
    inputs.sort_unstable();
    inputs.dedup();
    let files: Vec<&SstableInfo> =
        state.candidates.iter().filter(|f| inputs.binary_search(&f.generation).is_ok()).collect();
    stdx::invariant!(
        files.len() == plan.inputs.len(),
        "INV-compact-plan-1: plan {:?} names a file twice, or one that was not passed in",
        plan.inputs
    );
    stdx::invariant!(
        plan.expired.iter().all(|g| inputs.binary_search(g).is_ok()),
        "INV-compact-plan-1: plan {:?} drops {:?} unread, which are not all its inputs",
        plan.inputs,
        plan.expired
    );
    let is_repaired = files.first().is_some_and(|f| f.is_repaired());
    stdx::invariant!(
        files.iter().all(|f| f.is_repaired() == is_repaired && !f.is_pending()),
        "INV-compact-plan-2: plan {:?} mixes repaired files with others, or has one of a running repair",
        plan.inputs
    );
}

/// Most plans of a preview.
pub const PREVIEW_MAX: usize = 1000;

/// All compactions that are due now, in the order in which they would begin: each is planned as if
/// those before it were running. At most [`PREVIEW_MAX`]. Compactions that their outputs cause are
/// not included.
pub fn preview(options: &CompactionOptions, state: &TableState<'_>) -> Vec<Plan> {
    let mut candidates = state.candidates.to_vec();
    let mut others = state.others.to_vec();
    let mut plans: Vec<Plan> = Vec::new();
    while plans.len() < PREVIEW_MAX {
        let now = TableState { candidates: &candidates, others: &others, ..*state };
        let Some(plan) = next(options, &now) else { break };
        let is_taken = |file: &SstableInfo| plan.inputs.contains(&file.generation);
        let (taken, left) = candidates.into_iter().partition(is_taken);
        candidates = left;
        let taken: Vec<SstableInfo> = taken;
        if taken.is_empty() {
            break;
        }
        others.extend(taken);
        plans.push(plan);
    }
    plans
}

/// Repaired files, and those that no repair has covered; none of a running repair.
fn sides(files: &[SstableInfo]) -> (Vec<SstableInfo>, Vec<SstableInfo>) {
    files.iter().filter(|f| !f.is_pending()).cloned().partition(SstableInfo::is_repaired)
}

/// Compactions that are due, for `compactionstats`; `flush_bytes` as in [`TableState`].
pub fn estimated_tasks(
    options: &CompactionOptions,
    files: &[SstableInfo],
    flush_bytes: Option<u64>,
) -> u64 {
    let tiered = &options.size_tiered;
    let of_side = |files: &[SstableInfo]| match options.strategy {
        Strategy::SizeTiered => size_tiered::estimated_tasks(files, tiered),
        Strategy::Leveled => leveled::estimated_tasks(files, &options.leveled),
        Strategy::TimeWindow | Strategy::DateTiered => {
            time_window::estimated_tasks(files, &options.time_window, tiered)
        }
        Strategy::Unified => unified::estimated_tasks(files, &options.unified, flush_bytes),
        Strategy::Incremental => incremental::estimated_tasks(files, tiered),
        Strategy::ClusterKey => cluster_key::estimated_tasks(files, tiered),
    };
    let (repaired, unrepaired) = sides(files);
    of_side(&repaired) + of_side(&unrepaired)
}
