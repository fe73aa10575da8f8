//! Repairs that begin by themselves, so that every replicated table is repaired within its window
//! without anybody's doing: shard 0 looks at the clock and does what [`crate::schedule`] says, as fast
//! as it says.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use cluster::{ClusterSnapshot, MemberState};
use schema::{Table, TombstoneGcMode};
use stdx::{Instant, TableId, Token};

use crate::history;
use crate::job::{RepairState, RepairStatus};
use crate::repair::{Inner, Repair};
use crate::schedule::{self, Limits, Moment, Pace, Piece};
use crate::scope::RepairOptions;

/// Window of a table without `gc_grace_seconds`, and of none that is longer.
const WINDOW_MAX_SECONDS: i64 = 691_200;
/// Pieces of a range at most.
const PIECES_MAX: u64 = 64;

/// How the schedule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoSettings {
    /// Whether there is one (`auto_repair_enabled`). Default true.
    pub enabled: bool,
    /// Within which every table is repaired (`auto_repair_window`); `None`: 0.8 of its
    /// `gc_grace_seconds`, 8 days at most.
    pub window: Option<Duration>,
    /// Most bytes per second of this node that are read for it (`auto_repair_throughput`); 0 = no limit
    /// of its own. Default 8 MiB. Less is read while there is time.
    pub bytes_per_second: u64,
    /// After the start of the node (`auto_repair_initial_delay`). Default 5 min.
    pub initial_delay: Duration,
    /// Length of a turn of a node, and twice the time between two looks
    /// (`auto_repair_turn`). Default 1 min.
    pub turn: Duration,
}

impl Default for AutoSettings {
    fn default() -> AutoSettings {
        AutoSettings {
            enabled: true,
            window: None,
            bytes_per_second: 8 << 20,
            initial_delay: Duration::from_secs(300),
            turn: Duration::from_secs(60),
        }
    }
}

/// The schedule as it stands.
pub(crate) struct AutoState {
    enabled: Cell<bool>,
    /// The repair under way, and its table.
    running: Cell<Option<(u32, TableId)>>,
    /// The table that was begun in a turn of this node.
    begun: Cell<Option<TableId>>,
    /// Since when tables are known here, seconds since 1970.
    known: RefCell<BTreeMap<TableId, i64>>,
    /// Tables that failed, and until when they rest.
    resting: RefCell<BTreeMap<TableId, Instant>>,
    last_error: RefCell<Option<String>>,
}

impl AutoState {
    pub(crate) fn new(enabled: bool) -> AutoState {
        AutoState {
            enabled: Cell::new(enabled),
            running: Cell::default(),
            begun: Cell::default(),
            known: RefCell::default(),
            resting: RefCell::default(),
            last_error: RefCell::default(),
        }
    }

    /// Whether repairs may begin by themselves.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.get()
    }
}

/// A table of the schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoTable {
    /// Keyspace.
    pub keyspace: String,
    /// Name.
    pub name: String,
    /// When the least recently repaired primary range of this node was, seconds since 1970.
    pub repaired_at: Option<i64>,
    /// Seconds within which it is to be.
    pub window_seconds: i64,
    /// It waits for the node's turn.
    pub is_due: bool,
    /// A part of it was not repaired within the window.
    pub is_late: bool,
    /// It is being repaired by the schedule.
    pub is_running: bool,
}

/// The schedule for those who ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoStatus {
    /// Whether repairs begin.
    pub enabled: bool,
    /// Bytes per second at most; 0 = no limit of its own.
    pub bytes_per_second: u64,
    /// How fast it goes.
    pub pace: Pace,
    /// Tables of which this node has primary ranges, by keyspace and name.
    pub tables: Vec<AutoTable>,
    /// Why the last one failed that did.
    pub last_error: Option<String>,
}

/// What this node is to keep repaired of a table.
struct Share {
    table: std::sync::Arc<Table>,
    /// With their tokens, the first exclusive.
    pieces: Vec<((Token, Token), Piece)>,
}

/// Tokens of `(start, end]`, which does not wrap.
pub(crate) fn width(start: Token, end: Token) -> u128 {
    u128::try_from(i128::from(end.0) - i128::from(start.0)).unwrap_or(0)
}

/// `(start, end]` in so many parts of the same width.
pub(crate) fn parts_of(start: Token, end: Token, parts: u64) -> Vec<(Token, Token)> {
    let all = i128::from(end.0) - i128::from(start.0);
    let parts = i128::from(parts.max(1)).min(all.max(1));
    let at = |n: i128| {
        let token = i128::from(start.0) + all * n / parts;
        Token(i64::try_from(token).unwrap_or(end.0))
    };
    (0..parts).map(|n| (at(n), at(n + 1))).collect()
}

impl Inner {
    fn window_of(&self, table: &Table) -> i64 {
        let seconds = |d: Duration| i64::try_from(d.as_secs()).unwrap_or(i64::MAX).max(1);
        let by_grace = match i64::from(table.options.gc_grace_seconds) {
            0 => WINDOW_MAX_SECONDS,
            grace => (grace.saturating_mul(4) / 5).clamp(1, WINDOW_MAX_SECONDS),
        };
        let mode = table.options.tombstone_gc().map(|option| option.mode);
        match self.settings.auto.window.map(seconds) {
            // Tombstones do not wait for a repair there: a longer window would lose them.
            Some(set) if mode == Some(TombstoneGcMode::Timeout) => set.min(by_grace),
            Some(set) => set,
            None => by_grace,
        }
    }

    fn shares(&self, snapshot: &ClusterSnapshot) -> Vec<Share> {
        let (history, now) = (self.history.borrow(), self.rt.now());
        let wall = self.rt.wall().seconds().0;
        let mut shares: Vec<Share> = Vec::new();
        history::each_table(snapshot, |table, of_node| {
            if of_node.primary.is_empty() {
                return;
            }
            let resting = self.auto.resting.borrow().get(&table.id).is_some_and(|t| *t > now);
            let known_since = *self.auto.known.borrow_mut().entry(table.id).or_insert(wall);
            let window_seconds = self.window_of(table);
            let owned = of_node.owned.iter().map(|(start, end, _)| width(*start, *end));
            let bytes_of = self.bytes_of(table.id, owned.sum());
            let mut pieces = Vec::new();
            for (start, end) in of_node.primary.iter().copied() {
                let parts = bytes_of(start, end).div_ceil(schedule::JOB_BYTES).clamp(1, PIECES_MAX);
                for (start, end) in parts_of(start, end, parts) {
                    let piece = Piece {
                        table: shares.len(),
                        repaired_at: history.least_within(table.id, start, end),
                        known_since,
                        window_seconds,
                        bytes: bytes_of(start, end),
                        resting,
                    };
                    pieces.push(((start, end), piece));
                }
            }
            shares.push(Share { table: table.clone(), pieces });
        });
        let is_there = |table: &TableId| snapshot.schema.tables_by_id.contains_key(table);
        self.auto.known.borrow_mut().retain(|table, _| is_there(table));
        shares
    }

    /// Estimates the bytes that this node has of a table between tokens, when its ranges have so many
    /// tokens: they are spread evenly over shards and over what a shard has.
    pub(crate) fn bytes_of(
        &self,
        table: TableId,
        owned: u128,
    ) -> impl Fn(Token, Token) -> u64 + use<> {
        let stats = self.coordinator.store().table_stats(table);
        let of_shard = stats.uncompressed_bytes.saturating_add(stats.memtable_bytes);
        let bytes = u128::from(of_shard) * u128::from(self.rt.shard_count());
        move |start, end| {
            let bytes = bytes.saturating_mul(width(start, end)) / owned.max(1);
            u64::try_from(bytes).unwrap_or(u64::MAX)
        }
    }

    fn limits(&self) -> Limits {
        let (own, all) = (self.settings.auto.bytes_per_second, self.rate.get());
        Limits::below(match (own, all) {
            (0, rate) | (rate, 0) => rate,
            (own, all) => own.min(all),
        })
    }
}

/// Why a repair failed.
pub(crate) fn error_of(status: &RepairStatus) -> String {
    let words = status.lines.iter().rev().nth(1).map(|line| line.text.clone());
    words.unwrap_or_default()
}

fn pieces_of(shares: &[Share]) -> Vec<Piece> {
    shares.iter().flat_map(|share| share.pieces.iter().map(|(_, piece)| piece.clone())).collect()
}

impl Repair {
    /// The schedule. Shard 0.
    pub fn auto_status(&self) -> AutoStatus {
        let inner = &self.inner;
        let now = inner.rt.wall().seconds().0;
        let running = inner.auto.running.get().map(|(_, table)| table);
        let shares = inner.shares(&(inner.snapshot)());
        let pace = schedule::pace(&pieces_of(&shares), now, inner.limits());
        let tables = shares.into_iter().map(|share| {
            let all = || share.pieces.iter().map(|(_, piece)| piece);
            AutoTable {
                keyspace: share.table.keyspace.to_string(),
                name: share.table.name.to_string(),
                repaired_at: all().map(|piece| piece.repaired_at).min().flatten(),
                window_seconds: inner.window_of(&share.table),
                is_due: all().any(|piece| piece.is_due(now)),
                is_late: all().any(|piece| piece.is_late(now)),
                is_running: running == Some(share.table.id),
            }
        });
        AutoStatus {
            enabled: inner.auto.enabled.get(),
            bytes_per_second: inner.settings.auto.bytes_per_second,
            pace,
            tables: tables.collect(),
            last_error: inner.auto.last_error.borrow().clone(),
        }
    }

    /// Lets repairs begin by themselves, those of the schedule and those for damaged files, or not; what
    /// runs of them is ended then. Shard 0; until the node stops.
    pub fn set_auto_enabled(&self, enabled: bool) {
        let inner = &self.inner;
        inner.auto.enabled.set(enabled);
        let scheduled = inner.auto.running.get().map(|(id, _)| id);
        for id in scheduled.into_iter().chain(inner.damaged.running()).filter(|_| !enabled) {
            self.abort(Some(id));
        }
    }

    pub(crate) async fn repair_by_itself(&self) {
        let inner = self.inner.clone();
        let auto = inner.settings.auto;
        if !inner.pause(auto.initial_delay).await {
            return;
        }
        let mut last = None;
        loop {
            let chosen = inner.choose();
            let work = chosen.as_ref().map(|(table, options)| (*table, options.ranges.clone()));
            // What is left over goes on at once; what is chosen again although it was done does not.
            let is_new = work.is_some() && work != last;
            if let Some((table, options)) = chosen {
                last = work;
                if self.carry_out_one(&inner, table, options).await && is_new {
                    continue;
                }
            }
            if !inner.pause(auto.turn / 2).await {
                return;
            }
        }
    }

    /// Whether it ended well.
    async fn carry_out_one(
        &self,
        inner: &Rc<Inner>,
        table: TableId,
        options: RepairOptions,
    ) -> bool {
        let name = format!("{}.{}", options.keyspace, options.tables.concat());
        let id = match self.start(options) {
            Ok(0) => return false,
            Ok(id) => id,
            Err(error) => {
                tracing::debug!(table = name.as_str(), error, "no repair now");
                return false;
            }
        };
        inner.auto.running.set(Some((id, table)));
        tracing::info!(table = name.as_str(), id, "repairs by schedule");
        let ended = loop {
            let Some(status) = self.status(id, 0) else { break None };
            if status.state != RepairState::Running {
                break Some(status);
            }
            if !inner.pause(Duration::from_millis(500)).await {
                break None;
            }
        };
        inner.auto.running.set(None);
        match ended {
            Some(status) if status.state == RepairState::Successful => {
                inner.counts.auto_done.inc();
                inner.auto.resting.borrow_mut().remove(&table);
                true
            }
            Some(status) => {
                inner.counts.auto_failed.inc();
                let words = error_of(&status);
                tracing::info!(table = name.as_str(), why = words.as_str(), "will be tried again");
                *inner.auto.last_error.borrow_mut() = Some(format!("{name}: {words}"));
                let until = inner.rt.now() + inner.settings.auto.turn * 10;
                inner.auto.resting.borrow_mut().insert(table, until);
                false
            }
            None => false,
        }
    }
}

impl Inner {
    /// False when the node stops.
    pub(crate) async fn pause(&self, time: Duration) -> bool {
        if self.stopping.get() {
            return false;
        }
        let until = self.rt.now() + time;
        self.rt.timeout(until, self.stop.notified()).await.is_err() && !self.stopping.get()
    }

    /// What the schedule says now.
    fn choose(&self) -> Option<(TableId, RepairOptions)> {
        let snapshot = (self.snapshot)();
        let shares = self.shares(&snapshot);
        let now = self.rt.wall().seconds().0;
        let all = pieces_of(&shares);
        let ages = all.iter().map(|piece| now - piece.repaired_at.unwrap_or(now));
        self.counts.auto_oldest.set(ages.max().unwrap_or(0));
        let limits = self.limits();
        let pace = schedule::pace(&all, now, limits);
        self.note_pace(&pace);
        // A repair by hand and what damaged files have lost come first, and while ranges move none would
        // begin.
        let is_settled = snapshot.members.values().all(|m| m.state == MemberState::Normal);
        let is_first = self.running() == 0 && !self.damaged.goes_first();
        if !self.auto.enabled.get() || !is_first || !is_settled {
            return None;
        }
        let me = snapshot.local.host_id;
        let position = snapshot.members.keys().position(|host| *host == me)?;
        let turn = i64::try_from(self.settings.auto.turn.as_secs()).unwrap_or(i64::MAX).max(1);
        let begun = self.auto.begun.get();
        let moment = Moment {
            now,
            position: position as u64,
            nodes: snapshot.members.len() as u64,
            turn_seconds: turn,
            is_pressed: pace.needed > limits.ceiling / 2,
            begun: begun.and_then(|id| shares.iter().position(|share| share.table.id == id)),
        };
        let flat = || shares.iter().flat_map(|s| s.pieces.iter().map(move |(range, _)| (s, range)));
        let chosen = schedule::next(&all, &moment);
        let share = chosen.first().and_then(|at| flat().nth(*at)).map(|(share, _)| share);
        self.auto.begun.set(share.map(|share| share.table.id));
        let share = share?;
        let ranges = flat().enumerate().filter(|(at, _)| chosen.contains(at));
        let options = RepairOptions {
            keyspace: share.table.keyspace.to_string(),
            tables: vec![share.table.name.to_string()],
            ranges: ranges.map(|(_, (_, range))| *range).collect(),
            job_threads: 1,
            ignore_unreplicated: true,
            // Old rounds are settled by the sweep of `system.paxos`.
            skip_paxos: true,
            bytes_per_second: pace.bytes_per_second,
            ..RepairOptions::default()
        };
        Some((share.table.id, options))
    }

    fn note_pace(&self, pace: &Pace) {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.counts.auto_pace.set(number(pace.bytes_per_second));
        self.counts.auto_needed.set(number(pace.needed));
        self.counts.auto_behind.set(i64::from(pace.is_behind));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_range_are_all_of_it() {
        let (min, max) = (Token(i64::MIN), Token(i64::MAX));
        for (start, end, parts) in
            [(min, max, 64), (min, max, 1), (Token(-3), Token(4), 3), (Token(5), Token(7), 9)]
        {
            let all = parts_of(start, end, parts);
            assert!(all.len() as u64 <= parts && !all.is_empty(), "{all:?}");
            assert_eq!((all[0].0, all[all.len() - 1].1), (start, end));
            assert!(all.windows(2).all(|w| w[0].1 == w[1].0), "{all:?}");
            assert!(all.iter().all(|(a, b)| a < b), "{all:?}");
            assert_eq!(all.iter().map(|(a, b)| width(*a, *b)).sum::<u128>(), width(start, end));
        }
        assert_eq!(parts_of(Token(-3), Token(4), 3).len(), 3);
    }
}
