//! `perf cluster`: three nodes of Helenus against three of Cassandra, RF 3, under the same load in
//! the same run; server CPU is that of the three processes together.
//!
//! Those that are not measured are stopped by SIGSTOP. Section "load": QUORUM insert, read, mixed,
//! and INSERT IF NOT EXISTS, 128 in flight. "equal": INSERT IF NOT EXISTS at offered rates.
//! "batch": both again where both sync the commit log before each answer. "contended": one key.
//! "schema": CREATE TABLE on one node alone and on three. "scans": whole tables, also of RF 1.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::json;

use super::cassandra::Sync;
use super::cluster_scans;
use super::contended::{self, Contended};
use super::load::{Figures, Latte, Length, Workload};
use super::nodes::{Kind, Nodes};
use super::process::{self, Server};
use super::report::{Report, Verdict, highest, lowest, median};
use super::schema;

const WORKLOADS: &[Workload] = &[
    workload("QUORUM insert", "insert", true),
    workload("QUORUM read", "read", false),
    workload("QUORUM 50/50", "update:0.5,read:0.5", false),
    LWT,
];
const LWT: Workload = workload("INSERT IF NOT EXISTS", "insert_new", true);

const fn workload(name: &'static str, functions: &'static str, loads: bool) -> Workload {
    Workload { name, script: "replicated", functions, loads, consistency: Some("QUORUM") }
}

/// CPU per operation is to be at most Cassandra's lowest divided by this.
fn goal_of(workload: &Workload) -> f64 {
    if workload.name == LWT.name { 15.0 } else { 8.0 }
}

/// p99 of conditional inserts is to be at most Cassandra's divided by this.
const P99_SHARE: f64 = 5.0;
/// Throughput of many clients on one key, as a share of that of few.
const CONTENDED_SHARE: f64 = 0.8;
const CLIENTS: [usize; 2] = [8, 256];
/// From nothing to CQL on all nodes.
const START_MAX_S: f64 = 2.0;

#[derive(Clone, Debug, Serialize)]
struct Settings {
    rows: u64,
    /// Length of a counted run, seconds.
    seconds: u64,
    /// Length of the first warm-up of Helenus, seconds; later ones take a quarter.
    warm: u64,
    /// The same of Cassandra, whose compilers need longer: three share the machine's cores.
    cassandra_warm: u64,
    repeat: u32,
    /// Offered conditional inserts per second.
    rates: Vec<u32>,
    /// `--memory` of each Helenus, heap of each Cassandra.
    memory: String,
    start_repeat: u32,
    /// True if rows of the section "scans" are flushed to disk before they are read.
    flush: bool,
    cassandra: bool,
    sections: Vec<String>,
}

const SECTIONS: [&str; 8] =
    ["start", "schema", "load", "lwt", "equal", "contended", "scans", "batch"];
/// CREATE TABLE, milliseconds, on one node alone and on three.
const SCHEMA_MAX_MS: [f64; 2] = [20.0, 150.0];

impl Settings {
    fn parse(words: &[&str]) -> Result<Settings> {
        let mut s = Settings {
            rows: 100_000,
            seconds: 10,
            warm: 10,
            cassandra_warm: 60,
            repeat: 3,
            rates: vec![500, 1000],
            memory: "1G".to_owned(),
            start_repeat: 3,
            flush: false,
            cassandra: true,
            sections: SECTIONS.map(str::to_owned).to_vec(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--without-cassandra" {
                s.cassandra = false;
                continue;
            }
            if *word == "--flush" {
                s.flush = true;
                continue;
            }
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            let number = || match value.parse::<u32>() {
                Ok(n) if n > 0 => Ok(n),
                _ => bail!("{word} takes a number from 1 on, not \"{value}\""),
            };
            match *word {
                "--rows" => s.rows = number()?.into(),
                "--seconds" => s.seconds = number()?.into(),
                "--warm" => s.warm = number()?.into(),
                "--cassandra-warm" => s.cassandra_warm = number()?.into(),
                "--repeat" => s.repeat = number()?,
                "--start-repeat" => s.start_repeat = number()?,
                "--rates" => {
                    s.rates = value.split(',').map(str::parse).collect::<Result<_, _>>()?
                }
                "--memory" => s.memory = (*value).to_owned(),
                "--only" => s.sections = value.split(',').map(str::to_owned).collect(),
                _ => bail!("unknown option {word}; see cargo xtask help"),
            }
        }
        match s.sections.iter().find(|name| !SECTIONS.contains(&name.as_str())) {
            Some(name) => bail!("--only takes {}, not \"{name}\"", SECTIONS.join(", ")),
            None => Ok(s),
        }
    }

    fn has(&self, section: &str) -> bool {
        self.sections.iter().any(|s| s == section)
    }
}

/// Everything that the parts need.
struct Run<'a> {
    root: &'a Path,
    home: &'a Path,
    latte: Latte,
    settings: Settings,
}

/// Runs the comparison; writes `cluster.md` and `cluster.json` below `target/perf`. True also when
/// a goal was missed.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let settings = Settings::parse(words)?;
    let home = root.join("target/perf");
    crate::disk::create_dir_all(&home)?;
    let latte = Latte::install(root, &home)?;
    process::build_helenus(root)?;
    let mut report = Report::named("cluster");
    report.keep("settings", json!(settings));
    report.keep("machine", super::machine());
    let run = Run { root, home: &home, latte, settings };
    if run.settings.has("start") {
        run.start(&mut report)?;
        report.write(&home)?;
    }
    if run.settings.has("schema") {
        run.schema(&mut report)?;
        report.write(&home)?;
    }
    let of_periodic = ["load", "lwt", "equal", "contended"].iter().any(|s| run.settings.has(s));
    if of_periodic {
        let mut all = run.started(Sync::Periodic)?;
        if run.settings.has("load") {
            run.load(&mut all, WORKLOADS, "128 in flight, three nodes, RF 3", &mut report)?;
            report.write(&home)?;
        }
        // A part of `load`, for changes that affect only that.
        if run.settings.has("lwt") && !run.settings.has("load") {
            run.load(&mut all, &[LWT], "128 in flight, three nodes, RF 3", &mut report)?;
            report.write(&home)?;
        }
        if run.settings.has("equal") {
            run.equal(&mut all, "Conditional inserts at equal offered load", &mut report)?;
            report.write(&home)?;
        }
        if run.settings.has("contended") {
            run.contended(&mut all, &mut report)?;
            report.write(&home)?;
        }
        stop(all)?;
    }
    if run.settings.has("scans") {
        let mut all = run.started(Sync::Periodic)?;
        let Settings { rows, repeat, flush, .. } = run.settings;
        let [warm, cassandra_warm] =
            [Kind::Helenus, Kind::Cassandra].map(|kind| Duration::from_secs(run.warm(kind, true)));
        let plan = cluster_scans::Plan { rows, repeat, flush, warm, cassandra_warm };
        cluster_scans::run(&mut all, &plan, &home, &mut report)?;
        // The figures are reported even if a node does not stop cleanly.
        if let Err(error) = stop(all) {
            println!("{error:#}");
        }
    }
    if run.settings.has("batch") {
        let mut all = run.started(Sync::Batch)?;
        run.load(&mut all, &[LWT], "128 in flight, commitlog_sync batch", &mut report)?;
        let title = "Conditional inserts at equal offered load, commitlog_sync batch";
        run.equal(&mut all, title, &mut report)?;
        report.write(&home)?;
        stop(all)?;
    }
    println!("{}", report.verdict_lines());
    println!("{}", home.join("cluster.md").display());
    Ok(true)
}

type Clusters = Vec<(Kind, Nodes)>;

fn stop(all: Clusters) -> Result<()> {
    for (_, mut nodes) in all {
        nodes.resume()?;
        nodes.stop()?;
    }
    Ok(())
}

impl Run<'_> {
    fn helenus(&self, sync: Sync) -> Result<Nodes> {
        Nodes::helenus(self.root, self.home, &self.settings.memory, sync)
    }

    /// Both clusters, paused.
    fn started(&self, sync: Sync) -> Result<Clusters> {
        let mut all = vec![(Kind::Helenus, self.helenus(sync)?)];
        all.iter_mut().try_for_each(|(_, nodes)| nodes.pause())?;
        if self.settings.cassandra {
            let mut nodes = Nodes::cassandra(self.home, &self.settings.memory, sync)?;
            nodes.pause()?;
            all.push((Kind::Cassandra, nodes));
        }
        for (kind, nodes) in &all {
            let took = nodes.started_after.as_secs_f64();
            println!("three nodes of {} answer after {took:.2} s", kind.name());
        }
        Ok(all)
    }

    fn start(&self, report: &mut Report) -> Result<()> {
        let mut times = Vec::new();
        for _ in 0..self.settings.start_repeat {
            let nodes = self.helenus(Sync::Periodic)?;
            times.push(nodes.started_after.as_secs_f64());
            nodes.stop()?;
        }
        let what = "start from nothing to CQL on three nodes, median";
        let middle = median(times.clone());
        let word = report.judge(Verdict::at_most(what, middle, START_MAX_S, "s"));
        let row = vec![format!("{middle:.2} s"), format!("{START_MAX_S} s"), word];
        report.table("Start of three nodes at once", &["median", "goal", "verdict"], &[row]);
        report.keep("start", json!(times));
        Ok(())
    }

    fn schema(&self, report: &mut Report) -> Result<()> {
        let alone = Server::helenus(self.root, self.home, &self.settings.memory)?;
        let of_one = schema::create_tables(&alone)?;
        alone.stop()?;
        let three = self.helenus(Sync::Periodic)?;
        let of_three = schema::create_tables(&three)?;
        three.stop()?;
        let mut all = vec![
            (Kind::Helenus, "one", of_one, SCHEMA_MAX_MS.first()),
            (Kind::Helenus, "three", of_three, SCHEMA_MAX_MS.last()),
        ];
        if self.settings.cassandra {
            let three = Nodes::cassandra(self.home, &self.settings.memory, Sync::Periodic)?;
            all.push((Kind::Cassandra, "three", schema::create_tables(&three)?, None));
            three.stop()?;
        }
        let mut rows = Vec::new();
        for (kind, nodes, times, goal) in &all {
            let (middle, most) = (median(times.clone()), highest(times.clone()));
            let judged = goal.map(|goal| {
                let what = format!("CREATE TABLE on {nodes}, median of {}", times.len());
                report.judge(Verdict::at_most(what, middle, *goal, "ms"))
            });
            rows.push(vec![
                (*nodes).to_owned(),
                kind.name().to_owned(),
                format!("{middle:.2}"),
                format!("{most:.2}"),
                goal.map(|goal| format!("{goal:.0}")).unwrap_or_default(),
                judged.unwrap_or_default(),
            ]);
        }
        let header = ["nodes", "server", "median ms", "longest ms", "goal", "verdict"];
        report.table("CREATE TABLE, asked of each node in turn", &header, &rows);
        let raw: Vec<_> = all
            .iter()
            .map(|(kind, nodes, times, _)| {
                json!({ "server": kind.name(), "nodes": nodes, "ms": times })
            })
            .collect();
        report.keep("schema", json!(raw));
        Ok(())
    }

    /// Seconds of a warm-up.
    fn warm(&self, kind: Kind, is_first: bool) -> u64 {
        let first = match kind {
            Kind::Helenus => self.settings.warm,
            Kind::Cassandra => self.settings.cassandra_warm,
        };
        if is_first { first } else { first.div_ceil(4) }
    }

    /// One warm-up and one counted run.
    fn once(&self, workload: &Workload, kind: Kind, nodes: &Nodes, round: u32) -> Result<Figures> {
        let (latte, s) = (&self.latte, &self.settings);
        let warm = self.warm(kind, round == 0);
        if workload.loads {
            latte.schema(workload, nodes)?;
        }
        latte.run(workload, nodes, s.rows, Length::Seconds(warm), None)?;
        // The read that follows needs all rows of the insert.
        let is_load = workload.loads && workload.name != LWT.name;
        let length = if is_load { Length::Count(s.rows) } else { Length::Seconds(s.seconds) };
        if workload.loads {
            latte.schema(workload, nodes)?;
        }
        latte.run(workload, nodes, s.rows, length, None)
    }

    fn load(
        &self,
        all: &mut Clusters,
        workloads: &[Workload],
        title: &str,
        report: &mut Report,
    ) -> Result<()> {
        let mut results: BTreeMap<(usize, Kind), Vec<Figures>> = BTreeMap::new();
        for round in 0..self.settings.repeat {
            for (at, workload) in workloads.iter().enumerate() {
                for (kind, nodes) in &mut *all {
                    nodes.resume()?;
                    let figures = self
                        .once(workload, *kind, nodes, round)
                        .with_context(|| format!("{}: {}", kind.name(), workload.name))?;
                    nodes.pause()?;
                    let (of, name) = (self.settings.repeat, kind.name());
                    println!("{}/{of} {name:10} {:21} {figures}", round + 1, workload.name);
                    results.entry((at, *kind)).or_default().push(figures);
                }
            }
        }
        let mut rows = Vec::new();
        let mut raw = Vec::new();
        for ((at, kind), figures) in &results {
            let Some(workload) = workloads.get(*at) else { continue };
            raw.push(json!({ "server": kind.name(), "workload": workload.name, "runs": figures }));
            let of = |value: fn(&Figures) -> f64| median(figures.iter().map(value));
            let cpu = of(|f| f.server_cpu_per_1000);
            let theirs = results.get(&(*at, Kind::Cassandra)).filter(|_| *kind == Kind::Helenus);
            let theirs = theirs.map(|f| lowest(f.iter().map(|f| f.server_cpu_per_1000)));
            let (ratio, goal, verdict) = match theirs {
                None => Default::default(),
                Some(theirs) => {
                    let share = goal_of(workload);
                    let what = format!("server CPU, {} ({title})", workload.name);
                    let verdict = Verdict::at_most(what, cpu, theirs / share, "s per 1,000");
                    let ratio = format!("1/{:.1}", theirs / cpu);
                    (ratio, format!("1/{share:.0}"), report.judge(verdict))
                }
            };
            rows.push(vec![
                workload.name.to_owned(),
                kind.name().to_owned(),
                format!("{:.0}", of(|f| f.throughput)),
                format!("{:.2}", of(|f| f.p50_ms)),
                format!("{:.2}", of(|f| f.p99_ms)),
                format!("{cpu:.4}"),
                format!("{:.0}", of(|f| f.rss_mib)),
                ratio,
                goal,
                verdict,
            ]);
        }
        let header = [
            "workload",
            "server",
            "op/s",
            "p50 ms",
            "p99 ms",
            "CPU-s per 1,000",
            "RSS MiB",
            "CPU against Cassandra",
            "goal",
            "verdict",
        ];
        report.table(title, &header, &rows);
        report.keep(title, json!(raw));
        Ok(())
    }

    fn equal(&self, all: &mut Clusters, title: &str, report: &mut Report) -> Result<()> {
        let mut results: BTreeMap<(u32, Kind), Vec<Figures>> = BTreeMap::new();
        let s = &self.settings;
        for round in 0..s.repeat {
            for rate in &s.rates {
                for (kind, nodes) in &mut *all {
                    nodes.resume()?;
                    self.latte.schema(&LWT, nodes)?;
                    let run = |seconds| {
                        let length = Length::Seconds(seconds);
                        self.latte.run(&LWT, nodes, s.rows, length, Some(*rate))
                    };
                    run(self.warm(*kind, false))?;
                    self.latte.schema(&LWT, nodes)?;
                    let figures = run(s.seconds)?;
                    nodes.pause()?;
                    let name = kind.name();
                    println!("{}/{} {name:10} {rate:5} op/s: {figures}", round + 1, s.repeat);
                    results.entry((*rate, *kind)).or_default().push(figures);
                }
            }
        }
        let mut rows = Vec::new();
        let mut raw = Vec::new();
        for ((rate, kind), figures) in &results {
            raw.push(json!({ "offered": rate, "server": kind.name(), "runs": figures }));
            let of = |value: fn(&Figures) -> f64| median(figures.iter().map(value));
            let theirs = results.get(&(*rate, Kind::Cassandra)).filter(|_| *kind == Kind::Helenus);
            let goal = theirs.map(|f| median(f.iter().map(|f| f.p99_ms)) / P99_SHARE);
            let verdict = goal.map(|goal| {
                let what = format!("p99 at {rate} op/s ({title})");
                report.judge(Verdict::at_most(what, of(|f| f.p99_ms), goal, "ms"))
            });
            rows.push(vec![
                rate.to_string(),
                kind.name().to_owned(),
                format!("{:.0}", of(|f| f.throughput)),
                format!("{:.2}", of(|f| f.p50_ms)),
                format!("{:.2}", of(|f| f.p99_ms)),
                format!("{:.2}", of(|f| f.p999_ms)),
                format!("{:.4}", of(|f| f.server_cpu_per_1000)),
                goal.map(|g| format!("{g:.2}")).unwrap_or_default(),
                verdict.unwrap_or_default(),
            ]);
        }
        let header = [
            "offered op/s",
            "server",
            "op/s",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "CPU-s per 1,000",
            "goal for p99, ms",
            "verdict",
        ];
        report.table(title, &header, &rows);
        report.keep(title, json!(raw));
        Ok(())
    }

    fn contended(&self, all: &mut Clusters, report: &mut Report) -> Result<()> {
        let length = Duration::from_secs(self.settings.seconds);
        let mut rows = Vec::new();
        let mut raw = Vec::new();
        for (kind, nodes) in &mut *all {
            nodes.resume()?;
            contended::prepare(nodes)?;
            let warm = Duration::from_secs(self.warm(*kind, false));
            contended::run(nodes, 32, warm)?;
            let mut of_clients: Vec<Contended> = Vec::new();
            for clients in CLIENTS {
                let found = contended::run(nodes, clients, length)?;
                println!("{:10} {found}", kind.name());
                of_clients.push(found);
            }
            nodes.pause()?;
            let few = of_clients.first().map_or(f64::NAN, |f| f.throughput);
            for found in &of_clients {
                let share = found.throughput / few;
                let is_judged = *kind == Kind::Helenus && found.clients != CLIENTS[0];
                let verdict = is_judged.then(|| {
                    let what = "throughput of 256 clients on one key against 8";
                    report.judge(Verdict::at_least(what, share, CONTENDED_SHARE, ""))
                });
                rows.push(vec![
                    found.clients.to_string(),
                    kind.name().to_owned(),
                    format!("{:.0}", found.throughput),
                    format!("{share:.2}"),
                    format!("{:.2}", found.p50_ms),
                    format!("{:.2}", found.p99_ms),
                    found.uncertain.to_string(),
                    found.refused.to_string(),
                    format!("{:.4}", found.server_cpu_per_1000),
                    verdict.unwrap_or_default(),
                ]);
            }
            raw.push(json!({ "server": kind.name(), "runs": of_clients }));
        }
        let header = [
            "clients",
            "server",
            "applied/s",
            "share of 8 clients",
            "p50 ms",
            "p99 ms",
            "uncertain",
            "refused",
            "CPU-s per 1,000",
            "verdict",
        ];
        report.table("One key, through all three nodes", &header, &rows);
        report.keep("contended", json!(raw));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_others_refused() {
        let all = Settings::parse(&[]).unwrap();
        assert!(all.has("start") && all.has("batch") && all.cassandra);
        let some =
            Settings::parse(&["--only", "load,equal", "--rates", "5,6", "--without-cassandra"])
                .unwrap();
        assert!(some.has("equal") && !some.has("start") && !some.cassandra && !some.flush);
        let scans = Settings::parse(&["--flush", "--only", "scans"]).unwrap();
        assert!(scans.flush && scans.has("scans") && !scans.has("batch"));
        assert_eq!(some.rates, [5, 6]);
        for wrong in [["--only", "everything"], ["--rows", "0"], ["--row", "1"], ["--rates", "x"]] {
            assert!(Settings::parse(&wrong).is_err(), "{wrong:?}");
        }
    }
}
