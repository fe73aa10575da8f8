//! Sections "null" and "load": 128 requests in flight, interleaved runs, server CPU per operation.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::json;

use super::load::{Figures, Latte, Length, Workload};
use super::process::{Kind, Server};
use super::report::{Report, Verdict, lowest, median};
use super::settings::Settings;

/// Compared workloads, in the order of the table.
pub const WORKLOADS: &[Workload] = &[
    workload("insert", "standard1", "insert", true),
    workload("read", "standard1", "read", false),
    workload("mixed", "standard1", "update:0.5,read:0.5", false),
    workload("series-insert", "series", "insert", true),
    workload("slice-100", "series", "slice", false),
];

const fn workload(
    name: &'static str,
    script: &'static str,
    functions: &'static str,
    loads: bool,
) -> Workload {
    Workload { name, script, functions, loads, consistency: None }
}

/// Our CPU per operation is to be at most Cassandra's divided by this.
fn goal_of(workload: &Workload) -> f64 {
    if workload.name == "slice-100" { 10.0 } else { 8.0 }
}

/// All counted runs.
type Results = BTreeMap<(Kind, &'static str), Vec<Figures>>;

/// Runs every workload on every server, one server after the other within each repetition; the
/// others are paused meanwhile.
pub fn run(
    latte: &Latte,
    servers: &mut [(Kind, Server)],
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    let mut results = Results::new();
    for round in 0..settings.repeat {
        for workload in WORKLOADS {
            for (kind, server) in &mut *servers {
                server.resume()?;
                let figures = once(latte, workload, server, settings, round)
                    .with_context(|| format!("{}: {}", kind.name(), workload.name))?;
                server.pause()?;
                let (of, name) = (settings.repeat, kind.name());
                println!("{}/{of} {name:11} {:13} {figures}", round + 1, workload.name);
                results.entry((*kind, workload.name)).or_default().push(figures);
            }
        }
    }
    tell(&results, report);
    Ok(())
}

fn once(
    latte: &Latte,
    workload: &Workload,
    server: &Server,
    settings: &Settings,
    round: u32,
) -> Result<Figures> {
    let rows = settings.rows;
    // A compiler in the server needs the long warm-up once, caches a short one each time.
    let warm = if round == 0 { settings.warm } else { settings.warm.div_ceil(4) };
    if workload.loads {
        latte.schema(workload, server)?;
    }
    if warm > 0 {
        latte.run(workload, server, rows, Length::Seconds(warm), None)?;
    }
    let length = if workload.loads {
        latte.schema(workload, server)?;
        Length::Count(rows)
    } else {
        Length::Seconds(settings.seconds)
    };
    latte.run(workload, server, rows, length, None)
}

fn tell(results: &Results, report: &mut Report) {
    let header = [
        "workload",
        "server",
        "op/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "CPU-s per 1,000",
        "RSS MiB",
        "CPU against Cassandra",
        "goal",
        "verdict",
    ];
    let mut rows = Vec::new();
    let mut raw = Vec::new();
    for workload in WORKLOADS {
        for kind in [Kind::Null, Kind::Helenus, Kind::Cassandra] {
            let Some(figures) = results.get(&(kind, workload.name)) else { continue };
            let theirs = results.get(&(Kind::Cassandra, workload.name));
            raw.push(json!({ "server": kind.name(), "workload": workload.name, "runs": figures }));
            let of = |value: fn(&Figures) -> f64| median(figures.iter().map(value));
            let cpu = of(|f| f.server_cpu_per_1000);
            // Cassandra's lowest: what its compiler reached in the best of its runs.
            let theirs = theirs.map(|f| lowest(f.iter().map(|f| f.server_cpu_per_1000)));
            let (ratio, goal, verdict) = match (kind, theirs) {
                (Kind::Helenus, Some(theirs)) => {
                    let goal = theirs / goal_of(workload);
                    let what = format!("server CPU, {}", workload.name);
                    let verdict = Verdict::at_most(what, cpu, goal, "s per 1,000");
                    let ratio = format!("1/{:.1}", theirs / cpu);
                    (ratio, format!("1/{:.0}", goal_of(workload)), report.judge(verdict))
                }
                (Kind::Null, Some(theirs)) => {
                    (format!("1/{:.1}", theirs / cpu), "floor".to_owned(), String::new())
                }
                (Kind::Null | Kind::Helenus | Kind::Cassandra, _) => Default::default(),
            };
            rows.push(vec![
                workload.name.to_owned(),
                kind.name().to_owned(),
                format!("{:.0}", of(|f| f.throughput)),
                format!("{:.2}", of(|f| f.p50_ms)),
                format!("{:.2}", of(|f| f.p99_ms)),
                format!("{:.2}", of(|f| f.p999_ms)),
                format!("{cpu:.4}"),
                format!("{:.0}", of(|f| f.rss_mib)),
                ratio,
                goal,
                verdict,
            ]);
        }
    }
    report.table("128 requests in flight", &header, &rows);
    report.keep("load", json!(raw));
}
