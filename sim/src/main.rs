//! Runs simulated worlds: `sim` (all scenarios, fixed seeds, each twice), `sim durability SEED`.

mod client;
mod durability;

use std::process::ExitCode;

use conf::CommitLogSync;
use durability::{Crash, Plan};

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
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seeds: Vec<u64> = match arguments.as_slice() {
        [] => (0..25).collect(),
        [name, seed] if name == "durability" => match seed.parse() {
            Ok(seed) => vec![seed],
            Err(_) => {
                eprintln!("\"{seed}\" is not a seed: a number is expected");
                return ExitCode::from(2);
            }
        },
        [name, from, to] if name == "durability" => {
            match (from.parse::<u64>(), to.parse::<u64>()) {
                (Ok(from), Ok(to)) => (from..to).collect(),
                _ => {
                    eprintln!("usage: sim durability FROM TO");
                    return ExitCode::from(2);
                }
            }
        }
        _ => {
            eprintln!("usage: sim [durability SEED | durability FROM TO]");
            return ExitCode::from(2);
        }
    };
    let (mut passed, mut failed) = (0, 0);
    for seed in seeds {
        let plan = plan(seed);
        match durability::run_twice(&plan) {
            Ok(report) => {
                passed += 1;
                println!("ok   durability {seed} {plan:?}: {} rows", report.acknowledged);
            }
            Err(error) => {
                failed += 1;
                println!("FAIL durability {seed} {plan:?}: {error}");
                println!("     again: cargo run --release -p sim -- durability {seed}");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
