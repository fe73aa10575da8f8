//! `perf formats`: costs of each writable version of SSTables, in the same run: CPU of flush and
//! compaction and bytes on the disk for two shapes of rows (the benchmark of `perf engine`),
//! instructions of reads whose blocks are cached.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::report::{Report, median, rounded};
use super::{engine, instructions};

const VERSIONS: [&str; 4] = ["me", "nb", "oa", "da"];
const SHAPES: [&str; 2] = ["standard1", "40-byte"];
const SECTIONS: [&str; 2] = ["sstable_read", "slice_sstable"];

/// Measures; writes `formats.md` and `formats.json` below `target/perf`.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let (mut mb, mut repeat, mut rows) = ("128", 3, "20000");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--mb" => mb = words.next().context("--mb needs a number")?,
            "--repeat" => repeat = words.next().context("--repeat needs a number")?.parse()?,
            "--rows" => rows = words.next().context("--rows needs a number")?,
            _ => bail!("unknown option {word}; see cargo xtask help"),
        }
    }
    let binary = engine::build(root, super::profile::Profile::Dist)?;
    let home = root.join("target/perf");
    let work = home.join("formats");
    crate::disk::create_dir_all(&work)?;
    let mut lines: Vec<(&str, Value)> = Vec::new();
    for round in 0..repeat {
        for version in VERSIONS {
            println!("run {} of {repeat}: {version}", round + 1);
            let run = engine::once(&binary, &work, mb, Some(version))?;
            lines.extend(run.into_iter().map(|line| (version, line)));
        }
    }
    let mut report = Report::named("formats");
    report.keep("machine", super::machine());
    let mut table = Vec::new();
    let cell = |version: &str, shape: &str, step: &str, name: &str| {
        let of = lines.iter().filter(|(v, l)| *v == version && l["rows"] == shape);
        rounded(median(of.filter(|(_, l)| l["step"] == step).filter_map(|(_, l)| l[name].as_f64())))
    };
    for shape in SHAPES {
        for (step, name, what) in [
            ("flush", "cpu_seconds", "flush, CPU-s"),
            ("compaction", "cpu_seconds", "compaction, CPU-s"),
            ("compaction", "disk_mb", "MB on the disk"),
        ] {
            let mut row = vec![format!("{shape}: {what}")];
            row.extend(VERSIONS.map(|version| cell(version, shape, step, name)));
            table.push(row);
        }
    }
    let mut counts = Vec::new();
    for version in VERSIONS {
        println!("instructions: {version}");
        counts.push(instructions::measure(root, &binary, rows, &SECTIONS, Some(version))?);
    }
    for section in SECTIONS {
        let mut row = vec![format!("{section}, instructions")];
        row.extend(
            counts.iter().map(|costs| {
                rounded(costs.get(section).map_or(f64::NAN, |cost| cost.instructions))
            }),
        );
        table.push(row);
    }
    let header: Vec<&str> = ["what"].into_iter().chain(VERSIONS).collect();
    report.table("Versions of SSTables, one shard, LZ4, medians", &header, &table);
    let kept = lines.into_iter().map(|(v, line)| serde_json::json!({"version": v, "run": line}));
    report.keep("formats", Value::Array(kept.collect()));
    report.write(&home)?;
    crate::disk::remove_dir_all(&work)?;
    Ok(true)
}
