//! Section "tls": what TLS costs a request, with sessions that are resumed.
//!
//! CPU is that of the server per request with 128 in flight, of whole rows inserted and read by key. Latency is that of
//! a 50/50 mix at an offered rate, counted from when a request was due: with a fixed number in flight p99 would follow
//! from the CPU of both sides alone. Judged are the medians with TLS over the medians without: CPU of either workload,
//! and p99. A run in which a connection resumed no session is not counted as one of ours.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::super::process::{Kind, Server};
use super::super::report::{Report, Verdict, median, rounded};
use super::Bench;
use super::bench::{Figures, Generator, Length, Load};
use super::keys::Keys;

/// CPU per request with TLS over that without is to be at most this …
const CPU_GOAL: f64 = 1.5;
/// … and p99 at most this.
const P99_GOAL: f64 = 1.2;
/// Operations per second that are offered.
const RATE: u32 = 10_000;
/// Name in tables, `helenus bench`'s name, and offered rate of each workload.
const WORKLOADS: [(&str, &str, Option<u32>); 3] = [
    ("insert, 128 in flight", "insert", None),
    ("read, 128 in flight", "read", None),
    ("50/50 at 10,000 op/s", "mixed", Some(RATE)),
];

/// How a run is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wire {
    Plain,
    Tls,
}

type Results = BTreeMap<(Kind, &'static str), BTreeMap<Wire, Vec<Figures>>>;

/// Measures the servers in turn.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let keys = Keys::make(bench.home)?;
    let generator = Generator::new(bench.root);
    let mut servers = bench.start_with_tls(&keys)?;
    let settings = bench.settings;
    let load = |workload, length, rate, wire| Load {
        workload,
        rows: settings.rows,
        length,
        rate,
        authority: (wire == Wire::Tls).then(|| keys.authority()),
    };
    for (kind, server) in &mut servers {
        server.resume()?;
        println!("{}: loading {} rows and warming up", kind.name(), settings.rows);
        let rows = Length::Operations(settings.rows);
        generator.run(&load("insert", rows, None, Wire::Plain), server)?;
        for wire in [Wire::Plain, Wire::Tls] {
            if settings.warm > 0 {
                let warm = Length::Seconds(settings.warm);
                generator.run(&load("mixed", warm, None, wire), server)?;
            }
        }
        server.pause()?;
    }
    let mut results = Results::new();
    for round in 0..settings.equal_repeat {
        for (kind, server) in &mut servers {
            server.resume()?;
            for (name, workload, rate) in WORKLOADS {
                for wire in [Wire::Plain, Wire::Tls] {
                    let length = Length::Seconds(settings.seconds);
                    let figures =
                        counted(&generator, &load(workload, length, rate, wire), *kind, server)
                            .with_context(|| format!("{}: {name} {wire:?}", kind.name()))?;
                    let (of, kind_name) = (settings.equal_repeat, kind.name());
                    println!("{}/{of} {kind_name:9} {name} {wire:?}: {figures:?}", round + 1);
                    let found = results.entry((*kind, name)).or_default();
                    found.entry(wire).or_default().push(figures);
                }
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

fn counted(generator: &Generator, load: &Load, kind: Kind, server: &Server) -> Result<Figures> {
    let figures = generator.run(load, server)?;
    if load.authority.is_some() && kind == Kind::Helenus && !figures.all_resumed {
        bail!("a connection did not resume its TLS session");
    }
    Ok(figures)
}

fn tell(results: &Results, report: &mut Report) {
    let header = ["workload", "server", "what", "plain", "TLS", "TLS / plain", "goal", "verdict"];
    let mut rows = Vec::new();
    let mut raw = Vec::new();
    for ((kind, name), of_wires) in results {
        let of = |wire, value: fn(&Figures) -> f64| {
            let figures: &[Figures] = of_wires.get(&wire).map_or(&[], Vec::as_slice);
            median(figures.iter().map(value))
        };
        let is_rated = WORKLOADS.iter().any(|(n, _, rate)| n == name && rate.is_some());
        type Measure = fn(&Figures) -> f64;
        let measures: [(&str, Measure, Option<f64>); 2] = [
            ("CPU-s per 1,000", |f| f.cpu_per_1000, (!is_rated).then_some(CPU_GOAL)),
            ("p99, ms", |f| f.p99_ms, is_rated.then_some(P99_GOAL)),
        ];
        for (what, value, goal) in measures {
            let (plain, tls) = (of(Wire::Plain, value), of(Wire::Tls, value));
            let ratio = tls / plain;
            let goal = goal.filter(|_| *kind == Kind::Helenus);
            let verdict = goal.map(|goal| {
                let what = format!("TLS over plain, {what}, {name}");
                report.judge(Verdict::at_most(what, ratio, goal, "times"))
            });
            rows.push(vec![
                (*name).to_owned(),
                kind.name().to_owned(),
                what.to_owned(),
                rounded(plain),
                rounded(tls),
                rounded(ratio),
                goal.map(rounded).unwrap_or_default(),
                verdict.unwrap_or_default(),
            ]);
        }
        for (wire, figures) in of_wires {
            let wire = format!("{wire:?}");
            raw.push(
                json!({"server": kind.name(), "workload": name, "wire": wire, "runs": figures}),
            );
        }
    }
    report.table("TLS with resumed sessions against plain text", &header, &rows);
    report.keep("tls", json!(raw));
}
