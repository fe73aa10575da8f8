//! `partitions`: Cassandra's `sstablepartitions`. Source: `tools.SSTablePartitions`.

use clap::Args;
use rt::Rt;
use sstable::offline::{
    Detail, KeyRange, PartitionScan, PartitionStats, ScanClock, key_of_text, key_text, range_of_key,
};
use sstable::{Component, SstableError, SstableReader};
use stdx::DeletionSeconds;

use super::out::{Out, Progress, hex, memory};
use super::targets::{Search, Target, find};
use super::{Failure, report};

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Partition key to look at; may be given several times
    #[arg(long, short, value_name = "KEY", allow_hyphen_values = true)]
    key: Vec<String>,
    /// Partition key to leave out; may be given several times
    #[arg(long, short = 'x', value_name = "KEY", allow_hyphen_values = true)]
    exclude_key: Vec<String>,
    /// Look into directories below, too
    #[arg(long, short)]
    recursive: bool,
    /// Look into snapshots, too (with --recursive)
    #[arg(long, short)]
    snapshots: bool,
    /// Look into backups, too (with --recursive)
    #[arg(long, short)]
    backups: bool,
    /// Sizes only: rows, cells and tombstones are not counted
    #[arg(long, short = 'y')]
    partitions_only: bool,
    /// Name partitions of that size or more: bytes, or a number with B, KiB, MiB, GiB
    #[arg(long, short = 't', value_name = "SIZE", value_parser = size)]
    min_size: Option<u64>,
    /// Name partitions of that many tombstones or more
    #[arg(long, short = 'o', value_name = "COUNT")]
    min_tombstones: Option<u64>,
    /// Name partitions of that many cells or more
    #[arg(long, short = 'c', value_name = "COUNT")]
    min_cells: Option<u64>,
    /// Name partitions of that many rows or more
    #[arg(long, short = 'w', value_name = "COUNT")]
    min_rows: Option<u64>,
    /// Print comma-separated values
    #[arg(long, short = 'm')]
    csv: bool,
    /// Seconds since 1970 by which times to live are over; now by default
    #[arg(long, short = 'u', value_name = "SECONDS")]
    current_timestamp: Option<u32>,
    /// Files (any component) or directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

fn size(text: &str) -> Result<u64, String> {
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err("expects bytes, or a number with B, KiB, MiB or GiB".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "expects a number".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "is too large".to_owned())
}

/// Runs the tool.
pub(super) async fn run(rt: &Rt, options: &Options) -> u8 {
    let search = Search {
        recursive: options.recursive,
        snapshots: options.snapshots,
        backups: options.backups,
    };
    let (targets, mut worst) = match find(&options.paths, search) {
        Ok(found) => found.told(),
        Err(lines) => return super::wrong_paths(&lines),
    };
    let mut out = Out::new();
    if options.csv {
        out.line(
            "key,keyBinary,live,offset,size,rowCount,cellCount,tombstoneCount,rowTombstoneCount,\
             rangeTombstoneCount,complexTombstoneCount,cellTombstoneCount,rowTtlExpired,\
             cellTtlExpired,directory,keyspace,table,index,snapshot,backup,generation,format,version",
        );
    }
    for target in targets {
        if let Err(error) = file(rt, options, &target, &mut out).await {
            worst = worst.max(report(&target.file(Component::Data), &Failure::File(error)));
        }
        if out.is_broken() {
            break;
        }
    }
    worst.max(super::finish(out))
}

async fn file(
    rt: &Rt,
    options: &Options,
    target: &Target,
    out: &mut Out,
) -> Result<(), SstableError> {
    let reader = SstableReader::open(&rt.fs(), &target.directory, target.set, None).await?;
    let meta = reader.meta();
    let now = rt.wall().seconds();
    let now = options.current_timestamp.map_or(now, |at| DeletionSeconds(i64::from(at)));
    if !options.csv {
        out.line(&format!(
            "\nProcessing {} ({} uncompressed, {} on disk)",
            target.name(),
            memory(meta.data_length()),
            memory(meta.data_file_length())
        ));
    }
    let header = &meta.statistics().header;
    let mut ranges = Vec::new();
    for text in options.key.iter().filter(|key| !options.exclude_key.contains(key)) {
        match key_of_text(header, text) {
            Ok(key) => ranges.push((meta.token_of(&key), key)),
            Err(error) => {
                complain_line!(
                    "Cannot use one or more partition keys in [{}] for the partition key type \
                     ('{}') of the underlying table: {error}",
                    options.key.join(", "),
                    header.key_type_name()
                );
                ranges.clear();
                break;
            }
        }
    }
    ranges.sort();
    ranges.dedup();
    let mut ranges: Vec<_> = ranges.iter().map(|(token, key)| range_of_key(*token, key)).collect();
    // Like Cassandra's tool, scan all partitions if no key is usable.
    if ranges.is_empty() {
        ranges.push(KeyRange::all());
    }
    let clock = ScanClock { now, gc_before: DeletionSeconds(i64::MIN) };
    let detail = if options.partitions_only { Detail::Sizes } else { Detail::Rows };
    let mut seen = Seen::default();
    let mut matches = Vec::new();
    let mut progress = Progress::new(&target.file(Component::Data));
    for range in ranges {
        let mut scan = PartitionScan::new(&reader, range, clock, detail);
        while let Some(stats) = scan.next().await? {
            progress.at(stats.offset.saturating_add(stats.size), meta.data_length());
            let key = key_text(&header.key_types, &stats.key);
            if options.exclude_key.contains(&key) {
                continue;
            }
            seen.add(&stats);
            if !options.is_match(&stats) {
                continue;
            }
            out.line(&match options.csv {
                true => csv_line(target, &key, &stats),
                false => plain_line(&key, &stats, options.partitions_only),
            });
            matches.push(key);
            if out.is_broken() {
                return Ok(());
            }
        }
    }
    drop(progress);
    if !options.csv {
        summary(target, &seen, &matches, options.partitions_only, out);
    }
    Ok(())
}

impl Options {
    fn is_match(&self, stats: &PartitionStats) -> bool {
        let reaches = |limit: Option<u64>, count: u64| limit.is_some_and(|limit| count >= limit);
        reaches(self.min_size, stats.size)
            || reaches(self.min_rows, stats.rows)
            || reaches(self.min_cells, stats.cells)
            || reaches(self.min_tombstones, stats.tombstones())
    }
}

fn live(stats: &PartitionStats) -> &'static str {
    if stats.live { "live" } else { "not live" }
}

fn plain_line(key: &str, stats: &PartitionStats, sizes_only: bool) -> String {
    let (hex, live, size) = (hex(&stats.key), live(stats), memory(stats.size));
    let start = format!("  Partition: '{key}' ({hex}) {live}, size: {size}");
    if sizes_only {
        return start;
    }
    format!(
        "{start}, rows: {}, cells: {}, tombstones: {} (row:{}, range:{}, complex:{}, cell:{}, \
         row-TTLd:{}, cell-TTLd:{})",
        stats.rows,
        stats.cells,
        stats.tombstones(),
        stats.row_tombstones,
        stats.range_tombstones,
        stats.complex_tombstones,
        stats.cell_tombstones,
        stats.rows_expired,
        stats.cells_expired
    )
}

/// A key with blanks stands in quotes.
fn quoted(key: &str) -> String {
    if key.contains(' ') { format!("\"{}\"", key.replace('"', "\"\"")) } else { key.to_owned() }
}

fn csv_line(target: &Target, key: &str, stats: &PartitionStats) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let fields = [
        format!("\"{}\"", quoted(key)),
        hex(&stats.key),
        stats.live.to_string(),
        stats.offset.to_string(),
        stats.size.to_string(),
        stats.rows.to_string(),
        stats.cells.to_string(),
        stats.tombstones().to_string(),
        stats.row_tombstones.to_string(),
        stats.range_tombstones.to_string(),
        stats.complex_tombstones.to_string(),
        stats.cell_tombstones.to_string(),
        stats.rows_expired.to_string(),
        stats.cells_expired.to_string(),
        target.file(Component::Data),
        text(&target.keyspace),
        text(&target.table),
        text(&target.index),
        text(&target.snapshot),
        text(&target.backup),
        target.set.id(),
        target.format().to_owned(),
        target.set.version.to_string(),
    ];
    fields.join(",")
}

/// The numbers of all partitions of a file.
#[derive(Default)]
struct Seen {
    sizes: Numbers,
    rows: Numbers,
    cells: Numbers,
    tombstones: Numbers,
}

/// A distribution, with the smallest number but 0, as the tool counts it.
#[derive(Default)]
struct Numbers {
    all: sstable::offline::Distribution,
    min: u64,
}

impl Numbers {
    fn add(&mut self, value: u64) {
        self.all.add(value);
        if self.min == 0 || value < self.min {
            self.min = value;
        }
    }
}

impl Seen {
    fn add(&mut self, stats: &PartitionStats) {
        self.sizes.add(stats.size);
        self.rows.add(stats.rows);
        self.cells.add(stats.cells);
        self.tombstones.add(stats.tombstones());
    }

    fn line(&self, name: &str, sizes_only: bool, of: impl Fn(&Numbers) -> u64) -> String {
        let start = format!("  {name:<5}  {:>20}", memory(of(&self.sizes)));
        if sizes_only {
            return start;
        }
        let rest = [&self.rows, &self.cells, &self.tombstones].map(&of);
        let [rows, cells, tombstones] = rest;
        format!("{start} {rows:>20} {cells:>20} {tombstones:>20}")
    }
}

fn summary(target: &Target, seen: &Seen, matches: &[String], sizes_only: bool, out: &mut Out) {
    if !matches.is_empty() {
        out.line(&format!("Summary of {}:", target.name()));
        out.line(&format!("  File: {}", target.file(Component::Data)));
        out.line(&format!("  {} partitions match", matches.len()));
        out.print("  Keys:");
        for key in matches {
            out.print(&format!(" {}", quoted(key)));
        }
        out.print("\n");
    }
    let size = "Partition size";
    out.line(&match sizes_only {
        true => format!("         {size:>20}"),
        false => {
            let (rows, cells, tombstones) = ("Row count", "Cell count", "Tombstone count");
            format!("         {size:>20} {rows:>20} {cells:>20} {tombstones:>20}")
        }
    });
    for (name, share) in [
        ("~p50", 0.5),
        ("~p75", 0.75),
        ("~p90", 0.9),
        ("~p95", 0.95),
        ("~p99", 0.99),
        ("~p999", 0.999),
    ] {
        out.line(&seen.line(name, sizes_only, |n| n.all.bucket_percentile(share)));
    }
    out.line(&seen.line("min", sizes_only, |n| n.min));
    out.line(&seen.line("max", sizes_only, |n| n.all.max));
    out.line(&format!("  count  {:>20}", seen.sizes.all.count));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_units_of_cassandra() {
        for (text, bytes) in
            [("0", 0), ("10", 10), ("10B", 10), ("10KiB", 10 << 10), ("3GiB", 3 << 30)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "-1", "10kib", "10 KiB", "KiB", "99999999999GiB", "1.5MiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_with_blanks_stand_in_quotes() {
        assert_eq!(quoted("a\"b"), "a\"b");
        assert_eq!(quoted("a \"b"), "\"a \"\"b\"");
    }
}
