//! Scenario: clients that send reads without reading the answers, beside one that behaves and one
//! that reads slowly.
//!
//! The checker demands:
//!
//! - The node's memory for requests stays within its share, by its own account and by the
//!   allocator.
//! - The client that behaves is answered, every time and soon.
//! - The slow reader is never closed and gets every answer.
//! - Each client that reads nothing is paused and then closed. One that is still connected at the
//!   end must find all its answers in the buffers of its socket: the node holds nothing for it (the
//!   reads of such a client were refused for lack of memory).

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use conf::{MemorySize, Options};
use rt::Rt;
use rt::sim::{SimNode, World, WorldOptions};

use crate::client::Answer;
use crate::durability::{NODE, connect, start};
use crate::report::Report;

/// Memory of the node: the least that the setting accepts.
const MEMORY: u64 = 64 << 20;
/// Most that is held for requests: their share of 15 %, and a quarter more for what cannot be refused.
const HELD_MAX: i64 = (MEMORY as i64 / 100) * 15 * 5 / 4;
/// How long the client that behaves may wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// Duration for the other clients; a client that reads nothing is closed after a minute at the
/// latest.
const LENGTH: Duration = Duration::from_secs(90);
/// Bytes that an open client finds when it reads at last must be in the buffers of the two sockets,
/// and arrive in a few round trips.
const LEFT_TIME: Duration = Duration::from_millis(100);
/// Rows that the client that reads slowly reads.
const SLOW_ROWS: usize = 100;
/// Its pace: 20 kB/s, so that it reads for some 50 s.
const SLOW_STEP: (usize, Duration) = (4 << 10, Duration::from_millis(200));
/// Most bytes that the process may grow by: memory held for requests, and sockets' buffers of both
/// sides of each connection. Memtables, caches and the simulated disk do not grow while clients
/// read.
fn grown_max(hostile: usize) -> i64 {
    HELD_MAX + (6 << 20) + hostile as i64 * (512 << 10)
}

/// One run's choices.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Every choice follows from it.
    pub seed: u64,
    /// Shards of the node.
    pub shards: u16,
    /// Clients that read nothing.
    pub hostile: usize,
    /// Reads that each of them sends.
    pub reads: usize,
    /// Rows of 10 kB of a partition.
    pub rows: usize,
}

/// The plan of a seed.
pub fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        shards: [2, 3, 1][(seed % 3) as usize],
        hostile: [1, 12, 40][(seed / 3 % 3) as usize],
        reads: 300,
        rows: [10, 50][(seed / 2 % 2) as usize],
    }
}

/// Results of a run.
#[derive(Clone, Debug)]
struct Found {
    /// Answers to the client that behaves.
    answered: usize,
    /// The longest that it waited.
    waited: Duration,
    /// An answer that was none.
    refused: Option<String>,
    /// Most bytes held for requests.
    held: i64,
    /// Most bytes that the process has grown by.
    grown: i64,
    /// Clients that were closed as they read nothing, by the node's count.
    closed: i64,
    /// How each client that reads nothing ended.
    ends: Vec<End>,
    /// Answers that the client that reads slowly has read, or why it could not.
    slow: Result<usize, String>,
    /// Bytes of the answers that they requested.
    asked: i64,
}

/// How a client that read nothing ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// It was closed before it had all answers.
    Closed,
    /// All answers were in the sockets' buffers; how many of them were errors.
    Answered { refused: usize },
    /// It was neither closed nor answered within [`LEFT_TIME`]: the node still holds answers for it.
    Held { answers: usize },
}

impl Found {
    fn check(&self, hostile: usize, slow_reads: usize) -> Result<(), String> {
        if let Some(refused) = &self.refused {
            return Err(format!("a small read was answered by {refused}"));
        }
        if self.answered < 50 {
            return Err(format!("only {} small reads were answered", self.answered));
        }
        if self.waited > PATIENCE {
            return Err(format!("a small read waited for {:?}", self.waited));
        }
        if self.held > HELD_MAX {
            return Err(format!("{} bytes were held for requests, of {HELD_MAX}", self.held));
        }
        if self.grown > grown_max(hostile) {
            let most = grown_max(hostile);
            return Err(format!("the process has grown by {} bytes, of {most}", self.grown));
        }
        match &self.slow {
            Ok(read) if *read == slow_reads => {}
            Ok(read) => {
                return Err(format!("a slow reader has {read} of {slow_reads} answers"));
            }
            Err(error) => return Err(format!("a slow reader was closed: {error}")),
        }
        let is_held = |end: &&End| matches!(end, End::Held { .. });
        if let Some(held) = self.ends.iter().find(is_held) {
            return Err(format!(
                "a client that reads nothing is neither closed nor paused: {held:?}"
            ));
        }
        let closed = self.ends.iter().filter(|end| **end == End::Closed).count();
        if self.ends.len() != hostile || closed < 1 || self.closed != closed as i64 {
            let (all, counted) = (self.ends.len(), self.closed);
            return Err(format!(
                "{closed} of {hostile} clients that read nothing were closed, {counted} by the node's count, \
                 {all} have ended"
            ));
        }
        Ok(())
    }
}

impl Default for Found {
    fn default() -> Found {
        Found {
            answered: 0,
            waited: Duration::ZERO,
            refused: None,
            held: 0,
            grown: 0,
            closed: 0,
            ends: Vec::new(),
            slow: Ok(0),
            asked: 0,
        }
    }
}

type Shared = Rc<RefCell<Found>>;

async fn fill(rt: Rt, address: SocketAddr, rows: usize, done: Rc<Cell<bool>>) {
    let mut client = connect(&rt, address).await;
    let text = "x".repeat(10_000);
    let mut statements = vec![
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}".to_owned(),
        "CREATE TABLE ks.big (k int, c int, v text, PRIMARY KEY (k, c))".to_owned(),
        "CREATE TABLE ks.light (k int PRIMARY KEY, v int)".to_owned(),
    ];
    for key in 0..10 {
        statements.push(format!("INSERT INTO ks.light (k, v) VALUES ({key}, {key})"));
        let row = |c| format!("INSERT INTO ks.big (k, c, v) VALUES ({key}, {c}, '{text}')");
        statements.extend((0..rows).map(row));
    }
    for text in statements {
        let answer = client.query(&text).await;
        assert_eq!(answer, Ok(Answer::Done), "{}", text.get(..60).unwrap_or(&text));
    }
    done.set(true);
}

/// Sends reads and reads nothing until the time is up; then checks its connection.
async fn ask_only(rt: Rt, address: SocketAddr, reads: usize, found: Shared) {
    let end = rt.now() + LENGTH;
    let mut client = connect(&rt, address).await;
    let texts = (0..reads).map(|n| format!("SELECT v FROM ks.big WHERE k = {}", n % 10));
    let sent = rt.timeout(end, client.send_only(texts)).await;
    rt.sleep_until(end).await;
    let (mut answers, mut refused) = (0, 0);
    let last = rt.now() + LEFT_TIME;
    let end = loop {
        // All that it sent is answered; what it could not send is not.
        if answers == reads && sent == Ok(Ok(())) {
            break End::Answered { refused };
        }
        match rt.timeout(last, client.next_answer(1 << 20, Duration::ZERO)).await {
            Ok(Ok(answer)) => {
                answers += 1;
                refused += usize::from(matches!(answer, Answer::Error(..)));
            }
            Ok(Err(_)) => break End::Closed,
            Err(_) => break End::Held { answers },
        }
    };
    found.borrow_mut().ends.push(end);
}

/// Reads each answer bit by bit.
async fn read_slowly(rt: Rt, address: SocketAddr, reads: usize, found: Shared) {
    let mut client = connect(&rt, address).await;
    let texts = (0..reads).map(|n| format!("SELECT v FROM ks.big WHERE k = {}", n % 10));
    let sent = client.send_only(texts).await;
    let mut result = sent.map(|()| 0).map_err(|error| format!("{error:?}"));
    for read in 1..=reads {
        if result.is_err() {
            break;
        }
        // Also a refusal is an answer: others have the memory.
        result = match client.next_answer(SLOW_STEP.0, SLOW_STEP.1).await {
            Ok(_) => Ok(read),
            Err(error) => Err(format!("{error:?} after {} answers", read - 1)),
        };
        found.borrow_mut().slow = result.clone();
    }
}

async fn behave(rt: Rt, address: SocketAddr, found: Shared) {
    let mut client = connect(&rt, address).await;
    for key in 0.. {
        let began = rt.now();
        let answer = client.query(&format!("SELECT v FROM ks.light WHERE k = {}", key % 10)).await;
        let waited = rt.now().since(began);
        {
            let mut found = found.borrow_mut();
            match answer {
                Ok(Answer::Rows(rows, None)) if rows.len() == 1 => found.answered += 1,
                other => found.refused = found.refused.take().or(Some(format!("{other:?}"))),
            }
            found.waited = found.waited.max(waited);
        }
        rt.sleep(Duration::from_millis(200)).await;
    }
}

fn number(node: &SimNode, name: &str) -> i64 {
    let snapshot = node.telemetry();
    match snapshot.find(name).map(|metric| metric.value.clone()) {
        Some(telemetry::Value::Gauge(n)) => n,
        Some(telemetry::Value::Counter(n)) => i64::try_from(n).unwrap_or(i64::MAX),
        _ => 0,
    }
}

/// Runs one plan.
///
/// # Errors
/// What the checker found, or that the world got stuck.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let world = World::new(plan.seed, WorldOptions::default());
    let mut options = Options { workdir: "/data".to_owned(), ..Options::default() };
    options.smp = Some(plan.shards);
    options.memory = Some(MemorySize(MEMORY));
    options.start_native_transport = true;
    options.native_shard_aware_transport_port = 0;
    options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
    options.broadcast_rpc_address = Some(conf::Address::Ip([127, 0, 0, 1].into()));
    let address = SocketAddr::new(world.ip(NODE), options.native_transport_port);
    let (node, outcome) = start(&world, &options);
    let filled = Rc::new(Cell::new(false));
    let flag = filled.clone();
    let rows = plan.rows;
    let _filler = world.client("filler", move |rt| fill(rt, address, rows, flag));
    let result = world.run_until(|| filled.get(), Duration::from_secs(300));
    result.map_err(|stuck| format!("the tables were not filled: {stuck:?}; {outcome:?}"))?;

    let found = Shared::default();
    let noted = found.clone();
    let before = rt::held_bytes();
    let mut clients = vec![world.client("light", move |rt| behave(rt, address, noted))];
    let noted = found.clone();
    let slow_reads = SLOW_ROWS / plan.rows;
    clients.push(world.client("slow", move |rt| read_slowly(rt, address, slow_reads, noted)));
    for number in 0..plan.hostile {
        let (reads, noted) = (plan.reads, found.clone());
        let name = format!("hostile{number}");
        clients.push(world.client(&name, move |rt| ask_only(rt, address, reads, noted)));
    }
    let (mut ticks, step) = (0, Duration::from_millis(20));
    while step * ticks < LENGTH {
        world.run_for(step);
        ticks += 1;
        let held = number(&node, "cql_request_memory_bytes");
        let mut found = found.borrow_mut();
        found.held = found.held.max(held);
        found.grown = found.grown.max(rt::held_bytes() - before);
    }
    // The clients look what became of them.
    world.run_for(LEFT_TIME * 4);
    let mut found = found.borrow().clone();
    found.closed = number(&node, "cql_connections_stalled_total");
    found.asked = (plan.hostile * plan.reads * plan.rows * 10_000) as i64;
    found.check(plan.hostile, slow_reads).map_err(|error| format!("{error}; {found:?}"))?;
    for client in &clients {
        world.kill(client);
    }
    drop(node);
    let (trace, checkpoints) = (world.trace_hash(), world.trace_checkpoints());
    let operations = found.answered + plan.hostile * plan.reads;
    let mut report = Report { trace, checkpoints, operations, ..Report::default() };
    report.acknowledged = found.answered;
    report.faults.insert("clients that were closed", u64::try_from(found.closed).unwrap_or(0));
    report.faults.insert("memory grown, kB", u64::try_from(found.grown / 1000).unwrap_or(0));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checker_sees_memory_waits_refusals_and_clients_that_stay() {
        let good = Found {
            answered: 400,
            waited: Duration::from_millis(3),
            held: HELD_MAX,
            grown: grown_max(2),
            closed: 1,
            ends: vec![End::Closed, End::Answered { refused: 300 }],
            slow: Ok(10),
            ..Found::default()
        };
        assert_eq!(good.check(2, 10), Ok(()));
        for bad in [
            Found { held: HELD_MAX + 1, ..good.clone() },
            Found { waited: PATIENCE * 2, ..good.clone() },
            Found { refused: Some("Overloaded".to_owned()), ..good.clone() },
            Found { answered: 3, ..good.clone() },
            Found { closed: 0, ..good.clone() },
            Found { grown: grown_max(2) + 1, ..good.clone() },
            Found { ends: vec![End::Closed], ..good.clone() },
            Found { ends: vec![End::Closed, End::Held { answers: 3 }], ..good.clone() },
            Found { slow: Ok(9), ..good.clone() },
            Found { slow: Err("end of stream".to_owned()), ..good.clone() },
        ] {
            assert!(bad.check(2, 10).is_err(), "{bad:?}");
        }
    }
}
