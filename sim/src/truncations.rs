//! Scenario: TRUNCATE while disks are full or refuse single writes, then restarts. A row
//! acknowledged after the statement was answered stays, whatever the answer was. A row from before
//! one that was answered OK never comes back.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use conf::{Address, Options, Snitch};
use cql_wire::Consistency;
use node::{Node, Outcome};
use rt::Rt;
use rt::sim::{DiskControl, SimNode, World, WorldOptions};
use stdx::IoErrorKind;

use crate::client::Answer;
use crate::durability::connect;
use crate::report::Report;

/// Longest wait for anything that must happen.
const LIMIT: Duration = Duration::from_secs(300);
/// Rows of a batch of inserts.
const ROWS: i32 = 12;
/// Inserts of a batch that fail before it ends.
const REFUSALS_MAX: u32 = 60;
/// Timeout of a client for an open port, or for an answer to TRUNCATE.
const PATIENCE: Duration = Duration::from_secs(60);

/// One run's choices.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    seed: u64,
    nodes: u8,
    shards: u16,
    rounds: u32,
}

/// The choices of a seed.
pub fn plan(seed: u64) -> Plan {
    let nodes = 1 + (seed % 2) as u8;
    Plan { seed, nodes, shards: 1 + (seed / 2 % 2) as u16, rounds: 4 }
}

/// State that the client knows: rows that must exist, may exist, must not exist.
#[derive(Clone, Debug, Default)]
struct Model {
    next_key: i32,
    /// Acknowledged, and no truncation since may have taken them.
    required: BTreeSet<i32>,
    /// Removed by a truncation that was answered OK.
    removed: BTreeSet<i32>,
    /// All others that were sent.
    possible: BTreeSet<i32>,
    /// A truncation without a certain answer may be decided at any time: it is before every row until the next
    /// certain one.
    is_in_doubt: bool,
}

/// How a TRUNCATE ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Ok,
    /// It failed, and will not affect later rows.
    Failed,
    /// It may take effect later.
    InDoubt,
}

impl Model {
    fn inserted(&mut self, key: i32, is_acknowledged: bool) {
        match is_acknowledged && !self.is_in_doubt {
            true => self.required.insert(key),
            false => self.possible.insert(key),
        };
    }

    fn truncated(&mut self, ended: Ended) {
        let before: Vec<i32> = self.required.iter().chain(&self.possible).copied().collect();
        self.required.clear();
        // A truncation that was answered OK comes after the doubtful one in the metadata log, or
        // has decided it.
        self.is_in_doubt = ended == Ended::InDoubt || (self.is_in_doubt && ended != Ended::Ok);
        match ended {
            Ended::Ok => {
                self.possible.clear();
                self.removed.extend(before);
            }
            Ended::Failed | Ended::InDoubt => self.possible.extend(before),
        }
    }

    fn check(&self, found: &BTreeSet<i32>, place: &str) -> Result<(), String> {
        // INV-truncation-1 and INV-truncation-4: nothing written after the answer is removed.
        if let Some(key) = self.required.difference(found).next() {
            return Err(format!("{place}: row {key}, acknowledged after the TRUNCATE, is gone"));
        }
        // INV-truncation-3: OK means that every node has carried it out for good.
        match self.removed.intersection(found).next() {
            Some(key) => Err(format!("{place}: row {key} is back after a TRUNCATE answered OK")),
            None => Ok(()),
        }
    }
}

fn name(n: u8) -> String {
    format!("n{n}")
}

fn options(world: &World, plan: &Plan, n: u8) -> Options {
    let ip = |n: u8| world.ip(&name(n));
    Options {
        workdir: "/data".to_owned(),
        cluster_name: "Test".to_owned(),
        num_tokens: 4,
        seeds: (1..=plan.nodes).filter(|_| plan.nodes > 1).map(|n| ip(n).to_string()).collect(),
        listen_address: Address::Ip(ip(n)),
        rpc_address: Address::Ip(ip(n)),
        native_shard_aware_transport_port: 0,
        smp: Some(plan.shards),
        endpoint_snitch: Snitch::Simple,
        ..Options::default()
    }
}

struct TruncationsRun {
    world: World,
    plan: Plan,
    nodes: BTreeMap<u8, (SimNode, Arc<Outcome>)>,
    model: Rc<RefCell<Model>>,
    faults: BTreeMap<&'static str, u64>,
}

/// Runs one plan.
///
/// # Errors
/// What the checker found, or that the world got stuck.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let world = World::new(plan.seed, WorldOptions::default());
    let (nodes, model) = (BTreeMap::new(), Rc::default());
    let mut run = TruncationsRun { world, plan: *plan, nodes, model, faults: BTreeMap::new() };
    for n in 1..=plan.nodes {
        run.start(n)?;
    }
    run.create()?;
    for round in 0..plan.rounds {
        run.insert()?;
        let bad = 1 + (run.world.random_u64() % u64::from(plan.nodes)) as u8;
        let fault = run.spoil(&run.world.disk(&name(bad)));
        *run.faults.entry(fault).or_default() += 1;
        let ended = run.truncate()?;
        run.faults.entry(if ended == Ended::Ok { "answered OK" } else { "failed" }).or_insert(0);
        run.model.borrow_mut().truncated(ended);
        if run.world.random_u64().is_multiple_of(4) {
            // Still bad at the restart, but for what a start must write.
            run.world.run_for(Duration::from_secs(2));
        }
        run.world.disk(&name(bad)).clear_faults();
        run.world.disk(&name(bad)).set_free_bytes(None);
        run.insert()?;
        if run.world.random_u64().is_multiple_of(2) {
            // The attempts to record it succeed meanwhile.
            run.world.run_for(Duration::from_secs(30));
        }
        let restarts = 1 + run.world.random_u64() % 2;
        for _ in 0..restarts {
            run.restart(bad)?;
            run.check(&format!("round {round}, {fault} at n{bad}, {ended:?}"))?;
        }
    }
    let model = run.model.borrow();
    Ok(Report {
        trace: run.world.trace_hash(),
        checkpoints: run.world.trace_checkpoints(),
        acknowledged: model.required.len() + model.removed.len(),
        operations: model.next_key as usize,
        faults: run.faults,
        ..Report::default()
    })
}

impl TruncationsRun {
    fn until(&self, what: &str, done: impl Fn() -> bool) -> Result<(), String> {
        let result = self.world.run_until(done, LIMIT);
        result.map_err(|stuck| {
            let outcomes: Vec<_> = self.nodes.values().map(|(_, outcome)| outcome).collect();
            format!("{what}: {stuck:?}; {outcomes:?}")
        })
    }

    fn start(&mut self, n: u8) -> Result<(), String> {
        let outcome = Arc::new(Outcome::default());
        let options = options(&self.world, &self.plan, n);
        let (spec, main) = Node::prepare(&name(n), options, outcome.clone());
        self.nodes.insert(n, (self.world.start_node(spec, main), outcome.clone()));
        self.until("a node starts", || outcome.is_ready() || outcome.failure().is_some())?;
        outcome.failure().map_or(Ok(()), |error| Err(format!("n{n} does not start: {error}")))
    }

    fn restart(&mut self, n: u8) -> Result<(), String> {
        let Some((node, _)) = self.nodes.remove(&n) else { return Ok(()) };
        if self.world.random_u64().is_multiple_of(2) {
            node.request_stop();
            let (world, of) = (self.world.clone(), node.clone());
            self.until("a node stops", move || !world.is_alive(&of))?;
        } else {
            self.world.kill(&node);
        }
        self.start(n)
    }

    /// Injects a random fault of the disk while the statement runs; returns its name.
    fn spoil(&self, disk: &DiskControl) -> &'static str {
        match self.world.random_u64() % 5 {
            0 => {
                disk.set_free_bytes(Some(0));
                "full"
            }
            1 => {
                disk.set_failing_below(Some(("metadata/truncated", IoErrorKind::NoSpace)));
                "no room for the record"
            }
            2 => {
                disk.set_failing_below(Some(("commitlog", IoErrorKind::NoSpace)));
                "no room in the commit log"
            }
            3 => {
                disk.fail_nth_change(1 + self.world.random_u64() % 12, IoErrorKind::NoSpace);
                "one write fails"
            }
            _ => "none",
        }
    }

    fn address(&self, n: u8) -> SocketAddr {
        SocketAddr::new(self.world.ip(&name(n)), 9042)
    }

    /// Does something as a client of node `n`, to its end.
    fn client<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        what: &str,
        work: impl FnOnce(Rt) -> F,
    ) -> Result<T, String> {
        let out: Rc<RefCell<Option<T>>> = Rc::default();
        let result = out.clone();
        let client = self.world.client(&format!("c{}", self.world.random_u64()), |rt| {
            let work = work(rt);
            async move { *result.borrow_mut() = Some(work.await) }
        });
        self.until(what, || out.borrow().is_some())?;
        self.world.kill(&client);
        out.take().ok_or_else(|| format!("{what}: no result"))
    }

    fn create(&self) -> Result<(), String> {
        let (address, replicas) = (self.address(1), self.plan.nodes);
        self.client("the table is made", move |rt| async move {
            let mut client = connect(&rt, address).await;
            let keyspace = format!(
                "CREATE KEYSPACE ks WITH replication = \
                 {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
            );
            for text in [keyspace.as_str(), "CREATE TABLE ks.t (k int PRIMARY KEY, v int)"] {
                let answer = client.query(text).await;
                assert_eq!(answer, Ok(Answer::Done), "{text}");
            }
        })
    }

    /// Inserts until enough rows are acknowledged by all replicas. After a failed sync of the commit log a node
    /// acknowledges none, or closes its port, until the restart.
    fn insert(&self) -> Result<(), String> {
        let (address, model) = (self.address(1), self.model.clone());
        self.client("rows are inserted", move |rt| async move {
            let (mut acknowledged, mut refused) = (0, 0);
            let deadline = rt.now() + PATIENCE;
            while acknowledged < ROWS && refused < REFUSALS_MAX {
                let Ok(mut client) = rt.timeout(deadline, connect(&rt, address)).await else {
                    break;
                };
                client.set_consistency(Consistency::All);
                while acknowledged < ROWS && refused < REFUSALS_MAX {
                    let key = model.borrow().next_key;
                    model.borrow_mut().next_key += 1;
                    let text = format!("INSERT INTO ks.t (k, v) VALUES ({key}, {key})");
                    let answer = client.query(&text).await;
                    model.borrow_mut().inserted(key, answer == Ok(Answer::Done));
                    match answer {
                        Ok(Answer::Done) => acknowledged += 1,
                        Ok(_) => {
                            refused += 1;
                            rt.sleep(Duration::from_millis(200)).await;
                        }
                        Err(_) => {
                            refused += 1;
                            break;
                        }
                    }
                }
            }
        })
    }

    fn truncate(&self) -> Result<Ended, String> {
        let (address, is_alone) = (self.address(1), self.plan.nodes == 1);
        self.client("TRUNCATE is answered", move |rt| async move {
            let deadline = rt.now() + PATIENCE;
            let Ok(mut client) = rt.timeout(deadline, connect(&rt, address)).await else {
                return Ended::InDoubt;
            };
            client.set_answer_timeout(PATIENCE * 2);
            match client.query("TRUNCATE ks.t").await {
                Ok(Answer::Done) => Ended::Ok,
                Ok(Answer::Error(_, text)) => {
                    let is_certain = is_alone || text.starts_with("Truncate failed on replica");
                    if is_certain { Ended::Failed } else { Ended::InDoubt }
                }
                _ => Ended::InDoubt,
            }
        })
    }

    /// Reads all rows through each node, as it itself has them.
    fn check(&self, place: &str) -> Result<(), String> {
        for n in 1..=self.plan.nodes {
            let address = self.address(n);
            let found = self.client("rows are read", move |rt| async move {
                loop {
                    let mut client = connect(&rt, address).await;
                    client.set_consistency(Consistency::One);
                    match client.query("SELECT k FROM ks.t").await {
                        Ok(Answer::Rows(rows, None)) => break keys(&rows),
                        Ok(Answer::Rows(..)) => panic!("more than a page"),
                        _ => rt.sleep(Duration::from_millis(200)).await,
                    }
                }
            })?;
            self.model.borrow().check(&found, &format!("{place}, read at n{n}"))?;
        }
        Ok(())
    }
}

fn keys(rows: &[Vec<Option<Vec<u8>>>]) -> BTreeSet<i32> {
    let key = |row: &Vec<Option<Vec<u8>>>| {
        row.first()?.as_deref()?.try_into().ok().map(i32::from_be_bytes)
    };
    rows.iter().filter_map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(ended: Ended) -> Model {
        let mut model = Model::default();
        model.inserted(1, true);
        model.truncated(ended);
        model.inserted(2, true);
        model.inserted(3, false);
        model
    }

    #[test]
    fn the_checker_sees_a_row_that_is_gone_and_one_that_is_back() {
        for ended in [Ended::Ok, Ended::Failed] {
            let of = |keys: &[i32]| model(ended).check(&keys.iter().copied().collect(), "");
            assert!(of(&[]).is_err() && of(&[3]).is_err());
            assert!(of(&[2]).is_ok() && of(&[2, 3]).is_ok());
            assert_eq!(of(&[1, 2]).is_ok(), ended != Ended::Ok);
        }
        let in_doubt = model(Ended::InDoubt);
        assert!(in_doubt.check(&BTreeSet::new(), "").is_ok());
    }

    /// A truncation that is carried out a second time would remove later rows: INV-truncate-1.
    #[test]
    fn every_kind_of_trouble_leaves_what_was_acknowledged() {
        for seed in 0..4 {
            run(&plan(seed)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}
