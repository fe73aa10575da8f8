//! `invert --target HOST:PORT[,HOST:PORT...]`: random operations on random tables, with known
//! answers.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use conformance::client::{Answer, Client, Parameters};
use conformance::fuzz::random::Random;
use conformance::invert::model::Cells;
use conformance::invert::operation::Operation;
use conformance::invert::read::Read;
use conformance::invert::table::Table;
use conformance::wire;

const USAGE: &str = "\
usage: invert [--target HOST:PORT,...] [--admin HOST:PORT] [--keyspace NAME] [--replication MAP]
              [--seed N] [--rounds N] [--partitions N] [--operations N] [--seconds N] [--lose N]

Makes a random table per round, carries out random operations on its partitions - inserts, updates,
deletions of cells, elements, rows, slices and partitions, with timestamps out of order - and compares
reads with what the operations must leave. An operation is repeated, on the next target, until it is
acknowledged. The keyspace is dropped first.
  --target LIST       servers of one cluster; default HELENUS_HOST and HELENUS_PORT, else
                      127.0.0.1:9042
  --admin HOST:PORT   admin port of one of them: it is flushed and compacted now and then; default
                      HELENUS_HOST and HELENUS_API_PORT, else never
  --keyspace NAME     default invert
  --replication MAP   of the keyspace; default {'class': 'SimpleStrategy', 'replication_factor': 1}
  --seed N            seed of the first round, one more each round; default 1
  --rounds N          rounds; default 20
  --partitions N      partitions of a table; default 4
  --operations N      operations of a partition; default 120
  --seconds N         longest time that one request is repeated; default 60
  --lose N            do not send each Nth operation: this must be found
exit status: 0 all answers are right, 1 one is not, 2 could not run";

/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(20);
/// QUORUM.
const LEVEL: u16 = 4;
/// Codes of errors after which an operation is retried: overloaded, bootstrapping, unavailable,
/// timeouts, failures, and a coordinator's own (server error).
const REPEATED: [i32; 8] = [0x0000, 0x1000, 0x1001, 0x1002, 0x1100, 0x1200, 0x1300, 0x1500];

struct Options {
    targets: Vec<String>,
    admin: Option<String>,
    keyspace: String,
    replication: String,
    seed: u64,
    rounds: u64,
    partitions: u64,
    operations: u64,
    wait: Duration,
    lose: u64,
}

fn main() -> ExitCode {
    match options().and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn options() -> Result<Options> {
    let told = |name: &str| std::env::var(name).ok();
    let host = told("HELENUS_HOST").unwrap_or_else(|| "127.0.0.1".to_owned());
    let port = told("HELENUS_PORT").unwrap_or_else(|| "9042".to_owned());
    let mut options = Options {
        targets: vec![format!("{host}:{port}")],
        admin: told("HELENUS_API_PORT").map(|port| format!("{host}:{port}")),
        keyspace: "invert".to_owned(),
        replication: "{'class': 'SimpleStrategy', 'replication_factor': 1}".to_owned(),
        seed: 1,
        rounds: 20,
        partitions: 4,
        operations: 120,
        wait: Duration::from_secs(60),
        lose: 0,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--target" => options.targets = value()?.split(',').map(str::to_owned).collect(),
            "--admin" => options.admin = Some(value()?),
            "--keyspace" => options.keyspace = value()?,
            "--replication" => options.replication = value()?,
            "--seed" => options.seed = value()?.parse()?,
            "--rounds" => options.rounds = value()?.parse()?,
            "--partitions" => options.partitions = value()?.parse()?,
            "--operations" => options.operations = value()?.parse()?,
            "--seconds" => options.wait = Duration::from_secs(value()?.parse()?),
            "--lose" => options.lose = value()?.parse()?,
            "--help" | "-h" => {
                println!("{USAGE}");
                std::process::exit(0);
            }
            other => bail!("unknown option {other}\n{USAGE}"),
        }
    }
    Ok(options)
}

/// A connection to one of the targets, or to the next one when it fails.
struct Link {
    options: Options,
    at: usize,
    client: Option<Client>,
    repeated: usize,
}

impl Link {
    /// Returns all pages of an answer; retries until it arrives.
    fn ask(&mut self, cql: &str, page: Option<i32>) -> Result<Vec<Cells>> {
        let begun = Instant::now();
        loop {
            match self.once(cql, page) {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err((code, message))) if !REPEATED.contains(&code) => {
                    bail!("{cql}: error {code:#06x}: {message}");
                }
                Ok(Err((_, message))) if begun.elapsed() > self.options.wait => {
                    bail!("{cql}: still refused: {message}");
                }
                Err(error) if begun.elapsed() > self.options.wait => {
                    return Err(error.context(format!("{cql}: no answer")));
                }
                Ok(Err(_)) | Err(_) => {
                    self.repeated += 1;
                    self.at += 1;
                    self.client = None;
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    fn once(
        &mut self,
        cql: &str,
        page: Option<i32>,
    ) -> Result<std::result::Result<Vec<Cells>, (i32, String)>> {
        let client = match &mut self.client {
            Some(client) => client,
            none => {
                let targets = &self.options.targets;
                let target = targets.get(self.at % targets.len().max(1)).context("no target")?;
                none.insert(connect(target)?)
            }
        };
        let mut parameters =
            Parameters { consistency: LEVEL, page_size: page, ..Parameters::default() };
        let mut rows = Vec::new();
        loop {
            match client.query(cql, &parameters)?.answer {
                Answer::Error(error) => return Ok(Err((error.code, error.message))),
                Answer::Rows(found) => {
                    rows.extend(found.rows);
                    match found.metadata.paging_state {
                        Some(state) => parameters.paging_state = Some(state),
                        None => return Ok(Ok(rows)),
                    }
                }
                _ => return Ok(Ok(rows)),
            }
        }
    }
}

fn connect(target: &str) -> Result<Client> {
    Client::start(wire::open_for(target, ANSWER)?, 5)
}

fn run(options: Options) -> Result<bool> {
    let mut link = Link { options, at: 0, client: None, repeated: 0 };
    let (keyspace, replication) = (link.options.keyspace.clone(), link.options.replication.clone());
    link.ask(&format!("DROP KEYSPACE IF EXISTS {keyspace}"), None)?;
    link.ask(&format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}"), None)?;
    let (mut operations, mut reads) = (0, 0);
    for seed in (link.options.seed..).take(usize::try_from(link.options.rounds)?) {
        let name = format!("{keyspace}.t{seed}");
        let table = Table::of(&name, seed);
        // A statement that was answered late may have done it already.
        link.ask(&table.create().replacen("TABLE", "TABLE IF NOT EXISTS", 1), None)?;
        let mut random = Random::new(seed);
        let mut done = vec![Vec::new(); usize::try_from(link.options.partitions)?];
        for _ in 0..link.options.operations * link.options.partitions {
            let partition = random.below(done.len());
            let Some(all) = done.get_mut(partition) else { continue };
            let key = partition as u64;
            let operation = Operation::of(&table, key, all.len() as u64 + 1);
            let is_lost =
                link.options.lose > 0 && operation.number.is_multiple_of(link.options.lose);
            if !is_lost {
                link.ask(&operation.statement(&table, key), None)?;
            }
            all.push(operation);
            operations += 1;
            if random.percent(1) {
                upset(&link.options, &mut random)?;
            }
            if random.percent(25) {
                reads += 1;
                let read = Read::random(&table, &mut random);
                if !is_right(&mut link, &table, key, all, &read, &mut random)? {
                    return Ok(false);
                }
            }
        }
        for (key, all) in (0..).zip(&done) {
            for number in 0..10 {
                reads += 1;
                let read = match number {
                    0 => Read::default(),
                    _ => Read::random(&table, &mut random),
                };
                if !is_right(&mut link, &table, key, all, &read, &mut random)? {
                    return Ok(false);
                }
            }
        }
    }
    println!(
        "{} tables, {operations} operations, {reads} reads, all of them right; {} requests repeated",
        link.options.rounds, link.repeated
    );
    Ok(true)
}

fn is_right(
    link: &mut Link,
    table: &Table,
    key: u64,
    all: &[Operation],
    read: &Read,
    random: &mut Random,
) -> Result<bool> {
    let page = random.percent(60).then(|| 1 + i32::try_from(random.below(7)).unwrap_or(0));
    let statement = read.statement(table, key);
    let found = link.ask(&statement, page)?;
    let Some(wrong) = read.wrong(table, all, &found) else { return Ok(true) };
    println!("seed {}: {statement}\n    page size {page:?}: {wrong}", table.seed);
    println!("    {};", table.create());
    for operation in all {
        println!("    {};", operation.statement(table, key));
    }
    Ok(false)
}

/// Flushes or compacts one of the servers.
fn upset(options: &Options, random: &mut Random) -> Result<()> {
    let Some(admin) = &options.admin else { return Ok(()) };
    let what = if random.percent(75) { "keyspace_flush" } else { "keyspace_compaction" };
    wire::order(admin, what, &options.keyspace, ANSWER)
}
