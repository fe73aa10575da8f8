//! `sim` without a seed: fixed and kept seeds, dealt out to as many processes as there are cores.

use std::process::{Child, Command, ExitCode};

use rt::held_bytes;

use crate::report::Report;
use crate::soak::OneRun;

/// Seeds of a scenario, from the first, that run twice when nobody asks for one.
const TWICE: u64 = 2;

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Place of the scenario among all.
    pub entry: usize,
    /// The seed.
    pub seed: u64,
    /// The name of a kept seed.
    pub kept: &'static str,
    /// Its trace is compared with that of a second run.
    pub is_twice: bool,
}

/// The fixed seeds of one scenario, then its kept ones.
pub fn of_scenario(entry: usize, seeds: u64, kept: &[(&'static str, u64)]) -> Vec<Job> {
    let fixed = (0..seeds).map(|seed| Job { entry, seed, kept: "", is_twice: seed < TWICE });
    let kept = kept.iter().map(|(kept, seed)| Job { entry, seed: *seed, kept, is_twice: true });
    fixed.chain(kept).collect()
}

/// The part of the jobs that is one worker's of so many.
pub fn share(jobs: Vec<Job>, worker: usize, of: usize) -> Vec<Job> {
    jobs.into_iter().enumerate().filter(|(n, _)| n % of.max(1) == worker).map(|(_, j)| j).collect()
}

/// Has workers carry out so many jobs; what they print goes where this process prints.
pub fn deal_out(jobs: usize) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers: Vec<Result<Child, String>> = (0..cores).map(|n| start(n, cores)).collect();
    let mut failed = 0;
    for (n, worker) in workers.into_iter().enumerate() {
        let ended = worker.and_then(|mut child| child.wait().map_err(|e| e.to_string()));
        match ended.map(|status| (status.code(), status)) {
            // Its code is the number of its failures.
            Ok((Some(code @ 0..=FAILURES_MAX), _)) => failed += code as usize,
            Ok((_, status)) => {
                failed += 1;
                println!("FAIL worker {n} of {cores} ended with {status}");
            }
            Err(error) => {
                failed += 1;
                println!("FAIL worker {n} of {cores}: {error}");
            }
        }
    }
    println!("{} passed, {failed} failed, in {cores} processes", jobs.saturating_sub(failed));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Largest number of failures that the code of a process tells: a panic's is 101.
const FAILURES_MAX: i32 = 100;

/// The code that a worker with so many failures ends with.
pub fn code(failed: usize) -> ExitCode {
    ExitCode::from(failed.min(FAILURES_MAX as usize) as u8)
}

fn start(worker: usize, of: usize) -> Result<Child, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let words = ["fixed-part".to_owned(), worker.to_string(), of.to_string()];
    Command::new(own).args(words).spawn().map_err(|e| e.to_string())
}

/// Bytes that a second run of a seed may leave: its report.
const LEFT_BYTES_MAX: i64 = 64 << 10;

/// Runs a seed, twice if its traces are to be compared. Nothing of the second run may be left in
/// memory: the first one makes what stays for the life of the process.
///
/// # Errors
/// As the run, or that the traces differ, or what is left.
pub fn run(one: &OneRun, seed: u64, is_twice: bool) -> Result<Report, String> {
    let first = one(seed)?;
    if !is_twice {
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
    fn workers_share_all_jobs_and_none_twice() {
        let jobs = of_scenario(3, 4, &[("kept", 77)]);
        let twice: Vec<bool> = jobs.iter().map(|job| job.is_twice).collect();
        assert_eq!(twice, [true, true, false, false, true]);
        let mut both = [share(jobs.clone(), 0, 2), share(jobs.clone(), 1, 2)].concat();
        both.sort_by_key(|job| job.seed);
        assert_eq!(both, jobs);
    }

    #[test]
    fn two_runs_of_a_seed_that_differ_are_noticed() {
        let calls = std::cell::Cell::new(0);
        let one: OneRun = Box::new(move |_| {
            calls.set(calls.get() + 1);
            Ok(Report { trace: calls.get(), ..Report::default() })
        });
        assert!(run(&one, 1, true).unwrap_err().contains("differ"));
        assert!(run(&one, 1, false).is_ok());
    }

    #[test]
    fn memory_that_is_left_of_a_run_is_noticed() {
        let kept = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let of_run = kept.clone();
        let one: OneRun = Box::new(move |_| {
            of_run.borrow_mut().push(vec![1_u8; 100_000]);
            Ok(Report::default())
        });
        let error = run(&one, 1, true).unwrap_err();
        assert!(error.contains("100000 bytes of memory are left"), "{error}");
        let one: OneRun = Box::new(|_| {
            drop(vec![1_u8; 100_000]);
            Ok(Report::default())
        });
        assert!(run(&one, 1, true).is_ok());
    }
}
