//! `nodetool tablestats`; its order: `tables_order`, its YAML: `yaml`.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::format::{decimal, file_size, java_double, pretty_memory};
use super::table_indexes;
use super::tables_order::SortKey;
use super::yaml;
use crate::histogram::HistogramReport;
use crate::model::TableReport;

/// How numbers are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStatsOptions {
    /// Sizes as `4.98 KiB` (`-H`).
    pub human_readable: bool,
    /// `SSTables in correct location` is shown (`-l`).
    pub location_check: bool,
    /// Tables one after the other by this, not by keyspace (`-s`).
    pub sort: Option<SortKey>,
    /// Shows only this many of them (`-t`); 0 is all.
    pub top: usize,
}

impl TableStatsOptions {
    fn bytes(self, n: u64) -> String {
        if self.human_readable { file_size(n) } else { n.to_string() }
    }
}

/// Which tables are shown: words of the command line, `keyspace` or `keyspace.table`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFilter {
    /// The others are shown instead (`-i`).
    pub ignore: bool,
    /// The words.
    pub names: Vec<String>,
}

impl TableFilter {
    /// The tables that are shown, by keyspace, and how many.
    ///
    /// # Errors
    /// In Cassandra's words: a keyspace or table does not exist.
    fn choose<'a>(
        &self,
        tables: &'a [TableReport],
    ) -> Result<BTreeMap<&'a str, Vec<&'a TableReport>>, String> {
        let mut wanted: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for name in &self.names {
            match name.split_once('.') {
                Some((keyspace, table)) => wanted.entry(keyspace).or_default().push(table),
                None => {
                    wanted.entry(name).or_default();
                }
            }
        }
        for (keyspace, names) in &wanted {
            if !tables.iter().any(|t| t.keyspace == *keyspace) {
                return Err(format!("Unknown keyspace: {keyspace}"));
            }
            let is_there =
                |name: &str| tables.iter().any(|t| t.keyspace == *keyspace && t.table == name);
            let missing: Vec<&str> = names.iter().copied().filter(|n| !is_there(n)).collect();
            if !missing.is_empty() {
                let missing = missing.join(", ");
                return Err(format!("Unknown tables: [{missing}] in keyspace: {keyspace}"));
            }
        }
        let is_shown = |t: &TableReport| match wanted.get(t.keyspace.as_str()) {
            _ if self.names.is_empty() => !self.ignore,
            None => self.ignore,
            Some(names) if names.is_empty() => !self.ignore,
            Some(names) => self.ignore ^ names.contains(&t.table.as_str()),
        };
        let mut chosen: BTreeMap<&str, Vec<&TableReport>> = BTreeMap::new();
        for table in tables.iter().filter(|t| is_shown(t)) {
            chosen.entry(&table.keyspace).or_default().push(table);
        }
        Ok(chosen)
    }
}

/// `nodetool tablestats`.
///
/// # Errors
/// A keyspace or table does not exist. The message follows Cassandra's "nodetool: ".
pub fn table_stats(
    tables: &[TableReport],
    filter: &TableFilter,
    options: TableStatsOptions,
) -> Result<String, String> {
    let chosen = filter.choose(tables)?;
    let count: usize = chosen.values().map(Vec::len).sum();
    let mut out = String::new();
    if let Some(key) = options.sort {
        return Ok(table_stats_sorted(key, chosen, options));
    }
    let _ = writeln!(out, "Total number of tables: {count}\n----------------");
    for (keyspace, shown) in chosen {
        let all = || tables.iter().filter(|t| t.keyspace == keyspace);
        let reads: u64 = all().map(|t| t.reads).sum();
        let writes: u64 = all().map(|t| t.writes).sum();
        let _ = writeln!(out, "Keyspace: {keyspace}");
        let read_ms = keyspace_ms(all().map(|t| &t.read_latency));
        let write_ms = keyspace_ms(all().map(|t| &t.write_latency));
        let _ = writeln!(out, "\tRead Count: {reads}\n\tRead Latency: {read_ms} ms");
        let _ = writeln!(out, "\tWrite Count: {writes}\n\tWrite Latency: {write_ms} ms");
        let flushes: u64 = all().map(|t| t.pending_flushes).sum();
        let _ = writeln!(out, "\tPending Flushes: {flushes}");
        for table in shown {
            let head = TableHead { indent: "\t\t", name: &table.table };
            print_table(&mut out, table, head, options);
        }
        out.push_str("----------------\n");
    }
    Ok(out)
}

/// Returns the tables in the requested order, across keyspaces.
fn table_stats_sorted(
    key: SortKey,
    chosen: BTreeMap<&str, Vec<&TableReport>>,
    options: TableStatsOptions,
) -> String {
    let shown = sorted(key, &chosen, options);
    let count: usize = chosen.values().map(Vec::len).sum();
    let mut out = String::new();
    if shown.is_empty() {
        return out;
    }
    let of = match options.top {
        0 => String::new(),
        top => format!(" (showing top {} by {})", top.min(count), key.name()),
    };
    let _ = writeln!(out, "Total number of tables: {count}{of}\n----------------");
    for table in shown {
        let name = format!("{}.{}", table.keyspace, table.table);
        print_table(&mut out, table, TableHead { indent: "\t", name: &name }, options);
    }
    out.push_str("----------------\n");
    out
}

fn sorted<'a>(
    key: SortKey,
    chosen: &BTreeMap<&str, Vec<&'a TableReport>>,
    options: TableStatsOptions,
) -> Vec<&'a TableReport> {
    let mut all: Vec<&TableReport> = chosen.values().flatten().copied().collect();
    all.sort_by(|a, b| key.compare(a, b));
    if options.top > 0 {
        all.truncate(options.top);
    }
    all
}

/// Indentation and name that a table is printed with.
struct TableHead<'a> {
    indent: &'a str,
    name: &'a str,
}

fn print_table(
    out: &mut String,
    table: &TableReport,
    head: TableHead<'_>,
    options: TableStatsOptions,
) {
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{}{name}: {value}", head.indent);
    };
    let bytes = |n: u64| options.bytes(n);
    line("Table", head.name);
    line("SSTable count", &table.sstables.to_string());
    line("Old SSTable count", &table.old_sstables.to_string());
    line("Max SSTable size", &pretty_memory(table.sstable_bytes_max));
    if let Some(window) = time_window(table) {
        line("SSTables Time Window", &window);
    }
    if let Some((files, sizes)) = levels(table) {
        line("SSTables in each level", &format!("[{}]", files.join(", ")));
        line("SSTable bytes in each level", &format!("[{}]", sizes.join(", ")));
    }
    line("Space used (live)", &bytes(table.disk_bytes));
    line("Space used (total)", &bytes(table.disk_bytes));
    line("Space used by snapshots (total)", &bytes(table.snapshot_bytes));
    line("Off heap memory used (total)", &bytes(table.off_heap_bytes()));
    line("SSTable Compression Ratio", &format!("{:.5}", compression_ratio(table)));
    line("Number of partitions (estimate)", &table.partitions_estimate.to_string());
    line("Memtable cell count", &table.memtable_mutations.to_string());
    line("Memtable data size", &bytes(table.memtable_bytes));
    line("Memtable off heap memory used", &bytes(0));
    line("Memtable switch count", &table.flushes.to_string());
    line("Speculative retries", "0");
    line("Local read count", &table.reads.to_string());
    line("Local read latency", &format!("{} ms", decimal(table.read_latency.mean_ms(), 3)));
    line("Local write count", &table.writes.to_string());
    line("Local write latency", &format!("{} ms", decimal(table.write_latency.mean_ms(), 3)));
    line("Local read/write ratio", &format!("{:.5}", read_write_ratio(table)));
    line("Pending flushes", &table.pending_flushes.to_string());
    // Cassandra has no such line, so it is shown only if it is not zero.
    if table.unflushable_bytes > 0 {
        line("Memtable data that cannot be flushed", &bytes(table.unflushable_bytes));
    }
    line("Percent repaired", &java_double(percent_repaired(table)));
    line("Bytes repaired", &pretty_memory(table.repaired_bytes));
    line("Bytes unrepaired", &pretty_memory(table.unrepaired_bytes()));
    line("Bytes pending repair", &pretty_memory(table.pending_repair_bytes));
    line("Bloom filter false positives", &table.filter_misses.to_string());
    line("Bloom filter false ratio", &format!("{:.5}", table.filter_false_ratio()));
    line("Bloom filter space used", &bytes(table.filter_file_bytes));
    line("Bloom filter off heap memory used", &bytes(table.filter_bytes));
    line("Index summary off heap memory used", &bytes(table.summary_bytes));
    line("Compression metadata off heap memory used", &bytes(table.offsets_bytes));
    line("Compacted partition minimum bytes", &table.partition_sizes.min().to_string());
    line("Compacted partition maximum bytes", &table.partition_sizes.max().to_string());
    line("Compacted partition mean bytes", &table.partition_sizes.mean().to_string());
    let (rows, tombstones) =
        (per_slice(&table.rows_per_read), per_slice(&table.tombstones_per_read));
    line("Average live cells per slice (last five minutes)", &java_double(rows.0));
    line("Maximum live cells per slice (last five minutes)", &rows.1.to_string());
    line("Average tombstones per slice (last five minutes)", &java_double(tombstones.0));
    line("Maximum tombstones per slice (last five minutes)", &tombstones.1.to_string());
    line("Droppable tombstone ratio", &format!("{:.5}", table.droppable_ratio()));
    if options.location_check {
        line("SSTables in correct location", &(table.misplaced_sstables == 0).to_string());
    }
    for (name, value) in table_indexes::lines(table, bytes) {
        line(name, &value);
    }
    out.push('\n');
}

/// Mean and largest of what reads met, of a histogram that counts one more; nothing counts as one, as in
/// Cassandra's.
pub(super) fn per_slice(histogram: &HistogramReport) -> (f64, u64) {
    let met = |bound: u64| bound.saturating_sub(1).max(1);
    let sum = histogram
        .buckets
        .iter()
        .zip(histogram.bounds())
        .fold(0.0, |sum, (n, bound)| sum + *n as f64 * met(bound) as f64);
    match histogram.count() {
        0 => (f64::NAN, 0),
        count => (sum / count as f64, met(histogram.max())),
    }
}

/// Returns files and bytes of each level; for a level with too many files also their limit.
fn levels(table: &TableReport) -> Option<(Vec<String>, Vec<String>)> {
    let report = table.levels.as_ref()?;
    let files = report.levels.iter().zip(0_u32..).map(|((files, _), level)| {
        let most = if level == 0 { 4 } else { report.fanout.saturating_pow(level) };
        if *files > most { format!("{files}/{most}") } else { files.to_string() }
    });
    let bytes = report.levels.iter().map(|(_, bytes)| bytes.to_string());
    Some((files.collect(), bytes.collect()))
}

fn time_window(table: &TableReport) -> Option<String> {
    let window = table.time_window.as_ref()?;
    let longest = duration_words(table.sstable_span_micros_max / 1_000_000);
    Some(format!("{window}, max duration: {longest}"))
}

/// Formats seconds as `1 day 0 hours 5 minutes`, without leading and trailing zero units.
fn duration_words(seconds: u64) -> String {
    let parts = [
        (seconds / 86_400, "day"),
        (seconds / 3600 % 24, "hour"),
        (seconds / 60 % 60, "minute"),
        (seconds % 60, "second"),
    ];
    let first = parts.iter().position(|(count, _)| *count > 0);
    let last = parts.iter().rposition(|(count, _)| *count > 0);
    let (Some(first), Some(last)) = (first, last) else { return "0 seconds".to_owned() };
    let words = parts
        .get(first..=last)
        .unwrap_or_default()
        .iter()
        .map(|(count, unit)| format!("{count} {unit}{}", if *count == 1 { "" } else { "s" }));
    words.collect::<Vec<_>>().join(" ")
}

/// Mean latency of a keyspace's tables as Java prints the number: of whole microseconds in sum.
fn keyspace_ms<'a>(tables: impl Iterator<Item = &'a HistogramReport>) -> String {
    let (count, nanos) =
        tables.fold((0_u64, 0_u64), |(n, sum), h| (n + h.count(), sum.saturating_add(h.sum)));
    match count {
        0 => "NaN".to_owned(),
        count => java_double((nanos / 1000) as f64 / count as f64 / 1000.0),
    }
}

pub(super) fn compression_ratio(table: &TableReport) -> f64 {
    match table.compressed_bytes {
        // Cassandra's ratio of a table without compressed SSTables.
        (_, 0) => -1.0,
        (disk, bytes) => disk as f64 / bytes as f64,
    }
}

pub(super) fn read_write_ratio(table: &TableReport) -> f64 {
    match table.writes {
        0 => 0.0,
        writes => table.reads as f64 / writes as f64,
    }
}

/// With Cassandra's two digits; nothing at all counts as repaired.
pub(super) fn percent_repaired(table: &TableReport) -> f64 {
    let ratio = percent(table.repaired_bytes, table.uncompressed_bytes);
    (ratio * 100.0).round() / 100.0
}

/// A share in percent; all of nothing.
pub(super) fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 100.0 } else { part as f64 / of as f64 * 100.0 }
}

/// `nodetool tablestats -F json`, keys in alphabetical order.
///
/// # Errors
/// As [`table_stats`].
pub fn table_stats_json(
    tables: &[TableReport],
    filter: &TableFilter,
    options: TableStatsOptions,
) -> Result<String, String> {
    let root = table_stats_map(tables, filter, options)?;
    let mut out = serde_json::to_string_pretty(&Value::Object(root)).unwrap_or_default();
    out.push('\n');
    Ok(out)
}

/// `nodetool tablestats -F yaml`, keys in alphabetical order.
///
/// # Errors
/// As [`table_stats`].
pub fn table_stats_yaml(
    tables: &[TableReport],
    filter: &TableFilter,
    options: TableStatsOptions,
) -> Result<String, String> {
    let root = table_stats_map(tables, filter, options)?;
    // SnakeYAML ends its text with a line, and the tool with another one.
    Ok(yaml::block(&Value::Object(root), &DOUBLES) + "\n")
}

/// Which values are numbers for Java when they are none.
const DOUBLES: [&str; 5] = [
    "average_live_cells_per_slice_last_five_minutes",
    "average_tombstones_per_slice_last_five_minutes",
    "read_latency",
    "read_latency_ms",
    "write_latency_ms",
];

fn table_stats_map(
    tables: &[TableReport],
    filter: &TableFilter,
    options: TableStatsOptions,
) -> Result<Map<String, Value>, String> {
    let chosen = filter.choose(tables)?;
    let mut root = Map::new();
    let count: usize = chosen.values().map(Vec::len).sum();
    root.insert("total_number_of_tables".to_owned(), count.into());
    if let Some(key) = options.sort {
        for table in sorted(key, &chosen, options) {
            let name = format!("{}.{}", table.keyspace, table.table);
            root.insert(name, as_json(table, options));
        }
        return Ok(root);
    }
    for (keyspace, shown) in chosen {
        let all = || tables.iter().filter(|t| t.keyspace == keyspace);
        let of_tables: Map<String, Value> =
            shown.into_iter().map(|t| (t.table.clone(), as_json(t, options))).collect();
        let of_keyspace = json!({
            "read_count": all().map(|t| t.reads).sum::<u64>(),
            "read_latency": json_ms(&keyspace_ms(all().map(|t| &t.read_latency))),
            "read_latency_ms": json_ms(&keyspace_ms(all().map(|t| &t.read_latency))),
            "write_count": all().map(|t| t.writes).sum::<u64>(),
            "write_latency_ms": json_ms(&keyspace_ms(all().map(|t| &t.write_latency))),
            "pending_flushes": all().map(|t| t.pending_flushes).sum::<u64>(),
            "tables": of_tables,
        });
        root.insert(keyspace.to_owned(), of_keyspace);
    }
    Ok(root)
}

/// A number, or the text that stands for none: JSON has no NaN.
fn json_ms(text: &str) -> Value {
    text.parse::<f64>().ok().filter(|ms| ms.is_finite()).map_or_else(|| text.into(), Value::from)
}

fn as_json(table: &TableReport, options: TableStatsOptions) -> Value {
    let bytes = |n: u64| options.bytes(n);
    let (in_levels, bytes_in_levels) = levels(table).unwrap_or_default();
    let mut value = json!({
        "sstable_count": table.sstables,
        "old_sstable_count": table.old_sstables,
        "max_sstable_size": table.sstable_bytes_max,
        "twcs": time_window(table),
        "sstables_in_each_level": in_levels,
        "sstable_bytes_in_each_level": bytes_in_levels,
        "space_used_live": bytes(table.disk_bytes),
        "space_used_total": bytes(table.disk_bytes),
        "space_used_by_snapshots_total": bytes(table.snapshot_bytes),
        "off_heap_memory_used_total": bytes(table.off_heap_bytes()),
        "sstable_compression_ratio": compression_ratio(table),
        "number_of_partitions_estimate": table.partitions_estimate,
        "memtable_cell_count": table.memtable_mutations,
        "memtable_data_size": bytes(table.memtable_bytes),
        "memtable_off_heap_memory_used": bytes(0),
        "memtable_switch_count": table.flushes,
        "speculative_retries": 0,
        "local_read_count": table.reads,
        "local_read_latency_ms": decimal(table.read_latency.mean_ms(), 3),
        "local_write_count": table.writes,
        "local_write_latency_ms": decimal(table.write_latency.mean_ms(), 3),
        "local_read_write_ratio": format!("{:.5}", read_write_ratio(table)),
        "pending_flushes": table.pending_flushes,
        "percent_repaired": percent_repaired(table),
        "bytes_repaired": table.repaired_bytes,
        "bytes_unrepaired": table.unrepaired_bytes(),
        "bytes_pending_repair": table.pending_repair_bytes,
        "bloom_filter_false_positives": table.filter_misses,
    });
    for more in [of_files_and_reads(table, options), table_indexes::fields(table, bytes)] {
        if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
            value.extend(more);
        }
    }
    if options.location_check
        && let Some(value) = value.as_object_mut()
    {
        let placed = table.misplaced_sstables == 0;
        value.insert("sstables_in_correct_location".to_owned(), placed.into());
    }
    value
}

fn of_files_and_reads(table: &TableReport, options: TableStatsOptions) -> Value {
    let bytes = |n: u64| options.bytes(n);
    let (rows, tombstones) =
        (per_slice(&table.rows_per_read), per_slice(&table.tombstones_per_read));
    json!({
        "bloom_filter_false_ratio": format!("{:.5}", table.filter_false_ratio()),
        "bloom_filter_space_used": bytes(table.filter_file_bytes),
        "bloom_filter_off_heap_memory_used": bytes(table.filter_bytes),
        "index_summary_off_heap_memory_used": bytes(table.summary_bytes),
        "compression_metadata_off_heap_memory_used": bytes(table.offsets_bytes),
        "compacted_partition_minimum_bytes": table.partition_sizes.min(),
        "compacted_partition_maximum_bytes": table.partition_sizes.max(),
        "compacted_partition_mean_bytes": table.partition_sizes.mean(),
        "average_live_cells_per_slice_last_five_minutes": json_ms(&java_double(rows.0)),
        "maximum_live_cells_per_slice_last_five_minutes": rows.1,
        "average_tombstones_per_slice_last_five_minutes": json_ms(&java_double(tombstones.0)),
        "maximum_tombstones_per_slice_last_five_minutes": tombstones.1,
        "droppable_tombstone_ratio": format!("{:.5}", table.droppable_ratio()),
        "top_size_partitions": {},
        "top_tombstone_partitions": {},
    })
}
