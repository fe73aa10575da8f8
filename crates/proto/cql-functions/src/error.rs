//! The one error of this crate, as a CQL user sees it.

use std::fmt;

use types::TypeError;

/// Error code of the native protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanErrorCode {
    /// 0x2000.
    Syntax,
    /// 0x2100.
    Unauthorized,
    /// 0x2200.
    Invalid,
    /// 0x2300.
    Config,
    /// 0x2400, with the keyspace and table (empty for a keyspace) that exist already.
    AlreadyExists {
        /// Keyspace name.
        keyspace: String,
        /// Table name or empty.
        table: String,
    },
    /// 0x000A.
    Protocol,
    /// 0x1400.
    FunctionFailure {
        /// The function's keyspace; `system` for native ones.
        keyspace: String,
        /// The function's name.
        function: String,
        /// Types of its arguments; empty for native ones.
        args: Vec<String>,
    },
}

/// Kinds of errors that a caller handles in another way than the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanErrorKind {
    /// Handled like every other error.
    Other,
    /// A call that no function fits, or more than one. Cassandra resolves functions before it checks the rest of
    /// some statements.
    FunctionCall,
    /// A page of a read that has none. Its warnings are sent with it.
    Unpageable,
    /// A text that is not of the form of a duration. Cassandra reports it without its place in a JSON document.
    DurationFormat,
}

/// An error with its code and exactly Cassandra's message where Cassandra has the error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an error that is made and dropped refuses nothing"]
pub struct PlanError {
    /// The kind of error.
    pub code: PlanErrorCode,
    /// Kind of failure.
    pub kind: PlanErrorKind,
    /// The message.
    pub message: String,
}

impl PlanError {
    fn other(code: PlanErrorCode, message: impl Into<String>) -> PlanError {
        PlanError { code, kind: PlanErrorKind::Other, message: message.into() }
    }

    /// 0x2200 of a call that cannot be resolved to one function.
    pub fn function_call(message: impl Into<String>) -> PlanError {
        PlanError { kind: PlanErrorKind::FunctionCall, ..PlanError::invalid(message) }
    }

    /// 0x2200 of a read that cannot be paged.
    pub fn unpageable(message: impl Into<String>) -> PlanError {
        PlanError { kind: PlanErrorKind::Unpageable, ..PlanError::invalid(message) }
    }

    /// 0x2000.
    pub fn syntax(message: impl Into<String>) -> PlanError {
        PlanError::other(PlanErrorCode::Syntax, message)
    }

    /// 0x2200.
    pub fn invalid(message: impl Into<String>) -> PlanError {
        PlanError::other(PlanErrorCode::Invalid, message)
    }

    /// 0x2300.
    pub fn config(message: impl Into<String>) -> PlanError {
        PlanError::other(PlanErrorCode::Config, message)
    }

    /// 0x2100.
    pub fn unauthorized(message: impl Into<String>) -> PlanError {
        PlanError::other(PlanErrorCode::Unauthorized, message)
    }

    /// 0x000A.
    pub fn protocol(message: impl Into<String>) -> PlanError {
        PlanError::other(PlanErrorCode::Protocol, message)
    }

    /// 0x1400 of a native function.
    pub fn function_failure(
        function: &str,
        args: &[&str],
        message: impl Into<String>,
    ) -> PlanError {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        PlanError::user_function_failure("system", function, args, message)
    }

    /// 0x1400.
    pub fn user_function_failure(
        keyspace: &str,
        function: &str,
        args: Vec<String>,
        message: impl Into<String>,
    ) -> PlanError {
        let (keyspace, function) = (keyspace.to_owned(), function.to_owned());
        let code = PlanErrorCode::FunctionFailure { keyspace, function, args };
        PlanError::other(code, message)
    }

    /// Something that Cassandra has and Helenus does not have yet: refused by name.
    pub fn unsupported(what: &str) -> PlanError {
        PlanError::invalid(format!("{what} is not supported by this version of Helenus"))
    }

    /// 0x2400 for a keyspace.
    pub fn keyspace_exists(keyspace: &str) -> PlanError {
        let code =
            PlanErrorCode::AlreadyExists { keyspace: keyspace.to_owned(), table: String::new() };
        PlanError::other(code, format!("Cannot add existing keyspace \"{keyspace}\""))
    }

    /// 0x2400 for a table.
    pub fn table_exists(keyspace: &str, table: &str) -> PlanError {
        let code =
            PlanErrorCode::AlreadyExists { keyspace: keyspace.to_owned(), table: table.to_owned() };
        let message =
            format!("Cannot add already existing table \"{table}\" to keyspace \"{keyspace}\"");
        PlanError::other(code, message)
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PlanError {}

impl From<TypeError> for PlanError {
    fn from(error: TypeError) -> PlanError {
        let kind = match &error {
            TypeError::DurationFormat(_) => PlanErrorKind::DurationFormat,
            _ => PlanErrorKind::Other,
        };
        PlanError { kind, ..PlanError::invalid(error.to_string()) }
    }
}

impl From<cql_syntax::SyntaxError> for PlanError {
    fn from(error: cql_syntax::SyntaxError) -> PlanError {
        PlanError::syntax(error.message)
    }
}
