//! `helenus cluster`: several nodes as processes of this machine, on 127.0.0.1, 127.0.0.2, …, for
//! trying things out and for tests.
//!
//! Owns: a directory with the nodes' work directories, their logs, and `cluster.json`. Never:
//! signals a process that it did not start itself: a process is identified by its number and its
//! start time ([`process`]).
//!
//! Reading order: [`file`] (persisted state), [`process`], [`start`], [`growth`], then the other
//! commands here.

mod file;
mod growth;
mod partition;
mod process;
mod start;

use std::path::PathBuf;
use std::process::Command as Program;
use std::time::{Duration, Instant};

use blocking_client::api::ApiAccess;
use clap::{Args, Subcommand};
use tool_io::api_flags::ApiFlags;

use crate::exit;
use file::{ClusterDir, ClusterFile, NodeFile};
use process::{Signal, State};

/// Port for CQL clients; the addresses of nodes differ, their ports do not.
const CQL_PORT: u16 = 9042;
/// Port for CQL clients that choose the shard.
const SHARD_AWARE_PORT: u16 = 19_042;
/// Port for other nodes.
const STORAGE_PORT: u16 = 7000;
/// Port for nodetool.
const API_PORT: u16 = 10_000;
/// Interval of polls.
const STEP: Duration = Duration::from_millis(50);

/// The command line of `helenus cluster`.
#[derive(Clone, Debug, Args)]
pub struct Local {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

/// Commands of a local cluster.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Start a cluster, or the nodes of one that do not run, and wait until they serve clients
    #[command(after_help = START_HELP)]
    Start(start::Arguments),
    /// Stop the nodes, or one of them, as SIGTERM does: they drain first
    Stop {
        /// Only this node
        node: Option<u16>,
        /// Seconds to wait at most
        #[arg(long, default_value_t = 120)]
        timeout: u64,
    },
    /// Show the nodes and whether they serve clients; exit code 0 when all members do, else 1
    Status {
        #[command(flatten)]
        login: ApiFlags,
    },
    /// Kill a node (SIGKILL), as in a crash
    Kill {
        /// Its number, from 1 on
        node: u16,
    },
    /// Start a node that does not run and wait until it serves clients
    StartNode {
        /// Its number, from 1 on
        node: u16,
        /// Seconds to wait at most
        #[arg(long, default_value_t = 120)]
        timeout: u64,
    },
    /// Stop a node as SIGTERM does, start it again and wait until it serves clients
    Restart {
        /// Its number, from 1 on
        node: u16,
        /// Seconds to wait at most
        #[arg(long, default_value_t = 120)]
        timeout: u64,
    },
    /// Start one more node and wait until it has joined and serves clients
    Add {
        /// Its datacenter [default: the one with the fewest nodes]
        #[arg(long)]
        dc: Option<String>,
        /// Its rack [default: the one with the fewest nodes there]
        #[arg(long)]
        rack: Option<String>,
        /// Seconds to wait at most
        #[arg(long, default_value_t = 120)]
        timeout: u64,
    },
    /// Put a new node with empty files in the place of one that does not run, at the same address:
    /// it takes over that node's tokens and copies the data from the others. It is started when the
    /// others see the old one as dead
    Replace {
        /// Its number, from 1 on
        node: u16,
        /// Seconds to wait at most
        #[arg(long, default_value_t = 120)]
        timeout: u64,
        // Last: options after a flattened group are shown under its heading.
        #[command(flatten)]
        login: ApiFlags,
    },
    /// Stop a node's process, as SIGSTOP does: its connections stay open and nothing answers
    Pause {
        /// Its number, from 1 on
        node: u16,
    },
    /// Resume a paused node
    Resume {
        /// Its number, from 1 on
        node: u16,
    },
    /// Print the end of a node's log
    Logs {
        /// Its number, from 1 on
        node: u16,
        /// How many lines
        #[arg(short = 'n', long, default_value_t = 100)]
        lines: usize,
    },
    /// Cut the links between groups of nodes: what they send each other is held back, clients still
    /// reach all of them. It stays so, also for nodes that are started later, until it is healed
    #[command(after_help = PARTITION_HELP)]
    Partition {
        /// Groups such as 1,2 3; one alone is cut off from all other nodes
        #[arg(required = true, value_name = "GROUP")]
        groups: Vec<String>,
        #[command(flatten)]
        login: ApiFlags,
    },
    /// End all partitions
    Heal {
        #[command(flatten)]
        login: ApiFlags,
    },
}

const START_HELP: &str = "\
Node N listens on 127.0.0.N (--address moves that): 9042 for CQL, 7000 for other nodes, 10000 for nodetool.
Its files are in DIR/nodeN, its log is DIR/nodeN.log. Options after -- go to every node:
  helenus cluster start --nodes 3 --racks a,b,c -- --log-level debug
Without options, the nodes of an existing DIR are started as they were made. Variables of the
environment that begin with HELENUS_ are not passed on. Ctrl-C while it waits stops the
nodes that it has started. Afterwards they run in the background until \"helenus cluster stop\".";

const PARTITION_HELP: &str = "\
Examples:
  helenus cluster partition 1,2 3       1 and 2 on one side, 3 on the other
  helenus cluster partition 3           the same with three nodes
  helenus cluster partition 1 3         1 and 3 do not reach each other, 2 reaches both
Each call replaces what was cut before. A node that is in no group keeps all its links.";

/// Where the cluster is.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// Directory of the cluster
    #[arg(long, global = true, default_value = "./helenus-cluster")]
    dir: PathBuf,
}

/// Cause of a failed command: its text, and the exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    fn new(code: u8, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into() }
    }

    fn usage(text: impl Into<String>) -> Failure {
        Failure::new(exit::USAGE, text)
    }

    fn failed(text: impl Into<String>) -> Failure {
        Failure::new(exit::FAILED, text)
    }
}

/// Runs a command; the exit code.
pub fn main(local: Local) -> u8 {
    match run(&local.place, local.command) {
        Ok(code) => code,
        Err(failure) => {
            complain_line!("helenus cluster: {}", failure.text);
            failure.code
        }
    }
}

fn run(place: &Place, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Start(arguments) => start::start(place, arguments),
        Command::Stop { node, timeout } => stop(place, node, timeout),
        Command::Status { login } => status(place, &login),
        Command::Kill { node } => {
            signal(place, node, Signal::Kill)?;
            say_line!("node {node} was killed");
            Ok(exit::OK)
        }
        Command::StartNode { node, timeout } => {
            let (dir, mut file) = open(place)?;
            known(&file, node)?;
            start::start_nodes(&dir, &mut file, &[node], timeout)?;
            Ok(exit::OK)
        }
        Command::Restart { node, timeout } => {
            stop(place, Some(node), timeout)?;
            let (dir, mut file) = open(place)?;
            start::start_nodes(&dir, &mut file, &[node], timeout)?;
            Ok(exit::OK)
        }
        Command::Add { dc, rack, timeout } => {
            let (dir, mut file) = open(place)?;
            let node = growth::add(&dir, &mut file, dc.as_deref(), rack.as_deref(), timeout)?;
            say_line!("node {node} has joined");
            Ok(exit::OK)
        }
        Command::Replace { node, login, timeout } => {
            let access = login.open().map_err(Failure::usage)?;
            let (dir, mut file) = open(place)?;
            known(&file, node)?;
            let dead = start::Dead { number: node, timeout };
            start::replace_node(&access, &dir, &mut file, dead)?;
            let old = place.dir.join(format!("node{node}.replaced"));
            say_line!("node {node} was replaced; its old files are in {}", old.display());
            Ok(exit::OK)
        }
        Command::Pause { node } => {
            signal(place, node, Signal::Stop)?;
            say_line!("node {node} is paused; go on with \"helenus cluster resume {node}\"");
            Ok(exit::OK)
        }
        Command::Resume { node } => {
            signal(place, node, Signal::Continue)?;
            say_line!("node {node} is resumed");
            Ok(exit::OK)
        }
        Command::Logs { node, lines } => logs(place, node, lines),
        Command::Partition { groups, login } => partition::partition(place, &login, &groups),
        Command::Heal { login } => partition::partition(place, &login, &[]),
    }
}

/// Opens the directory, locked for this command, and reads the cluster's file.
fn open(place: &Place) -> Result<(ClusterDir, ClusterFile), Failure> {
    let dir = ClusterDir::open(&place.dir)?;
    let file = dir.load()?.ok_or_else(|| {
        Failure::usage(format!(
            "there is no cluster in \"{}\"; make one with \"helenus cluster start\", or name the \
             directory with --dir",
            place.dir.display()
        ))
    })?;
    Ok((dir, file))
}

fn known(file: &ClusterFile, node: u16) -> Result<&NodeFile, Failure> {
    file.node(node).ok_or_else(|| {
        Failure::usage(format!("there is no node {node}; there are 1 to {}", file.nodes.len()))
    })
}

fn signal(place: &Place, number: u16, signal: Signal) -> Result<(), Failure> {
    let (dir, mut file) = open(place)?;
    let node = known(&file, number)?;
    let Some(process) = node.process.clone().filter(|p| p.state() != State::Gone) else {
        return Err(Failure::failed(format!("node {number} does not run")));
    };
    process.signal(signal).map_err(|e| Failure::failed(format!("node {number}: {e}")))?;
    if signal == Signal::Kill {
        wait_until_gone(&file, &[number], Duration::from_secs(10));
        file.forget_process(number);
        dir.save(&file)?;
    }
    Ok(())
}

/// Waits for processes to end; those that did not.
fn wait_until_gone(file: &ClusterFile, numbers: &[u16], at_most: Duration) -> Vec<u16> {
    let deadline = Instant::now() + at_most;
    loop {
        let running: Vec<u16> = numbers.iter().copied().filter(|n| file.runs(*n)).collect();
        if running.is_empty() || Instant::now() >= deadline {
            return running;
        }
        std::thread::sleep(STEP);
    }
}

fn stop(place: &Place, only: Option<u16>, timeout: u64) -> Result<u8, Failure> {
    let (dir, mut file) = open(place)?;
    // The last chance to learn which nodes the next start leaves out.
    if growth::learn_members(&ApiAccess::default(), &mut file) {
        dir.save(&file)?;
    }
    if let Some(number) = only {
        known(&file, number)?;
    }
    let wanted = |n: &&NodeFile| only.is_none_or(|number| n.number == number);
    let numbers: Vec<u16> = file.nodes.iter().filter(wanted).map(|n| n.number).collect();
    stop_nodes(&dir, &mut file, &numbers, Duration::from_secs(timeout))?;
    Ok(exit::OK)
}

/// Tells them all at once to stop and waits for all.
fn stop_nodes(
    dir: &ClusterDir,
    file: &mut ClusterFile,
    numbers: &[u16],
    at_most: Duration,
) -> Result<(), Failure> {
    let running: Vec<u16> = numbers.iter().copied().filter(|n| file.runs(*n)).collect();
    for number in &running {
        let process = file.node(*number).and_then(|n| n.process.clone());
        for signal in [Signal::Terminate, Signal::Continue] {
            // A paused one cannot drain. One that ended in between has the wanted state.
            if let Some(process) = process.as_ref().filter(|p| p.state() != State::Gone) {
                let sent = process.signal(signal);
                sent.map_err(|e| Failure::failed(format!("node {number}: {e}")))?;
            }
        }
    }
    let left = wait_until_gone(file, &running, at_most);
    for number in numbers.iter().filter(|n| !left.contains(n)) {
        file.forget_process(*number);
    }
    dir.save(file)?;
    match running.as_slice() {
        [] => say_line!("nothing to stop"),
        _ if left.is_empty() => say_line!("stopped: node {}", listed(&running)),
        _ => {
            return Err(Failure::failed(format!(
                "still running after {} s: node {}; see its log (\"helenus cluster logs N\"), or \
                 end it with \"helenus cluster kill N\"",
                at_most.as_secs(),
                listed(&left)
            )));
        }
    }
    Ok(())
}

fn listed(numbers: &[u16]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn status(place: &Place, login: &ApiFlags) -> Result<u8, Failure> {
    let dir = ClusterDir::look(&place.dir);
    let Some(mut file) = dir.load()? else {
        return Err(Failure::usage(format!("there is no cluster in \"{}\"", place.dir.display())));
    };
    if growth::learn_members(&login.open().map_err(Failure::usage)?, &mut file)
        && let Ok(dir) = ClusterDir::open(&place.dir)
    {
        // While another command runs, the next one saves it.
        dir.save(&file)?;
    }
    let mut all_serve = true;
    say_line!("{:<5}{:<16}{:<16}{:<10}{:<9}STATE", "NODE", "ADDRESS", "DATACENTER", "RACK", "PID");
    for node in &file.nodes {
        let state = node.process.as_ref().map_or(State::Gone, process::Identity::state);
        let (shown, serves) = match state {
            State::Gone if node.is_out => ("no member: removed, or never joined", true),
            State::Gone => ("stopped", false),
            State::Paused => ("paused", false),
            State::Running if start::answers(&node.address) => ("serving", true),
            State::Running => ("running, not serving clients", false),
        };
        all_serve &= serves;
        let pid = match (&node.process, state) {
            (Some(process), State::Running | State::Paused) => process.pid.to_string(),
            _ => "-".to_owned(),
        };
        say_line!(
            "{:<5}{:<16}{:<16}{:<10}{pid:<9}{shown}",
            node.number,
            node.address,
            node.datacenter,
            node.rack
        );
    }
    if !file.cut.is_empty() {
        say_line!("{}", partition::shown(&file));
    }
    Ok(if all_serve { exit::OK } else { exit::FAILED })
}

fn logs(place: &Place, number: u16, lines: usize) -> Result<u8, Failure> {
    let dir = ClusterDir::look(&place.dir);
    let Some(file) = dir.load()? else {
        return Err(Failure::usage(format!("there is no cluster in \"{}\"", place.dir.display())));
    };
    known(&file, number)?;
    let path = dir.log_of(number);
    complain_line!("{}", path.display());
    // `tail` would do the same; paging is up to the user.
    say!("{}", process::tail(&path, lines));
    Ok(exit::OK)
}

/// This program, for starting nodes.
fn program() -> Result<Program, Failure> {
    let path = std::env::current_exe()
        .map_err(|e| Failure::failed(format!("the program does not know where it is: {e}")))?;
    Ok(Program::new(path))
}

#[cfg(test)]
mod tests;
