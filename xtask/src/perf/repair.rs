//! `perf repair`: what a repair of replicas that hold the same costs: bytes read, bytes sent, time.
//!
//! Two nodes, two replicas of every row. Bytes sent are those of all connections between the nodes
//! while it runs, gossip too. Bytes read are those that the repair counts; what the kernel had to read
//! stands beside it where page caches can be dropped before (by root).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::pair::{Pair, Rows, bytes_of, is_data};
use super::process;
use super::report::{Report, Verdict};

const MB: f64 = 1e6;
/// Bytes read of a node's data, as a multiple of it: once, and the pages' own frames.
const READ_SHARE: f64 = 1.1;
/// MB sent by both nodes together, for each GB.
const SENT_MB: f64 = 1.0;
const VALUE_BYTES: u64 = 200;

/// Measures; writes `repair.md` and `repair.json` below `target/perf`. True also when a goal was
/// missed.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let (mut mb, mut memory) = (1000_u64, "1G");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match *word {
            "--mb" => mb = value.parse()?,
            "--memory" => memory = value,
            _ => bail!("unknown option {word}; see cargo xtask help"),
        }
    }
    process::build_helenus(root)?;
    let home = root.join("target/perf");
    crate::disk::create_dir_all(&home)?;
    let mut pair = Pair::found(root, &home, &["--memory", memory])?;
    pair.join()?;
    let rows = Rows::of_mb(mb, VALUE_BYTES);
    println!("writing {} rows to both", rows.count);
    pair.write(rows, "all")?;
    let mut report = Report::named("repair");
    report.keep("machine", super::machine());
    let mut table = Vec::new();
    let mut raw = Vec::new();
    for number in [1, 2] {
        pair.settle(number)?;
    }
    let data = bytes_of(pair.files(1)?.iter().filter(|f| is_data(f)))? as f64 / MB;
    let is_cold = drop_page_caches();
    let before = [Seen::of(&pair, 1)?, Seen::of(&pair, 2)?];
    let begun = Instant::now();
    let text = pair.nodetool(1, &["repair", "-full", "perf2"])?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut sent = 0.0;
    for (number, before) in (1..).zip(before) {
        let after = Seen::of(&pair, number)?;
        let seen = after.less(&before);
        if seen.mutations > 0.0 {
            bail!("the replicas were not in sync: {text}");
        }
        sent += seen.sent;
        let read = if is_cold { format!("{:.0}", seen.from_disk / MB) } else { "-".to_owned() };
        table.push(vec![
            format!("node {number}"),
            format!("{data:.0}"),
            format!("{:.0}", seen.read / MB),
            read,
            format!("{:.3}", seen.sent / MB),
            format!("{:.2}", seen.cpu),
            format!("{:.0}", data / seen.cpu),
        ]);
        raw.push(json!({
            "node": number, "data_mb": data, "repair_read_bytes": seen.read,
            "disk_read_bytes": seen.from_disk, "page_caches_dropped": is_cold,
            "sent_bytes": seen.sent, "cpu_s": seen.cpu, "seconds": seconds,
        }));
        let what = format!("read of node {number}'s data");
        let shares = seen.read.max(if is_cold { seen.from_disk } else { 0.0 }) / MB / data;
        report.judge(Verdict::at_most(what, shares, READ_SHARE, "times"));
    }
    let header =
        ["node", "MB of data", "MB read", "MB from the disk", "MB sent", "CPU-s", "MB per CPU-s"];
    let title = format!("Full repair of two nodes in sync, {seconds:.1} s");
    report.table(&title, &header, &table);
    let goal = SENT_MB * (data / 1000.0).max(0.1);
    report.judge(Verdict::at_most("sent by both nodes", sent / MB, goal, "MB"));
    report.keep("repair", json!(raw));
    report.write(&home)?;
    pair.stop()?;
    println!("{}", report.verdict_lines());
    Ok(true)
}

/// Counts of one node.
#[derive(Clone, Copy, Debug)]
struct Seen {
    cpu: f64,
    read: f64,
    from_disk: f64,
    sent: f64,
    mutations: f64,
}

impl Seen {
    fn of(pair: &Pair, number: usize) -> Result<Seen> {
        let metrics = pair.metrics(number)?;
        let metric = |name: &str| {
            let values = metrics.iter().filter(|(n, _)| n.ends_with(name)).map(|(_, v)| v);
            values.sum::<f64>()
        };
        let io = crate::disk::read_to_string(format!("/proc/{}/io", pair.pid(number)?))?;
        let line = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
        let from_disk = line.and_then(|n| n.trim().parse().ok()).context("no read_bytes")?;
        Ok(Seen {
            cpu: pair.cpu_seconds(number)?,
            read: metric("repair_read_bytes_total"),
            from_disk,
            sent: metric("internode_sent_bytes_total"),
            mutations: metric("repair_mutations_total"),
        })
    }

    fn less(&self, before: &Seen) -> Seen {
        Seen {
            cpu: self.cpu - before.cpu,
            read: self.read - before.read,
            from_disk: self.from_disk - before.from_disk,
            sent: self.sent - before.sent,
            mutations: self.mutations - before.mutations,
        }
    }
}

/// Drops the kernel's page cache; returns true on success.
fn drop_page_caches() -> bool {
    let synced = Command::new("sync").stderr(Stdio::null()).status();
    synced.is_ok_and(|s| s.success()) && crate::disk::write("/proc/sys/vm/drop_caches", "1").is_ok()
}
