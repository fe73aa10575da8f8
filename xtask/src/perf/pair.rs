//! Two nodes of Helenus, of one shard each, and access other than CQL: `nodetool`, metrics, files
//! of a table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use blocking_client::{Endpoint, http};
use http_client::Request;

use super::process::{Server, Target, bound, helenus_binary};

const CQL_PORT: u16 = 19142;
const STORAGE_PORT: u16 = 19144;
const API_PORT: u16 = 19143;
/// Keyspace of the rows, two replicas of each.
const KEYSPACE: &str = "perf2";
/// Attempts to write the rows.
const TRIES: usize = 3;

/// Shape and number of the rows.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// How many.
    pub count: u64,
    /// Bytes of each of their five values, which are random, so that LZ4 cannot shrink them.
    pub value_bytes: u64,
}

impl Rows {
    /// Returns the number of rows whose values have about that many MB (10^6 bytes).
    pub fn of_mb(mb: u64, value_bytes: u64) -> Rows {
        Rows { count: (mb * 1_000_000).div_ceil(value_bytes * 5), value_bytes }
    }
}

/// One or two running nodes; the first founds the cluster.
pub struct Pair {
    root: PathBuf,
    home: PathBuf,
    options: Vec<String>,
    servers: Vec<Server>,
}

fn address(number: usize) -> String {
    format!("127.0.93.{number}")
}

impl Pair {
    /// Starts the first node on an empty directory. The options are for both nodes.
    pub fn found(root: &Path, home: &Path, options: &[&str]) -> Result<Pair> {
        let options = options.iter().map(|&o| o.to_owned()).collect();
        let mut pair =
            Pair { root: root.to_owned(), home: home.to_owned(), options, servers: Vec::new() };
        pair.start(1)?;
        Ok(pair)
    }

    /// Starts the second one, which copies nothing automatically.
    pub fn join(&mut self) -> Result<()> {
        self.start(2)
    }

    fn data(&self, number: usize) -> PathBuf {
        self.home.join(format!("pair-data-{number}"))
    }

    fn start(&mut self, number: usize) -> Result<()> {
        let data = self.data(number);
        if data.exists() {
            crate::disk::remove_dir_all(&data)?;
        }
        let address = address(number);
        let mut command = bound(&helenus_binary(&self.root));
        command.arg("server").arg("--workdir").arg(&data);
        command.args(["--smp", "1", "--cluster-name", "perf", "--auto-bootstrap", "false"]);
        command.args(["--auto-repair-enabled", "false", "--compaction-throughput", "0B/s"]);
        command.args(["--listen-address", &address, "--rpc-address", &address]);
        command.args(["--api-address", &address, "--api-port", &API_PORT.to_string()]);
        command.args(["--storage-port", &STORAGE_PORT.to_string()]);
        command.args(["--native-transport-port", &CQL_PORT.to_string()]);
        command.args(["--native-shard-aware-transport-port", "0"]);
        command.args(["--seeds", &format!("{}:{STORAGE_PORT}", self::address(1))]);
        command.args(&self.options);
        let cql = format!("{address}:{CQL_PORT}");
        let name = format!("pair-{number}");
        self.servers.push(Server::spawn(command, &self.home, &name, &cql)?);
        Ok(())
    }

    /// Writes rows through the first node; again when some were refused because flushes did not keep
    /// up.
    pub fn write(&self, rows: Rows, consistency: &str) -> Result<()> {
        let mut told = String::new();
        for _ in 0..TRIES {
            let output = Command::new(helenus_binary(&self.root))
                .args(["bench", "insert", "--host", &address(1), "--port", &CQL_PORT.to_string()])
                .args(["--keyspace", KEYSPACE, "--replication-factor", "2"])
                .args(["--connections", "2", "--in-flight", "64", "--consistency", consistency])
                .args(["--columns", "5", "--value-bytes", &rows.value_bytes.to_string()])
                .args(["--keys", &rows.count.to_string()])
                .args(["--operations", &rows.count.to_string()])
                .output()?;
            if output.status.success() {
                return Ok(());
            }
            told = String::from_utf8_lossy(&output.stdout).into_owned();
            told.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        bail!("helenus bench insert: {told}")
    }

    /// Runs `nodetool` on one of them, for the keyspace of the rows; returns its output.
    pub fn nodetool(&self, number: usize, words: &[&str]) -> Result<String> {
        let output = Command::new(helenus_binary(&self.root))
            .args(["nodetool", "-h", &address(number), "-p", &API_PORT.to_string()])
            .args(words)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("nodetool {}: {text}{error}", words.join(" "));
        }
        Ok(text)
    }

    /// All memtables on the disk, one file.
    pub fn settle(&self, number: usize) -> Result<()> {
        self.nodetool(number, &["flush", KEYSPACE])?;
        self.nodetool(number, &["compact", KEYSPACE])?;
        Ok(())
    }

    /// Every metric of a node, over all its labels.
    pub fn metrics(&self, number: usize) -> Result<BTreeMap<String, f64>> {
        let host = address(number);
        let endpoint = Endpoint { host: &host, port: API_PORT, timeout: None };
        let request = Request { method: "GET", path: "/metrics", authorization: None, body: None };
        let text = String::from_utf8(http::exchange(&endpoint, &request, None)?.body)?;
        let mut sums = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (Some((name, _)), Some((_, value))) =
                (line.split_once(['{', ' ']), line.rsplit_once(' '))
            else {
                continue;
            };
            if let Ok(value) = value.trim().parse::<f64>() {
                *sums.entry(name.to_owned()).or_insert(0.0) += value;
            }
        }
        if sums.is_empty() {
            bail!("{host} shows no metrics");
        }
        Ok(sums)
    }

    /// User and system seconds of one of them so far.
    pub fn cpu_seconds(&self, number: usize) -> Result<f64> {
        self.servers.get(number - 1).context("no such node")?.cpu_seconds()
    }

    /// Process of one of them.
    pub fn pid(&self, number: usize) -> Result<u32> {
        Ok(self.servers.get(number - 1).context("no such node")?.pid())
    }

    /// Files of the table at a node.
    pub fn files(&self, number: usize) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let keyspace = self.data(number).join("data").join(KEYSPACE);
        for table in
            crate::disk::read_dir(&keyspace).with_context(|| keyspace.display().to_string())?
        {
            for file in crate::disk::read_dir(table?.path())? {
                let file = file?;
                if file.file_type()?.is_file() {
                    found.push(file.path());
                }
            }
        }
        Ok(found)
    }

    /// Ends them and removes their data.
    pub fn stop(mut self) -> Result<()> {
        for server in self.servers.drain(..).rev() {
            server.stop()?;
        }
        for number in [1, 2] {
            let data = self.data(number);
            if data.exists() {
                crate::disk::remove_dir_all(&data)?;
            }
        }
        Ok(())
    }
}

/// Bytes of files.
pub fn bytes_of<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<u64> {
    files.into_iter().map(|f| Ok(crate::disk::metadata(f)?.len())).sum()
}

/// Returns true if the file holds rows.
pub fn is_data(file: &Path) -> bool {
    file.to_string_lossy().ends_with("-Data.db")
}
