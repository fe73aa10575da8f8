//! Developer commands. `cargo xtask help` lists them.
//!
//! Owns: the checks before a merge, and their order. Never: product code.

mod amplification;
mod book;
mod disk;
mod documents;
mod english;
mod files;
mod fuzz;
mod layers;
mod names;
mod perf;
mod scan;
mod steps;
mod structure;
mod tidy;
mod verification;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const HELP: &str = "\
cargo xtask COMMAND

  tidy              layers, permissions, licences, names, forbidden words, links, anchors
  check             before a commit: format, tidy, lints, unit tests, conformance
  test [STEP…]      the one test command: every step below, or the named ones
  ci                the same as test
  steps             names of the steps of `test`, one a line
  fuzz [--list]     names of the fuzz functions
  fuzz NAME [SECONDS]   runs one under libFuzzer (needs a nightly toolchain)
  perf compare [--only null,load,equal,start,scans,compaction,tls,handshakes,audit,at-rest] [--rows 500000] [--seconds 15] [--warm 20]
               [--repeat 3] [--equal-repeat 5] [--start-repeat 5] [--memory 1G]
               [--restart-mb 1024] [--replay-mb 256] [--compacted standard1|series]
               [--without-cassandra]
                    a null server, Helenus and a real Cassandra in turn on this machine: their
                    ratios and the goals (docs/dev/performance.md)
  perf copy [--rows 500000] [--rounds 3]
                    COPY of `helenus cqlsh` and of Cassandra's cqlsh against the same server;
                    CQLSH names the latter
  perf cluster [--only start,schema,load,lwt,equal,contended,scans,batch] [--rows 100000]
               [--seconds 10] [--warm 10] [--cassandra-warm 60] [--repeat 3] [--rates 500,1000]
               [--start-repeat 3] [--memory 1G] [--flush] [--without-cassandra]
                    three nodes of Helenus and of Cassandra, RF 3: QUORUM, conditional writes, one
                    contended key, whole tables, start
  perf indexes [--only reads,writes,vectors] [--rows 1000000] [--vectors 200000] [--queries 100]
               [--repeat 3] [--warm 6] [--memory 2G] [--vector-file F.npy|--synthetic]
               [--without-cassandra]
                    secondary indexes of Helenus and of Cassandra: CPU of queries, writes, flushes,
                    compactions, nearest vectors with their recall, bytes on the disk
  perf replicated [--operations 50000] [--in-flight 64] [--memory 512M]
                    instructions and system calls of each of three nodes per QUORUM write, QUORUM
                    read and conditional insert (needs perf and its hardware counters)
  perf streaming [--mb 1000] [--rows-mb 250] [--memory 1G]
                    one node copies a table from another: MB/s and CPU of whole files, rows and a
                    plain socket
  perf large [--mb 10000] [--memory 512M]
                    a table larger than the memory read whole, counted, filtered: resident memory
  perf wide [--mb 4000] [--memory 512M]
                    one partition larger than the memory, and a million tombstones: read, compacted
  perf repair [--mb 1000] [--memory 1G]
                    bytes read and sent by a repair of two nodes in sync
  perf files [--rows 100000]
                    MB of lists of random ints in both formats with two compressors; how long it takes
                    to open 1,000 SSTables
  perf formats [--mb 128] [--repeat 3] [--rows 20000]
                    the four versions of SSTables that are written: CPU of flush and compaction, size,
                    instructions of reads
  perf engine [--mb 256] [--repeat 3] [--dev]
                    SSTable write and compaction in MB/s per core; fails below the goals
  perf instructions [--release|--dist] [--store]
                    instructions and allocations per request; fails at 5 % above the stored ones
  soak --minutes N [--seed S] [--scenario X] [--runs N]
                    simulated clusters in bulk; prints runs, faults and paths never reached, and
                    for a violation the command that replays it
  amplification [--check]
                    writes docs/internals/amplification.md: writes, reads and space of each
                    compaction strategy over simulated workloads; --check: whether it is so
  english PATH|--accept
                    phrases of the word list (xtask/src/english.rs) in texts, comments and documents below
                    PATH; --accept writes today's numbers to xtask/english.toml
  structure [--accept]
                    writes docs/dev/structure.md: cycles, methods, long functions of each crate;
                    --accept: what is above a limit becomes what tidy allows
  verification      writes the table of simulated scenarios in docs/verification.md
  docs              builds the documents as a site below target/book; needs mdbook, installs nothing
  reference         writes docs/user/configuration.md from the table of settings, and what docs/user/api.md and
                    docs/user/nodetool.md have from the tables of administration
";

/// Variable that names the workspace to the program that runs without cargo's variables.
const ROOT_VARIABLE: &str = "XTASK_ROOT";

fn main() -> ExitCode {
    if let Some(error) = without_cargo_variables() {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs this program again in place of itself, without the variables that `cargo run` sets for its package; returns an error if
/// that failed. Build scripts of dependencies (of `ring`) depend on `CARGO_MANIFEST_DIR`: a build below this program
/// and one from a shell would each compile most of the workspace again.
fn without_cargo_variables() -> Option<anyhow::Error> {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    // Not its path: another build may have replaced the file since this program started.
    let mut again = std::process::Command::new("/proc/self/exe");
    again.args(std::env::args_os().skip(1));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            again.env_remove(&name);
        }
    }
    again.env(ROOT_VARIABLE, package.parent().unwrap_or(&package));
    Some(anyhow::Error::new(again.exec()).context("cannot run this program again"))
}

fn run(arguments: &[String]) -> Result<bool> {
    let root = root()?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["tidy"] => tidy::run(&root),
        ["check"] => steps::run(&root, steps::CHECK, &[]),
        ["test" | "ci", names @ ..] => steps::run(&root, steps::TEST, names),
        ["steps"] => {
            for step in steps::TEST {
                println!("{:12} {}", step.name, step.what);
            }
            Ok(true)
        }
        ["amplification"] => amplification::run(&root, amplification::Task::Write),
        ["amplification", "--check"] => amplification::run(&root, amplification::Task::Check),
        ["fuzz"] | ["fuzz", "--list"] => fuzz::list(&root),
        ["fuzz", name] => fuzz::run(&root, name, 60),
        ["fuzz", name, seconds] => {
            fuzz::run(&root, name, seconds.parse().context("SECONDS is not a number")?)
        }
        ["perf", "instructions", options @ ..] => perf::instructions::run(&root, options),
        ["perf", "engine", options @ ..] => perf::engine::run(&root, options),
        ["perf", "cluster", options @ ..] => perf::cluster::run(&root, options),
        ["perf", "streaming", options @ ..] => perf::streaming::run(&root, options),
        ["perf", "large", options @ ..] => perf::large::run(&root, options),
        ["perf", "wide", options @ ..] => perf::wide::run(&root, options),
        ["perf", "files", options @ ..] => perf::files::run(&root, options),
        ["perf", "formats", options @ ..] => perf::formats::run(&root, options),
        ["perf", "repair", options @ ..] => perf::repair::run(&root, options),
        ["perf", "replicated", options @ ..] => perf::replicated::run(&root, options),
        ["perf", "copy", options @ ..] => perf::copy::run(&root, options),
        ["perf", "indexes", options @ ..] => perf::indexes::run(&root, options),
        ["perf", "compare", options @ ..] => perf::compare(&root, options),
        ["soak", options @ ..] => steps::soak(&root, options),
        ["english", "--accept"] => english::accept(&root).map(|()| true),
        ["english", below] => english::print(&root, below).map(|()| true),
        ["structure"] => structure::write(&root, &layers::members(&root)?, structure::Task::Report)
            .map(|()| true),
        ["structure", "--accept"] => {
            structure::write(&root, &layers::members(&root)?, structure::Task::Accept)
                .map(|()| true)
        }
        ["docs"] => book::build(&root),
        ["verification"] => verification::write(&root).map(|()| true),
        ["reference"] => {
            let path = root.join(tidy::REFERENCE);
            std::fs::write(&path, conf::reference_markdown())
                .with_context(|| format!("cannot write {}", path.display()))?;
            api_reference(&root)
        }
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(true)
        }
        _ => bail!("unknown command \"{}\"; see cargo xtask help", words.join(" ")),
    }
}

/// Has the tests of the tables of administration write their pages, which they compare otherwise.
fn api_reference(root: &Path) -> Result<bool> {
    let mut test = std::process::Command::new("cargo");
    test.args(["test", "--quiet", "-p", "admin", "--lib", "catalog"]).current_dir(root);
    test.env("UPDATE_EXPECT", "1");
    Ok(test.status().context("cannot run cargo")?.success())
}

/// The directory of the workspace.
fn root() -> Result<PathBuf> {
    // A binary that was built in another checkout works on the one it is run in.
    let named = std::env::var_os(ROOT_VARIABLE).map(PathBuf::from);
    if let Some(root) = named.filter(|root| root.join("xtask/Cargo.toml").exists()) {
        return Ok(root);
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_path_buf).context("xtask is not inside the workspace")
}
