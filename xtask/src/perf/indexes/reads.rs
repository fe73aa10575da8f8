//! Section "reads": CPU of queries by key and by indexes, and the bytes of the indexes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::super::process::Kind;
use super::super::report::{Report, Verdict, lowest, median};
use super::database::{Database, KEYSPACE, SHARDS, TableBytes};
use super::driver::{self, Work};
use super::lines::Lines;
use super::rows::{COLUMNS, Query, Table};
use super::settings::Settings;
use super::{goals, settings::Section};

const TABLE: &str = "queried";
/// Columns with an index.
const INDEXED: [&str; 4] = ["sel", "uniq", "a", "b"];
/// Queries of the run that estimates how many a counted run needs.
const ESTIMATE: u64 = 200;
/// A counted run is about this much CPU, whose clock has steps of 10 ms.
const RUN_CPU_S: f64 = 0.6;
/// But not more queries.
const RUN_MAX: u64 = 100_000;

/// Figures of one database.
#[derive(Default)]
struct Found {
    /// Milliseconds of CPU of a query, run by run.
    queries: BTreeMap<Query, Vec<f64>>,
    bytes: TableBytes,
    load: f64,
}

/// Writes the table and asks every database in turn.
pub fn run(databases: &mut [Database], settings: &Settings, report: &mut Report) -> Result<()> {
    debug_assert!(settings.has(Section::Reads));
    let table = Table::new(settings.rows);
    let mut found: BTreeMap<Kind, Found> = BTreeMap::new();
    for database in &mut *databases {
        let name = database.kind.name();
        database.server.resume()?;
        let seen = found.entry(database.kind).or_default();
        fill(database, &table, seen).with_context(|| format!("{name}: rows"))?;
        warm(database, &table, settings.warm).with_context(|| format!("{name}: warm-up"))?;
        database.server.pause()?;
    }
    for round in 0..settings.repeat {
        for query in Query::ALL {
            for database in &mut *databases {
                let name = database.kind.name();
                database.server.resume()?;
                let cpu = measure(database, &table, query, round)
                    .with_context(|| format!("{name}: {}", query.name()))?;
                database.server.pause()?;
                let (n, of, what) = (round + 1, settings.repeat, query.name());
                println!("{n}/{of} {name:11} {what:22} {cpu:.4} CPU-ms");
                let seen = found.entry(database.kind).or_default();
                seen.queries.entry(query).or_default().push(cpu);
            }
        }
    }
    for database in &mut *databases {
        database.server.resume()?;
        database.execute(&format!("DROP TABLE {KEYSPACE}.{TABLE}"))?;
        database.server.pause()?;
    }
    tell(&found, &table, report);
    Ok(())
}

fn fill(database: &Database, table: &Table, seen: &mut Found) -> Result<()> {
    let name = format!("{KEYSPACE}.{TABLE}");
    database
        .execute(&format!("CREATE TABLE {name} {COLUMNS} WITH {}", super::writes::NOT_COMPACTED))?;
    for column in INDEXED {
        database
            .execute(&format!("CREATE INDEX {TABLE}_{column} ON {name} ({column}) USING 'sai'"))?;
    }
    let insert = Table::insert(&name);
    let values = |n| table.row(n);
    let work = Work { statement: &insert, values: &values, check: None };
    let begun = Instant::now();
    seen.load = database.cost(|| driver::run(database.server.address(), &work, 0..table.rows()))?;
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{}: {} rows, {:.2} CPU-s, {took:.1} s",
        database.kind.name(),
        table.rows(),
        seen.load
    );
    database.flush_and_compact(TABLE)?;
    for column in INDEXED {
        database.await_index(&format!("{TABLE}_{column}"))?;
    }
    database.await_idle()?;
    seen.bytes = database.table_bytes(TABLE)?;
    println!("{}: {:?}", database.kind.name(), seen.bytes);
    Ok(())
}

/// Asks `count` queries from the number `first` on; every answer must be correct.
fn ask(database: &Database, table: &Table, query: Query, first: u64, count: u64) -> Result<f64> {
    let statement = query.statement(&format!("{KEYSPACE}.{TABLE}"));
    let values = |n| table.values(query, n);
    let check = |n, page: &super::super::cql::Page<'_>| table.check(query, n, page);
    let work = Work { statement: &statement, values: &values, check: Some(&check) };
    database.cost(|| driver::run(database.server.address(), &work, first..first + count))
}

fn warm(database: &Database, table: &Table, seconds: u64) -> Result<()> {
    let seconds = if database.kind == Kind::Cassandra { seconds } else { seconds.div_ceil(4) };
    for query in Query::ALL {
        let (begun, mut first) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(seconds) {
            ask(database, table, query, first, ESTIMATE)?;
            first += ESTIMATE;
        }
    }
    Ok(())
}

/// CPU of a query, milliseconds.
fn measure(database: &Database, table: &Table, query: Query, round: u32) -> Result<f64> {
    let first = (u64::from(round) + 1) << 32;
    let estimate = ask(database, table, query, first, ESTIMATE)?.max(0.01);
    let count = (ESTIMATE as f64 * RUN_CPU_S / estimate).min(RUN_MAX as f64) as u64;
    let count = count.max(ESTIMATE);
    let used = ask(database, table, query, first + ESTIMATE, count)?;
    Ok(used * 1000.0 / count as f64)
}

fn tell(found: &BTreeMap<Kind, Found>, table: &Table, report: &mut Report) {
    let (none, ours) = (Found::default(), found.get(&Kind::Helenus));
    let ours = ours.unwrap_or(&none);
    let theirs = found.get(&Kind::Cassandra);
    let runs = |found: Option<&Found>, query| -> Vec<f64> {
        found.and_then(|f| f.queries.get(&query)).cloned().unwrap_or_default()
    };
    let mut lines = Lines::new(report);
    for query in Query::ALL {
        let (mine, other) = (runs(Some(ours), query), runs(theirs, query));
        let middle = median(mine.iter().copied());
        let over = lowest(other.iter().copied()) / middle;
        let name = query.name();
        let verdict = match query {
            Query::Key => None,
            Query::Unique => {
                let key = median(runs(Some(ours), Query::Key));
                let of_shard = middle / f64::from(SHARDS) / key;
                let what = format!("{name}: CPU for each of {SHARDS} shards over a read by key");
                Some(Verdict::at_most(what, of_shard, goals::UNIQUE, "times"))
            }
            Query::Equality | Query::Ranges => {
                let goal = if query == Query::Equality { goals::EQUALITY } else { goals::RANGES };
                let what = format!("{name}: Cassandra's CPU over ours");
                theirs.map(|_| Verdict::at_least(what, over, goal, "times"))
            }
        };
        lines.judge(name, "CPU-ms a query", [&mine, &other], verdict);
    }
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let of = |part: fn(&TableBytes) -> u64| {
        [vec![mb(part(&ours.bytes))], theirs.map(|f| mb(part(&f.bytes))).into_iter().collect()]
    };
    let [mine, other]: [Vec<f64>; 2] = of(|bytes| bytes.indexes);
    let share = mine.first().zip(other.first()).map(|(mine, other)| mine / other);
    let what = "bytes of the indexes: ours over Cassandra's";
    let verdict = share.map(|share| Verdict::at_most(what, share, goals::BYTES, "times"));
    lines.judge("four indexes on the disk", "MB", [&mine, &other], verdict);
    let [mine, other]: [Vec<f64>; 2] = of(|bytes| bytes.all);
    lines.add("table with them", "MB", [&mine, &other]);
    let load: [Vec<f64>; 2] = [vec![ours.load], theirs.map(|f| f.load).into_iter().collect()];
    lines.add("writes of all rows, first use", "CPU-s", [&load[0], &load[1]]);
    let title = format!("Queries of a table of {} rows with four indexes", table.rows());
    lines.finish(&title, "reads");
}
