//! `perf instructions`: instructions and allocations per request, both counted by callgrind; they
//! do not depend on what else the machine does. Fails when a figure is more than 5 % above the
//! stored one in `perf/instructions.json`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

const SECTIONS: [&str; 5] =
    ["memtable_read", "write", "sstable_read", "slice_memtable", "slice_sstable"];
/// How far above the stored figure a figure may be.
const TOLERANCE: f64 = 1.05;

/// Figures of one section, per request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Cost {
    instructions: f64,
    allocations: f64,
}

/// By profile, then by section.
type Stored = BTreeMap<String, BTreeMap<String, Cost>>;

/// Counts, compares, and with `--store` keeps the figures.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let (mut release, mut store, mut rows) = (false, false, "20000");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--release" => release = true,
            "--store" => store = true,
            "--rows" => rows = words.next().context("--rows needs a number")?,
            _ => bail!("unknown option {word}; see cargo xtask help"),
        }
    }
    let profile = if release { "release" } else { "dev" };
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(root).args(["build", "--quiet", "--package", "perf"]);
    if release {
        build.arg("--release");
    }
    if !build.status()?.success() {
        bail!("the build failed");
    }
    let binary = root.join("target").join(if release { "release" } else { "debug" }).join("perf");
    let costs = measure(root, &binary, rows)?;

    let path = root.join("perf/instructions.json");
    let mut stored: Stored = match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => Stored::new(),
    };
    let before = stored.get(profile).cloned().unwrap_or_default();
    let mut passed = true;
    for (section, cost) in &costs {
        let verdict = match before.get(section) {
            None => "not stored yet".to_owned(),
            Some(old) => {
                let worse = cost.instructions > old.instructions * TOLERANCE
                    || cost.allocations > old.allocations * TOLERANCE + 0.01;
                passed &= !worse || store;
                format!(
                    "stored {:.0} and {:.2}{}",
                    old.instructions,
                    old.allocations,
                    if worse { ": WORSE by more than 5 %" } else { "" }
                )
            }
        };
        println!(
            "{profile:8} {section:14} {:9.0} instructions {:6.2} allocations a request; {verdict}",
            cost.instructions, cost.allocations
        );
    }
    if store {
        stored.insert(profile.to_owned(), costs);
        std::fs::write(&path, serde_json::to_string_pretty(&stored)? + "\n")?;
    }
    Ok(passed)
}

fn measure(root: &Path, binary: &Path, rows: &str) -> Result<BTreeMap<String, Cost>> {
    let home = root.join("target/perf/instructions");
    if home.exists() {
        std::fs::remove_dir_all(&home)?;
    }
    std::fs::create_dir_all(&home)?;
    let mut costs = BTreeMap::new();
    // One run for each section: callgrind toggles collection by one function reliably, not by many.
    for section in SECTIONS {
        let data = home.join(section);
        let mut command = Command::new("valgrind");
        command.current_dir(&home).args(["--tool=callgrind", "--callgrind-out-file=counts"]);
        command.arg(format!("--toggle-collect=perf::measured_{section}"));
        command.arg(binary).arg(&data).arg(rows);
        let output =
            command.output().context("cannot run valgrind; install the package valgrind")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("{text}{}", String::from_utf8_lossy(&output.stderr));
        }
        let line = text.lines().find(|l| l.split(' ').next() == Some(section));
        let words: Vec<&str> = line.unwrap_or("").split_whitespace().collect();
        let [_, "requests", requests, ..] = words.as_slice() else {
            bail!("no figures for {section}, the output was:\n{text}");
        };
        let requests: f64 = requests.parse()?;
        let counts = std::fs::read_to_string(home.join("counts"))?;
        let total = total_of(&counts).filter(|t| *t > 0.0);
        let total = total.with_context(|| format!("callgrind counted nothing for {section}"))?;
        let allocations = allocations_of(&counts) as f64;
        let cost = Cost { instructions: total / requests, allocations: allocations / requests };
        costs.insert(section.to_owned(), cost);
        std::fs::remove_dir_all(&data)?;
    }
    Ok(costs)
}

/// The total of a callgrind output file.
fn total_of(counts: &str) -> Option<f64> {
    let total =
        counts.lines().find_map(|l| l.strip_prefix("summary:").or(l.strip_prefix("totals:")))?;
    total.split_whitespace().next()?.parse().ok()
}

/// The functions of the allocator that give memory, also more of it.
const ALLOCATORS: [&str; 5] =
    ["_rjem_malloc", "_rjem_mallocx", "_rjem_calloc", "_rjem_realloc", "_rjem_rallocx"];

/// Calls of the allocator in a callgrind output file. A callee stands on a line `cfn=(number) name`,
/// later only `cfn=(number)`, before `calls=count ...`.
fn allocations_of(counts: &str) -> u64 {
    let mut allocators: Vec<&str> = Vec::new();
    let mut calls = 0;
    let mut counts_now = false;
    for line in counts.lines() {
        if let Some(function) = line.strip_prefix("fn=").or(line.strip_prefix("cfn=")) {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            if ALLOCATORS.contains(&name) {
                allocators.push(number);
            }
            counts_now = line.starts_with("cfn=") && allocators.contains(&number);
        } else if let Some(rest) = line.strip_prefix("calls=")
            && counts_now
        {
            let count = rest.split(' ').next().and_then(|n| n.parse().ok());
            calls += count.unwrap_or(0_u64);
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    #[test]
    fn allocations_are_calls_of_the_allocator() {
        let counts = "fn=(1) main\n3 4\ncfn=(2) _rjem_malloc\ncalls=7 0\n3 70\ncfn=(3) other\n\
                      calls=100 0\n4 5\nfn=(4) f\ncfi=(9)\ncfn=(2)\ncalls=2 0\n9 20\n\
                      cfn=(5) _rjem_mallocx\ncalls=1 0\n9 10\n";
        assert_eq!(super::allocations_of(counts), 10);
    }
}
