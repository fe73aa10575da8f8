//! `perf files`: bytes of a table of lists on the disk, and the time to open many SSTables.
//!
//! The lists are those of an article about ScyllaDB's formats: 100,000 rows of 50 ints, as a list,
//! as a frozen list, and frozen with a key of uuids. Their ints are random here, so 20 MB of each
//! table are incompressible.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::process;
use super::report::{Report, Verdict, lowest};

const MB: f64 = 1e6;
/// Table, type of its key, type of the list, most MB.
const TABLES: [(&str, &str, &str, f64); 3] = [
    ("lists", "int", "list<int>", 49.0),
    ("frozen", "int", "frozen<list<int>>", 26.0),
    ("uuids", "uuid", "frozen<list<int>>", 22.0),
];
const COMPRESSORS: [&str; 2] = ["LZ4Compressor", "ZstdCompressor"];
const INTS: usize = 50;
/// SSTables that are opened, and how often.
const SSTABLES: usize = 1000;
const OPENED: usize = 3;

/// Measures; writes `files.md` and `files.json` below `target/perf`. True also when a goal was missed.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let rows = match words {
        [] => 100_000,
        ["--rows", rows] => rows.parse()?,
        _ => bail!("unknown options; see cargo xtask help"),
    };
    process::build_helenus(root)?;
    let home = root.join("target/perf");
    let work = home.join("files");
    if work.exists() {
        crate::disk::remove_dir_all(&work)?;
    }
    crate::disk::create_dir_all(&work)?;
    let tool = Tool { binary: process::helenus_binary(root), work };
    let mut report = Report::named("files");
    report.keep("machine", super::machine());
    lists(&tool, rows, &mut report)?;
    open(&tool, &mut report)?;
    report.write(&home)?;
    crate::disk::remove_dir_all(&tool.work)?;
    println!("{}", report.verdict_lines());
    Ok(true)
}

struct Tool {
    binary: PathBuf,
    work: PathBuf,
}

impl Tool {
    /// Writes rows of JSON to files of one version; their directory.
    fn write(&self, table: &str, schema: &str, rows: &Path, version: &str) -> Result<PathBuf> {
        let (cql, output) = (self.work.join("schema.cql"), self.work.join("output"));
        crate::disk::write(&cql, schema)?;
        if output.exists() {
            crate::disk::remove_dir_all(&output)?;
        }
        let mut command = Command::new(&self.binary);
        command.args(["sstable", "write", "--buffer", "4096", "--sstable-version", version]);
        command.arg("--schema").arg(cql).arg("--output").arg(&output).arg(rows);
        if !command.stderr(Stdio::null()).status()?.success() {
            bail!("sstable write of {table} failed");
        }
        let directories = crate::disk::read_dir(output.join("perf"))?;
        let directory = directories.flatten().next().context("nothing was written")?;
        Ok(directory.path())
    }
}

/// Rows of JSON with ints that are random, and the same in every run.
fn random_rows(count: u64, key: &str) -> String {
    let (mut state, mut out) = (0x9e37_79b9_7f4a_7c15_u64, String::new());
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    for k in 0..count {
        let key = match key {
            "uuid" => {
                let (a, b) = (next(), next());
                let (first, second, third) = (a >> 32, a >> 16 & 0xffff, a & 0xffff);
                let (fourth, last) = (b >> 48, b & 0xffff_ffff_ffff);
                format!("\"{first:08x}-{second:04x}-{third:04x}-{fourth:04x}-{last:012x}\"")
            }
            _ => k.to_string(),
        };
        let ints: Vec<String> = (0..INTS).map(|_| ((next() >> 32) as i32).to_string()).collect();
        let _ = writeln!(out, "{{\"k\": {key}, \"l\": [{}]}}", ints.join(","));
    }
    out
}

fn bytes_below(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in crate::disk::read_dir(directory)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

fn lists(tool: &Tool, rows: u64, report: &mut Report) -> Result<()> {
    let (mut table, mut raw) = (Vec::new(), Vec::new());
    for (name, key, list, goal) in TABLES {
        let path = tool.work.join("rows.json");
        crate::disk::write(&path, random_rows(rows, key))?;
        let mut line = vec![format!("{key}, {list}")];
        let mut all = Vec::new();
        for version in ["nb", "da"] {
            for compressor in COMPRESSORS {
                let schema = format!(
                    "CREATE TABLE perf.{name} (k {key} PRIMARY KEY, l {list}) WITH compression = \
                     {{'class': '{compressor}'}};"
                );
                let mb = bytes_below(&tool.write(name, &schema, &path, version)?)? as f64 / MB;
                println!("{name} {version} {compressor}: {mb:.2} MB");
                raw.push(json!({ "table": name, "version": version, "compressor": compressor,
                    "rows": rows, "mb": mb }));
                line.push(format!("{mb:.1}"));
                all.push(mb);
            }
        }
        let goal = goal * rows as f64 / 100_000.0;
        let what = format!("smallest of {key}, {list}");
        let verdict = Verdict::at_most(what, lowest(all), goal, "MB");
        line.push(verdict.goal_text());
        line.push(report.judge(verdict));
        table.push(line);
    }
    let header = ["table", "nb, LZ4", "nb, Zstd", "da, LZ4", "da, Zstd", "goal", "verdict"];
    report.table(&format!("{rows} rows of {INTS} random ints, MB"), &header, &table);
    report.keep("lists", json!(raw));
    Ok(())
}

fn open(tool: &Tool, report: &mut Report) -> Result<()> {
    let path = tool.work.join("rows.json");
    crate::disk::write(&path, random_rows(200, "int"))?;
    let schema = "CREATE TABLE perf.many (k int PRIMARY KEY, l list<int>);";
    let directory = tool.write("many", schema, &path, "nb")?;
    let first: Vec<PathBuf> =
        crate::disk::read_dir(&directory)?.flatten().map(|e| e.path()).collect();
    for number in 2..=SSTABLES {
        for from in &first {
            let name = from.file_name().and_then(|name| name.to_str()).context("a name")?;
            let name = name.replacen("nb-1-", &format!("nb-{number}-"), 1);
            crate::disk::copy(from, directory.join(name))?;
        }
    }
    let mut seconds = Vec::new();
    for _ in 0..OPENED {
        let begun = Instant::now();
        let mut command = Command::new(&tool.binary);
        let done = command.args(["sstable", "summary"]).arg(&directory).output()?;
        let took = begun.elapsed().as_secs_f64();
        let lines = String::from_utf8_lossy(&done.stdout);
        let shown = lines.lines().filter(|line| line.contains("-big-Data.db")).count();
        if !done.status.success() || shown != SSTABLES {
            bail!("sstable summary showed {shown} of {SSTABLES} files");
        }
        seconds.push(took);
    }
    let goal = format!("{SSTABLES} SSTables opened by a tool, best");
    report.judge(Verdict::at_most(goal, lowest(seconds.clone()), 1.0, "s"));
    report.keep("open_seconds", json!(seconds));
    Ok(())
}
