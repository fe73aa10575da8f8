//! Scenario: any small durable file of a node that is down is damaged, cut, emptied or deleted. The
//! next start refuses it by name, or logs in a WARN that it rebuilds or ignores it. The node's
//! answers never change.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conf::{Address, Options, Snitch};
use node::{Node, Outcome};
use rt::Rt;
use rt::sim::{SimNode, World, WorldOptions};
use tracing_subscriber::util::SubscriberInitExt;

use crate::client::{Answer, Client};
use crate::durability::connect;
use crate::report::Report;

const LIMIT: Duration = Duration::from_secs(300);
/// Rows of the table that is truncated, before and after that.
const ROWS: i32 = 10;
/// Damages of a run.
const ROUNDS: u32 = 5;

/// One run's choices.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    seed: u64,
    /// Two nodes have promises, generations and horizons too.
    nodes: u8,
    shards: u16,
}

/// The choices of a seed.
pub fn plan(seed: u64) -> Plan {
    Plan { seed, nodes: 1 + (seed % 2) as u8, shards: 1 + (seed / 2 % 2) as u16 }
}

/// Damage to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Flip,
    Cut,
    Empty,
    Delete,
}

/// Outcome of the next start.
#[derive(Clone, Debug)]
enum Start {
    Refused(String),
    Ready { warnings: String },
}

/// Checks that a start handled a damaged file correctly.
fn verdict(path: &str, damage: Damage, start: &Start) -> Result<(), String> {
    let name = path.strip_prefix("/data/").unwrap_or(path);
    match start {
        Start::Refused(error) if error.contains(name) => Ok(()),
        Start::Refused(error) => {
            Err(format!("{path}, {damage:?}: refused without its name: {error}"))
        }
        Start::Ready { warnings } if warnings.lines().any(|line| line.contains(name)) => Ok(()),
        // A file that is not expected to exist is not missed: ranges are fetched again, caches are
        // cold.
        Start::Ready { .. } if damage == Damage::Delete && is_optional(name) => Ok(()),
        Start::Ready { .. } => Err(format!("{path}, {damage:?}: the node started without a word")),
    }
}

/// A list of segments is removed at a clean stop, and after that the mark of the log's directory is not needed.
fn is_optional(name: &str) -> bool {
    name.starts_with("saved_caches/")
        || name.starts_with("metadata/received-")
        || is_list_of_segments(name)
        || name == LOG_MARK
}

fn is_list_of_segments(name: &str) -> bool {
    let list = name.strip_prefix("metadata/commitlog/");
    list.is_some_and(|list| list.starts_with(|first: char| first.is_ascii_digit()))
}

/// Owner of the log in the directory of the commit log.
const LOG_MARK: &str = "commitlog/helenus-log-directory";

/// Returns true if a path of the disk is a small durable file of this node.
fn is_small_file(path: &str) -> bool {
    let Some(name) = path.strip_prefix("/data/") else { return false };
    if name.ends_with(".tmp") || name.starts_with("metadata/cleanup/") {
        return false;
    }
    name.starts_with("metadata/")
        || name.starts_with("saved_caches/")
        || name.starts_with("counter-id-")
        || name == "data-directories"
        || name == "repair_history"
        || name == LOG_MARK
}

/// Warnings and errors of simulated nodes.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn take(&self) -> String {
        let bytes = self.0.lock().map(|mut bytes| std::mem::take(&mut *bytes)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Ok(mut all) = self.0.lock() {
            all.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn name(n: u8) -> String {
    format!("n{n}")
}

struct SmallFilesRun {
    world: World,
    plan: Plan,
    log: Log,
    damaged: BTreeSet<String>,
    /// The log is written while this exists.
    _logging: Box<dyn std::any::Any>,
}

fn run_of(plan: &Plan) -> SmallFilesRun {
    let log = Log::default();
    let of_writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_ansi(false)
        .with_writer(move || of_writer.clone());
    let _logging = Box::new(subscriber.set_default());
    let world = World::new(plan.seed, WorldOptions::default());
    SmallFilesRun { world, plan: *plan, log, damaged: BTreeSet::new(), _logging }
}

/// Runs one plan.
///
/// # Errors
/// What the checker found, or that the world got stuck.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut run = run_of(plan);
    let mut node = run.begin()?;
    for round in 0..ROUNDS {
        run.end(&node, round)?;
        let (path, damage, before) = run.damage()?;
        run.log.take();
        let (started, start) = run.start(1)?;
        verdict(&path, damage, &start).map_err(|error| format!("round {round}: {error}"))?;
        node = started;
        if let Start::Refused(_) = start {
            run.world.disk(&name(1)).write(&path, &before);
            let (again, start) = run.start(1)?;
            let Start::Ready { .. } = start else {
                return Err(format!("{path} was put back, and still: {start:?}"));
            };
            node = again;
        }
        run.read().map_err(|error| format!("after {path}, {damage:?}: {error}"))?;
    }
    Ok(Report {
        trace: run.world.trace_hash(),
        checkpoints: run.world.trace_checkpoints(),
        acknowledged: run.damaged.len(),
        operations: ROUNDS as usize,
        ..Report::default()
    })
}

impl SmallFilesRun {
    fn options(&self, n: u8) -> Options {
        let ip = |n: u8| self.world.ip(&name(n));
        let plan = &self.plan;
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
            row_cache_size: conf::DataSize(1 << 20),
            row_cache_save_period: Duration::from_secs(10),
            counter_cache_save_period: Duration::from_secs(10),
            ..Options::default()
        }
    }

    fn until(&self, what: &str, done: impl Fn() -> bool) -> Result<(), String> {
        self.world.run_until(done, LIMIT).map_err(|stuck| format!("{what}: {stuck:?}"))
    }

    fn start(&self, n: u8) -> Result<(SimNode, Start), String> {
        let outcome = Arc::new(Outcome::default());
        let (spec, main) = Node::prepare(&name(n), self.options(n), outcome.clone());
        let node = self.world.start_node(spec, main);
        let done = || outcome.is_ready() || outcome.failure().is_some();
        self.until("a node starts", done)?;
        if let Some(error) = outcome.failure() {
            let (world, of) = (self.world.clone(), node.clone());
            self.until("a refused start ends", move || !world.is_alive(&of))?;
            return Ok((node, Start::Refused(error.to_string())));
        }
        Ok((node, Start::Ready { warnings: self.log.take() }))
    }

    fn end(&self, node: &SimNode, round: u32) -> Result<(), String> {
        // The first round always stops cleanly, so that the files of a clean stop exist later.
        if round > 0 && self.world.random_u64().is_multiple_of(3) {
            self.world.kill(node);
            return Ok(());
        }
        node.request_stop();
        let (world, of) = (self.world.clone(), node.clone());
        self.until("a node stops", move || !world.is_alive(&of))
    }

    /// Starts the nodes and writes what must stay.
    fn begin(&mut self) -> Result<SimNode, String> {
        let mut first = None;
        for n in 1..=self.plan.nodes {
            let (node, start) = self.start(n)?;
            if let Start::Refused(error) = start {
                return Err(error);
            }
            first.get_or_insert(node);
        }
        let replicas = self.plan.nodes;
        self.client("data is written", move |rt, mut client| async move {
            for text in [
                format!(
                    "CREATE KEYSPACE ks WITH replication = \
                     {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
                ),
                "CREATE TABLE ks.t (k int PRIMARY KEY, v int) \
                 WITH caching = {'rows_per_partition': 'ALL'}"
                    .to_owned(),
                "CREATE TABLE ks.n (k int PRIMARY KEY, n counter)".to_owned(),
            ] {
                must(&mut client, &text).await;
            }
            for k in 0..ROWS {
                must(&mut client, &format!("INSERT INTO ks.t (k, v) VALUES ({k}, 0)")).await;
            }
            must(&mut client, "TRUNCATE ks.t").await;
            for k in ROWS..2 * ROWS {
                must(
                    &mut client,
                    &format!("INSERT INTO ks.t (k, v) VALUES ({k}, 0) IF NOT EXISTS"),
                )
                .await;
                must(&mut client, &format!("UPDATE ks.n SET n = n + 1 WHERE k = {k}")).await;
            }
            must(&mut client, "SELECT * FROM ks.t").await;
            rt.sleep(Duration::from_secs(15)).await;
        })?;
        let node = first.ok_or("no node")?;
        // The second start lists what the first one wrote.
        self.end(&node, 0)?;
        match self.start(1)? {
            (node, Start::Ready { .. }) => Ok(node),
            (_, Start::Refused(error)) => Err(error),
        }
    }

    /// Damages a file of the node that is down; returns path, damage, and previous content.
    fn damage(&mut self) -> Result<(String, Damage, Vec<u8>), String> {
        let disk = self.world.disk(&name(1));
        let all: Vec<String> = disk.list().into_iter().filter(|path| is_small_file(path)).collect();
        let fresh: Vec<&String> = all.iter().filter(|path| !self.damaged.contains(*path)).collect();
        let choices = if fresh.is_empty() { all.iter().collect() } else { fresh };
        let random = |below: usize| (self.world.random_u64() % below.max(1) as u64) as usize;
        let path = choices.get(random(choices.len())).ok_or("no small file")?.to_string();
        let before = disk.read(&path).ok_or_else(|| format!("{path} cannot be read"))?;
        let damage = [Damage::Flip, Damage::Cut, Damage::Empty, Damage::Delete][random(4)];
        let damage = if before.is_empty() { Damage::Delete } else { damage };
        self.spoil(&path, damage, &before);
        self.damaged.insert(path.clone());
        Ok((path, damage, before))
    }

    fn spoil(&self, path: &str, damage: Damage, before: &[u8]) {
        let disk = self.world.disk(&name(1));
        let random = |below: usize| (self.world.random_u64() % below.max(1) as u64) as usize;
        let mut bytes = before.to_vec();
        match damage {
            Damage::Flip => {
                let at = random(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random(8);
                }
            }
            Damage::Cut => bytes.truncate(1 + random(bytes.len() - 1)),
            Damage::Empty => bytes.clear(),
            Damage::Delete => return disk.remove(path),
        }
        disk.write(path, &bytes);
    }

    fn client<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        what: &str,
        work: impl FnOnce(Rt, Client) -> F + 'static,
    ) -> Result<T, String> {
        let address = SocketAddr::new(self.world.ip(&name(1)), 9042);
        let out: Rc<RefCell<Option<T>>> = Rc::default();
        let result = out.clone();
        let client =
            self.world.client(&format!("c{}", self.world.random_u64()), move |rt| async move {
                let client = connect(&rt, address).await;
                let done = work(rt, client).await;
                *result.borrow_mut() = Some(done);
            });
        self.until(what, || out.borrow().is_some())?;
        self.world.kill(&client);
        out.take().ok_or_else(|| format!("{what}: no result"))
    }

    /// Reads everything and compares it with the written data; increments counters afterwards.
    fn read(&self) -> Result<(), String> {
        self.client("data is read", |_, mut client| async move {
            let rows = must(&mut client, "SELECT k FROM ks.t").await;
            let found: BTreeSet<i32> = rows.iter().filter_map(|row| int(row)).collect();
            let expected: BTreeSet<i32> = (ROWS..2 * ROWS).collect();
            if found != expected {
                return Err(format!("rows {found:?} instead of {expected:?}"));
            }
            for k in ROWS..2 * ROWS {
                let text = format!("SELECT n FROM ks.n WHERE k = {k}");
                let before = must(&mut client, &text).await;
                must(&mut client, &format!("UPDATE ks.n SET n = n + 1 WHERE k = {k}")).await;
                let after = must(&mut client, &text).await;
                let (before, after) = (
                    before.first().and_then(|row| long(row)),
                    after.first().and_then(|row| long(row)),
                );
                if before.map(|n| n + 1) != after {
                    return Err(format!("the counter {k} went from {before:?} to {after:?}"));
                }
                let again = format!("INSERT INTO ks.t (k, v) VALUES ({k}, 1) IF NOT EXISTS");
                must(&mut client, &again).await;
            }
            Ok(())
        })?
    }
}

/// Asks until it is answered: the other node may not have noticed yet that this one is back.
async fn must(client: &mut Client, text: &str) -> Vec<Vec<Option<Vec<u8>>>> {
    for _ in 0..200 {
        match client.query(text).await {
            Ok(Answer::Rows(rows, _)) => return rows,
            Ok(Answer::Done) => return Vec::new(),
            Ok(Answer::Error(code, _)) if (0x1000..0x2000).contains(&code) => {
                client.pause(Duration::from_millis(200)).await;
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    panic!("{text}: not answered")
}

fn int(row: &[Option<Vec<u8>>]) -> Option<i32> {
    row.first()?.as_deref()?.try_into().ok().map(i32::from_be_bytes)
}

fn long(row: &[Option<Vec<u8>>]) -> Option<i64> {
    row.first()?.as_deref()?.try_into().ok().map(i64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checker_wants_the_name_of_the_file() {
        let path = "/data/metadata/run";
        let ready = |warnings: &str| Start::Ready { warnings: warnings.to_owned() };
        let refused = |error: &str| Start::Refused(error.to_owned());
        for damage in [Damage::Flip, Damage::Delete] {
            assert!(verdict(path, damage, &ready("")).is_err());
            assert!(verdict(path, damage, &ready("WARN x /data/metadata/log")).is_err());
            assert!(verdict(path, damage, &ready("WARN x path=/data/metadata/run")).is_ok());
            assert!(verdict(path, damage, &refused("another shard failed")).is_err());
            assert!(verdict(path, damage, &refused("cannot use /data/metadata/run")).is_ok());
        }
        let cache = "/data/saved_caches/rows.0";
        assert!(verdict(cache, Damage::Flip, &ready("")).is_err());
        assert!(verdict(cache, Damage::Delete, &ready("")).is_ok());
    }

    /// Kinds and versions of `docs/formats/small-files.md`: cells of its tables such as "`run` 2".
    fn documented() -> BTreeSet<String> {
        let page = include_str!("../../docs/formats/small-files.md");
        let rows = page.lines().filter(|line| line.starts_with('|'));
        let cells = rows.filter_map(|row| row.split('|').nth(2));
        let mut kinds = BTreeSet::new();
        for cell in cells {
            let Some((names, version)) = cell.trim().rsplit_once(' ') else { continue };
            if version.parse::<u32>().is_ok() {
                let names = names.split(", ").map(|name| name.trim_matches('`'));
                kinds.extend(names.map(|name| format!("{name} {version}")));
            }
        }
        kinds
    }

    /// Returns the kind and version of a small durable file whose checksum fits, or `None` for a
    /// durable file with a format of its own. `Err`: it is neither.
    fn kind_of(path: &str, bytes: &[u8]) -> Result<Option<String>, String> {
        let name = path.strip_prefix("/data/").ok_or("not below the work directory")?;
        let file = name.rsplit('/').next().unwrap_or(name);
        if codec::is_small_file(bytes) {
            let header = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let header = String::from_utf8_lossy(header).into_owned();
            let kind = header.strip_prefix("helenus-file ").unwrap_or_default().to_owned();
            let covered = bytes.len().saturating_sub("crc32 00000000\n".len());
            let check = format!("crc32 {:08x}\n", codec::crc32(&bytes[..covered]));
            let is_right = bytes.ends_with(check.as_bytes());
            return if is_right { Ok(Some(kind)) } else { Err("its checksum is wrong".to_owned()) };
        }
        let is_mark = file == ".lock" || name.starts_with("metadata/cleanup/");
        // Cassandra's own beside a snapshot.
        let is_of_snapshot =
            name.contains("/snapshots/") && matches!(file, "manifest.json" | "schema.cql");
        let has_own_format = store::Descriptor::parse(file).is_some()
            || is_of_snapshot
            || name.starts_with("commitlog/")
            || name.starts_with("hints/")
            || name == "metadata/log";
        match () {
            () if has_own_format || (is_mark && bytes.is_empty()) => Ok(None),
            () => {
                Err("it has neither the envelope of small files nor a format of its own".to_owned())
            }
        }
    }

    #[test]
    fn every_durable_file_of_a_node_has_a_documented_form() {
        let documented = documented();
        let (mut found, mut unknown) = (BTreeSet::new(), Vec::new());
        for seed in [2, 3] {
            let mut run = run_of(&plan(seed));
            let node = run.begin().unwrap();
            if run.plan.nodes == 1 {
                // Files are verified in the background after an hour.
                run.world.run_for(Duration::from_secs(4 * 3600));
            }
            run.end(&node, 0).unwrap();
            let disk = run.world.disk(&name(1));
            for path in disk.list() {
                let bytes = disk.read(&path).unwrap_or_default();
                match kind_of(&path, &bytes) {
                    Ok(Some(kind)) if documented.contains(&kind) => {
                        found.insert(kind);
                    }
                    Ok(Some(kind)) => unknown.push(format!("{path}: {kind:?} is not documented")),
                    Ok(None) => {}
                    Err(why) => unknown.push(format!("{path}: {why}")),
                }
            }
        }
        assert!(unknown.is_empty(), "{unknown:#?}");
        let wanted =
            ["identity 2", "run 2", "promises 2", "truncated 3", "saved-rows 2", "verified 2"];
        let missing = wanted.into_iter().find(|kind| !found.contains(*kind));
        assert_eq!(missing, None, "{found:?}");
        assert!(kind_of("/data/metadata/run", b"7\n").is_err());
        assert!(kind_of("/data/metadata/new", b"helenus-file new 1\nx\ncrc32 00000000\n").is_err());
    }

    #[test]
    fn every_small_file_in_every_way_of_damage_is_refused_by_name_or_warned_of() {
        let mut run = run_of(&plan(3));
        let mut node = run.begin().unwrap();
        run.end(&node, 0).unwrap();
        let disk = run.world.disk(&name(1));
        let all: Vec<String> = disk.list().into_iter().filter(|path| is_small_file(path)).collect();
        for wanted in ["promises", "horizon/1", "counter-id-1", "/files", "truncated", "rows.0"] {
            assert!(all.iter().any(|path| path.contains(wanted)), "{wanted}: {all:?}");
        }
        let flips_and_cuts = [[Damage::Flip; 4], [Damage::Cut; 4]].concat();
        for path in &all {
            for damage in flips_and_cuts.iter().copied().chain([Damage::Empty, Damage::Delete]) {
                // A cache that is cold when the node stops is not saved again.
                let Some(before) = disk.read(path) else { continue };
                run.spoil(path, damage, &before);
                run.log.take();
                let start;
                (node, start) = run.start(1).unwrap();
                verdict(path, damage, &start).unwrap();
                match start {
                    Start::Refused(_) => disk.write(path, &before),
                    Start::Ready { .. } => {
                        run.read().unwrap_or_else(|error| panic!("{path}, {damage:?}: {error}"));
                        run.end(&node, 0).unwrap();
                    }
                }
            }
        }
    }

    #[test]
    fn a_node_says_what_became_of_each_damaged_file() {
        for seed in 0..6 {
            run(&plan(seed)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}
