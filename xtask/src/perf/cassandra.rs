//! A real Apache Cassandra from the Java package registry, as the yardstick.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::process::{Server, bound};

/// The version that is compared with.
pub const VERSION: &str = "5.0.9";
const PORT: u16 = 19342;
/// Between nodes; JMX has the one below it.
const STORAGE_PORT: u16 = 19344;
const JMX_PORT: u16 = 19343;

/// Puts its jars below `home/cassandra/lib`; needs Maven and a JDK 17.
pub fn install(home: &Path) -> Result<()> {
    let lib = home.join("cassandra/lib");
    if lib.join(".complete").exists() {
        return Ok(());
    }
    crate::disk::create_dir_all(home.join("cassandra"))?;
    let pom = home.join("cassandra/pom.xml");
    crate::disk::write(
        &pom,
        format!(
            "<project><modelVersion>4.0.0</modelVersion><groupId>perf</groupId>\
             <artifactId>yardstick</artifactId><version>1</version><packaging>pom</packaging>\
             <dependencies><dependency><groupId>org.apache.cassandra</groupId>\
             <artifactId>cassandra-all</artifactId><version>{VERSION}</version></dependency>\
             </dependencies></project>"
        ),
    )?;
    let status = Command::new("mvn")
        .args(["-B", "-q", "-f"])
        .arg(&pom)
        .arg("org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies")
        .arg(format!("-DoutputDirectory={}", lib.display()))
        .arg("-DincludeScope=runtime")
        .status()
        .context("cannot run mvn; install Maven and a JDK 17")?;
    if !status.success() {
        bail!("mvn could not fetch cassandra-all {VERSION}");
    }
    crate::disk::write(lib.join(".complete"), "")?;
    Ok(())
}

/// The `java` of a JDK 17; Cassandra 5.0 does not run on newer ones.
fn java() -> Result<PathBuf> {
    if let Ok(home) = std::env::var("JAVA17_HOME") {
        return Ok(Path::new(&home).join("bin/java"));
    }
    for entry in crate::disk::read_dir("/usr/lib/jvm").into_iter().flatten().flatten() {
        let java = entry.path().join("bin/java");
        if entry.file_name().to_string_lossy().contains("17") && java.exists() {
            return Ok(java);
        }
    }
    bail!("no JDK 17 found; set JAVA17_HOME")
}

const EXPORTS: &[&str] = &[
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "java.base/java.lang.ref",
    "jdk.unsupported/sun.misc",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.attach/sun.tools.attach",
];
const OPENS: &[&str] = &[
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
    "java.base/sun.nio.ch",
    "java.base/java.io",
    "java.base/java.lang.reflect",
    "jdk.compiler/com.sun.tools.javac",
    "java.base/java.lang",
    "java.base/java.util",
    "java.base/java.nio",
    "java.rmi/sun.rmi.transport.tcp",
];

/// When Cassandra's commit log is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sync {
    /// Every ten seconds, the default.
    Periodic,
    /// Before each write is answered.
    Batch,
}

/// One node.
pub struct Node<'a> {
    /// 1, 2, …; 0 for one that is alone.
    pub number: u16,
    /// Where it listens.
    pub address: &'a str,
    /// Address of the first node.
    pub seed: &'a str,
    /// Its heap, such as 1G.
    pub heap: &'a str,
    /// Sync mode of its commit log.
    pub sync: Sync,
    /// More settings for its cassandra.yaml.
    pub more: &'a str,
}

/// Starts one node that is alone and waits for it.
pub fn start(home: &Path, heap: &str) -> Result<Server> {
    start_with(home, heap, "")
}

/// The same with more settings.
pub fn start_with(home: &Path, heap: &str, more: &str) -> Result<Server> {
    let address = "127.0.0.1";
    let node = Node { number: 0, address, seed: address, heap, sync: Sync::Periodic, more };
    let mut server = begin(home, &node)?;
    server.wait()?;
    Ok(server)
}

/// Where the node that is alone has its SSTables.
pub fn data(home: &Path) -> PathBuf {
    node_data(home).join("data")
}

/// Where a node has its SSTables, by its number.
pub fn data_of(home: &Path, number: u16) -> PathBuf {
    home.join(format!("cassandra/data{}/data", suffix(number)))
}

/// Directory of its files.
pub fn node_data(home: &Path) -> PathBuf {
    home.join("cassandra/data")
}

/// Suffix of the directories of a node.
fn suffix(number: u16) -> String {
    if number == 0 { String::new() } else { format!("-{number}") }
}

fn jmx_port(number: u16) -> u16 {
    JMX_PORT + 100 * number
}

/// Runs `nodetool` on the node that is alone.
pub fn nodetool(home: &Path, words: &[&str]) -> Result<String> {
    nodetool_of(home, 0, words)
}

/// Runs `nodetool` on a node by its number.
pub fn nodetool_of(home: &Path, number: u16, words: &[&str]) -> Result<String> {
    let base = home.join("cassandra");
    let conf = base.join(format!("conf{}", suffix(number)));
    let output = Command::new(java()?)
        .args(EXPORTS.iter().map(|e| format!("--add-exports={e}=ALL-UNNAMED")))
        .args(OPENS.iter().map(|e| format!("--add-opens={e}=ALL-UNNAMED")))
        .arg("-cp")
        .arg(format!("{}:{}/lib/*", conf.display(), base.display()))
        .arg(format!("-Dcassandra.config=file://{}/cassandra.yaml", conf.display()))
        .args(["org.apache.cassandra.tools.NodeTool", "-p", &jmx_port(number).to_string()])
        .args(words)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("nodetool {}: {text}{}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// The text of cassandra.yaml.
fn configuration(node: &Node<'_>, data: &Path) -> Result<String> {
    let Node { address, seed, .. } = node;
    let sync = match node.sync {
        Sync::Periodic => "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms",
        Sync::Batch => "commitlog_sync: batch",
    };
    let at = |name: &str| data.join(name).display().to_string();
    let mut yaml = String::new();
    write!(
        yaml,
        "cluster_name: yardstick\nnum_tokens: 16\npartitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
         data_file_directories: [{}]\ncommitlog_directory: {}\nhints_directory: {}\n\
         saved_caches_directory: {}\ncdc_raw_directory: {}\n\
         seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    \
         parameters: [{{seeds: \"{seed}:{STORAGE_PORT}\"}}]\n\
         listen_address: {address}\nrpc_address: {address}\nstorage_port: {STORAGE_PORT}\n\
         auto_bootstrap: false\n\
         native_transport_port: {PORT}\nstart_native_transport: true\nendpoint_snitch: SimpleSnitch\n\
         {sync}\ncommitlog_segment_size: 32MiB\n\
         concurrent_reads: 32\nconcurrent_writes: 32\nconcurrent_counter_writes: 32\n\
         compaction_throughput: 64MiB/s\nauto_snapshot: false\n\
         storage_compatibility_mode: NONE\nuuid_sstable_identifiers_enabled: true\n\
         memtable:\n  configurations:\n    skiplist: {{class_name: SkipListMemtable}}\n    \
         trie: {{class_name: TrieMemtable}}\n    default: {{inherits: trie}}\n\
         memtable_allocation_type: offheap_objects\nsstable:\n  selected_format: bti\n\
         column_index_size: 4KiB\nkey_cache_size: 0MiB\n\
         default_compaction:\n  class_name: UnifiedCompactionStrategy\n  parameters:\n    \
         scaling_parameters: T4\n    max_sstables_to_compact: 64\n    target_sstable_size: 1GiB\n    \
         sstable_growth: 0.3333333333333333\n    min_sstable_size: 100MiB\n",
        at("data"),
        at("commitlog"),
        at("hints"),
        at("saved_caches"),
        at("cdc_raw"),
    )?;
    yaml.push_str(node.more);
    Ok(yaml)
}

/// Starts a node on an empty directory with the settings of `cassandra_latest.yaml` that matter
/// here: trie memtables, BTI SSTables, unified compaction.
pub fn begin(home: &Path, node: &Node<'_>) -> Result<Server> {
    let base = home.join("cassandra");
    let suffix = suffix(node.number);
    let (conf, data) = (base.join(format!("conf{suffix}")), base.join(format!("data{suffix}")));
    let Node { address, heap, .. } = node;
    for directory in [&conf, &data] {
        if directory.exists() {
            crate::disk::remove_dir_all(directory)?;
        }
        crate::disk::create_dir_all(directory)?;
    }
    crate::disk::write(conf.join("cassandra.yaml"), configuration(node, &data)?)?;
    // The appender of the audit log is that of the logback.xml that Cassandra ships, without rolling.
    crate::disk::write(
        conf.join("logback.xml"),
        format!(
            "<configuration><appender name=\"AUDIT\" class=\"ch.qos.logback.core.FileAppender\"><file>{}</file>\
             <encoder><pattern>%-5level [%thread] %date{{ISO8601}} %F:%L - %msg%n</pattern></encoder></appender>\
             <logger name=\"org.apache.cassandra.audit\" additivity=\"false\" level=\"INFO\">\
             <appender-ref ref=\"AUDIT\"/></logger>\
             <appender name=\"O\" class=\"ch.qos.logback.core.ConsoleAppender\">\
         <encoder><pattern>%-5level %date{{ISO8601}} %msg%n</pattern></encoder></appender>\
             <root level=\"INFO\"><appender-ref ref=\"O\"/></root></configuration>",
            data.join("audit-text/audit.log").display()
        ),
    )?;
    let lib = base.join("lib");
    let mut jamm = None;
    for entry in crate::disk::read_dir(&lib)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("jamm-") {
            jamm = Some(entry.path());
        }
    }
    let jamm = jamm.context("no jamm jar beside cassandra-all")?;
    let mut command = bound(&java()?);
    command.args(EXPORTS.iter().map(|e| format!("--add-exports={e}=ALL-UNNAMED")));
    command.args(OPENS.iter().map(|e| format!("--add-opens={e}=ALL-UNNAMED")));
    command.args([
        "-Djdk.attach.allowAttachSelf=true",
        "-Xss256k",
        "-XX:+AlwaysPreTouch",
        "-XX:+UseG1GC",
        "-XX:+ParallelRefProcEnabled",
        "-XX:MaxTenuringThreshold=2",
        "-XX:G1HeapRegionSize=16m",
        "-XX:+UnlockExperimentalVMOptions",
        "-XX:G1NewSizePercent=50",
        "-XX:MaxGCPauseMillis=300",
        "-XX:InitiatingHeapOccupancyPercent=70",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dcassandra.ring_delay_ms=100",
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        "-Dcassandra-foreground=yes",
    ]);
    command.arg(format!("-Dcassandra.jmx.local.port={}", jmx_port(node.number)));
    command.arg(format!("-Xms{heap}")).arg(format!("-Xmx{heap}"));
    command.arg(format!("-javaagent:{}", jamm.display()));
    command.arg(format!("-Dcassandra.config=file://{}/cassandra.yaml", conf.display()));
    command.arg(format!("-Dcassandra.storagedir={}", data.display()));
    command.arg(format!("-Dcassandra.logdir={}", data.display()));
    command.arg(format!("-Dlogback.configurationFile={}/logback.xml", conf.display()));
    command.arg("-cp").arg(format!("{}:{}/*", conf.display(), lib.display()));
    command.arg("org.apache.cassandra.service.CassandraDaemon");
    Server::begin(command, home, &format!("cassandra{suffix}"), &format!("{address}:{PORT}"))
}
