//! `helenus sstable`: offline tools over the files of an SSTable, layouts as Cassandra's tools. And
//! `helenus commitlog`.
//!
//! Owns: the command line of each tool, the selection of files, the output. Never: the bytes of
//! files (crates `sstable` and `commitlog`). Invariants: a tool that changes a directory refuses
//! one that a node has open.
//!
//! Reading order: [`commitlog`] stands alone; [`targets`], [`out`], [`partitions`], [`analyses`],
//! [`change`], [`schema_file`], [`export`], [`write`], [`parquet`], [`load`].

#[macro_use(say, say_line, complain, complain_line)]
extern crate tool_io;

mod analyses;
mod change;
pub mod commitlog;
mod export;
mod http;
pub mod keys;
mod load;
mod out;
mod parquet;
mod partitions;
mod schema_file;
mod targets;
mod write;

use std::cell::Cell;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use at_rest::KeyRing;
use clap::Subcommand;
use rt::{Machine, NativeOptions, NodeSpec, Rt};
use sstable::{
    Component, Descriptor, SstableError, SstableReader, Version, WriterOptions, offline,
};
use stdx::{DeletionSeconds, Generation};

use tool_io::exit;

/// Tools for files.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Print all partitions and rows as JSON, as Cassandra's sstabledump does
    Dump {
        /// Partition keys to print; several behind one -k, or several times
        #[arg(short, value_name = "KEY", num_args = 1.., allow_negative_numbers = true)]
        key: Vec<String>,
        /// Partition keys to leave out, in the same way
        #[arg(short = 'x', value_name = "KEY", num_args = 1.., allow_negative_numbers = true)]
        exclude_key: Vec<String>,
        /// Print partition keys only
        #[arg(short, conflicts_with = "lines")]
        enumerate_keys: bool,
        /// Print times as they are in the file: microseconds, seconds
        #[arg(short = 't')]
        raw_timestamps: bool,
        /// Print a line for each row, as the storage engine has it
        #[arg(short = 'd', conflicts_with_all = ["lines", "enumerate_keys"])]
        internal: bool,
        /// Print a line of JSON for each partition
        #[arg(short)]
        lines: bool,
        /// Any component of an SSTable, such as nb-1-big-Data.db, or a directory of a table
        #[arg(value_name = "FILE")]
        files: Vec<String>,
    },
    /// Print the metadata of files, as Cassandra's sstablemetadata does
    Metadata {
        /// Seconds after which tombstones count as droppable
        #[arg(
            long,
            short,
            alias = "gc_grace_seconds",
            default_value_t = 0,
            value_name = "SECONDS"
        )]
        gc_grace_seconds: u32,
        /// Read all rows, and name the widest and largest partitions and those with most tombstones
        #[arg(long, short)]
        scan: bool,
        /// Use ANSI sequences for colours
        #[arg(long, short)]
        colors: bool,
        /// Draw bars of block characters
        #[arg(long, short)]
        unicode: bool,
        /// Unit of timestamps, NANOSECONDS to DAYS, for "EncodingStats minTimestamp" only: like
        /// Cassandra's tool, reads all others as microseconds
        #[arg(
            long,
            short,
            alias = "timestamp_unit",
            default_value = "MICROSECONDS",
            value_name = "UNIT",
            value_parser = unit_named
        )]
        timestamp_unit: offline::TimestampUnit,
        /// Any component of an SSTable, such as nb-1-big-Data.db, or a directory of a table
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
    /// Read every byte and compare checksums, order, index and Bloom filter; changes nothing
    Verify {
        /// Any component of an SSTable, such as nb-1-big-Data.db, or a directory of a table
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
    /// Rewrite files in another version of the format, into another directory
    Upgrade {
        /// Version to write: me (Cassandra 3.11, ScyllaDB), nb (Cassandra 4), oa (5, BIG) or da (5, BTI)
        #[arg(long, default_value = "nb", value_name = "VERSION")]
        format: String,
        /// Directory for the new files; created if missing
        #[arg(long, short, value_name = "DIR")]
        output: String,
        /// Number of the first new file; the others count up. By default each keeps its own
        #[arg(long, value_name = "NUMBER")]
        generation: Option<u64>,
        /// Any component of an SSTable, such as nb-1-big-Data.db, or a directory of a table
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
    /// Name large partitions and print how sizes, rows and tombstones are spread, as Cassandra's
    /// sstablepartitions does
    Partitions(partitions::Options),
    /// Name files that keep expired ones from being dropped, as Cassandra's sstableexpiredblockers
    /// does
    #[command(name = "expiredblockers")]
    ExpiredBlockers(analyses::ExpiredBlockers),
    /// Tables and their files by the latest write: sizes, times, levels, state of repair
    Summary(analyses::Summary),
    /// Partitions over all files of a table: rows, deletions, tombstones, histograms, leaders
    Cfstats(analyses::Analysis),
    /// Sizes of partitions over all files of a table, from indexes where they tell
    Pstats(analyses::Analysis),
    /// Print the space that a compaction of all files of a table would free
    Purge(analyses::Analysis),
    /// Print the live rows of a table's files, merged, as CSV, lines of JSON or Parquet
    Export(export::Export),
    /// Create SSTables from rows in CSV, lines of JSON or Parquet, as Cassandra's CQLSSTableWriter does
    Write(write::Write),
    /// Send the rows of a table's files to a running cluster, as Cassandra's sstableloader does
    Load(load::Load),
    /// Mark files as repaired or not, as Cassandra's sstablerepairedset does
    #[command(name = "repairedset")]
    RepairedSet(change::RepairedSet),
    /// Give files other levels of leveled compaction
    #[command(subcommand)]
    Levels(change::Levels),
    /// Cut files into smaller ones, as Cassandra's sstablesplit does
    Split(change::Split),
    /// Rewrite files with all that can be read of them; the lost parts are named
    Scrub(change::Scrub),
}

impl Command {
    /// Files that are worked on one by one.
    fn files(&self) -> &[String] {
        match self {
            Command::Dump { files, .. }
            | Command::Metadata { files, .. }
            | Command::Verify { files }
            | Command::Upgrade { files, .. } => files,
            _ => &[],
        }
    }

    /// Moves files that were parsed as keys of `-k` or `-x` to the files.
    fn take_files_from_keys(&mut self) {
        if let Command::Dump { key, exclude_key, files, .. } = self
            && files.is_empty()
        {
            for list in [key, exclude_key] {
                while let Some(file) = list.pop_if(|value| locate(value).is_some()) {
                    files.insert(0, file);
                }
            }
        }
    }

    /// Runs a tool that finds its files itself. `None`: it is not one of these.
    async fn run(&self, rt: &Rt) -> Option<u8> {
        Some(match self {
            Command::Partitions(options) => partitions::run(rt, options).await,
            Command::ExpiredBlockers(options) => analyses::expired_blockers(rt, options).await,
            Command::Summary(options) => analyses::summary(rt, options).await,
            Command::Cfstats(options) => analyses::stats(rt, options, offline::Detail::Rows).await,
            Command::Pstats(options) => analyses::stats(rt, options, offline::Detail::Sizes).await,
            Command::Purge(options) => analyses::purge(rt, options).await,
            Command::Export(options) => export::run(rt, options).await,
            Command::Write(options) => write::run(rt, options).await,
            Command::Load(options) => load::run(rt, options).await,
            Command::RepairedSet(options) => change::repaired_set(rt, options).await,
            Command::Levels(options) => change::levels(rt, options).await,
            Command::Split(options) => change::split(rt, options).await,
            Command::Scrub(options) => change::scrub(rt, options).await,
            Command::Dump { .. }
            | Command::Metadata { .. }
            | Command::Verify { .. }
            | Command::Upgrade { .. } => return None,
        })
    }
}

/// Prints which paths are wrong.
fn wrong_paths(lines: &[String]) -> u8 {
    for line in lines {
        complain_line!("helenus sstable: {line}");
    }
    exit::USAGE
}

/// Ends the printing; the exit code of it.
fn finish(out: out::Out) -> u8 {
    match out.finish() {
        Ok(()) => exit::OK,
        Err(error) => report("", &Failure::Output(error)),
    }
}

/// Directory and name of the set of files that a path belongs to.
fn locate(path: &str) -> Option<(String, Descriptor)> {
    let (directory, name) = match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((directory, name)) => (directory, name),
        None => (".", path),
    };
    let (descriptor, _) = Descriptor::parse_any(name)?;
    Some((directory.to_owned(), descriptor))
}

/// A path to print, and the file set of it.
type Named = (String, String, Descriptor);

/// Returns the file sets that files, and directories of them, stand for, in the order of the paths;
/// and the exit code of files in directories that cannot be read. The error is the exit code; the
/// cause is printed.
fn worked_on(paths: &[String]) -> Result<(Vec<Named>, u8), u8> {
    let (mut named, mut worst) = (Vec::new(), exit::OK);
    for path in paths {
        if !std::path::Path::new(path).is_dir() {
            let (directory, descriptor) = locate(path).ok_or_else(|| {
                let name = path.rsplit('/').next().unwrap_or(path);
                match targets::foreign(name) {
                    Some(why) => complain_line!("helenus sstable: {path} is {why}"),
                    None => complain_line!(
                        "helenus sstable: \"{path}\" is not a component of an SSTable; expects a \
                         name such as nb-1-big-Data.db"
                    ),
                }
                exit::USAGE
            })?;
            named.push((path.clone(), directory, descriptor));
            continue;
        }
        let found = targets::find(std::slice::from_ref(path), targets::Search::default());
        let (found, code) = found.map_err(|lines| wrong_paths(&lines))?.told();
        worst = worst.max(code);
        if found.is_empty() && code == exit::OK {
            complain_line!("helenus sstable: no SSTables in {path}");
            worst = worst.max(exit::FAILED);
        }
        let directory = path.trim_end_matches('/');
        for target in found {
            let data = format!("{directory}/{}", target.set.file_name(Component::Data));
            named.push((data, target.directory, target.set));
        }
    }
    Ok((named, worst))
}

/// Runs the tool; the exit code: of several files the worst. `key_file`: keys of encrypted files.
pub fn main_with_keys(mut command: Command, key_file: Option<&str>) -> u8 {
    let keys = match key_file.map(keys::read).transpose() {
        Ok(keys) => keys,
        Err(what) => {
            complain_line!("helenus sstable: {what}");
            return exit::USAGE;
        }
    };
    command.take_files_from_keys();
    if matches!(&command, Command::Dump { files, .. } if files.is_empty()) {
        complain_line!(
            "helenus sstable: dump needs a FILE, a component of an SSTable such as nb-1-big-Data.db"
        );
        return exit::USAGE;
    }
    if let Command::Upgrade { format, .. } = &command
        && written_version(format).is_none()
    {
        complain_line!(
            "helenus sstable: \"{format}\" is not a version that is written: me, nb, oa or da"
        );
        return exit::USAGE;
    }
    let (targets, of_others) = match worked_on(command.files()) {
        Ok(found) => found,
        Err(code) => return code,
    };
    on_machine(keys, move |rt| {
        let (command, targets) = (command.clone(), targets.clone());
        async move {
            let mut worst = command.run(&rt).await.unwrap_or(of_others);
            for (number, (path, directory, descriptor)) in (0u64..).zip(targets) {
                let target = Target { path: &path, directory: &directory, descriptor, number };
                let result = run(&rt, &command, &target).await;
                if let Err(error) = result {
                    worst = worst.max(report(&path, &error));
                }
            }
            worst
        }
    })
}

#[cfg(test)]
fn main(command: Command) -> u8 {
    main_with_keys(command, None)
}

/// Runs a tool on a shard of its own, with keys of encrypted files; its exit code.
fn on_machine<F: Future<Output = u8> + 'static>(
    keys: Option<Arc<KeyRing>>,
    tool: impl Fn(Rt) -> F + Send + Sync + 'static,
) -> u8 {
    let code = Arc::new(Mutex::new(exit::FAILED));
    let of_main = code.clone();
    let machine = Machine::native(NativeOptions::default());
    let spec = NodeSpec { name: "sstable".to_owned(), shards: 1, work_dir: String::new() };
    let running = machine.start(
        spec,
        Arc::new(move |rt: Rt| {
            rt.set_file_keys(keys.clone());
            let (done, code) = (tool(rt), of_main.clone());
            Box::pin(async move {
                let worst = done.await;
                if let Ok(mut code) = code.lock() {
                    *code = worst;
                }
            })
        }),
    );
    if let Err(error) = running.join() {
        complain_line!("helenus sstable: {error}");
        return exit::FAILED;
    }
    code.lock().map_or(exit::FAILED, |code| *code)
}

/// Returns true if a file set is encrypted with a key that is not known.
async fn lacks_key(rt: &Rt, directory: &str, set: Descriptor) -> Result<bool, SstableError> {
    let fs = rt.fs();
    let Some(record) = sstable::key_record(&fs, directory, set).await? else { return Ok(false) };
    let opened = fs.keys().open_data_key(&record).await;
    Ok(matches!(opened, Err(at_rest::SealError::MissingKey { .. })))
}

/// Verifies an encrypted file whose key is not known.
async fn verify_unkeyed(rt: &Rt, target: &Target<'_>, what: String) -> Result<(), Failure> {
    let Target { path, directory, descriptor, .. } = *target;
    let checked = offline::verify_unkeyed(&rt.fs(), directory, descriptor).await?;
    match checked {
        Some(bytes) => {
            complain_line!(
                "helenus sstable: {path}: {what} (--key-file): its rows are not verified"
            );
            say_line!("{path}: checksums ok, {bytes} encrypted bytes");
            Ok(())
        }
        None => Err(SstableError::Unsupported { file: path.to_owned(), what }.into()),
    }
}

/// Why a file was not done.
enum Failure {
    File(SstableError),
    /// A partition key that is not of the table's type.
    Key(String),
    /// A value that the form of the output does not hold.
    Value(String),
    Output(std::io::Error),
}

impl From<SstableError> for Failure {
    fn from(error: SstableError) -> Failure {
        Failure::File(error)
    }
}

/// The unit of that name in Java.
fn unit_named(name: &str) -> Result<offline::TimestampUnit, String> {
    use offline::TimestampUnit::*;
    Ok(match name {
        "NANOSECONDS" => Nanoseconds,
        "MICROSECONDS" => Microseconds,
        "MILLISECONDS" => Milliseconds,
        "SECONDS" => Seconds,
        "MINUTES" => Minutes,
        "HOURS" => Hours,
        "DAYS" => Days,
        _ => {
            return Err("it is one of NANOSECONDS, MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS"
                .to_owned());
        }
    })
}

/// The version of that name, if it is one that can be written.
fn written_version(name: &str) -> Option<Version> {
    Version::from_letters(name).filter(|v| WriterOptions::VERSIONS.contains(v))
}

/// A file to be worked on.
struct Target<'t> {
    path: &'t str,
    directory: &'t str,
    descriptor: Descriptor,
    /// How many were named before it.
    number: u64,
}

async fn run(rt: &Rt, command: &Command, target: &Target<'_>) -> Result<(), Failure> {
    let Target { path, directory, descriptor, number } = *target;
    let opened = SstableReader::open(&rt.fs(), directory, descriptor, None).await;
    if let Err(SstableError::Unsupported { what, .. }) = &opened
        && matches!(command, Command::Verify { .. })
        && lacks_key(rt, directory, descriptor).await?
    {
        // Without its key the stored bytes of a file can be checked.
        return verify_unkeyed(rt, target, what.clone()).await;
    }
    let reader = opened?;
    let now = rt.wall().seconds();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    // The output has no reader any more, or the disk of a redirection is full.
    let is_broken = Cell::new(false);
    let mut print = |text: &str| {
        if written.is_ok() {
            written = out.write_all(text.as_bytes());
            is_broken.set(written.is_err());
        }
    };
    match command {
        Command::Dump {
            key, exclude_key, enumerate_keys, raw_timestamps, lines, internal, ..
        } => {
            let header = &reader.meta().statistics().header;
            let mut options = offline::DumpOptions {
                excluded: exclude_key.clone(),
                raw_times: *raw_timestamps,
                ..offline::DumpOptions::default()
            };
            for text in key.iter().filter(|key| !exclude_key.contains(key)) {
                let key = offline::key_of_text(header, text);
                options.keys.push(key.map_err(|error| Failure::Key(error.to_string()))?);
            }
            // All that are wanted are left out.
            if options.keys.is_empty() && !key.is_empty() {
                options.keys.push(Vec::new());
            }
            options.form = match (enumerate_keys, lines) {
                _ if *internal => offline::DumpForm::Internal,
                (true, _) => offline::DumpForm::Keys,
                (_, true) => offline::DumpForm::Lines,
                _ => offline::DumpForm::Pretty,
            };
            let mut progress = out::Progress::beside_output(&format!("dump {path}"));
            let mut at = |done, total| progress.at(done, total);
            let mut to_end = |text: &str| {
                print(text);
                if is_broken.get() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let to = offline::DumpTo { out: &mut to_end, at: &mut at };
            offline::dump_with(&reader, now, &options, to).await?;
        }
        Command::Metadata { gc_grace_seconds, scan, colors, unicode, timestamp_unit, .. } => {
            let mut scanned = None;
            if *scan {
                let mut progress = out::Progress::new(&format!("metadata {path}"));
                let mut at = |done, total| progress.at(done, total);
                scanned = Some(offline::scan_overview(&reader, &mut at).await?);
            }
            let options = offline::MetadataOptions {
                gc_grace_seconds: i64::from(*gc_grace_seconds),
                unit: *timestamp_unit,
                style: offline::MetadataStyle { colors: *colors, unicode: *unicode },
            };
            print(&offline::metadata_text(&reader, now, &options, scanned.as_ref()));
        }
        Command::Verify { .. } => {
            let mut progress = out::Progress::new(&format!("verify {path}"));
            let mut at = |done, total| progress.at(done, total);
            let seen = offline::verify_with(&reader, &mut at).await?;
            drop(progress);
            print(&format!(
                "{path}: ok, {} partitions, {} rows, {} range tombstone markers, {} bytes\n",
                seen.partitions, seen.rows, seen.markers, seen.bytes
            ));
            let unknown = offline::unknown_components(&rt.fs(), &reader).await?;
            if !unknown.is_empty() {
                print(&format!("{path}: not known and passed over: {}\n", unknown.join(", ")));
            }
        }
        Command::Upgrade { format, output, generation, .. } => {
            let version = written_version(format).unwrap_or(Version::Nb);
            let generation = generation.map(|first| Generation(first.saturating_add(number)));
            if reader.meta().has_late_times() && !version.has_uint_times() {
                complain_line!(
                    "helenus sstable: {path}: times after {} become that in version {version}; oa and da \
                     keep them",
                    offline::micros_text(DeletionSeconds::MAX_SIGNED.0.saturating_mul(1_000_000))
                );
            }
            rt.fs().create_dir_all(output).await.map_err(SstableError::from)?;
            let mut progress = out::Progress::new(&format!("upgrade {path}"));
            let fs = rt.fs();
            let to = offline::Rewrite { fs: &fs, at: &mut |done, total| progress.at(done, total) };
            let written = offline::upgrade(to, &reader, version, output, generation).await?;
            drop(progress);
            print(&match written {
                Some(written) => format!(
                    "{path}: {output}/{}, {} partitions, {} bytes\n",
                    written.descriptor.prefix(),
                    written.partitions,
                    written.data_length
                ),
                None => format!("{path}: nothing to write\n"),
            });
        }
        _ => {}
    }
    written.and_then(|()| out.flush()).map_err(Failure::Output)
}

fn report(path: &str, failure: &Failure) -> u8 {
    match failure {
        // The reader of a pipe had enough.
        Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => exit::OK,
        Failure::Output(error) => {
            complain_line!("helenus sstable: cannot write: {error}");
            exit::FAILED
        }
        Failure::Key(error) => {
            complain_line!("helenus sstable: {path}: {error}");
            exit::USAGE
        }
        Failure::Value(error) => {
            complain_line!("helenus sstable: {path}: {error}");
            exit::FAILED
        }
        Failure::File(error) => {
            let advice = match error {
                SstableError::Missing { .. } => {
                    "; name an SSTable that is there, or restore the component from a replica or a \
                     snapshot"
                }
                _ => "",
            };
            complain_line!("helenus sstable: {path}: {error}{advice}");
            match error {
                SstableError::Corrupt { .. }
                | SstableError::Missing { .. }
                | SstableError::Unsupported { .. } => exit::DAMAGED,
                SstableError::NoKey { .. }
                | SstableError::Unwritable { .. }
                | SstableError::Io(_) => exit::FAILED,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_any_of_their_components() {
        for (path, directory) in [
            ("/data/ks/t-1/nb-7-big-Data.db", "/data/ks/t-1"),
            ("nb-7-big-Index.db", "."),
            ("/nb-7-big-TOC.txt", "/"),
            ("x/mc-1-big-Data.db", "x"),
            ("x/da-3gxy_0c1a_2rdl12ns5v5xyzabcd-bti-Partitions.db", "x"),
        ] {
            let (found, _) = locate(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(found, directory, "{path}");
        }
        for path in ["", "/data/ks", "nb-x-big-Data.db", "manifest.json"] {
            assert!(locate(path).is_none(), "{path}");
        }
    }

    #[test]
    fn files_may_stand_behind_keys() {
        let dump = |key: &[&str], files: &[&str]| Command::Dump {
            key: key.iter().map(|k| (*k).to_owned()).collect(),
            exclude_key: Vec::new(),
            enumerate_keys: false,
            raw_timestamps: false,
            internal: false,
            lines: false,
            files: files.iter().map(|f| (*f).to_owned()).collect(),
        };
        let mut command = dump(&["0", "1", "d/nb-1-big-Data.db"], &[]);
        command.take_files_from_keys();
        assert_eq!(command, dump(&["0", "1"], &["d/nb-1-big-Data.db"]));
        let mut command = dump(&["nb-1-big-Data.db"], &["nb-2-big-Data.db"]);
        command.take_files_from_keys();
        assert_eq!(command, dump(&["nb-1-big-Data.db"], &["nb-2-big-Data.db"]));
        assert_eq!(main(dump(&["0"], &[])), exit::USAGE);
    }

    #[test]
    fn a_wrong_name_is_a_usage_error_and_a_missing_file_a_damage() {
        let verify = |path: &str| main(Command::Verify { files: vec![path.to_owned()] });
        assert_eq!(verify("manifest.json"), exit::USAGE);
        assert_eq!(verify("no-such-directory/nb-7-big-Data.db"), exit::DAMAGED);
        let upgrade = Command::Upgrade {
            format: "mc".to_owned(),
            output: "no-such-directory".to_owned(),
            generation: None,
            files: vec!["nb-7-big-Data.db".to_owned()],
        };
        assert_eq!(main(upgrade), exit::USAGE);
    }

    #[test]
    fn a_directory_stands_for_its_sstables_and_what_is_not_read_is_no_usage_error() {
        let work = std::env::temp_dir().join(format!("helenus-worked-{}", std::process::id()));
        let path = |name: &str| work.join(name).to_string_lossy().into_owned();
        std::fs::create_dir_all(work.join("empty")).unwrap();
        for name in ["nb-2-big-Data.db", "nb-2-big-Index.db", "oa-1-big-Data.db"] {
            std::fs::write(path(name), b"").unwrap();
        }
        let (named, code) =
            worked_on(&[path("nb-9-big-Data.db"), format!("{}/", path(""))]).unwrap();
        let names: Vec<&str> =
            named.iter().map(|(path, ..)| path.rsplit('/').next().unwrap()).collect();
        assert_eq!(names, ["nb-9-big-Data.db", "oa-1-big-Data.db", "nb-2-big-Data.db"]);
        assert_eq!(code, exit::OK);
        assert_eq!(
            worked_on(&[path("empty")]).map(|(named, code)| (named.len(), code)),
            Ok((0, exit::FAILED))
        );
        std::fs::write(path("la-3-big-Data.db"), b"").unwrap();
        let (named, code) = worked_on(&[path("")]).unwrap();
        assert_eq!((named.len(), code), (2, exit::DAMAGED));
        assert_eq!(worked_on(&[path("la-3-big-Data.db")]).map(drop), Err(exit::USAGE));
        std::fs::remove_dir_all(&work).unwrap();
    }

    #[test]
    fn keys_of_one_value_may_begin_with_a_hyphen() {
        use clap::Parser;

        #[derive(Parser)]
        struct Line {
            #[command(subcommand)]
            command: Command,
        }
        for line in ["partitions -k -1 -x -2:a f", "export -k -1:a -k -x f", "dump f -k -1 -k=-1:a"]
        {
            let words = ["sstable"].into_iter().chain(line.split(' '));
            assert!(Line::try_parse_from(words).is_ok(), "{line}");
        }
    }
}
