//! Runs a [`Scenario`]: whole nodes in one simulated world, clients that write and read while things
//! break (safety), then everything healed (liveness), then what the checkers want to see.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use conf::{CommitLogSync, Options};
use node::{Node, Outcome};
use rt::Rt;
use rt::sim::{SimNode, World, WorldOptions};

use crate::checks::{self, Trouble};
use crate::client::{Answer, Client};
use crate::nemesis::{self, Nemesis};
use crate::report::{Probes, Report};
use crate::scenario::{Fault, Scenario};
use crate::survey;
use crate::workload::{self, SCHEMA, Shared};

/// Longest time until a node of an undisturbed cluster serves clients.
const START_MAX: Duration = Duration::from_secs(180);
/// Longest time of one survey after healing.
const SURVEY_MAX: Duration = Duration::from_secs(300);

/// What a run does wrong on purpose, so that tests see the checkers notice it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sabotage {
    /// Clients write and read at ONE instead of QUORUM.
    pub weak_levels: bool,
    /// Batches are not logged.
    pub unlogged_batches: bool,
    /// Replicas are compared at once, without waiting and reading at ALL.
    pub unrepaired: bool,
    /// Nothing is healed.
    pub unhealed: bool,
}

/// One node over all its lives.
pub struct Member {
    /// Name of machine, disk and address.
    pub name: String,
    options: Options,
    /// Its present or last life.
    pub life: SimNode,
    outcome: Arc<Outcome>,
    /// Whether it was started and not ended by the driver.
    pub is_up: bool,
    /// It joins: it may end by itself as long as not everything is healed.
    is_joining: bool,
}

/// A running scenario.
pub struct Run {
    /// The world.
    pub world: World,
    /// What is asked for.
    pub scenario: Rc<Scenario>,
    /// The nodes, in the order of their numbers.
    pub members: Vec<Member>,
    /// What the clients share.
    pub shared: Rc<RefCell<Shared>>,
    /// When which node may be late.
    pub troubles: Vec<Trouble>,
    /// When values that were read but not acknowledged may be lost.
    pub losses: Vec<stdx::Instant>,
    probes: Probes,
    askers: u64,
    sabotage: Sabotage,
}

/// Runs a scenario from a seed.
///
/// # Errors
/// What a checker found, or what did not get done in time.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Report, String> {
    run_with(scenario, seed, Sabotage::default())
}

fn run_with(scenario: &Scenario, seed: u64, sabotage: Sabotage) -> Result<Report, String> {
    let world = World::new(seed, WorldOptions::default());
    let mut run = Run {
        world,
        scenario: Rc::new(scenario.clone()),
        members: Vec::new(),
        shared: Rc::default(),
        troubles: Vec::new(),
        losses: Vec::new(),
        probes: Probes::default(),
        askers: 0,
        sabotage,
    };
    run.found()?;
    let faults = run.safety()?;
    run.liveness()?;
    run.verdict()?;
    Ok(run.report(faults))
}

impl Run {
    /// Where clients find a node.
    fn address(&self, name: &str) -> SocketAddr {
        SocketAddr::new(self.world.ip(name), Options::default().native_transport_port)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|m| self.address(&m.name)).collect()
    }

    /// What the seed makes of a node: shards, tokens, memory, durability.
    fn options(&self, name: &str) -> Options {
        let world = &self.world;
        let mut options = Options { workdir: "/data".to_owned(), ..Options::default() };
        options.smp = u16::try_from(1 + world.random_u64() % self.scenario.shards_max).ok();
        options.num_tokens = [1, 4, 16][(world.random_u64() % 3) as usize];
        // What was acknowledged in periodic mode does not survive a power cut.
        let cuts = self.scenario.kinds.iter().any(|(f, n)| *f == Fault::PowerCut && *n > 0);
        let modes = [CommitLogSync::Batch, CommitLogSync::Group, CommitLogSync::Periodic];
        let count = if cuts { 2 } else { 3 };
        options.commitlog_sync = modes[(world.random_u64() % count) as usize];
        if world.random_u64().is_multiple_of(3) {
            options.memory = Some(conf::MemorySize(4 << 20));
        }
        options.start_native_transport = true;
        options.native_shard_aware_transport_port = 0;
        options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
        options.broadcast_rpc_address = Some(conf::Address::Ip(world.ip(name)));
        if self.scenario.nodes > 1 {
            options.listen_address = conf::Address::Ip(world.ip(name));
            options.seeds = vec![world.ip("n1").to_string()];
        }
        options
    }

    /// Starts the nodes one after the other, then makes the tables.
    fn found(&mut self) -> Result<(), String> {
        for number in 1..=self.scenario.nodes {
            let name = self.add_member(false);
            let address = self.address(&name);
            let others = (number - 1) as usize;
            let what = format!("the start of {name}");
            self.ask(&what, START_MAX, move |rt| survey::serves(rt, address, others))?;
        }
        let (address, replication) = (self.address("n1"), self.scenario.replication);
        self.ask("CREATE TABLE", START_MAX, move |rt| create(rt, address, replication))??;
        let all = self.addresses();
        self.ask("the tables on all nodes", START_MAX, move |rt| async move {
            for address in all {
                survey::has_tables(&rt, address).await;
            }
        })
    }

    /// Starts the next node.
    fn add_member(&mut self, is_joining: bool) -> String {
        let name = nemesis::name(self.members.len());
        let options = self.options(&name);
        let (life, outcome) = start(&self.world, &name, &options);
        let of_member = name.clone();
        self.members.push(Member {
            name: of_member,
            options,
            life,
            outcome,
            is_up: true,
            is_joining,
        });
        name
    }

    /// Starts the nodes that join.
    pub fn join(&mut self) {
        for _ in 0..self.scenario.joining {
            self.add_member(true);
        }
    }

    /// Everything is healed: who gave up joining is started again, and all must go well now.
    pub fn healed(&mut self) {
        for number in 0..self.members.len() {
            let Some(member) = self.members.get_mut(number) else { return };
            if member.is_joining && member.is_up && !self.world.is_alive(&member.life) {
                self.probes.bump("joining given up", 1);
                self.ended(number);
            }
            self.restart(number);
            if let Some(member) = self.members.get_mut(number) {
                member.is_joining = false;
            }
        }
    }

    /// Clients ask while the nemesis breaks things.
    fn safety(&mut self) -> Result<BTreeMap<&'static str, u64>, String> {
        let (scenario, addresses) = (self.scenario.clone(), self.addresses());
        {
            let mut shared = self.shared.borrow_mut();
            shared.left = scenario.operations;
            shared.running = scenario.clients as usize;
        }
        for number in 0..scenario.clients {
            let shared = self.shared.clone();
            let (addresses, scenario) = (addresses.clone(), scenario.clone());
            let sabotage = self.sabotage;
            let plan = workload::Plan { number, addresses, scenario, sabotage };
            self.world.client(&format!("c{number}"), |rt| workload::run(rt, plan, shared));
        }
        let mut nemesis = Nemesis::new(self);
        nemesis.run(self)?;
        self.shared.borrow_mut().left = 0;
        let shared = self.shared.clone();
        let ended = self.world.run_until(|| shared.borrow().running == 0, SURVEY_MAX);
        if !self.sabotage.unhealed {
            nemesis.heal(self);
        }
        ended.map_err(|stuck| format!("the clients do not end: {stuck}"))?;
        self.alive()?;
        Ok(nemesis.counts)
    }

    /// Every node answers QUORUM writes and reads soon.
    fn liveness(&mut self) -> Result<(), String> {
        for number in self.scenario.nodes..self.members.len() as u64 {
            let name = nemesis::name(number as usize);
            let (address, others) = (self.address(&name), self.members.len() - 1);
            let what = format!("joining of {name}");
            self.ask(&what, START_MAX, move |rt| survey::serves(rt, address, others))?;
        }
        let done: Rc<RefCell<Vec<Option<String>>>> = Rc::default();
        let limit = self.scenario.liveness;
        for (number, address) in (0i32..).zip(self.addresses()) {
            // Why it does not answer yet; `None` when it does.
            done.borrow_mut().push(Some("not asked yet".to_owned()));
            let state = done.clone();
            let tell = move |why: Option<String>| {
                if let Some(slot) = state.borrow_mut().get_mut(number as usize) {
                    *slot = why;
                }
            };
            self.askers += 1;
            let name = format!("asker{}", self.askers);
            self.world.client(&name, |rt| survey::answers_quorum(rt, address, number, tell));
        }
        let all = || done.borrow().iter().all(Option::is_none);
        let result = self.world.run_until(all, limit);
        self.alive()?;
        result.map_err(|_| {
            let done = done.borrow();
            let why: Vec<String> = self.members.iter().zip(done.iter()).filter_map(why).collect();
            format!("healed for {limit:?}, but {}", why.join("; "))
        })
    }

    /// Looks at everything and asks the checkers.
    fn verdict(&mut self) -> Result<(), String> {
        let (addresses, first) = (self.addresses(), self.address("n1"));
        if !self.sabotage.unrepaired {
            self.repair()?;
        }
        let found = self
            .ask("reading the batches", SURVEY_MAX, move |rt| survey::read_batches(rt, first))??;
        let names = self.members.iter().map(|member| member.name.clone());
        let nodes: Vec<(String, SocketAddr)> = names.zip(addresses).collect();
        let (tables, views) = self
            .ask("looking at each node", SURVEY_MAX, move |rt| survey::look_at_each(rt, nodes))??;

        let shared = self.shared.borrow();
        let history = &shared.history;
        checks::answers(history)?;
        checks::registers(history, &self.losses)?;
        checks::batches(history, &found)?;
        checks::converged(&tables)?;
        checks::schema(history, &views)?;
        checks::deadlines(history, &self.troubles, self.scenario.lateness)
    }

    /// Lets hints and replays come, then reads everything at ALL and at QUORUM.
    fn repair(&mut self) -> Result<(), String> {
        self.world.run_for(self.scenario.settle);
        let (addresses, first) = (self.addresses(), self.address("n1"));
        let keys = self.shared.borrow().keys();
        let of_all = keys.clone();
        self.ask("reading everything at ALL", SURVEY_MAX, move |rt| {
            survey::read_at_all(rt, first, of_all)
        })??;
        // Read repairs that nobody waited for.
        self.world.run_for(Duration::from_secs(3));
        let shared = self.shared.clone();
        self.ask("reading everything at QUORUM", SURVEY_MAX, move |rt| {
            survey::read_at_quorum(rt, addresses, keys, shared)
        })?
    }

    fn report(mut self, faults: BTreeMap<&'static str, u64>) -> Report {
        let lives: Vec<SimNode> = self.members.iter().map(|m| m.life.clone()).collect();
        for life in lives {
            self.probes.add_node(&life.telemetry());
        }
        let shared = self.shared.borrow();
        let (acknowledged, refused, unknown) = shared.history.counts();
        self.probes.bump("client refused", refused as u64);
        self.probes.bump("client left in doubt", unknown as u64);
        Report {
            trace: self.world.trace_hash(),
            checkpoints: self.world.trace_checkpoints(),
            operations: shared.history.events.len(),
            acknowledged,
            faults,
            probes: self.probes.clone(),
        }
    }

    /// No node ended by itself.
    fn alive(&self) -> Result<(), String> {
        for member in self.members.iter().filter(|m| m.is_up && !m.is_joining) {
            if !self.world.is_alive(&member.life) {
                return Err(format!("{} ended by itself: {:?}", member.name, member.outcome));
            }
        }
        Ok(())
    }

    /// Notes that a node ends: what it counted is kept.
    pub fn ended(&mut self, number: usize) {
        let Some(member) = self.members.get_mut(number) else { return };
        member.is_up = false;
        let counted = member.life.telemetry();
        self.probes.add_node(&counted);
    }

    /// Starts a node again on its disk.
    pub fn restart(&mut self, number: usize) {
        let Some(member) = self.members.get_mut(number).filter(|m| !m.is_up) else { return };
        (member.life, member.outcome) = start(&self.world, &member.name, &member.options);
        member.is_up = true;
    }

    /// Runs one client to its end.
    fn ask<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        what: &str,
        limit: Duration,
        body: impl FnOnce(Rt) -> F,
    ) -> Result<T, String> {
        self.askers += 1;
        let result: Rc<RefCell<Option<T>>> = Rc::default();
        let out = result.clone();
        self.world.client(&format!("asker{}", self.askers), |rt| {
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
}

fn why((member, state): (&Member, &Option<String>)) -> Option<String> {
    state.as_ref().map(|why| format!("{} does not answer QUORUM requests: {why}", member.name))
}

fn start(world: &World, name: &str, options: &Options) -> (SimNode, Arc<Outcome>) {
    let outcome = Arc::new(Outcome::default());
    let (spec, main) = Node::prepare(name, options.clone(), outcome.clone());
    (world.start_node(spec, main), outcome)
}

/// Makes keyspace and tables through one node.
async fn create(rt: Rt, address: SocketAddr, replication: u64) -> Result<(), String> {
    let mut client = survey::connect(&rt, address).await;
    client.set_answer_timeout(Duration::from_secs(60));
    for text in SCHEMA {
        let text = text.replace("{}", &replication.to_string());
        create_one(&mut client, &text).await?;
    }
    Ok(())
}

async fn create_one(client: &mut Client, text: &str) -> Result<(), String> {
    match client.query(text).await {
        Ok(Answer::Done) => Ok(()),
        other => Err(format!("{text}: {other:?}")),
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
