//! `helenus bench`: a small load generator, enough to see whether a server is healthy and what a
//! change did to it. For publishable numbers there are better ones.
//!
//! Each connection has a thread and keeps a fixed number of requests in flight; with `--rate` they
//! are sent on a schedule, and latency is counted from when a request was due, so that a server
//! that stalls cannot hide it.
//!
//! [`null_server`] is the other side: what the same load costs without a database behind the
//! protocol.

mod client;
mod connect;
mod null_server;
mod tls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use cql_wire::Consistency;
use telemetry::HistogramSnapshot;

use crate::{exit, resources};
use client::{Connection, Failure};
use tls::{Server, TlsFlags};

/// Largest number of requests in flight on one connection: their bytes fit the sockets' buffers, so
/// that neither side waits for the other to read.
const WINDOW_MAX: usize = 1024;

/// Workloads of the benchmark.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Write whole rows, keys in order
    Insert(Arguments),
    /// Read whole rows by key, keys at random
    Read(Arguments),
    /// One half of each, keys at random
    Mixed(Arguments),
    /// Write whole rows IF NOT EXISTS, under keys that no other run has
    InsertNew(Arguments),
    /// Open many connections at once and close them
    Connect(connect::Arguments),
    /// Answer CQL without a database: nothing is stored, INSERT is answered by void, SELECT by
    /// canned rows (one, or as many as LIMIT says). For measuring what the machine itself costs
    NullServer(null_server::Arguments),
}

/// Kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Insert,
    Read,
    Mixed,
    InsertNew,
}

/// The command line of a load.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// Name or address of the server
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// CQL port
    #[arg(long, default_value_t = 9042)]
    port: u16,
    /// Connections, each with a thread
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Requests in flight on all connections together
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=131_072))]
    in_flight: u32,
    /// Number of different keys
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Columns beside the key
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=200))]
    columns: u16,
    /// Bytes of each column
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    value_bytes: u32,
    /// Seconds to run; 10 when there is no --operations
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    duration: Option<u32>,
    /// Operations to do
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Operations per second of all connections together; without it as many as the server takes
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Keyspace, created if missing
    #[arg(long, default_value = "bench", value_parser = identifier)]
    keyspace: String,
    /// Replicas of a row, where the keyspace is made by this run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    replication_factor: u16,
    /// Consistency level: one, two, three, quorum, all, local_quorum, local_one
    #[arg(long, default_value = "one", value_parser = consistency)]
    consistency: Consistency,
    /// Process of the server on this machine: its CPU time and memory are reported
    #[arg(long)]
    pid: Option<u32>,
    /// Report as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: TlsFlags,
}

fn identifier(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !text.is_empty() && text.len() <= 48 && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("expects letters, digits and underscores, at most 48".to_owned())
    }
}

fn consistency(text: &str) -> Result<Consistency, String> {
    use Consistency::{All, LocalOne, LocalQuorum, One, Quorum, Three, Two};
    let known = [
        ("one", One),
        ("two", Two),
        ("three", Three),
        ("quorum", Quorum),
        ("all", All),
        ("local_quorum", LocalQuorum),
        ("local_one", LocalOne),
    ];
    let found = known.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
    found.map(|(_, level)| *level).ok_or_else(|| {
        let names = known.map(|(name, _)| name);
        format!("expects one of {}", names.join(", "))
    })
}

/// Settings that all connections share.
#[derive(Debug)]
pub(crate) struct Plan {
    workload: Workload,
    keys: u64,
    /// Added to every key.
    first_key: u64,
    consistency: Consistency,
    columns: u16,
    value_bytes: usize,
    /// Requests in flight on this connection.
    window: usize,
    connections: u64,
    /// Operations of one connection.
    operations: Option<u64>,
    duration: Option<Duration>,
    /// Time between the requests of one connection.
    interval: Option<Duration>,
    insert: String,
    read: String,
}

/// Counts of one connection.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    operations: u64,
    errors: u64,
    /// Reads that found no row.
    missing: u64,
    first_error: Option<String>,
    /// Nanoseconds.
    latency: HistogramSnapshot,
}

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        self.operations += other.operations;
        self.errors += other.errors;
        self.missing += other.missing;
        self.latency.merge(&other.latency);
        if self.first_error.is_none() {
            self.first_error = other.first_error;
        }
    }
}

/// Runs it; the exit code.
pub fn main(command: Command) -> u8 {
    match command {
        Command::Insert(arguments) => load(Workload::Insert, &arguments),
        Command::Read(arguments) => load(Workload::Read, &arguments),
        Command::Mixed(arguments) => load(Workload::Mixed, &arguments),
        Command::InsertNew(arguments) => load(Workload::InsertNew, &arguments),
        Command::Connect(arguments) => connect::main(&arguments),
        Command::NullServer(arguments) => null_server::main(&arguments),
    }
}

/// Exit code 1: the server cannot be reached or refused anything.
fn load(workload: Workload, arguments: &Arguments) -> u8 {
    let window = (arguments.in_flight as usize).div_ceil(usize::from(arguments.connections));
    if window > WINDOW_MAX {
        complain_line!(
            "helenus bench: {window} requests in flight on one connection are too many (at most \
             {WINDOW_MAX}); use more --connections"
        );
        return exit::USAGE;
    }
    match run(workload, arguments, window) {
        Ok(report) => {
            say!("{}", if arguments.json { report.json() } else { report.text() });
            if report.total.errors == 0 { exit::OK } else { exit::FAILED }
        }
        Err(failure) => {
            complain_line!("helenus bench: {failure}");
            exit::FAILED
        }
    }
}

fn run(workload: Workload, arguments: &Arguments, window: usize) -> Result<Report, Failure> {
    let plan = Arc::new(plan(workload, arguments, window));
    let server = Server::new(&arguments.host, arguments.port, &arguments.tls)?;
    let mut first = Connection::open(&server)?;
    for statement in schema(arguments) {
        first.query(&statement)?;
    }
    drop(first);
    let (mut connections, mut resumed) = (Vec::new(), 0);
    for number in 0..arguments.connections {
        let mut connection = Connection::open(&server)?;
        connection.prepare(&plan)?;
        resumed += u64::from(connection.is_resumed());
        connections.push((number, connection));
    }
    let before = arguments.pid.and_then(resources::usage_of);
    let start = Instant::now();
    let threads: Vec<_> = connections
        .into_iter()
        .map(|(number, connection)| {
            let plan = plan.clone();
            std::thread::spawn(move || connection.run(&plan, u64::from(number), start))
        })
        .collect();
    let mut total = Outcome::default();
    for thread in threads {
        let outcome = thread.join().map_err(|_| Failure::Text("a thread panicked".to_owned()))?;
        total.merge(outcome?);
    }
    let took = start.elapsed();
    let after = arguments.pid.and_then(resources::usage_of);
    Ok(Report { workload, arguments: arguments.clone(), total, resumed, took, before, after })
}

fn plan(workload: Workload, arguments: &Arguments, window: usize) -> Plan {
    let connections = u64::from(arguments.connections);
    let names: Vec<String> = (0..arguments.columns).map(|i| format!("c{i}")).collect();
    let (names, marks) = (names.join(", "), ", ?".repeat(usize::from(arguments.columns)));
    let table = table(arguments);
    let duration = match (arguments.duration, arguments.operations) {
        (Some(seconds), _) => Some(Duration::from_secs(u64::from(seconds))),
        (None, Some(_)) => None,
        (None, None) => Some(Duration::from_secs(10)),
    };
    // Above all keys of other workloads and of earlier runs.
    let of_run = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs());
    let (keys, first_key, condition) = match workload {
        Workload::InsertNew => (u64::MAX, of_run << 30, " IF NOT EXISTS"),
        Workload::Insert | Workload::Read | Workload::Mixed => (arguments.keys, 0, ""),
    };
    Plan {
        workload,
        keys,
        first_key,
        consistency: arguments.consistency,
        columns: arguments.columns,
        value_bytes: arguments.value_bytes as usize,
        window,
        connections,
        operations: arguments.operations.map(|n| n.div_ceil(connections)),
        duration,
        interval: arguments
            .rate
            .map(|rate| Duration::from_secs_f64(connections as f64 / f64::from(rate))),
        insert: format!("INSERT INTO {table} (key, {names}) VALUES (?{marks}){condition}"),
        read: format!("SELECT {names} FROM {table} WHERE key = ?"),
    }
}

/// One table for each number of columns, so that runs with different ones do not meet.
fn table(arguments: &Arguments) -> String {
    format!("{}.standard{}", arguments.keyspace, arguments.columns)
}

fn schema(arguments: &Arguments) -> [String; 2] {
    let columns: String = (0..arguments.columns).map(|i| format!(", c{i} blob")).collect();
    [
        format!(
            "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': {}}}",
            arguments.keyspace, arguments.replication_factor
        ),
        format!("CREATE TABLE IF NOT EXISTS {} (key blob PRIMARY KEY{columns})", table(arguments)),
    ]
}

/// Result of a run.
struct Report {
    workload: Workload,
    arguments: Arguments,
    total: Outcome,
    /// Connections that resumed a TLS session.
    resumed: u64,
    took: Duration,
    before: Option<resources::Usage>,
    after: Option<resources::Usage>,
}

/// Resources that the server's process used.
struct ServerCost {
    cpu_seconds: f64,
    cpu_seconds_per_1000: f64,
    resident_bytes: u64,
}

impl Report {
    fn rate(&self) -> f64 {
        self.total.operations as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn millis(&self, quantile: f64) -> f64 {
        self.total.latency.quantile(quantile) as f64 / 1e6
    }

    fn mean_millis(&self) -> f64 {
        let count = self.total.latency.count().max(1);
        self.total.latency.sum as f64 / count as f64 / 1e6
    }

    fn server(&self) -> Option<ServerCost> {
        let (before, after) = (self.before?, self.after?);
        let ticks = after.cpu_ticks.saturating_sub(before.cpu_ticks);
        let cpu_seconds = ticks as f64 / resources::TICKS_PER_SECOND as f64;
        Some(ServerCost {
            cpu_seconds,
            cpu_seconds_per_1000: cpu_seconds * 1000.0 / self.total.operations.max(1) as f64,
            resident_bytes: after.resident_bytes,
        })
    }

    fn text(&self) -> String {
        use std::fmt::Write;
        let a = &self.arguments;
        let mut out = String::new();
        let _ = writeln!(
            out,
            "workload  {:?}, {} in flight over {} connections, {} keys, {} columns of {} bytes",
            self.workload, a.in_flight, a.connections, a.keys, a.columns, a.value_bytes
        );
        let _ = writeln!(
            out,
            "done      {} operations in {:.2} s, {} errors, {} rows not found",
            self.total.operations,
            self.took.as_secs_f64(),
            self.total.errors,
            self.total.missing
        );
        if a.tls.is_on() {
            let (resumed, all) = (self.resumed, a.connections);
            let _ = writeln!(out, "TLS       {resumed} of {all} connections resumed a session");
        }
        let _ = writeln!(out, "rate      {:.0} operations/s", self.rate());
        let _ = writeln!(
            out,
            "latency   mean {:.3} ms, p50 {:.3}, p95 {:.3}, p99 {:.3}, p99.9 {:.3}, max {:.3}",
            self.mean_millis(),
            self.millis(0.5),
            self.millis(0.95),
            self.millis(0.99),
            self.millis(0.999),
            self.total.latency.max as f64 / 1e6
        );
        match (self.arguments.pid, self.server()) {
            (Some(pid), Some(cost)) => {
                let _ = writeln!(
                    out,
                    "server    pid {pid}: {:.2} s CPU, {:.4} s per 1,000 operations, {} MiB resident",
                    cost.cpu_seconds,
                    cost.cpu_seconds_per_1000,
                    cost.resident_bytes >> 20
                );
            }
            (Some(pid), None) => {
                let _ = writeln!(out, "server    pid {pid} cannot be read");
            }
            (None, _) => {}
        }
        if let Some(error) = &self.total.first_error {
            let _ = writeln!(out, "first error: {error}");
        }
        out
    }

    fn json(&self) -> String {
        let a = &self.arguments;
        let server = self.server().map(|cost| {
            serde_json::json!({
                "cpu_seconds": cost.cpu_seconds,
                "cpu_seconds_per_1000_operations": cost.cpu_seconds_per_1000,
                "resident_bytes": cost.resident_bytes,
            })
        });
        let value = serde_json::json!({
            "workload": format!("{:?}", self.workload).to_lowercase(),
            "in_flight": a.in_flight,
            "connections": a.connections,
            "tls": a.tls.is_on(),
            "resumed_connections": self.resumed,
            "keys": a.keys,
            "seconds": self.took.as_secs_f64(),
            "operations": self.total.operations,
            "errors": self.total.errors,
            "rows_not_found": self.total.missing,
            "operations_per_second": self.rate(),
            "latency_ms": {
                "mean": self.mean_millis(),
                "p50": self.millis(0.5),
                "p95": self.millis(0.95),
                "p99": self.millis(0.99),
                "p99.9": self.millis(0.999),
                "max": self.total.latency.max as f64 / 1e6,
            },
            "first_error": self.total.first_error,
            "server": server,
        });
        format!("{value}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Command,
    }

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Cli::try_parse_from(format!("bench {line}").split_whitespace()).map(|c| c.command)
    }

    fn arguments(line: &str) -> Arguments {
        match parse(line).unwrap() {
            Command::Insert(a) | Command::Read(a) | Command::Mixed(a) | Command::InsertNew(a) => a,
            Command::Connect(_) | Command::NullServer(_) => panic!("no load: {line}"),
        }
    }

    #[test]
    fn work_is_divided_among_connections() {
        let arguments = arguments("insert --connections 3 --operations 10 --rate 300");
        let plan = plan(Workload::Insert, &arguments, 43);
        assert_eq!((plan.operations, plan.duration), (Some(4), None));
        assert_eq!(plan.interval, Some(Duration::from_millis(10)));
        assert_eq!(
            super::plan(Workload::Read, &super::tests::arguments("read"), 32).duration,
            Some(Duration::from_secs(10))
        );
    }

    #[test]
    fn statements_name_every_column() {
        let arguments = arguments("mixed --columns 2 --keyspace ks");
        let plan = plan(Workload::Mixed, &arguments, 1);
        assert_eq!(plan.insert, "INSERT INTO ks.standard2 (key, c0, c1) VALUES (?, ?, ?)");
        assert_eq!(plan.read, "SELECT c0, c1 FROM ks.standard2 WHERE key = ?");
        let [_, table] = schema(&arguments);
        assert!(table.ends_with("ks.standard2 (key blob PRIMARY KEY, c0 blob, c1 blob)"));
    }

    #[test]
    fn conditional_inserts_have_keys_of_their_own() {
        let arguments = arguments("insert-new --columns 1 --consistency QUORUM");
        let plan = plan(Workload::InsertNew, &arguments, 1);
        assert!(plan.insert.ends_with("(key, c0) VALUES (?, ?) IF NOT EXISTS"));
        assert_eq!(plan.consistency, Consistency::Quorum);
        assert!(plan.first_key > arguments.keys);
        assert!(parse("insert --consistency most").is_err());
        assert!(parse("insert --consistency local_quorum").is_ok());
    }

    #[test]
    fn wrong_arguments_are_refused_and_the_nearest_right_ones_taken() {
        assert!(parse("insert --connections 0").is_err());
        assert!(parse("insert --connections 1").is_ok());
        assert!(parse("scan").is_err());
        assert!(parse("read --keyspace a;b").is_err());
        assert!(parse("read --keyspace a_b").is_ok());
        assert!(parse("read --tls-ca a.pem").is_err(), "without --tls nothing is encrypted");
        assert!(parse("read --tls --tls-ca a.pem --tls-insecure").is_err());
        assert!(parse("read --tls --tls-key k.pem --tls-insecure").is_err());
        assert!(parse("read --tls --tls-cert c.pem --tls-key k.pem --tls-insecure").is_ok());
        assert_eq!(main(parse("read --tls").unwrap()), exit::FAILED);
        assert!(parse("connect --count 0").is_err());
        assert!(parse("connect --count 1 --tls --tls-insecure").is_ok());
        assert!(parse("null-server --smp 0").is_err());
        assert!(parse("null-server --smp 1 --port 0").is_ok());
        assert_eq!(main(parse("read --connections 1 --in-flight 1025").unwrap()), exit::USAGE);
    }

    #[test]
    fn report_has_rate_latency_and_the_servers_cost() {
        let latency = telemetry::Shard::new().histogram("latency", "", &[]);
        for _ in 0..100 {
            latency.record(2_000_000);
        }
        let total = Outcome { operations: 100, latency: latency.snapshot(), ..Outcome::default() };
        let usage = |cpu_ticks, resident_bytes| resources::Usage { cpu_ticks, resident_bytes };
        let report = Report {
            workload: Workload::Read,
            arguments: arguments("read --pid 7 --tls --tls-insecure"),
            total,
            resumed: 3,
            took: Duration::from_secs(2),
            before: Some(usage(100, 0)),
            after: Some(usage(150, 64 << 20)),
        };
        let text = report.text();
        assert!(text.contains("rate      50 operations/s\n"), "{text}");
        assert!(text.contains("TLS       3 of 4 connections resumed a session\n"), "{text}");
        assert!(text.contains("p99 2.000,"), "{text}");
        assert!(text.contains("0.50 s CPU, 5.0000 s per 1,000 operations, 64 MiB"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!((&json["tls"], &json["resumed_connections"]), (&true.into(), &3.into()));
        assert_eq!(json["latency_ms"]["max"], 2.0);
        assert_eq!(json["server"]["cpu_seconds"], 0.5);
    }
}
