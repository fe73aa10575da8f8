//! `perf wide`: one partition much larger than the memory, and one with a million tombstones: whether they can
//! be read and compacted, and what memory that takes.
//!
//! Rows of 1,000 bytes, which compress well, all in one partition, written without a commit log in several
//! files. Then rows of which nine of ten are deleted, one by one, and a million ranges that are deleted beside
//! each other. Memory is the process's resident set, looked at after every page and ten times a second.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::cql::Client;
use super::process::{self, HELENUS_API_PORT, Server, Target, helenus_binary};
use super::report::{Report, Verdict};

/// Longest wait for one answer: an aggregate has only one.
const ANSWER_MAX: Duration = Duration::from_secs(3600);
/// Rows of a page, as drivers ask by default.
const PAGE_ROWS: u32 = 5_000;
/// Statements of a batch.
const BATCH: u64 = 100;
/// Tombstones of rows, and of ranges.
const TOMBSTONES: u64 = 1_000_000;
/// Longest page, in seconds: drivers wait ten or twelve.
const PAGE_SECONDS: f64 = 10.0;

/// Name, statement, how many rows it gives of so many in the partition, ten of which are asked for by name.
type Read = (&'static str, &'static str, fn(u64) -> u64);

const READS: &[Read] = &[
    ("all rows", "SELECT c, v FROM wide.t WHERE p = 1", |rows| rows),
    ("all rows, backwards", "SELECT c, v FROM wide.t WHERE p = 1 ORDER BY c DESC", |rows| rows),
    ("the last 1,000", "SELECT c, v FROM wide.t WHERE p = 1 ORDER BY c DESC LIMIT 1000", |_| 1000),
    (
        "ten by name",
        "SELECT c, v FROM wide.t WHERE p = 1 AND c IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)",
        |_| 10,
    ),
    ("count(*)", "SELECT count(*) FROM wide.t WHERE p = 1", |_| 1),
];

const TOMBSTONE_READS: &[Read] = &[
    ("live rows between deleted ones", "SELECT c FROM wide.rows WHERE p = 1", |_| TOMBSTONES / 9),
    ("count(*) of them", "SELECT count(*) FROM wide.rows WHERE p = 1", |_| 1),
    ("the first row behind deleted ranges", "SELECT c FROM wide.ranges WHERE p = 1 LIMIT 1", |_| 1),
    ("deleted ranges, backwards", "SELECT c FROM wide.ranges WHERE p = 1 ORDER BY c DESC", |_| 1),
];

struct Bench<'a> {
    root: &'a Path,
    server: Server,
    budget: f64,
    report: Report,
    table: Vec<Vec<String>>,
}

/// Measures; writes `wide.md` and `wide.json` below `target/perf`. True also when a goal was missed.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let (mut mb, mut memory) = (4_000_u64, "512M");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match *word {
            "--mb" => mb = value.parse()?,
            "--memory" => memory = value,
            _ => bail!("unknown option {word}; see cargo xtask help"),
        }
    }
    let budget = match memory.strip_suffix('M').map(str::parse::<f64>) {
        Some(Ok(mib)) => mib,
        _ => bail!("--memory takes MiB, as 512M"),
    };
    process::build_helenus(root)?;
    let home = root.join("target/perf");
    std::fs::create_dir_all(&home)?;
    let server = Server::helenus(root, &home, memory)?;
    let mut report = Report::named("wide");
    report.keep("machine", super::machine());
    let mut bench = Bench { root, server, budget, report, table: Vec::new() };
    let mut client = Client::connect(bench.server.address(), ANSWER_MAX)?;
    client.query(
        "CREATE KEYSPACE wide WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1} AND durable_writes = false",
    )?;

    let rows = (mb * 1000).next_multiple_of(BATCH);
    bench.wide(&mut client, rows)?;
    bench.reads("several files", READS, rows)?;
    bench.compact("t")?;
    bench.reads("one file", READS, rows)?;

    bench.tombstones(&mut client)?;
    bench.reads("memory and files", TOMBSTONE_READS, 0)?;
    bench.nodetool(&["flush", "wide"])?;
    bench.compact("rows")?;
    bench.compact("ranges")?;
    bench.reads("one file", TOMBSTONE_READS, 0)?;

    let Bench { server, mut report, table, .. } = bench;
    let header = ["what", "pages", "s", "CPU-s", "longest page, s", "MiB at most"];
    let title =
        format!("A partition of {mb} MB and two of {TOMBSTONES} tombstones, {memory} of memory");
    report.table(&title, &header, &table);
    report.write(&home)?;
    server.stop()?;
    println!("{}", report.verdict_lines());
    Ok(true)
}

impl Bench<'_> {
    fn wide(&self, client: &mut Client, rows: u64) -> Result<()> {
        client.query("CREATE TABLE wide.t (p int, c bigint, v text, PRIMARY KEY (p, c))")?;
        let filler = "the quick brown fox jumps over the lazy dog ".repeat(22);
        let begun = Instant::now();
        batches(client, rows, |c| {
            // What does not repeat is a tenth of it.
            let mixed = c.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!("INSERT INTO wide.t (p, c, v) VALUES (1, {c}, '{mixed:016x}{filler}')")
        })?;
        println!("{rows} rows written in {:.0} s", begun.elapsed().as_secs_f64());
        self.nodetool(&["flush", "wide"])
    }

    /// A row of ten that stays, nine that are deleted; ranges that touch each other, and one row behind them.
    fn tombstones(&self, client: &mut Client) -> Result<()> {
        for table in ["rows", "ranges"] {
            client.query(&format!(
                "CREATE TABLE wide.{table} (p int, c bigint, PRIMARY KEY (p, c))"
            ))?;
        }
        batches(client, TOMBSTONES / 9 * 10, |c| match c % 10 {
            9 => format!("INSERT INTO wide.rows (p, c) VALUES (1, {c})"),
            _ => format!("DELETE FROM wide.rows WHERE p = 1 AND c = {c}"),
        })?;
        client.query(&format!("INSERT INTO wide.ranges (p, c) VALUES (1, {})", 2 * TOMBSTONES))?;
        batches(client, TOMBSTONES, |n| {
            let (from, to) = (2 * n, 2 * n + 1);
            format!("DELETE FROM wide.ranges WHERE p = 1 AND c >= {from} AND c < {to}")
        })
    }

    fn reads(&mut self, state: &str, reads: &[Read], rows: u64) -> Result<()> {
        for (name, statement, expected) in reads {
            let mut client = Client::connect(self.server.address(), ANSWER_MAX)?;
            let id = client.prepare(statement)?;
            let (cpu, begun) = (self.server.cpu_seconds()?, Instant::now());
            let (mut pages, mut peak) = (0_u32, self.server.rss_mib()?);
            let (mut longest, mut asked) = (0.0_f64, Instant::now());
            let found = client
                .rows_with(&id, PAGE_ROWS, || {
                    (pages, peak) = (pages + 1, peak.max(self.server.rss_mib()?));
                    longest = longest.max(asked.elapsed().as_secs_f64());
                    asked = Instant::now();
                    Ok(())
                })
                .with_context(|| format!("{statement} ({state})"))?;
            if found != expected(rows) {
                bail!("{statement}: {found} rows instead of {}", expected(rows));
            }
            let what = format!("{name}, {state}");
            self.told(&what, pages, begun.elapsed(), cpu, longest, peak)?;
            // An aggregate has one answer, whatever it takes.
            if !name.starts_with("count") {
                let name = format!("{what}: longest page");
                self.report.judge(Verdict::at_most(name, longest, PAGE_SECONDS, "s"));
            }
        }
        Ok(())
    }

    /// A major compaction of a table.
    fn compact(&mut self, table: &str) -> Result<()> {
        self.nodetool(&["setcompactionthroughput", "0"])?;
        let (cpu, begun, is_over) =
            (self.server.cpu_seconds()?, Instant::now(), AtomicBool::new(false));
        let (server, this) = (&self.server, &*self);
        let peak = std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut peak = 0.0_f64;
                while !is_over.load(Ordering::Relaxed) {
                    peak = peak.max(server.rss_mib()?);
                    std::thread::sleep(Duration::from_millis(100));
                }
                anyhow::Ok(peak)
            });
            let done = this.nodetool(&["compact", "wide", table]);
            is_over.store(true, Ordering::Relaxed);
            done?;
            match watching.join() {
                Ok(peak) => peak,
                Err(_) => bail!("the thread that watches ended"),
            }
        })?;
        self.told(&format!("compaction of {table}"), 0, begun.elapsed(), cpu, 0.0, peak)
    }

    fn told(
        &mut self,
        what: &str,
        pages: u32,
        took: Duration,
        cpu_before: f64,
        longest: f64,
        peak: f64,
    ) -> Result<()> {
        let (seconds, cpu) = (took.as_secs_f64(), self.server.cpu_seconds()? - cpu_before);
        println!(
            "{what}: {pages} pages, {seconds:.1} s, {cpu:.1} CPU-s, {longest:.2} s the longest, {peak:.0} MiB"
        );
        self.table.push(vec![
            what.to_owned(),
            pages.to_string(),
            format!("{seconds:.1}"),
            format!("{cpu:.1}"),
            format!("{longest:.2}"),
            format!("{peak:.0}"),
        ]);
        self.report.keep(
            what,
            json!({
                "pages": pages, "seconds": seconds, "cpu_s": cpu, "longest_page_s": longest,
                "rss_mib_peak": peak,
            }),
        );
        let name = format!("{what}: resident memory");
        self.report.judge(Verdict::at_most(name, peak, self.budget, "MiB"));
        Ok(())
    }

    fn nodetool(&self, words: &[&str]) -> Result<()> {
        let output = Command::new(helenus_binary(self.root))
            .args(["nodetool", "-p", HELENUS_API_PORT])
            .args(words)
            .output()?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("nodetool {}: {error}", words.join(" "));
        }
        Ok(())
    }
}

/// Statements 0 to `count`, in unlogged batches.
fn batches(client: &mut Client, count: u64, statement: impl Fn(u64) -> String) -> Result<()> {
    for first in (0..count).step_by(BATCH as usize) {
        let some: Vec<String> = (first..count.min(first + BATCH)).map(&statement).collect();
        let batch = format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", some.join(" "));
        // More than a flush keeps up with is refused for a while.
        let mut tries = 0;
        while let Err(error) = client.query(&batch) {
            tries += 1;
            if tries > 600 {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}
