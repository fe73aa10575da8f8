//! Statistics of tables on disk: the analyses of Instaclustr's tools for Cassandra.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use clap::Args;
use rt::Rt;
use serde_json::{Value, json};
use sstable::offline::{
    self, Detail, Distribution, Expiry, FileTotals, PartitionTotals, ScanClock, TableAnalysis,
    key_text, micros_text,
};
use sstable::{Component, SstableReader};
use stdx::DeletionSeconds;

use super::out::{Out, Progress, Table, fixed3, key_cell, memory};
use super::targets::{Search, Target, find};
use super::{Failure, report};
use tool_io::exit;

/// Default of `gc_grace_seconds`.
const GC_GRACE_SECONDS: u32 = 864_000;

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Look into directories below, too
    #[arg(long, short)]
    recursive: bool,
    /// Look into snapshots, too (with --recursive)
    #[arg(long, short)]
    snapshots: bool,
    /// Look into backups, too (with --recursive)
    #[arg(long, short)]
    backups: bool,
    /// Directories of tables, or files (any component)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// How many partitions are named of each kind
    #[arg(long, short, default_value_t = 10, value_name = "COUNT")]
    number: usize,
    /// Seconds after which tombstones count as droppable
    #[arg(long, short, default_value_t = GC_GRACE_SECONDS, value_name = "SECONDS")]
    gc_grace_seconds: u32,
    /// Print JSON, a line for each table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    paths: Paths,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Seconds after which tombstones count as droppable
    #[arg(long, short, default_value_t = GC_GRACE_SECONDS, value_name = "SECONDS")]
    gc_grace_seconds: u32,
    /// Print JSON, a line for each table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    paths: Paths,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ExpiredBlockers {
    /// Seconds after which tombstones count as droppable
    #[arg(long, short, default_value_t = GC_GRACE_SECONDS, value_name = "SECONDS")]
    gc_grace_seconds: u32,
    /// Directories of the table
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<String>,
}

/// File sets of one table. Those that cannot be opened are reported and left out.
struct Group {
    name: String,
    targets: Vec<Target>,
    readers: Vec<SstableReader>,
}

async fn groups(rt: &Rt, paths: &Paths) -> Result<(Vec<Group>, u8), u8> {
    let search =
        Search { recursive: paths.recursive, snapshots: paths.snapshots, backups: paths.backups };
    let (targets, mut worst) = match find(&paths.paths, search) {
        Ok(found) => found.told(),
        Err(lines) => return Err(super::wrong_paths(&lines)),
    };
    let mut by_table: BTreeMap<String, Vec<Target>> = BTreeMap::new();
    for target in targets {
        let mut name = target.table_name();
        // Files of a snapshot or backup are not part of the table's files.
        for (what, of) in
            [("index", &target.index), ("snapshot", &target.snapshot), ("backup", &target.backup)]
        {
            if let (Some(of), Some(_)) = (of, &target.table) {
                name.push_str(&format!(" {what} {of}"));
            }
        }
        if let Some(id) = &target.table_id {
            name.push_str(&format!(" {id}"));
        }
        by_table.entry(name).or_default().push(target);
    }
    let mut out = Vec::new();
    for (name, targets) in by_table {
        // The id distinguished tables that successively had the same name.
        let named = targets.first().and_then(|t| t.table_id.as_ref());
        let name = named.map_or(name.as_str(), |id| name.trim_end_matches(id.as_str()).trim_end());
        let mut group = Group { name: name.to_owned(), targets: Vec::new(), readers: Vec::new() };
        for target in targets {
            match SstableReader::open(&rt.fs(), &target.directory, target.set, None).await {
                Ok(reader) => {
                    group.readers.push(reader);
                    group.targets.push(target);
                }
                Err(error) => {
                    let path = target.file(Component::Data);
                    worst = worst.max(report(&path, &Failure::File(error)));
                }
            }
        }
        if !group.readers.is_empty() {
            out.push(group);
        }
    }
    if out.is_empty() && worst == exit::OK {
        complain_line!("helenus sstable: no SSTables in {}", paths.paths.join(" "));
        return Err(exit::FAILED);
    }
    Ok((out, worst))
}

fn clock(rt: &Rt, gc_grace_seconds: u32) -> ScanClock {
    let now = rt.wall().seconds();
    ScanClock { now, gc_before: offline::gc_before(now, gc_grace_seconds) }
}

fn time(micros: i64) -> String {
    micros_text(micros / 1_000_000 * 1_000_000)
}

/// Runs `cfstats` or, with [`Detail::Sizes`], `pstats`.
pub(super) async fn stats(rt: &Rt, options: &Analysis, detail: Detail) -> u8 {
    let (groups, mut worst) = match groups(rt, &options.paths).await {
        Ok(found) => found,
        Err(code) => return code,
    };
    let clock = clock(rt, options.gc_grace_seconds);
    let mut out = Out::new();
    for group in groups {
        let mut progress = Progress::new(&group.name);
        let mut at = |done, total| progress.at(done, total);
        let done = offline::analyse(&group.readers, clock, detail, options.number, &mut at).await;
        drop(progress);
        match done {
            Ok(found) if options.json => {
                out.line(&stats_json(&group, &found, detail).to_string());
            }
            Ok(found) => stats_text(&group, &found, detail, &mut out),
            Err(error) => worst = worst.max(report(&group.name, &Failure::File(error))),
        }
    }
    worst.max(super::finish(out))
}

/// A distribution's numbers under their names.
fn numbers(of: &Distribution) -> Vec<(&'static str, u64)> {
    vec![
        ("count", of.count),
        ("total", of.total),
        ("minimum", of.min),
        ("average", of.mean()),
        ("std dev.", of.deviation().round() as u64),
        ("50%", of.percentile(0.5)),
        ("75%", of.percentile(0.75)),
        ("90%", of.percentile(0.9)),
        ("95%", of.percentile(0.95)),
        ("99%", of.percentile(0.99)),
        ("99.9%", of.percentile(0.999)),
        ("maximum", of.max),
    ]
}

fn distribution_json(of: &Distribution) -> Value {
    let mut object: serde_json::Map<String, Value> = numbers(of)
        .into_iter()
        .map(|(name, number)| (name.trim_end_matches('.').replace(' ', "_"), number.into()))
        .collect();
    let buckets: Vec<Value> = of
        .buckets()
        .into_iter()
        .map(|(upto, count)| json!({ "upto": upto, "count": count }))
        .collect();
    object.insert("histogram".to_owned(), buckets.into());
    object.into()
}

fn partition_json(group: &Group, partition: &PartitionTotals, detail: Detail) -> Value {
    let stats = &partition.stats;
    let mut object = json!({
        "key": key_of(group, partition),
        "size": stats.size,
        "sstables": partition.files,
    });
    if let (Detail::Rows, Some(map)) = (detail, object.as_object_mut()) {
        for (name, number) in [
            ("rows", stats.rows),
            ("row_deletions", stats.row_tombstones),
            ("tombstones", stats.tombstones()),
            ("droppable", stats.droppable),
            ("cells", stats.cells),
        ] {
            map.insert(name.to_owned(), number.into());
        }
        map.insert("deleted".to_owned(), (!stats.live).into());
    }
    object
}

fn key_of(group: &Group, partition: &PartitionTotals) -> String {
    group.readers.first().map_or(String::new(), |reader| {
        key_text(&reader.meta().statistics().header.key_types, &partition.stats.key)
    })
}

fn file_json(file: &FileTotals, detail: Detail) -> Value {
    let mut object = json!({
        "sstable": file.file,
        "disk_size": file.disk_bytes,
        "size": file.data_bytes,
        "min_timestamp": file.timestamps.0,
        "max_timestamp": file.timestamps.1,
        "level": file.level,
        "repaired_at": file.repaired_at,
        "droppable_ratio": file.droppable_ratio,
        "partitions": distribution_json(&file.partitions),
    });
    if let (Detail::Rows, Some(map)) = (detail, object.as_object_mut()) {
        for (name, number) in [
            ("deleted_partitions", file.deleted_partitions),
            ("rows", file.rows),
            ("row_deletions", file.row_deletions),
            ("tombstones", file.tombstones),
            ("droppable", file.droppable),
            ("cells", file.cells),
        ] {
            map.insert(name.to_owned(), number.into());
        }
    }
    object
}

/// The lists of leaders under their headings.
fn leaders(found: &TableAnalysis, detail: Detail) -> Vec<(&'static str, &Vec<PartitionTotals>)> {
    let mut lists = vec![("Largest partitions", &found.largest)];
    if detail == Detail::Rows {
        lists.push(("Widest partitions", &found.widest));
        lists.push(("Most deleted rows", &found.most_deleted));
        lists.push(("Tombstone leaders", &found.tombstone_leaders));
    }
    lists.push(("SSTable leaders", &found.file_leaders));
    lists
}

fn stats_json(group: &Group, found: &TableAnalysis, detail: Detail) -> Value {
    let mut object = json!({
        "table": group.name,
        "partition_size": distribution_json(&found.sizes),
        "sstables_per_partition": distribution_json(&found.spread),
        "sstables": found.files.iter().map(|f| file_json(f, detail)).collect::<Vec<_>>(),
    });
    let Some(map) = object.as_object_mut() else { return object };
    if detail == Detail::Rows {
        map.insert("rows_per_partition".to_owned(), distribution_json(&found.rows));
        for (name, number) in [
            ("partitions", found.sizes.count),
            ("deleted_partitions", found.deleted_partitions),
            ("rows", found.rows.total),
            ("row_deletions", found.row_deletions),
            ("cells", found.cells),
            ("tombstones", found.tombstones),
            ("droppable", found.droppable),
        ] {
            map.insert(name.to_owned(), number.into());
        }
    }
    for (name, list) in leaders(found, detail) {
        let list: Vec<Value> = list.iter().map(|p| partition_json(group, p, detail)).collect();
        map.insert(name.to_lowercase().replace(' ', "_"), list.into());
    }
    object
}

fn stats_text(group: &Group, found: &TableAnalysis, detail: Detail, out: &mut Out) {
    let with_rows = detail == Detail::Rows;
    out.line(&format!("{}: {} sstables", group.name, found.files.len()));
    if with_rows {
        out.line(&format!(
            "  partitions: {} (deleted: {}), rows: {} (deletions: {}), cells: {}, tombstones: {} \
             (droppable: {})",
            found.sizes.count,
            found.deleted_partitions,
            found.rows.total,
            found.row_deletions,
            found.cells,
            found.tombstones,
            found.droppable
        ));
    }
    out.line("\nSummary:");
    let mut table = match with_rows {
        true => Table::new(&["", "Size", "Rows", "SSTables"]),
        false => Table::new(&["", "Size", "SSTables"]),
    };
    let (sizes, rows, spread) =
        (numbers(&found.sizes), numbers(&found.rows), numbers(&found.spread));
    for ((size, rows), spread) in sizes.iter().zip(&rows).zip(&spread) {
        let of_size = if size.0 == "count" { size.1.to_string() } else { memory(size.1) };
        let mut row = vec![size.0.to_owned(), of_size];
        if with_rows {
            row.push(rows.1.to_string());
        }
        row.push(spread.1.to_string());
        table.row(row);
    }
    out.print(&table.text());
    histogram("Partition sizes", &found.sizes, memory, out);
    if with_rows {
        histogram("Rows per partition", &found.rows, |n| n.to_string(), out);
    }
    histogram("SSTables per partition", &found.spread, |n| n.to_string(), out);
    for (name, list) in leaders(found, detail) {
        let mut table = match with_rows {
            true => Table::new(&[
                "Key",
                "Size",
                "Rows",
                "(deleted)",
                "Tombstones",
                "(droppable)",
                "Cells",
                "SSTables",
            ]),
            false => Table::new(&["Key", "Size", "SSTables"]),
        };
        for partition in list {
            let stats = &partition.stats;
            let mut row = vec![key_cell(&key_of(group, partition)), memory(stats.size)];
            if with_rows {
                let numbers = [
                    stats.rows,
                    stats.row_tombstones,
                    stats.tombstones(),
                    stats.droppable,
                    stats.cells,
                ];
                row.extend(numbers.iter().map(u64::to_string));
            }
            row.push(partition.files.to_string());
            table.row(row);
        }
        if !table.is_empty() {
            out.line(&format!("\n{name}:"));
            out.print(&table.text());
        }
    }
    out.line("\nSSTables:");
    let mut heading = vec![
        "SSTable",
        "Disk size",
        "Size",
        "<Min timestamp",
        "<Max timestamp",
        "Level",
        "Partitions",
        "(avg size)",
        "(max size)",
    ];
    if with_rows {
        heading.extend(["(deleted)", "Rows", "(deleted)", "Tombstones", "(droppable)", "Cells"]);
    }
    let mut table = Table::new(&heading);
    for file in &found.files {
        let mut row = vec![
            file_name(&file.file).to_owned(),
            memory(file.disk_bytes),
            memory(file.data_bytes),
            time(file.timestamps.0),
            time(file.timestamps.1),
            file.level.to_string(),
            file.partitions.count.to_string(),
            memory(file.partitions.mean()),
            memory(file.partitions.max),
        ];
        if with_rows {
            let numbers = [
                file.deleted_partitions,
                file.rows,
                file.row_deletions,
                file.tombstones,
                file.droppable,
                file.cells,
            ];
            row.extend(numbers.iter().map(u64::to_string));
        }
        table.row(row);
    }
    out.print(&table.text());
    out.print("\n");
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

fn histogram(title: &str, of: &Distribution, bound: impl Fn(u64) -> String, out: &mut Out) {
    /// Characters of the longest bar.
    const BAR: u64 = 40;
    let buckets = of.buckets();
    let largest = buckets.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let mut table = Table::new(&[title, "Count", "<Histogram"]);
    for (upto, count) in buckets {
        let name = if upto == u64::MAX { "more".to_owned() } else { bound(upto.min(of.max)) };
        let bar = "#".repeat(usize::try_from((count * BAR).div_ceil(largest)).unwrap_or(0));
        table.row(vec![format!("<= {name}"), count.to_string(), bar]);
    }
    if !table.is_empty() {
        out.print("\n");
        out.print(&table.text());
    }
}

/// Runs `purge`.
pub(super) async fn purge(rt: &Rt, options: &Analysis) -> u8 {
    let (groups, mut worst) = match groups(rt, &options.paths).await {
        Ok(found) => found,
        Err(code) => return code,
    };
    let clock = clock(rt, options.gc_grace_seconds);
    let mut out = Out::new();
    for group in groups {
        let files: Vec<_> = group.targets.iter().map(|t| (t.directory.clone(), t.set)).collect();
        let mut progress = Progress::new(&group.name);
        let mut at = |done, total| progress.at(done, total);
        let done = offline::purge_preview(&rt.fs(), &files, clock, options.number, &mut at).await;
        drop(progress);
        let found = match done {
            Ok(found) => found,
            Err(error) => {
                worst = worst.max(report(&group.name, &Failure::File(error)));
                continue;
            }
        };
        let freed = found.size.saturating_sub(found.left);
        if options.json {
            let leaders: Vec<Value> = found
                .leaders
                .iter()
                .map(|p| {
                    json!({
                        "key": p.key, "size": p.size, "reclaimable": p.freed(), "sstables": p.files,
                    })
                })
                .collect();
            let object = json!({
                "table": group.name, "sstables": files.len(), "partitions": found.partitions,
                "gone_partitions": found.gone, "size": found.size, "reclaimable": freed,
                "largest_reclaimable_partitions": leaders,
            });
            out.line(&object.to_string());
            continue;
        }
        let percent = 100.0 * freed as f64 / found.size.max(1) as f64;
        out.line(&format!("{}: {} sstables", group.name, files.len()));
        out.line(&format!(
            "  reclaimable: {} of {} ({percent:.1} %), partitions: {} (of {} nothing is left)",
            memory(freed),
            memory(found.size),
            found.partitions,
            found.gone
        ));
        let mut table = Table::new(&["Key", "Size", "Reclaimable", "SSTables"]);
        for p in &found.leaders {
            let sizes = [memory(p.size), memory(p.freed())];
            let [size, freed] = sizes;
            table.row(vec![key_cell(&p.key), size, freed, p.files.to_string()]);
        }
        if !table.is_empty() {
            out.line("\nLargest reclaimable partitions:");
            out.print(&table.text());
        }
        out.print("\n");
    }
    worst.max(super::finish(out))
}

/// Runs `summary`.
pub(super) async fn summary(rt: &Rt, options: &Summary) -> u8 {
    let (groups, worst) = match groups(rt, &options.paths).await {
        Ok(found) => found,
        Err(code) => return code,
    };
    let mut found: Vec<_> = groups
        .iter()
        .filter_map(|group| Some((group, offline::summarise(&group.readers)?)))
        .collect();
    found.sort_by_key(|(_, summary)| Reverse(summary.max_timestamp));
    let gc_before = clock(rt, options.gc_grace_seconds).gc_before;
    let mut out = Out::new();
    let mut tables = Table::new(&[
        "Table",
        "SSTables",
        "Disk size",
        "Data size",
        "Partitions (est.)",
        "<Max timestamp",
        "<Last repaired",
        "Repair %",
    ]);
    for (group, summary) in &found {
        let mut files: Vec<&SstableReader> = group.readers.iter().collect();
        files.sort_by_key(|r| Reverse(r.meta().statistics().stats.max_timestamp));
        if options.json {
            let object = json!({
                "table": group.name, "sstables": summary.files, "disk_size": summary.disk_bytes,
                "size": summary.data_bytes, "estimated_partitions": summary.partitions,
                "min_timestamp": summary.min_timestamp, "max_timestamp": summary.max_timestamp,
                "last_repaired": summary.last_repaired, "repaired_disk_size": summary.repaired_bytes,
                "files": files.iter().map(|r| summary_json(r, gc_before)).collect::<Vec<_>>(),
            });
            out.line(&object.to_string());
            continue;
        }
        let percent = 100.0 * summary.repaired_bytes as f64 / summary.disk_bytes.max(1) as f64;
        tables.row(vec![
            group.name.clone(),
            summary.files.to_string(),
            memory(summary.disk_bytes),
            memory(summary.data_bytes),
            summary.partitions.to_string(),
            time(summary.max_timestamp),
            repaired(summary.last_repaired),
            format!("{percent:.1}"),
        ]);
    }
    if !tables.is_empty() {
        out.print(&tables.text());
    }
    for (group, _) in found.iter().filter(|_| !options.json) {
        out.line(&format!("\n{}:", group.name));
        out.print(&summary_files(group, gc_before).text());
    }
    worst.max(super::finish(out))
}

fn repaired(millis: i64) -> String {
    if millis == 0 { "never".to_owned() } else { time(millis.saturating_mul(1000)) }
}

fn summary_json(reader: &SstableReader, gc_before: DeletionSeconds) -> Value {
    let meta = reader.meta();
    let stats = &meta.statistics().stats;
    json!({
        "sstable": meta.file(Component::Data), "disk_size": meta.disk_bytes(),
        "size": meta.data_length(), "min_timestamp": stats.min_timestamp.0,
        "max_timestamp": stats.max_timestamp.0, "level": stats.level,
        "estimated_partitions": meta.estimated_partitions(),
        "average_partition_size": stats.partition_sizes.mean(),
        "max_partition_size": stats.partition_sizes.max(),
        "rows": stats.total_rows, "repaired_at": stats.repaired_at,
        "droppable_ratio": offline::droppable_ratio(stats, gc_before.0),
    })
}

fn summary_files(group: &Group, gc_before: DeletionSeconds) -> Table {
    let mut table = Table::new(&[
        "SSTable",
        "Disk size",
        "Data size",
        "<Min timestamp",
        "<Max timestamp",
        "Seconds",
        "Level",
        "Partitions (est.)",
        "(avg size)",
        "(max size)",
        "Cells (avg)",
        "(max)",
        "Droppable",
        "<Repaired at",
    ]);
    let mut files: Vec<&SstableReader> = group.readers.iter().collect();
    files.sort_by_key(|r| Reverse(r.meta().statistics().stats.max_timestamp));
    for reader in files {
        let meta = reader.meta();
        let stats = &meta.statistics().stats;
        let (min, max) = (stats.min_timestamp.0, stats.max_timestamp.0);
        table.row(vec![
            file_name(&meta.file(Component::Data)).to_owned(),
            memory(meta.disk_bytes()),
            memory(meta.data_length()),
            time(min),
            time(max),
            fixed3(max.saturating_sub(min) as f64 / 1e6),
            stats.level.to_string(),
            meta.estimated_partitions().to_string(),
            memory(stats.partition_sizes.mean()),
            memory(stats.partition_sizes.max()),
            stats.cells_per_partition.mean().to_string(),
            stats.cells_per_partition.max().to_string(),
            format!("{:.2}", offline::droppable_ratio(stats, gc_before.0)),
            repaired(stats.repaired_at),
        ]);
    }
    table
}

/// Runs `expiredblockers`. Source: `tools.SSTableExpiredBlockers`.
pub(super) async fn expired_blockers(rt: &Rt, options: &ExpiredBlockers) -> u8 {
    let (targets, mut worst) = match find(&options.directories, Search::default()) {
        Ok(found) => found.told(),
        Err(lines) => return super::wrong_paths(&lines),
    };
    let mut out = Out::new();
    let (mut names, mut files) = (Vec::new(), Vec::new());
    for target in &targets {
        let data = target.file(Component::Data);
        match SstableReader::open(&rt.fs(), &target.directory, target.set, None).await {
            Ok(reader) => {
                let class = if target.set.version.is_bti() { "Bti" } else { "Big" };
                let expiry = Expiry::of(reader.meta());
                let format = target.format();
                names.push(format!(
                    "[{class}TableReader:{format}(path='{data}') (minTS = {}, maxTS = {}, maxLDT = {})], ",
                    expiry.min_timestamp, expiry.max_timestamp, expiry.max_local_deletion.0
                ));
                files.push(expiry);
            }
            Err(error) => {
                out.line(&format!("Couldn't open sstable: {data} ({error})"));
                worst = worst.max(report(&data, &Failure::File(error)));
            }
        }
    }
    if files.is_empty() {
        let name = targets.first().map(Target::table_name);
        out.line(&format!("No sstables for {}", name.unwrap_or(options.directories.join(" "))));
        return worst.max(exit::FAILED).max(super::finish(out));
    }
    let before = clock(rt, options.gc_grace_seconds).gc_before;
    for (blocker, blocked) in offline::expired_blockers(&files, before) {
        let list: String =
            blocked.iter().filter_map(|i| names.get(*i)).map(String::as_str).collect();
        let name = names.get(blocker).map_or("", String::as_str);
        let count = blocked.len();
        out.line(&format!("{name} blocks {count} expired sstables from getting dropped: {list}\n"));
    }
    worst.max(super::finish(out))
}
