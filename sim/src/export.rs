//! `sim export DIRECTORY`: histories of conditional writes as files, good and spoilt, with the
//! verdicts of this program's checker, for another checker to judge.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::cluster;
use crate::lwt::{self, Transactions};
use crate::scenario::Scenario;

/// The scenarios that are exported, and of how many seeds each.
const EXPORTED: [(&str, u64); 4] =
    [("lwt", 3), ("lwt_moving", 2), ("handing_over", 2), ("two_dcs", 2)];
/// Spoilt histories of each good one.
const SPOILT: usize = 6;

/// Operations of a spoilt history.
const SPOILT_CALLS: usize = 50;

/// Writes the files.
pub fn run(directory: &str) -> ExitCode {
    match write_all(Path::new(directory)) {
        Ok(count) => {
            println!("{count} histories");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("sim export: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_all(directory: &Path) -> Result<usize, String> {
    fs::create_dir_all(directory).map_err(|e| e.to_string())?;
    let mut verdicts = String::new();
    let mut count = 0;
    let mut write = |name: String, calls: &[_]| -> Result<(), String> {
        let verdict = lwt::linearizable(&Transactions::of(calls));
        let word = if verdict.is_ok() { "ok" } else { "violation" };
        fs::write(directory.join(&name), lwt::export(calls)).map_err(|e| e.to_string())?;
        verdicts.push_str(&format!("{name} {word}\n"));
        count += 1;
        Ok(())
    };
    let scenarios = EXPORTED.iter().flat_map(|(name, seeds)| (0..*seeds).map(move |s| (*name, s)));
    for (scenario_name, seed) in scenarios {
        let scenario = Scenario::of_name(scenario_name).ok_or("no such scenario")?;
        let scenario = scenario.map_err(|e| e.to_string())?;
        let transactions = cluster::transactions(&scenario, seed)?;
        for (part, calls) in &transactions.parts {
            write(format!("{scenario_name}-{seed}-{part}.jsonl"), calls)?;
            // That there is no order is found by trying all: of few operations only.
            let calls = calls.get(..SPOILT_CALLS).unwrap_or(calls);
            for n in 0..SPOILT {
                // Spread over the history.
                let way = (2 * calls.len() * n / SPOILT).saturating_add(n % 2);
                if let Some(spoilt) = lwt::corrupted(calls, way) {
                    let name = format!("{scenario_name}-{seed}-{part}-spoilt-{n}.jsonl");
                    write(name, &spoilt)?;
                }
            }
        }
    }
    fs::write(directory.join("verdicts.txt"), verdicts).map_err(|e| e.to_string())?;
    Ok(count)
}
