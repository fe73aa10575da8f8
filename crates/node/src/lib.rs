//! Composition root: builds every part of a node in order and stops them in order. No logic.
//!
//! Owns: [`Node::start`] (a node is an ordinary value: twenty of them fit in one process or one
//! simulated world), the boot protocol between shards ([`boot`]), how options become the parts'
//! settings ([`parts`]). Never: decisions about data, rows of system tables ([`system_tables`]).
//!
//! Start, on every shard: 1. shard 0 locks the data directory and opens the metadata log, the
//! others wait for its snapshot; a node with peers opens the storage port, and one without a log
//! founds or joins a cluster ([`open`]); 2. open the store (replays the commit log); 3. build
//! membership, coordinator, server, bind them to the other nodes ([`cluster`]); 4. wait for each
//! other; 5. shard 0 catches up with the others, writes the system tables, brings the node to
//! `Normal` and listens; then, as nothing can refuse the start any longer, interrupted drops are
//! carried out ([`dropped`]). Stop: listeners and connections first, then the other nodes, requests
//! between shards, metadata, store.

mod actions;
mod api_access;
mod archiving;
mod audit;
pub mod boot;
mod bug_log;
mod cidr;
mod cluster;
mod commit_log;
mod counter_id;
mod default_password;
mod disk_usage;
mod disks;
mod dropped;
mod encryption;
mod expiry;
mod file_keys;
mod first_role;
mod index_files;
mod live_settings;
mod loading;
mod log_lines;
mod meshes;
mod open;
pub mod parts;
pub mod policy;
mod query_log;
pub mod reload;
mod remedies;
mod replay_report;
mod serving;
mod shard;
mod small_files;
#[cfg(test)]
mod tests;
mod upkeep;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use admin::Commander;
use conf::Options;
use rt::{Machine, NodeSpec, Running, Stopper};
use stdx::IoError;
use store::commitlog::LogError;

pub use coordinator::PageLimit;
pub use meshes::Meshes;
pub use request::WindowSettings;
pub use system_tables::{LogRecord, NodeLog};
pub use takeover::TakeoverError;
pub use topology::TopologyError;

/// Cause of a failed start, or of a stop that was not requested.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    /// Another process has the data directory open.
    #[error("data directory {0} is in use by another process; stop it or choose another --workdir")]
    InUse(String),
    /// A data directory lacks the marker file of an earlier start.
    #[error(
        "{0} was a data directory before, and has no file helenus-data now: is its disk mounted? If what \
         it had is lost, make an empty file of that name there, start the node and repair it"
    )]
    DataDirectory(String),
    /// A data directory has the mark of another one.
    #[error(
        "{0} is not the data directory that it was before: its file helenus-data names another one; mount the right \
         disk there. If what the directory had is lost, make helenus-data an empty file, start the node and repair it"
    )]
    OtherDataDirectory(String),
    /// A data directory of an earlier start is not configured any more.
    #[error(
        "{directory} was a data directory before and is not in data_file_directories, and it may hold SSTables: add it \
         again, or move its directories of keyspaces into another data directory. If what it had is lost, remove \
         {list}, start the node and repair it"
    )]
    LeftOut {
        /// The directory.
        directory: String,
        /// The list of directories in the work directory.
        list: String,
    },
    /// The commit log's directory does not hold the log of the last run, or that of another node.
    #[error(transparent)]
    CommitLog(LogError),
    /// The metadata log cannot be used.
    #[error("cannot open the metadata log: {0}")]
    Metadata(#[from] membership::log::OpenError),
    /// The node is not a member of the cluster, or no longer one.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The data directory is one of Cassandra's that cannot be taken over.
    #[error("cannot take over the data directory: {0}")]
    Import(#[from] TakeoverError),
    /// The data directory belongs to a cluster of another name.
    #[error(
        "the data directory belongs to cluster \"{found}\", the configuration says \"{configured}\"; \
         set cluster_name to \"{found}\" or choose another --workdir"
    )]
    ClusterName {
        /// Name in the data.
        found: String,
        /// Name in the configuration.
        configured: String,
    },
    /// A shard's store cannot be opened.
    #[error("cannot open the data of shard {shard}: {error}")]
    Store {
        /// Number of the shard.
        shard: u16,
        /// The store's error.
        error: store::StoreError,
    },
    /// Keys or settings of encrypted connections cannot be used.
    #[error("cannot encrypt connections: {0}")]
    Encryption(#[from] tls::TlsError),
    /// Keys, tokens or settings of the API cannot be used.
    #[error("cannot protect the API: {0}")]
    ApiAccess(tls::TlsError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {purpose}: {detail}; is another server running there?")]
    Listen {
        /// Host and port.
        address: String,
        /// CQL, shard-aware CQL or the API.
        purpose: &'static str,
        /// The operating system's words.
        detail: String,
    },
    /// A setting does not fit the machine.
    #[error("{0}")]
    Setting(String),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A change to the metadata at start failed.
    #[error("cannot write metadata: {0}")]
    Submit(#[from] membership::SubmitError),
    /// The disk failed while the node ran, and the policy is to end then.
    #[error("ended because {setting} is die: {what}")]
    DiskFailure {
        /// Name of the setting.
        setting: &'static str,
        /// Description of the failure.
        what: String,
    },
    /// The file that the snitch needs.
    #[error("{path} {what}")]
    Snitch {
        /// The file, or its expected path.
        path: String,
        /// Error in it.
        what: String,
    },
    /// The archive of the commit log, or the replay list, is invalid.
    #[error("{path} {what}")]
    Archiving {
        /// The file or setting.
        path: String,
        /// Error in it.
        what: String,
    },
    /// The snitch reports another location than at the first start.
    #[error(
        "Cannot start node if snitch's {what} ({configured}) differs from previous {what} \
         ({found}). Please fix the snitch configuration, or decommission and rebootstrap this node"
    )]
    Place {
        /// Data center or rack.
        what: &'static str,
        /// In the data.
        found: String,
        /// By the snitch.
        configured: String,
    },
    /// The directory of hints cannot be used.
    #[error("cannot use the hints directory: {0}")]
    Hints(String),
    /// Another part failed first.
    #[error("start was given up because another shard failed")]
    Abandoned,
    /// A shard's thread ended unexpectedly.
    #[error("a shard ended unexpectedly: {0}")]
    Thread(String),
    /// A service of the node ended unexpectedly.
    #[error(transparent)]
    Service(#[from] rt::service::ServiceFailure),
}

impl From<LogError> for StartError {
    fn from(error: LogError) -> StartError {
        match error {
            LogError::Io(error) => StartError::Io(error),
            error => StartError::CommitLog(error),
        }
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "written once, by the shards, for who started the node"
)]
type Once<T> = std::sync::OnceLock<T>;

/// Outcome of a start, as the node's shards report it: written once, read from any thread.
#[derive(Debug, Default)]
pub struct Outcome {
    failure: Once<StartError>,
    /// A shard stopped because another one did: reported only when no shard has a cause.
    abandoned: Once<StartError>,
    ready: Once<()>,
}

impl Outcome {
    /// Returns the cause of a failed start, or of an unexpected stop.
    pub fn failure(&self) -> Option<&StartError> {
        self.failure.get().or_else(|| self.abandoned.get())
    }

    /// Returns true if it answers CQL.
    pub fn is_ready(&self) -> bool {
        self.ready.get().is_some()
    }

    /// Records the first failure.
    pub(crate) fn fail(&self, error: StartError) {
        let kept = match &error {
            StartError::Abandoned => &self.abandoned,
            _ => &self.failure,
        };
        // A later failure is a consequence of the first.
        let _ = kept.set(error);
    }

    pub(crate) fn set_ready(&self) {
        let _ = self.ready.set(());
    }
}

/// Task on the first shard of a node that is ready: see [`Node::start_with`].
pub type ReadyHook = Arc<
    dyn Fn(rt::Rt, cql_server::CqlServer, store::Store) -> Pin<Box<dyn Future<Output = ()>>>
        + Send
        + Sync,
>;

/// Source of re-read seeds. Files, variables and host names, from which the settings are built,
/// belong to the program and not to the node.
pub trait SeedSource: Send + Sync {
    /// Returns the seeds of the configuration as it is now, in its order: `address` or
    /// `address:port`. May block for a name resolution.
    ///
    /// # Errors
    /// The configuration cannot be read, or a name has no address; in words.
    fn read(&self) -> Result<Vec<String>, String>;
}

/// Services that the program that runs a node provides to it.
#[derive(Clone, Default)]
pub struct Program {
    /// The program's log: its levels are changed through the API, and it is read as a table.
    pub log: Option<Arc<dyn NodeLog>>,
    /// Archive commands and the syslog socket of the audit log.
    pub audit: Option<Arc<dyn ::audit::AuditHelper>>,
    /// For `nodetool reloadseeds`.
    pub seeds: Option<Arc<dyn SeedSource>>,
    /// Page size of scans between shards; `None`: the usual. For simulated nodes, whose tables are
    /// small.
    pub page_limit: Option<PageLimit>,
    /// Limits on coordinators' outstanding requests to a replica; `None`: the usual. For simulated
    /// nodes that do without.
    pub replica_window: Option<request::WindowSettings>,
}

/// Hook and services that the program passes to a node.
struct Lent {
    hook: Option<ReadyHook>,
    program: Program,
}

/// A node.
pub struct Node;

impl Node {
    /// Starts a node on a machine and returns immediately; [`RunningNode`] reports its state.
    pub fn start(options: Options, machine: &Machine) -> RunningNode {
        Node::start_named("helenus", options, machine)
    }

    /// Like [`Node::start`], for a program that provides services to the node.
    pub fn start_for(options: Options, machine: &Machine, program: Program) -> RunningNode {
        Node::start_on("helenus", options, machine, Arc::default(), None, program)
    }

    /// Like [`Node::start`], with a name for threads and, in the simulator, disk and network.
    pub fn start_named(name: &str, options: Options, machine: &Machine) -> RunningNode {
        Node::start_on(name, options, machine, Arc::default(), None, Program::default())
    }

    /// Starts a node and runs `hook` on its first shard once it is ready: for programs that embed
    /// it and access it without sockets. The node runs until it is asked to stop.
    pub fn start_with(
        name: &str,
        options: Options,
        machine: &Machine,
        outcome: Arc<Outcome>,
        hook: ReadyHook,
    ) -> RunningNode {
        Node::start_on(name, options, machine, outcome, Some(hook), Program::default())
    }

    fn start_on(
        name: &str,
        options: Options,
        machine: &Machine,
        outcome: Arc<Outcome>,
        hook: Option<ReadyHook>,
        program: Program,
    ) -> RunningNode {
        let shards = options.smp.unwrap_or(1).max(1);
        let meshes = Meshes::new(shards);
        let commander = Commander::new(meshes.admin.foreign(), shards);
        let (spec, main) =
            Node::prepare_on(name, options, outcome.clone(), Lent { hook, program }, meshes);
        RunningNode { running: machine.start(spec, main), outcome, commander }
    }

    /// Builds the spec and the main function from which [`Machine::start`] or a simulated world
    /// starts this node.
    pub fn prepare(name: &str, options: Options, outcome: Arc<Outcome>) -> (NodeSpec, rt::Main) {
        Node::prepare_with(name, options, outcome, None)
    }

    /// Like [`Node::prepare`], with the administrator's mesh: a simulated world has no HTTP.
    pub fn prepare_with_admin(
        name: &str,
        options: Options,
        outcome: Arc<Outcome>,
        program: Program,
    ) -> (NodeSpec, rt::Main, Arc<admin::AdminMesh>) {
        let meshes = Meshes::new(options.smp.unwrap_or(1).max(1));
        let admin = meshes.admin.clone();
        let lent = Lent { hook: None, program };
        let (spec, main) = Node::prepare_on(name, options, outcome, lent, meshes);
        (spec, main, admin)
    }

    fn prepare_with(
        name: &str,
        options: Options,
        outcome: Arc<Outcome>,
        hook: Option<ReadyHook>,
    ) -> (NodeSpec, rt::Main) {
        let meshes = Meshes::new(options.smp.unwrap_or(1).max(1));
        let lent = Lent { hook, program: Program::default() };
        Node::prepare_on(name, options, outcome, lent, meshes)
    }

    fn prepare_on(
        name: &str,
        options: Options,
        outcome: Arc<Outcome>,
        lent: Lent,
        meshes: Meshes,
    ) -> (NodeSpec, rt::Main) {
        let shards = options.smp.unwrap_or(1).max(1);
        let spec = NodeSpec { name: name.to_owned(), shards, work_dir: String::new() };
        let options = Arc::new(options);
        let main: rt::Main = Arc::new(move |rt| {
            let shard = shard::Shard {
                rt,
                options: options.clone(),
                meshes: meshes.clone(),
                outcome: outcome.clone(),
                hook: lent.hook.clone(),
                program: lent.program.clone(),
            };
            Box::pin(shard.run())
        });
        (spec, main)
    }
}

/// A started node.
pub struct RunningNode {
    running: Running,
    outcome: Arc<Outcome>,
    commander: Commander,
}

impl RunningNode {
    /// Asks the node to drain and stop.
    pub fn request_stop(&self) {
        self.running.request_stop();
    }

    /// Returns a handle for signal handlers.
    pub fn stopper(&self) -> Stopper {
        self.running.stopper()
    }

    /// Returns a sender of administrative commands, which are answered once the shards serve
    /// administration.
    pub fn commander(&self) -> Commander {
        self.commander.clone()
    }

    /// Returns true if it answers CQL.
    pub fn is_ready(&self) -> bool {
        self.outcome.is_ready()
    }

    /// Describes the kind of disk IO in use.
    pub fn io_description(&self) -> String {
        self.running.io_description().to_owned()
    }

    /// Waits until every shard has ended (not in the simulator).
    ///
    /// # Errors
    /// The cause of a failed start, or of a stop that was not requested.
    pub fn join(self) -> Result<(), StartError> {
        let joined = self.running.join();
        if let Some(error) = self.outcome.failure() {
            return Err(error.clone());
        }
        joined.map_err(StartError::Thread)
    }
}
