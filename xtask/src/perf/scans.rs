//! Section "scans": whole tables read by one statement: filtered, counted, grouped. Server CPU per
//! million rows of the table.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::cql::Client;
use super::process::{Kind, Server, Target};
use super::report::{Report, Verdict, lowest, median, rounded};
use super::settings::Settings;

/// Longest wait for one page.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// Rows of a page, as drivers ask by default.
const PAGE_ROWS: u32 = 5_000;
/// Partitions of the wide table, and values of the column that is filtered by.
const GROUPS: u64 = 100;
/// Rows per INSERT batch.
const BATCH_ROWS: u64 = 100;
/// Runs of Cassandra for one of ours: its compiler needs them, its lowest counts.
const WARM_RUNS: u32 = 4;

/// One statement.
struct Scan {
    name: &'static str,
    statement: &'static str,
    /// Cassandra's CPU over ours is to be at least this.
    goal: f64,
    /// Rows that it answers, of so many in the table.
    rows: fn(u64) -> u64,
}

const SCANS: &[Scan] = &[
    Scan {
        name: "filter, small partitions",
        statement: "SELECT id, g, name, x FROM scans.narrow WHERE g = 5 ALLOW FILTERING",
        goal: 5.0,
        rows: |rows| rows / GROUPS,
    },
    Scan {
        name: "filter, large partitions",
        statement: "SELECT id FROM scans.wide WHERE x >= 99.0 ALLOW FILTERING",
        goal: 5.0,
        rows: |rows| rows / GROUPS,
    },
    Scan {
        name: "count, small partitions",
        statement: "SELECT count(*) FROM scans.narrow",
        goal: 8.0,
        rows: |_| 1,
    },
    Scan {
        name: "count, large partitions",
        statement: "SELECT count(*) FROM scans.wide",
        goal: 8.0,
        rows: |_| 1,
    },
    Scan {
        name: "group by",
        statement: "SELECT g, count(*), sum(x) FROM scans.wide GROUP BY g",
        goal: 8.0,
        rows: |_| GROUPS,
    },
];

/// Runs every statement on every server in turn; the others are paused meanwhile.
pub fn run(servers: &mut [(Kind, Server)], settings: &Settings, report: &mut Report) -> Result<()> {
    let rows = settings.rows.next_multiple_of(BATCH_ROWS * GROUPS);
    let mut results: BTreeMap<(Kind, &str), Vec<f64>> = BTreeMap::new();
    for (kind, server) in &mut *servers {
        server.resume()?;
        fill(server.address(), rows).with_context(|| format!("{}: rows", kind.name()))?;
        server.pause()?;
    }
    for round in 0..settings.repeat {
        for scan in SCANS {
            for (kind, server) in &mut *servers {
                server.resume()?;
                let runs = if *kind == Kind::Cassandra { WARM_RUNS } else { 1 };
                for _ in 0..runs {
                    let (used, took) = once(server, scan, rows)
                        .with_context(|| format!("{}: {}", kind.name(), scan.name))?;
                    let used = used * 1e6 / rows as f64;
                    println!(
                        "{}/{} {:11} {:25} {used:.3} CPU-s per 1,000,000 rows, {took:.2} s",
                        round + 1,
                        settings.repeat,
                        kind.name(),
                        scan.name
                    );
                    results.entry((*kind, scan.name)).or_default().push(used);
                }
                server.pause()?;
            }
        }
    }
    tell(&results, report);
    Ok(())
}

/// CPU and time of one run through all pages.
fn once(server: &Server, scan: &Scan, rows: u64) -> Result<(f64, f64)> {
    let mut client = Client::connect(server.address(), ANSWER_MAX)?;
    let id = client.prepare(scan.statement)?;
    let (before, begun) = (server.cpu_seconds()?, Instant::now());
    let found = client.rows(&id, PAGE_ROWS)?;
    let expected = (scan.rows)(rows);
    if found != expected {
        bail!("{}: {found} rows instead of {expected}", scan.statement);
    }
    Ok((server.cpu_seconds()? - before, begun.elapsed().as_secs_f64()))
}

/// Makes both tables and writes the rows, in batches of one partition or of many.
fn fill(address: &str, rows: u64) -> Result<()> {
    let mut client = Client::connect(address, ANSWER_MAX)?;
    client.query(
        "CREATE KEYSPACE scans WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1}",
    )?;
    client.query("CREATE TABLE scans.narrow (id int PRIMARY KEY, g int, name text, x double)")?;
    client.query(
        "CREATE TABLE scans.wide (g int, id int, name text, x double, PRIMARY KEY (g, id))",
    )?;
    for batch in 0..rows / BATCH_ROWS {
        let ids = batch * BATCH_ROWS..(batch + 1) * BATCH_ROWS;
        // Of one partition each: Cassandra refuses large batches of many.
        let group = batch % GROUPS;
        let values = |g: u64, id: u64| format!("({g}, {id}, 'name {id}', {}.5)", id % GROUPS);
        let wide = ids.clone().map(|id| {
            format!("INSERT INTO scans.wide (g, id, name, x) VALUES {}", values(group, id))
        });
        let narrow = ids.map(|id| {
            format!("INSERT INTO scans.narrow (g, id, name, x) VALUES {}", values(id % GROUPS, id))
        });
        for statements in [wide.collect::<Vec<_>>(), narrow.collect()] {
            let text = statements.join(" ");
            client.query(&format!("BEGIN UNLOGGED BATCH {text} APPLY BATCH"))?;
        }
    }
    Ok(())
}

fn tell(results: &BTreeMap<(Kind, &str), Vec<f64>>, report: &mut Report) {
    let mut table = Vec::new();
    for scan in SCANS {
        let of = |kind| results.get(&(kind, scan.name)).into_iter().flatten().copied();
        let (ours, theirs) = (median(of(Kind::Helenus)), lowest(of(Kind::Cassandra)));
        let ratio = theirs / ours;
        let word = if theirs.is_finite() {
            let what = format!("{}: Cassandra's CPU over ours", scan.name);
            report.judge(Verdict::at_least(what, ratio, scan.goal, "times"))
        } else {
            String::new()
        };
        let row = [scan.name.to_owned(), rounded(ours), rounded(theirs), rounded(ratio), word];
        table.push(row.to_vec());
        report.keep(
            scan.name,
            json!({
                "helenus": of(Kind::Helenus).collect::<Vec<f64>>(),
                "cassandra": of(Kind::Cassandra).collect::<Vec<f64>>(),
            }),
        );
    }
    report.table(
        "Scans: CPU-s per 1,000,000 rows, our median and Cassandra's lowest",
        &["statement", "helenus", "cassandra", "ratio", "goal"],
        &table,
    );
}
