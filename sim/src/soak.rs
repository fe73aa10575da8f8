//! `sim soak`: scenario after scenario with new seeds until the time is up, and what that reached.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::fault_points;
use crate::report::Report;

/// Nodes that a run has at least, to be counted.
pub const NODES_MIN: u64 = 3;
/// Requests and faults that it must have.
const OPERATIONS_MIN: u64 = 2_000;
const FAULTS_MIN: u64 = 10;
/// Seeds between two lines of progress.
const PROGRESS_SEEDS: u64 = 20;

/// Options of a soak test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// For how long runs are begun.
    pub minutes: u64,
    /// The first seed; the next one is one more.
    pub seed: u64,
    /// One scenario only, by name.
    pub scenario: Option<String>,
    /// Most runs.
    pub runs: Option<u64>,
}

/// Parses the words after `soak`.
///
/// # Errors
/// An unknown word, or an invalid number.
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

/// Sum over the runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sum {
    runs: u64,
    failed: u64,
    small: u64,
    operations: u64,
    acknowledged: u64,
    /// By scenario: runs that passed, and the fewest operations and faults of one.
    least: BTreeMap<String, (u64, u64, u64)>,
    faults: BTreeMap<String, u64>,
    probes: BTreeMap<String, u64>,
    /// Fault points of the product (`stdx::chaos!`) and how often they fired.
    fired: BTreeMap<String, u64>,
    /// Marks of the product (`stdx::reached!`), with the number of processes that reached them.
    marks: BTreeMap<String, u64>,
    /// CPU time of all runs, and of the one that took most, in milliseconds.
    cpu_millis: u64,
    cpu_millis_max: u64,
}

/// Names of the fault points and of the marks in the sources; none where the sources are not at hand.
fn declared() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut points, mut marks) = (BTreeSet::new(), BTreeSet::new());
    let mut open = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let source = std::fs::read_to_string(&path).unwrap_or_default();
                names_behind("chaos!(\"", &source, &mut points);
                names_behind("reached!(\"", &source, &mut marks);
            }
        }
    }
    (points, marks)
}

/// Those of the tests of `stdx` itself are left out.
fn names_behind(word: &str, source: &str, names: &mut BTreeSet<String>) {
    for rest in source.split(word).skip(1) {
        if let Some((name, _)) = rest.split_once('"')
            && !name.starts_with("stdx-")
            && name.contains('-')
            && name != "area-what"
        {
            names.insert(name.to_owned());
        }
    }
}

/// Returns the CPU time of this thread, in milliseconds; 0 where the system does not report it.
fn cpu_millis() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos: Option<u64> = text.split(' ').next().and_then(|word| word.parse().ok());
    nanos.unwrap_or(0) / 1_000_000
}

impl Sum {
    fn took(&mut self, cpu_millis: u64) {
        self.cpu_millis += cpu_millis;
        self.cpu_millis_max = self.cpu_millis_max.max(cpu_millis);
    }

    fn add(&mut self, name: &str, report: &Report) {
        let broken: u64 = report.faults.values().sum();
        let operations = report.operations as u64;
        self.operations += operations;
        self.acknowledged += report.acknowledged as u64;
        let least = self.least.entry(name.to_owned()).or_insert((0, u64::MAX, u64::MAX));
        *least = (least.0 + 1, least.1.min(operations), least.2.min(broken));
        if operations < OPERATIONS_MIN || broken < FAULTS_MIN {
            self.small += 1;
        }
        for (fault, count) in &report.faults {
            *self.faults.entry((*fault).to_owned()).or_default() += count;
        }
        for (probe, count) in report.probes.all() {
            *self.probes.entry((*probe).to_owned()).or_default() += count;
        }
    }

    /// Formats lines for [`Sum::take_line`].
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "#sum {} {} {} {} {}",
            self.runs, self.failed, self.small, self.operations, self.acknowledged
        )];
        let least = self.least.iter();
        lines.extend(least.map(|(name, (n, o, f))| format!("#least {n} {o} {f} {name}")));
        lines.extend(self.faults.iter().map(|(name, n)| format!("#fault {n} {name}")));
        lines.extend(self.probes.iter().map(|(name, n)| format!("#probe {n} {name}")));
        lines.extend(self.fired.iter().map(|(name, n)| format!("#fired {n} {name}")));
        lines.extend(self.marks.iter().map(|(name, n)| format!("#mark {n} {name}")));
        lines.push(format!("#cpu {} {}", self.cpu_millis, self.cpu_millis_max));
        lines
    }

    /// Adds the counts of another process; false when the line has none.
    fn take_line(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|w| w.parse::<u64>().ok()).unwrap_or(0);
        let rest = |from: usize| words.get(from..).unwrap_or_default().join(" ");
        match words.first() {
            Some(&"#sum") => {
                self.runs += number(1);
                self.failed += number(2);
                self.small += number(3);
                self.operations += number(4);
                self.acknowledged += number(5);
            }
            Some(&"#least") => {
                let least = self.least.entry(rest(4)).or_insert((0, u64::MAX, u64::MAX));
                *least = (least.0 + number(1), least.1.min(number(2)), least.2.min(number(3)));
            }
            Some(&"#fault") => *self.faults.entry(rest(2)).or_default() += number(1),
            Some(&"#probe") => *self.probes.entry(rest(2)).or_default() += number(1),
            Some(&"#fired") => *self.fired.entry(rest(2)).or_default() += number(1),
            Some(&"#mark") => *self.marks.entry(rest(2)).or_default() += number(1),
            Some(&"#cpu") => {
                self.cpu_millis += number(1);
                self.cpu_millis_max = self.cpu_millis_max.max(number(2));
            }
            _ => return false,
        }
        true
    }

    fn print(&self, orders: &Orders, seconds: f64) {
        println!(
            "{} runs from seed {}, {seconds:.0} s: {} operations, {} acknowledged",
            self.runs, orders.seed, self.operations, self.acknowledged
        );
        for (name, (count, operations, faults)) in &self.least {
            println!(
                "{name}: {count} runs, each at least {operations} operations, {faults} faults"
            );
        }
        println!(
            "{} runs count, {} passed with fewer than {OPERATIONS_MIN} operations or \
             {FAULTS_MIN} faults",
            self.runs.saturating_sub(self.failed + self.small),
            self.small
        );
        println!(
            "CPU seconds of a run: {:.2} on average, {:.2} at most",
            self.cpu_millis as f64 / 1e3 / self.runs.max(1) as f64,
            self.cpu_millis_max as f64 / 1e3
        );
        let list = |of: &BTreeMap<String, u64>| -> String {
            let hit = of.iter().filter(|(_, n)| **n > 0);
            let hit: Vec<String> = hit.map(|(name, n)| format!("{name} {n}")).collect();
            if hit.is_empty() { "none".to_owned() } else { hit.join(", ") }
        };
        println!("faults: {}", list(&self.faults));
        println!("reached: {}", list(&self.probes));
        let never = self.probes.iter().filter(|(_, n)| **n == 0).map(|(name, _)| name.as_str());
        let never: Vec<&str> = never.collect();
        let never = if never.is_empty() { "-".to_owned() } else { never.join(", ") };
        println!("never reached: {never}");
        println!("fault points that fired: {}", list(&self.fired));
        println!("marks reached: {}", list(&self.marks));
        let (points, marks) = declared();
        let missing = |names: &BTreeSet<String>, of: &BTreeMap<String, u64>| {
            let missing: Vec<&str> =
                names.iter().filter(|name| !of.contains_key(*name)).map(String::as_str).collect();
            if missing.is_empty() { "-".to_owned() } else { missing.join(", ") }
        };
        println!("fault points that never fired: {}", missing(&points, &self.fired));
        println!("marks never reached: {}", missing(&marks, &self.marks));
        println!("{} violations", self.failed);
    }
}

/// Runs until the orders are carried out, each seed in a process of its own: what a simulated
/// process would leave to its end by the system is freed with that. Each run is made once; the
/// replay of a violation is `sim NAME SEED`, which runs twice and compares the traces too.
pub fn run(orders: &Orders, scenarios: u64) -> ExitCode {
    let begin = Instant::now();
    let limit = Duration::from_secs(orders.minutes.saturating_mul(60));
    let mut sum = Sum::default();
    let mut seed = orders.seed;
    while orders.minutes == 0 || begin.elapsed() < limit {
        let left = orders.runs.map_or(scenarios, |most| most.saturating_sub(sum.runs));
        if left == 0 {
            break;
        }
        if let Err(error) = run_part(orders, seed, left.min(scenarios), &mut sum) {
            sum.failed += 1;
            println!("FAIL seed {seed}: {error}");
            println!("     again: cargo run -p sim -- soak --runs {scenarios} --seed {seed}");
        }
        seed = seed.saturating_add(1);
        if seed.is_multiple_of(PROGRESS_SEEDS) {
            println!("up to seed {seed}: {} runs, {} violations", sum.runs, sum.failed);
        }
    }
    sum.print(orders, begin.elapsed().as_secs_f64());
    if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Has another process run one seed of the scenarios.
fn run_part(orders: &Orders, seed: u64, runs: u64, sum: &mut Sum) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = std::process::Command::new(own);
    command.args(["soak-part", "--runs", &runs.to_string(), "--seed", &seed.to_string()]);
    if let Some(name) = &orders.scenario {
        command.args(["--scenario", name]);
    }
    let mut child =
        command.stdout(std::process::Stdio::piped()).spawn().map_err(|e| e.to_string())?;
    if let Some(out) = child.stdout.take() {
        for line in std::io::BufReader::new(out).lines() {
            let line = line.map_err(|e| e.to_string())?;
            if !sum.take_line(&line) {
                println!("{line}");
            }
        }
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    // 0 and 1 are its own: passed, and violations, which it has counted.
    match status.code() {
        Some(0 | 1) => Ok(()),
        _ => Err(format!("the process of the run ended with {status}")),
    }
}

/// Carries the orders out in this process and prints what that came to in lines for [`run`].
pub fn run_here(orders: &Orders, scenarios: &[(String, OneRun)]) -> ExitCode {
    let mut sum = Sum::default();
    let mut seed = orders.seed;
    while orders.runs.is_some_and(|most| sum.runs < most) {
        for (name, one) in scenarios {
            if orders.runs.is_some_and(|most| sum.runs >= most) {
                break;
            }
            sum.runs += 1;
            let before = cpu_millis();
            let result = catch_unwind(AssertUnwindSafe(|| one(seed)));
            sum.took(cpu_millis().saturating_sub(before));
            match result.unwrap_or_else(|_| Err("the run panicked, see above".to_owned())) {
                Ok(report) => sum.add(name, &report),
                Err(error) => {
                    sum.failed += 1;
                    println!("FAIL {name} {seed}: {error}");
                    println!("     again: cargo run -p sim -- {name} {seed}");
                }
            }
        }
        seed = seed.saturating_add(1);
    }
    for (name, count) in fault_points::fired() {
        sum.fired.insert(name.to_owned(), count);
    }
    for name in stdx::probe::reached_names() {
        sum.marks.insert(name.to_owned(), 1);
    }
    for line in sum.lines() {
        println!("{line}");
    }
    if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
            run_here(&orders("--runs 3").unwrap(), &runs)
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

    #[test]
    fn sums_of_two_processes_add_up() {
        let faults = BTreeMap::from([("kill", 12)]);
        let mut report =
            Report { operations: 2_100, acknowledged: 2_000, faults, ..Report::default() };
        report.probes.bump("read repair", 3);
        let mut one = Sum { runs: 2, failed: 1, ..Sum::default() };
        one.took(1_500);
        one.took(500);
        one.add("x", &report);
        report.operations = 10;
        one.add("x y", &report);
        let mut both = Sum::default();
        for line in one.lines().iter().chain(&one.lines()) {
            assert!(both.take_line(line), "{line}");
        }
        assert!(!both.take_line("FAIL x 1: no"));
        assert_eq!((both.runs, both.failed, both.small, both.operations), (4, 2, 2, 4_220));
        assert_eq!(both.least["x"], (2, 2_100, 12));
        assert_eq!(both.least["x y"], (2, 10, 12));
        assert_eq!((both.faults["kill"], both.probes["read repair"]), (48, 12));
        assert_eq!((both.cpu_millis, both.cpu_millis_max), (4_000, 1_500));
    }
}
