//! `perf engine`: speed of SSTable write and compaction in the engine itself, without a server.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::profile::Profile;
use super::report::{Report, Verdict, median, rounded};

/// MB of uncompressed data per second and core that are wanted, by the shape of the rows.
const GOALS: [(&str, f64); 2] = [("standard1", 150.0), ("40-byte", 60.0)];

/// Builds the benchmark, runs it and compares with the goals. False when one is missed.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let (mut profile, mut mb, mut repeat) = (Profile::Dist, "256", 3);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--dev" => profile = Profile::Dev,
            "--mb" => mb = words.next().context("--mb needs a number")?,
            "--repeat" => repeat = words.next().context("--repeat needs a number")?.parse()?,
            _ => bail!("unknown option {word}; see cargo xtask help"),
        }
    }
    let binary = build(root, profile)?;
    let home = root.join("target/perf/engine");
    crate::disk::create_dir_all(&home)?;
    let mut lines: Vec<Value> = Vec::new();
    for round in 0..repeat {
        println!("run {} of {repeat}", round + 1);
        lines.extend(once(&binary, &home, mb, None)?);
    }
    tell(&home, &lines)
}

/// Builds the benchmark.
pub(super) fn build(root: &Path, profile: Profile) -> Result<PathBuf> {
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(root).args(["build", "--quiet", "--package", "perf"]);
    profile.select(&mut build);
    if !build.status()?.success() {
        bail!("the build failed");
    }
    Ok(profile.program(root, "perf"))
}

/// Its figures of one run, which writes SSTables of a version, or of the one that is the default.
pub(super) fn once(
    binary: &Path,
    home: &Path,
    mb: &str,
    version: Option<&str>,
) -> Result<Vec<Value>> {
    let work = home.join("work");
    if work.exists() {
        crate::disk::remove_dir_all(&work)?;
    }
    let mut command = super::process::bound(binary);
    if let Some(version) = version {
        command.args(["--sstable-version", version]);
    }
    let output = command.arg("engine").arg(&work).arg(mb).output()?;
    crate::disk::remove_dir_all(&work)?;
    if !output.status.success() {
        bail!("the benchmark failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(|l| serde_json::from_str(l).with_context(|| format!("output: {l}"))).collect()
}

fn tell(home: &Path, lines: &[Value]) -> Result<bool> {
    let mut report = Report::new();
    let mut rows = Vec::new();
    let mut passed = true;
    for (shape, goal) in GOALS {
        for step in ["flush", "compaction"] {
            let runs = || lines.iter().filter(|l| l["rows"] == shape && l["step"] == step);
            let of = |name: &str| median(runs().filter_map(|l| l[name].as_f64()));
            let cpu = of("mb_per_cpu_second");
            let verdict =
                Verdict::at_least(format!("{step} of {shape} rows"), cpu, goal, "MB per CPU-s");
            passed &= verdict.is_reached();
            rows.push(vec![
                shape.to_owned(),
                step.to_owned(),
                rounded(of("uncompressed_mb")),
                rounded(of("mb_per_second")),
                rounded(cpu),
                rounded(goal),
                report.judge(verdict),
            ]);
        }
    }
    let header = ["rows", "step", "MB", "MB/s", "MB per CPU-s", "goal", "verdict"];
    report.table("SSTable write and compaction, one shard, LZ4, medians", &header, &rows);
    report.keep("engine", Value::Array(lines.to_vec()));
    report.write(home)?;
    Ok(passed)
}
