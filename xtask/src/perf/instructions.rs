//! `perf instructions`: instructions and allocations per request, both counted by callgrind; they
//! do not depend on what else the machine does. Fails when a figure is more than 5 % above the
//! stored one in `perf/instructions.json`. The same commit took a sixth more instructions on a processor
//! of AMD than on one of Intel, so figures are stored by vendor; where there are none of a vendor only
//! allocations are compared.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

const SECTIONS: [&str; 5] =
    ["memtable_read", "write", "sstable_read", "slice_memtable", "slice_sstable"];
/// Counted with `--release` only: each section takes half a minute.
const UNPREPARED: &str = "unprepared_read";
/// How far above the stored figure a figure may be.
const TOLERANCE: f64 = 1.05;

/// Figures of one section, per request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Cost {
    instructions: f64,
    allocations: f64,
}

/// By profile (with the processor's vendor behind it unless that is Intel), then by section.
type Stored = BTreeMap<String, BTreeMap<String, Cost>>;

/// The name of what is stored for this processor.
fn key_of(profile: &str, cpuinfo: &str) -> String {
    let vendor = cpuinfo.lines().find_map(|line| line.strip_prefix("vendor_id")?.split_once(':'));
    match vendor.map_or("other", |(_, vendor)| vendor.trim()) {
        "GenuineIntel" => profile.to_owned(),
        vendor => format!("{profile} {vendor}"),
    }
}

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
    build.current_dir(root).args(["build", "--quiet"]);
    match release {
        true => build.args(["--package", "perf", "--release"]),
        // As the steps of the test command build it: alone it would have other features, and all of it would
        // be built a second time.
        false => build.args(["--workspace", "--bins", "--tests"]),
    };
    if !build.status()?.success() {
        bail!("the build failed");
    }
    let binary = root.join("target").join(if release { "release" } else { "debug" }).join("perf");
    let costs = measure(root, &binary, rows, release)?;

    let path = root.join("perf/instructions.json");
    let mut stored: Stored = match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => Stored::new(),
    };
    let key = key_of(profile, &std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    let before = stored.get(&key).cloned().unwrap_or_else(|| {
        println!("no instructions are stored for {key}: allocations are compared only");
        let other = stored.get(profile).cloned().unwrap_or_default();
        let unknown = |cost: Cost| Cost { instructions: f64::INFINITY, ..cost };
        other.into_iter().map(|(section, cost)| (section, unknown(cost))).collect()
    });
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
    if let (Some(text), Some(prepared)) = (costs.get(UNPREPARED), costs.get("memtable_read")) {
        let more = text.instructions - prepared.instructions;
        println!("parsing and planning a read of one row: {more:.0} instructions (goal: 15000)");
    }
    if store {
        stored.insert(key, costs);
        std::fs::write(&path, serde_json::to_string_pretty(&stored)? + "\n")?;
    }
    Ok(passed)
}

fn measure(
    root: &Path,
    binary: &Path,
    rows: &str,
    release: bool,
) -> Result<BTreeMap<String, Cost>> {
    let home = root.join("target/perf/instructions");
    if home.exists() {
        std::fs::remove_dir_all(&home)?;
    }
    std::fs::create_dir_all(&home)?;
    let mut costs = BTreeMap::new();
    // One run for each section: callgrind toggles collection by one function reliably, not by many.
    for section in SECTIONS.into_iter().chain(release.then_some(UNPREPARED)) {
        let data = home.join(section);
        let mut command = Command::new("valgrind");
        command.current_dir(&home).args(["--tool=callgrind", "--callgrind-out-file=counts"]);
        command.args(["--dump-instr=yes", "--compress-pos=no"]);
        command.arg(format!("--toggle-collect=perf::measured_{section}"));
        command.arg(binary).arg(&data).arg(rows);
        if section == UNPREPARED {
            command.arg("unprepared");
        }
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
pub(super) const ALLOCATORS: [&str; 5] =
    ["_rjem_malloc", "_rjem_mallocx", "_rjem_calloc", "_rjem_realloc", "_rjem_rallocx"];

/// Calls of the allocator in a callgrind output file with absolute instruction addresses: how often
/// the first instruction of each of its functions was executed. (`calls=` is no measure, it also
/// counts while nothing is collected.) A function stands on a line `fn=(number) name`, later only
/// `fn=(number)`, before lines `0xaddress line cost`; the line after `calls=` is the callee's cost.
fn allocations_of(counts: &str) -> u64 {
    let mut allocators: Vec<&str> = Vec::new();
    let mut entries: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut function = None;
    let mut of_callee = false;
    for line in counts.lines() {
        if let Some(named) = line.strip_prefix("fn=").or(line.strip_prefix("cfn=")) {
            let (number, name) = named.split_once(' ').unwrap_or((named, ""));
            if ALLOCATORS.contains(&name) {
                allocators.push(number);
            }
            if line.starts_with("fn=") {
                function = allocators.contains(&number).then_some(number);
            }
        } else if line.starts_with("calls=") {
            of_callee = true;
        } else if line.starts_with("0x")
            && !std::mem::take(&mut of_callee)
            && let Some(number) = function
        {
            let mut words = line.split_whitespace();
            let address = words.next().and_then(|w| u64::from_str_radix(w.get(2..)?, 16).ok());
            let cost = words.nth(1).and_then(|w| w.parse::<u64>().ok());
            let (Some(address), Some(cost)) = (address, cost) else { continue };
            let first = entries.entry(number).or_insert((address, cost));
            if address < first.0 {
                *first = (address, cost);
            } else if address == first.0 {
                first.1 = first.1.max(cost);
            }
        }
    }
    entries.values().map(|(_, cost)| cost).sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn allocations_are_entries_into_the_allocator() {
        let counts = "fn=(1) main\n0x10 3 4\ncfn=(2) _rjem_malloc\ncalls=700 0\n0x14 3 70\n\
                      0x18 3 9\n\nfn=(2)\n0x44 0 7\n0x40 0 7\ncfn=(9) slow\ncalls=1 0\n\
                      0x3f 0 5\n\nfn=(5) _rjem_mallocx\n0x80 0 3\n0x84 0 3\n\nfn=(6) other\n\
                      0x20 0 100\n";
        assert_eq!(super::allocations_of(counts), 10);
    }

    #[test]
    fn figures_are_stored_by_vendor() {
        let of = |vendor: &str| {
            super::key_of("dev", &format!("processor\t: 0\nvendor_id\t: {vendor}\n"))
        };
        assert_eq!(of("GenuineIntel"), "dev");
        assert_eq!(of("AuthenticAMD"), "dev AuthenticAMD");
        assert_eq!(super::key_of("dev", ""), "dev other");
    }
}
