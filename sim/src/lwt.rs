//! Lightweight transactions and serial reads on a few hot partitions, and whether what clients saw
//! of them is linearizable, per partition.
//!
//! A partition is one static value and a few rows of one value each. Every write writes a number
//! that no other write has, so a value names its writer.

use std::collections::BTreeMap;

use cql_wire::Consistency;
use paxos::linear::{self, Call, End, Model};
use rt::Rt;
use stdx::Instant;

use crate::checks::Verdict;
use crate::client::{Answer, Client, Lost};
use crate::history::Ending;
use crate::scenario::Scenario;

/// Rows of a partition.
pub const ROWS: usize = 3;
/// Default number of partitions.
pub const PARTITIONS: u64 = 4;
/// Steps of the search for an order, of one partition: far more than a good history needs.
const STEPS_MAX: u64 = 3_000_000;

/// The table.
pub const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS ks.lwt \
                          (k int, c int, s bigint static, v bigint, PRIMARY KEY (k, c)) \
                          WITH caching = {'rows_per_partition': 'ALL'}";

/// Content of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Part {
    /// The static column.
    pub fixed: Option<i64>,
    /// Value of each existing row.
    pub rows: [Option<i64>; ROWS],
}

impl Part {
    fn row(&self, row: usize) -> Option<i64> {
        self.rows.get(row).copied().flatten()
    }

    fn set(mut self, row: usize, value: Option<i64>) -> Part {
        if let Some(slot) = self.rows.get_mut(row) {
            *slot = value;
        }
        self
    }
}

/// Request to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SERIAL read of all.
    Read,
    /// `INSERT ... IF NOT EXISTS`.
    Insert { row: usize, new: i64 },
    /// `UPDATE ... IF v = expect`.
    Update { row: usize, expect: i64, new: i64 },
    /// `DELETE ... IF EXISTS`.
    Delete { row: usize },
    /// `UPDATE` of the static column `IF s = expect`.
    Static { expect: Option<i64>, new: i64 },
    /// Batch: sets the static column if it is `expect`, and inserts a row if it is missing.
    Batch { expect: Option<i64>, row: usize, new: i64 },
}

impl Request {
    /// The partition after it, or `None` when its condition is not met.
    fn apply(self, part: &Part) -> Option<Part> {
        match self {
            Request::Read => Some(*part),
            Request::Insert { row, new } => {
                part.row(row).is_none().then(|| part.set(row, Some(new)))
            }
            Request::Update { row, expect, new } => {
                (part.row(row) == Some(expect)).then(|| part.set(row, Some(new)))
            }
            Request::Delete { row } => part.row(row).is_some().then(|| part.set(row, None)),
            Request::Static { expect, new } => {
                (part.fixed == expect).then_some(Part { fixed: Some(new), ..*part })
            }
            Request::Batch { expect, row, new } => {
                let is_met = part.fixed == expect && part.row(row).is_none();
                is_met.then(|| Part { fixed: Some(new), ..*part }.set(row, Some(new)))
            }
        }
    }

    /// Its statement on a partition.
    pub fn statement(self, k: i32) -> String {
        let text = |value: Option<i64>| value.map_or("null".to_owned(), |v| v.to_string());
        match self {
            Request::Read => format!("SELECT c, s, v FROM ks.lwt WHERE k = {k}"),
            Request::Insert { row, new } => {
                format!("INSERT INTO ks.lwt (k, c, v) VALUES ({k}, {row}, {new}) IF NOT EXISTS")
            }
            Request::Update { row, expect, new } => {
                format!("UPDATE ks.lwt SET v = {new} WHERE k = {k} AND c = {row} IF v = {expect}")
            }
            Request::Delete { row } => {
                format!("DELETE FROM ks.lwt WHERE k = {k} AND c = {row} IF EXISTS")
            }
            Request::Static { expect, new } => {
                format!("UPDATE ks.lwt SET s = {new} WHERE k = {k} IF s = {}", text(expect))
            }
            Request::Batch { expect, row, new } => format!(
                "BEGIN BATCH UPDATE ks.lwt SET s = {new} WHERE k = {k} IF s = {}; \
                 INSERT INTO ks.lwt (k, c, v) VALUES ({k}, {row}, {new}) IF NOT EXISTS; \
                 APPLY BATCH",
                text(expect)
            ),
        }
    }
}

/// Outcome as the client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Unknown,
    /// It was refused before anything was done.
    Refused,
    /// The partition, by a read.
    Read(Part),
    /// It was applied.
    Applied,
    /// It was not; nothing else was shown.
    Not,
    /// It was not, because the compared column, or the row that was there, had that value.
    NotWith(Option<i64>),
}

/// One request and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The coordinator, from 0.
    pub node: usize,
    /// The request.
    pub request: Request,
    /// Its outcome.
    pub seen: Seen,
}

/// A partition as a sequential object.
struct Object;

impl Model for Object {
    type State = Part;
    type Operation = Operation;

    fn initial(&self) -> Part {
        Part::default()
    }

    fn apply(&self, part: &Part, operation: &Operation) -> Option<Part> {
        let after = operation.request.apply(part);
        let compared = || match operation.request {
            Request::Insert { row, .. } | Request::Update { row, .. } => part.row(row),
            Request::Static { .. } => part.fixed,
            _ => None,
        };
        let is_seen = match operation.seen {
            Seen::Unknown => return Some(after.unwrap_or(*part)),
            Seen::Applied => return after,
            Seen::Refused => false,
            Seen::Read(seen) => seen == *part,
            Seen::Not => after.is_none(),
            Seen::NotWith(value) => after.is_none() && compared() == value,
        };
        is_seen.then_some(*part)
    }
}

/// All requests of a run by partition.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    /// By partition, in the order in which they were sent.
    pub parts: BTreeMap<i32, Vec<Call<Operation>>>,
    /// Last observed content of each partition, for conditions that have a chance.
    last_seen: BTreeMap<i32, Part>,
    last_value: i64,
}

/// Identifies a request of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    part: i32,
    index: usize,
}

impl Transactions {
    /// The history of one partition.
    pub fn of(calls: &[Call<Operation>]) -> Transactions {
        let parts = BTreeMap::from([(0, calls.to_vec())]);
        Transactions { parts, ..Transactions::default() }
    }

    /// A request by the seed.
    pub fn choose(&mut self, rt: &Rt, part: i32) -> Request {
        let seen = self.last_seen.get(&part).copied().unwrap_or_default();
        let row = (rt.random_u64() % ROWS as u64) as usize;
        self.last_value += 1;
        let new = self.last_value;
        match rt.random_u64() % 20 {
            0..7 => Request::Read,
            7..10 => Request::Static { expect: seen.fixed, new },
            10..12 => Request::Batch { expect: seen.fixed, row, new },
            12..14 => Request::Delete { row },
            _ => match seen.row(row) {
                Some(expect) => Request::Update { row, expect, new },
                None => Request::Insert { row, new },
            },
        }
    }

    /// A request is sent.
    pub fn begin(&mut self, part: i32, node: usize, request: Request, now: Instant) -> Ticket {
        let calls = self.parts.entry(part).or_default();
        let operation = Operation { node, request, seen: Seen::Unknown };
        calls.push(Call { start: now.0, end: End::Unknown, operation });
        Ticket { part, index: calls.len() - 1 }
    }

    /// Its end.
    pub fn end(&mut self, ticket: Ticket, now: Instant, seen: Seen) {
        let calls = self.parts.entry(ticket.part).or_default();
        let Some(call) = calls.get_mut(ticket.index) else { return };
        call.operation.seen = seen;
        if !matches!(seen, Seen::Unknown | Seen::Refused) {
            call.end = End::Known(now.0);
        }
        let last = self.last_seen.entry(ticket.part).or_default();
        match (seen, call.operation.request) {
            (Seen::Read(part), _) => *last = part,
            (Seen::Applied, request) => *last = request.apply(last).unwrap_or(*last),
            (Seen::NotWith(value), Request::Insert { row, .. } | Request::Update { row, .. }) => {
                *last = last.set(row, value)
            }
            (Seen::NotWith(fixed), Request::Static { .. }) => last.fixed = fixed,
            _ => {}
        }
    }

    /// Returns the calls for the checker: without reads that saw nothing and without refused
    /// requests. The effects of refused requests must therefore never be seen.
    pub fn checkable(calls: &[Call<Operation>]) -> Vec<Call<Operation>> {
        let is_told = |call: &&Call<Operation>| {
            let seen = (call.operation.seen, call.operation.request);
            !matches!(seen, (Seen::Refused, _) | (Seen::Unknown, Request::Read))
        };
        calls.iter().filter(is_told).cloned().collect()
    }
}

/// Checks that each partition's history is linearizable.
pub fn linearizable(transactions: &Transactions) -> Verdict {
    for (part, calls) in &transactions.parts {
        let calls = Transactions::checkable(calls);
        match linear::check(&Object, &calls, STEPS_MAX) {
            linear::Verdict::Linearizable(_) => {}
            linear::Verdict::GaveUp => {
                return Err(format!("partition {part}: no order found within {STEPS_MAX} steps"));
            }
            linear::Verdict::Violation { longest, stuck } => {
                let shown = |list: &[usize]| -> Vec<String> {
                    list.iter().filter_map(|at| calls.get(*at)).map(shown).collect()
                };
                let last = longest.len().saturating_sub(6);
                let known = longest.get(last..).unwrap_or_default();
                return Err(format!(
                    "partition {part} is not linearizable: after {} none of {}",
                    shown(known).join("; "),
                    shown(stuck.get(..stuck.len().min(8)).unwrap_or_default()).join("; ")
                ));
            }
        }
    }
    Ok(())
}

fn shown(call: &Call<Operation>) -> String {
    let end = match call.end {
        End::Known(at) | End::Doubtful(at) => format!("{}", at / 1000),
        End::Unknown => "?".to_owned(),
    };
    let Operation { node, request, seen } = call.operation;
    format!("{request:?} through node {node} at {}-{end} us: {seen:?}", call.start / 1000)
}

/// Returns the serial level for a partition's requests through a node, by a random number; `None`:
/// the node must not get requests for it.
///
/// With one datacenter SERIAL and LOCAL_SERIAL have the same replicas. With more, each partition
/// uses one of them: every second one LOCAL_SERIAL in the first datacenter.
pub fn level(scenario: &Scenario, part: i32, node: usize, random: u64) -> Option<Consistency> {
    let is_local = part % 2 == 1;
    match (scenario.datacenters > 1, is_local) {
        (false, _) if random.is_multiple_of(2) => Some(Consistency::Serial),
        (false, _) => Some(Consistency::LocalSerial),
        (true, false) => Some(Consistency::Serial),
        (true, true) => (scenario.datacenter(node as u64) == 0).then_some(Consistency::LocalSerial),
    }
}

/// Mode of sending a request: with or without its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditions {
    /// It is a transaction.
    Sent,
    /// It is sent without its condition, at QUORUM: this is no transaction.
    LeftOut,
}

/// Sends a request; returns its outcome, and its ending for the general history.
pub async fn perform(
    client: &mut Client,
    part: i32,
    request: Request,
    serial: Consistency,
    conditions: Conditions,
) -> (Seen, Result<Ending, Lost>) {
    let mut text = request.statement(part);
    let level = client.consistency();
    if conditions == Conditions::LeftOut {
        for condition in [" IF NOT EXISTS", " IF EXISTS"] {
            text = text.replace(condition, "");
        }
        while let Some(at) = text.find(" IF ") {
            let rest = text.split_off(at);
            text.push_str(rest.find(';').and_then(|end| rest.get(end..)).unwrap_or_default());
        }
    } else if request == Request::Read {
        client.set_consistency(serial);
    }
    client.set_serial_consistency(Some(serial));
    let answer = client.query(&text).await;
    client.set_consistency(level);
    match answer {
        Err(lost) => (Seen::Unknown, Err(lost)),
        Ok(Answer::Done) if conditions == Conditions::LeftOut => (Seen::Applied, Ok(Ending::Done)),
        Ok(Answer::Rows(rows, _)) => match seen(request, &rows) {
            Some(seen) => (seen, Ok(Ending::Done)),
            None => (Seen::Unknown, Ok(Ending::Wrong(format!("{request:?}: {rows:?}")))),
        },
        Ok(Answer::Error(0x1000, _)) => (Seen::Refused, Ok(Ending::Refused)),
        Ok(Answer::Error(code, message)) => {
            let text = format!("error 0x{code:04x}: {message}");
            let ending = match code {
                // Overloaded, bootstrapping, timeouts, failures, uncertain outcomes.
                0x1001 | 0x1002 | 0x1100 | 0x1200 | 0x1300 | 0x1500 | 0x1700 => {
                    Ending::Unknown(text)
                }
                _ => Ending::Wrong(format!("{request:?}: {text}")),
            };
            (Seen::Unknown, Ok(ending))
        }
        Ok(answer) => (Seen::Unknown, Ok(Ending::Wrong(format!("{request:?}: {answer:?}")))),
    }
}

type Cell = Option<Vec<u8>>;

/// Parses the rows of an answer to a request; `None`: they are not of the promised form.
fn seen(request: Request, rows: &[Vec<Cell>]) -> Option<Seen> {
    let long = |cell: &Cell| -> Option<Option<i64>> {
        let Some(bytes) = cell else { return Some(None) };
        Some(Some(i64::from_be_bytes(bytes.as_slice().try_into().ok()?)))
    };
    if request == Request::Read {
        let mut part = Part::default();
        for row in rows {
            let [c, s, v] = row.as_slice() else { return None };
            part.fixed = long(s)?;
            if let Some(c) = c {
                let c = i32::from_be_bytes(c.as_slice().try_into().ok()?);
                *part.rows.get_mut(usize::try_from(c).ok()?)? = Some(long(v)??);
            }
        }
        return Some(Seen::Read(part));
    }
    let first = rows.first()?;
    match first.first()?.as_deref()? {
        [1] if rows.len() == 1 => Some(Seen::Applied),
        [0] => match (request, first.as_slice()) {
            // The static column is not read for it, as in Cassandra.
            (Request::Insert { .. }, [_, _, _, _, v]) => Some(Seen::NotWith(Some(long(v)??))),
            (Request::Update { .. } | Request::Static { .. }, [_, value]) => {
                Some(Seen::NotWith(long(value)?))
            }
            (Request::Update { .. } | Request::Static { .. }, [_]) => Some(Seen::NotWith(None)),
            (Request::Delete { .. } | Request::Batch { .. }, _) => Some(Seen::Not),
            _ => None,
        },
        _ => None,
    }
}

/// One history as a file: a line of JSON for each operation, in the order of their starts.
pub fn export(calls: &[Call<Operation>]) -> String {
    let mut out = String::new();
    let value = |value: Option<i64>| value.map_or("null".to_owned(), |v| v.to_string());
    for call in Transactions::checkable(calls) {
        let (name, row, expect, new) = match call.operation.request {
            Request::Read => ("read", 0, None, 0),
            Request::Insert { row, new } => ("insert", row, None, new),
            Request::Update { row, expect, new } => ("update", row, Some(expect), new),
            Request::Delete { row } => ("delete", row, None, 0),
            Request::Static { expect, new } => ("static", 0, expect, new),
            Request::Batch { expect, row, new } => ("batch", row, expect, new),
        };
        let (seen, part, shown) = match call.operation.seen {
            Seen::Unknown | Seen::Refused => ("unknown", Part::default(), None),
            Seen::Read(part) => ("read", part, None),
            Seen::Applied => ("applied", Part::default(), None),
            Seen::Not => ("not", Part::default(), None),
            Seen::NotWith(value) => ("not-with", Part::default(), value),
        };
        let end = match call.end {
            End::Known(at) | End::Doubtful(at) => at.to_string(),
            End::Unknown => "null".to_owned(),
        };
        let rows: Vec<String> = part.rows.iter().map(|row| value(*row)).collect();
        out.push_str(&format!(
            "{{\"call\":{},\"return\":{end},\"request\":\"{name}\",\"row\":{row},\"expect\":{},\
             \"new\":{new},\"seen\":\"{seen}\",\"fixed\":{},\"rows\":[{}],\"value\":{}}}\n",
            call.start,
            value(expect),
            value(part.fixed),
            rows.join(","),
            value(shown)
        ));
    }
    out
}

/// Spoils one operation of a history in the `n`-th way; `None`: there is no such way. The result
/// may still be linearizable: the caller has it checked.
pub fn corrupted(calls: &[Call<Operation>], n: usize) -> Option<Vec<Call<Operation>>> {
    let mut calls = calls.to_vec();
    let call = calls.get_mut(n / 2)?;
    let seen = &mut call.operation.seen;
    *seen = match (*seen, n % 2) {
        (Seen::Read(part), 0) => Seen::Read(Part { fixed: Some(-1), ..part }),
        (Seen::Read(part), _) => Seen::Read(part.set(n % ROWS, part.row((n + 1) % ROWS))),
        (Seen::Applied, 0) => Seen::Not,
        (Seen::Not | Seen::NotWith(_), 0) => Seen::Applied,
        (Seen::NotWith(value), _) => Seen::NotWith(value.map_or(Some(1), |v| Some(v - 1))),
        (seen, _) => {
            call.start = call.start.saturating_sub(5_000_000);
            seen
        }
    };
    Some(calls)
}

#[cfg(test)]
#[path = "lwt_tests.rs"]
mod tests;
