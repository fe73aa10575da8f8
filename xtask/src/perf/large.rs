//! `perf large`: whole reads of a table much larger than the memory: what they take, and whether memory grows
//! with what is read.
//!
//! Rows of 1,000 bytes, which compress well, in partitions of 100, written without a commit log. Memory is the
//! process's resident set, looked at after every page.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::cql::Client;
use super::process::{self, Server, Target};
use super::report::{Report, Verdict};

/// Longest wait for one answer: an aggregate has only one.
const ANSWER_MAX: Duration = Duration::from_secs(3600);
/// Rows of a page, as drivers ask by default.
const PAGE_ROWS: u32 = 5_000;
/// Rows of a partition, which are written together.
const PARTITION_ROWS: u64 = 100;
/// Longest page of a filtered scan, in seconds: drivers wait ten or twelve.
const PAGE_SECONDS: f64 = 10.0;

/// Name, statement, how many rows it gives of so many.
type Scan = (&'static str, &'static str, fn(u64) -> u64);

const SCANS: &[Scan] = &[
    ("all rows", "SELECT p, c, v, n FROM large.t", |rows| rows),
    ("count(*)", "SELECT count(*) FROM large.t", |_| 1),
    (
        "a filter that nothing passes",
        "SELECT p, c FROM large.t WHERE n = -1 ALLOW FILTERING",
        |_| 0,
    ),
];

/// Measures; writes `large.md` and `large.json` below `target/perf`. True also when a goal was missed.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let (mut mb, mut memory) = (10_000_u64, "512M");
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
    let rows = (mb * 1000).next_multiple_of(PARTITION_ROWS);
    fill(server.address(), rows)?;
    let mut report = Report::named("large");
    report.keep("machine", super::machine());
    let mut table = Vec::new();
    for (name, statement, expected) in SCANS {
        let mut client = Client::connect(server.address(), ANSWER_MAX)?;
        let id = client.prepare(statement)?;
        let (before, cpu, begun) = (server.rss_mib()?, server.cpu_seconds()?, Instant::now());
        let (mut pages, mut peak, mut longest) = (0_u32, before, 0.0_f64);
        let mut asked = Instant::now();
        let found = client.rows_with(&id, PAGE_ROWS, || {
            (pages, peak) = (pages + 1, peak.max(server.rss_mib()?));
            longest = longest.max(asked.elapsed().as_secs_f64());
            asked = Instant::now();
            Ok(())
        })?;
        if found != expected(rows) {
            bail!("{statement}: {found} rows instead of {}", expected(rows));
        }
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), server.cpu_seconds()? - cpu);
        println!("{name}: {pages} pages, {seconds:.0} s, {cpu:.1} CPU-s, {peak:.0} MiB");
        table.push(vec![
            (*name).to_owned(),
            pages.to_string(),
            format!("{seconds:.0}"),
            format!("{cpu:.1}"),
            format!("{longest:.2}"),
            format!("{before:.0}"),
            format!("{peak:.0}"),
        ]);
        report.keep(
            name,
            json!({
                "pages": pages, "seconds": seconds, "cpu_s": cpu, "longest_page_s": longest,
                "rss_mib_before": before, "rss_mib_peak": peak,
            }),
        );
        report.judge(Verdict::at_most(format!("{name}: resident memory"), peak, budget, "MiB"));
        if found != 1 {
            let what = format!("{name}: longest page");
            report.judge(Verdict::at_most(what, longest, PAGE_SECONDS, "s"));
        }
    }
    let header = ["what", "pages", "s", "CPU-s", "longest page, s", "MiB before", "MiB at most"];
    report.table(&format!("{mb} MB with {memory} of memory"), &header, &table);
    report.write(&home)?;
    server.stop()?;
    println!("{}", report.verdict_lines());
    Ok(true)
}

fn fill(address: &str, rows: u64) -> Result<()> {
    let mut client = Client::connect(address, ANSWER_MAX)?;
    client.query(
        "CREATE KEYSPACE large WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1} AND durable_writes = false",
    )?;
    client.query("CREATE TABLE large.t (p bigint, c int, v text, n int, PRIMARY KEY (p, c))")?;
    let filler = "the quick brown fox jumps over the lazy dog ".repeat(22);
    let begun = Instant::now();
    for partition in 0..rows / PARTITION_ROWS {
        let row = |c: u64| {
            let n = (partition * 31 + c) % 1000;
            // What does not repeat is a tenth of it.
            let mixed = (partition * PARTITION_ROWS + c).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!(
                "INSERT INTO large.t (p, c, v, n) VALUES ({partition}, {c}, \
                 '{mixed:016x}{filler}', {n})"
            )
        };
        let rows: Vec<String> = (0..PARTITION_ROWS).map(row).collect();
        let batch = format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", rows.join(" "));
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
    println!("{rows} rows written in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}
