//! Runs simulated worlds: `sim` (all scenarios, fixed seeds), `sim SCENARIO SEED`,
//! `sim soak --minutes N`. See `docs/dev/simulator.md`.

mod audit_overflow;
mod batches;
mod by_itself;
mod cells;
mod checks;
mod client;
mod cluster;
mod counts;
mod damaged_start;
mod datacenters;
mod dealing;
mod durability;
mod encrypted;
mod export;
mod fault_points;
mod fixed;
mod folded;
mod history;
mod indexes;
mod intruder;
mod inverted;
mod key_provider;
mod large;
mod leaks;
mod logging;
mod lost_log;
mod lwt;
#[cfg(test)]
mod metadata;
mod nemesis;
mod nodes;
mod operator;
mod outrun;
mod phases;
mod progress;
#[cfg(test)]
mod recorded;
mod report;
mod rotting;
mod run;
mod sabotage;
mod scenario;
mod schedule;
mod schema_tables;
mod small_files;
mod soak;
mod survey;
mod truncations;
mod unread;
mod wild_clock;
mod workload;

use std::process::ExitCode;

/// Runs are mostly allocation. Counted, so that a run can be asked whether it left anything.
#[global_allocator]
static ALLOCATOR: rt::Counting<tikv_jemallocator::Jemalloc> =
    rt::Counting(tikv_jemallocator::Jemalloc);

use conf::CommitLogSync;
use durability::{Crash, Plan, Trouble};
use fixed::Job;
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

/// A scenario of code: its name, fixed seeds, nodes, what a seed chooses, and its run.
fn code<P: std::fmt::Debug + 'static>(
    name: &str,
    seeds: u64,
    nodes: u64,
    plan: fn(u64) -> P,
    run: fn(&P) -> Result<report::Report, String>,
) -> Entry {
    Entry {
        name: name.to_owned(),
        seeds,
        nodes,
        plan: Box::new(move |seed| format!("{:?}", plan(seed))),
        run: Box::new(move |seed| run(&plan(seed))),
    }
}

/// Returns all scenarios: those of code, a row each, then those of files.
///
/// # Errors
/// An error in a file.
fn entries() -> Result<Vec<Entry>, scenario::ScenarioError> {
    let mut entries = vec![
        code("durability", 43, 1, plan, durability::run),
        code("batches", 24, 1, batches::plan, batches::run),
        code("unread", 9, 1, unread::plan, unread::run),
        code("audit_overflow", 18, 1, audit_overflow::plan, audit_overflow::run),
        code("truncations", 20, 2, truncations::plan, truncations::run),
        code("schema_tables", 18, 1, schema_tables::plan, schema_tables::run),
        code("small_files", 24, 2, small_files::plan, small_files::run),
        code("lost_log", 24, 1, lost_log::plan, lost_log::run),
        code("outrun", 6, 3, outrun::plan, outrun::run),
        code("wild_clock", 6, 3, wild_clock::plan, wild_clock::run),
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
    for entry in &mut entries {
        let run = std::mem::replace(&mut entry.run, Box::new(|_| Ok(report::Report::default())));
        entry.run = fault_points::with_fault_points(run);
    }
    Ok(entries)
}

/// The jobs of `sim SCENARIO [SEED | FROM TO]`, each twice; `None`: the arguments are wrong.
fn chosen(entries: &[Entry], name: &str, words: &[String]) -> Option<Vec<Job>> {
    let number = |text: &String| text.parse::<u64>().ok();
    let (at, entry) = entries.iter().enumerate().find(|(_, entry)| entry.name == name)?;
    let seeds = match words {
        [] => 0..entry.seeds,
        [seed] => number(seed).map(|seed| seed..seed.saturating_add(1))?,
        [from, to] => number(from)?..number(to)?,
        _ => return None,
    };
    Some(seeds.map(|seed| Job { entry: at, seed, kept: "", is_twice: true }).collect())
}

/// The jobs of `sim` without arguments.
fn fixed_jobs(entries: &[Entry]) -> Vec<Job> {
    let of_entry = |(at, entry): (usize, &Entry)| {
        let kept = kept_seeds().into_iter().filter(|(_, scenario, _)| *scenario == entry.name);
        let kept: Vec<(&'static str, u64)> = kept.map(|(name, _, seed)| (name, seed)).collect();
        fixed::of_scenario(at, entry.seeds, &kept)
    };
    entries.iter().enumerate().flat_map(of_entry).collect()
}

/// How a job is called, with the choices of its seed.
fn shown(entries: &[Entry], job: &Job) -> String {
    let Some(entry) = entries.get(job.entry) else { return String::new() };
    let name = format!("{} {} {}", entry.name, job.seed, (entry.plan)(job.seed));
    if job.kept.is_empty() { name } else { format!("{name} {}", job.kept) }
}

/// Carries a job out; whether it passed.
fn carry_out(entries: &[Entry], job: &Job, is_verbose: bool) -> bool {
    let Some(entry) = entries.get(job.entry) else { return false };
    let (name, seed, kept) = (&entry.name, job.seed, job.kept);
    let runs = if job.is_twice { fixed::Runs::Two } else { fixed::Runs::One };
    match fixed::run(&entry.run, seed, runs) {
        Ok(report) => {
            let plan = (entry.plan)(seed);
            println!("ok   {name} {seed} {plan}: {} acknowledged {kept}", report.acknowledged);
            // Paths that one seed reached are shown only if it was asked for.
            if is_verbose && !report.faults.is_empty() {
                println!("     faults: {:?}", report.faults);
                println!("     reached: {}", report.probes);
                println!(
                    "     trace: {:016x}, {}000 steps",
                    report.trace,
                    report.checkpoints.len()
                );
            }
            true
        }
        Err(error) => {
            println!("FAIL {}: {error}", shown(entries, job));
            println!("     again: cargo run -p sim -- {name} {seed}");
            false
        }
    }
}

/// Carries out jobs of `sim` without arguments, by the numbers that a process of
/// [`fixed::deal_out`] sends.
fn carry_out_dealt(entries: &[Entry]) -> ExitCode {
    let jobs = fixed_jobs(entries);
    let one = |at: usize| match jobs.get(at) {
        Some(job) => carry_out(entries, job, false),
        None => false,
    };
    match dealing::serve(std::io::stdin().lock(), std::io::stdout(), one) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the seeds that are recorded because they found an error: name, scenario, seed. Open ones
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

/// The word that makes a process of `sim` one that is given jobs.
const FIXED_PART: &str = "fixed-part";

fn usage(entries: &[Entry]) -> ExitCode {
    let names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    eprintln!("usage: sim [--log FILTER] [SCENARIO [SEED | FROM TO]]");
    eprintln!("       sim soak --minutes N [--seed S] [--scenario X] [--runs N]");
    eprintln!("       sim export DIRECTORY");
    eprintln!("--log: what the nodes log, to standard error: debug; info,membership=trace");
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
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, filter, ..] = arguments.as_slice()
        && first == "--log"
    {
        if let Err(problem) = logging::begin(filter) {
            eprintln!("sim: {problem}");
            return ExitCode::from(2);
        }
        arguments.drain(..2);
    }
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
    match arguments.as_slice() {
        [] => {
            let show = |job: &Job| shown(&entries, job);
            fixed::deal_out(&fixed_jobs(&entries), FIXED_PART, show)
        }
        [first] if first == FIXED_PART => carry_out_dealt(&entries),
        [name, words @ ..] => {
            let Some(jobs) = chosen(&entries, name, words) else { return usage(&entries) };
            let is_verbose = words.len() == 1;
            let failed = jobs.iter().filter(|job| !carry_out(&entries, job, is_verbose)).count();
            println!("{} passed, {failed} failed", jobs.len() - failed);
            if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
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
