//! The simulated world: one thread, one seed, all shards of all nodes.
//!
//! ```no_run
//! # use std::{rc::Rc, cell::Cell, time::Duration};
//! let world = rt::sim::World::new(7, rt::sim::WorldOptions::default());
//! let done = Rc::new(Cell::new(false));
//! let seen = Rc::clone(&done);
//! world.client("c1", move |rt| async move {
//!     rt.sleep(Duration::from_secs(1)).await;
//!     seen.set(true);
//! });
//! world.run_until(|| done.get(), Duration::from_secs(10)).unwrap();
//! ```

use crate::env::Env;
use crate::handle::{Inner, Rt};
use crate::machine::{Machine, Main, NodeSpec, StartRequest, spawn_main, start_main};
use crate::shared::NodeShared;
use rt_native::cross::lock;
use rt_sim::{ProcessId, Shard};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stdx::Instant;

pub use rt_sim::{CrashKind, DataCall, DiskControl, LinkOptions, Stuck, WorldOptions};

/// The simulated world. Clones are the same world.
#[derive(Clone)]
pub struct World {
    world: rt_sim::World,
    starts: Arc<Mutex<Vec<StartRequest>>>,
}

/// One incarnation of a simulated node or client.
#[derive(Clone)]
pub struct SimNode {
    process: ProcessId,
    name: String,
    node: Arc<NodeShared>,
    telemetry: Vec<telemetry::Shard>,
    shards: Vec<Weak<Inner>>,
}

impl SimNode {
    /// Its name: that of its disk and address too.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks it to stop: [`Rt::stop_requested`] resolves on its shards.
    pub fn request_stop(&self) {
        self.node.request_stop();
    }

    /// The tasks of all its shards by name; none after its end.
    pub fn tasks(&self) -> BTreeMap<&'static str, u64> {
        let mut tasks = BTreeMap::new();
        for inner in self.shards.iter().filter_map(Weak::upgrade) {
            for name in inner.tasks.borrow().names() {
                *tasks.entry(name).or_default() += 1;
            }
        }
        tasks
    }

    /// Returns true if all its shards are freed from memory.
    pub fn is_freed(&self) -> bool {
        self.shards.iter().all(|shard| shard.strong_count() == 0)
    }

    /// The metrics of all its shards, also after its end.
    pub fn telemetry(&self) -> telemetry::Snapshot {
        let mut all = telemetry::Snapshot::default();
        for shard in &self.telemetry {
            all.merge(shard.snapshot());
        }
        all
    }
}

/// Shard that is being polled, and the virtual time of it: for log lines.
#[derive(Clone, Copy, Debug)]
pub struct Polled {
    /// Virtual time.
    pub now: Instant,
    /// Address of the machine.
    pub ip: IpAddr,
    /// The shard.
    pub shard: u16,
}

thread_local! {
    static POLLED: Cell<Option<Polled>> = const { Cell::new(None) };
}

/// Returns the shard that is being polled on this thread; `None` outside of every world.
pub fn polled() -> Option<Polled> {
    POLLED.get()
}

/// A shard, and the address of its machine.
struct SimShard(Rc<Inner>, IpAddr);

impl Shard for SimShard {
    fn next_due(&self) -> Option<Instant> {
        if self.0.ready_len() > 0 || !self.0.shared.is_still_quiet() {
            return Some(Instant::ZERO);
        }
        self.0.timers.borrow().next()
    }

    fn attend(&self, now: Instant) {
        self.0.attend(now);
    }

    fn ready(&self) -> usize {
        self.0.ready_len()
    }

    fn run(&self, n: usize) {
        let (now, shard) = (self.0.env.now(), self.0.shard.0);
        POLLED.set(Some(Polled { now, ip: self.1, shard }));
        self.0.run_nth(n);
        POLLED.set(None);
    }

    fn is_finished(&self) -> bool {
        self.0.main_done.get()
    }

    fn end(&self) {
        self.0.end();
    }
}

impl World {
    /// Builds a world in which `seed` determines every choice.
    pub fn new(seed: u64, options: WorldOptions) -> World {
        World { world: rt_sim::World::new(seed, options), starts: Arc::default() }
    }

    /// Returns a machine whose nodes this world runs from its next step on.
    pub fn machine(&self) -> Machine {
        Machine::sim(Arc::clone(&self.starts))
    }

    /// Starts a node. Its disk and address belong to its name and outlive it.
    pub fn start_node(&self, spec: NodeSpec, main: Main) -> SimNode {
        let node = NodeShared::new(spec.shards.max(1));
        self.start(StartRequest { spec, main, node })
    }

    /// Starts a process of one shard with its own address and disk that runs `main`.
    pub fn client<F: Future<Output = ()> + 'static>(
        &self,
        name: &str,
        main: impl FnOnce(Rt) -> F,
    ) -> SimNode {
        let node = NodeShared::new(1);
        let (process, envs) = self.world.add_process(name, 1, "");
        let ip = self.world.ip(name);
        let (mut telemetry, mut inners) = (Vec::new(), Vec::new());
        if let Some(rt) = envs.into_iter().next().and_then(|env| self.new_rt(0, &node, env)) {
            telemetry.push(rt.telemetry());
            inners.push(Rc::downgrade(&rt.inner));
            self.world.attach(process, 0, Rc::new(SimShard(Rc::clone(&rt.inner), ip)));
            spawn_main(&rt, Box::pin(main(rt.clone())));
        }
        SimNode { process, name: name.to_string(), node, telemetry, shards: inners }
    }

    fn new_rt(&self, shard: u16, node: &Arc<NodeShared>, env: rt_sim::Env) -> Option<Rt> {
        Rt::new(shard, Arc::clone(node), Env::Sim(env), "files: simulated".to_string())
    }

    fn start(&self, request: StartRequest) -> SimNode {
        let StartRequest { spec, main, node } = request;
        let shards = spec.shards.max(1);
        let (process, envs) = self.world.add_process(&spec.name, shards, &spec.work_dir);
        let ip = self.world.ip(&spec.name);
        let (mut telemetry, mut inners) = (Vec::new(), Vec::new());
        for (shard, env) in (0u16..).zip(envs) {
            if let Some(rt) = self.new_rt(shard, &node, env) {
                telemetry.push(rt.telemetry());
                inners.push(Rc::downgrade(&rt.inner));
                self.world.attach(process, shard, Rc::new(SimShard(Rc::clone(&rt.inner), ip)));
                start_main(&rt, &main);
            }
        }
        SimNode { process, name: spec.name, node, telemetry, shards: inners }
    }

    fn take_starts(&self) {
        let starts = std::mem::take(&mut *lock(&self.starts));
        for request in starts {
            self.start(request);
        }
    }

    /// Runs until `condition` holds.
    ///
    /// # Errors
    /// [`Stuck`] when `max_virtual` time has passed, or nothing can happen any longer.
    pub fn run_until(
        &self,
        condition: impl Fn() -> bool,
        max_virtual: Duration,
    ) -> Result<(), Stuck> {
        let limit = self.now() + max_virtual;
        loop {
            if condition() {
                return Ok(());
            }
            self.take_starts();
            let happened = self.now() < limit && self.world.step(limit);
            if !happened {
                if condition() {
                    return Ok(());
                }
                let idle = self.now() < limit;
                return Err(Stuck { at: self.now(), idle });
            }
        }
    }

    /// Runs for `d` of virtual time, also when nothing happens.
    pub fn run_for(&self, d: Duration) {
        let limit = self.now() + d;
        loop {
            self.take_starts();
            if self.now() >= limit || !self.world.step(limit) {
                break;
            }
        }
        self.world.advance_to(limit);
    }

    /// Returns true if nothing will ever happen again without outside action.
    pub fn is_idle(&self) -> bool {
        self.take_starts();
        self.world.is_idle()
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.world.now()
    }

    /// Hash over everything that happened.
    pub fn trace_hash(&self) -> u64 {
        self.world.trace_hash()
    }

    /// The hash at every 1000th scheduling step.
    pub fn trace_checkpoints(&self) -> Vec<u64> {
        self.world.trace_checkpoints()
    }

    /// Returns a number from the world's seed, for drivers of the world (workloads, nemeses).
    pub fn random_u64(&self) -> u64 {
        self.world.random_u64()
    }

    /// The address of a node or client by its name, also before it starts.
    pub fn ip(&self, name: &str) -> IpAddr {
        self.world.ip(name)
    }

    /// Returns true if the node runs: not crashed, and some shard's main function has not returned.
    pub fn is_alive(&self, node: &SimNode) -> bool {
        self.world.is_alive(node.process)
    }

    /// Returns the resources that a node holds: open files, then ends of connections.
    pub fn holds(&self, node: &SimNode) -> (u64, u64) {
        self.world.holds(node.process)
    }

    /// Kills the process: everything handed to the kernel stays, peers see resets.
    pub fn kill(&self, node: &SimNode) {
        self.world.crash(node.process, CrashKind::Kill);
    }

    /// Cuts the power of its machine: a seeded part of the unsynced data and names survives (a
    /// prefix, or any sectors of 512 bytes). Peers see silence. A sender aborts its connection
    /// after [`WorldOptions::silent_peer_timeout`]; a connect or a reader waits. When a process is
    /// started there again, old connections are reset.
    pub fn power_cut(&self, node: &SimNode) {
        self.world.crash(node.process, CrashKind::PowerCut);
    }

    /// Cuts the power so that nothing unsynced stays.
    pub fn power_cut_losing_all(&self, node: &SimNode) {
        self.world.crash(node.process, CrashKind::PowerCutLosingAll);
    }

    /// The disk of a node by its name.
    pub fn disk(&self, node_name: &str) -> DiskControl {
        self.world.disk(node_name)
    }

    /// Holds back everything that `from` sends to `to`, until healed.
    pub fn clog(&self, from: &str, to: &str) {
        self.world.network().clog(from, to);
    }

    /// Holds back everything between `a` and `b`, until healed.
    pub fn partition(&self, a: &str, b: &str) {
        self.world.network().partition(a, b);
    }

    /// Ends clogs between `a` and `b`; held-back segments are sent.
    pub fn heal(&self, a: &str, b: &str) {
        self.world.network().heal(a, b);
    }

    /// Ends all clogs.
    pub fn heal_all(&self) {
        self.world.network().heal_all();
    }

    /// Resets all connections between `a` and `b`.
    pub fn reset_connections(&self, a: &str, b: &str) {
        self.world.network().reset_connections(a, b);
    }

    /// One-way delay from `from` to `to` in microseconds, instead of the world's.
    pub fn set_latency(&self, from: &str, to: &str, micros: Range<u64>) {
        self.world.network().set_latency(from, to, micros);
    }

    /// Calls `hook` with the addresses of the connecting and the accepting side of each connection,
    /// and the first bytes that the connecting one sends.
    pub fn on_begin(&self, hook: impl Fn(SocketAddr, SocketAddr, &[u8]) + 'static) {
        self.world.network().on_begin(Rc::new(hook));
    }

    /// Delay, loss, bandwidth and resets from `from` to `to`.
    pub fn set_link(&self, from: &str, to: &str, options: LinkOptions) {
        self.world.network().set_link(from, to, options);
    }

    /// Makes all links the world's again; clogs stay.
    pub fn clear_links(&self) {
        self.world.network().clear_links();
    }

    /// Stops a node's tasks for that long, as SIGSTOP does; its time goes on.
    pub fn pause(&self, node: &SimNode, duration: Duration) {
        self.world.pause(node.process, duration);
    }

    /// Ends a pause.
    pub fn resume(&self, node: &SimNode) {
        self.world.resume(node.process);
    }

    /// Shifts a node's wall clock by `micros`, from now on.
    pub fn set_clock_skew(&self, name: &str, micros: i64) {
        self.world.set_clock_skew(name, micros);
    }

    /// Makes a node's wall clock jump by `micros`, on top of earlier shifts.
    pub fn jump_clock(&self, name: &str, micros: i64) {
        self.world.jump_clock(name, micros);
    }

    /// Makes a node's wall clock run too fast by that many millionths from now on, too slowly below
    /// 0, on top of earlier shifts. 0 ends the drift; the accumulated difference stays.
    pub fn drift_clock(&self, name: &str, millionths: i64) {
        self.world.drift_clock(name, millionths);
    }
}
