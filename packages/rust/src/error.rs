//! Failures of a node for tests.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

/// A failure of this crate.
#[derive(Debug)]
pub enum Error {
    /// No server was found.
    NoServer(String),
    /// A setting that this crate chooses, or a wrong port.
    Setting(String),
    /// The server did not start.
    Start {
        /// The outcome: an exit code, or a time.
        reason: String,
        /// The exit code of the server, if it has ended.
        code: Option<i32>,
        /// The last lines of its log.
        log: String,
    },
    /// A statement of `cql` or a command of `nodetool` failed.
    Tool {
        /// The tool.
        tool: &'static str,
        /// Its exit code.
        code: Option<i32>,
        /// The text that it printed.
        printed: String,
    },
    /// The operating system refused a file, a port or a process.
    Io {
        /// The refused action, a verb.
        action: &'static str,
        /// The file or program.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path, error: std::io::Error) -> Error {
        Error::Io { action, path: path.to_owned(), error }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoServer(text) | Error::Setting(text) => f.write_str(text),
            Error::Start { reason, log, .. } => write!(f, "{reason}; the end of its log:\n{log}"),
            Error::Tool { tool, code: Some(code), printed } => {
                write!(f, "{tool} ended with exit code {code}: {printed}")
            }
            Error::Tool { tool, code: None, printed } => {
                write!(f, "{tool} was ended by a signal: {printed}")
            }
            Error::Io { action, path, error } => {
                write!(f, "cannot {action} {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
