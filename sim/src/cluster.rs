//! Runs a [`Scenario`]: whole nodes in one simulated world, clients that write and read while things
//! break (safety), then everything healed (liveness), then what the checkers want to see.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use conf::Options;
use cql_wire::Consistency;
use rt::Rt;
use rt::sim::{SimNode, World, WorldOptions};

use crate::cells;
use crate::checks::{self, EpochView, Trouble};
use crate::client::{Answer, Client};
use crate::counts;
use crate::folded;
use crate::inverted;
use crate::large;
use crate::leaks::{self, Holdings};
use crate::lwt;
use crate::nemesis::{self, Nemesis};
use crate::operator::Pending;
use crate::report::{Probes, Report};
use crate::scenario::{Fault, Scenario};
use crate::survey;
use crate::workload::{self, SCHEMA, Shared};

mod members;

pub use members::Member;

/// Longest time until a node of an undisturbed cluster serves clients.
const START_MAX: Duration = Duration::from_secs(180);
/// How long nobody asks anything before it is looked at what nodes hold, and how often.
const QUIET: Duration = Duration::from_secs(10);
const LEAK_TRIES: u32 = 12;
const UNEVEN: Duration = Duration::from_millis(337);
/// Links between two shards in one direction: requests, and streams.
const LINK_CLASSES: u64 = 2;
/// Longest time of one survey after healing.
const SURVEY_MAX: Duration = Duration::from_secs(300);

/// What a run does wrong on purpose, so that tests see the checkers notice it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sabotage {
    /// Clients write and read at ONE instead of QUORUM.
    pub weak_levels: bool,
    /// Conditional writes are sent without their conditions, serial reads at QUORUM.
    pub unconditional: bool,
    /// Tombstones go after `gc_grace_seconds` without a repair.
    pub early_purge: bool,
    /// Batches are not logged.
    pub unlogged_batches: bool,
    /// Replicas are compared at once, without waiting and reading at ALL.
    pub unrepaired: bool,
    /// Nothing is healed.
    pub unhealed: bool,
    /// Increments in doubt are sent again.
    pub repeated_increments: bool,
    /// Nothing is repaired by itself.
    pub unscheduled: bool,
    /// One node of a new datacenter loses files of what it copied.
    pub unbuilt: bool,
    /// What an operator gives up goes on.
    pub no_aborts: bool,
    /// A node that starts with another number of shards does not take its commit log over.
    pub unsharded_log: bool,
    /// A row of those that are folded changes before anything breaks.
    pub spoilt_rows: bool,
    /// Something of the world is kept when the run is over.
    pub kept_world: bool,
    /// Files are gone before a start that should find them damaged.
    pub unseen_damage: bool,
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
    /// What the nodes held before the clients came.
    holdings: Vec<Holdings>,
    /// Requests of the clients, without those of the surveys.
    asked: usize,
    /// Operations of an administrator that have begun.
    pub pending: Vec<Pending>,
    /// When values that were read but not acknowledged may be lost.
    pub losses: Vec<checks::Loss>,
    /// What nodes said of their epochs.
    pub epochs: Vec<EpochView>,
    /// The keyspace may have another number of replicas than in the beginning.
    pub has_altered: bool,
    /// How often several nodes were seen to move at once.
    pub together: Rc<Cell<u64>>,
    /// The node whose files have rotted for good.
    rotten: Option<usize>,
    /// Nobody asks for a repair for damaged files.
    pub mends_by_itself: bool,
    probes: Probes,
    askers: u64,
    /// What goes wrong on purpose.
    pub sabotage: Sabotage,
}

/// Runs a scenario from a seed.
///
/// # Errors
/// What a checker found, or what did not get done in time.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Report, String> {
    run_with(scenario, seed, Sabotage::default())
}

/// What the clients of a run saw of conditional writes.
///
/// # Errors
/// As [`run`].
pub fn transactions(scenario: &Scenario, seed: u64) -> Result<lwt::Transactions, String> {
    let run = carry_out(scenario, seed, Sabotage::default())?.0;
    Ok(run.shared.borrow().transactions.clone())
}

fn run_with(scenario: &Scenario, seed: u64, sabotage: Sabotage) -> Result<Report, String> {
    let (run, faults) = carry_out(scenario, seed, sabotage)?;
    if sabotage.kept_world {
        Box::leak(Box::new(run.world.clone()));
    }
    Ok(run.report(faults))
}

type Faults = BTreeMap<&'static str, u64>;

/// A world without nodes.
fn begin(scenario: &Scenario, seed: u64, sabotage: Sabotage) -> Run {
    Run {
        world: World::new(seed, WorldOptions::default()),
        scenario: Rc::new(scenario.clone()),
        members: Vec::new(),
        shared: Rc::default(),
        troubles: Vec::new(),
        losses: Vec::new(),
        pending: Vec::new(),
        holdings: Vec::new(),
        asked: 0,
        epochs: Vec::new(),
        has_altered: false,
        together: Rc::default(),
        probes: Probes::default(),
        rotten: None,
        mends_by_itself: scenario.repairs
            && scenario.has(Fault::BitRot)
            && seed.is_multiple_of(2)
            && !sabotage.unrepaired,
        askers: 0,
        sabotage,
    }
}

fn carry_out(scenario: &Scenario, seed: u64, sabotage: Sabotage) -> Result<(Run, Faults), String> {
    let mut run = begin(scenario, seed, sabotage);
    run.found()?;
    let faults = run.safety()?;
    run.liveness()?;
    if scenario.new_datacenter {
        run.use_new_datacenter()?;
    }
    if scenario.auto_repair {
        run.await_schedule()?;
        run.repair_incrementally()?;
    }
    run.verdict()?;
    Ok((run, faults))
}

impl Run {
    /// Where clients find a node.
    pub fn address(&self, name: &str) -> SocketAddr {
        SocketAddr::new(self.world.ip(name), Options::default().native_transport_port)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|m| self.address(&m.name)).collect()
    }

    /// The numbers of those that are members.
    pub fn staying(&self) -> Vec<usize> {
        let is_there = |n: &usize| self.members.get(*n).is_some_and(|m| !m.has_left);
        (0..self.members.len()).filter(is_there).collect()
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

    /// Starts the nodes one after the other, then makes the tables.
    fn found(&mut self) -> Result<(), String> {
        for number in 1..=self.scenario.nodes {
            let name = self.add_member(false);
            let address = self.address(&name);
            let others = (number - 1) as usize;
            let what = format!("the start of {name}");
            self.ask(&what, START_MAX, move |rt| survey::serves(rt, address, others))?;
        }
        let (address, scenario) = (self.address("n1"), self.scenario.clone());
        let sabotage = self.sabotage;
        self.ask("CREATE TABLE", START_MAX, move |rt| create(rt, address, scenario, sabotage))??;
        if self.scenario.inverted > 0 {
            let shared = self.shared.clone();
            self.ask("CREATE TABLE", START_MAX, move |rt| async move {
                let table = shared.borrow_mut().inverted.table(&rt);
                let mut client = survey::connect(&rt, address).await;
                client.set_answer_timeout(Duration::from_secs(60));
                create_one(&mut client, &table.create()).await
            })??;
        }
        let (all, scenario) = (self.addresses(), self.scenario.clone());
        self.ask("the tables on all nodes", START_MAX, move |rt| async move {
            for address in all {
                survey::has_tables(&rt, address, &scenario).await;
            }
        })?;
        if self.scenario.large {
            for k in 0..large::PARTITIONS {
                self.ask("large rows", START_MAX, move |rt| large::write(rt, address, k))??;
                (0..self.members.len()).try_for_each(|number| self.flush(number))?;
            }
        }
        if self.scenario.folding > 0 {
            let name = self.address("n1");
            self.ask("rows to be folded", START_MAX, move |rt| folded::write(rt, name))??;
            (0..self.members.len()).try_for_each(|number| self.flush(number))?;
            if self.sabotage.spoilt_rows {
                self.ask("another row", START_MAX, move |rt| folded::spoil(rt, name))??;
            }
        }
        self.world.run_for(QUIET);
        self.holdings = (0..self.members.len()).map(|n| self.holdings_of(n)).collect();
        Ok(())
    }

    /// What a node holds now.
    fn holdings_of(&self, number: usize) -> Holdings {
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

    /// Nobody asks anything any more: soon nothing is held that was not held in the beginning.
    fn no_leaks(&mut self) -> Result<(), String> {
        let mut last = Ok(());
        for attempt in 0..LEAK_TRIES {
            // Not always at the same moment of what nodes do by themselves, such as repairs by schedule.
            self.world.run_for(QUIET + UNEVEN * attempt);
            last = self.staying().into_iter().try_for_each(|number| {
                // A newcomer has nothing to be compared with.
                let is_resharded = self.members.get(number).is_some_and(|m| m.is_resharded);
                let Some(before) = self.holdings.get(number).filter(|_| !is_resharded) else {
                    return Ok(());
                };
                let shards = |n: usize| self.members.get(n).map_or(0, |m| u64::from(m.shards()));
                let others = self.staying().into_iter().filter(|n| *n != number);
                let links = shards(number) * others.map(shards).sum::<u64>() * LINK_CLASSES;
                let before = before.clone().with_links(links);
                leaks::none(&before, &self.holdings_of(number))
                    .map_err(|what| format!("{} leaks: {what}", nemesis::name(number)))
            });
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// Everything is healed: who gave up joining is started again, and all must go well now.
    pub fn healed(&mut self) {
        // Refused because the old one was taken for alive, or given up before it could ask.
        let is_refused = |run: &Run, member: &Member| {
            let ended = member.is_up && !run.world.is_alive(&member.life);
            ended && member.may_end && member.options.replace_address_first_boot.is_some()
        };
        if self.members.iter().any(|member| is_refused(self, member)) {
            // As the refusal says: when all have noticed that the old one is dead.
            self.world.run_for(nemesis::KNOWN_AS_DOWN);
        }
        for number in 0..self.members.len() {
            let Some(member) = self.members.get_mut(number) else { return };
            if member.may_end && member.is_up && !self.world.is_alive(&member.life) {
                self.probes.bump("node ended by itself and started again", 1);
                self.ended(number);
            }
            self.restart(number);
            let may_end = self.pending.iter().any(|p| p.may_end(number));
            if let Some(member) = self.members.get_mut(number) {
                member.may_end = may_end;
            }
        }
    }

    /// Clients ask while the nemesis breaks things.
    fn safety(&mut self) -> Result<BTreeMap<&'static str, u64>, String> {
        let (scenario, addresses) = (self.scenario.clone(), self.addresses());
        {
            let mut shared = self.shared.borrow_mut();
            shared.left = scenario.operations;
            shared.running = (scenario.clients + scenario.inverted + scenario.folding) as usize;
        }
        for number in 0..scenario.folding {
            let (to, shared) = (addresses.clone(), self.shared.clone());
            self.world.client(&format!("f{number}"), |rt| folded::run(rt, to, shared));
        }
        for partition in 0..scenario.inverted {
            let level = match self.sabotage.weak_levels {
                true => Consistency::One,
                false => Consistency::Quorum,
            };
            let (to, shared) = ((addresses.clone(), level), self.shared.clone());
            let name = format!("i{partition}");
            self.world.client(&name, |rt| inverted::run(rt, partition, to, shared));
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
        self.asked = self.shared.borrow().history.events.len();
        self.alive()?;
        Ok(nemesis.counts)
    }

    /// Every node answers QUORUM writes and reads soon.
    fn liveness(&mut self) -> Result<(), String> {
        self.finish_operations()?;
        for number in self.staying() {
            let name = nemesis::name(number);
            let (address, others) = (self.address(&name), self.staying().len() - 1);
            let what = format!("joining of {name}");
            self.ask(&what, START_MAX, move |rt| survey::serves(rt, address, others))?;
        }
        let done: Rc<RefCell<Vec<Option<String>>>> = Rc::default();
        let limit = self.scenario.liveness;
        for (number, member) in (0i32..).zip(self.staying()) {
            let address = self.address(&nemesis::name(member));
            // Why it does not answer yet; `None` when it does.
            done.borrow_mut().push(Some("not asked yet".to_owned()));
            let state = done.clone();
            let tell = move |why: Option<String>| {
                if let Some(slot) = state.borrow_mut().get_mut(number as usize) {
                    *slot = why;
                }
            };
            let name = self.new_name();
            self.world.client(&name, |rt| survey::answers_quorum(rt, address, number, tell));
        }
        let all = || done.borrow().iter().all(Option::is_none);
        let result = self.world.run_until(all, limit);
        self.alive()?;
        result.map_err(|_| {
            let done = done.borrow();
            let members = self.staying().into_iter().filter_map(|n| self.members.get(n));
            let why: Vec<String> = members.zip(done.iter()).filter_map(why).collect();
            format!("healed for {limit:?}, but {}", why.join("; "))
        })
    }

    /// Looks at everything and asks the checkers.
    fn verdict(&mut self) -> Result<(), String> {
        let first = self.address("n1");
        if self.scenario.repairs && self.scenario.has(Fault::BitRot) {
            match (self.mends_by_itself, self.world.random_u64() % 3) {
                (false, 0) => self.lose_files()?,
                (_, 1) => self.rotten = self.rot_files()?,
                (_, _) => self.rotten = self.start_on_damaged_files()?,
            }
        }
        if !self.sabotage.unrepaired {
            self.repair()?;
        }
        if self.scenario.inverted > 0 {
            let addresses = self.staying_addresses().into_iter().map(|(_, a)| a).collect();
            let shared = self.shared.clone();
            self.ask("reading what is known", SURVEY_MAX, move |rt| {
                inverted::look(rt, addresses, shared)
            })??;
            let reads = self.shared.borrow().inverted.reads();
            self.probes.bump("read whose answer is known", reads);
        }
        if self.scenario.folding > 0 {
            let addresses = self.staying_addresses().into_iter().map(|(_, a)| a).collect();
            let shared = self.shared.clone();
            self.ask("folding what is known", SURVEY_MAX, move |rt| {
                folded::look(rt, addresses, shared)
            })??;
            let answers = self.shared.borrow().folded.answers();
            self.probes.bump("scan whose answer is known", answers);
        }
        let found = self
            .ask("reading the batches", SURVEY_MAX, move |rt| survey::read_batches(rt, first))??;
        let (tables, views) = self.look()?;
        let large = tables.iter().filter_map(|(node, of)| Some((node, of.get("large")?)));
        large.into_iter().try_for_each(|(node, rows)| large::complete(node, rows))?;
        self.no_leaks()?;

        let shared = self.shared.borrow();
        let history = &shared.history;
        checks::answers(history)?;
        checks::registers(history, &self.losses)?;
        lwt::linearizable(&shared.transactions)?;
        cells::newest(&shared.cells)?;
        counts::within(&shared.counts)?;
        shared.inverted.verdict()?;
        shared.folded.verdict()?;
        checks::batches(history, &found)?;
        checks::converged(&tables)?;
        checks::schema(history, &views)?;
        if self.scenario.changes_schema() && self.epochs.is_empty() {
            return Err("no node ever said at which epoch it is".to_owned());
        }
        checks::epochs(&self.epochs)?;
        checks::deadlines(history, &self.troubles, self.scenario.lateness)
    }

    /// What each node shows of its own.
    pub fn look(&mut self) -> Result<survey::Looks, String> {
        let name_and_address = |n| (nemesis::name(n), self.address(&nemesis::name(n)));
        let nodes: Vec<_> = self.staying().into_iter().map(name_and_address).collect();
        let scenario = self.scenario.clone();
        self.ask("looking at each node", SURVEY_MAX, move |rt| {
            survey::look_at_each(rt, nodes, scenario)
        })?
    }

    /// Lets hints and replays come, then repairs or reads everything at ALL, then at QUORUM.
    fn repair(&mut self) -> Result<(), String> {
        self.world.run_for(self.scenario.settle);
        if self.scenario.even {
            // What was written while a replica was away is on two of three: nothing but a copy that
            // should have been made can be missed here, and nothing has mended that yet.
            self.read_at_quorum()?;
        }
        if self.scenario.repairs {
            self.repair_all()?;
            if let Some(node) = self.rotten {
                self.let_go_of_damaged(node)?;
            }
            // Before any read repairs something.
            let (tables, _) = self.look()?;
            checks::converged(&tables).map_err(|what| format!("after repair: {what}"))?;
        }
        let first = self.address("n1");
        let (keys, scenario) = (self.shared.borrow().keys(), self.scenario.clone());
        self.ask("reading everything at ALL", SURVEY_MAX, move |rt| {
            survey::read_at_all(rt, first, keys, scenario)
        })??;
        // Read repairs that nobody waited for.
        self.world.run_for(Duration::from_secs(3));
        self.read_at_quorum()?;
        let (shared, scenario) = (self.shared.clone(), self.scenario.clone());
        let addresses = self.staying_addresses();
        self.ask("reading everything at SERIAL", SURVEY_MAX, move |rt| {
            survey::read_at_serial(rt, addresses, scenario, shared)
        })?
    }

    fn staying_addresses(&self) -> Vec<(usize, SocketAddr)> {
        let staying = self.staying().into_iter();
        staying.map(|n| (n, self.address(&nemesis::name(n)))).collect()
    }

    /// Reads every key through every node; what is seen belongs to the history.
    pub fn read_at_quorum(&mut self) -> Result<(), String> {
        let (shared, nodes) = (self.shared.clone(), self.staying_addresses());
        let keys = self.shared.borrow().keys();
        self.ask("reading everything at QUORUM", SURVEY_MAX, move |rt| {
            survey::read_at_quorum(rt, nodes, keys, shared)
        })?
    }

    fn report(mut self, faults: BTreeMap<&'static str, u64>) -> Report {
        let lives: Vec<SimNode> = self.members.iter().map(|m| m.life.clone()).collect();
        for life in lives {
            self.probes.add_node(&life.telemetry());
        }
        let shared = self.shared.borrow();
        let (acknowledged, refused, unknown) = shared.history.counts();
        self.probes.bump("several nodes moved at once", self.together.get());
        self.probes.bump("client refused", refused as u64);
        self.probes.bump("client left in doubt", unknown as u64);
        Report {
            trace: self.world.trace_hash(),
            checkpoints: self.world.trace_checkpoints(),
            operations: self.asked,
            acknowledged,
            faults,
            probes: self.probes.clone(),
        }
    }

    /// No node ended by itself.
    fn alive(&self) -> Result<(), String> {
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
}

fn why((member, state): (&Member, &Option<String>)) -> Option<String> {
    state.as_ref().map(|why| format!("{} does not answer QUORUM requests: {why}", member.name))
}

/// Makes keyspace and tables through one node.
async fn create(
    rt: Rt,
    address: SocketAddr,
    scenario: Rc<Scenario>,
    sabotage: Sabotage,
) -> Result<(), String> {
    let mut client = survey::connect(&rt, address).await;
    client.set_answer_timeout(Duration::from_secs(60));
    for text in SCHEMA {
        let text = text.replace("{}", &scenario.replication_text());
        create_one(&mut client, &text).await?;
    }
    if scenario.strategies {
        for table in ["registers", "rows", "cells"] {
            let has_windows = table != "registers";
            let map = strategy_of(rt.random_u64(), has_windows);
            let text = format!("ALTER TABLE ks.{table} WITH compaction = {{{map}}}");
            create_one(&mut client, &text).await?;
        }
    }
    if scenario.mix.count > 0 {
        create_one(&mut client, counts::SCHEMA).await?;
    }
    if scenario.large {
        create_one(&mut client, large::SCHEMA).await?;
    }
    if scenario.folding > 0 {
        for text in folded::schema() {
            create_one(&mut client, &text).await?;
        }
    }
    if let Some(seconds) = scenario.gc_grace_seconds {
        let mut text = format!("ALTER TABLE ks.cells WITH gc_grace_seconds = {seconds}");
        if sabotage.early_purge {
            text.push_str(" AND tombstone_gc = {'mode': 'timeout'}");
        } else if let Some(delay) = scenario.propagation_delay_seconds {
            text.push_str(&format!(
                " AND tombstone_gc = {{'mode': 'repair', 'propagation_delay_in_seconds': {delay}}}"
            ));
        }
        create_one(&mut client, &text).await?;
    }
    Ok(())
}

/// The `compaction` map of one of the strategies, such that it does something with few small files;
/// `has_windows`: the table has a first clustering column of whole numbers.
fn strategy_of(drawn: u64, has_windows: bool) -> &'static str {
    const MAPS: [&str; 7] = [
        "'class': 'SizeTieredCompactionStrategy', 'min_threshold': 2",
        "'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 1, 'fanout_size': 2",
        "'class': 'TimeWindowCompactionStrategy', 'min_threshold': 2, \
         'compaction_window_unit': 'MINUTES', 'compaction_window_size': 1",
        "'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T2', \
         'min_sstable_size': '0B'",
        "'class': 'IncrementalCompactionStrategy', 'min_threshold': 2, 'sstable_size_in_mb': 1",
        "'class': 'ClusterKeyCompactionStrategy', 'min_threshold': 2, \
         'compaction_window_unit': 'ONES', 'compaction_window_size': 2",
        "'class': 'ClusterKeyCompactionStrategy', 'min_threshold': 2, 'window_count': 1000",
    ];
    let choice = if has_windows { MAPS.len() } else { MAPS.len() - 2 };
    // Below the length of an array.
    MAPS.get((drawn % choice as u64) as usize).copied().unwrap_or(MAPS[0])
}

/// Runs a statement that must succeed.
///
/// # Errors
/// What it was answered by.
pub async fn create_one(client: &mut Client, text: &str) -> Result<(), String> {
    match client.query(text).await {
        Ok(Answer::Done) => Ok(()),
        other => Err(format!("{text}: {other:?}")),
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
