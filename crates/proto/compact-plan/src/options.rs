//! The `compaction` map of a table: its strategy and options.
//!
//! Owns: the meaning of the map. The checks of single options with their texts are in the module
//! `validate`. Source: Cassandra 5.0 CompactionParams.

use std::collections::BTreeMap;

use crate::cluster_key::ClusterKeyOptions;
use crate::incremental::IncrementalOptions;
use crate::leveled::LeveledOptions;
use crate::number;
use crate::size_tiered::SizeTieredOptions;
pub use crate::strategy::{OptionsError, Strategy, TombstoneOption, TombstoneOptions};
use crate::time_window::TimeWindowOptions;
use crate::unified::{OverlapInclusion, UnifiedOptions};
use crate::validate;
use crate::windows::{WindowRule, WindowUnit};

/// A checked compaction map.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionOptions {
    /// The strategy that the table names.
    pub strategy: Strategy,
    /// True if background compaction runs.
    pub enabled: bool,
    /// Options of the size-tiered picker, which others use for files that are not in their shape yet.
    pub size_tiered: SizeTieredOptions,
    /// Options of the leveled picker.
    pub leveled: LeveledOptions,
    /// Options of the time-window picker.
    pub time_window: TimeWindowOptions,
    /// Options of the unified picker.
    pub unified: UnifiedOptions,
    /// Options of the incremental picker.
    pub incremental: IncrementalOptions,
    /// Options of the cluster-key picker.
    pub cluster_key: ClusterKeyOptions,
    /// Options about tombstones.
    pub tombstones: TombstoneOptions,
    /// The map as the schema keeps it: `class` with its package, thresholds filled in.
    pub map: BTreeMap<String, String>,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        let map = [
            ("class", Strategy::SizeTiered.class_name()),
            ("max_threshold", "32".to_owned()),
            ("min_threshold", "4".to_owned()),
        ];
        CompactionOptions {
            strategy: Strategy::SizeTiered,
            enabled: true,
            size_tiered: SizeTieredOptions::default(),
            leveled: LeveledOptions::default(),
            time_window: TimeWindowOptions::default(),
            unified: UnifiedOptions::default(),
            incremental: IncrementalOptions::default(),
            cluster_key: ClusterKeyOptions::default(),
            tombstones: TombstoneOptions::default(),
            map: map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
        }
    }
}

/// With one of these options time-window compaction checks single files too. Source: Cassandra 5.0
/// TimeWindowCompactionStrategy.
const TOMBSTONES_ALONE: [&str; 3] =
    ["unchecked_tombstone_compaction", "tombstone_compaction_interval", "tombstone_threshold"];

impl CompactionOptions {
    /// Returns a warning for the user if the map is not applied literally.
    pub fn warning(&self) -> Option<String> {
        (self.strategy == Strategy::DateTiered).then(|| {
            format!(
                "DateTieredCompactionStrategy was removed from Cassandra; the table is compacted as by \
                 TimeWindowCompactionStrategy with windows of {} seconds",
                self.time_window.window_seconds
            )
        })
    }
}

/// Checks a compaction map as CREATE TABLE and ALTER TABLE do.
///
/// # Errors
/// Cassandra's ConfigurationException: the first check that fails, in its order.
pub fn parse_options<'a>(
    map: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<CompactionOptions, OptionsError> {
    let mut options: BTreeMap<String, String> =
        map.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let Some(class) = options.remove("class") else {
        return Err(OptionsError::new("Missing sub-option 'class' for the 'compaction' option"));
    };
    let strategy = Strategy::from_class(&class)?;
    let provide_overlapping = overlapping_tombstones(&options)?;
    if strategy.has_thresholds() {
        for (name, default) in [("min_threshold", "4"), ("max_threshold", "32")] {
            options.entry(name.to_owned()).or_insert_with(|| default.to_owned());
        }
    }
    validate::options(strategy, &options)?;
    let (min_threshold, max_threshold) = thresholds(&options)?;
    let size_tiered =
        SizeTieredOptions { min_threshold, max_threshold, ..size_tiered(strategy, &options) };
    let tombstones = TombstoneOptions { provide_overlapping, ..tombstones(strategy, &options) };
    let enabled = !options.contains_key("enabled") || is_true(&options, "enabled");
    let leveled = leveled(&options);
    let time_window = match strategy {
        Strategy::DateTiered => date_tiered(&options, min_threshold),
        _ => time_window(&options),
    };
    let unified = unified(&options);
    let incremental = incremental(&options);
    let cluster_key = cluster_key(&options);
    options.insert("class".to_owned(), strategy.class_name());
    Ok(CompactionOptions {
        strategy,
        enabled,
        size_tiered,
        leveled,
        time_window,
        unified,
        incremental,
        cluster_key,
        tombstones,
        map: options,
    })
}

fn is_true(options: &BTreeMap<String, String>, name: &str) -> bool {
    options.get(name).is_some_and(|v| v.eq_ignore_ascii_case("true"))
}

/// Like [`leveled`], for the thresholds.
fn size_tiered(strategy: Strategy, options: &BTreeMap<String, String>) -> SizeTieredOptions {
    let number = |name: &str| options.get(name).and_then(|v| number::double(v));
    let default = SizeTieredOptions::default();
    let min_sstable_size: Option<u64> = match strategy {
        // It writes sizes with units.
        Strategy::Unified => None,
        // It counts megabytes.
        Strategy::Incremental => options
            .get("min_sstable_size")
            .and_then(|v| v.parse::<u64>().ok())
            .map(|mb| mb.saturating_mul(1 << 20)),
        Strategy::SizeTiered
        | Strategy::Leveled
        | Strategy::TimeWindow
        | Strategy::DateTiered
        | Strategy::ClusterKey => options.get("min_sstable_size").and_then(|v| v.parse().ok()),
    };
    SizeTieredOptions {
        min_sstable_size: min_sstable_size.unwrap_or(default.min_sstable_size),
        bucket_low: number("bucket_low").unwrap_or(default.bucket_low),
        bucket_high: number("bucket_high").unwrap_or(default.bucket_high),
        ..default
    }
}

/// Like [`leveled`], for the use of overlapping files.
fn tombstones(strategy: Strategy, options: &BTreeMap<String, String>) -> TombstoneOptions {
    let default = TombstoneOptions::default();
    let threshold = options.get("tombstone_threshold").and_then(|v| number::double(v));
    TombstoneOptions {
        threshold: threshold.map_or(default.threshold, |v| v as f32),
        compaction_interval_seconds: options
            .get("tombstone_compaction_interval")
            .and_then(|v| number::long(v))
            .unwrap_or(default.compaction_interval_seconds),
        unchecked: is_true(options, "unchecked_tombstone_compaction"),
        only_purge_repaired: is_true(options, "only_purge_repaired_tombstones"),
        alone: !matches!(strategy, Strategy::TimeWindow | Strategy::DateTiered)
            || TOMBSTONES_ALONE.iter().any(|n| options.get(*n).is_some_and(|v| v != "false")),
        ..default
    }
}

/// Pre: checked. Missing options have their defaults, and so have values that another strategy
/// would not understand.
fn leveled(options: &BTreeMap<String, String>) -> LeveledOptions {
    let default = LeveledOptions::default();
    let int = |name: &str| {
        let value = options.get(name).and_then(|v| number::int(v));
        value.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0)
    };
    LeveledOptions {
        sstable_size: int("sstable_size_in_mb").map_or(default.sstable_size, |mb| mb << 20),
        fanout: int("fanout_size").unwrap_or(default.fanout),
        single_uplevel: options
            .get("single_sstable_uplevel")
            .is_some_and(|v| v.eq_ignore_ascii_case("true")),
    }
}

/// See [`leveled`].
fn time_window(options: &BTreeMap<String, String>) -> TimeWindowOptions {
    let text = |name: &str| options.get(name).map_or("", String::as_str);
    let unit = match text("compaction_window_unit") {
        "MINUTES" => 60,
        "HOURS" => 3_600,
        _ => 86_400,
    };
    let size = number::int(text("compaction_window_size")).filter(|size| *size > 0).unwrap_or(1);
    TimeWindowOptions {
        window_seconds: unit * i64::from(size),
        ticks_per_second: ticks_per_second(options),
        age_seconds_max: None,
    }
}

fn ticks_per_second(options: &BTreeMap<String, String>) -> i64 {
    match options.get("timestamp_resolution").map_or("", String::as_str) {
        "SECONDS" => 1,
        "MILLISECONDS" => 1_000,
        "NANOSECONDS" => 1_000_000_000,
        _ => 1_000_000,
    }
}

/// Like [`leveled`]. Windows of date-tiered compaction begin with `base_time_seconds`.
/// `min_threshold` of them are merged into one, up to `max_window_size_seconds`. The result has the
/// longest of these windows.
fn date_tiered(options: &BTreeMap<String, String>, min_threshold: u32) -> TimeWindowOptions {
    let seconds = |name: &str, default: i64| {
        let value = options.get(name).and_then(|v| number::long(v));
        value.filter(|v| *v > 0).unwrap_or(default)
    };
    let longest = seconds("max_window_size_seconds", 86_400);
    let growth = i64::from(min_threshold.max(2));
    let mut window = seconds("base_time_seconds", 60);
    while let Some(next) = window.checked_mul(growth).filter(|next| *next <= longest) {
        window = next;
    }
    let days = options.get("max_sstable_age_days").and_then(|v| number::double(v));
    // Saturates; texts that are no number were refused.
    let age = days.map(|days| (days * 86_400.0) as i64).filter(|age| *age < i64::MAX);
    TimeWindowOptions {
        window_seconds: window,
        ticks_per_second: ticks_per_second(options),
        age_seconds_max: age,
    }
}

/// See [`leveled`].
fn incremental(options: &BTreeMap<String, String>) -> IncrementalOptions {
    let default = IncrementalOptions::default();
    let size = options.get("sstable_size_in_mb").and_then(|v| number::int(v));
    let size = size.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0);
    let goal = options.get("space_amplification_goal").and_then(|v| number::double(v));
    IncrementalOptions {
        fragment_size: size.map_or(default.fragment_size, |mb| mb << 20),
        space_amplification_goal: goal.filter(|goal| *goal > 1.0),
    }
}

/// See [`leveled`].
fn cluster_key(options: &BTreeMap<String, String>) -> ClusterKeyOptions {
    let int = |name: &str| {
        let value = options.get(name).and_then(|v| number::int(v));
        value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0)
    };
    let unit = options.get("compaction_window_unit").and_then(|u| WindowUnit::from_name(u));
    let rule = match (unit, int("window_count")) {
        (_, Some(count)) => WindowRule::Static { count },
        (Some(unit), None) => {
            WindowRule::Moving { unit, size: int("compaction_window_size").unwrap_or(1) }
        }
        (None, None) => ClusterKeyOptions::default().rule,
    };
    ClusterKeyOptions { rule, windows: None }
}

/// See [`leveled`].
fn unified(options: &BTreeMap<String, String>) -> UnifiedOptions {
    let default = UnifiedOptions::default();
    let get = |name: &str| options.get(name).map(String::as_str);
    let bytes = |name: &str, default: u64| {
        let value = get(name).and_then(|v| number::bytes(v).ok());
        value.and_then(|v| u64::try_from(v).ok()).unwrap_or(default)
    };
    let int = |name: &str| get(name).and_then(number::int);
    let scaling: Vec<i32> = get("scaling_parameters").map_or_else(Vec::new, |text| {
        text.split(',').filter_map(|value| scaling_parameter(value.trim())).collect()
    });
    let growth =
        get("sstable_growth").map(str::trim).and_then(|text| match text.strip_suffix('%') {
            Some(percent) => number::double(percent).map(|v| v / 100.0),
            None => number::double(text),
        });
    UnifiedOptions {
        scaling: if scaling.is_empty() { default.scaling } else { scaling },
        base_shard_count: int("base_shard_count")
            .and_then(|v| u32::try_from(v).ok())
            .filter(|v| *v > 0)
            .unwrap_or(default.base_shard_count),
        target_sstable_size: bytes("target_sstable_size", default.target_sstable_size),
        min_sstable_size: bytes("min_sstable_size", default.min_sstable_size),
        growth: growth.filter(|v| (0.0..=1.0).contains(v)).unwrap_or(default.growth),
        flush_size: bytes("flush_size_override", default.flush_size),
        max_sstables: int("max_sstables_to_compact")
            .and_then(|v| usize::try_from(v).ok())
            .filter(|v| *v > 0)
            .unwrap_or(default.max_sstables),
        overlap: match get("overlap_inclusion_method").map(str::to_uppercase).as_deref() {
            Some("NONE") => OverlapInclusion::None,
            Some("SINGLE") => OverlapInclusion::Single,
            _ => default.overlap,
        },
    }
}

/// `T4` is 2, `L10` is -8, `N` is 0; a number is itself.
fn scaling_parameter(text: &str) -> Option<i32> {
    match (text, text.strip_prefix('T'), text.strip_prefix('L')) {
        ("N", ..) => Some(0),
        (_, Some(fan), _) => number::int(fan).map(|fan| fan.saturating_sub(2)),
        (_, _, Some(fan)) => number::int(fan).map(|fan| 2_i32.saturating_sub(fan)),
        _ => number::int(text),
    }
}

fn overlapping_tombstones(
    options: &BTreeMap<String, String>,
) -> Result<TombstoneOption, OptionsError> {
    let text = options.get("provide_overlapping_tombstones").map_or("NONE", String::as_str);
    let text = text.to_uppercase();
    match text.as_str() {
        "NONE" => Ok(TombstoneOption::None),
        "ROW" => Ok(TombstoneOption::Row),
        "CELL" => Ok(TombstoneOption::Cell),
        _ => Err(OptionsError::new(format!(
            "Invalid value {text} for 'provide_overlapping_tombstones' compaction sub-option - \
             must be one of the following [NONE, ROW, CELL]."
        ))),
    }
}

fn thresholds(options: &BTreeMap<String, String>) -> Result<(u32, u32), OptionsError> {
    let read = |name: &str, default: u32| match options.get(name) {
        None => Ok(default),
        Some(text) => {
            let numeric = !text.is_empty() && text.chars().all(char::is_numeric);
            let value = numeric.then(|| number::int(text)).flatten();
            value.and_then(|v| u32::try_from(v).ok()).ok_or_else(|| {
                OptionsError::new(format!(
                    "Invalid value {text} for '{name}' compaction sub-option - must be an integer"
                ))
            })
        }
    };
    let min = read("min_threshold", 4)?;
    let max = read("max_threshold", 32)?;
    if min == 0 || max == 0 {
        return Err(OptionsError::new(
            "Disabling compaction by setting compaction thresholds to 0 has been removed, set the \
             compaction option 'enabled' to false instead.",
        ));
    }
    if min <= 1 {
        return Err(OptionsError::new(format!(
            "Min compaction threshold cannot be less than 2 (got {min})"
        )));
    }
    if min > max {
        return Err(OptionsError::new(format!(
            "Min compaction threshold (got {min}) cannot be greater than max compaction threshold \
             (got {max})"
        )));
    }
    Ok((min, max))
}

#[cfg(test)]
mod tests;
