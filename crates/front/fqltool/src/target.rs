//! A cluster that a log is replayed to: its address, one connection, requests and answers.
//!
//! Owns: how a record becomes a request. Never: which records are replayed, comparison.

use crate::Failure;
use blocking_client::{CqlConnection, CqlError, Endpoint};
use codec::Reader;
use cql_client::{Answer, Login, LoginError, Reply, ServerError};
use cql_wire::request::{BatchList, RequestOptions};
use cql_wire::{
    Batch, BatchQuery, BoundValue, BoundValues, ErrorCode, ProtocolVersion, QueryParameters,
    Request, ValueList,
};
use query_log::record::NO_TIMESTAMP;
use query_log::{LoggedStatement, LoggedValue, QueryRecord};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Port of a target without one.
const PORT: u16 = 9042;
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How long a connection attempt may take.
const DIAL_MAX: Duration = Duration::from_secs(10);
/// Bytes of a frame.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// Rows of a page, as the driver of Cassandra's tool asks for.
const PAGE_SIZE: i32 = 5000;
/// Bytes of the rows of one answer; further pages are not read. INV-fqltool-1.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Code of a failure without an answer of the server.
pub const NO_ANSWER: i32 = -1;

/// Address of a target, and who logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetAddress {
    /// Host and port as given; names the target in reports and directories.
    pub name: String,
    host: String,
    port: u16,
    user: Option<(String, String)>,
}

impl TargetAddress {
    /// Reads `[user:password@]host[:port]`; an IPv6 address with a port is in brackets.
    ///
    /// # Errors
    /// In words.
    pub fn parse(text: &str) -> Result<TargetAddress, String> {
        let wrong = || {
            "a target has the form [user:password@]host[:port]; an IPv6 address with a port is in brackets"
                .to_owned()
        };
        let (user, name) = match text.rsplit_once('@') {
            None => (None, text),
            Some((login, name)) => {
                let (user, password) = login.split_once(':').ok_or_else(wrong)?;
                (Some((user.to_owned(), password.to_owned())), name)
            }
        };
        let (host, port) = match name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
            None if name.matches(':').count() > 1 => (name, None),
            None => match name.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (name, None),
            },
        };
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| wrong()))?;
        // The name becomes a directory.
        if host.is_empty() || host.contains(['/', '\0']) || host.starts_with('.') {
            return Err(wrong());
        }
        Ok(TargetAddress { name: name.to_owned(), host: host.to_owned(), port, user })
    }
}

/// Reads the query options of a record.
///
/// # Errors
/// In words.
pub fn options_of(record: &QueryRecord) -> Result<QueryParameters<'_>, String> {
    let version =
        ProtocolVersion::from_number(record.protocol_version).map_err(|error| error.to_string())?;
    let mut reader = Reader::new(&record.options, "query options");
    QueryParameters::decode(&mut reader, version).map_err(|error| error.to_string())
}

/// A row: its values.
pub type Row = Vec<Option<Vec<u8>>>;

/// Answer of a target to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A result.
    Result {
        /// Names and types of the columns; none for an answer without rows.
        columns: Vec<(String, String)>,
        /// The rows of all pages.
        rows: Vec<Row>,
        /// There are more rows than [`ANSWER_BYTES_MAX`] holds.
        is_cut: bool,
    },
    /// A failure.
    Failed {
        /// Code of the native protocol; [`NO_ANSWER`].
        code: i32,
        /// Its message.
        message: String,
    },
}

/// An answer and how long it took.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The answer.
    pub outcome: Outcome,
    /// Time to the first page.
    pub latency: Duration,
}

/// Connection to a target.
pub struct Target {
    address: TargetAddress,
    link: CqlConnection<TcpStream>,
    cancel: Arc<AtomicBool>,
    /// Keyspace of the session; `None`: unknown.
    keyspace: Option<String>,
}

impl Target {
    /// Connects and logs in, with version 5 of the protocol, or 4. Waits end when `cancel` is set.
    ///
    /// # Errors
    /// In words.
    pub fn connect(address: &TargetAddress, cancel: &Arc<AtomicBool>) -> Result<Target, Failure> {
        let failed = |error: String| Failure::new(format!("target {}: {error}", address.name));
        let link = match link(address, ProtocolVersion::V5, cancel) {
            Ok(link) => link,
            Err(Attempt::Version) => {
                link(address, ProtocolVersion::V4, cancel).map_err(|e| failed(e.words()))?
            }
            Err(other) => return Err(failed(other.words())),
        };
        let (address, cancel) = (address.clone(), cancel.clone());
        Ok(Target { address, link, cancel, keyspace: None })
    }

    /// Executes a record. A lost connection is opened again; the record counts as failed.
    pub fn replay(&mut self, record: &QueryRecord) -> Replayed {
        let began = Instant::now();
        let mut latency = None;
        let outcome = self.execute(record, began, &mut latency);
        let outcome = outcome.unwrap_or_else(|error| {
            let message = error.to_string();
            if !matches!(error, CqlError::Cancelled | CqlError::Request(_)) {
                self.reconnect();
            }
            Outcome::Failed { code: NO_ANSWER, message }
        });
        Replayed { outcome, latency: latency.unwrap_or_else(|| began.elapsed()) }
    }

    fn reconnect(&mut self) {
        if let Ok(new) = Target::connect(&self.address, &self.cancel) {
            *self = new;
        }
    }

    fn execute(
        &mut self,
        record: &QueryRecord,
        mut began: Instant,
        latency: &mut Option<Duration>,
    ) -> Result<Outcome, CqlError> {
        if let Some(keyspace) = &record.keyspace
            && self.keyspace.as_ref() != Some(keyspace)
        {
            if let Some(failed) = self.use_keyspace(keyspace)? {
                return Ok(failed);
            }
            began = Instant::now();
        }
        let parameters = match options_of(record) {
            Ok(parameters) => parameters,
            Err(message) => return Ok(Outcome::Failed { code: NO_ANSWER, message }),
        };
        let generated = Some(record.generated_timestamp).filter(|at| *at != NO_TIMESTAMP);
        let parameters = QueryParameters {
            skip_metadata: false,
            page_size: Some(PAGE_SIZE),
            paging_state: None,
            timestamp: parameters.timestamp.or(generated),
            ..parameters
        };
        let mut collected = Collected::default();
        let mut state: Option<Vec<u8>> = None;
        let batch = match &record.statement {
            LoggedStatement::Single { .. } => BatchList::new(),
            LoggedStatement::Batch { queries, .. } => batch_of(queries)?,
        };
        loop {
            let request = match &record.statement {
                LoggedStatement::Single { query } => {
                    let paging_state = state.as_deref();
                    let parameters = QueryParameters { paging_state, ..parameters };
                    Request::Query { query, parameters }
                }
                LoggedStatement::Batch { kind, .. } => {
                    let parameters = QueryParameters {
                        page_size: None,
                        values: BoundValues::EMPTY,
                        ..parameters
                    };
                    Request::Batch(Batch {
                        kind: *kind,
                        statements: batch.statements(),
                        parameters,
                    })
                }
            };
            let reply = self.ask(&request)?;
            latency.get_or_insert_with(|| began.elapsed());
            state = match reply {
                Err(error) => return Ok(failed(&error)),
                Ok(reply) => {
                    if matches!(reply.answer, Answer::SetKeyspace) {
                        self.keyspace = None;
                    }
                    collected.add(reply.answer)
                }
            };
            if state.is_none() || collected.is_cut {
                return Ok(collected.outcome());
            }
        }
    }

    fn use_keyspace(&mut self, keyspace: &str) -> Result<Option<Outcome>, CqlError> {
        let text = format!("USE \"{}\"", keyspace.replace('"', "\"\""));
        let parameters = QueryParameters::new(cql_wire::Consistency::One);
        self.keyspace = None;
        match self.ask(&Request::Query { query: &text, parameters })? {
            Ok(_) => {
                self.keyspace = Some(keyspace.to_owned());
                Ok(None)
            }
            Err(error) => Ok(Some(failed(&error))),
        }
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<Result<Reply, ServerError>, CqlError> {
        self.link.request(request, &RequestOptions::default(), Some(ANSWER_MAX), |received| {
            Reply::of(received).map_err(|refusal| ServerError {
                code: refusal.error.code(),
                message: refusal.message.to_owned(),
            })
        })
    }
}

fn failed(error: &ServerError) -> Outcome {
    Outcome::Failed { code: error.code.number(), message: error.message.clone() }
}

fn batch_of(queries: &[query_log::BatchQuery]) -> Result<BatchList, CqlError> {
    let mut list = BatchList::new();
    for one in queries {
        let mut values = ValueList::new();
        for value in &one.values {
            values.push(match value {
                LoggedValue::Null => BoundValue::Null,
                LoggedValue::Unset => BoundValue::Unset,
                LoggedValue::Bytes(bytes) => BoundValue::Bytes(bytes),
            })?;
        }
        list.push(BatchQuery::Text(&one.query), values.values())?;
    }
    Ok(list)
}

/// Pages of an answer.
#[derive(Default)]
struct Collected {
    columns: Vec<(String, String)>,
    rows: Vec<Row>,
    bytes: usize,
    is_cut: bool,
}

impl Collected {
    /// Adds a page; returns where the next one begins.
    fn add(&mut self, answer: Answer) -> Option<Vec<u8>> {
        let Answer::Rows(page) = answer else { return None };
        if self.columns.is_empty() {
            let named = page.columns.iter();
            self.columns = named.map(|c| (c.name.clone(), c.kind.to_string())).collect();
        }
        for row in 0..page.len() {
            let values =
                (0..page.width()).map(|column| page.value(row, column).map(<[u8]>::to_vec));
            let row: Row = values.collect();
            self.bytes += row.iter().flatten().map(Vec::len).sum::<usize>() + 24 * row.len() + 24;
            self.rows.push(row);
        }
        self.is_cut = page.paging_state.is_some() && self.bytes > ANSWER_BYTES_MAX;
        page.paging_state
    }

    fn outcome(self) -> Outcome {
        Outcome::Result { columns: self.columns, rows: self.rows, is_cut: self.is_cut }
    }
}

/// Why a connection was not opened.
enum Attempt {
    /// The server does not speak the version.
    Version,
    /// In words.
    Failed(String),
}

impl Attempt {
    fn words(self) -> String {
        match self {
            Attempt::Version => {
                "the server speaks neither version 5 nor 4 of the protocol".to_owned()
            }
            Attempt::Failed(words) => words,
        }
    }
}

fn link(
    address: &TargetAddress,
    version: ProtocolVersion,
    cancel: &Arc<AtomicBool>,
) -> Result<CqlConnection<TcpStream>, Attempt> {
    let endpoint = Endpoint { host: &address.host, port: address.port, timeout: Some(DIAL_MAX) };
    let (socket, _) = endpoint.dial().map_err(|error| Attempt::Failed(error.to_string()))?;
    let mut link = CqlConnection::new(socket, version, FRAME_BYTES_MAX);
    link.set_cancel(cancel.clone());
    let login = Login { user: address.user.clone(), ..Login::plain() };
    link.login(login.with("DRIVER_NAME", "helenus fqltool"), Some(ANSWER_MAX)).map_err(
        |error| match error {
            CqlError::Login(LoginError::Refused(error))
                if error.code == ErrorCode::ProtocolError =>
            {
                Attempt::Version
            }
            other => Attempt::Failed(other.to_string()),
        },
    )?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::record;

    #[test]
    fn targets_have_a_host_and_may_have_a_port_and_a_login() {
        let of = |text: &str| {
            let target = TargetAddress::parse(text).unwrap();
            (target.name, target.host, target.port, target.user)
        };
        let plain = |name: &str, host: &str, port| (name.to_owned(), host.to_owned(), port, None);
        assert_eq!(of("h"), plain("h", "h", 9042));
        assert_eq!(of("10.0.0.1:9142"), plain("10.0.0.1:9142", "10.0.0.1", 9142));
        assert_eq!(of("::1"), plain("::1", "::1", 9042));
        assert_eq!(of("[::1]:1"), plain("[::1]:1", "::1", 1));
        let login = Some(("u".to_owned(), "p:@".to_owned()));
        assert_eq!(of("u:p:@@h"), ("h".to_owned(), "h".to_owned(), 9042, login));
        for text in ["", "u@h", "h:x", "h:70000", "[::1]1", "../x", "a/b"] {
            assert!(TargetAddress::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn query_options_are_read_in_the_version_of_the_record() {
        let mut one = record(1, "SELECT 1");
        assert_eq!(options_of(&one).unwrap().consistency, cql_wire::Consistency::One);
        one.protocol_version = 4;
        one.options = vec![0, 6, 0];
        assert_eq!(options_of(&one).unwrap().consistency, cql_wire::Consistency::LocalQuorum);
        one.options.pop();
        assert!(options_of(&one).is_err());
        one.protocol_version = 77;
        assert!(options_of(&one).is_err());
    }
}
