//! `perf compare`: the same workloads against Helenus and a real Cassandra, in turn on this machine,
//! and a table of ratios.
//!
//! Figures are only comparable within one run. Server CPU is user + system time of the server's
//! process around the counted part; the load generator's own CPU is not in it.

mod cassandra;
pub mod instructions;
mod load;
pub mod process;

use std::path::Path;

use anyhow::{Context, Result, bail};

use load::{Figures, Workload};
use process::Server;

/// What is compared, in the order of the table.
const WORKLOADS: &[Workload] = &[
    Workload { name: "insert", script: "standard1", functions: "insert", loads: true },
    Workload { name: "read", script: "standard1", functions: "read", loads: false },
    Workload { name: "mixed", script: "standard1", functions: "update:0.5,read:0.5", loads: false },
    Workload { name: "series-insert", script: "series", functions: "insert", loads: true },
    Workload { name: "slice-100", script: "series", functions: "slice", loads: false },
];

/// Settings of one comparison.
struct Settings {
    rows: u64,
    seconds: u64,
    warm: u64,
    repeat: u32,
    memory: String,
    skip_cassandra: bool,
}

impl Settings {
    fn parse(words: &[&str]) -> Result<Settings> {
        let mut s = Settings {
            rows: 500_000,
            seconds: 15,
            warm: 10,
            repeat: 3,
            memory: "1G".to_owned(),
            skip_cassandra: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--without-cassandra" {
                s.skip_cassandra = true;
                continue;
            }
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            let number = || value.parse::<u64>().with_context(|| format!("{word} {value}"));
            match *word {
                "--rows" => s.rows = number()?,
                "--seconds" => s.seconds = number()?,
                "--warm" => s.warm = number()?,
                "--repeat" => s.repeat = u32::try_from(number()?)?,
                "--memory" => s.memory = (*value).to_owned(),
                _ => bail!("unknown option {word}; see cargo xtask help"),
            }
        }
        Ok(s)
    }
}

/// Runs the comparison and prints the table; also writes it to `target/perf/report.md`.
pub fn compare(root: &Path, words: &[&str]) -> Result<bool> {
    let settings = Settings::parse(words)?;
    let home = root.join("target/perf");
    std::fs::create_dir_all(&home)?;
    let latte = load::install(root, &home)?;
    process::build_helenus(root)?;
    let mut results: Vec<(&str, &str, Vec<Figures>)> = Vec::new();
    let mut servers = vec!["helenus"];
    if !settings.skip_cassandra {
        cassandra::install(&home)?;
        servers.push("cassandra");
    }
    for kind in servers {
        let server = match kind {
            "helenus" => Server::helenus(root, &home, &settings.memory)?,
            _ => cassandra::start(&home, &settings.memory)?,
        };
        println!("{kind} answers after {:.2} s", server.started_after().as_secs_f64());
        for workload in WORKLOADS {
            let figures = workload
                .run(root, &home, &latte, &server, &settings)
                .with_context(|| format!("{kind}: {}", workload.name))?;
            for f in &figures {
                println!("{kind:10} {:14} {f}", workload.name);
            }
            results.push((kind, workload.name, figures));
        }
        server.stop()?;
    }
    let table = table(&results);
    println!("\n{table}");
    std::fs::write(home.join("report.md"), &table)?;
    Ok(true)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn lowest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

/// The table: our median against Cassandra's lowest CPU, as the issue asks.
fn table(results: &[(&str, &str, Vec<Figures>)]) -> String {
    let find = |kind: &str, name: &str| {
        results.iter().find(|(k, n, _)| *k == kind && *n == name).map(|(_, _, f)| f)
    };
    let of = |figures: &[Figures], value: fn(&Figures) -> f64| -> Vec<f64> {
        figures.iter().map(value).collect()
    };
    let mut out = String::from(
        "| workload | server | op/s | p50 ms | p99 ms | p99.9 ms | CPU-s per 1,000 | RSS MiB | CPU ratio |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for kind in ["helenus", "cassandra"] {
        for workload in WORKLOADS {
            let Some(figures) = find(kind, workload.name) else { continue };
            let cpu = |f: &Figures| f.server_cpu_per_1000;
            let ratio = match (kind, find("cassandra", workload.name)) {
                ("helenus", Some(theirs)) => {
                    let theirs = lowest(of(theirs, cpu).into_iter());
                    format!("1/{:.1}", theirs / median(of(figures, cpu)))
                }
                _ => String::new(),
            };
            out.push_str(&format!(
                "| {} | {kind} | {:.0} | {:.2} | {:.2} | {:.2} | {:.4} | {:.0} | {ratio} |\n",
                workload.name,
                median(of(figures, |f| f.throughput)),
                median(of(figures, |f| f.p50_ms)),
                median(of(figures, |f| f.p99_ms)),
                median(of(figures, |f| f.p999_ms)),
                median(of(figures, cpu)),
                median(of(figures, |f| f.rss_mib)),
            ));
        }
    }
    out
}
