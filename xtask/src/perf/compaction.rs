//! Section "compaction": cost of a flush and of a major compaction of the same rows on both
//! servers, size of the result, and latencies while compactions run.
//!
//! The rows are written in parts, each flushed separately, a part of them again; then one
//! compaction merges all files. They are those of standard1, or of a time series, for which no
//! latencies are measured. Both write the same version of SSTables (`da`) with LZ4.
//!
//! Flushes are judged by the CPU of the second half of them all together. In the first half
//! Cassandra's compiler is at work. Its cheapest single flush is one during which no garbage was
//! collected, though its garbage has to be collected some time. Latencies are those of pairs of
//! runs, without and with compactions, alternating between the servers, and their medians are
//! judged: a stall of the machine hits one run of many.
//!
//! IO requests: those of the machine's disks, with page caches dropped before (by root) and
//! everything synced afterwards, so honest only while nothing else runs; and read and write calls
//! of the process. Helenus bypasses the page cache and requests 256 KiB at once, so the disk sees
//! its requests; its `io_uring` requests are not system calls. Cassandra requests a chunk at once,
//! and the kernel reads ahead for it. The goal is judged by our requests at the disk over its
//! calls, which a disk without read-ahead would see.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::json;

use super::cassandra;
use super::cql::Client;
use super::load::{Figures, Latte, Length};
use super::process::{self, Kind, Server, Target, helenus_data};
use super::report::{Report, Verdict, highest, lowest, median, rounded};
use super::settings::{Rows, Settings};
use super::throughput::WORKLOADS;

/// Rows of one flush, so few that no memtable is flushed before.
const PART_ROWS: u64 = 200_000;
/// Cassandra's CPU over ours is to be at least this.
const CPU_GOAL: f64 = 6.0;
/// Our IO requests over Cassandra's.
const IO_GOAL: f64 = 1.0 / 3.0;
/// p99 while compactions run over p99 without.
const P99_GOAL: f64 = 1.5;
/// Operations per second that are offered meanwhile.
const RATE: u32 = 2_000;
/// Nothing is compacted unasked.
const OPTIONS: &str = "WITH compaction = {'class': 'SizeTieredCompactionStrategy', 'min_threshold': 32, 'max_threshold': 64, 'enabled': false} \
    AND compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 16}";

/// Cost of one command.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cost {
    /// User and system seconds of the server.
    cpu: f64,
    /// By the clock.
    seconds: f64,
    /// Requests that the disks of the machine completed: reads, writes.
    requests: [u64; 2],
    /// System calls of the server that read and write: files, sockets.
    calls: [u64; 2],
}

/// Figures of one server.
#[derive(Clone, Debug, Default, Serialize)]
struct Found {
    flushes: Vec<Cost>,
    majors: Vec<Cost>,
    /// Bytes of all components after the compaction.
    bytes: u64,
    /// Latencies without and with compactions, run by run.
    quiet: Vec<Figures>,
    busy: Vec<Figures>,
    /// Compactions meanwhile.
    meanwhile: u32,
}

impl Rows {
    /// The table's name, which is that of its script.
    fn table(self) -> &'static str {
        match self {
            Rows::Standard1 => "standard1",
            Rows::Series => "series",
        }
    }

    /// Name of the workload that writes them.
    fn insert(self) -> &'static str {
        match self {
            Rows::Standard1 => "insert",
            Rows::Series => "series-insert",
        }
    }

    /// Bytes of key and values of one, uncompressed.
    fn bytes(self) -> f64 {
        match self {
            Rows::Standard1 => 168.0,
            Rows::Series => 40.0,
        }
    }
}

type CostsOf = fn(&Found) -> &Vec<Cost>;
type RunsOf = fn(&Found) -> &Vec<Figures>;

struct Bench<'a> {
    root: &'a Path,
    home: &'a Path,
    latte: &'a Latte,
    settings: &'a Settings,
}

/// Measures one server after the other within each repetition; the other is paused meanwhile.
pub fn run(
    root: &Path,
    home: &Path,
    latte: &Latte,
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    let bench = Bench { root, home, latte, settings };
    let mut servers = bench.start()?;
    let mut found: BTreeMap<Kind, Found> = BTreeMap::new();
    for round in 0..settings.repeat {
        for (kind, server) in &mut servers {
            server.resume()?;
            let name = kind.name();
            let seen = found.entry(*kind).or_default();
            let told = format!("{}/{} {name:11}", round + 1, settings.repeat);
            bench.fill(*kind, server, seen).with_context(|| format!("{name}: rows"))?;
            let major = bench.cost(*kind, server, &["compact", "perf", bench.table_name()])?;
            println!("{told} flush {:?}", seen.flushes.last());
            println!("{told} compaction {major:?}");
            seen.majors.push(major);
            seen.bytes = settled_bytes_below(&bench.table(*kind)?)?;
            server.pause()?;
        }
    }
    // The mix is of standard1.
    let pairs = if settings.compacted == Rows::Standard1 { settings.equal_repeat } else { 0 };
    for pair in 0..pairs {
        for (kind, server) in &mut servers {
            server.resume()?;
            let seen = found.entry(*kind).or_default();
            let warm = if pair == 0 { settings.warm } else { settings.warm.div_ceil(4) };
            bench.latencies(*kind, server, warm, seen)?;
            let told = format!("{}/{} {:11}", pair + 1, settings.equal_repeat, kind.name());
            println!("{told} without compactions: {:?}", seen.quiet.last());
            println!("{told} with {} so far: {:?}", seen.meanwhile, seen.busy.last());
            server.pause()?;
        }
    }
    tell(&found, settings, report);
    super::end(servers)
}

impl Bench<'_> {
    fn start(&self) -> Result<Vec<(Kind, Server)>> {
        let data = helenus_data(self.home);
        if data.exists() {
            crate::disk::remove_dir_all(&data)?;
        }
        let options = ["--sstable-version", "da"];
        let memory = &self.settings.memory;
        let mut ours = Server::helenus_with(self.root, self.home, memory, &options)?;
        ours.pause()?;
        let mut servers = vec![(Kind::Helenus, ours)];
        if self.settings.cassandra {
            cassandra::install(self.home)?;
            let mut theirs = cassandra::start(self.home, memory)?;
            theirs.pause()?;
            servers.push((Kind::Cassandra, theirs));
        }
        Ok(servers)
    }

    fn table_name(&self) -> &'static str {
        self.settings.compacted.table()
    }

    fn nodetool(&self, kind: Kind, words: &[&str]) -> Result<()> {
        if kind == Kind::Cassandra {
            return cassandra::nodetool(self.home, words).map(drop);
        }
        process::nodetool(self.root, words)
    }

    /// Measures the cost of a command on the server, until all that it wrote is on the disk.
    fn cost(&self, kind: Kind, server: &Server, words: &[&str]) -> Result<Cost> {
        drop_page_caches();
        let (before, cpu, begun) = (requests()?, server.cpu_seconds()?, Instant::now());
        let called = calls(server.pid())?;
        self.nodetool(kind, words)?;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu = server.cpu_seconds()? - cpu;
        let calls = calls(server.pid())?;
        sync();
        let after = requests()?;
        let less = |a: [u64; 2], b: [u64; 2]| [0, 1].map(|i: usize| a[i].saturating_sub(b[i]));
        Ok(Cost { cpu, seconds, requests: less(after, before), calls: less(calls, called) })
    }

    /// Recreates the table, from files that overlap by a quarter.
    fn fill(&self, kind: Kind, server: &Server, seen: &mut Found) -> Result<()> {
        let find = |name| WORKLOADS.iter().find(|w| w.name == name).context("no such workload");
        let (compacted, table) = (self.settings.compacted, self.table_name());
        let insert = find(compacted.insert())?;
        self.latte.schema(insert, server)?;
        let mut client = Client::connect(server.address(), std::time::Duration::from_secs(60))?;
        client.query(&format!("ALTER TABLE perf.{table} {OPTIONS}"))?;
        self.nodetool(kind, &["setcompactionthroughput", "0"])?;
        let part = PART_ROWS.min(self.settings.rows);
        let parts = self.settings.rows / part;
        // The last ones come again.
        for n in (0..parts).chain(0..parts.div_ceil(4)) {
            let length = Length::Count(part);
            // Rows of a series are dealt out among as many partitions as there are in the end.
            let rows = if compacted == Rows::Series { self.settings.rows } else { part };
            self.latte.run_from(insert, server, n * part, rows, length, None)?;
            seen.flushes.push(self.cost(kind, server, &["flush", "perf", table])?);
        }
        Ok(())
    }

    fn table(&self, kind: Kind) -> Result<PathBuf> {
        let data = match kind {
            Kind::Cassandra => cassandra::data(self.home),
            Kind::Helenus | Kind::Null => helenus_data(self.home).join("data"),
        };
        let tables = crate::disk::read_dir(data.join("perf"))?;
        let mut newest = None;
        // A dropped table's directory may be there still.
        for table in tables {
            let table = table?;
            let key = (table.metadata()?.created()?, table.path());
            newest = newest.max(Some(key));
        }
        Ok(newest.context("no directory of the table")?.1)
    }

    /// One run without and one with compactions.
    fn latencies(&self, kind: Kind, server: &Server, warm: u64, seen: &mut Found) -> Result<()> {
        let mixed = WORKLOADS.iter().find(|w| w.name == "mixed").context("no such workload")?;
        let Settings { rows, seconds, .. } = *self.settings;
        self.nodetool(kind, &["setcompactionthroughput", "64"])?;
        let offered =
            |seconds| self.latte.run(mixed, server, rows, Length::Seconds(seconds), Some(RATE));
        offered(warm.max(1))?;
        seen.quiet.push(offered(seconds)?);
        let (is_over, count) = (AtomicBool::new(false), AtomicU32::new(0));
        let busy = std::thread::scope(|scope| {
            let compacting = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    self.nodetool(kind, &["compact", "perf", "standard1"])?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            });
            let figures = offered(seconds);
            is_over.store(true, Ordering::Relaxed);
            match compacting.join() {
                Ok(result) => result?,
                Err(_) => bail!("the thread of compactions ended"),
            }
            figures
        })?;
        seen.busy.push(busy);
        seen.meanwhile += count.into_inner();
        Ok(())
    }
}

fn sync() {
    // Without this command, the counts miss later writes.
    let _ = Command::new("sync").stderr(Stdio::null()).status();
}

fn drop_page_caches() {
    sync();
    // Root only; else reads may come from the page cache, for both servers.
    let _ = crate::disk::write("/proc/sys/vm/drop_caches", "1");
}

/// Reads and writes that the disks of the machine have completed.
fn requests() -> Result<[u64; 2]> {
    let text = crate::disk::read_to_string("/proc/diskstats")?;
    let mut sum = [0, 0];
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), Some(reads), Some(writes)) = (fields.get(2), fields.get(3), fields.get(7))
        else {
            continue;
        };
        // Whole disks only: partitions and layers above would count twice.
        if Path::new("/sys/block").join(name).join("device").exists() {
            sum[0] += reads.parse::<u64>()?;
            sum[1] += writes.parse::<u64>()?;
        }
    }
    Ok(sum)
}

/// Read and write calls of a process so far.
fn calls(pid: u32) -> Result<[u64; 2]> {
    let text = crate::disk::read_to_string(format!("/proc/{pid}/io"))?;
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|v| v.trim().parse().ok()).with_context(|| format!("no {name} of {pid}"))
    };
    Ok([field("syscr:")?, field("syscw:")?])
}

/// The same once it has not changed for a while: unneeded files are removed late.
fn settled_bytes_below(directory: &Path) -> Result<u64> {
    let mut bytes = bytes_below(directory)?;
    for _ in 0..30 {
        std::thread::sleep(std::time::Duration::from_secs(2));
        let now = bytes_below(directory)?;
        if now == bytes {
            break;
        }
        bytes = now;
    }
    Ok(bytes)
}

/// Bytes of the files right in a directory.
fn bytes_below(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in crate::disk::read_dir(directory)? {
        let meta = match entry?.metadata() {
            Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => continue,
            meta => meta?,
        };
        sum += if meta.is_file() { meta.len() } else { 0 };
    }
    Ok(sum)
}

/// CPU of a flush when compilers are done: of the second half of all, the mean.
fn mean_of_second_half(costs: &[Cost]) -> f64 {
    let half = costs.get(costs.len() / 2..).unwrap_or_default();
    half.iter().map(|c| c.cpu).sum::<f64>() / half.len() as f64
}

fn tell(found: &BTreeMap<Kind, Found>, settings: &Settings, report: &mut Report) {
    let part = PART_ROWS.min(settings.rows);
    let parts = settings.rows / part;
    let merged = (parts + parts.div_ceil(4)) * part;
    let mut rows = Vec::new();
    let of = |kind| found.get(&kind);
    let costs = |kind, which: CostsOf| -> Vec<Cost> {
        of(kind).map(|f| which(f).clone()).unwrap_or_default()
    };
    let kinds: [(&str, u64, CostsOf); 2] =
        [("flush", part, |f| &f.flushes), ("compaction", merged, |f| &f.majors)];
    for (what, count, which) in kinds {
        let (ours, theirs) = (costs(Kind::Helenus, which), costs(Kind::Cassandra, which));
        let mb = count as f64 * settings.compacted.bytes() / 1e6;
        // Each repetition has one compaction; Cassandra's cheapest is the one whose code was
        // compiled.
        let [our_cpu, their_cpu] = if what == "flush" {
            [&ours, &theirs].map(|costs| mean_of_second_half(costs))
        } else {
            [median(ours.iter().map(|c| c.cpu)), lowest(theirs.iter().map(|c| c.cpu))]
        };
        let io = |costs: &[Cost], i: usize| median(costs.iter().map(|c| c.requests[i] as f64));
        let called = |costs: &[Cost], i: usize| median(costs.iter().map(|c| c.calls[i] as f64));
        let clock = |costs: &[Cost]| median(costs.iter().map(|c| c.seconds));
        let mut word = [String::new(), String::new()];
        if their_cpu.is_finite() {
            let name = format!("{what}: Cassandra's CPU over ours");
            word[0] = report.judge(Verdict::at_least(name, their_cpu / our_cpu, CPU_GOAL, "times"));
            let name = format!("{what}: our requests at the disk over Cassandra's calls");
            let share = (io(&ours, 0) + io(&ours, 1)) / (called(&theirs, 0) + called(&theirs, 1));
            word[1] = report.judge(Verdict::at_most(name, share, IO_GOAL, "times"));
        }
        let line = |name: &str, ours: f64, theirs: f64, word: &str| {
            let row = [
                format!("{what}: {name}"),
                rounded(ours),
                rounded(theirs),
                rounded(theirs / ours),
                word.to_owned(),
            ];
            row.to_vec()
        };
        rows.push(line("CPU-s", our_cpu, their_cpu, &word[0]));
        if what == "flush" {
            let all = |costs: &[Cost]| -> Vec<f64> { costs.iter().map(|c| c.cpu).collect() };
            let (ours, theirs) = (all(&ours), all(&theirs));
            let sum = |cpu: &[f64]| cpu.iter().sum::<f64>() / cpu.len() as f64;
            rows.push(line("CPU-s, all of them", sum(&ours), sum(&theirs), ""));
            let (ours, theirs) = (ours.into_iter(), theirs.into_iter());
            let medians = [median(ours.clone()), median(theirs.clone())];
            rows.push(line("CPU-s, median", medians[0], medians[1], ""));
            rows.push(line("CPU-s, lowest", lowest(ours), lowest(theirs), ""));
        }
        rows.push(line("1 / MB per CPU-s", our_cpu / mb, their_cpu / mb, ""));
        rows.push(line("seconds", clock(&ours), clock(&theirs), ""));
        rows.push(line("reads of the disk", io(&ours, 0), io(&theirs, 0), ""));
        rows.push(line("writes of the disk", io(&ours, 1), io(&theirs, 1), ""));
        rows.push(line("read calls", called(&ours, 0), called(&theirs, 0), ""));
        rows.push(line("write calls", called(&ours, 1), called(&theirs, 1), &word[1]));
    }
    let (ours, theirs) = (of(Kind::Helenus), of(Kind::Cassandra));
    let mut size = vec!["MB on the disk".to_owned()];
    let megabytes = |f: Option<&Found>| f.map_or(f64::NAN, |f| f.bytes as f64 / 1e6);
    let (our_mb, their_mb) = (megabytes(ours), megabytes(theirs));
    size.extend([rounded(our_mb), rounded(their_mb), rounded(their_mb / our_mb)]);
    size.push(if their_mb.is_finite() {
        let name = "MB on the disk over Cassandra's";
        report.judge(Verdict::at_most(name, our_mb / their_mb, 1.0, "times"))
    } else {
        String::new()
    });
    rows.push(size);
    if settings.compacted == Rows::Standard1 {
        tell_latencies([ours, theirs], report, &mut rows);
    }
    let title = format!(
        "Flushes of {part} rows of {}, a compaction of {merged}, 50/50 mix at {RATE} op/s",
        settings.compacted.table()
    );
    report.table(&title, &["what", "helenus", "cassandra", "ratio", "goal"], &rows);
    let named: BTreeMap<&str, &Found> = found.iter().map(|(k, f)| (k.name(), f)).collect();
    report.keep("compaction", json!(named));
}

/// Rows of the table: p99 of all runs, of ours and theirs.
fn tell_latencies(found: [Option<&Found>; 2], report: &mut Report, rows: &mut Vec<Vec<String>>) {
    let (quiet_runs, busy_runs): (RunsOf, RunsOf) = (|f| &f.quiet, |f| &f.busy);
    let p99 = |of: RunsOf| {
        found.map(|f| median(f.into_iter().flat_map(of).map(|figures| figures.p99_ms)))
    };
    let (quiet, busy) = (p99(quiet_runs), p99(busy_runs));
    let name = "p99 while compactions run over p99 without";
    let word = report.judge(Verdict::at_most(name, busy[0] / quiet[0], P99_GOAL, "times"));
    for (name, [a, b], word) in [
        ("p99 ms without compactions", quiet, String::new()),
        ("p99 ms while they run", busy, word),
    ] {
        rows.push(vec![name.to_owned(), rounded(a), rounded(b), rounded(b / a), word]);
    }
    for (name, of) in [("without compactions", quiet_runs), ("while they run", busy_runs)] {
        let [a, b] = found.map(|f| {
            let runs = || f.into_iter().flat_map(of).map(|figures| figures.p99_ms);
            format!("{} to {}", rounded(lowest(runs())), rounded(highest(runs())))
        });
        rows.push(vec![format!("p99 ms {name}, of all runs"), a, b, String::new(), String::new()]);
    }
}
