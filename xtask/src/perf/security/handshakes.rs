//! Section "handshakes": another client's latency while very many connections are opened at once.
//!
//! The client sends a 50/50 mix at an offered rate over TLS, once undisturbed and once while storms of 2,000 full
//! handshakes follow one another for the whole length of its run; both in turn, `--equal-repeat` times. Judged is the
//! median of its p99 with storms over the median without. The storm's generator runs at the lowest priority, so that
//! its own cryptography takes no processor from the server or the client.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::json;

use super::super::process::Kind;
use super::super::report::{Report, Verdict, median, rounded};
use super::Bench;
use super::bench::{Figures, Generator, Length, Load, Storm};
use super::keys::Keys;

/// Connections of a storm.
const CONNECTIONS: u64 = 2_000;
/// p99 with storms over p99 without is to be at most this.
const GOAL: f64 = 3.0;
/// Operations per second of the client.
const RATE: u32 = 2_000;

/// Runs of one server.
#[derive(Default)]
struct Found {
    quiet: Vec<Figures>,
    stormy: Vec<Figures>,
    storms: Vec<Storm>,
}

/// Measures the servers in turn.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let keys = Keys::make(bench.home)?;
    let generator = Generator::new(bench.root);
    let settings = bench.settings;
    let authority = keys.authority();
    let load = |workload, length, rate| Load {
        workload,
        rows: settings.rows,
        length,
        rate,
        authority: Some(authority.clone()),
    };
    let mut found: BTreeMap<Kind, Found> = BTreeMap::new();
    let mut servers = bench.start_with_tls(&keys)?;
    for (kind, server) in &mut servers {
        server.resume()?;
        println!("{}: loading {} rows and warming up", kind.name(), settings.rows);
        generator.run(&load("insert", Length::Operations(settings.rows), None), server)?;
        generator.run(&load("mixed", Length::Seconds(settings.warm.max(1)), None), server)?;
        generator.storm(server, CONNECTIONS, &authority)?;
        server.pause()?;
    }
    for round in 0..settings.equal_repeat {
        for (kind, server) in &mut servers {
            server.resume()?;
            let seen = found.entry(*kind).or_default();
            let mixed = load("mixed", Length::Seconds(settings.seconds), Some(RATE));
            let quiet = generator.run(&mixed, server)?;
            let storms = &mut seen.storms;
            let stormy = generator
                .run_beside(&mixed, server, || {
                    storms.push(generator.storm(server, CONNECTIONS, &authority)?);
                    Ok(())
                })
                .with_context(|| format!("{} under storms", kind.name()))?;
            let (of, name) = (settings.equal_repeat, kind.name());
            println!("{}/{of} {name:9} quiet {quiet:?}", round + 1);
            println!("{}/{of} {name:9} storm {stormy:?}", round + 1);
            seen.quiet.push(quiet);
            seen.stormy.push(stormy);
            server.pause()?;
        }
    }
    for (_, server) in servers {
        server.stop()?;
    }
    tell(&found, report);
    Ok(())
}

fn tell(found: &BTreeMap<Kind, Found>, report: &mut Report) {
    let header = [
        "server",
        "p99 quiet, ms",
        "p99 with storms, ms",
        "ratio",
        "goal",
        "verdict",
        "2,000 handshakes, s",
    ];
    let p99 = |figures: &[Figures]| median(figures.iter().map(|f| f.p99_ms));
    let (mut rows, mut raw) = (Vec::new(), Vec::new());
    for (kind, seen) in found {
        let (quiet, stormy) = (p99(&seen.quiet), p99(&seen.stormy));
        let goal = (*kind == Kind::Helenus).then_some(GOAL);
        let verdict = goal.map(|goal| {
            let what = "p99 of a client during handshakes of 2,000 others, over quiet";
            report.judge(Verdict::at_most(what, stormy / quiet, goal, "times"))
        });
        rows.push(vec![
            kind.name().to_owned(),
            rounded(quiet),
            rounded(stormy),
            rounded(stormy / quiet),
            goal.map(rounded).unwrap_or_default(),
            verdict.unwrap_or_default(),
            rounded(median(seen.storms.iter().map(|s| s.seconds))),
        ]);
        raw.push(json!({
            "server": kind.name(),
            "quiet": seen.quiet,
            "stormy": seen.stormy,
            "storms": seen.storms,
        }));
    }
    report.table("A client's latency while 2,000 connections are opened", &header, &rows);
    report.keep("handshakes", json!(raw));
}
