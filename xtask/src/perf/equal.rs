//! Section "equal": latency of a 50/50 mix at the same offered load.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::json;

use super::load::{Figures, Latte, Length};
use super::process::{Kind, Server};
use super::report::{Report, Verdict, median};
use super::settings::Settings;
use super::throughput::WORKLOADS;

/// Operations per second that are offered.
const RATES: [u32; 2] = [2_000, 10_000];
/// Our p99 is to be at most Cassandra's divided by this …
const CASSANDRA_SHARE: f64 = 4.0;
/// … or the null server's times this, where that is more.
const NULL_FACTOR: f64 = 1.5;
/// A generator that offered less than this share of the rate measured something else.
const OFFERED_SHARE_MIN: f64 = 0.95;

/// Loads the table on every server, then measures them in turn.
pub fn run(
    latte: &Latte,
    servers: &mut [(Kind, Server)],
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    let find = |name| WORKLOADS.iter().find(|w| w.name == name).context("no such workload");
    let (insert, mixed) = (find("insert")?, find("mixed")?);
    for (kind, server) in &mut *servers {
        server.resume()?;
        println!("{}: loading {} rows and warming up", kind.name(), settings.rows);
        latte.schema(insert, server)?;
        latte.run(insert, server, settings.rows, Length::Count(settings.rows), None)?;
        if settings.warm > 0 {
            latte.run(mixed, server, settings.rows, Length::Seconds(settings.warm), None)?;
        }
        server.pause()?;
    }
    let mut results: BTreeMap<(u32, Kind), Vec<Figures>> = BTreeMap::new();
    for round in 0..settings.equal_repeat {
        for rate in RATES {
            for (kind, server) in &mut *servers {
                server.resume()?;
                let run = |seconds| {
                    let length = Length::Seconds(seconds);
                    latte.run(mixed, server, settings.rows, length, Some(rate))
                };
                let figures = run(settings.warm.div_ceil(4).max(1))
                    .and_then(|_| run(settings.seconds))
                    .with_context(|| format!("{} at {rate} op/s", kind.name()))?;
                server.pause()?;
                let (of, name) = (settings.equal_repeat, kind.name());
                println!("{}/{of} {name:11} {rate:6} op/s offered: {figures}", round + 1);
                results.entry((rate, *kind)).or_default().push(figures);
            }
        }
    }
    tell(&results, report);
    Ok(())
}

fn tell(results: &BTreeMap<(u32, Kind), Vec<Figures>>, report: &mut Report) {
    let header = [
        "offered op/s",
        "server",
        "op/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "goal for p99, ms",
        "verdict",
    ];
    let p99 = |rate, kind| {
        results.get(&(rate, kind)).map(|f: &Vec<Figures>| median(f.iter().map(|f| f.p99_ms)))
    };
    let mut rows = Vec::new();
    let mut raw = Vec::new();
    for ((rate, kind), figures) in results {
        raw.push(json!({ "offered": rate, "server": kind.name(), "runs": figures }));
        let of = |value: fn(&Figures) -> f64| median(figures.iter().map(value));
        let done = of(|f| f.throughput);
        let goal = match (kind, p99(*rate, Kind::Cassandra), p99(*rate, Kind::Null)) {
            (Kind::Helenus, Some(theirs), Some(null)) => {
                Some((theirs / CASSANDRA_SHARE).max(null * NULL_FACTOR))
            }
            (Kind::Helenus | Kind::Null | Kind::Cassandra, _, _) => None,
        };
        let verdict = goal.map(|goal| {
            let what = format!("p99 of the 50/50 mix at {rate} op/s");
            report.judge(Verdict::at_most(what, of(|f| f.p99_ms), goal, "ms"))
        });
        if done < f64::from(*rate) * OFFERED_SHARE_MIN {
            println!("note: {} was offered or did only {done:.0} of {rate} op/s", kind.name());
        }
        rows.push(vec![
            rate.to_string(),
            kind.name().to_owned(),
            format!("{done:.0}"),
            format!("{:.2}", of(|f| f.p50_ms)),
            format!("{:.2}", of(|f| f.p99_ms)),
            format!("{:.2}", of(|f| f.p999_ms)),
            goal.map(|g| format!("{g:.2}")).unwrap_or_default(),
            verdict.unwrap_or_default(),
        ]);
    }
    report.table("Equal offered load, 50/50 mix", &header, &rows);
    report.keep("equal", json!(raw));
}
