//! Repairs of what damaged files have lost, begun by the node itself: shard 0 asks all shards for such files
//! and does what [`crate::damaged`] says, with repairs like any other.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::ClusterSnapshot;
use rt::Rt;
use schema::Table;
use stdx::{Instant, TableId, Token};
use store::{Store, is_behind_copy};
use telemetry::Counter;

use crate::auto::{error_of, width};
use crate::damaged::{self, Around, Candidate, Damaged, Failed, FileRepair, Need, Part};
use crate::job::RepairState;
use crate::mesh::Order;
use crate::repair::{Inner, Repair};
use crate::schedule::{JOB_BYTES, JOB_PIECES};
use crate::scope::RepairOptions;

/// How often it is looked for damaged files, and whether the repair of one has ended.
const LOOK: Duration = Duration::from_secs(10);
const LOOK_RUNNING: Duration = Duration::from_millis(500);
/// Damaged files that are looked at; others wait until some of them are let go of.
const FILES_MAX: usize = 1024;

/// How it stands with the repair for each damaged file, by path.
pub(crate) type FileRepairs = BTreeMap<String, FileRepair>;

/// A repair under way.
struct Running {
    id: u32,
    file: Damaged,
    ranges: Vec<(Token, Token)>,
}

/// The repairs for damaged files as they stand.
pub(crate) struct DamagedState {
    /// Shard 0.
    running: RefCell<Option<Running>>,
    /// By path; shard 0.
    failed: RefCell<BTreeMap<String, Failed>>,
    /// A file waits for a repair of this node: the schedule begins none until then. Shard 0.
    waits: Cell<bool>,
    /// On every shard.
    known: RefCell<Arc<FileRepairs>>,
    done: Counter,
    not_done: Counter,
}

impl DamagedState {
    pub(crate) fn new(rt: &Rt) -> DamagedState {
        let telemetry = rt.telemetry();
        let done = "auto_repair_damaged_done_total";
        let not_done = "auto_repair_damaged_failed_total";
        DamagedState {
            running: RefCell::default(),
            failed: RefCell::default(),
            waits: Cell::default(),
            known: RefCell::default(),
            done: telemetry.counter(done, "repairs begun for damaged files, ended well", &[]),
            not_done: telemetry.counter(not_done, "repairs begun for damaged files, failed", &[]),
        }
    }

    /// Whether the schedule lets a damaged file go first.
    pub(crate) fn goes_first(&self) -> bool {
        self.waits.get()
    }

    /// The repair under way.
    pub(crate) fn running(&self) -> Option<u32> {
        self.running.borrow().as_ref().map(|running| running.id)
    }

    /// Shard 0 says how it stands.
    pub(crate) fn set_known(&self, repairs: Arc<FileRepairs>) {
        *self.known.borrow_mut() = repairs;
    }
}

/// The damaged files of a shard.
pub(crate) fn files_of(store: &Store) -> Vec<Damaged> {
    let of = |file: store::DamagedFile| Damaged {
        table: file.id,
        path: file.path,
        tokens: file.tokens,
        copied: file.salvaged,
    };
    store.verifier().damaged_files().into_iter().map(of).collect()
}

impl Repair {
    /// What is done to have repaired what a damaged file has lost, in words, by the path of its Data.
    pub fn damaged_file_state(&self, path: &str) -> Option<String> {
        let inner = &self.inner;
        let known = inner.damaged.known.borrow().clone();
        known.get(path)?.words(|host| inner.address(host), inner.rt.now())
    }

    /// Until the node stops.
    pub(crate) async fn repair_damaged(&self) {
        let inner = self.inner.clone();
        let begin = inner.rt.now() + inner.settings.auto.initial_delay;
        let mut look = inner.rt.now();
        loop {
            // What is left, or the next file, follows at once.
            if self.end_for_damaged() || inner.rt.now() >= look {
                self.look_at_damaged(begin).await;
                look = inner.rt.now() + LOOK;
            }
            let is_running = inner.damaged.running().is_some();
            if !inner.pause(if is_running { LOOK_RUNNING } else { LOOK }).await {
                return;
            }
        }
    }

    /// Whether the repair under way has ended just now.
    fn end_for_damaged(&self) -> bool {
        let (inner, state) = (&self.inner, &self.inner.damaged);
        let Some(id) = state.running() else { return false };
        let status = self.status(id, 0);
        if status.as_ref().is_some_and(|status| status.state == RepairState::Running) {
            return false;
        }
        let Some(Running { file, ranges, .. }) = state.running.take() else { return false };
        let error = match &status {
            Some(status) if status.state != RepairState::Successful => Some(error_of(status)),
            // What was not noted would be repaired again at once.
            _ => match inner.is_noted(&file, &ranges) {
                true => None,
                false => Some("that it was done could not be recorded".to_owned()),
            },
        };
        let path = file.path;
        let Some(error) = error else {
            state.done.inc();
            state.failed.borrow_mut().remove(&path);
            tracing::info!(path, id, "what a damaged file had in these ranges was repaired");
            return true;
        };
        state.not_done.inc();
        // Switched off, it did not fail by itself.
        if inner.auto.is_enabled() {
            let mut failed = state.failed.borrow_mut();
            let next = Failed::and(failed.get(&path), error.clone(), inner.rt.now());
            let seconds = next.due.since(inner.rt.now()).as_secs();
            tracing::warn!(
                path,
                id,
                error,
                attempts = next.attempts,
                again_in_seconds = seconds,
                "the repair of what a damaged file has lost failed, and is tried again"
            );
            failed.insert(path, next);
        }
        true
    }

    async fn look_at_damaged(&self, begin: Instant) {
        let (inner, state) = (self.inner.clone(), &self.inner.damaged);
        let files = match inner.on_all_shards(&Order::Damaged).await {
            Ok(found) => damaged::in_order(found.damaged),
            Err(error) => {
                state.waits.set(false);
                return tracing::debug!(%error, "damaged files are not known now");
            }
        };
        state.failed.borrow_mut().retain(|path, _| files.iter().any(|file| file.path == *path));
        let snapshot = (inner.snapshot)();
        let candidates = inner.candidates(&snapshot, files);
        let running = state.running.borrow().as_ref().map(|r| (r.id, r.file.path.clone()));
        let around = Around {
            now: inner.rt.wall().seconds().0,
            instant: inner.rt.now(),
            is_enabled: inner.auto.is_enabled(),
            begin,
            is_alive: &|host| (inner.is_alive)(host),
            is_busy: &|table, part| inner.compares(&snapshot, table, part),
        };
        let of_running = running.as_ref().map(|(id, path)| (*id, path.as_str()));
        let mut decision = damaged::decide(&candidates, of_running, &around);
        if let Some((at, ranges)) = decision.next.take()
            && let Some(candidate) = candidates.get(at)
            && let Some(place) = decision.states.get_mut(at)
        {
            match self.begin_for_damaged(&snapshot, &candidate.file, ranges) {
                Some(id) => *place = FileRepair::Running(id),
                None => *place = FileRepair::Busy,
            }
        }
        state.waits.set(decision.states.contains(&FileRepair::Busy) && inner.running() > 0);
        let paths = candidates.into_iter().map(|candidate| candidate.file.path);
        inner.tell_damaged(paths.zip(decision.states).collect()).await;
    }

    /// Begins a repair; its number.
    fn begin_for_damaged(
        &self,
        snapshot: &ClusterSnapshot,
        file: &Damaged,
        ranges: Vec<(Token, Token)>,
    ) -> Option<u32> {
        let inner = &self.inner;
        let table = snapshot.schema.table_by_id(file.table)?;
        let owned = damaged::owned(snapshot, file.table)?;
        let owned: u128 = owned.iter().map(|part| width(part.start, part.end)).sum();
        let bytes_of = inner.bytes_of(file.table, owned);
        let ranges = damaged::first_of(&ranges, bytes_of, JOB_BYTES, JOB_PIECES);
        let options = inner.options_for(table, ranges.clone());
        let path = file.path.as_str();
        match self.start(options) {
            // 0: no other node has replicas of it any more.
            Ok(0) => None,
            Ok(id) => {
                tracing::info!(
                    path,
                    id,
                    ranges = ranges.len(),
                    "repairs what a damaged file has lost"
                );
                *inner.damaged.running.borrow_mut() =
                    Some(Running { id, file: file.clone(), ranges });
                Some(id)
            }
            Err(error) => {
                tracing::debug!(path, error, "no repair now");
                None
            }
        }
    }
}

impl Inner {
    fn options_for(&self, table: &Table, ranges: Vec<(Token, Token)>) -> RepairOptions {
        RepairOptions {
            keyspace: table.keyspace.to_string(),
            tables: vec![table.name.to_string()],
            ranges,
            job_threads: 1,
            ignore_unreplicated: true,
            // Old rounds are settled by the sweep of `system.paxos`.
            skip_paxos: true,
            bytes_per_second: self.settings.auto.bytes_per_second,
            ..RepairOptions::default()
        }
    }

    /// Whether the history says that ranges were repaired behind the copies of a file.
    fn is_noted(&self, file: &Damaged, ranges: &[(Token, Token)]) -> bool {
        let (history, copied) = (self.history.borrow(), file.copied.unwrap_or(i64::MAX));
        ranges.iter().all(|(start, end)| {
            let at = history.least_within(file.table, *start, *end);
            at.is_some_and(|at| is_behind_copy(at, copied))
        })
    }

    fn candidates(&self, snapshot: &ClusterSnapshot, files: Vec<Damaged>) -> Vec<Candidate> {
        let (history, failed) = (self.history.borrow(), self.damaged.failed.borrow());
        let mut owned: BTreeMap<TableId, Vec<Part>> = BTreeMap::new();
        let mut candidates = Vec::new();
        for file in files.into_iter().take(FILES_MAX) {
            let of_table = owned
                .entry(file.table)
                .or_insert_with(|| damaged::owned(snapshot, file.table).unwrap_or_default());
            let need = match file.copied {
                Some(copied) => damaged::need(of_table, &history, &file, copied),
                None => Need::default(),
            };
            let failed = failed.get(&file.path).cloned();
            candidates.push(Candidate { file, need, failed });
        }
        candidates
    }

    /// Whether a repair, of this node or of another one, compares a part of a table.
    fn compares(&self, snapshot: &ClusterSnapshot, id: TableId, part: &Part) -> bool {
        let range = (part.start, part.end);
        let Some(table) = snapshot.schema.table_by_id(id) else { return false };
        // Who is dead goes on with none.
        let is_other = |host| host != snapshot.local.host_id && (self.is_alive)(host);
        self.repairs_now(&table.keyspace, &table.name, range)
            || self.participations.compares(is_other, id, range)
    }

    /// Lets every shard know how it stands, and says what is new.
    async fn tell_damaged(&self, repairs: FileRepairs) {
        let before = self.damaged.known.borrow().clone();
        if *before == repairs {
            return;
        }
        for (path, state) in &repairs {
            let is_known = before.get(path).is_some_and(|before| before.is_like(state));
            let words = state.words(|host| self.address(host), self.rt.now());
            if let Some(state) = words.filter(|_| !is_known) {
                tracing::info!(path, state, "a damaged file");
            }
        }
        let repairs = Arc::new(repairs);
        if let Err(error) = self.on_all_shards(&Order::FileRepairs(repairs)).await {
            tracing::debug!(%error, "shards do not know how it stands with damaged files");
        }
    }
}
