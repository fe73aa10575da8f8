//! Conditional updates of one key by many clients through all nodes: is it a queue or a storm?

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use super::cql::{Client, Conditional};
use super::process::Target;
use super::report::rounded;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS perf3.contended (key int PRIMARY KEY, value blob)";
const FIRST: &str = "INSERT INTO perf3.contended (key, value) VALUES (0, 0x00)";
const UPDATE: &str = "UPDATE perf3.contended SET value = ? WHERE key = 0 IF EXISTS";
/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const VALUE: [u8; 32] = [7; 32];
/// "Write timeout" and "CAS write unknown": the outcome is unknown.
const UNCERTAIN: [u32; 2] = [0x1100, 0x1700];

/// Joint result of this number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct Contended {
    /// Each waits for its answer before it asks again.
    pub clients: usize,
    /// Applied updates per second.
    pub throughput: f64,
    /// Answers with an error that leaves open whether the update was done.
    pub uncertain: u64,
    /// Other errors.
    pub refused: u64,
    /// The same by code.
    pub errors: BTreeMap<String, u64>,
    /// Milliseconds until an update was applied.
    pub p50_ms: f64,
    /// See `p50_ms`.
    pub p99_ms: f64,
    /// User and system seconds of all nodes for 1,000 applied updates.
    pub server_cpu_per_1000: f64,
}

impl std::fmt::Display for Contended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:3} clients {:8.0} applied/s  p50 {} p99 {} ms  {} uncertain, {} refused  {:.4} CPU-s/1,000",
            self.clients,
            self.throughput,
            rounded(self.p50_ms),
            rounded(self.p99_ms),
            self.uncertain,
            self.refused,
            self.server_cpu_per_1000
        )
    }
}

#[derive(Default)]
struct Seen {
    applied: Vec<Duration>,
    errors: BTreeMap<u32, u64>,
}

/// Makes the table and its row.
pub fn prepare(target: &dyn Target) -> Result<()> {
    let addresses = target.addresses();
    let first = addresses.first().context("no node")?;
    let mut client = Client::connect(first, ANSWER_MAX)?;
    client.query(TABLE)?;
    client.query(FIRST)
}

/// Lets that many clients update the row for a time.
pub fn run(target: &dyn Target, clients: usize, length: Duration) -> Result<Contended> {
    let mut ready = Vec::new();
    for (address, _) in target.addresses().iter().cycle().zip(0..clients) {
        let mut client = Client::connect(address, ANSWER_MAX)?;
        let begun = Instant::now();
        // Cassandra's other nodes may not know the table yet.
        let id = loop {
            match client.prepare(UPDATE) {
                Ok(id) => break id,
                Err(error) if begun.elapsed() > ANSWER_MAX => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        };
        ready.push((client, id));
    }
    let before = target.cpu_seconds()?;
    let begun = Instant::now();
    let threads: Vec<_> = ready
        .into_iter()
        .map(|(mut client, id)| {
            std::thread::spawn(move || -> Result<Seen> {
                let mut seen = Seen::default();
                while begun.elapsed() < length {
                    let asked = Instant::now();
                    match client.execute_conditional(&id, &VALUE)? {
                        Conditional::Applied => seen.applied.push(asked.elapsed()),
                        Conditional::NotApplied => anyhow::bail!("the row is not there"),
                        Conditional::Error(code) => *seen.errors.entry(code).or_default() += 1,
                    }
                }
                Ok(seen)
            })
        })
        .collect();
    let mut all = Seen::default();
    for thread in threads {
        let seen = thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        all.applied.extend(seen.applied);
        for (code, count) in seen.errors {
            *all.errors.entry(code).or_default() += count;
        }
    }
    let took = begun.elapsed().as_secs_f64();
    let used = target.cpu_seconds()? - before;
    all.applied.sort_unstable();
    let percentile = |share: f64| {
        let at = (all.applied.len() as f64 * share) as usize;
        all.applied.get(at).map_or(f64::NAN, |d| d.as_secs_f64() * 1000.0)
    };
    let is_uncertain = |code: &&u32| UNCERTAIN.contains(code);
    let uncertain = all.errors.iter().filter(|(c, _)| is_uncertain(c)).map(|(_, n)| n).sum();
    let refused = all.errors.iter().filter(|(c, _)| !is_uncertain(c)).map(|(_, n)| n).sum();
    Ok(Contended {
        clients,
        throughput: all.applied.len() as f64 / took,
        uncertain,
        refused,
        errors: all.errors.iter().map(|(code, n)| (format!("{code:#06x}"), *n)).collect(),
        p50_ms: percentile(0.5),
        p99_ms: percentile(0.99),
        server_cpu_per_1000: used / all.applied.len() as f64 * 1000.0,
    })
}
