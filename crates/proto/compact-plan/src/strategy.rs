//! The strategies and what all of them have: names, options about tombstones, refusals.

use crate::SstableInfo;

/// A compaction map that Cassandra refuses; a ConfigurationException with this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OptionsError {
    /// Cassandra's text.
    pub message: String,
}

impl OptionsError {
    pub(crate) fn new(message: impl Into<String>) -> OptionsError {
        OptionsError { message: message.into() }
    }
}

/// The strategies of Cassandra 5.0, one of ScyllaDB, one of earlier versions of Cassandra, and one that was
/// proposed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Merges files of similar size.
    SizeTiered,
    /// Levels of files that do not overlap.
    Leveled,
    /// One file for each window of time.
    TimeWindow,
    /// Any of these shapes by scaling parameters.
    Unified,
    /// ScyllaDB's: merges runs of similar size, which consist of fragments that do not overlap.
    Incremental,
    /// Cassandra's up to 4.1: done as [`Strategy::TimeWindow`] with the longest window that it would
    /// have made.
    DateTiered,
    /// Sorts rows into windows of the first clustering column.
    ClusterKey,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 7] = [
        Strategy::SizeTiered,
        Strategy::Leveled,
        Strategy::TimeWindow,
        Strategy::Unified,
        Strategy::Incremental,
        Strategy::DateTiered,
        Strategy::ClusterKey,
    ];

    /// Class name without its package.
    pub fn simple_name(self) -> &'static str {
        match self {
            Strategy::SizeTiered => "SizeTieredCompactionStrategy",
            Strategy::Leveled => "LeveledCompactionStrategy",
            Strategy::TimeWindow => "TimeWindowCompactionStrategy",
            Strategy::Unified => "UnifiedCompactionStrategy",
            Strategy::Incremental => "IncrementalCompactionStrategy",
            Strategy::DateTiered => "DateTieredCompactionStrategy",
            Strategy::ClusterKey => "ClusterKeyCompactionStrategy",
        }
    }

    /// Whole class name, as the schema tables keep it.
    pub fn class_name(self) -> String {
        format!("{PACKAGE}{}", self.simple_name())
    }

    /// The strategy of a class name with or without its package.
    ///
    /// # Errors
    /// No such class.
    pub fn from_class(name: &str) -> Result<Strategy, OptionsError> {
        let class = if name.contains('.') { name.to_owned() } else { format!("{PACKAGE}{name}") };
        Strategy::ALL.into_iter().find(|s| s.class_name() == class).ok_or_else(|| {
            OptionsError::new(format!("Unable to find compaction strategy class '{class}'"))
        })
    }

    /// Returns true if tables of this strategy have `min_threshold` and `max_threshold`.
    pub fn has_thresholds(self) -> bool {
        self != Strategy::Unified
    }

    /// Bloom-filter false-positive chance of tables that do not specify one.
    pub fn default_bloom_filter_fp_chance(self) -> f64 {
        if self == Strategy::Leveled { 0.1 } else { 0.01 }
    }
}

const PACKAGE: &str = "org.apache.cassandra.db.compaction.";

/// How far tombstones of overlapping files are used to drop what they shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TombstoneOption {
    /// Not at all.
    None,
    /// Row and partition tombstones.
    Row,
    /// Cell tombstones too.
    Cell,
}

/// Options about tombstones that every strategy has.
#[derive(Clone, Debug, PartialEq)]
pub struct TombstoneOptions {
    /// Above this ratio of droppable tombstones a file is compacted alone.
    pub threshold: f32,
    /// Not before it is this old, seconds.
    pub compaction_interval_seconds: i64,
    /// True if overlapping files are not checked.
    pub unchecked: bool,
    /// True if tombstones of files that were not repaired stay.
    pub only_purge_repaired: bool,
    /// Use of tombstones of overlapping files.
    pub provide_overlapping: TombstoneOption,
    /// True if files are compacted alone for their tombstones at all. Time-window compaction waits
    /// for whole files to expire unless one of these options is given.
    pub alone: bool,
}

impl Default for TombstoneOptions {
    fn default() -> Self {
        TombstoneOptions {
            threshold: 0.2,
            compaction_interval_seconds: 86_400,
            unchecked: false,
            only_purge_repaired: false,
            provide_overlapping: TombstoneOption::None,
            alone: true,
        }
    }
}

impl TombstoneOptions {
    /// Returns true if a compaction of these files may purge anything under
    /// `only_purge_repaired_tombstones`.
    pub fn may_purge(&self, compacting: &[SstableInfo]) -> bool {
        !self.only_purge_repaired || compacting.iter().all(SstableInfo::is_repaired)
    }
}
