//! The load generator `latte` and its reports.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::process::{Target, bound};

const VERSION: &str = "0.29.0";
/// Requests in flight, and the most at an offered rate.
const IN_FLIGHT: &str = "128";

/// One workload.
#[derive(Debug, PartialEq, Eq)]
pub struct Workload {
    /// In the table.
    pub name: &'static str,
    /// File below `perf/workloads`, without its ending.
    pub script: &'static str,
    /// Functions of it with their weights.
    pub functions: &'static str,
    /// Recreates the table and counts a fixed number of operations; the others count seconds.
    pub loads: bool,
    /// Consistency level; without one latte's, LOCAL_QUORUM.
    pub consistency: Option<&'static str>,
}

/// How long one run of latte is.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// Seconds.
    Seconds(u64),
    /// Operations.
    Count(u64),
}

/// Figures of one counted run.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Operations per second.
    pub throughput: f64,
    /// Latency percentiles, milliseconds, from when the request was made.
    pub p50_ms: f64,
    /// See `p50_ms`.
    pub p99_ms: f64,
    /// See `p50_ms`.
    pub p999_ms: f64,
    /// User and system seconds of the server for 1,000 operations.
    pub server_cpu_per_1000: f64,
    /// Resident memory of the server afterwards.
    pub rss_mib: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:8.0} op/s  p50 {:7.2}  p99 {:7.2}  p99.9 {:7.2} ms  {:.4} CPU-s/1,000  RSS {:5.0} MiB",
            self.throughput,
            self.p50_ms,
            self.p99_ms,
            self.p999_ms,
            self.server_cpu_per_1000,
            self.rss_mib
        )
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().or_else(|| value.get("value")?.as_f64()).unwrap_or(f64::NAN)
}

/// Percentiles come as a list in this order, or as a map by name.
const PERCENTILES: [&str; 15] = [
    "Min", "P1", "P2", "P5", "P10", "P25", "P50", "P75", "P90", "P95", "P98", "P99", "P99_9",
    "P99_99", "Max",
];

fn percentile(latency: &Value, name: &str) -> f64 {
    let percentiles = &latency["percentiles"];
    let index = PERCENTILES.iter().position(|p| *p == name);
    match (percentiles.get(name), index.and_then(|i| percentiles.get(i))) {
        (Some(value), _) | (None, Some(value)) => number(value),
        (None, None) => f64::NAN,
    }
}

/// The installed load generator.
pub struct Latte {
    binary: PathBuf,
    root: PathBuf,
    home: PathBuf,
}

impl Latte {
    /// Installs it once; `LATTE` names an installed one.
    pub fn install(root: &Path, home: &Path) -> Result<Latte> {
        let binary = match std::env::var("LATTE") {
            Ok(path) => path.into(),
            Err(_) => home.join("latte/bin/latte"),
        };
        if !binary.exists() {
            println!("installing latte-cli {VERSION} (several minutes, once)");
            let status = Command::new("cargo")
                .current_dir(root)
                .args(["install", "latte-cli", "--version", VERSION, "--locked", "--root"])
                .arg(home.join("latte"))
                .env("CARGO_TARGET_DIR", home.join("latte-target"))
                .status()?;
            if !status.success() || !binary.exists() {
                bail!("cargo install latte-cli failed; set LATTE to an installed one");
            }
        }
        Ok(Latte { binary, root: root.to_owned(), home: home.to_owned() })
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = bound(&self.binary);
        // It leaves logs where it runs.
        command.arg(verb).current_dir(&self.home);
        command
    }

    fn script(&self, workload: &Workload) -> PathBuf {
        self.root.join("perf/workloads").join(format!("{}.rn", workload.script))
    }

    /// Recreates the workload's table.
    pub fn schema(&self, workload: &Workload, target: &dyn Target) -> Result<()> {
        let mut command = self.command("schema");
        command.arg(self.script(workload)).args(target.addresses());
        let output = command.output()?;
        if !output.status.success() {
            bail!("latte schema: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// One run over `rows` rows, with `rate` operations per second offered, or with 128 in flight.
    pub fn run(
        &self,
        workload: &Workload,
        target: &dyn Target,
        rows: u64,
        length: Length,
        rate: Option<u32>,
    ) -> Result<Figures> {
        self.run_from(workload, target, 0, rows, length, rate)
    }

    /// The same; inserts begin at the row `first` (of "standard1").
    pub fn run_from(
        &self,
        workload: &Workload,
        target: &dyn Target,
        first: u64,
        rows: u64,
        length: Length,
        rate: Option<u32>,
    ) -> Result<Figures> {
        let report = self.home.join("latte-report.json");
        // A report of an earlier run must not be read for this one.
        if report.exists() {
            crate::disk::remove_file(&report)?;
        }
        let mut command = self.command("run");
        command.args(["-q", "-o"]).arg(&report).args(["-f", workload.functions, "-p", IN_FLIGHT]);
        command.arg("-d").arg(match length {
            Length::Seconds(seconds) => format!("{seconds}s"),
            Length::Count(count) => count.to_string(),
        });
        if let Some(rate) = rate {
            command.arg("-r").arg(rate.to_string());
        }
        command.arg("-P").arg(match workload.script {
            "series" => format!("partitions={}", rows.div_ceil(1000)),
            _ => format!("rows={rows}"),
        });
        if first > 0 {
            command.args(["-P", &format!("first={first}")]);
        }
        if let Some(level) = workload.consistency {
            command.args(["--consistency", level]);
        }
        command.arg(self.script(workload)).args(target.addresses());
        let before = target.cpu_seconds()?;
        let output = command.output()?;
        let used = target.cpu_seconds()? - before;
        let text = crate::disk::read_to_string(&report).with_context(|| {
            format!("latte wrote no report: {}", String::from_utf8_lossy(&output.stderr))
        })?;
        let report: Value = serde_json::from_str(&text)?;
        let result = &report["result"];
        let operations = number(&result["request_count"]);
        let errors = result["error_count"].as_u64().unwrap_or(0);
        if errors > 0 {
            bail!("{errors} requests failed");
        }
        let latency = match &result["request_latency"] {
            Value::Null => &result["cycle_latency"],
            latency => latency,
        };
        Ok(Figures {
            throughput: number(&result["req_throughput"]),
            p50_ms: percentile(latency, "P50"),
            p99_ms: percentile(latency, "P99"),
            p999_ms: percentile(latency, "P99_9"),
            server_cpu_per_1000: used / operations * 1000.0,
            rss_mib: target.rss_mib()?,
        })
    }
}
