//! Three nodes as one target: start, pause, resume, their CPU together.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cassandra::{self, Sync};
use super::cql::{Client, Level};
use super::process::{Server, Target, bound, helenus_binary};

/// CQL port of every Helenus node; the addresses differ.
const CQL_PORT: u16 = 19142;
const STORAGE_PORT: u16 = 19144;
const API_PORT: u16 = 19143;
/// Longest wait until all nodes write to all nodes.
const TOGETHER_MAX: Duration = Duration::from_secs(120);
/// Longest wait until they are idle, the interval of polls, and the CPU in that time that counts as
/// idle.
const QUIET_MAX: Duration = Duration::from_secs(60);
const QUIET_EVERY: Duration = Duration::from_millis(500);
const QUIET_CPU_S: f64 = 0.1;
/// Keyspace of all workloads here.
const KEYSPACE: &str = "CREATE KEYSPACE IF NOT EXISTS perf3 WITH replication = \
                        {'class': 'SimpleStrategy', 'replication_factor': 3}";

/// Attempts to start a node of Cassandra: on a busy machine one stops before the first has answered
/// it.
const CASSANDRA_STARTS: u32 = 3;

/// Which cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The server under test.
    Helenus,
    /// The yardstick.
    Cassandra,
}

impl Kind {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Helenus => "helenus",
            Kind::Cassandra => "cassandra",
        }
    }
}

/// Three running nodes.
pub struct Nodes {
    servers: Vec<Server>,
    tool: Tool,
    /// From nothing to the first CQL answer of the last one.
    pub started_after: Duration,
}

/// Tool for requests other than CQL.
enum Tool {
    /// This server's program.
    Helenus(PathBuf),
    /// Cassandra's tool, below this directory.
    Cassandra(PathBuf),
}

fn helenus_address(number: u16) -> String {
    format!("127.0.91.{number}")
}

fn cassandra_address(number: u16) -> String {
    format!("127.0.92.{number}")
}

fn cassandra_node(home: &Path, node: &cassandra::Node<'_>) -> Result<Server> {
    let mut starts = 0;
    loop {
        let mut server = cassandra::begin(home, node)?;
        starts += 1;
        match server.wait() {
            Ok(()) => return Ok(server),
            Err(error) if starts == CASSANDRA_STARTS => return Err(error),
            Err(error) => println!("{error:#}; it is started again"),
        }
    }
}

impl Nodes {
    /// Three nodes of Helenus, of one shard each, on empty directories, all started at once.
    pub fn helenus(root: &Path, home: &Path, memory: &str, sync: Sync) -> Result<Nodes> {
        let begun = Instant::now();
        let mut servers = Vec::new();
        for number in 1..=3 {
            let data = home.join(format!("helenus-data-{number}"));
            if data.exists() {
                crate::disk::remove_dir_all(&data)?;
            }
            let address = helenus_address(number);
            let mut command = bound(&helenus_binary(root));
            command.arg("server").arg("--workdir").arg(&data);
            command.args(["--memory", memory, "--smp", "1", "--cluster-name", "perf"]);
            command.args(["--listen-address", &address, "--rpc-address", &address]);
            command.args(["--api-address", &address, "--api-port", &API_PORT.to_string()]);
            command.args(["--storage-port", &STORAGE_PORT.to_string()]);
            command.args(["--native-transport-port", &CQL_PORT.to_string()]);
            command.args(["--native-shard-aware-transport-port", "0"]);
            // It would begin after five minutes; Cassandra repairs nothing unasked.
            command.args(["--auto-repair-enabled", "false"]);
            command.args(["--seeds", &format!("{}:{STORAGE_PORT}", helenus_address(1))]);
            if sync == Sync::Batch {
                command.args(["--commitlog-sync", "batch"]);
            }
            let cql = format!("{address}:{CQL_PORT}");
            servers.push(Server::begin(command, home, &format!("helenus-{number}"), &cql)?);
        }
        Nodes::wait(servers, Tool::Helenus(helenus_binary(root)), begun)
    }

    /// Three nodes of Cassandra on empty directories, one after the other.
    pub fn cassandra(home: &Path, heap: &str, sync: Sync) -> Result<Nodes> {
        cassandra::install(home)?;
        let begun = Instant::now();
        let seed = cassandra_address(1);
        let mut servers = Vec::new();
        for number in 1..=3 {
            let address = cassandra_address(number);
            let (address, seed) = (address.as_str(), seed.as_str());
            let node = cassandra::Node { number, address, seed, heap, sync, more: "" };
            servers.push(cassandra_node(home, &node)?);
        }
        Nodes::wait(servers, Tool::Cassandra(home.to_owned()), begun)
    }

    fn wait(mut servers: Vec<Server>, tool: Tool, begun: Instant) -> Result<Nodes> {
        for server in &mut servers {
            server.wait()?;
        }
        let nodes = Nodes { servers, tool, started_after: begun.elapsed() };
        nodes.await_each_other()?;
        Ok(nodes)
    }

    /// Every node writes at ALL.
    fn await_each_other(&self) -> Result<()> {
        let begun = Instant::now();
        let all = || -> Result<()> {
            for server in &self.servers {
                let mut client = Client::connect(server.address(), Duration::from_secs(30))?;
                client.query(KEYSPACE)?;
                client.query("CREATE TABLE IF NOT EXISTS perf3.together (key int PRIMARY KEY)")?;
                client.query_at("INSERT INTO perf3.together (key) VALUES (1)", Level::All)?;
            }
            Ok(())
        };
        while let Err(error) = all() {
            if begun.elapsed() > TOGETHER_MAX {
                bail!("the nodes are no cluster after {} s: {error:#}", TOGETHER_MAX.as_secs());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Processes, in the order of the nodes.
    pub fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Server::pid).collect()
    }

    /// Holds all of them.
    pub fn pause(&mut self) -> Result<()> {
        self.servers.iter_mut().try_for_each(Server::pause)
    }

    /// Resumes them and waits until they consider each other alive.
    pub fn resume(&mut self) -> Result<()> {
        // All before one of them is used: they may need each other for an answer.
        self.servers.iter_mut().try_for_each(Server::go_on)?;
        self.servers.iter_mut().try_for_each(Server::resume)?;
        self.await_each_other()
    }

    /// Writes the memtables of a keyspace to the disk, on all of them.
    pub fn flush(&self, keyspace: &str) -> Result<()> {
        for number in 1..=3 {
            match &self.tool {
                Tool::Helenus(binary) => {
                    let output = Command::new(binary)
                        .args(["nodetool", "-h", &helenus_address(number)])
                        .args(["-p", &API_PORT.to_string(), "flush", keyspace])
                        .output()?;
                    if !output.status.success() {
                        bail!("nodetool flush: {}", String::from_utf8_lossy(&output.stderr));
                    }
                }
                Tool::Cassandra(home) => {
                    cassandra::nodetool_of(home, number, &["flush", keyspace])?;
                }
            }
        }
        Ok(())
    }

    /// Waits until they have nothing to do; false when they still have after a minute.
    pub fn await_quiet(&self) -> Result<bool> {
        let begun = Instant::now();
        while begun.elapsed() < QUIET_MAX {
            let before = self.cpu_seconds()?;
            std::thread::sleep(QUIET_EVERY);
            if self.cpu_seconds()? - before < QUIET_CPU_S {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends them.
    pub fn stop(self) -> Result<()> {
        self.servers.into_iter().try_for_each(|server| server.stop().map(drop))
    }
}

impl Target for Nodes {
    fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|s| s.address().to_owned()).collect()
    }

    fn cpu_seconds(&self) -> Result<f64> {
        self.servers.iter().map(Target::cpu_seconds).sum::<Result<f64>>().context("CPU")
    }

    fn rss_mib(&self) -> Result<f64> {
        self.servers.iter().map(Target::rss_mib).sum()
    }
}
