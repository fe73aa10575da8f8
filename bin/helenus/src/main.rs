//! The one binary: server, nodetool, CQL shell, offline tools for SSTables and the commit log, load generator.
//!
//! Owns: the command line, the log's form, what this machine offers (cores, memory, host names),
//! signals, exit codes. Never: decisions about data; a node is started through crate `node`.
//!
//! Started as one of Cassandra's tools (`nodetool`, `cqlsh`, `sstabledump`, …) it is that tool: [`tool_names`].
//!
//! Reading order: [`server`], [`nodetool`], [`bench`], [`local_cluster`].

#[macro_use(say, say_line, complain, complain_line)]
extern crate tool_io;

mod audit_helper;
mod audit_viewer;
mod bench;
mod doctor;
mod exit;
mod hash_password;
mod local_cluster;
mod log_records;
mod logging;
mod nodetool;
mod reload;
mod resources;
mod server;
mod signals;
mod token;
mod tool_names;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Bytes cross shards and are freed where they end up, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A database that speaks Cassandra's protocol, query language and files.
#[derive(Debug, Parser)]
#[command(name = "helenus", version = VERSION, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node in the foreground until it is stopped
    #[command(disable_help_flag = true)]
    Server {
        /// Settings as --its-name value; --help lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
        options: Vec<String>,
    },
    /// Ask a running node and command it, as Cassandra's nodetool does
    #[command(disable_help_flag = true)]
    Nodetool {
        /// [-h HOST] [-p PORT] COMMAND …; `help` lists the commands
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<String>,
    },
    /// Type CQL at a server, as with Cassandra's cqlsh
    #[command(disable_help_flag = true)]
    Cqlsh {
        /// [OPTION …] [HOST [PORT]]; --help lists the options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<String>,
    },
    /// Inspect, check, rewrite, export and load SSTable files
    Sstable {
        /// File with the keys of encrypted SSTables
        #[arg(long, global = true, value_name = "FILE")]
        key_file: Option<String>,
        #[command(subcommand)]
        command: sstable_tools::Command,
    },
    /// Create key files of encryption at rest; list and change the keys of encrypted files
    Key {
        #[command(subcommand)]
        command: sstable_tools::keys::Command,
    },
    /// Inspect segments of the commit log
    Commitlog {
        #[command(subcommand)]
        command: sstable_tools::commitlog::Command,
    },
    /// Print binary audit logs, as Cassandra's auditlogviewer does
    #[command(disable_help_flag = true)]
    Auditlogviewer {
        /// [OPTION …] PATH …; --help lists the options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<String>,
    },
    /// Print, replay and compare full query logs, as Cassandra's fqltool does
    #[command(disable_help_flag = true)]
    Fqltool {
        /// COMMAND [OPTION …] PATH …; help lists the commands
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<String>,
    },
    /// Put load on a server over its CQL port and report throughput and latency
    Bench {
        #[command(subcommand)]
        command: bench::Command,
    },
    /// Run several nodes on this machine, on 127.0.0.1, 127.0.0.2, …, to try things out
    Cluster(local_cluster::Local),
    /// Hash a password for WITH HASHED PASSWORD, as Cassandra's hash_password does
    #[command(name = "hash_password", alias = "hash-password")]
    HashPassword(hash_password::Arguments),
    /// Check a node and its configuration
    Doctor(doctor::Doctor),
    /// Create tokens for the API of nodes
    Token {
        #[command(subcommand)]
        command: token::Command,
    },
    /// Print versions
    Version,
}

/// Our version, the one of Cassandra that is announced to drivers, and of CQL.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (Cassandra 5.0.9, CQL 3.4.7)");

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    match as_a_tool(&arguments) {
        Some(Ok(of_tool)) => {
            // The usage that clap prints is that of the command that the name stands for.
            arguments = vec![OsString::from("helenus")];
            arguments.extend(of_tool.into_iter().map(OsString::from));
        }
        Some(Err(code)) => return ExitCode::from(code),
        None => {}
    }
    let matches = Cli::command()
        .after_help(exit::HELP)
        .mut_subcommand("server", |command| command.after_help(server::help()))
        .get_matches_from(arguments);
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let code = match cli.command {
        Command::Server { options } => server::main(options),
        Command::Nodetool { arguments } => nodetool::main(arguments),
        Command::Cqlsh { arguments } => cqlsh::main(&arguments),
        Command::Sstable { key_file, command } => {
            sstable_tools::main_with_keys(command, key_file.as_deref())
        }
        Command::Key { command } => sstable_tools::keys::main(command),
        Command::Commitlog { command } => sstable_tools::commitlog::main(command),
        Command::Auditlogviewer { arguments } => audit_viewer::main(&arguments),
        Command::Fqltool { arguments } => fqltool::main(&arguments),
        Command::Bench { command } => bench::main(command),
        Command::Cluster(local) => local_cluster::main(local),
        Command::HashPassword(arguments) => hash_password::main(arguments),
        Command::Doctor(options) => doctor::main(&options),
        Command::Token { command } => token::main(&command),
        Command::Version => {
            say_line!("helenus {VERSION}");
            exit::OK
        }
    };
    ExitCode::from(code)
}

/// The command line that the name of the binary stands for, or an exit code.
fn as_a_tool(arguments: &[OsString]) -> Option<Result<Vec<String>, u8>> {
    let (program, rest) = arguments.split_first()?;
    let rest: Vec<String> = rest.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    tool_names::of_process(program.to_str()?, &rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn server_takes_every_flag_to_the_settings() {
        let cli = parse("helenus server --smp 2 --listen-address=::1 --help -h").unwrap();
        let Command::Server { options } = cli.command else { panic!("{cli:?}") };
        assert_eq!(options, ["--smp", "2", "--listen-address=::1", "--help", "-h"]);
    }

    #[test]
    fn nodetool_h_is_the_host() {
        let cli = parse("helenus nodetool -h 127.0.0.2 -p 10001 status -r ks").unwrap();
        let Command::Nodetool { arguments } = cli.command else { panic!("{cli:?}") };
        assert_eq!(arguments, ["-h", "127.0.0.2", "-p", "10001", "status", "-r", "ks"]);
    }

    #[test]
    fn cqlsh_takes_every_flag_to_the_shell() {
        let cli = parse("helenus cqlsh -e SELECT --help -h 127.0.0.2 9043").unwrap();
        let Command::Cqlsh { arguments } = cli.command else { panic!("{cli:?}") };
        assert_eq!(arguments, ["-e", "SELECT", "--help", "-h", "127.0.0.2", "9043"]);
    }

    #[test]
    fn sstable_needs_a_command_and_files() {
        assert!(parse("helenus sstable verify a-Data.db b-Data.db").is_ok());
        assert!(parse("helenus sstable verify").is_err());
        assert!(parse("helenus sstable mend a-Data.db").is_err());
    }

    #[test]
    fn commitlog_dump_needs_files() {
        assert!(parse("helenus commitlog dump --json a.log b.log").is_ok());
        assert!(parse("helenus commitlog dump --json").is_err());
    }

    #[test]
    fn unknown_commands_are_a_usage_error() {
        assert_eq!(parse("helenus serve").unwrap_err().exit_code(), i32::from(exit::USAGE));
    }
}
