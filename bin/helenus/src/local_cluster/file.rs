//! `cluster.json`: which nodes there are and which processes they run as.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::process::{Identity, State};
use super::{Failure, exit};

const NAME: &str = "cluster.json";
/// Raised when an older program could not read the file.
const VERSION: u32 = 1;

/// A cluster of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFile {
    version: u32,
    /// `cluster_name` of all nodes.
    pub name: String,
    /// Shards of each node.
    pub smp: u16,
    /// Memory of each node, as `--memory` accepts it.
    pub memory: String,
    /// Further options of all nodes.
    pub options: Vec<String>,
    /// In the order of their numbers.
    pub nodes: Vec<NodeFile>,
    /// Groups that are cut off from each other; a node in none of them reaches everybody.
    #[serde(default)]
    pub cut: Vec<Vec<u16>>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFile {
    /// From 1 on.
    pub number: u16,
    /// `127.0.0.N`.
    pub address: String,
    /// Datacenter.
    pub datacenter: String,
    /// Rack.
    pub rack: String,
    /// Its process, running or ended.
    pub process: Option<Identity>,
    /// It took over the tokens of a dead node.
    #[serde(default)]
    pub replaces: bool,
    /// Its replacement is unfinished: its directory does not hold a complete node yet.
    #[serde(default)]
    pub is_replacing: bool,
    /// It did not run, and a node that ran did not know it as a member: it was removed, has left or never joined.
    #[serde(default)]
    pub is_out: bool,
}

impl ClusterFile {
    /// A cluster that nothing of runs.
    pub fn new(name: String, smp: u16, memory: String, options: Vec<String>) -> ClusterFile {
        ClusterFile {
            version: VERSION,
            name,
            smp,
            memory,
            options,
            nodes: Vec::new(),
            cut: Vec::new(),
        }
    }

    /// The node of that number.
    pub fn node(&self, number: u16) -> Option<&NodeFile> {
        self.nodes.iter().find(|n| n.number == number)
    }

    /// The same, to be changed.
    pub fn node_mut(&mut self, number: u16) -> Option<&mut NodeFile> {
        self.nodes.iter_mut().find(|n| n.number == number)
    }

    /// Returns true if its process exists, paused or not.
    pub fn runs(&self, number: u16) -> bool {
        let process = self.node(number).and_then(|n| n.process.as_ref());
        process.is_some_and(|p| p.state() != State::Gone)
    }

    /// Addresses that a node is cut off from.
    pub fn cut_off_from(&self, number: u16) -> Vec<String> {
        let Some(own) = self.cut.iter().find(|group| group.contains(&number)) else {
            return Vec::new();
        };
        let others = self.cut.iter().flatten().filter(|n| !own.contains(n));
        others.filter_map(|n| self.node(*n)).map(|n| n.address.clone()).collect()
    }

    /// The nodes that `helenus cluster start` starts: all but those that are out.
    pub fn members(&self) -> impl Iterator<Item = &NodeFile> {
        self.nodes.iter().filter(|node| !node.is_out)
    }

    /// Marks the nodes that do not run and are not among these addresses of members; returns true if a mark changed.
    pub fn mark_members(&mut self, addresses: &[String]) -> bool {
        let marks: Vec<bool> = self
            .nodes
            .iter()
            .map(|node| !self.runs(node.number) && !addresses.contains(&node.address))
            .collect();
        let mut is_changed = false;
        for (node, is_out) in self.nodes.iter_mut().zip(marks) {
            is_changed |= std::mem::replace(&mut node.is_out, is_out) != is_out;
        }
        is_changed
    }

    /// Its process has ended.
    pub fn forget_process(&mut self, number: u16) {
        if let Some(node) = self.node_mut(number) {
            node.process = None;
        }
    }
}

/// The directory of a cluster.
#[derive(Debug)]
pub struct ClusterDir {
    path: PathBuf,
    /// Held while a command changes something.
    _lock: Option<File>,
}

impl ClusterDir {
    /// To look only.
    pub fn look(path: &Path) -> ClusterDir {
        ClusterDir { path: path.to_owned(), _lock: None }
    }

    /// To change something: one command at a time. The directory must be there.
    pub fn open(path: &Path) -> Result<ClusterDir, Failure> {
        if !path.is_dir() {
            return Err(Failure::usage(format!(
                "there is no directory \"{}\"; name the cluster's with --dir",
                path.display()
            )));
        }
        let told = |e: io::Error| Failure::failed(format!("\"{}\": {e}", path.display()));
        let absolute = path.canonicalize().map_err(told)?;
        let lock = File::create(absolute.join(".lock")).map_err(told)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(ClusterDir { path: absolute, _lock: Some(lock) }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Failure::new(
                exit::IN_USE,
                format!("another command is running on \"{}\": wait for it", path.display()),
            )),
            Err(error) => Err(told(error.into())),
        }
    }

    /// The work directory of a node.
    pub fn work_dir_of(&self, number: u16) -> PathBuf {
        self.path.join(format!("node{number}"))
    }

    /// The log of a node.
    pub fn log_of(&self, number: u16) -> PathBuf {
        self.path.join(format!("node{number}.log"))
    }

    /// Reads the cluster's file; `None` when there is no cluster yet.
    pub fn load(&self) -> Result<Option<ClusterFile>, Failure> {
        let path = self.path.join(NAME);
        let told = |what: String| Failure::failed(format!("\"{}\": {what}", path.display()));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(told(error.to_string())),
        };
        let file: ClusterFile =
            serde_json::from_str(&text).map_err(|error| told(error.to_string()))?;
        if file.version != VERSION {
            return Err(told(format!("version {} is not known to this program", file.version)));
        }
        Ok(Some(file))
    }

    /// Saves it atomically.
    pub fn save(&self, file: &ClusterFile) -> Result<(), Failure> {
        let path = self.path.join(NAME);
        let written = || -> io::Result<()> {
            let mut text = serde_json::to_vec_pretty(file)?;
            text.push(b'\n');
            let new = self.path.join(".cluster.json.new");
            let mut out = File::create(&new)?;
            out.write_all(&text)?;
            out.sync_all()?;
            fs::rename(&new, &path)
        };
        written().map_err(|e| Failure::failed(format!("\"{}\": {e}", path.display())))
    }
}
