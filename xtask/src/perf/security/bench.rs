//! Runs of `helenus bench`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::super::process::{Server, Target, bound, helenus_binary};

/// Connections of a load.
const CONNECTIONS: u64 = 4;
/// Requests in flight, and the most at an offered rate.
const IN_FLIGHT: &str = "128";

/// One load.
#[derive(Clone, Debug)]
pub struct Load {
    /// `insert`, `read` or `mixed`.
    pub workload: &'static str,
    /// Number of different keys.
    pub rows: u64,
    /// How long.
    pub length: Length,
    /// Operations per second that are offered; `None`: 128 in flight.
    pub rate: Option<u32>,
    /// The authority of the server's certificate; `None`: in the clear.
    pub authority: Option<PathBuf>,
}

/// How long a load is.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// Seconds.
    Seconds(u64),
    /// Operations.
    Operations(u64),
}

/// Figures of one load.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Operations per second.
    pub throughput: f64,
    /// Milliseconds; at an offered rate from when the request was due.
    pub p50_ms: f64,
    /// See `p50_ms`.
    pub p99_ms: f64,
    /// User and system seconds of the server for 1,000 operations.
    pub cpu_per_1000: f64,
    /// True if each connection resumed a TLS session.
    pub all_resumed: bool,
}

/// Result of connections that were opened at once.
#[derive(Clone, Debug, Serialize)]
pub struct Storm {
    /// Connections that were opened.
    pub opened: u64,
    /// Seconds until all were.
    pub seconds: f64,
}

/// The generator.
pub struct Generator {
    binary: PathBuf,
}

fn host_and_port(server: &Server) -> Result<(&str, &str)> {
    server.address().rsplit_once(':').context("an address without a port")
}

impl Generator {
    /// That of the server's binary.
    pub fn new(root: &Path) -> Generator {
        Generator { binary: helenus_binary(root) }
    }

    fn command(&self, load: &Load, server: &Server) -> Result<Command> {
        let (host, port) = host_and_port(server)?;
        let mut command = bound(&self.binary);
        command.args(["bench", load.workload, "--json", "--host", host, "--port", port]);
        command.args(["--connections", &CONNECTIONS.to_string(), "--in-flight", IN_FLIGHT]);
        command.args(["--keys", &load.rows.to_string(), "--keyspace", "perf"]);
        match load.length {
            Length::Seconds(n) => command.args(["--duration", &n.to_string()]),
            Length::Operations(n) => command.args(["--operations", &n.to_string()]),
        };
        if let Some(rate) = load.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        if let Some(authority) = &load.authority {
            command.args(["--tls", "--tls-ca"]).arg(authority);
        }
        Ok(command)
    }

    /// Runs one load to its end.
    pub fn run(&self, load: &Load, server: &Server) -> Result<Figures> {
        self.run_beside(load, server, || Ok(()))
    }

    /// The same, while `beside` runs repeatedly.
    pub fn run_beside(
        &self,
        load: &Load,
        server: &Server,
        mut beside: impl FnMut() -> Result<()>,
    ) -> Result<Figures> {
        let before = server.cpu_seconds()?;
        let mut command = self.command(load, server)?;
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut ran = Ok(());
        while ran.is_ok() && child.try_wait()?.is_none() {
            ran = beside();
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let output = child.wait_with_output()?;
        ran?;
        let used = server.cpu_seconds()? - before;
        let report = report(&output.stdout, &output.stderr)?;
        if let Some(error) = report["first_error"].as_str() {
            bail!("{} requests failed: {error}", report["errors"]);
        }
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let resumed = report["resumed_connections"].as_u64();
        Ok(Figures {
            throughput: number(&report["operations_per_second"]),
            p50_ms: number(&report["latency_ms"]["p50"]),
            p99_ms: number(&report["latency_ms"]["p99"]),
            cpu_per_1000: used * 1000.0 / number(&report["operations"]),
            all_resumed: resumed == Some(CONNECTIONS),
        })
    }

    /// Opens connections with full handshakes, all at once. The generator's own work yields to that of the server and
    /// of other clients: it runs at the lowest priority.
    pub fn storm(&self, server: &Server, count: u64, authority: &Path) -> Result<Storm> {
        let (host, port) = host_and_port(server)?;
        let mut command = bound(Path::new("nice"));
        command.args(["-n", "19"]).arg(&self.binary);
        command.args(["bench", "connect", "--json", "--host", host, "--port", port]);
        command.args(["--count", &count.to_string(), "--threads", "1"]);
        command.args(["--tls", "--tls-no-resumption", "--tls-ca"]).arg(authority);
        let output = command.output()?;
        let report = report(&output.stdout, &output.stderr)?;
        if let Some(error) = report["first_error"].as_str() {
            bail!("{} connections failed: {error}", report["failed"]);
        }
        Ok(Storm {
            opened: report["opened"].as_u64().unwrap_or(0),
            seconds: report["seconds"].as_f64().unwrap_or(f64::NAN),
        })
    }
}

fn report(stdout: &[u8], stderr: &[u8]) -> Result<Value> {
    serde_json::from_slice(stdout)
        .with_context(|| format!("helenus bench: {}", String::from_utf8_lossy(stderr)))
}
