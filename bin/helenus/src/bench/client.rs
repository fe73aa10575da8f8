//! One connection of the load generator: native protocol v4, many requests in flight.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use blocking_client::{CqlConnection, CqlError, ReadWait, Socket};
use cql_client::{Login, LoginError, Received};
use cql_wire::request::RequestOptions;
use cql_wire::{
    BoundValue, Consistency, ProtocolVersion, QueryParameters, Request, ResponseBody, ValueList,
};

use super::tls::Server;
use super::{Outcome, Plan, Workload};

/// Longest answer that is taken.
const FRAME_BYTES_MAX: usize = 64 << 20;
/// Timeout of an answer, after which the run is aborted.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Cause of an aborted run.
#[derive(Debug)]
pub(crate) enum Failure {
    Io(String, io::Error),
    Text(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Io(what, error) => write!(f, "{what}: {error}"),
            Failure::Text(text) => f.write_str(text),
        }
    }
}

pub(crate) fn lost(error: io::Error) -> Failure {
    Failure::Io("the connection was lost".to_owned(), error)
}

fn broken(error: CqlError) -> Failure {
    match error {
        CqlError::Io(error) => lost(error),
        CqlError::Closed => lost(io::ErrorKind::UnexpectedEof.into()),
        CqlError::TimedOut | CqlError::Cancelled => lost(io::ErrorKind::TimedOut.into()),
        CqlError::Login(LoginError::NoCredentials(by)) => Failure::Text(login_wanted(&by)),
        error => text(error),
    }
}

fn login_wanted(by: &str) -> String {
    format!("the server asks for a login ({by}), which helenus bench does not do")
}

/// A connection that is ready for requests.
pub(crate) struct Connection {
    link: CqlConnection<Socket>,
    is_resumed: bool,
    insert_id: Vec<u8>,
    read_id: Vec<u8>,
}

/// Kind of an answer, without most of its content.
enum Answer {
    Done,
    Rows(u32),
    Prepared(Vec<u8>),
    Error(String),
}

/// A request that waits for its answer.
#[derive(Clone, Copy)]
struct Waiting {
    due: Instant,
    is_read: bool,
}

impl Connection {
    pub(crate) fn open(server: &Server) -> Result<Connection, Failure> {
        Connection::over(server.dial()?)
    }

    /// Logs in over a fresh stream.
    pub(crate) fn over(socket: Socket) -> Result<Connection, Failure> {
        let is_resumed = socket.is_resumed();
        let mut link = CqlConnection::new(socket, ProtocolVersion::V4, FRAME_BYTES_MAX);
        let login = Login::plain().with("DRIVER_NAME", "helenus bench");
        link.login(login, Some(ANSWER_MAX)).map_err(broken)?;
        Ok(Connection { link, is_resumed, insert_id: Vec::new(), read_id: Vec::new() })
    }

    /// Returns true if the TLS session is that of an earlier connection.
    pub(crate) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Runs one statement.
    pub(crate) fn query(&mut self, query: &str) -> Result<(), Failure> {
        let parameters = QueryParameters::new(Consistency::One);
        match self.control(&Request::Query { query, parameters })? {
            Answer::Error(message) => Err(Failure::Text(format!("{message} ({query})"))),
            Answer::Done | Answer::Rows(_) | Answer::Prepared(_) => Ok(()),
        }
    }

    /// Prepares the plan's statements.
    pub(crate) fn prepare(&mut self, plan: &Plan) -> Result<(), Failure> {
        self.insert_id = self.prepare_one(&plan.insert)?;
        self.read_id = self.prepare_one(&plan.read)?;
        Ok(())
    }

    fn prepare_one(&mut self, query: &str) -> Result<Vec<u8>, Failure> {
        match self.control(&Request::Prepare { query, keyspace: None })? {
            Answer::Prepared(id) => Ok(id),
            Answer::Error(message) => Err(Failure::Text(format!("{message} ({query})"))),
            Answer::Done | Answer::Rows(_) => {
                Err(Failure::Text("unexpected answer to PREPARE".to_owned()))
            }
        }
    }

    /// Sends one request and waits for its answer.
    fn control(&mut self, request: &Request<'_>) -> Result<Answer, Failure> {
        let options = RequestOptions::default();
        self.link
            .request(request, &options, Some(ANSWER_MAX), |got| answer(&got.response.body))
            .map_err(broken)
    }

    /// Puts the load on; `start` is when all connections began.
    pub(crate) fn run(
        mut self,
        plan: &Plan,
        number: u64,
        start: Instant,
    ) -> Result<Outcome, Failure> {
        let latency = telemetry::Shard::new().histogram("latency_nanos", "", &[]);
        let mut outcome = Outcome::default();
        let mut waiting: Vec<Option<Waiting>> = vec![None; plan.window];
        let mut free: Vec<i16> =
            (0..plan.window).rev().filter_map(|s| i16::try_from(s).ok()).collect();
        let mut load = Load::new(plan, number);
        loop {
            let now = Instant::now();
            while let Some(stream) = free.last().copied() {
                let Some(due) = load.next_due(start, now) else { break };
                free.pop();
                let is_read = self.put_request(plan, &mut load, stream)?;
                if let Some(slot) = waiting.get_mut(usize::from(stream.unsigned_abs())) {
                    *slot = Some(Waiting { due, is_read });
                }
            }
            if self.link.waiting() > 0 {
                self.link.flush().map_err(lost)?;
            }
            let in_flight = plan.window - free.len();
            if in_flight == 0 {
                if load.is_over(start, Instant::now()) {
                    break;
                }
                std::thread::sleep(load.pause(start, Instant::now()));
                continue;
            }
            // The next request may be due before an answer arrives.
            let may_send = !free.is_empty() && !load.is_over(start, Instant::now());
            let pause = if may_send { load.pause(start, Instant::now()) } else { ANSWER_MAX };
            match self.link.fill(ReadWait::For(pause)) {
                Ok(()) => {}
                Err(CqlError::TimedOut) if pause < ANSWER_MAX => {}
                Err(error) => return Err(broken(error)),
            }
            let arrived = Instant::now();
            let each = |received: Received<'_>| {
                let (stream, answer) = (received.stream, answer(&received.response.body));
                let slot = waiting.get_mut(usize::from(stream.unsigned_abs()));
                let Some(request) = slot.and_then(Option::take) else { return };
                free.push(stream);
                let nanos = arrived.saturating_duration_since(request.due).as_nanos();
                latency.record(u64::try_from(nanos).unwrap_or(u64::MAX));
                outcome.operations += 1;
                match answer {
                    Answer::Rows(0) if request.is_read => outcome.missing += 1,
                    Answer::Rows(_) | Answer::Done | Answer::Prepared(_) => {}
                    Answer::Error(message) => {
                        outcome.errors += 1;
                        outcome.first_error.get_or_insert(message);
                    }
                }
            };
            self.link.drain(each).map_err(text)?;
        }
        outcome.latency = latency.snapshot();
        Ok(outcome)
    }

    /// Appends the next request; whether it is a read.
    fn put_request(
        &mut self,
        plan: &Plan,
        load: &mut Load<'_>,
        stream: i16,
    ) -> Result<bool, Failure> {
        let (is_read, key) = load.next_operation();
        let mut values = ValueList::new();
        values.push(BoundValue::Bytes(&key.to_be_bytes())).map_err(text)?;
        if !is_read {
            for _ in 0..plan.columns {
                load.fill_value();
                values.push(BoundValue::Bytes(&load.value)).map_err(text)?;
            }
        }
        let mut parameters = QueryParameters::new(plan.consistency);
        parameters.values = values.values();
        parameters.skip_metadata = is_read;
        let id = if is_read { &self.read_id } else { &self.insert_id };
        let request = Request::Execute { id, result_metadata_id: None, parameters };
        let options = RequestOptions { stream, ..RequestOptions::default() };
        self.link.send(&request, &options).map_err(text)?;
        Ok(is_read)
    }
}

fn answer(body: &ResponseBody<'_>) -> Answer {
    match body {
        ResponseBody::Rows(rows) => Answer::Rows(rows.row_count()),
        ResponseBody::Prepared(prepared) => Answer::Prepared(prepared.id.to_vec()),
        ResponseBody::Error { message, .. } => Answer::Error((*message).to_owned()),
        ResponseBody::Authenticate(by) => Answer::Error(login_wanted(by)),
        _ => Answer::Done,
    }
}

fn text(error: impl fmt::Display) -> Failure {
    Failure::Text(error.to_string())
}

/// Which operations come when.
struct Load<'p> {
    plan: &'p Plan,
    number: u64,
    sent: u64,
    random: u64,
    value: Vec<u8>,
}

impl<'p> Load<'p> {
    fn new(plan: &'p Plan, number: u64) -> Load<'p> {
        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Load { plan, number, sent: 0, random, value: vec![0; plan.value_bytes] }
    }

    /// splitmix64: the same keys in every run.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn is_over(&self, start: Instant, now: Instant) -> bool {
        self.plan.operations.is_some_and(|n| self.sent >= n)
            || self.plan.duration.is_some_and(|d| now.saturating_duration_since(start) >= d)
    }

    /// When the next request is due on the schedule; `None` without one.
    fn scheduled(&self, start: Instant) -> Option<Instant> {
        let interval = self.plan.interval?;
        // Connections take turns within the interval.
        let turn = self.number as f64 / self.plan.connections as f64;
        Some(start + interval.mul_f64(self.sent as f64 + turn))
    }

    /// Since when the next request waits to be sent; `None`: not yet, or nothing more.
    fn next_due(&self, start: Instant, now: Instant) -> Option<Instant> {
        if self.is_over(start, now) {
            return None;
        }
        match self.scheduled(start) {
            Some(due) => (due <= now).then_some(due),
            None => Some(now),
        }
    }

    /// How long until the next request is due.
    fn pause(&self, start: Instant, now: Instant) -> Duration {
        let until =
            self.scheduled(start).map_or(ANSWER_MAX / 2, |due| due.saturating_duration_since(now));
        until.min(ANSWER_MAX / 2)
    }

    /// Returns the next operation: true for a read, and its key.
    fn next_operation(&mut self) -> (bool, u64) {
        let turn = self.sent;
        self.sent += 1;
        let keys = self.plan.keys.max(1);
        match self.plan.workload {
            // Connections interleave, so that together they write 0, 1, 2, ….
            Workload::Insert | Workload::InsertNew => {
                let key = turn.wrapping_mul(self.plan.connections).wrapping_add(self.number) % keys;
                (false, self.plan.first_key.wrapping_add(key))
            }
            Workload::Read => (true, self.random() % keys),
            Workload::Mixed => {
                let random = self.random();
                (random >> 63 == 1, self.random() % keys)
            }
        }
    }

    fn fill_value(&mut self) {
        let mut at = 0;
        while at < self.value.len() {
            let random = self.random().to_le_bytes();
            let length = random.len().min(self.value.len() - at);
            if let (Some(to), Some(from)) =
                (self.value.get_mut(at..at + length), random.get(..length))
            {
                to.copy_from_slice(from);
            }
            at += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn plan(workload: Workload) -> Plan {
        Plan {
            workload,
            keys: 10,
            first_key: 0,
            consistency: Consistency::One,
            columns: 1,
            value_bytes: 13,
            window: 4,
            connections: 2,
            operations: Some(5),
            duration: None,
            interval: Some(Duration::from_millis(10)),
            insert: String::new(),
            read: String::new(),
        }
    }

    #[test]
    fn connections_insert_all_keys_together() {
        let plan = plan(Workload::Insert);
        let mut keys: Vec<u64> = Vec::new();
        for number in 0..2 {
            let mut load = Load::new(&plan, number);
            keys.extend((0..5).map(|_| load.next_operation().1));
        }
        keys.sort_unstable();
        assert_eq!(keys, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn mixed_load_is_half_reads() {
        let plan = plan(Workload::Mixed);
        let mut load = Load::new(&plan, 1);
        let reads = (0..10_000).filter(|_| load.next_operation().0).count();
        assert!((4_700..5_300).contains(&reads), "{reads}");
        load.fill_value();
        assert!(load.value.iter().any(|b| *b != 0));
    }

    #[test]
    fn schedule_is_kept_and_ends() {
        let plan = plan(Workload::Read);
        let start = Instant::now();
        let mut load = Load::new(&plan, 1);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(load.next_due(start, at(4)), None);
        assert_eq!(load.pause(start, at(4)), Duration::from_millis(1));
        assert_eq!(load.next_due(start, at(99)), Some(at(5)));
        for _ in 0..5 {
            load.next_operation();
        }
        assert!(load.is_over(start, at(99)));
        assert_eq!(load.next_due(start, at(99)), None);
    }

    #[test]
    fn load_runs_against_a_server_that_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut prepared = 0_u8;
            loop {
                let mut head = [0_u8; 9];
                if stream.read_exact(&mut head).is_err() {
                    return;
                }
                let length = u32::from_be_bytes(head[5..9].try_into().unwrap()) as usize;
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                let (opcode, answer): (u8, Vec<u8>) = match head[4] {
                    1 => (2, Vec::new()),
                    9 => {
                        prepared += 1;
                        let mut body = vec![0, 0, 0, 4, 0, 1, prepared];
                        // No markers, no result.
                        body.extend([0; 12]);
                        body.extend([0, 0, 0, 4, 0, 0, 0, 0]);
                        (8, body)
                    }
                    // The read: rows without metadata, none of them.
                    _ if body[2] == 2 => (8, vec![0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0]),
                    _ => (8, vec![0, 0, 0, 1]),
                };
                let mut out = vec![0x84, 0, head[2], head[3], opcode];
                out.extend(u32::try_from(answer.len()).unwrap().to_be_bytes());
                out.extend(answer);
                stream.write_all(&out).unwrap();
            }
        });
        let mut plan = plan(Workload::Mixed);
        (plan.operations, plan.interval) = (Some(1000), None);
        let mut connection = Connection::open(&Server::plain("127.0.0.1", port)).unwrap();
        connection.prepare(&plan).unwrap();
        let outcome = connection.run(&plan, 0, Instant::now()).unwrap();
        assert_eq!((outcome.operations, outcome.errors), (1000, 0));
        assert!((400..600).contains(&outcome.missing), "{}", outcome.missing);
        assert_eq!(outcome.latency.count(), 1000);
        server.join().unwrap();
    }
}
