//! Section "start": time to the first answer, idle memory, schema changes, restart with data,
//! replay of the commit log after SIGKILL.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::cassandra;
use super::cql::Client;
use super::load::{Latte, Length};
use super::process::{Kind, Server, Target, helenus_data};
use super::report::{Report, Verdict, highest, lowest, median, rounded};
use super::settings::Settings;
use super::throughput::WORKLOADS;

/// Tables that are made and truncated.
const TABLES: usize = 20;
/// Starts with data.
const RESTARTS: u32 = 3;
/// Quiet time before idle memory is read.
const IDLE: Duration = Duration::from_secs(5);
/// `--memory` of the part with data: memtables hold the whole commit log that is to be replayed.
const RESTART_MEMORY: &str = "4G";
/// Bytes of a standard1 row in an LZ4 SSTable, about: its values are random.
const ROW_BYTES_SSTABLE: u64 = 185;
/// Bytes of a standard1 row in the commit log, about.
const ROW_BYTES_LOG: u64 = 250;
const MB: f64 = 1e6;

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Lines of the section's table.
struct Lines<'r> {
    report: &'r mut Report,
    rows: Vec<Vec<String>>,
    raw: Vec<Value>,
}

impl Lines<'_> {
    fn add(&mut self, kind: Kind, what: &str, all: &[f64], shown: f64, unit: &str, goal: &str) {
        self.raw.push(json!({ "server": kind.name(), "what": what, "unit": unit, "all": all }));
        println!("{:11} {what}: {} {unit}", kind.name(), rounded(shown));
        self.rows.push(vec![
            what.to_owned(),
            kind.name().to_owned(),
            format!("{} {unit}", rounded(shown)),
            format!("{} to {}", rounded(lowest(all.to_vec())), rounded(highest(all.to_vec()))),
            goal.to_owned(),
            String::new(),
        ]);
    }

    fn judged(&mut self, what: &str, all: &[f64], verdict: Verdict, shown: f64, unit: &str) {
        let goal = verdict.goal_text();
        self.add(Kind::Helenus, what, all, shown, unit, &goal);
        let word = self.report.judge(verdict);
        if let Some(cell) = self.rows.last_mut().and_then(|row| row.last_mut()) {
            *cell = word;
        }
    }
}

/// Runs the section; no other server runs meanwhile.
pub fn run(
    root: &Path,
    home: &Path,
    latte: &Latte,
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    let mut lines = Lines { report, rows: Vec::new(), raw: Vec::new() };
    empty(root, home, settings, &mut lines)?;
    if settings.restart_mb > 0 {
        with_data(root, home, latte, settings, &mut lines)?;
    }
    let Lines { report, rows, raw } = lines;
    let header = ["what", "server", "value", "lowest to highest", "goal", "verdict"];
    report.table("Start, memory, schema, restart", &header, &rows);
    report.keep("start", json!(raw));
    Ok(())
}

fn empty(root: &Path, home: &Path, settings: &Settings, lines: &mut Lines<'_>) -> Result<()> {
    let mut starts = Vec::new();
    for _ in 0..settings.start_repeat {
        let server = Server::helenus(root, home, &settings.memory)?;
        starts.push(ms(server.started_after()));
        server.stop()?;
    }
    let best = lowest(starts.clone());
    let verdict = Verdict::at_most("start on an empty directory, best", best, 200.0, "ms");
    lines.judged("start on an empty directory, best", &starts, verdict, best, "ms");
    let server = Server::helenus(root, home, &settings.memory)?;
    std::thread::sleep(IDLE);
    let rss = server.rss_mib()?;
    let verdict = Verdict::at_most("resident memory, idle", rss, 60.0, "MiB");
    lines.judged("resident memory, idle", &[rss], verdict, rss, "MiB");
    for (what, times) in statements(&server)? {
        let middle = median(times.clone());
        let verdict = Verdict::at_most(format!("{what}, median"), middle, 20.0, "ms");
        lines.judged(&format!("{what}, median"), &times, verdict, middle, "ms");
    }
    server.stop()?;
    if settings.cassandra {
        cassandra::install(home)?;
        let server = cassandra::start(home, &settings.memory)?;
        let start = ms(server.started_after());
        lines.add(Kind::Cassandra, "start on an empty directory", &[start], start, "ms", "");
        std::thread::sleep(IDLE);
        let rss = server.rss_mib()?;
        lines.add(Kind::Cassandra, "resident memory, idle", &[rss], rss, "MiB", "");
        for (what, times) in statements(&server)? {
            let middle = median(times.clone());
            lines.add(Kind::Cassandra, &format!("{what}, median"), &times, middle, "ms", "");
        }
        server.stop()?;
    }
    Ok(())
}

/// Milliseconds of CREATE TABLE and of TRUNCATE of a table with rows in it.
fn statements(server: &Server) -> Result<[(&'static str, Vec<f64>); 2]> {
    let mut client = Client::connect(server.address(), Duration::from_secs(60))?;
    client.query(
        "CREATE KEYSPACE ddl WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1}",
    )?;
    let (mut create, mut truncate) = (Vec::new(), Vec::new());
    for i in 0..TABLES {
        let begun = Instant::now();
        client.query(&format!("CREATE TABLE ddl.t{i} (key bigint PRIMARY KEY, c0 blob)"))?;
        create.push(ms(begun.elapsed()));
    }
    for i in 0..TABLES {
        for key in 0..100 {
            client.query(&format!("INSERT INTO ddl.t{i} (key, c0) VALUES ({key}, 0x00)"))?;
        }
        let begun = Instant::now();
        client.query(&format!("TRUNCATE ddl.t{i}"))?;
        truncate.push(ms(begun.elapsed()));
    }
    Ok([("CREATE TABLE", create), ("TRUNCATE", truncate)])
}

fn with_data(
    root: &Path,
    home: &Path,
    latte: &Latte,
    settings: &Settings,
    lines: &mut Lines<'_>,
) -> Result<()> {
    let insert = WORKLOADS.iter().find(|w| w.name == "insert").context("no such workload")?;
    let server = Server::helenus(root, home, RESTART_MEMORY)?;
    let rows = settings.restart_mb.saturating_mul(1 << 20).div_ceil(ROW_BYTES_SSTABLE);
    println!("writing {rows} rows for the restart");
    latte.schema(insert, &server)?;
    latte.run(insert, &server, rows, Length::Count(rows), None)?;
    let stopped = ms(server.stop()?);
    lines.add(Kind::Helenus, "stop with drain", &[stopped], stopped, "ms", "");
    let data = directory_bytes(&helenus_data(home).join("data"))? / MB;
    lines.add(Kind::Helenus, "data on disk", &[data], data, "MB", "");
    let mut starts = Vec::new();
    for _ in 0..RESTARTS {
        let server = Server::helenus_again(root, home, RESTART_MEMORY)?;
        starts.push(ms(server.started_after()));
        server.stop()?;
    }
    let middle = median(starts.clone());
    let what = "restart with data, nothing to replay, median";
    let verdict = Verdict::at_most(what, middle, 1000.0, "ms");
    lines.judged(what, &starts, verdict, middle, "ms");
    if settings.replay_mb == 0 {
        return Ok(());
    }

    let server = Server::helenus_again(root, home, RESTART_MEMORY)?;
    let more = settings.replay_mb.saturating_mul(1 << 20).div_ceil(ROW_BYTES_LOG);
    latte.run(insert, &server, rows, Length::Count(more), None)?;
    server.kill()?;
    let server = Server::helenus_again(root, home, RESTART_MEMORY)?;
    let (bytes, took) = replayed(&server.log()?)?;
    let whole = ms(server.started_after());
    server.stop()?;
    let speed = bytes / MB / (took / 1000.0);
    lines.add(Kind::Helenus, "commit log replayed", &[bytes / MB], bytes / MB, "MB", "");
    let verdict = Verdict::at_least("replay", speed, 100.0, "MB/s");
    lines.judged("replay", &[speed], verdict, speed, "MB/s");
    let rest = whole - took;
    let what = "restart after SIGKILL without the replay";
    let verdict = Verdict::at_most(what, rest, 1000.0, "ms");
    lines.judged(what, &[rest], verdict, rest, "ms");
    Ok(())
}

/// Bytes of the segments and milliseconds of the slowest shard: every shard reads all segments.
fn replayed(log: &str) -> Result<(f64, f64)> {
    let field = |line: &str, name: &str| {
        let at = line.find(&format!(" {name}="))?;
        let value = line.get(at + name.len() + 2..)?;
        value.split_whitespace().next()?.parse::<f64>().ok()
    };
    let (mut bytes, mut took) = (0.0_f64, 0.0_f64);
    for line in log.lines().filter(|line| line.contains("replayed the commit log")) {
        let of_shard = (field(line, "bytes"), field(line, "took_ms"));
        let (Some(b), Some(t)) = of_shard else { bail!("cannot read the log line: {line}") };
        (bytes, took) = (bytes.max(b), took.max(t));
    }
    if took <= 0.0 {
        bail!("the log names no replay");
    }
    Ok((bytes, took))
}

fn directory_bytes(directory: &Path) -> Result<f64> {
    let mut sum = 0.0;
    for entry in crate::disk::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            sum += directory_bytes(&entry.path())?;
        } else {
            sum += metadata.len() as f64;
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_is_as_slow_as_its_slowest_shard() {
        let log = "INFO x: ready\n\
            INFO node::shard: replayed the commit log shard=0 segments=3 bytes=90 applied=4 took_ms=20\n\
            INFO node::shard: replayed the commit log shard=1 segments=3 bytes=90 applied=5 took_ms=30\n";
        assert_eq!(replayed(log).unwrap(), (90.0, 30.0));
        assert!(replayed("INFO x: ready").is_err());
        assert!(replayed("replayed the commit log shard=0").is_err());
    }
}
