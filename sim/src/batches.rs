//! Scenario: clients write logged batches over several partitions and tables while the node is
//! killed, loses power, or its clients vanish. After every restart each batch is present as a whole
//! or not at all, and every acknowledged one is present.
//!
//! A power cut in periodic mode may lose unsynced writes, so there the checker only demands that
//! every row found was sent.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use conf::{CommitLogSync, Options};
use node::Outcome;
use rt::Rt;
use rt::sim::{CrashKind, SimNode, World, WorldOptions};

use crate::client::Answer;
use crate::durability::{NODE, connect, start};
use crate::report::Report;

/// Writers at the same time.
const WRITERS: usize = 4;

/// Fault that hits the batches in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The node gets SIGKILL.
    Kill,
    /// The node loses power.
    PowerCut,
    /// The clients vanish; the node keeps running.
    ClientsVanish,
}

/// One run's choices.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Every choice follows from it.
    pub seed: u64,
    /// Shards of the node.
    pub shards: u16,
    /// Shards after a restart.
    pub shards_after: u16,
    /// Fault of each round.
    pub blow: Blow,
    /// When writes are acknowledged.
    pub sync: CommitLogSync,
    /// How often.
    pub blows: u32,
    /// False: the tables have `gc_grace_seconds = 0`, for which batches are not replayed. The
    /// checker must see it.
    pub replays: bool,
}

/// A row of a batch: its table and key.
type Place = (usize, i32);

/// State that the clients know.
#[derive(Default, Debug)]
pub struct Model {
    /// By batch the rows that were sent.
    sent: BTreeMap<i32, BTreeSet<Place>>,
    acknowledged: BTreeSet<i32>,
    next_batch: i32,
    next_key: i32,
}

impl Model {
    /// Checks the rows found: by row the batch that wrote it.
    fn check(&self, found: &BTreeMap<Place, i32>, strict: bool) -> Result<(), String> {
        let mut there: BTreeMap<i32, BTreeSet<Place>> = BTreeMap::new();
        for (place, batch) in found {
            if !self.sent.get(batch).is_some_and(|rows| rows.contains(place)) {
                return Err(format!("row {place:?} of batch {batch} was never sent"));
            }
            there.entry(*batch).or_default().insert(*place);
        }
        if !strict {
            return Ok(());
        }
        for (batch, rows) in &there {
            let sent = self.sent.get(batch).map_or(0, BTreeSet::len);
            if rows.len() != sent {
                return Err(format!("batch {batch}: {} of {sent} rows: {rows:?}", rows.len()));
            }
        }
        match self.acknowledged.iter().find(|batch| !there.contains_key(batch)) {
            Some(batch) => Err(format!("batch {batch} was acknowledged and is gone")),
            None => Ok(()),
        }
    }

    /// A batch of two to four rows in new partitions, some of one key in both tables.
    fn next(&mut self, random: u64) -> (i32, String) {
        self.next_batch += 1;
        let batch = self.next_batch;
        let count = 2 + random % 3;
        let mut rows = BTreeSet::new();
        let mut text = "BEGIN BATCH ".to_owned();
        for i in 0..count {
            let table = usize::from(random >> (8 + i) & 1 == 1);
            if i == 0 || random >> (16 + i) & 1 == 1 || rows.contains(&(table, self.next_key)) {
                self.next_key += 1;
            }
            rows.insert((table, self.next_key));
            let name = TABLES[table];
            text.push_str(&format!(
                "INSERT INTO ks.{name} (k, b) VALUES ({}, {batch}); ",
                self.next_key
            ));
        }
        text.push_str("APPLY BATCH");
        self.sent.insert(batch, rows);
        (batch, text)
    }
}

const TABLES: [&str; 2] = ["left", "right"];

type Shared = Rc<RefCell<Model>>;

fn options(plan: &Plan, shards: u16) -> Options {
    let mut options = Options { workdir: "/data".to_owned(), ..Options::default() };
    options.smp = Some(shards);
    options.commitlog_sync = plan.sync;
    options.start_native_transport = true;
    options.native_shard_aware_transport_port = 0;
    options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
    options.broadcast_rpc_address = Some(conf::Address::Ip([127, 0, 0, 1].into()));
    options
}

async fn create(rt: Rt, address: SocketAddr, replays: bool, created: Rc<RefCell<bool>>) {
    let mut client = connect(&rt, address).await;
    let grace = if replays { 864_000 } else { 0 };
    let mut statements = vec![
        "CREATE KEYSPACE ks WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1}"
            .to_owned(),
    ];
    statements.extend(TABLES.map(|name| {
        format!("CREATE TABLE ks.{name} (k int PRIMARY KEY, b int) WITH gc_grace_seconds = {grace}")
    }));
    for text in statements {
        let answer = client.query(&text).await;
        assert_eq!(answer, Ok(Answer::Done), "{text}");
    }
    *created.borrow_mut() = true;
}

async fn write_forever(rt: Rt, address: SocketAddr, model: Shared) {
    loop {
        let mut client = connect(&rt, address).await;
        loop {
            let (batch, text) = model.borrow_mut().next(rt.random_u64());
            match client.query(&text).await {
                Ok(Answer::Done) => {
                    model.borrow_mut().acknowledged.insert(batch);
                }
                Ok(Answer::Error(..)) => {}
                Ok(other) => panic!("BATCH answered by {other:?}"),
                Err(_) => break,
            }
        }
    }
}

type Found = Rc<RefCell<Option<BTreeMap<Place, i32>>>>;

async fn read_all(rt: Rt, address: SocketAddr, found: Found) {
    let mut client = connect(&rt, address).await;
    let mut rows = BTreeMap::new();
    for (table, name) in TABLES.iter().enumerate() {
        let mut state: Option<Vec<u8>> = None;
        loop {
            let text = format!("SELECT k, b FROM ks.{name}");
            let page = client.query_page(&text, Some(61), state.as_deref()).await;
            let Ok(Answer::Rows(page, next)) = page else { panic!("scan answered by {page:?}") };
            for row in page {
                let int = |i: usize| {
                    let bytes = row.get(i)?.as_deref()?;
                    Some(i32::from_be_bytes(bytes.try_into().ok()?))
                };
                let (Some(key), Some(batch)) = (int(0), int(1)) else {
                    panic!("half a row: {row:?}")
                };
                assert!(rows.insert((table, key), batch).is_none(), "key {key} came twice");
            }
            state = next;
            if state.is_none() {
                break;
            }
        }
    }
    *found.borrow_mut() = Some(rows);
}

/// The world of one run.
struct Run {
    world: World,
    address: SocketAddr,
    model: Shared,
    clients: usize,
}

impl Run {
    fn client_name(&mut self) -> String {
        self.clients += 1;
        format!("client{}", self.clients)
    }

    fn wait(
        &self,
        what: &str,
        outcome: &Arc<Outcome>,
        done: impl Fn() -> bool,
    ) -> Result<(), String> {
        let result = self.world.run_until(done, Duration::from_secs(120));
        result.map_err(|stuck| format!("{what} did not end: {stuck:?}; {outcome:?}"))
    }

    fn check(&mut self, strict: bool, outcome: &Arc<Outcome>) -> Result<(), String> {
        let found: Found = Rc::default();
        let (result, address) = (found.clone(), self.address);
        let name = self.client_name();
        self.world.client(&name, |rt| read_all(rt, address, result));
        self.wait("the scan", outcome, || found.borrow().is_some())?;
        let rows = found.borrow_mut().take().unwrap_or_default();
        self.model.borrow().check(&rows, strict)
    }

    /// Ends the node in one of its next file calls: most of them are writes of a commit log, so that
    /// batches are cut between their shards.
    fn crash(&self, node: &SimNode, kind: CrashKind) -> Result<(), String> {
        self.world.disk(NODE).crash_at_nth_io(1 + self.world.random_u64() % 40, kind);
        let dead = self.world.run_until(|| !self.world.is_alive(node), Duration::from_secs(120));
        dead.map_err(|stuck| format!("no file call for two minutes: {stuck:?}"))
    }

    fn start_writers(&mut self) -> Vec<SimNode> {
        let mut writers = Vec::new();
        for _ in 0..WRITERS {
            let (address, model) = (self.address, self.model.clone());
            let name = self.client_name();
            writers.push(self.world.client(&name, |rt| write_forever(rt, address, model)));
        }
        writers
    }
}

/// Runs one plan.
///
/// # Errors
/// What the checker found, or that the world got stuck.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let world = World::new(plan.seed, WorldOptions::default());
    let before = options(plan, plan.shards);
    let address = SocketAddr::new(world.ip(NODE), before.native_transport_port);
    let strict = plan.blow != Blow::PowerCut || plan.sync != CommitLogSync::Periodic;
    let mut run = Run { world: world.clone(), address, model: Shared::default(), clients: 0 };

    let (mut node, mut outcome) = start(&world, &before);
    let created = Rc::new(RefCell::new(false));
    let flag = created.clone();
    let _creator = world.client("creator", |rt| create(rt, address, plan.replays, flag));
    run.wait("CREATE", &outcome, || *created.borrow())?;
    // The tables exist in every mode: the metadata log is always synced.
    for _ in 0..plan.blows {
        let writers = run.start_writers();
        let enough = run.model.borrow().next_batch + 20 + (world.random_u64() % 60) as i32;
        let model = run.model.clone();
        run.wait("writing", &outcome, || model.borrow().next_batch >= enough)?;
        match plan.blow {
            Blow::ClientsVanish => world.run_for(Duration::from_micros(world.random_u64() % 5_000)),
            Blow::Kill => run.crash(&node, CrashKind::Kill)?,
            Blow::PowerCut => run.crash(&node, CrashKind::PowerCut)?,
        }
        for writer in &writers {
            world.kill(writer);
        }
        if plan.blow == Blow::ClientsVanish {
            // Twice the write timeout, the interval of the replay, and its work.
            world.run_for(Duration::from_secs(30));
        } else {
            (node, outcome) = start(&world, &options(plan, plan.shards_after));
        }
        run.check(strict, &outcome)?;
    }
    drop(node);
    let acknowledged = run.model.borrow().acknowledged.len();
    let operations = run.model.borrow().next_batch as usize;
    let (trace, checkpoints) = (world.trace_hash(), world.trace_checkpoints());
    Ok(Report { trace, checkpoints, operations, acknowledged, ..Report::default() })
}

/// The plan of a seed.
pub fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        shards: [3, 2, 1][(seed % 3) as usize],
        shards_after: if seed % 7 == 3 { 2 } else { [3, 2, 1][(seed % 3) as usize] },
        blow: match seed % 4 {
            0 | 1 => Blow::Kill,
            2 => Blow::PowerCut,
            _ => Blow::ClientsVanish,
        },
        sync: match seed % 5 {
            0 | 3 => CommitLogSync::Periodic,
            1 | 2 => CommitLogSync::Batch,
            _ => CommitLogSync::Group,
        },
        blows: 3,
        replays: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let mut model = Model::default();
        model.sent.insert(1, BTreeSet::from([(0, 10), (1, 10)]));
        model.sent.insert(2, BTreeSet::from([(0, 11), (0, 12)]));
        model.acknowledged.insert(1);
        model
    }

    #[test]
    fn the_checker_sees_half_a_lost_and_an_invented_batch() {
        let whole = BTreeMap::from([((0, 10), 1), ((1, 10), 1)]);
        assert_eq!(model().check(&whole, true), Ok(()));
        let mut half = whole.clone();
        half.insert((0, 11), 2);
        assert!(model().check(&half, true).is_err());
        assert_eq!(model().check(&half, false), Ok(()));
        half.insert((0, 12), 2);
        assert_eq!(model().check(&half, true), Ok(()));
        assert!(model().check(&BTreeMap::new(), true).is_err());
        assert!(model().check(&BTreeMap::from([((1, 11), 2)]), false).is_err());
    }

    #[test]
    fn without_replay_the_checker_sees_half_batches() {
        for blow in [Blow::Kill, Blow::PowerCut] {
            // Not every end meets a batch half way.
            let is_cut = (0..30).any(|seed| {
                let sync = CommitLogSync::Batch;
                let three = Plan { shards: 3, shards_after: 3, ..plan(seed) };
                let plan = Plan { blow, sync, ..three };
                assert!(run(&plan).is_ok(), "{plan:?}");
                let without = run(&Plan { replays: false, ..plan });
                without.is_err_and(|e| e.contains(" rows: "))
            });
            assert!(is_cut, "{blow:?}: no batch was cut");
        }
    }
}
