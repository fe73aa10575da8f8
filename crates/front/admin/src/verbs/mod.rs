//! The verbs of nodetool: what each takes, asks of the API and prints.
//!
//! Owns: the table of verbs ([`VERBS`]) with everything that differs from verb to verb, Cassandra's command
//! line, its help, the verbs that are refused. Never: sockets, standard output, the clock, which are the
//! [`Terminal`]'s; layouts, which are [`crate::nodetool`]'s.
//!
//! A new verb is a row in `table` and one function: see `docs/dev/nodetool-command.md`.
//!
//! Reading order: `command` (a row), `table`, `line` (what a function gets), `client`, then one of the others.

mod audit;
mod auth_caches;
mod cidr;
mod client;
mod cluster;
mod command;
mod flags;
mod help;
mod limits;
mod line;
mod names;
mod node;
mod parser;
mod query_log;
mod refused;
mod repair;
mod repaired_set;
mod sampling;
mod settings;
mod snapshots;
mod table;
mod tables;
mod token_metadata;
mod upkeep;

pub use client::{ApiRequest, HttpError, NodeApi, Terminal};
pub use command::{Argument, Flag, Verb};
pub use help::help;
pub use line::{Failure, Line, Outcome};
pub use parser::parse;
pub use refused::{REFUSED, refused};
pub use table::{VERBS, verb};

/// Runs the verb of a line; returns its output.
///
/// # Errors
/// See [`Failure`]; never `Help`.
pub fn run(line: &Line) -> Outcome {
    let outcome = match verb(line.verb) {
        Some(verb) => (verb.run)(line),
        None => Err(Failure::Help(None)),
    };
    match outcome {
        Err(Failure::Help(name)) => Ok(help(name.as_deref())),
        other => other,
    }
}

#[cfg(test)]
mod tests;
