//! Checks of single options, with Cassandra's texts.
//!
//! Source: Cassandra 5.0 `validateOptions` of AbstractCompactionStrategy and of each strategy,
//! `unified/Controller`.

use std::collections::BTreeMap;

use crate::number;
use crate::strategy::{OptionsError, Strategy};
use crate::windows::{STATIC_MAX, STATIC_MIN, WindowUnit};

type Options = BTreeMap<String, String>;
type Checked = Result<(), OptionsError>;

/// Options that every strategy has.
const COMMON: &[&str] = &[
    "tombstone_threshold",
    "tombstone_compaction_interval",
    "unchecked_tombstone_compaction",
    "log_all",
    "enabled",
    "only_purge_repaired_tombstones",
    "provide_overlapping_tombstones",
];
const THRESHOLDS: &[&str] = &["min_threshold", "max_threshold"];
const SIZE_TIERED: &[&str] = &["min_sstable_size", "bucket_low", "bucket_high"];
/// The highest level of leveled compaction.
const LEVEL_MAX: i32 = 8;
const LEVELED: &[&str] = &["sstable_size_in_mb", "fanout_size", "single_sstable_uplevel"];
const TIME_WINDOW: &[&str] = &[
    "compaction_window_size",
    "compaction_window_unit",
    "timestamp_resolution",
    "expired_sstable_check_frequency_seconds",
    "unsafe_aggressive_sstable_expiration",
];
const DATE_TIERED: &[&str] = &[
    "base_time_seconds",
    "max_window_size_seconds",
    "max_sstable_age_days",
    "timestamp_resolution",
];
const INCREMENTAL: &[&str] = &["sstable_size_in_mb", "space_amplification_goal"];
const CLUSTER_KEY: &[&str] = &["compaction_window_unit", "compaction_window_size", "window_count"];
const UNIFIED: &[&str] = &[
    "scaling_parameters",
    "base_shard_count",
    "target_sstable_size",
    "flush_size_override",
    "max_sstables_to_compact",
    "expired_sstable_check_frequency_seconds",
    "unsafe_aggressive_sstable_expiration",
    "overlap_inclusion_method",
    "min_sstable_size",
    "sstable_growth",
];

/// Checks all options but the thresholds' values.
///
/// # Errors
/// The first check that fails, in Cassandra's order; then unknown options.
pub fn options(strategy: Strategy, options: &Options) -> Checked {
    common(options)?;
    let known: &[&[&str]] = match strategy {
        Strategy::SizeTiered => {
            size_tiered(options)?;
            &[COMMON, THRESHOLDS, SIZE_TIERED]
        }
        Strategy::Leveled => {
            leveled(options)?;
            size_tiered(options)?;
            &[COMMON, THRESHOLDS, SIZE_TIERED, LEVELED]
        }
        Strategy::TimeWindow => {
            time_window(options)?;
            size_tiered(options)?;
            &[COMMON, THRESHOLDS, SIZE_TIERED, TIME_WINDOW]
        }
        Strategy::Unified => {
            unified(options)?;
            &[COMMON, UNIFIED]
        }
        Strategy::Incremental => {
            incremental(options)?;
            size_tiered(options)?;
            &[COMMON, THRESHOLDS, SIZE_TIERED, INCREMENTAL]
        }
        Strategy::DateTiered => {
            date_tiered(options)?;
            size_tiered(options)?;
            &[COMMON, THRESHOLDS, SIZE_TIERED, DATE_TIERED]
        }
        Strategy::ClusterKey => {
            cluster_key(options)?;
            size_tiered(options)?;
            &[COMMON, THRESHOLDS, SIZE_TIERED, CLUSTER_KEY]
        }
    };
    let unknown: Vec<&str> = options
        .keys()
        .map(String::as_str)
        .filter(|name| !known.iter().any(|names| names.contains(name)))
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    fail(format!(
        "Properties specified [{}] are not understood by {}",
        unknown.join(", "),
        strategy.simple_name()
    ))
}

fn fail(message: impl Into<String>) -> Checked {
    Err(OptionsError::new(message))
}

fn is_boolean(text: &str) -> bool {
    text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false")
}

fn not_an_int(text: &str, name: &str) -> Checked {
    fail(format!("{text} is not a parsable int (base10) for {name}"))
}

fn common(options: &Options) -> Checked {
    let name = "tombstone_threshold";
    if let Some(text) = options.get(name) {
        match number::double(text) {
            Some(value) if value < 0.0 => {
                // Java prints the float widened to a double.
                let value = f64::from(value as f32);
                return fail(format!("{name} must be greater than 0, but was {value:.6}"));
            }
            Some(_) => {}
            None => return not_an_int(text, name),
        }
    }
    let name = "tombstone_compaction_interval";
    if let Some(text) = options.get(name) {
        match number::long(text) {
            Some(value) if value < 0 => {
                return fail(format!("{name} must be greater than 0, but was {value}"));
            }
            Some(_) => {}
            None => return not_an_int(text, name),
        }
    }
    if let Some(text) = options.get("unchecked_tombstone_compaction").filter(|t| !is_boolean(t)) {
        return fail(format!(
            "'unchecked_tombstone_compaction' should be either 'true' or 'false', not '{text}'"
        ));
    }
    if let Some(text) = options.get("log_all").filter(|t| !is_boolean(t)) {
        return fail(format!("'log_all' should either be 'true' or 'false', not {text}"));
    }
    if let Some(text) = options.get("enabled").filter(|t| !is_boolean(t)) {
        return fail(format!("enabled should either be 'true' or 'false', not {text}"));
    }
    Ok(())
}

fn size_tiered(options: &Options) -> Checked {
    let name = "min_sstable_size";
    if let Some(text) = options.get(name) {
        match number::long(text) {
            Some(value) if value < 0 => {
                return fail(format!("{name} must be non negative: {value}"));
            }
            Some(_) => {}
            None => return not_an_int(text, name),
        }
    }
    let double = |name: &str, default: f64| match options.get(name) {
        None => Ok(default),
        Some(text) => number::double(text)
            .ok_or_else(|| OptionsError::new(format!("{text} is not a parsable float for {name}"))),
    };
    let low = double("bucket_low", 0.5)?;
    let high = double("bucket_high", 1.5)?;
    if high <= low {
        return fail(format!(
            "bucket_high value ({}) is less than or equal to the bucket_low value ({})",
            number::print_double(high),
            number::print_double(low)
        ));
    }
    Ok(())
}

fn leveled(options: &Options) -> Checked {
    let size = options.get("sstable_size_in_mb").map_or("1", String::as_str);
    let fanout = options.get("fanout_size").map_or("10", String::as_str);
    for (name, text) in [("sstable_size_in_mb", size), ("fanout_size", fanout)] {
        match number::int(text) {
            Some(value) if value < 1 => {
                return fail(format!("{name} must be larger than 0, but was {value}"));
            }
            Some(_) => {}
            None => return not_an_int(text, name),
        }
    }
    let (Some(size), Some(fanout)) = (number::int(size), number::int(fanout)) else {
        return Ok(());
    };
    let bytes = f64::from(fanout).powi(LEVEL_MAX) * f64::from(size) * 1_048_576.0;
    if bytes > i64::MAX as f64 {
        return fail(format!(
            "At most {} bytes may be in a compaction level; your maxSSTableSize must be absurdly \
             high to compute {bytes}",
            i64::MAX
        ));
    }
    Ok(())
}

fn time_window(options: &Options) -> Checked {
    let units: [(&str, &[&str]); 2] = [
        ("timestamp_resolution", &["SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS"]),
        ("compaction_window_unit", &["MINUTES", "HOURS", "DAYS"]),
    ];
    for (name, units) in units {
        if let Some(text) = options.get(name).filter(|t| !units.contains(&t.as_str())) {
            return fail(format!("{text} is not valid for {name}"));
        }
    }
    let name = "compaction_window_size";
    if let Some(text) = options.get(name) {
        match number::int(text) {
            Some(value) if value < 1 => {
                return fail(format!("{value} must be greater than 1 for {name}"));
            }
            Some(_) => {}
            None => return not_an_int(text, name),
        }
    }
    let name = "expired_sstable_check_frequency_seconds";
    if let Some(text) = options.get(name) {
        match number::long(text) {
            Some(value) if value < 0 => {
                return fail(format!("{name} must not be negative, but was {value}"));
            }
            Some(_) => {}
            None => return not_an_int(text, name),
        }
    }
    let name = "unsafe_aggressive_sstable_expiration";
    if let Some(text) = options.get(name) {
        if !is_boolean(text) {
            return fail(format!("{name} is not 'true' or 'false' ({text})"));
        }
        if text.eq_ignore_ascii_case("true") {
            return fail(format!(
                "{name} is requested but not allowed, restart cassandra with \
                 -Dcassandra.allow_unsafe_aggressive_sstable_expiration=true to allow it"
            ));
        }
    }
    Ok(())
}

/// Source of the options: Cassandra 3.11 documentation; its texts where there are such.
fn date_tiered(options: &Options) -> Checked {
    let name = "timestamp_resolution";
    let units = ["SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS"];
    if let Some(text) = options.get(name).filter(|t| !units.contains(&t.as_str())) {
        return fail(format!("{name} {text} is not valid"));
    }
    let name = "max_sstable_age_days";
    if let Some(text) = options.get(name) {
        match number::double(text) {
            Some(value) if value < 0.0 => {
                return fail(format!("{name} must be non-negative: {value:.2}"));
            }
            Some(value) if !value.is_nan() => {}
            _ => return not_an_int(text, name),
        }
    }
    for name in ["base_time_seconds", "max_window_size_seconds"] {
        let Some(text) = options.get(name) else { continue };
        match number::long(text) {
            Some(value) if value <= 0 => {
                return fail(format!("{name} must be greater than 0, but was {value}"));
            }
            Some(_) => {}
            None => return not_an_int(text, name),
        }
    }
    Ok(())
}

/// Source of the options: ScyllaDB's documentation; the texts are ours.
fn incremental(options: &Options) -> Checked {
    let name = "sstable_size_in_mb";
    if let Some(text) = options.get(name) {
        match number::int(text) {
            Some(value) if value < 1 => {
                return fail(format!("{name} must be larger than 0, but was {value}"));
            }
            Some(_) => {}
            None => return not_an_int(text, name),
        }
    }
    let name = "space_amplification_goal";
    if let Some(text) = options.get(name) {
        match number::double(text) {
            Some(value) if value > 1.0 => {}
            Some(value) => {
                let value = number::print_double(value);
                return fail(format!("{name} must be greater than 1.0, but was {value}"));
            }
            None => return fail(format!("{text} is not a parsable float for {name}")),
        }
    }
    Ok(())
}

/// The texts are ours, but for those that time-window compaction has for the same options.
fn cluster_key(options: &Options) -> Checked {
    let (unit, size, count) = ("compaction_window_unit", "compaction_window_size", "window_count");
    if let Some(text) = options.get(unit).filter(|t| WindowUnit::from_name(t).is_none()) {
        return fail(format!("{text} is not valid for {unit}"));
    }
    if let Some(text) = options.get(size) {
        match number::int(text) {
            Some(value) if value < 1 => {
                return fail(format!("{value} must be greater than 1 for {size}"));
            }
            Some(_) => {}
            None => return not_an_int(text, size),
        }
    }
    if let Some(text) = options.get(count) {
        let range = i64::from(STATIC_MIN)..=i64::from(STATIC_MAX);
        match number::int(text) {
            Some(value) if !range.contains(&i64::from(value)) => {
                return fail(format!(
                    "{count} must be from {STATIC_MIN} to {STATIC_MAX}, but was {value}"
                ));
            }
            Some(_) => {}
            None => return not_an_int(text, count),
        }
    }
    let is_moving = options.contains_key(unit) || options.contains_key(size);
    match (is_moving, options.contains_key(count)) {
        (true, true) => fail(format!(
            "{count} makes static windows, {unit} and {size} moving ones: give one or the others"
        )),
        (true, false) if !options.contains_key(unit) => fail(format!("{size} needs {unit}")),
        (false, false) => fail(format!(
            "ClusterKeyCompactionStrategy needs {unit} and {size} for moving windows of the first \
             clustering column, or {count} for static ones"
        )),
        _ => Ok(()),
    }
}

/// Smallest target and flush size of the unified strategy, bytes.
const TARGET_MIN: i64 = 1 << 20;

fn unified(options: &Options) -> Checked {
    if let Some(text) = options.get("scaling_parameters") {
        scaling_parameters(text)?;
    }
    let name = "base_shard_count";
    if let Some(text) = options.get(name) {
        match number::int(text) {
            Some(value) if value <= 0 => {
                return fail(format!("Invalid configuration, {name} should be positive: {value}"));
            }
            Some(_) => {}
            None => return not_an_int(text, name),
        }
    }
    let size = |name: &str| match options.get(name) {
        None => Ok(None),
        Some(text) => match number::bytes(text) {
            Ok(bytes) if bytes < TARGET_MIN => Err(OptionsError::new(format!(
                "{name} {text} is not acceptable, size must be at least {}",
                number::print_memory(TARGET_MIN)
            ))),
            Ok(bytes) => Ok(Some(bytes)),
            Err(why) => {
                Err(OptionsError::new(format!("{name} {text} is not a valid size in bytes: {why}")))
            }
        },
    };
    let target = size("target_sstable_size")?.unwrap_or(1 << 30);
    size("flush_size_override")?;
    let name = "max_sstables_to_compact";
    if let Some(text) = options.get(name).filter(|t| number::int(t).is_none()) {
        return not_an_int(text, name);
    }
    let name = "expired_sstable_check_frequency_seconds";
    if let Some(text) = options.get(name) {
        match number::long(text) {
            Some(value) if value <= 0 => {
                return fail(format!("Invalid configuration, {name} should be positive: {value}"));
            }
            Some(_) => {}
            None => return fail(format!("{text} is not a parsable long (base10) for {name}")),
        }
    }
    let name = "unsafe_aggressive_sstable_expiration";
    if let Some(text) = options.get(name).filter(|t| !is_boolean(t)) {
        return fail(format!("{name} should either be 'true' or 'false', not {text}"));
    }
    if let Some(text) = options.get("overlap_inclusion_method")
        && !["NONE", "SINGLE", "TRANSITIVE"].contains(&text.to_uppercase().as_str())
    {
        return fail(format!(
            "Invalid overlap inclusion method {text}. The valid options are [NONE, SINGLE, \
             TRANSITIVE]."
        ));
    }
    unified_minimum(options, target)?;
    growth(options)
}

fn unified_minimum(options: &Options, target: i64) -> Checked {
    let name = "min_sstable_size";
    let Some(text) = options.get(name) else {
        return Ok(());
    };
    let Ok(bytes) = number::bytes(text) else {
        return fail(format!("{text} is not a valid size in bytes for {name}"));
    };
    if bytes < 0 {
        return fail(format!(
            "Invalid configuration, {name} should be greater than or equal to 0 (zero)"
        ));
    }
    // Java casts to int, which saturates.
    let limit = i64::from((target as f64 * core::f64::consts::FRAC_1_SQRT_2).ceil() as i32);
    if bytes >= limit {
        return fail(format!(
            "Invalid configuration, {name} ({}) should be less than 70% of the targetSSTableSize \
             ({})",
            number::print_memory(bytes),
            number::print_memory(target)
        ));
    }
    Ok(())
}

fn growth(options: &Options) -> Checked {
    let name = "sstable_growth";
    let Some(text) = options.get(name) else {
        return Ok(());
    };
    let trimmed = text.trim();
    let value = match trimmed.strip_suffix('%') {
        Some(percent) => number::double(percent).map(|v| v / 100.0),
        None => number::double(trimmed),
    };
    match value {
        // Written so that NaN passes, as it does there.
        Some(value) if !value.is_nan() && !(0.0..=1.0).contains(&value) => {
            fail(format!("{name} {text} must be between 0 and 1"))
        }
        Some(_) => Ok(()),
        None => {
            let number = trimmed.strip_suffix('%').unwrap_or(trimmed).trim();
            let why = if number.is_empty() {
                "empty String".to_owned()
            } else {
                format!("For input string: \"{number}\"")
            };
            fail(format!("{name} is not a valid number between 0 and 1: {why}"))
        }
    }
}

fn scaling_parameters(text: &str) -> Checked {
    // Java's split leaves out empty strings at the end.
    let text = if text.is_empty() { text } else { text.trim_end_matches(',') };
    for value in text.split(',').map(str::trim) {
        let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
        let fan = value.strip_prefix(['L', 'T']).filter(|rest| digits(rest));
        let signed = value.strip_prefix(['+', '-']).unwrap_or(value);
        if let Some(fan) = fan {
            match number::int(fan) {
                Some(n) if n < 2 => {
                    return fail(format!("Fan factor cannot be lower than 2 in {value}"));
                }
                Some(_) => {}
                None => {
                    return fail(format!(
                        "org.apache.cassandra.db.compaction.UnifiedCompactionStrategy.\
                         validateOptions() threw an error: java.lang.NumberFormatException For \
                         input string: \"{fan}\""
                    ));
                }
            }
        } else if value != "N" && !digits(signed) {
            return fail(format!(
                "Scaling parameter {value} must match N|L[0-9]+|T[0-9]+|[+-]?[0-9]+"
            ));
        }
    }
    Ok(())
}
