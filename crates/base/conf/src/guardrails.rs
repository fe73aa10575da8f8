//! Guardrails: the settings that limit statements, as tools show and change them while a node runs.
//!
//! Owns: the list of guardrails, their names in Cassandra's tool, the errors of values. Never: the
//! enforcement of limits (`cql-plan::guardrails`).
//!
//! Source: `GuardrailsOptions`, and `GuardrailsConfigCommand` of Cassandra 5.1, whose
//! `getguardrailsconfig` and `setguardrailsconfig` these are.

use core::time::Duration;

use crate::options::Options;
use crate::value::{DataSize, Value, parse_duration, parse_size};

/// The current state of a guardrail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guardrail {
    /// Name for `setguardrailsconfig`: the name of the one setting, or `…_threshold` for two.
    pub name: String,
    /// Settings with their values, for thresholds the failing one first.
    pub settings: Vec<(String, String)>,
}

/// Names of consistency levels in the order of Cassandra's enum.
pub const CONSISTENCY_LEVELS: [&str; 12] = [
    "ANY",
    "ONE",
    "TWO",
    "THREE",
    "QUORUM",
    "ALL",
    "LOCAL_QUORUM",
    "EACH_QUORUM",
    "SERIAL",
    "LOCAL_SERIAL",
    "LOCAL_ONE",
    "NODE_LOCAL",
];

/// Properties that a table's WITH clause may set.
const TABLE_PROPERTIES: [&str; 23] = [
    "additional_write_policy",
    "allow_auto_snapshot",
    "bloom_filter_fp_chance",
    "caching",
    "cdc",
    "comment",
    "compaction",
    "compression",
    "crc_check_chance",
    "default_time_to_live",
    "extensions",
    "gc_grace_seconds",
    "id",
    "incremental_backups",
    "max_index_interval",
    "memtable",
    "memtable_flush_period_in_ms",
    "min_index_interval",
    "read_repair",
    "speculative_retry",
    "tombstone_gc",
    "scylla_encryption_options",
    "encryption",
];

/// Guardrails of Cassandra 5.0 that have nothing to limit here, or are not supported yet.
const WITHOUT_EFFECT: [&str; 2] =
    ["materialized_views_per_table_threshold", "sai_sstable_indexes_per_query_threshold"];

type Two<'o, T> = (&'o mut T, &'o mut T);

/// Access to a guardrail's settings; thresholds have one for the warning and one for the failure.
enum Kind {
    Flag(fn(&mut Options) -> &mut bool),
    Levels(fn(&mut Options) -> &mut Vec<String>),
    Properties(fn(&mut Options) -> &mut Vec<String>),
    Numbers(fn(&mut Options) -> Two<'_, i64>),
    /// A number below which statements are refused.
    Least(fn(&mut Options) -> Two<'_, i64>),
    Percentages(fn(&mut Options) -> Two<'_, i64>),
    Size(fn(&mut Options) -> &mut Option<DataSize>),
    Sizes(fn(&mut Options) -> Two<'_, Option<DataSize>>),
    Times(fn(&mut Options) -> Two<'_, Duration>),
}

macro_rules! two {
    ($warn:ident, $fail:ident) => {
        |o| (&mut o.$warn, &mut o.$fail)
    };
}

/// Ascending by name.
const GUARDRAILS: &[(&str, Kind)] = &[
    ("allow_filtering_enabled", Kind::Flag(|o| &mut o.allow_filtering_enabled)),
    ("alter_table_enabled", Kind::Flag(|o| &mut o.alter_table_enabled)),
    (
        "collection_size",
        Kind::Sizes(two!(collection_size_warn_threshold, collection_size_fail_threshold)),
    ),
    (
        "column_value_size",
        Kind::Sizes(two!(column_value_size_warn_threshold, column_value_size_fail_threshold)),
    ),
    (
        "columns_per_table",
        Kind::Numbers(two!(columns_per_table_warn_threshold, columns_per_table_fail_threshold)),
    ),
    ("compact_tables_enabled", Kind::Flag(|o| &mut o.compact_tables_enabled)),
    ("data_disk_usage_max_disk_size", Kind::Size(|o| &mut o.data_disk_usage_max_disk_size)),
    (
        "data_disk_usage_percentage",
        Kind::Percentages(two!(
            data_disk_usage_percentage_warn_threshold,
            data_disk_usage_percentage_fail_threshold
        )),
    ),
    ("drop_keyspace_enabled", Kind::Flag(|o| &mut o.drop_keyspace_enabled)),
    ("drop_truncate_table_enabled", Kind::Flag(|o| &mut o.drop_truncate_table_enabled)),
    (
        "fields_per_udt",
        Kind::Numbers(two!(fields_per_udt_warn_threshold, fields_per_udt_fail_threshold)),
    ),
    ("group_by_enabled", Kind::Flag(|o| &mut o.group_by_enabled)),
    (
        "in_select_cartesian_product",
        Kind::Numbers(two!(
            in_select_cartesian_product_warn_threshold,
            in_select_cartesian_product_fail_threshold
        )),
    ),
    ("intersect_filtering_query_enabled", Kind::Flag(|o| &mut o.intersect_filtering_query_enabled)),
    ("intersect_filtering_query_warned", Kind::Flag(|o| &mut o.intersect_filtering_query_warned)),
    (
        "items_per_collection",
        Kind::Numbers(two!(
            items_per_collection_warn_threshold,
            items_per_collection_fail_threshold
        )),
    ),
    ("keyspaces", Kind::Numbers(two!(keyspaces_warn_threshold, keyspaces_fail_threshold))),
    (
        "maximum_replication_factor",
        Kind::Numbers(two!(
            maximum_replication_factor_warn_threshold,
            maximum_replication_factor_fail_threshold
        )),
    ),
    (
        "maximum_timestamp",
        Kind::Times(two!(maximum_timestamp_warn_threshold, maximum_timestamp_fail_threshold)),
    ),
    (
        "minimum_replication_factor",
        Kind::Least(two!(
            minimum_replication_factor_warn_threshold,
            minimum_replication_factor_fail_threshold
        )),
    ),
    (
        "minimum_timestamp",
        Kind::Times(two!(minimum_timestamp_warn_threshold, minimum_timestamp_fail_threshold)),
    ),
    (
        "non_partition_restricted_index_query_enabled",
        Kind::Flag(|o| &mut o.non_partition_restricted_index_query_enabled),
    ),
    ("page_size", Kind::Numbers(two!(page_size_warn_threshold, page_size_fail_threshold))),
    (
        "partition_keys_in_select",
        Kind::Numbers(two!(
            partition_keys_in_select_warn_threshold,
            partition_keys_in_select_fail_threshold
        )),
    ),
    (
        "partition_size",
        Kind::Sizes(two!(partition_size_warn_threshold, partition_size_fail_threshold)),
    ),
    (
        "partition_tombstones",
        Kind::Numbers(two!(
            partition_tombstones_warn_threshold,
            partition_tombstones_fail_threshold
        )),
    ),
    (
        "read_before_write_list_operations_enabled",
        Kind::Flag(|o| &mut o.read_before_write_list_operations_enabled),
    ),
    (
        "read_consistency_levels_disallowed",
        Kind::Levels(|o| &mut o.read_consistency_levels_disallowed),
    ),
    ("read_consistency_levels_warned", Kind::Levels(|o| &mut o.read_consistency_levels_warned)),
    (
        "sai_frozen_term_size",
        Kind::Sizes(two!(sai_frozen_term_size_warn_threshold, sai_frozen_term_size_fail_threshold)),
    ),
    (
        "sai_string_term_size",
        Kind::Sizes(two!(sai_string_term_size_warn_threshold, sai_string_term_size_fail_threshold)),
    ),
    (
        "sai_vector_term_size",
        Kind::Sizes(two!(sai_vector_term_size_warn_threshold, sai_vector_term_size_fail_threshold)),
    ),
    ("secondary_indexes_enabled", Kind::Flag(|o| &mut o.secondary_indexes_enabled)),
    (
        "secondary_indexes_per_table",
        Kind::Numbers(two!(
            secondary_indexes_per_table_warn_threshold,
            secondary_indexes_per_table_fail_threshold
        )),
    ),
    ("simplestrategy_enabled", Kind::Flag(|o| &mut o.simplestrategy_enabled)),
    ("table_properties_disallowed", Kind::Properties(|o| &mut o.table_properties_disallowed)),
    ("table_properties_ignored", Kind::Properties(|o| &mut o.table_properties_ignored)),
    ("table_properties_warned", Kind::Properties(|o| &mut o.table_properties_warned)),
    ("tables", Kind::Numbers(two!(tables_warn_threshold, tables_fail_threshold))),
    ("uncompressed_tables_enabled", Kind::Flag(|o| &mut o.uncompressed_tables_enabled)),
    ("user_timestamps_enabled", Kind::Flag(|o| &mut o.user_timestamps_enabled)),
    (
        "vector_dimensions",
        Kind::Numbers(two!(vector_dimensions_warn_threshold, vector_dimensions_fail_threshold)),
    ),
    ("vector_type_enabled", Kind::Flag(|o| &mut o.vector_type_enabled)),
    (
        "write_consistency_levels_disallowed",
        Kind::Levels(|o| &mut o.write_consistency_levels_disallowed),
    ),
    ("write_consistency_levels_warned", Kind::Levels(|o| &mut o.write_consistency_levels_warned)),
    ("zero_ttl_on_twcs_enabled", Kind::Flag(|o| &mut o.zero_ttl_on_twcs_enabled)),
    ("zero_ttl_on_twcs_warned", Kind::Flag(|o| &mut o.zero_ttl_on_twcs_warned)),
];

impl Kind {
    /// Returns the name by which it is set.
    fn name(&self, base: &str) -> String {
        match self {
            Kind::Flag(_) | Kind::Levels(_) | Kind::Properties(_) | Kind::Size(_) => {
                base.to_owned()
            }
            _ => format!("{base}_threshold"),
        }
    }

    /// Returns the values as Cassandra's tool prints them; thresholds as failing, warning.
    fn values(&self, options: &mut Options) -> Vec<String> {
        let listed = |names: &[String]| vec![format!("[{}]", names.join(", "))];
        let size = |size: &Option<DataSize>| match size {
            Some(size) => size.render(),
            None => "null".to_owned(),
        };
        let time = |time: &Duration| match time.is_zero() {
            true => "null".to_owned(),
            false => time.render(),
        };
        match self {
            Kind::Flag(of) => vec![of(options).to_string()],
            Kind::Levels(of) | Kind::Properties(of) => listed(of(options)),
            Kind::Size(of) => vec![size(of(options))],
            Kind::Numbers(of) | Kind::Least(of) | Kind::Percentages(of) => {
                let (warn, fail) = of(options);
                vec![fail.to_string(), warn.to_string()]
            }
            Kind::Sizes(of) => {
                let (warn, fail) = of(options);
                vec![size(fail), size(warn)]
            }
            Kind::Times(of) => {
                let (warn, fail) = of(options);
                vec![time(fail), time(warn)]
            }
        }
    }

    /// Stores values, for thresholds failing and warning. [`Kind::check`] validates them.
    fn put(&self, given: &[&str], options: &mut Options) -> Result<(), String> {
        let first = given.first().copied().unwrap_or_default();
        let second = given.get(1).copied().unwrap_or_default();
        match self {
            Kind::Flag(of) => {
                *of(options) = match first {
                    "true" => true,
                    "false" | "null" => false,
                    _ => return Err("Use 'true' or 'false' values for booleans".to_owned()),
                }
            }
            Kind::Levels(of) | Kind::Properties(of) => {
                *of(options) = match first {
                    "null" | "[]" => Vec::new(),
                    names => names.split(',').map(|name| name.trim().to_owned()).collect(),
                }
            }
            Kind::Size(of) => *of(options) = size(first)?,
            Kind::Numbers(of) | Kind::Least(of) | Kind::Percentages(of) => {
                let (warn, fail) = of(options);
                (*fail, *warn) = (number(first)?, number(second)?);
            }
            Kind::Sizes(of) => {
                let (warn, fail) = of(options);
                (*fail, *warn) = (size(first)?, size(second)?);
            }
            Kind::Times(of) => {
                let (warn, fail) = of(options);
                (*fail, *warn) = (time(first)?, time(second)?);
            }
        }
        Ok(())
    }

    /// Normalises values and reports invalid ones, in Cassandra's words.
    fn check(&self, name: &str, options: &mut Options) -> Result<(), String> {
        let default_factor = i64::from(options.default_keyspace_rf);
        match self {
            Kind::Flag(_) => Ok(()),
            Kind::Levels(of) => check_levels(of(options)),
            Kind::Properties(of) => check_properties(name, of(options)),
            Kind::Numbers(of) => {
                let (warn, fail) = of(options);
                check_numbers(name, *warn, *fail)?;
                check_order(name, (*warn != -1).then_some(*warn), (*fail != -1).then_some(*fail))?;
                if name == "maximum_replication_factor" && *fail != -1 && *fail < default_factor {
                    return Err(format!(
                        "{name}_fail_threshold to be set ({fail}) cannot be lesser than \
                         default_keyspace_rf ({default_factor})"
                    ));
                }
                Ok(())
            }
            Kind::Percentages(of) => {
                let (warn, fail) = of(options);
                check_percentages(name, *warn, *fail)
            }
            // Only callers with access to the disks can check that they are that large.
            Kind::Size(of) => match of(options) {
                Some(DataSize(0)) => Err(format!(
                    "Invalid value for {name}: 0 is not allowed; if attempting to disable use an \
                     empty value"
                )),
                _ => Ok(()),
            },
            Kind::Least(of) => {
                let (warn, fail) = of(options);
                check_least(name, *warn, *fail, default_factor)
            }
            Kind::Sizes(of) => {
                let (warn, fail) = of(options);
                check_sizes(name, *warn, *fail)
            }
            Kind::Times(of) => {
                let (warn, fail) = of(options);
                let micros = |time: &Duration| (!time.is_zero()).then_some(time.as_micros());
                check_order(name, micros(warn), micros(fail))
            }
        }
    }
}

fn check_levels(names: &mut Vec<String>) -> Result<(), String> {
    let place = |name: &String| CONSISTENCY_LEVELS.iter().position(|l| l == name);
    if let Some(unknown) = names.iter().find(|name| place(name).is_none()) {
        return Err(format!("No enum constant org.apache.cassandra.db.ConsistencyLevel.{unknown}"));
    }
    names.sort_by_key(place);
    names.dedup();
    Ok(())
}

fn check_properties(name: &str, names: &mut Vec<String>) -> Result<(), String> {
    for name in names.iter_mut() {
        name.make_ascii_lowercase();
    }
    names.sort();
    names.dedup();
    let known = |name: &&String| !TABLE_PROPERTIES.contains(&name.as_str());
    let unknown: Vec<&str> = names.iter().filter(known).map(String::as_str).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(format!(
        "Invalid value for {name}: '[{}]' do not parse as valid table properties",
        unknown.join(", ")
    ))
}

fn check_percentages(name: &str, warn: i64, fail: i64) -> Result<(), String> {
    for (value, which) in [(warn, "warn"), (fail, "fail")] {
        if value > 100 {
            return Err(format!(
                "Invalid value {value} for {name}_{which}_threshold: maximum allowed value is 100"
            ));
        }
    }
    check_numbers(name, warn, fail)?;
    check_order(name, (warn != -1).then_some(warn), (fail != -1).then_some(fail))
}

fn check_least(name: &str, warn: i64, fail: i64, default_factor: i64) -> Result<(), String> {
    check_numbers(name, warn, fail)?;
    if warn != -1 && fail != -1 && fail > warn {
        return Err(format!(
            "The warn threshold {warn} for {name}_warn_threshold should be greater than the fail \
             threshold {fail}"
        ));
    }
    if fail > default_factor {
        return Err(format!(
            "{name}_fail_threshold to be set ({fail}) cannot be greater than default_keyspace_rf \
             ({default_factor})"
        ));
    }
    Ok(())
}

fn check_sizes(name: &str, warn: Option<DataSize>, fail: Option<DataSize>) -> Result<(), String> {
    for (value, which) in [(warn, "warn"), (fail, "fail")] {
        if value == Some(DataSize(0)) {
            return Err(format!(
                "Invalid value for {name}_{which}_threshold: 0 is not allowed; if attempting to \
                 disable use an empty value"
            ));
        }
    }
    check_order(name, warn.map(|w| w.0), fail.map(|f| f.0)).map_err(|_| {
        format!(
            "The warn threshold {} for {name}_warn_threshold should be lower than the fail \
             threshold {}",
            warn.render(),
            fail.render()
        )
    })
}

fn check_numbers(name: &str, warn: i64, fail: i64) -> Result<(), String> {
    for (value, which) in [(warn, "warn"), (fail, "fail")] {
        let name = format!("{name}_{which}_threshold");
        if value == 0 {
            return Err(format!(
                "Invalid value for {name}: 0 is not allowed; if attempting to disable use -1"
            ));
        }
        if value < -1 {
            return Err(format!(
                "Invalid value {value} for {name}: negative values are not allowed, outside of -1 \
                 which disables the guardrail"
            ));
        }
    }
    Ok(())
}

fn check_order<T: PartialOrd + core::fmt::Display>(
    name: &str,
    warn: Option<T>,
    fail: Option<T>,
) -> Result<(), String> {
    match (warn, fail) {
        (Some(warn), Some(fail)) if fail < warn => Err(format!(
            "The warn threshold {warn} for {name}_warn_threshold should be lower than the fail \
             threshold {fail}"
        )),
        _ => Ok(()),
    }
}

fn number(text: &str) -> Result<i64, String> {
    match text {
        "null" => Ok(-1),
        text => {
            let number: Result<i32, _> = text.parse();
            number.map(i64::from).map_err(|_| format!("For input string: \"{text}\""))
        }
    }
}

fn size(text: &str) -> Result<Option<DataSize>, String> {
    if matches!(text, "null" | "") {
        return Ok(None);
    }
    let bytes = parse_size(text).ok_or_else(|| {
        format!(
            "Invalid data storage: {text} Accepted units:[BYTES, KIBIBYTES, MEBIBYTES, GIBIBYTES] \
             where case matters and only non-negative values are accepted"
        )
    })?;
    Ok(Some(DataSize(bytes)))
}

fn time(text: &str) -> Result<Duration, String> {
    if matches!(text, "null" | "") {
        return Ok(Duration::ZERO);
    }
    parse_duration(text).ok_or_else(|| {
        format!(
            "Invalid duration: {text} Accepted units:[MICROSECONDS, MILLISECONDS, SECONDS, \
             MINUTES, HOURS, DAYS] where case matters and only non-negative values."
        )
    })
}

/// Returns all guardrails that have an effect, ascending by name.
pub fn report(options: &Options) -> Vec<Guardrail> {
    let mut options = options.clone();
    let mut all = Vec::with_capacity(GUARDRAILS.len());
    for (base, kind) in GUARDRAILS {
        let values = kind.values(&mut options);
        let names = match values.len() {
            1 => vec![(*base).to_owned()],
            _ => vec![format!("{base}_fail_threshold"), format!("{base}_warn_threshold")],
        };
        let settings = names.into_iter().zip(values).collect();
        all.push(Guardrail { name: kind.name(base), settings });
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Changes one guardrail as `setguardrailsconfig` does; thresholds take the failing value first.
///
/// # Errors
/// In the words of Cassandra's tool; nothing is changed then.
pub fn set(options: &mut Options, name: &str, given: &[String]) -> Result<(), String> {
    let Some((base, kind)) = GUARDRAILS.iter().find(|(base, kind)| kind.name(base) == name) else {
        if WITHOUT_EFFECT.contains(&name) {
            return Err(format!("Guardrail {name} has no effect in this version of Helenus"));
        }
        return Err(format!("Guardrail {name} not found."));
    };
    let joined = given.join(",");
    let (expected, values): (usize, Vec<&str>) = match kind {
        // A list may be given as one argument or as several.
        Kind::Levels(_) | Kind::Properties(_) if !given.is_empty() => (1, vec![joined.as_str()]),
        Kind::Flag(_) | Kind::Levels(_) | Kind::Properties(_) | Kind::Size(_) => {
            (1, given.iter().map(String::as_str).collect())
        }
        _ => (2, given.iter().map(String::as_str).collect()),
    };
    if values.len() != expected {
        return Err(format!(
            "{name} is expecting {expected} argument values. Getting {} instead.",
            values.len()
        ));
    }
    let mut changed = options.clone();
    let done = kind.put(&values, &mut changed).and_then(|()| kind.check(base, &mut changed));
    done.map_err(|reason| {
        format!(
            "Error occured when setting the config for setter {name} with arguments [{}]: {reason}",
            values.join(", ")
        )
    })?;
    *options = changed;
    Ok(())
}

/// Normalises the values of a file.
///
/// # Errors
/// The error of each invalid value, by the name of the guardrail.
pub(crate) fn check(options: &mut Options) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    for (base, kind) in GUARDRAILS {
        if let Err(message) = kind.check(base, options) {
            wrong.push((*base, message));
        }
    }
    wrong
}

/// Guardrails that hold for everybody, superusers too; the others hold for ordinary users only.
const ON_EVERYBODY: [&str; 4] = [
    "drop_truncate_table_enabled",
    "maximum_timestamp",
    "minimum_timestamp",
    "user_timestamps_enabled",
];

/// Returns the names of settings that are not at their defaults, of guardrails that hold for
/// ordinary users only.
pub(crate) fn on_ordinary_users(options: &Options) -> Vec<String> {
    let on_all: Vec<String> = GUARDRAILS
        .iter()
        .filter(|(base, _)| ON_EVERYBODY.contains(base))
        .map(|(base, kind)| kind.name(base))
        .collect();
    let mut names = Vec::new();
    for (is, default) in report(options).into_iter().zip(report(&Options::default())) {
        if on_all.contains(&is.name) {
            continue;
        }
        let changed = is.settings.into_iter().zip(default.settings).filter(|(is, was)| is != was);
        names.extend(changed.map(|((name, _), _)| name));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(options: &mut Options, line: &str) -> Result<(), String> {
        let mut words = line.split(' ').map(str::to_owned);
        let name = words.next().unwrap_or_default();
        super::set(options, &name, &words.collect::<Vec<_>>())
    }

    fn told(options: &Options, name: &str) -> String {
        let all = report(options);
        let found = all.iter().find(|g| g.name == name).unwrap();
        found.settings.iter().map(|(name, value)| format!("{name}={value};")).collect()
    }

    #[test]
    fn what_is_set_is_told() {
        let mut options = Options::default();
        for (line, name, expected) in [
            ("allow_filtering_enabled false", "", "allow_filtering_enabled=false;"),
            (
                "keyspaces_threshold 20 10",
                "",
                "keyspaces_fail_threshold=20;keyspaces_warn_threshold=10;",
            ),
            (
                "keyspaces_threshold null -1",
                "",
                "keyspaces_fail_threshold=-1;keyspaces_warn_threshold=-1;",
            ),
            (
                "collection_size_threshold 10MiB 1MiB",
                "",
                "collection_size_fail_threshold=10MiB;collection_size_warn_threshold=1MiB;",
            ),
            (
                "collection_size_threshold null null",
                "",
                "collection_size_fail_threshold=null;collection_size_warn_threshold=null;",
            ),
            (
                "data_disk_usage_percentage_threshold 100 80",
                "",
                "data_disk_usage_percentage_fail_threshold=100;\
                 data_disk_usage_percentage_warn_threshold=80;",
            ),
            ("data_disk_usage_max_disk_size 2048GiB", "", "data_disk_usage_max_disk_size=2048GiB;"),
            ("data_disk_usage_max_disk_size null", "", "data_disk_usage_max_disk_size=null;"),
            ("table_properties_warned Comment cdc", "", "table_properties_warned=[cdc, comment];"),
            ("table_properties_warned cdc,comment", "", "table_properties_warned=[cdc, comment];"),
            ("table_properties_warned []", "", "table_properties_warned=[];"),
            (
                "read_consistency_levels_disallowed SERIAL ANY",
                "",
                "read_consistency_levels_disallowed=[ANY, SERIAL];",
            ),
            (
                "maximum_timestamp_threshold 1d null",
                "",
                "maximum_timestamp_fail_threshold=1d;maximum_timestamp_warn_threshold=null;",
            ),
        ] {
            assert_eq!(set(&mut options, line), Ok(()), "{line}");
            let name = if name.is_empty() { line.split(' ').next().unwrap() } else { name };
            assert_eq!(told(&options, name), expected, "{line}");
        }
    }

    #[test]
    fn wrong_values_are_refused_in_cassandras_words_and_change_nothing() {
        let error = |line: &str, reason: &str| {
            let (name, given) = line.split_once(' ').unwrap();
            let given = given.replace(' ', ", ");
            format!(
                "Error occured when setting the config for setter {name} with arguments [{given}]: \
                 {reason}"
            )
        };
        let mut options = Options::default();
        for (line, reason) in [
            (
                "keyspaces_threshold -10 -20",
                "Invalid value -20 for keyspaces_warn_threshold: negative values are not allowed, \
                 outside of -1 which disables the guardrail",
            ),
            (
                "keyspaces_threshold 0 -1",
                "Invalid value for keyspaces_fail_threshold: 0 is not allowed; if attempting to \
                 disable use -1",
            ),
            (
                "keyspaces_threshold 5 6",
                "The warn threshold 6 for keyspaces_warn_threshold should be lower than the fail \
                 threshold 5",
            ),
            (
                "data_disk_usage_percentage_threshold 101 50",
                "Invalid value 101 for data_disk_usage_percentage_fail_threshold: maximum allowed \
                 value is 100",
            ),
            (
                "data_disk_usage_percentage_threshold 70 80",
                "The warn threshold 80 for data_disk_usage_percentage_warn_threshold should be \
                 lower than the fail threshold 70",
            ),
            (
                "data_disk_usage_max_disk_size 0B",
                "Invalid value for data_disk_usage_max_disk_size: 0 is not allowed; if attempting \
                 to disable use an empty value",
            ),
            ("keyspaces_threshold x -1", "For input string: \"x\""),
            ("allow_filtering_enabled maybe", "Use 'true' or 'false' values for booleans"),
            (
                "minimum_replication_factor_threshold 2 3",
                "minimum_replication_factor_fail_threshold to be set (2) cannot be greater than \
                 default_keyspace_rf (1)",
            ),
            (
                "minimum_replication_factor_threshold 3 2",
                "The warn threshold 2 for minimum_replication_factor_warn_threshold should be \
                 greater than the fail threshold 3",
            ),
            (
                "collection_size_threshold 1MiB 2MiB",
                "The warn threshold 2MiB for collection_size_warn_threshold should be lower than \
                 the fail threshold 1MiB",
            ),
            (
                "read_consistency_levels_warned MOST",
                "No enum constant org.apache.cassandra.db.ConsistencyLevel.MOST",
            ),
            (
                "table_properties_ignored nonsense",
                "Invalid value for table_properties_ignored: '[nonsense]' do not parse as valid \
                 table properties",
            ),
        ] {
            assert_eq!(set(&mut options, line), Err(error(line, reason)), "{line}");
        }
        for (line, text) in [
            ("non_sense 10", "Guardrail non_sense not found."),
            (
                "keyspaces_threshold 10 20 30",
                "keyspaces_threshold is expecting 2 argument values. Getting 3 instead.",
            ),
            (
                "materialized_views_per_table_threshold 1 2",
                "Guardrail materialized_views_per_table_threshold has no effect in this version of \
                 Helenus",
            ),
        ] {
            assert_eq!(set(&mut options, line), Err(text.to_owned()), "{line}");
        }
        assert_eq!(options, Options::default());
        options.default_keyspace_rf = 3;
        assert_eq!(set(&mut options, "minimum_replication_factor_threshold 2 3"), Ok(()));
    }

    #[test]
    fn every_guardrail_is_a_setting_that_is_acted_on_and_may_change() {
        let settings = crate::options::settings();
        for guardrail in report(&Options::default()) {
            for (name, _) in &guardrail.settings {
                let setting = settings.iter().find(|s| s.name == name).unwrap();
                assert!(setting.hot && setting.status == crate::Status::Supported, "{name}");
            }
        }
        assert!(GUARDRAILS.is_sorted_by_key(|(name, _)| *name));
    }
}
