//! Table and keyspace options out of properties, validated as Cassandra does.

use std::collections::BTreeMap;

use compact_plan::CompactionOptions;
use cql_syntax::ast::Property;
use schema::{Column, TableEncryption, TableOptions, TombstoneGc};

use crate::error::PlanError;
use crate::properties::Properties;

const TABLE_OPTIONS: &[&str] = &[
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
    schema::TOMBSTONE_GC,
    schema::TABLE_ENCRYPTION,
    schema::TABLE_ENCRYPTION_ALIAS,
];

/// Smallest `bloom_filter_fp_chance` that Cassandra's filter tables reach.
const BLOOM_CHANCE_MIN: f64 = 6.71e-5;
/// Levels that Zstandard has.
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -131_072..=22;
/// Largest TTL, 20 years.
const TTL_MAX: i32 = 630_720_000;

/// Properties of a table that were read. Cassandra's checks before the lookup of the table are
/// done, the others are not. Source: `CreateTableStatement.validate`, `TableAttributes.validate`.
pub(crate) struct TableProperties<'a> {
    properties: Properties<'a>,
    /// Options of a new table with these properties.
    options: TableOptions,
}

impl<'a> TableProperties<'a> {
    /// Reads the properties of a table. A new one that names no compaction gets
    /// `default_compaction`, which was validated when the node started.
    ///
    /// # Errors
    /// An invalid value of a property; an unknown class.
    pub(crate) fn read(
        properties: &'a [Property],
        default_compaction: Option<&BTreeMap<String, String>>,
    ) -> Result<TableProperties<'a>, PlanError> {
        let properties = Properties::new(properties)?;
        let mut default = TableOptions::default();
        if let Some(compaction) = default_compaction {
            default.compaction.clone_from(compaction);
        }
        let options = build(&properties, default)?;
        Ok(TableProperties { properties, options })
    }

    /// The options of a new table, which may yet be refused.
    pub(crate) fn options(&self) -> &TableOptions {
        &self.options
    }

    /// The options of CREATE TABLE.
    ///
    /// # Errors
    /// A property that is not known, a value that is not allowed.
    pub(crate) fn of_new_table(mut self) -> Result<TableOptions, PlanError> {
        self.check()?;
        Ok(self.options)
    }

    /// The options of ALTER TABLE … WITH on top of those that the table has.
    ///
    /// # Errors
    /// A property that is unknown or cannot be changed. A value that is not allowed: for a new
    /// table, which Cassandra checks first, or for this one.
    pub(crate) fn on_top_of(mut self, before: &TableOptions) -> Result<TableOptions, PlanError> {
        self.check()?;
        if self.properties.has("id") {
            return Err(PlanError::config("Cannot alter table id."));
        }
        let mut options = build(&self.properties, before.clone())?;
        validate(&self.properties, &mut options)?;
        Ok(options)
    }

    fn check(&mut self) -> Result<(), PlanError> {
        self.properties.only(TABLE_OPTIONS)?;
        validate(&self.properties, &mut self.options)
    }
}

/// The class of `replication` as it is written.
pub(crate) fn replication_class(properties: &[Property]) -> Result<Option<String>, PlanError> {
    let replication = Properties::new(properties)?.map("replication")?;
    Ok(replication.and_then(|mut map| map.remove("class")))
}

/// Returns true if SSTables are written without compression.
pub(crate) fn is_uncompressed(options: &TableOptions) -> bool {
    options.compression.get("enabled").is_some_and(|enabled| enabled == "false")
}

fn build(p: &Properties<'_>, mut o: TableOptions) -> Result<TableOptions, PlanError> {
    if let Some(v) = p.boolean("allow_auto_snapshot")? {
        o.allow_auto_snapshot = v;
    }
    if let Some(v) = p.double("bloom_filter_fp_chance")? {
        // Cassandra's own mark for "the default of the compaction strategy".
        o.bloom_filter_fp_chance = (v != -1.0).then_some(v);
    }
    if let Some(v) = p.map("caching")? {
        o.caching = caching(v)?;
    }
    if let Some(v) = p.string("comment")? {
        o.comment = v;
    }
    if let Some(v) = p.map("compaction")? {
        check_class(&v)?;
        o.compaction = v;
    }
    if let Some(v) = p.map("compression")? {
        o.compression = compression(v)?;
    }
    if let Some(v) = p.string("memtable")? {
        if v != "default" {
            return Err(PlanError::config(format!("Memtable configuration \"{v}\" not found.")));
        }
        o.memtable = Some(v);
    }
    if let Some(v) = p.int("default_time_to_live")? {
        o.default_time_to_live = v;
    }
    if let Some(v) = p.int("gc_grace_seconds")? {
        o.gc_grace_seconds = v;
    }
    if let Some(v) = p.boolean("incremental_backups")? {
        o.incremental_backups = v;
    }
    if let Some(v) = p.int("max_index_interval")? {
        o.max_index_interval = v;
    }
    if let Some(v) = p.int("memtable_flush_period_in_ms")? {
        o.memtable_flush_period_in_ms = v;
    }
    if let Some(v) = p.int("min_index_interval")? {
        o.min_index_interval = v;
    }
    if let Some(v) = p.string("speculative_retry")? {
        o.speculative_retry = speculative_retry(&v)?;
    }
    if let Some(v) = p.string("additional_write_policy")? {
        o.additional_write_policy = speculative_retry(&v)?;
    }
    if let Some(v) = p.double("crc_check_chance")? {
        o.crc_check_chance = v;
    }
    if let Some(v) = p.boolean("cdc")? {
        o.cdc = v;
    }
    if let Some(v) = p.string("read_repair")? {
        o.read_repair = match v.to_uppercase().as_str() {
            known @ ("NONE" | "BLOCKING") => known.to_owned(),
            other => {
                return Err(PlanError::invalid(format!(
                    "No enum constant \
                     org.apache.cassandra.service.reads.repair.ReadRepairStrategy.{other}"
                )));
            }
        };
    }
    extended(p, &mut o)?;
    Ok(o)
}

/// Options that Cassandra does not have; they are stored in the extensions.
fn extended(p: &Properties<'_>, o: &mut TableOptions) -> Result<(), PlanError> {
    if let Some(map) = p.map(schema::TOMBSTONE_GC)? {
        let entries = map.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        o.set_tombstone_gc(TombstoneGc::of_map(entries).map_err(PlanError::config)?);
    }
    let names = [schema::TABLE_ENCRYPTION, schema::TABLE_ENCRYPTION_ALIAS];
    if names.iter().all(|name| p.has(name)) {
        let [name, alias] = names;
        return Err(PlanError::config(format!(
            "{alias} is another name of {name}: set one of them"
        )));
    }
    for name in names {
        if let Some(map) = p.map(name)? {
            o.set_encryption(&TableEncryption::of_map(map).map_err(PlanError::config)?);
        }
    }
    Ok(())
}

/// Source: `TableParams.validate`.
fn validate(p: &Properties<'_>, o: &mut TableOptions) -> Result<(), PlanError> {
    if p.has("compaction") {
        o.compaction = parse_compaction(&o.compaction)?.map;
    }
    if let Some(chance) = o.bloom_filter_fp_chance
        && (chance <= BLOOM_CHANCE_MIN || chance > 1.0 || chance.is_nan())
    {
        return Err(PlanError::config(format!(
            "bloom_filter_fp_chance must be larger than 6.71E-5 and less than or equal to 1.0 \
                 (got {})",
            types::number::java_f64(chance)
        )));
    }
    if !(0.0..=1.0).contains(&o.crc_check_chance) {
        return Err(PlanError::config(format!(
            "crc_check_chance must be larger than or equal to 0 and smaller than or equal to 1.0 \
             (got {})",
            types::number::java_f64(o.crc_check_chance)
        )));
    }
    let at_least = |name: &str, value: i32, min: i32| {
        if value >= min {
            return Ok(());
        }
        Err(PlanError::config(format!(
            "{name} must be greater than or equal to {min} (got {value})"
        )))
    };
    at_least("default_time_to_live", o.default_time_to_live, 0)?;
    if o.default_time_to_live > TTL_MAX {
        return Err(PlanError::config(format!(
            "default_time_to_live must be less than or equal to {TTL_MAX} (got {})",
            o.default_time_to_live
        )));
    }
    at_least("gc_grace_seconds", o.gc_grace_seconds, 0)?;
    at_least("min_index_interval", o.min_index_interval, 1)?;
    if o.max_index_interval < o.min_index_interval {
        return Err(PlanError::config(format!(
            "max_index_interval must be greater than or equal to min_index_interval ({}) (got {})",
            o.min_index_interval, o.max_index_interval
        )));
    }
    at_least("memtable_flush_period_in_ms", o.memtable_flush_period_in_ms, 0)
}

fn caching(map: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, PlanError> {
    let mut out: BTreeMap<String, String> = [("keys", "ALL"), ("rows_per_partition", "NONE")]
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    for (key, value) in map {
        let upper = value.to_uppercase();
        let valid = match key.to_lowercase().as_str() {
            "keys" => upper == "ALL" || upper == "NONE",
            "rows_per_partition" => {
                upper == "ALL" || upper == "NONE" || value.parse::<u32>().is_ok()
            }
            _ => {
                return Err(PlanError::config(format!(
                    "Invalid caching sub-options [{key}]: only 'keys' and 'rows_per_partition' are \
                     allowed"
                )));
            }
        };
        if !valid {
            let name = key.to_lowercase();
            return Err(PlanError::config(match name.as_str() {
                "keys" => format!(
                    "Invalid value '{value}' for caching sub-option 'keys': only 'ALL' and 'NONE' \
                     are allowed"
                ),
                _ => format!(
                    "Invalid value '{value}' for caching sub-option 'rows_per_partition': only \
                     'ALL', 'NONE', and integer values are allowed"
                ),
            }));
        }
        let stored = if value.parse::<u32>().is_ok() { value } else { upper };
        out.insert(key.to_lowercase(), stored);
    }
    Ok(out)
}

/// Checks the options that Cassandra checks when it reads a compaction strategy; it checks the
/// others later. Source: `CompactionParams.create`.
fn check_class(map: &BTreeMap<String, String>) -> Result<(), PlanError> {
    // Our own strategy, which Cassandra does not have, has no windows without its options.
    let is_ours = map.get("class").is_some_and(|c| c.ends_with("ClusterKeyCompactionStrategy"));
    let mut looked_at = map.clone();
    looked_at
        .retain(|name, _| is_ours || name == "class" || name == "provide_overlapping_tombstones");
    parse_compaction(&looked_at).map(drop)
}

fn parse_compaction(map: &BTreeMap<String, String>) -> Result<CompactionOptions, PlanError> {
    let map = map.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    compact_plan::parse_options(map).map_err(|error| PlanError::config(error.message))
}

/// `compaction` of new tables whose statements name none, as the schema stores it: the class with its package.
///
/// # Errors
/// A class that does not exist, an option that it does not have, a value that is not allowed.
pub fn default_compaction(
    map: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, PlanError> {
    parse_compaction(map).map(|options| options.map)
}

/// Checks the requirements of the compaction strategy on the first clustering column of a table.
///
/// # Errors
/// A ConfigurationException.
pub(crate) fn check_compaction(o: &TableOptions, first: Option<&Column>) -> Result<(), PlanError> {
    let options = parse_compaction(&o.compaction)?;
    let cql_type = first.map(|column| column.ty.to_string());
    let first = first.map(|column| column.name.as_ref()).zip(cql_type.as_deref());
    options.for_table(first).map(drop).map_err(|error| PlanError::config(error.message))
}

/// Returns warnings for the user about valid properties.
pub(crate) fn warnings(properties: &[Property]) -> Vec<String> {
    // Invalid properties are refused elsewhere.
    let Ok(properties) = Properties::new(properties) else { return Vec::new() };
    let compaction = properties.map("compaction").ok().flatten();
    let compaction = compaction.and_then(|map| parse_compaction(&map).ok()?.warning());
    let cdc = properties.boolean("cdc").ok().flatten() == Some(true);
    compaction.into_iter().chain(cdc.then(|| CDC_WITHOUT_EFFECT.to_owned())).collect()
}

/// Cassandra accepts the option without a word when its `cdc_enabled` is false.
const CDC_WITHOUT_EFFECT: &str = "cdc = true has no effect: this server does not support change data capture. The \
                                  option is stored; no commit log segments are kept for consumers.";

const COMPRESSION_PACKAGE: &str = "org.apache.cassandra.io.compress.";
const COMPRESSION_CLASSES: &[&str] =
    &["LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor", "NoopCompressor"];

fn compression(mut map: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, PlanError> {
    // The spelling of Cassandra 2.x is still what many schemas have.
    if !map.contains_key("class")
        && let Some(class) = map.remove("sstable_compression")
        && !class.is_empty()
    {
        map.insert("class".to_owned(), class);
    }
    if !map.contains_key("chunk_length_in_kb")
        && let Some(length) = map.remove("chunk_length_kb")
    {
        map.insert("chunk_length_in_kb".to_owned(), length);
    }
    let is_told = map.contains_key("enabled");
    let enabled = map.remove("enabled").is_none_or(|v| v.to_lowercase() == "true");
    let disabled = || BTreeMap::from([("enabled".to_owned(), "false".to_owned())]);
    if !enabled {
        if map.is_empty() {
            return Ok(disabled());
        }
        return Err(PlanError::config(
            "If the 'enabled' option is set to false no other options must be specified",
        ));
    }
    if map.is_empty() && !is_told {
        return Ok(disabled());
    }
    let Some(class) = map.remove("class") else {
        return Err(PlanError::config("Missing sub-option 'class' for the 'compression' option."));
    };
    if class.is_empty() {
        return Err(PlanError::config(
            "The 'class' option must not be empty. To disable compression use 'enabled' : false",
        ));
    }
    let short = class.strip_prefix(COMPRESSION_PACKAGE).unwrap_or(&class).to_owned();
    if !COMPRESSION_CLASSES.contains(&short.as_str()) {
        let full =
            if class.contains('.') { class } else { format!("{COMPRESSION_PACKAGE}{class}") };
        return Err(PlanError::config(format!("Could not create Compression for type {full}")));
    }
    let length = match map.get("chunk_length_in_kb") {
        None => 16,
        Some(text) => text
            .parse::<i32>()
            .map_err(|_| PlanError::config("Invalid value for chunk_length_in_kb"))?,
    };
    if length > i32::MAX / 1024 {
        return Err(PlanError::config(format!(
            "Value of chunk_length_in_kb is too large ({length})"
        )));
    }
    let known: &[&str] = match short.as_str() {
        "LZ4Compressor" => &["lz4_compressor_type", "lz4_high_compressor_level"],
        "ZstdCompressor" => &["compression_level"],
        _ => &[],
    };
    let general = ["chunk_length_in_kb", "min_compress_ratio"];
    if let Some(name) =
        map.keys().find(|k| !known.contains(&k.as_str()) && !general.contains(&k.as_str()))
    {
        return Err(PlanError::config(format!("Unknown compression options {name}")));
    }
    check_compressor(&short, &map)?;
    if map.get("min_compress_ratio").is_some_and(|ratio| ratio.parse::<f64>().is_err()) {
        return Err(PlanError::config("Invalid value for min_compress_ratio"));
    }
    check_chunks(length, &map)?;
    map.insert("chunk_length_in_kb".to_owned(), length.to_string());
    map.insert("class".to_owned(), format!("{COMPRESSION_PACKAGE}{short}"));
    Ok(map)
}

/// Bounds of what [`compression`] has read. Source: `CompressionParams.validate`.
fn check_chunks(length: i32, map: &BTreeMap<String, String>) -> Result<(), PlanError> {
    match u32::try_from(length) {
        Ok(length) if length.is_power_of_two() => {}
        Ok(length) if length > 0 => {
            return Err(PlanError::config("chunk_length_in_kb must be a power of 2"));
        }
        _ => return Err(PlanError::config("Invalid negative or null chunk_length_in_kb")),
    }
    let ratio: f64 = map.get("min_compress_ratio").and_then(|v| v.parse().ok()).unwrap_or(0.0);
    if ratio < 0.0 {
        return Err(PlanError::config("Invalid negative min_compress_ratio"));
    }
    if ratio > 0.0 && ratio < 1.0 {
        return Err(PlanError::config(
            "min_compress_ratio can either be 0 or greater than or equal to 1",
        ));
    }
    Ok(())
}

/// The options of one compressor. Source: `LZ4Compressor.create`, `ZstdCompressor.create`.
fn check_compressor(class: &str, map: &BTreeMap<String, String>) -> Result<(), PlanError> {
    if let Some(kind) = map.get("lz4_compressor_type")
        && kind != "fast"
        && kind != "high"
    {
        return Err(PlanError::config(format!(
            "Invalid compressor type '{kind}' specified for LZ4 parameter 'lz4_compressor_type'. \
             Valid options are [high, fast]."
        )));
    }
    if let Some(level) = map.get("lz4_high_compressor_level")
        && !level.parse().is_ok_and(|level: i32| (1..=17).contains(&level))
    {
        return Err(PlanError::config(format!(
            "Invalid value [{level}] for parameter 'lz4_high_compressor_level'. Value must be \
             between 1 and 17."
        )));
    }
    let Some(level) = map.get("compression_level") else { return Ok(()) };
    let why = match level.parse() {
        Ok(level) if ZSTD_LEVELS.contains(&level) => return Ok(()),
        Ok(level) => {
            format!("java.lang.IllegalArgumentException compression_level={level} is invalid")
        }
        Err(_) => format!("java.lang.NumberFormatException For input string: \"{level}\""),
    };
    Err(PlanError::config(format!("{class}.create() threw an error: {why}")))
}

/// `99p`, `99PERCENTILE`, `50ms`, `ALWAYS`, `NEVER`/`NONE`, `MIN(…)`, `MAX(…)`, in Cassandra's
/// canonical spelling.
///
/// # Errors
/// None of these.
pub fn speculative_retry(text: &str) -> Result<String, PlanError> {
    let lower = text.trim().to_lowercase();
    let bad = || PlanError::config(format!("Invalid value {text} for option 'speculative_retry'"));
    match lower.as_str() {
        "always" => return Ok("ALWAYS".to_owned()),
        "never" | "none" => return Ok("NEVER".to_owned()),
        _ => {}
    }
    for name in ["min", "max"] {
        if let Some(rest) = lower.strip_prefix(name) {
            let inner = rest.trim().strip_prefix('(').and_then(|r| r.strip_suffix(')'));
            let (a, b) = inner.and_then(|i| i.split_once(',')).ok_or_else(bad)?;
            let of_two = |part: &str| {
                let policy = speculative_retry(part).map_err(|_| bad())?;
                let kind = ["PERCENTILE", "FIXED"][usize::from(policy.ends_with("ms"))];
                // Neither ALWAYS nor NEVER, nor one of two again.
                if policy.starts_with(|c: char| c.is_ascii_digit()) {
                    Ok((policy, kind))
                } else {
                    Err(bad())
                }
            };
            let ((a, kind), (b, other)) = (of_two(a)?, of_two(b)?);
            if kind == other {
                return Err(PlanError::config(format!(
                    "Invalid value {text} for option 'speculative_retry': MIN()/MAX() arguments \
                     should be of different types, but both are of type {kind}"
                )));
            }
            return Ok(format!("{}({a},{b})", name.to_uppercase()));
        }
    }
    let number = |digits: &str| -> Option<f64> {
        let are_digits = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        digits.parse().ok().filter(|_| are_digits)
    };
    if let Some(ms) = lower.strip_suffix("ms") {
        // Cuts off fractions of milliseconds, and clamps values that are too large, as Java's cast
        // does.
        return Ok(format!("{}ms", number(ms).ok_or_else(bad)? as i32));
    }
    let percent = lower
        .strip_suffix("percentile")
        .or_else(|| lower.strip_suffix('p'))
        .and_then(number)
        .ok_or_else(bad)?;
    if percent <= 0.0 || percent >= 100.0 {
        return Err(PlanError::config(format!(
            "Invalid value {text} for PERCENTILE option 'speculative_retry': must be between (0.0 \
             and 100.0)"
        )));
    }
    let digits =
        if percent == percent.trunc() { format!("{percent:.0}") } else { percent.to_string() };
    Ok(format!("{digits}p"))
}

#[cfg(test)]
mod tests {
    use cql_syntax::ast::StatementKind;
    use schema::TombstoneGcMode;

    use super::*;

    fn options(with: &str) -> Result<TableOptions, PlanError> {
        let text = format!("CREATE TABLE t (k int PRIMARY KEY) WITH {with}");
        match cql_syntax::parse(&text).unwrap().kind {
            StatementKind::CreateTable(table) => {
                TableProperties::read(&table.options.properties, None)?.of_new_table()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_date_tiered_table_keeps_its_options_and_is_warned_of() {
        let with = "compaction = {'class': 'DateTieredCompactionStrategy', \
                    'base_time_seconds': 3600, 'max_sstable_age_days': '365'}";
        let compaction = options(with).unwrap().compaction;
        assert_eq!(
            compaction["class"],
            "org.apache.cassandra.db.compaction.DateTieredCompactionStrategy"
        );
        assert_eq!(compaction["base_time_seconds"], "3600");
        let text = format!("CREATE TABLE t (k int PRIMARY KEY) WITH {with}");
        let StatementKind::CreateTable(table) = cql_syntax::parse(&text).unwrap().kind else {
            panic!("{text}");
        };
        let warnings = warnings(&table.options.properties);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("windows of 57600 seconds"), "{warnings:?}");
    }

    #[test]
    fn a_table_that_names_no_compaction_gets_the_configured_one() {
        let given = [("class", "UnifiedCompactionStrategy"), ("scaling_parameters", "T4")];
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let default = default_compaction(&map(&given)).unwrap();
        // Output of a Cassandra 5.0.9: no thresholds, the class with its package.
        let full = "org.apache.cassandra.db.compaction.UnifiedCompactionStrategy";
        assert_eq!(default, map(&[("class", full), ("scaling_parameters", "T4")]));
        let of = |with: &str| {
            let text = format!("CREATE TABLE t (k int PRIMARY KEY) WITH {with}");
            let StatementKind::CreateTable(table) = cql_syntax::parse(&text).unwrap().kind else {
                panic!("{text}");
            };
            let read = TableProperties::read(&table.options.properties, Some(&default)).unwrap();
            read.of_new_table().unwrap().compaction
        };
        assert_eq!(of("comment = 'x'"), default);
        let named = of("compaction = {'class': 'SizeTieredCompactionStrategy'}");
        assert_eq!(named, TableOptions::default().compaction);
        // ALTER keeps the options that the table has.
        let before = options("comment = 'x'").unwrap();
        let after = TableProperties::read(&[], Some(&default)).unwrap().on_top_of(&before).unwrap();
        assert_eq!(after, before);
        let unknown = default_compaction(&map(&[("class", "NoStrategy")])).unwrap_err().message;
        assert!(unknown.contains("Unable to find compaction strategy class"), "{unknown}");
    }

    #[test]
    fn change_data_capture_without_effect_is_warned_of() {
        let of = |with: &str| {
            let text = format!("ALTER TABLE t WITH {with}");
            let StatementKind::AlterTable(alter) = cql_syntax::parse(&text).unwrap().kind else {
                panic!("{text}");
            };
            let cql_syntax::ast::AlterTableChange::With(properties) = alter.change else {
                panic!("{text}");
            };
            warnings(&properties)
        };
        assert_eq!(of("cdc = true"), [CDC_WITHOUT_EFFECT]);
        assert_eq!(of("cdc = 'yes' AND comment = 'x'"), [CDC_WITHOUT_EFFECT]);
        assert!(of("cdc = false").is_empty() && of("comment = 'x'").is_empty());
    }

    #[test]
    fn cluster_key_compaction_asks_for_a_first_clustering_column_with_windows() {
        let with = "compaction = {'class': 'ClusterKeyCompactionStrategy', \
                    'compaction_window_unit': 'DAYS'}";
        let options = options(with).unwrap();
        let column = |ty| Column {
            id: stdx::ColumnId(1),
            name: "at".into(),
            ty,
            kind: schema::ColumnKind::Clustering { position: 0, reversed: true },
        };
        let check = |ty| check_compaction(&options, Some(&column(ty)));
        assert_eq!(check(types::CqlType::Timestamp), Ok(()));
        let none = check_compaction(&options, None).unwrap_err();
        assert!(none.message.contains("the table has none"));
        assert!(check(types::CqlType::Text).unwrap_err().message.ends_with("at is of type text"));
        assert!(check(types::CqlType::Int).unwrap_err().message.contains("ONES, TENS"));
    }

    #[test]
    fn two_policies_are_of_two_kinds() {
        let kept = |text: &str| speculative_retry(text).map_err(|error| error.message);
        assert_eq!(kept("max(99PERCENTILE, 50ms)"), Ok("MAX(99p,50ms)".to_owned()));
        for text in ["MIN(ALWAYS,1ms)", "MIN(x,1ms)", "MIN(1ms,MIN(1ms,99p))"] {
            let bad = format!("Invalid value {text} for option 'speculative_retry'");
            assert_eq!(kept(text), Err(bad));
        }
        assert!(kept("MIN(1ms,2ms)").unwrap_err().ends_with("but both are of type FIXED"));
        assert!(kept("MAX(98p,99p)").unwrap_err().ends_with("both are of type PERCENTILE"));
    }

    #[test]
    fn compression_is_told_its_class() {
        let refused = |map: &str| options(&format!("compression = {map}")).unwrap_err().message;
        let missing = "Missing sub-option 'class' for the 'compression' option.";
        assert_eq!(refused("{'enabled': 'true'}"), missing);
        let twice = "{'class': 'LZ4Compressor', 'sstable_compression': 'LZ4Compressor'}";
        assert_eq!(refused(twice), "Unknown compression options sstable_compression");
        assert!(is_uncompressed(&options("compression = {'enabled': 'false'}").unwrap()));
        assert!(options("compression = {'sstable_compression': 'LZ4Compressor'}").is_ok());
    }

    #[test]
    fn values_of_compaction_options_are_checked() {
        let refused = |map: &str| options(&format!("compaction = {map}")).unwrap_err().to_string();
        assert!(
            refused("{'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 0}")
                .contains("sstable_size_in_mb must be larger than 0, but was 0")
        );
        assert!(
            refused("{'class': 'IncrementalCompactionStrategy', 'space_amplification_goal': 1}")
                .contains("space_amplification_goal must be greater than 1.0, but was 1.0")
        );
        assert!(refused("{'class': 'x.Nope'}").contains("Unable to find compaction strategy"));
    }

    #[test]
    fn encryption_is_kept_in_the_extensions_under_either_name_and_shown_as_an_option() {
        let of = |with| options(with).unwrap().encryption().unwrap().keys;
        assert_eq!(of("encryption = {'key_provider': 'none'}"), schema::TableKeys::None);
        let text = "scylla_encryption_options = {'key_provider': 'vault', 'vault_host': 'a'}";
        let set = options(text).unwrap();
        let shown = crate::system::describe::text::option_lines(&set);
        assert_eq!(shown.last().map(String::as_str), Some(text));
        assert!(shown.contains(&"extensions = {}".to_owned()));
        for (wrong, why) in [
            ("encryption = 'none'", "should be a map"),
            ("encryption = {'key_provider': 'x'}", "Invalid key_provider 'x'"),
            ("encryption = {} AND scylla_encryption_options = {}", "is another name"),
        ] {
            let error = options(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn tombstone_gc_is_kept_in_the_extensions_and_shown_as_an_option() {
        let of = |with| options(with).unwrap().tombstone_gc().unwrap();
        let repair = of("tombstone_gc = {'mode': 'repair'}");
        assert_eq!(
            (repair.mode, repair.propagation_delay_seconds),
            (TombstoneGcMode::Repair, 3600)
        );
        let set = of("tombstone_gc = {'mode': 'timeout', 'propagation_delay_in_seconds': 60}");
        assert_eq!((set.mode, set.propagation_delay_seconds), (TombstoneGcMode::Timeout, 60));
        assert!(options("comment = 'x'").unwrap().extensions.is_empty());
        for wrong in [
            "tombstone_gc = 'repair'",
            "tombstone_gc = {'mode': 'sometimes'}",
            "tombstone_gc = {'propagation_delay_in_seconds': 60}",
            "tombstone_gc = {'mode': 'repair', 'delay': 1}",
        ] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
        // ALTER keeps the options that it does not name.
        let before = options("tombstone_gc = {'mode': 'disabled'}").unwrap();
        assert_eq!(TableProperties::read(&[], None).unwrap().on_top_of(&before).unwrap(), before);
        let shown = crate::system::describe::text::option_lines(&before);
        let last = "tombstone_gc = {'mode': 'disabled', 'propagation_delay_in_seconds': '3600'}";
        assert_eq!(shown.last().map(String::as_str), Some(last));
        assert!(shown.contains(&"extensions = {}".to_owned()));
    }
}
