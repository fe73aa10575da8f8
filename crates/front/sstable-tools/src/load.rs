//! `helenus sstable load`: sends the rows of a table's files to a running cluster, as Cassandra's
//! `sstableloader` does.
//!
//! The tool reads the files, whatever their version. Their partitions become mutations with
//! unmodified timestamps, times to live and tombstones, and nodes write them to all replicas as
//! coordinators do. A retry needs no saved state: applying a mutation twice changes nothing.
//!
//! Reading order: this, [`partitions`] (files to mutations), [`senders`] (mutations to nodes).

mod partitions;
mod senders;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::model::LoadTarget;
use clap::Args;
use data::{Advance, Cursor, Slices};
use rt::Rt;
use schema::Table;
use sstable::{Component, SstableReader};

use self::partitions::{ItemPlace, Mutations};
use self::senders::Senders;
use super::export::usage;
use super::out::memory;
use super::targets::{Found, Search, Target, find};
use super::{Failure, report, wrong_paths};
use crate::http::{Api, HttpError};
use blocking_client::api::ApiAccess;
use tool_io::api_flags::ApiFlags;
use tool_io::exit;

/// Levels that a load may have.
const LEVELS: [&str; 8] =
    ["ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "LOCAL_ONE"];
/// Interval of progress reports.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Options of `load`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Load {
    /// Nodes of the cluster (their API: host or host:port), separated by commas; they share the work
    #[arg(
        short = 'd',
        long = "nodes",
        required = true,
        value_delimiter = ',',
        value_name = "HOST"
    )]
    nodes: Vec<String>,
    /// Port of the API where a node names none
    #[arg(long, default_value_t = 10_000, value_name = "PORT")]
    api_port: u16,
    /// Keyspace to load into, if it is not that of the directory
    #[arg(short = 'k', long, value_name = "KEYSPACE")]
    target_keyspace: Option<String>,
    /// Table to load into, if it is not that of the directory
    #[arg(long, value_name = "TABLE")]
    target_table: Option<String>,
    /// Most that is read of the files, MiB per second; 0 is no limit
    #[arg(long, default_value_t = 0, value_name = "MIB")]
    throttle_mib: u64,
    /// Requests under way at each node
    #[arg(long, default_value_t = 2, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=16))]
    connections_per_host: u16,
    /// Replicas that must have each row: ALL, or ONE, QUORUM, LOCAL_QUORUM, ... where nodes are down
    #[arg(long, default_value = "ALL", value_name = "LEVEL", value_parser = LEVELS)]
    consistency_level: String,
    /// Print no progress
    #[arg(long)]
    no_progress: bool,
    /// Print more about errors
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Directory KEYSPACE/TABLE or KEYSPACE/TABLE-ID with SSTables
    #[arg(required = true, value_name = "DIR")]
    directory: String,
    // Last: options after a flattened group are shown under its heading.
    /// Login at the API of the nodes
    #[command(flatten)]
    login: ApiFlags,
}

pub(super) async fn run(rt: &Rt, options: &Load) -> u8 {
    let (keyspace, table) = match names(options) {
        Ok(names) => names,
        Err(text) => return usage(&text),
    };
    let search = Search { snapshots: true, backups: true, ..Search::default() };
    let found = find(std::slice::from_ref(&options.directory), search);
    let targets = match found.map_err(|lines| wrong_paths(&lines)).and_then(Found::all) {
        Ok(targets) => targets,
        Err(code) => return code,
    };
    if targets.is_empty() {
        return usage(&format!("there are no SSTables in {}", options.directory));
    }
    let access = match options.login.open() {
        Ok(access) => access,
        Err(text) => return usage(&text),
    };
    let api = |node: &String| api_of(node, options.api_port, &access);
    let apis: Vec<Api> = options.nodes.iter().map(api).collect();
    let (table, apis) = match ask_for_table(&apis, &keyspace, &table, options.verbose) {
        Ok(found) => found,
        Err((code, text)) => {
            complain_line!("helenus sstable: {text}");
            return code;
        }
    };
    // All of them before anything is sent.
    let files = match open_all(rt, &targets, &table).await {
        Ok(files) => files,
        Err(code) => return code,
    };
    let names: Vec<String> = apis.iter().map(|api| format!("/{}:{}", api.host, api.port)).collect();
    say_line!("Established connection to the nodes {}", names.join(", "));
    let paths: Vec<String> = targets.iter().map(|target| target.file(Component::Data)).collect();
    say_line!("Loading {} into {keyspace}.{}", paths.join(" "), table.name);
    let bytes = files.iter().map(|(_, reader)| reader.meta().data_length()).sum();
    let size = LoadSize { files: files.len(), bytes };
    let place = format!("keyspace={}&table={}", escaped(&keyspace), escaped(&table.name));
    let path = format!("/api/v1/load?{place}&consistency={}", escaped(&options.consistency_level));
    let mut load = Loading {
        senders: Senders::start(&apis, &path, options.connections_per_host),
        progress: Progress::new(names.join(","), size, !options.no_progress),
        throttle: Throttle { bytes_per_second: options.throttle_mib << 20, began: Instant::now() },
    };
    for (target, reader) in &files {
        if let Err(failure) = load.file(&table, target, reader).await {
            load.progress.end_line();
            // The first refusal of a batch is the cause of this failure.
            if let Err(text) = load.senders.finish() {
                complain_line!("helenus sstable: {text}");
                again(options);
                return exit::FAILED;
            }
            again(options);
            return report(&target.file(Component::Data), &failure);
        }
    }
    let Loading { senders, mut progress, .. } = load;
    match senders.finish() {
        Ok(()) => {
            progress.tell(true);
            progress.summary(options.connections_per_host);
            exit::OK
        }
        Err(text) => {
            progress.end_line();
            complain_line!("helenus sstable: {text}");
            again(options);
            exit::FAILED
        }
    }
}

/// Opens the files, each of which must be of the table. The error is the exit code; the cause is printed.
async fn open_all<'t>(
    rt: &Rt,
    targets: &'t [Target],
    table: &Arc<Table>,
) -> Result<Vec<(&'t Target, SstableReader)>, u8> {
    let mut files = Vec::new();
    for target in targets {
        match SstableReader::open(&rt.fs(), &target.directory, target.set, Some(table)).await {
            Ok(reader) => {
                let header = &reader.meta().statistics().header;
                if let Err(error) = header.check_types(table) {
                    let file = target.file(Component::Statistics);
                    let what = format!("a file of another table: {error}");
                    return Err(report(&file, &Failure::Key(what)));
                }
                files.push((target, reader));
            }
            Err(error) => return Err(report(&target.file(Component::Data), &error.into())),
        }
    }
    Ok(files)
}

fn again(options: &Load) {
    complain_line!(
        "helenus sstable: {} is loaded in part; load it again when the cause is gone: what is there \
         already stays as it is",
        options.directory
    );
}

/// Keyspace and table by the last two names of the directory, or as they are given.
fn names(options: &Load) -> Result<(String, String), String> {
    let path = std::fs::canonicalize(&options.directory)
        .map_err(|error| format!("{}: {error}", options.directory))?;
    if !path.is_dir() {
        return Err(format!("{} is not a directory", options.directory));
    }
    let mut at: &Path = &path;
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    if name(at).as_deref() == Some("backups") {
        at = at.parent().unwrap_or(at);
    } else if at.parent().and_then(name).as_deref() == Some("snapshots") {
        at = at.parent().and_then(Path::parent).unwrap_or(at);
    }
    let table = name(at).unwrap_or_default();
    let table = match table.rsplit_once('-') {
        Some((table, id)) if id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()) => table,
        _ => &table,
    };
    let table = options.target_table.clone().unwrap_or_else(|| table.to_owned());
    let keyspace = at.parent().and_then(name);
    let keyspace = options.target_keyspace.clone().or(keyspace).unwrap_or_default();
    if keyspace.is_empty() || table.is_empty() {
        let directory = &options.directory;
        return Err(format!("{directory} does not end with a keyspace and a table: use -k"));
    }
    Ok((keyspace, table))
}

/// `host`, `host:port`, `[address]:port`; an address of version 6 may stand without brackets.
fn api_of(node: &str, port: u16, access: &ApiAccess) -> Api {
    let plain = |host: &str, port| {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Api { host, port, access: access.clone() }
    };
    match node.rsplit_once(':') {
        Some((host, given)) if host.ends_with(']') || !host.contains(':') => match given.parse() {
            Ok(given) => plain(host, given),
            Err(_) => plain(node, port),
        },
        _ => plain(node, port),
    }
}

/// Escapes a text as a part of a query.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The table as the first node that answers knows it, and the nodes that can be reached.
fn ask_for_table(
    apis: &[Api],
    keyspace: &str,
    table: &str,
    verbose: bool,
) -> Result<(Arc<Table>, Vec<Api>), (u8, String)> {
    let path = format!("/api/v1/load?keyspace={}&table={}", escaped(keyspace), escaped(table));
    let (mut found, mut reached, mut last) = (None, Vec::new(), String::new());
    for api in apis {
        let name = format!("{}:{}", api.host, api.port);
        match api.get::<LoadTarget>(&path) {
            Ok(target) => {
                reached.push(api.clone());
                found.get_or_insert(target);
            }
            Err(HttpError::Refused(404, _)) => {
                return Err((
                    exit::FAILED,
                    format!("{name} is no node that files are loaded into"),
                ));
            }
            Err(HttpError::Refused(_, words)) => {
                return Err((exit::FAILED, format!("{name}: {words}")));
            }
            Err(HttpError::Connect(error)) => last = format!("{name}: {error}"),
            Err(HttpError::Strange(error)) => last = format!("{name}: {error}"),
        }
        if verbose && !last.is_empty() {
            complain_line!("helenus sstable: {last}");
        }
    }
    let Some(target) = found else {
        return Err((exit::FAILED, format!("none of the nodes answers: {last}")));
    };
    let mut reader = codec::Reader::new(&target.definition, "table");
    let table = schema::encode::read_table(&mut reader).map_err(|error| {
        (exit::FAILED, format!("the node describes its table in another way: {error}"))
    })?;
    Ok((Arc::new(table), reached))
}

/// A running load.
struct Loading {
    senders: Senders,
    progress: Progress,
    throttle: Throttle,
}

impl Loading {
    async fn file(
        &mut self,
        table: &Arc<Table>,
        target: &Target,
        reader: &SstableReader,
    ) -> Result<(), Failure> {
        let mut blocks = reader.sequential();
        let all = data::command::KeyRange::all();
        let mut cursor = reader.range_cursor(0, all, Arc::new(Slices::all()), None);
        let mut mutations = Mutations::new(table);
        let path = target.file(Component::Data);
        loop {
            match cursor.advance().map_err(sstable::SstableError::from)? {
                Advance::End => break,
                Advance::NeedBlock(request) => {
                    let chunk = blocks.load_block(request.block).await?;
                    cursor.feed(request.block, chunk);
                }
                Advance::Item => {
                    let place = ItemPlace { file: &path, position: cursor.position() };
                    mutations.item(cursor.item(), place).map_err(Failure::Key)?;
                    if let Some(batch) = mutations.take_full() {
                        self.senders.send(batch).map_err(Failure::Key)?;
                        self.progress.at(cursor.position());
                        self.throttle.wait(self.progress.read());
                    }
                }
            }
        }
        if let Some(batch) = mutations.take_rest() {
            self.senders.send(batch).map_err(Failure::Key)?;
        }
        self.progress.file_done(reader.meta().data_length());
        self.throttle.wait(self.progress.read());
        Ok(())
    }
}

/// Most that is read of the files.
struct Throttle {
    /// 0: no limit.
    bytes_per_second: u64,
    began: Instant,
}

impl Throttle {
    /// Waits until this total of bytes is within the limit.
    fn wait(&self, bytes: u64) {
        if let Some(millis) = bytes.saturating_mul(1000).checked_div(self.bytes_per_second) {
            let due = Duration::from_millis(millis);
            std::thread::sleep(due.saturating_sub(self.began.elapsed()));
        }
    }
}

/// How far it has come, printed as `sstableloader` does. Sizes are those of Data without compression.
struct Progress {
    nodes: String,
    is_wanted: bool,
    began: Instant,
    told: (Instant, u64),
    peak: u64,
    files: (usize, usize),
    /// Bytes of finished files; bytes of the current file.
    read: (u64, u64),
    total: u64,
    on_line: bool,
}

/// Number and bytes of the files to load.
struct LoadSize {
    files: usize,
    bytes: u64,
}

impl Progress {
    fn new(nodes: String, size: LoadSize, is_wanted: bool) -> Progress {
        let LoadSize { files, bytes: total } = size;
        let now = Instant::now();
        Progress {
            nodes,
            is_wanted,
            began: now,
            told: (now, 0),
            peak: 0,
            files: (0, files),
            read: (0, 0),
            total,
            on_line: false,
        }
    }

    fn read(&self) -> u64 {
        self.read.0.saturating_add(self.read.1)
    }

    fn at(&mut self, position: u64) {
        self.read.1 = position;
        self.tell(false);
    }

    fn file_done(&mut self, length: u64) {
        self.read = (self.read.0.saturating_add(length), 0);
        self.files.0 += 1;
        self.tell(false);
    }

    fn tell(&mut self, is_last: bool) {
        let (at, before) = self.told;
        if !is_last && at.elapsed() < TELL_EVERY {
            return;
        }
        let (read, now) = (self.read(), Instant::now());
        let rate = per_second(read.saturating_sub(before), now - at);
        self.peak = self.peak.max(rate);
        self.told = (now, read);
        if self.is_wanted {
            let percent = read.saturating_mul(100).checked_div(self.total).unwrap_or(100).min(100);
            let average = per_second(read, now - self.began);
            let (done, files) = self.files;
            say!(
                "\rprogress: [{}]0:{done}/{files} {percent:<3}% total: {percent}% {}/s (avg: {}/s)",
                self.nodes,
                memory(rate),
                memory(average)
            );
            // Progress that cannot be printed is no reason to stop.
            let _ = std::io::stdout().flush();
            self.on_line = true;
        }
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.on_line) {
            say_line!();
        }
    }

    fn summary(&mut self, connections: u16) {
        self.end_line();
        let took = self.began.elapsed();
        let average = per_second(self.read(), took);
        say_line!("\nSummary statistics: ");
        for (what, value) in [
            ("Connections per host", connections.to_string()),
            ("Total files transferred", self.files.0.to_string()),
            ("Total bytes transferred", memory(self.read())),
            ("Total duration", format!("{} ms", took.as_millis())),
            ("Average transfer rate", format!("{}/s", memory(average))),
            ("Peak transfer rate", format!("{}/s", memory(self.peak.max(average)))),
        ] {
            say_line!("   {what:<24}: {value:<10}");
        }
    }
}

fn per_second(bytes: u64, took: Duration) -> u64 {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    bytes.saturating_mul(1000) / millis
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_hosts_with_or_without_ports() {
        for (node, host, port) in [
            ("a.b", "a.b", 1),
            ("127.0.0.1:7", "127.0.0.1", 7),
            ("::1", "::1", 1),
            ("[::1]", "::1", 1),
            ("[::1]:9", "::1", 9),
        ] {
            let api = api_of(node, 1, &ApiAccess::default());
            assert_eq!((api.host.as_str(), api.port), (host, port), "{node}");
        }
    }

    #[test]
    fn names_are_escaped_in_queries() {
        assert_eq!(escaped("Mixed_Case1"), "Mixed_Case1");
        assert_eq!(escaped("a&b=c d"), "a%26b%3Dc%20d");
    }
}
