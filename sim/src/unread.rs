//! Scenario: clients that send read after read and read no answer, beside one that behaves.
//!
//! The checker demands that what the node holds for requests stays within its share of the memory, that
//! the client that behaves is answered, every time and soon, and that those that read nothing are closed in the
//! end, unless all they asked for was refused.

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
/// How long the others go on; a client that reads nothing is closed after a minute at the latest.
const LENGTH: Duration = Duration::from_secs(90);

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

/// What a run has shown.
#[derive(Clone, Debug, Default)]
struct Found {
    /// Answers to the client that behaves.
    answered: usize,
    /// The longest that it waited.
    waited: Duration,
    /// An answer that was none.
    refused: Option<String>,
    /// Most bytes held for requests.
    held: i64,
    /// Clients that were closed as they read nothing.
    closed: i64,
    /// Bytes that they had asked for.
    asked: i64,
}

impl Found {
    fn check(&self, hostile: usize) -> Result<(), String> {
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
        // One whose reads were all refused has nothing left to read.
        if self.closed < 1 {
            return Err(format!("none of {hostile} clients that read nothing is closed"));
        }
        Ok(())
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

/// Sends reads and reads nothing.
async fn ask_only(rt: Rt, address: SocketAddr, reads: usize) {
    let mut client = connect(&rt, address).await;
    // An error: it was closed.
    let _ = client
        .send_only((0..reads).map(|n| format!("SELECT v FROM ks.big WHERE k = {}", n % 10)))
        .await;
    rt.sleep(LENGTH * 2).await;
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
    let mut clients = vec![world.client("light", move |rt| behave(rt, address, noted))];
    for number in 0..plan.hostile {
        let reads = plan.reads;
        let name = format!("hostile{number}");
        clients.push(world.client(&name, move |rt| ask_only(rt, address, reads)));
    }
    let (mut ticks, step) = (0, Duration::from_millis(20));
    while step * ticks < LENGTH {
        world.run_for(step);
        ticks += 1;
        let held = number(&node, "cql_request_memory_bytes");
        let mut found = found.borrow_mut();
        found.held = found.held.max(held);
    }
    let mut found = found.borrow().clone();
    found.closed = number(&node, "cql_connections_stalled_total");
    found.asked = (plan.hostile * plan.reads * plan.rows * 10_000) as i64;
    found.check(plan.hostile).map_err(|error| format!("{error}; {found:?}"))?;
    for client in &clients {
        world.kill(client);
    }
    drop(node);
    let (trace, checkpoints) = (world.trace_hash(), world.trace_checkpoints());
    let operations = found.answered + plan.hostile * plan.reads;
    Ok(Report { trace, checkpoints, operations, acknowledged: found.answered, ..Report::default() })
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
            closed: 2,
            ..Found::default()
        };
        assert_eq!(good.check(2), Ok(()));
        for bad in [
            Found { held: HELD_MAX + 1, ..good.clone() },
            Found { waited: PATIENCE * 2, ..good.clone() },
            Found { refused: Some("Overloaded".to_owned()), ..good.clone() },
            Found { answered: 3, ..good.clone() },
            Found { closed: 0, ..good.clone() },
        ] {
            assert!(bad.check(2).is_err(), "{bad:?}");
        }
    }
}
