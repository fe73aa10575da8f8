//! Starts a Helenus node for a test run.
//!
//! ```no_run
//! # fn main() -> Result<(), helenus_test::Error> {
//! let node = helenus_test::Node::open()?;
//! println!("connect a driver to {}", node.contact_point());
//! # Ok(())
//! # }
//! ```
//!
//! Owns: the node's process, its ports, its directory, its end. Never: a driver, an async runtime.
//!
//! A node is a process of its own, not a part of the test's: what a test does to it (a crash of the
//! test, a limit of memory, a signal) cannot differ from production, and a test needs to build the
//! crate only, not the server. Its data lie in a directory in memory if there is room. Both end with
//! the [`Node`], and with the process that opened it, however that one ends.
//!
//! The server is the program that [`Builder::binary`] or the variable `HELENUS_BIN` names, else
//! `helenus` on the `PATH`.

mod command;
mod error;

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use error::Error;

/// The node logs this once it serves clients; nothing can refuse the start afterwards.
const READY: &str = "Startup complete";

/// The server's exit code for an address that is in use.
const ADDRESS_IN_USE: i32 = 5;

/// Attempts with other ports: another process may take a port between its choice and its use.
const ATTEMPTS: usize = 5;

/// Lines of the log that an error shows.
const LINES_SHOWN: usize = 20;

/// Ends the server when standard input ends, and removes its directory.
const SUPERVISOR: &str = include_str!("../../supervise.sh");

/// A running node; ends when it is dropped.
#[derive(Debug)]
pub struct Node {
    binary: PathBuf,
    directory: PathBuf,
    log_path: PathBuf,
    ports: Ports,
    supervisor: Child,
}

/// The ports of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    cql: u16,
    shard_aware: u16,
    api: u16,
}

impl Ports {
    /// Returns these ports but for those that settings name.
    fn chosen(mut self, settings: &[(String, String)]) -> Result<Ports, Error> {
        for (name, value) in settings {
            let port = match name.as_str() {
                "native_transport_port" => &mut self.cql,
                "native_shard_aware_transport_port" => &mut self.shard_aware,
                "api_port" => &mut self.api,
                _ => continue,
            };
            *port = value
                .parse()
                .map_err(|_| Error::Setting(format!("{name}: \"{value}\" is no port")))?;
        }
        Ok(self)
    }
}

/// Settings of a node that is not opened yet.
#[derive(Clone, Debug)]
pub struct Builder {
    binary: Option<PathBuf>,
    directory: Option<PathBuf>,
    timeout: Duration,
    settings: Vec<(String, String)>,
}

impl Node {
    /// Starts a node with one shard and 256 MiB and waits until clients can connect.
    ///
    /// # Errors
    /// The server is missing, or does not start.
    pub fn open() -> Result<Node, Error> {
        Node::builder().open()
    }

    /// Returns what [`open`](Self::open) starts, to be changed.
    pub fn builder() -> Builder {
        Builder {
            binary: None,
            directory: None,
            timeout: Duration::from_secs(30),
            settings: Vec::new(),
        }
    }

    /// Address for CQL clients.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.cql))
    }

    /// The address for CQL clients as drivers take it, `host:port`.
    pub fn contact_point(&self) -> String {
        self.address().to_string()
    }

    /// Address for shard-aware drivers.
    pub fn shard_aware_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.shard_aware))
    }

    /// Address of nodetool, the HTTP API and `/metrics`.
    pub fn api_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.api))
    }

    /// Directory of the data.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns what the node has logged so far.
    ///
    /// # Errors
    /// The file of the log cannot be read.
    pub fn log(&self) -> Result<String, Error> {
        std::fs::read_to_string(&self.log_path).map_err(|e| Error::io("read", &self.log_path, e))
    }

    /// Runs statements with the server's own cqlsh; returns what it prints.
    ///
    /// # Errors
    /// `Tool`: a statement failed.
    pub fn cql(&self, statements: &str) -> Result<String, Error> {
        let port = self.ports.cql.to_string();
        command::tool(&self.binary, "cqlsh", &["127.0.0.1", &port, "-e", statements])
    }

    /// Runs a command of nodetool on the node; returns what it prints.
    ///
    /// # Errors
    /// `Tool`: the command failed.
    pub fn nodetool(&self, arguments: &[&str]) -> Result<String, Error> {
        let port = self.ports.api.to_string();
        let mut all = vec!["-h", "127.0.0.1", "-p", &port];
        all.extend(arguments);
        command::tool(&self.binary, "nodetool", &all)
    }

    fn spawn(builder: &Builder, binary: &Path) -> Result<Node, Error> {
        let (home, directory) = match &builder.directory {
            // The log lies beside the data, so that one removal takes both.
            None => {
                let home = new_directory()?;
                (home.clone(), home.join("data"))
            }
            Some(directory) => {
                std::fs::create_dir_all(directory)
                    .map_err(|e| Error::io("create", directory, e))?;
                (directory.clone(), directory.clone())
            }
        };
        let log_path = home.join("node.log");
        File::create(&log_path).map_err(|e| Error::io("create", &log_path, e))?;
        let ports = free_ports()?.chosen(&builder.settings)?;
        let (signal, removed) = match &builder.directory {
            None => ("KILL", home.as_path()),
            Some(_) => ("TERM", Path::new("")),
        };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SUPERVISOR, "sh", signal]);
        command.arg(removed).arg(&log_path).arg(binary).arg("server");
        command.arg("--workdir").arg(&directory);
        command.args(command::settings(&builder.settings, ports));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C in a terminal is for the tests, which end the node.
        command.process_group(0);
        command::forget_settings(&mut command);
        let supervisor = command.spawn().map_err(|e| Error::io("run", Path::new("/bin/sh"), e))?;
        Ok(Node { binary: binary.to_owned(), directory, log_path, ports, supervisor })
    }

    /// Waits until clients can connect.
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let unreadable = |e| Error::io("read", &self.log_path, e);
        let mut log = File::open(&self.log_path).map_err(unreadable)?;
        let (begun, mut text) = (Instant::now(), Vec::new());
        loop {
            // Before the log is read: nothing is logged after the end.
            let ended = self.supervisor.try_wait().map_err(unreadable)?;
            log.read_to_end(&mut text).map_err(unreadable)?;
            let words = String::from_utf8_lossy(&text);
            if words.contains(READY) {
                return Ok(());
            }
            let code = ended.and_then(|status| status.code());
            let reason = match (ended, code) {
                (None, _) if begun.elapsed() <= timeout => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                (None, _) => format!("the node did not start within {timeout:?}"),
                (Some(_), Some(code)) => format!("the node ended with exit code {code}"),
                (Some(_), None) => "the supervisor of the node was ended by a signal".to_owned(),
            };
            let lines: Vec<&str> = words.lines().collect();
            let shown = lines.len().saturating_sub(LINES_SHOWN);
            return Err(Error::Start { reason, code, log: lines[shown..].join("\n") });
        }
    }
}

impl Drop for Node {
    /// Ends the node and removes its data, unless they lie in a directory of the caller's.
    fn drop(&mut self) {
        if let Some(mut stdin) = self.supervisor.stdin.take() {
            // A line, not the end alone: a process that was forked meanwhile holds the pipe open. It
            // fails when the node has ended already.
            let _ = stdin.write_all(b"\n");
        }
        let _ = self.supervisor.wait();
    }
}

impl Builder {
    /// A setting of the server, as in its command line: `("authenticator", "PasswordAuthenticator")`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: impl ToString) -> Builder {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// Where the data lie. They stay there, for a later node on the same directory; the node is
    /// drained at its end. Without it they are removed with the node.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Builder {
        self.directory = Some(directory.into());
        self
    }

    /// The server's program.
    #[must_use]
    pub fn binary(mut self, binary: impl Into<PathBuf>) -> Builder {
        self.binary = Some(binary.into());
        self
    }

    /// How long a start may take; 30 seconds without it.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.timeout = timeout;
        self
    }

    /// Starts the node and waits until clients can connect.
    ///
    /// # Errors
    /// The server is missing, or does not start; a setting is chosen by this crate.
    pub fn open(self) -> Result<Node, Error> {
        command::check(&self.settings)?;
        let binary = command::binary(self.binary.as_deref())?;
        let mut attempt = 1;
        loop {
            let mut node = Node::spawn(&self, &binary)?;
            match node.wait(self.timeout) {
                Ok(()) => return Ok(node),
                Err(Error::Start { code: Some(ADDRESS_IN_USE), .. }) if attempt < ATTEMPTS => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Makes a directory that only this user may read: in memory if there is room.
fn new_directory() -> Result<PathBuf, Error> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let base = command::base();
    loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("helenus-test-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            // A process had the same number before, or has it in another container.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io("create", &path, error)),
        }
    }
}

/// Returns ports that were free a moment ago. All are open together, so that they differ.
fn free_ports() -> Result<Ports, Error> {
    let refused = |e| Error::io("listen on", Path::new("127.0.0.1"), e);
    let open = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(refused);
    let port = |listener: &TcpListener| listener.local_addr().map(|a| a.port()).map_err(refused);
    let (cql, shard_aware, api) = (open()?, open()?, open()?);
    Ok(Ports { cql: port(&cql)?, shard_aware: port(&shard_aware)?, api: port(&api)? })
}
