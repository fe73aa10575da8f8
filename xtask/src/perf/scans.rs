//! Whole tables read by one statement: filtered, counted, grouped. Server CPU per million rows of the table. Here are
//! the loads, the queries and section "scans" of `perf compare`; the section of `perf cluster` is in `cluster_scans`.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::cql::{Client, Level};
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
pub const WARM_RUNS: u32 = 4;
/// A run repeats its statement until it has used this much CPU, whose clock has steps of 10 ms in
/// each process.
const RUN_CPU_S: f64 = 0.2;
/// But not more often.
const RUN_ASKS_MAX: u32 = 50;

/// One statement.
pub struct Scan {
    /// In tables.
    pub name: &'static str,
    /// Where KEYSPACE stands for the keyspace.
    statement: &'static str,
    /// Cassandra's CPU over ours is to be at least this.
    pub goal: f64,
    /// Number of result rows, for a number of rows in the table.
    rows: fn(u64) -> u64,
    /// Correct first column of a row, for a number of rows in the table.
    first: fn(u64, &[&[u8]]) -> Option<i64>,
    /// Sum of the first columns of all rows.
    sum: fn(u64) -> i64,
}

/// Sum of every hundredth number below `rows`, from `first` on.
fn sum_of_hundredths(first: i64, rows: u64) -> i64 {
    let n = (rows / GROUPS).cast_signed();
    n * first + GROUPS.cast_signed() * n * (n - 1) / 2
}

fn int(cell: &[u8]) -> Option<i64> {
    Some(i32::from_be_bytes(cell.try_into().ok()?).into())
}

fn bigint(cell: &[u8]) -> Option<i64> {
    Some(i64::from_be_bytes(cell.try_into().ok()?))
}

fn double(cell: &[u8]) -> Option<f64> {
    Some(f64::from_be_bytes(cell.try_into().ok()?))
}

fn is(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() < 1e-6 * expected)
}

fn counted(rows: u64, cells: &[&[u8]]) -> Option<i64> {
    let [count] = cells else { return None };
    bigint(count).filter(|count| *count == rows.cast_signed())
}

/// All statements.
pub const SCANS: &[Scan] = &[
    Scan {
        name: "filter, small partitions",
        statement: "SELECT id, g, name, x FROM KEYSPACE.narrow WHERE g = 5 ALLOW FILTERING",
        goal: 5.0,
        rows: |rows| rows / GROUPS,
        first: |_, cells| {
            let [id, g, name, x] = cells else { return None };
            let number = int(id)?;
            let is_right = int(g) == Some(5)
                && *name == format!("name {number}").as_bytes()
                && is(double(x), 5.5);
            is_right.then_some(number)
        },
        sum: |rows| sum_of_hundredths(5, rows),
    },
    Scan {
        name: "filter, large partitions",
        statement: "SELECT id FROM KEYSPACE.wide WHERE x >= 99.0 ALLOW FILTERING",
        goal: 5.0,
        rows: |rows| rows / GROUPS,
        first: |_, cells| {
            let [id] = cells else { return None };
            int(id).filter(|id| id % GROUPS.cast_signed() == 99)
        },
        sum: |rows| sum_of_hundredths(99, rows),
    },
    Scan {
        name: "count, small partitions",
        statement: "SELECT count(*) FROM KEYSPACE.narrow",
        goal: 8.0,
        rows: |_| 1,
        first: counted,
        sum: u64::cast_signed,
    },
    Scan {
        name: "count, large partitions",
        statement: "SELECT count(*) FROM KEYSPACE.wide",
        goal: 8.0,
        rows: |_| 1,
        first: counted,
        sum: u64::cast_signed,
    },
    Scan {
        name: "group by",
        statement: "SELECT g, count(*), sum(x) FROM KEYSPACE.wide GROUP BY g",
        goal: 8.0,
        rows: |_| GROUPS,
        first: |rows, cells| {
            let [g, count, sum] = cells else { return None };
            let of_group = rows / GROUPS;
            let is_right = bigint(count) == Some(of_group.cast_signed())
                // Values from 0.5 to 99.5, each as often.
                && is(double(sum), of_group as f64 * 50.0);
            int(g).filter(|_| is_right)
        },
        sum: |_| (0..GROUPS.cast_signed()).sum(),
    },
];

/// Two tables of a keyspace: "narrow" has partitions of one row, "wide" has 100.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// It is made with them.
    pub keyspace: &'static str,
    /// Replicas of each row.
    pub factor: u32,
    /// Rows of each table.
    pub rows: u64,
    /// At which they are written.
    pub level: Level,
}

/// The next number of rows that fills all groups alike.
pub fn rows_of_tables(rows: u64) -> u64 {
    rows.next_multiple_of(BATCH_ROWS * GROUPS)
}

/// Runs every statement on every server in turn; the others are paused meanwhile.
pub fn run(servers: &mut [(Kind, Server)], settings: &Settings, report: &mut Report) -> Result<()> {
    let rows = rows_of_tables(settings.rows);
    let tables = Tables { keyspace: "scans", factor: 1, rows, level: Level::One };
    let mut results: BTreeMap<(Kind, &str), Vec<f64>> = BTreeMap::new();
    for (kind, server) in &mut *servers {
        server.resume()?;
        fill(server, &tables).with_context(|| format!("{}: rows", kind.name()))?;
        server.pause()?;
    }
    for round in 0..settings.repeat {
        for scan in SCANS {
            for (kind, server) in &mut *servers {
                server.resume()?;
                let runs = if *kind == Kind::Cassandra { WARM_RUNS } else { 1 };
                for _ in 0..runs {
                    let run = once(server, &tables, scan, Level::One)
                        .with_context(|| format!("{}: {}", kind.name(), scan.name))?;
                    println!(
                        "{}/{} {:11} {:25} {run}",
                        round + 1,
                        settings.repeat,
                        kind.name(),
                        scan.name
                    );
                    results.entry((*kind, scan.name)).or_default().push(run.cpu_per_million);
                }
                server.pause()?;
            }
        }
    }
    tell(&results, report);
    Ok(())
}

/// Cost of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Server CPU for a million rows of the table, seconds.
    pub cpu_per_million: f64,
    /// One answer with all its pages, seconds.
    pub seconds: f64,
    /// How often was asked.
    pub asks: u32,
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Run { cpu_per_million, seconds, asks } = self;
        write!(f, "{cpu_per_million:.3} CPU-s per 1,000,000 rows, {seconds:.2} s, {asks} times")
    }
}

/// Queries the first node of a target through all pages, repeatedly until the CPU can be measured.
/// Every answer must be correct.
pub fn once(target: &dyn Target, tables: &Tables, scan: &Scan, level: Level) -> Result<Run> {
    let statement = scan.statement.replace("KEYSPACE", tables.keyspace);
    let mut client = connect(target)?;
    let id = client.prepare(&statement)?;
    let (before, begun, mut asks) = (target.cpu_seconds()?, Instant::now(), 0);
    loop {
        asks += 1;
        answer(&mut client, &id, tables.rows, scan, level)
            .map_err(|error| told(error, &statement))?;
        let used = target.cpu_seconds()? - before;
        if used >= RUN_CPU_S || asks >= RUN_ASKS_MAX {
            return Ok(Run {
                cpu_per_million: used * 1e6 / (tables.rows as f64 * f64::from(asks)),
                seconds: begun.elapsed().as_secs_f64() / f64::from(asks),
                asks,
            });
        }
    }
}

fn connect(target: &dyn Target) -> Result<Client> {
    let addresses = target.addresses();
    Client::connect(addresses.first().context("no node")?, ANSWER_MAX)
}

/// The error with the statement; a wait that was too long in words.
fn told(error: anyhow::Error, statement: &str) -> anyhow::Error {
    let is_late = error
        .downcast_ref::<Error>()
        .is_some_and(|e| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    if is_late {
        return anyhow::anyhow!("{statement}: no page within {} s", ANSWER_MAX.as_secs());
    }
    error.context(statement.to_owned())
}

/// One answer with all its pages, compared with what must come.
fn answer(client: &mut Client, id: &[u8], rows: u64, scan: &Scan, level: Level) -> Result<()> {
    let mut sum = 0;
    let found = client.pages(id, level, PAGE_ROWS, |page| {
        page.each_row(|cells| {
            sum += (scan.first)(rows, cells).with_context(|| format!("a wrong row: {cells:?}"))?;
            Ok(())
        })
    })?;
    let (rows, expected) = ((scan.rows)(rows), (scan.sum)(rows));
    if (found, sum) != (rows, expected) {
        bail!("{found} rows with a sum of {sum} instead of {rows} with {expected}");
    }
    Ok(())
}

/// Group of a row in the wide table, where a batch has one partition: Cassandra refuses large batches of many.
fn group_of(id: u64) -> u64 {
    id / BATCH_ROWS % GROUPS
}

fn row(group: u64, id: u64) -> String {
    format!("({group}, {id}, 'name {id}', {}.5)", id % GROUPS)
}

/// Makes both tables and writes the rows, in batches of one partition or of many.
pub fn fill(target: &dyn Target, tables: &Tables) -> Result<()> {
    let Tables { keyspace, factor, rows, level } = *tables;
    let mut client = connect(target)?;
    client.query(&format!(
        "CREATE KEYSPACE {keyspace} WITH replication = \
         {{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
    ))?;
    client.query(&format!(
        "CREATE TABLE {keyspace}.narrow (id int PRIMARY KEY, g int, name text, x double)"
    ))?;
    client.query(&format!(
        "CREATE TABLE {keyspace}.wide (g int, id int, name text, x double, PRIMARY KEY (g, id))"
    ))?;
    let insert = |table: &str, values: String| {
        format!("INSERT INTO {keyspace}.{table} (g, id, name, x) VALUES {values}")
    };
    for batch in 0..rows / BATCH_ROWS {
        let ids = batch * BATCH_ROWS..(batch + 1) * BATCH_ROWS;
        let wide = ids.clone().map(|id| insert("wide", row(group_of(id), id)));
        let narrow = ids.map(|id| insert("narrow", row(id % GROUPS, id)));
        for statements in [wide.collect::<Vec<_>>(), narrow.collect()] {
            let text = statements.join(" ");
            let batch = format!("BEGIN UNLOGGED BATCH {text} APPLY BATCH");
            client.write_patiently_at(&batch, level)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: u64 = 20_000;

    fn scan(name: &str) -> &'static Scan {
        SCANS.iter().find(|scan| scan.name == name).unwrap()
    }

    /// Cells of what a filter gives of the rows that are written.
    fn filtered(fits: fn(u64) -> bool) -> impl Iterator<Item = (i32, String)> {
        (0..ROWS).filter(move |id| fits(*id)).map(|id| (id as i32, format!("name {id}")))
    }

    #[test]
    fn answers_of_filters_are_those_of_the_rows_that_are_written() {
        let small = scan("filter, small partitions");
        let x = 5.5_f64.to_be_bytes();
        let (mut sum, mut found) = (0, 0);
        for (id, name) in filtered(|id| id % GROUPS == 5) {
            let of = |g: i32, name: &str| {
                (small.first)(ROWS, &[&id.to_be_bytes(), &g.to_be_bytes(), name.as_bytes(), &x])
            };
            sum += of(5, &name).unwrap();
            found += 1;
            assert_eq!((of(6, &name), of(5, "name")), (None, None), "a row that does not fit");
        }
        assert_eq!((found, sum), ((small.rows)(ROWS), (small.sum)(ROWS)));
        assert!(row(5, 105).ends_with(" 5.5)"));

        let large = scan("filter, large partitions");
        let first = |id: i32| (large.first)(ROWS, &[&id.to_be_bytes()]);
        let all: Vec<i64> =
            filtered(|id| id % GROUPS == 99).map(|(id, _)| first(id).unwrap()).collect();
        assert_eq!(all.len() as u64, (large.rows)(ROWS));
        assert_eq!(all.iter().sum::<i64>(), (large.sum)(ROWS));
        assert_eq!(first(98), None);
    }

    #[test]
    fn a_count_or_a_group_that_is_not_whole_is_wrong() {
        let count = scan("count, large partitions");
        let of = |found: i64| (count.first)(ROWS, &[&found.to_be_bytes()]);
        assert_eq!((of(20_000), of(19_999)), (Some(20_000), None));

        let group = scan("group by");
        let mut groups = BTreeMap::<i32, (i64, f64)>::new();
        for id in 0..ROWS {
            let (count, sum) = groups.entry(group_of(id) as i32).or_default();
            *count += 1;
            *sum += (id % GROUPS) as f64 + 0.5;
        }
        let of = |g: i32, count: i64, sum: f64| {
            (group.first)(ROWS, &[&g.to_be_bytes(), &count.to_be_bytes(), &sum.to_be_bytes()])
        };
        let sum: i64 = groups.iter().map(|(g, (count, sum))| of(*g, *count, *sum).unwrap()).sum();
        assert_eq!((groups.len() as u64, sum), ((group.rows)(ROWS), (group.sum)(ROWS)));
        let (count, sum) = groups[&7];
        assert_eq!((of(7, count - 1, sum), of(7, count, sum - 0.5)), (None, None));
    }
}
