//! `perf copy`: COPY FROM and COPY TO of `helenus cqlsh` and of Cassandra's cqlsh against the same
//! server, in turns.
//!
//! Rows per second are by the clock, from the start of the shell to its end; CPU is that of the
//! shell and its children. Shell and server share the machine, as they do for both shells.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::process::{Server, build_helenus, helenus_binary};
use super::report::median;

/// Ticks per second of `/proc` on the platforms that are built for.
const TICKS: f64 = 100.0;
/// The promise: rows per second of ours for one of cqlsh.
const GOAL: f64 = 10.0;
const SCHEMA: &str = "CREATE KEYSPACE copy WITH replication = {'class': 'SimpleStrategy', \
    'replication_factor': 1}; CREATE TABLE copy.t (id int PRIMARY KEY, a text, b bigint, c text, d double)";

/// One copy.
#[derive(Clone, Copy)]
struct Took {
    seconds: f64,
    cpu: f64,
}

/// A shell and what its copies took.
struct Shell {
    name: &'static str,
    words: Vec<String>,
    from: Vec<Took>,
    to: Vec<Took>,
}

/// Runs it. True also when the goal is missed: figures depend on the machine.
///
/// # Errors
/// A shell or the server fails, or not all rows arrive.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let number = |name: &str, default: usize| -> Result<usize> {
        match words.iter().position(|word| *word == name) {
            None => Ok(default),
            Some(at) => Ok(words.get(at + 1).context("a number is missing")?.parse()?),
        }
    };
    let (rows, rounds) = (number("--rows", 500_000)?, number("--rounds", 3)?);
    let theirs = match std::env::var("CQLSH") {
        Ok(path) => PathBuf::from(path),
        Err(_) => root.join("target/drivers/cqlsh/bin/cqlsh"),
    };
    if !theirs.exists() {
        bail!("{} is not there; tests/drivers/cqlsh/run.sh installs it", theirs.display());
    }
    build_helenus(root)?;
    let home = root.join("target/perf");
    crate::disk::create_dir_all(&home)?;
    let binary = helenus_binary(root).display().to_string();
    let ours = std::env::var("HELENUS_CQLSH").unwrap_or(format!("{binary} cqlsh"));
    let ours = ours.split_whitespace().map(str::to_owned).collect();
    let shell = |name, words| Shell { name, words, from: Vec::new(), to: Vec::new() };
    let mut shells =
        [shell("helenus cqlsh", ours), shell("cqlsh", vec![theirs.display().to_string()])];
    write_rows(&home.join("copy.csv"), rows)?;
    let server = Server::helenus(root, &home, "2G")?;
    let [first, _] = &shells;
    execute(&home, first, &server, SCHEMA)?;
    for _ in 0..rounds {
        for shell in &mut shells {
            execute(&home, shell, &server, "TRUNCATE copy.t")?;
            let from = "COPY copy.t (id, a, b, c, d) FROM 'copy.csv'";
            let from = copy(&home, shell, &server, from, &format!("{rows} rows imported"))?;
            let to = "COPY copy.t (id, a, b, c, d) TO 'copy.out'";
            let to = copy(&home, shell, &server, to, &format!("{rows} rows exported"))?;
            println!("{:13} FROM {:.2} s, TO {:.2} s", shell.name, from.seconds, to.seconds);
            shell.from.push(from);
            shell.to.push(to);
        }
    }
    server.stop()?;
    print!("{}", report(rows, &shells));
    Ok(true)
}

fn write_rows(path: &Path, rows: usize) -> Result<()> {
    let mut file = std::io::BufWriter::new(crate::disk::create(path)?);
    for row in 0..rows {
        let (user, number) = (row % 1000, row * 7919 % 100_000);
        writeln!(file, "{row},user{user:04},{number},text number {row} of this file,{row}.5")?;
    }
    Ok(file.flush()?)
}

fn execute(home: &Path, shell: &Shell, server: &Server, statement: &str) -> Result<String> {
    let (program, words) = shell.words.split_first().context("no shell")?;
    let (host, port) = server.address().rsplit_once(':').context("no port")?;
    let done = Command::new(program)
        .args(words)
        .args([host, port, "--request-timeout=60", "-e", statement])
        .current_dir(home)
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr).into_owned();
        let end = why.lines().last().unwrap_or_default();
        bail!("{}: {statement}: {}: {end}", shell.name, done.status);
    }
    Ok(said)
}

fn copy(home: &Path, shell: &Shell, server: &Server, statement: &str, says: &str) -> Result<Took> {
    let (before, begun) = (cpu_of_children()?, Instant::now());
    let said = execute(home, shell, server, statement)?;
    let took = Took { seconds: begun.elapsed().as_secs_f64(), cpu: cpu_of_children()? - before };
    if !said.contains(says) {
        bail!("{} did not say \"{says}\" for {statement}", shell.name);
    }
    Ok(took)
}

/// User and system seconds of all processes that were waited for.
fn cpu_of_children() -> Result<f64> {
    let stat = crate::disk::read_to_string("/proc/self/stat")?;
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let field = |at: usize| rest.split_whitespace().nth(at).and_then(|v| v.parse::<f64>().ok());
    match (field(13), field(14)) {
        (Some(user), Some(system)) => Ok((user + system) / TICKS),
        _ => bail!("cannot read /proc/self/stat"),
    }
}

fn report(rows: usize, shells: &[Shell; 2]) -> String {
    let middle = |all: &[Took], of: fn(&Took) -> f64| median(all.iter().map(of));
    let mut text =
        "\n| rows per second | helenus cqlsh | cqlsh | ratio | goal | by CPU of the shell |\n\
         | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    let [ours, theirs] = shells;
    for (name, ours, theirs) in
        [("COPY FROM", &ours.from, &theirs.from), ("COPY TO", &ours.to, &theirs.to)]
    {
        let rate = |all: &[Took]| rows as f64 / middle(all, |took| took.seconds);
        let cpu = middle(theirs, |took| took.cpu) / middle(ours, |took| took.cpu);
        let ratio = rate(ours) / rate(theirs);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {name} | {:.0} | {:.0} | {ratio:.1} | {GOAL} | {cpu:.1} |",
            rate(ours),
            rate(theirs)
        );
    }
    text
}
