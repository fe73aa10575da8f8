//! `perf large`: whole reads of a table much larger than the memory: their cost, and whether memory
//! grows with the data read.
//!
//! Rows of 1,000 bytes, which compress well, in partitions of 100, written without a commit log.
//! Memory is the process's resident set, measured after every page.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use serde_json::json;

use super::cql::Client;
use super::process::{self, Server};
use super::report::{Report, Verdict};
use super::watched::{self, ANSWER_MAX, PAGE_SECONDS, Watched};

/// Rows of a partition, which are written together.
const PARTITION_ROWS: u64 = 100;
/// Name, statement, and the number of result rows for a number of rows in the table.
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
    let (mb, memory, budget) = watched::options(words, 10_000, "512M")?;
    process::build_helenus(root)?;
    let home = root.join("target/perf");
    crate::disk::create_dir_all(&home)?;
    let server = Server::helenus(root, &home, memory)?;
    let rows = (mb * 1000).next_multiple_of(PARTITION_ROWS);
    fill(server.address(), rows)?;
    let mut report = Report::named("large");
    report.keep("machine", super::machine());
    let mut table = Vec::new();
    for (name, statement, expected) in SCANS {
        let Watched { rows: found, pages, seconds, cpu, longest, before, peak } =
            watched::read(&server, statement)?;
        if found != expected(rows) {
            bail!("{statement}: {found} rows instead of {}", expected(rows));
        }
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
            // These 16 of about 1,000 bytes do not repeat.
            let mixed = (partition * PARTITION_ROWS + c).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!(
                "INSERT INTO large.t (p, c, v, n) VALUES ({partition}, {c}, \
                 '{mixed:016x}{filler}', {n})"
            )
        };
        let rows: Vec<String> = (0..PARTITION_ROWS).map(row).collect();
        let batch = format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", rows.join(" "));
        client.write_patiently(&batch)?;
    }
    println!("{rows} rows written in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}
