//! Scenario: clients write at ONE through a coordinator that outruns one of the replicas: the link
//! to it is thin, or its process stands still for ten seconds.
//!
//! With a thin link the coordinator slows its clients: shortly after the last answer every replica
//! has every row, hardly any write was dropped and stored as a hint, and reads were not held back.
//! A replica that stands still delays clients no longer than a short bound, and gets the missed
//! writes when it is back.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use conf::Options;
use cql_wire::Consistency;
use node::{Node, Outcome, Program, WindowSettings};
use rt::Rt;
use rt::sim::{LinkOptions, SimNode, World, WorldOptions};
use stdx::Instant;

use crate::client::Answer;
use crate::report::Report;
use crate::survey;
use crate::survey::create_one;

/// Fault of the third node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slowness {
    /// Bytes per second on the link from the coordinator.
    ThinLink(u64),
    /// No task of it runs for ten seconds.
    StandsStill,
}

/// One run's choices.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Every choice follows from it.
    pub seed: u64,
    /// Shards of each node.
    pub shards: u16,
    /// The fault.
    pub slowness: Slowness,
    /// Clients that write.
    pub writers: usize,
    /// False: coordinators send as much as they like. The checker must see it.
    pub is_bounded: bool,
}

/// The choices of a seed.
pub fn plan(seed: u64) -> Plan {
    let slowness = match seed % 3 {
        0 => Slowness::ThinLink(200_000),
        1 => Slowness::StandsStill,
        _ => Slowness::ThinLink(500_000),
    };
    Plan { seed, shards: [1, 2][(seed / 3 % 2) as usize], slowness, writers: 60, is_bounded: true }
}

pub const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// Rows that are written over a thin link.
const ROWS: i32 = 15_000;
/// How long a node stands still.
const STILL: Duration = Duration::from_secs(10);
/// A write may wait for a replica up to the coordinator's bound, plus its own time.
const WRITE_MAX: Duration = Duration::from_millis(800);
/// A read beside them.
const READ_MAX: Duration = Duration::from_millis(600);

fn options(world: &World, plan: &Plan, name: &str) -> Options {
    let mut options = Options { workdir: "/data".to_owned(), ..Options::default() };
    options.smp = Some(plan.shards);
    options.dynamic_snitch = false;
    options.start_native_transport = true;
    options.native_shard_aware_transport_port = 0;
    options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
    options.broadcast_rpc_address = Some(conf::Address::Ip(world.ip(name)));
    options.listen_address = conf::Address::Ip(world.ip(name));
    options.seeds = vec![world.ip(NODES[0]).to_string()];
    options
}

/// Facts that the clients have seen.
#[derive(Default)]
struct Facts {
    next: Cell<i32>,
    acknowledged: RefCell<BTreeSet<i32>>,
    /// Longest answers.
    write: Cell<Duration>,
    read: Cell<Duration>,
    reads: Cell<u64>,
    errors: RefCell<Vec<String>>,
    stop: Cell<bool>,
    writing: Cell<usize>,
}

impl Facts {
    fn fail(&self, what: String) {
        self.errors.borrow_mut().push(what);
    }
}

/// How much writers write.
#[derive(Clone, Copy)]
struct Pace {
    /// Rows of all of them together.
    most: i32,
    /// Between two rows of one.
    think: Duration,
}

async fn write(rt: Rt, address: SocketAddr, facts: Rc<Facts>, pace: Pace) {
    let Pace { most, think } = pace;
    facts.writing.set(facts.writing.get() + 1);
    let mut client = survey::connect(&rt, address).await;
    client.set_consistency(Consistency::One);
    let insert = "INSERT INTO ks.t (k, v) VALUES (?, 'a value of some length')";
    let id = match client.prepare(insert).await {
        Ok(Answer::Prepared(id)) => id,
        other => return facts.fail(format!("PREPARE: {other:?}")),
    };
    while !facts.stop.get() && facts.next.get() < most {
        let key = facts.next.get();
        facts.next.set(key + 1);
        let began = rt.now();
        match client.execute(&id, &[Some(&key.to_be_bytes())]).await {
            Ok(Answer::Done) => {
                facts.acknowledged.borrow_mut().insert(key);
            }
            other => facts.fail(format!("a write at ONE: {other:?}")),
        }
        facts.write.set(facts.write.get().max(rt.now().since(began)));
        if !think.is_zero() {
            rt.sleep(think).await;
        }
    }
    facts.writing.set(facts.writing.get() - 1);
}

/// Reads now and then rows that were acknowledged before the run began.
async fn read(rt: Rt, address: SocketAddr, facts: Rc<Facts>) {
    let mut client = survey::connect(&rt, address).await;
    client.set_consistency(Consistency::Quorum);
    while !facts.stop.get() {
        let key = (rt.random_u64() % 20) as i32 - 20;
        let began = rt.now();
        match client.query(&format!("SELECT k FROM ks.t WHERE k = {key}")).await {
            Ok(Answer::Rows(rows, _)) if rows.len() == 1 => {}
            other => facts.fail(format!("a read at QUORUM: {other:?}")),
        }
        facts.read.set(facts.read.get().max(rt.now().since(began)));
        facts.reads.set(facts.reads.get() + 1);
        rt.sleep(Duration::from_millis(50)).await;
    }
}

/// The keys that a node shows at ONE.
async fn keys(rt: Rt, address: SocketAddr) -> Result<BTreeSet<i32>, String> {
    let mut client = survey::connect(&rt, address).await;
    client.set_consistency(Consistency::One);
    let (mut found, mut state) = (BTreeSet::new(), None::<Vec<u8>>);
    loop {
        let page = client.query_page("SELECT k FROM ks.t", Some(5000), state.as_deref()).await;
        let Ok(Answer::Rows(rows, next)) = page else { return Err(format!("a scan: {page:?}")) };
        for row in rows {
            let key = row.first().and_then(|cell| cell.as_deref()?.try_into().ok());
            found.extend(key.map(i32::from_be_bytes));
        }
        state = next;
        if state.is_none() {
            return Ok(found);
        }
    }
}

/// Settings without effective windows.
fn unbounded() -> WindowSettings {
    WindowSettings {
        count_min: u32::MAX,
        count_max: u32::MAX,
        bytes_max: usize::MAX,
        ..WindowSettings::default()
    }
}

/// Three nodes with a table.
pub struct OutrunRun {
    pub world: World,
    pub nodes: Vec<SimNode>,
    outcomes: Vec<Arc<Outcome>>,
    pub addresses: Vec<SocketAddr>,
    facts: Rc<Facts>,
    callers: u32,
}

impl OutrunRun {
    /// Runs something in a client to its end.
    ///
    /// # Errors
    /// It did not end.
    pub fn ask<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        what: &str,
        body: impl FnOnce(Rt) -> F,
    ) -> Result<T, String> {
        self.callers += 1;
        let result: Rc<RefCell<Option<T>>> = Rc::default();
        let out = result.clone();
        self.world.client(&format!("asker{}", self.callers), |rt| {
            let body = body(rt);
            async move {
                let value = body.await;
                *out.borrow_mut() = Some(value);
            }
        });
        let done = self.world.run_until(|| result.borrow().is_some(), Duration::from_secs(120));
        done.map_err(|stuck| format!("{what} did not end: {stuck}; {:?}", self.outcomes))?;
        let value = result.borrow_mut().take();
        value.ok_or_else(|| format!("{what} gave nothing"))
    }

    /// Starts the nodes and makes the table.
    ///
    /// # Errors
    /// They did not start.
    pub fn start(plan: &Plan) -> Result<OutrunRun, String> {
        let world = World::new(plan.seed, WorldOptions::default());
        let port = Options::default().native_transport_port;
        let addresses = NODES.iter().map(|name| SocketAddr::new(world.ip(name), port)).collect();
        let (nodes, outcomes, facts) = (Vec::new(), Vec::new(), Rc::default());
        let mut run = OutrunRun { world, nodes, outcomes, addresses, facts, callers: 0 };
        for (others, name) in NODES.iter().enumerate() {
            let (options, outcome) = (options(&run.world, plan, name), Arc::default());
            let replica_window = (!plan.is_bounded).then(unbounded);
            let program = Program { replica_window, ..Program::default() };
            let told = Arc::clone(&outcome);
            let (spec, main, _) = Node::prepare_with_admin(name, options, told, program);
            run.nodes.push(run.world.start_node(spec, main));
            run.outcomes.push(outcome);
            let address = run.addresses[others];
            run.ask("a start", move |rt| survey::serves(rt, address, others))?;
        }
        let address = run.addresses[0];
        run.ask("CREATE TABLE", move |rt| async move {
            let mut client = survey::connect(&rt, address).await;
            client.set_answer_timeout(Duration::from_secs(60));
            let keyspace = "CREATE KEYSPACE ks WITH replication = \
                            {'class': 'SimpleStrategy', 'replication_factor': 3}";
            create_one(&mut client, keyspace).await?;
            create_one(&mut client, "CREATE TABLE ks.t (k int PRIMARY KEY, v text)").await?;
            client.set_consistency(Consistency::All);
            for key in -20..0 {
                let insert = format!("INSERT INTO ks.t (k, v) VALUES ({key}, 'read')");
                create_one(&mut client, &insert).await?;
            }
            Ok::<(), String>(())
        })??;
        Ok(run)
    }

    fn begin_clients(&self, plan: &Plan, pace: Pace) {
        let address = self.addresses[0];
        for number in 0..plan.writers {
            let facts = self.facts.clone();
            self.world
                .client(&format!("writer{number}"), move |rt| write(rt, address, facts, pace));
        }
        let facts = self.facts.clone();
        self.world.client("reader", move |rt| read(rt, address, facts));
    }

    /// Waits until all writers have ended.
    fn writers_end(&self) -> Result<Instant, String> {
        let facts = &self.facts;
        self.world.run_for(Duration::from_secs(1));
        let ended = self.world.run_until(|| facts.writing.get() == 0, Duration::from_secs(300));
        ended.map_err(|stuck| format!("the writers did not end: {stuck}"))?;
        Ok(self.world.now())
    }

    /// Returns the number of hints that the coordinator stored.
    fn hints(&self) -> u64 {
        let snapshot = self.nodes[0].telemetry();
        let of_shards = snapshot.metrics.iter().filter(|m| m.name == "coordinator_hints_total");
        let counts = of_shards.map(|m| match m.value {
            telemetry::Value::Counter(n) => n,
            _ => 0,
        });
        counts.sum()
    }

    /// Checks that every replica has all acknowledged rows.
    fn all_have_all(&mut self) -> Result<(), String> {
        for (at, name) in NODES.iter().enumerate() {
            let address = self.addresses[at];
            let found = self.ask("a scan", move |rt| keys(rt, address))??;
            let acknowledged = self.facts.acknowledged.borrow();
            let missing = acknowledged.iter().filter(|key| !found.contains(key)).count();
            if missing > 0 {
                let all = acknowledged.len();
                return Err(format!("{name} lacks {missing} of {all} acknowledged rows"));
            }
        }
        Ok(())
    }

    /// Nothing failed, and no read took longer than that.
    fn answers(&self, read_max: Duration) -> Result<(), String> {
        let facts = &self.facts;
        if let Some(error) = facts.errors.borrow().first() {
            return Err(error.clone());
        }
        if facts.read.get() > read_max || facts.reads.get() < 10 {
            return Err(format!("{} reads, of up to {:?}", facts.reads.get(), facts.read.get()));
        }
        Ok(())
    }

    fn thin_link(&mut self, plan: &Plan, bytes_per_second: u64) -> Result<(), String> {
        let bytes_per_second = Some(bytes_per_second);
        let link = LinkOptions { bytes_per_second, ..LinkOptions::default() };
        self.world.set_link(NODES[0], NODES[2], link);
        self.begin_clients(plan, Pace { most: ROWS, think: Duration::ZERO });
        self.writers_end()?;
        self.facts.stop.set(true);
        self.world.run_for(Duration::from_secs(1));
        self.answers(READ_MAX)?;
        let hints = self.hints();
        if hints > 0 {
            return Err(format!("{hints} writes for a live replica were dropped"));
        }
        self.all_have_all()
    }

    fn stands_still(&mut self, plan: &Plan) -> Result<(), String> {
        self.begin_clients(plan, Pace { most: i32::MAX, think: Duration::from_millis(30) });
        self.world.run_for(Duration::from_secs(3));
        let (facts, before) = (self.facts.clone(), self.facts.next.get());
        self.world.pause(&self.nodes[2], STILL);
        self.world.run_for(Duration::from_secs(1));
        let (first, began) = (facts.next.get(), self.world.now());
        self.world.run_for(STILL - Duration::from_secs(2));
        let went_on = facts.next.get() - first;
        let usual = f64::from(before) / 3.0 * self.world.now().since(began).as_secs_f64();
        if f64::from(went_on) < usual / 2.0 {
            return Err(format!("{went_on} writes while a replica stood still, {usual} before"));
        }
        self.world.run_for(Duration::from_secs(2));
        facts.stop.set(true);
        self.writers_end()?;
        // Requests to the stopped replica took as long as speculation.
        self.answers(Duration::from_secs(5))?;
        if facts.write.get() > WRITE_MAX {
            return Err(format!("a write at ONE took {:?}", facts.write.get()));
        }
        self.world.run_for(Duration::from_secs(40));
        self.all_have_all()
    }
}

/// Runs one plan.
///
/// # Errors
/// What the checker found, or that the world got stuck.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut run = OutrunRun::start(plan)?;
    let fault = match plan.slowness {
        Slowness::ThinLink(bytes_per_second) => {
            run.thin_link(plan, bytes_per_second)?;
            "thin_link"
        }
        Slowness::StandsStill => {
            run.stands_still(plan)?;
            "pause"
        }
    };
    let mut report = Report {
        trace: run.world.trace_hash(),
        checkpoints: run.world.trace_checkpoints(),
        operations: run.facts.next.get() as usize + run.facts.reads.get() as usize,
        acknowledged: run.facts.acknowledged.borrow().len(),
        ..Report::default()
    };
    report.faults.insert(fault, 1);
    for node in &run.nodes {
        report.probes.add_node(&node.telemetry());
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_that_sends_as_much_as_it_likes_is_found() {
        for seed in [0, 2] {
            let error = run(&Plan { is_bounded: false, ..plan(seed) }).unwrap_err();
            assert!(error.contains("were dropped") || error.contains("reads, of"), "{error}");
        }
    }

    #[test]
    fn one_with_bounds_is_not() {
        run(&plan(2)).unwrap();
    }
}
