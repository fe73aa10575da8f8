//! Model of the indexed table: the writes of each row, the states that a row may have during a read, and the checker
//! of indexed reads.
//!
//! A row has one writer, which retries a write until it is acknowledged before it begins the next. So a read at QUORUM
//! sees all writes that were acknowledged before it began, and any of those that began before it ended. A read of the
//! nearest rows lacks only rows that may be farther than its last one ([`super::nearest`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stdx::{Instant, Token};

use super::nearest::{self, Nearest, Rank};
use crate::checks::Verdict;

/// Rows of a partition.
pub const ROWS: i32 = 5;
/// Time to live of expiring writes.
pub const TTL: Duration = Duration::from_secs(4);
/// Tolerance of an expiry: whole seconds, and clocks of nodes that differ.
const EXPIRY_SLACK: Duration = Duration::from_millis(2_500);
/// Regular columns: two with SAI indexes, one with a legacy index, one of vectors.
pub const COLUMNS: [&str; 4] = ["v", "w", "l", "e"];

/// Values of the regular columns; a vector is a number ([`nearest::vector`]).
pub type Cells = [Option<i32>; 4];

/// Effects of a write on the regular columns.
pub type CellChanges = [CellChange; 4];

/// Key of a row; without clustering: the static row, whose first cell is the static column.
pub type RowKey = (i32, Option<i32>);

/// State of a row. The static row has its value in the first cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowState {
    /// An INSERT wrote the row, and no deletion followed.
    has_marker: bool,
    cells: Cells,
}

impl RowState {
    fn is_live(&self) -> bool {
        self.has_marker || self.cells.iter().any(Option::is_some)
    }
}

/// Effect of a write on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellChange {
    Keep,
    Put(i32),
    Clear,
}

/// Effect of a write on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// INSERT: the row lives without cells too.
    Insert(CellChanges),
    Update(CellChanges),
    /// UPDATE whose values expire after [`TTL`].
    Expire(CellChanges),
    Delete,
}

impl Change {
    fn apply(self, state: &mut RowState, is_expired: bool) {
        let cells = match self {
            Change::Delete => {
                *state = RowState::default();
                return;
            }
            Change::Insert(cells) => {
                state.has_marker = true;
                cells
            }
            Change::Update(cells) | Change::Expire(cells) => cells,
        };
        for (cell, change) in state.cells.iter_mut().zip(cells) {
            match change {
                CellChange::Keep => {}
                CellChange::Put(_) if is_expired => *cell = None,
                CellChange::Put(value) => *cell = Some(value),
                CellChange::Clear => *cell = None,
            }
        }
    }
}

/// Time of a read, from its first request to its last answer.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from: Instant,
    pub until: Instant,
}

/// A write of a row.
#[derive(Clone, Debug)]
struct WriteRecord {
    change: Change,
    begun: Instant,
    acknowledged: Option<Instant>,
    /// Requests so far. Each has an expiry of its own.
    attempts: u32,
}

impl WriteRecord {
    /// For each possibility: its values may have expired.
    fn expiries(&self, window: &Window) -> &'static [bool] {
        if !matches!(self.change, Change::Expire(_)) {
            return &[false];
        }
        let slack = EXPIRY_SLACK.as_nanos() as u64;
        let first = Instant((self.begun + TTL).0.saturating_sub(slack));
        if window.until < first {
            return &[false];
        }
        match self.acknowledged {
            Some(at) if self.attempts == 1 && window.from > at + TTL + EXPIRY_SLACK => &[true],
            _ => &[false, true],
        }
    }
}

/// The writes of a row in the order of their timestamps.
#[derive(Clone, Debug, Default)]
struct RowHistory(Vec<WriteRecord>);

impl RowHistory {
    /// States that a read in that window may see.
    fn possible(&self, window: &Window) -> Vec<RowState> {
        let mut states = vec![RowState::default()];
        for write in self.0.iter().take_while(|write| write.begun <= window.until) {
            let is_certain = write.acknowledged.is_some_and(|at| at <= window.from);
            let expiries = write.expiries(window);
            if let ([is_expired], true) = (expiries, is_certain) {
                states.iter_mut().for_each(|state| write.change.apply(state, *is_expired));
            } else {
                let before = if is_certain { std::mem::take(&mut states) } else { states.clone() };
                for is_expired in expiries {
                    states.extend(before.iter().map(|state| {
                        let mut after = *state;
                        write.change.apply(&mut after, *is_expired);
                        after
                    }));
                }
            }
            if states.len() > 1 {
                states.sort_unstable_by_key(|state| (state.has_marker, state.cells));
                states.dedup();
            }
        }
        states
    }
}

/// Restriction of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// No restriction: a scan.
    All,
    V(i32),
    /// `v` is at least that.
    VFrom(i32),
    VAndW(i32, i32),
    L(i32),
    S(i32),
}

/// A read of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    pub predicate: Predicate,
    /// The only partition that is read; `None`: all.
    pub partition: Option<i32>,
    /// Only the rows nearest to a vector, nearest first; `None`: all rows in ring order.
    pub nearest: Option<Nearest>,
}

impl Question {
    /// Returns the statement.
    pub fn statement(&self) -> String {
        let restriction = match self.predicate {
            Predicate::All => None,
            Predicate::V(v) => Some(format!("v = {v}")),
            Predicate::VFrom(v) => Some(format!("v >= {v}")),
            Predicate::VAndW(v, w) => Some(format!("v = {v} AND w = {w}")),
            Predicate::L(l) => Some(format!("l = {l}")),
            Predicate::S(s) => Some(format!("s = {s}")),
        };
        let partition = self.partition.map(|p| format!("p = {p}"));
        let all: Vec<String> = partition.into_iter().chain(restriction).collect();
        let mut text = "SELECT p, c, s, v, w, l, e FROM ks.indexed".to_owned();
        if !all.is_empty() {
            text.push_str(&format!(" WHERE {}", all.join(" AND ")));
        }
        if let Some(nearest) = self.nearest {
            text.push_str(&nearest.ordering());
        }
        text
    }

    /// Returns true if a partition without live rows is shown by its static row.
    fn shows_static_rows(&self) -> bool {
        self.nearest.is_none() && matches!(self.predicate, Predicate::All | Predicate::S(_))
    }

    fn admits(&self, s: Option<i32>, cells: &Cells) -> bool {
        let [v, w, l, vector] = *cells;
        if self.nearest.is_some() && vector.is_none() {
            return false;
        }
        match self.predicate {
            Predicate::All => true,
            Predicate::V(value) => v == Some(value),
            Predicate::VFrom(least) => v.is_some_and(|v| v >= least),
            Predicate::VAndW(of_v, of_w) => v == Some(of_v) && w == Some(of_w),
            Predicate::L(value) => l == Some(value),
            Predicate::S(value) => s == Some(value),
        }
    }

    /// Returns the rows of a scan that this read must show.
    pub fn filter(&self, rows: &[ShownRow]) -> Vec<ShownRow> {
        let of_partition = |row: &&ShownRow| self.partition.is_none_or(|p| p == row.p);
        let admitted = |row: &&ShownRow| self.admits(row.s, &row.cells);
        let filtered = rows.iter().filter(of_partition).filter(admitted).copied().collect();
        match self.nearest {
            Some(nearest) => nearest.best(filtered),
            None => filtered,
        }
    }

    /// Checks the order of an answer.
    fn check_order(&self, shown: &[ShownRow]) -> Result<Complete, String> {
        match self.nearest {
            Some(nearest) => nearest.check_order(shown).map(Complete),
            None => in_order(shown).map(|()| Complete(None)),
        }
    }
}

/// Rank up to which an answer lacks no row; `None`: it lacks none at all.
#[derive(Clone, Copy, Debug)]
struct Complete(Option<Rank>);

/// A row of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownRow {
    pub p: i32,
    pub c: Option<i32>,
    pub s: Option<i32>,
    pub cells: Cells,
}

impl ShownRow {
    /// Decodes a row of the answer.
    ///
    /// # Errors
    /// A column is missing, or has a value that no client writes.
    pub fn decode(row: &[Option<Vec<u8>>]) -> Result<ShownRow, String> {
        let mut values = [None; 6];
        let Some((vector, numbers)) = row.split_last().filter(|(_, n)| n.len() == values.len())
        else {
            return Err(format!("a row of {} columns", row.len()));
        };
        for (value, cell) in values.iter_mut().zip(numbers) {
            let Some(bytes) = cell else { continue };
            let bytes = bytes.as_slice().try_into();
            *value = Some(i32::from_be_bytes(bytes.map_err(|_| format!("not an int: {row:?}"))?));
        }
        let [p, c, s, v, w, l] = values;
        let p = p.ok_or_else(|| format!("a row without partition key: {row:?}"))?;
        let vector = vector.as_deref().map(nearest::decode).transpose()?;
        Ok(ShownRow { p, c, s, cells: [v, w, l, vector] })
    }

    /// Position in the ring and the partition.
    pub fn position(&self) -> Position {
        position(self.p, self.c)
    }
}

/// Position of a row in the ring and its partition.
pub type Position = (Token, i32, Option<i32>);

fn position(p: i32, c: Option<i32>) -> Position {
    (codec::token_of(&p.to_be_bytes()), p, c)
}

/// The writes of all rows.
#[derive(Clone, Debug, Default)]
pub struct Histories(BTreeMap<RowKey, RowHistory>);

impl Histories {
    /// Adds the first request of a write.
    pub fn begin(&mut self, keys: &[RowKey], change: Change, now: Instant) {
        for key in keys {
            let write = WriteRecord { change, begun: now, acknowledged: None, attempts: 1 };
            self.0.entry(*key).or_default().0.push(write);
        }
    }

    /// Counts one more request of the last write of these rows.
    pub fn retry(&mut self, keys: &[RowKey]) {
        self.last_writes(keys, |write| write.attempts += 1);
    }

    /// Records the acknowledgement of the last write of these rows.
    pub fn acknowledge(&mut self, keys: &[RowKey], now: Instant) {
        self.last_writes(keys, |write| write.acknowledged = Some(now));
    }

    fn last_writes(&mut self, keys: &[RowKey], update: impl Fn(&mut WriteRecord)) {
        for key in keys {
            if let Some(write) = self.0.get_mut(key).and_then(|history| history.0.last_mut()) {
                update(write);
            }
        }
    }

    fn possible(&self, key: RowKey, window: &Window) -> Vec<RowState> {
        self.0.get(&key).map_or_else(|| vec![RowState::default()], |row| row.possible(window))
    }

    /// Checks a whole answer.
    ///
    /// # Errors
    /// A row is missing that matches in each of its possible states and is nearer than the last one in each of them, or
    /// one is shown in a state that it cannot have or that does not match, twice or out of order.
    pub fn check(&self, asked: &Question, window: &Window, shown: &[ShownRow]) -> Verdict {
        let complete = asked.check_order(shown)?;
        let mut left: BTreeMap<RowKey, &ShownRow> =
            shown.iter().map(|row| ((row.p, row.c), row)).collect();
        let partitions: BTreeSet<i32> = self.0.keys().map(|(p, _)| *p).collect();
        for p in partitions.into_iter().filter(|p| asked.partition.is_none_or(|only| only == *p)) {
            let states = PartitionStates {
                p,
                complete,
                statics: self.possible((p, None), window).iter().map(|s| s.cells[0]).collect(),
                rows: (0..ROWS).map(|c| self.possible((p, Some(c)), window)).collect(),
            };
            for (c, row) in (0..ROWS).zip(&states.rows) {
                states.check_row(asked, row, c, left.remove(&(p, Some(c))))?;
            }
            states.check_static_row(asked, left.remove(&(p, None)))?;
        }
        match left.first_key_value() {
            Some((_, row)) => Err(format!("shows a row that was never written: {row:?}")),
            None => Ok(()),
        }
    }
}

/// Possible states of a partition.
struct PartitionStates {
    p: i32,
    complete: Complete,
    statics: Vec<Option<i32>>,
    rows: Vec<Vec<RowState>>,
}

impl PartitionStates {
    fn check_row(
        &self,
        asked: &Question,
        states: &[RowState],
        c: i32,
        shown: Option<&ShownRow>,
    ) -> Verdict {
        let (p, statics) = (self.p, &self.statics);
        let matches =
            |s: &Option<i32>, row: &RowState| row.is_live() && asked.admits(*s, &row.cells);
        match shown {
            Some(shown) => {
                let is_state = statics.contains(&shown.s)
                    && states.iter().any(|row| row.cells == shown.cells && matches(&shown.s, row));
                if !is_state {
                    return Err(format!(
                        "shows {shown:?}, a row without such a matching state: {states:?}, {statics:?}"
                    ));
                }
            }
            None => {
                let place = position(p, Some(c));
                let is_due = |row: &RowState| match (asked.nearest, self.complete.0) {
                    (Some(nearest), Some(last)) => nearest.rank(place, &row.cells) < last,
                    _ => true,
                };
                let is_lacking = |row: &RowState| statics.iter().all(|s| matches(s, row));
                if states.iter().all(|row| is_lacking(row) && is_due(row)) {
                    return Err(format!("lacks row ({p}, {c}): {states:?}, {statics:?}"));
                }
            }
        }
        Ok(())
    }

    fn check_static_row(&self, asked: &Question, shown: Option<&ShownRow>) -> Verdict {
        let matches = |s: &Option<i32>| {
            asked.shows_static_rows() && s.is_some() && asked.admits(*s, &Cells::default())
        };
        let (p, statics, rows) = (self.p, &self.statics, &self.rows);
        match shown {
            Some(shown) => {
                let may_be_empty = rows.iter().all(|row| row.iter().any(|state| !state.is_live()));
                let is_state = statics.contains(&shown.s) && shown.cells == Cells::default();
                if !(matches(&shown.s) && may_be_empty && is_state) {
                    return Err(format!(
                        "shows {shown:?}, a static row without such a state: {statics:?}, {rows:?}"
                    ));
                }
            }
            None => {
                let is_empty = rows.iter().flatten().all(|state| !state.is_live());
                if is_empty && statics.iter().all(matches) {
                    return Err(format!("lacks the static row of {p}: {statics:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Checks that rows are in ring and clustering order, each once.
fn in_order(shown: &[ShownRow]) -> Verdict {
    for pair in shown.windows(2) {
        if let [before, after] = pair
            && before.position() >= after.position()
        {
            return Err(format!("shows {after:?} after {before:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * SECOND)
    }

    fn window(from: u64, until: u64) -> Window {
        Window { from: at(from), until: at(until) }
    }

    fn cells(v: i32, w: i32) -> CellChanges {
        [CellChange::Put(v), CellChange::Put(w), CellChange::Keep, CellChange::Keep]
    }

    fn put(v: i32, w: i32) -> Change {
        Change::Update(cells(v, w))
    }

    fn shown(c: i32, v: i32, w: i32) -> ShownRow {
        ShownRow { p: 1, c: Some(c), s: None, cells: [Some(v), Some(w), None, None] }
    }

    fn of_v(v: i32) -> Question {
        Question { predicate: Predicate::V(v), partition: None, nearest: None }
    }

    /// Rows 0 and 1 match `v = 7` from 1 s on; row 1 is overwritten from 10 s to 11 s.
    fn histories() -> Histories {
        let mut histories = Histories::default();
        for c in [0, 1] {
            histories.begin(&[(1, Some(c))], put(7, c), at(0));
            histories.acknowledge(&[(1, Some(c))], at(1));
        }
        histories.begin(&[(1, Some(1))], put(8, 5), at(10));
        histories.acknowledge(&[(1, Some(1))], at(11));
        histories
    }

    #[test]
    fn an_answer_that_lacks_a_row_or_shows_a_stale_one_is_found() {
        let histories = histories();
        let check = |window, rows: &[ShownRow]| histories.check(&of_v(7), &window, rows);
        let both = [shown(0, 7, 0), shown(1, 7, 1)];
        assert_eq!(check(window(2, 3), &both), Ok(()));
        // One row dropped.
        assert!(check(window(2, 3), &both[..1]).unwrap_err().contains("lacks row (1, 1)"));
        assert!(check(window(2, 3), &[]).unwrap_err().contains("lacks row (1, 0)"));
        // While a write is under way, both its states are possible.
        assert_eq!(check(window(9, 10), &both), Ok(()));
        assert_eq!(check(window(9, 10), &both[..1]), Ok(()));
        // A stale row.
        assert_eq!(check(window(12, 13), &both[..1]), Ok(()));
        assert!(check(window(12, 13), &both).unwrap_err().contains("such a matching state"));
        // A row that does not match, one mixed from two writes, one twice, one of another partition.
        let other = [shown(0, 7, 0), shown(1, 8, 5)];
        assert!(check(window(12, 13), &other).unwrap_err().contains("such a matching state"));
        let mixed = [shown(0, 7, 0), shown(1, 7, 5)];
        assert!(check(window(9, 10), &mixed).unwrap_err().contains("such a matching state"));
        assert!(check(window(2, 3), &[both[0], both[0]]).unwrap_err().contains("after"));
        let strange = ShownRow { p: 2, ..shown(0, 7, 0) };
        assert!(histories.check(&of_v(9), &window(2, 3), &[strange]).is_err());
    }

    #[test]
    fn a_restriction_on_two_columns_wants_both_of_one_state() {
        let histories = histories();
        let asked =
            Question { predicate: Predicate::VAndW(7, 1), partition: Some(1), nearest: None };
        assert_eq!(asked.statement().split_once("WHERE ").unwrap().1, "p = 1 AND v = 7 AND w = 1");
        assert_eq!(histories.check(&asked, &window(2, 3), &[shown(1, 7, 1)]), Ok(()));
        assert!(histories.check(&asked, &window(2, 3), &[]).is_err());
        assert!(histories.check(&asked, &window(2, 3), &[shown(0, 7, 0)]).is_err());
        assert_eq!(histories.check(&asked, &window(12, 13), &[]), Ok(()));
    }

    #[test]
    fn an_expiring_value_may_be_gone_around_its_expiry_only() {
        let mut histories = Histories::default();
        histories.begin(&[(1, Some(0))], Change::Expire(cells(7, 1)), at(0));
        histories.acknowledge(&[(1, Some(0))], at(0));
        let check = |h: &Histories, from, rows: &[ShownRow]| {
            h.check(&of_v(7), &window(from, from), rows).is_ok()
        };
        let alive = [shown(0, 7, 1)];
        assert!(check(&histories, 1, &alive) && !check(&histories, 1, &[]));
        assert!(check(&histories, 4, &alive) && check(&histories, 4, &[]));
        assert!(!check(&histories, 9, &alive) && check(&histories, 9, &[]));
        // A retry has a later expiry.
        histories.retry(&[(1, Some(0))]);
        assert!(check(&histories, 9, &alive) && check(&histories, 9, &[]));
    }

    #[test]
    fn a_static_value_finds_its_rows_or_stands_for_an_empty_partition() {
        let mut histories = Histories::default();
        let keys: Vec<RowKey> = std::iter::once((1, None)).chain([(1, Some(0))]).collect();
        let mut value = [CellChange::Keep; 4];
        value[0] = CellChange::Put(3);
        let value = Change::Update(value);
        histories.begin(&keys[..1], value, at(0));
        histories.acknowledge(&keys[..1], at(1));
        let asked = Question { predicate: Predicate::S(3), partition: None, nearest: None };
        let check = |h: &Histories, from, rows: &[ShownRow]| {
            h.check(&asked, &window(from, from), rows).is_ok()
        };
        let empty = ShownRow { p: 1, c: None, s: Some(3), cells: Cells::default() };
        assert!(check(&histories, 2, &[empty]) && !check(&histories, 2, &[]));
        histories.begin(&keys[1..], put(7, 1), at(3));
        histories.acknowledge(&keys[1..], at(4));
        let row = ShownRow { s: Some(3), ..shown(0, 7, 1) };
        assert!(check(&histories, 5, &[row]) && !check(&histories, 5, &[empty]));
        assert!(!check(&histories, 5, &[ShownRow { s: Some(2), ..row }]));
        histories.begin(&keys, Change::Delete, at(6));
        assert!(check(&histories, 6, &[row]) && check(&histories, 6, &[]));
        histories.acknowledge(&keys, at(7));
        assert!(!check(&histories, 8, &[row]) && check(&histories, 8, &[]));
    }
}
