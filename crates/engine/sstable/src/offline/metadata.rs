//! `sstablemetadata`. Source: `tools.SSTableMetadataViewer`, `tools.Util.TermHistogram`.

use std::collections::BTreeMap;

use sst_format::clustering::PrefixKind;
use sst_format::header::HeaderColumn;
use sst_format::histogram::EstimatedHistogram;
use sst_format::hyperloglog::estimate_serialised;
use sst_format::statistics::{Partitioner, StatsMetadata};
use stdx::DeletionSeconds;
use types::CqlType;

use crate::SstableReader;
use crate::offline::key_text;

/// Buckets of the histogram from which percentiles are taken.
const PERCENTILE_BUCKETS: usize = 165;
/// Characters of the longest bar.
const BAR: u64 = 30;

/// What `sstablemetadata` prints for a file (times in UTC). `now` and `gc_grace_seconds` decide
/// which tombstones are droppable.
pub fn metadata_text(
    reader: &SstableReader,
    now: DeletionSeconds,
    gc_grace_seconds: i64,
) -> String {
    let meta = reader.meta();
    let statistics = meta.statistics();
    let (stats, header) = (&statistics.stats, &statistics.header);
    let mut out = Text(String::new());
    let data_file = meta.file(sst_format::Component::Data);
    out.field("SSTable", data_file.strip_suffix("-Data.db").unwrap_or(&data_file));
    out.field("Partitioner", statistics.partitioner.class_name());
    out.field("Bloom Filter FP chance", &java_double(statistics.bloom_fp_chance));
    let micros = |t: i64| comment(date_text(t / 1_000_000, t), &t.to_string());
    out.field("Minimum timestamp", &micros(stats.min_timestamp.0));
    out.field("Maximum timestamp", &micros(stats.max_timestamp.0));
    let span = stats.max_timestamp.0.wrapping_sub(stats.min_timestamp.0) / 1_000_000;
    out.field(
        "Duration",
        &format!(
            "Days: {} Hours: {} Minutes: {} Seconds: {}",
            span / 86_400,
            span / 3600 - span / 86_400 * 24,
            span / 60 - span / 3600 * 60,
            span - span / 60 * 60
        ),
    );
    for (name, local) in [
        ("SSTable min local deletion time", stats.min_local_deletion),
        ("SSTable max local deletion time", stats.max_local_deletion),
    ] {
        let text = if local == DeletionSeconds::NONE || local.0 == 0 {
            Some("no tombstones".to_owned())
        } else {
            date_text(local.0, local.0)
        };
        out.field(name, &comment(text, &local.0.to_string()));
    }
    match meta.compression() {
        None => out.field("Compressor", "-"),
        Some(info) => {
            let class = format!("org.apache.cassandra.io.compress.{}", info.class_name());
            out.field("Compressor", &class);
            out.field("Compression ratio", &java_double(stats.compression_ratio));
        }
    }
    out.field("TTL min", &with_comment(stats.min_ttl, duration_text(stats.min_ttl)));
    out.field("TTL max", &with_comment(stats.max_ttl, duration_text(stats.max_ttl)));
    let (first, last) = meta.key_range();
    for (name, token, key) in
        [("First token", meta.first_token(), first), ("Last token", meta.last_token(), last)]
    {
        let token = match statistics.partitioner {
            Partitioner::Murmur3 => token.to_string(),
            Partitioner::ByteOrdered => CqlType::Blob.format_plain(key),
        };
        out.field(name, &format!("{token} ({})", key_text(&header.key_types, key)));
    }
    out.field("Covered clusterings", &covered(stats, &header.clustering_types));
    let droppable = droppable_ratio(stats, now.0.saturating_sub(gc_grace_seconds));
    out.field("Estimated droppable tombstones", &java_double(droppable));
    out.field("SSTable Level", &stats.level.to_string());
    let repaired = date_text(stats.repaired_at / 1000, stats.repaired_at);
    out.field("Repaired at", &with_comment(stats.repaired_at, repaired));
    let id = |id: Option<stdx::Uuid>| id.map_or("--".to_owned(), |id| id.to_string());
    out.field("Originating host id", &id(stats.originating_host));
    out.field("Pending repair", &id(stats.pending_repair));
    let position = |p: &sst_format::statistics::CommitLogPosition| {
        format!("CommitLogPosition(segmentId={}, position={})", p.segment, p.position)
    };
    let intervals: Vec<String> = stats
        .commit_log
        .iter()
        .map(|(start, end)| format!("{}={}", position(start), position(end)))
        .collect();
    out.field("Replay positions covered", &format!("{{{}}}", intervals.join(", ")));
    out.field("totalColumnsSet", &stats.total_columns_set.to_string());
    out.field("totalRows", &stats.total_rows.to_string());
    out.field("Estimated tombstone drop times", "");
    let times: BTreeMap<u64, u64> = stats
        .tombstones
        .points
        .iter()
        .map(|(point, count)| (u64::try_from(*point).unwrap_or(0), *count))
        .collect();
    out.histogram("Drop Time", &times, &|at| {
        let seconds = i64::try_from(at).unwrap_or(i64::MAX);
        format!("{at} {}", quiet(date_text(seconds, seconds)))
    });
    out.field("Partition Size", "");
    out.histogram("Size (bytes)", &filled(&stats.partition_sizes), &|n| {
        format!("{n} {}", quiet(bytes_text(n)))
    });
    out.field("Column Count", "");
    out.histogram("Columns", &filled(&stats.cells_per_partition), &|n| n.to_string());
    let coverage = stats.token_coverage.map_or("NaN".to_owned(), java_double);
    out.field("Local token space coverage", &coverage);
    let cardinality = estimate_serialised(&statistics.cardinality);
    out.field("Estimated cardinality", &cardinality.map_or("--".to_owned(), |n| n.to_string()));
    let bases = &header.stats;
    out.field("EncodingStats minTTL", &with_comment(bases.min_ttl, duration_text(bases.min_ttl)));
    let local = bases.min_local_deletion.0;
    out.field(
        "EncodingStats minLocalDeletionTime",
        &comment(date_text(local, local), &local.to_string()),
    );
    out.field("EncodingStats minTimestamp", &micros(bases.min_timestamp.0));
    out.field("KeyType", &header.key_type_name());
    let clustering: Vec<String> = header
        .clustering_types
        .iter()
        .map(
            |(ty, reversed)| {
                if *reversed { ty.to_marshal_name_reversed() } else { ty.to_marshal_name() }
            },
        )
        .collect();
    out.field("ClusteringTypes", &format!("[{}]", clustering.join(", ")));
    out.field("StaticColumns", &columns_text(&header.statics));
    out.field("RegularColumns", &columns_text(&header.regulars));
    out.field("IsTransient", if stats.is_transient { "true" } else { "false" });
    out.0
}

struct Text(String);

impl Text {
    fn line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    fn field(&mut self, name: &str, value: &str) {
        self.line(&format!("{name}: {value}"));
    }

    fn histogram(
        &mut self,
        title: &str,
        counts: &BTreeMap<u64, u64>,
        name: &dyn Fn(u64) -> String,
    ) {
        let width =
            counts.keys().map(|k| name(*k).len()).chain([title.len(), 5]).max().unwrap_or(5);
        let digits = counts.values().map(|v| v.to_string().len()).chain([5]).max().unwrap_or(5);
        self.line(&format!("   {title:width$} | {:digits$}  (%)  Histogram ", "Count"));
        let largest = counts.values().copied().max().unwrap_or(0).max(1);
        let sum: u64 = counts.values().sum();
        for (key, count) in counts {
            let percent = (100.0 * (*count as f64 / sum.max(1) as f64)) as u64;
            let bar = bar(*count, largest);
            let name = name(*key);
            self.line(&format!("   {name:width$} | {count:>digits$} ({percent:>3}) {bar}"));
        }
        let mut all = EstimatedHistogram::new(PERCENTILE_BUCKETS);
        for (key, count) in counts {
            all.add_times(*key, *count);
        }
        self.line("   Percentiles");
        for (label, value) in [
            ("50th", all.percentile(0.5)),
            ("75th", all.percentile(0.75)),
            ("95th", all.percentile(0.95)),
            ("98th", all.percentile(0.98)),
            ("99th", all.percentile(0.99)),
            ("Min", all.min()),
            ("Max", all.max()),
        ] {
            self.line(&format!("   {label:10}{}", name(value)));
        }
    }
}

fn filled(histogram: &EstimatedHistogram) -> BTreeMap<u64, u64> {
    let pairs = histogram.offsets.iter().zip(&histogram.buckets);
    pairs.filter(|(_, count)| **count > 0).map(|(at, count)| (*at, *count)).collect()
}

fn bar(count: u64, largest: u64) -> String {
    let length = count as f64 / largest as f64 * BAR as f64;
    let whole = length as usize;
    let rest = length - whole as f64;
    let mut out = "O".repeat(whole);
    // The steps of its table of partial characters.
    if rest >= 0.75 {
        out.push('o');
    } else if rest >= 0.3 {
        out.push('.');
    }
    out
}

fn comment(text: Option<String>, comment: &str) -> String {
    format!("{} ({comment})", text.unwrap_or_else(|| "--".to_owned()))
}

fn with_comment(value: impl ToString, comment: Option<String>) -> String {
    match comment {
        Some(comment) => format!("{} ({comment})", value.to_string()),
        None => value.to_string(),
    }
}

fn quiet(text: Option<String>) -> String {
    text.map_or(String::new(), |t| format!("({t})"))
}

/// `MM/dd/yyyy HH:mm:ss`; nothing for a `raw` of 0.
fn date_text(seconds: i64, raw: i64) -> Option<String> {
    if raw == 0 {
        return None;
    }
    let (year, month, day) = types::temporal::civil_from_days(seconds.div_euclid(86_400));
    let s = seconds.rem_euclid(86_400);
    Some(format!("{month:02}/{day:02}/{year:04} {:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60))
}

/// `11 days 13 hours 46 minutes 40 seconds`, without zeros at either end.
fn duration_text(seconds: i32) -> Option<String> {
    if seconds == 0 {
        return None;
    }
    if seconds == i32::MAX {
        return Some("never".to_owned());
    }
    let s = i64::from(seconds);
    let parts =
        [(s / 86_400, "day"), (s / 3600 % 24, "hour"), (s / 60 % 60, "minute"), (s % 60, "second")];
    let first = parts.iter().position(|(n, _)| *n != 0).unwrap_or(3);
    let last = parts.iter().rposition(|(n, _)| *n != 0).unwrap_or(3);
    let words: Vec<String> = parts
        .get(first..=last)
        .unwrap_or(&[])
        .iter()
        .map(|(n, word)| format!("{n} {word}{}", if *n == 1 { "" } else { "s" }))
        .collect();
    Some(words.join(" "))
}

fn bytes_text(bytes: u64) -> Option<String> {
    if bytes == 0 {
        return None;
    }
    if bytes < 1024 {
        return Some(format!("{bytes} B"));
    }
    let mut value = bytes as f64 / 1024.0;
    let mut units = ["kB", "MB", "GB", "TB", "PB"].into_iter();
    let mut unit = units.next().unwrap_or("kB");
    while value >= 1024.0 {
        let Some(next) = units.next() else { break };
        value /= 1024.0;
        unit = next;
    }
    Some(format!("{value:.1} {unit}"))
}

/// `Double.toString`.
fn java_double(value: f64) -> String {
    types::number::java_f64(value)
}

fn covered(stats: &StatsMetadata, types: &[(CqlType, bool)]) -> String {
    if stats.covered.is_none() && stats.min_clustering.is_empty() && stats.max_clustering.is_empty()
    {
        return "ALL".to_owned();
    }
    let side = |values: &[Vec<u8>]| -> String {
        let parts: Vec<String> =
            values.iter().zip(types).map(|(v, (ty, _))| ty.format_plain(v)).collect();
        parts.join(":")
    };
    // Since `oa` an end may be exclusive.
    let (open, close) = match &stats.covered {
        None => ('[', ']'),
        Some(slice) => (
            if slice.start.kind == PrefixKind::InclusiveStart { '[' } else { '(' },
            if slice.end.kind == PrefixKind::InclusiveEnd { ']' } else { ')' },
        ),
    };
    format!("{open}{}, {}{close}", side(&stats.min_clustering), side(&stats.max_clustering))
}

pub(super) fn droppable_ratio(stats: &StatsMetadata, before: i64) -> f64 {
    let cells = &stats.cells_per_partition;
    let estimated = cells.mean().saturating_mul(cells.count());
    if estimated == 0 {
        return 0.0;
    }
    stats.tombstones.sum(before) / estimated as f64
}

/// `name:type, …` in the order of Java's `HashMap`, which the tool prints.
fn columns_text(columns: &[HeaderColumn]) -> String {
    let mut capacity = 16u32;
    while columns.len() as f64 > f64::from(capacity) * 0.75 {
        capacity = capacity.saturating_mul(2);
    }
    let slot = |name: &str| {
        let hash = name
            .encode_utf16()
            .fold(0u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)));
        (hash ^ (hash >> 16)) & (capacity - 1)
    };
    let mut sorted: Vec<&HeaderColumn> = columns.iter().collect();
    sorted.sort_by_key(|c| slot(&c.name));
    let parts: Vec<String> =
        sorted.iter().map(|c| format!("{}:{}", c.name, c.ty.to_marshal_name())).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_leave_out_zeros_at_either_end_only() {
        assert_eq!(duration_text(90_001).unwrap(), "1 day 1 hour 0 minutes 1 second");
        assert_eq!(duration_text(3600).unwrap(), "1 hour");
        assert_eq!(duration_text(0), None);
        assert_eq!(bytes_text(219_342).unwrap(), "214.2 kB");
        assert_eq!(bytes_text(0), None);
    }

    #[test]
    fn bars_are_drawn_in_the_tools_three_steps() {
        assert_eq!(bar(2, 13), "OOOO.");
        assert_eq!(bar(1, 2), "O".repeat(15));
    }
}
