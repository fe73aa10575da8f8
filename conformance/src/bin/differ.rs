//! `differ --theirs HOST:PORT`: random statements that two servers must answer alike.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use conformance::client::{Answer, Client, Parameters};
use conformance::fuzz::known::Known;
use conformance::fuzz::round::{self, Done, Found, Outcome, Pair, Upset};
use conformance::wire;

const USAGE: &str = "\
usage: differ --theirs HOST:PORT [--ours HOST:PORT] [--admin HOST:PORT] [--seed N] [--rounds N]
              [--keyspace NAME] [--statements N] [--known FILE] [--restart COMMAND]
              [--their-admin COMMAND] [--indexes] [--their-index] [--history] [--verbose]

Makes a random table per round and sends random statements, valid and slightly wrong, to both
servers; prints every answer that differs. Both must be yours to lose: the keyspace is dropped.
  --theirs HOST:PORT  the reference, a real Cassandra
  --ours HOST:PORT    the server under test; default 127.0.0.1:9042
  --admin HOST:PORT   its admin port: it is flushed and compacted now and then; default: never
  --keyspace NAME     default differ; another for each of several runs at once
  --seed N            seed of the first round, one more each round; default 1
  --rounds N          rounds; default 20
  --statements N      statements of a round; default 200
  --known FILE        differences with a reason; default fuzz-known.txt beside the cases
  --restart COMMAND   ends the server under test and starts it again, until it answers; run by sh
                      now and then, and the keyspace has durable writes then; default: never.
                      The command may restart the reference too
  --their-admin COMMAND  run by sh with `flush KEYSPACE` or `compact KEYSPACE` behind it when ours
                      is flushed or compacted; for the reference; default: never
  --indexes           tables have secondary indexes, and queries by them. Of an answer that differs
                      the reference, a Cassandra, is asked again without its index; when
                      that answer is ours, its index is wrong, and the difference is counted apart
  --their-index       print those too
  --history           print both answers and the statements of the round before each difference
  --verbose           print every statement and its answer
exit status: 0 no difference, 1 some, 2 could not run";

/// Differences of one round that are printed: those after the first often follow from it.
const SHOWN: usize = 3;

struct Options {
    ours: String,
    theirs: String,
    admin: Option<String>,
    keyspace: String,
    seed: u64,
    rounds: u64,
    statements: usize,
    known: PathBuf,
    restart: Option<String>,
    their_admin: Option<String>,
    indexes: bool,
    their_index: bool,
    history: bool,
    verbose: bool,
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn options() -> Result<Options> {
    let mut options = Options {
        ours: "127.0.0.1:9042".to_owned(),
        theirs: String::new(),
        admin: None,
        keyspace: "differ".to_owned(),
        seed: 1,
        rounds: 20,
        statements: 200,
        known: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz-known.txt")),
        restart: None,
        their_admin: None,
        indexes: false,
        their_index: false,
        history: false,
        verbose: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--ours" => options.ours = value()?,
            "--theirs" => options.theirs = value()?,
            "--admin" => options.admin = Some(value()?),
            "--keyspace" => options.keyspace = value()?,
            "--seed" => options.seed = value()?.parse()?,
            "--rounds" => options.rounds = value()?.parse()?,
            "--statements" => options.statements = value()?.parse()?,
            "--known" => options.known = value()?.into(),
            "--restart" => options.restart = Some(value()?),
            "--their-admin" => options.their_admin = Some(value()?),
            "--indexes" => options.indexes = true,
            "--their-index" => options.their_index = true,
            "--history" => options.history = true,
            "--verbose" => options.verbose = true,
            "--help" | "-h" => {
                println!("{USAGE}");
                std::process::exit(0);
            }
            other => bail!("unknown option {other}\n{USAGE}"),
        }
    }
    if options.theirs.is_empty() {
        bail!("--theirs is missing\n{USAGE}");
    }
    Ok(options)
}

fn run(options: &Options) -> Result<bool> {
    let text = std::fs::read_to_string(&options.known);
    let text = text.with_context(|| options.known.display().to_string())?;
    let known = Known::parse(&text)?;
    let mut ours = connect(&options.ours)?;
    let mut theirs = connect(&options.theirs)?;
    let durability = match options.restart {
        Some(_) => round::Durability::Durable,
        None => round::Durability::MemoryOnly,
    };
    for client in [&mut ours, &mut theirs] {
        for statement in round::keyspace(&options.keyspace, durability) {
            let response = client.query(&statement, &Parameters::default())?;
            if let Answer::Error(error) = response.answer {
                bail!("{statement}: {}", error.message);
            }
        }
    }
    let mut sum = Sum::default();
    for number in 0..options.rounds {
        let seed = options.seed + number;
        // Never before the clock of the servers: their compactions purge expired data by it.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let mut upset = |upset: Upset, keyspace: &str| match (upset, &options.admin) {
            (Upset::Restart, _) => restart(options, keyspace),
            (_, None) => Ok(Done::Not),
            (_, Some(admin)) => {
                ask_admin(admin, upset, keyspace)?;
                command_their_admin(options, upset, keyspace)?;
                Ok(Done::Kept)
            }
        };
        let mut pair = Pair {
            ours: &mut ours,
            theirs: &mut theirs,
            upset: &mut upset,
            now: i32::try_from(since.as_secs())?,
            verbose: options.verbose,
            restarts: options.restart.is_some(),
            indexes: options.indexes,
            keyspace: options.keyspace.clone(),
        };
        let outcome = round::run(&mut pair, seed, options.statements)
            .with_context(|| format!("round of seed {seed}"))?;
        sum.add(&outcome);
        let (with_reason, without): (Vec<Found>, Vec<Found>) =
            outcome.found.iter().cloned().partition(|found| known.explains(found));
        sum.explained += with_reason.len();
        sum.their_index += outcome.their_index.len();
        if options.their_index {
            for found in &outcome.their_index {
                print!("their index: ");
                print(found, seed, options.history);
            }
        }
        sum.unexplained += without.len();
        for found in without.iter().take(SHOWN) {
            print(found, seed, options.history);
        }
        if without.len() > SHOWN {
            println!("seed {seed}: and {} more", without.len() - SHOWN);
        }
        // A line that is overwritten: however the run ends, the compared statements so far are
        // known.
        eprint!("\rseed {seed} done, {sum}    ");
    }
    eprintln!();
    println!("{sum}");
    Ok(sum.unexplained == 0)
}

/// Sum of the rounds so far.
#[derive(Default)]
struct Sum {
    total: Outcome,
    explained: usize,
    unexplained: usize,
    their_index: usize,
    parted: usize,
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        let total = &mut self.total;
        total.statements += outcome.statements;
        total.refused += outcome.refused;
        total.bound += outcome.bound;
        total.rows += outcome.rows;
        total.flushes += outcome.flushes;
        total.compactions += outcome.compactions;
        total.restarts += outcome.restarts;
        total.unbuilt += outcome.unbuilt;
        self.parted += usize::from(outcome.parted);
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { total, explained, unexplained, their_index, parted } = self;
        write!(
            out,
            "{} statements, {} of them with bound values, {} refused by both, {} rows compared, \
             {explained} differences with a reason, {their_index} in which the reference's index \
             differs from its own scan, {unexplained} without; {parted} rounds ended \
             when one server alone refused a change, {} when the reference did not build an index; \
             {} flushes, {} compactions, {} restarts",
            total.statements,
            total.bound,
            total.refused,
            total.rows,
            total.unbuilt,
            total.flushes,
            total.compactions,
            total.restarts
        )
    }
}

fn print(found: &Found, seed: u64, history: bool) {
    println!("seed {seed}: {}", found.statement);
    if let Some(page) = found.page {
        println!("    page size {page}");
    }
    println!("    ours:   {}\n    theirs: {}", found.ours, found.theirs);
    if history {
        for (whose, answer) in [("ours", &found.answers.0), ("theirs", &found.answers.1)] {
            println!("    all of {whose}:\n        {}", answer.lines.join("\n        "));
        }
        for statement in &found.before {
            println!("        {statement};");
        }
    }
}

fn connect(target: &str) -> Result<Client> {
    Client::start(wire::open(target)?, 5)
}

/// Runs the command and reconnects to both.
fn restart(options: &Options, keyspace: &str) -> Result<Done> {
    shell(options.restart.as_deref().unwrap_or("true"))?;
    // A connection is warned once, of a statement that its server had not prepared yet. A new one
    // is prepared here, so that later statements behave the same whether the servers know them or
    // not.
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let unknown = format!("SELECT key FROM local WHERE key = '{}'", since.as_nanos());
    let again = |target: &str| {
        let mut client = connect(target)?;
        client.query("USE system", &Parameters::default())?;
        client.prepare(&unknown, None)?;
        let response = client.query(&format!("USE {keyspace}"), &Parameters::default())?;
        match response.answer {
            Answer::Error(error) => bail!("{target} after the restart: {}", error.message),
            _ => Ok(client),
        }
    };
    Ok(Done::Anew(Box::new((again(&options.ours)?, again(&options.theirs)?))))
}

/// Flushes or compacts the reference.
fn command_their_admin(options: &Options, upset: Upset, keyspace: &str) -> Result<()> {
    let Some(command) = &options.their_admin else { return Ok(()) };
    let what = match upset {
        Upset::Flush => "flush",
        Upset::Compact => "compact",
        Upset::Restart => return Ok(()),
    };
    shell(&format!("{command} {what} {keyspace}"))
}

fn shell(command: &str) -> Result<()> {
    let status = std::process::Command::new("sh").arg("-c").arg(command).status()?;
    if !status.success() {
        bail!("{command}: {status}");
    }
    Ok(())
}

/// Sends the command to the admin port by HTTP.
fn ask_admin(admin: &str, upset: Upset, keyspace: &str) -> Result<()> {
    let what = match upset {
        Upset::Flush => "keyspace_flush",
        Upset::Compact => "keyspace_compaction",
        Upset::Restart => return Ok(()),
    };
    wire::order(admin, what, keyspace, wire::ANSWER_MAX)
}
