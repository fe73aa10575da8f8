//! Section "audit": CPU of the audit log at full load.
//!
//! A 50/50 mix with 128 in flight, without and with the log of everything (all categories; the keyspaces that are left
//! out by default stay so, the load's is not among them), switched by `nodetool` in the running server. Judged is the
//! server's CPU per request with `FileAuditLogger` over that without, medians of `--equal-repeat` pairs. The binary log
//! is shown beside it. The files are removed after each run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::super::cassandra;
use super::super::process::{Kind, Server, helenus_data};
use super::super::report::{Report, Verdict, median, rounded};
use super::Bench;
use super::bench::{Figures, Generator, Length, Load};

/// CPU with the log over CPU without is to be at most this.
const GOAL: f64 = 1.05;
const FILE: &str = "FileAuditLogger";
const BINARY: &str = "BinAuditLogger";

/// By server and logger, "" for none.
type Results = BTreeMap<(Kind, &'static str), Vec<Figures>>;

/// Measures the servers in turn.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let settings = bench.settings;
    let generator = Generator::new(bench.root);
    let load = |workload, length| Load {
        workload,
        rows: settings.rows,
        length,
        rate: None,
        authority: None,
    };
    let mut servers = super::super::started(
        bench.root,
        bench.home,
        settings,
        if settings.cassandra { &[Kind::Helenus, Kind::Cassandra] } else { &[Kind::Helenus] },
    )?;
    for (kind, server) in &mut servers {
        server.resume()?;
        println!("{}: loading {} rows and warming up", kind.name(), settings.rows);
        generator.run(&load("insert", Length::Operations(settings.rows)), server)?;
        for logger in ["", FILE, BINARY] {
            let warm = load("mixed", Length::Seconds(settings.warm.max(1)));
            measure(bench, &generator, &warm, *kind, server, logger)?;
        }
        server.pause()?;
    }
    let mut results = Results::new();
    for round in 0..settings.equal_repeat {
        for (kind, server) in &mut servers {
            server.resume()?;
            for logger in ["", FILE, BINARY] {
                let mixed = load("mixed", Length::Seconds(settings.seconds));
                let figures = measure(bench, &generator, &mixed, *kind, server, logger)
                    .with_context(|| format!("{} with {logger:?}", kind.name()))?;
                let (of, name) = (settings.equal_repeat, kind.name());
                println!("{}/{of} {name:9} {logger:15} {figures:?}", round + 1);
                results.entry((*kind, logger)).or_default().push(figures);
            }
            server.pause()?;
        }
    }
    for (_, server) in servers {
        server.stop()?;
    }
    tell(&results, report);
    Ok(())
}

/// Runs a load with this logger and removes its files.
fn measure(
    bench: &Bench<'_>,
    generator: &Generator,
    load: &Load,
    kind: Kind,
    server: &Server,
    logger: &str,
) -> Result<Figures> {
    if logger.is_empty() {
        return generator.run(load, server);
    }
    bench.nodetool(kind, &["enableauditlog", "--logger", logger])?;
    let figures = generator.run(load, server);
    bench.nodetool(kind, &["disableauditlog"])?;
    let figures = figures?;
    let bytes = empty(bench, kind)?;
    if bytes == 0 {
        bail!("{logger} wrote nothing");
    }
    Ok(figures)
}

/// Where a server has its audit log.
fn directories(bench: &Bench<'_>, kind: Kind) -> Vec<PathBuf> {
    match kind {
        Kind::Helenus | Kind::Null => vec![helenus_data(bench.home).join("logs/audit")],
        Kind::Cassandra => {
            let home = cassandra::node_data(bench.home);
            vec![home.join("audit"), home.join("audit-text")]
        }
    }
}

/// Removes the files of the audit log; returns how many bytes they had. Cassandra's text log stays open, so it is cut.
fn empty(bench: &Bench<'_>, kind: Kind) -> Result<u64> {
    let mut bytes = 0;
    for directory in directories(bench, kind) {
        if !directory.exists() {
            continue;
        }
        for entry in crate::disk::read_dir(&directory)? {
            let path = entry?.path();
            bytes += crate::disk::metadata(&path)?.len();
            if path.ends_with("audit-text/audit.log") {
                crate::disk::write(&path, "")?;
            } else {
                crate::disk::remove_file(&path)?;
            }
        }
    }
    Ok(bytes)
}

fn tell(results: &Results, report: &mut Report) {
    let header =
        ["server", "logger", "CPU-s per 1,000", "over none", "p99, ms", "op/s", "goal", "verdict"];
    let of = |kind, logger, value: fn(&Figures) -> f64| {
        let figures: &[Figures] = results.get(&(kind, logger)).map_or(&[], Vec::as_slice);
        median(figures.iter().map(value))
    };
    let (mut rows, mut raw) = (Vec::new(), Vec::new());
    for ((kind, logger), figures) in results {
        let cpu = of(*kind, logger, |f| f.cpu_per_1000);
        let ratio = cpu / of(*kind, "", |f| f.cpu_per_1000);
        let goal = (*kind == Kind::Helenus && *logger == FILE).then_some(GOAL);
        let verdict = goal.map(|goal| {
            let what = "CPU per request with FileAuditLogger over that without an audit log";
            report.judge(Verdict::at_most(what, ratio, goal, "times"))
        });
        rows.push(vec![
            kind.name().to_owned(),
            if logger.is_empty() { "none".to_owned() } else { (*logger).to_owned() },
            rounded(cpu),
            rounded(ratio),
            rounded(of(*kind, logger, |f| f.p99_ms)),
            rounded(of(*kind, logger, |f| f.throughput)),
            goal.map(rounded).unwrap_or_default(),
            verdict.unwrap_or_default(),
        ]);
        raw.push(json!({ "server": kind.name(), "logger": logger, "runs": figures }));
    }
    report.table("Audit log of everything, 50/50 mix, 128 in flight", &header, &rows);
    report.keep("audit", json!(raw));
}
