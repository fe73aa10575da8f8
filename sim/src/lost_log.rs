//! Scenario: the commit log's directory of a node that is down is emptied, partly emptied, replaced by an
//! older copy, left out by a changed setting, or moved with its files. The next start refuses the loss by
//! name, and a start that is not refused has every acknowledged row.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use conf::{CommitLogSync, Options};
use node::Outcome;
use rt::sim::{SimNode, World, WorldOptions};

use crate::client::{Answer, Client};
use crate::durability::{NODE, connect, start};
use crate::report::Report;

const LIMIT: Duration = Duration::from_secs(300);
/// Losses of a run.
const ROUNDS: i32 = 5;
/// Rows that are written before each.
const ROWS: i32 = 8;

/// One run's choices.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    seed: u64,
    shards: u16,
    sync: CommitLogSync,
}

/// The choices of a seed.
pub fn plan(seed: u64) -> Plan {
    let syncs = [CommitLogSync::Periodic, CommitLogSync::Batch, CommitLogSync::Group];
    Plan { seed, shards: 1 + (seed % 3) as u16, sync: syncs[(seed / 3 % 3) as usize] }
}

/// Fate of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// Every file is gone.
    Emptied,
    /// The segments are gone, other files are left.
    Segments,
    /// One segment is gone.
    OneSegment,
    /// The files are those of the round before.
    OlderCopy,
    /// The setting names another directory; the files stay where they are.
    OtherDirectory,
    /// The setting names another directory, and the files are there: no loss.
    Moved,
}

const LOSSES: [Loss; 6] = [
    Loss::Emptied,
    Loss::Segments,
    Loss::OneSegment,
    Loss::OlderCopy,
    Loss::OtherDirectory,
    Loss::Moved,
];

type Files = Vec<(String, Vec<u8>)>;

struct LostLogRun {
    world: World,
    plan: Plan,
    /// Number of the directory that the setting names.
    directory: u32,
    /// Keys that were acknowledged.
    acknowledged: BTreeSet<i32>,
    /// Files of the log at the end of the round before.
    older: Files,
}

/// Acknowledged rows that a node does not have.
fn missing(acknowledged: &BTreeSet<i32>, found: &BTreeSet<i32>) -> Result<(), String> {
    let gone: Vec<i32> = acknowledged.difference(found).copied().collect();
    match gone.is_empty() {
        true => Ok(()),
        false => Err(format!("acknowledged rows are gone: {gone:?}")),
    }
}

/// Runs one plan.
///
/// # Errors
/// A finding of the checker, or a world that got stuck.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let world = World::new(plan.seed, WorldOptions::default());
    let mut run = LostLogRun {
        world,
        plan: *plan,
        directory: 0,
        acknowledged: BTreeSet::new(),
        older: Files::new(),
    };
    let mut node = run.start()?.map_err(|error| format!("first start: {error}"))?;
    run.query(vec![
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
            .to_owned(),
        "CREATE TABLE ks.t (k int PRIMARY KEY)".to_owned(),
    ])?;
    for round in 0..ROUNDS {
        run.write(round)?;
        // Lists name all segments then; else only the mark shows a loss.
        let is_listed = run.random(2) == 0;
        if is_listed {
            run.world.run_for(Duration::from_secs(15));
        }
        let is_drained = run.end(&node)?;
        let loss = run.draw(is_listed || is_drained);
        let failed = |error: String| format!("round {round}, {loss:?}: {error}");
        node = run.lose_and_start(loss).map_err(failed)?;
        let found = run.read()?;
        missing(&run.acknowledged, &found).map_err(failed)?;
    }
    Ok(Report {
        trace: run.world.trace_hash(),
        checkpoints: run.world.trace_checkpoints(),
        acknowledged: run.acknowledged.len(),
        operations: ROUNDS as usize,
        ..Report::default()
    })
}

impl LostLogRun {
    fn random(&self, below: usize) -> usize {
        (self.world.random_u64() % below.max(1) as u64) as usize
    }

    fn path(&self) -> String {
        format!("/log{}", self.directory)
    }

    fn options(&self) -> Options {
        Options {
            workdir: "/data".to_owned(),
            commitlog_directory: Some(self.path()),
            commitlog_sync: self.plan.sync,
            smp: Some(self.plan.shards),
            native_shard_aware_transport_port: 0,
            rpc_address: conf::Address::Ip([0, 0, 0, 0].into()),
            broadcast_rpc_address: Some(conf::Address::Ip([127, 0, 0, 1].into())),
            ..Options::default()
        }
    }

    fn until(&self, what: &str, done: impl Fn() -> bool) -> Result<(), String> {
        self.world.run_until(done, LIMIT).map_err(|stuck| format!("{what}: {stuck:?}"))
    }

    /// Starts the node. `Ok(Err)`: the start was refused with that message.
    fn start(&self) -> Result<Result<SimNode, String>, String> {
        let (node, outcome): (SimNode, Arc<Outcome>) = start(&self.world, &self.options());
        self.until("a node starts", || outcome.is_ready() || outcome.failure().is_some())?;
        let Some(error) = outcome.failure() else { return Ok(Ok(node)) };
        let (world, of) = (self.world.clone(), node);
        self.until("a refused start ends", move || !world.is_alive(&of))?;
        Ok(Err(error.to_string()))
    }

    /// Kills the node, or stops it: true.
    fn end(&self, node: &SimNode) -> Result<bool, String> {
        if self.random(3) > 0 {
            self.world.kill(node);
            return Ok(false);
        }
        node.request_stop();
        let (world, of) = (self.world.clone(), node.clone());
        self.until("a node stops", move || !world.is_alive(&of))?;
        Ok(true)
    }

    /// `is_listed`: a loss of segments alone can be noticed.
    fn draw(&self, is_listed: bool) -> Loss {
        let needs_lists = |loss: &&Loss| matches!(loss, Loss::Segments | Loss::OneSegment);
        let all: Vec<&Loss> = LOSSES.iter().filter(|l| is_listed || !needs_lists(l)).collect();
        all.get(self.random(all.len())).map_or(Loss::Emptied, |loss| **loss)
    }

    fn lose_and_start(&mut self, loss: Loss) -> Result<SimNode, String> {
        let (before, number) = (self.files(), self.directory);
        let named = self.lose(loss, &before);
        self.older.clone_from(&before);
        match self.start()? {
            Ok(node) => Ok(node),
            Err(error) if loss == Loss::Moved => Err(format!("no loss, and refused: {error}")),
            Err(error) if !named.iter().any(|name| error.contains(name)) => {
                Err(format!("refused without one of {named:?}: {error}"))
            }
            Err(_) => {
                self.remove(&self.files());
                self.directory = number;
                self.restore(&before);
                self.start()?.map_err(|error| format!("all is back, and still: {error}"))
            }
        }
    }

    /// Names of which a refusal has one.
    fn lose(&mut self, loss: Loss, before: &Files) -> Vec<String> {
        let segments: Files =
            before.iter().filter(|(path, _)| path.ends_with(".log")).cloned().collect();
        match loss {
            Loss::Emptied => self.remove(before),
            Loss::Segments => self.remove(&segments),
            Loss::OneSegment => {
                let one = segments.get(self.random(segments.len())).cloned();
                self.remove(&one.into_iter().collect());
            }
            Loss::OlderCopy => {
                self.remove(before);
                self.restore(&self.moved(&self.older));
            }
            Loss::OtherDirectory => self.directory += 1,
            Loss::Moved => {
                self.directory += 1;
                self.remove(before);
                self.restore(&self.moved(before));
            }
        }
        match loss {
            Loss::Segments | Loss::OneSegment => {
                segments.into_iter().map(|(path, _)| path).collect()
            }
            _ => vec![format!("commitlog_directory {} ", self.path())],
        }
    }

    /// These files under the directory that the setting names.
    fn moved(&self, files: &Files) -> Files {
        let moved = |(path, bytes): &(String, Vec<u8>)| {
            let name = path.rsplit('/').next().unwrap_or(path);
            (format!("{}/{name}", self.path()), bytes.clone())
        };
        files.iter().map(moved).collect()
    }

    fn files(&self) -> Files {
        let (disk, below) = (self.world.disk(NODE), format!("{}/", self.path()));
        let paths = disk.list().into_iter().filter(|path| path.starts_with(&below));
        paths.filter_map(|path| Some((path.clone(), disk.read(&path)?))).collect()
    }

    fn remove(&self, files: &Files) {
        files.iter().for_each(|(path, _)| self.world.disk(NODE).remove(path));
    }

    fn restore(&self, files: &Files) {
        files.iter().for_each(|(path, bytes)| self.world.disk(NODE).write(path, bytes));
    }

    fn client<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        what: &str,
        work: impl FnOnce(Client) -> F + 'static,
    ) -> Result<T, String> {
        let address = SocketAddr::new(self.world.ip(NODE), 9042);
        let out: Rc<RefCell<Option<T>>> = Rc::default();
        let result = out.clone();
        let name = format!("c{}", self.world.random_u64());
        let client = self.world.client(&name, move |rt| async move {
            let client = connect(&rt, address).await;
            let done = work(client).await;
            *result.borrow_mut() = Some(done);
        });
        self.until(what, || out.borrow().is_some())?;
        self.world.kill(&client);
        out.take().ok_or_else(|| format!("{what}: no result"))
    }

    fn query(&self, statements: Vec<String>) -> Result<(), String> {
        self.client("statements", |mut client| async move {
            for text in statements {
                match client.query(&text).await {
                    Ok(Answer::Done | Answer::Rows(..)) => {}
                    other => return Err(format!("{text}: {other:?}")),
                }
            }
            Ok(())
        })?
    }

    fn write(&mut self, round: i32) -> Result<(), String> {
        let keys = round * ROWS..(round + 1) * ROWS;
        let insert = |key: i32| format!("INSERT INTO ks.t (k) VALUES ({key})");
        self.query(keys.clone().map(insert).collect())?;
        self.acknowledged.extend(keys);
        Ok(())
    }

    fn read(&self) -> Result<BTreeSet<i32>, String> {
        self.client("rows are read", |mut client| async move {
            match client.query("SELECT k FROM ks.t").await {
                Ok(Answer::Rows(rows, _)) => {
                    let key = |row: &Vec<Option<Vec<u8>>>| {
                        let bytes = row.first()?.as_deref()?.try_into().ok()?;
                        Some(i32::from_be_bytes(bytes))
                    };
                    Ok(rows.iter().filter_map(key).collect())
                }
                other => Err(format!("{other:?}")),
            }
        })?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checker_wants_every_acknowledged_row() {
        let set = |keys: &[i32]| keys.iter().copied().collect::<BTreeSet<i32>>();
        assert!(missing(&set(&[1, 2]), &set(&[1, 2, 3])).is_ok());
        assert!(missing(&set(&[1, 2]), &set(&[2])).is_err());
    }

    #[test]
    fn a_lost_commit_log_refuses_the_start() {
        for seed in 0..9 {
            run(&plan(seed)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}
