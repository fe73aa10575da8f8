//! Automatic repairs of corrupt files: shard 0 collects such files from all shards and starts ordinary
//! repairs as [`crate::corrupt_files`] decides.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, TokenRange};
use schema::Table;
use stdx::{Instant, TableId, Token};
use store::is_behind_copy;
use telemetry::Counter;

use crate::corrupt_files::{
    self, Around, Candidate, CorruptFile, Failed, FileRepair, FileRepairs, KnownRepairs, Need, Part,
};
use crate::env::Env;
use crate::history_file::HistoryFile;
use crate::job::RepairState;
use crate::jobs::Jobs;
use crate::participation::Participations;
use crate::ranges::width;
use crate::schedule::{JOB_BYTES, JOB_PIECES};
use crate::scope::RepairOptions;
use crate::shards::{Order, Shards};

/// Intervals of the checks for corrupt files, and for the end of the repair of one.
const LOOK: Duration = Duration::from_secs(10);
const LOOK_RUNNING: Duration = Duration::from_millis(500);
/// Maximum number of corrupt files that are handled; others wait until some of them are removed.
const FILES_MAX: usize = 1024;

/// A repair under way.
struct Running {
    id: u32,
    file: CorruptFile,
    ranges: Vec<(Token, Token)>,
}

/// The repairs for damaged files. Shard 0.
pub(crate) struct CorruptFileRepairs {
    env: Rc<Env>,
    jobs: Rc<Jobs>,
    shards: Rc<Shards>,
    history: Rc<HistoryFile>,
    participations: Rc<Participations>,
    known: Rc<KnownRepairs>,
    running: RefCell<Option<Running>>,
    /// By path.
    failed: RefCell<BTreeMap<String, Failed>>,
    /// A file waits for a repair of this node: the schedule begins none until then.
    waits: Cell<bool>,
    done: Counter,
    not_done: Counter,
}

/// The rooms that it works with.
pub(crate) struct CorruptFileParts {
    pub(crate) env: Rc<Env>,
    pub(crate) jobs: Rc<Jobs>,
    pub(crate) shards: Rc<Shards>,
    pub(crate) history: Rc<HistoryFile>,
    pub(crate) participations: Rc<Participations>,
    pub(crate) known: Rc<KnownRepairs>,
}

impl CorruptFileRepairs {
    pub(crate) fn new(parts: CorruptFileParts) -> CorruptFileRepairs {
        let CorruptFileParts { env, jobs, shards, history, participations, known } = parts;
        let telemetry = env.rt.telemetry();
        let done = "auto_repair_damaged_done_total";
        let not_done = "auto_repair_damaged_failed_total";
        let done = telemetry.counter(done, "repairs begun for damaged files, ended well", &[]);
        let not_done = telemetry.counter(not_done, "repairs begun for damaged files, failed", &[]);
        CorruptFileRepairs {
            env,
            jobs,
            shards,
            history,
            participations,
            known,
            running: RefCell::default(),
            failed: RefCell::default(),
            waits: Cell::default(),
            done,
            not_done,
        }
    }

    /// Returns true if the schedule must let the repair of a corrupt file go first.
    pub(crate) fn goes_first(&self) -> bool {
        self.waits.get()
    }

    /// The repair under way.
    pub(crate) fn running(&self) -> Option<u32> {
        self.running.borrow().as_ref().map(|running| running.id)
    }
}

impl CorruptFileRepairs {
    /// Repairs what corrupt files have lost, until the node stops.
    pub(crate) async fn run(&self) {
        let env = &self.env;
        let begin = env.rt.now() + env.settings.auto.initial_delay;
        let mut look = env.rt.now();
        loop {
            // After a repair, its remainder or the next file follows at once.
            if self.end_running() || env.rt.now() >= look {
                self.check(begin).await;
                look = env.rt.now() + LOOK;
            }
            let is_running = self.running().is_some();
            if !env.pause(if is_running { LOOK_RUNNING } else { LOOK }).await {
                return;
            }
        }
    }

    /// Handles the end of the repair under way. Returns true if it has ended just now.
    fn end_running(&self) -> bool {
        let env = &self.env;
        let Some(id) = self.running() else { return false };
        let status = self.jobs.status(id, 0);
        if status.as_ref().is_some_and(|status| status.state == RepairState::Running) {
            return false;
        }
        let Some(Running { file, ranges, .. }) = self.running.take() else { return false };
        let error = match &status {
            Some(status) if status.state != RepairState::Successful => Some(status.error()),
            // A success that is not in the history would be repeated at once.
            _ => match self.is_noted(&file, &ranges) {
                true => None,
                false => Some("that it was done could not be recorded".to_owned()),
            },
        };
        let path = file.path;
        let Some(error) = error else {
            self.done.inc();
            self.failed.borrow_mut().remove(&path);
            tracing::info!(path, id, "repaired token ranges of a damaged file");
            return true;
        };
        self.not_done.inc();
        // A repair that was switched off has not failed.
        if self.jobs.is_automatic() {
            let mut failed = self.failed.borrow_mut();
            let next = Failed::and(failed.get(&path), error.clone(), env.rt.now());
            let seconds = next.due.since(env.rt.now()).as_secs();
            tracing::warn!(
                path,
                id,
                error,
                attempts = next.attempts,
                again_in_seconds = seconds,
                "repair of a damaged file's token ranges failed; it will be retried"
            );
            failed.insert(path, next);
        }
        true
    }

    async fn check(&self, begin: Instant) {
        let env = &self.env;
        let files = match self.shards.on_all(&Order::CorruptFiles).await {
            Ok(found) => corrupt_files::in_order(found.corrupt_files),
            Err(error) => {
                self.waits.set(false);
                return tracing::debug!(%error, "cannot list the damaged files");
            }
        };
        self.failed.borrow_mut().retain(|path, _| files.iter().any(|file| file.path == *path));
        let snapshot = (env.snapshot)();
        let candidates = self.candidates(&snapshot, files);
        let running = self.running.borrow().as_ref().map(|r| (r.id, r.file.path.clone()));
        let around = Around {
            now: env.rt.wall().seconds().0,
            instant: env.rt.now(),
            is_enabled: self.jobs.is_automatic(),
            begin,
            is_alive: &|host| (env.is_alive)(host),
            is_busy: &|table, part| self.compares(&snapshot, table, part),
        };
        let of_running = running.as_ref().map(|(id, path)| (*id, path.as_str()));
        let mut decision = corrupt_files::decide(&candidates, of_running, &around);
        if let Some((at, ranges)) = decision.next.take()
            && let Some(candidate) = candidates.get(at)
            && let Some(place) = decision.states.get_mut(at)
        {
            match self.begin(&snapshot, &candidate.file, ranges) {
                Some(id) => *place = FileRepair::Running(id),
                None => *place = FileRepair::Busy,
            }
        }
        self.waits.set(decision.states.contains(&FileRepair::Busy) && self.jobs.running() > 0);
        let paths = candidates.into_iter().map(|candidate| candidate.file.path);
        self.publish(paths.zip(decision.states).collect()).await;
    }

    /// Starts a repair; returns its number.
    fn begin(
        &self,
        snapshot: &ClusterSnapshot,
        file: &CorruptFile,
        ranges: Vec<(Token, Token)>,
    ) -> Option<u32> {
        let env = &self.env;
        let table = snapshot.schema.table_by_id(file.table)?;
        let owned = corrupt_files::owned(snapshot, file.table)?;
        let owned: u128 = owned.iter().map(|part| width(part.start, part.end)).sum();
        let bytes_of = env.bytes_of(file.table, owned);
        let ranges = corrupt_files::first_of(&ranges, bytes_of, JOB_BYTES, JOB_PIECES);
        let options = self.options_for(table, ranges.clone());
        let path = file.path.as_str();
        match self.jobs.start(options) {
            // 0: no other node has replicas of it any more.
            Ok(0) => None,
            Ok(id) => {
                tracing::info!(
                    path,
                    id,
                    ranges = ranges.len(),
                    "repairing token ranges of a damaged file"
                );
                *self.running.borrow_mut() = Some(Running { id, file: file.clone(), ranges });
                Some(id)
            }
            Err(error) => {
                tracing::debug!(path, error, "repair not started");
                None
            }
        }
    }

    fn options_for(&self, table: &Table, ranges: Vec<(Token, Token)>) -> RepairOptions {
        RepairOptions {
            keyspace: table.keyspace.to_string(),
            tables: vec![table.name.to_string()],
            ranges,
            job_threads: 1,
            ignore_unreplicated: true,
            // Old rounds are settled by the sweep of `system.paxos`.
            skip_paxos: true,
            bytes_per_second: self.env.settings.auto.bytes_per_second,
            ..RepairOptions::default()
        }
    }

    /// Returns true if the history has repairs of all ranges after the copies of a file were made.
    fn is_noted(&self, file: &CorruptFile, ranges: &[(Token, Token)]) -> bool {
        let (history, copied) = (self.history.known(), file.copied.unwrap_or(i64::MAX));
        ranges.iter().all(|(start, end)| {
            let at = history.least_within(file.table, *start, *end);
            at.is_some_and(|at| is_behind_copy(at, copied))
        })
    }

    fn candidates(&self, snapshot: &ClusterSnapshot, files: Vec<CorruptFile>) -> Vec<Candidate> {
        let (history, failed) = (self.history.known(), self.failed.borrow());
        let mut owned: BTreeMap<TableId, Vec<Part>> = BTreeMap::new();
        let mut candidates = Vec::new();
        for file in files.into_iter().take(FILES_MAX) {
            let of_table = owned
                .entry(file.table)
                .or_insert_with(|| corrupt_files::owned(snapshot, file.table).unwrap_or_default());
            let need = match file.copied {
                Some(copied) => corrupt_files::need(of_table, &history, &file, copied),
                None => Need::default(),
            };
            let failed = failed.get(&file.path).cloned();
            candidates.push(Candidate { file, need, failed });
        }
        candidates
    }

    /// Returns true if a repair, of this node or of another one, is comparing a part of a table.
    fn compares(&self, snapshot: &ClusterSnapshot, id: TableId, part: &Part) -> bool {
        let range = TokenRange { start: part.start, end: part.end };
        let Some(table) = snapshot.schema.table_by_id(id) else { return false };
        // A dead node runs no repair.
        let is_other = |host| host != snapshot.local.host_id && (self.env.is_alive)(host);
        self.jobs.repairs_now(&table.keyspace, &table.name, range)
            || self.participations.compares(is_other, id, range)
    }

    /// Publishes the states to every shard, and logs changes.
    async fn publish(&self, repairs: FileRepairs) {
        let before = self.known.get();
        if *before == repairs {
            return;
        }
        for (path, state) in &repairs {
            let is_known = before.get(path).is_some_and(|before| before.is_like(state));
            let words = state.words(|host| self.env.address(host), self.env.rt.now());
            if let Some(state) = words.filter(|_| !is_known) {
                tracing::info!(path, state, "state of a damaged file has changed");
            }
        }
        let repairs = Arc::new(repairs);
        if let Err(error) = self.shards.on_all(&Order::FileRepairs(repairs)).await {
            tracing::debug!(%error, "cannot notify the shards of the state of damaged files");
        }
    }
}
