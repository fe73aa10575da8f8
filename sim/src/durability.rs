//! Scenario: a client writes while the node is repeatedly killed or loses power. At the end every
//! acknowledged row exists with its value, and no row exists that was never sent.
//!
//! The promise of "acknowledged" depends on the crash: after a kill everything; after a power cut
//! everything in `batch` mode, and in `periodic` mode all but the unsynced suffix. There the
//! checker only demands that every row found was sent.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use conf::{CommitLogSync, Options};
use node::{Node, Outcome};
use rt::Rt;
use rt::sim::{SimNode, World, WorldOptions};
use stdx::IoErrorKind;

use crate::client::{Answer, Client};
use crate::report::Report;

/// Name of the node, its disk and its address.
pub const NODE: &str = "node";

/// How a run ends the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// SIGKILL.
    Kill,
    /// The node loses power.
    PowerCut,
}

/// Fault of the disk for a while between two crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// Every call takes 5 to 50 ms.
    Slow,
    /// All calls that change the disk fail with EIO. The commit log stays stopped after that; only
    /// a restart helps.
    Failing,
    /// No byte is free: writes are refused, and taken again when there is room, without a restart.
    Full,
}

/// One run's choices.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Every choice follows from it.
    pub seed: u64,
    /// Shards of the node.
    pub shards: u16,
    /// How it ends each time.
    pub crash: Crash,
    /// When writes are acknowledged.
    pub sync: CommitLogSync,
    /// How often.
    pub crashes: u32,
    /// Flush all tables now and then (by a small memtable budget).
    pub small_memory: bool,
    /// Fault of the disk.
    pub trouble: Trouble,
}

/// State that the client knows: by key the values sent, and the newest acknowledged.
#[derive(Default, Debug)]
pub struct Model {
    sent: BTreeMap<i32, Vec<i64>>,
    acknowledged: BTreeMap<i32, i64>,
    created: bool,
    writes: u64,
    /// Writes that were acknowledged.
    answers: u64,
    /// Writes that were answered with an error or not at all.
    refusals: u64,
}

impl Model {
    /// Checks a row that was read.
    fn check(&self, key: i32, value: Option<i64>, strict: bool) -> Result<(), String> {
        let sent = self.sent.get(&key).map_or(&[][..], Vec::as_slice);
        let acknowledged = self.acknowledged.get(&key);
        match value {
            None if strict && acknowledged.is_some() => {
                Err(format!("key {key}: acknowledged value {acknowledged:?} is gone"))
            }
            None => Ok(()),
            Some(value) if !sent.contains(&value) => {
                Err(format!("key {key}: value {value} was never sent"))
            }
            Some(value) => match acknowledged {
                // A value sent after the newest acknowledged one may or may not have arrived.
                Some(newest) if strict && value < *newest => {
                    Err(format!("key {key}: value {value} is older than acknowledged {newest}"))
                }
                _ => Ok(()),
            },
        }
    }
}

fn options(plan: &Plan) -> Options {
    let mut options = Options { workdir: "/data".to_owned(), ..Options::default() };
    options.smp = Some(plan.shards);
    if plan.seed.is_multiple_of(2) {
        options.data_file_directories = vec!["/data/data".to_owned(), "/data/more".to_owned()];
    }
    if plan.seed % 4 > 1 {
        options.row_cache_size = conf::DataSize(256 << 10);
        options.row_cache_save_period = Duration::from_secs(plan.seed % 3 * 10);
    }
    options.commitlog_sync = plan.sync;
    options.start_native_transport = true;
    options.native_shard_aware_transport_port = 0;
    options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
    options.broadcast_rpc_address = Some(conf::Address::Ip([127, 0, 0, 1].into()));
    if plan.small_memory {
        options.memory = Some(conf::MemorySize(4 << 20));
    }
    options
}

/// Starts the node (again) on its disk.
pub fn start(world: &World, options: &Options) -> (SimNode, Arc<Outcome>) {
    let outcome = Arc::new(Outcome::default());
    let (spec, main) = Node::prepare(NODE, options.clone(), outcome.clone());
    (world.start_node(spec, main), outcome)
}

/// Connects as soon as the node answers.
pub async fn connect(rt: &Rt, address: SocketAddr) -> Client {
    loop {
        match Client::connect(rt, address).await {
            Ok(client) => return client,
            Err(_) => rt.sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn create(client: &mut Client) -> bool {
    for text in [
        "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE IF NOT EXISTS ks.t (k int PRIMARY KEY, v bigint, filler text) \
         WITH caching = {'rows_per_partition': 'ALL'}",
    ] {
        match client.query(text).await {
            Ok(Answer::Done) => {}
            Ok(other) => panic!("{text}: {other:?}"),
            Err(_) => return false,
        }
    }
    true
}

async fn write_forever(rt: Rt, address: SocketAddr, model: Rc<RefCell<Model>>) {
    loop {
        let mut client = connect(&rt, address).await;
        if !model.borrow().created {
            if !create(&mut client).await {
                continue;
            }
            model.borrow_mut().created = true;
        }
        let insert = "INSERT INTO ks.t (k, v, filler) VALUES (?, ?, ?)";
        let id = match client.prepare(insert).await {
            Ok(Answer::Prepared(id)) => id,
            Ok(other) => panic!("PREPARE answered by {other:?}"),
            Err(_) => continue,
        };
        loop {
            let key = (rt.random_u64() % 200) as i32;
            let value = {
                let mut model = model.borrow_mut();
                model.writes += 1;
                let value = model.writes as i64;
                model.sent.entry(key).or_default().push(value);
                value
            };
            let filler = "x".repeat((rt.random_u64() % 600) as usize);
            let answer = if key % 2 == 0 {
                let (key, value) = (key.to_be_bytes(), value.to_be_bytes());
                let values = [Some(&key[..]), Some(&value[..]), Some(filler.as_bytes())];
                client.execute(&id, &values).await
            } else {
                let insert = "INSERT INTO ks.t (k, v, filler) VALUES";
                client.query(&format!("{insert} ({key}, {value}, '{filler}')")).await
            };
            match answer {
                Ok(Answer::Done) => {
                    let mut model = model.borrow_mut();
                    model.acknowledged.insert(key, value);
                    model.answers += 1;
                }
                Ok(Answer::Error(..)) => {
                    model.borrow_mut().refusals += 1;
                    rt.sleep(Duration::from_millis(20)).await;
                }
                Ok(other) => panic!("INSERT answered by {other:?}"),
                Err(_) => {
                    model.borrow_mut().refusals += 1;
                    break;
                }
            }
        }
    }
}

type Found = Rc<RefCell<Option<BTreeMap<i32, Option<i64>>>>>;

async fn read_all(rt: Rt, address: SocketAddr, found: Found) {
    let mut client = connect(&rt, address).await;
    let mut rows = BTreeMap::new();
    let mut state: Option<Vec<u8>> = None;
    loop {
        let page = client.query_page("SELECT k, v FROM ks.t", Some(37), state.as_deref()).await;
        let Ok(Answer::Rows(page, next)) = page else { panic!("scan answered by {page:?}") };
        for row in page {
            let int = row[0].as_deref().and_then(|b| b.try_into().ok()).map(i32::from_be_bytes);
            let value = row[1].as_deref().and_then(|b| b.try_into().ok()).map(i64::from_be_bytes);
            let key = int.unwrap_or_else(|| panic!("row without key"));
            assert!(rows.insert(key, value).is_none(), "key {key} came twice in one scan");
        }
        state = next;
        if state.is_none() {
            break;
        }
    }
    *found.borrow_mut() = Some(rows);
}

/// Makes the disk faulty for a while, and waits for the promised behaviour.
fn trouble(world: &World, trouble: Trouble, model: &Rc<RefCell<Model>>) -> Result<(), String> {
    let disk = world.disk(NODE);
    let (answers, refusals) = (model.borrow().answers, model.borrow().refusals);
    let while_bad = Duration::from_millis(100 + world.random_u64() % 900);
    match trouble {
        Trouble::None => return Ok(()),
        Trouble::Slow => {
            disk.set_slow(Some(5_000..50_000));
            let goes_on = || model.borrow().answers > answers + 5;
            let result = world.run_until(goes_on, Duration::from_secs(60));
            disk.set_slow(None);
            return result.map_err(|stuck| format!("nothing is written slowly: {stuck:?}"));
        }
        Trouble::Failing => disk.set_failing(Some(IoErrorKind::Device)),
        Trouble::Full => disk.set_free_bytes(Some(0)),
    }
    let refused = || model.borrow().refusals > refusals;
    let told = world.run_until(refused, Duration::from_secs(30));
    told.map_err(|stuck| format!("nobody was told of {trouble:?}: {stuck:?}"))?;
    world.run_for(while_bad);
    disk.set_failing(None);
    disk.set_free_bytes(None);
    if trouble == Trouble::Full {
        let answers = model.borrow().answers;
        let recovered =
            world.run_until(|| model.borrow().answers > answers, Duration::from_secs(30));
        recovered.map_err(|stuck| format!("there is room, but no write succeeds: {stuck:?}"))?;
    }
    Ok(())
}

/// Runs one plan.
///
/// # Errors
/// What the checker found, or that the world got stuck.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let world = World::new(plan.seed, WorldOptions::default());
    let options = options(plan);
    let address = SocketAddr::new(world.ip(NODE), options.native_transport_port);
    let model: Rc<RefCell<Model>> = Rc::default();
    let strict = plan.crash == Crash::Kill || plan.sync != CommitLogSync::Periodic;

    let (mut node, mut outcome) = start(&world, &options);
    let writer = model.clone();
    let client = world.client("writer", |rt| write_forever(rt, address, writer));
    for crash in 0..plan.crashes {
        let before = model.borrow().acknowledged.len();
        let enough = 20 + (world.random_u64() % 150) as usize;
        let written = model.borrow().writes + enough as u64;
        let counting = model.clone();
        world.run_until(|| counting.borrow().writes >= written, Duration::from_secs(120)).map_err(
            |stuck| {
                format!("crash {crash}: no progress after {before} rows: {stuck:?}; {outcome:?}")
            },
        )?;
        trouble(&world, plan.trouble, &model).map_err(|e| format!("crash {crash}: {e}"))?;
        match plan.crash {
            Crash::Kill => world.kill(&node),
            Crash::PowerCut => world.power_cut(&node),
        }
        world.disk(NODE).clear_faults();
        world.run_for(Duration::from_millis(world.random_u64() % 50));
        (node, outcome) = start(&world, &options);
    }
    world.kill(&client);
    let found: Found = Rc::default();
    let result = found.clone();
    world.client("reader", |rt| read_all(rt, address, result));
    world
        .run_until(|| found.borrow().is_some(), Duration::from_secs(120))
        .map_err(|stuck| format!("the final scan did not end: {stuck:?}; {outcome:?}"))?;

    let rows = found.borrow_mut().take().unwrap_or_default();
    let model = model.borrow();
    for (key, value) in &rows {
        model.check(*key, *value, strict)?;
    }
    for key in model.acknowledged.keys() {
        if !rows.contains_key(key) {
            model.check(*key, None, strict)?;
        }
    }
    drop(node);
    Ok(Report {
        trace: world.trace_hash(),
        checkpoints: world.trace_checkpoints(),
        acknowledged: model.acknowledged.len(),
        operations: model.writes as usize,
        ..Report::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let mut model = Model::default();
        model.sent.insert(1, vec![10, 20, 30]);
        model.acknowledged.insert(1, 20);
        model
    }

    #[test]
    fn the_checker_sees_a_lost_an_old_and_an_invented_value() {
        assert!(model().check(1, None, true).is_err());
        assert!(model().check(1, Some(10), true).is_err());
        assert!(model().check(1, Some(11), true).is_err());
        assert!(model().check(2, Some(10), false).is_err());
    }

    #[test]
    fn the_checker_takes_what_was_acknowledged_and_what_may_have_arrived() {
        assert!(model().check(1, Some(20), true).is_ok());
        assert!(model().check(1, Some(30), true).is_ok());
        assert!(model().check(1, None, false).is_ok());
        assert!(model().check(2, None, true).is_ok());
    }
}
