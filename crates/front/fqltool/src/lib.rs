//! `helenus fqltool`: prints full query logs, replays them against clusters, compares the stored answers. Commands and
//! options are those of Cassandra's fqltool; it reads the logs of both.
//!
//! Owns: the command line ([`arguments`]), sources of records ([`source`], Cassandra's in [`chronicle_log`]) and their
//! order ([`merge`]), the print ([`dump`]), which records are replayed ([`filter`]), requests ([`target`]), stored answers ([`results`]), their
//! comparison ([`compare`]), latencies ([`latency`]), the replay ([`replay`]). Never: bytes of records (crate
//! `query-log`), frames (crate `cql-client`).
//!
//! Invariants:
//! - INV-fqltool-1: memory is bounded: records that are read ahead, and the rows of one answer.
//! - INV-fqltool-2: a statement with a masked password is not replayed.
//!
//! Reading order: as above.

#[macro_use(say, say_line, complain_line)]
extern crate tool_io;

pub mod arguments;
pub mod chronicle_log;
pub mod compare;
pub mod dump;
pub mod filter;
pub mod frame_file;
pub mod latency;
pub mod merge;
pub mod replay;
pub mod results;
pub mod source;
pub mod target;

use arguments::{Command, USAGE};
use tool_io::exit;

/// Failure of the tool: its exit code and message.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit code.
    pub code: u8,
    /// In words.
    pub message: String,
}

impl Failure {
    /// A failure with code 1.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { code: exit::FAILED, message: message.into() }
    }

    /// Damaged or refused files.
    pub fn damaged(message: impl Into<String>) -> Failure {
        Failure { code: exit::DAMAGED, message: message.into() }
    }
}

/// Runs the tool; returns its exit code.
pub fn main(arguments: &[String]) -> u8 {
    let command = match arguments::parse(arguments) {
        Ok(Some(command)) => command,
        Ok(None) => {
            say!("{USAGE}");
            return exit::OK;
        }
        Err(message) => {
            say_line!("fqltool: {message}");
            say_line!("See 'fqltool help'.");
            return exit::FAILED;
        }
    };
    let done = match command {
        Command::Dump(options) => dump::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Compare(options) => compare::run(&options),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            complain_line!("fqltool: {}", failure.message);
            failure.code
        }
    }
}
