//! `helenus bench connect`: many connections opened at once, as after the restart of a server. Each thread first
//! begins all of its handshakes, then completes them one after the other, so that the server has all of them at the
//! same time.

use std::time::{Duration, Instant};

use clap::Args;
use telemetry::{Histogram, HistogramSnapshot};

use super::client::{Connection, Failure};
use super::tls::{Server, TlsFlags};
use crate::exit;

/// The command line.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// Name or address of the server
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// CQL port
    #[arg(long, default_value_t = 9042)]
    port: u16,
    /// Connections
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    count: u32,
    /// Threads that share the connections
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    #[command(flatten)]
    tls: TlsFlags,
    /// Report as one JSON object
    #[arg(long)]
    json: bool,
}

/// Counts of one thread, or of all.
#[derive(Debug, Default)]
struct Outcome {
    opened: u64,
    resumed: u64,
    failed: u64,
    first_error: Option<String>,
    /// Nanoseconds from the start of the run until the connection was ready.
    ready: HistogramSnapshot,
}

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        self.opened += other.opened;
        self.resumed += other.resumed;
        self.failed += other.failed;
        self.ready.merge(&other.ready);
        if self.first_error.is_none() {
            self.first_error = other.first_error;
        }
    }

    fn fail(&mut self, failure: &Failure) {
        self.failed += 1;
        self.first_error.get_or_insert_with(|| failure.to_string());
    }
}

/// Runs it; exit code 1: a connection failed.
pub(crate) fn main(arguments: &Arguments) -> u8 {
    match run(arguments) {
        Ok((outcome, took)) => {
            say!("{}", report(&outcome, took, arguments.json));
            if outcome.failed == 0 { exit::OK } else { exit::FAILED }
        }
        Err(failure) => {
            complain_line!("helenus bench: {failure}");
            exit::FAILED
        }
    }
}

fn run(arguments: &Arguments) -> Result<(Outcome, Duration), Failure> {
    let server = Server::new(&arguments.host, arguments.port, &arguments.tls)?;
    let start = Instant::now();
    let threads = u32::from(arguments.threads);
    let threads: Vec<_> = (0..threads)
        .map(|number| {
            let count = (arguments.count + number) / threads;
            let server = server.clone();
            std::thread::spawn(move || open(&server, count, start))
        })
        .collect();
    let mut total = Outcome::default();
    let mut open = Vec::new();
    for thread in threads {
        let ended = thread.join().map_err(|_| Failure::Text("a thread panicked".to_owned()))?;
        total.merge(ended.0);
        // All stay open until the last one is.
        open.push(ended.1);
    }
    Ok((total, start.elapsed()))
}

/// Opens connections; returns them, so that none ends before all are open.
fn open(server: &Server, count: u32, start: Instant) -> (Outcome, Vec<Connection>) {
    let ready: Histogram = telemetry::Shard::new().histogram("ready_nanos", "", &[]);
    let mut outcome = Outcome::default();
    let begun: Vec<_> = (0..count).map(|_| server.begin()).collect();
    let mut connections = Vec::new();
    for begun in begun {
        let opened = begun.and_then(|begun| Connection::over(server.finish(begun)?));
        match opened {
            Ok(connection) => {
                let nanos = start.elapsed().as_nanos();
                ready.record(u64::try_from(nanos).unwrap_or(u64::MAX));
                outcome.opened += 1;
                outcome.resumed += u64::from(connection.is_resumed());
                connections.push(connection);
            }
            Err(failure) => outcome.fail(&failure),
        }
    }
    outcome.ready = ready.snapshot();
    (outcome, connections)
}

fn report(outcome: &Outcome, took: Duration, json: bool) -> String {
    let millis = |quantile| outcome.ready.quantile(quantile) as f64 / 1e6;
    if json {
        let value = serde_json::json!({
            "opened": outcome.opened,
            "resumed": outcome.resumed,
            "failed": outcome.failed,
            "first_error": outcome.first_error,
            "seconds": took.as_secs_f64(),
            "ready_ms": { "p50": millis(0.5), "p99": millis(0.99) },
        });
        return format!("{value}\n");
    }
    let mut out = format!(
        "opened    {} connections in {:.2} s, {} resumed, {} failed\n\
         ready     p50 {:.1} ms, p99 {:.1}\n",
        outcome.opened,
        took.as_secs_f64(),
        outcome.resumed,
        outcome.failed,
        millis(0.5),
        millis(0.99)
    );
    if let Some(error) = &outcome.first_error {
        out.push_str(&format!("first error: {error}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_shared_out_and_failures_are_counted() {
        let shares = |count: u32, threads: u32| (0..threads).map(move |n| (count + n) / threads);
        assert_eq!(shares(2000, 3).sum::<u32>(), 2000);
        assert_eq!(shares(1, 3).sum::<u32>(), 1);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let (outcome, connections) = open(&Server::plain("127.0.0.1", port), 3, Instant::now());
        assert_eq!((outcome.opened, outcome.failed, connections.len()), (0, 3, 0));
        let text = report(&outcome, Duration::from_secs(1), false);
        assert!(text.starts_with("opened    0 connections in 1.00 s, 0 resumed, 3 failed\n"));
        assert!(text.contains("first error: cannot connect to 127.0.0.1:"), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&report(&outcome, Duration::from_secs(1), true)).unwrap();
        assert_eq!(json["failed"], 3);
    }
}
