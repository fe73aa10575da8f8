//! Starting nodes and waiting for them.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use blocking_client::CqlConnection;
use blocking_client::api::ApiAccess;
use clap::Args;
use cql_client::Received;
use cql_wire::request::RequestOptions;
use cql_wire::{ProtocolVersion, Request, ResponseBody};

use super::file::{ClusterDir, ClusterFile, NodeFile};
use super::process::{self, Identity};
use super::{API_PORT, CQL_PORT, Failure, Place, SHARD_AWARE_PORT, STEP, STORAGE_PORT, growth};
use crate::{exit, resources};

/// Exit code of a command that Ctrl-C ended, as shells have it.
const INTERRUPTED: u8 = 130;
/// Longest answer to OPTIONS that is taken.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Lines of a node's log that are shown when it did not start.
const LOG_LINES: usize = 15;
/// Nodes of a new cluster without the option.
const NODES_DEFAULT: u16 = 3;
/// Smallest and largest memory of a node of a local cluster without the option.
const MEMORY_DEFAULT: std::ops::RangeInclusive<u64> = 128 << 20..=1 << 30;

/// The command line of `start`.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// How many nodes [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    nodes: Option<u16>,
    /// Names of racks, given to the nodes of a datacenter in turn [default: rack1,rack2,rack3]
    #[arg(long, value_delimiter = ',')]
    racks: Option<Vec<String>>,
    /// How many datacenters, given to the nodes in turn: datacenter1, datacenter2, … [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    dcs: Option<u16>,
    /// Shards of each node [default: the cores divided by the nodes]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    smp: Option<u16>,
    /// Memory of each node, such as 512M [default: a part of this machine's, at most 1G]
    #[arg(long)]
    memory: Option<String>,
    /// Address of node 1; those of the others are counted on from it [default: 127.0.0.1]
    #[arg(long, value_name = "IPV4")]
    address: Option<Ipv4Addr>,
    /// Name of the cluster [default: local]
    #[arg(long)]
    name: Option<String>,
    /// Seconds to wait at most
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Further options of every node, as `helenus server --help` lists them
    #[arg(last = true, value_name = "SERVER OPTION")]
    options: Vec<String>,
}

/// Starts a new cluster, or what does not run of an old one.
pub(super) fn start(place: &Place, arguments: Arguments) -> Result<u8, Failure> {
    let shown = place.dir.display().to_string();
    let cannot = |e: io::Error| Failure::failed(format!("cannot create \"{shown}\": {e}"));
    fs::create_dir_all(&place.dir).map_err(cannot)?;
    let dir = ClusterDir::open(&place.dir)?;
    let mut file = match dir.load()? {
        Some(file) => {
            check_same(&arguments, &file, &shown)?;
            file
        }
        None => {
            let file = plan(&arguments, resources::cores(), resources::memory_default())?;
            // Before anything is saved: an impossible cluster can then be requested with other
            // options.
            check_addresses(&file.nodes)?;
            dir.save(&file)?;
            file
        }
    };
    let numbers: Vec<u16> = file.members().map(|n| n.number).collect();
    start_nodes(&dir, &mut file, &numbers, arguments.timeout)?;
    say!("{}", summary(&file, &place.dir));
    Ok(exit::OK)
}

/// The nodes of a new cluster.
pub(super) fn plan(arguments: &Arguments, cores: u16, memory: u64) -> Result<ClusterFile, Failure> {
    let nodes = arguments.nodes.unwrap_or(NODES_DEFAULT);
    let datacenters = arguments.dcs.unwrap_or(1);
    if datacenters > nodes {
        return Err(Failure::usage(format!("{datacenters} datacenters need as many nodes")));
    }
    let standard = || ["rack1", "rack2", "rack3"].map(str::to_owned).to_vec();
    let racks = arguments.racks.clone().unwrap_or_else(standard);
    if racks.is_empty() || racks.iter().any(|rack| check_name(rack).is_err()) {
        return Err(Failure::usage(
            "--racks takes names of letters, digits, - and _, separated by commas",
        ));
    }
    let base = arguments.address.unwrap_or(Ipv4Addr::LOCALHOST);
    let smp = arguments.smp.unwrap_or_else(|| (cores / nodes).max(1));
    let share = (memory / u64::from(nodes)).clamp(*MEMORY_DEFAULT.start(), *MEMORY_DEFAULT.end());
    let memory = arguments.memory.clone().unwrap_or_else(|| format!("{}M", share >> 20));
    let name = arguments.name.clone().unwrap_or_else(|| "local".to_owned());
    let mut file = ClusterFile::new(name, smp, memory, arguments.options.clone());
    for number in 1..=nodes {
        let place = number - 1;
        let rack = usize::from(place / datacenters) % racks.len();
        file.nodes.push(NodeFile {
            number,
            address: growth::address_of(base, number)?.to_string(),
            datacenter: format!("datacenter{}", place % datacenters + 1),
            rack: racks.get(rack).cloned().unwrap_or_default(),
            process: None,
            replaces: false,
            is_replacing: false,
            is_out: false,
        });
    }
    Ok(file)
}

/// Checks that a rack or a datacenter can have this name.
pub(super) fn check_name(name: &str) -> Result<(), Failure> {
    let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(Failure::usage(format!(
            "\"{name}\" is no name of letters, digits, - and _ for a rack or datacenter"
        )));
    }
    Ok(())
}

/// Checks that the options match those that the cluster was created with.
pub(super) fn check_same(
    arguments: &Arguments,
    file: &ClusterFile,
    shown: &str,
) -> Result<(), Failure> {
    let different = |option: &str, is: String| {
        Err(Failure::usage(format!(
            "\"{shown}\" has a cluster already, with {is}: leave out {option}, or name another \
             directory with --dir"
        )))
    };
    let count = file.nodes.len();
    if arguments.nodes.is_some_and(|n| usize::from(n) != count) {
        return different("--nodes", format!("{count} nodes"));
    }
    let first = file.nodes.first().map_or("", |node| node.address.as_str());
    if arguments.address.is_some_and(|address| address.to_string() != first) {
        return different("--address", format!("node 1 at {first}"));
    }
    if arguments.name.as_ref().is_some_and(|n| *n != file.name) {
        return different("--name", format!("the name {}", file.name));
    }
    if arguments.smp.is_some_and(|n| n != file.smp) {
        return different("--smp", format!("{} shards", file.smp));
    }
    if arguments.memory.as_ref().is_some_and(|m| *m != file.memory) {
        return different("--memory", format!("{} of memory", file.memory));
    }
    if !arguments.options.is_empty() && arguments.options != file.options {
        return different("the options after --", file.options.join(" "));
    }
    if arguments.racks.is_some() || arguments.dcs.is_some() {
        let nodes = Some(u16::try_from(count).unwrap_or(u16::MAX));
        let again = plan(&Arguments { nodes, ..arguments.clone() }, 1, 0)?;
        let places = |file: &ClusterFile| -> Vec<(String, String)> {
            file.nodes.iter().map(|n| (n.datacenter.clone(), n.rack.clone())).collect()
        };
        if places(&again) != places(file) {
            return different("--racks and --dcs", "other racks or datacenters".to_owned());
        }
    }
    Ok(())
}

/// Checks that the nodes can listen on their addresses.
pub(super) fn check_addresses(nodes: &[NodeFile]) -> Result<(), Failure> {
    for node in nodes {
        let Ok(ip) = node.address.parse::<IpAddr>() else {
            let text = format!("node {}: {} is no IP address", node.number, node.address);
            return Err(Failure::usage(text));
        };
        for port in [STORAGE_PORT, CQL_PORT, SHARD_AWARE_PORT, API_PORT] {
            if let Err(error) = TcpListener::bind(SocketAddr::new(ip, port)) {
                return Err(Failure::new(exit::LISTEN, cannot_listen(node, port, &error)));
            }
        }
    }
    Ok(())
}

pub(super) fn cannot_listen(node: &NodeFile, port: u16, error: &io::Error) -> String {
    let NodeFile { number, address, .. } = node;
    match error.kind() {
        ErrorKind::AddrInUse => format!(
            "node {number}: port {port} of {address} is in use: another server runs there (one \
             that listens on 0.0.0.0 takes it on every address); stop it first"
        ),
        ErrorKind::AddrNotAvailable => format!(
            "node {number}: {address} is not an address of this machine. On macOS it becomes one \
             with: sudo ifconfig lo0 alias {address} up"
        ),
        _ => format!("node {number}: cannot listen on {address}:{port}: {error}"),
    }
}

/// Flag that Ctrl-C or SIGTERM sets.
struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    fn watch() -> Result<Interrupt, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let flag = Arc::new(AtomicBool::new(false));
        let of_thread = flag.clone();
        let failed = |e: io::Error| Failure::failed(format!("cannot watch signals: {e}"));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let (mut interrupt, mut terminate) = {
            let _inside = runtime.enter();
            let of = |kind| signal(kind).map_err(failed);
            (of(SignalKind::interrupt())?, of(SignalKind::terminate())?)
        };
        let watch = async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            of_thread.store(true, Ordering::Relaxed);
        };
        // It lives as long as the command.
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || runtime.block_on(watch))
            .map_err(failed)?;
        Ok(Interrupt(flag))
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A node that was started by this command.
struct Begun {
    number: u16,
    child: Child,
    at: Instant,
}

/// Starts those of the nodes that do not run and waits until they serve clients. After a failure,
/// or Ctrl-C, what this command started is stopped.
pub(super) fn start_nodes(
    dir: &ClusterDir,
    file: &mut ClusterFile,
    numbers: &[u16],
    timeout: u64,
) -> Result<(), Failure> {
    let wanted: Vec<NodeFile> = file
        .nodes
        .iter()
        .filter(|n| numbers.contains(&n.number) && !file.runs(n.number))
        .cloned()
        .collect();
    if wanted.is_empty() {
        complain_line!("nothing to start: {} running already", super::listed(numbers));
        return Ok(());
    }
    check_addresses(&wanted)?;
    let interrupt = Interrupt::watch()?;
    let deadline = Instant::now() + Duration::from_secs(timeout);
    let mut begun = Vec::new();
    // All at the same time: a newcomer asks until it is let in, a member until it has a majority.
    let started = begin(dir, file, &wanted, &mut begun)
        .and_then(|()| wait_for(dir, file, &mut begun, &interrupt, deadline));
    if let Err(failure) = started {
        give_up(dir, file, begun)?;
        return Err(failure);
    }
    for node in file.nodes.iter_mut().filter(|node| numbers.contains(&node.number)) {
        node.is_out = false;
    }
    dir.save(file)
}

/// A node to replace.
#[derive(Clone, Copy)]
pub(super) struct Dead {
    /// Its number.
    pub(super) number: u16,
    /// Seconds to wait for the other nodes, and for the new one.
    pub(super) timeout: u64,
}

/// Starts an empty node that replaces one that does not run. The old one's files are kept until the
/// next time, even if the start has to be retried.
pub(super) fn replace_node(
    access: &ApiAccess,
    dir: &ClusterDir,
    file: &mut ClusterFile,
    dead: Dead,
) -> Result<(), Failure> {
    let Dead { number, timeout } = dead;
    if file.runs(number) {
        return Err(Failure::failed(format!(
            "node {number} runs: only a dead one is replaced; \"helenus cluster kill {number}\" first"
        )));
    }
    growth::wait_until_seen_as_dead(access, file, dead)?;
    let work_dir = dir.work_dir_of(number);
    let old = work_dir.with_extension("replaced");
    let told = |e: io::Error| Failure::failed(format!("\"{}\": {e}", work_dir.display()));
    let is_again = file.node(number).is_some_and(|n| n.is_replacing);
    if work_dir.exists() {
        if is_again {
            fs::remove_dir_all(&work_dir).map_err(told)?;
        } else {
            if old.exists() {
                fs::remove_dir_all(&old).map_err(told)?;
            }
            fs::rename(&work_dir, &old).map_err(told)?;
        }
    }
    let mark = |file: &mut ClusterFile, is_replacing| {
        if let Some(node) = file.node_mut(number) {
            // Later starts pass over the option.
            node.replaces = true;
            node.is_replacing = is_replacing;
        }
        dir.save(file)
    };
    mark(file, true)?;
    start_nodes(dir, file, &[number], timeout)?;
    mark(file, false)
}

fn begin(
    dir: &ClusterDir,
    file: &mut ClusterFile,
    wanted: &[NodeFile],
    begun: &mut Vec<Begun>,
) -> Result<(), Failure> {
    for node in wanted {
        let number = node.number;
        let told = |e: io::Error| Failure::failed(format!("node {number}: {e}"));
        complain_line!("node {number} ({}) is starting", node.address);
        let work_dir = dir.work_dir_of(number);
        fs::create_dir_all(&work_dir).map_err(told)?;
        let place = format!("dc={}\nrack={}\n", node.datacenter, node.rack);
        fs::write(work_dir.join("cassandra-rackdc.properties"), place).map_err(told)?;
        let log =
            OpenOptions::new().create(true).append(true).open(dir.log_of(number)).map_err(told)?;
        let mut program = super::program()?;
        program.args(arguments_of(file, node, &work_dir));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HELENUS_") {
                program.env_remove(name);
            }
        }
        let child = program
            .current_dir(&work_dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(told)?)
            .stderr(log)
            // Ctrl-C at the terminal is for this command, not for the nodes.
            .process_group(0)
            .spawn()
            .map_err(told)?;
        if let Some(node) = file.node_mut(number) {
            node.process = Identity::of(child.id());
        }
        begun.push(Begun { number, child, at: Instant::now() });
        dir.save(file)?;
    }
    Ok(())
}

/// The command line of a node.
pub(super) fn arguments_of(file: &ClusterFile, node: &NodeFile, work_dir: &Path) -> Vec<String> {
    // A node that replaces one has to ask another.
    let may_be_seed = |n: &&NodeFile| !(node.replaces && n.number == node.number);
    let seed = file.members().find(may_be_seed).map_or("", |n| &n.address);
    let mut arguments = vec!["server".to_owned()];
    let settings = [
        ("--workdir", work_dir.display().to_string()),
        ("--cluster-name", file.name.clone()),
        ("--smp", file.smp.to_string()),
        ("--memory", file.memory.clone()),
        ("--listen-address", node.address.clone()),
        ("--rpc-address", node.address.clone()),
        ("--api-address", node.address.clone()),
        ("--seeds", format!("{seed}:{STORAGE_PORT}")),
        ("--endpoint-snitch", "GossipingPropertyFileSnitch".to_owned()),
        // For "partition".
        ("--developer-link-faults", "true".to_owned()),
    ];
    for (name, value) in settings {
        arguments.extend([name.to_owned(), value]);
    }
    if node.replaces {
        arguments.extend(["--replace-address-first-boot".to_owned(), node.address.clone()]);
    }
    let cut = file.cut_off_from(node.number);
    if !cut.is_empty() {
        arguments.extend(["--developer-cut-links".to_owned(), cut.join(",")]);
    }
    arguments.extend(file.options.iter().cloned());
    arguments
}

/// Waits until all that were begun serve clients.
fn wait_for(
    dir: &ClusterDir,
    file: &ClusterFile,
    begun: &mut [Begun],
    interrupt: &Interrupt,
    deadline: Instant,
) -> Result<(), Failure> {
    let mut waiting: Vec<&mut Begun> = begun.iter_mut().collect();
    while !waiting.is_empty() {
        if interrupt.is_set() {
            return Err(Failure::new(INTERRUPTED, "interrupted: what was started is stopped"));
        }
        for node in &mut waiting {
            let number = node.number;
            let ended = node.child.try_wait().map_err(|e| Failure::failed(e.to_string()))?;
            if let Some(status) = ended {
                let log = process::tail(&dir.log_of(number), LOG_LINES);
                let path = dir.log_of(number);
                return Err(Failure::failed(format!(
                    "node {number} ended ({status}); the end of \"{}\":\n{log}",
                    path.display()
                )));
            }
        }
        waiting.retain(|node| {
            let known = file.node(node.number);
            let serves = known.is_some_and(|known| answers(&known.address));
            if serves {
                let took = node.at.elapsed().as_secs_f64();
                complain_line!("node {} serves clients after {took:.1} s", node.number);
            }
            !serves
        });
        if waiting.is_empty() {
            break;
        }
        if Instant::now() >= deadline {
            let left: Vec<u16> = waiting.iter().map(|n| n.number).collect();
            return Err(Failure::failed(format!(
                "node {} does not serve clients in time; see \"helenus cluster logs N\", or wait longer with --timeout",
                super::listed(&left)
            )));
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// Stops the started nodes, with SIGKILL if they do not stop otherwise.
fn give_up(dir: &ClusterDir, file: &mut ClusterFile, mut begun: Vec<Begun>) -> Result<(), Failure> {
    use process::Signal;
    let tell = |file: &ClusterFile, number: u16, signal| {
        let process = file.node(number).and_then(|n| n.process.as_ref());
        // One that has ended has the wanted state.
        let _ = process.map(|p| p.signal(signal));
    };
    for node in &begun {
        tell(file, node.number, Signal::Terminate);
    }
    let deadline = Instant::now() + Duration::from_secs(15);
    loop {
        // Reaping a child removes it from the table of processes.
        begun.retain_mut(|n| matches!(n.child.try_wait(), Ok(None)));
        if begun.is_empty() || Instant::now() >= deadline {
            break;
        }
        std::thread::sleep(STEP);
    }
    for node in &mut begun {
        tell(file, node.number, Signal::Kill);
        let _ = node.child.wait();
    }
    let gone: Vec<u16> = file.nodes.iter().map(|n| n.number).filter(|n| !file.runs(*n)).collect();
    for number in gone {
        file.forget_process(number);
    }
    dir.save(file)
}

/// Returns true if a CQL server answers at the address.
pub(super) fn answers(address: &str) -> bool {
    let at_most = Duration::from_secs(1);
    let ask = || -> Option<bool> {
        let ip: IpAddr = address.parse().ok()?;
        let stream = TcpStream::connect_timeout(&SocketAddr::new(ip, CQL_PORT), at_most).ok()?;
        stream.set_write_timeout(Some(at_most)).ok()?;
        let mut connection = CqlConnection::new(stream, ProtocolVersion::V4, ANSWER_BYTES_MAX);
        let is_supported =
            |got: Received<'_>| matches!(got.response.body, ResponseBody::Supported(_));
        let (request, options) = (Request::Options, RequestOptions::default());
        connection.request(&request, &options, Some(at_most), is_supported).ok()
    };
    ask() == Some(true)
}

/// How to reach the cluster.
pub(super) fn summary(file: &ClusterFile, dir: &Path) -> String {
    let addresses: Vec<&str> = file.members().map(|n| n.address.as_str()).collect();
    let first = addresses.first().copied().unwrap_or_default();
    let quoted: Vec<String> = addresses.iter().map(|a| format!("\"{a}\"")).collect();
    let mut datacenters: Vec<&str> = file.nodes.iter().map(|n| n.datacenter.as_str()).collect();
    datacenters.sort_unstable();
    datacenters.dedup();
    format!(
        "\
cluster \"{}\" is up: {} nodes in {}
contact points  {} port {CQL_PORT}, datacenter {}
cqlsh           helenus cqlsh {first} {CQL_PORT}
Python driver   Cluster([{}], port={CQL_PORT})
nodetool        helenus nodetool -h {first} -p {API_PORT} status
stop            helenus cluster stop --dir {}
",
        file.name,
        addresses.len(),
        dir.display(),
        addresses.join(","),
        datacenters.join(","),
        quoted.join(", "),
        dir.display(),
    )
}
