//! `perf instructions`: instructions and allocations per request, both counted by callgrind; they
//! do not depend on other load of the machine. Fails when a figure is more than 5 % above the
//! stored one in `perf/instructions.json`.
//!
//! The same commit takes up to a fifth more instructions on some processors than on others, even of
//! one vendor (a quarter of a read's are in libc's copying, which adapts to the processor). So
//! figures are stored by model. A processor without figures is compared with the highest of all.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::profile::Profile;

const SECTIONS: [&str; 5] =
    ["memtable_read", "write", "sstable_read", "slice_memtable", "slice_sstable"];
/// Counted with `--release` and `--dist` only: each section takes half a minute.
const UNPREPARED: &str = "unprepared_read";
/// How far above the stored figure a figure may be.
const TOLERANCE: f64 = 1.05;

/// Figures of one section, per request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Cost {
    pub(super) instructions: f64,
    allocations: f64,
}

/// By profile and processor, then by section.
type Stored = BTreeMap<String, BTreeMap<String, Cost>>;

/// Returns the key of this processor's figures: profile, vendor, family and model.
fn key_of(profile: &str, cpuinfo: &str) -> String {
    let field = |name: &str| {
        let of = |line: &'_ str| -> Option<String> {
            let (field, value) = line.split_once(':')?;
            (field.trim() == name).then(|| value.trim().to_owned())
        };
        cpuinfo.lines().find_map(of).unwrap_or_else(|| "unknown".to_owned())
    };
    let (vendor, family, model) = (field("vendor_id"), field("cpu family"), field("model"));
    format!("{profile} {vendor} {family} {model}")
}

/// Returns the limits of this processor: its own figures, else the highest of the profile.
fn held_to(stored: &Stored, profile: &str, key: &str) -> BTreeMap<String, Cost> {
    if let Some(own) = stored.get(key) {
        return own.clone();
    }
    let of_profile = |key: &String| key.split(' ').next() == Some(profile);
    let all = stored.iter().filter(|(key, _)| of_profile(key)).flat_map(|(_, costs)| costs);
    let mut highest: BTreeMap<String, Cost> = BTreeMap::new();
    for (section, cost) in all {
        let known = highest.entry(section.clone()).or_insert(*cost);
        known.instructions = known.instructions.max(cost.instructions);
        known.allocations = known.allocations.max(cost.allocations);
    }
    highest
}

/// Counts, compares, and with `--store` stores the figures.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let (mut profile, mut store, mut rows) = (Profile::Dev, false, "20000");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--release" => profile = Profile::Release,
            "--dist" => profile = Profile::Dist,
            "--store" => store = true,
            "--rows" => rows = words.next().context("--rows needs a number")?,
            _ => bail!("unknown option {word}; see cargo xtask help"),
        }
    }
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(root).args(["build", "--quiet"]);
    profile.select(&mut build);
    match profile {
        Profile::Release | Profile::Dist => build.args(["--package", "perf"]),
        // The same build as in the steps of the test command: alone it would have other features,
        // and everything would be built a second time.
        Profile::Dev => build.args(["--workspace", "--bins", "--tests"]),
    };
    if !build.status()?.success() {
        bail!("the build failed");
    }
    let binary = profile.program(root, "perf");
    let is_optimised = profile != Profile::Dev;
    let sections: Vec<&str> =
        SECTIONS.into_iter().chain(is_optimised.then_some(UNPREPARED)).collect();
    let costs = measure(root, &binary, rows, &sections, None)?;

    let path = root.join("perf/instructions.json");
    let mut stored: Stored = match crate::disk::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => Stored::new(),
    };
    let key =
        key_of(profile.name(), &crate::disk::read_to_string("/proc/cpuinfo").unwrap_or_default());
    if !stored.contains_key(&key) {
        println!(
            "nothing is stored for {key}: compared with the highest figures of all processors"
        );
    }
    let before = held_to(&stored, profile.name(), &key);
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
            "{:8} {section:14} {:9.0} instructions {:6.2} allocations a request; {verdict}",
            profile.name(),
            cost.instructions,
            cost.allocations
        );
    }
    if let (Some(text), Some(prepared)) = (costs.get(UNPREPARED), costs.get("memtable_read")) {
        let more = text.instructions - prepared.instructions;
        println!("parsing and planning a read of one row: {more:.0} instructions (goal: 15000)");
    }
    if store {
        stored.insert(key, costs);
        crate::disk::write(&path, serde_json::to_string_pretty(&stored)? + "\n")?;
    }
    Ok(passed)
}

/// Counts some sections, with SSTables of a version, or of the one that is the default.
pub(super) fn measure(
    root: &Path,
    binary: &Path,
    rows: &str,
    sections: &[&str],
    version: Option<&str>,
) -> Result<BTreeMap<String, Cost>> {
    let home = root.join("target/perf/instructions");
    if home.exists() {
        crate::disk::remove_dir_all(&home)?;
    }
    crate::disk::create_dir_all(&home)?;
    let mut costs = BTreeMap::new();
    // One run for each section: callgrind toggles collection by one function reliably, not by many.
    for &section in sections {
        let data = home.join(section);
        let mut command = Command::new("valgrind");
        command.current_dir(&home).args(["--tool=callgrind", "--callgrind-out-file=counts"]);
        command.args(["--dump-instr=yes", "--compress-pos=no"]);
        command.arg(format!("--toggle-collect=perf::measured_{section}"));
        command.arg(binary);
        if let Some(version) = version {
            command.args(["--sstable-version", version]);
        }
        command.arg(&data).arg(rows);
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
        let counts = crate::disk::read_to_string(home.join("counts"))?;
        let total = total_of(&counts).filter(|t| *t > 0.0);
        let total = total.with_context(|| format!("callgrind counted nothing for {section}"))?;
        let allocations = allocations_of(&counts) as f64;
        let cost = Cost { instructions: total / requests, allocations: allocations / requests };
        costs.insert(section.to_owned(), cost);
        crate::disk::remove_dir_all(&data)?;
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
    fn a_processor_is_held_to_its_own_figures_else_to_the_highest() {
        let cpuinfo = "processor\t: 0\nvendor_id\t: V\ncpu family\t: 6\nmodel\t\t: 167\n\
                       model name\t: a b\n\nvendor_id\t: W\n";
        assert_eq!(super::key_of("dev", cpuinfo), "dev V 6 167");
        assert_eq!(super::key_of("dev", ""), "dev unknown unknown unknown");
        let of = |instructions, allocations| {
            [("read".to_owned(), super::Cost { instructions, allocations })].into()
        };
        let stored: super::Stored = [
            ("dev V 6 167".to_owned(), of(10.0, 3.0)),
            ("dev W 1 2".to_owned(), of(12.0, 2.0)),
            ("release W 1 2".to_owned(), of(99.0, 9.0)),
        ]
        .into();
        let held = |key: &str| {
            let cost = super::held_to(&stored, "dev", key)["read"];
            (cost.instructions, cost.allocations)
        };
        assert_eq!(held("dev V 6 167"), (10.0, 3.0));
        assert_eq!(held("dev X 1 1"), (12.0, 3.0));
        assert!(super::held_to(&stored, "other", "other X 1 1").is_empty());
    }
}
