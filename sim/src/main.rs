//! Runs simulated worlds: `sim` (all scenarios, fixed seeds, each twice), `sim SCENARIO SEED`,
//! `sim soak --minutes N`. See `docs/dev/simulator.md`.

mod batches;
mod cells;
mod checks;
mod client;
mod cluster;
mod counts;
mod durability;
mod export;
mod history;
mod leaks;
mod lwt;
#[cfg(test)]
mod metadata;
mod nemesis;
mod operator;
mod report;
mod scenario;
mod soak;
mod survey;
mod workload;

use std::process::ExitCode;

use conf::CommitLogSync;
use durability::{Crash, Plan, Trouble};
use report::Report;
use scenario::Scenario;
use soak::OneRun;

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        shards: [1, 2, 3][(seed % 3) as usize],
        crash: if seed.is_multiple_of(2) { Crash::Kill } else { Crash::PowerCut },
        sync: match seed % 5 {
            0 | 1 => CommitLogSync::Periodic,
            2 | 3 => CommitLogSync::Batch,
            _ => CommitLogSync::Group,
        },
        crashes: 2 + (seed % 3) as u32,
        small_memory: seed % 4 >= 2,
        trouble: match seed {
            0..25 => Trouble::None,
            _ => [Trouble::Slow, Trouble::Failing, Trouble::Full][(seed / 3 % 3) as usize],
        },
    }
}

/// A scenario that can be run.
struct Entry {
    name: String,
    /// Fixed seeds without arguments.
    seeds: u64,
    /// Nodes of a run.
    nodes: u64,
    /// The choices of a seed, in words.
    plan: Box<dyn Fn(u64) -> String>,
    run: OneRun,
}

/// All scenarios: those of code, then those of files.
///
/// # Errors
/// What is wrong with a file.
fn entries() -> Result<Vec<Entry>, scenario::ScenarioError> {
    let mut entries = vec![
        Entry {
            name: "durability".to_owned(),
            seeds: 43,
            nodes: 1,
            plan: Box::new(|seed| format!("{:?}", plan(seed))),
            run: Box::new(|seed| durability::run(&plan(seed))),
        },
        Entry {
            name: "batches".to_owned(),
            seeds: 24,
            nodes: 1,
            plan: Box::new(|seed| format!("{:?}", batches::plan(seed))),
            run: Box::new(|seed| batches::run(&batches::plan(seed))),
        },
    ];
    for (name, _) in scenario::FILES {
        if let Some(scenario) = Scenario::of_name(name) {
            let scenario = scenario?;
            let (seeds, nodes) = (scenario.seeds, scenario.nodes);
            entries.push(Entry {
                name: (*name).to_owned(),
                seeds,
                nodes,
                plan: Box::new(move |_| format!("{nodes} nodes")),
                run: Box::new(move |seed| cluster::run(&scenario, seed)),
            });
        }
    }
    Ok(entries)
}

/// Runs a seed twice and demands the same trace.
fn run_twice(run: &OneRun, seed: u64) -> Result<Report, String> {
    let first = run(seed)?;
    let second = run(seed)?;
    if first.trace != second.trace {
        let differs = first.checkpoints.iter().zip(&second.checkpoints).position(|(a, b)| a != b);
        return Err(format!("two runs of one seed differ, first at checkpoint {differs:?}"));
    }
    Ok(first)
}

/// Which seeds of which scenario; `None`: the arguments are wrong.
fn chosen(arguments: &[String], name: &str, seeds: u64) -> Option<std::ops::Range<u64>> {
    let number = |text: &String| text.parse::<u64>().ok();
    match arguments {
        [] => Some(0..seeds),
        [wanted, ..] if wanted != name => Some(0..0),
        [_] => Some(0..seeds),
        [_, seed] => number(seed).map(|seed| seed..seed.saturating_add(1)),
        [_, from, to] => Some(number(from)?..number(to)?),
        _ => None,
    }
}

/// The seeds that are kept because they found something: name, scenario, seed. Those that are open
/// are left out.
fn kept_seeds() -> Vec<(&'static str, &'static str, u64)> {
    let lines = include_str!("../seeds.txt").lines().filter(|line| !line.starts_with('#'));
    let seed = |line: &'static str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [name, scenario, seed] => Some((*name, *scenario, seed.parse().ok()?)),
            _ => None,
        }
    };
    lines.filter_map(seed).collect()
}

fn usage(entries: &[Entry]) -> ExitCode {
    let names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    eprintln!("usage: sim [SCENARIO [SEED | FROM TO]]");
    eprintln!("       sim soak --minutes N [--seed S] [--scenario X] [--runs N]");
    eprintln!("       sim export DIRECTORY");
    eprintln!("scenarios: {}", names.join(", "));
    ExitCode::from(2)
}

fn soak(words: &[String], entries: Vec<Entry>, is_part: bool) -> ExitCode {
    let orders = match soak::parse(words) {
        Ok(orders) => orders,
        Err(problem) => {
            eprintln!("sim soak: {problem}");
            return usage(&entries);
        }
    };
    // Without a name: those of clusters that are switched on.
    let wanted = |entry: &Entry| match &orders.scenario {
        Some(name) => entry.name == *name,
        None => entry.seeds > 0 && entry.nodes >= soak::NODES_MIN,
    };
    if !entries.iter().any(wanted) {
        eprintln!("sim soak: unknown scenario");
        return usage(&entries);
    }
    let runs: Vec<(String, OneRun)> =
        entries.into_iter().filter(wanted).map(|entry| (entry.name, entry.run)).collect();
    match is_part {
        true => soak::run_here(&orders, &runs),
        false => soak::run(&orders, runs.len() as u64),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let entries = match entries() {
        Ok(entries) => entries,
        Err(error) => {
            eprintln!("sim: {error}");
            return ExitCode::from(2);
        }
    };
    if let [first, words @ ..] = arguments.as_slice()
        && (first == "soak" || first == "soak-part")
    {
        return soak(words, entries, first == "soak-part");
    }
    if let [first, directory] = arguments.as_slice()
        && first == "export"
    {
        return export::run(directory);
    }
    let is_known = |name: &String| entries.iter().any(|entry| entry.name == *name);
    if !arguments.first().is_none_or(is_known) {
        return usage(&entries);
    }
    let (mut passed, mut failed) = (0, 0);
    for entry in &entries {
        let name = &entry.name;
        let Some(seeds) = chosen(&arguments, name, entry.seeds) else { return usage(&entries) };
        let kept: Vec<(&str, u64)> = match arguments.is_empty() {
            true => {
                let of_entry = kept_seeds().into_iter().filter(|(_, scenario, _)| scenario == name);
                of_entry.map(|(kept, _, seed)| (kept, seed)).collect()
            }
            false => Vec::new(),
        };
        for (kept, seed) in seeds.map(|seed| ("", seed)).chain(kept) {
            let plan = (entry.plan)(seed);
            match run_twice(&entry.run, seed) {
                Ok(report) => {
                    passed += 1;
                    println!(
                        "ok   {name} {seed} {plan}: {} acknowledged {kept}",
                        report.acknowledged
                    );
                    // What one seed reached is of interest when it was asked for.
                    if arguments.len() == 2 && !report.faults.is_empty() {
                        println!("     faults: {:?}", report.faults);
                        println!("     reached: {}", report.probes);
                    }
                }
                Err(error) => {
                    failed += 1;
                    println!("FAIL {name} {seed} {plan} {kept}: {error}");
                    println!("     again: cargo run -p sim -- {name} {seed}");
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_seeds_are_of_scenarios_that_there_are() {
        let lines = include_str!("../seeds.txt").lines().filter(|l| !l.starts_with('#'));
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert!(words.len() == 3 || (words.len() == 4 && words[3] == "open"), "{line}");
            assert!(Scenario::of_name(words[1]).is_some() && words[2].parse::<u64>().is_ok());
        }
    }
}
