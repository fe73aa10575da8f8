//! `perf wide`: one partition much larger than the memory, and one with a million tombstones:
//! whether they can be read and compacted, and the memory for that.
//!
//! Rows of 1,000 bytes, which compress well, all in one partition, written without a commit log in
//! several files. Then rows of which nine of ten are deleted, one by one, and a million adjacent
//! range deletions. Memory is the process's resident set, measured after every page and ten times a
//! second.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::cql::Client;
use super::process::{self, Server, Target};
use super::report::{Report, Verdict};
use super::watched::{self, ANSWER_MAX, PAGE_SECONDS, Watched};

/// Statements of a batch.
const BATCH: u64 = 100;
/// Tombstones of rows, and of ranges.
const TOMBSTONES: u64 = 1_000_000;
/// Name, statement, and the number of result rows for a number of rows in the partition, ten of
/// which are read by key.
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
    ("the row behind all deleted ranges", "SELECT c FROM wide.ranges WHERE p = 1", |_| 1),
    (
        "the row behind deleted ranges, by name",
        "SELECT c FROM wide.ranges WHERE p = 1 AND c = 2000000",
        |_| 1,
    ),
    ("the last row", "SELECT c FROM wide.ranges WHERE p = 1 ORDER BY c DESC LIMIT 1", |_| 1),
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
    let (mb, memory, budget) = watched::options(words, 4_000, "512M")?;
    process::build_helenus(root)?;
    let home = root.join("target/perf");
    crate::disk::create_dir_all(&home)?;
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
    process::nodetool(bench.root, &["flush", "wide"])?;
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
            // These 16 of about 1,000 bytes do not repeat.
            let mixed = c.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!("INSERT INTO wide.t (p, c, v) VALUES (1, {c}, '{mixed:016x}{filler}')")
        })?;
        println!("{rows} rows written in {:.0} s", begun.elapsed().as_secs_f64());
        process::nodetool(self.root, &["flush", "wide"])
    }

    /// Writes one row of ten that stays, nine that are deleted; adjacent ranges, and one row after
    /// them.
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
            let read = watched::read(&self.server, statement)
                .with_context(|| format!("{statement} ({state})"))?;
            if read.rows != expected(rows) {
                bail!("{statement}: {} rows instead of {}", read.rows, expected(rows));
            }
            let what = format!("{name}, {state}");
            self.told(&what, read);
            // An aggregate has one answer, whatever its duration.
            if !name.starts_with("count") {
                let name = format!("{what}: longest page");
                self.report.judge(Verdict::at_most(name, read.longest, PAGE_SECONDS, "s"));
            }
        }
        Ok(())
    }

    /// A major compaction of a table.
    fn compact(&mut self, table: &str) -> Result<()> {
        process::nodetool(self.root, &["setcompactionthroughput", "0"])?;
        let (cpu, begun, is_over) =
            (self.server.cpu_seconds()?, Instant::now(), AtomicBool::new(false));
        let (server, root) = (&self.server, self.root);
        let peak = std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut peak = 0.0_f64;
                while !is_over.load(Ordering::Relaxed) {
                    peak = peak.max(server.rss_mib()?);
                    std::thread::sleep(Duration::from_millis(100));
                }
                anyhow::Ok(peak)
            });
            let done = process::nodetool(root, &["compact", "wide", table]);
            is_over.store(true, Ordering::Relaxed);
            done?;
            match watching.join() {
                Ok(peak) => peak,
                Err(_) => bail!("the thread that watches ended"),
            }
        })?;
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), self.server.cpu_seconds()? - cpu);
        let took = Watched { seconds, cpu, peak, ..Watched::default() };
        self.told(&format!("compaction of {table}"), took);
        Ok(())
    }

    fn told(&mut self, what: &str, took: Watched) {
        let Watched { pages, seconds, cpu, longest, peak, .. } = took;
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
    }
}

/// Statements 0 to `count`, in unlogged batches.
fn batches(client: &mut Client, count: u64, statement: impl Fn(u64) -> String) -> Result<()> {
    for first in (0..count).step_by(BATCH as usize) {
        let some: Vec<String> = (first..count.min(first + BATCH)).map(&statement).collect();
        let batch = format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", some.join(" "));
        client.write_patiently(&batch)?;
    }
    Ok(())
}
