//! `perf compare`: the same workloads against a null server, Helenus and a real Cassandra on this
//! machine, and a table of ratios and goals. `perf cluster`: three nodes of both. `perf replicated`,
//! `perf streaming`, `perf repair`, `perf large`, `perf wide`: nodes of Helenus alone. `perf files`: its files.
//! `perf copy`: COPY of two shells. `perf indexes`: secondary indexes of both databases. `perf engine`, `perf instructions`: inside the process.
//!
//! Figures are only comparable within one run. Server CPU is user + system time of the server's
//! process around the counted part; the load generator's own CPU is not in it.
//!
//! Reading order: `settings`, `process`, `load`, `throughput`, `equal`, `start`, `scans`, `compaction`, `security`, `report`;
//! then `nodes`, `cluster`, `contended`, `schema`, `cluster_scans`, `replicated`; `pair`, `streaming`, `repair`; `watched`, `large`, `wide`; `indexes`.

mod cassandra;
pub mod cluster;
mod cluster_scans;
mod compaction;
mod contended;
pub mod copy;
mod cql;
pub mod engine;
mod equal;
pub mod files;
pub mod formats;
pub mod indexes;
pub mod instructions;
pub mod large;
mod load;
mod nodes;
mod pair;
pub mod process;
mod profile;
pub mod repair;
pub mod replicated;
mod report;
mod scans;
mod schema;
mod security;
mod settings;
mod start;
pub mod streaming;
mod throughput;
mod watched;
pub mod wide;

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use load::Latte;
use process::{Kind, Server};
use report::Report;
use settings::{Section, Settings};

/// Runs the comparison; writes `report.md` and `compare.json` below `target/perf`. True also when a
/// goal was missed: figures depend on the machine.
pub fn compare(root: &Path, words: &[&str]) -> Result<bool> {
    let settings = Settings::parse(words)?;
    let home = root.join("target/perf");
    crate::disk::create_dir_all(&home)?;
    let latte = match settings.needs_latte() {
        true => Some(Latte::install(root, &home)?),
        false => None,
    };
    process::build_helenus(root)?;
    let mut report = Report::new();
    report.keep("settings", json!(settings));
    report.keep("machine", machine());

    if let Some(latte) = &latte {
        loads(root, &home, latte, &settings, &mut report)?;
    }
    security_costs(root, &home, &settings, &mut report)?;
    println!("{}", report.verdict_lines());
    println!("{} and {}", home.join("report.md").display(), home.join("compare.json").display());
    Ok(true)
}

/// The sections whose load is that of `latte`.
fn loads(
    root: &Path,
    home: &Path,
    latte: &Latte,
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    let of_load: Vec<Kind> = [
        (Kind::Null, settings.has(Section::Null)),
        (Kind::Helenus, settings.has(Section::Load)),
        (Kind::Cassandra, settings.has(Section::Load) && settings.cassandra),
    ]
    .into_iter()
    .filter_map(|(kind, wanted)| wanted.then_some(kind))
    .collect();
    if !of_load.is_empty() {
        let mut servers = started(root, home, settings, &of_load)?;
        throughput::run(latte, &mut servers, settings, report)?;
        end(servers)?;
        report.write(home)?;
    }
    if settings.has(Section::Equal) {
        let mut kinds = vec![Kind::Null, Kind::Helenus];
        kinds.extend(settings.cassandra.then_some(Kind::Cassandra));
        let mut servers = started(root, home, settings, &kinds)?;
        equal::run(latte, &mut servers, settings, report)?;
        end(servers)?;
        report.write(home)?;
    }
    if settings.has(Section::Start) {
        start::run(root, home, latte, settings, report)?;
        report.write(home)?;
    }
    if settings.has(Section::Scans) {
        let mut kinds = vec![Kind::Helenus];
        kinds.extend(settings.cassandra.then_some(Kind::Cassandra));
        let mut servers = started(root, home, settings, &kinds)?;
        scans::run(&mut servers, settings, report)?;
        end(servers)?;
        report.write(home)?;
    }
    if settings.has(Section::Compaction) {
        compaction::run(root, home, latte, settings, report)?;
        report.write(home)?;
    }
    Ok(())
}

/// The sections about the cost of security.
fn security_costs(
    root: &Path,
    home: &Path,
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    let bench = security::Bench { root, home, settings };
    type Run = fn(&security::Bench<'_>, &mut Report) -> Result<()>;
    let sections: [(Section, Run); 4] = [
        (Section::Tls, security::tls::run),
        (Section::Handshakes, security::handshakes::run),
        (Section::Audit, security::audit::run),
        (Section::AtRest, security::at_rest::run),
    ];
    for (section, run) in sections {
        if settings.has(section) {
            run(&bench, report)?;
            report.write(home)?;
        }
    }
    Ok(())
}

/// Servers that wait, paused, for their turn.
fn started(
    root: &Path,
    home: &Path,
    settings: &Settings,
    kinds: &[Kind],
) -> Result<Vec<(Kind, Server)>> {
    let mut servers = Vec::new();
    for kind in kinds {
        let mut server = match kind {
            Kind::Null => Server::null(root, home)?,
            Kind::Helenus => Server::helenus(root, home, &settings.memory)?,
            Kind::Cassandra => {
                cassandra::install(home)?;
                cassandra::start(home, &settings.memory)?
            }
        };
        println!("{} answers after {:.2} s", kind.name(), server.started_after().as_secs_f64());
        server.pause()?;
        servers.push((*kind, server));
    }
    Ok(servers)
}

fn end(servers: Vec<(Kind, Server)>) -> Result<()> {
    for (_, server) in servers {
        server.stop()?;
    }
    Ok(())
}

fn machine() -> serde_json::Value {
    json!({ "cpus": cpus(), "model": cpu_model() })
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn cpu_model() -> String {
    let text = crate::disk::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|l| l.split_once(':')).map_or(String::new(), |(_, model)| model.trim().to_owned())
}
