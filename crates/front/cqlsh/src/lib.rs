//! The CQL shell: Cassandra's cqlsh without Python.
//!
//! Owns: the command line of `helenus cqlsh`, its connection (a blocking client of the native
//! protocol), statements, shell commands, tables, COPY, the prompt. Never: depends on the server's
//! internals; it works with a Cassandra as well.
//!
//! INV-cqlsh-1: the output of a statement is that of cqlsh 6.2; where this shell differs,
//! `docs/user/cqlsh.md` documents it. INV-cqlsh-2: an option that does nothing is refused by its
//! name.
//!
//! Reading order: `options`, `shell`, `statement`, `commands`, `format`, `copy`.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod commands;
mod complete;
mod config;
mod connection;
mod copy;
mod display;
mod editor;
mod failure;
mod format;
mod help;
mod home;
mod input;
mod interrupt;
mod lex;
mod name_queries;
mod options;
mod schema;
mod shell;
mod statement;
mod time;
mod tls;
mod trace;

pub use commands::ask_password;

use std::io::{IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use input::{Input, Lines};
use options::{Asked, Environment, Options};
use shell::Shell;

/// Runs the shell with the arguments after `cqlsh`. Returns the exit status: 0, 1 when there is no
/// connection, 2 for a wrong command line or a failed statement of a script.
pub fn main(arguments: &[String]) -> u8 {
    let environment = Environment {
        variable: &|name| std::env::var(name).ok(),
        read: &|path| std::fs::read_to_string(path).ok(),
        is_open_to_others: &is_open_to_others,
        stdin_is_terminal: std::io::stdin().is_terminal(),
    };
    let mut options = match options::read(arguments, &environment) {
        Ok(Asked::Run(options)) => *options,
        Ok(Asked::Print(text)) => {
            return match std::io::stdout().write_all(text.as_bytes()) {
                // A reader that closed the pipe early is no error.
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => 1,
                _ => 0,
            };
        }
        Err(error) => {
            say(&error);
            return 2;
        }
    };
    say_notices(&options);
    if options.username.is_some() && options.password.is_none() {
        options.password = Some(commands::ask_password());
    }
    if options.debug {
        let seconds = options.connect_timeout.as_secs();
        say(&format!("Using helenus cqlsh {}", env!("CARGO_PKG_VERSION")));
        say(&format!("Using connect timeout: {seconds} seconds"));
        let tls = if options.tls.is_some() { "True" } else { "False" };
        say(&format!("Using 'utf-8' encoding\nUsing ssl: {tls}"));
    }
    options.color = Some(options.color.unwrap_or_else(use_color));
    if let Some(tls) = &options.tls
        && let Err(error) = tls.trusted(&options.host)
    {
        say(&error);
        return 1;
    }
    let input = match open_input(&options) {
        Ok(input) => input,
        Err(error) => {
            say(&error);
            return 1;
        }
    };
    if options.tty
        && options.execute.is_none()
        && options.file.is_none()
        && let Ok(interrupt) = interrupt::Interrupt::watch()
    {
        options.interrupt = interrupt;
    }
    let target = target(&options);
    match Shell::open(options, input) {
        Ok(mut shell) => shell.run(),
        Err(failure) if failure.code.is_some() && failure.class != "AuthenticationFailed" => {
            say(&format!("Connection error: {}", failure.text));
            1
        }
        Err(failure) => {
            say(&format!("Connection error: {}", commands::no_servers(&target, &failure)));
            1
        }
    }
}

/// Prints the notices and remarks of the settings first.
fn say_notices(options: &Options) {
    for notice in &options.notices {
        say(notice);
    }
    for remark in &options.remarks {
        // If standard output fails, the error cannot be shown either.
        let _ = std::io::stdout().write_all(format!("{remark}\n").as_bytes());
    }
    if options.tls.as_ref().is_some_and(|tls| tls.names_version) {
        // cqlsh prints this on standard output.
        let _ = std::io::stdout().write_all(tls::VERSION_NOTICE.as_bytes());
    }
}

fn target(options: &Options) -> connection::Target {
    connection::Target {
        host: options.host.clone(),
        port: options.port,
        version: options.version,
        user: None,
        cql_version: None,
        connect_timeout: options.connect_timeout,
        interrupt: options.interrupt.clone(),
        tls: options.tls.clone(),
    }
}

fn open_input(options: &Options) -> Result<Box<dyn Input>, String> {
    if let Some(path) = &options.file {
        let text = input::read_text(path)
            .map_err(|error| format!("Can't open {}: {error}", failure::python_repr(path)))?;
        return Ok(Box::new(Lines::new(path, std::io::Cursor::new(text), false)));
    }
    if options.tty && options.execute.is_none() && std::io::stdin().is_terminal() {
        let history = history_path();
        return Ok(Box::new(editor::Terminal::open(history, options.history)?));
    }
    let stdin = std::io::BufReader::new(std::io::stdin());
    Ok(Box::new(Lines::new("<stdin>", stdin, options.tty)))
}

/// `$CQL_HISTORY`, or `~/.cassandra/cqlsh_history`.
fn history_path() -> Option<std::path::PathBuf> {
    match std::env::var_os("CQL_HISTORY") {
        Some(path) => Some(path.into()),
        None => Some(Path::new(&std::env::var_os("HOME")?).join(".cassandra/cqlsh_history")),
    }
}

/// A line on standard error.
fn say(text: &str) {
    // A failure here cannot be reported anywhere.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

fn use_color() -> bool {
    let terminal = std::env::var("TERM").unwrap_or_default();
    std::io::stdout().is_terminal() && !matches!(terminal.as_str(), "" | "dumb")
}

/// Returns true if the file is readable by group or others, or owned by another user (root may read
/// files of any owner).
fn is_open_to_others(path: &Path) -> bool {
    let Ok(file) = std::fs::metadata(path) else { return false };
    let own = std::fs::metadata("/proc/self").map_or(file.uid(), |process| process.uid());
    file.permissions().mode() & 0o044 != 0 || (own != 0 && own != file.uid())
}
