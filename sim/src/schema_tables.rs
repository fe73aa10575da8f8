//! Scenario: schema changes while memtables or the disk are full. A table whose CREATE was answered
//! appears in `system_schema.tables` soon, also during the fault.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use conf::Options;
use node::Outcome;
use rt::Rt;
use rt::sim::{DiskControl, World, WorldOptions};
use stdx::IoErrorKind;

use crate::client::{Answer, Client};
use crate::durability::{NODE, connect, start};
use crate::report::Report;

const LIMIT: Duration = Duration::from_secs(120);
/// How soon a table must be shown.
const SOON: Duration = Duration::from_secs(2);
const TABLES: usize = 8;
/// Memtables beyond the budget for the rows that show metadata.
const RESERVE_BYTES: usize = 4 << 20;
/// Comment of a table that fills them.
const COMMENT_BYTES: usize = 60_000;
/// Free space of a full disk: an entry of the metadata log takes some 200 bytes, the rows that show
/// it thousands.
const FREE_BYTES: u64 = 2_500;
/// Name of a fault in reports.
const RESERVE_FILLED: &str = "reserve filled";

/// Resource that is full while tables are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// No data file can be written, until memtables are full.
    Memtables,
    /// There is room for entries of the metadata log and for little else.
    Disk,
    /// Like `Memtables`; in addition, tables with very long comments fill the reserve for the rows
    /// that show them. Such a table need not be shown before the fault ends.
    Reserve,
}

/// One run's choices.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    seed: u64,
    shards: u16,
    trouble: Full,
}

/// The choices of a seed.
pub fn plan(seed: u64) -> Plan {
    let all = [Full::Memtables, Full::Disk, Full::Reserve];
    Plan { seed, shards: 1 + (seed / 3 % 3) as u16, trouble: all[(seed % 3) as usize] }
}

/// Checks that all acknowledged tables are shown.
fn all_shown(acknowledged: &BTreeSet<String>, shown: &BTreeSet<String>) -> Result<(), String> {
    match acknowledged.difference(shown).next() {
        Some(table) => Err(format!(
            "{table} was acknowledged and is not in system_schema.tables ({} of {} are)",
            acknowledged.intersection(shown).count(),
            acknowledged.len()
        )),
        None => Ok(()),
    }
}

fn options(plan: &Plan) -> Options {
    let mut options =
        Options { workdir: "/data".to_owned(), smp: Some(plan.shards), ..Options::default() };
    options.native_shard_aware_transport_port = 0;
    options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
    options.broadcast_rpc_address = Some(conf::Address::Ip([127, 0, 0, 1].into()));
    options.memory = Some(conf::MemorySize(4 << 20));
    options
}

fn spoil(disk: &DiskControl, trouble: Full) {
    match trouble {
        Full::Memtables | Full::Reserve => {
            disk.set_failing_below(Some(("-Data.db", IoErrorKind::NoSpace)));
        }
        Full::Disk => disk.set_free_bytes(Some(FREE_BYTES)),
    }
}

#[derive(Default)]
struct Facts {
    acknowledged: BTreeSet<String>,
    refused_rows: u64,
    /// 1 if a table was not shown because the reserve was full.
    fills_of_reserve: u64,
    result: Option<Result<(), String>>,
}

/// Runs one plan.
///
/// # Errors
/// What the checker found, or that the world got stuck.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let world = World::new(plan.seed, WorldOptions::default());
    let options = options(plan);
    let address = SocketAddr::new(world.ip(NODE), options.native_transport_port);
    let (node, outcome) = start(&world, &options);
    let facts: Rc<RefCell<Facts>> = Rc::default();
    wait(&world, &outcome, "the keyspace is made", &facts, {
        move |rt, _| async move {
            let mut client = connect(&rt, address).await;
            for text in [
                "CREATE KEYSPACE ks WITH replication = \
                 {'class': 'SimpleStrategy', 'replication_factor': 1}",
                "CREATE TABLE ks.rows (k int PRIMARY KEY, v text)",
            ] {
                let answer = client.query(text).await;
                assert_eq!(answer, Ok(Answer::Done), "{text}");
            }
            Ok(())
        }
    })?;
    let disk = world.disk(NODE);
    spoil(&disk, plan.trouble);
    let trouble = plan.trouble;
    let made = wait(&world, &outcome, "tables are made", &facts, move |rt, facts| async move {
        let mut client = connect(&rt, address).await;
        make_tables(&rt, &mut client, trouble, &facts).await
    });
    made.map_err(|error| format!("while there is trouble: {error}"))?;
    disk.clear_faults();
    disk.set_free_bytes(None);
    let healed = wait(&world, &outcome, "tables are shown", &facts, move |rt, facts| async move {
        rt.sleep(SOON).await;
        let mut client = connect(&rt, address).await;
        shows_all(&rt, &mut client, &facts).await
    });
    healed.map_err(|error| format!("after the trouble: {error}"))?;
    world.kill(&node);
    let (_node, outcome) = start(&world, &options);
    let again =
        wait(&world, &outcome, "tables are shown again", &facts, move |rt, facts| async move {
            let mut client = connect(&rt, address).await;
            shows_all(&rt, &mut client, &facts).await
        });
    again.map_err(|error| format!("after a restart: {error}"))?;
    let facts = facts.borrow();
    if facts.acknowledged.is_empty() {
        return Err("no table was acknowledged: nothing was tried".to_owned());
    }
    Ok(Report {
        trace: world.trace_hash(),
        checkpoints: world.trace_checkpoints(),
        acknowledged: facts.acknowledged.len(),
        operations: TABLES,
        faults: BTreeMap::from([
            ("rows refused", facts.refused_rows),
            (RESERVE_FILLED, facts.fills_of_reserve),
        ]),
        ..Report::default()
    })
}

fn wait<F: Future<Output = Result<(), String>> + 'static>(
    world: &World,
    outcome: &Arc<Outcome>,
    what: &str,
    facts: &Rc<RefCell<Facts>>,
    work: impl FnOnce(Rt, Rc<RefCell<Facts>>) -> F,
) -> Result<(), String> {
    facts.borrow_mut().result = None;
    let of_client = facts.clone();
    let client = world.client(&format!("c{}", world.random_u64()), |rt| {
        let work = work(rt, of_client.clone());
        async move {
            let result = work.await;
            of_client.borrow_mut().result = Some(result);
        }
    });
    let done = world.run_until(|| facts.borrow().result.is_some(), LIMIT);
    done.map_err(|stuck| format!("{what}: {stuck:?}; {outcome:?}"))?;
    world.kill(&client);
    facts.borrow_mut().result.take().unwrap_or(Ok(()))
}

/// Fills what the plan says, creates tables meanwhile, and reads which are shown.
async fn make_tables(
    rt: &Rt,
    client: &mut Client,
    trouble: Full,
    facts: &Rc<RefCell<Facts>>,
) -> Result<(), String> {
    fill(client, trouble, facts).await;
    let (tables, comment) = match trouble {
        Full::Reserve => (RESERVE_BYTES / COMMENT_BYTES + TABLES, COMMENT_BYTES),
        _ => (TABLES, 0),
    };
    let comment = "x".repeat(comment);
    for i in 0..tables {
        let table = format!("t{i}");
        let text = format!(
            "CREATE TABLE ks.{table} (k int PRIMARY KEY, v text) WITH comment = '{comment}'"
        );
        if client.query(&text).await == Ok(Answer::Done) {
            facts.borrow_mut().acknowledged.insert(table);
        }
    }
    match (shows_all(rt, client, facts).await, trouble) {
        (shown, Full::Reserve) => {
            // A disk that counts as full at this moment admits rows of metadata beyond the reserve.
            facts.borrow_mut().fills_of_reserve += u64::from(shown.is_err());
            Ok(())
        }
        (shown, _) => shown,
    }
}

/// Writes rows until they are refused.
async fn fill(client: &mut Client, trouble: Full, facts: &Rc<RefCell<Facts>>) {
    let filler = "x".repeat(60_000);
    let most = if trouble == Full::Disk { 0 } else { 400 };
    for k in 0..most {
        let text = format!("INSERT INTO ks.rows (k, v) VALUES ({k}, '{filler}')");
        if client.query(&text).await != Ok(Answer::Done) {
            let mut facts = facts.borrow_mut();
            facts.refused_rows += 1;
            if facts.refused_rows > 10 {
                break;
            }
        }
    }
}

/// Reads the tables that are shown until all are, or the time is up.
async fn shows_all(rt: &Rt, client: &mut Client, facts: &Rc<RefCell<Facts>>) -> Result<(), String> {
    let deadline = rt.now() + SOON;
    loop {
        let text = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks'";
        let shown: BTreeSet<String> = match client.query(text).await {
            Ok(Answer::Rows(rows, _)) => rows.iter().filter_map(|row| text_of(row)).collect(),
            other => return Err(format!("{text}: {other:?}")),
        };
        let result = all_shown(&facts.borrow().acknowledged, &shown);
        if result.is_ok() || rt.now() >= deadline {
            return result;
        }
        rt.sleep(Duration::from_millis(100)).await;
    }
}

fn text_of(row: &[Option<Vec<u8>>]) -> Option<String> {
    String::from_utf8(row.first()?.clone()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checker_sees_a_table_that_is_not_shown() {
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert!(all_shown(&of(&["a", "b"]), &of(&["a"])).is_err());
        assert!(all_shown(&of(&["a"]), &of(&["a", "in doubt"])).is_ok());
    }

    #[test]
    fn what_is_acknowledged_is_shown_whatever_is_full() {
        let mut filled = 0;
        for seed in 0..6 {
            let report = run(&plan(seed)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            filled += report.faults.get(RESERVE_FILLED).copied().unwrap_or_default();
        }
        assert_eq!(filled, 2);
    }
}
