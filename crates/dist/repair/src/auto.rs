//! Repairs that begin by themselves, so that every replicated table is repaired within its window
//! without anybody's doing: shard 0 looks at the clock and does what [`crate::schedule`] says.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use cluster::{ClusterSnapshot, MemberState};
use schema::Table;
use stdx::{Instant, TableId};

use crate::history;
use crate::job::RepairState;
use crate::repair::{Inner, Repair};
use crate::schedule::{self, Candidate, Moment};
use crate::scope::RepairOptions;

/// Window of a table without `gc_grace_seconds`, and of none that is longer.
const WINDOW_MAX_SECONDS: i64 = 691_200;

/// How the schedule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoSettings {
    /// Whether there is one (`auto_repair_enabled`). Default true.
    pub enabled: bool,
    /// Within which every table is repaired (`auto_repair_window`); `None`: 0.8 of its
    /// `gc_grace_seconds`, 8 days at most.
    pub window: Option<Duration>,
    /// Bytes per second of this node that are read for it (`auto_repair_throughput`); 0 = no limit
    /// of its own. Default 8 MiB.
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
    /// Tables that failed, and until when they rest.
    resting: RefCell<BTreeMap<TableId, Instant>>,
    last_error: RefCell<Option<String>>,
}

impl AutoState {
    pub(crate) fn new(enabled: bool) -> AutoState {
        AutoState {
            enabled: Cell::new(enabled),
            running: Cell::default(),
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
    /// It is being repaired by the schedule.
    pub is_running: bool,
}

/// The schedule for those who ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoStatus {
    /// Whether repairs begin.
    pub enabled: bool,
    /// Bytes per second; 0 = no limit of its own.
    pub bytes_per_second: u64,
    /// Tables of which this node has primary ranges, by keyspace and name.
    pub tables: Vec<AutoTable>,
    /// Why the last one failed that did.
    pub last_error: Option<String>,
}

/// What this node is to keep repaired of a table.
struct Share {
    table: std::sync::Arc<Table>,
    candidate: Candidate,
}

impl Inner {
    fn window_of(&self, table: &Table) -> i64 {
        let seconds = |d: Duration| i64::try_from(d.as_secs()).unwrap_or(i64::MAX).max(1);
        let by_grace = match i64::from(table.options.gc_grace_seconds) {
            0 => WINDOW_MAX_SECONDS,
            grace => (grace.saturating_mul(4) / 5).clamp(1, WINDOW_MAX_SECONDS),
        };
        self.settings.auto.window.map_or(by_grace, seconds)
    }

    fn shares(&self, snapshot: &ClusterSnapshot) -> Vec<Share> {
        let (history, now) = (self.history.borrow(), self.rt.now());
        let mut shares: Vec<Share> = Vec::new();
        history::each_table(snapshot, |table, of_node| {
            if of_node.primary.is_empty() {
                return;
            }
            let times = of_node.primary.iter().map(|(a, b)| history.least_within(table.id, *a, *b));
            let repaired_at = times.min().flatten();
            let resting = self.auto.resting.borrow().get(&table.id).is_some_and(|t| *t > now);
            let window_seconds = self.window_of(table);
            let candidate = Candidate { repaired_at, window_seconds, resting };
            shares.push(Share { table: table.clone(), candidate });
        });
        shares
    }
}

impl Repair {
    /// The schedule. Shard 0.
    pub fn auto_status(&self) -> AutoStatus {
        let inner = &self.inner;
        let now = inner.rt.wall().seconds().0;
        let running = inner.auto.running.get().map(|(_, table)| table);
        let shares = inner.shares(&(inner.snapshot)());
        let tables = shares.into_iter().map(|share| AutoTable {
            keyspace: share.table.keyspace.to_string(),
            name: share.table.name.to_string(),
            repaired_at: share.candidate.repaired_at,
            window_seconds: share.candidate.window_seconds,
            is_due: schedule::is_due(&share.candidate, now),
            is_running: running == Some(share.table.id),
        });
        AutoStatus {
            enabled: inner.auto.enabled.get(),
            bytes_per_second: inner.settings.auto.bytes_per_second,
            tables: tables.collect(),
            last_error: inner.auto.last_error.borrow().clone(),
        }
    }

    /// Lets the schedule begin repairs, or not; one that runs is ended then. Shard 0; until the node
    /// stops.
    pub fn set_auto_enabled(&self, enabled: bool) {
        self.inner.auto.enabled.set(enabled);
        if !enabled && let Some((id, _)) = self.inner.auto.running.get() {
            self.abort(Some(id));
        }
    }

    pub(crate) async fn repair_by_itself(&self) {
        let inner = self.inner.clone();
        let auto = inner.settings.auto;
        if !inner.pause(auto.initial_delay).await {
            return;
        }
        loop {
            if let Some((table, options)) = inner.choose() {
                self.carry_out_one(&inner, table, options).await;
            }
            if !inner.pause(auto.turn / 2).await {
                return;
            }
        }
    }

    async fn carry_out_one(&self, inner: &Rc<Inner>, table: TableId, options: RepairOptions) {
        let name = format!("{}.{}", options.keyspace, options.tables.concat());
        let id = match self.start(options) {
            Ok(0) => return,
            Ok(id) => id,
            Err(error) => return tracing::debug!(table = name.as_str(), error, "no repair now"),
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
            }
            Some(status) => {
                inner.counts.auto_failed.inc();
                let words = status.lines.iter().rev().nth(1).map(|line| line.text.clone());
                let words = words.unwrap_or_default();
                tracing::info!(table = name.as_str(), why = words.as_str(), "will be tried again");
                *inner.auto.last_error.borrow_mut() = Some(format!("{name}: {words}"));
                let until = inner.rt.now() + inner.settings.auto.turn * 10;
                inner.auto.resting.borrow_mut().insert(table, until);
            }
            None => {}
        }
    }
}

impl Inner {
    /// False when the node stops.
    async fn pause(&self, time: Duration) -> bool {
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
        let ages = shares.iter().map(|s| now - s.candidate.repaired_at.unwrap_or(now));
        self.counts.auto_oldest.set(ages.max().unwrap_or(0));
        // A repair by hand comes first, and while ranges move none would begin.
        let is_settled = snapshot.members.values().all(|m| m.state == MemberState::Normal);
        if !self.auto.enabled.get() || self.running() > 0 || !is_settled {
            return None;
        }
        let me = snapshot.local.host_id;
        let position = snapshot.members.keys().position(|host| *host == me)?;
        let turn = i64::try_from(self.settings.auto.turn.as_secs()).unwrap_or(i64::MAX).max(1);
        let moment = Moment {
            now,
            position: position as u64,
            nodes: snapshot.members.len() as u64,
            turn_seconds: turn,
        };
        let candidates: Vec<Candidate> = shares.iter().map(|s| s.candidate.clone()).collect();
        let share = shares.get(schedule::next(&candidates, &moment)?)?;
        let options = RepairOptions {
            keyspace: share.table.keyspace.to_string(),
            tables: vec![share.table.name.to_string()],
            primary_range: true,
            job_threads: 1,
            ignore_unreplicated: true,
            // Old rounds are settled by the sweep of `system.paxos`.
            skip_paxos: true,
            bytes_per_second: self.settings.auto.bytes_per_second,
            ..RepairOptions::default()
        };
        Some((share.table.id, options))
    }
}
