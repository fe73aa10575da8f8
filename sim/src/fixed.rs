//! `sim` without a seed: fixed and recorded seeds, distributed to as many processes as there are
//! cores.

use std::process::ExitCode;

use rt::held_bytes;

use crate::dealing::{Worker, deal};
use crate::report::Report;
use crate::soak::OneRun;

/// Seeds of a scenario, from the first, that run twice by default.
const TWICE: u64 = 2;

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Place of the scenario among all.
    pub entry: usize,
    /// The seed.
    pub seed: u64,
    /// The name of a recorded seed.
    pub kept: &'static str,
    /// Its trace is compared with that of a second run.
    pub is_twice: bool,
}

/// Returns the fixed seeds of one scenario, then its recorded ones.
pub fn of_scenario(entry: usize, seeds: u64, kept: &[(&'static str, u64)]) -> Vec<Job> {
    let fixed = (0..seeds).map(|seed| Job { entry, seed, kept: "", is_twice: seed < TWICE });
    let kept = kept.iter().map(|(kept, seed)| Job { entry, seed: *seed, kept, is_twice: true });
    fixed.chain(kept).collect()
}

/// Returns the order in which jobs are begun: those that run twice before the others, so that the
/// last jobs are short.
fn order(jobs: &[Job]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|at| jobs.get(*at).is_some_and(|job| !job.is_twice));
    order
}

/// Lets workers, each this program with `word`, carry out the jobs; their output is forwarded to
/// this process's. `show` names a job whose outcome no worker reported.
pub fn deal_out(jobs: &[Job], word: &str, show: impl Fn(&Job) -> String) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let names: Vec<String> = jobs.iter().map(show).collect();
    let report = |at: Option<usize>, error: &str| match at.and_then(|at| names.get(at)) {
        Some(name) => println!("FAIL {name}: {error}"),
        None => println!("FAIL {error}"),
    };
    let failed = deal(&order(jobs), cores, || Worker::start(word), report);
    println!("{} passed, {failed} failed, in {cores} processes", jobs.len().saturating_sub(failed));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Bytes that a second run of a seed may leave: its report.
const LEFT_BYTES_MAX: i64 = 64 << 10;

/// How often a seed is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Once.
    One,
    /// Twice; the traces are compared.
    Two,
}

/// Runs a seed, twice if its traces are to be compared. The second run must free all its memory:
/// the first one creates everything that stays for the life of the process.
///
/// # Errors
/// Those of the run, or different traces, or leaked memory.
pub fn run(one: &OneRun, seed: u64, runs: Runs) -> Result<Report, String> {
    let first = one(seed)?;
    if runs == Runs::One {
        return Ok(first);
    }
    let before = held_bytes();
    let second = one(seed)?;
    let left = held_bytes() - before;
    if first.trace != second.trace {
        let differs = first.checkpoints.iter().zip(&second.checkpoints).position(|(a, b)| a != b);
        return Err(format!("two runs of one seed differ, first at checkpoint {differs:?}"));
    }
    if left > LEFT_BYTES_MAX {
        return Err(format!("{left} bytes of memory are left of a run that is over"));
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_jobs_are_dealt_out_and_those_that_run_twice_first() {
        let jobs = of_scenario(3, 4, &[("kept", 77)]);
        let twice: Vec<bool> = jobs.iter().map(|job| job.is_twice).collect();
        assert_eq!(twice, [true, true, false, false, true]);
        assert_eq!(order(&jobs), [0, 1, 4, 2, 3]);
    }

    #[test]
    fn two_runs_of_a_seed_that_differ_are_noticed() {
        let calls = std::cell::Cell::new(0);
        let one: OneRun = Box::new(move |_| {
            calls.set(calls.get() + 1);
            Ok(Report { trace: calls.get(), ..Report::default() })
        });
        assert!(run(&one, 1, Runs::Two).unwrap_err().contains("differ"));
        assert!(run(&one, 1, Runs::One).is_ok());
    }

    #[test]
    fn memory_that_is_left_of_a_run_is_noticed() {
        let kept = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let of_run = kept.clone();
        let one: OneRun = Box::new(move |_| {
            of_run.borrow_mut().push(vec![1_u8; 100_000]);
            Ok(Report::default())
        });
        let error = run(&one, 1, Runs::Two).unwrap_err();
        assert!(error.contains("100000 bytes of memory are left"), "{error}");
        let one: OneRun = Box::new(|_| {
            drop(vec![1_u8; 100_000]);
            Ok(Report::default())
        });
        assert!(run(&one, 1, Runs::Two).is_ok());
    }
}
