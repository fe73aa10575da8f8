//! `helenus nodetool`: Cassandra's command line, layouts and exit codes over the admin API.
//!
//! The verbs are a table in `admin::verbs`. Owns: the terminal that they run on, and how a failure is printed.

use std::cell::OnceCell;
use std::fmt::Arguments;
use std::io::Write;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use admin::verbs::{self, ApiRequest, Failure, HttpError, Line, NodeApi, Terminal};
use blocking_client::Endpoint;
use blocking_client::api::{ApiAccess, ApiOptions};
use blocking_client::http::{self, HttpFault, JSON};
use http_client::Request;

use crate::exit;

/// Where Cassandra's nodetool connects to.
const JMX_PORT: u16 = 7199;
/// Where CQL clients connect to.
const CQL_PORT: u16 = 9042;
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// This process: its sockets, standard output and clock.
#[derive(Default)]
struct Process {
    /// Login and TLS; until they are set, neither.
    access: OnceCell<ApiAccess>,
}

impl Process {
    fn access(&self) -> &ApiAccess {
        self.access.get_or_init(ApiAccess::default)
    }
}

impl Terminal for Process {
    fn exchange(&self, request: &ApiRequest<'_>) -> Result<(u16, Vec<u8>), HttpError> {
        let ApiRequest { host, port, method, path, body } = *request;
        let endpoint = Endpoint { host, port, timeout: Some(CONNECT_MAX) };
        let body = body.map(|body| (JSON, body));
        let request = Request { method: method.name(), path, authorization: None, body };
        let answer = http::exchange_as(self.access(), &endpoint, &request, None);
        let answer = answer.map_err(|fault| match fault {
            HttpFault::Connect(error) => HttpError::Connect(error),
            HttpFault::Strange(words) => HttpError::Strange(words),
        })?;
        Ok((answer.status, answer.body))
    }

    fn print(&self, text: Arguments<'_>) {
        say!("{text}");
    }

    fn flush(&self) {
        let _ = std::io::stdout().flush();
    }

    fn now_millis(&self) -> u128 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |d| d.as_millis())
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Resolves names with the system's resolver (hosts file, DNS, as configured) through `getent`:
    /// the standard library has none from addresses to names. Its timeout is the system's setting.
    fn host_names(&self, addresses: &[&str]) -> Result<String, String> {
        let ran = Command::new("getent").arg("hosts").args(addresses).output();
        let output = ran.map_err(|error| {
            format!("-r asks the program getent for names, which cannot be run: {error}")
        })?;
        // It ends with 2 when one of them has no name; that one keeps its address.
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The API of a node, for other tools of this program.
pub fn api_of(host: &str, port: u16, access: &ApiAccess) -> NodeApi {
    let process = Process { access: OnceCell::from(access.clone()) };
    NodeApi { host: host.to_owned(), port, terminal: Rc::new(process) }
}

/// Options of the login.
fn login_of(line: &Line) -> ApiOptions {
    let value = |name: &str| line.value(name).map(str::to_owned);
    ApiOptions {
        user: value("--username"),
        password: value("--password"),
        password_file: value("--password-file"),
        token_file: value("--token-file"),
        ssl: line.has("--ssl"),
        ca: value("--ssl-ca"),
        certificate: value("--ssl-cert"),
        key: value("--ssl-key"),
        verifies_host: line.has("--ssl-verify-host"),
        properties: line.properties.clone(),
    }
}

/// Asks for a password where a person can answer; like Cassandra's tool, which else sends an empty one.
fn ask_password() -> Option<String> {
    let has_terminal = std::fs::File::open("/dev/tty").is_ok();
    has_terminal.then(cqlsh::ask_password)
}

/// Runs nodetool; the exit code.
pub fn main(arguments: Vec<String>) -> u8 {
    let wants_help = |a: &String| a == "--help" || a == "-?";
    if arguments.iter().any(wants_help) {
        let name = arguments.iter().find_map(|a| verbs::verb(a));
        say!("{}", verbs::help(name.map(|verb| verb.name)));
        return exit::OK;
    }
    let process = Rc::new(Process::default());
    let line = match verbs::parse(arguments, process.clone()) {
        Ok(line) => line,
        Err(message) => return report(&Failure::BadUse(message), None),
    };
    match login_of(&line).open(ask_password) {
        Ok(access) => {
            let _ = process.access.set(access);
        }
        Err(message) => return report(&Failure::BadUse(message), None),
    }
    match verbs::run(&line) {
        Ok(text) => {
            say!("{text}");
            exit::OK
        }
        Err(failure) => report(&failure, Some(&line.api)),
    }
}

/// Prints a failure; the exit code.
fn report(failure: &Failure, api: Option<&NodeApi>) -> u8 {
    match failure {
        Failure::BadUse(message) => {
            say_line!("nodetool: {message}");
            say_line!("See 'nodetool help' or 'nodetool help <command>'.");
        }
        Failure::Printed(text) => say!("{text}"),
        Failure::Told(text) => complain!("{text}"),
        Failure::Connect(error) => {
            let (host, port) = api.map_or(("", 0), |a| (a.host.as_str(), a.port));
            let kind = match error.kind() {
                std::io::ErrorKind::ConnectionRefused => "ConnectException",
                std::io::ErrorKind::TimedOut => "SocketTimeoutException",
                std::io::ErrorKind::InvalidData => "SSLHandshakeException",
                _ => "IOException",
            };
            let text = error.to_string();
            // Java's wording, without the system's number.
            let cause = text.split_once(" (os error").map_or(text.as_str(), |(cause, _)| cause);
            complain_line!("nodetool: Failed to connect to '{host}:{port}' - {kind}: '{cause}'.");
            if let Some(hint) = hint_at_the_port(port) {
                complain_line!("{hint}");
            }
        }
        Failure::Login(message) => {
            let (host, port) = api.map_or(("", 0), |a| (a.host.as_str(), a.port));
            complain_line!(
                "nodetool: Failed to connect to '{host}:{port}' - FailedLoginException: '{message}'."
            );
        }
        Failure::Node(message) => complain_line!("error: {message}"),
        Failure::Help(name) => say!("{}", verbs::help(name.as_deref())),
    }
    failure.exit_code()
}

/// Runbooks name the port of JMX, where no node listens; newcomers the one that they know.
fn hint_at_the_port(port: u16) -> Option<&'static str> {
    match port {
        JMX_PORT => Some(
            "7199 is the port of Cassandra's JMX. Nodes of Helenus serve nodetool on their API port, 10000 \
             unless \"api_port\" names another: leave \"-p 7199\" out.",
        ),
        CQL_PORT => Some(
            "9042 is the port for CQL clients. Nodes of Helenus serve nodetool on their API port, 10000 \
             unless \"api_port\" names another: leave \"-p 9042\" out.",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_that_the_reference_of_settings_names_exist() {
        for command in conf::SETTING_COMMANDS.iter().flat_map(|(_, commands)| commands.iter()) {
            let (verb, kind) = command.split_once(' ').unwrap_or((command, ""));
            assert!(verbs::verb(verb).is_some(), "{command}");
            let kinds = verbs::help(Some(verb));
            assert!(kind.is_empty() || kinds.contains(kind), "{command}: {kinds}");
        }
        assert!(verbs::verb("setguardrailsconfig").is_some());
    }

    #[test]
    fn a_failed_connection_to_another_port_of_a_node_hints_at_that_of_the_api() {
        assert!(hint_at_the_port(7199).unwrap().contains("10000"));
        assert!(hint_at_the_port(9042).unwrap().contains("10000"));
        assert_eq!(hint_at_the_port(10_000), None);
    }
}
