//! Automatic repairs: every replicated table is repaired within its window, without an operator. Shard
//! 0 polls the schedule ([`crate::schedule`]) and starts its repairs, at its pace.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use cluster::{ClusterSnapshot, MemberState};
use schema::{Table, TombstoneGcMode};
use stdx::{Instant, TableId, Token};

use crate::corrupt_files_driver::CorruptFileRepairs;
use crate::env::Env;
use crate::history;
use crate::history_file::HistoryFile;
use crate::job::RepairState;
use crate::jobs::Jobs;
use crate::ranges::{parts_of, width};
use crate::schedule::{self, Limits, Moment, Pace, Piece};
use crate::scope::RepairOptions;

/// Window of a table without `gc_grace_seconds`, and of none that is longer.
const WINDOW_MAX_SECONDS: i64 = 691_200;
/// Pieces of a range at most.
const PIECES_MAX: u64 = 64;

/// Setting of automatic repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Automatic {
    /// Repairs begin automatically.
    On,
    /// Repairs do not begin automatically, and automatic ones under way are aborted.
    Off,
}

/// The schedule of a node. Shard 0.
pub(crate) struct Schedule {
    env: Rc<Env>,
    jobs: Rc<Jobs>,
    history: Rc<HistoryFile>,
    corrupt_files: Rc<CorruptFileRepairs>,
    /// The scheduled repair under way, and its table.
    running: Cell<Option<(u32, TableId)>>,
    /// The table that was begun in a turn of this node.
    begun: Cell<Option<TableId>>,
    /// Since when tables are known here, seconds since 1970.
    known: RefCell<BTreeMap<TableId, i64>>,
    /// Tables that failed, and until when they rest.
    resting: RefCell<BTreeMap<TableId, Instant>>,
    last_error: RefCell<Option<String>>,
}

impl Schedule {
    pub(crate) fn new(
        env: Rc<Env>,
        jobs: Rc<Jobs>,
        history: Rc<HistoryFile>,
        corrupt_files: Rc<CorruptFileRepairs>,
    ) -> Schedule {
        Schedule {
            env,
            jobs,
            history,
            corrupt_files,
            running: Cell::default(),
            begun: Cell::default(),
            known: RefCell::default(),
            resting: RefCell::default(),
            last_error: RefCell::default(),
        }
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

/// Status of the schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoStatus {
    /// True if automatic repairs are on.
    pub enabled: bool,
    /// Bytes per second at most; 0 = no limit of its own.
    pub bytes_per_second: u64,
    /// Current pace.
    pub pace: Pace,
    /// Tables of which this node has primary ranges, by keyspace and name.
    pub tables: Vec<AutoTable>,
    /// Why the last one failed that did.
    pub last_error: Option<String>,
}

/// Pieces of a table that this node keeps repaired.
struct Share {
    table: std::sync::Arc<Table>,
    /// With their tokens, the first exclusive.
    pieces: Vec<((Token, Token), Piece)>,
}

impl Schedule {
    fn window_of(&self, table: &Table) -> i64 {
        let seconds = |d: Duration| i64::try_from(d.as_secs()).unwrap_or(i64::MAX).max(1);
        let by_grace = match i64::from(table.options.gc_grace_seconds) {
            0 => WINDOW_MAX_SECONDS,
            grace => (grace.saturating_mul(4) / 5).clamp(1, WINDOW_MAX_SECONDS),
        };
        let mode = table.options.tombstone_gc().map(|option| option.mode);
        match self.env.settings.auto.window.map(seconds) {
            // Tombstones do not wait for a repair there: a longer window would lose them.
            Some(set) if mode == Some(TombstoneGcMode::Timeout) => set.min(by_grace),
            Some(set) => set,
            None => by_grace,
        }
    }

    fn shares(&self, snapshot: &ClusterSnapshot) -> Vec<Share> {
        let (history, now) = (self.history.known(), self.env.rt.now());
        let wall = self.env.rt.wall().seconds().0;
        let mut shares: Vec<Share> = Vec::new();
        history::each_table(snapshot, |table, of_node| {
            if of_node.primary.is_empty() {
                return;
            }
            let resting = self.resting.borrow().get(&table.id).is_some_and(|t| *t > now);
            let known_since = *self.known.borrow_mut().entry(table.id).or_insert(wall);
            let window_seconds = self.window_of(table);
            let owned = of_node.owned.iter().map(|(start, end, _)| width(*start, *end));
            let bytes_of = self.env.bytes_of(table.id, owned.sum());
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
        self.known.borrow_mut().retain(|table, _| is_there(table));
        shares
    }

    fn limits(&self) -> Limits {
        let own = self.env.settings.auto.bytes_per_second;
        Limits::below(self.env.throttle.rate_below(own))
    }
}

fn pieces_of(shares: &[Share]) -> Vec<Piece> {
    shares.iter().flat_map(|share| share.pieces.iter().map(|(_, piece)| piece.clone())).collect()
}

impl Schedule {
    pub(crate) fn status(&self) -> AutoStatus {
        let env = &self.env;
        let now = env.rt.wall().seconds().0;
        let running = self.running.get().map(|(_, table)| table);
        let shares = self.shares(&(env.snapshot)());
        let pace = schedule::pace(&pieces_of(&shares), now, self.limits());
        let tables = shares.into_iter().map(|share| {
            let all = || share.pieces.iter().map(|(_, piece)| piece);
            AutoTable {
                keyspace: share.table.keyspace.to_string(),
                name: share.table.name.to_string(),
                repaired_at: all().map(|piece| piece.repaired_at).min().flatten(),
                window_seconds: self.window_of(&share.table),
                is_due: all().any(|piece| piece.is_due(now)),
                is_late: all().any(|piece| piece.is_late(now)),
                is_running: running == Some(share.table.id),
            }
        });
        AutoStatus {
            enabled: self.jobs.is_automatic(),
            bytes_per_second: env.settings.auto.bytes_per_second,
            pace,
            tables: tables.collect(),
            last_error: self.last_error.borrow().clone(),
        }
    }

    /// Lets repairs begin by themselves, those of the schedule and those for damaged files, or not; what
    /// runs of them is ended then. Shard 0; until the node stops.
    pub(crate) fn set_automatic(&self, automatic: Automatic) {
        self.jobs.set_automatic(automatic == Automatic::On);
        if automatic == Automatic::Off {
            let scheduled = self.running.get().map(|(id, _)| id);
            for id in scheduled.into_iter().chain(self.corrupt_files.running()) {
                self.jobs.abort(Some(id));
            }
        }
    }

    /// Repairs what is due, until the node stops.
    pub(crate) async fn run(&self) {
        let env = &self.env;
        let auto = env.settings.auto;
        if !env.pause(auto.initial_delay).await {
            return;
        }
        let mut last = None;
        loop {
            let chosen = self.choose();
            let work = chosen.as_ref().map(|(table, options)| (*table, options.ranges.clone()));
            // A remainder continues at once. Work that was completed and is chosen again does not.
            let is_new = work.is_some() && work != last;
            if let Some((table, options)) = chosen {
                last = work;
                if self.carry_out_one(table, options).await && is_new {
                    continue;
                }
            }
            if !env.pause(auto.turn / 2).await {
                return;
            }
        }
    }

    /// Runs one repair. Returns true if it succeeded.
    async fn carry_out_one(&self, table: TableId, options: RepairOptions) -> bool {
        let env = &self.env;
        let name = format!("{}.{}", options.keyspace, options.tables.concat());
        let id = match self.jobs.start(options) {
            Ok(0) => return false,
            Ok(id) => id,
            Err(error) => {
                tracing::debug!(table = name.as_str(), error, "repair not started");
                return false;
            }
        };
        self.running.set(Some((id, table)));
        tracing::info!(table = name.as_str(), id, "starting a scheduled repair");
        let ended = loop {
            let Some(status) = self.jobs.status(id, 0) else { break None };
            if status.state != RepairState::Running {
                break Some(status);
            }
            if !env.pause(Duration::from_millis(500)).await {
                break None;
            }
        };
        self.running.set(None);
        match ended {
            Some(status) if status.state == RepairState::Successful => {
                env.counts.auto_done.inc();
                self.resting.borrow_mut().remove(&table);
                true
            }
            Some(status) => {
                env.counts.auto_failed.inc();
                let words = status.error();
                tracing::info!(
                    table = name.as_str(),
                    why = words.as_str(),
                    "scheduled repair failed; it will be retried"
                );
                *self.last_error.borrow_mut() = Some(format!("{name}: {words}"));
                let until = env.rt.now() + env.settings.auto.turn * 10;
                self.resting.borrow_mut().insert(table, until);
                false
            }
            None => false,
        }
    }

    /// Chooses the next repair by the schedule.
    fn choose(&self) -> Option<(TableId, RepairOptions)> {
        let snapshot = (self.env.snapshot)();
        let shares = self.shares(&snapshot);
        let now = self.env.rt.wall().seconds().0;
        let all = pieces_of(&shares);
        let ages = all.iter().map(|piece| now - piece.repaired_at.unwrap_or(now));
        self.env.counts.auto_oldest.set(ages.max().unwrap_or(0));
        let limits = self.limits();
        let pace = schedule::pace(&all, now, limits);
        self.note_pace(&pace);
        // A repair by hand and what damaged files have lost come first, and while ranges move none would
        // begin.
        let is_settled = snapshot.members.values().all(|m| m.state == MemberState::Normal);
        let is_first = self.jobs.running() == 0 && !self.corrupt_files.goes_first();
        if !self.jobs.is_automatic() || !is_first || !is_settled {
            return None;
        }
        let me = snapshot.local.host_id;
        let position = snapshot.members.keys().position(|host| *host == me)?;
        let turn = i64::try_from(self.env.settings.auto.turn.as_secs()).unwrap_or(i64::MAX).max(1);
        let begun = self.begun.get();
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
        self.begun.set(share.map(|share| share.table.id));
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
        self.env.counts.auto_pace.set(number(pace.bytes_per_second));
        self.env.counts.auto_needed.set(number(pace.needed));
        self.env.counts.auto_behind.set(i64::from(pace.is_behind));
    }
}
