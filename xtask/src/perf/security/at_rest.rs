//! Section "at-rest": CPU of encrypted SSTables.
//!
//! Two servers with the same rows, one of which encrypts its files. Their caches hold a small part of the rows, so that
//! most reads by key open and decrypt a block. Judged are the encrypting server's CPU per read, and its CPU of one
//! compaction of all files, over those of the other; medians of `--repeat` rounds, in turns. The commit log is not
//! encrypted: `user_info_encryption` only.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::json;

use super::super::process::{Server, Target, helenus_binary, helenus_data};
use super::super::report::{Report, Verdict, median, rounded};
use super::Bench;
use super::bench::{Generator, Length, Load};

/// CPU per read with encryption over that without is to be at most this …
const READ_GOAL: f64 = 1.10;
/// … and CPU of a compaction at most this.
const COMPACTION_GOAL: f64 = 1.15;
/// Budget of the servers: the caches are a part of it.
const MEMORY: &str = "128M";
/// Flushes of the rows, each a file.
const FLUSHES: u64 = 4;

/// The two servers.
const NAMES: [&str; 2] = ["plain", "encrypted"];

/// Figures of one server.
#[derive(Default, Serialize)]
struct Found {
    /// CPU-seconds for 1,000 reads.
    reads: Vec<f64>,
    /// CPU-seconds of a compaction of all rows.
    compactions: Vec<f64>,
}

/// Measures both, one after the other within each round: they have the same port.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let mut found = [Found::default(), Found::default()];
    for round in 0..bench.settings.repeat {
        for (name, found) in NAMES.iter().zip(&mut found) {
            let server = start(bench, name)?;
            measure(bench, &server, found).with_context(|| format!("the {name} server"))?;
            server.stop()?;
            let (reads, compactions) = (found.reads.last(), found.compactions.last());
            let of = bench.settings.repeat;
            println!("{}/{of} {name:9} reads {reads:?} compaction {compactions:?}", round + 1);
        }
    }
    tell(&found, report);
    Ok(())
}

fn start(bench: &Bench<'_>, name: &str) -> Result<Server> {
    let data = helenus_data(bench.home);
    if data.exists() {
        crate::disk::remove_dir_all(&data)?;
    }
    if name == "plain" {
        return Server::helenus_with(bench.root, bench.home, MEMORY, &[]);
    }
    let yaml = encryption(bench.root, bench.home)?;
    Server::helenus_with(bench.root, bench.home, MEMORY, &["--config", &yaml])
}

/// Makes a key file and the settings that name it; returns the path of the settings.
fn encryption(root: &Path, home: &Path) -> Result<String> {
    let directory = home.join("at-rest-keys");
    if directory.exists() {
        crate::disk::remove_dir_all(&directory)?;
    }
    crate::disk::create_dir_all(&directory)?;
    let key = directory.join("data_encryption_keys");
    let output = Command::new(helenus_binary(root))
        .args(["key", "generate", "--id", "perf"])
        .arg(&key)
        .output()?;
    if !output.status.success() {
        bail!("helenus key generate: {}", String::from_utf8_lossy(&output.stderr));
    }
    let yaml = home.join("at-rest.yaml");
    let text = format!(
        "system_key_directory: {}\nuser_info_encryption:\n  enabled: true\n",
        directory.display()
    );
    crate::disk::write(&yaml, text)?;
    Ok(yaml.display().to_string())
}

fn measure(bench: &Bench<'_>, server: &Server, found: &mut Found) -> Result<()> {
    let generator = Generator::new(bench.root);
    let rows = bench.settings.rows;
    let load = |workload, length| Load { workload, rows, length, rate: None, authority: None };
    let nodetool = |words: &[&str]| super::super::process::nodetool(bench.root, words);
    // Makes the table.
    generator.run(&load("insert", Length::Operations(1)), server)?;
    nodetool(&["disableautocompaction", "perf"])?;
    nodetool(&["setcompactionthroughput", "0"])?;
    for _ in 0..FLUSHES {
        generator.run(&load("insert", Length::Operations(rows)), server)?;
        nodetool(&["flush", "perf"])?;
    }
    let before = server.cpu_seconds()?;
    nodetool(&["compact", "perf"])?;
    found.compactions.push(server.cpu_seconds()? - before);
    if bench.settings.warm > 0 {
        let warm = Length::Seconds(bench.settings.warm.div_ceil(4));
        generator.run(&load("read", warm), server)?;
    }
    let reads = generator.run(&load("read", Length::Seconds(bench.settings.seconds)), server)?;
    found.reads.push(reads.cpu_per_1000);
    Ok(())
}

fn tell(found: &[Found; 2], report: &mut Report) {
    let header = ["what", "plain", "encrypted", "ratio", "goal", "verdict"];
    let [plain, encrypted] = found;
    let mut rows = Vec::new();
    for (what, goal, of) in [
        ("CPU-s per 1,000 reads from files", READ_GOAL, (|f| &f.reads) as fn(&Found) -> &Vec<f64>),
        ("CPU-s of a compaction", COMPACTION_GOAL, |f| &f.compactions),
    ] {
        let [plain, encrypted] = [plain, encrypted].map(|f| median(of(f).iter().copied()));
        let ratio = encrypted / plain;
        let judged =
            Verdict::at_most(format!("{what}, encrypted over plain"), ratio, goal, "times");
        rows.push(vec![
            what.to_owned(),
            rounded(plain),
            rounded(encrypted),
            rounded(ratio),
            rounded(goal),
            report.judge(judged),
        ]);
    }
    report.table("Encryption at rest", &header, &rows);
    let raw: Vec<_> =
        NAMES.iter().zip(found).map(|(n, f)| json!({"server": n, "runs": f})).collect();
    report.keep("at_rest", json!(raw));
}
