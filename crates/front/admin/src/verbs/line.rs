//! A command line that was understood, and the ways in which a verb ends.

use super::client::{HttpError, NodeApi};
use crate::model::ErrorKind;
use crate::nodetool::{self as layout, HostStyle};

/// A command line that was understood.
#[derive(Clone, Debug)]
pub struct Line {
    /// The node that is asked.
    pub api: NodeApi,
    /// How hosts are shown.
    pub(super) style: HostStyle,
    /// Name of the verb.
    pub(super) verb: &'static str,
    /// Options by their last name.
    pub(super) options: Vec<(&'static str, String)>,
    /// Positional arguments.
    pub(super) arguments: Vec<String>,
    /// Properties for a Java virtual machine, `name=value`.
    pub properties: Vec<String>,
}

impl Line {
    /// Returns true if an option was given, by its last name.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(n, _)| *n == name)
    }

    /// All values of an option that may stand several times.
    pub(super) fn values(&self, name: &str) -> Vec<String> {
        self.options.iter().filter(|(n, _)| *n == name).map(|(_, v)| v.clone()).collect()
    }

    /// The last value of an option.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
    }

    /// The first argument; empty: there is none.
    pub(super) fn first(&self) -> String {
        self.arguments.first().cloned().unwrap_or_default()
    }
}

/// Output of a verb, or how else it ends.
pub type Outcome = Result<String, Failure>;

/// How a verb ends other than with its output.
#[derive(Debug)]
pub enum Failure {
    /// `nodetool: …` and where help is.
    BadUse(String),
    /// A text on standard output as it is.
    Printed(String),
    /// The same on standard error.
    Told(String),
    /// The API was not reached.
    Connect(std::io::Error),
    /// The login failed, or is missing.
    Login(String),
    /// `error: …`.
    Node(String),
    /// None: the list of commands, or the help of the one that is named.
    Help(Option<String>),
}

impl Failure {
    /// Code with which nodetool ends: 2 when the node reported an error, 1 for wrong usage and for no connection.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Failure::Node(_) => 2,
            Failure::Help(_) => 0,
            _ => 1,
        }
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        match error {
            HttpError::Connect(error) => Failure::Connect(error),
            HttpError::Refused(ErrorKind::Unauthenticated | ErrorKind::TooManyFailures, words) => {
                Failure::Login(words)
            }
            HttpError::Refused(ErrorKind::Forbidden, words) => {
                Failure::Node(format!("Access Denied: {words}"))
            }
            HttpError::Refused(_, words) | HttpError::Strange(words) => Failure::Node(words),
        }
    }
}

/// The output that `-F` asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
    Yaml,
}

impl Format {
    /// `known` is how Cassandra's command names the two in its refusal.
    pub(super) fn of(line: &Line, known: &str) -> Result<Format, Failure> {
        match line.value("--format") {
            None => Ok(Format::Text),
            Some("json") => Ok(Format::Json),
            Some("yaml") => Ok(Format::Yaml),
            Some(_) => Err(Failure::BadUse(format!("arguments for -F are {known} only."))),
        }
    }

    pub(super) fn choose(
        self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> String,
    ) -> String {
        match self {
            Format::Text => text(),
            Format::Json => json(),
            Format::Yaml => layout::yaml_of_json(&json()),
        }
    }
}
