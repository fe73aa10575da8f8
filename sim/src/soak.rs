//! `sim soak`: scenario after scenario with new seeds until the time is up, and what that reached.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::report::{Probes, Report};

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// For how long runs are begun.
    pub minutes: u64,
    /// The first seed; the next one is one more.
    pub seed: u64,
    /// One scenario only, by name.
    pub scenario: Option<String>,
    /// At most so many runs.
    pub runs: Option<u64>,
}

/// The words behind `soak`; the error says what is wrong with them.
///
/// # Errors
/// An unknown word, or a number that is none.
pub fn parse(words: &[String]) -> Result<Orders, String> {
    let mut orders = Orders { minutes: 0, seed: 1, scenario: None, runs: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{word} {value}: not a number"));
        match word.as_str() {
            "--minutes" => orders.minutes = number()?,
            "--seed" => orders.seed = number()?,
            "--runs" => orders.runs = Some(number()?),
            "--scenario" => orders.scenario = Some(value.clone()),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    if orders.minutes == 0 && orders.runs.is_none() {
        return Err("--minutes N or --runs N is needed".to_owned());
    }
    Ok(orders)
}

/// One scenario by name: a run of a seed.
pub type OneRun = Box<dyn Fn(u64) -> Result<Report, String>>;

/// Runs until the orders are carried out. Each run is made once; the replay of a violation is
/// `sim NAME SEED`, which runs twice and compares the traces too.
pub fn run(orders: &Orders, scenarios: &[(String, OneRun)]) -> ExitCode {
    let begin = Instant::now();
    let time_is_up = || {
        orders.minutes > 0
            && begin.elapsed() >= Duration::from_secs(orders.minutes.saturating_mul(60))
    };
    let mut sum = Report::default();
    let mut probes = Probes::default();
    let mut faults: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut runs, mut failed, mut seed) = (0u64, 0u64, orders.seed);
    'all: loop {
        for (name, one) in scenarios {
            if time_is_up() || orders.runs.is_some_and(|most| runs >= most) {
                break 'all;
            }
            runs += 1;
            let result = catch_unwind(AssertUnwindSafe(|| one(seed)));
            match result.unwrap_or_else(|_| Err("the run panicked, see above".to_owned())) {
                Ok(report) => {
                    sum.operations += report.operations;
                    sum.acknowledged += report.acknowledged;
                    probes.merge(&report.probes);
                    for (fault, count) in report.faults {
                        *faults.entry(fault).or_default() += count;
                    }
                }
                Err(error) => {
                    failed += 1;
                    println!("FAIL {name} {seed}: {error}");
                    println!("     again: cargo run -p sim -- {name} {seed}");
                }
            }
        }
        seed = seed.saturating_add(1);
    }
    println!(
        "{runs} runs, seeds {} to {seed}, {:.0} s: {} operations, {} acknowledged",
        orders.seed,
        begin.elapsed().as_secs_f64(),
        sum.operations,
        sum.acknowledged
    );
    let faults: Vec<String> = faults.iter().map(|(name, n)| format!("{name} {n}")).collect();
    println!("faults: {}", if faults.is_empty() { "none".to_owned() } else { faults.join(", ") });
    println!("reached: {probes}");
    let never = probes.never_hit();
    println!("never reached: {}", if never.is_empty() { "-".to_owned() } else { never.join(", ") });
    println!("{failed} violations");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(text: &str) -> Result<Orders, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn orders_are_read_and_mistakes_named() {
        let right = orders("--minutes 5 --seed 7 --scenario one --runs 3").unwrap();
        let scenario = Some("one".to_owned());
        assert_eq!(right, Orders { minutes: 5, seed: 7, scenario, runs: Some(3) });
        assert!(orders("").is_err());
        assert!(orders("--minutes").unwrap_err().contains("needs a value"));
        assert!(orders("--minutes x").unwrap_err().contains("not a number"));
        assert!(orders("--hours 1").unwrap_err().contains("unknown option"));
    }

    #[test]
    fn a_violation_and_a_panic_fail_the_soak_and_good_runs_do_not() {
        let one = |f: fn(u64) -> Result<Report, String>| {
            let runs: Vec<(String, OneRun)> = vec![("x".to_owned(), Box::new(f))];
            run(&orders("--runs 3").unwrap(), &runs)
        };
        let shown = |code: ExitCode| format!("{code:?}");
        let good = shown(one(|_| Ok(Report::default())));
        let bad = |n: u64| match n {
            2 => Err("no".to_owned()),
            _ => Ok(Report::default()),
        };
        assert_eq!(good, shown(ExitCode::SUCCESS));
        assert_eq!(shown(one(bad)), shown(ExitCode::FAILURE));
        assert_eq!(shown(one(|_| panic!("oops"))), shown(ExitCode::FAILURE));
    }
}
