//! Section "writes": CPU of writes, flushes and compactions of a table with one index and of the same table without.
//!
//! Both tables are written and flushed part by part in turn, so that the compilers of Cassandra and the mood of the
//! machine hit both alike. The ratio of the sums of all rounds is judged: a single flush is few steps of the clock.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;

use super::super::process::Kind;
use super::super::report::{Report, Verdict};
use super::database::{Database, KEYSPACE, TableBytes};
use super::driver::{self, Work};
use super::goals;
use super::lines::Lines;
use super::rows::{COLUMNS, Table};
use super::settings::Settings;

/// Nothing is compacted automatically.
pub const NOT_COMPACTED: &str = "compaction = {'class': 'SizeTieredCompactionStrategy', 'min_threshold': 32, \
    'max_threshold': 64, 'enabled': false} AND compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 16}";
/// Tables: without and with the index.
const TABLES: [&str; 2] = ["plain", "indexed"];
/// A table has a part of the rows of the queried one.
const PART_OF_ROWS: u64 = 10;
/// Flushes of a table in a round; of the first round, which is not counted, half of them.
const FLUSHES: u64 = 4;

/// CPU seconds of one round, of the table without and with the index.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Round {
    write: [f64; 2],
    flush: [f64; 2],
    compaction: [f64; 2],
    bytes: [TableBytes; 2],
}

type PairOf = fn(&Round) -> [f64; 2];

/// Measures every database in turn.
pub fn run(databases: &mut [Database], settings: &Settings, report: &mut Report) -> Result<()> {
    let table = Table::new(settings.rows / PART_OF_ROWS);
    let mut found: BTreeMap<Kind, Vec<Round>> = BTreeMap::new();
    for round in 0..=settings.repeat {
        for database in &mut *databases {
            database.server.resume()?;
            let name = database.kind.name();
            let flushes = if round == 0 { FLUSHES / 2 } else { FLUSHES };
            let seen = one_round(database, &table, round, flushes)
                .with_context(|| format!("{name}: round {round}"))?;
            database.server.pause()?;
            println!("{round}/{} {name:11} {seen:?}", settings.repeat);
            if round > 0 {
                found.entry(database.kind).or_default().push(seen);
            }
        }
    }
    tell(&found, &table, report);
    Ok(())
}

fn one_round(database: &Database, table: &Table, round: u32, flushes: u64) -> Result<Round> {
    let names = TABLES.map(|name| format!("{name}{round}"));
    for (name, table) in names.iter().zip(TABLES) {
        let columns = format!("{COLUMNS} WITH {NOT_COMPACTED}");
        database.execute(&format!("CREATE TABLE {KEYSPACE}.{name} {columns}"))?;
        if table == "indexed" {
            let index = format!("{name}_sel");
            let target = format!("{KEYSPACE}.{name} (sel)");
            database.execute(&format!("CREATE INDEX {index} ON {target} USING 'sai'"))?;
            database.await_index(&index)?;
        }
    }
    let mut seen = Round::default();
    let part = table.rows() / FLUSHES;
    for n in 0..flushes {
        for (i, name) in names.iter().enumerate() {
            let insert = Table::insert(&format!("{KEYSPACE}.{name}"));
            let values = |n| table.row(n);
            let work = Work { statement: &insert, values: &values, check: None };
            let address = database.server.address();
            let written =
                database.cost(|| driver::run(address, &work, n * part..(n + 1) * part))?;
            let flushed = database.cost(|| database.nodetool(&["flush", KEYSPACE, name]))?;
            for (sum, cpu) in [(&mut seen.write, written), (&mut seen.flush, flushed)] {
                if let Some(sum) = sum.get_mut(i) {
                    *sum += cpu;
                }
            }
        }
    }
    database.await_idle()?;
    for (i, name) in names.iter().enumerate() {
        let cpu = database.cost(|| database.nodetool(&["compact", KEYSPACE, name]))?;
        let bytes = database.table_bytes(name)?;
        if let (Some(sum), Some(of)) = (seen.compaction.get_mut(i), seen.bytes.get_mut(i)) {
            (*sum, *of) = (cpu, bytes);
        }
    }
    for name in &names {
        database.execute(&format!("DROP TABLE {KEYSPACE}.{name}"))?;
    }
    Ok(seen)
}

/// Ratio of the sums: with the index over without.
fn ratio(rounds: &[Round], of: PairOf) -> f64 {
    let sum = |i: usize| rounds.iter().map(|round| of(round)[i]).sum::<f64>();
    sum(1) / sum(0)
}

fn tell(found: &BTreeMap<Kind, Vec<Round>>, table: &Table, report: &mut Report) {
    let of_kind = |kind| found.get(&kind).map(Vec::as_slice).unwrap_or_default();
    let (ours, theirs) = (of_kind(Kind::Helenus), of_kind(Kind::Cassandra));
    let kinds: [(&str, PairOf, f64); 3] = [
        ("writes", |round| round.write, goals::WRITE),
        ("flushes", |round| round.flush, goals::FLUSH),
        ("compactions", |round| round.compaction, goals::FLUSH),
    ];
    let mut lines = Lines::new(report);
    for (what, of, goal) in kinds {
        let rows = table.rows() as f64;
        for (i, name) in ["without an index", "with one index"].into_iter().enumerate() {
            let cpu = |rounds: &[Round]| -> Vec<f64> {
                rounds.iter().map(|round| of(round)[i] * 1e6 / rows).collect()
            };
            let title = format!("{what} {name}");
            lines.add(&title, "CPU-µs a row", [&cpu(ours), &cpu(theirs)]);
        }
        let each = |rounds: &[Round]| -> Vec<f64> {
            rounds.iter().map(|round| of(round)[1] / of(round)[0]).collect()
        };
        let verdict = Verdict::at_most(
            format!("{what}: with one index over without"),
            ratio(ours, of),
            goal,
            "times",
        );
        let title = format!("{what}: with over without");
        lines.judge(&title, "times", [&each(ours), &each(theirs)], Some(verdict));
    }
    let bytes = |rounds: &[Round]| -> Vec<f64> {
        rounds.iter().map(|round| round.bytes[1].indexes as f64 / 1e6).collect()
    };
    lines.add("the index on the disk", "MB", [&bytes(ours), &bytes(theirs)]);
    let title =
        format!("Tables of {} rows with and without one index, {FLUSHES} flushes", table.rows());
    lines.finish(&title, "writes");
    for (kind, rounds) in found {
        report.keep(&format!("rounds of {}", kind.name()), json!(rounds));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_sums() {
        let of = |without, with| Round { write: [without, with], ..Round::default() };
        let rounds = [of(1.0, 1.0), of(3.0, 4.0)];
        assert!((ratio(&rounds, |round| round.write) - 1.25).abs() < 1e-9);
        assert!(ratio(&[], |round| round.write).is_nan());
    }
}
