//! Errors of requests, in the words of Cassandra's cqlsh.
//!
//! Owns: the class name and the text that are printed for each error of the protocol, and for
//! failures on this side. Never: decides whether a request is retried.
//!
//! Source: the texts of the Python driver that cqlsh 6.2 uses (`cassandra/protocol.py`,
//! `cassandra/__init__.py`).

use std::fmt::{self, Write as _};

use cql_wire::{Consistency, ErrorBody, ErrorCode, Failures, WireError};

/// A failed request or connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Name of the error's class.
    pub(crate) class: &'static str,
    /// Its text.
    pub(crate) text: String,
    /// The server's error code, if the error is the server's.
    pub(crate) code: Option<ErrorCode>,
    /// The server's own words.
    pub(crate) message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.text)
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Failure::new("ProtocolError", error.to_string())
    }
}

impl Failure {
    fn new(class: &'static str, text: impl Into<String>) -> Failure {
        let text = text.into();
        Failure { class, message: text.clone(), text, code: None }
    }

    /// The server does not support the requested version of CQL.
    pub(crate) fn cql_version(wanted: &str, known: &[String]) -> Failure {
        let known: Vec<String> = known.iter().map(|version| python_repr(version)).collect();
        Failure::new(
            "ProtocolError",
            format!(
                "cql_version {} is not supported by remote (w/ native protocol). Supported \
                 versions: [{}]",
                python_repr(wanted),
                known.join(", ")
            ),
        )
    }

    /// No usable connection.
    pub(crate) fn connection(text: impl Into<String>) -> Failure {
        Failure::new("ConnectionException", text)
    }

    /// The connection broke.
    pub(crate) fn shutdown(name: &str, why: &str) -> Failure {
        Failure::new("ConnectionShutdown", format!("Connection to {name} was closed: {why}"))
    }

    /// The login failed: credentials are missing or wrong.
    pub(crate) fn authentication(text: impl Into<String>) -> Failure {
        Failure::new("AuthenticationFailed", text)
    }

    /// The deadline of a request is over.
    pub(crate) fn timed_out(name: &str) -> Failure {
        Failure::new(
            "OperationTimedOut",
            format!(
                "errors={{'{name}': 'Client request timeout. See \
                 Session.execute[_async](timeout)'}}, last_host={name}"
            ),
        )
    }

    /// The user does not want to wait any longer.
    pub(crate) fn interrupted() -> Failure {
        Failure::new("KeyboardInterrupt", "")
    }

    /// Returns true if it is [`Failure::interrupted`].
    pub(crate) fn is_interrupt(&self) -> bool {
        self.class == "KeyboardInterrupt"
    }

    /// No address took the connection.
    pub(crate) fn unreachable(tried: &[String], last: Option<&std::io::Error>) -> Failure {
        let (number, reason) = match last {
            Some(error) => (error.raw_os_error(), strip_number(&error.to_string())),
            None => (None, "no address".to_owned()),
        };
        let class = match last.map(std::io::Error::kind) {
            Some(std::io::ErrorKind::ConnectionRefused) => "ConnectionRefusedError",
            Some(std::io::ErrorKind::TimedOut) => "TimeoutError",
            _ => "OSError",
        };
        let number = number.map_or_else(|| "None".to_owned(), |number| number.to_string());
        let said = format!("Tried connecting to [{}]. Last error: {reason}", tried.join(", "));
        let message = format!("{number}, {}", python_repr(&said));
        Failure { message, ..Failure::new(class, format!("[Errno {number}] {said}")) }
    }

    /// The two sides do not trust one another, or one does not speak TLS.
    pub(crate) fn tls(tried: &str, reason: &str) -> Failure {
        let said = format!("Tried connecting to [{tried}]. Last error: {reason}");
        let message = format!("1, {}", python_repr(&said));
        Failure { message, ..Failure::new("SSLError", format!("[Errno 1] {said}")) }
    }

    /// The server speaks another version of the protocol.
    pub(crate) fn is_other_version(&self) -> bool {
        self.code == Some(ErrorCode::ProtocolError)
            || (self.class == "ConnectionException" && self.text.contains("version"))
            || self.class == "ConnectionShutdown"
    }

    /// The keyspace of the command line cannot be used.
    pub(crate) fn no_keyspace(host: &str, keyspace: &str) -> Failure {
        let text = format!("Unable to connect to any servers using keyspace '{keyspace}'");
        let text = format!("({}, ['{host}'])", python_repr(&text));
        Failure { code: Some(ErrorCode::Invalid), ..Failure::new("NoHostAvailable", text) }
    }

    /// No node took a request.
    pub(crate) fn no_hosts(tried: &[(String, Failure)]) -> Failure {
        let tried: Vec<String> =
            tried.iter().map(|(name, failure)| format!("'{name}': {}", failure.repr())).collect();
        let tried = tried.join(", ");
        Failure::new(
            "NoHostAvailable",
            format!("('Unable to complete the operation against any hosts', {{{tried}}})"),
        )
    }

    /// The same, during a login.
    pub(crate) fn of_login(self, name: &str) -> Failure {
        match self.code {
            Some(ErrorCode::BadCredentials) => Failure {
                text: format!("Failed to authenticate to {name}: {}", self.summary()),
                class: "AuthenticationFailed",
                ..self
            },
            _ => self,
        }
    }

    /// An ERROR message.
    pub(crate) fn server(error: &ErrorBody<'_>, message: &str) -> Failure {
        let code = error.code();
        let class = class(code);
        let mut failure =
            Failure { class, text: String::new(), code: Some(code), message: message.to_owned() };
        let summary = failure.summary();
        failure.text = match error {
            ErrorBody::AlreadyExists { keyspace, table: "" } => {
                format!("Keyspace '{keyspace}' already exists")
            }
            ErrorBody::AlreadyExists { keyspace, table } => {
                format!("Table '{keyspace}.{table}' already exists")
            }
            ErrorBody::Unavailable { consistency, required, alive } => format!(
                "{summary} info={{'consistency': '{}', 'required_replicas': {required}, \
                 'alive_replicas': {alive}}}",
                consistency.name()
            ),
            ErrorBody::WriteTimeout { consistency, received, block_for, write_type, .. } => {
                let info = info(*consistency, *block_for, *received);
                format!("{summary} info={{{info}, 'write_type': '{}'}}", write_type.name())
            }
            ErrorBody::ReadTimeout { consistency, received, block_for, .. } => {
                format!("{summary} info={{{}}}", info(*consistency, *block_for, *received))
            }
            ErrorBody::ReadFailure { consistency, received, block_for, failures, .. }
            | ErrorBody::WriteFailure { consistency, received, block_for, failures, .. } => {
                let info = info(*consistency, *block_for, *received);
                format!("{summary} info={{{info}{}}}", failed(failures))
            }
            ErrorBody::Invalid | ErrorBody::Unauthorized | ErrorBody::FunctionFailure { .. } => {
                summary
            }
            _ => message.to_owned(),
        };
        failure
    }

    /// Code, summary and message in one line.
    pub(crate) fn summary(&self) -> String {
        let Some(code) = self.code else { return self.text.clone() };
        format!(
            "Error from server: code={:04x} [{}] message=\"{}\"",
            code.number(),
            summary_of(code),
            self.message
        )
    }

    /// How Python shows the exception inside another one.
    pub(crate) fn repr(&self) -> String {
        match self.code {
            // Arguments that are not the text: a number and words.
            None if self.message != self.text => format!("{}({})", self.class, self.message),
            Some(ErrorCode::BadCredentials) | None => {
                format!("{}({})", self.class, python_repr(&self.text))
            }
            Some(_) if self.text == self.message => format!("<{}>", self.summary()),
            Some(_) => format!("{}({})", self.class, python_repr(&self.text)),
        }
    }

    /// The server has too much to do just now.
    pub(crate) fn is_overload(&self) -> bool {
        self.code == Some(ErrorCode::Overloaded)
    }

    /// The driver tries these on the next host; with one host that is the end.
    pub(crate) fn tries_next_host(&self) -> bool {
        matches!(
            self.code,
            Some(
                ErrorCode::Unavailable
                    | ErrorCode::Overloaded
                    | ErrorCode::IsBootstrapping
                    | ErrorCode::TruncateError
                    | ErrorCode::ServerError
            )
        )
    }
}

/// A Python string literal of this text.
pub(crate) fn python_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for sign in text.chars() {
        match sign {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            sign if sign == quote => {
                out.push('\\');
                out.push(sign);
            }
            sign if u32::from(sign) < 0x20 || (0x7f..=0xa0).contains(&u32::from(sign)) => {
                let _ = write!(out, "\\x{:02x}", u32::from(sign));
            }
            sign => out.push(sign),
        }
    }
    out.push(quote);
    out
}

fn strip_number(text: &str) -> String {
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn info(consistency: Consistency, required: i32, received: i32) -> String {
    format!(
        "'consistency': '{}', 'required_responses': {required}, 'received_responses': {received}",
        consistency.name()
    )
}

fn failed(failures: &Failures) -> String {
    let mut text = format!(", 'failures': {}", failures.count());
    if let Failures::Reasons(reasons) = failures {
        let reasons: Vec<String> = reasons
            .iter()
            .map(|(address, reason)| format!("'{address}': '0x{:04x}'", reason.number()))
            .collect();
        let _ = write!(text, ", 'error_code_map': {{{}}}", reasons.join(", "));
    }
    text
}

fn class(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::ServerError => "ServerError",
        ErrorCode::ProtocolError => "ProtocolException",
        ErrorCode::BadCredentials => "BadCredentials",
        ErrorCode::Unavailable => "Unavailable",
        ErrorCode::Overloaded => "OverloadedErrorMessage",
        ErrorCode::IsBootstrapping => "IsBootstrappingErrorMessage",
        ErrorCode::TruncateError => "TruncateError",
        ErrorCode::WriteTimeout => "WriteTimeout",
        ErrorCode::ReadTimeout => "ReadTimeout",
        ErrorCode::ReadFailure => "ReadFailure",
        ErrorCode::FunctionFailure => "FunctionFailure",
        ErrorCode::WriteFailure => "WriteFailure",
        ErrorCode::CdcWriteFailure => "CDCWriteException",
        ErrorCode::SyntaxError => "SyntaxException",
        ErrorCode::Unauthorized => "Unauthorized",
        ErrorCode::Invalid => "InvalidRequest",
        ErrorCode::ConfigError => "ConfigurationException",
        ErrorCode::AlreadyExists => "AlreadyExists",
        ErrorCode::Unprepared => "PreparedQueryNotFound",
        _ => "ErrorMessage",
    }
}

fn summary_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::ServerError => "Server error",
        ErrorCode::ProtocolError => "Protocol error",
        ErrorCode::BadCredentials => "Bad credentials",
        ErrorCode::Unavailable => "Unavailable exception",
        ErrorCode::Overloaded => "Coordinator node overloaded",
        ErrorCode::IsBootstrapping => "Coordinator node is bootstrapping",
        ErrorCode::TruncateError => "Error during truncate",
        ErrorCode::WriteTimeout | ErrorCode::ReadTimeout => {
            "Coordinator node timed out waiting for replica nodes' responses"
        }
        ErrorCode::ReadFailure => "Replica(s) failed to execute read",
        ErrorCode::FunctionFailure => "User Defined Function failure",
        ErrorCode::WriteFailure => "Replica(s) failed to execute write",
        ErrorCode::CdcWriteFailure => "Failed to execute write due to CDC space exhaustion.",
        ErrorCode::SyntaxError => "Syntax error in CQL query",
        ErrorCode::Unauthorized => "Unauthorized",
        ErrorCode::Invalid => "Invalid query",
        ErrorCode::ConfigError => "Query invalid because of configuration issue",
        ErrorCode::AlreadyExists => "Item already exists",
        ErrorCode::Unprepared => "Matching prepared statement not found on this node",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_errors_have_the_words_of_the_python_shell() {
        let invalid = Failure::server(&ErrorBody::Invalid, "no \"such\" table");
        assert_eq!(
            invalid.to_string(),
            "InvalidRequest: Error from server: code=2200 [Invalid query] message=\"no \"such\" \
             table\""
        );
        let syntax = Failure::server(&ErrorBody::SyntaxError, "line 1:0 no");
        assert_eq!(syntax.to_string(), "SyntaxException: line 1:0 no");
        let exists =
            Failure::server(&ErrorBody::AlreadyExists { keyspace: "k", table: "t" }, "whatever");
        assert_eq!(exists.to_string(), "AlreadyExists: Table 'k.t' already exists");
        let exists =
            Failure::server(&ErrorBody::AlreadyExists { keyspace: "k", table: "" }, "whatever");
        assert_eq!(exists.to_string(), "AlreadyExists: Keyspace 'k' already exists");
    }

    #[test]
    fn a_refused_connection_is_shown_with_its_number() {
        let refused = std::io::Error::from_raw_os_error(111);
        let failure = Failure::unreachable(&["('h', 1)".to_owned()], Some(&refused));
        assert_eq!(
            failure.repr(),
            "ConnectionRefusedError(111, \"Tried connecting to [('h', 1)]. Last error: Connection \
             refused\")"
        );
    }

    #[test]
    fn python_literals_choose_their_quote() {
        assert_eq!(python_repr("a"), "'a'");
        assert_eq!(python_repr("it's"), "\"it's\"");
        assert_eq!(python_repr("it's \"b\""), "'it\\'s \"b\"'");
        assert_eq!(python_repr("a\\b\nc"), "'a\\\\b\\nc'");
    }
}
