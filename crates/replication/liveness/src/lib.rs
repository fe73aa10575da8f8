//! Drives gossip and notifies every shard of the node which nodes are alive.
//!
//! Owns: the one `gossip` machine of the node (on shard 0: its rounds, its messages, the durable generation); the
//! [`Picture`] of live nodes and their disk usage, which shard 0 hands to all shards; the hooks that are notified of
//! changes. Never: membership (the caller sets it by [`Liveness::set_members`]), whether a node that is down stays in the
//! ring.
//!
//! Invariants: INV-liveness-1: a shard's hooks hear `true` and `false` of a host in turn, `true` first. INV-liveness-2:
//! pictures that a shard sees only get newer. INV-liveness-3: the generation with which a node starts is durable before its
//! first message.
//!
//! Reading order: [`Liveness`], [`Picture`], `driver`.

mod driver;
mod generation;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use gossip::{AppState, DiskUsage, Flags, Member};
use messaging::{Messaging, Request};
use rt::{Gate, Group, Mesh, MeshError, Rt};
use stdx::{Epoch, FixedMap, HostId, ShardId};

use crate::driver::Driver;
pub use crate::generation::next_generation;

/// Live nodes and disk usages, as shard 0 saw them at one moment. This node itself is not included.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Counts the pictures of this run.
    number: u64,
    /// The live ones, and whether they serve clients.
    alive: FixedMap<HostId, bool>,
    /// Last reported disk usages, also of nodes that are down; nodes that report none are not
    /// included.
    disks: FixedMap<HostId, DiskUsage>,
    /// Nodes that report their own clock as wrong, this node included.
    wrong_clocks: Vec<HostId>,
}

/// The way from shard 0 to the others.
pub type LivenessMesh = Mesh<Arc<Picture>, ()>;

/// Parameters of shard 0.
pub struct Start {
    /// Messaging of shard 0.
    pub messaging: Messaging,
    /// From [`next_generation`], which made it durable.
    pub generation: u64,
    /// Below it `metadata/generation` is kept.
    pub work_dir: String,
    /// `phi_convict_threshold`.
    pub phi_convict_threshold: f64,
    /// Time between rounds; a second.
    pub round: Duration,
    /// Initial state that this node gossips: shards, release, epoch, load.
    pub state: AppState,
    /// Called for every epoch that a peer reports as applied.
    pub on_epoch: Box<dyn Fn(HostId, Epoch)>,
}

/// One node as gossip knows it: `nodetool gossipinfo`, `failuredetector`.
#[derive(Clone, Debug)]
pub struct PeerRow {
    /// Who.
    pub host: HostId,
    /// Number of its start; 0 when nothing was heard of it.
    pub generation: u64,
    /// Its heartbeat.
    pub version: u64,
    /// Its state.
    pub app: AppState,
    /// True if the node is up.
    pub is_alive: bool,
    /// Suspicion level of its silence.
    pub phi: f64,
}

type Hook = Rc<dyn Fn(HostId, bool)>;
type DiskHook = Rc<dyn Fn(HostId, DiskUsage)>;

/// One shard's view of live nodes; clones share.
#[derive(Clone)]
pub struct Liveness {
    inner: Rc<Inner>,
}

struct Inner {
    rt: Rt,
    mesh: Arc<LivenessMesh>,
    host: HostId,
    gate: Gate,
    picture: RefCell<Arc<Picture>>,
    on_change: RefCell<Vec<Hook>>,
    on_ready: RefCell<Vec<Hook>>,
    on_disk_usage: RefCell<Vec<DiskHook>>,
    /// Shard 0 only.
    driver: RefCell<Option<Rc<Driver>>>,
}

impl Liveness {
    /// The part of one shard of the node `host`. Everybody else is down until shard 0 has heard of
    /// them after [`Liveness::start`].
    pub fn new(rt: Rt, mesh: Arc<LivenessMesh>, host: HostId) -> Liveness {
        let gate = rt.gate("liveness");
        let inner = Rc::new(Inner {
            rt: rt.clone(),
            mesh: mesh.clone(),
            host,
            gate,
            picture: RefCell::default(),
            on_change: RefCell::default(),
            on_ready: RefCell::default(),
            on_disk_usage: RefCell::default(),
            driver: RefCell::new(None),
        });
        let this = Liveness { inner };
        let served = this.clone();
        mesh.serve(&rt, move |picture, reply| {
            served.adopt(&picture);
            reply.send(());
        });
        let ending = this.clone();
        rt.at_end(move || {
            // Breaks reference cycles: the hooks hold this.
            drop(ending.inner.on_change.take());
            drop(ending.inner.on_ready.take());
            drop(ending.inner.on_disk_usage.take());
            drop(ending.inner.driver.take());
        });
        this
    }

    /// Returns true if requests may be sent to a node. This node is always alive.
    #[inline]
    pub fn is_alive(&self, host: HostId) -> bool {
        host == self.inner.host || self.inner.picture.borrow().alive.contains_key(&host)
    }

    /// Returns true if a node, not this one, is alive and serves clients.
    pub fn is_ready(&self, host: HostId) -> bool {
        self.inner.picture.borrow().alive.get(&host).copied().unwrap_or(false)
    }

    /// Returns true if a node, or this one, has reported that its clock differs from the others'.
    pub fn has_wrong_clock(&self, host: HostId) -> bool {
        self.inner.picture.borrow().wrong_clocks.contains(&host)
    }

    /// Says to everybody whether this node's clock is that of the others. Shard 0 only.
    pub fn set_wrong_clock(&self, is_wrong: bool) {
        let Some(driver) = self.driver() else { return };
        driver.update(|app| {
            let flags = app.flags;
            app.flags = match is_wrong {
                true => flags.with(Flags::WRONG_CLOCK),
                false => flags.without(Flags::WRONG_CLOCK),
            };
        });
        driver.announce();
        // Not only the others go by it.
        driver.publish();
    }

    /// Calls `hook(host, is_alive)` on this shard at each change.
    pub fn on_change(&self, hook: impl Fn(HostId, bool) + 'static) {
        self.inner.on_change.borrow_mut().push(Rc::new(hook));
    }

    /// Calls `hook(host, is_ready)` on this shard when a node starts or stops being alive and
    /// serving clients: the source of STATUS_CHANGE events for drivers.
    pub fn on_ready(&self, hook: impl Fn(HostId, bool) + 'static) {
        self.inner.on_ready.borrow_mut().push(Rc::new(hook));
    }

    /// Calls `hook(host, usage)` on this shard when a node, not this one, reports another disk
    /// usage than before, and now for the usages reported so far. A node that goes down keeps its
    /// usage; a removed member reports none.
    pub fn on_disk_usage(&self, hook: impl Fn(HostId, DiskUsage) + 'static) {
        let picture = self.inner.picture.borrow().clone();
        for (host, usage) in &picture.disks {
            hook(*host, *usage);
        }
        self.inner.on_disk_usage.borrow_mut().push(Rc::new(hook));
    }

    /// Starts to gossip; shard 0 only, once.
    pub fn start(&self, start: Start) {
        let messaging = start.messaging.clone();
        let driver = Rc::new(Driver::new(self.clone(), start));
        *self.inner.driver.borrow_mut() = Some(driver.clone());
        // Weak: messaging is not kept by what it calls.
        let of_hook = Rc::downgrade(&driver);
        messaging.hooks().on_link_failed(Rc::new(move |host, failure| {
            if let Some(driver) = of_hook.upgrade() {
                driver.link_failed(host, failure);
            }
        }));
        let task = async move { driver.run().await };
        // A closed gate: the node stops.
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Gossip, "gossip", task);
    }

    fn driver(&self) -> Option<Rc<Driver>> {
        self.inner.driver.borrow().clone()
    }

    /// Sets the members of the cluster; others are forgotten. Shard 0 only.
    pub fn set_members(&self, members: Vec<Member>) {
        if let Some(driver) = self.driver() {
            driver.set_members(members);
        }
    }

    /// Changes this node's gossip state. Shard 0 only.
    pub fn update(&self, change: impl FnOnce(&mut AppState)) {
        if let Some(driver) = self.driver() {
            driver.update(change);
        }
    }

    /// Says to everybody whether this node serves clients. Shard 0 only.
    pub fn set_ready(&self, is_ready: bool) {
        let Some(driver) = self.driver() else { return };
        driver.update(|app| {
            let flags = app.flags;
            app.flags = match is_ready {
                true => flags.with(Flags::CQL_READY),
                false => flags.without(Flags::CQL_READY),
            };
        });
        driver.announce();
    }

    /// Says to everybody how full the disks of this node's data are. Shard 0 only.
    pub fn set_disk_usage(&self, usage: DiskUsage) {
        let Some(driver) = self.driver() else { return };
        driver.update(|app| app.flags = app.flags.with_disk_usage(usage));
        driver.announce();
    }

    /// Enables or disables gossip (`nodetool disablegossip`). A node without gossip is down for the
    /// others, and keeps its last view of them. Shard 0 only.
    pub fn set_gossiping(&self, on: bool) {
        if let Some(driver) = self.driver() {
            driver.set_gossiping(on);
        }
    }

    /// Returns true if this node takes part in gossip; false on shards other than 0.
    pub fn is_gossiping(&self) -> bool {
        self.driver().is_some_and(|driver| driver.is_gossiping())
    }

    /// Returns the last epoch that a node has reported as applied. `None`: it is not known, not
    /// alive, or this is not shard 0.
    pub fn applied_epoch(&self, host: HostId) -> Option<Epoch> {
        let row = self.driver()?.row(host)?;
        row.is_alive.then_some(row.app.epoch)
    }

    /// Every member, by host id; empty on shards other than 0.
    pub fn view(&self) -> Vec<PeerRow> {
        self.driver().map(|driver| driver.rows()).unwrap_or_default()
    }

    /// Takes a gossip message of a peer. Messages to other shards than 0 and messages that cannot
    /// be read are dropped: every one of them may be lost.
    pub fn serve_peer(&self, request: &Request<'_>) {
        if let Some(driver) = self.driver() {
            driver.received(request.from, request.payload);
        }
    }

    /// Announces to all nodes that this node stops, then stops gossiping. The messages are on their
    /// way when messaging has flushed its queues.
    pub async fn stop(&self) {
        let driver = self.inner.driver.borrow_mut().take();
        if let Some(driver) = driver {
            driver.stop();
        }
        self.inner.gate.close().await;
        // Breaks reference cycles: the hooks hold this.
        self.inner.on_change.borrow_mut().clear();
        self.inner.on_ready.borrow_mut().clear();
        self.inner.on_disk_usage.borrow_mut().clear();
    }

    /// Shard 0 has a new picture: shows it to all shards.
    fn publish(
        &self,
        alive: FixedMap<HostId, bool>,
        disks: FixedMap<HostId, DiskUsage>,
        wrong_clocks: Vec<HostId>,
    ) {
        let number = self.inner.picture.borrow().number.saturating_add(1);
        let picture = Arc::new(Picture { number, alive, disks, wrong_clocks });
        // Handed over at once, in the order of their numbers.
        let shards = (0..self.inner.rt.shard_count()).map(ShardId);
        let others = shards.filter(|shard| *shard != self.inner.rt.shard());
        let calls: Vec<_> = others
            .map(|shard| self.inner.mesh.call(&self.inner.rt, shard, picture.clone()))
            .collect();
        if !calls.is_empty() {
            let this = self.clone();
            let task = async move {
                for call in calls {
                    if let (Err(MeshError::Full), Some(driver)) = (call.await, this.driver()) {
                        driver.publish_again();
                    }
                }
            };
            let _ = self.inner.gate.spawn(&self.inner.rt, Group::Gossip, "liveness", task);
        }
        self.adopt(&picture);
    }

    fn adopt(&self, after: &Arc<Picture>) {
        let before = self.inner.picture.borrow().clone();
        if after.number <= before.number {
            stdx::reached!("liveness-old-picture");
            return;
        }
        *self.inner.picture.borrow_mut() = after.clone();
        let mut hosts: Vec<HostId> =
            before.alive.keys().chain(after.alive.keys()).copied().collect();
        hosts.sort_unstable();
        hosts.dedup();
        let (changed, ready) =
            (self.inner.on_change.borrow().clone(), self.inner.on_ready.borrow().clone());
        self.adopt_disks(&before, after);
        for host in hosts {
            let (was, is) = (before.alive.get(&host), after.alive.get(&host));
            if was.is_some() != is.is_some() {
                for hook in &changed {
                    hook(host, is.is_some());
                }
            }
            let (was, is) = (was.copied().unwrap_or(false), is.copied().unwrap_or(false));
            if was != is {
                for hook in &ready {
                    hook(host, is);
                }
            }
        }
    }

    fn adopt_disks(&self, before: &Picture, after: &Picture) {
        let mut hosts: Vec<HostId> =
            before.disks.keys().chain(after.disks.keys()).copied().collect();
        hosts.sort_unstable();
        hosts.dedup();
        let hooks = self.inner.on_disk_usage.borrow().clone();
        for host in hosts {
            let (was, is) = (before.disks.get(&host), after.disks.get(&host));
            if was != is {
                for hook in &hooks {
                    hook(host, is.copied().unwrap_or_default());
                }
            }
        }
    }
}
