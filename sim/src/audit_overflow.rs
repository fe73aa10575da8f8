//! Scenario: the files of the audit log fail, are full or hang while clients write, and recover; then the node stops,
//! in every third run with files that hang, in every third with files that fail.
//!
//! The checker demands:
//!
//! - With `block` no event is dropped before the stop, and each acknowledged write has its line, but for at most as
//!   many as the stop counted as dropped.
//! - Without it the lines and the dropped events together are the answered writes, exactly, and no write waits for the
//!   log.
//! - No line is written twice, and none of a write that no client sent.
//! - The queued events stay within the bound: the limit (with `block` twice the limit), and one event for each client.
//! - The node stops within [`STOP_MAX`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use conf::{AuditLogger, Options};
use rt::Rt;
use rt::sim::{SimNode, World, WorldOptions};
use stdx::IoErrorKind;

use crate::client::Answer;
use crate::durability::{NODE, connect, start};
use crate::report::Report;

const DIRECTORY: &str = "/data/logs/audit";
/// Clients, each with one write at a time.
const CLIENTS: u64 = 6;
/// `max_queue_weight`: some forty events.
const LIMIT: u64 = 12_000;
/// More than the weight of any event here.
const EVENT_MAX: u64 = 600;
/// Periods of trouble, with quiet ones between them.
const TROUBLES: u64 = 4;
/// How long a call takes that hangs.
const HANG_MICROS: Range<u64> = 5_000_000..20_000_000;
const HANG_MAX: Duration = Duration::from_micros(HANG_MICROS.end);
/// Longest wait of a write where the log may delay none.
const UNDELAYED: Duration = Duration::from_millis(500);
/// Longest time from the order to the end: closing the log takes at most ten seconds.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Behaviour of the files of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    /// They are written.
    Work,
    /// Every change fails.
    Fail(IoErrorKind),
    /// Every call takes many seconds.
    Hang,
}

/// One run's choices.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Every choice follows from it.
    pub seed: u64,
    /// Shards of the node.
    pub shards: u16,
    /// `block`.
    pub block: bool,
    /// Behaviour of the files while the node stops.
    at_stop: Files,
}

/// The plan of a seed.
pub fn plan(seed: u64) -> Plan {
    let at_stop = [Files::Work, Files::Fail(IoErrorKind::NoSpace), Files::Hang];
    Plan {
        seed,
        shards: [1, 2, 3][(seed / 6 % 3) as usize],
        block: seed.is_multiple_of(2),
        at_stop: at_stop[(seed / 2 % 3) as usize],
    }
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
struct Found {
    /// Writes that clients sent.
    sent: BTreeSet<u64>,
    /// Writes that were acknowledged.
    acknowledged: BTreeSet<u64>,
    /// Writes that were answered by an error.
    refused: u64,
    /// The first of these errors.
    refusal: Option<String>,
    /// The longest that an answer took.
    waited: Duration,
    /// Lines by the write that they record.
    lines: BTreeMap<u64, u64>,
    /// Events that were dropped before the stop was ordered, and in total.
    dropped_before_stop: u64,
    dropped: u64,
    /// Most bytes of queued events.
    queued: u64,
    /// How long the stop took; `None`: too long.
    stopped: Option<Duration>,
}

impl Found {
    fn check(&self, plan: &Plan) -> Result<(), String> {
        if let Some((write, times)) = self.lines.iter().find(|(_, times)| **times > 1) {
            return Err(format!("{times} lines record the write {write}"));
        }
        if let Some(write) = self.lines.keys().find(|write| !self.sent.contains(write)) {
            return Err(format!("a line records the write {write}, which no client sent"));
        }
        if self.stopped.is_none() {
            return Err(format!("the node did not stop within {STOP_MAX:?}"));
        }
        let limit = if plan.block { 2 * LIMIT } else { LIMIT };
        let bound = limit + CLIENTS * EVENT_MAX;
        if self.queued > bound {
            return Err(format!(
                "{} bytes of events were queued, the bound is {bound}",
                self.queued
            ));
        }
        match plan.block {
            true => self.check_blocking(plan),
            false => self.check_dropping(plan),
        }
    }

    fn check_blocking(&self, plan: &Plan) -> Result<(), String> {
        if self.dropped_before_stop > 0 {
            return Err(format!("{} events were dropped with block", self.dropped_before_stop));
        }
        let missing = self.missing();
        if missing > self.dropped {
            let dropped = self.dropped;
            return Err(format!(
                "{missing} acknowledged writes have no line, {dropped} were dropped"
            ));
        }
        if plan.at_stop == Files::Work && missing > 0 {
            return Err(format!("a stop with working files lost {missing} events"));
        }
        Ok(())
    }

    fn check_dropping(&self, plan: &Plan) -> Result<(), String> {
        if self.refused > 0 || self.waited > UNDELAYED {
            return Err(format!(
                "the log delayed a write by {:?}, {} were refused ({:?})",
                self.waited, self.refused, self.refusal
            ));
        }
        let missing = self.missing();
        // A write that hangs when its batch is abandoned may still reach the file.
        let is_exact = plan.at_stop != Files::Hang;
        if missing > self.dropped || (is_exact && missing != self.dropped) {
            let dropped = self.dropped;
            return Err(format!(
                "{missing} answered writes have no line, {dropped} count as dropped"
            ));
        }
        Ok(())
    }

    /// Acknowledged writes without a line.
    fn missing(&self) -> u64 {
        let has_none = |write: &&u64| !self.lines.contains_key(*write);
        self.acknowledged.iter().filter(has_none).count() as u64
    }
}

type Shared = Rc<RefCell<Found>>;

/// Order to the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Go {
    On,
    Ended { clients: u64 },
}

async fn create(rt: Rt, address: SocketAddr, done: Rc<RefCell<bool>>) {
    let mut client = connect(&rt, address).await;
    for text in [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE ks.t (k bigint PRIMARY KEY, v int)",
    ] {
        assert_eq!(client.query(text).await, Ok(Answer::Done), "{text}");
    }
    *done.borrow_mut() = true;
}

/// Writes keys of its own, until it is ordered to end.
async fn write(rt: Rt, address: SocketAddr, number: u64, found: Shared, go: Rc<RefCell<Go>>) {
    let mut client = connect(&rt, address).await;
    // Longer than an answer waits for the log.
    client.set_answer_timeout(Duration::from_secs(60));
    for turn in 0.. {
        if *go.borrow() != Go::On {
            break;
        }
        let key = turn * CLIENTS + number;
        found.borrow_mut().sent.insert(key);
        let began = rt.now();
        let answer = client.query(&format!("INSERT INTO ks.t (k, v) VALUES ({key}, 1)")).await;
        let waited = rt.now().since(began);
        {
            let mut found = found.borrow_mut();
            found.waited = found.waited.max(waited);
            match answer {
                Ok(Answer::Done) => drop(found.acknowledged.insert(key)),
                other => {
                    found.refused += 1;
                    found.refusal.get_or_insert_with(|| format!("{other:?}"));
                }
            }
        }
        rt.sleep(Duration::from_micros(1_000 + rt.random_u64() % 20_000)).await;
    }
    if let Go::Ended { clients } = &mut *go.borrow_mut() {
        *clients += 1;
    }
}

fn total(node: &SimNode, name: &str) -> u64 {
    let snapshot = node.telemetry();
    let of_name = snapshot.metrics.iter().filter(|metric| metric.name == name);
    let value = |metric: &telemetry::Metric| match metric.value {
        telemetry::Value::Gauge(n) => u64::try_from(n).unwrap_or(0),
        telemetry::Value::Counter(n) => n,
        telemetry::Value::Histogram(_) | telemetry::Value::Latency(_) => 0,
    };
    of_name.map(value).sum()
}

fn options(plan: &Plan) -> Options {
    let mut options = Options { workdir: "/data".to_owned(), ..Options::default() };
    options.smp = Some(plan.shards);
    options.start_native_transport = true;
    options.native_shard_aware_transport_port = 0;
    options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
    options.broadcast_rpc_address = Some(conf::Address::Ip([127, 0, 0, 1].into()));
    let audit = &mut options.audit_logging_options;
    audit.enabled = true;
    audit.logger = AuditLogger::File;
    audit.audit_logs_dir = Some(DIRECTORY.to_owned());
    audit.included_categories = "DML".to_owned();
    audit.log.block = plan.block;
    audit.log.max_queue_weight = LIMIT;
    options
}

struct Run<'p> {
    plan: &'p Plan,
    world: World,
    node: SimNode,
    found: Shared,
    troubles: u64,
}

impl Run<'_> {
    fn set(&self, files: Files) {
        let disk = self.world.disk(NODE);
        disk.clear_faults();
        match files {
            Files::Work => {}
            Files::Fail(kind) => disk.set_failing_below(Some((DIRECTORY, kind))),
            Files::Hang => disk.set_slow_below(Some((DIRECTORY, HANG_MICROS))),
        }
    }

    fn random(&self, range: Range<u64>) -> u64 {
        range.start + self.world.random_u64() % (range.end - range.start)
    }

    /// Lets time pass; notes how full the queues are.
    fn pass(&self, time: Duration) {
        let step = Duration::from_millis(20);
        for _ in 0..time.as_millis() / step.as_millis() {
            self.world.run_for(step);
            let queued = total(&self.node, "audit_queue_bytes");
            let mut found = self.found.borrow_mut();
            found.queued = found.queued.max(queued);
        }
    }

    fn make_trouble(&mut self) {
        for _ in 0..TROUBLES {
            self.pass(Duration::from_millis(self.random(500..3_000)));
            self.set(match self.random(0..4) {
                0 => Files::Fail(IoErrorKind::NoSpace),
                1 => Files::Fail(IoErrorKind::Device),
                _ => Files::Hang,
            });
            self.troubles += 1;
            self.pass(Duration::from_millis(self.random(500..25_000)));
            self.set(Files::Work);
        }
        // Calls that hang are over before the stop, unless it is with files that hang.
        self.pass(HANG_MAX + Duration::from_millis(self.random(1_000..10_000)));
    }

    /// Ends the clients, each with its last answer.
    fn end_clients(&self, go: &Rc<RefCell<Go>>) -> Result<(), String> {
        *go.borrow_mut() = Go::Ended { clients: 0 };
        let ended = || *go.borrow() == Go::Ended { clients: CLIENTS };
        let result = self.world.run_until(ended, Duration::from_secs(120));
        result.map(drop).map_err(|stuck| format!("a client got no answer: {stuck:?}"))
    }

    /// Stops the node and reads its log.
    fn stop(&self) {
        let (began, node) = (self.world.now(), &self.node);
        self.found.borrow_mut().dropped_before_stop = total(node, "audit_events_dropped_total");
        node.request_stop();
        let stopped = self.world.run_until(|| !self.world.is_alive(node), STOP_MAX);
        let mut found = self.found.borrow_mut();
        found.stopped = stopped.is_ok().then(|| self.world.now().since(began));
        found.dropped = total(node, "audit_events_dropped_total");
        let disk = self.world.disk(NODE);
        for path in disk.list().iter().filter(|path| path.starts_with(DIRECTORY)) {
            let text = disk.read(path).unwrap_or_default();
            for line in String::from_utf8_lossy(&text).lines() {
                if let Some(write) = write_of(line) {
                    *found.lines.entry(write).or_default() += 1;
                }
            }
        }
    }
}

/// The key of a write, from its line.
fn write_of(line: &str) -> Option<u64> {
    let (_, statement) = line.split_once("|operation:INSERT INTO ks.t (k, v) VALUES (")?;
    statement.strip_suffix(", 1)")?.parse().ok()
}

/// Runs one plan.
///
/// # Errors
/// What the checker found, or that the world got stuck.
pub fn run(plan: &Plan) -> Result<Report, String> {
    run_with(plan, &options(plan))
}

fn run_with(plan: &Plan, options: &Options) -> Result<Report, String> {
    let world = World::new(plan.seed, WorldOptions::default());
    let address = SocketAddr::new(world.ip(NODE), options.native_transport_port);
    let (node, outcome) = start(&world, options);
    let created = Rc::new(RefCell::new(false));
    let flag = created.clone();
    let mut clients = vec![world.client("creator", move |rt| create(rt, address, flag))];
    let result = world.run_until(|| *created.borrow(), Duration::from_secs(60));
    result.map_err(|stuck| format!("the table was not made: {stuck:?}; {outcome:?}"))?;
    let (found, go) = (Shared::default(), Rc::new(RefCell::new(Go::On)));
    for number in 0..CLIENTS {
        let (found, go) = (found.clone(), go.clone());
        let name = format!("writer{number}");
        clients.push(world.client(&name, move |rt| write(rt, address, number, found, go)));
    }
    let mut run = Run { plan, world, node, found, troubles: 0 };
    run.make_trouble();
    run.set(run.plan.at_stop);
    if run.plan.at_stop != Files::Work {
        // Events are queued when the stop comes.
        run.pass(Duration::from_millis(run.random(100..5_000)));
    }
    run.end_clients(&go)?;
    run.stop();
    let found = run.found.borrow().clone();
    let summary = format!(
        "{} acknowledged, {} refused, {} lines, {} dropped",
        found.acknowledged.len(),
        found.refused,
        found.lines.len(),
        found.dropped
    );
    found.check(plan).map_err(|error| format!("{error}; {summary}; {plan:?}"))?;
    if found.acknowledged.len() < 200 {
        return Err(format!("too little was written: {summary}"));
    }
    for client in &clients {
        run.world.kill(client);
    }
    let mut report = Report {
        trace: run.world.trace_hash(),
        checkpoints: run.world.trace_checkpoints(),
        operations: found.sent.len(),
        acknowledged: found.acknowledged.len(),
        ..Report::default()
    };
    report.probes.add_node(&run.node.telemetry());
    report.probes.bump("audit event dropped", found.dropped);
    report.probes.bump("write refused by a full audit log", found.refused);
    report.faults.insert("audit files fail or hang", run.troubles);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(writes: u64, without_line: u64, dropped: u64) -> Found {
        let all: BTreeSet<u64> = (0..writes).collect();
        Found {
            sent: all.clone(),
            acknowledged: all,
            lines: (without_line..writes).map(|write| (write, 1)).collect(),
            dropped,
            stopped: Some(Duration::from_secs(1)),
            ..Found::default()
        }
    }

    fn with(block: bool, at_stop: Files) -> Plan {
        Plan { seed: 0, shards: 1, block, at_stop }
    }

    #[test]
    fn the_checker_counts_every_acknowledged_write() {
        use Files::{Fail, Hang, Work};
        let full = Fail(IoErrorKind::NoSpace);
        for (block, at_stop, without_line, dropped, expected) in [
            (true, Work, 0, 0, true),
            (true, Work, 1, 0, false),
            // Also where the node counts it.
            (true, Work, 1, 1, false),
            (true, full, 3, 3, true),
            (true, full, 3, 2, false),
            (true, Hang, 2, 3, true),
            (false, Work, 3, 3, true),
            (false, Work, 3, 2, false),
            (false, Work, 3, 4, false),
            (false, Hang, 3, 4, true),
            (false, Hang, 3, 2, false),
        ] {
            let seen = found(10, without_line, dropped).check(&with(block, at_stop));
            assert_eq!(
                seen.is_ok(),
                expected,
                "{block} {at_stop:?} {without_line} {dropped}: {seen:?}"
            );
        }
    }

    #[test]
    fn the_checker_sees_bounds_doubled_lines_and_slow_stops() {
        let (good, plan) = (found(10, 0, 0), with(true, Files::Work));
        let doubled = [(3, 2)].into_iter().collect();
        let invented = [(11, 1)].into_iter().collect();
        for bad in [
            Found { lines: doubled, ..good.clone() },
            Found { lines: invented, ..good.clone() },
            Found { stopped: None, ..good.clone() },
            Found { queued: 2 * LIMIT + CLIENTS * EVENT_MAX + 1, ..good.clone() },
            Found { dropped_before_stop: 1, dropped: 1, ..good.clone() },
        ] {
            assert!(bad.check(&plan).is_err(), "{bad:?}");
        }
        let edge = Found { queued: 2 * LIMIT + CLIENTS * EVENT_MAX, ..good.clone() };
        assert_eq!(edge.check(&plan), Ok(()));
        let dropping = with(false, Files::Work);
        assert!(edge.check(&dropping).is_err(), "without block the limit is not doubled");
        assert!(Found { refused: 1, ..good.clone() }.check(&dropping).is_err());
        assert!(Found { refused: 1, ..good }.check(&plan).is_ok());
    }

    /// Runs a plan on a node that is configured for the opposite.
    fn contrary(seed: u64) -> String {
        let plan = plan(seed);
        let mut options = options(&plan);
        options.audit_logging_options.log.block = !plan.block;
        run_with(&plan, &options).err().unwrap_or_default()
    }

    #[test]
    fn a_node_that_drops_events_and_one_that_delays_writes_are_seen() {
        let dropping = contrary(0);
        assert!(dropping.contains("events were dropped with block"), "{dropping}");
        let delaying = contrary(1);
        // A node that delays writes also queues more than one that drops events may.
        let seen = ["the log delayed a write", "bytes of events were queued"];
        assert!(seen.iter().any(|error| delaying.contains(error)), "{delaying}");
    }

    #[test]
    fn a_line_names_its_write() {
        let line = "INFO  [x] 2026 - user:u|type:UPDATE|category:DML|ks:ks|scope:t|operation:INSERT INTO ks.t (k, v) VALUES (17, 1)";
        assert_eq!(write_of(line), Some(17));
        assert_eq!(write_of(&line[..line.len() - 1]), None, "cut off");
    }
}
