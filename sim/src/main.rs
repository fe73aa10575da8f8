//! Runs simulated worlds: `sim` (all scenarios, fixed seeds, each twice), `sim SCENARIO SEED`.

mod batches;
mod client;
mod durability;
#[cfg(test)]
mod metadata;

use std::process::ExitCode;

use conf::CommitLogSync;
use durability::{Crash, Plan, Report, Trouble};

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

/// One run of a seed, twice: its plan in words, and what came of it.
type Run = fn(u64) -> (String, Result<Report, String>);

/// The scenarios: name, seeds without arguments, one run.
const SCENARIOS: [(&str, u64, Run); 2] =
    [("durability", 43, run_durability), ("batches", 24, run_batches)];

fn run_durability(seed: u64) -> (String, Result<Report, String>) {
    let plan = plan(seed);
    (format!("{plan:?}"), run_twice(|| durability::run(&plan)))
}

fn run_batches(seed: u64) -> (String, Result<Report, String>) {
    let plan = batches::plan(seed);
    (format!("{plan:?}"), run_twice(|| batches::run(&plan)))
}

/// Runs a plan twice and demands the same trace.
fn run_twice(run: impl Fn() -> Result<Report, String>) -> Result<Report, String> {
    let first = run()?;
    let second = run()?;
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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let known = |name: &String| SCENARIOS.iter().any(|(n, ..)| n == name);
    let (mut passed, mut failed) = (0, 0);
    for (name, seeds, run) in SCENARIOS {
        let seeds = chosen(&arguments, name, seeds).filter(|_| arguments.first().is_none_or(known));
        let Some(seeds) = seeds else {
            let names: Vec<&str> = SCENARIOS.iter().map(|(n, ..)| *n).collect();
            eprintln!("usage: sim [SCENARIO [SEED | FROM TO]]; scenarios: {}", names.join(", "));
            return ExitCode::from(2);
        };
        for seed in seeds {
            let (plan, result) = run(seed);
            match result {
                Ok(report) => {
                    passed += 1;
                    println!("ok   {name} {seed} {plan}: {} acknowledged", report.acknowledged);
                }
                Err(error) => {
                    failed += 1;
                    println!("FAIL {name} {seed} {plan}: {error}");
                    println!("     again: cargo run --release -p sim -- {name} {seed}");
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
