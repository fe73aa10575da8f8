//! [`Nodes`]: the world of a run, the nodes in it, and how the driver asks them.

mod options;

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use admin::{AdminReply, AdminRequest};
use conf::{DiskFailurePolicy, Options};
use node::{Node, Outcome, PageLimit, Program};
use rt::sim::{LinkOptions, SimNode, World, WorldOptions};
use rt::{Rt, ShardId};

use crate::encrypted::{self, SharedSeen};
use crate::key_provider::{self, KeyServer};
use crate::leaks::Holdings;
use crate::report::Probes;
use crate::sabotage::Sabotage;
use crate::scenario::Scenario;
use crate::survey;

pub use options::TURN;

/// Longest time of one operation when everything is healed.
pub const OPERATION_MAX: Duration = Duration::from_secs(600);
/// How long a node is given to stop in order.
const STOP_MAX: Duration = Duration::from_secs(30);

/// The reply to an order, once it has arrived.
pub type Reply = Rc<RefCell<Option<AdminReply>>>;

/// When a node is started for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Before the clients come.
    Founding,
    /// While the others serve clients.
    Joining,
}

/// One node over all its lives.
pub struct Member {
    /// Name of machine, disk and address.
    pub name: String,
    pub(super) options: Options,
    /// Its present or last life.
    pub life: SimNode,
    outcome: Arc<Outcome>,
    /// True if it was started and not ended by the driver.
    pub is_up: bool,
    /// It joins, or its disk is bad: it may end unexpectedly until everything is healed.
    pub may_end: bool,
    /// It is no longer a member, or dead for good.
    pub has_left: bool,
    /// It was started while the others served clients, and has not ended since then. A restart lets
    /// it join again.
    pub is_newcomer: bool,
    /// It has started with another number of shards.
    pub is_resharded: bool,
    /// Partitions and files that it got from others in earlier lives.
    pub streamed: u64,
    /// The administrator's way in.
    pub admin: Arc<admin::AdminMesh>,
}

impl Member {
    /// Its shards.
    pub fn shards(&self) -> u16 {
        self.options.smp.unwrap_or(1)
    }

    /// From its next start on it tolerates files that cannot be opened.
    pub fn start_with_damaged_files(&mut self, policy: DiskFailurePolicy) {
        self.options.disk_failure_policy = policy;
    }

    /// Its tokens, when it was started for the first time.
    pub fn tokens(&self) -> u32 {
        self.options.num_tokens
    }

    /// Returns the cause of its unexpected end; empty: none.
    pub fn ending(&self) -> String {
        self.outcome.failure().map_or(String::new(), ToString::to_string)
    }
}

/// The world, its nodes, and their counts.
pub struct Nodes {
    /// The world.
    pub world: World,
    /// Scenario of the run.
    pub scenario: Rc<Scenario>,
    /// Deliberate errors of the run.
    pub sabotage: Sabotage,
    /// The nodes, in the order of their numbers.
    pub members: Vec<Member>,
    /// True if no operator orders repairs of damaged files: nodes repair them automatically.
    pub mends_by_itself: bool,
    /// Observations of connections between nodes, where they are encrypted.
    pub eavesdropper: Option<SharedSeen>,
    /// The provider of the keys of files, where there is one.
    pub key_server: Option<KeyServer>,
    /// Rare paths that were reached.
    pub probes: Probes,
    askers: u64,
}

impl Nodes {
    /// A world without nodes.
    pub fn new(
        seed: u64,
        scenario: Rc<Scenario>,
        sabotage: Sabotage,
        mends_by_itself: bool,
    ) -> Nodes {
        let world = World::new(seed, WorldOptions::default());
        Nodes {
            eavesdropper: scenario.encryption.then(|| encrypted::eavesdrop(&world, seed)),
            key_server: scenario.has_key_provider().then(|| KeyServer::start(&world)),
            world,
            scenario,
            sabotage,
            members: Vec::new(),
            mends_by_itself,
            probes: Probes::default(),
            askers: 0,
        }
    }

    /// Where clients find a node.
    pub fn address(&self, name: &str) -> SocketAddr {
        SocketAddr::new(self.world.ip(name), Options::default().native_transport_port)
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|m| self.address(&m.name)).collect()
    }

    /// The numbers of those that are members.
    pub fn staying(&self) -> Vec<usize> {
        let is_there = |n: &usize| self.members.get(*n).is_some_and(|m| !m.has_left);
        (0..self.members.len()).filter(is_there).collect()
    }

    pub fn staying_addresses(&self) -> Vec<(usize, SocketAddr)> {
        let staying = self.staying().into_iter();
        staying.map(|n| (n, self.address(&name(n)))).collect()
    }

    /// Counts something that an administrator did.
    pub fn bump(&mut self, what: &'static str) {
        self.probes.bump(what, 1);
    }

    /// The name of a client that asks once.
    pub fn new_name(&mut self) -> String {
        self.askers += 1;
        format!("asker{}", self.askers)
    }

    /// Returns the resources that a node holds now.
    pub fn holdings_of(&self, number: usize) -> Holdings {
        let Some(member) = self.members.get(number) else { return Holdings::default() };
        let (files, connections) = self.world.holds(&member.life);
        let mut holdings = Holdings {
            tasks: member.life.tasks(),
            files,
            files_there: self.world.disk(&member.name).list().len() as u64,
            connections,
            ..Holdings::default()
        };
        holdings.take_gauges(&member.life.telemetry());
        holdings
    }

    /// Checks that no node ended unexpectedly.
    pub fn alive(&self) -> Result<(), String> {
        for member in self.members.iter().filter(|m| m.is_up && !m.may_end) {
            if !self.world.is_alive(&member.life) {
                return Err(format!("{} ended by itself: {}", member.name, member.ending()));
            }
        }
        Ok(())
    }

    /// Runs one client to its end.
    pub fn ask<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        what: &str,
        limit: Duration,
        body: impl FnOnce(Rt) -> F,
    ) -> Result<T, String> {
        let caller = self.new_name();
        let result: Rc<RefCell<Option<T>>> = Rc::default();
        let out = result.clone();
        self.world.client(&caller, |rt| {
            let body = body(rt);
            async move {
                let value = body.await;
                *out.borrow_mut() = Some(value);
            }
        });
        let done = self.world.run_until(|| result.borrow().is_some(), limit);
        self.alive()?;
        let value = result.borrow_mut().take();
        match (done, value) {
            (Ok(()), Some(value)) => Ok(value),
            (Err(stuck), _) => Err(format!("{what} did not end: {stuck}")),
            (Ok(()), None) => Err(format!("{what} gave nothing")),
        }
    }

    /// Asks a shard of a node.
    pub fn admin(&mut self, number: usize, shard: ShardId, request: AdminRequest) -> Reply {
        let reply = Reply::default();
        let Some(member) = self.members.get(number) else { return reply };
        let (out, admin) = (reply.clone(), member.admin.clone());
        let caller = self.new_name();
        self.world.client(&caller, |rt| async move {
            if let Ok(answer) = admin.call(&rt, shard, request).await {
                *out.borrow_mut() = Some(answer);
            }
        });
        reply
    }

    /// Like [`Nodes::admin`] at shard 0, and waits for the answer.
    ///
    /// # Errors
    /// No answer arrives.
    pub fn admin_now(
        &mut self,
        number: usize,
        request: AdminRequest,
    ) -> Result<AdminReply, String> {
        self.admin_at(number, ShardId(0), request)
    }

    /// Like [`Nodes::admin_now`], at any shard.
    ///
    /// # Errors
    /// See [`Nodes::admin_now`].
    pub fn admin_at(
        &mut self,
        number: usize,
        shard: ShardId,
        request: AdminRequest,
    ) -> Result<AdminReply, String> {
        let reply = self.admin(number, shard, request.clone());
        let done = self.world.run_until(|| reply.borrow().is_some(), OPERATION_MAX);
        let answer = reply.borrow_mut().take();
        match (done, answer) {
            (Ok(()), Some(answer)) => Ok(answer),
            _ => {
                let state = self.members.get(number).map_or_else(String::new, |member| match self
                    .world
                    .is_alive(&member.life)
                {
                    true => "it runs".to_owned(),
                    false => format!("it has ended: {}", member.ending()),
                });
                Err(format!("{request:?} at {} did not end: {state}", name(number)))
            }
        }
    }

    /// Flushes all tables of a node.
    ///
    /// # Errors
    /// That it does not.
    pub fn flush(&mut self, number: usize) -> Result<(), String> {
        let shards = self.members.get(number).map_or(0, |m| m.shards());
        for shard in (0..shards).map(ShardId) {
            self.admin_at(number, shard, AdminRequest::Flush(admin::Selection::default()))?;
        }
        Ok(())
    }

    /// The disk of a dead node is empty from now on.
    pub fn wipe(&self, number: usize) {
        let disk = self.world.disk(&name(number));
        for path in disk.list() {
            disk.remove(&path);
        }
    }

    /// Ends a node that runs.
    pub fn stop(&mut self, number: usize) {
        let Some(life) = self.members.get(number).filter(|m| m.is_up).map(|m| m.life.clone())
        else {
            return;
        };
        if self.world.random_u64().is_multiple_of(2) {
            life.request_stop();
            // Elapsed: it is killed.
            let _ = self.world.run_until(|| !self.world.is_alive(&life), STOP_MAX);
        }
        self.world.kill(&life);
        self.ended(number);
    }

    /// Waits until a node that was started serves clients.
    ///
    /// # Errors
    /// That it does not.
    pub fn serve_again(&mut self, number: usize) -> Result<(), String> {
        let (address, others) = (self.address(&name(number)), self.staying().len() - 1);
        let what = format!("the start of {} again", name(number));
        self.ask(&what, OPERATION_MAX, move |rt| survey::serves(rt, address, others))
    }

    pub fn shards_of(&self, number: usize) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.members.get(number).map_or(0, |m| m.shards())).map(ShardId)
    }

    /// Starts the next node.
    pub fn add_member(&mut self, arrives: Arrival) -> String {
        let name = name(self.members.len());
        let mut options = options::of_seed(self, &name);
        if let Some(seen) = &self.eavesdropper {
            encrypted::prepare(self, seen, &name, &mut options);
        }
        if self.key_server.is_some() {
            key_provider::prepare(self, &mut options);
        }
        let (life, outcome, admin) = start(&self.world, &name, &options, &self.scenario);
        usual_links(self, self.members.len());
        let of_member = name.clone();
        self.members.push(Member {
            name: of_member,
            options,
            life,
            outcome,
            is_up: true,
            may_end: arrives == Arrival::Joining,
            has_left: false,
            is_newcomer: arrives == Arrival::Joining,
            is_resharded: false,
            streamed: 0,
            admin,
        });
        name
    }

    /// Records the end of a node: its counts are added to the sum.
    pub fn ended(&mut self, number: usize) {
        let Some(member) = self.members.get_mut(number) else { return };
        member.is_up = false;
        let counted = member.life.telemetry();
        member.streamed += streamed(&counted);
        self.probes.add_node(&counted);
    }

    /// Starts a node again on its disk.
    pub fn restart(&mut self, number: usize) {
        let Some(member) = self.members.get_mut(number) else { return };
        if member.is_up || member.has_left {
            return;
        }
        if self.scenario.other_shards {
            let random = self.world.random_u64();
            let smp = u16::try_from(1 + random / 2 % self.scenario.shards_max).ok();
            if random.is_multiple_of(2) && smp != member.options.smp {
                member.options.smp = smp;
                member.is_resharded = true;
                if self.sabotage.unsharded_log {
                    let disk = self.world.disk(&member.name);
                    let of_log = |path: &String| path.contains("/commitlog/");
                    disk.list().into_iter().filter(of_log).for_each(|path| disk.remove(&path));
                }
                self.probes.bump("started with another number of shards", 1);
            }
        }
        (member.life, member.outcome, member.admin) =
            start(&self.world, &member.name, &member.options, &self.scenario);
        member.is_up = true;
        member.is_newcomer = false;
    }

    /// A node starts with an empty disk in the place of the member that had its address.
    pub fn replace(&mut self, number: usize) {
        self.wipe(number);
        let Some(member) = self.members.get_mut(number) else { return };
        let ip = self.world.ip(&member.name);
        member.options.replace_address_first_boot = Some(conf::Address::Ip(ip));
        member.may_end = true;
        self.restart(number);
    }

    /// Swaps the disks of two machines: options that belong to the disk move with it.
    pub fn swap_options(&mut self, a: usize, b: usize) {
        let options = |n: usize| self.members.get(n).map(|m| m.options.clone());
        let (Some(of_a), Some(of_b)) = (options(a), options(b)) else { return };
        for (number, address, rest) in [(a, of_a.clone(), of_b.clone()), (b, of_b, of_a)] {
            if let Some(member) = self.members.get_mut(number) {
                member.options = Options {
                    listen_address: address.listen_address,
                    broadcast_rpc_address: address.broadcast_rpc_address,
                    replace_address_first_boot: None,
                    ..rest
                };
            }
        }
    }
}

fn start(
    world: &World,
    name: &str,
    options: &Options,
    scenario: &Scenario,
) -> (SimNode, Arc<Outcome>, Arc<admin::AdminMesh>) {
    let outcome = Arc::new(Outcome::default());
    let small = PageLimit { bytes: 150, left_out: 300, ..PageLimit::default() };
    let page_limit = scenario.small_pages.then_some(small);
    let program = Program { page_limit, ..Program::default() };
    let (options, told) = (options.clone(), outcome.clone());
    let (spec, main, admin) = Node::prepare_with_admin(name, options, told, program);
    (world.start_node(spec, main), outcome, admin)
}

/// Restores the usual links of a node: long delays between datacenters.
pub fn usual_links(nodes: &Nodes, node: usize) {
    let scenario = &nodes.scenario;
    for other in (0..nodes.members.len().max(node)).filter(|other| *other != node) {
        let is_near = scenario.datacenter(node as u64) == scenario.datacenter(other as u64);
        let latency_micros = if is_near { None } else { Some(15_000..25_000) };
        let link = LinkOptions { latency_micros, ..LinkOptions::default() };
        nodes.world.set_link(&name(node), &name(other), link.clone());
        nodes.world.set_link(&name(other), &name(node), link);
    }
}

/// The name of a node by its number from 0.
pub fn name(number: usize) -> String {
    format!("n{}", number + 1)
}

/// Partitions and files that a node got from others in streams.
pub fn streamed(snapshot: &telemetry::Snapshot) -> u64 {
    let names = ["stream_received_partitions_total", "stream_received_files_total"];
    let of_streams = snapshot.metrics.iter().filter(|m| names.contains(&m.name));
    let counts = of_streams.map(|m| match m.value {
        telemetry::Value::Counter(n) => n,
        telemetry::Value::Gauge(_)
        | telemetry::Value::Histogram(_)
        | telemetry::Value::Latency(_) => 0,
    });
    counts.sum()
}
