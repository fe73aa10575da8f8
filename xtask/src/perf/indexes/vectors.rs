//! Section "vectors": building an index of vectors, and the nearest ones at equal recall.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::super::cql::Page;
use super::super::process::Kind;
use super::super::report::{Report, Verdict, lowest, median, rounded};
use super::database::{Database, KEYSPACE};
use super::driver::{self, Work};
use super::equal_recall::{self, Point};
use super::goals;
use super::lines::Lines;
use super::settings::Settings;
use super::vector_set::{NEAREST, VectorSet};

const TABLE: &str = "nearest";
/// LIMIT of the queries: a larger one is searched longer.
const LIMITS: [u32; 5] = [10, 20, 50, 100, 200];
/// This part of the vectors is written to a table that has the index, and flushed.
const PART_OF_VECTORS: usize = 20;
/// A counted run takes about this much CPU.
const RUN_CPU_S: f64 = 0.6;
/// But no more passes over all asked vectors.
const PASSES_MAX: u64 = 20;

/// Figures of one database.
#[derive(Default)]
struct Found {
    /// CPU seconds of building the index over a compacted table.
    build: Vec<f64>,
    /// CPU seconds of writes and a flush of a part, run by run.
    part: Vec<f64>,
    /// Megabytes of the index.
    bytes: Vec<f64>,
    /// Milliseconds of CPU of a query, and its recall, run by run.
    queries: BTreeMap<u32, Vec<(f64, f64)>>,
}

impl Found {
    /// Medians of the runs of each LIMIT.
    fn points(&self) -> Vec<Point> {
        let middle = |runs: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| median(runs.iter().map(of));
        let point = |(limit, runs): (&u32, &Vec<(f64, f64)>)| Point {
            limit: *limit,
            recall: middle(runs, |run| run.1),
            cpu: middle(runs, |run| run.0),
        };
        self.queries.iter().map(point).collect()
    }
}

/// The vectors and the correct answers.
struct Bench<'a> {
    set: &'a VectorSet,
    nearest: Vec<Vec<u64>>,
}

/// Measures every database in turn.
pub fn run(
    home: &Path,
    databases: &mut [Database],
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    let set = VectorSet::load(home, settings)?;
    println!("{} vectors: {}", set.written.len(), set.origin);
    let bench = Bench { nearest: set.nearest()?, set: &set };
    let mut found: BTreeMap<Kind, Found> = BTreeMap::new();
    for database in &mut *databases {
        let name = database.kind.name();
        database.server.resume()?;
        let seen = found.entry(database.kind).or_default();
        bench.build(database, seen).with_context(|| format!("{name}: vectors"))?;
        database.server.pause()?;
    }
    for round in 0..settings.repeat {
        for database in &mut *databases {
            let name = database.kind.name();
            database.server.resume()?;
            let cpu = bench.part(database, round).with_context(|| format!("{name}: part"))?;
            database.server.pause()?;
            println!(
                "{}/{} {name:11} writes and flush: {cpu:.2} CPU-s",
                round + 1,
                settings.repeat
            );
            found.entry(database.kind).or_default().part.push(cpu);
        }
    }
    for database in &mut *databases {
        database.server.resume()?;
        bench.warm(database, settings.warm)?;
        database.server.pause()?;
    }
    for round in 0..settings.repeat {
        for limit in LIMITS {
            for database in &mut *databases {
                let name = database.kind.name();
                database.server.resume()?;
                let run = bench.measure(database, limit).with_context(|| format!("{name}: ANN"))?;
                database.server.pause()?;
                let (n, of, (cpu, recall)) = (round + 1, settings.repeat, run);
                println!("{n}/{of} {name:11} LIMIT {limit}: {cpu:.3} CPU-ms, recall {recall:.3}");
                let seen = found.entry(database.kind).or_default();
                seen.queries.entry(limit).or_default().push(run);
            }
        }
    }
    tell(&found, &bench, report);
    Ok(())
}

impl Bench<'_> {
    fn create(&self, database: &Database, table: &str) -> Result<()> {
        let columns = format!("(id int PRIMARY KEY, v vector<float, {}>)", self.set.dimensions);
        let options = super::writes::NOT_COMPACTED;
        database.execute(&format!("CREATE TABLE {KEYSPACE}.{table} {columns} WITH {options}"))
    }

    fn index(database: &Database, table: &str) -> Result<()> {
        let target = format!("{KEYSPACE}.{table} (v)");
        database.execute(&format!("CREATE INDEX {table}_v ON {target} USING 'sai'"))?;
        database.await_index(&format!("{table}_v"))
    }

    fn write(&self, database: &Database, table: &str, count: usize) -> Result<()> {
        let insert = format!("INSERT INTO {KEYSPACE}.{table} (id, v) VALUES (?, ?)");
        let values = |n: u64| {
            let id = i32::try_from(n).unwrap_or(i32::MAX).to_be_bytes().to_vec();
            let vector = usize::try_from(n).ok().and_then(|n| self.set.written.get(n));
            vec![id, encoded(vector.map(Vec::as_slice).unwrap_or_default())]
        };
        let work = Work { statement: &insert, values: &values, check: None };
        driver::run(database.server.address(), &work, 0..count as u64)
    }

    /// Writes all vectors, compacts them, and builds the index over the files.
    fn build(&self, database: &Database, seen: &mut Found) -> Result<()> {
        self.create(database, TABLE)?;
        self.write(database, TABLE, self.set.written.len())?;
        database.flush_and_compact(TABLE)?;
        database.await_idle()?;
        let begun = Instant::now();
        let cpu = database.cost(|| Self::index(database, TABLE))?;
        let (name, took) = (database.kind.name(), begun.elapsed().as_secs_f64());
        println!("{name}: index built, {cpu:.2} CPU-s, {took:.1} s");
        seen.build.push(cpu);
        seen.bytes.push(database.table_bytes(TABLE)?.indexes as f64 / 1e6);
        Ok(())
    }

    /// CPU of writing a part of the vectors to a table that has the index, and of its flush.
    fn part(&self, database: &Database, round: u32) -> Result<f64> {
        let table = format!("part{round}");
        self.create(database, &table)?;
        Self::index(database, &table)?;
        database.await_idle()?;
        let cpu = database.cost(|| {
            self.write(database, &table, self.set.written.len() / PART_OF_VECTORS)?;
            database.nodetool(&["flush", KEYSPACE, &table])
        })?;
        database.execute(&format!("DROP TABLE {KEYSPACE}.{table}"))?;
        Ok(cpu)
    }

    /// Asks for all vectors `passes` times; CPU of a query in milliseconds, and the recall.
    fn ask(&self, database: &Database, limit: u32, passes: u64) -> Result<(f64, f64)> {
        let count = self.set.asked.len() as u64;
        let asked = |n: u64| usize::try_from(n % count).unwrap_or_default();
        let statement =
            format!("SELECT id FROM {KEYSPACE}.{TABLE} ORDER BY v ANN OF ? LIMIT {limit}");
        let values = |n: u64| {
            vec![encoded(self.set.asked.get(asked(n)).map(Vec::as_slice).unwrap_or_default())]
        };
        let hits = AtomicU64::new(0);
        let check = |n: u64, page: &Page<'_>| {
            let ids = ids(page)?;
            if ids.len() != limit as usize {
                bail!("{} rows instead of {limit}", ids.len());
            }
            let nearest = self.nearest.get(asked(n)).context("no such vector")?;
            let hit = ids.iter().take(NEAREST).filter(|id| nearest.contains(id)).count();
            hits.fetch_add(hit as u64, Ordering::Relaxed);
            Ok(())
        };
        let work = Work { statement: &statement, values: &values, check: Some(&check) };
        let queries = count * passes;
        let cpu = database.cost(|| driver::run(database.server.address(), &work, 0..queries))?;
        let recall = hits.into_inner() as f64 / (queries * NEAREST as u64) as f64;
        Ok((cpu * 1000.0 / queries as f64, recall))
    }

    fn warm(&self, database: &Database, seconds: u64) -> Result<()> {
        let seconds = if database.kind == Kind::Cassandra { seconds } else { seconds.div_ceil(4) };
        for limit in LIMITS {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(seconds.div_ceil(2)) {
                self.ask(database, limit, 1)?;
            }
        }
        Ok(())
    }

    fn measure(&self, database: &Database, limit: u32) -> Result<(f64, f64)> {
        let (estimate, _) = self.ask(database, limit, 1)?;
        let pass = (estimate / 1000.0 * self.set.asked.len() as f64).max(0.01);
        let passes = (RUN_CPU_S / pass).ceil().min(PASSES_MAX as f64) as u64;
        self.ask(database, limit, passes.max(1))
    }
}

/// Keys of an answer, which may not have one twice.
fn ids(page: &Page<'_>) -> Result<Vec<u64>> {
    let mut ids = Vec::new();
    page.each_row(|cells| {
        let id = cells.first().and_then(|id| <[u8; 4]>::try_from(*id).ok());
        let id = u64::try_from(i32::from_be_bytes(id.context("a row without an id")?))?;
        if ids.contains(&id) {
            bail!("row {id} comes twice");
        }
        ids.push(id);
        Ok(())
    })?;
    Ok(ids)
}

/// A vector as CQL has it.
fn encoded(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_be_bytes()).collect()
}

fn tell(found: &BTreeMap<Kind, Found>, bench: &Bench<'_>, report: &mut Report) {
    let none = Found::default();
    let of_kind = |kind| found.get(&kind).unwrap_or(&none);
    let (ours, theirs) = (of_kind(Kind::Helenus), of_kind(Kind::Cassandra));
    let has_theirs = found.contains_key(&Kind::Cassandra);
    let points = [ours.points(), theirs.points()];
    let mut lines = Lines::new(report);
    type RunsOf = fn(&Found) -> &Vec<f64>;
    let part = bench.set.written.len() / PART_OF_VECTORS;
    let builds: [(String, RunsOf); 2] = [
        ("build of the index over a compacted table".to_owned(), |found| &found.build),
        (format!("writes and flush of {part} vectors"), |found| &found.part),
    ];
    for (what, of) in builds {
        let over = lowest(of(theirs).iter().copied()) / median(of(ours).iter().copied());
        let name = format!("{what}: Cassandra's CPU over ours");
        let verdict =
            has_theirs.then(|| Verdict::at_least(name, over, goals::VECTOR_BUILD, "times"));
        lines.judge(&what, "CPU-s", [of(ours), of(theirs)], verdict);
    }
    lines.add("index on the disk", "MB", [&ours.bytes, &theirs.bytes]);
    for limit in LIMITS {
        let runs = |found: &Found, of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
            found.queries.get(&limit).into_iter().flatten().map(of).collect()
        };
        let cpu = [runs(ours, |run| run.0), runs(theirs, |run| run.0)];
        lines.add(&format!("LIMIT {limit}"), "CPU-ms a query", [&cpu[0], &cpu[1]]);
        let recall = [runs(ours, |run| run.1), runs(theirs, |run| run.1)];
        lines.add(&format!("LIMIT {limit}"), "recall of 10", [&recall[0], &recall[1]]);
    }
    if let Some(recall) = equal_recall::target(&points[0], &points[1]) {
        let ours = equal_recall::cpu_at(&points[0], recall);
        let reached = equal_recall::cpu_at(&points[1], recall);
        // Cassandra needs more than its largest LIMIT for a recall that it does not reach.
        let theirs = reached.or_else(|| equal_recall::cpu_of_largest(&points[1]));
        let over = theirs.zip(ours).map_or(f64::NAN, |(theirs, ours)| theirs / ours);
        let mut what = format!("nearest 10 at a recall of {}", rounded(recall));
        if reached.is_none() {
            what.push_str(", which Cassandra does not reach: its largest LIMIT");
        }
        let name = format!("{what}: Cassandra's CPU over ours");
        let verdict = Verdict::at_least(name, over, goals::VECTOR_QUERY, "times");
        let runs = [ours, theirs].map(|cpu| cpu.into_iter().collect::<Vec<_>>());
        lines.judge(&what, "CPU-ms a query", [&runs[0], &runs[1]], Some(verdict));
    }
    let title = format!("{} vectors, {}", bench.set.written.len(), bench.set.origin);
    lines.finish(&title, "vectors");
    report.keep("recall", json!({ "helenus": points[0], "cassandra": points[1] }));
}
