//! Tools that change a table's directory: state of repair, levels, pieces, what can be saved. None
//! of them runs while a node has the directory open.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use rt::{FileLock, Rt};
use sstable::offline::{self, Unfit};
use sstable::repair_state::{RepairState, write_level, write_repair_state};
use sstable::{Component, SstableError, SstableReader, Written};

use super::out::{Out, Progress, fixed3};
use super::targets::{Found, Search, Target, find};
use super::{Failure, report};
use tool_io::exit;

/// Bytes of a megabyte in Cassandra's tools.
const MEGABYTE: u64 = 1 << 20;

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RepairedSet {
    /// Says that no node runs on the files
    #[arg(long, required = true)]
    really_set: bool,
    /// Mark as repaired at the time when Data was written
    #[arg(long, required_unless_present = "is_unrepaired", conflicts_with = "is_unrepaired")]
    is_repaired: bool,
    /// Mark as not repaired
    #[arg(long)]
    is_unrepaired: bool,
    /// File with a path on each line
    #[arg(short = 'f', value_name = "LIST")]
    list: Option<String>,
    /// Files (any component)
    #[arg(required_unless_present = "list", value_name = "FILE")]
    files: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Levels {
    /// Put all files on level 0, as Cassandra's sstablelevelreset does
    Reset {
        /// Says that no node runs on the files
        #[arg(long, required = true)]
        really_reset: bool,
        /// Directories of the table
        #[arg(required = true, value_name = "DIR")]
        directories: Vec<String>,
    },
    /// Give files new levels without overlaps, as Cassandra's sstableofflinerelevel does
    Relevel {
        /// Print the levels only
        #[arg(long)]
        dry_run: bool,
        /// Directories of the table
        #[arg(required = true, value_name = "DIR")]
        directories: Vec<String>,
    },
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Most megabytes of a new file
    #[arg(long, short, default_value_t = 50, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    size: u64,
    /// Do not keep the old files as a snapshot
    #[arg(long)]
    no_snapshot: bool,
    /// Files (any component)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// Do not keep the old files as a snapshot
    #[arg(long)]
    no_snapshot: bool,
    /// Go on behind damage in files of counters too, which count less then
    #[arg(short = 's', long)]
    skip_corrupted: bool,
    /// Do not hold values against the types of their columns
    #[arg(short = 'n', long)]
    no_validate: bool,
    /// Have rows whose time to live went beyond 2038, in files before version oa, win over what
    /// deleted them
    #[arg(short = 'r', long)]
    reinsert_overflowed_ttl: bool,
    /// Files (any component) or directories of tables
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

fn unfit(error: &Unfit) -> u8 {
    complain_line!("helenus sstable: {error}");
    match error {
        Unfit::InUse(_) => exit::IN_USE,
        Unfit::Unfinished(_) | Unfit::Released(_) => exit::DAMAGED,
        Unfit::Io(_) => exit::FAILED,
    }
}

/// File sets by directory, with locks that keep nodes away from all of them.
pub(super) type Locked = (BTreeMap<String, Vec<Target>>, Vec<FileLock>);

/// Finds and locks the file sets of the paths. The error is the exit code; the cause is already
/// printed.
async fn found(rt: &Rt, paths: &[String]) -> Result<Locked, u8> {
    let found = find(paths, Search::default()).map_err(|lines| super::wrong_paths(&lines))?;
    locked(rt, found.all()?).await
}

pub(super) async fn locked(rt: &Rt, targets: Vec<Target>) -> Result<Locked, u8> {
    let mut by_directory: BTreeMap<String, Vec<Target>> = BTreeMap::new();
    for target in targets {
        by_directory.entry(target.directory.clone()).or_default().push(target);
    }
    let directories: Vec<&str> = by_directory.keys().map(String::as_str).collect();
    let mut locks = Vec::new();
    for path in offline::lock_files(&rt.fs(), &directories).await.map_err(|e| unfit(&e.into()))? {
        locks.push(offline::take_lock(&rt.fs(), &path).await.map_err(|e| unfit(&e))?);
    }
    for (directory, targets) in &by_directory {
        let sets: Vec<_> = targets.iter().map(|t| t.set).collect();
        offline::check_fit(&rt.fs(), directory, &sets).await.map_err(|e| unfit(&e))?;
    }
    Ok((by_directory, locks))
}

async fn open(rt: &Rt, target: &Target) -> Result<SstableReader, SstableError> {
    SstableReader::open(&rt.fs(), &target.directory, target.set, None).await
}

fn failed(target: &Target, error: SstableError) -> u8 {
    report(&target.file(Component::Data), &Failure::File(error))
}

/// Runs `repairedset`.
pub(super) async fn repaired_set(rt: &Rt, options: &RepairedSet) -> u8 {
    let mut paths = options.files.clone();
    if let Some(list) = &options.list {
        match std::fs::read_to_string(list) {
            Ok(text) => paths
                .extend(text.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned)),
            Err(error) => {
                complain_line!("helenus sstable: {list}: {error}");
                return exit::USAGE;
            }
        }
    }
    if let Some(directory) = paths.iter().find(|path| std::path::Path::new(path).is_dir()) {
        complain_line!(
            "helenus sstable: {directory} is a directory; expects components of SSTables"
        );
        return exit::USAGE;
    }
    let (by_directory, _locks) = match found(rt, &paths).await {
        Ok(found) => found,
        Err(code) => return code,
    };
    let mut worst = exit::OK;
    for target in by_directory.values().flatten() {
        let data = target.file(Component::Data);
        // Cassandra's tool uses the time of the file as that of the repair.
        let repaired_at = match options.is_repaired {
            true => modified_millis(&data),
            false => 0,
        };
        let state = RepairState { repaired_at, pending: None };
        let done = match open(rt, target).await {
            Ok(reader) => write_repair_state(&rt.fs(), reader.meta(), state).await,
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            worst = worst.max(failed(target, error));
        }
    }
    worst
}

fn modified_millis(path: &str) -> i64 {
    let modified = std::fs::metadata(path).and_then(|m| m.modified()).ok();
    let since = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    // 0 would mean "not repaired".
    since.and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(1).max(1)
}

/// Runs `levels`.
pub(super) async fn levels(rt: &Rt, options: &Levels) -> u8 {
    let (Levels::Reset { directories, .. } | Levels::Relevel { directories, .. }) = options;
    let found = find(directories, Search::default());
    let targets = match found.map_err(|lines| super::wrong_paths(&lines)).and_then(Found::all) {
        Ok(targets) => targets,
        Err(code) => return code,
    };
    let mut out = Out::new();
    if targets.is_empty() {
        match options {
            Levels::Reset { .. } => {
                out.line("Found no sstables, did you give the correct keyspace/table?");
                return super::finish(out);
            }
            Levels::Relevel { .. } => {
                out.line(&format!("No sstables to relevel for {}", directories.join(" ")));
                return super::finish(out).max(exit::FAILED);
            }
        }
    }
    let is_dry = matches!(options, Levels::Relevel { dry_run: true, .. });
    let mut by_directory: BTreeMap<String, Vec<Target>> = BTreeMap::new();
    let mut _locks = Vec::new();
    if is_dry {
        for target in targets {
            by_directory.entry(target.directory.clone()).or_default().push(target);
        }
    } else {
        match locked(rt, targets).await {
            Ok(found) => (by_directory, _locks) = found,
            Err(code) => return code,
        }
    }
    let mut worst = exit::OK;
    for (directory, targets) in &by_directory {
        let mut readers = Vec::new();
        for target in targets {
            match open(rt, target).await {
                Ok(reader) => readers.push((target, reader)),
                Err(error) => {
                    out.line(&format!("Couldn't open sstable: {}", target.file(Component::Data)));
                    worst = worst.max(failed(target, error));
                }
            }
        }
        let done = match options {
            Levels::Reset { .. } => reset(rt, &readers, &mut out).await,
            // Levels that leave a file out would overlap with it.
            Levels::Relevel { .. } if readers.len() < targets.len() => continue,
            Levels::Relevel { .. } => {
                out.line(&format!("For sstables in {directory}:"));
                relevel(rt, &readers, is_dry, &mut out).await
            }
        };
        worst = worst.max(done);
    }
    worst.max(super::finish(out))
}

fn level_of(reader: &SstableReader) -> i32 {
    reader.meta().statistics().stats.level
}

async fn reset(rt: &Rt, readers: &[(&Target, SstableReader)], out: &mut Out) -> u8 {
    let mut worst = exit::OK;
    for (target, reader) in readers {
        let (level, data) = (level_of(reader), target.file(Component::Data));
        if level <= 0 {
            out.line(&format!("Skipped {data} since it is already on level 0"));
            continue;
        }
        out.line(&format!("Changing level from {level} to 0 on {data}"));
        if let Err(error) = write_level(&rt.fs(), reader.meta(), 0).await {
            worst = worst.max(failed(target, error));
        }
    }
    worst
}

async fn relevel(rt: &Rt, readers: &[(&Target, SstableReader)], is_dry: bool, out: &mut Out) -> u8 {
    let print = |out: &mut Out, levels: &[i32]| {
        for level in 0..=levels.iter().copied().max().unwrap_or(0) {
            let count = levels.iter().filter(|l| **l == level).count();
            out.line(&format!("L{level}={count}"));
        }
    };
    let before: Vec<i32> = readers.iter().map(|(_, reader)| level_of(reader)).collect();
    let metas: Vec<_> = readers.iter().map(|(_, reader)| &**reader.meta()).collect();
    let after = offline::relevel(&metas);
    out.line("Current leveling:");
    print(out, &before);
    out.line(if is_dry { "Potential leveling: " } else { "New leveling: " });
    print(out, &after);
    let mut worst = exit::OK;
    for ((target, reader), (before, after)) in readers.iter().zip(before.iter().zip(&after)) {
        if is_dry || before == after {
            continue;
        }
        if let Err(error) = write_level(&rt.fs(), reader.meta(), *after).await {
            worst = worst.max(failed(target, error));
        }
    }
    worst
}

/// Runs `split`.
pub(super) async fn split(rt: &Rt, options: &Split) -> u8 {
    let (by_directory, _locks) = match found(rt, &options.files).await {
        Ok(found) => found,
        Err(code) => return code,
    };
    let mut out = Out::new();
    let (mut worst, mut any) = (exit::OK, false);
    let tag = format!("pre-split-{}", rt.wall().millis());
    for target in by_directory.values().flatten() {
        let reader = match open(rt, target).await {
            Ok(reader) => reader,
            Err(error) => {
                worst = worst.max(failed(target, error));
                continue;
            }
        };
        let length = reader.meta().data_file_length();
        if length <= options.size.saturating_mul(MEGABYTE) {
            out.line(&format!(
                "Skipping {}: it's size ({} MB) is less than the split size ({} MB)",
                target.file(Component::Data),
                fixed3(length as f64 / MEGABYTE as f64),
                options.size
            ));
            continue;
        }
        any = true;
        let limit = options.size.saturating_mul(MEGABYTE);
        let result = split_one(rt, target, &reader, limit, options, &tag).await;
        match result {
            Ok(written) => out.line(&written_line(target, &written)),
            Err(error) => worst = worst.max(failed(target, error)),
        }
    }
    if !any && worst == exit::OK {
        out.line("No sstables needed splitting.");
    } else if any && !options.no_snapshot {
        out.line(&format!("Pre-split sstables snapshotted into snapshot {tag}"));
    }
    worst.max(super::finish(out))
}

async fn split_one(
    rt: &Rt,
    target: &Target,
    reader: &SstableReader,
    limit: u64,
    options: &Split,
    tag: &str,
) -> Result<Vec<Written>, SstableError> {
    let (fs, directory) = (rt.fs(), target.directory.as_str());
    if !options.no_snapshot {
        offline::snapshot(&fs, directory, target.set, tag).await?;
    }
    let first = offline::next_generation(&fs, directory).await?;
    let mut progress = Progress::new(&format!("split {}", target.file(Component::Data)));
    let to = offline::Rewrite { fs: &fs, at: &mut |done, total| progress.at(done, total) };
    let written = offline::split(to, reader, limit, first).await?;
    drop(progress);
    replace(rt, target, &written).await?;
    Ok(written)
}

/// Removes a file set once those that take its place were read again and found whole.
async fn replace(rt: &Rt, target: &Target, written: &[Written]) -> Result<(), SstableError> {
    let (fs, directory) = (rt.fs(), target.directory.as_str());
    for new in written {
        let reader = SstableReader::open(&fs, directory, new.descriptor, None).await?;
        let mut progress = Progress::new(&format!("read again {}", new.descriptor.prefix()));
        offline::verify_with(&reader, &mut |done, total| progress.at(done, total)).await?;
    }
    sstable::remove_sstable(&fs, directory, target.set).await?;
    fs.sync_dir(directory).await?;
    Ok(())
}

fn written_line(target: &Target, written: &[Written]) -> String {
    let names: Vec<String> = written
        .iter()
        .map(|w| format!("{} ({} partitions)", w.descriptor.prefix(), w.partitions))
        .collect();
    format!("{}: {}", target.file(Component::Data), names.join(", "))
}

/// Runs `scrub`.
pub(super) async fn scrub(rt: &Rt, options: &Scrub) -> u8 {
    let (by_directory, _locks) = match found(rt, &options.paths).await {
        Ok(found) => found,
        Err(code) => return code,
    };
    let mut out = Out::new();
    let mut worst = exit::OK;
    let tag = format!("pre-scrub-{}", rt.wall().millis());
    if !options.no_snapshot && !by_directory.is_empty() {
        out.line(&format!("Pre-scrub sstables snapshotted into snapshot {tag}"));
    }
    for target in by_directory.values().flatten() {
        match scrub_one(rt, target, options, &tag, &mut out).await {
            Ok(code) => worst = worst.max(code),
            Err(error) => worst = worst.max(failed(target, error)),
        }
    }
    worst.max(super::finish(out))
}

async fn scrub_one(
    rt: &Rt,
    target: &Target,
    options: &Scrub,
    tag: &str,
    out: &mut Out,
) -> Result<u8, SstableError> {
    let (fs, directory) = (rt.fs(), target.directory.as_str());
    let data = target.file(Component::Data);
    if !options.no_snapshot {
        offline::snapshot(&fs, directory, target.set, tag).await?;
    }
    let first = offline::next_generation(&fs, directory).await?;
    let mut tell = |loss: &offline::Loss| out.line(&format!("{data}: {loss}"));
    let how = offline::ScrubOptions {
        skip_corrupted: options.skip_corrupted,
        validate: !options.no_validate,
        reinsert_overflowed_ttl: options.reinsert_overflowed_ttl,
    };
    let mut progress = Progress::new(&format!("scrub {data}"));
    let mut at = |done, total| progress.at(done, total);
    let told = offline::Told { loss: &mut tell, at: &mut at };
    let done = offline::scrub(&fs, directory, target.set, first, how, told).await?;
    drop(progress);
    for bad in &done.bad_components {
        out.line(&format!("{data}: made anew: {bad}"));
    }
    if done.written.is_empty() {
        out.line(&format!("{data}: nothing could be read; the file stays where it is"));
        return Ok(exit::DAMAGED);
    }
    replace(rt, target, &done.written).await?;
    out.line(&written_line(target, &done.written));
    out.line(&format!(
        "{data}: {} partitions and {} rows written, out of order: {} partitions and {} rows, losses: {}",
        done.partitions, done.rows, done.out_of_order, done.rows_out_of_order, done.losses
    ));
    if done.fixed_rows > 0 {
        out.line(&format!("Fixed {} rows with overflowed local deletion time.", done.fixed_rows));
    }
    Ok(if done.losses == 0 { exit::OK } else { exit::DAMAGED })
}
