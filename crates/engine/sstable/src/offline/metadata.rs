//! `sstablemetadata`. Source: `tools.SSTableMetadataViewer`, `tools.Util.TermHistogram`.

mod scanned;
mod text;

use std::collections::BTreeMap;

use sst_format::clustering::PrefixKind;
use sst_format::header::HeaderColumn;
use sst_format::hyperloglog::estimate_serialised;
use sst_format::statistics::{Partitioner, StatsMetadata};
use stdx::DeletionSeconds;
use types::CqlType;

pub use self::scanned::{ScannedOverview, scan_overview};
pub use self::text::MetadataStyle;
use self::text::{Text, filled};
use crate::SstableReader;
use crate::offline::key_text;

/// Unit of the timestamps of cells, by Java's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampUnit {
    /// `NANOSECONDS`
    Nanoseconds,
    /// `MICROSECONDS`
    #[default]
    Microseconds,
    /// `MILLISECONDS`
    Milliseconds,
    /// `SECONDS`
    Seconds,
    /// `MINUTES`
    Minutes,
    /// `HOURS`
    Hours,
    /// `DAYS`
    Days,
}

impl TimestampUnit {
    /// Seconds, as Java computes them: by way of milliseconds, which saturate.
    fn seconds(self, time: i64) -> i64 {
        let millis = match self {
            TimestampUnit::Nanoseconds => time / 1_000_000,
            TimestampUnit::Microseconds => time / 1_000,
            TimestampUnit::Milliseconds => time,
            TimestampUnit::Seconds => time.saturating_mul(1_000),
            TimestampUnit::Minutes => time.saturating_mul(60_000),
            TimestampUnit::Hours => time.saturating_mul(3_600_000),
            TimestampUnit::Days => time.saturating_mul(86_400_000),
        };
        millis.div_euclid(1_000)
    }
}

/// Options of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataOptions {
    /// Tombstones that are older than this at `now` are droppable.
    pub gc_grace_seconds: i64,
    /// Unit of the smallest timestamp in the header; nothing else uses it.
    pub unit: TimestampUnit,
    /// Colours and bars.
    pub style: MetadataStyle,
}

/// Prints a file as `sstablemetadata` does (times in UTC), with the counts of a scan if there was
/// one.
pub fn metadata_text(
    reader: &SstableReader,
    now: DeletionSeconds,
    options: &MetadataOptions,
    scanned: Option<&ScannedOverview>,
) -> String {
    let meta = reader.meta();
    let statistics = meta.statistics();
    let (stats, header) = (&statistics.stats, &statistics.header);
    let mut out = Text::new(options.style);
    let data_file = meta.file(sst_format::Component::Data);
    out.field("SSTable", data_file.strip_suffix("-Data.db").unwrap_or(&data_file));
    if let Some(scanned) = scanned {
        scanned.print(reader, &mut out);
    }
    out.field("Partitioner", statistics.partitioner.class_name());
    out.field("Bloom Filter FP chance", &java_double(statistics.bloom_fp_chance));
    // The tool takes these for microseconds, whatever the option says.
    for (name, t) in
        [("Minimum timestamp", stats.min_timestamp.0), ("Maximum timestamp", stats.max_timestamp.0)]
    {
        out.date(name, date_text(TimestampUnit::Microseconds.seconds(t), t), t);
    }
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
        out.date(name, text, local.0);
    }
    match meta.compression() {
        None => out.field("Compressor", "-"),
        Some(info) => {
            let class = format!("org.apache.cassandra.io.compress.{}", info.class_name());
            out.field("Compressor", &class);
            out.field("Compression ratio", &java_double(stats.compression_ratio));
        }
    }
    for (name, ttl) in [("TTL min", stats.min_ttl), ("TTL max", stats.max_ttl)] {
        out.commented(name, &ttl.to_string(), duration_text(ttl).as_deref());
    }
    let (first, last) = meta.key_range();
    for (name, token, key) in
        [("First token", meta.first_token(), first), ("Last token", meta.last_token(), last)]
    {
        let token = match statistics.partitioner {
            Partitioner::Murmur3 => token.to_string(),
            Partitioner::ByteOrdered => CqlType::Blob.format_plain(key),
        };
        out.commented(name, &token, Some(&key_text(&header.key_types, key)));
    }
    out.field("Covered clusterings", &covered(stats, &header.clustering_types));
    let droppable = droppable_ratio(stats, now.0.saturating_sub(options.gc_grace_seconds));
    out.field("Estimated droppable tombstones", &java_double(droppable));
    out.field("SSTable Level", &stats.level.to_string());
    let repaired = date_text(stats.repaired_at / 1000, stats.repaired_at);
    out.commented("Repaired at", &stats.repaired_at.to_string(), repaired.as_deref());
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
    let date_of = |at| {
        let seconds = i64::try_from(at).unwrap_or(i64::MAX);
        date_text(seconds, seconds)
    };
    out.histogram("Drop Time", &times, Some(&date_of));
    out.field("Partition Size", "");
    out.histogram("Size (bytes)", &filled(&stats.partition_sizes), Some(&bytes_text));
    out.field("Column Count", "");
    out.histogram("Columns", &filled(&stats.cells_per_partition), None);
    let coverage = stats.token_coverage.map_or("NaN".to_owned(), java_double);
    out.field("Local token space coverage", &coverage);
    let cardinality = estimate_serialised(&statistics.cardinality);
    out.field("Estimated cardinality", &cardinality.map_or("--".to_owned(), |n| n.to_string()));
    let bases = &header.stats;
    let ttl = bases.min_ttl;
    out.commented("EncodingStats minTTL", &ttl.to_string(), duration_text(ttl).as_deref());
    let local = bases.min_local_deletion.0;
    out.date("EncodingStats minLocalDeletionTime", date_text(local, local), local);
    let least = bases.min_timestamp.0;
    let date = date_text(options.unit.seconds(least), least);
    out.date("EncodingStats minTimestamp", date, least);
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
    out.out
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

/// Estimated share of cells that are tombstones, or expired, from before that second.
pub fn droppable_ratio(stats: &StatsMetadata, before: i64) -> f64 {
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
    fn timestamps_are_taken_in_any_of_javas_units() {
        use TimestampUnit::*;
        let at = |unit: TimestampUnit, time| unit.seconds(time);
        assert_eq!(at(Microseconds, 1_700_000_000_999_999), 1_700_000_000);
        assert_eq!(at(Nanoseconds, 1_700_000_000_999_999_999), 1_700_000_000);
        assert_eq!((at(Milliseconds, 1_999), at(Seconds, 1_999)), (1, 1_999));
        assert_eq!((at(Minutes, 2), at(Hours, 2), at(Days, 2)), (120, 7_200, 172_800));
        assert_eq!(at(Days, i64::MAX), i64::MAX / 1_000);
    }
}
