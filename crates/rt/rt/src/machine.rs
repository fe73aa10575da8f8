//! [`Machine`]: where shards are started.

use crate::env::Env;
use crate::executor::{Group, run_native};
use crate::gate::Gate;
use crate::handle::Rt;
use crate::shared::NodeShared;
use rt_native::cross::lock;
use rt_native::{NativeOptions, Threads};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

/// Main function of every shard of a node, called on its shard.
pub type Main = Arc<dyn Fn(Rt) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

/// Specification of a node to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Names threads; in the simulator also disk and network address.
    pub name: String,
    /// Number of shards, at least 1.
    pub shards: u16,
    /// Directory that relative paths start from; empty for the process's own.
    pub work_dir: String,
}

/// A place where nodes run: this computer, or a simulated world.
#[derive(Clone)]
pub struct Machine {
    inner: AnyMachine,
}

#[derive(Clone)]
enum AnyMachine {
    Native(NativeOptions),
    Sim(Arc<Mutex<Vec<StartRequest>>>),
}

/// A start that the simulated world carries out at its next step.
pub(crate) struct StartRequest {
    pub(crate) spec: NodeSpec,
    pub(crate) main: Main,
    pub(crate) node: Arc<NodeShared>,
}

/// A started node.
pub struct Running {
    node: Arc<NodeShared>,
    threads: Option<Threads>,
}

impl Machine {
    /// This computer.
    pub fn native(options: NativeOptions) -> Machine {
        Machine { inner: AnyMachine::Native(options) }
    }

    pub(crate) fn sim(starts: Arc<Mutex<Vec<StartRequest>>>) -> Machine {
        Machine { inner: AnyMachine::Sim(starts) }
    }

    /// Starts the shards; natively each on a thread of its own.
    pub fn start(&self, spec: NodeSpec, main: Main) -> Running {
        let node = NodeShared::new(spec.shards.max(1));
        match &self.inner {
            AnyMachine::Native(options) => {
                let io = rt_native::shard::choose_io(options.io);
                let io_text = io.description().to_string();
                let of_node = Arc::clone(&node);
                let shard_main: rt_native::shard::ShardMain = Arc::new(move |shard, env| {
                    let (node, text) = (Arc::clone(&of_node), io_text.clone());
                    let rt = Rt::new(shard, node, Env::Native(env), text);
                    let main = Arc::clone(&main);
                    Box::pin(async move {
                        if let Some(rt) = rt {
                            start_main(&rt, &main);
                            run_native(rt).await;
                        }
                    })
                });
                let threads = rt_native::start(
                    &spec.name,
                    spec.shards.max(1),
                    &spec.work_dir,
                    options.cpuset.as_deref(),
                    io,
                    &shard_main,
                );
                Running { node, threads: Some(threads) }
            }
            AnyMachine::Sim(starts) => {
                let request = StartRequest { spec, main, node: Arc::clone(&node) };
                lock(starts).push(request);
                Running { node, threads: None }
            }
        }
    }
}

impl Running {
    /// Asks every shard to stop: [`Rt::stop_requested`] resolves.
    pub fn request_stop(&self) {
        self.node.request_stop();
    }

    /// Something to ask for a stop with, for signal handlers and other threads.
    pub fn stopper(&self) -> Stopper {
        Stopper { node: Arc::clone(&self.node) }
    }

    /// Which file backend is in use and, when it was not the first choice, why.
    pub fn io_description(&self) -> &str {
        self.threads.as_ref().map_or("files: simulated", Threads::io_description)
    }

    /// Native only: blocks until every shard's main function has returned.
    ///
    /// # Errors
    /// In words: the first shard that panicked or could not start; or that this is a simulation,
    /// which has no threads to wait for.
    pub fn join(self) -> Result<(), String> {
        match self.threads {
            Some(threads) => threads.join(),
            None => Err("a simulated node is run by its world, not joined".to_string()),
        }
    }
}

/// Asks a node to stop, from any thread. See [`Running::stopper`].
#[derive(Clone)]
pub struct Stopper {
    node: Arc<NodeShared>,
}

impl Stopper {
    /// See [`Running::request_stop`].
    pub fn request_stop(&self) {
        self.node.request_stop();
    }
}

/// Spawns the main task of a shard; the shard ends with it.
pub(crate) fn start_main(rt: &Rt, main: &Main) {
    let future = main(rt.clone());
    spawn_main(rt, future);
}

pub(crate) fn spawn_main(rt: &Rt, future: Pin<Box<dyn Future<Output = ()>>>) {
    let of_main = rt.clone();
    let task = async move {
        future.await;
        of_main.inner.main_done.set(true);
    };
    // A new shard refuses nothing.
    let _ = rt.inner.spawn(&Gate::new("main"), Group::Admin, "main", Box::pin(task));
}
