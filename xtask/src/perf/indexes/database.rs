//! The two databases: start, `nodetool`, files of a table, index builds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::super::cassandra;
use super::super::cql::{Client, Level};
use super::super::process::{Kind, Server, Target, bound, helenus_binary};

const HELENUS_ADDRESS: &str = "127.0.34.1";
const CASSANDRA_ADDRESS: &str = "127.0.34.2";
const CQL_PORT: u16 = 19142;
const STORAGE_PORT: u16 = 19144;
const API_PORT: u16 = 19143;
/// Number of the node of Cassandra, for its directories and its port of JMX.
const CASSANDRA_NUMBER: u16 = 34;
/// Shards of Helenus.
pub const SHARDS: u32 = 2;
/// Longest wait for an answer of a single statement, and for an index build.
const ANSWER_MAX: Duration = Duration::from_secs(120);
const BUILD_MAX: Duration = Duration::from_secs(1200);
const BUILD_POLL: Duration = Duration::from_millis(250);
/// Longest wait until a server is idle, the interval of polls, and the CPU in that time that counts as idle.
const IDLE_MAX: Duration = Duration::from_secs(60);
const IDLE_POLL: Duration = Duration::from_millis(500);
const IDLE_CPU_S: f64 = 0.06;
/// Keyspace of all tables.
pub const KEYSPACE: &str = "ix";

/// One running server and where its files are.
pub struct Database {
    /// Which one.
    pub kind: Kind,
    /// Its process.
    pub server: Server,
    root: PathBuf,
    home: PathBuf,
}

/// Bytes of the files of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TableBytes {
    /// All components.
    pub all: u64,
    /// Those of indexes.
    pub indexes: u64,
}

impl Database {
    /// Starts both on empty directories, makes the keyspace and pauses them.
    pub fn start_all(
        root: &Path,
        home: &Path,
        memory: &str,
        with_cassandra: bool,
    ) -> Result<Vec<Database>> {
        let mut servers = vec![(Kind::Helenus, start_helenus(root, home, memory)?)];
        if with_cassandra {
            servers.push((Kind::Cassandra, start_cassandra(home, memory)?));
        }
        let mut all = Vec::new();
        for (kind, server) in servers {
            let (root, home) = (root.to_owned(), home.to_owned());
            let mut database = Database { kind, server, root, home };
            database.client()?.query(&format!(
                "CREATE KEYSPACE {KEYSPACE} WITH replication = \
                 {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
            ))?;
            database.nodetool(&["setcompactionthroughput", "0"])?;
            database.server.pause()?;
            all.push(database);
        }
        Ok(all)
    }

    /// A connection for single statements.
    pub fn client(&self) -> Result<Client> {
        Client::connect(self.server.address(), ANSWER_MAX)
    }

    /// Runs a statement that changes the schema.
    pub fn execute(&self, statement: &str) -> Result<()> {
        self.client()?.query(statement)
    }

    /// Runs `nodetool`.
    pub fn nodetool(&self, words: &[&str]) -> Result<()> {
        if self.kind == Kind::Cassandra {
            return cassandra::nodetool_of(&self.home, CASSANDRA_NUMBER, words).map(drop);
        }
        let output = Command::new(helenus_binary(&self.root))
            .args(["nodetool", "-h", HELENUS_ADDRESS, "-p", &API_PORT.to_string()])
            .args(words)
            .output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("nodetool {}: {text}{error}", words.join(" "));
        }
        Ok(())
    }

    /// Writes the memtable of a table to the disk and merges all its files.
    pub fn flush_and_compact(&self, table: &str) -> Result<()> {
        self.nodetool(&["flush", KEYSPACE, table])?;
        self.nodetool(&["compact", KEYSPACE, table])
    }

    /// User and system seconds that the server spends during `action`.
    pub fn cost(&self, action: impl FnOnce() -> Result<()>) -> Result<f64> {
        let before = self.server.cpu_seconds()?;
        action()?;
        Ok(self.server.cpu_seconds()? - before)
    }

    /// Waits until the server has no background work, or a minute has passed.
    pub fn await_idle(&self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < IDLE_MAX {
            let used = self.cost(|| {
                std::thread::sleep(IDLE_POLL);
                Ok(())
            })?;
            if used < IDLE_CPU_S {
                break;
            }
        }
        Ok(())
    }

    /// Waits until `system_views.sai_column_indexes` shows that an index is built, on every shard.
    pub fn await_index(&self, index: &str) -> Result<()> {
        let mut client = self.client()?;
        let id = client.prepare(&format!(
            "SELECT index_name, is_queryable, is_building FROM system_views.sai_column_indexes \
             WHERE keyspace_name = '{KEYSPACE}'"
        ))?;
        let begun = Instant::now();
        while begun.elapsed() < BUILD_MAX {
            let mut is_built = false;
            client.pages(&id, Level::One, 100, |page| {
                page.each_row(|cells| {
                    is_built |= *cells == [index.as_bytes(), &[1], &[0]];
                    Ok(())
                })
            })?;
            if is_built {
                return Ok(());
            }
            std::thread::sleep(BUILD_POLL);
        }
        bail!("index {index} is not built after {} s", BUILD_MAX.as_secs())
    }

    /// Bytes of a table's files, when they have not changed for a second: replaced files are removed late.
    pub fn table_bytes(&self, table: &str) -> Result<TableBytes> {
        let mut bytes = self.table_bytes_now(table)?;
        for _ in 0..30 {
            std::thread::sleep(Duration::from_secs(1));
            let now = self.table_bytes_now(table)?;
            if now == bytes {
                break;
            }
            bytes = now;
        }
        Ok(bytes)
    }

    fn table_bytes_now(&self, table: &str) -> Result<TableBytes> {
        let data = match self.kind {
            Kind::Cassandra => cassandra::data_of(&self.home, CASSANDRA_NUMBER),
            Kind::Helenus | Kind::Null => helenus_directory(&self.home).join("data"),
        };
        let keyspace = data.join(KEYSPACE);
        let mut sum = TableBytes::default();
        for directory in crate::disk::read_dir(&keyspace)? {
            let directory = directory?;
            let name = directory.file_name().to_string_lossy().into_owned();
            if name.split('-').next() != Some(table) {
                continue;
            }
            for file in crate::disk::read_dir(directory.path())? {
                let file = file?;
                let meta = match file.metadata() {
                    Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => continue,
                    meta => meta?,
                };
                if !meta.is_file() {
                    continue;
                }
                sum.all += meta.len();
                if is_of_index(&file.file_name().to_string_lossy()) {
                    sum.indexes += meta.len();
                }
            }
        }
        if sum.all == 0 {
            bail!("{}: no files of table {table} in {}", self.kind.name(), keyspace.display());
        }
        Ok(sum)
    }
}

/// Returns true for a component of an index: `Index+…` of Helenus, `SAI+…` of Cassandra.
fn is_of_index(file: &str) -> bool {
    let component = file.rsplit_once('-').map_or(file, |(_, component)| component);
    component.starts_with("Index+") || component.starts_with("SAI+")
}

fn helenus_directory(home: &Path) -> PathBuf {
    home.join("indexes-helenus")
}

fn start_helenus(root: &Path, home: &Path, memory: &str) -> Result<Server> {
    let directory = helenus_directory(home);
    if directory.exists() {
        crate::disk::remove_dir_all(&directory)?;
    }
    let mut command = bound(&helenus_binary(root));
    command.arg("server").arg("--workdir").arg(&directory);
    command.args(["--memory", memory, "--smp", &SHARDS.to_string(), "--cluster-name", "perf"]);
    command.args(["--listen-address", HELENUS_ADDRESS, "--rpc-address", HELENUS_ADDRESS]);
    command.args(["--api-address", HELENUS_ADDRESS, "--api-port", &API_PORT.to_string()]);
    command.args(["--storage-port", &STORAGE_PORT.to_string()]);
    command.args(["--native-transport-port", &CQL_PORT.to_string()]);
    command.args(["--native-shard-aware-transport-port", "0"]);
    // Both write the same version of SSTables.
    command.args(["--sstable-version", "da", "--auto-repair-enabled", "false"]);
    command.args(["--seeds", &format!("{HELENUS_ADDRESS}:{STORAGE_PORT}")]);
    let address = format!("{HELENUS_ADDRESS}:{CQL_PORT}");
    Server::spawn(command, home, "indexes-helenus", &address).context("helenus")
}

fn start_cassandra(home: &Path, heap: &str) -> Result<Server> {
    cassandra::install(home)?;
    let node = cassandra::Node {
        number: CASSANDRA_NUMBER,
        address: CASSANDRA_ADDRESS,
        seed: CASSANDRA_ADDRESS,
        heap,
        sync: cassandra::Sync::Periodic,
        more: "",
    };
    let mut server = cassandra::begin(home, &node)?;
    server.wait()?;
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::is_of_index;

    #[test]
    fn components_of_indexes_are_those_of_both_databases_and_no_others() {
        assert!(is_of_index("da-3gu1_0hs8_1h6s0231abcdefghij-bti-Index+Rows.db"));
        assert!(is_of_index("da-1-bti-Index+00112233445566778899aabbccddeeff.db"));
        assert!(is_of_index("da-1-bti-SAI+aa+GroupComplete.db"));
        assert!(is_of_index("da-1-bti-SAI+aa+t_a_idx+TermsData.db"));
        assert!(!is_of_index("da-1-bti-Data.db"));
        assert!(!is_of_index("da-1-bti-Index.db"), "an index of partitions is not a secondary one");
    }
}
