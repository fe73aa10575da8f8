//! The clients of a scenario: their requests, and how these are recorded.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use cql_wire::Consistency;
use rt::Rt;

use crate::cells::{self, Cells};
use crate::checks::{created_name, scratch_name};
use crate::client::{Answer, Client, Lost};
use crate::counts::{self, Counts, Doubt, When};
use crate::history::{Action, Ending, History, KEYS_PER_PARTITION, Place, Scan, Scope, place};
use crate::lwt::{self, Conditions, Transactions};
use crate::progress::Progress;
use crate::sabotage::Sabotage;
use crate::scenario::Scenario;

/// Tables that clients create by the same few names.
const CREATED_MAX: u64 = 12;
/// Tables that clients make and drop.
const SCRATCH_MAX: u64 = 3;
/// Columns that clients add and drop.
const COLUMNS_MAX: u64 = 3;
/// Counters that all clients add to.
const COUNTERS: u64 = 12;
/// Timestamps of values are this plus the value: before the world's wall clock.
const STAMP_BASE: i64 = 1_700_000_000_000_000;
/// Rows per page of reads of several keys, so that they take several.
const PAGE_ROWS: i32 = 3;
/// Longer than the server may take, so that a missed limit is seen as such.
const ANSWER_GRACE: Duration = Duration::from_secs(3);

/// The tables that are made before the clients start; `{}` is the replication.
pub const SCHEMA: [&str; 7] = [
    "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {}",
    "CREATE TABLE IF NOT EXISTS ks.registers (k int PRIMARY KEY, v bigint) \
     WITH caching = {'rows_per_partition': 'ALL'}",
    "CREATE TABLE IF NOT EXISTS ks.rows (k int, c int, v bigint, PRIMARY KEY (k, c)) \
     WITH caching = {'rows_per_partition': '3'}",
    "CREATE TABLE IF NOT EXISTS ks.left (k int PRIMARY KEY, b int)",
    "CREATE TABLE IF NOT EXISTS ks.right (k int PRIMARY KEY, b int)",
    lwt::SCHEMA,
    cells::SCHEMA,
];

/// State that the clients of one run share.
#[derive(Default)]
pub struct Shared {
    /// All requests.
    pub history: History,
    /// Outcomes of conditional writes and serial reads.
    pub transactions: Transactions,
    /// Writes to single cells and reads of them.
    pub cells: Cells,
    /// Increments of counters and reads of them.
    pub counts: Counts,
    stamps: BTreeMap<i32, i64>,
    last_batch: i32,
    last_alter: u64,
}

impl Shared {
    /// By key the last value that was sent.
    pub fn keys(&self) -> Vec<i32> {
        self.stamps.keys().copied().collect()
    }

    /// Returns a filter whose limit is near the last values of a key.
    fn filter(&self, key: i32, drawn: u64) -> Scan {
        let last = self.stamps.get(&key).copied().unwrap_or(0);
        let limit = last - (drawn / 4 % 3) as i64;
        match drawn % 4 {
            0 => Scan::Above(0),
            1 => Scan::Below(limit),
            _ => Scan::Above(limit),
        }
    }

    fn next_stamp(&mut self, key: i32) -> i64 {
        let stamp = self.stamps.entry(key).or_default();
        *stamp += 1;
        *stamp
    }
}

/// One client.
pub struct Plan {
    /// Its number, from 0: it writes the keys that have this remainder.
    pub number: u64,
    /// The nodes.
    pub addresses: Vec<SocketAddr>,
    /// Scenario that it follows.
    pub scenario: Rc<Scenario>,
    /// Deliberate errors of the run.
    pub sabotage: Sabotage,
    /// Requests that are left to send.
    pub progress: Rc<Progress>,
}

/// Asks until nothing is left to ask.
pub async fn run(rt: Rt, plan: Plan, shared: Rc<RefCell<Shared>>) {
    let nodes = plan.addresses.len().max(1) as u64;
    let mut node = (plan.number % nodes) as usize;
    while plan.progress.goes_on() {
        let Some(address) = plan.addresses.get(node) else { break };
        if let Ok(mut client) = Client::connect(&rt, *address).await {
            client.set_consistency(match plan.sabotage.weak_levels {
                true => Consistency::One,
                false => Consistency::Quorum,
            });
            ask(&rt, &mut client, node, &plan, &shared).await;
        }
        rt.sleep(Duration::from_millis(20 + rt.random_u64() % 80)).await;
        node = (rt.random_u64() % nodes) as usize;
    }
    plan.progress.ended();
}

/// Asks one node until the connection is lost, or the node cannot serve.
async fn ask(rt: &Rt, client: &mut Client, node: usize, plan: &Plan, shared: &RefCell<Shared>) {
    loop {
        let (number, action, level) = {
            let mut shared = shared.borrow_mut();
            if !plan.progress.take() {
                return;
            }
            let action = choose(rt, plan, &mut shared);
            let (level, scope) = level(rt, plan, action, node);
            (shared.history.begin(node, action, scope, rt.now()), action, level)
        };
        let answered = match action {
            Action::Lwt { part } => transact(rt, client, node, part, plan, shared).await,
            Action::Cells { part } => work_on_cells(rt, client, node, part, plan, shared).await,
            Action::Count { key } => {
                client.set_consistency(level);
                count(rt, client, node, key, plan, shared).await
            }
            _ => {
                client.set_consistency(level);
                let answer = perform_text(client, action, &text_of(action, plan)).await;
                answered(action, answer)
            }
        };
        let (ending, is_lost) = answered;
        let goes_on = !is_lost && ending != Ending::Refused;
        let is_done = matches!(ending, Ending::Done | Ending::Found(_) | Ending::Listed(_));
        shared.borrow_mut().history.end(number, rt.now(), ending);
        if !goes_on {
            return;
        }
        // A client whose request failed does not retry at once.
        let think = plan.scenario.think.as_micros() as u64 * if is_done { 1 } else { 10 };
        rt.sleep(Duration::from_micros(rt.random_u64() % think.max(1))).await;
    }
}

/// Returns the level of a request, and its scope.
///
/// With several datacenters every second key is written at EACH_QUORUM, and half of its reads are
/// at LOCAL_QUORUM.
fn level(rt: &Rt, plan: &Plan, action: Action, node: usize) -> (Consistency, Scope) {
    if plan.sabotage.weak_levels {
        return (Consistency::One, Scope::Quorum);
    }
    let is_far = plan.scenario.datacenters > 1;
    let of_each = |key: i32| is_far && key.rem_euclid(4) >= 2;
    if plan.scenario.levels
        && let Some(found) = paired_level(action)
    {
        return found;
    }
    match action {
        Action::Write { key, .. } | Action::Delete { key, .. } if of_each(key) => {
            (Consistency::EachQuorum, Scope::Everywhere)
        }
        Action::Read { key } if of_each(key) && rt.random_u64().is_multiple_of(2) => {
            let datacenter = plan.scenario.datacenter(node as u64);
            (Consistency::LocalQuorum, Scope::Local(datacenter))
        }
        _ => (Consistency::Quorum, Scope::Quorum),
    }
}

/// Returns levels other than QUORUM, by key: those of its writes and those of its reads meet in a
/// replica, except writes at ANY.
fn paired_level(action: Action) -> Option<(Consistency, Scope)> {
    let (key, is_write) = match action {
        Action::Write { key, .. } | Action::Delete { key, .. } => (key, true),
        Action::Read { key } => (key, false),
        _ => return None,
    };
    let (write, read) = match key.div_euclid(2) % 6 {
        0 => (Consistency::All, Consistency::One),
        1 => (Consistency::One, Consistency::All),
        2 => (Consistency::Two, Consistency::Two),
        3 => (Consistency::Three, Consistency::LocalOne),
        4 => (Consistency::Any, Consistency::LocalQuorum),
        _ => return None,
    };
    let scope = if write == Consistency::Any { Scope::Any } else { Scope::Paired };
    Some((if is_write { write } else { read }, scope))
}

/// A write or read of single cells: written only by the client that they belong to.
async fn work_on_cells(
    rt: &Rt,
    client: &mut Client,
    node: usize,
    part: i32,
    plan: &Plan,
    shared: &RefCell<Shared>,
) -> (Ending, bool) {
    client.set_answer_timeout(Action::Cells { part }.limit() + ANSWER_GRACE);
    client.set_consistency(match plan.sabotage.weak_levels {
        true => Consistency::One,
        false => Consistency::Quorum,
    });
    let request = match part as u64 % plan.scenario.clients == plan.number {
        true => cells::Request::choose(rt, &plan.scenario),
        false => cells::Request::Read,
    };
    let of_cells = |work: &mut dyn FnMut(&mut Cells)| work(&mut shared.borrow_mut().cells);
    match cells::perform(rt, client, part, request, node, of_cells).await {
        Ok(ending) => (ending, false),
        Err(Lost(why)) => (Ending::Unknown(why), true),
    }
}

/// An increment or read of a counter.
async fn count(
    rt: &Rt,
    client: &mut Client,
    node: usize,
    key: i32,
    plan: &Plan,
    shared: &RefCell<Shared>,
) -> (Ending, bool) {
    client.set_answer_timeout(Action::Count { key }.limit() + ANSWER_GRACE);
    let of_counts = |work: &mut dyn FnMut(&mut Counts)| work(&mut shared.borrow_mut().counts);
    let doubt = match plan.sabotage.repeated_increments {
        true => Doubt::SentAgain,
        false => Doubt::Left,
    };
    let by = 1 + (rt.random_u64() % 4) as i64;
    let mut others = vec![(key, by)];
    let answer = match rt.random_u64() % 8 {
        0 | 1 => counts::read(rt, client, key, node, When::Meanwhile, of_counts).await,
        n @ (2 | 3) => {
            // A counter batch: of several partitions, and of one partition twice.
            let more = (1..n as i32).map(|step| ((key + step) % COUNTERS as i32, by + 1));
            others.extend(more);
            others.push((key, 1));
            counts::add(rt, client, &others, doubt, of_counts).await
        }
        _ => counts::add(rt, client, &others, doubt, of_counts).await,
    };
    match answer {
        Ok(ending) => (ending, false),
        Err(Lost(why)) => (Ending::Unknown(why), true),
    }
}

fn text_of(action: Action, plan: &Plan) -> String {
    let text = statement(action);
    match plan.sabotage.unlogged_batches {
        true => text.replace("BEGIN BATCH", "BEGIN UNLOGGED BATCH"),
        false => text,
    }
}

/// Returns the outcome of an answer, and true if the connection is lost.
fn answered(action: Action, answer: Result<Answer, Lost>) -> (Ending, bool) {
    let is_lost = answer.is_err();
    (ending(action, answer), is_lost)
}

/// A conditional write or serial read.
async fn transact(
    rt: &Rt,
    client: &mut Client,
    node: usize,
    part: i32,
    plan: &Plan,
    shared: &RefCell<Shared>,
) -> (Ending, bool) {
    client.set_answer_timeout(Action::Lwt { part }.limit() + ANSWER_GRACE);
    let (serial, part) = match lwt::level(&plan.scenario, part, node, rt.random_u64()) {
        Some(serial) => (serial, part),
        None => (Consistency::Serial, part - 1),
    };
    // Decided values must reach a quorum of the replicas that others read, and no more.
    client.set_consistency(match serial {
        Consistency::LocalSerial => Consistency::LocalQuorum,
        _ => Consistency::Quorum,
    });
    let (request, ticket) = {
        let transactions = &mut shared.borrow_mut().transactions;
        let request = transactions.choose(rt, part);
        (request, transactions.begin(part, node, request, rt.now()))
    };
    let conditions = match plan.sabotage.unconditional {
        true => Conditions::LeftOut,
        false => Conditions::Sent,
    };
    let (seen, ending) = lwt::perform(client, part, request, serial, conditions).await;
    client.set_consistency(Consistency::Quorum);
    shared.borrow_mut().transactions.end(ticket, rt.now(), seen);
    match ending {
        Ok(ending) => (ending, false),
        Err(Lost(why)) => (Ending::Unknown(why), true),
    }
}

fn choose(rt: &Rt, plan: &Plan, shared: &mut Shared) -> Action {
    let (scenario, mix) = (&plan.scenario, plan.scenario.mix);
    let any_key = (rt.random_u64() % scenario.keys) as i32;
    // The next key down that is this client's; there are at least as many keys as clients.
    let of_mine = rt.random_u64() % (scenario.keys / scenario.clients).max(1);
    let own_key = (of_mine * scenario.clients + plan.number) as i32;
    let mut n = rt.random_u64() % mix.total();
    let mut is_it = |share: u64| {
        let is_it = n < share;
        n = n.saturating_sub(share);
        is_it
    };
    if is_it(mix.write) {
        Action::Write { key: own_key, stamp: shared.next_stamp(own_key) }
    } else if is_it(mix.read) {
        Action::Read { key: any_key }
    } else if is_it(mix.scan) {
        let reversed = rt.random_u64().is_multiple_of(2);
        match rt.random_u64() % 3 {
            0 => Action::Table {
                how: {
                    let drawn = rt.random_u64();
                    match drawn % 3 {
                        0 => Scan::Rows,
                        1 => shared.filter(any_key, drawn / 3),
                        _ => Scan::Groups,
                    }
                },
            },
            _ => Action::Partition { partition: any_key / KEYS_PER_PARTITION, reversed },
        }
    } else if is_it(mix.delete) {
        Action::Delete { key: own_key, stamp: shared.next_stamp(own_key) }
    } else if is_it(mix.batch) {
        shared.last_batch += 1;
        Action::Batch { batch: shared.last_batch }
    } else if is_it(mix.lwt) {
        Action::Lwt { part: (rt.random_u64() % scenario.lwt_partitions) as i32 }
    } else if is_it(mix.cells) {
        // Two partitions of each client; mostly its own, to write to them.
        let owner = match rt.random_u64() % 4 {
            0 => rt.random_u64() % scenario.clients,
            _ => plan.number,
        };
        let of_owner = rt.random_u64() % 2;
        Action::Cells { part: (of_owner * scenario.clients + owner) as i32 }
    } else if is_it(mix.count) {
        Action::Count { key: (rt.random_u64() % COUNTERS) as i32 }
    } else if is_it(mix.alter) {
        shared.last_alter += 1;
        Action::Alter { number: shared.last_alter }
    } else if is_it(mix.scratch) {
        let is_drop = rt.random_u64().is_multiple_of(2);
        Action::Scratch { table: rt.random_u64() % SCRATCH_MAX, is_drop }
    } else {
        Action::Create { table: rt.random_u64() % CREATED_MAX }
    }
}

/// The table of a key and its primary key there: column names and values.
fn primary_key(key: i32) -> (&'static str, Vec<(&'static str, i32)>) {
    match place(key) {
        Place::Register(k) => ("ks.registers", vec![("k", k)]),
        Place::Row(k, c) => ("ks.rows", vec![("k", k), ("c", c)]),
    }
}

fn condition(key: &[(&str, i32)]) -> String {
    let parts: Vec<String> = key.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    parts.join(" AND ")
}

/// The statement of an action.
pub fn statement(action: Action) -> String {
    match action {
        Action::Write { key, stamp } => {
            let (table, key) = primary_key(key);
            let names: Vec<&str> = key.iter().map(|(name, _)| *name).collect();
            let values: Vec<String> = key.iter().map(|(_, value)| value.to_string()).collect();
            format!(
                "INSERT INTO {table} ({}, v) VALUES ({}, {stamp}) USING TIMESTAMP {}",
                names.join(", "),
                values.join(", "),
                STAMP_BASE + stamp
            )
        }
        Action::Delete { key, stamp } => {
            let (table, key) = primary_key(key);
            let stamp = STAMP_BASE + stamp;
            format!("DELETE FROM {table} USING TIMESTAMP {stamp} WHERE {}", condition(&key))
        }
        Action::Read { key } => {
            let (table, key) = primary_key(key);
            format!("SELECT v FROM {table} WHERE {}", condition(&key))
        }
        Action::Partition { partition, reversed } => {
            let order = if reversed { " ORDER BY c DESC" } else { "" };
            format!("SELECT c, v FROM ks.rows WHERE k = {partition}{order}")
        }
        Action::Table { how } => match how {
            Scan::Rows => "SELECT k, v FROM ks.registers".to_owned(),
            Scan::Above(least) => {
                format!("SELECT k, v FROM ks.registers WHERE v >= {least} ALLOW FILTERING")
            }
            Scan::Below(limit) => {
                format!("SELECT k, v FROM ks.registers WHERE v < {limit} ALLOW FILTERING")
            }
            Scan::Groups => "SELECT k, max(v) FROM ks.registers GROUP BY k".to_owned(),
        },
        Action::Batch { batch } => {
            let (left, right) = (2 * batch, 2 * batch + 1);
            format!(
                "BEGIN BATCH INSERT INTO ks.left (k, b) VALUES ({left}, {batch}); \
                 INSERT INTO ks.right (k, b) VALUES ({right}, {batch}); APPLY BATCH"
            )
        }
        Action::Lwt { part } => lwt::Request::Read.statement(part),
        Action::Cells { part } => format!("SELECT c, s, v, m FROM ks.cells WHERE k = {part}"),
        Action::Count { key } => format!("SELECT n FROM ks.counts WHERE k = {key}"),
        Action::Alter { number } => {
            let column = number / 3 % COLUMNS_MAX;
            match number % 3 {
                1 => format!("ALTER TABLE ks.registers WITH comment = 'change {number}'"),
                2 => format!("ALTER TABLE ks.registers ADD IF NOT EXISTS extra{column} text"),
                _ => format!("ALTER TABLE ks.registers DROP IF EXISTS extra{}", number % 5),
            }
        }
        Action::Scratch { table, is_drop } => {
            let name = scratch_name(table);
            match is_drop {
                true => format!("DROP TABLE IF EXISTS ks.{name}"),
                false => format!("CREATE TABLE IF NOT EXISTS ks.{name} (k int PRIMARY KEY, v int)"),
            }
        }
        Action::Create { table } => {
            let name = created_name(table);
            format!("CREATE TABLE IF NOT EXISTS ks.{name} (k int PRIMARY KEY, v text)")
        }
    }
}

/// Sends an action and waits for its answer; of reads of several keys all pages.
///
/// # Errors
/// `Lost` when there is none.
pub async fn perform(client: &mut Client, action: Action) -> Result<Answer, Lost> {
    perform_text(client, action, &statement(action)).await
}

async fn perform_text(client: &mut Client, action: Action, text: &str) -> Result<Answer, Lost> {
    client.set_answer_timeout(action.limit() + ANSWER_GRACE);
    if let Action::Read { .. } = action {
        // Prepared once for a connection; plans again when the table has changed.
        return client.query_prepared(text).await;
    }
    if !matches!(action, Action::Partition { .. } | Action::Table { .. }) {
        return client.query(text).await;
    }
    let mut rows = Vec::new();
    let mut state: Option<Vec<u8>> = None;
    loop {
        match client.query_page(text, Some(PAGE_ROWS), state.as_deref()).await? {
            Answer::Rows(page, next) => {
                rows.extend(page);
                state = next;
                if state.is_none() {
                    return Ok(Answer::Rows(rows, None));
                }
            }
            other => return Ok(other),
        }
    }
}

/// The rows of several keys.
fn listed(rows: &[Vec<Option<Vec<u8>>>]) -> Ending {
    let mut list = BTreeMap::new();
    for row in rows {
        let bytes = |i: usize| row.get(i).and_then(|v| v.as_deref());
        let key = bytes(0).and_then(|b| b.try_into().ok()).map(i32::from_be_bytes);
        let value = bytes(1).and_then(|b| b.try_into().ok()).map(i64::from_be_bytes);
        let (Some(key), Some(value)) = (key, value) else {
            return Ending::Wrong(format!("half a row: {row:?}"));
        };
        if list.insert(key, value).is_some() {
            return Ending::Wrong(format!("key {key} came twice in one sequence of pages"));
        }
    }
    Ending::Listed(list)
}

fn is_of_schema(action: Action) -> bool {
    matches!(action, Action::Create { .. } | Action::Alter { .. } | Action::Scratch { .. })
}

/// Returns the outcome of an answer.
pub fn ending(action: Action, answer: Result<Answer, Lost>) -> Ending {
    match (action, answer) {
        (_, Err(Lost(why))) => Ending::Unknown(why),
        (Action::Read { .. }, Ok(Answer::Rows(rows, _))) => match rows.as_slice() {
            [] => Ending::Found(None),
            [row] => match row.first().and_then(|v| v.as_deref()).map(<[u8; 8]>::try_from) {
                Some(Ok(value)) => Ending::Found(Some(i64::from_be_bytes(value))),
                _ => Ending::Wrong(format!("a row without a value: {row:?}")),
            },
            rows => Ending::Wrong(format!("{} rows of one key", rows.len())),
        },
        (Action::Partition { .. } | Action::Table { .. }, Ok(Answer::Rows(rows, _))) => {
            listed(&rows)
        }
        (
            Action::Read { .. } | Action::Partition { .. } | Action::Table { .. },
            Ok(Answer::Done),
        ) => Ending::Wrong("no rows message".to_owned()),
        (_, Ok(Answer::Done)) => Ending::Done,
        (_, Ok(Answer::Error(code, message))) => {
            let text = format!("error 0x{code:04x}: {message}");
            match code {
                // Unavailable; a schema change that is not decided is no such case.
                0x1000 => Ending::Refused,
                // Overloaded, bootstrapping, timeouts and failures of writes and reads.
                0x1001 | 0x1002 | 0x1100 | 0x1200 | 0x1300 | 0x1500 => Ending::Unknown(text),
                0x0000 if is_of_schema(action) => Ending::Unknown(text),
                _ => Ending::Wrong(text),
            }
        }
        (_, Ok(answer)) => Ending::Wrong(format!("{answer:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_one_place_each() {
        let mut seen = std::collections::BTreeSet::new();
        for key in 0..500 {
            let (table, at) = primary_key(key);
            assert!(seen.insert((table, at.iter().map(|(_, n)| *n).collect::<Vec<_>>())), "{key}");
            let partition = Action::Partition { partition: key / 16, reversed: true };
            let read = [Action::Table { how: Scan::Rows }.reads(key), partition.reads(key)];
            assert_eq!(read, [table == "ks.registers", table == "ks.rows"]);
        }
    }

    #[test]
    fn answers_are_taken_for_what_they_are() {
        let read = Action::Read { key: 1 };
        let write = Action::Write { key: 1, stamp: 1 };
        let row = |value: Option<Vec<u8>>| Ok(Answer::Rows(vec![vec![value]], None));
        assert_eq!(ending(read, row(Some(vec![0, 0, 0, 0, 0, 0, 0, 9]))), Ending::Found(Some(9)));
        assert_eq!(ending(read, Ok(Answer::Rows(Vec::new(), None))), Ending::Found(None));
        assert!(matches!(ending(read, row(None)), Ending::Wrong(_)));
        assert!(matches!(ending(read, Ok(Answer::Done)), Ending::Wrong(_)));
        let two = |a: i32, b: i32| {
            let row = |k: i32| vec![Some(k.to_be_bytes().to_vec()), Some(vec![0; 8])];
            ending(
                Action::Table { how: Scan::Groups },
                Ok(Answer::Rows(vec![row(a), row(b)], None)),
            )
        };
        assert_eq!(two(1, 2), Ending::Listed(BTreeMap::from([(1, 0), (2, 0)])));
        assert!(matches!(two(1, 1), Ending::Wrong(_)));
        assert_eq!(ending(write, Ok(Answer::Done)), Ending::Done);
        let error = |code| Ok(Answer::Error(code, "x".to_owned()));
        assert_eq!(ending(write, error(0x1000)), Ending::Refused);
        assert!(matches!(ending(write, error(0x1100)), Ending::Unknown(_)));
        assert!(matches!(ending(write, error(0x0000)), Ending::Wrong(_)));
        assert!(matches!(ending(Action::Create { table: 1 }, error(0)), Ending::Unknown(_)));
        assert!(matches!(ending(write, error(0x2200)), Ending::Wrong(_)));
        assert!(matches!(ending(write, Err(Lost(String::new()))), Ending::Unknown(_)));
    }
}
