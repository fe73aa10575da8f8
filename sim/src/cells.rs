//! Single cells of partitions with everything that can happen to them: values, values that expire,
//! map elements and whole maps, static columns; deletions of cells, rows, ranges and partitions.
//!
//! A partition has one writer, whose timestamps grow, so the newest write of a cell decides its
//! value. Only writes without an answer are uncertain: a read may show the newest certain write or
//! any newer one.

use std::collections::BTreeMap;
use std::time::Duration;

use rt::Rt;
use stdx::Instant;

use crate::checks::Verdict;
use crate::client::{Answer, Client, Lost};
use crate::history::Ending;
use crate::scenario::Scenario;

/// Rows of a partition, and elements of a map.
const ROWS: i32 = 4;
const ELEMENTS: i32 = 2;
/// Seconds after which some values expire.
const TTL_SECONDS: u64 = 4;
/// By how much the clocks of nodes may differ for this checker; expiry has whole seconds besides.
const CLOCKS: Duration = Duration::from_millis(1_500);
/// Longest time until a coordinator acts on a request whose answer was lost.
const LATE_MAX: Duration = Duration::from_secs(10);
/// Timestamps are this plus ten times the write's number.
const STAMP_BASE: i64 = 1_700_000_000_000_000;

/// The table.
pub const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS ks.cells \
     (k int, c int, s bigint static, v bigint, m map<int, bigint>, PRIMARY KEY (k, c)) \
     WITH caching = {'rows_per_partition': '2'}";

/// One cell of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// The static column.
    Static,
    /// The value of a row.
    Value(i32),
    /// An element of a row's map.
    Element(i32, i32),
}

/// Request to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// QUORUM read of all cells.
    Read,
    /// Sets a cell.
    Set(Cell),
    /// Sets the value of a row until it expires.
    Expiring(i32),
    /// Replaces a row's map by one element.
    Map(i32),
    /// Deletes a cell.
    Unset(Cell),
    /// Deletes a row.
    Row(i32),
    /// Deletes the rows from the first to the one before the second.
    Range(i32, i32),
    /// Deletes the partition.
    Partition,
}

/// Effect of a write on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Set,
    Expires,
    Gone,
}

impl Request {
    /// A request by the seed; nothing expires when clocks jump, which decide over that.
    pub fn choose(rt: &Rt, scenario: &Scenario) -> Request {
        let row = (rt.random_u64() % ROWS as u64) as i32;
        let element = Cell::Element(row, (rt.random_u64() % ELEMENTS as u64) as i32);
        match rt.random_u64() % 32 {
            0..8 => Request::Read,
            8..12 => Request::Set(Cell::Value(row)),
            12..15 if scenario.do_clocks_jump() => Request::Set(Cell::Value(row)),
            12..15 => Request::Expiring(row),
            15..18 => Request::Set(element),
            18..20 => Request::Set(Cell::Static),
            20..22 => Request::Map(row),
            22 => Request::Unset(Cell::Value(row)),
            23..25 => Request::Unset(element),
            25 => Request::Unset(Cell::Static),
            26..28 => Request::Row(row),
            28..31 => Request::Range(row, row + 1 + (rt.random_u64() % 3) as i32),
            _ => Request::Partition,
        }
    }

    /// Returns its effect on a cell; `None`: none.
    fn effect(self, cell: Cell) -> Option<Effect> {
        let row = match cell {
            Cell::Static => None,
            Cell::Value(row) | Cell::Element(row, _) => Some(row),
        };
        let is_if = |condition: bool, effect| condition.then_some(effect);
        match self {
            Request::Read => None,
            Request::Set(set) => is_if(set == cell, Effect::Set),
            Request::Expiring(row) => is_if(cell == Cell::Value(row), Effect::Expires),
            Request::Map(of) => match cell {
                Cell::Element(row, 0) if row == of => Some(Effect::Set),
                Cell::Element(row, _) if row == of => Some(Effect::Gone),
                _ => None,
            },
            Request::Unset(unset) => is_if(unset == cell, Effect::Gone),
            Request::Row(of) => is_if(row == Some(of), Effect::Gone),
            Request::Range(from, to) => {
                is_if(row.is_some_and(|row| (from..to).contains(&row)), Effect::Gone)
            }
            Request::Partition => Some(Effect::Gone),
        }
    }

    /// Its statement on a partition, as write number `stamp`.
    fn statement(self, k: i32, stamp: i64) -> String {
        let at = STAMP_BASE + 10 * stamp;
        let update = |set: String, c: i32, ttl: String| {
            format!("UPDATE ks.cells USING TIMESTAMP {at}{ttl} SET {set} WHERE k = {k} AND c = {c}")
        };
        let delete = |what: String, rest: String| {
            format!("DELETE {what} FROM ks.cells USING TIMESTAMP {at} WHERE k = {k}{rest}")
        };
        let none = String::new;
        match self {
            Request::Read => format!("SELECT c, s, v, m FROM ks.cells WHERE k = {k}"),
            Request::Set(Cell::Static) => {
                format!("UPDATE ks.cells USING TIMESTAMP {at} SET s = {stamp} WHERE k = {k}")
            }
            Request::Set(Cell::Value(c)) => update(format!("v = {stamp}"), c, none()),
            Request::Set(Cell::Element(c, e)) => update(format!("m[{e}] = {stamp}"), c, none()),
            Request::Expiring(c) => {
                update(format!("v = {stamp}"), c, format!(" AND TTL {TTL_SECONDS}"))
            }
            Request::Map(c) => update(format!("m = {{0: {stamp}}}"), c, none()),
            Request::Unset(Cell::Static) => delete("s".to_owned(), none()),
            Request::Unset(Cell::Value(c)) => delete("v".to_owned(), format!(" AND c = {c}")),
            Request::Unset(Cell::Element(c, e)) => {
                delete(format!("m[{e}]"), format!(" AND c = {c}"))
            }
            Request::Row(c) => delete(none(), format!(" AND c = {c}")),
            Request::Range(a, b) => delete(none(), format!(" AND c >= {a} AND c < {b}")),
            Request::Partition => delete(none(), none()),
        }
    }
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Acknowledged(Instant),
    Refused,
    Unknown,
}

/// One write; its number is its timestamp and its value.
#[derive(Clone, Debug)]
struct Write {
    request: Request,
    sent: Instant,
    end: End,
}

impl Write {
    /// When an expiring value of it may be gone at the earliest, and must be at the latest.
    fn expiry(&self) -> (Instant, Instant) {
        let ttl = Duration::from_secs(TTL_SECONDS);
        let last = match self.end {
            End::Acknowledged(at) => at,
            End::Refused | End::Unknown => self.sent + LATE_MAX,
        };
        let slack = Duration::from_secs(1) + CLOCKS;
        let first = Instant((self.sent + ttl).0.saturating_sub(slack.as_nanos() as u64));
        (first, last + ttl + slack)
    }
}

/// The cells that a read found; the others are missing.
type Found = BTreeMap<Cell, i64>;

#[derive(Clone, Debug)]
struct Read {
    node: usize,
    begin: Instant,
    end: Instant,
    found: Found,
}

/// The history of one partition: writes by number, from 1.
#[derive(Clone, Debug, Default)]
struct Part {
    writes: Vec<Write>,
    reads: Vec<Read>,
}

/// All partitions of a run.
#[derive(Clone, Debug, Default)]
pub struct Cells(BTreeMap<i32, Part>);

impl Cells {
    /// Returns the partitions with requests.
    pub fn parts(&self) -> Vec<i32> {
        self.0.keys().copied().collect()
    }

    /// A request is sent; gives the number of the write.
    fn begin(&mut self, part: i32, request: Request, now: Instant) -> i64 {
        let part = self.0.entry(part).or_default();
        if request != Request::Read {
            part.writes.push(Write { request, sent: now, end: End::Unknown });
        }
        part.writes.len() as i64
    }

    fn end(&mut self, part: i32, stamp: i64, end: End) {
        let part = self.0.entry(part).or_default();
        let at = usize::try_from(stamp - 1).unwrap_or(usize::MAX);
        if let Some(write) = part.writes.get_mut(at) {
            write.end = end;
        }
    }
}

/// Every read shows, for each cell, the newest write that was certain when it began or a newer one
/// that may have happened.
pub fn newest(cells: &Cells) -> Verdict {
    for (k, part) in &cells.0 {
        for read in &part.reads {
            for cell in all_cells() {
                may_be(part, read, cell).map_err(|problem| {
                    format!(
                        "cells, partition {k}, read through node {} at {} us, {cell:?}: {problem}",
                        read.node,
                        read.begin.0 / 1_000
                    )
                })?;
            }
        }
    }
    Ok(())
}

fn all_cells() -> impl Iterator<Item = Cell> {
    let of_row = |row| (0..ELEMENTS).map(move |e| Cell::Element(row, e)).chain([Cell::Value(row)]);
    (0..ROWS).flat_map(of_row).chain([Cell::Static])
}

fn may_be(part: &Part, read: &Read, cell: Cell) -> Verdict {
    let found = read.found.get(&cell).copied();
    let mut expected = Vec::new();
    for (at, write) in part.writes.iter().enumerate().rev() {
        let stamp = at as i64 + 1;
        let Some(effect) = write.request.effect(cell) else { continue };
        if write.sent > read.end || write.end == End::Refused {
            continue;
        }
        let is_it = match effect {
            Effect::Gone => found.is_none(),
            Effect::Set => found == Some(stamp),
            Effect::Expires => {
                let (first, last) = write.expiry();
                (found == Some(stamp) && read.begin <= last)
                    || (found.is_none() && read.end >= first)
            }
        };
        if is_it {
            return Ok(());
        }
        expected.push(format!("{stamp} ({:?}, {:?})", write.request, write.end));
        if matches!(write.end, End::Acknowledged(at) if at <= read.begin) {
            return Err(format!("{found:?} instead of {}", expected.join(" or ")));
        }
    }
    match found {
        None => Ok(()),
        Some(_) => Err(format!("{found:?} instead of nothing or {}", expected.join(" or "))),
    }
}

/// Sends a request and notes what came of it; how the general history is to know it.
pub async fn perform(
    rt: &Rt,
    client: &mut Client,
    part: i32,
    request: Request,
    node: usize,
    cells: impl Fn(&mut dyn FnMut(&mut Cells)),
) -> Result<Ending, Lost> {
    let begin = rt.now();
    let mut stamp = 0;
    cells(&mut |all| stamp = all.begin(part, request, begin));
    let answer = client.query(&request.statement(part, stamp)).await;
    let now = rt.now();
    let (end, ending) = match answer {
        Err(lost) => return Err(lost),
        Ok(Answer::Done) if request != Request::Read => (End::Acknowledged(now), Ending::Done),
        Ok(Answer::Rows(rows, _)) if request == Request::Read => {
            let Some(found) = cells_of(&rows) else {
                return Ok(Ending::Wrong(format!("rows of cells: {rows:?}")));
            };
            let read = Read { node, begin, end: now, found };
            cells(&mut |all| all.0.entry(part).or_default().reads.push(read.clone()));
            return Ok(Ending::Done);
        }
        Ok(Answer::Error(0x1000, _)) => (End::Refused, Ending::Refused),
        Ok(Answer::Error(code, message)) => {
            let text = format!("error 0x{code:04x}: {message}");
            let ending = match code {
                0x1001 | 0x1002 | 0x1100 | 0x1200 | 0x1300 | 0x1500 => Ending::Unknown(text),
                _ => Ending::Wrong(format!("{request:?}: {text}")),
            };
            (End::Unknown, ending)
        }
        Ok(answer) => (End::Unknown, Ending::Wrong(format!("{request:?}: {answer:?}"))),
    };
    if request != Request::Read {
        cells(&mut |all| all.end(part, stamp, end));
    }
    Ok(ending)
}

/// Parses rows; `None`: they are not of the promised form.
fn cells_of(rows: &[Vec<Option<Vec<u8>>>]) -> Option<Found> {
    let long = |bytes: &[u8]| Some(i64::from_be_bytes(bytes.try_into().ok()?));
    let mut found = Found::new();
    for row in rows {
        let [c, s, v, m] = row.as_slice() else { return None };
        if let Some(s) = s {
            found.insert(Cell::Static, long(s)?);
        }
        let Some(c) = c else { continue };
        let c = i32::from_be_bytes(c.as_slice().try_into().ok()?);
        if let Some(v) = v {
            found.insert(Cell::Value(c), long(v)?);
        }
        let mut rest = m.as_deref().unwrap_or(&[0; 4]);
        let mut take = |n: usize| -> Option<&[u8]> {
            let (head, tail) = rest.split_at_checked(n)?;
            rest = tail;
            Some(head)
        };
        let count = i32::from_be_bytes(take(4)?.try_into().ok()?);
        for _ in 0..count {
            // Lengths are known: 4 and 8.
            let (_, key) = (take(4)?, take(4)?);
            let (_, value) = (take(4)?, take(8)?);
            let element = i32::from_be_bytes(key.try_into().ok()?);
            found.insert(Cell::Element(c, element), long(value)?);
        }
    }
    Some(found)
}

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;
