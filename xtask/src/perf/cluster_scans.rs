//! Section "scans" of `perf cluster`: whole tables read over three nodes: filtered, counted,
//! grouped, in a keyspace of one replica at ONE and in one of three at ONE and QUORUM. Statements
//! and expected answers are those of `scans`; server CPU is that of the three processes together.
//!
//! Failures are reported beside the figures, and the rest continues: a statement that times out, an
//! answer that is wrong, a keyspace that could not be filled, a cluster that has ended.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::cql::Level;
use super::nodes::{Kind, Nodes};
use super::report::{Report, Verdict, lowest, median, rounded};
use super::scans::{self, Run, SCANS, Scan, Tables, WARM_RUNS};

const TITLE: &str =
    "Scans over three nodes: CPU-s per 1,000,000 rows, our median and Cassandra's lowest";
/// Failures one after the other, of one statement in one round, after which it is not asked again.
const FAILURES_MAX: u32 = 2;
/// Delay after a statement that failed while warming up.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// Characters of a failure's text in the table.
const TEXT_MAX: usize = 160;

/// How much is read.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rows of each of four tables.
    pub rows: u64,
    /// Counted runs of ours; Cassandra has four times as many.
    pub repeat: u32,
    /// True if memtables are flushed first.
    pub flush: bool,
    /// How long Helenus is asked before anything counts.
    pub warm: Duration,
    /// The same of Cassandra.
    pub cassandra_warm: Duration,
}

const ONE_REPLICA: &str = "scans1";
const THREE_REPLICAS: &str = "scans3";
const KEYSPACES: [(&str, u32); 2] = [(ONE_REPLICA, 1), (THREE_REPLICAS, 3)];
/// Name in tables, keyspace, consistency level.
const SETTINGS: [(&str, &str, Level); 3] = [
    ("RF 1, ONE", ONE_REPLICA, Level::One),
    ("RF 3, ONE", THREE_REPLICAS, Level::One),
    ("RF 3, QUORUM", THREE_REPLICAS, Level::Quorum),
];

/// Result of one statement on one cluster.
#[derive(Default)]
struct Seen {
    runs: Vec<Run>,
    failures: Vec<String>,
}

impl Seen {
    fn cpu(&self) -> impl Iterator<Item = f64> {
        self.runs.iter().map(|run| run.cpu_per_million)
    }
}

type Cluster = (Kind, Nodes);
/// By place in `SETTINGS` and in `SCANS`.
type Results = BTreeMap<(usize, usize, Kind), Seen>;
/// Why a keyspace of a cluster cannot be read.
type Unreadable = BTreeMap<(Kind, &'static str), String>;

/// Fills both keyspaces of every cluster, then runs every statement on each in turn; the other is
/// paused meanwhile. The results are written after every round.
pub fn run(all: &mut [Cluster], plan: &Plan, home: &Path, report: &mut Report) -> Result<()> {
    let rows = scans::rows_of_tables(plan.rows);
    // At ALL, so that no replica lacks a row that a read would have to repair.
    let tables =
        KEYSPACES.map(|(keyspace, factor)| Tables { keyspace, factor, rows, level: Level::All });
    let mut unreadable = Unreadable::new();
    for cluster in &mut *all {
        fill(cluster, &tables, plan, &mut unreadable);
    }
    let mut results = Results::new();
    for round in 0..plan.repeat {
        for (at, (setting, keyspace, level)) in SETTINGS.into_iter().enumerate() {
            let Some(tables) = tables.iter().find(|t| t.keyspace == keyspace) else { continue };
            for (number, scan) in SCANS.iter().enumerate() {
                for cluster in &mut *all {
                    let kind = cluster.0;
                    let seen = results.entry((at, number, kind)).or_default();
                    if let Some(why) = unreadable.get(&(kind, keyspace)) {
                        seen.failures.push(why.clone());
                        continue;
                    }
                    let name = format!(
                        "{}/{} {:10} {setting:12} {:25}",
                        round + 1,
                        plan.repeat,
                        kind.name(),
                        scan.name
                    );
                    let once = |nodes: &Nodes| scans::once(nodes, tables, scan, level);
                    if let Err(error) = turn(cluster, &name, seen, once) {
                        seen.failures.push(lose(cluster, &error, &mut unreadable));
                    }
                }
            }
        }
        report.keep("scans", raw(&results));
        report.write(home)?;
    }
    tell(&results, all.iter().any(|(kind, _)| *kind == Kind::Cassandra), report);
    report.write(home)
}

/// Makes the keyspaces, asks everything until the cluster is warm, and waits until it has nothing to do.
fn fill(cluster: &mut Cluster, tables: &[Tables], plan: &Plan, unreadable: &mut Unreadable) {
    let (kind, nodes) = cluster;
    if let Err(error) = nodes.resume() {
        lose(cluster, &error, unreadable);
        return;
    }
    for tables in tables {
        let Tables { keyspace, factor, rows, .. } = *tables;
        println!("{}: {rows} rows in each of two tables, RF {factor}", kind.name());
        let filled = scans::fill(nodes, tables);
        if let Err(error) =
            filled.and_then(|()| if plan.flush { nodes.flush(keyspace) } else { Ok(()) })
        {
            let why = format!("its rows could not be written: {error:#}");
            println!("{}: {keyspace}: {why}", kind.name());
            unreadable.insert((*kind, keyspace), why);
        }
    }
    warm_up(*kind, nodes, tables, plan);
    if let Err(error) = quiet(*kind, nodes).and_then(|()| nodes.pause()) {
        lose(cluster, &error, unreadable);
    }
}

/// Runs all scans without counting. Errors are only printed: a statement that fails here fails
/// again when it counts.
fn warm_up(kind: Kind, nodes: &Nodes, tables: &[Tables], plan: &Plan) {
    let length = match kind {
        Kind::Helenus => plan.warm,
        Kind::Cassandra => plan.cassandra_warm,
    };
    println!("{}: warming up", kind.name());
    let begun = Instant::now();
    for (scan, (_, keyspace, level)) in
        SCANS.iter().cycle().flat_map(|scan| SETTINGS.map(|setting| (scan, setting)))
    {
        if begun.elapsed() >= length {
            return;
        }
        let Some(tables) = tables.iter().find(|t| t.keyspace == keyspace) else { continue };
        if let Err(error) = scans::once(nodes, tables, scan, level) {
            println!("{} failed while warming up: {error:#}", kind.name());
            std::thread::sleep(FAILED_PAUSE);
        }
    }
}

fn quiet(kind: Kind, nodes: &Nodes) -> Result<()> {
    if !nodes.await_quiet()? {
        println!("note: {} is still busy with itself", kind.name());
    }
    Ok(())
}

/// Runs the cluster as often as it is due.
///
/// # Errors
/// The cluster cannot be resumed or paused; errors of a run are recorded with its results.
fn turn(
    (kind, nodes): &mut Cluster,
    name: &str,
    seen: &mut Seen,
    once: impl Fn(&Nodes) -> Result<Run>,
) -> Result<()> {
    nodes.resume()?;
    let runs = if *kind == Kind::Cassandra { WARM_RUNS } else { 1 };
    let mut failed = 0;
    for _ in 0..runs {
        match once(nodes) {
            Ok(run) => {
                println!("{name} {run}");
                seen.runs.push(run);
                failed = 0;
            }
            Err(error) => {
                println!("{name} failed: {error:#}");
                seen.failures.push(format!("{error:#}"));
                failed += 1;
                if failed == FAILURES_MAX {
                    break;
                }
                // A server may still work on a request that has timed out.
                quiet(*kind, nodes)?;
            }
        }
    }
    nodes.pause()
}

/// Stops measuring a cluster that cannot be read any more, so that it takes no CPU from the other;
/// returns the cause.
fn lose((kind, nodes): &mut Cluster, error: &anyhow::Error, unreadable: &mut Unreadable) -> String {
    let why = format!("the cluster cannot be measured any more: {error:#}");
    println!("{}: {why}", kind.name());
    for (keyspace, _) in KEYSPACES {
        unreadable.entry((*kind, keyspace)).or_insert_with(|| why.clone());
    }
    // One that has ended cannot be held.
    let _ = nodes.pause();
    why
}

fn raw(results: &Results) -> Value {
    let mut all = Vec::new();
    for ((at, number, kind), seen) in results {
        let (Some((setting, ..)), Some(scan)) = (SETTINGS.get(*at), SCANS.get(*number)) else {
            continue;
        };
        all.push(json!({
            "setting": setting,
            "statement": scan.name,
            "server": kind.name(),
            "cpu_s_per_million": seen.cpu().collect::<Vec<f64>>(),
            "seconds": seen.runs.iter().map(|run| run.seconds).collect::<Vec<f64>>(),
            "asks": seen.runs.iter().map(|run| run.asks).collect::<Vec<u32>>(),
            "failures": seen.failures,
        }));
    }
    Value::Array(all)
}

fn tell(results: &Results, has_cassandra: bool, report: &mut Report) {
    let mut table = Vec::new();
    let none = Seen::default();
    for (at, (setting, ..)) in SETTINGS.iter().enumerate() {
        for (number, scan) in SCANS.iter().enumerate() {
            let of = |kind| results.get(&(at, number, kind)).unwrap_or(&none);
            let (ours, theirs) = (of(Kind::Helenus), of(Kind::Cassandra));
            let word = match verdict(setting, scan, ours, theirs) {
                Some(verdict) => report.judge(verdict),
                None if has_cassandra => "nothing to compare with".to_owned(),
                None => String::new(),
            };
            let (our_cpu, their_cpu) = (median(ours.cpu()), lowest(theirs.cpu()));
            let share = their_cpu / our_cpu;
            let shown =
                |value: f64| if value.is_finite() { rounded(value) } else { "-".to_owned() };
            let seconds = |seen: &Seen| shown(median(seen.runs.iter().map(|run| run.seconds)));
            table.push(vec![
                (*setting).to_owned(),
                scan.name.to_owned(),
                shown(our_cpu),
                shown(their_cpu),
                if share.is_finite() { format!("1/{share:.1}") } else { "-".to_owned() },
                format!("1/{}", scan.goal),
                word,
                seconds(ours),
                seconds(theirs),
                failures(ours),
                failures(theirs),
            ]);
        }
    }
    let header = [
        "replicas, level",
        "statement",
        "helenus",
        "cassandra",
        "ratio",
        "goal",
        "verdict",
        "helenus s",
        "cassandra s",
        "failures of helenus",
        "failures of cassandra",
    ];
    report.table(TITLE, &header, &table);
}

/// Returns the verdict. A failed run of ours misses the goal, whatever the times of the others;
/// without a figure of Cassandra there is none.
fn verdict(setting: &str, scan: &Scan, ours: &Seen, theirs: &Seen) -> Option<Verdict> {
    let what = format!("{}, {setting}: Cassandra's CPU over ours", scan.name);
    let judged = |ratio| Some(Verdict::at_least(what, ratio, scan.goal, "times"));
    if !ours.failures.is_empty() {
        return judged(f64::NAN);
    }
    let lowest = lowest(theirs.cpu());
    if lowest.is_finite() { judged(lowest / median(ours.cpu())) } else { None }
}

/// Returns the number of failures and runs, and the last error.
fn failures(seen: &Seen) -> String {
    let Some(last) = seen.failures.last() else { return String::new() };
    let count = seen.failures.len();
    let text: String = last.replace(['|', '\n'], " ").chars().take(TEXT_MAX).collect();
    format!("{count} of {}: {text}", count + seen.runs.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(cpu: &[f64], failures: &[&str]) -> Seen {
        let run = |cpu: &f64| Run { cpu_per_million: *cpu, seconds: 1.0, asks: 1 };
        let failures = failures.iter().map(|text| (*text).to_owned()).collect();
        Seen { runs: cpu.iter().map(run).collect(), failures }
    }

    #[test]
    fn a_failure_of_ours_misses_the_goal_and_one_of_cassandra_s_is_told() {
        let scan = &SCANS[0];
        let word = |ours: &Seen, theirs: &Seen| verdict("x", scan, ours, theirs).map(|v| v.word());
        let ours = seen(&[0.1, 0.3, 0.2], &[]);
        assert_eq!(word(&ours, &seen(&[2.0, 1.0], &[])), Some("reached"));
        assert_eq!(word(&ours, &seen(&[2.0, 0.99], &[])), Some("missed"));
        assert_eq!(word(&ours, &seen(&[], &["timed out"])), None);
        let failed = seen(&[0.1, 0.1], &["timed out"]);
        assert_eq!(word(&failed, &seen(&[2.0], &[])), Some("missed"));
        assert_eq!(word(&seen(&[], &[]), &seen(&[2.0], &[])), Some("missed"), "no figure of ours");
        assert_eq!(failures(&failed), "1 of 3: timed out");
        assert_eq!(failures(&seen(&[], &["a | b\nc", "d | e\nf"])), "2 of 2: d   e f");
    }

    #[test]
    fn what_failed_has_its_row_beside_the_others() {
        let mut results = Results::new();
        results.insert((0, 0, Kind::Helenus), seen(&[0.1], &[]));
        results.insert((0, 1, Kind::Helenus), seen(&[], &["no page within 120 s"]));
        let raw = raw(&results);
        assert_eq!(raw[0]["cpu_s_per_million"][0], 0.1);
        assert_eq!(raw[1]["failures"][0], "no page within 120 s");
    }
}
